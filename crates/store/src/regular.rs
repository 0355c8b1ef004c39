//! Regular files: opening, locking and growing them.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FallocateFlags, OFlags, SeekFrom, access, fallocate, seek, statvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tracing::{info, warn};
use uuid::Uuid;

use crate::direct::DirectFile;
use crate::identity::FileIdentity;
use crate::problem::Problem;
use crate::state::{Former, folder};
use crate::{Spec, State, format, in_use, state};

/// The file at `path`, locked and as large as `spec` says, which is durable if
/// it may be changed; its UUID, and what the volume in it remembers.
pub(crate) fn open(spec: &Spec, path: &Path) -> Result<(fs::File, Uuid, State), Problem> {
    let (file, created) = open_locked(path, spec.read_only)?;
    match prepare(spec, path, &file, created) {
        Ok((uuid, state)) => Ok((file, uuid, state)),
        Err(problem) => {
            if created {
                // A half-made file would be taken for one that weft did not make.
                let _ = fs::remove_file(path);
            }
            Err(problem)
        }
    }
}

fn prepare(
    spec: &Spec,
    path: &Path,
    file: &fs::File,
    created: bool,
) -> Result<(Uuid, State), Problem> {
    let system = |action| {
        move |source| Problem::System {
            action,
            path: Some(path.to_owned()),
            source,
        }
    };
    let identity = match created {
        true => FileIdentity::made(file, spec, state::volume(spec)),
        false => found(spec, file),
    };
    let mut identity = identity.map_err(system("take the identity of"))?;
    let from = file.metadata().map_err(system("examine"))?.len();
    check_content(spec, path, file, &identity, from)?;
    let uuid = spec.uuid.unwrap_or(identity.uuid);
    let former = identity.copied_from.map(Former::Original);
    // Before the file changes: a start that is refused or interrupted here can
    // be repeated.
    let has_state = spec.state_path().is_some_and(|path| path.exists());
    let mark = match has_state || spec.read_only {
        true => None,
        false => identity.state_mark(file, path).map_err(system("open"))?,
    };
    let state = State::in_file(spec, uuid, former, mark)?;
    let to = spec.size_bytes;
    if let Some(note) = space_note(spec, path) {
        warn!("{note}");
    }
    if from < to {
        file.set_len(to).map_err(system("grow"))?;
    }
    if spec.preallocate && !spec.read_only {
        allocate(file, to).map_err(system("allocate all space of"))?;
    }
    if !spec.read_only {
        if has_state {
            identity.add_state();
        }
        identity.keep_in_file(file, path);
        forget_cache(file, path).map_err(system("sync"))?;
        sync_folder(path, created).map_err(system("sync the folder of"))?;
    }
    if spec.uuid.is_none() {
        identity.tell_copy(path);
    }
    match created {
        true => info!(path = %path.display(), bytes = to, "file created"),
        false if from < to => info!(path = %path.display(), from, to, "file grown"),
        false => {}
    }
    Ok((uuid, state))
}

/// The identity of a file that was there. Its attribute need not be understood
/// where the configuration gives the UUID.
fn found(spec: &Spec, file: &fs::File) -> io::Result<FileIdentity> {
    match (
        FileIdentity::found(file, spec, state::volume(spec)),
        spec.uuid,
    ) {
        (Err(_), Some(uuid)) => Ok(FileIdentity::unparsed(uuid)),
        (identity, _) => identity,
    }
}

