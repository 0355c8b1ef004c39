//! What an operator is told: signals, limits, refusals, clients that come and go.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::serving::{
    File, NO_ADMIN, Serving, file, free_port, good, serve, serve_by, text, unread, weft,
};

/// How SIGPIPE is numbered (signal(7)).
const SIGPIPE: i32 = 13;

/// By a shell that sets a limit first.
fn limited(limit: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_weft")]);
    command
}

/// A connection that says what no protocol knows. It is over when this returns.
fn say_nonsense(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(&[0xff; 128]).expect("it reads");
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Whether ICReq (NVMe/TCP 1.0, section 3.6.2.2) is answered with ICResp.
pub fn is_served(mut stream: &TcpStream) -> bool {
    let mut request = [0; 128];
    // HLEN and PLEN.
    (request[2], request[4]) = (128, 128);
    let mut answer = [0; 128];
    let answered = stream.write_all(&request);
    answered
        .and_then(|()| stream.read_exact(&mut answer))
        .is_ok()
        && answer[0] == 1
}

pub fn end_in_order(serving: Serving) {
    serving.signal("TERM");
    let (code, rest) = serving.end();
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn signal_without_meaning_is_told_and_ends_nothing() {
    let file = file(&good(free_port()));
    let mut serving = serve(&file.path);
    for signal in ["QUIT", "USR2"] {
        serving.signal(signal);
        let line = serving.log_line(&format!("signal=\"SIG{signal}\""));
        assert!(line.contains("WARN") && line.contains("ignored"), "{line}");
    }
    end_in_order(serving);
}

#[test]
fn sighup_serves_what_the_file_says_now_and_refuses_what_it_cannot() {
    let (port, other) = (free_port(), free_port());
    let text = good(port) + NO_ADMIN;
    let file = file(&text);
    let mut serving = serve(&file.path);
    let connect = |port: u16| TcpStream::connect(("127.0.0.1", port));
    let staying = connect(port).expect("it listens");
    assert!(is_served(&staying));
    let write = |text: &str| std::fs::write(&file.path, text).expect("a file");
    // One more listener, and more capacity; who is connected stays.
    let more = format!("{text}\n[[listener]]\naddress = \"127.0.0.1:{other}\"\n");
    write(&more.replace("8MiB", "9MiB"));
    serving.signal("HUP");
    let line = serving.log_line("reloaded");
    assert!(line.contains("changes=2"), "{line}");
    assert!(is_served(&connect(other).expect("it listens")));
    // A mistake, and what would lose data, change nothing.
    write("[[volume]]\nnam = 1");
    serving.signal("HUP");
    serving.log_line("not reloaded, nothing is changed");
    write(&more);
    serving.signal("HUP");
    let line = serving.log_line("would shrink from 9MiB to 8MiB");
    assert!(line.contains("not reloaded, nothing is changed"), "{line}");
    assert!(is_served(&connect(other).expect("it listens")));
    drop(staying);
    end_in_order(serving);
}

#[test]
fn file_larger_than_the_limit_of_files_is_an_error_and_no_signal() {
    let file = file(&good(free_port()));
    let path = file.path.to_str().expect("UTF-8");
    let output = limited("-f 1").args(["serve", "-c", path]).output();
    let output = output.expect("a shell");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?} {told}", output.status);
    assert!(told.contains("disk0.img"), "{told}");
}

#[test]
fn start_that_runs_out_of_descriptors_is_told_with_the_limit_to_raise() {
    let file = file(&good(free_port()));
    let path = file.path.to_str().expect("UTF-8");
    let output = limited("-n 8").args(["serve", "-c", path]).output();
    let output = output.expect("a shell");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?} {told}", output.status);
    let last = told.lines().last().expect("why");
    assert!(
        last.contains("(raise the limit of open files: 'ulimit -n')"),
        "{told}"
    );
}

#[test]
fn file_where_the_folder_of_a_state_should_be_is_told_with_what_helps() {
    let file = files(free_port(), "allow_any_client = true");
    let text_of = std::fs::read_to_string(&file.path).expect("written");
    let beside = file.path.display();
    let spoilt = format!("{text_of}\n[nfs]\nstate = \"{beside}/state\"\n");
    std::fs::write(&file.path, spoilt).expect("room");
    let output = weft(&["serve", "-c", file.path.to_str().expect("UTF-8")]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("(a part of its path is a file: use another path)"),
        "{told}"
    );
}

/// The number that it names is one with which it has nothing to say.
#[test]
fn limit_of_descriptors_below_connections_max_is_told_with_one_that_works() {
    let nvme = "[nvme]\nconnections_max = 600\n[[nvme.subsystem]]";
    let file = file(&good(free_port()).replace("[[nvme.subsystem]]", nvme));
    let mut serving = serve_by(limited("-n 700"), &file.path, Stdio::piped());
    let line = serving.log_line("ulimit -n");
    assert!(line.contains("connections_max=600"), "{line}");
    let works = line.split("ulimit -n ").nth(1).expect("a number");
    let works: String = works.chars().take_while(char::is_ascii_digit).collect();
    end_in_order(serving);
    let mut serving = serve_by(limited(&format!("-n {works}")), &file.path, Stdio::piped());
    serving.signal("TERM");
    let rest = serving.rest_of_log();
    assert!(!rest.contains("ulimit"), "{rest}");
}

