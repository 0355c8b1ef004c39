//! Calls to clients (RFC 8881, section 20; RFC 7862, section 16): what is to be
//! called waits here until the driver of the client's connection takes it, and
//! is called again, on another connection if need be, until it was answered.

mod address;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use machine::{Nanos, locked, work};
use nfs::connection::CallBack;
use nfs::server::files::{HolderAnswer, HolderQuestion, Recall, Waiter};
use nfs::server::{ConnectionId, Session};
use wire::nfs4::{
    CB_COMPOUND, CB_COMPOUND4args, CB_GETATTR4args, CB_NOTIFY_LOCK4args, CB_OFFLOAD4args,
    CB_RECALL4args, CB_SEQUENCE4args, CB_SEQUENCE4resok, FATTR4_CHANGE, FATTR4_SIZE,
    FATTR4_TIME_DELEG_ACCESS, FATTR4_TIME_DELEG_MODIFY, NFS_CB, cb_compound_res_head, clientid4,
    fattr4, nfs_cb_argop4, nfs_cb_opnum4, nfsstat4, nfstime4, offload_info4, state_owner4,
    stateid4,
};
use wire::rpc::{accept_stat, accepted_body, reply_body};
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use address::AddressOut;
pub use address::ClientCall;
pub(crate) use address::callback_address;

use crate::Nfsd;

/// A client that has not answered in this time is asked again elsewhere.
const PATIENCE: Nanos = 10_000_000_000;
/// Until a callback that could not be sent, or failed at the client, is sent
/// again.
const PAUSE: Nanos = 1_000_000_000;
/// What waits for a way to its client: of all clients together, of which no client has
/// more than a part of what is left. Clients ask again for what there is no room for, and
/// delegations are revoked.
const WAITING_MAX: usize = 64 * 1024;
/// That may wait for every client, whatever waits for others.
const WAITING_MIN: usize = 64;

/// What a client is asked of a file that it writes by a delegation.
const VIEW: [u32; 1] = [1 << FATTR4_CHANGE | 1 << FATTR4_SIZE];
/// The same where the times of the file are delegated too.
const VIEW_WITH_TIMES: [u32; 3] = [
    VIEW[0],
    0,
    1 << (FATTR4_TIME_DELEG_ACCESS - 64) | 1 << (FATTR4_TIME_DELEG_MODIFY - 64),
];

fn view(with_times: bool) -> &'static [u32] {
    match with_times {
        true => &VIEW_WITH_TIMES,
        false => &VIEW,
    }
}

/// A call to a client, for its driver to make.
#[derive(Debug)]
pub struct Callback {
    /// The connection that it goes out on ([`crate::Peer::id`]).
    pub connection: ConnectionId,
    /// The argument of [`Nfsd::answered`].
    pub id: u64,
    /// The procedure and its credential.
    called: CallBack,
    args: Vec<u8>,
}

impl Callback {
    /// The procedure and its credential ([`nfs::Connection::call_back`]).
    pub fn procedure(&self) -> CallBack {
        self.called.clone()
    }

    /// Its arguments.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.args);
    }
}

/// What a client is to be called back for.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    /// It is to return a delegation.
    Recall(Recall),
    /// It is to say what a file is like of which it has a write delegation.
    Getattr(HolderQuestion),
    /// It could have a lock now that it was refused.
    NotifyLock(Waiter),
    /// A copy has ended, with this status and so many bytes.
    Offload(Arc<Ended>),
}

/// How a copy ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) client: clientid4,
    pub(crate) handle: Box<[u8]>,
    pub(crate) stateid: stateid4,
    pub(crate) state: Arc<nfs::server::files::State>,
    pub(crate) outcome: Result<wire::nfs4::write_response4<'static>, (nfsstat4, u64)>,
}

impl Errand {
    fn client(&self) -> clientid4 {
        match self {
            Errand::Recall(recall) => recall.state.client,
            Errand::Getattr(question) => question.state.client,
            Errand::NotifyLock(waiter) => waiter.client,
            Errand::Offload(ended) => ended.client,
        }
    }

