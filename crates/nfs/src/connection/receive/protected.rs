//! Calls by RPCSEC_GSS on their way in: a protected one is collected, opened, and its
//! arguments are walked over as if they had come so.

use machine::{Step, Tag};
use wire::rpc::{accept_stat, auth_stat};

use super::{Inbound, RecordPart, arguments_of};
use crate::connection::gss::{self, Admission, GssCall};
use crate::connection::reply::Refusal;
use crate::connection::{Connection, Procedure, ServerOp};

/// Arguments that RPCSEC_GSS has protected, and how far they are walked.
#[derive(Debug)]
pub(super) struct Unwrapped {
    /// The arguments lie at its end.
    pub(super) bytes: Vec<u8>,
    at: usize,
}

impl Connection {
    /// Walks over arguments as if they were received without protection.
    #[cold]
    pub(super) fn walk_unwrapped(&mut self) -> Option<Step<ServerOp>> {
        let mut unwrapped = self.inbound.unwrapped.take()?;
        let step = self.walk(&unwrapped.bytes, &mut unwrapped.at);
        if self.inbound.tag.is_some() {
            self.inbound.unwrapped = Some(unwrapped);
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
        self.inbound = Inbound {
            tag: Some(tag),
            part: arguments_of(slot.procedure),
            left: range.len() as u32,
            is_last: true,
            is_inside: true,
            record_bytes: range.len() as u32,
            bulk: self.inbound.bulk,
            is_unwrapped: true,
            unwrapped: Some(Unwrapped {
                bytes,
                at: body + range.start,
            }),
            ..Inbound::default()
        };
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
