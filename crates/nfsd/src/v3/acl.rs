//! Lists of POSIX as NFSACL has them (`crates/wire/xdr/nfs3/acl.x`).

use store::fs::{Acl, Attr, Error, ObjectKind, PosixAcl, SetAttr};
use wire::nfs3::{self, aclent3, nfsstat3, secattr3};
use wire::xdr::{Encode, List};

/// All that GETACL may ask for.
pub(super) const ALL: u32 = nfs3::NFS_ACL | nfs3::NFS_ACLCNT | nfs3::NFS_DFACL | nfs3::NFS_DFACLCNT;

type Entries<'a> = List<'a, aclent3, { nfs3::NFS_ACL_MAX_ENTRIES as usize }>;

/// A list as a client sends it; `None` where there are no entries. One entry of each kind that
/// names no one, and no other bits than those of a mode.
fn read_list(entries: &Entries<'_>) -> Result<Option<PosixAcl>, nfsstat3> {
    const ONCE: [u32; 4] = [
        nfs3::ACL_USER_OBJ,
        nfs3::ACL_GROUP_OBJ,
        nfs3::ACL_MASK,
        nfs3::ACL_OTHER,
    ];
    if entries.is_empty() {
        return Ok(None);
    }
    let (mut acl, mut seen) = (PosixAcl::default(), 0);
    for entry in entries.iter() {
        let kind = entry.type_ & !nfs3::NFS_ACL_DEFAULT;
        let is_again = ONCE.contains(&kind) && seen & kind != 0;
        seen |= kind;
        if is_again || entry.perm > 7 {
            return Err(nfsstat3::NFS3ERR_INVAL);
        }
        match kind {
            nfs3::ACL_USER_OBJ => acl.owner = entry.perm,
            nfs3::ACL_USER => acl.users.push((entry.id, entry.perm)),
            nfs3::ACL_GROUP_OBJ => acl.group = entry.perm,
            nfs3::ACL_GROUP => acl.groups.push((entry.id, entry.perm)),
            nfs3::ACL_MASK => acl.mask = Some(entry.perm),
            nfs3::ACL_OTHER => acl.other = entry.perm,
            _ => return Err(nfsstat3::NFS3ERR_INVAL),
        }
    }
    let has = |kind: u32| seen & kind != 0;
    let is_named = has(nfs3::ACL_USER | nfs3::ACL_GROUP);
    let is_whole = has(nfs3::ACL_USER_OBJ) && has(nfs3::ACL_GROUP_OBJ) && has(nfs3::ACL_OTHER);
    match is_whole && (has(nfs3::ACL_MASK) || !is_named) {
        true => Ok(Some(acl)),
        false => Err(nfsstat3::NFS3ERR_INVAL),
    }
}

/// What SETACL sets: both lists; without one for the object, that stays.
pub(super) fn read(lists: &secattr3<'_>, before: Option<&Attr>) -> Result<SetAttr, nfsstat3> {
    let before = before.ok_or(nfsstat3::NFS3ERR_SERVERFAULT)?;
    let asked = |mask, entries| match lists.mask & mask {
        0 => Ok(None),
        _ => read_list(entries),
    };
    let access = asked(nfs3::NFS_ACL, &lists.aclent)?;
    let access = access.unwrap_or_else(|| PosixAcl::of(before));
    let handed_on = asked(nfs3::NFS_DFACL, &lists.dfaclent)?;
    match Acl::of_posix(&access, handed_on.as_ref(), before.kind) {
        Ok(acl) => Ok(SetAttr {
            acl: Some(acl),
            ..SetAttr::default()
        }),
        Err(Error::FBig) => Err(nfsstat3::NFS3ERR_FBIG),
        Err(_) => Err(nfsstat3::NFS3ERR_INVAL),
    }
}

/// Entries in the order that Solaris has them, with a mask always, as it wants.
fn entries(acl: &PosixAcl, (uid, gid): (u32, u32), handed_on: u32) -> Vec<aclent3> {
    let entry = |kind, id, perm| aclent3 {
        type_: kind | handed_on,
        id,
        perm,
    };
    let user = |&(id, perm): &(u32, u32)| entry(nfs3::ACL_USER, id, perm);
    let group = |&(id, perm): &(u32, u32)| entry(nfs3::ACL_GROUP, id, perm);
    let mut entries = vec![entry(nfs3::ACL_USER_OBJ, uid, acl.owner)];
    entries.extend(acl.users.iter().map(user));
    entries.push(entry(nfs3::ACL_GROUP_OBJ, gid, acl.group));
    entries.extend(acl.groups.iter().map(group));
    entries.push(entry(nfs3::ACL_MASK, 0, acl.mask.unwrap_or(acl.group)));
    entries.push(entry(nfs3::ACL_OTHER, 0, acl.other));
    entries
}

/// Appends the lists of an object that are asked for.
pub(super) fn write(attr: &Attr, mask: u32, to: &mut Vec<u8>) {
    let owners = (attr.uid, attr.gid);
    let access = entries(&PosixAcl::of(attr), owners, 0);
    let handed_on = match attr.kind {
        ObjectKind::Directory => PosixAcl::handed_on(attr),
        _ => None,
    };
    let handed_on = handed_on.map(|acl| entries(&acl, owners, nfs3::NFS_ACL_DEFAULT));
    let handed_on = handed_on.unwrap_or_default();
    let asked = |list, count, entries: &[aclent3]| {
        let counted = if mask & (list | count) == 0 {
            0
        } else {
            entries.len()
        };
        let told = if mask & list == 0 { 0 } else { entries.len() };
        (counted as u32, told)
    };
    let (count, told) = asked(nfs3::NFS_ACL, nfs3::NFS_ACLCNT, &access);
    let (default_count, default_told) = asked(nfs3::NFS_DFACL, nfs3::NFS_DFACLCNT, &handed_on);
    secattr3 {
        mask,
        aclcnt: count,
        aclent: List::Of(&access[..told]),
        dfaclcnt: default_count,
        dfaclent: List::Of(&handed_on[..default_told]),
    }
    .encode(to);
}
