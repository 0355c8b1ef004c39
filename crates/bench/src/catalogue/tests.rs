use std::collections::BTreeSet;

use super::*;
use crate::load::{Driver, LoadVolume, Mode, Payload, Placement, Spin, TlsKey};
use client::perf::Rw;

const EFFORTS: [Effort; 3] = [Effort::Quick, Effort::Normal, Effort::Full];

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(plain)
}

#[test]
fn names_are_words_and_each_is_there_once() {
    let mut files = BTreeSet::new();
    for sweep in CATALOGUE {
        assert!(is_name(sweep.name) && sweep.name != "all", "{}", sweep.name);
        assert!(files.insert(sweep.name.to_owned()), "{} twice", sweep.name);
        for text in [sweep.title, sweep.paper, sweep.about] {
            assert!(!text.is_empty(), "{}", sweep.name);
        }
        for chart in sweep.charts {
            let file = format!("{}-{}", sweep.name, chart.name);
            assert!(is_name(&file), "{file}");
            assert!(files.insert(file.clone()), "{file} twice");
        }
        let series: BTreeSet<_> = sweep.series.iter().map(|series| series.name).collect();
        assert_eq!(series.len(), sweep.series.len(), "series of {}", sweep.name);
        assert!(!sweep.series.is_empty() && !sweep.charts.is_empty());
    }
}

#[test]
fn axes_ascend_and_the_shorter_are_parts_of_the_longer() {
    for sweep in CATALOGUE {
        let Axis {
            quick,
            normal,
            full,
            ..
        } = sweep.axis;
        for (fewer, more) in [(quick, normal), (normal, full)] {
            let lie = |x: &f64| more.contains(x);
            // The tail's rates are those of a longer run.
            assert!(
                sweep.name == "tail" || fewer.iter().all(lie),
                "{}",
                sweep.name
            );
        }
        for points in [quick, normal, full] {
            assert!(!points.is_empty(), "{}", sweep.name);
            assert!(points.is_sorted_by(|a, b| a < b), "{}", sweep.name);
            let labels: BTreeSet<_> = points.iter().map(|x| sweep.axis.label_of(*x)).collect();
            assert_eq!(labels.len(), points.len(), "labels of {}", sweep.name);
        }
        if let Unit::Names(names) = sweep.axis.unit {
            assert_eq!(sweep.axis.scale, Scale::Category);
            assert!(
                full.iter().all(|x| (*x as usize) < names.len()),
                "{}",
                sweep.name
            );
        }
    }
}

/// What kinds of series tell; the others' own do not concern the charts.
fn tells(role: SeriesRole, quantity: Quantity) -> bool {
    use Quantity as Q;
    let of_time = matches!(
        quantity,
        Q::Iops
            | Q::BytesPerSecond
            | Q::MeanUs
            | Q::P50Us
            | Q::P99Us
            | Q::P999Us
            | Q::P9999Us
            | Q::P99999Us
    );
    let of_target = matches!(
        quantity,
        Q::TargetCpuSPerGbit
            | Q::TargetCpuUsPerIo
            | Q::TargetBusy
            | Q::ClientCpuSPerGbit
            | Q::ClientBusy
    );
    match role {
        SeriesRole::Weft => true,
        SeriesRole::Ceiling => of_time || of_target,
        SeriesRole::Local => of_time,
        SeriesRole::Peer => false,
    }
}

