//! Commands that take several I/Os, on one volume or many.

use std::sync::Arc;

use mem::Buf;
use store::Volume;

/// One I/O of several.
pub(crate) struct Step {
    /// Index of the volume in what the connection is served, for the error log.
    pub unit: u32,
    pub volume: Arc<dyn Volume>,
    pub io: store::Io,
}

/// What a command has left to do. It holds its volumes: what becomes of them
/// in what is served meanwhile does not matter to it.
pub(crate) struct Steps {
    /// The next one last.
    left: Vec<Step>,
    /// Steps begun.
    begun: u32,
    /// What they read into and write from.
    buf: Option<Buf>,
}

impl Steps {
    /// The steps in order, and the memory that they name.
    pub(crate) fn new(mut steps: Vec<Step>, buf: Option<Buf>) -> Box<Steps> {
        steps.reverse();
        Box::new(Steps {
            left: steps,
            begun: 0,
            buf,
        })
    }

    /// Begins the next one.
    pub(crate) fn next(&mut self) -> Option<Step> {
        let step = self.left.pop()?;
        self.begun += 1;
        Some(step)
    }

    /// How many have begun.
    pub(crate) fn begun(&self) -> u32 {
        self.begun
    }

    /// Whether they have memory of their own.
    pub(crate) fn has_buf(&self) -> bool {
        self.buf.is_some()
    }

    /// Whether what is left will be done on this volume.
    pub(crate) fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        (self.left.iter()).any(|step| Arc::ptr_eq(&step.volume, volume))
    }
}
