//! What a few measurements say, and how sure that is.
//!
//! Machines that measure are noisy, and their noise is not normal: there are
//! two speeds, and now and then a run that other programs have disturbed. So
//! everything here goes by ranks: medians, and intervals for them that hold
//! for any distribution. Nothing is ever left out.

/// What measurements of one quantity say.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many there were.
    pub count: usize,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Where the median of all that could be measured is, with at least
    /// [`Summary::confidence`].
    pub interval: (f64, f64),
    /// How sure the interval is: [`CONFIDENCE`] where there are measurements
    /// enough for that, otherwise what all of them together give.
    pub confidence: f64,
    /// Measurements far from the rest, by their places in what was given.
    pub outliers: Vec<usize>,
}

/// How sure an interval is to be.
pub const CONFIDENCE: f64 = 0.95;

/// So many times the median distance from the median is far.
const FAR: f64 = 5.0;

impl Summary {
    /// Of measurements in the order in which they were made; `None` without
    /// any, or where one is no number.
    pub fn of(measured: &[f64]) -> Option<Summary> {
        if measured.is_empty() || measured.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = measured.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (below, confidence) = interval_rank(sorted.len());
        Some(Summary {
            count: sorted.len(),
            median: median(&sorted),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            interval: (sorted[below], sorted[sorted.len() - 1 - below]),
            confidence,
            outliers: outliers(measured, &sorted),
        })
    }

    /// Of the ratio of two quantities that were measured side by side, `A B A
    /// B`: each pair has its own, so that what slows both does not count.
    pub fn of_ratios(a: &[f64], b: &[f64]) -> Option<Summary> {
        let ratios: Vec<_> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        Summary::of(&ratios)
    }

    /// Half the width of the interval, as a share of the median: the noise.
    pub fn noise(&self) -> f64 {
        match self.median {
            0.0 => 0.0,
            median => ((self.interval.1 - self.interval.0) / 2.0 / median).abs(),
        }
    }
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[half - 1], sorted[half]),
        _ => sorted[half],
    }
}

/// How many of the least and of the greatest of so many measurements may be
/// left out of an interval for the median, and how sure that is then. Each
/// measurement is below the median as likely as above it, so the number below
/// is of a binomial distribution.
fn interval_rank(count: usize) -> (usize, f64) {
    let mut below = 0.5f64.powi(count as i32);
    let mut tail = below;
    let (mut rank, mut confidence) = (0, 1.0 - 2.0 * tail);
    for left_out in 1..count.div_ceil(2) {
        below *= (count - left_out + 1) as f64 / left_out as f64;
        tail += below;
        let next = 1.0 - 2.0 * tail;
        if next < CONFIDENCE {
            break;
        }
        (rank, confidence) = (left_out, next);
    }
    (rank, confidence.max(0.0))
}

/// By the median distance from the median, which outliers do not move.
fn outliers(measured: &[f64], sorted: &[f64]) -> Vec<usize> {
    let middle = median(sorted);
    let mut distances: Vec<_> = sorted.iter().map(|value| (value - middle).abs()).collect();
    distances.sort_by(f64::total_cmp);
    let far = FAR * median(&distances);
    let is_far = |&at: &usize| (measured[at] - middle).abs() > far;
    match far > 0.0 {
        true => (0..measured.len()).filter(is_far).collect(),
        false => Vec::new(),
    }
}

/// Whether what is measured has settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// Greatest distance from the mean, as a share of it.
    pub excursion: f64,
    /// How far a straight line through them rises or falls from the first to
    /// the last, as a share of the mean.
    pub drift: f64,
}

