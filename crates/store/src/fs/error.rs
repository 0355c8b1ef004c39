//! Why an operation of a file system was refused.

/// Why an operation was refused; nothing of it was done unless it says how
/// far it came. One to one with the status of RFC 7530, section 13.1, RFC 5661,
/// section 15.1, RFC 7862, section 11.1 and RFC 8276, section 8.5 that bears
/// the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("NFS4ERR_{}", format!("{self:?}").to_uppercase())]
pub enum Error {
    /// Only the owner, or the superuser, may do this.
    Perm,
    /// There is no such name, or the directory was removed.
    NoEnt,
    /// The medium below failed.
    Io,
    /// Beyond the end of the file (SEEK).
    Nxio,
    /// Permission bits forbid it.
    Access,
    /// The name exists already.
    Exist,
    /// Objects of two file systems.
    XDev,
    /// Not a directory.
    NotDir,
    /// A directory.
    IsDir,
    /// An argument makes no sense.
    Inval,
    /// Larger than a file may be.
    FBig,
    /// The file system is full.
    NoSpc,
    /// The file system may not be changed.
    RoFs,
    /// Too many links.
    MLink,
    /// A name or a path is too long.
    NameTooLong,
    /// The directory has entries.
    NotEmpty,
    /// A quota is used up.
    DQuot,
    /// The object is gone; the file handle names nothing any more.
    Stale,
    /// A cookie that was never given out.
    BadCookie,
    /// The cookie verifier is of another time.
    NotSame,
    /// The file system cannot do this.
    NotSupp,
    /// Not even one entry fits.
    TooSmall,
    /// Something is in the way for a while: to be tried again.
    Delay,
    /// The guard of a SETATTR does not hold (NFSv3).
    NotSync,
    /// `.` or `..` where a name should be.
    BadName,
    /// A byte that no name may have.
    BadChar,
    /// No object of such a kind can be made.
    BadType,
    /// A symbolic link where a file should be.
    Symlink,
    /// Neither file nor directory nor symbolic link, where a file should be.
    WrongType,
    /// There is no such extended attribute.
    NoXattr,
    /// The value, or all of them together, would be too large.
    Xattr2Big,
    /// An attribute that cannot be kept, or not so.
    AttrNotSupp,
}
