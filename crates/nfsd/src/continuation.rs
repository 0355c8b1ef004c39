//! How an operation goes on when what it asked for is there.

use std::sync::Arc;

use nfs::attributes::{AskedAttributes, FreeSpace};
use nfs::server::Client;
use nfs::server::files::{OpenOutcome, ShareReservation};
use store::fs::{Attr, FileId};
use wire::nfs4::{change_info4, stateid4, verifier4};

use crate::owner_seqid::OwnerRequest;
use crate::payload::{ReadUnderWay, WriteUnderWay};

/// How an operation goes on when what it asked for is there: in the family that
/// it belongs to.
pub(crate) enum Continuation {
    Names(ThenNames),
    Readdir(ThenReaddir),
    Security(ThenSecinfo),
    Attributes(ThenAttributes),
    Data(ThenData),
    Session(ThenSession),
    Open(ThenOpen),
    Lock(ThenLock),
    Offload(ThenCopy),
}

/// How an operation goes on.
pub(crate) enum ThenNames {
    Lookup,
    Parent,
    Create,
    Link,
    Readlink,
    /// The object is known that is to lose its name.
    RemoveFound,
    Remove,
    /// The object is known that is to get another name.
    RenameSource,
    /// The object is known, if there is one, whose name it gets.
    RenameTarget,
    Rename,
    /// RENAME was refused: are both directories?
    RenameKind {
        /// The one under the current file handle was looked at.
        is_goal: bool,
    },
}

/// How an operation goes on.
pub(crate) enum ThenReaddir {
    /// With the room that there is in the file system.
    Room,
    /// With entries, for which so many bytes are reserved.
    Listing(FreeSpace, u32),
    /// With the attributes of the root of an export, whose entry has this
    /// cookie.
    Root(u64),
}

/// How an operation goes on.
pub(crate) enum ThenSecinfo {
    /// What was asked about is there, in the export of the current file handle.
    Found,
}

/// How an operation goes on.
pub(crate) enum ThenAttributes {
    /// ACCESS, of these rights.
    Access(u32),
    /// GETATTR, when the room in the file system is known.
    GetattrRoom(AskedAttributes),
    Getattr(AskedAttributes, FreeSpace),
    VerifyRoom,
    Verify(FreeSpace),
    /// With the file's times changed, whose size at the client that writes it is this; what it was
    /// like before, where that may be told as well.
    Touched(u64, Option<Box<Attr>>, Box<ThenAttributes>),
    Setattr,
    GetXattr,
    ChangeXattr,
    ListXattrs,
}

/// How an operation goes on.
pub(crate) enum ThenData {
    /// With a piece of this, or the next turn; whether the caller has the file open.
    Read(ReadUnderWay, bool),
    /// The same, with the verifier of before.
    Write(WriteUnderWay, verifier4, bool),
    Commit,
    Seek,
    Change,
    ReadAhead,
}

/// How an operation goes on.
pub(crate) enum ThenSession {
    /// RECLAIM_COMPLETE: its client is on record.
    Recorded,
}

/// How an operation goes on.
pub(crate) enum ThenOpen {
    /// OPEN knows the directory as it is.
    Directory(Box<Opening>),
    /// OPEN has found a name.
    Found(Box<Opening>),
    /// OPEN has found a name or made it.
    Created(Box<Opening>),
    /// OPEN knows whose the file is that was open before the server started.
    Owned(Box<Opening>),
    /// The file may be opened, and is held.
    Held(Box<Opening>),
    /// It is open, and records are safe: of its client, and of clients that were
    /// expired for it.
    Granted(Box<Opening>),
    /// The file is empty now.
    Truncated(Box<Opening>),
    /// The attributes are known that the client has with its write delegation.
    Delegated(Box<Opening>),
    /// CLOSE, whose state is gone, has let the file go.
    Closed(OwnerRequest),
    /// DELEGRETURN likewise, of a delegation instead of an open.
    Returned,
}

/// How an operation goes on.
pub(crate) enum ThenLock {
    /// LOCK has the lock, of which this is the state id, and records are safe.
    Recorded(OwnerRequest, OwnerRequest, stateid4),
    /// LOCKT knows what the current file handle is.
    Kind,
}

/// How an operation goes on.
pub(crate) enum ThenCopy {
    /// COPY knows how long its source is.
    Size,
    /// COPY is done. With the verifier of before: what is lost meanwhile may be
    /// what it wrote.
    Copied(u64),
}

/// An OPEN under way.
pub(crate) struct Opening {
    pub(crate) turn: OwnerRequest,
    pub(crate) client: Arc<Client>,
    pub(crate) share: ShareReservation,
    /// The file, once it is known.
    pub(crate) file: FileId,
    pub(crate) change: change_info4,
    /// It was made by this OPEN, or by the same one before.
    pub(crate) is_made: bool,
    /// It is to be emptied once it is open.
    pub(crate) truncates: bool,
    pub(crate) opened: Option<OpenOutcome>,
}
