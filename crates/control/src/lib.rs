//! Configuration: a TOML file in, what the target is started with out ([`load`]);
//! without a file [`default_config`]. A file that has changed is applied to the target that
//! runs ([`ServedDocument`]).
//!
//! A mistake in the file is told with line and column, what is wrong and what
//! would be right; all mistakes of a file at once ([`Problems`]). The schema is
//! `weft.example.toml`.
#![forbid(unsafe_code)]

mod admin;
mod allow;
mod built_in;
mod by_name;
mod certificates;
mod clients;
mod connection_policy;
mod disturbs;
mod document;
mod excerpt;
mod json_schema;
mod kept_secrets;
mod limit;
mod listener;
mod names;
mod nbd;
mod nfs;
mod nvme;
mod one_line;
mod parse;
mod pattern;
mod plan;
mod policy;
mod quota;
mod rdma;
mod reload;
mod schema;
mod secret;
mod snapshot_schedule;
mod source;
mod targets;
mod value;
mod volume;
mod without_secrets;
mod words;

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};
use std::time::UNIX_EPOCH;

use auth::FileAccess;
use server::nfs::FileSystemKind;
use server::{Config, check};
use store::Kind;
use store::identity::of_memory;
use store::memory::MemoryLimit;

pub use allow::{Allowed, allow};
pub use built_in::{BUILT_IN, NFS_PORT_ELSE, built_in_text, default_config};
pub use clients::{
    ClientStep, ClientSystem, HostProof, NbdProof, NvmeProof, Reached, ReachedObject,
    dhchap_secret_steps, reachable, tls_key_steps,
};
pub use connection_policy::explain_connection_policy;
pub use document::{
    Edit, EditProblem, ObjectField, ObjectKind, ObjectPath, SET, edit, fuzz_edits, object_at,
    object_kind, object_kinds, object_name, objects, with_absolute_paths,
};
pub use json_schema::{ObjectSchema, json_schema, object_schemas};
pub use kept_secrets::with_secrets_kept;
pub use nvme::ana_state_name;
pub use one_line::{OneLine, OneLineFile};
pub use plan::{PlannedChange, plan};
pub use reload::{DocumentPlan, MadeChanges, ServedDocument, Serving};
pub use schema::{SCHEMA, Takes};
pub use secret::SecretsRead;
pub use source::{Problem, Problems, hint};
pub use value::{format_cpus, format_size, parse_size};
pub use without_secrets::{with_secrets_hidden, without_secrets};
pub use words::words;

/// The most that a file may have: more than 100,000 hosts by name.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

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

/// What a configuration is known by: its path.
fn file_behind(place: PathBuf) -> PathBuf {
    let no_other = || format!("{:?} of {}", UNIX_EPOCH.elapsed(), std::process::id());
    lasting_place(&place).unwrap_or_else(|| PathBuf::from(no_other()))
}

/// A path that means the same file at the next start: the number of a descriptor does not,
/// and what comes from a pipe is in none.
#[must_use]
pub fn lasting_place(place: &Path) -> Option<PathBuf> {
    if !["/dev", "/proc"].iter().any(|root| place.starts_with(root)) {
        return Some(place.to_owned());
    }
    place.canonicalize().ok().filter(|file| file.is_file())
}

/// Reads a file. Paths in it are relative to the folder it lies in, and absolute in what
/// is read, so that it is the same from every folder; CPUs in it
/// must be some that this process may run on. Waits for a pipe that nothing is written
/// to.
///
/// # Errors
/// The file cannot be read, or everything that is wrong with it.
pub fn load(path: &Path) -> Result<Config, Problems> {
    let file = FileText::read(path)?;
    file.parse(path)
}

/// What a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// Its text.
    pub text: String,
    /// Who may read it: others may not where it has secrets.
    pub access: FileAccess,
}

impl FileText {
    /// One that is its owner's alone.
    #[must_use]
    pub fn of_own(text: String) -> FileText {
        FileText {
            text,
            access: FileAccess::OWN,
        }
    }

