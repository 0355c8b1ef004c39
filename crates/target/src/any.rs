//! A connection of whichever protocol.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use machine::Nanos;
use mem::Pool;
use reactor::{Driver, Received, SocketId};
use store::Volume;
use store::reservation::Registrant;

use crate::config;
use crate::connection::{Blocks, Connection, Protocol, Via};
use crate::hosts::Place;
use crate::iscsi::{self, Iscsi, session};
use crate::job::{Job, JobId, Jobs};
use crate::later::Answer;
use crate::nfs::{self, Nfs};
use crate::nvme::{self, Nvme};
use crate::shared::Shared;
use crate::token::ConnectionId;

/// A connection of whichever protocol; the branch is mostly the same.
pub(crate) enum AnyConnection {
    Nvme(Box<nvme::Connection>),
    Iscsi(Box<iscsi::Connection>),
    Nfs(Box<nfs::Connection>),
}

/// What the connections of one reactor share.
#[derive(Clone, Default)]
pub(crate) struct Local {
    pub(crate) jobs: Rc<RefCell<Jobs>>,
    pub(crate) iscsi: Rc<session::Local>,
    pub(crate) nfs: Rc<nfs::Local>,
}

macro_rules! each {
    ($self:ident, $connection:ident => $call:expr) => {
        match $self {
            AnyConnection::Nvme($connection) => $call,
            AnyConnection::Iscsi($connection) => $call,
            AnyConnection::Nfs($connection) => $call,
        }
    };
}

impl AnyConnection {
    /// A connection that just came.
    pub(crate) fn open(
        protocol: config::Protocol,
        id: ConnectionId,
        socket: SocketId,
        (via, place): (Via, Place),
        shared: Arc<Shared>,
        (local, pool): (&Local, &Pool),
        now: Nanos,
    ) -> AnyConnection {
        let here = (local.jobs.clone(), pool);
        match protocol {
            config::Protocol::NvmeTcp => {
                let own = Nvme::open(&shared, now);
                let connection = Connection::new(own, id, socket, (via, place), shared, here);
                AnyConnection::Nvme(Box::new(connection))
            }
            config::Protocol::Iscsi => {
                let own = Iscsi::open(&shared, local.iscsi.clone(), now);
                let connection = Connection::new(own, id, socket, (via, place), shared, here);
                AnyConnection::Iscsi(Box::new(connection))
            }
            config::Protocol::Nfs => {
                let own = Nfs::open(&shared, local.nfs.clone(), &via, now);
                let connection = Connection::new(own, id, socket, (via, place), shared, here);
                AnyConnection::Nfs(Box::new(connection))
            }
        }
    }

    /// The queue pair of NVMe, if that is what it is.
    pub(crate) fn nvme(&mut self) -> Option<&mut nvme::Connection> {
        match self {
            AnyConnection::Nvme(connection) => Some(connection),
            AnyConnection::Iscsi(_) | AnyConnection::Nfs(_) => None,
        }
    }

    /// The connection of iSCSI, if that is what it is.
    pub(crate) fn iscsi(&mut self) -> Option<&mut iscsi::Connection> {
        match self {
            AnyConnection::Iscsi(connection) => Some(connection),
            AnyConnection::Nvme(_) | AnyConnection::Nfs(_) => None,
        }
    }

    /// The connection of NFS, if that is what it is.
    pub(crate) fn nfs(&mut self) -> Option<&mut nfs::Connection> {
        match self {
            AnyConnection::Nfs(connection) => Some(connection),
            AnyConnection::Nvme(_) | AnyConnection::Iscsi(_) => None,
        }
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

    pub(crate) fn has_socket(&self) -> bool {
        each!(self, c => c.has_socket())
    }

    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        each!(self, c => c.is_waiting())
    }

    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        each!(self, c => c.has_more())
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
    pub(crate) fn on_answer<D: Driver>(&mut self, job: &Job, answer: Answer, driver: &mut D) {
        match (self, answer) {
            (AnyConnection::Nvme(c), Answer::Nvme(answer)) => {
                c.on_answer(job.tag, &job.work, answer, driver);
            }
            (AnyConnection::Iscsi(c), Answer::Iscsi(answer)) => {
                c.on_answer(job.tag, &job.work, answer, driver);
            }
            (AnyConnection::Nfs(c), Answer::Nfs(answer)) => {
                c.on_answer(job.tag, &job.work, answer, driver);
            }
            _ => unreachable!("an answer comes in the words of its command"),
        }
    }

    /// It can go on, because of something that happened elsewhere.
    pub(crate) fn resume<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.resume(driver));
    }

    /// Tells the peer that the target ends, as far as the protocol has words for
    /// it, and closes.
    pub(crate) fn dismiss<D: Driver>(&mut self, driver: &mut D) {
        match self {
            AnyConnection::Nvme(c) => c.close(driver),
            AnyConnection::Iscsi(c) => c.dismiss(driver),
            AnyConnection::Nfs(c) => c.dismiss(driver),
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
            AnyConnection::Iscsi(c) => Iscsi::preempt(c, volume, hosts, driver),
            AnyConnection::Nfs(_) => {}
        }
    }

    pub(crate) fn close<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.close(driver));
    }

    pub(crate) fn on_closed(&mut self) {
        each!(self, c => c.on_closed());
    }

    /// Nothing of it is left.
    pub(crate) fn was_removed(&mut self) {
        match self {
            AnyConnection::Nvme(c) => Nvme::was_removed(c),
            AnyConnection::Iscsi(c) => Iscsi::was_removed(c),
            AnyConnection::Nfs(c) => Nfs::was_removed(c),
        }
    }
}
