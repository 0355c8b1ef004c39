//! READs and WRITEs that wait for a limit.

use needs::each_driver;
use reactor::Choice;
use std::io::Write;

use server::RateLimit;

use crate::common::{
    Caller, address, at, directory, drain, export, fill, make, pattern, stop, until, with_server,
};
use crate::large_calls::{LARGE, large};
use crate::limited::{held_back, one_of, set};
use crate::raw;

const EACH: usize = 64 << 10;

fn of_export(name: &str) -> RateLimit {
    RateLimit {
        exports: vec![format!("/{name}")],
        ..one_of(EACH as u64)
    }
}

/// Handles of a file of each version.
fn file(client: &mut Caller, root: &host::nfs::Handle) -> Vec<u8> {
    let open = make(client, root, "file");
    fill(client, &open, &pattern(1, 4 * EACH), EACH);
    client.handle(&open).as_bytes().to_vec()
}

#[each_driver]
fn reads_of_a_limited_export_wait_and_what_is_behind_them_goes_on(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        let file = file(&mut client, &root);
        set(running, &[of_export(name)]);
        let mut stream = raw::open(address(running));
        for xid in 1..5 {
            let read = raw::read3(xid, &file, 0, EACH as u32);
            stream.write_all(&read).expect("taken");
        }
        let (xid, _) = raw::answer(&mut stream).expect("the first");
        assert_eq!(xid, 1);
        crate::common::until("they wait", || held_back(running) == 3);
        raw::ping(&mut stream);
        // Another host's client would wait, and so does this one's: it is the export's limit.
        set(running, &[]);
        let mut answered: Vec<u32> = (0..3)
            .map(|_| {
                let (xid, results) = raw::answer(&mut stream).expect("an answer");
                assert_eq!(raw::status(&results), 0);
                xid
            })
            .collect();
        answered.sort_unstable();
        assert_eq!(answered, [2, 3, 4]);
    });
}

#[each_driver]
fn data_of_a_write_is_not_received_before_a_limit_lets_it_go(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        let file = file(&mut client, &root);
        // By host: the address of the client.
        let limit = RateLimit {
            hosts: vec!["127.0.0.1".to_owned()],
            ..of_export(name)
        };
        set(running, &[limit]);
        let mut stream = raw::open(address(running));
        let data = pattern(2, EACH);
        let mut feeder = stream.try_clone().expect("a socket");
        let writes: Vec<_> = (1..9)
            .map(|xid| raw::write3(xid, &file, u64::from(xid) * EACH as u64, &data))
            .collect();
        let fed = std::thread::spawn(move || {
            writes
                .iter()
                .for_each(|write| feeder.write_all(write).expect("taken"));
        });
        let (xid, results) = raw::answer(&mut stream).expect("the first");
        assert_eq!((xid, raw::status(&results)), (1, 0));
        crate::common::until("one waits, and keeps the others", || {
            held_back(running) == 1
        });
        set(running, &[]);
        for _ in 2..9 {
            let (_, results) = raw::answer(&mut stream).expect("an answer");
            assert_eq!(raw::status(&results), 0);
        }
        fed.join().expect("all was sent");
    });
}

/// A client of version 4.1: its reads go on where they stood in their COMPOUNDs.
#[each_driver]
fn a_session_goes_on_where_a_limit_held_it(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        let open = make(&mut client, &root, "session");
        let data = pattern(3, 4 * EACH);
        fill(&mut client, &open, &data, EACH);
        set(running, &[of_export(name)]);
        let read = std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::common::until("one waits", || held_back(running) == 1);
                set(running, &[]);
            });
            drain(&mut client, &open, EACH)
        });
        assert!(read == data);
    });
}

/// What a connection leaves waiting when it goes is given up.
#[each_driver]
fn calls_that_wait_for_a_limit_end_with_their_connection(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        let file = file(&mut client, &root);
        set(running, &[of_export(name)]);
        let mut stream = raw::open(address(running));
        for xid in 1..5 {
            let read = raw::read3(xid, &file, 0, EACH as u32);
            stream.write_all(&read).expect("taken");
        }
        raw::answer(&mut stream).expect("the first");
        crate::common::until("they wait", || held_back(running) == 3);
        drop(stream);
        crate::common::until("they are gone", || held_back(running) == 0);
        set(running, &[]);
        let mut stream = raw::open(address(running));
        let read = raw::read3(9, &file, 0, EACH as u32);
        stream.write_all(&read).expect("taken");
        raw::answer(&mut stream).expect("served");
    });
}

