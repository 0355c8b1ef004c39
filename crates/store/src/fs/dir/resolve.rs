//! From a number to the object that it means, or to nothing.
//!
//! The table says where the object was last seen. What is there is it only if
//! the file system below calls it the same. If it is not, a local process has
//! moved it, or a directory above it: then each step of the way is looked for,
//! where it was and in the directories above that. What is not found so is stale
//! until a lookup comes across it.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use rustix::fs::{OFlags, RawDir};
use rustix::io::Errno;

use super::beneath::{SeenObject, ctime};
use super::table::{HandleTable, ObjectIdentity, ROOT, Record};
use super::{DirInner, LOCKS};
use crate::fs::{Attr, Error, FileId, ObjectKind};

/// Directories above each other that a handle is found below.
const DEPTH_MAX: usize = 4096;
/// Entries that are looked at in a second to find what was moved; beyond that
/// it is stale for now.
const SEARCHED_MAX: u64 = 1 << 20;
/// Bytes of entries that are read at once.
const ENTRIES_BYTES: usize = 32 << 10;

/// How much may still be looked at in this second.
pub(super) struct Budget {
    since: Instant,
    left: u64,
}

impl Budget {
    pub(super) fn new() -> Mutex<Budget> {
        Mutex::new(Budget {
            since: Instant::now(),
            left: SEARCHED_MAX,
        })
    }

    fn take(&mut self) -> bool {
        if self.since.elapsed().as_secs() > 0 {
            (self.since, self.left) = (Instant::now(), SEARCHED_MAX);
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

/// Whether a way that ends so does not lead anywhere, rather than that it
/// cannot be told where.
fn is_no_way(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG
    )
}

/// The way to a name in a directory, as far as it is known.
fn path_to(table: &HandleTable, mut dir: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut names = vec![name.to_vec()];
    while dir != ROOT {
        let Some(record) = table.get(dir)? else {
            return Ok(None);
        };
        if record.name.is_empty() || names.len() > DEPTH_MAX {
            return Ok(None);
        }
        dir = record.dir;
        names.push(record.name);
    }
    names.reverse();
    Ok(Some(names.join(&b'/')))
}

/// What a panic elsewhere has left is as it should be: nothing is half done
/// under these locks that the next one relies on.
fn whole<T>(locked: Result<T, PoisonError<T>>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl DirInner {
    pub(super) fn table(&self) -> MutexGuard<'_, HandleTable> {
        whole(self.table.lock())
    }

    fn lock_of(file: FileId) -> usize {
        (file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % LOCKS
    }

    /// No operation of ours changes the attributes of an object while this is
    /// held; one at a time, and after locks of directories.
    pub(super) fn lock_attributes(&self, file: FileId) -> RwLockWriteGuard<'_, ()> {
        whole(self.locks[LOCKS + DirInner::lock_of(file)].write())
    }

    /// No operation of ours changes the entries of a directory while this is
    /// held.
    pub(super) fn lock_one(&self, file: FileId) -> RwLockWriteGuard<'_, ()> {
        whole(self.locks[DirInner::lock_of(file)].write())
    }

    /// The same of two, which may be one.
    pub(super) fn lock_two(
        &self,
        one: FileId,
        other: FileId,
    ) -> (RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>) {
        let (a, b) = (DirInner::lock_of(one), DirInner::lock_of(other));
        let first = whole(self.locks[a.min(b)].write());
        let second = (a != b).then(|| whole(self.locks[a.max(b)].write()));
        (first, second)
    }

    /// Entries of a directory stay what they are while this is held, as far as
    /// we are concerned.
    pub(super) fn share(&self, dir: FileId) -> RwLockReadGuard<'_, ()> {
        whole(self.locks[DirInner::lock_of(dir)].read())
    }

