//! RPC-with-TLS (RFC 9289): the probe by which a client asks for TLS, and how far its
//! connection has come with that.

use machine::{Step, Tag};
use wire::rpc::{AUTH_NONE, auth_stat, call_body};

use super::reply::Refusal;
use super::slots::CallState;
use super::{Connection, RpcServerFatalError, ServerOp};

/// How far a connection has come with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsState {
    /// What comes is in the clear.
    Clear,
    /// The client is told that TLS begins: nothing may come before.
    Announced,
    /// What comes is in TLS.
    Secure,
}

/// Of a call with the flavor AUTH_TLS why it is no probe, if it is none: it is NULL, and says
/// nothing of a user (RFC 9289, section 4.1).
pub(super) fn check_probe(call: &call_body<'_>) -> Result<(), Refusal> {
    const NULL: u32 = 0;
    if call.proc != NULL || !call.cred.body.0.is_empty() {
        return Err(Refusal::auth(auth_stat::AUTH_BADCRED));
    }
    match call.verf.flavor == AUTH_NONE && call.verf.body.0.is_empty() {
        true => Ok(()),
        false => Err(Refusal::auth(auth_stat::AUTH_BADVERF)),
    }
}

impl Connection {
    /// Whether TLS is to begin as soon as everything was sent.
    #[inline]
    pub fn awaits_tls(&self) -> bool {
        self.tls == TlsState::Announced && !self.is_ended
    }

    /// What comes from now on has come in TLS.
    pub fn tls_begun(&mut self) {
        assert!(self.awaits_tls(), "it was announced");
        self.tls = TlsState::Secure;
    }

    /// A probe is arriving. One behind a call, in TLS or where there is no TLS is refused.
    #[cold]
    pub(super) fn on_probe(&mut self) {
        let may_begin = !self.has_called && self.tls == TlsState::Clear && !self.is_rdma();
        if self.settings.offers_tls && may_begin {
            self.inbound.is_probe = true;
        } else {
            self.inbound.refusal = Some(Refusal::auth(auth_stat::AUTH_BADCRED));
        }
    }

    /// A probe is here: its answer is the last that goes in the clear.
    #[cold]
    pub(super) fn announce_tls(&mut self, tag: Tag) -> Step<ServerOp> {
        let slot = &mut self.slots[tag];
        slot.state = CallState::Sending;
        slot.reply.starttls(slot.xid);
        self.queue(tag);
        self.tls = TlsState::Announced;
        Step::Op(ServerOp::StartTls)
    }

    /// What is staged between a probe and TLS: the client sends nothing before it has the
    /// answer, so no byte of that may pass for one that came in TLS.
    #[cold]
    pub(super) fn before_tls(&mut self, staged: &[u8]) -> Option<Step<ServerOp>> {
        let is_quiet = staged.is_empty();
        (!is_quiet).then(|| self.fail(RpcServerFatalError::BehindProbe))
    }
}
