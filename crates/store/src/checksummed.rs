//! A volume of any kind whose blocks have checksums: what is read and has another is an error,
//! never data.
//!
//! The sums lie in a file of their own (`checksummed/file.rs`), in memory for a volume that ends
//! with the process. Before a block is written the sum of what comes is in the file, beside that
//! of what is there; one sync is for all writes that wait. After a crash what a block holds has
//! one of the two, or was torn and has none. The old one is taken away when what came is durable
//! (`checksummed/upkeep.rs`).
//!
//! It is between encryption and what a volume keeps: the sums are of ciphertext, so that they
//! tell nothing of the data, and are checked without a key.
//!
//! Each I/O has its range to itself from its first step to its last; one that is longer than any
//! that is atomic goes on piece by piece.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use faults::Fault;
use machine::work;
use mem::BufRange;
use reactor::{DiskFile, FileIo, Nanos, Token};
use rustix::io::Errno;
use tracing::error;

use crate::base::compare;
use crate::locks::{Caller, Claim, Locks};
use crate::problem::Problem;
use crate::spec::SCRUB_RATE_DEFAULT;
use crate::{Base, Error, Extent, Io, Progress, Range, ResizeError, Scrub, Spec, Task, Volume};

use file::HEADER_BYTES;
use file_work::FileWork;
use group_sync::{GroupSync, SyncTurn};
use scrub::ScrubTask;
use table::{Checked, EnterStop, Entered, PAGE_BLOCKS, PAGE_BYTES, PAGES_MAX, PageLoad, SumTable};
use task::{After, ChecksummedTask, SumStep, Wait};
use upkeep::Cleaning;

pub(crate) mod file;
mod file_work;
mod group_sync;
mod repair;
mod resize;
mod scrub;
mod sums;
mod table;
mod task;
mod upkeep;

/// How long a change of size waits for I/O.
const PATIENCE: Duration = Duration::from_secs(5);

/// Blocks that are compared at a time.
const CHECKED_MAX: usize = 32;

pub(crate) struct Checksummed {
    base: Base,
    below: Arc<dyn Volume>,
    /// None where the sums end with the process.
    file: Option<Arc<DiskFile>>,
    table: Arc<SumTable>,
    syncs: GroupSync,
    locks: Arc<Locks>,
    /// The CRC32C of a block of zeros.
    zero_crc: u32,
    /// That a block has another sum is in the log.
    is_told: AtomicBool,
    /// When sums are taken away next, and how long after the last time.
    cleans_at: Mutex<Nanos>,
    clean_ns: Nanos,
    scrub: Scrub,
    /// How long a change waits for I/O.
    patience: Duration,
    changing: Mutex<()>,
}

/// How an I/O goes on.
enum Going {
    On,
    /// Something is to complete.
    Waits,
    Over(Result<(), Error>),
}

/// Sums what a description's volume keeps in `below`, in a file beside its state file. Blocks.
pub(crate) fn open(spec: &Spec, below: Arc<dyn Volume>) -> Result<Checksummed, Problem> {
    file::check_kind(spec)?;
    let file = match file::is_needed(below.info()) {
        true => Some(file::open(spec, &*below)?),
        false => {
            let len = below.size_bytes();
            if !below.is_blank(Range { offset: 0, len }) {
                return Err(Problem::SumsInMemory);
            }
            None
        }
    };
    let saved = file.as_deref().map_or_else(Vec::new, file::saved_scrub);
    let scrub = Scrub::new(&spec.name, spec.block_bytes, spec.scrub_rate, &saved);
    Ok(Checksummed::new(
        below,
        file,
        (upkeep::CLEAN_NS, PATIENCE),
        (PAGES_MAX, scrub),
    ))
}

/// The same in a file that only a certain driver knows how to treat, of zeros where the volume is
/// new, and of [`file_bytes`](file::file_bytes).
pub(crate) fn open_with(below: Arc<dyn Volume>, file: Option<Arc<DiskFile>>) -> Checksummed {
    // In a simulated world all is quicker, and it does not move while we wait.
    let times = (upkeep::CLEAN_NS / 500, Duration::ZERO);
    let info = below.info();
    let scrub = Scrub::new(&info.name, info.block_bytes, SCRUB_RATE_DEFAULT, &[]);
    Checksummed::new(below, file, times, (PAGES_MAX, scrub))
}

