//! What waits for a limit on a connection.

use store::meter::IoOp;

use super::*;
use crate::rate_limits::{RateLimit, RateLimits, Rates, TokenPlaces};
use crate::waiting::Limited;

/// So many I/Os of one second, for which a limit is waited longer than for any test.
const DEEP: usize = 3_600;

fn limit(iops: u64) -> RateLimit {
    RateLimit {
        name: "a limit".to_owned(),
        rates: Rates {
            iops: Some(iops),
            ..Rates::default()
        },
        ..RateLimit::default()
    }
}

/// With memory for all commands, each of which reads from one volume.
fn reading() -> Bench {
    let mut bench = bench();
    let script = &mut bench.link.machine;
    script.ops_with_memory = usize::MAX;
    script.demand = Some(Demand {
        unit: 0,
        op: IoOp::Read,
        bytes: 4096,
    });
    bench
}

/// The same, where one I/O has gone that is not paid for hours.
fn limited() -> Bench {
    let bench = reading();
    bench.shared.rate_limits.set(vec![limit(1)], 0);
    for _ in 0..DEEP {
        let demand = bench.link.machine.demand.expect("each reads");
        let limits = bench.limits.of(0, Goal::Volume("disk0"));
        crate::rate_limits::take(&limits, demand.cost(), bench.driver.now());
    }
    bench
}

impl Bench {
    fn receive(&mut self, tags: &[Tag]) {
        self.link.machine.ops.extend(tags);
        self.connection.run(&mut self.driver);
    }

    fn look(&mut self) {
        self.connection.go_on_held_back(&mut self.driver);
    }

    fn executed(&mut self) -> Vec<Tag> {
        std::mem::take(&mut self.link.machine.executed)
    }
}

#[test]
fn io_that_a_limit_holds_back_has_not_begun_and_goes_in_its_order_when_the_limit_goes() {
    let mut bench = limited();
    bench.receive(&[1, 2, 3]);
    assert_eq!(
        bench.wakes_at(),
        Some(0),
        "they are looked at in the same turn"
    );
    bench.look();
    let wakes_at = bench.wakes_at().expect("the first waits");
    assert!(wakes_at > bench.driver.now() + 1_000_000_000_000);
    assert!(bench.executed().is_empty());
    assert_eq!(bench.host.share.held_bytes(), 0);
    assert!(!bench.is_waiting(), "not for memory");
    assert!(bench.may_receive(), "what comes may go elsewhere");
    let now = bench.driver.now();
    bench.shared.rate_limits.set(vec![], now);
    bench.receive(&[4]);
    assert!(
        bench.executed().is_empty(),
        "it came later than others that wait"
    );
    bench.look();
    assert_eq!(bench.executed(), [1, 2, 3, 4]);
    assert_eq!(bench.wakes_at(), None);
}

#[test]
fn a_limit_holds_for_what_waits_as_soon_as_it_is_another() {
    let mut bench = limited();
    bench.receive(&[1, 2, 3]);
    bench.look();
    let first = bench.wakes_at().expect("the first waits");
    let now = bench.driver.now();
    bench.shared.rate_limits.set(vec![limit(10)], now);
    bench.look();
    let second = bench.wakes_at().expect("it still does");
    let (before, after) = (first - now, second - now);
    assert!(
        after.abs_diff(before / 10) < 1_000_000_000,
        "a tenth of the time: {after} of {before}"
    );
    bench
        .shared
        .rate_limits
        .set(vec![limit(1_000_000_000)], now);
    bench.look();
    assert!(bench.wakes_at().expect("one by one") < now + 1_000_000_000);
}

