//! Pages that are a table.

use std::collections::BTreeSet;

use api::{
    Audit, ConnectionStatus, Connections, EventLine, Host, Hosts, IscsiSession, IscsiSessions,
    NfsClient, NfsClients, ObjectChange, RefusalSummary, Refusals,
};
use maud::{Markup, html};
use serde_json::Value;
use tables::{AUDIT, CLIENTS, CONNECTIONS, EVENTS, HOSTS, REFUSALS, SESSIONS};

use crate::change::change_address;
use crate::evict::Evictable;
use crate::layout::{HAPPENED, Page};
use crate::table::{Table, TableQuery, address};
use tables::plain;

/// Each connection.
#[must_use]
pub fn connections(page: &Page<'_>, all: &Connections, query: &TableQuery) -> String {
    let table = Table {
        path: page.path,
        caption: "Connections of hosts and clients",
        columns: CONNECTIONS,
        action: Some(&|of: &ConnectionStatus| {
            Evictable {
                kind: "connection",
                id: &of.id,
            }
            .link(page)
        }),
        none: html! { p { "Nothing is connected. " a href="/connect" { "Connect a client" } " shows the commands." } },
    };
    let content = html! {
        (kinds(page))
        (incompleteness(all.has_more, all.silent_reactors))
        (table.of(&all.connections, query))
    };
    page.whole("Connections", true, &content)
}

/// Each host, with all its connections.
#[must_use]
pub fn hosts(page: &Page<'_>, all: &Hosts, query: &TableQuery) -> String {
    let table = Table {
        path: page.path,
        caption: "Hosts, each with all its connections",
        columns: HOSTS,
        action: Some(&|of: &Host| {
            Evictable {
                kind: "host",
                id: &of.name,
            }
            .link(page)
        }),
        none: html! { p { "No host is connected, and none holds a reservation." } },
    };
    let content = html! {
        (kinds(page))
        (incompleteness(all.has_more, all.silent_reactors))
        (table.of(&all.hosts, query))
    };
    page.whole("Hosts", true, &content)
}

/// Each iSCSI session, with what was negotiated.
#[must_use]
pub fn sessions(page: &Page<'_>, all: &IscsiSessions, query: &TableQuery) -> String {
    let table = Table {
        path: page.path,
        caption: "iSCSI sessions, with what was negotiated",
        columns: SESSIONS,
        action: Some(&|of: &IscsiSession| {
            Evictable {
                kind: "session",
                id: &of.id,
            }
            .link(page)
        }),
        none: html! { p { "There is no iSCSI session." } },
    };
    let content = html! {
        (kinds(page))
        (table.of(&all.sessions, query))
    };
    page.whole("iSCSI sessions", true, &content)
}

/// Each NFS client that has a lease, or locks of NFSv3.
#[must_use]
pub fn nfs_clients(page: &Page<'_>, all: &NfsClients, query: &TableQuery) -> String {
    let table = Table {
        path: page.path,
        caption: "NFS clients, and what they hold",
        columns: CLIENTS,
        action: Some(&|of: &NfsClient| {
            Evictable {
                kind: "nfs-client",
                id: &of.id,
            }
            .link(page)
        }),
        none: html! { p { "No NFS client has a lease, or locks of NFSv3." } },
    };
    let content = html! {
        (kinds(page))
        (table.of(&all.clients, query))
    };
    page.whole("NFS clients", true, &content)
}

/// What was refused, and what lets it in.
#[must_use]
pub fn refusals(page: &Page<'_>, all: &Refusals, query: &TableQuery) -> String {
    let table = Table {
        path: page.path,
        caption: "What was refused last",
        columns: REFUSALS,
        action: Some(&|of: &RefusalSummary| let_in(page, of)),
        none: html! { p { "Nothing was refused since weft was started." } },
    };
    let allowed = all.refusals.iter().rev();
    let allowed = allowed.filter_map(|one| Some((one, one.allow.as_ref()?)));
    let allowed: Vec<_> = allowed.take(ALLOWED_MAX).collect();
    let content = html! {
        (table.of(&all.refusals, query))
        @if !allowed.is_empty() {
            h2 { "What lets them in" }
            @for (refused, allow) in allowed {
                details {
                    summary {
                        (refused.kind) ": "
                        (plain(refused.host.as_deref().unwrap_or("a host without a name")))
                        @if let Some(address) = refused.address { ", from " (address) }
                    }
                    pre tabindex="0" { (plain(allow)) }
                    p { (let_in(page, refused)) }
                }
            }
        }
    };
    page.whole("Refusals", true, &content)
}

