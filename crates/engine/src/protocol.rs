//! A connection as its protocol sees it, and protocols as their reactor sees them.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use link::{HandshakeDone, Stream};
use machine::{Machine, Nanos, Tag};
use mem::Pool;
use reactor::{Driver, Received};
use store::Volume;

use tls::psk_handshake::KnownPsks;

use crate::connection::{Core, Via};
use crate::fence::Scope;
use crate::held_back::Demand;
use crate::hosts::HostPlace;
use crate::job::{AnswerSource, Job, Jobs, Older};
use crate::post::{Mail, Post};
use crate::rate_limits::Goal;
use crate::shard::Shard;
use crate::shared::Shared;
use crate::token::{ConnectionId, JobId};

/// The operations of a protocol.
pub type ProtocolOp<P> = <<P as Protocol>::Machine as Machine>::Op;

/// On what terms peers speak TLS.
pub struct HandshakeTerms {
    /// The keys that they may have.
    pub known: Arc<dyn KnownPsks>,
    /// A peer that does not begin with TLS speaks without.
    pub allows_plain: bool,
}

/// What a connection may begin with.
pub enum FirstBytes {
    /// Those of the peer, without TLS: one that begins with it is told so.
    Plain,
    /// Those of the peer, by TLS or without.
    Tls(HandshakeTerms),
    /// Ours: the peer waits for them.
    Server,
}

/// How far a connection has come, as its protocol sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStage {
    /// Its peer has not identified itself.
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
    /// A handshake of TLS has ended well: what the peer has proved the stream says.
    Secured,
    /// The machine has done what there was to do.
    Ran,
    /// It can go on, because of something that happened elsewhere.
    Resumed,
    /// A turn that touched it ends.
    TurnEnds,
    /// Time has passed.
    Tick(Nanos),
    /// The job of the command of this tag has become an orphan.
    Orphaned(Tag),
    /// Its peer sits on memory that others need: what belongs with this connection
    /// ends too, and then itself.
    SitsOnMemory,
    /// It is to end: it sends its peer a notice, where the protocol has one.
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
    /// What its reactors send each other besides.
    type Mail: Send + 'static;
    /// Where the answer to a command comes from that is not there yet.
    type Job: AnswerSource;

    /// What its connections on one reactor share.
    type Local;

    /// Whether a command that finds no room is refused, so that what is behind it is
    /// received. Else nothing is received before there is room.
    const REFUSES_COMMANDS: bool = false;

    /// Jobs of one reactor.
    fn jobs(local: &Self::Local) -> &RefCell<Jobs<Self::Job>>;

    /// What it has as every connection.
    fn core(&self) -> &Core<Self>;

    /// The same, to be changed.
    fn core_mut(&mut self) -> &mut Core<Self>;

    /// The way to other reactors.
    fn post(&self) -> &Arc<dyn Post<Mail<Self::Answer, Self::Mail>>>;

    /// The answer to a command whose work ended without one: our own failure.
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

    /// The same of an orphan.
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

    /// When it needs the time next, where nothing happens before; 0: with every tick. A
    /// connection that something happens on has it anyway.
    fn deadline(&self) -> Option<Nanos> {
        self.core().link.machine.deadline()
    }

    /// The host and the target that its peer has named, for the log.
    fn names(&self) -> (Option<&str>, Option<&str>) {
        (None, None)
    }

    /// The commands that an operation brings on: one, or the two that are executed as one.
    /// None of those that need no memory.
    fn commands(op: &ProtocolOp<Self>) -> [Option<Tag>; 2];

    /// Whether all of a command is here with an operation, which executes it.
    fn is_whole(op: &ProtocolOp<Self>) -> bool;

    /// The I/O that a command begins with an operation: its first one, or that of data which is
    /// to come before it is whole.
    fn demand(&self, op: &ProtocolOp<Self>) -> Option<Demand>;

    /// What a unit is.
    fn goal(&self, unit: u32) -> Option<Goal<'_>>;

    /// An operation waits for a limit: its command has come.
    fn held_back(&mut self, _: &ProtocolOp<Self>) {}

    /// Whether the command of a tag is worked on, so that memory it has is not
    /// its peer's to give back.
    fn is_worked_on(&self, tag: Tag) -> bool {
        self.core().has_job(tag)
    }
}

