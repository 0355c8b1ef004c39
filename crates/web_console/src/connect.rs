//! How a client connects.

use api::{SelfTest, SelfTestOutcome};
use maud::{Markup, html};

use crate::layout::Page;
use crate::table::address;
use tables::plain;

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
    /// Where it can be tried from here.
    pub listeners: Vec<String>,
    /// What clients of it are called by: nothing where they have no names.
    pub host_is: Option<&'static str>,
    /// The name that a test was made by.
    pub host: String,
    /// What a test has come to.
    pub tested: Option<SelfTest>,
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
            @if let Some(tested) = &shown.tested { (outcome(tested)) }
            @if page.may_change() { (test(shown)) }
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

/// Asks for a test of what was chosen.
fn test(shown: &ConnectPage) -> Markup {
    html! {
        form.filter method="post" action="/connect" {
            input type="hidden" name="to" value=(shown.chosen);
            input type="hidden" name="system" value=(shown.system);
            label {
                "At"
                select name="listener" {
                    @for address in &shown.listeners { option value=(address) { (address) } }
                }
            }
            @if let Some(host_is) = shown.host_is {
                label {
                    (host_is)
                    input type="text" name="host" value=(shown.host) autocomplete="off"
                        spellcheck="false" placeholder="one that nothing names";
                }
            }
            button { "Test from here" }
        }
    }
}

fn outcome(tested: &SelfTest) -> Markup {
    let is_good = tested.outcome == SelfTestOutcome::Passed;
    html! {
        section.step aria-labelledby="tested" {
            h3 #tested { "Tested from here" }
            p class=(if is_good { "good" } else { "bad" }) { (tested.outcome.told()) }
            ul.plan {
                li {
                    "to " code { (tested.address) }
                    @if let Some(host) = &tested.host { " as " code { (plain(host)) } }
                }
                @for step in &tested.steps { li { (plain(step)) } }
                @if let Some(why) = &tested.why { li.disturbs { (plain(why)) } }
            }
            @if let Some(allow) = &tested.allow {
                p { "This lets it in; " a href="/refusals" { "Refusals" } " shows what it changes first:" }
                pre tabindex="0" { (plain(allow)) }
            }
            p.soft { "Not shown by this: " (plain(&tested.unproven.join("; "))) "." }
        }
    }
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
