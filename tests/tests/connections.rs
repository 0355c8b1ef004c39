//! Many connections at once.

#![forbid(unsafe_code)]

use interop::client::{QueuePair, raise_open_files};
use interop::weft::{NQN, Setup, WeftProcess};
use needs::needs;
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

const BLOCK: u32 = 4096;

/// I/O queues of each controller here.
const QUEUES: u16 = 39;

/// Connections of each, the Admin Queue among them.
const OF_EACH: usize = QUEUES as usize + 1;

/// One test at a time: each takes most of the files that a process may open.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|failed| failed.into_inner())
}

/// Controllers with their I/O queues: `count` connections in all.
fn connect(target: &WeftProcess, count: usize) -> Vec<QueuePair> {
    let mut open = Vec::new();
    while open.len() < count {
        let admin = QueuePair::admin(target.address(), NQN).expect("one more controller");
        let left = (count - open.len() - 1).min(usize::from(QUEUES));
        for qid in 1..=left {
            let qid = u16::try_from(qid).expect("few queues");
            open.push(admin.io(NQN, qid).expect("one more I/O queue"));
        }
        open.push(admin);
    }
    open
}

/// I/O queues only: every controller's Admin Queue is its last connection.
fn io_queues(open: &mut [QueuePair]) -> impl Iterator<Item = (usize, &mut QueuePair)> {
    let last = open.len() - 1;
    open.iter_mut()
        .enumerate()
        .filter(move |(n, _)| *n != last && n % OF_EACH != OF_EACH - 1)
}

/// What block `n` holds.
fn pattern(n: usize) -> Vec<u8> {
    (0..BLOCK as usize)
        .map(|at| (at * 31 + n * 7 + n / 256) as u8)
        .collect()
}

#[needs(open_files(5_100))]
#[test]
fn five_thousand_connections_open_and_serve_on_epoll() {
    five_thousand_connections_open_and_serve("epoll");
}

#[needs(open_files(5_100), io_uring)]
#[test]
fn five_thousand_connections_open_and_serve_on_io_uring() {
    five_thousand_connections_open_and_serve("io_uring");
}

fn five_thousand_connections_open_and_serve(io: &'static str) {
    let _turn = turn();
    raise_open_files().expect("a limit");
    let setup = Setup {
        io,
        ..Setup::default()
    };
    let target = WeftProcess::start("connections", setup);
    serve_five_thousand(&target);
    target.expect_orderly_end();
}

fn serve_five_thousand(target: &WeftProcess) {
    let mut open = connect(target, 5_000);
    assert_eq!(open.len(), 5_000);
    let mut served = 0;
    for (n, queue) in io_queues(&mut open) {
        queue
            .write(n as u64, BLOCK, &pattern(n))
            .expect("a write on every connection");
        served += 1;
    }
    assert_eq!(served, 5_000 - 5_000 / OF_EACH);
    let mut back = vec![0; BLOCK as usize];
    for (n, queue) in io_queues(&mut open) {
        // What a queue of another controller wrote.
        let other = if n >= OF_EACH { n - OF_EACH } else { n };
        queue
            .read(other as u64, BLOCK, &mut back)
            .expect("a read on every connection");
        assert!(
            back == pattern(other),
            "block {other} as read by connection {n}"
        );
    }
}

#[needs(open_files(2_400))]
#[test]
fn a_thousand_idle_connections_cost_32_mib_at_most_on_epoll() {
    a_thousand_idle_connections_cost_32_mib_at_most("epoll");
}

#[needs(open_files(2_400), io_uring)]
#[test]
fn a_thousand_idle_connections_cost_32_mib_at_most_on_io_uring() {
    a_thousand_idle_connections_cost_32_mib_at_most("io_uring");
}

fn a_thousand_idle_connections_cost_32_mib_at_most(io: &'static str) {
    let _turn = turn();
    raise_open_files().expect("a limit");
    let setup = Setup {
        io,
        ..Setup::default()
    };
    let target = WeftProcess::start("idle", setup);
    // What the first ones cost is not theirs alone.
    let mut open = connect(&target, 2 * OF_EACH);
    let before_kib = settled_rss_kib(&target);
    open.extend(connect(&target, 1_000));
    let queues_kib = settled_rss_kib(&target).saturating_sub(before_kib);
    // Again, each a controller of its own.
    let admin = || QueuePair::admin(target.address(), NQN).expect("one more controller");
    open.extend(std::iter::repeat_with(admin).take(1_000));
    let both_kib = settled_rss_kib(&target).saturating_sub(before_kib);
    let controllers_kib = both_kib.saturating_sub(queues_kib);
    println!("1,000 idle, {io}: I/O queues {queues_kib} KiB, controllers {controllers_kib} KiB");
    for kib in [queues_kib, controllers_kib] {
        assert!(kib <= 32 * 1024, "{kib} KiB on {io}");
    }
    drop(open);
    target.expect_orderly_end();
}

/// Resident memory once the target has nothing left to do.
fn settled_rss_kib(target: &WeftProcess) -> u64 {
    sleep(Duration::from_millis(200));
    target.status_kib("VmRSS")
}
