//! `dir`: a directory of the machine, served without privileges.
//!
//! **Handles.** A [`FileId`] is a number that a table in the state directory
//! gives to an object when it is first seen ([`table`]), for all time. With it
//! the table remembers what the file system below calls the object (inode
//! number, time of making, and what `name_to_handle_at` says, which needs no
//! privilege; `open_by_handle_at` is not used) and where it lies. A number is
//! looked up by that place, from the root, and what is there is compared: it is
//! that object, or the handle is stale. Handles hold over restarts and
//! `kill -9`, through hard links and renames, also those of local programs as
//! long as the object stays in its directory or moves to one above; what was
//! moved elsewhere is stale until a LOOKUP or READDIR meets it, and then has its
//! old number. Should the machine itself crash, handles given out in the second
//! before it may be stale; those of created, linked, renamed and removed names
//! are on the disk before their operation is done. Where a container denies
//! `name_to_handle_at` (Docker before 24) a file that local programs remove
//! and make anew within one tick of the clock, on the same inode number, cannot
//! be told from its predecessor; all else holds. On overlayfs a file of a lower
//! layer becomes another one when it is first written.
//!
//! **The way down** ([`beneath`]) follows no symbolic link and crosses no mount:
//! what is mounted, or a subvolume, in the directory is not listed and not found
//! (NFS4ERR_ACCESS). Linux 5.8 and `/proc` are needed; `openat2` is used where
//! it is allowed.
//!
//! **Owners.** With CAP_CHOWN, CAP_FOWNER, CAP_FSETID and CAP_DAC_OVERRIDE over
//! all users, owners, groups and modes are the real ones ([`Owners::Real`]), and
//! devices need CAP_MKNOD. Otherwise ([`Owners::Recorded`]) everything that is
//! made belongs to weft's user on the disk; owner, group and mode as clients set
//! them are kept in the extended attribute `user.weft.owner`, wherever they are
//! not what the disk says anyway, and pipes, sockets and devices are files with
//! such an attribute. On the disk only weft's user may write such files, and what a
//! file that others own or may write says of itself counts for nothing. Owners of
//! symbolic links are kept in the table. Either way it is weft that decides what a
//! caller may do, by the attributes that clients see ([`super::access`]). Files of
//! local users have the owners they have.
//!
//! **Stability.** WRITE goes to the page cache; COMMIT, and the end of a DATA_SYNC or
//! FILE_SYNC WRITE however short it came, is fdatasync, one of a file at a time for
//! all that wait for it ([`file_syncs`]); all other changes are synced before they
//! are done, many at a time. A descriptor with writes since its last sync is synced
//! before it is closed. A sync that fails, for whatever reason, is told to all that
//! it concerns, and changes [`FileSystem::verifier`], so that clients write again
//! what they have not committed.
//!
//! **The change attribute** is the `ctime` below in nanoseconds, and one more
//! for each change of ours that the clock has no tick for; the table keeps it.
//! Changes by local programs within one tick of a look may be missed. Since they
//! come between as they like, [`super::ChangeInfo`] is never atomic.
//!
//! **Waiting.** Everything that may wait for a disk is done by threads ([`workers`]),
//! which there are none of when there is nothing to do; data goes through the
//! reactor, by descriptors that are kept open ([`opens`]). A file that is removed
//! while clients have it open lives on by its descriptor; it is gone after a restart,
//! as with other servers.
//!
//! **Quotas** are counted by weft itself while there are any ([`quotas`], [`ledger`],
//! [`counting`]).

mod acls;
mod attributes;
mod below;
mod beneath;
mod content;
mod counting;
mod descriptor;
mod error;
mod file_syncs;
mod ledger;
mod listing;
mod local_changes;
mod names;
mod opens;
mod quotas;
mod resolve;
mod table;
mod task;
mod turns;
mod workers;
mod xattrs;

pub use acls::Acls;
pub use below::{Below, NameChange};
pub use error::{DirError, DirProblem};
pub(crate) use task::DirSteps;

use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use faults::Fault;
use reactor::{FileIo, Token};
use rustix::fs::{
    Access, AtFlags, FlockOperation, Mode, OFlags, accessat, flock, fstatfs, fstatvfs, getxattr,
};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use super::op::Move;
use super::{
    Asker, Caller, Error, FileId, FileSystem, FsOp, HandleKey, Info, LocalChange, Output, Progress,
    Quota, QuotaRefused, Quotas, Task, TellLocalChanges, Time, Watched,
};
use crate::regular::expect_own_file;
use below::Kernel;
use beneath::{Beneath, proc_path};
use listing::Stream;
use local_changes::LocalChanges;
use opens::Entries;
use quotas::{DirQuotas, Reserved};
use resolve::Budget;
use table::{HandleTable, Header, ROOT, TableRefused};
use task::TaskTurn;
use workers::{Synced, Syncs, Workers};

