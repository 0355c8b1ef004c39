//! Snapshots on their way to other volumes, on file systems that can share blocks between
//! files, and what they may differ in.

mod common;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use common::*;
use needs::needs;
use random::Random;
use reactor::Choice;
use store::snapshot::{self, SnapshotError, SnapshotSource, StreamReader, StreamRecord};
use store::{Io, Range, Spec, Volume, open};
use testkit::Mounted;

const SIZE: u64 = 2 << 20;
const BLOCK: u64 = 4096;

/// A volume whose snapshots are sent, and one that receives them, on one file system.
struct Pair {
    from: Arc<dyn Volume>,
    to: Arc<dyn Volume>,
    /// What the first holds.
    model: Vec<u8>,
    files: Real,
    place: PathBuf,
    // Last: files on it are closed first.
    _mounted: Mounted,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn on(mkfs: &str) -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Mounted::made_by(mkfs, folder.path());
        let place = mounted.path().to_owned();
        let [from, to] = ["from", "to"].map(|name| open(&spec_of(&place, name, SIZE)).unwrap());
        Pair {
            from,
            to,
            model: vec![0; SIZE as usize],
            files: Real::open(Choice::Epoll),
            place,
            _mounted: mounted,
            _folder: folder,
        }
    }

    fn write(&mut self, offset: u64, len: u64, byte: u8) {
        let bytes = vec![byte; len as usize];
        write(&*self.from, &mut self.files, offset, &bytes, false).unwrap();
        self.model[offset as usize..(offset + len) as usize].fill(byte);
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let io = Io::Zero {
            offset,
            len,
            deallocate: true,
            durable: false,
        };
        run(&*self.from, &mut self.files, io).unwrap();
        self.model[offset as usize..(offset + len) as usize].fill(0);
    }

    fn take(&self, name: &str) {
        snapshot::create(slice::from_ref(&self.from), name, 7).unwrap();
    }

    fn sent(&self, name: &str, since: Option<&str>, from: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let source = SnapshotSource::open(&*self.from, name, since).unwrap();
        source.send(from, &mut bytes).unwrap();
        bytes
    }

    /// Receives a stream but for its end, so that a part of it stays; the stream.
    fn receive_half(&mut self) -> Vec<u8> {
        self.write(0, 8 * BLOCK, 1);
        self.write(64 * BLOCK, 8 * BLOCK, 2);
        self.take("a");
        let stream = self.sent("a", None, 0);
        self.receive(&stream[..stream.len() - 40]).unwrap_err();
        stream
    }

    /// Opens the volume anew that receives.
    fn reopen(&mut self) {
        let spec = spec_of(&self.place, "to", SIZE);
        self.to = open(&spec_of(&self.place, "another", SIZE)).unwrap();
        self.to = (0..1000)
            .find_map(|_| {
                thread::sleep(std::time::Duration::from_millis(10));
                open(&spec).ok()
            })
            .unwrap();
    }

    /// Takes a stream as a snapshot of the name that it had.
    fn receive(&self, bytes: &[u8]) -> Result<String, SnapshotError> {
        let name = StreamReader::new(bytes).map(|stream| stream.header().name.clone());
        let name = name.unwrap_or_else(|_| "none".to_owned());
        snapshot::receive(&*self.to, &name, bytes).map(|()| name)
    }

    /// What the snapshot holds that was received.
    fn received(&self, name: &str) -> Vec<u8> {
        fs::read(self.place.join("to.snapshots").join(name).join("data")).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names = snapshot::names(&*self.to).unwrap();
        names.sort();
        names
    }

    fn parts(&self) -> Vec<(String, u64)> {
        let parts = snapshot::received_parts(&*self.to).unwrap().into_iter();
        parts.map(|part| (part.name, part.received_bytes)).collect()
    }
}

fn spec_of(place: &Path, name: &str, size: u64) -> Spec {
    Spec {
        name: name.to_owned(),
        ..file_spec(&place.join(name), size)
    }
}

fn changes(volume: &dyn Volume, name: &str, since: Option<&str>) -> Vec<Range> {
    let source = SnapshotSource::open(volume, name, since).unwrap();
    let found = source.changes(0).map(|found| found.unwrap().range);
    found.collect()
}

/// What of the ranges is behind one another and within the volume, all in whole blocks.
fn expect_in_order(ranges: &[Range]) {
    let mut reached = 0;
    for Range { offset, len } in ranges {
        assert!(*offset >= reached && *len > 0, "{ranges:?}");
        assert!(offset % BLOCK == 0 && len % BLOCK == 0, "{ranges:?}");
        reached = offset + len;
    }
    assert!(reached <= SIZE, "{ranges:?}");
}

