//! `GET /v1/figures`: what is measured, for programs that take differences.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use api::{
    FigureOp, Figures, HostFigures, NfsFigures, OpFigures, Protocol, ReactorFigures, StageFigures,
    StageTime, TimeFigures, VolumeFigures,
};
use server::Report;
use server::metrics::{
    BOUNDS, Histogram, Metrics, NfsMetrics, OpCounts, SIZE_BOUNDS, VolumeMetrics, bound,
};

use crate::counters::counts;
use crate::shown::shown;
use crate::volume_hosts::VolumeHosts;

/// What is counted of I/Os, in the order of [`FigureOp::ALL`].
type Ops = [(&'static str, OpCounts, Histogram); FigureOp::ALL.len()];

/// What was measured by a process, so long after its start, and who is connected to its volumes.
pub(crate) fn figures_of(
    metrics: &Metrics,
    hosts: &VolumeHosts,
    (boot, uptime): (&str, Duration),
) -> Figures {
    let reports = metrics.reactors.iter();
    let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Figures {
        boot: boot.to_owned(),
        unix_ms: wall.as_millis() as u64,
        uptime_ns: uptime.as_nanos() as u64,
        bounds_ns: (0..BOUNDS).map(bound).collect(),
        size_bounds: (0..SIZE_BOUNDS).map(bound).collect(),
        volumes: (metrics.volumes.iter())
            .map(|volume| volume_figures(volume, hosts))
            .collect(),
        hosts: (metrics.hosts.iter())
            .map(|host| HostFigures {
                host: shown(host.host.as_bytes()),
                protocol: protocol(host.protocol),
                ops: ops(&host.ops),
                stages: stages(&host.stages),
            })
            .collect(),
        stages: (metrics.stages.iter())
            .map(|(name, of_protocol)| StageFigures {
                protocol: protocol(name),
                stages: stages(of_protocol),
            })
            .collect(),
        connections: (metrics.connections.iter())
            .map(|(name, open)| (protocol(name), *open))
            .collect(),
        refusals: (metrics.refusals.iter())
            .map(|(reason, times)| ((*reason).to_owned(), *times))
            .collect(),
        reactors: (0..).zip(&metrics.cpus).zip(reports).map(reactor).collect(),
        nfs: nfs(&metrics.nfs),
        memory_bytes: reports_sum(&metrics.reactors),
        memory_max_bytes: metrics.memory_max_bytes,
        blocking_work: metrics.blocking_work,
    }
}

fn volume_figures(volume: &VolumeMetrics, hosts: &VolumeHosts) -> VolumeFigures {
    let protocol = protocol(volume.protocol);
    let connected = hosts.get(&(protocol, volume.volume.clone()));
    let is_counted = !matches!(protocol, Protocol::Nfs | Protocol::Nbd);
    VolumeFigures {
        volume: volume.volume.clone(),
        protocol,
        hosts: is_counted.then(|| connected.copied().unwrap_or(0)),
        used_bytes: volume.used_bytes,
        ops: ops(&volume.ops),
    }
}

fn protocol(name: &str) -> Protocol {
    let mut all = Protocol::ALL.into_iter();
    let found = all.find(|protocol| protocol.name() == name);
    found.expect("metrics name protocols as the configuration does")
}

/// Those that were done.
fn ops(all: &Ops) -> BTreeMap<FigureOp, OpFigures> {
    let all = FigureOp::ALL.into_iter().zip(all);
    let used = all.filter(|(_, (_, counts, _))| *counts != OpCounts::default());
    used.map(|(op, (_, counts, taken))| {
        let OpCounts {
            ios,
            bytes,
            errors,
            sizes,
        } = *counts;
        let figures = OpFigures {
            count: ios,
            bytes,
            errors,
            sizes: up_to_the_last(&sizes),
            times: times(taken),
        };
        (op, figures)
    })
    .collect()
}

fn stages(all: &[(&str, Histogram)]) -> Vec<StageTime> {
    let timed = all.iter().map(|(stage, taken)| StageTime {
        stage: (*stage).to_owned(),
        times: times(taken),
    });
    timed.collect()
}

fn times(taken: &Histogram) -> TimeFigures {
    TimeFigures {
        sum_ns: taken.sum_ns,
        buckets: up_to_the_last(&taken.buckets),
    }
}

/// Counts without the zeros at their end.
fn up_to_the_last(counts: &[u64]) -> Vec<u64> {
    let last = counts.iter().rposition(|count| *count > 0);
    counts[..last.map_or(0, |last| last + 1)].to_vec()
}

fn reactor(((number, cpu), report): ((u32, &usize), &Option<Report>)) -> ReactorFigures {
    ReactorFigures {
        reactor: number,
        cpu: *cpu as u32,
        answers: report.is_some(),
        counts: report.as_ref().map(counts).unwrap_or_default(),
    }
}

fn reports_sum(reports: &[Option<Report>]) -> u64 {
    reports
        .iter()
        .flatten()
        .map(|report| report.pool_bytes)
        .sum()
}

fn nfs(metrics: &NfsMetrics) -> NfsFigures {
    let NfsMetrics {
        clients,
        expired_clients,
        opens,
        locks,
        delegations,
        is_in_grace,
    } = *metrics;
    NfsFigures {
        clients,
        expired_clients,
        opens,
        locks,
        delegations,
        is_in_grace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_were_not_done_are_left_out_and_buckets_end_with_the_last_that_is_used() {
        let mut all: Ops = ["read", "write", "flush", "other"]
            .map(|op| (op, OpCounts::default(), Histogram::default()));
        all[1].1.errors = 2;
        all[3].1.ios = 5;
        all[3].1.sizes[1] = 5;
        all[3].2.sum_ns = 7;
        all[3].2.buckets[3] = 1;
        let told = ops(&all);
        let failed = OpFigures {
            errors: 2,
            ..OpFigures::default()
        };
        assert_eq!(told[&FigureOp::Write], failed);
        assert_eq!(told[&FigureOp::Other].times.buckets, [0, 0, 0, 1]);
        assert_eq!(told[&FigureOp::Other].sizes, [0, 5]);
        assert_eq!((told.len(), told[&FigureOp::Other].times.count()), (2, 1));
        let json = serde_json::to_value(&told).expect("JSON");
        assert_eq!(json["other"]["count"], 5);
    }
}
