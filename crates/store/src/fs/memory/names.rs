//! Names: finding, making, moving and taking them away.
//!
//! An operation that needs to know which objects are concerned before it can
//! lock them looks first and looks again under the locks, and begins anew if
//! another was quicker.

use machine::work;

use super::content::{Chunk, Content};
use super::directory::{Directory, entry_bytes};
use super::node::{Body, Node};
use super::table::Locked;
use super::{LINKS_MAX, MemoryInner, OperationOutput, new_attributes};
use crate::fs::quota::Charged;
use crate::fs::{
    Attr, Caller, ChangeInfo, Error, FileId, FsOp, Listing, New, ObjectKind, Output, Removable,
    Rights, SetAttr, access, check_name, check_symlink,
};

/// How often an operation begins anew.
const TRIES_MAX: u32 = 1000;
/// Directories above each other that a directory may be moved below.
const DEPTH_MAX: u32 = 1 << 16;

/// A directory and a name in it.
pub(super) type NameInDirectory<'a> = (FileId, &'a [u8]);

impl ChangeInfo {
    fn none(attr: &Attr) -> ChangeInfo {
        ChangeInfo {
            before: attr.change,
            after: attr.change,
            is_atomic: true,
        }
    }
}

impl Node {
    /// An entry has come or gone.
    fn entries_changed(&mut self, caller: &Caller<'_>, added: &[&[u8]], removed: &[&[u8]]) {
        let sum = |names: &[&[u8]]| names.iter().map(|name| entry_bytes(name)).sum::<u64>();
        self.attr.size = self.attr.size + sum(added) - sum(removed);
        self.attr.used_bytes = self.attr.size;
        self.touch_content(caller.now);
    }
}

impl MemoryInner {
    pub(super) fn lookup(
        &self,
        caller: &Caller<'_>,
        dir: FileId,
        name: &[u8],
    ) -> Result<FileId, Error> {
        check_name(name)?;
        self.find(caller, (dir, name))?.ok_or(Error::NoEnt)
    }

    fn find(
        &self,
        caller: &Caller<'_>,
        (dir, name): NameInDirectory<'_>,
    ) -> Result<Option<FileId>, Error> {
        let node = self.table.read(dir)?;
        let directory = node.directory()?;
        access::check(&node.attr, caller, Rights::EXECUTE)?;
        Ok(directory.get(self.hash(name), name))
    }

    pub(super) fn parent(&self, caller: &Caller<'_>, dir: FileId) -> Result<FileId, Error> {
        let node = self.table.read(dir)?;
        let directory = node.directory()?;
        access::check(&node.attr, caller, Rights::EXECUTE)?;
        match dir == self.root {
            true => Err(Error::NoEnt),
            false => Ok(directory.parent),
        }
    }

