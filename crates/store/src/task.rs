//! An I/O that is under way: opaque to its driver, and for each kind of volume what that
//! needs to go on.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use reactor::{FileIo, Token};

use crate::io::{Error, Io};
use crate::kept::Saving;
use crate::locks::StripePlace;
use crate::over::{CompositeTask, MirrorTask};

/// Low bits of a token that are a volume's: which of the volumes below something
/// completes for. They are 0 in the token that an I/O is started with, and come back as
/// the completion has them.
pub const LEG_BITS: u32 = 8;

/// How a started I/O stands.
#[must_use]
#[derive(Debug)]
pub enum Progress {
    /// It is over.
    Done(Result<(), Error>),
    /// A completion is to come; it goes to [`crate::Volume::resume`] together
    /// with this task.
    Pending(Task),
}

/// What an unfinished I/O needs to go on; kept by its driver until its
/// completion has come, also when its command is gone by then: the kernel
/// may be at its memory, and the range that it covers is closed to others
/// meanwhile. Only one that [waits](Task::is_waiting) may be dropped.
#[derive(Debug)]
pub struct Task(TaskKind);

/// Those of volumes that are made of no others take no memory of their own.
#[derive(Debug)]
enum TaskKind {
    File(FileTask),
    Ram(RamTask),
    Composite(Box<CompositeTask>),
    Mirror(Box<MirrorTask>),
    Parked(Box<dyn Parked>),
}

/// What a kind of volume outside this crate keeps of an I/O that is under way: of
/// one that a thread or a device of its own is at, which rings its
/// [`reactor::Ticket`] at the end, or of one that goes on on other volumes, with
/// their tasks.
pub trait Parked: Any + Debug + Send {
    /// See [`Task::is_waiting`].
    fn is_waiting(&self) -> bool {
        false
    }

    /// See [`Task::cancel`].
    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {}
}

impl Task {
    /// The task of an I/O of which `state` is all that its volume needs to go on.
    pub fn parked(state: impl Parked) -> Task {
        Task(TaskKind::Parked(Box::new(state)))
    }

    /// What [`Task::parked`] was given; the task itself where that was no `T`: then
    /// it is one of a volume below, which goes on with it.
    pub fn unpark<T: Parked>(self) -> Result<T, Task> {
        match self.0 {
            TaskKind::Parked(state) if (&*state as &dyn Any).is::<T>() => {
                let state: Box<dyn Any> = state;
                Ok(*state.downcast().expect("it was looked at"))
            }
            kind => Err(Task(kind)),
        }
    }

    /// Whether it has not begun: another I/O is in its way. Dropping it then
    /// takes it back; its completion may still come, or not.
    pub fn is_waiting(&self) -> bool {
        match &self.0 {
            TaskKind::File(task) => matches!(task.wait, Some(TaskWait::Range(_))),
            TaskKind::Ram(_) => false,
            TaskKind::Composite(task) => task.is_waiting(),
            TaskKind::Mirror(task) => task.is_waiting(),
            TaskKind::Parked(state) => state.is_waiting(),
        }
    }

    /// It is not wanted any more: it ends at the next completion, with ECANCELED
    /// if it was not over then anyway. One that has begun to change the volume
    /// goes on to its end, lest half of it stays. `files` and `token` are those that it
    /// was started with.
    pub fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        match &mut self.0 {
            TaskKind::File(task) => {
                task.is_canceled = true;
                files.cancel_file(token);
            }
            TaskKind::Ram(_) => {}
            TaskKind::Composite(task) => task.cancel(files, token),
            TaskKind::Mirror(task) => task.cancel(files, token),
            TaskKind::Parked(state) => state.cancel(files, token),
        }
    }

    /// That of a file or a device, which no other volume has in its stead.
    pub(crate) fn into_file(self) -> FileTask {
        match self.0 {
            TaskKind::File(task) => task,
            other => unreachable!("the task of another volume: {other:?}"),
        }
    }

    /// The same of a volume that is made of others.
    pub(crate) fn into_composite(self) -> Box<CompositeTask> {
        match self.0 {
            TaskKind::Composite(task) => task,
            other => unreachable!("the task of another volume: {other:?}"),
        }
    }

    /// The same of a mirror.
    pub(crate) fn into_mirror(self) -> Box<MirrorTask> {
        match self.0 {
            TaskKind::Mirror(task) => task,
            other => unreachable!("the task of another volume: {other:?}"),
        }
    }

    /// The same of a RAM volume.
    pub(crate) fn into_ram(self) -> RamTask {
        match self.0 {
            TaskKind::Ram(task) => task,
            other => unreachable!("the task of another volume: {other:?}"),
        }
    }
}

impl From<Box<CompositeTask>> for Progress {
    fn from(task: Box<CompositeTask>) -> Progress {
        Progress::Pending(Task(TaskKind::Composite(task)))
    }
}

impl From<Box<MirrorTask>> for Progress {
    fn from(task: Box<MirrorTask>) -> Progress {
        Progress::Pending(Task(TaskKind::Mirror(task)))
    }
}

/// A range of a RAM volume that is changed in steps.
#[derive(Debug)]
pub(crate) struct RamTask {
    pub(crate) io: Io,
    /// Bytes that are done.
    pub(crate) done_bytes: u64,
}

impl From<RamTask> for Progress {
    fn from(task: RamTask) -> Progress {
        Progress::Pending(Task(TaskKind::Ram(task)))
    }
}

/// An I/O of a file or a device.
#[derive(Debug)]
pub(crate) struct FileTask {
    pub(crate) io: Io,
    /// Bytes transferred so far.
    pub(crate) done_bytes: u64,
    pub(crate) step: FileStep,
    /// Times that an operation was interrupted and issued again.
    pub(crate) retries: u8,
    pub(crate) is_canceled: bool,
    /// Whether it has the range that it needs.
    pub(crate) holds: bool,
    /// What it waits for, if not for the file operation of its step.
    pub(crate) wait: Option<TaskWait>,
}

impl FileTask {
    pub(crate) fn new(io: Io) -> FileTask {
        FileTask {
            io,
            done_bytes: 0,
            step: FileStep::Sync,
            retries: 0,
            is_canceled: false,
            holds: false,
            wait: None,
        }
    }
}

impl From<FileTask> for Progress {
    fn from(task: FileTask) -> Progress {
        Progress::Pending(Task(TaskKind::File(task)))
    }
}

/// What a task waits for besides file operations.
#[derive(Debug)]
pub(crate) enum TaskWait {
    /// Its range.
    Range(Box<StripePlace>),
    /// What is remembered beside the data is being saved.
    Save(Arc<Saving>),
}

/// The file operation that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileStep {
    /// Data that is read, into the task's buffer or its scratch memory.
    Fetch,
    /// Data of a write, durable if the I/O is.
    Transfer,
    /// Data of a durable write, to be synced afterwards.
    TransferThenSync,
    /// A hole.
    Punch,
    /// Zeros without writing them.
    ZeroRange,
    /// Zeros written as data.
    WriteZeros,
    /// Everything written so far.
    Sync,
    /// The same, so that marks on what was written can be taken away.
    SyncThenUnmark,
}
