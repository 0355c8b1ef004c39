//! One NVMe/TCP connection: what its machine asks for, done.

use std::io;
use std::sync::Arc;

use link::{Data, Link};
use machine::{Machine, Nanos, Tag};
use nvmf::command::{Command, Geometry};
use nvmf::tcp::controller::{Done, Op, Qpair, Refused};
use nvmf::{Activity, ControllerId, Via};
use reactor::{Driver, Received, SocketId};
use store::Volume;
use wire::nvme::Status;

use crate::io::Job;
use crate::shared::{Served, Shared};
use crate::token::{ConnectionId, Subject};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The socket is being closed; its operations are ending.
    Closing,
    /// The socket is gone; file work may still be under way.
    Closed,
}

/// What a connection became with its Connect command.
pub(crate) struct Bound {
    pub(crate) controller: ControllerId,
    pub(crate) qid: u16,
    pub(crate) activity: Arc<Activity>,
    pub(crate) served: Served,
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
    /// By tag: commands whose volume is still at it.
    jobs: Vec<Option<Job>>,
    jobs_open: usize,
    /// An operation that waits for memory; nothing is received meanwhile.
    waiting: Option<Op>,
    /// A failed I/O was logged since the last tick.
    failure_logged: bool,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        socket: SocketId,
        via: Via,
        shared: Arc<Shared>,
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
            jobs: Vec::new(),
            jobs_open: 0,
            waiting: None,
            failure_logged: false,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    #[inline]
    pub(crate) fn volumes(&self) -> &[Arc<dyn Volume>] {
        &self
            .bound
            .as_ref()
            .expect("I/O comes after Connect")
            .served
            .volumes
    }

    pub(crate) fn geometry(&self, namespace: u32) -> Geometry {
        let bound = self.bound.as_ref().expect("I/O comes after Connect");
        bound.served.geometry[namespace as usize]
    }

    /// Whether payload is covered by a digest.
    #[inline]
    pub(crate) fn data_digest(&self) -> bool {
        self.link.machine.data_digest()
    }

    /// Whether nothing of it is left to wait for.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Closed && self.jobs_open == 0
    }

    /// Whether an operation waits for memory: look again next turn.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some() && self.state == State::Open
    }

    pub(crate) fn put_job(&mut self, tag: Tag, job: Job) {
        let index = usize::from(tag);
        if index >= self.jobs.len() {
            let len = self.link.machine.tags_max().max(index + 1);
            self.jobs.resize_with(len, || None);
        }
        let free = self.jobs[index].replace(job).is_none();
        assert!(free, "a command has one job at a time");
        self.jobs_open += 1;
    }

    pub(crate) fn take_job(&mut self, tag: Tag) -> Job {
        let job = self.jobs[usize::from(tag)].take();
        self.jobs_open -= 1;
        job.expect("file work belongs to a job")
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
            driver.close(self.link.socket(), Subject::Close(self.id).token());
        }
    }

    /// The socket is gone.
    pub(crate) fn on_closed(&mut self) {
        self.state = State::Closed;
    }

    /// Takes operations until the received bytes are used up or memory is short.
    #[inline]
    fn run<D: Driver>(&mut self, driver: &mut D) {
        while let Some(op) = self.waiting.take().or_else(|| self.link.next_op()) {
            if !self.execute(op, driver) {
                self.waiting = Some(op);
                return;
            }
        }
    }

    /// False: not enough memory now, try again.
    #[inline]
    fn execute<D: Driver>(&mut self, op: Op, driver: &mut D) -> bool {
        match op {
            Op::Execute {
                tag,
                command: Command::Io(io),
            } => self.execute_io(tag, io, driver),
            Op::Prepare {
                tag, len, command, ..
            } => {
                let data = match command {
                    Command::Io(io) => self.destination(&io, len, driver),
                    _ => driver.pool().get(len).map(Data::owned),
                };
                let Some(data) = data else { return false };
                self.link.set_data(tag, data);
                self.link.machine.prepared(tag);
                true
            }
            Op::Execute {
                tag,
                command: Command::Reservation { .. },
            } => {
                self.refuse(tag);
                true
            }
            Op::Execute { tag, command } => self.execute_admin(tag, command, driver),
            Op::ExecuteFused { compare, write, .. } => {
                self.refuse(compare);
                self.refuse(write);
                true
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

    /// Completes a command that nobody executes yet.
    #[cold]
    pub(crate) fn refuse(&mut self, tag: Tag) {
        self.link.take_data(tag);
        let status = Status::INVALID_OPCODE.dnr();
        self.link.machine.complete(tag, Done::from(status));
    }

    /// Completes a command with an error, at a byte of a namespace.
    #[cold]
    pub(crate) fn fail(&mut self, tag: Tag, status: Status, namespace: u32, offset: u64) {
        let geometry = self.geometry(namespace);
        self.note_refused(Refused {
            cid: self.link.machine.cid(tag),
            status,
            nsid: geometry.nsid,
            slba: offset >> geometry.block_shift,
            location: None,
        });
        self.link.take_data(tag);
        self.link.machine.complete(tag, Done::from(status));
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
    /// batch, and the next bytes are asked for.
    #[inline]
    pub(crate) fn on_turn<D: Driver>(&mut self, driver: &mut D) {
        if self.state != State::Open {
            return;
        }
        if self.waiting.is_some() {
            self.run(driver);
        }
        self.link.flush(driver);
        if self.waiting.is_none() {
            self.link.receive(driver);
        }
        if self.link.machine.is_finished() && !self.link.is_sending() {
            self.close(driver);
        }
    }

    /// Looks at the time.
    pub(crate) fn on_tick(&mut self, now: Nanos) {
        self.failure_logged = false;
        if self.link.machine.deadline().is_some_and(|at| at <= now) {
            tracing::debug!(peer = %self.via.peer, "no Connect in time: connection ends");
            self.link.machine.on_deadline(now);
        }
        if self.bound.as_ref().is_some_and(|bound| bound.qid == 0) {
            self.keep_alive(now);
        }
    }
}
