//! An invented run of the whole catalogue: numbers of plausible sizes, with
//! everything that can be missing or odd.

use std::collections::BTreeMap;

use random::Random;

use crate::catalogue::{CATALOGUE, ChartKind, SeriesSpec, SweepSpec};
use crate::measured::{
    Effort, FORMAT, Limit, Measured, Point, Provenance, Quantity, Sample, Series, SeriesRole,
    Skipped, Sweep,
};

/// A series that is nowhere measured and has its reason.
pub const ABSENT: &str = "tgtd";
/// A series that has no sample at its first point, in `nvme-read`.
pub const GAP: &str = "epoll";
/// What would be markup.
pub const EVIL: &str = "<script>alert('1' & \"2\")</script>";

/// A run with so many rounds.
pub fn measured(effort: Effort, rounds: u32) -> Measured {
    let mut random = Random::new(6);
    let sweeps = CATALOGUE
        .iter()
        .map(|spec| sweep(spec, effort, rounds, &mut random));
    let mut measured = Measured {
        format: FORMAT,
        effort,
        provenance: provenance(),
        sweeps: sweeps.collect(),
        skipped: vec![Skipped {
            what: format!("peers-iscsi/{ABSENT}"),
            why: format!("no such program: apt-get install tgt {EVIL}"),
        }],
    };
    oddities(&mut measured);
    measured
}

/// What real runs have too: a gap, an outlier, a run that had not settled.
fn oddities(measured: &mut Measured) {
    let peers = find(&mut measured.sweeps, "peers-iscsi");
    peers.series.retain(|series| series.name != ABSENT);
    let reads = find(&mut measured.sweeps, "nvme-read");
    let gap = reads.series.iter_mut().find(|series| series.name == GAP);
    gap.expect("in the catalogue").points.remove(0);
    measured.skipped.push(Skipped {
        what: format!("nvme-read/{GAP}/4k"),
        why: "the run was interrupted".into(),
    });
    let first = &mut reads.series[0].points[0];
    first.samples[0].tenths = (0..10)
        .map(|tenth| 100.0 + 20.0 * f64::from(tenth))
        .collect();
    first.commands.push(format!("echo '{EVIL}'"));
    let last = first.samples.last_mut().expect("rounds");
    if last.round >= 4 {
        last.values
            .entry(Quantity::Iops)
            .and_modify(|iops| *iops *= 0.4);
    }
}

fn find<'a>(sweeps: &'a mut [Sweep], name: &str) -> &'a mut Sweep {
    let found = sweeps.iter_mut().find(|sweep| sweep.name == name);
    found.expect("in the catalogue")
}

fn sweep(spec: &SweepSpec, effort: Effort, rounds: u32, random: &mut Random) -> Sweep {
    let series = spec.series.iter().enumerate().map(|(turn, series)| Series {
        name: series.name.to_owned(),
        role: series.role(),
        points: spec
            .axis
            .points(effort)
            .iter()
            .map(|x| point(spec, (turn, series), *x, rounds, random))
            .collect(),
    });
    Sweep {
        name: spec.name.to_owned(),
        series: series.collect(),
    }
}

fn point(
    spec: &SweepSpec,
    (turn, series): (usize, &SeriesSpec),
    x: f64,
    rounds: u32,
    random: &mut Random,
) -> Point {
    let load = spec.load_at(series, x);
    let outstanding = f64::from(load.iodepth) * f64::from(load.connections);
    let ability = match series.role() {
        SeriesRole::Ceiling => 1.5,
        SeriesRole::Local => 20.0,
        _ => 1.0 / (1.0 + 0.15 * turn as f64),
    };
    let us = (0.9 + f64::from(load.bs) / 5000.0 + 7.0 / outstanding) / ability;
    let has_rare = spec
        .charts
        .iter()
        .any(|chart| chart.kind == ChartKind::Distribution);
    let samples = (0..rounds).map(|round| {
        let noise = 1.0 + (random.below(1000) as f64 - 500.0) / 12_000.0;
        let iops = load.rate.unwrap_or(1e6 / us) * noise;
        sample(
            round,
            iops,
            us * outstanding,
            f64::from(load.bs),
            (series.role(), has_rare),
        )
    });
    Point {
        x,
        label: spec.axis.label_of(x),
        samples: samples.collect(),
        limit: [Limit::TargetCores, Limit::Memory, Limit::Outstanding][turn % 3],
        commands: vec![
            "[[volume]]\nname = \"ram\"\nsize = \"512MiB\"".into(),
            format!("weft serve -c {}.toml", series.name.replace(' ', "-")),
            format!(
                "weft perf --bs {} --iodepth {} nvme://127.0.0.1",
                load.bs, load.iodepth
            ),
        ],
    }
}

fn sample(
    round: u32,
    iops: f64,
    mean: f64,
    bs: f64,
    (role, has_rare): (SeriesRole, bool),
) -> Sample {
    let gbit = iops * bs * 8e-9;
    let mut values = BTreeMap::from([
        (Quantity::Iops, iops),
        (Quantity::BytesPerSecond, iops * bs),
        (Quantity::MeanUs, mean),
        (Quantity::P50Us, mean * 0.9),
        (Quantity::P99Us, mean * 2.0),
        (Quantity::P999Us, mean * 5.0),
        (Quantity::P9999Us, mean * 9.0),
    ]);
    if role != SeriesRole::Ceiling {
        values.extend([
            (Quantity::TargetCpuSPerGbit, 0.98 / gbit),
            (Quantity::ClientCpuSPerGbit, 0.9 / gbit),
            (Quantity::TargetCpuUsPerIo, 0.98e6 / iops),
            (Quantity::TargetBusy, 0.98),
            (Quantity::ClientBusy, 0.9),
            (Quantity::SyscallsPerIo, 0.1 + 1.0 / mean),
            (Quantity::CopiedBytesPerIo, 0.0),
            (Quantity::WakeupsPerIo, 0.001),
            (Quantity::AllocationsPerIo, 0.0),
            (Quantity::TargetCpuUsPerConnection, 2e8 / iops),
            (Quantity::TargetBytesPerConnection, 6e9 / iops),
        ]);
    }
    let shares = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0];
    let slower = [0.9, 1.1, 2.0, 5.0, 9.0, 40.0, 80.0];
    let distribution = shares
        .iter()
        .zip(slower)
        .map(|(share, times)| (*share, mean * times));
    if has_rare {
        values.insert(Quantity::P99999Us, mean * 40.0);
    }
    Sample {
        round,
        values,
        tenths: vec![
            100.0, 101.0, 99.0, 100.0, 100.0, 101.0, 100.0, 99.0, 100.0, 100.0,
        ],
        distribution: match has_rare {
            true => distribution.collect(),
            false => Vec::new(),
        },
    }
}

fn provenance() -> Provenance {
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Provenance {
        began: "2030-01-02T03:04:05Z".into(),
        ended: "2030-01-02T03:29:05Z".into(),
        weft: "0.1.0".into(),
        commit: "0123456789ab".into(),
        commands: vec![
            "weft bench run nvme-read --full".into(),
            "weft bench run all --full".into(),
        ],
        machine: [
            ("processor", "Example Processor 9000 <2.0 GHz>"),
            ("CPUs of this process", "2: 0-1"),
            ("kernel release", "6.18.0"),
            ("memory", "16 GiB"),
        ]
        .map(pair)
        .to_vec(),
        versions: vec![pair(("fio", "3.33"))],
    }
}
