//! Fences: how one learns that what was under way on every reactor is over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use store::Volume;
use store::fs::FileSystem;

use crate::blocking_worker::{About, Desk};
use crate::token::ConnectionRef;
use machine::locked;

/// What must be over.
#[derive(Clone)]
pub enum Scope {
    /// The mail that was sent before.
    Mail,
    /// Every I/O on these volumes that had begun: it is over, or an orphan that
    /// holds its range against whatever comes later.
    Volumes(Vec<Arc<dyn Volume>>),
    /// Every call that had begun something in this file system: it is over, or
    /// an orphan.
    Files(Arc<dyn FileSystem>),
    /// These connections.
    Connections(Vec<ConnectionRef>),
    /// The listener of this number and every connection that came in by it.
    Listener(u16),
}

type AfterFence = Box<dyn FnOnce() + Send>;

/// What all reactors have to pass.
struct Fence {
    /// Reactors that have not passed it.
    left: AtomicUsize,
    then: Mutex<Option<AfterFence>>,
}

impl Fence {
    /// One reactor has nothing of it left; the last one goes on.
    fn passed(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let then = locked(&self.then).take();
            then.expect("a fence has one last reactor")();
        }
    }
}

/// One reactor's part of a fence, on its way by mail: mail sent before it is
/// handled before it. A reactor that ends, or has ended, has nothing left: there
/// this is dropped, and the blocking worker goes on.
pub struct Passage {
    /// Each has its own: what follows the last one finds no other with the volumes.
    scope: Scope,
    /// `None` when it is passed.
    fence: Option<Arc<Fence>>,
    desk: Weak<Desk>,
}

impl Passage {
    /// A fence of so many reactors: one part for each.
    pub fn all(
        scope: Scope,
        reactors: usize,
        then: AfterFence,
        desk: &Arc<Desk>,
    ) -> impl Iterator<Item = Passage> {
        let fence = Arc::new(Fence {
            left: AtomicUsize::new(reactors),
            then: Mutex::new(Some(then)),
        });
        let desk = Arc::downgrade(desk);
        std::iter::repeat_n(scope, reactors).map(move |scope| Passage {
            scope,
            fence: Some(fence.clone()),
            desk: desk.clone(),
        })
    }

    /// What must be over.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The reactor has nothing of it left.
    pub fn pass(mut self) {
        if let Some(fence) = self.fence.take() {
            drop(self);
            fence.passed();
        }
    }
}

impl Drop for Passage {
    /// The desk passes the fence: the thread that drops this may hold locks, or
    /// be about to panic.
    fn drop(&mut self) {
        if let (Some(fence), Some(desk)) = (self.fence.take(), self.desk.upgrade()) {
            desk.add(About::Target, Box::new(move || fence.passed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{Kind, Spec};

    use super::*;

    #[test]
    fn last_passage_has_let_go_of_its_volumes_before_what_follows() {
        let volume = store::open(&Spec::new("v", Kind::RAM, 1 << 20, 4096)).expect("memory");
        let weak = Arc::downgrade(&volume);
        let desk: Arc<Desk> = Arc::default();
        let seen = Arc::new(AtomicUsize::new(usize::MAX));
        let follows = seen.clone();
        let then = Box::new(move || follows.store(weak.strong_count(), Ordering::Relaxed));
        // Whoever sends them has not done with that when the last is passed.
        let mut all = Passage::all(Scope::Volumes(vec![volume]), 2, then, &desk);
        let [first, last] = [(); 2].map(|()| all.next().expect("two reactors"));
        first.pass();
        assert_eq!(seen.load(Ordering::Relaxed), usize::MAX);
        last.pass();
        assert_eq!(seen.load(Ordering::Relaxed), 0);
    }
}