/// Nothing more is received behind data that waits, and the end of the client is no exception.
#[each_driver]
fn write_that_waits_for_a_limit_ends_with_its_connection(backend: Choice) {
    // The end comes behind the data: it arrives where the data fits the socket's receive buffer.
    const FITS: usize = 8 << 10;
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        let file = file(&mut client, &root);
        let of_export = RateLimit {
            exports: vec![format!("/{name}")],
            ..one_of(FITS as u64)
        };
        set(running, &[of_export]);
        let connections = || running.connections(|_| true).list.len();
        let others = connections();
        let mut stream = raw::open(address(running));
        let data = pattern(5, FITS);
        for xid in 1..3 {
            let write = raw::write3(xid, &file, 0, &data);
            stream.write_all(&write).expect("taken");
        }
        raw::answer(&mut stream).expect("the first");
        crate::common::until("one waits", || held_back(running) == 1);
        drop(stream);
        crate::common::until("it is gone", || held_back(running) == 0);
        crate::common::until("its connection, too", || connections() == others);
        set(running, &[]);
    });
}

/// A file that operations lead to, and no PUTFH names: what is written to it is not known before
/// the data is there.
#[each_driver]
fn write_to_a_file_that_a_lookup_finds_waits_for_a_limit_too(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        file(&mut client, &root);
        set(running, &[of_export(name)]);
        let mut stream = raw::open(address(running));
        let data = pattern(4, EACH);
        for xid in 1..5 {
            let ops = [
                raw::putrootfh4(),
                raw::lookup4(name.as_bytes()),
                raw::lookup4(b"file"),
                raw::write4(&data),
            ];
            stream.write_all(&raw::compound4(xid, &ops)).expect("taken");
        }
        let (xid, results) = raw::answer(&mut stream).expect("the first");
        assert_eq!((xid, raw::status(&results)), (1, 0));
        crate::common::until("they wait", || held_back(running) == 3);
        raw::ping(&mut stream);
        set(running, &[]);
        for _ in 2..5 {
            let (_, results) = raw::answer(&mut stream).expect("an answer");
            assert_eq!(raw::status(&results), 0);
        }
    });
}

/// One that finds no memory has taken what it takes of the limit already, and so has one of which
/// a piece is read.
#[each_driver]
fn read_of_several_pieces_that_waits_for_memory_takes_its_share_of_a_limit_once(backend: Choice) {
    const PIECE: usize = mem::BUF_BYTES_MAX as usize;
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = large(backend, folder.path());
    config.memory_max = 64 << 20;
    config.file_systems.push(directory(folder.path(), "more"));
    config.exports.push(export("more"));
    let running = server::start(config).expect("starts");
    let (mut client, root) = at(&running, "dir");
    let open = make(&mut client, &root, "file");
    let data = pattern(6, LARGE);
    fill(&mut client, &open, &data, 1 << 20);
    let file = client.handle(&open).as_bytes().to_vec();
    let more = client.lookup(["more"]).expect("exported");
    let open = make(&mut client, &more, "file");
    let elsewhere = client.handle(&open).as_bytes().to_vec();
    drop(client);
    let of_dir = RateLimit {
        exports: vec!["/dir".to_owned()],
        ..one_of(LARGE as u64)
    };
    let v4 = [raw::putfh4(&file), raw::read4(LARGE as u32)];
    for read in [
        raw::read3(1, &file, 0, LARGE as u32),
        raw::compound4(1, &v4),
    ] {
        // Halves of calls have all memory of the client.
        let half = raw::write3(9, &elsewhere, 0, &pattern(7, PIECE));
        let halves: Vec<_> = (0..24)
            .map(|_| {
                let mut stream = raw::open(address(&running));
                stream.write_all(&half[..half.len() / 2]).expect("taken");
                stream
            })
            .collect();
        let short = || {
            let listed = running.connections(|_| true).list;
            listed.iter().filter(|one| one.base.is_short).count()
        };
        until("there is no more", || short() > 0);
        set(&running, std::slice::from_ref(&of_dir));
        let mut stream = raw::open(address(&running));
        let here = stream.local_addr().expect("a socket");
        stream.write_all(&read).expect("taken");
        until("it waits", || {
            let mut listed = running.connections(|_| true).list.into_iter();
            listed.any(|one| one.base.via.peer == here && one.base.is_short)
        });
        assert_eq!(held_back(&running), 0, "not for the limit");
        drop(halves);
        let (_, results) = raw::answer(&mut stream).expect("an answer");
        assert_eq!(raw::status(&results), 0);
        assert!(results.len() > PIECE);
        // The limit is there: the next waits for it.
        stream.write_all(&read).expect("taken");
        until("the next waits", || held_back(&running) == 1);
        set(&running, &[]);
        let (_, results) = raw::answer(&mut stream).expect("an answer");
        assert!(results.ends_with(&data));
    }
    stop(running);
}
