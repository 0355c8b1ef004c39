//! The kinds of objects that a configuration holds: one line each.

use std::fmt;
use tls::SECRET_PLACE;

use serde_json::{Map, Value};

use super::EditProblem;
use crate::schema::{
    ADMIN, ADMIN_CLIENT, ADMIN_TLS, ANA, CLIENT, CONNECTION_POLICY, DISCOVERY, EXPORT, FILE_SYSTEM,
    GROUP, HOST, INITIATOR, ISCSI, KERBEROS, LIMIT, LISTENER, LUN, NAMESPACE, NBD_EXPORT, NFS,
    NVME, POLICY, PORTAL_GROUP, QUOTA, REFERRAL, SNAPSHOT_SCHEDULE, SUBSYSTEM, TARGET, TARGET_ANA,
    TOKEN, Takes, VOLUME, is_secret, keys_of,
};
use crate::source::nearest;

/// One object of a configuration: its kind, and the names of what it is in and of itself.
///
/// Shown as kinds and names in turn: `subsystem/nqn.2026-01.io.weft:a/namespace/1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectPath {
    /// `volume`, `subsystem/namespace`, `nvme`, ...
    pub kind: String,
    /// One for each word of a kind that has names; settings have none.
    pub names: Vec<String>,
}

impl ObjectPath {
    /// The object of this kind and these names.
    pub fn new(kind: &str, names: &[&str]) -> Self {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let kind = kind.to_owned();
        Self { kind, names }
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            return write!(f, "{}", self.kind);
        }
        for (at, (word, name)) in self.kind.split('/').zip(&self.names).enumerate() {
            let slash = if at > 0 { "/" } else { "" };
            write!(f, "{slash}{word}/{name}")?;
        }
        Ok(())
    }
}

/// A kind of objects.
pub(crate) struct Kind {
    /// As in [`ObjectPath`].
    pub word: &'static str,
    /// The kind of what it is in.
    pub parent: Option<&'static str>,
    /// Its section in the schema; empty where it is an item of a list alone.
    pub section: &'static str,
    /// The keys that lead to it from its parent, or from the file.
    pub keys: &'static [&'static str],
    pub naming: Naming,
    /// How its parent has it in short.
    pub short: Option<Short>,
}

/// What an object is called by.
#[derive(Clone, Copy)]
pub(crate) enum Naming {
    /// There is one.
    Settings,
    /// The first of these keys that is there.
    First(&'static [&'static str]),
    /// The first key, and behind `@` the second if that is there.
    Both(&'static str, &'static str),
}

impl Naming {
    pub fn keys(self) -> Vec<&'static str> {
        match self {
            Naming::Settings => Vec::new(),
            Naming::First(keys) => keys.to_vec(),
            Naming::Both(first, second) => vec![first, second],
        }
    }

    /// The name of an object whose keys say what `text` finds.
    pub fn name(self, text: impl Fn(&str) -> Option<String>) -> Option<String> {
        match self {
            Naming::Settings => None,
            Naming::First(keys) => keys.iter().find_map(|key| text(key)),
            Naming::Both(first, second) => {
                let tail = text(second).map_or_else(String::new, |text| format!("@{text}"));
                Some(text(first)? + &tail)
            }
        }
    }
}

/// A list of texts in the parent that has objects in short.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    /// The key of the list.
    pub list: &'static str,
    /// The key of the object's section that an item says.
    pub key: &'static str,
    /// The number of the first, where objects are numbered in the list's order; else an item is
    /// the name.
    pub first: Option<u64>,
}

const fn named(list: &'static str, key: &'static str) -> Option<Short> {
    let first = None;
    Some(Short { list, key, first })
}

const fn numbered(list: &'static str, key: &'static str, first: u64) -> Option<Short> {
    let first = Some(first);
    Some(Short { list, key, first })
}

