//! What a volume remembers beside its data, and how it is saved while reactors
//! go on.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use reactor::Ticket;

use crate::unreadable::{RANGES_MAX, Unreadable};
use crate::{Errno, State, StateError};

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

    /// Brings the marks into the state file. Blocks.
    pub(crate) fn save(&self) -> Result<(), Errno> {
        let _one = self.saving.lock().expect("nothing panics under this lock");
        let ranges = self.unreadable.list(0, u64::MAX, RANGES_MAX);
        match self.state.set_unreadable(&ranges) {
            Ok(()) | Err(StateError::Volatile) => Ok(()),
            Err(StateError::Unsaved(error)) => {
                tracing::error!(%error, "cannot write the state file of a volume");
                Err(Errno(error.raw_os_error().unwrap_or(libc::EIO)))
            }
        }
    }

    /// The same on a thread of its own, which rings `ticket` at the end.
    pub(crate) fn save_aside(self: &Arc<Kept>, ticket: Ticket) -> Arc<Saving> {
        let saving = Arc::new(Saving::default());
        let (kept, result) = (Arc::clone(self), Arc::clone(&saving));
        let job = move || {
            if let Err(Errno(errno)) = kept.save() {
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
