//! Mirrors that become others while they serve or between two starts: legs that go and come,
//! sizes, backups, encryption.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use store::{
    Base, Errno, Error, Extent, Io, Kind, Medium, Progress, ReplaceError, ResizeError, Spec, State,
    Task, Volume, encrypted, open, open_over, over_legs,
};

use crate::common::*;
use crate::encrypted::by;
use crate::fake::*;
use crate::mirror::*;

/// An encrypted mirror is a mirror, and does what a mirror does by itself.
#[test]
fn leg_of_an_encrypted_mirror_gets_what_it_lacks() {
    let room = Room::new(2);
    let volume = encrypted(room.open(), &by(1), None).unwrap();
    let mut files = Fake::default();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    assert!(volume.has_upkeep());
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(1));
    run(&*volume, &mut files, Io::Flush).unwrap();
    for _ in 0..2 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
    }
}

/// What `begun` is at comes to its end.
fn finish(volume: &dyn Volume, files: &mut Fake, begun: Option<Progress>) {
    let mut progress = begun;
    while let Some(Progress::Pending(task)) = progress {
        let (token, result) = files.completion();
        progress = Some(volume.resume(task, result, files, token));
    }
}

/// A mirror whose second leg lacks everything.
fn with_new_leg(room: &Room) -> Arc<dyn Volume> {
    let mut files = Fake::default();
    write(&*room.leg(0), &mut files, 0, &vec![1; SIZE as usize], true).unwrap();
    let volume = room.open();
    assert_eq!(missing(&*volume, 1), SIZE);
    volume
}

/// As the metrics do at any time.
#[test]
fn status_is_told_while_the_log_is_written_of_another_leg() {
    let room = Room::new(2);
    let volume = room.open();
    let (told, asked) = (Arc::default(), volume.clone());
    let seen: Arc<Mutex<Vec<Vec<&'static str>>>> = Arc::clone(&told);
    let look = move || seen.lock().unwrap().push(words(&*asked));
    *room.log.meanwhile.lock().unwrap() = Some(Box::new(look));
    let mirror = volume.as_mirror().unwrap();
    let mut legs = mirror.volumes();
    legs.push(room.leg(2));
    mirror.set_legs(legs).unwrap();
    let told = told.lock().unwrap().clone();
    assert_eq!(told.len(), 1);
    assert!(told[0].len() >= 2, "{told:?}");
    assert_eq!(words(&*volume), ["in-sync", "in-sync", "behind"]);
}

#[test]
fn copying_that_begins_while_a_leg_is_replaced_is_to_the_new_leg() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[3; 4096], false).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    assert!(!upkeep(&*volume, &mut files, S));
    // The log is being written between the two times that both threads are there.
    let both = Arc::new(Barrier::new(2));
    let saving = Arc::clone(&both);
    *room.log.meanwhile.lock().unwrap() = Some(Box::new(move || {
        saving.wait();
        saving.wait();
    }));
    let mirror = volume.as_mirror().unwrap();
    let legs = vec![mirror.volumes()[0].clone(), room.leg(2)];
    let begun = thread::scope(|scope| {
        scope.spawn(|| mirror.set_legs(legs).unwrap());
        both.wait();
        let begun = volume.upkeep(S + S / 1000, &mut files, token_of(7));
        both.wait();
        begun
    });
    finish(&*volume, &mut files, begun);
    settle(&*volume, &mut files, 2 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert!(room.bytes(0) == room.bytes(2));
}

/// The kernel takes what it could not write for clean, so that the next flush succeeds.
#[test]
fn leg_that_has_failed_a_flush_gets_again_all_that_was_not_flushed_before() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
    write(&*volume, &mut files, 5 * REGION, &[2; 4096], false).unwrap();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    run(&*volume, &mut files, Io::Flush).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    let leg = std::fs::File::options().write(true).open(room.path(1));
    std::os::unix::fs::FileExt::write_all_at(&leg.unwrap(), &[0; 4096], 0).unwrap();
    // As long as its disk does not flush it stays out.
    files.faults.push_back(Fault::Errno(libc::EIO));
    assert!(upkeep(&*volume, &mut files, 10 * S));
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    settle(&*volume, &mut files, 60 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert!(room.bytes(0) == room.bytes(1));
    let resynced = volume.as_mirror().unwrap().status().resynced_bytes;
    assert_eq!(resynced, 2 * REGION);
    run(&*volume, &mut files, Io::Flush).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
}

