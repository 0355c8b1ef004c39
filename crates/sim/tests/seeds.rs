//! Thousands of seeds keep what weft promises, and a seed says everything.

/// Seeds that CI runs.
const SEEDS: u64 = 2000;

#[test]
fn every_seed_keeps_the_promises() {
    let mut total = sim::Outcome::default();
    for seed in 0..SEEDS {
        match sim::run(seed, 200) {
            Ok(outcome) => {
                total.checked += outcome.checked;
                total.failed += outcome.failed;
                total.lives += outcome.lives;
                total.faults += outcome.faults;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    // Seeds that do nothing would pass as well.
    assert!(total.checked > 100 * SEEDS, "{total:?}");
    assert!(total.failed > SEEDS, "{total:?}");
    assert!(total.faults > 3 * SEEDS, "{total:?}");
    assert!(total.lives > 3 * SEEDS, "{total:?}");
}

#[test]
fn a_seed_runs_the_same_each_time() {
    for seed in 0..20 {
        let run = || sim::run(seed, 0).expect("seeds keep the promises");
        assert_eq!(run(), run(), "seed {seed}");
    }
}
