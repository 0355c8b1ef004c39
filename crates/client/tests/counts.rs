//! What a target spends on an I/O, in counts that are the same on any machine:
//! system calls, copies in user space, allocations.
#![allow(missing_docs)]

#[path = "shared/line.rs"]
mod line;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use needs::each_driver;
use nvmf::transport::Transports;
use reactor::Choice;
use server::nfs::{ExportSpec, Exported, FileSystemKind, FileSystemSpec, Rule, Squash};
use server::{
    Config, IscsiTargetSpec, ListenerSpec, LunSpec, NamespaceSpec, RdmaSpec, Report, Running,
    SubsystemSpec,
};

#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;

const NQN: &str = "nqn.2026-01.io.weft:counts";
const TARGET: &str = "iqn.2026-01.io.weft:default";

/// Which protocol a load speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nvme,
    Rdma,
    Iscsi,
    Nfs,
}

impl Way {
    fn url(self, running: &Running) -> String {
        match self {
            Way::Nvme => format!("nvme-tcp://{}/{NQN}", running.addresses()[0]),
            Way::Rdma => format!("rdma://{}/{NQN}", running.addresses()[0]),
            Way::Iscsi => format!("iscsi://{}/{TARGET}/0", running.addresses()[1]),
            Way::Nfs => format!("nfs://{}/", running.addresses()[2]),
        }
    }
}

/// One RAM volume and one memory file system behind one reactor.
fn start(backend: Choice) -> Running {
    start_on(store::Kind::RAM, backend)
}

/// One volume behind one reactor.
fn start_on(kind: store::Kind, backend: Choice) -> Running {
    start_with(kind, backend, RdmaSpec::default().fpdu_bytes_max)
}

/// The same, which sends FPDUs of so many bytes at most.
fn start_with(kind: store::Kind, backend: Choice, fpdu_bytes_max: u32) -> Running {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let nvme = ListenerSpec {
        rdma: RdmaSpec {
            transports: Transports::Both,
            fpdu_bytes_max,
            ..RdmaSpec::default()
        },
        ..ListenerSpec::from(any)
    };
    let config = Config {
        volumes: vec![store::Spec::new("volume", kind, 64 << 20, 4096)],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "1".into(),
            model: "weft".into(),
            namespaces: vec![NamespaceSpec {
                nsid: 1,
                volume: "volume".into(),
                ..NamespaceSpec::default()
            }],
            ..SubsystemSpec::default()
        }],
        iscsi_targets: vec![IscsiTargetSpec {
            luns: vec![LunSpec::new(0, "volume")],
            ..IscsiTargetSpec::new(TARGET)
        }],
        file_systems: vec![FileSystemSpec {
            name: "files".into(),
            kind: FileSystemKind::Mem {
                size_bytes: 128 << 20,
            },
        }],
        exports: vec![ExportSpec {
            path: "/".into(),
            what: Exported::FileSystem("files".into()),
            rules: vec![Rule {
                squash: Squash::None,
                ..Rule::default()
            }],
        }],
        listeners: vec![nvme, ListenerSpec::iscsi(any), ListenerSpec::nfs(any)],
        cpus: vec![reactor::available_cpus()[0]],
        backend,
        spin_us_max: 0,
        memory_max: 256 << 20,
        ..Config::default()
    };
    server::start(config).expect("the target starts")
}

/// What the target has counted. A busy machine may give its reactor no turn in time.
fn report(running: &Running) -> Report {
    loop {
        let report = running.report();
        if report.silent == 0 {
            return report;
        }
    }
}

/// What the target counted while a load ran.
struct Spent {
    before: Report,
    after: Report,
    client: client::perf::Spent,
}

impl Spent {
    /// Runs a load once to warm up and once to count, until the count rests
    /// on at least `ios_min` I/Os.
    fn on((running, way): (&Running, Way), words: &str, ios_min: u64) -> Spent {
        run((running, way), words, "200ms");
        let mut runtime_ms = 400;
        loop {
            let before = report(running);
            let client = run((running, way), words, &format!("{runtime_ms}ms"));
            let after = report(running);
            if after.ios - before.ios >= ios_min || runtime_ms > 10_000 {
                return Spent {
                    before,
                    after,
                    client: client.initiator,
                };
            }
            runtime_ms *= 3;
        }
    }

    fn per_io(&self, what: fn(&Report) -> u64) -> f64 {
        let ios = self.after.ios - self.before.ios;
        (what(&self.after) - what(&self.before)) as f64 / ios as f64
    }

    fn copies_per_byte(&self) -> f64 {
        let copied = self.after.memory.copied_bytes - self.before.memory.copied_bytes;
        copied as f64 / (self.after.io_bytes - self.before.io_bytes) as f64
    }
}

