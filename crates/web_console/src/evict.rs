//! Ends of connections, asked for before they are made.

use api::Evicted;
use maud::{Markup, html};

use crate::layout::Page;
use crate::table::address;
use tables::plain;

/// Something that can be ended.
#[derive(Clone, Copy, Debug)]
pub struct Evictable<'a> {
    /// `connection`, `host`, `session` or `nfs-client`.
    pub kind: &'a str,
    /// By which it is asked for.
    pub id: &'a str,
}

impl Evictable<'_> {
    /// The link that asks about it.
    pub(crate) fn link(&self, page: &Page<'_>) -> Markup {
        let to = address("/connections/evict", [("kind", self.kind), ("id", self.id)]);
        html! {
            @if page.may_change() { a href=(to) { "Evict…" } }
        }
    }

    fn cost(&self) -> &'static str {
        match self.kind {
            "nfs-client" => {
                "The client loses its opens, locks and delegations. Programs that hold them get \
                 errors; what others locked out waited for goes on."
            }
            "session" | "connection" | "host" => {
                "Commands under way are not answered: the host sends them again on another path, \
                 or fails them. It may connect again at once where it is let in still."
            }
            _ => "",
        }
    }
}

/// Asks before something is ended; `would`: what has ended then.
#[must_use]
pub fn evict(page: &Page<'_>, what: Evictable<'_>, would: &Evicted) -> String {
    let content = html! {
        p { (what.cost()) }
        h2 { "What ends" }
        ul.plan { @for line in &would.done { li { (plain(line)) } } }
        (keeps_out(&would.may_return))
        form.serve method="post" action="/connections/evict" {
            input type="hidden" name="kind" value=(what.kind);
            input type="hidden" name="id" value=(what.id);
            div.buttons {
                button.main { "Evict" }
                a href="/connections" { "Leave it" }
            }
        }
    };
    page.whole(&title("Evict", what), false, &content)
}

/// What was ended.
#[must_use]
pub fn evicted(page: &Page<'_>, what: Evictable<'_>, done: &Evicted) -> String {
    let content = html! {
        ul.plan { @for line in &done.done { li { (plain(line)) } } }
        (keeps_out(&done.may_return))
        p { a href="/connections" { "Connections" } }
    };
    page.whole(&title("Evicted:", what), false, &content)
}

fn title(verb: &str, what: Evictable<'_>) -> String {
    format!("{verb} {} {}", what.kind.replace('-', " "), plain(what.id))
}

fn keeps_out(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h2 { "What keeps it out" }
            ul { @for line in lines { li { (plain(line)) } } }
        }
    }
}
