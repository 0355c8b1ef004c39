//! `file` and `block`: a sparse file or a block device, through whatever
//! [`FileIo`] its reactor has.
//!
//! Writes go to the page cache, or past it where `direct` says so; a flush
//! (fdatasync) or a durable write (RWF_DSYNC) brings them to the disk. Creating and
//! growing are durable before the volume is served, so that flushed data is found
//! again after a crash.
//!
//! The kernel reports a failed writeback to one sync and then takes the lost
//! pages for clean: a second sync would succeed over the hole. So the first
//! failure is kept, and every later flush and durable write fails with it until
//! the volume is opened again, which empties the cache first: after that, or
//! after a start of a killed weft, reads return what is on the disk, and what is
//! flushed from then on is there too. A leg of a mirror needs no such start: the
//! mirror writes all to it again that may be lost. Reads and other writes go on. What
//! remains: of two syncs that overlap, one may succeed in the instant before the
//! other has reported.
//!
//! The page cache moves bytes page by page, so that a read beside a write would
//! see some old and some new pages. Every I/O therefore locks its range from
//! its start to the last completion of its file operations, reads together,
//! the others alone; also when no host waits for its answer any more, so that no
//! late write replaces a newer one. A flush and a verify move nothing that
//! others see and lock nothing.
//!
//! That one block is whole after a power failure rests on what is below: it
//! lies within one page, which the kernel writes with one request, and disks
//! write a sector whole or not at all. A disk whose physical sectors are smaller
//! than the volume's blocks may keep a part of one.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use faults::Fault;
use mem::{BufRange, Region};
use reactor::{DiskFile, FallocateMode, FileIo, Token};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use tracing::{info, warn};

use crate::base::compare;
use crate::direct::DirectFile;
use crate::locks::{Caller, Claim, Locks};
use crate::lost::Lost;
use crate::null::{ZEROS_BYTES, zeros};
use crate::problem::{Problem, no_memory};
use crate::reference_copy::{ReferenceCopyTask, Sharing};
use crate::snapshot::{Comparable, SnapshotFolder, SnapshotMedium, Snapshots, expose};
use crate::task::{FileStep, FileTask, TaskWait};
use crate::{
    Base, Error, Extent, Io, Progress, Range, ResizeError, Space, Spec, State, Task, Volume, block,
    kept, regular, resize,
};

/// An operation that a signal or a full queue interrupts is issued this many
/// times more before it fails.
const RETRIES_MAX: u8 = 8;

/// How long a change waits for I/O: a shrink for that on what goes away, a snapshot for all.
const CHANGE_PATIENCE: Duration = Duration::from_secs(5);

/// What the descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    /// A regular file.
    File,
    /// A block device.
    Device,
    /// Something that only a [`FileIo`] knows how to treat.
    Unknown,
}

pub(crate) struct File {
    base: Base,
    below: Below,
    /// Holds the lock as long as it is open, operations in flight included.
    file: Arc<DiskFile>,
    /// The same, past the page cache.
    direct: Option<DirectFile>,
    locks: Arc<Locks>,
    zeros: &'static Region,
    /// The first sync that failed.
    lost: Arc<Lost>,
    /// What the file system below has turned out not to do, or is not to do.
    no_punch: AtomicBool,
    no_zero_range: AtomicBool,
    preallocate: bool,
    /// One change of size at a time.
    resizing: Arc<Mutex<()>>,
    /// None of a device.
    snapshots: Option<Snapshots>,
    /// None of what has no snapshots beside it.
    comparable: Option<Comparable>,
    /// None of what is not a regular file, or has its space for itself.
    sharing: Option<Sharing>,
}

impl File {
    /// A file at `path`, made and grown if need be.
    pub(crate) fn open(spec: &Spec, path: &Path) -> Result<File, Problem> {
        let (file, uuid, state) = regular::open(spec, path)?;
        let base = Base::new(spec.info(uuid, true), spec.size_bytes);
        let direct = DirectFile::open(spec, path, &file)?;
        let file = Arc::new(file.into());
        let folder = SnapshotFolder::of(path, &file);
        let comparable = Comparable::volume(&folder, &file, uuid);
        let file = File::new(base.with_state(state), path, Below::File, file)?;
        let file = File {
            direct,
            no_punch: AtomicBool::new(spec.preallocate),
            preallocate: spec.preallocate,
            comparable,
            ..file
        };
        let file = file.with_sharing();
        file.with_snapshots(Box::new(folder))
    }

