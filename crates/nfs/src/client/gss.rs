//! RPCSEC_GSS as a client speaks it (RFC 2203, section 5): the context of a connection, what goes
//! around its calls and comes off their answers.
//!
//! A context is of one connection, so that its calls come to the server in the order of their
//! sequence numbers. It outlives lost streams; the server may forget it, then another is made.

use std::fmt;

use auth::gss::{GssContext, GssError};
use machine::Tag;
use wire::nfs4::NFSPROC4_NULL;
use wire::rpc::{
    AUTH_NONE, RPCSEC_GSS, RPCSEC_GSS_MAXSEQ, RPCSEC_GSS_VERS_1, RecordMark, accept_stat,
    accepted_body, auth_stat, opaque_auth, rejected_reply, reply_body, rpc_gss_cred_vers_1_t,
    rpc_gss_init_arg, rpc_gss_init_res, rpc_gss_proc_t, rpc_gss_service_t,
};
use wire::xdr::{Decode, Encode, Opaque, Reader, pad};

use super::answer::{RpcRefused, results};
use super::compound::CallData;
use super::connection;
use super::connection::{CallState, ClientConnection, ClientOp, PROCEDURE_AT, ToSend, XID_AT};
use super::fatal::RpcClientFatalError;
use crate::gss::{major, service};

/// Contexts that are lost, one after the other, before a call of any is answered: then the refusal
/// of a server that forgets them is the answer.
const LOSSES_MAX: u32 = 3;

/// In place of a tag, which no call has: the call that makes a context.
pub(super) const TOKEN: Tag = Tag::MAX;

/// How a context stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContextStage {
    /// There is none: the driver is to begin one.
    Absent,
    /// It is being made.
    Begun,
    Established,
}

/// What the server has answered to a token.
#[derive(Debug, PartialEq, Eq)]
pub struct ContextAnswer {
    /// Its major status (RFC 2744, section 3.9.1).
    pub major: u32,
    /// Its minor status, of the mechanism.
    pub minor: u32,
    /// For the next step of the context.
    pub token: Vec<u8>,
    /// What proves the window, where the context is established.
    verifier: Vec<u8>,
}

impl ContextAnswer {
    /// Whether the server has the context.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.major == major::COMPLETE
    }

    /// Whether the server wants another token.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.major == major::CONTINUE_NEEDED
    }
}

/// What a client has of RPCSEC_GSS on one connection.
pub(super) struct Security {
    service: rpc_gss_service_t,
    stage: ContextStage,
    /// How the server calls the context.
    handle: Vec<u8>,
    context: Option<Box<dyn GssContext>>,
    /// That before it, in which answers may still come.
    previous: Option<Box<dyn GssContext>>,
    /// Which in turn the context is.
    epoch: u32,
    /// Calls that may be under way in it.
    window: u32,
    /// Sequence number of the next call.
    number: u32,
    /// Calls that were sent and are not answered.
    under_way: u32,
    losses: u32,
    /// The transaction identifier of the call that makes the context.
    making: Option<u32>,
    answered: Option<Result<ContextAnswer, RpcRefused>>,
    /// The first of those to be sent as it goes out, and where data with memory of its own
    /// stands in it.
    sealed: Option<(Tag, usize)>,
    record: Vec<u8>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("service", &self.service)
            .field("stage", &self.stage)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// What an answer came to.
enum Opened {
    /// It is the server's, or says without proof that the call was not let in.
    Answer,
    /// The server does not have the context any more.
    Lost,
}

impl Security {
    fn new(service: rpc_gss_service_t) -> Security {
        Security {
            service,
            stage: ContextStage::Absent,
            handle: Vec::new(),
            context: None,
            previous: None,
            epoch: 0,
            window: 0,
            number: 0,
            under_way: 0,
            losses: 0,
            making: None,
            answered: None,
            sealed: None,
            record: Vec::new(),
        }
    }

    pub(super) fn protects(&self) -> bool {
        self.service != rpc_gss_service_t::rpc_gss_svc_none
    }

    /// The record that goes out for this call, and where its data stands in it.
    pub(super) fn sealed(&self, tag: Tag) -> Option<(&Vec<u8>, usize)> {
        let (_, at) = self.sealed.filter(|(sealed, _)| *sealed == tag)?;
        Some((&self.record, at))
    }

