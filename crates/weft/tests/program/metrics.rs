//! What Prometheus is told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use needs::needs;

use crate::serving::{Ends, File, PATIENCE, Serving, file, free_port, serve, text, weft};
use crate::told::end_in_order;

const TABLE_BEGINS: &str = "<!-- The table is made by a test. -->\n";

/// A target of one volume over NVMe/TCP and iSCSI, and of one export.
struct Measured {
    serving: Serving,
    file: File,
    urls: [String; 3],
}

impl Measured {
    fn start() -> Measured {
        let ports = [(); 3].map(|()| free_port());
        let listeners = ports.iter().zip(["nvme-tcp", "iscsi", "nfs"]);
        let listeners = listeners.map(|(port, protocol)| {
            format!("[[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"{protocol}\"\n")
        });
        let listeners: String = listeners.collect();
        let file = file(&format!(
            "[[volume]]\nname = \"disk0\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
             [[volume]]\nname = \"disk1\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:m\"\nallow_any_host = true\n\
             [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"disk0\"\n\
             [[nvme.subsystem.namespace]]\nnsid = 2\nvolume = \"disk1\"\n\
             [[iscsi.target]]\nname = \"iqn.2026-01.io.weft:m\"\nvolumes = [\"disk0\"]\n\
             allow_any_initiator = true\n\
             [[file_system]]\nname = \"files\"\nkind = \"mem\"\nsize = \"64MiB\"\n\
             [[export]]\npath = \"/m\"\nfile_system = \"files\"\n\
             allow_any_client = true\n\
             {listeners}[policy]\nmemory_max = \"1GiB\"\n\
             [admin]\nsocket = \"admin.sock\"\nstate = \"state\"\n"
        ));
        let serving = serve(&file.path);
        let [nvme, iscsi, nfs] = ports;
        Measured {
            serving,
            file,
            urls: [
                format!("nvme-tcp://127.0.0.1:{nvme}/nqn.2026-01.io.weft:m?nsid=1"),
                format!("iscsi://127.0.0.1:{iscsi}/iqn.2026-01.io.weft:m/0"),
                format!("nfs://127.0.0.1:{nfs}/m/f"),
            ],
        }
    }

    fn socket(&self) -> PathBuf {
        self.file.path.with_file_name("admin.sock")
    }

    fn scrape(&self) -> String {
        let answer = crate::admin::exchange(
            &self.socket(),
            b"GET /metrics HTTP/1.0\r\nHost: weft\r\n\r\n",
        );
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains("application/openmetrics-text"), "{head}");
        assert!(body.ends_with("# EOF\n"), "{body}");
        body.to_owned()
    }

    fn figures(&self) -> api::Figures {
        let request = b"GET /v1/figures HTTP/1.0\r\nHost: weft\r\n\r\n";
        let answer = crate::admin::exchange(&self.socket(), request);
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).expect("figures")
    }

    fn until_no_host_is_connected(&self) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while sum(&self.scrape(), "weft_connections", &[]) > 0.0 {
            assert!(std::time::Instant::now() < deadline, "{}", self.scrape());
        }
    }

    fn load(&self, url: &str, more: &[&str]) {
        let run = ["--runtime", "300ms", "--ramp-time", "0", "--size", "1m"];
        let output = weft(&[&["perf", url][..], &run, more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

/// The sum of the samples of a name whose labels have all of `parts`.
fn sum(metrics: &str, name: &str, parts: &[&str]) -> f64 {
    let samples = metrics.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{']))
            && parts.iter().all(|part| line.contains(part))
    });
    let values = samples.map(|line| line.rsplit(' ').next().unwrap_or_default());
    values.map(|value| value.parse::<f64>().expect(value)).sum()
}

/// Help and type of each family, by its name as it is asked for.
fn families(metrics: &str) -> BTreeMap<String, (String, String)> {
    let mut families = BTreeMap::new();
    let mut help = "";
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("a text").1;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            let suffix = if kind == "counter" { "_total" } else { "" };
            let family = (kind.to_owned(), help.to_owned());
            families.insert(format!("{name}{suffix}"), family);
        }
    }
    families
}

