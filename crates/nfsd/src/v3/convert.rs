//! Between what file systems say and what NFSv3 says (RFC 1813, sections 2.4 to
//! 2.6).

use store::fs::{Attr, Device, Error, MODE_MASK, New, ObjectKind, SetAttr, SetTime, Time};
use wire::nfs3::{
    createhow3, fattr3, ftype3, mknoddata3, nfsstat3, nfstime3, sattr3, set_atime, set_mtime,
    specdata3, wcc_attr, wcc_data,
};

/// The status that says what a file system said. What `.` and `..` are refused
/// with depends on the procedure: `dots`.
pub(super) fn status(error: Error, dots: nfsstat3) -> nfsstat3 {
    match error {
        Error::Perm => nfsstat3::NFS3ERR_PERM,
        Error::NoEnt => nfsstat3::NFS3ERR_NOENT,
        Error::Io => nfsstat3::NFS3ERR_IO,
        Error::Nxio => nfsstat3::NFS3ERR_NXIO,
        Error::Access => nfsstat3::NFS3ERR_ACCES,
        Error::Exist => nfsstat3::NFS3ERR_EXIST,
        Error::XDev => nfsstat3::NFS3ERR_XDEV,
        Error::NotDir => nfsstat3::NFS3ERR_NOTDIR,
        Error::IsDir => nfsstat3::NFS3ERR_ISDIR,
        Error::Inval | Error::BadChar | Error::WrongType => nfsstat3::NFS3ERR_INVAL,
        Error::FBig | Error::Xattr2Big => nfsstat3::NFS3ERR_FBIG,
        Error::NoSpc => nfsstat3::NFS3ERR_NOSPC,
        Error::RoFs => nfsstat3::NFS3ERR_ROFS,
        Error::MLink => nfsstat3::NFS3ERR_MLINK,
        Error::NameTooLong => nfsstat3::NFS3ERR_NAMETOOLONG,
        Error::NotEmpty => nfsstat3::NFS3ERR_NOTEMPTY,
        Error::DQuot => nfsstat3::NFS3ERR_DQUOT,
        Error::Stale => nfsstat3::NFS3ERR_STALE,
        // There is one status for what READDIR cannot go on with.
        Error::BadCookie | Error::NotSame => nfsstat3::NFS3ERR_BAD_COOKIE,
        Error::NotSupp | Error::NoXattr | Error::AttrNotSupp => nfsstat3::NFS3ERR_NOTSUPP,
        Error::TooSmall => nfsstat3::NFS3ERR_TOOSMALL,
        Error::Delay => nfsstat3::NFS3ERR_JUKEBOX,
        Error::NotSync => nfsstat3::NFS3ERR_NOT_SYNC,
        Error::BadName => dots,
        Error::BadType => nfsstat3::NFS3ERR_BADTYPE,
        // Where a directory should be; where a file should be, it is INVAL.
        Error::Symlink => nfsstat3::NFS3ERR_NOTDIR,
    }
}

/// A time, as far as 32 bits of seconds go.
pub(super) fn time(time: Time) -> nfstime3 {
    let seconds = time.seconds.clamp(0, i64::from(u32::MAX)) as u32;
    let is_told = i64::from(seconds) == time.seconds;
    nfstime3 {
        seconds,
        nseconds: if is_told { time.nanos } else { 0 },
    }
}

fn time_of(time: nfstime3) -> Time {
    Time {
        seconds: i64::from(time.seconds),
        nanos: time.nseconds,
    }
}