#[test]
fn every_quantity_of_a_chart_is_measured() {
    for sweep in CATALOGUE {
        for chart in sweep.charts {
            let mut roles = sweep.series.iter().map(SeriesSpec::role);
            let name = format!("{}-{}", sweep.name, chart.name);
            assert!(roles.any(|role| tells(role, chart.y)), "{name}");
            if chart.kind == ChartKind::Difference {
                assert!(tells(sweep.series[0].role(), chart.y), "{name}");
            }
            if chart.kind == ChartKind::Distribution {
                assert!(sweep.load.distribution, "{name}");
            }
            let is_level = matches!(chart.y_scale, Scale::Linear | Scale::Log10);
            assert!(is_level, "{name}");
        }
        for reference in sweep.references {
            let is_drawn = |quantity| sweep.charts.iter().any(|chart| chart.y == quantity);
            assert!(
                reference.quantity.is_none_or(is_drawn),
                "{}",
                reference.text
            );
            assert!(!reference.text.is_empty() && !reference.unit.is_empty());
        }
    }
}

#[test]
fn every_load_has_sizes_that_can_be_run() {
    for sweep in CATALOGUE {
        for effort in EFFORTS {
            for x in sweep.axis.points(effort) {
                for series in sweep.series {
                    let load = sweep.load_at(series, *x);
                    let what = format!("{}/{} at {x}: {load:?}", sweep.name, series.name);
                    assert!(load.bs >= 512 && load.bs.is_multiple_of(512), "{what}");
                    assert!(
                        load.bs >= load.block_bytes || load.rw == Rw::Create,
                        "{what}"
                    );
                    assert!((1..=1023).contains(&load.iodepth), "{what}");
                    let least = [
                        load.connections,
                        load.hosts,
                        load.devices,
                        load.target_cores,
                    ];
                    assert!(least.iter().all(|count| *count >= 1), "{what}");
                    assert!(!load.rw.is_metadata() || series.protocol().has_files());
                    // Series of one point are asked for the same amount of work.
                    let first = sweep.load_at(&sweep.series[0], *x);
                    assert_eq!((load.rw, load.bs), (first.rw, first.bs), "{what}");
                }
            }
        }
    }
}

/// Every figure has the line that nothing passes beside it.
#[test]
fn sweeps_of_throughput_have_their_ceiling() {
    for sweep in CATALOGUE {
        let has_ceiling = sweep
            .series
            .iter()
            .any(|series| series.role() == SeriesRole::Ceiling);
        // Bare sockets know no names, and make no handshake.
        let has_none = ["nfs-names", "tls-connections"].contains(&sweep.name);
        assert!(has_ceiling || has_none, "{}", sweep.name);
    }
}

fn sweep(name: &str) -> &'static SweepSpec {
    SweepSpec::named(name).unwrap_or_else(|| panic!("no {name}"))
}

fn draws(name: &str, quantities: &[Quantity]) {
    let charts = sweep(name).charts;
    for quantity in quantities {
        let is_there = charts.iter().any(|chart| chart.y == *quantity);
        assert!(is_there, "{name} has no chart of {quantity:?}");
    }
}

fn spans(name: &str, from: f64, to: f64) {
    let full = sweep(name).axis.full;
    let ends = (full[0], full[full.len() - 1]);
    assert!(ends.0 == from && ends.1 >= to, "{name}: {ends:?}");
    for x in [from, to] {
        assert!(full.contains(&x), "{name} lacks {x}");
    }
}

fn subjects(name: &str) -> Vec<Subject> {
    sweep(name)
        .series
        .iter()
        .map(|series| series.subject)
        .collect()
}

fn modes(name: &str) -> Vec<Mode> {
    let subjects = subjects(name);
    let modes = subjects.iter().filter_map(|subject| match subject {
        Subject::Weft(_, mode) => Some(*mode),
        _ => None,
    });
    modes.collect()
}

const K: f64 = 1024.0;

