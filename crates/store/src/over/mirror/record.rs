//! What a mirror remembers beside its data: which legs it has, what each of them misses, and
//! where they may differ.

use std::collections::BTreeMap;
use std::ops::Range;

use uuid::Uuid;

use super::regions::{REGIONS_MAX, Regions, region_bytes_of};
use crate::SIZE_MAX_BYTES;

/// A leg, as the mirror remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LegRecord {
    /// UUID of the volume.
    pub volume: Uuid,
    /// The generation that the state of the leg itself has; 0 where it keeps none.
    pub generation: u64,
    /// It has failed, or was not there: it is given nothing and asked for nothing.
    pub is_out: bool,
    /// Regions of which it has not what the mirror holds.
    pub missing: Regions,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MirrorRecord {
    /// UUID of the mirror.
    pub mirror: Uuid,
    /// Grows with each change of which legs are out.
    pub generation: u64,
    /// Of the mirror.
    pub size_bytes: u64,
    pub region_bytes: u64,
    /// Regions that may differ between legs which lack nothing else: those that are being
    /// written, and those of which not all that was written is known to be durable on all.
    pub dirty: Regions,
    pub legs: Vec<LegRecord>,
}

impl MirrorRecord {
    /// Of a new mirror, whose legs are alike.
    pub(super) fn new(mirror: Uuid, size_bytes: u64, legs: &[Uuid]) -> MirrorRecord {
        let region_bytes = region_bytes_of(size_bytes);
        let count = count(size_bytes, region_bytes);
        let leg = |volume: &Uuid| LegRecord {
            volume: *volume,
            generation: 0,
            is_out: false,
            missing: Regions::none(count),
        };
        MirrorRecord {
            mirror,
            generation: 0,
            size_bytes,
            region_bytes,
            dirty: Regions::none(count),
            legs: legs.iter().map(leg).collect(),
        }
    }

    /// The regions that a range lies in.
    #[inline]
    pub(super) fn regions(&self, offset: u64, len: u64) -> Range<usize> {
        let end = (offset + len).div_ceil(self.region_bytes);
        (offset / self.region_bytes) as usize..end as usize
    }

    /// Legs that have all of these regions, a bit each.
    pub(super) fn current(&self, regions: Range<usize>) -> u8 {
        let has = |leg: &LegRecord| !leg.is_out && !leg.missing.has_any(regions.clone());
        bits(self.legs.iter().map(has))
    }

    /// A set of these.
    pub(super) fn some(&self, regions: Range<usize>) -> Regions {
        let mut some = Regions::none(self.dirty.count());
        some.insert(regions);
        some
    }

    /// Whether each of these regions is had by one of the legs whose bits are set.
    pub(super) fn have(&self, legs: u8, regions: &Regions) -> bool {
        let mut next = regions.next(0);
        while let Some(region) = next {
            if self.current(region..region + 1) & legs == 0 {
                return false;
            }
            next = regions.next(region + 1);
        }
        true
    }

    /// Legs that are not out, likewise.
    pub(super) fn members(&self) -> u8 {
        bits(self.legs.iter().map(|leg| !leg.is_out))
    }

    /// Legs may differ in these regions from now on: the first that has one is what the
    /// mirror holds there, and the others lack it.
    pub(super) fn settle(&mut self, regions: &Regions) {
        let mut next = regions.next(0);
        while let Some(region) = next {
            let current = self.current(region..region + 1);
            for leg in 0..self.legs.len() {
                let is_first = current.trailing_zeros() as usize == leg;
                if current >> leg & 1 == 1 && !is_first {
                    self.legs[leg].missing.insert(region..region + 1);
                }
            }
            next = regions.next(region + 1);
        }
    }

    /// Those of these regions that several legs have, which may differ there: which legs.
    pub(super) fn had_by_several(&self, regions: &Regions) -> BTreeMap<usize, u8> {
        let had = regions
            .iter()
            .map(|region| (region, self.current(region..region + 1)));
        had.filter(|(_, legs)| legs.count_ones() > 1).collect()
    }

    /// Whether no other leg that is in has some region that this one has.
    pub(super) fn needs(&self, leg: usize) -> bool {
        let mut regions = 0..self.dirty.count();
        regions.any(|region| self.current(region..region + 1) == 1 << leg)
    }

