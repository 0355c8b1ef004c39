//! `file`: a sparse file, through whatever [`FileIo`] its reactor has.
//!
//! Writes go to the page cache; a flush (fdatasync) or a durable write
//! (RWF_DSYNC) brings them to the disk. Creating and growing are durable before
//! the volume is served, so that flushed data is found again after a crash.
//!
//! The kernel reports a failed writeback to one sync and then takes the lost
//! pages for clean: a second sync would succeed over the hole. So the first
//! failure is kept, and every later flush and durable write fails with it until
//! the volume is opened again, which is for someone to decide who has looked at
//! the disk. Reads and other writes go on. What remains: of two syncs that
//! overlap, one may succeed in the instant before the other has reported.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use mem::{BufRange, Region};
use reactor::{FallocateMode, FileIo, Token};
use tracing::{error, info};

use crate::base::compare;
use crate::io::{Step, Task};
use crate::null::{ZEROS_BYTES, zeros};
use crate::open::{self, Problem};
use crate::{
    Base, Errno, Error, Extent, Io, Progress, ResizeError, Spec, Volume, identity, resize,
};

/// An operation that a signal or a full queue interrupts is issued this many
/// times more before it fails.
const RETRIES_MAX: u8 = 8;

pub(crate) struct File {
    base: Base,
    path: PathBuf,
    /// Holds the lock as long as it is open, operations in flight included.
    file: Arc<OwnedFd>,
    zeros: &'static Region,
    /// The error of the first sync that failed, or 0.
    lost: AtomicI32,
    /// What the file system below has turned out not to do.
    no_punch: AtomicBool,
    no_zero_range: AtomicBool,
}

impl File {
    pub(crate) fn open(spec: &Spec, path: &Path) -> Result<File, Problem> {
        let system = |action| {
            move |source| Problem::System {
                action,
                path: Some(path.to_owned()),
                source,
            }
        };
        let zeros = zeros().map_err(system("map memory for"))?;
        let (file, created) = open_locked(path, spec.read_only)?;
        let found = file.metadata().map_err(system("examine"))?;
        let grow = found.len() < spec.size_bytes;
        if found.len() > spec.size_bytes || grow && spec.read_only {
            return Err(Problem::FileSize {
                path: path.to_owned(),
                file_bytes: found.len(),
                size_bytes: spec.size_bytes,
            });
        }
        if grow {
            file.set_len(spec.size_bytes).map_err(system("grow"))?;
        }
        let uuid = match spec.uuid {
            Some(uuid) => uuid,
            None => identity::of_file(&file, created, spec.read_only, &spec.name)
                .map_err(system("take the identity of"))?,
        };
        if !spec.read_only {
            file.sync_all().map_err(system("sync"))?;
            sync_folder(path, created).map_err(system("sync the folder of"))?;
        }
        let (from, to) = (found.len(), spec.size_bytes);
        match (created, grow) {
            (true, _) => info!(path = %path.display(), bytes = to, "file created"),
            (_, true) => info!(path = %path.display(), from, to, "file grown"),
            _ => {}
        }
        Ok(File {
            base: Base::new(open::info(spec, uuid, true), spec.size_bytes),
            path: path.to_owned(),
            file: Arc::new(file.into()),
            zeros,
            lost: AtomicI32::new(0),
            no_punch: AtomicBool::new(false),
            no_zero_range: AtomicBool::new(false),
        })
    }

    /// The first file operation of an I/O; none if there is nothing to do.
    fn first_step(&self, io: &Io) -> Result<Option<Step>, Error> {
        self.base.check(io)?;
        if io.durable() {
            self.check_lost(io)?;
        }
        Ok(match *io {
            Io::Flush => (!self.base.info.read_only).then_some(Step::Sync),
            _ if io.extent().1 == 0 => None,
            Io::Write { .. } => Some(Step::Transfer),
            Io::MarkUnreadable { .. } => None,
            Io::Zero { deallocate, .. } => Some(self.zero_step(deallocate)),
            Io::Read { .. }
            | Io::Compare { .. }
            | Io::CompareAndWrite { .. }
            | Io::Verify { .. } => Some(Step::Fetch),
            Io::Deallocate { .. } => {
                (!self.no_punch.load(Ordering::Relaxed)).then_some(Step::Punch)
            }
        })
    }

