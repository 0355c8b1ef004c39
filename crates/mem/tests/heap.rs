//! That freed memory of the heap comes back to the system: a test of its own
//! process, since it looks at the whole of it.
#![cfg(target_env = "gnu")]

use testkit::resident_bytes;

#[test]
fn memory_that_is_freed_below_what_is_in_use_is_given_back() {
    let mut all: Vec<Box<[u8]>> = (0..40_000).map(|n| vec![n as u8; 1024].into()).collect();
    let last = all.pop();
    drop(all);
    let before = resident_bytes();
    mem::give_back_heap();
    let after = resident_bytes();
    assert!(after + (30 << 20) < before, "{before} bytes, then {after}");
    drop(last);
}
