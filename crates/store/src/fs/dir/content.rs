//! Content of files: what takes a thread that may wait. Reads and writes
//! themselves go through the reactor ([`super::task`]).

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use faults::Fault;
use rustix::fs::{
    Advice, FallocateFlags, OFlags, SeekFrom, copy_file_range, fadvise, fallocate, fstatvfs, seek,
};
use rustix::io::{Errno, pread, pwrite};

use super::attributes::no_file;
use super::beneath::SeenObject;
use super::descriptor::Descriptor;
use super::opens::{OpenFile, ReadyFile};
use super::quotas::Reserved;
use super::workers::Reply;
use super::{DirInner, Synced};
use crate::direct::DirectFile;
use crate::fs::op::Move;
use crate::fs::{
    Attr, Caller, Error, FileId, ObjectKind, Output, QuotaRoom, READ_AHEAD_BYTES_MAX, Seek,
    SetAttr, Statfs, Time, access,
};

/// Bytes that are copied before others have their turn.
const COPY_STEP_BYTES: u64 = 8 << 20;
/// Bytes that are copied at a time where the kernel does not.
const COPY_BYTES: usize = 256 << 10;

impl DirInner {
    /// The descriptor of a regular file, which lies where it did.
    fn descriptor(&self, file: FileId, write: bool, now: Time) -> Result<(ReadyFile, Attr), Error> {
        if let Some((entry, is_pinned)) = self.entries.kept_descriptor(file, write) {
            let seen = match is_pinned {
                true => self.object(file),
                false => self.resolve(file),
            };
            if let Err(Error::Stale) = seen {
                // It is looked for no more, and its writes are not forgotten.
                self.sync_writes(&entry);
                self.entries.forget(file);
            }
            let attr = self.attr(file, &seen?, false)?;
            self.entries.confirm(&entry, &attr, now);
            if let Some(fd) = entry.descriptor() {
                return Ok((ReadyFile { entry, fd }, attr));
            }
        }
        let seen = self.object(file)?;
        let attr = self.attr(file, &seen, false)?;
        if attr.kind != ObjectKind::Regular {
            return Err(no_file(attr.kind));
        }
        let (fd, can_write) = self.open_file(&seen, write)?;
        self.close_superfluous();
        let fd = self.describe(fd, can_write);
        let (entry, fd) = self.entries.insert_descriptor(&attr, fd, can_write, now);
        Ok((ReadyFile { entry, fd }, attr))
    }

    /// Makes room for one more descriptor.
    fn close_superfluous(&self) {
        let superfluous = self.entries.descriptors_to_close();
        superfluous.iter().for_each(|entry| self.sync_writes(entry));
        self.entries.close(&superfluous);
        self.look_again(&superfluous);
    }

    /// Before a descriptor is closed: if the kernel fails later to write what went
    /// through it, it reports that to no descriptor. Blocks.
    pub(super) fn sync_writes(&self, entry: &OpenFile) {
        let Some(fd) = entry.descriptor() else {
            return;
        };
        if !entry.syncs.begin() {
            return;
        }
        let synced = loop {
            if faults::is(Fault::CloseUnsynced) {
                break Ok(());
            }
            match self.below.sync_data(fd.file()) {
                Err(Errno::INTR) => {}
                synced => break synced,
            }
        };
        self.file_synced(entry, synced);
    }

    /// A sync of a file has ended. A caller that learns of that sees the new
    /// verifier.
    pub(super) fn file_synced(&self, entry: &OpenFile, result: Result<(), Errno>) {
        if let Err(errno) = result {
            match entry.descriptor() {
                Some(fd) => self.lost("data", &*fd, errno),
                None => self.lost("data", self.beneath.root(), errno),
            }
        }
        entry.syncs.end(result);
    }