#[test]
fn leg_that_does_not_flush_what_is_copied_to_it_gets_it_again() {
    let room = Room::new(2);
    let volume = with_new_leg(&room);
    let mut files = Fake::default();
    let copies = 2 * (SIZE / REGION) as usize;
    files.faults.extend(vec![Fault::None; copies]);
    files.faults.push_back(Fault::Errno(libc::EIO));
    assert!(upkeep(&*volume, &mut files, S));
    assert_eq!(files.log.last(), Some(&Op::Sync));
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    assert_eq!(missing(&*volume, 1), SIZE);
    settle(&*volume, &mut files, 60 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    let resynced = volume.as_mirror().unwrap().status().resynced_bytes;
    assert_eq!(resynced, 2 * SIZE);
    assert!(room.bytes(0) == room.bytes(1));
}

#[test]
fn mirror_without_its_log_does_not_begin_with_a_leg_that_was_behind() {
    let room = Room::new(2);
    let mut files = Fake::default();
    let volume = room.open();
    files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
    write(&*volume, &mut files, 0, &[2; 4096], false).unwrap();
    volume.as_mirror().unwrap().set_resync_rate(0);
    settle(&*volume, &mut files, 10 * S);
    assert_eq!(words(&*volume), ["behind", "in-sync"]);
    drop(volume);
    *room.log.bytes.lock().unwrap() = None;
    let volume = room.open();
    assert_eq!(words(&*volume), ["behind", "in-sync"]);
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [2; 4096]);
}

/// What one leg has to say ends where another one has what follows.
#[test]
fn extents_of_a_mirror_go_on_behind_what_a_leg_has() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
    volume.as_mirror().unwrap().set_resync_rate(0);
    settle(&*volume, &mut files, 20 * S);
    files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
    write(&*volume, &mut files, REGION, &[2; 4096], false).unwrap();
    assert_eq!(words(&*volume), ["behind", "behind"]);
    let mut found = Vec::new();
    volume.extents(0, 2 * REGION, 100, &mut found).unwrap();
    assert_eq!(
        found.iter().map(|extent| extent.len).sum::<u64>(),
        2 * REGION
    );
    let is_allocated = |at: u64| {
        let mut found = found.iter();
        let extent = found.find(|extent| at < extent.offset + extent.len);
        extent.unwrap().allocated
    };
    assert_eq!(
        [0, REGION, 2 * REGION - 512].map(is_allocated),
        [true, true, false]
    );
}

/// As a state file, which may be moved to another disk.
#[test]
fn log_of_a_mirror_lies_where_a_link_to_its_state_leads() {
    let room = Room::new(2);
    let at = |name: &str| room.folder.path().join(name);
    let of = |state: &str| {
        let spec = Spec {
            state: Some(at(state)),
            ..Spec::new("mirror", Kind::mirror(&["leg0", "leg1"]), 0, 512)
        };
        open_over(&spec, vec![room.leg(0), room.leg(1)]).unwrap()
    };
    let volume = of("there");
    volume.state().protect_permanently().unwrap();
    drop(volume);
    std::os::unix::fs::symlink(at("there"), at("link")).unwrap();
    let volume = of("link");
    assert!(volume.state().is_write_protected());
    assert_eq!(words(&*volume), ["in-sync"; 2]);
    assert!(at("there.mirror").exists() && !at("link.mirror").exists());
}

