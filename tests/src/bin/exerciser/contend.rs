//! What several clients on kernels of their own do to one file at the same time:
//! each counts up under locks of byte ranges, so that a count that is less in the
//! end shows that two of them had one lock at the same time.

use crate::locks::{LockKind, range_of};
use crate::{ExerciserRun, Wrong, expect, must};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// Counters of 8 bytes each; all lie in one page.
const COUNTERS: usize = 6;
const COUNTER_BYTES: usize = 8;

/// How long a client may wait until the others let it have a lock.
const GIVEN_MAX: Duration = Duration::from_secs(60);

/// Between two tries of a lock that is not waited for in the kernel.
const PAUSE: Duration = Duration::from_millis(3);

/// Counts up in `DIR/counters`, which is shared with others; the line `added
/// COUNT refused COUNT` says by how much in all, and how often a lock was not
/// free.
pub fn run(run: &mut ExerciserRun, steps: u32) -> Result<(), Wrong> {
    let path = run.dir.join("counters");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = must(&path, options.open(&path))?;
    let (mut added, mut refused) = (0, 0);
    for _ in 0..steps {
        let from = run.number(COUNTERS);
        let to = from + 1 + run.number(COUNTERS - from);
        let kind = [LockKind::Read, LockKind::Write, LockKind::Write][run.number(3)];
        let waits = run.number(4) == 0;
        run.tell("contend", (kind, from, to, waits));
        refused += lock(&file, kind, (from, to), waits)?;
        let found = read(&file, from, to)?;
        match kind {
            LockKind::Write => {
                let more: Vec<u8> = found.iter().flat_map(|n| (n + 1).to_le_bytes()).collect();
                let at = (from * COUNTER_BYTES) as u64;
                must("write", file.write_all_at(&more, at))?;
                added += found.len();
            }
            _ => {
                // Past this kernel's memory: what the server has must stand still.
                thread::sleep(PAUSE);
                must("forget", forget(&file))?;
                expect("read under a lock", read(&file, from, to)?, found)?;
            }
        }
        let none = range_of(LockKind::Nothing, from * COUNTER_BYTES, to * COUNTER_BYTES);
        must("unlock", fcntl(&file, FcntlArg::F_OFD_SETLK(&none)))?;
    }
    println!("added {added} refused {refused}");
    Ok(())
}

/// Takes a lock, in the kernel's queue or by asking again; how often it was
/// refused.
fn lock(file: &File, kind: LockKind, at: (usize, usize), waits: bool) -> Result<u32, Wrong> {
    let asked = range_of(kind, at.0 * COUNTER_BYTES, at.1 * COUNTER_BYTES);
    let end = Instant::now() + GIVEN_MAX;
    let mut refused = 0;
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&asked)) {
            Ok(_) => return Ok(refused),
            Err(Errno::EAGAIN | Errno::EACCES) if Instant::now() < end => refused += 1,
            Err(error) => return Err(format!("lock: {error} after {refused} refusals")),
        }
        if waits {
            must("wait", fcntl(file, FcntlArg::F_OFD_SETLKW(&asked)))?;
            return Ok(refused);
        }
        thread::sleep(PAUSE);
    }
}

fn read(file: &File, from: usize, to: usize) -> Result<Vec<u64>, Wrong> {
    let mut bytes = vec![0; (to - from) * COUNTER_BYTES];
    let mut len = 0;
    // The file is as long as the highest counter that was used.
    while len < bytes.len() {
        let at = (from * COUNTER_BYTES + len) as u64;
        match must("read", file.read_at(&mut bytes[len..], at))? {
            0 => break,
            more => len += more,
        }
    }
    let words = bytes.as_chunks::<COUNTER_BYTES>().0;
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Has the kernel forget what it holds of a file.
fn forget(file: &File) -> rustix::io::Result<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)
}
