//! What is measured, as OpenMetrics text (version 1.0).

use std::fmt::{self, Write as _};

use mem::counters::counts_allocations;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use server::metrics::{BOUNDS, Histogram, Metrics, TLS_FAILURES, TlsCounts, bound};
use server::{COUNTS, CountKind};
use store::ScrubState;
use store::fs::{QuotaLimits, QuotaSubject};

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What there is to tell, as text.
///
/// # Errors
/// None: a text takes everything.
pub(crate) fn text_of(
    metrics: Metrics,
    generation: u64,
    wrong_logins: [(&'static str, u64); 3],
) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition {
        metrics,
        generation,
        wrong_logins,
    }));
    let mut to = String::new();
    text::encode(&mut to, &registry)?;
    Ok(to)
}

#[derive(Debug)]
struct Exposition {
    metrics: Metrics,
    /// Of the document that is served.
    generation: u64,
    /// By what was wrong.
    wrong_logins: [(&'static str, u64); 3],
}

/// A value with its labels.
type Sample<'a, V> = (Vec<(&'a str, &'a str)>, V);

struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn counters<'v, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'v, V>>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            let mut metric = family.encode_family(&labels)?;
            metric.encode_counter::<NoLabels, V, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<'v>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'v, u64>>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            match labels.is_empty() {
                true => family.encode_gauge(&value)?,
                false => family.encode_family(&labels)?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn histograms<'v>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'v, &'v Histogram>>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, times) in samples {
            let buckets: [_; BOUNDS + 1] = std::array::from_fn(|at| match at {
                BOUNDS => (f64::INFINITY, times.buckets[at]),
                _ => (bound(at) as f64 / 1e9, times.buckets[at]),
            });
            let mut metric = family.encode_family(&labels)?;
            let (sum, count) = (times.sum_ns as f64 / 1e9, times.count());
            metric.encode_histogram::<NoLabels>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

type NoLabels = [(&'static str, &'static str); 0];

impl Collector for Exposition {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut Families(encoder);
        self.encode_volumes(to)?;
        self.encode_hosts(to)?;
        self.encode_stages(to)?;
        self.encode_peers(to)?;
        self.encode_tls(to)?;
        self.encode_limits(to)?;
        self.encode_quotas(to)?;
        self.encode_checksums(to)?;
        self.encode_shared(to)?;
        self.encode_mirrors(to)?;
        self.encode_paths(to)?;
        self.encode_reactors(to)?;
        self.encode_whole(to)
    }
}

impl Exposition {
    fn encode_volumes(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = || {
            self.metrics.volumes.iter().flat_map(|volume| {
                volume.ops.iter().map(|(op, counts, times)| {
                    let labels = vec![
                        ("protocol", volume.protocol),
                        ("volume", &*volume.volume),
                        ("op", *op),
                    ];
                    (labels, counts, times)
                })
            })
        };
        to.counters(
            "weft_io_operations",
            "I/Os that succeeded, by volume, or by export of NFS, where a call is one",
            all().map(|(labels, counts, _)| (labels, counts.ios)),
        )?;
        to.counters(
            "weft_io_bytes",
            "Bytes that I/Os have read or written",
            all().map(|(labels, counts, _)| (labels, counts.bytes)),
        )?;
        to.counters(
            "weft_io_errors",
            "I/Os that failed",
            all().map(|(labels, counts, _)| (labels, counts.errors)),
        )?;
        to.histograms(
            "weft_io_seconds",
            "Time from when an I/O is here with its data until its answer is ready, of one I/O \
             in 64 of a connection",
            all()
                .filter(|(_, _, times)| times.count() > 0)
                .map(|(labels, _, times)| (labels, times)),
        )
    }

    fn encode_hosts(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = || {
            self.metrics.hosts.iter().flat_map(|host| {
                host.ops.iter().map(|(op, counts, _)| {
                    let labels = vec![
                        ("protocol", host.protocol),
                        ("host", &*host.host),
                        ("op", *op),
                    ];
                    (labels, counts)
                })
            })
        };
        to.counters(
            "weft_host_io_operations",
            "I/Os that succeeded, by host, of those that have connections: the first 1000 by \
             themselves, all others as other",
            all().map(|(labels, counts)| (labels, counts.ios)),
        )?;
        to.counters(
            "weft_host_io_bytes",
            "Bytes that I/Os of a host have read or written",
            all().map(|(labels, counts)| (labels, counts.bytes)),
        )?;
        to.counters(
            "weft_host_io_errors",
            "I/Os of a host that failed",
            all().map(|(labels, counts)| (labels, counts.errors)),
        )
    }

    fn encode_stages(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = self.metrics.stages.iter().flat_map(|(protocol, stages)| {
            stages.iter().map(move |(stage, times)| {
                (vec![("protocol", *protocol), ("stage", *stage)], times)
            })
        });
        to.histograms(
            "weft_stage_seconds",
            "Time that an I/O spends in a stage, of one I/O in 64 of a connection",
            all,
        )
    }

    fn encode_peers(&self, to: &mut Families<'_>) -> fmt::Result {
        let Metrics {
            connections,
            refusals,
            terminates,
            nfs,
            ..
        } = &self.metrics;
        to.gauges(
            "weft_connections",
            "Connections that are open",
            (connections.iter()).map(|(protocol, open)| (vec![("protocol", *protocol)], *open)),
        )?;
        to.counters(
            "weft_refusals",
            "Connections, logins, commands and clients that were refused, and connections that \
             ended by a mistake of their peers",
            (refusals.iter()).map(|(reason, times)| (vec![("reason", *reason)], *times)),
        )?;
        to.counters(
            "weft_rdma_terminates",
            "Streams of iWARP that ended by a Terminate, by its sender and by the error of its \
             layer, type and code",
            terminates.iter().map(|(protocol, (sender, error, times))| {
                let labels = vec![
                    ("protocol", *protocol),
                    ("sender", *sender),
                    ("error", *error),
                ];
                (labels, *times)
            }),
        )?;
        let plain = |value: u64| [(vec![], value)];
        to.gauges(
            "weft_nfs_clients",
            "Clients of NFSv4, by whether their lease has expired",
            [
                (vec![("lease", "valid")], nfs.clients - nfs.expired_clients),
                (vec![("lease", "expired")], nfs.expired_clients),
            ],
        )?;
        to.gauges("weft_nfs_opens", "Opens of NFS clients", plain(nfs.opens))?;
        to.gauges(
            "weft_nfs_locks",
            "Files and owners of NFS clients with byte-range locks",
            plain(nfs.locks),
        )?;
        to.gauges(
            "weft_nfs_delegations",
            "Delegations that NFS clients hold",
            plain(nfs.delegations),
        )?;
        to.gauges(
            "weft_nfs_grace",
            "Whether NFS clients may still reclaim what they had before the start: 1 or 0",
            plain(nfs.is_in_grace.into()),
        )
    }

    fn encode_tls(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = || self.metrics.tls.iter();
        let at = |listener| vec![("listener", listener)];
        to.counters(
            "weft_tls_handshakes",
            "Handshakes of TLS that have made a connection, by listener for NVMe/TCP, NFS and NBD",
            all().map(|(listener, counts)| (at(&**listener), counts.handshakes)),
        )?;
        to.counters(
            "weft_tls_handshake_failures",
            "Handshakes of TLS that have made no connection, and peers without TLS where it is \
             required, by why",
            all().flat_map(|(listener, counts)| {
                TLS_FAILURES.iter().map(move |reason| {
                    let labels = vec![("listener", &**listener), ("reason", *reason)];
                    let times = counts.failures.get(reason);
                    (labels, times.copied().unwrap_or_default())
                })
            }),
        )?;
        to.gauges(
            "weft_tls_handshakes_under_way",
            "Handshakes of TLS that are under way, of which `tls_handshakes_max` of [nvme] allows so \
             many",
            [(vec![], self.metrics.tls_handshakes)],
        )?;
        to.gauges(
            "weft_tls_connections",
            "Connections that are encrypted now",
            all().map(|(listener, counts)| (at(&**listener), counts.open)),
        )?;
        to.counters(
            "weft_tls_bytes",
            "Bytes of plaintext in records that came (opened) and that were sent (sealed); of an \
             open connection up to 1 MiB is not counted yet",
            all().flat_map(|(listener, TlsCounts { bytes, .. })| {
                [("opened", bytes.opened), ("sealed", bytes.sealed)].map(|(way, bytes)| {
                    let labels = vec![("listener", &**listener), ("direction", way)];
                    (labels, bytes)
                })
            }),
        )
    }

    fn encode_limits(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = || {
            let limits = self.metrics.limits.iter();
            limits.map(|figures| (vec![("limit", &*figures.limit.name)], figures.delays))
        };
        to.counters(
            "weft_limit_delayed_ios",
            "I/Os that a limit has held back and let go, by the limit that was waited for longest",
            all().map(|(labels, delays)| (labels, delays.ios)),
        )?;
        to.counters(
            "weft_limit_delay_seconds",
            "Time that those have waited",
            all().map(|(labels, delays)| (labels, delays.ns as f64 / 1e9)),
        )
    }

    fn encode_checksums(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = self.metrics.checksum_mismatches.iter();
        to.counters(
            "weft_checksum_mismatches",
            "I/Os that found a block whose checksum is another than what was written, by volume",
            all.map(|(volume, mismatches)| (vec![("volume", &**volume)], *mismatches)),
        )?;
        let scrubs = || {
            let scrubs = self.metrics.scrubs.iter();
            scrubs.map(|(volume, scrub)| (vec![("volume", &**volume)], scrub))
        };
        to.gauges(
            "weft_scrub_running",
            "Whether a scrub of a volume with checksums goes on: 1 or 0",
            scrubs().map(|(labels, scrub)| {
                let is_running = scrub.state == ScrubState::Running;
                (labels, is_running.into())
            }),
        )?;
        to.gauges(
            "weft_scrub_position_bytes",
            "Bytes of a volume that the last scrub has read",
            scrubs().map(|(labels, scrub)| (labels, scrub.position_bytes)),
        )?;
        to.gauges(
            "weft_scrub_bad_blocks",
            "Blocks that the last scrub of a volume could not read, or that have another checksum",
            scrubs().map(|(labels, scrub)| (labels, scrub.bad_blocks)),
        )?;
        to.gauges(
            "weft_scrub_repaired_blocks",
            "Of those, what was copied from another leg of a mirror",
            scrubs().map(|(labels, scrub)| (labels, scrub.repaired_blocks)),
        )?;
        to.counters(
            "weft_scrub_read_bytes",
            "Bytes that scrubs of a volume have read",
            scrubs().map(|(labels, scrub)| (labels, scrub.read_bytes)),
        )
    }

    fn encode_quotas(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = || {
            let quotas = self.metrics.quotas.iter();
            quotas.map(|told| {
                let labels = vec![("file_system", &*told.file_system), ("quota", &*told.quota)];
                (labels, &told.usage)
            })
        };
        // Each user has another usage.
        let used = || all().filter(|(_, usage)| usage.subject != QuotaSubject::EachUser);
        let limits = |of: fn(&QuotaLimits) -> [Option<u64>; 2]| {
            all().flat_map(move |(labels, usage)| {
                let pairs = ["hard", "soft"].into_iter().zip(of(&usage.limits));
                let set = pairs.filter_map(|(limit, value)| Some((limit, value?)));
                set.map(move |(limit, value)| {
                    let limit = [("limit", limit)];
                    ([&labels[..], &limit[..]].concat(), value)
                })
                .collect::<Vec<_>>()
            })
        };
        to.gauges(
            "weft_quota_used_bytes",
            "Bytes that the user, group or tree of a quota has",
            used().map(|(labels, usage)| (labels, usage.bytes)),
        )?;
        to.gauges(
            "weft_quota_used_objects",
            "Objects that the user, group or tree of a quota has",
            used().map(|(labels, usage)| (labels, usage.objects)),
        )?;
        to.gauges(
            "weft_quota_limit_bytes",
            "Bytes that a quota allows: hard or soft",
            limits(|limits| [limits.hard_bytes, limits.soft_bytes]),
        )?;
        to.gauges(
            "weft_quota_limit_objects",
            "Objects that a quota allows: hard or soft",
            limits(|limits| [limits.hard_objects, limits.soft_objects]),
        )
    }

    fn encode_shared(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = self.metrics.shared_bytes.iter();
        to.counters(
            "weft_shared_bytes",
            "Bytes that copies did not read and write but share with another file, by the volume \
             that they were copied to",
            all.map(|(volume, bytes)| (vec![("volume", &**volume)], *bytes)),
        )
    }

    fn encode_mirrors(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = || {
            let mirrors = self.metrics.mirrors.iter();
            mirrors.map(|(volume, mirror)| (vec![("volume", &**volume)], mirror))
        };
        let legs = || {
            let mirrors = self.metrics.mirrors.iter();
            mirrors.flat_map(|(volume, mirror)| {
                let legs = mirror.legs.iter();
                legs.map(|leg| (vec![("volume", &**volume), ("leg", &*leg.name)], leg))
            })
        };
        to.gauges(
            "weft_mirror_leg_out",
            "Whether a leg of a mirror has failed and gets nothing: 1 or 0",
            legs().map(|(labels, leg)| (labels, leg.is_out.into())),
        )?;
        to.gauges(
            "weft_mirror_leg_missing_bytes",
            "Bytes of a mirror that a leg lacks",
            legs().map(|(labels, leg)| (labels, leg.missing_bytes)),
        )?;
        to.gauges(
            "weft_mirror_dirty_bytes",
            "Bytes of a mirror that are copied again after a crash",
            all().map(|(labels, mirror)| (labels, mirror.dirty_bytes)),
        )?;
        to.counters(
            "weft_mirror_repaired_bytes",
            "Bytes of legs of a mirror that were written anew, as they had another checksum",
            all().map(|(labels, mirror)| (labels, mirror.repaired_bytes)),
        )?;
        to.counters(
            "weft_mirror_resynced_bytes",
            "Bytes that were copied to legs of a mirror",
            all().map(|(labels, mirror)| (labels, mirror.resynced_bytes)),
        )
    }

    fn encode_paths(&self, to: &mut Families<'_>) -> fmt::Result {
        let all = || {
            let paths = self.metrics.paths.iter();
            paths
                .map(|(volume, path)| (vec![("volume", &**volume), ("path", &*path.address)], path))
        };
        to.gauges(
            "weft_remote_path_up",
            "Whether a path to a remote volume is connected: 1 or 0",
            all().map(|(labels, path)| (labels, path.is_live.into())),
        )?;
        to.counters(
            "weft_remote_path_losses",
            "Times that a path to a remote volume was lost",
            all().map(|(labels, path)| (labels, path.losses)),
        )
    }

    fn encode_reactors(&self, to: &mut Families<'_>) -> fmt::Result {
        let numbers: Vec<String> = (0..self.metrics.reactors.len())
            .map(|at| at.to_string())
            .collect();
        let all = || numbers.iter().zip(&self.metrics.reactors);
        to.gauges(
            "weft_reactor_up",
            "Whether a reactor answers: 1 or 0",
            all().map(|(number, report)| (vec![("reactor", &**number)], report.is_some().into())),
        )?;
        for count in COUNTS {
            let is_counted = count.name != "allocations" || counts_allocations();
            let samples = all().filter(|_| is_counted).filter_map(|(number, report)| {
                Some((vec![("reactor", &**number)], count.of((*report)?)))
            });
            let mut name = "weft_reactor_".to_owned();
            match count.kind {
                CountKind::Counter => {
                    name.push_str(count.name);
                    to.counters(&name, count.help, samples)?;
                }
                CountKind::Gauge => {
                    name.push_str(count.name);
                    to.gauges(&name, count.help, samples)?;
                }
                CountKind::Seconds => {
                    write!(name, "{}_seconds", count.name.trim_end_matches("_ns"))?;
                    let seconds = |(labels, ns)| (labels, ns as f64 / 1e9);
                    to.counters(&name, count.help, samples.map(seconds))?;
                }
            }
        }
        Ok(())
    }

    fn encode_whole(&self, to: &mut Families<'_>) -> fmt::Result {
        let plain = |value: u64| [(vec![], value)];
        to.gauges(
            "weft_memory_max_bytes",
            "The limit of all buffers together (memory_max)",
            plain(self.metrics.memory_max_bytes),
        )?;
        to.gauges(
            "weft_config_generation",
            "The generation of the configuration that is served",
            plain(self.generation),
        )?;
        to.gauges(
            "weft_drained",
            "Whether no host is let in and no path gives access (weft drain): 1 or 0",
            plain(self.metrics.is_drained.into()),
        )?;
        to.gauges(
            "weft_blocking_work",
            "Pieces of work that wait for threads beside the reactors",
            plain(self.metrics.blocking_work),
        )?;
        to.counters(
            "weft_admin_logins_refused",
            "Who asked over TCP and was not let in: without a handshake of TLS, with a \
             certificate that has no role, or with a wrong secret",
            self.wrong_logins
                .map(|(reason, count)| (vec![("reason", reason)], count)),
        )?;
        let labels = vec![
            ("version", env!("CARGO_PKG_VERSION")),
            ("driver", self.metrics.driver),
        ];
        to.gauges(
            "weft_build_info",
            "The version and the driver; always 1",
            [(labels, 1)],
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use server::Config;
    use server::metrics::HostMetrics;
    use store::meter::IoOp;
    use store::{Kind, Spec};

    use super::*;

    const VOLUMES: usize = 4096;
    const HOSTS: usize = 1000;

    /// Prints how long a scrape takes.
    #[test]
    fn scrape_of_4096_volumes_and_1000_hosts_has_a_line_for_each() {
        let volumes = (0..VOLUMES).map(|at| Spec::new(format!("v{at}"), Kind::NULL, 1 << 20, 512));
        let running = server::start(Config {
            volumes: volumes.collect(),
            ..Config::default()
        });
        let running = running.expect("it serves");
        for volume in running.volumes() {
            let meter = &volume.base().meters()[0];
            for op in [IoOp::Read, IoOp::Write] {
                meter.counters.count(op, 4096);
                meter.times.note(op as usize, 1000);
            }
        }
        let start = Instant::now();
        let mut metrics = running.metrics();
        let ops = metrics.volumes[0].ops;
        metrics.hosts.extend((0..HOSTS).map(|at| HostMetrics {
            protocol: "nvme-tcp",
            host: format!("nqn.2014-08.org.nvmexpress:uuid:{at:032}"),
            ops,
            stages: Vec::new(),
        }));
        let text = text_of(metrics, 1, [("secret", 0); 3]).expect("a text");
        println!("{} bytes in {:?}", text.len(), start.elapsed());
        let lines = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(lines("weft_io_operations_total"), 4 * VOLUMES);
        assert_eq!(lines("weft_io_seconds_bucket"), 2 * VOLUMES * (BOUNDS + 1));
        assert_eq!(lines("weft_host_io_bytes_total"), 4 * HOSTS);
        running.stop();
        running.wait(Duration::from_secs(20)).expect("in order");
    }
}