    /// Whether it is worth saying any more.
    fn is_moot(&self) -> bool {
        match self {
            Errand::Recall(recall) => recall.state.is_over(),
            Errand::Getattr(question) => question.state.is_over() || question.state.is_recalled(),
            Errand::NotifyLock(_) => false,
            Errand::Offload(ended) => ended.state.is_over(),
        }
    }

    fn with_op<T>(&self, then: impl FnOnce(nfs_cb_argop4<'_>) -> T) -> T {
        match self {
            Errand::Recall(recall) => then(nfs_cb_argop4::OP_CB_RECALL(CB_RECALL4args {
                stateid: recall.stateid,
                truncate: false,
                fh: Opaque(&recall.handle),
            })),
            Errand::Getattr(question) => then(nfs_cb_argop4::OP_CB_GETATTR(CB_GETATTR4args {
                fh: Opaque(&question.handle),
                attr_request: List::Of(view(question.delegates_times)),
            })),
            Errand::NotifyLock(waiter) => {
                then(nfs_cb_argop4::OP_CB_NOTIFY_LOCK(CB_NOTIFY_LOCK4args {
                    cnla_fh: Opaque(&waiter.handle),
                    cnla_lock_owner: state_owner4 {
                        clientid: waiter.client,
                        owner: Opaque(&waiter.owner),
                    },
                }))
            }
            Errand::Offload(ended) => then(nfs_cb_argop4::OP_CB_OFFLOAD(CB_OFFLOAD4args {
                coa_fh: Opaque(&ended.handle),
                coa_stateid: ended.stateid,
                coa_offload_info: match ended.outcome {
                    Ok(response) => offload_info4::NFS4_OK(response),
                    Err((status, copied)) => offload_info4::default(status, copied),
                },
            })),
        }
    }
}

/// A call that was made, or is about to be.
#[derive(Debug)]
enum Made {
    /// In a slot of a session.
    InSession(Out),
    /// To a client of version 4.0.
    AtAddress(AddressOut),
}

/// One in a slot of a session.
#[derive(Debug)]
struct Out {
    errand: Errand,
    session: Arc<Session>,
    connection: ConnectionId,
    slotid: u32,
    /// [`nfs::server::Callback::is_unsure`].
    is_unsure: bool,
}

#[derive(Debug, Default)]
struct CallbackInner {
    ready: VecDeque<Callback>,
    /// To clients of version 4.0.
    client_calls: Vec<ClientCall>,
    /// Calls to clients of version 4.0, by host.
    calls_of_hosts: HashMap<u64, usize>,
    /// Each with the time until which its answer is waited for, in that order.
    out: BTreeMap<u64, (Nanos, Made)>,
    /// To be said from then on, by client.
    waiting: BTreeMap<clientid4, VecDeque<(Nanos, Errand)>>,
    /// How many in all.
    waiting_len: usize,
    /// The client that is looked at next when time has passed.
    waiting_from: clientid4,
    next: u64,
}

/// Calls to clients.
#[derive(Debug, Default)]
pub struct Outbox {
    inner: Mutex<CallbackInner>,
    has_ready: AtomicBool,
    has_client_calls: AtomicBool,
}

impl Outbox {
    fn inner(&self) -> MutexGuard<'_, CallbackInner> {
        locked(&self.inner)
    }

    fn send(
        &self,
        inner: &mut CallbackInner,
        session: Arc<Session>,
        errand: Errand,
        slot: BackchannelSlot,
        now: Nanos,
    ) {
        let callback = slot.0;
        inner.next += 1;
        let id = inner.next;
        inner.ready.push_back(Callback {
            connection: callback.connection,
            id,
            called: CallBack {
                program: callback.program,
                version: NFS_CB,
                procedure: CB_COMPOUND,
                way: callback.way.clone(),
            },
            args: compound(&session, &callback, &errand),
        });
        let out = Out {
            errand,
            session,
            connection: callback.connection,
            slotid: callback.slotid,
            is_unsure: callback.is_unsure,
        };
        let until = now.saturating_add(PATIENCE);
        inner.out.insert(id, (until, Made::InSession(out)));
        self.has_ready.store(true, Ordering::Release);
    }

