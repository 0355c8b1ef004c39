//! weft under a service manager: what it is handed, and what it tells.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::serving::{end_of, file, free_port, good, serve_by, text, weft};

/// weft with `socket` as the one that the service manager hands over.
fn weft_on(socket: OwnedFd) -> Command {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_weft")]);
    command.stdin(Stdio::from(socket));
    command
}

/// What a service manager listens on.
fn notify_socket(folder: &std::path::Path) -> (UnixDatagram, std::path::PathBuf) {
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path).expect("free");
    let patience = Some(Duration::from_secs(30));
    socket.set_read_timeout(patience).expect("a socket");
    (socket, path)
}

/// The next message that holds `part`.
fn told(socket: &UnixDatagram, part: &str) -> String {
    let mut bytes = [0; 4096];
    loop {
        let read = match socket.recv(&mut bytes) {
            // Some stop of this process; a socket with a timeout does not go on by itself.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.expect("it tells"),
        };
        let message = text(&bytes[..read]);
        if message.contains(part) {
            return message;
        }
    }
}

#[test]
fn service_manager_is_told_of_start_reload_reactors_that_answer_and_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, path) = notify_socket(folder.path());
    let port = free_port();
    let file = file(&good(port));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", "300000");
    let serving = serve_by(command, &file.path, Stdio::piped());
    let ready = told(&socket, "READY=1");
    let status = format!("STATUS=1 volume, listens on 127.0.0.1:{port}");
    assert!(ready.lines().any(|line| line == status), "{ready}");
    for _ in 0..3 {
        told(&socket, "WATCHDOG=1");
    }
    serving.signal("HUP");
    let reloading = told(&socket, "RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    told(&socket, "READY=1");
    serving.signal("TERM");
    told(&socket, "STOPPING=1");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn service_manager_that_is_gone_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, path) = notify_socket(folder.path());
    drop(socket);
    let file = file(&good(free_port()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("NOTIFY_SOCKET", &path);
    let mut serving = serve_by(command, &file.path, Stdio::piped());
    serving.log_line("the service manager cannot be told");
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn socket_that_listens_already_is_served_and_listens_on_after_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    for io in ["auto", "epoll", "auto"] {
        // It queues up before weft is there.
        let early = TcpStream::connect(address).expect("it listens");
        let io = format!("io = \"{io}\"\n");
        let file = file(&(good(address.port()) + &io));
        // This process has it too: weft could not bind it.
        let command = weft_on(listener.try_clone().expect("a socket").into());
        let serving = serve_by(command, &file.path, Stdio::piped());
        let found = weft(&["discover", &address.to_string()]);
        assert!(text(&found.stdout).contains("nqn.2026-01.io.weft:cli"));
        serving.signal("TERM");
        assert_eq!(serving.end().0, Some(0));
        drop(early);
    }
}

#[test]
fn socket_that_fits_no_listener_is_told_by_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let file = file(&good(free_port()));
    let mut command = weft_on(listener.into());
    let output = end_of(command.args(["serve", "-c"]).arg(&file.path));
    let why = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains(&format!("listens on {address}")), "{why}");
    assert!(why.contains("no [[listener]] has this address"), "{why}");
}

#[test]
fn descriptor_that_is_no_listener_is_told_by_its_number() {
    let file = file(&good(free_port()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let connected = TcpStream::connect(listener.local_addr().expect("an address"));
    let others: [OwnedFd; 3] = [
        File::open(&file.path).expect("there").into(),
        UnixDatagram::unbound().expect("a socket").into(),
        connected.expect("it listens").into(),
    ];
    for other in others {
        let mut command = weft_on(other);
        let output = end_of(command.args(["serve", "-c"]).arg(&file.path));
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(why.contains("number 1 of the sockets"), "{why}");
    }
}

#[test]
fn admin_socket_of_the_service_manager_answers_and_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("admin.sock");
    let socket = path.display().to_string();
    let admin = format!("[admin]\nsocket = \"{socket}\"\n");
    let file = file(&(good(free_port()) + &admin));
    let listener = UnixListener::bind(&path).expect("free");
    let serving = serve_by(weft_on(listener.into()), &file.path, Stdio::piped());
    let status = weft(&["status", "--at", &socket]);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status.stderr));
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
    assert!(path.exists(), "the service manager has it");

    let elsewhere = UnixListener::bind(folder.path().join("other.sock")).expect("free");
    let mut serving = serve_by(weft_on(elsewhere.into()), &file.path, Stdio::piped());
    let told = serving.log_line("no admin socket");
    assert!(told.contains("other.sock"), "{told}");
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn service_has_its_admin_socket_in_its_runtime_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let with_usual_socket = good(free_port()) + "[admin]\n";
    let file = file(&with_usual_socket);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("RUNTIME_DIRECTORY", folder.path());
    let serving = serve_by(command, &file.path, Stdio::piped());
    let socket = folder.path().join("admin.sock").display().to_string();
    assert!(serving.shown.contains(&socket), "{}", serving.shown);
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn lines_for_the_journal_have_priorities_and_others_have_none() {
    for is_journal in [true, false] {
        let file = file(&good(free_port()));
        let path = file.path.with_extension("log");
        let log = File::create(&path).expect("room");
        let meta = log.metadata().expect("there");
        let inode = meta.ino() + u64::from(!is_journal);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.env("JOURNAL_STREAM", format!("{}:{inode}", meta.dev()));
        let serving = serve_by(command, &file.path, log.into());
        serving.signal("QUIT");
        let mut log = String::new();
        // Of two signals at once the one that ends it may be looked at first.
        for _ in 0..3000 {
            log = std::fs::read_to_string(&path).expect("there");
            if log.contains("signal ignored") {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        serving.signal("TERM");
        assert_eq!(serving.end().0, Some(0));
        let line = log.lines().find(|line| line.contains("signal ignored"));
        let line = line.unwrap_or_else(|| panic!("not in: {log}"));
        assert_eq!(line.starts_with("<4>"), is_journal, "{line}");
        assert_eq!(line.contains("WARN"), !is_journal, "{line}");
    }
}
