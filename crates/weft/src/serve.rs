//! `weft serve`: from start to an orderly end.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use admin::{AdminPlaces, AdminThread, Document, EventLog, Place, ServedFile};
use control::{BUILT_IN, OneLine};
use reactor::InheritedSockets;
use serde_json::json;
use server::nfs::records::Records;
use server::nfs::{FileSystemKind, FileSystemSpec, Wall};
use server::{AdminSpec, Config, Protocol, Report, Running};

use crate::log::tell_error;
use crate::signals::{self, SignalAsked};
use crate::{FAILURE, INTERNAL, USAGE, banner, service};

/// Connections are closed and volumes synced within this, or the process ends
/// without.
const STOP_MAX: Duration = Duration::from_secs(10);

/// How often to look whether the reactors are alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long to wait for NFS's port that another weft has just left.
const PORT_PATIENCE: Duration = Duration::from_millis(500);

/// Where the built-in configuration serves NFS: where it can be had on this machine.
pub fn nfs_port() -> u16 {
    let listeners = control::default_config().listeners;
    let nfs = listeners.iter().find(|spec| spec.protocol == Protocol::Nfs);
    match nfs.map(|spec| spec.address) {
        Some(address) if can_listen(address) => address.port(),
        _ => control::NFS_PORT_ELSE,
    }
}

fn can_listen(address: SocketAddr) -> bool {
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Ok(_) => return true,
            Err(_) if Instant::now() < give_up => thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
}

/// Serves what `file` or the command line says, or what is built in, until a signal; or what it
/// became by changes that could not be written there.
pub fn run(file: Option<&Path>, one_line: Option<OneLine>, events: Arc<EventLog>) -> ExitCode {
    let (name, text) = match (file, &one_line) {
        (Some(_), _) => Default::default(),
        (None, None) => (BUILT_IN.to_owned(), control::built_in_text(nfs_port())),
        (None, Some(one_line)) => {
            let text = one_line.text();
            // The same command line finds what it became by changes.
            (
                format!("command-line-{}", &admin::sha256(text.as_bytes())[..16]),
                text,
            )
        }
    };
    let (document, config) = match Document::open(file, (&name, &text)) {
        Ok(opened) => opened,
        Err(problems) => {
            // What the options have become by changes has lines.
            let of_options = one_line.as_ref().filter(|_| problems.file == name);
            let told = match of_options {
                Some(one_line) => one_line.told(&problems),
                None => problems.with_excerpts(),
            };
            let _ = write!(io::stderr(), "{told}");
            return ExitCode::from(USAGE);
        }
    };
    for note in document.notes() {
        tracing::warn!("{note}");
    }
    let inherited = match InheritedSockets::take() {
        Ok(inherited) => inherited,
        Err(error) => return fail(&error.to_string()),
    };
    let asked = match signals::signal_requests() {
        Ok(asked) => asked,
        Err(error) => return fail(&format!("signals cannot be handled: {error}")),
    };
    let mut notes = document.notes().to_vec();
    let records = nfs_records(&config, &document).unwrap_or_else(|why| {
        tracing::warn!("{why}");
        notes.push(why);
        None
    });
    let running = match server::start_on(config.clone(), inherited.tcp, records) {
        Ok(running) => Arc::new(running),
        Err(error) => return fail(&error.to_string()),
    };
    if one_line.is_some_and(|one_line| one_line.is_open()) {
        notes.push(
            "whoever reaches its addresses may read and write: `weft dump > weft.toml` writes what \
             is served, to list in it who may"
                .to_owned(),
        );
    }
    let served = Arc::new(ServedFile::new(running.clone(), &config, document, events));
    let admin = open_admin(&config.admin, inherited.unix, &served);
    let reloaded = running.clone();
    let reload = reloader(move || service::tell_reload(&reloaded, || served.reload()));
    let reload = match reload {
        Ok(reload) => reload,
        Err(error) => return fail(&format!("no thread for reloads: {error}")),
    };
    if let Err(error) = service::watch(running.clone()) {
        return fail(&format!("no thread for the watchdog: {error}"));
    }
    print_text(&announce(&running, admin.as_ref(), &notes));
    service::tell_ready(&running);
    until_the_end(&running, &asked, reload)
}

/// What NFS must know after a restart, where the configuration names no folder for it and a file
/// system outlives the process: beside what else is kept of the document, for this user alone.
///
/// # Errors
/// There is none, and what that means.
fn nfs_records(config: &Config, document: &Document) -> Result<Option<Records>, String> {
    let outlives = |spec: &FileSystemSpec| matches!(spec.kind, FileSystemKind::Dir { .. });
    if config.nfs.state.is_some() || !config.file_systems.iter().any(outlives) {
        return Ok(None);
    }
    let opened = document.folder().map_err(str::to_owned).and_then(|folder| {
        let folder = folder.join("nfs");
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        // What state ids of other servers begin with is none of ours.
        let first = Wall::System.time(0).seconds as u32;
        let opened = made.and_then(|()| Records::in_folder(&folder, first));
        opened.map_err(|error| format!("{}: {error}", folder.display()))
    });
    opened.map(Some).map_err(|why| {
        format!(
            "after a restart NFS clients lose the locks and open files that they had, because \
             nothing is known of them: {why}; `state` of [nfs] names a folder that keeps it"
        )
    })
}