const fn kind(
    word: &'static str,
    (parent, keys): (Option<&'static str>, &'static [&'static str]),
    section: &'static str,
    naming: Naming,
    short: Option<Short>,
) -> Kind {
    Kind {
        word,
        parent,
        section,
        keys,
        naming,
        short,
    }
}

/// Where a kind's tables are: in the file, in every subsystem, ...
type Place = (Option<&'static str>, &'static [&'static str]);

const fn file(keys: &'static [&'static str]) -> Place {
    (None, keys)
}

const fn subsystem(keys: &'static [&'static str]) -> Place {
    (Some("subsystem"), keys)
}

const fn target(keys: &'static [&'static str]) -> Place {
    (Some("target"), keys)
}

const fn export(keys: &'static [&'static str]) -> Place {
    (Some("export"), keys)
}

const NAME: Naming = Naming::First(&["name"]);
const ADDRESS: Naming = Naming::First(&["address"]);
const INITIATORS: Naming = Naming::First(&["name", "networks", "portal_groups"]);
const SET: Naming = Naming::Settings;

/// A parent stands before what is in it.
#[rustfmt::skip]
pub(crate) const KINDS: &[Kind] = &[
    kind("volume", file(&["volume"]), VOLUME, NAME, None),
    kind("file_system", file(&["file_system"]), FILE_SYSTEM, NAME, None),
    kind("nvme", file(&["nvme"]), NVME, SET, None),
    kind("subsystem", file(&["nvme", "subsystem"]), SUBSYSTEM, Naming::First(&["nqn"]), None),
    kind("subsystem/namespace", subsystem(&["namespace"]), NAMESPACE,
        Naming::First(&["nsid"]), numbered("volumes", "volume", 1)),
    kind("subsystem/host", subsystem(&["host"]), HOST, Naming::First(&["nqn"]),
        named("hosts", "nqn")),
    kind("subsystem/ana", subsystem(&["ana"]), ANA, Naming::Both("group", "listener"), None),
    kind("referral", file(&["nvme", "referral"]), REFERRAL, ADDRESS, None),
    kind("iscsi", file(&["iscsi"]), ISCSI, SET, None),
    kind("iscsi/discovery", file(&["iscsi", "discovery"]), DISCOVERY, SET, None),
    kind("portal_group", file(&["iscsi", "portal_group"]), PORTAL_GROUP,
        Naming::First(&["tag"]), None),
    kind("target", file(&["iscsi", "target"]), TARGET, NAME, None),
    kind("target/lun", target(&["lun"]), LUN, Naming::First(&["lun"]),
        numbered("volumes", "volume", 0)),
    kind("target/initiator", target(&["initiator"]), INITIATOR, INITIATORS,
        named("initiators", "name")),
    kind("target/ana", target(&["ana"]), TARGET_ANA, Naming::Both("group", "portal_group"), None),
    kind("nfs", file(&["nfs"]), NFS, SET, None),
    kind("nfs/kerberos", file(&["nfs", "kerberos"]), KERBEROS, SET, None),
    kind("quota", file(&["quota"]), QUOTA, NAME, None),
    kind("export", file(&["export"]), EXPORT, Naming::First(&["path"]), None),
    kind("export/client", export(&["client"]), CLIENT, Naming::First(&["clients"]),
        named("clients", "clients")),
    kind("nbd_export", file(&["nbd_export"]), NBD_EXPORT, Naming::First(&["name", "volume"]), None),
    kind("listener", file(&["listener"]), LISTENER, ADDRESS, None),
    kind("limit", file(&["limit"]), LIMIT, NAME, None),
    kind("connection_policy", file(&["connection_policy"]), CONNECTION_POLICY, NAME, None),
    kind("snapshot_schedule", file(&["snapshot_schedule"]), SNAPSHOT_SCHEDULE, NAME, None),
    kind("policy", file(&["policy"]), POLICY, SET, None),
    kind("admin", file(&["admin"]), ADMIN, SET, None),
    kind("token", file(&["admin", "token"]), TOKEN, NAME, None),
    kind("group", file(&["admin", "group"]), GROUP, NAME, None),
    kind("admin/tls", file(&["admin", "tls"]), ADMIN_TLS, SET, None),
    kind("admin_client", file(&["admin", "client"]), ADMIN_CLIENT, NAME, None),
];

