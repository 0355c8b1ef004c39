//! Project automation: `cargo xtask ci` is what the README's test command runs.
//!
//! The house rules (which room may use what, where `unsafe` may stand, lengths,
//! documents) are tests of this crate, so plain `cargo test` checks them too.
#![forbid(unsafe_code)]

#[cfg(test)]
mod documents;
#[cfg(test)]
mod rooms;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod style;
mod tools;

use std::process::{Command, ExitCode};
use std::time::Instant;

/// What CI does, in order; the first failure ends it.
const CI: &[(&str, &[&str])] = &[
    ("formatting", &["fmt", "--all", "--check"]),
    (
        "lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    // Unit and property tests, house rules, the fuzzers' corpus, and the tests
    // with real clients.
    ("tests", &["test", "--workspace"]),
    // What a debug build does, a release build may leave out.
    (
        "memory that is touched, in a release build",
        &[
            "test",
            "--release",
            "--package",
            "mem",
            "--lib",
            "--test",
            "resident",
            "--",
            "touched",
        ],
    ),
    // What lies above `mem` is built once more, so that it can be made to do wrong;
    // of the whole workspace, for else its dependencies would be too.
    (
        "the test of the simulator's checker",
        &[
            "test",
            "--workspace",
            "--features",
            "sim/broken",
            "--test",
            "broken",
        ],
    ),
];

/// Cargo's own variable: 0 compiles crates whole.
const INCREMENTAL: &str = "CARGO_INCREMENTAL";

const USAGE: &str = "\
usage: cargo xtask ci                                  formatting, lints and every test, as CI does
       cargo xtask sim [--seeds N] [--from S] [--minutes M]
                                                       the simulator, until a seed fails
       cargo xtask sim --seed S [--trace LINES]        one seed, with what happened last
       cargo xtask shuttle                             models of threads, in many orders
       cargo xtask asan                                the fuzzers' corpus, with AddressSanitizer
       cargo xtask tsan                                writes under readers, with ThreadSanitizer
       cargo xtask mutants                             what guards data, mutated; of the rest a sample";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci(),
        ["sim", ref options @ ..] => sim(options),
        ["shuttle"] => tools::shuttle(),
        ["asan"] => tools::asan(),
        ["tsan"] => tools::tsan(),
        ["mutants"] => tools::mutants(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The simulator, built as it is fastest.
fn sim(options: &[&str]) -> ExitCode {
    let started = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "-p", "sim", "--"])
        .args(options)
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

fn ci() -> ExitCode {
    for (what, arguments) in CI {
        let shown = arguments.join(" ");
        eprintln!("== {what}: cargo {shown}");
        let start = Instant::now();
        let mut command = Command::new(env!("CARGO"));
        command.args(*arguments);
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        if std::env::var_os(INCREMENTAL).is_none() {
            // Much to write and to link for builds of which most are the first.
            command.env(INCREMENTAL, "0");
        }
        match command.status() {
            Ok(status) if status.success() => {
                eprintln!("== {what}: done in {} s", start.elapsed().as_secs());
            }
            Ok(_) => {
                eprintln!("== {what}: FAILED; to repeat it: cargo {shown}");
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("== {what}: cargo does not start: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
