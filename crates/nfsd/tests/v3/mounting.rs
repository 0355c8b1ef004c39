//! MOUNT.

use nfsd::Reason;
use wire::mount3::{exports, mountlist};

use super::*;

#[test]
fn paths_of_exports_and_below_them_are_mounted() {
    let mut world = world();
    let root = world.root();
    assert_eq!(world.getattr(&root).unwrap().type_, ftype3::NF3DIR);
    let dir = world.mkdir(&root, "d", 0o700).unwrap();
    let below = world.mkdir(&dir, "e", 0o700).unwrap();
    world.file(&root, "f");
    assert_eq!(world.mount("/pub/d/e").unwrap(), below);
    assert_eq!(world.mount("/pub//d/").unwrap(), dir);
    // A user who may not enter a directory may mount what is in it.
    world.caller = Some((5, 5));
    assert_eq!(world.mount("/pub/d/e").unwrap(), below);
    let cases = [
        ("/pub/f", mountstat3::MNT3ERR_NOTDIR),
        ("/pub/f/x", mountstat3::MNT3ERR_NOTDIR),
        ("/pub/x", mountstat3::MNT3ERR_NOENT),
        ("/pub/..", mountstat3::MNT3ERR_INVAL),
        // Not theirs, not an export, nothing at all: it makes no difference.
        ("/closed", mountstat3::MNT3ERR_ACCES),
        ("/in/closed", mountstat3::MNT3ERR_ACCES),
        ("/public", mountstat3::MNT3ERR_ACCES),
        ("", mountstat3::MNT3ERR_ACCES),
    ];
    for (path, status) in cases {
        assert_eq!(world.mount(path), Err(status), "{path}");
    }
    let long = format!("/pub/{}", "x".repeat(256));
    assert_eq!(world.mount(&long), Err(mountstat3::MNT3ERR_NAMETOOLONG));
    let path: dirpath<'_> = Opaque(b"/pub\xff");
    let bytes = world.mount_raw(mount_proc3::MOUNTPROC3_MNT, &path);
    assert_eq!(bytes, [0, 0, 0, mountstat3::MNT3ERR_ACCES as u8]);
}

#[test]
fn drained_server_mounts_nothing_and_serves_what_is_mounted() {
    let mut world = world();
    let root = world.mount("/pub").unwrap();
    world.server.nfsd.set_drained(true);
    assert_eq!(world.mount("/pub"), Err(mountstat3::MNT3ERR_SERVERFAULT));
    assert_eq!(world.getattr(&root).unwrap().type_, ftype3::NF3DIR);
    let refused = world.server.nfsd.take_refused().list;
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (&*refused[0].path, refused[0].reason),
        ("/pub", Reason::Drained)
    );
    world.server.nfsd.set_drained(false);
    assert_eq!(world.mount("/pub").unwrap(), root);
}

#[test]
fn a_mount_is_answered_with_the_flavors_of_its_export() {
    let mut world = world();
    let flavors = |world: &mut World, path: &str| {
        let path: dirpath<'_> = Opaque(path.as_bytes());
        let bytes = world.mount_raw(mount_proc3::MOUNTPROC3_MNT, &path);
        match mountres3::decode(&mut Reader::new(&bytes)).unwrap() {
            mountres3::MNT3_OK(info) => info.auth_flavors.iter().collect::<Vec<_>>(),
            mountres3::default(status) => panic!("{status:?}"),
        }
    };
    assert_eq!(flavors(&mut world, "/pub"), [AUTH_SYS]);
    assert_eq!(flavors(&mut world, "/in/all"), [AUTH_SYS, AUTH_NONE]);
}

fn listed(world: &mut World) -> Vec<(String, Vec<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let bytes = world.mount_raw(mount_proc3::MOUNTPROC3_EXPORT, &0u32);
    let mut from = Reader::new(&bytes);
    let list = exports::decode(&mut from).unwrap();
    assert!(from.rest().is_empty());
    let node = |node: wire::mount3::exportnode<'_>| {
        let groups = node.ex_groups.iter().map(|group| text(group.gr_name.0));
        (text(node.ex_dir.0), groups.collect())
    };
    list.nodes.iter().map(node).collect()
}

#[test]
fn exports_are_listed_only_for_clients_that_may_use_them() {
    let mut world = world();
    let names = |list: &[(String, Vec<String>)]| {
        let names = list.iter().map(|(name, _)| name.clone());
        names.collect::<Vec<_>>().join(" ")
    };
    let list = listed(&mut world);
    assert_eq!(names(&list), "/in/all /in/ro /in/root /pub");
    assert!(
        list.iter().all(|(_, groups)| groups.is_empty()),
        "for all clients"
    );
    world.conn = world.server.connect(address("[::ffff:10.0.0.9]:700"));
    let list = listed(&mut world);
    assert_eq!(names(&list), "/closed /in/all /in/ro /in/root /pub");
    // A name in a certificate may be longer than MNTNAMLEN.
    assert_eq!(
        list[0].1,
        ["10.0.0.0/8", &format!("URI:{}", "x".repeat(251))]
    );
}

fn mounts(world: &mut World) -> Vec<String> {
    let bytes = world.mount_raw(mount_proc3::MOUNTPROC3_DUMP, &0u32);
    let list = mountlist::decode(&mut Reader::new(&bytes)).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let bodies = list.bodies.iter();
    bodies
        .map(|body| text(body.ml_hostname.0) + &text(body.ml_directory.0))
        .collect()
}

#[test]
fn list_of_mounts_has_those_of_the_caller_alone_and_is_bounded() {
    let mut world = world();
    for path in ["/pub", "/in/ro", "/pub"] {
        world.mount(path).unwrap();
    }
    world.mount("/closed").unwrap_err();
    let first = world.conn;
    world.conn = world.server.connect(address("192.0.2.2:9"));
    world.mount("/pub").unwrap();
    let own = ["192.0.2.2/pub"];
    assert_eq!(mounts(&mut world), own);
    let path: dirpath<'_> = Opaque(b"/in/ro");
    assert!(
        world
            .mount_raw(mount_proc3::MOUNTPROC3_UMNT, &path)
            .is_empty()
    );
    let other = std::mem::replace(&mut world.conn, first);
    let all = ["192.0.2.1/in/ro", "192.0.2.1/pub"];
    assert_eq!(
        mounts(&mut world),
        all,
        "another client has unmounted nothing of it"
    );
    assert!(
        world
            .mount_raw(mount_proc3::MOUNTPROC3_UMNT, &path)
            .is_empty()
    );
    assert_eq!(mounts(&mut world), all[1..]);
    world.conn = other;
    assert_eq!(mounts(&mut world), own);
    assert!(
        world
            .mount_raw(mount_proc3::MOUNTPROC3_UMNTALL, &0u32)
            .is_empty()
    );
    assert!(mounts(&mut world).is_empty());
    // Clients that never say so do not fill it up.
    let root = world.root();
    for index in 0..1100 {
        world.mkdir(&root, &format!("{index}"), 0o755).unwrap();
        world.mount(&format!("/pub/{index}")).unwrap();
    }
    let list = mounts(&mut world);
    assert_eq!((list.len(), &*list[1023]), (1024, "192.0.2.2/pub/1099"));
}
