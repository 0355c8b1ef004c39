//! What is drawn of a sweep: the catalogue's charts, filled with what was
//! measured.

use super::chart::{Curve, Plot};
use super::numbers::shown;
use super::style::Styles;
use super::values::{self, Value};
use crate::catalogue::{Chart, ChartKind, Scale, SweepSpec, Unit};
use crate::measured::{Effort, Point, Sweep};

/// One chart with its numbers.
#[derive(Debug)]
pub(super) struct Figure<'a> {
    /// Of its files, without ending.
    pub(super) file: String,
    pub(super) chart: &'a Chart,
    pub(super) plot: Plot<'a>,
    /// Series of the sweep that have no number of this.
    pub(super) without: Vec<&'a str>,
    /// Whether the first line is what the others are compared with.
    pub(super) has_base: bool,
}

/// How many times the least number the greatest may be on an axis without decades.
const SPAN_MAX: f64 = 30.0;

/// Shares of I/Os that a distribution is drawn at: all but one in so many.
const ONE_IN: &[(f64, &str)] = &[
    (2.0, "50 %"),
    (10.0, "90 %"),
    (100.0, "99 %"),
    (1_000.0, "99.9 %"),
    (10_000.0, "99.99 %"),
    (100_000.0, "99.999 %"),
];

/// A sweep and what was measured of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) spec: &'a SweepSpec,
    pub(super) sweep: &'a Sweep,
    pub(super) effort: Effort,
    pub(super) styles: &'a Styles,
}

impl Figure<'_> {
    /// Whether every run of every series says 0: a sentence, not a chart.
    pub(super) fn is_zero(&self) -> bool {
        let values = self
            .plot
            .lines
            .iter()
            .flat_map(|line| line.values.iter().flatten());
        let mut extremes = values.map(|value| (value.summary.min, value.summary.max));
        extremes.all(|extremes| extremes == (0.0, 0.0))
    }

    /// Whether there is anything to draw.
    pub(super) fn is_drawn(&self) -> bool {
        !self.plot.lines.is_empty() && !self.is_zero()
    }
}

