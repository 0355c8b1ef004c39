//! What most readers look for first: the ends of the main figures, and latency.

use serde::Serialize;

use super::figure::Source;
use super::numbers::{self, percent};
use super::table::{Cell, HtmlTable};
use super::values::{self, Value};
use crate::catalogue::{Care, Scale};
use crate::measured::{Point, Quantity, Series, SeriesRole};

/// A row of the table of rates.
#[derive(Debug, Serialize)]
pub(super) struct Rate<'a> {
    figure: &'static str,
    size: String,
    /// The fastest of weft's modes.
    best: Option<Best<'a>>,
}

#[derive(Debug, Serialize)]
struct Best<'a> {
    mode: &'a str,
    /// Rate, payload, CPU, share of the ceiling.
    cells: Vec<Option<Cell>>,
    limit: &'static str,
}

/// Both ends of each main figure over sizes.
pub(super) fn rates<'a>(sources: &[Source<'a>]) -> Vec<Rate<'a>> {
    let main = sources.iter().filter(|source| {
        source.spec.care == Care::Main && source.spec.axis.scale != Scale::Category
    });
    let rows = main.flat_map(|source| {
        let mut places = source.places();
        if places.len() > 2 {
            places.drain(1..places.len() - 1);
        }
        places.into_iter().map(|(x, size)| Rate {
            figure: source.spec.name,
            size,
            best: best_of_weft(source, x),
        })
    });
    rows.collect()
}

fn best_of_weft<'a>(source: &Source<'a>, x: f64) -> Option<Best<'a>> {
    let (series, point) = best(source, x, SeriesRole::Weft)?;
    let shown = [
        Quantity::Iops,
        Quantity::BytesPerSecond,
        Quantity::TargetCpuSPerGbit,
    ];
    let mut cells: Vec<_> = shown
        .into_iter()
        .map(|quantity| Some(Cell::of(&Value::of(point, quantity)?, quantity)))
        .collect();
    let of_ceiling = best(source, x, SeriesRole::Ceiling).and_then(|(_, ceiling)| {
        let ceiling = Value::of(ceiling, Quantity::Iops)?;
        Value::of(point, Quantity::Iops)?.ratio(&ceiling)
    });
    cells.push(of_ceiling.map(|share| Cell::new(&share, percent)));
    Some(Best {
        mode: &series.name,
        cells,
        limit: numbers::limit(point.limit),
    })
}

/// The series of a role that does most I/Os a second at `x`.
fn best<'a>(source: &Source<'a>, x: f64, role: SeriesRole) -> Option<(&'a Series, &'a Point)> {
    let series = source.sweep.series.iter();
    let rated = series
        .filter(|series| series.role == role)
        .filter_map(|series| {
            let point = values::point(series, x)?;
            let rate = Value::of(point, Quantity::Iops)?.summary.median;
            Some((rate, (series, point)))
        });
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    best.map(|(_, best)| best)
}

/// Local, remote, and what is added, of each main figure that begins with a local series.
pub(super) fn latencies(sources: &[Source<'_>]) -> Vec<HtmlTable<Cell>> {
    let local = sources.iter().filter(|source| {
        let spec = source.spec;
        spec.care == Care::Main
            && spec.axis.scale == Scale::Category
            && spec.series[0].role() == SeriesRole::Local
    });
    local.map(latency).collect()
}

fn latency(source: &Source<'_>) -> HtmlTable<Cell> {
    let places = source.places();
    let headings = places
        .iter()
        .flat_map(|(_, label)| [label.clone(), format!("{label}, added")]);
    let headings = std::iter::once(String::new()).chain(headings).collect();
    let caption = format!(
        "{}: median latency, µs, and what is added to the first row's, round by round",
        source.spec.title
    );
    let mut table = HtmlTable::new(caption, headings);
    let base = values::series(source.sweep, source.base());
    for series in &source.sweep.series {
        let value = |series: &Series, x| Value::of(values::point(series, x)?, Quantity::P50Us);
        let cells = places.iter().flat_map(|(x, _)| {
            let own = value(series, *x);
            let base = base.and_then(|base| value(base, *x));
            let added = own
                .as_ref()
                .zip(base)
                .and_then(|(own, base)| own.difference(&base));
            let cell = |value: Value| Cell::of(&value, Quantity::P50Us);
            let added = match series.name == source.base() {
                true => Some(Cell::default()),
                false => added.map(cell),
            };
            [own.map(cell), added]
        });
        table.row(&series.name, cells.collect());
    }
    table
}
