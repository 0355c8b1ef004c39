use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;

fn rate(per_second: u64, burst_s: u32) -> TokenRate {
    TokenRate {
        per_second,
        burst_s,
    }
}

/// Threads that always have something that waits, each one at a time, and when each went.
struct Threads {
    places: Vec<Option<u64>>,
    went: Vec<Nanos>,
}

impl Threads {
    fn new(count: usize) -> Threads {
        Threads {
            places: vec![None; count],
            went: Vec::new(),
        }
    }

    /// They look every `step`, each in its turn, until `end`.
    fn run(&mut self, bucket: &TokenBucket, (from, end): (Nanos, Nanos), step: Nanos, cost: u64) {
        let mut now = from;
        while now < end {
            let count = self.places.len();
            let first = (now / step) as usize;
            for place in (first..first + count).map(|n| n % count) {
                let place = &mut self.places[place];
                while bucket.has_come(*place.get_or_insert_with(|| bucket.take(cost, now)), now) {
                    *place = None;
                    self.went.push(now);
                }
            }
            now += step;
        }
    }

    /// The most that went in a second, whenever it begins.
    fn most_in_a_second(&self) -> usize {
        let windows = self.went.iter().enumerate().map(|(first, from)| {
            let behind = &self.went[first..];
            behind.partition_point(|at| *at < from + SECOND)
        });
        windows.max().unwrap_or(0)
    }
}

#[test]
fn a_rate_is_kept_to_two_in_a_hundred_over_every_second() {
    let rates = [
        (1, 1),
        (7, 1),
        (64, 64),
        (1_000, 1),
        (192_000, 64),
        (32 << 20, 32 << 10),
    ];
    for (per_second, cost) in rates {
        for threads in [1, 3, 64] {
            let bucket = TokenBucket::new(rate(per_second, 0), 0);
            let mut all = Threads::new(threads);
            all.run(&bucket, (0, 5 * SECOND), MS / 4, cost);
            let wanted = per_second as f64 / cost as f64;
            let name = format!("{per_second} by {cost}, {threads} threads");
            let most = all.most_in_a_second() as f64;
            assert!(most <= wanted * 1.02 + 1.0, "{name}: {most} in a second");
            let went = all.went.len() as f64;
            assert!(
                went >= wanted * 5.0 * 0.98,
                "{name}: {went} in five seconds"
            );
            assert!(went <= wanted * 5.0 * 1.02 + 1.0, "{name}: {went}");
        }
    }
}

#[test]
fn taker_of_more_than_comes_in_a_second_goes_and_others_wait_until_it_is_paid() {
    let bucket = TokenBucket::new(rate(1 << 20, 0), 0);
    let mut one = Threads::new(1);
    one.run(&bucket, (0, 13 * SECOND), MS, 4 << 20);
    assert_eq!(one.went.len(), 4);
    let between: Vec<_> = one.went.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(between.iter().all(|ns| ns.abs_diff(4 * SECOND) <= 10 * MS));
}

#[test]
fn tokens_that_nothing_took_stay_for_as_long_as_a_burst_is() {
    let bucket = TokenBucket::new(rate(100, 5), 0);
    let mut one = Threads::new(1);
    one.run(&bucket, (0, SECOND), MS, 1);
    assert!(
        (600..=602).contains(&one.went.len()),
        "a full bucket, and a second"
    );
    let mut later = Threads::new(1);
    later.run(&bucket, (100 * SECOND, 101 * SECOND), MS, 1);
    assert!(
        (600..=602).contains(&later.went.len()),
        "{}",
        later.went.len()
    );
    let idle = TokenBucket::new(rate(100, 0), 0);
    let mut without = Threads::new(1);
    without.run(&idle, (100 * SECOND, 101 * SECOND), MS, 1);
    assert!((100..=102).contains(&without.went.len()));
}

