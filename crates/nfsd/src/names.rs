//! File handles, names, directories.

use store::fs::{self, Output};
use wire::nfs4::{
    CREATE4args, LINK4args, LOOKUP4args, PUTFH4args, READDIR4args, REMOVE4args, RENAME4args,
    SECINFO_NO_NAME4args, SECINFO4args, nfsstat4,
};

use crate::run::{Outcome, Run};

use crate::pseudo::View;

/// What the pseudo file system answers.
pub(crate) fn pseudo(_view: &View, _op: &fs::Op<'_>) -> Result<Output, fs::Error> {
    Err(fs::Error::RoFs)
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

pub(crate) fn create<'a>(_run: &mut Run<'a>, _args: &CREATE4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn getfh<'a>(_run: &mut Run<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn link<'a>(_run: &mut Run<'a>, _args: &LINK4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn lookup<'a>(_run: &mut Run<'a>, _args: &LOOKUP4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn lookupp<'a>(_run: &mut Run<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn putfh<'a>(_run: &mut Run<'a>, _args: &PUTFH4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn putrootfh<'a>(_run: &mut Run<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn readdir<'a>(_run: &mut Run<'a>, _args: &READDIR4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn readlink<'a>(_run: &mut Run<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn remove<'a>(_run: &mut Run<'a>, _args: &REMOVE4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn rename<'a>(_run: &mut Run<'a>, _args: &RENAME4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn restorefh<'a>(_run: &mut Run<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn savefh<'a>(_run: &mut Run<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn secinfo<'a>(_run: &mut Run<'a>, _args: &SECINFO4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn secinfo_no_name<'a>(_run: &mut Run<'a>, _args: &SECINFO_NO_NAME4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}
