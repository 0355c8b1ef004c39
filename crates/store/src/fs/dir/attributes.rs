//! Attributes: what the system below says, whose an object is, and a change
//! attribute that grows with every change.

use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Statx, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
    chmod, chownat, ftruncate, getxattr, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;

use super::beneath::{SeenObject, ctime, proc_path};
use super::quotas::Reserved;
use super::table::{HandleTable, Record};
use super::{DirInner, Owners, Synced};
use crate::fs::{
    Attr, Caller, ChangeInfo, Device, Error, FileId, MODE_MASK, ObjectKind, SET_GID, SET_UID,
    SetAttr, Time, access,
};

/// The attribute that owner, group and mode are recorded in.
const OWNER: &str = "user.weft.owner";
/// Bits of the mode below that a recorded file may have: only weft's user may
/// write, since a user who may write could forge what is recorded.
const DISK_MODE: u32 = 0o755;
/// Another user who may write an object could have forged what it records.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Whose an object is, and what it is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectOwner {
    pub(super) kind: ObjectKind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) device: Device,
}

/// Kinds with the bits of `st_mode` that mean them.
const KINDS: [(ObjectKind, u32); 7] = [
    (ObjectKind::Regular, 0o100_000),
    (ObjectKind::Directory, 0o040_000),
    (ObjectKind::Symlink, 0o120_000),
    (ObjectKind::Fifo, 0o010_000),
    (ObjectKind::Socket, 0o140_000),
    (ObjectKind::Block, 0o060_000),
    (ObjectKind::Character, 0o020_000),
];

fn kind_of(mode: u32) -> Option<ObjectKind> {
    let row = KINDS.iter().find(|(_, bits)| mode & 0o170_000 == *bits);
    row.map(|&(kind, _)| kind)
}

fn bits_of(kind: ObjectKind) -> u32 {
    let row = KINDS.iter().find(|(of, _)| *of == kind);
    row.expect("every kind is in the table").1
}

impl ObjectOwner {
    /// What the system below says.
    fn on_disk(stat: &Statx) -> ObjectOwner {
        let mode = u32::from(stat.stx_mode);
        ObjectOwner {
            kind: kind_of(mode).unwrap_or(ObjectKind::Character),
            mode: mode & MODE_MASK,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            device: Device {
                major: stat.stx_rdev_major,
                minor: stat.stx_rdev_minor,
            },
        }
    }

    pub(super) fn of(attr: &Attr) -> ObjectOwner {
        ObjectOwner {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            device: attr.device,
        }
    }

    /// `uid:gid:mode`, the last in octal and with the kind; devices with their
    /// numbers behind it.
    fn text(&self) -> String {
        let mode = bits_of(self.kind) | self.mode;
        let mut text = format!("{}:{}:{mode:o}", self.uid, self.gid);
        if matches!(self.kind, ObjectKind::Block | ObjectKind::Character) {
            let Device { major, minor } = self.device;
            write!(text, ":{major}:{minor}").expect("a string takes everything");
        }
        text
    }

    fn parse(text: &[u8]) -> Option<ObjectOwner> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.split(':');
        let uid = parts.next()?.parse().ok()?;
        let gid = parts.next()?.parse().ok()?;
        let mode = u32::from_str_radix(parts.next()?, 8).ok()?;
        let mut number = || parts.next().map_or(Some(0), |part| part.parse().ok());
        let device = Device {
            major: number()?,
            minor: number()?,
        };
        Some(ObjectOwner {
            kind: kind_of(mode)?,
            mode: mode & MODE_MASK,
            uid,
            gid,
            device,
        })
    }

    /// The mode of what holds it below.
    fn disk_mode(&self) -> u32 {
        match self.kind {
            ObjectKind::Regular => self.mode & DISK_MODE | 0o600,
            ObjectKind::Directory => self.mode & DISK_MODE | 0o700,
            _ => 0o600,
        }
    }
}

fn time(of: rustix::fs::StatxTimestamp) -> Time {
    Time {
        seconds: of.tv_sec,
        nanos: of.tv_nsec,
    }
}