    /// The block device at `path`.
    pub(crate) fn open_device(spec: &Spec, path: &Path) -> Result<File, Problem> {
        let (file, uuid, size_bytes) = block::open(spec, path)?;
        info!(path = %path.display(), bytes = size_bytes, "block device opened");
        let state = State::in_file(spec, uuid, None, None)?;
        let base = Base::new(spec.info(uuid, true), size_bytes);
        let direct = DirectFile::open(spec, path, &file)?;
        let volume = File::new(
            base.with_state(state),
            path,
            Below::Device,
            Arc::new(file.into()),
        )?;
        Ok(File { direct, ..volume })
    }

    /// The snapshot in the folder at `path`, of which nothing is changed.
    pub(crate) fn open_snapshot(spec: &Spec, path: &Path) -> Result<File, Problem> {
        let spec = Spec {
            read_only: true,
            ..spec.clone()
        };
        let found = expose(&spec, path)?;
        let state = State::in_file(&spec, found.uuid, None, None)?;
        let base = Base::new(spec.info(found.uuid, true), found.size_bytes);
        let file: Arc<DiskFile> = Arc::new(found.file.into());
        let comparable = Comparable::snapshot(path, &file, found.original);
        let file = File::new(base.with_state(state), path, Below::File, file)?;
        let file = File { comparable, ..file };
        for range in found.unreadable {
            file.base.kept().unreadable.add(range.offset, range.len);
        }
        Ok(file.with_sharing())
    }

    /// The same, where it can share blocks with others. What is shared needs space when it is
    /// written: not what has all of its own.
    fn with_sharing(self) -> File {
        let sharing = match self.preallocate {
            true => None,
            false => Sharing::of(&self.file, &self.locks, &self.lost),
        };
        File { sharing, ..self }
    }

    /// On an open descriptor, of which nothing is asked but through [`FileIo`] and what its
    /// snapshots lie in.
    pub(crate) fn over(
        spec: &Spec,
        file: Arc<DiskFile>,
        state: State,
        snapshots: Option<Box<dyn SnapshotMedium>>,
    ) -> Result<File, Problem> {
        let base = Base::new(spec.info(spec.uuid_or_derived(), true), spec.size_bytes);
        let path = Path::new(&spec.name);
        let file = File::new(base.with_state(state), path, Below::Unknown, file)?;
        match snapshots {
            Some(medium) => file.with_snapshots(medium),
            None => Ok(file),
        }
    }

    /// The same with the snapshots that lie there. A rollback that a crash has interrupted is
    /// brought to its end.
    fn with_snapshots(self, medium: Box<dyn SnapshotMedium>) -> Result<File, Problem> {
        let snapshots = Snapshots {
            medium,
            locks: self.locks.clone(),
            lost: self.lost.clone(),
            changing: Mutex::default(),
            resizing: self.resizing.clone(),
            patience: self.patience(),
        };
        let settled = snapshots.settle(&self.base);
        settled.map_err(|error| Problem::Snapshot(error.to_string()))?;
        Ok(File {
            snapshots: Some(snapshots),
            ..self
        })
    }

    fn new(base: Base, path: &Path, below: Below, file: Arc<DiskFile>) -> Result<File, Problem> {
        let zeros = zeros().map_err(no_memory)?;
        if below != Below::Unknown && base.state().can_persist() {
            kept::savers();
        }
        Ok(File {
            lost: Arc::new(Lost::none(base.info.name.clone(), path.to_owned())),
            base: base.with_marks(),
            below,
            file,
            direct: None,
            locks: Locks::new(),
            zeros,
            no_punch: AtomicBool::new(false),
            no_zero_range: AtomicBool::new(false),
            preallocate: false,
            resizing: Arc::default(),
            snapshots: None,
            comparable: None,
            sharing: None,
        })
    }

    /// How long a change waits for I/O that is in its way.
    fn patience(&self) -> Duration {
        match self.below {
            // A simulated world does not move while we wait.
            Below::Unknown => Duration::ZERO,
            _ => CHANGE_PATIENCE,
        }
    }

