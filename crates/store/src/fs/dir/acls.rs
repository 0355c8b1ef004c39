//! Access control lists: kept whole in an extended attribute of the object below, or said by
//! its list of POSIX, which the kernel enforces for local programs and hands on.

use std::os::fd::AsFd;

use rustix::fs::{Statx, XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::attributes::ObjectOwner;
use super::beneath::{SeenObject, proc_path};
use super::{DirInner, Owners};
use crate::fs::acl::STORED_ACES_MAX;
use crate::fs::{
    Ace, AceKind, AceWho, Acl, Attr, Error, Inheritance, ObjectKind, PosixAcl, Rights, SetAttr,
};

/// What becomes of access control lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acls {
    /// Clients see none and set none.
    Off,
    /// They are kept whole in an extended attribute, which says nothing to local programs.
    Nfs4,
    /// They are lists of POSIX below, which local programs see and set. What those have no words
    /// for is not kept.
    Posix,
}

/// The attribute that a list is kept in: of files that all belong to weft's user, which needs
/// no privilege for it.
const RECORDED: &str = "user.weft.acl";
/// The same of files of local users, who must not write it.
const TRUSTED: &str = "trusted.weft.acl";
/// How the attribute is laid out: this, then for each entry whether it denies, its inheritance,
/// whom it is about, 0, the rights and the number of a user or group, least byte first.
const VERSION: u8 = 1;
const ACE_BYTES: usize = 12;
const BYTES_MAX: usize = 1 + STORED_ACES_MAX * ACE_BYTES;