    pub(super) fn create(
        &self,
        caller: &Caller<'_>,
        place: NameInDirectory<'_>,
        new: New<'_>,
        set: &SetAttr,
    ) -> OperationOutput {
        check_name(place.1)?;
        if let New::Symlink(text) = new {
            check_symlink(text)?;
        }
        let hash = self.hash(place.1);
        for _ in 0..TRIES_MAX {
            let mut dir = self.table.write(place.0)?;
            let found = dir.directory()?.get(hash, place.1);
            access::check(&dir.attr, caller, Rights::EXECUTE)?;
            let Some(found) = found else {
                let made = self.make(caller, &mut dir, (hash, place.1), new, set)?;
                return Ok((made, Vec::new()));
            };
            let change = ChangeInfo::none(&dir.attr);
            drop(dir);
            match self.take_existing(caller, found, new, set) {
                Err(Error::Stale) => {}
                Ok((attr, left)) => {
                    let output = Output::Created {
                        attr,
                        is_new: false,
                        change,
                    };
                    return Ok((output, left));
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Delay)
    }

    /// What is to be made is there already.
    fn take_existing(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        new: New<'_>,
        set: &SetAttr,
    ) -> Result<(Attr, Vec<Chunk>), Error> {
        let mut node = self.table.write(file)?;
        match new {
            New::Unchecked => {}
            New::Exclusive(verifier) if node.verifier == Some(verifier) => {
                return Ok((node.attr.clone(), Vec::new()));
            }
            _ => return Err(Error::Exist),
        }
        if node.attr.kind != ObjectKind::Regular {
            return Err(node.no_file());
        }
        let mut left = Vec::new();
        if set.size == Some(0) {
            let only = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            left = self.set(&mut node, caller, &only)?;
        }
        Ok((node.attr.clone(), left))
    }

    fn make(
        &self,
        caller: &Caller<'_>,
        dir: &mut Node,
        (hash, name): (u64, &[u8]),
        new: New<'_>,
        set: &SetAttr,
    ) -> Result<Output, Error> {
        let kind = new.kind();
        access::check_add(&dir.attr, kind, caller)?;
        let attr = access::made(&dir.attr, &new_attributes(kind, caller.now), caller, set)?;
        let body = match new {
            New::Unchecked | New::Guarded | New::Exclusive(_) => Body::File(Content::empty()),
            New::Directory => Body::Directory(Directory::new(dir.attr.file)),
            New::Symlink(text) => Body::Symlink(text.into()),
            New::Fifo | New::Socket | New::Block(_) | New::Character(_) => Body::Special,
        };
        let tree = &dir.charged.tree;
        let charged = self.store.quotas.charged(attr.uid, attr.gid, tree);
        let mut node = Node::new(attr, charged, body);
        match new {
            New::Exclusive(verifier) => node.verifier = Some(verifier),
            New::Directory => node.attr.links = 2,
            New::Symlink(text) => {
                (node.attr.size, node.attr.used_bytes) = (text.len() as u64, text.len() as u64);
            }
            New::Block(device) | New::Character(device) => node.attr.device = device,
            _ => {}
        }
        let attr = self.insert(node, (&dir.charged, name), set.size)?;
        dir.directory_mut()?.insert(hash, name, attr.file);
        let before = dir.attr.change;
        dir.attr.links += u32::from(kind == ObjectKind::Directory);
        dir.entries_changed(caller, &[name], &[]);
        Ok(Output::Created {
            attr,
            is_new: true,
            change: ChangeInfo {
                before,
                after: dir.attr.change,
                is_atomic: true,
            },
        })
    }

    /// Puts an object into the table, if there is room for it, a name in a directory that is
    /// charged for it, and the size that it begins with.
    fn insert(
        &self,
        mut node: Box<Node>,
        (dir, name): (&Charged, &[u8]),
        size: Option<u64>,
    ) -> Result<Attr, Error> {
        let (store, charged) = (&self.store, node.charged.clone());
        let (bytes, charge) = (node.bytes(), node.charge());
        store.take(dir, entry_bytes(name))?;
        let taken = store.quotas.take(&charged, charge, 1).and_then(|()| {
            let taken = store.space.take(bytes);
            taken.inspect_err(|_| store.quotas.give(&charged, charge, 1))
        });
        taken.inspect_err(|_| store.give(dir, entry_bytes(name)))?;
        let sized = match size {
            Some(size) => self.store.resize(&mut node, size).map(|_| ()),
            None => Ok(()),
        };
        let attr = node.attr.clone();
        let inserted = sized.and_then(|()| {
            let room = attr.used_bytes;
            let file = self.table.insert(node);
            if file.is_err() && attr.kind == ObjectKind::Regular {
                // All that a file without content can have is room beside it.
                store.give(&charged, room);
            }
            file
        });
        match inserted {
            Ok(file) => Ok(Attr { file, ..attr }),
            Err(error) => {
                store.space.give(bytes);
                store.quotas.give(&charged, charge, 1);
                store.give(dir, entry_bytes(name));
                Err(error)
            }
        }
    }

    pub(super) fn link(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        dir: FileId,
        name: &[u8],
    ) -> Result<ChangeInfo, Error> {
        check_name(name)?;
        let hash = self.hash(name);
        let mut both = self.table.lock(&[file, dir])?;
        let place = both.get(dir);
        let directory = place.directory()?;
        access::check(&place.attr, caller, Rights::EXECUTE)?;
        if directory.get(hash, name).is_some() {
            return Err(Error::Exist);
        }
        access::check_add(&place.attr, ObjectKind::Regular, caller)?;
        let object = both.get(file);
        match object.attr.links {
            _ if object.is_directory() => return Err(Error::IsDir),
            0 => return Err(Error::NoEnt),
            LINKS_MAX.. => return Err(Error::MLink),
            _ => {}
        }
        let charged = both.get(dir).charged.clone();
        let object = both.get(file);
        if !object.charged.is_in(&charged.tree) {
            return Err(Error::XDev);
        }
        self.store.take(&charged, entry_bytes(name))?;
        object.attr.links += 1;
        object.touch(caller.now);
        let place = both.get(dir);
        place.directory_mut()?.insert(hash, name, file);
        let before = place.attr.change;
        place.entries_changed(caller, &[name], &[]);
        Ok(ChangeInfo {
            before,
            after: place.attr.change,
            is_atomic: true,
        })
    }

    pub(super) fn remove(
        &self,
        caller: &Caller<'_>,
        dir: FileId,
        name: &[u8],
        what: Removable,
    ) -> OperationOutput {
        check_name(name)?;
        let hash = self.hash(name);
        for _ in 0..TRIES_MAX {
            let file = self.find(caller, (dir, name))?.ok_or(Error::NoEnt)?;
            let Ok(mut both) = self.table.lock(&[dir, file]) else {
                continue;
            };
            if both.get(dir).directory()?.get(hash, name) != Some(file) {
                continue;
            }
            let (place, object) = (both.get(dir).attr.clone(), both.get(file));
            access::check_remove(&place, &object.attr, caller)?;
            match (what, object.is_directory()) {
                (Removable::NotDirectory, true) => return Err(Error::IsDir),
                (Removable::Directory, false) => return Err(Error::NotDir),
                _ => {}
            }
            check_empty(object)?;
            check_tree_root(object)?;
            let is_directory = object.is_directory();
            let place = both.get(dir);
            let before = place.attr.change;
            place.directory_mut()?.remove(hash, name);
            place.attr.links -= u32::from(is_directory);
            place.entries_changed(caller, &[], &[name]);
            self.store.give(&place.charged, entry_bytes(name));
            let change = ChangeInfo {
                before,
                after: place.attr.change,
                is_atomic: true,
            };
            let left = self.unlink(caller, &mut both, file);
            return Ok((Output::Removed { file, change }, left));
        }
        Err(Error::Delay)
    }

    /// An object among those that are locked has lost a name; a directory its
    /// only one.
    fn unlink(&self, caller: &Caller<'_>, locked: &mut Locked<'_>, file: FileId) -> Vec<Chunk> {
        let node = locked.get(file);
        node.touch(caller.now);
        node.attr.links -= 1;
        if !node.is_directory() && (node.attr.links > 0 || node.opens > 0) {
            return Vec::new();
        }
        let node = self.table.remove(locked.take(file));
        self.remove_object(node)
    }

    /// Refuses to put a directory into itself: `dir` lies in `file`, or is it.
    fn check_loop(&self, file: FileId, dir: FileId) -> Result<(), Error> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            work::spend(1);
            match at {
                _ if at == file => return Err(Error::Inval),
                _ if at == self.root => return Ok(()),
                _ => at = self.table.read(at)?.directory()?.parent,
            }
        }
        Err(Error::NameTooLong)
    }

