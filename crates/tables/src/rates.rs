//! What happened between two looks at the figures.

use std::collections::BTreeMap;

use api::{FigureOp, FigureRates, FigureSample, Figures, OpFigures, Protocol, TimeFigures};

type OpsByKind = BTreeMap<FigureOp, OpFigures>;

/// What all volumes and exports did until then.
#[must_use]
pub fn sample_of(figures: &Figures) -> FigureSample {
    let mut sample = FigureSample {
        uptime_ns: figures.uptime_ns,
        ..FigureSample::default()
    };
    for op in figures
        .volumes
        .iter()
        .flat_map(|volume| volume.ops.values())
    {
        sample.ios += op.count;
        sample.bytes += op.bytes;
        sample.errors += op.errors;
        add_times(&mut sample.times, &op.times);
    }
    sample
}

/// Counts the times of both in one.
pub fn add_times(to: &mut TimeFigures, more: &TimeFigures) {
    to.sum_ns += more.sum_ns;
    let len = to.buckets.len().max(more.buckets.len());
    to.buckets.resize(len, 0);
    for (to, more) in to.buckets.iter_mut().zip(&more.buckets) {
        *to += more;
    }
}

/// The times that came after those of `before`; of what began anew all.
#[must_use]
pub fn times_between(before: &TimeFigures, after: &TimeFigures) -> TimeFigures {
    let counted = |at: usize| before.buckets.get(at).copied().unwrap_or(0);
    let buckets = after.buckets.iter().enumerate();
    TimeFigures {
        sum_ns: after.sum_ns.saturating_sub(before.sum_ns),
        buckets: buckets
            .map(|(at, count)| count.saturating_sub(counted(at)))
            .collect(),
    }
}

/// The bound that so many of 1000 times do not exceed; `None` where there is no time. What is
/// above the last bound is told as that.
#[must_use]
pub fn percentile(bounds_ns: &[u64], times: &TimeFigures, of_1000: u64) -> Option<u64> {
    let all = times.count();
    if all == 0 {
        return None;
    }
    let wanted = (all * of_1000).div_ceil(1000).max(1);
    let mut seen = 0;
    let at = times.buckets.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    at.and_then(|at| bounds_ns.get(at))
        .or(bounds_ns.last())
        .copied()
}

/// A count between two looks, each second.
#[must_use]
pub fn per_second(before: u64, after: u64, over_ns: u64) -> u64 {
    let count = u128::from(after.saturating_sub(before)) * 1_000_000_000;
    (count / u128::from(over_ns.max(1))) as u64
}

/// What each volume and export did between two looks.
#[must_use]
pub fn volume_rates(before: &Figures, after: &Figures) -> Vec<FigureRates> {
    let then = before.volumes.iter();
    let then = then.map(|one| ((&*one.volume, one.protocol), &one.ops));
    let now = after.volumes.iter();
    let now = now.map(|one| ((&*one.volume, one.protocol), &one.ops));
    rates(then, now, before, after)
}

/// What each host did between two looks.
#[must_use]
pub fn host_rates(before: &Figures, after: &Figures) -> Vec<FigureRates> {
    let then = before.hosts.iter();
    let then = then.map(|one| ((&*one.host, one.protocol), &one.ops));
    let now = after.hosts.iter();
    let now = now.map(|one| ((&*one.host, one.protocol), &one.ops));
    rates(then, now, before, after)
}

type Named<'a> = ((&'a str, Protocol), &'a OpsByKind);

fn rates<'a>(
    then: impl Iterator<Item = Named<'a>>,
    now: impl Iterator<Item = Named<'a>>,
    before: &Figures,
    after: &Figures,
) -> Vec<FigureRates> {
    let then: BTreeMap<_, _> = then.collect();
    let over_ns = after.uptime_ns.saturating_sub(before.uptime_ns);
    let none = OpsByKind::new();
    let one = |(name, ops): Named| {
        let old = then.get(&name).copied().unwrap_or(&none);
        let each = |of: fn(&OpFigures) -> u64, kind: Option<FigureOp>| {
            let sum = |ops: &OpsByKind| -> u64 {
                let ops = ops
                    .iter()
                    .filter(|(own, _)| kind.is_none_or(|kind| **own == kind));
                ops.map(|(_, op)| of(op)).sum()
            };
            per_second(sum(old), sum(ops), over_ns)
        };
        let times = |ops: &OpsByKind| {
            let mut all = TimeFigures::default();
            ops.values().for_each(|op| add_times(&mut all, &op.times));
            all
        };
        let times = times_between(&times(old), &times(ops));
        let percentile = |of_1000| percentile(&after.bounds_ns, &times, of_1000);
        FigureRates {
            name: name.0.to_owned(),
            protocol: name.1,
            reads: each(|op| op.count, Some(FigureOp::Read)),
            writes: each(|op| op.count, Some(FigureOp::Write)),
            bytes: each(|op| op.bytes, None),
            errors: each(|op| op.errors, None),
            p50_ns: percentile(500),
            p99_ns: percentile(990),
            p999_ns: percentile(999),
        }
    };
    now.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds_of_what_came_between_two_looks() {
        let times = |buckets: &[u64]| TimeFigures {
            sum_ns: 0,
            buckets: buckets.to_vec(),
        };
        let between = times_between(&times(&[5, 5]), &times(&[5, 95, 9, 1]));
        assert_eq!(between, times(&[0, 90, 9, 1]));
        let bounds = [10, 20, 40];
        let told = [500, 990, 999].map(|of| percentile(&bounds, &between, of));
        assert_eq!(told, [Some(20), Some(40), Some(40)]);
        assert_eq!(percentile(&bounds, &times(&[0, 0]), 500), None);
        assert_eq!(per_second(100, 350, 10_000_000_000), 25);
        // Counts that began anew have no difference.
        assert_eq!(per_second(100, 50, 1), 0);
    }
}
