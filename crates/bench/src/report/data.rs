//! Every number as tables of data, comma-separated (RFC 4180).

use std::fmt::Write;

use super::numbers::shown;
use super::values::{self, Value, has_settled};
use crate::measured::{Quantity, Sweep};

/// All runs of a sweep, one a row: what was not measured is empty.
pub(super) fn samples(sweep: &Sweep) -> String {
    let quantities = quantities(sweep);
    let mut head = vec!["series", "x", "point", "round", "steady"];
    head.extend(quantities.iter().map(|quantity| shown(*quantity).key));
    let mut rows = row(head);
    for series in &sweep.series {
        for point in &series.points {
            for sample in &point.samples {
                let mut fields = vec![
                    series.name.clone(),
                    point.x.to_string(),
                    point.label.clone(),
                    sample.round.to_string(),
                    has_settled(sample).to_string(),
                ];
                let values = quantities
                    .iter()
                    .map(|quantity| sample.values.get(quantity));
                fields.extend(values.map(|value| value.map_or_else(String::new, f64::to_string)));
                rows += &row(fields);
            }
        }
    }
    rows
}

/// What the runs say: a row for each quantity at each point; ratios are to the
/// series `base`.
pub(super) fn medians(sweep: &Sweep, base: Option<&str>) -> String {
    let mut rows = row([
        "series",
        "x",
        "point",
        "quantity",
        "runs",
        "median",
        "least",
        "most",
        "interval-low",
        "interval-high",
        "confidence",
        "outlier-rounds",
        "unsteady-rounds",
        "ratio-to-first",
        "limit",
    ]);
    let base = base.and_then(|base| values::series(sweep, base));
    for series in &sweep.series {
        for point in &series.points {
            let beside = base.and_then(|base| values::point(base, point.x));
            for quantity in quantities(sweep) {
                let Some(value) = Value::of(point, quantity) else {
                    continue;
                };
                let base = beside.and_then(|point| Value::of(point, quantity));
                let ratio = base.and_then(|base| value.ratio(&base));
                let summary = &value.summary;
                rows += &row([
                    series.name.clone(),
                    point.x.to_string(),
                    point.label.clone(),
                    shown(quantity).key.to_owned(),
                    summary.count.to_string(),
                    summary.median.to_string(),
                    summary.min.to_string(),
                    summary.max.to_string(),
                    summary.interval.0.to_string(),
                    summary.interval.1.to_string(),
                    summary.confidence.to_string(),
                    list(&value.outliers),
                    list(&value.unsteady),
                    ratio.map_or_else(String::new, |ratio| ratio.median.to_string()),
                    super::numbers::limit(point.limit).to_owned(),
                ]);
            }
        }
    }
    rows
}

/// Latency distributions, where there are any: a row for each step.
pub(super) fn distributions(sweep: &Sweep) -> Option<String> {
    let mut rows = row(["series", "x", "point", "round", "share", "us"]);
    let head = rows.len();
    for series in &sweep.series {
        for point in &series.points {
            for sample in &point.samples {
                for (share, us) in &sample.distribution {
                    rows += &row([
                        series.name.clone(),
                        point.x.to_string(),
                        point.label.clone(),
                        sample.round.to_string(),
                        share.to_string(),
                        us.to_string(),
                    ]);
                }
            }
        }
    }
    (rows.len() > head).then_some(rows)
}

/// That any run of the sweep has told.
fn quantities(sweep: &Sweep) -> Vec<Quantity> {
    let points = sweep.series.iter().flat_map(|series| &series.points);
    let samples = points.flat_map(|point| &point.samples);
    let mut all: Vec<_> = samples.flat_map(|s| s.values.keys().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn list(rounds: &[u32]) -> String {
    let rounds: Vec<_> = rounds.iter().map(u32::to_string).collect();
    rounds.join(" ")
}

fn row(fields: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut row = String::new();
    for (at, field) in fields.into_iter().enumerate() {
        let comma = match at {
            0 => "",
            _ => ",",
        };
        let field = field.as_ref();
        match field.contains(['"', ',', '\n', '\r']) {
            true => write!(row, "{comma}\"{}\"", field.replace('"', "\"\"")),
            false => write!(row, "{comma}{field}"),
        }
        .expect("strings take everything");
    }
    row.push_str("\r\n");
    row
}
