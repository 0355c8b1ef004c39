//! The file's schema and its volumes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use store::{BLOCK_SIZES, Kind, SIZE_MAX_BYTES, Spec};
use target::{Config, check};
use toml::de::DeTable;
use uuid::Uuid;

use crate::source::{Keys, Section, Sink, hint};
use crate::value::format_size;
use crate::{Problem, listener, nvme, policy};

/// Sections and the keys that they may hold.
pub const SCHEMA: &[Keys] = &[
    (FILE, &["volume", "nvme", "listener", "policy"]),
    (
        VOLUME,
        &[
            "name",
            "kind",
            "size",
            "block_bytes",
            "path",
            "state",
            "uuid",
            "read_only",
        ],
    ),
    (
        NVME,
        &[
            "io_queues_max",
            "queue_entries_max",
            "io_bytes_max",
            "in_capsule_bytes",
            "maxh2cdata_bytes",
            "connections_max",
            "digests",
            "subsystem",
            "referral",
        ],
    ),
    (
        SUBSYSTEM,
        &[
            "nqn",
            "allow_any_host",
            "hosts",
            "serial",
            "model",
            "cntlids",
            "listeners",
            "namespace",
            "ana",
        ],
    ),
    (NAMESPACE, &["nsid", "volume", "ana_group", "hosts"]),
    (ANA, &["group", "state", "listener"]),
    (REFERRAL, &["address"]),
    (LISTENER, &["address", "advertise", "discovery_only"]),
    (
        POLICY,
        &[
            "cpus",
            "io",
            "placement",
            "spin_us_max",
            "memory_max",
            "zero_copy_min_bytes",
        ],
    ),
];

const FILE: &str = "the file";
const VOLUME: &str = "[[volume]]";
pub(crate) const NVME: &str = "[nvme]";
pub(crate) const SUBSYSTEM: &str = "[[nvme.subsystem]]";
pub(crate) const NAMESPACE: &str = "[[nvme.subsystem.namespace]]";
pub(crate) const ANA: &str = "[[nvme.subsystem.ana]]";
pub(crate) const REFERRAL: &str = "[[nvme.referral]]";
pub(crate) const LISTENER: &str = "[[listener]]";
pub(crate) const POLICY: &str = "[policy]";

/// A logical block where the file says nothing.
pub(crate) const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Volumes, and how a later section finds them.
pub(crate) struct Volumes {
    pub list: Vec<Spec>,
    /// Names, of broken ones too, so that one mistake is told once.
    pub names: Vec<String>,
}

pub(crate) fn parse(text: &str, folder: &Path, allowed: &[usize]) -> Result<Config, Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut sink = Sink::new(text);
    for error in errors {
        sink.add(&error.span().unwrap_or(0..0), error.message());
    }
    let sink = &mut sink;
    let file = Section::open(sink, SCHEMA, FILE, table.get_ref(), 0..0);
    let volumes = volumes(sink, &file, folder);
    let nvme = file.table(sink, SCHEMA, "nvme", NVME);
    let limits = policy::limits(sink, nvme.as_ref());
    let listeners = listener::listeners(sink, &file);
    let subsystems = nvme::subsystems(sink, nvme.as_ref(), &volumes, &listeners);
    let referrals = listener::referrals(sink, nvme.as_ref());
    let policy = file.table(sink, SCHEMA, "policy", POLICY);
    let policy = policy.as_ref();
    let cpus = policy::cpus(sink, policy, allowed);
    let config = Config {
        volumes: volumes.list,
        subsystems,
        listeners,
        referrals,
        backend: policy::backend(sink, policy),
        spin_us_max: policy::spin_us_max(sink, policy),
        placement: policy::placement(sink, policy),
        memory_max: policy::memory_max(sink, policy, cpus.len()),
        zero_copy_min_bytes: policy::zero_copy_min_bytes(sink, policy),
        cpus,
        limits,
    };
    match sink.take() {
        problems if problems.is_empty() => Ok(config),
        problems => Err(problems),
    }
}

fn volumes(sink: &mut Sink, file: &Section, folder: &Path) -> Volumes {
    let mut volumes = Volumes {
        list: Vec::new(),
        names: Vec::new(),
    };
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut paths: HashMap<PathBuf, usize> = HashMap::new();
    for section in file.tables(sink, SCHEMA, "volume", VOLUME) {
        let name = volume_name(sink, &section);
        if let Some(name) = &name {
            let line = sink.line(&section.span);
            if let Some(first) = lines.insert(name.clone(), line) {
                let text = format!("a volume \"{name}\" is there already, in line {first}");
                sink.add(&section.span_of("name"), text);
                continue;
            }
        }
        let volume = volume(sink, &section, folder, name.as_deref());
        let line = sink.line(&section.span);
        let files = volume.iter().flat_map(check::files);
        let taken = files.filter_map(|(key, path)| Some((key, paths.insert(path, line)?)));
        if let Some((key, first)) = taken.min_by_key(|(_, first)| *first) {
            let text = format!("the volume in line {first} lies in this file already");
            sink.add(&section.span_of(key), text);
        }
        volumes.names.extend(name);
        volumes.list.extend(volume);
    }
    if !file.has("volume") {
        sink.add(&(0..0), "there is no [[volume]]: nothing to serve");
    }
    volumes
}

