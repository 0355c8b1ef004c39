//! Mirrors: what lies on which leg, whatever fails and in whatever order.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use store::{
    Errno, Error, Io, Kind, Medium, Problem, Progress, ReplaceError, Spec, State, Volume, open,
    open_over, over_legs,
};

use crate::common::*;
use crate::fake::*;
use crate::ranges::{Desk, read_io, write_io};

pub const SIZE: u64 = 1 << 20;
pub const REGION: u64 = 64 << 10;
pub const S: u64 = 1_000_000_000;

/// Something that is done once.
pub type Once = Box<dyn FnOnce() + Send>;
/// Opens the mirror of a room.
type Opener = fn(&Room) -> Arc<dyn Volume>;

/// Where the log of a mirror lies, which fails when it is told to.
#[derive(Clone, Default)]
pub struct Kept {
    pub bytes: Arc<Mutex<Option<Vec<u8>>>>,
    pub fails: Arc<AtomicBool>,
    /// How often it was written.
    pub saves: Arc<AtomicU64>,
    /// Done once, while it is being written.
    pub meanwhile: Arc<Mutex<Option<Once>>>,
}

impl Medium for Kept {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.bytes.lock().unwrap().clone())
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|what| what());
        if self.fails.load(Ordering::Relaxed) {
            return Err(Errno::NOSPC.into());
        }
        *self.bytes.lock().unwrap() = Some(bytes.to_vec());
        self.saves.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("log")
    }
}

/// Files that a mirror lies in, and its log, which outlive it.
pub struct Room {
    pub folder: tempfile::TempDir,
    pub log: Kept,
    pub sizes: Vec<u64>,
}

impl Room {
    pub fn new(legs: usize) -> Room {
        Room {
            folder: tempfile::tempdir().unwrap(),
            log: Kept::default(),
            sizes: vec![SIZE; legs],
        }
    }

    pub fn path(&self, leg: usize) -> PathBuf {
        self.folder.path().join(format!("leg{leg}"))
    }

    pub fn leg(&self, leg: usize) -> Arc<dyn Volume> {
        self.try_leg(leg).unwrap()
    }

    fn try_leg(&self, leg: usize) -> Result<Arc<dyn Volume>, store::OpenError> {
        let size = self.sizes.get(leg).copied().unwrap_or(SIZE);
        let spec = Spec::new(format!("leg{leg}"), Kind::file(self.path(leg)), size, 512);
        open(&spec)
    }

    pub fn open(&self) -> Arc<dyn Volume> {
        self.open_of(&(0..self.sizes.len()).collect::<Vec<_>>())
    }

    pub fn open_of(&self, legs: &[usize]) -> Arc<dyn Volume> {
        self.try_open(legs).unwrap()
    }

