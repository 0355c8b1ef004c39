//! What objects are beside their content: attributes, extended attributes,
//! texts of links, opens.

use super::content::Chunk;
use super::node::{Body, Node, XATTR_BYTES_MAX, XATTRS_BYTES_MAX, Xattr, said_bytes, xattr_bytes};
use super::{MemoryInner, OperationOutput};
use crate::fs::quota::Charged;
use crate::fs::{
    Caller, ChangeInfo, Error, FileId, Listing, ObjectKind, Output, Rights, STICKY, SetAttr,
    SetXattr, Time, access, check_xattr_name,
};

impl MemoryInner {
    pub(super) fn setattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> OperationOutput {
        let mut node = self.table.write(file)?;
        if guard.is_some_and(|guard| guard != node.attr.changed) {
            return Err(Error::NotSync);
        }
        let left = self.set(&mut node, caller, set)?;
        Ok((Output::Attr(node.attr.clone()), left))
    }

    /// Sets all or nothing.
    pub(super) fn set(
        &self,
        node: &mut Node,
        caller: &Caller<'_>,
        set: &SetAttr,
    ) -> Result<Vec<Chunk>, Error> {
        if *set == SetAttr::default() {
            return Ok(Vec::new());
        }
        let new = access::set(&node.attr, caller, set)?;
        let (old_bytes, new_bytes) = (said_bytes(&node.attr), said_bytes(&new));
        let before = self.change_owner(node, (new.uid, new.gid), caller.is_root())?;
        let grown = new_bytes.saturating_sub(old_bytes);
        let resized = self.store.take(&node.charged, grown).and_then(|()| {
            let resized = match set.size {
                None => Ok(Vec::new()),
                Some(size) => node
                    .check_changes()
                    .and_then(|()| self.store.resize(node, size)),
            };
            resized.inspect_err(|_| self.store.give(&node.charged, grown))
        });
        if resized.is_err() {
            self.charge_to(node, before, true)?;
        }
        let left = resized?;
        let shrunk = old_bytes.saturating_sub(new_bytes);
        self.store.give(&node.charged, shrunk);
        let attr = &mut node.attr;
        (attr.acl, attr.label) = (new.acl, new.label);
        (attr.mode, attr.uid, attr.gid) = (new.mode, new.uid, new.gid);
        attr.accessed = new.accessed;
        attr.modified = new.modified;
        if set.size.is_some() {
            if set.mode.is_none() {
                attr.mode = access::mode_written(attr.mode, caller);
            }
            if set.modified.is_none() {
                attr.modified = caller.now;
            }
        }
        node.touch(caller.now);
        Ok(left)
    }

    /// Whom an object counts for when its owner or group changes, and before. The superuser
    /// changes them whatever the limits of those that come (as in XFS).
    fn change_owner(
        &self,
        node: &mut Node,
        (uid, gid): (u32, u32),
        is_forced: bool,
    ) -> Result<Charged, Error> {
        let before = node.charged.clone();
        if (uid, gid) != (node.attr.uid, node.attr.gid) {
            let after = self.store.quotas.charged(uid, gid, &before.tree);
            self.charge_to(node, after, is_forced)?;
        }
        Ok(before)
    }

    fn charge_to(&self, node: &mut Node, to: Charged, is_forced: bool) -> Result<(), Error> {
        let both = (&node.charged, &to);
        self.store.quotas.move_to(both, node.charge(), is_forced)?;
        node.charged = to;
        Ok(())
    }

    pub(super) fn readlink(&self, caller: &Caller<'_>, file: FileId) -> Result<Box<[u8]>, Error> {
        let node = self.table.read(file)?;
        let Body::Symlink(text) = &node.body else {
            return Err(match node.attr.kind {
                ObjectKind::Directory => Error::IsDir,
                _ => Error::Inval,
            });
        };
        let text = text.clone();
        let notes = node.notes_read(caller.now);
        drop(node);
        if notes && let Ok(mut node) = self.table.write(file) {
            node.attr.accessed = caller.now;
        }
        Ok(text)
    }

    pub(super) fn open(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        read: bool,
        write: bool,
    ) -> Result<(), Error> {
        let mut node = self.table.write(file)?;
        let Body::File(_) = node.body else {
            return Err(node.no_file());
        };
        access::check_open(&node.attr, caller, read, write)?;
        node.opens = node.opens.checked_add(1).ok_or(Error::Delay)?;
        Ok(())
    }