/// A connection of any of a server's protocols; as [`Connection`](crate::Connection) has them.
pub trait AnyConnection {
    /// How it came.
    fn via(&self) -> &Via;
    /// Tells its host from others that have connections; never 0.
    fn host(&self) -> u64;
    /// Whether its shard will look at it at the end of this turn.
    fn dirty(&mut self) -> &mut bool;
    /// Whether nothing of it is left to wait for.
    fn is_gone(&self) -> bool;
    /// Whether its socket is still there.
    fn has_socket(&self) -> bool;
    /// Whether an operation waits for memory.
    fn is_waiting(&self) -> bool;
    /// Whether it has work for its next turn.
    fn has_more(&self) -> bool;
    /// When what waits for a limit is to be looked at.
    fn wakes_at(&self) -> Option<Nanos>;
    /// Whether it is open and has not identified itself.
    fn is_stranger(&self) -> bool;
    /// A receive completed.
    fn on_received<D: Driver>(&mut self, result: io::Result<Received>, driver: &mut D);
    /// A step of its handshake was made.
    fn on_handshake<D: Driver>(&mut self, done: HandshakeDone, driver: &mut D);
    /// Its handshake is one too many, if it is under way still.
    fn give_way<D: Driver>(&mut self, driver: &mut D);
    /// A batch was taken by the kernel, or never will be.
    fn on_sent<D: Driver>(&mut self, result: io::Result<()>, driver: &mut D);
    /// The end of a turn that touched it.
    fn on_turn<D: Driver>(&mut self, driver: &mut D) -> bool;
    /// Looks at the time.
    fn on_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D);
    /// When it is to do so next, if nothing happens on it before; 0: with the next tick.
    fn next_tick(&self) -> Option<Nanos>;
    /// Goes on, because of something that happened elsewhere.
    fn resume<D: Driver>(&mut self, driver: &mut D);
    /// Tells the peer that it ends, and closes.
    fn dismiss<D: Driver>(&mut self, driver: &mut D);
    /// Starts the end.
    fn close<D: Driver>(&mut self, driver: &mut D);
    /// The socket is gone.
    fn on_closed(&mut self);
    /// Nothing of it is left.
    fn removed<D: Driver>(&mut self, driver: &mut D);
}

/// What composes protocols, on one reactor: which there are, and which of them a
/// connection is of.
pub trait Protocols: Sized + 'static {
    /// A connection of any of them.
    type Connection: AnyConnection;
    /// What reactors tell each other.
    type Mail: Send;
    /// What a reactor has done.
    type Report;

    /// What all reactors have in common.
    fn shared(&self) -> &Arc<Shared>;

    /// The first reactor is there, whose clock says `now`.
    fn begin(&self, now: Nanos);

    /// Every volume that is open.
    fn volumes(&self) -> Vec<Arc<dyn Volume>>;

    /// Whether the listener of a number is still there.
    fn is_listening(&self, listener: u16) -> bool;

    /// What connections that come by a listener begin with.
    fn first_bytes(&self, listener: u16) -> FirstBytes;

    /// A connection that just came, of what is spoken at its listener; of any protocol
    /// where that is gone.
    fn open(
        &self,
        id: ConnectionId,
        stream: Stream,
        came: (Via, HostPlace),
        pool: &Pool,
        now: Nanos,
    ) -> Self::Connection;

    /// The time, counted in jobs: see [`Jobs::mark`](crate::job::Jobs::mark).
    fn mark(&self) -> u64;

    /// How many jobs are orphans.
    fn orphans(&self) -> usize;

    /// Lets some of those go that have not begun: see
    /// [`Jobs::discard`](crate::job::Jobs::discard).
    fn discard(&self) -> bool;

    /// Whether work of what is in `scope` that is older than a fence is awaited: see
    /// [`Jobs::holds`](crate::job::Jobs::holds).
    fn holds(&self, scope: &Scope, older: &mut Older, left: &mut usize) -> bool;

    /// The connection of a job; none of an orphan and of one that is over.
    fn owner(&self, job: JobId) -> Option<ConnectionId>;

    /// The next of the connections that can go on because of something that happened on
    /// others.
    fn take_due(&self) -> Option<ConnectionId>;

    /// Whether there is one.
    fn has_due(&self) -> bool;

    /// File work of a job has completed: [`Shard::end_file_work`] of its protocol.
    fn on_file<D: Driver>(
        shard: &mut Shard<Self>,
        job: JobId,
        result: io::Result<u32>,
        driver: &mut D,
    );

    /// Mail.
    fn on_mail<D: Driver>(shard: &mut Shard<Self>, mail: Self::Mail, driver: &mut D);

    /// Time has passed.
    fn on_tick<D: Driver>(shard: &mut Shard<Self>, now: Nanos, driver: &mut D);

    /// What the reactor has done.
    fn report<D: Driver>(shard: &Shard<Self>, driver: &D) -> Self::Report;
}

/// A server that has a protocol.
pub trait Has<P: Protocol>: Protocols {
    /// What its connections on this reactor share.
    fn local(&self) -> &Rc<P::Local>;

    /// The connection, if it is of this protocol.
    fn of(connection: &mut Self::Connection) -> Option<&mut P>;

    /// As the server knows it.
    fn any(connection: P) -> Self::Connection;
}
