//! `weft bench` from outside: a run that is ended and goes on, and in CI a quick
//! run of everything whose report is complete.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bench::catalogue::{CATALOGUE, ChartKind};
use bench::measured::{Effort, Measured, Quantity, SeriesRole};
use bench::report;
use needs::needs;

/// A quick run of a single figure is done by then, beside many busy threads too.
const ONE_MAX: Duration = Duration::from_secs(300);

fn start(words: &[&str], out: &Path) -> Child {
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    weft.args(["bench", "run"])
        .args(words)
        .arg("--out")
        .arg(out);
    weft.env_remove("WEFT_GUEST");
    weft.stdout(Stdio::piped()).stderr(Stdio::piped());
    weft.spawn().expect("weft starts")
}

/// How it ends, which it does by then.
fn end(mut child: Child, by: Duration) -> Output {
    let start = Instant::now();
    // What it says fits into the pipes: a line for each point.
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > by {
            let _ = child.kill();
            let output = child.wait_with_output().expect("a child");
            panic!("not done after {by:?}: {}", said(&output));
        }
        sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("a child")
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn results(folder: &Path) -> Measured {
    let text = std::fs::read(folder.join("results.json")).expect("results");
    serde_json::from_slice(&text).expect("results of this version")
}

/// Measurements in the journal, by what they are of.
fn journal(folder: &Path) -> Vec<(String, String, String, u64)> {
    let text = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap_or_default();
    let lines = text.lines().skip(1);
    let entries = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    // It also has commands, and why something was not measured.
    let entries = entries.filter(|entry| !entry["sample"].is_null());
    let key = |entry: serde_json::Value| {
        let word = |at: &str| entry[at].as_str().expect("a word").to_owned();
        let round = entry["sample"]["round"].as_u64().expect("a round");
        (word("sweep"), word("series"), entry["x"].to_string(), round)
    };
    entries.map(key).collect()
}

#[test]
fn an_interrupted_run_keeps_what_is_done_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    let words = ["connections-large-read", "--quick"];
    let first = start(&words, out);
    let began = Instant::now();
    while journal(out).len() < 2 {
        assert!(began.elapsed() < ONE_MAX, "nothing is measured");
        sleep(Duration::from_millis(5));
    }
    let killed = Command::new("sh")
        .args(["-c", &format!("kill -INT {}", first.id())])
        .status();
    assert!(killed.expect("a shell").success());
    let output = end(first, ONE_MAX);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("the same command goes on"),
        "{}",
        said(&output)
    );
    let done = journal(out);
    let count = |measured: &Measured| {
        let series = measured.sweeps.iter().flat_map(|sweep| &sweep.series);
        let points = series.flat_map(|series| &series.points);
        points.map(|point| point.samples.len()).sum::<usize>()
    };
    assert_eq!(
        count(&results(out)),
        done.len(),
        "all that was done is in the results"
    );
    let output = end(start(&words, out), ONE_MAX);
    assert!(output.status.success(), "{}", said(&output));
    let all = journal(out);
    assert_eq!(all[..done.len()], done, "what was done is not done again");
    let mut once = all.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), all.len());
    assert_eq!(count(&results(out)), all.len());
    let sweep = CATALOGUE.iter().find(|sweep| sweep.name == words[0]);
    let sweep = sweep.expect("there");
    assert_eq!(all.len(), sweep.series.len() * sweep.axis.quick.len());
    // Once more there is nothing to do; measured with other settings it is refused.
    let output = end(start(&words, out), ONE_MAX);
    assert!(said(&output).contains("0 runs"), "{}", said(&output));
    let output = end(start(&[words[0], "--full"], out), ONE_MAX);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("--again"), "{}", said(&output));
    assert_eq!(journal(out), all);
}

