//! Sets of regions: parts of a mirror, all of one length, by their number.

use std::ops::Range;

/// Bytes of a region at least.
const REGION_BYTES_MIN: u64 = 64 << 10;

/// Regions at most: what is written of them at a time is bounded by it.
pub(super) const REGIONS_MAX: u64 = 1 << 16;

/// Regions of a new mirror at most: as long as it grows to no more than four times its size they
/// keep their length.
const REGIONS_NEW_MAX: u64 = REGIONS_MAX / 4;

/// Bytes of the regions of a new mirror of so many bytes.
pub(super) fn region_bytes_of(size_bytes: u64) -> u64 {
    let needed = size_bytes.div_ceil(REGIONS_NEW_MAX).next_power_of_two();
    needed.max(REGION_BYTES_MIN)
}

/// Some of the regions from 0 to a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Regions {
    words: Vec<u64>,
    count: usize,
}

impl Regions {
    /// None of so many.
    pub(super) fn none(count: usize) -> Regions {
        Regions {
            words: vec![0; count.div_ceil(64)],
            count,
        }
    }

    /// All of them.
    pub(super) fn all(count: usize) -> Regions {
        let mut all = Regions::none(count);
        all.insert(0..count);
        all
    }

    /// Those whose bits are set in these words, of so many.
    pub(super) fn of_words(words: Vec<u64>, count: usize) -> Option<Regions> {
        let last = words.last().map_or(0, |word| match count % 64 {
            0 => 0,
            used => word >> used,
        });
        let is_right = words.len() == count.div_ceil(64) && last == 0;
        is_right.then_some(Regions { words, count })
    }

    /// How many regions there are, in it or not.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    #[inline]
    pub(super) fn has(&self, region: usize) -> bool {
        self.words[region / 64] >> (region % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn has_all(&self, mut range: Range<usize>) -> bool {
        range.all(|region| self.has(region))
    }

    #[inline]
    pub(super) fn has_any(&self, mut range: Range<usize>) -> bool {
        range.any(|region| self.has(region))
    }

    #[inline]
    pub(super) fn insert(&mut self, range: Range<usize>) {
        for region in range {
            self.words[region / 64] |= 1 << (region % 64);
        }
    }

    /// With all of these, of as many.
    pub(super) fn add(&mut self, others: &Regions) {
        for (word, other) in self.words.iter_mut().zip(&others.words) {
            *word |= other;
        }
    }

    /// Without these.
    pub(super) fn subtract(&mut self, others: &Regions) {
        for (word, other) in self.words.iter_mut().zip(&others.words) {
            *word &= !other;
        }
    }

    /// Only those that are in both.
    pub(super) fn keep(&mut self, others: &Regions) {
        for (word, other) in self.words.iter_mut().zip(&others.words) {
            *word &= other;
        }
    }

    /// The first from this one on.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from / 64;
        let mut word = self.words.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many there are in it.
    pub(super) fn len(&self) -> u64 {
        self.words
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// The same of so many, where the new ones are not in it.
    pub(super) fn resized(&self, count: usize) -> Regions {
        let mut resized = Regions::none(count);
        for region in self.iter().take_while(|region| *region < count) {
            resized.insert(region..region + 1);
        }
        resized
    }

    /// The same where two neighbours are one region.
    pub(super) fn folded(&self) -> Regions {
        let mut folded = Regions::none(self.count.div_ceil(2));
        for region in self.iter() {
            folded.insert(region / 2..region / 2 + 1);
        }
        folded
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        let after = |region: &usize| self.next(region + 1);
        std::iter::successors(self.next(0), after)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(regions: &Regions) -> BTreeSet<usize> {
        regions.iter().collect()
    }

    fn regions(members: &BTreeSet<usize>, count: usize) -> Regions {
        let mut regions = Regions::none(count);
        members.iter().for_each(|r| regions.insert(*r..*r + 1));
        regions
    }

    proptest! {
        #[test]
        fn sets_of_regions_are_sets(
            a in prop::collection::btree_set(0..150usize, 0..60),
            b in prop::collection::btree_set(0..150usize, 0..60),
            from in 0..150usize, len in 0..9usize,
        ) {
            let (one, other) = (regions(&a, 150), regions(&b, 150));
            prop_assert_eq!(set(&one), a.clone());
            prop_assert_eq!(one.len(), a.len() as u64);
            prop_assert_eq!(one.is_empty(), a.is_empty());
            let range = from..(from + len).min(150);
            prop_assert_eq!(one.has_all(range.clone()), range.clone().all(|r| a.contains(&r)));
            prop_assert_eq!(one.has_any(range.clone()), range.clone().any(|r| a.contains(&r)));
            prop_assert_eq!(one.next(from), a.range(from..).next().copied());
            let change = |change: fn(&mut Regions, &Regions)| {
                let mut changed = one.clone();
                change(&mut changed, &other);
                set(&changed)
            };
            prop_assert_eq!(change(Regions::add), &a | &b);
            prop_assert_eq!(change(Regions::subtract), &a - &b);
            prop_assert_eq!(change(Regions::keep), &a & &b);
            let halves: BTreeSet<usize> = a.iter().map(|r| r / 2).collect();
            prop_assert_eq!(set(&one.folded()), halves);
            prop_assert_eq!(set(&one.resized(from)), a.range(..from).copied().collect());
            let back = Regions::of_words(one.words().to_vec(), 150);
            prop_assert_eq!(back, Some(one));
        }
    }

    #[test]
    fn words_with_regions_behind_the_last_are_none() {
        assert!(Regions::of_words(vec![1 << 63], 64).is_some());
        assert_eq!(Regions::of_words(vec![1 << 10], 10), None);
        assert_eq!(Regions::of_words(vec![0, 0], 64), None);
        assert!(Regions::all(70).has_all(0..70));
    }

    #[test]
    fn regions_are_as_many_as_their_length_allows() {
        assert_eq!(region_bytes_of(1 << 20), 64 << 10);
        assert_eq!(region_bytes_of(1 << 30), 64 << 10);
        assert_eq!(region_bytes_of((1 << 30) + 1), 128 << 10);
        assert_eq!(region_bytes_of(1 << 40), 64 << 20);
        assert_eq!(region_bytes_of(crate::SIZE_MAX_BYTES), 64 << 30);
    }
}
