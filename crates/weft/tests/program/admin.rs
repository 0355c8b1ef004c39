//! The admin socket, and the commands that use it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use needs::needs;
use serde_json::Value;

use crate::serving::{Ends, File, Serving, file, free_port, good, serve, text, weft};
use crate::told::{end_in_order, is_served, make_fifo};

const NQN: &str = "nqn.2026-01.io.weft:cli";

/// A target with a socket beside its file.
pub struct Admin {
    pub serving: Serving,
    pub file: File,
    pub port: u16,
    socket: PathBuf,
}

impl Admin {
    pub fn start() -> Admin {
        let port = free_port();
        Admin::serving(&good(port), port)
    }

    /// Of a document that listens on this port.
    pub fn serving(document: &str, port: u16) -> Admin {
        let file = file(&with_socket(document));
        Admin::of(serve(&file.path), file, port)
    }

    pub fn of(serving: Serving, file: File, port: u16) -> Admin {
        let socket = file.path.with_file_name("admin.sock");
        Admin {
            serving,
            file,
            port,
            socket,
        }
    }

    /// A file beside the one that is served.
    pub fn other_file(&self, text: &str) -> String {
        let path = self.file.path.with_file_name("other.toml");
        std::fs::write(&path, with_socket(text)).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        let socket = self.socket.to_str().expect("UTF-8");
        weft(&[arguments, &["--at", socket]].concat())
    }