fn volume_name(sink: &mut Sink, section: &Section) -> Option<String> {
    section.missing(sink, "name", "name = \"disk0\"");
    let name = section.text(sink, "name")?;
    if let Err(why) = check::volume_name(name.value) {
        sink.add(&name.span, why);
        return None;
    }
    Some(name.value.to_owned())
}

fn volume(sink: &mut Sink, section: &Section, folder: &Path, name: Option<&str>) -> Option<Spec> {
    let kind = volume_kind(sink, section, folder);
    let block_bytes = match section.number(sink, "block_bytes", true) {
        Some(block) => {
            let known = BLOCK_SIZES
                .into_iter()
                .find(|size| u64::from(*size) == block.value);
            if known.is_none() {
                let [a, b] = BLOCK_SIZES;
                let text = format!("`block_bytes` is {a} or {b}, not {}", block.value);
                sink.add(&block.span, text);
            }
            known
        }
        None => Some(BLOCK_BYTES_DEFAULT),
    };
    let is_device = section.says("kind", "block");
    if !is_device {
        section.missing(sink, "size", "size = \"1GiB\"");
    }
    let size = section.number(sink, "size", true);
    if let (Some(size), Some(block)) = (&size, block_bytes) {
        let block = u64::from(block);
        if size.value == 0 || size.value > SIZE_MAX_BYTES {
            let max = format_size(SIZE_MAX_BYTES);
            let text = format!("a volume's size is from one block to {max}");
            sink.add(&size.span, text);
        } else if !size.value.is_multiple_of(block) {
            let (below, value) = (size.value / block * block, size.value);
            let above = below + block;
            let text = format!(
                "`size` ({value} bytes) is no multiple of `block_bytes` ({block}); \
                 the nearest are {below} and {above}"
            );
            sink.add(&size.span, text);
        }
    }
    let uuid = section.text(sink, "uuid").and_then(|text| {
        let uuid = Uuid::try_parse(text.value)
            .ok()
            .filter(|uuid| !uuid.is_nil());
        if uuid.is_none() {
            let why = "is no UUID; for example: f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
            sink.add(&text.span, format!("\"{}\" {why}", text.value));
        }
        uuid
    });
    Some(Spec {
        name: name?.to_owned(),
        kind: kind?,
        size_bytes: match size {
            Some(size) => size.value,
            // All that the device has.
            None if is_device && !section.has("size") => 0,
            None => return None,
        },
        block_bytes: block_bytes?,
        uuid,
        state: file(sink, section, "state", folder),
        read_only: section.flag(sink, "read_only").unwrap_or(false),
    })
}

fn volume_kind(sink: &mut Sink, section: &Section, folder: &Path) -> Option<Kind> {
    const KINDS: &[&str] = &["null", "ram", "file", "block"];
    section.missing(sink, "kind", "kind = \"ram\"");
    let kind = choice(sink, section, "kind", KINDS)?;
    if let "null" | "ram" = KINDS[kind] {
        if section.has("path") {
            let text = format!("a \"{}\" volume has no `path`", KINDS[kind]);
            sink.add(&section.span_of("path"), text);
        }
        return Some(match kind {
            0 => Kind::Null,
            _ => Kind::Ram,
        });
    }
    let is_device = KINDS[kind] == "block";
    let example = match is_device {
        true => "path = \"/dev/sdb\"",
        false => "path = \"disk0.img\"",
    };
    section.missing(sink, "path", example);
    let path = file(sink, section, "path", folder)?;
    Some(match is_device {
        true => Kind::Block { path },
        false => Kind::File { path },
    })
}

/// The path of a file; relative ones are to the configuration's folder.
fn file(sink: &mut Sink, section: &Section, key: &str, folder: &Path) -> Option<PathBuf> {
    let path = section.text(sink, key)?;
    if path.value.is_empty() {
        sink.add(&path.span, format!("`{key}` is empty"));
        return None;
    }
    Some(folder.join(path.value))
}

/// The index of a key's value among the words it may be.
pub(crate) fn choice(
    sink: &mut Sink,
    section: &Section,
    key: &str,
    words: &[&str],
) -> Option<usize> {
    let text = section.text(sink, key)?;
    let found = words.iter().position(|word| *word == text.value);
    if found.is_none() {
        let hint = hint(text.value, words.iter().copied());
        let known = words.join("\", \"");
        let text = format!(
            "`{key}` is one of \"{known}\", not \"{}\"{hint}",
            text.value
        );
        sink.add(&section.span_of(key), text);
    }
    found
}
