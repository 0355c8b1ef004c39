//! Scrubs by commands, of a volume and of a mirror, while weft serves.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serving::{File, PATIENCE, file, free_port, serve, text, weft};

const SIZE: u64 = 8 << 20;

/// A mirror of two volumes with checksums, another one with, and one without.
fn config() -> File {
    let volume = |name: &str, keys: &str| {
        format!(
            "[[volume]]\nname = \"{name}\"\nkind = \"file\"\npath = \"{name}.img\"\nsize = \
             {SIZE}\n{keys}\n"
        )
    };
    let summed = |name| volume(name, "checksum = true\nscrub_rate = \"1GiB\"");
    file(
        &[
            summed("left"),
            summed("right"),
            "[[volume]]\nname = \"both\"\nkind = \"mirror\"\nof = [\"left\", \"right\"]\nstate = \
             \"both.state\"\n"
                .to_owned(),
            summed("alone"),
            volume("plain", ""),
            format!(
                "[[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:scrubs\"\nallow_any_host = true\n\
                 volumes = [\"both\", \"alone\", \"plain\"]\n[[listener]]\naddress = \
                 \"127.0.0.1:{}\"\n",
                free_port()
            ),
            "[policy]\nmemory_max = \"1GiB\"\n[admin]\nsocket = \"admin.sock\"\n".to_owned(),
        ]
        .concat(),
    )
}

fn flip(config: &File, volume: &str, at: u64) {
    let path = config.path.with_file_name(format!("{volume}.img"));
    let file = OpenOptions::new().write(true).open(path);
    file.expect("it is there")
        .write_all_at(&[1], at)
        .expect("room");
}

fn ask(config: &File, arguments: &[&str], code: i32) -> String {
    let socket = config.path.with_file_name("admin.sock");
    let at = ["--at", socket.to_str().expect("UTF-8")];
    let output = weft(&[arguments, &at].concat());
    let told = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    told
}

/// How the scrub of a volume stands, when it stands so.
fn scrub_that_is(config: &File, volume: &str, state: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = ask(config, &["scrub", "list", "--json"], 0);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let scrubs = told["scrubs"].as_array().expect("a list");
        let found = scrubs.iter().find(|scrub| scrub["volume"] == volume);
        let found = found.expect("it has checksums");
        if found["state"] == state {
            return found.clone();
        }
        assert!(Instant::now() < deadline, "{found:#}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn scrub_is_begun_paused_resumed_and_told_by_commands() {
    let config = config();
    let mut serving = serve(&config.path);
    flip(&config, "alone", 4096 + 7);
    flip(&config, "left", 9 * 4096);
    flip(&config, "right", SIZE - 1);
    for (arguments, part) in [
        (&["scrub", "start", "plain"][..], "has no checksums"),
        (&["scrub", "start", "other"], "there is no volume other"),
        (&["scrub", "pause", "alone"], "stays as it is: none"),
    ] {
        let told = ask(&config, arguments, 1);
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(
        ask(&config, &["scrub", "start", "both", "left"], 0),
        "the scrub of volume left begins\nthe scrub of volume right begins\n"
    );
    for leg in ["left", "right"] {
        let done = scrub_that_is(&config, leg, "done");
        assert_eq!(
            (&done["bad_blocks"], &done["repaired_blocks"]),
            (&1.into(), &1.into())
        );
    }
    for leg in ["left", "right"] {
        let path = config.path.with_file_name(format!("{leg}.img"));
        assert!(
            fs::read(path)
                .expect("it is there")
                .iter()
                .all(|byte| *byte == 0)
        );
    }
    // One that pauses for its rate takes another at once.
    ask(&config, &["set", "volume", "alone", "scrub_rate=0"], 0);
    ask(&config, &["scrub", "start", "alone"], 0);
    assert_eq!(
        scrub_that_is(&config, "alone", "running")["position_bytes"],
        0
    );
    ask(&config, &["scrub", "pause", "alone"], 0);
    ask(&config, &["set", "volume", "alone", "scrub_rate=1GiB"], 0);
    assert_eq!(
        scrub_that_is(&config, "alone", "paused")["position_bytes"],
        0
    );
    ask(&config, &["scrub", "resume", "alone"], 0);
    let done = scrub_that_is(&config, "alone", "done");
    assert_eq!(done["bad_lbas"], serde_json::json!([1]));
    let shown = ask(&config, &["scrub", "list"], 0);
    assert!(
        shown.contains("UNREADABLE: volume alone, the first LBAs: 1"),
        "{shown}"
    );
    let events = ask(&config, &["events", "--since", "0"], 0);
    assert!(
        events.contains("scrub-begun") && events.contains("scrub-ended"),
        "{events}"
    );
    let audit = ask(&config, &["audit"], 0);
    assert!(audit.contains("scrub resume"), "{audit}");
    serving.log_line("scrub-ended");
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}
