//! A chart: lines or groups of bars with whiskers over an axis, a legend below.

use super::letters::Letters;
use super::numbers::Shown;
use super::picture::{
    Anchor, Colour, GREY, GRID, INK, PAPER, Pen, Picture, Points, Shape, TEXT, Words,
};
use super::scale::Along;
use super::style::{Marker, Style};
use super::values::Value;
use crate::figures::catalogue::Scale;

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
    pub(super) lines: Vec<Line<'a>>,
    /// Printed by papers: place, number as measured ones are.
    pub(super) references: Vec<(f64, f64)>,
}

/// One series.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) style: Style,
    /// For each of the plot's places.
    pub(super) values: Vec<Option<Value>>,
}

const WIDTH: f64 = 660.0;
const PLOT_HEIGHT: f64 = 280.0;
const PLOT_TOP: f64 = 56.0;
const TITLE: f64 = 15.0;
const SMALL: f64 = 11.0;
/// Of a legend's line.
const SWATCH: f64 = 34.0;
/// Letters of a reader's own font may be wider than those measured.
const WIDER: f64 = 1.12;

/// The plane on which values are drawn.
struct Ground<'a> {
    plot: &'a Plot<'a>,
    letters: &'a Letters,
    picture: Picture,
    y: Along,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Plot<'_> {
    /// The picture of it.
    pub(super) fn draw(&self, letters: &Letters) -> Picture {
        let y = self.along_y();
        let mark_width = y.marks().into_iter().map(|mark| letters.width(&mark.1));
        let left = 34.0 + mark_width.fold(0.0, f64::max) * TEXT * WIDER;
        let mut ground = Ground {
            plot: self,
            letters,
            picture: Picture {
                width: WIDTH,
                height: 0.0,
                title: format!("{}: {}", self.about, self.title),
                shapes: Vec::new(),
            },
            y,
            left,
            right: WIDTH - 16.0,
            top: PLOT_TOP,
            bottom: PLOT_TOP + PLOT_HEIGHT,
        };
        ground.axes();
        match self.is_bars {
            true => ground.bars(),
            false => ground.lines(),
        }
        ground.references();
        ground.picture
    }

    /// Whether each printed number that has a place on the x axis is on the
    /// scale; empty where none has.
    pub(super) fn printed(&self) -> Vec<bool> {
        let y = self.along_y();
        let printed = self.references.iter();
        let placed = printed.filter(|(at, _)| self.places.iter().any(|place| place.0 == *at));
        placed
            .map(|(_, value)| y.has(value * self.y.factor))
            .collect()
    }

    fn along_y(&self) -> Along {
        let factor = self.y.factor;
        let values = self
            .lines
            .iter()
            .flat_map(|line| line.values.iter().flatten());
        let seen = values.flat_map(|value| {
            let summary = &value.summary;
            [
                summary.min,
                summary.max,
                summary.interval.0,
                summary.interval.1,
            ]
        });
        let seen: Vec<_> = seen.map(|value| value * factor).collect();
        let most = seen.iter().copied().fold(0.0, f64::max);
        // A number far above would leave no room for what was measured here.
        let printed = self.references.iter().map(|(_, value)| value * factor);
        let near: Vec<_> = printed.filter(|value| *value <= 1.25 * most).collect();
        Along::numbers(self.y_scale, seen.into_iter().chain(near))
    }
}

