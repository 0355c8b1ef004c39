//! Open files: descriptors that data goes through.
//!
//! A file that clients have open keeps its descriptor as long as there are
//! enough of them, and for good once it has no name any more. Others keep theirs
//! for as long as operations use them, but look again where they lie once a second,
//! so that what was removed or moved out is not served on.
//!
//! The kernel reports a write that fails after its answer to the descriptor that it
//! went through. So one is closed only when no operation uses it and nothing was
//! written to it since it was last synced; until then its place is not free.

use machine::locked;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::descriptor::Descriptor;
use super::file_syncs::FileSyncs;
use crate::fs::{Attr, Caller, Error, FileId, Time, access};

/// For how long a file that no client has open is taken to lie where it did.
const TRUST_NANOS: i64 = 1_000_000_000;

/// One file.
pub(super) struct OpenFile {
    pub(super) file: FileId,
    state: Mutex<OpenState>,
    /// Writes that the change attribute does not tell of yet.
    changes: AtomicU64,
    /// Bytes that it has at least, unless a local process has cut it off.
    size: AtomicU64,
    /// Below this all is on blocks, so that to write there takes none.
    dense: AtomicU64,
    /// Something was written since its blocks were counted.
    is_unsettled: AtomicBool,
    /// When it was last wanted, on [`Map::clock`].
    wanted: AtomicU64,
    pub(super) syncs: FileSyncs,
}

/// A file that is ready to be read or written.
pub(super) struct ReadyFile {
    pub(super) entry: Arc<OpenFile>,
    pub(super) fd: Arc<Descriptor>,
}

struct OpenState {
    fd: Option<Arc<Descriptor>>,
    can_write: bool,
    opens: u32,
    /// It has no name: its descriptor is all that there is of it.
    is_unlinked: bool,
    seen_at: i64,
    attr: Attr,
}

#[derive(Default)]
struct Map {
    by_file: HashMap<FileId, Arc<OpenFile>>,
    clock: u64,
    /// So many descriptors may come before they are counted again.
    uncounted_left: usize,
}

pub(super) struct Entries {
    map: Mutex<Map>,
    descriptors_max: usize,
}

fn nanos(time: Time) -> i64 {
    time.seconds
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.nanos.into())
}

impl OpenState {
    /// Takes the descriptor, unless an operation uses it.
    fn take_unused(&mut self) -> Option<Arc<Descriptor>> {
        // Each user of it got it under the lock that the caller holds.
        self.fd.take_if(|fd| Descriptor::is_unused(fd))
    }
}

/// A descriptor, if the caller may use it so.
pub(super) type Granted = Result<Arc<Descriptor>, Error>;

impl OpenFile {
    /// The descriptor for a read, or for a write from an offset on, without a system call.
    /// `None`: that takes a thread that may wait.
    pub(super) fn checked_descriptor(
        &self,
        caller: &Caller<'_>,
        write: Option<u64>,
    ) -> Option<Granted> {
        let state = locked(&self.state);
        let age = nanos(caller.now).wrapping_sub(state.seen_at);
        // What was looked at when it was opened holds for clients that have it open.
        let is_open = state.opens > 0 && caller.is_open;
        let is_fresh = is_open || (0..TRUST_NANOS).contains(&age);
        let fd = state.fd.as_ref().filter(|_| is_fresh)?;
        let Some(from) = write else {
            let checked = access::check_read(&state.attr, caller);
            return Some(checked.map(|()| Arc::clone(fd)));
        };
        if let Err(error) = access::check_write(&state.attr, caller, from, self.size()) {
            return Some(Err(error));
        }
        let mode = state.attr.mode;
        let keeps_mode = access::mode_written(mode, caller) == mode;
        (state.can_write && keeps_mode).then(|| Ok(Arc::clone(fd)))
    }

    pub(super) fn descriptor(&self) -> Option<Arc<Descriptor>> {
        locked(&self.state).fd.clone()
    }

    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(super) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    pub(super) fn dense(&self) -> u64 {
        self.dense.load(Ordering::Acquire)
    }