/// Locks for the entries of directories, by their numbers, and as many for the
/// attributes of objects.
const LOCKS: usize = 256;
/// In the state directory, locked while it is open.
const LOCK: &str = "lock";
/// Names of a file at most, where the file system below has no smaller limit.
const LINKS_MAX: u32 = 65_000;
/// Bytes of a file at most, where the file system below has no smaller limit.
const FILE_BYTES_MAX: u64 = i64::MAX as u64 - (1 << 32);
/// Descriptors that are kept open at least, and at most.
const DESCRIPTORS: (u64, u64) = (64, 1 << 16);

/// `f_type` of file systems that are not like the others (`linux/magic.h`).
const FUSE: i64 = 0x6573_5546;
const OVERLAY: i64 = 0x794c_7630;

/// Whose files are, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Those of the file system below, which weft may change.
    Real,
    /// Kept beside files that all belong to weft's user.
    Recorded,
}

/// A directory to be served.
#[derive(Clone, Debug)]
pub struct DirSpec {
    /// The file system's name in the configuration.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    /// Where handles are remembered: a folder of its own, which is made if it is
    /// not there, and not in the directory.
    pub state: PathBuf,
    /// Every change is refused.
    pub read_only: bool,
    /// `None`: real ones if weft may, else recorded ones.
    pub owners: Option<Owners>,
    /// `None`: whole ones where owners are recorded, else those of the file system below, if it
    /// has any.
    pub acls: Option<Acls>,
    /// Data goes past the page cache where it can (O_DIRECT).
    pub direct: bool,
}

/// A directory of the machine.
pub struct Dir {
    inner: Arc<DirInner>,
}

/// What tasks point to.
struct DirInner {
    info: Info,
    verifier: AtomicU64,
    owners: Owners,
    acls: Acls,
    /// That weft runs as.
    uid: u32,
    is_read_only: bool,
    is_direct: bool,
    /// That a file cannot be read and written past the cache.
    told_direct: AtomicBool,
    /// That a file cannot be watched.
    told_unwatched: AtomicBool,
    beneath: Beneath,
    table: Mutex<HandleTable>,
    /// Before the table, in ascending order.
    locks: Box<[RwLock<()>]>,
    /// Held for reading while a name moves, for writing by the search for one that
    /// has moved.
    topology: RwLock<()>,
    entries: Entries,
    streams: Mutex<Vec<Stream>>,
    budget: Mutex<Budget>,
    syncs: Mutex<Syncs>,
    quotas: Arc<DirQuotas>,
    workers: Workers,
    /// None in a simulator, where no local program runs.
    local_changes: Option<Arc<LocalChanges>>,
    below: Box<dyn Below>,
    /// Of the state directory, locked.
    lock: File,
}

/// A number that has not been before.
fn fresh() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    RandomState::new()
        .hash_one((since, std::process::id()))
        .max(1)
}

/// Whether this process may give files to any owner and use them all the same.
fn is_privileged() -> bool {
    // CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID.
    has_capabilities(1 << 0 | 1 << 1 | 1 << 3 | 1 << 4)
}

fn has_capabilities(needed: u64) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    // In a user namespace only some users exist.
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let users: Vec<&str> = users.split_whitespace().collect();
    effective.is_some_and(|effective| effective & needed == needed)
        && users == ["0", "0", "4294967295"]
}

impl Dir {
    /// Opens a directory and its state. Blocks.
    ///
    /// # Errors
    /// In words for the administrator ([`DirProblem`]).
    pub fn open(spec: &DirSpec) -> Result<Dir, DirError> {
        Dir::open_over(spec, Box::new(Kernel), None)
    }

    /// Descriptors that a directory keeps open at most, where the process may have
    /// `limit`.
    pub fn descriptors_max(limit: u64) -> u64 {
        (limit / 4).clamp(DESCRIPTORS.0, DESCRIPTORS.1)
    }