/// As many of one address as it says are served, and one more is refused by that limit.
#[test]
fn connections_up_to_the_limit_that_is_told_are_served() {
    let port = free_port();
    let file = file(&good(port));
    let mut serving = serve_by(limited("-n 700"), &file.path, Stdio::piped());
    let line = serving.log_line("ulimit -n");
    let told = line.split("those of one address to ").nth(1);
    let told = told.unwrap_or_else(|| panic!("no limit of an address: {line}"));
    let of_address_max: usize = (told.split(':').next().expect("a number").parse()).expect("one");
    // 512 are for other things, two for the volume, half of the rest for an address.
    assert_eq!(of_address_max, (700 - 512 - 2) / 2);
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let open: Vec<TcpStream> = (0..of_address_max).map(|_| connect()).collect();
    assert!(open.iter().all(is_served));
    assert!(!is_served(&connect()));
    let line = serving.log_line("is reached");
    let limit = format!("connections_of_address_max = {of_address_max} is reached");
    assert!(line.contains(&limit), "{line}");
    drop(open);
    end_in_order(serving);
}

#[test]
fn default_connections_max_above_the_limit_of_descriptors_is_told() {
    let file = file(&good(free_port()));
    let mut serving = serve_by(limited("-n 1000"), &file.path, Stdio::piped());
    let line = serving.log_line("ulimit -n");
    assert!(line.contains("connections_max=132096"), "{line}");
    end_in_order(serving);
}

#[test]
fn command_whose_output_is_closed_ends_by_sigpipe_without_a_word() {
    let file = file(&good(4420));
    let path = file.path.to_str().expect("UTF-8");
    let commands = [
        &["bench", "list"][..],
        &["check", "-c", path],
        &["tune"],
        &["--help"],
        &["perf", "--help"],
        &["--version"],
    ];
    for arguments in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        let child = command
            .args(arguments)
            .stdout(unread())
            .stderr(Stdio::piped())
            .spawn();
        let output = child.and_then(|child| child.wait_with_output());
        let output = output.expect("weft starts");
        let told = text(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(SIGPIPE),
            "{arguments:?} {told}"
        );
        assert_eq!(told, "", "{arguments:?}");
    }
}

/// The end of the reader of a log does not end the target.
#[test]
fn serve_whose_log_is_closed_goes_on() {
    let port = free_port();
    let file = file(&good(port));
    let weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    let serving = serve_by(weft, &file.path, unread());
    say_nonsense(port);
    say_nonsense(port);
    end_in_order(serving);
}

#[test]
fn sigusr1_line_has_time_version_refusals_and_orphans() {
    let port = free_port();
    let file = file(&good(port));
    let mut serving = serve(&file.path);
    say_nonsense(port);
    serving.signal("USR1");
    let line = serving.line("counters");
    let told: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let time = told["time"].as_str().expect("a text");
    // RFC 3339, in UTC.
    assert!(time.as_bytes()[10] == b'T' && time.ends_with('Z'), "{line}");
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(told["counters"]["refusals"], 1);
    assert_eq!(told["counters"]["orphans"], 0);
    end_in_order(serving);
}

/// One file system in memory, for `clients`.
fn files(port: u16, clients: &str) -> File {
    file(&format!(
        "[[file_system]]\nname = \"m\"\nkind = \"mem\"\nsize = \"4MiB\"\n\
         [[export]]\npath = \"/shared/m\"\nfile_system = \"m\"\n{clients}\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"nfs\"\n\
         [policy]\nmemory_max = \"1GiB\"\n"
    ))
}