    /// What an I/O locks, if anything.
    #[inline]
    fn claim(&self, io: &Io) -> Option<Claim> {
        let (offset, len) = io.extent();
        let moves = !matches!(io, Io::Flush | Io::Verify { .. });
        let locks = moves && len > 0 && !self.base.info.read_only;
        let locks = locks && !faults::is(Fault::NoLocks);
        let locks = locks && !(matches!(io, Io::OrWrite { .. }) && faults::is(Fault::SplitOrWrite));
        let is_split = matches!(io, Io::CompareAndWrite { .. }) && faults::is(Fault::SplitFused);
        locks.then(|| Claim::new(offset, len, !io.leaves_volume_unchanged() && !is_split))
    }

    /// The task has the range that it needs.
    fn begin(&self, mut task: FileTask, files: &mut dyn FileIo, token: Token) -> Progress {
        match self.first_step(&task.io) {
            Ok(Some(step)) => {
                task.step = step;
                self.submit(task, files, token)
            }
            Ok(None) => self.settle(task, files, token),
            Err(error) => self.finish(&task, Err(error)),
        }
    }

    /// A task that waited for its range was called.
    fn go_on(
        &self,
        mut task: FileTask,
        wait: TaskWait,
        result: &io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let place = match wait {
            TaskWait::Range(place) => place,
            TaskWait::Save(saving) => {
                return self.finish(&task, saving.result().map_err(save_failed));
            }
        };
        if task.is_canceled || result.is_err() {
            drop(place);
            let error = match task.io.leaves_volume_unchanged() {
                true => Error::ReadFailed(Errno::CANCELED),
                false => Error::WriteFailed(Errno::CANCELED),
            };
            return self.finish(&task, Err(error));
        }
        match place.go_on(|| Caller::Ticket(files.ticket(token))) {
            Ok(()) => {
                task.holds = true;
                self.begin(task, files, token)
            }
            Err(place) => {
                task.wait = Some(TaskWait::Range(place));
                task.into()
            }
        }
    }

    /// The first file operation of an I/O; none if there is nothing to do.
    fn first_step(&self, io: &Io) -> Result<Option<FileStep>, Error> {
        self.base.check(io)?;
        if io.durable() {
            self.lost.check(io)?;
        }
        Ok(match *io {
            Io::Flush if faults::is(Fault::DropFlush) => None,
            Io::Flush => (!self.base.info.read_only).then_some(FileStep::Sync),
            _ if io.extent().1 == 0 => None,
            Io::Write { .. } => Some(FileStep::Transfer),
            Io::MarkUnreadable { .. } => None,
            Io::Zero { deallocate, .. } => Some(self.zero_step(deallocate)),
            Io::Read { .. }
            | Io::Compare { .. }
            | Io::CompareAndWrite { .. }
            | Io::OrWrite { .. }
            | Io::Verify { .. } => Some(FileStep::Fetch),
            Io::Deallocate { .. } => {
                (!self.no_punch.load(Ordering::Relaxed)).then_some(FileStep::Punch)
            }
        })
    }

    /// The best way to zero that the file system has not refused so far.
    fn zero_step(&self, deallocate: bool) -> FileStep {
        let is_known = |no: &AtomicBool| !no.load(Ordering::Relaxed);
        if deallocate && is_known(&self.no_punch) {
            FileStep::Punch
        } else if is_known(&self.no_zero_range) {
            FileStep::ZeroRange
        } else {
            // A hole would have no room kept for what is written there later.
            FileStep::WriteZeros
        }
    }

    /// The description by which `buf` goes to or from `at`.
    #[inline]
    fn described(&self, buf: BufRange, at: u64) -> &Arc<DiskFile> {
        match &self.direct {
            Some(direct) if direct.takes(buf, at) => &direct.file,
            _ => &self.file,
        }
    }

    /// Whether `buf` goes through the page cache.
    #[inline]
    fn is_cached(&self, buf: BufRange, at: u64) -> bool {
        Arc::ptr_eq(self.described(buf, at), &self.file)
    }

