//! What happened between two looks at the figures.

use std::collections::BTreeMap;

use api::{FigureOp, FigureSample, Figures, OpFigures, Protocol, TimeFigures};
use serde::Serialize;

/// I/Os of one kind, by operation.
pub type Ops = BTreeMap<FigureOp, OpFigures>;

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

/// A count between two looks, each second.
#[must_use]
pub fn per_second(before: u64, after: u64, over_ns: u64) -> u64 {
    let count = u128::from(after.saturating_sub(before)) * 1_000_000_000;
    (count / u128::from(over_ns.max(1))) as u64
}

/// What is done in a second, and how long it takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Reads that succeeded.
    pub reads_per_s: f64,
    /// Writes.
    pub writes_per_s: f64,
    /// All else.
    pub others_per_s: f64,
    /// Bytes that were read.
    pub read_bytes_per_s: f64,
    /// Bytes that were written.
    pub written_bytes_per_s: f64,
    /// I/Os that failed.
    pub errors_per_s: f64,
    /// How much an I/O reads or writes that does.
    pub bytes_per_io: Option<u64>,
    /// How long reads take, in the mean,
    pub read_ns: Option<u64>,
    /// and writes.
    pub write_ns: Option<u64>,
    /// Half of all I/Os took no longer; `None`: none was timed.
    pub p50_ns: Option<u64>,
    /// 99 of 100.
    pub p99_ns: Option<u64>,
    /// 999 of 1000.
    pub p999_ns: Option<u64>,
    /// The slowest of those that were timed.
    pub slowest: Option<Slowest>,
    /// The sizes of those that were read or written, the smallest first.
    pub by_size: Vec<SizeRates>,
}

/// The slowest I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slowest {
    /// What it did.
    pub op: FigureOp,
    /// It took no longer: the bound of its bucket.
    pub ns: u64,
}

/// I/Os of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeRates {
    /// None is larger, and all are above the size before; `None`: they are above all bounds.
    pub bytes_max: Option<u64>,
    /// Reads that succeeded.
    pub reads_per_s: f64,
    /// Writes.
    pub writes_per_s: f64,
}

/// By what differences become rates.
#[derive(Clone, Copy, Debug)]
pub struct Scale<'a> {
    /// The time between two looks.
    pub seconds: f64,
    /// The upper bounds of the buckets of times.
    pub bounds_ns: &'a [u64],
    /// Those of sizes.
    pub size_bounds: &'a [u64],
}

impl Scale<'_> {
    /// Of figures, so many seconds after others of the same process.
    #[must_use]
    pub fn of(figures: &Figures, seconds: f64) -> Scale<'_> {
        Scale {
            seconds,
            bounds_ns: &figures.bounds_ns,
            size_bounds: &figures.size_bounds,
        }
    }
}

impl Rates {
    /// I/Os of all kinds.
    #[must_use]
    pub fn ios_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s + self.others_per_s
    }

    /// Bytes of both.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s + self.written_bytes_per_s
    }

    /// From a look to the next; times are those since an earlier one.
    #[must_use]
    pub fn of(now: &Ops, before: &Ops, earlier: &Ops, scale: Scale<'_>) -> Rates {
        let change = |op, of: fn(&OpFigures) -> u64| {
            let at = |ops: &Ops| ops.get(&op).map_or(0, of);
            at(now).saturating_sub(at(before))
        };
        let per_s = |count: u64| count as f64 / scale.seconds;
        let count = |op| change(op, |of| of.count);
        let bytes = |op| change(op, |of| of.bytes);
        let all = FigureOp::ALL;
        let times = all.map(|op| {
            let at = |ops: &Ops| ops.get(&op).map(|of| of.times.clone()).unwrap_or_default();
            times_between(&at(earlier), &at(now))
        });
        let mut together = TimeFigures::default();
        times
            .iter()
            .for_each(|times| add_times(&mut together, times));
        let part = |part| quantile(&together, scale.bounds_ns, part);
        let slowest = all.into_iter().zip(&times).filter_map(|(op, times)| {
            let ns = quantile(times, scale.bounds_ns, 1.0)?;
            Some(Slowest { op, ns })
        });
        let moved = count(FigureOp::Read) + count(FigureOp::Write);
        let moved_bytes = bytes(FigureOp::Read) + bytes(FigureOp::Write);
        Rates {
            reads_per_s: per_s(count(FigureOp::Read)),
            writes_per_s: per_s(count(FigureOp::Write)),
            others_per_s: per_s(count(FigureOp::Flush) + count(FigureOp::Other)),
            read_bytes_per_s: per_s(bytes(FigureOp::Read)),
            written_bytes_per_s: per_s(bytes(FigureOp::Write)),
            errors_per_s: per_s(all.map(|op| change(op, |of| of.errors)).iter().sum()),
            bytes_per_io: moved_bytes.checked_div(moved),
            read_ns: mean(&times[0]),
            write_ns: mean(&times[1]),
            p50_ns: part(0.5),
            p99_ns: part(0.99),
            p999_ns: part(0.999),
            slowest: slowest.max_by_key(|slowest| slowest.ns),
            by_size: by_size(now, before, scale),
        }
    }
}

