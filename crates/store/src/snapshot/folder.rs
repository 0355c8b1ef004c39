//! Where the snapshots of a file lie: a folder beside it, with a folder for each.
//!
//! That of a snapshot holds its `data`, which shares blocks with the volume's file, and its
//! `record`. It is made under another name, synced and renamed: after a crash at any point
//! it is there whole or not at all. Names that begin with a dot are of what is half made or
//! half removed, and of a rollback that is under way.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reactor::DiskFile;
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, fstatfs, ftruncate, linkat, renameat_with};
use rustix::io::Errno;
use tracing::warn;

use super::check_name;
use crate::identity::FileIdentity;
use crate::regular::followed;
use crate::spec::{beside, with_suffix};
use crate::state::folder;
use crate::{Kind, Range, Spec, State};

/// What comes after the path of a volume's file.
pub(super) const SUFFIX: &str = ".snapshots";
pub(super) const DATA: &str = "data";
pub(super) const RECORD: &str = "record";
/// The file that names the snapshot of a rollback under way.
const PENDING: &str = ".rollback";
/// No record is larger: room for as many ranges as there may be.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// The data of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotData {
    /// How long it is.
    pub bytes: u64,
    /// What of it shares blocks with nothing; `None` where that is not known.
    pub unique_bytes: Option<u64>,
}

/// Where the snapshots of a file lie: a folder, or what a test or the simulator has in its
/// place. A snapshot is made by [`prepare`](SnapshotMedium::prepare),
/// [`take`](SnapshotMedium::take) and [`keep`](SnapshotMedium::keep), one at a time. Every
/// call blocks.
pub trait SnapshotMedium: Send + Sync {
    /// The names of those that are kept.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The record of one.
    fn record(&self, name: &str) -> io::Result<Vec<u8>>;

    /// What is known of the data of one.
    fn data(&self, name: &str) -> io::Result<SnapshotData>;

    /// Makes room for one, so that little is left to do while I/O waits.
    fn prepare(&self, name: &str) -> io::Result<()>;

    /// Has it hold what the file holds, of which no I/O is under way.
    fn take(&self, name: &str) -> io::Result<()>;

    /// Gives it its record. On the disk, and among the names, when it returns.
    fn keep(&self, name: &str, record: &str) -> io::Result<()>;

    /// Takes away what was prepared, taken or kept.
    fn discard(&self, name: &str);

    /// Removes one. On the disk when it returns. EBUSY where it is served as a volume.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Calls one `to`. On the disk when it returns. EBUSY likewise.
    fn rename(&self, name: &str, to: &str) -> io::Result<()>;

    /// A file beside that of the volume with that name, if it has a path.
    fn beside(&self, _name: &str) -> Option<PathBuf> {
        None
    }

