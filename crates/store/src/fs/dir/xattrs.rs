//! Extended attributes: those of users (`user.`), but for weft's own.
//!
//! They are listed in the order of a digest of their names, so that a place in
//! the listing stays valid while others come and go.

use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::beneath::{SeenObject, digest, proc_path};
use super::{DirInner, Synced};
use crate::fs::{
    Attr, Caller, ChangeInfo, Error, FileId, Listing, ObjectKind, Rights, STICKY, SetXattr, access,
    check_xattr_name,
};

/// What Linux calls those that clients see.
const PREFIX: &[u8] = b"user.";
/// Behind the prefix: what weft keeps there is not for clients.
const OWN: &[u8] = b"weft.";
/// Bytes of a value, and of all names of an object, at most; so Linux.
const BYTES_MAX: usize = 64 << 10;
/// Bytes that suffice for most values.
const BYTES_FIRST: usize = 4 << 10;

/// What a name is called below.
fn full_name(name: &[u8]) -> Vec<u8> {
    [PREFIX, name].concat()
}

/// Calls with a larger buffer when the first was too small.
fn fetch(mut get: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; BYTES_FIRST];
    loop {
        match get(&mut bytes) {
            Ok(len) => {
                bytes.truncate(len);
                return Ok(bytes);
            }
            Err(Errno::RANGE) if bytes.len() < BYTES_MAX => bytes.resize(BYTES_MAX, 0),
            Err(errno) => return Err(errno),
        }
    }
}

impl DirInner {
    /// Files and directories have extended attributes.
    fn may_have_xattrs(attr: &Attr) -> bool {
        matches!(attr.kind, ObjectKind::Regular | ObjectKind::Directory)
    }

    pub(super) fn get_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: &[u8],
    ) -> Result<Box<[u8]>, Error> {
        check_xattr_name(name)?;
        let seen = self.object(file)?;
        let attr = self.attr(file, &seen, false)?;
        if !DirInner::may_have_xattrs(&attr) || name.starts_with(OWN) {
            return Err(Error::NoXattr);
        }
        access::check(&attr, caller, Rights::READ)?;
        let (way, name) = (proc_path(seen.fd.as_fd()), full_name(name));
        let value = fetch(|bytes| getxattr(&way, &name[..], bytes));
        Ok(value.map_err(unsupported)?.into_boxed_slice())
    }

    fn check_xattr_change(
        &self,
        caller: &Caller<'_>,
        attr: &Attr,
        name: &[u8],
    ) -> Result<(), Error> {
        let is_shared = attr.kind == ObjectKind::Directory && attr.mode & STICKY != 0;
        let is_refused = !DirInner::may_have_xattrs(attr) || name.starts_with(OWN);
        if is_refused || (is_shared && !caller.owns(attr)) {
            return Err(Error::Perm);
        }
        access::check(attr, caller, Rights::WRITE)?;
        self.check_writable()
    }

    fn change_xattr(
        &self,
        caller: &Caller<'_>,
        (file, name): (FileId, &[u8]),
        synced: &mut Synced,
        may_grow: bool,
        change: impl FnOnce(&str, &[u8]) -> Result<(), Errno>,
    ) -> Result<ChangeInfo, Error> {
        check_xattr_name(name)?;
        let _alone = self.lock_attributes(file);
        let mut seen: SeenObject = self.object(file)?;
        let attr = self.attr(file, &seen, false)?;
        self.check_xattr_change(caller, &attr, name)?;
        if may_grow {
            self.check_not_over(&attr)?;
        }
        synced.object(self, &seen)?;
        change(&proc_path(seen.fd.as_fd()), &full_name(name)).map_err(unsupported)?;
        self.change(file, &mut seen, attr.change)
    }

    pub(super) fn set_xattr(
        &self,
        caller: &Caller<'_>,
        (file, name): (FileId, &[u8]),
        (value, how): (&[u8], SetXattr),
        synced: &mut Synced,
    ) -> Result<ChangeInfo, Error> {
        if value.len() > BYTES_MAX {
            return Err(Error::Xattr2Big);
        }
        let flags = match how {
            SetXattr::Either => XattrFlags::empty(),
            SetXattr::Create => XattrFlags::CREATE,
            SetXattr::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(caller, (file, name), synced, true, |way, name| {
            setxattr(way, name, value, flags)
        })
    }

    pub(super) fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        (file, name): (FileId, &[u8]),
        synced: &mut Synced,
    ) -> Result<ChangeInfo, Error> {
        self.change_xattr(caller, (file, name), synced, false, |way, name| {
            removexattr(way, name)
        })
    }

    pub(super) fn list_xattrs(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        cookie: u64,
        name_bytes_max: u32,
    ) -> Result<Listing, Error> {
        let seen = self.object(file)?;
        let attr = self.attr(file, &seen, false)?;
        let mut listing = Listing::new(self.info.instance);
        listing.is_end = true;
        if !DirInner::may_have_xattrs(&attr) {
            return Ok(listing);
        }
        access::check(&attr, caller, Rights::READ)?;
        let way = proc_path(seen.fd.as_fd());
        let all = match fetch(|bytes| listxattr(&way, bytes)) {
            Err(Errno::OPNOTSUPP) => Vec::new(),
            all => all?,
        };
        let names = all.split(|&byte| byte == 0);
        let names = names.filter_map(|name| name.strip_prefix(PREFIX));
        let names = names.filter(|name| !name.starts_with(OWN));
        let mut names: Vec<(u64, &[u8])> = names.map(|name| (digest(name), name)).collect();
        names.sort_unstable();
        for (place, name) in names.into_iter().filter(|&(place, _)| place > cookie) {
            if listing.name_bytes() + name.len() > name_bytes_max as usize {
                listing.is_end = false;
                break;
            }
            listing.push(place, file, name);
        }
        match listing.is_empty() && !listing.is_end {
            true => Err(Error::TooSmall),
            false => Ok(listing),
        }
    }
}

/// A file system without extended attributes has none of that name.
fn unsupported(errno: Errno) -> Error {
    match errno {
        Errno::OPNOTSUPP => Error::NotSupp,
        errno => errno.into(),
    }
}
