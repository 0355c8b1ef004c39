//! The report against its samples: whatever it shows must be what they say.

pub(super) mod fixture;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use roxmltree::{Document, Node};

use super::numbers::{NOT_MEASURED, percent, short, shown};
use super::*;
use crate::catalogue::ChartKind;
use crate::measured::{Effort, Measured, Point, Quantity, Sample, Skipped, Sweep};
use crate::statistics::Summary;

fn html(measured: &Measured) -> String {
    let styles = Styles::of(measured);
    let sources = sources(measured, &styles);
    page::html(measured, &sources, &sections(measured, &sources))
}

fn parse(html: &str) -> Document<'_> {
    let markup = html.strip_prefix("<!DOCTYPE html>\n").expect("HTML");
    Document::parse(markup).expect("well-formed")
}

fn text(node: Node<'_, '_>) -> String {
    let texts = node.descendants().filter(Node::is_text);
    texts.filter_map(|node| node.text()).collect()
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// A run as it comes back from its file.
fn again(measured: &Measured) -> Measured {
    let json = serde_json::to_string(measured).expect("JSON");
    serde_json::from_str(&json).expect("the same")
}

/// Of the samples alone, without the report's own way to them.
fn samples(point: &Point, quantity: Quantity) -> Vec<(u32, f64)> {
    let samples = point.samples.iter();
    samples
        .filter_map(|sample| Some((sample.round, *sample.values.get(&quantity)?)))
        .collect()
}

fn summary(samples: &[(u32, f64)]) -> Option<Summary> {
    let values: Vec<_> = samples.iter().map(|(_, value)| *value).collect();
    Summary::of(&values)
}

fn paired(own: &[(u32, f64)], base: &[(u32, f64)]) -> Vec<(f64, f64)> {
    let base: BTreeMap<_, _> = base.iter().copied().collect();
    let pairs = own.iter();
    pairs
        .filter_map(|(round, own)| Some((*own, *base.get(round)?)))
        .collect()
}

fn find<'a>(sweep: &'a Sweep, name: &str, x: f64) -> Option<&'a Point> {
    let series = sweep.series.iter().find(|series| series.name == name)?;
    series.points.iter().find(|point| point.x == x)
}

/// What must stand in a cell: its median, its range, its ratio.
fn expected(
    sweep: &Sweep,
    chart: &super::super::catalogue::Chart,
    (base, name, x): (&str, &str, f64),
) -> Option<(String, String, Option<String>)> {
    let own = samples(find(sweep, name, x)?, chart.y);
    let beside = find(sweep, base, x).map(|point| samples(point, chart.y));
    let pairs = paired(&own, &beside.unwrap_or_default());
    let number = |value| shown(chart.y).number(value);
    let range = |summary: &Summary, number: &dyn Fn(f64) -> String| match summary.count {
        1 => "one run".to_owned(),
        _ if summary.min < 0.0 => format!("{} to {}", number(summary.min), number(summary.max)),
        _ => format!("{}–{}", number(summary.min), number(summary.max)),
    };
    if chart.kind == ChartKind::Difference {
        let more: Vec<_> = pairs.iter().map(|(own, base)| own - base).collect();
        let summary = Summary::of(&more)?;
        return Some((number(summary.median), range(&summary, &number), None));
    }
    let summary = summary(&own)?;
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let ratio = Summary::of_ratios(&ours, &theirs).filter(|_| name != base);
    let ratio = ratio.map(|ratio| match ratio.count {
        1 => format!("×{}", short(ratio.median)),
        _ => format!("×{} ({})", short(ratio.median), range(&ratio, &short)),
    });
    Some((number(summary.median), range(&summary, &number), ratio))
}

