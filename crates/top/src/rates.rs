//! Differences of what was counted.

use std::collections::BTreeMap;

use api::{FigureOp, OpFigures, StageTime, TimeFigures};
use serde::Serialize;
use tables::{add_times, times_between};

/// I/Os of one kind, by operation.
pub(crate) type Ops = BTreeMap<FigureOp, OpFigures>;

/// What is done in a second, and how long it takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    pub others_per_s: f64,
    pub read_bytes_per_s: f64,
    pub written_bytes_per_s: f64,
    pub errors_per_s: f64,
    /// How much an I/O reads or writes that does.
    pub bytes_per_io: Option<u64>,
    /// How long reads take, in the mean,
    pub read_ns: Option<u64>,
    /// and writes.
    pub write_ns: Option<u64>,
    /// Of all I/Os.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
}

impl Rates {
    pub fn ios_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s + self.others_per_s
    }

    pub fn bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s + self.written_bytes_per_s
    }

    /// From a look to the next, so many seconds later; times are those since an earlier one.
    pub fn of(now: &Ops, before: &Ops, earlier: &Ops, (seconds, bounds): (f64, &[u64])) -> Rates {
        let change = |op, of: fn(&OpFigures) -> u64| {
            let at = |ops: &Ops| ops.get(&op).map_or(0, of);
            at(now).saturating_sub(at(before))
        };
        let per_s = |count: u64| count as f64 / seconds;
        let count = |op| change(op, |of| of.count);
        let bytes = |op| change(op, |of| of.bytes);
        let all = [
            FigureOp::Read,
            FigureOp::Write,
            FigureOp::Flush,
            FigureOp::Other,
        ];
        let times = all.map(|op| {
            let at = |ops: &Ops| ops.get(&op).map(|of| of.times.clone()).unwrap_or_default();
            times_between(&at(earlier), &at(now))
        });
        let mut together = TimeFigures::default();
        times
            .iter()
            .for_each(|times| add_times(&mut together, times));
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
            p50_ns: quantile(&together, bounds, 0.5),
            p99_ns: quantile(&together, bounds, 0.99),
            p999_ns: quantile(&together, bounds, 0.999),
        }
    }
}

/// What a command waits for, in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WaitTimes {
    /// For its data.
    pub receive_ns: u64,
    /// For its turn, for memory, for others of its order.
    pub queue_ns: u64,
    /// For its volume or file system.
    pub backend_ns: u64,
    /// For its answer to be sent.
    pub send_ns: u64,
}

impl WaitTimes {
    /// From an earlier look on.
    pub fn of(now: &[StageTime], earlier: &[StageTime]) -> WaitTimes {
        let at = |all: &[StageTime], name: &str| {
            let found = all.iter().find(|stage| stage.stage == name);
            found.map(|stage| stage.times.clone()).unwrap_or_default()
        };
        let of = |name: &str| times_between(&at(earlier, name), &at(now, name));
        let commands = of("backend").count().max(1);
        let ns = |names: &[&str]| {
            let sum: u64 = names.iter().map(|name| of(name).sum_ns).sum();
            sum / commands
        };
        WaitTimes {
            receive_ns: ns(&["receive"]),
            queue_ns: ns(&["parse", "queue"]),
            backend_ns: ns(&["backend"]),
            send_ns: ns(&["reply", "send"]),
        }
    }

    /// As a bar of so many letters: r, q, b and s, as long as each waits.
    pub fn bar(self, width: u64) -> String {
        let all = [
            ('r', self.receive_ns),
            ('q', self.queue_ns),
            ('b', self.backend_ns),
            ('s', self.send_ns),
        ];
        let sum: u64 = all.iter().map(|(_, ns)| ns).sum();
        let (mut bar, mut so_far) = (String::new(), 0);
        for (letter, ns) in all {
            let end = |ns: u64| (ns * width + sum / 2).checked_div(sum).unwrap_or(0);
            let length = end(so_far + ns) - end(so_far);
            so_far += ns;
            bar.extend((0..length).map(|_| letter));
        }
        bar
    }
}

fn mean(times: &TimeFigures) -> Option<u64> {
    times.sum_ns.checked_div(times.count())
}

/// The time that a part of all does not exceed: between the bounds of its bucket as far as
/// it is into it, and for what is beyond the last bound that one.
fn quantile(times: &TimeFigures, bounds: &[u64], part: f64) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[u64] = &[512, 1024, 2048];

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
                times: times(buckets, sum_ns),
            };
            Ops::from([(FigureOp::Write, figures)])
        };
        let (earlier, before) = (ops(10, 0, 0, &[1], 100), ops(20, 4096, 1, &[1], 100));
        let now = ops(40, 4096 * 11, 5, &[1, 2], 1700);
        let rates = Rates::of(&now, &before, &earlier, (2.0, BOUNDS));
        assert_eq!((rates.writes_per_s, rates.ios_per_s()), (10.0, 10.0));
        assert_eq!(rates.written_bytes_per_s, 20480.0);
        assert_eq!((rates.errors_per_s, rates.bytes_per_io), (2.0, Some(2048)));
        assert_eq!((rates.write_ns, rates.read_ns), (Some(800), None));
        assert_eq!((rates.p50_ns, rates.p99_ns), (Some(768), Some(1024)));
        let anew = Rates::of(&ops(3, 0, 0, &[], 0), &now, &now, (1.0, BOUNDS));
        assert_eq!(anew, Rates::default(), "counts that are less began anew");
    }

    #[test]
    fn bar_has_the_letters_of_each_wait_in_proportion_and_is_empty_without_any() {
        assert_eq!(WaitTimes::default().bar(10), "");
        let waits = WaitTimes {
            receive_ns: 10,
            queue_ns: 20,
            backend_ns: 60,
            send_ns: 10,
        };
        assert_eq!(waits.bar(10), "rqqbbbbbbs");
        let one = WaitTimes {
            send_ns: 1,
            ..WaitTimes::default()
        };
        assert_eq!(one.bar(4), "ssss");
    }
}