    /// Issues the file operation that the task's step asks for.
    fn submit(&self, task: FileTask, files: &mut dyn FileIo, token: Token) -> Progress {
        let file = &self.file;
        let (offset, len) = task.io.extent();
        let at = offset + task.done_bytes;
        match task.step {
            FileStep::Fetch => {
                let buf = fetched(&task);
                files.read_at(self.described(buf, at), buf, at, token);
            }
            FileStep::Transfer | FileStep::TransferThenSync => match task.io {
                Io::Write { buf, durable, .. }
                | Io::CompareAndWrite {
                    write: buf,
                    durable,
                    ..
                }
                | Io::OrWrite {
                    scratch: buf,
                    durable,
                    ..
                } => {
                    let durable = durable && task.step == FileStep::Transfer;
                    let durable = durable && !faults::is(Fault::EarlyAck);
                    let buf = rest(buf, &task);
                    files.write_at(self.described(buf, at), buf, at, durable, token);
                }
                _ => unreachable!("only writes transfer"),
            },
            FileStep::Punch => files.fallocate(file, FallocateMode::PunchHole, offset, len, token),
            FileStep::ZeroRange => {
                files.fallocate(file, FallocateMode::ZeroRange, offset, len, token)
            }
            FileStep::WriteZeros => {
                let part = (len - task.done_bytes).min(u64::from(ZEROS_BYTES));
                let zeros = self.zeros.range(0, part as u32);
                files.write_at(self.described(zeros, at), zeros, at, false, token);
            }
            FileStep::Sync | FileStep::SyncThenUnmark => files.sync_data(file, token),
        }
        task.into()
    }

    /// The task's operation succeeded and moved `n` bytes, if it moves any.
    fn advance(
        &self,
        mut task: FileTask,
        n: u32,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        task.retries = 0;
        if task.step.transfers() {
            let len = task.io.extent().1;
            task.done_bytes += u64::from(n);
            assert!(task.done_bytes <= len, "more bytes moved than asked for");
            if n == 0 {
                let (offset, len) = task.io.extent();
                let error = match self.base.holds(offset, len) {
                    true if task.step == FileStep::Fetch => Error::EndsEarly,
                    true => failure(&task, Errno::IO),
                    // The volume has become smaller meanwhile.
                    false => Error::OutOfRange,
                };
                return self.finish(&task, Err(error));
            }
            let is_whole = task.step == FileStep::Transfer && faults::is(Fault::ShortIsWhole);
            if task.done_bytes < len && !is_whole {
                if task.is_canceled && task.step == FileStep::Fetch {
                    return self.finish(&task, Err(failure(&task, Errno::CANCELED)));
                }
                return self.submit(task, files, token);
            }
        }
        if task.step == FileStep::Fetch {
            return self.after_fetch(task, files, token);
        }
        let is_safe = match task.step {
            FileStep::Transfer | FileStep::Sync => true,
            FileStep::TransferThenSync => false,
            _ => faults::is(Fault::ZeroNotDurable),
        };
        if task.io.durable() && !is_safe {
            task.step = FileStep::Sync;
            return self.submit(task, files, token);
        }
        self.settle(task, files, token)
    }

    /// The task has done all its work; what is remembered beside the data
    /// follows it.
    fn settle(&self, mut task: FileTask, files: &mut dyn FileIo, token: Token) -> Progress {
        // A sync beside this one may have been told of a loss that is ours.
        let is_synced = task.io.durable() || task.step == FileStep::SyncThenUnmark;
        if is_synced
            && !faults::is(Fault::SyncAlone)
            && let Err(error) = self.lost.check(&task.io)
        {
            return self.finish(&task, Err(error));
        }
        // Advice that was not taken leaves everything as it is.
        let has_done = matches!(task.step, FileStep::Punch | FileStep::SyncThenUnmark);
        let is_idle = matches!(task.io, Io::Deallocate { .. }) && !has_done;
        // What makes a block readable must be there before that is remembered:
        // else a power cut would bring back what was there before both.
        let is_safe = is_synced || faults::is(Fault::UnmarkEarly);
        if !is_idle && !is_safe && self.base.unmarks(&task.io) {
            task.step = FileStep::SyncThenUnmark;
            return self.submit(task, files, token);
        }
        if is_idle || !self.base.mark(&task.io) || !self.base.state().can_persist() {
            return self.finish(&task, Ok(()));
        }
        let kept = self.base.kept();
        let (offset, len) = task.io.extent();
        let changed = Range { offset, len };
        if self.below == Below::Unknown {
            return self.finish(&task, kept.save(changed).map_err(save_failed));
        }
        task.wait = Some(TaskWait::Save(
            kept.save_aside(changed, files.ticket(token)),
        ));
        task.into()
    }

