//! An unmodified Linux kernel as the host.

use interop::guest::{Config, Guest, GuestEnd, GuestOutcome};
use interop::scripts::{ADMINISTRATOR, CLIENT, CRASH, KERNEL_TARGET, MACHINE, NVME_CRASH, script};
use interop::systems::{FORKY, RELEASE, System};
use interop::weft::{NQN, NQN_OTHER, Setup, WeftProcess};
use needs::needs;
use std::time::Duration;

/// A host opens no more queues of a kind than it has processors: these make 2
/// for writes and all else, 2 for reads and 2 polled, on two processors.
const QUEUES: &str = "--nr-io-queues=4 --nr-write-queues=2 --nr-poll-queues=2";

/// Where the script of a target that dies wants it dead.
pub const KILLS: [&str; 2] = ["MARK under load", "MARK after sync"];
/// Long enough for the first attempt to come back to be refused.
pub const REFUSED: Duration = Duration::from_millis(1500);

fn run(config: &Config) -> GuestOutcome {
    Guest::start(config).expect("a guest").finish()
}

/// The client's whole session with a target on `setup`.
fn session(name: &str, system: &'static System, setup: Setup, digests: &str) {
    let target = WeftProcess::start(name, setup);
    let port = target.address().port().to_string();
    // Where the machine is busy, an emulated guest may not run for seconds.
    let options = format!("{QUEUES} --keep-alive-tmo=30 {digests}");
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("NQN", NQN),
        ("OPTIONS", &options),
        ("QUEUES", "6"),
        ("COMPARE", "1"),
        ("ADVERTISED", "127.0.0.1"),
        ("OTHER", NQN_OTHER),
    ];
    let mut config = Config::new(name, &script(&settings, &[CLIENT]));
    config.system = system;
    config.cpus = 2;
    let output = run(&config).expect_success();
    assert!(
        output
            .lines()
            .any(|line| line.starts_with("STEP") && line.ends_with(" end"))
    );
    target.expect_orderly_end();
}

#[needs(guest, io_uring, ci)]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn session_on_io_uring() {
    let setup = Setup {
        io: "io_uring",
        block_bytes: 512,
        ..Setup::default()
    };
    session("io_uring", &RELEASE, setup, "");
}

#[needs(guest, io_uring)]
#[test]
fn session_on_io_uring_with_digests() {
    let setup = Setup {
        io: "io_uring",
        volume: "file",
        ..Setup::default()
    };
    session(
        "io_uring-digests",
        &RELEASE,
        setup,
        "--hdr-digest --data-digest",
    );
}

#[needs(guest)]
#[test]
fn session_on_epoll() {
    let setup = Setup {
        io: "epoll",
        volume: "file",
        block_bytes: 512,
        ..Setup::default()
    };
    session("epoll", &RELEASE, setup, "");
}

#[needs(guest, ci)]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn session_on_epoll_with_digests() {
    let setup = Setup {
        io: "epoll",
        ..Setup::default()
    };
    session(
        "epoll-digests",
        &RELEASE,
        setup,
        "--hdr-digest --data-digest",
    );
}

/// A kernel and an nvme-cli that came after the release's.
#[needs(guest, system(forky))]
#[test]
fn session_of_a_younger_host() {
    session("younger", &FORKY, Setup::default(), "--hdr-digest");
}

/// Every nvme subcommand that Linux has for what weft serves. `before` makes the host ready to
/// connect, with the settings in `more`.
pub fn every_subcommand(
    (name, listener): (&str, &'static str),
    (system, before): (&'static System, &[&str]),
    more: &[(&str, &str)],
) {
    let setup = Setup {
        listener,
        volume: "file",
        size_mib: 512,
        block_bytes: 512,
        ..Setup::default()
    };
    let target = WeftProcess::start(name, setup);
    let port = target.address().port().to_string();
    let options = "--nr-io-queues=1 --keep-alive-tmo=30";
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("NQN", NQN),
        ("OPTIONS", options),
    ];
    let settings = [&settings[..], more].concat();
    let parts = [before, &[ADMINISTRATOR]].concat();
    let mut config = Config::new(name, &script(&settings, &parts));
    config.system = system;
    // Two hosts in one kernel: their namespaces must not become paths of one.
    config.kernel_words = "nvme_core.multipath=N".into();
    run(&config).expect_success();
    target.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn administrator() {
    every_subcommand(("administrator", ""), (&RELEASE, &[]), &[]);
}

/// The target dies twice, under load and right after a flush: the host comes
/// back by itself and finds every flushed byte. `before` makes it ready to connect, with the
/// settings in `more`.
pub fn killed_under_load(
    (name, setup): (&str, Setup),
    (system, before): (&'static System, &[&str]),
    more: &[(&str, &str)],
) {
    let mut target = WeftProcess::start(name, setup);
    let port = target.address().port().to_string();
    let settings = [("ADDR", MACHINE), ("PORT", &port), ("NQN", NQN)];
    let settings = [&settings[..], more].concat();
    let parts = [before, &[NVME_CRASH, CRASH][..]].concat();
    let mut config = Config::new(name, &script(&settings, &parts));
    config.system = system;
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let guest = target.dies_at(guest, &KILLS, REFUSED);
    guest.finish().expect_success();
    target.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn target_killed_under_load() {
    let setup = Setup {
        volume: "file",
        ..Setup::default()
    };
    killed_under_load(("killed", setup), (&RELEASE, &[]), &[("OPTIONS", QUEUES)]);
}

/// The client's script against the kernel's own target: what fails here is
/// the script's or the harness's fault.
#[needs(guest, ci)]
#[test]
fn session_with_the_kernels_own_target() {
    let options = format!("{QUEUES} --hdr-digest --data-digest");
    let settings = [
        ("ADDR", "127.0.0.1"),
        ("PORT", "4420"),
        ("NQN", NQN),
        ("OPTIONS", &options),
        ("QUEUES", "6"),
        ("COMPARE", "0"),
        ("ADVERTISED", ""),
    ];
    let mut config = Config::new(
        "kernel-target",
        &script(&settings, &[KERNEL_TARGET, CLIENT]),
    );
    config.cpus = 2;
    run(&config).expect_success();
}

/// Each way in which a guest can end is recognized.
#[needs(guest, ci)]
#[test]
fn ends_of_a_guest() {
    let panics = "echo 1 >/proc/sys/kernel/sysrq\necho c >/proc/sysrq-trigger\n";
    let ends = [
        ("exit 3\n", 60, GuestEnd::Exit(3)),
        (panics, 60, GuestEnd::Panic),
        ("sleep 60\n", 6, GuestEnd::TimedOut),
        ("poweroff -f\n", 60, GuestEnd::Lost),
    ];
    for (script, limit_s, end) in ends {
        let mut config = Config::new("ends", script);
        config.limit = Duration::from_secs(limit_s);
        let outcome = run(&config);
        assert_eq!(outcome.end, end, "logs: {}", outcome.logs.display());
        std::fs::remove_dir_all(outcome.logs).expect("its logs");
    }
}
