//! How a client connects.

use maud::{Markup, html};

use crate::layout::Page;
use crate::plain::plain;
use crate::table::address;

/// What a client may connect to, and what it does for that.
#[derive(Clone, Debug, Default)]
pub struct ConnectPage {
    /// All that is served at some address, as people call it.
    pub served: Vec<String>,
    /// The one that was chosen, or the first.
    pub chosen: String,
    /// The systems of clients.
    pub systems: Vec<&'static str>,
    /// The one that was chosen, or the first.
    pub system: String,
    /// What is done there: what for, and its lines.
    pub steps: Vec<(String, Vec<String>)>,
    /// The address is this machine's own: others need another.
    pub is_own_address: bool,
}

/// Links to what is served that a page has.
const CHOICES_MAX: usize = 500;

/// The commands of a client.
#[must_use]
pub fn connect(page: &Page<'_>, shown: &ConnectPage) -> String {
    let content = html! {
        @if shown.served.is_empty() {
            p {
                "Nothing is served at an address yet. "
                a href="/volumes" { "Volumes" } ", " a href="/nvme" { "NVMe" } ", "
                a href="/iscsi" { "iSCSI" } ", " a href="/files" { "Files" } " and "
                a href="/listeners" { "Listeners" } " have the forms that make it."
            }
        } @else {
            (choice(shown))
            h2 { (plain(&shown.chosen)) }
            @for (title, lines) in &shown.steps {
                section.step {
                    h3 { (plain(title)) }
                    @if !lines.is_empty() {
                        pre tabindex="0" { (plain(&lines.join("\n"))) }
                    }
                }
            }
            @if shown.is_own_address {
                p.soft { "weft listens at every address of its machine: a client of another machine "
                    "writes one of them in the place of this one." }
            }
        }
    };
    page.whole("Connect a client", false, &content)
}

fn choice(shown: &ConnectPage) -> Markup {
    let is_chosen = |one: &String| *one == shown.chosen;
    let offered = shown.served.iter().take(CHOICES_MAX);
    let is_left_out = !shown
        .served
        .iter()
        .take(CHOICES_MAX)
        .any(|one| *one == shown.chosen);
    html! {
        form.filter method="get" action="/connect" {
            label {
                "To"
                select name="to" {
                    @if is_left_out {
                        option value=(shown.chosen) selected { (plain(&shown.chosen)) }
                    }
                    @for one in offered {
                        option value=(one) selected[is_chosen(one)] { (plain(one)) }
                    }
                }
            }
            label {
                "From"
                select name="system" {
                    @for system in &shown.systems {
                        option value=(system) selected[*system == shown.system] { (system) }
                    }
                }
            }
            button { "Show" }
            @if shown.served.len() > CHOICES_MAX {
                span.soft { "More is served than is listed: the pages of the objects lead here, too." }
            }
        }
    }
}

/// The address of the commands for something that is served.
pub(crate) fn connect_address(to: &str) -> String {
    address("/connect", [("to", to)])
}
