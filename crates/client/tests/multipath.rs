//! `weft perf --multipath` against a target in the same process whose paths
//! come, go and change their ANA states under a verified load.
#![allow(missing_docs)]

#[path = "shared/line.rs"]
mod line;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::perf::{PerfArgs, Report, measure};
use nvmf::command::AnaState;
use server::{Change, Config, NamespaceSpec, Running, SubsystemSpec};

const NQN: &str = "nqn.2026-01.io.weft:multipath";

/// One RAM volume behind two listeners.
struct Served {
    running: Running,
    ports: [SocketAddr; 2],
}

impl Served {
    fn start() -> Self {
        Self::of("ram")
    }

    /// The volume's name is what its identity is made of.
    fn of(volume: &str) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let running = server::start(Config {
            volumes: vec![store::Spec::new(volume, store::Kind::RAM, 8 << 20, 512)],
            subsystems: vec![SubsystemSpec {
                nqn: NQN.into(),
                serial: "1".into(),
                model: "weft".into(),
                namespaces: vec![NamespaceSpec {
                    nsid: 1,
                    volume: volume.into(),
                    ..NamespaceSpec::default()
                }],
                ..SubsystemSpec::default()
            }],
            listeners: vec![any.into(), any.into()],
            cpus: vec![reactor::available_cpus()[0]],
            spin_us_max: 0,
            memory_max: 64 << 20,
            ..Config::default()
        });
        let running = running.expect("the target starts");
        let ports = [running.addresses()[0], running.addresses()[1]];
        Served { running, ports }
    }

    fn line(&self, words: &str) -> PerfArgs {
        let [a, b] = self.ports;
        let line = format!(
            "--ramp-time 0 --reconnect-delay 10ms {words} \
             nvme-tcp://{a}/{NQN} nvme-tcp://{b}/{NQN}"
        );
        line::args(&line).expect(words)
    }

    fn change(&self, change: Change) {
        self.running.change(change).expect("a change");
    }

    fn remove(&self, port: usize) {
        let address = self.ports[port];
        self.change(Change::RemoveListener { address });
    }

    fn add(&self, port: usize) {
        self.change(Change::AddListener(self.ports[port].into()));
    }

    fn set_ana(&self, port: usize, state: AnaState) {
        self.change(Change::SetAna {
            nqn: NQN.into(),
            listener: Some(self.ports[port]),
            group: 1,
            state,
        });
    }

    /// Waits until so many more I/Os were done.
    fn see(&self, ios: u64) {
        let end = self.running.report().ios + ios;
        let late = Instant::now() + Duration::from_secs(30);
        while self.running.report().ios < end {
            assert!(Instant::now() < late, "the load stands still");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs a load while `during` changes things, then ends it.
    fn load(&self, words: &str, during: impl FnOnce(&Self)) -> Report {
        let args = self.line(words);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let load = scope.spawn(|| measure(&args, &stop));
            // A failed expectation must not leave the load running.
            let end = End(&stop);
            self.see(200);
            during(self);
            drop(end);
            load.join().expect("no panic").expect("it runs")
        })
    }
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.running.stop();
        let ended = self.running.wait(Duration::from_secs(10));
        if !thread::panicking() {
            ended.expect("the target ends").expect("in time");
        }
    }
}

const VERIFIED: &str = "--rw randrw --verify --iodepth 8 --size 1m --runtime 120";

#[test]
fn round_robin_takes_turns_and_queue_depth_evens_out() {
    let served = Served::start();
    for words in ["--multipath", "--multipath=queue-depth"] {
        let words = format!("{words} --iodepth 8 --runtime 60");
        let report = served.load(&words, |served| served.see(1000));
        assert!(report.is_clean(), "{}", report.text());
        let [a, b] = [report.paths[0].ios, report.paths[1].ios];
        assert!(a + b >= report.total.ios && report.total.ios > 0);
        match words.contains('=') {
            false => assert!(a.abs_diff(b) <= 1, "{a} and {b} are not turns"),
            // Whichever answers sooner takes more; neither is left alone.
            true => assert!(a.min(b) * 10 > a.max(b), "{a} and {b}"),
        }
        for path in &report.paths {
            assert_eq!((path.failovers, path.losses, path.reconnects), (0, 0, 0));
            assert_eq!(path.state, "optimized");
        }
        assert!(report.text().contains("path 127.0.0.1:"));
    }
}

#[test]
fn listeners_that_go_and_come_back_cost_no_io() {
    let served = Served::start();
    for policy in ["--multipath=round-robin", "--multipath=queue-depth"] {
        let words = format!("{policy} {VERIFIED} --numjobs 2");
        let report = served.load(&words, |served| {
            for (gone, left) in [(0, 1), (1, 0), (0, 1)] {
                served.remove(gone);
                served.see(300);
                served.add(gone);
                // Nothing goes on unless the other is there again.
                served.set_ana(left, AnaState::Inaccessible);
                served.see(300);
                served.set_ana(left, AnaState::Optimized);
            }
            // Both: what is under way waits.
            served.remove(0);
            served.remove(1);
            served.add(0);
            served.see(300);
            served.add(1);
        });
        assert!(report.is_clean(), "{}", report.text());
        let verify = report.verify.as_ref().expect("verified");
        assert!(verify.checked > 0 && verify.mismatches == 0);
        let [a, b] = [&report.paths[0], &report.paths[1]];
        // Two queues each; a queue is lost as often as its listener goes.
        assert_eq!((a.losses, b.losses), (6, 4), "{}", report.text());
        assert!(a.reconnects >= 6 && a.reconnects >= b.reconnects);
        assert!(
            a.failovers + b.failovers > 0,
            "nothing was under way: {}",
            report.text()
        );
    }
}

