//! From what clients and targets tell to a sample.

use std::time::Instant;

use serde_json::Value;

use super::super::load::Load;
use super::super::measured::{Quantity, Sample};
use super::FigureError;

/// What one client told of its run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSample {
    /// I/Os, or operations, a second.
    pub iops: f64,
    /// I/Os while measuring.
    pub ios: f64,
    /// Payload bytes while measuring.
    pub bytes: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Microseconds: mean, and the percentiles in the order of [`PERCENTILES`].
    pub mean_us: Option<f64>,
    /// See [`ClientSample::mean_us`].
    pub percentiles_us: Vec<(f64, f64)>,
    /// I/Os of each tenth.
    pub tenths: Vec<f64>,
    /// (share, microseconds), ascending.
    pub distribution: Vec<(f64, f64)>,
    /// CPU seconds of the client while measuring.
    pub cpu_s: Option<f64>,
    /// Those in which it did not only look for work.
    pub busy_s: Option<f64>,
}

/// What percentiles are called in a report and in a sample.
pub const PERCENTILES: [(f64, &str, Quantity); 5] = [
    (0.5, "p50_us", Quantity::P50Us),
    (0.99, "p99_us", Quantity::P99Us),
    (0.999, "p99_9_us", Quantity::P999Us),
    (0.9999, "p99_99_us", Quantity::P9999Us),
    (0.99999, "p99_999_us", Quantity::P99999Us),
];

impl ClientSample {
    /// Of a report of `weft perf --json`.
    pub fn parse(text: &str) -> Result<ClientSample, FigureError> {
        let report = json(text)?;
        let total = at(&report, "/total")?;
        let latency = at(total, "/latency")?;
        let seconds = number(&report, "/seconds")?;
        if number(total, "/ios")? == 0.0 {
            return Err(FigureError::Failed("no I/O ended while measuring".into()));
        }
        Ok(ClientSample {
            iops: number(total, "/iops")?,
            ios: number(total, "/ios")?,
            bytes: number(total, "/mb_per_s")? * 1e6 * seconds,
            seconds,
            mean_us: Some(number(latency, "/mean_us")?),
            percentiles_us: percentiles(latency)?,
            tenths: list(&report, "/tenths")?,
            distribution: pairs(&report, "/distribution")?,
            cpu_s: Some(number(&report, "/initiator/cpu_s")?),
            busy_s: Some(number(&report, "/initiator/busy_s")?),
        })
    }

    /// What clients that ran at the same time did together. Percentiles of
    /// several are read from their distributions.
    pub fn together(all: &[ClientSample]) -> ClientSample {
        let [first, others @ ..] = all else {
            return ClientSample::default();
        };
        if others.is_empty() {
            return first.clone();
        }
        let sum = |value: fn(&ClientSample) -> f64| all.iter().map(value).sum::<f64>();
        let sum_of =
            |value: fn(&ClientSample) -> Option<f64>| all.iter().map(value).sum::<Option<f64>>();
        let ios = sum(|told| told.ios);
        let distribution = merged(all);
        let tenths = first.tenths.iter().enumerate().map(|(tenth, _)| {
            let of_all = all.iter().filter_map(|told| told.tenths.get(tenth));
            of_all.sum()
        });
        let percentile = |share: f64| Some((share, value_at(&distribution, share)?));
        ClientSample {
            iops: sum(|told| told.iops),
            ios,
            bytes: sum(|told| told.bytes),
            seconds: sum(|told| told.seconds) / all.len() as f64,
            mean_us: sum_of(|told| Some(told.mean_us? * told.ios)).map(|us| us / ios),
            percentiles_us: PERCENTILES.iter().filter_map(|p| percentile(p.0)).collect(),
            tenths: tenths.collect(),
            cpu_s: sum_of(|told| told.cpu_s),
            busy_s: sum_of(|told| told.busy_s),
            distribution,
        }
    }
}

/// A JSON text.
pub fn json(text: &str) -> Result<Value, FigureError> {
    serde_json::from_str(text).map_err(|error| FigureError::Failed(format!("{error} in {text}")))
}

fn at<'a>(report: &'a Value, path: &str) -> Result<&'a Value, FigureError> {
    let found = report.pointer(path);
    found.ok_or_else(|| FigureError::Failed(format!("no {path} in {report}")))
}