/// What volumes and exports count of themselves is what reactors count, and it is all.
#[test]
fn metrics_count_every_io_by_protocol_and_volume_and_time_one_in_64() {
    let measured = Measured::start();
    for url in &measured.urls {
        measured.load(url, &["--rw", "randrw"]);
    }
    let metrics = measured.scrape();
    let total = |op: &str| sum(&metrics, "weft_io_operations_total", &[op]);
    let (reads, writes) = (total("op=\"read\""), total("op=\"write\""));
    assert!(reads > 0.0 && writes > 0.0, "{metrics}");
    let flushes = total("op=\"flush\"");
    let ios = sum(&metrics, "weft_reactor_ios_total", &[]);
    // Flushes of volumes alone are among those of reactors.
    assert!(
        reads + writes <= ios && ios <= reads + writes + flushes,
        "{metrics}"
    );
    let bytes = sum(&metrics, "weft_io_bytes_total", &[]);
    let io_bytes = sum(&metrics, "weft_reactor_io_bytes_total", &[]);
    assert_eq!(bytes, io_bytes, "{metrics}");
    assert_eq!(
        sum(&metrics, "weft_io_errors_total", &["volume=\"disk0\""]),
        0.0
    );
    for (protocol, volume) in [("nvme-tcp", "disk0"), ("iscsi", "disk0"), ("nfs", "/m")] {
        let protocol = format!("protocol=\"{protocol}\"");
        let of_volume = [&*protocol, &format!("volume=\"{volume}\"")];
        let count = sum(&metrics, "weft_io_operations_total", &of_volume);
        let timed = sum(&metrics, "weft_io_seconds_count", &of_volume);
        assert!(timed > 0.0 && timed <= count / 60.0 + 8.0, "{metrics}");
        let in_buckets = sum(
            &metrics,
            "weft_io_seconds_bucket",
            &[&protocol, "le=\"+Inf\""],
        );
        assert_eq!(in_buckets, timed);
        for stage in ["receive", "parse", "queue", "backend", "reply", "send"] {
            let labels = [&*protocol, &format!("stage=\"{stage}\"")];
            let count = sum(&metrics, "weft_stage_seconds_count", &labels);
            assert!(count > 0.0, "{protocol} {stage}: {metrics}");
        }
    }
    let none = sum(&metrics, "weft_io_operations_total", &["volume=\"disk1\""]);
    assert_eq!(none, 0.0);
    end_in_order(measured.serving);
}

