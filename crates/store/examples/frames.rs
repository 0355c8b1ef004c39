//! What a RAM volume pays for every I/O: `cargo run --release -p store --example
//! frames`. One GiB, written once; random places; no other thread.

use std::hint::black_box;
use std::time::Instant;

use mem::{Region, copy_in};
use random::Random;
use store::frames::{FRAME_BYTES, Frames};

const SIZE: u64 = 1 << 30;

/// Nanoseconds of one call, the best of five rounds.
fn ns(rounds: u64, mut call: impl FnMut(u64)) -> f64 {
    let mut random = Random::new(1);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..rounds {
            call(random.next_u64());
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / rounds as f64);
    }
    best
}

fn main() {
    let frames = Frames::new(SIZE, SIZE).expect("memory");
    let plain = Region::bulk(SIZE).expect("memory");
    let bytes = vec![7; 128 << 10];
    for at in (0..SIZE).step_by(bytes.len()) {
        for part in 0..8 {
            frames
                .write(at + (part << 14), &bytes[..16 << 10])
                .expect("in range");
        }
        copy_in(plain.range(at, bytes.len() as u32), &bytes);
    }
    let place = |random: u64, len: u64| random % (SIZE / len) * len;
    println!("frames of {} KiB", FRAME_BYTES >> 10);
    for (name, len) in [("4 KiB", 4096), ("128 KiB", 128 << 10), ("1 MiB", 1 << 20)] {
        let one = ns(1 << 20, |_| drop(black_box(frames.pin(0, len as u32))));
        let any = ns(1 << 20, |r| {
            drop(black_box(frames.pin(place(r, len), len as u32)))
        });
        println!("pin and unpin {name}: {one:.1} ns, at random {any:.1} ns");
    }
    let write = ns(1 << 19, |r| {
        frames
            .write(place(r, 4096), &bytes[..4096])
            .expect("in range")
    });
    let copy = ns(1 << 19, |r| {
        copy_in(plain.range(place(r, 4096), 4096), &bytes[..4096])
    });
    println!("write 4 KiB at random: {write:.1} ns, the copy alone {copy:.1} ns");
    for (name, len) in [
        ("16 KiB", 16 << 10),
        ("128 KiB", 128 << 10),
        ("1 MiB", 1 << 20),
    ] {
        let swap = ns(1 << 17, |r| {
            let at = place(r, len);
            let mut loan = frames.borrow(at, len as u32).expect("spare frames");
            frames.commit(&mut loan, at).expect("in range");
        });
        let four = ns(1 << 17, |r| {
            let at = place(r, len).min(SIZE - len - 4096) + 4096;
            let mut loan = frames.borrow(at, len as u32).expect("spare frames");
            frames.commit(&mut loan, at).expect("in range");
        });
        println!("borrow and commit {name}: {swap:.1} ns, 4 KiB beside frames {four:.1} ns");
    }
    let cow = ns(1 << 17, |r| {
        let at = place(r, 4096);
        let read = frames.pin(at, 4096);
        frames.write(at, &bytes[..4096]).expect("spare frames");
        drop(read);
    });
    println!("write 4 KiB under a reader: {cow:.1} ns");
}
