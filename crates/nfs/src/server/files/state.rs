//! One state, and the state ids that name it (RFC 8881, section 8.2; RFC 7530,
//! section 9.1.4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::nfs4::{clientid4, nfsstat4, stateid4};

use super::{FileKey, Owner};

/// Reading.
pub const READ: u32 = 1;
/// Writing.
pub const WRITE: u32 = 2;

/// What a state id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// A file that an open owner has open.
    Open,
    /// Locks that a lock owner has in a file, by that open.
    Lock {
        /// The open's.
        open: u32,
    },
    /// A file that an owner of a host of NFSv3 has open, and says so.
    Share,
    /// A delegation, of writing where its share is.
    Delegation,
    /// A copy that goes on after COPY was answered (RFC 7862, section 4.8).
    Copy,
}

/// What one state id stands for; its number is unique in its client.
#[derive(Debug)]
pub struct State {
    /// What it is.
    pub kind: StateKind,
    /// Whose.
    pub client: clientid4,
    /// On behalf of which user: others are not let in by it.
    pub uid: u32,
    /// Of which file.
    pub file: FileKey,
    /// By which owner of the client; of a delegation, the client itself.
    pub owner: Arc<Owner>,
    /// Its number.
    pub number: u32,
    /// Of locks, the open that they are taken by, whose share is theirs.
    open: Option<Arc<State>>,
    /// `seqid` of the state id above, share access and deny, and the flags.
    word: AtomicU64,
}

/// It was closed, or returned.
pub(super) const GONE: u64 = 1 << 8;
/// It was taken away.
pub(super) const REVOKED: u64 = 1 << 9;
/// The client was asked to return it.
pub(super) const RECALLED: u64 = 1 << 10;
/// It was taken away by the administrator.
pub(super) const BY_ADMIN: u64 = 1 << 11;
/// Its open owner has yet to say OPEN_CONFIRM.
pub(super) const UNCONFIRMED: u64 = 1 << 12;
/// CLOSE is at it.
pub(super) const CLOSING: u64 = 1 << 13;
/// CLOSE has let locks go that others may wait for.
pub(super) const UNLOCKED: u64 = 1 << 14;
/// A delegation instead of an open.
pub(super) const IS_ALONE: u64 = 1 << 15;

impl State {
    pub(super) fn new(
        (client, uid, number): (clientid4, u32, u32),
        (kind, open): (StateKind, Option<Arc<State>>),
        file: FileKey,
        owner: Arc<Owner>,
        share: ShareReservation,
    ) -> State {
        State {
            kind,
            client,
            uid,
            file,
            owner,
            number,
            open,
            word: AtomicU64::new(1 << 32 | share.bits()),
        }
    }

    #[inline]
    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// How often it has changed.
    #[inline]
    pub fn seqid(&self) -> u32 {
        (self.word() >> 32) as u32
    }

    /// What it lets its client do, and others not.
    #[inline]
    pub fn share(&self) -> ShareReservation {
        let state = self.open.as_deref().unwrap_or(self);
        ShareReservation::of_bits(state.word())
    }

    /// A change of a state that is there: the next `seqid`, which is never 0
    /// (RFC 8881, section 8.2.2). Under the lock of its file.
    pub(super) fn change(&self, share: ShareReservation) {
        let seqid = match self.seqid().wrapping_add(1) {
            0 => 1,
            seqid => seqid,
        };
        let flags = self.word() & (RECALLED | UNCONFIRMED);
        let word = u64::from(seqid) << 32 | flags | share.bits();
        self.word.store(word, Ordering::Release);
    }

    pub(super) fn mark(&self, flag: u64) {
        self.word.fetch_or(flag, Ordering::AcqRel);
    }

    pub(super) fn unmark(&self, flag: u64) {
        self.word.fetch_and(!flag, Ordering::AcqRel);
    }

    /// Whether the client was asked to return it.
    pub fn is_recalled(&self) -> bool {
        self.word() & RECALLED != 0
    }

    /// Whether the file system holds the file for it: for an open, or a delegation that there
    /// is instead of one (RFC 9754). It is to be told when that ends.
    pub fn holds_file(&self) -> bool {
        self.kind == StateKind::Open || self.word() & IS_ALONE != 0
    }

    /// Whether CLOSE is at it: it is not to be changed any more.
    pub(super) fn is_closing(&self) -> bool {
        self.word() & CLOSING != 0
    }