/// What programs take the difference of is what Prometheus is told.
#[test]
fn figures_of_a_load_say_what_the_metrics_say_and_time_hosts_and_their_stages() {
    let measured = Measured::start();
    let mut perf = Command::new(env!("CARGO_BIN_EXE_weft"));
    let perf = perf
        .args(["perf", &measured.urls[0], "--rw", "randrw", "--size", "1m"])
        .args(["--runtime", "600s", "--ramp-time", "0", "--rate", "2000"])
        .args(["--hostnqn", "nqn.2026-01.io.weft:loads"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let load = Ends::start(perf);
    let deadline = std::time::Instant::now() + PATIENCE;
    let is_timed = |host: &api::HostFigures| {
        let of = |op: &api::FigureOp| host.ops.get(op).map_or(0, |of| of.times.count());
        of(&api::FigureOp::Read) > 0 && of(&api::FigureOp::Write) > 0
    };
    let (before, host) = loop {
        let figures = measured.figures();
        let mut hosts = figures.hosts.iter();
        let host = hosts.find(|host| host.host == "nqn.2026-01.io.weft:loads" && is_timed(host));
        if let Some(host) = host.cloned() {
            break (figures, host);
        }
        assert!(std::time::Instant::now() < deadline, "{figures:?}");
    };
    assert_eq!(host.protocol, api::Protocol::NvmeTcp);
    let stage = |stages: &[api::StageTime], name| {
        let found = stages.iter().find(|stage| stage.stage == name);
        found.map_or(0, |stage| stage.times.count())
    };
    let of_protocol = &before.stages[0];
    for name in ["parse", "queue", "backend", "reply", "send"] {
        let count = stage(&host.stages, name);
        assert!(count > 0, "{name}: {host:?}");
        // Read after those of the host, and of all that came: the discovery too.
        assert!(count <= stage(&of_protocol.stages, name) + 64, "{name}");
    }
    drop(load);
    measured.until_no_host_is_connected();
    let (figures, metrics) = (measured.figures(), measured.scrape());
    assert!(figures.hosts.is_empty(), "{:?}", figures.hosts);
    assert_eq!(figures.boot, before.boot);
    assert!(figures.uptime_ns > before.uptime_ns);
    let volume = (figures.volumes.iter())
        .find(|volume| volume.protocol == api::Protocol::NvmeTcp)
        .expect("a load");
    for (op, name) in [
        (api::FigureOp::Read, "read"),
        (api::FigureOp::Write, "write"),
    ] {
        let op = &volume.ops[&op];
        let of = |family| {
            let op = format!("op=\"{name}\"");
            sum(&metrics, family, &[&op, "nvme-tcp", "volume=\"disk0\""])
        };
        assert_eq!(op.count as f64, of("weft_io_operations_total"));
        assert_eq!(op.bytes as f64, of("weft_io_bytes_total"));
        assert_eq!(op.times.count() as f64, of("weft_io_seconds_count"));
        assert_eq!(op.times.sum_ns as f64 / 1e9, of("weft_io_seconds_sum"));
    }
    let ios: u64 = figures.reactors.iter().map(|of| of.count("ios")).sum();
    assert_eq!(ios as f64, sum(&metrics, "weft_reactor_ios_total", &[]));
    end_in_order(measured.serving);
}

#[test]
fn metrics_tell_hosts_that_are_connected_and_forget_volumes_that_are_gone() {
    let measured = Measured::start();
    let host = "nqn.2026-01.io.weft:\\\"quoted\\\"";
    let mut perf = Command::new(env!("CARGO_BIN_EXE_weft"));
    let perf = perf
        .args(["perf", &measured.urls[0].replace("nsid=1", "nsid=2")])
        .args(["--runtime", "600s", "--ramp-time", "0", "--rate", "1000"])
        .args(["--hostnqn", &host.replace('\\', "")])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let load = Ends::start(perf);
    let of_host = format!("host=\"{host}\"");
    let deadline = std::time::Instant::now() + PATIENCE;
    let metrics = loop {
        let metrics = measured.scrape();
        if sum(&metrics, "weft_host_io_operations_total", &[&of_host]) > 0.0 {
            break metrics;
        }
        assert!(std::time::Instant::now() < deadline, "{metrics}");
    };
    assert!(sum(&metrics, "weft_connections", &["nvme-tcp"]) >= 2.0);
    assert!(metrics.contains("volume=\"disk1\""));
    drop(load);
    let all = std::fs::read_to_string(&measured.file.path).expect("ours");
    let without = all
        .replacen(
            "[[volume]]\nname = \"disk1\"\nkind = \"ram\"\nsize = \"8MiB\"\n",
            "",
            1,
        )
        .replacen(
            "[[nvme.subsystem.namespace]]\nnsid = 2\nvolume = \"disk1\"\n",
            "",
            1,
        );
    std::fs::write(&measured.file.path, without).expect("a file");
    let path = measured.file.path.to_str().expect("UTF-8");
    let socket = measured.socket();
    let socket = socket.to_str().expect("UTF-8");
    let applied = weft(&["apply", "--disconnect", "-c", path, "--at", socket]);
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    let metrics = measured.scrape();
    assert!(!metrics.contains("volume=\"disk1\""), "{metrics}");
    end_in_order(measured.serving);
}

/// Series are as many as there are tables, however many users there are.
#[test]
fn metrics_tell_what_quotas_of_the_configuration_have_and_allow() {
    let port = free_port();
    let file = file(&format!(
        "[[file_system]]\nname = \"files\"\nkind = \"mem\"\nsize = \"64MiB\"\n\
         [[export]]\npath = \"/m\"\nfile_system = \"files\"\nallow_any_client = true\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"nfs\"\n\
         [[quota]]\nname = \"all\"\nfile_system = \"files\"\ntree = \"/\"\n\
         hard_bytes = \"32MiB\"\nsoft_bytes = \"16MiB\"\n\
         [[quota]]\nname = \"project\"\nfile_system = \"files\"\ntree = \"/projects/a\"\n\
         soft_objects = 7\n\
         [[quota]]\nname = \"ann\"\nfile_system = \"files\"\nuser = 1000\nhard_objects = 9\n\
         [[quota]]\nname = \"others\"\nfile_system = \"files\"\neach_user = true\n\
         hard_bytes = \"1MiB\"\n\
         [admin]\nsocket = \"admin.sock\"\nstate = \"state\"\n"
    ));
    let serving = serve(&file.path);
    let request = b"GET /metrics HTTP/1.0\r\nHost: weft\r\n\r\n";
    let answer = crate::admin::exchange(&file.path.with_file_name("admin.sock"), request);
    let value = |name: &str, quota: &str, limit: &str| {
        sum(&answer, name, &[&format!("quota=\"{quota}\""), limit])
    };
    // The uppermost directory, and the two of the tree.
    assert_eq!(value("weft_quota_used_objects", "all", ""), 3.0);
    assert_eq!(value("weft_quota_used_objects", "project", ""), 1.0);
    assert_eq!(value("weft_quota_used_objects", "ann", ""), 0.0);
    assert!(value("weft_quota_used_bytes", "all", "") > 0.0);
    let mib = f64::from(1 << 20);
    assert_eq!(
        value("weft_quota_limit_bytes", "all", r#"limit="hard""#),
        32.0 * mib
    );
    assert_eq!(
        value("weft_quota_limit_bytes", "all", r#"limit="soft""#),
        16.0 * mib
    );
    assert_eq!(
        value("weft_quota_limit_bytes", "others", r#"limit="hard""#),
        mib
    );
    assert_eq!(
        value("weft_quota_limit_objects", "project", r#"limit="soft""#),
        7.0
    );
    assert_eq!(
        value("weft_quota_limit_objects", "ann", r#"limit="hard""#),
        9.0
    );
    let count = |name: &str| answer.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(count("weft_quota_used_bytes{"), 3);
    assert_eq!(count("weft_quota_used_objects{"), 3);
    assert_eq!(count("weft_quota_limit_bytes{"), 3);
    assert_eq!(count("weft_quota_limit_objects{"), 2);
    end_in_order(serving);
}

#[test]
#[needs(program("readelf"))]
fn binary_has_the_probe_of_stages_that_is_documented() {
    let notes = Command::new("readelf")
        .args(["--notes", env!("CARGO_BIN_EXE_weft")])
        .output()
        .expect("it starts");
    let notes = text(&notes.stdout);
    let Some((_, probe)) = notes.split_once("Provider: weft") else {
        panic!("{notes}");
    };
    let [name, _, arguments] = [1, 2, 3].map(|at| probe.lines().nth(at).unwrap_or_default().trim());
    assert_eq!(name, "Name: stage");
    // The protocol, the stage and the nanoseconds.
    let arguments = arguments
        .strip_prefix("Arguments: ")
        .expect("they are told");
    assert_eq!(arguments.split(' ').count(), 3, "{arguments}");
}

/// `WEFT_WRITE_DOCS=1 cargo test --workspace --test program -- metrics` brings it up to date.
#[test]
fn table_of_the_documentation_has_every_metric() {
    let measured = Measured::start();
    let families = families(&measured.scrape());
    let rows = families
        .iter()
        .map(|(name, (kind, help))| format!("| `{name}` | {kind} | {help} |\n"));
    let table: String = rows.collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(&path).expect("docs/metrics.md");
    let (before, _) = page
        .split_once(TABLE_BEGINS)
        .expect("the line before the table");
    let current = format!(
        "{before}{TABLE_BEGINS}\n| metric | type | what it tells |\n|---|---|---|\n{table}"
    );
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        std::fs::write(&path, &current).expect("docs/metrics.md");
    }
    assert!(
        page == current || std::env::var_os("WEFT_WRITE_DOCS").is_some(),
        "docs/metrics.md is out of date: WEFT_WRITE_DOCS=1 cargo test --workspace --test program \
         -- metrics"
    );
    end_in_order(measured.serving);
}

/// A file of `contrib`.
fn contrib(path: &str) -> String {
    let path = Path::new(CONTRIB).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

const CONTRIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");
const RULES: &str = "prometheus/weft.rules.yml";
const TESTS_OF_RULES: &str = "prometheus/weft.rules.test.yml";
const DASHBOARD: &str = "grafana/weft.json";

/// The page has every metric, as another test sees to.
#[test]
fn dashboard_and_alerts_name_metrics_that_there_are() {
    let page = Path::new(CONTRIB).join("../docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("docs/metrics.md");
    for file in [RULES, TESTS_OF_RULES, DASHBOARD] {
        let content = contrib(file);
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = content.split(|c| !is_of_name(c));
        let names: Vec<&str> = words.filter(|word| word.starts_with("weft_")).collect();
        assert!(names.len() > 10, "{file}");
        for name in names {
            let suffixes = ["_bucket", "_sum", "_count"];
            let family = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            let family = family.unwrap_or(name);
            assert!(page.contains(&format!("`{family}`")), "{file}: {name}");
        }
    }
    let dashboard: serde_json::Value = serde_json::from_str(&contrib(DASHBOARD)).expect("JSON");
    assert!(
        dashboard["panels"]
            .as_array()
            .is_some_and(|panels| panels.len() > 10)
    );
}
