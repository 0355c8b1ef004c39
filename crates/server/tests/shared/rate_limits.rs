//! Limits of what is read and written in a second.

use server::{Change, RateLimit, Rates, Running};

/// So many seconds are longer than any test.
const LONG_S: u64 = 3_600;

/// A limit of as many bytes in a second as one I/O of so many takes for [`LONG_S`] seconds:
/// after the first no other goes.
pub fn one_of(bytes: u64) -> RateLimit {
    RateLimit {
        name: "a limit".to_owned(),
        rates: Rates {
            bytes: Some((bytes / LONG_S).max(1)),
            ..Rates::default()
        },
        ..RateLimit::default()
    }
}

/// These limits hold.
pub fn set(running: &Running, limits: &[RateLimit]) {
    let change = Change::SetRateLimits(limits.to_vec());
    running.change(change).expect("a change");
}

/// Commands that wait for limits now.
pub fn held_back(running: &Running) -> usize {
    let listed = running.connections(|_| true);
    assert_eq!(listed.silent, 0);
    let held_back = listed.list.iter().map(|one| one.base.held_back);
    held_back.sum()
}