impl Checksummed {
    fn new(
        below: Arc<dyn Volume>,
        file: Option<Arc<DiskFile>>,
        (clean_ns, patience): (Nanos, Duration),
        (pages_max, scrub): (usize, Scrub),
    ) -> Checksummed {
        let info = below.info();
        let zeros = vec![0; info.block_bytes as usize];
        Checksummed {
            base: Base::around(below.base()),
            table: SumTable::new(file.is_some(), info.read_only, pages_max),
            syncs: GroupSync::default(),
            locks: Locks::new(),
            zero_crc: mem::crc32c_bytes(&zeros, 0),
            is_told: AtomicBool::new(false),
            cleans_at: Mutex::new(0),
            clean_ns,
            scrub,
            patience,
            changing: Mutex::default(),
            below,
            file,
        }
    }

    /// The sum of a block.
    fn sum(&self, block: BufRange) -> u32 {
        mem::crc32c(block, 0) ^ self.zero_crc
    }

    /// The sums of blocks from this one of some memory on.
    fn sums_of(&self, memory: BufRange, first: u64, sums: &mut [u32]) {
        let block_bytes = self.base.info.block_bytes;
        for (block, sum) in (first as u32..).zip(sums) {
            *sum = self.sum(memory.slice(block * block_bytes, block_bytes));
        }
    }

    /// Goes on until something must be waited for, or all is done: how it ended.
    fn advance(
        &self,
        task: &mut ChecksummedTask,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Option<Result<(), Error>> {
        loop {
            match self.step(task, files, token) {
                Going::On => {}
                Going::Waits => return None,
                Going::Over(result) => return Some(result),
            }
        }
    }

    fn step(&self, task: &mut ChecksummedTask, files: &mut dyn FileIo, token: Token) -> Going {
        match task.step {
            SumStep::Piece => match task.next_piece() {
                Ok(false) => return Going::Over(Ok(())),
                Ok(true) if task.changes() => task.step = SumStep::Room,
                Ok(true) => task.step = SumStep::Range,
                Err(_) => return Going::Over(Err(task.failed(Errno::NOMEM))),
            },
            SumStep::Room if task.may_end() => return Going::Over(Err(task.canceled())),
            SumStep::Room => match self.table.room(task.page_count(), || files.ticket(token)) {
                Some(room) => (task.room, task.step) = (Some(room), SumStep::Range),
                None => return waits(task, Wait::Ticket),
            },
            SumStep::Range => {
                let claim = Claim::new(task.offset(), task.len, task.changes());
                let caller = || Caller::Ticket(files.ticket(token));
                return match self.locks.acquire(claim, caller) {
                    Ok(()) => self.has_range(task),
                    Err(place) => waits(task, Wait::Range(place)),
                };
            }
            SumStep::Read => {
                let (offset, buf) = (task.offset(), task.read_to());
                return self.begin_below(task, Io::Read { offset, buf }, files, token);
            }
            SumStep::Check => return self.check(task),
            SumStep::Ask | SumStep::Repair => {
                let io = self.io_of_block(task);
                return self.begin_below(task, io, files, token);
            }
            SumStep::Load { page, then } => return self.load(task, page, then, files, token),
            SumStep::Enter => return self.enter(task, files, token),
            SumStep::Flush { .. } => return self.begin_below(task, Io::Flush, files, token),
            SumStep::Settle => return self.read_to_settle(task, files, token),
            SumStep::Sync { number } => match self.syncs.turn(number, || files.ticket(token)) {
                SyncTurn::Done => task.step = SumStep::Write,
                SyncTurn::Wait => return waits(task, Wait::Ticket),
                SyncTurn::Failed(errno) => return Going::Over(Err(task.failed(errno))),
                SyncTurn::Begin => return self.begin_file(task, FileWork::sync(), files, token),
            },
            SumStep::Write if task.may_end() => return Going::Over(Err(task.canceled())),
            SumStep::Write => {
                task.has_changed = true;
                return self.begin_below(task, task.write_io(), files, token);
            }
            SumStep::Pass { .. } => return self.begin_below(task, task.io, files, token),
        }
        Going::On
    }

    /// The piece's range is its own now.
    fn has_range(&self, task: &mut ChecksummedTask) -> Going {
        task.held = Some(Claim::new(task.offset(), task.len, task.changes()));
        if task.may_end() {
            return Going::Over(Err(task.canceled()));
        }
        // It may have become smaller meanwhile.
        if let Err(error) = self.base.check(&task.io) {
            return Going::Over(Err(error));
        }
        task.step = match task.io {
            Io::MarkUnreadable { .. } => SumStep::Pass { epoch: None },
            _ if task.reads() => SumStep::Read,
            _ => SumStep::Enter,
        };
        Going::On
    }

    /// Compares what was read with its sums.
    fn check(&self, task: &mut ChecksummedTask) -> Going {
        let mut sums = [0; CHECKED_MAX];
        while task.blocks < task.block_count() {
            let count = task.blocks_of_page().min(CHECKED_MAX as u64) as usize;
            let first = task.first_block() + task.blocks;
            self.sums_of(task.read_to(), task.blocks, &mut sums[..count]);
            match self.table.check(first, &sums[..count]) {
                Checked::Good => task.blocks += count as u64,
                Checked::Wrong(at) => {
                    task.blocks += at as u64;
                    return self.found_wrong(task);
                }
                Checked::Missing => {
                    let (page, then) = (first / PAGE_BLOCKS, After::Check);
                    task.step = SumStep::Load { page, then };
                    return Going::On;
                }
            }
        }
        let compared = match task.io {
            Io::Compare { buf, scratch, .. } => compare(buf, scratch),
            Io::CompareAndWrite {
                compare: buf,
                scratch,
                ..
            } => compare(buf, scratch),
            Io::OrWrite { buf, scratch, .. } => {
                mem::or(scratch, buf);
                Ok(())
            }
            _ => Ok(()),
        };
        match compared {
            Ok(()) if self.goes_to_next_leg(task) => Going::On,
            Err(miscompare) => Going::Over(Err(miscompare)),
            Ok(()) if task.changes() => {
                (task.blocks, task.step) = (0, SumStep::Enter);
                Going::On
            }
            Ok(()) => self.end_piece(task),
        }
    }

    /// The next block was read, or could not be, so that it has one sum.
    fn settle(&self, task: &mut ChecksummedTask, is_read: bool) -> Going {
        let sum = is_read.then(|| self.sum(self.place(task)));
        let block = task.block();
        let is_wrong = |sum| matches!(self.table.check(block, &[sum]), Checked::Wrong(_));
        if sum.is_some_and(is_wrong) && self.ask_legs(task) {
            return Going::On;
        }
        self.table.settle(block, sum);
        task.step = SumStep::Enter;
        Going::On
    }

    /// A block holds what was never written to it.
    #[cold]
    fn is_wrong(&self, block: u64) -> Error {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            error!(
                event = "checksum-mismatch",
                volume = self.base.info.name,
                block,
                "a block has another checksum than what was written to it: reads of it fail until \
                 it is written; more such blocks count in the figures alone; see to the disk"
            );
        }
        Error::ChecksumMismatch
    }