    /// Of a file; waits for a pipe that nothing is written to.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<FileText, Problems> {
        read(path).map_err(|error| unread(path, &error))
    }

    /// The same, for a process that serves meanwhile: it waits for no pipe, and takes what
    /// one has left for no configuration.
    ///
    /// # Errors
    /// Likewise, or that it is no file.
    pub fn read_again(path: &Path) -> Result<FileText, Problems> {
        // Looked at first: to open a device may do something.
        let text = match fs::metadata(path) {
            Ok(there) if !there.is_file() => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a file but a folder, pipe, socket or device: name a file",
            )),
            _ => read(path),
        };
        text.map_err(|error| unread(path, &error))
    }

    /// The configuration that it is at `path`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(&self, path: &Path) -> Result<Config, Problems> {
        let (config, _) = self.parse_again(path, &SecretsRead::default())?;
        Ok(config)
    }

    /// The same, for a process that serves: a secret that cannot be read now is what it was
    /// `before`. Also what was read of secrets.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse_again(
        &self,
        path: &Path,
        before: &SecretsRead,
    ) -> Result<(Config, SecretsRead), Problems> {
        let place = named_place(path);
        let parsed = self.parsed(&place, before).whole();
        let parsed = parsed.and_then(|(config, secrets)| match own_file(&config, &place) {
            Some(problem) => Err(vec![problem]),
            None => Ok((config, secrets)),
        });
        let (mut config, secrets) = parsed.map_err(|list| Problems {
            file: path.display().to_string(),
            list,
        })?;
        identify_memory(&mut config, &file_behind(place));
        Ok((config, secrets))
    }

    /// What the places of its secrets have now, whatever else is wrong by now: a configuration of
    /// which nothing but hosts' keys and secrets is to be used, and what was read.
    #[must_use]
    pub fn secrets_again(&self, path: &Path, before: &SecretsRead) -> (Config, SecretsRead) {
        let parsed = self.parsed(&named_place(path), before);
        (parsed.config, parsed.secrets)
    }

    fn parsed(&self, place: &Path, before: &SecretsRead) -> parse::Parsed {
        let origin = Origin {
            folder: place.parent().unwrap_or(Path::new("")),
            access: Some(self.access),
        };
        parse::parse(&self.text, &origin, before, &reactor::affinity())
    }
}

/// A volume that lies in the configuration itself: hosts would overwrite it.
fn own_file(config: &Config, place: &Path) -> Option<Problem> {
    let own = place.canonicalize().ok()?;
    config.volumes.iter().find_map(|volume| {
        let mut files = check::files(volume).into_iter();
        let (key, _) = files.find(|(_, path)| path.canonicalize().is_ok_and(|path| path == own))?;
        Some(Problem::of_file(format!(
            "`{key}` of the volume \"{}\" is this very file, which would become a disk; name \
             another file",
            volume.name
        )))
    })
}

/// A path as it was named: a link to the folder of a version leads elsewhere later.
fn named_place(path: &Path) -> PathBuf {
    match path == Path::new(BUILT_IN) {
        true => path.to_owned(),
        false => absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

fn unread(path: &Path, error: &io::Error) -> Problems {
    Problems {
        file: path.display().to_string(),
        list: vec![Problem::of_file(format!("cannot be read: {error}"))],
    }
}

fn read(path: &Path) -> io::Result<FileText> {
    let file = File::open(path)?;
    let access = access_of(&file.metadata()?);
    let mut text = String::new();
    // Hosts are served from the same memory while it is read again.
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let size = format_size(FILE_BYTES_MAX);
        let why = format!("it has more than {size}, and is hardly a configuration");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(FileText { text, access })
}

/// Whose a file is, and what others may do with it.
#[must_use]
pub fn access_of(about: &Metadata) -> FileAccess {
    FileAccess {
        owner: about.uid(),
        mode: about.mode(),
    }
}

/// Where the text of a configuration comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'o> {
    /// Paths in it are relative to this.
    pub folder: &'o Path,
    /// Who may read its file: others may not where it has secrets.
    pub access: Option<FileAccess>,
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
    notes.extend(nfs::notes(config));
    notes.extend(nbd::notes(config));
    notes.extend(nvme::expired_notes(config));
    notes.extend(listener::closed(config));
    notes.extend(rdma::closed(config));
    notes.extend(rdma::idle_terms(config));
    notes.extend(admin::notes(&config.admin));
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
    let volumes = config.volumes.iter().filter(|spec| spec.kind == Kind::RAM);
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
    let parsed = parse::parse(text, origin, &SecretsRead::default(), allowed);
    let (config, _) = parsed.whole()?;
    Ok(config)
}

#[cfg(test)]
mod tests;