/// Checks the table of a figure; returns how many numbers it has.
fn check_table(table: Node<'_, '_>, spec: &SweepSpec, sweep: &Sweep, chart: &Chart) -> usize {
    let rows = |name: &str| {
        let part = child(table, name).expect("a part");
        part.children()
            .filter(|row| row.has_tag_name("tr"))
            .collect::<Vec<_>>()
    };
    let names: Vec<_> = rows("thead")[0].children().map(text).collect();
    let efforts = [Effort::Quick, Effort::Normal, Effort::Full];
    let places = efforts.iter().flat_map(|effort| spec.axis.points(*effort));
    let places: BTreeMap<_, _> = places.map(|x| (figure::place(spec, *x), *x)).collect();
    let mut numbers = 0;
    for row in rows("tbody") {
        let cells: Vec<_> = row.children().filter(Node::is_element).collect();
        let x = places[&text(cells[0])];
        for (cell, name) in cells.iter().zip(&names).skip(1) {
            let at = format!("{} {} {name} {x}", spec.name, chart.name);
            let Some((median, range, ratio)) =
                expected(sweep, chart, (spec.series[0].name, name, x))
            else {
                assert_eq!(text(*cell), NOT_MEASURED, "{at}");
                continue;
            };
            let part = |name| child(*cell, name).map(text);
            assert_eq!(part("b"), Some(median), "{at}");
            assert_eq!(part("i"), Some(range), "{at}");
            let has_base = find(sweep, spec.series[0].name, x).is_some();
            assert_eq!(part("em"), ratio.filter(|_| has_base), "{at}");
            numbers += 1;
        }
    }
    numbers
}

use super::super::catalogue::Chart;

#[test]
fn every_number_on_the_page_is_what_its_samples_say() {
    let measured = fixture::measured(Effort::Quick, 5);
    let page = html(&measured);
    let page = parse(&page);
    let measured = again(&measured);
    let (mut tables, mut numbers, mut zeros) = (0, 0, 0);
    for sweep in &measured.sweeps {
        let spec = SweepSpec::named(&sweep.name).expect("in the catalogue");
        for chart in spec.charts {
            let id = format!("{}-{}", spec.name, chart.name);
            if chart.kind == ChartKind::Distribution {
                continue;
            }
            let figure = page
                .descendants()
                .find(|node| node.attribute("id") == Some(&id));
            let figure = figure.expect(&id);
            match figure.descendants().find(|node| node.has_tag_name("table")) {
                Some(table) => {
                    numbers += check_table(table, spec, sweep, chart);
                    tables += 1;
                }
                None => {
                    check_zero(figure, sweep, chart.y);
                    zeros += 1;
                }
            }
        }
    }
    assert!(zeros > 5, "{zeros} of zeros alone");
    assert!(
        tables > 150 && numbers > 1000,
        "{tables} tables, {numbers} numbers"
    );
}

/// That there is no number but 0.
fn check_zero(figure: Node<'_, '_>, sweep: &Sweep, quantity: Quantity) {
    assert!(
        text(figure).contains(": 0 in every run"),
        "{}",
        text(figure)
    );
    let points = sweep.series.iter().flat_map(|series| &series.points);
    let values = points.flat_map(|point| samples(point, quantity));
    let values: Vec<_> = values.map(|(_, value)| value).collect();
    assert!(!values.is_empty() && values.iter().all(|value| *value == 0.0));
}

/// Fields of comma-separated rows, quotes undone.
fn csv(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let (mut letters, mut is_quoted) = (text.chars().peekable(), false);
    while let Some(letter) = letters.next() {
        let row = rows.last_mut().expect("a row");
        let field = row.last_mut().expect("a field");
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => field.extend(letters.next()),
            '"' => is_quoted = !is_quoted,
            letter if is_quoted => field.push(letter),
            ',' => row.push(String::new()),
            '\r' => {}
            '\n' => rows.push(vec![String::new()]),
            letter => field.push(letter),
        }
    }
    rows.pop();
    rows
}

