//! File operations of the epoll driver: threads, a few for each disk, so that a
//! slow one stalls neither the loop nor the others. They are made as work comes
//! and end when there has been none for a while.

use crate::cpu;
use crate::descriptors::DiskFile;
use crate::shares::{Disk, DiskShares};
use crate::sys;
use crate::types::{FallocateMode, Token};
use crate::waker::Waker;
use mem::BufRange;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Operations under way on one disk at most, each of which has a thread.
const SHARE_MAX: usize = 8;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(1);

/// What a thread does, waiting as long as it takes.
pub(super) trait Perform: Send + 'static {
    fn perform(&self) -> io::Result<u32>;
}

/// Memory of a buf range. Where it lies is looked up before a thread has it: a
/// range of a region that is gone panics there.
pub(super) struct Memory {
    /// An address, which only the kernel gets to see.
    at: usize,
    len: usize,
}

impl From<BufRange> for Memory {
    fn from(range: BufRange) -> Memory {
        Memory {
            at: range.as_ptr() as usize,
            len: range.len() as usize,
        }
    }
}

/// What to do with a file.
pub(super) enum FileCall {
    Read(Memory, u64),
    Write(Memory, u64, bool),
    SyncData,
    Fallocate(FallocateMode, u64, u64),
}

/// Work on one file; keeps it open.
pub(super) struct FileWork {
    pub(super) file: Arc<DiskFile>,
    pub(super) work: FileCall,
}

impl Perform for FileWork {
    fn perform(&self) -> io::Result<u32> {
        loop {
            match self.call() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl FileWork {
    fn call(&self) -> io::Result<u32> {
        let (memory, offset, flags) = match &self.work {
            FileCall::Read(to, offset) => (to, *offset, None),
            FileCall::Write(from, offset, durable) => {
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                (from, *offset, Some(flags))
            }
            FileCall::SyncData => {
                return Ok(rustix::fs::fdatasync(&*self.file).map(|()| 0)?);
            }
            FileCall::Fallocate(mode, offset, len) => {
                let fallocated = rustix::fs::fallocate(&*self.file, mode.flags(), *offset, *len);
                return Ok(fallocated.map(|()| 0)?);
            }
        };
        let piece = libc::iovec {
            iov_base: memory.at as *mut _,
            iov_len: memory.len,
        };
        let (fd, offset) = (self.file.raw(), offset as i64);
        // SAFETY: the memory stays mapped whatever becomes of its region, and callers keep
        // its bytes as they are until the completion.
        let bytes = unsafe {
            match flags {
                None => libc::pread64(fd, piece.iov_base, piece.iov_len, offset),
                Some(flags) => libc::pwritev2(fd, &raw const piece, 1, offset, flags),
            }
        };
        Ok(sys::check(bytes)? as u32)
    }
}

/// The end of an operation.
pub(super) type FinishedWork = (Token, io::Result<u32>);
/// The same, or a panic.
type WorkResult = thread::Result<io::Result<u32>>;

struct FileJob<W> {
    token: Token,
    disk: Disk,
    work: W,
}

struct WorkQueue<W> {
    shares: DiskShares<FileJob<W>>,
    /// What a thread takes next: fewer than there are shares of disks.
    jobs: VecDeque<FileJob<W>>,
    threads: usize,
    stop: bool,
}

struct PoolShared<W> {
    queue: Mutex<WorkQueue<W>>,
    work: Condvar,
    ended: Condvar,
    done: Mutex<Vec<(Token, WorkResult)>>,
    has_done: AtomicBool,
    waker: Waker,
}

impl<W: Perform> PoolShared<W> {
    fn queue(&self) -> MutexGuard<'_, WorkQueue<W>> {
        self.queue.lock().expect("nothing panics under this lock")
    }

    fn done(&self) -> MutexGuard<'_, Vec<(Token, WorkResult)>> {
        self.done.lock().expect("nothing panics under this lock")
    }

    fn serve(&self) {
        // The reactor that started us is pinned; its processor is not for us.
        cpu::unpin();
        while let Some(FileJob { token, disk, work }) = self.next() {
            let result = catch_unwind(AssertUnwindSafe(|| work.perform()));
            drop(work);
            let mut queue = self.queue();
            if let Some(job) = queue.shares.ended(disk) {
                queue.jobs.push_back(job);
            }
            drop(queue);
            self.done().push((token, result));
            self.has_done.store(true, Ordering::Release);
            self.waker.wake();
        }
        self.ended.notify_one();
    }

    /// Waits for work; nothing at the end, and when there has been none for long:
    /// the thread does not count any more then.
    fn next(&self) -> Option<FileJob<W>> {
        let mut queue = self.queue();
        let is_idle = |queue: &mut WorkQueue<W>| !queue.stop && queue.jobs.is_empty();
        let waited = self.work.wait_timeout_while(queue, IDLE, is_idle);
        queue = waited.expect("nothing panics under it").0;
        let job = match queue.stop {
            true => None,
            false => queue.jobs.pop_front(),
        };
        if job.is_none() {
            queue.threads -= 1;
        }
        job
    }
}

/// The threads; started as work comes.
pub(super) struct Workers<W: Perform> {
    shared: Arc<PoolShared<W>>,
}

impl<W: Perform> Workers<W> {
    pub(super) fn new(waker: Waker) -> Workers<W> {
        Workers {
            shared: Arc::new(PoolShared {
                queue: Mutex::new(WorkQueue {
                    shares: DiskShares::new(SHARE_MAX),
                    jobs: VecDeque::new(),
                    threads: 0,
                    stop: false,
                }),
                work: Condvar::new(),
                ended: Condvar::new(),
                done: Mutex::new(Vec::new()),
                has_done: AtomicBool::new(false),
                waker,
            }),
        }
    }

