//! What `weft perf` prints.

use std::fmt::Write as _;
use std::net::SocketAddr;

use host::{AnaState, PathReport, PathState};
use mem::counters::counts_allocations;
use serde::Serialize;

use super::args::PerfArgs;
use super::device::Device;
use super::job::JobOutcome;
use super::worker::{TENTHS, WorkerOutcome};
use super::workload::{IoDirection, Rw};
use crate::latency::{Latencies, Summary};
use crate::units::{show_bytes, show_count};

/// Reasons of lost connections that are listed.
const REASONS_MAX: usize = 8;

/// What a run measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was asked for.
    pub load: Load,
    /// Where it went.
    pub targets: Vec<TargetInfo>,
    /// The driver: `io_uring` or `epoll`.
    pub backend: String,
    /// Seconds measured.
    pub seconds: f64,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Operations on names and attributes.
    pub metadata: Metadata,
    /// All.
    pub total: Direction,
    /// What went wrong.
    pub errors: Errors,
    /// What was checked, with `--verify`.
    pub verify: Option<Verified>,
    /// What became of the paths, with `--multipath`.
    pub paths: Vec<PathUse>,
    /// What the initiator spent.
    pub initiator: Spent,
    /// I/Os of each tenth of the time measured: whether it was steady.
    pub tenths: Vec<u64>,
    /// Latencies of all: shares of the I/Os, each with the microseconds that they
    /// took at most.
    pub distribution: Vec<(f64, f64)>,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// Kind of I/Os.
    pub rw: Rw,
    /// Percentage of reads.
    pub read_percent: u8,
    /// Bytes of one I/O.
    pub bs: u64,
    /// I/Os in flight of each job.
    pub iodepth: u16,
    /// Jobs for each target.
    pub numjobs: u16,
    /// I/Os a second of an open loop; `null`: closed loop.
    pub rate: Option<f64>,
    /// Header digests were wanted.
    pub header_digest: bool,
    /// Data digests were wanted.
    pub data_digest: bool,
}

impl Load {
    /// How the command line calls its kind.
    fn name(&self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self.rw);
        value.expect("no value is skipped").get_name().to_owned()
    }
}

/// A target as it describes itself.
#[derive(Clone, Debug, Serialize)]
pub struct TargetInfo {
    /// Address and port.
    pub address: String,
    /// Name and number of what is written and read.
    #[serde(flatten)]
    pub name: TargetName,
    /// Bytes of the namespace.
    pub size_bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Model number, or vendor and product.
    pub model: String,
}

/// What a target and a device of it are called.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum TargetName {
    /// Of NVMe.
    Nvme {
        /// NVM subsystem NQN.
        subnqn: String,
        /// Namespace identifier.
        nsid: u32,
    },
    /// Of iSCSI.
    Iscsi {
        /// TargetName.
        target: String,
        /// Logical unit number.
        lun: u32,
    },
    /// Of NFS.
    Nfs {
        /// From the root of all exports on.
        path: String,
    },
    /// Of this process.
    Local {
        /// Its kind, or the path of its file.
        volume: String,
    },
}

impl std::fmt::Display for TargetName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TargetName::Nvme { subnqn, nsid } => write!(f, "{subnqn} nsid {nsid}"),
            TargetName::Iscsi { target, lun } => write!(f, "{target} LUN {lun}"),
            TargetName::Nfs { path } => f.write_str(path),
            TargetName::Local { volume } => f.write_str(volume),
        }
    }
}

impl TargetInfo {
    /// What is told of a namespace at `to`.
    #[must_use]
    pub fn namespace(to: SocketAddr, subnqn: &str, device: &Device, model: &str) -> Self {
        let name = TargetName::Nvme {
            subnqn: subnqn.to_owned(),
            nsid: device.number,
        };
        TargetInfo::new(to, name, device, model)
    }

    /// What is told of a logical unit behind the portal `to`.
    #[must_use]
    pub fn unit(to: SocketAddr, target: &str, device: &Device, model: &str) -> Self {
        let name = TargetName::Iscsi {
            target: target.to_owned(),
            lun: device.number,
        };
        TargetInfo::new(to, name, device, model)
    }

    /// What is told of a file or directory of the server at `to`.
    #[must_use]
    pub fn file(to: SocketAddr, path: String, device: &Device, model: &str) -> Self {
        TargetInfo::new(to, TargetName::Nfs { path }, device, model)
    }

    /// What is told of a volume of this process.
    #[must_use]
    pub fn local(volume: String, device: &Device) -> Self {
        TargetInfo::new("local", TargetName::Local { volume }, device, "no network")
    }

