//! Which path takes a command.

use super::path::Path;

/// How commands are spread over the paths of the best ANA state that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each path in turn.
    RoundRobin,
    /// The path with the fewest commands outstanding.
    QueueDepth,
}

/// How good a path is for commands; the smaller the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathAccess {
    /// ANA Optimized.
    Optimized,
    /// ANA Non-Optimized.
    NonOptimized,
}

/// What is looked at of a path.
pub(super) trait Candidate {
    /// How it takes commands; `None`: not at all.
    fn access(&self) -> Option<PathAccess>;
    /// Commands on it.
    fn outstanding(&self) -> u32;
}

impl Candidate for Path {
    #[inline]
    fn access(&self) -> Option<PathAccess> {
        Path::access(self)
    }

    #[inline]
    fn outstanding(&self) -> u32 {
        self.in_flight
    }
}

/// The path for a command when `last` took the one before. `avoid` failed it:
/// another is better, whatever its state, but none is worse.
#[inline]
pub(super) fn pick<P: Candidate>(
    policy: Policy,
    paths: &[P],
    last: usize,
    avoid: u16,
) -> Option<usize> {
    let mut best = None;
    let mut at = last;
    for _ in 0..paths.len() {
        at += 1;
        if at >= paths.len() {
            at = 0;
        }
        let path = &paths[at];
        let Some(access) = path.access() else {
            continue;
        };
        let load = match policy {
            Policy::RoundRobin => 0,
            Policy::QueueDepth => path.outstanding(),
        };
        let key = (at == usize::from(avoid), access, load);
        // Of equals the first after the last one, so that they take turns.
        if best.is_none_or(|(_, least)| key < least) {
            best = Some((at, key));
        }
    }
    best.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(Option<PathAccess>, u32);

    impl Candidate for Fake {
        fn access(&self) -> Option<PathAccess> {
            self.0
        }

        fn outstanding(&self) -> u32 {
            self.1
        }
    }

    const GOOD: Option<PathAccess> = Some(PathAccess::Optimized);
    const POOR: Option<PathAccess> = Some(PathAccess::NonOptimized);
    const NO_PATH: u16 = u16::MAX;

    /// How many of `count` commands each path gets; none comes back.
    fn spread(policy: Policy, mut paths: Vec<Fake>, count: u32) -> Vec<u32> {
        let before: Vec<u32> = paths.iter().map(|path| path.1).collect();
        let mut last = 0;
        for _ in 0..count {
            let Some(at) = pick(policy, &paths, last, NO_PATH) else {
                break;
            };
            paths[at].1 += 1;
            last = at;
        }
        let counts = paths.iter().zip(before).map(|(path, had)| path.1 - had);
        counts.collect()
    }

    #[test]
    fn round_robin_gives_each_of_the_best_as_much() {
        let three = || vec![Fake(GOOD, 0), Fake(GOOD, 90), Fake(GOOD, 7)];
        assert_eq!(spread(Policy::RoundRobin, three(), 30), [10, 10, 10]);
        let mixed = vec![Fake(POOR, 0), Fake(GOOD, 0), Fake(None, 0), Fake(GOOD, 0)];
        assert_eq!(spread(Policy::RoundRobin, mixed, 30), [0, 15, 0, 15]);
        let poor = vec![Fake(POOR, 0), Fake(None, 0), Fake(POOR, 0)];
        assert_eq!(spread(Policy::RoundRobin, poor, 30), [15, 0, 15]);
    }

    #[test]
    fn queue_depth_evens_out_what_is_outstanding() {
        let three = vec![Fake(GOOD, 0), Fake(GOOD, 20), Fake(GOOD, 5)];
        assert_eq!(spread(Policy::QueueDepth, three, 35), [20, 0, 15]);
        let mixed = vec![Fake(POOR, 0), Fake(GOOD, 50)];
        assert_eq!(spread(Policy::QueueDepth, mixed, 10), [0, 10]);
        assert_eq!(
            spread(Policy::QueueDepth, vec![Fake(GOOD, 0), Fake(GOOD, 0)], 10),
            [5, 5]
        );
    }

    #[test]
    fn the_path_that_failed_a_command_is_the_last_to_get_it_again() {
        let paths = [Fake(GOOD, 0), Fake(POOR, 9)];
        assert_eq!(pick(Policy::RoundRobin, &paths, 1, 0), Some(1));
        assert_eq!(pick(Policy::QueueDepth, &paths, 1, 0), Some(1));
        let alone = [Fake(GOOD, 0), Fake(None, 0)];
        assert_eq!(pick(Policy::RoundRobin, &alone, 0, 0), Some(0));
        let none = [Fake(None, 0)];
        assert_eq!(pick(Policy::RoundRobin, &none, 0, NO_PATH), None);
    }
}
