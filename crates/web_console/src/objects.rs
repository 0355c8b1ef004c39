//! Objects of the configuration: each with its fields, inside the one that it is in.

use api::{ConfigObject, ConfigObjects};
use maud::{Markup, html};
use serde_json::Value;
use tables::OBJECTS;

use crate::change::change_address;
use crate::connect::connect_address;
use crate::layout::Page;
use crate::table::{Part, Table, TableQuery, address, search};
use tables::plain;

/// A page of objects of some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectsPage {
    /// Volumes.
    Volumes,
    /// NVMe subsystems, their listeners and settings.
    Nvme,
    /// iSCSI targets, portal groups and settings.
    Iscsi,
    /// File systems and exports.
    Files,
    /// Where hosts connect.
    Listeners,
}

impl ObjectsPage {
    /// All there are.
    pub const ALL: [ObjectsPage; 5] = [
        ObjectsPage::Volumes,
        ObjectsPage::Nvme,
        ObjectsPage::Iscsi,
        ObjectsPage::Files,
        ObjectsPage::Listeners,
    ];

    /// Its path.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            ObjectsPage::Volumes => "/volumes",
            ObjectsPage::Nvme => "/nvme",
            ObjectsPage::Iscsi => "/iscsi",
            ObjectsPage::Files => "/files",
            ObjectsPage::Listeners => "/listeners",
        }
    }

    fn title(self) -> &'static str {
        match self {
            ObjectsPage::Volumes => "Volumes",
            ObjectsPage::Nvme => "NVMe",
            ObjectsPage::Iscsi => "iSCSI",
            ObjectsPage::Files => "Files",
            ObjectsPage::Listeners => "Listeners",
        }
    }

    /// Kinds of objects that it shows, without those that are in others.
    fn kinds(self) -> &'static [&'static str] {
        match self {
            ObjectsPage::Volumes => &["volume", "limit"],
            ObjectsPage::Nvme => &["subsystem", "referral", "nvme"],
            ObjectsPage::Iscsi => &["target", "portal_group", "iscsi", "iscsi/discovery"],
            ObjectsPage::Files => &["file_system", "quota", "export", "nfs", "nfs/kerberos"],
            ObjectsPage::Listeners => &["listener"],
        }
    }

    /// What makes the first object.
    fn first(self) -> &'static str {
        match self {
            ObjectsPage::Volumes => "weft add volume disk kind=ram size=1GiB",
            ObjectsPage::Nvme => {
                "weft add subsystem nqn.2026-01.org.example:disks volumes='[\"disk\"]' \
                 allow_any_host=true"
            }
            ObjectsPage::Iscsi => {
                "weft add target iqn.2026-01.org.example:disks volumes='[\"disk\"]' \
                 allow_any_initiator=true"
            }
            ObjectsPage::Files => "weft add file_system files kind=mem size=1GiB",
            ObjectsPage::Listeners => "weft add listener 127.0.0.1:4420 protocol=nvme-tcp",
        }
    }
}

/// Objects that a page shows with all their fields.
const SHOWN: usize = 50;

/// Objects in another that are shown there; more are a list of their own.
const INNER: usize = 10;

/// Objects of the kinds of a page.
#[must_use]
pub fn objects(
    page: &Page<'_>,
    which: ObjectsPage,
    all: &ConfigObjects,
    query: &TableQuery,
) -> String {
    let kinds = which.kinds();
    let own = all.objects.iter();
    let own: Vec<_> = own
        .filter(|object| kinds.contains(&&*object.kind))
        .collect();
    let found = own.iter().filter(|object| {
        let fields = object.fields.values().map(Value::to_string);
        let texts: Vec<_> = object.names.iter().cloned().chain(fields).collect();
        query.has(texts.iter().map(String::as_str))
    });
    let found: Vec<_> = found.collect();
    let part = Part::of(query, found.len(), SHOWN);
    let content = html! {
        (additions(page, which))
        @if own.is_empty() {
            p {
                "There is none. " code { (which.first()) }
                @if page.may_change() { ", or the link above, makes the first." }
                @else { " makes the first." }
            }
        }
        @if own.len() > INNER { (search(page.path, query, found.len(), own.len())) }
        @for object in &found[part.lines.clone()] {
            (shown(page, object, all))
        }
        (part.turn(page.path, query))
    };
    page.whole(which.title(), false, &content)
}

