//! READ and WRITE of as much as `max_io_bytes` may be, 8 MiB, in one call.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use host::nfs::{Params, RdmaClientSettings};
use needs::each_driver;
use nvmf::transport::Transports;
use reactor::Choice;
use server::{Config, Running};
use wire::nfs4::stable_how4;

use crate::common::{Caller, address, at, config, connect, make, params, pattern, stop, until};
use crate::raw;

/// Bytes of one call.
pub const LARGE: usize = 8 << 20;
/// The least that `max_io_bytes` of so many wants.
const MEMORY_MAX: u64 = 64 << 20;
/// NFS3ERR_INVAL.
const INVAL: u32 = 22;

pub fn large(backend: Choice, folder: &Path) -> Config {
    let mut config = config(backend, folder);
    config.nfs.io_bytes_max = LARGE as u32;
    config.listeners[0].rdma.transports = Transports::Both;
    config
}

/// A client that asks for such calls.
pub fn large_params(of: Params) -> Params {
    Params {
        io_bytes_max: LARGE as u32,
        ..of
    }
}

/// Writes and reads a file of one call's data, each in one call. Its handle.
pub fn move_all(running: &Running, client: &mut Caller, export: &str) -> Vec<u8> {
    assert_eq!(client.io_bytes_max() as usize, LARGE, "the session has it");
    let root = client.lookup([export]).expect("exported");
    let open = make(client, &root, "file");
    let bytes = pattern(3, LARGE);
    let before = crate::report::report(running).io_bytes;
    let done = client.write(&open, 0, (&bytes, stable_how4::UNSTABLE4));
    assert_eq!(done.expect("room").count as usize, LARGE);
    let mut back = vec![0; LARGE];
    let read = client.read(&open, 0, &mut back).expect("readable");
    assert_eq!(read, (LARGE, true));
    assert!(back == bytes, "{export}: as it was written");
    let moved = crate::report::report(running).io_bytes - before;
    assert_eq!(moved as usize, 2 * LARGE);
    let file = client.handle(&open).as_bytes().to_vec();
    client.close_file(open).expect("closed");
    file
}

/// The last 32-bit words of results, from `at` before their end.
fn word_before_end(results: &[u8], at: usize) -> usize {
    let at = results.len() - at;
    let word = results[at..at + 4].try_into().expect("4 bytes");
    u32::from_be_bytes(word) as usize
}

fn ask(stream: &mut TcpStream, call: &[u8]) -> Vec<u8> {
    stream.write_all(call).expect("taken");
    let (_, results) = raw::answer(stream).expect("an answer");
    results
}

#[each_driver]
fn call_of_8_mib_moves_all_of_its_data_in_every_version(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(large(backend, folder.path())).expect("starts");
    for export in ["mem", "dir"] {
        let mut client = connect(&running, large_params(params()));
        let file = move_all(&running, &mut client, export);
        drop(client);
        let mut stream = raw::open(address(&running));
        let v3 = pattern(4, LARGE);
        let results = ask(&mut stream, &raw::write3(1, &file, 0, &v3));
        // `count`, `committed`, `verf`.
        assert_eq!(
            (raw::status(&results), word_before_end(&results, 16)),
            (0, LARGE)
        );
        let results = ask(&mut stream, &raw::read3(2, &file, 0, LARGE as u32));
        // `count`, `eof`, the length of `data`.
        let [count, eof, len] = [12, 8, 4].map(|at| word_before_end(&results, LARGE + at));
        assert_eq!(
            (raw::status(&results), count, eof, len),
            (0, LARGE, 1, LARGE)
        );
        assert!(results.ends_with(&v3), "{export}: version 3");
        let v4 = pattern(5, LARGE);
        let ops = [raw::putfh4(&file), raw::write4(&v4)];
        let results = ask(&mut stream, &raw::compound4(3, &ops));
        assert_eq!(
            (raw::status(&results), word_before_end(&results, 16)),
            (0, LARGE)
        );
        let ops = [raw::putfh4(&file), raw::read4(LARGE as u32)];
        let results = ask(&mut stream, &raw::compound4(4, &ops));
        assert_eq!(
            (raw::status(&results), word_before_end(&results, LARGE + 4)),
            (0, LARGE)
        );
        assert!(results.ends_with(&v4), "{export}: version 4.0");
    }
    stop(running);
}

