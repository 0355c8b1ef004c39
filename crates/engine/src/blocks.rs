//! The way of a command through its volumes: one I/O, or one after the other,
//! at once or when the kernel is done.

use std::io;
use std::sync::Arc;

use link::CommandMemory;
use machine::{Tag, work};
use mem::{BUF_BYTES_MAX, Buf, BufRange};
use reactor::{Driver, FileIo, Token};
use store::meter::IoOp;
use store::{Error, Progress, Task, Volume};

use crate::connection::Core;
use crate::job::{AnswerSource, Job};
use crate::payload::{self, Writing};
use crate::protocol::Protocol;
use crate::refusals::{Refusal, RefusalKind};
use crate::steps::{IoStep, Steps};
use crate::token::{JobId, Subject};

/// What is left to do when the volume has done its part.
pub enum AfterIo<A> {
    /// Complete.
    Complete {
        /// With this much data to the peer.
        data_len: u32,
    },
    /// Complete; the buffer was the volume's to work with.
    Scratch {
        /// Kept until then.
        _buf: Buf,
    },
    /// Complete this command, then the one that it came with.
    Both {
        /// The first of the two.
        first: Tag,
        /// Kept until then.
        _scratch: Buf,
    },
    /// More to do, on this volume or others.
    Steps(Box<Steps<A>>),
}

impl<A: 'static> AfterIo<A> {
    /// Whether what is left will be done on this volume.
    pub fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        matches!(self, AfterIo::Steps(steps) if steps.touches(volume))
    }
}

/// Where the answer to a command comes from whose protocol serves volumes.
pub enum VolumeWork<A> {
    /// The volume is at it.
    Volume(OnVolume<A>),
    /// It goes on when others have had their turn.
    Turn(Box<Steps<A>>),
    /// Another thread answers by mail, see [`crate::later::Later`].
    Elsewhere,
}

/// A command whose volume is at it.
pub struct OnVolume<A> {
    /// The volume.
    pub volume: Arc<dyn Volume>,
    /// Its index in what the connection is served.
    pub unit: u32,
    /// First byte of what the volume is at.
    pub offset: u64,
    /// What it is at.
    pub task: Task,
    /// What is left to do.
    pub then: AfterIo<A>,
}

impl<A: 'static> AnswerSource for VolumeWork<A> {
    fn elsewhere() -> Self {
        VolumeWork::Elsewhere
    }

    fn has_begun(&self) -> bool {
        match self {
            VolumeWork::Volume(on) => !on.task.is_waiting(),
            VolumeWork::Turn(_) => false,
            VolumeWork::Elsewhere => true,
        }
    }

    fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        if let VolumeWork::Volume(on) = self {
            on.task.cancel(files, token);
        }
    }

    fn resume(self, result: io::Result<u32>, files: &mut dyn FileIo, token: Token) -> Option<Self> {
        let VolumeWork::Volume(on) = self else {
            return None;
        };
        match on.volume.resume(on.task, result, files, token) {
            Progress::Pending(task) => Some(VolumeWork::Volume(OnVolume { task, ..on })),
            Progress::Done(_) => None,
        }
    }

    fn partner(&self) -> Option<Tag> {
        match self {
            VolumeWork::Volume(OnVolume {
                then: AfterIo::Both { first, .. },
                ..
            }) => Some(*first),
            _ => None,
        }
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        match self {
            VolumeWork::Volume(on) => Arc::ptr_eq(&on.volume, volume) || on.then.touches(volume),
            VolumeWork::Turn(steps) => steps.touches(volume),
            VolumeWork::Elsewhere => false,
        }
    }
}

/// A protocol whose commands go to volumes.
pub trait Blocks: Protocol<Job = VolumeWork<<Self as Protocol>::Answer>> {
    /// The volume at an index of what is served here.
    fn volume(&self, unit: u32) -> Option<&Arc<dyn Volume>>;

    /// What it has as every connection, and the volume of a command that begins.
    fn core_and_volume(&mut self, unit: u32) -> (&mut Core<Self>, &Arc<dyn Volume>);

    /// What a command that goes to a volume does there, and with how many bytes.
    fn io_of(&self, tag: Tag) -> (IoOp, u64);

    /// An I/O has succeeded, and with it the command, which has so much data
    /// for the peer.
    fn succeeded(&mut self, tag: Tag, data_len: u32, then: AfterIo<Self::Answer>);

