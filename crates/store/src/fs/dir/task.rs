//! An operation under way: one that a thread does, or data that goes through
//! the reactor.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::mem::BufRange;
use faults::Fault;
use reactor::{FileIo, Token};
use rustix::io::Errno;

use super::content::Ready;
use super::file_syncs::Sync;
use super::opens::Entry;
use super::workers::{Credentials, Done, Job, Reply, Work, names_of, with_names};
use super::{FILE_BYTES_MAX, Inner};
use crate::fs::{Asker, Caller, Error, FileId, Op, Output, Progress, Task, Written};

/// What an unfinished operation needs to go on.
pub(crate) enum Steps {
    /// A thread does it.
    Job(Arc<Reply>),
    Data(Data),
}

/// A read, a write or a COMMIT.
pub(crate) struct Data {
    from: Asker,
    what: What,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum What {
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

enum Stage {
    /// A thread looks for the file.
    Opening(Arc<Reply>),
    /// The reactor moves data.
    Moving(Arc<Entry>, Arc<OwnedFd>),
    /// A thread looks whether the file ends here.
    Sizing(Arc<Reply>),
    /// The reactor syncs the file.
    Syncing(Arc<Entry>, Arc<OwnedFd>),
    /// Another sync of the file is under way; then that of this number is wanted.
    Waiting(Arc<Entry>, Arc<OwnedFd>, u64),
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Steps::Job(_) => f.write_str("Steps(job)"),
            Steps::Data(data) => write!(f, "Steps({:?})", data.what),
        }
    }
}

impl Steps {
    pub(crate) fn copied_bytes(&self) -> u64 {
        match self {
            Steps::Job(reply) => reply.copied.load(Ordering::Acquire),
            Steps::Data(_) => 0,
        }
    }

    pub(crate) fn cancel(&mut self) {
        if let Steps::Job(reply) = self {
            reply.is_canceled.store(true, Ordering::Release);
        }
    }
}

/// The file of a data operation, and what is to be done with it.
fn data_of(op: &Op<'_>) -> Option<(FileId, What)> {
    match *op {
        Op::Read { file, offset, buf } => {
            let done = 0;
            Some((file, What::Read { offset, buf, done }))
        }
        Op::Write {
            file,
            offset,
            buf,
            is_stable,
        } => Some((
            file,
            What::Write {
                offset,
                buf,
                is_stable,
                done: 0,
                failures: 0,
            },
        )),
        Op::Commit { file } => Some((file, What::Commit { failures: 0 })),
        _ => None,
    }
}

impl What {
    /// What came of it, if all is well.
    fn output(&self) -> Output {
        match *self {
            What::Read { .. } => unreachable!("a read says where the file ends"),
            What::Write {
                done, is_stable, ..
            } => Output::Written(Written {
                len: done,
                is_stable,
            }),
            What::Commit { .. } => Output::Done,
        }
    }

    /// Whether no sync of the file has failed since it began.
    fn check(&self, entry: &Entry) -> Result<(), Error> {
        match *self {
            What::Read { .. } => Ok(()),
            What::Write { failures, .. } | What::Commit { failures } => {
                Ok(entry.syncs.check(failures)?)
            }
        }
    }
}

fn pending(steps: Steps) -> Progress {
    Progress::Pending(Task::of_dir(steps))
}

/// Where an operation's completions come from and go to.
pub(super) struct Turn<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) files: &'a mut dyn FileIo,
    pub(super) token: Token,
    /// Whose it is.
    pub(super) from: Asker,
}

