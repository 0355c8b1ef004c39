//! What local programs do to files that clients have delegations of: inotify(7) tells it, which
//! takes no privilege. The first file that is watched begins a thread, which ends with the
//! directory.
//!
//! What weft does itself is told as well, where it is such a thing: a delegation that is recalled
//! for it costs its client a call.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use machine::locked;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::beneath::proc_path;
use crate::fs::{FileId, LocalChange, TellLocalChanges, Watched};

/// Bytes of events that are read at a time.
const EVENTS_BYTES: usize = 4096;

/// What tells that a file is not at the clients alone that have written or read it.
const OF_READ: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE_SELF);
/// A client with a write delegation changes its file, and sets its attributes, through weft: all
/// that tells others apart is that they open it.
const OF_WRITTEN: WatchFlags = WatchFlags::OPEN;

/// A watch of inotify's.
#[derive(Debug)]
struct FileWatch {
    wd: i32,
    /// Delegations of the file.
    count: usize,
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
    /// What has happened to them and was not taken.
    changed: BTreeMap<FileId, LocalChange>,
}

/// The files of one directory that are watched.
#[derive(Default)]
pub(super) struct LocalChanges {
    watches: Mutex<Watches>,
    tell: OnceLock<TellLocalChanges>,
}

/// Keeps a file watched.
struct Guard {
    of: Arc<LocalChanges>,
    file: FileId,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.file).finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.of.unwatch(self.file);
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
        let what = match is_written {
            true => OF_WRITTEN,
            false => OF_READ,
        };
        let flags = what | WatchFlags::MASK_ADD;
        let wd = inotify::add_watch(&events.inotify, proc_path(fd), flags)?;
        watches.by_wd.insert(wd, file);
        let watch = watches.by_file.entry(file);
        watch.or_insert(FileWatch { wd, count: 0 }).count += 1;
        Ok(Box::new(Guard {
            of: Arc::clone(self),
            file,
        }))
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

    fn unwatch(&self, file: FileId) {
        let mut watches = locked(&self.watches);
        let watch = watches.by_file.get_mut(&file);
        let watch = watch.expect("a file is watched as often as it is let go");
        watch.count -= 1;
        if watch.count > 0 {
            return;
        }
        let wd = watch.wd;
        watches.by_file.remove(&file);
        watches.by_wd.remove(&wd);
        watches.changed.remove(&file);
        if let Some(events) = &watches.events {
            // The kernel has forgotten a file that is gone.
            let _ = inotify::remove_watch(&events.inotify, wd);
        }
    }

    /// What has happened, to so many files at most.
    pub(super) fn take(&self, most: usize) -> Vec<(FileId, LocalChange)> {
        let mut watches = locked(&self.watches);
        let first = || watches.changed.pop_first();
        iter::from_fn(first).take(most).collect()
    }

    /// Nothing is told any more.
    pub(super) fn end(&self) {
        if let Some(events) = locked(&self.watches).events.take() {
            let ended = inotify::remove_watch(&events.inotify, events.end);
            ended.expect("it was made with the thread");
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
            if wd == events.end {
                return;
            }
            let are_first = locked(&self.watches).note(wd, flags);
            if let Some(tell) = self.tell.get().filter(|_| are_first) {
                tell();
            }
        }
    }
}

impl Watches {
    /// Notes what an event tells; whether nothing else waits to be taken.
    fn note(&mut self, wd: i32, flags: ReadFlags) -> bool {
        let were_none = self.changed.is_empty();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Some were lost: all may have changed.
            let all = self.by_file.keys();
            self.changed = all.map(|file| (*file, LocalChange::Changed)).collect();
        } else if let Some(file) = self.by_wd.get(&wd)
            && !flags.contains(ReadFlags::IGNORED)
        {
            let change = match flags.contains(ReadFlags::OPEN) {
                true => LocalChange::Opened,
                false => LocalChange::Changed,
            };
            let known = self.changed.entry(*file).or_insert(change);
            *known = change.max(*known);
        }
        were_none && !self.changed.is_empty()
    }
}
