//! How long the first write to each part of a RAM volume takes: `cargo run
//! --release -p store --example first_writes [alone]`. 4 KiB to each frame of 24 MiB,
//! one every 100 us, five volumes one after the other. `alone`: no thread
//! touches memory ahead.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mem::counters;
use store::frames::{FRAME_BYTES, Frames, touch_ahead};

const SIZE: u64 = 1 << 30;
const WRITTEN: u64 = 24 << 20;
const VOLUMES: usize = 5;
const PAUSE: Duration = Duration::from_micros(100);
/// A write that takes longer found no memory.
const SLOW_NS: u64 = 50_000;

fn main() {
    let is_alone = std::env::args().nth(1).is_some_and(|word| word == "alone");
    if !is_alone {
        touch_ahead();
    }
    let bytes = [7; 4096];
    for _ in 0..VOLUMES {
        // Leaked, so that the next one finds none of its memory.
        let frames: &Frames = Box::leak(Box::new(Frames::new(SIZE, SIZE).expect("memory")));
        sleep(Duration::from_millis(200));
        let touched = counters::here().first_touches;
        let places = (0..WRITTEN).step_by(FRAME_BYTES as usize);
        let mut took: Vec<u64> = places
            .map(|at| {
                let due = Instant::now() + PAUSE;
                let start = Instant::now();
                frames.write(at, &bytes).expect("in range");
                let took = start.elapsed().as_nanos() as u64;
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
                took
            })
            .collect();
        took.sort_unstable();
        let us = |ns: u64| ns as f64 / 1e3;
        let slow = took.iter().filter(|ns| **ns > SLOW_NS).count();
        println!(
            "min {:.1} us, median {:.1} us, max {:.0} us; {slow} of {} above 50 us; \
             {} huge pages touched by the writer",
            us(took[0]),
            us(took[took.len() / 2]),
            us(took[took.len() - 1]),
            took.len(),
            counters::here().first_touches - touched,
        );
    }
}
