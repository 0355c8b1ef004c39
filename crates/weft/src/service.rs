//! weft as a service: what it tells the service manager that started it (sd_notify(3)). Where
//! none asks, nothing is told.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;
use server::Running;

/// Reactors are asked no more often, whatever the service manager says.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Hosts can connect.
pub fn tell_ready(running: &Running) {
    tell(&[
        NotifyState::Ready,
        NotifyState::Status(&status_line(running)),
    ]);
}

/// Tells that a reload is under way while `reload` runs.
pub fn tell_reload(running: &Running, reload: impl FnOnce()) {
    // Of a reload, systemd 253 and later want to know when it began.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager is not told of a reload"),
    }
    reload();
    tell_ready(running);
}

/// Connections are closed and volumes synced.
pub fn tell_stopping() {
    let what = "closes its connections and syncs its volumes";
    tell(&[NotifyState::Stopping, NotifyState::Status(what)]);
}

/// Tells from a thread of its own, as often as the service manager asks, that every reactor
/// answers. One that hangs is not told of, so that weft is started anew; a disk that hangs
/// keeps no reactor.
///
/// # Errors
/// The thread cannot be started.
pub fn watch(running: Arc<Running>) -> io::Result<()> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return Ok(());
    };
    let look = move || {
        loop {
            match silent_reactors(&running) {
                0 => tell(&[NotifyState::Watchdog]),
                count => tracing::error!(
                    count,
                    "reactors do not answer: the service manager ends weft unless they do within \
                     its WatchdogSec"
                ),
            }
            thread::sleep((limit / 3).max(LOOK_PAUSE_MIN));
        }
    };
    let thread = thread::Builder::new().name("weft-watchdog".into());
    thread.spawn(look).map(drop)
}

/// How many reactors say nothing when they are asked.
pub fn silent_reactors(running: &Running) -> u64 {
    running.report().silent
}

/// One line of what is served now.
fn status_line(running: &Running) -> String {
    let addresses = running.addresses();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut line = match running.volumes().len() {
        1 => "1 volume".to_owned(),
        count => format!("{count} volumes"),
    };
    match addresses.is_empty() {
        true => line += ", no listener",
        false => line = format!("{line}, listens on {}", addresses.join(", ")),
    }
    match running.missing().len() {
        0 => line,
        count => format!("{line}; {count} NOT SERVED at the start: the log says why"),
    }
}

/// A service manager that cannot be told costs nothing else.
fn tell(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told (NOTIFY_SOCKET)");
    }
}
