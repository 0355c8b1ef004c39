//! `weft perf` and `weft discover` against a target in the same process.
#![allow(missing_docs)]

#[path = "shared/files.rs"]
mod files;
#[path = "shared/line.rs"]
mod line;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use client::discover::{self, DiscoverArgs};
use client::perf::{Report, default_nqn};
use files::{Files, SHORT, load};
use needs::each_driver;
use reactor::Choice;
use server::nfs::NfsSettings;
use server::{
    Config, IscsiTargetSpec, ListenerSpec, LunSpec, NamespaceSpec, RdmaSpec, Running,
    SubsystemSpec, Transports,
};

const SIZE: u64 = 8 << 20;
const TARGET: &str = "iqn.2026-01.io.weft:default";

#[derive(Parser)]
struct DiscoverLine {
    #[command(flatten)]
    args: DiscoverArgs,
}

/// One RAM volume of 8 MiB in the subsystem that is the default.
struct Served(Running);

impl Served {
    fn start() -> Self {
        Self::with(false)
    }

    fn with(read_only: bool) -> Self {
        let volume = store::Spec {
            read_only,
            ..store::Spec::new("ram", store::Kind::RAM, SIZE, 512)
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let running = server::start(Config {
            volumes: vec![volume],
            subsystems: vec![SubsystemSpec {
                nqn: default_nqn(),
                serial: "1".into(),
                model: "weft".into(),
                namespaces: vec![NamespaceSpec {
                    nsid: 1,
                    volume: "ram".into(),
                    ..NamespaceSpec::default()
                }],
                ..SubsystemSpec::default()
            }],
            iscsi_targets: vec![IscsiTargetSpec {
                luns: vec![LunSpec::new(3, "ram")],
                ..IscsiTargetSpec::new(TARGET)
            }],
            listeners: vec![any.into(), ListenerSpec::iscsi(any)],
            cpus: vec![reactor::available_cpus()[0]],
            spin_us_max: 0,
            memory_max: 64 << 20,
            ..Config::default()
        });
        Served(running.expect("the target starts"))
    }

    fn address(&self) -> SocketAddr {
        self.0.addresses()[0]
    }

    fn perf(&self, words: &str) -> Result<Report, String> {
        perf(self.address(), words, &AtomicBool::new(false))
    }

    /// Runs a load as [`until`] does.
    fn perf_until(&self, words: &str, is_enough: impl Fn(&Report) -> bool) -> Report {
        until(&format!("-s {} {words}", self.address().port()), is_enough)
    }

    /// LUN 3, which is the same volume.
    fn url(&self) -> String {
        format!("iscsi://{}/{TARGET}/3", self.0.addresses()[1])
    }

    /// Writes every block of the first 512 KiB with `--verify`.
    fn write_512k(&self) {
        let words = "--rw write --iodepth 4 --verify --size 512k";
        let report = self.perf_until(words, |report| report.write.ios >= 128);
        assert!(report.is_clean(), "{}", report.text());
    }

    /// Damages every 4 KiB block of the volume.
    fn damage(&self) {
        let volume = &self.0.volumes()[0];
        for offset in (0..SIZE).step_by(4096) {
            let done = volume.write_now(offset + 99, &[0xee, 0x11]);
            done.expect("RAM").expect("a write in range");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.stop();
        let ended = self.0.wait(Duration::from_secs(10));
        if !thread::panicking() {
            ended.expect("the target ends").expect("in time");
        }
    }
}

fn perf(to: SocketAddr, words: &str, stop: &AtomicBool) -> Result<Report, String> {
    line::perf(&format!("-s {} {words}", to.port()), stop)
}

/// Runs a load, again and longer while a busy machine brings nothing of what is
/// asked for to its end.
fn until(words: &str, is_enough: impl Fn(&Report) -> bool) -> Report {
    for runtime_ms in [50, 200, 1000, 5000] {
        let line = format!("--ramp-time 10ms --runtime {runtime_ms}ms {words}");
        let report = line::perf(&line, &AtomicBool::new(false)).expect(words);
        if is_enough(&report) {
            return report;
        }
    }
    panic!("{words}: too little in five seconds");
}

/// As a kernel and its load generators do it.
#[test]
fn depth_beyond_the_queue_of_a_target_waits_before_it() {
    let served = Served::start();
    let ways = [format!("-s {}", served.address().port()), served.url()];
    for way in ways {
        let words = format!("{way} --rw randrw --iodepth 1500 --verify");
        let report = until(&words, |r| r.read.ios > 0 && r.write.ios > 0);
        assert!(report.is_clean(), "{words}: {}", report.text());
        assert_eq!(report.load.iodepth, 1500);
    }
    let words = format!("-s {} --multipath --iodepth 1500", served.address().port());
    let report = until(&words, |report| report.read.ios > 0);
    assert!(report.is_clean(), "{words}: {}", report.text());
}

#[each_driver]
fn every_load_runs(choice: Choice) {
    let served = Served::start();
    let backend = match choice {
        Choice::Uring => "io_uring",
        _ => "epoll",
    };
    for (rw, reads, writes) in [
        ("read", true, false),
        ("write", false, true),
        ("randread", true, false),
        ("randwrite", false, true),
        ("rw", true, true),
        ("randrw", true, true),
    ] {
        for bs in ["4k", "128k"] {
            let words = format!("--rw {rw} --bs {bs} --iodepth 8 --io-backend {backend}");
            let report = served.perf_until(&words, |r| {
                (r.read.ios > 0 || !reads) && (r.write.ios > 0 || !writes)
            });
            assert!(report.is_clean(), "{words}: {}", report.text());
            assert_eq!(
                (report.read.ios > 0, report.write.ios > 0),
                (reads, writes),
                "{words}"
            );
            assert_eq!(report.total.ios, report.read.ios + report.write.ios);
            assert_eq!(report.total.latency.count, report.total.ios, "{words}");
        }
    }
}

#[test]
fn digests_queues_and_targets_combine() {
    let (one, two) = (Served::start(), Served::start());
    // One reactor a CPU, two where there are two.
    let cpus: Vec<String> = (reactor::available_cpus().iter().take(2))
        .map(usize::to_string)
        .collect();
    let cpus = cpus.join(",");
    let words = format!(
        "nvme-tcp://{}/{nqn} nvme-tcp://{}/{nqn}?nsid=1 --numjobs 3 -g -G \
         --rw randrw --bs 16k --iodepth 4 --verify --cpus {cpus}",
        one.address(),
        two.address(),
        nqn = default_nqn(),
    );
    let has_checked = |r: &Report| r.verify.as_ref().is_some_and(|v| v.checked > 0);
    let report = until(&words, has_checked);
    assert!(report.is_clean(), "{}", report.text());
    assert_eq!(report.targets.len(), 2);
    assert_eq!(report.targets[1].size_bytes, SIZE);
    for served in [&one, &two] {
        assert!(served.0.report().ios > 0, "both targets are loaded");
    }
}

#[test]
fn verified_writes_are_read_back() {
    let served = Served::start();
    let report = served.perf_until("--rw randwrite --iodepth 4 --verify --size 1m", |r| {
        r.write.ios > 0
    });
    assert!(report.is_clean(), "{}", report.text());
    let checked = report.verify.expect("verified").checked;
    assert!(checked > 0 && checked <= 256, "{checked} of 256 blocks");
    // Blocks of one run, by another that only reads.
    served.write_512k();
    let report = served.perf_until("--rw randread --iodepth 4 --verify --size 512k", |r| {
        r.read.ios > 0
    });
    assert!(report.is_clean(), "{}", report.text());
    assert!(report.verify.expect("verified").checked >= report.read.ios);
}

#[test]
fn verify_counts_damaged_blocks() {
    let served = Served::start();
    served.write_512k();
    served.damage();
    let report = served.perf_until("--rw read --iodepth 4 --verify --size 512k", |r| {
        r.read.ios > 0
    });
    assert!(!report.is_clean());
    let verify = report.verify.as_ref().expect("verified");
    assert_eq!(verify.mismatches, verify.checked);
    assert!(
        verify.examples[0].contains("checksum"),
        "{:?}",
        verify.examples
    );
    assert!(report.text().contains("checksum"));
    // What --verify did not write is no pattern at all.
    let words = "--rw read --iodepth 4 --verify --offset 4m --size 512k";
    let verify = served
        .perf_until(words, |r| r.read.ios > 0)
        .verify
        .expect("verified");
    assert_eq!(verify.mismatches, verify.checked);
    assert!(
        verify.examples[0].contains("not written by --verify"),
        "{:?}",
        verify.examples
    );
}

#[test]
fn damage_under_a_running_load_is_found() {
    let served = Served::start();
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let to = served.address();
        let stop_load = &stop;
        let load = scope.spawn(move || {
            let words = "--rw randrw --verify --size 256k --iodepth 4 --runtime 60 --ramp-time 0";
            perf(to, words, stop_load)
        });
        while served.0.report().ios < 1000 {
            thread::sleep(Duration::from_millis(1));
        }
        let before = served.0.report().ios;
        while served.0.report().ios < before + 5000 {
            served.damage();
        }
        stop.store(true, Ordering::Relaxed);
        load.join().expect("no panic").expect("runs")
    });
    assert!(
        report.verify.as_ref().expect("verified").mismatches > 0,
        "{}",
        report.text()
    );
    assert!(report.seconds < 50.0, "the stop ended it");
}