    /// Without a number of descriptors it has threads.
    fn open_over(
        spec: &DirSpec,
        below: Box<dyn Below>,
        descriptors_max: Option<usize>,
    ) -> Result<Dir, DirError> {
        let opened = Dir::try_open(spec, below, descriptors_max);
        opened.map_err(|problem| DirError {
            path: spec.path.clone(),
            problem,
        })
    }

    fn try_open(
        spec: &DirSpec,
        below: Box<dyn Below>,
        descriptors_max: Option<usize>,
    ) -> Result<Dir, DirProblem> {
        let DirectoryFound {
            beneath,
            kind,
            identity,
            owners,
            acls,
            uid,
            has_xattrs,
        } = DirectoryFound::at(spec)?;
        let lock = open_state(spec, beneath.root())?;
        let first = || Header::new(fresh(), identity, owners == Owners::Recorded, uid);
        let table = open_table(spec, kind != OVERLAY, first)?;
        check_state(spec, table.header(), &identity, (owners, uid))?;
        let room = fstatvfs(beneath.root());
        let room = room.map_err(|errno| system("examine", &spec.path, errno))?;
        let descriptors = || {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            // Each file has two.
            Dir::descriptors_max(limit) as usize / if spec.direct { 2 } else { 1 }
        };
        let verifier = fresh();
        let inner = DirInner {
            info: Info {
                name: spec.name.clone(),
                kind: "dir",
                instance: table.header().instance,
                handle_key: table.header().handle_key,
                verifier,
                file_bytes_max: FILE_BYTES_MAX,
                links_max: LINKS_MAX,
                clone_block_bytes: room.f_bsize as u32,
                has_xattrs,
                has_acls: acls != Acls::Off,
                has_labels: false,
                is_read_only: spec.read_only,
            },
            verifier: AtomicU64::new(verifier),
            owners,
            acls,
            uid,
            is_read_only: spec.read_only,
            is_direct: spec.direct,
            told_direct: AtomicBool::new(false),
            told_unwatched: AtomicBool::new(false),
            beneath,
            table: Mutex::new(table),
            locks: (0..2 * LOCKS).map(|_| RwLock::default()).collect(),
            topology: RwLock::default(),
            entries: Entries::new(descriptors_max.unwrap_or_else(descriptors)),
            streams: Mutex::default(),
            budget: Budget::new(),
            syncs: Mutex::default(),
            quotas: Arc::default(),
            workers: Workers::new(descriptors_max.is_none()),
            local_changes: descriptors_max.is_none().then(Arc::default),
            below,
            lock,
        };
        Ok(Dir {
            inner: Arc::new(inner),
        })
    }

    /// What would keep it from being opened, apart from its being open already.
    /// Nothing is made, changed or locked. Blocks.
    ///
    /// # Errors
    /// Those of [`Dir::open`].
    pub fn examine(spec: &DirSpec) -> Result<(), DirError> {
        let examined = DirectoryFound::at(spec).and_then(|found| {
            let state = std::path::absolute(&spec.state);
            let state = state.map_err(in_state(spec, "find the state directory"))?;
            // What is not there yet would be made in this one.
            if let Some(there) = state.ancestors().find(|path| path.exists()) {
                outside(spec, there, found.beneath.root())?;
            }
            expect_files(spec)?;
            match HandleTable::look(&spec.state).map_err(|why| refused(spec, why))? {
                Some(header) => {
                    check_state(spec, &header, &found.identity, (found.owners, found.uid))
                }
                None => Ok(()),
            }
        });
        examined.map_err(|problem| DirError {
            path: spec.path.clone(),
            problem,
        })
    }

    /// Whose files are, as clients see it.
    pub fn owners(&self) -> Owners {
        self.inner.owners
    }
}

/// A directory that can be served, as far as its state allows it.
struct DirectoryFound {
    beneath: Beneath,
    /// Of its file system.
    kind: i64,
    identity: table::ObjectIdentity,
    owners: Owners,
    acls: Acls,
    uid: u32,
    has_xattrs: bool,
}