    /// What was sealed has gone out.
    pub(super) fn sent(&mut self) {
        self.sealed = None;
        self.under_way += 1;
    }

    fn credential(&self, procedure: rpc_gss_proc_t, service: rpc_gss_service_t) -> Vec<u8> {
        let mut body = Vec::new();
        RPCSEC_GSS_VERS_1.encode(&mut body);
        rpc_gss_cred_vers_1_t {
            gss_proc: procedure,
            seq_num: self.number,
            service,
            handle: Opaque(&self.handle),
        }
        .encode(&mut body);
        body
    }

    /// Writes the record of a call (section 5.3.1): `head` is its header up to the credential,
    /// behind which `args` stand.
    fn seal(
        &mut self,
        tag: Tag,
        head: &[u8],
        args: &[u8],
        data: (u32, usize),
    ) -> Result<(), GssError> {
        let credential = self.credential(rpc_gss_proc_t::RPCSEC_GSS_DATA, self.service);
        let context = self.context.as_mut().ok_or(GssError::NoContext)?;
        let ahead = service::ahead(&**context, self.service);
        let record = &mut self.record;
        record.clear();
        record.extend_from_slice(head);
        put_auth(RPCSEC_GSS, &credential, record);
        let mut mic = Vec::new();
        context.mic(&record[RecordMark::LEN..], &mut mic)?;
        put_auth(RPCSEC_GSS, &mic, record);
        let at = record.len();
        record.resize(at + ahead, 0);
        let (data_len, data_at) = (data.0, record.len() + data.1);
        record.extend_from_slice(args);
        if ahead > 0 {
            service::protect(&mut **context, (self.service, self.number), record, at)?;
        }
        connection::seal(record, CallData::Out(data_len));
        self.sealed = Some((tag, data_at));
        Ok(())
    }

    /// Checks an answer to the call of this number in the context of this epoch, and takes its
    /// protection off (section 5.3.3.2).
    fn open(
        &mut self,
        message: &mut Vec<u8>,
        (number, epoch): (u32, u32),
    ) -> Result<Opened, GssError> {
        let mut from = Reader::new(&message[8..]);
        let reply = reply_body::decode(&mut from).map_err(|_| GssError::BadMessage)?;
        let body_at = 8 + from.position();
        let accepted = match reply {
            reply_body::MSG_DENIED(rejected_reply::AUTH_ERROR(
                auth_stat::RPCSEC_GSS_CREDPROBLEM | auth_stat::RPCSEC_GSS_CTXPROBLEM,
            )) => return Ok(Opened::Lost),
            reply_body::MSG_DENIED(_) => return Ok(Opened::Answer),
            reply_body::MSG_ACCEPTED(accepted) => accepted,
        };
        let context = match epoch == self.epoch {
            true => self.context.as_mut(),
            false => self.previous.as_mut().filter(|_| epoch + 1 == self.epoch),
        };
        let context = context.ok_or(GssError::NoContext)?;
        if accepted.verf.flavor != RPCSEC_GSS {
            return Err(GssError::BadMessage);
        }
        context.verify_mic(&number.to_be_bytes(), accepted.verf.body.0)?;
        let is_success = accepted.body == accepted_body::default(accept_stat::SUCCESS);
        if is_success && self.service != rpc_gss_service_t::rpc_gss_svc_none {
            let by = (self.service, number);
            let found = service::open(&mut **context, by, &mut message[body_at..]);
            let found = found.ok_or(GssError::BadMessage)?;
            message.truncate(body_at + found.end);
            message.drain(body_at..body_at + found.start);
        }
        self.losses = 0;
        Ok(Opened::Answer)
    }

    /// Reads the answer to a token (section 5.2.3.1).
    fn read_answer(&mut self, message: &[u8]) -> Result<ContextAnswer, RpcRefused> {
        let mut from = Reader::new(results(message)?);
        let made = rpc_gss_init_res::decode(&mut from).map_err(RpcRefused::Unreadable)?;
        let mut from = Reader::new(&message[8..]);
        let verifier = match reply_body::decode(&mut from) {
            Ok(reply_body::MSG_ACCEPTED(accepted)) => accepted.verf.body.0.to_vec(),
            _ => Vec::new(),
        };
        self.handle = made.handle.0.to_vec();
        self.window = made.seq_window;
        Ok(ContextAnswer {
            major: made.gss_major,
            minor: made.gss_minor,
            token: made.gss_token.0.to_vec(),
            verifier,
        })
    }
}

fn put_auth(flavor: u32, body: &[u8], to: &mut Vec<u8>) {
    let body = Opaque(body);
    opaque_auth { flavor, body }.encode(to);
}

impl ClientConnection {
    /// Calls go by RPCSEC_GSS with this service: they wait until the driver has made a context.
    /// Before the first call.
    pub fn secure(&mut self, service: rpc_gss_service_t) {
        self.security = Some(Box::new(Security::new(service)));
    }

