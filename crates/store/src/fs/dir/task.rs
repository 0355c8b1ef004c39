//! An operation under way: one that a thread does, or data that goes through
//! the reactor.

use std::fmt;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::mem::BufRange;
use faults::Fault;
use reactor::{FileIo, Token};
use rustix::io::Errno;

use super::descriptor::Descriptor;
use super::file_syncs::Sync;
use super::opens::{OpenFile, ReadyFile};
use super::quotas::Reserved;
use super::workers::{Credentials, DirJob, JobDone, Reply, ThreadWork, names_of, with_names};
use super::{DirInner, FILE_BYTES_MAX};
use crate::fs::{Asker, Caller, Error, FileId, FsOp, Output, Progress, Task, Written};

/// What an unfinished operation needs to go on.
pub(crate) enum DirSteps {
    /// A thread does it.
    Job(Arc<Reply>),
    Data(DataOp),
}

/// A read, a write or a COMMIT.
pub(crate) struct DataOp {
    from: Asker,
    /// What a write has taken of quotas.
    room: Reserved,
    what: DataKind,
    stage: TaskStage,
}

#[derive(Clone, Copy, Debug)]
enum DataKind {
    Read {
        offset: u64,
        buf: BufRange,
        done: u32,
    },
    Write {
        offset: u64,
        buf: BufRange,
        is_stable: bool,
        done: u32,
        /// Failed syncs of the file before it began.
        failures: u64,
    },
    Commit {
        failures: u64,
    },
}

enum TaskStage {
    /// A thread looks for the file.
    Opening(Arc<Reply>),
    /// The reactor moves data, past the page cache or not.
    Moving(Arc<OpenFile>, Arc<Descriptor>, bool),
    /// A thread counts what was written.
    Settling(Arc<Reply>, Arc<OpenFile>, Arc<Descriptor>),
    /// A thread looks whether the file ends here.
    Sizing(Arc<Reply>),
    /// The reactor syncs the file.
    Syncing(Arc<OpenFile>, Arc<Descriptor>),
    /// Another sync of the file is under way; then that of this number is wanted.
    Waiting(Arc<OpenFile>, Arc<Descriptor>, u64),
}

impl fmt::Debug for DirSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirSteps::Job(_) => f.write_str("Steps(job)"),
            DirSteps::Data(data) => write!(f, "Steps({:?})", data.what),
        }
    }
}

impl DirSteps {
    pub(crate) fn copied_bytes(&self) -> u64 {
        match self {
            DirSteps::Job(reply) => reply.copied.load(Ordering::Acquire),
            DirSteps::Data(_) => 0,
        }
    }

    pub(crate) fn cancel(&mut self) {
        if let DirSteps::Job(reply) = self {
            reply.is_canceled.store(true, Ordering::Release);
        }
    }
}

/// The file of a data operation, and what is to be done with it.
fn data_of(op: &FsOp<'_>) -> Option<(FileId, DataKind)> {
    match *op {
        FsOp::Read { file, offset, buf } => {
            let done = 0;
            Some((file, DataKind::Read { offset, buf, done }))
        }
        FsOp::Write {
            file,
            offset,
            buf,
            is_stable,
        } => Some((
            file,
            DataKind::Write {
                offset,
                buf,
                is_stable,
                done: 0,
                failures: 0,
            },
        )),
        FsOp::Commit { file } => Some((file, DataKind::Commit { failures: 0 })),
        _ => None,
    }
}

impl DataKind {
    /// Where what is written begins, and its length; a COMMIT writes nothing anew.
    fn written(&self) -> Option<(u64, u64)> {
        match *self {
            DataKind::Read { .. } => None,
            DataKind::Write { offset, buf, .. } => Some((offset, buf.len().into())),
            DataKind::Commit { .. } => Some((u64::MAX, 0)),
        }
    }

    /// What came of it, if all is well.
    fn output(&self) -> Output {
        match *self {
            DataKind::Read { .. } => unreachable!("a read says where the file ends"),
            DataKind::Write {
                done, is_stable, ..
            } => Output::Written(Written {
                len: done,
                is_stable,
            }),
            DataKind::Commit { .. } => Output::Done,
        }
    }

