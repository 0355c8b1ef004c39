//! A share of what waits for disks, for each disk.
//!
//! Threads wait for a disk: the driver's own, or the kernel's. One that does not
//! answer keeps as many as it is given. So no disk has more than its share of
//! operations under way, there are threads for the shares of all, and what goes
//! beyond its disk's share waits here and holds up no other. Of what waits for one
//! disk, hosts take turns.

use crate::descriptors::DiskFile;
use crate::sys;
use crate::types::Token;
use faults::Fault;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// A device, or the one below a file, as the kernel numbers them.
pub type Disk = u64;

/// What one disk has. It stays when there is no work, with the room that its queue has
/// grown to but for very much: disks are few, and work comes again.
struct DiskShare<W> {
    under_way: usize,
    waiting: HostQueue<W>,
}

/// Places of canceled work that a queue keeps, if they are less than half.
const CANCELED_MAX: usize = 64;
/// Work that a queue keeps the room of when there is none.
const KEPT_MAX: usize = 16 << 10;
/// Hosts whose lanes are looked through when there are more than twice as many.
const HOSTS_MIN: usize = 64;

/// What waits for one disk: hosts take turns, and the work of each keeps its order.
/// Hosts may have very much of it, so what is canceled is found by its token.
struct HostQueue<W> {
    /// By number, which is the order that it came in.
    waiting: HashMap<u64, WaitingWork<W>>,
    next_number: u64,
    /// Numbers of each host; those of canceled work are still among them.
    lanes: HashMap<u64, VecDeque<u64>>,
    /// Hosts whose lanes are not empty, the next one first.
    turns: VecDeque<u64>,
    canceled: usize,
    forget_at: usize,
    /// The last number of each token.
    last_of: HashMap<Token, u64>,
}

struct WaitingWork<W> {
    work: W,
    token: Token,
    /// The number of its token before this one.
    earlier: Option<u64>,
}

impl<W> HostQueue<W> {
    fn new() -> HostQueue<W> {
        HostQueue {
            waiting: HashMap::new(),
            next_number: 0,
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            canceled: 0,
            forget_at: HOSTS_MIN,
            last_of: HashMap::new(),
        }
    }

    fn push(&mut self, host: u64, token: Token, work: W) {
        let number = self.next_number;
        self.next_number += 1;
        let earlier = self.last_of.insert(token, number);
        let waiting = WaitingWork {
            work,
            token,
            earlier,
        };
        self.waiting.insert(number, waiting);
        if self.lanes.len() >= self.forget_at {
            self.lanes.retain(|_, lane| !lane.is_empty());
            self.forget_at = HOSTS_MIN.max(2 * self.lanes.len());
        }
        let lane = self.lanes.entry(host).or_default();
        if lane.is_empty() {
            self.turns.push_back(host);
        }
        lane.push_back(number);
    }

    #[inline]
    fn pop(&mut self) -> Option<W> {
        while let Some(host) = self.turns.pop_front() {
            let lane = self.lanes.get_mut(&host).expect("a host with a turn");
            while let Some(number) = lane.pop_front() {
                let Some(WaitingWork { work, token, .. }) = self.waiting.remove(&number) else {
                    self.canceled -= 1;
                    continue;
                };
                if !lane.is_empty() {
                    self.turns.push_back(host);
                }
                if self.last_of.get(&token) == Some(&number) {
                    self.last_of.remove(&token);
                }
                return Some(work);
            }
        }
        None
    }

    fn cancel(&mut self, token: Token, canceled: &mut Vec<W>) {
        let mut number = self.last_of.remove(&token);
        while let Some(waiting) = number.and_then(|number| self.waiting.remove(&number)) {
            self.canceled += 1;
            canceled.push(waiting.work);
            number = waiting.earlier;
        }
        if self.canceled > CANCELED_MAX.max(self.waiting.len()) {
            self.close_ranks();
        }
    }

    /// Gives the places of what was canceled up.
    #[cold]
    fn close_ranks(&mut self) {
        self.canceled = 0;
        for lane in self.lanes.values_mut() {
            lane.retain(|number| self.waiting.contains_key(number));
        }
        self.turns.retain(|host| !self.lanes[host].is_empty());
    }
}

/// Work on disks, with so much of each under way at most.
pub struct DiskShares<W> {
    share_max: usize,
    disks: HashMap<Disk, DiskShare<W>>,
    /// Disks with work.
    busy: usize,
    /// Operations of all disks.
    under_way: usize,
}

impl<W> DiskShares<W> {
    /// Nothing is under way.
    pub fn new(share_max: usize) -> DiskShares<W> {
        DiskShares {
            share_max,
            disks: HashMap::new(),
            busy: 0,
            under_way: 0,
        }
    }