impl DirectoryFound {
    fn at(spec: &DirSpec) -> Result<DirectoryFound, DirProblem> {
        let root = open_root(spec)?;
        let kind = fstatfs(&root).map_err(|errno| system("examine", &spec.path, errno))?;
        let kind = kind.f_type as i64;
        // What FUSE calls an object ends with the daemon.
        let beneath = Beneath::new(root, kind != FUSE).map_err(DirProblem::NoProc)?;
        let beneath = beneath.ok_or(DirProblem::OldKernel)?;
        let top = beneath
            .at(b"")
            .map_err(|errno| system("examine", &spec.path, errno))?;
        if top.identity.name == 0 && top.identity.born == 0 {
            return Err(DirProblem::NoIdentity);
        }
        let owners = spec.owners.unwrap_or_else(|| match is_privileged() {
            true => Owners::Real,
            false => Owners::Recorded,
        });
        let needs_xattrs = owners == Owners::Recorded && !spec.read_only;
        let probe = getxattr(proc_path(top.fd.as_fd()), "user.weft.owner", &mut [0; 64]);
        let has_xattrs = probe != Err(Errno::OPNOTSUPP);
        if needs_xattrs && !has_xattrs {
            return Err(DirProblem::NoXattrs);
        }
        let posix_acl = getxattr(proc_path(top.fd.as_fd()), acls::POSIX_ACCESS, &mut [0; 0]);
        let has_posix_acls = posix_acl != Err(Errno::OPNOTSUPP);
        Ok(DirectoryFound {
            beneath,
            kind,
            identity: top.identity,
            owners,
            acls: acls_of(spec, owners, (has_xattrs, has_posix_acls))?,
            uid: geteuid().as_raw(),
            has_xattrs,
        })
    }
}

/// What becomes of access control lists here.
fn acls_of(
    spec: &DirSpec,
    owners: Owners,
    (has_xattrs, has_posix_acls): (bool, bool),
) -> Result<Acls, DirProblem> {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let by_default = match owners {
        Owners::Recorded if has_xattrs => Acls::Nfs4,
        Owners::Real if has_posix_acls => Acls::Posix,
        _ => Acls::Off,
    };
    match spec.acls.unwrap_or(by_default) {
        Acls::Nfs4 if !has_xattrs => Err(DirProblem::NoXattrs),
        Acls::Nfs4 if owners == Owners::Real && !has_capabilities(CAP_SYS_ADMIN) => {
            Err(DirProblem::AclsUntrusted)
        }
        Acls::Posix if owners == Owners::Recorded => Err(DirProblem::AclsOfOthers),
        Acls::Posix if !has_posix_acls => Err(DirProblem::NoPosixAcls),
        acls => Ok(acls),
    }
}

fn system(action: &'static str, path: &Path, errno: Errno) -> DirProblem {
    DirProblem::System {
        action,
        path: path.to_owned(),
        source: errno.into(),
    }
}

/// The directory itself; the configured path may go through symbolic links.
fn open_root(spec: &DirSpec) -> Result<OwnedFd, DirProblem> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::open(&spec.path, flags, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Err(DirProblem::Missing),
        Err(Errno::NOTDIR) => return Err(DirProblem::NotADirectory),
        Err(errno) => return Err(system("open", &spec.path, errno)),
    };
    let may = |access| accessat(&root, ".", access, AtFlags::empty());
    may(Access::READ_OK | Access::EXEC_OK).map_err(|errno| match errno {
        Errno::ACCESS => DirProblem::NotReadable,
        errno => system("read", &spec.path, errno),
    })?;
    if !spec.read_only {
        may(Access::WRITE_OK).map_err(|errno| match errno {
            Errno::ACCESS | Errno::ROFS => DirProblem::NotWritable,
            errno => system("write", &spec.path, errno),
        })?;
    }
    Ok(root)
}

/// What the system answers about the state directory.
fn in_state(spec: &DirSpec, action: &'static str) -> impl FnOnce(io::Error) -> DirProblem {
    let path = spec.state.clone();
    move |source| DirProblem::System {
        action,
        path,
        source,
    }
}

/// The state directory, or where it is to be made, without links on the way: not in
/// the served one.
fn outside(spec: &DirSpec, state: &Path, root: BorrowedFd<'_>) -> Result<PathBuf, DirProblem> {
    let served = fs::canonicalize(proc_path(root)).map_err(DirProblem::NoProc)?;
    let state = fs::canonicalize(state);
    let state = state.map_err(in_state(spec, "find the state directory"))?;
    match state.starts_with(&served) {
        true => Err(DirProblem::StateInside(spec.state.clone())),
        false => Ok(state),
    }
}

/// Makes sure of the state directory, and locks it.
fn open_state(spec: &DirSpec, root: BorrowedFd<'_>) -> Result<File, DirProblem> {
    // Names of files are in it, which other users may not see.
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&spec.state);
    made.map_err(in_state(spec, "make the state directory"))?;
    let state = outside(spec, &spec.state, root)?;
    expect_files(spec)?;
    let lock = File::create(state.join(LOCK));
    let lock = lock.map_err(in_state(spec, "write the state directory"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(DirProblem::StateInUse(spec.state.clone())),
        Err(errno) => Err(system("lock the state directory", &spec.state, errno)),
    }
}

