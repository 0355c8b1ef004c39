//! From values to places along an axis, and where its marks are.

use super::numbers::short;
use crate::figures::catalogue::Scale;

/// One axis of a chart.
#[derive(Clone, Debug)]
pub(super) struct Along {
    scale: Scale,
    from: f64,
    to: f64,
    /// Between marks, where they are equally far apart.
    step: f64,
}

impl Along {
    /// An axis of numbers that has room for all of `values`.
    pub(super) fn numbers(scale: Scale, values: impl Iterator<Item = f64>) -> Along {
        let (least, most) = values.filter(|value| value.is_finite()).fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(least, most), value| (least.min(value), most.max(value)),
        );
        match scale {
            Scale::Log10 | Scale::Log2 => {
                // Nothing above 0: any decade.
                let (least, most) = match most > 0.0 {
                    true if least > 0.0 => (least, most),
                    true => (most / 1000.0, most),
                    false => (1.0, 10.0),
                };
                let mut marks = decade_marks(least / 10.0, most * 10.0);
                let below = marks.iter().rposition(|mark| *mark <= least * 1.000_001);
                let above = marks.iter().position(|mark| *mark >= most * 0.999_999);
                let (below, above) = (below.unwrap_or(0), above.unwrap_or(marks.len() - 1));
                let marks = marks
                    .drain(below..=above.max(below + 1))
                    .collect::<Vec<_>>();
                Along {
                    scale: Scale::Log10,
                    from: marks[0],
                    to: marks[marks.len() - 1],
                    step: 0.0,
                }
            }
            Scale::Linear | Scale::Category => {
                let (least, most) = (least.min(0.0), most.max(0.0));
                let span = match most - least {
                    span if span.is_finite() && span > 0.0 => span,
                    _ => 1.0,
                };
                let step = step(span);
                Along {
                    scale: Scale::Linear,
                    from: (least / step).floor() * step,
                    // A top that is reached exactly leaves no room for whiskers.
                    to: ((least + span * 1.02) / step).ceil() * step,
                    step,
                }
            }
        }
    }

    /// Where `value` is, 0 to 1 along the axis.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Log10 | Scale::Log2 => {
                (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
            }
            Scale::Linear | Scale::Category => (value - self.from) / (self.to - self.from),
        }
        .clamp(0.0, 1.0)
    }

    /// Whether `value` is on it.
    pub(super) fn has(&self, value: f64) -> bool {
        // Ends are sums of steps, a little off.
        let slack = (self.to - self.from) * 1e-6;
        (self.from - slack..=self.to + slack).contains(&value)
    }

    /// Values that get a line and a number.
    pub(super) fn marks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Log10 | Scale::Log2 => {
                let marks = decade_marks(self.from * 0.999, self.to * 1.001);
                marks.into_iter().map(|mark| (mark, plain(mark))).collect()
            }
            Scale::Linear | Scale::Category => {
                let first = (self.from / self.step).round() as i64;
                let last = (self.to / self.step).round() as i64;
                (first..=last)
                    .map(|at| at as f64 * self.step)
                    .map(|mark| (mark, plain(mark)))
                    .collect()
            }
        }
    }
}

/// A round number's digits: "200k", "1.5M", "0.25".
pub(super) fn plain(mark: f64) -> String {
    let text = short(mark);
    let (digits, suffix) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (&*text, ""),
    };
    match digits.contains('.') {
        true => {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}{suffix}")
        }
        false => text,
    }
}

/// 1, 2 or 5 times a power of ten, of which `span` has four to nine.
fn step(span: f64) -> f64 {
    let decade = 10f64.powf((span / 4.0).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|times| times * decade);
    let found = steps.into_iter().find(|step| span / step >= 3.9);
    found.unwrap_or(decade)
}

/// 1, 2 and 5 times powers of ten; the powers alone where there are many.
fn decade_marks(from: f64, to: f64) -> Vec<f64> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let times: &[f64] = match last - first {
        ..=3 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    (first..=last)
        .flat_map(|power| times.iter().map(move |times| times * 10f64.powi(power)))
        .filter(|mark| (from..=to).contains(mark))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place() {
        for scale in [Scale::Linear, Scale::Log10] {
            for most in [0.003, 0.7, 1.0, 42.0, 412_000.0, 3e9] {
                let along = Along::numbers(scale, [most / 7.0, most].into_iter());
                assert!(along.has(most) && along.has(most / 7.0), "{along:?}");
                assert!(along.place(most) > along.place(most / 7.0));
                let marks = along.marks();
                assert!(
                    (2..=12).contains(&marks.len()),
                    "{scale:?} {most} {marks:?}"
                );
                let mut labels: Vec<_> = marks.iter().map(|mark| &mark.1).collect();
                labels.dedup();
                assert_eq!(labels.len(), marks.len(), "{marks:?}");
            }
        }
    }

    #[test]
    fn an_axis_begins_at_zero_unless_it_has_decades() {
        let linear = Along::numbers(Scale::Linear, [300.0, 412.0].into_iter());
        assert_eq!(
            (linear.place(0.0), linear.marks()[0].1.as_str()),
            (0.0, "0")
        );
        let below = Along::numbers(Scale::Linear, [-5.0, 12.0].into_iter());
        assert!(below.place(-5.0) < below.place(0.0) && below.has(-5.0));
        let log = Along::numbers(Scale::Log10, [10.0, 1000.0].into_iter());
        assert!((log.place(100.0) - 0.5).abs() < 1e-9, "{log:?}");
        // Nothing measured at all still makes an axis.
        let none = Along::numbers(Scale::Linear, std::iter::empty());
        assert!(none.marks().len() > 2);
    }
}
