//! A rate, as tokens that come one after the other: what takes some may go when as many have
//! come. Threads share it without a lock, and no thread counts the time.
//!
//! All that has ever been taken is one number. What takes tokens gets its *place*, which is that
//! number, and may go when all tokens before its place have come. So what waits stands in a line,
//! whichever thread it is of. A place is counted in tokens and not in time: a rate that changes
//! moves all that wait, and forgets no debt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// Tokens that were not taken are kept so long at least: a thread that looks late takes what
/// came meanwhile. A window of a second has a hundredth too much at most for it.
const KEPT: Nanos = 10_000_000;

/// How many tokens come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRate {
    /// In a second: from 1 to 2^36. So neither more than four years without a take nor as long
    /// a debt goes round the count.
    pub per_second: u64,
    /// So many seconds' worth of them stay when nothing takes them.
    pub burst_s: u32,
}

/// Tokens that come at a rate.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: TokenRate,
    /// At this time so many had come.
    since: (Nanos, u64),
    /// As many stay when nothing takes them.
    kept: u64,
    /// All that was ever taken, modulo 2^64.
    taken: Arc<AtomicU64>,
}

impl TokenBucket {
    /// A full one.
    #[must_use]
    pub fn new(rate: TokenRate, now: Nanos) -> TokenBucket {
        let kept = kept(rate);
        TokenBucket {
            rate,
            since: (now, 0),
            kept,
            taken: Arc::new(AtomicU64::new(kept.wrapping_neg())),
        }
    }

    /// The same at another rate from now on: what waits keeps its place, what was taken stays
    /// taken.
    #[must_use]
    pub fn at_rate(&self, rate: TokenRate, now: Nanos) -> TokenBucket {
        // The part of a token that has come stays, however often the rate changes.
        let elapsed = u128::from(now.saturating_sub(self.since.0));
        let part = elapsed * u128::from(self.rate.per_second) % u128::from(SECOND);
        let ahead = (part / u128::from(rate.per_second)) as Nanos;
        TokenBucket {
            rate,
            since: (now.saturating_sub(ahead), self.come(now)),
            kept: kept(rate),
            taken: self.taken.clone(),
        }
    }

    /// Whether both are one, at whatever rates.
    #[must_use]
    pub fn is_same(&self, other: &TokenBucket) -> bool {
        Arc::ptr_eq(&self.taken, &other.taken)
    }

    /// All that have come, modulo 2^64.
    #[inline]
    fn come(&self, now: Nanos) -> u64 {
        let (since, come) = self.since;
        let elapsed = u128::from(now.saturating_sub(since));
        let more = elapsed * u128::from(self.rate.per_second) / u128::from(SECOND);
        come.wrapping_add(more as u64)
    }

    /// Whether what takes tokens now may go at once.
    #[inline]
    #[must_use]
    pub fn is_open(&self, now: Nanos) -> bool {
        self.has_come(self.taken.load(Relaxed), now)
    }

    /// Takes the next tokens: the place of what takes them.
    #[inline]
    pub fn take(&self, tokens: u64, now: Nanos) -> u64 {
        let oldest = self.come(now).wrapping_sub(self.kept);
        let before = self.advance(|taken| later(taken, oldest).wrapping_add(tokens));
        later(before, oldest)
    }

    #[inline]
    fn advance(&self, next: impl Fn(u64) -> u64) -> u64 {
        let advanced = (self.taken).fetch_update(Relaxed, Relaxed, |taken| Some(next(taken)));
        advanced.unwrap_or_else(|taken| taken)
    }

    /// What has taken tokens does not need them.
    pub fn give_back(&self, tokens: u64) {
        self.taken.fetch_sub(tokens, Relaxed);
    }

    /// Whether what has this place may go.
    #[inline]
    #[must_use]
    pub fn has_come(&self, place: u64, now: Nanos) -> bool {
        !is_later(place, self.come(now))
    }

    /// When it may.
    #[must_use]
    pub fn comes_at(&self, place: u64) -> Nanos {
        let (since, come) = self.since;
        let left = place.wrapping_sub(come);
        match is_later(place, come) {
            true => {
                let ns = u128::from(left) * u128::from(SECOND);
                let ns = ns.div_ceil(u128::from(self.rate.per_second));
                since.saturating_add(u64::try_from(ns).unwrap_or(Nanos::MAX))
            }
            false => since,
        }
    }

    /// When what takes tokens next may go.
    #[must_use]
    pub fn opens_at(&self) -> Nanos {
        self.comes_at(self.taken.load(Relaxed))
    }
}

fn kept(rate: TokenRate) -> u64 {
    let kept_ns = KEPT.max(u64::from(rate.burst_s) * SECOND);
    let kept = u128::from(rate.per_second) * u128::from(kept_ns) / u128::from(SECOND);
    kept as u64
}

/// Whether one count is behind another.
#[inline]
fn is_later(one: u64, other: u64) -> bool {
    one.wrapping_sub(other) as i64 > 0
}

#[inline]
fn later(one: u64, other: u64) -> u64 {
    match is_later(one, other) {
        true => one,
        false => other,
    }
}

#[cfg(test)]
mod tests;
