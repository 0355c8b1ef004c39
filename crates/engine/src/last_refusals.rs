//! The last refusals, for an administrator who asks. What the log tells of them is apart
//! (`refusals`): it leaves out more, and forgets sooner.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::hosts::network;
use crate::refusals::{Refusal, RefusalKind};

/// Different refusals that are kept,
const KEPT_MAX: usize = 1000;
/// of those so many of one address: it leaves room to others.
const OF_ADDRESS_MAX: usize = 250;
/// Bytes of a text that are kept: a path of NFS has no more (RFC 1813, section 5.1.1).
const TEXT_BYTES_MAX: usize = 1024;

/// What of the configuration would let a peer in that is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing that is said of one peer.
    #[default]
    None,
    /// The target or export lists who may use it: the peer is to be in the list.
    ListPeer,
    /// The target has a secret, and the peer has not proved that it knows it.
    Secret,
    /// The export wants connections that are protected better than the peer's.
    Protection {
        /// The peer's is encrypted, and it has shown no certificate; else it is in the clear.
        has_tls: bool,
    },
}

/// A refusal, and how often it was repeated. A peer has chosen some of the texts: they are
/// bounded, and what a terminal does not print is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRefusal {
    /// When it happened first, in seconds since 1970.
    pub first_unix_s: u64,
    /// When it happened last.
    pub last_unix_s: u64,
    /// How often.
    pub count: u64,
    /// What was refused.
    pub kind: RefusalKind,
    /// Where it came from last.
    pub address: Option<IpAddr>,
    /// What the peer calls itself.
    pub host: Option<String>,
    /// The subsystem, target or export that was meant.
    pub target: Option<String>,
    /// Why.
    pub reason: String,
    /// What would let the peer in.
    pub remedy: Remedy,
}

impl LastRefusal {
    /// One that happens now, so many times.
    pub(crate) fn of(refusal: &Refusal<'_>, reason: &str, count: u64) -> LastRefusal {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_secs());
        let (host, target) = (refusal.host.map(printable), refusal.target.map(printable));
        let is_as_sent = host.as_deref() == refusal.host && target.as_deref() == refusal.target;
        LastRefusal {
            first_unix_s: now,
            last_unix_s: now,
            count,
            kind: refusal.kind,
            address: refusal.peer.map(|peer| peer.ip().to_canonical()),
            host,
            target,
            reason: printable(reason),
            // No configuration has such a name.
            remedy: match is_as_sent {
                true => refusal.remedy,
                false => Remedy::None,
            },
        }
    }

    /// Whether it is of a peer of this name, or of this address: those of a network count as
    /// one.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        let address = name.parse().ok().map(network);
        let is_host = |host: &String| host.eq_ignore_ascii_case(name) || *host == printable(name);
        self.host.as_ref().is_some_and(is_host)
            || (address.is_some() && self.address.map(network) == address)
    }

    /// What makes two the same.
    fn key(&self) -> LastKey {
        LastKey {
            address: self.address.map(network),
            kind: self.kind,
            host: self.host.clone(),
            target: self.target.clone(),
            reason: self.reason.clone(),
        }
    }
}

/// What makes two refusals the same: a machine has many addresses of IPv6, and a new port
/// each time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LastKey {
    address: Option<IpAddr>,
    kind: RefusalKind,
    host: Option<String>,
    target: Option<String>,
    reason: String,
}

/// The last ones that differ.
#[derive(Default)]
pub(crate) struct LastRefusals {
    /// With the number of the last time.
    kept: BTreeMap<LastKey, (u64, LastRefusal)>,
    noted: u64,
    /// Some gave way to others.
    has_forgotten: bool,
}

impl LastRefusals {
    /// One more, or one again. The one that was not repeated for longest gives way.
    pub fn note(&mut self, refusal: LastRefusal) {
        let key = refusal.key();
        self.noted += 1;
        if let Some((noted, known)) = self.kept.get_mut(&key) {
            *noted = self.noted;
            known.last_unix_s = refusal.last_unix_s;
            known.count += refusal.count;
            known.address = refusal.address;
            return;
        }
        let of_address = self.kept.keys().filter(|one| one.address == key.address);
        if of_address.count() >= OF_ADDRESS_MAX {
            self.drop_oldest(|one| one.address == key.address);
        } else if self.kept.len() >= KEPT_MAX {
            self.drop_oldest(|_| true);
        }
        self.kept.insert(key, (self.noted, refusal));
    }

    fn drop_oldest(&mut self, is_one: impl Fn(&LastKey) -> bool) {
        let all = self.kept.iter().filter(|(key, _)| is_one(key));
        let oldest = all.min_by_key(|(_, (noted, _))| *noted);
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            self.kept.remove(&oldest);
            self.has_forgotten = true;
        }
    }

    /// Whether some gave way to others.
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// The latest at the end.
    pub fn list(&self) -> Vec<LastRefusal> {
        let mut all: Vec<_> = self.kept.values().collect();
        all.sort_by_key(|(noted, _)| *noted);
        all.into_iter()
            .map(|(_, refusal)| refusal.clone())
            .collect()
    }
}