#[test]
fn mirror_grows_to_no_more_than_a_leg_has_that_is_not_there() {
    let mut room = Room::new(2);
    drop(room.open());
    room.sizes[1] = SIZE + REGION;
    let spec = Spec::new("mirror", Kind::mirror(&["leg0", "leg1"]), 0, 512);
    let log = Box::new(room.log.clone());
    let volume = over_legs(&spec, vec![room.leg(1)], State::volatile(), log).unwrap();
    assert_eq!(words(&*volume), ["out", "in-sync"]);
    assert_eq!(volume.size_bytes(), SIZE);
    volume.resize(0, false).unwrap();
    assert_eq!(volume.size_bytes(), SIZE);
    let mirror = volume.as_mirror().unwrap();
    mirror.take_back(&room.leg(0)).unwrap();
    let mut files = Fake::default();
    settle(&*volume, &mut files, 60 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
}

#[test]
fn volume_that_a_host_has_write_protected_becomes_no_leg() {
    let room = Room::new(2);
    let protected = room.leg(2);
    protected.state().protect_permanently().unwrap();
    let volume = room.open();
    let mirror = volume.as_mirror().unwrap();
    let mut legs = mirror.volumes();
    legs.push(protected);
    let told = mirror.set_legs(legs).err().unwrap();
    assert!(
        told.to_string().contains("\"leg2\" is read only, or"),
        "{told}"
    );
    assert_eq!(words(&*volume), ["in-sync"; 2]);
}

#[test]
fn leg_of_memory_that_comes_back_holds_nothing() {
    let room = Room::new(1);
    let ram = || open(&Spec::new("ram", Kind::RAM, SIZE, 512)).unwrap();
    let of = |below| {
        let spec = Spec::new("mirror", Kind::mirror(&["leg0", "ram"]), 0, 512);
        over_legs(&spec, below, State::volatile(), Box::new(room.log.clone())).unwrap()
    };
    let mut files = Fake::default();
    let volume = of(vec![room.leg(0), ram()]);
    write(&*volume, &mut files, 0, &[1; 4096], true).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    drop(volume);
    let volume = of(vec![room.leg(0)]);
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    let back = ram();
    volume.as_mirror().unwrap().take_back(&back).unwrap();
    for now in [S, 20 * S, 60 * S] {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
        settle(&*volume, &mut files, now);
    }
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(read(&*back, &mut files, 0, 4096).unwrap(), [1; 4096]);
}

/// A mirror that ends within a region, behind which its legs are not alike.
fn with_unlike_ends(room: &mut Room) -> Arc<dyn Volume> {
    let end = SIZE + REGION;
    room.sizes = vec![SIZE + 512, end];
    let mut files = Fake::default();
    write(&*room.leg(1), &mut files, end - 4096, &[9; 4096], true).unwrap();
    let volume = room.open();
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    let first = volume.as_mirror().unwrap().volumes()[0].clone();
    first.resize(end, false).unwrap();
    volume
}

#[test]
fn mirror_that_grows_within_a_region_holds_there_what_its_first_leg_holds() {
    let mut room = Room::new(2);
    let volume = with_unlike_ends(&mut room);
    let mut files = Fake::default();
    volume.resize(0, false).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    let at = SIZE + REGION - 4096;
    for _ in 0..2 {
        assert_eq!(read(&*volume, &mut files, at, 4096).unwrap(), [0; 4096]);
    }
    settle(&*volume, &mut files, S);
    assert!(room.bytes(0) == room.bytes(1));
}

#[test]
fn leg_that_is_out_while_the_mirror_grows_lacks_all_of_its_last_region() {
    let mut room = Room::new(2);
    let volume = with_unlike_ends(&mut room);
    let mut files = Fake::default();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    volume.resize(0, false).unwrap();
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert!(room.bytes(0) == room.bytes(1));
}

#[test]
fn copy_that_began_before_a_mirror_grew_is_none_of_what_it_grew_by() {
    let mut room = Room::new(2);
    let volume = with_unlike_ends(&mut room);
    let mut files = Fake::default();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, SIZE, &[1; 512], false).unwrap();
    volume.as_mirror().unwrap().set_resync_rate(0);
    settle(&*volume, &mut files, 20 * S);
    volume.as_mirror().unwrap().set_resync_rate(1 << 30);
    files.log.clear();
    let mut progress = volume.upkeep(60 * S, &mut files, token_of(7));
    while files.log.last() != Some(&Op::Sync) {
        let Some(Progress::Pending(task)) = progress else {
            panic!("it copies");
        };
        let (token, result) = files.completion();
        progress = Some(volume.resume(task, result, &mut files, token));
    }
    volume.resize(0, false).unwrap();
    finish(&*volume, &mut files, progress);
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    settle(&*volume, &mut files, 90 * S);
    assert!(room.bytes(0) == room.bytes(1));
}

