//! Whose files are, with privileges and without.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use store::fs::{Device, SET_UID};

const CHILD: &str = "WEFT_TEST_DIR_OWNERS";

fn owned(uid: u32, gid: u32, mode: u32) -> SetAttr {
    SetAttr {
        uid: Some(uid),
        gid: Some(gid),
        mode: Some(mode),
        ..SetAttr::default()
    }
}

fn owner(attr: &Attr) -> (u32, u32, u32) {
    (attr.uid, attr.gid, attr.mode)
}

/// Everything that clients may set reads back as it was set, also after a
/// restart. What it is on the disk is for the caller to look at.
fn set_all(place: &Place) {
    let device = Device {
        major: 8,
        minor: 17,
    };
    let all = [
        ("file", New::Guarded, ObjectKind::Regular),
        ("unseen", New::Exclusive([1; 8]), ObjectKind::Regular),
        ("dir", New::Directory, ObjectKind::Directory),
        ("fifo", New::Fifo, ObjectKind::Fifo),
        ("socket", New::Socket, ObjectKind::Socket),
        ("block", New::Block(device), ObjectKind::Block),
        ("character", New::Character(device), ObjectKind::Character),
        ("link", New::Symlink(b"x"), ObjectKind::Symlink),
    ];
    let mut made = Vec::new();
    {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        for (name, new, kind) in all {
            let set = owned(1000, 100, 0o4666);
            let (attr, ..) = user.create(top, name.as_bytes(), new, set).unwrap();
            assert_eq!((attr.kind, attr.uid, attr.gid), (kind, 1000, 100));
            let is_device = matches!(kind, ObjectKind::Block | ObjectKind::Character);
            assert_eq!(
                attr.device,
                if is_device { device } else { Device::default() }
            );
            if kind != ObjectKind::Symlink {
                assert_eq!(attr.mode, 0o4666, "{name}");
            }
            made.push((name, attr));
        }
        let file = made[0].1.file;
        let changed = user.set(file, owned(1001, 101, 0o2070)).unwrap();
        assert_eq!(owner(&changed), (1001, 101, 0o2070));
        made[0].1 = changed;
        // The mode limits every user, whichever user owns the file on the disk.
        let mut other = User::new(&fs, 1000, &[100]);
        assert_eq!(other.open(file), Err(Error::Access));
        assert_eq!(other.set(file, mode(0o777)), Err(Error::Perm));
        let mut member = User::new(&fs, 7, &[101]);
        member.write(file, 0, b"x").unwrap();
        assert_eq!(user.attr(file).unwrap().mode, 0o070, "powers are taken");
        made[0].1.mode = 0o070;
    }
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    for (name, attr) in made {
        assert_eq!(user.lookup(top, name.as_bytes()), Ok(attr.file));
        let again = user.attr(attr.file).unwrap();
        assert_eq!(
            (again.kind, owner(&again)),
            (attr.kind, owner(&attr)),
            "{name}"
        );
        assert_eq!(again.device, attr.device);
        match attr.kind {
            ObjectKind::Regular | ObjectKind::Directory | ObjectKind::Symlink => {}
            _ => {
                assert_eq!(again.size, 0);
                assert_eq!(user.read(attr.file, 0, 1), Err(Error::WrongType));
                assert_eq!(user.open(attr.file), Err(Error::WrongType));
            }
        }
    }
}

#[needs(root)]
#[test]
fn with_privileges_owners_are_real() {
    let place = Place::new();
    set_all(&place);
    assert_eq!(place.open().owners(), Owners::Real);
    let on_disk = |name| {
        let stat = fs::symlink_metadata(place.path(name)).unwrap();
        (stat.uid(), stat.gid(), stat.mode())
    };
    assert_eq!(on_disk("dir"), (1000, 100, 0o44666));
    assert_eq!(on_disk("file"), (1001, 101, 0o100070));
    assert_eq!(on_disk("character"), (1000, 100, 0o24666));
    assert_eq!(on_disk("link"), (1000, 100, 0o120777));
}

#[test]
fn without_privileges_owners_are_recorded() {
    let place = Place::recorded();
    set_all(&place);
    check_recorded(&place);
}

