//! One connection, as far as it is the same for every protocol: its machine on
//! its socket, operations that wait for memory, work that its volumes are at.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use link::Link;
use machine::{Machine, Nanos, Tag, work};
use mem::Pool;
use reactor::{Driver, Received, SocketId};
use store::Volume;
use store::reservation::Registrant;

use crate::engine::Then;
use crate::hosts::{Host, Name, Place};
use crate::job::{Jobs, Work};
use crate::later::Answers;
use crate::refusals::{Kind, Refusal};
use crate::shared::{ConnectionRef, Shared};
use crate::token::{ConnectionId, Subject};
use crate::waiting::Waiting;

/// A connection that has ended has so many ticks to say why.
const ENDED_TICKS_MAX: u32 = 10;

/// The operations of a protocol.
pub(crate) type Op<P> = <<P as Protocol>::Machine as Machine>::Op;

/// What is a protocol's own of a connection.
pub(crate) trait Protocol: Sized {
    type Machine: Machine;
    /// How a command ended that ended elsewhere.
    type Answer: Answers;

    /// Does what the machine asks for; false: not enough memory now, try again.
    fn execute<D: Driver>(c: &mut Connection<Self>, op: &Op<Self>, driver: &mut D) -> bool;

    /// Whether it is an operation of this command.
    fn is_of(op: &Op<Self>, tag: Tag) -> bool;

    /// Whether nothing can be received before an operation that found no memory
    /// goes on.
    fn stalls(c: &Connection<Self>, op: &Op<Self>) -> bool;

    /// An operation has waited for memory too long: its command is answered.
    fn refuse_late<D: Driver>(c: &mut Connection<Self>, op: Op<Self>, driver: &mut D);

    /// Whether the machine may have something to do though no byte has come.
    #[inline]
    fn has_step(_: &Connection<Self>) -> bool {
        false
    }

    /// The machine has done what there was to do.
    #[inline]
    fn ran(_: &mut Connection<Self>) {}

    /// It can go on, because of something that happened elsewhere.
    fn resume<D: Driver>(_: &mut Connection<Self>, _: &mut D) {}

    /// The host and the target that its peer has named, for the log.
    fn names(&self) -> (Option<&str>, Option<&str>) {
        (None, None)
    }

    /// Whether it ends as soon as everything was sent, whatever the machine
    /// says.
    #[inline]
    fn is_leaving(&self) -> bool {
        false
    }

    /// Whether it ends only when something has come that is awaited.
    #[inline]
    fn is_busy(_: &Connection<Self>) -> bool {
        false
    }

    /// A turn that touched it ends.
    #[inline]
    fn turn_ends<D: Driver>(_: &mut Connection<Self>, _: &mut D) {}

    /// What a command waited for ended elsewhere.
    fn answered<D: Driver>(
        c: &mut Connection<Self>,
        tag: Tag,
        work: &Work,
        answer: Self::Answer,
        driver: &mut D,
    );

    /// Nobody waits any more for work of this connection.
    fn forsaken(_: &mut Connection<Self>, _: &Work) {}

    /// Whether the command of a tag is worked on, so that memory it has is not
    /// its peer's to give back.
    fn is_worked_on(c: &Connection<Self>, tag: Tag) -> bool {
        c.jobs.borrow().find(c.id(), tag).is_some()
    }

    /// The socket is about to be closed.
    fn closing<D: Driver>(c: &mut Connection<Self>, driver: &mut D);

    /// Whether it may go once its socket has.
    fn has_ended(_: &Connection<Self>) -> bool {
        true
    }

    /// Whether the peer has said who it is.
    fn is_known(&self) -> bool;

    /// The peer has sent something.
    fn heard(&self);

    /// Time has passed.
    fn on_tick<D: Driver>(c: &mut Connection<Self>, now: Nanos, driver: &mut D);

    /// Its peer sits on memory that others need: whatever belongs with this
    /// connection ends too.
    fn end_all(c: &mut Connection<Self>);

    /// Nothing of the connection is left.
    fn was_removed(c: &mut Connection<Self>);
}

/// A protocol whose commands go to volumes.
pub(crate) trait Blocks: Protocol {
    /// The volume at an index of what is served here.
    fn volume(&self, unit: u32) -> Option<&Arc<dyn Volume>>;

    /// An I/O has succeeded, and with it the command, which has so much data
    /// for the peer.
    fn succeeded(c: &mut Connection<Self>, tag: Tag, data_len: u32, then: Then);

    /// An I/O has failed at a byte of a volume, and with it the command.
    fn failed(c: &mut Connection<Self>, tag: Tag, at: (u32, u64), error: store::Error, then: Then);

