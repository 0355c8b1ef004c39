//! `cargo xtask perf`: the tables of `docs/performance.md`. Each row runs bare
//! TCP of the same byte counts (`weft ceiling`) and weft (`weft serve` on one
//! CPU, `weft perf` on another) in turn, A B A B, and gives medians.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// One row: what is asked of both sides.
struct Row {
    rw: &'static str,
    bs: &'static str,
    iodepth: &'static str,
    numjobs: &'static str,
}

const fn row(
    rw: &'static str,
    bs: &'static str,
    iodepth: &'static str,
    numjobs: &'static str,
) -> Row {
    Row {
        rw,
        bs,
        iodepth,
        numjobs,
    }
}

const ROWS: &[Row] = &[
    row("randread", "4k", "128", "1"),
    row("randread", "4k", "32", "4"),
    row("randread", "4k", "32", "1"),
    row("randread", "4k", "8", "4"),
    row("randread", "4k", "1", "1"),
    row("randwrite", "4k", "128", "1"),
    row("randwrite", "4k", "32", "4"),
    row("randwrite", "4k", "32", "1"),
    row("randwrite", "4k", "8", "4"),
    row("randwrite", "4k", "1", "1"),
    row("randread", "128k", "32", "1"),
    row("randread", "128k", "8", "4"),
    row("randwrite", "128k", "32", "1"),
    row("randwrite", "128k", "8", "4"),
];

const DIGEST_ROWS: &[Row] = &[
    row("randread", "4k", "128", "1"),
    row("randwrite", "4k", "128", "1"),
    row("randread", "128k", "32", "1"),
    row("randwrite", "128k", "32", "1"),
];

/// Which protocol a run speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Nvme,
    Iscsi,
    Nfs,
}

/// iSCSI: the ceiling, digests, and the same over NVMe/TCP.
const ISCSI_ROWS: &[Row] = &[
    row("randread", "4k", "128", "1"),
    row("randwrite", "4k", "128", "1"),
    row("randread", "4k", "1", "1"),
    row("randwrite", "4k", "1", "1"),
    row("randread", "128k", "32", "1"),
    row("randwrite", "128k", "32", "1"),
];

/// NFS against the ceilings of its own byte counts.
const NFS_ROWS: &[Row] = &[
    row("randread", "4k", "128", "1"),
    row("randread", "4k", "32", "4"),
    row("randread", "4k", "1", "1"),
    row("randwrite", "4k", "128", "1"),
    row("randwrite", "4k", "32", "4"),
    row("randwrite", "4k", "1", "1"),
    row("randread", "1m", "8", "1"),
    row("randread", "1m", "2", "4"),
    row("randwrite", "1m", "8", "1"),
    row("randwrite", "1m", "2", "4"),
];

/// NFS: names and attributes; `bs` is that of the files that are made.
const NAME_ROWS: &[Row] = &[
    row("create", "4k", "32", "1"),
    row("create", "4k", "32", "4"),
    row("getattr", "4k", "128", "1"),
    row("getattr", "4k", "1", "1"),
    row("readdir", "4k", "8", "1"),
];

/// What one run gave.
#[derive(Clone, Copy)]
struct Sample {
    iops: f64,
    p50_us: f64,
    /// CPU seconds of the serving side for 10^9 bytes of payload.
    cpu_s_per_gb: f64,
}

/// Where and how long to measure.
pub struct Settings {
    /// Runs of each side of a row.
    pub runs: usize,
    /// Length of a run, such as "3s".
    pub runtime: String,
    /// Only rows whose name contains this.
    pub only: Option<String>,
}

/// The head of the first table. Hot: the ceiling's payload lies in one small
/// buffer; cold: at random places of 1 GiB, as weft's does.
const HEAD: &str = "\
| load | hot ceiling, a second | cold ceiling | weft | of hot | of cold | p50 us: hot, weft | server CPU s/GB: hot, weft |
|---|---|---|---|---|---|---|---|";

/// The head of the second table.
const DIGESTS_HEAD: &str = "\
| load | without digests, a second | with both | of without |
|---|---|---|---|";

