//! The way from the root to an object, and never out.
//!
//! A path is resolved by one `openat2` with RESOLVE_BENEATH,
//! RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS and RESOLVE_NO_XDEV (Linux 5.6).
//! Where a container denies it (Docker before 20.10) it is walked instead: each
//! component opened by itself, as an `O_PATH` descriptor, never through a
//! symbolic link, and on the mount of the root. Either way no link and no mount
//! is ever followed. What was reached is known only after its identity was
//! compared; a name that came to mean something else meanwhile is not followed
//! any further.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx,
};
use rustix::io::Errno;

use super::table::ObjectIdentity;

/// Bytes of a path that one system call takes.
const PATH_BYTES_MAX: usize = 4000;

/// Opens a name for nothing but to know what it is.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What keeps an object open: an open file, or a descriptor that is good for nothing else.
type KeptOpen = Arc<dyn AsFd + Send + Sync>;

/// An object as it was found.
#[derive(Clone)]
pub(super) struct SeenObject {
    /// `O_PATH`, or an open file.
    pub(super) fd: KeptOpen,
    pub(super) stat: Statx,
    pub(super) identity: ObjectIdentity,
}

impl SeenObject {
    pub(super) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.stx_mode.into())
    }

    pub(super) fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }
}

pub(super) struct Beneath {
    root: OwnedFd,
    /// `/proc/self/fd`.
    fds: OwnedFd,
    has_openat2: bool,
    /// The file system names its objects.
    has_names: bool,
    device: (u32, u32),
    mount: u64,
}

/// The same number for the same bytes, also after a restart; not 0. FNV-1a,
/// stirred.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let step = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut z = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (z ^ (z >> 32)).max(1)
}

fn mask() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

fn stat_of(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    statx(fd, "", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, mask())
}

fn has(stat: &Statx, what: StatxFlags) -> bool {
    StatxFlags::from_bits_retain(stat.stx_mask).contains(what)
}

fn nanos(seconds: i64, nanos: u32) -> i64 {
    seconds
        .wrapping_mul(1_000_000_000)
        .wrapping_add(nanos.into())
}

/// In nanoseconds.
pub(super) fn ctime(stat: &Statx) -> u64 {
    nanos(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec) as u64
}