    /// Gives the piece's blocks the sums of what is to be written.
    fn enter(&self, task: &mut ChecksummedTask, files: &mut dyn FileIo, token: Token) -> Going {
        if task.may_end() {
            return Going::Over(Err(task.canceled()));
        }
        let count = task.blocks_of_page() as usize;
        if count == 0 {
            let syncs = task.has_entered && !faults::is(Fault::SumsUnsynced);
            task.step = match syncs {
                true => SumStep::Sync {
                    number: self.syncs.next(),
                },
                false => SumStep::Write,
            };
            return Going::On;
        }
        let first = task.first_block() + task.blocks;
        let page = first / PAGE_BLOCKS;
        let mut sums = [0; PAGE_BLOCKS as usize];
        let sums = &mut sums[..count];
        if let Some(data) = task.written() {
            self.sums_of(data, task.blocks, sums);
        }
        let pins = !task.pinned.contains(&page);
        match self.table.enter(first, sums, pins) {
            Entered::Missing => {
                let then = After::Enter;
                task.step = SumStep::Load { page, then };
                Going::On
            }
            Entered::Some { count, write, stop } => {
                if pins {
                    let from = if task.pinned.is_empty() {
                        page
                    } else {
                        task.pinned.start
                    };
                    task.pinned = from..page + 1;
                }
                task.blocks += count as u64;
                match (write, stop) {
                    (Some((from, at)), _) => {
                        task.has_entered = true;
                        let write = FileWork::write(from, HEADER_BYTES + at);
                        self.begin_file(task, write, files, token)
                    }
                    (None, Some(EnterStop::Flush)) if count == 0 => {
                        let epoch = self.table.begin_flush();
                        task.step = SumStep::Flush { epoch };
                        Going::On
                    }
                    (None, Some(EnterStop::Settle)) if count == 0 => {
                        task.step = SumStep::Settle;
                        Going::On
                    }
                    (None, _) => Going::On,
                }
            }
        }
    }

