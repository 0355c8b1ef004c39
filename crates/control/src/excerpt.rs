//! Lines of a file as a problem shows them: with a mark below the place, and without secrets.

use crate::Problem;
use crate::schema::is_secret;
use crate::source::nearest;

/// What is farther before the place is not shown.
const BEFORE_MAX: usize = 60;
/// Of one line.
const SHOWN_MAX: usize = 100;

/// Gives each problem that has a place its line of the file.
pub(crate) fn add(problems: &mut [Problem], source: &str) {
    if problems.is_empty() {
        return;
    }
    let lines: Vec<_> = source.lines().collect();
    let may_hold_secret = lines_with_secrets(&lines);
    for problem in problems {
        let Some(at) = problem.line.checked_sub(1) else {
            continue;
        };
        if let Some(false) = may_hold_secret.get(at) {
            problem.excerpt = excerpt(lines[at], problem.line, problem.column);
        }
    }
}

fn excerpt(line: &str, number: usize, column: usize) -> String {
    let before = column.saturating_sub(1);
    let left_out = before.saturating_sub(BEFORE_MAX);
    // What moves a terminal's cursor would move the mark.
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let shown = line.chars().map(plain).skip(left_out);
    let shown: String = shown.take(SHOWN_MAX).collect();
    let number = number.to_string();
    let (margin, place) = (" ".repeat(number.len()), " ".repeat(before - left_out));
    let shown = shown.trim_end();
    format!("  {number} | {shown}\n  {margin} | {place}^\n")
}

/// Which lines may hold a secret, also in a text that is no TOML or misspells its keys: a log
/// that others read has what is shown.
fn lines_with_secrets(lines: &[&str]) -> Vec<bool> {
    let (mut of_chap, mut of_long_text) = (false, false);
    let of_no_table = |word: &str| word == "chap_algorithms" || word.starts_with("dhchap_");
    let is_one = |line: &&str| {
        let words = || line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if line.trim_start().starts_with('[') {
            of_chap = false;
        }
        of_chap |= words().any(|word| word.contains("chap") && !of_no_table(word));
        of_long_text |= ["\"\"\"", "'''"].iter().any(|quote| line.contains(quote));
        let names_one = |word: &str| {
            let is_near = word.contains("secret") || nearest(word, ["secret"]).is_some();
            (is_near && !word.ends_with("secret_file")) || is_secret(word)
        };
        // A key may be written with escapes (TOML 1.0, section "Keys").
        of_chap || of_long_text || line.contains('\\') || words().any(names_one)
    };
    lines.iter().map(is_one).collect()
}