/// The sizes that were read or written between two looks.
fn by_size(now: &Ops, before: &Ops, scale: Scale<'_>) -> Vec<SizeRates> {
    let per_s = |op, at: usize| {
        let count = |ops: &Ops| ops.get(&op).and_then(|of| of.sizes.get(at).copied());
        let count = |ops: &Ops| count(ops).unwrap_or(0);
        count(now).saturating_sub(count(before)) as f64 / scale.seconds
    };
    let all = (0..=scale.size_bounds.len()).map(|at| SizeRates {
        bytes_max: scale.size_bounds.get(at).copied(),
        reads_per_s: per_s(FigureOp::Read, at),
        writes_per_s: per_s(FigureOp::Write, at),
    });
    all.filter(|size| size.reads_per_s + size.writes_per_s > 0.0)
        .collect()
}

fn mean(times: &TimeFigures) -> Option<u64> {
    times.sum_ns.checked_div(times.count())
}

/// The time that a part of all does not exceed: between the bounds of its bucket as far as
/// it is into it, and for what is beyond the last bound that one.
#[must_use]
pub fn quantile(times: &TimeFigures, bounds: &[u64], part: f64) -> Option<u64> {
    let count = times.count();
    let rank = ((count as f64 * part).ceil() as u64).max(1);
    let mut below = 0;
    for (at, of_bucket) in times.buckets.iter().enumerate() {
        if below + of_bucket >= rank {
            let low = at
                .checked_sub(1)
                .map_or(0, |at| bounds[at.min(bounds.len() - 1)]);
            let high = bounds.get(at).copied().unwrap_or(low);
            let into = (rank - below) as f64 / *of_bucket as f64;
            return Some(low + ((high - low) as f64 * into) as u64);
        }
        below += of_bucket;
    }
    None
}

/// What a volume, an export or a host does.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRates {
    /// The volume, the path of the export, or the host.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// What it does.
    pub rates: Rates,
}

/// What each volume and export did between two looks.
#[must_use]
pub fn volume_rates(before: &Figures, after: &Figures) -> Vec<NamedRates> {
    fn named(figures: &Figures) -> impl Iterator<Item = Named<'_>> {
        let volumes = figures.volumes.iter();
        volumes.map(|one| ((&*one.volume, one.protocol), &one.ops))
    }
    named_rates((before, named(before)), (after, named(after)))
}

/// What each host did between two looks.
#[must_use]
pub fn host_rates(before: &Figures, after: &Figures) -> Vec<NamedRates> {
    fn named(figures: &Figures) -> impl Iterator<Item = Named<'_>> {
        let hosts = figures.hosts.iter();
        hosts.map(|one| ((&*one.host, one.protocol), &one.ops))
    }
    named_rates((before, named(before)), (after, named(after)))
}

