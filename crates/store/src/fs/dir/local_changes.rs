//! What local programs do to files that clients have delegations of: inotify(7) tells it, which
//! takes no privilege. The first file that is watched begins a thread, which ends with the
//! directory.
//!
//! What weft does itself is told as well, where it is such a thing: a delegation that is recalled
//! for it costs its client a call. weft opens files again as it needs them: it does not watch while
//! it does.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use machine::locked;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;

use super::DirInner;
use super::beneath::proc_path;
use crate::fs::{FileId, LocalChange, TellLocalChanges, Watched};

/// Bytes of events that are read at a time.
const EVENTS_BYTES: usize = 4096;

/// What is of interest to clients that read a file.
const OF_READ: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE_SELF);
/// A client with a write delegation changes its file, and sets its attributes, through weft: all
/// that tells others apart is that they open it.
const OF_WRITTEN: WatchFlags = WatchFlags::OPEN;
/// A watch is of something.
const OF_ANY: WatchFlags = WatchFlags::DELETE_SELF;

/// A watch of inotify's.
#[derive(Debug)]
struct FileWatch {
    wd: i32,
    ino: u64,
    /// Delegations of reading, and of writing.
    reads: usize,
    writes: usize,
    /// Opens of weft's own that are under way.
    own_opens: usize,
}

impl FileWatch {
    fn flags(&self) -> WatchFlags {
        let mut flags = OF_ANY;
        if self.reads > 0 {
            flags |= OF_READ;
        }
        if self.writes > 0 && self.own_opens == 0 {
            flags |= OF_WRITTEN;
        }
        flags
    }

    fn count(&mut self, is_written: bool) -> &mut usize {
        match is_written {
            true => &mut self.writes,
            false => &mut self.reads,
        }
    }
}

/// What the thread reads.
#[derive(Debug)]
struct Events {
    inotify: OwnedFd,
    /// A watch of nothing that happens: when it is removed the thread ends.
    end: i32,
}

#[derive(Debug, Default)]
struct Watches {
    /// While there is a thread.
    events: Option<Arc<Events>>,
    by_file: HashMap<FileId, FileWatch>,
    by_wd: HashMap<i32, FileId>,
    by_ino: HashMap<u64, FileId>,
    /// What has happened to them and was not taken.
    changed: BTreeMap<FileId, LocalChange>,
}

/// The files of one directory that are watched.
#[derive(Default)]
pub(super) struct LocalChanges {
    watches: Mutex<Watches>,
    /// Whether any file is watched: others are opened without a look.
    has_any: AtomicBool,
    tell: OnceLock<TellLocalChanges>,
}

/// Keeps a file watched.
struct Guard {
    of: Arc<LocalChanges>,
    file: FileId,
    is_written: bool,
}

/// Where weft opens a file that is watched.
struct OwnOpen<'a> {
    of: &'a LocalChanges,
    file: FileId,
    fd: BorrowedFd<'a>,
}

impl Drop for OwnOpen<'_> {
    fn drop(&mut self) {
        locked(&self.of.watches).own_open(self.file, self.fd, |count| count.saturating_sub(1));
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.file).finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.of.unwatch(self.file, self.is_written);
    }
}

impl LocalChanges {
    /// From now on this is told; the first counts.
    pub(super) fn set_tell(&self, tell: TellLocalChanges) {
        // All tell the same server.
        let _ = self.tell.set(tell);
    }

    /// Watches an open file until what is returned is dropped.
    ///
    /// # Errors
    /// Of inotify: EMFILE where the user has as many instances as may be, ENOSPC of watches.
    pub(super) fn watch(
        self: &Arc<Self>,
        (file, fd): (FileId, BorrowedFd<'_>),
        is_written: bool,
    ) -> Result<Watched, Errno> {
        let mut watches = locked(&self.watches);
        let events = match &watches.events {
            Some(events) => Arc::clone(events),
            None => self.start(&mut watches)?,
        };
        let ino = fstat(fd)?.st_ino;
        let watch = watches.by_file.entry(file).or_insert(FileWatch {
            wd: -1,
            ino,
            reads: 0,
            writes: 0,
            own_opens: 0,
        });
        *watch.count(is_written) += 1;
        match inotify::add_watch(&events.inotify, proc_path(fd), watch.flags()) {
            Ok(wd) => watch.wd = wd,
            Err(errno) => {
                *watch.count(is_written) -= 1;
                watches.forget_unused(file);
                return Err(errno);
            }
        }
        let wd = watch.wd;
        watches.by_wd.insert(wd, file);
        watches.by_ino.insert(ino, file);
        self.has_any.store(true, Ordering::Release);
        Ok(Box::new(Guard {
            of: Arc::clone(self),
            file,
            is_written,
        }))
    }

    /// While what is returned lives it is weft that opens the file of a descriptor.
    fn own_open<'a>(&'a self, fd: BorrowedFd<'a>) -> Option<OwnOpen<'a>> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let ino = fstat(fd).ok()?.st_ino;
        let mut watches = locked(&self.watches);
        let file = *watches.by_ino.get(&ino)?;
        watches.own_open(file, fd, |count| count + 1);
        Some(OwnOpen { of: self, file, fd })
    }