fn identity(stat: &Statx, name: u64) -> ObjectIdentity {
    let born = match has(stat, StatxFlags::BTIME) {
        true => nanos(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
        false => 0,
    };
    ObjectIdentity {
        ino: stat.stx_ino,
        born,
        name,
    }
}

/// Of an open file, whatever its file system.
pub(super) fn identity_of(file: BorrowedFd<'_>) -> Result<ObjectIdentity, Errno> {
    Ok(identity(&stat_of(file)?, name_of(file, c"")))
}

/// What the file system calls an object; 0 if it does not say.
fn name_of(dir: BorrowedFd<'_>, name: &CStr) -> u64 {
    reactor::object_name(dir, name).map_or(0, |name| digest(&name))
}

impl Beneath {
    /// Of an open directory. `None`: the kernel does not tell mounts apart.
    pub(super) fn new(root: OwnedFd, trusts_names: bool) -> io::Result<Option<Beneath>> {
        let fds = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fds = rustix::fs::open("/proc/self/fd", fds, Mode::empty())?;
        let stat = stat_of(root.as_fd())?;
        if !has(&stat, StatxFlags::MNT_ID) {
            return Ok(None);
        }
        let mut beneath = Beneath {
            has_names: trusts_names && name_of(root.as_fd(), c"") != 0,
            root,
            fds,
            has_openat2: true,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            mount: stat.stx_mnt_id,
        };
        let probe = beneath.step(beneath.root.as_fd(), b".");
        beneath.has_openat2 = !matches!(probe, Err(Errno::NOSYS | Errno::PERM));
        Ok(Some(beneath))
    }

    /// As where a container denies `openat2`.
    #[cfg(test)]
    pub(super) fn without_openat2(mut self) -> Beneath {
        self.has_openat2 = false;
        self
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn step(&self, from: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        loop {
            match openat2(from, path, LOOK, Mode::empty(), resolve) {
                // Something on the way was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Opens a path of names, separated by slashes; the empty one is the root.
    /// The last name may be that of a symbolic link.
    pub(super) fn open(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut at = self.root.try_clone().map_err(|_| Errno::MFILE)?;
        let mut rest = path;
        while !rest.is_empty() {
            let piece = match rest.len() {
                ..=PATH_BYTES_MAX if self.has_openat2 => rest,
                _ => {
                    let max = if self.has_openat2 { PATH_BYTES_MAX } else { 0 };
                    piece_of(rest, max)
                }
            };
            rest = rest[piece.len()..].strip_prefix(b"/").unwrap_or_default();
            at = self.child(at.as_fd(), piece)?;
        }
        Ok(at)
    }

    /// Opens a name, or with `openat2` several, in a directory that was reached.
    pub(super) fn child(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
        if self.has_openat2 {
            return self.step(dir, name);
        }
        let fd = openat(dir, name, LOOK, Mode::empty())?;
        let stat = stat_of(fd.as_fd())?;
        match stat.stx_mnt_id == self.mount {
            true => Ok(fd),
            false => Err(Errno::XDEV),
        }
    }

    /// What a descriptor is of. Another mount or subvolume is none of ours.
    pub(super) fn look(&self, fd: KeptOpen) -> Result<SeenObject, Errno> {
        let stat = stat_of(fd.as_fd())?;
        self.check(&stat)?;
        let name = match self.has_names {
            true => name_of(fd.as_fd(), c""),
            false => 0,
        };
        let identity = identity(&stat, name);
        Ok(SeenObject { fd, stat, identity })
    }

    fn check(&self, stat: &Statx) -> Result<(), Errno> {
        // Of two subvolumes only the directories say so, and suffice.
        let is_directory = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
        let is_ours = !is_directory || (stat.stx_dev_major, stat.stx_dev_minor) == self.device;
        match stat.stx_mnt_id == self.mount && is_ours {
            true => Ok(()),
            false => Err(Errno::XDEV),
        }
    }

    /// The attributes now.
    pub(super) fn refresh_attributes(&self, seen: &mut SeenObject) -> Result<(), Errno> {
        seen.stat = stat_of(seen.fd.as_fd())?;
        Ok(())
    }

    /// What a name in a directory means.
    pub(super) fn look_up(&self, dir: &SeenObject, name: &[u8]) -> Result<SeenObject, Errno> {
        self.look(Arc::new(self.child(dir.fd.as_fd(), name)?))
    }

    /// What a name in a directory means, without opening it: of two looks, each
    /// may have met another object, so that only an identity that is known
    /// already is one.
    pub(super) fn peek(
        &self,
        dir: &SeenObject,
        name: &CStr,
    ) -> Result<(Statx, ObjectIdentity), Errno> {
        let fd = dir.fd.as_fd();
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = statx(fd, name, flags, mask())?;
        self.check(&stat)?;
        let name = match self.has_names {
            true => name_of(fd, name),
            false => 0,
        };
        Ok((stat, identity(&stat, name)))
    }

    /// What a path means.
    pub(super) fn at(&self, path: &[u8]) -> Result<SeenObject, Errno> {
        self.look(Arc::new(self.open(path)?))
    }

    /// Opens the very object of a descriptor once more. Symbolic links and what
    /// is no file are not for this.
    pub(super) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let number = fd.as_raw_fd().to_string();
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        loop {
            match openat(&self.fds, number.as_str(), flags, Mode::empty()) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }
}

/// The way to the very object of a descriptor, for calls that take a path.
pub(super) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// As many whole names from the beginning of a path as fit into `max` bytes,
/// and one at least.
fn piece_of(path: &[u8], max: usize) -> &[u8] {
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    let mut end = path.len();
    for (i, (at, _)) in slashes.enumerate() {
        if i > 0 && at > max {
            break;
        }
        end = at;
    }
    &path[..end]
}
