//! Content of files.

use store::fs::{self, Output};
use wire::nfs4::{
    ALLOCATE4args, CLONE4args, COMMIT4args, IO_ADVISE4args, READ4args, SEEK4args, WRITE4args,
    nfsstat4,
};

use crate::run::{Outcome, Run};

use crate::run::Around;
use machine::Tag;

/// Memory for the data of a WRITE.
pub fn prepare(
    _around: &mut Around<'_>,
    _call: Tag,
    _tag: Tag,
    _offset: u64,
    _len: u32,
    _staged: bool,
) -> bool {
    false
}

/// Payload that lies where it was staged moves to memory of its own: others
/// will receive there while the call waits.
pub(crate) fn secure(_run: &mut Run<'_>) {}

/// How an operation goes on.
pub(crate) enum Then {}

pub(crate) fn after<'a>(
    _run: &mut Run<'a>,
    then: Then,
    _result: Result<Output, fs::Error>,
) -> Outcome<'a> {
    match then {}
}

pub(crate) fn commit<'a>(_run: &mut Run<'a>, _args: &COMMIT4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn read<'a>(_run: &mut Run<'a>, _args: &READ4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn write<'a>(_run: &mut Run<'a>, _args: &WRITE4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn allocate<'a>(_run: &mut Run<'a>, _args: &ALLOCATE4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn deallocate<'a>(_run: &mut Run<'a>, _args: &ALLOCATE4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn io_advise<'a>(_run: &mut Run<'a>, _args: &IO_ADVISE4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn read_plus<'a>(_run: &mut Run<'a>, _args: &READ4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn seek<'a>(_run: &mut Run<'a>, _args: &SEEK4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn clone<'a>(_run: &mut Run<'a>, _args: &CLONE4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}
