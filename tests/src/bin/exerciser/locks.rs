//! Byte-range locks of several owners, on two mounts where there are two: what
//! may be had and what may not follows from a model. `fcntl` locks by open file
//! description, and `flock` on a file of its own.

use crate::{ExerciserRun, Wrong, expect, must};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Owners on each mount.
const OWNERS: usize = 2;

/// Bytes with locks of their own; the last stands for all behind it.
const BYTES: usize = 48;

/// How long a lock that is free may take to be given to its waiter.
const GIVEN_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    Nothing,
    Read,
    Write,
}

impl LockKind {
    fn conflicts(self, other: LockKind) -> bool {
        use LockKind::{Nothing, Write};
        self != Nothing && other != Nothing && (self == Write || other == Write)
    }

    fn number(self) -> i16 {
        match self {
            LockKind::Nothing => libc::F_UNLCK as i16,
            LockKind::Read => libc::F_RDLCK as i16,
            LockKind::Write => libc::F_WRLCK as i16,
        }
    }
}

/// One owner: an open file for ranges, one for the whole.
struct RangeOwner {
    dir: PathBuf,
    ranges: File,
    held: [LockKind; BYTES],
    whole: File,
    held_whole: LockKind,
}

fn open(path: &Path) -> Result<File, Wrong> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    must(path, options.open(path))
}

impl RangeOwner {
    fn new(dir: &Path) -> Result<RangeOwner, Wrong> {
        Ok(RangeOwner {
            dir: dir.to_path_buf(),
            ranges: open(&dir.join("ranges"))?,
            held: [LockKind::Nothing; BYTES],
            whole: open(&dir.join("whole"))?,
            held_whole: LockKind::Nothing,
        })
    }
}

/// A lock of the bytes `from..to`.
pub fn range_of(kind: LockKind, from: usize, to: usize) -> libc::flock {
    libc::flock {
        l_type: kind.number(),
        l_whence: libc::SEEK_SET as i16,
        l_start: from as i64,
        l_len: (to - from) as i64,
        l_pid: 0,
    }
}

fn range(kind: LockKind, from: usize, to: usize) -> libc::flock {
    let mut range = range_of(kind, from, to);
    if to == BYTES {
        // To the end of all offsets where the last byte is in it.
        range.l_len = 0;
    }
    range
}

pub fn run(run: &mut ExerciserRun, steps: u32) -> Result<(), Wrong> {
    let dirs = [Some(run.dir.clone()), run.other.clone()];
    let mut owners = Vec::new();
    for dir in dirs.iter().flatten() {
        for _ in 0..OWNERS {
            owners.push(RangeOwner::new(dir)?);
        }
    }
    for _ in 0..steps {
        let which = run.number(owners.len());
        match run.number(12) {
            0 => close(run, &mut owners, which)?,
            1 => ask(run, &owners, which)?,
            2 | 3 => whole(run, &mut owners, which)?,
            _ => set(run, &mut owners, which)?,
        }
    }
    wait(run, &mut owners)
}

fn place(run: &mut ExerciserRun) -> (usize, usize) {
    let from = run.number(BYTES);
    (from, from + 1 + run.number(BYTES - from))
}

fn is_free(owners: &[RangeOwner], which: usize, kind: LockKind, from: usize, to: usize) -> bool {
    let others = owners.iter().enumerate().filter(|(n, _)| *n != which);
    let mut held = others.flat_map(|(_, owner)| &owner.held[from..to]);
    !held.any(|held| held.conflicts(kind))
}

fn set(run: &mut ExerciserRun, owners: &mut [RangeOwner], which: usize) -> Result<(), Wrong> {
    let (from, to) = place(run);
    let kind = [LockKind::Nothing, LockKind::Read, LockKind::Write][run.number(3)];
    run.tell("lock", (which, kind, from, to));
    let may = is_free(owners, which, kind, from, to);
    let asked = range(kind, from, to);
    match fcntl(&owners[which].ranges, FcntlArg::F_OFD_SETLK(&asked)) {
        Ok(_) if may => owners[which].held[from..to].fill(kind),
        Err(Errno::EAGAIN | Errno::EACCES) if !may => {}
        found => {
            return Err(format!(
                "{which} {kind:?} {from}..{to}: {found:?}, free: {may}"
            ));
        }
    }
    Ok(())
}