#[test]
fn tables_of_data_hold_every_run_and_what_they_say() {
    let mut measured = fixture::measured(Effort::Quick, 3);
    let sweep = &mut measured.sweeps[0];
    sweep.series[0].name = "a \"name\",\nwith everything".into();
    sweep.series[1].points[0].samples[1]
        .values
        .remove(&Quantity::P99Us);
    let base = sweep.series[0].name.clone();
    let rows = csv(&data::samples(sweep));
    let column = |name: &str| rows[0].iter().position(|head| head == name).expect(name);
    let mut next = rows.iter().skip(1);
    for series in &sweep.series {
        for point in &series.points {
            for sample in &point.samples {
                let row = next.next().expect("a row each run");
                assert_eq!((&row[0], &row[2]), (&series.name, &point.label));
                assert_eq!(row[column("round")], sample.round.to_string());
                for quantity in [Quantity::Iops, Quantity::P99Us, Quantity::TargetBusy] {
                    let field = &row[column(shown(quantity).key)];
                    let value = sample.values.get(&quantity).copied();
                    assert_eq!(field.parse().ok(), value, "{field}");
                }
            }
        }
    }
    assert_eq!(next.next(), None);
    let rows = csv(&data::medians(sweep, Some(&base)));
    let column = |name: &str| rows[0].iter().position(|head| head == name).expect(name);
    for row in &rows[1..] {
        let x: f64 = row[1].parse().expect("a place");
        let quantities = [Quantity::Iops, Quantity::P99Us];
        let Some(quantity) = quantities.into_iter().find(|q| shown(*q).key == row[3]) else {
            continue;
        };
        let own = samples(find(sweep, &row[0], x).expect("a point"), quantity);
        let summary = summary(&own).expect("numbers");
        let number = |name: &str| row[column(name)].parse::<f64>().expect(name);
        assert_eq!(number("runs"), summary.count as f64);
        assert_eq!(number("median"), summary.median);
        assert_eq!(
            (number("least"), number("most")),
            (summary.min, summary.max)
        );
        let interval = (number("interval-low"), number("interval-high"));
        assert_eq!(interval, summary.interval);
        let pairs = paired(
            &own,
            &samples(find(sweep, &base, x).expect("a point"), quantity),
        );
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let ratio = Summary::of_ratios(&ours, &theirs).expect("pairs");
        assert_eq!(number("ratio-to-first"), ratio.median);
    }
    assert!(rows.len() > 100);
}

#[test]
fn missing_values_are_named_in_the_report() {
    let mut measured = fixture::measured(Effort::Quick, 2);
    let spec = SweepSpec::named("nvme-read").expect("in the catalogue");
    let reads = measured
        .sweeps
        .iter_mut()
        .find(|sweep| sweep.name == spec.name);
    for point in &mut reads.expect("measured").series[0].points {
        for sample in &mut point.samples {
            sample.values.remove(&Quantity::SyscallsPerIo);
        }
    }
    let page = html(&measured);
    let page = parse(&page);
    let by_id = |id: &str| {
        page.descendants()
            .find(|node| node.attribute("id") == Some(id))
    };
    // A quantity: of the first series, and of the ceilings, which have none.
    let calls = text(by_id("nvme-read-syscalls").expect("there"));
    let without = format!("{NOT_MEASURED}: fast path; ceiling, hot; ceiling, cold.");
    assert!(calls.contains(&without), "{calls}");
    // A point.
    let cells = by_id("nvme-read-iops").expect("there");
    let cells = cells.descendants().filter(|node| node.has_tag_name("td"));
    assert_eq!(cells.filter(|cell| text(*cell) == NOT_MEASURED).count(), 1);
    // A series, with its reason, beside its sweep and at the end.
    let skipped = page.descendants().filter(|node| node.is_text());
    let reasons = skipped.filter(|node| {
        node.text()
            .is_some_and(|t| t.contains("apt-get install tgt"))
    });
    assert_eq!(reasons.count(), 2);
    assert!(text(by_id("peers-iscsi-iops").expect("there")).contains("not measured: tgtd"));
    // A sweep.
    measured.sweeps.retain(|sweep| sweep.name != "mixed");
    let page = html(&measured);
    assert!(page.contains("Not complete: 1 parts"), "no warning");
}

/// A plain weft counts none.
#[test]
fn allocations_that_were_not_counted_are_said_to_need_another_build() {
    let mut measured = few();
    let series = measured
        .sweeps
        .iter_mut()
        .flat_map(|sweep| &mut sweep.series);
    let points = series.flat_map(|series| &mut series.points);
    for sample in points.flat_map(|point| &mut point.samples) {
        sample.values.remove(&Quantity::AllocationsPerIo);
    }
    let page = html(&measured);
    let page = parse(&page);
    let mut figures = page.descendants();
    let figure = figures.find(|node| node.attribute("id") == Some("nvme-read-allocations"));
    let said = text(figure.expect("there"));
    let expected = format!("Allocations per I/O: {NOT_MEASURED}: {ALLOCATIONS_NEED}.");
    assert_eq!(said.trim(), expected);
}

