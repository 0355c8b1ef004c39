//! Blocks that a volume takes from another by reference: their files share them from then on,
//! and nothing is read or written. Where that cannot be, nothing is done, and the caller copies.
//!
//! It is one step to all other I/O of both: the range of the destination is locked alone and
//! that of the source together with its readers, as by the I/Os of a copy, until all is done. The
//! locks of two volumes are taken in the order of their UUIDs, as snapshots take them, so that
//! no two callers wait for each other in a circle.
//!
//! The kernel shares whole blocks of the file system. What lies before and behind them in the
//! range is copied by the thread that shares.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reactor::{DiskFile, FileIo, Token};
use rustix::fs::fdatasync;
use rustix::io::{Errno, pread, pwrite};
use uuid::Uuid;

use crate::kept::{Saving, aside};
use crate::locks::{Caller, Claim, Locks, StripePlace};
use crate::lost::Lost;
use crate::task::Parked;
use crate::{Error, Progress, Range, Task, Volume, Watch};

/// Less than this is copied: that is as quick, and leaves the file in fewer pieces.
pub const SHARE_BYTES_MIN: u64 = 64 << 10;
/// Volumes of which a volume remembers that it cannot share with them at most.
const REFUSED_MAX: usize = 64;

/// What a volume needs to share blocks with another.
pub struct Sharing {
    pub(crate) file: Arc<DiskFile>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) lost: Arc<Lost>,
    /// Of a block of the file system.
    block_bytes: u64,
    /// Volumes from which the kernel has refused to share blocks with this one.
    refused: Mutex<BTreeSet<Uuid>>,
}

impl Sharing {
    /// Of a regular file; `None` where its file system does not tell the size of its blocks.
    pub(crate) fn of(
        file: &Arc<DiskFile>,
        locks: &Arc<Locks>,
        lost: &Arc<Lost>,
    ) -> Option<Sharing> {
        let below = rustix::fs::fstatvfs(&**file).ok()?;
        (below.f_frsize > 0).then(|| Sharing {
            file: Arc::clone(file),
            locks: Arc::clone(locks),
            lost: Arc::clone(lost),
            block_bytes: below.f_frsize,
            refused: Mutex::default(),
        })
    }

    fn refuses(&self, from: Uuid) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.contains(&from)
    }

    fn refuse(&self, from: Uuid) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        refused.insert(from);
    }
}

/// A range that a volume is to take from another by reference.
pub struct ReferenceCopy {
    from: (Arc<dyn Volume>, u64),
    to: (Arc<dyn Volume>, u64),
    len: u64,
    /// Done only when it would survive a crash of the machine.
    durable: bool,
    /// Done only while this has not changed.
    unchanged: Option<Arc<Watch>>,
    is_done: AtomicBool,
}

impl ReferenceCopy {
    /// `len` bytes from an offset of a volume to one of another, or of the same; `None` where
    /// that is known to be impossible, or of no use. With `unchanged` it is done only while
    /// that has not changed.
    pub fn new(
        from: (&Arc<dyn Volume>, u64),
        to: (&Arc<dyn Volume>, u64),
        len: u64,
        durable: bool,
        unchanged: Option<&Arc<Watch>>,
    ) -> Option<Arc<ReferenceCopy>> {
        let (source, goal) = (from.0.sharing()?, to.0.sharing()?);
        let block = source.block_bytes.max(goal.block_bytes);
        let overlaps = Arc::ptr_eq(from.0, to.0) && from.1.abs_diff(to.1) < len;
        let is_fit = len >= SHARE_BYTES_MIN.max(2 * block)
            && from.1 % block == to.1 % block
            && !overlaps
            && !goal.refuses(from.0.info().uuid);
        is_fit.then(|| {
            Arc::new(ReferenceCopy {
                from: (Arc::clone(from.0), from.1),
                to: (Arc::clone(to.0), to.1),
                len,
                durable,
                unchanged: unchanged.cloned(),
                is_done: AtomicBool::new(false),
            })
        })
    }