/// What names an object in a key of another: the kind that is named, the section and the key.
pub(super) const REFERENCES: &[(&str, &str, &str)] = &[
    ("volume", "subsystem/namespace", "volume"),
    ("volume", "target/lun", "volume"),
    ("volume", "volume", "of"),
    ("file_system", "export", "file_system"),
    ("file_system", "quota", "file_system"),
    ("subsystem", "target", "subsystem"),
    ("listener", "subsystem", "listeners"),
    ("listener", "subsystem/ana", "listener"),
    ("listener", "portal_group", "listeners"),
    ("volume", "nbd_export", "volume"),
    ("volume", "limit", "volumes"),
    ("export", "limit", "exports"),
    ("volume", "snapshot_schedule", "volumes"),
    ("listener", "limit", "listeners"),
    ("listener", "connection_policy", "listeners"),
    ("portal_group", "target", "portal_groups"),
    ("portal_group", "target/initiator", "portal_groups"),
    ("portal_group", "target/ana", "portal_group"),
];

impl Kind {
    /// The kind of an object; its path has as many names as that needs.
    pub fn of(path: &ObjectPath) -> Result<&'static Kind, EditProblem> {
        let Some(kind) = KINDS.iter().find(|kind| kind.word == path.kind) else {
            let words = || KINDS.iter().map(|kind| kind.word);
            let hint = match nearest(&path.kind, words()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", words().collect::<Vec<_>>().join(", ")),
            };
            let reason = format!("there is no kind of object `{}`", path.kind);
            return Err(EditProblem::new(path, None, reason, hint));
        };
        let needs = kind.names();
        if path.names.len() == needs {
            return Ok(kind);
        }
        let mut like = ObjectPath::new(kind.word, &[]);
        like.names = vec!["NAME".to_owned(); needs];
        let has = path.names.len();
        let reason = format!("`{}` takes {needs} names, not {has}", kind.word);
        Err(EditProblem::new(
            path,
            None,
            reason,
            format!("write {like}"),
        ))
    }

    /// How many names an object of the kind has.
    pub fn names(&self) -> usize {
        match self.naming {
            Naming::Settings => 0,
            _ => self.word.split('/').count(),
        }
    }

    /// As people call it.
    pub fn title(&self) -> String {
        let last = self.word.rsplit('/').next().unwrap_or_default();
        last.replace('_', " ")
    }

    /// The kinds of what is in it.
    pub fn children(&self) -> impl Iterator<Item = &'static Kind> {
        KINDS.iter().filter(|kind| kind.parent == Some(self.word))
    }

    /// Whether a key of its section is no field of its own: other objects stand there.
    pub fn holds_objects(&self, key: &str) -> bool {
        let takes = keys_of(self.section).iter().find(|known| known.name == key);
        let is_kind = |title| KINDS.iter().any(|kind| kind.section == title);
        let is_section = takes.is_some_and(|known| match known.takes {
            Takes::Table(title) | Takes::Tables(title) => is_kind(title),
            _ => false,
        });
        is_section || self.short_of(key)
    }

    /// Whether a key of its section is a list that has other objects in short.
    fn short_of(&self, key: &str) -> bool {
        let mut shorts = self.children().filter_map(|kind| kind.short);
        shorts.any(|short| short.list == key)
    }
}

/// What is known of a kind of objects, for those who ask people for one.
#[derive(Clone, Debug)]
pub struct ObjectKind {
    /// `volume`, `subsystem/namespace`, ...
    pub word: &'static str,
    /// The keys that it is called by; of what has no keys none.
    pub named_by: Vec<&'static str>,
    /// The keys that it may have, in the schema's order.
    pub fields: Vec<ObjectField>,
}

