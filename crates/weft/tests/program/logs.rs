//! What the log is written as.

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use needs::needs;
use serde_json::Value;

use crate::serving::{PATIENCE, Serving, end_of, file, free_port, good, serve_by, text, weft};

fn command(format: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("WEFT_LOG_FORMAT", format);
    command
}

fn refused_at(port: u16) {
    let url = format!("nvme-tcp://127.0.0.1:{port}/nqn.2026-01.io.weft:none");
    let refused = weft(&["perf", &url, "--runtime", "1s"]);
    assert_ne!(refused.status.code(), Some(0), "{}", text(&refused.stdout));
}

/// What weft logs of a connect that is refused, and of a signal.
fn log_of(format: &str) -> String {
    let port = free_port();
    let file = file(&good(port));
    let path = file.path.with_extension("log");
    let log = File::create(&path).expect("room");
    let serving: Serving = serve_by(command(format), &file.path, log.into());
    refused_at(port);
    serving.signal("QUIT");
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
    std::fs::read_to_string(&path).expect("there")
}

#[test]
fn log_as_json_is_an_object_a_line_with_all_fields() {
    let log = log_of("json");
    let lines = log.lines().map(|line| {
        let line = serde_json::from_str(line);
        line.unwrap_or_else(|error| panic!("{error}: {log}"))
    });
    let lines: Vec<Value> = lines.collect();
    for line in &lines {
        let time = line["time"].as_str().expect("a time");
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert!(
            line["level"].is_string() && line["target"].is_string(),
            "{line}"
        );
    }
    let find = |is_it: &dyn Fn(&Value) -> bool| {
        let found = lines.iter().find(|line| is_it(line));
        found.unwrap_or_else(|| panic!("not in {log}"))
    };
    let refused = find(&|line| line["event"] == "refused");
    assert_eq!(refused["level"], "warn");
    assert_eq!(refused["text"], "Connect refused");
    assert_eq!(refused["details"]["reason"], "there is no such subsystem");
    assert_eq!(refused["details"]["target"], "nqn.2026-01.io.weft:none");
    let signal = find(&|line| {
        line["text"]
            .as_str()
            .is_some_and(|text| text.contains("signal ignored"))
    });
    assert_eq!(signal["event"], Value::Null);
    assert!(signal["details"]["signal"].is_string() || signal["details"]["signal"].is_i64());
}

#[test]
fn log_as_text_is_what_it_is_without_a_format() {
    for log in [log_of("text"), log_of("")] {
        assert!(
            log.contains("WARN") && log.contains("event=\"refused\""),
            "{log}"
        );
    }
}

#[test]
fn error_at_the_start_is_of_the_format_and_a_format_there_is_not_is_told() {
    let file = file("nonsense = 1");
    let bad = |format: &str| end_of(command(format).args(["serve", "-c"]).arg(&file.path));
    let unknown = bad("xml");
    assert_eq!(unknown.status.code(), Some(2));
    let told = text(&unknown.stderr);
    assert_eq!(
        told,
        "weft: WEFT_LOG_FORMAT is \"xml\": it is text, json or journal\n"
    );
}

/// The journal takes datagrams at a socket: one is put in its place.
#[needs(mount_namespace)]
#[test]
fn log_in_the_journal_has_its_fields() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = UnixDatagram::bind(folder.path().join("socket")).expect("a socket");
    journal.set_read_timeout(Some(PATIENCE)).expect("a time");
    let port = free_port();
    let file = file(&good(port));
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                  mount --bind \"$1\" /run/systemd/journal && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(env!("CARGO_BIN_EXE_weft"))
        .env("WEFT_LOG_FORMAT", "journal");
    let serving = serve_by(command, &file.path, Stdio::piped());
    refused_at(port);
    let mut datagram = [0; 1 << 16];
    let entry = loop {
        let len = journal.recv(&mut datagram).expect("an entry");
        let entry = text(&datagram[..len]);
        if entry.contains("refused") {
            break entry;
        }
    };
    // A field is KEY=VALUE, or KEY, a length of 8 bytes and the value.
    for (key, value) in [
        ("EVENT", "refused"),
        ("MESSAGE_ID", "2a3aff050687530ebca2fe170fee7d47"),
        ("MESSAGE", "Connect refused"),
        ("PRIORITY", "4"),
        ("REASON", "there is no such subsystem"),
    ] {
        let plain = format!("{key}={value}\n");
        let sized = |at: usize| entry[at..].starts_with(key) && entry[at..].contains(value);
        let has_sized = entry.match_indices(key).any(|(at, _)| sized(at));
        assert!(entry.contains(&plain) || has_sized, "{key}: {entry:?}");
    }
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[needs(mount_namespace)]
#[test]
fn log_in_a_journal_that_there_is_not_is_refused_with_what_helps() {
    let script = "mount -t tmpfs none /run && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", script, "sh"])
        .args([env!("CARGO_BIN_EXE_weft"), "schema"])
        .env("WEFT_LOG_FORMAT", "journal");
    let refused = end_of(&mut command);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("log as text or json"), "{told}");
}
