//! That the helper's touching finds memory, as the system counts it. In the
//! release build above all: there a touch that changes nothing may be compiled
//! away (`cargo test --release -p store --test resident`, which CI runs too).

use std::thread;
use std::time::Duration;

use mem::counters;
use store::frames::{Frames, touch_ahead};
use testkit::resident_bytes;

const MIB: u64 = 1 << 20;
/// What a volume of this size keeps ready once it is written: a sixteenth.
const VOLUME_BYTES: u64 = 256 * MIB;
const RESERVE_BYTES: u64 = VOLUME_BYTES / 16;
/// What a volume has from its start.
const START_BYTES: u64 = 2 * MIB;

/// Waits until so much more is resident than `before`; what it is then. A
/// machine that is busy may take its time.
fn wait_for(before: u64, bytes: u64) -> u64 {
    let mut grown = 0;
    for _ in 0..1000 {
        grown = resident_bytes().saturating_sub(before);
        if grown >= bytes {
            return grown;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{grown} bytes are resident of {bytes} that were to be touched");
}

/// One test, since it looks at the whole process.
#[test]
fn memory_touched_ahead_is_resident_before_it_is_written() {
    touch_ahead();
    let before = resident_bytes();
    let frames = Frames::new(VOLUME_BYTES, VOLUME_BYTES).expect("address space");
    let grown = wait_for(before, START_BYTES);
    assert!(grown < RESERVE_BYTES, "{grown} before anything is written");
    // The first write asks for the whole reserve.
    frames.write(0, &[1; 4096]).expect("in range");
    wait_for(before, RESERVE_BYTES);
    assert_eq!(
        counters::here().first_touches,
        0,
        "the writer touched nothing"
    );
}