/// Why an object that is no regular file is not read or written.
pub(super) fn no_file(kind: ObjectKind) -> Error {
    match kind {
        ObjectKind::Directory => Error::IsDir,
        ObjectKind::Symlink => Error::Symlink,
        _ => Error::WrongType,
    }
}

/// Why an object that is no directory has no entries.
pub(super) fn no_directory(kind: ObjectKind) -> Error {
    match kind {
        ObjectKind::Symlink => Error::Symlink,
        _ => Error::NotDir,
    }
}

impl DirInner {
    /// Whether what is recorded with an object can only have been recorded by
    /// weft.
    pub(super) fn is_recorder(&self, stat: &Statx) -> bool {
        let is_own = stat.stx_uid == self.uid && u32::from(stat.stx_mode) & WRITABLE_BY_OTHERS == 0;
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        is_own && matches!(file_type, FileType::RegularFile | FileType::Directory)
    }

    pub(super) fn owner(
        &self,
        stat: &Statx,
        kept: Option<(u32, u32)>,
        way: impl FnOnce() -> Vec<u8>,
    ) -> Result<ObjectOwner, Error> {
        let disk = ObjectOwner::on_disk(stat);
        if self.owners == Owners::Real {
            return Ok(disk);
        }
        if let Some((uid, gid)) = kept {
            return Ok(ObjectOwner { uid, gid, ..disk });
        }
        if !self.is_recorder(stat) {
            return Ok(disk);
        }
        let mut text = [0; 64];
        let found = match getxattr(way(), OWNER, &mut text) {
            Ok(len) => ObjectOwner::parse(&text[..len]),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(match found {
            // A directory is one, whatever is said of it.
            Some(owner) if disk.kind == ObjectKind::Directory => ObjectOwner {
                kind: ObjectKind::Directory,
                ..owner
            },
            Some(owner) if !matches!(owner.kind, ObjectKind::Directory | ObjectKind::Symlink) => {
                owner
            }
            _ => disk,
        })
    }

    /// The attributes of an object; `has_changed`: we have changed it since.
    pub(super) fn attr(
        &self,
        file: FileId,
        seen: &SeenObject,
        has_changed: bool,
    ) -> Result<Attr, Error> {
        let mut table = self.table();
        let mut record = table.get(file.0)?.ok_or(Error::Stale)?;
        self.note_change(&mut table, (file, &mut record), &seen.stat, has_changed)?;
        drop(table);
        let way = || proc_path(seen.fd.as_fd()).into_bytes();
        self.attr_of(file, &record, &seen.stat, way)
    }

    /// Brings the change attribute in a record up to date, which was read under
    /// the same lock: a caller that reads after a change never sees the value
    /// before it.
    pub(super) fn note_change(
        &self,
        table: &mut HandleTable,
        (file, record): (FileId, &mut Record),
        stat: &Statx,
        has_changed: bool,
    ) -> Result<(), Error> {
        let has_changed = has_changed | self.entries.take_changes(file);
        let now = ctime(stat);
        if has_changed || record.ctime != now {
            // The clock below ticks a few hundred times a second only, and may
            // be set back.
            record.change = now.max(record.change + u64::from(record.change > 0));
            record.ctime = now;
            table.update_record(file.0, record)?;
        }
        Ok(())
    }

    /// The attributes of an object with a record that is up to date, and to
    /// which there is a way.
    pub(super) fn attr_of(
        &self,
        file: FileId,
        record: &Record,
        stat: &Statx,
        way: impl Fn() -> Vec<u8>,
    ) -> Result<Attr, Error> {
        let owner = self.owner(stat, record.owner, &way)?;
        let is_special = !matches!(
            owner.kind,
            ObjectKind::Regular | ObjectKind::Directory | ObjectKind::Symlink
        );
        Ok(Attr {
            file,
            kind: owner.kind,
            mode: owner.mode,
            acl: self.acl(stat, &owner, way)?,
            label: None,
            links: stat.stx_nlink,
            uid: owner.uid,
            gid: owner.gid,
            device: owner.device,
            size: if is_special { 0 } else { stat.stx_size },
            used_bytes: stat.stx_blocks * 512,
            accessed: time(stat.stx_atime),
            modified: time(stat.stx_mtime),
            changed: time(stat.stx_ctime),
            created: time(stat.stx_btime),
            change: record.change,
        })
    }

    /// The attributes of what we have just changed.
    pub(super) fn attr_changed(&self, file: FileId, seen: &mut SeenObject) -> Result<Attr, Error> {
        self.attr_grown(file, seen, &mut Reserved::default())
    }

    /// The same of what room was taken for.
    pub(super) fn attr_grown(
        &self,
        file: FileId,
        seen: &mut SeenObject,
        room: &mut Reserved,
    ) -> Result<Attr, Error> {
        let version = self.quotas.version();
        self.beneath.refresh_attributes(seen)?;
        let attr = self.attr(file, seen, true)?;
        self.entries.set_attr(&attr);
        self.charge(seen, &attr, version, room);
        Ok(attr)
    }

    /// The change attribute of what we have just changed, around that. A local
    /// process may have changed it as well, which cannot be told.
    pub(super) fn change(
        &self,
        file: FileId,
        seen: &mut SeenObject,
        before: u64,
    ) -> Result<ChangeInfo, Error> {
        Ok(ChangeInfo {
            before,
            after: self.attr_changed(file, seen)?.change,
            is_atomic: false,
        })
    }

    /// Gives an object its owner, group and mode.
    pub(super) fn set_owner(
        &self,
        file: Option<FileId>,
        seen: &mut SeenObject,
        owner: &ObjectOwner,
    ) -> Result<(), Error> {
        let object = Arc::clone(&seen.fd);
        let fd = object.as_fd();
        let has_mode = seen.file_type() != FileType::Symlink;
        if self.owners == Owners::Real {
            let disk = ObjectOwner::on_disk(&seen.stat);
            if (disk.uid, disk.gid) != (owner.uid, owner.gid) {
                let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
                chownat(fd, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
            }
            let is_special = (disk.mode | owner.mode) & (SET_UID | SET_GID) != 0;
            if has_mode && (disk.mode != owner.mode || is_special) {
                // A new owner has cost the bits that give powers.
                chmod(proc_path(fd), Mode::from_raw_mode(owner.mode))?;
            }
            return self.beneath.refresh_attributes(seen).map_err(Error::from);
        }
        if !self.is_recordable(seen) {
            return self.keep_owner(file, owner);
        }
        if seen.stat.stx_uid != self.uid {
            return Err(Error::Perm);
        }
        let mode = owner.disk_mode();
        if u32::from(seen.stat.stx_mode) & MODE_MASK != mode {
            chmod(proc_path(fd), Mode::from_raw_mode(mode))?;
            self.beneath.refresh_attributes(seen)?;
        }
        match ObjectOwner::on_disk(&seen.stat) == *owner {
            true => match removexattr(proc_path(fd), OWNER) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                Err(error) => Err(error.into()),
            },
            false => {
                let text = owner.text();
                setxattr(proc_path(fd), OWNER, text.as_bytes(), XattrFlags::empty())?;
                Ok(())
            }
        }
    }

    fn is_recordable(&self, seen: &SeenObject) -> bool {
        matches!(
            seen.file_type(),
            FileType::RegularFile | FileType::Directory
        )
    }

    /// Of what has no extended attributes the table keeps the owner.
    fn keep_owner(&self, file: Option<FileId>, owner: &ObjectOwner) -> Result<(), Error> {
        let Some(file) = file else {
            return Ok(());
        };
        let mut table = self.table();
        let mut record = table.get(file.0)?.ok_or(Error::Stale)?;
        record.owner = Some((owner.uid, owner.gid));
        Ok(table.update_record(file.0, &record)?)
    }

    pub(super) fn getattr(&self, file: FileId) -> Result<Attr, Error> {
        let seen = self.object(file)?;
        self.attr(file, &seen, false)
    }

    pub(super) fn setattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        set: &SetAttr,
        guard: Option<Time>,
        synced: &mut Synced,
    ) -> Result<Attr, Error> {
        let _alone = self.lock_attributes(file);
        let mut seen = self.object(file)?;
        let attr = self.attr(file, &seen, false)?;
        if guard.is_some_and(|guard| guard != attr.changed) {
            return Err(Error::NotSync);
        }
        if *set == SetAttr::default() {
            return Ok(attr);
        }
        self.set(caller, &mut seen, &attr, set, synced)
    }

