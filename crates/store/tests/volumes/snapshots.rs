//! Snapshots where the power is cut at every step of what makes them and rolls back to them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::slice;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use reactor::DiskFile;
use store::snapshot::{self, SnapshotData, SnapshotError, SnapshotMedium};
use store::{Errno, Error, Io, Kind, Medium, Range, Spec, State, Volume, over_file};
use uuid::Uuid;

use crate::common::*;
use crate::fake::Fake;

const SIZE: usize = 64 << 10;
/// What is marked as unreadable.
const MARKED: Range = Range {
    offset: 4096,
    len: 512,
};

/// What outlasts a power cut.
#[derive(Default)]
struct Kept {
    snapshots: BTreeMap<String, (Vec<u8>, String)>,
    half: BTreeMap<String, Vec<u8>>,
    pending: Option<String>,
    state: Option<Vec<u8>>,
    /// So many steps are done, and then no more.
    steps_left: usize,
    /// The step at which the power is cut is done, and not answered.
    does_last: bool,
    /// The disk does not answer where room for a snapshot is made: that waits for this.
    hangs: Option<Receiver<()>>,
}

/// Everything below a volume.
#[derive(Clone)]
struct Below {
    uuid: Uuid,
    file: Arc<File>,
    kept: Arc<Mutex<Kept>>,
}

impl Below {
    fn new(number: u128) -> Below {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(SIZE as u64).unwrap();
        let below = Below {
            uuid: Uuid::from_u128(number),
            file,
            kept: Arc::default(),
        };
        below.power_on();
        below
    }

    fn power_on(&self) {
        self.kept.lock().unwrap().steps_left = usize::MAX;
    }

    /// Does a step, if the power lasts.
    fn step<T>(&self, deed: impl FnOnce(&mut Kept) -> T) -> io::Result<T> {
        let mut kept = self.kept.lock().unwrap();
        match kept.steps_left {
            0 => Err(Errno::IO.into()),
            1 => {
                kept.steps_left = 0;
                if kept.does_last {
                    deed(&mut kept);
                }
                Err(Errno::IO.into())
            }
            _ => {
                kept.steps_left -= 1;
                Ok(deed(&mut kept))
            }
        }
    }

    fn open(&self) -> Arc<dyn Volume> {
        let uuid = self.uuid;
        let spec = Spec {
            uuid: Some(uuid),
            ..spec(Kind::file("disk"), SIZE as u64, 512)
        };
        let file: DiskFile = self.file.try_clone().unwrap().into();
        let state = State::open(Box::new(self.clone()), uuid).unwrap();
        let snapshots = Some(Box::new(self.clone()) as Box<dyn SnapshotMedium>);
        over_file(&spec, Arc::new(file), state, snapshots).unwrap()
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}

impl Medium for Below {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        self.step(|kept| kept.state.clone())
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        self.step(|kept| kept.state = Some(bytes.to_vec()))
    }

    fn path(&self) -> &Path {
        Path::new("disk.weft")
    }
}

fn there<T>(found: Option<T>) -> io::Result<T> {
    found.ok_or_else(|| Errno::NOENT.into())
}

impl SnapshotMedium for Below {
    fn names(&self) -> io::Result<Vec<String>> {
        self.step(|kept| kept.snapshots.keys().cloned().collect())
    }

    fn record(&self, name: &str) -> io::Result<Vec<u8>> {
        let found = self.step(|kept| kept.snapshots.get(name).cloned())?;
        Ok(there(found)?.1.into_bytes())
    }

    fn data(&self, name: &str) -> io::Result<SnapshotData> {
        let found = self.step(|kept| kept.snapshots.get(name).cloned())?;
        Ok(SnapshotData {
            bytes: there(found)?.0.len() as u64,
            unique_bytes: None,
        })
    }

    fn prepare(&self, name: &str) -> io::Result<()> {
        let hangs = self.kept.lock().unwrap().hangs.take();
        if let Some(end) = hangs {
            end.recv().unwrap();
        }
        self.step(|kept| drop(kept.half.insert(name.to_owned(), Vec::new())))
    }

    fn take(&self, name: &str) -> io::Result<()> {
        let content = self.content();
        self.step(|kept| drop(kept.half.insert(name.to_owned(), content)))
    }

    fn keep(&self, name: &str, record: &str) -> io::Result<()> {
        self.step(|kept| {
            let data = kept.half.remove(name).expect("it was taken");
            let whole = (data, record.to_owned());
            kept.snapshots.insert(name.to_owned(), whole);
        })
    }