    fn new(to: impl ToString, name: TargetName, device: &Device, model: &str) -> Self {
        TargetInfo {
            address: to.to_string(),
            name,
            size_bytes: device.size_bytes(),
            block_bytes: device.block_bytes,
            model: model.to_owned(),
        }
    }
}

/// What the target says of itself commands no terminal.
impl std::fmt::Display for TargetInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (size, model) = (show_bytes(self.size_bytes), self.model.escape_debug());
        write!(f, "{} {} ({size}, {model})", self.address, self.name)
    }
}

/// What became of one path to the namespace, over all jobs and the whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathUse {
    /// Address and port.
    pub address: String,
    /// I/Os that were sent on it.
    pub ios: u64,
    /// I/Os that it failed or lost, and that were sent again.
    pub failovers: u64,
    /// Connections made again after a loss.
    pub reconnects: u64,
    /// Connections lost.
    pub losses: u64,
    /// What it was at the end.
    pub state: String,
    /// Why a connection was lost last.
    pub reason: Option<String>,
}

/// I/Os one way.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// I/Os that succeeded.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Millions of bytes a second.
    pub mb_per_s: f64,
    /// From submission, or, in an open loop, from the time they were due.
    pub latency: Summary,
}

/// Operations on names and attributes.
#[derive(Clone, Debug, Serialize)]
pub struct Metadata {
    /// Operations that succeeded.
    pub ops: u64,
    /// Operations a second; of files that are made, a whole file is one.
    pub ops_per_s: f64,
    /// Names that were listed, a second.
    pub entries_per_s: f64,
    /// From submission, or, in an open loop, from the time they were due.
    pub latency: Summary,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Errors {
    /// Commands that failed, by status.
    pub failed: Vec<Failed>,
    /// Commands without an answer.
    pub lost: u64,
    /// I/Os of an open loop that were due and could not be started.
    pub unstarted: u64,
    /// Connections that were lost or never made.
    pub connections_down: u64,
    /// Why; the first few.
    pub reasons: Vec<String>,
}

/// Commands that failed alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// The status, in the standard's words.
    pub status: String,
    /// How many.
    pub count: u64,
}

/// What was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Blocks checked.
    pub checked: u64,
    /// Blocks that were not what was written.
    pub mismatches: u64,
    /// The first few, in words.
    pub examples: Vec<String>,
}

/// What the initiator spent while measuring.
#[derive(Clone, Debug, Serialize)]
pub struct Spent {
    /// System calls on the data path, for one I/O.
    pub syscalls_per_io: f64,
    /// Payload bytes copied in user space, for one I/O.
    pub copied_bytes_per_io: f64,
    /// Sleeps in the kernel that ended, for one I/O.
    pub wakeups_per_io: f64,
    /// Allocations, for one I/O, where the program counts them.
    pub allocations_per_io: Option<f64>,
    /// CPU seconds of its threads, polling included.
    pub cpu_s: f64,
    /// CPU seconds for 10^9 bytes of payload.
    pub cpu_s_per_gb: f64,
    /// CPU seconds without those in which it only looked for work.
    pub busy_s: f64,
}