/// Refuses what lies in the place of a file of weft's in the state directory.
fn expect_files(spec: &DirSpec) -> Result<(), DirProblem> {
    [LOCK, table::OBJECTS, table::INDEX]
        .iter()
        .try_for_each(|name| expect_own_file(&spec.state.join(name)))
        .map_err(in_state(spec, "use the state directory"))
}

fn open_table(
    spec: &DirSpec,
    inos_are_unique: bool,
    first: impl FnOnce() -> Header,
) -> Result<HandleTable, DirProblem> {
    let key = HandleKey::random().map_err(in_state(spec, "make a key for the state in"))?;
    let table = HandleTable::open(&spec.state, inos_are_unique, key, first);
    table.map_err(|why| refused(spec, why))
}

fn refused(spec: &DirSpec, why: TableRefused) -> DirProblem {
    match why {
        TableRefused::System(source) => in_state(spec, "use the state in")(source),
        TableRefused::Damaged => DirProblem::StateDamaged(spec.state.clone()),
    }
}

/// Whether the state belongs to this directory and these privileges.
fn check_state(
    spec: &DirSpec,
    header: &Header,
    root: &table::ObjectIdentity,
    (owners, uid): (Owners, u32),
) -> Result<(), DirProblem> {
    if !header.root.is(root) {
        return Err(DirProblem::OtherDirectory(spec.state.clone()));
    }
    let is_recorded = owners == Owners::Recorded;
    if header.is_recorded != is_recorded || (is_recorded && header.uid != uid) {
        return Err(DirProblem::OtherOwners {
            state: spec.state.clone(),
            uid: header.uid,
            was_recorded: header.is_recorded,
        });
    }
    Ok(())
}

impl Drop for Dir {
    fn drop(&mut self) {
        self.inner.quotas.counting.stop();
        self.inner.workers.end();
        if let Some(changes) = &self.inner.local_changes {
            changes.end();
        }
    }
}

