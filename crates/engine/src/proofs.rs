//! Steps by which peers prove what they are, in handshakes of TLS, in authentication and in
//! security contexts, that wait for the thread that makes them. Addresses take turns: one with many keeps another waiting
//! for one step of its own. There are as many as connections at most, each of which has one or
//! a few at a time; one that closes takes its steps out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use machine::locked;

use crate::blocking_worker::{About, BlockingWork};
use crate::hosts::network;

/// What is proved. Steps of one kind keep none of another waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofKind {
    /// In handshakes of TLS and in authentication: a step only computes.
    Computed,
    /// By security contexts, and which users their names are: a step may ask files and the
    /// network.
    Asked,
    /// What the name service says of addresses and hosts: whoever has an address may keep a step
    /// waiting for an answer.
    Named,
}

impl ProofKind {
    pub(crate) fn about(self) -> About {
        match self {
            ProofKind::Computed => About::Proofs,
            ProofKind::Asked => About::SecurityContexts,
            ProofKind::Named => About::Names,
        }
    }
}

/// Those that wait.
#[derive(Default)]
pub(crate) struct ProofQueue {
    table: Mutex<ProofTable>,
}

#[derive(Default)]
struct ProofTable {
    /// By address, or subnet of IPv6, the oldest first.
    waiting: BTreeMap<IpAddr, BTreeMap<u64, BlockingWork>>,
    /// The address that had the last turn.
    last: Option<IpAddr>,
    /// Steps that have come.
    came: u64,
    /// Steps are made, or about to be.
    is_served: bool,
}

/// The place of a step that waits, until it is dropped.
pub struct ProofPlace {
    queue: Arc<ProofQueue>,
    address: IpAddr,
    number: u64,
    is_left: bool,
}

impl ProofPlace {
    /// The step is made whatever becomes of the peer: it is about more than that.
    pub fn leave(mut self) {
        self.is_left = true;
    }
}

impl ProofQueue {
    /// One more step of a peer at `address`; also whether serving has to begin.
    pub fn add(self: &Arc<Self>, address: IpAddr, step: BlockingWork) -> (ProofPlace, bool) {
        let mut table = locked(&self.table);
        table.came += 1;
        let (address, number) = (network(address), table.came);
        let of_address = table.waiting.entry(address).or_default();
        of_address.insert(number, step);
        let begins = !std::mem::replace(&mut table.is_served, true);
        let place = ProofPlace {
            queue: self.clone(),
            address,
            number,
            is_left: false,
        };
        (place, begins)
    }

    /// The step that is next.
    pub fn take(&self) -> Option<BlockingWork> {
        let mut table = locked(&self.table);
        let behind = table.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut others = table.waiting.range((behind, Bound::Unbounded));
        let first = || table.waiting.first_key_value();
        let address = *others.next().or_else(first)?.0;
        table.last = Some(address);
        let of_address = table.waiting.get_mut(&address)?;
        let step = of_address.pop_first();
        if of_address.is_empty() {
            table.waiting.remove(&address);
        }
        step.map(|(_, step)| step)
    }

    /// Whether more wait; if not, the next that comes has to be begun with.
    pub fn goes_on(&self) -> bool {
        let mut table = locked(&self.table);
        table.is_served = !table.waiting.is_empty();
        table.is_served
    }
}

impl Drop for ProofPlace {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let mut table = locked(&self.queue.table);
        let Some(of_address) = table.waiting.get_mut(&self.address) else {
            return;
        };
        let step = of_address.remove(&self.number);
        if of_address.is_empty() {
            table.waiting.remove(&self.address);
        }
        drop(table);
        drop(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as come in a storm.
    const STORM: usize = 10_000;

    /// A queue, and a way to add a step that notes the last byte of its address.
    struct Noted {
        queue: Arc<ProofQueue>,
        made: Arc<Mutex<Vec<u8>>>,
    }

    impl Noted {
        fn new() -> Noted {
            Noted {
                queue: Arc::default(),
                made: Arc::default(),
            }
        }

        fn add(&self, host: u8) -> ProofPlace {
            let made = self.made.clone();
            let step = move || made.lock().expect("whole").push(host);
            let address = IpAddr::from([10, 0, 0, host]);
            self.queue.add(address, Box::new(step)).0
        }

        /// Makes so many steps; whose they were.
        fn make(&self, steps: usize) -> Vec<u8> {
            for step in std::iter::from_fn(|| self.queue.take()).take(steps) {
                step();
            }
            std::mem::take(&mut *self.made.lock().expect("whole"))
        }
    }

    #[test]
    fn host_waits_for_one_step_of_a_storm_from_another_address() {
        let noted = Noted::new();
        let mut storm: Vec<_> = (0..STORM).map(|_| noted.add(1)).collect();
        assert_eq!(noted.make(10), [1; 10]);
        for _ in 0..100 {
            let _place = noted.add(2);
            storm.push(noted.add(1));
            let made = noted.make(2);
            assert!(made.contains(&2), "{made:?}");
        }
        let _three = [2, 3, 4].map(|host| noted.add(host));
        let mut made = noted.make(4);
        made.sort_unstable();
        assert_eq!(made, [1, 2, 3, 4]);
    }

    #[test]
    fn steps_of_one_address_are_made_in_their_order() {
        let queue: Arc<ProofQueue> = Arc::default();
        let made: Arc<Mutex<Vec<u32>>> = Arc::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let add = |n| {
            let made = made.clone();
            let step = move || made.lock().expect("whole").push(n);
            queue.add(address, Box::new(step)).0
        };
        let _places: Vec<_> = (0..100).map(add).collect();
        std::iter::from_fn(|| queue.take()).for_each(|step| step());
        assert_eq!(*made.lock().expect("whole"), Vec::from_iter(0..100));
    }

    #[test]
    fn connections_that_are_gone_leave_nothing_behind() {
        let noted = Noted::new();
        let storm: Vec<_> = (0..STORM).map(|_| noted.add(1)).collect();
        let kept = noted.add(1);
        drop(storm);
        assert_eq!(noted.make(STORM), [1]);
        drop(kept);
        let table = noted.queue.table.lock().expect("whole");
        assert!(table.waiting.is_empty());
    }

    #[test]
    fn serving_begins_once_until_nothing_waits() {
        let queue: Arc<ProofQueue> = Arc::default();
        let add = || queue.add(IpAddr::from([10, 0, 0, 1]), Box::new(|| ()));
        let (one, begins) = add();
        assert!(begins);
        let (two, begins) = add();
        assert!(!begins);
        drop((one, two));
        assert!(!queue.goes_on());
        assert!(add().1);
    }
}