    pub(super) fn close(&self, file: FileId) -> Result<Vec<Chunk>, Error> {
        let mut node = self.table.write(file)?;
        let opens = node.opens.checked_sub(1);
        node.opens = opens.expect("a file is closed as often as it was opened");
        if node.opens > 0 || node.attr.links > 0 {
            return Ok(Vec::new());
        }
        Ok(self.remove_object(self.table.remove(node)))
    }

    /// Files and directories have extended attributes; those of other kinds could
    /// not be read by their bits.
    fn may_have_xattrs(node: &Node) -> bool {
        matches!(node.attr.kind, ObjectKind::Regular | ObjectKind::Directory)
    }

    pub(super) fn get_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: &[u8],
    ) -> Result<Box<[u8]>, Error> {
        check_xattr_name(name)?;
        let node = self.table.read(file)?;
        if !MemoryInner::may_have_xattrs(&node) {
            return Err(Error::NoXattr);
        }
        access::check(&node.attr, caller, Rights::READ)?;
        let found = node.xattrs.iter().find(|xattr| *xattr.name == *name);
        found.map_or(Err(Error::NoXattr), |xattr| Ok(xattr.value.clone()))
    }

    fn check_xattr_change(node: &Node, caller: &Caller<'_>) -> Result<(), Error> {
        let is_shared = node.attr.kind == ObjectKind::Directory && node.attr.mode & STICKY != 0;
        if !MemoryInner::may_have_xattrs(node) || (is_shared && !caller.owns(&node.attr)) {
            return Err(Error::Perm);
        }
        access::check(&node.attr, caller, Rights::WRITE)
    }

    pub(super) fn set_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        (name, value): (&[u8], &[u8]),
        how: SetXattr,
    ) -> Result<ChangeInfo, Error> {
        check_xattr_name(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(Error::Xattr2Big);
        }
        let mut node = self.table.write(file)?;
        MemoryInner::check_xattr_change(&node, caller)?;
        let found = node.xattrs.iter().position(|xattr| *xattr.name == *name);
        match (found, how) {
            (Some(_), SetXattr::Create) => return Err(Error::Exist),
            (None, SetXattr::Replace) => return Err(Error::NoXattr),
            _ => {}
        }
        let all: u64 = node.xattrs.iter().map(Xattr::bytes).sum();
        let (old, new) = (
            found.map_or(0, |at| node.xattrs[at].bytes()),
            xattr_bytes(name, value),
        );
        if all - old + new > XATTRS_BYTES_MAX as u64 {
            return Err(Error::Xattr2Big);
        }
        if new > old {
            self.store.take(&node.charged, new - old)?;
        } else {
            self.store.give(&node.charged, old - new);
        }
        match found {
            Some(at) => node.xattrs[at].value = value.into(),
            None => {
                let cookie = node.next_cookie;
                node.next_cookie += 1;
                node.xattrs.push(Xattr {
                    cookie,
                    name: name.into(),
                    value: value.into(),
                });
            }
        }
        Ok(changed(&mut node, caller))
    }

    pub(super) fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: &[u8],
    ) -> Result<ChangeInfo, Error> {
        check_xattr_name(name)?;
        let mut node = self.table.write(file)?;
        MemoryInner::check_xattr_change(&node, caller)?;
        let found = node.xattrs.iter().position(|xattr| *xattr.name == *name);
        let xattr = node.xattrs.remove(found.ok_or(Error::NoXattr)?);
        self.store.give(&node.charged, xattr.bytes());
        Ok(changed(&mut node, caller))
    }

    /// Ordered by cookie: new ones come last.
    pub(super) fn list_xattrs(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        cookie: u64,
        name_bytes_max: u32,
    ) -> Result<Listing, Error> {
        let node = self.table.read(file)?;
        if MemoryInner::may_have_xattrs(&node) {
            access::check(&node.attr, caller, Rights::READ)?;
        }
        if cookie >= node.next_cookie {
            return Err(Error::BadCookie);
        }
        let mut listing = Listing::new(self.info.instance);
        for xattr in node.xattrs.iter().filter(|xattr| xattr.cookie > cookie) {
            if listing.name_bytes() + xattr.name.len() > name_bytes_max as usize {
                return match listing.is_empty() {
                    true => Err(Error::TooSmall),
                    false => Ok(listing),
                };
            }
            listing.push(xattr.cookie, file, &xattr.name);
        }
        listing.is_end = true;
        Ok(listing)
    }
}

/// An object's attributes have changed: before and after.
fn changed(node: &mut Node, caller: &Caller<'_>) -> ChangeInfo {
    let before = node.attr.change;
    node.touch(caller.now);
    ChangeInfo {
        before,
        after: node.attr.change,
        is_atomic: true,
    }
}