/// The papers' figures, one after the other.
#[test]
fn every_figure_of_the_papers_is_there() {
    use Quantity as Q;
    for (name, from, to) in [
        ("nvme-read", 4.0 * K, 256.0 * K),
        ("nvme-write", 4.0 * K, 256.0 * K),
        ("iscsi-read", 4.0 * K, 512.0 * K),
        ("iscsi-write", 4.0 * K, 512.0 * K),
        ("nfs-read", 4.0 * K, 512.0 * K),
        ("nfs-write", 4.0 * K, 512.0 * K),
        ("iwarp-read", 512.0, 64.0 * K),
        ("iwarp-write", 512.0, 64.0 * K),
        ("latency-read", 512.0, 64.0 * K),
        ("latency-write", 512.0, 64.0 * K),
    ] {
        spans(name, from, to);
        assert_eq!(
            sweep(name).load.rw.read_percent(0) == 100,
            name.ends_with("read")
        );
    }
    for name in [
        "nvme-read",
        "nvme-write",
        "iscsi-read",
        "iscsi-write",
        "nfs-read",
        "nfs-write",
    ] {
        draws(name, &[Q::Iops, Q::BytesPerSecond, Q::TargetCpuSPerGbit]);
        draws(
            name,
            &[Q::SyscallsPerIo, Q::CopiedBytesPerIo, Q::WakeupsPerIo],
        );
        let has = |fast_path| modes(name).iter().any(|mode| mode.fast_path == fast_path);
        assert!(has(true) && has(false), "{name}: fast path on and off");
        for payload in [Payload::Hot, Payload::Cold] {
            let protocol = sweep(name).series[0].protocol();
            assert!(subjects(name).contains(&Subject::Ceiling(protocol, payload)));
        }
    }
    for name in ["latency-4k", "latency-read", "latency-write"] {
        let series = sweep(name).series;
        assert_eq!(series[0].role(), SeriesRole::Local, "{name}");
        let charts = sweep(name).charts;
        let has_delta = charts
            .iter()
            .any(|chart| chart.kind == ChartKind::Difference);
        assert!(has_delta, "{name}");
        let spoken: BTreeSet<_> = series.iter().map(SeriesSpec::protocol).collect();
        assert_eq!(spoken.len(), 3, "{name}");
    }
    for protocol in ["nvme", "iscsi"] {
        for way in ["read", "write"] {
            let name = format!("digests-{protocol}-{way}");
            let spec = sweep(&name);
            let of = |series| {
                let load = spec.load_at(series, 4096.0);
                (load.header_digest, load.data_digest)
            };
            let all: BTreeSet<_> = spec.series.iter().map(of).collect();
            assert_eq!(all.len(), 4, "{name}: off, header, data, both");
        }
    }
    draws("tail", &[Q::P99999Us]);
    let has = |kind| sweep("tail").charts.iter().any(|chart| chart.kind == kind);
    assert!(has(ChartKind::Distribution));
    for name in ["mtu-read", "mtu-write"] {
        assert_eq!(sweep(name).axis.full, [1500.0, 4096.0, 9000.0]);
        let mtu = |x| sweep(name).load_at(&sweep(name).series[0], x).mtu;
        assert_eq!(mtu(4096.0), Some(4096));
    }
}

