//! Replays the corpus of a fuzz target, so that what fuzzing once reached stays
//! reached without a fuzzer: a module of the tests `fuzz_corpus` of the rooms.

use std::fs;
use std::path::Path;

/// Gives `body` every input of the target `name`, of which there are
/// `inputs_min` at least.
pub fn replay(name: &str, inputs_min: usize, body: impl Fn(&[u8])) {
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
    let folder = folder.display();
    assert!(count >= inputs_min, "{count} inputs in {folder}");
}
