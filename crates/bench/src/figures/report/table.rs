//! Tables beside the charts.

use super::figure::{Figure, Source};
use super::markup::Markup;
use super::numbers::{self, percent, short};
use super::values::{self, Value};
use crate::figures::catalogue::{ChartKind, Reference};
use crate::figures::measured::Role;
use crate::figures::statistics::Summary;

/// What stands where there is no number.
pub(super) const NOT_MEASURED: &str = "not measured";

/// The numbers of a chart: places down, series across.
pub(super) fn numbers(to: &mut Markup, figure: &Figure<'_>) {
    let plot = &figure.plot;
    if plot.lines.is_empty() {
        to.classed("p", "missing", format!("{}: {NOT_MEASURED}.", plot.y.name));
        return;
    }
    to.begin("div")
        .attr("class", "wide")
        .begin("table")
        .attr("class", "numbers");
    to.leaf("caption", format!("{}{}", plot.y_before, plot.y.label()));
    to.begin("thead")
        .begin("tr")
        .begin("th")
        .attr("scope", "col")
        .text(plot.x_label)
        .end();
    for line in &plot.lines {
        to.begin("th").attr("scope", "col").text(line.name).end();
    }
    to.end().end().begin("tbody");
    for (at, (_, label)) in plot.places.iter().enumerate() {
        to.begin("tr")
            .begin("th")
            .attr("scope", "row")
            .text(label)
            .end();
        let base = plot.lines[0].values[at]
            .as_ref()
            .filter(|_| figure.has_base);
        for (turn, line) in plot.lines.iter().enumerate() {
            let base = base.filter(|_| turn > 0);
            cell(to, figure, line.values[at].as_ref(), base);
        }
        to.end();
    }
    to.end().end().end();
    if !figure.without.is_empty() {
        let names = figure.without.join("; ");
        to.classed(
            "p",
            "missing",
            format!("No number of this, {NOT_MEASURED}: {names}."),
        );
    }
}

fn cell(to: &mut Markup, figure: &Figure<'_>, value: Option<&Value>, base: Option<&Value>) {
    let Some(value) = value else {
        to.classed("td", "missing", NOT_MEASURED);
        return;
    };
    let (y, summary) = (&figure.plot.y, &value.summary);
    to.begin("td").leaf("b", y.number(summary.median));
    if summary.count > 1 && figure.chart.kind != ChartKind::Difference {
        to.classed("small", "noise", format!(" ±{}", percent(summary.noise())));
    }
    to.leaf("i", range(summary, |value| y.number(value)));
    if let Some(ratio) = base.and_then(|base| value.ratio(base)) {
        to.leaf("em", times(&ratio));
    }
    if !value.outliers.is_empty() {
        let count = value.outliers.len();
        to.leaf("s", format!("outliers: {count} of {}", summary.count));
    }
    if !value.unsteady.is_empty() {
        let count = value.unsteady.len();
        to.leaf("s", format!("unsteady: {count} of {}", summary.count));
    }
    to.end();
}

/// From the least to the most.
pub(super) fn range(summary: &Summary, number: impl Fn(f64) -> String) -> String {
    match summary.count {
        1 => "one run".to_owned(),
        // A dash before a minus sign would be read as one.
        _ if summary.min < 0.0 => format!("{} to {}", number(summary.min), number(summary.max)),
        _ => format!("{}–{}", number(summary.min), number(summary.max)),
    }
}

/// A ratio as a factor.
pub(super) fn times(ratio: &Summary) -> String {
    match ratio.count {
        1 => format!("×{}", short(ratio.median)),
        _ => format!("×{} ({})", short(ratio.median), range(ratio, short)),
    }
}

/// Who was the bottleneck at each point.
pub(super) fn limits(to: &mut Markup, source: &Source<'_>) {
    let series = source.names().into_iter().filter_map(|name| {
        let series = values::series(source.sweep, name)?;
        let is_judged = series.role != Role::Ceiling && !series.points.is_empty();
        is_judged.then_some(series)
    });
    let series: Vec<_> = series.collect();
    if series.is_empty() {
        return;
    }
    to.begin("div").attr("class", "screen");
    to.leaf("h3", "Bottleneck at each point");
    to.begin("div")
        .attr("class", "wide")
        .begin("table")
        .attr("class", "limits");
    to.begin("thead")
        .begin("tr")
        .leaf("th", source.spec.axis.label);
    for series in &series {
        to.leaf("th", &series.name);
    }
    to.end().end().begin("tbody");
    for (x, label) in source.places() {
        to.begin("tr").leaf("th", label);
        for series in &series {
            match values::point(series, x).filter(|point| !point.samples.is_empty()) {
                Some(point) => to.leaf("td", numbers::limit(point.limit)),
                None => to.classed("td", "missing", NOT_MEASURED),
            };
        }
        to.end();
    }
    to.end().end().end().end();
}

/// What papers printed: never ours.
pub(super) fn references(to: &mut Markup, references: &[Reference], paper: &str) {
    if references.is_empty() {
        return;
    }
    to.leaf("h3", "Printed by the paper, of its own hardware");
    to.begin("div")
        .attr("class", "wide")
        .begin("table")
        .attr("class", "printed");
    to.begin("thead")
        .begin("tr")
        .leaf("th", "What")
        .leaf("th", "Printed")
        .end()
        .end();
    to.begin("tbody");
    for reference in references {
        to.begin("tr").leaf("td", reference.text);
        to.leaf("td", printed(reference)).end();
    }
    to.end().end().end();
    to.classed(
        "p",
        "aside",
        format!("{paper}. Nothing of this was measured here; the hardware is another."),
    );
}

/// A printed number in the unit that its chart has.
pub(super) fn printed(reference: &Reference) -> String {
    match reference.quantity {
        Some(quantity) => {
            let shown = numbers::shown(quantity);
            format!(
                "{} {}",
                shown.number(reference.value),
                unit(shown.unit, reference.unit)
            )
        }
        None => match reference.unit {
            "us" => format!("{} µs", short(reference.value)),
            unit => format!("{} {unit}", short(reference.value)),
        },
    }
}

fn unit<'a>(shown: &'a str, printed: &'a str) -> &'a str {
    match shown {
        "" => printed,
        shown => shown,
    }
}
