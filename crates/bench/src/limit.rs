//! What was the bottleneck at a point: rules over medians.
//!
//! 1. Memory, where cold payload alone slows bare sockets down (the cold ceiling
//!    reaches less than 0.85 of the hot one) and what is judged is about as fast as
//!    the cold ceiling (0.90 of it or more).
//! 2. Otherwise the side that worked 0.90 of the time or more: target or client,
//!    whichever worked more.
//! 3. Otherwise, where both told how much they worked: what was outstanding, or
//!    what an open loop asked for.
//! 4. Otherwise it is not known.

use super::measured::{Limit, Point, Quantity};
use super::statistics::Summary;

/// Working so much of the time is as much as there is.
const FULL: f64 = 0.90;
/// So much of the ceiling is as much as it gives.
const AT_CEILING: f64 = 0.90;
/// Less of the hot ceiling than this is memory's doing.
const COLD: f64 = 0.85;

/// The ceilings at the same place, where they were measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ceilings<'a> {
    /// Payload in the cache.
    pub hot: Option<&'a Point>,
    /// Payload all over memory.
    pub cold: Option<&'a Point>,
}

/// The median of a quantity at a point.
#[must_use]
pub fn median(point: &Point, quantity: Quantity) -> Option<f64> {
    let values = point
        .samples
        .iter()
        .filter_map(|sample| sample.values.get(&quantity));
    let values: Vec<_> = values.copied().collect();
    Summary::of(&values).map(|summary| summary.median)
}

/// What was the bottleneck at `point`.
#[must_use]
pub fn limit(point: &Point, ceilings: Ceilings<'_>) -> Limit {
    let rate = |point: Option<&Point>| point.and_then(|point| median(point, Quantity::Iops));
    if let (Some(own), Some(hot), Some(cold)) =
        (rate(Some(point)), rate(ceilings.hot), rate(ceilings.cold))
        && cold < COLD * hot
        && (AT_CEILING * cold..AT_CEILING * hot).contains(&own)
    {
        return Limit::Memory;
    }
    let target = median(point, Quantity::TargetBusy);
    let client = median(point, Quantity::ClientBusy);
    let is_full = |busy: Option<f64>| busy.is_some_and(|busy| busy >= FULL);
    match (is_full(target), is_full(client)) {
        (true, true) if client > target => Limit::ClientCores,
        (true, _) => Limit::TargetCores,
        (_, true) => Limit::ClientCores,
        _ if target.is_some() && client.is_some() => Limit::Outstanding,
        _ => Limit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Sample;

    fn point(iops: f64, busy: Option<(f64, f64)>) -> Point {
        // The median is what counts, not the middle of the extremes.
        let sample = |round, factor: f64| {
            let mut values = std::collections::BTreeMap::from([(Quantity::Iops, iops * factor)]);
            if let Some((target, client)) = busy {
                values.insert(Quantity::TargetBusy, target * factor);
                values.insert(Quantity::ClientBusy, client * factor);
            }
            Sample {
                round,
                values,
                ..Sample::default()
            }
        };
        Point {
            x: 4096.0,
            label: "4k".into(),
            samples: vec![sample(0, 0.1), sample(1, 1.0), sample(2, 1.01)],
            limit: Limit::Unknown,
            commands: Vec::new(),
        }
    }

    #[test]
    fn the_bottleneck_is_named_by_the_rules() {
        let rows = [
            // own rate, hot, cold, (target, client), limit
            (80.0, 100.0, 70.0, Some((1.0, 0.5)), Limit::Memory),
            (63.0, 100.0, 70.0, Some((1.0, 0.5)), Limit::Memory),
            (62.0, 100.0, 70.0, Some((1.0, 0.5)), Limit::TargetCores),
            // Cold payload costs nothing: it was not memory.
            (63.0, 100.0, 90.0, Some((0.95, 0.5)), Limit::TargetCores),
            // As fast as from the cache: it was not memory either.
            (95.0, 100.0, 70.0, Some((0.95, 0.5)), Limit::TargetCores),
            (50.0, 100.0, 90.0, Some((0.5, 0.95)), Limit::ClientCores),
            (50.0, 100.0, 90.0, Some((0.92, 0.95)), Limit::ClientCores),
            (50.0, 100.0, 90.0, Some((0.95, 0.92)), Limit::TargetCores),
            (50.0, 100.0, 90.0, Some((0.89, 0.89)), Limit::Outstanding),
            (50.0, 100.0, 90.0, None, Limit::Unknown),
        ];
        for (own, hot, cold, busy, expected) in rows {
            let (hot, cold) = (point(hot, None), point(cold, None));
            let ceilings = Ceilings {
                hot: Some(&hot),
                cold: Some(&cold),
            };
            let found = limit(&point(own, busy), ceilings);
            assert_eq!(found, expected, "{own} of {busy:?}");
        }
    }

    #[test]
    fn without_ceilings_the_busy_side_is_named() {
        let alone = |busy| limit(&point(50.0, busy), Ceilings::default());
        assert_eq!(alone(Some((0.95, 0.2))), Limit::TargetCores);
        assert_eq!(alone(Some((0.3, 0.2))), Limit::Outstanding);
        assert_eq!(alone(None), Limit::Unknown);
    }
}