    fn start(self: &Arc<Self>, watches: &mut Watches) -> Result<Arc<Events>, Errno> {
        let inotify = inotify::init(CreateFlags::CLOEXEC)?;
        let end = inotify::add_watch(&inotify, "/", WatchFlags::DELETE_SELF)?;
        let events = Arc::new(Events { inotify, end });
        let (of, read) = (Arc::clone(self), Arc::clone(&events));
        let thread = thread::Builder::new().name("weft-changes".into());
        let started = thread.spawn(move || of.read(&read));
        started.map_err(|_| Errno::AGAIN)?;
        watches.events = Some(Arc::clone(&events));
        Ok(events)
    }

    fn unwatch(&self, file: FileId, is_written: bool) {
        let mut watches = locked(&self.watches);
        let watch = watches.by_file.get_mut(&file);
        *watch.expect("it is watched").count(is_written) -= 1;
        watches.forget_unused(file);
        if watches.by_file.is_empty() {
            self.has_any.store(false, Ordering::Release);
        }
    }

    /// What has happened to a file.
    pub(super) fn take(&self) -> Option<(FileId, LocalChange)> {
        locked(&self.watches).changed.pop_first()
    }

    /// Nothing is told any more.
    pub(super) fn end(&self) {
        if let Some(events) = locked(&self.watches).events.take() {
            // The thread has ended already where the kernel has let go of the root.
            let _ = inotify::remove_watch(&events.inotify, events.end);
        }
    }

    /// Tells what comes.
    fn read(&self, events: &Events) {
        let mut buf = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(events.inotify.as_fd(), &mut buf);
        loop {
            let (wd, flags) = match reader.next() {
                Ok(event) => (event.wd(), event.events()),
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let mut watches = locked(&self.watches);
            // The event that tells so may be among those that were lost.
            if wd == events.end || watches.events.is_none() {
                return;
            }
            let are_first = watches.note(wd, flags);
            drop(watches);
            if let Some(tell) = self.tell.get().filter(|_| are_first) {
                tell();
            }
        }
    }
}

impl Watches {
    /// A file of which no client has a delegation is watched no more.
    fn forget_unused(&mut self, file: FileId) {
        let is_unused = |watch: &FileWatch| watch.reads == 0 && watch.writes == 0;
        let Some(watch) = self.by_file.get(&file).filter(|watch| is_unused(watch)) else {
            return;
        };
        let (wd, ino) = (watch.wd, watch.ino);
        self.by_file.remove(&file);
        self.by_wd.remove(&wd);
        self.by_ino.remove(&ino);
        self.changed.remove(&file);
        if let Some(events) = &self.events {
            // The kernel has forgotten a file that is gone.
            let _ = inotify::remove_watch(&events.inotify, wd);
        }
    }

    /// One own open more of a file, or one less.
    fn own_open(&mut self, file: FileId, fd: BorrowedFd<'_>, count: impl Fn(usize) -> usize) {
        let (Some(watch), Some(events)) = (self.by_file.get_mut(&file), &self.events) else {
            return;
        };
        watch.own_opens = count(watch.own_opens);
        // It is watched already: there is room.
        let _ = inotify::add_watch(&events.inotify, proc_path(fd), watch.flags());
    }

    /// Notes what an event tells; whether nothing else waits to be taken.
    fn note(&mut self, wd: i32, flags: ReadFlags) -> bool {
        let were_none = self.changed.is_empty();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Some were lost: all may have changed.
            let all = self.by_file.keys();
            self.changed = all.map(|file| (*file, LocalChange::Changed)).collect();
        } else if let Some(file) = self.by_wd.get(&wd)
            && let Some(watch) = self.by_file.get(file)
        {
            let (change, is_wanted) = match flags.contains(ReadFlags::OPEN) {
                true => (LocalChange::Opened, watch.writes > 0),
                false => (LocalChange::Changed, watch.reads > 0),
            };
            if is_wanted && !flags.contains(ReadFlags::IGNORED) {
                let known = self.changed.entry(*file).or_insert(change);
                *known = change.max(*known);
            }
        }
        were_none && !self.changed.is_empty()
    }
}

impl DirInner {
    /// Opens the very file of a descriptor once more, which is no use by a local program.
    pub(super) fn reopen_file(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let changes = self.local_changes.as_deref();
        let _own_open = changes.and_then(|changes| changes.own_open(fd));
        self.beneath.reopen(fd, flags)
    }
}
