//! What is there is counted: a thread of low priority goes through all directories when quotas
//! come, and again where a count found no room for all. Clients are served meanwhile; what they
//! change counts at once.
//!
//! A directory that a client moves is gone through from its new place too, once in a count, so
//! that it is missed by none.

use std::collections::HashSet;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::Duration;

use machine::locked;
use rustix::fs::{FileType, OFlags, RawDir};

use super::beneath::{SeenObject, proc_path};
use super::ledger::UsageSeen;
use super::quotas::{DirQuotas, Reserved};
use super::table::ROOT;
use super::{DirInner, Owners};
use crate::fs::{Error, FileId};

/// Entries that are looked at while no name in their directory changes.
const ENTRIES_MAX: usize = 16;
/// Bytes of entries that are read at once.
const ENTRIES_BYTES: usize = 32 << 10;
/// How long the end waits for a count.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct CountState {
    /// A count is to begin, anew if one is under way.
    is_asked: bool,
    has_thread: bool,
    is_ending: bool,
    /// Directories to go through, by number.
    left: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Counting {
    state: Mutex<CountState>,
    ended: Condvar,
}

impl Counting {
    /// A directory is about to move.
    pub(super) fn moves(&self, dir: FileId) {
        let mut state = locked(&self.state);
        if state.has_thread {
            state.left.push(dir.0);
        }
    }

    /// As soon as the one that is under way is over.
    pub(super) fn ask_again(&self) {
        locked(&self.state).is_asked = true;
    }

    /// Whether a count is asked for that none has begun.
    pub(super) fn is_due(&self) -> bool {
        let state = locked(&self.state);
        state.is_asked && !state.has_thread
    }

    /// None is under way when this returns, if the disk answers.
    pub(super) fn stop(&self) {
        let mut state = locked(&self.state);
        state.is_ending = true;
        let ended = self
            .ended
            .wait_timeout_while(state, PATIENCE, |state| state.has_thread);
        if let Ok((mut state, _)) = ended {
            (state.is_ending, state.is_asked) = (state.has_thread, false);
        }
    }

    /// The next directory; `None` where the count is over, or is to be.
    fn next(&self, walked: &mut HashSet<u64>) -> Option<u64> {
        let mut state = locked(&self.state);
        while let Some(dir) = state.left.pop() {
            if state.is_ending {
                return None;
            }
            if walked.insert(dir) {
                return Some(dir);
            }
        }
        None
    }

    fn is_ending(&self) -> bool {
        locked(&self.state).is_ending
    }
}

/// The place of a thread; dropped, it is gone, also by a panic.
struct CountThread<'a>(&'a Counting);

impl Drop for CountThread<'_> {
    fn drop(&mut self) {
        locked(&self.0.state).has_thread = false;
        self.0.ended.notify_all();
    }
}

fn serve(quotas: &DirQuotas, inner: &Weak<DirInner>) {
    let _place = CountThread(&quotas.counting);
    reactor::unpin();
    reactor::lower_thread_priority();
    quotas.ledger.begin_round();
    let (mut walked, mut unread) = (HashSet::new(), 0_u64);
    while let Some(dir) = quotas.counting.next(&mut walked) {
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.count_directory(dir)
            && error != Error::Stale
        {
            unread += 1;
            if unread == 1 {
                tracing::warn!(
                    file_system = inner.info.name,
                    %error,
                    "a directory cannot be read, and what is in it does not count for quotas: \
                     let weft's user read it"
                );
            }
        }
    }
    if quotas.counting.is_ending() {
        return;
    }
    quotas.ledger.end_round(&quotas.accounts);
    if !quotas.ledger.is_full() {
        return quotas.accounts.set_counting(false);
    }
    tracing::warn!(
        "a file system has more objects than are counted for quotas, and what is beyond that is \
         limited by none: it is counted when others are removed"
    );
}

