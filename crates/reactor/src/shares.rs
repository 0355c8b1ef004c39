//! A share of what waits for disks, for each disk.
//!
//! Threads wait for a disk: the driver's own, or the kernel's. One that does not
//! answer keeps as many as it is given. So no disk has more than its share of
//! operations under way, there are threads for the shares of all, and what goes
//! beyond its disk's share waits here and holds up no other.

use crate::sys;
use crate::types::Token;
use faults::Fault;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

/// A device, or the one below a file, as the kernel numbers them.
pub type Disk = u64;

/// What one disk has. It stays when there is no work, with the room that its queue
/// has grown to: disks are few, and work comes again.
struct Share<W> {
    under_way: usize,
    waiting: Queue<W>,
}

/// Canceled work that a queue keeps the places of, if it is less than half.
const CANCELED_MAX: usize = 64;

/// What waits for one disk, in its order. Hosts may have very much of it, so what is
/// canceled is found by its token.
struct Queue<W> {
    /// Empty where work was canceled.
    places: VecDeque<Option<Waiting<W>>>,
    /// Number of the first place.
    first: u64,
    canceled: usize,
    /// Number of the last place of each token.
    last_of: HashMap<Token, u64>,
}

struct Waiting<W> {
    work: W,
    token: Token,
    /// The place of its token before this one.
    earlier: Option<u64>,
}

impl<W> Queue<W> {
    fn new() -> Queue<W> {
        Queue {
            places: VecDeque::new(),
            first: 0,
            canceled: 0,
            last_of: HashMap::new(),
        }
    }

    fn push(&mut self, token: Token, work: W) {
        let number = self.first + self.places.len() as u64;
        let earlier = self.last_of.insert(token, number);
        self.places.push_back(Some(Waiting {
            work,
            token,
            earlier,
        }));
    }

    #[inline]
    fn pop(&mut self) -> Option<W> {
        loop {
            let place = self.places.pop_front()?;
            let number = self.first;
            self.first += 1;
            let Some(Waiting { work, token, .. }) = place else {
                self.canceled -= 1;
                continue;
            };
            if self.last_of.get(&token) == Some(&number) {
                self.last_of.remove(&token);
            }
            return Some(work);
        }
    }

    fn cancel(&mut self, token: Token, canceled: &mut Vec<W>) {
        let mut number = self.last_of.remove(&token);
        while let Some(at) = number.and_then(|number| number.checked_sub(self.first))
            && let Some(waiting) = self.places[at as usize].take()
        {
            self.canceled += 1;
            canceled.push(waiting.work);
            number = waiting.earlier;
        }
        if self.canceled > CANCELED_MAX.max(self.places.len() / 2) {
            self.close_ranks();
        }
    }

    /// Gives the places of what was canceled up.
    #[cold]
    fn close_ranks(&mut self) {
        let places = std::mem::take(&mut self.places);
        self.first += places.len() as u64;
        self.canceled = 0;
        self.last_of.clear();
        for Waiting { work, token, .. } in places.into_iter().flatten() {
            self.push(token, work);
        }
    }
}

/// Work on disks, with so much of each under way at most.
pub struct DiskShares<W> {
    share_max: usize,
    disks: HashMap<Disk, Share<W>>,
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

    /// Work to be begun now: it is under way until [`DiskShares::ended`]. `None`:
    /// it waits until other work on its disk has ended, or its token is canceled.
    #[inline]
    pub fn offer(&mut self, disk: Disk, token: Token, work: W) -> Option<W> {
        let share = self.disks.entry(disk).or_insert_with(|| Share {
            under_way: 0,
            waiting: Queue::new(),
        });
        if share.under_way < self.share_max || faults::is(Fault::NoSharesOfDisks) {
            self.busy += usize::from(share.under_way == 0);
            share.under_way += 1;
            self.under_way += 1;
            return Some(work);
        }
        share.waiting.push(token, work);
        None
    }

    /// Work has ended: what is to be begun in its place.
    #[inline]
    pub fn ended(&mut self, disk: Disk) -> Option<W> {
        let share = self.disks.get_mut(&disk)?;
        let next = share.waiting.pop();
        if next.is_none() && share.under_way > 0 {
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
            share.waiting = Queue::new();
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
    known: HashMap<usize, (Weak<OwnedFd>, Disk)>,
    forget_at: usize,
}

impl DisksOfFiles {
    /// The disk of a file.
    #[inline]
    pub(crate) fn of(&mut self, file: &Arc<OwnedFd>) -> Disk {
        match self.known.get(&(Arc::as_ptr(file) as usize)) {
            Some((_, disk)) => *disk,
            None => self.look_up(file),
        }
    }

    #[cold]
    fn look_up(&mut self, file: &Arc<OwnedFd>) -> Disk {
        if self.known.len() >= self.forget_at {
            self.known.retain(|_, (file, _)| file.strong_count() > 0);
            self.forget_at = KNOWN_MIN.max(2 * self.known.len());
        }
        let disk = sys::disk_of(file.as_raw_fd());
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
        let begun: Vec<_> = (0..5).filter_map(|n| shares.offer(1, n, n)).collect();
        assert_eq!(begun, [0, 1]);
        assert_eq!(shares.offer(2, 9, 9), Some(9));
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
            shares.offer(n % 2, n / 4, n);
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
        let places: usize = shares.disks.values().map(|s| s.waiting.places.len()).sum();
        assert!(places <= 2 * left.len() + 2 * CANCELED_MAX, "{places}");
        for disk in 0..2 {
            let rest = std::iter::from_fn(|| shares.ended(disk));
            let expected = left.iter().copied().filter(|n| n % 2 == disk);
            assert_eq!(rest.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
        assert!(shares.disks.values().all(|s| s.waiting.last_of.is_empty()));
    }

    #[test]
    fn files_of_one_file_system_lie_on_one_disk() {
        let mut disks = DisksOfFiles::default();
        let here = || Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let (one, other) = (here(), here());
        assert_eq!(disks.of(&one), disks.of(&other));
        let null = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
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
