//! Runs one script in a guest by hand: `cargo run -p interop --bin guest --
//! SCRIPT [CPUS [KERNEL WORDS]]`. What it prints is shown as it comes. The
//! program that `WEFT_GUEST_PROGRAM` names is the guest's first virtio disk;
//! `WEFT_GUEST_FORWARD=HERE:THERE` leads a port of 127.0.0.1 to one of the guest's;
//! `WEFT_GUEST_SYSTEM` names the system that the guest is made of.

#![forbid(unsafe_code)]

use interop::guest::{Config, Guest, GuestEnd, GuestOutcome};
use interop::systems::{FORKY, RELEASE, SIW, TRIXIE};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
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
    if let Ok(name) = std::env::var("WEFT_GUEST_SYSTEM") {
        let Some(system) = [&RELEASE, &FORKY, &TRIXIE, &SIW]
            .into_iter()
            .find(|s| s.name == name)
        else {
            eprintln!("WEFT_GUEST_SYSTEM: no system {name} in tests/src/systems.rs");
            return ExitCode::from(2);
        };
        config.system = system;
    }
    config.program = std::env::var_os("WEFT_GUEST_PROGRAM").map(PathBuf::from);
    config.kernel_words = words.join(" ");
    let forward = std::env::var("WEFT_GUEST_FORWARD").unwrap_or_default();
    if let Some((here, there)) = forward.split_once(':') {
        let (Ok(here), Ok(there)) = (here.parse(), there.parse()) else {
            eprintln!("WEFT_GUEST_FORWARD is HERE:THERE, two ports");
            return ExitCode::from(2);
        };
        config.forwards.push((here, there));
    }
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
    let outcome = shown(guest);
    eprintln!(
        "{:?} after {:.1?}, logs: {}",
        outcome.end,
        begin.elapsed(),
        outcome.logs.display()
    );
    match outcome.end {
        GuestEnd::Exit(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        GuestEnd::Panic | GuestEnd::TimedOut | GuestEnd::Lost => ExitCode::from(4),
    }
}

/// Waits for a guest's end and prints meanwhile what it says.
fn shown(guest: Guest) -> GuestOutcome {
    let (output, has_ended) = (guest.output_file(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (output, has_ended) = (&output, &has_ended);
        scope.spawn(move || {
            let mut printed = 0;
            loop {
                // Asked before it is read, or the end could be missed.
                let is_last = has_ended.load(Ordering::Acquire);
                let said = std::fs::read(output).unwrap_or_default();
                let mut out = std::io::stdout().lock();
                // Where that fails the reader is gone.
                let _ = out.write_all(&said[printed.min(said.len())..]);
                let _ = out.flush();
                printed = said.len();
                if is_last {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        let outcome = guest.finish();
        has_ended.store(true, Ordering::Release);
        outcome
    })
}
