//! Tests with real clients: an unmodified Linux kernel in a QEMU guest, and
//! programs on this machine, against the `weft` binary.
//!
//! [`packages`] fetches a distribution's own packages into a cache folder,
//! [`initramfs`] makes a guest of them, [`guest`] runs a script in one,
//! [`weft`] runs the target, [`suite`] libiscsi's conformance tests. Nothing is installed on the machine, nothing
//! needs root. `tests/README.md` says how to run one script by hand.

#![forbid(unsafe_code)]

pub mod child;
pub mod client;
pub mod files;
pub mod guest;
pub mod initramfs;
pub mod packages;
pub mod scripts;
pub mod suite;
pub mod weft;

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

/// Why a guest cannot be had on this machine, in words for the one who runs
/// the tests.
#[derive(Clone, Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Unavailable {
    /// Prefixes what was being done.
    pub fn wrap(what: impl fmt::Display, why: impl fmt::Display) -> Unavailable {
        Unavailable(format!("{what}: {why}"))
    }
}

/// Says on standard error, past the test runner's capture, that a test did
/// not run, and why. Where it must run (`CI=true`, as root) this panics.
pub fn skip(test: &str, why: &Unavailable) {
    let line = format!("SKIPPED: {test}: {why}\n");
    // A closed standard error is no reason to fail a test that did not run.
    let _ = std::io::stderr().write_all(line.as_bytes());
    assert!(!(is_ci() && is_root()), "{test} must run here: {why}");
}

/// Whether CI asks, which waits longer (`CI=true`).
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}

/// Whether a test is left to CI, which is said on standard error: of several that go
/// the same way the others are enough for who waits for them.
pub fn is_left_to_ci(test: &str) -> bool {
    let is_left = !is_ci();
    if is_left {
        let line = format!("LEFT TO CI: {test}: CI=true runs it\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    is_left
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1))
        == Some("0")
}

/// The workspace's build folder.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => workspace_dir().join("target"),
    }
}

/// The workspace's root.
pub fn workspace_dir() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.parent().map(PathBuf::from).unwrap_or(tests)
}
