//! The generations of the configuration.

use api::{GenerationText, History, HistoryEntry};
use maud::{Markup, html};
use tables::{Cell, HISTORY};

use crate::change::change_address;
use crate::difference::difference;
use crate::layout::{CONFIGURATION, Page};
use crate::table::{Table, TableQuery};
use tables::plain;

/// What made each generation.
#[must_use]
pub fn history(page: &Page<'_>, all: &History, query: &TableQuery) -> String {
    let show = |entry: &HistoryEntry| {
        let number = entry.number();
        html! {
            a href={ "/history/" (number) } { "Show" span.unseen { " " (number) } }
        }
    };
    let table = Table {
        path: page.path,
        caption: "What made each generation of the configuration",
        columns: HISTORY,
        action: page.may_change().then_some(&show),
        none: html! { p { "There is no generation." } },
    };
    let content = html! {
        (page.beside("The configuration", &CONFIGURATION))
        (table.of(&all.generations, query))
        p { code { "weft history N" } " prints a generation, " code { "weft rollback N" } " serves it again." }
    };
    page.whole("History", true, &content)
}

/// A generation, and how it differs from another.
#[must_use]
pub fn generation(
    page: &Page<'_>,
    shown: &GenerationText,
    other: Option<&GenerationText>,
    served: u64,
) -> String {
    let made = &shown.made;
    let number = made.generation;
    let again = change_address([
        ("change", "rollback"),
        ("step", "plan"),
        ("to", &number.to_string()),
    ]);
    let content = html! {
        p {
            (plain(&made.verb)) ", by UID " (made.uid) ", "
            (Cell::Time(made.unix_s).to_string()) ". "
            @if number == served { strong.good { "It is served." } }
            @else { "Generation " (served) " is served." }
        }
        (facts("What was done", &made.done))
        (facts("Not served", &made.not_served))
        (facts("From the next start on", &made.at_restart))
        @if number != served && page.may_change() {
            p { a.button href=(again) { "Serve it again…" } }
        }
        h2 { "Difference" }
        @match other {
            Some(other) => {
                p { "From generation " (other.made.generation) " to this one:" }
                @match difference(&other.text, &shown.text) {
                    Some(lines) => { (lines) }
                    None => { p { "Both have the same text." } }
                }
            }
            None => { p { "The generation before it is not kept." } }
        }
        form.filter method="get" action={ "/history/" (number) } {
            label {
                "Compare with generation"
                input type="text" inputmode="numeric" name="with" required
                    value=[other.map(|other| other.made.generation)];
            }
            button { "Compare" }
        }
        details {
            summary { "The whole text" }
            pre tabindex="0" { (shown.text) }
        }
    };
    page.whole(&format!("Generation {number}"), false, &content)
}

fn facts(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h2 { (title) }
            ul.plan { @for line in lines { li { (plain(line)) } } }
        }
    }
}