    /// Sets attributes of an object whose attributes the caller has locked.
    pub(super) fn set(
        &self,
        caller: &Caller<'_>,
        seen: &mut SeenObject,
        attr: &Attr,
        set: &SetAttr,
        synced: &mut Synced,
    ) -> Result<Attr, Error> {
        let mut new = access::set(attr, caller, set)?;
        if set.label.is_some() || set.acl.is_some() && !self.keeps_acls(attr.kind) {
            return Err(Error::AttrNotSupp);
        }
        self.check_writable()?;
        synced.object(self, seen)?;
        if let Some(size) = set.size {
            if set.mode.is_none() {
                new.mode = access::mode_written(new.mode, caller);
            }
            self.truncate(seen.fd.as_fd(), size)?;
        }
        let (owner, old) = (ObjectOwner::of(&new), ObjectOwner::of(attr));
        if owner != old || new.acl.is_some() {
            self.give_to(caller, (seen, attr), &new)?;
            self.set_owner(Some(attr.file), seen, &owner)
                .inspect_err(|_| self.look_at(attr.file))?;
        }
        if set.mode.is_some() || set.acl.is_some() {
            self.set_acl(seen, set, &new)?;
        }
        self.set_times(seen.fd.as_fd(), set, &new)?;
        self.attr_changed(attr.file, seen)
    }

