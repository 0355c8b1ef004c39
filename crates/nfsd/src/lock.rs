//! Byte-range locks.

use store::fs::{self, Output};
use wire::nfs4::{LOCK4args, LOCKT4args, LOCKU4args, RELEASE_LOCKOWNER4args, nfsstat4};

use crate::run::{Outcome, Run};

/// How an operation goes on.
pub(crate) enum Then {}

pub(crate) fn after<'a>(
    _run: &mut Run<'a>,
    then: Then,
    _result: Result<Output, fs::Error>,
) -> Outcome<'a> {
    match then {}
}

pub(crate) fn lock<'a>(_run: &mut Run<'a>, _args: &LOCK4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn lockt<'a>(_run: &mut Run<'a>, _args: &LOCKT4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn locku<'a>(_run: &mut Run<'a>, _args: &LOCKU4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn release_lockowner<'a>(
    _run: &mut Run<'a>,
    _args: &RELEASE_LOCKOWNER4args<'a>,
) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}
