use proptest::prelude::*;

use super::*;
use crate::fs::access::rights;
use crate::fs::{Asker, Attr, Caller, Device, FileId, Time};

const OWNER: u32 = 10;
const GROUP: u32 = 20;
const NAMED: u32 = 30;
/// It is kept, and nothing needs it.
const SYNCHRONIZE: Rights = Rights(0x10_0000);

fn attr(kind: ObjectKind, mode: u32, acl: Option<Acl>) -> Attr {
    Attr {
        file: FileId(1),
        kind,
        mode,
        label: None,
        acl,
        links: 1,
        uid: OWNER,
        gid: GROUP,
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

/// What callers of each kind may do: the owner, also in the group; members of the group; a
/// named user and members of a named group, also in the group of the file; others.
fn all_rights(attr: &Attr) -> Vec<(u32, Rights)> {
    let callers: [(u32, u32, &[u32], u32); 8] = [
        (OWNER, 1, &[], 6),
        (OWNER, GROUP, &[NAMED], 6),
        (1, GROUP, &[], 3),
        (NAMED, 1, &[], 0),
        (NAMED, 1, &[GROUP], 3),
        (1, NAMED, &[], 0),
        (1, NAMED, &[GROUP], 3),
        (1, 1, &[], 0),
    ];
    let rights = callers.map(|(uid, gid, gids, class)| {
        let caller = Caller {
            uid,
            gid,
            gids,
            now: Time::default(),
            is_open: false,
            from: Asker::default(),
        };
        (class, rights(attr, &caller))
    });
    rights.to_vec()
}

fn kinds() -> impl Strategy<Value = ObjectKind> {
    prop_oneof![Just(ObjectKind::Regular), Just(ObjectKind::Directory)]
}

fn aces() -> impl Strategy<Value = Ace> {
    let who = prop_oneof![
        Just(AceWho::Owner),
        Just(AceWho::Group),
        Just(AceWho::Everyone),
        Just(AceWho::User(NAMED)),
        Just(AceWho::User(OWNER)),
        Just(AceWho::Members(NAMED)),
        Just(AceWho::Members(GROUP)),
    ];
    (any::<bool>(), 0..16u32, any::<u32>(), who).prop_map(|(denies, flags, rights, who)| Ace {
        kind: if denies {
            AceKind::Deny
        } else {
            AceKind::Allow
        },
        inheritance: Inheritance(flags),
        rights: Rights(rights) & Rights::ALL,
        who,
    })
}

fn acls() -> impl Strategy<Value = Acl> {
    let aces = prop::collection::vec(aces(), 0..12);
    aces.prop_map(|aces| Acl::new(&aces).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn list_made_of_a_mode_shows_and_grants_what_that_does(mode in 0..0o1000u32, kind in kinds()) {
        let acl = Acl::of_mode(mode, kind);
        prop_assert_eq!(acl.mode(), mode);
        prop_assert!(acl.fits(kind));
        let (plain, listed) = (attr(kind, mode, None), attr(kind, mode, Some(acl.clone())));
        let plain: Vec<_> = all_rights(&plain).into_iter().collect();
        let listed: Vec<_> = (all_rights(&listed).into_iter())
            .map(|(class, rights)| (class, rights & !SYNCHRONIZE))
            .collect();
        prop_assert_eq!(plain, listed);
        prop_assert_eq!(acl.beyond_mode(mode, kind), None);
    }

    #[test]
    fn list_grants_no_more_than_a_mode_that_is_set(acl in acls(), mode in 0..0o1000u32, kind in kinds()) {
        let left = acl.with_mode(mode, kind);
        let after = attr(kind, mode, left.clone());
        for (class, rights) in all_rights(&after) {
            let granted = rights.bits();
            let most = match class {
                6 => mode >> 6 & 7,
                3 => mode >> 3 & 7,
                // A user that is named belongs to the class of the group.
                _ => (mode | mode >> 3) & 7,
            };
            prop_assert_eq!(granted & !most, 0);
            if class == 6 {
                prop_assert_eq!(granted, most);
            }
        }
        if let Some(left) = left {
            prop_assert_eq!(left.mode(), mode);
            prop_assert!(left.aces().len() <= 2 * acl.aces().len() + 5);
            // The same mode once more changes nothing.
            prop_assert_eq!(left.with_mode(mode, kind), Some(left));
        }
    }

    #[test]
    fn list_that_is_handed_on_fits_and_hands_on_as_much(acl in acls()) {
        let below = acl.inherited(ObjectKind::Directory);
        if let Some(below) = &below {
            prop_assert!(below.fits(ObjectKind::Directory));
            prop_assert!(below.aces().len() <= acl.aces().len());
        }
        if let Some(file) = acl.inherited(ObjectKind::Regular) {
            prop_assert!(file.fits(ObjectKind::Regular));
        }
        let stays = |ace: &&Ace| !ace.inheritance.has(Inheritance::NO_PROPAGATE);
        let staying: Vec<Ace> = acl.aces().iter().filter(stays).copied().collect();
        let staying = Acl::new(&staying).unwrap();
        let [one, two] = [Some(&staying), below.as_ref()]
            .map(|acl| acl.and_then(|acl| acl.inherited(ObjectKind::Regular)));
        prop_assert_eq!(one, two);
    }

    #[test]
    fn entries_count_in_their_order(acl in acls(), kind in kinds()) {
        let object = attr(kind, acl.mode(), Some(acl.clone()));
        let implied = Rights(0x6_0180);
        // An other user: the first entry for everyone that mentions a right.
        let first = |right: u32| {
            let mut meant = acl.aces().iter().filter(|ace| {
                ace.is_effective() && ace.who == AceWho::Everyone && ace.rights.0 & right != 0
            });
            meant.next().is_some_and(|ace| ace.kind == AceKind::Allow)
        };
        let (_, others) = all_rights(&object)[7];
        for bit in 0..21 {
            let right = 1 << bit;
            if Rights::ALL.0 & !implied.0 & right != 0 {
                prop_assert_eq!(others.0 & right != 0, first(right));
            }
        }
    }
}

fn posix_acls() -> impl Strategy<Value = PosixAcl> {
    let bits = || 0..8u32;
    let named = prop::option::of((bits(), bits(), bits()));
    (bits(), bits(), bits(), named).prop_map(|(owner, group, other, named)| {
        let acl = PosixAcl {
            owner,
            group,
            other,
            ..PosixAcl::default()
        };
        match named {
            None => acl,
            Some((user, members, mask)) => PosixAcl {
                users: vec![(NAMED, user)],
                groups: vec![(NAMED, members)],
                mask: Some(mask),
                ..acl
            },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn list_of_posix_grants_what_it_says(posix in posix_acls(), kind in kinds()) {
        let acl = Acl::of_posix(&posix, None, kind).unwrap();
        let mask = posix.mask.unwrap_or(7);
        let group = posix.group & mask;
        let object = attr(kind, acl.mode(), Some(acl));
        let (user, members) = match (&posix.users[..], &posix.groups[..]) {
            ([(_, user)], [(_, members)]) => (user & mask, members & mask),
            _ => (posix.other, posix.other),
        };
        let is_named = posix.mask.is_some();
        let in_group = if is_named { user } else { group };
        let both = if is_named { group | members } else { group };
        let expected = [
            posix.owner, posix.owner, group, user, in_group, members, both, posix.other,
        ];
        let granted: Vec<u32> = all_rights(&object).iter().map(|(_, rights)| rights.bits()).collect();
        prop_assert_eq!(&granted[..], &expected[..]);
        // It is told as it was set, the mask applied.
        let told = PosixAcl::of(&object);
        prop_assert_eq!((told.owner, told.group, told.other), (posix.owner, group, posix.other));
        if is_named {
            prop_assert_eq!((&told.users[..], &told.groups[..]), (&[(NAMED, user)][..], &[(NAMED, members)][..]));
            prop_assert_eq!(told.mask, Some(group | user | members));
        }
    }

    #[test]
    fn list_of_posix_grants_no_more_than_the_list_that_it_stands_for(acl in acls(), kind in kinds()) {
        let before = attr(kind, acl.mode(), Some(acl));
        let posix = PosixAcl::of(&before);
        let after = Acl::of_posix(&posix, None, kind).unwrap();
        let after = attr(kind, after.mode(), Some(after));
        for ((_, before), (_, after)) in all_rights(&before).iter().zip(all_rights(&after)) {
            prop_assert_eq!(after.bits() & !before.bits(), 0, "{:?}", posix);
        }
    }
}

#[test]
fn inherited_entries_have_the_flags_that_the_standard_gives_them() {
    let (file, directory) = (Inheritance::FILE, Inheritance::DIRECTORY);
    let (once, only) = (Inheritance::NO_PROPAGATE, Inheritance::ONLY);
    for (flags, of_file, of_directory) in [
        (0, None, None),
        (file, Some(0), Some(file | only)),
        (directory, None, Some(directory)),
        (file | directory, Some(0), Some(file | directory)),
        (file | directory | only, Some(0), Some(file | directory)),
        (directory | only, None, Some(directory)),
        (file | once, Some(0), None),
        (directory | once, None, Some(0)),
        (file | directory | once | only, Some(0), Some(0)),
    ] {
        let ace = Ace {
            inheritance: Inheritance(flags),
            ..Ace::new(AceKind::Allow, AceWho::User(NAMED), Rights::READ)
        };
        let flags_of = |kind| ace.inherited(kind).map(|ace| ace.inheritance.0);
        assert_eq!(flags_of(ObjectKind::Regular), of_file, "{flags}");
        assert_eq!(flags_of(ObjectKind::Directory), of_directory, "{flags}");
    }
}

#[test]
fn list_has_a_bound_and_only_directories_hand_on() {
    let ace = Ace::new(AceKind::Allow, AceWho::Everyone, Rights::READ);
    assert!(Acl::new(&[ace; ACES_MAX]).is_ok());
    assert_eq!(Acl::new(&[ace; ACES_MAX + 1]), Err(Error::FBig));
    assert!(Acl::kept(&[ace; STORED_ACES_MAX + 1]).is_none());
    let with = |flags| {
        let inheritance = Inheritance(flags);
        Acl::new(&[Ace { inheritance, ..ace }]).unwrap()
    };
    assert!(with(0).fits(ObjectKind::Regular) && !with(0).fits(ObjectKind::Symlink));
    assert!(!with(Inheritance::DIRECTORY).fits(ObjectKind::Regular));
    assert!(with(Inheritance::DIRECTORY).fits(ObjectKind::Directory));
    assert!(!with(Inheritance::ONLY).fits(ObjectKind::Directory));
    assert!(with(Inheritance::ONLY | Inheritance::FILE).fits(ObjectKind::Directory));
}

#[test]
fn largest_list_stays_within_what_is_kept_however_often_a_mode_is_set() {
    let ace = Ace {
        inheritance: Inheritance(Inheritance::FILE | Inheritance::DIRECTORY),
        ..Ace::new(AceKind::Allow, AceWho::User(NAMED), Rights::READ)
    };
    let mut acl = Acl::new(&[ace; ACES_MAX]).unwrap();
    for mode in [0o750, 0o640, 0o777, 0o070] {
        let below = acl.inherited(ObjectKind::Directory).unwrap();
        assert!(below.aces().len() <= ACES_MAX);
        acl = acl.with_mode(mode, ObjectKind::Directory).unwrap();
        assert!(acl.aces().len() <= STORED_ACES_MAX);
    }
}
