//! The directories above the exports, as NFSv3 sees them.

use super::*;

fn names(world: &mut World, dir: &Fh, count: u32) -> Vec<(String, Option<Fh>)> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let args = READDIRPLUS3args {
            dir: Opaque(dir),
            cookie,
            cookieverf: [0; 8],
            dircount: count,
            maxcount: count,
        };
        let bytes = world.raw(nfs_proc3::NFSPROC3_READDIRPLUS, &args);
        let res = READDIRPLUS3res::decode(&mut Reader::new(&bytes)).unwrap();
        let READDIRPLUS3res::NFS3_OK(listing) = res else {
            panic!("{res:?}");
        };
        for entry in listing.entries.iter() {
            let name = String::from_utf8(entry.name.0.to_vec()).unwrap();
            all.push((name, entry.name_handle.map(|handle| handle.0.to_vec())));
            cookie = entry.cookie;
        }
        if listing.eof {
            return all;
        }
    }
}

#[test]
fn root_above_exports_is_mounted_and_leads_to_those_that_the_client_may_use() {
    let mut world = world();
    let root = world.mount("/").unwrap();
    let attr = world.getattr(&root).unwrap();
    assert_eq!(
        (attr.type_, attr.mode, attr.nlink),
        (ftype3::NF3DIR, 0o555, 4)
    );
    for count in [4096, 460] {
        let mut all: Vec<_> = names(&mut world, &root, count)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        all.sort();
        assert_eq!(all, [".", "..", "in", "pub"], "{count} bytes at a time");
    }
    let inside = world.mount("/in/").unwrap();
    assert_eq!(world.lookup(&root, "in").unwrap(), inside);
    assert_eq!(world.lookup(&inside, "..").unwrap(), root);
    assert_eq!(world.lookup(&root, "..").unwrap(), root);
    let listed = names(&mut world, &root, 4096);
    let handle = |name: &str| {
        listed
            .iter()
            .find(|(own, _)| own == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(handle("in"), Some(inside));
    assert_eq!(handle("pub"), Some(world.mount("/pub").unwrap()));
    let what = named(&root, "pub");
    let bytes = world.raw(nfs_proc3::NFSPROC3_LOOKUP, &LOOKUP3args { what });
    let LOOKUP3res::NFS3_OK(found) = LOOKUP3res::decode(&mut Reader::new(&bytes)).unwrap() else {
        panic!("an export is found");
    };
    assert_eq!(found.object.0, world.mount("/pub").unwrap());
    assert_eq!(found.obj_attributes, None, "the client asks for those");
    let export = world.root();
    let fsids = [&root, &export].map(|dir| world.getattr(dir).unwrap().fsid);
    assert_ne!(
        fsids[0], fsids[1],
        "clients see that another file system begins"
    );
    for name in ["closed", "nothing"] {
        let what = named(&root, name);
        let bytes = world.raw(nfs_proc3::NFSPROC3_LOOKUP, &LOOKUP3args { what });
        assert_eq!(bytes[..4], [0, 0, 0, 2], "{name}");
    }
}

#[test]
fn root_above_exports_is_not_for_clients_without_any() {
    let fs = memory(MIB, 9);
    let clients = Clients::nets(vec!["10.0.0.0/8".parse().unwrap()]);
    let export = Export::new("/pub", fs, rule(|rule| rule.clients = clients)).unwrap();
    let exports = Exports::new(vec![export], Time::default()).unwrap();
    let mut world = world();
    world.server.nfsd.set_exports(exports);
    assert_eq!(world.mount("/"), Err(mountstat3::MNT3ERR_ACCES));
    world.conn = world.server.connect(address("10.0.0.9:700"));
    assert!(world.mount("/").is_ok());
}

#[test]
fn directories_above_exports_cannot_be_changed_or_read_as_files() {
    let mut world = world();
    let root = world.mount("/").unwrap();
    let export = world.root();
    let file = world.file(&export, "f");
    assert_eq!(world.mkdir(&root, "d", 0o755), Err(nfsstat3::NFS3ERR_ROFS));
    let how = createhow3::UNCHECKED(with_mode(0o666));
    assert_eq!(world.create(&root, "f", how), Err(nfsstat3::NFS3ERR_ROFS));
    let status = |bytes: Vec<u8>| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let read = READ3args {
        file: Opaque(&root),
        offset: 0,
        count: 1,
    };
    let bytes = world.raw(nfs_proc3::NFSPROC3_READ, &read);
    assert_eq!(status(bytes), nfsstat3::NFS3ERR_ISDIR as u32);
    let rename = RENAME3args {
        from: named(&export, "f"),
        to: named(&root, "f"),
    };
    let bytes = world.raw(nfs_proc3::NFSPROC3_RENAME, &rename);
    assert_eq!(status(bytes), nfsstat3::NFS3ERR_XDEV as u32);
    assert_eq!(world.lookup(&export, "f").unwrap(), file);
    for procedure in [
        nfs_proc3::NFSPROC3_FSSTAT,
        nfs_proc3::NFSPROC3_FSINFO,
        nfs_proc3::NFSPROC3_PATHCONF,
    ] {
        let object = Opaque(&root[..]);
        let bytes = world.raw(procedure, &GETATTR3args { object });
        assert_eq!(status(bytes), 0, "{procedure:?}");
    }
    let access = ACCESS3args {
        object: Opaque(&root),
        access: 0x3f,
    };
    let bytes = world.raw(nfs_proc3::NFSPROC3_ACCESS, &access);
    let res = ACCESS3res::decode(&mut Reader::new(&bytes)).unwrap();
    let ACCESS3res::NFS3_OK(ok) = res else {
        panic!("{res:?}");
    };
    assert_eq!(ok.access, ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_EXECUTE);
}
