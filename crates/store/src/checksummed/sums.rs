//! The sums that one block may have.
//!
//! A block that is being written has the sum of what was there and that of what comes. Both are
//! its sums until what came is known to be durable, so that after a crash what it holds has one of
//! them. Of a block that is written again before that there are more.
//!
//! Another sum takes the place of one that is there twice, so that at no point between the two a
//! sum is missing that the block may have: memory and disks may be caught in the middle of it.

/// Sums of a block at most.
pub(super) const SUMS_MAX: usize = 4;

/// Bytes of those of a block in the file.
pub(super) const SUMS_BYTES: u32 = 4 * SUMS_MAX as u32;

/// The sums of a block, in any order. A sum is the CRC32C of the block as it differs from that of
/// zeros: where nothing was ever written all of them are 0, and so is a hole in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums([u32; SUMS_MAX]);

impl Sums {
    /// Of a block that has one sum.
    pub(super) fn one(sum: u32) -> Sums {
        Sums([sum; SUMS_MAX])
    }

    #[inline]
    pub(super) fn at(self, slot: usize) -> u32 {
        self.0[slot]
    }

    #[inline]
    pub(super) fn is_one(self) -> bool {
        self == Sums::one(self.at(0))
    }

    /// Where it has a sum.
    #[inline]
    pub(super) fn slot_of(self, sum: u32) -> Option<usize> {
        self.0.iter().position(|other| *other == sum)
    }

    /// The same with another one, and where that is; what is at `keep` stays there. `None` where
    /// they are too many.
    pub(super) fn with(self, sum: u32, keep: usize) -> Option<(Sums, usize)> {
        if let Some(slot) = self.slot_of(sum) {
            return Some((self, slot));
        }
        let is_twice = |slot: &usize| {
            let others = (0..SUMS_MAX).filter(|other| other != slot);
            *slot != keep
                && others
                    .map(|other| self.at(other))
                    .any(|sum| sum == self.at(*slot))
        };
        let slot = (0..SUMS_MAX).find(is_twice)?;
        let mut all = self;
        all.0[slot] = sum;
        Some((all, slot))
    }

    /// As they lie in the file.
    pub(super) fn bytes(self) -> [u8; SUMS_BYTES as usize] {
        let mut bytes = [0; SUMS_BYTES as usize];
        for (at, sum) in bytes.chunks_exact_mut(4).zip(self.0) {
            at.copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// The same from there.
    pub(super) fn of_bytes(bytes: [u8; SUMS_BYTES as usize]) -> Sums {
        let mut sums = [0; SUMS_MAX];
        for (sum, at) in sums.iter_mut().zip(bytes.chunks_exact(4)) {
            *sum = u32::from_le_bytes(at.try_into().expect("four bytes"));
        }
        Sums(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_a_block_are_kept_until_they_are_too_many() {
        for keep in 0..SUMS_MAX {
            let mut sums = Sums::one(1);
            assert!(sums.is_one() && sums.slot_of(2).is_none());
            for sum in 2..=4 {
                let (more, slot) = sums.with(sum, keep).expect("room");
                assert_eq!(more.at(slot), sum);
                assert!((1..=sum).all(|sum| more.slot_of(sum).is_some()));
                let differ = (0..SUMS_MAX).filter(|slot| more.at(*slot) != sums.at(*slot));
                assert_eq!(differ.count(), 1, "{sums:?}, {more:?}");
                assert!(more.at(keep) == 1 && !more.is_one());
                sums = more;
            }
            assert_eq!(sums.with(5, keep), None);
            let slot = sums.slot_of(3).expect("it has it");
            assert_eq!(sums.with(3, keep), Some((sums, slot)));
            assert_eq!(Sums::of_bytes(sums.bytes()), sums);
        }
        assert_eq!(Sums::one(0).bytes(), [0; 16], "a hole");
    }
}
