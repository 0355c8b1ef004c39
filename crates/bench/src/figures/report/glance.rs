//! What most readers look for first: the ends of the main figures, and latency.

use super::figure::Source;
use super::markup::Markup;
use super::numbers::{self, percent, shown};
use super::page::{Report, Section};
use super::table::{NOT_MEASURED, range};
use super::values::{self, Value};
use crate::figures::catalogue::{Care, Scale};
use crate::figures::measured::{Point, Quantity, Role, Series};

/// Headings of the table of rates.
const RATES: &[&str] = &[
    "Figure",
    "I/O size",
    "Fastest mode",
    "I/Os per second",
    "Gbit/s",
    "Target CPU per Gbit/s",
    "Of bare sockets",
    "Bottleneck",
];

/// The section "At a glance".
pub(super) fn write(to: &mut Markup, report: &Report<'_>) {
    to.begin("h2")
        .attr("id", "glance")
        .attr("class", "on")
        .text("At a glance")
        .end();
    let main = report.sections.iter();
    let main: Vec<_> = main
        .filter(|section| section.source.spec.care == Care::Main)
        .collect();
    headline(to, &main);
    rates(to, &main);
    for section in main {
        let is_local = section.source.spec.series[0].role() == Role::Local;
        if is_local && section.source.spec.axis.scale == Scale::Category {
            latencies(to, &section.source);
        }
    }
}

/// The first chart of each main figure: what the page is opened for.
fn headline(to: &mut Markup, main: &[&Section<'_>]) {
    to.begin("div").attr("class", "headline");
    for section in main {
        let mut drawn = section.figures.iter();
        if let Some((figure, picture)) = drawn.find(|(figure, _)| figure.is_drawn()) {
            to.begin("figure").begin("a");
            to.attr("href", format!("#{}", figure.file));
            to.raw(&picture.to_svg()).end().end();
        }
    }
    to.end();
}

fn rates(to: &mut Markup, main: &[&Section<'_>]) {
    let over_sizes = main.iter().map(|section| &section.source);
    let over_sizes: Vec<_> = over_sizes
        .filter(|source| source.spec.axis.scale != Scale::Category)
        .collect();
    if over_sizes.is_empty() {
        to.classed(
            "p",
            "missing",
            format!("Rates over I/O size: {NOT_MEASURED}."),
        );
        return;
    }
    to.leaf(
        "p",
        "The fastest of weft's modes at both ends of each main figure, and what share that is of \
         bare sockets that move the same bytes at the same time on the same machine (the better \
         of payload in the cache and payload all over memory).",
    );
    to.begin("div")
        .attr("class", "wide")
        .begin("table")
        .attr("class", "numbers glance");
    to.begin("thead").begin("tr");
    for heading in RATES {
        to.leaf("th", heading);
    }
    to.end().end().begin("tbody");
    for source in over_sizes {
        let places = source.places();
        let ends = match places.len() {
            0 => vec![],
            1 => vec![0],
            count => vec![0, count - 1],
        };
        for at in ends {
            row(to, source, places[at].0, &places[at].1);
        }
    }
    to.end().end().end();
}

fn row(to: &mut Markup, source: &Source<'_>, x: f64, label: &str) {
    to.begin("tr")
        .begin("th")
        .begin("a")
        .attr("href", format!("#{}", source.spec.name));
    to.text(source.spec.name).end().end().leaf("td", label);
    let Some((series, point)) = best(source, x, |role| role == Role::Weft) else {
        for _ in 2..RATES.len() {
            to.classed("td", "missing", NOT_MEASURED);
        }
        to.end();
        return;
    };
    to.leaf("td", &series.name);
    for quantity in [
        Quantity::Iops,
        Quantity::BytesPerSecond,
        Quantity::TargetCpuSPerGbit,
    ] {
        measured(to, point, quantity);
    }
    let ceiling = best(source, x, |role| role == Role::Ceiling);
    let ratio = ceiling.and_then(|(_, ceiling)| {
        let ceiling = Value::of(ceiling, Quantity::Iops)?;
        Value::of(point, Quantity::Iops)?.ratio(&ceiling)
    });
    match ratio {
        Some(ratio) => {
            to.begin("td").leaf("b", percent(ratio.median));
            to.leaf("i", range(&ratio, percent)).end();
        }
        None => {
            to.classed("td", "missing", NOT_MEASURED);
        }
    }
    to.leaf("td", numbers::limit(point.limit)).end();
}

/// A number with its range.
fn measured(to: &mut Markup, point: &Point, quantity: Quantity) {
    let shown = shown(quantity);
    let unit = match shown.unit {
        "% of a core" => " %",
        _ => "",
    };
    match Value::of(point, quantity) {
        Some(value) => {
            let number = shown.number(value.summary.median);
            to.begin("td").leaf("b", format!("{number}{unit}"));
            let range = range(&value.summary, |value| shown.number(value));
            to.leaf("i", range).end();
        }
        None => {
            to.classed("td", "missing", NOT_MEASURED);
        }
    }
}

/// The series of a role that does most I/Os a second at `x`.
fn best<'a>(
    source: &Source<'a>,
    x: f64,
    is_such: impl Fn(Role) -> bool,
) -> Option<(&'a Series, &'a Point)> {
    let series = source
        .sweep
        .series
        .iter()
        .filter(|series| is_such(series.role));
    let rated = series.filter_map(|series| {
        let point = values::point(series, x)?;
        let rate = Value::of(point, Quantity::Iops)?.summary.median;
        Some((rate, (series, point)))
    });
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    best.map(|(_, best)| best)
}

/// Local, remote, and what is added.
fn latencies(to: &mut Markup, source: &Source<'_>) {
    let places = source.places();
    to.leaf("h3", source.spec.title);
    to.begin("div")
        .attr("class", "wide")
        .begin("table")
        .attr("class", "numbers glance");
    to.leaf(
        "caption",
        "Median latency, µs, and what is added to the first row's, round by round",
    );
    to.begin("thead").begin("tr").leaf("th", "");
    for (_, label) in &places {
        to.leaf("th", label).leaf("th", format!("{label}, added"));
    }
    to.end().end().begin("tbody");
    let base = values::series(source.sweep, source.base());
    for series in &source.sweep.series {
        to.begin("tr").leaf("th", &series.name);
        for (x, _) in &places {
            let value = |series: &Series| Value::of(values::point(series, *x)?, Quantity::P50Us);
            match values::point(series, *x) {
                Some(point) => measured(to, point, Quantity::P50Us),
                None => {
                    to.classed("td", "missing", NOT_MEASURED);
                }
            }
            let added = base.and_then(|base| value(series)?.difference(&value(base)?));
            added_cell(to, series.name == source.base(), added);
        }
        to.end();
    }
    to.end().end().end();
}

fn added_cell(to: &mut Markup, is_base: bool, added: Option<Value>) {
    let shown = shown(Quantity::P50Us);
    match added {
        _ if is_base => {
            to.leaf("td", "");
        }
        Some(added) => {
            to.begin("td").leaf("b", shown.number(added.summary.median));
            let range = range(&added.summary, |value| shown.number(value));
            to.leaf("i", range).end();
        }
        None => {
            to.classed("td", "missing", NOT_MEASURED);
        }
    }
}