#[test]
fn refused_writes_are_counted_by_status() {
    let served = Served::with(true);
    let report = served.perf_until("--rw write --iodepth 2", |r| !r.errors.failed.is_empty());
    assert!(!report.is_clean());
    assert_eq!(report.write.ios, 0);
    assert_eq!(report.errors.failed.len(), 1);
    assert!(
        report.errors.failed[0].status.contains("Write Protected"),
        "{:?}",
        report.errors
    );
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let served = Served::start();
    let words = "--rate 2000 --iodepth 8 --numjobs 2 --runtime 500ms --ramp-time 0";
    let report = served.perf(words).expect("runs");
    assert!(report.is_clean(), "{}", report.text());
    let started = report.total.ios + report.errors.unstarted;
    // 16 at most were under way when the time was up.
    let due = 2000.0 * report.seconds;
    assert!(
        (due - 20.0..=due + 2.0).contains(&(started as f64)),
        "{started} of {due}"
    );
    assert!(
        report.total.latency.count >= started,
        "every I/O that was due has a latency"
    );
}

#[test]
fn the_report_for_machines_has_what_readers_rely_on() {
    let served = Served::start();
    let report = served.perf(&format!("--rw randrw {SHORT}")).expect("runs");
    let json = serde_json::to_value(&report).expect("JSON");
    for path in [
        "/load/bs",
        "/load/iodepth",
        "/targets/0/size_bytes",
        "/seconds",
        "/read/iops",
        "/write/mb_per_s",
        "/total/latency/p99_99_us",
        "/total/latency/p50_us",
        "/errors/lost",
        "/initiator/syscalls_per_io",
        "/initiator/copied_bytes_per_io",
        "/initiator/wakeups_per_io",
    ] {
        assert!(
            json.pointer(path).is_some_and(serde_json::Value::is_number),
            "{path}: {json}"
        );
    }
    // No allocator of this test counts.
    assert!(json["initiator"]["allocations_per_io"].is_null(), "{json}");
    assert_eq!(json["load"]["rw"], "randrw");
    assert_eq!(json["verify"], serde_json::Value::Null);
    let backend = json["backend"].as_str().expect("text");
    assert!(["io_uring", "epoll"].contains(&backend));
}

