//! Secrets that are given out for a while, and limits by the clock.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::state::sha256;

/// Whether two digests are the same, in a time that does not tell where they differ.
pub(crate) fn are_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    let differing = pairs.fold(0, |differing, (one, other)| differing | (one ^ other));
    one.len() == other.len() && differing == 0
}

/// 256 bits that nobody guesses, as text.
///
/// # Errors
/// The kernel gives none.
pub fn make_secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What a secret stands for.
#[derive(Debug)]
struct GivenSecret<T> {
    /// What is read from memory opens nothing.
    digest: String,
    at: Instant,
    /// The user that it was given for.
    uid: u32,
    what: T,
}

/// What secrets stand for that were given out, the oldest first.
#[derive(Debug)]
pub(crate) struct Given<T> {
    entries: Vec<GivenSecret<T>>,
    /// Where there are more, the oldest goes of the user that has the most.
    count_max: usize,
    age_max: Duration,
}

impl<T> Given<T> {
    pub fn new(count_max: usize, age_max: Duration) -> Given<T> {
        Given {
            entries: Vec::new(),
            count_max,
            age_max,
        }
    }

    /// A new secret of a user for `what`.
    pub fn give(&mut self, what: T, uid: u32, now: Instant) -> io::Result<String> {
        self.forget_old(now);
        let secret = make_secret()?;
        if self.entries.len() == self.count_max {
            self.entries.remove(self.crowded());
        }
        self.entries.push(GivenSecret {
            digest: sha256(secret.as_bytes()),
            at: now,
            uid,
            what,
        });
        Ok(secret)
    }

    /// The oldest of the user that has the most: nobody pushes out what others have.
    fn crowded(&self) -> usize {
        let of = |uid| self.entries.iter().filter(|own| own.uid == uid).count();
        // Of several with as many, the one that is looked at last.
        let places = (0..self.entries.len()).rev();
        let most = places.max_by_key(|at| of(self.entries[*at].uid));
        most.unwrap_or_default()
    }

    /// What a secret stands for.
    pub fn find(&mut self, secret: &str, now: Instant) -> Option<&mut T> {
        let at = self.place(secret, now)?;
        Some(&mut self.entries[at].what)
    }

    /// The same, for the last time.
    pub fn take(&mut self, secret: &str, now: Instant) -> Option<T> {
        let at = self.place(secret, now)?;
        Some(self.entries.remove(at).what)
    }

    fn place(&mut self, secret: &str, now: Instant) -> Option<usize> {
        self.forget_old(now);
        let shown = sha256(secret.as_bytes());
        let mut known = self.entries.iter();
        known.position(|known| are_same(&known.digest, &shown))
    }

    fn forget_old(&mut self, now: Instant) {
        let age_max = self.age_max;
        self.entries
            .retain(|given| now.saturating_duration_since(given.at) < age_max);
    }
}

/// How often something happened since a while began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    began: Instant,
    pub count: u32,
}

impl Window {
    pub fn new(now: Instant) -> Window {
        Window {
            began: now,
            count: 0,
        }
    }

    /// Once more; how often it was in this `while_`.
    pub fn count(&mut self, while_: Duration, now: Instant) -> u32 {
        if self.is_over(while_, now) {
            *self = Window::new(now);
        }
        self.count = self.count.saturating_add(1);
        self.count
    }

    fn is_over(&self, while_: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= while_
    }
}

/// Wrong secrets by address.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    by_address: HashMap<IpAddr, Window>,
}

impl Failures {
    /// All addresses beyond this are counted as one.
    const ADDRESSES_MAX: usize = 1024;
    const WHILE: Duration = Duration::from_secs(60);

    /// Once more; how often it was in the last minute.
    pub fn count(&mut self, address: IpAddr, now: Instant) -> u32 {
        let mut address = server::network(address);
        if !self.by_address.contains_key(&address) && self.by_address.len() >= Self::ADDRESSES_MAX {
            self.by_address
                .retain(|_, window| !window.is_over(Self::WHILE, now));
            if self.by_address.len() >= Self::ADDRESSES_MAX {
                address = Ipv6Addr::UNSPECIFIED.into();
            }
        }
        let window = self.by_address.entry(address);
        let window = window.or_insert_with(|| Window::new(now));
        window.count(Self::WHILE, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn secret_is_good_until_it_is_taken_or_old_or_crowded_out() {
        let now = Instant::now();
        let mut given = Given::new(2, MINUTE);
        let [one, two] = ["one", "two"].map(|what| given.give(what, 1, now).expect("random"));
        assert_eq!((one.len(), one == two), (64, false));
        assert_eq!(given.find(&one, now), Some(&mut "one"));
        assert_eq!(given.take(&one, now), Some("one"));
        assert_eq!(given.take(&one, now), None);
        assert_eq!(given.find("", now), None);
        let later = now + MINUTE / 2;
        given.give("three", 1, later).expect("random");
        given.give("four", 1, later).expect("random");
        assert_eq!(given.find(&two, later), None, "crowded out");
        let five = given.give("five", 1, later).expect("random");
        assert_eq!(given.find(&five, now + MINUTE), Some(&mut "five"));
        assert_eq!(given.find(&five, later + MINUTE), None);
        assert!(given.entries.is_empty());
    }

    #[test]
    fn user_with_many_secrets_crowds_out_its_own_oldest_alone() {
        let now = Instant::now();
        let mut given = Given::new(4, MINUTE);
        let other = given.give("of another", 1, now).expect("random");
        let own: Vec<_> = (0..8)
            .map(|_| given.give("own", 2, now).expect("random"))
            .collect();
        assert_eq!(given.find(&other, now), Some(&mut "of another"));
        let kept = own.iter().filter(|own| given.find(own, now).is_some());
        assert_eq!(kept.count(), 3);
        assert!(given.find(&own[7], now).is_some(), "the latest stay");
    }

    #[test]
    fn failures_are_counted_by_address_in_bounded_memory() {
        let now = Instant::now();
        let mut failures = Failures::default();
        let of = |number: u32| IpAddr::from(number.to_be_bytes());
        assert_eq!(failures.count(of(1), now), 1);
        assert_eq!(failures.count(of(1), now), 2);
        let one: IpAddr = "2001:db8::1".parse().expect("an address");
        let two: IpAddr = "2001:db8::2".parse().expect("an address");
        assert_eq!((failures.count(one, now), failures.count(two, now)), (1, 2));
        for number in 2..10_000 {
            failures.count(of(number), now);
        }
        assert_eq!(failures.by_address.len(), Failures::ADDRESSES_MAX + 1);
        assert!(failures.count(of(9_999), now) > 8_000);
        assert_eq!(failures.count(of(1), now), 3);
        assert_eq!(failures.count(of(1), now + MINUTE), 1);
        assert_eq!(failures.count(of(9_999), now + MINUTE), 1);
    }
}