/// What is scaled, compared and mixed.
#[test]
fn every_comparison_is_there() {
    let at = |name: &str, x: f64, series: usize| {
        let spec = sweep(name);
        spec.load_at(&spec.series[series], x)
    };
    assert_eq!(at("connections-read", 64.0, 0).connections, 64);
    assert_eq!(at("depth-write", 512.0, 0).iodepth, 512);
    assert_eq!(at("cores-read", 2.0, 0).target_cores, 2);
    for name in ["cores-read", "cores-write"] {
        let placements: Vec<_> = modes(name).iter().map(|mode| mode.placement).collect();
        let all = [
            Placement::LeastLoaded,
            Placement::RoundRobin,
            Placement::IncomingCpu,
        ];
        assert_eq!(placements, all, "{name}");
    }
    for name in ["hosts-read", "hosts-write"] {
        let loads: Vec<_> = (0..4).map(|series| at(name, 4096.0, series)).collect();
        let of = |load: &Load| (load.hosts, load.devices);
        let shapes: Vec<_> = loads.iter().map(of).collect();
        assert_eq!(shapes, [(1, 1), (4, 8), (4, 32), (4, 4)], "{name}");
        // As much outstanding in all as of the single host.
        for load in &loads {
            let per_host = load.devices / load.hosts * load.connections;
            let outstanding = load.hosts * per_host * load.iodepth;
            assert_eq!(outstanding, 128, "{name}: {load:?}");
        }
    }
    assert!(at("mixed", 1.0, 0).beside && !at("mixed", 0.0, 0).beside);
    assert!(at("tail", 20_000.0, 0).rate.is_some());
    let wanted = |name: &str, what: &str, is_wanted: fn(&Mode) -> bool| {
        assert!(modes(name).iter().any(is_wanted), "{name} lacks {what}");
    };
    for name in ["nvme-read", "nvme-write"] {
        wanted(name, "plain", |mode| {
            mode.driver == Driver::Epoll && !mode.fast_path
        });
        wanted(name, "io_uring", |mode| {
            mode.driver == Driver::IoUring && !mode.fast_path
        });
        wanted(name, "direct placement and batching", |mode| {
            mode.driver == Driver::IoUring && mode.fast_path
        });
        wanted(name, "zero-copy sends", |mode| mode.zero_copy);
    }
    for name in ["depth-read", "depth-write", "latency-4k", "tail"] {
        wanted(name, "polling", |mode| mode.spin == Spin::Poll);
        wanted(name, "sleeping", |mode| mode.spin == Spin::Sleep);
    }
    for name in ["latency-4k", "nvme-shapes-read", "iscsi-shapes-write"] {
        let spec = sweep(name);
        let mut loads = spec.series.iter().map(|series| spec.load_at(series, 0.0));
        assert!(
            loads.any(|load| !load.volume.has_memory()),
            "{name} lacks a null volume"
        );
    }
    for (_, protocol) in crate::load::PEERS {
        let name = match protocol {
            LoadProtocol::NvmeTcp | LoadProtocol::NvmeRdma => "peers-nvme",
            LoadProtocol::Iscsi => "peers-iscsi",
            LoadProtocol::Nfs | LoadProtocol::NfsRdma => "peers-nfs",
        };
        let is_there = |series: &SeriesSpec| series.role() == SeriesRole::Peer;
        assert!(sweep(name).series.iter().any(is_there), "{name}");
    }
}

#[test]
fn nfs_by_rdma_is_measured_beside_nfs() {
    for (name, rw) in [
        ("nfs-rdma-read", Rw::RandRead),
        ("nfs-rdma-write", Rw::RandWrite),
    ] {
        let spec = sweep(name);
        let protocols: Vec<_> = spec.series.iter().map(SeriesSpec::protocol).collect();
        let nfs = LoadProtocol::Nfs;
        assert_eq!(protocols, [LoadProtocol::NfsRdma, nfs, nfs], "{name}");
        assert_eq!(spec.load.rw, rw);
        for effort in EFFORTS {
            assert_eq!(spec.axis.points(effort), [128.0 * K, 1024.0 * K]);
        }
    }
}

#[test]
fn tls_is_measured_beside_the_clear_with_either_cipher() {
    for name in ["tls-read", "tls-write", "tls-connections"] {
        let spec = sweep(name);
        let loads = spec.series.iter().map(|series| spec.load_at(series, 1.0));
        let keys: Vec<_> = loads.map(|load| load.tls).take(3).collect();
        assert_eq!(
            keys,
            [None, Some(TlsKey::Sha256), Some(TlsKey::Sha384)],
            "{name}"
        );
    }
    draws("tls-connections", &[Quantity::TargetBytesPerConnection]);
}

