//! A connection as its protocol sees it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use machine::{Machine, Nanos, Tag};
use reactor::Driver;

use crate::connection::Core;
use crate::job::{AnswerSource, Job, Jobs};
use crate::post::{Mail, Post};
use crate::shard::{Has, Shard};
use crate::token::JobId;

/// The operations of a protocol.
pub type ProtocolOp<P> = <<P as Protocol>::Machine as Machine>::Op;

/// How far a connection has come, as its protocol sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStage {
    /// Its peer has not said who it is.
    Stranger,
    /// It is served.
    Known,
    /// It ends as soon as everything was sent, whatever the machine says,
    Leaving,
    /// but not before what is awaited has come.
    Draining,
}

/// What happens to a connection beside operations, answers and files.
#[derive(Clone, Copy, Debug)]
pub enum ConnectionEvent {
    /// The peer has sent something.
    Heard,
    /// The machine has done what there was to do.
    Ran,
    /// It can go on, because of something that happened elsewhere.
    Resumed,
    /// A turn that touched it ends.
    TurnEnds,
    /// Time has passed.
    Tick(Nanos),
    /// Nobody waits any more for what the command of this tag waited for.
    Orphaned(Tag),
    /// Its peer sits on memory that others need: what belongs with this connection
    /// ends too, and then itself.
    SitsOnMemory,
    /// It is to end: its peer is told, as far as the protocol has words for it.
    Dismissed,
    /// The socket is about to be closed.
    Closing,
    /// Nothing of it is left.
    Removed,
}

/// A connection of one protocol: what is its own, around a [`Core`]. What every connection
/// does with it is [`Connection`](crate::Connection) and the traits beside it.
pub trait Protocol: Sized + 'static {
    /// The protocol as pure state.
    type Machine: Machine;
    /// How a command ended that ended elsewhere.
    type Answer: Send + 'static;
    /// What its reactors tell each other besides.
    type Mail: Send + 'static;
    /// Where the answer to a command comes from that is not there yet.
    type Job: AnswerSource;

    /// What its connections on one reactor share.
    type Local;

    /// Whether a command that finds no room is refused, so that what comes behind it is
    /// heard. Else nothing is received before there is room.
    const REFUSES_COMMANDS: bool = false;

    /// Jobs of one reactor.
    fn jobs(local: &Self::Local) -> &RefCell<Jobs<Self::Job>>;

    /// What it has as every connection.
    fn core(&self) -> &Core<Self>;

    /// The same, to be changed.
    fn core_mut(&mut self) -> &mut Core<Self>;

    /// The way to other reactors.
    fn post(&self) -> &Arc<dyn Post<Mail<Self::Answer, Self::Mail>>>;

    /// The answer to a command that nobody has answered: our own failure.
    fn lost() -> Self::Answer;

    /// Does what the machine asks for; false: not enough memory now, try again.
    fn execute<D: Driver>(&mut self, op: &ProtocolOp<Self>, driver: &mut D) -> bool;

    /// An operation has waited for memory too long, or is a command that finds no room:
    /// its command is answered.
    fn refuse<D: Driver>(&mut self, op: ProtocolOp<Self>, driver: &mut D);

    /// What a command waited for ended elsewhere.
    fn answered<D: Driver>(&mut self, tag: Tag, answer: Self::Answer, driver: &mut D);

    /// File work of a command has completed.
    fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job<Self::Job>,
        result: io::Result<u32>,
        driver: &mut D,
    );

    /// The same of a job that nobody waits for.
    #[inline]
    fn on_unowned_file<S: Has<Self>, D: Driver>(
        shard: &mut Shard<S>,
        id: JobId,
        job: Job<Self::Job>,
        result: io::Result<u32>,
        driver: &mut D,
    ) {
        let jobs = Self::jobs(shard.server.local());
        jobs.borrow_mut().resume_orphan(id, job, result, driver);
    }

    /// Mail for connections of this reactor.
    fn on_mail<S: Has<Self>, D: Driver>(shard: &mut Shard<S>, mail: Self::Mail, driver: &mut D);

    /// Something has happened.
    fn on_event<D: Driver>(&mut self, event: ConnectionEvent, driver: &mut D);

    /// How far it has come.
    fn stage(&self) -> ConnectionStage;

    /// The host and the target that its peer has named, for the log.
    fn names(&self) -> (Option<&str>, Option<&str>) {
        (None, None)
    }

    /// Whether the machine may have something to do though no byte has come.
    #[inline]
    fn has_step(&self) -> bool {
        false
    }

    /// Whether an operation brings a command, where those are refused.
    #[inline]
    fn is_command(_: &ProtocolOp<Self>) -> bool {
        false
    }

    /// Whether it is an operation of this command.
    fn is_of(op: &ProtocolOp<Self>, tag: Tag) -> bool;

    /// Whether nothing can be received before an operation that found no memory
    /// goes on.
    fn stalls(&self, op: &ProtocolOp<Self>) -> bool;

    /// Whether the command of a tag is worked on, so that memory it has is not
    /// its peer's to give back.
    fn is_worked_on(&self, tag: Tag) -> bool {
        self.core().has_job(tag)
    }
}
