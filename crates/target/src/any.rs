//! A connection of whichever protocol.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use machine::Nanos;
use reactor::{Driver, Received, SocketId};
use store::Volume;
use store::reservation::Registrant;

use crate::connection::{Connection, Protocol, Via};
use crate::job::{Job, JobId, Jobs};
use crate::later::Answer;
use crate::nvme::{self, Nvme};
use crate::shared::Shared;
use crate::token::ConnectionId;

/// A connection of whichever protocol; the branch is mostly the same.
pub(crate) enum AnyConnection {
    Nvme(Box<nvme::Connection>),
}

macro_rules! each {
    ($self:ident, $connection:ident => $call:expr) => {
        match $self {
            AnyConnection::Nvme($connection) => $call,
        }
    };
}

impl AnyConnection {
    /// A connection that just came.
    pub(crate) fn open(
        id: ConnectionId,
        socket: SocketId,
        via: Via,
        shared: Arc<Shared>,
        jobs: Rc<RefCell<Jobs>>,
        now: Nanos,
    ) -> AnyConnection {
        let own = Nvme::open(&shared, now);
        let connection = Connection::new(own, id, socket, via, shared, jobs);
        AnyConnection::Nvme(Box::new(connection))
    }

    /// One that is known to be a queue pair of NVMe.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn nvme(&mut self) -> &mut nvme::Connection {
        let AnyConnection::Nvme(connection) = self;
        connection
    }

    pub(crate) fn via(&self) -> &Via {
        each!(self, c => &c.via)
    }

    /// Whether its shard will look at it at the end of this turn.
    #[inline]
    pub(crate) fn dirty(&mut self) -> &mut bool {
        each!(self, c => &mut c.dirty)
    }

    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        each!(self, c => c.is_gone())
    }

    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        each!(self, c => c.is_waiting())
    }

    pub(crate) fn is_stranger(&self) -> bool {
        each!(self, c => c.is_stranger())
    }

    #[inline]
    pub(crate) fn on_received<D: Driver>(&mut self, result: io::Result<Received>, driver: &mut D) {
        each!(self, c => c.on_received(result, driver));
    }

    #[inline]
    pub(crate) fn on_sent<D: Driver>(&mut self, result: io::Result<()>, driver: &mut D) {
        each!(self, c => c.on_sent(result, driver));
    }

    #[inline]
    pub(crate) fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job,
        result: io::Result<u32>,
        driver: &mut D,
    ) {
        each!(self, c => c.on_file(id, job, result, driver));
    }

    #[inline]
    pub(crate) fn on_turn<D: Driver>(&mut self, driver: &mut D) -> bool {
        each!(self, c => c.on_turn(driver))
    }

    pub(crate) fn on_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        each!(self, c => c.on_tick(now, driver));
    }

    /// The answer to a command that ended elsewhere.
    pub(crate) fn on_answer(&mut self, job: &Job, answer: Answer) {
        match (self, answer) {
            (AnyConnection::Nvme(c), Answer::Nvme(answer)) => {
                c.on_answer(job.tag, &job.work, answer);
            }
        }
    }

    /// What is behind an NVM subsystem has changed.
    pub(crate) fn refresh<D: Driver>(&mut self, nqn: &str, driver: &mut D) {
        match self {
            AnyConnection::Nvme(c) => c.refresh(nqn, driver),
        }
    }

    /// The registrations of these hosts on a volume were preempted.
    pub(crate) fn preempt<D: Driver>(
        &mut self,
        volume: &Arc<dyn Volume>,
        hosts: &BTreeSet<Registrant>,
        driver: &mut D,
    ) {
        match self {
            AnyConnection::Nvme(c) => Nvme::preempt(c, volume, hosts, driver),
        }
    }

    pub(crate) fn close<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.close(driver));
    }

    pub(crate) fn on_closed(&mut self) {
        each!(self, c => c.on_closed());
    }

    /// Nothing of it is left.
    pub(crate) fn left(&mut self) {
        match self {
            AnyConnection::Nvme(c) => Nvme::left(c),
        }
    }
}
