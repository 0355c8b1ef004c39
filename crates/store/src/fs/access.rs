//! What a caller may do: POSIX permission bits or an access control list, in one place for
//! every kind of file system. Everything here is a function of attributes and caller.

use super::types::{MODE_MASK, SET_GID, SET_UID, STICKY};
use super::{
    AceWho, Acl, AclVerdict, Attr, Caller, Error, ObjectKind, Rights, SetAttr, SetTime, Time,
};

/// The bits of a mode that a list says as well.
const PERMISSIONS: u32 = 0o777;

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

/// What the bits of an object grant to a caller: the first class that applies (owner, group,
/// others) decides alone. Where there is a list, what its entries say. The superuser may do
/// everything, but execute only what any class may.
#[inline]
pub fn rights(attr: &Attr, caller: &Caller<'_>) -> Rights {
    verdict(attr, caller).allowed
}

#[inline]
fn verdict(attr: &Attr, caller: &Caller<'_>) -> AclVerdict {
    if caller.is_root() {
        let executes = attr.kind == ObjectKind::Directory || attr.mode & 0o111 != 0;
        let denied = if executes {
            Rights::NONE
        } else {
            Rights::EXECUTE
        };
        let allowed = Rights::ALL & !denied;
        return AclVerdict { allowed, denied };
    }
    if let Some(acl) = &attr.acl {
        return of_list(
            attr,
            caller,
            acl.verdict(|ace| is_meant(attr, caller, ace.who)),
        );
    }
    let bits = match () {
        () if caller.uid == attr.uid => attr.mode >> 6,
        () if caller.is_in(attr.gid) => attr.mode >> 3,
        () => attr.mode,
    };
    let verdict = AclVerdict {
        allowed: Rights::of_bits(bits, attr.kind),
        denied: Rights::NONE,
    };
    of_list(attr, caller, verdict)
}

fn is_meant(attr: &Attr, caller: &Caller<'_>, who: AceWho) -> bool {
    match who {
        AceWho::Owner => caller.uid == attr.uid,
        AceWho::Group => caller.is_in(attr.gid),
        AceWho::Everyone => true,
        AceWho::User(uid) => caller.uid == uid,
        AceWho::Members(gid) => caller.is_in(gid),
    }
}

