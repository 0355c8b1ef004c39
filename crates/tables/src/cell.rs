//! What stands in a table.

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

/// A value as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// There is none.
    Nothing,
    /// Words.
    Text(String),
    /// How many.
    Count(u64),
    /// Bytes, in units of 1024.
    Bytes(u64),
    /// Milliseconds since something, as far as they matter.
    Duration(u64),
    /// Nanoseconds that something takes.
    Taken(u64),
    /// Thousandths of what is told.
    Ratio(u64),
    /// Seconds since 1970, as a date.
    Time(u64),
    /// How many each second.
    PerSecond(u64),
    /// Bytes each second, in units of 1024.
    BytesPerSecond(u64),
}

impl Cell {
    /// A text; nothing where it is empty.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Cell {
        match text.into() {
            text if text.is_empty() => Cell::Nothing,
            text => Cell::Text(text),
        }
    }

    /// What there may be, as a text.
    #[must_use]
    pub fn option<T: ToString>(value: Option<&T>) -> Cell {
        value.map_or(Cell::Nothing, |value| Cell::text(value.to_string()))
    }

    /// All of a list, in one cell.
    #[must_use]
    pub fn list<'a, T: ToString + 'a>(all: impl IntoIterator<Item = &'a T>) -> Cell {
        let all: Vec<_> = all.into_iter().map(ToString::to_string).collect();
        Cell::text(all.join(", "))
    }

    /// How many.
    #[must_use]
    pub fn count(count: usize) -> Cell {
        Cell::Count(count as u64)
    }

    /// A yes or no.
    #[must_use]
    pub fn yes_or_no(is_so: bool) -> Cell {
        Cell::text(if is_so { "yes" } else { "no" })
    }

    /// What a column is ordered by: numbers before texts, nothing first.
    #[must_use]
    pub fn order(&self, other: &Cell) -> Ordering {
        let key = |cell: &Cell| match cell {
            Cell::Nothing => (0, 0, String::new()),
            Cell::Count(number)
            | Cell::Bytes(number)
            | Cell::Duration(number)
            | Cell::Taken(number)
            | Cell::Ratio(number)
            | Cell::Time(number)
            | Cell::PerSecond(number)
            | Cell::BytesPerSecond(number) => (1, *number, String::new()),
            Cell::Text(text) => (2, 0, text.to_lowercase()),
        };
        key(self).cmp(&key(other))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Cell::Nothing => "-".to_owned(),
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Bytes(count) => bytes(*count),
            Cell::Duration(ms) => duration(*ms),
            Cell::Taken(ns) => taken(*ns),
            Cell::Ratio(thousandths) => format!("{:.2}", *thousandths as f64 / 1000.0),
            Cell::Time(seconds) => time(*seconds),
            Cell::PerSecond(count) => format!("{count}/s"),
            Cell::BytesPerSecond(count) => format!("{}/s", bytes(*count)),
        };
        f.pad(&text)
    }
}

fn time(seconds: u64) -> String {
    // A year of five digits is none to RFC 3339 (section 1).
    if seconds >= 253_402_300_800 {
        return "after 9999".to_owned();
    }
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..100 => format!("{s}s"),
        100..6000 => format!("{}m{}s", s / 60, s % 60),
        6000..172_800 => format!("{}h{}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{}h", s / 86_400, s / 3600 % 24),
    }
}

fn taken(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    match ns {
        0..10_000 => format!("{us:.1}us"),
        10_000..1_000_000 => format!("{us:.0}us"),
        1_000_000..10_000_000 => format!("{:.1}ms", us / 1e3),
        10_000_000..1_000_000_000 => format!("{:.0}ms", us / 1e3),
        _ => format!("{:.1}s", us / 1e6),
    }
}

fn bytes(count: u64) -> String {
    let units = ["", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut left = count as f64;
    while left >= 1024.0 && unit + 1 < units.len() {
        left /= 1024.0;
        unit += 1;
    }
    match (unit, left < 10.0) {
        (0, _) => count.to_string(),
        (_, true) => format!("{left:.1}{}", units[unit]),
        (_, false) => format!("{left:.0}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        let times = [999, 99_999, 100_000, 7_200_000, 200_000_000].map(duration);
        assert_eq!(times, ["0s", "99s", "1m40s", "2h0m", "2d7h"]);
        let sizes = [0, 1023, 1024, 10 << 20, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0", "1023", "1.0KiB", "10MiB", "16384PiB"]);
        let taken = [0, 9_999, 123_456, 1_260_000, 45_600_000, 12_000_000_000].map(taken);
        assert_eq!(
            taken,
            ["0.0us", "10.0us", "123us", "1.3ms", "46ms", "12.0s"]
        );
        assert_eq!(Cell::Ratio(1_256).to_string(), "1.26");
        let rates = [Cell::PerSecond(7), Cell::BytesPerSecond(2048)];
        let rates = rates.map(|cell| cell.to_string());
        assert_eq!(rates, ["7/s", "2.0KiB/s"]);
        assert_eq!(Cell::Time(951_782_399).to_string(), "2000-02-28T23:59:59Z");
        // What a peer says may be any number.
        assert_eq!(
            Cell::Time(253_402_300_799).to_string(),
            "9999-12-31T23:59:59Z"
        );
        for late in [253_402_300_800, u64::MAX] {
            assert_eq!(Cell::Time(late).to_string(), "after 9999");
        }
    }

    #[test]
    fn numbers_are_ordered_as_numbers() {
        let mut cells = [
            Cell::text("b"),
            Cell::Bytes(1024),
            Cell::text(""),
            Cell::Bytes(9),
            Cell::text("A"),
        ];
        cells.sort_by(Cell::order);
        let shown = cells.map(|cell| cell.to_string());
        assert_eq!(shown, ["-", "9", "1.0KiB", "A", "b"]);
    }
}