    /// Work of a host to be begun now: it is under way until [`DiskShares::ended`].
    /// `None`: it waits until other work on its disk has ended and it is its host's turn,
    /// or its token is canceled.
    #[inline]
    pub fn offer(&mut self, disk: Disk, host: u64, token: Token, work: W) -> Option<W> {
        let share = self.disks.entry(disk).or_insert_with(|| DiskShare {
            under_way: 0,
            waiting: HostQueue::new(),
        });
        if share.under_way < self.share_max || faults::is(Fault::NoSharesOfDisks) {
            self.busy += usize::from(share.under_way == 0);
            share.under_way += 1;
            self.under_way += 1;
            return Some(work);
        }
        share.waiting.push(host, token, work);
        None
    }

    /// Work has ended: what is to be begun in its place.
    #[inline]
    pub fn ended(&mut self, disk: Disk) -> Option<W> {
        let share = self.disks.get_mut(&disk)?;
        let next = share.waiting.pop();
        if next.is_none() && share.under_way > 0 {
            if share.waiting.waiting.capacity() > KEPT_MAX {
                share.waiting = HostQueue::new();
            }
            share.under_way -= 1;
            self.under_way -= 1;
            self.busy -= usize::from(share.under_way == 0);
        }
        next
    }

    /// Takes out what waits of a token.
    pub fn cancel(&mut self, token: Token) -> Vec<W> {
        let mut canceled = Vec::new();
        for share in self.disks.values_mut() {
            share.waiting.cancel(token, &mut canceled);
        }
        canceled
    }

    /// Drops all that waits.
    pub fn clear(&mut self) {
        for share in self.disks.values_mut() {
            share.waiting = HostQueue::new();
        }
    }

    /// Disks with work.
    #[inline]
    pub fn disks(&self) -> usize {
        self.busy
    }

    /// Operations under way on all disks.
    #[inline]
    pub fn under_way(&self) -> usize {
        self.under_way
    }
}

/// Files whose disk is looked up again when there are more than twice as many.
const KNOWN_MIN: usize = 64;

/// Which disk each file lies on, asked once.
#[derive(Default)]
pub(crate) struct DisksOfFiles {
    /// By where the descriptor lies in memory: nothing else does while it is known
    /// here.
    known: HashMap<usize, (Weak<DiskFile>, Disk)>,
    forget_at: usize,
}

impl DisksOfFiles {
    /// The disk of a file.
    #[inline]
    pub(crate) fn of(&mut self, file: &Arc<DiskFile>) -> Disk {
        match self.known.get(&(Arc::as_ptr(file) as usize)) {
            Some((_, disk)) => *disk,
            None => self.look_up(file),
        }
    }