/// The attributes of an object of the file system `fsid`.
pub(super) fn fattr(attr: &Attr, fsid: u64) -> fattr3 {
    fattr3 {
        type_: match attr.kind {
            ObjectKind::Regular => ftype3::NF3REG,
            ObjectKind::Directory => ftype3::NF3DIR,
            ObjectKind::Symlink => ftype3::NF3LNK,
            ObjectKind::Fifo => ftype3::NF3FIFO,
            ObjectKind::Socket => ftype3::NF3SOCK,
            ObjectKind::Block => ftype3::NF3BLK,
            ObjectKind::Character => ftype3::NF3CHR,
        },
        mode: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used_bytes,
        rdev: specdata3 {
            specdata1: attr.device.major,
            specdata2: attr.device.minor,
        },
        fsid,
        fileid: attr.file.0,
        atime: time(attr.accessed),
        mtime: time(attr.modified),
        ctime: time(attr.changed),
    }
}

/// What became of an object. What it was before is in it only with `is_one_step`:
/// if it is sure that no other call has changed it in between, for that is what
/// clients conclude from it.
pub(super) fn wcc(before: Option<&Attr>, after: Option<fattr3>, is_one_step: bool) -> wcc_data {
    let told = |attr: &Attr| wcc_attr {
        size: attr.size,
        mtime: time(attr.modified),
        ctime: time(attr.changed),
    };
    wcc_data {
        before: before.filter(|_| is_one_step).map(told),
        after,
    }
}

/// Attributes to be set.
pub(super) fn set_attr(set: &sattr3) -> SetAttr {
    SetAttr {
        // Some clients send the kind of the object with its mode.
        mode: set.mode.map(|mode| mode & MODE_MASK),
        umask: 0,
        acl: None,
        label: None,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        accessed: match set.atime {
            set_atime::DONT_CHANGE => None,
            set_atime::SET_TO_SERVER_TIME => Some(SetTime::Server),
            set_atime::SET_TO_CLIENT_TIME(time) => Some(SetTime::Client(time_of(time))),
        },
        modified: match set.mtime {
            set_mtime::DONT_CHANGE => None,
            set_mtime::SET_TO_SERVER_TIME => Some(SetTime::Server),
            set_mtime::SET_TO_CLIENT_TIME(time) => Some(SetTime::Client(time_of(time))),
        },
    }
}

/// The guard of a SETATTR.
pub(super) fn guard(guard: Option<nfstime3>) -> Option<Time> {
    guard.map(time_of)
}

/// What CREATE makes.
pub(super) fn created(how: &createhow3) -> (New<'static>, SetAttr) {
    match how {
        createhow3::UNCHECKED(set) => (New::Unchecked, set_attr(set)),
        createhow3::GUARDED(set) => (New::Guarded, set_attr(set)),
        createhow3::EXCLUSIVE(verifier) => (New::Exclusive(*verifier), SetAttr::default()),
    }
}

/// What MKNOD makes; `None` if that is not for MKNOD.
pub(super) fn node(what: &mknoddata3) -> Option<(New<'static>, SetAttr)> {
    let device = |data: &specdata3| Device {
        major: data.specdata1,
        minor: data.specdata2,
    };
    Some(match what {
        mknoddata3::NF3CHR(data) => (
            New::Character(device(&data.spec)),
            set_attr(&data.dev_attributes),
        ),
        mknoddata3::NF3BLK(data) => (
            New::Block(device(&data.spec)),
            set_attr(&data.dev_attributes),
        ),
        mknoddata3::NF3SOCK(set) => (New::Socket, set_attr(set)),
        mknoddata3::NF3FIFO(set) => (New::Fifo, set_attr(set)),
        mknoddata3::default(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_32_bits_are_clamped() {
        let cases = [
            ((0, 0), (0, 0)),
            ((5, 999_999_999), (5, 999_999_999)),
            ((-1, 7), (0, 0)),
            ((1 << 32, 7), (u32::MAX, 0)),
            ((i64::from(u32::MAX), 7), (u32::MAX, 7)),
        ];
        for ((seconds, nanos), (expected, nseconds)) in cases {
            let told = time(Time { seconds, nanos });
            assert_eq!((told.seconds, told.nseconds), (expected, nseconds));
        }
    }
}
