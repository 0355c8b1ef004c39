//! Threads that wait for the disk, so that reactors need not: as many as there
//! is work for, up to a limit, and none when there has been none for a while.
//! Hosts take turns, and each leaves some of the threads to others ([`turns`]).
//!
//! What must survive a crash of the machine is synced together: the first thread
//! syncs for all operations that have come meanwhile.

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use faults::Fault;
use reactor::Ticket;
use rustix::fs::{FileType, OFlags, fsync};
use rustix::io::Errno;

use super::DirInner;
use super::below::NameChange;
use super::beneath::SeenObject;
use super::opens::{OpenFile, ReadyFile};
use super::quotas::Reserved;
use super::turns::Turns;
use crate::fs::op::Move;
use crate::fs::{Asker, Caller, Error, FileId, FsOp, Output, Time};

/// Threads of a file system at most. One host alone has half of them.
const THREADS_MAX: usize = 16;
/// Operations that wait for a thread at most.
const JOBS_MAX: usize = 1 << 14;
/// Operations that are synced together at most: those that come meanwhile wait for
/// so many.
const SYNCS_MAX: usize = 64;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(1);
/// How long the end waits for what is under way.
const PATIENCE: Duration = Duration::from_secs(5);

/// What becomes of a job.
#[derive(Default)]
pub(crate) struct Reply {
    result: Mutex<Option<Result<JobDone, Error>>>,
    /// Bytes of a COPY.
    pub(super) copied: AtomicU64,
    pub(super) is_canceled: AtomicBool,
    has_panicked: AtomicBool,
}

impl Reply {
    /// Once the ticket has rung. Panics where a thread did that was at the job:
    /// the operation that waits for it fails with it.
    pub(super) fn take(&self) -> Result<JobDone, Error> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            !self.has_panicked.load(Ordering::Acquire),
            "a thread of a file system has panicked"
        );
        // Nothing there: the file system was closed before a thread came to it.
        result.take().unwrap_or(Err(Error::Io))
    }
}

/// What a job has come to.
pub(super) enum JobDone {
    Output(Output),
    Ready(ReadyFile, Reserved),
    Size(u64),
    Settled,
}

/// What a thread does.
pub(super) enum ThreadWork {
    /// An operation, its names apart.
    Op(FsOp<'static>, [Box<[u8]>; 2]),
    /// Makes a file ready for a read, or for a write of a length from an offset on.
    Ready {
        file: FileId,
        write: Option<(u64, u64)>,
    },
    Size(ReadyFile),
    /// Counts what a write has taken.
    Settle(ReadyFile, Reserved),
}

/// A caller without its borrowed groups.
pub(super) struct Credentials {
    uid: u32,
    gid: u32,
    gids: Box<[u32]>,
    now: Time,
    is_open: bool,
    from: Asker,
}

impl Credentials {
    pub(super) fn of(caller: &Caller<'_>) -> Credentials {
        Credentials {
            uid: caller.uid,
            gid: caller.gid,
            gids: caller.gids.into(),
            now: caller.now,
            is_open: caller.is_open,
            from: caller.from,
        }
    }

    pub(super) fn caller(&self) -> Caller<'_> {
        Caller {
            uid: self.uid,
            gid: self.gid,
            gids: &self.gids,
            now: self.now,
            is_open: self.is_open,
            from: self.from,
        }
    }
}

