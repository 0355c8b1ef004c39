//! Work that may block (opening, resizing, state files, questions to file systems),
//! off the reactors. A volume whose disk does not answer keeps nothing waiting but
//! what is about itself.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread;

use reactor::Blocking;

use crate::shared::Shared;

/// Who does the work that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clerk {
    /// Threads of its own.
    Thread,
    /// Nobody: whoever runs the reactors calls [`Shared::run_clerk`].
    Inline,
}

/// A piece of work; it may block. Work about a volume has the volume, so that its
/// address stays its own.
pub(crate) type Work = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// What a piece of work is about. Work about one thing is done in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    /// What is served.
    Target,
    /// What is remembered of NFS clients.
    Records,
    /// Reservations, size and state of the volume at an address, or a file system.
    State(usize),
    /// The same volume, of which something is asked that changes nothing.
    Question(usize),
}

impl About {
    pub(crate) fn state<V: ?Sized>(volume: &Arc<V>) -> About {
        About::State(Arc::as_ptr(volume).cast::<()>().addr())
    }

    pub(crate) fn question<V: ?Sized>(volume: &Arc<V>) -> About {
        About::Question(Arc::as_ptr(volume).cast::<()>().addr())
    }
}

/// Each connection and each change has a bounded number of works under way, so it
/// needs no bound of its own.
pub(crate) type Desk = Blocking<About, Work>;

/// Starts the first thread of a desk; they end when the last of `shared` is gone.
pub(crate) fn start(desk: &Arc<Desk>, shared: Weak<Shared>) -> io::Result<()> {
    desk.start("weft-clerk", move |work: Work| {
        let Some(shared) = shared.upgrade() else {
            return false;
        };
        if let Err(why) = caught(|| work(&shared)) {
            let thread = thread::current();
            shared.work_failed(thread.name().unwrap_or_default(), &why);
        }
        true
    })
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