    fn discard(&self, name: &str) {
        let _ = self.step(|kept| (kept.half.remove(name), kept.snapshots.remove(name)));
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step(|kept| drop(kept.snapshots.remove(name)))
    }

    fn rename(&self, name: &str, to: &str) -> io::Result<()> {
        self.step(|kept| {
            let found = kept.snapshots.remove(name).expect("it is there");
            kept.snapshots.insert(to.to_owned(), found);
        })
    }

    fn clone_to(&self, _: &str, _: &Path, _: &[Range]) -> io::Result<()> {
        unreachable!("no test clones it")
    }

    fn pending(&self) -> io::Result<Option<String>> {
        self.step(|kept| kept.pending.clone())
    }

    fn set_pending(&self, name: Option<&str>) -> io::Result<()> {
        self.step(|kept| kept.pending = name.map(str::to_owned))
    }

    /// In two halves.
    fn restore(&self, name: &str) -> io::Result<()> {
        let found = self.step(|kept| kept.snapshots.get(name).cloned())?;
        let (data, _) = there(found)?;
        for half in [0..SIZE / 2, SIZE / 2..SIZE] {
            let at = half.start as u64;
            let written = self.step(|_| self.file.write_all_at(&data[half], at));
            written.and_then(|written| written)?;
        }
        Ok(())
    }

    fn clean(&self) {
        let _ = self.step(|kept| kept.half.clear());
    }
}

fn fill(volume: &dyn Volume, byte: u8) {
    write(volume, &mut Fake::default(), 0, &[byte; SIZE], true).unwrap();
}

fn mark(volume: &dyn Volume) {
    let Range { offset, len } = MARKED;
    let io = Io::MarkUnreadable { offset, len };
    run(volume, &mut Fake::default(), io).unwrap();
}

/// A volume that has held 1 when `base` was made, with a mark, and holds 2 without one.
fn with_base(number: u128) -> (Below, Arc<dyn Volume>) {
    let below = Below::new(number);
    let volume = below.open();
    fill(&*volume, 1);
    mark(&*volume);
    snapshot::create(slice::from_ref(&volume), "base", 1).unwrap();
    fill(&*volume, 2);
    assert!(volume.unreadable(0, u64::MAX, 9).is_empty());
    (below, volume)
}

type Deed = fn(&[Arc<dyn Volume>]) -> Result<(), SnapshotError>;

/// Does it with the power cut at each step, and looks at what is there after the next start:
/// `(was it done, what the volume holds, its snapshots)`.
fn cut_at_each_step(deed: Deed, look: impl Fn(bool, u8, &[&str])) {
    for does_last in [false, true] {
        for steps in 1.. {
            let (below, volume) = with_base(7);
            {
                let mut kept = below.kept.lock().unwrap();
                (kept.steps_left, kept.does_last) = (steps, does_last);
            }
            let done = deed(&[volume]).is_ok();
            let is_cut = below.kept.lock().unwrap().steps_left == 0;
            below.power_on();
            let volume = below.open();
            let content = below.content();
            assert!(content.iter().all(|&byte| byte == content[0]), "a mixture");
            let marks = volume.unreadable(0, u64::MAX, 9);
            let awaited: &[Range] = if content[0] == 1 { &[MARKED] } else { &[] };
            assert_eq!(marks, awaited, "what is marked goes with the content");
            let all = snapshot::list(&*volume).unwrap();
            for one in &all {
                assert_eq!(one.damage, None, "{}", one.name);
                let kept = below.kept.lock().unwrap();
                let (data, _) = &kept.snapshots[&one.name];
                let byte = if one.taken_unix_ms == 1 { 1 } else { 2 };
                assert!(data.iter().all(|&found| found == byte), "{}", one.name);
            }
            assert!(below.kept.lock().unwrap().half.is_empty());
            assert!(below.kept.lock().unwrap().pending.is_none());
            let names: Vec<_> = all.iter().map(|one| &*one.name).collect();
            look(done, content[0], &names);
            if !is_cut {
                assert!(done && steps > 3, "{steps} steps");
                break;
            }
        }
    }
}

#[test]
fn snapshot_is_there_whole_or_not_at_all_after_a_power_cut() {
    cut_at_each_step(
        |volumes| snapshot::create(volumes, "s", 2),
        |done, byte, names| {
            assert_eq!(byte, 2, "the volume is as it was");
            assert!(names == ["base", "s"] || names == ["base"] && !done);
        },
    );
}

#[test]
fn rollback_is_done_whole_or_not_at_all_after_a_power_cut() {
    cut_at_each_step(
        |volumes| snapshot::rollback(volumes, "base"),
        |done, byte, names| {
            assert!(byte == 1 || byte == 2 && !done, "{byte}");
            assert_eq!(names, ["base"]);
        },
    );
}

