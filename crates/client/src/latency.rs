//! Latencies: recorded cheaply, reported alike everywhere.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies above this are counted as this: 100 s, in nanoseconds.
const MAX_NS: u64 = 100_000_000_000;

/// A histogram of latencies in nanoseconds, three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(Histogram::new_with_bounds(1, MAX_NS, 3).expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Adds one latency. Nothing is allocated: the bounds are fixed.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.clamp(1, MAX_NS));
    }

    /// Adds all that `other` has.
    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("the bounds are the same");
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// How many were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The figures to show.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let at = |percent: f64| us(self.0.value_at_percentile(percent));
        Summary {
            count: self.0.len(),
            min_us: us(self.0.min()),
            mean_us: (self.0.mean() / 10.0).round() / 100.0,
            max_us: us(self.0.max()),
            p50_us: at(50.0),
            p90_us: at(90.0),
            p99_us: at(99.0),
            p99_9_us: at(99.9),
            p99_99_us: at(99.99),
            p99_999_us: at(99.999),
        }
    }

    /// The whole of it: shares of the I/Os, each with the microseconds that they
    /// took at most; 16 for each tenth part that is left, down to a single one.
    #[must_use]
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let count = self.0.len();
        if count == 0 {
            return Vec::new();
        }
        let left = |step: u32| 10f64.powf(-f64::from(step) / 16.0);
        let shares = (0..)
            .map(left)
            .take_while(|left| left * count as f64 >= 1.0);
        let shares = shares.map(|left| 1.0 - left).chain([1.0]);
        shares
            .map(|share| (share, us(self.0.value_at_quantile(share))))
            .collect()
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// What a set of latencies looks like; microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many there are.
    pub count: u64,
    /// Smallest.
    pub min_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Largest.
    pub max_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
    /// 99.99th percentile.
    pub p99_99_us: f64,
    /// 99.999th percentile.
    pub p99_999_us: f64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "  latency us: min {:.1}  mean {:.1}  max {:.1}",
            self.min_us, self.mean_us, self.max_us
        )?;
        write!(
            f,
            "  percentiles us: p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  p99.99 {:.1}  \
             p99.999 {:.1}",
            self.p50_us, self.p90_us, self.p99_us, self.p99_9_us, self.p99_99_us, self.p99_999_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_the_percentiles() {
        let mut all = Latencies::default();
        let mut half = Latencies::default();
        for us in 1..=10_000u64 {
            let to = if us % 2 == 0 { &mut all } else { &mut half };
            to.record(us * 1000);
        }
        all.add(&half);
        let s = all.summary();
        assert_eq!(s.count, 10_000);
        let near = |got: f64, want: f64| (got - want).abs() <= want * 0.002;
        assert!(
            near(s.p50_us, 5_000.0) && near(s.p99_99_us, 9_999.0),
            "{s:?}"
        );
        assert!(
            near(s.mean_us, 5_000.5) && near(s.max_us, 10_000.0),
            "{s:?}"
        );
    }

    #[test]
    fn distribution_ends_with_the_largest_latency() {
        let mut all = Latencies::default();
        assert!(all.distribution().is_empty());
        for us in 1..=100_000u64 {
            all.record(us * 1000);
        }
        let points = all.distribution();
        // Five powers of ten in steps of 16, and the slowest.
        assert_eq!(points.len(), 5 * 16 + 2);
        assert_eq!(points[0].0, 0.0);
        for (share, us) in &points[1..] {
            assert!((us / 1e5 - share).abs() < 0.002, "{share} {us}");
        }
        let is_ascending = points
            .windows(2)
            .all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        assert!(is_ascending && points.last().expect("some").0 == 1.0);
    }

    #[test]
    fn latencies_beyond_the_largest_bucket_are_counted() {
        let mut all = Latencies::default();
        all.record(u64::MAX);
        all.record(0);
        assert_eq!(all.count(), 2);
        assert!(all.summary().max_us >= 99e6);
    }
}