#[test]
fn regions_that_were_written_while_legs_were_flushed_stay_dirty_whatever_legs_become() {
    let room = Room::new(2);
    let volume = room.open();
    let (mut files, mut other) = (Fake::default(), Fake::default());
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    assert!(!upkeep(&*volume, &mut files, S));
    let flushing = volume.upkeep(2 * S, &mut files, token_of(7));
    assert_eq!(files.pending(), 2);
    write(&*volume, &mut other, 0, &[2; 512], false).unwrap();
    let mirror = volume.as_mirror().unwrap();
    let legs = vec![mirror.volumes()[0].clone(), room.leg(2)];
    mirror.set_legs(legs).unwrap();
    finish(&*volume, &mut files, flushing);
    assert_eq!(dirty(&*volume), REGION);
}

#[test]
fn each_leg_that_is_out_is_asked() {
    let room = Room::new(3);
    drop(room.open());
    let spec = Spec::new("mirror", Kind::mirror(&["leg0", "leg1", "leg2"]), 0, 512);
    let (below, log) = (vec![room.leg(1), room.leg(2)], Box::new(room.log.clone()));
    let volume = over_legs(&spec, below, State::volatile(), log).unwrap();
    let mut files = Fake::default();
    files.faults.push_back(Fault::Errno(libc::EIO));
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    assert_eq!(words(&*volume), ["out", "out", "in-sync"]);
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(words(&*volume), ["out", "in-sync", "in-sync"]);
}

/// A volume with a region that cannot be written.
struct Sick(Arc<dyn Volume>, u64);

impl Volume for Sick {
    fn base(&self) -> &Base {
        self.0.base()
    }

    fn start(&self, io: Io, files: &mut dyn reactor::FileIo, token: u64) -> Progress {
        let (offset, _) = io.extent();
        let is_bad = offset / REGION == self.1 && matches!(io, Io::Write { .. } | Io::Zero { .. });
        match is_bad {
            true => Progress::Done(Err(Error::WriteFailed(Errno::IO))),
            false => self.0.start(io, files, token),
        }
    }

    fn resume(
        &self,
        task: Task,
        result: std::io::Result<u32>,
        files: &mut dyn reactor::FileIo,
        token: u64,
    ) -> Progress {
        self.0.resume(task, result, files, token)
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.0.resize(size_bytes, allow_shrink)
    }

    fn extents(&self, at: u64, len: u64, max: usize, out: &mut Vec<Extent>) -> Result<(), Error> {
        self.0.extents(at, len, max, out)
    }
}

#[test]
fn region_that_a_leg_cannot_write_keeps_no_other_from_being_copied() {
    let room = Room::new(2);
    let volume = room.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &vec![1; 1 << 19], false).unwrap();
    write(&*volume, &mut files, 1 << 19, &vec![1; 1 << 19], false).unwrap();
    let mirror = volume.as_mirror().unwrap();
    let sick = Arc::new(Sick(room.leg(2), 3));
    mirror
        .set_legs(vec![mirror.volumes()[0].clone(), sick])
        .unwrap();
    settle(&*volume, &mut files, S);
    settle(&*volume, &mut files, 60 * S);
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    assert_eq!(missing(&*volume, 1), REGION);
}

#[test]
fn volume_is_one_leg_of_a_mirror() {
    let room = Room::new(2);
    let volume = room.open();
    let mirror = volume.as_mirror().unwrap();
    let first = mirror.volumes()[0].clone();
    let refused = mirror.set_legs(vec![first.clone(), first]);
    assert!(matches!(refused, Err(ReplaceError::Leg(_))), "{refused:?}");
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
}

