//! The ROD tokens of all targets: what each names, and for how long.
//!
//! A token names ranges of a volume as they were when it was made. Nothing is kept of them: the
//! token is revoked when one of them changes (see [`store::Watch`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use reactor::{Nanos, must_fill_random};
use scsi::token::{Token, id_of, token};
use scsi::unmap::Range;
use scsi::{Sense, asc, key};
use store::{Volume, Watch};

/// Tokens of one initiator at most: a further one takes the place of its oldest.
const OF_INITIATOR_MAX: usize = 32;
/// Tokens at most: a further one takes the place of the oldest that is over.
const TOKENS_MAX: usize = 256;
/// What has expired is known as such for so much longer.
const REMEMBERED_NS: Nanos = 600 * SECOND_NS;
const SECOND_NS: Nanos = 1_000_000_000;

/// What a token names.
struct RodToken {
    bytes: Box<Token>,
    /// Name of the initiator that it was made for.
    owner: String,
    /// It keeps no volume open.
    volume: Weak<dyn Volume>,
    ranges: Vec<Range>,
    /// None when it has expired.
    watch: Option<Arc<Watch>>,
    timeout_ns: Nanos,
    expires_at: Nanos,
}

impl RodToken {
    /// Whether it is remembered for the sake of its answer alone.
    fn is_over(&self) -> bool {
        self.watch.as_ref().is_none_or(|watch| watch.has_changed())
            || self.volume.strong_count() == 0
    }
}

/// What a token names that is valid.
pub(super) struct NamedRanges {
    pub volume: Arc<dyn Volume>,
    /// In the order of the data.
    pub ranges: Vec<Range>,
    pub watch: Arc<Watch>,
}

#[derive(Default)]
struct Table {
    all: BTreeMap<u64, RodToken>,
    /// The numbers of tokens by their age.
    made: u64,
    by_age: BTreeMap<u64, u64>,
}

/// See the module.
pub(super) struct RodTokens {
    table: Mutex<Table>,
    /// When the next one expires; `u64::MAX` for never.
    due: AtomicU64,
}

impl Default for RodTokens {
    fn default() -> RodTokens {
        RodTokens {
            table: Mutex::default(),
            due: AtomicU64::new(u64::MAX),
        }
    }
}

impl RodTokens {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token for ranges of a volume.
    pub(super) fn make(
        &self,
        volume: &Arc<dyn Volume>,
        ranges: Vec<Range>,
        (owner, timeout_s): (String, u32),
        now: Nanos,
    ) -> Result<Box<Token>, Sense> {
        self.expire(now);
        let table = &mut *self.table();
        machine::work::spend(table.all.len() as u64);
        let is_own = |id: &&u64| table.all[*id].owner == owner;
        let own: Vec<u64> = table.by_age.values().filter(is_own).copied().collect();
        if own.len() >= OF_INITIATOR_MAX {
            table.remove(own[0]);
        }
        if table.all.len() >= TOKENS_MAX {
            let is_over = |id: &&u64| table.all[*id].is_over();
            if let Some(oldest) = table.by_age.values().find(is_over).copied() {
                table.remove(oldest);
            }
        }
        if table.all.len() >= TOKENS_MAX {
            let code = asc::INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN;
            return Err(Sense::new(key::ABORTED_COMMAND, code));
        }
        let mut random = [0; 40];
        must_fill_random(&mut random);
        let (id, secret) = random.split_first_chunk().expect("8 bytes");
        let secret = secret.try_into().expect("32 bytes");
        let (id, info) = (u64::from_be_bytes(*id), volume.info());
        let unit = (&*info.naa, info.block_bytes);
        let bytes = token(id, secret, scsi::token::total(&ranges), unit);
        let timeout_ns = Nanos::from(timeout_s) * SECOND_NS;
        let watched = ranges.iter().map(|range| store::Range {
            offset: range.offset,
            len: range.len,
        });
        let made = RodToken {
            bytes: bytes.clone(),
            owner,
            volume: Arc::downgrade(volume),
            watch: Some(volume.base().watch(watched.collect())),
            ranges,
            timeout_ns,
            expires_at: now + timeout_ns,
        };
        self.due.fetch_min(made.expires_at, Ordering::AcqRel);
        table.made += 1;
        table.by_age.insert(table.made, id_of(&bytes));
        table.all.insert(id_of(&bytes), made);
        Ok(bytes)
    }

    /// What a token names, which is used with this.
    pub(super) fn named(&self, token: &Token, now: Nanos) -> Result<NamedRanges, Sense> {
        self.expire(now);
        let refused = |code| Sense::illegal(code);
        let mut table = self.table();
        let found = table.all.get_mut(&id_of(token));
        let found = found.filter(|found| *found.bytes == *token);
        let found = found.ok_or(refused(asc::TOKEN_UNKNOWN))?;
        let watch = found.watch.clone().ok_or(refused(asc::TOKEN_EXPIRED))?;
        let volume = found.volume.upgrade().filter(|_| !watch.has_changed());
        let volume = volume.ok_or(refused(asc::TOKEN_REVOKED))?;
        found.expires_at = now + found.timeout_ns;
        Ok(NamedRanges {
            volume,
            ranges: found.ranges.clone(),
            watch,
        })
    }

    /// A token is not needed any more.
    pub(super) fn remove(&self, token: &Token) {
        self.table().remove(id_of(token));
    }

