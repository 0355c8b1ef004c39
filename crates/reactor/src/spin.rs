//! When to spin and when to sleep: pure policy, fed with times.
//!
//! A wait begins when a turn finds nothing to do and ends with the next event.
//! Spinning through a short wait saves a wake-up; spinning before a long one
//! burns a core for nothing. So the recent waits decide: if most of them were
//! short, spin somewhat longer than the longest of those, else sleep at once.

use crate::sys::Nanos;

/// Waits that are remembered.
const WAITS: usize = 32;
/// This many of them must have been short for spinning to pay off.
const SHORT_WAITS_MIN: usize = 20;
/// What a sleep adds to the wait that is seen: the wake-up itself.
const WAKE_UP_NS: Nanos = 20_000;
/// Spinning less than this is not worth deciding about.
const SPIN_NS_MIN: Nanos = 5_000;

/// What to do with a turn that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look again at once.
    Spin,
    /// Sleep in the kernel.
    Sleep,
}

/// Learns from recent waits whether spinning pays off.
#[derive(Clone, Debug)]
pub struct Spin {
    max_ns: Nanos,
    waits: [Nanos; WAITS],
    next: usize,
    /// Start of the wait that is under way.
    since: Option<Nanos>,
    slept: bool,
    limit_ns: Nanos,
}

impl Spin {
    /// Spins `max_ns` at most; 0 never spins, `Nanos::MAX` never sleeps.
    pub fn new(max_ns: Nanos) -> Spin {
        Spin {
            max_ns,
            waits: [Nanos::MAX; WAITS],
            next: 0,
            since: None,
            slept: false,
            limit_ns: if max_ns == Nanos::MAX { max_ns } else { 0 },
        }
    }

    /// A turn found work.
    #[inline]
    pub fn worked(&mut self, now: Nanos) {
        if let Some(since) = self.since.take() {
            self.learn(now.saturating_sub(since));
        }
    }

    /// A turn found nothing.
    #[inline]
    pub fn idle(&mut self, now: Nanos) -> Decision {
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) < self.limit_ns {
            return Decision::Spin;
        }
        if self.limit_ns == Nanos::MAX {
            return Decision::Spin;
        }
        self.slept = true;
        Decision::Sleep
    }

    fn learn(&mut self, mut wait_ns: Nanos) {
        if std::mem::take(&mut self.slept) {
            wait_ns = wait_ns.saturating_sub(WAKE_UP_NS);
        }
        if self.max_ns == Nanos::MAX {
            return;
        }
        self.waits[self.next] = wait_ns;
        self.next = (self.next + 1) % WAITS;
        let mut short = 0;
        let mut longest = 0;
        for &wait in &self.waits {
            if wait <= self.max_ns {
                short += 1;
                longest = wait.max(longest);
            }
        }
        self.limit_ns = if short >= SHORT_WAITS_MIN {
            (longest * 2).max(SPIN_NS_MIN).min(self.max_ns)
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = 1000;

    struct World {
        spin: Spin,
        now: Nanos,
        spun_ns: Nanos,
        sleeps: u32,
    }

    impl World {
        fn new(max_us: Nanos) -> World {
            World {
                spin: Spin::new(max_us * US),
                now: 1_000_000,
                spun_ns: 0,
                sleeps: 0,
            }
        }

        /// An event after `gap` ns of nothing; a sleep makes it later.
        fn wait(&mut self, gap: Nanos) {
            let event = self.now + gap;
            while self.now < event {
                match self.spin.idle(self.now) {
                    Decision::Spin => {
                        self.now += 100;
                        self.spun_ns += 100;
                    }
                    Decision::Sleep => {
                        self.sleeps += 1;
                        self.now = event + WAKE_UP_NS;
                    }
                }
            }
            self.spin.worked(self.now);
        }
    }

    #[test]
    fn a_ping_pong_stays_in_the_spin() {
        let mut world = World::new(50);
        for _ in 0..WAITS {
            world.wait(7 * US);
        }
        world.sleeps = 0;
        for _ in 0..1000 {
            world.wait(7 * US);
        }
        assert_eq!(world.sleeps, 0);
    }

    #[test]
    fn one_long_wait_does_not_end_the_spin() {
        let mut world = World::new(50);
        for _ in 0..WAITS {
            world.wait(7 * US);
        }
        world.wait(900 * US);
        world.sleeps = 0;
        for _ in 0..100 {
            world.wait(7 * US);
        }
        assert_eq!(world.sleeps, 0);
    }

    #[test]
    fn even_events_beyond_the_limit_are_slept_through() {
        let mut world = World::new(50);
        for _ in 0..WAITS {
            world.wait(7 * US);
        }
        for _ in 0..WAITS {
            world.wait(100 * US);
        }
        (world.sleeps, world.spun_ns) = (0, 0);
        for _ in 0..1000 {
            world.wait(100 * US);
        }
        assert_eq!((world.sleeps, world.spun_ns), (1000, 0));
    }

    #[test]
    fn short_waits_among_long_ones_do_not_keep_the_spin() {
        let mut world = World::new(50);
        for _ in 0..WAITS {
            world.wait(2 * US);
            world.wait(98 * US);
        }
        world.spun_ns = 0;
        for _ in 0..1000 {
            world.wait(2 * US);
            world.wait(98 * US);
        }
        assert!(world.spun_ns < 1000 * 20 * US, "spun {}", world.spun_ns);
    }

    #[test]
    fn idle_sleeps_and_load_brings_the_spin_back() {
        let mut world = World::new(50);
        for _ in 0..WAITS {
            world.wait(1_000_000 * US);
        }
        world.spun_ns = 0;
        world.wait(1_000_000 * US);
        assert_eq!(world.spun_ns, 0);
        // Both sides asleep: what looks like 46 us is 26 us of waiting.
        for _ in 0..WAITS {
            world.wait(26 * US);
        }
        world.sleeps = 0;
        for _ in 0..1000 {
            world.wait(7 * US);
        }
        assert_eq!(world.sleeps, 0);
    }

    #[test]
    fn a_limit_of_0_never_spins_and_the_largest_never_sleeps() {
        let mut never = World::new(0);
        for _ in 0..100 {
            never.wait(3 * US);
        }
        assert_eq!((never.sleeps, never.spun_ns), (100, 0));
        let mut always = Spin::new(Nanos::MAX);
        for now in 0..100 {
            assert_eq!(always.idle(now * 1_000_000_000), Decision::Spin);
            always.worked(now * 1_000_000_000 + 1);
        }
    }
}