/// The head of the third table: iSCSI against the hot and cold ceilings of its
/// own byte counts, with digests, and against NVMe/TCP.
const ISCSI_HEAD: &str = "\
| iSCSI load | hot ceiling, a second | cold ceiling | weft | of hot | of cold | with digests, of without | p50 us: weft, NVMe/TCP | p50 of NVMe/TCP's |
|---|---|---|---|---|---|---|---|---|";

/// The head of the fourth table.
const NFS_HEAD: &str = "\
| NFS load | hot ceiling, a second | cold ceiling | weft | of hot | of cold | p50 us: hot, weft | server CPU s/GB: hot, weft |
|---|---|---|---|---|---|---|---|";

/// The head of the fifth table. An operation of `create` is a file made, written,
/// closed and removed; the directory that is listed has 10,000 files.
const NAMES_HEAD: &str = "\
| NFS load | operations a second | names listed a second | p50 us |
|---|---|---|---|";

/// Runs the tables and prints them as Markdown.
pub fn run(settings: &Settings) -> Result<(), String> {
    let weft = binary()?;
    let wanted = |name: &str| {
        let only = settings.only.as_ref();
        only.is_none_or(|only| name.contains(only.as_str()))
    };
    println!("{HEAD}");
    for row in ROWS.iter().filter(|row| wanted(&name(row))) {
        let (mut hot, mut cold, mut served) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..settings.runs {
            cold.push(ceiling_run(&weft, (row, Protocol::Nvme), "1g", settings)?);
            hot.push(ceiling_run(&weft, (row, Protocol::Nvme), "0", settings)?);
            served.push(weft_run(&weft, (row, Protocol::Nvme), false, settings)?);
        }
        println!("{}", line(&name(row), &hot, &cold, &served));
    }
    println!("\n{DIGESTS_HEAD}");
    let digests = |row: &Row| format!("{}, digests", name(row));
    for row in DIGEST_ROWS.iter().filter(|row| wanted(&digests(row))) {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..settings.runs {
            without.push(weft_run(&weft, (row, Protocol::Nvme), false, settings)?);
            with.push(weft_run(&weft, (row, Protocol::Nvme), true, settings)?);
        }
        println!(
            "| {} | {} | {} | {} |",
            name(row),
            iops(&without),
            iops(&with),
            ratio(&with, &without)
        );
    }
    iscsi(&weft, settings, wanted)?;
    nfs(&weft, settings, wanted)
}

/// The fourth and the fifth table.
fn nfs(weft: &Path, settings: &Settings, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
    println!("\n{NFS_HEAD}");
    let named = |row: &Row| format!("nfs {}", name(row));
    for row in NFS_ROWS.iter().filter(|row| wanted(&named(row))) {
        let here = (row, Protocol::Nfs);
        let (mut hot, mut cold, mut served) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..settings.runs {
            cold.push(ceiling_run(weft, here, "1g", settings)?);
            hot.push(ceiling_run(weft, here, "0", settings)?);
            served.push(weft_run(weft, here, false, settings)?);
        }
        println!("{}", line(&name(row), &hot, &cold, &served));
    }
    println!("\n{NAMES_HEAD}");
    for row in NAME_ROWS.iter().filter(|row| wanted(&named(row))) {
        let runs = (0..settings.runs).map(|_| names_run(weft, row, settings));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        println!("{}", names_line(&name(row), &runs));
    }
    Ok(())
}

/// Operations a second, names a second, p50 in microseconds.
type Names = [f64; 3];

/// One row of the fifth table.
fn names_line(name: &str, runs: &[Names]) -> String {
    let shown = |at: usize| {
        let [low, middle, high] = spread(runs.iter().map(|run| run[at]));
        match high > 0.0 {
            true => format!("{middle:.0} ({low:.0} to {high:.0})"),
            false => "-".into(),
        }
    };
    let p50 = spread(runs.iter().map(|run| run[2]))[1];
    format!("| {name} | {} | {} | {p50:.1} |", shown(0), shown(1))
}