impl Report {
    /// Adds up what the workers did.
    #[must_use]
    pub fn new(args: &PerfArgs, targets: Vec<TargetInfo>, workers: &[WorkerOutcome]) -> Self {
        let elapsed_ns = workers.iter().map(|w| w.elapsed_ns).max();
        let seconds = elapsed_ns.unwrap_or(0) as f64 / 1e9;
        let jobs: Vec<&JobOutcome> = workers.iter().flat_map(|w| &w.jobs).collect();
        let direction = |kinds: &[IoDirection]| {
            let mut latencies = Latencies::default();
            let mut ios = 0;
            for tally in workers
                .iter()
                .flat_map(|w| kinds.iter().map(|k| &w.tallies[*k as usize]))
            {
                ios += tally.ios;
                latencies.add(&tally.latencies);
            }
            Direction {
                ios,
                iops: ratio(ios as f64, seconds),
                mb_per_s: match kinds {
                    [IoDirection::Metadata] => 0.0,
                    _ if args.rw.is_metadata() => 0.0,
                    _ => ratio((ios * args.bs) as f64 / 1e6, seconds),
                },
                latency: latencies.summary(),
            }
        };
        let total = direction(&[IoDirection::Read, IoDirection::Write, IoDirection::Metadata]);
        let metadata = direction(&[IoDirection::Metadata]);
        let payload_gb = ((total.ios - metadata.ios) * args.bs) as f64 / 1e9;
        let sum = |value: fn(&WorkerOutcome) -> u64| workers.iter().map(value).sum::<u64>() as f64;
        let per_io = |value: fn(&WorkerOutcome) -> u64| ratio(sum(value), total.ios as f64);
        let cpu_s = sum(|w| w.cpu_ns) / 1e9;
        Report {
            load: Load {
                rw: args.rw,
                read_percent: args.rw.read_percent(args.rwmixread),
                bs: args.bs,
                iodepth: args.iodepth,
                numjobs: args.numjobs,
                rate: args.rate,
                header_digest: args.hdr_digest,
                data_digest: args.data_digest,
            },
            paths: paths(&targets, &jobs),
            targets,
            backend: workers.first().map_or("", |w| w.backend).to_owned(),
            seconds,
            read: direction(&[IoDirection::Read]),
            write: direction(&[IoDirection::Write]),
            metadata: Metadata {
                ops: metadata.ios,
                ops_per_s: metadata.iops,
                entries_per_s: ratio(entries(&jobs), seconds),
                latency: metadata.latency,
            },
            errors: errors(&jobs),
            verify: args.verify.map(|_| verified(&jobs)),
            initiator: Spent {
                syscalls_per_io: per_io(|w| w.syscalls),
                copied_bytes_per_io: per_io(|w| w.copied_bytes),
                wakeups_per_io: per_io(|w| w.wakeups),
                allocations_per_io: counts_allocations().then(|| per_io(|w| w.allocations)),
                cpu_s,
                cpu_s_per_gb: ratio(cpu_s, payload_gb),
                busy_s: (cpu_s - sum(|w| w.spun_ns) / 1e9).max(0.0),
            },
            tenths: tenths(workers),
            distribution: distribution(workers),
            total,
        }
    }

    /// Whether everything went as it should.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let e = &self.errors;
        let is_true = self.verify.as_ref().is_none_or(|v| v.mismatches == 0);
        e.failed.is_empty() && e.lost == 0 && e.connections_down == 0 && is_true
    }

    /// The report for a person.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let l = &self.load;
        for t in &self.targets {
            let _ = writeln!(out, "{t}");
        }
        let name = l.name();
        let _ = writeln!(
            out,
            "{} bs {} iodepth {} numjobs {}{}{}{} on {}, {:.1} s",
            name,
            show_bytes(l.bs),
            l.iodepth,
            l.numjobs,
            l.rate
                .map(|rate| format!(" rate {}", show_count(rate)))
                .unwrap_or_default(),
            if l.header_digest { " hdgst" } else { "" },
            if l.data_digest { " ddgst" } else { "" },
            self.backend,
            self.seconds,
        );
        for (name, d) in [("read", &self.read), ("write", &self.write)] {
            if d.ios > 0 {
                let (iops, mb) = (show_count(d.iops), d.mb_per_s);
                let _ = writeln!(out, "{name}: IOPS {iops}  {mb:.1} MB/s\n{}", d.latency);
            }
        }
        self.text_of_metadata(&mut out);
        let s = &self.initiator;
        let allocations = match s.allocations_per_io {
            Some(count) => format!("{count:.4} allocations"),
            None => "allocations not counted".to_owned(),
        };
        let _ = writeln!(
            out,
            "initiator, for one I/O: {:.4} syscalls, {:.0} bytes copied, {:.4} wakeups, \
             {allocations}; CPU {:.2} s ({:.3} s/GB)",
            s.syscalls_per_io, s.copied_bytes_per_io, s.wakeups_per_io, s.cpu_s, s.cpu_s_per_gb,
        );
        self.text_of_paths(&mut out);
        self.text_of_trouble(&mut out);
        out
    }

    fn text_of_metadata(&self, out: &mut String) {
        let m = &self.metadata;
        if m.ops > 0 {
            let listed = match m.entries_per_s > 0.0 {
                true => format!("  {} entries/s", show_count(m.entries_per_s)),
                false => String::new(),
            };
            let _ = writeln!(
                out,
                "{}: {} ops/s{listed}\n{}",
                self.load.name(),
                show_count(m.ops_per_s),
                m.latency
            );
        }
    }

    fn text_of_paths(&self, out: &mut String) {
        for p in &self.paths {
            let _ = writeln!(
                out,
                "path {}: {} I/Os, {} failed over, lost {} times, made again {} times, {}{}",
                p.address,
                p.ios,
                p.failovers,
                p.losses,
                p.reconnects,
                p.state,
                p.reason
                    .as_ref()
                    .map(|reason| format!(" ({reason})"))
                    .unwrap_or_default(),
            );
        }
    }

    fn text_of_trouble(&self, out: &mut String) {
        if let Some(v) = &self.verify {
            let _ = writeln!(
                out,
                "verify: {} blocks checked, {} wrong",
                v.checked, v.mismatches
            );
            for example in &v.examples {
                let _ = writeln!(out, "  {example}");
            }
        }
        if self.total.ios == 0 {
            let _ = writeln!(out, "no I/O succeeded while measuring");
        }
        let e = &self.errors;
        for failed in &e.failed {
            let _ = writeln!(out, "failed: {} commands: {}", failed.count, failed.status);
        }
        if e.lost > 0 {
            let _ = writeln!(out, "lost: {} commands without an answer", e.lost);
        }
        if e.unstarted > 0 {
            let _ = writeln!(
                out,
                "behind: {} I/Os were due and could not be started",
                e.unstarted
            );
        }
        if e.connections_down > 0 {
            let _ = writeln!(out, "connections lost: {}", e.connections_down);
            for reason in &e.reasons {
                let _ = writeln!(out, "  {reason}");
            }
        }
    }
}

