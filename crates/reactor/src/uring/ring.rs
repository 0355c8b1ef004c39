//! The ring itself: set up feature by feature, entered at most once a turn.

use super::request::Request;
use crate::sys::Nanos;
use io_uring::{IoUring, Parameters, Submitter, cqueue, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const ENTER_NO_IOWAIT: u32 = 1 << 7;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;
/// Completions that fit for every submission entry.
const CQ_PER_SQ: u32 = 4;
/// How often, and after what rest, a full queue is submitted again.
const PUSH_ATTEMPTS_MAX: u32 = 1000;
const PUSH_REST: Duration = Duration::from_millis(1);

pub(super) struct Ring {
    ring: IoUring,
    enter_fd: i32,
    enter_flags: u32,
    pub(super) enters: u64,
}

#[repr(C)]
struct RsrcUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

impl Ring {
    /// A ring for the calling thread, with what the kernel has of: no
    /// submission array (6.6), deferred task work (6.1), cooperative task work
    /// (5.19).
    pub(super) fn new(entries: u32) -> io::Result<Ring> {
        let mut refused = None;
        for level in 0..3 {
            let mut builder = IoUring::builder();
            builder
                .dontfork()
                .setup_clamp()
                .setup_submit_all()
                .setup_cqsize(entries * CQ_PER_SQ)
                .setup_taskrun_flag();
            if level == 0 {
                builder.setup_no_sqarray();
            }
            if level <= 1 {
                builder.setup_single_issuer().setup_defer_taskrun();
            } else {
                builder.setup_coop_taskrun();
            }
            match builder.build(entries) {
                Ok(ring) => return Ok(Ring::with(ring)),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    refused = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused.expect("there are levels"))
    }

    fn with(ring: IoUring) -> Ring {
        let mut this = Ring {
            enter_fd: ring.as_raw_fd(),
            enter_flags: 0,
            enters: 0,
            ring,
        };
        if this.ring.params().is_feature_no_iowait() {
            this.enter_flags |= ENTER_NO_IOWAIT;
        }
        let mut update = RsrcUpdate {
            offset: u32::MAX,
            reserved: 0,
            data: this.enter_fd as u64,
        };
        if this.register(REGISTER_RING_FDS, &mut update) {
            this.enter_fd = update.offset as i32;
            this.enter_flags |= ENTER_REGISTERED_RING;
        }
        this
    }

    /// Registers the ring with the thread, or ends that; whether that is so now.
    fn register(&self, operation: u32, update: &mut RsrcUpdate) -> bool {
        let (call, fd) = (libc::SYS_io_uring_register, self.ring.as_raw_fd());
        // SAFETY: the kernel reads and writes one entry, which is ours.
        unsafe { libc::syscall(call, fd, operation, &raw mut *update, 1) == 1 }
    }

    pub(super) fn params(&self) -> &Parameters {
        self.ring.params()
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        self.ring.submitter()
    }

    /// Queues a request, submitting what is there if the queue is full. A ring
    /// that takes no more is our own mistake, or dead.
    #[inline]
    pub(super) fn push(&mut self, request: &Request) {
        if let Err(error) = self.try_push(request) {
            panic!("the ring takes no more: {error}");
        }
    }

    /// As [`Ring::push`], with the error.
    #[inline]
    pub(super) fn try_push(&mut self, request: &Request) -> io::Result<()> {
        let mut attempt = 0;
        // SAFETY: the maker of the request has promised what that takes.
        while unsafe { self.ring.submission().push(request.entry()) }.is_err() {
            self.submit_full(attempt)?;
            attempt += 1;
        }
        Ok(())
    }

    #[cold]
    fn submit_full(&mut self, attempt: u32) -> io::Result<()> {
        match attempt {
            0 => {}
            // The kernel is out of memory for operations; it gets some back as others end.
            1..PUSH_ATTEMPTS_MAX => thread::sleep(PUSH_REST),
            _ => return Err(io::Error::other("the kernel submits nothing")),
        }
        let queued = self.queued();
        self.enter(queued, 0, None)
    }

    /// Makes room for `entries` that the kernel is to see together, which are
    /// fewer than a ring has.
    pub(super) fn make_room(&mut self, entries: usize) -> io::Result<()> {
        let queue = self.ring.submission();
        if queue.capacity() - queue.len() >= entries {
            return Ok(());
        }
        drop(queue);
        let queued = self.queued();
        self.enter(queued, 0, None)
    }

    #[inline]
    fn queued(&mut self) -> u32 {
        self.ring.submission().len() as u32
    }

    /// Submits and runs what the kernel has deferred, if there is any of
    /// either; does not sleep.
    #[inline]
    pub(super) fn turn(&mut self) -> io::Result<()> {
        let queue = self.ring.submission();
        let queued = queue.len() as u32;
        if queued == 0 && !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        drop(queue);
        self.enter(queued, 0, None)
    }

    /// Submits and sleeps until a completion is there, `timeout_ns` passed, or
    /// a signal came.
    pub(super) fn sleep(&mut self, timeout_ns: Nanos) -> io::Result<()> {
        let queued = self.queued();
        let time = types::Timespec::new()
            .sec(timeout_ns / 1_000_000_000)
            .nsec((timeout_ns % 1_000_000_000) as u32);
        let args = types::SubmitArgs::new();
        if timeout_ns == Nanos::MAX {
            return self.enter(queued, 1, Some(&args));
        }
        self.enter(queued, 1, Some(&args.timespec(&time)))
    }

    fn enter(
        &mut self,
        submit: u32,
        wait: u32,
        args: Option<&types::SubmitArgs<'_, '_>>,
    ) -> io::Result<()> {
        self.enters += 1;
        let mut flags = self.enter_flags | ENTER_GETEVENTS;
        let (arg, size) = match args {
            Some(args) => {
                flags |= ENTER_EXT_ARG;
                (&raw const *args, size_of::<types::SubmitArgs>())
            }
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the descriptor is our ring, or its index with the flag that
        // says so; the argument is what EXT_ARG announces.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                submit,
                wait,
                flags,
                arg,
                size,
            )
        };
        if rc >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match Errno::from_io_error(&error) {
            // Time is up; a signal; completions to be reaped first; short of
            // memory: the next turn goes on.
            Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
            _ => Err(error),
        }
    }

    /// Moves all completions that are there to the end of `into`.
    #[inline]
    pub(super) fn reap(&mut self, into: &mut Vec<cqueue::Entry>) {
        into.extend(self.ring.completion());
    }

    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }
}