impl DirInner {
    /// Counts all in the background.
    pub(super) fn count(self: &Arc<DirInner>) {
        let counting = &self.quotas.counting;
        {
            let mut state = locked(&counting.state);
            if state.has_thread || state.is_ending {
                return;
            }
            (state.has_thread, state.is_asked) = (true, false);
            state.left = vec![ROOT];
        }
        self.quotas.accounts.set_counting(true);
        let (quotas, inner) = (Arc::clone(&self.quotas), Arc::downgrade(self));
        if self.local_changes.is_none() {
            // A simulator's: it has no threads.
            return serve(&quotas, &inner);
        }
        let builder = thread::Builder::new().name("weft-count".into());
        if let Err(error) = builder.spawn(move || serve(&quotas, &inner)) {
            drop(CountThread(counting));
            counting.ask_again();
            tracing::error!(
                file_system = self.info.name,
                %error,
                "no thread to count for quotas: raise the limit of threads ('ulimit -u', TasksMax= \
                 of systemd) or of memory; it is tried again"
            );
        }
    }

    /// A count that is due begins.
    pub(super) fn count_if_due(self: &Arc<DirInner>) {
        if self.quotas.is_on() && self.quotas.counting.is_due() {
            self.count();
        }
    }

    /// A directory and what has a name in it.
    fn count_directory(&self, dir: u64) -> Result<(), Error> {
        let version = self.quotas.version();
        let seen = self.resolve(FileId(dir))?;
        let attr = self.attr(FileId(dir), &seen, false)?;
        self.charge(&seen, &attr, version, &mut Reserved::default());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.beneath.reopen(seen.fd.as_fd(), flags)?;
        let mut bytes = [const { MaybeUninit::uninit() }; ENTRIES_BYTES];
        let mut entries = RawDir::new(fd, &mut bytes);
        let mut names: Vec<CString> = Vec::new();
        loop {
            let name = match entries.next() {
                Some(Ok(entry)) => Some(entry.file_name().to_owned()),
                Some(Err(errno)) => return Err(errno.into()),
                None => None,
            };
            let is_end = name.is_none();
            names.extend(name.filter(|name| !matches!(name.to_bytes(), b"." | b"..")));
            if names.len() < ENTRIES_MAX && !is_end {
                continue;
            }
            let shared = self.share(FileId(dir));
            for name in names.drain(..) {
                match self.count_entry((dir, &seen), &name) {
                    // What has just gone, and what is mounted there.
                    Ok(()) | Err(Error::NoEnt | Error::XDev | Error::Stale) => {}
                    Err(error) => return Err(error),
                }
            }
            drop(shared);
            if is_end || self.quotas.counting.is_ending() {
                return Ok(());
            }
        }
    }

    fn count_entry(&self, (dir, seen): (u64, &SeenObject), name: &CString) -> Result<(), Error> {
        let version = self.quotas.ledger.tick();
        let (stat, identity) = self.beneath.peek(seen, name)?;
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        if file_type == FileType::Directory {
            let found = self.beneath.look_up(seen, name.to_bytes())?;
            let number = self.number(&found, FileId(dir), name.to_bytes())?;
            locked(&self.quotas.counting.state).left.push(number.0);
            return Ok(());
        }
        let kept = match self.owners == Owners::Recorded && file_type == FileType::Symlink {
            true => self.table().find(&identity)?.and_then(|(_, of)| of.owner),
            false => None,
        };
        let way = || [proc_path(seen.fd.as_fd()).as_bytes(), b"/", name.to_bytes()].concat();
        let owner = self.owner(&stat, kept, way)?;
        let look = UsageSeen {
            version,
            bytes: stat.stx_blocks * 512,
            owner: Some((owner.uid, owner.gid)),
        };
        let quotas = &*self.quotas;
        let with = (&mut None, || true);
        quotas
            .ledger
            .put(&quotas.accounts, identity.into(), look, with);
        Ok(())
    }
}