    fn wait(&self, errand: Errand, due: Nanos) {
        let mut inner = self.inner();
        let left = WAITING_MAX.saturating_sub(inner.waiting_len);
        let its = inner.waiting.entry(errand.client()).or_default();
        if its.len() < WAITING_MIN.max(left / 4) {
            its.push_back((due, errand));
            inner.waiting_len += 1;
        }
    }

    /// What was to be said to a client first, if it is due.
    fn take_due(&self, client: clientid4, now: Nanos) -> Option<Errand> {
        let mut inner = self.inner();
        let its = inner.waiting.get_mut(&client)?;
        if its.front().is_none_or(|(due, _)| *due > now) {
            return None;
        }
        let (_, errand) = its.pop_front()?;
        if its.is_empty() {
            inner.waiting.remove(&client);
        }
        inner.waiting_len -= 1;
        Some(errand)
    }

    /// It could not be sent: it is the first in the queue again.
    fn requeue(&self, errand: Errand, due: Nanos) {
        let mut inner = self.inner();
        inner.waiting_len += 1;
        let its = inner.waiting.entry(errand.client()).or_default();
        its.push_front((due, errand));
    }
}

/// The slot of a session's backchannel that a call goes in.
struct BackchannelSlot(nfs::server::Callback);

/// CB_SEQUENCE, and what is to be said.
fn compound(session: &Session, callback: &nfs::server::Callback, errand: &Errand) -> Vec<u8> {
    let sequence = nfs_cb_argop4::OP_CB_SEQUENCE(CB_SEQUENCE4args {
        csa_sessionid: session.id,
        csa_sequenceid: callback.sequenceid,
        csa_slotid: callback.slotid,
        csa_highest_slotid: callback.highest_slotid,
        csa_cachethis: false,
        csa_referring_call_lists: List::Of(&[]),
    });
    let mut args = Vec::with_capacity(256);
    errand.with_op(|op| {
        let ops = [sequence, op];
        let compound = CB_COMPOUND4args {
            tag: Opaque(&[]),
            minorversion: session.client.minor,
            callback_ident: 0,
            argarray: List::Of(&ops),
        };
        compound.encode(&mut args);
    });
    args
}

/// What a client said to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallbackAnswer<'a> {
    /// It was executed, with this status of what followed CB_SEQUENCE, and that result.
    Done(nfsstat4, &'a [u8]),
    /// CB_SEQUENCE failed so.
    Unsequenced(nfsstat4),
    /// Nothing that can be read.
    Nothing,
}

fn decode_answer(answer: &[u8]) -> CallbackAnswer<'_> {
    read_answer(answer).unwrap_or(CallbackAnswer::Nothing)
}

fn read_answer(answer: &[u8]) -> Option<CallbackAnswer<'_>> {
    let from = &mut Reader::new(answer);
    let reply_body::MSG_ACCEPTED(accepted) = reply_body::decode(from).ok()? else {
        return None;
    };
    if accepted.body != accepted_body::default(accept_stat::SUCCESS) {
        return None;
    }
    let head = cb_compound_res_head::decode(from).ok()?;
    if head.results == 0 {
        return None;
    }
    let number = nfs_cb_opnum4::decode(from).ok()?;
    let status = nfsstat4::decode(from).ok()?;
    match (number, status) {
        (nfs_cb_opnum4::OP_CB_SEQUENCE, nfsstat4::NFS4_OK) => {}
        (nfs_cb_opnum4::OP_CB_SEQUENCE, status) => {
            return Some(CallbackAnswer::Unsequenced(status));
        }
        _ => return None,
    }
    CB_SEQUENCE4resok::decode(from).ok()?;
    Some(CallbackAnswer::Done(head.status, from.rest()))
}