/// A key that objects of a kind may have.
#[derive(Clone, Debug)]
pub struct ObjectField {
    /// As it stands in the file.
    pub key: &'static str,
    /// The key of the table that it stands in, where that is no object of its own: `chap`.
    pub table: Option<&'static str>,
    /// The form of its value.
    pub takes: Takes,
    /// The kind of objects that it names.
    pub refers: Option<&'static str>,
    /// The kind of objects that it has in short: it is said of an object that has none of them.
    pub short_for: Option<&'static str>,
}

impl ObjectField {
    /// With the key of its table: `chap.user`.
    #[must_use]
    pub fn name(&self) -> String {
        let table = self
            .table
            .map_or_else(String::new, |table| format!("{table}."));
        table + self.key
    }

    /// Whether its value is a secret, which is not told.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        is_secret(self.key)
    }
}

/// What is known of a kind.
#[must_use]
pub fn object_kind(word: &str) -> Option<ObjectKind> {
    let kind = KINDS.iter().find(|kind| kind.word == word)?;
    let keys = keys_of(kind.section).iter();
    let keys = keys.flat_map(|key| match key.takes {
        Takes::Tables(_) => Vec::new(),
        Takes::Table(_) if kind.holds_objects(key.name) => Vec::new(),
        Takes::Table(section) => {
            let inner = keys_of(section).iter();
            inner.map(|inner| (Some(key.name), inner)).collect()
        }
        _ => vec![(None, key)],
    });
    let fields = keys.map(|(table, key)| {
        let short = kind.children().find_map(|child| {
            let short = child.short.filter(|short| short.list == key.name)?;
            Some((child.word, short.key))
        });
        ObjectField {
            key: key.name,
            table,
            takes: key.takes,
            refers: refers(short.unwrap_or((kind.word, key.name))),
            short_for: short.map(|(kind, _)| kind),
        }
    });
    Some(ObjectKind {
        word: kind.word,
        named_by: kind.naming.keys(),
        fields: fields.collect(),
    })
}

/// What would be right where an object or its field is wrong.
pub(super) fn remedy(object: &ObjectPath, field: Option<&str>) -> String {
    let section = KINDS.iter().find(|kind| kind.word == object.kind);
    let section = section.map_or("", |kind| kind.section);
    let key = keys_of(section).iter().find(|key| Some(key.name) == field);
    let Some(key) = key else {
        let kind = &object.kind;
        return format!("`weft get {kind}` lists those that there are");
    };
    if let Some(kind) = refers((&object.kind, key.name)) {
        return format!("`weft get {kind}` lists what it may name, `weft add {kind}` makes one");
    }
    let form = match key.takes {
        Takes::Text => "a text",
        Takes::File | Takes::FileOr(_) => "the path of a file",
        Takes::Secret => SECRET_PLACE,
        Takes::Flag => "true or false",
        Takes::FlagOr(word) => &format!("true, false or \"{word}\""),
        Takes::Number | Takes::NumberOr(_) => "a whole number",
        Takes::Size => "a size, as 64KiB or 1GiB",
        Takes::Texts => "a list of texts, as [\"a\", \"b\"]",
        Takes::Numbers => "a list of whole numbers, as [1, 2]",
        Takes::Table(_) | Takes::Tables(_) => "a table",
    };
    format!("give `{}` another value: it takes {form}", key.name)
}

fn refers((by, key): (&str, &str)) -> Option<&'static str> {
    let mut known = REFERENCES.iter();
    let found = known.find(|(_, known_by, known_key)| (*known_by, *known_key) == (by, key));
    found.map(|(kind, ..)| *kind)
}

/// What an object of a kind with these fields is called.
#[must_use]
pub fn object_name(word: &str, fields: &Map<String, Value>) -> Option<String> {
    fn text(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Array(list) => {
                let items: Option<Vec<_>> = list.iter().map(text).collect();
                Some(items?.join(","))
            }
            _ => None,
        }
    }
    let kind = KINDS.iter().find(|kind| kind.word == word)?;
    kind.naming.name(|key| text(fields.get(key)?))
}
