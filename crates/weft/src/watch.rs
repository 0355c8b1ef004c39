//! An answer that is printed anew, again and again.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;

/// For commands that show what is so now.
#[derive(Args)]
pub struct WatchArgs {
    /// Print it anew every so many seconds (2) until Ctrl-C: on a terminal in place, else one
    /// after another
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400)
    )]
    watch: Option<u64>,
}

/// Runs `print`, which prints an answer: once, or again and again. One that fails at first
/// fails; later weft may be about to start anew.
pub fn watched(
    arguments: &WatchArgs,
    mut print: impl FnMut() -> io::Result<ExitCode>,
) -> io::Result<ExitCode> {
    let Some(seconds) = arguments.watch else {
        return print();
    };
    let is_terminal = io::stdout().is_terminal();
    let mut is_first = true;
    loop {
        if is_terminal {
            // To the upper left, and nothing below (ECMA-48, CUP and ED).
            io::stdout().write_all(b"\x1b[H\x1b[J")?;
        }
        let ended = print()?;
        if is_first && ended != ExitCode::SUCCESS {
            return Ok(ended);
        }
        is_first = false;
        thread::sleep(Duration::from_secs(seconds));
    }
}