type Named<'a> = ((&'a str, Protocol), &'a Ops);

fn named_rates<'a>(
    (before, then): (&Figures, impl Iterator<Item = Named<'a>>),
    (after, now): (&Figures, impl Iterator<Item = Named<'a>>),
) -> Vec<NamedRates> {
    let then: BTreeMap<_, _> = then.collect();
    let over_ns = after.uptime_ns.saturating_sub(before.uptime_ns);
    let scale = Scale::of(after, over_ns.max(1) as f64 / 1e9);
    let none = Ops::new();
    let one = |(name, ops): Named| {
        let old = then.get(&name).copied().unwrap_or(&none);
        let (name, protocol) = (name.0.to_owned(), name.1);
        NamedRates {
            name,
            protocol,
            rates: Rates::of(ops, old, old, scale),
        }
    };
    now.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[u64] = &[512, 1024, 2048];

    fn scale(seconds: f64) -> Scale<'static> {
        Scale {
            seconds,
            bounds_ns: BOUNDS,
            size_bounds: BOUNDS,
        }
    }

    fn times(buckets: &[u64], sum_ns: u64) -> TimeFigures {
        TimeFigures {
            sum_ns,
            buckets: buckets.to_vec(),
        }
    }

    #[test]
    fn quantile_lies_between_the_bounds_of_its_bucket() {
        let of = |buckets: &[u64], part| quantile(&times(buckets, 0), BOUNDS, part);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[0, 0], 0.5), None);
        assert_eq!(of(&[1], 0.5), Some(512));
        assert_eq!(of(&[0, 4], 0.5), Some(768));
        assert_eq!(of(&[99, 1], 0.99), Some(512));
        assert_eq!(of(&[99, 1], 0.999), Some(1024));
        assert_eq!(of(&[0, 0, 0, 7], 0.5), Some(2048), "beyond the last bound");
    }

    #[test]
    fn rates_are_differences_by_time_and_times_those_since_the_earlier_look() {
        let ops = |count, bytes, errors, buckets: &[u64], sum_ns| {
            let figures = OpFigures {
                count,
                bytes,
                errors,
                sizes: vec![0, count, 0, count],
                times: times(buckets, sum_ns),
            };
            Ops::from([(FigureOp::Write, figures)])
        };
        let (earlier, before) = (ops(10, 0, 0, &[1], 100), ops(20, 4096, 1, &[1], 100));
        let now = ops(40, 4096 * 11, 5, &[1, 2], 1700);
        let rates = Rates::of(&now, &before, &earlier, scale(2.0));
        assert_eq!((rates.writes_per_s, rates.ios_per_s()), (10.0, 10.0));
        assert_eq!(rates.written_bytes_per_s, 20480.0);
        assert_eq!((rates.errors_per_s, rates.bytes_per_io), (2.0, Some(2048)));
        assert_eq!((rates.write_ns, rates.read_ns), (Some(800), None));
        assert_eq!((rates.p50_ns, rates.p99_ns), (Some(768), Some(1024)));
        let (op, ns) = (FigureOp::Write, 1024);
        assert_eq!(rates.slowest, Some(Slowest { op, ns }));
        let size = |bytes_max| SizeRates {
            bytes_max,
            reads_per_s: 0.0,
            writes_per_s: 10.0,
        };
        assert_eq!(rates.by_size, [size(Some(1024)), size(None)]);
        let anew = Rates::of(&ops(3, 0, 0, &[], 0), &now, &now, scale(1.0));
        assert_eq!(anew, Rates::default(), "counts that are less began anew");
    }

    #[test]
    fn counts_of_two_looks_have_a_difference_unless_they_began_anew() {
        let between = times_between(&times(&[5, 5], 0), &times(&[5, 95, 9, 1], 0));
        assert_eq!(between, times(&[0, 90, 9, 1], 0));
        assert_eq!(per_second(100, 350, 10_000_000_000), 25);
        // Counts that began anew have no difference.
        assert_eq!(per_second(100, 50, 1), 0);
    }
}
