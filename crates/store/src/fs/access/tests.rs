use super::*;
use crate::fs::{Asker, Device, FileId};

fn caller(uid: u32, gids: &[u32]) -> Caller<'_> {
    Caller {
        uid,
        gid: gids[0],
        gids: &gids[1..],
        now: Time {
            seconds: 99,
            nanos: 9,
        },
        is_open: false,
        from: Asker::default(),
    }
}

fn attr(kind: ObjectKind, mode: u32, uid: u32, gid: u32) -> Attr {
    Attr {
        file: FileId(5),
        kind,
        mode,
        acl: None,
        label: None,
        links: 1,
        uid,
        gid,
        device: Device::default(),
        size: 0,
        used_bytes: 0,
        accessed: Time::default(),
        modified: Time::default(),
        changed: Time::default(),
        created: Time::default(),
        change: 1,
    }
}

fn bits(rights: Rights) -> u32 {
    let bit = |right, bit| if rights.holds(right) { bit } else { 0 };
    bit(Rights::READ, 4) | bit(Rights::WRITE, 2) | bit(Rights::EXECUTE, 1)
}

#[test]
fn the_first_class_that_applies_decides() {
    for mode in 0..0o1000 {
        let file = attr(ObjectKind::Regular, mode, 10, 20);
        for (caller, expected) in [
            (caller(10, &[99]), mode >> 6 & 7),
            (caller(10, &[20]), mode >> 6 & 7),
            (caller(11, &[20]), mode >> 3 & 7),
            (caller(11, &[99, 98, 20]), mode >> 3 & 7),
            (caller(11, &[99]), mode & 7),
            (caller(0, &[0]), 6 | u32::from(mode & 0o111 != 0)),
        ] {
            assert_eq!(
                bits(rights(&file, &caller)),
                expected,
                "{mode:o} {caller:?}"
            );
        }
        let dir = Attr {
            kind: ObjectKind::Directory,
            ..file.clone()
        };
        assert_eq!(bits(rights(&dir, &caller(0, &[0]))), 7);
    }
}

#[test]
fn owners_read_and_write_whatever_the_bits_say_now() {
    let file = attr(ObjectKind::Regular, 0o001, 10, 20);
    let other = caller(11, &[1]);
    assert_eq!(check_read(&file, &caller(10, &[1])), Ok(()));
    assert_eq!(check_write(&file, &caller(10, &[1]), 0, 9), Ok(()));
    assert_eq!(
        check(&file, &caller(10, &[1]), Rights::READ),
        Err(Error::Access)
    );
    assert_eq!(
        check_read(&file, &other),
        Ok(()),
        "a caller who may execute may read"
    );
    assert_eq!(check_write(&file, &other, 0, 9), Err(Error::Access));
    let open = Caller {
        is_open: true,
        from: Asker::default(),
        ..other
    };
    assert_eq!(check_write(&file, &open, 0, 9), Ok(()));
}

#[test]
fn sticky_directories_protect_entries() {
    let dir = attr(ObjectKind::Directory, 0o1777, 1, 1);
    let file = attr(ObjectKind::Regular, 0o666, 2, 2);
    for (uid, expected) in [(0, Ok(())), (1, Ok(())), (2, Ok(())), (3, Err(Error::Perm))] {
        assert_eq!(check_remove(&dir, &file, &caller(uid, &[2])), expected);
    }
    let dir = attr(ObjectKind::Directory, 0o777, 1, 1);
    assert_eq!(check_remove(&dir, &file, &caller(3, &[2])), Ok(()));
}

fn mode(mode: u32) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

fn owner(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr {
        uid,
        gid,
        ..SetAttr::default()
    }
}