    /// The registrations of these hosts on a volume were preempted: if the peer
    /// is one of them, what it has under way there ends.
    fn preempt<D: Driver>(
        c: &mut Connection<Self>,
        volume: &Arc<dyn Volume>,
        hosts: &BTreeSet<Registrant>,
        driver: &mut D,
    );
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The socket is being closed; its operations are ending.
    Closing,
    /// The socket is gone.
    Closed,
}

/// How a connection came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Via {
    /// Itself, as [`ConnectionRef`] packs it.
    pub connection: u64,
    /// Our address.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
    /// Number of the listener.
    pub listener: u16,
}

/// One connection.
pub(crate) struct Connection<P: Protocol> {
    /// Whether its shard will look at it at the end of this turn.
    pub(crate) dirty: bool,
    pub(crate) link: Link<P::Machine>,
    /// What is the protocol's.
    pub(crate) own: P,
    pub(crate) via: Via,
    pub(crate) shared: Arc<Shared>,
    /// Its host, as far as that is known.
    pub(crate) host: Arc<Host>,
    /// Buffers of its reactor, as a part of its host's share.
    pub(crate) pool: Pool,
    /// Its place among the connections of its address; gone with one that moved.
    pub(crate) place: Option<Place>,
    id: ConnectionId,
    state: State,
    /// Those of the reactor.
    pub(crate) jobs: Rc<RefCell<Jobs>>,
    /// How many of them are its own.
    pub(crate) jobs_open: usize,
    /// Operations that wait for memory.
    pub(crate) waiting: Waiting<Op<P>>,
    /// Its share of the turn was used up before its work was.
    has_more: bool,
    /// Ticks since its machine has ended.
    ended_ticks: u32,
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn new(
        (machine, own): (P::Machine, P),
        id: ConnectionId,
        socket: SocketId,
        (via, place): (Via, Place),
        shared: Arc<Shared>,
        (jobs, pool): (Rc<RefCell<Jobs>>, &Pool),
    ) -> Self {
        let name = Name::of_peer(via.peer);
        let host = shared.hosts.host(name, pool.budget());
        let recv = Subject::Recv(id).token();
        let send = Subject::Send(id).token();
        Connection {
            dirty: false,
            link: Link::new(machine, socket, recv, send),
            own,
            via,
            shared,
            pool: pool.of(host.share.clone()),
            host,
            place: Some(place),
            id,
            state: State::Open,
            jobs,
            jobs_open: 0,
            waiting: Waiting::default(),
            has_more: false,
            ended_ticks: 0,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Its host has said who it is: what it takes from now on is of that one's
    /// share.
    pub(crate) fn set_host(&mut self, name: Name) {
        self.host = self.shared.hosts.host(name, self.pool.budget());
        self.pool = self.pool.of(self.host.share.clone());
    }

    /// The reactor that it lives on.
    pub(crate) fn shard(&self) -> usize {
        ConnectionRef::unpack(self.via.connection).shard as usize
    }

    /// Whether nothing of it is left to wait for.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Closed && P::has_ended(self)
    }

    /// Whether its socket is still there.
    pub(crate) fn has_socket(&self) -> bool {
        self.state != State::Closed
    }

    /// Whether an operation waits for memory: look again next turn.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() && self.state == State::Open
    }