    /// A file of a size that has so many bytes on blocks.
    pub(super) fn set_dense(&self, size: u64, bytes: u64) {
        let dense = if bytes >= size { size } else { 0 };
        self.dense.store(dense, Ordering::Release);
    }

    /// Whether something was written since this was last asked.
    pub(super) fn take_unsettled(&self) -> bool {
        self.is_unsettled.swap(false, Ordering::AcqRel)
    }

    /// Whether something was written that the change attribute does not tell of yet.
    pub(super) fn has_news(&self) -> bool {
        self.changes.load(Ordering::Acquire) > 0
    }

    /// Takes the descriptor to close it, unless it is in use or has writes to be
    /// synced.
    fn take_idle(&self) -> Option<Arc<Descriptor>> {
        let mut state = locked(&self.state);
        match self.syncs.has_writes() {
            true => None,
            false => state.take_unused(),
        }
    }
}

impl Entries {
    pub(super) fn new(descriptors_max: usize) -> Entries {
        Entries {
            map: Mutex::default(),
            descriptors_max,
        }
    }

    pub(super) fn get(&self, file: FileId) -> Option<Arc<OpenFile>> {
        let mut map = locked(&self.map);
        map.clock += 1;
        let entry = map.by_file.get(&file)?;
        entry.wanted.store(map.clock, Ordering::Relaxed);
        Some(Arc::clone(entry))
    }

    /// The descriptor of a file that a client has open.
    pub(super) fn pinned(&self, file: FileId) -> Option<Arc<Descriptor>> {
        let entry = self.get(file)?;
        let state = locked(&entry.state);
        state.fd.clone().filter(|_| state.opens > 0)
    }

    /// A descriptor that is at hand and of the kind that is needed, and whether
    /// the file is open, so that there is no need to look where it lies.
    pub(super) fn kept_descriptor(
        &self,
        file: FileId,
        write: bool,
    ) -> Option<(Arc<OpenFile>, bool)> {
        let entry = self.get(file)?;
        let state = locked(&entry.state);
        let is_fit = state.fd.is_some() && (state.can_write || !write);
        let is_pinned = state.opens > 0;
        drop(state);
        is_fit.then_some((entry, is_pinned))
    }

    /// A descriptor of a file, unless there is one that will do: that which counts
    /// from now on.
    pub(super) fn insert_descriptor(
        &self,
        attr: &Attr,
        fd: Arc<Descriptor>,
        can_write: bool,
        now: Time,
    ) -> (Arc<OpenFile>, Arc<Descriptor>) {
        let mut map = locked(&self.map);
        map.clock += 1;
        let clock = map.clock;
        let entry = map.by_file.entry(attr.file).or_insert_with(|| {
            Arc::new(OpenFile {
                file: attr.file,
                state: Mutex::new(OpenState {
                    fd: None,
                    can_write,
                    opens: 0,
                    is_unlinked: false,
                    seen_at: nanos(now),
                    attr: attr.clone(),
                }),
                changes: AtomicU64::new(0),
                size: AtomicU64::new(attr.size),
                dense: AtomicU64::new(0),
                is_unsettled: AtomicBool::new(false),
                wanted: AtomicU64::new(clock),
                syncs: FileSyncs::default(),
            })
        });
        let entry = Arc::clone(entry);
        let mut state = locked(&entry.state);
        (state.seen_at, state.attr) = (nanos(now), attr.clone());
        entry.set_dense(attr.size, attr.used_bytes);
        let there = state.fd.clone().filter(|_| state.can_write || !can_write);
        let (used, spare) = match there {
            Some(there) => (there, Some(fd)),
            // One that could not write has nothing to sync.
            None => {
                state.can_write = can_write;
                let old = state.fd.replace(Arc::clone(&fd));
                (fd, old)
            }
        };
        drop(state);
        drop(map);
        // Closing may wait for a disk: not under the locks.
        drop(spare);
        (entry, used)
    }

