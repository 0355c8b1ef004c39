//! What is remembered about objects, so that a [`crate::fs::FileId`] means the
//! same one for all time.
//!
//! A file of slots ([`slot`]): a [`crate::fs::FileId`] is the number of the
//! slot with the object's record, and no slot is ever used for another one, so
//! no number is. A record says what the file system below calls the object
//! ([`ObjectIdentity`]) and where it was last seen; a file with several names has a
//! chain of further slots for those. Slots of objects that are gone give their
//! room back a page at a time.
//!
//! A second file finds records by inode number ([`index`]). Both are read and
//! written in place, so that memory is the kernel's to give; each change is one
//! write within a page, which a killed process has made or has not. What a
//! crash of the machine may lose is what was written since the last
//! [`HandleTable::take_dirty`]: numbers were set aside before ([`NUMBERS`]), so that none
//! comes twice then either.
//!
//! A copy of the file, as from a backup, lacks the numbers that were given out since,
//! and would give them out again. So the header names the file that it was written
//! to, and a table in another file takes a new instance and a new key: no handle
//! from before means anything there. What is copied over the very file is not seen.

mod index;
mod slot;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

pub(super) use slot::{Header, Record};

use crate::fs::HandleKey;

use super::beneath::identity_of;
use index::Index;
use slot::{NO_KEY, SLOT_BYTES, SlotBytes, TAIL_BYTES};

/// Numbers that are set aside at a time.
const NUMBERS: u64 = 4096;
/// Slots in a page, whose room is given back together.
const PAGE_SLOTS: u64 = 4096 / SLOT_BYTES as u64;
/// Further names of an object that are remembered.
const ALIASES_MAX: usize = 16;
/// The slot of the uppermost directory.
pub(super) const ROOT: u64 = 1;

/// Other users do not read the key.
const MODE: u32 = 0o600;

pub(super) const OBJECTS: &str = "objects";
pub(super) const INDEX: &str = "index";

/// What the file system below calls an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectIdentity {
    pub(super) ino: u64,
    /// When it was made, in nanoseconds; 0 where that is not recorded.
    pub(super) born: i64,
    /// Of its name ([`reactor::object_name`]); 0 where it cannot be asked for.
    pub(super) name: u64,
}

impl ObjectIdentity {
    /// Whether both are of one object.
    pub(super) fn is(&self, other: &ObjectIdentity) -> bool {
        let is_name_known = self.name != 0 && other.name != 0;
        self.ino == other.ino
            && self.born == other.born
            && (!is_name_known || self.name == other.name)
    }
}

pub(super) struct HandleTable {
    folder: PathBuf,
    objects: Arc<File>,
    index: Index,
    header: Header,
    /// The next number; below `header.next`, up to which they are set aside.
    next: u64,
    is_dirty: bool,
    /// No two objects have the same inode number at a time.
    inos_are_unique: bool,
}

fn open_rw(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(MODE);
    options.open(path)
}

