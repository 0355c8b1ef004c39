//! Names: finding, making, moving and taking them away.
//!
//! The kernel does each in one step; what the caller may do, and what the table
//! remembers, is settled under the lock of the directory. Where an object goes,
//! and where it lies meanwhile, is written down before the kernel is asked, so
//! that a process that is killed at any point finds it again.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use faults::Fault;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ftruncate, linkat, makedev, mkdirat, mknodat, openat,
    readlinkat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::acls::Acls;
use super::attributes::ObjectOwner;
use super::below::NameChange;
use super::beneath::{SeenObject, ctime, proc_path};
use super::table::{ROOT, Record};
use super::{DirInner, Owners, Synced};
use crate::fs::{
    Attr, Caller, ChangeInfo, Device, Error, FileId, New, ObjectKind, Output, PosixAcl, Removable,
    Rights, SetAttr, access, check_name, check_symlink,
};

/// A directory and a name in it.
type NameInDirectory<'a> = (FileId, &'a [u8]);

/// Nanoseconds between the making of an object and its last change, if it has
/// only been made.
const MAKING: i64 = 50_000_000;

/// A directory that a name is changed in.
struct Dir {
    file: FileId,
    seen: SeenObject,
    attr: Attr,
}

/// What is not there yet.
fn new_attributes(kind: ObjectKind, new: New<'_>, now: crate::fs::Time) -> Attr {
    let device = match new {
        New::Block(device) | New::Character(device) => device,
        _ => Device::default(),
    };
    Attr {
        file: FileId(0),
        kind,
        mode: 0,
        acl: None,
        label: None,
        links: 1,
        uid: 0,
        gid: 0,
        device,
        size: 0,
        used_bytes: 0,
        accessed: now,
        modified: now,
        changed: now,
        created: now,
        change: 0,
    }
}

impl DirInner {
    fn dir(&self, file: FileId) -> Result<Dir, Error> {
        let (seen, attr) = self.directory(file)?;
        Ok(Dir { file, seen, attr })
    }

