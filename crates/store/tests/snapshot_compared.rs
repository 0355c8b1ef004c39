//! Volumes compared with their snapshots, on file systems that can share blocks between files.

mod common;

use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use common::*;
use needs::needs;
use random::Random;
use reactor::Choice;
use store::snapshot::{self, Comparison, identity_of, names_behind};
use store::{Io, Kind, Range, Spec, Volume, open};
use testkit::Mounted;

const SIZE: u64 = 2 << 20;
const BLOCK: u64 = 4096;
const PARTS_MAX: usize = 10_000;

/// What is in the way of a comparison: an identity that no snapshot has.
const NONE: [u8; 16] = [0; 16];

struct Compared {
    volume: Arc<dyn Volume>,
    /// What it holds.
    model: Vec<u8>,
    files: Real,
    place: PathBuf,
    // Last: files on it are closed first.
    _mounted: Mounted,
    _folder: tempfile::TempDir,
}

impl Compared {
    fn on(mkfs: &str) -> Compared {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Mounted::made_by(mkfs, folder.path());
        let place = mounted.path().to_owned();
        Compared {
            volume: open(&file_spec(&place.join("disk"), SIZE)).unwrap(),
            model: vec![0; SIZE as usize],
            files: Real::open(Choice::Epoll),
            place,
            _mounted: mounted,
            _folder: folder,
        }
    }

    fn write(&mut self, offset: u64, len: u64, byte: u8) {
        let bytes = vec![byte; len as usize];
        write(&*self.volume, &mut self.files, offset, &bytes, false).unwrap();
        self.model[offset as usize..(offset + len) as usize].fill(byte);
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let io = Io::Zero {
            offset,
            len,
            deallocate: true,
            durable: false,
        };
        run(&*self.volume, &mut self.files, io).unwrap();
        self.model[offset as usize..(offset + len) as usize].fill(0);
    }

    fn take(&self, name: &str) -> [u8; 16] {
        snapshot::create(slice::from_ref(&self.volume), name, 7).unwrap();
        identity_of(&*self.volume, name).unwrap()
    }

    /// Blocks that may differ, as first and number.
    fn differs(&self, name: &str, identity: [u8; 16]) -> Vec<(u64, u64)> {
        differs(&*self.volume, name, identity)
    }
}

fn differs(volume: &dyn Volume, name: &str, identity: [u8; 16]) -> Vec<(u64, u64)> {
    differs_by(&Comparison::of(volume), volume, name, identity)
}

fn differs_by(
    comparison: &Comparison<'_>,
    volume: &dyn Volume,
    name: &str,
    identity: [u8; 16],
) -> Vec<(u64, u64)> {
    let (offset, len) = (0, volume.size_bytes());
    let parts = comparison.parts(name, identity, Range { offset, len }, PARTS_MAX);
    let (mut at, mut found) = (0, Vec::new());
    for part in parts {
        assert!(part.len > 0 && part.len.is_multiple_of(BLOCK), "{part:?}");
        if part.may_differ {
            found.push((at / BLOCK, part.len / BLOCK));
        }
        at += part.len;
    }
    assert_eq!(at, len, "without gaps");
    found
}

fn all() -> [(u64, u64); 1] {
    [(0, SIZE / BLOCK)]
}

