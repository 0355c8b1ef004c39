//! Many connections at once.

#![forbid(unsafe_code)]

use interop::client::{Queue, raise_open_files};
use interop::weft::{NQN, Setup, Target};
use std::thread::sleep;
use std::time::Duration;

const BLOCK: u32 = 4096;

/// I/O queues of each controller here.
const QUEUES: u16 = 39;

/// Controllers with their I/O queues: `count` connections in all.
fn connect(target: &Target, count: usize) -> Vec<Queue> {
    let mut open = Vec::new();
    while open.len() < count {
        let admin = Queue::admin(target.address(), NQN).expect("one more controller");
        let left = (count - open.len() - 1).min(usize::from(QUEUES));
        for qid in 1..=left {
            let qid = u16::try_from(qid).expect("few queues");
            open.push(admin.io(NQN, qid).expect("one more I/O queue"));
        }
        // Admin Queues last, so that I/O queues are the even picks below.
        open.push(admin);
    }
    open
}

/// I/O queues only: every controller's Admin Queue is its last connection.
fn io_queues(open: &mut [Queue]) -> impl Iterator<Item = (usize, &mut Queue)> {
    let last = open.len() - 1;
    let of_each = usize::from(QUEUES) + 1;
    open.iter_mut()
        .enumerate()
        .filter(move |(n, _)| *n != last && n % of_each != of_each - 1)
}

/// What block `n` holds.
fn pattern(n: usize) -> Vec<u8> {
    (0..BLOCK as usize)
        .map(|at| (at * 31 + n * 7 + n / 256) as u8)
        .collect()
}

#[test]
fn five_thousand_connections_open_and_serve() {
    let files = raise_open_files().expect("a limit");
    assert!(
        files > 5_100,
        "this test needs more than 5,100 open files, the limit is {files}"
    );
    let target = Target::start("connections", Setup::default());
    let mut open = connect(&target, 5_000);
    assert_eq!(open.len(), 5_000);
    let mut served = 0;
    for (n, queue) in io_queues(&mut open) {
        queue
            .write(n as u64, BLOCK, &pattern(n))
            .expect("a write on every connection");
        served += 1;
    }
    assert_eq!(served, 5_000 - 5_000 / (usize::from(QUEUES) + 1));
    let mut back = vec![0; BLOCK as usize];
    // Each reads what another wrote.
    let last = 5_000 - 1;
    for (n, queue) in io_queues(&mut open) {
        let other = if n >= 40 { n - 40 } else { n };
        queue
            .read(other as u64, BLOCK, &mut back)
            .expect("a read on every connection");
        assert!(
            back == pattern(other),
            "block {other} as read by connection {n} of {last}"
        );
    }
    drop(open);
    target.expect_orderly_end();
}

#[test]
fn a_thousand_idle_connections_cost_32_mib_at_most() {
    raise_open_files().expect("a limit");
    let target = Target::start("idle", Setup::default());
    // What the first ones cost is not theirs alone.
    let warm = connect(&target, 2 * (usize::from(QUEUES) + 1));
    sleep(Duration::from_millis(200));
    let before_kib = target.status_kib("VmRSS");
    let idle = connect(&target, 1_000);
    sleep(Duration::from_millis(200));
    let grown_kib = target.status_kib("VmRSS").saturating_sub(before_kib);
    // Goes to the log of a run that shows output; the limit is the promise.
    println!("1,000 idle connections: {grown_kib} KiB");
    assert!(
        grown_kib <= 32 * 1024,
        "{grown_kib} KiB for {} connections",
        idle.len()
    );
    drop((warm, idle));
    target.expect_orderly_end();
}