    /// What a task has read, it now writes.
    fn replace(&self, mut task: FileTask, files: &mut dyn FileIo, token: Token) -> Progress {
        if task.is_canceled {
            return self.finish(&task, Err(Error::WriteFailed(Errno::CANCELED)));
        }
        task.step = FileStep::Transfer;
        task.done_bytes = 0;
        self.submit(task, files, token)
    }

    /// All that a task reads is there.
    fn after_fetch(&self, task: FileTask, files: &mut dyn FileIo, token: Token) -> Progress {
        let result = match task.io {
            Io::Compare { buf, scratch, .. } => compare(buf, scratch),
            Io::CompareAndWrite {
                compare: data,
                scratch,
                ..
            } => match compare(data, scratch) {
                Ok(()) => return self.replace(task, files, token),
                miscompare => miscompare,
            },
            Io::OrWrite { buf, scratch, .. } => {
                mem::or(scratch, buf);
                return self.replace(task, files, token);
            }
            _ => Ok(()),
        };
        self.finish(&task, result)
    }

    /// The task's operation failed: tries it again or another way, or gives up.
    fn fall_back(
        &self,
        mut task: FileTask,
        errno: Errno,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        // A write whose half is there is brought to its end.
        let begun = task.step != FileStep::Fetch && task.done_bytes > 0;
        let interrupted = match errno {
            Errno::INTR | Errno::AGAIN => true,
            Errno::CANCELED => begun,
            _ => false,
        };
        let again = interrupted && task.retries < RETRIES_MAX && (begun || !task.is_canceled);
        let unsupported = matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS);
        let full = matches!(errno, Errno::NOSPC | Errno::DQUOT);
        let syncs = matches!(task.step, FileStep::Sync | FileStep::SyncThenUnmark)
            || task.step == FileStep::Transfer && task.io.durable();
        match task.step {
            _ if again => task.retries += 1,
            // Space may have run out in the write or on the way to the disk:
            // taken apart, only the second is a loss of data.
            FileStep::Transfer if syncs && (full || unsupported) => {
                task.step = FileStep::TransferThenSync
            }
            FileStep::Punch | FileStep::ZeroRange if unsupported => {
                let refused = match task.step {
                    FileStep::Punch => &self.no_punch,
                    _ => &self.no_zero_range,
                };
                refused.store(true, Ordering::Relaxed);
                match task.io {
                    Io::Zero { .. } if faults::is(Fault::SkipZeros) => {
                        return self.finish(&task, Ok(()));
                    }
                    Io::Zero { deallocate, .. } => task.step = self.zero_step(deallocate),
                    // The data stays, and with it what is marked unreadable.
                    _ => return self.finish(&task, Ok(())),
                }
            }
            _ => {
                if syncs && !interrupted && errno != Errno::CANCELED {
                    self.lost.keep(errno);
                }
                return self.finish(&task, Err(failure(&task, errno)));
            }
        }
        self.submit(task, files, token)
    }

    /// The task is over: others may have its range.
    #[inline]
    fn finish(&self, task: &FileTask, result: Result<(), Error>) -> Progress {
        if task.holds
            && let Some(claim) = self.claim(&task.io)
        {
            self.locks.release(&claim);
        }
        self.base.finish(&task.io, result)
    }

    fn resize_to(&self, to: u64) -> Result<(), ResizeError> {
        if self.below == Below::Device {
            self.base.set_size(to);
            return Ok(());
        }
        let system = |action| move |source| ResizeError::System { action, source };
        let file = self.file.as_fd().try_clone_to_owned().map(fs::File::from);
        let file = file.map_err(system("use the file"))?;
        let from = self.size_bytes();
        let resized = self.resize_file(&file, to);
        // Else the next start finds another file than it is told, and a snapshot another
        // size than the volume has. Nothing was written there.
        if resized.is_err()
            && to > from
            && let Err(error) = file.set_len(from)
        {
            let volume = &self.base.info.name;
            warn!(volume, %error, "a file that could not be enlarged is larger than its volume");
        }
        resized?;
        self.base.set_size(to);
        Ok(())
    }

    fn resize_file(&self, file: &fs::File, to: u64) -> Result<(), ResizeError> {
        let system = |action| move |source| ResizeError::System { action, source };
        file.set_len(to).map_err(system("resize the file"))?;
        if self.preallocate {
            regular::allocate(file, to).map_err(system("allocate space for the file"))?;
        }
        let synced = match self.below {
            Below::File => fault::at_sync().and_then(|()| file.sync_all()),
            _ => Ok(()),
        };
        if let Err(error) = synced {
            // The kernel reports lost writes to one sync only: no later flush
            // learns of what this one was told.
            self.lost
                .keep(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            // A file that was cut stays cut.
            if to > self.size_bytes() {
                return Err(system("sync the file")(error));
            }
        }
        Ok(())
    }

    /// New I/O behind `to` is refused, and the file cut when the last that is
    /// under way there has ended: a write after that would make it longer again.
    fn shrink(&self, from: u64, to: u64) -> Result<(), ResizeError> {
        self.base.show_size(to);
        let gone = Claim::new(to, from - to, true);
        let done = match self.locks.hold_within(gone, self.patience()) {
            Some(_held) => self.resize_to(to),
            None => Err(ResizeError::Busy),
        };
        match done {
            // Marks behind the end have gone; if the file is not written they
            // are back, as marks on nothing.
            Ok(()) => {
                let len = u64::MAX - to;
                let _ = self.base.kept().save(Range { offset: to, len });
            }
            Err(_) => self.base.show_size(from),
        }
        done
    }

    /// What a seek finds from `at`, `end` at most; nothing where seeking for
    /// data is not known.
    fn seek(&self, to: SeekFrom, end: u64) -> Option<u64> {
        match seek(&self.file, to) {
            Ok(found) => Some(found.min(end)),
            // No more data.
            Err(Errno::NXIO) => Some(end),
            Err(_) => None,
        }
    }

    /// The end of what begins at `at`, and whether that is data; in whole
    /// blocks, of which one that has any data is data.
    fn extent(&self, at: u64, end: u64) -> (u64, bool) {
        let block = u64::from(self.base.info.block_bytes);
        let all = (end, true);
        if self.below != Below::File {
            return all;
        }
        let Some(data) = self.seek(SeekFrom::Data(at), end) else {
            return all;
        };
        let data = match data < end {
            true => data / block * block,
            false => end,
        };
        if data > at {
            return (data, false);
        }
        let Some(hole) = self.seek(SeekFrom::Hole(at), end) else {
            return all;
        };
        // Data may begin behind a hole in the block.
        (hole.next_multiple_of(block).max(at + block).min(end), true)
    }
}

