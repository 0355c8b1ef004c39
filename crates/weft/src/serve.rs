//! `weft serve`: from start to an orderly end.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde_json::json;
use target::{Config, Protocol, Report, Running};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::signals::{self, Asked};
use crate::{FAILURE, banner};

/// Connections are closed and volumes synced within this, or the process ends
/// without.
const STOP_MAX: Duration = Duration::from_secs(10);

/// How often to look whether the reactors are alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long to wait for NFS's port that another weft has just left.
const PORT_PATIENCE: Duration = Duration::from_millis(500);

/// The built-in configuration: NFS where it can be had on this machine.
pub fn default_config() -> Config {
    let mut config = control::default_config();
    for listener in &mut config.listeners {
        if listener.protocol == Protocol::Nfs && !can_listen(listener.address) {
            listener.address.set_port(control::NFS_PORT_ELSE);
        }
    }
    config
}

fn can_listen(address: SocketAddr) -> bool {
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Ok(_) => return true,
            Err(_) if Instant::now() < give_up => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
}

/// Serves until a signal.
pub fn run(config: Config) -> ExitCode {
    let asked = match signals::asked() {
        Ok(asked) => asked,
        Err(error) => return fail(&format!("signals cannot be handled: {error}")),
    };
    let mut running = match target::start(config.clone()) {
        Ok(running) => running,
        Err(error) => return fail(&error.to_string()),
    };
    say(&announce(&config, &running));
    loop {
        match asked.recv_timeout(LOOK_EVERY) {
            Ok(Asked::Counters) => {
                say(&counters(&running.report()));
                continue;
            }
            Ok(Asked::Nothing(signal)) => {
                tracing::warn!(
                    signal,
                    "signal ignored: the configuration is read at the start alone; SIGTERM ends \
                     weft in order"
                );
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Asked::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
        match running.wait(Duration::ZERO) {
            Ok(None) => {}
            Ok(Some(_)) => return fail("the reactors have ended by themselves"),
            Err(error) => return fail(&format!("a reactor has failed: {error}")),
        }
    }
    say("stopping; a second signal ends at once\n");
    running.stop();
    match running.wait(STOP_MAX) {
        Ok(Some(report)) => {
            say(&format!("{report}\n"));
            match report.unsynced {
                0 => ExitCode::SUCCESS,
                n => fail(&format!(
                    "{n} volumes could not be synced; the log says why"
                )),
            }
        }
        Ok(None) => fail("not everything was closed and synced in time"),
        Err(error) => fail(&format!("a reactor has failed: {error}")),
    }
}

/// What it has done so far, as a line of JSON.
fn counters(report: &Report) -> String {
    let (driver, memory) = (&report.driver, &report.memory);
    let counters = json!({
        "ios": report.ios,
        "io_bytes": report.io_bytes,
        "nfs_calls": report.nfs_calls,
        "syscalls": driver.syscalls,
        "wakeups": driver.wakeups,
        "receives": driver.recvs,
        "received_bytes": driver.recv_bytes,
        "sends": driver.sends,
        "sent_bytes": driver.send_bytes,
        "partial_sends": driver.partial_sends,
        "zero_copy_sends": driver.zero_copy_sends,
        "zero_copy_registered": driver.zero_copy_registered,
        "zero_copy_copied": driver.zero_copy_copied,
        "zero_copy_refused": driver.zero_copy_refused,
        "zero_copy_given_up": driver.zero_copy_given_up,
        "buffers_registered": driver.buffers_registered,
        "starved_receives": driver.starved_recvs,
        "file_operations": driver.file_ops,
        "copied_bytes": memory.copied_bytes,
        "digested_bytes": memory.digested_bytes,
        "allocations": memory.allocations,
        "buffer_bytes": report.pool_bytes,
        "spun_ns": report.spun_ns,
        "refusals": report.refusals,
        "orphans": report.orphans,
    });
    let version = env!("CARGO_PKG_VERSION");
    let line = json!({ "time": now(), "version": version, "counters": counters });
    format!("{line}\n")
}

/// The time, as the log writes it.
fn now() -> String {
    let mut text = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut text));
    written.expect("a text takes everything");
    text
}

fn announce(config: &Config, running: &Running) -> String {
    let addresses = running.addresses();
    let mut text = format!("weft {} serves\n", env!("CARGO_PKG_VERSION"));
    text += &banner::contents(config, &addresses);
    for why in running.missing() {
        let _ = writeln!(text, "  NOT SERVED: {why}");
    }
    text += &banner::notes(config);
    text += &banner::machine(config, running.backend());
    let _ = write!(text, "\n{}", banner::commands(config, &addresses));
    text += "\nSIGUSR1 asks what it has done so far; Ctrl-C or SIGTERM ends it in order.\n";
    text
}

/// Prints, and does not mind if nobody reads.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn fail(why: &str) -> ExitCode {
    // Its end is in order, whoever reads why.
    let _ = writeln!(io::stderr(), "weft: {why}");
    ExitCode::from(FAILURE)
}