/// The names and texts of an operation replaced by others.
pub(super) fn with_names<'a>(op: &FsOp<'_>, first: &'a [u8], second: &'a [u8]) -> FsOp<'a> {
    use crate::fs::New;
    match *op {
        FsOp::Lookup { dir, .. } => FsOp::Lookup { dir, name: first },
        FsOp::Create {
            dir, new, ref set, ..
        } => FsOp::Create {
            dir,
            name: first,
            new: match new {
                New::Symlink(_) => New::Symlink(second),
                New::Unchecked => New::Unchecked,
                New::Guarded => New::Guarded,
                New::Exclusive(verifier) => New::Exclusive(verifier),
                New::Directory => New::Directory,
                New::Fifo => New::Fifo,
                New::Socket => New::Socket,
                New::Block(device) => New::Block(device),
                New::Character(device) => New::Character(device),
            },
            set: set.clone(),
        },
        FsOp::Link { file, dir, .. } => FsOp::Link {
            file,
            dir,
            name: first,
        },
        FsOp::Remove { dir, what, .. } => FsOp::Remove {
            dir,
            name: first,
            what,
        },
        FsOp::Rename {
            from_dir, to_dir, ..
        } => FsOp::Rename {
            from_dir,
            from: first,
            to_dir,
            to: second,
        },
        FsOp::GetXattr { file, .. } => FsOp::GetXattr { file, name: first },
        FsOp::SetXattr { file, how, .. } => FsOp::SetXattr {
            file,
            name: first,
            value: second,
            how,
        },
        FsOp::RemoveXattr { file, .. } => FsOp::RemoveXattr { file, name: first },
        FsOp::Setattr {
            file,
            ref set,
            guard,
        } => FsOp::Setattr {
            file,
            set: set.clone(),
            guard,
        },
        _ => without_names(op),
    }
}

