//! A chart: lines or groups of bars with whiskers over an axis, a legend below.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Serialize;

use super::numbers::{NOT_MEASURED, Shown, plain};
use super::style::{Marker, Style};
use super::values::Value;
use crate::catalogue::Scale;

/// All of a chart but its looks.
#[derive(Debug)]
pub(super) struct Plot<'a> {
    pub(super) title: String,
    /// What it is of: in smaller letters below the title.
    pub(super) about: &'a str,
    pub(super) x_label: &'a str,
    pub(super) x_scale: Scale,
    /// Places of the axis that have a mark, with what stands there.
    pub(super) places: Vec<(f64, String)>,
    pub(super) y: Shown,
    /// Before the name of the quantity, such as "Added: ".
    pub(super) y_before: &'a str,
    pub(super) y_scale: Scale,
    pub(super) is_bars: bool,
    pub(super) lines: Vec<Curve<'a>>,
    /// Printed by papers: place, number as measured ones are.
    pub(super) references: Vec<(f64, f64)>,
}

/// One series.
#[derive(Debug)]
pub(super) struct Curve<'a> {
    pub(super) name: &'a str,
    pub(super) style: Style,
    /// For each of the plot's places.
    pub(super) values: Vec<Option<Value>>,
}

/// A part of a chart and what it tells under the pointer.
#[derive(Debug, Serialize)]
pub(super) struct PointedAt {
    text: String,
    /// As SVG has them: "x,y x,y".
    points: String,
    /// Whether what lies between the points is part of it.
    is_area: bool,
}

/// On the plane of the picture, in pixels.
type ChartPoint = (i32, i32);
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = DrawResult<T, SVGBackend<'static>>;

const WIDTH: u32 = 660;
const TITLE_HEIGHT: u32 = 50;
const PLOT_HEIGHT: u32 = 390;
const LEGEND_LINE: i32 = 21;
/// Of a line of the legend, before its name.
const SWATCH: i32 = 34;
const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1a);
const GREY: RGBColor = RGBColor(0x55, 0x55, 0x55);
const WIDE: u32 = 2;
/// Of the x axis between two whole numbers: the library marks whole ones alone.
const STEPS: f64 = 1000.0;