    /// Ends those that were not used for long. What they name is not looked at any more.
    pub(super) fn expire(&self, now: Nanos) {
        if now < self.due.load(Ordering::Acquire) {
            return;
        }
        let table = &mut *self.table();
        machine::work::spend(table.all.len() as u64);
        let mut due = Nanos::MAX;
        table.all.retain(|_, token| {
            let is_over = token.expires_at <= now;
            if is_over {
                token.watch = None;
            }
            let until = token.expires_at + if is_over { REMEMBERED_NS } else { 0 };
            let is_kept = until > now;
            if is_kept {
                due = due.min(until);
            }
            is_kept
        });
        let all = &table.all;
        table.by_age.retain(|_, id| all.contains_key(id));
        self.due.store(due, Ordering::Release);
    }
}

impl Table {
    fn remove(&mut self, id: u64) {
        self.all.remove(&id);
        self.by_age.retain(|_, other| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use store::{Kind, Spec, open};

    use super::*;

    const ALICE: &str = "iqn.2004-01.org.example:alice";

    fn disk() -> Arc<dyn Volume> {
        open(&Spec::new("disk", Kind::RAM, 1 << 20, 512)).unwrap()
    }

    struct Tried {
        tokens: RodTokens,
        volume: Arc<dyn Volume>,
    }

    impl Tried {
        fn new() -> Tried {
            Tried {
                tokens: RodTokens::default(),
                volume: disk(),
            }
        }

        fn make(&self, owner: &str, now: Nanos) -> Result<Box<Token>, Sense> {
            let ranges = vec![Range {
                offset: 0,
                len: 4096,
            }];
            let owner = (owner.to_owned(), 60);
            self.tokens.make(&self.volume, ranges, owner, now)
        }

        fn code(&self, token: &Token, now: Nanos) -> Option<u16> {
            self.tokens.named(token, now).err().map(|sense| sense.code)
        }
    }

    #[test]
    fn token_lasts_as_long_as_it_is_used_and_what_it_names_does_not_change() {
        let tried = Tried::new();
        let [one, two] = [0, 0].map(|now| tried.make(ALICE, now).unwrap());
        assert_ne!(one, two);
        let at = |seconds: u64| seconds * SECOND_NS;
        assert_eq!(tried.code(&one, at(59)), None);
        assert_eq!(tried.code(&two, at(60)), Some(asc::TOKEN_EXPIRED));
        assert_eq!(tried.code(&one, at(118)), None);
        assert_eq!(tried.code(&one, at(178)), Some(asc::TOKEN_EXPIRED));
        assert_eq!(
            tried.code(&one, at(900)),
            Some(asc::TOKEN_UNKNOWN),
            "forgotten"
        );
        assert_eq!(tried.tokens.due.load(Ordering::Relaxed), u64::MAX);

        let three = tried.make(ALICE, at(900)).unwrap();
        let mut forged = three.clone();
        forged[511] ^= 1;
        assert_eq!(tried.code(&forged, at(900)), Some(asc::TOKEN_UNKNOWN));
        assert_eq!(tried.code(&three, at(900)), None);
        tried.volume.write_now(4096, &[1; 512]).unwrap().unwrap();
        assert_eq!(tried.code(&three, at(900)), None, "another range");
        tried.volume.write_now(3584, &[1; 512]).unwrap().unwrap();
        assert_eq!(tried.code(&three, at(900)), Some(asc::TOKEN_REVOKED));
        let four = tried.make(ALICE, at(900)).unwrap();
        tried.tokens.remove(&four);
        assert_eq!(tried.code(&four, at(900)), Some(asc::TOKEN_UNKNOWN));
    }

    #[test]
    fn token_keeps_no_volume_open() {
        let mut tried = Tried::new();
        let token = tried.make(ALICE, 0).unwrap();
        assert_eq!(Arc::strong_count(&tried.volume), 1);
        tried.volume = disk();
        assert_eq!(tried.code(&token, 0), Some(asc::TOKEN_REVOKED));
    }

    #[test]
    fn tokens_are_bounded_by_initiator_and_together() {
        let tried = Tried::new();
        let first = tried.make(ALICE, 0).unwrap();
        for _ in 0..OF_INITIATOR_MAX {
            tried.make(ALICE, 0).unwrap();
        }
        assert_eq!(
            tried.code(&first, 0),
            Some(asc::TOKEN_UNKNOWN),
            "its oldest"
        );
        for other in OF_INITIATOR_MAX..TOKENS_MAX {
            tried.make(&format!("{ALICE}{other}"), 0).unwrap();
        }
        let refused = tried.make("bob", 0).unwrap_err();
        assert_eq!(
            refused.code,
            asc::INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN
        );
        // One that has its share may make another, in the place of its own.
        tried.make(ALICE, 0).unwrap();
    }

    #[test]
    fn tokens_that_are_over_keep_no_initiator_from_making_one() {
        let end: [fn(&mut Tried) -> Nanos; 3] = [
            |_| 60 * SECOND_NS,
            |tried| {
                tried.volume.write_now(0, &[1; 512]).unwrap().unwrap();
                0
            },
            |tried| {
                tried.volume = disk();
                0
            },
        ];
        for end in end {
            let mut tried = Tried::new();
            for number in 0..TOKENS_MAX {
                tried.make(&format!("{ALICE}{number}"), 0).unwrap();
            }
            tried.make("bob", 0).unwrap_err();
            let now = end(&mut tried);
            let token = tried.make("bob", now).unwrap();
            assert_eq!(tried.code(&token, now), None);
            assert_eq!(tried.tokens.table().all.len(), TOKENS_MAX);
        }
    }
}