/// Those that have no names.
fn without_names(op: &FsOp<'_>) -> FsOp<'static> {
    match *op {
        FsOp::Parent { dir } => FsOp::Parent { dir },
        FsOp::Getattr { file } => FsOp::Getattr { file },
        FsOp::Readlink { file } => FsOp::Readlink { file },
        FsOp::Readdir {
            dir,
            cookie,
            verifier,
            entries_max,
            name_bytes_max,
            with_attrs,
        } => FsOp::Readdir {
            dir,
            cookie,
            verifier,
            entries_max,
            name_bytes_max,
            with_attrs,
        },
        FsOp::ListXattrs {
            file,
            cookie,
            name_bytes_max,
        } => FsOp::ListXattrs {
            file,
            cookie,
            name_bytes_max,
        },
        FsOp::Statfs { file } => FsOp::Statfs { file },
        FsOp::Open { file, read, write } => FsOp::Open { file, read, write },
        FsOp::Close { file } => FsOp::Close { file },
        _ => of_a_range(op),
    }
}

/// Those of a range of a file.
fn of_a_range(op: &FsOp<'_>) -> FsOp<'static> {
    match *op {
        FsOp::Allocate { file, offset, len } => FsOp::Allocate { file, offset, len },
        FsOp::Deallocate { file, offset, len } => FsOp::Deallocate { file, offset, len },
        FsOp::Seek { file, offset, what } => FsOp::Seek { file, offset, what },
        FsOp::ReadAhead { file, offset, len } => FsOp::ReadAhead { file, offset, len },
        FsOp::Clone {
            from,
            from_offset,
            to,
            to_offset,
            len,
        } => FsOp::Clone {
            from,
            from_offset,
            to,
            to_offset,
            len,
        },
        FsOp::Copy {
            from,
            from_offset,
            to,
            to_offset,
            len,
        } => FsOp::Copy {
            from,
            from_offset,
            to,
            to_offset,
            len,
        },
        _ => unreachable!("data has no way through here, and the others have names"),
    }
}

/// The names and texts of an operation.
pub(super) fn names_of(op: &FsOp<'_>) -> [Box<[u8]>; 2] {
    use crate::fs::New;
    let (first, second): (&[u8], &[u8]) = match *op {
        FsOp::Create {
            name,
            new: New::Symlink(text),
            ..
        } => (name, text),
        FsOp::Lookup { name, .. }
        | FsOp::Create { name, .. }
        | FsOp::Link { name, .. }
        | FsOp::Remove { name, .. }
        | FsOp::GetXattr { name, .. }
        | FsOp::RemoveXattr { name, .. } => (name, b""),
        FsOp::Rename { from, to, .. } => (from, to),
        FsOp::SetXattr { name, value, .. } => (name, value),
        _ => (b"", b""),
    };
    [first.into(), second.into()]
}

pub(super) struct DirJob {
    pub(super) inner: Arc<DirInner>,
    pub(super) caller: Credentials,
    pub(super) work: ThreadWork,
    pub(super) reply: Arc<Reply>,
    /// Until it has rung.
    pub(super) ticket: Option<Ticket>,
}

impl Drop for DirJob {
    /// Whatever became of it, an operation waits for its end.
    fn drop(&mut self) {
        let has_panicked = thread::panicking();
        self.reply
            .has_panicked
            .store(has_panicked, Ordering::Release);
        if let Some(ticket) = self.ticket.take() {
            ticket.ring();
        }
    }
}

impl DirJob {
    fn end(self, result: Result<JobDone, Error>) {
        let mut place = (self.reply.result.lock()).unwrap_or_else(PoisonError::into_inner);
        *place = Some(result);
    }

    /// A part of a long one, all of others; what is not over comes back.
    fn run(mut self) -> Option<DirJob> {
        let mut synced = Synced::default();
        let caller = self.caller.caller();
        let result = match &mut self.work {
            ThreadWork::Op(op, [first, second]) => {
                let op = with_names(op, first, second);
                match (&op, Move::of(&op)) {
                    (FsOp::Copy { .. }, Some(what)) => {
                        match self.inner.copy_some(&caller, &what, &self.reply) {
                            None => return Some(self),
                            Some(result) => result.map(JobDone::Output),
                        }
                    }
                    _ => self
                        .inner
                        .run(&caller, &op, &mut synced)
                        .map(JobDone::Output),
                }
            }
            ThreadWork::Ready { file, write } => match write {
                Some(range) => self.inner.ready_to_write(&caller, *file, *range),
                None => (self.inner.ready_to_read(&caller, *file))
                    .map(|ready| (ready, Reserved::default())),
            }
            .map(|(ready, room)| JobDone::Ready(ready, room)),
            ThreadWork::Size(ready) => self.inner.size_now(ready).map(JobDone::Size),
            ThreadWork::Settle(ready, room) => {
                self.inner.settle(ready, room).map(|()| JobDone::Settled)
            }
        };
        let inner = Arc::clone(&self.inner);
        let is_changed = result.is_ok() && !synced.objects.is_empty();
        match is_changed && !faults::is(Fault::NamesUnsynced) {
            true => inner.sync_then_end(synced, self, result),
            false => self.end(result),
        }
        None
    }
}

/// What an operation has changed, to be brought to the disk before it is done.
#[derive(Default)]
pub(super) struct Synced {
    objects: Vec<(u64, OwnedFd)>,
}

impl Synced {
    /// Before the object is changed: what cannot be synced is not to be changed.
    pub(super) fn object(&mut self, inner: &DirInner, seen: &SeenObject) -> Result<(), Error> {
        let flags = match seen.file_type() {
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            FileType::RegularFile => OFlags::RDONLY,
            // Of what has no content the file system below takes care itself.
            _ => return Ok(()),
        };
        if self
            .objects
            .iter()
            .any(|(ino, _)| *ino == seen.identity.ino)
        {
            return Ok(());
        }
        let fd = match inner.reopen_file(seen.fd.as_fd(), flags) {
            Err(Errno::ACCESS) if !seen.is_directory() => {
                inner.reopen_file(seen.fd.as_fd(), OFlags::WRONLY)
            }
            opened => opened,
        };
        self.objects.push((seen.identity.ino, fd?));
        Ok(())
    }
}

/// Operations whose changes are not on the disk yet.
#[derive(Default)]
pub(super) struct Syncs {
    waiting: Turns<ToSync>,
    is_at_it: bool,
}

/// An operation, its outcome if what it has changed can be synced, and that.
type ToSync = (Synced, DirJob, Result<JobDone, Error>);

impl Syncs {
    /// Some of them, of each host in turn.
    fn take(&mut self) -> Vec<ToSync> {
        let next = || {
            let (host, one) = self.waiting.take(1)?;
            self.waiting.ended(host);
            Some(one)
        };
        std::iter::from_fn(next).take(SYNCS_MAX).collect()
    }
}

impl DirInner {
    fn syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a job when what it has changed would survive a crash.
    fn sync_then_end(&self, synced: Synced, job: DirJob, result: Result<JobDone, Error>) {
        let mut syncs = self.syncs();
        syncs.waiting.push(job.caller.from, (synced, job, result));
        if mem::replace(&mut syncs.is_at_it, true) {
            return;
        }
        drop(syncs);
        loop {
            let mut syncs = self.syncs();
            let batch = syncs.take();
            syncs.is_at_it = !batch.is_empty();
            drop(syncs);
            if batch.is_empty() {
                return;
            }
            self.sync_batch(batch);
        }
    }

    fn sync_batch(&self, batch: Vec<ToSync>) {
        let table = self.sync_table();
        let mut done: Vec<(u64, Result<(), Errno>)> = Vec::new();
        for (synced, job, result) in batch {
            let mut outcome = table.map_err(|errno| (self.beneath.root(), errno));
            for (ino, fd) in &synced.objects {
                let found = done.iter().find(|(other, _)| other == ino);
                let one = match found {
                    Some(&(_, one)) => one,
                    None => {
                        let sync = NameChange::Sync(fd.as_fd());
                        let one = self.below.change(sync, &mut || fsync(fd));
                        done.push((*ino, one));
                        one
                    }
                };
                outcome = outcome.and(one.map_err(|errno| (fd.as_fd(), errno)));
            }
            job.end(match outcome {
                Ok(()) => result,
                Err((fd, errno)) => {
                    self.lost("a change of a directory or of attributes", fd, errno);
                    Err(errno.into())
                }
            });
        }
    }

    /// What the table has taken in so far survives a crash from now on.
    pub(super) fn sync_table(&self) -> Result<(), Errno> {
        let dirty = self.table().take_dirty();
        let synced = dirty.map_or(Ok(()), |file| file.sync_data());
        synced.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// The change attribute takes in what was written to a file, if it is there.
    fn keep_change(&self, entry: &OpenFile) {
        if !entry.has_news() {
            return;
        }
        let fd = entry.descriptor();
        let seen = fd.and_then(|fd| self.beneath.look(fd).ok());
        let kept = seen.map(|seen| self.attr(entry.file, &seen, false));
        if !matches!(kept, Some(Ok(_))) {
            self.entries.take_changes(entry.file);
        }
    }

    /// Cleans up after no request has come for a while.
    pub(super) fn tidy(&self) {
        let idle = self.entries.idle();
        for entry in &idle {
            self.sync_writes(entry);
            self.keep_change(entry);
        }
        self.entries.close(&idle);
        self.look_again(&idle);
        self.close_streams();
        if let Err(errno) = self.sync_table() {
            self.table_lost(&errno);
        }
    }
}

#[derive(Default)]
struct JobQueue {
    jobs: Turns<DirJob>,
    threads: usize,
    idle: usize,
    is_ending: bool,
}

#[derive(Default)]
struct WorkersShared {
    queue: Mutex<JobQueue>,
    work: Condvar,
    ended: Condvar,
}

impl WorkersShared {
    fn queue(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits a while for a job.
    fn next(&self) -> Option<(Busy<'_>, DirJob)> {
        let mut queue = self.queue();
        loop {
            if let Some((host, job)) = queue.jobs.take(THREADS_MAX) {
                if queue.idle > 0 && queue.jobs.has_next(THREADS_MAX) {
                    self.work.notify_one();
                }
                let shared = self;
                return Some((Busy { shared, host }, job));
            }
            if queue.is_ending {
                return None;
            }
            queue.idle += 1;
            let waited = self.work.wait_timeout(queue, IDLE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            queue.idle -= 1;
            if timeout.timed_out() && !queue.jobs.has_next(THREADS_MAX) {
                return None;
            }
        }
    }

    fn serve(&self, inner: &Weak<DirInner>) {
        reactor::unpin();
        let place = ThreadPlace(self);
        loop {
            while let Some((busy, job)) = self.next() {
                if let Some(job) = job.run() {
                    self.queue().jobs.push(job.caller.from, job);
                }
                drop(busy);
            }
            if self.queue().threads == 1
                && let Some(inner) = inner.upgrade()
            {
                inner.tidy();
                inner.count_if_due();
            }
            let mut queue = self.queue();
            // Something may have come meanwhile; what is not for this thread is
            // for those that are at work.
            if !queue.jobs.has_next(THREADS_MAX) {
                queue.threads -= 1;
                self.ended.notify_all();
                mem::forget(place);
                return;
            }
        }
    }
}

/// A thread at work for a host; dropped, it is done, or a panic has ended it.
struct Busy<'a> {
    shared: &'a WorkersShared,
    host: u64,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.shared.queue().jobs.ended(self.host);
    }
}

/// The place of a thread; dropped, a panic has ended it.
struct ThreadPlace<'a>(&'a WorkersShared);

impl Drop for ThreadPlace<'_> {
    fn drop(&mut self) {
        self.0.queue().threads -= 1;
        self.0.ended.notify_all();
    }
}

pub(super) struct Workers {
    shared: Arc<WorkersShared>,
    /// Else the simulator does the work, a job at a time ([`Workers::step`]).
    has_threads: bool,
}

impl Workers {
    pub(super) fn new(has_threads: bool) -> Workers {
        Workers {
            shared: Arc::default(),
            has_threads,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.shared.queue().jobs.len()
    }

    /// Does what is next, in this thread.
    pub(super) fn step(&self) {
        let next = self.shared.queue().jobs.take(THREADS_MAX);
        let Some((host, job)) = next else { return };
        let shared = &*self.shared;
        let busy = Busy { shared, host };
        if let Some(job) = job.run() {
            shared.queue().jobs.push(job.caller.from, job);
        }
        drop(busy);
    }

    /// Hands a job to a thread, unless there are too many already. A file is let
    /// go in any case: no client would ask for that again, and there are no more of
    /// these than files were opened.
    pub(super) fn start(&self, mut job: DirJob) -> Result<(), Error> {
        let mut queue = self.shared.queue();
        let is_close = matches!(job.work, ThreadWork::Op(FsOp::Close { .. }, _));
        let from = job.caller.from;
        if !queue.jobs.has_room(from, JOBS_MAX) && !is_close {
            job.ticket = None;
            return Err(Error::Delay);
        }
        let inner = Arc::downgrade(&job.inner);
        let is_wanted = queue.idle <= queue.jobs.len();
        let is_wanted = queue.threads == 0 || is_wanted && queue.threads < THREADS_MAX;
        if self.has_threads && is_wanted {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("weft-dir".into());
            match builder.spawn(move || shared.serve(&inner)) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 && !is_close => {
                    tracing::error!(
                        file_system = job.inner.info.name,
                        %error,
                        "no thread for a file system's work, and its clients wait: raise the \
                         limit of threads ('ulimit -u', TasksMax= of systemd) or of memory"
                    );
                    job.ticket = None;
                    return Err(Error::Delay);
                }
                Err(_) => {}
            }
        }
        queue.jobs.push(from, job);
        drop(queue);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Waits, within a bound, for what is under way.
    pub(super) fn end(&self) {
        let mut queue = self.shared.queue();
        queue.is_ending = true;
        if !self.has_threads {
            // No thread will do the jobs; to drop one ends its operation.
            let jobs = mem::take(&mut queue.jobs);
            drop(queue);
            return drop(jobs);
        }
        self.shared.work.notify_all();
        let ended =
            (self.shared.ended).wait_timeout_while(queue, PATIENCE, |queue| queue.threads > 0);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use ::mem::{Budget, BufRange, Pool};
    use reactor::{Bell, DiskFile, FallocateMode, FileIo, Token};

    use super::*;
    use crate::fs::dir::{Dir, DirSpec};
    use crate::fs::{FileId, FileSystem, Progress};

    const STATFS: FsOp<'static> = FsOp::Statfs { file: FileId(1) };

    /// A directory, its folder and that of its state.
    fn place() -> (Dir, [tempfile::TempDir; 2]) {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = Dir::open(&DirSpec {
            name: "test".into(),
            path: folder.path().into(),
            state: state.path().join("state"),
            read_only: false,
            owners: None,
            acls: None,
            direct: false,
        });
        (dir.unwrap(), [folder, state])
    }

    fn job(dir: &Dir, host: u64, op: FsOp<'static>, name: &[u8]) -> DirJob {
        let connection = 1;
        job_from(dir, Asker { host, connection }, op, name)
    }

    fn job_from(dir: &Dir, from: Asker, op: FsOp<'static>, name: &[u8]) -> DirJob {
        DirJob {
            inner: Arc::clone(&dir.inner),
            caller: Credentials::of(&root(from)),
            work: ThreadWork::Op(op, [name.into(), Box::default()]),
            reply: Arc::default(),
            ticket: None,
        }
    }

    fn root(from: Asker) -> Caller<'static> {
        Caller {
            uid: 0,
            gid: 0,
            gids: &[],
            now: Time::default(),
            is_open: true,
            from,
        }
    }

    #[test]
    #[should_panic(expected = "a thread of a file system has panicked")]
    fn operation_whose_job_panics_in_a_thread_panics() {
        let (dir, _folders) = place();
        let job = job(&dir, 1, STATFS, b"");
        let reply = job.reply.clone();
        let thread = thread::spawn(move || {
            let _job = job;
            panic!("at a job");
        });
        assert!(thread.join().is_err());
        let _ = reply.take();
    }

    /// However much there is to do, files are let go.
    #[test]
    fn no_close_is_turned_away() {
        let (dir, _folders) = place();
        let job = |op| job(&dir, 1, op, b"");
        let workers = &dir.inner.workers;
        // As if all threads were at work.
        workers.shared.queue().threads = THREADS_MAX;
        while workers.start(job(STATFS)).is_ok() {}
        assert_eq!(workers.start(job(STATFS)), Err(Error::Delay));
        let file = FileId(1);
        assert_eq!(workers.start(job(FsOp::Close { file })), Ok(()));
        let mut queue = workers.shared.queue();
        queue.threads = 0;
        let jobs = mem::take(&mut queue.jobs);
        drop(queue);
        drop(jobs);
    }

    /// Waits for the end of a job, within a bound.
    fn wait(reply: &Reply) -> bool {
        let is_there = || reply.result.lock().unwrap().is_some();
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            is_there()
        })
    }

    /// What one host asks for hangs: others are answered all the same, also when
    /// there are more of those than threads.
    #[test]
    fn host_whose_work_hangs_delays_no_other_host() {
        let (dir, _folders) = place();
        let root = FileId(super::super::ROOT);
        let workers = &dir.inner.workers;
        let held = dir.inner.share(root);
        let mut hung = Vec::new();
        for at in 0..5 * THREADS_MAX {
            let op = FsOp::Remove {
                dir: root,
                name: b"",
                what: crate::fs::Removable::Any,
            };
            let job = job(&dir, 1, op, format!("{at}").as_bytes());
            hung.push(job.reply.clone());
            workers.start(job).unwrap();
        }
        for host in 2..2 + 2 * THREADS_MAX as u64 {
            let job = job(&dir, host, STATFS, b"");
            let reply = job.reply.clone();
            workers.start(job).unwrap();
            assert!(wait(&reply), "host {host} waits for another");
        }
        let is_over = |reply: &Arc<Reply>| reply.result.lock().unwrap().is_some();
        assert!(!hung.iter().any(is_over), "they did hang");
        drop(held);
        assert!(hung.iter().all(|reply| wait(reply)));
    }

    /// A host that asks for more than its share is answered with a delay; others
    /// still find a place.
    #[test]
    fn a_host_does_not_take_all_places() {
        let (dir, _folders) = place();
        let workers = &dir.inner.workers;
        workers.shared.queue().threads = THREADS_MAX;
        while workers.start(job(&dir, 1, STATFS, b"")).is_ok() {}
        let refused = workers.start(job(&dir, 1, STATFS, b""));
        assert_eq!(refused, Err(Error::Delay));
        assert_eq!(workers.start(job(&dir, 2, STATFS, b"")), Ok(()));
        let mut queue = workers.shared.queue();
        assert!(queue.jobs.len() < JOBS_MAX / 2);
        queue.threads = 0;
        let jobs = mem::take(&mut queue.jobs);
        drop(queue);
        drop(jobs);
    }

    /// A host that asks for much by one connection does not stand before another
    /// host, nor before what comes by another connection of its own.
    #[test]
    fn hosts_take_turns_at_threads_and_so_do_their_connections() {
        let (dir, _folders) = place();
        let workers = &dir.inner.workers;
        workers.shared.queue().threads = THREADS_MAX;
        let all = [(1, 1), (1, 1), (1, 1), (1, 1), (1, 2), (1, 2), (2, 1)];
        for (host, connection) in all {
            let job = job_from(&dir, Asker { host, connection }, STATFS, b"");
            assert_eq!(workers.start(job), Ok(()));
        }
        let mut queue = workers.shared.queue();
        queue.threads = 0;
        let mut jobs = mem::take(&mut queue.jobs);
        drop(queue);
        let order = std::iter::from_fn(|| {
            let (host, job) = jobs.take(THREADS_MAX)?;
            jobs.ended(host);
            Some((job.caller.from.host, job.caller.from.connection))
        });
        let expected = [(1, 1), (2, 1), (1, 2), (1, 1), (1, 2), (1, 1), (1, 1)];
        assert_eq!(order.collect::<Vec<_>>(), expected);
    }

    /// Counts reads, which the test completes itself.
    #[derive(Default)]
    struct Reads(usize);

    impl FileIo for Reads {
        fn read_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: Token) {
            self.0 += 1;
        }
        fn write_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: bool, _: Token) {
            unreachable!("this test only reads")
        }
        fn sync_data(&mut self, _: &Arc<DiskFile>, _: Token) {
            unreachable!("this test only reads")
        }
        fn fallocate(&mut self, _: &Arc<DiskFile>, _: FallocateMode, _: u64, _: u64, _: Token) {
            unreachable!("this test only reads")
        }
        fn ticket(&mut self, token: Token) -> Ticket {
            Bell::new(None).ticket(token)
        }
        fn cancel_file(&mut self, _: Token) {}
    }

    /// A read may wait for a thread more than once, and each time it takes the turn
    /// of the host and connection that read.
    #[test]
    fn each_step_of_a_read_takes_the_turn_of_its_host_and_connection() {
        let (dir, [folder, _state]) = place();
        std::fs::write(folder.path().join("f"), b"content").unwrap();
        let (top, name) = (FileId(super::super::ROOT), b"");
        let look = job(&dir, 1, FsOp::Lookup { dir: top, name }, b"f");
        let found = look.reply.clone();
        assert!(look.run().is_none());
        let Ok(JobDone::Output(Output::File(file))) = found.take() else {
            panic!("it is there");
        };
        let workers = &dir.inner.workers;
        workers.shared.queue().threads = THREADS_MAX;
        let from = Asker {
            host: 3,
            connection: 4,
        };
        let run_next = || {
            let mut queue = workers.shared.queue();
            let (host, job) = queue.jobs.take(THREADS_MAX).expect("it waits");
            queue.jobs.ended(host);
            drop(queue);
            assert_eq!(job.caller.from, from);
            assert!(job.run().is_none());
        };
        let pool = Pool::new(Budget::new(64 << 20)).unwrap();
        let bytes = pool.get(4096).unwrap();
        let (offset, buf) = (0, bytes.range().slice(0, 7));
        let mut files = Reads::default();
        let op = FsOp::Read { file, offset, buf };
        let Progress::Pending(task) = dir.start(&root(from), op, &mut files, 1) else {
            panic!("a thread looks for the file");
        };
        run_next();
        let Progress::Pending(task) = dir.resume(task, Ok(0), &mut files, 1) else {
            panic!("it is read");
        };
        assert_eq!(files.0, 1);
        let Progress::Pending(task) = dir.resume(task, Ok(7), &mut files, 1) else {
            panic!("a thread looks whether it has grown");
        };
        run_next();
        let done = dir.resume(task, Ok(0), &mut files, 1);
        let is_end = matches!(
            done,
            Progress::Done(Ok(Output::Read {
                len: 7,
                is_end: true
            }))
        );
        assert!(is_end, "{done:?}");
        workers.shared.queue().threads = 0;
    }

    /// What is synced together takes turns too.
    #[test]
    fn host_with_many_operations_to_sync_does_not_delay_those_of_others() {
        let (dir, _folders) = place();
        let mut syncs = Syncs::default();
        for _ in 0..3 * SYNCS_MAX {
            let job = job(&dir, 1, STATFS, b"");
            let (from, result) = (job.caller.from, Err(Error::Io));
            syncs.waiting.push(from, (Synced::default(), job, result));
        }
        let job = job(&dir, 2, STATFS, b"");
        let (from, result) = (job.caller.from, Err(Error::Io));
        syncs.waiting.push(from, (Synced::default(), job, result));
        let batch = syncs.take();
        assert_eq!(batch.len(), SYNCS_MAX);
        assert_eq!(batch[1].1.caller.from.host, 2);
    }
}