/// The number at a path of a report.
pub fn number(report: &Value, path: &str) -> Result<f64, FigureError> {
    let found = at(report, path)?.as_f64();
    found.ok_or_else(|| FigureError::Failed(format!("{path} is no number in {report}")))
}

/// The numbers at a path of a report.
pub fn list(report: &Value, path: &str) -> Result<Vec<f64>, FigureError> {
    let all = at(report, path)?.as_array().into_iter().flatten();
    let all: Option<Vec<f64>> = all.map(Value::as_f64).collect();
    all.ok_or_else(|| FigureError::Failed(format!("{path} holds more than numbers")))
}

/// The pairs of numbers at a path of a report.
pub fn pairs(report: &Value, path: &str) -> Result<Vec<(f64, f64)>, FigureError> {
    let all = at(report, path)?.as_array().into_iter().flatten();
    let pair = |pair: &Value| Some((pair.get(0)?.as_f64()?, pair.get(1)?.as_f64()?));
    let all: Option<Vec<_>> = all.map(pair).collect();
    all.ok_or_else(|| FigureError::Failed(format!("{path} holds more than pairs of numbers")))
}

/// The percentiles in a summary of latencies.
pub fn percentiles(latency: &Value) -> Result<Vec<(f64, f64)>, FigureError> {
    let all = PERCENTILES.iter().map(|(share, name, _)| {
        let us = number(latency, &format!("/{name}"))?;
        Ok((*share, us))
    });
    all.collect()
}

/// How large a share of the I/Os took at most `us`.
fn share_at(distribution: &[(f64, f64)], us: f64) -> f64 {
    let above = distribution.partition_point(|point| point.1 <= us);
    match (
        above.checked_sub(1).map(|i| distribution[i]),
        distribution.get(above),
    ) {
        (None, _) => 0.0,
        (Some(_), None) => 1.0,
        (Some((low, low_us)), Some((high, high_us))) => {
            low + (high - low) * (us - low_us) / (high_us - low_us)
        }
    }
}

/// Microseconds that `share` of the I/Os took at most.
fn value_at(distribution: &[(f64, f64)], share: f64) -> Option<f64> {
    let above = distribution.partition_point(|point| point.0 < share);
    let (high, high_us) = *distribution.get(above)?;
    let Some((low, low_us)) = above.checked_sub(1).map(|i| distribution[i]) else {
        return Some(high_us);
    };
    Some(low_us + (high_us - low_us) * (share - low) / (high - low))
}

/// The distribution of all I/Os of several clients, each with its weight.
fn merged(all: &[ClientSample]) -> Vec<(f64, f64)> {
    let ios: f64 = all.iter().map(|told| told.ios).sum();
    let mut values: Vec<f64> = all
        .iter()
        .flat_map(|told| told.distribution.iter().map(|point| point.1))
        .collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let share = |us: f64| {
        let weighed = all
            .iter()
            .map(|told| share_at(&told.distribution, us) * told.ios);
        weighed.sum::<f64>() / ios
    };
    values.into_iter().map(|us| (share(us), us)).collect()
}

/// What a target had done at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: Instant,
    /// CPU time of its process, nanoseconds, where it can be seen.
    pub cpu_ns: Option<u64>,
    /// What it counts, where it tells.
    pub counters: Option<Counters>,
}

/// What was seen of a target.
#[derive(Clone, Debug)]
pub struct Looks {
    /// When the clients had begun to measure, and shortly before they ended: what a
    /// second of the load costs. Each is in the middle of some I/Os.
    pub within: [Look; 2],
    /// Before the clients began, and after they had ended: every I/O between them
    /// is counted with all that it costs. `None` with another program's client.
    pub around: Option<[Look; 2]>,
}

/// Of the line that `weft serve` prints when it is asked by SIGUSR1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// I/Os that were done.
    pub ios: f64,
    /// Payload of them.
    pub io_bytes: f64,
    /// System calls on the data path.
    pub syscalls: f64,
    /// Sleeps that ended.
    pub wakeups: f64,
    /// Bytes copied in user space.
    pub copied_bytes: f64,
    /// Allocations, of a program that counts them.
    pub allocations: Option<f64>,
    /// Nanoseconds of looking for work in vain.
    pub spun_ns: f64,
}

