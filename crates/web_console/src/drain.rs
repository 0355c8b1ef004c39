//! Hosts go elsewhere, or are let in again: asked before it is done.

use api::Drain;
use maud::{Markup, html};

use crate::change::plan_lines;
use crate::layout::Page;
use crate::views::kinds;
use tables::plain;

/// Whether hosts are to go elsewhere, what was just done, and what can be.
#[must_use]
pub fn drain(page: &Page<'_>, drain: &Drain) -> String {
    let content = html! {
        (kinds(page))
        @if !drain.done.is_empty() {
            h2 { "Done" }
            ul.plan { @for line in &drain.done { li { (plain(line)) } } }
        }
        @match drain.is_drained {
            true => (begun(page, drain)),
            false => (asked(page, drain)),
        }
    };
    page.whole("Drain", false, &content)
}

fn begun(page: &Page<'_>, drain: &Drain) -> Markup {
    html! {
        p.bad {
            "No host is let in, and no path gives access"
            @if let Some(since) = &drain.since { ", since " (since) }
            @if let Some(by) = &drain.by { ", by " (plain(by)) }
            "."
        }
        p { "Gone since: " (drain.gone.len()) ". Connected still: " (drain.left.len()) "." }
        ul { @for host in &drain.left { li { (plain(&host.name)) ", " (host.speaks()) } } }
        @if page.may_change() {
            form.serve method="post" action=(page.path) {
                div.buttons { button.main name="step" value="end" { "Let hosts in again" } }
            }
        }
    }
}

fn asked(page: &Page<'_>, drain: &Drain) -> Markup {
    let plan = drain.plan.as_deref().unwrap_or_default();
    html! {
        p {
            "Before maintenance, hosts go elsewhere without an error: none is let in, and no path "
            "gives access. A restart ends it."
        }
        h2 { "What hosts see" }
        (plan_lines(plan))
        @if page.may_change() {
            form.serve method="post" action=(page.path) {
                @if plan.iter().any(|line| line.disturbs) {
                    label.choice {
                        input type="checkbox" name="disconnect" value="true" required;
                        "Hosts that have no other path may be cut"
                    }
                }
                div.buttons { button.main name="step" value="begin" { "Drain" } }
            }
        }
    }
}