/// All belongs to weft's user, and no other may write it.
fn check_recorded(place: &Place) {
    let own = fs::metadata(place.state.path()).unwrap().uid();
    for entry in fs::read_dir(place.served.path()).unwrap() {
        let stat = entry.unwrap().metadata().unwrap();
        assert_eq!(stat.uid(), own);
        if !stat.is_symlink() {
            assert_eq!(stat.mode() & 0o7022, 0, "{:o}", stat.mode());
            assert_eq!(stat.mode() & 0o600, 0o600);
        }
    }
    assert!(fs::metadata(place.path("block")).unwrap().is_file());
}

#[test]
fn owner_attribute_counts_only_where_weft_alone_may_write() {
    let place = Place::recorded();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    // As a local user would, to be superuser on a client.
    let forged = |name: &str, mode| {
        let path = place.path(name);
        fs::write(&path, b"").unwrap();
        let value = b"0:0:104755";
        rustix::fs::setxattr(
            &path,
            "user.weft.owner",
            value,
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    forged("by group", 0o660);
    let theirs = forged("theirs", 0o644);
    if is_root() {
        std::os::unix::fs::chown(theirs, Some(1234), Some(1234)).unwrap();
    } else {
        fs::remove_file(theirs).unwrap();
        fs::write(place.path("theirs"), b"").unwrap();
    }
    for name in ["by group", "theirs"] {
        let file = user.lookup(top, name.as_bytes()).unwrap();
        assert_eq!(user.attr(file).unwrap().mode & SET_UID, 0, "{name}");
    }
    // Nor may clients look at it, or set it.
    let file = user.file(top, b"own");
    let name = b"weft.owner";
    for op in [
        FsOp::SetXattr {
            file,
            name,
            value: b"0:0:104755",
            how: store::fs::SetXattr::Either,
        },
        FsOp::RemoveXattr { file, name },
    ] {
        assert_eq!(user.run(op), Err(Error::Perm));
    }
    assert_eq!(user.run(FsOp::GetXattr { file, name }), Err(Error::NoXattr));
    user.set(file, owned(5, 6, 0o666)).unwrap();
    let list = FsOp::ListXattrs {
        file,
        cookie: 0,
        name_bytes_max: 1000,
    };
    let Ok(Output::Listing(listing)) = user.run(list) else {
        panic!("it can be listed");
    };
    assert!(listing.is_empty() && listing.is_end);
}

/// Not a test of its own: the same as another user.
#[test]
#[ignore = "run by another test as another user"]
fn child() {
    let Some(parent) = std::env::var_os(CHILD) else {
        return;
    };
    assert!(!is_root());
    let place = Place {
        served: tempfile::tempdir_in(&parent).unwrap(),
        state: tempfile::tempdir_in(&parent).unwrap(),
        owners: None,
        acls: None,
        direct: false,
    };
    assert_eq!(place.open().owners(), Owners::Recorded);
    set_all(&place);
    check_recorded(&place);
    // A directory that it may not write, and one that it may not read.
    let locked = place.path("locked");
    fs::create_dir(&locked).unwrap();
    let spec = DirSpec {
        path: locked.clone(),
        state: place.state.path().join("other"),
        ..place.spec()
    };
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    let problem = |spec: &DirSpec| Dir::open(spec).err().map(|error| error.problem);
    assert!(matches!(problem(&spec), Some(DirProblem::NotWritable)));
    let read_only = DirSpec {
        read_only: true,
        ..spec.clone()
    };
    assert!(problem(&read_only).is_none());
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    assert!(matches!(problem(&read_only), Some(DirProblem::NotReadable)));
    // Files of others are as they are on the disk.
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let found = user.lookup(top, b"locked").unwrap();
    assert_eq!(user.list(found, 0, 9), Err(Error::Access));
    println!("\nALL WELL");
}

#[needs(root, program("setpriv"))]
#[test]
fn file_system_works_for_a_user_without_privileges() {
    let parent = Place::new();
    let path = parent.served.path();
    std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    // A copy, since the way to the test itself may be closed to that user.
    let program = path.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
        ])
        .arg(&program)
        .args(["--ignored", "--exact", "owners::child", "--nocapture"])
        .env(CHILD, path)
        .env("RUST_BACKTRACE", "0")
        .current_dir(path)
        .output()
        .expect("setpriv runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ALL WELL"), "{said}\n{errors}");
}
