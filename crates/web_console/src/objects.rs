//! Objects of the configuration: each with its fields, inside the one that it is in.

use api::{ConfigObject, ConfigObjects};
use maud::{Markup, html};

use crate::layout::Page;

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
}

impl ObjectsPage {
    /// All there are.
    pub const ALL: [ObjectsPage; 4] = [
        ObjectsPage::Volumes,
        ObjectsPage::Nvme,
        ObjectsPage::Iscsi,
        ObjectsPage::Files,
    ];

    /// Its path.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            ObjectsPage::Volumes => "/volumes",
            ObjectsPage::Nvme => "/nvme",
            ObjectsPage::Iscsi => "/iscsi",
            ObjectsPage::Files => "/files",
        }
    }

    fn title(self) -> &'static str {
        match self {
            ObjectsPage::Volumes => "Volumes",
            ObjectsPage::Nvme => "NVMe",
            ObjectsPage::Iscsi => "iSCSI",
            ObjectsPage::Files => "Files",
        }
    }

    /// Kinds of objects that it shows, without those that are in others.
    fn kinds(self) -> &'static [&'static str] {
        match self {
            ObjectsPage::Volumes => &["volume"],
            ObjectsPage::Nvme => &["subsystem", "referral", "nvme"],
            ObjectsPage::Iscsi => &["target", "portal_group", "iscsi", "iscsi/discovery"],
            ObjectsPage::Files => &["file_system", "export", "nfs"],
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
        }
    }
}

/// Objects of the kinds of a page.
#[must_use]
pub fn objects(page: &Page<'_>, which: ObjectsPage, all: &ConfigObjects) -> String {
    let kinds = which.kinds();
    let own = all.objects.iter();
    let own: Vec<_> = own
        .filter(|object| kinds.contains(&&*object.kind))
        .collect();
    let content = html! {
        @if own.is_empty() {
            p { "There is none. " code { (which.first()) } " makes the first." }
        }
        @for object in &own {
            (shown(object, all))
        }
        @if which == ObjectsPage::Volumes && !own.is_empty() {
            p.soft { code { "weft set volume NAME size=2GiB" } " grows one, " code { "weft rm volume NAME" } " removes it." }
        }
    };
    page.whole(which.title(), false, &content)
}

fn shown(object: &ConfigObject, all: &ConfigObjects) -> Markup {
    let inner = all.objects.iter().filter(|other| is_in(other, object));
    let own = object.names.last();
    html! {
        section.object {
            h2 {
                span.kind { (object.kind.rsplit('/').next().unwrap_or_default()) " " }
                @if let Some(name) = own { (name) }
            }
            dl.facts {
                @for (key, value) in &object.fields {
                    dt { (key) }
                    dd { code { (value.to_string()) } }
                }
                @if object.kind == "volume" {
                    dt { "seen as" }
                    dd { (seen_as(object, all)) }
                }
            }
            @for other in inner { (shown(other, all)) }
        }
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
            (object.object)
        }
    }
}
