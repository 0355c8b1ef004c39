//! Access control lists on the wire (RFC 8881, section 6.2.1).

use std::sync::Arc;

use auth::user::AccountKind;
use nfs::attributes::{Aces, ReadOwner, read_owner, write_owner};
use store::fs::{Ace, AceKind, AceWho, Acl, Attr, Inheritance, Rights};
use wire::nfs4::{self, nfsstat4};
use wire::xdr::{Encode, Opaque};

/// Those whom no name service knows (section 6.2.1.5). Others of that section (INTERACTIVE@ and
/// the like) would mean nothing here.
const SPECIAL: [(&[u8], AceWho); 3] = [
    (b"OWNER@", AceWho::Owner),
    (b"GROUP@", AceWho::Group),
    (b"EVERYONE@", AceWho::Everyone),
];

const INHERITANCE: u32 = nfs4::ACE4_FILE_INHERIT_ACE
    | nfs4::ACE4_DIRECTORY_INHERIT_ACE
    | nfs4::ACE4_NO_PROPAGATE_INHERIT_ACE
    | nfs4::ACE4_INHERIT_ONLY_ACE;

/// A list that a client sets.
///
/// # Errors
/// NFS4ERR_ATTRNOTSUPP for kinds and rights that are not enforced, NFS4ERR_INVAL for those that
/// there are not, NFS4ERR_BADOWNER for an unknown name, NFS4ERR_FBIG for too many entries;
/// NFS4ERR_DELAY where a name is looked up.
pub(crate) fn read(aces: &Aces<'_>, owners: &ReadOwner<'_>) -> Result<Acl, nfsstat4> {
    let mut known = Ok(());
    let mut read = Vec::with_capacity(aces.len());
    for ace in aces.iter() {
        match read_ace(&ace, owners) {
            Ok(ace) => read.push(ace),
            // All names are asked for before the client comes again.
            Err(nfsstat4::NFS4ERR_DELAY) => known = Err(nfsstat4::NFS4ERR_DELAY),
            Err(status) => return Err(status),
        }
    }
    known?;
    Acl::new(&read).map_err(|_| nfsstat4::NFS4ERR_FBIG)
}

fn read_ace(ace: &nfs4::nfsace4<'_>, owners: &ReadOwner<'_>) -> Result<Ace, nfsstat4> {
    let kind = match ace.type_ {
        nfs4::ACE4_ACCESS_ALLOWED_ACE_TYPE => AceKind::Allow,
        nfs4::ACE4_ACCESS_DENIED_ACE_TYPE => AceKind::Deny,
        nfs4::ACE4_SYSTEM_AUDIT_ACE_TYPE | nfs4::ACE4_SYSTEM_ALARM_ACE_TYPE => {
            return Err(nfsstat4::NFS4ERR_ATTRNOTSUPP);
        }
        _ => return Err(nfsstat4::NFS4ERR_INVAL),
    };
    if ace.flag & !(INHERITANCE | nfs4::ACE4_IDENTIFIER_GROUP) != 0 {
        return Err(nfsstat4::NFS4ERR_INVAL);
    }
    if ace.access_mask & !Rights::ALL.0 != 0 {
        return Err(nfsstat4::NFS4ERR_ATTRNOTSUPP);
    }
    let is_group = ace.flag & nfs4::ACE4_IDENTIFIER_GROUP != 0;
    let special = SPECIAL.iter().find(|(name, _)| *name == ace.who.0);
    let who = match special {
        Some(&(_, who)) => who,
        None if is_group => AceWho::Members(read_owner(ace.who.0, AccountKind::Group, owners)?),
        None => AceWho::User(read_owner(ace.who.0, AccountKind::User, owners)?),
    };
    Ok(Ace {
        kind,
        inheritance: Inheritance(ace.flag & INHERITANCE),
        rights: Rights(ace.access_mask),
        who,
    })
}

/// The name of a user or group, if it has one.
pub(crate) type NameOf<'n> = dyn Fn(AccountKind, u32) -> Result<Option<Arc<str>>, nfsstat4> + 'n;

/// Appends the list of an object: its own, or what says as much as its mode.
///
/// # Errors
/// NFS4ERR_DELAY where a name is looked up.
pub(crate) fn write(attr: &Attr, name: &NameOf<'_>, to: &mut Vec<u8>) -> Result<(), nfsstat4> {
    let of_mode;
    let acl = match &attr.acl {
        Some(acl) => acl,
        None => {
            of_mode = Acl::of_mode(attr.mode, attr.kind);
            &of_mode
        }
    };
    let mut known = Ok(());
    (acl.aces().len() as u32).encode(to);
    for ace in acl.aces() {
        let kind = match ace.kind {
            AceKind::Allow => nfs4::ACE4_ACCESS_ALLOWED_ACE_TYPE,
            AceKind::Deny => nfs4::ACE4_ACCESS_DENIED_ACE_TYPE,
        };
        let group = match ace.who {
            AceWho::Members(_) => nfs4::ACE4_IDENTIFIER_GROUP,
            _ => 0,
        };
        for word in [kind, ace.inheritance.0 | group, ace.rights.0] {
            word.encode(to);
        }
        let (kind, id) = match ace.who {
            AceWho::User(id) => (AccountKind::User, id),
            AceWho::Members(id) => (AccountKind::Group, id),
            who => {
                let special = SPECIAL.iter().find(|(_, special)| *special == who);
                let (text, _) = special.expect("all others are numbers");
                Opaque::<16>(text).encode(to);
                continue;
            }
        };
        match name(kind, id) {
            Ok(name) => write_owner(name.as_deref(), id, to),
            Err(status) => known = Err(status),
        }
    }
    known
}
