//! Changes: each is shown first, with what hosts see of it, and served then.

use api::{Changed, Document, PlanLine, ProblemDetails};
use maud::{Markup, html};

use crate::difference::difference;
use crate::layout::{CONFIGURATION, Page};
use crate::table::address;
use tables::plain;

/// Where changes are asked for.
const CHANGE: &str = "/configuration/change";

/// The address that asks for a change.
pub(crate) fn change_address<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    address(CHANGE, pairs)
}

/// A change that is asked for and not made yet.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// What it does, to people.
    pub title: &'a str,
    /// What its form or link has said, which the next page says again.
    pub pairs: &'a [(String, String)],
    /// The generation that is served now.
    pub generation: u64,
    /// There is a form of it, to which there is a way back.
    pub has_form: bool,
}

/// Names of pairs that each page says anew.
const OF_A_PAGE: [&str; 3] = ["step", "generation", "disconnect"];

impl Proposal<'_> {
    fn again(&self) -> Markup {
        let kept = self.pairs.iter();
        let kept = kept.filter(|(name, _)| !OF_A_PAGE.contains(&&**name));
        html! {
            @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
            input type="hidden" name="generation" value=(self.generation);
        }
    }
}

/// What a change would do, and the button that makes it. `notices`: why it was not made.
#[must_use]
pub fn plan(
    page: &Page<'_>,
    proposal: &Proposal<'_>,
    (before, after): (&str, &str),
    changed: &Changed,
    notices: &[&ProblemDetails],
) -> String {
    let lines = changed.plan.as_deref().unwrap_or_default();
    let disturbs = lines.iter().any(|line| line.disturbs);
    let text = difference(before, after);
    let content = html! {
        (not_done(notices))
        h2 { "What hosts see" }
        (plan_lines(lines))
        (facts("Not served", &changed.not_served))
        (facts("From the next start on", &changed.at_restart))
        (facts("Not read", &changed.not_read))
        h2 { "What the configuration says" }
        @match &text {
            Some(text) => { (text) }
            None => { p { "It stays as it is, generation " (proposal.generation) "." } }
        }
        form.serve method="post" action=(CHANGE) {
            (proposal.again())
            @if disturbs {
                label.choice {
                    input type="checkbox" name="disconnect" value="true" required;
                    "Hosts may be cut, and what is in memory may be lost"
                }
            }
            div.buttons {
                @if text.is_some() || !lines.is_empty() {
                    button.main name="step" value="serve" { "Serve it" }
                }
                @if proposal.has_form {
                    button name="step" value="form" formnovalidate { "Change it further" }
                }
                a href="/configuration" { "Leave it" }
            }
        }
    };
    page.whole(proposal.title, false, &content)
}

pub(crate) fn plan_lines(lines: &[PlanLine]) -> Markup {
    html! {
        @if lines.is_empty() { p { "Nothing changes for them." } }
        ul.plan {
            @for line in lines {
                li class=[line.disturbs.then_some("disturbs")] {
                    @if line.disturbs { strong.bad { "Disturbs: " } }
                    (plain(&line.text))
                }
            }
        }
    }
}

fn facts(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h3 { (title) }
            ul { @for line in lines { li { (plain(line)) } } }
        }
    }
}

/// Why something was not done.
pub(crate) fn not_done(problems: &[&ProblemDetails]) -> Markup {
    html! { @for (number, problem) in problems.iter().enumerate() { (why(number, problem)) } }
}

/// What is wrong, where, and the remedy.
fn why(number: usize, problem: &ProblemDetails) -> Markup {
    let id = format!("problem-{number}");
    let has_list = !problem.problems.is_empty() || !problem.objects.is_empty();
    html! {
        section.problem aria-labelledby=(id) {
            h2 id=(id) { (problem.title) }
            @if !has_list { p { (plain(&problem.detail)) } }
            @for mistake in &problem.problems {
                p {
                    @if !mistake.excerpt.is_empty() {
                        a href="#text" data-line=(mistake.line) data-column=(mistake.column) {
                            "Line " (mistake.line) ", column " (mistake.column)
                        }
                        ": "
                    }
                    (plain(&mistake.text))
                }
                @if !mistake.excerpt.is_empty() { pre tabindex="0" { (plain(&mistake.excerpt)) } }
            }
            @if !problem.objects.is_empty() {
                ul {
                    @for mistake in &problem.objects {
                        li {
                            (plain(&mistake.object))
                            @if let Some(field) = &mistake.field { ", " code { (field) } }
                            ": " (plain(&mistake.reason))
                            "; " (plain(&mistake.hint))
                        }
                    }
                }
            }
            @if !problem.lines.is_empty() {
                ul { @for line in &problem.lines { li { (plain(line)) } } }
            }
            @if problem.served.is_some() {
                p { "What follows is set against what is served now." }
            }
            @if let Some(hint) = &problem.hint { p { (hint) } }
        }
    }
}

/// The text of the configuration, to be changed. `problems`: why what was asked for cannot be.
#[must_use]
pub fn editor(
    page: &Page<'_>,
    document: &Document,
    text: &str,
    problems: &[&ProblemDetails],
) -> String {
    let lines = text.lines().count().clamp(12, 40);
    let content = html! {
        (page.beside("The configuration", &CONFIGURATION))
        (not_done(problems))
        p {
            "Generation " (document.generation) " of "
            @match &document.file {
                Some(file) => { code { (file) } }
                None => { (document.shown()) }
            }
            @if let Some(why) = &document.why { ": " (why) }
        }
        form method="post" action=(CHANGE) {
            input type="hidden" name="change" value="text";
            input type="hidden" name="generation" value=(document.generation);
            label.whole for="text" { "The configuration" }
            // HTML drops the first line break of it.
            textarea #text name="text" rows=(lines) spellcheck="false" autocomplete="off"
                wrap="off" { "\n" (text) }
            div.buttons {
                button.main name="step" value="plan" { "Show what changes" }
            }
        }
        p.soft {
            "Nothing is served before it was shown. "
            code { "weft diff -c FILE" } " and " code { "weft apply -c FILE" } " do the same."
        }
    };
    page.whole("Configuration", false, &content)
}