    /// Whether data goes and comes inside of what is protected: that of a call is to be said by
    /// [`ClientConnection::put_data`], that of an answer lies in
    /// [`ClientConnection::protected_data`].
    #[inline]
    pub fn protects_data(&self) -> bool {
        self.security
            .as_ref()
            .is_some_and(|security| security.protects())
    }

    /// Whether calls go as soon as they are made: there is a context, where they need one, and
    /// the server has accepted a stream of RDMA.
    #[inline]
    pub fn takes_calls(&self) -> bool {
        let security = self.security.as_ref();
        let has_context = security.is_none_or(|of| of.stage == ContextStage::Established);
        has_context && self.rdma.as_ref().is_none_or(|rdma| rdma.is_live())
    }

    /// Whether the driver is to begin a context, by [`ClientConnection::send_token`].
    #[must_use]
    pub fn wants_context(&self) -> bool {
        let stage = self.security.as_ref().map(|security| security.stage);
        stage == Some(ContextStage::Absent)
    }

    /// Sends a token: the first of a context, or one that goes on with that whose answer came
    /// last.
    pub fn send_token(&mut self, token: &[u8]) {
        let xid = self.next_xid(TOKEN);
        let security = self.security.as_mut().expect("it is secured");
        let procedure = match security.stage {
            ContextStage::Begun => rpc_gss_proc_t::RPCSEC_GSS_CONTINUE_INIT,
            _ => {
                security.handle.clear();
                rpc_gss_proc_t::RPCSEC_GSS_INIT
            }
        };
        security.stage = ContextStage::Begun;
        let none = rpc_gss_service_t::rpc_gss_svc_none;
        let credential = security.credential(procedure, none);
        let mut bytes = self.head[..PROCEDURE_AT].to_vec();
        bytes[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
        NFSPROC4_NULL.encode(&mut bytes);
        put_auth(RPCSEC_GSS, &credential, &mut bytes);
        put_auth(AUTH_NONE, &[], &mut bytes);
        let gss_token = Opaque(token);
        rpc_gss_init_arg { gss_token }.encode(&mut bytes);
        connection::seal(&mut bytes, CallData::None);
        security.making = Some(xid);
        // Nothing goes before it, but the rest of what goes already.
        let behind = usize::from(self.is_amid_first());
        self.ready.insert(behind, ToSend::Token(bytes));
    }

    /// Whether an answer is that to the token that was sent last.
    #[cold]
    pub(super) fn is_token_answer(&self, xid: u32) -> bool {
        let security = self.security.as_ref();
        security.is_some_and(|security| security.making == Some(xid))
    }

    /// What the server has answered to a token: [`ClientOp::TokenAnswered`] tells of it.
    ///
    /// # Errors
    /// It has not let the call in.
    pub fn take_token_answer(&mut self) -> Option<Result<ContextAnswer, RpcRefused>> {
        self.security.as_mut()?.answered.take()
    }

    /// The context is established, on both sides.
    ///
    /// # Errors
    /// The server does not prove that it is (section 5.2.3.1).
    pub fn establish(
        &mut self,
        mut context: Box<dyn GssContext>,
        answer: &ContextAnswer,
    ) -> Result<(), GssError> {
        let security = self.security.as_mut().expect("it is secured");
        context.verify_mic(&security.window.to_be_bytes(), &answer.verifier)?;
        security.previous = security.context.replace(context);
        security.epoch += 1;
        security.number = 0;
        security.stage = ContextStage::Established;
        Ok(())
    }

    /// Makes the first of those calls ready that are to be sent.
    ///
    /// # Errors
    /// One context after the other is good for no call.
    pub fn prepare(&mut self) -> Result<(), GssError> {
        let Some(security) = &mut self.security else {
            return Ok(());
        };
        let Some(ToSend::Call(tag)) = self.ready.front() else {
            return Ok(());
        };
        let has_room = security.under_way < security.window;
        if security.sealed.is_some() || security.stage != ContextStage::Established || !has_room {
            return Ok(());
        }
        let call = &mut self.calls[usize::from(*tag)];
        let (head, args) = (
            &call.bytes[..PROCEDURE_AT + 4],
            &call.bytes[self.head.len()..],
        );
        let data = match call.data {
            CallData::Out(len) => (len, call.payload_at as usize - self.head.len()),
            CallData::None | CallData::In(_) => (0, 0),
        };
        security.number += 1;
        (call.number, call.epoch) = (security.number, security.epoch);
        let sealed = match security.number < RPCSEC_GSS_MAXSEQ {
            true => security.seal(*tag, head, args, data),
            false => Err(GssError::NoContext),
        };
        if let Err(error) = sealed {
            security.stage = ContextStage::Absent;
            security.losses += 1;
            if security.losses >= LOSSES_MAX {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the first of those that are to be sent can go.
    #[inline]
    pub(super) fn first_goes(&self) -> bool {
        match (self.ready.front(), &self.security) {
            (None, _) => false,
            (Some(ToSend::Reply(_) | ToSend::Token(_)), _) | (_, None) => true,
            (Some(ToSend::Call(tag)), Some(security)) => security.sealed(*tag).is_some(),
        }
    }

    /// The data of a call whose memory is not sent by itself: `write` fills it in.
    pub fn put_data(&mut self, tag: Tag, write: impl FnOnce(&mut [u8])) {
        let call = &mut self.calls[usize::from(tag)];
        let CallData::Out(len) = call.data else {
            return;
        };
        let (at, len) = (call.payload_at as usize, len as usize);
        let behind = call.bytes.split_off(at);
        call.bytes.resize(at + len + pad(len), 0);
        write(&mut call.bytes[at..at + len]);
        call.bytes.extend_from_slice(&behind);
        call.data = CallData::None;
    }

    /// The data of the READs in the answer that the last step told of.
    pub fn protected_data(&self) -> &[u8] {
        self.inbound.data()
    }

    /// All of an answer is here, on a connection with RPCSEC_GSS.
    pub(super) fn finish_secured(&mut self, tag: Tag) -> Option<ClientOp> {
        let is_amid_first = self.is_amid_first();
        let security = self.security.as_mut().expect("it is secured");
        if tag == TOKEN {
            security.making = None;
            security.answered = Some(security.read_answer(self.inbound.message()));
            return Some(ClientOp::TokenAnswered);
        }
        security.under_way -= 1;
        let call = &mut self.calls[usize::from(tag)];
        let (by, data) = ((call.number, call.epoch), call.data);
        match security.open(self.inbound.message_mut(), by) {
            Ok(Opened::Lost) if security.losses < LOSSES_MAX => {
                if call.epoch == security.epoch && security.stage == ContextStage::Established {
                    security.stage = ContextStage::Absent;
                    security.losses += 1;
                    // It is sealed for what is lost.
                    if !is_amid_first {
                        security.sealed = None;
                    }
                }
                call.state = CallState::Ready;
                self.ready.push_back(ToSend::Call(tag));
                return None;
            }
            Ok(_) => {}
            Err(_) => return Some(self.fail(RpcClientFatalError::Unproven)),
        }
        if let (true, CallData::In(len)) = (self.protects_data(), data)
            && self.inbound.take_data(len).is_err()
        {
            return Some(self.fail(RpcClientFatalError::Overrun));
        }
        Some(self.finish(tag))
    }

    /// There is no answer to a call, which was not taken: what that is to the driver, if it is
    /// not the end of the call.
    pub(super) fn refuse_secured(&mut self, tag: Tag, why: RpcRefused) -> Option<ClientOp> {
        let security = self.security.as_mut()?;
        if tag != TOKEN {
            security.under_way -= 1;
            return None;
        }
        security.making = None;
        security.answered = Some(Err(why));
        Some(ClientOp::TokenAnswered)
    }

    /// Another stream begins: a context that was being made begins again.
    pub(super) fn restart_security(&mut self) {
        let Some(security) = &mut self.security else {
            return;
        };
        security.under_way = 0;
        security.sealed = None;
        security.answered = None;
        if security.stage == ContextStage::Begun {
            security.stage = ContextStage::Absent;
        }
        security.making = None;
    }
}