/// Of a session by RDMA likewise: its data is read from and written to the client's memory.
#[each_driver]
fn call_of_8_mib_moves_all_of_its_data_by_rdma(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(large(backend, folder.path())).expect("starts");
    let by_rdma = Params {
        rdma: Some(RdmaClientSettings::default()),
        ..large_params(params())
    };
    let mut client = connect(&running, by_rdma);
    for export in ["mem", "dir"] {
        move_all(&running, &mut client, export);
    }
    drop(client);
    stop(running);
}

/// Files that end within a call's data, at the end of one of its buffers, and before it.
#[each_driver]
fn read_of_8_mib_ends_where_the_file_does(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(large(backend, folder.path())).expect("starts");
    for export in ["mem", "dir"] {
        let mut client = connect(&running, large_params(params()));
        let root = client.lookup([export]).expect("exported");
        for (size, from) in [
            ((5 << 20) + 4097, 0),
            (4 << 20, 0),
            ((10 << 20) + 1, (3 << 20) + 5),
            ((2 << 20) + 3, (2 << 20) + 3),
            ((2 << 20) + 3, 3 << 20),
            ((9 << 20) + 1, 1 << 20),
        ] {
            let open = make(&mut client, &root, &format!("{size}-{from}"));
            let bytes = pattern(9, size);
            for (n, part) in bytes.chunks(LARGE).enumerate() {
                let offset = (n * LARGE) as u64;
                let done = client.write(&open, offset, (part, stable_how4::UNSTABLE4));
                assert_eq!(done.expect("room").count as usize, part.len());
            }
            let mut back = vec![0; LARGE];
            let (len, is_end) = client
                .read(&open, from as u64, &mut back)
                .expect("readable");
            let rest = &bytes[from.min(size)..];
            let expected = &rest[..rest.len().min(LARGE)];
            assert!(back[..len] == *expected, "{export}: {size} from {from}");
            assert_eq!(is_end, rest.len() <= LARGE, "{export}: {size} from {from}");
            client.close_file(open).expect("closed");
        }
    }
    stop(running);
}

/// More than `max_io_bytes` is answered with an error, and what follows is served.
#[each_driver]
fn write_of_more_than_8_mib_is_refused_and_the_next_call_answered(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(large(backend, folder.path())).expect("starts");
    let (mut client, root) = at(&running, "dir");
    let open = make(&mut client, &root, "file");
    let file = client.handle(&open).as_bytes().to_vec();
    let mut stream = raw::open(address(&running));
    let bytes = pattern(1, LARGE + 4096);
    let results = ask(&mut stream, &raw::write3(1, &file, 0, &bytes));
    assert_eq!(raw::status(&results), INVAL);
    raw::ping(&mut stream);
    let mut byte = [0];
    assert_eq!(client.read(&open, 0, &mut byte).expect("empty"), (0, true));
    drop(client);
    stop(running);
}

