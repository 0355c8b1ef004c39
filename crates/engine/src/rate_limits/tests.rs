use super::*;

const SECOND: Nanos = 1_000_000_000;
const READ: Cost = Cost {
    op: IoOp::Read,
    bytes: 4096,
};
const WRITE: Cost = Cost {
    op: IoOp::Write,
    bytes: 4096,
};

fn limit(name: &str, rates: Rates) -> RateLimit {
    RateLimit {
        name: name.to_owned(),
        rates,
        ..RateLimit::default()
    }
}

fn of_disk0(limits: &RateLimits) -> Vec<Arc<ActiveLimit>> {
    let host = HostName::Said("nvme", "nqn.2026-01.io.weft:a".to_owned());
    limits.of(&host, 0, Goal::Volume("disk0"))
}

/// A host that always has an I/O that waits: what went of it until `end`, looked at each
/// millisecond.
struct Host {
    cost: Cost,
    places: Option<TokenPlaces>,
    went: u64,
}

impl Host {
    fn new(cost: Cost) -> Host {
        Host {
            cost,
            places: None,
            went: 0,
        }
    }

    fn look(&mut self, limits: &LimitList, now: Nanos) {
        loop {
            let mut places = self
                .places
                .take()
                .unwrap_or_else(|| TokenPlaces::new(self.cost));
            if places.goes_at(limits, now) > now {
                self.places = Some(places);
                return;
            }
            places.go(now, now);
            self.went += 1;
        }
    }
}

fn run(hosts: &mut [(&mut Host, &LimitList)], (from, end): (Nanos, Nanos)) {
    for now in (from..end).step_by(1_000_000) {
        for (host, limits) in &mut *hosts {
            host.look(limits, now);
        }
    }
}

#[test]
fn reads_and_writes_have_rates_of_their_own_and_together() {
    let limits = RateLimits::default();
    let rates = Rates {
        iops: Some(1_000),
        read_iops: Some(700),
        write_bytes: Some(400 * 4096),
        ..Rates::default()
    };
    limits.set(vec![limit("all", rates)], 0);
    let own = of_disk0(&limits);
    let (mut reads, mut writes) = (Host::new(READ), Host::new(WRITE));
    run(
        &mut [(&mut reads, &own), (&mut writes, &own)],
        (0, 4 * SECOND),
    );
    let all = reads.went + writes.went;
    assert!(all.abs_diff(4_000) <= 80, "{all}");
    assert!(reads.went <= 2_856 && writes.went <= 1_632);
    let mut writes = Host::new(WRITE);
    run(&mut [(&mut writes, &own)], (5 * SECOND, 9 * SECOND));
    assert!(writes.went.abs_diff(1_600) <= 32, "{}", writes.went);
}

#[test]
fn hosts_that_share_a_limit_have_equal_parts_of_it() {
    let limits = RateLimits::default();
    let rates = Rates {
        iops: Some(999),
        ..Rates::default()
    };
    limits.set(vec![limit("all", rates)], 0);
    let own = of_disk0(&limits);
    let mut hosts = [(); 3].map(|()| Host::new(READ));
    let [a, b, c] = &mut hosts;
    run(&mut [(a, &own), (b, &own), (c, &own)], (0, 4 * SECOND));
    let went = hosts.map(|host| host.went);
    assert!(
        went.iter().all(|went| went.abs_diff(1_332) <= 30),
        "{went:?}"
    );
}

#[test]
fn io_within_a_floor_waits_for_no_other_limit_and_counts_against_it() {
    let limits = RateLimits::default();
    let all = Rates {
        iops: Some(1_000),
        ..Rates::default()
    };
    let floor = Rates {
        floor_iops: Some(800),
        ..Rates::default()
    };
    let disk0 = RateLimit {
        volumes: vec!["disk0".to_owned()],
        ..limit("disk0", floor)
    };
    limits.set(vec![limit("all", all), disk0], 0);
    let own = of_disk0(&limits);
    let host = HostName::Said("nvme", "nqn.2026-01.io.weft:b".to_owned());
    let others = limits.of(&host, 0, Goal::Volume("disk1"));
    assert_eq!((own.len(), others.len()), (2, 1));
    let mut hosts = [(); 5].map(|()| Host::new(READ));
    let [a, b, c, d, e] = &mut hosts;
    let mut both = [
        (a, &*own),
        (b, &others),
        (c, &others),
        (d, &others),
        (e, &others),
    ];
    run(&mut both, (0, 4 * SECOND));
    let went = hosts.map(|host| host.went);
    assert!((3_150..3_400).contains(&went[0]), "{went:?}");
    let all: u64 = went.iter().sum();
    assert!(all.abs_diff(4_000) <= 80, "{went:?}");
}

#[test]
fn hosts_that_share_a_floor_have_equal_parts_of_it() {
    let limits = RateLimits::default();
    let rates = Rates {
        iops: Some(1_000),
        floor_iops: Some(1_000),
        ..Rates::default()
    };
    limits.set(vec![limit("all", rates)], 0);
    let own = of_disk0(&limits);
    let mut hosts = [(); 4].map(|()| Host::new(READ));
    let [a, b, c, d] = &mut hosts;
    let mut all = [(a, &*own), (b, &own), (c, &own), (d, &own)];
    run(&mut all, (0, 4 * SECOND));
    let went = hosts.map(|host| host.went);
    assert!(
        went.iter().all(|went| went.abs_diff(1_000) <= 30),
        "{went:?}"
    );
}

