//! Access control lists: where they are kept, and what the kernel says of them.

use super::*;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::os::unix::fs::PermissionsExt;
use store::fs::{Ace, AceKind, AceWho, Acl, Inheritance, PosixAcl, Rights};

const WRITES: Rights = Rights(0x7);

fn ace(kind: AceKind, inheritance: u32, who: AceWho, rights: Rights) -> Ace {
    Ace {
        kind,
        inheritance: Inheritance(inheritance),
        rights,
        who,
    }
}

fn listed(aces: &[Ace]) -> SetAttr {
    SetAttr {
        acl: Some(Acl::new(aces).unwrap()),
        ..SetAttr::default()
    }
}

/// One user may write, who is not the owner; all may read.
fn shared() -> SetAttr {
    listed(&[
        ace(AceKind::Deny, 0, AceWho::User(1001), Rights::READ),
        ace(AceKind::Allow, 0, AceWho::User(1000), WRITES),
        ace(AceKind::Allow, 0, AceWho::Everyone, Rights::READ),
    ])
}

fn with(place: Place, acls: Option<Acls>) -> Place {
    Place { acls, ..place }
}

fn value(place: &Place, name: &str, attribute: &str) -> Option<Vec<u8>> {
    let mut bytes = [0; 4096];
    let len = getxattr(place.path(name), attribute, &mut bytes).ok()?;
    Some(bytes[..len].to_vec())
}

fn check_whole(place: &Place, attribute: &str) {
    let (file, dir);
    {
        let fs = place.open();
        assert!(fs.info().has_acls);
        let mut user = User::root(&fs);
        let top = user.top();
        file = user.file(top, b"f");
        dir = user.dir(top, b"d");
        let set = user.set(file, shared()).unwrap();
        assert_eq!((set.mode, set.acl), (0o444, shared().acl));
        let handed_on = [
            ace(AceKind::Allow, 3, AceWho::User(1000), WRITES),
            ace(AceKind::Allow, 0, AceWho::Everyone, Rights(0x21)),
        ];
        user.set(dir, listed(&handed_on)).unwrap();
    }
    assert!(value(place, "f", attribute).is_some());
    // It holds after a restart, and says who may what.
    let fs = place.open();
    let mut root = User::root(&fs);
    let mut named = User::new(&fs, 1000, &[1]);
    let mut denied = User::new(&fs, 1001, &[1]);
    assert_eq!(root.attr(file).unwrap().acl, shared().acl);
    named.write(file, 0, b"x").unwrap();
    assert_eq!(denied.read(file, 0, 1), Err(Error::Access));
    assert_eq!(denied.write(file, 0, b"x"), Err(Error::Access));
    // What is made is given what its directory hands on, as far as its mode goes.
    let (made, ..) = (root.create(dir, b"heir", New::Guarded, mode(0o660))).unwrap();
    named.write(made.file, 0, b"x").unwrap();
    let (made, ..) = (root.create(dir, b"poor", New::Exclusive([3; 8]), mode(0o640))).unwrap();
    assert_eq!(named.write(made.file, 0, b"x"), Err(Error::Access));
    assert!(named.read(made.file, 0, 1).is_ok());
    // A mode that a local program sets limits it, and one of NFS takes it away.
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(place.path("f"), private).unwrap();
    if place.owners != Some(Owners::Recorded) {
        // What was looked at counts for a second.
        named.seconds += 2;
        assert_eq!(named.write(file, 0, b"x"), Err(Error::Access));
    }
    let left = root.set(file, mode(0o644)).unwrap().acl.unwrap();
    assert_eq!(left.aces()[1], shared().acl.unwrap().aces()[0], "a denial");
    assert_eq!(named.write(file, 0, b"x"), Err(Error::Access));
    let plain = Acl::of_mode(0o600, ObjectKind::Regular);
    let plain = root.set(file, listed(plain.aces())).unwrap();
    assert_eq!((plain.mode, plain.acl), (0o600, None));
    assert_eq!(value(place, "f", attribute), None);
    // Clients of extended attributes do not see where it is kept.
    root.set(file, shared()).unwrap();
    let name = b"weft.acl";
    let read = root.run(FsOp::GetXattr { file, name });
    assert_eq!(read, Err(Error::NoXattr));
    let fifo = root.create(root.top(), b"fifo", New::Fifo, mode(0o600));
    let refused = root.set(fifo.unwrap().0.file, shared());
    assert_eq!(refused, Err(Error::AttrNotSupp));
}

#[test]
fn list_of_a_file_with_a_recorded_owner_is_kept_whole() {
    let place = Place::recorded();
    check_whole(&place, "user.weft.acl");
}

