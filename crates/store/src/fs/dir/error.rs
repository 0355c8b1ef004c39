//! What the system below refuses, in the words of clients; and what is in the
//! way of serving a directory.

use std::fmt;
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
#[derive(Debug)]
pub struct DirError {
    /// The directory.
    pub path: PathBuf,
    /// What is in the way.
    pub problem: DirProblem,
}

/// What is in the way of serving a directory.
#[derive(Debug)]
pub enum DirProblem {
    /// It is not there.
    Missing,
    /// It is a file, or a symbolic link to one.
    NotADirectory,
    /// It may not be listed.
    NotReadable,
    /// It may not be written, and is not to be served read only.
    NotWritable,
    /// Its file system does not say when objects were made, nor what it calls
    /// them: a handle could come to mean another file.
    NoIdentity,
    /// Without privileges owners are kept in extended attributes, which its
    /// file system has not.
    NoXattrs,
    /// The kernel is older than Linux 5.8.
    OldKernel,
    /// `/proc` is not there.
    NoProc(io::Error),
    /// The state directory lies in the served one.
    StateInside(PathBuf),
    /// Another process, or another file system of this one, has it.
    StateInUse(PathBuf),
    /// The state belongs to another directory.
    OtherDirectory(PathBuf),
    /// The state was made by another user, or with other privileges.
    OtherOwners {
        /// The state directory.
        state: PathBuf,
        /// The user that weft ran as then.
        uid: u32,
        /// Whether owners were recorded then, not real.
        was_recorded: bool,
    },
    /// The state cannot be read.
    StateDamaged(PathBuf),
    /// The operating system refused.
    System {
        /// What was tried, as in "cannot ...".
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

impl fmt::Display for DirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot serve the directory {}: ", self.path.display())?;
        match &self.problem {
            DirProblem::Missing => f.write_str("it does not exist: create it with 'mkdir -p'"),
            DirProblem::NotADirectory => f.write_str("it is not a directory"),
            DirProblem::NotReadable => f.write_str("it cannot be listed: let weft's user list it"),
            DirProblem::NotWritable => f.write_str(
                "it cannot be written: let the user that runs weft write it, or serve it \
                 read only",
            ),
            DirProblem::NoIdentity => f.write_str(
                "its file system neither names its objects nor records when they were made, so \
                 that a file handle could come to mean another file: use ext4, XFS, Btrfs or a \
                 newer tmpfs",
            ),
            DirProblem::NoXattrs => f.write_str(
                "its file system has no extended attributes of users, in which owners are kept \
                 when weft has no privileges: use ext4, XFS or Btrfs, or run weft with \
                 CAP_CHOWN, CAP_FOWNER and CAP_DAC_OVERRIDE",
            ),
            DirProblem::OldKernel => f.write_str("it takes Linux 5.8 or newer"),
            DirProblem::NoProc(source) => {
                write!(f, "/proc/self/fd cannot be opened ({source}): mount /proc")
            }
            DirProblem::StateInside(state) => write!(
                f,
                "the state directory {} lies in it, where clients could change it: choose one \
                 outside",
                state.display()
            ),
            DirProblem::StateInUse(state) => write!(
                f,
                "the state directory {} is in use: stop the other weft, or give each file \
                 system its own",
                state.display()
            ),
            DirProblem::OtherDirectory(state) => write!(
                f,
                "the state directory {} belongs to another directory (is the right file system \
                 mounted?): choose another one, or remove what is in it, with which all file \
                 handles end",
                state.display()
            ),
            DirProblem::OtherOwners {
                state,
                uid,
                was_recorded,
            } => {
                let (how, remedy) = match was_recorded {
                    true => (
                        "recorded beside the files",
                        "run it as that user, without privileges",
                    ),
                    false => (
                        "real",
                        "give it CAP_CHOWN, CAP_FOWNER and CAP_DAC_OVERRIDE again",
                    ),
                };
                write!(
                    f,
                    "when weft first served it, as the user {uid}, owners of files were {how} \
                     (as {} says): {remedy}",
                    state.display()
                )
            }
            DirProblem::StateDamaged(state) => write!(
                f,
                "the state in {} is damaged: remove what is in it, with which all file handles \
                 end (they would with a copy from a backup, too)",
                state.display()
            ),
            DirProblem::System {
                action,
                path,
                source,
            } => write!(f, "cannot {action} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for DirError {}
