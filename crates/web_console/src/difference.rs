//! What tells one text from another, line by line.

use std::time::Duration;

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};

use tables::plain;

/// Lines that are shown.
const LINES_MAX: usize = 1000;

/// Lines around a change.
const CONTEXT: usize = 3;

/// How long the smallest difference is looked for; then a larger one is shown.
const PATIENCE: Duration = Duration::from_millis(500);

/// The lines that go and come; nothing where the texts are the same.
pub(crate) fn difference(before: &str, after: &str) -> Option<Markup> {
    if before == after {
        return None;
    }
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(before, after);
    let groups = diff.grouped_ops(CONTEXT);
    let mut lines = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        if number > 0 {
            lines.push(html! { span.soft { "…\n" } });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            if lines.len() > LINES_MAX {
                break;
            }
            let line = change.value().trim_end_matches(['\r', '\n']);
            let line = plain(line);
            lines.push(match change.tag() {
                ChangeTag::Equal => html! { span { "  " (line) "\n" } },
                ChangeTag::Delete => html! { del { "- " (line) "\n" } },
                ChangeTag::Insert => html! { ins { "+ " (line) "\n" } },
            });
        }
    }
    let is_whole = lines.len() <= LINES_MAX;
    Some(html! {
        pre.difference tabindex="0" role="region" aria-label="Lines that change" {
            @for line in &lines { (line) }
        }
        @if !is_whole {
            p.soft { "More lines change than are shown: " (LINES_MAX) "." }
        }
    })
}