/// What the result of CB_GETATTR says, with times where they were asked for.
fn read_view(result: &[u8], with_times: bool) -> Option<HolderAnswer> {
    let from = &mut Reader::new(result);
    nfs_cb_opnum4::decode(from).ok()?;
    let nfsstat4::NFS4_OK = nfsstat4::decode(from).ok()? else {
        return None;
    };
    let attributes = fattr4::decode(from).ok()?;
    // Linux appends words without a bit.
    let mut mask = attributes.attrmask.iter();
    let mut asked = view(with_times).iter();
    if !asked.all(|word| mask.next() == Some(*word)) || mask.any(|word| word != 0) {
        return None;
    }
    let values = &mut Reader::new(attributes.attr_vals.0);
    let mut answer = HolderAnswer {
        change: u64::decode(values).ok()?,
        size: u64::decode(values).ok()?,
        times: None,
    };
    if with_times {
        let accessed = nfstime4::decode(values).ok()?;
        let modified = nfstime4::decode(values).ok()?;
        if accessed.nseconds.max(modified.nseconds) >= 1_000_000_000 {
            return None;
        }
        answer.times = Some((accessed, modified));
    }
    Some(answer)
}

impl Nfsd {
    /// Something is to be said to a client, now or as soon as there is a way.
    pub(crate) fn post(&self, errand: Errand, now: Nanos) {
        if let Err(errand) = self.try_post(errand, now) {
            self.outbox.wait(errand, now);
        }
    }

    /// Sends something to a client, unless it is of no use any more.
    ///
    /// # Errors
    /// What could not be said: there is no way now.
    fn try_post(&self, errand: Errand, now: Nanos) -> Result<(), Errand> {
        work::spend(work::OPERATION_UNITS);
        if errand.is_moot() {
            return Ok(());
        }
        if let Some(path) = self.server.callback_path(errand.client()) {
            return self.try_post_at(&path, errand, now);
        }
        let sessions = self.server.sessions_of(errand.client());
        let can_be_called = |session: &Arc<Session>| self.can_call(session, now);
        let has_path = sessions.iter().any(can_be_called);
        // A client without a session is gone. One that waits for a lock also asks by itself.
        if sessions.is_empty() || matches!(errand, Errand::NotifyLock(_)) && !has_path {
            return Ok(());
        }
        for session in sessions {
            if self.can_call(&session, now)
                && let Some(callback) = session.begin_callback()
            {
                let mut inner = self.outbox.inner();
                let slot = BackchannelSlot(callback);
                self.outbox.send(&mut inner, session, errand, slot, now);
                return Ok(());
            }
        }
        Err(errand)
    }

    /// Whether a session can be called now.
    pub(crate) fn can_call(&self, session: &Session, now: Nanos) -> bool {
        session.can_be_called(|handles| {
            let principal = self.contexts.principal_of(&handles.here, now);
            principal.is_some()
        })
    }

    /// There may be a way to a client: what waits for it and is due, as far as the turn has
    /// a share for it.
    pub(crate) fn post_waiting(&self, client: clientid4, now: Nanos) {
        while let Some(errand) = self.outbox.take_due(client, now) {
            if let Err(errand) = self.try_post(errand, now) {
                return self.outbox.requeue(errand, now);
            }
            if work::is_used_up() {
                return;
            }
        }
    }

    /// Calls that are to be made, each on its connection: then
    /// [`Nfsd::answered`].
    #[inline]
    pub fn take_callbacks(&self) -> Vec<Callback> {
        if !self.outbox.has_ready.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inner = self.outbox.inner();
        self.outbox.has_ready.store(false, Ordering::Release);
        inner.ready.drain(..).collect()
    }