fn read_bytes(file: &File, at: u64) -> io::Result<[u8; SLOT_BYTES]> {
    let (mut bytes, mut got) = ([0; SLOT_BYTES], 0);
    while got < SLOT_BYTES {
        match file.read_at(&mut bytes[got..], at * SLOT_BYTES as u64 + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn header_of(objects: &File) -> Result<Header, TableRefused> {
    Header::decode(&read_bytes(objects, 0)?).ok_or(TableRefused::Damaged)
}

/// The header of a copy, which shall not mean anything to handles of the original.
fn renewed(folder: &Path, header: Header, instance: u64) -> Header {
    tracing::warn!(
        state = %folder.display(),
        "the table of file handles is a copy, as from a backup, and may lack what was given out \
         since: all file handles from before are stale, so that none means another file; let \
         clients unmount and mount again"
    );
    Header {
        instance,
        handle_key: NO_KEY,
        // The index may be of another time.
        is_clean: false,
        ..header
    }
}

/// What is in the way of opening a table.
pub(super) enum TableRefused {
    System(io::Error),
    /// It is none, or damaged.
    Damaged,
}

impl From<io::Error> for TableRefused {
    fn from(error: io::Error) -> TableRefused {
        TableRefused::System(error)
    }
}

impl HandleTable {
    /// The header of the one in `folder`, if there is one, which is only looked at.
    pub(super) fn look(folder: &Path) -> Result<Option<Header>, TableRefused> {
        let objects = match File::open(folder.join(OBJECTS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        match objects.metadata()?.len() {
            0 => Ok(None),
            _ => header_of(&objects).map(Some),
        }
    }

    /// The one in `folder`; if there is none, a new one as `first` says. One that
    /// has no key of file handles gets `key`. A copy gets that and the instance of
    /// `first`.
    pub(super) fn open(
        folder: &Path,
        inos_are_unique: bool,
        key: HandleKey,
        first: impl FnOnce() -> Header,
    ) -> Result<HandleTable, TableRefused> {
        let objects = Arc::new(open_rw(&folder.join(OBJECTS))?);
        let is_new = objects.metadata()?.len() == 0;
        let file = identity_of(objects.as_fd()).map_err(io::Error::from)?;
        let mut header = match is_new {
            true => first(),
            false => {
                let header = header_of(&objects)?;
                match header.file == ObjectIdentity::default() || header.file.is(&file) {
                    true => header,
                    false => renewed(folder, header, first().instance),
                }
            }
        };
        header.file = file;
        if header.handle_key == NO_KEY {
            header.handle_key = key;
            objects.set_permissions(Permissions::from_mode(MODE))?;
        }
        let index = Index::new(
            open_rw(&folder.join(INDEX))?,
            header.entries.max(1),
            header.used,
        );
        let mut table = HandleTable {
            folder: folder.to_owned(),
            objects,
            index,
            next: header.next.max(ROOT + 1),
            header,
            is_dirty: false,
            inos_are_unique,
        };
        if !table.header.is_clean || is_new {
            table.rebuild()?;
        }
        table.header.is_clean = false;
        table.set_aside()?;
        if is_new {
            let root = Record::new(table.header.root, ROOT, b"");
            table.write(ROOT, &root)?;
            table.index.insert(root.identity.ino, ROOT)?;
            table.objects.sync_all()?;
            File::open(folder)?.sync_all()?;
        }
        Ok(table)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Nothing comes after this: the next one to open it finds all as it is.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.index.sync()?;
        self.objects.sync_data()?;
        self.header.next = self.next;
        self.header.is_clean = true;
        self.write_header()?;
        self.objects.sync_data()
    }

    fn write_header(&mut self) -> io::Result<()> {
        self.header.entries = self.index.entries;
        self.header.used = self.index.used;
        self.objects.write_all_at(&self.header.encode(), 0)
    }

    /// Sees to it that the next numbers come once, whatever happens.
    fn set_aside(&mut self) -> io::Result<()> {
        self.header.next = self.next + NUMBERS;
        self.write_header()?;
        self.objects.sync_data()
    }

    fn number(&mut self) -> io::Result<u64> {
        if self.next == self.header.next {
            self.set_aside()?;
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Makes the index anew from the records.
    fn rebuild(&mut self) -> io::Result<()> {
        let (len, mut at, mut all) = (self.objects.metadata()?.len(), 0, Vec::new());
        let mut block = vec![0; 4096 * SLOT_BYTES];
        while at < len {
            // Objects that are gone have left holes.
            let Ok(data) = seek(&self.objects, SeekFrom::Data(at)) else {
                break;
            };
            at = data - data % SLOT_BYTES as u64;
            let count = self.objects.read_at(&mut block, at)?;
            if count < SLOT_BYTES {
                break;
            }
            let first = at / SLOT_BYTES as u64;
            for (i, bytes) in block[..count].chunks_exact(SLOT_BYTES).enumerate() {
                let bytes = bytes.try_into().expect("a slot");
                if let SlotBytes::Record(record, _) = slot::decode(bytes)
                    && !record.is_alias
                {
                    all.push((record.identity.ino, first + i as u64));
                }
            }
            at += (count - count % SLOT_BYTES) as u64;
        }
        let new = self.folder.join("index.new");
        let file = File::create_new(&new).or_else(|_| {
            fs::remove_file(&new)?;
            File::create_new(&new)
        })?;
        drop(file);
        let entries = index::entries_for(all.len() as u64);
        self.index = Index::build(open_rw(&new)?, entries, &all)?;
        fs::rename(&new, self.folder.join(INDEX))
    }

    /// What a crash of the machine must not lose from here on: to be synced
    /// without the table's lock.
    pub(super) fn take_dirty(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.is_dirty).then(|| Arc::clone(&self.objects))
    }

    /// The record in a slot with its whole name.
    fn read(&self, number: u64) -> io::Result<Option<Record>> {
        if number == 0 || number >= self.next {
            return Ok(None);
        }
        let SlotBytes::Record(mut record, name_len) =
            slot::decode(&read_bytes(&self.objects, number)?)
        else {
            return Ok(None);
        };
        let mut tail = record.tail;
        while record.name.len() < name_len {
            let SlotBytes::Tail { next, bytes } = slot::decode(&read_bytes(&self.objects, tail)?)
            else {
                // The crash of a machine: the object is known, its name is not.
                record.name.clear();
                break;
            };
            let len = (name_len - record.name.len()).min(TAIL_BYTES);
            record.name.extend_from_slice(&bytes[..len]);
            tail = next;
        }
        Ok(Some(*record))
    }

    fn write_slot(&mut self, number: u64, bytes: &[u8; SLOT_BYTES]) -> io::Result<()> {
        self.is_dirty = true;
        self.objects.write_all_at(bytes, number * SLOT_BYTES as u64)
    }

    /// A record whose name is as it was.
    fn write(&mut self, number: u64, record: &Record) -> io::Result<()> {
        self.write_slot(number, &record.encode())
    }

    /// A record whose name is new: more of it goes into slots of their own,
    /// which are there before it points to them.
    fn write_named(&mut self, number: u64, record: &mut Record) -> io::Result<()> {
        let old = std::mem::take(&mut record.tail);
        for rest in record.rest().to_vec().chunks(TAIL_BYTES).rev() {
            let tail = self.number()?;
            self.write_slot(tail, &slot::tail(rest, record.tail))?;
            record.tail = tail;
        }
        self.write(number, record)?;
        self.free_tails(old)
    }

    fn free_tails(&mut self, mut tail: u64) -> io::Result<()> {
        while tail != 0 {
            let SlotBytes::Tail { next, .. } = slot::decode(&read_bytes(&self.objects, tail)?)
            else {
                break;
            };
            self.free(tail)?;
            tail = next;
        }
        Ok(())
    }

    /// Empties a slot, and gives the page back if it was the last in it.
    fn free(&mut self, number: u64) -> io::Result<()> {
        self.write_slot(number, &[0; SLOT_BYTES])?;
        let first = number - number % PAGE_SLOTS;
        if first == 0 || first + PAGE_SLOTS > self.next {
            return Ok(());
        }
        let mut page = [0; PAGE_SLOTS as usize * SLOT_BYTES];
        let at = first * SLOT_BYTES as u64;
        if self.objects.read_exact_at(&mut page, at).is_ok() && page.iter().all(|&byte| byte == 0) {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where there are no holes the room stays taken, and nothing more.
            let _ = fallocate(&self.objects, mode, at, page.len() as u64);
        }
        Ok(())
    }

    /// The record of an object.
    pub(super) fn get(&self, number: u64) -> io::Result<Option<Record>> {
        Ok(self.read(number)?.filter(|record| !record.is_alias))
    }

    /// Changes what is known of an object but for where it lies.
    pub(super) fn update_record(&mut self, number: u64, record: &Record) -> io::Result<()> {
        self.write(number, record)
    }

    /// The record of an object that was seen.
    pub(super) fn find(&mut self, identity: &ObjectIdentity) -> io::Result<Option<(u64, Record)>> {
        let (mut found, mut gone) = (None, Vec::new());
        let this = &*self;
        self.index.find(identity.ino, &mut |number| {
            match this.get(number)? {
                Some(record) if record.identity.is(identity) => found = Some((number, record)),
                Some(record) if record.identity.ino == identity.ino => gone.push(number),
                _ => {}
            }
            Ok(found.is_some())
        })?;
        if self.inos_are_unique {
            for number in gone {
                // Its inode number is another's now.
                self.remove(number)?;
            }
        }
        Ok(found)
    }

    /// Remembers an object that has no record.
    pub(super) fn add(&mut self, mut record: Record) -> io::Result<u64> {
        if self.index.is_full() {
            self.rebuild()?;
        }
        let number = self.number()?;
        self.write_named(number, &mut record)?;
        self.index.insert(record.identity.ino, number)?;
        Ok(number)
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, number: u64) -> io::Result<()> {
        let Some(record) = self.get(number)? else {
            return Ok(());
        };
        self.index.remove(record.identity.ino, number)?;
        self.free(number)?;
        self.free_tails(record.tail)?;
        self.free_aliases(record.next)
    }

    fn free_aliases(&mut self, mut next: u64) -> io::Result<()> {
        while let Some(alias) = self.read(next)?.filter(|alias| alias.is_alias) {
            self.free(next)?;
            self.free_tails(alias.tail)?;
            next = alias.next;
        }
        Ok(())
    }

    /// Further names of an object with their slots, the newest first.
    pub(super) fn aliases(&self, record: &Record) -> io::Result<Vec<(u64, Record)>> {
        let (mut aliases, mut next) = (Vec::new(), record.next);
        while aliases.len() <= ALIASES_MAX
            && let Some(alias) = self.read(next)?.filter(|alias| alias.is_alias)
        {
            let number = std::mem::replace(&mut next, alias.next);
            aliases.push((number, alias));
        }
        Ok(aliases)
    }

    /// An object lies there, too, or is about to.
    pub(super) fn add_place(&mut self, number: u64, dir: u64, name: &[u8]) -> io::Result<()> {
        let Some(mut record) = self.get(number)? else {
            return Ok(());
        };
        if record.name.is_empty() {
            (record.dir, record.name) = (dir, name.to_vec());
            record.is_lost = false;
            return self.write_named(number, &mut record);
        }
        let is_there = |place: &Record| place.dir == dir && place.name == name;
        let aliases = self.aliases(&record)?;
        if is_there(&record) || aliases.iter().any(|(_, alias)| is_there(alias)) {
            return Ok(());
        }
        if aliases.len() >= ALIASES_MAX {
            let (oldest, _) = aliases[aliases.len() - 1];
            self.unchain(number, &mut record, &aliases, oldest)?;
        }
        let mut alias = Record {
            is_alias: true,
            dir,
            name: name.to_vec(),
            next: record.next,
            ..Record::default()
        };
        let slot = self.number()?;
        self.write_named(slot, &mut alias)?;
        record.next = slot;
        record.is_lost = false;
        self.write(number, &record)
    }

    /// Takes one further name out of the chain.
    fn unchain(
        &mut self,
        number: u64,
        record: &mut Record,
        aliases: &[(u64, Record)],
        slot: u64,
    ) -> io::Result<()> {
        let at = aliases.iter().position(|&(other, _)| other == slot);
        let at = at.expect("it is one of them");
        let alias = &aliases[at].1;
        match at {
            0 => {
                record.next = alias.next;
                self.write(number, record)?;
            }
            _ => {
                let (before, mut other) = aliases[at - 1].clone();
                other.next = alias.next;
                self.write(before, &other)?;
            }
        }
        self.free(slot)?;
        self.free_tails(alias.tail)
    }

    /// An object does not lie there any more.
    pub(super) fn remove_place(&mut self, number: u64, dir: u64, name: &[u8]) -> io::Result<()> {
        let Some(mut record) = self.get(number)? else {
            return Ok(());
        };
        let aliases = self.aliases(&record)?;
        let is_there = |place: &Record| place.dir == dir && place.name == name;
        if let Some(&(slot, _)) = aliases.iter().find(|(_, alias)| is_there(alias)) {
            return self.unchain(number, &mut record, &aliases, slot);
        }
        if !is_there(&record) {
            return Ok(());
        }
        // The newest of the others takes its place.
        (record.dir, record.name) = match aliases.first() {
            Some((_, alias)) => (alias.dir, alias.name.clone()),
            None => (0, Vec::new()),
        };
        self.write_named(number, &mut record)?;
        match aliases.first() {
            Some(&(slot, _)) => self.unchain(number, &mut record, &aliases, slot),
            None => Ok(()),
        }
    }

    /// An object was seen to lie there, and nowhere else.
    pub(super) fn set_place(&mut self, number: u64, dir: u64, name: &[u8]) -> io::Result<()> {
        let Some(mut record) = self.get(number)? else {
            return Ok(());
        };
        let aliases = std::mem::take(&mut record.next);
        (record.dir, record.name) = (dir, name.to_vec());
        record.is_lost = false;
        self.write_named(number, &mut record)?;
        self.free_aliases(aliases)
    }
}

#[cfg(test)]
mod tests;
