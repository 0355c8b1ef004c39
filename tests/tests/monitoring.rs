//! What weft measures, judged by a real Prometheus and by promtool.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use interop::child::{output, tied};
use interop::client::{QueuePair, raise_open_files};
use interop::prometheus::{PrometheusTools, get};
use interop::weft::{WeftProcess, binary, free_address};
use interop::workspace_dir;
use needs::needs;
use serde_json::Value;

const NQN: &str = "nqn.2026-01.org.example:interop";
const RULES: &str = "prometheus/weft.rules.yml";
const TESTS_OF_RULES: &str = "prometheus/weft.rules.test.yml";

/// A target that is asked over TCP with a token.
struct Monitored {
    target: WeftProcess,
    admin: SocketAddr,
    token: String,
}

impl Monitored {
    fn start(name: &str, address: SocketAddr, more: &str) -> Monitored {
        let admin = free_address();
        let config = format!(
            "{more}\n[[listener]]\naddress = \"{address}\"\n\
             [admin]\nsocket = \"admin.sock\"\nlisten = \"{admin}\"\nstate = \"state\"\n"
        );
        let target = WeftProcess::serve(name, &config, address);
        let token = target.run(&["token", "add", "prometheus", "--role", "viewer"]);
        Monitored {
            target,
            admin,
            token,
        }
    }

    fn scrape(&self) -> String {
        let head = format!("Authorization: Bearer {}\r\n", self.token);
        let (head, body) = get(self.admin, "/metrics", &head).expect("an answer");
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        assert!(body.ends_with("# EOF\n"), "{body}");
        body
    }
}

fn contrib(path: &str) -> PathBuf {
    workspace_dir().join("contrib").join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// One volume over NVMe/TCP, and files over NFS at `nfs`.
fn volume_and_files(nfs: SocketAddr) -> String {
    format!(
        "[[volume]]\nname = \"disk0\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nvolumes = [\"disk0\"]\nallow_any_host = true\n\
         [[file_system]]\nname = \"files\"\nkind = \"mem\"\nsize = \"64MiB\"\n\
         [[export]]\npath = \"/m\"\nfile_system = \"files\"\nallow_any_client = true\n\
         [[listener]]\naddress = \"{nfs}\"\nprotocol = \"nfs\"\n"
    )
}

/// Verified load by weft's own initiator until it is over; panics when it fails.
fn load(url: &str, runtime: &str) {
    let mut perf = tied(binary());
    perf.args(["perf", url, "--rw", "randrw", "--size", "1m"]);
    perf.args(["--ramp-time", "0", "--rate", "2000", "--runtime", runtime]);
    output(&mut perf).expect("every I/O is answered");
}

fn urls(nvme: SocketAddr, nfs: SocketAddr) -> [String; 2] {
    [
        format!("nvme-tcp://{nvme}/{NQN}?nsid=1"),
        format!("nfs://{nfs}/m/f"),
    ]
}

/// Counters have their suffix in the samples alone here; in the text that promtool reads it
/// belongs to the name of the family.
fn as_promtool_reads_it(metrics: &str) -> String {
    let counters: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let line = |line: &str| -> String {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", kind @ ("HELP" | "TYPE"), name, rest] if counters.contains(name) => {
                format!("# {kind} {name}_total {rest}\n")
            }
            _ => format!("{line}\n"),
        }
    };
    metrics.lines().map(line).collect()
}

#[needs(prometheus)]
#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let tools = PrometheusTools::fetch().expect("Prometheus");
    let (nvme, nfs) = (free_address(), free_address());
    let monitored = Monitored::start("promtool", nvme, &volume_and_files(nfs));
    urls(nvme, nfs).iter().for_each(|url| load(url, "300ms"));
    let metrics = as_promtool_reads_it(&monitored.scrape());
    let (is_content, said) = tools
        .promtool(&["check", "metrics"], &metrics)
        .expect("it runs");
    assert!(is_content && said.trim().is_empty(), "{said}");
    monitored.target.expect_orderly_end();
}

/// Each alert is silent while nothing is wrong, and fires in a test of its own.
#[needs(prometheus)]
#[test]
fn promtool_finds_that_each_alert_fires_when_it_is_to_and_only_then() {
    let tools = PrometheusTools::fetch().expect("Prometheus");
    let (rules, tests) = (read(&contrib(RULES)), read(&contrib(TESTS_OF_RULES)));
    let lines = rules.lines();
    let alerts = lines.filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<&str> = alerts.collect();
    assert!(alerts.len() >= 12);
    for alert in alerts {
        assert!(tests.contains(&format!("alertname: {alert} }}")), "{alert}");
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert}");
    }
    for (verb, file) in [("check", RULES), ("test", TESTS_OF_RULES)] {
        let path = contrib(file).display().to_string();
        let (is_content, said) = tools
            .promtool(&[verb, "rules", &path], "")
            .expect("it runs");
        assert!(is_content, "{said}");
    }
}

/// The expressions of the dashboard, of all instances and volumes.
fn of_dashboard() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&read(&contrib("grafana/weft.json"))).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expressions = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    let filled_in = |expression: &str| {
        let expression = expression.replace("$__rate_interval", "10s");
        expression
            .replace("$instance", ".*")
            .replace("$volume", ".*")
    };
    expressions.map(filled_in).collect()
}