fn ratio(value: f64, by: f64) -> f64 {
    if by > 0.0 { value / by } else { 0.0 }
}

/// Names that were listed.
fn entries(jobs: &[&JobOutcome]) -> f64 {
    jobs.iter().map(|job| job.entries).sum::<u64>() as f64
}

/// I/Os of each tenth of the time measured.
fn tenths(workers: &[WorkerOutcome]) -> Vec<u64> {
    let of_all = |tenth| workers.iter().map(|w| w.tenths[tenth]).sum();
    (0..TENTHS).map(of_all).collect()
}

/// The latencies of all I/Os.
fn distribution(workers: &[WorkerOutcome]) -> Vec<(f64, f64)> {
    let mut all = Latencies::default();
    let tallies = workers.iter().flat_map(|w| &w.tallies);
    tallies.for_each(|tally| all.add(&tally.latencies));
    all.distribution()
}

/// Adds up what the jobs saw of each path.
fn paths(targets: &[TargetInfo], jobs: &[&JobOutcome]) -> Vec<PathUse> {
    let one = |(at, target): (usize, &TargetInfo)| {
        let seen = || jobs.iter().filter_map(|job| job.paths.get(at));
        let first = seen().next()?;
        let sum = |value: fn(&PathReport) -> u64| seen().map(value).sum();
        Some(PathUse {
            address: target.address.clone(),
            ios: sum(|path| path.ios),
            failovers: sum(|path| path.failovers),
            // The first is none that was made again.
            reconnects: sum(|path| path.connects.saturating_sub(1)),
            losses: sum(|path| path.losses),
            state: match first.state {
                PathState::Down => "not connected".into(),
                PathState::GivenUp => "given up".into(),
                PathState::Live(None) => "connected".into(),
                PathState::Live(Some(ana)) => ana_word(ana).into(),
            },
            reason: seen().find_map(|path| path.reason.clone()),
        })
    };
    targets.iter().enumerate().filter_map(one).collect()
}

/// nvme-cli's words.
fn ana_word(ana: AnaState) -> &'static str {
    match ana {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non-optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "persistent-loss",
        AnaState::Change => "change",
    }
}

fn errors(jobs: &[&JobOutcome]) -> Errors {
    let mut errors = Errors::default();
    for job in jobs {
        errors.lost += job.lost;
        errors.unstarted += job.unstarted;
        for (status, count) in &job.failed {
            let status = status.to_string();
            match errors
                .failed
                .iter_mut()
                .find(|failed| failed.status == status)
            {
                Some(failed) => failed.count += count,
                None => errors.failed.push(Failed {
                    status,
                    count: *count,
                }),
            }
        }
        if let Some(reason) = &job.down {
            errors.connections_down += 1;
            if errors.reasons.len() < REASONS_MAX && !errors.reasons.contains(reason) {
                errors.reasons.push(reason.clone());
            }
        }
    }
    errors
}

fn verified(jobs: &[&JobOutcome]) -> Verified {
    let mut verified = Verified::default();
    for job in jobs {
        verified.checked += job.checked;
        verified.mismatches += job.mismatches;
        let room = REASONS_MAX - verified.examples.len();
        verified
            .examples
            .extend(job.examples.iter().take(room).cloned());
    }
    verified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_of_a_target_commands_no_terminal() {
        let target = TargetInfo {
            address: "192.0.2.1:4420".into(),
            name: TargetName::Nfs { path: "/a".into() },
            size_bytes: 4096,
            block_bytes: 512,
            model: "disk\u{1b}[2J\u{202e}".into(),
        };
        let shown = "192.0.2.1:4420 /a (4KiB, disk\\u{1b}[2J\\u{202e})";
        assert_eq!(target.to_string(), shown);
    }
}
