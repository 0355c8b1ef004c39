//! The report: one page that can be read anywhere and printed, its charts as
//! files of their own, and every number as tables of data.

mod chart;
mod letters;
mod markup;
mod numbers;
mod picture;
mod scale;
mod style;
mod values;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::catalogue::{CATALOGUE, SweepSpec};
use super::measured::Measured;

/// Writes `index.html`, `results.json`, `charts/*.svg`, `charts/*.png` and
/// `data/*.csv` into the folder `to`, which is made where it is missing.
///
/// # Errors
/// What the file system says, with the path.
pub fn write(measured: &Measured, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    let json = serde_json::to_string(measured).map_err(io::Error::other)?;
    std::fs::write(to.join("results.json"), json)
}

/// What the catalogue has at this effort and `measured` has neither samples nor
/// a reason for: "sweep", "sweep/series" or "sweep/series at point".
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
            let Some(found) = values::series(sweep, series.name) else {
                missing.push(name);
                continue;
            };
            for x in spec.axis.points(measured.effort) {
                let point = values::point(found, *x);
                let at = format!("{name} at {}", spec.axis.label_of(*x));
                if point.is_none_or(|point| point.samples.is_empty())
                    && !skipped.contains(at.as_str())
                {
                    missing.push(at);
                }
            }
        }
    }
    missing
}