    /// A leg is not there: of what may differ it has nothing that another has.
    pub(super) fn leave_out(&mut self, leg: usize) {
        self.legs[leg].is_out = true;
        let mut next = self.dirty.next(0);
        while let Some(region) = next {
            if self.current(region..region + 1) != 0 {
                self.legs[leg].missing.insert(region..region + 1);
            }
            next = self.dirty.next(region + 1);
        }
    }

    /// Regions that no leg has, whether it is in or out.
    pub(super) fn lost(&self) -> u64 {
        let regions = 0..self.dirty.count();
        let is_lost = |region: &usize| self.legs.iter().all(|leg| leg.missing.has(*region));
        regions.filter(is_lost).count() as u64
    }

    /// A leg gets nothing any more: of what may differ it has nothing. Another has all of it.
    pub(super) fn take_out(&mut self, leg: usize) {
        let dirty = self.dirty.clone();
        let leg = &mut self.legs[leg];
        leg.is_out = true;
        leg.missing.add(&dirty);
        self.generation += 1;
    }

    /// A mirror of another size: what is new is lacked by all but the first leg that has it
    /// where they are not `alike`, and by each that is out.
    pub(super) fn resize(&mut self, size_bytes: u64, alike: bool) {
        while count(size_bytes, self.region_bytes) as u64 > REGIONS_MAX {
            self.region_bytes *= 2;
            self.dirty = self.dirty.folded();
            for leg in &mut self.legs {
                leg.missing = leg.missing.folded();
            }
        }
        let old_bytes = std::mem::replace(&mut self.size_bytes, size_bytes);
        let grows_by = size_bytes.saturating_sub(old_bytes);
        let to = count(size_bytes, self.region_bytes);
        // The last of the old ones may reach into what is new.
        let new = match grows_by {
            0 => 0..0,
            _ => self.regions(old_bytes, grows_by),
        };
        self.dirty = self.dirty.resized(to);
        for leg in &mut self.legs {
            leg.missing = leg.missing.resized(to);
            if leg.is_out {
                leg.missing.insert(new.clone());
            }
        }
        if !alike {
            self.settle(&self.some(new));
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.mirror.as_bytes().to_vec();
        let numbers = [
            self.generation,
            self.size_bytes,
            self.region_bytes,
            self.legs.len() as u64,
        ];
        put(&mut bytes, &numbers);
        put(&mut bytes, self.dirty.words());
        for leg in &self.legs {
            bytes.extend_from_slice(leg.volume.as_bytes());
            put(&mut bytes, &[leg.generation, leg.is_out.into()]);
            put(&mut bytes, leg.missing.words());
        }
        bytes
    }

    /// The inverse; `None` if it is none.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<MirrorRecord> {
        let mut rest = bytes;
        let mirror = uuid(&mut rest)?;
        let [generation, size_bytes, region_bytes, legs] = numbers(&mut rest)?;
        let has_next = generation <= u64::MAX / 2 && size_bytes <= SIZE_MAX_BYTES;
        let is_possible = has_next && region_bytes.is_power_of_two() && legs <= 8;
        let count = is_possible.then(|| size_bytes.div_ceil(region_bytes))?;
        if count > REGIONS_MAX {
            return None;
        }
        let count = count as usize;
        let dirty = regions(&mut rest, count)?;
        let legs = (0..legs).map(|_| {
            let volume = uuid(&mut rest)?;
            let [generation, is_out] = numbers(&mut rest)?;
            Some(LegRecord {
                volume,
                generation,
                is_out: is_out == 1,
                missing: regions(&mut rest, count)?,
            })
        });
        let legs = legs.collect::<Option<_>>()?;
        rest.is_empty().then_some(MirrorRecord {
            mirror,
            generation,
            size_bytes,
            region_bytes,
            dirty,
            legs,
        })
    }
}

fn count(size_bytes: u64, region_bytes: u64) -> usize {
    size_bytes.div_ceil(region_bytes) as usize
}

/// A bit for each that is true.
fn bits(all: impl Iterator<Item = bool>) -> u8 {
    let bits = all.enumerate();
    bits.fold(0, |bits, (at, is)| bits | u8::from(is) << at)
}

fn put(bytes: &mut Vec<u8>, numbers: &[u64]) {
    let all = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.extend(all);
}

fn uuid(rest: &mut &[u8]) -> Option<Uuid> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(Uuid::from_bytes(*first))
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_le_bytes(*first))
}