fn blocks_that_were_written_since_differ(mkfs: &str) {
    let mut disk = Compared::on(mkfs);
    disk.write(0, 64 * BLOCK, 1);
    let a = disk.take("a");
    assert_eq!(disk.differs("a", a), []);
    disk.write(3 * BLOCK, 512, 2);
    disk.zero(8 * BLOCK, BLOCK);
    disk.write(100 * BLOCK, 2 * BLOCK, 3);
    let b = disk.take("b");
    disk.write(50 * BLOCK, BLOCK, 4);
    assert_eq!(disk.differs("a", a), [(3, 1), (8, 1), (50, 1), (100, 2)]);
    assert_eq!(disk.differs("b", b), [(50, 1)]);
    // The snapshot as a volume has others beside it, and itself.
    let path = disk.place.join("disk.snapshots/b");
    let spec = Spec::new("b", Kind::snapshot(path), 0, 512);
    let volume = open(&spec).unwrap();
    assert_eq!(
        names_behind(&*volume, None, |_| true, 9).unwrap(),
        ["a", "b"]
    );
    assert_eq!(identity_of(&*volume, "a"), Some(a));
    assert_eq!(differs(&*volume, "a", a), [(3, 1), (8, 1), (100, 2)]);
    assert_eq!(differs(&*volume, "b", b), []);
    drop(volume);
    // A rollback shares blocks with what it goes back to.
    snapshot::rollback(slice::from_ref(&disk.volume), "a").unwrap();
    assert_eq!(disk.differs("a", a), []);
    assert_eq!(disk.differs("b", b), [(3, 1), (8, 1), (100, 2)]);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn blocks_on_xfs() {
    blocks_that_were_written_since_differ("mkfs.xfs");
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn blocks_on_btrfs() {
    blocks_that_were_written_since_differ("mkfs.btrfs");
}

/// Random writes and snapshots: whatever was answered before the question and is not what the
/// snapshot holds may differ.
fn nothing_that_differs_is_said_to_be_the_same(mkfs: &str) {
    let mut disk = Compared::on(mkfs);
    let mut held: Vec<(String, [u8; 16], Vec<u8>)> = Vec::new();
    for seed in 0..12 {
        let mut random = Random::new(seed);
        for _ in 0..random.below(40) {
            let sector = random.below(SIZE / 512 - 256);
            let (offset, len) = (sector * 512, (random.below(256) + 1) * 512);
            match random.below(4) {
                0 => disk.zero(offset, len),
                _ => disk.write(offset, len, random.below(255) as u8 + 1),
            }
            if !random.one_in(8) {
                continue;
            }
            let comparison = Comparison::of(&*disk.volume);
            for (name, identity, then) in &held {
                let offset = random.below(SIZE / 512) * 512;
                let range = Range {
                    offset,
                    len: (SIZE - offset).min((random.below(4096) + 1) * 512),
                };
                let max = 1 + random.below(20) as usize;
                let parts = comparison.parts(name, *identity, range, max);
                assert!(!parts.is_empty() && parts.len() <= max, "{parts:?}");
                let mut at = range.offset;
                for part in parts {
                    let part_of = at as usize..(at + part.len) as usize;
                    let is_same = disk.model[part_of.clone()] == then[part_of];
                    assert!(
                        part.may_differ || is_same,
                        "seed {seed}, {name}: {at} {part:?}"
                    );
                    at += part.len;
                }
                assert!(at <= range.offset + range.len);
            }
        }
        let name = format!("s{seed}");
        let identity = disk.take(&name);
        held.push((name, identity, disk.model.clone()));
    }
    let holds = read(&*disk.volume, &mut disk.files, 0, SIZE as usize).unwrap();
    assert!(holds == disk.model, "the model is what is there");
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn random_writes_on_xfs() {
    nothing_that_differs_is_said_to_be_the_same("mkfs.xfs");
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn random_writes_on_btrfs() {
    nothing_that_differs_is_said_to_be_the_same("mkfs.btrfs");
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshot_that_is_another_or_gone_says_nothing() {
    let mut disk = Compared::on("mkfs.xfs");
    disk.write(0, 64 * BLOCK, 1);
    let a = disk.take("a");
    disk.write(0, BLOCK, 2);
    assert_eq!(disk.differs("a", a), [(0, 1)]);
    for (name, identity) in [("a", NONE), ("b", a), ("../disk.snapshots/a", a), ("", a)] {
        assert_eq!(disk.differs(name, identity), all(), "{name:?}");
    }
    snapshot::rename(&*disk.volume, "a", "b").unwrap();
    assert_eq!(disk.differs("a", a), all());
    assert_eq!(disk.differs("b", a), [(0, 1)]);
    let again = disk.take("a");
    assert_ne!(again, a);
    assert_eq!(disk.differs("a", a), all());
    assert_eq!(disk.differs("a", again), []);
    snapshot::remove(&*disk.volume, "b").unwrap();
    assert_eq!(disk.differs("b", a), all());
    assert_eq!(identity_of(&*disk.volume, "b"), None);
    // One that is damaged is none.
    let data = disk.place.join("disk.snapshots/a/data");
    std::fs::OpenOptions::new()
        .write(true)
        .open(data)
        .unwrap()
        .set_len(SIZE / 2)
        .unwrap();
    assert_eq!(identity_of(&*disk.volume, "a"), None);
    assert_eq!(disk.differs("a", again), all());
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn names_are_told_in_order_behind_one_and_no_snapshot_is_opened() {
    let disk = Compared::on("mkfs.xfs");
    let told = |after, max| names_behind(&*disk.volume, after, |_| true, max).unwrap();
    assert_eq!(told(None, 9), [""; 0]);
    for name in ["c", "a", "b"] {
        disk.take(name);
    }
    assert_eq!(told(None, 9), ["a", "b", "c"]);
    assert_eq!(told(Some("a"), 1), ["b"]);
    assert_eq!(told(Some("bb"), 9), ["c"]);
    let one = names_behind(&*disk.volume, None, |name| name == "b", 9).unwrap();
    assert_eq!(one, ["b"]);
    // What is there without being a snapshot is listed, as it is not looked at, and has no identity.
    std::fs::create_dir(disk.place.join("disk.snapshots/d")).unwrap();
    assert_eq!(told(Some("c"), 9), ["d"]);
    assert_eq!(identity_of(&*disk.volume, "d"), None);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn part_behind_the_snapshot_or_marked_differs() {
    let mut disk = Compared::on("mkfs.xfs");
    disk.write(0, SIZE, 1);
    let mark = |offset, len| Io::MarkUnreadable { offset, len };
    run(&*disk.volume, &mut disk.files, mark(8 * BLOCK, BLOCK)).unwrap();
    let a = disk.take("a");
    assert_eq!(disk.differs("a", a), [(8, 1)]);
    run(&*disk.volume, &mut disk.files, mark(4 * BLOCK + 512, 512)).unwrap();
    let range = Range {
        offset: 0,
        len: SIZE,
    };
    let parts = Comparison::of(&*disk.volume).parts("a", a, range, 9);
    let lens: Vec<_> = parts.iter().map(|part| part.len).collect();
    let (first, second) = (4 * BLOCK + 512, 8 * BLOCK);
    let wanted = [
        first,
        512,
        second - first - 512,
        BLOCK,
        SIZE - second - BLOCK,
    ];
    assert_eq!(lens, wanted);
    disk.volume.resize(SIZE + 16 * BLOCK, false).unwrap();
    let grown = Range {
        offset: SIZE - BLOCK,
        len: 17 * BLOCK,
    };
    let parts = Comparison::of(&*disk.volume).parts("a", a, grown, 9);
    let told: Vec<_> = parts
        .iter()
        .map(|part| (part.len, part.may_differ))
        .collect();
    assert_eq!(told, [(BLOCK, false), (16 * BLOCK, true)]);
    // What went away and came again is zeros now.
    disk.volume.resize(SIZE / 2, true).unwrap();
    disk.volume.resize(SIZE, false).unwrap();
    let half = Range {
        offset: SIZE / 2,
        len: SIZE / 2,
    };
    let parts = Comparison::of(&*disk.volume).parts("a", a, half, 9);
    assert!(parts.iter().all(|part| part.may_differ), "{parts:?}");
}

/// A file in many pieces of which nothing has changed, and one that has changed in many places.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn parts_are_as_many_as_may_be_and_the_rest_is_told_later() {
    let mut disk = Compared::on("mkfs.xfs");
    disk.write(0, SIZE, 1);
    let a = disk.take("a");
    let blocks = SIZE / BLOCK;
    for at in (0..blocks).step_by(2) {
        disk.write(at * BLOCK, BLOCK, 2);
    }
    let found = disk.differs("a", a);
    assert_eq!(found.len() as u64, blocks / 2);
    let range = Range {
        offset: 0,
        len: SIZE,
    };
    let some = Comparison::of(&*disk.volume).parts("a", a, range, 3);
    assert_eq!(some.len(), 3);
    assert_eq!(some.iter().map(|part| part.len).sum::<u64>(), 3 * BLOCK);
    let b = disk.take("b");
    assert_eq!(disk.differs("b", b), []);
}

/// One sync serves all snapshots: what is written behind it may not have its place yet.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn volume_is_synced_once_for_all_snapshots_that_it_is_compared_with() {
    let mut disk = Compared::on("mkfs.xfs");
    disk.write(0, 64 * BLOCK, 1);
    let a = disk.take("a");
    disk.write(0, BLOCK, 2);
    let volume = disk.volume.clone();
    let comparison = Comparison::of(&*volume);
    disk.write(8 * BLOCK, BLOCK, 3);
    for _ in 0..16 {
        assert_eq!(differs_by(&comparison, &*volume, "a", a), [(0, 1)]);
    }
    assert_eq!(disk.differs("a", a), [(0, 1), (8, 1)]);
}

#[test]
fn volume_without_snapshots_is_compared_with_none() {
    let ram = open(&Spec::new("ram", Kind::RAM, SIZE, 512)).unwrap();
    assert_eq!(names_behind(&*ram, None, |_| true, 9).unwrap(), [""; 0]);
    assert_eq!(identity_of(&*ram, "a"), None);
    assert_eq!(differs(&*ram, "a", NONE), all());
}
