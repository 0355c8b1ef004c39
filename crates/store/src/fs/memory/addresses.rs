//! Addresses for the content of files, in one thin volume: a buddy allocator.
//!
//! Addresses cost next to nothing, only frames do. So a file gets chunks that
//! are far larger than what it may hold, in which everything lies in one run.

use std::collections::BTreeSet;

/// Bytes of a unit are 1 << this: the smallest chunk.
pub(super) const UNIT_SHIFT: u32 = 20;
/// Chunks have 1 << order units, up to this order.
pub(super) const ORDER_MAX: u32 = 5;
/// Bytes of the largest chunk.
pub(super) const CHUNK_BYTES_MAX: u64 = 1 << (UNIT_SHIFT + ORDER_MAX);

/// Where the first address of a chunk lies, in units.
pub(super) type Unit = u32;

/// Free addresses.
pub(super) struct Addresses {
    /// From here on nothing was ever given out.
    next: Unit,
    end: Unit,
    /// Free chunks by order; neighbours that fit are joined.
    free: [BTreeSet<Unit>; ORDER_MAX as usize + 1],
}

impl Addresses {
    /// Of `bytes` addresses, whole chunks of the largest kind, the first of
    /// which is left alone: it is a hole for ever.
    pub(super) fn new(bytes: u64) -> Addresses {
        Addresses {
            next: 1 << ORDER_MAX,
            end: (bytes >> UNIT_SHIFT) as Unit,
            free: Default::default(),
        }
    }

    pub(super) fn take(&mut self, order: u32) -> Option<Unit> {
        let found = (order..=ORDER_MAX).find(|&at| !self.free[at as usize].is_empty());
        let (unit, mut have) = match found {
            Some(at) => (self.free[at as usize].pop_first()?, at),
            None if self.next < self.end => {
                self.next += 1 << ORDER_MAX;
                (self.next - (1 << ORDER_MAX), ORDER_MAX)
            }
            None => return None,
        };
        while have > order {
            have -= 1;
            self.free[have as usize].insert(unit + (1 << have));
        }
        Some(unit)
    }

    pub(super) fn give(&mut self, mut unit: Unit, mut order: u32) {
        while order < ORDER_MAX && self.free[order as usize].remove(&(unit ^ 1 << order)) {
            unit &= !(1 << order);
            order += 1;
        }
        let is_new = self.free[order as usize].insert(unit);
        assert!(is_new, "addresses given back twice");
    }
}

#[test]
fn all_addresses_can_be_taken_and_come_back() {
    let mut addresses = Addresses::new(4 * CHUNK_BYTES_MAX);
    let mut taken: Vec<(Unit, u32)> = Vec::new();
    for order in [0, 0, 3, 1, 5, 2, 0, 4] {
        taken.push((addresses.take(order).unwrap(), order));
    }
    while let Some(unit) = addresses.take(0) {
        taken.push((unit, 0));
    }
    let mut units: Vec<Unit> = taken
        .iter()
        .flat_map(|&(unit, order)| unit..unit + (1 << order))
        .collect();
    units.sort_unstable();
    let all: Vec<Unit> = (32..4 * 32).collect();
    assert_eq!(units, all);
    assert!(taken.iter().all(|&(unit, order)| unit % (1 << order) == 0));
    taken.reverse();
    let third = taken.len() / 3;
    taken.rotate_left(third);
    for (unit, order) in taken {
        addresses.give(unit, order);
    }
    for _ in 0..3 {
        assert!(addresses.take(ORDER_MAX).is_some());
    }
    assert_eq!(addresses.take(0), None);
}