#[test]
fn a_target_that_goes_away_ends_the_load() {
    let served = Served::start();
    let report = thread::scope(|scope| {
        let to = served.address();
        let stop = AtomicBool::new(false);
        let load = scope.spawn(move || perf(to, "--iodepth 4 --numjobs 2 --runtime 60", &stop));
        while served.0.report().ios < 100 {
            thread::sleep(Duration::from_millis(1));
        }
        served.0.stop();
        load.join().expect("no panic").expect("it was measured")
    });
    assert!(!report.is_clean());
    assert_eq!(report.errors.connections_down, 2);
    assert!(report.seconds < 50.0);
}

#[test]
fn missing_target_subsystem_or_namespace_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = closed.local_addr().expect("address");
    drop(closed);
    let error = perf(to, SHORT, &AtomicBool::new(false)).expect_err("port is closed");
    assert!(error.contains("refused"), "{error}");
    let served = Served::start();
    let error = served
        .perf("-n nqn.2026-01.io.weft:other")
        .expect_err("no such subsystem");
    assert!(error.contains("Connect was refused"), "{error}");
    let error = served.perf("--nsid 7").expect_err("no such namespace");
    assert!(
        error.contains("namespace") || error.contains("Namespace"),
        "{error}"
    );
}

#[test]
fn a_peer_that_speaks_something_else_is_left() {
    use std::io::Write;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("address");
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream
            .write_all(b"SSH-2.0-OpenSSH_9.2\r\nand so on\r\n")
            .expect("sent");
        let mut all = Vec::new();
        // Until the initiator leaves; a reset is as good as a close.
        let _ = std::io::Read::read_to_end(&mut stream, &mut all);
        all.len()
    });
    let error = perf(to, SHORT, &AtomicBool::new(false)).expect_err("no controller");
    assert!(error.contains("protocol error"), "{error}");
    assert!(peer.join().expect("no panic") >= 128, "ICReq was sent");
}

