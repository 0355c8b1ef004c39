//! Regular files: opening, locking and growing them.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use tracing::info;
use uuid::Uuid;

use crate::open::Problem;
use crate::state::folder;
use crate::{Spec, identity};

/// The file at `path`, locked and as large as `spec` says, which is durable if
/// it may be changed; and who it is.
pub(crate) fn open(spec: &Spec, path: &Path) -> Result<(fs::File, Uuid), Problem> {
    let system = |action| {
        move |source| Problem::System {
            action,
            path: Some(path.to_owned()),
            source,
        }
    };
    let (file, created) = open_locked(path, spec.read_only)?;
    let found = file.metadata().map_err(system("examine"))?;
    let grow = found.len() < spec.size_bytes;
    if found.len() > spec.size_bytes || grow && spec.read_only {
        return Err(Problem::FileSize {
            path: path.to_owned(),
            file_bytes: found.len(),
            size_bytes: spec.size_bytes,
        });
    }
    if grow {
        file.set_len(spec.size_bytes).map_err(system("grow"))?;
    }
    let uuid = match spec.uuid {
        Some(uuid) => uuid,
        None => identity::of_file(&file, created, spec.read_only, &spec.name)
            .map_err(system("take the identity of"))?,
    };
    if !spec.read_only {
        file.sync_all().map_err(system("sync"))?;
        sync_folder(path, created).map_err(system("sync the folder of"))?;
    }
    let (from, to) = (found.len(), spec.size_bytes);
    match (created, grow) {
        (true, _) => info!(path = %path.display(), bytes = to, "file created"),
        (_, true) => info!(path = %path.display(), from, to, "file grown"),
        _ => {}
    }
    Ok((file, uuid))
}

/// Opens the file, creating it if it is missing, and locks it: whole for a
/// volume that may change, shared between read-only ones. The second value
/// tells whether it was created.
fn open_locked(path: &Path, read_only: bool) -> Result<(fs::File, bool), Problem> {
    let system = |action| {
        move |source| Problem::System {
            action,
            path: Some(path.to_owned()),
            source,
        }
    };
    let exists = match fs::metadata(path) {
        // Looked at before it is opened: opening a pipe would block.
        Ok(found) => check_type(path, &found).map(|()| true)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(system("examine")(e)),
    };
    if !exists {
        if read_only {
            return Err(Problem::NoFile(path.to_owned()));
        }
        if !folder(path).is_dir() {
            return Err(Problem::NoFolder(folder(path).to_owned()));
        }
    }
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).mode(0o600);
    let action = if exists { "open" } else { "create" };
    let opened = options.create_new(!exists).open(path);
    let file = opened.map_err(system(action))?;
    let lock = match read_only {
        true => file.try_lock_shared(),
        false => file.try_lock(),
    };
    match lock {
        Ok(()) => Ok((file, !exists)),
        Err(TryLockError::WouldBlock) => Err(Problem::InUse {
            path: path.to_owned(),
            holder: holder(&file),
        }),
        Err(TryLockError::Error(e)) => Err(system("lock")(e)),
    }
}

fn check_type(path: &Path, found: &fs::Metadata) -> Result<(), Problem> {
    let kind = found.file_type();
    if kind.is_block_device() {
        return Err(Problem::BlockDevice(path.to_owned()));
    }
    if !kind.is_file() {
        return Err(Problem::NotAFile(path.to_owned()));
    }
    Ok(())
}

/// Makes the file's name durable; also for a file that is not new, since the
/// process that created it may have died before it came this far.
fn sync_folder(path: &Path, created: bool) -> io::Result<()> {
    match fs::File::open(folder(path)) {
        Ok(folder) => folder.sync_all(),
        // A folder that may be passed through but not looked at.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !created => Ok(()),
        Err(e) => Err(e),
    }
}

/// The process that holds a lock on the file, if the kernel shows it.
fn holder(file: &fs::File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    find_holder(&locks, &format!("{major:02x}:{minor:02x}:{}", found.ino()))
}

/// proc_locks(5): `ID: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END`.
fn find_holder(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let flock = words.next()? == "FLOCK";
        let pid = words.nth(2)?;
        let here = words.next()? == file;
        (flock && here).then(|| pid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 fe:00:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 12 fe:00:78 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 13 fe:00:77 0 EOF\n";
        assert_eq!(find_holder(locks, "fe:00:77"), Some(13));
        assert_eq!(find_holder(locks, "fe:00:79"), None);
    }

    #[test]
    fn a_bare_name_lies_in_the_current_folder() {
        assert_eq!(folder(Path::new("disk")), Path::new("."));
        assert_eq!(folder(Path::new("a/disk")), Path::new("a"));
        assert_eq!(folder(Path::new("/disk")), Path::new("/"));
    }
}