impl FileStep {
    /// Whether its operation moves bytes, possibly fewer than asked for.
    fn transfers(self) -> bool {
        matches!(
            self,
            FileStep::Fetch
                | FileStep::Transfer
                | FileStep::TransferThenSync
                | FileStep::WriteZeros
        )
    }
}

impl Volume for File {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    #[inline]
    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        let mut task = FileTask::new(io);
        let (offset, len) = io.extent();
        if !self.base.holds(offset, len) {
            return self.finish(&task, Err(Error::OutOfRange));
        }
        // The kernel copies what lies in its page cache while it is told.
        if let Io::Read { buf, .. } | Io::Write { buf, .. } | Io::Compare { buf, .. } = io
            && self.is_cached(buf, offset)
        {
            machine::work::spend_bytes(len);
        }
        if let Some(claim) = self.claim(&io) {
            let caller = || Caller::Ticket(files.ticket(token));
            match self.locks.acquire(claim, caller) {
                Ok(()) => task.holds = true,
                Err(place) => {
                    task.wait = Some(TaskWait::Range(place));
                    return task.into();
                }
            }
        }
        self.begin(task, files, token)
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let mut task = match task.unpark::<ReferenceCopyTask>() {
            Ok(task) => return task.go_on(result.is_err(), files, token),
            Err(task) => task.into_file(),
        };
        if let Some(wait) = task.wait.take() {
            return self.go_on(task, wait, &result, files, token);
        }
        match result {
            Ok(n) => self.advance(task, n, files, token),
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                self.fall_back(task, errno, files, token)
            }
        }
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let _one = self
            .resizing
            .lock()
            .expect("nothing panics under this lock");
        let size_bytes = match self.below {
            Below::Device => block::new_size(&self.file, self.info(), size_bytes)?,
            _ => size_bytes,
        };
        let from = self.size_bytes();
        resize::check(&self.base, from, size_bytes, allow_shrink)?;
        match size_bytes < from {
            true => self.shrink(from, size_bytes),
            false => self.resize_to(size_bytes),
        }
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        if !self.base.holds(offset, len) {
            return Err(Error::OutOfRange);
        }
        let (mut at, end) = (offset, offset + len);
        let first = out.len();
        while at < end {
            let (next, allocated) = self.extent(at, end);
            let is_full = out.len() - first == max;
            match out[first..].last_mut() {
                Some(last) if last.allocated == allocated => last.len += next - at,
                _ if is_full => break,
                _ => out.push(Extent {
                    offset: at,
                    len: next - at,
                    allocated,
                }),
            }
            at = next;
        }
        Ok(())
    }

    /// Of a device its ends: what makes file systems and tables of partitions writes there.
    fn is_blank(&self, Range { offset, len }: Range) -> bool {
        match self.below {
            Below::File => len == 0 || self.extent(offset, offset + len) == (offset + len, false),
            Below::Device => block::is_blank(&self.file, offset, len),
            Below::Unknown => false,
        }
    }

    fn snapshots(&self) -> Option<&Snapshots> {
        self.snapshots.as_ref()
    }

    fn comparable(&self) -> Option<&Comparable> {
        self.comparable.as_ref()
    }

    fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }

    fn forget_loss(&self) {
        self.lost.let_go();
    }

    fn space(&self) -> Option<Space> {
        if self.below != Below::File {
            return None;
        }
        // st_blocks counts 512 bytes whatever the file system's blocks are.
        let used = rustix::fs::fstat(&self.file).ok()?.st_blocks;
        let below = rustix::fs::fstatvfs(&self.file).ok()?;
        Some(Space {
            used_bytes: u64::try_from(used).ok()?.saturating_mul(512),
            available_bytes: below.f_bavail.saturating_mul(below.f_frsize),
            total_bytes: Some(below.f_blocks.saturating_mul(below.f_frsize)),
        })
    }
}