    #[cold]
    fn look_up(&mut self, file: &Arc<DiskFile>) -> Disk {
        if self.known.len() >= self.forget_at {
            self.known.retain(|_, (file, _)| file.strong_count() > 0);
            self.forget_at = KNOWN_MIN.max(2 * self.known.len());
        }
        let disk = sys::disk_of(&**file);
        let known = (Arc::downgrade(file), disk);
        self.known.insert(Arc::as_ptr(file) as usize, known);
        disk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_share_holds_up_its_own_disk_alone() {
        let mut shares = DiskShares::new(2);
        let begun: Vec<_> = (0..5).filter_map(|n| shares.offer(1, 0, n, n)).collect();
        assert_eq!(begun, [0, 1]);
        assert_eq!(shares.offer(2, 0, 9, 9), Some(9));
        assert_eq!((shares.disks(), shares.under_way()), (2, 3));
        assert_eq!(shares.ended(1), Some(2), "the oldest goes on");
        assert_eq!(shares.cancel(4), [4]);
        assert_eq!(shares.ended(2), None);
        assert_eq!(shares.ended(1), Some(3));
        assert_eq!((shares.ended(1), shares.ended(1)), (None, None));
        assert_eq!((shares.disks(), shares.under_way()), (0, 0));
        assert_eq!(shares.ended(1), None, "it was forgotten meanwhile");
    }

    #[test]
    fn work_of_a_token_is_canceled_wherever_it_waits_and_the_rest_keeps_its_order() {
        let mut shares = DiskShares::new(1);
        for n in 0..10_000 {
            // Two of each token, on two disks; the first of a disk begins.
            shares.offer(n % 2, 0, n / 4, n);
        }
        let mut left: Vec<u64> = (2..10_000).collect();
        for token in (0..2500).filter(|token| token % 5 != 0) {
            let mut canceled = shares.cancel(token);
            canceled.sort_unstable();
            let of_token = (4 * token..4 * token + 4).filter(|n| *n > 1);
            assert_eq!(canceled, of_token.collect::<Vec<_>>());
            left.retain(|n| n / 4 != token);
            assert_eq!(shares.cancel(token), [], "none is left");
        }
        let lanes = shares.disks.values().flat_map(|s| s.waiting.lanes.values());
        let places: usize = lanes.map(VecDeque::len).sum();
        assert!(places <= 2 * left.len() + 2 * CANCELED_MAX, "{places}");
        for disk in 0..2 {
            let rest = std::iter::from_fn(|| shares.ended(disk));
            let expected = left.iter().copied().filter(|n| n % 2 == disk);
            assert_eq!(rest.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
        for DiskShare { waiting, .. } in shares.disks.values() {
            assert!(waiting.last_of.is_empty());
            assert_eq!(waiting.canceled, 0, "each place was given up once");
        }
    }

    #[test]
    fn work_that_waits_is_dropped_and_what_is_under_way_still_ends() {
        let mut shares = DiskShares::new(1);
        for disk in 0..3 {
            let begun = (0..9).filter_map(|n| shares.offer(disk, n, n, n)).count();
            assert_eq!(begun, 1);
        }
        shares.clear();
        assert_eq!((shares.disks(), shares.under_way()), (3, 3));
        assert_eq!(shares.cancel(5), []);
        for disk in 0..3 {
            assert_eq!(shares.ended(disk), None);
        }
        assert_eq!((shares.disks(), shares.under_way()), (0, 0));
    }

    #[test]
    fn hosts_take_turns_at_a_disk_and_the_work_of_each_keeps_its_order() {
        let mut shares = DiskShares::new(1);
        assert_eq!(shares.offer(1, 1, 0, "begun"), Some("begun"));
        for (host, token, work) in [
            (1, 1, "a1"),
            (1, 2, "a2"),
            (1, 3, "a3"),
            (2, 4, "b1"),
            (3, 5, "c1"),
            (3, 6, "c2"),
            (2, 7, "b2"),
            (1, 8, "a4"),
        ] {
            assert_eq!(shares.offer(1, host, token, work), None);
        }
        // A host whose next is canceled has its turn with the one after it.
        assert_eq!(
            (shares.cancel(2), shares.cancel(5)),
            (vec!["a2"], vec!["c1"])
        );
        let order = ["a1", "b1", "c2", "a3", "b2"];
        assert_eq!(order.map(|_| shares.ended(1)), order.map(Some));
        assert_eq!(shares.offer(1, 3, 9, "c3"), None);
        let rest = std::iter::from_fn(|| shares.ended(1));
        assert_eq!(rest.collect::<Vec<_>>(), ["a4", "c3"]);
    }

    #[test]
    fn a_host_with_very_much_work_delays_another_by_one_at_a_time() {
        let mut shares = DiskShares::new(1);
        for n in 0..16_000 {
            shares.offer(1, 1, n, n);
        }
        for n in 16_000..16_100 {
            assert_eq!(shares.offer(1, 2, n, n), None);
            let before = std::iter::from_fn(|| shares.ended(1));
            let before = before.take_while(|begun| *begun != n).count();
            assert!(before <= 1, "{before} others began first");
        }
    }

    #[test]
    fn lanes_of_hosts_that_are_gone_are_forgotten() {
        let mut shares = DiskShares::new(1);
        for host in 0..100 * HOSTS_MIN as u64 {
            shares.offer(1, host, host, ());
            shares.ended(1);
        }
        assert!(shares.disks[&1].waiting.lanes.len() <= 2 * HOSTS_MIN);
    }

    #[test]
    fn the_room_of_very_much_work_is_given_back_when_there_is_none() {
        let mut shares = DiskShares::new(1);
        for n in 0..=2 * KEPT_MAX as u64 {
            shares.offer(1, 1, n, ());
        }
        assert!(shares.disks[&1].waiting.waiting.capacity() > KEPT_MAX);
        while shares.under_way() > 0 {
            shares.ended(1);
        }
        assert_eq!(shares.disks[&1].waiting.waiting.capacity(), 0);
    }

    #[test]
    fn files_of_one_file_system_lie_on_one_disk() {
        let mut disks = DisksOfFiles::default();
        let here = || Arc::new(DiskFile::from(tempfile::tempfile().unwrap()));
        let (one, other) = (here(), here());
        assert_eq!(disks.of(&one), disks.of(&other));
        let null = Arc::new(DiskFile::from(std::fs::File::open("/dev/null").unwrap()));
        assert_ne!(disks.of(&one), disks.of(&null));
        for _ in 0..10 * KNOWN_MIN {
            disks.of(&here());
        }
        assert!(
            disks.known.len() <= 2 * KNOWN_MIN,
            "what is closed is forgotten"
        );
        assert_eq!(disks.of(&one), disks.of(&other));
    }
}