/// Refuses to take something else for a volume, or a volume of another size.
fn check_content(
    spec: &Spec,
    path: &Path,
    file: &fs::File,
    identity: &FileIdentity,
    file_bytes: u64,
) -> Result<(), Problem> {
    let size_bytes = spec.size_bytes;
    let user = (!spec.read_only)
        .then(|| in_use::user_of_file(path))
        .flatten();
    let path = || path.to_owned();
    if let Some(user) = user {
        return Err(Problem::FileInUse(path(), user));
    }
    let state = spec.state_path().filter(|state| !state.exists());
    if let (Some(state), Some(record)) = (state, identity.without_state()) {
        return Err(Problem::StateMissing {
            path: path(),
            state,
            record,
        });
    }
    // What hosts write to a volume may begin with anything.
    if !identity.is_known && !spec.adopt {
        let format = format::of(file, file_bytes).map_err(|source| Problem::System {
            action: "read",
            path: Some(path()),
            source,
        })?;
        match format {
            Some(format) if identity.can_keep => {
                return Err(Problem::Format {
                    path: path(),
                    format,
                });
            }
            Some(format) => warn!(
                path = %path().display(),
                format,
                "the file begins or ends as an image does, or a host wrote so: its file system \
                 cannot keep which; if it is an image, stop weft and convert it \
                 ('qemu-img convert -O raw'), else set uuid = \"{}\" for it",
                identity.uuid
            ),
            None => {}
        }
    }
    if file_bytes > size_bytes || file_bytes < size_bytes && spec.read_only {
        return Err(Problem::FileSize {
            path: path(),
            file_bytes,
            size_bytes,
        });
    }
    if file_bytes < size_bytes && !identity.is_made && !spec.adopt {
        return Err(Problem::NotOurs {
            path: path(),
            file_bytes,
            size_bytes,
        });
    }
    Ok(())
}

/// What of an open would fail now, with nothing made or changed; else the volume's
/// identity, what else its state file may say, and whether it has data.
pub(crate) fn examine(spec: &Spec, path: &Path) -> Result<(Uuid, Option<Former>, bool), Problem> {
    let system = |action| {
        move |source| Problem::System {
            action,
            path: Some(path.to_owned()),
            source,
        }
    };
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            missing(path, spec.read_only)?;
            let may = access(folder(path), Access::WRITE_OK | Access::EXEC_OK);
            may.map_err(|error| system("create")(error.into()))?;
            let uuid = FileIdentity::to_be_made(spec, folder(path));
            (uuid.map_err(system("create"))?, None, false)
        }
        _ => {
            let (file, _) = open_locked(path, spec.read_only)?;
            DirectFile::open(spec, path, &file)?;
            let identity = found(spec, &file).map_err(system("take the identity of"))?;
            let found = file.metadata().map_err(system("examine"))?;
            check_content(spec, path, &file, &identity, found.len())?;
            let former = identity.copied_from.map(Former::Original);
            let has_data = seek(&file, SeekFrom::Data(0)) != Err(Errno::NXIO);
            (spec.uuid.unwrap_or(identity.uuid), former, has_data)
        }
    };
    if !spec.read_only {
        try_size(path, spec.size_bytes).map_err(system("grow"))?;
    }
    Ok(found)
}

/// Whether there may be a file of that size in the folder of `path`: one without a
/// name is given it, and is gone at once.
fn try_size(path: &Path, size_bytes: u64) -> io::Result<()> {
    // Asked for first: the kernel ends a process that goes beyond it.
    let most = getrlimit(Resource::Fsize).current;
    if most.is_some_and(|most| size_bytes > most) {
        return Err(Errno::FBIG.into());
    }
    let mut options = OpenOptions::new();
    let options = options
        .write(true)
        .custom_flags(OFlags::TMPFILE.bits().cast_signed())
        .mode(0o600);
    match options.open(folder(&followed(path))) {
        Ok(file) => file.set_len(size_bytes),
        // Not every file system has such files: the start tells.
        Err(_) => Ok(()),
    }
}

/// Gives a file of `size_bytes` all its space.
pub(crate) fn allocate(file: &fs::File, size_bytes: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), 0, size_bytes)?)
}