#[test]
fn debt_of_a_floor_keeps_others_waiting_no_longer_than_a_second() {
    let limits = RateLimits::default();
    let rates = |iops, floor_iops| Rates {
        iops,
        floor_iops,
        ..Rates::default()
    };
    let disk0 = RateLimit {
        volumes: vec!["disk0".to_owned()],
        ..limit("disk0", rates(None, Some(1_000)))
    };
    limits.set(vec![limit("all", rates(Some(10), None)), disk0], 0);
    let own = of_disk0(&limits);
    let mut waits = Host::new(READ);
    run(&mut [(&mut waits, &own)], (0, 4 * SECOND));
    assert!(waits.went >= 3_990, "{}", waits.went);
    drop(waits);
    // The same of what finds the floor open.
    let comes = (4 * SECOND..8 * SECOND).step_by(1_000_000);
    assert!(comes.into_iter().all(|now| try_take(&own, READ, now)));
    let host = HostName::Said("nvme", "nqn.2026-01.io.weft:b".to_owned());
    let others = limits.of(&host, 0, Goal::Volume("disk1"));
    let goes_at = TokenPlaces::new(READ).goes_at(&others, 8 * SECOND);
    assert!((8 * SECOND..=9 * SECOND + SECOND / 5).contains(&goes_at));
}

#[test]
fn a_limit_goes_on_under_its_name_whatever_else_comes_and_goes() {
    let limits = RateLimits::default();
    let rates = |iops| Rates {
        iops: Some(iops),
        ..Rates::default()
    };
    limits.set(vec![limit("a", rates(1))], 0);
    take(&of_disk0(&limits), READ, 0);
    let mut waits = TokenPlaces::new(READ);
    assert_eq!(waits.goes_at(&of_disk0(&limits), 0), SECOND);
    limits.set(vec![limit("b", rates(50)), limit("a", rates(2))], 0);
    assert_eq!(waits.goes_at(&of_disk0(&limits), 0), SECOND / 2);
    assert!(!try_take(&of_disk0(&limits), READ, 0));
    limits.set(vec![limit("b", rates(50))], 0);
    assert_eq!(
        waits.goes_at(&of_disk0(&limits), 0),
        0,
        "one has come to an end"
    );
    waits.go(0, 0);
    limits.set(vec![limit("a", rates(1))], 0);
    assert!(
        try_take(&of_disk0(&limits), READ, 0),
        "another of its name is new"
    );
}

#[test]
fn limits_hold_for_what_they_name_and_for_all_where_they_name_nothing() {
    let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    let nqn = HostName::Said("nvme", "nqn.2026-01.io.weft:a".to_owned());
    let address = |text: &str| HostName::Address(network(text.parse().expect("an address")));
    let disk0 = Goal::Volume("disk0");
    let all = RateLimit::default();
    assert!(all.holds_for(&nqn, 7, disk0) && all.holds_for(&nqn, 7, Goal::Export("/a")));
    let named = RateLimit {
        volumes: texts(&["disk0", "disk1"]),
        exports: texts(&["/a"]),
        hosts: texts(&["nqn.2026-01.io.weft:a", "10.0.0.7", "2001:db8::1"]),
        listeners: vec![1, 2],
        ..RateLimit::default()
    };
    for (host, listener, goal, holds) in [
        (nqn.clone(), 1, disk0, true),
        (nqn.clone(), 2, Goal::Export("/a"), true),
        (nqn.clone(), 3, disk0, false),
        (nqn.clone(), 1, Goal::Volume("/a"), false),
        (nqn, 1, Goal::Export("/b"), false),
        (address("10.0.0.7"), 1, disk0, true),
        (address("2001:db8::2"), 1, disk0, true),
        (address("10.0.0.8"), 1, disk0, false),
        (
            HostName::Said("iscsi", "10.0.0.7".to_owned()),
            1,
            disk0,
            true,
        ),
    ] {
        assert_eq!(
            named.holds_for(&host, listener, goal),
            holds,
            "{host} {listener} {goal:?}"
        );
    }
}

#[test]
fn waits_are_told_by_their_limit() {
    let limits = RateLimits::default();
    let rates = |iops| Rates {
        iops: Some(iops),
        ..Rates::default()
    };
    limits.set(
        vec![limit("wide", rates(1_000)), limit("narrow", rates(10))],
        0,
    );
    let own = of_disk0(&limits);
    take(&own, READ, 0);
    let mut waits = TokenPlaces::new(READ);
    let at = waits.goes_at(&own, 0);
    waits.go(at, 0);
    let delays: Vec<_> = limits.figures().iter().map(|limit| limit.delays).collect();
    assert_eq!(delays, [Delays::default(), Delays { ios: 1, ns: at }]);
}
