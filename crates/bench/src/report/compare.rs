//! Two runs beside each other, point by point.

use std::fmt::Write as _;

use super::numbers::{short, shown};
use super::table::range;
use super::values::{self, Value, is_gain};
use crate::catalogue::{CATALOGUE, SweepSpec};
use crate::measured::{Measured, Quantity, Series, Sweep};

/// What became of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberChange {
    Better,
    Worse,
    /// The intervals around the medians overlap.
    InNoise,
}

impl NumberChange {
    fn of(quantity: Quantity, before: &Value, after: &Value) -> NumberChange {
        let (was, is) = (before.summary.interval, after.summary.interval);
        match (is.0 > was.1, is.1 < was.0) {
            (false, false) => NumberChange::InNoise,
            (is_more, _) if is_more == is_gain(quantity) => NumberChange::Better,
            _ => NumberChange::Worse,
        }
    }

    fn word(self) -> &'static str {
        match self {
            NumberChange::Better => "better",
            NumberChange::Worse => "worse",
            NumberChange::InNoise => "within the noise",
        }
    }
}

/// The main quantity of each point that both runs have, a line each, and how many
/// changed.
#[must_use]
pub fn compare(before: &Measured, after: &Measured) -> String {
    let mut text = String::new();
    let mut counts = [0; 3];
    for spec in CATALOGUE {
        let of = |measured: &'_ Measured| {
            let found = measured.sweeps.iter().find(|sweep| sweep.name == spec.name);
            found.cloned()
        };
        if let (Some(before), Some(after)) = (of(before), of(after)) {
            sweep(&mut text, &mut counts, spec, (&before, &after));
        }
    }
    let [better, worse, noise] = counts;
    let all = better + worse + noise;
    let _ = writeln!(
        text,
        "{all} points in both runs: {better} better, {worse} worse, {noise} within the noise"
    );
    text
}

fn sweep(
    text: &mut String,
    counts: &mut [u64; 3],
    spec: &SweepSpec,
    (before, after): (&Sweep, &Sweep),
) {
    let quantity = spec.charts[0].y;
    for now in &after.series {
        let Some(was) = values::series(before, &now.name) else {
            continue;
        };
        let value = |series: &Series, x| Value::of(values::point(series, x)?, quantity);
        for point in &now.points {
            let both = value(was, point.x).zip(value(now, point.x));
            let Some((was, is)) = both else { continue };
            let change = NumberChange::of(quantity, &was, &is);
            counts[change as usize] += 1;
            let number = |value: &Value| {
                let median = shown(quantity).number(value.summary.median);
                let range = range(&value.summary, |value| shown(quantity).number(value));
                format!("{median} ({range})")
            };
            let _ = writeln!(
                text,
                "{}/{}/{}: {}: {} -> {}, x{}: {}",
                spec.name,
                now.name,
                point.label,
                shown(quantity).label(),
                number(&was),
                number(&is),
                short(is.summary.median / was.summary.median),
                change.word()
            );
        }
    }
}
