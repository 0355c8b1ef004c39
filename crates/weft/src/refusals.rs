//! What was refused, as `weft refusals` prints it.

use std::io::{self, Write};

use api::{RefusalSummary, Refusals};
use tables::Cell;

/// Columns of a line, but for what is to be pasted.
const COLUMNS: usize = 100;
/// What stands before what is told of a refusal.
const INDENT: usize = 10;

pub fn show(out: &mut dyn Write, answer: &Refusals) -> io::Result<()> {
    match answer.refusals.is_empty() {
        true => writeln!(out, "nothing was refused since weft was started"),
        false => show_all(out, &answer.refusals),
    }
}

/// Prints refusals, of which there is one at least.
pub fn show_all(out: &mut dyn Write, all: &[RefusalSummary]) -> io::Result<()> {
    let (last, count, from) = ("LAST", "COUNT", "FROM");
    writeln!(out, "{last:<20}  {count:>9}  {from:<39}  REFUSED")?;
    all.iter().try_for_each(|refused| show_one(out, refused))
}

fn show_one(out: &mut dyn Write, refused: &RefusalSummary) -> io::Result<()> {
    let from = refused.address.map(|address| address.to_string());
    let from = from.unwrap_or_default();
    let (last, count, kind) = (
        Cell::Time(refused.last_unix_s),
        refused.count,
        &refused.kind,
    );
    writeln!(out, "{last:<20}  {count:>9}  {from:<39}  {kind}")?;
    if count > 1 {
        row(
            out,
            "first",
            &[Cell::Time(refused.first_unix_s).to_string()],
        )?;
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    row(out, "name", &wrapped(&text(&refused.host)))?;
    row(out, "asked", &wrapped(&text(&refused.target)))?;
    row(out, "why", &wrapped(&refused.reason))?;
    // It is to be pasted: no line is broken.
    let allow = text(&refused.allow);
    let allow: Vec<_> = allow.lines().map(str::to_owned).collect();
    row(out, "allow", &allow)
}

fn row(out: &mut dyn Write, name: &str, lines: &[String]) -> io::Result<()> {
    for (n, line) in lines.iter().enumerate() {
        let name = if n == 0 { name } else { "" };
        let width = INDENT - 2;
        writeln!(out, "  {name:<width$}{line}")?;
    }
    Ok(())
}

/// In lines that fit; a word that does not is broken.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        let len = word.trim_end().chars().count();
        if used > 0 && used + len > COLUMNS - INDENT {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            if used == COLUMNS - INDENT {
                lines.push(String::new());
                used = 0;
            }
            lines.last_mut().expect("one at least").push(c);
            used += 1;
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(refusals: Vec<RefusalSummary>) -> String {
        let mut out = Vec::new();
        show(&mut out, &Refusals { refusals }).expect("room");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn table_without_a_refusal_is_a_sentence() {
        let shown = shown(Vec::new());
        assert_eq!(shown, "nothing was refused since weft was started\n");
    }

    #[test]
    fn table_fits_100_columns_and_breaks_no_line_of_configuration() {
        let long = "x".repeat(223);
        let allow = format!("# in [[nvme.subsystem]]:\nhosts = [\n    \"{long}\",\n]");
        let shown = shown(vec![RefusalSummary {
            first_unix_s: 0,
            last_unix_s: 86_400,
            count: 1_000_000,
            kind: "Connect refused".to_owned(),
            address: "2001:db8:1111:2222:3333:4444:5555:6666".parse().ok(),
            host: Some(long.clone()),
            target: None,
            reason: "a word ".repeat(40),
            allow: Some(allow),
            change: None,
        }]);
        let too_wide: Vec<_> = shown
            .lines()
            .filter(|line| line.chars().count() > 100)
            .collect();
        assert_eq!(too_wide, [format!("              \"{long}\",")]);
        for part in [
            "1970-01-02T00:00:00Z    1000000  2001:db8:",
            "  first   1970-01-01",
            "  why     a word",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        assert!(!shown.contains("asked"), "{shown}");
    }
}