/// What an I/O reports whose change could not be saved beside the data.
fn save_failed(errno: Errno) -> Error {
    Error::WriteFailed(errno)
}

/// The part of `buf` that is still to be moved.
fn rest(buf: BufRange, task: &FileTask) -> BufRange {
    let done = task.done_bytes as u32;
    buf.slice(done, buf.len() - done)
}

/// Where the rest of what a task reads goes.
fn fetched(task: &FileTask) -> BufRange {
    match task.io {
        Io::Read { buf, .. } => rest(buf, task),
        Io::Compare { scratch, .. }
        | Io::CompareAndWrite { scratch, .. }
        | Io::OrWrite { scratch, .. } => rest(scratch, task),
        Io::Verify { len, scratch, .. } => {
            let part = (len - task.done_bytes).min(u64::from(scratch.len()));
            scratch.slice(0, part as u32)
        }
        _ => unreachable!("an I/O that reads nothing"),
    }
}

/// What a task reports whose operation failed with `errno`.
fn failure(task: &FileTask, errno: Errno) -> Error {
    match (&task.io, errno) {
        _ if task.step == FileStep::Fetch => Error::ReadFailed(errno),
        (Io::Flush, _) => Error::FlushFailed(errno),
        (_, Errno::NOSPC | Errno::DQUOT) => Error::OutOfSpace(errno),
        (_, Errno::ROFS) => Error::ReadOnly,
        _ => Error::WriteFailed(errno),
    }
}

/// Makes the sync of a new size fail, for tests.
mod fault {
    use std::io;

    #[cfg(test)]
    thread_local! {
        pub(super) static FAILS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    #[cfg(test)]
    pub(super) fn at_sync() -> io::Result<()> {
        match FAILS.take() {
            true => Err(super::Errno::IO.into()),
            false => Ok(()),
        }
    }

    #[cfg(not(test))]
    pub(super) fn at_sync() -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// The kernel reports lost writes to one sync of a descriptor and no more.
    #[test]
    fn failed_sync_of_a_new_size_fails_flushes_after_it() {
        for to in [8192, 2048] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("disk");
            let kind = Kind::file(path.clone());
            let volume = File::open(&Spec::new("disk", kind, 4096, 512), &path).unwrap();
            volume.lost.check(&Io::Flush).expect("nothing is lost yet");
            fault::FAILS.set(true);
            assert_eq!(volume.resize(to, true).is_err(), to > 4096);
            assert_eq!(fs::metadata(&path).unwrap().len(), to.min(4096));
            let lost = Err(Error::FlushFailed(Errno::IO));
            assert_eq!(volume.lost.check(&Io::Flush), lost, "to {to}");
        }
    }
}
