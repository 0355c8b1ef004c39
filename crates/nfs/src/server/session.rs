//! Sessions and their slots (RFC 8881, section 2.10): each request of a client
//! is executed once, however often it comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use machine::{Nanos, locked};
use wire::nfs4::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED,
    SEQ4_STATUS_CB_PATH_DOWN_SESSION, SEQUENCE4args, SEQUENCE4resok, channel_dir_from_client4,
    channel_dir_from_server4, nfsstat4, sessionid4,
};

use super::callback_way::{CallbackHandles, CallbackWay};
use super::client::Client;
use super::files::State;
use super::principal::Principal;

/// What a channel of a session may carry (`channel_attrs4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Bytes of a request.
    pub request_bytes_max: u32,
    /// Bytes of an answer.
    pub response_bytes_max: u32,
    /// Bytes of an answer that is kept.
    pub cached_bytes_max: u32,
    /// Operations of a COMPOUND.
    pub ops_max: u32,
    /// Slots.
    pub slots: u32,
}

/// What is kept of the last request in a slot.
#[derive(Debug, Default)]
enum LastRequest {
    /// There was none.
    #[default]
    Nothing,
    /// It is being executed.
    Executing,
    /// Its answer was not to be kept.
    Uncached,
    /// Its results: all behind the header of RPC.
    Results,
}

/// A request as far as it can be told from another one that bears its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// Bytes of its record.
    pub record_bytes: u32,
    /// Operations in it.
    pub ops: u32,
    /// The principal that makes it.
    pub principal: Principal,
}

#[derive(Debug, Default)]
struct ReplySlot {
    sequenceid: u32,
    kept: LastRequest,
    /// What was asked last, and whether its answer was to be kept.
    request: Option<(RequestId, bool)>,
    results: Vec<u8>,
    /// Delegations that its answer has brought.
    brought: Vec<Arc<State>>,
}

/// Slots that come into being together, when one of them is used first: clients
/// ask for many and use few.
const SLOTS_TOGETHER: usize = 8;

type ReplySlots = [Mutex<ReplySlot>; SLOTS_TOGETHER];

/// Memory for results that a slot keeps from one request to the next.
const RESULTS_BYTES_KEPT: usize = 512;

/// What SEQUENCE came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Sequenced {
    /// A request that was not here before: execute it, then say
    /// [`Session::finish`]. These are the results of SEQUENCE.
    New(SEQUENCE4resok),
    /// It was executed: these are its results.
    Again(Vec<u8>),
}

/// A connection, as its driver numbers it: no other ever has the same.
pub type ConnectionId = u64;

/// Connections of one session that carry callbacks, at most.
const CONNECTIONS_MAX: usize = 16;

/// A callback to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// On which connection.
    pub connection: ConnectionId,
    /// The client's program.
    pub program: u32,
    /// How the client wants to be called.
    pub way: CallbackWay,
    /// Its CB_SEQUENCE: `csa_slotid`.
    pub slotid: u32,
    /// `csa_sequenceid`.
    pub sequenceid: u32,
    /// `csa_highest_slotid`.
    pub highest_slotid: u32,
    /// The client may have received another one with this number, which was never
    /// answered: if it says so, this one is to be called anew.
    pub is_unsure: bool,
}

/// A slot of the backchannel.
#[derive(Clone, Copy, Debug, Default)]
struct BackSlot {
    /// Of the last callback in it.
    sequenceid: u32,
    /// One is in it.
    is_used: bool,
    /// The last one was never answered: it may have been received or not.
    is_unsure: bool,
}

/// The backchannel of a session.
#[derive(Debug)]
struct Callbacks {
    program: u32,
    way: CallbackWay,
    /// The one bound last comes last, and is used.
    connections: Vec<ConnectionId>,
    slots: Vec<BackSlot>,
}

impl Callbacks {
    fn new((program, way): (u32, CallbackWay), channel: &Channel) -> Callbacks {
        Callbacks {
            program,
            way,
            connections: Vec::new(),
            slots: vec![BackSlot::default(); channel.slots as usize],
        }
    }
}