#[test]
fn discovery_lists_the_subsystem() {
    let served = Served::start();
    let words = format!("discover {} --json", served.address());
    let line = DiscoverLine::try_parse_from(words.split_whitespace()).expect("parses");
    let (listing, errors) = discover::discover(&line.args);
    assert_eq!(errors, Vec::<String>::new());
    let json = serde_json::to_value(&listing).expect("JSON");
    assert!(json.get("targets").is_none(), "no portal was asked");
    let all = json["records"].as_array().expect("records");
    let ours = all
        .iter()
        .find(|r| r["subnqn"] == *default_nqn())
        .expect("the subsystem");
    assert_eq!(ours["trtype"], "tcp");
    assert_eq!(ours["traddr"], "127.0.0.1");
    assert_eq!(ours["trsvcid"], served.address().port().to_string());
}

#[test]
fn discovery_lists_the_iscsi_target() {
    let served = Served::start();
    let portal = served.0.addresses()[1];
    let line = DiscoverLine::try_parse_from(["discover", &format!("iscsi://{portal}")]);
    let (listing, errors) = discover::discover(&line.expect("parses").args);
    assert_eq!(errors, Vec::<String>::new());
    assert!(
        listing.records.is_none(),
        "no discovery controller was asked"
    );
    let targets = listing.targets.expect("an answer");
    let found: Vec<_> = targets
        .iter()
        .map(|t| (t.target.as_str(), t.tpgt))
        .collect();
    assert_eq!(found, [(TARGET, 1)]);
    assert_eq!(targets[0].portal, portal.to_string());
}

