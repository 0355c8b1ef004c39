//! Less memory than clients ask for.

use needs::each_driver;
use reactor::Choice;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{address, at, config, drain, make, pattern, stop, until};
use crate::raw;

/// Bytes of one call.
const EACH: usize = 1 << 20;
const MEMORY_MAX: u64 = 32 << 20;

/// Three clients together ask for five times as much as there is: all of it is
/// done, in turns, and memory stays under its ceiling.
#[each_driver]
fn every_client_has_a_turn_where_memory_is_short(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    config.memory_max = MEMORY_MAX;
    let running = server::start(config).expect("starts");
    let address = address(&running);
    let (mut client, root) = at(&running, "dir");
    let opens: Vec<_> = (0..3u8)
        .map(|n| make(&mut client, &root, &format!("file{n}")))
        .collect();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (n, open) in (0u8..).zip(&opens) {
            let file = client.handle(open).as_bytes().to_vec();
            let done = &done;
            scope.spawn(move || {
                let mut stream = raw::open(address);
                let bytes = pattern(n, EACH);
                let mut feeder = stream.try_clone().expect("a socket");
                let writes = (0..40u32).map(|xid| {
                    let offset = u64::from(xid % 8) * EACH as u64;
                    raw::write3(xid, &file, offset, &bytes)
                });
                let writes: Vec<_> = writes.collect();
                let all = std::thread::spawn(move || {
                    writes
                        .iter()
                        .for_each(|w| feeder.write_all(w).expect("taken"));
                });
                for _ in 0..40 {
                    let (_, results) = raw::answer(&mut stream).expect("an answer");
                    match raw::status(&results) {
                        0 => done.fetch_add(1, Ordering::Relaxed),
                        raw::JUKEBOX => 0,
                        other => panic!("status {other}"),
                    };
                }
                all.join().expect("all was sent");
            });
        }
    });
    assert!(done.load(Ordering::Relaxed) >= 3 * 8, "{done:?} were done");
    let pool = crate::report::report(&running).pool_bytes;
    assert!(pool <= MEMORY_MAX, "{pool} bytes of buffers");
    for (n, open) in (0u8..).zip(&opens) {
        let read = drain(&mut client, open, EACH);
        assert_eq!(read.len() % EACH, 0);
        assert!(
            read.chunks(EACH).all(|part| part == pattern(n, EACH)),
            "file {n}"
        );
    }
    drop(client);
    stop(running);
}

/// Connections that vanish half-way through a WRITE, and those that ask for much
/// and take nothing, leave nothing behind.
#[each_driver]
fn memory_of_calls_under_way_is_free_after_their_connection_vanishes(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    config.memory_max = MEMORY_MAX;
    let running = server::start(config).expect("starts");
    let (mut client, root) = at(&running, "dir");
    let open = make(&mut client, &root, "file");
    let bytes = pattern(1, EACH);
    let file = client.handle(&open).as_bytes().to_vec();
    for round in 0..16u32 {
        let mut stream = raw::open(address(&running));
        let whole = raw::write3(round, &file, 0, &bytes);
        stream.write_all(&whole).expect("taken");
        for n in 0..8 {
            let read = raw::read3(100 + n, &file, 0, EACH as u32);
            stream.write_all(&read).expect("taken");
        }
        let half = raw::write3(200, &file, EACH as u64, &bytes);
        stream.write_all(&half[..half.len() / 2]).expect("taken");
        if round % 2 == 0 {
            raw::answer(&mut stream).expect("of the first");
        }
    }
    until("nothing is left", || {
        crate::report::report(&running).orphans == 0
    });
    let mut stream = raw::open(address(&running));
    for n in 0..8 {
        let offset = u64::from(n) * EACH as u64;
        let write = raw::write3(n, &file, offset, &bytes);
        stream.write_all(&write).expect("taken");
        let (_, results) = raw::answer(&mut stream).expect("an answer");
        assert_eq!(raw::status(&results), 0);
    }
    let read = drain(&mut client, &open, EACH);
    assert!(read.len() == 8 * EACH && read.chunks(EACH).all(|part| part == bytes));
    drop(client);
    stop(running);
}