    fn load(
        &self,
        task: &mut ChecksummedTask,
        page: u64,
        then: After,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Going {
        match self.table.load(page, || files.ticket(token)) {
            Ok(PageLoad::Ready) => {
                task.step = match then {
                    After::Check => SumStep::Check,
                    After::Ask => SumStep::Ask,
                    After::Enter => SumStep::Enter,
                };
                Going::On
            }
            Ok(PageLoad::Wait) => waits(task, Wait::Ticket),
            Ok(PageLoad::Read(to)) => {
                let at = HEADER_BYTES + page * u64::from(PAGE_BYTES);
                self.begin_file(task, FileWork::read(to, at), files, token)
            }
            Err(_) => Going::Over(Err(task.failed(Errno::NOMEM))),
        }
    }

    /// Reads the next block, which may have so many sums that it can have no other.
    fn read_to_settle(
        &self,
        task: &mut ChecksummedTask,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Going {
        let block_bytes = self.base.info.block_bytes;
        let offset = task.block() * u64::from(block_bytes);
        if task.own.is_none() {
            task.own = mem::Region::small_pages(block_bytes.into()).ok();
        }
        match &task.own {
            None => Going::Over(Err(task.failed(Errno::NOMEM))),
            Some(own) => {
                let buf = own.range(0, block_bytes);
                self.begin_below(task, Io::Read { offset, buf }, files, token)
            }
        }
    }

    fn begin_file(
        &self,
        task: &mut ChecksummedTask,
        work: FileWork,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Going {
        let file = self
            .file
            .as_ref()
            .expect("only sums in a file have work there");
        work.submit(file, files, token);
        waits(task, Wait::File(work))
    }

    fn begin_below(
        &self,
        task: &mut ChecksummedTask,
        io: Io,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Going {
        let begun = match (task.legs(), self.below.as_mirror()) {
            (Some(legs), Some(mirror)) => mirror.start_on(legs, io, files, token),
            _ => self.below.start(io, files, token),
        };
        match begun {
            Progress::Pending(below) => waits(task, Wait::Below(below)),
            // What has been written cannot be begun anew as a whole.
            Progress::Done(Err(Error::Busy)) if task.done > 0 || task.asking.is_some() => {
                files.ticket(token).ring();
                waits(task, Wait::Again(io))
            }
            Progress::Done(result) => self.after_below(task, result),
        }
    }

    /// The volume below has done what the step asked of it, or has failed to.
    fn after_below(&self, task: &mut ChecksummedTask, result: Result<(), Error>) -> Going {
        match (task.step, result) {
            // What was not read is not known to be lost.
            (SumStep::Settle, _) if task.may_end() => Going::Over(Err(task.canceled())),
            (SumStep::Settle, Err(error @ (Error::Busy | Error::Locked))) => {
                Going::Over(Err(error))
            }
            (SumStep::Settle, result) => self.settle(task, result.is_ok()),
            (SumStep::Ask | SumStep::Repair, _) if task.may_end() => {
                Going::Over(Err(task.canceled()))
            }
            (SumStep::Ask, result) => self.answered(task, result),
            (SumStep::Repair, result) => self.wrote_anew(task, result.is_ok()),
            (SumStep::Read, Err(error)) if task.scrub.is_some() => self.unread(task, error),
            (SumStep::Flush { .. }, Err(Error::FlushFailed(errno))) => {
                Going::Over(Err(task.failed(errno)))
            }
            (_, Err(error)) => Going::Over(Err(error)),
            (SumStep::Flush { epoch }, Ok(())) => {
                self.table.flushed(epoch);
                task.step = SumStep::Enter;
                Going::On
            }
            (SumStep::Read, Ok(())) => {
                task.step = SumStep::Check;
                Going::On
            }
            (SumStep::Write, Ok(())) => {
                let (first, count) = (task.first_block(), task.block_count());
                self.table.confirm(first, count, task.io.durable());
                self.end_piece(task)
            }
            (SumStep::Pass { epoch }, Ok(())) => {
                if let Some(epoch) = epoch {
                    self.table.flushed(epoch);
                }
                Going::Over(Ok(()))
            }
            (step, Ok(())) => unreachable!("nothing below does {step:?}"),
        }
    }

    /// An operation on the file with the sums has completed.
    fn after_file(
        &self,
        task: &mut ChecksummedTask,
        mut work: FileWork,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Going {
        let Some(result) = work.after(result) else {
            return self.begin_file(task, work, files, token);
        };
        match task.step {
            SumStep::Load { page, .. } => self.table.loaded(page, result.is_ok()),
            SumStep::Sync { .. } => {
                if self.syncs.end(result) {
                    self.tell_lost();
                }
                // What became of it is told to all alike.
                return Going::On;
            }
            _ => {}
        }
        match result {
            Ok(()) => Going::On,
            Err(errno) => Going::Over(Err(task.failed(errno))),
        }
    }

    #[cold]
    fn tell_lost(&self) {
        error!(
            event = "checksums-not-synced",
            volume = self.base.info.name,
            "the checksums of a volume could not be made durable: its writes fail until weft is \
             started again; see to the disk, or free space there"
        );
    }

    /// Others may have the piece's range.
    fn end_piece(&self, task: &mut ChecksummedTask) -> Going {
        self.let_go(task);
        task.done += task.len;
        task.step = SumStep::Piece;
        Going::On
    }

    fn let_go(&self, task: &mut ChecksummedTask) {
        self.table.unpin(std::mem::take(&mut task.pinned));
        task.room = None;
        if let Some(claim) = task.held.take() {
            self.locks.release(&claim);
        }
    }

    fn progress(&self, mut task: ChecksummedTask, ended: Option<Result<(), Error>>) -> Progress {
        match ended {
            Some(result) => {
                self.let_go(&mut task);
                self.base.finish(&task.io, result)
            }
            None => Progress::Pending(Task::parked(task)),
        }
    }

    /// Something has completed for an I/O.
    fn go_on(
        &self,
        task: &mut ChecksummedTask,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Option<Result<(), Error>> {
        // What is begun anew below finds its bits of the token at 0.
        let whole = token >> self.base.leg_bits << self.base.leg_bits;
        let going = match std::mem::replace(&mut task.wait, Wait::Ticket) {
            Wait::Ticket if task.step == SumStep::Room && result.is_err() => {
                Going::Over(Err(task.canceled()))
            }
            Wait::Ticket => Going::On,
            Wait::Again(io) => self.begin_below(task, io, files, whole),
            Wait::File(work) => self.after_file(task, work, result, files, whole),
            Wait::Range(place) if task.may_end() || result.is_err() => {
                drop(place);
                Going::Over(Err(task.canceled()))
            }
            Wait::Range(place) => match place.go_on(|| Caller::Ticket(files.ticket(whole))) {
                Ok(()) => self.has_range(task),
                Err(place) => waits(task, Wait::Range(place)),
            },
            Wait::Below(below) => match self.below.resume(below, result, files, token) {
                Progress::Pending(below) => waits(task, Wait::Below(below)),
                Progress::Done(result) => self.after_below(task, result),
            },
        };
        match going {
            Going::On => self.advance(task, files, whole),
            Going::Waits => None,
            Going::Over(result) => Some(result),
        }
    }
}

fn waits(task: &mut ChecksummedTask, wait: Wait) -> Going {
    task.wait = wait;
    Going::Waits
}

impl Volume for Checksummed {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    fn below(&self) -> Option<&dyn Volume> {
        Some(&*self.below)
    }

    fn scrub(&self) -> Option<&Scrub> {
        Some(&self.scrub)
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if let Err(error) = self.base.check(&io) {
            return self.base.finish(&io, Err(error));
        }
        let mut task = ChecksummedTask::new(io, self.base.info.block_bytes);
        match io {
            Io::Read { .. } | Io::Write { .. } | Io::Compare { .. } => {
                work::spend_bytes(io.extent().1);
            }
            Io::Flush => {
                let epoch = Some(self.table.begin_flush());
                task.step = SumStep::Pass { epoch };
            }
            // It is advice, which disks that are not thin would take by writing zeros.
            Io::Deallocate { .. } if !self.base.info.is_thin => {
                return self.base.finish(&io, Ok(()));
            }
            _ => {}
        }
        let ended = self.advance(&mut task, files, token);
        self.progress(task, ended)
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let task = match task.unpark::<ChecksummedTask>() {
            Ok(mut task) => {
                let ended = self.go_on(&mut task, result, files, token);
                return self.progress(task, ended);
            }
            Err(task) => task,
        };
        let task = match task.unpark::<Cleaning>() {
            Ok(cleaning) => return self.resume_cleaning(cleaning, result, files, token),
            Err(task) => task,
        };
        match task.unpark::<ScrubTask>() {
            Ok(task) => self.resume_scrub(task, result, files, token),
            // What the volume below does by itself.
            Err(task) => self.below.resume(task, result, files, token),
        }
    }

    fn has_upkeep(&self) -> bool {
        true
    }

    fn upkeep(&self, now: Nanos, files: &mut dyn FileIo, token: Token) -> Option<Progress> {
        self.begin_cleaning(now, files, token)
            .or_else(|| self.below.upkeep(now, files, token))
            .or_else(|| self.begin_scrub(files, token))
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.resize_both(size_bytes, allow_shrink)
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        self.below.extents(offset, len, max, out)
    }
}