fn names_run(weft: &Path, row: &Row, settings: &Settings) -> Result<Names, String> {
    let _server = Server::start(weft)?;
    let mut perf = Command::new(weft);
    perf.args(perf_words(row, settings)).arg(NFS_URL);
    if row.rw != "create" {
        perf.args(["--nrfiles", "10000"]);
    }
    let report = json(&mut perf)?;
    Ok([
        number(&report, "/metadata/ops_per_s")?,
        number(&report, "/metadata/entries_per_s")?,
        number(&report, "/metadata/latency/p50_us")?,
    ])
}

/// The third table.
fn iscsi(weft: &Path, settings: &Settings, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
    println!("\n{ISCSI_HEAD}");
    let named = |row: &Row| format!("iscsi {}", name(row));
    for row in ISCSI_ROWS.iter().filter(|row| wanted(&named(row))) {
        let here = (row, Protocol::Iscsi);
        let (mut hot, mut cold, mut served) = (Vec::new(), Vec::new(), Vec::new());
        let (mut digests, mut nvme) = (Vec::new(), Vec::new());
        for _ in 0..settings.runs {
            cold.push(ceiling_run(weft, here, "1g", settings)?);
            hot.push(ceiling_run(weft, here, "0", settings)?);
            served.push(weft_run(weft, here, false, settings)?);
            digests.push(weft_run(weft, here, true, settings)?);
            nvme.push(weft_run(weft, (row, Protocol::Nvme), false, settings)?);
        }
        println!(
            "{}",
            iscsi_line(&name(row), [&hot, &cold, &served, &digests, &nvme])
        );
    }
    Ok(())
}

/// One row of the third table: both ceilings, weft, weft with digests, NVMe/TCP.
fn iscsi_line(name: &str, [hot, cold, served, digests, nvme]: [&[Sample]; 5]) -> String {
    let p50 = |samples: &[Sample]| spread(samples.iter().map(|x| x.p50_us))[1];
    let pairs = served.iter().zip(nvme);
    let [low, middle, high] = spread(pairs.map(|(a, b)| a.p50_us / b.p50_us));
    format!(
        "| {name} | {} | {} | {} | {} | {} | {} | {:.1}, {:.1} | {middle:.2} ({low:.2} to {high:.2}) |",
        iops(hot),
        iops(cold),
        iops(served),
        ratio(served, hot),
        ratio(served, cold),
        ratio(digests, served),
        p50(served),
        p50(nvme),
    )
}

/// One row of the first table.
fn line(name: &str, hot: &[Sample], cold: &[Sample], served: &[Sample]) -> String {
    let middle = |samples: &[Sample], what: fn(&Sample) -> f64| spread(samples.iter().map(what))[1];
    format!(
        "| {name} | {} | {} | {} | {} | {} | {:.1}, {:.1} | {:.3}, {:.3} |",
        iops(hot),
        iops(cold),
        iops(served),
        ratio(served, hot),
        ratio(served, cold),
        middle(hot, |x| x.p50_us),
        middle(served, |x| x.p50_us),
        middle(hot, |x| x.cpu_s_per_gb),
        middle(served, |x| x.cpu_s_per_gb),
    )
}

/// Median, least and greatest rate.
fn iops(samples: &[Sample]) -> String {
    let [low, middle, high] = spread(samples.iter().map(|x| x.iops));
    format!("{middle:.0} ({low:.0} to {high:.0})")
}

/// Median, least and greatest ratio of pairs of neighbouring runs: the
/// machine's speed drifts, and both of a pair drift with it.
fn ratio(samples: &[Sample], of: &[Sample]) -> String {
    let pairs = samples.iter().zip(of);
    let [low, middle, high] = spread(pairs.map(|(a, b)| a.iops / b.iops));
    format!("{middle:.2} ({low:.2} to {high:.2})")
}

fn name(row: &Row) -> String {
    let Row {
        rw,
        bs,
        iodepth,
        numjobs,
    } = row;
    format!("{rw} {bs}, QD {iodepth} x {numjobs}")
}

fn binary() -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "-p", "weft"])
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err("weft does not build".into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("release/weft"))
}

