//! Project automation: `cargo xtask ci` is the README's test command.
//!
//! The house rules (which room may use what, import cycles, where `unsafe` may stand, lengths,
//! documents) are tests of this crate, so plain `cargo test` checks them too.
#![forbid(unsafe_code)]

mod ci;
mod container;
#[cfg(test)]
mod cycles;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod names;
mod package;
#[cfg(test)]
mod rooms;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod style;
mod tools;

use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask ci                                  formatting, lints and every test, as CI does:
                                                       exit code 1 if something fails, 3 if all
                                                       passes that this machine can run
       cargo xtask quick                               formatting, lints, tests of units and machines
       cargo xtask sim [--seeds N] [--from S] [--minutes M]
                                                       the simulator, until a seed fails
       cargo xtask sim --seed S [--trace LINES]        one seed, with what happened last
       cargo xtask shuttle                             models of threads, in many orders
       cargo xtask asan                                the fuzzers' corpus, with AddressSanitizer
       cargo xtask tsan                                writes under readers, with ThreadSanitizer
       cargo xtask mutants                             what guards data, mutated; of the rest a sample
       cargo xtask miri                                raw memory, under Miri
       cargo xtask msrv                                the oldest compiler that is supported
       cargo xtask aarch64                             64-bit Arm, checked by the compiler
       cargo xtask musl                                weft with musl, checked by the compiler
       cargo xtask package                             packages for Debian and RPM in target/package
       cargo xtask lab package                         the same, installed, upgraded and removed in a
                                                       container under systemd; needs root and Debian
       cargo xtask static                              weft without libraries in target/static, and
                                                       what a container image is built of
       cargo xtask lab container                       that image, built and run by podman; needs
                                                       root and Debian
       cargo xtask lab schemathesis                    requests made up of the API's description, many
       cargo xtask lab story                           an operator's day three times, each way
       cargo xtask lab guests                          guests of whose kind the tests have another
       cargo xtask lab secure                          TLS and authentication between the kernel's
                                                       own two sides, in the guests that weft is
                                                       tried with
       cargo xtask lab kills                           weft, killed a thousand times under writes
       cargo xtask lab directories                     directories of ten million files; takes 16 GiB
       cargo xtask deny                                advisories, licences and sources of dependencies
       cargo xtask coverage                            lines that tests of units and machines reach";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::ci(),
        ["quick"] => ci::quick(),
        ["sim", ref options @ ..] => sim(options),
        ["shuttle"] => tools::shuttle(),
        ["asan"] => tools::asan(),
        ["tsan"] => tools::tsan(),
        ["mutants"] => tools::mutants(),
        ["miri"] => tools::check(&tools::MIRI),
        ["msrv"] => tools::check(&tools::MSRV),
        ["musl"] => tools::check(&tools::MUSL),
        ["aarch64"] => tools::check(&tools::AARCH64),
        ["package"] => package::package(),
        ["lab", "package"] => package::lab(),
        ["static"] => container::built(),
        ["lab", "container"] => container::lab(),
        ["lab", "schemathesis"] => tools::schemathesis(),
        ["lab", "story"] => tools::story(),
        ["lab", "guests"] => tools::guests(),
        ["lab", "secure"] => tools::secure(),
        ["lab", "kills"] => tools::kills(),
        ["lab", "directories"] => tools::directories(),
        ["deny"] => tools::check(&tools::DENY),
        ["coverage"] => tools::check(&tools::COVERAGE),
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