#[test]
fn modes_and_owners_are_set_by_owners() {
    let file = attr(ObjectKind::Regular, 0o6755, 10, 20);
    let result = |caller: &Caller<'_>, wanted: &SetAttr| {
        set(&file, caller, wanted).map(|new| (new.mode, new.uid, new.gid))
    };
    let (own, other, root) = (caller(10, &[20, 30]), caller(11, &[20]), caller(0, &[0]));
    assert_eq!(result(&own, &mode(0o2711)), Ok((0o2711, 10, 20)));
    // A caller outside the group cannot set the bit of its group.
    assert_eq!(
        result(&caller(10, &[1]), &mode(0o2711)),
        Ok((0o711, 10, 20))
    );
    assert_eq!(result(&other, &mode(0o777)), Err(Error::Perm));
    assert_eq!(result(&own, &mode(0o10000)), Err(Error::Inval));
    assert_eq!(result(&root, &mode(0o7777)), Ok((0o7777, 10, 20)));
    assert_eq!(result(&own, &owner(Some(11), None)), Err(Error::Perm));
    assert_eq!(
        result(&own, &owner(Some(10), Some(30))),
        Ok((0o755, 10, 30))
    );
    assert_eq!(result(&own, &owner(None, Some(31))), Err(Error::Perm));
    assert_eq!(result(&other, &owner(Some(10), None)), Err(Error::Perm));
    assert_eq!(result(&root, &owner(Some(7), Some(8))), Ok((0o755, 7, 8)));
    let dir = attr(ObjectKind::Directory, 0o2755, 10, 20);
    let given = set(&dir, &root, &owner(Some(1), None)).unwrap();
    assert_eq!(given.mode, 0o2755);
    let locked = attr(ObjectKind::Regular, 0o2745, 10, 20);
    let given = set(&locked, &root, &owner(Some(1), None)).unwrap();
    assert_eq!(given.mode, 0o2745);
}

#[test]
fn times_are_the_owners_but_now_is_the_writers() {
    let file = attr(ObjectKind::Regular, 0o602, 10, 20);
    let time = Time {
        seconds: -5,
        nanos: 1,
    };
    let set_to = |accessed, modified| SetAttr {
        accessed,
        modified,
        ..SetAttr::default()
    };
    let now = set_to(Some(SetTime::Server), Some(SetTime::Server));
    let then = set_to(None, Some(SetTime::Client(time)));
    let writer = caller(11, &[1]);
    assert_eq!(set(&file, &writer, &now).unwrap().modified, writer.now);
    assert_eq!(set(&file, &writer, &then), Err(Error::Perm));
    assert_eq!(set(&file, &caller(11, &[20]), &now), Err(Error::Access));
    let new = set(&file, &caller(10, &[1]), &then).unwrap();
    assert_eq!((new.modified, new.accessed), (time, Time::default()));
    let wrong = Time {
        seconds: 0,
        nanos: 1_000_000_000,
    };
    let wrong = set_to(Some(SetTime::Client(wrong)), None);
    assert_eq!(set(&file, &caller(10, &[1]), &wrong), Err(Error::Inval));
}

#[test]
fn sizes_are_those_of_files() {
    let size = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    let of = |kind, uid| set(&attr(kind, 0o400, 10, 20), &caller(uid, &[1]), &size).map(|_| ());
    assert_eq!(of(ObjectKind::Regular, 10), Ok(()));
    assert_eq!(of(ObjectKind::Regular, 11), Err(Error::Access));
    assert_eq!(of(ObjectKind::Directory, 10), Err(Error::IsDir));
    assert_eq!(of(ObjectKind::Fifo, 10), Err(Error::Inval));
}

#[test]
fn new_objects_take_the_group_of_their_directory() {
    let maker = caller(10, &[20]);
    let plain = attr(ObjectKind::Directory, 0o777, 1, 2);
    let shared = attr(ObjectKind::Directory, 0o2777, 1, 2);
    let new = |dir, kind, wanted| {
        made(dir, &attr(kind, 0, 0, 0), &maker, &wanted).map(|new| (new.mode, new.uid, new.gid))
    };
    assert_eq!(
        new(&plain, ObjectKind::Regular, mode(0o644)),
        Ok((0o644, 10, 20))
    );
    // Not of that group, so the file cannot run as it.
    assert_eq!(
        new(&shared, ObjectKind::Regular, mode(0o2755)),
        Ok((0o755, 10, 2))
    );
    assert_eq!(
        new(&shared, ObjectKind::Directory, mode(0o755)),
        Ok((0o2755, 10, 2))
    );
    let below = made(
        &shared,
        &attr(ObjectKind::Directory, 0, 0, 0),
        &caller(10, &[2]),
        &mode(0o2755),
    );
    assert_eq!(below.map(|new| new.mode), Ok(0o2755), "it asks for both");
    assert_eq!(
        new(&plain, ObjectKind::Fifo, SetAttr::default()),
        Ok((0, 10, 20))
    );
    assert_eq!(new(&plain, ObjectKind::Block, mode(0)), Err(Error::Perm));
    assert_eq!(
        new(&plain, ObjectKind::Regular, owner(Some(1), None)),
        Err(Error::Perm)
    );
}