    /// An I/O has failed at a byte of a volume, and with it the command.
    fn failed(
        &mut self,
        tag: Tag,
        at: (u32, u64),
        error: store::Error,
        then: AfterIo<Self::Answer>,
    );
}

/// What became of a write.
pub enum WriteStart {
    /// It has begun, or is over.
    Begun,
    /// Its volume has no memory for it now: it can be tried again.
    Busy,
    /// There is no buffer for what lies where it was staged.
    NoBuffer,
}

/// A job that goes on: its place, and when it began.
pub type KeptJob = Option<(JobId, u64)>;

impl<P: Protocol> Core<P> {
    /// The command waits for its volume or its file system, or for its turn.
    #[inline]
    pub fn keep(&mut self, tag: Tag, kept: KeptJob, work: P::Job) {
        let mut jobs = self.jobs.borrow_mut();
        match kept {
            Some((id, mark)) => jobs.reinsert(id, Job::new(self.id(), tag, mark, work)),
            None => {
                let id = jobs.vacant();
                jobs.insert(id, self.id(), tag, work);
                self.jobs_open += 1;
            }
        }
    }

    /// The command waits for nothing any more.
    #[inline]
    pub fn let_go(&mut self, kept: KeptJob) {
        if let Some((id, _)) = kept {
            self.jobs.borrow_mut().release(id);
            self.jobs_open -= 1;
        }
    }
}

/// What a connection does with its volumes.
pub trait OnVolumes: Blocks {
    /// The volume has done its part at once.
    #[inline]
    fn finish<D: Driver>(
        &mut self,
        tag: Tag,
        at: (u32, u64),
        result: Result<(), Error>,
        then: AfterIo<Self::Answer>,
        driver: &D,
    ) {
        let left = self.ended(tag, at, result, then, driver);
        assert!(left.is_none(), "a read or write is one step");
    }

    /// Starts the only I/O of a command, or the first.
    #[inline]
    fn start<D: Driver>(
        &mut self,
        tag: Tag,
        unit: u32,
        io: store::Io,
        then: AfterIo<Self::Answer>,
        driver: &mut D,
    ) {
        let id = self.core().jobs.borrow_mut().vacant();
        self.core_mut().begins_backend(tag, driver);
        let progress = volume_of(self, unit).start(io, driver, Subject::File(id).token());
        started(self, tag, (unit, io), then, progress, driver);
    }

    /// Starts the read of a command, of `len` bytes: without a copy where the volume
    /// lends them. What is read `durable` is on the medium when the command ends: it is
    /// flushed last, as what another writes after a flush may be read. False while memory
    /// is short.
    #[inline]
    fn read_volume<D: Driver>(
        &mut self,
        tag: Tag,
        (unit, offset): (u32, u64),
        len: u32,
        durable: bool,
        driver: &mut D,
    ) -> bool {
        self.core_mut().begins_backend(tag, driver);
        let volume = volume_of(self, unit);
        let durable = durable && volume.info().volatile_cache;
        let then = AfterIo::Complete { data_len: len };
        if !durable && let Some(loan) = volume.lend(offset, len) {
            let data = CommandMemory::loan(loan);
            self.core_mut().link.set_data(tag, data);
            self.finish(tag, (unit, offset), Ok(()), then, driver);
            return true;
        }
        let Some(data) = CommandMemory::from_pool(&self.core().pool, len) else {
            return false;
        };
        let link = &mut self.core_mut().link;
        link.set_data(tag, data);
        if durable || len > BUF_BYTES_MAX {
            let pieces = pieces(offset, link.ranges(tag));
            let reads = pieces.map(|(offset, buf)| store::Io::Read { offset, buf });
            let flush = durable.then_some(store::Io::Flush);
            let steps = Steps::on(unit, volume_of(self, unit), reads.chain(flush), None);
            self.go_on(tag, None, steps.with_data(len), driver);
            return true;
        }
        let buf = link.range(tag).expect("one buffer");
        self.start(tag, unit, store::Io::Read { offset, buf }, then, driver);
        true
    }