fn encode(acl: &Acl) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for ace in acl.aces() {
        let (who, id) = match ace.who {
            AceWho::Owner => (0, 0),
            AceWho::Group => (1, 0),
            AceWho::Everyone => (2, 0),
            AceWho::User(id) => (3, id),
            AceWho::Members(id) => (4, id),
        };
        let denies = u8::from(ace.kind == AceKind::Deny);
        bytes.extend([denies, ace.inheritance.0 as u8, who, 0]);
        bytes.extend(ace.rights.0.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn decode_ace(bytes: &[u8; ACE_BYTES]) -> Option<Ace> {
    let [denies, inheritance, who, _, rest @ ..] = *bytes;
    let [r0, r1, r2, r3, id @ ..] = rest;
    let id = u32::from_le_bytes(id);
    Some(Ace {
        kind: match denies {
            0 => AceKind::Allow,
            1 => AceKind::Deny,
            _ => return None,
        },
        inheritance: Inheritance(inheritance.into()),
        rights: Rights(u32::from_le_bytes([r0, r1, r2, r3])),
        who: match who {
            0 => AceWho::Owner,
            1 => AceWho::Group,
            2 => AceWho::Everyone,
            3 => AceWho::User(id),
            4 => AceWho::Members(id),
            _ => return None,
        },
    })
}

fn decode(bytes: &[u8]) -> Option<Acl> {
    let (&VERSION, aces) = bytes.split_first()? else {
        return None;
    };
    let (aces, []) = aces.as_chunks() else {
        return None;
    };
    let aces: Option<Vec<Ace>> = aces.iter().map(decode_ace).collect();
    Acl::kept(&aces?)
}

impl DirInner {
    fn acl_name(&self) -> &'static str {
        match self.owners {
            Owners::Real => TRUSTED,
            Owners::Recorded => RECORDED,
        }
    }

    /// The list of an object.
    pub(super) fn acl(
        &self,
        stat: &Statx,
        owner: &ObjectOwner,
        way: impl Fn() -> Vec<u8>,
    ) -> Result<Option<Acl>, Error> {
        match self.acls {
            _ if !self.keeps_acls(owner.kind) => Ok(None),
            Acls::Off => Ok(None),
            Acls::Nfs4 => self.whole_acl(stat, owner, way),
            Acls::Posix => {
                let access = posix_list(way(), POSIX_ACCESS)?;
                let handed_on = match owner.kind {
                    ObjectKind::Directory => posix_list(way(), POSIX_DEFAULT)?,
                    _ => None,
                };
                if access.is_none() && handed_on.is_none() {
                    return Ok(None);
                }
                let access = access.unwrap_or_else(|| PosixAcl::of_mode(owner.mode));
                let acl = Acl::of_posix_below(&access, handed_on.as_ref(), owner.kind);
                Ok(acl.beyond_mode(owner.mode, owner.kind))
            }
        }
    }

    /// A list that is kept whole. A mode that was set beside it, by a local program or since a
    /// crash came between, counts as if a client had set it. What cannot be read is none.
    fn whole_acl(
        &self,
        stat: &Statx,
        owner: &ObjectOwner,
        way: impl FnOnce() -> Vec<u8>,
    ) -> Result<Option<Acl>, Error> {
        if self.owners == Owners::Recorded && !self.is_recorder(stat) {
            return Ok(None);
        }
        let mut bytes = [0; BYTES_MAX];
        let acl = match getxattr(way(), self.acl_name(), &mut bytes) {
            Ok(len) => decode(&bytes[..len]),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(acl.and_then(|acl| match acl.mode() == owner.mode & 0o777 {
            true => Some(acl),
            false => acl.with_mode(owner.mode, owner.kind),
        }))
    }

    /// Whether an object of this kind may have a list here.
    pub(super) fn keeps_acls(&self, kind: ObjectKind) -> bool {
        let may_have = matches!(kind, ObjectKind::Regular | ObjectKind::Directory);
        self.acls != Acls::Off && may_have
    }

    /// Gives an object that has the mode for it already the list that is set, or what is left
    /// of the one that it had or that was handed on to it.
    pub(super) fn set_acl(
        &self,
        seen: &SeenObject,
        set: &SetAttr,
        new: &Attr,
    ) -> Result<(), Error> {
        let way = proc_path(seen.fd.as_fd());
        let keep = |name: &str, value: Option<Vec<u8>>| match value {
            Some(value) => setxattr(&way, name, &value, XattrFlags::empty()),
            None => match removexattr(&way, name) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                removed => removed,
            },
        };
        let kept = match self.acls {
            _ if !self.keeps_acls(new.kind) => Ok(()),
            Acls::Off => Ok(()),
            Acls::Nfs4 if set.mode.is_none() && set.acl.is_none() && new.acl.is_none() => Ok(()),
            Acls::Nfs4 => keep(self.acl_name(), new.acl.as_ref().map(encode)),
            // The kernel keeps its list in step with a mode, and hands it on.
            Acls::Posix if set.acl.is_none() => Ok(()),
            Acls::Posix => {
                let access = new.acl.as_ref().map(|_| encode_posix(&PosixAcl::of(new)));
                let handed_on = PosixAcl::handed_on(new).as_ref().map(encode_posix);
                let kept = keep(POSIX_ACCESS, access);
                match new.kind {
                    ObjectKind::Directory => kept.and_then(|()| keep(POSIX_DEFAULT, handed_on)),
                    _ => kept,
                }
            }
        };
        kept.map_err(|errno| match errno {
            // The file system below has room for less in one object.
            Errno::TOOBIG | Errno::RANGE => Error::NoSpc,
            errno => errno.into(),
        })
    }
}

/// The lists that the kernel has of an object and of what is made in it.
pub(super) const POSIX_ACCESS: &str = "system.posix_acl_access";
const POSIX_DEFAULT: &str = "system.posix_acl_default";
/// How they are laid out (`linux/posix_acl_xattr.h`), least byte first: a version of four
/// bytes, then for each entry two of its tag, two of its bits and four of its number.
const POSIX_VERSION: u32 = 2;
const POSIX_ACE_BYTES: usize = 8;
/// Bytes that are read: as many as ext4 has room for.
const POSIX_BYTES_MAX: usize = 4096;
/// Tags of entries.
const USER_OBJ: u16 = 0x1;
const USER: u16 = 0x2;
const GROUP_OBJ: u16 = 0x4;
const GROUP: u16 = 0x8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The number of an entry that has none.
const NO_ID: u32 = u32::MAX;

/// One of the lists. Of one that is larger than is read only the owner is told.
fn posix_list(way: Vec<u8>, name: &str) -> Result<Option<PosixAcl>, Error> {
    let mut bytes = [0; POSIX_BYTES_MAX];
    match getxattr(way, name, &mut bytes) {
        Ok(len) => Ok(Some(decode_posix(&bytes[..len]).ok_or(Error::Io)?)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(Errno::RANGE) => Ok(Some(PosixAcl::of_mode(0o700))),
        Err(errno) => Err(errno.into()),
    }
}

fn decode_posix(bytes: &[u8]) -> Option<PosixAcl> {
    let (version, entries) = bytes.split_first_chunk()?;
    let (entries, []) = entries.as_chunks::<POSIX_ACE_BYTES>() else {
        return None;
    };
    if u32::from_le_bytes(*version) != POSIX_VERSION {
        return None;
    }
    let mut acl = PosixAcl::default();
    for &[t0, t1, b0, b1, id @ ..] in entries {
        let (bits, id) = (
            u32::from(u16::from_le_bytes([b0, b1])) & 7,
            u32::from_le_bytes(id),
        );
        match u16::from_le_bytes([t0, t1]) {
            USER_OBJ => acl.owner = bits,
            USER => acl.users.push((id, bits)),
            GROUP_OBJ => acl.group = bits,
            GROUP => acl.groups.push((id, bits)),
            MASK => acl.mask = Some(bits),
            OTHER => acl.other = bits,
            _ => return None,
        }
    }
    Some(acl)
}

fn encode_posix(acl: &PosixAcl) -> Vec<u8> {
    let mut bytes = POSIX_VERSION.to_le_bytes().to_vec();
    let mut put = |tag: u16, bits: u32, id: u32| {
        bytes.extend(tag.to_le_bytes());
        bytes.extend((bits as u16).to_le_bytes());
        bytes.extend(id.to_le_bytes());
    };
    // The kernel wants them in this order.
    put(USER_OBJ, acl.owner, NO_ID);
    acl.users.iter().for_each(|&(id, bits)| put(USER, bits, id));
    put(GROUP_OBJ, acl.group, NO_ID);
    acl.groups
        .iter()
        .for_each(|&(id, bits)| put(GROUP, bits, id));
    if let Some(mask) = acl.mask {
        put(MASK, mask, NO_ID);
    }
    put(OTHER, acl.other, NO_ID);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_read_as_it_was_written_and_damage_is_no_list() {
        let ace = |kind, who, rights| Ace {
            kind,
            inheritance: Inheritance(Inheritance::DIRECTORY | Inheritance::ONLY),
            rights: Rights(rights),
            who,
        };
        let acl = Acl::new(&[
            ace(AceKind::Allow, AceWho::Owner, 0x1f_01ff),
            ace(AceKind::Deny, AceWho::User(u32::MAX), 1),
            ace(AceKind::Deny, AceWho::Members(7), 2),
            ace(AceKind::Allow, AceWho::Group, 0),
            ace(AceKind::Allow, AceWho::Everyone, 0x20),
        ])
        .unwrap();
        let bytes = encode(&acl);
        assert_eq!(bytes.len(), 1 + 5 * ACE_BYTES);
        assert_eq!(decode(&bytes), Some(acl));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(b""), None);
        for (at, byte) in [(0, 2), (1, 2), (3, 5)] {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            assert_eq!(decode(&damaged), None);
        }
        let posix = PosixAcl {
            owner: 7,
            users: vec![(1, 6), (u32::MAX - 1, 0)],
            group: 5,
            groups: vec![(9, 4)],
            mask: Some(6),
            other: 1,
        };
        let bytes = encode_posix(&posix);
        assert_eq!(bytes.len(), 4 + 7 * POSIX_ACE_BYTES);
        assert_eq!(decode_posix(&bytes), Some(posix));
        assert_eq!(decode_posix(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode_posix(&[&[3], &bytes[1..]].concat()), None);
        let long = [&[VERSION][..], &[0; (STORED_ACES_MAX + 1) * ACE_BYTES]].concat();
        assert_eq!(decode(&long), None);
    }
}
