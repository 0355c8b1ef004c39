//! What is next: hosts in turn, the connections of each in turn, and the
//! requests of one connection in its order.
//!
//! No host has more than a part of what is there: neither of the places to wait
//! in nor of the threads. So one that asks for much, or for what takes long,
//! leaves some of both to those after it.

use std::collections::{HashMap, VecDeque};

use crate::fs::Asker;

/// Things of one connection, in their order.
type Lane<T> = VecDeque<T>;

/// Some of those that have something, in turn.
#[derive(Debug)]
struct Ring<V> {
    by_key: HashMap<u64, V>,
    order: VecDeque<u64>,
}

impl<V> Default for Ring<V> {
    fn default() -> Ring<V> {
        Ring {
            by_key: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

#[derive(Debug)]
struct HostTurns<T> {
    lanes: Ring<Lane<T>>,
    waiting: usize,
    /// What was taken and is not over.
    taken: usize,
}

/// What waits, and how much of each host is under way.
#[derive(Debug)]
pub(super) struct Turns<T> {
    hosts: Ring<HostTurns<T>>,
    waiting: usize,
    taken: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns {
            hosts: Ring::default(),
            waiting: 0,
            taken: 0,
        }
    }
}

impl<T> Turns<T> {
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Whether one more of a host may wait, of `most` in all: no host takes more
    /// than half of what the others leave.
    pub(super) fn has_room(&self, from: Asker, most: usize) -> bool {
        let own = self.hosts.by_key.get(&from.host);
        let own = own.map_or(0, |host| host.waiting);
        let left = most.saturating_sub(self.waiting);
        left > 0 && own < left.div_ceil(2)
    }

    pub(super) fn push(&mut self, from: Asker, thing: T) {
        let Ring { by_key, order } = &mut self.hosts;
        let host = by_key.entry(from.host).or_insert_with(|| HostTurns {
            lanes: Ring::default(),
            waiting: 0,
            taken: 0,
        });
        if host.waiting == 0 {
            order.push_back(from.host);
        }
        let lane = host.lanes.by_key.entry(from.connection).or_default();
        if lane.is_empty() {
            host.lanes.order.push_back(from.connection);
        }
        lane.push_back(thing);
        host.waiting += 1;
        self.waiting += 1;
    }

    /// The place in the order of whose turn it is, if `most` may be under way: a
    /// host must leave as many of them to others as it has.
    fn next_place(&self, most: usize) -> Option<usize> {
        let left = most.checked_sub(self.taken).filter(|&left| left > 0)?;
        let may = |host: &u64| {
            let taken = self.hosts.by_key[host].taken;
            taken == 0 || taken < left
        };
        self.hosts.order.iter().position(may)
    }

    /// Whether [`Turns::take`] would find something.
    pub(super) fn has_next(&self, most: usize) -> bool {
        self.next_place(most).is_some()
    }

    /// What is next, where no more than `most` may be under way at a time; then
    /// say [`Turns::ended`] of its host.
    pub(super) fn take(&mut self, most: usize) -> Option<(u64, T)> {
        let at = self.next_place(most)?;
        let key = self.hosts.order.remove(at).expect("it is there");
        let host = self.hosts.by_key.get_mut(&key).expect("it has something");
        let connection = host.lanes.order.pop_front().expect("it has something");
        let lane = host.lanes.by_key.get_mut(&connection);
        let lane = lane.expect("it has something");
        let thing = lane.pop_front().expect("it has something");
        match lane.is_empty() {
            true => drop(host.lanes.by_key.remove(&connection)),
            false => host.lanes.order.push_back(connection),
        }
        host.waiting -= 1;
        host.taken += 1;
        if host.waiting > 0 {
            self.hosts.order.push_back(key);
        }
        self.waiting -= 1;
        self.taken += 1;
        Some((key, thing))
    }

    /// Something of a host is over.
    pub(super) fn ended(&mut self, key: u64) {
        let host = self.hosts.by_key.get_mut(&key).expect("it was taken");
        host.taken -= 1;
        self.taken -= 1;
        if host.taken == 0 && host.waiting == 0 {
            self.hosts.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(host: u64, connection: u64) -> Asker {
        Asker { host, connection }
    }

    /// All that is there, in its order, one at a time.
    fn all(turns: &mut Turns<&'static str>) -> Vec<&'static str> {
        let next = || {
            let (host, thing) = turns.take(1)?;
            turns.ended(host);
            Some(thing)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn hosts_take_turns_and_so_do_their_connections() {
        let mut turns = Turns::default();
        for thing in ["a1", "a2", "a3", "a4"] {
            turns.push(from(1, 1), thing);
        }
        turns.push(from(1, 2), "b1");
        turns.push(from(1, 2), "b2");
        turns.push(from(2, 1), "c1");
        turns.push(from(2, 1), "c2");
        assert_eq!(turns.len(), 8);
        let expected = ["a1", "c1", "b1", "c2", "a2", "b2", "a3", "a4"];
        assert_eq!(all(&mut turns), expected);
        assert_eq!((turns.len(), turns.hosts.by_key.len()), (0, 0));
        assert!(turns.hosts.order.is_empty());
    }

    #[test]
    fn a_host_leaves_as_many_threads_as_it_has() {
        let mut turns = Turns::default();
        let taken = |turns: &mut Turns<()>, host| {
            (0..20).for_each(|_| turns.push(from(host, 1), ()));
            std::iter::from_fn(|| turns.take(16)).count()
        };
        assert_eq!(taken(&mut turns, 1), 8);
        assert_eq!(taken(&mut turns, 2), 4);
        assert_eq!(taken(&mut turns, 3), 2);
        assert!(!turns.has_next(16));
        assert_eq!(taken(&mut turns, 4), 1);
        assert_eq!(taken(&mut turns, 5), 1);
        assert_eq!(taken(&mut turns, 6), 0);
        // The last host gets its turn when there is a thread again.
        turns.ended(1);
        assert_eq!(turns.take(16).map(|(host, ())| host), Some(6));
        assert!(!turns.has_next(16));
    }

    #[test]
    fn a_host_leaves_places_to_others() {
        let mut turns = Turns::default();
        let waiting = |turns: &mut Turns<()>, host| {
            let mut count = 0;
            while turns.has_room(from(host, count), 100) {
                turns.push(from(host, count), ());
                count += 1;
            }
            count
        };
        assert_eq!(waiting(&mut turns, 1), 34);
        assert_eq!(waiting(&mut turns, 2), 22);
        assert!(waiting(&mut turns, 3) > 10);
        for host in 4..50 {
            waiting(&mut turns, host);
        }
        assert_eq!(turns.len(), 100);
    }
}