    /// Whether it has work for its next turn, whatever happens meanwhile.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.has_more && self.state == State::Open
    }

    /// Whether others are to have their turn before it does more.
    #[inline]
    pub(crate) fn gives_way(&mut self) -> bool {
        let gives_way = work::is_used_up();
        self.has_more |= gives_way;
        gives_way
    }

    /// Whether it closes once everything was sent.
    #[inline]
    fn is_ending(&self) -> bool {
        self.link.machine.is_finished() || self.own.is_leaving()
    }

    /// Whether commands are taken.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether it is open and has not said who it is.
    pub(crate) fn is_stranger(&self) -> bool {
        self.is_open() && !self.own.is_known()
    }

    /// A receive completed.
    #[inline]
    pub(crate) fn on_received<D: Driver>(&mut self, result: io::Result<Received>, driver: &mut D) {
        match result {
            Ok(received) if !received.eof => {
                self.own.heard();
                self.link.on_received(received);
                if self.state == State::Open {
                    self.run(driver);
                }
            }
            Ok(_) => self.close(driver),
            Err(error) => {
                tracing::debug!(peer = %self.via.peer, %error, "receive failed");
                self.close(driver);
            }
        }
    }

    /// A batch was taken by the kernel, or never will be.
    #[inline]
    pub(crate) fn on_sent<D: Driver>(&mut self, result: io::Result<()>, driver: &mut D) {
        self.link.on_sent();
        if let Err(error) = result {
            tracing::debug!(peer = %self.via.peer, %error, "send failed");
            self.close(driver);
        }
    }

    /// Notes what its peer is refused, or why it ends.
    pub(crate) fn note_refusal(&self, kind: Kind, reason: &dyn Display) {
        let (host, target) = self.own.names();
        self.shared.refusals.note(Refusal {
            peer: Some(self.via.peer),
            host,
            target,
            ..Refusal::new(kind, reason)
        });
    }

    /// Tells that a peer is gone whose coming was told.
    pub(crate) fn tell_gone(&self, what: &str) {
        let peer = self.via.peer;
        if self.shared.refusals.tells_arrival(Some(peer.ip())) {
            let (host, target) = self.own.names();
            tracing::info!(%peer, host, target, "{what}");
        }
    }

    /// Starts the end: no more is received or sent.
    pub(crate) fn close<D: Driver>(&mut self, driver: &mut D) {
        if self.state == State::Open {
            self.state = State::Closing;
            P::closing(self, driver);
            self.waiting.clear();
            driver.close(self.link.socket(), Subject::Close(self.id).token());
        }
    }

    /// The socket is gone.
    pub(crate) fn on_closed(&mut self) {
        self.state = State::Closed;
    }

    /// Takes operations until the received bytes are used up, one stands before
    /// the rest, or others are to have their turn.
    #[inline]
    pub(crate) fn run<D: Driver>(&mut self, driver: &mut D) {
        while !self.waiting.is_stalled()
            && !self.gives_way()
            && let Some(op) = self.link.next_op()
        {
            work::spend(work::OPERATION_UNITS);
            if !P::execute(self, &op, driver) {
                self.wait(op);
            }
        }
        P::ran(self);
    }

    /// Goes on, because of something that happened elsewhere.
    pub(crate) fn resume<D: Driver>(&mut self, driver: &mut D) {
        if self.state == State::Open {
            P::resume(self, driver);
            self.run(driver);
        }
    }

    /// The end of a turn that touched it: everything ready leaves in one
    /// batch, and the next bytes are asked for. Whether it found memory and
    /// waits for more.
    #[inline]
    pub(crate) fn on_turn<D: Driver>(&mut self, driver: &mut D) -> bool {
        if self.state != State::Open {
            return false;
        }
        if std::mem::take(&mut self.has_more) {
            self.resume(driver);
        }
        let wants_more = !self.waiting.is_empty() && self.retry(driver);
        if self.is_ending() {
            self.link.flush_now(driver);
        } else {
            // What is still to come is planned for when the batch has gone that
            // asks for it.
            let comes_first = self.link.has_more() && self.link.staged_bytes() == 0;
            if comes_first && self.may_receive() {
                self.link.receive(driver);
            }
            self.link.flush(driver);
        }
        // A batch that goes makes room for more of what is staged, which may be
        // the last that comes: it is walked before anything else is received.
        while P::has_step(self) {
            let staged = self.link.staged_bytes();
            self.run(driver);
            self.link.flush(driver);
            if self.link.staged_bytes() == staged {
                break;
            }
        }
        if self.is_ending() {
            if !self.link.is_sending() && !P::is_busy(self) {
                self.close(driver);
            }
        } else if self.may_receive() {
            self.link.receive(driver);
        }
        P::turn_ends(self, driver);
        wants_more
    }

    /// Whether what was received before has been walked as far as it goes.
    #[inline]
    fn may_receive(&self) -> bool {
        !self.waiting.is_stalled() && !self.has_more
    }

    /// Looks at the time.
    pub(crate) fn on_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        if self.is_ending() {
            // A peer that takes nothing more must not hold its place for ever.
            self.ended_ticks += 1;
            if self.ended_ticks > ENDED_TICKS_MAX {
                self.close(driver);
            }
        }
        P::on_tick(self, now, driver);
        if self.state == State::Open {
            self.memory_tick(now, driver);
        }
    }
}

impl<P: Blocks> Connection<P> {
    /// Has it logged that an I/O failed.
    #[cold]
    pub(crate) fn log_failure(&self, unit: u32, error: store::Error) {
        let volume = self.own.volume(unit);
        self.shared.refusals.note(Refusal {
            peer: Some(self.via.peer),
            volume: volume.map(|volume| &*volume.info().name),
            ..Refusal::new(Kind::Volume, &error)
        });
    }
}