#[test]
fn ana_states_are_followed_without_an_error() {
    let served = Served::start();
    let report = served.load(&format!("--multipath {VERIFIED}"), |served| {
        for state in [
            AnaState::Inaccessible,
            AnaState::NonOptimized,
            AnaState::Change,
            AnaState::PersistentLoss,
        ] {
            served.set_ana(0, state);
            served.see(300);
            served.set_ana(1, AnaState::Inaccessible);
            // With NonOptimized that is the path that is left; else none is.
            match state {
                AnaState::NonOptimized => served.see(300),
                _ => thread::sleep(Duration::from_millis(20)),
            }
            served.set_ana(0, AnaState::Optimized);
            served.see(300);
            served.set_ana(1, AnaState::Optimized);
        }
    });
    assert!(report.is_clean(), "{}", report.text());
    assert!(report.verify.as_ref().expect("verified").checked > 0);
    for path in &report.paths {
        assert_eq!((path.losses, path.reconnects), (0, 0));
    }
    assert!(report.paths.iter().any(|path| path.failovers > 0));
}

#[test]
fn the_optimized_path_takes_everything() {
    let served = Served::start();
    served.set_ana(1, AnaState::NonOptimized);
    let report = served.load("--multipath --iodepth 8 --runtime 60", |served| {
        served.see(300);
    });
    assert!(report.is_clean(), "{}", report.text());
    assert_eq!(report.paths[1].ios, 0);
    assert_eq!(report.paths[1].state, "non-optimized");
}

#[test]
fn without_a_path_ios_fail_when_they_have_waited_long_enough() {
    let served = Served::start();
    let words = "--multipath --fast-io-fail-tmo 50ms --iodepth 4 --runtime 60";
    let report = served.load(words, |served| {
        served.remove(0);
        served.remove(1);
        thread::sleep(Duration::from_millis(300));
        served.add(1);
        served.see(300);
    });
    assert!(!report.is_clean());
    // What was under way fails, and no more is begun while there is no path.
    assert_eq!(report.errors.failed.len(), 1, "{}", report.text());
    assert!(
        report.errors.failed[0]
            .status
            .contains("Host Pathing Error")
    );
    assert_eq!(report.errors.failed[0].count, 4);
    assert_eq!(report.errors.lost, 0);
    assert_eq!(report.paths[1].reconnects, 1);
}

#[test]
fn a_path_is_given_up_after_ctrl_loss_tmo() {
    let served = Served::start();
    let words = "--multipath --ctrl-loss-tmo 100ms --iodepth 4 --runtime 60";
    let args = served.line(words);
    let report = thread::scope(|scope| {
        let load = scope.spawn(|| measure(&args, &AtomicBool::new(false)));
        served.see(200);
        served.remove(0);
        served.see(200);
        served.remove(1);
        // It ends by itself.
        load.join().expect("no panic").expect("it was measured")
    });
    assert!(report.seconds < 50.0);
    assert_eq!(report.errors.connections_down, 1);
    assert!(report.errors.reasons[0].contains("given up"));
    for path in &report.paths {
        assert_eq!((path.state.as_str(), path.losses), ("given up", 1));
    }
}

#[test]
fn paths_must_lead_to_one_namespace() {
    let (one, other) = (Served::start(), Served::of("other"));
    let line = format!(
        "--multipath --runtime 1 nvme-tcp://{}/{NQN} nvme-tcp://{}/{NQN}",
        one.ports[0], other.ports[0]
    );
    let error = line::perf(&line, &AtomicBool::new(false)).expect_err("two volumes");
    assert!(error.contains("another namespace"), "{error}");
}

#[test]
fn targets_that_are_drained_one_after_the_other_cost_no_io() {
    let [one, other] = [(); 2].map(|()| Served::start());
    let line = format!(
        "--multipath --ramp-time 0 --iodepth 8 --runtime 120 nvme-tcp://{}/{NQN} \
         nvme-tcp://{}/{NQN}",
        one.ports[0], other.ports[0]
    );
    let args = line::args(&line).expect("a line");
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let load = scope.spawn(|| measure(&args, &stop));
        let end = End(&stop);
        for (drained, left) in [(&one, &other), (&other, &one)] {
            drained.see(200);
            drained.change(Change::SetDrained(true));
            let before = drained.running.report().ios;
            left.see(500);
            assert_eq!(drained.running.report().ios, before, "it is drained");
            drained.change(Change::SetDrained(false));
            drained.see(200);
        }
        drop(end);
        load.join().expect("no panic").expect("it runs")
    });
    assert!(report.is_clean(), "{}", report.text());
    for path in &report.paths {
        assert_eq!((path.losses, path.reconnects), (0, 0));
        assert_eq!(path.state, "optimized");
    }
}
