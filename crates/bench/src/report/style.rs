//! One look for each series, the same in every chart of a report.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use crate::measured::{Measured, SeriesRole};

/// Colours that those who see few colours tell apart (Okabe and Ito, 2008),
/// without the yellow, which paper swallows.
const COLOURS: &[RGBColor] = &[
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0x44, 0x44, 0x44),
];

/// Of lines that are a bound, not a result; the darkest is the first.
const GREYS: &[RGBColor] = &[
    RGBColor(0x66, 0x66, 0x66),
    RGBColor(0xaa, 0xaa, 0xaa),
    RGBColor(0x88, 0x88, 0x88),
];

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    pub(super) colour: RGBColor,
    pub(super) marker: Marker,
}

/// What a point looks like: told apart without any colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Disc,
    Square,
    Diamond,
    Up,
    Down,
    /// Of lines that are a bound, not a result.
    None,
}

const MARKERS: &[Marker] = &[
    Marker::Disc,
    Marker::Square,
    Marker::Diamond,
    Marker::Up,
    Marker::Down,
];

/// Styles by name of the series.
#[derive(Debug)]
pub(super) struct Styles(BTreeMap<String, Style>);

impl Styles {
    /// Of all series there are: those that are seen together get different
    /// colours as long as there are any.
    pub(super) fn of(measured: &Measured) -> Styles {
        let mut names: Vec<(&str, SeriesRole)> = Vec::new();
        for series in measured.sweeps.iter().flat_map(|sweep| &sweep.series) {
            if !names.iter().any(|(name, _)| *name == series.name) {
                names.push((&series.name, series.role));
            }
        }
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        let mut styles = BTreeMap::new();
        let mut bounds = GREYS.iter().cycle();
        for (name, role) in names {
            let style = match role {
                SeriesRole::Ceiling => Style {
                    colour: *bounds.next().expect("greys repeat"),
                    marker: Marker::None,
                },
                _ => {
                    let uses = uses_beside(measured, name, &taken);
                    let colour = (0..COLOURS.len()).min_by_key(|at| uses[*at]);
                    let colour = colour.expect("there are colours");
                    // A colour's second series has another marker.
                    let turn = taken.values().filter(|at| **at == colour).count();
                    taken.insert(name.to_owned(), colour);
                    Style {
                        colour: COLOURS[colour],
                        marker: MARKERS[(colour + turn) % MARKERS.len()],
                    }
                }
            };
            styles.insert(name.to_owned(), style);
        }
        Styles(styles)
    }

    /// # Panics
    /// When the series is none of the report's.
    pub(super) fn get(&self, name: &str) -> Style {
        self.0[name]
    }
}

/// How often each colour is used by series of the same sweeps; elsewhere
/// counts little, but decides between equals.
fn uses_beside(measured: &Measured, name: &str, taken: &BTreeMap<String, usize>) -> Vec<usize> {
    let mut uses = vec![0; COLOURS.len()];
    for at in taken.values() {
        uses[*at] += 1;
    }
    for sweep in &measured.sweeps {
        if sweep.series.iter().any(|series| series.name == name) {
            let beside = sweep
                .series
                .iter()
                .filter_map(|series| taken.get(&series.name));
            beside.for_each(|at| uses[*at] += 1000);
        }
    }
    uses
}