    /// Whether it is closed, returned or taken away.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.word() & (GONE | REVOKED) != 0
    }

    /// Whether its open owner has yet to say OPEN_CONFIRM.
    pub fn is_unconfirmed(&self) -> bool {
        self.word() & UNCONFIRMED != 0
    }

    /// Whether a state id with this `seqid` names it as it is. 0 is as good as
    /// the last, where `is_session`.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_OLD_STATEID`], [`nfsstat4::NFS4ERR_BAD_STATEID`],
    /// [`nfsstat4::NFS4ERR_DELEG_REVOKED`], [`nfsstat4::NFS4ERR_ADMIN_REVOKED`],
    /// [`nfsstat4::NFS4ERR_EXPIRED`].
    #[inline]
    pub fn check(&self, seqid: u32, is_session: bool) -> Result<(), nfsstat4> {
        let word = self.word();
        if word & (GONE | REVOKED) != 0 {
            return Err(match (word & REVOKED, word & BY_ADMIN, self.kind) {
                (0, ..) => nfsstat4::NFS4ERR_BAD_STATEID,
                (_, BY_ADMIN, _) => nfsstat4::NFS4ERR_ADMIN_REVOKED,
                (_, _, StateKind::Delegation) => nfsstat4::NFS4ERR_DELEG_REVOKED,
                _ => nfsstat4::NFS4ERR_EXPIRED,
            });
        }
        let now = (word >> 32) as u32;
        match seqid {
            0 if is_session => Ok(()),
            _ if seqid == now => Ok(()),
            // Sequence numbers wrap.
            _ if now.wrapping_sub(seqid) < 1 << 31 => Err(nfsstat4::NFS4ERR_OLD_STATEID),
            _ => Err(nfsstat4::NFS4ERR_BAD_STATEID),
        }
    }

    /// Whether it lets its client read ([`READ`]) or write ([`WRITE`]).
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_OPENMODE`].
    #[inline]
    pub fn check_access(&self, access: u32) -> Result<(), nfsstat4> {
        match self.share().access & access == access {
            true => Ok(()),
            false => Err(nfsstat4::NFS4ERR_OPENMODE),
        }
    }
}

/// A share reservation: what one will do, and others may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareReservation {
    /// [`READ`], [`WRITE`].
    pub access: u32,
    /// Likewise.
    pub deny: u32,
}

impl ShareReservation {
    pub(super) fn bits(self) -> u64 {
        u64::from(self.access & 3 | (self.deny & 3) << 2)
    }

    pub(super) fn of_bits(bits: u64) -> ShareReservation {
        ShareReservation {
            access: bits as u32 & 3,
            deny: (bits >> 2) as u32 & 3,
        }
    }

    pub(super) fn conflicts(self, other: ShareReservation) -> bool {
        self.access & other.deny != 0 || self.deny & other.access != 0
    }

    /// What an open so does to delegations of others: [`WRITE`] ends all of them, else those
    /// of writing end.
    pub(super) fn breaks(self) -> u32 {
        match self.access & WRITE != 0 || self.deny & READ != 0 {
            true => WRITE,
            false => READ,
        }
    }

    pub(super) fn union(self, other: ShareReservation) -> ShareReservation {
        ShareReservation {
            access: self.access | other.access,
            deny: self.deny | other.deny,
        }
    }
}

/// The state id of a state as it is: its number, its client, and the start of
/// the server, so that one of another time is told from one that never was.
pub fn stateid(boot: u32, state: &State) -> stateid4 {
    let mut other = [0; 12];
    other[..4].copy_from_slice(&boot.to_be_bytes());
    other[4..8].copy_from_slice(&(state.client as u32).to_be_bytes());
    other[8..].copy_from_slice(&state.number.to_be_bytes());
    let seqid = state.seqid();
    stateid4 { seqid, other }
}

/// The words of a state id: start of the server, client, number.
#[inline]
pub fn words(stateid: &stateid4) -> (u32, u32, u32) {
    let word = |at: usize| {
        let bytes = stateid.other[at..at + 4].try_into();
        u32::from_be_bytes(bytes.expect("4 bytes"))
    };
    (word(0), word(4), word(8))
}

/// A state id that stands for no state (RFC 8881, section 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// All zero.
    Anonymous,
    /// All ones: reads go round share reservations.
    Bypass,
    /// The one that the COMPOUND had last.
    Current,
    /// Never right.
    Invalid,
}

/// The state id of reading and writing without a state.
pub const ANONYMOUS: stateid4 = stateid4 {
    seqid: 0,
    other: [0; 12],
};

/// The state id that is never right: what CLOSE gives back.
pub const INVALID: stateid4 = stateid4 {
    seqid: u32::MAX,
    other: [0; 12],
};

impl Special {
    /// Which it is, if it is one.
    #[inline]
    pub fn of(stateid: &stateid4) -> Option<Special> {
        match (stateid.seqid, stateid.other) {
            (0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Some(Special::Anonymous),
            (u32::MAX, other) if other == [0xff; 12] => Some(Special::Bypass),
            (1, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Some(Special::Current),
            (_, other) if other == [0; 12] || other == [0xff; 12] => Some(Special::Invalid),
            _ => None,
        }
    }
}
