//! Replays the corpus of the fuzz target, so that what fuzzing once reached
//! stays tried, and some inputs more.

#![forbid(unsafe_code)]

use machine::testing::Dice;
use std::fs;
use std::path::Path;

#[test]
fn the_corpus_is_replayed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nfs_compounds");
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus folder") {
        nfsd::testing::fuzz(&fs::read(entry.expect("an entry").path()).expect("an input"));
        inputs += 1;
    }
    assert!(inputs >= 40, "{inputs} inputs in {}", folder.display());
}

#[test]
fn inputs_of_chance() {
    let mut done = 0;
    for seed in 0..150 {
        let mut dice = Dice::new(seed);
        let input: Vec<u8> = (0..6000).map(|_| dice.below(256) as u8).collect();
        done |= nfsd::testing::fuzz(&input);
    }
    // They come far.
    let never: Vec<u32> = (3..76).filter(|op| done >> op & 1 == 0).collect();
    assert!(
        done.count_ones() >= 35,
        "only {} went well, not {never:?}",
        done.count_ones()
    );
}
