//! Handshakes of TLS that are under way, of which there are so many at most. Where there is one too
//! many the address that has the most of them loses one: a storm from one address ends those of no
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use machine::locked;

use crate::hosts::network;
use crate::token::ConnectionRef;

/// Those that are under way.
#[derive(Default)]
pub(crate) struct Handshakes {
    table: Mutex<HandshakeTable>,
}

#[derive(Default)]
struct HandshakeTable {
    /// By address, or subnet of IPv6, the oldest first.
    by_address: BTreeMap<IpAddr, BTreeMap<u64, UnderWay>>,
    /// How many each address has.
    counts: BTreeSet<(usize, IpAddr)>,
    /// Handshakes that have begun.
    begun: u64,
    /// Those of all addresses.
    count: u32,
}

struct UnderWay {
    connection: ConnectionRef,
    gives_way: Arc<AtomicBool>,
}

/// The place of a handshake among those that are under way, until it is dropped.
pub(crate) struct HandshakePlace {
    handshakes: Arc<Handshakes>,
    address: IpAddr,
    number: u64,
    gives_way: Arc<AtomicBool>,
}

impl HandshakePlace {
    /// Whether its handshake was one too many.
    pub fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed)
    }
}

impl HandshakeTable {
    fn count_of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).map_or(0, BTreeMap::len)
    }

    /// Changes the handshakes of an address.
    fn edit<T>(
        &mut self,
        address: IpAddr,
        edit: impl FnOnce(&mut BTreeMap<u64, UnderWay>) -> T,
    ) -> T {
        let before = self.count_of(address);
        let of_address = self.by_address.entry(address).or_default();
        let edited = edit(of_address);
        let after = of_address.len();
        if after == 0 {
            self.by_address.remove(&address);
        }
        self.counts.remove(&(before, address));
        if after > 0 {
            self.counts.insert((after, address));
        }
        self.count = self.count + after as u32 - before as u32;
        edited
    }

    /// The newest of the address that has the most, which is `newcomer` if none has more.
    fn one_too_many(&mut self, newcomer: IpAddr) -> Option<UnderWay> {
        let own = self.count_of(newcomer);
        let (most, address) = *self.counts.last()?;
        let address = if most > own { address } else { newcomer };
        let (_, under_way) = self.edit(address, BTreeMap::pop_last)?;
        Some(under_way)
    }
}

impl Handshakes {
    /// One more has begun, on a connection of a peer at `address`, of `max` at most; also the
    /// connection whose handshake gives way, if that is one too many.
    pub fn begin(
        self: &Arc<Self>,
        address: IpAddr,
        connection: ConnectionRef,
        max: u32,
    ) -> (HandshakePlace, Option<ConnectionRef>) {
        let mut table = locked(&self.table);
        table.begun += 1;
        let (address, number) = (network(address), table.begun);
        let gives_way = Arc::new(AtomicBool::new(false));
        let under_way = UnderWay {
            connection,
            gives_way: gives_way.clone(),
        };
        table.edit(address, |all| all.insert(number, under_way));
        let loser = match table.count > max {
            true => table.one_too_many(address),
            false => None,
        };
        let loser = loser.map(|loser| {
            loser.gives_way.store(true, Ordering::Relaxed);
            loser.connection
        });
        let place = HandshakePlace {
            handshakes: self.clone(),
            address,
            number,
            gives_way,
        };
        (place, loser)
    }

    /// How many are under way.
    pub fn count(&self) -> u32 {
        locked(&self.table).count
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        let mut table = locked(&self.handshakes.table);
        table.edit(self.address, |all| all.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of 8 at most, and a way to begin a handshake at an address.
    struct Full(Arc<Handshakes>);

    impl Full {
        fn new() -> Full {
            Full(Arc::default())
        }

        fn begin(&self, address: &str) -> (HandshakePlace, bool) {
            let address = address.parse().expect("an address");
            let (place, loser) = self.0.begin(address, ConnectionRef::unpack(0), 8);
            (place, loser.is_some())
        }
    }

    fn lost(places: &[(HandshakePlace, bool)]) -> usize {
        places.iter().filter(|(place, _)| place.gives_way()).count()
    }

    #[test]
    fn storm_from_one_address_ends_its_own_handshakes_alone() {
        let full = Full::new();
        let storm: Vec<_> = (0..1000).map(|_| full.begin("10.0.0.1")).collect();
        assert_eq!((lost(&storm), full.0.count()), (992, 8));
        let others: Vec<_> = (2..9)
            .map(|host| full.begin(&format!("10.0.0.{host}")))
            .collect();
        assert_eq!((lost(&storm), lost(&others), full.0.count()), (999, 0, 8));
        let more: Vec<_> = (0..100).map(|_| full.begin("10.0.0.1")).collect();
        assert_eq!((lost(&more), lost(&others), lost(&storm)), (100, 0, 999));
        drop((storm, others, more));
        assert_eq!(full.0.count(), 0);
        let table = full.0.table.lock().expect("whole");
        assert!(table.by_address.is_empty() && table.counts.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_subnet_have_their_handshakes_together() {
        let full = Full::new();
        let storm: Vec<_> = (0..100)
            .map(|host| full.begin(&format!("2001:db8:0:1::{host:x}")))
            .collect();
        let other = full.begin("2001:db8:0:2::1");
        assert!(other.1 && !other.0.gives_way());
        assert_eq!(lost(&storm), 93);
    }

    #[test]
    fn newcomer_gives_way_where_no_address_has_more() {
        let full = Full::new();
        let all: Vec<_> = (1..9)
            .map(|host| full.begin(&format!("10.0.0.{host}")))
            .collect();
        for newcomer in ["10.0.0.0", "10.0.0.9"] {
            assert!(full.begin(newcomer).0.gives_way());
            assert_eq!(lost(&all), 0, "{newcomer}");
        }
        drop(all);
        assert!(!full.begin("10.0.0.9").0.gives_way());
    }
}