    /// The folder in which each of them has one with its data, if they lie in files.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Whether the file shares blocks with another, an empty one, of which nothing is kept.
    fn expect_shares(&self, _data: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has what lies in a folder beside them be one, like [`keep`](SnapshotMedium::keep). Where
    /// that fails it lies where it was.
    fn keep_part(&self, _name: &str, _part: &Path, _record: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes a file at `path`, where nothing is, that holds what one holds, with these ranges
    /// marked as unreadable. On the disk when it returns.
    fn clone_to(&self, name: &str, path: &Path, unreadable: &[Range]) -> io::Result<()>;

    /// The one that is to take the place of what the file holds.
    fn pending(&self) -> io::Result<Option<String>>;

    /// Notes that. On the disk when it returns.
    fn set_pending(&self, name: Option<&str>) -> io::Result<()>;

    /// Has the file hold what one holds. On the disk when it returns; after a crash before
    /// that the file holds anything of both.
    fn restore(&self, name: &str) -> io::Result<()>;

    /// Takes away what a crash has left.
    fn clean(&self);
}

/// A folder in a file system that can share blocks between files.
pub(crate) struct SnapshotFolder {
    path: PathBuf,
    file: Arc<DiskFile>,
}

impl SnapshotFolder {
    /// That of the volume's file at `path`, which is open.
    pub(crate) fn of(path: &Path, file: &Arc<DiskFile>) -> SnapshotFolder {
        SnapshotFolder {
            path: with_suffix(&followed(path), SUFFIX),
            file: file.clone(),
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where one is made.
    fn half(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.new"))
    }

    /// Where one is that is being removed.
    fn going(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.gone"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// The volume's file on a descriptor of its own: a sync there takes no report of lost
    /// writes from that of the volume.
    fn opened_anew(&self) -> io::Result<File> {
        File::open(own_path(&*self.file))
    }

    /// Fails where it is served as a volume of its own, which relies on its place.
    fn expect_unused(&self, name: &str) -> io::Result<()> {
        match open_regular(&self.place(name).join(DATA)) {
            // There is nothing to serve.
            Err(error) if is_nothing(&error) => Ok(()),
            data => match data?.try_lock() {
                Err(TryLockError::WouldBlock) => Err(Errno::BUSY.into()),
                Err(TryLockError::Error(error)) => Err(error),
                Ok(()) => Ok(()),
            },
        }
    }

    /// Moves a folder to a place where nothing is. Where that cannot be made durable it is
    /// where it was.
    fn move_durably(&self, from: &Path, to: &Path) -> io::Result<()> {
        renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?;
        let synced = self.sync();
        if synced.is_err() {
            let _ = fs::rename(to, from);
        }
        synced
    }

    /// Moves what is there out of sight, durably, and then takes it away.
    fn take_away(&self, place: &Path, name: &str) -> io::Result<()> {
        let going = self.going(name);
        let _ = fs::remove_dir_all(&going);
        self.move_durably(place, &going)?;
        if let Err(error) = fs::remove_dir_all(&going) {
            warn!(
                path = %going.display(),
                %error,
                "a removed snapshot still takes space: its folder goes when weft is started again"
            );
        }
        Ok(())
    }
}

/// A file that is there. What would keep an open or a read waiting, as a pipe, is refused.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true);
    let file = options
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is no regular file", path.display()),
        )),
    }
}

/// Whether no regular file is there.
fn is_nothing(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::InvalidInput];
    kinds.contains(&error.kind())
}

/// What a small file holds.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_regular(path)?;
    file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether there was never a snapshot: nothing lies there, or something else of that name.
pub(super) fn is_no_folder(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind())
}

/// The names of the snapshots in a folder.
pub(super) fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if is_no_folder(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().into_string();
        names.extend(name.ok().filter(|name| check_name(name).is_ok()));
    }
    Ok(names)
}

