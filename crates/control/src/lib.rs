//! Configuration: a TOML file in, what the target is started with out ([`load`]);
//! without a file [`default_config`]. A file that has changed is applied to the target that
//! runs ([`ServedDocument`]).
//!
//! A mistake in the file is told with line and column, what is wrong and what
//! would be right; all mistakes of a file at once ([`Problems`]). The schema is
//! `weft.example.toml`.
#![forbid(unsafe_code)]

mod allow;
mod disturbs;
mod listener;
mod names;
mod nfs;
mod nvme;
mod parse;
mod pattern;
mod plan;
mod policy;
mod reload;
mod schema;
mod secret;
mod source;
mod targets;
mod value;
mod volume;

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};
use std::time::UNIX_EPOCH;

use iscsi::{PortalGroup, Target};
use server::nfs::{ExportSpec, FileSystemKind, FileSystemSpec, Rule, Squash};
use server::{Ana, Config, IscsiTargetSpec, ListenerSpec, LunSpec, NamespaceSpec, SubsystemSpec};
use store::Kind;
use store::identity::of_memory;
use store::memory::MemoryLimit;

pub use allow::allow;
pub use plan::{PlannedChange, plan};
pub use reload::{DocumentPlan, ServedDocument};
pub use schema::SCHEMA;
pub use source::{Problem, Problems};
pub use value::{format_cpus, format_size};

/// Where what is built in stands, in the place of a file.
const BUILT_IN: &str = "built-in";

/// More than 100,000 hosts by name.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Where the built-in configuration serves NFS if NFS's own port is taken.
pub const NFS_PORT_ELSE: u16 = 20_490;

/// Without a file: one RAM volume of 1 GiB for every host, over NVMe/TCP on
/// 127.0.0.1:4420 and over iSCSI on 127.0.0.1:3260, and one file system in memory
/// of 1 GiB at most, over NFS on 127.0.0.1:2049.
#[must_use]
pub fn default_config() -> Config {
    let cpus = reactor::available_cpus();
    let name = "default".to_owned();
    // Two machines that are tried out side by side are two to every host.
    let machine = store::identity::of_machine(BUILT_IN);
    let nqn = format!("nqn.2026-01.io.weft:default-{machine}");
    let block_bytes = volume::BLOCK_BYTES_DEFAULT;
    let mut config = Config {
        volumes: vec![store::Spec::new(
            &name,
            store::Kind::Ram,
            1 << 30,
            block_bytes,
        )],
        subsystems: vec![SubsystemSpec {
            serial: nvme::serial_of(&nqn),
            nqn: nqn.clone(),
            model: nvme::MODEL_DEFAULT.to_owned(),
            namespaces: vec![NamespaceSpec {
                nsid: 1,
                volume: name,
                ..NamespaceSpec::default()
            }],
            ..SubsystemSpec::default()
        }],
        iscsi_targets: vec![IscsiTargetSpec {
            luns: vec![LunSpec::new(0, "default")],
            ana: Ana::Subsystem(nqn),
            target: Target {
                // With NVMe's listener, so that the states of paths are one.
                portal_groups: vec![PortalGroup {
                    tag: 1,
                    portals: vec![0, 1],
                    ..PortalGroup::default()
                }],
                ..Target::new(format!("iqn.2026-01.io.weft:default-{machine}"))
            },
            ..IscsiTargetSpec::new("")
        }],
        file_systems: vec![FileSystemSpec {
            name: "default".to_owned(),
            kind: FileSystemKind::Mem {
                size_bytes: 1 << 30,
            },
        }],
        exports: vec![ExportSpec {
            path: "/".to_owned(),
            file_system: "default".to_owned(),
            // A user who tries it mounts it as root, from this machine alone.
            // Squashed to `nobody`, root could not even give a file away.
            rules: vec![Rule {
                squash: Squash::None,
                ..Rule::default()
            }],
        }],
        listeners: vec![
            SocketAddr::from(([127, 0, 0, 1], 4420)).into(),
            ListenerSpec::iscsi(SocketAddr::from(([127, 0, 0, 1], 3260))),
            ListenerSpec::nfs(SocketAddr::from(([127, 0, 0, 1], 2049))),
        ],
        spin_us_max: policy::SPIN_US_DEFAULT,
        memory_max: policy::memory_default_bytes(cpus.len()),
        cpus,
        ..Config::default()
    };
    identify_memory(&mut config, Path::new(BUILT_IN));
    config
}

/// What memory is in `place`, the configuration, is no other's on any machine.
fn identify_memory(config: &mut Config, place: &Path) {
    for volume in &mut config.volumes {
        if volume.kind.is_memory() {
            let of_place = || of_memory(place, volume.kind.name(), &volume.name);
            let found = volume.uuid.or_else(|| store::uuid_by_state(volume));
            volume.uuid = found.or_else(|| Some(of_place()));
        }
    }
}