fn numbers<const N: usize>(rest: &mut &[u8]) -> Option<[u64; N]> {
    let mut all = [0; N];
    for one in &mut all {
        *one = number(rest)?;
    }
    Some(all)
}

fn regions(rest: &mut &[u8], count: usize) -> Option<Regions> {
    let words = (0..count.div_ceil(64)).map(|_| number(rest));
    Regions::of_words(words.collect::<Option<_>>()?, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: u64 = 64 << 10;

    fn record(regions: u64) -> MirrorRecord {
        let legs = [1, 2, 3].map(Uuid::from_u128);
        MirrorRecord::new(Uuid::from_u128(9), regions * REGION, &legs)
    }

    fn set(regions: &[usize], count: usize) -> Regions {
        let mut set = Regions::none(count);
        regions.iter().for_each(|r| set.insert(*r..*r + 1));
        set
    }

    #[test]
    fn record_is_what_it_was_and_what_is_cut_is_none() {
        let mut record = record(100);
        record.dirty.insert(63..66);
        record.take_out(1);
        record.legs[2].generation = 7;
        let bytes = record.bytes();
        assert_eq!(MirrorRecord::of_bytes(&bytes), Some(record));
        for len in 0..bytes.len() {
            assert_eq!(MirrorRecord::of_bytes(&bytes[..len]), None, "{len}");
        }
        assert_eq!(MirrorRecord::of_bytes(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn regions_that_may_differ_are_those_of_the_first_leg_that_has_them() {
        let mut record = record(10);
        record.legs[0].missing = set(&[4], 10);
        record.legs[1].is_out = true;
        assert_eq!(record.current(3..4), 0b101);
        assert_eq!(record.current(3..5), 0b100);
        record.settle(&set(&[3, 4], 10));
        assert_eq!(record.current(3..4), 0b001);
        assert_eq!(record.current(4..5), 0b100, "the last that has it keeps it");
        assert_eq!(record.current(5..6), 0b101);
        assert_eq!(record.members(), 0b101);
    }

    #[test]
    fn leg_that_is_out_lacks_what_may_differ() {
        let mut record = record(10);
        record.dirty = set(&[2, 7], 10);
        record.take_out(0);
        assert_eq!((record.generation, record.members()), (1, 0b110));
        assert_eq!(record.legs[0].missing, set(&[2, 7], 10));
    }

    #[test]
    fn leg_that_alone_has_a_region_is_needed_and_keeps_it_while_it_is_away() {
        let mut record = record(10);
        record.legs[0].missing = set(&[2], 10);
        record.legs[2].is_out = true;
        assert!(record.needs(1) && !record.needs(0) && !record.needs(2));
        record.dirty = set(&[2, 3], 10);
        record.leave_out(1);
        assert_eq!(record.legs[1].missing, set(&[3], 10));
        assert_eq!((record.current(2..3), record.lost()), (0, 0));
        record.legs[2].missing = set(&[2], 10);
        record.legs[1].missing = set(&[2, 3], 10);
        assert_eq!(record.lost(), 1);
    }

    #[test]
    fn regions_that_a_mirror_grows_by_are_those_of_its_first_leg() {
        let mut grown = record(10);
        grown.dirty = set(&[9], 10);
        grown.resize(12 * REGION, false);
        assert_eq!(grown.current(10..12), 0b001);
        assert_eq!(grown.current(9..10), 0b111, "it ends where a region does");
        assert_eq!(grown.dirty, set(&[9], 12));
        let mut alike = record(10);
        alike.resize(12 * REGION, true);
        assert_eq!(alike.current(0..12), 0b111);
        alike.resize(5 * REGION, false);
        assert_eq!(alike.dirty.count(), 5);
        assert_eq!(alike.current(0..5), 0b111);
        // Within a region, while a leg is out.
        alike.resize(5 * REGION + 512, true);
        alike.legs[2].is_out = true;
        alike.resize(6 * REGION, false);
        assert_eq!(alike.current(5..6), 0b001);
        assert_eq!(alike.legs[2].missing, set(&[5], 6));
    }

    #[test]
    fn regions_become_longer_where_there_would_be_too_many() {
        let mut grown = record(10);
        grown.dirty = set(&[5], 10);
        grown.resize(4 * REGIONS_MAX * REGION, true);
        assert_eq!(grown.region_bytes, 4 * REGION);
        assert_eq!(grown.dirty.count() as u64, REGIONS_MAX);
        assert!(grown.dirty.has(1) && grown.dirty.len() == 1);
    }
}
