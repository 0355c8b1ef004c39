//! The file's schema and its volumes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use store::{BLOCK_SIZES, KINDS, Kind, SIZE_MAX_BYTES, Spec};
use target::{Config, Limits, check};
use toml::de::DeTable;
use uuid::Uuid;

use crate::names::{Taken, names};
use crate::secret::Secrets;
use crate::source::{Keys, Section, Sink, hint};
use crate::targets::{self, Rest};
use crate::value::format_size;
use crate::{Origin, Problem, listener, nfs, nvme, pattern, policy};

/// Sections and the keys that they may hold.
pub const SCHEMA: &[Keys] = &[
    (
        FILE,
        &[
            "volume",
            "file_system",
            "nvme",
            "iscsi",
            "nfs",
            "export",
            "listener",
            "policy",
        ],
    ),
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
            "nguid",
            "eui64",
            "naa",
            "serial",
            "vendor",
            "product",
            "revision",
            "adopt",
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
            "connections_of_address_max",
            "controllers_of_host_max",
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
            "volumes",
            "namespace",
            "ana",
        ],
    ),
    (NAMESPACE, &["nsid", "volume", "ana_group", "hosts"]),
    (ANA, &["group", "state", "listener"]),
    (REFERRAL, &["address"]),
    (
        ISCSI,
        &[
            "io_bytes_max",
            "queue_depth",
            "max_recv_data_segment_bytes",
            "first_burst_bytes",
            "max_burst_bytes",
            "r2ts_max",
            "initial_r2t",
            "immediate_data",
            "error_recovery_level",
            "session_connections_max",
            "sessions_max",
            "sessions_of_initiator_max",
            "nop_in_interval_ms",
            "target_cold_reset",
            "header_digest",
            "data_digest",
            "chap_algorithms",
            "space_warning",
            "portal_group",
            "discovery",
            "target",
        ],
    ),
    (
        PORTAL_GROUP,
        &["tag", "listeners", "header_digest", "data_digest"],
    ),
    (DISCOVERY, &["chap", "mutual_chap"]),
    (DISCOVERY_CHAP, CREDENTIALS),
    (DISCOVERY_MUTUAL, CREDENTIALS),
    (
        TARGET,
        &[
            "name",
            "alias",
            "allow_any_initiator",
            "initiators",
            "networks",
            "volumes",
            "portal_groups",
            "subsystem",
            "redirect",
            "redirect_permanent",
            "chap",
            "mutual_chap",
            "lun",
            "initiator",
            "ana",
            "queue_depth",
            "max_recv_data_segment_bytes",
            "first_burst_bytes",
            "max_burst_bytes",
            "r2ts_max",
            "initial_r2t",
            "immediate_data",
            "error_recovery_level",
            "session_connections_max",
            "sessions_max",
            "sessions_of_initiator_max",
            "nop_in_interval_ms",
            "target_cold_reset",
            "header_digest",
            "data_digest",
            "chap_algorithms",
            "space_warning",
        ],
    ),
    (TARGET_CHAP, CREDENTIALS),
    (TARGET_MUTUAL, CREDENTIALS),
    (LUN, &["lun", "volume", "ana_group"]),
    (
        INITIATOR,
        &[
            "name",
            "networks",
            "portal_groups",
            "luns",
            "chap",
            "mutual_chap",
        ],
    ),
    (INITIATOR_CHAP, CREDENTIALS),
    (INITIATOR_MUTUAL, CREDENTIALS),
    (TARGET_ANA, &["group", "state", "portal_group"]),
    (
        FILE_SYSTEM,
        &["name", "kind", "size", "path", "state", "read_only"],
    ),
    (NFS, &["max_io_bytes", "lease_ms", "grace_ms", "state"]),
    (
        EXPORT,
        &[
            "path",
            "file_system",
            "allow_any_client",
            "clients",
            "read_only",
            "squash",
            "anon_uid",
            "anon_gid",
            "security",
            "client",
        ],
    ),
    (
        CLIENT,
        &[
            "clients",
            "read_only",
            "squash",
            "anon_uid",
            "anon_gid",
            "security",
        ],
    ),
    (
        LISTENER,
        &["address", "protocol", "advertise", "discovery_only"],
    ),
    (
        POLICY,
        &[
            "cpus",
            "io",
            "placement",
            "spin_us_max",
            "memory_max",
            "zero_copy_min_bytes",
            "registered_min_bytes",
            "fast_path",
            "start",
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
pub(crate) const ISCSI: &str = "[iscsi]";
pub(crate) const PORTAL_GROUP: &str = "[[iscsi.portal_group]]";
pub(crate) const DISCOVERY: &str = "[iscsi.discovery]";
pub(crate) const DISCOVERY_CHAP: &str = "[iscsi.discovery.chap]";
pub(crate) const DISCOVERY_MUTUAL: &str = "[iscsi.discovery.mutual_chap]";
pub(crate) const TARGET: &str = "[[iscsi.target]]";
pub(crate) const TARGET_CHAP: &str = "[iscsi.target.chap]";
pub(crate) const TARGET_MUTUAL: &str = "[iscsi.target.mutual_chap]";
pub(crate) const LUN: &str = "[[iscsi.target.lun]]";
pub(crate) const INITIATOR: &str = "[[iscsi.target.initiator]]";
pub(crate) const INITIATOR_CHAP: &str = "[iscsi.target.initiator.chap]";
pub(crate) const INITIATOR_MUTUAL: &str = "[iscsi.target.initiator.mutual_chap]";
pub(crate) const TARGET_ANA: &str = "[[iscsi.target.ana]]";
pub(crate) const FILE_SYSTEM: &str = "[[file_system]]";
pub(crate) const NFS: &str = "[nfs]";
pub(crate) const EXPORT: &str = "[[export]]";
pub(crate) const CLIENT: &str = "[[export.client]]";
pub(crate) const LISTENER: &str = "[[listener]]";
pub(crate) const POLICY: &str = "[policy]";

/// Of who proves who he is by CHAP.
const CREDENTIALS: &[&str] = &["user", "secret", "secret_file"];

/// A logical block where the file says nothing.
pub(crate) const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Volumes, and how a later section finds them.
pub(crate) struct Volumes {
    pub list: Vec<Spec>,
    /// Names, of broken ones too, so that one mistake is told once.
    pub names: Vec<String>,
}

pub(crate) fn parse(
    text: &str,
    origin: &Origin,
    allowed: &[usize],
) -> Result<Config, Vec<Problem>> {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    let mut sink = Sink::new(text);
    for error in errors {
        sink.add(&error.span().unwrap_or(0..0), error.message());
    }
    let sink = &mut sink;
    pattern::expand(sink, table.get_mut());
    let file = Section::open(sink, SCHEMA, FILE, table.get_ref(), 0..0);
    let volumes = volumes(sink, &file, origin.folder);
    let nvme = file.table(sink, SCHEMA, "nvme", NVME);
    let limits = policy::limits(sink, nvme.as_ref());
    let (listeners, is_whole) = listener::listeners(sink, &file);
    let subsystems = nvme::subsystems(sink, nvme.as_ref(), &volumes, &listeners);
    let referrals = listener::referrals(sink, nvme.as_ref());
    let section = file.table(sink, SCHEMA, "iscsi", ISCSI);
    let section = section.as_ref();
    let mut secrets = Secrets::new(origin);
    let rest = Rest {
        volumes: &volumes,
        listeners: &listeners,
        subsystems: &subsystems,
    };
    let iscsi = targets::read(sink, section, &mut secrets, &rest);
    let nfs = file.table(sink, SCHEMA, "nfs", NFS);
    let files = nfs::read(sink, &file, nfs.as_ref(), origin.folder);
    let served = (nvme.as_ref(), section, &file);
    listener::reachable(sink, served, (&listeners, is_whole));
    let policy = file.table(sink, SCHEMA, "policy", POLICY);
    let policy = policy.as_ref();
    let cpus = policy::cpus(sink, policy, allowed);
    let config = Config {
        volumes: volumes.list,
        subsystems,
        iscsi_targets: iscsi.targets,
        iscsi_discovery: iscsi.discovery,
        file_systems: files.file_systems,
        exports: files.exports,
        nfs: files.settings,
        listeners,
        referrals,
        backend: policy::backend(sink, policy),
        spin_us_max: policy::spin_us_max(sink, policy),
        placement: policy::placement(sink, policy),
        memory_max: policy::memory_max(sink, policy, cpus.len()),
        zero_copy_min_bytes: policy::zero_copy_min_bytes(sink, policy),
        registered_min_bytes: policy::registered_min_bytes(sink, policy),
        fast_path: policy::fast_path(sink, policy),
        cpus,
        start: policy::start(sink, policy),
        limits: Limits {
            scsi_io_bytes_max: iscsi.io_bytes_max,
            ..limits
        },
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
    let mut taken = Taken::default();
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
        let shared = files.filter_map(|(key, path)| Some((key, paths.insert(path, line)?)));
        if let Some((key, first)) = shared.min_by_key(|(_, first)| *first) {
            let text = format!("the volume in line {first} lies in this file already");
            sink.add(&section.span_of(key), text);
        }
        if let Some(volume) = &volume {
            taken.add(sink, &section, volume);
        }
        volumes.names.extend(name);
        volumes.list.extend(volume);
    }
    if !file.has("volume") && !file.has("file_system") {
        let text = "there is no [[volume]] and no [[file_system]]: nothing to serve";
        sink.add(&(0..0), text);
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
    let mut kinds = KINDS.iter().filter(|kind| kind.has_own_size);
    let has_own_size = kinds.any(|kind| section.says("kind", kind.name));
    if !has_own_size {
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
            None if has_own_size && !section.has("size") => 0,
            None => return None,
        },
        block_bytes: block_bytes?,
        adopt: adopt(sink, section),
        uuid,
        names: names(sink, section),
        state: file(sink, section, "state", folder),
        read_only: section.flag(sink, "read_only").unwrap_or(false),
    })
}

/// Whether a file is taken as it is.
fn adopt(sink: &mut Sink, section: &Section) -> bool {
    if section.has("adopt") && !section.says("kind", "file") {
        let text = "`adopt` is for volumes of the kind \"file\"";
        sink.add(&section.span_of("adopt"), text);
    }
    section.flag(sink, "adopt").unwrap_or(false)
}

fn volume_kind(sink: &mut Sink, section: &Section, folder: &Path) -> Option<Kind> {
    section.missing(sink, "kind", "kind = \"ram\"");
    let words: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let kind = &KINDS[choice(sink, section, "kind", &words)?];
    let Some(example) = kind.path else {
        if section.has("path") {
            let text = format!("a \"{}\" volume has no `path`", kind.name);
            sink.add(&section.span_of("path"), text);
        }
        return Some((kind.at)(PathBuf::new()));
    };
    section.missing(sink, "path", &format!("path = \"{example}\""));
    Some((kind.at)(file(sink, section, "path", folder)?))
}

/// The path of a file; relative ones are to the configuration's folder.
pub(crate) fn file(
    sink: &mut Sink,
    section: &Section,
    key: &str,
    folder: &Path,
) -> Option<PathBuf> {
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