    pub(super) fn rename(
        &self,
        caller: &Caller<'_>,
        from: NameInDirectory<'_>,
        to: NameInDirectory<'_>,
    ) -> OperationOutput {
        check_name(from.1)?;
        check_name(to.1)?;
        for _ in 0..TRIES_MAX {
            match self.try_rename(caller, from, to) {
                Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Delay)
    }

    /// Nothing if another operation was quicker.
    fn try_rename(
        &self,
        caller: &Caller<'_>,
        from: NameInDirectory<'_>,
        to: NameInDirectory<'_>,
    ) -> Result<Option<(Output, Vec<Chunk>)>, Error> {
        let file = self.find(caller, from)?.ok_or(Error::NoEnt)?;
        let target = self.find(caller, to)?;
        let Ok(node) = self.table.read(file) else {
            return Ok(None);
        };
        let is_directory = node.is_directory();
        drop(node);
        // Until this is over no other directory goes elsewhere.
        let _topology = match is_directory && from.0 != to.0 {
            true => {
                let topology = self.topology.lock();
                let topology = topology.expect("nothing panics under this lock");
                match self.check_loop(file, to.0) {
                    Err(Error::Stale) => return Ok(None),
                    checked => checked?,
                }
                Some(topology)
            }
            false => None,
        };
        let objects = [from.0, to.0, file, target.unwrap_or(file)];
        let Ok(mut locked) = self.table.lock(&objects) else {
            return Ok(None);
        };
        let is_same = |locked: &mut Locked<'_>, place: NameInDirectory<'_>, file| {
            let directory = locked.get(place.0).directory();
            directory.map(|directory| directory.get(self.hash(place.1), place.1) == file)
        };
        if !is_same(&mut locked, from, Some(file))? || !is_same(&mut locked, to, target)? {
            return Ok(None);
        }
        if target == Some(file) {
            // Two names of one object, or one name: nothing is to be done
            // (RFC 5661, section 18.26.3).
            let output = Output::Renamed {
                from: ChangeInfo::none(&locked.get(from.0).attr),
                to: ChangeInfo::none(&locked.get(to.0).attr),
                replaced: None,
            };
            return Ok(Some((output, Vec::new())));
        }
        check_rename(caller, &mut locked, (from.0, to.0), file, target)?;
        self.move_name(caller, &mut locked, (from, to), (file, target))
            .map(Some)
    }

    /// Everything is locked and checked.
    fn move_name(
        &self,
        caller: &Caller<'_>,
        locked: &mut Locked<'_>,
        (from, to): (NameInDirectory<'_>, NameInDirectory<'_>),
        (file, target): (FileId, Option<FileId>),
    ) -> OperationOutput {
        if target.is_none() {
            self.store
                .take(&locked.get(to.0).charged, entry_bytes(to.1))?;
        }
        let before = (locked.get(from.0).attr.change, locked.get(to.0).attr.change);
        let source = locked.get(from.0).directory_mut()?;
        source.remove(self.hash(from.1), from.1);
        let goal = locked.get(to.0).directory_mut()?;
        match target {
            Some(_) => goal.replace(self.hash(to.1), to.1, file),
            None => goal.insert(self.hash(to.1), to.1, file),
        }
        self.store
            .give(&locked.get(from.0).charged, entry_bytes(from.1));
        let added: &[&[u8]] = if target.is_none() { &[to.1] } else { &[] };
        if from.0 == to.0 {
            locked.get(to.0).entries_changed(caller, added, &[from.1]);
        } else {
            locked.get(from.0).entries_changed(caller, &[], &[from.1]);
            locked.get(to.0).entries_changed(caller, added, &[]);
        }
        let tree = locked.get(to.0).charged.tree.clone();
        let object = locked.get(file);
        object.touch(caller.now);
        // It may have been on its way into the tree, or have names in it and out of it.
        let charge = object.charge();
        let quotas = &self.store.quotas;
        quotas.move_tree(&mut object.charged, &tree, charge);
        if let Body::Directory(directory) = &mut object.body {
            directory.parent = to.0;
            locked.get(from.0).attr.links -= 1;
            locked.get(to.0).attr.links += 1;
        }
        let mut left = Vec::new();
        if let Some(target) = target {
            let is_directory = locked.get(target).is_directory();
            locked.get(to.0).attr.links -= u32::from(is_directory);
            left = self.unlink(caller, locked, target);
        }
        let info = |before, after| ChangeInfo {
            before,
            after,
            is_atomic: true,
        };
        let output = Output::Renamed {
            from: info(before.0, locked.get(from.0).attr.change),
            to: info(before.1, locked.get(to.0).attr.change),
            replaced: target,
        };
        Ok((output, left))
    }

    /// Entries of one directory, as `op` asks for them.
    pub(super) fn readdir(&self, caller: &Caller<'_>, op: FsOp<'_>) -> Result<Listing, Error> {
        let FsOp::Readdir {
            dir,
            mut cookie,
            verifier,
            entries_max,
            name_bytes_max,
            with_attrs,
        } = op
        else {
            unreachable!("asked for a listing");
        };
        if cookie != 0 && verifier != self.info.instance {
            return Err(Error::NotSame);
        }
        loop {
            let max = (entries_max as usize, name_bytes_max as usize);
            let mut listing = self.list(caller, dir, cookie, max)?;
            let Some(last) = listing.last_cookie() else {
                return Ok(listing);
            };
            if with_attrs {
                // Each under its own lock; what went meanwhile is left out.
                listing.fill(|file| self.table.read(file).ok().map(|node| node.attr.clone()));
            }
            if !listing.is_empty() || listing.is_end {
                return Ok(listing);
            }
            cookie = last;
        }
    }

    fn list(
        &self,
        caller: &Caller<'_>,
        dir: FileId,
        cookie: u64,
        (entries_max, name_bytes_max): (usize, usize),
    ) -> Result<Listing, Error> {
        let node = self.table.read(dir)?;
        let directory = node.directory()?;
        access::check(&node.attr, caller, Rights::READ)?;
        if !directory.was_given_out(cookie) {
            return Err(Error::BadCookie);
        }
        let mut listing = Listing::new(self.info.instance);
        listing.is_end = true;
        for (cookie, entry) in directory.after(cookie) {
            work::spend(1);
            let name_bytes = listing.name_bytes() + entry.name.len();
            if listing.len() == entries_max || name_bytes > name_bytes_max {
                listing.is_end = false;
                break;
            }
            listing.push(cookie, entry.file, &entry.name);
        }
        if listing.is_empty() && !listing.is_end {
            return Err(Error::TooSmall);
        }
        let notes = node.notes_read(caller.now);
        drop(node);
        if notes && let Ok(mut node) = self.table.write(dir) {
            node.attr.accessed = caller.now;
        }
        Ok(listing)
    }
}

/// The directory that a tree's quota names stays where it is.
fn check_tree_root(node: &Node) -> Result<(), Error> {
    match node.charged.is_root(node.attr.file) {
        true => Err(Error::Perm),
        false => Ok(()),
    }
}

fn check_empty(node: &Node) -> Result<(), Error> {
    match &node.body {
        Body::Directory(directory) if !directory.is_empty() => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}

/// Whether the caller may move an object, and over what is there.
fn check_rename(
    caller: &Caller<'_>,
    locked: &mut Locked<'_>,
    (from, to): (FileId, FileId),
    file: FileId,
    target: Option<FileId>,
) -> Result<(), Error> {
    let (source, goal) = (locked.get(from).attr.clone(), locked.get(to).attr.clone());
    let tree = locked.get(to).charged.tree.clone();
    let is_same_tree = locked.get(from).charged.is_in(&tree);
    let object = locked.get(file);
    access::check_remove(&source, &object.attr, caller)?;
    access::check_add(&goal, object.attr.kind, caller)?;
    check_tree_root(object)?;
    if !is_same_tree {
        return Err(Error::XDev);
    }
    let is_directory = object.is_directory();
    if is_directory && !object.charged.is_in(&tree) {
        // Its directory has just come into a tree, or out of one, and it follows.
        return Err(Error::Delay);
    }
    if is_directory && from != to {
        // Its entry `..` changes.
        access::check(&object.attr, caller, Rights::WRITE)?;
    }
    let Some(target) = target else {
        return Ok(());
    };
    let target = locked.get(target);
    access::check_remove(&goal, &target.attr, caller)?;
    match (is_directory, target.is_directory()) {
        (true, false) => Err(Error::NotDir),
        (false, true) => Err(Error::IsDir),
        _ => check_empty(target).and_then(|()| check_tree_root(target)),
    }
}