    /// Starts the write of a command all of whose data is there.
    #[inline]
    fn write_volume<D: Driver>(
        &mut self,
        tag: Tag,
        (unit, offset): (u32, u64),
        durable: bool,
        driver: &mut D,
    ) -> WriteStart {
        let (core, volume) = self.core_and_volume(unit);
        core.begins_backend(tag, driver);
        let to = (&**volume, offset);
        let then = AfterIo::Complete { data_len: 0 };
        let get = |len| core.pool.get_to_finish(len);
        match payload::write(&mut core.link, tag, to, get) {
            Err(Error::Busy) => return WriteStart::Busy,
            Ok(Writing::NoMemory) => return WriteStart::NoBuffer,
            Ok(Writing::Ask) => {}
            done => {
                self.finish(tag, (unit, offset), done.map(drop), then, driver);
                return WriteStart::Begun;
            }
        }
        let write = move |(offset, buf)| store::Io::Write {
            offset,
            buf,
            durable,
        };
        let Some(buf) = core.link.range(tag) else {
            let parts = core.link.ranges(tag);
            assert!(!parts.is_empty(), "a write has its data");
            let writes = pieces(offset, parts).map(write);
            let steps = Steps::on(unit, volume, writes, None);
            self.go_on(tag, None, steps, driver);
            return WriteStart::Begun;
        };
        match self.start_unless_busy(tag, unit, write((offset, buf)), then, driver) {
            true => WriteStart::Begun,
            false => WriteStart::Busy,
        }
    }

    /// Starts an I/O that no command waits for.
    fn start_unawaited<D: Driver>(
        &mut self,
        volume: &Arc<dyn Volume>,
        unit: u32,
        io: store::Io,
        driver: &mut D,
    ) {
        let id = self.core().jobs.borrow_mut().vacant();
        let progress = volume.start(io, driver, Subject::File(id).token());
        if let Progress::Pending(task) = progress {
            let on = OnVolume {
                volume: volume.clone(),
                unit,
                offset: io.extent().0,
                task,
                then: AfterIo::Complete { data_len: 0 },
            };
            let mut jobs = self.core().jobs.borrow_mut();
            jobs.insert_orphan(id, VolumeWork::Volume(on));
        }
    }

    /// As [`Connection::start`], but of a volume that has no memory for it now:
    /// false, nothing was done.
    #[inline]
    fn start_unless_busy<D: Driver>(
        &mut self,
        tag: Tag,
        unit: u32,
        io: store::Io,
        then: AfterIo<Self::Answer>,
        driver: &mut D,
    ) -> bool {
        let id = self.core().jobs.borrow_mut().vacant();
        self.core_mut().begins_backend(tag, driver);
        let progress = volume_of(self, unit).start(io, driver, Subject::File(id).token());
        if let Progress::Done(Err(Error::Busy)) = progress {
            return false;
        }
        started(self, tag, (unit, io), then, progress, driver);
        true
    }

    /// Takes steps until one must be waited for, others are to have their turn,
    /// or none is left.
    fn go_on<D: Driver>(
        &mut self,
        tag: Tag,
        kept: KeptJob,
        mut steps: Box<Steps<Self::Answer>>,
        driver: &mut D,
    ) {
        if kept.is_none() && steps.begun() == 0 {
            self.core_mut().begins_backend(tag, driver);
        }
        while let Some(IoStep { unit, volume, io }) = steps.begin_next() {
            let id = kept.map_or_else(|| self.core().jobs.borrow_mut().vacant(), |(id, _)| id);
            work::spend(work::OPERATION_UNITS);
            let offset = io.extent().map_or(steps.from(), |(offset, _)| offset);
            match io.start(&*volume, driver, Subject::File(id).token()) {
                Progress::Pending(task) => {
                    let then = AfterIo::Steps(steps);
                    let on = OnVolume {
                        volume,
                        unit,
                        offset,
                        task,
                        then,
                    };
                    return self.core_mut().keep(tag, kept, VolumeWork::Volume(on));
                }
                Progress::Done(result) => {
                    let then = AfterIo::Steps(steps);
                    match self.ended(tag, (unit, offset), result, then, driver) {
                        Some(left) => steps = left,
                        None => return self.core_mut().let_go(kept),
                    }
                }
            }
            if work::is_used_up() {
                driver.ticket(Subject::File(id).token()).ring();
                return self.core_mut().keep(tag, kept, VolumeWork::Turn(steps));
            }
        }
        count(self, tag, steps.unit(), true, driver);
        self.succeeded(tag, steps.data_len(), AfterIo::Steps(steps));
        self.core_mut().let_go(kept);
    }