/// What leads this process to an open file.
pub(super) fn own_path(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn already_there(path: &Path) -> io::Error {
    let path = path.display();
    let why = format!("{path} exists: use another path, or move it away");
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

/// Makes the folder for those of a volume, if it is not there.
pub(super) fn make_root(path: &Path) -> io::Result<()> {
    match make_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => {
            made?;
            File::open(folder(path))?.sync_all()
        }
    }
}

pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// A file with that content, on the disk but for its name.
fn write_file(path: &Path, content: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

impl SnapshotMedium for SnapshotFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        names_in(&self.path)
    }

    fn record(&self, name: &str) -> io::Result<Vec<u8>> {
        read(&self.place(name).join(RECORD))
    }

    fn data(&self, name: &str) -> io::Result<SnapshotData> {
        let file = open_regular(&self.place(name).join(DATA))?;
        Ok(SnapshotData {
            bytes: file.metadata()?.len(),
            unique_bytes: reactor::unshared_bytes(file.as_fd()).ok(),
        })
    }

    fn prepare(&self, name: &str) -> io::Result<()> {
        make_root(&self.path)?;
        let half = self.half(name);
        match fs::remove_dir_all(&half) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        make_folder(&half)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        options.open(half.join(DATA))?;
        // What is shared is first written: most of it before I/O waits.
        self.opened_anew()?.sync_data()
    }

    fn take(&self, name: &str) -> io::Result<()> {
        let data = OpenOptions::new()
            .write(true)
            .open(self.half(name).join(DATA))?;
        reactor::clone_range((self.file.as_fd(), 0), (data.as_fd(), 0), 0)
    }

    fn keep(&self, name: &str, record: &str) -> io::Result<()> {
        self.keep_part(name, &self.half(name), record)
    }

    fn discard(&self, name: &str) {
        let place = self.place(name);
        let discarded = match place.exists() {
            true => self.take_away(&place, name),
            false => fs::remove_dir_all(self.half(name)),
        };
        if let Err(error) = discarded
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!(
                path = %place.display(),
                %error,
                "what was made of a snapshot cannot be taken away: remove it"
            );
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.expect_unused(name)?;
        self.take_away(&self.place(name), name)
    }

    fn rename(&self, name: &str, to: &str) -> io::Result<()> {
        self.expect_unused(name)?;
        self.move_durably(&self.place(name), &self.place(to))
    }

    fn beside(&self, name: &str) -> Option<PathBuf> {
        let file = self.path.with_extension("");
        let name = match file.extension() {
            Some(extension) => format!("{name}.{}", extension.to_string_lossy()),
            None => name.to_owned(),
        };
        Some(file.with_file_name(name))
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn expect_shares(&self, data: BorrowedFd<'_>) -> io::Result<()> {
        let block = fstatfs(data)?.f_bsize as u64;
        let size = self.opened_anew()?.metadata()?.len();
        // Of a smaller file all is one block.
        let len = if size < block { 0 } else { block };
        reactor::clone_range((self.file.as_fd(), 0), (data, 0), len)?;
        ftruncate(data, 0).map_err(io::Error::from)
    }

    fn keep_part(&self, name: &str, part: &Path, record: &str) -> io::Result<()> {
        let data = File::open(part.join(DATA))?;
        data.set_permissions(Permissions::from_mode(0o400))?;
        data.sync_all()?;
        write_file(&part.join(RECORD), record)?;
        File::open(part)?.sync_all()?;
        self.move_durably(part, &self.place(name))
    }

    fn clone_to(&self, name: &str, path: &Path, unreadable: &[Range]) -> io::Result<()> {
        let state = beside(path);
        // Before anything is made: what lies there may be a volume, or the state of one.
        for there in [path, &state] {
            if there.symlink_metadata().is_ok() {
                return Err(already_there(there));
            }
        }
        let data = open_regular(&self.place(name).join(DATA))?;
        // It has no name before it is whole.
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).mode(0o600);
        let options = options.custom_flags(OFlags::TMPFILE.bits().cast_signed());
        let file = options.open(folder(path))?;
        reactor::clone_range((data.as_fd(), 0), (file.as_fd(), 0), 0)?;
        let spec = Spec::new("", Kind::file(path), 0, 512);
        let mut identity = FileIdentity::made(&file, &spec, None)?;
        let mut give_name = || {
            if !unreadable.is_empty() {
                let state = State::in_file(&spec, identity.uuid, None, None);
                let state = state.map_err(io::Error::other)?;
                state.set_unreadable(unreadable).map_err(io::Error::other)?;
                identity.add_state();
                identity.keep_in_file(&file, path);
            }
            file.sync_all()?;
            linkat(CWD, own_path(&file), CWD, path, AtFlags::SYMLINK_FOLLOW)?;
            File::open(folder(path))?.sync_all()
        };
        let named = give_name();
        if named.is_err() && !unreadable.is_empty() {
            let _ = fs::remove_file(&state);
        }
        named
    }

    fn pending(&self) -> io::Result<Option<String>> {
        match read(&self.place(PENDING)) {
            Err(error) if is_no_folder(&error) => Ok(None),
            name => String::from_utf8(name?).map(Some).map_err(io::Error::other),
        }
    }

    fn set_pending(&self, name: Option<&str>) -> io::Result<()> {
        let pending = self.place(PENDING);
        match name {
            Some(name) => {
                let new = with_suffix(&pending, ".new");
                write_file(&new, name)?;
                fs::rename(&new, &pending)?;
            }
            None => match fs::remove_file(&pending) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            },
        }
        self.sync()
    }

    fn restore(&self, name: &str) -> io::Result<()> {
        let data = open_regular(&self.place(name).join(DATA))?;
        let file = self.opened_anew()?;
        let (had_bytes, has_bytes) = (data.metadata()?.len(), file.metadata()?.len());
        // The file system shares no part of a block within a file.
        let sized = self.file.as_fd();
        if had_bytes != has_bytes {
            ftruncate(sized, had_bytes)?;
        }
        reactor::clone_range((data.as_fd(), 0), (sized, 0), 0)?;
        if had_bytes != has_bytes {
            ftruncate(sized, has_bytes)?;
        }
        file.sync_all()
    }

    fn clean(&self) {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().into_string().unwrap_or_default();
            let path = entry.path();
            let is_left = name.ends_with(".new") || name.ends_with(".gone");
            let removed = match name.starts_with('.') && is_left {
                true if path.is_dir() => fs::remove_dir_all(&path),
                true => fs::remove_file(&path),
                false => Ok(()),
            };
            if let Err(error) = removed {
                let path = path.display();
                warn!(%path, %error, "what a crash left of a snapshot cannot be removed");
            }
        }
    }
}
