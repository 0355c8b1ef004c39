//! What peers are refused, and how volumes fail them: counted, and logged so
//! that no peer fills the log. The first of a peer and reason is logged at
//! once, the others are counted and told once a minute. So are peers that come
//! and go.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use machine::{Nanos, locked};

use crate::hosts::network;
use crate::last_refusals::{LastRefusal, LastRefusals, Remedy};

/// How often repetitions are told.
const TELL_INTERVAL: Nanos = 60_000_000_000;
/// Lines of one interval at most, for those that are logged at once,
const LINES_MAX: usize = 128;
/// of those so many about one address,
const LINES_OF_ADDRESS_MAX: usize = 8;
/// and so many for repetitions.
const REPEATED_LINES_MAX: usize = 16;
/// of those so many of one sort: of one kind, with a reason that begins alike,
const LINES_OF_SORT_MAX: usize = 32;
/// Different refusals that are told apart,
const KEYS_MAX: usize = 512;
/// of those so many of one sort: what is beyond is told without what a peer has chosen.
const KEYS_OF_SORT_MAX: usize = 64;
/// What has not happened for so many intervals is new when it happens again.
const QUIET_INTERVALS_MAX: u32 = 10;

/// What was refused, as the log says it. Protocols have kinds of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusalKind(pub &'static str);

impl RefusalKind {
    /// A connection that was accepted, before a byte of it was read.
    pub const CONNECTION: RefusalKind = RefusalKind("connection refused");
    /// TLS with a peer comes not about, or ends.
    pub const TLS: RefusalKind = RefusalKind("TLS refused");
    /// A connection that is served ends.
    pub const END: RefusalKind = RefusalKind("connection ended");
    /// A command that finds no room.
    pub const COMMAND: RefusalKind = RefusalKind("command refused");
    /// A command that changes what is served or reserved could not be done.
    pub const CHANGE: RefusalKind = RefusalKind("change failed");
    /// A volume failed: no refusal.
    pub const VOLUME: RefusalKind = RefusalKind("I/O failed");
}

impl RefusalKind {
    /// The event that it is.
    fn event(self) -> &'static str {
        match self {
            RefusalKind::VOLUME => "volume-error",
            RefusalKind::END => "connection-ended",
            _ => "refused",
        }
    }
}

impl Display for RefusalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One refusal, as the log tells it.
#[derive(Clone, Copy)]
pub struct Refusal<'a> {
    /// What was refused.
    pub kind: RefusalKind,
    /// Where it came from.
    pub peer: Option<SocketAddr>,
    /// What the peer calls itself: a host NQN, the name of an initiator.
    pub host: Option<&'a str>,
    /// The subsystem or the iSCSI target that was meant.
    pub target: Option<&'a str>,
    /// The volume that failed.
    pub volume: Option<&'a str>,
    /// Why, in words that are the same each time.
    pub reason: &'a dyn Display,
    /// What of the configuration would let the peer in.
    pub remedy: Remedy,
}

impl<'a> Refusal<'a> {
    /// One that names no peer, host, target or volume yet: for struct update syntax.
    pub fn new(kind: RefusalKind, reason: &'a dyn Display) -> Self {
        Refusal {
            kind,
            peer: None,
            host: None,
            target: None,
            volume: None,
            reason,
            remedy: Remedy::None,
        }
    }
}

/// What makes two refusals the same to the log. A peer may have a new port each
/// time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    address: Option<IpAddr>,
    kind: RefusalKind,
    host: Option<String>,
    target: Option<String>,
    volume: Option<String>,
    reason: String,
}

impl Key {
    fn of(refusal: &Refusal<'_>) -> Key {
        Key {
            address: refusal.peer.map(|peer| network(peer.ip())),
            kind: refusal.kind,
            host: refusal.host.map(str::to_owned),
            target: refusal.target.map(str::to_owned),
            volume: refusal.volume.map(str::to_owned),
            reason: refusal.reason.to_string(),
        }
    }

    /// Of the same sort.
    fn is_same_sort(&self, other: &Key) -> bool {
        (self.kind, self.constant_words()) == (other.kind, other.constant_words())
    }

    /// The reason as far as the target chooses its words: numbers and what is quoted
    /// may be the peer's.
    fn constant_words(&self) -> &str {
        let may_be_of_peer = |c: char| c == '`' || c == '"' || c.is_ascii_digit();
        self.reason.split(may_be_of_peer).next().unwrap_or_default()
    }

