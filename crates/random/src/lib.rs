//! Numbers that follow from a seed: loads, the simulator and tests have all of theirs
//! from here. Not for secrets.
#![forbid(unsafe_code)]

/// A small fast generator (xoshiro256**), the same on every machine.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// One step of splitmix64: spreads a counter over all 64 bits.
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Random {
        Random {
            state: [1, 2, 3, 4].map(|i| mix(seed.wrapping_mul(4).wrapping_add(i))),
        }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// The next 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `bound`, which is not 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number of `from..=to`.
    #[inline]
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True once in `of` times, never where that is 0.
    #[inline]
    pub fn one_in(&mut self, of: u64) -> bool {
        of > 0 && self.below(of) == 0
    }

    /// True `percent` times in a hundred.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`.
    #[inline]
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// One of `choices`, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        let total: u64 = choices.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut at = self.below(total);
        for (weight, choice) in choices {
            match at.checked_sub(u64::from(*weight)) {
                Some(rest) => at = rest,
                None => return *choice,
            }
        }
        unreachable!("the weights add up")
    }

    /// A duration around `mean`, mostly shorter, seldom up to eight times longer.
    #[inline]
    pub fn around(&mut self, mean: u64) -> u64 {
        let long = if self.one_in(8) { 8 } else { 1 };
        1 + self.below(mean.max(1) * long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything_and_seeds_differ() {
        let run = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).iter().all(|&n| n < 1000));
    }

    #[test]
    fn numbers_below_a_bound_cover_their_range_evenly() {
        let mut random = Random::new(1);
        let mut seen = [0u32; 16];
        for _ in 0..16_000 {
            seen[random.below(16) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
    }

    #[test]
    fn weights_are_kept() {
        let mut random = Random::new(1);
        let mut counts = [0; 3];
        for _ in 0..1000 {
            counts[random.weighted(&[(1, 0), (0, 1), (9, 2)])] += 1;
        }
        assert!(
            counts[0] > 50 && counts[1] == 0 && counts[2] > 800,
            "{counts:?}"
        );
    }
}
