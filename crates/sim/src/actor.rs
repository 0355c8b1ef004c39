//! Users of the target: NVMe hosts, iSCSI initiators and NBD clients.

use mem::Pool;
use reactor::Nanos;

use crate::checker::Verdict;
use crate::host::SimHost;
use crate::initiator::SimInitiator;
use crate::nbd_client::SimNbdClient;
use crate::plan::Plan;
use crate::work::HostWork;
use crate::world::{DriverId, SharedWorld};

/// A host of one protocol or another.
pub enum Actor {
    /// Speaks NVMe/TCP.
    Nvme(SimHost),
    /// Speaks iSCSI.
    Iscsi(SimInitiator),
    /// Speaks NBD.
    Nbd(SimNbdClient),
}

macro_rules! forward {
    ($($(#[$doc:meta])* fn $name:ident($self:ty $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?;)*) => {
        $($(#[$doc])*
        pub fn $name(self: $self $(, $arg: $ty)*) $(-> $ret)? {
            match self {
                Actor::Nvme(host) => host.$name($($arg),*),
                Actor::Iscsi(initiator) => initiator.$name($($arg),*),
                Actor::Nbd(client) => client.$name($($arg),*),
            }
        })*
    };
}

impl Actor {
    /// Host `number` of a plan.
    pub fn new(world: &SharedWorld, number: usize, id: DriverId, plan: &Plan, pool: Pool) -> Actor {
        let host = &plan.hosts[number];
        if host.nbd.is_some() {
            return Actor::Nbd(SimNbdClient::new(world, number, id, plan, pool));
        }
        match host.iscsi {
            None => Actor::Nvme(SimHost::new(world, number, id, plan, pool)),
            Some(_) => Actor::Iscsi(SimInitiator::new(world, number, id, plan, pool)),
        }
    }

    /// How often it came up.
    pub fn lives(&self) -> u64 {
        match self {
            Actor::Nvme(host) => host.lives,
            Actor::Iscsi(initiator) => initiator.lives,
            Actor::Nbd(client) => client.lives,
        }
    }

    /// How often it came up as an iSCSI session.
    pub fn sessions(&self) -> u64 {
        match self {
            Actor::Nvme(_) | Actor::Nbd(_) => 0,
            Actor::Iscsi(initiator) => initiator.lives,
        }
    }

    /// Times that it showed another key or secret than it has at first, or posed as another.
    pub fn odd_arrivals(&self) -> u64 {
        match self {
            Actor::Nvme(host) => host.odd_arrivals(),
            Actor::Iscsi(_) | Actor::Nbd(_) => 0,
        }
    }

    /// Its task management functions that ended something.
    pub fn functions(&self) -> u64 {
        match self {
            Actor::Nvme(_) | Actor::Nbd(_) => 0,
            Actor::Iscsi(initiator) => initiator.functions,
        }
    }

    forward! {
        /// Whether it has all its connections.
        fn is_live(&Self) -> bool;
        /// Whether it has ended for good.
        fn is_gone(&Self) -> bool;
        /// Commands without an answer.
        fn in_flight(&Self) -> usize;
        /// It shall end and not come back.
        fn end(&mut Self);
        /// Its machine is gone from one moment to the next; it returns at `at`.
        fn vanish(&mut Self, world: &SharedWorld, at: Nanos, work: &mut HostWork) -> Verdict;
        /// One turn.
        fn turn(&mut Self, world: &SharedWorld, work: &mut HostWork) -> Verdict;
    }
}