#[needs(root)]
#[test]
fn list_of_a_file_with_a_real_owner_is_kept_where_no_user_may_change_it() {
    let place = with(Place::new(), Some(Acls::Nfs4));
    check_whole(&place, "trusted.weft.acl");
}

#[test]
fn list_is_refused_where_there_are_none() {
    let place = with(Place::recorded(), Some(Acls::Off));
    let fs = place.open();
    assert!(!fs.info().has_acls);
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    assert_eq!(user.set(file, shared()), Err(Error::AttrNotSupp));
    let made = user.create(top, b"g", New::Guarded, shared());
    assert_eq!(made.err(), Some(Error::AttrNotSupp));
    assert_eq!(user.lookup(top, b"g"), Err(Error::NoEnt));
}

#[test]
fn lists_of_posix_take_real_owners() {
    let place = with(Place::recorded(), Some(Acls::Posix));
    let refused = Dir::open(&place.spec()).err().unwrap();
    assert!(matches!(refused.problem, DirProblem::AclsOfOthers));
    assert!(refused.to_string().contains("acl = \"nfs4\""), "{refused}");
}

/// A list of POSIX below, as the kernel wants it.
fn posix(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[needs(root)]
#[test]
fn lists_of_posix_below_count_and_are_set() {
    let place = Place::on_disk();
    let fs = place.open();
    if !fs.info().has_acls {
        println!("ignored: the file system of temporary files has no lists of POSIX");
        return;
    }
    let mut root = User::root(&fs);
    let mut named = User::new(&fs, 1000, &[1]);
    let mut member = User::new(&fs, 7, &[77]);
    let top = root.top();
    let (dir, file) = (root.dir(top, b"d"), root.file(top, b"f"));
    let none = u32::MAX;
    // A local program sets one: of the group the mask shows in the mode.
    let list = [
        (1, 6, none),
        (2, 6, 1000),
        (4, 0, none),
        (16, 6, none),
        (32, 0, none),
    ];
    let access = "system.posix_acl_access";
    setxattr(place.path("f"), access, &posix(&list), XattrFlags::empty()).unwrap();
    root.set(
        file,
        SetAttr {
            gid: Some(77),
            ..SetAttr::default()
        },
    )
    .unwrap();
    assert_eq!(root.attr(file).unwrap().mode, 0o660);
    named.write(file, 0, b"x").unwrap();
    assert_eq!(
        member.read(file, 0, 1),
        Err(Error::Access),
        "the mask is no right"
    );
    // A mode sets the mask.
    root.set(file, mode(0o640)).unwrap();
    assert_eq!(named.write(file, 0, b"x"), Err(Error::Access));
    assert!(named.read(file, 0, 1).is_ok());
    root.set(file, mode(0o660)).unwrap();
    named.write(file, 0, b"x").unwrap();
    // One that a client sets is what local programs find.
    let acl = PosixAcl {
        users: vec![(1000, 7)],
        mask: Some(7),
        ..PosixAcl::of_mode(0o750)
    };
    let set = Acl::of_posix(&acl, Some(&acl), ObjectKind::Directory).unwrap();
    let set = SetAttr {
        acl: Some(set),
        ..SetAttr::default()
    };
    root.set(dir, set).unwrap();
    let list = [
        (1, 7, none),
        (2, 7, 1000),
        (4, 5, none),
        (16, 7, none),
        (32, 0, none),
    ];
    assert_eq!(value(&place, "d", access), Some(posix(&list)));
    assert_eq!(
        value(&place, "d", "system.posix_acl_default"),
        Some(posix(&list))
    );
    // The kernel hands it on.
    let (made, ..) = (root.create(dir, b"heir", New::Guarded, mode(0o660))).unwrap();
    assert!(value(&place, "d/heir", access).is_some());
    named.write(made.file, 0, b"x").unwrap();
    let (made, ..) = (root.create(dir, b"poor", New::Exclusive([9; 8]), mode(0o640))).unwrap();
    assert_eq!(named.write(made.file, 0, b"x"), Err(Error::Access));
    // The umask counts for those whom the list does not name, and the list for the others.
    let masked = SetAttr {
        umask: 0o077,
        ..mode(0o777)
    };
    let (made, ..) = (root.create(dir, b"masked", New::Guarded, masked)).unwrap();
    let [user, group] = [(2, 7, 1000), (4, 5, none)];
    let list = [(1, 7, none), user, group, (16, 7, none), (32, 0, none)];
    assert_eq!(value(&place, "d/masked", access), Some(posix(&list)));
    named.write(made.file, 0, b"x").unwrap();
    let below = root.dir(dir, b"below");
    assert_eq!(PosixAcl::handed_on(&root.attr(below).unwrap()), Some(acl));
}
