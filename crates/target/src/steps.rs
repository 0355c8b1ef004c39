//! Commands that take several I/Os, on one volume or many.

use std::sync::Arc;

use mem::Buf;
use store::Volume;

use crate::iscsi::Answer;

/// One I/O of several.
pub(crate) struct Step {
    /// Index of the volume in what the connection is served, for the error log.
    pub unit: u32,
    pub volume: Arc<dyn Volume>,
    pub io: store::Io,
}

/// What a command of several I/Os does, one after the other.
pub(crate) trait Plan {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Option<Step>;

    /// Whether what is left will be done on this volume.
    fn touches(&self, volume: &Arc<dyn Volume>) -> bool;

    /// What a SCSI command is answered with when the step begun last has failed,
    /// if not with what the error says.
    fn failed(&mut self, _: store::Error) -> Option<Answer> {
        None
    }

    /// What a SCSI command is answered with when no step is left, if not with
    /// GOOD.
    fn verdict(&mut self) -> Option<Answer> {
        None
    }
}

/// Steps that are known from the start, the next one last.
impl Plan for Vec<Step> {
    fn next(&mut self) -> Option<Step> {
        self.pop()
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        self.iter().any(|step| Arc::ptr_eq(&step.volume, volume))
    }
}

/// What a command has left to do. It holds its volumes: what becomes of them
/// in what is served meanwhile does not matter to it.
pub(crate) struct Steps {
    left: Box<dyn Plan>,
    /// Steps begun.
    begun: u32,
    /// What they read into and write from.
    buf: Option<Buf>,
}

impl Steps {
    /// The steps in order, and the memory that they name.
    pub(crate) fn new(mut steps: Vec<Step>, buf: Option<Buf>) -> Box<Steps> {
        steps.reverse();
        Steps::planned(Box::new(steps), buf)
    }

    /// The same of steps that are made as they are taken.
    pub(crate) fn planned(left: Box<dyn Plan>, buf: Option<Buf>) -> Box<Steps> {
        Box::new(Steps {
            left,
            begun: 0,
            buf,
        })
    }

    /// Begins the next one.
    pub(crate) fn next(&mut self) -> Option<Step> {
        let step = self.left.next()?;
        self.begun += 1;
        Some(step)
    }

    /// How many have begun.
    pub(crate) fn begun(&self) -> u32 {
        self.begun
    }

    /// As [`Plan::failed`].
    pub(crate) fn failed(&mut self, error: store::Error) -> Option<Answer> {
        self.left.failed(error)
    }

    /// As [`Plan::verdict`].
    pub(crate) fn verdict(&mut self) -> Option<Answer> {
        self.left.verdict()
    }

    /// Whether they have memory of their own.
    pub(crate) fn has_buf(&self) -> bool {
        self.buf.is_some()
    }

    /// Whether what is left will be done on this volume.
    pub(crate) fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        self.left.touches(volume)
    }
}
