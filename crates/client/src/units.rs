//! Numbers as a user writes and reads them.

use std::time::Duration;

/// Bytes from `4096`, `4k`, `4KiB`, `1m`, `2GiB`. Suffixes are powers of 1024,
/// as fio's are by default, in either case.
///
/// # Errors
/// A sentence for the user where `text` is no such number, or is above 2^63.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("`{suffix}` is no size suffix: use k, m, g or t")),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no size, such as 4096, 4k or 128KiB"))?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes < 1 << 63)
        .ok_or_else(|| format!("`{text}` is too large"))
}

/// A duration from `10`, `10s`, `500ms`, `2m` or `1h`; bare numbers are seconds.
///
/// # Errors
/// A sentence for the user where `text` is no such duration, or is above a week.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let unit_s = match suffix.to_ascii_lowercase().as_str() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{suffix}` is no unit of time: use ms, s, m or h")),
    };
    let seconds: f64 = number
        .parse::<f64>()
        .map_err(|_| format!("`{text}` is no duration, such as 10, 10s or 500ms"))?
        * unit_s;
    if seconds > 7.0 * 86_400.0 {
        return Err(format!("`{text}` is more than a week"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A rate with a thousands suffix: `950`, `17.3k`, `1.52M`.
#[must_use]
pub fn show_count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.1}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// Bytes with a binary suffix where they divide by it: `4KiB`, `128KiB`, `512`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    for (shift, suffix) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_every_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("128KiB", 131_072),
            ("1m", 1 << 20),
            ("1MB", 1 << 20),
            ("2GiB", 2 << 30),
            ("1t", 1 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "4q", "-1", "1.5k", "99999999999t"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_default_to_seconds() {
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "s", "5y", "9999h", "-3"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_and_bytes_are_shown_with_units() {
        assert_eq!(show_count(1_523_000.0), "1.52M");
        assert_eq!(show_count(44_120.0), "44.1k");
        assert_eq!(show_count(950.2), "950");
        assert_eq!(show_bytes(131_072), "128KiB");
        assert_eq!(show_bytes(1 << 30), "1GiB");
        assert_eq!(show_bytes(520), "520");
    }
}