/// A session of a client. A slot is locked by the request in it alone, so
/// requests on different connections do not wait for each other.
#[derive(Debug)]
pub struct Session {
    /// Its identifier.
    pub id: sessionid4,
    /// Whose it is.
    pub client: Arc<Client>,
    /// From the client to the server.
    pub fore: Channel,
    /// From the server to the client.
    pub back: Channel,
    /// CREATE_SESSION4_FLAG_*, as agreed.
    pub flags: u32,
    callbacks: Mutex<Callbacks>,
    slots: Box<[OnceLock<Box<ReplySlots>>]>,
    is_gone: AtomicBool,
    /// It had connections that carry callbacks, and has none any more.
    is_callback_path_down: AtomicBool,
    /// The context that it is called in is good no more.
    has_lost_context: AtomicBool,
}

impl Session {
    pub(super) fn new(
        id: sessionid4,
        client: Arc<Client>,
        (fore, back): (Channel, Channel),
        (flags, callbacks): (u32, (u32, CallbackWay)),
    ) -> Session {
        let chunks = (fore.slots as usize).div_ceil(SLOTS_TOGETHER);
        Session {
            id,
            client,
            fore,
            back,
            flags,
            callbacks: Mutex::new(Callbacks::new(callbacks, &back)),
            slots: (0..chunks).map(|_| OnceLock::new()).collect(),
            is_gone: AtomicBool::new(false),
            is_callback_path_down: AtomicBool::new(false),
            has_lost_context: AtomicBool::new(false),
        }
    }

    /// Whether the connection that made it carries callbacks.
    pub fn has_backchannel(&self) -> bool {
        self.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0
    }

    /// It, or its client, was destroyed.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// Bytes of answers that it may have to keep.
    pub(super) fn cached_bytes_max(&self) -> u64 {
        u64::from(self.fore.slots) * u64::from(self.fore.cached_bytes_max)
    }