#[test]
fn nfs_client_that_comes_and_goes_is_told() {
    let port = free_port();
    let file = files(port, "allow_any_client = true");
    let mut serving = serve(&file.path);
    let url = format!("nfs://127.0.0.1:{port}/shared/m");
    let output = weft(&["discover", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for what in ["NFS client came", "NFS client is gone"] {
        let line = serving.log_line(what);
        assert!(line.contains("INFO"), "{line}");
        assert!(line.contains("address=127.0.0.1 owner=\""), "{line}");
        assert!(line.contains("version=4."), "{line}");
    }
    end_in_order(serving);
}

#[test]
fn nfs_mount_that_is_refused_is_told_with_export_address_and_reason() {
    let port = free_port();
    let file = files(port, "clients = [\"192.0.2.1\"]");
    let mut serving = serve(&file.path);
    let url = format!("nfs://127.0.0.1:{port}/shared/m");
    let output = weft(&["discover", &url]);
    assert_ne!(output.status.code(), Some(0));
    let line = serving.log_line("mount refused");
    for part in [
        "WARN",
        "peer=127.0.0.1",
        "target=\"/shared/m\"",
        "`clients`",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    end_in_order(serving);
}

#[test]
fn nfs_mount_of_what_is_no_export_is_told_with_its_path() {
    let port = free_port();
    let file = files(port, "allow_any_client = true");
    let mut serving = serve(&file.path);
    let url = format!("nfs://127.0.0.1:{port}/shared/other");
    let output = weft(&["discover", &url]);
    assert_ne!(output.status.code(), Some(0));
    let line = serving.log_line("mount refused");
    for part in ["target=\"/shared/other\"", "there is no such export"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    end_in_order(serving);
}

#[test]
fn connect_that_is_refused_is_told_with_host_subsystem_address_and_reason() {
    let port = free_port();
    let one = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    let hosts = format!("hosts = [\"{one}\"]");
    let file = file(&good(port).replace("allow_any_host = true", &hosts));
    let mut serving = serve(&file.path);
    let perf = |nqn: &str, host: &str| {
        let url = format!("nvme-tcp://127.0.0.1:{port}/{nqn}");
        let run = ["--runtime", "100ms", "--ramp-time", "0"];
        let mut arguments = vec!["perf", &url, "--hostnqn", host];
        arguments.extend(run);
        weft(&arguments)
    };
    let other = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf7";
    let known = "nqn.2026-01.io.weft:cli";
    for (nqn, host, reason) in [
        (known, other, "`hosts`"),
        ("nqn.2026-01.io.weft:none", one, "no such subsystem"),
        (known, "formless", "no NQN"),
    ] {
        assert_eq!(perf(nqn, host).status.code(), Some(1));
        let line = serving.log_line("Connect refused");
        let (host, nqn) = (format!("host=\"{host}\""), format!("target=\"{nqn}\""));
        for part in ["WARN", "peer=127.0.0.1:", &host, &nqn, reason] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert_eq!(perf(known, one).status.code(), Some(0));
    let line = serving.log_line("connected");
    for part in ["INFO", "peer=127.0.0.1:", one, known] {
        assert!(line.contains(part), "{part}: {line}");
    }
    end_in_order(serving);
}

/// The wire has one status for all of them.
#[test]
fn login_that_fails_to_authenticate_is_told_with_what_was_wrong() {
    let port = free_port();
    let iqn = "iqn.2026-01.io.weft:cli";
    let file = file(&format!(
        "[[volume]]\nname = \"disk0\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
         [[iscsi.target]]\nname = \"{iqn}\"\nvolumes = [\"disk0\"]\n\
         allow_any_initiator = true\nchap = {{ user = \"alice\", secret_file = \"alice\" }}\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"iscsi\"\n\
         [policy]\nmemory_max = \"1GiB\"\n"
    ));
    let secret = |name: &str, text: &str| {
        let path = file.path.with_file_name(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
        path.to_str().expect("UTF-8").to_owned()
    };
    let right = secret("alice", "correct horse\n");
    let wrong = secret("wrong", "incorrect horse\n");
    let mut serving = serve(&file.path);
    let url = format!("iscsi://127.0.0.1:{port}/{iqn}/0");
    let perf = |chap: &[&str]| {
        let run = ["--runtime", "100ms", "--ramp-time", "0"];
        weft(&[&["perf", &url][..], &run, chap].concat())
    };
    for (chap, reason) in [
        (&[][..], "it offers no CHAP"),
        (
            &["--chap-user", "alice", "--chap-secret-file", &wrong],
            "wrong secret",
        ),
        (
            &["--chap-user", "bob", "--chap-secret-file", &right],
            "unknown user",
        ),
    ] {
        assert_eq!(perf(chap).status.code(), Some(1));
        let line = serving.log_line("login refused");
        let target = format!("target=\"{iqn}\"");
        for part in ["WARN", "peer=127.0.0.1:", "host=\"iqn.", &target, reason] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    let chap = ["--chap-user", "alice", "--chap-secret-file", &right];
    assert_eq!(perf(&chap).status.code(), Some(0));
    let line = serving.log_line("logged in");
    for part in ["INFO", "peer=127.0.0.1:", "initiator=\"iqn.", iqn] {
        assert!(line.contains(part), "{part}: {line}");
    }
    end_in_order(serving);
}

#[test]
fn check_finds_block_device_that_is_not_there() {
    let text_ = good(4420)
        .replace("\"file\"", "\"block\"")
        .replace("disk0.img", "/no/such/device");
    let file = file(&text_);
    let output = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for part in ["disk0", "/no/such/device"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

pub fn make_fifo(path: &std::path::Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("coreutils").success());
}

#[test]
fn pipe_in_the_place_of_the_file_is_told_at_a_reload_and_holds_up_nothing() {
    let file = file(&good(free_port()));
    let mut serving = serve(&file.path);
    std::fs::remove_file(&file.path).expect("ours");
    make_fifo(&file.path);
    serving.signal("HUP");
    let line = serving.log_line("not reloaded");
    assert!(line.contains("not a file"), "{line}");
    end_in_order(serving);
}