    /// A file was looked at again and lies where it did.
    pub(super) fn confirm(&self, entry: &OpenFile, attr: &Attr, now: Time) {
        let mut state = locked(&entry.state);
        (state.seen_at, state.attr) = (nanos(now), attr.clone());
        entry.size.fetch_max(attr.size, Ordering::AcqRel);
        entry.set_dense(attr.size, attr.used_bytes);
    }

    /// Attributes that have just changed.
    pub(super) fn set_attr(&self, attr: &Attr) {
        let map = locked(&self.map);
        if let Some(entry) = map.by_file.get(&attr.file) {
            locked(&entry.state).attr = attr.clone();
            entry.set_size(attr.size);
            entry.set_dense(attr.size, attr.used_bytes);
        }
    }

    /// Whether something was written since this was last asked.
    pub(super) fn take_changes(&self, file: FileId) -> bool {
        let map = locked(&self.map);
        let entry = map.by_file.get(&file);
        entry.is_some_and(|entry| entry.changes.swap(0, Ordering::AcqRel) > 0)
    }

    /// Content was written up to `end`.
    pub(super) fn written(&self, entry: &Arc<OpenFile>, end: u64) {
        let mut map = locked(&self.map);
        // It may have been given up while the write was under way.
        let there = map.by_file.entry(entry.file);
        let entry = there.or_insert_with(|| Arc::clone(entry));
        entry.size.fetch_max(end, Ordering::AcqRel);
        entry.changes.fetch_add(1, Ordering::AcqRel);
        entry.is_unsettled.store(true, Ordering::Release);
        entry.syncs.wrote();
    }

    /// One more has the file open.
    pub(super) fn pin(&self, entry: &Arc<OpenFile>) -> Result<(), Error> {
        let mut map = locked(&self.map);
        let entry = map
            .by_file
            .entry(entry.file)
            .or_insert_with(|| Arc::clone(entry));
        let mut state = locked(&entry.state);
        state.opens = state.opens.checked_add(1).ok_or(Error::Delay)?;
        Ok(())
    }

    /// One fewer has; `true` if that was the end of a file without a name.
    pub(super) fn unpin(&self, file: FileId) -> bool {
        let mut map = locked(&self.map);
        let entry = map.by_file.get(&file);
        let entry = entry.expect("a file is closed as often as it was opened");
        let mut state = locked(&entry.state);
        let opens = state.opens.checked_sub(1);
        state.opens = opens.expect("a file is closed as often as it was opened");
        let is_gone = state.opens == 0 && state.is_unlinked;
        let is_useless = is_gone || (state.opens == 0 && state.fd.is_none() && !entry.has_news());
        drop(state);
        let entry = is_useless.then(|| map.by_file.remove(&file));
        drop(map);
        drop(entry);
        is_gone
    }

    /// Whether a file is open and has no descriptor all the same.
    pub(super) fn lacks_descriptor(&self, file: FileId) -> bool {
        let map = locked(&self.map);
        let entry = map.by_file.get(&file);
        entry.is_some_and(|entry| {
            let state = locked(&entry.state);
            state.opens > 0 && state.fd.is_none()
        })
    }

    pub(super) fn put_descriptor(&self, file: FileId, fd: Arc<Descriptor>, can_write: bool) {
        let map = locked(&self.map);
        if let Some(entry) = map.by_file.get(&file) {
            let mut state = locked(&entry.state);
            (state.fd, state.can_write) = (Some(fd), can_write);
        }
    }

    /// Whether a file may lose its last name while a client has it open: files that
    /// have none keep their descriptors, of which others need some.
    pub(super) fn may_be_unlinked(&self, file: FileId) -> bool {
        let map = locked(&self.map);
        let most = self.descriptors_max / 2;
        let is_open = |entry: &Arc<OpenFile>| locked(&entry.state).opens > 0;
        if map.by_file.len() < most || !map.by_file.get(&file).is_some_and(is_open) {
            return true;
        }
        let is_unlinked = |entry: &&Arc<OpenFile>| locked(&entry.state).is_unlinked;
        map.by_file.values().filter(is_unlinked).count() < most
    }