#[test]
fn every_run_and_every_reason_is_told() {
    let mut measured = fixture::measured(Effort::Quick, 1);
    measured.skipped.push(Skipped {
        what: "peers-nfs/fio, nfs".into(),
        why: "failed: it said\n`a | b`".into(),
    });
    let page = html(&measured);
    let page = parse(&page);
    let rows = page.descendants().filter(|node| node.has_tag_name("tr"));
    let rows = rows.filter(|row| child(*row, "th").is_some_and(|th| text(th) == "command"));
    let commands = rows.map(|row| text(child(row, "td").expect("a command")));
    assert_eq!(commands.collect::<Vec<_>>(), measured.provenance.commands);
    let tables = summary::tables(&measured);
    let commands = "of results.json: weft bench run nvme-read --full; weft bench run all --full, ";
    assert!(tables.contains(commands), "{tables}");
    let (_, rows) = tables.split_once("## Not measured\n").expect("there");
    assert_eq!(rows.lines().skip(3).count(), measured.skipped.len());
    let row = "| peers-nfs/fio, nfs | failed: it said \\`a \\| b\\` |\n";
    assert!(rows.contains(row), "{rows}");
    assert!(rows.contains("apt-get install tgt &lt;script>"), "{rows}");
    measured.skipped.clear();
    assert!(!summary::tables(&measured).contains("Not measured"));
}

/// What is kept of a run is of this layout, and its tables are those of its runs.
#[test]
fn tables_among_the_documents_are_those_of_their_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report");
    let file = fs::File::open(folder.join("results.json.gz")).expect("results");
    let results = flate2::read::GzDecoder::new(file);
    let measured: Measured = serde_json::from_reader(results).expect("of this layout");
    assert_eq!(measured.format, crate::measured::FORMAT);
    assert!(!measured.provenance.commands.is_empty());
    let tables = fs::read_to_string(folder.join("summary.md")).expect("tables");
    assert!(
        tables == summary::tables(&measured),
        "make summary.md again"
    );
}

#[test]
fn text_from_outside_is_escaped_in_the_page() {
    let measured = fixture::measured(Effort::Quick, 1);
    let page = html(&measured);
    let page = parse(&page);
    let elements = page
        .descendants()
        .filter(|node| node.has_tag_name("script"));
    assert_eq!(elements.count(), 0);
    let texts = page.descendants().filter(Node::is_text);
    let texts = texts.filter_map(|node| node.text());
    assert_eq!(texts.filter(|text| text.contains(fixture::EVIL)).count(), 3);
}

#[test]
fn few_runs_make_a_page_too() {
    let mut measured = fixture::measured(Effort::Quick, 1);
    let one = html(&measured);
    assert!(one.contains("one run") && one.contains("A quick run"));
    for series in measured
        .sweeps
        .iter_mut()
        .flat_map(|sweep| &mut sweep.series)
    {
        series
            .points
            .iter_mut()
            .for_each(|point| point.samples.clear());
    }
    let no_samples = html(&measured);
    measured
        .sweeps
        .iter_mut()
        .for_each(|sweep| sweep.series.clear());
    let no_series = html(&measured);
    measured.sweeps.clear();
    let nothing = html(&measured);
    for page in [one, no_samples, no_series, nothing] {
        parse(&page);
        assert!(!page.contains("NaN") && !page.contains(">inf"), "no number");
    }
}

/// A few sweeps that have every kind of chart.
fn few() -> Measured {
    let mut measured = fixture::measured(Effort::Quick, 5);
    let kept = ["nvme-read", "latency-4k", "tail", "peers-iscsi"];
    measured.sweeps.retain(|sweep| kept.contains(&&*sweep.name));
    measured
}

fn files(of: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in ["", "charts", "data"] {
        for entry in fs::read_dir(of.join(folder)).expect("written") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let name = path.strip_prefix(of).expect("inside").display().to_string();
                files.insert(name, fs::read(&path).expect("readable"));
            }
        }
    }
    files
}

