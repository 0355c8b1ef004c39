//! Work that may block (opening, resizing, state files, questions to file systems),
//! off the reactors. A volume whose disk does not answer keeps nothing waiting but
//! what is about itself.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use reactor::Blocking;

/// Where the work that may block is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockingWorker {
    /// Threads of its own.
    Thread,
    /// No thread: the caller that runs the reactors does it in between.
    Inline,
}

/// A piece of work; it may block. Work about a volume has the volume, so that its
/// address stays its own.
pub type BlockingWork = Box<dyn FnOnce() + Send>;

/// What a piece of work is about. Work about one thing is done in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// What is served.
    Target,
    /// What is remembered of clients.
    Records,
    /// What peers prove themselves by, in handshakes of TLS and in authentication: however many
    /// there are, they take no more than one processor.
    Proofs,
    /// Security contexts of GSS-API and the users that their names are: making one may ask files
    /// and the network.
    SecurityContexts,
    /// Names and addresses of hosts: those that have them may be slow to tell.
    Names,
    /// Reservations, size and state of the volume at an address, or a file system.
    State(usize),
    /// The same volume, of which something is asked that changes nothing.
    Question(usize),
}

impl About {
    /// What a volume or a file system is.
    pub fn state<V: ?Sized>(volume: &Arc<V>) -> About {
        About::State(Arc::as_ptr(volume).cast::<()>().addr())
    }

    /// What is asked of it.
    pub fn question<V: ?Sized>(volume: &Arc<V>) -> About {
        About::Question(Arc::as_ptr(volume).cast::<()>().addr())
    }
}

/// It has no bound of its own. Each change and each open connection has a bounded number of works
/// under way. Those of a connection that closes stay, so what costs a peer nothing to ask for, and
/// the target long, waits in [`Shared::prove`](crate::Shared::prove) instead.
pub type Desk = Blocking<About, BlockingWork>;

/// Starts the first thread of a desk. A thread ends when `is_needed` is false. Where
/// work has failed, `failed` gets the name of its thread and the reason.
pub fn start(
    desk: &Arc<Desk>,
    is_needed: impl Fn() -> bool + Send + Sync + 'static,
    failed: impl Fn(&str, &str) + Send + Sync + 'static,
) -> io::Result<()> {
    desk.start("weft-blocking", move |work: BlockingWork| {
        if !is_needed() {
            return false;
        }
        if let Err(why) = caught(work) {
            failed(thread::current().name().unwrap_or_default(), &why);
        }
        true
    })
}

/// Runs what may panic; what the panic says.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let panic = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => return Ok(result),
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Err(format!("panic: {}", text.unwrap_or("no text")))
}