    fn callbacks(&self) -> MutexGuard<'_, Callbacks> {
        locked(&self.callbacks)
    }

    /// BIND_CONN_TO_SESSION (section 18.34), or the backchannel that
    /// CREATE_SESSION asked for: what the connection is for then. Forth, every
    /// connection may go.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_INVAL`] where too many connections carry callbacks
    /// and this one is to do nothing else.
    pub fn bind(
        &self,
        connection: ConnectionId,
        asked: channel_dir_from_client4,
    ) -> Result<channel_dir_from_server4, nfsstat4> {
        if asked == channel_dir_from_client4::CDFC4_FORE {
            return Ok(channel_dir_from_server4::CDFS4_FORE);
        }
        let mut callbacks = self.callbacks();
        callbacks.connections.retain(|&other| other != connection);
        let has_room = callbacks.connections.len() < CONNECTIONS_MAX;
        if has_room {
            callbacks.connections.push(connection);
            self.is_callback_path_down.store(false, Ordering::Release);
        }
        match (asked, has_room) {
            (channel_dir_from_client4::CDFC4_BACK, true) => {
                Ok(channel_dir_from_server4::CDFS4_BACK)
            }
            (channel_dir_from_client4::CDFC4_BACK, false) => Err(nfsstat4::NFS4ERR_INVAL),
            (_, true) => Ok(channel_dir_from_server4::CDFS4_BOTH),
            (_, false) => Ok(channel_dir_from_server4::CDFS4_FORE),
        }
    }

    /// A connection is gone. Whether another carries callbacks; if it was the
    /// last, SEQUENCE says SEQ4_STATUS_CB_PATH_DOWN_SESSION.
    pub fn unbind(&self, connection: ConnectionId) -> bool {
        let mut callbacks = self.callbacks();
        let before = callbacks.connections.len();
        callbacks.connections.retain(|&other| other != connection);
        let left = callbacks.connections.len();
        if left == 0 && before > 0 {
            self.is_callback_path_down.store(true, Ordering::Release);
        }
        left > 0
    }

    /// Slots that a request is executed in now.
    pub fn slots_in_use(&self) -> usize {
        let slots = self.slots.iter().filter_map(|slots| slots.get());
        let is_used =
            |slot: &&Mutex<ReplySlot>| matches!(locked(slot).kept, LastRequest::Executing);
        slots.flat_map(|slots| slots.iter()).filter(is_used).count()
    }

    /// Whether a connection carries callbacks, or did.
    pub fn wants_callbacks(&self) -> bool {
        self.has_callback_path() || self.is_callback_path_down.load(Ordering::Acquire)
    }

    /// Whether a connection carries callbacks now.
    pub fn has_callback_path(&self) -> bool {
        !self.callbacks().connections.is_empty()
    }

    /// Whether it can be called: a connection carries callbacks, and the context that they are
    /// in, if any, `is_there`. If it is not, SEQUENCE says
    /// SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED.
    pub fn can_be_called(&self, is_there: impl FnOnce(&CallbackHandles) -> bool) -> bool {
        let callbacks = self.callbacks();
        let has_lost = match &callbacks.way {
            CallbackWay::Gss(handles) => !is_there(handles),
            CallbackWay::None | CallbackWay::Sys(..) => false,
        };
        self.has_lost_context.store(has_lost, Ordering::Release);
        !has_lost && !callbacks.connections.is_empty()
    }

    /// BACKCHANNEL_CTL (section 18.33): the program, and how it is called from now on, if the
    /// client names a further way.
    pub fn set_callback_program(&self, program: u32, way: Option<CallbackWay>) {
        let mut callbacks = self.callbacks();
        callbacks.program = program;
        if let Some(way) = way {
            callbacks.way = way;
            self.has_lost_context.store(false, Ordering::Release);
        }
    }

    /// A slot for one more callback; `None` if all are in use, or no connection
    /// carries any. Say [`Session::end_callback`] when it was answered.
    pub fn begin_callback(&self) -> Option<Callback> {
        let mut callbacks = self.callbacks();
        let connection = *callbacks.connections.last()?;
        let (program, way) = (callbacks.program, callbacks.way.clone());
        let highest_slotid = callbacks.slots.len() as u32 - 1;
        let free = callbacks.slots.iter().enumerate();
        let free = free.filter(|(_, slot)| !slot.is_used);
        let (at, _) = free.min_by_key(|(at, slot)| (slot.is_unsure, *at))?;
        let slot = &mut callbacks.slots[at];
        let is_unsure = slot.is_unsure;
        slot.sequenceid = slot.sequenceid.wrapping_add(u32::from(!is_unsure));
        slot.is_used = true;
        let sequenceid = slot.sequenceid;
        Some(Callback {
            connection,
            program,
            way,
            slotid: at as u32,
            sequenceid,
            highest_slotid,
            is_unsure,
        })
    }

    /// A callback that was not answered, once more: in its slot, with its number,
    /// on the connection that is used now. `None` if there is none.
    pub fn repeat_callback(&self, slotid: u32) -> Option<Callback> {
        let callbacks = self.callbacks();
        let BackSlot {
            sequenceid,
            is_unsure,
            ..
        } = callbacks.slots[slotid as usize];
        Some(Callback {
            connection: *callbacks.connections.last()?,
            program: callbacks.program,
            way: callbacks.way.clone(),
            slotid,
            sequenceid,
            highest_slotid: callbacks.slots.len() as u32 - 1,
            is_unsure,
        })
    }

    /// A callback was answered. If it never was, its slot may have gone on or not:
    /// the next one in it bears the same number.
    pub fn end_callback(&self, slotid: u32, is_answered: bool) {
        let slot = &mut self.callbacks().slots[slotid as usize];
        slot.is_used = false;
        slot.is_unsure = !is_answered;
    }

    #[inline]
    fn slot(&self, slotid: u32) -> Option<MutexGuard<'_, ReplySlot>> {
        if slotid >= self.fore.slots {
            return None;
        }
        let at = slotid as usize;
        let slots = self.slots[at / SLOTS_TOGETHER].get_or_init(Box::default);
        let slot = &slots[at % SLOTS_TOGETHER];
        Some(locked(slot))
    }

    /// SEQUENCE, the first operation of a request (section 18.46). It renews
    /// the lease.
    ///
    /// # Errors
    /// The status of SEQUENCE, with which the request ends.
    /// [`nfsstat4::NFS4ERR_DELAY`] where it is being executed,
    /// [`nfsstat4::NFS4ERR_SEQ_FALSE_RETRY`] where another one was.
    #[inline]
    pub fn sequence(
        &self,
        args: &SEQUENCE4args,
        request: &RequestId,
        now: Nanos,
    ) -> Result<Sequenced, nfsstat4> {
        if self.is_gone() {
            return Err(nfsstat4::NFS4ERR_BADSESSION);
        }
        let mut slot = self.slot(args.sa_slotid).ok_or(nfsstat4::NFS4ERR_BADSLOT)?;
        if args.sa_highest_slotid >= self.fore.slots {
            return Err(nfsstat4::NFS4ERR_BAD_HIGH_SLOT);
        }
        let is_next = args.sa_sequenceid == slot.sequenceid.wrapping_add(1);
        let is_last = args.sa_sequenceid == slot.sequenceid;
        let asked = Some((*request, args.sa_cachethis));
        match (&slot.kept, is_next, is_last) {
            (LastRequest::Executing, _, true) => return Err(nfsstat4::NFS4ERR_DELAY),
            (LastRequest::Uncached | LastRequest::Results, _, true) if slot.request != asked => {
                return Err(nfsstat4::NFS4ERR_SEQ_FALSE_RETRY);
            }
            (LastRequest::Uncached, _, true) => return Err(nfsstat4::NFS4ERR_RETRY_UNCACHED_REP),
            (LastRequest::Results, _, true) => return Ok(Sequenced::Again(slot.results.clone())),
            (LastRequest::Executing, ..) | (_, false, _) => {
                return Err(nfsstat4::NFS4ERR_SEQ_MISORDERED);
            }
            (LastRequest::Nothing | LastRequest::Uncached | LastRequest::Results, true, _) => {}
        }
        // A request that ends here does not use its sequence id up.
        if request.record_bytes > self.fore.request_bytes_max {
            return Err(nfsstat4::NFS4ERR_REQ_TOO_BIG);
        }
        if request.ops > self.fore.ops_max {
            return Err(nfsstat4::NFS4ERR_TOO_MANY_OPS);
        }
        slot.sequenceid = args.sa_sequenceid;
        slot.kept = LastRequest::Executing;
        slot.request = asked;
        slot.results.clear();
        slot.brought.clear();
        drop(slot);
        self.client.renew(now);
        let last_slot = self.fore.slots - 1;
        Ok(Sequenced::New(SEQUENCE4resok {
            sr_sessionid: self.id,
            sr_sequenceid: args.sa_sequenceid,
            sr_slotid: args.sa_slotid,
            sr_highest_slotid: last_slot,
            sr_target_highest_slotid: last_slot,
            sr_status_flags: self.status_flags(),
        }))
    }

    /// SEQ4_STATUS_*, of its client and its own.
    #[inline]
    fn status_flags(&self) -> u32 {
        let own = [
            (
                &self.is_callback_path_down,
                SEQ4_STATUS_CB_PATH_DOWN_SESSION,
            ),
            (&self.has_lost_context, SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED),
        ];
        own.iter()
            .fold(self.client.status_flags(), |flags, (is_so, flag)| {
                flags
                    | if is_so.load(Ordering::Acquire) {
                        *flag
                    } else {
                        0
                    }
            })
    }

    /// The request in a slot was executed; `results` are kept where it asked
    /// for that and they are no longer than agreed.
    #[inline]
    pub fn finish(&self, slotid: u32, results: Option<&[u8]>) {
        let mut slot = self.slot(slotid).expect("a slot that a request is in");
        let max = self.fore.cached_bytes_max as usize;
        slot.kept = match results.filter(|results| results.len() <= max) {
            Some(results) => {
                // No more than is counted for the session.
                slot.results.reserve_exact(results.len());
                slot.results.extend_from_slice(results);
                LastRequest::Results
            }
            None => {
                if slot.results.capacity() > RESULTS_BYTES_KEPT {
                    slot.results = Vec::new();
                }
                LastRequest::Uncached
            }
        };
    }

    /// The answer to the request in a slot brings a delegation.
    pub fn note_brought(&self, slotid: u32, delegation: &Arc<State>) {
        let mut slot = self.slot(slotid).expect("a slot that a request is in");
        slot.brought.push(delegation.clone());
    }

    /// The request in a slot has come again ([`nfsstat4::NFS4ERR_RETRY_UNCACHED_REP`]), so that
    /// its client has no answer: the delegations that this brought.
    pub fn take_brought(&self, slotid: u32) -> Vec<Arc<State>> {
        let slot = self.slot(slotid);
        slot.map_or_else(Vec::new, |mut slot| std::mem::take(&mut slot.brought))
    }
}
