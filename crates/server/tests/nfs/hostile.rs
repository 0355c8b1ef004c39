//! Bad peers: broken records and calls from seeds, half records, peers that take
//! nothing, against a server that serves another client meanwhile. That one must
//! not notice, and memory must stay under its ceiling.
//!
//! Over RDMA it is messages with bad calls and bad chunks, and FPDUs that no client may send.
//!
//! `WEFT_HOSTILE=1000000 cargo test --release -p server --test nfs hostile` runs
//! a million; a plain test a part of that.

mod rdma;

use needs::each_driver;
use nvmf::transport::Transports;
use random::Random;
use reactor::Choice;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use wire::nfs4::stable_how4;

use crate::common::{address, at, config, export, make, memory, pattern, stop};
use crate::raw;

/// Ceiling of the server's buffers.
const MEMORY_MAX: u64 = 48 << 20;
/// Bad calls on a driver, unless `WEFT_HOSTILE` says otherwise.
const USUAL: u64 = 30_000;
/// The other client must get on in each part of so many.
const PARTS: u64 = 10;

/// What all threads see.
struct Field {
    address: SocketAddr,
    /// A file of the attacked.
    file: Vec<u8>,
    /// Bad calls that were sent to connections that took them, and how many are
    /// wanted.
    sent: AtomicU64,
    wanted: u64,
    /// Calls that the other client has had answered.
    served: AtomicU64,
    is_over: AtomicBool,
}

/// The other client: writes and reads back.
fn use_it(field: &Field, running: &server::Running) {
    let (mut client, root) = at(running, "mem");
    let open = make(&mut client, &root, "calm");
    let mut n = 0u64;
    while !field.is_over.load(Ordering::Relaxed) {
        let data = pattern(n as u8, 8192);
        let offset = n % 64 * 8192;
        let how = (&data[..], stable_how4::UNSTABLE4);
        client.write(&open, offset, how).expect("served");
        let mut back = vec![0; data.len()];
        client.read(&open, offset, &mut back).expect("served");
        assert!(back == data, "call {n}");
        field.served.fetch_add(2, Ordering::Relaxed);
        n += 1;
    }
}

/// Arguments of a COMPOUND that makes little sense: operations with random
/// numbers and words.
fn bad_compound(field: &Field, random: &mut Random) -> Vec<u8> {
    let mut args = vec![0; 4];
    args.extend_from_slice(&random.pick::<u32>(&[0, 1, 2, 2, 3]).to_be_bytes());
    let ops = random.pick::<u32>(&[1, 2, 3, 8, 64, 1000, u32::MAX]);
    args.extend_from_slice(&ops.to_be_bytes());
    for _ in 0..ops.min(8) {
        let op = random.pick::<u32>(&[
            2, 3, 9, 15, 16, 18, 22, 24, 25, 26, 38, 42, 43, 53, 68, 72, 10_044,
        ]);
        args.extend_from_slice(&op.to_be_bytes());
        if op == 22 && !random.one_in(4) {
            args.extend_from_slice(&(field.file.len() as u32).to_be_bytes());
            args.extend_from_slice(&field.file);
            args.resize(args.len().next_multiple_of(4), 0);
            continue;
        }
        for _ in 0..random.below(10) {
            let word =
                random.pick::<u32>(&[0, 0, 1, 2, 4, 16, 128, 4096, 1 << 20, 1 << 31, u32::MAX]);
            args.extend_from_slice(&word.to_be_bytes());
        }
    }
    args
}

/// Calls of NFSv3 with lengths and offsets that are beyond everything.
fn bad_v3(field: &Field, random: &mut Random) -> Vec<u8> {
    let procedure = random.below(23) as u32;
    let mut args = Vec::new();
    let len = random.pick::<u32>(&[24, 24, 24, 0, 4, 64, 65, 1 << 30]);
    args.extend_from_slice(&len.to_be_bytes());
    args.extend_from_slice(&field.file);
    for _ in 0..random.below(16) {
        let word = random.pick::<u32>(&[0, 0, 1, 2, 7, 4096, 1 << 20, 1 << 31, u32::MAX]);
        args.extend_from_slice(&word.to_be_bytes());
    }
    raw::call(random.next_u32() >> 2, (raw::NFS, 3, procedure), &args)
}

fn bad_record(field: &Field, random: &mut Random) -> Vec<u8> {
    let xid = random.next_u32() >> 2;
    let mut record = match random.below(10) {
        0 => {
            let program = random.pick::<u32>(&[raw::NFS, 100_005, 100_000, 0, u32::MAX]);
            let version = random.below(6) as u32;
            raw::call(xid, (program, version, random.below(30) as u32), &[])
        }
        1..=3 => bad_v3(field, random),
        4 => raw::write3(xid, &field.file, u64::MAX - 4096, &pattern(1, 8192)),
        5 => {
            let offset = random.below(1 << 22);
            raw::read3(
                xid,
                &field.file,
                offset,
                random.pick::<u32>(&[0, 4096, 1 << 20, u32::MAX]),
            )
        }
        _ => raw::call(xid, (raw::NFS, 4, 1), &bad_compound(field, random)),
    };
    if random.one_in(40) {
        let at = random.below(record.len() as u64) as usize;
        record[at] ^= 1 << random.below(8);
    }
    record
}

