//! Clients and sessions.

use store::fs::{self, Output};
use wire::nfs4::{
    BACKCHANNEL_CTL4args, BIND_CONN_TO_SESSION4args, CREATE_SESSION4args, DESTROY_CLIENTID4args,
    DESTROY_SESSION4args, EXCHANGE_ID4args, RECLAIM_COMPLETE4args, RENEW4args,
    SETCLIENTID_CONFIRM4args, SETCLIENTID4args, nfsstat4,
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

pub(crate) fn renew<'a>(_run: &mut Run<'a>, _args: &RENEW4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn setclientid<'a>(_run: &mut Run<'a>, _args: &SETCLIENTID4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn setclientid_confirm<'a>(
    _run: &mut Run<'a>,
    _args: &SETCLIENTID_CONFIRM4args,
) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn backchannel_ctl<'a>(
    _run: &mut Run<'a>,
    _args: &BACKCHANNEL_CTL4args<'a>,
) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn bind_conn_to_session<'a>(
    _run: &mut Run<'a>,
    _args: &BIND_CONN_TO_SESSION4args,
) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn exchange_id<'a>(_run: &mut Run<'a>, _args: &EXCHANGE_ID4args<'a>) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn create_session<'a>(
    _run: &mut Run<'a>,
    _args: &CREATE_SESSION4args<'a>,
) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn destroy_session<'a>(_run: &mut Run<'a>, _args: &DESTROY_SESSION4args) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn destroy_clientid<'a>(
    _run: &mut Run<'a>,
    _args: &DESTROY_CLIENTID4args,
) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn reclaim_complete<'a>(
    _run: &mut Run<'a>,
    _args: &RECLAIM_COMPLETE4args,
) -> Outcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}