#[test]
fn io_that_a_limit_holds_back_can_be_aborted_and_leaves_its_place_to_others() {
    let mut bench = limited();
    bench.receive(&[1, 2]);
    bench.look();
    let first = bench.wakes_at();
    assert!(bench.is_command_waiting(1));
    assert_eq!(bench.take_waiting(1), Some(1));
    assert!(!bench.is_command_waiting(1) && bench.is_command_waiting(2));
    bench.look();
    assert_eq!(
        bench.wakes_at(),
        first,
        "the second waits no longer than the first has"
    );
    assert_eq!(bench.take_waiting(2), Some(2));
    assert_eq!((bench.wakes_at(), bench.executed()), (None, vec![]));
    // With its connection likewise.
    bench.receive(&[3]);
    bench.look();
    assert_eq!(bench.wakes_at(), first);
    bench.connection.close(&mut bench.driver);
    let opens_at = |limits: &RateLimits| {
        let limits = limits.of(&bench.host.name, 0, Goal::Volume("disk0"));
        let cost = bench.link.machine.demand.expect("each reads").cost();
        TokenPlaces::new(cost).goes_at(&limits, bench.driver.now())
    };
    assert_eq!(Some(opens_at(&bench.shared.rate_limits)), first);
}

#[test]
fn data_that_stands_before_what_comes_behind_keeps_it_from_being_received_while_it_waits() {
    let mut bench = limited();
    bench.link.machine.is_blocked = true;
    bench.receive(&[1, 2]);
    assert!(!bench.may_receive());
    assert_eq!(bench.link.machine.ops.len(), 1, "the second is not taken");
    bench.others_are_short();
    assert_eq!(bench.ends_idle_after(), None, "its peer may have sent");
    let now = bench.driver.now();
    bench.shared.rate_limits.set(vec![], now);
    bench.look();
    assert_eq!(bench.executed(), [1, 2]);
    assert!(bench.may_receive());
}

#[test]
fn io_that_finds_no_memory_after_it_has_waited_for_a_limit_waits_for_no_limit_again() {
    let mut bench = limited();
    bench.link.machine.ops_with_memory = 0;
    bench.receive(&[1]);
    let now = bench.driver.now();
    bench.shared.rate_limits.set(vec![], now);
    bench.look();
    assert!(bench.is_waiting());
    bench.shared.rate_limits.set(vec![limit(1)], now);
    bench.link.machine.ops_with_memory = 1;
    bench.connection.retry(&mut bench.driver);
    assert_eq!(bench.executed(), [1]);
}

#[test]
fn an_io_looks_at_nothing_where_there_are_no_limits() {
    let mut bench = reading();
    bench.shared.rate_limits.set(vec![], 0);
    assert!(!bench.limits.are_used());
    bench.receive(&[1, 2, 3]);
    assert_eq!(bench.executed(), [1, 2, 3]);
}

/// Prints what it costs to ask whether limits let an I/O go: where there are none, where there are
/// some for others, and where it is within its own.
#[test]
#[ignore = "prints a time, which no machine of a test has to itself"]
fn asking_limits_about_an_io_is_timed() {
    const IOS: u32 = 1 << 20;
    let of_others = RateLimit {
        volumes: vec!["another".to_owned()],
        ..limit(1)
    };
    for (name, limits) in [
        ("none", vec![]),
        ("of others", vec![of_others]),
        ("its own", vec![limit(1_000_000_000)]),
    ] {
        let bench = reading();
        bench.shared.rate_limits.set(limits, 0);
        let mut connection = bench.connection;
        let mut rounds: Vec<f64> = (0..31)
            .map(|round| {
                let start = std::time::Instant::now();
                let mut gone = 0;
                for n in 0..IOS {
                    let now = Nanos::from(round * IOS + n) * 1_000;
                    let tag = std::hint::black_box(TAG);
                    let asks = connection.core().limits.are_used();
                    gone += u32::from(!asks || connection.is_let_in(&tag, now));
                }
                assert_eq!(gone, IOS, "{name}");
                start.elapsed().as_nanos() as f64 / f64::from(IOS)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        println!(
            "{name}: ns an I/O: least {:.1}, median {:.1}",
            rounds[0], rounds[15]
        );
    }
}
