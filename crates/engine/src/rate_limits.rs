//! Limits of what hosts may read and write in a second: which there are, for what they hold, and
//! what has been taken of them. All reactors see the same ones, whichever protocol an I/O comes
//! by.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use faults::Fault;
use machine::{Nanos, locked};
use store::meter::IoOp;
use store::token_bucket::{TokenBucket, TokenRate};

use crate::hosts::{HostName, network};

/// Tokens of an I/O, so that one in a second comes in parts.
const IO_TOKENS: u64 = 64;

/// What has gone within a floor others wait for no longer than this.
const FLOOR_DEBT_MAX: Nanos = 1_000_000_000;

/// How much in a second; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Reads and writes together.
    pub iops: Option<u64>,
    /// Reads.
    pub read_iops: Option<u64>,
    /// Writes.
    pub write_iops: Option<u64>,
    /// Bytes of both together.
    pub bytes: Option<u64>,
    /// Bytes read.
    pub read_bytes: Option<u64>,
    /// Bytes written.
    pub write_bytes: Option<u64>,
    /// What was not used stays for so many seconds.
    pub burst_s: u32,
    /// So many reads and writes wait for no other limit.
    pub floor_iops: Option<u64>,
    /// So many bytes of both wait for no other limit.
    pub floor_bytes: Option<u64>,
}

impl Rates {
    /// The most I/Os in a second that a limit may say.
    pub const IOPS_MAX: u64 = 1_000_000_000;
    /// The most bytes in a second that a limit may say.
    pub const BYTES_MAX: u64 = 64 << 30;
    /// The longest burst.
    pub const BURST_S_MAX: u32 = 3600;

    /// I/Os: all, reads, writes; then bytes likewise.
    fn maxima(&self) -> [Option<u64>; 6] {
        let tokens = |iops: Option<u64>| iops.map(|iops| iops.saturating_mul(IO_TOKENS));
        [
            tokens(self.iops),
            tokens(self.read_iops),
            tokens(self.write_iops),
            self.bytes,
            self.read_bytes,
            self.write_bytes,
        ]
    }

    /// I/Os, then bytes.
    fn floors(&self) -> [Option<u64>; 2] {
        let tokens = self.floor_iops.map(|iops| iops.saturating_mul(IO_TOKENS));
        [tokens, self.floor_bytes]
    }
}

/// One limit: how much in a second all together may read and write for which it holds. An I/O
/// counts against each limit that holds for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// What people call it.
    pub name: String,
    /// The volumes that it is about.
    pub volumes: Vec<String>,
    /// The exports that it is about, by path. Where it names neither volumes nor exports it is
    /// about all.
    pub exports: Vec<String>,
    /// The hosts whose I/O it is about: NQNs, iSCSI names, addresses of NFS clients. None: of
    /// all.
    pub hosts: Vec<String>,
    /// The listeners that it comes by, by number. None: by all.
    pub listeners: Vec<u16>,
    /// How much.
    pub rates: Rates,
}

/// What an I/O goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal<'a> {
    /// A volume, by name.
    Volume(&'a str),
    /// An export, by path.
    Export(&'a str),
}

impl RateLimit {
    fn holds_for(&self, host: &HostName, listener: u16, goal: Goal<'_>) -> bool {
        let names = |list: &[String], name: &str| list.iter().any(|known| known == name);
        let is_host = |known: &String| match host {
            HostName::Said(_, name) => known == name,
            HostName::Address(address) => {
                let known: Option<IpAddr> = known.parse().ok();
                known.is_some_and(|known| network(known) == *address)
            }
        };
        let is_goal = match goal {
            Goal::Volume(name) => names(&self.volumes, name),
            Goal::Export(path) => names(&self.exports, path),
        };
        (is_goal || self.volumes.is_empty() && self.exports.is_empty())
            && (self.hosts.is_empty() || self.hosts.iter().any(is_host))
            && (self.listeners.is_empty() || self.listeners.contains(&listener))
    }
}

/// What an I/O takes of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// A read or a write.
    pub op: IoOp,
    /// Bytes that it moves.
    pub bytes: u64,
}

impl Cost {
    /// The numbers of the maxima that hold for it, and what it takes of each.
    fn of_maxima(self) -> [(usize, u64); 4] {
        let own = match self.op {
            IoOp::Read => 1,
            _ => 2,
        };
        [
            (0, IO_TOKENS),
            (own, IO_TOKENS),
            (3, self.bytes),
            (3 + own, self.bytes),
        ]
    }
}

/// What has waited for a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// I/Os.
    pub ios: u64,
    /// How long they have waited together, nanoseconds.
    pub ns: u64,
}

/// A limit that holds.
#[derive(Debug)]
pub(crate) struct ActiveLimit {
    limit: RateLimit,
    maxima: [Option<TokenBucket>; 6],
    floors: [Option<TokenBucket>; 2],
    delays: Arc<[AtomicU64; 2]>,
}

