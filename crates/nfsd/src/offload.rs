//! Copies.

use store::fs::{self, Output};
use wire::nfs4::{COPY4args, OFFLOAD4args, nfsstat4};

use crate::run::{Outcome, Run};

/// Copies under way.
#[derive(Debug, Default)]
pub struct Copies {}

/// How an operation goes on.
pub(crate) enum Then {}

pub(crate) fn after<'a>(
    _run: &mut Run<'a>,
    then: Then,
    _result: Result<Output, fs::Error>,
) -> Outcome<'a> {
    match then {}
}

pub(crate) fn copy<'a>(_run: &mut Run<'a>, _args: &COPY4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn offload_cancel<'a>(_run: &mut Run<'a>, _args: &OFFLOAD4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn offload_status<'a>(_run: &mut Run<'a>, _args: &OFFLOAD4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}