    /// File work of a command completed.
    #[inline]
    fn on_volume<D: Driver>(
        &mut self,
        id: JobId,
        job: Job<Self::Job>,
        result: io::Result<u32>,
        driver: &mut D,
    ) {
        let Job {
            tag, mark, work, ..
        } = job;
        let kept = Some((id.whole(), mark));
        let on = match work {
            VolumeWork::Volume(on) => on,
            VolumeWork::Turn(steps) => return self.go_on(tag, kept, steps, driver),
            VolumeWork::Elsewhere => unreachable!("file work is a volume's"),
        };
        let token = Subject::File(id).token();
        match on.volume.resume(on.task, result, driver, token) {
            Progress::Pending(task) => {
                self.core_mut()
                    .keep(tag, kept, VolumeWork::Volume(OnVolume { task, ..on }));
            }
            Progress::Done(result) => {
                match self.ended(tag, (on.unit, on.offset), result, on.then, driver) {
                    Some(steps) => self.go_on(tag, kept, steps, driver),
                    None => self.core_mut().let_go(kept),
                }
            }
        }
    }

    /// An I/O on a volume is over: its command is completed, or there are
    /// steps left.
    #[inline]
    fn ended<D: Driver>(
        &mut self,
        tag: Tag,
        (unit, offset): (u32, u64),
        result: Result<(), Error>,
        then: AfterIo<Self::Answer>,
        driver: &D,
    ) -> Option<Box<Steps<Self::Answer>>> {
        match (result, then) {
            (Ok(()), AfterIo::Steps(steps)) => return Some(steps),
            (Ok(()), then) => {
                let data_len = match then {
                    AfterIo::Complete { data_len } => data_len,
                    _ => 0,
                };
                count(self, tag, Some(unit), true, driver);
                self.succeeded(tag, data_len, then);
            }
            (Err(error), then) => {
                count(self, tag, Some(unit), false, driver);
                failed(self, tag, (unit, offset), error, then);
            }
        }
        None
    }

    /// Has it logged that an I/O failed.
    #[cold]
    fn log_failure(&self, unit: u32, error: store::Error) {
        let volume = Blocks::volume(self, unit);
        let core = self.core();
        core.shared.refusals.note(Refusal {
            peer: Some(core.via.peer),
            volume: volume.map(|volume| &*volume.info().name),
            ..Refusal::new(RefusalKind::VOLUME, &error)
        });
    }
}

impl<P: Blocks> OnVolumes for P {}

/// Where the parts of a command's data go on a volume, the first to `offset`.
fn pieces(offset: u64, parts: Vec<BufRange>) -> impl Iterator<Item = (u64, BufRange)> {
    (offset..).step_by(BUF_BYTES_MAX as usize).zip(parts)
}

#[inline]
fn volume_of<P: Blocks>(c: &P, unit: u32) -> &Arc<dyn Volume> {
    let volume = c.volume(unit);
    volume.expect("a command that begins has its volume")
}

#[inline]
fn started<P: Blocks, D: Driver>(
    c: &mut P,
    tag: Tag,
    (unit, io): (u32, store::Io),
    then: AfterIo<P::Answer>,
    progress: Progress,
    driver: &mut D,
) {
    match progress {
        Progress::Done(result) => {
            let at = (unit, io.extent().0);
            if let Some(steps) = c.ended(tag, at, result, then, driver) {
                c.go_on(tag, None, steps, driver);
            }
        }
        Progress::Pending(task) => {
            let on = OnVolume {
                volume: volume_of(c, unit).clone(),
                unit,
                offset: io.extent().0,
                task,
                then,
            };
            c.core_mut().keep(tag, None, VolumeWork::Volume(on));
        }
    }
}

/// Counts a command whose volume has done its part.
#[inline]
fn count<P: Blocks, D: Driver>(c: &mut P, tag: Tag, unit: Option<u32>, is_done: bool, driver: &D) {
    let (op, bytes) = c.io_of(tag);
    let took = c.core_mut().ends_backend(tag, driver);
    let core = c.core();
    let volume = unit.and_then(|unit| c.volume(unit));
    let meter = volume.map(|volume| &volume.base().meters()[core.protocol]);
    core.count(meter, (op, bytes), is_done, took);
}

/// An I/O on a volume failed, and with it the command.
#[cold]
fn failed<P: Blocks>(
    c: &mut P,
    tag: Tag,
    (unit, offset): (u32, u64),
    error: Error,
    then: AfterIo<P::Answer>,
) {
    if is_failure(error) {
        c.log_failure(unit, error);
    }
    let at = match error {
        Error::Miscompare { offset: byte } => offset + byte,
        _ => offset,
    };
    c.failed(tag, (unit, at), error, then);
}

/// Whether an administrator should hear of it.
fn is_failure(error: Error) -> bool {
    !matches!(
        error,
        Error::Miscompare { .. } | Error::Unreadable | Error::Locked | Error::Busy
    )
}
