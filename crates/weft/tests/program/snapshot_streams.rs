//! Snapshots to another weft and from one, by commands.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use needs::needs;
use random::Random;
use serde_json::Value;

use crate::serving::{PATIENCE, text, weft};
use crate::snapshots::{Disks, SIZE};
use crate::told::end_in_order;

/// The stream that a command writes.
fn sent(disks: &Disks, arguments: &[&str]) -> Vec<u8> {
    let output = disks.ask(&[&["send"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output.stdout
}

/// What a command comes to that has a stream for its input.
fn receive(disks: &Disks, name: &str, volume: &str, stream: &[u8]) -> (Option<i32>, String) {
    let mut input = tempfile::tempfile().expect("a file");
    input.write_all(stream).expect("room");
    input.rewind().expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(disks.arguments(&["receive", name, volume]))
        .stdin(input)
        .output()
        .expect("weft starts");
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), text(&told))
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshots_are_sent_and_received_by_commands_all_or_what_has_changed() {
    let disks = Disks::new();
    let serving = disks.serve();
    disks.fill("a", 1);
    disks.answer(&["create", "monday", "a"]);
    let all = sent(&disks, &["monday", "a"]);
    assert_eq!(
        receive(&disks, "monday", "b", &all),
        (
            Some(0),
            "snapshot monday of volume b is received\n".to_owned()
        )
    );
    let file = OpenOptions::new().write(true).open(disks.path("a"));
    file.expect("it is there")
        .write_all_at(&[2; 8192], 1 << 20)
        .expect("room");
    disks.answer(&["create", "tuesday", "a"]);
    let shown = disks.answer(&["diff", "monday", "tuesday", "a"]);
    let last = shown.lines().last().expect("a line");
    assert_eq!(
        last.split_whitespace().collect::<Vec<_>>(),
        ["1048576", "8192", "no"]
    );
    let same = disks.answer(&["diff", "tuesday", "tuesday", "a"]);
    assert_eq!(same, "they hold the same\n");
    let changed = sent(&disks, &["tuesday", "a", "--since", "monday"]);
    assert!(changed.len() < 9000, "{} bytes", changed.len());

    // It is cut, and goes on.
    let (code, told) = receive(&disks, "later", "b", &changed[..changed.len() - 10]);
    assert_eq!(code, Some(1));
    assert!(told.contains("`--from 1056768`"), "{told}");
    let shown = disks.answer(&["list", "b"]);
    assert!(shown.contains("of which a part was received:"), "{shown}");
    let rest = sent(
        &disks,
        &["tuesday", "a", "--since", "monday", "--from", "1056768"],
    );
    assert!(rest.len() < 200, "{} bytes", rest.len());
    assert_eq!(receive(&disks, "later", "b", &rest).0, Some(0));
    let data = |at: &str| fs::read(disks.mounted.path().join(at)).expect("it is there");
    let is_same = data("a.snapshots/tuesday/data") == data("b.snapshots/later/data");
    assert!(is_same, "it is what was sent");
    disks.answer(&["rollback", "later", "b"]);
    assert!(data("a") == data("b"), "it can be rolled back to");

    for (name, volume, stream, code, part) in [
        ("x", "b", &b"#!/bin/sh"[..], 2, "does not begin as one that"),
        ("x", "b", &[], 2, "does not begin as one that"),
        ("x", "a", &changed[..], 1, "is not whole"),
        ("monday", "b", &all, 1, "has a snapshot \"monday\" already"),
        ("x/y", "b", &all, 2, "is no name of a snapshot"),
        ("x", "r", &all, 1, "which has no snapshots"),
        ("x", "c", &all, 1, "there are a, b, r"),
    ] {
        let stream = if part == "is not whole" {
            &stream[..400]
        } else {
            stream
        };
        let told = receive(&disks, name, volume, stream);
        assert!(
            told.0 == Some(code) && told.1.contains(part),
            "{name} of {volume}: {told:?}"
        );
    }
    disks.answer(&["rm", "monday", "b"]);
    let (code, told) = receive(&disks, "again", "b", &changed);
    assert_eq!(code, Some(1));
    assert!(told.contains("has no whole snapshot with UUID"), "{told}");
    for (arguments, code, part) in [
        (&["send", "none", "a"][..], 1, "has no snapshot \"none\""),
        (
            &["send", "tuesday", "a", "--since", "none"],
            1,
            "has no snapshot \"none\"",
        ),
        (
            &["send", "tuesday", "a", "--from", "9000000"],
            2,
            "has 8388608 bytes",
        ),
        (
            &["diff", "none", "tuesday", "a"],
            1,
            "has no snapshot \"none\"",
        ),
    ] {
        let told = disks.refusal(arguments, code);
        assert!(told.contains(part), "{arguments:?}: {told}");
    }
    let socket = disks.file.path.with_file_name("admin.sock");
    let audit = weft(&["audit", "--at", socket.to_str().expect("UTF-8")]);
    let audit = text(&audit.stdout);
    for verb in ["snapshot send", "snapshot receive"] {
        assert!(audit.contains(verb), "{audit}");
    }
    end_in_order(serving);
}

/// A client that asks for the stream of a snapshot of volume a, and reads none of it but its
/// first bytes.
fn slow_reader(disks: &Disks, name: &str) -> UnixStream {
    let socket = disks.file.path.with_file_name("admin.sock");
    let mut asks = UnixStream::connect(socket).expect("it listens");
    let request = format!("GET /v1/snapshots/a/{name}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    asks.write_all(request.as_bytes()).expect("room");
    let mut head = [0; 15];
    asks.read_exact(&mut head).expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    asks
}

/// What the audit has of those that were sent and received.
fn audit(disks: &Disks) -> Vec<String> {
    let socket = disks.file.path.with_file_name("admin.sock");
    let told = weft(&["audit", "--json", "--at", socket.to_str().expect("UTF-8")]);
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let records = told["records"].as_array().expect("a list").iter();
    let streams = records.filter(|record| {
        let verb = record["verb"].as_str().expect("text");
        ["snapshot send", "snapshot receive"].contains(&verb)
    });
    let done = streams.flat_map(|record| record["changes"].as_array().expect("a list"));
    let mut lines: Vec<_> = done
        .map(|line| line.as_str().expect("text").to_owned())
        .collect();
    lines.sort();
    lines
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn audit_says_which_streams_were_whole_and_where_others_were_cut() {
    let disks = Disks::new();
    let serving = disks.serve();
    disks.fill("a", 1);
    disks.answer(&["create", "s", "a"]);
    let mut reader = slow_reader(&disks, "s");
    let mut part = vec![0; 100_000];
    reader.read_exact(&mut part).expect("a part of it");
    drop(reader);
    let deadline = Instant::now() + PATIENCE;
    while audit(&disks).is_empty() {
        assert!(Instant::now() < deadline, "it is not told");
        thread::sleep(Duration::from_millis(20));
    }
    let [cut] = &audit(&disks)[..] else {
        panic!("{:?}", audit(&disks));
    };
    let bytes =
        cut.strip_prefix("snapshot s of volume a is not sent to its end: it was cut behind ");
    let bytes = bytes.and_then(|rest| rest.split_once(" bytes of its stream: "));
    let bytes: usize = bytes.expect(cut).0.parse().expect(cut);
    assert!((90_000..SIZE).contains(&bytes), "{cut}");

    let stream = sent(&disks, &["s", "a"]);
    receive(&disks, "t", "b", &stream[..stream.len() / 2]);
    receive(&disks, "t", "b", &stream);
    let all = audit(&disks);
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(all[2], "snapshot s of volume a is sent");
    assert!(all[0].contains("up to byte 3145728 is kept"), "{all:?}");
    assert_eq!(all[3], "snapshot t of volume b is received");
    end_in_order(serving);
}

/// Whoever sends it reads why, which is not lost where the rest is not taken.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn stream_that_is_refused_is_told_why_however_much_of_it_comes() {
    let disks = Disks::new();
    let serving = disks.serve();
    disks.fill("a", 1);
    disks.answer(&["create", "s", "a"]);
    let stream = sent(&disks, &["s", "a"]);
    let readers: Vec<_> = (0..16).map(|_| slow_reader(&disks, "s")).collect();
    for _ in 0..8 {
        let (code, told) = receive(&disks, "s", "b", &stream);
        assert_eq!(code, Some(1), "{told}");
        assert!(
            told.contains("16 snapshots are sent and received already"),
            "{told}"
        );
    }
    // Others notice nothing of them.
    disks.answer(&["create", "t", "a", "b"]);
    drop(readers);
    let deadline = Instant::now() + PATIENCE;
    while receive(&disks, "s", "b", &stream).0 != Some(0) {
        assert!(Instant::now() < deadline, "their places are free again");
    }
    end_in_order(serving);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn input_of_a_receive_that_cannot_be_read_is_told() {
    let disks = Disks::new();
    let serving = disks.serve();
    let output = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(disks.arguments(&["receive", "s", "b"]))
        .stdin(fs::File::open("/").expect("a folder"))
        .output()
        .expect("weft starts");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("standard input cannot be read: "), "{told}");
    end_in_order(serving);
}

/// A `weft snapshot receive` that is given its stream part by part.
struct Receives {
    child: Child,
    input: Option<ChildStdin>,
}

impl Receives {
    fn start(disks: &Disks, name: &str) -> Receives {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(disks.arguments(&["receive", name, "b"]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weft starts");
        let input = child.stdin.take();
        Receives { child, input }
    }

    /// It may have ended before it has taken all.
    fn give(&mut self, part: &[u8]) {
        let input = self.input.as_mut().expect("it is open");
        let _ = input.write_all(part);
    }

    fn end(mut self) -> Output {
        drop(self.input.take());
        self.child.wait_with_output().expect("our child")
    }
}

/// Up to which byte volume b says it has received a snapshot, if it does.
fn received_bytes(disks: &Disks, name: &str) -> Option<u64> {
    let all: Value = serde_json::from_str(&disks.answer(&["list", "b", "--json"])).expect("JSON");
    let parts = all["parts"].as_array().into_iter().flatten();
    let mut found = parts.filter(|part| part["name"] == name);
    found.next()?["received_bytes"].as_u64()
}

/// Kills of weft in the test.
const KILLS: u32 = 24;

/// A kill at any point leaves a snapshot that is whole or none, and of what was told to be
/// there nothing is missing.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn weft_that_is_killed_amid_a_receive_has_all_of_the_snapshot_or_goes_on_with_it() {
    const SEED: u64 = 1;
    let mut random = Random::new(SEED);
    let disks = Disks::new();
    let mut serving = disks.serve();
    let data = |at: String| fs::read(disks.mounted.path().join(at)).expect("it is there");
    let (mut kills, mut goes_on) = (0, 0);
    for number in 0.. {
        if kills >= KILLS {
            break;
        }
        let file = OpenOptions::new().write(true).open(disks.path("a"));
        let file = file.expect("it is there");
        for _ in 0..random.below(12) + 1 {
            let bytes = vec![random.below(255) as u8 + 1; 4096 * (random.below(256) + 1) as usize];
            let at = random.below((SIZE - bytes.len()) as u64 / 4096 + 1) * 4096;
            file.write_all_at(&bytes, at).expect("room");
        }
        let (name, before) = (format!("s{number}"), format!("s{}", number - 1));
        disks.answer(&["create", &name, "a"]);
        let since = (number > 0 && random.percent(70)).then_some(&*before);
        let mut told_bytes = 0;
        loop {
            let from = received_bytes(&disks, &name).unwrap_or(0);
            assert!(
                from >= told_bytes,
                "seed {SEED}, {name}: {from} of {told_bytes}"
            );
            goes_on += u32::from(from > 0);
            let from = from.to_string();
            let mut arguments = vec![&*name, "a", "--from", &from];
            arguments.extend(since.iter().flat_map(|since| ["--since", since]));
            let stream = sent(&disks, &arguments);
            let len = random.below(stream.len() as u64 * 5 / 4) as usize;
            let mut receives = Receives::start(&disks, &name);
            receives.give(&stream[..len.min(stream.len())]);
            let is_killed = random.percent(60);
            if is_killed {
                if len >= stream.len() {
                    drop(receives.input.take());
                }
                thread::sleep(Duration::from_micros(random.below(4000)));
                serving.child.kill().expect("our child");
                kills += 1;
            }
            let output = receives.end();
            if is_killed {
                drop(serving);
                serving = disks.serve();
            }
            let told = text(&output.stderr);
            if let Some((_, rest)) = told.split_once("`--from ") {
                told_bytes = rest
                    .split('`')
                    .next()
                    .and_then(|at| at.parse().ok())
                    .expect(&told);
            }
            expect_no_leftovers(&disks, &name);
            let whole = disks
                .list()
                .iter()
                .any(|one| one["volume"] == "b" && one["name"] == *name);
            assert!(whole || !output.status.success(), "seed {SEED}, {name}");
            if whole {
                break;
            }
        }
        let is_same =
            data(format!("a.snapshots/{name}/data")) == data(format!("b.snapshots/{name}/data"));
        assert!(is_same, "seed {SEED}, {name}");
    }
    assert!(goes_on > 0, "none went on");
    end_in_order(serving);
}

/// What lies beside the snapshots of volume b is listed, and none of them is damaged.
fn expect_no_leftovers(disks: &Disks, name: &str) {
    let all = disks.list();
    assert!(all.iter().all(|one| one["damage"].is_null()), "{all:?}");
    let left = fs::read_dir(disks.path("b").with_extension("snapshots"))
        .into_iter()
        .flatten();
    let left = left.map(|entry| {
        entry
            .expect("a name")
            .file_name()
            .into_string()
            .expect("UTF-8")
    });
    let left: Vec<_> = left.filter(|name| name.starts_with('.')).collect();
    let part = received_bytes(disks, name).map(|_| format!(".{name}.part"));
    assert_eq!(left, part.into_iter().collect::<Vec<_>>());
}
