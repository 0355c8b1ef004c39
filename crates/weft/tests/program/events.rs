//! What has happened, as it is asked for and followed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::admin::{Admin, exchange};
use crate::connected::{HOST, INITIATOR, Open};
use crate::reload::Load;
use crate::serving::{Ends, PATIENCE, free_port, good_in_memory, serve, text, weft};
use crate::told::end_in_order;

/// Those who may follow at a time.
const FOLLOWERS_MAX: usize = 32;

impl Open {
    /// All events, as soon as there is one of this name.
    fn events_with(&self, name: &str) -> Vec<Value> {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let told = self.answer(&["events", "--json"]);
            let events = told
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"));
            let events: Vec<Value> = events.collect();
            if events.iter().any(|event| event["event"] == name) {
                return events;
            }
            assert!(std::time::Instant::now() < deadline, "no {name}: {told}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The last event of a name.
fn last<'e>(events: &'e [Value], name: &str) -> &'e Value {
    let found = events.iter().rev().find(|event| event["event"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {events:#?}"))
}

#[test]
fn events_tell_who_came_what_was_refused_changed_and_evicted() {
    let mut open = Open::start();
    assert_eq!(open.answer(&["events"]), "nothing has happened since\n");
    let loads = [
        open.nvme_load(HOST, 1),
        open.iscsi_load(INITIATOR),
        open.nfs_load("file"),
    ];
    for host in [HOST, INITIATOR] {
        open.connections(&["--host", host], 1);
    }
    open.list(&["get", "nfs-clients"], "clients", |list| list.len() == 1);
    let events = open.events_with("connected");
    let of = |key: &str, value: &str| {
        let found = events.iter().find(|event| event["details"][key] == value);
        found.unwrap_or_else(|| panic!("{value}: {events:#?}"))
    };
    for event in [of("host", HOST), of("initiator", INITIATOR)] {
        assert_eq!(event["event"], "connected");
    }
    let wrong = format!(
        "nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.weft:none",
        open.nvme
    );
    let short = ["--runtime", "100ms", "--ramp-time", "0"];
    assert_ne!(
        weft(&[&["perf", &wrong][..], &short].concat())
            .status
            .code(),
        Some(0)
    );
    let refused = open.events_with("refused");
    let refused = last(&refused, "refused");
    assert_eq!(refused["level"], "warn");
    assert_eq!(refused["details"]["target"], "nqn.2026-01.io.weft:none");

    open.answer(&["set", "volume", "disk2", "size=16MiB"]);
    let changed = open.events_with("changed");
    let changed = last(&changed, "changed");
    assert_eq!(
        (
            &changed["details"]["generation"],
            &changed["details"]["changes"]
        ),
        (&2.into(), &1.into())
    );
    open.refusal(&["rm", "volume", "disk0"], 2);
    last(&open.events_with("change-refused"), "change-refused");

    open.answer(&["evict", "host", HOST]);
    let evicted = open.events_with("evicted");
    let said = last(&evicted, "evicted")["text"].as_str().expect("text");
    assert!(said.contains(HOST) && said.contains("has ended"), "{said}");
    let audit = open.json(&["audit"]);
    let record = audit["records"].as_array().expect("a list").last();
    let record = record.expect("of the eviction");
    assert_eq!(
        (&record["verb"], &record["outcome"], &record["generation"]),
        (
            &format!("evict host {HOST}").into(),
            &"made".into(),
            &2.into()
        )
    );
    assert!(
        open.answer(&["audit", "verify"])
            .contains("as they were written")
    );

    let all = open.events_with("disconnected");
    for (n, event) in all.iter().enumerate() {
        assert_eq!(event["id"], n + 1, "{event:#}");
    }
    // The log has the name of the same.
    let line = open.serving.log_line("event=\"connected\"");
    assert!(line.contains("INFO"), "{line}");
    let since = open.answer(&["events", "--since", "2"]);
    let first = since.lines().next().expect("an event");
    assert!(first.trim_start().starts_with("3  20"), "{first}");
    drop(loads);
    end_in_order(open.serving);
}

/// A `weft events --follow`.
struct Follower {
    _weft: Ends,
    lines: Receiver<Value>,
}

impl Follower {
    fn of(admin: &Admin) -> Follower {
        let socket = admin.file.path.with_file_name("admin.sock");
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.args(["events", "--follow", "--json", "--at"])
            .arg(socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut weft = Ends::start(&mut weft);
        let out = BufReader::new(weft.0.stdout.take().expect("a pipe"));
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = tell.send(serde_json::from_str(&line).expect("JSON"));
            }
        });
        Follower { _weft: weft, lines }
    }

    /// The next one.
    fn next(&self, name: &str) -> Value {
        let event = self.lines.recv_timeout(PATIENCE).expect("an event");
        assert_eq!(event["event"], name, "{event:#}");
        event
    }
}

#[test]
fn follower_goes_on_over_a_restart_and_is_told_of_it() {
    let port = free_port();
    let mut admin = Admin::serving(&good_in_memory(port), port);
    let follower = Follower::of(&admin);
    let apply = |admin: &Admin, port: u16| {
        let more = crate::admin::with_listener(&good_in_memory(admin.port), port);
        let other = admin.other_file(&more);
        let applied = admin.ask(&["apply", "--disconnect", "-c", &other]);
        assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    };
    apply(&admin, free_port());
    let first = follower.next("changed");
    apply(&admin, free_port());
    let second = follower.next("changed");
    assert_eq!((&first["id"], &second["id"]), (&1.into(), &2.into()));
    admin.serving.signal("KILL");
    admin.serving.child.wait().expect("our child");
    let (file, port) = (admin.file, admin.port);
    admin = Admin::of(serve(&file.path), file, port);
    let restarted = follower.next("restarted");
    assert_ne!(restarted["boot"], second["boot"]);
    apply(&admin, free_port());
    let third = follower.next("changed");
    assert_eq!(
        (&third["id"], &third["boot"]),
        (&1.into(), &restarted["boot"])
    );
    end_in_order(admin.serving);
}

#[test]
fn request_for_events_that_cannot_be_answered_is_told() {
    let port = free_port();
    let admin = Admin::serving(&good_in_memory(port), port);
    for (since, parts) in [
        ("x", &["since is \"x\"", "BOOT-NUMBER"][..]),
        ("", &["since is \"\""]),
        ("-1", &["restarted"]),
        ("99", &["since is 99, and the last event is 0"]),
        ("18446744073709551616", &["give the number"]),
        ("abc-x", &["since is \"abc-x\""]),
    ] {
        for follow in [&[][..], &["--follow"]] {
            let since = format!("--since={since}");
            if parts == ["restarted"] {
                let told = admin.ask(&["events", &since]);
                assert!(text(&told.stdout).contains("restarted"), "{told:?}");
                continue;
            }
            let told = admin.ask(&[&["events", &since], follow].concat());
            assert_ne!(told.status.code(), Some(0), "{since}");
            let told = text(&told.stderr);
            for part in parts {
                assert!(told.contains(part), "{since}: {told}");
            }
        }
    }
    let answer = admin.send("GET /v1/events?until=3", "", b"");
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("since alone"),
        "{answer}"
    );
    let answer = admin.send("GET /v1/events?since=0", "Last-Event-ID: y\r\n", b"");
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("since is \\\"y\\\""),
        "{answer}"
    );
    end_in_order(admin.serving);
}