/// What an alert compares: the part of its expression before the first comparison.
fn compared(expression: &str) -> &str {
    let at = [" == ", " > "]
        .iter()
        .filter_map(|operator| expression.find(operator));
    &expression[..at.min().expect("an alert compares")]
}

#[needs(prometheus)]
#[test]
fn prometheus_scrapes_with_a_token_and_dashboard_and_alerts_find_series() {
    let tools = PrometheusTools::fetch().expect("Prometheus");
    let (nvme, nfs) = (free_address(), free_address());
    let monitored = Monitored::start("prometheus", nvme, &volume_and_files(nfs));
    let loads = urls(nvme, nfs).map(|url| thread::spawn(move || load(&url, "25s")));
    // A refusal.
    QueuePair::admin(nvme, "nqn.2026-01.org.example:other")
        .expect_err("there is no such subsystem");
    // Flushes, one of which is timed.
    let admin = QueuePair::admin(nvme, NQN).expect("a controller");
    let mut queue = admin.io(NQN, 1).expect("a queue");
    for _ in 0..128 {
        queue.flush().expect("it is answered");
    }

    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("token"), &monitored.token).expect("room");
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [{rules}]\n\
         scrape_configs:\n\
         - job_name: weft\n  \
           authorization: {{ credentials_file: token }}\n  \
           static_configs: [{{ targets: [\"{admin}\"] }}]\n",
        rules = contrib(RULES).display(),
        admin = monitored.admin,
    );
    let prometheus = tools.start(folder.path(), &config).expect("it starts");
    prometheus.wait_for("up{job=\"weft\"} == 1");
    prometheus.wait_for("count_over_time(weft_build_info[1m]) >= 4");

    let without: Vec<String> = of_dashboard()
        .into_iter()
        .filter(|expression| {
            prometheus
                .query(expression)
                .expect("an expression")
                .is_empty()
        })
        .collect();
    assert!(without.is_empty(), "no series: {without:#?}");

    let groups = prometheus.get("rules").expect("an answer");
    let rules = groups["groups"][0]["rules"]
        .as_array()
        .expect("rules")
        .clone();
    assert!(rules.len() >= 12, "{groups}");
    for rule in &rules {
        assert_eq!(
            (&rule["health"], &rule["state"]),
            (&"ok".into(), &"inactive".into()),
            "{rule}"
        );
        let expression = compared(rule["query"].as_str().expect("an expression"));
        let series = prometheus.query(expression).expect("an expression");
        assert!(!series.is_empty(), "no series: {expression}");
    }
    for load in loads {
        load.join().expect("every I/O is answered");
    }
    monitored.target.expect_orderly_end();
}

/// Prints how long a scrape takes.
#[needs(ci, open_files(8192))]
#[test]
fn scrape_of_4096_volumes_and_1000_hosts_over_tcp_has_a_line_for_each() {
    const HOSTS: usize = 1000;
    // Of as many namespaces as one has at most.
    const SUBSYSTEMS: usize = 4;
    const VOLUMES: usize = 4096;
    raise_open_files().expect("more files");
    let nvme = free_address();
    let nqn = |subsystem: usize| format!("{NQN}-{subsystem}");
    let subsystem = |at: usize| {
        format!(
            "[[volume]]\nname = \"v{at}-{{0000..1023}}\"\nkind = \"null\"\nsize = \"1GiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{}\"\nvolumes = [\"v{at}-{{0000..1023}}\"]\n\
             allow_any_host = true\n",
            nqn(at)
        )
    };
    let config: String = (0..SUBSYSTEMS).map(subsystem).collect();
    let monitored = Monitored::start("scrape", nvme, &config);
    let connected = |host: usize| {
        let name = format!("nqn.2014-08.org.nvmexpress:uuid:{host:08x}-0000-4000-8000-{host:012x}");
        let nqn = nqn(host % SUBSYSTEMS);
        let admin = QueuePair::admin_as(&name, nvme, &nqn)?;
        let mut io = admin.io(&nqn, 1)?;
        let namespaces = (host / SUBSYSTEMS + 1)..=VOLUMES / SUBSYSTEMS;
        for nsid in namespaces.step_by(HOSTS / SUBSYSTEMS) {
            io.nsid = u32::try_from(nsid).expect("few");
            io.read(0, 4096, &mut [0; 4096])?;
            io.write(0, 4096, &[0; 4096])?;
        }
        Ok((admin, io))
    };
    let hosts: std::io::Result<Vec<_>> = (0..HOSTS).map(connected).collect();
    let hosts = hosts.expect("every host is served");
    let mut times: Vec<Duration> = Vec::new();
    let mut metrics = String::new();
    for _ in 0..20 {
        let start = Instant::now();
        metrics = monitored.scrape();
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "{} bytes in {:?} (median; {:?} to {:?})",
        metrics.len(),
        times[10],
        times[0],
        times[19]
    );
    let lines = |parts: [&str; 2]| {
        let lines = metrics.lines().filter(|line| line.starts_with(parts[0]));
        lines.filter(|line| line.contains(parts[1])).count()
    };
    for op in ["op=\"read\"", "op=\"write\""] {
        assert_eq!(lines(["weft_io_operations_total", op]), VOLUMES);
        assert_eq!(lines(["weft_host_io_operations_total", op]), HOSTS);
    }
    drop(hosts);
    monitored.target.expect_orderly_end();
}
