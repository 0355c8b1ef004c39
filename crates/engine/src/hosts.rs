//! What hosts have of the target, so that none takes it from the others: their
//! shares of memory, and how many connections an address has.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use machine::{Nanos, locked};
use mem::{Budget, Share};
use store::meter::{IoMeters, PROTOCOLS_MAX};

use crate::sample::StageTimes;

/// How long a shortage of memory is over before it is forgotten: reactors look
/// every half second.
pub const SHORTAGE: Nanos = 1_500_000_000;

/// A host that holds less than this part of `memory_max` and waits for memory
/// waits for others.
const OWN_PART: u64 = 16;

/// What a host is told from others by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostName {
    /// A peer that has not identified itself, or never does.
    Address(IpAddr),
    /// What it calls itself, and where such names are given.
    Said(&'static str, String),
}

impl HostName {
    /// The name of a peer that has not identified itself.
    pub fn of_peer(peer: SocketAddr) -> HostName {
        HostName::Address(network(peer.ip()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostName::Address(address) => address.fmt(f),
            HostName::Said(_, name) => f.write_str(name),
        }
    }
}

/// What of an address one machine has: all of IPv4's, of IPv6's the subnet prefix,
/// below which it takes as many addresses as it likes (RFC 4291, section 2.5.1).
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// One host.
#[derive(Debug)]
pub struct ConnectedHost {
    /// What it is told from others by.
    pub name: HostName,
    /// The how-manieth it is of those that came.
    number: u64,
    /// Its part of all memory.
    pub share: Arc<Share>,
    /// What it did on volumes, by protocol.
    pub meters: IoMeters,
    /// Times of the stages of some of its commands, by protocol.
    pub stage_times: [StageTimes; PROTOCOLS_MAX],
    memory_max: u64,
    /// When a connection of it last waited for memory that it holds itself; 0
    /// for never.
    short_at: AtomicU64,
}

impl ConnectedHost {
    /// A connection of it has waited for memory for some time; whether others are
    /// in its way.
    pub fn note_shortage(&self, now: Nanos) -> bool {
        let is_others = self.share.held_bytes() < self.memory_max / OWN_PART;
        if !is_others {
            self.short_at.store(now.max(1), Ordering::Relaxed);
        }
        is_others
    }

    /// Whether one has a moment ago, for what it holds itself.
    pub fn is_short(&self, now: Nanos) -> bool {
        let at = self.short_at.load(Ordering::Relaxed);
        at != 0 && now.saturating_sub(at) < SHORTAGE
    }
}

/// Those that have connections.
#[derive(Default)]
struct HostTable {
    hosts: BTreeMap<HostName, Weak<ConnectedHost>>,
    /// Hosts that have come.
    came: u64,
    /// Names of hosts without connections are forgotten at this size.
    sweep_at: usize,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct OfAddress {
    count: u32,
    /// Where they are, if they are together.
    reactor: Option<usize>,
}

/// All hosts, off the way of an I/O.
#[derive(Default)]
pub struct Hosts {
    table: Mutex<HostTable>,
    connections: Mutex<BTreeMap<IpAddr, OfAddress>>,
}

/// The place of a connection among those of its address, until it is dropped.
#[derive(Debug)]
pub struct HostPlace {
    hosts: Arc<Hosts>,
    address: IpAddr,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hosts")
    }
}

impl Hosts {
    fn connections(&self) -> MutexGuard<'_, BTreeMap<IpAddr, OfAddress>> {
        locked(&self.connections)
    }

    /// The host of a name, which has its share of `budget`.
    pub fn host(&self, name: HostName, budget: &Arc<Budget>) -> Arc<ConnectedHost> {
        let mut table = locked(&self.table);
        if let Some(host) = table.hosts.get(&name).and_then(Weak::upgrade) {
            return host;
        }
        if table.hosts.len() >= table.sweep_at {
            table.hosts.retain(|_, host| host.strong_count() > 0);
            table.sweep_at = 2 * table.hosts.len() + 64;
        }
        table.came += 1;
        let host = Arc::new(ConnectedHost {
            name: name.clone(),
            number: table.came,
            share: Share::new(budget.clone()),
            meters: Default::default(),
            stage_times: Default::default(),
            memory_max: budget.max(),
            short_at: AtomicU64::new(0),
        });
        table.hosts.insert(name, Arc::downgrade(&host));
        host
    }