#[test]
fn iscsi_writes_are_read_back_over_nvme() {
    let served = Served::start();
    let url = served.url();
    for digests in ["", "-g", "-G", "-g -G"] {
        let words = format!(
            "{url} --rw randrw --bs 4k --iodepth 8 --numjobs 2 --verify --size 1m {digests}"
        );
        let report = until(&words, |report| {
            report.read.ios >= 100 && report.write.ios >= 100
        });
        assert!(report.is_clean(), "{}", report.text());
        let checked = report.verify.expect("checked").checked;
        assert!(checked > 100, "{checked} blocks");
        let t = &report.targets[0];
        assert_eq!((t.size_bytes, t.block_bytes), (SIZE, 512));
        assert!(t.name.to_string().ends_with("LUN 3"), "{}", t.name);
    }
    // What one protocol wrote, the other reads.
    let words = format!("{url} --rw write --iodepth 4 --verify --size 512k");
    let report = until(&words, |report| report.write.ios >= 128);
    assert!(report.is_clean(), "{}", report.text());
    let report = served.perf_until("--rw read --verify --size 512k", |r| r.read.ios >= 128);
    assert!(report.is_clean(), "{}", report.text());
    assert!(report.verify.expect("checked").checked >= 128);
}

#[test]
fn an_iscsi_load_says_what_goes_wrong() {
    let served = Served::with(true);
    let url = served.url();
    let report = until(&format!("{url} --rw randwrite --iodepth 2"), |report| {
        !report.errors.failed.is_empty()
    });
    let failed = &report.errors.failed;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].status.starts_with("DATA PROTECT"), "{failed:?}");
    let portal = served.0.addresses()[1];
    for (url, why) in [
        (format!("iscsi://{portal}/{TARGET}/9"), "LUN 9 is no disk"),
        (format!("iscsi://{portal}/{TARGET}x/3"), "weft discover"),
        (format!("{url} --multipath"), "--multipath is NVMe's"),
        (format!("{url} --bs 100"), "no multiple"),
    ] {
        let error = load(&url).expect_err("refused");
        assert!(error.contains(why), "{url}: {error}");
    }
}

fn start_files() -> Files {
    start_files_by("nfs")
}

/// That are served in this way alone.
fn start_files_by(scheme: &str) -> Files {
    let transports = match scheme {
        "nfs" => Transports::Tcp,
        _ => Transports::Rdma,
    };
    let rdma = RdmaSpec {
        transports,
        ..RdmaSpec::default()
    };
    Files::start(NfsSettings::default(), rdma)
}

/// By TCP and by RDMA.
const SCHEMES: [&str; 2] = ["nfs", "nfs+rdma"];

impl Files {
    fn url(&self, path: &str) -> String {
        self.url_of("nfs", path)
    }

    fn url_of(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}{path}", self.address())
    }

    /// What lies in a directory, by `weft discover`.
    fn list(&self, path: &str) -> Vec<String> {
        self.list_of("nfs", path)
    }

    fn list_of(&self, scheme: &str, path: &str) -> Vec<String> {
        let url = self.url_of(scheme, path);
        let line = DiscoverLine::try_parse_from(["discover", &url]).expect("a good line");
        let (listing, errors) = discover::discover(&line.args);
        assert_eq!(errors, [""; 0]);
        let files = listing.files.expect("it was asked");
        files.into_iter().map(|file| file.path).collect()
    }
}

#[test]
fn files_are_loaded_and_nothing_is_left() {
    SCHEMES.iter().for_each(|scheme| load_files(scheme));
}