/// A connection that sends what no client should, until one of its records ends
/// it or it has had enough.
fn attack(field: &Field, random: &mut Random) {
    let mut stream = raw::open(field.address);
    let timeout = Some(Duration::from_millis(2));
    stream.set_read_timeout(timeout).expect("a socket");
    stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .expect("a socket");
    let mut answers = vec![0; 256 << 10];
    for _ in 0..16 {
        let mut burst = Vec::new();
        let count = 8 + random.below(32);
        for _ in 0..count {
            burst.extend(bad_record(field, random));
        }
        if random.one_in(8) {
            // Half a record, and then nothing for ever, or the end.
            burst.truncate(burst.len() - 1 - random.below(40) as usize);
        }
        if stream.write_all(&burst).is_err() {
            return;
        }
        field.sent.fetch_add(count, Ordering::Relaxed);
        // Some take nothing of what they asked for.
        if random.one_in(6) {
            continue;
        }
        loop {
            match stream.read(&mut answers) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(_) => return,
            }
        }
    }
}

#[each_driver]
fn bad_input_does_not_disturb_another_client(backend: Choice) {
    undisturbed_by(backend, Transports::Tcp, attack);
}

#[each_driver]
fn bad_fpdus_do_not_disturb_another_client(backend: Choice) {
    let terminates = undisturbed_by(backend, Transports::Both, rdma::attack);
    assert!(terminates > 1, "{terminates} kinds of Terminates");
}

/// The kinds of Terminates that the server has sent.
fn undisturbed_by(
    backend: Choice,
    transports: Transports,
    attack: fn(&Field, &mut Random),
) -> usize {
    let wanted = std::env::var("WEFT_HOSTILE").map_or(USUAL, |n| n.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    config.memory_max = MEMORY_MAX;
    config.listeners[0].rdma.transports = transports;
    config.file_systems.push(memory("attacked", 16 << 20));
    config.exports.push(export("attacked"));
    let running = server::start(config).expect("starts");
    let (mut victim, root) = at(&running, "attacked");
    let open = make(&mut victim, &root, "file");
    let field = Field {
        address: address(&running),
        file: victim.handle(&open).as_bytes().to_vec(),
        sent: AtomicU64::new(0),
        wanted,
        served: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| use_it(&field, &running));
        for seed in 0..3 {
            let field = &field;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while field.sent.load(Ordering::Relaxed) < field.wanted {
                    attack(field, &mut random);
                }
            });
        }
        let mut served = 0;
        for part in 1..=PARTS {
            while field.sent.load(Ordering::Relaxed) < wanted * part / PARTS {
                std::thread::sleep(Duration::from_millis(2));
            }
            let now = field.served.load(Ordering::Relaxed);
            assert!(now > served, "part {part}: the other client stands still");
            served = now;
            let pool = crate::report::report(&running).pool_bytes;
            assert!(pool <= MEMORY_MAX, "part {part}: {pool} bytes of buffers");
        }
        field.is_over.store(true, Ordering::Relaxed);
    });
    let (sent, served) = (
        field.sent.load(Ordering::Relaxed),
        field.served.into_inner(),
    );
    println!(
        "{}: {sent} bad calls; the other had {served} answered",
        running.backend()
    );
    // The attacked server serves a client that keeps to the protocol.
    victim
        .write(&open, 0, (b"fine", stable_how4::UNSTABLE4))
        .expect("served");
    let report = crate::report::report(&running);
    assert!(report.refusals > 0, "none of them was told apart");
    let metrics = running.metrics();
    let terminates = metrics.terminates.iter();
    let is_ours = |of: &str, sender: &str| (of, sender) == ("nfs-rdma", "weft");
    let kinds = terminates.filter(|(of, (sender, ..))| is_ours(of, sender));
    let kinds = kinds.count();
    drop(victim);
    stop(running);
    kinds
}

/// Connections without a call keep no client out: with `connections_max` of
/// them, a client that makes calls is served all the same.
#[each_driver]
fn silent_connections_do_not_keep_a_client_out(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    config.limits.connections_max = 8;
    let running = server::start(config).expect("starts");
    let strangers: Vec<_> = (0..8).map(|_| raw::open(address(&running))).collect();
    let (mut client, root) = at(&running, "mem");
    let open = make(&mut client, &root, "file");
    client.close_file(open).expect("closed");
    drop(strangers);
    stop(running);
}

/// Half a record is worth `handshake_timeout_ms`, and NULL no more.
#[each_driver]
fn connection_without_a_call_is_closed(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    config.limits.handshake_timeout_ms = 100;
    let running = server::start(config).expect("starts");
    let mut half = raw::open(address(&running));
    half.write_all(&[0x80, 0, 0, 100, 1, 2, 3]).expect("taken");
    let mut null = raw::open(address(&running));
    raw::ping(&mut null);
    let mut one = raw::open(address(&running));
    let mut look = |xid| {
        let compound = raw::compound4(xid, &[raw::putrootfh4()]);
        one.write_all(&compound).expect("taken");
        assert_eq!(raw::answer(&mut one).expect("alive").0, xid);
    };
    look(1);
    for stranger in [&mut half, &mut null] {
        let mut rest = Vec::new();
        stranger.read_to_end(&mut rest).expect("closed in order");
        assert!(rest.is_empty());
    }
    look(2);
    stop(running);
}

/// More calls than may be worked on, all sent before any answer is read: nothing
/// comes behind the last that would have the server look at them again.
#[each_driver]
fn calls_beyond_what_is_taken_at_a_time_are_answered(backend: Choice) {
    const CALLS: u32 = 3000;
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let mut stream = raw::open(address(&running));
    raw::ping(&mut stream);
    let calls = (0..CALLS).flat_map(|xid| raw::call(xid, (raw::NFS, 4, 0), &[]));
    let calls: Vec<u8> = calls.collect();
    stream.write_all(&calls).expect("taken");
    for xid in 0..CALLS {
        assert_eq!(raw::answer(&mut stream).expect("alive").0, xid);
    }
    stop(running);
}