impl Drop for DirInner {
    fn drop(&mut self) {
        if let Err(error) = self.table().close() {
            self.table_lost(&error);
        }
        // Said, not left to the close: a process that was being started at this
        // moment may have a copy of the descriptor.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl DirInner {
    fn check_writable(&self) -> Result<(), Error> {
        match self.is_read_only {
            true => Err(Error::RoFs),
            false => Ok(()),
        }
    }

    /// The table may lack what was written to it.
    fn table_lost(&self, error: &dyn fmt::Display) {
        tracing::error!(
            file_system = self.info.name,
            state = %self.table().folder().display(),
            %error,
            "the table of file handles is not on the disk: free space in its folder, or mend its \
             disk; until then file handles that were given out lately may be stale after a crash"
        );
    }

    /// A file cannot be watched: where that is for want of room it is said once.
    fn tell_unwatched(&self, errno: Errno) -> Error {
        let lacks_room = matches!(errno, Errno::MFILE | Errno::NOSPC | Errno::NOMEM);
        if lacks_room && !self.told_unwatched.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                file_system = self.info.name,
                error = %io::Error::from(errno),
                "changes by local programs cannot be watched, so clients get no delegations of \
                 some files: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches"
            );
        }
        errno.into()
    }

    /// Something that was written to `fd` may not be on the disk, and never will be.
    fn lost(&self, what: &str, fd: impl AsFd, error: impl fmt::Display) {
        let path = fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
        tracing::error!(
            file_system = self.info.name,
            path = %path.unwrap_or_default().display(),
            %error,
            "{what} could not be brought to the disk: check the disk and its free space; clients \
             write again what they have not committed"
        );
        if !faults::is(Fault::KeepVerifier) {
            self.verifier.store(fresh(), Ordering::Release);
        }
    }

    /// An operation, as far as it does not move data.
    fn run(
        &self,
        caller: &Caller<'_>,
        op: &FsOp<'_>,
        synced: &mut Synced,
    ) -> Result<Output, Error> {
        Ok(match *op {
            FsOp::Lookup { dir, name } => Output::File(self.lookup(caller, dir, name)?),
            FsOp::Parent { dir } => Output::File(self.parent(caller, dir)?),
            FsOp::Getattr { file } => Output::Attr(self.getattr(file)?),
            FsOp::Setattr {
                file,
                ref set,
                guard,
            } => Output::Attr(self.setattr(caller, file, set, guard, synced)?),
            FsOp::Create {
                dir,
                name,
                new,
                ref set,
            } => self.create(caller, (dir, name), (new, set), synced)?,
            FsOp::Link { file, dir, name } => {
                Output::Change(self.link(caller, file, (dir, name), synced)?)
            }
            FsOp::Remove { dir, name, what } => self.remove(caller, (dir, name), what, synced)?,
            FsOp::Rename {
                from_dir,
                from,
                to_dir,
                to,
            } => self.rename(caller, (from_dir, from), (to_dir, to), synced)?,
            FsOp::Readlink { file } => Output::Bytes(self.readlink(file)?),
            FsOp::Readdir { .. } => Output::Listing(self.readdir(caller, op)?),
            FsOp::GetXattr { file, name } => Output::Bytes(self.get_xattr(caller, file, name)?),
            FsOp::SetXattr {
                file,
                name,
                value,
                how,
            } => Output::Change(self.set_xattr(caller, (file, name), (value, how), synced)?),
            FsOp::ListXattrs {
                file,
                cookie,
                name_bytes_max,
            } => Output::Listing(self.list_xattrs(caller, file, cookie, name_bytes_max)?),
            FsOp::RemoveXattr { file, name } => {
                Output::Change(self.remove_xattr(caller, (file, name), synced)?)
            }
            FsOp::Seek { file, offset, what } => self.seek(caller, file, offset, what)?,
            FsOp::ReadAhead { file, offset, len } => {
                Output::ReadAhead(self.read_ahead(caller, file, (offset, len))?)
            }
            FsOp::Statfs { file } => Output::Statfs(self.statfs_of(caller, file)?),
            _ => {
                self.run_without_output(caller, op)?;
                Output::Done
            }
        })
    }

    /// Operations that have nothing to say but that they are done.
    fn run_without_output(&self, caller: &Caller<'_>, op: &FsOp<'_>) -> Result<(), Error> {
        match *op {
            FsOp::Open { file, read, write } => self.open(caller, file, read, write),
            FsOp::Close { file } => self.close(file),
            FsOp::Allocate { file, offset, len } => {
                self.allocate(caller, file, (offset, len), false)
            }
            FsOp::Deallocate { file, offset, len } => {
                self.allocate(caller, file, (offset, len), true)
            }
            _ => match Move::of(op) {
                Some(what) => self.clone(caller, &what),
                None => unreachable!("data goes through the reactor"),
            },
        }
    }
}

impl FileSystem for Dir {
    fn info(&self) -> &Info {
        &self.inner.info
    }

    #[inline]
    fn root(&self) -> FileId {
        FileId(ROOT)
    }

    fn verifier(&self) -> u64 {
        self.inner.verifier.load(Ordering::Acquire)
    }

    fn quotas(&self) -> Option<&Quotas> {
        let quotas = &*self.inner.quotas;
        quotas.is_on().then_some(&quotas.accounts)
    }

    fn set_quotas(&self, list: &[Quota], _: Time) -> Result<(), QuotaRefused> {
        self.inner.set_quotas(list)
    }

    fn tell_local_changes(&self, tell: TellLocalChanges) {
        if let Some(changes) = &self.inner.local_changes {
            changes.set_tell(tell);
        }
    }

    fn take_local_change(&self) -> Option<(FileId, LocalChange)> {
        self.inner.local_changes.as_ref()?.take()
    }

    fn watch(&self, file: FileId, is_written: bool) -> Result<Option<Watched>, Error> {
        let Some(changes) = &self.inner.local_changes else {
            return Ok(None);
        };
        // It may be closed for want of descriptors.
        let open = self.inner.entries.pinned(file).ok_or(Error::Delay)?;
        let watched = changes.watch((file, open.as_fd()), is_written);
        watched
            .map(Some)
            .map_err(|errno| self.inner.tell_unwatched(errno))
    }

    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let turn = TaskTurn {
            inner: &self.inner,
            files,
            token,
            from: caller.from,
            room: Reserved::default(),
        };
        turn.start(caller, op)
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let turn = TaskTurn {
            inner: &self.inner,
            files,
            token,
            // The task knows.
            from: Asker::default(),
            room: Reserved::default(),
        };
        turn.resume(task.into_dir(), result)
    }
}

#[cfg(test)]
mod tests;