    /// The same of any peer.
    fn of_any_peer(&self) -> Key {
        Key {
            address: None,
            host: None,
            target: None,
            reason: self.constant_words().trim_end().to_owned(),
            ..self.clone()
        }
    }
}

/// Of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// That the log does not know of.
    untold: u64,
    /// Intervals since the last one.
    quiet_intervals: u32,
}

/// What is to be written about repetitions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Repetitions {
    /// The most frequent ones and how often, most frequent first.
    repeated: Vec<(Key, u64)>,
    /// All others.
    others: u64,
    /// Peers that came or went.
    arrivals: u64,
}

#[derive(Default)]
struct RefusalTable {
    times: BTreeMap<Key, Times>,
    /// What the lines of this interval are about.
    lines: Vec<Key>,
    /// That happened while there was no room for their keys.
    without_key: u64,
    /// The addresses of the lines of this interval about peers that come and go.
    arrivals: Vec<Option<IpAddr>>,
    /// Peers that came or went without a line.
    arrivals_untold: u64,
    /// When repetitions are told next.
    tell_at: Nanos,
    /// How many there were of each kind.
    of_kind: BTreeMap<RefusalKind, u64>,
}

impl RefusalTable {
    /// Counts so many more; whether one is to be logged now.
    fn note(&mut self, key: Key, times: u64) -> bool {
        let is_new = !self.times.contains_key(&key);
        let logs = is_new && self.take_line(&key);
        let untold = times - u64::from(logs);
        let Some(key) = self.place_for(key, is_new) else {
            self.without_key += untold;
            return logs;
        };
        let of_key = self.times.entry(key).or_default();
        of_key.untold += untold;
        of_key.quiet_intervals = 0;
        logs
    }

    /// Takes one of the lines of an interval, if there is one left for the address and
    /// for the sort.
    fn take_line(&mut self, key: &Key) -> bool {
        let count =
            |is_one: &dyn Fn(&Key) -> bool| self.lines.iter().filter(|one| is_one(one)).count();
        let has_room = self.lines.len() < LINES_MAX
            && count(&|one| one.address == key.address) < LINES_OF_ADDRESS_MAX
            && count(&|one| one.is_same_sort(key)) < LINES_OF_SORT_MAX;
        if has_room {
            self.lines.push(key.clone());
        }
        has_room
    }

    /// Under which key it is counted; `None` where none is left.
    fn place_for(&mut self, key: Key, is_new: bool) -> Option<Key> {
        if !is_new {
            return Some(key);
        }
        let of_sort = self
            .times
            .keys()
            .filter(|one| one.is_same_sort(&key))
            .count();
        let key = match of_sort < KEYS_OF_SORT_MAX {
            true => key,
            false => key.of_any_peer(),
        };
        if self.times.len() >= KEYS_MAX && !self.times.contains_key(&key) {
            // What is told and has not happened since gives way.
            let quiet = self.times.iter().filter(|(_, times)| times.untold == 0);
            let quiet = quiet
                .max_by_key(|(_, times)| times.quiet_intervals)?
                .0
                .clone();
            self.times.remove(&quiet);
        }
        Some(key)
    }

    /// A peer comes or goes: whether it is to be logged now.
    fn note_arrival(&mut self, address: Option<IpAddr>) -> bool {
        let of_address = self.arrivals.iter().filter(|one| **one == address).count();
        let logs = self.arrivals.len() < LINES_MAX && of_address < LINES_OF_ADDRESS_MAX;
        if logs {
            self.arrivals.push(address);
        }
        self.arrivals_untold += u64::from(!logs);
        logs
    }

    fn has_untold(&self) -> bool {
        self.without_key > 0
            || self.arrivals_untold > 0
            || self.times.values().any(|times| times.untold > 0)
    }

    /// An interval ends: what is to be told of it.
    fn take_untold(&mut self) -> Repetitions {
        self.lines.clear();
        self.arrivals.clear();
        let mut repeated = Vec::new();
        self.times.retain(|key, times| {
            match std::mem::take(&mut times.untold) {
                0 => times.quiet_intervals += 1,
                count => repeated.push((key.clone(), count)),
            }
            times.quiet_intervals <= QUIET_INTERVALS_MAX
        });
        repeated.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let rest = repeated.split_off(repeated.len().min(REPEATED_LINES_MAX));
        let rest: u64 = rest.iter().map(|(_, count)| count).sum();
        Repetitions {
            repeated,
            others: rest + std::mem::take(&mut self.without_key),
            arrivals: std::mem::take(&mut self.arrivals_untold),
        }
    }
}

