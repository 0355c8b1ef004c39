//! Connections that end while their calls are under way.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use doubles::files::WatchedFiles;
use mem::BufRange;
use needs::each_driver;
use reactor::Choice;
use server::Running;
use server::parts::{OpenedStore, start_with};
use store::fs::{self, FsOp, Time};

use crate::common::{address, at, config, drain, export, fill, make, memory, pattern, stop, until};
use crate::raw;

/// Bytes of one call.
const EACH: usize = 1 << 20;
const MEMORY_MAX: u64 = 32 << 20;
/// The data of so many calls is more than there is memory.
const ROUNDS: u8 = 40;

fn bytes_of(range: BufRange) -> Vec<u8> {
    let mut bytes = vec![0; range.len() as usize];
    mem::copy_out(range, &mut bytes);
    bytes
}

fn connections(running: &Running) -> usize {
    running.connections(|_| true).list.len()
}

/// The file system may still read what is to be written, and write what is read.
#[each_driver]
fn data_of_calls_whose_connection_ends_is_kept_until_they_are_done(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    config.memory_max = MEMORY_MAX;
    config.file_systems = vec![memory("mem", 64 << 20)];
    config.exports = vec![export("mem")];
    let below = fs::Memory::new("mem", 64 << 20, 1, Time::default());
    // Data of WRITEs, and memory of READs, of whole calls.
    let seen: Arc<Mutex<Vec<BufRange>>> = Arc::default();
    let hangs = Arc::new(AtomicBool::new(false));
    let files = WatchedFiles::new(Arc::new(below.expect("memory")), {
        let (seen, hangs) = (seen.clone(), hangs.clone());
        move |_, op| match op {
            FsOp::Write { buf, .. } | FsOp::Read { buf, .. } if hangs.load(Ordering::Relaxed) => {
                seen.lock().expect("whole").push(*buf);
                true
            }
            _ => false,
        }
    });
    let opened = OpenedStore {
        file_systems: vec![files.clone()],
        ..OpenedStore::default()
    };
    let running = start_with(config, opened).expect("starts");
    let (mut client, root) = at(&running, "mem");
    let other = make(&mut client, &root, "other");
    let file = make(&mut client, &root, "file");
    let handle = client.handle(&file).as_bytes().to_vec();
    let others = connections(&running);
    for round in 0..ROUNDS {
        let bytes = pattern(round, EACH);
        hangs.store(true, Ordering::Relaxed);
        let mut stream = raw::open(address(&running));
        let write = raw::write3(1, &handle, 0, &bytes);
        stream.write_all(&write).expect("taken");
        let read = raw::read3(2, &handle, 0, EACH as u32);
        stream.write_all(&read).expect("taken");
        until("both are under way", || files.held() == 2);
        hangs.store(false, Ordering::Relaxed);
        drop(stream);
        let is_closing = || {
            let listed = running.connections(|_| true).list;
            listed.iter().any(|one| one.base.is_closing)
        };
        until("it closes", is_closing);
        // Another client's data takes what memory is free.
        let theirs = pattern(!round, 4 * EACH);
        fill(&mut client, &other, &theirs, EACH);
        assert!(drain(&mut client, &other, EACH) == theirs, "round {round}");
        let ranges = std::mem::take(&mut *seen.lock().expect("whole"));
        assert!(
            ranges.iter().all(|range| bytes_of(*range) == bytes),
            "round {round}"
        );
        files.let_go();
        until("nothing is left of it", || connections(&running) == others);
    }
    assert!(drain(&mut client, &file, EACH) == pattern(ROUNDS - 1, EACH));
    drop(client);
    stop(running);
}