    pub fn status(&self) -> Value {
        let output = self.ask(&["status", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// What a request of these bytes is answered.
    pub fn exchange(&self, request: &[u8]) -> String {
        exchange(&self.socket, request)
    }

    /// How much of a body of 1 GiB goes before it is refused.
    fn bytes_taken_of_a_gib(&self) -> usize {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        let head = b"PUT /v1/config HTTP/1.1\r\nHost: weft\r\n\
                     Content-Length: 1073741824\r\n\r\n";
        stream.write_all(head).expect("room");
        let piece = [b' '; 64 << 10];
        let taken = (0..1 << 14).take_while(|_| stream.write_all(&piece).is_ok());
        taken.count() * piece.len()
    }

    fn healthz(&self) -> String {
        self.exchange(b"GET /healthz HTTP/1.1\r\nHost: weft\r\n\r\n")
    }

    /// A request of a method and a path, with headers and a body.
    pub fn send(&self, request: &str, headers: &str, body: &[u8]) -> String {
        let len = body.len();
        let head =
            format!("{request} HTTP/1.1\r\nHost: weft\r\n{headers}Content-Length: {len}\r\n\r\n");
        self.exchange(&[head.as_bytes(), body].concat())
    }
}

#[test]
fn group_that_the_machine_does_not_have_is_a_warning_of_check_and_status() {
    let admin = Admin::start();
    let path = admin.file.path.to_str().expect("UTF-8");
    let add = ["add", "group", "no-such-group", "role=viewer"];
    let output = admin.ask(&add);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let part = "[[admin.group]]: this machine has no group \"no-such-group\"";
    let shown = text(&admin.ask(&["status"]).stdout);
    assert!(shown.contains(&format!("WARNING       {part}")), "{shown}");
    assert_eq!(admin.status()["warnings"].as_array().map(Vec::len), Some(1));
    let checked = text(&weft(&["check", path]).stdout);
    assert!(checked.contains(&format!("note: {part}")), "{checked}");
    let output = admin.ask(&["rm", "group", "no-such-group"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(admin.status()["warnings"].as_array().map(Vec::len), Some(0));
    end_in_order(admin.serving);
}

/// What a request of these bytes is answered at a socket.
pub fn exchange(socket: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    // A server that has heard enough closes.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => text(&answer),
    }
}

pub fn with_socket(text: &str) -> String {
    format!("{text}\n[admin]\nsocket = \"admin.sock\"\nstate = \"state\"\n")
}

/// The same with one more listener.
pub fn with_listener(text: &str, port: u16) -> String {
    format!("{text}\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n")
}

pub fn connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect(("127.0.0.1", port))
}

#[test]
fn status_tells_what_is_served_to_people_and_to_programs() {
    let admin = Admin::start();
    let shown = text(&admin.ask(&["status"]).stdout);
    let path = admin.file.path.to_str().expect("UTF-8");
    let listener = format!("127.0.0.1:{} nvme-tcp", admin.port);
    for part in [path, &listener, "volumes       1\n", "of 1GiB"] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    let status = admin.status();
    assert_eq!(status["pid"], admin.serving.child.id());
    assert_eq!(status["document"]["file"], path);
    assert_eq!(status["document"]["holds"], "file");
    assert_eq!(status["last_change"], Value::Null);
    assert_eq!(
        (&status["subsystems"], &status["targets"]),
        (&1.into(), &0.into())
    );
    assert_eq!(status["counters"]["refusals"], 0);
    let mode = std::fs::metadata(&admin.socket).expect("there").mode();
    assert_eq!(mode & 0o777, 0o600);
    end_in_order(admin.serving);
    assert!(!admin.socket.exists());
}

#[test]
fn diff_tells_what_apply_then_changes_and_changes_nothing() {
    let admin = Admin::start();
    let new = free_port();
    let other = admin.other_file(&with_listener(&good(admin.port), new).replace("8MiB", "9MiB"));
    for arguments in [
        &["diff", "-c", &other][..],
        &["apply", "--dry-run", "-c", &other],
    ] {
        let output = admin.ask(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        for part in [
            format!("  listener 127.0.0.1:{new} (NVMe/TCP) is added\n"),
            "  volume \"disk0\" grows from 8MiB to 9MiB: its hosts are told\n".to_owned(),
            "changes: 2, none cuts a host\n".to_owned(),
        ] {
            assert!(shown.contains(&part), "{part:?} is not in:\n{shown}");
        }
        assert!(connect(new).is_err());
        assert_eq!(admin.status()["last_change"], Value::Null);
    }
    let staying = connect(admin.port).expect("it listens");
    assert!(is_served(&staying));
    let output = admin.ask(&["apply", "-c", &other]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let path = admin.file.path.to_str().expect("UTF-8").to_owned();
    let shown = text(&output.stdout);
    let end = format!("changes made: 2; generation 2, in {path}\n");
    assert!(shown.ends_with(&end), "{shown}");
    let now = std::fs::read(&admin.file.path).expect("there");
    assert_eq!(now, std::fs::read(&other).expect("there"));
    assert!(is_served(&connect(new).expect("it listens")));
    let again = format!("nothing to do; generation 2, in {path}\n");
    for (command, told) in [("diff", "nothing to do\n"), ("apply", &*again)] {
        let output = admin.ask(&[command, "-c", &other]);
        assert_eq!(text(&output.stdout), told);
        assert_eq!(output.status.code(), Some(0));
    }
    // SIGHUP serves what an editor has put there.
    let first = with_socket(&good(admin.port)).replace("8MiB", "9MiB");
    std::fs::write(&admin.file.path, first).expect("room");
    let mut admin = admin;
    admin.serving.signal("HUP");
    admin.serving.log_line("changes=2");
    admin.serving.log_line("changes=1");
    assert!(connect(new).is_err());
    assert_eq!(admin.status()["document"]["generation"], 3);
    drop(staying);
    end_in_order(admin.serving);
}

#[test]
fn apply_that_disturbs_is_refused_with_its_lines_until_it_is_asked_for() {
    let admin = Admin::start();
    let new = free_port();
    let host = "hosts = [\"nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"]";
    let narrow = with_listener(&good(admin.port), new).replace("allow_any_host = true", host);
    let other = admin.other_file(&narrow);
    let output = admin.ask(&["apply", "-c", &other]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    for part in [
        format!("  listener 127.0.0.1:{new} (NVMe/TCP) is added\n"),
        format!("! subsystem {NQN}: "),
        "--disconnect does it\n".to_owned(),
    ] {
        assert!(told.contains(&part), "{part:?} is not in:\n{told}");
    }
    assert!(connect(new).is_err());
    let output = admin.ask(&["apply", "-c", &other, "--json"]);
    let problem: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(problem["status"], 409);
    let output = admin.ask(&["apply", "-c", &other, "--disconnect"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(is_served(&connect(new).expect("it listens")));
    // The way back allows more.
    let back = with_listener(&good(admin.port), new);
    let other = admin.other_file(&back);
    let output = admin.ask(&["apply", "-c", &other]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // What changes at a restart alone changes neither way.
    let any = "allow_any_host = true";
    let other = admin.other_file(&back.replace(any, &format!("{any}\nserial = \"S\"")));
    let output = admin.ask(&["apply", "-c", &other, "--disconnect"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains("serial, model and cntlids change at a restart alone"),
        "{told}"
    );
    end_in_order(admin.serving);
}

#[test]
fn setting_of_the_next_start_is_kept_and_told_and_holds_nothing_up() {
    let mut admin = Admin::start();
    let path = admin.file.path.clone();
    let name = path.to_str().expect("UTF-8").to_owned();
    let told_of = |name: &str| format!("NOT YET: [policy] {name} changes at the next start\n");
    let made = |admin: &Admin, arguments: &[&str]| {
        let output = admin.ask(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
        text(&output.stdout)
    };
    let shown = made(&admin, &["set", "policy", "memory_max=2GiB"]);
    assert!(shown.starts_with(&told_of("memory_max")), "{shown}");
    // By an editor, another.
    let edited = std::fs::read_to_string(&path).expect("there");
    let edited = edited.replace("[policy]\n", "[policy]\nspin_us_max = 7\n");
    std::fs::write(&path, &edited).expect("ours");
    admin.serving.signal("HUP");
    admin
        .serving
        .log_line("reload: [policy] spin_us_max changes at the next start");
    admin.serving.log_line("reloaded");
    let shown = made(&admin, &["apply", "-c", &name]);
    let both = told_of("spin_us_max") + &told_of("memory_max");
    assert!(shown.starts_with(&both), "{shown}");
    // All else changes meanwhile.
    made(
        &admin,
        &["add", "volume", "other", "kind=null", "size=1MiB"],
    );
    let status = admin.status();
    assert_eq!(status["at_restart"].as_array().map(Vec::len), Some(2));
    assert_eq!(status["memory_max_bytes"], 1 << 30);
    let Admin {
        serving,
        file,
        port,
        ..
    } = admin;
    end_in_order(serving);
    let admin = Admin::of(serve(&path), file, port);
    let status = admin.status();
    assert_eq!(status["at_restart"].as_array().map(Vec::len), Some(0));
    assert_eq!(status["memory_max_bytes"], 2_u64 << 30);
    let shown = made(&admin, &["diff", "-c", &name]);
    assert_eq!(shown, "nothing to do\n");
    end_in_order(admin.serving);
}

#[test]
fn file_that_is_bad_or_none_is_told_as_check_tells_it() {
    let admin = Admin::start();
    let other = admin.other_file("[[volume]]\nnam = 1");
    let checked = weft(&["check", "-c", &other]);
    for command in ["diff", "apply"] {
        let output = admin.ask(&[command, "-c", &other]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(text(&output.stderr), text(&checked.stderr));
    }
    let fifo = admin.file.path.with_file_name("fifo");
    make_fifo(&fifo);
    for (path, why) in [
        ("/no/such.toml", "cannot be read"),
        ("/dev/zero", "not a file"),
        ("/proc", "not a file"),
        (fifo.to_str().expect("UTF-8"), "not a file"),
    ] {
        let output = admin.ask(&["diff", "-c", path]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(path) && told.contains(why), "{told}");
    }
    for (request, body, status) in [
        ("POST /v1/config:rollback", "", 400),
        ("POST /v1/config:rollback", "{", 400),
        ("POST /v1/config:rollback", "{}", 400),
        ("POST /v1/config:rollback", "{\"generation\":-1}", 400),
        (
            "POST /v1/config:rollback",
            "{\"generation\":1,\"generation\":1}",
            400,
        ),
        (
            "POST /v1/config:rollback",
            "{\"generation\":1,\"force\":true}",
            400,
        ),
        ("POST /v1/config:rollback", "{\"generation\":7}", 404),
        (
            "POST /v1/config:rollback?force=true",
            "{\"generation\":1}",
            400,
        ),
        ("PUT /v1/config?dry_run=perhaps", "", 400),
        ("PUT /v1/config?folder=here", "", 400),
        ("PUT /v1/config?folder=%FF", "", 400),
        ("PUT /v1/config", "", 422),
        ("PUT /v1/config", "volume = \"\0\"", 422),
        ("GET /v1/config/history/7", "", 404),
        ("GET /v1/config/history/last", "", 400),
        ("DELETE /v1/config", "", 405),
    ] {
        let answer = admin.send(request, "", body.as_bytes());
        let status = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&status), "{request} {body}: {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    let answer = admin.send("PUT /v1/config", "", b"\xff");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    for header in [
        "If-Match: 1",
        "If-Match: \"1\", W/\"1\"",
        "Idempotency-Key:",
    ] {
        let answer = admin.send("PUT /v1/config", &format!("{header}\r\n"), b"");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{header}: {answer}");
    }
    end_in_order(admin.serving);
}

#[test]
fn no_server_is_told_with_where_it_was_looked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admin.sock");
    let path = socket.to_str().expect("UTF-8");
    let other = file(&good(free_port()));
    let other = other.path.to_str().expect("UTF-8");
    let commands = [
        &["status"][..],
        &["diff", "-c", other],
        &["apply", "-c", other],
        &["rollback", "1"],
        &["history"],
        &["dump"],
    ];
    for arguments in commands {
        let output = weft(&[arguments, &["--at", path]].concat());
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains(path) && told.contains("weft serve"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn second_target_serves_without_the_socket_that_another_has() {
    let admin = Admin::start();
    let text = good(free_port()).replace("disk0.img", "disk1.img");
    let other = admin.other_file(&text);
    let mut second = serve(Path::new(&other));
    let line = second.log_line("no admin socket");
    assert!(line.contains("another process has it"), "{line}");
    assert!(line.contains("[admin] socket"), "{line}");
    end_in_order(second);
    assert!(admin.healthz().starts_with("HTTP/1.1 200 "));
    // One that was killed leaves a file that is taken over.
    let Admin {
        mut serving,
        file,
        socket,
        port,
    } = admin;
    serving.child.kill().expect("our child");
    serving.child.wait().expect("our child");
    assert!(socket.exists());
    let admin = Admin {
        serving: serve(&file.path),
        file,
        socket,
        port,
    };
    assert!(admin.healthz().starts_with("HTTP/1.1 200 "));
    end_in_order(admin.serving);
}

/// What another user is answered, who is in no group but its own.
struct Nobody {
    copy: PathBuf,
    socket: PathBuf,
}

impl Nobody {
    fn of(admin: &Admin) -> Nobody {
        let folder = admin.file.path.parent().expect("a folder");
        set_mode(folder, 0o755);
        let copy = folder.join("weft");
        std::fs::copy(env!("CARGO_BIN_EXE_weft"), &copy).expect("room");
        let socket = admin.socket.clone();
        Nobody { copy, socket }
    }

    /// The group that it is in.
    fn group() -> String {
        let id = Command::new("id").args(["-gn", "nobody"]).output();
        text(&id.expect("id").stdout).trim().to_owned()
    }

    fn asks(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("setpriv")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        let group = format!("--regid={}", Nobody::group());
        command.args(["--reuid=nobody", &group, "--init-groups"]);
        command.args(["--reset-env", "--"]).arg(&self.copy);
        command.args(arguments).arg("--at").arg(&self.socket);
        command
    }

    /// Asks for what is refused: why.
    fn is_refused(&self, arguments: &[&str]) -> String {
        let output = self.asks(arguments);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("ours");
}

#[needs(root)]
#[test]
fn another_user_is_refused() {
    let admin = Admin::start();
    let nobody = Nobody::of(&admin);
    let told = nobody.is_refused(&["status"]);
    assert!(told.contains("Permission denied"), "{told}");
    // The file lets it in, and its user is seen.
    set_mode(&admin.socket, 0o666);
    let told = nobody.is_refused(&["status"]);
    assert!(
        told.contains("may not ask") && !told.contains("Permission"),
        "{told}"
    );
    end_in_order(admin.serving);
}

#[needs(root)]
#[test]
fn members_of_a_group_may_what_its_role_says_until_it_is_removed() {
    let admin = Admin::start();
    let nobody = Nobody::of(&admin);
    let (group, read) = (Nobody::group(), ["get", "volume"]);
    let change = ["set", "policy", "spin_us_max=7"];
    let done = |output: Output| assert!(output.status.success(), "{}", text(&output.stderr));
    done(admin.ask(&["add", "group", &group, "role=viewer"]));
    done(nobody.asks(&read));
    let told = nobody.is_refused(&change);
    assert!(told.contains("needs the role operator"), "{told}");
    done(admin.ask(&["set", "group", &group, "role=operator"]));
    done(nobody.asks(&change));
    let told = nobody.is_refused(&["set", "group", &group, "role=admin"]);
    assert!(told.contains("admin"), "{told}");
    // What one user keeps open costs others nothing.
    let mut followers = Vec::new();
    while nobody.asks(&read).status.success() {
        assert!(followers.len() < 100, "no connection is refused");
        // It ends at once if the connection of `read` is not gone yet.
        let mut follower = nobody.command(&["events", "--follow", "--json"]);
        follower.stdout(Stdio::null());
        followers.push(Ends::start(&mut follower));
    }
    assert!(admin.healthz().starts_with("HTTP/1.1 200 "));
    drop(followers);
    let login = nobody.asks(&["login", "--role", "viewer"]);
    let address = text(&login.stdout);
    let address = address
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("http://"));
    let (here, path) = address
        .and_then(|line| line.split_once('/'))
        .expect("an address");
    let get = |path: &str, head: &str| {
        let mut stream = TcpStream::connect(here).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {here}\r\n{head}\r\n");
        stream.write_all(request.as_bytes()).expect("room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let opened = get(&format!("/{path}"), "");
    let cookie = opened
        .split("set-cookie: ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    let cookie = format!("Cookie: {}\r\n", cookie.expect("a session"));
    assert!(get("/v1/status", &cookie).starts_with("HTTP/1.1 200 "));
    done(admin.ask(&["rm", "group", &group]));
    let told = get("/v1/status", &cookie);
    assert!(told.starts_with("HTTP/1.1 401 "), "{told}");
    let told = nobody.is_refused(&read);
    assert!(told.contains("Permission denied"), "{told}");
    end_in_order(admin.serving);
}

#[test]
fn hostile_peers_cost_neither_answers_nor_io() {
    let admin = Admin::start();
    for (request, answer) in [
        (&b"\xff\x00garbage\r\n\r\n"[..], "HTTP/1.1 400 "),
        (b"GET /v2 HTTP/1.1\r\nHost: weft\r\n\r\n", "HTTP/1.1 404 "),
        (
            b"PUT /v1/status HTTP/1.1\r\nHost: weft\r\n\r\n",
            "HTTP/1.1 405 ",
        ),
        (
            b"GET /v1/config:rollback HTTP/1.1\r\nHost: weft\r\n\r\n",
            "HTTP/1.1 405 ",
        ),
    ] {
        let told = admin.exchange(request);
        assert!(told.starts_with(answer), "{answer}: {told}");
    }
    for (request, len) in [("PUT /v1/config", 17), ("POST /v1/config:rollback", 2)] {
        let told = admin.send(request, "", &vec![b' '; len << 20]);
        assert!(told.starts_with("HTTP/1.1 413 "), "{told}");
    }
    for deep in ["[".repeat(500_000), "{\"generation\":".repeat(60_000)] {
        let told = admin.send("POST /v1/config:rollback", "", deep.as_bytes());
        assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
    }
    for deep in ["[".repeat(500_000), format!("a = {}", "[".repeat(500_000))] {
        let told = admin.send("PUT /v1/config", "", deep.as_bytes());
        assert!(told.starts_with("HTTP/1.1 422 "), "{told}");
    }
    assert!(admin.bytes_taken_of_a_gib() < 32 << 20);
    // More than may connect at a time, each with less than a request; one with less body.
    let mut slow: Vec<_> = (0..200)
        .map(|_| UnixStream::connect(&admin.socket).expect("it listens"))
        .collect();
    for stream in &mut slow[..100] {
        stream.write_all(b"GET /heal").expect("room");
    }
    let less = b"PUT /v1/config HTTP/1.1\r\nHost: weft\r\nContent-Length: 9\r\n\r\n{";
    slow[100].write_all(less).expect("room");
    // And one that says a little more all the time.
    let mut talker = UnixStream::connect(&admin.socket).expect("it listens");
    let talking = std::thread::spawn(move || {
        let said = (0..1_000).take_while(|_| {
            std::thread::sleep(Duration::from_millis(100));
            talker.write_all(b"G").is_ok()
        });
        said.count()
    });
    let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}", admin.port);
    let output = weft(&["perf", &url, "--runtime", "200ms", "--ramp-time", "0"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(admin.healthz().starts_with("HTTP/1.1 200 "));
    let mut told = String::new();
    slow[100].read_to_string(&mut told).expect("text");
    assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
    drop(slow);
    let said = talking.join().expect("no panic");
    assert!(said < 1_000, "it is heard for ever");
    assert!(admin.status()["counters"]["ios"].as_u64() > Some(0));
    end_in_order(admin.serving);
}

#[test]
fn volume_that_was_missing_at_the_start_comes_later_and_keeps_nothing_from_changing() {
    let port = free_port();
    let disk = free_port();
    let degraded = with_socket(&good(port)).replace("[policy]", "[policy]\nstart = \"degraded\"")
        + "\n[[volume]]\nname = \"disk1\"\nkind = \"file\"\npath = \"later/disk1.img\"\n\
           size = \"8MiB\"\n";
    let namespace = "[[nvme.subsystem.namespace]]\nnsid = 2\nvolume = \"disk1\"\n[[listener]]";
    let degraded = degraded.replacen("[[listener]]", namespace, 1);
    let file = file(&degraded);
    let socket = file.path.with_file_name("admin.sock");
    let mut admin = Admin {
        serving: serve(&file.path),
        file,
        port,
        socket,
    };
    admin.serving.log_line("not served");
    let not_served = |admin: &Admin| admin.status()["not_served"].as_array().map(Vec::len);
    assert_eq!(not_served(&admin), Some(1));
    // All else changes.
    let path = admin.file.path.clone();
    let listened = with_listener(&degraded, disk);
    std::fs::write(&path, &listened).expect("room");
    let name = path.to_str().expect("UTF-8").to_owned();
    let output = admin.ask(&["diff", "-c", &name]);
    let told = text(&output.stdout);
    assert!(told.contains("NOT SERVED: volume 'disk1'"), "{told}");
    assert!(told.ends_with("changes: 1, none cuts a host\n"), "{told}");
    admin.serving.signal("HUP");
    admin.serving.log_line("still not served: volume 'disk1'");
    admin.serving.log_line("changes=1");
    assert!(is_served(&connect(disk).expect("it listens")));
    assert_eq!(not_served(&admin), Some(1));
    // What was never there is a mistake.
    let typo = listened.replace("later/disk1.img", "never/disk2.img");
    let other = typo.replace("disk1", "disk2");
    std::fs::write(&path, &other).expect("room");
    let output = admin.ask(&["apply", "-c", &name]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    // There it is.
    std::fs::create_dir(path.with_file_name("later")).expect("a folder");
    std::fs::write(&path, &listened).expect("room");
    let output = admin.ask(&["apply", "-c", &name]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.contains("volume \"disk1\" is added"), "{told}");
    assert!(told.contains("namespace 2 of"), "{told}");
    assert_eq!(not_served(&admin), Some(0));
    assert_eq!(admin.status()["volumes"], 2);
    end_in_order(admin.serving);
}
