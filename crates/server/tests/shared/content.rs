//! What is written, and waiting.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::running::PATIENCE;

/// Bytes that are different for every seed.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        sleep(Duration::from_millis(2));
    }
}