    pub fn try_open(&self, legs: &[usize]) -> Result<Arc<dyn Volume>, store::OpenError> {
        let below: Vec<_> = legs.iter().map(|leg| self.leg(*leg)).collect();
        let names: Vec<String> = legs.iter().map(|leg| format!("leg{leg}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let spec = Spec::new("mirror", Kind::mirror(&names), 0, 512);
        over_legs(&spec, below, State::volatile(), Box::new(self.log.clone()))
    }

    /// What lies in the file of a leg.
    pub fn bytes(&self, leg: usize) -> Vec<u8> {
        std::fs::read(self.path(leg)).unwrap()
    }
}

/// One word for each leg.
pub fn words(volume: &dyn Volume) -> Vec<&'static str> {
    let status = volume.as_mirror().unwrap().status();
    status.legs.iter().map(|leg| leg.word()).collect()
}

pub fn missing(volume: &dyn Volume, leg: usize) -> u64 {
    volume.as_mirror().unwrap().status().legs[leg].missing_bytes
}

pub fn dirty(volume: &dyn Volume) -> u64 {
    volume.as_mirror().unwrap().status().dirty_bytes
}

/// Does what there is to do at a time; whether there was anything.
pub fn upkeep(volume: &dyn Volume, files: &mut Fake, now: u64) -> bool {
    let Some(mut progress) = volume.upkeep(now, files, token_of(7)) else {
        return false;
    };
    loop {
        match progress {
            Progress::Done(result) => {
                result.unwrap();
                return true;
            }
            Progress::Pending(task) => {
                let (token, result) = files.completion();
                progress = volume.resume(task, result, files, token);
            }
        }
    }
}

/// Goes on until there is nothing to do.
pub fn settle(volume: &dyn Volume, files: &mut Fake, now: u64) {
    for step in 0..20 {
        while upkeep(volume, files, now + step * S) {}
    }
}

#[test]
fn new_legs_are_alike_and_a_write_is_on_all_of_them() {
    let room = Room::new(3);
    let volume = room.open();
    assert_eq!(words(&*volume), ["in-sync"; 3]);
    let mut files = Fake::default();
    write(&*volume, &mut files, 4096, &[7; 4096], true).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    for leg in 0..3 {
        assert_eq!(room.bytes(leg)[4096..8192], [7; 4096], "{leg}");
    }
    let is_durable = |op: &&Op| matches!(op, Op::Write { durable: true, .. });
    assert_eq!(files.log.iter().filter(is_durable).count(), 3);
    assert_eq!(files.log.iter().filter(|op| **op == Op::Sync).count(), 3);
}

#[test]
fn reads_use_all_legs() {
    let room = Room::new(2);
    let volume = room.open();
    let legs = volume.as_mirror().unwrap().volumes();
    let counts = || legs.iter().map(|leg| leg.stats().reads).collect::<Vec<_>>();
    let mut desk = Desk::new(&*volume);
    for n in 0..8 {
        desk.start(read_io(n * 4096, 4096).0);
    }
    assert_eq!(desk.files.pending(), 8);
    desk.finish();
    assert_eq!(counts(), [4, 4]);
    let mut files = Fake::default();
    for _ in 0..8 {
        read(&*volume, &mut files, 0, 4096).unwrap();
    }
    assert_eq!(counts(), [8, 8]);
}

#[test]
fn write_whose_region_the_log_cannot_have_goes_to_no_leg() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    room.log.fails.store(true, Ordering::Relaxed);
    let refused = write(&*volume, &mut files, 0, &[1; 512], false);
    assert_eq!(refused, Err(Error::WriteFailed(Errno::NOSPC)));
    assert!(files.log.is_empty());
    room.log.fails.store(false, Ordering::Relaxed);
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    // What the log has it needs not be told again.
    room.log.fails.store(true, Ordering::Relaxed);
    write(&*volume, &mut files, 512, &[2; 512], false).unwrap();
    let refused = write(&*volume, &mut files, REGION, &[1; 512], false);
    assert_eq!(refused, Err(Error::WriteFailed(Errno::NOSPC)));
}

#[test]
fn leg_that_fails_a_write_is_out_before_that_is_acknowledged_and_gets_what_it_lacks() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 5 * REGION, &[5; 512], false).unwrap();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    assert_eq!(missing(&*volume, 1), 2 * REGION, "what may differ besides");
    let ops = files.log.len();
    write(&*volume, &mut files, 8 * REGION, &[8; 4096], false).unwrap();
    assert_eq!(files.log.len(), ops + 1, "it gets nothing");
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
    }
    assert!(upkeep(&*volume, &mut files, 10 * S));
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(1));
    let status = volume.as_mirror().unwrap().status();
    assert_eq!(status.resynced_bytes, 3 * REGION, "nothing but those");
}

#[test]
fn failure_of_a_leg_that_the_log_cannot_have_is_no_success() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    room.log.fails.store(true, Ordering::Relaxed);
    let told = write(&*volume, &mut files, 0, &[2; 512], false);
    assert_eq!(told, Err(Error::WriteFailed(Errno::NOSPC)));
    let told = run(&*volume, &mut files, Io::Flush);
    assert_eq!(told, Err(Error::WriteFailed(Errno::NOSPC)));
    room.log.fails.store(false, Ordering::Relaxed);
    run(&*volume, &mut files, Io::Flush).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out"]);
}

#[test]
fn legs_may_be_out_in_turn_and_none_is_read_that_lacks_something() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    assert_eq!(words(&*volume), ["out", "in-sync"]);
    drop(volume);
    // The first leg is what the mirror begins with, but not where it lacks something.
    let volume = room.open();
    assert_eq!(words(&*volume), ["behind", "in-sync"]);
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [1; 512]);
    // The only one that has it fails.
    files.faults.push_back(Fault::Errno(libc::EIO));
    let lost = read(&*volume, &mut files, 0, 512);
    assert_eq!(lost.err(), Some(Error::ReadFailed(Errno::IO)));
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    let lost = write(&*volume, &mut files, 0, &[2; 512], false);
    assert_eq!(lost, Err(Error::WriteFailed(Errno::IO)));
    // Elsewhere both have all.
    files.faults.push_back(Fault::Errno(libc::EIO));
    assert_eq!(
        read(&*volume, &mut files, 2 * REGION, 512).unwrap(),
        [0; 512]
    );
}