/// Has `reload` called in a thread of its own: what hangs below a volume that it opens
/// keeps no signal waiting.
fn reloader(mut reload: impl FnMut() + Send + 'static) -> io::Result<impl Fn()> {
    // One that waits for its turn reads what the file says then.
    let (ask, asked) = mpsc::sync_channel(1);
    let work = move || asked.iter().for_each(|()| reload());
    thread::Builder::new()
        .name("weft-reload".into())
        .spawn(work)?;
    Ok(move || {
        if let Err(TrySendError::Disconnected(())) = ask.try_send(()) {
            tracing::error!("SIGHUP ignored: a reload has failed; report this, and restart weft");
        }
    })
}

/// Opens the admin sockets where they can be had: hosts are served without them all the same.
fn open_admin(
    spec: &AdminSpec,
    listening: Vec<UnixListener>,
    served: &Arc<ServedFile>,
) -> Option<AdminThread> {
    let socket = Place::take(&spec.socket, listening).unwrap_or_else(|why| {
        tracing::warn!(
            why,
            "no admin socket, so `weft status` and `weft apply` do not reach this weft: name \
             another path in `[admin] socket`, or \"off\""
        );
        None
    });
    let tcp = admin::listen(spec).unwrap_or_else(|why| {
        tracing::warn!(
            why,
            "no administration over TCP: name another address in `[admin] listen`, or \"off\", and \
             files that can be read in `[admin.tls]`"
        );
        None
    });
    if socket.is_none() && tcp.is_none() {
        return None;
    }
    match admin::serve(AdminPlaces { socket, tcp }, served.clone()) {
        Ok(thread) => Some(thread),
        Err(error) => {
            tracing::warn!(
                %error,
                "no thread for the admin sockets, so nothing can be asked: raise the limit of \
                 processes (`ulimit -u`), and restart weft"
            );
            None
        }
    }
}

/// Serves until it is asked to end, or a part of it fails.
fn until_the_end(running: &Running, asked: &Receiver<SignalAsked>, reload: impl Fn()) -> ExitCode {
    loop {
        match asked.recv_timeout(LOOK_EVERY) {
            Ok(SignalAsked::Reload) => {
                reload();
                continue;
            }
            Ok(SignalAsked::Counters) => {
                print_text(&counters(&running.report()));
                continue;
            }
            Ok(SignalAsked::Nothing(signal)) => {
                tracing::warn!(
                    signal,
                    "signal ignored: SIGTERM ends weft in order, SIGHUP has it read its \
                     configuration again"
                );
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(SignalAsked::End) => break,
            // It ends by a panic alone before it has said so.
            Err(RecvTimeoutError::Disconnected) => {
                running.stop();
                let why =
                    "the thread that takes signals has failed; report this, and start weft again";
                return end_after(running, io::Error::other(why));
            }
        }
        match running.wait(Duration::ZERO) {
            Ok(None) => {}
            Ok(Some(_)) => return fail("the reactors have ended by themselves"),
            Err(error) => return end_after(running, error),
        }
    }
    service::tell_stopping();
    print_text("stopping; a second signal ends at once\n");
    running.stop();
    match running.wait(STOP_MAX) {
        Ok(Some(report)) => {
            print_text(&format!("{report}\n"));
            match report.unsynced {
                0 => ExitCode::SUCCESS,
                n => fail(&format!(
                    "{n} volumes could not be synced; the log says why"
                )),
            }
        }
        Ok(None) => fail("not everything was closed and synced in time"),
        Err(error) => end_after(running, error),
    }
}

/// A part has failed. The others close their connections, so that hosts go on by
/// other paths, and sync the volumes.
fn end_after(running: &Running, failure: io::Error) -> ExitCode {
    let give_up = Instant::now() + STOP_MAX;
    let mut failure = Some(failure);
    while let Some(error) = failure.take() {
        tell_error(&error);
        match running.wait(give_up.saturating_duration_since(Instant::now())) {
            Err(another) => failure = Some(another),
            Ok(Some(report)) if report.unsynced == 0 => {}
            Ok(_) => tell_error(&"not everything was closed and synced; the log says what"),
        }
    }
    ExitCode::from(INTERNAL)
}

/// What it has done so far, as a line of JSON.
fn counters(report: &Report) -> String {
    let (time, version) = (admin::now(), env!("CARGO_PKG_VERSION"));
    let counters = admin::counters(report);
    let line = json!({ "time": time, "version": version, "counters": counters });
    format!("{line}\n")
}

fn announce(running: &Running, admin: Option<&AdminThread>, notes: &[String]) -> String {
    let (config, addresses) = (running.config(), running.addresses());
    let mut text = format!("weft {} serves\n", env!("CARGO_PKG_VERSION"));
    text += &banner::contents(config, &addresses);
    for why in running.missing() {
        let _ = writeln!(text, "  NOT SERVED: {why}");
    }
    for note in notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text += &banner::notes(config);
    text += &banner::machine(config, running.backend());
    let _ = write!(text, "\n{}", banner::commands(config, &addresses));
    if let Some(path) = admin.and_then(AdminThread::path) {
        let _ = writeln!(text, "  weft status --at {}", path.display());
    }
    if let Some(url) = admin.and_then(AdminThread::url) {
        let _ = writeln!(text, "In a browser {url}, after `weft login`.");
    }
    text += "\nSIGHUP has it read its configuration again, SIGUSR1 asks what it has done so far; \
             Ctrl-C or SIGTERM ends it in order.\n";
    text
}

/// Prints, also to an output that is closed. Hosts are served whether there is room
/// for what is printed or not.
fn print_text(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => tracing::warn!(
            %error,
            "cannot print: free space where standard output goes; weft goes on"
        ),
        _ => {}
    }
}