#[test]
fn followers_that_read_nothing_cost_others_nothing() {
    let admin = Admin::start();
    let socket = admin.file.path.with_file_name("admin.sock");
    let ask = b"GET /v1/events HTTP/1.1\r\nHost: weft\r\n\r\n";
    let follow = || {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(ask).expect("room");
        stream
    };
    let mut all: Vec<_> = (0..FOLLOWERS_MAX).map(|_| follow()).collect();
    // Each is one: what it reads comes when it has its place.
    for stream in &mut all {
        let mut head = [0; 15];
        stream.read_exact(&mut head).expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
    let refused = exchange(&socket, ask);
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("follow already"),
        "{refused}"
    );
    for n in 0..2 * FOLLOWERS_MAX {
        let answer = admin.exchange(b"GET /healthz HTTP/1.1\r\nHost: weft\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{n}: {answer}");
    }
    let load = Load::start(&format!(
        "nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.weft:cli",
        admin.port
    ));
    let told = admin.ask(&["events", "--json"]);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    load.end();
    // Those who go leave their places.
    drop(all);
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let mut stream = follow();
        let mut head = [0; 15];
        stream.read_exact(&mut head).expect("an answer");
        if &head == b"HTTP/1.1 200 OK" {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no place is free");
        std::thread::sleep(Duration::from_millis(50));
    }
    end_in_order(admin.serving);
}
