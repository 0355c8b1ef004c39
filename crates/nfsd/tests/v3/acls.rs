//! NFSACL: GETACL and SETACL.

use super::*;

type Entry = (u32, u32, u32);

const OWNER: Entry = (ACL_USER_OBJ, 0, 6);
const GROUP: Entry = (ACL_GROUP_OBJ, 0, 4);
const OTHER: Entry = (ACL_OTHER, 0, 4);
const ALL: u32 = NFS_ACL | NFS_ACLCNT | NFS_DFACL | NFS_DFACLCNT;

fn entries(list: &[Entry], beside: u32) -> Vec<aclent3> {
    let entry = |&(kind, id, perm): &Entry| aclent3 {
        type_: kind | beside,
        id,
        perm,
    };
    list.iter().map(entry).collect()
}

impl World {
    fn nfsacl(&mut self, procedure: nfsacl_proc3, args: &impl Encode) -> Vec<u8> {
        let mut record = self.header((NFS_ACL_PROGRAM, procedure as u32));
        args.encode(&mut record);
        self.results(&record)
    }

    /// Both lists, as they are told.
    fn getacl(&mut self, file: &Fh, mask: u32) -> Result<(Vec<Entry>, Vec<Entry>), nfsstat3> {
        let fh = Opaque(&file[..]);
        let args = GETACL3args { fh, mask };
        let bytes = self.nfsacl(nfsacl_proc3::ACLPROC3_GETACL, &args);
        match GETACL3res::decode(&mut Reader::new(&bytes)).unwrap() {
            GETACL3res::NFS3_OK(told) => {
                assert_eq!(told.attr, self.getattr(file).ok());
                assert_eq!(told.acl.mask, mask);
                let list = |list: List<'_, aclent3, 1024>| {
                    let entries = list.iter().map(|entry| (entry.type_, entry.id, entry.perm));
                    entries.collect::<Vec<_>>()
                };
                let (access, handed_on) = (list(told.acl.aclent), list(told.acl.dfaclent));
                let counts = (told.acl.aclcnt as usize, told.acl.dfaclcnt as usize);
                if mask == ALL {
                    assert_eq!(counts, (access.len(), handed_on.len()));
                }
                Ok((access, handed_on))
            }
            GETACL3res::default(status, _) => Err(status),
        }
    }

    fn setacl(&mut self, file: &Fh, mask: u32, lists: (&[Entry], &[Entry])) -> nfsstat3 {
        let access = entries(lists.0, 0);
        let handed_on = entries(lists.1, NFS_ACL_DEFAULT);
        let args = SETACL3args {
            fh: Opaque(&file[..]),
            acl: secattr3 {
                mask,
                aclcnt: access.len() as u32,
                aclent: List::Of(&access),
                dfaclcnt: handed_on.len() as u32,
                dfaclent: List::Of(&handed_on),
            },
        };
        let told: SETACL3res = decoded(&self.nfsacl(nfsacl_proc3::ACLPROC3_SETACL, &args));
        assert_eq!(told.attr, self.getattr(file).ok());
        told.status
    }

    fn rights(&mut self, object: &Fh, caller: (u32, u32)) -> u32 {
        let before = self.caller.replace(caller);
        let args = ACCESS3args {
            object: Opaque(&object[..]),
            access: 0x3f,
        };
        let told: ACCESS3res = self.call(nfs_proc3::NFSPROC3_ACCESS, &args);
        self.caller = before;
        match told {
            ACCESS3res::NFS3_OK(told) => told.access,
            ACCESS3res::default(status, _) => panic!("{status:?}"),
        }
    }
}

