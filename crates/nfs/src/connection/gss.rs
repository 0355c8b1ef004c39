//! RPCSEC_GSS on one connection (RFC 2203, sections 5.2 to 5.4): which context a call is in,
//! what is taken out of its arguments, what goes around its results; and the same of calls to the
//! client.

use std::ops::Range;
use std::sync::Arc;

use auth::gss::GssError;
use machine::Nanos;
use wire::rpc::{
    AUTH_NONE, RPCSEC_GSS, RPCSEC_GSS_MAXSEQ, RPCSEC_GSS_VERS_1, accept_stat, accepted_body,
    auth_stat, call_body, opaque_auth, reply_body, rpc_gss_cred_vers_1_t, rpc_gss_init_arg,
    rpc_gss_init_res, rpc_gss_proc_t, rpc_gss_service_t,
};
use wire::xdr::{Decode, Encode, Opaque, Reader, XdrError, pad};

use super::Procedure;
use super::credential::Credential;
use super::reply::{Refusal, Reply};
use super::scan;
use crate::gss::{Context, Contexts, InitAnswer, WINDOW_TOLD};
use crate::server::CallbackHandles;

/// A call by RPCSEC_GSS.
#[derive(Debug)]
pub(super) enum GssCall {
    /// It begins a context, or goes on with the one of a handle.
    Init(Option<Box<[u8]>>),
    /// It is in a context.
    InContext(InContext),
}

/// A call in a context, whose header was checked, or one to the client.
#[derive(Debug)]
pub(super) struct InContext {
    context: Arc<Context>,
    number: u32,
    service: rpc_gss_service_t,
    /// It ends the context.
    destroys: bool,
}

/// What a header came to.
#[derive(Debug)]
pub(super) enum Admission {
    Call(Procedure, Credential, GssCall),
    /// It is answered so; in a context, if its header was right.
    Refused(Refusal, Option<GssCall>),
    /// It is not answered: it was here before, or is too old to tell.
    Dropped,
}

impl Admission {
    fn refused(why: auth_stat) -> Admission {
        Admission::Refused(Refusal::auth(why), None)
    }
}

/// Looks at the header of a call by RPCSEC_GSS: all bytes of the record up to its arguments.
pub(super) fn admit(header: &[u8], contexts: &Contexts, now: Nanos) -> Admission {
    let from = &mut Reader::new(header);
    // The transaction identifier and the type.
    let call = from.take(8).and_then(|_| call_body::decode(from));
    let Ok(call) = call else {
        return Admission::refused(auth_stat::AUTH_BADCRED);
    };
    let from = &mut Reader::new(call.cred.body.0);
    if u32::decode(from) != Ok(RPCSEC_GSS_VERS_1) {
        // Section 5.1.
        return Admission::refused(auth_stat::AUTH_REJECTEDCRED);
    }
    let credential = rpc_gss_cred_vers_1_t::decode(from);
    let Some(credential) = credential.ok().filter(|_| from.rest().is_empty()) else {
        return Admission::refused(auth_stat::AUTH_BADCRED);
    };
    let procedure = scan::procedure(&call);
    // Section 5.2: contexts are made and destroyed by calls that do nothing else.
    let is_data = credential.gss_proc == rpc_gss_proc_t::RPCSEC_GSS_DATA;
    if !is_data && procedure != Ok(Procedure::Null) {
        return Admission::refused(auth_stat::AUTH_BADCRED);
    }
    let handle = credential.handle.0;
    let continues = match credential.gss_proc {
        rpc_gss_proc_t::RPCSEC_GSS_INIT => false,
        rpc_gss_proc_t::RPCSEC_GSS_CONTINUE_INIT => true,
        rpc_gss_proc_t::RPCSEC_GSS_DATA | rpc_gss_proc_t::RPCSEC_GSS_DESTROY => {
            return admit_to_context(header, &call, (&credential, procedure), (contexts, now));
        }
    };
    if call.verf.flavor != AUTH_NONE || !call.verf.body.0.is_empty() {
        return Admission::refused(auth_stat::AUTH_BADVERF);
    }
    if handle.is_empty() == continues {
        return Admission::refused(auth_stat::AUTH_BADCRED);
    }
    let init = GssCall::Init(continues.then(|| handle.into()));
    Admission::Call(Procedure::Null, Credential::default(), init)
}