/// What has happened last.
#[must_use]
pub fn events(
    page: &Page<'_>,
    all: &[EventLine],
    kind: Option<&str>,
    query: &TableQuery,
) -> String {
    let kinds: BTreeSet<_> = all.iter().map(|event| &*event.event).collect();
    let of_kind = all.iter().rev();
    let of_kind = of_kind.filter(|event| kind.is_none_or(|kind| event.event == kind));
    let shown: Vec<_> = of_kind.cloned().collect();
    let path = match kind {
        Some(kind) => address(page.path, [("kind", kind)]),
        None => page.path.to_owned(),
    };
    let table = Table {
        path: &path,
        caption: "What has happened, the latest first",
        columns: EVENTS,
        action: None,
        none: html! { p { "Nothing has happened yet: " code { "weft events" } " waits for what comes." } },
    };
    let is_on = |one: Option<&str>| (kind == one).then_some("page");
    let content = html! {
        (page.beside("What has happened", &HAPPENED))
        @if kinds.len() > 1 {
            nav.kinds aria-label="Kinds of events" {
                ul {
                    li { a href=(page.path) aria-current=[is_on(None)] { "All" } }
                    @for one in kinds {
                        li {
                            a href=(address(page.path, [("kind", one)])) aria-current=[is_on(Some(one))] {
                                (plain(one))
                            }
                        }
                    }
                }
            }
        }
        (table.of(&shown, query))
    };
    let last = all.last().map_or(0, |event| event.id);
    page.live("Events", &format!("/v1/events?since={last}"), &content)
}

/// Changes and refusals of changes.
#[must_use]
pub fn audit(page: &Page<'_>, all: &Audit, query: &TableQuery) -> String {
    let table = Table {
        path: page.path,
        caption: "Changes that were made or refused",
        columns: AUDIT,
        action: None,
        none: html! { p { "Nothing was changed or refused: " code { "weft apply" } " makes the first record." } },
    };
    let content = html! {
        (page.beside("What has happened", &HAPPENED))
        @if let Some(file) = &all.file { p.soft { "Kept in " code { (file) } } }
        (table.of(&all.records, query))
    };
    page.whole("Audit", true, &content)
}

/// Refusals whose lines of configuration a page shows; the others are found by the filter.
const ALLOWED_MAX: usize = 100;

/// The link that shows what letting a peer in changes.
fn let_in(page: &Page<'_>, refused: &RefusalSummary) -> Markup {
    let change = refused.change.as_ref().filter(|_| page.may_change());
    html! {
        @if let Some(change) = change {
            a href=(change_of(change)) {
                "Let it in…"
                span.unseen { " " (plain(refused.host.as_deref().unwrap_or_default())) }
            }
        }
    }
}

fn change_of(change: &ObjectChange) -> String {
    let fields = change.fields.iter().map(|(key, value)| {
        let value = match value {
            Value::Array(list) => {
                let texts = list.iter().map(|one| one.as_str().unwrap_or_default());
                texts.collect::<Vec<_>>().join("\n")
            }
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        (format!("field.{key}"), value)
    });
    let fields: Vec<_> = fields.collect();
    let pairs = [
        ("change", change.verb.name()),
        ("step", "plan"),
        ("kind", &change.kind),
    ];
    let names = change.names.iter().map(|name| ("name", &**name));
    let fields = fields.iter().map(|(name, value)| (&**name, &**value));
    change_address(pairs.into_iter().chain(names).chain(fields))
}

/// The kinds of what is connected.
pub(crate) fn kinds(page: &Page<'_>) -> Markup {
    let all = [
        ("/connections", "Connections"),
        ("/connections/hosts", "Hosts"),
        ("/connections/sessions", "iSCSI sessions"),
        ("/connections/nfs-clients", "NFS clients"),
        ("/connections/drain", "Drain"),
    ];
    page.beside("Kinds of connections", &all)
}

fn incompleteness(has_more: bool, silent_reactors: usize) -> Markup {
    html! {
        @if has_more {
            p.bad { "There are more connections than one answer has." }
        }
        @if silent_reactors > 0 {
            p.bad { "Reactors that did not answer: " (silent_reactors) ". Their connections are not in the list." }
        }
    }
}
