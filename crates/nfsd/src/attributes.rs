//! Attributes, and extended ones.

use store::fs::{self, Output};
use wire::nfs4::{
    ACCESS4args, GETATTR4args, LISTXATTRS4args, SETATTR4args, SETXATTR4args, VERIFY4args,
    XATTR4args, nfsstat4,
};

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

pub(crate) fn access<'a>(_run: &mut Run<'a>, _args: &ACCESS4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn getattr<'a>(_run: &mut Run<'a>, _args: &GETATTR4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn verify<'a>(_run: &mut Run<'a>, _args: &VERIFY4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn setattr<'a>(_run: &mut Run<'a>, _args: &SETATTR4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn getxattr<'a>(_run: &mut Run<'a>, _args: &XATTR4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn setxattr<'a>(_run: &mut Run<'a>, _args: &SETXATTR4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn listxattrs<'a>(_run: &mut Run<'a>, _args: &LISTXATTRS4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn removexattr<'a>(_run: &mut Run<'a>, _args: &XATTR4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}
