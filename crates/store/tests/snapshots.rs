//! Snapshots on file systems that can share blocks between files, and on one that cannot.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::*;
use needs::needs;
use reactor::Choice;
use store::snapshot::{self, SnapshotError};
use store::{EncryptionSettings, Error, Io, Kind, Problem, Spec, Volume, open, open_over};
use testkit::Mounted;

const SIZE: u64 = 4 << 20;
const BLOCK: usize = 4096;

/// Opens a volume that may have been closed just now: what another test starts has its file
/// until it is another program.
fn try_open(spec: &Spec) -> Result<Arc<dyn Volume>, Problem> {
    for _ in 0..1000 {
        match open(spec).map_err(|error| error.problem) {
            Err(Problem::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
            opened => return opened,
        }
    }
    panic!("{spec:?} is in use");
}

fn open_again(spec: &Spec) -> Arc<dyn Volume> {
    try_open(spec).unwrap()
}

/// Why a volume cannot be opened.
fn problem_of(spec: &Spec) -> Problem {
    try_open(spec).err().expect("it is refused")
}

/// A file system with two volumes on it.
struct Volumes {
    paths: [PathBuf; 2],
    all: Vec<Arc<dyn Volume>>,
    files: Real,
    // Last: files on it are closed first.
    _mounted: Mounted,
    _folder: tempfile::TempDir,
}

fn spec_of(path: &Path) -> Spec {
    let name = path.file_name().unwrap().to_str().unwrap();
    Spec {
        name: name.to_owned(),
        ..file_spec(path, SIZE)
    }
}

impl Volumes {
    fn on(mkfs: &str) -> Volumes {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Mounted::made_by(mkfs, folder.path());
        let paths = ["a", "b"].map(|name| mounted.path().join(name));
        let all = paths.iter().map(|path| open(&spec_of(path)).unwrap());
        Volumes {
            all: all.collect(),
            paths,
            files: Real::open(Choice::Epoll),
            _mounted: mounted,
            _folder: folder,
        }
    }

    fn fill(&mut self, byte: u8) {
        for volume in &self.all {
            let bytes = vec![byte; SIZE as usize / 4];
            write(&**volume, &mut self.files, SIZE / 4, &bytes, false).unwrap();
        }
    }

    /// What a quarter of a volume holds.
    fn byte(&mut self, which: usize) -> u8 {
        let len = SIZE as usize / 4;
        let bytes = read(&*self.all[which], &mut self.files, SIZE / 4, len).unwrap();
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a mixture");
        bytes[0]
    }

    fn names(&self, which: usize) -> Vec<String> {
        let found = snapshot::list(&*self.all[which]).unwrap().into_iter();
        found.map(|found| found.name).collect()
    }

    fn data(&self, which: usize, name: &str) -> PathBuf {
        self.folder(which).join(name).join("data")
    }

    fn folder(&self, which: usize) -> PathBuf {
        self.paths[which].with_extension("snapshots")
    }

    /// Closes the volumes and opens them again.
    fn reopen(&mut self) {
        self.all.clear();
        let all = self.paths.iter().map(|path| open_again(&spec_of(path)));
        self.all = all.collect();
    }
}

fn snapshots_are_made_listed_renamed_removed_and_rolled_back_to(mkfs: &str) {
    let mut volumes = Volumes::on(mkfs);
    volumes.fill(1);
    snapshot::create(&volumes.all, "one", 1_000).unwrap();
    // All of it is shared, and what was never written is nowhere.
    let found = snapshot::list(&*volumes.all[0]).unwrap();
    assert_eq!(
        (found[0].size_bytes, found[0].unique_bytes),
        (SIZE, Some(0))
    );
    assert_eq!((found[0].taken_unix_ms, &found[0].damage), (1_000, &None));
    volumes.fill(2);
    snapshot::create(&volumes.all[..1], "two", 2_000).unwrap();
    volumes.fill(3);
    fs::File::open(&volumes.paths[0])
        .unwrap()
        .sync_all()
        .unwrap();
    let found = snapshot::list(&*volumes.all[0]).unwrap();
    assert_eq!(found[0].unique_bytes, Some(SIZE / 4));
    assert_eq!(volumes.names(0), ["one", "two"]);
    assert_eq!(volumes.names(1), ["one"]);
    let held = fs::read(volumes.data(1, "one")).unwrap();
    assert_eq!(held.len() as u64, SIZE);
    let quarter = SIZE as usize / 4;
    assert!(held[quarter..2 * quarter].iter().all(|&byte| byte == 1));
    assert!(held[2 * quarter..].iter().all(|&byte| byte == 0));

    let again = snapshot::create(&volumes.all, "two", 0).unwrap_err();
    assert!(matches!(again, SnapshotError::Exists(..)), "{again}");
    assert_eq!(volumes.names(1), ["one"], "of all or of none");

    snapshot::rollback(&volumes.all, "one").unwrap();
    assert_eq!([volumes.byte(0), volumes.byte(1)], [1, 1]);
    snapshot::rollback(&volumes.all[..1], "two").unwrap();
    assert_eq!([volumes.byte(0), volumes.byte(1)], [2, 1]);
    volumes.reopen();
    assert_eq!([volumes.byte(0), volumes.byte(1)], [2, 1]);

    snapshot::rename(&*volumes.all[0], "one", "first").unwrap();
    let taken = snapshot::rename(&*volumes.all[0], "first", "two").unwrap_err();
    assert!(matches!(taken, SnapshotError::Exists(..)), "{taken}");
    snapshot::remove(&*volumes.all[0], "first").unwrap();
    assert_eq!(volumes.names(0), ["two"]);
    let gone = snapshot::remove(&*volumes.all[0], "first").unwrap_err();
    assert!(matches!(gone, SnapshotError::Unknown(..)), "{gone}");
    assert_eq!(volumes.byte(0), 2, "it does not need them");
    let left = fs::read_dir(volumes.folder(0)).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["two"]);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshots_on_xfs() {
    snapshots_are_made_listed_renamed_removed_and_rolled_back_to("mkfs.xfs");
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn snapshots_on_btrfs() {
    snapshots_are_made_listed_renamed_removed_and_rolled_back_to("mkfs.btrfs");
}

#[needs(loop_device, mount, program("mkfs.ext4"))]
#[test]
fn file_system_that_cannot_share_blocks_is_told_and_nothing_is_left() {
    let volumes = Volumes::on("mkfs.ext4");
    let refused = snapshot::create(&volumes.all, "one", 0).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, SnapshotError::CannotShare(..)), "{text}");
    assert!(text.contains("XFS, Btrfs or bcachefs"), "{text}");
    assert!(volumes.names(0).is_empty());
    for which in 0..2 {
        assert_eq!(fs::read_dir(volumes.folder(which)).unwrap().count(), 0);
    }
}

