//! Controllers of a subsystem whose host has to authenticate and has not. They take no place of
//! those whose host has, and places are shared out by address: whatever comes from others in the
//! name of a host ends no controller of it before all places of the subsystem are taken. Then
//! those go first that come from elsewhere than their host has authenticated from last. One that
//! has given way has its Controller ID until its connections are closed, and counts until then.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use machine::work;

use wire::nvme::Status;

use super::{ControllerId, Refusal, Via};

/// The most of a host from one address.
const OF_HOST_AND_ADDRESS_MAX: usize = 16;

/// Where a controller comes from. Those of one origin share their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// From the address that its host has authenticated from last.
    Known(IpAddr),
    /// From any other: what of the address one machine has.
    Other(IpAddr),
}

/// Those of one subsystem.
#[derive(Debug, Default)]
pub(super) struct Unproven {
    places: BTreeMap<ControllerId, (Origin, String)>,
    /// The same by origin and NQN of the host. Numbers of controllers grow, so the oldest of
    /// each is its first.
    by_origin: BTreeMap<(Origin, String), BTreeSet<ControllerId>>,
    /// Those that have given way, and whose connections are being closed.
    ending: BTreeSet<ControllerId>,
    /// Where each host has authenticated from last.
    proven_from: BTreeMap<String, IpAddr>,
}

impl Unproven {
    /// One more. There are `max` at most: half of them wait, and half are ending, at least one of
    /// each. Where too many wait, the one that gives way to it.
    ///
    /// # Errors
    /// One would have to give way, and as many as may are ending.
    pub fn add(
        &mut self,
        id: ControllerId,
        hostnqn: &str,
        via: &Via,
        max: usize,
    ) -> Result<Option<ControllerId>, Refusal> {
        let address = via.peer.ip().to_canonical();
        let origin = match self.proven_from.get(hostnqn) == Some(&address) {
            true => Origin::Known(address),
            false => Origin::Other(via.network),
        };
        let place = (origin, hostnqn.to_owned());
        let beside = self.by_origin.get(&place);
        let beside = beside.filter(|beside| beside.len() >= OF_HOST_AND_ADDRESS_MAX);
        let is_full = self.places.len() >= max.div_ceil(2);
        if (is_full || beside.is_some()) && self.ending.len() >= (max / 2).max(1) {
            let reason = "too many controllers wait for their hosts to authenticate, or end \
                          without: they have half of `cntlids` at most";
            return Err(Refusal::new(Status::CONNECT_BUSY, reason));
        }
        let oldest = beside.and_then(BTreeSet::first).copied();
        self.places.insert(id, place.clone());
        self.by_origin.entry(place).or_default().insert(id);
        let first = oldest.or_else(|| is_full.then(|| self.first_of_most()).flatten());
        if let Some(first) = first {
            self.remove(first);
            self.ending.insert(first);
        }
        Ok(first)
    }

    /// The oldest of the origin that has most; of those that are known only where there is no
    /// other.
    fn first_of_most(&self) -> Option<ControllerId> {
        let mut of_origin: BTreeMap<Origin, (usize, ControllerId)> = BTreeMap::new();
        for ((origin, _), ids) in &self.by_origin {
            work::spend(1);
            let first = *ids.first()?;
            let (count, oldest) = of_origin.entry(*origin).or_insert((0, first));
            *count += ids.len();
            *oldest = first.min(*oldest);
        }
        let most = of_origin
            .into_iter()
            .max_by_key(|(origin, (count, first))| {
                (matches!(origin, Origin::Other(_)), *count, Reverse(*first))
            });
        most.map(|(_, (_, first))| first)
    }

    /// One less: its host has authenticated, or its connections are closed.
    pub fn remove(&mut self, id: ControllerId) {
        self.ending.remove(&id);
        let Some(place) = self.places.remove(&id) else {
            return;
        };
        if let Some(beside) = self.by_origin.get_mut(&place) {
            beside.remove(&id);
            if beside.is_empty() {
                self.by_origin.remove(&place);
            }
        }
    }

    /// A host has authenticated from here.
    pub fn note_proven(&mut self, hostnqn: &str, address: IpAddr) {
        let address = address.to_canonical();
        self.proven_from.insert(hostnqn.to_owned(), address);
    }

    /// Forgets where hosts have authenticated from that have to no more.
    pub fn retain_hosts(&mut self, has_to: impl Fn(&str) -> bool) {
        self.proven_from.retain(|hostnqn, _| has_to(hostnqn));
    }
}