#[test]
fn write_that_fails_on_all_legs_is_what_the_first_holds() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    files.faults.extend([
        Fault::Short(512),
        Fault::Errno(libc::EIO),
        Fault::Errno(libc::EIO),
    ]);
    let failed = write(&*volume, &mut files, 0, &[1; 4096], false);
    assert_eq!(failed, Err(Error::WriteFailed(Errno::IO)));
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    let first = read(&*volume, &mut files, 0, 4096).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), first);
    }
    drop(volume);
    let volume = room.open();
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), first);
    settle(&*volume, &mut files, S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(1));
}

#[test]
fn read_that_fails_on_a_leg_is_answered_by_another_and_repaired() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, REGION, &[9; 4096], false).unwrap();
    files.faults.push_back(Fault::Errno(libc::EIO));
    assert_eq!(read(&*volume, &mut files, REGION, 4096).unwrap(), [9; 4096]);
    assert!(words(&*volume).contains(&"behind"));
    let writes = |files: &Fake| {
        files
            .log
            .iter()
            .filter(|op| matches!(op, Op::Write { .. }))
            .count()
    };
    let before = writes(&files);
    settle(&*volume, &mut files, S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert!(writes(&files) > before);
    // Where none can read it, it is an error, and no leg is out for it.
    files
        .faults
        .extend([Fault::Errno(libc::EIO), Fault::Errno(libc::EIO)]);
    let lost = read(&*volume, &mut files, REGION, 4096);
    assert_eq!(lost.err(), Some(Error::ReadFailed(Errno::IO)));
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
}

/// The process ends when one leg has a write and the other has not.
#[test]
fn legs_that_differ_after_a_crash_are_one_again_in_the_regions_that_were_written() {
    for first in [0, 1] {
        let room = Room::new(2);
        let volume = room.open();
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[1; 8192], false).unwrap();
        settle(&*volume, &mut files, S);
        settle(&*volume, &mut files, 60 * S);
        assert_eq!(dirty(&*volume), 0);
        let mut desk = Desk::new(&*volume);
        desk.start(write_io(4096, 2, 4096));
        let _ = desk.files.complete(first);
        assert_ne!(room.bytes(0), room.bytes(1));
        drop(desk);
        drop(volume);
        let volume = room.open();
        assert_eq!(missing(&*volume, 1), REGION);
        let expected = if first == 0 { [2; 4096] } else { [1; 4096] };
        for _ in 0..4 {
            let seen = read(&*volume, &mut files, 4096, 4096).unwrap();
            assert_eq!(seen, expected, "the first leg decides");
        }
        settle(&*volume, &mut files, S);
        assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
        assert_eq!(room.bytes(0), room.bytes(1));
        let resynced = volume.as_mirror().unwrap().status().resynced_bytes;
        assert_eq!(resynced, REGION);
    }
}

/// A mirror whose log lies in a file, which is written beside the reactors. What writes it may have
/// its files for a moment after another one is closed.
fn with_log_in_a_file(room: &Room) -> Arc<dyn Volume> {
    let spec = Spec {
        state: Some(room.folder.path().join("state")),
        ..Spec::new("mirror", Kind::mirror(&["leg0", "leg1"]), 0, 512)
    };
    loop {
        let legs: Result<Vec<_>, _> = (0..2).map(|leg| room.try_leg(leg)).collect();
        match legs.and_then(|legs| open_over(&spec, legs)) {
            Err(error) if matches!(error.problem, Problem::InUse { .. }) => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap(),
        }
    }
}