fn load_files(scheme: &str) {
    let files = start_files_by(scheme);
    let url = files.url_of(scheme, "/files");
    for (words, reads, writes) in [
        (
            "--rw randread --bs 4k --iodepth 32 --io-backend epoll",
            true,
            false,
        ),
        ("--rw write --bs 1m --iodepth 4", false, true),
        ("--rw read --bs 1m --iodepth 4", true, false),
        (
            "--rw randrw --bs 4k --iodepth 8 --numjobs 4 --verify",
            true,
            true,
        ),
        ("--rw randrw --bs 128k --iodepth 8 --verify -G", true, true),
        // Neither whole pages nor whole words.
        (
            "--rw randrw --bs 5001 --iodepth 8 --numjobs 2 --verify",
            true,
            true,
        ),
    ] {
        let report = until(&format!("{url} --size 8m {words}"), |r| {
            (r.read.ios > 0 || !reads) && (r.write.ios > 0 || !writes)
        });
        assert!(report.is_clean(), "{words}: {}", report.text());
        let model = &report.targets[0].model;
        assert_eq!(model.ends_with("by RDMA"), scheme == "nfs+rdma", "{model}");
        let has = (report.read.ios > 0, report.write.ios > 0);
        assert_eq!((has, report.metadata.ops), ((reads, writes), 0), "{words}");
        assert_eq!(report.targets[0].size_bytes, 8 << 20);
        if words.contains("verify") {
            let checked = report.verify.map(|verified| verified.checked);
            assert!(checked.is_some_and(|checked| checked > 0), "{words}");
        }
        assert_eq!(files.list_of(scheme, "/files"), [""; 0], "{words}");
    }
    assert_eq!(files.list_of(scheme, ""), ["/files"]);
}

#[test]
fn a_file_that_is_named_stays() {
    let files = start_files();
    let url = files.url("/files/disk");
    let error = load(&url).expect_err("no such file");
    assert!(error.contains("--size"), "{error}");
    let words = format!("{url} --rw write --bs 64k --size 1m --iodepth 2 --verify");
    let report = until(&words, |report| report.write.ios >= 16);
    assert!(report.is_clean(), "{}", report.text());
    assert_eq!(files.list("/files"), ["/files/disk"]);
    // Another run knows what this one has left.
    let words = format!("{url} --rw read --bs 64k --iodepth 2 --verify");
    let report = until(&words, |report| report.read.ios >= 16);
    assert!(report.is_clean(), "{}", report.text());
    assert_eq!(
        report.targets[0].size_bytes,
        1 << 20,
        "it is as long as it was"
    );
    // Blocks of another size are told not to be these.
    let report = load(&format!("{url} --rw read --bs 32k --iodepth 2 --verify"));
    let verified = report.expect("it runs").verify.expect("it was checked");
    assert!(verified.checked > 0 && verified.mismatches == verified.checked);
    // A longer one is written to its new end first.
    let report = load(&format!("{url} --rw randwrite --size 2m"));
    assert_eq!(report.expect("it runs").targets[0].size_bytes, 2 << 20);
}

#[test]
fn names_and_attributes_are_loaded_and_nothing_is_left() {
    SCHEMES.iter().for_each(|scheme| load_names(scheme));
}

fn load_names(scheme: &str) {
    let files = start_files_by(scheme);
    let url = files.url_of(scheme, "/files");
    for (words, lists) in [
        ("--rw create --iodepth 8 --numjobs 2", false),
        ("--rw create --bs 100k --iodepth 2", false),
        ("--rw getattr --iodepth 32", false),
        ("--rw getattr --nrfiles 10 --iodepth 4 --numjobs 2", false),
        ("--rw readdir --nrfiles 2500 --iodepth 4", true),
    ] {
        let report = until(&format!("{url} {words}"), |report| report.metadata.ops > 16);
        assert!(report.is_clean(), "{words}: {}", report.text());
        assert_eq!((report.read.ios, report.write.ios), (0, 0));
        assert_eq!(report.total.ios, report.metadata.ops);
        assert_eq!(
            report.metadata.latency.count, report.metadata.ops,
            "{words}"
        );
        let entries = report.metadata.entries_per_s * report.seconds;
        // A whole directory takes several answers.
        let whole = report.metadata.ops as f64 * 2500.0;
        assert_eq!(entries > 0.0, lists, "{words}");
        assert!(!lists || entries < whole, "{words}: {entries} entries");
        assert_eq!(files.list_of(scheme, "/files"), [""; 0], "{words}");
    }
}

