//! That freed memory of the heap comes back to the system: a test of its own
//! process, since it looks at the whole of it.
#![cfg(target_env = "gnu")]

use std::fs;

/// Memory that is resident and belongs to no file.
fn resident_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("this process");
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn memory_that_is_freed_below_what_is_in_use_is_given_back() {
    let mut all: Vec<Box<[u8]>> = (0..40_000).map(|n| vec![n as u8; 1024].into()).collect();
    let last = all.pop();
    drop(all);
    let before = resident_kib();
    mem::give_back_heap();
    let after = resident_kib();
    assert!(after + 30_000 < before, "{before} KiB, then {after} KiB");
    drop(last);
}