/// A host may be told that a region cannot be read, and not what the first leg holds there.
#[test]
fn leg_that_cannot_be_read_after_a_crash_leaves_it_to_the_next_what_a_region_holds() {
    let openers: [Opener; 2] = [Room::open, with_log_in_a_file];
    for (open, was_read) in openers
        .iter()
        .flat_map(|open| [(open, false), (open, true)])
    {
        let room = Room::new(2);
        let volume = open(&room);
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[1; 8192], false).unwrap();
        settle(&*volume, &mut files, S);
        settle(&*volume, &mut files, 60 * S);
        let mut desk = Desk::new(&*volume);
        desk.start(write_io(4096, 2, 4096));
        while desk.files.pending() < 2 {
            desk.calls();
        }
        let _ = desk.files.complete(1);
        drop(desk);
        drop(volume);
        let volume = open(&room);
        assert_eq!(missing(&*volume, 1), REGION);
        if was_read {
            assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
        }
        files.faults.push_back(Fault::Errno(libc::EIO));
        let lost = read(&*volume, &mut files, 4096, 4096);
        assert_eq!(lost.err(), Some(Error::ReadFailed(Errno::IO)));
        // Copying finds the same.
        files.faults.push_back(Fault::Errno(libc::EIO));
        assert!(upkeep(&*volume, &mut files, S));
        let expected = match was_read {
            true => ["in-sync", "behind"],
            false => ["behind", "in-sync"],
        };
        assert_eq!(words(&*volume), expected);
        let holds = if was_read { [1; 4096] } else { [2; 4096] };
        for _ in 0..3 {
            assert_eq!(read(&*volume, &mut files, 4096, 4096).unwrap(), holds);
        }
        settle(&*volume, &mut files, 60 * S);
        assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
        assert!(room.bytes(0) == room.bytes(1) && room.bytes(0)[4096..8192] == holds);
    }
}

#[test]
fn regions_are_clean_when_nothing_was_written_for_a_while_and_all_is_flushed() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    write(&*volume, &mut files, 3 * REGION, &[1; 512], false).unwrap();
    assert_eq!(dirty(&*volume), 2 * REGION);
    // What was written lately is left alone.
    assert!(!upkeep(&*volume, &mut files, S));
    write(&*volume, &mut files, 0, &[2; 512], false).unwrap();
    files.log.clear();
    assert!(upkeep(&*volume, &mut files, 2 * S));
    assert_eq!(files.log, [Op::Sync, Op::Sync]);
    assert_eq!(dirty(&*volume), REGION);
    // A flush that fails leaves them dirty, and a leg out that has failed what the other has done.
    files.faults.push_back(Fault::Errno(libc::EIO));
    assert!(upkeep(&*volume, &mut files, 3 * S));
    assert_eq!(dirty(&*volume), REGION);
    assert_eq!(words(&*volume), ["out", "in-sync"]);
}

/// A log that each region of it waited for would have a stream as fast as that is written.
#[test]
fn stream_of_writes_changes_the_log_once_in_many_regions_and_others_change_it_at_each() {
    const COUNT: u64 = 1024;
    let mut room = Room::new(2);
    room.sizes = vec![COUNT * REGION; 2];
    let volume = room.open();
    let mut files = Fake::default();
    let saves = || room.log.saves.load(Ordering::Relaxed);
    let mut write = |region| write(&*volume, &mut files, region * REGION, &[1; 512], false);
    let before = saves();
    for region in 0..COUNT / 2 {
        write(region).unwrap();
    }
    let (of_stream, written) = (saves() - before, COUNT / 2 * REGION);
    assert!(of_stream <= 10, "{of_stream} of {} regions", COUNT / 2);
    let ahead = dirty(&*volume) - written;
    assert!((4 << 20..=8 << 20).contains(&ahead), "{ahead} bytes ahead");
    // The last region has none behind it.
    let before = saves();
    for region in (COUNT - 300..COUNT).rev() {
        write(region).unwrap();
    }
    assert_eq!(saves() - before, 300);
    write(COUNT - 1).unwrap();
}

/// A region ahead of a stream is dirty on the medium: its first write waits for nothing there.
#[test]
fn leg_that_is_out_lacks_what_a_stream_of_writes_came_to_before_a_crash() {
    let mut room = Room::new(2);
    room.sizes = vec![200 * REGION; 2];
    let volume = room.open();
    let mut files = Fake::default();
    files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
    for region in 0..4 {
        write(&*volume, &mut files, region * REGION, &[7; 512], false).unwrap();
    }
    assert_eq!(words(&*volume), ["out", "in-sync"]);
    drop(volume);
    let volume = room.open();
    for region in 0..4 {
        let seen = read(&*volume, &mut files, region * REGION, 512).unwrap();
        assert_eq!(seen, [7; 512], "{region}");
    }
    settle(&*volume, &mut files, S);
    assert_eq!(room.bytes(0), room.bytes(1));
}