fn ask(run: &mut ExerciserRun, owners: &[RangeOwner], which: usize) -> Result<(), Wrong> {
    let (from, to) = place(run);
    run.tell("ask", (which, from, to));
    let may = is_free(owners, which, LockKind::Write, from, to);
    let mut asked = range(LockKind::Write, from, to);
    must(
        "F_OFD_GETLK",
        fcntl(&owners[which].ranges, FcntlArg::F_OFD_GETLK(&mut asked)),
    )?;
    expect("F_OFD_GETLK", asked.l_type == libc::F_UNLCK as i16, may)
}

fn whole(run: &mut ExerciserRun, owners: &mut [RangeOwner], which: usize) -> Result<(), Wrong> {
    let kind = [LockKind::Nothing, LockKind::Read, LockKind::Write][run.number(3)];
    run.tell("flock", (which, kind));
    let how = match kind {
        LockKind::Nothing => FlockOperation::NonBlockingUnlock,
        LockKind::Read => FlockOperation::NonBlockingLockShared,
        LockKind::Write => FlockOperation::NonBlockingLockExclusive,
    };
    let mut others = owners.iter().enumerate().filter(|(n, _)| *n != which);
    let may = !others.any(|(_, owner)| owner.held_whole.conflicts(kind));
    match rustix::fs::flock(&owners[which].whole, how) {
        Ok(()) if may => owners[which].held_whole = kind,
        Err(rustix::io::Errno::AGAIN) if !may => {
            // What was held is let go before the other kind is asked for, and
            // is not taken back (flock(2)) by every kernel: make it certain.
            let freed = rustix::fs::flock(&owners[which].whole, FlockOperation::Unlock);
            must("flock", freed)?;
            owners[which].held_whole = LockKind::Nothing;
        }
        found => return Err(format!("flock {which} {kind:?}: {found:?}, free: {may}")),
    }
    Ok(())
}

/// What an owner held is free when its file is closed.
fn close(run: &mut ExerciserRun, owners: &mut [RangeOwner], which: usize) -> Result<(), Wrong> {
    run.tell("close", which);
    owners[which] = RangeOwner::new(&owners[which].dir.clone())?;
    Ok(())
}

/// An owner that waits for a lock gets it when it becomes free, and not before.
fn wait(run: &mut ExerciserRun, owners: &mut [RangeOwner]) -> Result<(), Wrong> {
    let dirs: Vec<PathBuf> = owners.iter().map(|owner| owner.dir.clone()).collect();
    for (owner, dir) in owners.iter_mut().zip(&dirs) {
        *owner = RangeOwner::new(dir)?;
    }
    for (first, second) in [(0, owners.len() - 1), (owners.len() - 1, 0)] {
        run.tell("wait", (first, second));
        let all = range(LockKind::Write, 0, BYTES);
        must(
            "lock",
            fcntl(&owners[first].ranges, FcntlArg::F_OFD_SETLK(&all)),
        )?;
        let waits = must("dup", owners[second].ranges.try_clone())?;
        let (given, gets) = mpsc::channel();
        thread::spawn(move || {
            let some = range(LockKind::Write, 3, 9);
            let _ = given.send(fcntl(&waits, FcntlArg::F_OFD_SETLKW(&some)));
        });
        if let Ok(early) = gets.recv_timeout(Duration::from_millis(300)) {
            return Err(format!("given while another has it: {early:?}"));
        }
        let none = range(LockKind::Nothing, 0, BYTES);
        must(
            "unlock",
            fcntl(&owners[first].ranges, FcntlArg::F_OFD_SETLK(&none)),
        )?;
        must("wait", must("wait", gets.recv_timeout(GIVEN_MAX))?)?;
        must(
            "unlock",
            fcntl(&owners[second].ranges, FcntlArg::F_OFD_SETLK(&none)),
        )?;
    }
    Ok(())
}