impl Drop for Ring {
    /// The thread's registration would keep the ring, and all sockets in its
    /// table, open.
    fn drop(&mut self) {
        // Fails only where there is no table.
        let _ = self.ring.submitter().unregister_files();
        if self.enter_flags & ENTER_REGISTERED_RING == 0 {
            return;
        }
        let mut update = RsrcUpdate {
            offset: self.enter_fd as u32,
            reserved: 0,
            data: 0,
        };
        self.register(UNREGISTER_RING_FDS, &mut update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needs::needs;
    use std::time::Instant;

    fn push_nops(ring: &mut Ring, count: u64) {
        for data in 0..count {
            ring.push(&Request::nop().user_data(data));
        }
    }

    #[needs(io_uring)]
    #[test]
    fn more_completions_than_fit_are_not_lost() {
        let mut ring = Ring::new(4).unwrap();
        // Nothing is reaped meanwhile, and 16 fit.
        push_nops(&mut ring, 100);
        let mut reaped = Vec::new();
        for _ in 0..100 {
            ring.turn().unwrap();
            ring.reap(&mut reaped);
        }
        let data: Vec<u64> = reaped.iter().map(cqueue::Entry::user_data).collect();
        assert_eq!(data, (0..100).collect::<Vec<u64>>());
    }

    #[needs(io_uring)]
    #[test]
    fn a_ring_that_takes_no_more_panics() {
        let mut ring = Ring::new(4).unwrap();
        // Only the thread that made a ring may enter it.
        let other = thread::spawn(move || push_nops(&mut ring, 5));
        let give_up = Instant::now() + Duration::from_secs(10);
        while !other.is_finished() {
            assert!(Instant::now() < give_up, "it spins");
            thread::sleep(Duration::from_millis(1));
        }
        let told = other.join().unwrap_err();
        let told = told.downcast_ref::<String>().unwrap();
        assert!(told.contains("the ring takes no more"), "{told}");
    }
}
