//! What looks at weft with other eyes than its tests. Not a part of CI: it builds
//! everything anew.

use std::process::{Command, ExitCode};

/// Models of threads, and the planted faults that they must find.
const SHUTTLE: &[&str] = &[
    "test",
    "--package",
    "mem",
    "--package",
    "reactor",
    "--features",
    "mem/broken",
    "--lib",
    "--",
    "model_",
];

/// Threads in orders that a scheduler draws.
pub fn shuttle() -> ExitCode {
    eprintln!("== cargo {}", SHUTTLE.join(" "));
    let started = Command::new(env!("CARGO"))
        .args(SHUTTLE)
        .env("CARGO_TARGET_DIR", "target/shuttle")
        .env("RUSTFLAGS", "--cfg shuttle")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status();
    match started {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo does not start: {error}");
            ExitCode::FAILURE
        }
    }
}
