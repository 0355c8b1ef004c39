//! What fuzzing has reached, and some inputs more.

#![forbid(unsafe_code)]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use random::Random;
use replay::replay;

#[test]
fn nfs_compounds() {
    replay("nfs_compounds", 40, |input| {
        nfsd::testing::fuzz(input);
    });
}

#[test]
fn inputs_of_chance() {
    let mut done = 0;
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let input: Vec<u8> = (0..6000).map(|_| random.below(256) as u8).collect();
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