/// Where a file lies, behind links.
pub(crate) fn followed(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// That the file system has less room than the volume may come to need.
pub(crate) fn space_note(spec: &Spec, path: &Path) -> Option<String> {
    let has_bytes = fs::metadata(path).map_or(0, |found| found.blocks() * 512);
    let needs_bytes = spec.size_bytes.saturating_sub(has_bytes);
    let below = statvfs(folder(&followed(path)))
        .ok()
        .filter(|_| !spec.read_only && !spec.preallocate)?;
    let free_bytes = below.f_bavail.saturating_mul(below.f_frsize);
    (free_bytes < needs_bytes).then(|| {
        format!(
            "volume '{}': {} may come to need {needs_bytes} bytes more, its file system has \
             {free_bytes} free: hosts' writes fail when that is full; free space there, or set a \
             smaller size",
            spec.name,
            path.display()
        )
    })
}

/// Whether there is a file at `path`, which weft may make if there is none. Looked at
/// before it is opened: opening a pipe would block. Anything else is refused, with the
/// `remedy`.
pub(crate) fn is_there(path: &Path, remedy: &str) -> io::Result<bool> {
    let refused = |what: &str| {
        let why = format!("it is {what}: {remedy}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    };
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => refused("not a regular file"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.is_symlink() {
            true => refused("a symbolic link to what does not exist"),
            false => Ok(false),
        },
        found => found.map(|_| true),
    }
}

/// What helps where something else lies in the place of a file of weft's.
pub(crate) const MOVE_IT_AWAY: &str = "move it away, weft makes a file of its own there";

/// Refuses anything but a file, or nothing, where weft alone makes the file. The error
/// tells its name.
///
/// # Errors
/// What lies there, or that it cannot be looked at.
pub fn expect_own_file(path: &Path) -> io::Result<()> {
    let found = is_there(path, MOVE_IT_AWAY).map(drop);
    found.map_err(|error| match error.kind() {
        kind @ io::ErrorKind::InvalidInput => {
            io::Error::new(kind, format!("{}: {error}", path.display()))
        }
        _ => error,
    })
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
        missing(path, read_only)?;
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

/// Refuses to make a file where that cannot be.
fn missing(path: &Path, read_only: bool) -> Result<(), Problem> {
    if let Ok(target) = fs::read_link(path) {
        return Err(Problem::DanglingLink(path.to_owned(), target));
    }
    if read_only {
        return Err(Problem::NoFile(path.to_owned()));
    }
    match folder(path).is_dir() {
        true => Ok(()),
        false => Err(Problem::NoFolder(folder(path).to_owned())),
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

/// Brings what is cached of a file to the disk, and has all of it read from there
/// from now on. What a sync has lost the kernel takes for clean: it stays in the cache
/// when the process that heard of it is gone, and a flush of the next one would succeed
/// without it.
pub(crate) fn forget_cache(file: &fs::File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed) {
        warn!(
            path = %path.display(),
            %error,
            "the page cache cannot be emptied: what a sync lost before weft was started shows \
             as if it were on the disk; if one has failed, check the disk"
        );
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
pub(crate) fn holder(file: &fs::File) -> Option<u32> {
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
    use crate::Kind;
    use crate::identity::{derive, fault};
    use crate::spec::beside;
    use needs::needs;

    const SIZE: u64 = 64 << 10;

    fn spec(path: &Path, size_bytes: u64) -> Spec {
        let path = path.to_owned();
        Spec::new("disk", Kind::file(path), size_bytes, 512)
    }

    /// Opens it where attributes answer so.
    fn open_where(answer: Option<Errno>, spec: &Spec) -> Result<(Uuid, State), Problem> {
        let path = spec.kind.path().expect("a file");
        fault::ANSWER.set(answer);
        let opened = open(spec, path);
        fault::ANSWER.set(None);
        opened.map(|(_, uuid, state)| (uuid, state))
    }

    /// Bytes of the file in the page cache. A read that must not wait does not tell
    /// this: it starts to read ahead, and a fast disk answers at once.
    fn cached_bytes(path: &Path) -> u64 {
        let mut fincore = std::process::Command::new("fincore");
        fincore.args(["--bytes", "--raw", "--noheadings", "--output", "res"]);
        let output = fincore.arg(path).output().expect("fincore runs");
        let text = String::from_utf8(output.stdout).expect("a number");
        text.trim().parse().expect("a number")
    }

    /// Not in the folder for temporary files, which may be memory.
    #[needs(build_on_disk, program("fincore"))]
    #[test]
    fn file_that_is_opened_is_read_from_the_disk_and_not_from_the_cache() {
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = folder.path().join("disk");
        open_where(None, &spec(&path, SIZE)).expect("made");
        fs::write(&path, vec![7; SIZE as usize]).unwrap();
        assert_eq!(cached_bytes(&path), SIZE, "it was just written");
        open_where(None, &spec(&path, SIZE)).expect("found");
        assert_eq!(cached_bytes(&path), 0);
    }

    fn begin_as_an_image(path: &Path) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"QFI\xfb", 0).unwrap();
    }

    #[test]
    fn volume_that_cannot_keep_what_it_is_survives_a_signature_that_a_host_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let nowhere = Some(Errno::OPNOTSUPP);
        let (uuid, _) = open_where(nowhere, &spec(&path, SIZE)).expect("made");
        begin_as_an_image(&path);
        let (again, state) = open_where(nowhere, &spec(&path, SIZE)).expect("with a warning");
        assert_eq!(again, uuid);
        // Its size is not proven by that; its state file proves it, and so does a UUID.
        let larger = open_where(nowhere, &spec(&path, 2 * SIZE));
        assert!(matches!(larger, Err(Problem::NotOurs { .. })));
        state.set_unreadable(&[]).unwrap();
        state.protect_permanently().unwrap();
        open_where(nowhere, &spec(&path, 2 * SIZE)).expect("its state file tells");
        fs::remove_file(beside(&path)).unwrap();
        let mut told = spec(&path, 3 * SIZE);
        told.uuid = Some(Uuid::from_u128(7));
        open_where(nowhere, &told).expect("the configuration tells");
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * SIZE);
    }

    #[test]
    fn file_that_has_lost_its_record_is_known_by_its_state_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let room = Some(Errno::NOSPC);
        let (_, state) = open_where(room, &spec(&path, SIZE)).expect("made");
        begin_as_an_image(&path);
        let image = open_where(room, &spec(&path, SIZE));
        assert!(matches!(image, Err(Problem::Format { .. })), "no proof");
        state.protect_permanently().unwrap();
        open_where(room, &spec(&path, 2 * SIZE)).expect("its state file tells");
    }

    #[test]
    fn uuid_of_a_file_that_cannot_keep_it_is_the_same_when_made_and_found() {
        for answer in [Errno::OPNOTSUPP, Errno::NOSPC, Errno::PERM, Errno::ROFS] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("disk");
            let (made, _) = open_where(Some(answer), &spec(&path, SIZE)).expect("made");
            let mut read_only = spec(&path, SIZE);
            read_only.read_only = true;
            for spec in [&spec(&path, SIZE), &read_only] {
                let (found, _) = open_where(Some(answer), spec).expect("found");
                assert_eq!(found, made, "{answer}");
            }
            // There is room now: it is kept.
            if answer != Errno::OPNOTSUPP {
                for _ in 0..2 {
                    let (found, _) = open_where(None, &spec(&path, SIZE)).expect("found");
                    assert_eq!(found, made, "{answer}");
                }
            }
        }
    }

    #[test]
    fn uuid_that_an_earlier_version_derived_from_the_name_stays_that_of_its_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; SIZE as usize]).unwrap();
        let by_name = derive("file", "disk");
        let mut old = spec(&path, SIZE);
        old.state = Some(beside(&path));
        let state = State::in_file(&old, by_name, None, None).unwrap();
        state.protect_permanently().unwrap();
        for answer in [Some(Errno::NOSPC), None] {
            let (uuid, state) = open_where(answer, &spec(&path, SIZE)).expect("its own");
            assert_eq!(uuid, by_name);
            assert!(state.is_write_protected());
        }
    }

    #[test]
    fn refused_state_file_leaves_the_file_as_large_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        drop(open(&spec(&path, SIZE), &path).expect("made"));
        fs::write(beside(&path), "damaged").unwrap();
        let larger = open(&spec(&path, 2 * SIZE), &path);
        assert!(matches!(larger, Err(Problem::State { .. })));
        assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
    }

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