    /// Nothing is looked for while a name moves.
    pub(super) fn moving(&self) -> RwLockReadGuard<'_, ()> {
        whole(self.topology.read())
    }

    /// An object, by its open file if a client has it open.
    pub(super) fn object(&self, file: FileId) -> Result<SeenObject, Error> {
        match self.entries.pinned(file) {
            Some(fd) => Ok(self.beneath.look(fd)?),
            None => self.resolve(file),
        }
    }

    /// A directory with its attributes.
    pub(super) fn directory(&self, dir: FileId) -> Result<(SeenObject, Attr), Error> {
        let seen = self.object(dir)?;
        let attr = self.attr(dir, &seen, false)?;
        match attr.kind {
            ObjectKind::Directory => Ok((seen, attr)),
            kind => Err(super::attributes::no_directory(kind)),
        }
    }

    /// An object by where it lies.
    pub(super) fn resolve(&self, file: FileId) -> Result<SeenObject, Error> {
        if file.0 == ROOT {
            return Ok(self.beneath.at(b"")?);
        }
        match self.where_it_was(file.0)? {
            Some(seen) => Ok(seen),
            None => self.recover(file.0),
        }
    }

    fn record(&self, number: u64) -> Result<Record, Error> {
        self.table().get(number)?.ok_or(Error::Stale)
    }

    /// The object at a path, if that is it.
    fn at(&self, path: &[u8], identity: &ObjectIdentity) -> Result<Option<SeenObject>, Error> {
        match self.beneath.at(path) {
            Ok(seen) if seen.identity.is(identity) => Ok(Some(seen)),
            Ok(_) => Ok(None),
            Err(errno) if is_no_way(errno) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// An object where it was last seen, by any of its names.
    fn where_it_was(&self, number: u64) -> Result<Option<SeenObject>, Error> {
        let table = self.table();
        let record = table.get(number)?.ok_or(Error::Stale)?;
        let path = match record.name.is_empty() {
            true => None,
            false => path_to(&table, record.dir, &record.name)?,
        };
        drop(table);
        if let Some(path) = path
            && let Some(seen) = self.at(&path, &record.identity)?
        {
            return Ok(Some(seen));
        }
        let table = self.table();
        let mut paths = Vec::new();
        for (_, alias) in table.aliases(&record)? {
            paths.extend(path_to(&table, alias.dir, &alias.name)?);
        }
        drop(table);
        for path in paths {
            if let Some(seen) = self.at(&path, &record.identity)? {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    /// An object that is not where it was. While this runs weft moves no name,
    /// so that what is missing was moved by a local process.
    fn recover(&self, number: u64) -> Result<SeenObject, Error> {
        if self.record(number)?.is_lost {
            return Err(Error::Stale);
        }
        let _still = whole(self.topology.write());
        if let Some(seen) = self.where_it_was(number)? {
            return Ok(seen);
        }
        let mut chain = vec![number];
        while let Some(&last) = chain.last()
            && last != ROOT
        {
            if chain.len() > DEPTH_MAX {
                return Err(Error::Stale);
            }
            chain.push(self.record(last)?.dir);
        }
        let mut above = vec![(ROOT, self.beneath.at(b"")?)];
        while let Some(next) = chain.pop() {
            if next != ROOT {
                let seen = self.find_from(&above, next)?;
                above.push((next, seen));
            }
        }
        let (_, seen) = above.pop().expect("the root at least");
        Ok(seen)
    }

    /// Looks for an object that should lie in the last of these directories.
    fn find_from(&self, above: &[(u64, SeenObject)], number: u64) -> Result<SeenObject, Error> {
        let record = self.record(number)?;
        let (parent, dir) = above.last().expect("the root at least");
        if record.dir == *parent && !record.name.is_empty() {
            match self.beneath.look_up(dir, &record.name) {
                Ok(seen) if seen.identity.is(&record.identity) => return Ok(seen),
                Ok(_) => {}
                Err(errno) if is_no_way(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let table = self.table();
        let aliases = table.aliases(&record)?;
        drop(table);
        for (_, alias) in aliases {
            let path = path_to(&self.table(), alias.dir, &alias.name)?;
            if let Some(path) = path
                && let Some(seen) = self.at(&path, &record.identity)?
            {
                self.moved(number, &seen, alias.dir, &alias.name)?;
                return Ok(seen);
            }
        }
        for (parent, dir) in above.iter().rev() {
            if let Some((name, seen)) = self.search(dir, &record.identity)? {
                self.moved(number, &seen, *parent, &name)?;
                return Ok(seen);
            }
        }
        let mut table = self.table();
        if let Some(mut record) = table.get(number)? {
            record.is_lost = true;
            table.update_record(number, &record)?;
        }
        Err(Error::Stale)
    }

    /// An object was found in another place than it was known to have.
    fn moved(&self, number: u64, seen: &SeenObject, dir: u64, name: &[u8]) -> Result<(), Error> {
        let mut table = self.table();
        let is_only_name = seen.is_directory() || seen.stat.stx_nlink == 1;
        match is_only_name {
            true => table.set_place(number, dir, name)?,
            false => table.add_place(number, dir, name)?,
        }
        Ok(())
    }

    /// An entry of a directory that is this object.
    fn search(
        &self,
        dir: &SeenObject,
        identity: &ObjectIdentity,
    ) -> Result<Option<(Vec<u8>, SeenObject)>, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.beneath.reopen(dir.fd.as_fd(), flags)?;
        let mut bytes = [const { MaybeUninit::uninit() }; ENTRIES_BYTES];
        let mut entries = RawDir::new(fd, &mut bytes);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if !whole(self.budget.lock()).take() {
                // Not lost for good: there was no time to look.
                return Err(Error::Stale);
            }
            let name = entry.file_name().to_bytes();
            if entry.ino() != identity.ino || matches!(name, b"." | b"..") {
                continue;
            }
            if let Ok(seen) = self.beneath.look_up(dir, name)
                && seen.identity.is(identity)
            {
                return Ok(Some((name.to_vec(), seen)));
            }
        }
        Ok(None)
    }

    /// The number of an object that was seen under a name, whose directory the
    /// caller has locked.
    pub(super) fn number(
        &self,
        seen: &SeenObject,
        dir: FileId,
        name: &[u8],
    ) -> Result<FileId, Error> {
        Ok(self.number_and_record(seen, dir, name)?.0)
    }

    /// The same with its record, and whether that is new.
    pub(super) fn number_and_record(
        &self,
        seen: &SeenObject,
        dir: FileId,
        name: &[u8],
    ) -> Result<(FileId, Record, bool), Error> {
        let mut table = self.table();
        let Some((number, record)) = table.find(&seen.identity)? else {
            let mut new = Record::new(seen.identity, dir.0, name);
            new.ctime = ctime(&seen.stat);
            new.change = new.ctime;
            let number = table.add(new.clone())?;
            return Ok((FileId(number), new, true));
        };
        drop(table);
        if number == ROOT {
            // The root beneath itself: a loop that only a broken disk has.
            return Err(Error::Io);
        }
        if record.dir != dir.0 || record.name != name || record.is_lost {
            self.moved(number, seen, dir.0, name)?;
        }
        let mut table = self.table();
        let mut record = table.get(number)?.ok_or(Error::Stale)?;
        let file = FileId(number);
        self.note_change(&mut table, (file, &mut record), &seen.stat, false)?;
        Ok((file, record, false))
    }
}