#[test]
fn jobs_share_sessions_as_far_as_their_slots_go() {
    let files = start_files();
    // A session has 128 slots: two jobs each, then one.
    let words = format!(
        "{} --rw randread --size 4m --iodepth 50 --numjobs 5",
        files.url("/files")
    );
    let report = until(&words, |report| report.read.ios > 0);
    assert!(report.is_clean(), "{}", report.text());
    let deep = format!(
        "{} --rw randread --size 4m --iodepth 4000",
        files.url("/files")
    );
    let report = until(&deep, |report| report.read.ios > 0);
    assert!(report.is_clean(), "{}", report.text());
    assert_eq!(files.list("/files"), [""; 0]);
}

#[test]
fn impossible_loads_of_files_are_refused() {
    let files = start_files();
    let (root, file) = (files.url("/files"), files.url("/files/a"));
    load(&format!("{file} --rw write --size 64k")).expect("a file");
    for (words, why) in [
        (
            format!("{} --rw getattr", files.url("/nothing")),
            "no such directory",
        ),
        (
            format!("{} --rw read", files.url("/nothing/a")),
            "NFS4ERR_NOENT",
        ),
        (format!("{file} --rw readdir"), "no directory"),
        (format!("{file} --rw create"), "no directory"),
        (format!("{root} --rw create --bs 2m"), "one WRITE"),
        (format!("{root} --rw create --size 1m"), "--size"),
        (format!("{root} --rw getattr --verify"), "--verify"),
        (format!("{root} --rw randread --nrfiles 3"), "--nrfiles"),
        (format!("{root} --rw create --nrfiles 3"), "--nrfiles"),
        (format!("{root} --rw randread --verify"), "has written"),
        (format!("{root} --rw randwrite --verify --bs 511"), "512"),
        (
            format!("{root} --rw randread --bs 2m"),
            "above the target's limit",
        ),
        (format!("{root} --multipath"), "NVMe's"),
        (format!("{root} --rw write --size 1g"), "NFS4ERR_NOSPC"),
        ("--rw getattr".into(), "nfs://"),
        (
            format!("{} --ca /none", files.url_of("nfs+rdma", "/files")),
            "no TLS",
        ),
        (
            format!("nvme-tcp://127.0.0.1/nqn.a {root} --rw create"),
            "nfs://",
        ),
    ] {
        let error = load(&words).expect_err(&words);
        assert!(error.contains(why), "{words}: {error}");
    }
    assert_eq!(files.list("/files"), ["/files/a"], "what was begun is gone");
}

#[test]
fn a_server_that_goes_away_ends_the_load() {
    SCHEMES.iter().for_each(|scheme| lose_server(scheme));
}

fn lose_server(scheme: &str) {
    let files = start_files_by(scheme);
    let url = files.url_of(scheme, "/files");
    let loading = thread::spawn(move || {
        let words = format!("{url} --rw randread --size 1m --runtime 60s");
        line::perf(&words, &AtomicBool::new(false))
    });
    // More than preparing the load takes.
    while files.0.report().nfs_calls < 200 {
        thread::sleep(Duration::from_millis(1));
    }
    files.0.stop();
    let report = loading.join().expect("no panic");
    // It may have been too early for the load to begin.
    if let Ok(report) = report {
        assert!(!report.is_clean());
        assert_eq!(report.errors.connections_down, 1);
        assert!(report.seconds < 50.0, "it ends with its connection");
    }
}

#[test]
fn server_without_rdma_is_named() {
    let files = start_files();
    let url = files.url_of("nfs+rdma", "/files");
    let error = load(&url).expect_err("it speaks no RDMA");
    assert!(error.contains("may not speak RDMA"), "{error}");
    let line = DiscoverLine::try_parse_from(["discover", &url]).expect("a good line");
    let (listing, errors) = discover::discover(&line.args);
    assert!(listing.files.is_none());
    assert!(errors[0].starts_with("nfs+rdma://127.0.0.1:"), "{errors:?}");
    assert!(errors[0].contains("may not speak RDMA"), "{errors:?}");
}