    /// To write if that can be had, since the next one may want to.
    fn open_file(&self, seen: &SeenObject, write: bool) -> Result<(OwnedFd, bool), Error> {
        let fd = seen.fd.as_fd();
        if self.is_read_only {
            let fd = self.reopen_file(fd, OFlags::RDONLY)?;
            return match write {
                true => Err(Error::RoFs),
                false => Ok((fd, false)),
            };
        }
        match self.reopen_file(fd, OFlags::RDWR) {
            Ok(fd) => Ok((fd, true)),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) if !write => {
                Ok((self.reopen_file(fd, OFlags::RDONLY)?, false))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// An open file, past the page cache as well where that is wanted and can be.
    pub(super) fn describe(&self, fd: OwnedFd, can_write: bool) -> Arc<Descriptor> {
        let direct = match self.is_direct.then(|| self.open_direct(&fd, can_write)) {
            None => None,
            Some(Ok(direct)) => Some(direct),
            Some(Err(error)) => {
                self.tell_cached(&error);
                None
            }
        };
        Descriptor::new(fd, direct)
    }

    /// A file cannot be read and written past the page cache.
    pub(super) fn tell_cached(&self, error: &io::Error) {
        if !self.told_direct.swap(true, Ordering::Relaxed) {
            tracing::info!(
                file_system = self.info.name,
                %error,
                "data of a file goes through the page cache: it knows no direct I/O"
            );
        }
    }

    fn open_direct(&self, fd: &OwnedFd, can_write: bool) -> io::Result<DirectFile> {
        let access = match can_write {
            true => OFlags::RDWR,
            false => OFlags::RDONLY,
        };
        let direct = DirectFile::new(self.reopen_file(fd.as_fd(), access | OFlags::DIRECT)?)?;
        Ok(direct.in_whole_pages())
    }

    /// A file that the caller may read.
    pub(super) fn ready_to_read(
        &self,
        caller: &Caller<'_>,
        file: FileId,
    ) -> Result<ReadyFile, Error> {
        let (ready, attr) = self.descriptor(file, false, caller.now)?;
        access::check_read(&attr, caller)?;
        Ok(ready)
    }

    /// A file that the caller may write from an offset on, with what it becomes thereby.
    fn writable(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        from: u64,
    ) -> Result<(ReadyFile, Attr), Error> {
        let (ready, attr) = self.descriptor(file, true, caller.now)?;
        access::check_write(&attr, caller, from, attr.size)?;
        Ok((ready, attr))
    }

    /// Takes the bits of the mode that a file loses when it is written to.
    fn clear_set_id_bits(&self, caller: &Caller<'_>, attr: &Attr) -> Result<(), Error> {
        let mode = access::mode_written(attr.mode, caller);
        if mode == attr.mode {
            return Ok(());
        }
        let root = Caller {
            uid: 0,
            gid: 0,
            gids: &[],
            now: caller.now,
            is_open: true,
            from: caller.from,
        };
        let set = SetAttr {
            mode: Some(mode),
            acl: attr.acl.clone(),
            ..SetAttr::default()
        };
        self.setattr(&root, attr.file, &set, None, &mut Synced::default())?;
        Ok(())
    }

    /// A file that the caller writes a range of next, and the room for that.
    pub(super) fn ready_to_write(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        range: (u64, u64),
    ) -> Result<(ReadyFile, Reserved), Error> {
        let (ready, attr) = self.writable(caller, file, range.0)?;
        let room = self.reserve_range(caller, (&ready, &attr), range)?;
        self.clear_set_id_bits(caller, &attr)?;
        Ok((ready, room))
    }

    pub(super) fn open(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        read: bool,
        write: bool,
    ) -> Result<(), Error> {
        // What it was made with counts, also where the mode says otherwise.
        let (ready, attr) = match self.descriptor(file, write && !self.is_read_only, caller.now) {
            Err(Error::Access) if caller.is_open => self.descriptor(file, false, caller.now)?,
            other => other?,
        };
        if write && self.is_read_only {
            return Err(Error::RoFs);
        }
        access::check_open(&attr, caller, read, write)?;
        // Under the table's lock, as a REMOVE that takes the last name away.
        let table = self.table();
        if table.get(file.0)?.is_none() {
            return Err(Error::Stale);
        }
        self.entries.pin(&ready.entry)
    }

    pub(super) fn close(&self, file: FileId) -> Result<(), Error> {
        if self.entries.unpin(file) {
            self.uncharge_file(file);
            self.table().remove(file.0)?;
        }
        Ok(())
    }

    /// What a file is after its content was changed.
    fn content_changed(
        &self,
        file: FileId,
        ready: &ReadyFile,
        room: &mut Reserved,
    ) -> Result<Attr, Error> {
        ready.entry.syncs.wrote();
        let mut seen = self.beneath.look(ready.fd.file().clone())?;
        self.attr_grown(file, &mut seen, room)
    }

    /// Bytes of a file now.
    pub(super) fn size_now(&self, ready: &ReadyFile) -> Result<u64, Error> {
        let size = self.beneath.look(ready.fd.file().clone())?.stat.stx_size;
        ready.entry.set_size(size);
        Ok(size)
    }

    pub(super) fn allocate(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        (offset, len): (u64, u64),
        is_hole: bool,
    ) -> Result<(), Error> {
        let (ready, attr) = self.writable(caller, file, offset)?;
        let end = offset.checked_add(len);
        let len = match is_hole {
            true => {
                end.ok_or(Error::Inval)?;
                len.min(self.info.file_bytes_max.saturating_sub(offset))
            }
            false => {
                let is_too_far = end.is_none_or(|end| end > self.info.file_bytes_max);
                if is_too_far {
                    return Err(Error::FBig);
                }
                // The kernel would take all that is left before it says so.
                let free = self.statfs()?.bytes_free;
                if len > free.saturating_add(attr.used_bytes) {
                    return Err(Error::NoSpc);
                }
                len
            }
        };
        let mut room = match is_hole {
            true => Reserved::default(),
            false => self.reserve_range(caller, (&ready, &attr), (offset, len))?,
        };
        self.clear_set_id_bits(caller, &attr)?;
        if len > 0 {
            if is_hole {
                self.not_dense(&ready);
            }
            let mode = match is_hole {
                true => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                false => FallocateFlags::empty(),
            };
            fallocate(&*ready.fd, mode, offset, len)?;
        }
        self.content_changed(file, &ready, &mut room)?;
        Ok(())
    }

    pub(super) fn seek(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        what: Seek,
    ) -> Result<Output, Error> {
        let ready = self.ready_to_read(caller, file)?;
        let size = self.size_now(&ready)?;
        if offset >= size {
            return Err(Error::Nxio);
        }
        let from = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        let offset = match seek(&*ready.fd, from) {
            Ok(at) => at.min(size),
            // No data up to the end.
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno.into()),
        };
        let is_end = offset == size;
        Ok(Output::Found { offset, is_end })
    }

    /// Has the kernel read a range into the page cache; whether it does.
    pub(super) fn read_ahead(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        (offset, len): (u64, u64),
    ) -> Result<bool, Error> {
        let ready = self.ready_to_read(caller, file)?;
        let rest = self.size_now(&ready)?.saturating_sub(offset);
        let len = match len {
            0 => rest,
            len => len.min(rest),
        };
        // What goes past the page cache is not looked for there, and to the kernel a length of 0
        // is all of the file.
        match NonZeroU64::new(len.min(READ_AHEAD_BYTES_MAX)) {
            Some(len) if !self.is_direct => {
                Ok(fadvise(&*ready.fd, offset, Some(len), Advice::WillNeed).is_ok())
            }
            _ => Ok(false),
        }
    }

    /// Both files, and how many bytes there are to move, of which `done` were moved.
    fn both(
        &self,
        caller: &Caller<'_>,
        what: &Move,
        (is_clone, done): (bool, u64),
    ) -> Result<(ReadyFile, (ReadyFile, Attr), u64), Error> {
        let from_end = what.from_offset.checked_add(what.len);
        let to_end = what.to_offset.checked_add(what.len);
        let (Some(from_end), Some(to_end)) = (from_end, to_end) else {
            return Err(Error::Inval);
        };
        let (to, attr) = self.writable(caller, what.to, what.to_offset + done)?;
        let from = self.ready_to_read(caller, what.from)?;
        let size = self.size_now(&from)?;
        if what.from_offset > size || (is_clone && from_end > size) {
            return Err(Error::Inval);
        }
        let rest = size - what.from_offset;
        let len = match what.len {
            0 => rest,
            len => len.min(rest),
        };
        if what.from == what.to && what.from_offset.abs_diff(what.to_offset) < len {
            return Err(Error::Inval);
        }
        if to_end.max(what.to_offset.saturating_add(len)) > self.info.file_bytes_max {
            return Err(Error::FBig);
        }
        if len > 0 {
            self.clear_set_id_bits(caller, &attr)?;
        }
        Ok((from, (to, attr), len))
    }

    pub(super) fn clone(&self, caller: &Caller<'_>, what: &Move) -> Result<(), Error> {
        let (from, (to, attr), len) = self.both(caller, what, (true, 0))?;
        let range = (what.to_offset, len);
        let mut room = self.reserve_range(caller, (&to, &attr), range)?;
        if len > 0 {
            let source = (from.fd.as_fd(), what.from_offset);
            let goal = (to.fd.as_fd(), what.to_offset);
            // A length of 0 shares up to the end, where a part of a block may be.
            let cloned = reactor::clone_range(source, goal, what.len);
            cloned.map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::XDEV) => Error::NotSupp,
                _ => error.into(),
            })?;
        }
        self.content_changed(what.to, &to, &mut room)?;
        Ok(())
    }

    /// A part of a copy, of which `done` bytes are done; `None` if there is more
    /// to do.
    pub(super) fn copy_some(
        &self,
        caller: &Caller<'_>,
        what: &Move,
        reply: &Reply,
    ) -> Option<Result<Output, Error>> {
        match self.try_copy(caller, what, reply) {
            Ok(false) => None,
            Ok(true) => Some(Ok(Output::Copied(reply.copied.load(Ordering::Acquire)))),
            // What was copied is the answer.
            Err(error) => Some(match reply.copied.load(Ordering::Acquire) {
                0 => Err(error),
                copied => Ok(Output::Copied(copied)),
            }),
        }
    }

    fn try_copy(&self, caller: &Caller<'_>, what: &Move, reply: &Reply) -> Result<bool, Error> {
        let mut done = reply.copied.load(Ordering::Acquire);
        let (from, (to, attr), len) = self.both(caller, what, (false, done))?;
        let step = self.len_that_fits(&attr, COPY_STEP_BYTES);
        let end = len.min(done + step);
        let range = (what.to_offset + done, end.saturating_sub(done));
        let mut room = self.reserve_range(caller, (&to, &attr), range)?;
        let mut is_over = done >= len;
        while done < end && !reply.is_canceled.load(Ordering::Acquire) {
            let source = (&*from.fd, what.from_offset + done);
            let goal = (&*to.fd, what.to_offset + done);
            let copied = match copy_range(source, goal, end - done) {
                Ok(copied) => copied,
                Err(errno) => {
                    self.content_changed(what.to, &to, &mut room)?;
                    return Err(errno.into());
                }
            };
            done += copied;
            is_over = copied == 0 || done >= len;
            reply.copied.store(done, Ordering::Release);
            if is_over {
                break;
            }
        }
        self.content_changed(what.to, &to, &mut room)?;
        Ok(is_over || reply.is_canceled.load(Ordering::Acquire))
    }

    pub(super) fn statfs(&self) -> Result<Statfs, Error> {
        let stat = fstatvfs(self.beneath.root())?;
        let bytes_free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(Statfs {
            bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            bytes_free,
            files: stat.f_files,
            files_free: stat.f_favail,
            bytes_avail: bytes_free,
            quota: QuotaRoom::default(),
        })
    }
}

/// Some bytes, by the kernel if it can.
fn copy_range(
    (from, from_offset): (&Descriptor, u64),
    (to, to_offset): (&Descriptor, u64),
    len: u64,
) -> Result<u64, Errno> {
    let (mut at, mut goal) = (from_offset, to_offset);
    match copy_file_range(from, Some(&mut at), to, Some(&mut goal), len as usize) {
        Ok(copied) => return Ok(copied as u64),
        Err(Errno::INTR) => return copy_range((from, from_offset), (to, to_offset), len),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::INVAL | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let mut bytes = vec![0; COPY_BYTES.min(len as usize)];
    let count = pread(from, &mut bytes[..], from_offset)?;
    let mut written = 0;
    while written < count {
        written += pwrite(to, &bytes[written..count], to_offset + written as u64)?;
    }
    Ok(count as u64)
}
