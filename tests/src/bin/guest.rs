//! Runs one script in a guest by hand: `cargo run -p interop --bin guest --
//! SCRIPT [CPUS [KERNEL WORDS]]`. What it prints is shown as it comes. The
//! program that `WEFT_GUEST_PROGRAM` names is the guest's first virtio disk.

#![forbid(unsafe_code)]

use interop::guest::{Config, End, Guest};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (path, cpus, words) = match args.as_slice() {
        [path] => (path, Ok(1), &[][..]),
        [path, cpus, words @ ..] => (path, cpus.parse(), words),
        _ => {
            eprintln!("usage: guest SCRIPT [CPUS [KERNEL WORDS]]");
            return ExitCode::from(2);
        }
    };
    let script = match std::fs::read_to_string(path) {
        Ok(script) => script,
        Err(e) => {
            eprintln!("{path}: {e}");
            return ExitCode::from(2);
        }
    };
    let Ok(cpus) = cpus else {
        eprintln!("CPUS is a number");
        return ExitCode::from(2);
    };
    let begin = Instant::now();
    let mut config = Config::new("by-hand", &script);
    config.cpus = cpus;
    config.program = std::env::var_os("WEFT_GUEST_PROGRAM").map(PathBuf::from);
    config.kernel_words = words.join(" ");
    config.limit = Duration::from_secs(600);
    let guest = match Guest::start(&config) {
        Ok(guest) => guest,
        Err(e) => {
            eprintln!("no guest: {e}");
            return ExitCode::from(3);
        }
    };
    eprintln!("ready after {:.1?}", begin.elapsed());
    let begin = Instant::now();
    let outcome = guest.finish();
    print!("{}", outcome.output);
    eprintln!(
        "{:?} after {:.1?}, logs: {}",
        outcome.end,
        begin.elapsed(),
        outcome.logs.display()
    );
    match outcome.end {
        End::Exit(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        End::Panic | End::TimedOut | End::Lost => ExitCode::from(4),
    }
}