    /// A call was answered ([`nfs::Connection::answer`]), or never will be: it
    /// could not be made, or its connection is gone.
    pub fn answered(&self, id: u64, answer: Option<&[u8]>, now: Nanos) {
        let out = self.outbox.inner().out.remove(&id);
        let out = match out {
            Some((_, Made::InSession(out))) => out,
            Some((_, Made::AtAddress(out))) => return self.answered_at(out, answer, now),
            None => return,
        };
        match answer.map_or(CallbackAnswer::Nothing, decode_answer) {
            CallbackAnswer::Done(status, result) => {
                out.session.end_callback(out.slotid, true);
                self.callback_done(out.errand, (status, result), now);
            }
            // The slot did not go on: the same call again.
            CallbackAnswer::Unsequenced(nfsstat4::NFS4ERR_DELAY) => self.repeat(out, now),
            // It went on before: the client has executed this callback, or another.
            CallbackAnswer::Unsequenced(
                nfsstat4::NFS4ERR_RETRY_UNCACHED_REP | nfsstat4::NFS4ERR_SEQ_FALSE_RETRY,
            ) => {
                out.session.end_callback(out.slotid, true);
                if out.is_unsure {
                    self.post(out.errand, now);
                }
            }
            CallbackAnswer::Unsequenced(_) | CallbackAnswer::Nothing => {
                out.session.unbind(out.connection);
                self.repeat(out, now);
            }
        }
    }

    /// A client has executed a callback.
    fn callback_done(&self, errand: Errand, (status, result): (nfsstat4, &[u8]), now: Nanos) {
        let is_offload = matches!(errand, Errand::Offload(_));
        let client = errand.client();
        match (status, &errand) {
            // Also of a client that does not know the delegation yet: it is recalled then.
            (_, Errand::Getattr(question)) => {
                let said = read_view(result, question.delegates_times);
                self.files.holder_said(question, said);
            }
            // It does not know the delegation yet: the call was faster than the
            // answer that brings it.
            (
                nfsstat4::NFS4ERR_DELAY
                | nfsstat4::NFS4ERR_BADHANDLE
                | nfsstat4::NFS4ERR_BAD_STATEID,
                _,
            ) if !is_offload || status == nfsstat4::NFS4ERR_DELAY => {
                self.outbox.wait(errand, now.saturating_add(PAUSE));
            }
            (_, Errand::Offload(ended)) => self.files.end_copy(&ended.state),
            _ => {}
        }
        self.post_waiting(client, now);
    }

    /// The callback was not executed: once more in its slot, on another connection of
    /// the session, or by another session.
    fn repeat(&self, out: Out, now: Nanos) {
        if out.errand.is_moot() {
            return out.session.end_callback(out.slotid, false);
        }
        match out.session.repeat_callback(out.slotid) {
            Some(callback) if !out.session.is_gone() && self.can_call(&out.session, now) => {
                let mut inner = self.outbox.inner();
                let slot = BackchannelSlot(callback);
                self.outbox
                    .send(&mut inner, out.session, out.errand, slot, now);
            }
            _ => {
                out.session.end_callback(out.slotid, false);
                self.post(out.errand, now);
            }
        }
    }

    /// Time has passed: a callback without an answer is sent by another connection, and
    /// what had to wait is sent. What the turn has no share for waits for the next time.
    pub(crate) fn hurry_callbacks(&self, now: Nanos) {
        while let Some(id) = self.first_late(now)
            && !work::is_used_up()
        {
            self.answered(id, None, now);
        }
        while let Some(client) = self.next_waiting() {
            self.post_waiting(client, now);
            if work::is_used_up() {
                return;
            }
        }
    }

    fn first_late(&self, now: Nanos) -> Option<u64> {
        let inner = self.outbox.inner();
        let (id, (until, _)) = inner.out.first_key_value()?;
        (*until <= now).then_some(*id)
    }

    /// The next client for which something waits; `None` after the last one.
    fn next_waiting(&self) -> Option<clientid4> {
        let mut inner = self.outbox.inner();
        let from = inner.waiting_from;
        let next = inner
            .waiting
            .range(from..)
            .next()
            .map(|(client, _)| *client);
        inner.waiting_from = next.map_or(0, |client| client + 1);
        next
    }
}
