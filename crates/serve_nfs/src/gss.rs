//! Security contexts of RPCSEC_GSS: their tokens are taken by the blocking worker, by turns of
//! the addresses that they come from.

use ::nfs::gss::{InitAnswer, major};
use auth::gss::ContextStep;
use auth::gss_acceptor::AcceptError;
use engine::{Elsewhere as _, ProofKind, Refusal, RefusalKind};
use machine::{Nanos, Tag};
use wire::rpc::auth_stat;

use crate::{CallAnswer, NfsConnection};

/// A client has proved nothing.
const CONTEXT_REFUSED: RefusalKind = RefusalKind("NFS Kerberos login refused");
/// Tokens of one connection that are taken at a time. Clients send one, and wait.
const ACCEPTING_MAX: usize = 4;

impl NfsConnection {
    /// A token is here that begins a context, or goes on with one.
    #[cold]
    pub(crate) fn accept(&mut self, tag: Tag) {
        let service = self.local.service.clone();
        let machine = &mut self.core.link.machine;
        let Some(acceptor) = service.acceptor() else {
            let reason = "it asks for Kerberos, for which weft has no keys: `keytab` of [nfs.kerberos] names them";
            self.refuse_context(&reason);
            let machine = &mut self.core.link.machine;
            return machine.send_denied(tag, auth_stat::AUTH_BADCRED);
        };
        if self.accepting.len() >= ACCEPTING_MAX {
            let answer = InitAnswer {
                major: major::FAILURE,
                ..InitAnswer::default()
            };
            return machine.send_init(tag, &answer);
        }
        let (handle, token) = machine.init(tag);
        let token = token.to_vec();
        let Some(unfinished) = service.nfsd().contexts.take_unfinished(handle) else {
            return machine.send_denied(tag, auth_stat::RPCSEC_GSS_CREDPROBLEM);
        };
        let later = self.later_unless_lost(tag, CallAnswer::Accepted(lost()));
        let step = move || {
            let step = acceptor.step(unfinished, &token);
            later.answer(CallAnswer::Accepted(step));
        };
        let (kind, address) = (ProofKind::Asked, self.core.via.peer.ip());
        let place = service.shared.prove(kind, address, step);
        self.accepting.push((tag, place));
    }

    /// The token was taken.
    #[cold]
    pub(crate) fn accepted(
        &mut self,
        tag: Tag,
        step: Result<ContextStep, AcceptError>,
        now: Nanos,
    ) {
        self.accepting.retain(|(other, _)| *other != tag);
        if let Err(error) = &step {
            self.refuse_context(&error.why);
        }
        let time_s = self.local.service.wall.time(now).seconds.max(0) as u64;
        let contexts = &self.local.service.nfsd().contexts;
        let answer = contexts.on_step(step, self.peer.host(), (now, time_s));
        self.core.link.machine.send_init(tag, &answer);
    }

    fn refuse_context(&self, reason: &dyn std::fmt::Display) {
        self.core.shared.refusals.note(Refusal {
            peer: Some(self.core.via.peer),
            ..Refusal::new(CONTEXT_REFUSED, reason)
        });
    }
}

/// The worker has lost a token: our own failure.
fn lost() -> Result<ContextStep, AcceptError> {
    Err(AcceptError {
        major: major::FAILURE,
        minor: 0,
        token: Vec::new(),
        why: "the acceptor has failed".into(),
    })
}
