//! Answers that are printed anew.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::connected::Open;
use crate::serving::Ends;
use crate::told::end_in_order;

impl Open {
    /// So many lines of a command that goes on.
    fn watched(&self, arguments: &[&str], count: usize) -> Vec<String> {
        let socket = self.file.path.with_file_name("admin.sock");
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.args(arguments).args(["--watch", "1", "--at"]);
        weft.arg(socket).stdout(Stdio::piped());
        let mut watching = Ends::start(&mut weft);
        let out = BufReader::new(watching.0.stdout.take().expect("a pipe"));
        let lines = out.lines().map_while(Result::ok).take(count).collect();
        assert!(
            watching.0.try_wait().expect("our child").is_none(),
            "it goes on"
        );
        lines
    }
}

#[test]
fn answers_are_printed_anew_until_they_are_ended() {
    let open = Open::start();
    for arguments in [
        &["get", "connections"][..],
        &["get", "hosts"],
        &["refusals"],
    ] {
        let lines = open.watched(arguments, 3);
        assert_eq!(lines[0], lines[1], "{arguments:?}");
        assert!(!lines[0].contains('\x1b'), "no terminal: {lines:?}");
    }
    let status = open.watched(&["status"], 60);
    let begun = status.iter().filter(|line| line.starts_with("weft "));
    assert!(begun.count() >= 2, "{status:#?}");
    for arguments in [&["status", "--json"][..], &["get", "volume", "--json"]] {
        for line in open.watched(arguments, 2) {
            let object: Value = serde_json::from_str(&line).expect("an object a line");
            assert!(object.is_object());
        }
    }
    open.refusal(&["get", "hosts", "nqn.x", "--watch"], 1);
    for seconds in ["0", "soon"] {
        open.refusal(&["status", "--watch", seconds], 2);
    }
    end_in_order(open.serving);
}