/// The first leg is not there, and what it has alone lies ahead of a stream.
#[test]
fn regions_that_only_a_leg_that_is_out_has_stay_whatever_a_stream_of_writes_comes_to() {
    let mut room = Room::new(2);
    room.sizes = vec![200 * REGION; 2];
    let volume = room.open();
    let mut files = Fake::default();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 9 * REGION, &[9; 512], false).unwrap();
    drop(volume);
    let spec = Spec::new("mirror", Kind::mirror(&["leg0", "leg1"]), 0, 512);
    let log = Box::new(room.log.clone());
    let volume = over_legs(&spec, vec![room.leg(1)], State::volatile(), log).unwrap();
    assert_eq!(words(&*volume), ["out", "behind"]);
    for region in 0..9 {
        write(&*volume, &mut files, region * REGION, &[7; 512], false).unwrap();
    }
    let alone = write(&*volume, &mut files, 9 * REGION, &[7; 512], false);
    assert_eq!(alone, Err(Error::WriteFailed(Errno::IO)));
    drop(volume);
    let volume = room.open();
    settle(&*volume, &mut files, S);
    for (region, byte) in (0..10).zip([7, 7, 7, 7, 7, 7, 7, 7, 7, 9]) {
        let seen = read(&*volume, &mut files, region * REGION, 512).unwrap();
        assert_eq!(seen, [byte; 512], "{region}");
    }
    assert_eq!(room.bytes(0), room.bytes(1));
}

#[test]
fn mirror_that_was_flushed_last_has_nothing_to_copy_after_a_start() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    drop(volume);
    let volume = room.open();
    assert_eq!((dirty(&*volume), words(&*volume)), (0, vec!["in-sync"; 2]));
    write(&*volume, &mut files, 0, &[2; 512], false).unwrap();
    drop(volume);
    assert_eq!(words(&*room.open()), ["in-sync", "behind"]);
}

#[test]
fn legs_that_hold_something_become_what_the_first_holds() {
    let room = Room::new(2);
    let mut files = Fake::default();
    for (leg, byte) in [(0, 1), (1, 2)] {
        write(&*room.leg(leg), &mut files, 0, &[byte; 512], true).unwrap();
    }
    let volume = room.open();
    assert_eq!(missing(&*volume, 1), SIZE);
    for _ in 0..3 {
        assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [1; 512]);
    }
    settle(&*volume, &mut files, S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(1));
}

#[test]
fn leg_is_replaced_while_the_mirror_serves_and_by_name_at_a_start() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[3; 4096], false).unwrap();
    let mirror = volume.as_mirror().unwrap();
    // Both that have it cannot go.
    let gone = mirror.set_legs(vec![room.leg(2), room.leg(3)]);
    assert!(matches!(gone, Err(ReplaceError::Lacks { .. })), "{gone:?}");
    let uuid = volume.info().uuid;
    mirror
        .set_legs(vec![mirror.volumes()[0].clone(), room.leg(2)])
        .unwrap();
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    settle(&*volume, &mut files, S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(2));
    write(&*volume, &mut files, 0, &[4; 4096], false).unwrap();
    assert_eq!(room.bytes(1)[..4096], [3; 4096], "it is no leg any more");
    run(&*volume, &mut files, Io::Flush).unwrap();
    drop(volume);
    let volume = room.open_of(&[2, 1]);
    assert_eq!(volume.info().uuid, uuid);
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [4; 4096]);
}

#[test]
fn mirror_of_legs_that_its_log_does_not_know_is_refused() {
    let room = Room::new(2);
    drop(room.open());
    let told = room.try_open(&[2, 3]).err().unwrap().to_string();
    assert!(told.contains("knows none of the volumes"), "{told}");
    *room.log.bytes.lock().unwrap() = Some(b"something else".to_vec());
    let told = room.try_open(&[0, 1]).err().unwrap().to_string();
    assert!(told.contains("is damaged"), "{told}");
}

#[test]
fn mirror_is_as_large_as_its_smallest_leg_and_grows_with_it() {
    let mut room = Room::new(2);
    room.sizes = vec![SIZE, SIZE + REGION];
    let volume = room.open();
    assert_eq!(volume.size_bytes(), SIZE);
    let told = volume.resize(SIZE + 512, false).unwrap_err().to_string();
    assert!(told.contains("more than the 1048576"), "{told}");
    volume.as_mirror().unwrap().volumes()[0]
        .resize(SIZE + REGION, false)
        .unwrap();
    volume.resize(0, false).unwrap();
    assert_eq!(volume.size_bytes(), SIZE + REGION);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    let mut files = Fake::default();
    write(&*volume, &mut files, SIZE, &[1; 512], false).unwrap();
    assert_eq!(dirty(&*volume), REGION);
}

