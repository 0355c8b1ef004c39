//! RPC-with-TLS (RFC 9289) as a client begins it: a NULL call with AUTH_TLS in the clear, and
//! its answer.

use machine::Transmit;
use wire::nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_NULL};
use wire::rpc::{
    AUTH_NONE, AUTH_TLS, RPC_VERSION, RecordMark, accepted_reply, call_body, msg_type, opaque_auth,
    reply_body,
};
use wire::xdr::{Decode, Encode, Opaque, Reader};

use super::fatal::RpcClientFatalError;

/// The transaction identifier of probes.
const XID: u32 = u32::from_be_bytes(*b"tls?");
/// What the verifier of a server holds that begins with TLS.
const STARTTLS: &[u8] = b"STARTTLS";
/// Bytes of an answer at most: any verifier, and a refusal's words.
const ANSWER_BYTES_MAX: u32 = 512;

/// How far a client has come that asks for TLS first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// The question is to be sent.
    Asks,
    /// The answer is awaited.
    Waits,
    /// TLS is to begin: nothing may come before.
    Begins,
    /// Calls go in TLS.
    Over,
}

impl Probe {
    /// Bytes that may be received now; `None`: as many as calls want.
    #[inline]
    pub fn stage_max(self) -> Option<u32> {
        match self {
            Probe::Asks | Probe::Waits => Some(RecordMark::LEN as u32 + ANSWER_BYTES_MAX),
            Probe::Begins => Some(0),
            Probe::Over => None,
        }
    }

    /// Sends the question, once.
    #[cold]
    pub fn transmit(&mut self, out: &mut impl Transmit) {
        if *self != Probe::Asks || !out.has_room() {
            return;
        }
        let none = opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        };
        let mut record = vec![0; RecordMark::LEN];
        XID.encode(&mut record);
        msg_type::CALL.encode(&mut record);
        call_body {
            rpcvers: RPC_VERSION,
            prog: NFS4_PROGRAM,
            vers: NFS_V4,
            proc: NFSPROC4_NULL,
            cred: opaque_auth {
                flavor: AUTH_TLS,
                ..none
            },
            verf: none,
        }
        .encode(&mut record);
        let mark = RecordMark {
            is_last: true,
            len: (record.len() - RecordMark::LEN) as u32,
        };
        record[..RecordMark::LEN].copy_from_slice(&mark.encode());
        out.header(&record);
        *self = Probe::Waits;
    }

    /// Takes what has come. Whether the server begins with TLS now; `None`: its answer is not
    /// here. No byte may stand behind it: another on the way may have put it there.
    ///
    /// # Errors
    /// The connection cannot have TLS.
    #[cold]
    pub fn take(
        &mut self,
        staged: &[u8],
        at: &mut usize,
    ) -> Result<Option<()>, RpcClientFatalError> {
        let bytes = &staged[*at..];
        if *self == Probe::Begins {
            return match bytes.is_empty() {
                true => Ok(None),
                false => Err(RpcClientFatalError::BehindProbe),
            };
        }
        let Some((mark, bytes)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let mark = RecordMark::decode(*mark);
        if !mark.is_last || mark.len > ANSWER_BYTES_MAX {
            return Err(RpcClientFatalError::NoTls);
        }
        let Some(answer) = bytes.get(..mark.len as usize) else {
            return Ok(None);
        };
        if bytes.len() > answer.len() {
            return Err(RpcClientFatalError::BehindProbe);
        }
        *at = staged.len();
        match begins_tls(answer) {
            true => {
                *self = Probe::Begins;
                Ok(Some(()))
            }
            false => Err(RpcClientFatalError::NoTls),
        }
    }
}

/// Whether an answer says that TLS begins; its status does not matter (RFC 9289, section 4.1).
fn begins_tls(answer: &[u8]) -> bool {
    let mut from = Reader::new(answer);
    if u32::decode(&mut from) != Ok(XID) || msg_type::decode(&mut from) != Ok(msg_type::REPLY) {
        return false;
    }
    match reply_body::decode(&mut from) {
        Ok(reply_body::MSG_ACCEPTED(accepted_reply { verf, .. })) => {
            verf.flavor == AUTH_NONE && verf.body.0 == STARTTLS
        }
        _ => false,
    }
}