fn changed_ranges_are_what_was_written(mkfs: &str) {
    let mut pair = Pair::on(mkfs);
    pair.write(0, 8 * BLOCK, 1);
    pair.write(64 * BLOCK, BLOCK, 1);
    pair.take("a");
    let range = |at, blocks| Range {
        offset: at * BLOCK,
        len: blocks * BLOCK,
    };
    assert_eq!(changes(&*pair.from, "a", None), [range(0, 8), range(64, 1)]);
    pair.take("same");
    assert_eq!(changes(&*pair.from, "same", Some("a")), []);
    pair.write(3 * BLOCK, 512, 2);
    pair.zero(64 * BLOCK, BLOCK);
    pair.write(100 * BLOCK, 2 * BLOCK, 3);
    pair.take("b");
    let found = changes(&*pair.from, "b", Some("a"));
    assert_eq!(found, [range(3, 1), range(64, 1), range(100, 2)]);
    // The other way round, too: `since` need not be the older one.
    assert_eq!(changes(&*pair.from, "a", Some("b")), found);
    let source = SnapshotSource::open(&*pair.from, "b", Some("a")).unwrap();
    let zeros = source
        .changes(0)
        .filter(|found| found.as_ref().unwrap().is_zeros);
    assert_eq!(zeros.count(), 1);
    let rest: Vec<_> = source.changes(65 * BLOCK).map(Result::unwrap).collect();
    assert_eq!(rest.len(), 1, "{rest:?}");
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn changed_ranges_on_xfs() {
    changed_ranges_are_what_was_written("mkfs.xfs");
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn changed_ranges_on_btrfs() {
    changed_ranges_are_what_was_written("mkfs.btrfs");
}

/// Many small extents, of which the kernel tells some at a time.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn changed_ranges_of_many_extents_are_all_told() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.write(0, SIZE, 1);
    pair.take("a");
    let blocks = SIZE / BLOCK;
    for at in (0..blocks).step_by(2) {
        pair.write(at * BLOCK, BLOCK, 2);
    }
    pair.take("b");
    let found = changes(&*pair.from, "b", Some("a"));
    assert_eq!(found.len() as u64, blocks / 2);
    expect_in_order(&found);
    pair.receive(&pair.sent("a", None, 0)).unwrap();
    pair.receive(&pair.sent("b", Some("a"), 0)).unwrap();
    assert!(pair.received("b") == pair.model);
}

/// Random writes, snapshots, streams that are cut and go on: what is received is what the
/// snapshot holds.
fn streams_that_are_cut_and_resumed_bring_what_was_sent(mkfs: &str) {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let mut pair = Pair::on(mkfs);
        let mut held: Vec<Vec<u8>> = Vec::new();
        for round in 0..8 {
            for _ in 0..random.below(24) {
                let sector = random.below(SIZE / 512 - 256);
                let (offset, len) = (sector * 512, (random.below(256) + 1) * 512);
                match random.below(4) {
                    0 => pair.zero(offset, len),
                    _ => pair.write(offset, len, random.below(255) as u8 + 1),
                }
            }
            let name = format!("s{round}");
            pair.take(&name);
            held.push(pair.model.clone());
            let since = random.below(round + 1);
            let since = (since > 0).then(|| format!("s{}", since - 1));
            let before = since.as_ref().map(|since| {
                let at: usize = since[1..].parse().unwrap();
                &held[at]
            });
            let ranges = changes(&*pair.from, &name, since.as_deref());
            expect_in_order(&ranges);
            let holds = |at: u64| {
                let mut all = ranges.iter();
                all.any(|range| (range.offset..range.offset + range.len).contains(&at))
            };
            for at in (0..SIZE).step_by(512) {
                let old = before.map_or(0, |before| before[at as usize]);
                let is_same = old == pair.model[at as usize];
                assert!(is_same || holds(at), "seed {seed}, {name}: byte {at}");
            }
            let mut from = 0;
            loop {
                let stream = pair.sent(&name, since.as_deref(), from);
                // Often whole, and sometimes longer than it is.
                let len = random.below(stream.len() as u64 * 3 / 2) as usize;
                let end = len.min(stream.len());
                match pair.receive(&stream[..end]) {
                    Ok(received) => {
                        assert_eq!((received, end), (name.clone(), stream.len()));
                        break;
                    }
                    Err(SnapshotError::Cut(_, _, reached, _)) => {
                        assert_eq!(pair.parts(), [(name.clone(), reached)]);
                        assert!(reached >= from, "{reached} {from}");
                        from = random.below(reached + 1);
                    }
                    Err(SnapshotError::Stream(..)) => assert!(end < 156, "{end}"),
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            }
            assert!(pair.received(&name) == pair.model, "seed {seed}, {name}");
            assert_eq!(pair.parts(), []);
        }
    }
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn streams_on_xfs() {
    streams_that_are_cut_and_resumed_bring_what_was_sent("mkfs.xfs");
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn streams_on_btrfs() {
    streams_that_are_cut_and_resumed_bring_what_was_sent("mkfs.btrfs");
}

/// Where each record of a stream ends.
fn ends(stream: &[u8]) -> Vec<usize> {
    let mut reader = StreamReader::new(stream).unwrap();
    let (mut end, mut ends) = (156, vec![156]);
    while let Some(record) = reader.next_record().unwrap() {
        end += 28;
        if let StreamRecord::Data(_, bytes) = record {
            end += bytes.len();
        }
        ends.push(end);
    }
    ends.push(end + 28);
    assert_eq!(ends.last(), Some(&stream.len()));
    ends
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn stream_that_is_damaged_or_cut_at_any_record_makes_no_snapshot() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.write(0, 64 * BLOCK, 1);
    let mark = Io::MarkUnreadable {
        offset: 0,
        len: 512,
    };
    run(&*pair.from, &mut pair.files, mark).unwrap();
    pair.take("a");
    pair.write(8 * BLOCK, BLOCK, 2);
    pair.zero(16 * BLOCK, BLOCK);
    pair.write(32 * BLOCK, BLOCK, 3);
    pair.take("b");
    pair.receive(&pair.sent("a", None, 0)).unwrap();
    let stream = pair.sent("b", Some("a"), 0);
    let ends = ends(&stream);
    assert_eq!(ends.len(), 6, "a mark, two of data, zeros, and the end");
    for end in &ends[..ends.len() - 1] {
        let refused = pair.receive(&stream[..*end]).unwrap_err();
        assert!(matches!(refused, SnapshotError::Cut(..)), "{refused}");
        assert_eq!(pair.names(), ["a"]);
    }
    let starts = [0].iter().chain(&ends).zip(&ends);
    for (start, end) in starts {
        for at in [*start, (start + end) / 2, end - 1] {
            snapshot::remove(&*pair.to, "b").ok();
            let mut damaged = stream.clone();
            damaged[at] ^= 0x10;
            let refused = pair.receive(&damaged).unwrap_err();
            let is_told = matches!(refused, SnapshotError::Cut(..) | SnapshotError::Stream(..));
            assert!(is_told, "byte {at}: {refused}");
            assert_eq!(pair.names(), ["a"], "byte {at}");
        }
    }
    pair.receive(&stream).unwrap();
    assert!(pair.received("b") == pair.model);
    // What was marked is marked.
    let all = snapshot::list(&*pair.to).unwrap();
    assert!(all.iter().all(|one| one.damage.is_none()), "{all:?}");
    snapshot::rollback(slice::from_ref(&pair.to), "b").unwrap();
    let marks = pair.to.unreadable(0, u64::MAX, 9);
    assert_eq!(
        marks,
        [Range {
            offset: 0,
            len: 512
        }]
    );
    let bytes = read(&*pair.to, &mut pair.files, 32 * BLOCK, 512).unwrap();
    assert_eq!(bytes, [3; 512]);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn stream_that_cannot_be_received_is_told_and_leaves_nothing() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.write(0, 8 * BLOCK, 1);
    pair.take("a");
    pair.write(8 * BLOCK, 8 * BLOCK, 2);
    pair.take("b");
    pair.take("c");
    let refused = pair.receive(&pair.sent("b", Some("a"), 0)).unwrap_err();
    assert!(matches!(refused, SnapshotError::NoBase(..)), "{refused}");
    let refused = pair.receive(&pair.sent("a", None, 4096)).unwrap_err();
    assert!(
        matches!(refused, SnapshotError::From(_, _, 4096, 0)),
        "{refused}"
    );
    let refused = pair.receive(b"#!/bin/sh").unwrap_err();
    assert!(
        refused.to_string().contains("does not begin as"),
        "{refused}"
    );
    assert_eq!(pair.parts(), []);
    let folder = pair.place.join("to.snapshots");
    assert_eq!(fs::read_dir(folder).map_or(0, Iterator::count), 0);
    pair.receive(&pair.sent("a", None, 0)).unwrap();
    let refused = pair.receive(&pair.sent("a", None, 0)).unwrap_err();
    assert!(matches!(refused, SnapshotError::Exists(..)), "{refused}");

    // A part of one since another.
    let stream = pair.sent("b", None, 0);
    pair.receive(&stream[..stream.len() - 1]).unwrap_err();
    let refused = pair.receive(&pair.sent("b", Some("a"), 0)).unwrap_err();
    assert!(matches!(refused, SnapshotError::OtherPart(..)), "{refused}");
    snapshot::remove(&*pair.to, "b").unwrap();
    assert_eq!(pair.parts(), []);
    pair.receive(&pair.sent("b", Some("a"), 0)).unwrap();
    // The base is known by another name, here and there.
    snapshot::rename(&*pair.to, "b", "before").unwrap();
    snapshot::rename(&*pair.from, "b", "then").unwrap();
    pair.receive(&pair.sent("c", Some("then"), 0)).unwrap();
    assert_eq!(pair.names(), ["a", "before", "c"]);
    assert!(pair.received("c") == pair.model);
    // What has come may be sent on.
    let mut again = Vec::new();
    let source = SnapshotSource::open(&*pair.to, "c", Some("before")).unwrap();
    source.send(0, &mut again).unwrap();
    let refused = snapshot::receive(&*pair.from, "c", &*again).unwrap_err();
    assert!(matches!(refused, SnapshotError::Exists(..)), "{refused}");
    snapshot::remove(&*pair.from, "c").unwrap();
    snapshot::receive(&*pair.from, "another", &*again).unwrap();
    assert!(
        snapshot::names(&*pair.from)
            .unwrap()
            .contains(&"another".to_owned())
    );
}

/// A stream of which the rest comes when it is told.
struct Slow<'b>(&'b [u8], std::sync::mpsc::Receiver<()>);

impl Read for Slow<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.0.len() <= 28 {
            self.1.recv().ok();
        }
        self.0.read(room)
    }
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshot_is_received_once_at_a_time_and_holds_up_no_other() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.write(0, 8 * BLOCK, 1);
    pair.take("a");
    let stream = pair.sent("a", None, 0);
    let (end, waits) = channel();
    thread::scope(|scope| {
        let receives = scope.spawn(|| snapshot::receive(&*pair.to, "a", Slow(&stream, waits)));
        while pair.parts().is_empty() {
            thread::yield_now();
        }
        let refused = pair.receive(&stream).unwrap_err();
        assert!(matches!(refused, SnapshotError::Receiving(..)), "{refused}");
        let refused = snapshot::remove(&*pair.to, "a").unwrap_err();
        assert!(matches!(refused, SnapshotError::Receiving(..)), "{refused}");
        snapshot::create(slice::from_ref(&pair.to), "other", 1).unwrap();
        drop(end);
        receives.join().unwrap().unwrap();
    });
    assert_eq!(pair.names(), ["a", "other"]);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn large_volume_that_holds_little_is_a_short_stream() {
    let mut pair = Pair::on("mkfs.xfs");
    let size = 1 << 42;
    let [large, copy] =
        ["large", "copy"].map(|name| open(&spec_of(&pair.place, name, size)).unwrap());
    write(&*large, &mut pair.files, size / 2, &[1; 4096], false).unwrap();
    snapshot::create(slice::from_ref(&large), "a", 1).unwrap();
    let source = SnapshotSource::open(&*large, "a", None).unwrap();
    let mut stream = Vec::new();
    source.send(0, &mut stream).unwrap();
    assert_eq!(stream.len(), 156 + 28 + 4096 + 28);
    snapshot::receive(&*copy, "a", &*stream).unwrap();
    // It has grown since.
    large.resize(2 * size, false).unwrap();
    write(&*large, &mut pair.files, 2 * size - 4096, &[2; 4096], false).unwrap();
    snapshot::create(slice::from_ref(&large), "b", 2).unwrap();
    let source = SnapshotSource::open(&*large, "b", Some("a")).unwrap();
    stream.clear();
    source.send(0, &mut stream).unwrap();
    assert_eq!(stream.len(), 156 + 28 + 4096 + 28);
    snapshot::receive(&*copy, "b", &*stream).unwrap();
    let all = snapshot::list(&*copy).unwrap();
    let sizes: Vec<_> = all.iter().map(|one| one.size_bytes).collect();
    assert_eq!(sizes, [size, 2 * size]);
}

#[needs(loop_device, mount, program("mkfs.xfs"), program("mkfs.ext4"))]
#[test]
fn file_system_that_cannot_share_blocks_receives_nothing() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.write(0, BLOCK, 1);
    pair.take("a");
    let other = Pair::on("mkfs.ext4");
    let refused = other.receive(&pair.sent("a", None, 0)).unwrap_err();
    assert!(
        matches!(refused, SnapshotError::CannotShare(..)),
        "{refused}"
    );
    assert_eq!(other.parts(), []);
    let folder = other.place.join("to.snapshots");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn part_of_a_snapshot_stays_when_the_volume_is_opened_again() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.receive_half();
    assert_eq!(pair.parts(), [("a".to_owned(), 8 * BLOCK)]);
    pair.reopen();
    assert_eq!(pair.parts(), [("a".to_owned(), 8 * BLOCK)]);
    pair.receive(&pair.sent("a", None, 8 * BLOCK)).unwrap();
    assert!(pair.received("a") == pair.model);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn full_file_system_is_told_and_the_stream_goes_on_when_there_is_room() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.write(0, SIZE, 1);
    pair.take("a");
    let stream = pair.sent("a", None, 0);
    let ballast = fs::File::create(pair.place.join("ballast")).unwrap();
    let mut len = 1 << 30;
    while len >= BLOCK {
        let all = ballast.metadata().unwrap().len();
        match rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), all, len) {
            Ok(()) => {}
            Err(_) => len /= 2,
        }
    }
    // Room to begin with.
    let all = ballast.metadata().unwrap().len();
    ballast.set_len(all - SIZE / 4).unwrap();
    let refused = pair.receive(&stream).unwrap_err().to_string();
    assert!(
        refused.contains("brings what cannot be written: No space left"),
        "{refused}"
    );
    assert!(refused.contains("free space there"), "{refused}");
    assert_eq!(pair.names(), [""; 0]);
    drop(ballast);
    fs::remove_file(pair.place.join("ballast")).unwrap();
    let from = pair.parts().first().map_or(0, |part| part.1);
    pair.receive(&pair.sent("a", None, from)).unwrap();
    assert!(pair.received("a") == pair.model);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn part_whose_data_is_cut_begins_anew() {
    let mut pair = Pair::on("mkfs.xfs");
    let stream = pair.receive_half();
    fs::File::create(pair.place.join("to.snapshots/.a.part/data")).unwrap();
    assert_eq!(pair.parts(), []);
    let refused = pair.receive(&pair.sent("a", None, 8 * BLOCK)).unwrap_err();
    assert!(matches!(refused, SnapshotError::From(..)), "{refused}");
    pair.receive(&stream).unwrap();
    assert!(pair.received("a") == pair.model);
}

