//! The slots of a session as its client keeps them (RFC 8881, section
//! 2.10.6.1).

use wire::nfs4::{
    CREATE_SESSION4resok, SEQUENCE4args, SEQUENCE4resok, nfsstat4, sessionid4, slotid4,
};

use super::Wrong;

/// Slots that are kept, whatever a server offers.
const SLOTS_MAX: u32 = 4096;

/// A slot with the sequence id of the request that is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// `sa_slotid`.
    pub slotid: slotid4,
    /// `sa_sequenceid`.
    pub sequenceid: u32,
}

/// What SEQUENCE's result means for the request behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequenced {
    /// It was executed, now or when it came first.
    Executed,
    /// It was executed, and how that ended is not known any more.
    Forgotten,
    /// It was not executed, and can be sent again in any slot.
    Again,
    /// It was not executed, and never will be: the session is gone.
    Gone,
    /// It was not executed; why is in the status.
    Refused,
}

/// Slots of a session: all of them, or those of one of its connections.
#[derive(Clone, Debug)]
pub struct Slots {
    session: sessionid4,
    /// `ca_maxrequests` of the whole session.
    session_slots: u32,
    /// Bytes of one of its calls or answers.
    message_bytes_max: u32,
    first: slotid4,
    /// The sequence id of the last request in each.
    sequences: Vec<u32>,
    free: Vec<slotid4>,
    /// `sr_target_highest_slotid`: those beyond rest.
    highest: slotid4,
    resting: Vec<slotid4>,
}

impl Slots {
    /// All slots of a session that was just made.
    pub fn new(made: &CREATE_SESSION4resok) -> Slots {
        let fore = &made.csr_fore_chan_attrs;
        let count = fore.ca_maxrequests.clamp(1, SLOTS_MAX);
        Slots {
            session: made.csr_sessionid,
            session_slots: count,
            message_bytes_max: fore.ca_maxrequestsize.min(fore.ca_maxresponsesize),
            first: 0,
            sequences: vec![0; count as usize],
            free: (0..count).rev().collect(),
            highest: u32::MAX,
            resting: Vec::new(),
        }
    }

    fn range(&self, first: u32, count: u32) -> Slots {
        Slots {
            session: self.session,
            session_slots: self.session_slots,
            message_bytes_max: self.message_bytes_max,
            first,
            sequences: vec![0; count as usize],
            free: (first..first + count).rev().collect(),
            highest: u32::MAX,
            resting: Vec::new(),
        }
    }

    /// Takes `count` slots out for a connection of its own; `None` if there are
    /// not so many, or one of them is in use.
    pub fn split(&mut self, count: u32) -> Option<Slots> {
        let left = (self.sequences.len() as u32).checked_sub(count)?;
        if self.free.len() != self.sequences.len() {
            return None;
        }
        let first = self.first + left;
        let mut taken = self.range(first, count);
        taken.sequences = self.sequences.split_off(left as usize);
        self.free.retain(|slotid| *slotid < first);
        Some(taken)
    }

    /// Bytes of one call or answer of the session at most: the smaller of
    /// `ca_maxrequestsize` and `ca_maxresponsesize`.
    #[must_use]
    pub fn message_bytes_max(&self) -> u32 {
        self.message_bytes_max
    }

    /// `csr_sessionid`.
    #[must_use]
    pub fn session(&self) -> sessionid4 {
        self.session
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sequences.len()
    }

    /// Slots that a request is in.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.sequences.len() - self.free.len() - self.resting.len()
    }

    /// A slot for one more request. Give it back with [`Slots::end`] or
    /// [`Slots::ended`].
    #[inline]
    pub fn take(&mut self) -> Option<Slot> {
        loop {
            let slotid = self.free.pop()?;
            // A request must go on where the server wants fewer than one slot.
            if slotid > self.highest && slotid > self.first {
                self.resting.push(slotid);
                continue;
            }
            let last = self.sequences[(slotid - self.first) as usize];
            return Some(Slot {
                slotid,
                sequenceid: last.wrapping_add(1),
            });
        }
    }

    /// SEQUENCE for a request in `slot`, whose answer is to be kept if `cachethis`.
    #[must_use]
    pub fn sequence(&self, slot: Slot, cachethis: bool) -> SEQUENCE4args {
        SEQUENCE4args {
            sa_sessionid: self.session,
            sa_sequenceid: slot.sequenceid,
            sa_slotid: slot.slotid,
            sa_highest_slotid: self.session_slots - 1,
            sa_cachethis: cachethis,
        }
    }

    /// A request was executed: its slot is free, and its sequence id used.
    #[inline]
    pub fn end(&mut self, slot: Slot, result: &SEQUENCE4resok) {
        self.sequences[(slot.slotid - self.first) as usize] = slot.sequenceid;
        self.free.push(slot.slotid);
        if self.highest != result.sr_target_highest_slotid {
            self.highest = result.sr_target_highest_slotid;
            self.free.append(&mut self.resting);
        }
    }

    /// The same, whatever became of the request; what that means for it.
    #[inline]
    pub fn ended(&mut self, slot: Slot, result: Result<&SEQUENCE4resok, &Wrong>) -> Sequenced {
        match result {
            Ok(result) => {
                self.end(slot, result);
                Sequenced::Executed
            }
            Err(wrong) => self.failed(slot, wrong),
        }
    }

    #[cold]
    fn failed(&mut self, slot: Slot, wrong: &Wrong) -> Sequenced {
        let Some(status) = wrong.status() else {
            // Whether it was executed is not known: the slot cannot be used again.
            return Sequenced::Refused;
        };
        match status {
            nfsstat4::NFS4ERR_BADSESSION | nfsstat4::NFS4ERR_DEADSESSION => Sequenced::Gone,
            nfsstat4::NFS4ERR_RETRY_UNCACHED_REP => {
                self.sequences[(slot.slotid - self.first) as usize] = slot.sequenceid;
                self.free.push(slot.slotid);
                Sequenced::Forgotten
            }
            // The two sides do not agree on the slot, and never will.
            nfsstat4::NFS4ERR_SEQ_MISORDERED | nfsstat4::NFS4ERR_BADSLOT => Sequenced::Again,
            nfsstat4::NFS4ERR_SEQ_FALSE_RETRY => Sequenced::Refused,
            nfsstat4::NFS4ERR_DELAY | nfsstat4::NFS4ERR_CONN_NOT_BOUND_TO_SESSION => {
                self.free.push(slot.slotid);
                Sequenced::Again
            }
            _ => {
                self.free.push(slot.slotid);
                Sequenced::Refused
            }
        }
    }
}
