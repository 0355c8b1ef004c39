//! What is served as files: file systems.
//!
//! A [`FileSystem`] is a tree of objects. It is driven from any number of
//! reactors at once and holds no state of an operation: what a started one
//! still needs is a [`Task`] that its driver keeps. What a caller may do is
//! decided here ([`access`]), by POSIX permission bits or an access control list, and
//! the caller's credentials.
//!
//! | kind  | holds                                      | lasts                  |
//! |-------|--------------------------------------------|------------------------|
//! | `mem` | its own memory, up to a limit ([`Memory`]) | as long as the process |
//! | `dir` | a directory of the machine ([`Dir`])       | as long as that        |
//!
//! An object that has lost its last name goes, unless a client has it open: the
//! server of files says [`FsOp::Open`] for each open of a client and
//! [`FsOp::Close`] when that ends, for whatever reason; the last of them takes the
//! object away. Directories cannot be kept so.

pub mod access;
mod acl;
mod dir;
mod error;
mod label;
mod memory;
mod name;
mod op;
mod quota;
mod types;

pub use acl::{ACES_MAX, Ace, AceKind, AceWho, Acl, AclVerdict, Inheritance, PosixAcl, Rights};
pub use dir::{Acls, Below, Dir, DirError, DirProblem, DirSpec, NameChange, Owners};
pub use error::Error;
pub use label::{LABEL_BYTES_MAX, Label};
pub use memory::{Memory, XATTR_BYTES_MAX, XATTRS_BYTES_MAX};
pub use name::{NAME_BYTES_MAX, SYMLINK_BYTES_MAX, check_name, check_symlink, check_xattr_name};
pub use op::{
    Entry, FsOp, Listing, New, Output, Progress, READ_AHEAD_BYTES_MAX, Removable, Seek, SetXattr,
    Task, Written,
};
pub use quota::{
    GRACE_S_DEFAULT, Quota, QuotaCount, QuotaEvent, QuotaLimits, QuotaRefused, QuotaRoom,
    QuotaSubject, QuotaUsage, Quotas,
};
pub use types::{
    Asker, Attr, Caller, ChangeInfo, Device, FileId, HandleKey, Info, LocalChange, MODE_MASK,
    ObjectKind, SET_GID, SET_UID, STICKY, SetAttr, SetTime, Statfs, TellLocalChanges, Time,
    Watched,
};

use std::io::Result as IoResult;

use ::mem::Loan;
use reactor::{FileIo, Token};

/// A tree of objects.
pub trait FileSystem: Send + Sync {
    /// What it is.
    fn info(&self) -> &Info;

    /// Its uppermost directory, for all time.
    fn root(&self) -> FileId;

    /// Writes that were not committed may be lost when this changes (RFC 5661,
    /// section 18.3, `writeverf`): with a restart, or where a sync has failed.
    #[inline]
    fn verifier(&self) -> u64 {
        self.info().verifier
    }

    /// What counts against quotas there. `None` where the file system counts nothing.
    fn quotas(&self) -> Option<&Quotas> {
        None
    }

    /// From now on these are the limits of quotas, and no others. What is there is counted
    /// before this returns, which takes long where a tree is large, or in the background as long
    /// as [`Quotas::is_counting`].
    ///
    /// # Errors
    /// Why nothing has changed.
    fn set_quotas(&self, list: &[Quota], _now: Time) -> Result<(), QuotaRefused> {
        match list.first() {
            None => Ok(()),
            Some(quota) => Err(QuotaRefused {
                subject: quota.subject.clone(),
                error: Error::NotSupp,
            }),
        }
    }

    /// This is called from now on, by any thread, when there is something to be had by
    /// [`FileSystem::take_local_change`] and was nothing before. Only the first counts.
    fn tell_local_changes(&self, _tell: TellLocalChanges) {}

    /// What local programs have done to a file that is watched, until there is nothing more.
    fn take_local_change(&self) -> Option<(FileId, LocalChange)> {
        None
    }

    /// Watches a file that a client has open for what local programs do to it, of one that the
    /// client writes alone (`is_written`) that they open it, until what is returned is
    /// dropped. `None` where no local program reaches it. Asks the kernel, and does not wait for
    /// a disk.
    ///
    /// # Errors
    /// Changes would not be told.
    fn watch(&self, _file: FileId, _is_written: bool) -> Result<Option<Watched>, Error> {
        Ok(None)
    }

    /// Begins an operation. What completes for it carries `token`, one at a
    /// time per task.
    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress;

    /// Goes on with a task whose completion has come with `result`.
    fn resume(
        &self,
        task: Task,
        result: IoResult<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress;

    /// A whole read of up to `len` bytes, done: where the data lies, as far as
    /// the file goes, which stays as it is while the loan lives; and whether
    /// the file ends there. `None` where the data is not memory in one piece
    /// or will not be lent now: start an [`FsOp::Read`].
    #[inline]
    fn lend(
        &self,
        _caller: &Caller<'_>,
        _file: FileId,
        _offset: u64,
        _len: u32,
    ) -> Option<Result<(Loan, bool), Error>> {
        None
    }

    /// Memory to receive a write of `len` bytes to `offset` of some file into,
    /// which no reader sees before it is given to [`FileSystem::commit`]; dropping
    /// it takes the write back. Nothing is checked yet. `None` where that does not
    /// pay or cannot be had now: receive the data into a buffer and start an
    /// [`FsOp::Write`].
    #[inline]
    fn borrow(&self, _offset: u64, _len: u32) -> Option<Loan> {
        None
    }

    /// Makes what [`FileSystem::borrow`] has lent for this very offset the
    /// content of a file there: a whole write, done when this returns, and
    /// stable as far as it ever will be. On an error nothing is written; after
    /// [`Error::Delay`] it may be tried again.
    fn commit(
        &self,
        _caller: &Caller<'_>,
        _loan: &mut Loan,
        _file: FileId,
        _offset: u64,
    ) -> Result<Written, Error> {
        unreachable!("this file system lends nothing")
    }

    /// A whole write of bytes that are at hand, done when this returns. `None`
    /// if the file system is not memory: start an [`FsOp::Write`].
    #[inline]
    fn write_now(
        &self,
        _caller: &Caller<'_>,
        _file: FileId,
        _offset: u64,
        _bytes: &[u8],
    ) -> Option<Result<Written, Error>> {
        None
    }
}