    /// First byte and number of bytes that are replaced.
    pub fn extent(&self) -> (u64, u64) {
        (self.to.1, self.len)
    }

    /// Whether it has been done. Where it has ended without an error and has not, nothing has
    /// changed.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Begins it. It goes on by [`Volume::resume`] of the destination.
    pub fn start(self: &Arc<ReferenceCopy>, files: &mut dyn FileIo, token: Token) -> Progress {
        let task = ReferenceCopyTask {
            claims: self.claims(),
            share: Arc::clone(self),
            held: Vec::new(),
            wait: None,
            is_canceled: false,
        };
        task.take_locks(files, token)
    }

    /// What is locked, the last one first.
    fn claims(&self) -> Vec<(Arc<Locks>, Claim)> {
        let locks = |volume: &Arc<dyn Volume>| Arc::clone(&sharing(volume).locks);
        let ((from, from_at), (to, to_at)) = (&self.from, &self.to);
        if Arc::ptr_eq(from, to) {
            let start = *from_at.min(to_at);
            let len = from_at.abs_diff(*to_at) + self.len;
            return vec![(locks(to), Claim::new(start, len, true))];
        }
        let mut claims = vec![(locks(to), Claim::new(*to_at, self.len, true))];
        if !from.info().read_only {
            claims.push((locks(from), Claim::new(*from_at, self.len, false)));
        }
        if from.info().uuid > to.info().uuid {
            claims.reverse();
        }
        claims
    }

    /// Whether a copy would be taken now: else it is left to one to say what is wrong.
    fn is_allowed(&self) -> bool {
        let ((from, from_at), (to, to_at)) = (&self.from, &self.to);
        let readable = from.base().check_readable(*from_at, self.len).is_ok();
        let is_safe = !self.durable || !sharing(to).lost.is_some();
        let has_changed = self.unchanged.as_ref().is_some_and(|w| w.has_changed());
        readable
            && is_safe
            && !has_changed
            && from.base().holds(*from_at, self.len)
            && to.base().check_write(*to_at, self.len).is_ok()
    }

    /// Shares what can be shared and copies the rest, under the locks of both. Blocks.
    fn work(&self) -> Result<(), Errno> {
        let (from, to) = (sharing(&self.from.0), sharing(&self.to.0));
        if !self.is_allowed() {
            return Ok(());
        }
        let block = from.block_bytes.max(to.block_bytes);
        let (start, end) = (self.from.1, self.from.1 + self.len);
        let (first, last) = (start.next_multiple_of(block), end / block * block);
        let edges = [(start, first), (last, end)].map(|(at, end)| edge(from, at, end - at));
        let [Ok(head), Ok(tail)] = edges else {
            return Ok(());
        };
        let goal = |at: u64| self.to.1 + (at - start);
        let source = (from.file.as_fd(), first);
        let cloned = reactor::clone_range(source, (to.file.as_fd(), goal(first)), last - first);
        if let Err(error) = cloned {
            return match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                errno @ (Errno::IO | Errno::NOSPC | Errno::DQUOT | Errno::ROFS) => Err(errno),
                // It may work next time.
                Errno::INTR | Errno::AGAIN | Errno::NOMEM => Ok(()),
                _ => {
                    to.refuse(self.from.0.info().uuid);
                    Ok(())
                }
            };
        }
        write_all(&to.file, &head, self.to.1)?;
        write_all(&to.file, &tail, goal(last))?;
        self.settle(to)?;
        self.to
            .0
            .base()
            .counters
            .count_share(self.len, last - first);
        self.is_done.store(true, Ordering::Release);
        Ok(())
    }

    /// What has been replaced is made durable if it must be, and is readable.
    fn settle(&self, to: &Sharing) -> Result<(), Errno> {
        let (base, (offset, len)) = (self.to.0.base(), self.extent());
        let unmarks = base.check_readable(offset, len).is_err();
        if self.durable || unmarks {
            fdatasync(&*to.file).inspect_err(|errno| to.lost.keep(*errno))?;
            // A sync beside this one may have been told of a loss that is ours.
            to.lost.errno()?;
        }
        if unmarks {
            base.heal(offset, len);
            base.kept().save(Range { offset, len })?;
        }
        Ok(())
    }
}

