//! Opens and delegations, and what a state id lets its holder do.

use store::fs::{self, Output};
use wire::nfs4::{
    CLOSE4args, DELEGPURGE4args, DELEGRETURN4args, FREE_STATEID4args, OPEN_CONFIRM4args,
    OPEN_DOWNGRADE4args, OPEN4args, TEST_STATEID4args, nfsstat4,
};

use crate::run::{Outcome, Run};

use wire::nfs4::stateid4;

/// States that a connection has seen.
#[derive(Default)]
pub(crate) struct Seen {}

/// Whether the current file may be read ([`nfs::server::files::READ`]) or
/// written with a state id, which may be a special one; then whether it was
/// checked when the file was opened ([`fs::Caller::is_open`]).
#[inline]
pub(crate) fn check_io(
    _run: &mut Run<'_>,
    _stateid: &stateid4,
    _access: u32,
) -> Result<bool, nfsstat4> {
    Ok(false)
}

/// Whether nobody else has a delegation of a file that is about to be changed;
/// theirs are recalled.
#[inline]
pub(crate) fn break_delegations(
    _run: &mut Run<'_>,
    _file: nfs::server::files::FileKey,
) -> Result<(), nfsstat4> {
    Ok(())
}

/// How an operation goes on.
pub(crate) enum Then {}

pub(crate) fn after<'a>(
    _run: &mut Run<'a>,
    then: Then,
    _result: Result<Output, fs::Error>,
) -> Outcome<'a> {
    match then {}
}

pub(crate) fn open<'a>(_run: &mut Run<'a>, _args: &OPEN4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn open_confirm<'a>(_run: &mut Run<'a>, _args: &OPEN_CONFIRM4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn open_downgrade<'a>(_run: &mut Run<'a>, _args: &OPEN_DOWNGRADE4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn close<'a>(_run: &mut Run<'a>, _args: &CLOSE4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn delegpurge<'a>(_run: &mut Run<'a>, _args: &DELEGPURGE4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn delegreturn<'a>(_run: &mut Run<'a>, _args: &DELEGRETURN4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn free_stateid<'a>(_run: &mut Run<'a>, _args: &FREE_STATEID4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn test_stateid<'a>(_run: &mut Run<'a>, _args: &TEST_STATEID4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}
