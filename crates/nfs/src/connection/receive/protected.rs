//! Records that are all here are walked over as if they were received: those that came by
//! RDMA, and the arguments of calls by RPCSEC_GSS, which are collected and opened first.

use machine::{Step, Tag};
use wire::rpc::{accept_stat, auth_stat};

use super::{Inbound, RecordPart, arguments_of};
use crate::connection::gss::{self, Admission, GssCall};
use crate::connection::reply::Refusal;
use crate::connection::{Connection, Procedure, ServerOp};

/// A record, and how far it is walked.
#[derive(Debug)]
pub(super) struct Unwrapped {
    /// It lies at their end.
    pub(super) bytes: Vec<u8>,
    at: usize,
}

impl Connection {
    /// Begins to walk over the record that is all of `bytes` from `at`.
    pub(in crate::connection) fn begin_whole(&mut self, tag: Tag, bytes: Vec<u8>, at: usize) {
        let len = (bytes.len() - at) as u32;
        self.inbound = Inbound {
            tag: Some(tag),
            left: len,
            is_last: true,
            is_inside: true,
            record_bytes: len,
            bulk: self.inbound.bulk,
            is_unwrapped: true,
            unwrapped: Some(Unwrapped { bytes, at }),
            ..Inbound::default()
        };
    }

    /// Walks over a record as if it was received.
    #[inline(never)]
    pub(in crate::connection) fn walk_unwrapped(&mut self) -> Option<Step<ServerOp>> {
        let mut unwrapped = self.inbound.unwrapped.take()?;
        let step = self.walk(&unwrapped.bytes, &mut unwrapped.at);
        // One that was protected has made way for what it protects.
        if self.inbound.tag.is_some() && self.inbound.unwrapped.is_none() {
            self.inbound.unwrapped = Some(unwrapped);
        } else {
            self.let_go_of_bytes(unwrapped.bytes);
        }
        Some(match step? {
            Step::Place {
                tag,
                offset,
                at,
                len,
                digest: _,
            } => Step::Op(ServerOp::Place {
                tag,
                offset,
                at,
                len,
            }),
            step => step,
        })
    }

    /// The header of a call by RPCSEC_GSS is here.
    #[cold]
    pub(super) fn on_gss_header(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag];
        let admission = match &self.contexts {
            Some(contexts) => gss::admit(&slot.args, contexts, self.now),
            None => Admission::Refused(Refusal::auth(auth_stat::AUTH_BADCRED), None),
        };
        self.inbound.part = RecordPart::Nothing;
        match admission {
            Admission::Call(procedure, credential, call) => {
                slot.procedure = procedure;
                slot.credential = credential;
                self.inbound.part = match &call {
                    GssCall::Init(_) => RecordPart::Args,
                    call if call.is_protected() => RecordPart::Protected,
                    GssCall::InContext(_) => arguments_of(procedure),
                };
                slot.gss = Some(call);
                self.has_come(procedure);
            }
            Admission::Refused(why, call) => {
                slot.gss = call;
                self.inbound.refusal = Some(why);
            }
            Admission::Dropped => self.inbound.is_dropped = true,
        }
    }

    /// A protected call is all here: what it protects is walked next, or it is refused.
    #[cold]
    pub(super) fn unwrap(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag];
        let Some(GssCall::InContext(call)) = &slot.gss else {
            unreachable!("only such calls are protected");
        };
        let mut bytes = std::mem::take(&mut slot.args);
        let body = slot.args_at as usize;
        let Some(range) = call.open(&mut bytes[body..]) else {
            // RFC 2203, sections 5.3.3.4.2 and 5.3.3.4.3.
            self.queue_refusal(tag, Refusal::stat(accept_stat::GARBAGE_ARGS));
            return;
        };
        bytes.truncate(body + range.end);
        slot.args_at = 0;
        if slot.args_max > self.settings.args_bytes_free() {
            slot.args_max = self.settings.args_bytes_max;
        }
        let part = arguments_of(slot.procedure);
        self.begin_whole(tag, bytes, body + range.start);
        self.inbound.part = part;
    }

    /// A call by RPCSEC_GSS is here, and without its protection.
    #[cold]
    pub(super) fn begin_gss_call(&mut self, tag: Tag) -> Option<Step<ServerOp>> {
        let slot = &mut self.slots[tag];
        slot.record_bytes -= slot.args_at;
        let is_null = slot.procedure == Procedure::Null;
        match slot.gss.as_ref()? {
            GssCall::Init(_) => {
                let args = &slot.args[slot.args_at as usize..];
                if gss::token(args).is_err() {
                    self.queue_refusal(tag, Refusal::stat(accept_stat::GARBAGE_ARGS));
                    return None;
                }
                self.begin_call(tag);
                return Some(Step::Op(ServerOp::Init { tag }));
            }
            GssCall::InContext(call) => {
                if let Some(contexts) = &self.contexts {
                    call.destroy(contexts);
                }
                if call.begin(slot.xid, &mut slot.reply).is_err() {
                    self.queue_refusal(tag, Refusal::NO_CONTEXT);
                    return None;
                }
            }
        }
        self.begin_call(tag);
        if is_null {
            self.send(tag);
            return None;
        }
        Some(Step::Op(ServerOp::Call { tag }))
    }
}