/// What all peers were refused, on all reactors.
#[derive(Default)]
pub struct Refusals {
    table: Mutex<RefusalTable>,
    last: Mutex<LastRefusals>,
}

impl Refusals {
    fn table(&self) -> MutexGuard<'_, RefusalTable> {
        locked(&self.table)
    }

    /// How many there were of each kind; failures of volumes are none.
    pub fn of_kinds(&self) -> Vec<(RefusalKind, u64)> {
        let table = self.table();
        table.of_kind.iter().map(|(kind, n)| (*kind, *n)).collect()
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.of_kinds().iter().map(|(_, times)| times).sum()
    }

    /// There is one more. Off the way of an I/O that succeeds: takes a lock.
    #[cold]
    pub fn note(&self, refusal: Refusal<'_>) {
        self.note_times(refusal, 1);
    }

    /// There are so many more, at least one.
    pub fn note_times(&self, refusal: Refusal<'_>, times: u64) {
        // Names and reasons are written out before a lock is taken.
        let key = Key::of(&refusal);
        if refusal.kind != RefusalKind::VOLUME {
            let last = LastRefusal::of(&refusal, &key.reason, times);
            locked(&self.last).note(last);
        }
        let mut table = self.table();
        if refusal.kind != RefusalKind::VOLUME {
            *table.of_kind.entry(refusal.kind).or_default() += times;
        }
        let is_logged = table.note(key, times);
        drop(table);
        if is_logged {
            let Refusal {
                kind,
                peer,
                host,
                target,
                volume,
                reason,
                remedy: _,
            } = refusal;
            let peer = peer.map(tracing::field::display);
            // As text it is quoted: a peer may have chosen some of it.
            let reason = reason.to_string();
            let event = kind.event();
            tracing::warn!(event, peer, host, target, volume, reason, "{kind}");
        }
    }

    /// The last ones that differ, the latest at the end.
    pub fn last(&self) -> Vec<LastRefusal> {
        locked(&self.last).list()
    }

    /// Whether there were more than [`Refusals::last`] has.
    pub fn has_forgotten(&self) -> bool {
        locked(&self.last).has_forgotten()
    }

    /// Counts more refusals of which only the number is known.
    pub fn note_unnamed(&self, kind: RefusalKind, times: u64) {
        let mut table = self.table();
        *table.of_kind.entry(kind).or_default() += times;
        table.without_key += times;
    }

    /// A peer from this address comes or goes: whether that is to be logged now.
    pub fn tells_arrival(&self, address: Option<IpAddr>) -> bool {
        let address = address.map(network);
        self.table().note_arrival(address)
    }

    /// Counts more peers that came or went, of which only the number is known.
    pub fn note_arrivals(&self, times: u64) {
        self.table().arrivals_untold += times;
    }

    /// Whether something happened that the log does not know of.
    pub fn has_untold(&self) -> bool {
        self.table().has_untold()
    }

    /// Tells repetitions, once an interval.
    pub fn tick(&self, now: Nanos) {
        let mut table = self.table();
        if now < table.tell_at {
            return;
        }
        table.tell_at = now + TELL_INTERVAL;
        let told = table.take_untold();
        drop(table);
        told.log();
    }

    /// Tells what is untold: the target ends.
    pub fn end(&self) {
        let told = self.table().take_untold();
        told.log();
    }
}