/// No server listens at the peer's address: that fails, and is told by the report for
/// as long as it has not been measured, whatever is added to it.
#[test]
fn a_report_is_of_all_its_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    let run = |name: &str| {
        let peer = "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.weft:peer";
        end(start(&[name, "--quick", "--peer", peer], out), ONE_MAX)
    };
    let command = |name: &str| {
        format!(
            "weft bench run {name} --quick --peer nvme-tcp://127.0.0.1:1/nqn.2026-01.io.weft:peer \
             --out {}",
            out.display()
        )
    };
    let output = run("peers-nvme");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let output = run("connections-large-read");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = run("connections-large-read");
    assert!(said(&output).contains("0 runs"), "{}", said(&output));
    let read = |file: &str| std::fs::read_to_string(out.join(file)).expect(file);
    let json: serde_json::Value = serde_json::from_str(&read("results.json")).expect("JSON");
    // Not the one that measured nothing.
    let commands = ["peers-nvme", "connections-large-read"].map(command);
    assert_eq!(json["provenance"]["commands"], serde_json::json!(commands));
    let skipped = json["skipped"].as_array().expect("a list").iter();
    let what = "peers-nvme/nvme-tcp target by address";
    let of_peer = skipped.filter(|one| {
        let name = one["what"].as_str().expect("a name");
        name.starts_with(what)
    });
    let whys: Vec<_> = of_peer
        .map(|one| one["why"].as_str().expect("why"))
        .collect();
    assert!(!whys.is_empty(), "{}", json["skipped"]);
    assert!(
        whys.iter().all(|why| why.starts_with("failed: ")),
        "{whys:?}"
    );
    for file in ["index.html", "data/summary.md"] {
        let text = read(file).replace("&#x2f;", "/");
        for word in commands.iter().map(String::as_str).chain([what]) {
            assert!(text.contains(word), "{file}: no {word}");
        }
        // As far as both spell it alike.
        let why = whys[0].split(['\'', '"', '<', '>', '&', '|', '\n']);
        assert!(text.contains(why.clone().next().expect("one")), "{file}");
    }
}

#[test]
fn a_name_that_is_none_is_answered_with_the_nearest() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = end(start(&["nvme-raed"], folder.path()), ONE_MAX);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("did you mean `nvme-read`?"),
        "{}",
        said(&output)
    );
    assert!(!folder.path().join("journal.jsonl").exists());
}

/// How many I/Os a quantity wants: one beyond a percentile.
fn ios_min(quantity: Quantity) -> f64 {
    match quantity {
        Quantity::P50Us => 2.0,
        Quantity::P99Us => 1e2,
        Quantity::P999Us => 1e3,
        Quantity::P9999Us => 1e4,
        Quantity::P99999Us => 1e5,
        _ => 0.0,
    }
}

/// Every series at every point of the catalogue, or why it is not there.
fn check_complete(measured: &Measured) {
    let skipped: BTreeMap<_, _> = measured
        .skipped
        .iter()
        .map(|skipped| (skipped.what.as_str(), skipped.why.as_str()))
        .collect();
    for (what, why) in &skipped {
        assert!(
            !why.is_empty() && !why.starts_with("failed"),
            "{what}: {why}"
        );
    }
    for spec in CATALOGUE {
        let sweep = measured.sweeps.iter().find(|sweep| sweep.name == spec.name);
        for series in spec.series {
            let name = format!("{}/{}", spec.name, series.name);
            let found = sweep.and_then(|sweep| {
                let mut all = sweep.series.iter();
                all.find(|found| found.name == series.name)
            });
            for x in spec.axis.points(Effort::Quick) {
                let at = format!("{name}/{}", spec.axis.label_of(*x));
                let point = found.and_then(|found| found.points.iter().find(|p| p.x == *x));
                let is_skipped = [spec.name, &name, &at]
                    .iter()
                    .any(|what| skipped.contains_key(what));
                assert_eq!(point.is_none(), is_skipped, "{at}");
                let Some(point) = point else { continue };
                assert!(!point.commands.is_empty(), "{at}: no commands");
                for sample in &point.samples {
                    let ios: f64 = sample.tenths.iter().sum();
                    assert!(sample.values[&Quantity::Iops] > 0.0, "{at}");
                    assert!(
                        sample.values.values().all(|value| value.is_finite()),
                        "{at}"
                    );
                    for chart in spec
                        .charts
                        .iter()
                        .filter(|_| series.role() == SeriesRole::Weft)
                    {
                        let is_there = match chart.kind {
                            ChartKind::Distribution => !sample.distribution.is_empty(),
                            // So few have no one in a thousand.
                            _ if ios < ios_min(chart.y) => true,
                            // A plain build counts none.
                            _ if chart.y == Quantity::AllocationsPerIo => true,
                            _ => sample.values.contains_key(&chart.y),
                        };
                        assert!(is_there, "{at}: {:?} is not measured", chart.y);
                    }
                }
            }
        }
    }
}