    /// A file has lost its last name: whether a client has it open still.
    pub(super) fn unlinked(&self, file: FileId) -> bool {
        let mut map = locked(&self.map);
        let Some(entry) = map.by_file.get(&file) else {
            return false;
        };
        let mut state = locked(&entry.state);
        state.is_unlinked = true;
        let is_open = state.opens > 0;
        drop(state);
        let entry = (!is_open).then(|| map.by_file.remove(&file));
        drop(map);
        drop(entry);
        is_open
    }

    /// A file that no client has open does not lie where it did.
    pub(super) fn forget(&self, file: FileId) {
        let mut map = locked(&self.map);
        let is_open = |entry: &Arc<OpenFile>| locked(&entry.state).opens > 0;
        let entry = match map.by_file.get(&file).is_some_and(|entry| !is_open(entry)) {
            true => map.by_file.remove(&file),
            false => None,
        };
        drop(map);
        drop(entry);
    }

    /// Those that no client has open.
    pub(super) fn idle(&self) -> Vec<Arc<OpenFile>> {
        let map = locked(&self.map);
        let is_idle = |entry: &&Arc<OpenFile>| locked(&entry.state).opens == 0;
        let mut idle: Vec<_> = map.by_file.values().filter(is_idle).cloned().collect();
        // Of a simulated one each run goes the same way.
        idle.sort_unstable_by_key(|entry| entry.file);
        idle
    }

    /// Closes those of `entries` that no operation uses and that are synced; the
    /// files stay open to their clients.
    pub(super) fn close(&self, entries: &[Arc<OpenFile>]) {
        let mut map = locked(&self.map);
        let mut closed = Vec::new();
        for entry in entries {
            closed.extend(entry.take_idle());
            let state = locked(&entry.state);
            let is_useless = state.fd.is_none() && state.opens == 0 && !entry.has_news();
            drop(state);
            let is_its = |there: &Arc<OpenFile>| Arc::ptr_eq(there, entry);
            if is_useless && map.by_file.get(&entry.file).is_some_and(is_its) {
                map.by_file.remove(&entry.file);
            }
        }
        drop(map);
        // Closing may wait for a disk: not under the lock.
        drop(closed);
    }

    /// Those to be synced and closed before there is one more: below the limit
    /// none; else an eighth of the descriptors, those that were wanted longest ago,
    /// first of files that no client has open.
    pub(super) fn descriptors_to_close(&self) -> Vec<Arc<OpenFile>> {
        locked(&self.map).descriptors_to_close(self.descriptors_max)
    }

    #[cfg(test)]
    pub(super) fn descriptors(&self) -> usize {
        let map = locked(&self.map);
        let has = |entry: &&Arc<OpenFile>| locked(&entry.state).fd.is_some();
        map.by_file.values().filter(has).count()
    }
}

impl Map {
    fn descriptors_to_close(&mut self, max: usize) -> Vec<Arc<OpenFile>> {
        if self.by_file.len() < max {
            self.uncounted_left = 0;
            return Vec::new();
        }
        if let Some(left) = self.uncounted_left.checked_sub(1) {
            self.uncounted_left = left;
            return Vec::new();
        }
        let mut evictable: Vec<(bool, u64, FileId)> = Vec::new();
        let mut count = 0;
        for (file, entry) in &self.by_file {
            let state = locked(&entry.state);
            count += usize::from(state.fd.is_some());
            if state.fd.is_some() && !state.is_unlinked {
                let wanted = entry.wanted.load(Ordering::Relaxed);
                evictable.push((state.opens > 0, wanted, *file));
            }
        }
        if count < max {
            self.uncounted_left = max - count - 1;
            return Vec::new();
        }
        let many = (max / 8).max(1).min(evictable.len());
        evictable.sort_unstable();
        let files = evictable[..many].iter();
        files
            .map(|(.., file)| Arc::clone(&self.by_file[file]))
            .collect()
    }
}