impl Counters {
    /// `None` for a line that is something else.
    pub fn parse(line: &str) -> Option<Counters> {
        let line: Value = serde_json::from_str(line).ok()?;
        let count = |name: &str| line.pointer(&format!("/counters/{name}"))?.as_f64();
        Some(Counters {
            ios: count("ios")?,
            io_bytes: count("io_bytes")?,
            syscalls: count("syscalls")?,
            wakeups: count("wakeups")?,
            copied_bytes: count("copied_bytes")?,
            allocations: count("allocations"),
            spun_ns: count("spun_ns")?,
        })
    }
}

/// The sample of a run: what the clients told, and what was seen of the target
/// that has `cores`, while `client_cores` were the clients'. `alone` where no
/// other load was on the target.
pub fn sample(
    told: &ClientSample,
    looks: Option<&Looks>,
    (cores, client_cores): (usize, usize),
    load: &Load,
) -> Sample {
    let mut sample = Sample {
        tenths: told.tenths.clone(),
        ..Sample::default()
    };
    if load.distribution {
        sample.distribution.clone_from(&told.distribution);
    }
    let mut put = |quantity, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            sample.values.insert(quantity, value);
        }
    };
    put(Quantity::Iops, Some(told.iops));
    put(Quantity::MeanUs, told.mean_us);
    for (share, us) in &told.percentiles_us {
        let named = PERCENTILES.iter().find(|named| named.0 == *share);
        // One that hangs on less than one I/O says nothing.
        let is_told = told.ios * (1.0 - share) >= 1.0;
        put(named.expect("one of them").2, is_told.then_some(*us));
    }
    if told.bytes > 0.0 {
        put(Quantity::BytesPerSecond, Some(told.bytes / told.seconds));
        put(
            Quantity::ClientCpuSPerGbit,
            told.cpu_s.and_then(|s| per_gbit(s, told.bytes)),
        );
    }
    let busy = told
        .busy_s
        .map(|s| s / (told.seconds * client_cores as f64));
    put(Quantity::ClientBusy, busy.map(|busy| busy.clamp(0.0, 1.0)));
    if let Some(looks) = looks {
        put_cost(&mut put, told, looks, cores, load);
    }
    sample
}

fn per_gbit(cpu_s: f64, bytes: f64) -> Option<f64> {
    (bytes > 0.0).then(|| cpu_s / (bytes * 8.0 / 1e9))
}

