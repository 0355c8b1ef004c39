//! Random numbers that cost a nanosecond.

/// xorshift64* (Marsaglia 2003, Vigna 2016): good enough to choose offsets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // The state must not be 0, and near seeds should not stay near.
        Random((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which must not be 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_its_range_evenly() {
        let mut random = Random::new(1);
        let mut seen = [0u32; 16];
        for _ in 0..16_000 {
            seen[random.below(16) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
    }

    #[test]
    fn repeats_from_its_seed() {
        let (mut a, mut b, mut c) = (Random::new(7), Random::new(7), Random::new(8));
        let first = a.next_u64();
        assert_eq!(first, b.next_u64());
        assert_ne!(first, c.next_u64());
    }
}
