//! What each object is charged: the bytes that it takes, and whose it is.
//!
//! An entry knows when its object was looked at last ([`Ledger::tick`]), so that what was seen
//! before never takes the place of what was seen after. Reactors use none of this.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use machine::locked;

use super::table::ObjectIdentity;
use crate::fs::Error;
use crate::fs::quota::{Charged, Quotas};

/// Objects that are counted at most. Each takes about 100 bytes of memory.
const OBJECTS_MAX: usize = 1 << 22;
const SHARDS: usize = 64;

/// What the file system below calls an object: no two that are there have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectKey {
    ino: u64,
    born: i64,
}

impl From<ObjectIdentity> for ObjectKey {
    fn from(of: ObjectIdentity) -> ObjectKey {
        ObjectKey {
            ino: of.ino,
            born: of.born,
        }
    }
}

/// What was seen of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsageSeen {
    /// Taken before it was looked at, and after it was changed.
    pub(super) version: u64,
    pub(super) bytes: u64,
    /// User and group; `None` where only the content was looked at.
    pub(super) owner: Option<(u32, u32)>,
}

struct LedgerEntry {
    charged: Charged,
    bytes: u64,
    version: u64,
    /// The count in which it was seen last.
    round: u32,
    /// It has no name, and is there as long as a client has it open.
    is_nameless: bool,
}

/// Bytes and objects that are taken before an operation.
pub(super) type Credit = Option<(Charged, u64, u64)>;

pub(super) struct Ledger {
    shards: Box<[Mutex<HashMap<ObjectKey, LedgerEntry>>]>,
    objects: AtomicUsize,
    objects_max: usize,
    clock: AtomicU64,
    round: AtomicU32,
    /// An object found no place.
    is_full: AtomicBool,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::of(OBJECTS_MAX)
    }
}

impl Ledger {
    pub(super) fn of(objects_max: usize) -> Ledger {
        Ledger {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            objects: AtomicUsize::new(0),
            objects_max,
            clock: AtomicU64::new(1),
            round: AtomicU32::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    fn shard(&self, key: &ObjectKey) -> &Mutex<HashMap<ObjectKey, LedgerEntry>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.shards[hasher.finish() as usize % SHARDS]
    }

    /// Later than all before.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::AcqRel)
    }

    fn has_place(&self) -> bool {
        let more = |objects| (objects < self.objects_max).then_some(objects + 1);
        let taken = (self.objects).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        let has_place = taken.is_ok();
        if !has_place {
            self.is_full.store(true, Ordering::Release);
        }
        has_place
    }

    /// Whether an object found no place since the last count began.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Whether a count would find room for what had no place.
    pub(super) fn has_room_again(&self) -> bool {
        self.is_full() && self.objects.load(Ordering::Acquire) < self.objects_max / 8 * 7
    }

    /// An object is charged what was seen of it. One that is new gets an entry if its owner was
    /// looked at, and if it is still there when `is_there` is asked, under the lock that
    /// [`Ledger::remove`] takes. `credit` is used up.
    pub(super) fn put(
        &self,
        quotas: &Quotas,
        key: ObjectKey,
        look: UsageSeen,
        (credit, is_there): (&mut Credit, impl FnOnce() -> bool),
    ) -> bool {
        let owner = look.owner;
        let of = owner.map(|(uid, gid)| quotas.charged(uid, gid, &None));
        let round = self.round.load(Ordering::Acquire);
        let mut shard = locked(self.shard(&key));
        if let Some(entry) = shard.get_mut(&key) {
            entry.round = round;
            if look.version > entry.version {
                let to = of.unwrap_or_else(|| entry.charged.clone());
                let old = (entry.charged.clone(), entry.bytes, 1);
                let from: Vec<_> = [Some(old), credit.take()].into_iter().flatten().collect();
                quotas.recharge(&from, (&to, look.bytes));
                (entry.charged, entry.bytes, entry.version) = (to, look.bytes, look.version);
            }
            return true;
        }
        let Some(to) = of else { return false };
        if !is_there() || !self.has_place() {
            return false;
        }
        let from: Vec<_> = credit.take().into_iter().collect();
        quotas.recharge(&from, (&to, look.bytes));
        let entry = LedgerEntry {
            charged: to,
            bytes: look.bytes,
            version: look.version,
            round,
            is_nameless: false,
        };
        shard.insert(key, entry);
        true
    }

    /// An object is to belong to others, before it does.
    ///
    /// # Errors
    /// [`Error::DQuot`] where their limits do not allow it, without `is_forced`.
    pub(super) fn give_to(
        &self,
        quotas: &Quotas,
        key: &ObjectKey,
        (uid, gid): (u32, u32),
        is_forced: bool,
    ) -> Result<(), Error> {
        let to = quotas.charged(uid, gid, &None);
        let mut shard = locked(self.shard(key));
        if let Some(entry) = shard.get_mut(key) {
            quotas.move_to((&entry.charged, &to), entry.bytes, is_forced)?;
            entry.charged = to;
            entry.version = self.tick();
        }
        Ok(())
    }

    /// An object has lost its last name, and a client has it open.
    pub(super) fn keep_nameless(&self, key: &ObjectKey) {
        if let Some(entry) = locked(self.shard(key)).get_mut(key) {
            entry.is_nameless = true;
        }
    }

    /// An object is gone.
    pub(super) fn remove(&self, quotas: &Quotas, key: &ObjectKey) {
        let mut shard = locked(self.shard(key));
        if let Some(entry) = shard.remove(key) {
            quotas.give(&entry.charged, entry.bytes, 1);
            self.objects.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// All is looked for anew.
    pub(super) fn begin_round(&self) {
        self.is_full.store(false, Ordering::Release);
        self.round.fetch_add(1, Ordering::AcqRel);
    }

    /// What was not seen since the round began is gone.
    pub(super) fn end_round(&self, quotas: &Quotas) {
        let round = self.round.load(Ordering::Acquire);
        self.retain(quotas, |entry| entry.round == round || entry.is_nameless);
    }

    pub(super) fn clear(&self, quotas: &Quotas) {
        self.retain(quotas, |_| false);
    }

    fn retain(&self, quotas: &Quotas, stays: impl Fn(&LedgerEntry) -> bool) {
        for shard in &self.shards {
            locked(shard).retain(|_, entry| {
                let stays = stays(entry);
                if !stays {
                    quotas.give(&entry.charged, entry.bytes, 1);
                    self.objects.fetch_sub(1, Ordering::AcqRel);
                }
                stays
            });
        }
    }
}

#[cfg(test)]
mod tests;