#[test]
fn settings_of_volumes_are_measured_beside_the_bare_file() {
    let spec = sweep("volumes");
    let ours = spec
        .series
        .iter()
        .filter(|series| series.role() != SeriesRole::Ceiling);
    let ours: Vec<_> = ours
        .map(|series| spec.load_at(series, 0.0).volume)
        .collect();
    let wanted = [
        LoadVolume::File,
        LoadVolume::DirectFile,
        LoadVolume::LimitedFile,
        LoadVolume::EncryptedFile,
        LoadVolume::ChecksummedFile,
        LoadVolume::MirroredFile,
    ];
    assert_eq!(ours, wanted);
    let shapes = [0.0, 1.0].map(|x| {
        let load = spec.load_at(&spec.series[0], x);
        (load.rw, load.bs, load.iodepth)
    });
    let wanted = [(Rw::RandRead, 4096, 128), (Rw::RandWrite, 4096, 128)];
    assert_eq!(shapes, wanted);
}

/// (bytes, outstanding, connections), as their labels say; five rounds of each.
#[test]
fn every_shape_is_measured_beside_both_ceilings() {
    const LARGE: [(u32, u16, u16); 2] = [(128 << 10, 32, 1), (128 << 10, 8, 4)];
    const SMALL: [(u16, u16); 5] = [(1, 1), (32, 1), (8, 4), (128, 1), (32, 4)];
    for (name, protocol, wanted) in [
        (
            "nvme-shapes",
            LoadProtocol::NvmeTcp,
            SMALL
                .map(|(depth, count)| (4096, depth, count))
                .into_iter()
                .chain(LARGE)
                .collect::<Vec<_>>(),
        ),
        (
            "iscsi-shapes",
            LoadProtocol::Iscsi,
            vec![(4096, 1, 1), (4096, 128, 1), LARGE[0]],
        ),
        (
            "nfs-shapes",
            LoadProtocol::Nfs,
            vec![
                (4096, 1, 1),
                (4096, 128, 1),
                (4096, 32, 4),
                (1 << 20, 8, 1),
                (1 << 20, 2, 4),
            ],
        ),
    ] {
        for (way, rw) in [("read", Rw::RandRead), ("write", Rw::RandWrite)] {
            let spec = sweep(&format!("{name}-{way}"));
            assert_eq!((spec.load.rw, spec.care), (rw, Care::Main));
            let of = |x: &f64| {
                let load = spec.load_at(&spec.series[0], *x);
                let size = Axis {
                    unit: Unit::Bytes,
                    ..spec.axis
                };
                let size = size.label_of(f64::from(load.bs)).to_uppercase();
                let label = format!("{size}, {} x {}", load.iodepth, load.connections);
                assert_eq!(spec.axis.label_of(*x), label);
                (load.bs, load.iodepth, load.connections)
            };
            let shapes: Vec<_> = spec.axis.full.iter().map(of).collect();
            assert_eq!(shapes, wanted, "{name}-{way}");
            for payload in [Payload::Hot, Payload::Cold] {
                assert!(subjects(spec.name).contains(&Subject::Ceiling(protocol, payload)));
            }
        }
    }
}

/// Peers and clients each stand in exactly one sweep.
#[test]
fn every_peer_and_client_is_measured_once() {
    use crate::load::{CLIENTS, PEERS};
    let all = PEERS.iter().map(|(name, _)| Subject::Peer(name));
    let all = all.chain(CLIENTS.iter().map(|(name, _)| Subject::Client(name)));
    for subject in all {
        let series = CATALOGUE.iter().flat_map(|sweep| sweep.series);
        let count = series.filter(|series| series.subject == subject).count();
        assert_eq!(count, 1, "{subject:?}");
    }
}

#[test]
fn labels_are_short() {
    let label = |name: &str, x| sweep(name).axis.label_of(x);
    assert_eq!(label("nvme-read", 4096.0), "4k");
    assert_eq!(label("nfs-read", 1048576.0), "1m");
    assert_eq!(label("iwarp-read", 512.0), "512");
    assert_eq!(label("latency-4k", 1.0), "write");
    assert_eq!(label("mtu-read", 9000.0), "9000");
}