    /// What a name in a directory that is locked means.
    fn find(&self, dir: &Dir, name: &[u8]) -> Result<Option<(FileId, SeenObject)>, Error> {
        match self.beneath.look_up(&dir.seen, name) {
            Ok(seen) => Ok(Some((self.number(&seen, dir.file, name)?, seen))),
            Err(Errno::NOENT) => Ok(None),
            // Something is mounted there; a LOOKUP knows no NFS4ERR_XDEV.
            Err(Errno::XDEV) => Err(Error::Access),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn lookup(
        &self,
        caller: &Caller<'_>,
        dir: FileId,
        name: &[u8],
    ) -> Result<FileId, Error> {
        check_name(name)?;
        let _shared = self.share(dir);
        let dir = self.dir(dir)?;
        access::check(&dir.attr, caller, Rights::EXECUTE)?;
        let found = self.find(&dir, name)?.ok_or(Error::NoEnt)?;
        Ok(found.0)
    }

    pub(super) fn parent(&self, caller: &Caller<'_>, dir: FileId) -> Result<FileId, Error> {
        let (seen, attr) = self.directory(dir)?;
        access::check(&attr, caller, Rights::EXECUTE)?;
        if dir.0 == ROOT {
            return Err(Error::NoEnt);
        }
        // The table may not know yet that the directory above was exchanged.
        let up = openat(
            seen.fd.as_fd(),
            "..",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let up = self.beneath.look(Arc::new(up))?;
        let mut table = self.table();
        if up.identity.is(&table.header().root) {
            return Ok(FileId(ROOT));
        }
        let found = table.find(&up.identity)?;
        drop(table);
        // It is beneath the root only if there is a way to it.
        let (number, _) = found.ok_or(Error::Stale)?;
        self.resolve(FileId(number))?;
        Ok(FileId(number))
    }

    pub(super) fn create(
        &self,
        caller: &Caller<'_>,
        (dir, name): NameInDirectory<'_>,
        (new, set): (New<'_>, &SetAttr),
        synced: &mut Synced,
    ) -> Result<Output, Error> {
        check_name(name)?;
        if let New::Symlink(text) = new {
            check_symlink(text)?;
        }
        let _alone = self.lock_one(dir);
        let mut dir = self.dir(dir)?;
        access::check(&dir.attr, caller, Rights::EXECUTE)?;
        if let Some((file, seen)) = self.find(&dir, name)? {
            let attr = self.take_existing(caller, (file, seen), (new, set), synced)?;
            return Ok(Output::Created {
                attr,
                is_new: false,
                change: ChangeInfo {
                    before: dir.attr.change,
                    after: dir.attr.change,
                    is_atomic: false,
                },
            });
        }
        let kind = new.kind();
        access::check_add(&dir.attr, kind, caller)?;
        self.check_writable()?;
        let attr = new_attributes(kind, new, caller.now);
        let mut attr = access::made(&dir.attr, &attr, caller, set)?;
        if let (Acls::Posix, Some(_)) = (self.acls, &attr.acl) {
            // The kernel hands its list on itself: the group's bits are the mask of those named.
            let list = PosixAcl::of(&attr);
            attr.mode = attr.mode & !0o070 | list.mask.unwrap_or(list.group) << 3;
        }
        if set.label.is_some() || set.acl.is_some() && !self.keeps_acls(kind) {
            return Err(Error::AttrNotSupp);
        }
        synced.object(self, &dir.seen)?;
        // A file takes no block as yet.
        let bytes = match kind {
            ObjectKind::Directory | ObjectKind::Symlink => self.info.clone_block_bytes.into(),
            _ => 0,
        };
        let mut room = self.reserve_object(caller, (&attr, &dir.attr), bytes)?;
        let (file, mut seen) = self.make(&dir, name, (new, set), &attr)?;
        let attr = self.attr_grown(file, &mut seen, &mut room)?;
        let change = self.change(dir.file, &mut dir.seen, dir.attr.change)?;
        Ok(Output::Created {
            attr,
            is_new: true,
            change,
        })
    }

    /// What is to be made is there already.
    fn take_existing(
        &self,
        caller: &Caller<'_>,
        (file, mut seen): (FileId, SeenObject),
        (new, set): (New<'_>, &SetAttr),
        synced: &mut Synced,
    ) -> Result<Attr, Error> {
        let _alone = self.lock_attributes(file);
        let attr = self.attr(file, &seen, false)?;
        match new {
            New::Unchecked => {}
            New::Exclusive(verifier) => {
                let record = self.table().get(file.0)?;
                return match record.is_some_and(|record| record.verifier == Some(verifier)) {
                    true => Ok(attr),
                    false => Err(Error::Exist),
                };
            }
            _ => return Err(Error::Exist),
        }
        if attr.kind != ObjectKind::Regular {
            return Err(super::attributes::no_file(attr.kind));
        }
        if set.size != Some(0) {
            return Ok(attr);
        }
        let only = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        self.set(caller, &mut seen, &attr, &only, synced)
    }

    fn make(
        &self,
        dir: &Dir,
        name: &[u8],
        (new, set): (New<'_>, &SetAttr),
        attr: &Attr,
    ) -> Result<(FileId, SeenObject), Error> {
        if let New::Exclusive(verifier) = new
            && let Some(made) = self.make_nameless(dir, name, (verifier, set), attr)?
        {
            return Ok(made);
        }
        let at = dir.seen.fd.as_fd();
        let (mut seen, flags) = (self.make_entry(at, name, new, attr)?, removal(attr.kind));
        let finished = self.finish(dir, name, &mut seen, (new, set), attr);
        if finished.is_err() {
            // Nothing has become of it: its name goes again.
            let remove = NameChange::RemoveUnfinished((at, name));
            let _ = self.below.change(remove, &mut || unlinkat(at, name, flags));
        }
        finished.map(|file| (file, seen))
    }

    /// Makes an entry, which is its maker's alone as yet.
    fn make_entry(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        new: New<'_>,
        attr: &Attr,
    ) -> Result<SeenObject, Error> {
        let private = Mode::RUSR | Mode::WUSR;
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let is_real = self.owners == Owners::Real;
        let make = |call: &mut dyn FnMut() -> Result<(), Errno>| {
            self.below.change(NameChange::Make((dir, name)), call)
        };
        match new {
            New::Directory => make(&mut || mkdirat(dir, name, Mode::RWXU))?,
            New::Symlink(text) => make(&mut || symlinkat(text, dir, name))?,
            New::Fifo | New::Socket | New::Block(_) | New::Character(_) if is_real => {
                let (file_type, device) = match new {
                    New::Fifo => (FileType::Fifo, attr.device),
                    New::Socket => (FileType::Socket, attr.device),
                    New::Block(device) => (FileType::BlockDevice, device),
                    New::Character(device) => (FileType::CharacterDevice, device),
                    _ => unreachable!("these four"),
                };
                let device = makedev(device.major, device.minor);
                make(&mut || mknodat(dir, name, file_type, private, device))?;
            }
            // Without privileges what is special is recorded with a file.
            _ => {
                let mut made = None;
                make(&mut || {
                    made = Some(openat(dir, name, flags, private)?);
                    Ok(())
                })?;
                return Ok(self.beneath.look(Arc::new(made.expect("it was made")))?);
            }
        }
        let fd = self.beneath.child(dir, name)?;
        let seen = self.beneath.look(Arc::new(fd))?;
        match self.is_own_work(&seen, new) {
            true => Ok(seen),
            // A local process was quicker: the attributes of its object stay.
            false => Err(Error::Io),
        }
    }

    /// Whether an object is what was just made, for all that can be told: a local
    /// user who may change the directory may have put another one there, so that weft
    /// sets its owner and mode. A rename is a change, and so tells what was
    /// not made just now.
    fn is_own_work(&self, seen: &SeenObject, new: New<'_>) -> bool {
        let is_kind = matches!(
            (new, seen.file_type()),
            (New::Directory, FileType::Directory)
                | (New::Symlink(_), FileType::Symlink)
                | (New::Fifo, FileType::Fifo)
                | (New::Socket, FileType::Socket)
                | (New::Block(_), FileType::BlockDevice)
                | (New::Character(_), FileType::CharacterDevice)
        );
        let changed = (ctime(&seen.stat) as i64).saturating_sub(seen.identity.born);
        let is_new = seen.identity.born == 0 || changed <= MAKING;
        is_kind && is_new && seen.stat.stx_uid == self.uid
    }

    /// Gives a new object its attributes and its number.
    fn finish(
        &self,
        dir: &Dir,
        name: &[u8],
        seen: &mut SeenObject,
        (new, set): (New<'_>, &SetAttr),
        attr: &Attr,
    ) -> Result<FileId, Error> {
        let mut table = self.table();
        if let Some((old, _)) = table.find(&seen.identity)? {
            // Made and gone within a tick of the clock, where objects have no
            // names: never one number for two.
            table.remove(old)?;
        }
        let mut record = Record::new(seen.identity, dir.file.0, name);
        if let New::Exclusive(verifier) = new {
            record.verifier = Some(verifier);
        }
        let file = FileId(table.add(record)?);
        drop(table);
        let done = self.set_new_attributes(Some(file), seen, set, attr);
        if done.is_err() {
            self.table().remove(file.0)?;
        }
        done.map(|()| file)
    }

    /// Owner, size and times.
    fn set_new_attributes(
        &self,
        file: Option<FileId>,
        seen: &mut SeenObject,
        set: &SetAttr,
        attr: &Attr,
    ) -> Result<(), Error> {
        self.below
            .change(NameChange::SetAttributes, &mut || Ok(()))?;
        self.set_owner(file, seen, &ObjectOwner::of(attr))?;
        if attr.acl.is_some() || set.acl.is_some() {
            self.set_acl(seen, set, attr)?;
        }
        if let Some(size) = set.size {
            if size > self.info.file_bytes_max {
                return Err(Error::FBig);
            }
            ftruncate(&seen.fd, size)?;
        }
        self.set_times(seen.fd.as_fd(), set, attr)
    }

    /// Makes a file that has all its attributes, and is in the table with its
    /// verifier, before it has a name: a client that sends its request again
    /// after a crash finds its own file. `None` where files without names cannot
    /// be had.
    fn make_nameless(
        &self,
        dir: &Dir,
        name: &[u8],
        (verifier, set): ([u8; 8], &SetAttr),
        attr: &Attr,
    ) -> Result<Option<(FileId, SeenObject)>, Error> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let fd = match openat(dir.seen.fd.as_fd(), ".", flags, private) {
            Ok(fd) => fd,
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut seen = self.beneath.look(Arc::new(fd))?;
        let new = (New::Exclusive(verifier), set);
        let file = self.finish(dir, name, &mut seen, new, attr)?;
        match self.link_to(&seen, (dir, name)) {
            Ok(()) => Ok(Some((file, seen))),
            Err(errno) => {
                self.table().remove(file.0)?;
                match errno {
                    Errno::OPNOTSUPP | Errno::NOENT => Ok(None),
                    errno => Err(errno.into()),
                }
            }
        }
    }

    /// Gives an object one more name.
    fn link_to(&self, seen: &SeenObject, (dir, name): (&Dir, &[u8])) -> Result<(), Errno> {
        let (way, at) = (proc_path(seen.fd.as_fd()), dir.seen.fd.as_fd());
        (self.below).change(NameChange::Make((at, name)), &mut || {
            linkat(CWD, &way, at, name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    pub(super) fn link(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        (dir, name): NameInDirectory<'_>,
        synced: &mut Synced,
    ) -> Result<ChangeInfo, Error> {
        check_name(name)?;
        let _alone = self.lock_one(dir);
        let mut seen = self.object(file)?;
        let mut dir = self.dir(dir)?;
        access::check(&dir.attr, caller, Rights::EXECUTE)?;
        if self.find(&dir, name)?.is_some() {
            return Err(Error::Exist);
        }
        access::check_add(&dir.attr, ObjectKind::Regular, caller)?;
        if seen.is_directory() {
            return Err(Error::IsDir);
        }
        if seen.stat.stx_nlink == 0 {
            return Err(Error::NoEnt);
        }
        self.check_writable()?;
        self.check_not_over(&dir.attr)?;
        synced.object(self, &dir.seen)?;
        self.table().add_place(file.0, dir.file.0, name)?;
        if let Err(errno) = self.link_to(&seen, (&dir, name)) {
            self.table().remove_place(file.0, dir.file.0, name)?;
            return Err(errno.into());
        }
        self.attr_changed(file, &mut seen)?;
        self.change(dir.file, &mut dir.seen, dir.attr.change)
    }

    pub(super) fn remove(
        &self,
        caller: &Caller<'_>,
        (dir, name): NameInDirectory<'_>,
        what: Removable,
        synced: &mut Synced,
    ) -> Result<Output, Error> {
        check_name(name)?;
        let _alone = self.lock_one(dir);
        let mut dir = self.dir(dir)?;
        access::check(&dir.attr, caller, Rights::EXECUTE)?;
        let (file, mut seen) = self.find(&dir, name)?.ok_or(Error::NoEnt)?;
        let attr = self.attr(file, &seen, false)?;
        access::check_remove(&dir.attr, &attr, caller)?;
        match (what, attr.kind == ObjectKind::Directory) {
            (Removable::NotDirectory, true) => return Err(Error::IsDir),
            (Removable::Directory, false) => return Err(Error::NotDir),
            _ => {}
        }
        self.check_writable()?;
        synced.object(self, &dir.seen)?;
        self.keep_open(file, &seen)?;
        let (at, flags) = (dir.seen.fd.as_fd(), removal(attr.kind));
        let remove = NameChange::Remove((at, name));
        let removed = (self.below).change(remove, &mut || unlinkat(at, name, flags));
        match removed {
            Err(_) if faults::is(Fault::FailedIsRemoved) => {}
            removed => removed.map_err(not_empty)?,
        }
        self.unlinked(file, &mut seen, (dir.file, name))?;
        let change = self.change(dir.file, &mut dir.seen, dir.attr.change)?;
        Ok(Output::Removed { file, change })
    }

    /// Before an object may lose its last name: clients that have it open keep it
    /// by a descriptor.
    fn keep_open(&self, file: FileId, seen: &SeenObject) -> Result<(), Error> {
        if seen.stat.stx_nlink <= 1 && !self.entries.may_be_unlinked(file) {
            return Err(Error::Delay);
        }
        if !self.entries.lacks_descriptor(file) {
            return Ok(());
        }
        let fd = self.reopen_file(seen.fd.as_fd(), OFlags::RDWR)?;
        let fd = self.describe(fd, true);
        self.entries.put_descriptor(file, fd, true);
        Ok(())
    }

    /// An object has lost a name; is it gone?
    fn unlinked(
        &self,
        file: FileId,
        seen: &mut SeenObject,
        place: NameInDirectory<'_>,
    ) -> Result<(), Error> {
        let is_directory = seen.is_directory();
        self.beneath.refresh_attributes(seen)?;
        let mut table = self.table();
        if is_directory || seen.stat.stx_nlink == 0 {
            // Both under the table's lock: an OPEN of this moment sees either.
            if is_directory || !self.entries.unlinked(file) {
                table.remove(file.0)?;
                drop(table);
                self.uncharge(seen.identity.into());
                return Ok(());
            }
            self.keep_nameless(seen.identity.into());
        }
        table.remove_place(file.0, place.0.0, place.1)?;
        drop(table);
        self.attr(file, seen, true).map(|_| ())
    }

    pub(super) fn rename(
        &self,
        caller: &Caller<'_>,
        (from_dir, from): NameInDirectory<'_>,
        (to_dir, to): NameInDirectory<'_>,
        synced: &mut Synced,
    ) -> Result<Output, Error> {
        check_name(from)?;
        check_name(to)?;
        let _alone = self.lock_two(from_dir, to_dir);
        let mut source = self.dir(from_dir)?;
        access::check(&source.attr, caller, Rights::EXECUTE)?;
        let (file, mut seen) = self.find(&source, from)?.ok_or(Error::NoEnt)?;
        let mut goal = self.dir(to_dir)?;
        access::check(&goal.attr, caller, Rights::EXECUTE)?;
        let target = self.find(&goal, to)?;
        if target.as_ref().is_some_and(|(target, _)| *target == file) {
            // Two names of one object, or one name: nothing is to be done
            // (RFC 5661, section 18.26.3).
            let none = |attr: &Attr| ChangeInfo {
                before: attr.change,
                after: attr.change,
                is_atomic: false,
            };
            return Ok(Output::Renamed {
                from: none(&source.attr),
                to: none(&goal.attr),
                replaced: None,
            });
        }
        self.check_rename(caller, (&source, &goal), (file, &seen), target.as_ref())?;
        self.check_writable()?;
        self.check_not_over(&goal.attr)?;
        synced.object(self, &source.seen)?;
        synced.object(self, &goal.seen)?;
        if let Some((target, seen)) = &target {
            self.keep_open(*target, seen)?;
        }
        if seen.is_directory() && self.quotas.is_on() {
            self.quotas.counting.moves(file);
        }
        self.move_name((&source, from), (&goal, to), file, &seen)?;
        let replaced = target.as_ref().map(|(target, _)| *target);
        if let Some((target, mut seen)) = target {
            self.unlinked(target, &mut seen, (to_dir, to))?;
        }
        self.attr_changed(file, &mut seen)?;
        let change = self.change(from_dir, &mut source.seen, source.attr.change)?;
        let to = match from_dir == to_dir {
            true => change,
            false => self.change(to_dir, &mut goal.seen, goal.attr.change)?,
        };
        Ok(Output::Renamed {
            from: change,
            to,
            replaced,
        })
    }

    /// Whether the caller may move an object, and over what is there.
    fn check_rename(
        &self,
        caller: &Caller<'_>,
        (source, goal): (&Dir, &Dir),
        (file, seen): (FileId, &SeenObject),
        target: Option<&(FileId, SeenObject)>,
    ) -> Result<(), Error> {
        let attr = self.attr(file, seen, false)?;
        access::check_remove(&source.attr, &attr, caller)?;
        access::check_add(&goal.attr, attr.kind, caller)?;
        if attr.kind == ObjectKind::Directory && source.file != goal.file {
            // Its entry `..` changes.
            access::check(&attr, caller, Rights::WRITE)?;
        }
        if let Some((target, seen)) = target {
            let target = self.attr(*target, seen, false)?;
            access::check_remove(&goal.attr, &target, caller)?;
            if target.kind == ObjectKind::Directory && attr.kind != ObjectKind::Directory {
                // Full or not.
                return Err(Error::IsDir);
            }
        }
        Ok(())
    }

    /// The new place is known before the name moves, and the old one until it
    /// has.
    fn move_name(
        &self,
        (source, from): (&Dir, &[u8]),
        (goal, to): (&Dir, &[u8]),
        file: FileId,
        seen: &SeenObject,
    ) -> Result<(), Error> {
        let _moving = self.moving();
        self.table().add_place(file.0, goal.file.0, to)?;
        let (old, new) = (source.seen.fd.as_fd(), goal.seen.fd.as_fd());
        let what = NameChange::Move((old, from), (new, to));
        let moved = (self.below).change(what, &mut || renameat(old, from, new, to));
        let mut table = self.table();
        match moved {
            Ok(()) if seen.is_directory() => table.set_place(file.0, goal.file.0, to)?,
            Ok(()) => table.remove_place(file.0, source.file.0, from)?,
            Err(errno) => {
                table.remove_place(file.0, goal.file.0, to)?;
                return Err(not_empty(errno).into());
            }
        }
        Ok(())
    }

    pub(super) fn readlink(&self, file: FileId) -> Result<Box<[u8]>, Error> {
        let seen = self.object(file)?;
        let attr = self.attr(file, &seen, false)?;
        match attr.kind {
            ObjectKind::Symlink => {}
            ObjectKind::Directory => return Err(Error::IsDir),
            _ => return Err(Error::Inval),
        }
        let text = readlinkat(seen.fd.as_fd(), "", Vec::new())?;
        Ok(text.into_bytes().into_boxed_slice())
    }
}

fn removal(kind: ObjectKind) -> AtFlags {
    match kind {
        ObjectKind::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    }
}

/// POSIX lets a full directory be refused in two ways.
fn not_empty(errno: Errno) -> Errno {
    match errno {
        Errno::EXIST => Errno::NOTEMPTY,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::dir::{Dir as Served, DirSpec};

    /// What was there before, or is something else, is not what was made.
    #[test]
    fn object_that_is_older_or_of_another_kind_is_not_taken_for_a_new_one() {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let served = Served::open(&DirSpec {
            name: "test".into(),
            path: folder.path().into(),
            state: state.path().join("state"),
            read_only: false,
            owners: None,
            acls: None,
            direct: false,
        });
        let inner = &served.unwrap().inner;
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("f"), b"").unwrap();
        let seen = |name: &str| inner.beneath.at(name.as_bytes()).unwrap();
        assert!(inner.is_own_work(&seen("d"), New::Directory));
        assert!(!inner.is_own_work(&seen("d"), New::Fifo));
        assert!(!inner.is_own_work(&seen("f"), New::Directory));
        std::thread::sleep(std::time::Duration::from_nanos(2 * MAKING as u64));
        std::fs::rename(folder.path().join("d"), folder.path().join("x")).unwrap();
        let is_known = seen("x").identity.born != 0;
        assert!(!is_known || !inner.is_own_work(&seen("x"), New::Directory));
    }
}