#[test]
fn write_by_a_user_clears_set_uid_and_set_gid_of_the_mode() {
    assert_eq!(mode_written(0o6755, &caller(1, &[1])), 0o755);
    assert_eq!(mode_written(0o6745, &caller(1, &[1])), 0o2745);
    assert_eq!(mode_written(0o6755, &caller(0, &[0])), 0o6755);
}

#[test]
fn other_users_read_and_write_only_what_the_bits_grant() {
    for mode in 0..8 {
        let file = attr(ObjectKind::Regular, mode, 10, 20);
        let other = caller(11, &[1]);
        let may = |is_granted: bool| is_granted.then_some(()).ok_or(Error::Access);
        assert_eq!(check_read(&file, &other), may(mode & 5 != 0), "{mode:o}");
        assert_eq!(
            check_write(&file, &other, 0, 9),
            may(mode & 2 != 0),
            "{mode:o}"
        );
    }
}

fn listed(kind: ObjectKind, entries: &[(AceKind, AceWho, Rights)]) -> Attr {
    let ace = |&(kind, who, rights)| crate::fs::Ace {
        kind,
        inheritance: crate::fs::Inheritance::default(),
        rights,
        who,
    };
    let aces: Vec<_> = entries.iter().map(ace).collect();
    let acl = Acl::new(&aces).unwrap();
    Attr {
        acl: Some(acl.clone()),
        ..attr(kind, acl.mode(), 10, 20)
    }
}

use crate::fs::AceKind::{self, Allow, Deny};

#[test]
fn user_that_may_only_append_writes_behind_the_end() {
    let log = listed(
        ObjectKind::Regular,
        &[(Allow, AceWho::Everyone, Rights::APPEND)],
    );
    let other = caller(11, &[1]);
    assert_eq!(check_open(&log, &other, false, true), Ok(()));
    assert_eq!(check_open(&log, &other, true, true), Err(Error::Access));
    let open = Caller {
        is_open: true,
        ..other
    };
    for user in [other, open, caller(10, &[1])] {
        assert_eq!(check_write(&log, &user, 9, 9), Ok(()));
        assert_eq!(check_write(&log, &user, 8, 9), Err(Error::Access));
    }
    // Once it may not even append, what is open stays so.
    let none = listed(ObjectKind::Regular, &[]);
    assert_eq!(check_write(&none, &open, 0, 9), Ok(()));
    assert_eq!(check_write(&none, &other, 0, 9), Err(Error::Access));
}

#[test]
fn removal_takes_the_right_of_the_object_or_of_its_directory() {
    let other = caller(11, &[1]);
    let dir = |rights| listed(ObjectKind::Directory, &[(Allow, AceWho::Everyone, rights)]);
    let file = |kind, rights| listed(ObjectKind::Regular, &[(kind, AceWho::User(11), rights)]);
    let plain = file(Allow, Rights::READ);
    let (look, add) = (Rights::EXECUTE, Rights::WRITE);
    for (dir, file, expected) in [
        (dir(look), &plain, Err(Error::Access)),
        (dir(look | Rights::DELETE_CHILD), &plain, Ok(())),
        (dir(Rights::DELETE_CHILD), &plain, Err(Error::Access)),
        (dir(look | add), &plain, Ok(())),
        (
            dir(look | add),
            &file(Deny, Rights::DELETE),
            Err(Error::Access),
        ),
        (
            dir(look | Rights::DELETE_CHILD),
            &file(Deny, Rights::DELETE),
            Ok(()),
        ),
        (dir(look), &file(Allow, Rights::DELETE), Ok(())),
    ] {
        assert_eq!(
            check_remove(&dir, file, &other),
            expected,
            "{dir:?} {file:?}"
        );
        assert_eq!(check_remove(&dir, file, &caller(0, &[0])), Ok(()));
    }
    let sticky = Attr {
        mode: STICKY,
        ..dir(look | Rights::DELETE_CHILD)
    };
    assert_eq!(check_remove(&sticky, &plain, &other), Err(Error::Perm));
    let own = file(Allow, Rights::DELETE);
    assert_eq!(check_remove(&sticky, &own, &other), Ok(()));
}

