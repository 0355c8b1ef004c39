//! Runs seeds until one fails: what `cargo xtask sim` starts.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Lines of a trace that a failure shows.
const TRACE_LINES: usize = 120;

const USAGE: &str = "\
usage: sim [--from S] [--seeds N] [--minutes M]   seeds from S on, until one fails
       sim --seed S [--trace LINES]               one seed, with what happened last";

struct Options {
    from: u64,
    seeds: u64,
    minutes: Option<u64>,
    trace: usize,
}

fn options() -> Option<Options> {
    let mut options = Options {
        from: 0,
        seeds: 10_000,
        minutes: None,
        trace: 0,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--from" => options.from = value,
            "--seeds" => options.seeds = value,
            "--minutes" => {
                options.minutes = Some(value);
                options.seeds = u64::MAX;
            }
            "--seed" => {
                (options.from, options.seeds) = (value, 1);
                options.trace = TRACE_LINES;
            }
            "--trace" => options.trace = value as usize,
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        tell(&format_args!("sim: cannot print: {error}"));
        ExitCode::FAILURE
    })
}

fn tell(what: &dyn Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Fails where it cannot print.
fn run() -> io::Result<ExitCode> {
    let Some(options) = options() else {
        tell(&USAGE);
        return Ok(ExitCode::from(2));
    };
    let start = Instant::now();
    let limit = options.minutes.map(|m| Duration::from_secs(m * 60));
    let mut total = sim::RunOutcome::default();
    let mut seeds = 0;
    while seeds < options.seeds && limit.is_none_or(|limit| start.elapsed() < limit) {
        let seed = options.from + seeds;
        let outcome = match sim::run(seed, options.trace) {
            Ok(outcome) => outcome,
            Err(_) if options.trace == 0 => {
                // The same again, and this time it is written down.
                match sim::run(seed, TRACE_LINES) {
                    Err(failure) => tell(&failure),
                    Ok(_) => tell(&format_args!("seed {seed} failed once and not again")),
                }
                return Ok(ExitCode::FAILURE);
            }
            Err(failure) => {
                tell(&failure);
                return Ok(ExitCode::FAILURE);
            }
        };
        if options.seeds == 1 {
            writeln!(io::stdout(), "{outcome:?}")?;
        }
        total.add(&outcome);
        seeds += 1;
    }
    tell_totals(&total, options.from, seeds, start)?;
    Ok(ExitCode::SUCCESS)
}

fn tell_totals(total: &sim::RunOutcome, from: u64, seeds: u64, start: Instant) -> io::Result<()> {
    writeln!(
        io::stdout(),
        "{seeds} seeds from {}: {} operations, {} answers checked, {} commands failed, hosts came \
         up {} times, {} of them iSCSI sessions, {} NBD clients, {} by TLS, {} of these by a key that they had \
         made, {} authenticated, {} with another key, secret or name, {} bits flipped, {} of them under TLS, {} task management functions, {} \
         faults, {} documents applied, {} taken back, {} refused, {} snapshots, {} s",
        from,
        total.ops,
        total.checked,
        total.failed,
        total.lives,
        total.sessions,
        total.by_nbd,
        total.secured,
        total.concatenated,
        total.authenticated,
        total.odd_arrivals,
        total.flips.iter().sum::<u64>(),
        total.secured_flips,
        total.functions,
        total.faults,
        total.applies[0],
        total.applies[1],
        total.applies[2],
        total.snapshots,
        start.elapsed().as_secs()
    )?;
    let nfs = &total.nfs;
    writeln!(
        io::stdout(),
        "NFS: {} answers checked, clients came up {} times, {} of them to take back what they had; \
         {} calls repeated on another connection, {} without an outcome, {} writes made again after \
         a restart, {} delegations, of which clients were asked {} times, came up {} times by TLS, {} bits flipped, {} answers checked of \
         users who prove who they are",
        nfs.checked,
        nfs.lives,
        nfs.reclaimed,
        nfs.repeated,
        nfs.lost,
        nfs.rewritten,
        nfs.delegations,
        nfs.asked,
        nfs.secured,
        nfs.flips,
        nfs.proven
    )
}