/// A writer puts a number into one volume, and then into the other. So at each instant the
/// first is the same or one more.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshot_of_two_volumes_that_are_written_is_of_one_instant() {
    let volumes = Volumes::on("mkfs.xfs");
    let (ends, begun, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let all = &volumes.all;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut files = Real::open(Choice::Epoll);
            for number in 1_u64.. {
                if ends.load(Ordering::Acquire) {
                    break;
                }
                begun.store(number, Ordering::Release);
                let bytes = number.to_le_bytes().repeat(BLOCK / 8);
                for volume in all {
                    write(&**volume, &mut files, 0, &bytes, false).unwrap();
                }
                done.store(number, Ordering::Release);
            }
        });
        for at in 0..20 {
            let name = format!("s{at}");
            let before = done.load(Ordering::Acquire);
            snapshot::create(all, &name, at).unwrap();
            let after = begun.load(Ordering::Acquire);
            let [a, b] = [0, 1].map(|which| {
                let bytes = fs::read(volumes.data(which, &name)).unwrap();
                let numbers = bytes[..BLOCK].chunks(8);
                let numbers: Vec<_> = numbers
                    .map(|number| u64::from_le_bytes(number.try_into().unwrap()))
                    .collect();
                assert!(numbers.iter().all(|one| *one == numbers[0]), "half a write");
                numbers[0]
            });
            assert!(a == b || a == b + 1, "{a} and {b} at one instant");
            assert!(b >= before && a <= after, "{before} {b} {a} {after}");
        }
        ends.store(true, Ordering::Release);
    });
    assert!(begun.into_inner() > 20, "it was written meanwhile");
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn damaged_snapshot_is_told_and_not_rolled_back_to() {
    let mut volumes = Volumes::on("mkfs.xfs");
    volumes.fill(1);
    for name in ["record", "gone", "short", "other", "pipe", "whole"] {
        snapshot::create(&volumes.all[..1], name, 7).unwrap();
    }
    let place = |name: &str| volumes.folder(0).join(name);
    let record = place("record").join("record");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("4096", "4095").replace("512", "511")).unwrap();
    fs::remove_file(place("gone").join("data")).unwrap();
    let pipe = place("pipe").join("data");
    fs::remove_file(&pipe).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let short = fs::OpenOptions::new()
        .write(true)
        .open(place("short").join("data"));
    short.unwrap().set_len(SIZE / 2).unwrap();
    // That of another volume.
    snapshot::create(&volumes.all[1..], "other", 7).unwrap();
    let theirs = volumes.folder(1).join("other").join("record");
    fs::copy(theirs, place("other").join("record")).unwrap();
    let found = snapshot::list(&*volumes.all[0]).unwrap();
    let why = |name: &str| {
        let found = found.iter().find(|found| found.name == name);
        found.unwrap().damage.clone().unwrap_or_default()
    };
    for (name, part) in [
        ("record", "its checksum does not match"),
        ("gone", "its data cannot be read"),
        ("short", "its data has 2097152 bytes, not 4194304"),
        ("other", "it is of the volume with UUID"),
        ("pipe", "is no regular file"),
    ] {
        assert!(why(name).contains(part), "{name}: {}", why(name));
        let refused = snapshot::rollback(&volumes.all[..1], name).unwrap_err();
        assert!(matches!(refused, SnapshotError::Damaged(..)), "{refused}");
    }
    assert_eq!(why("whole"), "");
    volumes.fill(2);
    snapshot::rollback(&volumes.all[..1], "whole").unwrap();
    assert_eq!(volumes.byte(0), 1);
    for name in ["record", "gone", "short", "other", "pipe"] {
        snapshot::remove(&*volumes.all[0], name).unwrap();
    }
    assert_eq!(volumes.names(0), ["whole"]);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn volume_of_another_size_is_not_rolled_back() {
    let volumes = Volumes::on("mkfs.xfs");
    snapshot::create(&volumes.all[..1], "one", 7).unwrap();
    volumes.all[0].resize(2 * SIZE, false).unwrap();
    let refused = snapshot::rollback(&volumes.all[..1], "one").unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("weft set volume a size=4194304"), "{text}");
    volumes.all[0].resize(SIZE, true).unwrap();
    snapshot::rollback(&volumes.all[..1], "one").unwrap();
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn remains_of_a_crash_go_when_the_volume_is_opened() {
    let mut volumes = Volumes::on("mkfs.xfs");
    snapshot::create(&volumes.all[..1], "one", 7).unwrap();
    let folder = volumes.folder(0);
    for left in [".half.new", ".old.gone"] {
        fs::create_dir(folder.join(left)).unwrap();
        fs::write(folder.join(left).join("data"), "x").unwrap();
    }
    assert_eq!(volumes.names(0), ["one"]);
    volumes.reopen();
    let left = fs::read_dir(&folder).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["one"]);
    // A rollback that has begun, too.
    volumes.fill(9);
    fs::write(folder.join(".rollback"), "one").unwrap();
    let busy = snapshot::remove(&*volumes.all[0], "one").unwrap_err();
    assert!(matches!(busy, SnapshotError::Pending(..)), "{busy}");
    volumes.reopen();
    assert_eq!(volumes.byte(0), 0);
    assert!(!folder.join(".rollback").exists());
    snapshot::remove(&*volumes.all[0], "one").unwrap();
    // One that cannot be brought to its end.
    volumes.all.clear();
    fs::write(folder.join(".rollback"), "one").unwrap();
    let told = problem_of(&spec_of(&volumes.paths[0])).to_string();
    assert!(told.contains("remove the file `.rollback`"), "{told}");
    // Another file has the name of their folder.
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "notes").unwrap();
    volumes.reopen();
    assert!(volumes.names(0).is_empty());
    let told = snapshot::create(&volumes.all[..1], "one", 7).unwrap_err();
    assert!(told.to_string().contains("is a file"), "{told}");
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshot_is_a_volume_of_which_nothing_is_changed() {
    let mut volumes = Volumes::on("mkfs.xfs");
    volumes.fill(1);
    let mark = Io::MarkUnreadable {
        offset: 0,
        len: 512,
    };
    run(&*volumes.all[0], &mut volumes.files, mark).unwrap();
    snapshot::create(&volumes.all[..1], "one", 7).unwrap();
    volumes.fill(2);
    write(&*volumes.all[0], &mut volumes.files, 0, &[3; 512], false).unwrap();
    let place = volumes.folder(0).join("one");
    let shown = Spec::new("shown", Kind::snapshot(&place), 0, 512);
    let examined = store::examine(&shown).unwrap();
    let volume = open(&shown).unwrap();
    assert_eq!(examined.info, *volume.info());
    assert_eq!(volume.size_bytes(), SIZE);
    assert!(volume.info().read_only);
    assert_ne!(volume.info().uuid, volumes.all[0].info().uuid);
    let held = read(&*volume, &mut volumes.files, SIZE / 4, BLOCK).unwrap();
    assert!(held.iter().all(|&byte| byte == 1));
    let marked = read(&*volume, &mut volumes.files, 0, 512);
    assert_eq!(marked, Err(Error::Unreadable), "as it was then");
    let written = write(&*volume, &mut volumes.files, 0, &[0; 512], false);
    assert_eq!(written, Err(Error::ReadOnly));

    for refused in [
        snapshot::remove(&*volumes.all[0], "one").unwrap_err(),
        snapshot::rename(&*volumes.all[0], "one", "two").unwrap_err(),
    ] {
        assert!(matches!(refused, SnapshotError::Served(..)), "{refused}");
    }
    let uuid = volume.info().uuid;
    drop(volume);
    snapshot::rename(&*volumes.all[0], "one", "two").unwrap();
    let told = problem_of(&shown);
    assert!(matches!(told, Problem::NoSnapshot(_)), "{told:?}");
    let shown = |block_bytes, size_bytes| {
        let place = volumes.folder(0).join("two");
        Spec::new("shown", Kind::snapshot(place), size_bytes, block_bytes)
    };
    assert_eq!(open_again(&shown(512, SIZE)).info().uuid, uuid);
    let told = [shown(4096, 0), shown(512, 2 * SIZE)].map(|spec| problem_of(&spec));
    assert!(matches!(told[0], Problem::SnapshotBlock { .. }), "{told:?}");
    assert!(matches!(told[1], Problem::FileSize { .. }), "{told:?}");
    fs::write(volumes.folder(0).join("two").join("record"), "damaged").unwrap();
    let told = problem_of(&shown(512, 0));
    assert!(matches!(told, Problem::DamagedSnapshot(..)), "{told:?}");
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn clone_is_a_volume_of_its_own() {
    let mut volumes = Volumes::on("mkfs.xfs");
    volumes.fill(1);
    let mark = Io::MarkUnreadable {
        offset: 0,
        len: 512,
    };
    run(&*volumes.all[0], &mut volumes.files, mark).unwrap();
    snapshot::create(&volumes.all[..1], "one", 7).unwrap();
    let path = snapshot::beside(&*volumes.all[0], "c").unwrap();
    assert_eq!(path, volumes.paths[0].with_file_name("c"));
    let cloned = snapshot::clone_to(&*volumes.all[0], "one", &path).unwrap();
    assert_eq!((cloned.size_bytes, cloned.block_bytes), (SIZE, 512));
    let again = snapshot::clone_to(&*volumes.all[0], "one", &path).unwrap_err();
    assert!(again.to_string().contains("exists"), "{again}");
    // The state of another volume, whose file is away.
    let state = path.with_file_name("d.weft");
    fs::write(&state, "its state").unwrap();
    for (to, part) in [
        (path.with_file_name("d"), "d.weft exists"),
        (volumes._folder.path().join("e"), "on the same file system"),
    ] {
        let told = snapshot::clone_to(&*volumes.all[0], "one", &to).unwrap_err();
        assert!(told.to_string().contains(part), "{told}");
        assert!(!to.exists());
    }
    assert_eq!(fs::read_to_string(&state).unwrap(), "its state");
    snapshot::remove(&*volumes.all[0], "one").unwrap();

    let clone = open(&spec_of(&path)).unwrap();
    assert_ne!(clone.info().uuid, volumes.all[0].info().uuid);
    let held = read(&*clone, &mut volumes.files, SIZE / 4, BLOCK).unwrap();
    assert!(held.iter().all(|&byte| byte == 1));
    let marked = read(&*clone, &mut volumes.files, 0, 512);
    assert_eq!(marked, Err(Error::Unreadable), "as it was then");
    write(&*clone, &mut volumes.files, SIZE / 4, &[5; BLOCK], true).unwrap();
    assert_eq!(volumes.byte(0), 1, "its blocks are its own");
    // Clones of clones.
    for depth in 0..20 {
        let last = if depth == 0 {
            "c".to_owned()
        } else {
            format!("c{depth}")
        };
        let last = open(&spec_of(&path.with_file_name(last)));
        let last = match depth {
            0 => clone.clone(),
            _ => last.unwrap(),
        };
        snapshot::create(slice::from_ref(&last), "s", 1).unwrap();
        let next = path.with_file_name(format!("c{}", depth + 1));
        snapshot::clone_to(&*last, "s", &next).unwrap();
        snapshot::remove(&*last, "s").unwrap();
    }
    let last = open(&spec_of(&path.with_file_name("c20"))).unwrap();
    let held = read(&*last, &mut volumes.files, SIZE / 4, BLOCK).unwrap();
    assert!(held.iter().all(|&byte| byte == 5));
}

/// A mirror would read what it never held from that leg.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn volume_that_is_rolled_back_is_no_leg_of_its_mirror_any_more() {
    let mut volumes = Volumes::on("mkfs.xfs");
    snapshot::create(&volumes.all[..1], "one", 7).unwrap();
    let state = volumes.paths[0].with_file_name("m.state");
    let mut spec = Spec::new("m", Kind::mirror(&["a", "b"]), SIZE, 512);
    spec.state = Some(state);
    let missing = |mirror: &Arc<dyn Volume>| {
        let status = mirror.as_mirror().unwrap().status();
        Vec::from_iter(status.legs.iter().map(|leg| leg.missing_bytes))
    };
    let mirror = open_over(&spec, volumes.all.clone()).unwrap();
    assert_eq!(missing(&mirror), [0, 0]);
    drop(mirror);
    volumes.reopen();
    let mirror = open_over(&spec, volumes.all.clone()).unwrap();
    assert_eq!(missing(&mirror), [0, 0], "what was closed is opened again");
    drop(mirror);
    snapshot::rollback(&volumes.all[..1], "one").unwrap();
    let mirror = open_over(&spec, volumes.all.clone()).unwrap();
    assert_eq!(missing(&mirror), [SIZE, 0]);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn interrupted_rollback_of_a_volume_that_is_enlarged_meanwhile_is_brought_to_its_end() {
    let mut volumes = Volumes::on("mkfs.xfs");
    let path = volumes.paths[0].with_file_name("c");
    // No whole number of the file system's blocks.
    let spec = |size_bytes| Spec {
        size_bytes,
        ..spec_of(&path)
    };
    let volume = open(&spec(SIZE + 512)).unwrap();
    snapshot::create(slice::from_ref(&volume), "one", 7).unwrap();
    write(&*volume, &mut volumes.files, SIZE, &[9; 512], true).unwrap();
    drop(volume);
    fs::write(path.with_extension("snapshots").join(".rollback"), "one").unwrap();
    let volume = open_again(&spec(2 * SIZE));
    assert_eq!(volume.size_bytes(), 2 * SIZE);
    let held = fs::read(&path).unwrap();
    assert!(held.len() as u64 == 2 * SIZE && held.iter().all(|&byte| byte == 0));
}

#[test]
fn names_and_kinds_that_cannot_be_are_told() {
    let ram = open(&spec(store::Kind::RAM, SIZE, 512)).unwrap();
    for name in ["", ".", "..", ".x", "a/b", "a b", "ä", &"x".repeat(65)] {
        let refused = snapshot::create(slice::from_ref(&ram), name, 0).unwrap_err();
        assert!(matches!(refused, SnapshotError::Name(_)), "{refused}");
    }
    let refused = snapshot::create(slice::from_ref(&ram), "a-1_b.c", 0).unwrap_err();
    assert!(matches!(refused, SnapshotError::Kind(..)), "{refused}");
    let mut encrypted = spec(store::Kind::RAM, SIZE, 512);
    encrypted.encryption = Some(EncryptionSettings {
        key: Err("it is elsewhere".to_owned()),
        former: None,
    });
    let volume = open(&encrypted).unwrap();
    for refused in [
        snapshot::create(&[volume], "a", 0).unwrap_err(),
        snapshot::expect_possible(&encrypted).unwrap_err(),
    ] {
        assert!(matches!(refused, SnapshotError::Encrypted(_)), "{refused}");
    }
    assert!(snapshot::list(&*ram).unwrap().is_empty());
}