/// What a configuration is known by: its path. The number of a descriptor says nothing of
/// the file behind it, and what comes from a pipe is no other's.
fn file_behind(place: PathBuf) -> PathBuf {
    if !["/dev", "/proc"].iter().any(|root| place.starts_with(root)) {
        return place;
    }
    let file = place.canonicalize().ok().filter(|file| file.is_file());
    let no_other = || format!("{:?} of {}", UNIX_EPOCH.elapsed(), std::process::id());
    file.unwrap_or_else(|| PathBuf::from(no_other()))
}

/// Reads a file. Paths in it are relative to the folder it lies in, and absolute in what
/// is read, so that it is the same from every folder; CPUs in it
/// must be some that this process may run on. Waits for a pipe that nothing is written
/// to.
///
/// # Errors
/// The file cannot be read, or everything that is wrong with it.
pub fn load(path: &Path) -> Result<Config, Problems> {
    load_text(path, read(path))
}

/// As [`load`], for a process that serves meanwhile: it waits for no pipe, and takes what
/// one has left for no configuration.
///
/// # Errors
/// Likewise, or that it is no file.
pub fn load_again(path: &Path) -> Result<Config, Problems> {
    // Looked at first: to open a device may do something.
    let text = match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a file but a folder, pipe, socket or device: name a file",
        )),
        _ => read(path),
    };
    load_text(path, text)
}

fn load_text(path: &Path, read: io::Result<(String, u32)>) -> Result<Config, Problems> {
    let file = path.display().to_string();
    let (text, mode) = read.map_err(|error| Problems {
        file: file.clone(),
        list: vec![Problem {
            line: 0,
            column: 0,
            text: format!("cannot be read: {error}"),
        }],
    })?;
    // As it was named: a link to the folder of a version leads elsewhere later.
    let place = absolute(path).unwrap_or_else(|_| path.to_owned());
    let origin = Origin {
        folder: place.parent().unwrap_or(Path::new("")),
        mode: Some(mode),
    };
    let parsed = parse(&text, &origin, &reactor::affinity());
    let mut config = parsed.map_err(|list| Problems { file, list })?;
    identify_memory(&mut config, &file_behind(place));
    Ok(config)
}

/// The text of a file, and its mode.
fn read(path: &Path) -> io::Result<(String, u32)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    // Hosts are served from the same memory while it is read again.
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let size = format_size(FILE_BYTES_MAX);
        let why = format!("it has more than {size}, and is hardly a configuration");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok((text, mode))
}

/// Where the text of a configuration comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'o> {
    /// Paths in it are relative to this.
    pub folder: &'o Path,
    /// The mode of its file: a file with secrets must not be readable to others.
    pub mode: Option<u32>,
}

/// What is allowed in a configuration, but its author may want to know.
#[must_use]
pub fn notes(config: &Config) -> Vec<String> {
    /// As many bytes as the initiator of Windows takes.
    const COMMON_BYTES_MAX: usize = 16;
    let discovery = std::iter::once(("discovery", &config.iscsi_discovery));
    let targets = config.iscsi_targets.iter().flat_map(|spec| {
        let own = spec
            .target
            .acl
            .iter()
            .filter_map(|entry| entry.auth.as_ref());
        let all = std::iter::once(&spec.target.auth).chain(own);
        all.map(|auth| (&*spec.target.name, auth))
    });
    let mut notes: Vec<String> = Vec::new();
    if config.nfs.state.is_none() && !config.exports.is_empty() {
        let note = "[nfs] has no `state`: after a restart NFS clients lose the locks and open \
                    files that they had, because nothing is known of them; `state` names a folder \
                    that keeps it";
        notes.push(note.to_owned());
    }
    notes.extend(memory_note(config, store::memory::limit()));
    for (scope, auth) in discovery.chain(targets) {
        for known in auth.chap.iter().chain(&auth.mutual) {
            let (user, len) = (&known.user, known.secret.len());
            let note = format!(
                "{scope}: the CHAP secret of {user} has {len} bytes; Windows takes \
                 {COMMON_BYTES_MAX} at most"
            );
            if len > COMMON_BYTES_MAX && !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// That all that may lie in memory at once is more than there is.
fn memory_note(config: &Config, limit: Option<MemoryLimit>) -> Option<String> {
    let limit = limit?;
    let volumes = config.volumes.iter().filter(|spec| spec.kind == Kind::Ram);
    let volumes: u64 = volumes.map(|spec| spec.size_bytes).sum();
    let files = config.file_systems.iter().map(|spec| match spec.kind {
        FileSystemKind::Mem { size_bytes } => size_bytes,
        FileSystemKind::Dir { .. } => 0,
    });
    let files: u64 = files.sum();
    let buffers = config.memory_max;
    let sum = volumes.saturating_add(files).saturating_add(buffers);
    (sum > limit.bytes).then(|| {
        format!(
            "\"ram\" volumes ({}), \"mem\" file systems ({}) and buffers (memory_max, {}) are more, \
             when they are full, than {limit}: the kernel ends weft then; make them smaller",
            format_size(volumes),
            format_size(files),
            format_size(buffers)
        )
    })
}

/// Reads the text of a file, for a process that may run on the CPUs `allowed`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, origin: &Origin, allowed: &[usize]) -> Result<Config, Vec<Problem>> {
    parse::parse(text, origin, allowed)
}

#[cfg(test)]
mod tests;