#[test]
fn list_that_is_set_is_told_and_counts() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    world.setattr(&file, with_mode(0o644), None);
    // A mode as a list, with the mask that Solaris wants.
    let plain = vec![OWNER, GROUP, (ACL_MASK, 0, 4), OTHER];
    assert_eq!(world.getacl(&file, ALL), Ok((plain, vec![])));
    let (user, group) = ((ACL_USER, 1000, 7), (ACL_GROUP, 77, 6));
    let other = (ACL_OTHER, 0, 0);
    let list = [OWNER, user, GROUP, group, (ACL_MASK, 0, 6), other];
    assert_eq!(
        world.setacl(&file, NFS_ACL, (&list, &[])),
        nfsstat3::NFS3_OK
    );
    // The mask has been applied: none has more than that.
    let told = [
        OWNER,
        (ACL_USER, 1000, 6),
        GROUP,
        group,
        (ACL_MASK, 0, 6),
        other,
    ];
    assert_eq!(world.getacl(&file, ALL), Ok((told.to_vec(), vec![])));
    assert_eq!(world.getattr(&file).unwrap().mode, 0o640);
    let (read, all) = (ACCESS3_READ, ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND);
    for (caller, expected) in [
        ((1000, 1), all),
        ((1, 77), all),
        ((1, 0), read),
        ((1, 1), 0),
    ] {
        assert_eq!(world.rights(&file, caller), expected, "{caller:?}");
    }
    world.caller = Some((1000, 1));
    assert_eq!(world.write(&file, 0, b"x"), Ok(1));
    let refused = world.setacl(&file, NFS_ACL, (&list, &[]));
    assert_eq!(refused, nfsstat3::NFS3ERR_PERM);
    world.caller = Some((0, 0));
    world.setattr(&file, with_mode(0o600), None);
    assert_eq!(world.rights(&file, (1000, 1)), 0);
    let counted = world.getacl(&file, NFS_ACLCNT);
    assert_eq!(counted, Ok((vec![], vec![])));
    assert_eq!(world.getacl(&file, 0x10), Err(nfsstat3::NFS3ERR_INVAL));
}

#[test]
fn directory_hands_a_list_on() {
    let mut world = world();
    let root = world.root();
    let dir = world.mkdir(&root, "d", 0o755).unwrap();
    let access = [
        (ACL_USER_OBJ, 0, 7),
        (ACL_GROUP_OBJ, 0, 5),
        (ACL_OTHER, 0, 5),
    ];
    let handed_on = [
        OWNER,
        (ACL_USER, 1000, 6),
        GROUP,
        (ACL_MASK, 0, 6),
        (ACL_OTHER, 0, 0),
    ];
    let both = NFS_ACL | NFS_DFACL;
    let set = world.setacl(&dir, both, (&access, &handed_on));
    assert_eq!(set, nfsstat3::NFS3_OK);
    let (_, told) = world.getacl(&dir, ALL).unwrap();
    let expected = handed_on.map(|(kind, id, perm)| (kind | NFS_ACL_DEFAULT, id, perm));
    assert_eq!(told, expected);
    assert_eq!(world.getattr(&dir).unwrap().mode, 0o755);
    let file = world.file(&dir, "f");
    assert_eq!(
        world.rights(&file, (1000, 1)),
        ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND
    );
    let below = world.mkdir(&dir, "below", 0o755).unwrap();
    assert_eq!(world.getacl(&below, ALL).unwrap().1, expected);
    // A list of its own alone takes away what it hands on.
    world.setacl(&dir, NFS_ACL, (&access, &[]));
    assert_eq!(world.getacl(&dir, ALL).unwrap().1, []);
    let of_file = world.setacl(&file, both, (&access, &handed_on));
    assert_eq!(of_file, nfsstat3::NFS3ERR_INVAL);
}

#[test]
fn list_that_is_none_is_refused() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    let user = (ACL_USER, 1000, 6);
    for list in [
        &[OWNER, GROUP][..],
        &[OWNER, GROUP, OTHER, OTHER],
        &[OWNER, user, GROUP, OTHER],
        &[OWNER, GROUP, (ACL_OTHER, 0, 8)],
        &[OWNER, GROUP, OTHER, (0x40, 0, 4)],
    ] {
        let set = world.setacl(&file, NFS_ACL, (list, &[]));
        assert_eq!(set, nfsstat3::NFS3ERR_INVAL, "{list:?}");
    }
    let many: Vec<Entry> = (0..200).map(|id| (ACL_USER, id, 4)).collect();
    let many = [&[OWNER, GROUP, OTHER, (ACL_MASK, 0, 7)], &many[..]].concat();
    let set = world.setacl(&file, NFS_ACL, (&many, &[]));
    assert_eq!(set, nfsstat3::NFS3ERR_FBIG);
    let by_ro = world.mount("/in/ro").unwrap();
    let file = world.lookup(&by_ro, "f").unwrap();
    let set = world.setacl(&file, NFS_ACL, (&[OWNER, GROUP, OTHER], &[]));
    assert_eq!(set, nfsstat3::NFS3ERR_ROFS);
}