/// Nothing of it can be gone on with, and nothing lists it.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn part_that_a_crash_has_left_before_it_began_is_gone_when_the_volume_is_opened_again() {
    let mut pair = Pair::on("mkfs.xfs");
    pair.receive_half();
    let folder = pair.place.join("to.snapshots");
    fs::create_dir(folder.join(".b.part")).unwrap();
    fs::write(folder.join(".b.part/data"), [1; 4096]).unwrap();
    pair.reopen();
    assert!(!folder.join(".b.part").exists());
    assert_eq!(pair.parts(), [("a".to_owned(), 8 * BLOCK)]);
}

/// What the file system holds compressed, or in its own records, has no place by which it
/// could be known to be the same.
fn content_without_a_place_counts_as_changed(size: u64, options: &str) {
    let mut pair = Pair::on("mkfs.btrfs");
    let options = format!("remount,{options}");
    let remounted = Command::new("mount")
        .args(["-o", &options])
        .arg(&pair.place)
        .status();
    assert!(remounted.unwrap().success());
    let names = ["small", "copy"];
    [pair.from, pair.to] = names.map(|name| open(&spec_of(&pair.place, name, size)).unwrap());
    pair.model.truncate(size as usize);
    pair.write(0, size, 1);
    pair.take("a");
    pair.write(size / 2, 512, 2);
    pair.take("b");
    let range = Range {
        offset: 0,
        len: size,
    };
    assert_eq!(changes(&*pair.from, "b", Some("a")), [range]);
    for (name, since) in [("a", None), ("b", Some("a"))] {
        snapshot::receive(&*pair.to, name, &*pair.sent(name, since, 0)).unwrap();
    }
    let received = pair.place.join("copy.snapshots/b/data");
    assert!(fs::read(received).unwrap() == pair.model);
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn compressed_content_counts_as_changed() {
    content_without_a_place_counts_as_changed(SIZE, "compress-force=zlib");
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn content_in_the_records_of_the_file_system_counts_as_changed() {
    content_without_a_place_counts_as_changed(1024, "compress=no");
}