#[test]
fn files_of_a_report_have_the_format_of_their_names_and_are_reproducible() {
    let measured = few();
    let folders = [tempfile::tempdir(), tempfile::tempdir()].map(|folder| folder.expect("made"));
    for folder in &folders {
        write(&measured, folder.path()).expect("written");
    }
    let [one, other] = folders.map(|folder| files(folder.path()));
    assert!(one == other, "two reports of one run differ");
    let mut drawn = BTreeSet::new();
    for (name, bytes) in &one {
        match name.rsplit_once('.').expect("an ending") {
            (stem, "svg") => {
                let svg = std::str::from_utf8(bytes).expect("UTF-8");
                let svg = Document::parse(svg).expect("XML");
                assert!(svg.root_element().has_tag_name("svg"), "{name}");
                drawn.insert(stem.to_owned());
            }
            (_, "csv" | "html" | "json" | "md") => {}
            _ => panic!("{name}"),
        }
    }
    for name in [
        "nvme-read-iops",
        "latency-4k-added",
        "tail-distribution-50k",
        "tail-p99999",
    ] {
        assert!(
            drawn.contains(&format!("charts/{name}")),
            "{name}: {drawn:?}"
        );
    }
    let json = serde_json::from_slice::<Measured>(&one["results.json"]).expect("JSON");
    assert!(json == measured, "results.json is not what was measured");
    assert!(one.contains_key("data/tail-distributions.csv"));
}

#[test]
fn a_distribution_is_the_median_of_its_rounds() {
    let measured = few();
    let tail = measured
        .sweeps
        .iter()
        .find(|sweep| sweep.name == "tail")
        .expect("kept");
    let (series, x) = (&tail.series[1], tail.series[1].points[0].x);
    let p999 = |sample: &Sample| {
        let found = sample
            .distribution
            .iter()
            .find(|(share, _)| *share == 0.999);
        found.expect("in the fixture").1
    };
    let of: Vec<_> = find(tail, &series.name, x)
        .expect("a point")
        .samples
        .iter()
        .map(p999)
        .collect();
    let page = html(&measured);
    let page = parse(&page);
    let figure = page
        .descendants()
        .find(|n| n.attribute("id") == Some("tail-distribution-50k"));
    let rows = figure
        .expect("drawn")
        .descendants()
        .filter(|node| node.has_tag_name("tr"));
    let mut rows = rows.filter(|row| text(*row).starts_with("99.9 %"));
    let row = rows.next().expect("a row");
    let cell = row
        .children()
        .filter(|node| node.has_tag_name("td"))
        .nth(1)
        .expect("a cell");
    let median = Summary::of(&of).expect("numbers").median;
    assert_eq!(child(cell, "b").map(text), Some(short(median)));
    // Of fewer than 100,000 I/Os no latency of one in 100,000 is known.
    let mut few = find(tail, &series.name, x).expect("a point").clone();
    for sample in &mut few.samples {
        sample
            .distribution
            .retain(|(share, _)| *share <= 0.999 || *share == 1.0);
    }
    assert!(values::Value::one_in(&few, 1e3).is_some());
    assert_eq!(values::Value::one_in(&few, 1e5), None);
}

#[test]
fn a_claim_s_number_is_that_of_its_figure() {
    let measured = fixture::measured(Effort::Full, 3);
    let page = html(&measured);
    let page = parse(&page);
    let claims = page
        .descendants()
        .find(|node| node.attribute("class") == Some("claims"));
    let items = claims
        .expect("a table")
        .descendants()
        .filter(|node| node.has_tag_name("li"));
    let said: Vec<_> = items.map(text).collect();
    let asked: usize = claims::CLAIMS
        .iter()
        .map(|claim| claim.evidence.len())
        .sum();
    assert_eq!(said.len(), asked);
    assert!(
        said.iter().all(|said| !said.contains(NOT_MEASURED)),
        "{said:?}"
    );
    let sweep = measured
        .sweeps
        .iter()
        .find(|sweep| sweep.name == "nvme-read")
        .expect("there");
    let iops = |name| samples(find(sweep, name, 4096.0).expect("a point"), Quantity::Iops);
    let own = summary(&iops("fast path")).expect("numbers");
    assert!(
        said[0].contains(&format!(": {} (", short(own.median))),
        "{}",
        said[0]
    );
    let pairs = paired(&iops("fast path"), &iops("ceiling, cold"));
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let ratio = Summary::of_ratios(&ours, &theirs).expect("pairs");
    let range = format!(" ({}–{})", short(own.min), short(own.max));
    let claimed = format!(
        "{range}; claimed 2.90M or more: ×{} of it",
        short(own.median / 2.9e6)
    );
    assert!(said[0].ends_with(&claimed), "{}", said[0]);
    assert!(
        said[1].contains(&format!(": ×{} (", short(ratio.median))),
        "{}",
        said[1]
    );
    let glance = page
        .descendants()
        .find(|n| n.attribute("class") == Some("numbers glance"));
    let row = text(glance.expect("a table"));
    let best = Summary::of_ratios(&[own.median], &[own.median]).expect("one");
    assert_eq!(percent(best.median), "100 %");
    assert!(row.contains(&short(own.median)), "{row}");
}