/// Nothing has failed meanwhile: a start is enough to tell what is from before it.
#[test]
fn leg_from_a_backup_of_before_the_last_start_is_copied_to_anew() {
    for is_of_a_run in [false, true] {
        let room = Room::new(2);
        let mut files = Fake::default();
        let beside = |leg| PathBuf::from(format!("{}.weft", room.path(leg).display()));
        let taken = || (room.bytes(1), std::fs::read(beside(1)).unwrap());
        let volume = room.open();
        write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
        run(&*volume, &mut files, Io::Flush).unwrap();
        let in_run = taken();
        drop(volume);
        let old = if is_of_a_run { in_run } else { taken() };
        let volume = room.open();
        assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
        write(&*volume, &mut files, 0, &[2; 4096], false).unwrap();
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
}

/// What of a mirror is on the disk beside the bytes of its legs.
#[derive(Clone)]
struct Moment {
    log: Option<Vec<u8>>,
    states: [Vec<u8>; 2],
}

impl Moment {
    fn of(log: &Kept, states: &[PathBuf; 2]) -> Moment {
        Moment {
            log: log.bytes.lock().unwrap().clone(),
            states: states.each_ref().map(|path| std::fs::read(path).unwrap()),
        }
    }

    fn put_back(&self, log: &Kept, states: &[PathBuf; 2]) {
        log.bytes.lock().unwrap().clone_from(&self.log);
        for (path, bytes) in states.iter().zip(&self.states) {
            std::fs::write(path, bytes).unwrap();
        }
    }
}

/// The log of a mirror that keeps what is on the disk before each time that it is written.
struct Watched {
    log: Kept,
    states: [PathBuf; 2],
    moments: Arc<Mutex<Vec<Moment>>>,
}

impl Medium for Watched {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        self.log.load()
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        let moment = Moment::of(&self.log, &self.states);
        self.moments.lock().unwrap().push(moment);
        self.log.save(bytes)
    }

    fn path(&self) -> &Path {
        self.log.path()
    }
}

/// A mirror, and what was on the disk beside the bytes of its legs since it was asked last.
struct WatchedMirror {
    volume: Arc<dyn Volume>,
    states: [PathBuf; 2],
    moments: Arc<Mutex<Vec<Moment>>>,
}

impl WatchedMirror {
    fn open(room: &Room) -> WatchedMirror {
        let states = [0, 1].map(|leg| PathBuf::from(format!("{}.weft", room.path(leg).display())));
        let moments = Arc::new(Mutex::new(Vec::new()));
        let spec = Spec::new("mirror", Kind::mirror(&["leg0", "leg1"]), 0, 512);
        let watched = Watched {
            log: room.log.clone(),
            states: states.clone(),
            moments: moments.clone(),
        };
        let below = vec![room.leg(0), room.leg(1)];
        let volume = over_legs(&spec, below, State::volatile(), Box::new(watched)).unwrap();
        WatchedMirror {
            volume,
            states,
            moments,
        }
    }

    fn watch(&self, room: &Room) {
        *self.moments.lock().unwrap() = vec![Moment::of(&room.log, &self.states)];
    }

    /// Opens it as each crash since [`WatchedMirror::watch`] would have left it. The states of
    /// legs are written one after the other, behind the log that is there then.
    fn after_each_crash(self, room: &Room, mut look: impl FnMut(&dyn Volume)) {
        let mut moments = self.moments.lock().unwrap().clone();
        moments.push(Moment::of(&room.log, &self.states));
        drop(self.volume);
        for pair in moments.windows(2) {
            let [old, new] = pair else {
                unreachable!("pairs")
            };
            for (first, second) in [(old, old), (new, old), (old, new), (new, new)] {
                let moment = Moment {
                    log: new.log.clone(),
                    states: [first.states[0].clone(), second.states[1].clone()],
                };
                moment.put_back(&room.log, &self.states);
                look(&*room.open());
            }
        }
    }
}