/// While a part of a WRITE has come others are served; when its connection is lost nothing of
/// it is written, and its memory is free: all together take more than there is.
#[each_driver]
fn write_of_8_mib_that_is_cut_off_holds_up_no_other_and_leaves_nothing(backend: Choice) {
    const ROUNDS: usize = 12;
    const SMALL: usize = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = large(backend, folder.path());
    config.memory_max = MEMORY_MAX;
    let running = server::start(config).expect("starts");
    for export in ["mem", "dir"] {
        let (mut client, root) = at(&running, export);
        let open = make(&mut client, &root, "cut");
        let file = client.handle(&open).as_bytes().to_vec();
        let small = make(&mut client, &root, "small");
        let old = pattern(1, 4096);
        let write = |client: &mut Caller, to, offset, bytes: &[u8]| {
            let done = client.write(to, offset, (bytes, stable_how4::UNSTABLE4));
            assert_eq!(done.expect("room").count as usize, bytes.len());
        };
        write(&mut client, &open, 0, &old);
        let whole = raw::write3(1, &file, 0, &pattern(2, LARGE));
        for round in 0..ROUNDS {
            let mut stream = raw::open(address(&running));
            // More than one of its buffers, and less than all.
            let cut = whole.len() * (4 + round % 4) / 8;
            stream.write_all(&whole[..cut]).expect("taken");
            for n in 0..SMALL {
                let bytes = pattern(n as u8, 4096);
                let offset = (n * 4096) as u64;
                write(&mut client, &small, offset, &bytes);
                let mut back = vec![0; 4096];
                client.read(&small, offset, &mut back).expect("served");
                assert!(back == bytes, "round {round}");
            }
        }
        until("nothing is left", || {
            crate::report::report(&running).orphans == 0
        });
        let mut back = vec![0; 8192];
        let read = client.read(&open, 0, &mut back).expect("readable");
        assert_eq!(read, (4096, true), "nothing of it is written");
        assert!(back[..4096] == old);
        let mut stream = raw::open(address(&running));
        for _ in 0..2 {
            assert_eq!(
                raw::status(&ask(&mut stream, &whole)),
                0,
                "its memory is free"
            );
        }
    }
    let pool = crate::report::report(&running).pool_bytes;
    assert!(pool <= MEMORY_MAX, "{pool} bytes of buffers");
    stop(running);
}

/// Three clients together ask for four times as much as there is, and one more makes small
/// calls: all of it is done, in turns, and memory stays under its ceiling.
#[each_driver]
fn calls_of_8_mib_have_their_turns_where_memory_is_short(backend: Choice) {
    const CALLS: u32 = 10;
    const SMALL: usize = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = large(backend, folder.path());
    config.memory_max = MEMORY_MAX;
    let running = server::start(config).expect("starts");
    let address = address(&running);
    let (mut client, root) = at(&running, "dir");
    let small = make(&mut client, &root, "small");
    let opens: Vec<_> = (0..3u8)
        .map(|n| make(&mut client, &root, &format!("file{n}")))
        .collect();
    std::thread::scope(|scope| {
        for (n, open) in (0u8..).zip(&opens) {
            let file = client.handle(open).as_bytes().to_vec();
            scope.spawn(move || {
                let mut stream = raw::open(address);
                let bytes = pattern(n, LARGE);
                let mut feeder = stream.try_clone().expect("a socket");
                let write = raw::write3(1, &file, 0, &bytes);
                let read = raw::read3(2, &file, 0, LARGE as u32);
                let all = std::thread::spawn(move || {
                    for _ in 0..CALLS {
                        feeder.write_all(&write).expect("taken");
                    }
                    // Of which it takes nothing before all were sent.
                    feeder.write_all(&read).expect("taken");
                    feeder.write_all(&read).expect("taken");
                });
                let mut done = 0;
                for _ in 0..CALLS + 2 {
                    let (_, results) = raw::answer(&mut stream).expect("an answer");
                    match raw::status(&results) {
                        0 => done += 1,
                        raw::JUKEBOX => {}
                        other => panic!("status {other}"),
                    }
                }
                all.join().expect("all was sent");
                assert!(done >= 3, "{done} of client {n} were done");
            });
        }
        for n in 0..SMALL {
            let bytes = pattern(n as u8, 4096);
            let done = client.write(&small, 0, (&bytes, stable_how4::UNSTABLE4));
            assert_eq!(done.expect("served").count, 4096);
        }
    });
    let pool = crate::report::report(&running).pool_bytes;
    assert!(pool <= MEMORY_MAX, "{pool} bytes of buffers");
    for (n, open) in (0u8..).zip(&opens) {
        let mut back = vec![0; 1 << 20];
        let bytes = pattern(n, LARGE);
        for (at, part) in (0u64..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
            client.read(open, at, &mut back).expect("readable");
            assert!(back == part, "file {n}");
        }
    }
    drop(client);
    stop(running);
}
