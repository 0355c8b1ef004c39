//! How many controllers of a subsystem a host has. Those whose host has to authenticate and has
//! not yet are apart: so many that only say its NQN take no place of those that have proved it, and each
//! address its share of the places in which they wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::ControllerId;

/// The most controllers of a host that wait for its authentication.
const UNPROVEN_MAX: usize = 16;

/// What a host has of a subsystem.
#[derive(Debug, Default)]
pub(super) struct HostControllers {
    /// How many controllers whose host has authenticated, or need not.
    count: u16,
    /// The Host Identifier of them that came last.
    hostid: [u8; 16],
    /// Those whose host has to authenticate and has not, with the part of its address that one
    /// machine has; the oldest first.
    unproven: VecDeque<(ControllerId, IpAddr)>,
}

impl HostControllers {
    pub fn count(&self) -> u16 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.unproven.is_empty()
    }

    /// The Host Identifier that came last, if it is another.
    pub fn other_hostid(&self, hostid: [u8; 16]) -> Option<[u8; 16]> {
        (self.count > 0 && self.hostid != hostid).then_some(self.hostid)
    }

    /// One more, whose host has authenticated or need not.
    pub fn add(&mut self, hostid: [u8; 16]) {
        self.count += 1;
        self.hostid = hostid;
    }

    /// One more, whose host has to authenticate. Where there are too many, the one whose place
    /// it takes: the oldest of the address that has most.
    pub fn add_unproven(&mut self, id: ControllerId, network: IpAddr) -> Option<ControllerId> {
        self.unproven.push_back((id, network));
        let id = one_too_many(self.unproven.iter(), UNPROVEN_MAX)?;
        self.remove_unproven(id);
        Some(id)
    }

    /// Those whose host has to authenticate and has not.
    pub fn unproven(&self) -> impl Iterator<Item = &(ControllerId, IpAddr)> + Clone {
        self.unproven.iter()
    }

    /// The host of one has authenticated.
    pub fn prove(&mut self, id: ControllerId, hostid: [u8; 16]) {
        self.remove_unproven(id);
        self.add(hostid);
    }

    /// One less, whose host has authenticated or need not.
    pub fn remove(&mut self) {
        self.count -= 1;
    }

    /// One less, whose host has not authenticated, if it has its place still.
    pub fn remove_unproven(&mut self, id: ControllerId) {
        self.unproven.retain(|(other, _)| *other != id);
    }
}

/// Where there are more than `max`, the one that gives way: the oldest of the address that has
/// most.
pub(super) fn one_too_many<'a>(
    all: impl Iterator<Item = &'a (ControllerId, IpAddr)> + Clone,
    max: usize,
) -> Option<ControllerId> {
    let mut of_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (_, address) in all.clone() {
        *of_address.entry(*address).or_default() += 1;
    }
    if of_address.values().sum::<usize>() <= max {
        return None;
    }
    // Numbers of controllers grow.
    let first = all.min_by_key(|(id, address)| (Reverse(of_address[address]), *id));
    first.map(|(id, _)| *id)
}
