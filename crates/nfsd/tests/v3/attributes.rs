//! GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use super::*;

#[test]
fn attributes_are_read_and_set() {
    let mut world = world();
    world.caller = Some((7, 8));
    let mut root = world.root();
    world.caller = Some((0, 0));
    world.setattr(&root, with_mode(0o1777), None);
    world.caller = Some((7, 8));
    let file = world.file(&root, "f");
    let attr = world.getattr(&file).unwrap();
    assert_eq!(
        (attr.type_, attr.mode, attr.nlink),
        (ftype3::NF3REG, 0o666, 1)
    );
    assert_eq!((attr.uid, attr.gid, attr.size), (7, 8, 0));
    assert_eq!(
        attr.mtime,
        nfstime3 {
            seconds: 1_000_000,
            nseconds: 0
        }
    );
    assert_eq!(attr.fsid, world.getattr(&root).unwrap().fsid);
    let by_ro = world.mount("/in/ro").unwrap();
    assert_ne!(
        attr.fsid,
        world.getattr(&by_ro).unwrap().fsid,
        "another export"
    );
    // All at once; some clients send the kind of the object with the mode.
    world.server.advance(5_000_000_000);
    let set = sattr3 {
        mode: Some(0o100_640),
        uid: Some(7),
        gid: Some(8),
        size: Some(5000),
        atime: set_atime::SET_TO_CLIENT_TIME(nfstime3 {
            seconds: 9,
            nseconds: 8,
        }),
        mtime: set_mtime::SET_TO_SERVER_TIME,
    };
    assert_eq!(world.setattr(&file, set, None), nfsstat3::NFS3_OK);
    let attr = world.getattr(&file).unwrap();
    assert_eq!((attr.mode, attr.size), (0o640, 5000));
    assert_eq!(
        attr.atime,
        nfstime3 {
            seconds: 9,
            nseconds: 8
        }
    );
    assert_eq!(
        attr.mtime,
        nfstime3 {
            seconds: 1_000_005,
            nseconds: 0
        }
    );
    // Nothing to be set is no error, and no change.
    assert_eq!(world.setattr(&file, nothing(), None), nfsstat3::NFS3_OK);
    assert_eq!(world.getattr(&file).unwrap(), attr);
    let refused = [
        (
            sattr3 {
                uid: Some(9),
                ..nothing()
            },
            nfsstat3::NFS3ERR_PERM,
        ),
        (
            sattr3 {
                gid: Some(9),
                ..nothing()
            },
            nfsstat3::NFS3ERR_PERM,
        ),
        (with_size(u64::MAX), nfsstat3::NFS3ERR_FBIG),
        (
            sattr3 {
                mtime: set_mtime::SET_TO_CLIENT_TIME(nfstime3 {
                    seconds: 0,
                    nseconds: 1 << 30,
                }),
                ..nothing()
            },
            nfsstat3::NFS3ERR_INVAL,
        ),
    ];
    for (set, status) in refused {
        assert_eq!(world.setattr(&file, set, None), status);
    }
    let dir = world.mkdir(&root, "d", 0o755).unwrap();
    assert_eq!(
        world.setattr(&dir, with_size(0), None),
        nfsstat3::NFS3ERR_ISDIR
    );
    root.truncate(3);
    assert_eq!(
        world.setattr(&root, nothing(), None),
        nfsstat3::NFS3ERR_BADHANDLE
    );
}

#[test]
fn a_setattr_with_an_old_guard_is_refused() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    let seen = world.getattr(&file).unwrap().ctime;
    assert_eq!(
        world.setattr(&file, with_size(9), Some(seen)),
        nfsstat3::NFS3_OK
    );
    world.server.advance(1);
    assert_eq!(
        world.setattr(&file, with_size(8), Some(seen)),
        nfsstat3::NFS3_OK
    );
    assert_eq!(
        world.setattr(&file, with_size(7), Some(seen)),
        nfsstat3::NFS3ERR_NOT_SYNC
    );
    assert_eq!(world.getattr(&file).unwrap().size, 8);
}

