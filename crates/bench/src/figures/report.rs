//! The report: one page that can be read anywhere and printed, its charts as
//! files of their own, and every number as tables of data.

mod chart;
mod claims;
mod compare;
mod data;
mod figure;
mod glance;
mod letters;
mod markup;
mod method;
mod numbers;
mod page;
mod picture;
mod scale;
mod style;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod topology;
mod values;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

pub use self::compare::compare;

use self::figure::Source;
use self::letters::Letters;
use self::page::{Report, Section};
use self::style::Styles;
use super::catalogue::{CATALOGUE, SweepSpec};
use super::measured::Measured;

/// Writes `index.html`, `results.json`, `charts/*.svg`, `charts/*.png`,
/// `data/*.csv` and `data/summary.md` into the folder `to`, which is made where it is missing.
///
/// # Errors
/// What the file system says, with the path.
pub fn write(measured: &Measured, to: &Path) -> io::Result<()> {
    let (styles, letters) = (Styles::of(measured), Letters::new());
    let report = report(measured, &styles, &letters);
    for folder in ["charts", "data"] {
        let path = to.join(folder);
        std::fs::create_dir_all(&path).map_err(|error| named(&path, &error))?;
    }
    for section in &report.sections {
        for (figure, picture) in &section.figures {
            if figure.is_drawn() {
                let file = |ending| format!("charts/{}.{ending}", figure.file);
                put(to, &file("svg"), picture.to_svg().as_bytes())?;
                put(to, &file("png"), &picture.to_png(&letters))?;
            }
        }
    }
    for sweep in &measured.sweeps {
        let name = &sweep.name;
        let base = SweepSpec::named(name).map(|spec| spec.series[0].name);
        put(
            to,
            &format!("data/{name}.csv"),
            data::samples(sweep).as_bytes(),
        )?;
        let medians = data::medians(sweep, base);
        put(to, &format!("data/{name}-medians.csv"), medians.as_bytes())?;
        if let Some(rows) = data::distributions(sweep) {
            put(
                to,
                &format!("data/{name}-distributions.csv"),
                rows.as_bytes(),
            )?;
        }
    }
    put(to, "data/summary.md", summary::tables(measured).as_bytes())?;
    let json = serde_json::to_string(measured).map_err(io::Error::other)?;
    put(to, "results.json", json.as_bytes())?;
    put(to, "index.html", report.to_html().as_bytes())
}

fn put(to: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = to.join(name);
    std::fs::write(&path, bytes).map_err(|error| named(&path, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn report<'a>(measured: &'a Measured, styles: &'a Styles, letters: &Letters) -> Report<'a> {
    let sections = CATALOGUE.iter().filter_map(|spec| {
        let sweep = measured
            .sweeps
            .iter()
            .find(|sweep| sweep.name == spec.name)?;
        let source = Source {
            spec,
            sweep,
            effort: measured.effort,
            styles,
        };
        let figures = source.figures().into_iter();
        let figures = figures.map(|figure| {
            let picture = figure.plot.draw(letters);
            (figure, picture)
        });
        Some(Section {
            source,
            figures: figures.collect(),
        })
    });
    let sections: Vec<_> = sections.collect();
    let sources: Vec<_> = sections.iter().map(|section| &section.source).collect();
    let names = measured.sweeps.iter().map(|sweep| sweep.name.as_str());
    Report {
        measured,
        topologies: topology::draw(&sources, letters),
        missing: missing(measured),
        unknown: names
            .filter(|name| SweepSpec::named(name).is_none())
            .collect(),
        sections,
    }
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