#[test]
fn mirror_holds_its_data_wherever_a_crash_ends_the_return_of_a_leg() {
    let room = Room::new(2);
    let mut files = Fake::default();
    drop(room.open());
    let mirror = WatchedMirror::open(&room);
    files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
    write(&*mirror.volume, &mut files, 0, &[1; 4096], true).unwrap();
    assert_eq!(words(&*mirror.volume), ["out", "in-sync"]);
    mirror.watch(&room);
    assert!(upkeep(&*mirror.volume, &mut files, 10 * S));
    assert_eq!(words(&*mirror.volume), ["behind", "in-sync"]);
    mirror.after_each_crash(&room, |volume| {
        assert_eq!(read(volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
    });
}

/// The log is written before the legs are told and after it; the second time fails.
#[test]
fn log_is_not_older_than_its_legs_after_a_change_of_legs_that_could_not_be_saved() {
    let room = Room::new(2);
    let mut files = Fake::default();
    drop(room.open());
    let watched = WatchedMirror::open(&room);
    let (fails, next) = (room.log.fails.clone(), room.log.meanwhile.clone());
    let first = move || {
        let fail = move || fails.store(true, Ordering::Relaxed);
        *next.lock().unwrap() = Some(Box::new(fail));
    };
    *room.log.meanwhile.lock().unwrap() = Some(Box::new(first));
    let mirror = watched.volume.as_mirror().unwrap();
    let legs = vec![mirror.volumes()[0].clone(), room.leg(2)];
    assert!(mirror.set_legs(legs).is_err());
    room.log.fails.store(false, Ordering::Relaxed);
    watched.watch(&room);
    write(&*watched.volume, &mut files, 0, &[1; 4096], true).unwrap();
    let mut opened = 0;
    watched.after_each_crash(&room, |_| opened += 1);
    assert!(opened > 0);
}

#[test]
fn leg_that_has_become_smaller_does_not_make_its_mirror_so() {
    let mut room = Room::new(2);
    drop(room.open());
    let file = std::fs::File::options().write(true).open(room.path(1));
    file.unwrap().set_len(SIZE / 2).unwrap();
    room.sizes[1] = SIZE / 2;
    let told = room.try_open(&[0, 1]).err().unwrap().to_string();
    assert!(told.contains("leg1") && told.contains("524288"), "{told}");
    room.sizes[1] = SIZE;
    drop(room.open());
}

#[test]
fn copying_that_is_paused_or_not_wanted_any_more_ends_soon() {
    let room = Room::new(2);
    let volume = with_new_leg(&room);
    let mirror = volume.as_mirror().unwrap();
    mirror.set_resync_rate(1000);
    for is_canceled in [false, true] {
        let mut files = Fake::default();
        let mut now = volume.upkeep(S, &mut files, token_of(7));
        while files.pauses.len() < 3 {
            let Some(Progress::Pending(task)) = now else {
                panic!("it is not done");
            };
            let (token, result) = files.completion();
            now = Some(volume.resume(task, result, &mut files, token));
        }
        assert!(
            files.pauses.iter().all(|ns| *ns <= S / 10),
            "{:?}",
            files.pauses
        );
        let Some(Progress::Pending(mut task)) = now else {
            panic!("it pauses");
        };
        match is_canceled {
            true => task.cancel(&mut files, token_of(7)),
            false => mirror.set_resync_rate(0),
        }
        let ops = files.log.len();
        finish(&*volume, &mut files, Some(Progress::Pending(task)));
        assert!(files.log.len() <= ops + 1, "a flush at most");
        mirror.set_resync_rate(1000);
    }
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
}

/// The disk of the log is full while a leg fails and answers again.
#[test]
fn mirror_whose_log_could_not_be_written_is_opened_with_what_it_had() {
    let room = Room::new(2);
    let mut files = Fake::default();
    let volume = room.open();
    write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
    room.log.fails.store(true, Ordering::Relaxed);
    for now in [S, 30 * S, 60 * S] {
        files.faults.extend([Fault::Errno(libc::EIO), Fault::None]);
        let told = write(&*volume, &mut files, 0, &[2; 4096], false);
        assert_eq!(told, Err(Error::WriteFailed(Errno::NOSPC)));
        files.faults.clear();
        settle(&*volume, &mut files, now);
    }
    drop(volume);
    room.log.fails.store(false, Ordering::Relaxed);
    // No write that the second leg alone has was acknowledged.
    let volume = room.open();
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    settle(&*volume, &mut files, S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    drop(volume);
    // It can be read where it cannot be written.
    room.log.fails.store(true, Ordering::Relaxed);
    let volume = room.open();
    read(&*volume, &mut files, 0, 4096).unwrap();
    let told = write(&*volume, &mut files, 0, &[2; 4096], false);
    assert_eq!(told, Err(Error::WriteFailed(Errno::NOSPC)));
}