impl Turn<'_> {
    pub(super) fn start(mut self, caller: &Caller<'_>, op: Op<'_>) -> Progress {
        let Some((file, what)) = data_of(&op) else {
            let work = Work::Op(with_names(op, b"", b""), names_of(&op));
            return match self.job(caller, work) {
                Ok(reply) => pending(Steps::Job(reply)),
                Err(error) => Progress::Done(Err(error)),
            };
        };
        let write = !matches!(what, What::Read { .. });
        if let What::Write { offset, buf, .. } = what
            && offset.saturating_add(buf.len().into()) > self.inner.info.file_bytes_max
        {
            return Progress::Done(Err(Error::FBig));
        }
        let entry = self.inner.entries.get(file);
        if let Some((entry, granted)) =
            entry.and_then(|entry| entry.quick(caller, write).map(|granted| (entry, granted)))
        {
            return match granted {
                Ok(fd) => self.begin(what, Ready { entry, fd }),
                Err(error) => Progress::Done(Err(error)),
            };
        }
        match self.job(caller, Work::Ready { file, write }) {
            Ok(reply) => {
                let (from, stage) = (caller.from, Stage::Opening(reply));
                pending(Steps::Data(Data { from, what, stage }))
            }
            Err(error) => Progress::Done(Err(error)),
        }
    }

    fn job(&mut self, caller: &Caller<'_>, work: Work) -> Result<Arc<Reply>, Error> {
        let reply = Arc::new(Reply::default());
        let job = Job {
            inner: Arc::clone(self.inner),
            caller: Credentials::of(caller),
            work,
            reply: Arc::clone(&reply),
            ticket: Some(self.files.ticket(self.token)),
        };
        self.inner.workers.start(job).map(|()| reply)
    }

    pub(super) fn resume(mut self, steps: Steps, result: io::Result<u32>) -> Progress {
        let Data { from, what, stage } = match steps {
            Steps::Job(reply) => {
                return Progress::Done(reply.take().map(|done| match done {
                    Done::Output(output) => output,
                    Done::Ready(_) | Done::Size(_) => unreachable!("asked for an operation"),
                }));
            }
            Steps::Data(data) => data,
        };
        self.from = from;
        match stage {
            Stage::Opening(reply) => match reply.take() {
                Ok(Done::Ready(ready)) => self.begin(what, ready),
                Ok(_) => unreachable!("asked for a descriptor"),
                Err(error) => Progress::Done(Err(error)),
            },
            Stage::Sizing(reply) => Progress::Done(match (reply.take(), what) {
                (Ok(Done::Size(size)), What::Read { offset, done, .. }) => Ok(Output::Read {
                    len: done,
                    is_end: offset + u64::from(done) >= size,
                }),
                (Ok(_), _) => unreachable!("asked for the size of what is read"),
                (Err(error), _) => Err(error),
            }),
            Stage::Moving(entry, fd) => self.moved(what, Ready { entry, fd }, result),
            Stage::Syncing(entry, fd) => self.synced(what, Ready { entry, fd }, result),
            Stage::Waiting(entry, fd, number) => self.sync(what, Ready { entry, fd }, number),
        }
    }

    /// The file is ready.
    fn begin(self, mut what: What, ready: Ready) -> Progress {
        match &mut what {
            What::Read { .. } => {}
            What::Write { failures, .. } => *failures = ready.entry.syncs.failures(),
            What::Commit { failures } => {
                *failures = ready.entry.syncs.failures();
                let number = ready.entry.syncs.next();
                return self.sync(what, ready, number);
            }
        }
        self.go_on(what, ready)
    }

    /// Hands the rest to the reactor.
    fn go_on(self, what: What, ready: Ready) -> Progress {
        let Turn {
            files, token, from, ..
        } = self;
        let Ready { entry, fd } = ready;
        match what {
            What::Read { offset, buf, done } => {
                let at = offset.saturating_add(done.into());
                if at > FILE_BYTES_MAX {
                    // No file goes that far.
                    let is_end = true;
                    return Progress::Done(Ok(Output::Read { len: done, is_end }));
                }
                files.read_at(&fd, buf.slice(done, buf.len() - done), at, token);
            }
            What::Write {
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
                files.write_at(&fd, rest, offset + u64::from(done), false, token);
            }
            What::Commit { .. } => unreachable!("a COMMIT moves nothing"),
        }
        let stage = Stage::Moving(entry, fd);
        pending(Steps::Data(Data { from, what, stage }))
    }

    /// The reactor is done with a part.
    fn moved(self, what: What, ready: Ready, result: io::Result<u32>) -> Progress {
        let moved = match result {
            Ok(moved) => moved,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return self.go_on(what, ready);
            }
            // What was written counts; the rest will be tried again, and refused.
            Err(_) if matches!(what, What::Write { done: 1.., .. }) => {
                return self.written(what, ready);
            }
            Err(error) => return Progress::Done(Err(error.into())),
        };
        match what {
            What::Read { offset, buf, done } => self.was_read((offset, buf, done), moved, ready),
            What::Commit { .. } => unreachable!("a COMMIT moves nothing"),
            What::Write {
                offset,
                buf,
                is_stable,
                done,
                failures,
            } => {
                let done = done + moved;
                let end = offset + u64::from(done);
                self.inner.entries.written(&ready.entry, end);
                let what = What::Write {
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
    fn written(self, what: What, ready: Ready) -> Progress {
        let number = ready.entry.syncs.next();
        match what {
            What::Write { buf, done, .. }
                if done < buf.len() && faults::is(Fault::ShortUnsynced) =>
            {
                Progress::Done(Ok(what.output()))
            }
            What::Write {
                is_stable: true, ..
            } => self.sync(what, ready, number),
            _ => Progress::Done(Ok(what.output())),
        }
    }

    /// Brings the file to the disk, by the sync of this number or a later one.
    fn sync(self, what: What, ready: Ready, number: u64) -> Progress {
        let Turn {
            files, token, from, ..
        } = self;
        let Ready { entry, fd } = ready;
        if let Err(error) = what.check(&entry) {
            return Progress::Done(Err(error));
        }
        let stage = match entry.syncs.join(number, || files.ticket(token)) {
            // It may have ended, and failed, since the look above.
            Sync::Ended => return Progress::Done(what.check(&entry).map(|()| what.output())),
            Sync::Wait => Stage::Waiting(entry, fd, number),
            Sync::Begin => {
                files.sync_data(&fd, token);
                Stage::Syncing(entry, fd)
            }
        };
        pending(Steps::Data(Data { from, what, stage }))
    }

    /// The reactor has synced the file, for all who wait for that.
    fn synced(self, what: What, ready: Ready, result: io::Result<u32>) -> Progress {
        let result = result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        if result == Err(Errno::INTR) {
            let Turn {
                files, token, from, ..
            } = self;
            files.sync_data(&ready.fd, token);
            let stage = Stage::Syncing(ready.entry, ready.fd);
            return pending(Steps::Data(Data { from, what, stage }));
        }
        self.inner.file_synced(&ready.entry, result.map(|_| ()));
        Progress::Done(what.check(&ready.entry).map(|()| what.output()))
    }

    fn was_read(
        mut self,
        (offset, buf, done): (u64, BufRange, u32),
        moved: u32,
        ready: Ready,
    ) -> Progress {
        let done = done + moved;
        let at = offset.saturating_add(done.into());
        let known = ready.entry.size();
        let what = What::Read { offset, buf, done };
        if done < buf.len() && moved > 0 && at < known {
            // Cut short in the middle of the file.
            return self.go_on(what, ready);
        }
        if done < buf.len() || at < known {
            let is_end = done < buf.len();
            return Progress::Done(Ok(Output::Read { len: done, is_end }));
        }
        // All is there, and the file ends here unless it has grown.
        let nobody = Caller {
            uid: 0,
            gid: 0,
            gids: &[],
            now: crate::fs::Time::default(),
            is_open: true,
            from: self.from,
        };
        let from = self.from;
        match self.job(&nobody, Work::Size(ready)) {
            Ok(reply) => {
                let stage = Stage::Sizing(reply);
                pending(Steps::Data(Data { from, what, stage }))
            }
            Err(error) => Progress::Done(Err(error)),
        }
    }
}
