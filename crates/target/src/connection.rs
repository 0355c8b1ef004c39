//! One NVMe/TCP connection: what its machine asks for, done.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use link::{Data, Link};
use machine::{Machine, Nanos, Tag};
use nvmf::command::{Command, Geometry};
use nvmf::tcp::controller::{Done, Op, Qpair, Refused};
use nvmf::{Activity, ControllerId, Via};
use reactor::{Driver, Received, SocketId};
use store::Volume;
use wire::nvme::Status;

use crate::job::Jobs;
use crate::reservation::Rights;
use crate::served::Served;
use crate::shared::{ConnectionRef, Shared};
use crate::token::{ConnectionId, Subject};
use crate::waiting::Waiting;

/// A connection that has ended has so many ticks to say why.
const ENDED_TICKS_MAX: u32 = 10;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The socket is being closed; its operations are ending.
    Closing,
    /// The socket is gone.
    Closed,
}

/// What a connection became with its Connect command.
pub(crate) struct Bound {
    pub(crate) controller: ControllerId,
    pub(crate) qid: u16,
    pub(crate) activity: Arc<Activity>,
    pub(crate) served: Served,
    pub(crate) rights: Rights,
}

/// One NVMe/TCP connection.
pub(crate) struct Connection {
    /// Whether its shard will look at it at the end of this turn.
    pub(crate) dirty: bool,
    pub(crate) link: Link<Qpair>,
    pub(crate) bound: Option<Bound>,
    pub(crate) via: Via,
    pub(crate) shared: Arc<Shared>,
    id: ConnectionId,
    state: State,
    /// Those of the reactor.
    pub(crate) jobs: Rc<RefCell<Jobs>>,
    /// How many of them are its own.
    pub(crate) jobs_open: usize,
    /// Operations that wait for memory.
    pub(crate) waiting: Waiting,
    /// A failed I/O was logged since the last tick.
    failure_logged: bool,
    /// Ticks since its machine has ended.
    ended_ticks: u32,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        socket: SocketId,
        via: Via,
        shared: Arc<Shared>,
        jobs: Rc<RefCell<Jobs>>,
        now: Nanos,
    ) -> Self {
        let machine = Qpair::new(shared.qpair_settings(), now);
        let recv = Subject::Recv(id).token();
        let send = Subject::Send(id).token();
        Connection {
            dirty: false,
            link: Link::new(machine, socket, recv, send),
            bound: None,
            via,
            shared,
            id,
            state: State::Open,
            jobs,
            jobs_open: 0,
            waiting: Waiting::default(),
            failure_logged: false,
            ended_ticks: 0,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// The reactor that it lives on.
    pub(crate) fn shard(&self) -> usize {
        ConnectionRef::unpack(self.via.connection).shard as usize
    }

    #[inline]
    pub(crate) fn bound(&self) -> &Bound {
        self.bound.as_ref().expect("commands come after Connect")
    }

    #[inline]
    pub(crate) fn volumes(&self) -> &[Arc<dyn Volume>] {
        &self.bound().served.volumes
    }

    pub(crate) fn geometry(&self, namespace: u32) -> Geometry {
        self.bound().served.geometry[namespace as usize]
    }

    /// Whether nothing of it is left to wait for.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether an operation waits for memory: look again next turn.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() && self.state == State::Open
    }

    /// Whether commands are taken.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// A receive completed.
    #[inline]
    pub(crate) fn on_received<D: Driver>(&mut self, result: io::Result<Received>, driver: &mut D) {
        match result {
            Ok(received) if !received.eof => {
                if let Some(bound) = &self.bound {
                    bound.activity.note();
                }
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

    /// Starts the end: no more is received or sent.
    pub(crate) fn close<D: Driver>(&mut self, driver: &mut D) {
        if self.state == State::Open {
            self.state = State::Closing;
            self.waiting.clear();
            self.orphan_all(driver);
            driver.close(self.link.socket(), Subject::Close(self.id).token());
        }
    }

    /// The socket is gone.
    pub(crate) fn on_closed(&mut self) {
        self.state = State::Closed;
    }

    /// Takes operations until the received bytes are used up, or one stands
    /// before the rest.
    #[inline]
    pub(crate) fn run<D: Driver>(&mut self, driver: &mut D) {
        while !self.waiting.is_stalled()
            && let Some(op) = self.link.next_op()
        {
            if !self.execute(op, driver) {
                self.wait(op);
            }
        }
    }

    /// False: not enough memory now, try again.
    #[inline]
    pub(crate) fn execute<D: Driver>(&mut self, op: Op, driver: &mut D) -> bool {
        if let Op::Execute { .. } | Op::ExecuteFused { .. } = op {
            tracing::debug!(peer = %self.via.peer, ?op, "execute");
        }
        match op {
            Op::Execute {
                tag,
                command: Command::Io(io),
            } => self.execute_io(tag, io, driver),
            Op::Prepare {
                tag,
                len,
                command,
                staged,
            } => {
                let data = match command {
                    Command::Io(io) => self.destination(&io, len, staged, driver),
                    _ => driver.pool().get(len).map(Data::owned),
                };
                let Some(data) = data.or_else(|| self.spare_for(tag, len, driver)) else {
                    return false;
                };
                self.link.set_data(tag, data);
                self.link.machine.prepared(tag);
                true
            }
            Op::Execute {
                tag,
                command: Command::Reservation { namespace, sqe },
            } => self.reserve(tag, namespace, &sqe, driver),
            Op::Execute { tag, command } => self.execute_admin(tag, command, driver),
            Op::ExecuteFused { compare, write, io } => {
                self.execute_fused(compare, write, io, driver)
            }
            Op::Refused(refused) => {
                self.note_refused(refused);
                true
            }
            Op::Fatal(error) => {
                tracing::warn!(peer = %self.via.peer, %error, "connection ends");
                true
            }
        }
    }

    /// Completes a command with an error, at a byte of a namespace.
    #[cold]
    pub(crate) fn fail(&mut self, tag: Tag, status: Status, namespace: u32, offset: u64) {
        self.fail_with(tag, status, 0, namespace, offset);
    }

    /// The same, with dwords 0 and 1 of the completion.
    #[cold]
    pub(crate) fn fail_with(
        &mut self,
        tag: Tag,
        status: Status,
        result: u64,
        namespace: u32,
        offset: u64,
    ) {
        let geometry = self.geometry(namespace);
        self.note_refused(Refused {
            cid: self.link.machine.cid(tag),
            status,
            nsid: geometry.nsid,
            slba: offset >> geometry.block_shift,
            location: None,
        });
        self.link.take_data(tag);
        let done = Done {
            result,
            ..Done::from(status)
        };
        self.link.machine.complete(tag, done);
    }

    /// Says in the log that an I/O failed, at most once a tick.
    #[cold]
    pub(crate) fn log_failure(&mut self, volume: u32, error: store::Error) {
        if !std::mem::replace(&mut self.failure_logged, true) {
            let volume = &self.volumes()[volume as usize].info().name;
            tracing::warn!(volume, %error, peer = %self.via.peer, "I/O failed");
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
        let wants_more = !self.waiting.is_empty() && self.retry(driver);
        self.link.flush(driver);
        if !self.waiting.is_stalled() {
            self.link.receive(driver);
        }
        if self.link.machine.is_finished() && !self.link.is_sending() {
            self.close(driver);
        }
        wants_more
    }

    /// Looks at the time.
    pub(crate) fn on_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        self.failure_logged = false;
        if self.link.machine.is_finished() {
            // A peer that takes nothing more must not hold its place for ever.
            self.ended_ticks += 1;
            if self.ended_ticks > ENDED_TICKS_MAX {
                self.close(driver);
            }
        }
        if self.link.machine.deadline().is_some_and(|at| at <= now) {
            tracing::debug!(peer = %self.via.peer, "no Connect in time: connection ends");
            self.link.machine.on_deadline(now);
        }
        if self.bound.as_ref().is_some_and(|bound| bound.qid == 0) {
            self.keep_alive(now);
        }
        if self.state == State::Open {
            self.memory_tick(now, driver);
        }
    }
}