/// Links to the forms of new objects.
fn additions(page: &Page<'_>, which: ObjectsPage) -> Markup {
    let kinds = which.kinds().iter();
    // What has a command that makes it is added; of settings there is one.
    let settings = ["nvme", "iscsi", "iscsi/discovery", "nfs", "policy"];
    html! {
        @if page.may_change() {
            ul.actions {
                @for kind in kinds {
                    li {
                        @if settings.contains(kind) {
                            a href=(change_link("set", kind, &[])) { (kind_title(kind)) " settings…" }
                        } @else {
                            a href=(change_link("add", kind, &[])) { "Add " (kind_title(kind)) "…" }
                        }
                    }
                }
            }
        }
    }
}

/// Kinds that people call by another word than the configuration.
const TITLES: &[(&str, &str)] = &[
    ("ana", "ANA state"),
    ("iscsi", "iSCSI"),
    ("lun", "LUN"),
    ("nfs", "NFS"),
    ("nvme", "NVMe"),
];

/// A kind as people call it.
#[must_use]
pub fn kind_title(kind: &str) -> String {
    let word = kind.rsplit('/').next().unwrap_or_default();
    let known = TITLES.iter().find(|(known, _)| *known == word);
    known.map_or_else(|| word.replace('_', " "), |(_, title)| (*title).to_owned())
}

fn change_link(change: &str, kind: &str, names: &[String]) -> String {
    // What goes is shown at once; what comes has a form first.
    let step = if change == "rm" { "plan" } else { "form" };
    let pairs = [("change", change), ("step", step), ("kind", kind)];
    let names = names.iter().map(|name| ("name", &**name));
    change_address(pairs.into_iter().chain(names))
}

/// Kinds of what may be in an object.
fn inner_kinds(kind: &str) -> &'static [&'static str] {
    match kind {
        "subsystem" => &["subsystem/namespace", "subsystem/host", "subsystem/ana"],
        "target" => &["target/lun", "target/initiator", "target/ana"],
        "export" => &["export/client"],
        _ => &[],
    }
}

fn shown(page: &Page<'_>, object: &ConfigObject, all: &ConfigObjects) -> Markup {
    let own = object.names.last();
    html! {
        section.object {
            h2 {
                span.kind { (kind_title(&object.kind)) " " }
                @if let Some(name) = own { (plain(name)) }
            }
            dl.facts {
                @for (key, value) in &object.fields {
                    @if Some(&written(value)) != own {
                        dt { (plain(key)) }
                        dd { code { (plain(&written(value))) } }
                    }
                }
                @if object.kind == "volume" {
                    dt { "seen as" }
                    dd { (seen_as(object, all)) }
                }
            }
            (actions(page, object))
            @for kind in inner_kinds(&object.kind) {
                (inner(page, kind, object, all))
            }
        }
    }
}

/// The first objects of a kind that are in another, and where the others are.
fn inner(page: &Page<'_>, kind: &str, object: &ConfigObject, all: &ConfigObjects) -> Markup {
    let inner = all.objects.iter();
    let inner = inner.filter(|other| other.kind == kind && is_in(other, object));
    let inner: Vec<_> = inner.collect();
    let list = address(
        &format!("{}/objects", page.path),
        list_of(kind, &object.names),
    );
    html! {
        @if !inner.is_empty() {
            h3 { (kind_title(kind)) "s" }
            ul.inner {
                @for other in inner.iter().take(INNER) {
                    li {
                        strong { (plain(other.names.last().map_or("", String::as_str))) }
                        @for (key, value) in &other.fields {
                            @if Some(&written(value)) != other.names.last() {
                                " " span.soft { (plain(key)) " " code { (plain(&written(value))) } }
                            }
                        }
                        (actions(page, other))
                    }
                }
            }
            @if inner.len() > INNER {
                p { a href=(list) { "All " (inner.len()) } }
            }
        }
    }
}

