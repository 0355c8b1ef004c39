//! A share of what waits for disks, for each disk.
//!
//! Threads wait for a disk: the driver's own, or the kernel's. One that does not
//! answer keeps as many as it is given. So no disk has more than its share of
//! operations under way, there are threads for the shares of all, and what goes
//! beyond its disk's share waits here and holds up no other.

use crate::sys;
use mem::broken::{self, Fault};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

/// A device, or the one below a file, as the kernel numbers them.
pub type Disk = u64;

/// What one disk has. It stays when there is no work, with the room that its queue
/// has grown to: disks are few, and work comes again.
struct Share<W> {
    under_way: usize,
    waiting: VecDeque<W>,
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
    /// it waits until other work on its disk has ended.
    #[inline]
    pub fn offer(&mut self, disk: Disk, work: W) -> Option<W> {
        let share = self.disks.entry(disk).or_insert_with(|| Share {
            under_way: 0,
            waiting: VecDeque::new(),
        });
        if share.under_way < self.share_max || broken::is(Fault::NoSharesOfDisks) {
            self.busy += usize::from(share.under_way == 0);
            share.under_way += 1;
            self.under_way += 1;
            return Some(work);
        }
        share.waiting.push_back(work);
        None
    }

    /// Work has ended: what is to be begun in its place.
    #[inline]
    pub fn ended(&mut self, disk: Disk) -> Option<W> {
        let share = self.disks.get_mut(&disk)?;
        let next = share.waiting.pop_front();
        if next.is_none() && share.under_way > 0 {
            share.under_way -= 1;
            self.under_way -= 1;
            self.busy -= usize::from(share.under_way == 0);
        }
        next
    }

    /// Takes out what waits and is `meant`.
    pub fn cancel(&mut self, meant: impl Fn(&W) -> bool) -> Vec<W> {
        let mut canceled = Vec::new();
        for share in self.disks.values_mut() {
            for work in std::mem::take(&mut share.waiting) {
                match meant(&work) {
                    true => canceled.push(work),
                    false => share.waiting.push_back(work),
                }
            }
        }
        canceled
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
        let begun: Vec<_> = (0..5).filter_map(|n| shares.offer(1, n)).collect();
        assert_eq!(begun, [0, 1]);
        assert_eq!(shares.offer(2, 9), Some(9));
        assert_eq!((shares.disks(), shares.under_way()), (2, 3));
        assert_eq!(shares.ended(1), Some(2), "the oldest goes on");
        assert_eq!(shares.cancel(|n| *n == 4), [4]);
        assert_eq!(shares.ended(2), None);
        assert_eq!(shares.ended(1), Some(3));
        assert_eq!((shares.ended(1), shares.ended(1)), (None, None));
        assert_eq!((shares.disks(), shares.under_way()), (0, 0));
        assert_eq!(shares.ended(1), None, "it was forgotten meanwhile");
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