impl Steadiness {
    /// Of values at equal times; `None` of fewer than three.
    pub fn of(values: &[f64]) -> Option<Steadiness> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < 3 || !mean.is_finite() || mean == 0.0 {
            return None;
        }
        let middle = (count - 1.0) / 2.0;
        let (mut covariance, mut variance) = (0.0, 0.0);
        for (at, value) in values.iter().enumerate() {
            covariance += (at as f64 - middle) * (value - mean);
            variance += (at as f64 - middle).powi(2);
        }
        let furthest = values.iter().map(|value| (value - mean).abs());
        Some(Steadiness {
            excursion: furthest.fold(0.0, f64::max) / mean.abs(),
            drift: covariance / variance * (count - 1.0) / mean,
        })
    }

    /// Within a fifth of the mean, and a tenth from the first to the last: the
    /// bounds that tests of solid-state storage use (SNIA PTS, section 2.1.24).
    pub fn is_steady(&self) -> bool {
        self.excursion <= 0.20 && self.drift.abs() <= 0.10
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Random;

    fn uniform(random: &mut Random) -> f64 {
        (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Of how many trials the interval of `count` values holds the median.
    fn coverage(count: usize, median: f64, mut draw: impl FnMut(&mut Random) -> f64) -> f64 {
        let mut random = Random::new(count as u64);
        let trials = 4000;
        let holds = (0..trials).filter(|_| {
            let values: Vec<_> = (0..count).map(|_| draw(&mut random)).collect();
            let (low, high) = Summary::of(&values).expect("numbers").interval;
            low <= median && median <= high
        });
        holds.count() as f64 / f64::from(trials)
    }

    #[test]
    fn intervals_hold_the_median_of_known_distributions() {
        for count in [6, 9, 15, 40] {
            let exponential = |random: &mut Random| -(1.0 - uniform(random)).ln();
            let normal = |random: &mut Random| (0..12).map(|_| uniform(random)).sum::<f64>();
            // Two speeds, a third of the time the slow one.
            let two = |random: &mut Random| match random.below(3) {
                0 => 1.0 + uniform(random),
                _ => 9.0 + uniform(random),
            };
            let covered = [
                coverage(count, std::f64::consts::LN_2, exponential),
                coverage(count, 6.0, normal),
                coverage(count, 9.25, two),
            ];
            // 4,000 trials of 0.95 are within 0.01 of it.
            assert!(
                covered.iter().all(|share| *share > CONFIDENCE - 0.012),
                "{count}: {covered:?}"
            );
        }
    }

    #[test]
    fn few_measurements_have_little_confidence() {
        // All of five on one side of the median: 2 / 32.
        let five = Summary::of(&[3.0, 1.0, 5.0, 2.0, 4.0]).expect("numbers");
        assert_eq!(
            (five.median, five.interval, five.count),
            (3.0, (1.0, 5.0), 5)
        );
        assert_eq!(five.confidence, 0.9375);
        let six = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("numbers");
        assert_eq!((six.median, six.interval), (3.5, (1.0, 6.0)));
        assert_eq!(six.confidence, 1.0 - 2.0 / 64.0);
        // Of nine the second and the eighth: 1 - 2 * (1 + 9) / 512.
        let nine: Vec<_> = (1..=9).map(f64::from).collect();
        let nine = Summary::of(&nine).expect("numbers");
        assert_eq!(nine.interval, (2.0, 8.0));
        assert_eq!(nine.confidence, 1.0 - 20.0 / 512.0);
        assert_eq!(Summary::of(&[7.0]).expect("one").confidence, 0.0);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_ratio_is_that_of_its_pairs() {
        // The machine halves its speed in between: each pair says the same.
        let (a, b) = ([80.0, 40.0, 82.0, 41.0], [100.0, 50.0, 100.0, 50.0]);
        let ratio = Summary::of_ratios(&a, &b).expect("numbers");
        assert!((ratio.median - 0.81).abs() < 1e-9, "{ratio:?}");
        assert_eq!((ratio.min, ratio.max), (0.8, 0.82));
    }

    #[test]
    fn an_outlier_is_named_and_counted() {
        let summary = Summary::of(&[10.0, 10.2, 3.0, 9.9, 10.1]).expect("numbers");
        assert_eq!(summary.outliers, [2]);
        assert_eq!((summary.count, summary.min), (5, 3.0));
        assert_eq!(
            Summary::of(&[5.0; 4]).expect("numbers").outliers,
            [0usize; 0]
        );
    }

    #[test]
    fn values_that_still_rise_are_not_steady() {
        let rising: Vec<_> = (0..10)
            .map(|second| 100.0 + 2.0 * f64::from(second))
            .collect();
        let rising = Steadiness::of(&rising).expect("values");
        assert!((rising.drift - 18.0 / 109.0).abs() < 1e-9, "{rising:?}");
        assert!(!rising.is_steady());
        let level = Steadiness::of(&[100.0, 101.0, 99.0, 100.0]).expect("values");
        assert!(level.is_steady(), "{level:?}");
        let spike = Steadiness::of(&[100.0, 100.0, 160.0, 100.0, 100.0]).expect("values");
        assert!(!spike.is_steady() && spike.drift.abs() < 1e-9, "{spike:?}");
        assert_eq!(Steadiness::of(&[1.0, 2.0]), None);
    }
}
