//! Owners of opens and of locks, and where they stand: version 4.0 numbers
//! what each of them asks, so that it is done once (RFC 7530, section 9.1.7).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use machine::{Nanos, locked};
use wire::nfs4::{nfs_opnum4, nfsstat4};

use super::super::locks::LockOwner;

/// What an owner owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum OwnerKind {
    /// Opens.
    Open = 0,
    /// Locks.
    Lock = 1,
    /// Delegations and copies: the client itself.
    Client = 2,
}

/// An owner of opens or of locks.
#[derive(Debug)]
pub struct Owner {
    /// Unique in the server.
    pub id: LockOwner,
    /// How its client calls it.
    pub name: Box<[u8]>,
    pub(super) kind: OwnerKind,
    /// That have it as their owner.
    pub(super) states: AtomicU32,
    /// Files in which it has locks.
    pub(super) locked: AtomicU32,
    turn: Mutex<OwnerTurn>,
}

/// Where an owner stands.
#[derive(Debug, Default)]
struct OwnerTurn {
    /// The last request, if there was one.
    seqid: Option<u32>,
    /// OPEN_CONFIRM arrived.
    is_confirmed: bool,
    /// A request is being executed.
    is_busy: bool,
    kept: Option<LastAnswer>,
    used: Nanos,
    /// The state that was closed last, for a CLOSE that is sent again.
    closed: Option<u32>,
}

/// The last answer to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAnswer {
    /// What was asked: another request by the same number is no repetition.
    pub op: nfs_opnum4,
    /// Its status.
    pub status: nfsstat4,
    /// What followed it.
    pub body: Box<[u8]>,
    /// The file that became the current one: its export and its number there.
    pub file: Option<(u32, u64)>,
}

/// How a request of an owner is to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestBegun {
    /// It is to be executed; say [`Owner::finish`] then.
    New,
    /// Likewise, and what the owner opened and never confirmed is to be closed
    /// before.
    Anew,
    /// It was executed: this was the answer.
    Again(LastAnswer),
}

impl Owner {
    pub(super) fn new(id: LockOwner, kind: OwnerKind, name: &[u8]) -> Owner {
        Owner {
            id,
            name: name.into(),
            kind,
            states: AtomicU32::new(0),
            locked: AtomicU32::new(0),
            turn: Mutex::default(),
        }
    }

    fn turn(&self) -> MutexGuard<'_, OwnerTurn> {
        locked(&self.turn)
    }

    /// A request numbered `seqid` arrived.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_SEQID`]; [`nfsstat4::NFS4ERR_RESOURCE`], which
    /// uses no number up, while another one is being executed.
    pub fn begin(&self, seqid: u32) -> Result<RequestBegun, nfsstat4> {
        let mut turn = self.turn();
        let is_open = self.kind == OwnerKind::Open;
        let begun = match (turn.seqid, &turn.kept) {
            _ if turn.is_busy => return Err(nfsstat4::NFS4ERR_RESOURCE),
            (None, _) => RequestBegun::New,
            // A lock owner without locks has nothing that could be done twice.
            _ if self.kind == OwnerKind::Lock && self.states.load(Ordering::Relaxed) == 0 => {
                RequestBegun::New
            }
            // An owner that was never confirmed may have forgotten what was refused.
            (Some(last), Some(kept))
                if seqid == last
                    && (!is_open || turn.is_confirmed || kept.status == nfsstat4::NFS4_OK) =>
            {
                return Ok(RequestBegun::Again(kept.clone()));
            }
            (Some(last), _) if seqid == last.wrapping_add(1) => RequestBegun::New,
            _ if is_open && !turn.is_confirmed => RequestBegun::Anew,
            _ => return Err(nfsstat4::NFS4ERR_BAD_SEQID),
        };
        turn.is_busy = true;
        Ok(begun)
    }

    /// A request that was begun is answered so.
    pub fn finish(&self, seqid: u32, kept: LastAnswer, now: Nanos) {
        let mut turn = self.turn();
        turn.is_busy = false;
        turn.used = now;
        if uses_seqid(kept.status) {
            turn.seqid = Some(seqid);
            turn.kept = Some(kept);
        }
    }

    /// A request that was begun is not answered.
    pub fn abandon(&self) {
        self.turn().is_busy = false;
    }

    /// OPEN_CONFIRM has arrived, or is not needed.
    pub fn confirm(&self) {
        self.turn().is_confirmed = true;
    }

    /// Whether OPEN_CONFIRM has arrived.
    pub fn is_confirmed(&self) -> bool {
        self.turn().is_confirmed
    }

    pub(super) fn touch(&self, now: Nanos) {
        self.turn().used = now;
    }

    /// When a request of it was answered last, and none is under way.
    pub(super) fn idle_since(&self) -> Option<Nanos> {
        let turn = self.turn();
        (!turn.is_busy).then_some(turn.used)
    }

    /// A state was closed: the one that was before it.
    pub(super) fn replace_closed(&self, number: u32) -> Option<u32> {
        self.turn().closed.replace(number)
    }

    /// The state that was closed last, known no more.
    pub(super) fn take_closed(&self) -> Option<u32> {
        self.turn().closed.take()
    }
}

/// Whether an answer uses a sequence number up (RFC 7530, section 9.1.7).
pub fn uses_seqid(status: nfsstat4) -> bool {
    !matches!(
        status,
        nfsstat4::NFS4ERR_STALE_CLIENTID
            | nfsstat4::NFS4ERR_STALE_STATEID
            | nfsstat4::NFS4ERR_BAD_STATEID
            | nfsstat4::NFS4ERR_BAD_SEQID
            | nfsstat4::NFS4ERR_BADXDR
            | nfsstat4::NFS4ERR_RESOURCE
            | nfsstat4::NFS4ERR_NOFILEHANDLE
            | nfsstat4::NFS4ERR_MOVED
    )
}