/// The buckets at these rates; those that there were go on.
fn buckets<const N: usize>(
    rates: ([Option<u64>; N], u32),
    before: Option<&[Option<TokenBucket>; N]>,
    now: Nanos,
) -> [Option<TokenBucket>; N] {
    std::array::from_fn(|at| {
        let rate = TokenRate {
            per_second: rates.0[at]?,
            burst_s: rates.1,
        };
        let before = before.and_then(|before| before[at].as_ref());
        Some(match before {
            Some(before) => before.at_rate(rate, now),
            None => TokenBucket::new(rate, now),
        })
    })
}

impl ActiveLimit {
    fn new(limit: RateLimit, before: Option<&ActiveLimit>, now: Nanos) -> ActiveLimit {
        let rates = &limit.rates;
        let (maxima, floors) = (rates.maxima(), rates.floors());
        let of_maxima = before.map(|before| &before.maxima);
        let of_floors = before.map(|before| &before.floors);
        ActiveLimit {
            maxima: buckets((maxima, rates.burst_s), of_maxima, now),
            floors: buckets((floors, 0), of_floors, now),
            delays: before
                .map(|before| before.delays.clone())
                .unwrap_or_default(),
            limit,
        }
    }

    #[inline]
    fn buckets(&self, cost: Cost) -> impl Iterator<Item = (&TokenBucket, u64)> {
        let all = cost.of_maxima().into_iter();
        all.filter_map(|(at, tokens)| Some((self.maxima[at].as_ref()?, tokens)))
    }

    /// Whether an I/O may go now.
    #[inline]
    fn is_open(&self, cost: Cost, now: Nanos) -> bool {
        self.buckets(cost).all(|(bucket, _)| bucket.is_open(now))
    }

    /// Those of the floor, and what an I/O takes of each.
    #[inline]
    fn floors(&self, cost: Cost) -> impl Iterator<Item = (&TokenBucket, u64)> {
        let all = self.floors.iter().zip([IO_TOKENS, cost.bytes]);
        all.filter_map(|(floor, tokens)| Some((floor.as_ref()?, tokens)))
    }

    /// Whether an I/O that comes now is within the floor; not where there is none.
    fn is_within_floor(&self, now: Nanos) -> bool {
        let mut floors = self.floors.iter().flatten().peekable();
        floors.peek().is_some() && floors.all(|floor| floor.is_open(now))
    }

    /// An I/O goes at once: it counts as one within the floor, if it is.
    #[inline]
    fn take_floor(&self, cost: Cost, now: Nanos) {
        for (floor, tokens) in self.floors(cost) {
            if floor.is_open(now) {
                floor.take(tokens, now);
            }
        }
    }