/// A text that a peer may have chosen: on one line, without what commands a terminal, and
/// bounded.
fn printable(text: &str) -> String {
    let mut printable = String::new();
    for c in text.chars() {
        let is_quote = matches!(c, '"' | '\'' | '\\');
        let room = TEXT_BYTES_MAX - printable.len();
        let escaped = c.escape_debug();
        let bytes = match is_quote {
            true => 1,
            false => escaped.clone().map(char::len_utf8).sum(),
        };
        if bytes > room {
            printable.push('…');
            break;
        }
        match is_quote {
            true => printable.push(c),
            false => printable.extend(escaped),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// Of an address, by a host that says this of itself.
    fn note(table: &mut LastRefusals, address: u32, host: &str) {
        let refusal = Refusal {
            peer: Some(SocketAddr::from((address.to_be_bytes(), 4420))),
            host: Some(host),
            remedy: Remedy::ListPeer,
            ..Refusal::new(RefusalKind::CONNECTION, &"not allowed")
        };
        table.note(LastRefusal::of(&refusal, "not allowed", 1));
    }

    fn bytes(table: &LastRefusals) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let all = table.kept.values().map(|(_, one)| one);
        all.map(|one| of(&one.host) + of(&one.target) + one.reason.len())
            .sum()
    }

    #[test]
    fn refusal_that_is_repeated_is_one_with_its_count_and_the_latest() {
        let mut table = LastRefusals::default();
        note(&mut table, 1, "a");
        note(&mut table, 1, "b");
        note(&mut table, 1, "a");
        let list = table.list();
        let told = list.iter().map(|one| (one.host.as_deref(), one.count));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(Some("b"), 1), (Some("a"), 2)],
            "the latest is at the end"
        );
        assert!(list.iter().all(|one| one.first_unix_s <= one.last_unix_s));
    }

    #[test]
    fn hundred_thousand_hostile_refusals_are_bounded_and_the_oldest_leave() {
        let mut table = LastRefusals::default();
        let long = "x".repeat(8000);
        for n in 0..100_000 {
            note(&mut table, n, &format!("{n} {long}"));
            assert!(table.kept.len() <= KEPT_MAX);
        }
        assert_eq!(table.kept.len(), KEPT_MAX);
        assert!(bytes(&table) <= KEPT_MAX * (TEXT_BYTES_MAX + 32));
        let list = table.list();
        for (one, n) in list.iter().zip(100_000 - KEPT_MAX..) {
            let host = one.host.as_deref().expect("named");
            assert!(host.starts_with(&format!("{n} ")), "{host}");
            assert_eq!(one.remedy, Remedy::None, "its name is cut");
        }
    }

    #[test]
    fn address_with_many_refusals_leaves_those_of_others() {
        let mut table = LastRefusals::default();
        note(&mut table, 7, "other");
        assert!(!table.has_forgotten());
        for n in 0..100_000 {
            note(&mut table, 8, &n.to_string());
        }
        assert_eq!(table.kept.len(), 1 + OF_ADDRESS_MAX);
        assert!(table.has_forgotten());
        let list = table.list();
        assert_eq!(list[0].host.as_deref(), Some("other"));
        assert_eq!(list[1].host.as_deref(), Some("99750"));
    }

    #[test]
    fn refusal_is_of_its_name_as_it_was_said_and_of_its_network() {
        let of = |address: &str, host: &str| {
            let refusal = Refusal {
                peer: Some(SocketAddr::new(address.parse().expect("an address"), 4420)),
                host: Some(host),
                ..Refusal::new(RefusalKind::TLS, &"no")
            };
            LastRefusal::of(&refusal, "no", 1)
        };
        let long = "\u{202e}".repeat(900);
        for name in ["nqn.a", "NQN.A", "192.0.2.1", "::ffff:192.0.2.1"] {
            assert!(of("::ffff:192.0.2.1", "nqn.a").is_of(name), "{name}");
        }
        assert!(of("192.0.2.1", &long).is_of(&long));
        assert!(of("2001:db8::1", "b").is_of("2001:db8::2"));
        for name in ["nqn.b", "192.0.2.2", ""] {
            assert!(!of("192.0.2.1", "nqn.a").is_of(name), "{name}");
        }
    }

    #[test]
    fn text_that_commands_a_terminal_is_escaped() {
        let text = "a\x1b[31m\n\u{9b}2J\u{202e}\u{7f} `b` \"c\" ü";
        assert_eq!(
            printable(text),
            "a\\u{1b}[31m\\n\\u{9b}2J\\u{202e}\\u{7f} `b` \"c\" ü"
        );
        let cut = printable(&"\x1b".repeat(1000));
        assert!(cut.len() <= TEXT_BYTES_MAX + 3 && cut.ends_with('…'));
        let mut table = LastRefusals::default();
        note(&mut table, 1, "nqn.\x1b");
        assert_eq!(table.list()[0].remedy, Remedy::None);
    }
}
