//! Replays the corpus of the fuzz targets, so that what fuzzing once reached
//! stays reached without a fuzzer.

use std::fs;
use std::path::Path;

use iscsi::{fuzz, testing};

fn replay(name: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus folder") {
        let path = entry.expect("an entry").path();
        // The name of a failing input shows in the captured output.
        println!("{}", path.display());
        body(&fs::read(&path).expect("an input"));
        count += 1;
    }
    assert!(count >= 10, "{count} inputs in {}", folder.display());
}

#[test]
fn iscsi_login_text() {
    replay("iscsi_login_text", fuzz::login_text);
}

#[test]
fn iscsi_pdu() {
    replay("iscsi_pdu", fuzz::pdu);
}

#[test]
fn iscsi_target() {
    replay("iscsi_target", testing::fuzz::iscsi_target);
}