    fn truncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<(), Error> {
        if size > self.info.file_bytes_max {
            return Err(Error::FBig);
        }
        let file = self.reopen_file(fd, OFlags::WRONLY)?;
        Ok(ftruncate(&file, size)?)
    }

    pub(super) fn set_times(
        &self,
        fd: BorrowedFd<'_>,
        set: &SetAttr,
        new: &Attr,
    ) -> Result<(), Error> {
        if set.accessed.is_none() && set.modified.is_none() {
            return Ok(());
        }
        let spec = |is_set: bool, time: Time| Timespec {
            tv_sec: if is_set { time.seconds } else { 0 },
            tv_nsec: if is_set {
                time.nanos.into()
            } else {
                UTIME_OMIT
            },
        };
        let times = Timestamps {
            last_access: spec(set.accessed.is_some(), new.accessed),
            last_modification: spec(set.modified.is_some(), new.modified),
        };
        Ok(utimensat(fd, "", &times, AtFlags::EMPTY_PATH)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_written_and_read() {
        let owner = ObjectOwner {
            kind: ObjectKind::Block,
            mode: 0o4750,
            uid: 1000,
            gid: u32::MAX,
            device: Device { major: 8, minor: 1 },
        };
        assert_eq!(owner.text(), "1000:4294967295:64750:8:1");
        assert_eq!(ObjectOwner::parse(owner.text().as_bytes()), Some(owner));
        let file = ObjectOwner {
            kind: ObjectKind::Regular,
            device: Device::default(),
            ..owner
        };
        assert_eq!(file.text(), "1000:4294967295:104750");
        assert_eq!(ObjectOwner::parse(file.text().as_bytes()), Some(file));
        for wrong in [
            &b""[..],
            b"1",
            b"1:2",
            b"1:2:9",
            b"1:2:777",
            b"-1:2:100644",
            b"\xff",
        ] {
            assert_eq!(ObjectOwner::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(file.disk_mode(), 0o750);
        assert_eq!(owner.disk_mode(), 0o600);
    }
}