#[test]
fn a_rate_that_changes_under_load_holds_at_once_and_forgets_no_debt() {
    let slow = TokenBucket::new(rate(10, 0), 0);
    let mut all = Threads::new(4);
    all.run(&slow, (0, SECOND), MS, 1);
    let first = all.went.len();
    let fast = slow.at_rate(rate(1_000, 0), SECOND);
    assert!(fast.is_same(&slow));
    all.run(&fast, (SECOND, 2 * SECOND), MS, 1);
    let second = all.went.len() - first;
    assert!((980..=1_020).contains(&second), "{second}");
    let slow = fast.at_rate(rate(20, 0), 2 * SECOND);
    all.run(&slow, (2 * SECOND, 4 * SECOND), MS, 1);
    let third = all.went.len() - first - second;
    assert!((36..=41).contains(&third), "{third}");

    // As often as one likes, and it gives nothing away.
    let mut bucket = TokenBucket::new(rate(100, 0), 0);
    let mut all = Threads::new(4);
    for n in 0..1_000 {
        bucket = bucket.at_rate(rate(100, n % 2), n as Nanos * MS);
        all.run(&bucket, (n as Nanos * MS, (n as Nanos + 1) * MS), MS / 2, 1);
    }
    assert!((98..=102).contains(&all.went.len()), "{}", all.went.len());
}

#[test]
fn tokens_that_are_given_back_are_anothers() {
    let bucket = TokenBucket::new(rate(1, 0), 0);
    assert!(bucket.is_open(0));
    bucket.take(1, 0);
    let waits = bucket.take(5, 0);
    assert!(!bucket.has_come(waits, 0) && bucket.has_come(waits, SECOND));
    assert_eq!(bucket.comes_at(waits), SECOND);
    bucket.give_back(5);
    assert_eq!(bucket.opens_at(), SECOND);
    assert!(bucket.is_open(SECOND));
}

#[test]
fn a_place_is_the_same_whichever_way_the_count_goes_round() {
    let mut bucket = TokenBucket::new(rate(1 << 36, 0), 0);
    bucket.since.1 = u64::MAX - 5;
    bucket.taken = Arc::new(AtomicU64::new(u64::MAX - 5));
    let first = bucket.take(4096, 0);
    let second = bucket.take(4096, 0);
    assert!(bucket.has_come(first, 0) && !bucket.has_come(second, 0));
    assert!(bucket.has_come(second, bucket.comes_at(second)));
    let year = 365 * 86_400 * SECOND;
    assert!(bucket.is_open(4 * year), "nothing took any for four years");
}

proptest! {
    #[test]
    fn no_more_goes_than_comes_whoever_looks_when(
        per_second in 1_u64..1_000_000,
        costs in prop::collection::vec(1_u64..10_000, 1..64),
        looks in prop::collection::vec((0_usize..64, 0_u64..50_000_000), 1..400),
    ) {
        let bucket = TokenBucket::new(rate(per_second, 0), 0);
        let mut places = vec![None; costs.len()];
        let (mut now, mut went) = (0, Vec::new());
        for (at, more) in looks {
            now += more;
            let at = at % costs.len();
            let place = *places[at].get_or_insert_with(|| bucket.take(costs[at], now));
            prop_assert_eq!(bucket.has_come(place, now), bucket.comes_at(place) <= now);
            if bucket.has_come(place, now) {
                places[at] = None;
                went.push((now, place.wrapping_add(bucket.kept), costs[at]));
            }
        }
        for (first, (from, ..)) in went.iter().enumerate() {
            // What has the last place may cost what it likes: it is paid afterwards.
            let (mut all, mut last) = (0, (0, 0));
            for (at, place, cost) in &went[first..] {
                let come = u128::from(at - from) * u128::from(per_second) / u128::from(SECOND);
                let kept = u128::from(bucket.kept);
                // A place was taken when it was looked for, and may go later than it could.
                let held: u64 = costs.iter().sum();
                all += *cost;
                last = last.max((*place, *cost));
                prop_assert!(u128::from(all - last.1) <= come + kept + u128::from(held) + 1);
            }
        }
    }
}