impl Repetitions {
    fn log(&self) {
        for (key, count) in &self.repeated {
            let address = key.address.map(tracing::field::display);
            let (kind, reason) = (key.kind, &*key.reason);
            let (host, target) = (key.host.as_deref(), key.target.as_deref());
            let volume = key.volume.as_deref();
            let event = kind.event();
            tracing::warn!(
                event,
                address,
                host,
                target,
                volume,
                reason,
                count,
                "{kind} again"
            );
        }
        if self.others > 0 {
            let count = self.others;
            let told = "as many more refusals and failures, of many kinds";
            tracing::warn!(event = "refused", count, "{told}");
        }
        if self.arrivals > 0 {
            let count = self.arrivals;
            tracing::info!(
                event = "came-or-went",
                count,
                "as many more peers came or went"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: u8, reason: &str) -> Key {
        Key::of(&Refusal {
            peer: Some(SocketAddr::from(([10, 0, 0, address], 4420))),
            ..Refusal::new(RefusalKind::END, &reason)
        })
    }

    #[test]
    fn repeated_refusal_is_logged_once_and_counted() {
        let mut table = RefusalTable::default();
        let logged = (0..3000)
            .filter(|_| table.note(key(1, "bad PDU"), 1))
            .count();
        assert_eq!(logged, 1);
        assert!(table.note(key(2, "bad PDU"), 1) && table.note(key(1, "other"), 1));
        assert!(table.has_untold());
        let told = table.take_untold();
        assert_eq!(told.repeated, [(key(1, "bad PDU"), 2999)]);
        assert_eq!(told.others, 0);
        assert!(!table.has_untold());
        assert_eq!(table.take_untold(), Repetitions::default());
    }

    #[test]
    fn refusals_from_two_ports_of_an_address_are_the_same() {
        let of = |port| {
            Key::of(&Refusal {
                peer: Some(SocketAddr::from(([10, 0, 0, 1], port))),
                ..Refusal::new(RefusalKind::CONNECTION, &"no such subsystem")
            })
        };
        let mut table = RefusalTable::default();
        assert!(table.note(of(1), 1) && !table.note(of(2), 1));
    }

    /// Names and reasons are the peer's to choose: one address has few lines, and
    /// others still have theirs.
    #[test]
    fn address_with_many_reasons_leaves_lines_to_others() {
        let mut table = RefusalTable::default();
        let note = |table: &mut RefusalTable, address, n: usize| {
            table.note(key(address, &n.to_string()), 1)
        };
        let logged = (0..3000).filter(|n| note(&mut table, 1, *n)).count();
        assert_eq!(logged, LINES_OF_ADDRESS_MAX);
        assert!(table.times.len() <= KEYS_MAX);
        assert!(table.note(key(2, "bad PDU"), 1), "though no key is free");
        let told = table.take_untold();
        assert_eq!(told.repeated.len(), REPEATED_LINES_MAX);
        let counted: u64 = told.repeated.iter().map(|(_, count)| count).sum();
        assert_eq!(counted + told.others, 3000 - LINES_OF_ADDRESS_MAX as u64);
    }

    #[test]
    fn many_addresses_share_the_lines_of_an_interval() {
        let mut table = RefusalTable::default();
        let reason = |n: u8, m: u8| format!("{} of {m}", char::from(b'a' + n / 16));
        let all = (0..=255u8).flat_map(|n| (0..2).map(move |m| (n, reason(n, m))));
        let logged = all.filter(|(n, m)| table.note(key(*n, m), 1)).count();
        assert_eq!(logged, LINES_MAX);
        table.take_untold();
        assert!(!table.note(key(0, &reason(0, 0)), 1), "known before");
        assert!(table.note(key(0, "something new"), 1));
    }

    #[test]
    fn refusals_of_one_sort_from_many_addresses_leave_lines_to_other_sorts() {
        let mut table = RefusalTable::default();
        let of = |n: u32, reason: &str| {
            Key::of(&Refusal {
                peer: Some(SocketAddr::from((n.to_be_bytes(), 4420))),
                ..Refusal::new(RefusalKind::CHANGE, &reason)
            })
        };
        for _ in 0..3 {
            for n in 0..2000 {
                table.note(of(n, "wrong secret"), 1);
            }
            assert_eq!(table.times.len(), KEYS_OF_SORT_MAX + 1);
        }
        assert!(table.note(of(9, "no such target"), 1));
        for _ in 0..19 {
            assert!(!table.note(of(9, "no such target"), 1));
        }
        let told = table.take_untold();
        let count = |key: &Key| {
            told.repeated
                .iter()
                .find(|(one, _)| one == key)
                .map(|of| of.1)
        };
        assert_eq!(count(&of(9, "no such target")), Some(19));
        let others = 3 * (2000 - KEYS_OF_SORT_MAX);
        assert_eq!(
            count(&of(0, "wrong secret").of_any_peer()),
            Some(others as u64)
        );
    }

    #[test]
    fn words_that_peers_choose_leave_lines_and_keys_to_others() {
        let mut table = RefusalTable::default();
        for n in 0..4000_u16 {
            let [a, b] = (n / 20).to_be_bytes();
            let (target, reason) = (format!("iqn.{n}"), format!("InitiatorName is `{n}`: wrong"));
            let key = Key::of(&Refusal {
                peer: Some(SocketAddr::from(([10, 0, a, b], 3260))),
                target: Some(&target),
                ..Refusal::new(RefusalKind::CHANGE, &reason)
            });
            table.note(key, 1);
        }
        assert_eq!(table.lines.len(), LINES_OF_SORT_MAX);
        assert_eq!(table.times.len(), KEYS_OF_SORT_MAX + 1);
        assert!(table.note(key(7, "bad PDU"), 1) && !table.note(key(7, "bad PDU"), 1));
        let told = table.take_untold();
        let (most, count) = &told.repeated[0];
        assert_eq!((&*most.reason, &most.target), ("InitiatorName is", &None));
        assert!(*count as usize >= 4000 - KEYS_OF_SORT_MAX - LINES_OF_SORT_MAX);
    }

    #[test]
    fn reason_with_words_of_a_peer_is_quoted() {
        use std::io::Write;
        use std::sync::{Arc, Mutex};
        #[derive(Clone, Default)]
        struct Log(Arc<Mutex<Vec<u8>>>);
        impl Write for Log {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), || {
            let refusals = Refusals::default();
            let reason = "it offers 5,\x1b[31m\n2026-01-01T00:00:00Z  INFO forged";
            refusals.note(Refusal::new(RefusalKind::CHANGE, &reason));
            refusals.note(Refusal::new(RefusalKind::CHANGE, &reason));
            refusals.end();
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 2, "{log}");
        assert!(!log.contains("\x1b[31m"), "{log}");
    }

    #[test]
    fn refusal_is_logged_again_after_quiet_intervals() {
        let mut table = RefusalTable::default();
        for turn in 0..2 {
            assert!(table.note(key(1, "bad PDU"), 1), "turn {turn}");
            for _ in 0..=QUIET_INTERVALS_MAX {
                assert_eq!(table.take_untold(), Repetitions::default());
            }
        }
    }

    #[test]
    fn reason_is_written_out_without_the_lock() {
        struct Reason<'a>(&'a Refusals);
        impl Display for Reason<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                assert!(self.0.table.try_lock().is_ok(), "others wait for it");
                f.write_str("busy")
            }
        }
        let refusals = Refusals::default();
        refusals.note(Refusal::new(RefusalKind::CONNECTION, &Reason(&refusals)));
        assert_eq!(refusals.total(), 1);
    }

    /// A peer that comes and goes without end leaves others their lines, of refusals
    /// too.
    #[test]
    fn peer_that_comes_and_goes_has_few_lines_and_is_counted() {
        let mut table = RefusalTable::default();
        let address = |n: u8| Some(IpAddr::from([10, 0, 0, n]));
        let logged = (0..3000).filter(|_| table.note_arrival(address(1))).count();
        assert_eq!(logged, LINES_OF_ADDRESS_MAX);
        assert!(table.note_arrival(address(2)));
        assert!(table.note(key(1, "bad PDU"), 1));
        assert!(table.has_untold());
        let told = table.take_untold();
        assert_eq!(told.arrivals, 3000 - LINES_OF_ADDRESS_MAX as u64);
        assert!(!table.has_untold());
        assert!(table.note_arrival(address(1)), "in the next interval");
    }

    #[test]
    fn refusals_of_which_only_the_number_is_known_are_counted() {
        let refusals = Refusals::default();
        refusals.note_unnamed(RefusalKind::END, 40);
        assert_eq!(refusals.total(), 40);
        assert_eq!(refusals.table().take_untold().others, 40);
    }

    #[test]
    fn failure_of_a_volume_is_no_refusal() {
        let refusals = Refusals::default();
        refusals.note(Refusal::new(RefusalKind::VOLUME, &"medium error"));
        assert_eq!(refusals.total(), 0);
        refusals.note(Refusal::new(RefusalKind::CONNECTION, &"busy"));
        assert_eq!(refusals.total(), 1);
    }
}
