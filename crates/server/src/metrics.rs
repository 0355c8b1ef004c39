//! What is measured of a target: who did how much with what, and how long it took.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::hosts::ConnectedHost;
use engine::sample::Stage;
pub use engine::tls_meter::TlsCounts;
use link::StreamProblem;
use nvmf::rdma::TerminateCount;
use store::fs::QuotaUsage;
pub use store::meter::{BOUNDS, Histogram, OpCounts, SIZE_BOUNDS, bound};
use store::meter::{IoMeter, IoOp};
use store::{MirrorStatus, PathStatus, ScrubStatus};

use crate::config::{LimitFigures, Protocol};
use crate::report::Report;
use crate::serving::PROTOCOLS;
use crate::start::Running;

/// Hosts with figures of their own; those that come when there are so many share theirs.
const HOSTS_MAX: usize = 1000;
/// The name of those.
const OTHER_HOSTS: &str = "other";

/// Why there was no connection that is encrypted: a word each.
pub const TLS_FAILURES: &[&str] = &StreamProblem::REASONS;

/// What is measured of a target, as of now. What is gone is not in it.
#[derive(Debug)]
pub struct Metrics {
    /// By volume, or export of NFS.
    pub volumes: Vec<VolumeMetrics>,
    /// By host, of those that have connections.
    pub hosts: Vec<HostMetrics>,
    /// By protocol and stage.
    pub stages: Vec<(&'static str, Vec<(&'static str, Histogram)>)>,
    /// Connections by protocol.
    pub connections: Vec<(&'static str, u64)>,
    /// Handshakes of TLS that are under way.
    pub tls_handshakes: u64,
    /// What is counted of TLS, by the address of the listener; of those that may speak it.
    pub tls: Vec<(String, TlsCounts)>,
    /// I/Os that found a block with another checksum, by the names of volumes that have such.
    pub checksum_mismatches: Vec<(String, u64)>,
    /// How scrubs stand, by the names of volumes.
    pub scrubs: Vec<(String, ScrubStatus)>,
    /// Bytes that volumes have taken from others by reference, by the names of those that can.
    pub shared_bytes: Vec<(String, u64)>,
    /// How mirrors stand, by their names.
    pub mirrors: Vec<(String, MirrorStatus)>,
    /// The ways to volumes that other machines keep, by the name of the volume.
    pub paths: Vec<(String, PathStatus)>,
    /// What has waited for limits of what is read and written in a second.
    pub limits: Vec<LimitFigures>,
    /// How the quotas stand that the configuration has.
    pub quotas: Vec<QuotaMetrics>,
    /// Refusals by kind.
    pub refusals: Vec<(&'static str, u64)>,
    /// Streams by RDMA that ended by a Terminate: of what, and by which.
    pub terminates: Vec<(&'static str, TerminateCount)>,
    /// By the number of the reactor; `None` of one that does not answer.
    pub reactors: Vec<Option<Report>>,
    /// By the number of the reactor, the CPU that it is pinned to.
    pub cpus: Vec<usize>,
    /// What NFS clients have; `None` where NFS is not served.
    pub nfs: NfsMetrics,
    /// The limit of all buffers together.
    pub memory_max_bytes: u64,
    /// Work that waits for threads beside the reactors.
    pub blocking_work: u64,
    /// The driver of the reactors.
    pub driver: &'static str,
    /// No host is let in, see [`Change::SetDrained`](crate::Change::SetDrained).
    pub is_drained: bool,
}

/// What came to a volume, or an export, by one protocol.
#[derive(Debug)]
pub struct VolumeMetrics {
    /// The protocol.
    pub protocol: &'static str,
    /// The volume's name, or the export's path.
    pub volume: String,
    /// Bytes that the volume took of what is below it when that was looked at last, some seconds
    /// ago; `None` of an export.
    pub used_bytes: Option<u64>,
    /// By operation.
    pub ops: [(&'static str, OpCounts, Histogram); IoOp::ALL.len()],
}

/// What a host did by one protocol.
#[derive(Debug)]
pub struct HostMetrics {
    /// The protocol.
    pub protocol: &'static str,
    /// How it is called, or its address.
    pub host: String,
    /// By operation.
    pub ops: [(&'static str, OpCounts, Histogram); IoOp::ALL.len()],
    /// By stage.
    pub stages: Vec<(&'static str, Histogram)>,
}

/// How a quota of the configuration stands.
#[derive(Debug)]
pub struct QuotaMetrics {
    /// The quota's name.
    pub quota: String,
    /// The name of the file system.
    pub file_system: String,
    /// What its subject has and may have. One of each user has nothing itself.
    pub usage: QuotaUsage,
}

/// What clients of NFS have.
#[derive(Clone, Copy, Debug, Default)]
pub struct NfsMetrics {
    /// Clients of NFSv4 with a lease.
    pub clients: u64,
    /// Of those, whose lease has expired.
    pub expired_clients: u64,
    /// Opens.
    pub opens: u64,
    /// Files and owners with byte-range locks.
    pub locks: u64,
    /// Delegations.
    pub delegations: u64,
    /// Clients may reclaim what they had before the start.
    pub is_in_grace: bool,
}

impl VolumeMetrics {
    /// `None` where nothing came.
    fn of(
        protocol: &'static str,
        (volume, used_bytes): (&str, Option<u64>),
        meter: &IoMeter,
    ) -> Option<VolumeMetrics> {
        let counts = meter.counters.read();
        let is_used = counts != <[OpCounts; IoOp::ALL.len()]>::default();
        is_used.then(|| {
            let times = meter.times.read();
            VolumeMetrics {
                protocol,
                volume: volume.to_owned(),
                used_bytes,
                ops: IoOp::ALL.map(|op| (op.name(), counts[op as usize], times[op as usize])),
            }
        })
    }
}

impl Running {
    /// What is measured. Asks the reactors for what they count themselves.
    pub fn metrics(&self) -> Metrics {
        let engine = &self.shared.engine;
        let connections = engine.connections.iter();
        let connections = connections.map(|open| open.load(Ordering::Relaxed));
        let stages = PROTOCOLS.iter().zip(&engine.stage_times);
        let stages = stages.map(|(protocol, times)| (*protocol, by_stage(times.read())));
        self.shared.nfs.note_refused();
        let refusals = engine.refusals.of_kinds().into_iter();
        Metrics {
            volumes: self.volume_metrics(),
            hosts: self.host_metrics(),
            stages: stages.collect(),
            connections: PROTOCOLS.into_iter().zip(connections).collect(),
            tls_handshakes: engine.handshakes().into(),
            tls: self.tls_metrics(),
            checksum_mismatches: self.checksum_mismatches(),
            scrubs: self.scrubs(),
            shared_bytes: self.shared_bytes(),
            mirrors: self.mirrors(),
            paths: self.paths(),
            limits: engine.rate_limits.figures(),
            quotas: self.quota_metrics(),
            refusals: refusals.map(|(kind, times)| (kind.0, times)).collect(),
            terminates: self.terminates(),
            reactors: self.reports(),
            cpus: self.config().cpus.clone(),
            nfs: self.nfs_metrics(),
            memory_max_bytes: self.config().memory_max,
            blocking_work: engine.blocking_work() as u64,
            driver: self.backend(),
            is_drained: self.is_drained(),
        }
    }

    /// Bytes that volumes have taken by reference, of each that can, by its name.
    fn shared_bytes(&self) -> Vec<(String, u64)> {
        let mut volumes = self.volumes();
        volumes.retain(|volume| volume.sharing().is_some());
        let counts = volumes.iter().map(|volume| {
            let name = volume.info().name.clone();
            (name, volume.stats().shared_bytes)
        });
        counts.collect()
    }

    /// I/Os that found a block with another checksum, of each volume that has such, by its name.
    pub fn checksum_mismatches(&self) -> Vec<(String, u64)> {
        let mut volumes = self.volumes();
        volumes.retain(|volume| volume.has_checksums());
        let counts = volumes.iter().map(|volume| {
            let mismatches = volume.stats().errors.checksum_mismatch;
            (volume.info().name.clone(), mismatches)
        });
        counts.collect()
    }

    /// How the scrub of each volume with checksums stands, by its name.
    pub fn scrubs(&self) -> Vec<(String, ScrubStatus)> {
        let volumes = self.volumes();
        let scrubs = volumes.iter().filter_map(|volume| {
            let scrub = volume.scrub()?;
            Some((volume.info().name.clone(), scrub.status()))
        });
        scrubs.collect()
    }

    /// How each quota stands. Users without one of their own are not told of one by one, as there
    /// may be any number of them.
    fn quota_metrics(&self) -> Vec<QuotaMetrics> {
        let state = self.shared.state();
        let of_state = state.quotas.iter().filter_map(|spec| {
            let file_system = state.file_system(&spec.file_system)?;
            Some((spec.clone(), Arc::clone(file_system)))
        });
        let specs: Vec<_> = of_state.collect();
        // Usage is looked up without what connections are let in by.
        drop(state);
        let told = specs.into_iter().filter_map(|(spec, file_system)| {
            let usage = file_system.quotas()?.usage_of(&spec.quota.subject);
            Some(QuotaMetrics {
                quota: spec.name,
                file_system: spec.file_system,
                usage,
            })
        });
        told.collect()
    }

    /// How each mirror stands, by its name.
    pub fn mirrors(&self) -> Vec<(String, MirrorStatus)> {
        let volumes = self.volumes();
        let mirrors = volumes.iter().filter_map(|volume| {
            let mirror = volume.as_mirror()?;
            Some((volume.info().name.clone(), mirror.status()))
        });
        mirrors.collect()
    }

    /// The ways to volumes that other machines keep, by the name of the volume.
    pub fn paths(&self) -> Vec<(String, PathStatus)> {
        let volumes = self.volumes();
        let paths = volumes.iter().flat_map(|volume| {
            let name = &volume.info().name;
            let paths = volume
                .remote()
                .into_iter()
                .flat_map(|remote| remote.paths());
            paths.map(|path| (name.clone(), path)).collect::<Vec<_>>()
        });
        paths.collect()
    }

    fn terminates(&self) -> Vec<(&'static str, TerminateCount)> {
        let all = [
            ("nvme-rdma", &self.shared.nvme.terminates),
            ("iser", &self.shared.iscsi.terminates),
            ("nfs-rdma", &self.shared.nfs.terminates),
        ];
        all.into_iter()
            .flat_map(|(of, counts)| counts.list().into_iter().map(move |count| (of, count)))
            .collect()
    }

    fn tls_metrics(&self) -> Vec<(String, TlsCounts)> {
        let state = self.shared.state();
        let all = state.listeners.iter();
        let speaking = all.filter(|(_, open)| open.spec.protocol != Protocol::Iscsi);
        let told = speaking.map(|(number, open)| {
            let meter = self.shared.engine.tls_meter(*number);
            (open.spec.address.to_string(), meter.counts())
        });
        told.collect()
    }

    fn volume_metrics(&self) -> Vec<VolumeMetrics> {
        let mut all = Vec::new();
        for volume in self.volumes() {
            let meters = PROTOCOLS.iter().zip(volume.base().meters());
            let name = (&*volume.info().name, Some(volume.base().used_bytes()));
            all.extend(
                meters.filter_map(|(protocol, meter)| VolumeMetrics::of(protocol, name, meter)),
            );
        }
        let exports = self.shared.nfs.nfsd().exports.load();
        let nfs = PROTOCOLS[crate::serving::NFS as usize];
        let exports = exports.iter();
        all.extend(
            exports
                .filter_map(|export| VolumeMetrics::of(nfs, (export.path(), None), export.meter())),
        );
        all
    }

    fn host_metrics(&self) -> Vec<HostMetrics> {
        let hosts = self.shared.engine.hosts.list();
        let (own, others) = hosts.split_at(hosts.len().min(HOSTS_MAX));
        let of = |host: &Arc<ConnectedHost>, protocol| {
            let mut figures = HostMeters::default();
            figures.add(host, protocol);
            figures.named(protocol, host.name.to_string())
        };
        let protocols = 0..PROTOCOLS.len();
        let all = own
            .iter()
            .flat_map(|host| protocols.clone().filter_map(move |of_it| of(host, of_it)));
        let together = protocols.clone().filter_map(|protocol| {
            let mut figures = HostMeters::default();
            others.iter().for_each(|host| figures.add(host, protocol));
            figures.named(protocol, OTHER_HOSTS.to_owned())
        });
        all.chain(together).collect()
    }

    fn nfs_metrics(&self) -> NfsMetrics {
        let clients = self.nfs_clients();
        let sum =
            |of: fn(&serve_nfs::ClientInfo) -> usize| clients.iter().map(of).sum::<usize>() as u64;
        NfsMetrics {
            clients: sum(|client| client.minor.is_some().into()),
            expired_clients: sum(|client| client.is_expired.into()),
            opens: sum(|client| client.opens),
            locks: sum(|client| client.locks),
            delegations: sum(|client| client.delegations),
            is_in_grace: !self.shared.nfs.nfsd().server.grace_has_ended(),
        }
    }
}

/// Times of the stages, with their names.
fn by_stage(times: [Histogram; Stage::ALL.len()]) -> Vec<(&'static str, Histogram)> {
    Stage::ALL
        .iter()
        .map(|stage| stage.name())
        .zip(times)
        .collect()
}

/// What one host, or some of them, did by one protocol.
#[derive(Default)]
struct HostMeters {
    counts: [OpCounts; IoOp::ALL.len()],
    times: [Histogram; IoOp::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
}

impl HostMeters {
    fn add(&mut self, host: &ConnectedHost, protocol: usize) {
        let meter = &host.meters[protocol];
        add_each(&mut self.counts, meter.counters.read());
        add_each(&mut self.times, meter.times.read());
        add_each(&mut self.stages, host.stage_times[protocol].read());
    }

    /// `None` where nothing was done.
    fn named(self, protocol: usize, host: String) -> Option<HostMetrics> {
        let HostMeters {
            counts,
            times,
            stages,
        } = self;
        let is_active = counts != <[OpCounts; IoOp::ALL.len()]>::default();
        is_active.then(|| HostMetrics {
            protocol: PROTOCOLS[protocol],
            host,
            ops: IoOp::ALL.map(|op| (op.name(), counts[op as usize], times[op as usize])),
            stages: by_stage(stages),
        })
    }
}

fn add_each<T: AddAssign, const N: usize>(to: &mut [T; N], from: [T; N]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::hosts::HostName;
    use mem::Budget;

    use super::*;
    use crate::{Config, start};

    #[test]
    fn hosts_beyond_those_that_are_told_by_name_are_told_together() {
        let running = start(Config::default()).expect("nothing is served");
        let (table, budget) = (&running.shared.engine.hosts, Budget::new(1 << 30));
        let host = |n: usize| table.host(HostName::Said("test", n.to_string()), &budget);
        let hosts: Vec<_> = (0..HOSTS_MAX + 3).map(host).collect();
        for host in &hosts {
            let meter = &host.meters[0];
            meter.counters.count(IoOp::Write, 512);
            meter.times.note(IoOp::Write as usize, 1000);
        }
        let told = running.metrics().hosts;
        assert_eq!(told.len(), HOSTS_MAX + 1);
        assert_eq!(told[0].host, "0", "the first that came");
        let others = &told[HOSTS_MAX];
        let (_, counts, times) = others.ops[IoOp::Write as usize];
        assert_eq!(
            (&*others.host, counts.ios, counts.bytes),
            (OTHER_HOSTS, 3, 3 * 512)
        );
        assert_eq!((times.count(), times.sum_ns), (3, 3000));
        drop(hosts);
        assert!(running.metrics().hosts.is_empty(), "none is connected");
        running.stop();
        running.wait(Duration::from_secs(20)).expect("in order");
    }
}
