//! In-band authentication: what takes long is computed beside the reactors.

use std::fmt::Display;
use std::sync::Arc;

use engine::{Elsewhere as _, ProofKind, Protocol as _, Refusal, Remedy};
use link::CommandMemory;
use machine::{Nanos, Tag, locked};
use nvmf::dhchap::controller::{Answer, Outcome};
use nvmf::queue::ControllerEnd as _;
use nvmf::{AuthenticationRefusal, Reply};
use reactor::must_fill_random;
use wire::nvme::Status;

use super::host_keys::since_1970;
use super::{AUTHENTICATION_FAILED, Bound, CommandAnswer, NOT_AUTHENTICATED, NvmeConnection};

impl NvmeConnection {
    /// Authentication Send, all of whose message is here.
    pub(crate) fn authentication_send(&mut self, tag: Tag, now: Nanos) -> bool {
        let range = self.core.link.range(tag).expect("the message has arrived");
        let mut message = vec![0; range.len() as usize];
        mem::copy_out(range, &mut message);
        let answer = match self.service.registry().dhchap(self.controller()) {
            Some((keys, choice)) => {
                let authentication = &self.bound().authentication;
                locked(authentication).send(&message, &keys, &choice)
            }
            // The host had a secret when it connected, and has none any more.
            None => Answer::Status(Status::COMMAND_SEQUENCE.dnr()),
        };
        self.answer_authentication(tag, answer, now);
        true
    }

    /// Authentication Receive with room for `len` bytes; false while memory is short.
    pub(crate) fn authentication_receive(&mut self, tag: Tag, len: u32, now: Nanos) -> bool {
        let Some(buf) = self.core.pool.get(len) else {
            return false;
        };
        self.core.link.set_data(tag, CommandMemory::owned(buf));
        let answer = locked(&self.bound().authentication).receive(len);
        self.answer_authentication(tag, answer, now);
        true
    }

    fn answer_authentication(&mut self, tag: Tag, answer: Answer, now: Nanos) {
        let len = self.core.link.range(tag).map_or(0, |range| range.len());
        // Settled first: a host is told of success when it is let in.
        let answer = match self.settle_authentication(now) {
            Ok(()) => answer,
            Err(_) => answer.refused(),
        };
        let work = match answer {
            Answer::Status(status) => {
                let reply = Reply {
                    status,
                    ..Reply::done(0)
                };
                return self.reply(tag, reply);
            }
            Answer::Message(message) => {
                let len = self.put_answer(tag, &padded(message, len));
                return self.reply(tag, Reply::data(len as usize));
            }
            Answer::Work(work) => work,
        };
        let (later, is_long) = (self.later(tag), work.is_long());
        let authentication = Arc::clone(&self.bound().authentication);
        let compute = move || {
            let worked = work.run(&mut must_fill_random);
            let answer = locked(&authentication).worked(worked);
            later.answer(match answer {
                Answer::Status(status) => status.into(),
                Answer::Message(message) => CommandAnswer {
                    data: padded(message, len),
                    ..CommandAnswer::default()
                },
                Answer::Work(_) => unreachable!("work makes no work"),
            });
        };
        match is_long {
            true => {
                let (kind, address) = (ProofKind::Computed, self.core.via.peer.ip());
                self.proof = Some(self.core.shared.prove(kind, address, compute));
            }
            false => compute(),
        }
    }

    /// What authentication has come to, if anything has changed.
    ///
    /// # Errors
    /// The host has proven to know its secret, and is refused all the same.
    pub(crate) fn settle_authentication(
        &mut self,
        now: Nanos,
    ) -> Result<(), AuthenticationRefusal> {
        let Some(bound) = &self.bound else {
            return Ok(());
        };
        let outcome = locked(&bound.authentication).take_outcome();
        match outcome {
            None => {}
            Some(Outcome::Authenticated {
                secret,
                hash,
                group,
                is_mutual,
                psk,
            }) => {
                let mut registry = self.service.registry();
                let taken =
                    registry.authenticated(bound.controller, &secret, psk.as_ref(), since_1970());
                drop(registry);
                if let Err(why) = taken {
                    let is_secret = matches!(
                        why,
                        AuthenticationRefusal::OtherSecret | AuthenticationRefusal::ExpiredSecret
                    );
                    self.authentication_failed(&why, is_secret, now);
                    return Err(why);
                }
                tracing::debug!(peer = %self.core.via.peer, host = bound.host, qid = bound.qid,
                    %hash, %group, is_mutual, makes_key = psk.is_some(), "queue authenticated");
                self.authentications.set(self.authentications.get() + 1);
                let machine = &mut self.core.link.machine;
                machine.authenticated();
                let entries = machine.queue().entries();
                if !self.is_admitted() {
                    self.admit(entries);
                }
            }
            Some(Outcome::Failed { why, is_secret }) => {
                self.authentication_failed(&why, is_secret, now);
            }
        }
        Ok(())
    }

    /// The host has not proven what it is; `is_secret`: it has another secret.
    fn authentication_failed(&mut self, why: &dyn Display, is_secret: bool, now: Nanos) {
        let (host, target) = self.names();
        self.core.shared.refusals.note(Refusal {
            peer: Some(self.core.via.peer),
            host,
            target,
            remedy: match is_secret {
                true => Remedy::Secret,
                false => Remedy::None,
            },
            ..Refusal::new(AUTHENTICATION_FAILED, why)
        });
        self.core.link.machine.authentication_failed(now);
        if let Some(bound) = &mut self.bound {
            bound.has_failed = true;
        }
    }

    /// The connection ends: whether its host has authenticated, where it must, is told if nothing
    /// else tells of it.
    pub(crate) fn note_unproven(&self) {
        let is_untold = |bound: &&Bound| !bound.is_admitted && !bound.has_failed;
        let Some(bound) = self.bound.as_ref().filter(is_untold) else {
            return;
        };
        let needs_key = locked(&bound.authentication).needs_key();
        let (via, (host, target)) = (self.core.via, self.names());
        let more = match (needs_key, via.peer.ip() == via.local.ip()) {
            (true, _) => ": it may connect by TLS alone, and makes a key for that by --concat",
            (_, true) => ": it came from this machine, as a self-test does, which has no secret",
            _ => "",
        };
        let why =
            format!("its connection ends before the host that it names has authenticated{more}");
        self.core.shared.refusals.note(Refusal {
            peer: Some(self.core.via.peer),
            host,
            target,
            remedy: Remedy::Secret,
            ..Refusal::new(NOT_AUTHENTICATED, &why)
        });
    }
}

/// All that the host has room for, as hosts are used to.
fn padded(mut message: Vec<u8>, len: u32) -> Vec<u8> {
    message.resize(len as usize, 0);
    message
}
