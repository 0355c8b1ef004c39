//! What a volume remembers beside its data, and how it is saved while reactors
//! go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use reactor::{Blocking, Ticket};

use crate::unreadable::{RANGES_MAX, Unreadable};
use rustix::io::Errno;

use crate::{Range, State, StateError};

/// The marks of a volume and its state, which outlasts it.
pub(crate) struct KeptMarks {
    pub(crate) unreadable: Unreadable,
    pub(crate) state: State,
    /// One save at a time, so that an older one never replaces a newer one.
    saving: Mutex<()>,
}

/// How a save, or other work beside the reactors, stands; the errno that ended it, 0, or
/// [`PANICKED`].
#[derive(Debug, Default)]
pub(crate) struct Saving(AtomicI32);

/// No errno is negative.
const PANICKED: i32 = -1;

impl Saving {
    /// Panics where the thread that saved did: the operation that waits for it
    /// fails with it.
    pub(crate) fn result(&self) -> Result<(), Errno> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            PANICKED => panic!("the thread that saves the state of a volume has panicked"),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }
}

impl KeptMarks {
    pub(crate) fn new(state: State) -> KeptMarks {
        KeptMarks {
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
    /// changed, which no operation changes meanwhile. Where that fails they are
    /// again what the file says: a change that is answered as failed is not there,
    /// neither now nor after a restart. Blocks.
    pub(crate) fn save(&self, changed: Range) -> Result<(), Errno> {
        let _one = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges = self.unreadable.list(0, u64::MAX, RANGES_MAX);
        let error = match self.state.set_unreadable(&ranges) {
            Ok(()) | Err(StateError::Volatile) => return Ok(()),
            Err(StateError::Unsaved(error)) => error,
        };
        tracing::error!(
            state = %self.state.path().unwrap_or(Path::new("")).display(),
            %error,
            "cannot write the state file of a volume: free space in its folder, or mend its disk; \
             what its hosts mark unreadable is refused until then"
        );
        // A save for others may have brought it to the disk.
        match self.unreadable.restore(changed, &self.state.unreadable()) {
            false => Ok(()),
            true => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// The same beside the reactors: volumes do not wait for each other. Rings
    /// `ticket` at the end.
    pub(crate) fn save_aside(self: &Arc<KeptMarks>, changed: Range, ticket: Ticket) -> Arc<Saving> {
        let kept = Arc::clone(self);
        aside(Arc::as_ptr(self).addr(), move || kept.save(changed), ticket)
    }
}

/// Has a thread beside the reactors do what may block, after what came before of its
/// subject. Rings `ticket` at the end.
pub(crate) fn aside(
    subject: usize,
    work: impl FnOnce() -> Result<(), Errno> + Send + 'static,
    ticket: Ticket,
) -> Arc<Saving> {
    let saving = Arc::new(Saving::default());
    let result = Arc::clone(&saving);
    let job = move || {
        let errno = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => 0,
            Ok(Err(errno)) => errno.raw_os_error(),
            Err(_) => PANICKED,
        };
        result.0.store(errno, Ordering::Release);
        ticket.ring();
    };
    match savers() {
        Some(savers) => savers.add(subject, Box::new(job)),
        // Late is better than never.
        None => job(),
    }
    saving
}

type SaveJob = Box<dyn FnOnce() + Send>;

/// The threads that write state files and share blocks, by the address of what is saved or
/// changed; nothing if the system gives none. The first is started where volumes are opened.
pub(crate) fn savers() -> Option<&'static Arc<Blocking<usize, SaveJob>>> {
    static SAVERS: OnceLock<Option<Arc<Blocking<usize, SaveJob>>>> = OnceLock::new();
    let start = || {
        let savers = Arc::new(Blocking::<usize, SaveJob>::default());
        let run = |job: SaveJob| {
            job();
            true
        };
        savers.start("weft-state", run).ok().map(|()| savers)
    };
    SAVERS.get_or_init(start).as_ref()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    use reactor::Bell;
    use uuid::Uuid;

    use super::*;
    use crate::Medium;

    /// A medium that fails when it is told to.
    #[derive(Clone, Default)]
    struct Disk {
        bytes: Arc<Mutex<Option<Vec<u8>>>>,
        is_full: Arc<AtomicBool>,
        has_bug: Arc<AtomicBool>,
        /// A save waits while a test holds this.
        hangs: Arc<Mutex<()>>,
    }

    impl Medium for Disk {
        fn load(&self) -> io::Result<Option<Vec<u8>>> {
            Ok(self.bytes.lock().unwrap().clone())
        }

        fn save(&self, bytes: &[u8]) -> io::Result<()> {
            drop(self.hangs.lock().unwrap());
            assert!(!self.has_bug.load(Ordering::Relaxed), "a bug");
            if self.is_full.load(Ordering::Relaxed) {
                return Err(Errno::NOSPC.into());
            }
            *self.bytes.lock().unwrap() = Some(bytes.to_vec());
            Ok(())
        }

        fn path(&self) -> &Path {
            Path::new("disk")
        }
    }

    fn kept(disk: &Disk) -> KeptMarks {
        let state = State::open(Box::new(disk.clone()), Uuid::nil());
        let kept = KeptMarks::new(state.expect("whole"));
        kept.load();
        kept
    }

    fn range(offset: u64, len: u64) -> Range {
        Range { offset, len }
    }

    fn marks(kept: &KeptMarks) -> Vec<Range> {
        kept.unreadable.list(0, u64::MAX, 99)
    }

    /// Waits for what rings.
    fn wait(bell: &Bell) {
        let give_up = Instant::now() + Duration::from_secs(30);
        while !bell.is_rung() {
            assert!(Instant::now() < give_up, "another volume's disk hangs");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn mark_and_save(disk: &Disk, bell: &Arc<Bell>) -> Arc<Saving> {
        let kept = Arc::new(kept(disk));
        kept.unreadable.add(0, 512);
        kept.save_aside(range(0, 512), bell.ticket(0))
    }

    #[test]
    fn state_on_a_disk_that_hangs_delays_no_state_of_another_volume() {
        let (hung, good) = (Disk::default(), Disk::default());
        let (never, bell) = (Bell::new(None), Bell::new(None));
        let held = hung.hangs.lock().unwrap();
        let hung_saving = mark_and_save(&hung, &never);
        let saving = mark_and_save(&good, &bell);
        wait(&bell);
        assert_eq!(saving.result(), Ok(()));
        assert!(!never.is_rung());
        drop(held);
        wait(&never);
        assert_eq!(hung_saving.result(), Ok(()));
    }

    #[test]
    #[should_panic(expected = "the thread that saves the state of a volume has panicked")]
    fn operation_whose_save_of_the_state_panics_panics() {
        let (disk, bell) = (Disk::default(), Bell::new(None));
        disk.has_bug.store(true, Ordering::Relaxed);
        let saving = mark_and_save(&disk, &bell);
        wait(&bell);
        let _ = saving.result();
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
        assert_eq!(kept_marks.save(c), Err(Errno::NOSPC));
        assert_eq!(marks(&kept_marks), [a, b]);
        assert_eq!(marks(&kept(&disk)), [a, b]);
        // A part of a mark that cannot be taken away is there again.
        kept_marks.unreadable.clear(128, 128);
        assert_eq!(kept_marks.save(range(128, 128)), Err(Errno::NOSPC));
        assert_eq!(marks(&kept_marks), [a, b]);
    }
}