    /// The best way to zero that the file system has not refused so far.
    fn zero_step(&self, deallocate: bool) -> Step {
        let punch = (Step::Punch, &self.no_punch);
        let range = (Step::ZeroRange, &self.no_zero_range);
        let ways = match deallocate {
            true => [punch, range],
            false => [range, punch],
        };
        let mut known = ways
            .into_iter()
            .filter(|(_, no)| !no.load(Ordering::Relaxed));
        known.next().map_or(Step::WriteZeros, |(step, _)| step)
    }

    /// Issues the file operation that the task's step asks for.
    fn submit(&self, task: Task, files: &mut dyn FileIo, token: Token) -> Progress {
        let file = &self.file;
        let (offset, len) = task.io.extent();
        let at = offset + task.done_bytes;
        match task.step {
            Step::Fetch => files.read_at(file, fetched(&task), at, token),
            Step::Transfer | Step::TransferThenSync => match task.io {
                Io::Write { buf, durable, .. }
                | Io::CompareAndWrite {
                    write: buf,
                    durable,
                    ..
                } => {
                    let durable = durable && task.step == Step::Transfer;
                    files.write_at(file, rest(buf, &task), at, durable, token);
                }
                _ => unreachable!("only writes transfer"),
            },
            Step::Punch => files.fallocate(file, FallocateMode::PunchHole, offset, len, token),
            Step::ZeroRange => files.fallocate(file, FallocateMode::ZeroRange, offset, len, token),
            Step::WriteZeros => {
                let part = (len - task.done_bytes).min(u64::from(ZEROS_BYTES));
                let zeros = self.zeros.range(0, part as u32);
                files.write_at(file, zeros, at, false, token);
            }
            Step::Sync => files.sync_data(file, token),
        }
        Progress::Pending(task)
    }

    /// The task's operation succeeded and moved `n` bytes, if it moves any.
    fn advance(&self, mut task: Task, n: u32, files: &mut dyn FileIo, token: Token) -> Progress {
        task.retries = 0;
        if task.step.transfers() {
            let len = task.io.extent().1;
            task.done_bytes += u64::from(n);
            assert!(task.done_bytes <= len, "more bytes moved than asked for");
            if n == 0 {
                return self.finish(&task.io, Err(failure(&task, 0)));
            }
            if task.done_bytes < len {
                return self.submit(task, files, token);
            }
        }
        if task.step == Step::Fetch {
            return self.after_fetch(task, files, token);
        }
        if task.io.durable() && !matches!(task.step, Step::Transfer | Step::Sync) {
            task.step = Step::Sync;
            return self.submit(task, files, token);
        }
        // A sync beside this one may have been told of a loss that is ours.
        let result = match task.io.durable() {
            true => self.check_lost(&task.io),
            false => Ok(()),
        };
        self.finish(&task.io, result)
    }

    /// All that a task reads is there.
    fn after_fetch(&self, mut task: Task, files: &mut dyn FileIo, token: Token) -> Progress {
        let result = match task.io {
            Io::Compare { buf, scratch, .. } => compare(buf, scratch),
            Io::CompareAndWrite {
                compare: data,
                scratch,
                ..
            } => match compare(data, scratch) {
                Ok(()) => {
                    task.step = Step::Transfer;
                    task.done_bytes = 0;
                    return self.submit(task, files, token);
                }
                miscompare => miscompare,
            },
            _ => Ok(()),
        };
        self.finish(&task.io, result)
    }