#[test]
fn point_that_is_neither_measured_nor_skipped_is_found() {
    let whole = fixture::measured(Effort::Quick, 1);
    assert_eq!(missing(&whole), [""; 0]);
    let mut lacking = whole.clone();
    lacking.skipped.clear();
    lacking.sweeps.retain(|sweep| sweep.name != "mixed");
    lacking.sweeps[1].series[0].points[1].samples.clear();
    let expected = [
        "nvme-read/epoll/4k",
        "nvme-write/fast path/256k",
        "mixed",
        "peers-iscsi/tgtd",
    ];
    assert_eq!(missing(&lacking), expected);
    lacking.skipped = whole.skipped.clone();
    assert_eq!(missing(&lacking), [expected[1], expected[2]]);
    // A series of which every point has its reason.
    let writes = &mut lacking.sweeps[1];
    writes.series.remove(0);
    let reason = |point: &str| Skipped {
        what: format!("nvme-write/fast path/{point}"),
        why: "it failed".into(),
    };
    lacking.skipped.push(reason("4k"));
    assert_eq!(missing(&lacking), ["nvme-write/fast path", "mixed"]);
    lacking.skipped.push(reason("256k"));
    assert_eq!(missing(&lacking), ["mixed"]);
}

#[test]
fn series_of_one_chart_look_different() {
    let measured = fixture::measured(Effort::Quick, 1);
    let styles = Styles::of(&measured);
    for sweep in &measured.sweeps {
        let mut seen = Vec::new();
        for series in &sweep.series {
            let style = styles.get(&series.name);
            assert!(!seen.contains(&style), "{} in {}", series.name, sweep.name);
            seen.push(style);
        }
    }
}

/// Charts first, where it was measured last.
#[test]
fn page_opens_with_its_headline_charts_and_ends_with_provenance() {
    let html = html(&fixture::measured(Effort::Full, 3));
    let page = parse(&html);
    let headline = page
        .descendants()
        .find(|n| n.attribute("class") == Some("headline"));
    let headline = headline.expect("charts");
    let charts = headline.descendants().filter(|n| n.has_tag_name("svg"));
    let main = super::super::catalogue::CATALOGUE.iter();
    let main = main.filter(|spec| spec.care == super::super::catalogue::Care::Main);
    assert_eq!(charts.count(), main.count());
    let place = |id: &str| html.find(&format!("id=\"{id}\"")).expect(id);
    let order = ["glance", "claims", "figures", "topology", "provenance"];
    assert!(order.map(place).is_sorted());
    assert!(html.find("<svg") < html.find("id=\"claims\""));
}

#[test]
fn line_of_a_chart_tells_its_series_and_numbers() {
    let html = html(&fixture::measured(Effort::Full, 3));
    let page = parse(&html);
    let mut figures = page.descendants();
    let figure = figures.find(|n| n.attribute("id") == Some("nvme-read-iops"));
    let groups = figure.expect("a figure").descendants();
    let groups = groups.filter(|n| n.attribute("class") == Some("series"));
    let told: Vec<_> = groups
        .filter_map(|group| child(group, "title"))
        .map(text)
        .collect();
    let spec = SweepSpec::named("nvme-read").expect("there");
    assert_eq!(told.len(), spec.series.len());
    assert!(told[0].starts_with("fast path\n4K: "), "{}", told[0]);
}