fn admit_to_context(
    header: &[u8],
    call: &call_body<'_>,
    (credential, procedure): (&rpc_gss_cred_vers_1_t<'_>, Result<Procedure, Refusal>),
    (contexts, now): (&Contexts, Nanos),
) -> Admission {
    let Some(context) = contexts.find(credential.handle.0, now) else {
        return Admission::refused(auth_stat::RPCSEC_GSS_CREDPROBLEM);
    };
    let mic = call.verf.body.0;
    // Section 5.3.1: the checksum is of all that stands before it.
    let verifier_bytes = 8 + mic.len() + pad(mic.len());
    let checked = &header[..header.len() - verifier_bytes];
    let is_new = match call.verf.flavor {
        RPCSEC_GSS => context.verify_header(checked, (mic, credential.seq_num), now),
        _ => Err(GssError::BadMessage),
    };
    match is_new {
        // Section 5.3.3.4.2.
        Err(_) => return Admission::refused(auth_stat::RPCSEC_GSS_CREDPROBLEM),
        // Section 5.3.3.1.
        Ok(_) if credential.seq_num >= RPCSEC_GSS_MAXSEQ => {
            return Admission::refused(auth_stat::RPCSEC_GSS_CTXPROBLEM);
        }
        Ok(false) => return Admission::Dropped,
        Ok(true) => {}
    }
    let said = context.credential(credential.service);
    let call = GssCall::InContext(InContext {
        context,
        number: credential.seq_num,
        service: credential.service,
        destroys: credential.gss_proc == rpc_gss_proc_t::RPCSEC_GSS_DESTROY,
    });
    match procedure {
        Ok(procedure) => Admission::Call(procedure, said, call),
        Err(why) => Admission::Refused(why, Some(call)),
    }
}

impl GssCall {
    /// Whether its arguments and results are protected.
    pub(super) fn is_protected(&self) -> bool {
        match self {
            GssCall::Init(_) => false,
            GssCall::InContext(call) => call.protects(),
        }
    }

    /// The principal of its context.
    pub(super) fn principal(&self) -> Option<&str> {
        match self {
            GssCall::Init(_) => None,
            GssCall::InContext(call) => Some(call.context.principal()),
        }
    }

    /// The verifier of an answer (section 5.3.3.2); `None` where there is none.
    pub(super) fn verifier(&self) -> Option<Result<Vec<u8>, GssError>> {
        match self {
            GssCall::Init(_) => None,
            GssCall::InContext(call) => Some(call.verifier()),
        }
    }
}

impl InContext {
    fn protects(&self) -> bool {
        !self.destroys && self.service != rpc_gss_service_t::rpc_gss_svc_none
    }

    fn ahead(&self) -> usize {
        match self.protects() {
            true => self.context.ahead(self.service),
            false => 0,
        }
    }

    /// The next call to a client, in a context that is there still. Its numbers are apart from
    /// those of the client's calls (RFC 8881, section 18.36.3).
    pub(super) fn of_callback(
        handles: &CallbackHandles,
        contexts: &Contexts,
        now: Nanos,
    ) -> Option<InContext> {
        let context = contexts.find(&handles.here, now)?;
        Some(InContext {
            number: context.next_callback()?,
            service: handles.service,
            destroys: false,
            context,
        })
    }

    /// The body of its credential, by the other side's handle.
    pub(super) fn credential(&self, handle: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        RPCSEC_GSS_VERS_1.encode(&mut bytes);
        rpc_gss_cred_vers_1_t {
            gss_proc: rpc_gss_proc_t::RPCSEC_GSS_DATA,
            seq_num: self.number,
            service: self.service,
            handle: Opaque(handle),
        }
        .encode(&mut bytes);
        bytes
    }

    /// Appends the verifier of the header that begins at `begin` (section 5.3.1).
    pub(super) fn put_verifier(&self, begin: usize, to: &mut Vec<u8>) -> Result<(), GssError> {
        let mut mic = Vec::new();
        self.context.mic(&to[begin..], &mut mic)?;
        opaque_auth {
            flavor: RPCSEC_GSS,
            body: Opaque(&mic),
        }
        .encode(to);
        Ok(())
    }

    /// Appends what `put` appends, protected.
    pub(super) fn put_protected(
        &self,
        put: impl FnOnce(&mut Vec<u8>),
        to: &mut Vec<u8>,
    ) -> Result<(), GssError> {
        let at = to.len();
        to.resize(at + self.ahead(), 0);
        put(to);
        match self.protects() {
            true => self.context.protect((self.service, self.number), to, at),
            false => Ok(()),
        }
    }

    /// Opens the answer to a call to a client that begins at `at` of `record`; nothing is left of
    /// one that is not the client's.
    pub(super) fn open_answer(&self, record: &mut Vec<u8>, at: usize) {
        match self.results_in(&mut record[at..]) {
            Some((status, results)) => {
                record.truncate(at + results.end);
                record.drain(at + status..at + results.start);
            }
            None => record.truncate(at),
        }
    }

    /// Where the status ends in an answer, and where its results lie.
    fn results_in(&self, answer: &mut [u8]) -> Option<(usize, Range<usize>)> {
        let from = &mut Reader::new(answer);
        let reply_body::MSG_ACCEPTED(accepted) = reply_body::decode(from).ok()? else {
            return None;
        };
        let status = from.position();
        let verifier = accepted.verf;
        let is_own = verifier.flavor == RPCSEC_GSS
            && (self
                .context
                .verify_mic(&self.number.to_be_bytes(), verifier.body.0))
            .is_ok();
        let succeeded = accepted.body == accepted_body::default(accept_stat::SUCCESS);
        if !is_own || !succeeded {
            return None;
        }
        let results = self.open(&mut answer[status..])?;
        Some((status, status + results.start..status + results.end))
    }

    /// Ends its context, if it is for that.
    pub(super) fn destroy(&self, contexts: &Contexts) {
        if self.destroys {
            contexts.remove(&self.context);
        }
    }

    fn verifier(&self) -> Result<Vec<u8>, GssError> {
        let mut mic = Vec::new();
        self.context.mic(&self.number.to_be_bytes(), &mut mic)?;
        Ok(mic)
    }

    /// Begins an answer that says that the call succeeded.
    pub(super) fn begin(&self, xid: u32, reply: &mut Reply) -> Result<(), GssError> {
        reply.begin_verified(xid, &self.verifier()?, self.ahead());
        Ok(())
    }

    /// Where the arguments lie in what was sent for them (section 5.3.2): `None` if that is
    /// not what the client has protected for this call.
    pub(super) fn open(&self, body: &mut [u8]) -> Option<Range<usize>> {
        self.context.open((self.service, self.number), body)
    }

    /// Protects the results that were appended since [`InContext::begin`] (section 5.3.3.3).
    pub(super) fn close(&self, reply: &mut Reply) -> Result<(), GssError> {
        if !self.protects() {
            return Ok(());
        }
        let (bytes, at) = reply.protected(self.ahead());
        self.context.protect((self.service, self.number), bytes, at)
    }
}

/// The token of a call that makes a context.
pub(super) fn token(args: &[u8]) -> Result<&[u8], XdrError> {
    let args = rpc_gss_init_arg::decode(&mut Reader::new(args))?;
    Ok(args.gss_token.0)
}

/// Appends the answer to it (section 5.2.3).
pub(super) fn answer_init(xid: u32, answer: &InitAnswer, reply: &mut Reply) {
    match &answer.verifier {
        Some(mic) => reply.begin_verified(xid, mic, 0),
        None => reply.begin(xid),
    }
    let results = rpc_gss_init_res {
        handle: Opaque(&answer.handle),
        gss_major: answer.major,
        gss_minor: answer.minor,
        seq_window: WINDOW_TOLD,
        gss_token: Opaque(&answer.token),
    };
    results.encode(reply.bytes());
}
