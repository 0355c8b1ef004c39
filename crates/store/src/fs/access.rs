//! What a caller may do: POSIX permission bits, in one place for every kind of
//! file system. Everything here is a function of attributes and caller.

use super::types::{MODE_MASK, SET_GID, SET_UID, STICKY};
use super::{Attr, Caller, Error, ObjectKind, SetAttr, SetTime, Time};

/// What permission bits grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read; of a directory: list.
    pub read: bool,
    /// Write; of a directory: change its entries.
    pub write: bool,
    /// Execute; of a directory: look names up in it.
    pub execute: bool,
}

impl Rights {
    /// To read.
    pub const READ: Rights = Rights {
        read: true,
        write: false,
        execute: false,
    };
    /// To write.
    pub const WRITE: Rights = Rights {
        read: false,
        write: true,
        execute: false,
    };
    /// To execute, or to look names up.
    pub const EXECUTE: Rights = Rights {
        read: false,
        write: false,
        execute: true,
    };
    /// To change entries of a directory.
    pub const ENTRIES: Rights = Rights {
        read: false,
        write: true,
        execute: true,
    };

    #[inline]
    fn holds(self, wanted: Rights) -> bool {
        (self.read || !wanted.read)
            && (self.write || !wanted.write)
            && (self.execute || !wanted.execute)
    }
}

impl Caller<'_> {
    /// Whether it is the superuser.
    #[inline]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it belongs to a group.
    #[inline]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }

    /// Whether it may do what owners may.
    #[inline]
    pub fn owns(&self, attr: &Attr) -> bool {
        self.is_root() || self.uid == attr.uid
    }
}

/// What the bits of an object grant to a caller. The first class that applies
/// (owner, group, others) decides alone. The superuser may read and write
/// everything, and execute what any class may.
#[inline]
pub fn rights(attr: &Attr, caller: &Caller<'_>) -> Rights {
    if caller.is_root() {
        return Rights {
            read: true,
            write: true,
            execute: attr.kind == ObjectKind::Directory || attr.mode & 0o111 != 0,
        };
    }
    let bits = match () {
        () if caller.uid == attr.uid => attr.mode >> 6,
        () if caller.is_in(attr.gid) => attr.mode >> 3,
        () => attr.mode,
    };
    Rights {
        read: bits & 4 != 0,
        write: bits & 2 != 0,
        execute: bits & 1 != 0,
    }
}

/// Refuses what the bits do not grant.
#[inline]
pub fn check(attr: &Attr, caller: &Caller<'_>, wanted: Rights) -> Result<(), Error> {
    match rights(attr, caller).holds(wanted) {
        true => Ok(()),
        false => Err(Error::Access),
    }
}

/// Whether the content of a file may be read: also by its owner, who may have
/// opened it before the bits changed, and by a caller who may execute it (a
/// client reads what it executes; RFC 7530, section 16.22.5).
#[inline]
pub fn check_read(attr: &Attr, caller: &Caller<'_>) -> Result<(), Error> {
    if caller.is_open || caller.uid == attr.uid {
        return Ok(());
    }
    let rights = rights(attr, caller);
    match rights.read || rights.execute {
        true => Ok(()),
        false => Err(Error::Access),
    }
}

/// Whether the content of a file may be written: also by its owner (RFC 7530,
/// section 16.36.5).
#[inline]
pub fn check_write(attr: &Attr, caller: &Caller<'_>) -> Result<(), Error> {
    if caller.is_open || caller.uid == attr.uid {
        return Ok(());
    }
    check(attr, caller, Rights::WRITE)
}

/// Whether the entry of `object` may be taken out of a directory, whose
/// entries the caller may change: of a sticky one only by an owner.
#[inline]
pub fn check_sticky(dir: &Attr, object: &Attr, caller: &Caller<'_>) -> Result<(), Error> {
    let is_free = dir.mode & STICKY == 0 || caller.owns(dir) || caller.owns(object);
    match is_free {
        true => Ok(()),
        false => Err(Error::Perm),
    }
}

/// The mode of a file after a write: it does not run as its owner any more,
/// unless the superuser wrote it.
#[inline]
pub fn mode_written(mode: u32, caller: &Caller<'_>) -> u32 {
    match caller.is_root() {
        true => mode,
        false => mode & !lost(mode),
    }
}

