//! Blocks that a volume takes from another by reference, on file systems that can share them and
//! on one that cannot.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::*;
use needs::needs;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use reactor::Choice;
use store::{Error, Io, LEG_BITS, Progress, ReferenceCopy, SHARE_BYTES_MIN, Spec, Volume, open};
use testkit::Mounted;

const SIZE: u64 = 2 << 20;
const BLOCK: u64 = 4096;

/// A file system with two volumes on it.
struct Volumes {
    all: [Arc<dyn Volume>; 2],
    files: Real,
    // Last: files on it are closed first.
    mounted: Mounted,
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
    fn on(mkfs: &str, choice: Choice) -> Volumes {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Mounted::made_by(mkfs, folder.path());
        let all = ["a", "b"].map(|name| open(&spec_of(&mounted.path().join(name))).unwrap());
        Volumes {
            all,
            files: Real::open(choice),
            mounted,
            _folder: folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.path().join(name)
    }

    /// Whether the volumes have shared; `None` where that was known to be of no use.
    fn share(
        &mut self,
        (from, from_at): (usize, u64),
        (to, to_at): (usize, u64),
        len: u64,
    ) -> Option<Result<bool, Error>> {
        let (from, to) = (self.all[from].clone(), self.all[to].clone());
        let share = ReferenceCopy::new((&from, from_at), (&to, to_at), len, true, None)?;
        let mut progress = share.start(self.files.io(), token_of(7));
        loop {
            match progress {
                Progress::Done(result) => return Some(result.map(|()| share.is_done())),
                Progress::Pending(task) => {
                    let (token, result) = self.files.completion();
                    assert_eq!(token >> LEG_BITS, 7);
                    progress = to.resume(task, result, self.files.io(), token);
                }
            }
        }
    }

    fn read(&mut self, which: usize) -> Vec<u8> {
        read(&*self.all[which], &mut self.files, 0, SIZE as usize).unwrap()
    }

    fn write(&mut self, which: usize, at: u64, bytes: &[u8]) {
        write(&*self.all[which], &mut self.files, at, bytes, false).unwrap();
    }
}

/// Ranges that are copied between two volumes, and writes beside them, against a model.
fn ranges_are_shared_as_they_would_be_copied(mkfs: &str, choice: Choice) {
    let mut volumes = Volumes::on(mkfs, choice);
    let mut model = [vec![0; SIZE as usize], vec![0; SIZE as usize]];
    let mut runner = TestRunner::deterministic();
    let sectors = SIZE / 512;
    let step = (
        0..2usize,
        0..2usize,
        0..sectors,
        0..sectors,
        1..1200u64,
        any::<u8>(),
    );
    let (mut shared, mut asked) = (0, 0);
    for number in 0..300 {
        let tree = step.new_tree(&mut runner).unwrap();
        let (from, to, from_at, to_at, len, byte) = tree.current();
        let (from_at, to_at, len) = (from_at * 512, to_at * 512, len * 512);
        // Most are congruent.
        let to_at = if byte % 4 == 0 {
            to_at
        } else {
            to_at / BLOCK * BLOCK + from_at % BLOCK
        };
        let len = len.min(SIZE - from_at).min(SIZE - to_at);
        if len == 0 {
            continue;
        }
        if number % 3 == 0 {
            volumes.write(to, to_at, &vec![byte; len as usize]);
            model[to][to_at as usize..][..len as usize].fill(byte);
        }
        let before = volumes.all[to].stats();
        let Some(result) = volumes.share((from, from_at), (to, to_at), len) else {
            let apart = from != to || from_at.abs_diff(to_at) >= len;
            let is_fit = from_at % BLOCK == to_at % BLOCK && len >= SHARE_BYTES_MIN;
            assert!(!(apart && is_fit), "step {number}: not tried");
            continue;
        };
        assert_eq!(result, Ok(true), "step {number}");
        let part = model[from][from_at as usize..][..len as usize].to_vec();
        model[to][to_at as usize..][..len as usize].copy_from_slice(&part);
        let after = volumes.all[to].stats();
        let counted = after.shared_bytes - before.shared_bytes;
        assert!(counted > 0 && counted <= len && counted.is_multiple_of(BLOCK));
        assert!(len - counted < 2 * BLOCK, "all but the ends is shared");
        assert_eq!(after.write_bytes - before.write_bytes, len);
        assert_eq!(after.reads, before.reads, "nothing is read");
        (shared, asked) = (shared + counted, asked + 1);
        if number % 10 == 0 {
            assert!(
                volumes.read(0) == model[0] && volumes.read(1) == model[1],
                "{number}"
            );
        }
    }
    assert!(volumes.read(0) == model[0] && volumes.read(1) == model[1]);
    assert!(asked > 50 && shared > 1 << 20, "{asked} of {shared} bytes");
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn ranges_are_shared_on_xfs() {
    for choice in [Choice::Uring, Choice::Epoll] {
        ranges_are_shared_as_they_would_be_copied("mkfs.xfs", choice);
    }
}

#[needs(loop_device, mount, program("mkfs.btrfs"))]
#[test]
fn ranges_are_shared_on_btrfs() {
    ranges_are_shared_as_they_would_be_copied("mkfs.btrfs", Choice::Epoll);
}

#[needs(loop_device, mount, program("mkfs.ext4"))]
#[test]
fn file_system_that_cannot_share_is_asked_once() {
    let mut volumes = Volumes::on("mkfs.ext4", Choice::Epoll);
    volumes.write(0, 0, &[1; 128 << 10]);
    assert_eq!(volumes.share((0, 0), (1, 0), 128 << 10), Some(Ok(false)));
    assert_eq!(volumes.share((0, 0), (1, 0), 128 << 10), None);
    // What lies elsewhere is another matter.
    assert_eq!(
        volumes.share((1, 0), (0, 1 << 20), 128 << 10),
        Some(Ok(false))
    );
    assert_eq!(volumes.all[1].stats().shared_bytes, 0);
    assert_eq!(volumes.all[1].stats().errors.total(), 0);
    assert!(volumes.read(1).iter().all(|&byte| byte == 0));
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn volumes_on_two_file_systems_do_not_share() {
    let mut volumes = Volumes::on("mkfs.xfs", Choice::Epoll);
    let other = tempfile::tempdir().unwrap();
    let mounted = Mounted::made_by("mkfs.xfs", other.path());
    volumes.all[1] = open(&spec_of(&mounted.path().join("c"))).unwrap();
    volumes.write(0, 0, &[1; 128 << 10]);
    assert_eq!(volumes.share((0, 0), (1, 0), 128 << 10), Some(Ok(false)));
    assert_eq!(volumes.share((0, 0), (1, 0), 128 << 10), None);
    assert_eq!(
        volumes.share((0, 0), (0, 1 << 20), 128 << 10),
        Some(Ok(true))
    );
    drop(volumes);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn range_that_may_not_be_copied_is_not_shared() {
    let mut volumes = Volumes::on("mkfs.xfs", Choice::Epoll);
    volumes.write(0, 0, &[1; 256 << 10]);
    let mark = |offset, len| Io::MarkUnreadable { offset, len };
    run(&*volumes.all[0], &mut volumes.files, mark(4096, 512)).unwrap();
    assert_eq!(volumes.share((0, 0), (1, 0), 128 << 10), Some(Ok(false)));
    // What is replaced can be read again.
    run(&*volumes.all[1], &mut volumes.files, mark(4096, 512)).unwrap();
    assert_eq!(
        volumes.share((0, 128 << 10), (1, 0), 128 << 10),
        Some(Ok(true))
    );
    assert!(volumes.read(1)[..128 << 10].iter().all(|&byte| byte == 1));
    // Behind the end.
    assert_eq!(
        volumes.share((0, SIZE - (64 << 10)), (1, 0), 128 << 10),
        Some(Ok(false))
    );
    volumes.all[1].state().protect_permanently().unwrap();
    assert_eq!(
        volumes.share((0, 128 << 10), (1, 0), 128 << 10),
        Some(Ok(false))
    );

    let path = volumes.path("whole");
    let whole = Spec {
        preallocate: true,
        ..spec_of(&path)
    };
    volumes.all[1] = open(&whole).unwrap();
    assert_eq!(
        volumes.share((0, 128 << 10), (1, 0), 128 << 10),
        None,
        "its space is its own"
    );
    assert_eq!(volumes.share((1, 0), (0, 0), 128 << 10), None);
}

/// A read that is under way holds the destination back, and what comes later waits for it.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn sharing_waits_for_its_ranges_and_gives_them_back() {
    let mut volumes = Volumes::on("mkfs.xfs", Choice::Epoll);
    volumes.write(0, 0, &[1; 128 << 10]);
    let [from, to] = volumes.all.clone();
    let buf = buffer(4096);
    let read = to.start(Io::Read { offset: 0, buf }, volumes.files.io(), token_of(1));
    let Progress::Pending(read) = read else {
        panic!("a file is read by the driver")
    };
    let share = ReferenceCopy::new((&from, 0), (&to, 0), 128 << 10, false, None).unwrap();
    let Progress::Pending(waiting) = share.start(volumes.files.io(), token_of(2)) else {
        panic!("it waits")
    };
    assert!(waiting.is_waiting());
    // It may be taken back, with what it holds already.
    drop(waiting);
    let (token, result) = volumes.files.completion();
    assert_eq!(token, token_of(1));
    let read = to.resume(read, result, volumes.files.io(), token);
    assert!(matches!(read, Progress::Done(Ok(()))));
    volumes.write(0, 0, &[2; 128 << 10]);
    volumes.write(1, 0, &[3; 4096]);
    assert_eq!(volumes.share((0, 0), (1, 0), 128 << 10), Some(Ok(true)));
    assert!(volumes.read(1)[..128 << 10].iter().all(|&byte| byte == 2));
}