    /// Hosts that have connections, in the order in which they came.
    pub fn list(&self) -> Vec<Arc<ConnectedHost>> {
        let table = locked(&self.table);
        let mut list: Vec<_> = table.hosts.values().filter_map(Weak::upgrade).collect();
        drop(table);
        list.sort_by_key(|host| host.number);
        list
    }

    /// A place for one more connection from `address`; `None` where `max` are
    /// taken.
    pub fn place(self: &Arc<Self>, address: IpAddr, max: u32) -> Option<HostPlace> {
        let address = network(address);
        let mut connections = self.connections();
        let count = connections.get(&address).map_or(0, |of| of.count);
        (count < max).then(|| {
            connections.entry(address).or_default().count += 1;
            HostPlace {
                hosts: self.clone(),
                address,
            }
        })
    }
}

impl HostPlace {
    /// The reactor that has the connections of this address: which `choose` says for the first.
    pub fn reactor(&self, choose: impl FnOnce() -> usize) -> usize {
        let mut connections = self.hosts.connections();
        let of = connections.entry(self.address).or_default();
        *of.reactor.get_or_insert_with(choose)
    }
}

impl Drop for HostPlace {
    fn drop(&mut self) {
        let mut connections = self.hosts.connections();
        if let Some(of) = connections.get_mut(&self.address) {
            of.count -= 1;
            if of.count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_with_all_its_places_has_one_when_one_is_dropped() {
        let hosts = Arc::new(Hosts::default());
        let address: IpAddr = [10, 0, 0, 1].into();
        let first = hosts.place(address, 2).expect("free");
        let _second = hosts.place(address, 2).expect("free");
        assert!(hosts.place(address, 2).is_none());
        assert!(hosts.place([10, 0, 0, 2].into(), 2).is_some());
        drop(first);
        assert!(hosts.place(address, 2).is_some());
    }

    #[test]
    fn addresses_of_one_ipv6_subnet_have_places_and_memory_together() {
        let hosts = Arc::new(Hosts::default());
        let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let first = hosts.place(address("2001:db8:0:1::1"), 1);
        assert!(first.is_some());
        let beside = address("2001:db8:0:1:ffff::2");
        assert!(hosts.place(beside, 1).is_none());
        assert!(hosts.place(address("2001:db8:0:2::1"), 1).is_some());
        let name = |text: &str| HostName::of_peer(SocketAddr::new(address(text), 9));
        assert_eq!(
            name("2001:db8:0:1::1"),
            HostName::of_peer((beside, 7).into())
        );
        assert_ne!(name("2001:db8:0:1::1"), name("2001:db8:0:2::1"));
        assert_ne!(name("10.0.0.1"), name("10.0.0.2"));
        assert_eq!(name("::ffff:10.0.0.1"), name("10.0.0.1"), "mapped");
    }

    #[test]
    fn hosts_without_connections_are_forgotten() {
        let (hosts, budget) = (Hosts::default(), Budget::new(1 << 30));
        let name = |n: u32| HostName::Said("test", n.to_string());
        let kept: Vec<_> = (0..100).map(|n| hosts.host(name(n), &budget)).collect();
        for n in 100..10_000 {
            hosts.host(name(n), &budget);
        }
        assert!(hosts.table.lock().expect("whole").hosts.len() < 300);
        for (host, n) in kept.iter().zip(0..) {
            assert!(Arc::ptr_eq(host, &hosts.host(name(n), &budget)));
        }
    }

    #[test]
    fn host_that_holds_little_waits_for_others() {
        let (hosts, budget) = (Hosts::default(), Budget::new(64 << 20));
        let pool = mem::Pool::new(budget.clone()).expect("address space");
        let host = hosts.host(HostName::Said("test", "a".into()), &budget);
        let own = pool.of(host.share.clone());
        assert!(host.note_shortage(5) && !host.is_short(5));
        let three = [(); 3].map(|()| own.get(1 << 20).expect("memory"));
        assert!(host.note_shortage(5), "less than a sixteenth");
        let fourth = own.get(1 << 20);
        assert!(fourth.is_some() && !host.note_shortage(1), "a sixteenth");
        drop((three, fourth));
        let held: Vec<_> = std::iter::from_fn(|| own.get(1 << 20)).collect();
        assert!(held.len() > 8);
        assert!(!host.note_shortage(5) && host.is_short(5));
        assert!(!host.is_short(5 + SHORTAGE));
    }
}