#[test]
fn removal_and_new_name_are_there_or_not_after_a_power_cut() {
    cut_at_each_step(
        |volumes| snapshot::remove(&*volumes[0], "base"),
        |done, _, names| assert!(names.is_empty() || names == ["base"] && !done),
    );
    cut_at_each_step(
        |volumes| snapshot::rename(&*volumes[0], "base", "first"),
        |done, _, names| assert!(names == ["first"] || names == ["base"] && !done),
    );
}

/// A rollback that fails in its middle may be done again.
#[test]
fn rollback_that_has_failed_is_told_and_done_again() {
    let (below, volume) = with_base(7);
    let fails = |steps| {
        below.kept.lock().unwrap().steps_left = steps;
        let refused = snapshot::rollback(slice::from_ref(&volume), "base");
        below.power_on();
        refused.unwrap_err()
    };
    let refused = (1..).map(fails).find(|refused| {
        let is_in_the_middle = matches!(refused, SnapshotError::HalfRolledBack(..));
        is_in_the_middle && below.content()[0] != below.content()[SIZE - 1]
    });
    let text = refused.expect("some").to_string();
    assert!(text.contains("something of both"), "{text}");
    // No host is given something of both, and nothing more is said to be durable.
    let held = read(&*volume, &mut Fake::default(), 0, 512);
    assert_eq!(held, Err(Error::Unreadable));
    let flushed = run(&*volume, &mut Fake::default(), Io::Flush);
    assert!(flushed.is_err(), "{flushed:?}");
    let refused = snapshot::create(slice::from_ref(&volume), "s", 2).unwrap_err();
    assert!(matches!(refused, SnapshotError::Lost(_)), "{refused}");
    let refused = snapshot::remove(&*volume, "base").unwrap_err();
    assert!(matches!(refused, SnapshotError::Pending(..)), "{refused}");
    snapshot::rollback(slice::from_ref(&volume), "base").unwrap();
    assert!(below.content().iter().all(|&byte| byte == 1));
    assert_eq!(volume.unreadable(0, u64::MAX, 9), [MARKED]);
    assert_eq!(
        read(&*volume, &mut Fake::default(), 0, 512),
        Ok(vec![1; 512])
    );
    run(&*volume, &mut Fake::default(), Io::Flush).unwrap();
}

/// What is written to the others after that is not rolled back by the next start, nor is a volume
/// of which nothing has changed.
#[test]
fn rollback_that_fails_on_one_volume_is_done_on_the_others() {
    for does_last in [false, true] {
        for steps in 1.. {
            let (failing, one) = with_base(7);
            let (other, two) = with_base(8);
            {
                let mut kept = failing.kept.lock().unwrap();
                (kept.steps_left, kept.does_last) = (steps, does_last);
            }
            let is_pending = |below: &Below| below.kept.lock().unwrap().pending.is_some();
            match snapshot::rollback(&[one, two], "base") {
                Ok(()) => break,
                Err(SnapshotError::HalfRolledBack(..)) => {}
                Err(_) => {
                    assert!(other.content().iter().all(|&byte| byte == 2), "{steps}");
                    assert!(!is_pending(&failing), "{steps} steps");
                }
            }
            let content = other.content();
            assert!(content.iter().all(|&byte| byte == content[0]), "{steps}");
            assert!(!is_pending(&other), "{steps} steps");
        }
    }
}

#[test]
fn disk_that_hangs_while_a_snapshot_is_made_holds_up_no_change_of_size() {
    let (below, volume) = with_base(7);
    let (end, hangs) = mpsc::channel();
    below.kept.lock().unwrap().hangs = Some(hangs);
    thread::scope(|scope| {
        let made = scope.spawn(|| snapshot::create(slice::from_ref(&volume), "s", 2));
        while below.kept.lock().unwrap().hangs.is_some() {
            thread::yield_now();
        }
        let resized = scope.spawn(|| volume.resize(2 * SIZE as u64, false));
        let mut looks = 0..1000;
        while !resized.is_finished() && looks.next().is_some() {
            thread::sleep(Duration::from_millis(10));
        }
        let was_first = resized.is_finished() && !made.is_finished();
        end.send(()).unwrap();
        assert!(was_first, "it waited for the snapshot");
        resized.join().unwrap().unwrap();
        made.join().unwrap().unwrap();
    });
    let found = snapshot::list(&*volume).unwrap();
    assert_eq!(found[1].size_bytes, 2 * SIZE as u64);
}