fn run((running, way): (&Running, Way), words: &str, runtime: &str) -> client::perf::Report {
    let url = way.url(running);
    let line = format!("{url} --runtime {runtime} --ramp-time 0s {words}");
    let report = line::perf(&line, &AtomicBool::new(false)).expect("the load runs");
    assert_eq!(report.errors, client::perf::Errors::default(), "{words}");
    report
}

fn end(running: Running) {
    running.stop();
    let ended = running.wait(Duration::from_secs(20));
    ended.expect("no reactor failed").expect("in time");
}

/// Connecting allocates; over so many I/Os that is below the bounds.
const IOS_MIN: u64 = 40_000;
/// A capsule whose end came with the next receive is copied on its way twice,
/// in part: once a receive, which takes dozens.
const SPLIT_CAPSULES: f64 = 0.02;
/// Far below one allocation for every batch, let alone for every I/O.
const ALLOCATIONS_MAX: f64 = 0.02;

#[each_driver]
fn an_io_of_4_kib_costs_what_is_promised(backend: Choice) {
    let running = start(backend);
    for (way, words, copies_max) in [
        (Way::Nvme, "--rw randread --bs 4k --iodepth 128", 0.0),
        (Way::Nvme, "--rw randwrite --bs 4k --iodepth 128", 1.0),
        (Way::Iscsi, "--rw randread --bs 4k --iodepth 128", 0.0),
        (Way::Iscsi, "--rw randread --bs 4k --iodepth 128 -g -G", 0.0),
        (Way::Iscsi, "--rw randwrite --bs 4k --iodepth 128", 1.0),
        (
            Way::Iscsi,
            "--rw randwrite --bs 4k --iodepth 128 -g -G",
            1.0,
        ),
        (
            Way::Nfs,
            "--rw randread --bs 4k --iodepth 128 --size 32m",
            0.0,
        ),
        (
            Way::Nfs,
            "--rw randwrite --bs 4k --iodepth 128 --size 32m",
            1.0,
        ),
    ] {
        // A session has a table of slots, and a file is made and removed.
        let setups = if way == Way::Nfs { 4 } else { 1 };
        let spent = Spent::on((&running, way), words, setups * IOS_MIN);
        let allocations = spent.per_io(|r| r.memory.allocations);
        let syscalls = spent.per_io(|r| r.driver.syscalls);
        let copies = spent.copies_per_byte();
        println!(
            "{backend:?} {way:?} {words}: {syscalls:.4} syscalls, {allocations:.4} allocations an I/O, \
             {copies:.4} copies a byte"
        );
        assert!(
            allocations < ALLOCATIONS_MAX,
            "{words}: {allocations} allocations"
        );
        let copies_max = copies_max * (1.0 + SPLIT_CAPSULES);
        assert!(copies < copies_max + 0.001, "{words}: {copies} copies");
        if backend == Choice::Uring {
            assert!(syscalls <= 0.1, "{words}: {syscalls} syscalls");
        }
    }
    end(running);
}

/// A write that fits its command costs no turn of its own: neither a request for
/// its data nor a receive.
#[each_driver]
fn a_write_of_16_kib_comes_with_its_command(backend: Choice) {
    let running = start(backend);
    for (way, words) in [
        (Way::Nvme, "--rw randwrite --bs 16k --iodepth 64"),
        (Way::Iscsi, "--rw randwrite --bs 16k --iodepth 64"),
        (Way::Nfs, "--rw randwrite --bs 16k --iodepth 64 --size 32m"),
    ] {
        let spent = Spent::on((&running, way), words, IOS_MIN / 2);
        let receives = spent.per_io(|r| r.driver.recvs);
        let sends = spent.per_io(|r| r.driver.sends);
        let copies = spent.copies_per_byte();
        println!(
            "{backend:?} {way:?} {words}: {receives:.4} receives, {sends:.4} sends an I/O, \
             {copies:.4} copies a byte"
        );
        assert!(receives < 0.5, "{way:?} {words}: {receives} receives");
        assert!(sends < 0.5, "{way:?} {words}: {sends} sends");
        let copies_max = 1.0 + SPLIT_CAPSULES;
        assert!(copies < copies_max, "{way:?} {words}: {copies} copies");
    }
    end(running);
}

#[each_driver]
fn large_payload_is_never_copied(backend: Choice) {
    let running = start(backend);
    for way in [Way::Nvme, Way::Rdma, Way::Iscsi, Way::Nfs] {
        for words in [
            "--rw randread --bs 128k --iodepth 32",
            "--rw randwrite --bs 128k --iodepth 32",
        ] {
            let spent = Spent::on((&running, way), words, 2000);
            let copies = spent.copies_per_byte();
            println!("{backend:?} {way:?} {words}: {copies:.5} copies a byte");
            // What comes with a header is copied: of NFS that may be 512 bytes.
            let copies_max = if way == Way::Nfs { 0.004 } else { 0.002 };
            assert!(copies < copies_max, "{way:?} {words}: {copies} copies");
        }
    }
    end(running);
}

