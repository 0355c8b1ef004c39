//! Replays the corpus of the fuzz target, so that what fuzzing once reached
//! stays reached without a fuzzer.

use std::fs;
use std::path::Path;

#[test]
fn nfs_connection() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nfs_connection");
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus folder") {
        let path = entry.expect("an entry").path();
        // The name of a failing input shows in the captured output.
        println!("{}", path.display());
        nfs::testing::fuzz(&fs::read(&path).expect("an input"));
        count += 1;
    }
    assert!(count >= 10, "{count} inputs in {}", folder.display());
}