    /// The task's operation failed: tries it again or another way, or gives up.
    fn fall_back(
        &self,
        mut task: Task,
        errno: i32,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let interrupted = matches!(errno, libc::EINTR | libc::EAGAIN);
        let unsupported = matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS);
        let full = matches!(errno, libc::ENOSPC | libc::EDQUOT);
        let syncs = task.step == Step::Sync || task.step == Step::Transfer && task.io.durable();
        match task.step {
            _ if interrupted && task.retries < RETRIES_MAX => task.retries += 1,
            // Space may have run out in the write or on the way to the disk:
            // taken apart, only the second is a loss of data.
            Step::Transfer if syncs && (full || unsupported) => task.step = Step::TransferThenSync,
            Step::Punch | Step::ZeroRange if unsupported => {
                let refused = match task.step {
                    Step::Punch => &self.no_punch,
                    _ => &self.no_zero_range,
                };
                refused.store(true, Ordering::Relaxed);
                match task.io {
                    Io::Zero { deallocate, .. } => task.step = self.zero_step(deallocate),
                    _ => return self.finish(&task.io, Ok(())),
                }
            }
            _ => {
                if syncs && !interrupted && errno != libc::ECANCELED {
                    self.keep_lost(errno);
                }
                return self.finish(&task.io, Err(failure(&task, errno)));
            }
        }
        self.submit(task, files, token)
    }

    /// Refuses what must be durable once a sync has failed.
    fn check_lost(&self, io: &Io) -> Result<(), Error> {
        match (self.lost.load(Ordering::Acquire), io) {
            (0, _) => Ok(()),
            (errno, Io::Flush) => Err(Error::FlushFailed(Errno(errno))),
            (errno, _) => Err(Error::WriteFailed(Errno(errno))),
        }
    }

    fn keep_lost(&self, errno: i32) {
        let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.lost.compare_exchange(0, errno, new, old).is_ok() {
            error!(
                volume = self.base.info.name,
                path = %self.path.display(),
                error = %Errno(errno),
                "written data could not be made durable and may be lost; flushes and durable \
                 writes fail from now on: check the disk, then restart weft"
            );
        }
    }

    fn finish(&self, io: &Io, result: Result<(), Error>) -> Progress {
        if result.is_ok() {
            self.base.mark(io);
        }
        self.base.finish(io, result)
    }
}

impl Step {
    /// Whether its operation moves bytes, possibly fewer than asked for.
    fn transfers(self) -> bool {
        matches!(
            self,
            Step::Fetch | Step::Transfer | Step::TransferThenSync | Step::WriteZeros
        )
    }
}

impl Volume for File {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        match self.first_step(&io) {
            Ok(Some(step)) => {
                let task = Task {
                    io,
                    done_bytes: 0,
                    step,
                    retries: 0,
                };
                self.submit(task, files, token)
            }
            Ok(None) => self.finish(&io, Ok(())),
            Err(error) => self.finish(&io, Err(error)),
        }
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        match result {
            Ok(n) => self.advance(task, n, files, token),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.fall_back(task, errno, files, token)
            }
        }
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let from = self.size_bytes();
        resize::check(self.info(), from, size_bytes, allow_shrink)?;
        let system = |action| move |source| ResizeError::System { action, source };
        let file = self.file.try_clone().map(fs::File::from);
        let file = file.map_err(system("use the file"))?;
        file.set_len(size_bytes)
            .map_err(system("resize the file"))?;
        file.sync_all().map_err(system("sync the file"))?;
        self.base.set_size(size_bytes);
        Ok(())
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
        let all = Extent {
            offset,
            len,
            allocated: true,
        };
        out.extend((len > 0 && max > 0).then_some(all));
        Ok(())
    }
}

/// The part of `buf` that is still to be moved.
fn rest(buf: BufRange, task: &Task) -> BufRange {
    let done = task.done_bytes as u32;
    buf.slice(done, buf.len() - done)
}

