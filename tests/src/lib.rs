//! Tests with real clients: an unmodified Linux kernel in a QEMU guest, and
//! programs on this machine, against the `weft` binary.
//!
//! [`systems`] says what guests are made of, [`packages`] fetches a distribution's own packages
//! into a cache folder,
//! [`initramfs`] makes a guest of them, [`guest`] runs a script in one,
//! [`weft`] runs the target, [`suite`] libiscsi's conformance tests. Nothing is installed on the machine, nothing
//! needs root. `tests/README.md` says how to run one script by hand.

#![forbid(unsafe_code)]

pub mod browser;
pub mod certificates;
pub mod child;
pub mod client;
pub mod default_target;
pub mod files;
pub mod guest;
pub mod initramfs;
pub mod kdc;
mod kernel_module;
pub mod packages;
pub mod prometheus;
pub mod python;
pub mod relay;
pub mod scripts;
pub mod suite;
pub mod systems;
pub mod ways;
pub mod weft;

use std::fmt;
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

/// Whether tests may take longer (`CI=true`).
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true" || v == "1")
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
