//! The context of a connection whose calls go by RPCSEC_GSS: from its initiator to its machine.

use std::fmt;
use std::sync::Arc;

use ::nfs::client::ClientConnection as Calls;
use auth::gss::{ContextStep, Unfinished};
use auth::gss_initiator::GssInitiator;
use wire::rpc::rpc_gss_service_t;

use super::ClientError;

/// What a client of RPCSEC_GSS (RFC 2203) proves itself by.
#[derive(Clone)]
pub struct RpcGss {
    /// What makes its contexts, one for each connection. It may block the connections of a
    /// driver for as long as a KDC takes to answer.
    pub initiator: Arc<dyn GssInitiator>,
    /// How its calls are protected.
    pub service: rpc_gss_service_t,
}

impl fmt::Debug for RpcGss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcGss")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// The context of one connection on its way.
pub(super) struct ContextMaker {
    gss: RpcGss,
    unfinished: Option<Unfinished>,
}

impl ContextMaker {
    pub(super) fn new(gss: RpcGss) -> ContextMaker {
        ContextMaker {
            gss,
            unfinished: None,
        }
    }

    /// Begins a context, if the machine wants one.
    pub(super) fn begin(&mut self, machine: &mut Calls) -> Result<(), ClientError> {
        match machine.wants_context() {
            true => {
                self.unfinished = None;
                self.step(machine, b"").map(drop)
            }
            false => Ok(()),
        }
    }

    /// Takes what the server has answered to a token.
    pub(super) fn on_answer(&mut self, machine: &mut Calls) -> Result<(), ClientError> {
        let answer = machine.take_token_answer().expect("it was announced");
        let answer = answer.map_err(|refused| {
            let what = "the server makes no security context (RPCSEC_GSS) for this client";
            ClientError::Unusable(format!("{what}: {refused}"))
        })?;
        if !answer.is_complete() && !answer.is_continued() {
            return Err(ClientError::Unusable(format!(
                "the server refuses this client's Kerberos (status {:#x}, {:#x}): its log says why",
                answer.major, answer.minor
            )));
        }
        let unproven = || {
            let why = "the server does not prove that it has the security context";
            ClientError::Unusable(why.into())
        };
        match (self.step(machine, &answer.token)?, answer.is_complete()) {
            (Some(context), true) => machine.establish(context, &answer).map_err(|_| unproven()),
            (None, false) => Ok(()),
            _ => Err(unproven()),
        }
    }

    /// The next step of the initiator: the context, if it has that now.
    fn step(
        &mut self,
        machine: &mut Calls,
        token: &[u8],
    ) -> Result<Option<Box<dyn auth::gss::GssContext>>, ClientError> {
        let step = self.gss.initiator.step(self.unfinished.take(), token);
        match step.map_err(ClientError::Unusable)? {
            ContextStep::Continue { token, unfinished } => {
                self.unfinished = Some(unfinished);
                machine.send_token(&token);
                Ok(None)
            }
            ContextStep::Done { token, context } if token.is_empty() => Ok(Some(context)),
            ContextStep::Done { .. } => Err(ClientError::Unusable(
                "a security context of one token, which nothing of Kerberos makes".into(),
            )),
        }
    }
}
