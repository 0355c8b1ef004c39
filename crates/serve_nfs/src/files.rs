//! File systems: from the configuration to what is served.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

use store::fs::{Acls, Dir, DirSpec, FileSystem, Memory, Time};

use crate::config::{FileSystemKind, FileSystemSpec};

/// What would be in the way of opening a file system; nothing is made.
///
/// # Errors
/// Why it could not be opened.
pub fn examine(spec: &FileSystemSpec) -> Result<(), String> {
    match &spec.kind {
        FileSystemKind::Mem { size_bytes } => fits_memory(&spec.name, *size_bytes),
        FileSystemKind::Dir {
            path,
            state,
            read_only,
            acls,
            direct,
        } => Dir::examine(&dir(
            &spec.name,
            (path, state),
            (*read_only, *acls, *direct),
        ))
        .map_err(|error| format!("file system \"{}\": {error}", spec.name)),
    }
}

fn fits_memory(name: &str, size_bytes: u64) -> Result<(), String> {
    match store::memory::limit().filter(|limit| size_bytes > limit.bytes) {
        Some(limit) => Err(format!(
            "file system \"{name}\": a size of {size_bytes} bytes does not fit in {limit}: \
             make it smaller"
        )),
        None => Ok(()),
    }
}

fn dir(
    name: &str,
    (path, state): (&Path, &Path),
    (read_only, acls, direct): (bool, Option<Acls>, bool),
) -> DirSpec {
    DirSpec {
        name: name.to_owned(),
        path: path.to_owned(),
        state: state.to_owned(),
        read_only,
        owners: None,
        acls,
        direct,
    }
}

/// Opens a file system.
///
/// # Errors
/// Why not.
pub fn open(spec: &FileSystemSpec, now: Time) -> Result<Arc<dyn FileSystem>, String> {
    let name = &spec.name;
    match &spec.kind {
        FileSystemKind::Mem { size_bytes } => {
            fits_memory(name, *size_bytes)?;
            // Handles of another process are not those of this one.
            let instance = RandomState::new().hash_one(now.nanos);
            match Memory::new(name, *size_bytes, instance, now) {
                Ok(memory) => Ok(Arc::new(memory)),
                Err(error) => Err(format!("cannot make the file system \"{name}\": {error}")),
            }
        }
        FileSystemKind::Dir {
            path,
            state,
            read_only,
            acls,
            direct,
        } => match Dir::open(&dir(name, (path, state), (*read_only, *acls, *direct))) {
            Ok(dir) => Ok(Arc::new(dir)),
            Err(error) => Err(format!("file system \"{name}\": {error}")),
        },
    }
}