#[test]
fn mirror_that_outlasts_its_process_wants_a_place_for_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let leg = |name: &str| {
        let kind = Kind::file(folder.path().join(name));
        open(&Spec::new(name, kind, SIZE, 512)).unwrap()
    };
    let mut spec = Spec::new("m", Kind::mirror(&["a", "b"]), 0, 512);
    let told = open_over(&spec, vec![leg("a"), leg("b")])
        .err()
        .unwrap()
        .to_string();
    assert!(told.contains("set `state`"), "{told}");
    spec.state = Some(folder.path().join("m.state"));
    {
        let volume = open_over(&spec, vec![leg("a"), leg("b")]).unwrap();
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[6; 512], false).unwrap();
        let mut desk = Desk::new(&*volume);
        desk.files
            .faults
            .extend([Fault::None, Fault::Errno(libc::EIO)]);
        let write = desk.start(write_io(0, 7, 512));
        while desk.results[write].is_none() {
            match desk.files.pending() {
                0 => desk.calls(),
                _ => desk.step_at(0),
            }
        }
        assert_eq!(desk.results[write], Some(Ok(())));
        assert_eq!(words(&*volume), ["in-sync", "out"]);
    }
    assert!(folder.path().join("m.state.mirror").exists());
    let volume = open_over(&spec, vec![leg("a"), leg("b")]).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    // Memory needs none.
    let ram = |name: &str| open(&Spec::new(name, Kind::RAM, SIZE, 512)).unwrap();
    let spec = Spec::new("n", Kind::mirror(&["c", "d"]), 0, 512);
    let volume = open_over(&spec, vec![ram("c"), ram("d")]).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[6; 512], false).unwrap();
    assert!(volume.lend(0, 512).is_some());
}

#[test]
fn mirror_serves_without_a_leg_that_is_not_there_and_takes_it_back() {
    let room = Room::new(2);
    drop(room.open());
    let mut files = Fake::default();
    let only = |leg: usize| {
        let spec = Spec::new("mirror", Kind::mirror(&["leg0", "leg1"]), 0, 512);
        let log = Box::new(room.log.clone());
        over_legs(&spec, vec![room.leg(leg)], State::volatile(), log)
    };
    let volume = only(1).unwrap();
    assert_eq!(words(&*volume), ["out", "in-sync"]);
    write(&*volume, &mut files, REGION, &[7; 4096], true).unwrap();
    assert_eq!(read(&*volume, &mut files, REGION, 4096).unwrap(), [7; 4096]);
    // It is not there yet when it is asked.
    settle(&*volume, &mut files, S);
    assert_eq!(words(&*volume), ["out", "in-sync"]);
    let back = room.leg(0);
    volume.as_mirror().unwrap().take_back(&back).unwrap();
    settle(&*volume, &mut files, 60 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(volume.as_mirror().unwrap().status().resynced_bytes, REGION);
    run(&*volume, &mut files, Io::Flush).unwrap();
    drop((volume, back));
    assert_eq!(room.bytes(0), room.bytes(1));
    // The legs are away in turn: what the one lacks is not read from it.
    let volume = only(1).unwrap();
    write(&*volume, &mut files, 0, &[8; 4096], true).unwrap();
    drop(volume);
    let volume = only(0).unwrap();
    let lost = read(&*volume, &mut files, 0, 4096);
    assert_eq!(lost.err(), Some(Error::ReadFailed(Errno::IO)));
    assert_eq!(read(&*volume, &mut files, REGION, 4096).unwrap(), [7; 4096]);
    drop(volume);
    let volume = room.open();
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [8; 4096]);
    settle(&*volume, &mut files, S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(1));
}

/// Only its own state tells: the log of the mirror, and the bytes, may be those of any time.
#[test]
fn leg_that_comes_back_from_a_backup_is_copied_to_anew() {
    let room = Room::new(2);
    let mut files = Fake::default();
    let volume = room.open();
    write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    drop(volume);
    let beside = |leg| PathBuf::from(format!("{}.weft", room.path(leg).display()));
    let old = (room.bytes(1), std::fs::read(beside(1)).unwrap());
    let volume = room.open();
    files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
    write(&*volume, &mut files, 0, &[2; 4096], false).unwrap();
    settle(&*volume, &mut files, 60 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    run(&*volume, &mut files, Io::Flush).unwrap();
    drop(volume);
    std::fs::write(room.path(1), &old.0).unwrap();
    std::fs::write(beside(1), &old.1).unwrap();
    let volume = room.open();
    assert_eq!(missing(&*volume, 1), SIZE);
    for _ in 0..3 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [2; 4096]);
    }
}