    /// Whether no sync of the file has failed since it began.
    fn check(&self, entry: &OpenFile) -> Result<(), Error> {
        match *self {
            DataKind::Read { .. } => Ok(()),
            DataKind::Write { failures, .. } | DataKind::Commit { failures } => {
                Ok(entry.syncs.check(failures)?)
            }
        }
    }
}

fn pending(steps: DirSteps) -> Progress {
    Progress::Pending(Task::of_dir(steps))
}

/// Where an operation's completions come from and go to.
pub(super) struct TaskTurn<'a> {
    pub(super) inner: &'a Arc<DirInner>,
    pub(super) files: &'a mut dyn FileIo,
    pub(super) token: Token,
    /// Whose it is.
    pub(super) from: Asker,
    pub(super) room: Reserved,
}

impl TaskTurn<'_> {
    pub(super) fn start(mut self, caller: &Caller<'_>, op: FsOp<'_>) -> Progress {
        let Some((file, what)) = data_of(&op) else {
            let work = ThreadWork::Op(with_names(&op, b"", b""), names_of(&op));
            return match self.job(caller, work) {
                Ok(reply) => pending(DirSteps::Job(reply)),
                Err(error) => Progress::Done(Err(error)),
            };
        };
        let write = what.written();
        if let DataKind::Write { offset, buf, .. } = what
            && offset.saturating_add(buf.len().into()) > self.inner.info.file_bytes_max
        {
            return Progress::Done(Err(Error::FBig));
        }
        let entry = self.inner.entries.get(file);
        if let Some((entry, granted)) = entry.and_then(|entry| {
            entry
                .checked_descriptor(caller, write.map(|(from, _)| from))
                .map(|granted| (entry, granted))
        }) {
            match granted {
                Ok(_) if self.may_grow(&what, &entry) => {}
                Ok(fd) => return self.begin(what, ReadyFile { entry, fd }),
                Err(error) => return Progress::Done(Err(error)),
            }
        }
        match self.job(caller, ThreadWork::Ready { file, write }) {
            Ok(reply) => self.pending(what, TaskStage::Opening(reply)),
            Err(error) => Progress::Done(Err(error)),
        }
    }

    /// Whether a write may need room that quotas limit.
    fn may_grow(&self, what: &DataKind, entry: &OpenFile) -> bool {
        let end = what.written().map(|(from, len)| from.saturating_add(len));
        let is_write = matches!(what, DataKind::Write { buf, .. } if !buf.is_empty());
        is_write && self.inner.quotas.is_on() && end > Some(entry.dense())
    }

    fn job(&mut self, caller: &Caller<'_>, work: ThreadWork) -> Result<Arc<Reply>, Error> {
        let reply = Arc::new(Reply::default());
        let job = DirJob {
            inner: Arc::clone(self.inner),
            caller: Credentials::of(caller),
            work,
            reply: Arc::clone(&reply),
            ticket: Some(self.files.ticket(self.token)),
        };
        self.inner.workers.start(job).map(|()| reply)
    }

    pub(super) fn resume(mut self, steps: DirSteps, result: io::Result<u32>) -> Progress {
        let DataOp {
            from,
            room,
            what,
            stage,
        } = match steps {
            DirSteps::Job(reply) => {
                return Progress::Done(reply.take().map(|done| match done {
                    JobDone::Output(output) => output,
                    JobDone::Ready(..) | JobDone::Size(_) | JobDone::Settled => {
                        unreachable!("asked for an operation")
                    }
                }));
            }
            DirSteps::Data(data) => data,
        };
        (self.from, self.room) = (from, room);
        match stage {
            TaskStage::Opening(reply) => match reply.take() {
                Ok(JobDone::Ready(ready, room)) => {
                    self.room = room;
                    self.begin(what, ready)
                }
                Ok(_) => unreachable!("asked for a descriptor"),
                Err(error) => Progress::Done(Err(error)),
            },
            TaskStage::Sizing(reply) => Progress::Done(match (reply.take(), what) {
                (Ok(JobDone::Size(size)), DataKind::Read { offset, done, .. }) => {
                    Ok(Output::Read {
                        len: done,
                        is_end: offset + u64::from(done) >= size,
                    })
                }
                (Ok(_), _) => unreachable!("asked for the size of what is read"),
                (Err(error), _) => Err(error),
            }),
            TaskStage::Moving(entry, fd, is_direct) => match result {
                // Where the kernel does not say what alignment it wants, it may want more.
                Err(error) if is_direct && error.kind() == io::ErrorKind::InvalidInput => {
                    fd.give_up_direct();
                    self.inner.tell_cached(&error);
                    self.go_on(what, ReadyFile { entry, fd })
                }
                result => self.moved(what, ReadyFile { entry, fd }, result),
            },
            TaskStage::Settling(reply, entry, fd) => match reply.take() {
                Ok(_) => self.settled(what, ReadyFile { entry, fd }),
                Err(error) => Progress::Done(Err(error)),
            },
            TaskStage::Syncing(entry, fd) => self.synced(what, ReadyFile { entry, fd }, result),
            TaskStage::Waiting(entry, fd, number) => {
                self.sync(what, ReadyFile { entry, fd }, number)
            }
        }
    }

    /// The file is ready.
    fn begin(self, mut what: DataKind, ready: ReadyFile) -> Progress {
        match &mut what {
            DataKind::Read { .. } => {}
            DataKind::Write { failures, .. } => *failures = ready.entry.syncs.failures(),
            DataKind::Commit { failures } => {
                *failures = ready.entry.syncs.failures();
                let number = ready.entry.syncs.next();
                return self.sync(what, ready, number);
            }
        }
        self.go_on(what, ready)
    }

    /// Hands the rest to the reactor.
    fn go_on(self, what: DataKind, ready: ReadyFile) -> Progress {
        let TaskTurn {
            files,
            token,
            from,
            room,
            ..
        } = self;
        let ReadyFile { entry, fd } = ready;
        let is_direct = match what {
            DataKind::Read { offset, buf, done } => {
                let at = offset.saturating_add(done.into());
                if at > FILE_BYTES_MAX {
                    // No file goes that far.
                    let is_end = true;
                    return Progress::Done(Ok(Output::Read { len: done, is_end }));
                }
                let rest = buf.slice(done, buf.len() - done);
                let (mover, is_direct) = fd.mover(rest, at);
                files.read_at(mover, rest, at, token);
                is_direct
            }
            DataKind::Write {
                offset, buf, done, ..
            } => {
                if buf.is_empty() {
                    // Nothing is to be written, and that is as stable as can be.
                    return Progress::Done(Ok(Output::Written(Written {
                        len: 0,
                        is_stable: true,
                    })));
                }
                let rest = buf.slice(done, buf.len() - done);
                let at = offset + u64::from(done);
                let (mover, is_direct) = fd.mover(rest, at);
                files.write_at(mover, rest, at, false, token);
                is_direct
            }
            DataKind::Commit { .. } => unreachable!("a COMMIT moves nothing"),
        };
        let stage = TaskStage::Moving(entry, fd, is_direct);
        pending(DirSteps::Data(DataOp {
            from,
            room,
            what,
            stage,
        }))
    }

    /// The reactor is done with a part.
    fn moved(self, what: DataKind, ready: ReadyFile, result: io::Result<u32>) -> Progress {
        let moved = match result {
            Ok(moved) => moved,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return self.go_on(what, ready);
            }
            // What was written counts; the rest will be tried again, and refused.
            Err(_) if matches!(what, DataKind::Write { done: 1.., .. }) => {
                return self.written(what, ready);
            }
            Err(error) => return Progress::Done(Err(error.into())),
        };
        match what {
            DataKind::Read { offset, buf, done } => {
                self.was_read((offset, buf, done), moved, ready)
            }
            DataKind::Commit { .. } => unreachable!("a COMMIT moves nothing"),
            DataKind::Write {
                offset,
                buf,
                is_stable,
                done,
                failures,
            } => {
                let done = done + moved;
                let end = offset + u64::from(done);
                self.inner.entries.written(&ready.entry, end);
                let what = DataKind::Write {
                    offset,
                    buf,
                    is_stable,
                    done,
                    failures,
                };
                match done < buf.len() && moved > 0 {
                    true => self.go_on(what, ready),
                    false => self.written(what, ready),
                }
            }
        }
    }

    /// As much is written as will be. What was asked to be stable is never answered
    /// with less (RFC 8881, section 18.32.3), however short it is.
    fn written(mut self, what: DataKind, ready: ReadyFile) -> Progress {
        let may_have_grown = self.room.credit.is_some() || self.may_grow(&what, &ready.entry);
        if !may_have_grown {
            return self.settled(what, ready);
        }
        let ReadyFile { entry, fd } = ready;
        let ready = ReadyFile {
            entry: Arc::clone(&entry),
            fd: Arc::clone(&fd),
        };
        let room = mem::take(&mut self.room);
        let superuser = self.superuser();
        match self.job(&superuser, ThreadWork::Settle(ready, room)) {
            Ok(reply) => self.pending(what, TaskStage::Settling(reply, entry, fd)),
            // It counts when the file is closed.
            Err(_) => self.settled(what, ReadyFile { entry, fd }),
        }
    }

    fn pending(self, what: DataKind, stage: TaskStage) -> Progress {
        pending(DirSteps::Data(DataOp {
            from: self.from,
            room: self.room,
            what,
            stage,
        }))
    }

    fn superuser(&self) -> Caller<'static> {
        Caller {
            uid: 0,
            gid: 0,
            gids: &[],
            now: crate::fs::Time::default(),
            is_open: true,
            from: self.from,
        }
    }

    /// What was written counts.
    fn settled(self, what: DataKind, ready: ReadyFile) -> Progress {
        let number = ready.entry.syncs.next();
        match what {
            DataKind::Write { buf, done, .. }
                if done < buf.len() && faults::is(Fault::ShortUnsynced) =>
            {
                Progress::Done(Ok(what.output()))
            }
            DataKind::Write {
                is_stable: true, ..
            } => self.sync(what, ready, number),
            _ => Progress::Done(Ok(what.output())),
        }
    }

    /// Brings the file to the disk, by the sync of this number or a later one.
    fn sync(self, what: DataKind, ready: ReadyFile, number: u64) -> Progress {
        let TaskTurn {
            files,
            token,
            from,
            room,
            ..
        } = self;
        let ReadyFile { entry, fd } = ready;
        if let Err(error) = what.check(&entry) {
            return Progress::Done(Err(error));
        }
        let stage = match entry.syncs.join(number, || files.ticket(token)) {
            // It may have ended, and failed, since the look above.
            Sync::Ended => return Progress::Done(what.check(&entry).map(|()| what.output())),
            Sync::Wait => TaskStage::Waiting(entry, fd, number),
            Sync::Begin => {
                files.sync_data(fd.file(), token);
                TaskStage::Syncing(entry, fd)
            }
        };
        pending(DirSteps::Data(DataOp {
            from,
            room,
            what,
            stage,
        }))
    }

    /// The reactor has synced the file, for all that wait for that.
    fn synced(self, what: DataKind, ready: ReadyFile, result: io::Result<u32>) -> Progress {
        let result = result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        if result == Err(Errno::INTR) {
            let TaskTurn {
                files,
                token,
                from,
                room,
                ..
            } = self;
            files.sync_data(ready.fd.file(), token);
            let stage = TaskStage::Syncing(ready.entry, ready.fd);
            return pending(DirSteps::Data(DataOp {
                from,
                room,
                what,
                stage,
            }));
        }
        self.inner.file_synced(&ready.entry, result.map(|_| ()));
        Progress::Done(what.check(&ready.entry).map(|()| what.output()))
    }

    fn was_read(
        mut self,
        (offset, buf, done): (u64, BufRange, u32),
        moved: u32,
        ready: ReadyFile,
    ) -> Progress {
        let done = done + moved;
        let at = offset.saturating_add(done.into());
        let known = ready.entry.size();
        let what = DataKind::Read { offset, buf, done };
        if done < buf.len() && moved > 0 && at < known {
            // Cut short in the middle of the file.
            return self.go_on(what, ready);
        }
        if done < buf.len() || at < known {
            let is_end = done < buf.len();
            return Progress::Done(Ok(Output::Read { len: done, is_end }));
        }
        // All is there, and the file ends here unless it has grown.
        let superuser = self.superuser();
        match self.job(&superuser, ThreadWork::Size(ready)) {
            Ok(reply) => self.pending(what, TaskStage::Sizing(reply)),
            Err(error) => Progress::Done(Err(error)),
        }
    }
}
