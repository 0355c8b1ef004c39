//! File operations of the epoll driver: a few threads, so that a slow disk
//! never stalls the loop.

use crate::types::{FallocateMode, Token};
use crate::waker::Waker;
use mem::BufRange;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

/// Threads at most; each waits for one operation at a time.
const WORKERS_MAX: usize = 8;

/// What to do with a file.
pub(super) enum Work {
    Read(BufRange, u64),
    Write(BufRange, u64, bool),
    SyncData,
    Fallocate(FallocateMode, u64, u64),
}

/// An operation to do.
pub(super) struct Job {
    pub(super) file: Arc<OwnedFd>,
    pub(super) work: Work,
    pub(super) token: Token,
}

/// The end of one.
pub(super) type Done = (Token, io::Result<u32>);

struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    stop: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<Vec<Done>>,
    has_done: AtomicBool,
    waker: Waker,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics under this lock")
    }

    fn done(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().expect("nothing panics under this lock")
    }

    fn serve(&self) {
        loop {
            let mut queue = self.queue();
            queue.idle += 1;
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.stop {
                    return;
                }
                queue = self.work.wait(queue).expect("nothing panics under it");
            };
            queue.idle -= 1;
            drop(queue);
            let result = job.perform();
            self.done().push((job.token, result));
            self.has_done.store(true, Ordering::Release);
            self.waker.wake();
        }
    }
}

impl Job {
    fn perform(&self) -> io::Result<u32> {
        loop {
            let rc = self.call();
            if rc >= 0 {
                return Ok(rc as u32);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    fn call(&self) -> isize {
        let fd = self.file.as_raw_fd();
        // SAFETY: the descriptor is kept open by the job; regions stay mapped,
        // and callers keep the range's memory as it is until the completion.
        unsafe {
            match self.work {
                Work::Read(buf, offset) => {
                    let len = buf.len() as usize;
                    libc::pread64(fd, buf.as_ptr().cast(), len, offset as i64)
                }
                Work::Write(buf, offset, durable) => {
                    let piece = libc::iovec {
                        iov_base: buf.as_ptr().cast(),
                        iov_len: buf.len() as usize,
                    };
                    let flags = if durable { libc::RWF_DSYNC } else { 0 };
                    libc::pwritev2(fd, &piece, 1, offset as i64, flags)
                }
                Work::SyncData => libc::fdatasync(fd) as isize,
                Work::Fallocate(mode, offset, len) => {
                    libc::fallocate64(fd, mode.flags(), offset as i64, len as i64) as isize
                }
            }
        }
    }
}

/// The threads; started as work comes.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(super) fn new(waker: Waker) -> Workers {
        Workers {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue {
                    jobs: VecDeque::new(),
                    idle: 0,
                    stop: false,
                }),
                work: Condvar::new(),
                done: Mutex::new(Vec::new()),
                has_done: AtomicBool::new(false),
                waker,
            }),
            threads: Vec::new(),
        }
    }

    pub(super) fn start(&mut self, job: Job) {
        let mut queue = self.shared.queue();
        queue.jobs.push_back(job);
        let is_short = queue.idle < queue.jobs.len();
        drop(queue);
        if is_short && self.threads.len() < WORKERS_MAX {
            self.spawn();
        }
        self.shared.work.notify_one();
    }

    fn spawn(&mut self) {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name("weft-file".into());
        match builder.spawn(move || shared.serve()) {
            Ok(thread) => self.threads.push(thread),
            // With no thread at all the work would never be done.
            Err(error) if self.threads.is_empty() => panic!("no thread for file work: {error}"),
            Err(_) => {}
        }
    }

    /// Moves what has ended to the end of `into`.
    #[inline]
    pub(super) fn take(&self, into: &mut Vec<Done>) {
        if self.shared.has_done.load(Ordering::Acquire) {
            let mut done = self.shared.done();
            self.shared.has_done.store(false, Ordering::Relaxed);
            into.append(&mut done);
        }
    }
}

impl Drop for Workers {
    /// Outwaits what is under way: its memory is about to be used again.
    fn drop(&mut self) {
        self.shared.queue().stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
