//! Tables beside the charts.

use serde::Serialize;

use super::figure::{Figure, Source};
use super::numbers::{self, percent, short};
use super::values::{self, Value};
use crate::catalogue::{ChartKind, Reference};
use crate::measured::{Quantity, SeriesRole};
use crate::statistics::Summary;

/// Rows of cells under headings, the first of which is above the names of the rows.
#[derive(Debug, Serialize)]
pub(super) struct HtmlTable<Cell> {
    caption: String,
    headings: Vec<String>,
    rows: Vec<(String, Vec<Option<Cell>>)>,
}

impl<Cell> HtmlTable<Cell> {
    pub(super) fn new(caption: String, headings: Vec<String>) -> HtmlTable<Cell> {
        HtmlTable {
            caption,
            headings,
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, name: &str, cells: Vec<Option<Cell>>) {
        self.rows.push((name.to_owned(), cells));
    }
}

/// A number and what is to be known of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Cell {
    median: String,
    /// Half the interval's width, as a share of the median.
    noise: Option<String>,
    range: String,
    /// To the first series.
    ratio: Option<String>,
    /// Runs that were unlike the others.
    odd: Vec<String>,
}

impl Cell {
    /// A median with its range.
    pub(super) fn new(summary: &Summary, number: impl Fn(f64) -> String) -> Cell {
        Cell {
            median: number(summary.median),
            range: range(summary, number),
            ..Cell::default()
        }
    }

    /// With its unit, where the heading has none.
    pub(super) fn of(value: &Value, quantity: Quantity) -> Cell {
        let shown = numbers::shown(quantity);
        let cell = Cell::new(&value.summary, |value| shown.number(value));
        let unit = match shown.unit {
            "% of a core" => " %",
            _ => "",
        };
        Cell {
            median: cell.median + unit,
            ..cell
        }
    }

    fn of_figure(figure: &Figure<'_>, value: &Value, base: Option<&Value>) -> Cell {
        let (y, summary) = (&figure.plot.y, &value.summary);
        let has_noise = summary.count > 1 && figure.chart.kind != ChartKind::Difference;
        let odd = [("outliers", &value.outliers), ("unsteady", &value.unsteady)];
        let odd = odd.into_iter().filter(|(_, rounds)| !rounds.is_empty());
        let odd =
            odd.map(|(what, rounds)| format!("{what}: {} of {}", rounds.len(), summary.count));
        Cell {
            noise: has_noise.then(|| percent(summary.noise())),
            ratio: base
                .and_then(|base| value.ratio(base))
                .map(|ratio| times(&ratio)),
            odd: odd.collect(),
            ..Cell::new(summary, |value| y.number(value))
        }
    }
}

/// The numbers of a chart: places down, series across.
pub(super) fn numbers(figure: &Figure<'_>) -> HtmlTable<Cell> {
    let plot = &figure.plot;
    let mut headings = vec![plot.x_label.to_owned()];
    headings.extend(plot.lines.iter().map(|line| line.name.to_owned()));
    let mut table = HtmlTable::new(format!("{}{}", plot.y_before, plot.y.label()), headings);
    for (at, (_, label)) in plot.places.iter().enumerate() {
        let base = plot.lines.first().and_then(|line| line.values[at].as_ref());
        let cells = plot.lines.iter().enumerate().map(|(turn, line)| {
            let base = base.filter(|_| figure.has_base && turn > 0);
            let value = line.values[at].as_ref()?;
            Some(Cell::of_figure(figure, value, base))
        });
        table.row(label, cells.collect());
    }
    table
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
fn times(ratio: &Summary) -> String {
    match ratio.count {
        1 => format!("×{}", short(ratio.median)),
        _ => format!("×{} ({})", short(ratio.median), range(ratio, short)),
    }
}

/// What was the bottleneck at each point, where any series has one.
pub(super) fn limits(source: &Source<'_>) -> Option<HtmlTable<&'static str>> {
    let series = source.names().into_iter().filter_map(|name| {
        let series = values::series(source.sweep, name)?;
        let is_judged = series.role != SeriesRole::Ceiling && !series.points.is_empty();
        is_judged.then_some(series)
    });
    let series: Vec<_> = series.collect();
    if series.is_empty() {
        return None;
    }
    let mut headings = vec![source.spec.axis.label.to_owned()];
    headings.extend(series.iter().map(|series| series.name.clone()));
    let mut table = HtmlTable::new(String::new(), headings);
    for (x, label) in source.places() {
        let limit = series.iter().map(|series| {
            let point = values::point(series, x)?;
            (!point.samples.is_empty()).then_some(numbers::limit(point.limit))
        });
        table.row(&label, limit.collect());
    }
    Some(table)
}

/// A printed number in the unit that its chart has.
pub(super) fn printed(reference: &Reference) -> String {
    match reference.quantity {
        Some(quantity) => {
            let shown = numbers::shown(quantity);
            let unit = match shown.unit {
                "" => reference.unit,
                unit => unit,
            };
            format!("{} {unit}", shown.number(reference.value))
        }
        None => match reference.unit {
            "us" => format!("{} µs", short(reference.value)),
            unit => format!("{} {unit}", short(reference.value)),
        },
    }
}
