//! The first page: what runs, what is wrong, how much.

use api::{Holds, Refusals, TargetStatus};
use maud::{Markup, html};
use tables::Cell;

use crate::layout::Page;

/// The first page.
#[must_use]
pub fn overview(page: &Page<'_>, status: &TargetStatus, refusals: &Refusals) -> String {
    let count = |name: &str| status.counters.get(name).copied().flatten().unwrap_or(0);
    let tiles = [
        ("connections", Cell::Count(status.connections)),
        ("I/Os", Cell::Count(count("ios"))),
        ("bytes of I/O", Cell::Bytes(count("io_bytes"))),
        ("refusals", Cell::Count(count("refusals"))),
        ("memory of buffers", Cell::Bytes(status.memory_bytes)),
        ("volumes", Cell::count(status.volumes)),
        ("subsystems", Cell::count(status.subsystems)),
        ("iSCSI targets", Cell::count(status.targets)),
        ("exports", Cell::count(status.exports)),
    ];
    let content = html! {
        (health(status, refusals))
        dl.tiles {
            @for (name, cell) in &tiles {
                div { dt { (name) } dd { (cell.to_string()) } }
            }
        }
        h2 { "Where hosts connect" }
        @if status.listeners.is_empty() {
            p { "Nowhere: " code { "weft add listener 127.0.0.1:4420 protocol=nvme-tcp" } " makes a place." }
        } @else {
            dl.facts {
                @for listener in &status.listeners {
                    dt { (listener.speaks()) }
                    dd { code { (listener.address) } }
                }
            }
        }
        h2 { "This weft" }
        (facts(status))
    };
    page.whole("Overview", true, &content)
}

fn health(status: &TargetStatus, refusals: &Refusals) -> Markup {
    let is_well = status.not_served.is_empty() && status.document.holds != Holds::Nothing;
    html! {
        @if is_well {
            p.good { "All that the configuration names is served." }
        }
        @if let Some(drained) = &status.drained {
            p.bad {
                "Drained " (drained) ": no host is let in. " a href="/connections/drain" { "Drain" } " and "
                code { "weft drain --end" } " end that."
            }
        }
        @for why in &status.not_served {
            p.bad { "Not served: " (why) }
        }
        @for warning in &status.warnings {
            p.bad { (warning) }
        }
        @if status.document.holds == Holds::Nothing {
            p.bad {
                "Changes cannot be kept"
                @if let Some(why) = &status.document.why { ": " (why) }
            }
        }
        @if let Some(last) = refusals.refusals.last() {
            p {
                "Refused last: " (last.kind) " of "
                (last.host.as_deref().unwrap_or("a host without a name"))
                ". " a href="/refusals" { "What lets it in" }
            }
        }
    }
}

fn facts(status: &TargetStatus) -> Markup {
    let document = &status.document;
    html! {
        dl.facts {
            dt { "version" } dd { (status.version) ", process " (status.pid) }
            dt { "runs for" } dd { (Cell::Duration(status.uptime_s * 1000).to_string()) }
            dt { "driver" } dd { (status.driver) }
            dt { "memory at most" } dd { (Cell::Bytes(status.memory_max_bytes).to_string()) }
            dt { "configuration" }
            dd {
                "generation " (document.generation) " of "
                (document.shown())
                ", served since " (status.served_since)
            }
            @if let Some(last) = &status.last_change {
                dt { "last change" } dd { (last.what) ", " (last.time) ": " (last.outcome) }
            }
            @if let Some(socket) = &status.admin.socket {
                dt { "admin socket" } dd { code { (socket) } }
            }
        }
    }
}