fn list_of<'a>(kind: &'a str, names: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let names = names.iter().map(|name| ("name", &**name));
    [("kind", kind)].into_iter().chain(names)
}

/// What can be done with an object.
fn actions(page: &Page<'_>, object: &ConfigObject) -> Markup {
    let (kind, names) = (&object.kind, &object.names);
    let subject = names.last().map_or("", String::as_str);
    let way = match &**kind {
        "subsystem" => Some("NVMe"),
        "export" => Some("NFS"),
        _ => None,
    };
    html! {
        ul.actions {
            @if let Some(way) = way {
                li {
                    a href=(connect_address(&format!("{way} {subject}"))) {
                        "Connect a client…" span.unseen { " to " (plain(subject)) }
                    }
                }
            }
            @if page.may_change() {
                li {
                    a href=(change_link("set", kind, names)) {
                        "Change…" span.unseen { " " (plain(subject)) }
                    }
                }
                @for inner in inner_kinds(kind) {
                    li {
                        a href=(change_link("add", inner, names)) {
                            "Add " (kind_title(inner)) "…" span.unseen { " to " (plain(subject)) }
                        }
                    }
                }
                @if !names.is_empty() {
                    li {
                        a href=(change_link("rm", kind, names)) {
                            "Remove…" span.unseen { " " (plain(subject)) }
                        }
                    }
                }
            }
        }
    }
}

/// All objects of a kind that are in one, as a table.
#[must_use]
pub fn inner_objects(
    page: &Page<'_>,
    kind: &str,
    names: &[String],
    all: &ConfigObjects,
    query: &TableQuery,
) -> String {
    let own = all.objects.iter();
    let own = own.filter(|object| object.kind == kind && object.names.starts_with(names));
    let own: Vec<_> = own.cloned().collect();
    let path = address(page.path, list_of(kind, names));
    let within = names.last().map_or("", String::as_str);
    let title = format!("{}s of {}", kind_title(kind), plain(within));
    let action = |object: &ConfigObject| actions(page, object);
    let table = Table {
        path: &path,
        caption: &title,
        columns: OBJECTS,
        action: page.may_change().then_some(&action),
        none: html! { p { "There is none." } },
    };
    let content = html! {
        @if page.may_change() {
            ul.actions { li { a href=(change_link("add", kind, names)) { "Add " (kind_title(kind)) "…" } } }
        }
        (table.of(&own, query))
    };
    page.whole(&title, false, &content)
}

/// A value as a form has it.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(written).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

/// Whether an object is directly in another.
fn is_in(inner: &ConfigObject, outer: &ConfigObject) -> bool {
    let kind = inner.kind.rsplit_once('/').map(|(outer, _)| outer);
    kind == Some(&*outer.kind)
        && inner.names.len() == outer.names.len() + 1
        && inner.names.starts_with(&outer.names)
}

/// Namespaces and LUNs that a volume is.
fn seen_as(volume: &ConfigObject, all: &ConfigObjects) -> Markup {
    let name = volume.names.last();
    let is_of = |object: &&ConfigObject| {
        let named = object.fields.get("volume").and_then(|value| value.as_str());
        named.is_some() && named == name.map(String::as_str)
    };
    let seen: Vec<_> = all.objects.iter().filter(is_of).collect();
    html! {
        @if seen.is_empty() { "nothing: no namespace and no LUN is of it" }
        @for (n, object) in seen.iter().enumerate() {
            @if n > 0 { ", " }
            (plain(&object.object))
        }
    }
}
