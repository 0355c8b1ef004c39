//! `weft serve`: from start to an orderly end.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use target::{Config, Running, StartError};

use crate::{FAILURE, banner};

/// Connections are closed and volumes synced within this, or the process ends
/// without.
const STOP_MAX: Duration = Duration::from_secs(10);

/// How often to look whether the reactors are alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serves until a signal.
pub fn run(config: Config) -> ExitCode {
    let signal = match first_signal() {
        Ok(signal) => signal,
        Err(error) => return fail(&format!("signals cannot be handled: {error}")),
    };
    let running = match target::start(config.clone()) {
        Ok(running) => running,
        Err(error) => return fail(&explain(&error)),
    };
    say(&announce(&config, &running));
    while signal.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        if !running.is_running() {
            return fail("a reactor has ended by itself; the log above says why");
        }
    }
    say("stopping; a second signal ends at once\n");
    let report = running.stop(STOP_MAX);
    say(&report.to_string());
    match report.is_clean() {
        true => ExitCode::SUCCESS,
        false => fail("not everything was closed and synced in time"),
    }
}

/// Yields once, at the first SIGINT or SIGTERM; the second ends the process.
fn first_signal() -> io::Result<Receiver<()>> {
    const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
    let came = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        // In this order, or the first signal would end the process already.
        flag::register_conditional_shutdown(signal, FAILURE.into(), Arc::clone(&came))?;
        flag::register(signal, Arc::clone(&came))?;
    }
    let mut signals = Signals::new(SIGNALS)?;
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                // The receiver is gone if the process is ending anyway.
                let _ = tell.send(());
            }
        })?;
    Ok(told)
}

fn announce(config: &Config, running: &Running) -> String {
    let addresses = running.addresses();
    let mut text = format!("weft {} serves\n", env!("CARGO_PKG_VERSION"));
    text += &banner::contents(config, addresses);
    text += &banner::machine(config, running.driver());
    let _ = write!(text, "\n{}", banner::commands(config, addresses));
    text += "\nCtrl-C or SIGTERM ends it in order.\n";
    text
}

/// What is wrong, and what to do about it.
fn explain(error: &StartError) -> String {
    let hint = match error {
        StartError::Listen { address, error } => match error.kind() {
            ErrorKind::AddrInUse => format!(
                "; another process listens there (`ss -ltnp 'sport = :{}'` shows it): \
                 end it, or write another address under [[listener]] and `serve -c FILE`",
                address.port()
            ),
            ErrorKind::PermissionDenied => {
                "; ports below 1024 are for root: write another one under [[listener]]".into()
            }
            ErrorKind::AddrNotAvailable => {
                "; no interface of this machine has that address: `ip address` shows those it has"
                    .into()
            }
            _ => String::new(),
        },
        _ => String::new(),
    };
    format!("{error}{hint}")
}

/// Prints, and does not mind if nobody reads.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn fail(why: &str) -> ExitCode {
    eprintln!("weft: {why}");
    ExitCode::from(FAILURE)
}
