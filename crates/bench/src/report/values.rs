//! What the samples of a point say about one quantity: the only place where
//! the report makes numbers of numbers.

use crate::measured::{Point, Quantity, Sample, Series, Sweep};
use crate::statistics::{Steadiness, Summary};

/// One quantity at one point of one series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) summary: Summary,
    /// What was measured, by round.
    pub(super) samples: Vec<(u32, f64)>,
    /// Rounds in which it was far from the others.
    pub(super) outliers: Vec<u32>,
    /// Rounds whose run had not settled.
    pub(super) unsteady: Vec<u32>,
}

impl Value {
    /// `None` where nothing was measured.
    pub(super) fn of(point: &Point, quantity: Quantity) -> Option<Value> {
        Value::from(point, |sample| sample.values.get(&quantity).copied())
    }

    /// The latency that all but one in `n` I/Os keep to; of runs with at least
    /// `n` of them.
    pub(super) fn one_in(point: &Point, n: f64) -> Option<Value> {
        Value::from(point, |sample| one_in(sample, n))
    }

    fn from(point: &Point, value: impl Fn(&Sample) -> Option<f64>) -> Option<Value> {
        let with = point.samples.iter().filter_map(|sample| {
            let value = value(sample).filter(|value| value.is_finite())?;
            Some((sample, value))
        });
        let with: Vec<_> = with.collect();
        let values: Vec<_> = with.iter().map(|(_, value)| *value).collect();
        let summary = Summary::of(&values)?;
        let round = |at: &usize| with[*at].0.round;
        let unsteady = with.iter().filter(|(sample, _)| !has_settled(sample));
        Some(Value {
            outliers: summary.outliers.iter().map(round).collect(),
            unsteady: unsteady.map(|(sample, _)| sample.round).collect(),
            samples: with.iter().map(|(s, value)| (s.round, *value)).collect(),
            summary,
        })
    }

    /// How many times as much it is as `base`, round by round.
    pub(super) fn ratio(&self, base: &Value) -> Option<Summary> {
        let (ours, theirs) = self.pairs(base);
        Summary::of_ratios(&ours, &theirs)
    }

    /// How much more it is than `base`, round by round.
    pub(super) fn difference(&self, base: &Value) -> Option<Value> {
        let samples: Vec<_> = self
            .samples
            .iter()
            .filter_map(|(round, ours)| Some((*round, ours - base.at(*round)?)))
            .collect();
        let values: Vec<_> = samples.iter().map(|(_, value)| *value).collect();
        let summary = Summary::of(&values)?;
        Some(Value {
            outliers: summary.outliers.iter().map(|at| samples[*at].0).collect(),
            unsteady: self.unsteady.clone(),
            samples,
            summary,
        })
    }

    fn pairs(&self, base: &Value) -> (Vec<f64>, Vec<f64>) {
        let both = self.samples.iter();
        both.filter_map(|(round, ours)| Some((*ours, base.at(*round)?)))
            .unzip()
    }

    fn at(&self, round: u32) -> Option<f64> {
        let found = self.samples.iter().find(|sample| sample.0 == round);
        found.map(|sample| sample.1)
    }
}

/// Whether more of a quantity is better.
pub(super) fn is_gain(quantity: Quantity) -> bool {
    matches!(quantity, Quantity::Iops | Quantity::BytesPerSecond)
}

/// Whether a run had settled, as far as that can be told.
pub(super) fn has_settled(sample: &Sample) -> bool {
    Steadiness::of(&sample.tenths).is_none_or(|steadiness| steadiness.is_steady())
}

fn one_in(sample: &Sample, n: f64) -> Option<f64> {
    let share = 1.0 - 1.0 / n;
    // Sums of shares are a little off.
    let reached = |(at_most, _): &&(f64, f64)| *at_most >= share - 1e-9;
    let (at_most, us) = *sample.distribution.iter().find(reached)?;
    // All of them says nothing about one in so many where they were fewer.
    let last_but_all = sample
        .distribution
        .iter()
        .rev()
        .find(|(share, _)| *share < 1.0);
    match at_most < 1.0 || last_but_all.is_some_and(|(last, _)| *last >= share - 1e-9) {
        true => Some(us),
        false => None,
    }
}

/// The point of a series at `x`.
pub(super) fn point(series: &Series, x: f64) -> Option<&Point> {
    series.points.iter().find(|point| point.x == x)
}

/// The series of a sweep that is called so.
pub(super) fn series<'a>(sweep: &'a Sweep, name: &str) -> Option<&'a Series> {
    sweep.series.iter().find(|series| series.name == name)
}
