//! What the system below refuses, in the words of clients; and what is in the
//! way of serving a directory.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::fs::Error;

/// One row for each errno that says what a client should hear.
const STATUS: &[(Errno, Error)] = &[
    (Errno::PERM, Error::Perm),
    (Errno::NOENT, Error::NoEnt),
    (Errno::NXIO, Error::Nxio),
    (Errno::ACCESS, Error::Access),
    (Errno::EXIST, Error::Exist),
    (Errno::NOTDIR, Error::NotDir),
    (Errno::ISDIR, Error::IsDir),
    (Errno::INVAL, Error::Inval),
    (Errno::FBIG, Error::FBig),
    (Errno::OVERFLOW, Error::FBig),
    (Errno::NOSPC, Error::NoSpc),
    (Errno::ROFS, Error::RoFs),
    (Errno::MLINK, Error::MLink),
    (Errno::NAMETOOLONG, Error::NameTooLong),
    (Errno::NOTEMPTY, Error::NotEmpty),
    (Errno::DQUOT, Error::DQuot),
    (Errno::STALE, Error::Stale),
    (Errno::OPNOTSUPP, Error::NotSupp),
    (Errno::NOSYS, Error::NotSupp),
    (Errno::NOTTY, Error::NotSupp),
    (Errno::LOOP, Error::Symlink),
    (Errno::NODATA, Error::NoXattr),
    (Errno::TOOBIG, Error::Xattr2Big),
    (Errno::RANGE, Error::Xattr2Big),
    // Too many descriptors, too little memory: to be tried again.
    (Errno::MFILE, Error::Delay),
    (Errno::NFILE, Error::Delay),
    (Errno::NOMEM, Error::Delay),
    (Errno::AGAIN, Error::Delay),
    (Errno::INTR, Error::Delay),
    // A mount point, or a program that runs: no wait helps.
    (Errno::BUSY, Error::Access),
    (Errno::TXTBSY, Error::Access),
    (Errno::XDEV, Error::XDev),
];

pub(super) fn status(errno: Errno) -> Error {
    let row = STATUS.iter().find(|(of, _)| *of == errno);
    row.map_or(Error::Io, |&(_, error)| error)
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        status(errno)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Errno::from_io_error(&error).map_or(Error::Io, status)
    }
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve the directory {}: {problem}", .path.display())]
pub struct DirError {
    /// The directory.
    pub path: PathBuf,
    /// What is in the way.
    pub problem: DirProblem,
}

/// What is in the way of serving a directory.
#[derive(Debug, thiserror::Error)]
pub enum DirProblem {
    /// It is not there.
    #[error("it does not exist: create it with 'mkdir -p'")]
    Missing,
    /// It is a file, or a symbolic link to one.
    #[error("it is not a directory")]
    NotADirectory,
    /// It may not be listed.
    #[error("it cannot be listed: let weft's user list it")]
    NotReadable,
    /// It may not be written, and is not to be served read only.
    #[error("it cannot be written: let the user that runs weft write it, or serve it read only")]
    NotWritable,
    /// Its file system does not say when objects were made, nor what it calls
    /// them: a handle could come to mean another file.
    #[error(
        "its file system neither names its objects nor records when they were made, so that a \
         file handle could come to mean another file: use ext4, XFS, Btrfs or a newer tmpfs"
    )]
    NoIdentity,
    /// Without privileges owners are kept in extended attributes, which its
    /// file system has not.
    #[error(
        "its file system has no extended attributes of users, in which access control lists are \
         kept, and owners when weft has no privileges: use ext4, XFS or Btrfs, or run weft with CAP_CHOWN, CAP_FOWNER and \
         CAP_DAC_OVERRIDE"
    )]
    NoXattrs,
    /// Files of local users have lists in attributes that only CAP_SYS_ADMIN may write.
    #[error(
        "access control lists of files with real owners are kept where no local user may change \
         them, which takes CAP_SYS_ADMIN: run weft with it, or set acl = \"none\""
    )]
    AclsUntrusted,
    /// Lists of POSIX name users of this machine, and without privileges files belong to none
    /// of them.
    #[error(
        "acl = \"posix\" takes real owners, which weft may set with CAP_CHOWN, CAP_FOWNER, \
         CAP_FSETID and CAP_DAC_OVERRIDE alone: run it with these, or set acl = \"nfs4\""
    )]
    AclsOfOthers,
    /// The file system below has no lists of POSIX.
    #[error(
        "its file system has no access control lists of POSIX: mount it with them, use ext4, XFS \
         or Btrfs, or set acl = \"nfs4\" or \"none\""
    )]
    NoPosixAcls,
    /// The kernel is older than Linux 5.8.
    #[error("it takes Linux 5.8 or newer")]
    OldKernel,
    /// `/proc` is not there.
    #[error("/proc/self/fd cannot be opened ({0}): mount /proc")]
    NoProc(io::Error),
    /// The state directory lies in the served one.
    #[error(
        "the state directory {} lies in it, where clients could change it: choose one outside",
        .0.display()
    )]
    StateInside(PathBuf),
    /// Another process, or another file system of this one, has it.
    #[error(
        "the state directory {} is in use: stop the other weft, or give each file system its own",
        .0.display()
    )]
    StateInUse(PathBuf),
    /// The state belongs to another directory.
    #[error(
        "the state directory {} belongs to another directory (is the right file system \
         mounted?): choose another one, or remove what is in it, with which all file handles end",
        .0.display()
    )]
    OtherDirectory(PathBuf),
    /// The state was made by another user, or with other privileges.
    #[error(
        "when weft first served it, as the user {uid}, owners of files were {} (as {} says): {}",
        owners(*was_recorded).0, .state.display(), owners(*was_recorded).1
    )]
    OtherOwners {
        /// The state directory.
        state: PathBuf,
        /// The user that weft ran as then.
        uid: u32,
        /// Whether owners were recorded then, not real.
        was_recorded: bool,
    },
    /// The state cannot be read.
    #[error(
        "the state in {} is damaged: remove what is in it, with which all file handles end (they \
         would with a copy from a backup, too)",
        .0.display()
    )]
    StateDamaged(PathBuf),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}{}", .path.display(), crate::remedy(.source))]
    System {
        /// What was tried, as in "cannot ...".
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

/// How owners were kept, and what to do to keep them so again.
fn owners(were_recorded: bool) -> (&'static str, &'static str) {
    match were_recorded {
        true => (
            "recorded beside the files",
            "run it as that user, without privileges",
        ),
        false => (
            "real",
            "give it CAP_CHOWN, CAP_FOWNER and CAP_DAC_OVERRIDE again",
        ),
    }
}