/// Bits that a file loses when it changes hands or content: where the group
/// cannot execute, SGID means something else.
fn lost(mode: u32) -> u32 {
    match mode & 0o010 {
        0 => SET_UID,
        _ => SET_UID | SET_GID,
    }
}

fn valid(set: &SetAttr) -> bool {
    let valid_time = |time: &Option<SetTime>| match time {
        Some(SetTime::Client(time)) => time.nanos < 1_000_000_000,
        _ => true,
    };
    set.mode.is_none_or(|mode| mode & !MODE_MASK == 0)
        && valid_time(&set.accessed)
        && valid_time(&set.modified)
}

fn time_of(set: SetTime, caller: &Caller<'_>) -> Time {
    match set {
        SetTime::Server => caller.now,
        SetTime::Client(time) => time,
    }
}

/// What an object's attributes become; all that is asked for, or an error. The
/// size stays: the caller of this sets it after this has allowed it.
pub fn set(attr: &Attr, caller: &Caller<'_>, set: &SetAttr) -> Result<Attr, Error> {
    if !valid(set) {
        return Err(Error::Inval);
    }
    if set.size.is_some() {
        check_size(attr, caller)?;
    }
    let mut new = *attr;
    if let Some(mode) = set.mode {
        if !caller.owns(attr) {
            return Err(Error::Perm);
        }
        new.mode = mode;
        let gid = set.gid.unwrap_or(attr.gid);
        if !caller.is_root() && !caller.is_in(gid) {
            new.mode &= !SET_GID;
        }
    }
    set_owner(&mut new, caller, set)?;
    for (wanted, time) in [
        (set.accessed, &mut new.accessed),
        (set.modified, &mut new.modified),
    ] {
        let Some(wanted) = wanted else { continue };
        if !caller.owns(attr) {
            match wanted {
                // Only the client's own time is the owner's to say.
                SetTime::Client(_) => return Err(Error::Perm),
                SetTime::Server => check(attr, caller, Rights::WRITE)?,
            }
        }
        *time = time_of(wanted, caller);
    }
    Ok(new)
}

fn check_size(attr: &Attr, caller: &Caller<'_>) -> Result<(), Error> {
    match attr.kind {
        ObjectKind::Regular => check_write(attr, caller),
        ObjectKind::Directory => Err(Error::IsDir),
        _ => Err(Error::Inval),
    }
}

/// Only the superuser gives files away; owners may choose among their groups.
fn set_owner(new: &mut Attr, caller: &Caller<'_>, set: &SetAttr) -> Result<(), Error> {
    let (uid, gid) = (set.uid.unwrap_or(new.uid), set.gid.unwrap_or(new.gid));
    if set.uid.is_none() && set.gid.is_none() {
        return Ok(());
    }
    if !caller.is_root() {
        let keeps_uid = uid == new.uid && caller.uid == new.uid;
        let gid_is_own = gid == new.gid || caller.is_in(gid);
        if !keeps_uid || !gid_is_own {
            return Err(Error::Perm);
        }
    }
    (new.uid, new.gid) = (uid, gid);
    if new.kind != ObjectKind::Directory && set.mode.is_none() {
        new.mode &= !lost(new.mode);
    }
    Ok(())
}

/// Owner, group and mode of what a caller makes in a directory, whose entries
/// it may change: `attr` with these set, all else as it is.
pub fn made(dir: &Attr, attr: &Attr, caller: &Caller<'_>, wanted: &SetAttr) -> Result<Attr, Error> {
    if matches!(attr.kind, ObjectKind::Block | ObjectKind::Character) && !caller.is_root() {
        return Err(Error::Perm);
    }
    let mut new = *attr;
    new.uid = caller.uid;
    new.gid = match dir.mode & SET_GID {
        0 => caller.gid,
        _ => dir.gid,
    };
    new.mode = 0;
    // Its maker owns it, and so may set everything, whatever the bits then say.
    let mut new = set(&new, caller, wanted)?;
    if new.kind == ObjectKind::Directory {
        new.mode |= dir.mode & SET_GID;
    }
    Ok(new)
}

#[cfg(test)]
mod tests;
