//! `cargo xtask perf`: the table of `docs/performance.md`. Each row runs bare
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
    digests: bool,
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
        digests: false,
    }
}

const fn digests(mut row: Row) -> Row {
    row.digests = true;
    row
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
    digests(row("randread", "4k", "128", "1")),
    digests(row("randwrite", "4k", "128", "1")),
    digests(row("randread", "128k", "32", "1")),
    digests(row("randwrite", "128k", "32", "1")),
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

/// Runs the table and prints it as Markdown.
pub fn run(settings: &Settings) -> Result<(), String> {
    let weft = binary()?;
    println!(
        "| load | ceiling, a second | weft, a second (min to max) | of ceiling | of hot ceiling | p50 us: ceiling, weft | CPU s/GB: ceiling, weft |"
    );
    println!("|---|---|---|---|---|---|---|");
    for row in ROWS {
        let name = name(row);
        if settings
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let mut hot = Vec::new();
        let mut ceiling = Vec::new();
        let mut served = Vec::new();
        for _ in 0..settings.runs {
            hot.push(ceiling_run(&weft, row, "0", settings)?);
            ceiling.push(ceiling_run(&weft, row, "1g", settings)?);
            served.push(weft_run(&weft, row, settings)?);
        }
        let of = |samples: &[Sample], what: fn(&Sample) -> f64| median(samples.iter().map(what));
        let (h, c, s) = (
            of(&hot, |x| x.iops),
            of(&ceiling, |x| x.iops),
            of(&served, |x| x.iops),
        );
        let range = served.iter().fold((f64::MAX, 0.0f64), |(low, high), x| {
            (low.min(x.iops), high.max(x.iops))
        });
        println!(
            "| {name} | {c:.0} (hot {h:.0}) | {s:.0} ({:.0} to {:.0}) | {:.2} | {:.2} | {:.1}, {:.1} | {:.3}, {:.3} |",
            range.0,
            range.1,
            s / c,
            s / h,
            of(&ceiling, |x| x.p50_us),
            of(&served, |x| x.p50_us),
            of(&ceiling, |x| x.cpu_s_per_gb),
            of(&served, |x| x.cpu_s_per_gb),
        );
    }
    Ok(())
}

fn name(row: &Row) -> String {
    let digests = if row.digests { ", digests" } else { "" };
    format!(
        "{} {}, QD {} x {}{digests}",
        row.rw, row.bs, row.iodepth, row.numjobs
    )
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

fn ceiling_run(weft: &Path, row: &Row, span: &str, settings: &Settings) -> Result<Sample, String> {
    let shape = row.rw.trim_start_matches("rand");
    let report = json(Command::new(weft).args([
        "ceiling",
        "--json",
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

fn weft_run(weft: &Path, row: &Row, settings: &Settings) -> Result<Sample, String> {
    let server = Server::start(weft)?;
    // Every page is there before anything is measured.
    json(Command::new(weft).args([
        "perf",
        "--json",
        "--rw",
        "write",
        "--bs",
        "128k",
        "--runtime",
        "2s",
        "--ramp-time",
        "0s",
        "--cpus",
        "1",
        "-s",
        &server.port,
    ]))?;
    let mut perf = Command::new(weft);
    perf.args([
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
        "-s",
        &server.port,
    ]);
    if row.digests {
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

/// One RAM volume on one reactor, on a port that nothing else is likely to use.
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
[[listener]]
address = "127.0.0.1:4429"
[policy]
cpus = "0"
"#;

/// A target on CPU 0 with one RAM volume, ended when dropped.
struct Server {
    child: Child,
    port: String,
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
            port,
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

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
