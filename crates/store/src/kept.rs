//! What a volume remembers beside its data, and how it is saved while reactors
//! go on.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use reactor::Ticket;

use crate::unreadable::{RANGES_MAX, Unreadable};
use crate::{Errno, Range, State, StateError};

/// The marks of a volume and its state, which outlasts it.
pub(crate) struct Kept {
    pub(crate) unreadable: Unreadable,
    pub(crate) state: State,
    /// One save at a time, so that an older one never replaces a newer one.
    saving: Mutex<()>,
}

/// How a save stands; the errno that ended it, or 0.
#[derive(Debug, Default)]
pub(crate) struct Saving(AtomicI32);

impl Saving {
    pub(crate) fn result(&self) -> Result<(), Errno> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(Errno(errno)),
        }
    }
}

impl Kept {
    pub(crate) fn new(state: State) -> Kept {
        Kept {
            unreadable: Unreadable::default(),
            state,
            saving: Mutex::default(),
        }
    }

    /// Takes the marks from the state.
    pub(crate) fn load(&self) {
        for range in self.state.unreadable() {
            self.unreadable.add(range.offset, range.len);
        }
    }

    /// Brings the marks into the state file after those in `changed` have
    /// changed, which nobody changes meanwhile. Where that fails they are again
    /// what the file says: a change that is answered as failed is not there,
    /// neither now nor after a restart. Blocks.
    pub(crate) fn save(&self, changed: Range) -> Result<(), Errno> {
        let _one = self.saving.lock().expect("nothing panics under this lock");
        let ranges = self.unreadable.list(0, u64::MAX, RANGES_MAX);
        let error = match self.state.set_unreadable(&ranges) {
            Ok(()) | Err(StateError::Volatile) => return Ok(()),
            Err(StateError::Unsaved(error)) => error,
        };
        tracing::error!(%error, "cannot write the state file of a volume");
        // A save for others may have brought it to the disk.
        match self.unreadable.restore(changed, &self.state.unreadable()) {
            false => Ok(()),
            true => Err(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }

    /// The same on a thread of its own, which rings `ticket` at the end.
    pub(crate) fn save_aside(self: &Arc<Kept>, changed: Range, ticket: Ticket) -> Arc<Saving> {
        let saving = Arc::new(Saving::default());
        let (kept, result) = (Arc::clone(self), Arc::clone(&saving));
        let job = move || {
            if let Err(Errno(errno)) = kept.save(changed) {
                result.0.store(errno, Ordering::Release);
            }
            ticket.ring();
        };
        match writer() {
            Some(jobs) => jobs.send(Box::new(job)).expect("the writer never ends"),
            // Late is better than never.
            None => job(),
        }
        saving
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread that writes state files; nothing if the system gives none. It is
/// started where volumes are opened, so that no reactor's processor is its own.
pub(crate) fn writer() -> Option<&'static Sender<Job>> {
    static WRITER: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let start = || {
        let (sender, jobs) = channel::<Job>();
        let run = move || jobs.into_iter().for_each(|job| job());
        let started = thread::Builder::new().name("weft-state".into()).spawn(run);
        started.is_ok().then_some(sender)
    };
    WRITER.get_or_init(start).as_ref()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use uuid::Uuid;

    use super::*;
    use crate::Medium;

    /// A medium that fails when it is told to.
    #[derive(Clone, Default)]
    struct Disk {
        bytes: Arc<Mutex<Option<Vec<u8>>>>,
        is_full: Arc<AtomicBool>,
    }

    impl Medium for Disk {
        fn load(&self) -> io::Result<Option<Vec<u8>>> {
            Ok(self.bytes.lock().unwrap().clone())
        }

        fn save(&self, bytes: &[u8]) -> io::Result<()> {
            if self.is_full.load(Ordering::Relaxed) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            *self.bytes.lock().unwrap() = Some(bytes.to_vec());
            Ok(())
        }

        fn path(&self) -> &Path {
            Path::new("disk")
        }
    }

    fn kept(disk: &Disk) -> Kept {
        let state = State::open(Box::new(disk.clone()), Uuid::nil());
        let kept = Kept::new(state.expect("whole"));
        kept.load();
        kept
    }

    fn range(offset: u64, len: u64) -> Range {
        Range { offset, len }
    }

    fn marks(kept: &Kept) -> Vec<Range> {
        kept.unreadable.list(0, u64::MAX, 99)
    }

    /// Of two changes one may save the other's too; each is answered by what is
    /// there after a restart.
    #[test]
    fn change_whose_save_fails_is_answered_by_what_the_file_has() {
        let disk = Disk::default();
        let kept_marks = kept(&disk);
        let (a, b, c) = (range(0, 512), range(4096, 512), range(8192, 512));
        for mark in [a, b] {
            kept_marks.unreadable.add(mark.offset, mark.len);
        }
        // That of `a` brings both to the disk, and then it is full.
        kept_marks.save(a).expect("room");
        kept_marks.unreadable.add(c.offset, c.len);
        disk.is_full.store(true, Ordering::Relaxed);
        assert_eq!(kept_marks.save(b), Ok(()), "it is there");
        assert_eq!(kept_marks.save(c), Err(Errno(libc::ENOSPC)));
        assert_eq!(marks(&kept_marks), [a, b]);
        assert_eq!(marks(&kept(&disk)), [a, b]);
        // A part of a mark that cannot be taken away is there again.
        kept_marks.unreadable.clear(128, 128);
        assert_eq!(kept_marks.save(range(128, 128)), Err(Errno(libc::ENOSPC)));
        assert_eq!(marks(&kept_marks), [a, b]);
    }
}
