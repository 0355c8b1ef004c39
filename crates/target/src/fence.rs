//! Fences: how one learns that what was under way on every reactor is over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use store::Volume;
use store::fs::FileSystem;

use crate::shared::{ConnectionRef, Shared};

/// What must be over.
pub enum Scope {
    /// The mail that was sent before.
    Mail,
    /// Every I/O on these volumes that had begun: it is over, or nobody waits
    /// for it any more and it holds its range against whatever comes later.
    Volumes(Vec<Arc<dyn Volume>>),
    /// Every call that had begun something in this file system: it is over, or
    /// nobody waits for it any more.
    Files(Arc<dyn FileSystem>),
    /// These connections.
    Connections(Vec<ConnectionRef>),
    /// The listener of this number and every connection that came in by it.
    Listener(u16),
}

type Then = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// One fence, on its way through the reactors. Mail sent before it is handled
/// before it.
pub struct Fence {
    scope: Scope,
    /// Reactors that have not passed it.
    left: AtomicUsize,
    then: Mutex<Option<Then>>,
}

impl Fence {
    pub(crate) fn new(scope: Scope, reactors: usize, then: Then) -> Fence {
        Fence {
            scope,
            left: AtomicUsize::new(reactors),
            then: Mutex::new(Some(then)),
        }
    }

    /// What must be over.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// One reactor has nothing of it left; the last one goes on.
    pub(crate) fn pass(&self, shared: &Arc<Shared>) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let then = self.then.lock().expect("held for a take only").take();
            then.expect("a fence has one last reactor")(shared);
        }
    }
}