#[test]
fn adding_takes_the_right_for_the_kind_of_what_is_added() {
    let files = Rights::EXECUTE | Rights::WRITE;
    let dir = listed(ObjectKind::Directory, &[(Allow, AceWho::Members(7), files)]);
    let member = caller(11, &[1, 7]);
    assert_eq!(check_add(&dir, ObjectKind::Fifo, &member), Ok(()));
    let of_directory = check_add(&dir, ObjectKind::Directory, &member);
    assert_eq!(of_directory, Err(Error::Access));
    assert_eq!(
        check_add(&dir, ObjectKind::Regular, &caller(11, &[1])),
        Err(Error::Access)
    );
}

#[test]
fn rights_to_attributes_let_others_set_them() {
    let rights = Rights::WRITE_ACL | Rights::WRITE_OWNER | Rights::WRITE_ATTRIBUTES;
    let file = listed(ObjectKind::Regular, &[(Allow, AceWho::User(11), rights)]);
    let (named, other) = (caller(11, &[1]), caller(12, &[1]));
    let time = SetAttr {
        modified: Some(SetTime::Client(Time::default())),
        ..SetAttr::default()
    };
    assert!(set(&file, &named, &time).is_ok());
    assert_eq!(set(&file, &other, &time), Err(Error::Perm));
    let new = set(&file, &named, &mode(0o640)).unwrap();
    assert_eq!(new.mode, 0o640);
    assert_eq!(set(&file, &other, &mode(0o640)), Err(Error::Perm));
    // Not what lets it run as its owner.
    assert_eq!(set(&file, &named, &mode(0o4640)), Err(Error::Perm));
    let taken = set(&file, &named, &owner(Some(11), Some(1))).unwrap();
    assert_eq!((taken.uid, taken.gid), (11, 1));
    assert_eq!(set(&file, &named, &owner(Some(12), None)), Err(Error::Perm));
    assert_eq!(set(&file, &other, &owner(Some(12), None)), Err(Error::Perm));
}

#[test]
fn owner_sets_a_list_whatever_that_says_and_all_may_see_what_is_not_denied() {
    let nothing = listed(
        ObjectKind::Regular,
        &[(Deny, AceWho::Everyone, Rights::ALL)],
    );
    let (own, other) = (caller(10, &[1]), caller(11, &[1]));
    assert!(set(&nothing, &own, &mode(0o600)).is_ok());
    assert!(rights(&nothing, &own).holds(Rights::READ_ATTRIBUTES | Rights::READ_ACL));
    assert_eq!(rights(&nothing, &other), Rights::NONE);
    let silent = listed(ObjectKind::Regular, &[]);
    assert!(rights(&silent, &other).holds(Rights::READ_ATTRIBUTES | Rights::READ_ACL));
}

#[test]
fn list_and_mode_are_set_in_that_order_and_change_each_other() {
    let file = attr(ObjectKind::Regular, 0o4755, 10, 20);
    let own = caller(10, &[20]);
    let acl = listed(
        ObjectKind::Regular,
        &[
            (Allow, AceWho::Owner, Rights::READ),
            (Allow, AceWho::User(11), Rights::READ | Rights::WRITE),
        ],
    );
    let both = SetAttr {
        mode: Some(0o2777),
        acl: acl.acl.clone(),
        ..SetAttr::default()
    };
    let new = set(&file, &own, &both).unwrap();
    assert_eq!((new.mode, &new.acl), (0o2400, &acl.acl));
    let less = set(&new, &own, &mode(0o600)).unwrap();
    assert_eq!(less.acl, None, "none is named who may do anything");
    // What says no more than a mode is a mode.
    let plain = SetAttr {
        acl: Some(Acl::of_mode(0o640, ObjectKind::Regular)),
        ..SetAttr::default()
    };
    let new = set(&new, &own, &plain).unwrap();
    assert_eq!((new.mode, new.acl), (0o2640, None));
    let link = attr(ObjectKind::Symlink, 0o777, 10, 20);
    assert_eq!(set(&link, &own, &plain), Err(Error::AttrNotSupp));
}

