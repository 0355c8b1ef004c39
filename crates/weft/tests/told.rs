//! What an operator is told: signals, limits, refusals, clients that come and go.

#[path = "shared/serving.rs"]
mod serving;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use serving::{Serving, file, free_port, good, serve, serve_by, text, weft};

/// How SIGPIPE is numbered (signal(7)).
const SIGPIPE: i32 = 13;

/// An output that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

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

fn end_in_order(serving: Serving) {
    serving.signal("TERM");
    let (code, rest) = serving.end();
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn signal_without_meaning_is_told_and_ends_nothing() {
    let file = file(&good(free_port()));
    let mut serving = serve(&file.path);
    for signal in ["HUP", "QUIT", "USR2"] {
        serving.signal(signal);
        let line = serving.log_line(&format!("signal=\"SIG{signal}\""));
        assert!(line.contains("WARN") && line.contains("ignored"), "{line}");
    }
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

#[test]
fn default_connections_max_above_the_limit_of_descriptors_is_told() {
    let file = file(&good(free_port()));
    let mut serving = serve_by(limited("-n 1000"), &file.path, Stdio::piped());
    let line = serving.log_line("ulimit -n");
    assert!(line.contains("connections_max=132096"), "{line}");
    end_in_order(serving);
}

#[test]
fn command_whose_output_nobody_reads_ends_by_sigpipe_without_a_word() {
    let file = file(&good(4420));
    let path = file.path.to_str().expect("UTF-8");
    for arguments in [&["bench", "list"][..], &["check", "-c", path], &["tune"]] {
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

/// Whoever ends the reader of a log does not mean the target.
#[test]
fn serve_whose_log_nobody_reads_goes_on() {
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
