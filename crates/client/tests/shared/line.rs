//! `weft perf` as a user types it.

use std::sync::atomic::AtomicBool;

use clap::Parser;
use client::perf::{PerfArgs, Report, measure};

#[derive(Parser)]
struct PerfLine {
    #[command(flatten)]
    args: PerfArgs,
}

/// What `words` behind `weft perf` mean, with a client that does not spin.
pub fn args(words: &str) -> Result<PerfArgs, String> {
    let line = format!("perf --spin-us=0 {words}");
    let line = PerfLine::try_parse_from(line.split_whitespace());
    line.map(|line| line.args)
        .map_err(|error| error.to_string())
}

/// Runs that load.
pub fn perf(words: &str, stop: &AtomicBool) -> Result<Report, String> {
    measure(&args(words)?, stop)
}