/// Rows of comma-separated values; what is in quotes may have commas (RFC 4180).
fn rows(text: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let (mut fields, mut is_quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => fields.push(String::new()),
                c => fields.last_mut().expect("one").push(c),
            }
        }
        fields
    };
    text.lines().map(row).collect()
}

/// Files that the page speaks of are there, and hold what was measured.
fn check_report(folder: &Path, measured: &Measured) {
    let page = std::fs::read_to_string(folder.join("index.html")).expect("a page");
    let page = page.replace("&#x2f;", "/");
    for sweep in &measured.sweeps {
        let spec = CATALOGUE.iter().find(|spec| spec.name == sweep.name);
        let spec = spec.expect("of the catalogue");
        // An apostrophe is written otherwise in HTML.
        let mut parts = spec.title.split('\'');
        assert!(parts.all(|part| page.contains(part)), "no {}", spec.title);
        let data = folder.join("data").join(format!("{}.csv", sweep.name));
        let table = rows(&std::fs::read_to_string(data).expect("a table"));
        let column = |name: &str| table[0].iter().position(|head| head == name);
        let samples = sweep.series.iter().flat_map(|series| {
            let points = series.points.iter();
            let samples = points.flat_map(|point| point.samples.iter().map(move |s| (point, s)));
            samples.map(move |(point, sample)| (series, point, sample))
        });
        let samples: Vec<_> = samples.collect();
        assert_eq!(table.len() - 1, samples.len(), "{}", sweep.name);
        for (row, (series, point, sample)) in table[1..].iter().zip(samples) {
            assert_eq!(row[0], series.name);
            assert_eq!(row[1].parse(), Ok(point.x));
            for (quantity, value) in &sample.values {
                let name = serde_json::to_value(quantity).expect("a word");
                let at = column(name.as_str().expect("a word")).expect("a column");
                assert_eq!(row[at].parse(), Ok(*value), "{} {row:?}", sweep.name);
            }
        }
    }
    check_charts(folder, measured);
}

/// A file for each chart of something; what is nothing but zeros is a sentence.
fn check_charts(folder: &Path, measured: &Measured) {
    let files = std::fs::read_dir(folder.join("charts")).expect("charts");
    let names = files.map(|file| file.expect("a file").file_name());
    let names: Vec<_> = names
        .map(|name| name.into_string().expect("a name"))
        .filter(|name| name.ends_with(".svg"))
        .collect();
    for sweep in &measured.sweeps {
        let spec = CATALOGUE.iter().find(|spec| spec.name == sweep.name);
        for chart in spec.expect("of the catalogue").charts {
            let points = sweep.series.iter().flat_map(|series| &series.points);
            let mut samples = points.flat_map(|point| &point.samples);
            let is_something = samples.any(|sample| match chart.kind {
                ChartKind::Distribution => !sample.distribution.is_empty(),
                _ => sample
                    .values
                    .get(&chart.y)
                    .is_some_and(|value| *value > 0.0),
            });
            let file = format!("{}-{}", sweep.name, chart.name);
            let is_there = names.iter().any(|name| name.starts_with(&file));
            assert!(is_there || !is_something, "no {file}.svg");
        }
    }
}

/// It takes minutes.
#[needs(ci)]
#[test]
fn a_quick_run_of_everything_is_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    // What each of its measurements waits for has a limit of its own.
    let run = start(&["all", "--quick"], folder.path());
    let output = run.wait_with_output().expect("a child");
    assert!(output.status.success(), "{}", said(&output));
    let measured = results(folder.path());
    assert_eq!(measured.effort, Effort::Quick);
    check_complete(&measured);
    assert_eq!(report::missing(&measured), [""; 0]);
    check_report(folder.path(), &measured);
}
