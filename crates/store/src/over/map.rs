//! Where the bytes of a volume lie on the volumes that it is made of.

use crate::Range;

/// A layout. Volumes are named by their place in `of`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    /// A range of one, from this byte on.
    Slice { offset: u64 },
    /// One behind the other: where each ends on the whole.
    Concat { ends: Vec<u64> },
    /// Chunks of so many bytes, of each in turn.
    Stripe { chunk: u64, legs: u64 },
    /// All of it on each: only what its size follows from.
    Mirror,
}

/// Bytes that follow each other on one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub leg: usize,
    /// Where they begin there.
    pub offset: u64,
    pub len: u64,
}

impl Map {
    /// Bytes that there is room for on volumes of these sizes.
    pub(crate) fn capacity(&self, sizes: &[u64]) -> u64 {
        let sizes_of = sizes.iter().copied();
        match self {
            Map::Slice { offset } => sizes_of.sum::<u64>().saturating_sub(*offset),
            Map::Concat { ends } => ends.last().copied().unwrap_or(0),
            Map::Stripe { chunk, legs } => sizes_of.min().unwrap_or(0) / chunk * chunk * legs,
            Map::Mirror => sizes_of.min().unwrap_or(0),
        }
    }

    /// The run that begins at a byte of the whole, as long as it may be.
    #[inline]
    pub(crate) fn run(&self, at: u64) -> Run {
        match self {
            Map::Slice { offset } => Run {
                leg: 0,
                offset: offset + at,
                len: u64::MAX - at,
            },
            Map::Mirror => unreachable!("a mirror chooses a leg"),
            Map::Concat { ends } => {
                let leg = ends.partition_point(|end| *end <= at);
                Run {
                    leg,
                    offset: at - begin(ends, leg),
                    len: ends[leg] - at,
                }
            }
            Map::Stripe { chunk, legs } => {
                let (number, within) = (at / chunk, at % chunk);
                Run {
                    leg: (number % legs) as usize,
                    offset: number / legs * chunk + within,
                    len: chunk - within,
                }
            }
        }
    }

    /// What of a range of the whole lies on a volume: one range there, perhaps empty.
    pub(crate) fn on_leg(&self, leg: usize, range: Range) -> Range {
        let from = self.bytes_on(leg, range.offset);
        let to = self.bytes_on(leg, range.offset + range.len);
        let first = match self {
            Map::Slice { offset } => *offset,
            _ => 0,
        };
        Range {
            offset: first + from,
            len: to - from,
        }
    }

    /// How many of the first `to` bytes of the whole lie on a volume.
    fn bytes_on(&self, leg: usize, to: u64) -> u64 {
        match self {
            Map::Slice { .. } | Map::Mirror => to,
            Map::Concat { ends } => to.clamp(begin(ends, leg), ends[leg]) - begin(ends, leg),
            Map::Stripe { chunk, legs } => {
                let (row, within) = (to / (chunk * legs), to % (chunk * legs));
                row * chunk + within.saturating_sub(leg as u64 * chunk).min(*chunk)
            }
        }
    }

    /// The byte of the whole that lies at this byte of a volume.
    pub(crate) fn whole(&self, leg: usize, offset: u64) -> u64 {
        match self {
            Map::Slice { offset: first } => offset - first,
            Map::Mirror => offset,
            Map::Concat { ends } => begin(ends, leg) + offset,
            Map::Stripe { chunk, legs } => {
                (offset / chunk * legs + leg as u64) * chunk + offset % chunk
            }
        }
    }
}

/// Where a volume begins on the whole.
fn begin(ends: &[u64], leg: usize) -> u64 {
    match leg {
        0 => 0,
        leg => ends[leg - 1],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn maps() -> impl Strategy<Value = (Map, usize)> {
        let slice = (0..50u64).prop_map(|offset| (Map::Slice { offset }, 1));
        let concat = prop::collection::vec(1..20u64, 1..6).prop_map(|sizes| {
            let ends = sizes.iter().scan(0, |end, size| {
                *end += size;
                Some(*end)
            });
            let ends: Vec<u64> = ends.collect();
            let legs = ends.len();
            (Map::Concat { ends }, legs)
        });
        let stripe = (1..9u64, 1..6u64)
            .prop_map(|(chunk, legs)| (Map::Stripe { chunk, legs }, legs as usize));
        prop_oneof![slice, concat, stripe]
    }

    /// Bytes of the whole that a map is asked about.
    fn end(map: &Map) -> u64 {
        match map {
            Map::Concat { ends } => *ends.last().expect("there is one"),
            _ => 100,
        }
    }

    proptest! {
        #[test]
        fn each_byte_lies_at_one_place_and_is_found_from_there((map, legs) in maps()) {
            let mut places = std::collections::BTreeSet::new();
            for at in 0..end(&map) {
                let run = map.run(at);
                prop_assert!(run.leg < legs && run.len > 0);
                prop_assert!(places.insert((run.leg, run.offset)), "two bytes at one place");
                prop_assert_eq!(map.whole(run.leg, run.offset), at);
                for more in 1..run.len.min(end(&map) - at) {
                    let next = map.run(at + more);
                    prop_assert_eq!((next.leg, next.offset), (run.leg, run.offset + more));
                }
            }
        }

        #[test]
        fn range_is_one_range_on_each_volume((map, legs) in maps(), a in 0..100u64, b in 0..100u64) {
            let (a, b) = (a.min(end(&map)), b.min(end(&map)));
            let (from, to) = (a.min(b), a.max(b));
            let mut bytes = 0;
            for leg in 0..legs {
                let part = map.on_leg(leg, Range { offset: from, len: to - from });
                bytes += part.len;
                for offset in part.offset..part.offset + part.len {
                    prop_assert!((from..to).contains(&map.whole(leg, offset)));
                }
            }
            prop_assert_eq!(bytes, to - from);
        }
    }

    #[test]
    fn room_is_what_all_have_alike() {
        let sizes = [100, 130, 99];
        assert_eq!(Map::Stripe { chunk: 8, legs: 3 }.capacity(&sizes), 288);
        let ends = vec![100, 230, 329];
        assert_eq!(Map::Concat { ends }.capacity(&sizes), 329);
        assert_eq!(Map::Slice { offset: 30 }.capacity(&sizes[..1]), 70);
        assert_eq!(Map::Slice { offset: 300 }.capacity(&sizes[..1]), 0);
    }
}