impl Plot<'_> {
    /// The picture as SVG.
    ///
    /// # Panics
    /// When the picture's text takes no more, which it always does.
    pub(super) fn draw(&self) -> String {
        let mut svg = String::new();
        let legend = self.legend_places();
        let lines = legend.last().map_or(0, |(_, y)| *y / LEGEND_LINE + 1);
        let size = (WIDTH, PLOT_HEIGHT + (lines * LEGEND_LINE) as u32 + 6);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let range = self.range();
        let told = match self.y_scale {
            Scale::Log10 => self.over(&root, range.log_scale()),
            _ => self.over(&root, range),
        };
        let told = told.and_then(|told| {
            self.legend(&root, &legend)?;
            root.present()?;
            Ok(told)
        });
        drop(root);
        super::template::with_told(&svg, &told.expect("a string takes everything"))
    }

    /// Whether each printed number that has a place on the x axis is on the
    /// scale; empty where none has.
    pub(super) fn printed(&self) -> Vec<bool> {
        let placed = self.references.iter().filter_map(|reference| {
            self.place_of(reference.0)?;
            Some(self.range().contains(&(reference.1 * self.y.factor)))
        });
        placed.collect()
    }

    fn place_of(&self, x: f64) -> Option<usize> {
        self.places.iter().position(|place| place.0 == x)
    }

    /// From the axis's begin to its end: from 0, or whole decades.
    pub(super) fn range(&self) -> std::ops::Range<f64> {
        let values = self.lines.iter().flat_map(|line| line.values.iter());
        let ends = values.flatten().flat_map(|value| {
            let (low, high) = value.summary.interval;
            [value.summary.min, value.summary.max, low, high]
        });
        let mut ends: Vec<_> = ends.map(|end| end * self.y.factor).collect();
        let greatest = ends.iter().copied().fold(0.0, f64::max);
        // A number far above would leave no room for what was measured here.
        let printed = self
            .references
            .iter()
            .map(|(_, value)| value * self.y.factor);
        ends.extend(printed.filter(|value| *value <= 1.25 * greatest));
        let most = ends.iter().copied().fold(0.0, f64::max);
        if self.y_scale == Scale::Log10 {
            let above = ends.iter().copied().filter(|end| *end > 0.0);
            let least = above.fold(most.max(f64::MIN_POSITIVE), f64::min);
            let (least, most) = match most > 0.0 {
                true => (least.log10().floor(), most.log10().ceil()),
                false => (0.0, 1.0),
            };
            return 10f64.powf(least)..10f64.powf(most.max(least + 1.0));
        }
        let least = ends.iter().copied().fold(0.0, f64::min);
        match most - least {
            // An end that is reached exactly leaves no room for whiskers.
            span if span > 0.0 => least * 1.04..most + span * 0.04,
            _ => 0.0..1.0,
        }
    }

    /// Where a place of the x axis is.
    fn x_of(&self, at: usize) -> f64 {
        let x = self.places[at].0;
        match self.x_scale {
            Scale::Category => at as f64,
            _ if self.is_bars => at as f64,
            Scale::Linear => x,
            Scale::Log2 | Scale::Log10 => x.ln(),
        }
    }

    /// From the x axis's begin to its end, with room beside the first and last place.
    fn x_range(&self) -> std::ops::Range<f64> {
        let last = self.places.len() - 1;
        let (from, to) = (self.x_of(0), self.x_of(last));
        let room = match last {
            0 => 0.5,
            last if self.is_bars || self.x_scale == Scale::Category => {
                (to - from) / last as f64 / 2.0
            }
            _ => (to - from) * 0.05,
        };
        from - room..to + room
    }

    /// Draws everything over axes, of which `y` is one.
    fn over<Y>(&self, root: &Area<'_>, y: Y) -> Drawn<Vec<PointedAt>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        root.fill(&WHITE)?;
        let (above, _) = root.split_vertically(PLOT_HEIGHT);
        let whole = |x: f64| (x * STEPS).round() as i32;
        let x = self.x_range();
        let marks = (0..self.places.len()).map(|at| whole(self.x_of(at)));
        let marks: Vec<i32> = marks.collect();
        let mut chart = ChartBuilder::on(&above)
            .margin(8)
            .margin_top(TITLE_HEIGHT)
            .x_label_area_size(46)
            .y_label_area_size(70)
            .build_cartesian_2d(
                (whole(x.start)..whole(x.end)).with_key_points(marks.clone()),
                y,
            )?;
        let label = |x: &i32| {
            let at = marks.iter().position(|other| other == x);
            at.map_or_else(String::new, |at| self.places[at].1.clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(text(14, INK))
            .x_desc(self.x_label)
            .x_label_formatter(&label)
            .y_desc(format!("{}{}", self.y_before, self.y.label()))
            .y_labels(8)
            .y_label_formatter(&|mark| plain(*mark))
            .draw()?;
        let area = chart.plotting_area();
        let left = Pos::new(HPos::Left, VPos::Center);
        let title = text(19, INK).pos(left);
        root.draw(&Text::new(&*self.title, (12, 14), title))?;
        let about = text(14, GREY).pos(left);
        root.draw(&Text::new(self.about, (12, 33), about))?;
        let pen = Pen {
            root,
            place: &|x, measured| area.map_coordinate(&(whole(x), measured * self.y.factor)),
        };
        let told = match self.is_bars {
            true => self.bars(&pen)?,
            false => self.lines(&pen)?,
        };
        for (x, value) in &self.references {
            if let Some(at) = self.place_of(*x)
                && self.range().contains(&(value * self.y.factor))
            {
                pen.words("\u{2606}", (pen.place)(self.x_of(at), *value), INK, 20)?;
            }
        }
        Ok(told)
    }

    fn lines(&self, pen: &Pen<'_, '_>) -> Drawn<Vec<PointedAt>> {
        let mut told = Vec::new();
        for line in &self.lines {
            let values = line.values.iter().enumerate();
            let places: Vec<Option<ChartPoint>> = values
                .map(|(at, value)| {
                    let median = value.as_ref()?.summary.median;
                    Some((pen.place)(self.x_of(at), median))
                })
                .collect();
            // A place without a value is a gap, never a straight way over it.
            for run in places.split(Option::is_none) {
                let run: Vec<ChartPoint> = run.iter().flatten().copied().collect();
                match (&*run, line.style.marker) {
                    // A bound at one place alone.
                    ([(x, y)], Marker::None) => {
                        pen.line(vec![(x - 30, *y), (x + 30, *y)], line.style.colour)?;
                    }
                    ([] | [_], _) => {}
                    _ if self.x_scale == Scale::Category => {}
                    _ => pen.line(run, line.style.colour)?,
                }
            }
            for (at, value) in line.values.iter().enumerate() {
                let (Some(value), Some(place)) = (value, places[at]) else {
                    continue;
                };
                self.whisker(pen, (self.x_of(at), value), line.style.colour)?;
                pen.marker(line.style, place, !value.unsteady.is_empty())?;
            }
            let there: Vec<ChartPoint> = places.iter().flatten().copied().collect();
            let numbers = self.places.iter().zip(&line.values);
            let numbers = numbers.filter_map(|((_, place), value)| {
                let number = self.y.number(value.as_ref()?.summary.median);
                Some(format!("{place}: {number}"))
            });
            let numbers: Vec<_> = numbers.collect();
            told.push(PointedAt::new(
                format!("{}\n{}", line.name, numbers.join("\n")),
                &there,
                false,
            ));
        }
        Ok(told)
    }

    /// The interval, and small crosses where measurements were far from the others.
    fn whisker(&self, pen: &Pen<'_, '_>, (x, value): (f64, &Value), colour: RGBColor) -> Drawn<()> {
        let (low, high) = value.summary.interval;
        let ((x_low, low), (_, high)) = ((pen.place)(x, low), (pen.place)(x, high));
        if value.summary.count > 1 && low - high >= 2 {
            let bar = [
                (x_low - 4, low),
                (x_low + 4, low),
                (x_low, low),
                (x_low, high),
                (x_low - 4, high),
                (x_low + 4, high),
            ];
            pen.root.draw(&PathElement::new(bar.to_vec(), colour))?;
        }
        let samples = value.samples.iter();
        for (_, measured) in samples.filter(|(round, _)| value.outliers.contains(round)) {
            pen.root
                .draw(&Cross::new((pen.place)(x, *measured), 4, colour))?;
        }
        Ok(())
    }

    fn bars(&self, pen: &Pen<'_, '_>) -> Drawn<Vec<PointedAt>> {
        let (bounds, bars): (Vec<_>, Vec<_>) = self
            .lines
            .iter()
            .partition(|line| line.style.marker == Marker::None);
        let wide = (0.84 / bars.len().max(1) as f64).min(0.3);
        let mut told = Vec::new();
        for (at, (_, place)) in self.places.iter().enumerate() {
            let middle = self.x_of(at);
            let begin = middle - wide * bars.len() as f64 / 2.0;
            for (turn, line) in bars.iter().enumerate() {
                let from = begin + wide * turn as f64;
                let ends = (from + 0.04 * wide, from + 0.96 * wide);
                let Some(value) = &line.values[at] else {
                    pen.gap((pen.place)(from + wide / 2.0, 0.0))?;
                    continue;
                };
                let corners = self.bar(pen, line.style, value, ends)?;
                let number = self.y.number(value.summary.median);
                let text = format!("{}\n{place}: {number}", line.name);
                told.push(PointedAt::new(text, &corners, true));
            }
            for line in &bounds {
                if let Some(value) = &line.values[at] {
                    let end = |side| (pen.place)(middle + side, value.summary.median);
                    pen.line(vec![end(-0.46), end(0.46)], line.style.colour)?;
                    let number = self.y.number(value.summary.median);
                    let text = format!("{}\n{place}: {number}", line.name);
                    told.push(PointedAt::new(text, &[end(-0.46), end(0.46)], false));
                }
            }
        }
        Ok(told)
    }

    /// One bar; returns its corners.
    fn bar(
        &self,
        pen: &Pen<'_, '_>,
        style: Style,
        value: &Value,
        (from, to): (f64, f64),
    ) -> Drawn<Vec<ChartPoint>> {
        let median = value.summary.median;
        // An axis of decades has no 0: it ends there.
        let ((left, ground), (right, top)) =
            ((pen.place)(from, self.ground()), (pen.place)(to, median));
        let [upper, lower] = [top.min(ground), top.max(ground)];
        let rectangle = [(left, upper), (right, lower)];
        if value.unsteady.is_empty() {
            pen.root
                .draw(&Rectangle::new(rectangle, style.colour.filled()))?;
        }
        pen.root
            .draw(&Rectangle::new(rectangle, style.colour.stroke_width(WIDE)))?;
        let middle = i32::midpoint(left, right);
        if lower - upper > 16 && right - left > 10 {
            let inside = (middle, ground - 8 * (ground - top).signum());
            let colour = match value.unsteady.is_empty() {
                true => WHITE,
                false => style.colour,
            };
            pen.marker(Style { colour, ..style }, inside, false)?;
        }
        self.whisker(pen, (f64::midpoint(from, to), value), INK)?;
        let number = self.y.number(median);
        if width(&number) < right - left + 6 {
            let (_, highest) = (pen.place)(from, value.summary.max.max(0.0));
            pen.words(&number, (middle, highest - 8), INK, 13)?;
        }
        Ok(vec![
            (left, upper),
            (right, upper),
            (right, lower),
            (left, lower),
        ])
    }

    /// What bars stand on, as measured.
    fn ground(&self) -> f64 {
        match self.y_scale {
            Scale::Log10 => self.range().start / self.y.factor,
            _ => 0.0,
        }
    }

    /// Where each series is named, below the plot.
    fn legend_places(&self) -> Vec<ChartPoint> {
        let (mut x, mut y) = (20, 0);
        let place = |line: &Curve<'_>| {
            let wide = SWATCH + width(line.name) + 18;
            if x + wide > WIDTH as i32 && x > 20 {
                (x, y) = (20, y + LEGEND_LINE);
            }
            x += wide;
            (x - wide, y)
        };
        self.lines.iter().map(place).collect()
    }

    fn legend(&self, root: &Area<'_>, places: &[ChartPoint]) -> Drawn<()> {
        let pen = Pen {
            root,
            place: &|_, _| (0, 0),
        };
        for (line, (x, y)) in self.lines.iter().zip(places) {
            let y = y + PLOT_HEIGHT as i32 + LEGEND_LINE / 2;
            pen.line(vec![(*x, y), (x + SWATCH - 8, y)], line.style.colour)?;
            pen.marker(line.style, (x + SWATCH / 2 - 4, y), false)?;
            let at = (x + SWATCH, y);
            let left = text(14, INK).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(line.name, at, left))?;
        }
        Ok(())
    }
}

