//! Pages that are a table.

use api::{Audit, Connections, History, Hosts, IscsiSessions, NfsClients, Refusals};
use maud::{Markup, html};
use tables::{AUDIT, CLIENTS, CONNECTIONS, HISTORY, HOSTS, REFUSALS, SESSIONS};

use crate::layout::Page;
use crate::table::{TableQuery, table};

/// Each connection.
#[must_use]
pub fn connections(page: &Page<'_>, all: &Connections, query: &TableQuery) -> String {
    let none = html! { p { "Nothing is connected." } };
    let content = html! {
        (kinds(page))
        (left_out(all.has_more, all.silent_reactors))
        (table(page.path, "Connections of hosts and clients", CONNECTIONS, &all.connections, query, &none))
    };
    page.whole("Connections", true, &content)
}

/// Each host, with all its connections.
#[must_use]
pub fn hosts(page: &Page<'_>, all: &Hosts, query: &TableQuery) -> String {
    let none = html! { p { "No host is connected, and none holds a reservation." } };
    let content = html! {
        (kinds(page))
        (left_out(all.has_more, all.silent_reactors))
        (table(page.path, "Hosts, each with all its connections", HOSTS, &all.hosts, query, &none))
    };
    page.whole("Hosts", true, &content)
}

/// Each iSCSI session, with what was negotiated.
#[must_use]
pub fn sessions(page: &Page<'_>, all: &IscsiSessions, query: &TableQuery) -> String {
    let none = html! { p { "There is no iSCSI session." } };
    let content = html! {
        (kinds(page))
        (table(page.path, "iSCSI sessions, with what was negotiated", SESSIONS, &all.sessions, query, &none))
    };
    page.whole("iSCSI sessions", true, &content)
}

/// Each NFS client that has a lease.
#[must_use]
pub fn nfs_clients(page: &Page<'_>, all: &NfsClients, query: &TableQuery) -> String {
    let none = html! { p { "No NFS client has a lease. Those of NFSv3 have none." } };
    let content = html! {
        (kinds(page))
        (table(page.path, "NFS clients, and what they hold", CLIENTS, &all.clients, query, &none))
    };
    page.whole("NFS clients", true, &content)
}

/// What was refused, and what lets it in.
#[must_use]
pub fn refusals(page: &Page<'_>, all: &Refusals, query: &TableQuery) -> String {
    let none = html! { p { "Nothing was refused since weft was started." } };
    let allowed: Vec<_> = all
        .refusals
        .iter()
        .rev()
        .filter(|one| one.allow.is_some())
        .collect();
    let content = html! {
        (table(page.path, "What was refused last", REFUSALS, &all.refusals, query, &none))
        @if !allowed.is_empty() {
            h2 { "What lets them in" }
            @for refused in allowed {
                @if let Some(allow) = &refused.allow {
                    details {
                        summary {
                            (refused.kind) ": "
                            (refused.host.as_deref().unwrap_or("a host without a name"))
                            @if let Some(address) = refused.address { ", from " (address) }
                        }
                        pre tabindex="0" { (allow) }
                    }
                }
            }
        }
    };
    page.whole("Refusals", true, &content)
}

/// The generations of the configuration.
#[must_use]
pub fn history(page: &Page<'_>, all: &History, query: &TableQuery) -> String {
    let none = html! { p { "There is no generation." } };
    let content = html! {
        (table(page.path, "What made each generation of the configuration", HISTORY, &all.generations, query, &none))
        p { code { "weft history N" } " prints a generation, " code { "weft rollback N" } " serves it again." }
    };
    page.whole("History", true, &content)
}

/// Changes and refusals of changes.
#[must_use]
pub fn audit(page: &Page<'_>, all: &Audit, query: &TableQuery) -> String {
    let none = html! { p { "Nothing was changed or refused: " code { "weft apply" } " makes the first record." } };
    let content = html! {
        @if let Some(file) = &all.file { p.soft { "Kept in " code { (file) } } }
        (table(page.path, "Changes that were made or refused", AUDIT, &all.records, query, &none))
    };
    page.whole("Audit", true, &content)
}

/// The kinds of what is connected.
fn kinds(page: &Page<'_>) -> Markup {
    let all = [
        ("/connections", "Connections"),
        ("/connections/hosts", "Hosts"),
        ("/connections/sessions", "iSCSI sessions"),
        ("/connections/nfs-clients", "NFS clients"),
    ];
    html! {
        nav.kinds aria-label="Kinds of connections" {
            ul {
                @for (path, name) in all {
                    li { a href=(path) aria-current=[(page.path == path).then_some("page")] { (name) } }
                }
            }
        }
    }
}

fn left_out(has_more: bool, silent_reactors: usize) -> Markup {
    html! {
        @if has_more {
            p.bad { "There are more connections than one answer has." }
        }
        @if silent_reactors > 0 {
            p.bad { "Reactors that did not answer: " (silent_reactors) ". Their connections are not in the list." }
        }
    }
}