/// With what no list needs to mention: owners see and set attributes whatever it says (RFC
/// 8881, section 6.3.1.1), and all see them unless it denies that (section 6.2.1).
fn of_list(attr: &Attr, caller: &Caller<'_>, said: AclVerdict) -> AclVerdict {
    let seen = Rights::READ_ATTRIBUTES | Rights::READ_ACL;
    let of_owner = seen | Rights::WRITE_ATTRIBUTES | Rights::WRITE_ACL;
    let own = if caller.uid == attr.uid {
        of_owner
    } else {
        Rights::NONE
    };
    AclVerdict {
        allowed: said.allowed | own | seen & !said.denied,
        denied: said.denied & !own,
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

/// Whether a file may be opened to be read or written. A user who may execute a file may have
/// it read (RFC 7530, section 16.16.5), and one who may only append may open it to do that.
pub fn check_open(attr: &Attr, caller: &Caller<'_>, read: bool, write: bool) -> Result<(), Error> {
    let rights = rights(attr, caller);
    let reads = rights.has_any(Rights::READ | Rights::EXECUTE);
    let writes = rights.has_any(Rights::WRITE | Rights::APPEND);
    match caller.is_open || (reads || !read) && (writes || !write) {
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
    match rights(attr, caller).has_any(Rights::READ | Rights::EXECUTE) {
        true => Ok(()),
        false => Err(Error::Access),
    }
}

/// Whether the content of a file may be written from an offset on: also by its owner (RFC
/// 7530, section 16.36.5). Whoever may only append may do so behind its end of `size` bytes,
/// and nowhere else (RFC 8881, section 6.2.1.3.1).
#[inline]
pub fn check_write(attr: &Attr, caller: &Caller<'_>, from: u64, size: u64) -> Result<(), Error> {
    let is_own = caller.is_open || caller.uid == attr.uid;
    if is_own && attr.acl.is_none() {
        return Ok(());
    }
    let rights = rights(attr, caller);
    let may = match (rights.holds(Rights::WRITE), rights.holds(Rights::APPEND)) {
        (true, _) => true,
        (false, true) => from >= size,
        (false, false) => is_own,
    };
    match may {
        true => Ok(()),
        false => Err(Error::Access),
    }
}

/// Whether an object of this kind may be given a name in a directory.
#[inline]
pub fn check_add(dir: &Attr, kind: ObjectKind, caller: &Caller<'_>) -> Result<(), Error> {
    let add = match kind {
        ObjectKind::Directory => Rights::APPEND,
        _ => Rights::WRITE,
    };
    check(dir, caller, Rights::EXECUTE | add)
}

/// Whether what a directory grants lets entries be taken out that do not say otherwise.
fn removes_entries(of_dir: AclVerdict) -> bool {
    let adds = of_dir.allowed.holds(Rights::WRITE);
    let is_denied = of_dir.denied.holds(Rights::DELETE_CHILD);
    of_dir.allowed.holds(Rights::DELETE_CHILD) || adds && !is_denied
}

/// What a caller may do, as ACCESS tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldAccess {
    /// Read, or list.
    pub reads: bool,
    /// Change what is there; of a directory: add what is no directory.
    pub modifies: bool,
    /// Add to it; of a directory: anything.
    pub extends: bool,
    /// Take entries out of a directory.
    pub removes: bool,
    /// Execute, or look names up.
    pub executes: bool,
}

/// What ACCESS tells of an object (RFC 8881, section 18.1).
pub fn told(attr: &Attr, caller: &Caller<'_>) -> ToldAccess {
    let verdict = verdict(attr, caller);
    let AclVerdict { allowed, .. } = verdict;
    ToldAccess {
        reads: allowed.holds(Rights::READ),
        modifies: allowed.holds(Rights::WRITE),
        extends: allowed.has_any(Rights::WRITE | Rights::APPEND),
        removes: attr.kind == ObjectKind::Directory && removes_entries(verdict),
        executes: allowed.holds(Rights::EXECUTE),
    }
}

/// Whether the entry of `object` may be taken out of a directory (RFC 8881, section
/// 6.2.1.3.2): what lets the object be removed suffices. Else the directory decides, and of a
/// sticky one only owners may take entries.
#[inline]
pub fn check_remove(dir: &Attr, object: &Attr, caller: &Caller<'_>) -> Result<(), Error> {
    let of_dir = verdict(dir, caller);
    if !of_dir.allowed.holds(Rights::EXECUTE) {
        return Err(Error::Access);
    }
    let of_object = match &object.acl {
        Some(_) => verdict(object, caller),
        None => AclVerdict::default(),
    };
    if of_object.allowed.holds(Rights::DELETE) {
        return Ok(());
    }
    let is_denied = of_object.denied.holds(Rights::DELETE);
    let is_explicit = of_dir.allowed.holds(Rights::DELETE_CHILD);
    if !is_explicit && (is_denied || !removes_entries(of_dir)) {
        return Err(Error::Access);
    }
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
        Some(SetTime::Client(time) | SetTime::Delegated(time) | SetTime::Taken(time)) => {
            time.nanos < 1_000_000_000
        }
        _ => true,
    };
    (set.mode.unwrap_or(0) | set.umask) & !MODE_MASK == 0
        && valid_time(&set.accessed)
        && valid_time(&set.modified)
}

fn time_of(set: SetTime, caller: &Caller<'_>) -> Time {
    match set {
        SetTime::Server => caller.now,
        SetTime::Client(time) | SetTime::Taken(time) => time,
        SetTime::Delegated(time) => time.min(caller.now),
    }
}

/// What an object's attributes become; all that is asked for, or an error. The
/// size stays: the caller of this sets it after this has allowed it.
pub fn set(attr: &Attr, caller: &Caller<'_>, set: &SetAttr) -> Result<Attr, Error> {
    if !valid(set) {
        return Err(Error::Inval);
    }
    if let Some(size) = set.size {
        check_size(attr, caller, size)?;
    }
    let mut new = attr.clone();
    set_mode(&mut new, caller, set)?;
    if let Some(label) = &set.label {
        if !caller.owns(attr) {
            return Err(Error::Perm);
        }
        new.label = Some(label.clone());
    }
    set_owner(&mut new, caller, set)?;
    // A user that cuts a file off changes it now, whatever it says.
    let cut_off = set.size.map(|_| caller.now);
    for (wanted, time, at_least) in [
        (set.accessed, &mut new.accessed, None),
        (set.modified, &mut new.modified, cut_off),
    ] {
        let Some(wanted) = wanted else { continue };
        let rights = rights(attr, caller);
        if !rights.holds(Rights::WRITE_ATTRIBUTES) {
            match wanted {
                // Only the client's own time is the owner's to say.
                SetTime::Client(_) => return Err(Error::Perm),
                SetTime::Taken(_) => {}
                SetTime::Server | SetTime::Delegated(_)
                    if caller.is_open || rights.holds(Rights::WRITE) => {}
                SetTime::Server | SetTime::Delegated(_) => return Err(Error::Access),
            }
            if matches!(wanted, SetTime::Delegated(_)) && time_of(wanted, caller) <= *time {
                *time = at_least.unwrap_or(*time);
                continue;
            }
        }
        *time = time_of(wanted, caller);
    }
    Ok(new)
}

fn check_size(attr: &Attr, caller: &Caller<'_>, size: u64) -> Result<(), Error> {
    match attr.kind {
        ObjectKind::Regular => check_write(attr, caller, size, attr.size),
        ObjectKind::Directory => Err(Error::IsDir),
        _ => Err(Error::Inval),
    }
}

/// The mode first, then the list, which may change the mode (RFC 8881, section 6.4.1).
fn set_mode(new: &mut Attr, caller: &Caller<'_>, set: &SetAttr) -> Result<(), Error> {
    if set.mode.is_none() && set.acl.is_none() {
        return Ok(());
    }
    if !rights(new, caller).holds(Rights::WRITE_ACL) {
        return Err(Error::Perm);
    }
    if let Some(mode) = set.mode {
        // What lets a file run as another is its owner's to say.
        if !caller.owns(new) && (mode ^ new.mode) & !PERMISSIONS != 0 {
            return Err(Error::Perm);
        }
        new.mode = mode;
        let gid = set.gid.unwrap_or(new.gid);
        if !caller.is_root() && !caller.is_in(gid) {
            new.mode &= !SET_GID;
        }
        let acl = new.acl.take();
        new.acl = acl.and_then(|acl| acl.with_mode(new.mode, new.kind));
    }
    if let Some(acl) = &set.acl {
        if !acl.fits(new.kind) {
            return Err(Error::AttrNotSupp);
        }
        new.mode = new.mode & !PERMISSIONS | acl.mode();
        new.acl = acl.clone().beyond_mode(new.mode, new.kind);
    }
    Ok(())
}

/// Only the superuser gives files away; owners may choose among their groups, and who may
/// take a file may take it for itself.
fn set_owner(new: &mut Attr, caller: &Caller<'_>, set: &SetAttr) -> Result<(), Error> {
    let (uid, gid) = (set.uid.unwrap_or(new.uid), set.gid.unwrap_or(new.gid));
    if set.uid.is_none() && set.gid.is_none() {
        return Ok(());
    }
    if !caller.is_root() {
        let takes = rights(new, caller).holds(Rights::WRITE_OWNER);
        let uid_is_own = uid == new.uid || takes && uid == caller.uid;
        let gid_is_own = gid == new.gid || caller.is_in(gid);
        if !(caller.uid == new.uid || takes) || !uid_is_own || !gid_is_own {
            return Err(Error::Perm);
        }
    }
    (new.uid, new.gid) = (uid, gid);
    if new.kind != ObjectKind::Directory && set.mode.is_none() {
        new.mode &= !lost(new.mode);
    }
    Ok(())
}

/// Owner, group, mode and list of what a caller makes in a directory, whose entries
/// it may change: `attr` with these set, all else as it is.
pub fn made(dir: &Attr, attr: &Attr, caller: &Caller<'_>, wanted: &SetAttr) -> Result<Attr, Error> {
    if matches!(attr.kind, ObjectKind::Block | ObjectKind::Character) && !caller.is_root() {
        return Err(Error::Perm);
    }
    let mut new = attr.clone();
    new.uid = caller.uid;
    new.gid = match dir.mode & SET_GID {
        0 => caller.gid,
        _ => dir.gid,
    };
    // Nothing is handed on where nothing at all is said: its maker sets that next (RFC 8881,
    // section 6.4.3).
    let is_heir =
        wanted.acl.is_none() && *wanted != SetAttr::default() && new.kind != ObjectKind::Symlink;
    let acl = dir.acl.as_ref().filter(|_| is_heir);
    let handed_on = acl.and_then(|acl| acl.inherited(new.kind));
    new.acl = handed_on.clone();
    new.mode = handed_on.as_ref().map_or(0, Acl::mode);
    let asked = wanted.mode;
    let mut wanted = wanted.clone();
    let limit = match &handed_on {
        // What is handed on says what the umask would (RFC 8275, section 4), of whom it names.
        Some(acl) => acl.limit(wanted.umask),
        None => !wanted.umask,
    };
    wanted.mode = asked.map(|mode| mode & limit);
    // Its maker owns it, and so may set everything, whatever the bits then say.
    let mut new = set(&new, caller, &wanted)?;
    if let (Some(acl), Some(asked)) = (handed_on, asked) {
        new.acl = acl.with_modes(new.mode, asked, new.kind);
    }
    if new.kind == ObjectKind::Directory {
        new.mode |= dir.mode & SET_GID;
    }
    Ok(new)
}

#[cfg(test)]
mod tests;