impl<'a> Source<'a> {
    /// All charts of it.
    pub(super) fn figures(&self) -> Vec<Figure<'a>> {
        let charts = self.spec.charts.iter();
        charts.flat_map(|chart| self.figures_of(chart)).collect()
    }

    fn figures_of(&self, chart: &'a Chart) -> Vec<Figure<'a>> {
        if chart.kind != ChartKind::Distribution {
            return vec![self.over_axis(chart)];
        }
        let places = self.places();
        places
            .iter()
            .map(|(x, label)| self.distribution(chart, *x, label))
            .collect()
    }

    /// Where the axis has values: planned ones, and whatever was measured.
    pub(super) fn places(&self) -> Vec<(f64, String)> {
        let axis = &self.spec.axis;
        let mut places: Vec<f64> = axis.points(self.effort).to_vec();
        let points = self.sweep.series.iter().flat_map(|series| &series.points);
        places.extend(points.map(|point| point.x));
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
            .into_iter()
            .map(|x| (x, place(self.spec, x)))
            .collect()
    }

    fn over_axis(&self, chart: &'a Chart) -> Figure<'a> {
        let places = self.places();
        let value = |point: &Point| Value::of(point, chart.y);
        let (mut lines, mut without) = self.lines(&places, value);
        let base = lines.first().filter(|line| line.name == self.base());
        let has_base = base.is_some();
        if chart.kind == ChartKind::Difference {
            let base = base.map(|base| base.values.clone());
            let subtract = |line: &mut Curve<'_>| {
                for (at, value) in line.values.iter_mut().enumerate() {
                    let base = base.as_ref().and_then(|base| base[at].as_ref());
                    *value = value.take().and_then(|value| value.difference(base?));
                }
            };
            lines.retain(|line| line.name != self.base());
            lines.iter_mut().for_each(subtract);
            let (with, none): (Vec<_>, Vec<_>) = lines
                .into_iter()
                .partition(|line| line.values.iter().any(Option::is_some));
            lines = with;
            without.extend(none.into_iter().map(|line| line.name));
        }
        let printed = self.spec.references.iter();
        let printed = printed.filter(|reference| {
            reference.quantity == Some(chart.y) && chart.kind != ChartKind::Difference
        });
        Figure {
            file: format!("{}-{}", self.spec.name, chart.name),
            chart,
            has_base: has_base && chart.kind != ChartKind::Difference,
            without,
            plot: Plot {
                title: chart.title.to_owned(),
                about: self.spec.title,
                x_label: self.spec.axis.label,
                x_scale: self.spec.axis.scale,
                places,
                y: shown(chart.y),
                y_before: match chart.kind {
                    ChartKind::Difference => "Added: ",
                    _ => "",
                },
                y_scale: match chart.kind {
                    ChartKind::Lines => scale_of(chart.y_scale, &lines),
                    _ => chart.y_scale,
                },
                is_bars: chart.kind != ChartKind::Lines,
                lines,
                references: printed.filter_map(|r| Some((r.x?, r.value))).collect(),
            },
        }
    }

    fn distribution(&self, chart: &'a Chart, x: f64, label: &str) -> Figure<'a> {
        let places: Vec<_> = ONE_IN
            .iter()
            .map(|(n, label)| (*n, (*label).to_owned()))
            .collect();
        let value = |series: &'a crate::measured::Series| {
            let point = values::point(series, x);
            let value = |(n, _): &(f64, String)| Value::one_in(point?, *n);
            places.iter().map(value).collect()
        };
        let (lines, without) = self.all_lines(value);
        let has_base = lines.first().is_some_and(|line| line.name == self.base());
        Figure {
            file: format!("{}-{}-{}", self.spec.name, chart.name, file_part(label)),
            chart,
            has_base,
            without,
            plot: Plot {
                title: format!("{}: {label} {}", chart.title, lower(self.spec.axis.label)),
                about: self.spec.title,
                x_label: "Share of I/Os that are no slower",
                x_scale: Scale::Log10,
                places: places.clone(),
                y: super::numbers::Shown {
                    name: "Latency",
                    ..shown(crate::measured::Quantity::P50Us)
                },
                y_before: "",
                y_scale: chart.y_scale,
                is_bars: false,
                lines,
                references: Vec::new(),
            },
        }
    }

    /// The series that the others are compared with.
    pub(super) fn base(&self) -> &'a str {
        self.spec.series[0].name
    }

    fn lines(
        &self,
        places: &[(f64, String)],
        value: impl Fn(&Point) -> Option<Value>,
    ) -> (Vec<Curve<'a>>, Vec<&'a str>) {
        self.all_lines(|series| {
            let at = |(x, _): &(f64, String)| value(values::point(series, *x)?);
            places.iter().map(at).collect()
        })
    }

    /// Of each series that has any value, and the names of the others.
    fn all_lines(
        &self,
        values: impl Fn(&'a crate::measured::Series) -> Vec<Option<Value>>,
    ) -> (Vec<Curve<'a>>, Vec<&'a str>) {
        let (mut lines, mut without) = (Vec::new(), Vec::new());
        for name in self.names() {
            let series = values::series(self.sweep, name);
            let values = series.map(&values).unwrap_or_default();
            match values.iter().any(Option::is_some) {
                true => lines.push(Curve {
                    name,
                    style: self.styles.get(name),
                    values,
                }),
                false => without.push(name),
            }
        }
        (lines, without)
    }

    /// All series, in the catalogue's order, and what else was measured.
    pub(super) fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = self.spec.series.iter().map(|series| series.name).collect();
        for series in &self.sweep.series {
            if !names.contains(&&*series.name) {
                names.push(&series.name);
            }
        }
        names
    }
}

/// Decades where the greatest number would leave the least ones on the ground.
fn scale_of(planned: Scale, lines: &[Curve<'_>]) -> Scale {
    let values = lines.iter().flat_map(|line| line.values.iter().flatten());
    let medians = values.map(|value| value.summary.median);
    let (least, most) = medians.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| {
        (least.min(value), most.max(value))
    });
    match least > 0.0 && most / least >= SPAN_MAX {
        true => Scale::Log10,
        false => planned,
    }
}

/// A value of the axis as it is written below it: sizes as the papers do, "4K".
pub(super) fn place(spec: &SweepSpec, x: f64) -> String {
    let label = spec.axis.label_of(x);
    match spec.axis.unit {
        Unit::Bytes => label.to_uppercase(),
        Unit::Count if x >= 10_000.0 => super::numbers::plain(x),
        _ => label,
    }
}

/// A title that goes on within a line: names keep their capitals.
fn lower(title: &str) -> String {
    let mut letters = title.chars();
    let (first, second) = (letters.next(), letters.clone().next());
    match (first, second) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().collect::<String>() + letters.as_str()
        }
        _ => title.to_owned(),
    }
}

fn file_part(label: &str) -> String {
    let part = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '-',
    };
    label.chars().map(part).collect()
}
