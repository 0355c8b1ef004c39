//! A target that may not do everything: no rights, no io_uring.

#![forbid(unsafe_code)]

use interop::weft::{FALLBACK, Setup, WeftProcess};
use needs::needs;

const DENY_IO_URING: &str = env!("CARGO_BIN_EXE_deny_io_uring");

/// Mixed load with every block stamped and checked, on several connections.
fn verified_load(target: &WeftProcess) {
    let load = [
        "--rw=randrw",
        "--bs=16k",
        "--iodepth=16",
        "--numjobs=2",
        "--size=32M",
        "--ramp-time=0s",
        "--runtime=1s",
        "--verify",
    ];
    target.perf(&load);
}

fn fallbacks(target: &WeftProcess) -> usize {
    target
        .log()
        .lines()
        .filter(|line| line.contains(FALLBACK))
        .count()
}

/// Serves as a user without rights, on each kind of volume.
fn as_ordinary_user(look: impl Fn(&WeftProcess)) {
    for volume in ["ram", "file"] {
        let setup = Setup {
            volume,
            unprivileged: true,
            ..Setup::default()
        };
        let target = WeftProcess::start("unprivileged", setup);
        let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid()));
        let status = status.expect("it runs");
        let effective = status.lines().find(|line| line.starts_with("CapEff:"));
        assert_eq!(
            effective,
            Some("CapEff:\t0000000000000000"),
            "no capability"
        );
        look(&target);
        target.expect_orderly_end();
    }
}

#[test]
fn an_ordinary_user_serves() {
    as_ordinary_user(verified_load);
}

#[needs(io_uring)]
#[test]
fn an_ordinary_user_has_io_uring() {
    as_ordinary_user(|target| assert_eq!(fallbacks(target), 0, "{}", target.log()));
}

fn without_io_uring(errno: &'static str, why: &str) {
    let setup = Setup {
        volume: "file",
        unprivileged: true,
        launcher: Some((DENY_IO_URING, errno)),
        ..Setup::default()
    };
    let target = WeftProcess::start(errno, setup);
    verified_load(&target);
    assert_eq!(fallbacks(&target), 1, "{}", target.log());
    assert!(
        target.log().contains(why),
        "the reason is told: {}",
        target.log()
    );
    target.expect_orderly_end();
}

#[test]
fn io_uring_not_permitted() {
    without_io_uring("EPERM", "denied");
}

#[test]
fn io_uring_not_there() {
    without_io_uring("ENOSYS", "has no io_uring");
}

/// Forced to io_uring, a target without it says so and ends.
#[test]
fn io_uring_forced_but_denied() {
    let setup = Setup {
        io: "io_uring",
        launcher: Some((DENY_IO_URING, "EPERM")),
        ..Setup::default()
    };
    let log = WeftProcess::expect_refusal("forced", setup);
    assert!(log.contains("denied"), "the reason is told: {log}");
}

/// What containers of weft may call. seccompiler refuses a name that its architecture has not,
/// which runtimes pass over.
#[cfg(target_arch = "x86_64")]
mod profile {
    use super::*;
    use std::process::Command;

    const UNDER_PROFILE: &str = env!("CARGO_BIN_EXE_under_profile");
    const PROFILE: &str = include_str!("../../packaging/seccomp.json");

    /// Serves on each kind of volume with no more calls than the profile has.
    fn under_profile(io: &'static str) {
        for volume in ["ram", "file"] {
            let setup = Setup {
                io,
                volume,
                unprivileged: true,
                launcher: Some((UNDER_PROFILE, PROFILE)),
                ..Setup::default()
            };
            let target = WeftProcess::start("profile", setup);
            let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid()));
            let status = status.expect("it runs");
            assert!(status.contains("Seccomp:\t2"), "{status}");
            verified_load(&target);
            assert_eq!(fallbacks(&target), 0, "{}", target.log());
            target.expect_orderly_end();
        }
    }

    #[test]
    fn lets_it_serve_by_epoll() {
        under_profile("epoll");
    }

    #[needs(io_uring)]
    #[test]
    fn lets_it_serve_by_io_uring() {
        under_profile("io_uring");
    }

    /// personality(2), which every user may call.
    #[needs(program(setarch))]
    #[test]
    fn call_that_is_not_in_it_is_denied() {
        let outcome = |command: &mut Command| {
            let output = command.args(["--addr-no-randomize", "/bin/true"]).output();
            let output = output.expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), said)
        };
        assert_eq!(outcome(&mut Command::new("setarch")), (true, String::new()));
        let (succeeds, said) = outcome(Command::new(UNDER_PROFILE).args([PROFILE, "setarch"]));
        assert!(
            !succeeds && said.contains("Operation not permitted"),
            "{said}"
        );
    }
}