/// Of large FPDUs every payload is received where it belongs, at both ends, with CRCs and
/// without.
#[each_driver]
fn payload_by_rdma_is_copied_at_neither_end(backend: Choice) {
    let running = start(backend);
    for words in [
        "--rw randread --bs 128k --iodepth 16",
        "--rw randread --bs 128k --iodepth 16 -G",
        "--rw randwrite --bs 32k --iodepth 16",
        "--rw randwrite --bs 128k --iodepth 16 -G",
    ] {
        let spent = Spent::on((&running, Way::Rdma), words, 2000);
        let by_client = spent.client.copied_bytes_per_io / spent.per_io(|r| r.io_bytes);
        let copies = spent.copies_per_byte();
        println!("{backend:?} {words}: {copies:.5} copies a byte, {by_client:.5} by the client");
        // What comes with a header is copied.
        assert!(copies < 0.002, "{words}: {copies} copies");
        assert!(by_client < 0.002, "{words}: {by_client} copies");
    }
    end(running);
}

/// Several FPDUs of a TCP segment each are received at a time, and their payload is copied once.
#[each_driver]
fn fpdus_of_a_segment_cost_a_copy_and_no_receive_of_their_own(backend: Choice) {
    let running = start_with(store::Kind::RAM, backend, 1448);
    let words = "--rw randread --bs 128k --iodepth 16 -G";
    let by_tcp = Spent::on((&running, Way::Nvme), words, 2000);
    let spent = Spent::on((&running, Way::Rdma), words, 2000);
    let by_client = spent.client.copied_bytes_per_io / spent.per_io(|r| r.io_bytes);
    let syscalls = [by_tcp, spent].map(|spent| spent.client.syscalls_per_io);
    println!("{backend:?}: {by_client:.5} copies a byte, {syscalls:.3?} syscalls an I/O");
    assert!((0.9..=1.001).contains(&by_client), "{by_client} copies");
    assert!(syscalls[1] <= syscalls[0] + 0.5, "{syscalls:?} syscalls");
    end(running);
}

/// Frames of 16 KiB that were replaced one by one lie anywhere: reads of
/// 128 KiB go out, and writes come in, in pieces.
#[each_driver]
fn a_fragmented_volume_costs_no_copies_either(backend: Choice) {
    let running = start(backend);
    let all = (&running, Way::Nvme);
    run(all, "--rw write --bs 128k --iodepth 8", "300ms");
    run(all, "--rw randwrite --bs 16k --iodepth 32", "1s");
    let volume = &running.volumes()[0];
    let lent = volume.lend(0, 1 << 20).expect("memory");
    assert!(lent.pieces().len() > 8, "in one piece: {lent:?}");
    drop(lent);
    for words in [
        "--rw randread --bs 128k --iodepth 32",
        "--rw randwrite --bs 128k --iodepth 32",
        // Both ends of every write lie inside frames: 4 KiB of 32 each.
        "--rw randwrite --bs 128k --iodepth 32 --offset 4k",
    ] {
        let spent = Spent::on(all, words, 2000);
        let copies = spent.copies_per_byte();
        let allocations = spent.per_io(|r| r.memory.allocations);
        let syscalls = spent.per_io(|r| r.driver.syscalls);
        println!(
            "{backend:?} {words}: {copies:.5} copies a byte, {syscalls:.2} syscalls, {allocations:.4} allocations an I/O"
        );
        let copies_max = if words.contains("offset") {
            0.07
        } else {
            0.002
        };
        assert!(copies < copies_max, "{words}: {copies} copies");
        assert!(allocations < 0.1, "{words}: {allocations} allocations");
    }
    end(running);
}

/// A command that waits for its volume has its place in a table, not on the
/// heap.
#[each_driver]
fn an_io_on_a_file_allocates_nothing_either(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let running = start_on(store::Kind::file(path), backend);
    run(
        (&running, Way::Nvme),
        "--rw write --bs 1m --iodepth 4",
        "300ms",
    );
    for (way, words) in [
        (Way::Nvme, "--rw randread --bs 4k --iodepth 32"),
        (Way::Nvme, "--rw randwrite --bs 4k --iodepth 32"),
        (Way::Iscsi, "--rw randread --bs 4k --iodepth 32"),
        (Way::Iscsi, "--rw randwrite --bs 4k --iodepth 32"),
    ] {
        let spent = Spent::on((&running, way), words, IOS_MIN / 2);
        let allocations = spent.per_io(|r| r.memory.allocations);
        println!("{backend:?} {way:?} {words} on a file: {allocations:.4} allocations an I/O");
        assert!(allocations < ALLOCATIONS_MAX, "{words}: {allocations}");
    }
    end(running);
}
