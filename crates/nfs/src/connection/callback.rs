//! The record of a call to a client.

use auth::gss::GssError;
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_VERSION, RPCSEC_GSS, RecordMark, call_body, msg_type, opaque_auth,
};
use wire::xdr::{Encode, Opaque};

use super::CallBack;
use super::gss::InContext;
use crate::server::CallbackWay;

/// Bytes of an empty verifier.
const NO_VERIFIER_BYTES: usize = 8;

/// Appends a call with room for its mark; `args` appends its arguments. `context` is the one that
/// it is in, if it is by RPCSEC_GSS.
pub(super) fn put(
    (xid, called): (u32, &CallBack),
    context: Option<&InContext>,
    args: impl FnOnce(&mut Vec<u8>),
    to: &mut Vec<u8>,
) -> Result<(), GssError> {
    let own = match (&called.way, context) {
        (CallbackWay::Gss(handles), Some(context)) => context.credential(&handles.there),
        // Stamp, name, user, group, no further groups.
        (CallbackWay::Sys(uid, gid), _) => [0, 0, *uid, *gid, 0].map(u32::to_be_bytes).concat(),
        _ => Vec::new(),
    };
    let flavor = match &called.way {
        CallbackWay::None => AUTH_NONE,
        CallbackWay::Sys(..) => AUTH_SYS,
        CallbackWay::Gss(_) => RPCSEC_GSS,
    };
    let begin = to.len() + RecordMark::LEN;
    to.resize(begin, 0);
    xid.encode(to);
    msg_type::CALL.encode(to);
    call_body {
        rpcvers: RPC_VERSION,
        prog: called.program,
        vers: called.version,
        proc: called.procedure,
        cred: opaque_auth {
            flavor,
            body: Opaque(&own),
        },
        verf: opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        },
    }
    .encode(to);
    let Some(context) = context else {
        args(to);
        return Ok(());
    };
    to.truncate(to.len() - NO_VERIFIER_BYTES);
    context.put_verifier(begin, to)?;
    context.put_protected(args, to)
}