/// Where the rest of what a task reads goes.
fn fetched(task: &Task) -> BufRange {
    match task.io {
        Io::Read { buf, .. } => rest(buf, task),
        Io::Compare { scratch, .. } | Io::CompareAndWrite { scratch, .. } => rest(scratch, task),
        Io::Verify { len, scratch, .. } => {
            let part = (len - task.done_bytes).min(u64::from(scratch.len()));
            scratch.slice(0, part as u32)
        }
        _ => unreachable!("an I/O that reads nothing"),
    }
}

/// What a task reports whose operation failed with `errno`.
fn failure(task: &Task, errno: i32) -> Error {
    match (&task.io, errno) {
        _ if task.step == Step::Fetch => Error::ReadFailed(Errno(errno)),
        (Io::Flush, _) => Error::FlushFailed(Errno(errno)),
        (_, libc::ENOSPC | libc::EDQUOT) => Error::OutOfSpace(Errno(errno)),
        (_, libc::EROFS) => Error::ReadOnly,
        _ => Error::WriteFailed(Errno(errno)),
    }
}

/// Opens the file, creating it if it is missing, and locks it: whole for a
/// volume that may change, shared between read-only ones. The second value
/// tells whether it was created.
fn open_locked(path: &Path, read_only: bool) -> Result<(fs::File, bool), Problem> {
    let system = |action| {
        move |source| Problem::System {
            action,
            path: Some(path.to_owned()),
            source,
        }
    };
    let exists = match fs::metadata(path) {
        // Looked at before it is opened: opening a pipe would block.
        Ok(found) => check_type(path, &found).map(|()| true)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(system("examine")(e)),
    };
    if !exists {
        if read_only {
            return Err(Problem::NoFile(path.to_owned()));
        }
        if !folder(path).is_dir() {
            return Err(Problem::NoFolder(folder(path).to_owned()));
        }
    }
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).mode(0o600);
    let action = if exists { "open" } else { "create" };
    let opened = options.create_new(!exists).open(path);
    let file = opened.map_err(system(action))?;
    let lock = match read_only {
        true => file.try_lock_shared(),
        false => file.try_lock(),
    };
    match lock {
        Ok(()) => Ok((file, !exists)),
        Err(TryLockError::WouldBlock) => Err(Problem::InUse {
            path: path.to_owned(),
            holder: holder(&file),
        }),
        Err(TryLockError::Error(e)) => Err(system("lock")(e)),
    }
}

fn check_type(path: &Path, found: &fs::Metadata) -> Result<(), Problem> {
    let kind = found.file_type();
    if kind.is_block_device() {
        return Err(Problem::BlockDevice(path.to_owned()));
    }
    if !kind.is_file() {
        return Err(Problem::NotAFile(path.to_owned()));
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the file's name durable; also for a file that is not new, since the
/// process that created it may have died before it came this far.
fn sync_folder(path: &Path, created: bool) -> io::Result<()> {
    match fs::File::open(folder(path)) {
        Ok(folder) => folder.sync_all(),
        // A folder that may be passed through but not looked at.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !created => Ok(()),
        Err(e) => Err(e),
    }
}

/// The process that holds a lock on the file, if the kernel shows it.
fn holder(file: &fs::File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    find_holder(&locks, &format!("{major:02x}:{minor:02x}:{}", found.ino()))
}

/// proc_locks(5): `ID: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END`.
fn find_holder(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let flock = words.next()? == "FLOCK";
        let pid = words.nth(2)?;
        let here = words.next()? == file;
        (flock && here).then(|| pid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 fe:00:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 12 fe:00:78 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 13 fe:00:77 0 EOF\n";
        assert_eq!(find_holder(locks, "fe:00:77"), Some(13));
        assert_eq!(find_holder(locks, "fe:00:79"), None);
    }

    #[test]
    fn a_bare_name_lies_in_the_current_folder() {
        assert_eq!(folder(Path::new("disk")), Path::new("."));
        assert_eq!(folder(Path::new("a/disk")), Path::new("a"));
        assert_eq!(folder(Path::new("/disk")), Path::new("/"));
    }
}