/// What the load cost its target.
fn put_cost(
    put: &mut impl FnMut(Quantity, Option<f64>),
    told: &ClientSample,
    looks: &Looks,
    cores: usize,
    load: &Load,
) {
    // I/Os and bytes between two looks, where the target counts them.
    let counted = |[first, last]: &[Look; 2]| {
        let (first, last) = first.counters.zip(last.counters)?;
        let is_counted = last.ios > first.ios && !load.rw.is_metadata();
        is_counted.then_some((last.ios - first.ios, last.io_bytes - first.io_bytes))
    };
    let around = (looks.around.as_ref()).filter(|around| counted(around).is_some());
    // On a machine that is too busy for us to look in time the load was over by then.
    let window = match (counted(&looks.within), around) {
        (None, Some(around)) => around,
        _ => &looks.within,
    };
    let [first, last] = window;
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let cpu_s = match (first.cpu_ns, last.cpu_ns) {
        (Some(first), Some(last)) => Some(last.saturating_sub(first) as f64 / 1e9),
        _ => None,
    };
    let counts = first.counters.zip(last.counters);
    let spun_s = counts.map_or(0.0, |(first, last)| (last.spun_ns - first.spun_ns) / 1e9);
    let busy = cpu_s.map(|cpu_s| (cpu_s - spun_s) / (seconds * cores as f64));
    put(Quantity::TargetBusy, busy.map(|busy| busy.clamp(0.0, 1.0)));
    if load.beside {
        // Others' I/Os are in all of its counts.
        return;
    }
    let by_client = (told.iops * seconds, told.bytes / told.seconds * seconds);
    let (ios, bytes) = counted(window).unwrap_or(by_client);
    if told.bytes > 0.0 {
        put(
            Quantity::TargetCpuSPerGbit,
            cpu_s.and_then(|s| per_gbit(s, bytes)),
        );
    }
    put(Quantity::TargetCpuUsPerIo, cpu_s.map(|s| s * 1e6 / ios));
    let whole = around.unwrap_or(window);
    let (ios, _) = counted(whole).unwrap_or(by_client);
    if let Some((first, last)) = whole[0].counters.zip(whole[1].counters) {
        let mut per_io = |quantity, value: fn(&Counters) -> f64| {
            put(quantity, Some((value(&last) - value(&first)) / ios));
        };
        per_io(Quantity::SyscallsPerIo, |counters| counters.syscalls);
        per_io(Quantity::WakeupsPerIo, |counters| counters.wakeups);
        per_io(Quantity::CopiedBytesPerIo, |counters| counters.copied_bytes);
        let allocations = last.allocations.zip(first.allocations);
        let allocations = allocations.map(|(last, first)| (last - first) / ios);
        put(Quantity::AllocationsPerIo, allocations);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::catalogue::CATALOGUE;

    const REPORT: &str = r#"{
        "seconds": 2.0,
        "total": { "ios": 2000, "iops": 1000.0, "mb_per_s": 4.096, "latency": {
            "mean_us": 11.0, "p50_us": 10.0, "p99_us": 20.0, "p99_9_us": 30.0,
            "p99_99_us": 40.0, "p99_999_us": 50.0 } },
        "initiator": { "cpu_s": 1.5, "busy_s": 0.5 },
        "tenths": [200, 200, 200, 200, 200, 200, 200, 200, 200, 200],
        "distribution": [[0.0, 5.0], [0.5, 10.0], [1.0, 60.0]]
    }"#;

    fn load() -> Load {
        let sweep = CATALOGUE[0];
        Load {
            distribution: true,
            beside: false,
            rw: client::perf::Rw::RandRead,
            ..sweep.load
        }
    }

    fn look(at: Instant, times: f64) -> Look {
        Look {
            at,
            cpu_ns: Some((times * 1e9) as u64),
            counters: Some(Counters {
                ios: times * 1000.0,
                io_bytes: times * 4_096_000.0,
                syscalls: times * 500.0,
                wakeups: times * 10.0,
                copied_bytes: times * 64_000.0,
                allocations: Some(7.0),
                spun_ns: times * 0.4e9,
            }),
        }
    }

    fn looks(within: [Look; 2]) -> Looks {
        Looks {
            within,
            around: None,
        }
    }

    /// Of 1,000 I/Os with a copy of 64,000 bytes each, ten were not copied yet at the
    /// last look within.
    #[test]
    fn counts_of_an_io_are_of_ios_that_have_ended() {
        let told = ClientSample::parse(REPORT).expect("a report");
        let now = Instant::now();
        let at = |seconds, times| look(now + Duration::from_secs(seconds), times);
        let mut late = at(2, 2.0);
        let counters = late.counters.as_mut().expect("some");
        counters.copied_bytes -= 10.0 * 64.0;
        let looks = Looks {
            within: [at(1, 1.0), late],
            around: Some([at(0, 0.5), at(3, 2.5)]),
        };
        let values = sample(&told, Some(&looks), (1, 2), &load()).values;
        assert_eq!(values[&Quantity::CopiedBytesPerIo], 64.0);
        assert_eq!(values[&Quantity::TargetCpuUsPerIo], 1000.0);
    }

    #[test]
    fn costs_are_known_of_a_load_that_ended_before_the_first_look_within_it() {
        let told = ClientSample::parse(REPORT).expect("a report");
        let now = Instant::now();
        let at = |seconds, times| look(now + Duration::from_secs(seconds), times);
        let looks = Looks {
            within: [at(4, 3.0), at(5, 3.0)],
            around: Some([at(0, 1.0), at(6, 3.0)]),
        };
        let values = sample(&told, Some(&looks), (1, 2), &load()).values;
        assert_eq!(values[&Quantity::CopiedBytesPerIo], 64.0);
        assert_eq!(values[&Quantity::SyscallsPerIo], 0.5);
        assert_eq!(values[&Quantity::TargetCpuUsPerIo], 1000.0);
    }

    #[test]
    fn a_sample_has_what_client_and_target_told() {
        let told = ClientSample::parse(REPORT).expect("a report");
        let now = Instant::now();
        let looks = looks([look(now, 1.0), look(now + Duration::from_secs(1), 2.0)]);
        let sample = sample(&told, Some(&looks), (1, 2), &load());
        let is = |quantity, wanted: f64| {
            let value = sample.values.get(&quantity).copied();
            let value = value.unwrap_or_else(|| panic!("no {quantity:?}"));
            assert!(
                (value - wanted).abs() <= wanted * 1e-6,
                "{quantity:?} {value}"
            );
        };
        is(Quantity::Iops, 1000.0);
        is(Quantity::BytesPerSecond, 4_096_000.0);
        is(Quantity::MeanUs, 11.0);
        is(Quantity::P999Us, 30.0);
        // 8.192 MB are 0.065536 Gbit.
        is(Quantity::ClientCpuSPerGbit, 1.5 / 0.065_536);
        is(Quantity::ClientBusy, 0.5 / 4.0);
        is(Quantity::TargetCpuSPerGbit, 1.0 / 0.032_768);
        is(Quantity::TargetCpuUsPerIo, 1000.0);
        is(Quantity::TargetBusy, 0.6);
        is(Quantity::SyscallsPerIo, 0.5);
        is(Quantity::WakeupsPerIo, 0.01);
        is(Quantity::CopiedBytesPerIo, 64.0);
        is(Quantity::AllocationsPerIo, 0.0);
        // 2,000 I/Os have no one in 10,000.
        assert!(!sample.values.contains_key(&Quantity::P9999Us));
        assert_eq!(sample.tenths, [200.0; 10]);
        assert_eq!(sample.distribution.len(), 3);
    }

    #[test]
    fn others_on_the_target_leave_its_counts_out() {
        let told = ClientSample::parse(REPORT).expect("a report");
        let now = Instant::now();
        let looks = looks([look(now, 1.0), look(now + Duration::from_secs(1), 2.0)]);
        let beside = Load {
            beside: true,
            distribution: false,
            ..load()
        };
        let sample = sample(&told, Some(&looks), (1, 2), &beside);
        assert!(sample.values.contains_key(&Quantity::TargetBusy));
        assert!(!sample.values.contains_key(&Quantity::TargetCpuUsPerIo));
        assert!(sample.distribution.is_empty());
    }

    #[test]
    fn hosts_are_added_up_and_their_distributions_weighed() {
        let one = ClientSample::parse(REPORT).expect("a report");
        let slow = |point: &(f64, f64)| (point.0, point.1 + 100.0);
        let other = ClientSample {
            ios: 6000.0,
            distribution: one.distribution.iter().map(slow).collect(),
            ..one.clone()
        };
        let both = ClientSample::together(&[one, other]);
        assert_eq!((both.iops, both.ios, both.seconds), (2000.0, 8000.0, 2.0));
        assert_eq!((both.tenths[9], both.cpu_s), (400.0, Some(3.0)));
        // A quarter took at most 60 us; the half of all is a third of the others.
        let p50 = both.percentiles_us[0];
        assert_eq!(p50.0, 0.5);
        assert!((p50.1 - (105.0 + 5.0 * 2.0 / 3.0)).abs() < 1e-6, "{p50:?}");
        assert_eq!(both.distribution.last(), Some(&(1.0, 160.0)));
    }

    #[test]
    fn only_a_line_of_counters_is_one() {
        assert_eq!(Counters::parse("stopping"), None);
        assert_eq!(Counters::parse("{\"counters\": {\"ios\": 1}}"), None);
        let line = "{\"counters\": {\"ios\":1,\"io_bytes\":2,\"syscalls\":3,\"wakeups\":4,\
                    \"copied_bytes\":5,\"allocations\":6,\"spun_ns\":7}}";
        let counters = Counters::parse(line).expect("counters");
        assert_eq!((counters.spun_ns, counters.allocations), (7.0, Some(6.0)));
        // What counts none says so.
        let line = line.replace("\"allocations\":6", "\"allocations\":null");
        let counters = Counters::parse(&line).expect("counters");
        assert_eq!(counters.allocations, None);
    }
}