impl Ground<'_> {
    fn x_of(&self, at: usize) -> f64 {
        let places = &self.plot.places;
        let (first, last) = (places[0].0, places[places.len() - 1].0);
        let share = match self.plot.x_scale {
            _ if places.len() == 1 => 0.5,
            Scale::Category => (at as f64 + 0.5) / places.len() as f64,
            _ if self.plot.is_bars => (at as f64 + 0.5) / places.len() as f64,
            Scale::Linear => 0.04 + 0.92 * (places[at].0 - first) / (last - first),
            Scale::Log2 | Scale::Log10 => {
                0.04 + 0.92 * (places[at].0 / first).ln() / (last / first).ln()
            }
        };
        self.left + share * (self.right - self.left)
    }

    fn y_of(&self, measured: f64) -> f64 {
        let share = self.y.place(measured * self.plot.y.factor);
        self.bottom - share * (self.bottom - self.top)
    }

    fn axes(&mut self) {
        let title = Words {
            is_bold: true,
            ..Words::new(&self.plot.title, (12.0, 20.0), TITLE, Anchor::Start)
        };
        self.picture.words(title);
        let about = Words::new(self.plot.about, (12.0, 37.0), SMALL, Anchor::Start);
        self.picture.words(Words {
            colour: GREY,
            ..about
        });
        let marks = self.y.marks();
        let line = |mark: &(f64, String)| {
            let y = self.y_of(mark.0 / self.plot.y.factor);
            vec![(self.left, y), (self.right, y)]
        };
        let grid = marks.iter().map(line).collect();
        self.picture.lines(grid, Pen::solid(GRID, 1.0));
        for (mark, label) in marks {
            let y = self.y_of(mark / self.plot.y.factor);
            let at = (self.left - 7.0, y + TEXT * 0.35);
            self.picture.words(Words::new(label, at, TEXT, Anchor::End));
        }
        let frame = [
            (self.left, self.top),
            (self.left, self.bottom),
            (self.right, self.bottom),
        ];
        self.picture.line(&frame, Pen::solid(INK, 1.2));
        let middle = (self.top + self.bottom) / 2.0;
        let y_label = format!("{}{}", self.plot.y_before, self.plot.y.label());
        self.picture.words(Words {
            is_turned: true,
            ..Words::new(y_label, (18.0, middle), TEXT, Anchor::Middle)
        });
        let lines = self.x_marks();
        let mut below = self.bottom + 12.0 + (TEXT + 3.0) * lines as f64;
        if !self.plot.x_label.is_empty() {
            let at = ((self.left + self.right) / 2.0, below + 12.0);
            let words = Words::new(self.plot.x_label, at, TEXT, Anchor::Middle);
            self.picture.words(words);
            below += 16.0;
        }
        self.legend(below + 10.0);
    }

    /// Names of the places; returns how many lines they take.
    fn x_marks(&mut self) -> usize {
        let count = self.plot.places.len();
        let room = (self.right - self.left) / count as f64 - 8.0;
        let (mut lines_max, mut taken_to) = (1, f64::NEG_INFINITY);
        let tick = |x: f64| vec![(x, self.bottom), (x, self.bottom + 5.0)];
        let ticks = (0..count).map(|at| tick(self.x_of(at))).collect();
        self.picture.lines(ticks, Pen::solid(INK, 1.0));
        for at in 0..count {
            let x = self.x_of(at);
            let label = &self.plot.places[at].1;
            let lines = match self.plot.x_scale {
                Scale::Category => wrap(label, room, |text| self.width(text, TEXT)),
                _ => vec![label.clone()],
            };
            let wide = lines.iter().map(|line| self.width(line, TEXT));
            let half = wide.fold(0.0, f64::max) / 2.0;
            if x - half < taken_to {
                continue;
            }
            taken_to = x + half + 4.0;
            lines_max = lines_max.max(lines.len());
            for (at, line) in lines.into_iter().enumerate() {
                let y = self.bottom + 9.0 + (TEXT + 3.0) * (at + 1) as f64 - 3.0;
                self.picture
                    .words(Words::new(line, (x, y), TEXT, Anchor::Middle));
            }
        }
        lines_max
    }

    fn width(&self, text: &str, size: f64) -> f64 {
        self.letters.width(text) * size * WIDER
    }

    fn legend(&mut self, from: f64) {
        let (mut x, mut y) = (self.left, from + 10.0);
        for line in &self.plot.lines {
            let wide = SWATCH + 6.0 + self.width(line.name, TEXT) + 18.0;
            if x + wide > WIDTH && x > self.left {
                (x, y) = (self.left, y + TEXT + 8.0);
            }
            self.swatch(line.style, (x, y - TEXT * 0.35));
            let at = (x + SWATCH + 6.0, y);
            let words = Words::new(line.name, at, TEXT, Anchor::Start);
            self.picture.words(words);
            x += wide;
        }
        self.picture.height = y + 14.0;
    }

    fn swatch(&mut self, style: Style, (x, y): (f64, f64)) {
        let is_bar = self.plot.is_bars && style.marker != Marker::None;
        if is_bar {
            let (from, to) = ((x + 8.0, y - 7.0), (x + SWATCH - 6.0, y + 7.0));
            self.picture.rect(from, to, style.pen.colour, None);
            let at = vec![(x + SWATCH / 2.0 + 1.0, y)];
            self.markers(style.marker, at, PAPER, None);
            return;
        }
        self.picture.line(&[(x, y), (x + SWATCH, y)], style.pen);
        let outline = Some(Pen::solid(style.pen.colour, 1.5));
        let at = vec![(x + SWATCH / 2.0, y)];
        self.markers(style.marker, at, style.pen.colour, outline);
    }

    fn lines(&mut self) {
        for line in &self.plot.lines {
            self.picture.shapes.push(Shape::Begin(self.told(line)));
            self.line(line);
            let places = line.values.iter().enumerate();
            let values: Vec<_> = places
                .filter_map(|(at, value)| Some((self.x_of(at), value.as_ref()?)))
                .collect();
            self.whiskers(&values, line.style.pen.colour);
            // Hollow where a run had not settled.
            for (is_steady, fill) in [(true, line.style.pen.colour), (false, PAPER)] {
                let such = values.iter();
                let such = such.filter(|(_, value)| value.unsteady.is_empty() == is_steady);
                let at: Points = such
                    .map(|(x, value)| (*x, self.y_of(value.summary.median)))
                    .collect();
                let outline = Some(Pen::solid(line.style.pen.colour, 1.5));
                self.markers(line.style.marker, at, fill, outline);
            }
            self.picture.shapes.push(Shape::End);
        }
    }

    /// A series and its medians, in words.
    fn told(&self, line: &Line<'_>) -> String {
        let places = self.plot.places.iter().zip(&line.values);
        let numbers = places.filter_map(|((_, place), value)| {
            let number = self.plot.y.number(value.as_ref()?.summary.median);
            Some(format!("{place}: {number}"))
        });
        let numbers: Vec<_> = numbers.collect();
        format!("{}\n{}", line.name, numbers.join("\n"))
    }

    fn line(&mut self, line: &Line<'_>) {
        let places: Vec<_> = (0..line.values.len())
            .map(|at| {
                let value = line.values[at].as_ref()?;
                Some((self.x_of(at), self.y_of(value.summary.median)))
            })
            .collect();
        let mut runs = Vec::new();
        // A place without a value is a gap, never a straight way over it.
        for run in places.split(Option::is_none) {
            let run: Points = run.iter().flatten().copied().collect();
            match *run {
                [] => {}
                // A bound at one place alone.
                [(x, y)] if line.style.marker == Marker::None => {
                    runs.push(vec![(x - 30.0, y), (x + 30.0, y)]);
                }
                [_] => {}
                _ if self.plot.x_scale == Scale::Category => {}
                _ => runs.push(run),
            }
        }
        self.picture.lines(runs, line.style.pen);
    }

    /// Intervals, and small crosses where measurements were far from the others.
    fn whiskers(&mut self, values: &[(f64, &Value)], colour: Colour) {
        let mut lines = Vec::new();
        for (x, value) in values {
            if value.summary.count > 1 {
                let (low, high) = value.summary.interval;
                let (low, high) = (self.y_of(low), self.y_of(high));
                let end = |y| vec![(x - 4.0, y), (x + 4.0, y)];
                // Shorter ones nobody sees.
                if low - high >= 1.5 {
                    lines.extend([vec![(*x, low), (*x, high)], end(low), end(high)]);
                }
            }
            let samples = value.samples.iter();
            let far = samples.filter(|(round, _)| value.outliers.contains(round));
            for (_, measured) in far {
                let y = self.y_of(*measured);
                lines.push(vec![(x - 3.5, y - 3.5), (x + 3.5, y + 3.5)]);
                lines.push(vec![(x - 3.5, y + 3.5), (x + 3.5, y - 3.5)]);
            }
        }
        self.picture.lines(lines, Pen::solid(colour, 1.2));
    }

    fn bars(&mut self) {
        let plot = self.plot;
        let (bounds, bars): (Vec<_>, Vec<_>) = plot
            .lines
            .iter()
            .partition(|line| line.style.marker == Marker::None);
        let room = (self.right - self.left) / plot.places.len() as f64;
        let wide = (room * 0.84 / bars.len().max(1) as f64).min(64.0);
        for at in 0..plot.places.len() {
            let begin = self.x_of(at) - wide * bars.len() as f64 / 2.0;
            for (turn, line) in bars.iter().enumerate() {
                let from = begin + wide * turn as f64;
                match &line.values[at] {
                    Some(value) => {
                        let (place, y) = (&plot.places[at].1, plot.y.number(value.summary.median));
                        let told = format!("{}\n{place}: {y}", line.name);
                        self.picture.shapes.push(Shape::Begin(told));
                        self.bar(line, value, (from + 1.0, from + wide - 1.0));
                        self.picture.shapes.push(Shape::End);
                    }
                    None => self.gap(from + wide / 2.0),
                }
            }
            for line in &bounds {
                if let Some(value) = &line.values[at] {
                    let y = self.y_of(value.summary.median);
                    let half = room * 0.46;
                    let x = self.x_of(at);
                    self.picture
                        .line(&[(x - half, y), (x + half, y)], line.style.pen);
                }
            }
        }
    }

    fn bar(&mut self, line: &Line<'_>, value: &Value, (from, to): (f64, f64)) {
        let (top, ground) = (self.y_of(value.summary.median), self.y_of(0.0));
        let is_steady = value.unsteady.is_empty();
        let colour = line.style.pen.colour;
        let fill = match is_steady {
            true => colour,
            false => PAPER,
        };
        let outline = Some(Pen::solid(colour, 1.5));
        self.picture.rect((from, top), (to, ground), fill, outline);
        let x = (from + to) / 2.0;
        if (ground - top).abs() > 16.0 && to - from > 10.0 {
            let inside = ground - 8.0 * (ground - top).signum();
            let fill = match is_steady {
                true => PAPER,
                false => colour,
            };
            self.markers(line.style.marker, vec![(x, inside)], fill, None);
        }
        self.whiskers(&[(x, value)], INK);
        let number = self.plot.y.number(value.summary.median);
        if self.width(&number, SMALL) < to - from + 6.0 {
            let above = self.y_of(value.summary.max.max(0.0)) - 4.0;
            let words = Words::new(number, (x, above), SMALL, Anchor::Middle);
            self.picture.words(words);
        }
    }

    /// Where a bar would be, had it been measured.
    fn gap(&mut self, x: f64) {
        self.picture.words(Words {
            is_turned: true,
            colour: GREY,
            ..Words::new(
                "not measured",
                (x + 4.0, self.bottom - 6.0),
                SMALL,
                Anchor::Start,
            )
        });
    }

    fn markers(&mut self, marker: Marker, at: Points, fill: Colour, pen: Option<Pen>) {
        let points: &[(f64, f64)] = match marker {
            _ if at.is_empty() => return,
            Marker::None => return,
            Marker::Disc => {
                self.picture.shapes.push(Shape::Discs {
                    at,
                    radius: 4.0,
                    fill,
                    pen,
                });
                return;
            }
            Marker::Square => &[(-3.8, -3.8), (3.8, -3.8), (3.8, 3.8), (-3.8, 3.8)],
            Marker::Diamond => &[(0.0, -5.3), (5.3, 0.0), (0.0, 5.3), (-5.3, 0.0)],
            Marker::Up => &[(0.0, -5.0), (4.8, 3.8), (-4.8, 3.8)],
            Marker::Down => &[(0.0, 5.0), (4.8, -3.8), (-4.8, -3.8)],
        };
        let around = |(x, y): (f64, f64)| points.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let areas = at.into_iter().map(around).collect();
        self.picture.shapes.push(Shape::Areas { areas, fill, pen });
    }

    /// What papers printed, where it is on the scale.
    fn references(&mut self) {
        for (at, value) in &self.plot.references {
            let place = self.plot.places.iter().position(|place| place.0 == *at);
            let is_seen = self.y.has(value * self.plot.y.factor);
            let Some(place) = place.filter(|_| is_seen) else {
                continue;
            };
            let (x, y) = (self.x_of(place), self.y_of(*value));
            let star = (0..10).map(|turn| {
                let radius = [7.0, 3.0][turn % 2];
                let angle = std::f64::consts::TAU * turn as f64 / 10.0;
                (x + radius * angle.sin(), y - radius * angle.cos())
            });
            self.picture.shapes.push(Shape::Areas {
                areas: vec![star.collect()],
                fill: PAPER,
                pen: Some(Pen::solid(INK, 1.0)),
            });
        }
    }
}

/// Breaks `text` between words, so that no line is wider than `room` unless one
/// word is.
pub(super) fn wrap(text: &str, room: f64, width: impl Fn(&str) -> f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}")) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
