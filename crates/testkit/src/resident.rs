//! What the system counts of this process.

/// Memory that is resident and belongs to no file, as the kernel counts it now
/// (`statm`'s counts lag behind by up to 64 pages for each core).
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("this process");
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).expect("a number");
    kib << 10
}
