//! The report: one page that can be read anywhere and printed, its charts as
//! files of their own, and every number as tables of data.

mod chart;
mod claims;
mod compare;
mod data;
mod figure;
mod glance;
mod numbers;
mod page;
mod style;
mod summary;
mod table;
mod template;
#[cfg(test)]
mod tests;
mod topology;
mod values;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

pub use self::compare::compare;

use self::figure::Source;
use self::page::Section;
use self::style::Styles;
use super::catalogue::{CATALOGUE, SweepSpec};
use super::measured::Measured;

/// What it takes to measure allocations.
pub const ALLOCATIONS_NEED: &str = "it takes a weft that counts them: cargo build --release -p weft \
    --features count-allocations";

/// Writes `index.html`, `results.json`, `charts/*.svg`, `data/*.csv` and
/// `data/summary.md` into the folder `to`, which is made where it is missing.
///
/// # Errors
/// What the file system says, with the path.
pub fn write(measured: &Measured, to: &Path) -> io::Result<()> {
    for folder in ["charts", "data"] {
        let path = to.join(folder);
        std::fs::create_dir_all(&path).map_err(|error| named(&path, &error))?;
    }
    let styles = Styles::of(measured);
    let sources = sources(measured, &styles);
    let sections = sections(measured, &sources);
    for chart in sections.iter().flat_map(|section| &section.charts) {
        if let Some(picture) = &chart.picture {
            put(to, &format!("charts/{}.svg", chart.file), picture)?;
        }
    }
    for sweep in &measured.sweeps {
        let name = &sweep.name;
        let base = SweepSpec::named(name).map(|spec| spec.series[0].name);
        put(to, &format!("data/{name}.csv"), &data::samples(sweep))?;
        let medians = data::medians(sweep, base);
        put(to, &format!("data/{name}-medians.csv"), &medians)?;
        if let Some(rows) = data::distributions(sweep) {
            put(to, &format!("data/{name}-distributions.csv"), &rows)?;
        }
    }
    put(to, "data/summary.md", &summary::tables(measured))?;
    let json = serde_json::to_string(measured).map_err(io::Error::other)?;
    put(to, "results.json", &json)?;
    put(to, "index.html", &page::html(measured, &sources, &sections))
}

fn put(to: &Path, name: &str, text: &str) -> io::Result<()> {
    let path = to.join(name);
    std::fs::write(&path, text).map_err(|error| named(&path, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What was measured of the catalogue, in its order.
fn sources<'a>(measured: &'a Measured, styles: &'a Styles) -> Vec<Source<'a>> {
    let sources = CATALOGUE.iter().filter_map(|spec| {
        let mut sweeps = measured.sweeps.iter();
        Some(Source {
            spec,
            sweep: sweeps.find(|sweep| sweep.name == spec.name)?,
            effort: measured.effort,
            styles,
        })
    });
    sources.collect()
}

fn sections<'a>(measured: &'a Measured, sources: &[Source<'a>]) -> Vec<Section<'a>> {
    let sections = sources.iter().map(|source| Section::of(source, measured));
    sections.collect()
}

/// What the catalogue has at this effort and `measured` has neither samples nor
/// a reason for: "sweep", "sweep/series" or "sweep/series/point".
#[must_use]
pub fn missing(measured: &Measured) -> Vec<String> {
    missing_of(CATALOGUE, measured)
}

fn missing_of(catalogue: &[SweepSpec], measured: &Measured) -> Vec<String> {
    let skipped: BTreeSet<_> = measured.skipped.iter().map(|s| s.what.as_str()).collect();
    let mut missing = Vec::new();
    for spec in catalogue.iter().filter(|spec| !skipped.contains(spec.name)) {
        let Some(sweep) = measured.sweeps.iter().find(|sweep| sweep.name == spec.name) else {
            missing.push(spec.name.to_owned());
            continue;
        };
        for series in spec.series {
            let name = format!("{}/{}", spec.name, series.name);
            if skipped.contains(name.as_str()) {
                continue;
            }
            let found = values::series(sweep, series.name);
            let points = spec.axis.points(measured.effort).iter();
            let points = points.filter(|x| {
                let point = found.and_then(|found| values::point(found, **x));
                point.is_none_or(|point| point.samples.is_empty())
            });
            let points = points.map(|x| format!("{name}/{}", spec.axis.label_of(*x)));
            let points: Vec<_> = points.filter(|at| !skipped.contains(at.as_str())).collect();
            match found {
                None if !points.is_empty() => missing.push(name),
                _ => missing.extend(points),
            }
        }
    }
    missing
}
