//! Where nothing more can be printed.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::serving::{end_of, file, free_port, good, text, unread};

/// A disk that is full.
fn full() -> Stdio {
    let full = File::options().write(true).open("/dev/full");
    full.expect("it is there").into()
}

#[test]
fn command_that_cannot_print_says_so_and_fails() {
    let file = file(&good(free_port()));
    let config = file.path.to_str().expect("UTF-8");
    let undo = file.path.with_file_name("undo.json");
    let undo = undo.to_str().expect("UTF-8");
    for arguments in [
        &["check", "-c", config][..],
        &["--help"],
        &["--version"],
        &["tune", "look", "latency"],
        &["tune", "print", "throughput"],
        &["tune", "--undo-file", undo, "undo"],
        &["bench", "list"],
        &["discover", "--json", "127.0.0.1:1"],
    ] {
        for (out, told) in [(full(), "weft: cannot print: "), (unread(), "")] {
            let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
            let output = end_of(weft.args(arguments).stdout(out));
            let log = text(&output.stderr);
            assert!(
                log.contains(told) && !log.contains("panic"),
                "{arguments:?}: {log}"
            );
            match told {
                "" => assert_ne!(output.status.code(), Some(101), "{arguments:?}"),
                _ => assert_eq!(output.status.code(), Some(1), "{arguments:?}: {log}"),
            }
        }
    }
}
