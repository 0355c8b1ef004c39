//! What moving and checking payload costs: in cache, and into a region larger
//! than any cache at random places, as a RAM volume's writes are.
//!
//! `cargo run --release -p mem --example moves`

use mem::{Region, copy_in, copy_in_crc, crc32c};
use random::Random;
use std::time::Instant;

const REGION_BYTES: u64 = 1 << 30;
const TOTAL_BYTES: u64 = 1 << 30;

fn show(name: &str, len: u32, mut each: impl FnMut(u64)) {
    let count = TOTAL_BYTES / u64::from(len);
    let started = Instant::now();
    (0..count).for_each(&mut each);
    let ns = started.elapsed().as_nanos() as f64;
    let (per_call, per_byte) = (ns / count as f64, TOTAL_BYTES as f64 / ns);
    println!("{name:32} {len:7} bytes {per_call:9.0} ns {per_byte:7.1} GB/s");
}

fn main() {
    let region = Region::bulk(REGION_BYTES).expect("a region");
    let src = vec![7; 256 << 10];
    for chunk in 0..REGION_BYTES >> 17 {
        copy_in(region.range(chunk << 17, 1 << 17), &src[..1 << 17]);
    }
    let mut random = Random::new(1);
    let mut place = |len: u32| random.below(REGION_BYTES / u64::from(len)) * u64::from(len);
    for len in [4096, 131_072] {
        let bytes = &src[..len as usize];
        let hot = region.range(0, len);
        let mut crc = 0;
        show("crc32c, hot", len, |_| crc = crc32c(hot, crc));
        show("copy_in, hot", len, |_| copy_in(hot, bytes));
        show("copy_in_crc, hot", len, |_| {
            crc = copy_in_crc(hot, bytes, crc)
        });
        show("crc32c, cold", len, |_| {
            crc = crc32c(region.range(place(len), len), crc);
        });
        show("copy_in, cold", len, |_| {
            copy_in(region.range(place(len), len), bytes);
        });
        show("copy_in_crc, cold", len, |_| {
            crc = copy_in_crc(region.range(place(len), len), bytes, crc);
        });
        std::hint::black_box(crc);
    }
}
