//! Values that are written as text: sizes and CPU lists.

pub(crate) const UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

/// A size in bytes: `1GiB`, `64 KiB`, `10GB` (decimal), `4096`.
///
/// # Errors
/// In words for the user.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim_start();
    let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err(bad_size(text, number, unit)),
    };
    if number.is_empty() {
        return Err(bad_size(text, number, unit));
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("\"{text}\" is more than 2^64 - 1 bytes"))
}

fn bad_size(text: &str, number: &str, unit: &str) -> String {
    let first = unit.chars().next().map(|c| c.to_ascii_uppercase());
    let meant = UNITS
        .iter()
        .find(|(name, _)| name.len() == 3 && first == name.chars().next());
    match meant {
        Some((name, _)) if !number.is_empty() => {
            format!("\"{text}\" is no size; did you mean \"{number}{name}\"?")
        }
        _ => format!("\"{text}\" is no size; write for example \"64KiB\", \"1GiB\" or \"10GB\""),
    }
}

/// A size as `parse_size` reads it, in the largest binary unit that is exact.
pub fn format_size(bytes: u64) -> String {
    UNITS[..6]
        .iter()
        .rev()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(
            || format!("{bytes}B"),
            |(name, factor)| format!("{}{name}", bytes / factor),
        )
}

/// A CPU list in the kernel's form, as [`reactor::parse_cpus`] reads it.
pub fn format_cpus(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let parts: Vec<_> = parts
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip_and_bad_ones_name_the_right_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("64 KiB", 65_536),
            ("1GiB", 1 << 30),
            ("10GB", 10_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes), "{text}");
        }
        assert_eq!(format_size(1 << 30), "1GiB");
        assert_eq!(format_size(1536), "1536B");
        assert!(parse_size("512M").unwrap_err().contains("\"512MiB\""));
        assert!(parse_size("1gb").unwrap_err().contains("\"1GiB\""));
        assert!(parse_size("GiB").unwrap_err().contains("no size"));
        assert!(parse_size("-1").unwrap_err().contains("no size"));
        assert!(parse_size("99999PiB").unwrap_err().contains("2^64"));
        assert!(
            parse_size("99999999999999999999")
                .unwrap_err()
                .contains("2^64")
        );
    }

    #[test]
    fn cpu_lists_are_written_as_they_are_read() {
        for text in ["3", "0-1,4,6-8", "4,0-1", "1,0"] {
            let cpus = reactor::parse_cpus(text).unwrap();
            assert_eq!(format_cpus(&cpus), text);
        }
    }
}