fn ceiling_run(
    weft: &Path,
    (row, protocol): (&Row, Protocol),
    span: &str,
    settings: &Settings,
) -> Result<Sample, String> {
    let headers = match protocol {
        Protocol::Nvme => "nvme-tcp",
        Protocol::Iscsi => "iscsi",
        Protocol::Nfs => "nfs",
    };
    let shape = row.rw.trim_start_matches("rand");
    let report = json(Command::new(weft).args([
        "ceiling",
        "--json",
        "--headers",
        headers,
        "--rw",
        shape,
        "--bs",
        row.bs,
        "--iodepth",
        row.iodepth,
        "--numjobs",
        row.numjobs,
        "--runtime",
        &settings.runtime,
        "--server-cpu",
        "0",
        "--client-cpu",
        "1",
        "--span",
        span,
    ]))?;
    Ok(Sample {
        iops: number(&report, "/iops")?,
        p50_us: number(&report, "/latency/p50_us")?,
        cpu_s_per_gb: number(&report, "/server_cpu_s_per_gb")?,
    })
}

fn weft_run(
    weft: &Path,
    (row, protocol): (&Row, Protocol),
    digests: bool,
    settings: &Settings,
) -> Result<Sample, String> {
    let server = Server::start(weft)?;
    let url = match protocol {
        Protocol::Nvme => server.url.as_str(),
        Protocol::Iscsi => ISCSI_URL,
        Protocol::Nfs => NFS_FILE_URL,
    };
    // Every page is there before anything is measured. Of NFS they are those of a
    // file that is made here.
    let (bs, runtime) = match protocol {
        Protocol::Nvme | Protocol::Iscsi => ("128k", "2s"),
        Protocol::Nfs => ("1m", "100ms"),
    };
    let mut fill = Command::new(weft);
    fill.args([
        "perf",
        "--json",
        "--rw",
        "write",
        "--bs",
        bs,
        "--runtime",
        runtime,
    ]);
    fill.args(["--ramp-time", "0s", "--cpus", "1", url]);
    if protocol == Protocol::Nfs {
        fill.args(["--size", "1g"]);
    }
    json(&mut fill)?;
    let mut perf = Command::new(weft);
    perf.args(perf_words(row, settings)).arg(url);
    if digests {
        perf.args(["-g", "-G"]);
    }
    // CPU time over connecting, ramp and measurement, against the bytes of all.
    let (cpu, bytes) = (server.cpu_s()?, Server::sent_and_received());
    let report = json(&mut perf)?;
    let spent = server.cpu_s()? - cpu;
    let moved = Server::sent_and_received() - bytes;
    Ok(Sample {
        iops: number(&report, "/total/iops")?,
        p50_us: number(&report, "/total/latency/p50_us")?,
        cpu_s_per_gb: spent / (moved / 1e9),
    })
}

/// The words of `weft perf` for a row.
fn perf_words<'a>(row: &'a Row, settings: &'a Settings) -> [&'a str; 16] {
    [
        "perf",
        "--json",
        "--rw",
        row.rw,
        "--bs",
        row.bs,
        "--iodepth",
        row.iodepth,
        "--numjobs",
        row.numjobs,
        "--runtime",
        &settings.runtime,
        "--ramp-time",
        "1s",
        "--cpus",
        "1",
    ]
}

/// One RAM volume and one memory file system on one reactor, on ports that
/// nothing else is likely to use.
const CONFIG: &str = r#"
[[volume]]
name = "default"
kind = "ram"
size = "1GiB"
[[nvme.subsystem]]
nqn = "nqn.2026-01.io.weft:default"
allow_any_host = true
[[nvme.subsystem.namespace]]
nsid = 1
volume = "default"
[[iscsi.target]]
name = "iqn.2026-01.io.weft:default"
allow_any_initiator = true
volumes = ["default"]
[[file_system]]
name = "files"
kind = "mem"
size = "2GiB"
[[export]]
path = "/"
file_system = "files"
allow_any_client = true
squash = "none"
[[listener]]
address = "127.0.0.1:4429"
[[listener]]
address = "127.0.0.1:3269"
protocol = "iscsi"
[[listener]]
address = "127.0.0.1:20439"
protocol = "nfs"
[policy]
cpus = "0"
"#;

