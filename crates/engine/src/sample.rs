//! How long the stages of a command take, of one in [`SAMPLE_EVERY`]: the clock is read for
//! no other.

use machine::{Nanos, Tag};
use probe::probe;
use reactor::Driver;
use store::meter::Times;

/// A connection times one of so many commands, and one at a time.
pub const SAMPLE_EVERY: u32 = 64;

/// What a command goes through, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its data arrives: from the turn that has its header to the turn that has all of it.
    /// Commands without data, and those whose data came with the header, are not in it.
    Receive,
    /// It is whole, and others that came with it go before it.
    Parse,
    /// It waits for memory, for its turn, for others of its order.
    Queue,
    /// Its volume or its file system is at it.
    Backend,
    /// Its answer is ready, and is not sent yet.
    Reply,
    /// The kernel takes the batch that its answer begins in.
    Send,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Stage; 6] = [
        Stage::Receive,
        Stage::Parse,
        Stage::Queue,
        Stage::Backend,
        Stage::Reply,
        Stage::Send,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        ["receive", "parse", "queue", "backend", "reply", "send"][self as usize]
    }
}

/// Times of all stages.
pub type StageTimes = Times<{ Stage::ALL.len() }>;

/// Where a time is noted: among those of the protocol, and of the host.
#[derive(Clone, Copy)]
pub(crate) struct StageMeters<'a> {
    pub protocol: &'a StageTimes,
    pub host: &'a StageTimes,
}

impl StageMeters<'_> {
    fn note(self, stage: Stage, ns: Nanos) {
        self.protocol.note(stage as usize, ns);
        self.host.note(stage as usize, ns);
    }
}

/// No command.
const NONE: u32 = u32::MAX;

/// The command of a connection that is timed.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The number of its protocol.
    protocol: usize,
    /// Commands until the next is.
    left: u32,
    /// The one that is, until its volume has done its part.
    tag: u32,
    /// What it is at. [`Stage::Parse`] takes no time here.
    stage: Option<Stage>,
    /// When it was whole.
    whole: Nanos,
    /// When the stage began,
    at: Nanos,
    /// and in [`Stage::Queue`] when its volume was asked last.
    asked: Nanos,
    /// Batches that had been sent when its answer was ready.
    batches: u64,
}

impl Sample {
    /// None is timed yet.
    pub fn new(protocol: usize) -> Sample {
        Sample {
            protocol,
            left: SAMPLE_EVERY,
            tag: NONE,
            stage: None,
            whole: 0,
            at: 0,
            asked: 0,
            batches: 0,
        }
    }

    /// A command has come, or all of it; whether [`Sample::on_chosen`] is to hear of it.
    #[inline]
    pub fn counts(&mut self, tag: Tag, is_whole: bool) -> bool {
        // Chosen is the one that comes after, so that it may be one whose data comes yet.
        let is_chosen = self.left == 0 || self.tag == u32::from(tag);
        self.left = self.left.saturating_sub(u32::from(is_whole));
        is_chosen
    }

    /// It is the turn of this command to be timed, or it is timed already. Where another
    /// is, `is_over` says whether that one has ended without its volume.
    #[cold]
    pub fn on_chosen<D: Driver>(
        &mut self,
        (tag, is_whole): (Tag, bool),
        is_over: impl FnOnce(Tag) -> bool,
        meters: StageMeters<'_>,
        driver: &D,
    ) {
        let (is_timed, now) = (self.tag == u32::from(tag), driver.now());
        if !is_timed {
            self.left = SAMPLE_EVERY;
            let waits = matches!(self.stage, Some(Stage::Queue));
            let is_free = self.stage.is_none() || (waits && is_over(self.tag as Tag));
            if !is_free {
                return;
            }
        }
        if is_timed && is_whole && self.stage == Some(Stage::Receive) {
            self.note(Stage::Receive, now, meters);
        }
        self.tag = tag.into();
        if !is_whole {
            (self.stage, self.at) = (Some(Stage::Receive), now);
            return;
        }
        (self.whole, self.at) = (now, now);
        self.note(Stage::Parse, driver.clock(), meters);
        (self.stage, self.asked) = (Some(Stage::Queue), self.at);
    }

    /// The stage ends.
    fn note(&mut self, stage: Stage, now: Nanos, meters: StageMeters<'_>) {
        let ns = now.saturating_sub(self.at);
        meters.note(stage, ns);
        // A `nop`, and a note in the binary by which tracers find it.
        probe!(weft, stage, self.protocol, stage as usize, ns);
        self.at = now;
    }

    /// Whether a command is timed whose volume has not done its part.
    #[inline]
    pub fn is_timed(&self, tag: Tag) -> bool {
        self.tag == u32::from(tag)
    }

    /// The volume of the command that is timed is asked. It may be asked again, where it had
    /// no memory.
    #[cold]
    pub fn ask<D: Driver>(&mut self, driver: &D) {
        self.asked = driver.clock();
    }

    /// The volume of the command that is timed has done its part; the time since the command
    /// was whole. `batches` were sent so far.
    #[cold]
    pub fn end<D: Driver>(&mut self, batches: u64, meters: StageMeters<'_>, driver: &D) -> Nanos {
        self.note(Stage::Queue, self.asked, meters);
        self.note(Stage::Backend, driver.clock(), meters);
        (self.tag, self.stage, self.batches) = (NONE, Some(Stage::Reply), batches);
        self.at.saturating_sub(self.whole)
    }

    /// The command that is timed has an answer to be sent.
    #[inline]
    pub fn replies(&self) -> bool {
        self.stage == Some(Stage::Reply)
    }

    /// A turn ends, after which `batches` have been sent.
    #[cold]
    pub fn turn_ends<D: Driver>(&mut self, batches: u64, meters: StageMeters<'_>, driver: &D) {
        if batches != self.batches {
            self.note(Stage::Reply, driver.clock(), meters);
            self.stage = Some(Stage::Send);
        }
    }

    /// The answer of the command that is timed is being sent.
    #[inline]
    pub fn is_sent(&self) -> bool {
        self.stage == Some(Stage::Send)
    }

    /// The kernel has taken that answer.
    #[cold]
    pub fn sent<D: Driver>(&mut self, meters: StageMeters<'_>, driver: &D) {
        self.note(Stage::Send, driver.clock(), meters);
        self.stage = None;
    }
}