fn sharing(volume: &Arc<dyn Volume>) -> &Sharing {
    volume.sharing().expect("it was asked before")
}

/// What is left of the range at one of its ends.
fn edge(from: &Sharing, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    while done < bytes.len() {
        match pread(&*from.file, &mut bytes[done..], at + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

fn write_all(file: &DiskFile, bytes: &[u8], at: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match pwrite(file, &bytes[done..], at + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A [`ReferenceCopy`] that is under way.
pub(crate) struct ReferenceCopyTask {
    share: Arc<ReferenceCopy>,
    /// What is still to be locked, the last one first.
    claims: Vec<(Arc<Locks>, Claim)>,
    held: Vec<(Arc<Locks>, Claim)>,
    wait: Option<ReferenceCopyWait>,
    is_canceled: bool,
}

enum ReferenceCopyWait {
    /// For a range, of the last of the claims.
    Range(Box<StripePlace>),
    /// For the thread that does it.
    Work(Arc<Saving>),
}

impl std::fmt::Debug for ReferenceCopyTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReferenceCopyTask({:?})", self.share.extent())
    }
}

impl Drop for ReferenceCopyTask {
    fn drop(&mut self) {
        for (locks, claim) in self.held.drain(..) {
            locks.release(&claim);
        }
    }
}

impl Parked for ReferenceCopyTask {
    fn is_waiting(&self) -> bool {
        matches!(self.wait, Some(ReferenceCopyWait::Range(_)))
    }

    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {
        self.is_canceled = true;
    }
}

impl ReferenceCopyTask {
    fn take_locks(mut self, files: &mut dyn FileIo, token: Token) -> Progress {
        while let Some((locks, claim)) = self.claims.last().cloned() {
            if let Err(place) = locks.acquire(claim, || Caller::Ticket(files.ticket(token))) {
                self.wait = Some(ReferenceCopyWait::Range(place));
                return Progress::Pending(Task::parked(self));
            }
            self.held.extend(self.claims.pop());
        }
        let share = Arc::clone(&self.share);
        // One at a time of a destination: the kernel locks its file for it.
        let subject = Arc::as_ptr(&sharing(&share.to.0).locks).addr();
        let work = aside(subject, move || share.work(), files.ticket(token));
        self.wait = Some(ReferenceCopyWait::Work(work));
        Progress::Pending(Task::parked(self))
    }

    /// What it waited for has come.
    pub(crate) fn go_on(
        mut self,
        is_failed: bool,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let place = match self.wait.take().expect("it waits for something") {
            ReferenceCopyWait::Work(work) => {
                return self.finish(work.result().map_err(|errno| match errno {
                    Errno::NOSPC | Errno::DQUOT => Error::OutOfSpace(errno),
                    Errno::ROFS => Error::ReadOnly,
                    _ => Error::WriteFailed(errno),
                }));
            }
            ReferenceCopyWait::Range(place) => place,
        };
        if self.is_canceled || is_failed {
            drop(place);
            return self.finish(Err(Error::WriteFailed(Errno::CANCELED)));
        }
        match place.go_on(|| Caller::Ticket(files.ticket(token))) {
            Ok(()) => {
                self.held.extend(self.claims.pop());
                self.take_locks(files, token)
            }
            Err(place) => {
                self.wait = Some(ReferenceCopyWait::Range(place));
                Progress::Pending(Task::parked(self))
            }
        }
    }

    fn finish(self, result: Result<(), Error>) -> Progress {
        if let Err(error) = &result {
            self.share.to.0.base().counters.count_error(error);
        }
        Progress::Done(result)
    }
}