#[test]
fn access_answers_the_rights_of_the_caller() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    let dir = world.mkdir(&root, "d", 0o750).unwrap();
    let access = |world: &mut World, object: &Fh, asked: u32| {
        let object = Opaque(&object[..]);
        let args = ACCESS3args {
            object,
            access: asked,
        };
        match world.call(nfs_proc3::NFSPROC3_ACCESS, &args) {
            ACCESS3res::NFS3_OK(res) => {
                assert!(res.obj_attributes.is_some());
                Ok(res.access)
            }
            ACCESS3res::default(status, _) => Err(status),
        }
    };
    let all = 0x3f;
    let all_of_file = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND;
    assert_eq!(access(&mut world, &file, all), Ok(all_of_file));
    assert_eq!(access(&mut world, &file, u32::MAX), Ok(all_of_file | 0x1c0));
    assert_eq!(
        access(&mut world, &file, ACCESS3_EXTEND),
        Ok(ACCESS3_EXTEND)
    );
    world.setattr(&file, with_mode(0o741), None);
    assert_eq!(
        access(&mut world, &file, all),
        Ok(all_of_file | ACCESS3_EXECUTE)
    );
    assert_eq!(access(&mut world, &dir, all), Ok(all & !ACCESS3_EXECUTE));
    world.caller = Some((5, 5));
    assert_eq!(access(&mut world, &file, all), Ok(ACCESS3_EXECUTE));
    assert_eq!(access(&mut world, &dir, all), Ok(0));
    world.caller = Some((5, 0));
    assert_eq!(access(&mut world, &file, all), Ok(ACCESS3_READ));
    assert_eq!(
        access(&mut world, &dir, all),
        Ok(ACCESS3_READ | ACCESS3_LOOKUP)
    );
    world.caller = Some((0, 0));
    let ro = world.mount("/in/ro").unwrap();
    let same = world.lookup(&ro, "f").unwrap();
    assert_eq!(
        access(&mut world, &same, all),
        Ok(ACCESS3_READ | ACCESS3_EXECUTE)
    );
    assert_eq!(
        access(&mut world, &vec![], all),
        Err(nfsstat3::NFS3ERR_BADHANDLE)
    );
}

#[test]
fn fsinfo_fsstat_and_pathconf_describe_the_file_system() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    let attr = world.getattr(&file).ok();
    let fsroot = Opaque(&file[..]);
    let FSINFO3res::NFS3_OK(info) = world.call(nfs_proc3::NFSPROC3_FSINFO, &FSINFO3args { fsroot })
    else {
        panic!("FSINFO");
    };
    assert_eq!(info.obj_attributes, attr);
    assert_eq!((info.rtmax, info.wtmax), (1 << 20, 1 << 20));
    assert!(info.rtpref <= info.rtmax && info.wtpref <= info.wtmax && info.dtpref >= 4096);
    assert_eq!(info.properties, 0x1b);
    let before = match world.call(nfs_proc3::NFSPROC3_FSSTAT, &FSSTAT3args { fsroot }) {
        FSSTAT3res::NFS3_OK(stat) => stat,
        FSSTAT3res::default(status, _) => panic!("{status:?}"),
    };
    assert_eq!((before.obj_attributes, before.tbytes), (attr, 256 * MIB));
    world.write(&file, 0, &vec![1; 1 << 20]).unwrap();
    let fsroot = Opaque(&root[..]);
    let FSSTAT3res::NFS3_OK(after) =
        world.call(nfs_proc3::NFSPROC3_FSSTAT, &FSSTAT3args { fsroot })
    else {
        panic!("FSSTAT");
    };
    assert!(before.abytes - after.abytes >= MIB && after.ffiles == after.afiles);
    let object = Opaque(&root[..]);
    let PATHCONF3res::NFS3_OK(conf) =
        world.call(nfs_proc3::NFSPROC3_PATHCONF, &PATHCONF3args { object })
    else {
        panic!("PATHCONF");
    };
    assert!(conf.no_trunc && conf.chown_restricted && conf.case_preserving);
    assert!(!conf.case_insensitive && conf.name_max == 255 && conf.linkmax > 1);
    for procedure in [
        nfs_proc3::NFSPROC3_FSINFO,
        nfs_proc3::NFSPROC3_FSSTAT,
        nfs_proc3::NFSPROC3_PATHCONF,
        nfs_proc3::NFSPROC3_READLINK,
    ] {
        let object = Opaque(&[1, 2, 3]);
        let bytes = world.raw(procedure, &GETATTR3args { object });
        let mut expected = Vec::new();
        nfsstat3::NFS3ERR_BADHANDLE.encode(&mut expected);
        false.encode(&mut expected);
        assert_eq!(bytes, expected);
    }
}