#[test]
fn new_object_inherits_a_list_and_its_mode_limits_that() {
    let mut dir = attr(ObjectKind::Directory, 0o777, 1, 2);
    let handed_on = crate::fs::Ace {
        kind: Allow,
        inheritance: crate::fs::Inheritance(crate::fs::Inheritance::FILE),
        rights: Rights::READ | Rights::WRITE | Rights::APPEND,
        who: AceWho::User(11),
    };
    dir.acl = Some(Acl::new(&[handed_on]).unwrap());
    let maker = caller(10, &[20]);
    let new = |kind, wanted: &SetAttr| made(&dir, &attr(kind, 0, 0, 0), &maker, wanted).unwrap();
    let may = |attr: &Attr| bits(rights(attr, &caller(11, &[1])));
    // RFC 8275: the umask would take what the list gives.
    let masked = SetAttr {
        umask: 0o022,
        ..mode(0o666)
    };
    let file = new(ObjectKind::Regular, &masked);
    assert_eq!((file.mode, may(&file)), (0o644, 6));
    let file = new(ObjectKind::Regular, &mode(0o644));
    assert_eq!((file.mode, may(&file)), (0o644, 4));
    let below = new(ObjectKind::Directory, &masked);
    let aces = below.acl.as_ref().unwrap().aces();
    assert!(aces.iter().any(|ace| ace.inheritance.0 == 9), "{aces:?}");
    // All of it where there is no mode, and none where nothing is said.
    let sized = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    let file = new(ObjectKind::Regular, &sized);
    assert_eq!((file.mode, may(&file)), (0, 6));
    let bare = new(ObjectKind::Regular, &SetAttr::default());
    assert_eq!((bare.mode, bare.acl), (0, None));
    assert_eq!(new(ObjectKind::Symlink, &mode(0o777)).acl, None);
    dir.acl = None;
    let plain = made(&dir, &attr(ObjectKind::Regular, 0, 0, 0), &maker, &masked);
    assert_eq!(plain.unwrap().mode, 0o644);
}

#[test]
fn new_object_grants_nobody_more_than_its_directory_hands_on_and_its_umask_leaves() {
    let handed_on = |who, rights| crate::fs::Ace {
        kind: Allow,
        inheritance: crate::fs::Inheritance(crate::fs::Inheritance::FILE),
        rights,
        who,
    };
    let named = handed_on(AceWho::User(11), Rights::READ);
    let others = handed_on(AceWho::Everyone, Rights::READ_ACL);
    let wanted = SetAttr {
        umask: 0o077,
        ..mode(0o666)
    };
    let made_with = |aces: &[crate::fs::Ace], wanted: &SetAttr| {
        let mut dir = attr(ObjectKind::Directory, 0o777, 1, 2);
        dir.acl = Some(Acl::new(aces).unwrap());
        let maker = caller(10, &[20]);
        let file = made(&dir, &attr(ObjectKind::Regular, 0, 0, 0), &maker, wanted).unwrap();
        (file.mode, bits(rights(&file, &caller(11, &[1]))))
    };
    assert_eq!(made_with(&[named], &wanted), (0o600, 4));
    assert_eq!(made_with(&[named, others], &wanted), (0o600, 4));
    // A client that has taken the umask off itself.
    assert_eq!(made_with(&[named, others], &mode(0o644)), (0o640, 4));
}

#[test]
fn label_is_its_owners_to_say() {
    let label = crate::fs::Label::new((0, 0), b"s0");
    let wanted = SetAttr {
        label: label.clone(),
        ..SetAttr::default()
    };
    let file = attr(ObjectKind::Regular, 0o666, 10, 20);
    for (caller, expected) in [
        (caller(10, &[99]), Ok(label.clone())),
        (caller(0, &[0]), Ok(label.clone())),
        (caller(11, &[20]), Err(Error::Perm)),
    ] {
        assert_eq!(set(&file, &caller, &wanted).map(|new| new.label), expected);
    }
    // Another attribute leaves it, and its maker owns what is made.
    let labeled = Attr { label, ..file };
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let new = set(&labeled, &caller(10, &[99]), &mode).expect("its owner");
    assert_eq!(new.label, labeled.label);
    let dir = attr(ObjectKind::Directory, 0o777, 0, 0);
    let new = attr(ObjectKind::Fifo, 0, 0, 0);
    let made = made(&dir, &new, &caller(11, &[20]), &wanted);
    assert_eq!(made.map(|made| made.label), Ok(labeled.label));
}
