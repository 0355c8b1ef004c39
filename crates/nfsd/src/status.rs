//! What a file system refuses, in the words of NFSv4.

use store::fs::Error;
use wire::nfs4::nfsstat4;

/// The status that bears the same name; of those that a minor version does not
/// have, the one that it has instead.
#[cold]
pub(crate) fn status(error: Error, minor: u32) -> nfsstat4 {
    match error {
        Error::Perm => nfsstat4::NFS4ERR_PERM,
        Error::NoEnt => nfsstat4::NFS4ERR_NOENT,
        Error::Io => nfsstat4::NFS4ERR_IO,
        Error::Nxio => nfsstat4::NFS4ERR_NXIO,
        Error::Access => nfsstat4::NFS4ERR_ACCESS,
        Error::Exist => nfsstat4::NFS4ERR_EXIST,
        Error::XDev => nfsstat4::NFS4ERR_XDEV,
        Error::NotDir => nfsstat4::NFS4ERR_NOTDIR,
        Error::IsDir => nfsstat4::NFS4ERR_ISDIR,
        Error::Inval => nfsstat4::NFS4ERR_INVAL,
        Error::FBig => nfsstat4::NFS4ERR_FBIG,
        Error::NoSpc => nfsstat4::NFS4ERR_NOSPC,
        Error::RoFs => nfsstat4::NFS4ERR_ROFS,
        Error::MLink => nfsstat4::NFS4ERR_MLINK,
        Error::NameTooLong => nfsstat4::NFS4ERR_NAMETOOLONG,
        Error::NotEmpty => nfsstat4::NFS4ERR_NOTEMPTY,
        Error::DQuot => nfsstat4::NFS4ERR_DQUOT,
        Error::Stale => nfsstat4::NFS4ERR_STALE,
        Error::BadCookie => nfsstat4::NFS4ERR_BAD_COOKIE,
        Error::NotSame | Error::NotSync => nfsstat4::NFS4ERR_NOT_SAME,
        Error::NotSupp => nfsstat4::NFS4ERR_NOTSUPP,
        Error::TooSmall => nfsstat4::NFS4ERR_TOOSMALL,
        Error::Delay => nfsstat4::NFS4ERR_DELAY,
        Error::BadName => nfsstat4::NFS4ERR_BADNAME,
        Error::BadChar => nfsstat4::NFS4ERR_BADCHAR,
        Error::BadType => nfsstat4::NFS4ERR_BADTYPE,
        Error::Symlink => nfsstat4::NFS4ERR_SYMLINK,
        Error::WrongType if minor == 0 => nfsstat4::NFS4ERR_INVAL,
        Error::WrongType => nfsstat4::NFS4ERR_WRONG_TYPE,
        Error::NoXattr => nfsstat4::NFS4ERR_NOXATTR,
        Error::Xattr2Big => nfsstat4::NFS4ERR_XATTR2BIG,
        Error::AttrNotSupp => nfsstat4::NFS4ERR_ATTRNOTSUPP,
    }
}
