//! Commands that take several I/Os, on one volume or many.

use std::ops::Range;
use std::sync::Arc;

use mem::Buf;
use reactor::{FileIo, Token};
use store::{Io, Progress, ReferenceCopy, Volume};

/// One I/O of several.
pub struct IoStep {
    /// Index of the volume in what the connection is served, for the error log.
    pub unit: u32,
    /// Itself.
    pub volume: Arc<dyn Volume>,
    /// What it is to do.
    pub io: StepIo,
}

/// What a volume is to do.
pub enum StepIo {
    /// An I/O.
    Plain(Io),
    /// To take blocks of another by reference.
    ReferenceCopy(Arc<ReferenceCopy>),
}

impl From<Io> for StepIo {
    fn from(io: Io) -> StepIo {
        StepIo::Plain(io)
    }
}

impl StepIo {
    /// First byte and number of bytes; `None` of what is about all of the volume.
    pub(crate) fn extent(&self) -> Option<(u64, u64)> {
        match self {
            StepIo::Plain(Io::Flush) => None,
            StepIo::Plain(io) => Some(io.extent()),
            StepIo::ReferenceCopy(share) => Some(share.extent()),
        }
    }

    pub(crate) fn start(
        &self,
        volume: &dyn Volume,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        match self {
            StepIo::Plain(io) => volume.start(*io, files, token),
            StepIo::ReferenceCopy(share) => share.start(files, token),
        }
    }
}

/// What a command of several I/Os does, one after the other; answered with `A`.
pub trait StepPlan<A> {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Option<IoStep>;

    /// Whether what is left will be done on this volume.
    fn touches(&self, volume: &Arc<dyn Volume>) -> bool;

    /// What the command is answered with when the step begun last has failed,
    /// if not with what the error says.
    fn failed(&mut self, _: store::Error) -> Option<A> {
        None
    }

    /// What else is told when the step begun last has failed.
    fn failed_at(&self) -> u64 {
        0
    }

    /// What the command is answered with when no step is left, if not with
    /// success.
    fn verdict(&mut self) -> Option<A> {
        None
    }
}

/// I/Os of one volume, made as they are taken.
struct OnOne<I> {
    unit: u32,
    volume: Arc<dyn Volume>,
    ios: I,
}

impl<A, I: Iterator<Item = store::Io>> StepPlan<A> for OnOne<I> {
    fn next(&mut self) -> Option<IoStep> {
        Some(IoStep {
            unit: self.unit,
            volume: self.volume.clone(),
            io: self.ios.next()?.into(),
        })
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        Arc::ptr_eq(&self.volume, volume)
    }
}

/// Steps by their numbers, made as they are taken.
struct Numbered<F> {
    left: Range<u32>,
    make: F,
}

impl<A, F: Fn(u32) -> Option<IoStep>> StepPlan<A> for Numbered<F> {
    fn next(&mut self) -> Option<IoStep> {
        self.left.find_map(&self.make)
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        let mut left = self.left.clone().filter_map(&self.make);
        left.any(|step| Arc::ptr_eq(&step.volume, volume))
    }
}

/// What a command has left to do. It holds its volumes: what becomes of them
/// in what is served meanwhile does not matter to it.
pub struct Steps<A> {
    left: Box<dyn StepPlan<A>>,
    /// Steps begun.
    begun: u32,
    /// First byte of the first of them.
    from: u64,
    /// The volume of the last of them, as [`IoStep::unit`].
    unit: Option<u32>,
    /// What they read into and write from.
    _buf: Option<Buf>,
    /// Data to the peer, if all succeed.
    data_len: u32,
}

impl<A: 'static> Steps<A> {
    /// I/Os of one volume in order, and the memory that they name. They are made as they
    /// are taken: hosts may have very many commands that wait.
    pub fn on(
        unit: u32,
        volume: &Arc<dyn Volume>,
        ios: impl Iterator<Item = store::Io> + 'static,
        buf: Option<Buf>,
    ) -> Box<Self> {
        let volume = volume.clone();
        Steps::planned(Box::new(OnOne { unit, volume, ios }), buf)
    }

    /// The same of `count` steps that `make` makes of their numbers, where there are such.
    pub fn numbered(
        count: u32,
        make: impl Fn(u32) -> Option<IoStep> + 'static,
        buf: Option<Buf>,
    ) -> Box<Self> {
        let left = 0..count;
        Steps::planned(Box::new(Numbered { left, make }), buf)
    }

    /// The same of steps that are made as they are taken.
    pub fn planned(left: Box<dyn StepPlan<A>>, buf: Option<Buf>) -> Box<Self> {
        Box::new(Steps {
            left,
            begun: 0,
            from: 0,
            unit: None,
            _buf: buf,
            data_len: 0,
        })
    }

    /// With so much data to the peer, if all succeed.
    pub fn with_data(mut self: Box<Self>, len: u32) -> Box<Self> {
        self.data_len = len;
        self
    }

    /// Data to the peer, if all succeed.
    pub fn data_len(&self) -> u32 {
        self.data_len
    }

    /// Begins the next one.
    pub fn begin_next(&mut self) -> Option<IoStep> {
        let step = self.left.next()?;
        if self.begun == 0 {
            self.from = step.io.extent().map_or(0, |(offset, _)| offset);
        }
        self.begun += 1;
        self.unit = Some(step.unit);
        Some(step)
    }

    /// First byte of the first that has begun: where a flush of all of them fails.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// The volume of the step that has begun last, as [`IoStep::unit`].
    pub fn unit(&self) -> Option<u32> {
        self.unit
    }

    /// How many have begun.
    pub fn begun(&self) -> u32 {
        self.begun
    }

    /// As [`StepPlan::failed`].
    pub fn failed(&mut self, error: store::Error) -> Option<A> {
        self.left.failed(error)
    }

    /// As [`StepPlan::verdict`].
    pub fn verdict(&mut self) -> Option<A> {
        self.left.verdict()
    }

    /// As [`StepPlan::failed_at`].
    pub fn failed_at(&self) -> u64 {
        self.left.failed_at()
    }

    /// Whether what is left will be done on this volume.
    pub fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        self.left.touches(volume)
    }
}