/// What draws on the picture.
struct Pen<'p, 's> {
    root: &'p Area<'s>,
    /// From a place of the x axis and a measured number to the picture.
    place: &'p dyn Fn(f64, f64) -> ChartPoint,
}

impl Pen<'_, '_> {
    fn line(&self, points: Vec<ChartPoint>, colour: RGBColor) -> Drawn<()> {
        let line = PathElement::new(points, colour.stroke_width(WIDE));
        self.root.draw(&line)
    }

    fn words(&self, words: &str, at: ChartPoint, colour: RGBColor, size: i32) -> Drawn<()> {
        let middle = text(size, colour).pos(Pos::new(HPos::Center, VPos::Center));
        self.root.draw(&Text::new(words, at, middle))
    }

    /// Where a bar would be, had it been measured.
    fn gap(&self, (x, y): ChartPoint) -> Drawn<()> {
        let turned = text(13, GREY).transform(FontTransform::Rotate270);
        let upwards = turned.pos(Pos::new(HPos::Left, VPos::Center));
        self.root
            .draw(&Text::new(NOT_MEASURED, (x, y - 6), upwards))
    }

    /// Hollow where a run had not settled.
    fn marker(&self, style: Style, (x, y): ChartPoint, is_hollow: bool) -> Drawn<()> {
        let colour = style.colour;
        let points: &[ChartPoint] = match style.marker {
            Marker::None => return Ok(()),
            Marker::Disc => {
                self.root.draw(&Circle::new((x, y), 4, colour.filled()))?;
                return match is_hollow {
                    true => self.root.draw(&Circle::new((x, y), 3, WHITE.filled())),
                    false => Ok(()),
                };
            }
            Marker::Square => &[(-4, -4), (4, -4), (4, 4), (-4, 4), (-4, -4)],
            Marker::Diamond => &[(0, -5), (5, 0), (0, 5), (-5, 0), (0, -5)],
            Marker::Up => &[(0, -5), (5, 4), (-5, 4), (0, -5)],
            Marker::Down => &[(0, 5), (5, -4), (-5, -4), (0, 5)],
        };
        let around: Vec<_> = points.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        if !is_hollow {
            return self.root.draw(&Polygon::new(around, colour));
        }
        self.root.draw(&Polygon::new(around.clone(), WHITE))?;
        self.root.draw(&PathElement::new(around, colour))
    }
}

impl PointedAt {
    fn new(text: String, points: &[ChartPoint], is_area: bool) -> PointedAt {
        // A line of one point has no length: it is there twice.
        let twice = points.first().filter(|_| points.len() == 1);
        let points = points.iter().chain(twice);
        let points: Vec<_> = points.map(|(x, y)| format!("{x},{y}")).collect();
        PointedAt {
            text,
            points: points.join(" "),
            is_area,
        }
    }
}

fn text<'a>(size: i32, colour: RGBColor) -> TextStyle<'a> {
    ("sans-serif", size).into_font().color(&colour)
}

/// About how many pixels wide letters of the legend are.
fn width(text: &str) -> i32 {
    text.chars().count() as i32 * 13 / 2
}
