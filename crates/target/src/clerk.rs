//! Work that may block (opening, resizing, state files), off the reactors. What
//! only looks something up is done apart: a file system that does not answer
//! keeps no change waiting.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::{io, thread};

use crate::shared::{Shared, locked};

/// Who does the work that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clerk {
    /// A thread of its own.
    Thread,
    /// Nobody: whoever runs the reactors calls [`Shared::run_clerk`].
    Inline,
}

/// A piece of work; it may block.
pub(crate) type Work = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// The clerk's queue. Each connection and each change has a bounded number of
/// works under way, so it needs no bound of its own.
#[derive(Default)]
pub(crate) struct Desk {
    inner: Mutex<Inner>,
    bell: Condvar,
}

#[derive(Default)]
struct Inner {
    works: VecDeque<Work>,
    is_closed: bool,
}

impl Desk {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
    }

    /// Adds work to be done after all that was added before.
    pub fn add(&self, work: Work) {
        let mut inner = self.inner();
        if inner.is_closed {
            // What a work does when it is dropped is not ours to hold up.
            drop(inner);
            return drop(work);
        }
        inner.works.push_back(work);
        drop(inner);
        self.bell.notify_one();
    }

    /// Its thread ends, and no work is done any more.
    pub fn close(&self) {
        let mut inner = self.inner();
        inner.is_closed = true;
        let left = std::mem::take(&mut inner.works);
        drop(inner);
        drop(left);
        self.bell.notify_one();
    }

    /// The oldest work, if there is any.
    pub fn try_take(&self) -> Option<Work> {
        self.inner().works.pop_front()
    }

    /// The oldest work, waiting for it; `None` at the end.
    fn take(&self) -> Option<Work> {
        let mut inner = self.inner();
        loop {
            if let Some(work) = inner.works.pop_front() {
                return Some(work);
            }
            if inner.is_closed {
                return None;
            }
            inner = (self.bell.wait(inner)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts a thread for a desk; it ends when the last of `shared` is gone.
pub(crate) fn start(name: &str, desk: Arc<Desk>, shared: Weak<Shared>) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(move || {
        while let Some(work) = desk.take() {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            if let Err(why) = caught(|| work(&shared)) {
                let thread = thread::current();
                shared.work_failed(thread.name().unwrap_or_default(), &why);
            }
        }
    })?;
    Ok(())
}

/// Runs what may panic; what the panic says.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let panic = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => return Ok(result),
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Err(format!("panic: {}", text.unwrap_or("no text")))
}