/// What is a thirtieth of another is seen beside it.
#[test]
fn axis_of_small_and_large_numbers_has_decades() {
    let mut measured = fixture::measured(Effort::Full, 3);
    let is_log = |measured: &Measured| {
        let styles = Styles::of(measured);
        let sources = sources(measured, &styles);
        let mut sources = sources.iter();
        let source = sources.find(|source| source.spec.name == "nvme-read");
        let figures = source.expect("there").figures();
        let figure = figures
            .iter()
            .find(|figure| figure.chart.y == Quantity::Iops);
        figure.expect("drawn").plot.y_scale == super::super::catalogue::Scale::Log10
    };
    let scale = |measured: &mut Measured, factor: f64| {
        let mut sweeps = measured.sweeps.iter_mut();
        let sweep = sweeps.find(|sweep| sweep.name == "nvme-read");
        for point in &mut sweep.expect("there").series[1].points {
            for sample in &mut point.samples {
                sample.values.insert(Quantity::Iops, 400_000.0 / factor);
            }
        }
    };
    let series = &mut measured.sweeps.iter_mut();
    let sweep = series.find(|sweep| sweep.name == "nvme-read");
    sweep.expect("there").series.truncate(2);
    let mut sweeps = measured.sweeps.iter_mut();
    let sweep = sweeps.find(|sweep| sweep.name == "nvme-read");
    for point in &mut sweep.expect("there").series[0].points {
        for sample in &mut point.samples {
            sample.values.insert(Quantity::Iops, 400_000.0);
        }
    }
    scale(&mut measured, 10.0);
    assert!(!is_log(&measured));
    scale(&mut measured, 31.0);
    assert!(is_log(&measured));
}

/// From 0, or whole decades: no value is beyond the axis.
#[test]
fn every_value_is_on_its_axis() {
    let measured = fixture::measured(Effort::Full, 5);
    let styles = Styles::of(&measured);
    let sources = sources(&measured, &styles);
    for figure in sources.iter().flat_map(Source::figures) {
        let (plot, range) = (&figure.plot, figure.plot.range());
        let values = plot.lines.iter().flat_map(|line| line.values.iter());
        for summary in values.flatten().map(|value| &value.summary) {
            let ends = [summary.min, summary.max].map(|end| end * plot.y.factor);
            let is_on = ends
                .iter()
                .all(|end| range.contains(end) || *end == range.end);
            assert!(is_on, "{}: {ends:?} in {range:?}", figure.file);
        }
        match plot.y_scale {
            super::super::catalogue::Scale::Log10 => {
                let decades = [range.start, range.end].map(f64::log10);
                let are_whole = decades.iter().all(|end| (end - end.round()).abs() < 1e-9);
                assert!(are_whole, "{}: {range:?}", figure.file);
            }
            _ => assert!(range.contains(&0.0), "{}: {range:?}", figure.file),
        }
    }
}

#[test]
fn compared_runs_tell_what_changed_beyond_the_noise() {
    let before = fixture::measured(Effort::Full, 5);
    let told = compare(&before, &before);
    let last = told.lines().last().expect("a line");
    assert!(last.contains(" 0 better, 0 worse, "), "{last}");
    let mut after = before.clone();
    for sweep in &mut after.sweeps {
        let quantity = SweepSpec::named(&sweep.name).expect("there").charts[0].y;
        if sweep.name != "nvme-read" {
            continue;
        }
        for sample in sweep.series[0]
            .points
            .iter_mut()
            .flat_map(|p| &mut p.samples)
        {
            let value = sample.values.get_mut(&quantity).expect("measured");
            *value *= 100.0;
        }
    }
    let told = compare(&before, &after);
    let better = told.lines().filter(|line| line.ends_with(": better"));
    let better: Vec<_> = better.collect();
    let points = SweepSpec::named("nvme-read").expect("there").axis.full;
    assert_eq!(better.len(), points.len(), "{told}");
    assert!(
        better[0].starts_with("nvme-read/fast path/4k: "),
        "{}",
        better[0]
    );
    // The other way round it is as much worse.
    let told = compare(&after, &before);
    let last = told.lines().last().expect("a line");
    assert!(
        last.contains(&format!(" 0 better, {} worse, ", points.len())),
        "{last}"
    );
}