/// The volume behind the iSCSI listener.
const ISCSI_URL: &str = "iscsi://127.0.0.1:3269/iqn.2026-01.io.weft:default/0";

/// What the NFS listener exports, and a file in it.
const NFS_URL: &str = "nfs://127.0.0.1:20439/";
const NFS_FILE_URL: &str = "nfs://127.0.0.1:20439/disk";

/// A target on CPU 0 with one RAM volume, ended when dropped.
struct Server {
    child: Child,
    /// The volume behind the NVMe/TCP listener.
    url: String,
    config: PathBuf,
}

impl Server {
    fn start(weft: &Path) -> Result<Server, String> {
        let config = std::env::temp_dir().join(format!("weft-perf-{}.toml", std::process::id()));
        fs::write(&config, CONFIG).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut child = Command::new(weft)
            .args(["serve", "-c"])
            .arg(&config)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("weft does not start: {error}"))?;
        let out = child.stdout.take().expect("piped");
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let listening = lines.find_map(|line| {
            let rest = line.split("127.0.0.1:").nth(1)?;
            Some(
                rest.chars()
                    .take_while(char::is_ascii_digit)
                    .collect::<String>(),
            )
        });
        // Whatever else it says is read, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        let port = listening.ok_or("weft says no address")?;
        Ok(Server {
            child,
            url: format!("nvme-tcp://127.0.0.1:{port}/nqn.2026-01.io.weft:default"),
            config,
        })
    }

    /// CPU seconds so far, user and system.
    fn cpu_s(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        // Fields 14 and 15 of proc(5), in ticks of 1/100 s; the name before may hold spaces.
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        Ok((ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0)
    }

    /// Bytes that crossed the loopback interface so far.
    fn sent_and_received() -> f64 {
        let bytes = fs::read_to_string("/sys/class/net/lo/statistics/tx_bytes");
        bytes
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.config);
    }
}

fn json(command: &mut Command) -> Result<Value, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

fn number(report: &Value, at: &str) -> Result<f64, String> {
    let found = report.pointer(at).and_then(Value::as_f64);
    found.ok_or_else(|| format!("no {at} in {report}"))
}

/// Least, median and greatest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_and_ratios_of_pairs() {
        let samples = |iops: [f64; 3]| {
            iops.map(|iops| Sample {
                iops,
                p50_us: iops / 10.0,
                cpu_s_per_gb: 0.5,
            })
        };
        let hot = samples([100.0, 200.0, 400.0]);
        let cold = samples([50.0, 100.0, 200.0]);
        let served = samples([90.0, 160.0, 200.0]);
        let line = line("load", &hot, &cold, &served);
        assert_eq!(
            line,
            "| load | 200 (100 to 400) | 100 (50 to 200) | 160 (90 to 200) \
             | 0.80 (0.50 to 0.90) | 1.60 (1.00 to 1.80) | 20.0, 16.0 | 0.500, 0.500 |"
        );
        let columns = |line: &str| line.matches('|').count();
        assert!(HEAD.lines().all(|head| columns(head) == columns(&line)));
        let line = iscsi_line("load", [&hot, &cold, &served, &cold, &hot]);
        assert_eq!(
            line,
            "| load | 200 (100 to 400) | 100 (50 to 200) | 160 (90 to 200) \
             | 0.80 (0.50 to 0.90) | 1.60 (1.00 to 1.80) | 0.62 (0.56 to 1.00) | 16.0, 20.0 \
             | 0.80 (0.50 to 0.90) |"
        );
        assert!(
            ISCSI_HEAD
                .lines()
                .all(|head| columns(head) == columns(&line))
        );
        let names = |ops| [ops, 0.0, 5.0];
        let line = names_line("load", &[names(3.0), names(1.0), names(2.0)]);
        assert_eq!(line, "| load | 2 (1 to 3) | - | 5.0 |");
        assert!(
            NAMES_HEAD
                .lines()
                .all(|head| columns(head) == columns(&line))
        );
    }
}