    pub(super) fn start(&self, work: W, disk: Disk, host: u64, token: Token) {
        let mut queue = self.shared.queue();
        let job = FileJob { token, disk, work };
        let Some(job) = queue.shares.offer(disk, host, token, job) else {
            return;
        };
        queue.jobs.push_back(job);
        // A thread that has just been made, or woken, is not at its work yet.
        if queue.threads < queue.shares.under_way() {
            self.spawn(&mut queue);
        }
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Ends what has not started; a thread that is at it cannot be stopped.
    pub(super) fn cancel(&self, token: Token) {
        let mut queue = self.shared.queue();
        let mut canceled = queue.shares.cancel(token);
        for job in std::mem::take(&mut queue.jobs) {
            if job.token != token {
                queue.jobs.push_back(job);
                continue;
            }
            if let Some(next) = queue.shares.ended(job.disk) {
                queue.jobs.push_back(next);
            }
            canceled.push(job);
        }
        drop(queue);
        if !canceled.is_empty() {
            let end = |_| (token, Ok(Err(Errno::CANCELED.into())));
            self.shared.done().extend(canceled.iter().map(end));
            self.shared.has_done.store(true, Ordering::Release);
            self.shared.waker.wake();
        }
    }

    fn spawn(&self, queue: &mut WorkQueue<W>) {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name("weft-file".into());
        match builder.spawn(move || shared.serve()) {
            Ok(_) => queue.threads += 1,
            // With no thread at all the work would never be done.
            Err(error) if queue.threads == 0 => panic!("no thread for file work: {error}"),
            Err(_) => {}
        }
    }

    /// Moves what has ended to the end of `into`. A panic of a thread goes on here:
    /// its reactor fails with it.
    #[inline]
    pub(super) fn take(&self, into: &mut Vec<FinishedWork>) {
        if self.shared.has_done.load(Ordering::Acquire) {
            let mut done = self.shared.done();
            self.shared.has_done.store(false, Ordering::Relaxed);
            for (token, outcome) in done.drain(..) {
                into.push((token, outcome.unwrap_or_else(|panic| resume_unwind(panic))));
            }
        }
    }

    /// Cancels what has not started and waits, within a bound, for what has;
    /// the number of operations that a disk still holds back then.
    pub(super) fn end(&self) -> usize {
        let give_up = Instant::now() + Duration::from_nanos(sys::DROP_WAIT_NS);
        let mut queue = self.shared.queue();
        queue.stop = true;
        queue.jobs.clear();
        queue.shares.clear();
        self.shared.work.notify_all();
        while queue.threads > 0 {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.ended.wait_timeout(queue, left);
            queue = waited.expect("nothing panics under it").0;
        }
        queue.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waker::Sleeper;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Says that it has begun, and ends when the other end of its channel goes.
    struct Hangs(Mutex<Receiver<()>>, Sender<()>);

    impl Perform for Hangs {
        fn perform(&self) -> io::Result<u32> {
            let _ = self.1.send(());
            let _ = self.0.lock().unwrap().recv();
            Ok(0)
        }
    }

    struct Panics;

    impl Perform for Panics {
        fn perform(&self) -> io::Result<u32> {
            panic!("the work is wrong")
        }
    }

    #[test]
    #[should_panic(expected = "the work is wrong")]
    fn panic_of_a_thread_goes_on_where_its_work_is_waited_for() {
        let sleeper = Sleeper::new(true).unwrap();
        let workers = Workers::new(sleeper.waker());
        workers.start(Panics, 1, 0, 0);
        wait_for(&workers, 1);
    }

    /// Counts the processors that it may use.
    struct Processors;

    impl Perform for Processors {
        fn perform(&self) -> io::Result<u32> {
            Ok(cpu::affinity().len() as u32)
        }
    }

    fn wait_for<W: Perform>(workers: &Workers<W>, count: usize) -> Vec<FinishedWork> {
        let mut done = Vec::new();
        let give_up = Instant::now() + Duration::from_secs(10);
        while done.len() < count {
            assert!(Instant::now() < give_up, "{done:?}");
            thread::sleep(Duration::from_millis(1));
            workers.take(&mut done);
        }
        done
    }

    #[test]
    fn the_end_does_not_wait_for_a_hung_disk() {
        let sleeper = Sleeper::new(true).unwrap();
        let workers = Workers::new(sleeper.waker());
        let (begins, begun) = channel();
        let mut releases = Vec::new();
        for token in 0..SHARE_MAX as u64 + 3 {
            let (release, hold) = channel();
            releases.push(release);
            workers.start(Hangs(Mutex::new(hold), begins.clone()), 1, 0, token);
        }
        // One ends, so that one more starts.
        drop(releases.remove(0));
        assert_eq!(wait_for(&workers, 1)[0].0, 0);
        (0..=SHARE_MAX).for_each(|_| begun.recv().unwrap());
        assert_eq!(workers.end(), SHARE_MAX);
        // The threads are not lost for ever, and start nothing more.
        drop(releases);
        assert_eq!(workers.end(), 0);
        let mut done = Vec::new();
        workers.take(&mut done);
        assert_eq!(done.len(), SHARE_MAX);
    }

    impl Perform for Box<dyn Perform + Sync> {
        fn perform(&self) -> io::Result<u32> {
            (**self).perform()
        }
    }

    /// Work on a disk that answers.
    struct Quick;

    impl Perform for Quick {
        fn perform(&self) -> io::Result<u32> {
            Ok(0)
        }
    }

    #[test]
    fn a_disk_that_hangs_leaves_threads_to_others_which_end_when_idle() {
        let sleeper = Sleeper::new(true).unwrap();
        let workers: Workers<Box<dyn Perform + Sync>> = Workers::new(sleeper.waker());
        let (begins, begun) = channel();
        let mut releases = Vec::new();
        for token in 0..96 {
            let (release, hold) = channel();
            releases.push(release);
            let hangs = Hangs(Mutex::new(hold), begins.clone());
            workers.start(Box::new(hangs), 1, 0, token);
        }
        for token in 0..96 {
            workers.start(Box::new(Quick), 2, 0, 100 + token);
        }
        let done = wait_for(&workers, 96);
        assert!(done.iter().all(|(token, _)| *token >= 100), "{done:?}");
        assert_eq!(begun.try_iter().count(), SHARE_MAX);
        assert!(workers.shared.queue().threads <= 2 * SHARE_MAX);
        while workers.shared.queue().threads > SHARE_MAX {
            thread::sleep(Duration::from_millis(10));
        }
        drop(releases);
        wait_for(&workers, 96);
        while workers.shared.queue().threads > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        workers.start(Box::new(Quick), 2, 0, 0);
        wait_for(&workers, 1);
        assert_eq!(workers.end(), 0);
    }

    #[test]
    fn work_of_a_host_begins_in_its_turn_behind_thousands_of_another() {
        let sleeper = Sleeper::new(true).unwrap();
        let workers: Workers<Box<dyn Perform + Sync>> = Workers::new(sleeper.waker());
        let mut releases = Vec::new();
        for token in 0..SHARE_MAX as u64 {
            let (release, hold) = channel();
            releases.push(release);
            let hangs = Hangs(Mutex::new(hold), channel().0);
            workers.start(Box::new(hangs), 1, 1, token);
        }
        for token in 100..5100 {
            workers.start(Box::new(Quick), 1, 1, token);
        }
        workers.start(Box::new(Quick), 1, 2, 50);
        // One place: what takes it ends in the order that it begins.
        releases.remove(0);
        let done = wait_for(&workers, 5002);
        let tokens: Vec<Token> = done.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens[..4], [0, 100, 50, 101]);
        drop(releases);
        wait_for(&workers, SHARE_MAX - 1);
        assert_eq!(workers.end(), 0);
    }

    #[test]
    fn job_that_waits_for_a_thread_ends_when_it_is_canceled() {
        let sleeper = Sleeper::new(true).unwrap();
        let workers = Workers::new(sleeper.waker());
        let mut releases = Vec::new();
        let (started, waiting) = (SHARE_MAX as u64, SHARE_MAX as u64 + 2);
        for token in 0..=waiting {
            let (release, hold) = channel();
            releases.push(release);
            workers.start(Hangs(Mutex::new(hold), channel().0), 1, 0, token);
        }
        while !workers.shared.queue().jobs.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        workers.cancel(waiting);
        workers.cancel(0);
        assert!(!sleeper.try_sleep(), "the cancel did not wake");
        let (token, result) = wait_for(&workers, 1).remove(0);
        assert_eq!(token, waiting);
        assert_eq!(
            Errno::from_io_error(&result.unwrap_err()),
            Some(Errno::CANCELED)
        );
        drop(releases);
        let mut ended: Vec<Token> = wait_for(&workers, waiting as usize)
            .into_iter()
            .map(|(token, result)| {
                result.unwrap();
                token
            })
            .collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..started + 2).collect::<Vec<_>>());
        assert_eq!(workers.end(), 0);
    }

    #[test]
    fn threads_are_not_pinned_with_their_reactor() {
        let all = cpu::affinity();
        let pinned = thread::spawn(move || {
            cpu::pin_to_cpu(all[0]).unwrap();
            let sleeper = Sleeper::new(true).unwrap();
            let workers = Workers::new(sleeper.waker());
            workers.start(Processors, 1, 0, 1);
            let counted = wait_for(&workers, 1).remove(0).1;
            assert_eq!(counted.unwrap(), all.len() as u32);
            assert_eq!(cpu::affinity(), [all[0]], "the reactor lost its place");
            assert_eq!(workers.end(), 0);
        });
        pinned.join().unwrap();
    }
}