    fn note_delay(&self, ns: Nanos) {
        for (cell, more) in self.delays.iter().zip([1, ns]) {
            cell.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// The limits that hold for an I/O.
pub(crate) type LimitList = [Arc<ActiveLimit>];

/// Whether an I/O goes at once; then it has taken what it takes.
#[inline]
pub(crate) fn try_take(limits: &LimitList, cost: Cost, now: Nanos) -> bool {
    let is_open = limits.iter().all(|limit| limit.is_open(cost, now));
    if !is_open && !limits.iter().any(|limit| limit.is_within_floor(now)) {
        return false;
    }
    if faults::is(Fault::FreeIos) {
        return true;
    }
    match is_open {
        true => take(limits, cost, now),
        false => take_within_floor(limits, cost, now),
    }
    true
}

/// An I/O goes that must not wait: others wait longer for it.
#[inline]
pub(crate) fn take(limits: &LimitList, cost: Cost, now: Nanos) {
    for limit in limits {
        for (bucket, tokens) in limit.buckets(cost) {
            bucket.take(tokens, now);
        }
        limit.take_floor(cost, now);
    }
}

/// An I/O goes within a floor.
fn take_within_floor(limits: &LimitList, cost: Cost, now: Nanos) {
    for limit in limits {
        for (bucket, tokens) in limit.buckets(cost) {
            if bucket.opens_at() <= now + FLOOR_DEBT_MAX {
                bucket.take(tokens, now);
            }
        }
        limit.take_floor(cost, now);
    }
}

/// The place of an I/O in the line of one bucket.
#[derive(Debug)]
struct TokenPlace {
    limit: Arc<ActiveLimit>,
    bucket: TokenBucket,
    tokens: u64,
    place: u64,
}

/// The places of an I/O that waits, in the lines of all limits that hold for it. Dropped, it
/// leaves them to others.
#[derive(Debug)]
pub(crate) struct TokenPlaces {
    /// It waits for all of these,
    maxima: Vec<TokenPlace>,
    /// or for those of the floor of one limit.
    floors: Vec<TokenPlace>,
    cost: Cost,
}

impl TokenPlaces {
    /// In no line yet.
    pub(crate) fn new(cost: Cost) -> TokenPlaces {
        TokenPlaces {
            maxima: Vec::new(),
            floors: Vec::new(),
            cost,
        }
    }

    /// When the I/O may go under these limits; it stands in line at each that is new.
    pub(crate) fn goes_at(&mut self, limits: &LimitList, now: Nanos) -> Nanos {
        let cost = self.cost;
        stand(&mut self.maxima, limits, |limit| limit.buckets(cost), now);
        stand(&mut self.floors, limits, |limit| limit.floors(cost), now);
        let last = self.last().map_or(0, TokenPlace::comes_at);
        let floors = limits.iter().filter_map(|limit| {
            let own = self.floors.iter();
            let own = own.filter(|place| Arc::ptr_eq(&place.limit, limit));
            own.map(TokenPlace::comes_at).max()
        });
        floors.min().map_or(last, |floors| last.min(floors))
    }

    /// The place that is waited for longest.
    fn last(&self) -> Option<&TokenPlace> {
        self.maxima.iter().max_by_key(|place| place.comes_at())
    }

    /// It goes, after so long.
    pub(crate) fn go(mut self, now: Nanos, since: Nanos) {
        if let Some(last) = self.last() {
            last.limit.note_delay(now.saturating_sub(since));
        }
        let gone = |places: &mut Vec<TokenPlace>, until: Nanos| {
            for place in places.drain(..) {
                if place.comes_at() > until {
                    place.give_back();
                }
            }
        };
        gone(&mut self.maxima, now + FLOOR_DEBT_MAX);
        gone(&mut self.floors, now);
    }
}

/// Stands in line at the buckets that limits have, where it does not yet, and leaves those that
/// are theirs no more.
fn stand<'l, B: Iterator<Item = (&'l TokenBucket, u64)>>(
    places: &mut Vec<TokenPlace>,
    limits: &'l LimitList,
    buckets: impl Fn(&'l ActiveLimit) -> B,
    now: Nanos,
) {
    let mut before = std::mem::take(places);
    for limit in limits {
        for (bucket, tokens) in buckets(limit) {
            let kept = before.iter().position(|old| old.bucket.is_same(bucket));
            let place = match kept {
                Some(kept) => before.swap_remove(kept).place,
                None => bucket.take(tokens, now),
            };
            let (limit, bucket) = (limit.clone(), bucket.clone());
            places.push(TokenPlace {
                limit,
                bucket,
                tokens,
                place,
            });
        }
    }
    before.iter().for_each(TokenPlace::give_back);
}

impl TokenPlace {
    fn comes_at(&self) -> Nanos {
        self.bucket.comes_at(self.place)
    }

    fn give_back(&self) {
        self.bucket.give_back(self.tokens);
    }
}

impl Drop for TokenPlaces {
    fn drop(&mut self) {
        let all = self.maxima.iter().chain(&self.floors);
        all.for_each(TokenPlace::give_back);
    }
}

/// A limit as those see it who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitFigures {
    /// The limit.
    pub limit: RateLimit,
    /// What has waited for it.
    pub delays: Delays,
}

/// All limits of a server. They are swapped whole.
#[derive(Debug, Default)]
pub struct RateLimits {
    /// There are some, or things wait for some.
    is_used: AtomicBool,
    /// How often they were changed.
    generation: AtomicU64,
    limits: Mutex<Arc<LimitList>>,
}

impl RateLimits {
    /// Whether there have been any. Where there have been none an I/O looks at nothing else.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// These hold from now on. A limit that goes by the same name as before goes on: what has
    /// taken of it has, and what waits for it keeps its place.
    pub fn set(&self, limits: Vec<RateLimit>, now: Nanos) {
        let mut active = locked(&self.limits);
        let next = limits.into_iter().map(|limit| {
            let before = active.iter().find(|before| before.limit.name == limit.name);
            Arc::new(ActiveLimit::new(limit, before.map(|before| &**before), now))
        });
        let next: Arc<LimitList> = next.collect();
        if next.is_empty() && active.is_empty() {
            return;
        }
        *active = next;
        self.generation.fetch_add(1, Ordering::Release);
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Those that hold for what a host does by a listener to a goal.
    pub(crate) fn of(
        &self,
        host: &HostName,
        listener: u16,
        goal: Goal<'_>,
    ) -> Vec<Arc<ActiveLimit>> {
        let active = locked(&self.limits).clone();
        let own = active.iter();
        let own = own.filter(|active| active.limit.holds_for(host, listener, goal));
        own.cloned().collect()
    }

    /// All, and what has waited for them.
    pub fn figures(&self) -> Vec<LimitFigures> {
        let active = locked(&self.limits).clone();
        let figures = active.iter().map(|active| {
            let [ios, ns] = [0, 1].map(|at| active.delays[at].load(Ordering::Relaxed));
            LimitFigures {
                limit: active.limit.clone(),
                delays: Delays { ios, ns },
            }
        });
        figures.collect()
    }
}

#[cfg(test)]
mod tests;