fn fail(why: &str) -> ExitCode {
    tell_error(&why);
    ExitCode::from(FAILURE)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use reactor::{FileIo, Token};
    use store::{Base, Error, Extent, Io, Progress, ResizeError, Task, Volume};

    /// A volume that does something else when it is synced.
    struct Trap(Arc<dyn Volume>, Box<dyn Fn() + Send + Sync>);

    impl Volume for Trap {
        fn base(&self) -> &Base {
            self.0.base()
        }

        fn start(&self, io: Io, _: &mut dyn FileIo, _: Token) -> Progress {
            (self.1)();
            panic!("the trap was used: {io:?}");
        }

        fn resume(&self, _: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
            unreachable!("it waits for nothing")
        }

        fn resize(&self, _: u64, _: bool) -> Result<(), ResizeError> {
            unreachable!("no test asks")
        }

        fn extents(&self, _: u64, _: u64, _: usize, _: &mut Vec<Extent>) -> Result<(), Error> {
            unreachable!("no test asks")
        }
    }

    fn trapped(synced: impl Fn() + Send + Sync + 'static) -> Running {
        let mut config = control::default_config();
        config.file_systems.clear();
        config.exports.clear();
        // NVMe/TCP's and iSCSI's, which one portal group names.
        config.listeners.truncate(2);
        for listener in &mut config.listeners {
            listener.address.set_port(0);
        }
        let volume = store::open(&config.volumes[0]).expect("memory");
        let trap: Arc<dyn Volume> = Arc::new(Trap(volume, Box::new(synced)));
        server::parts::start_with(config, vec![trap]).expect("starts")
    }

    #[test]
    fn end_waits_for_no_reload_and_reloads_that_wait_are_one() {
        let (began, begins) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let reload = reloader(move || {
            let _ = began.send(());
            let _ = may_go.recv();
        });
        let reload = reload.expect("a thread");
        let mut config = control::default_config();
        config.listeners.clear();
        config.subsystems.clear();
        config.iscsi_targets.clear();
        config.exports.clear();
        let running = server::start(config).expect("starts");
        let (tell, asked) = mpsc::channel();
        tell.send(SignalAsked::Reload).expect("it listens");
        let hung = thread::scope(|scope| {
            let (running, reload) = (&running, &reload);
            let end = scope.spawn(move || until_the_end(running, &asked, reload));
            begins.recv().expect("asked");
            for _ in 0..10 {
                tell.send(SignalAsked::Reload).expect("it listens");
            }
            tell.send(SignalAsked::End).expect("it listens");
            end.join().expect("no panic")
        });
        assert_eq!(hung, ExitCode::SUCCESS);
        drop(reload);
        drop(go);
        assert_eq!(begins.iter().count(), 1, "one for all that came meanwhile");
    }

    #[test]
    fn panic_during_the_end_has_its_own_exit_code_with_and_without_a_signal() {
        for is_asked in [true, false] {
            let running = trapped(|| ());
            let (tell, asked) = mpsc::channel();
            match is_asked {
                true => tell.send(SignalAsked::End).expect("it listens"),
                false => running.stop(),
            }
            let code = until_the_end(&running, &asked, || unreachable!("not asked"));
            assert_eq!(code, ExitCode::from(INTERNAL));
            assert_eq!(running.report().unsynced, 1);
        }
    }

    #[test]
    fn reactor_that_hangs_is_silent() {
        let (began, begins) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let may_go = Mutex::new(may_go);
        let running = trapped(move || {
            let _ = began.send(());
            let _ = may_go.lock().expect("no panic").recv();
        });
        assert_eq!(service::silent_reactors(&running), 0);
        running.stop();
        begins.recv().expect("synced at the end");
        assert_ne!(service::silent_reactors(&running), 0);
        drop(go);
        let ended = running.wait(STOP_MAX);
        assert!(ended.is_err(), "the trap panics: {ended:?}");
    }
}