/// A log that is lost: the leg that was in the mirror last is what it begins with.
#[test]
fn mirror_without_its_log_begins_with_the_leg_that_was_in_it_last() {
    let room = Room::new(2);
    let mut files = Fake::default();
    let volume = room.open();
    files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
    write(&*volume, &mut files, 0, &[2; 4096], true).unwrap();
    drop(volume);
    *room.log.bytes.lock().unwrap() = None;
    let volume = room.open();
    assert_eq!(words(&*volume), ["behind", "in-sync"]);
    assert_eq!(missing(&*volume, 0), SIZE);
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [2; 4096]);
}

#[test]
fn mirrors_log_that_is_older_than_its_legs_is_refused() {
    for starts in [0, 1] {
        let room = Room::new(2);
        let volume = room.open();
        let old = room.log.bytes.lock().unwrap().clone();
        // A stop in order begins a generation, as a start does.
        drop(volume);
        (0..starts).for_each(|_| drop(room.open()));
        *room.log.bytes.lock().unwrap() = old;
        let told = room.try_open(&[0, 1]).err().unwrap().to_string();
        assert!(told.contains("is older than what its legs say"), "{told}");
    }
}

#[test]
fn blocks_that_hosts_have_made_unreadable_are_so_on_each_leg() {
    let room = Room::new(2);
    let mut files = Fake::default();
    let volume = room.open();
    write(&*volume, &mut files, 0, &[1; 8192], false).unwrap();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 0, &[2; 8192], false).unwrap();
    let (offset, len) = (1024, 1536);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    settle(&*volume, &mut files, 60 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    for leg in volume.as_mirror().unwrap().volumes() {
        let marks = leg.unreadable(0, SIZE, 9);
        assert_eq!(marks, [store::Range { offset, len }], "{}", leg.info().name);
        assert_eq!(read(&*leg, &mut files, 4096, 4096).unwrap(), [2; 4096]);
    }
    assert_eq!(
        read(&*volume, &mut files, 1024, 512),
        Err(Error::Unreadable)
    );
    assert_eq!(
        words(&*volume),
        ["in-sync", "in-sync"],
        "no leg is to blame"
    );
}

#[test]
fn writes_wait_for_the_piece_that_is_being_copied_and_are_on_both() {
    let room = Room::new(2);
    let mut files = Fake::default();
    write(&*room.leg(0), &mut files, 0, &[1; 4096], true).unwrap();
    let volume = room.open();
    let mut desk = Desk::new(&*volume);
    let copying = volume.upkeep(S, &mut desk.files, token_of(50)).unwrap();
    let Progress::Pending(copying) = copying else {
        panic!("it reads");
    };
    let waits = desk.start(write_io(0, 2, 4096));
    assert!(desk.waits(waits));
    let elsewhere = desk.start(write_io(4 * REGION, 3, 4096));
    assert!(!desk.waits(elsewhere));
    let mut task = Some(copying);
    while desk.results[waits].is_none() || desk.results[elsewhere].is_none() || task.is_some() {
        for token in desk.files.rung() {
            go_on(&*volume, &mut desk, &mut task, token, Ok(0));
        }
        if desk.files.pending() > 0 {
            let (token, result) = desk.files.complete(0);
            go_on(&*volume, &mut desk, &mut task, token, result);
        }
    }
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(1));
    assert_eq!(room.bytes(1)[..4096], [2; 4096]);
}

/// Goes on with what a token is of: an I/O, or what the mirror does by itself.
fn go_on(
    volume: &dyn Volume,
    desk: &mut Desk<'_>,
    own: &mut Option<store::Task>,
    token: u64,
    result: io::Result<u32>,
) {
    if token >> store::LEG_BITS != 50 {
        return desk.resume(token, result);
    }
    let task = own.take().expect("it is under way");
    let progress = volume.resume(task, result, &mut desk.files, token);
    if let Progress::Pending(task) = progress {
        *own = Some(task);
    }
}
