//! Directories: names, handles, cookies, permissions.

use super::*;
use store::fs::{Device, ObjectKind};

#[test]
fn every_kind_of_object_can_be_made() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let device = Device { major: 8, minor: 1 };
    for (name, new, kind, links, size) in [
        (&b"f"[..], New::Guarded, ObjectKind::Regular, 1, 0),
        (b"d", New::Directory, ObjectKind::Directory, 2, 0),
        (b"l", New::Symlink(b"../x"), ObjectKind::Symlink, 1, 4),
        (b"p", New::Fifo, ObjectKind::Fifo, 1, 0),
        (b"s", New::Socket, ObjectKind::Socket, 1, 0),
        (b"b", New::Block(device), ObjectKind::Block, 1, 0),
        (b"c", New::Character(device), ObjectKind::Character, 1, 0),
    ] {
        let (attr, is_new, change) = user.create(top, name, new, mode(0o640)).unwrap();
        assert_eq!(
            (attr.kind, attr.links, attr.size, attr.mode),
            (kind, links, size, 0o640)
        );
        assert!(is_new && change.is_atomic && change.after == change.before + 1);
        assert_eq!(user.attr(attr.file).unwrap(), attr);
        assert_eq!(user.lookup(top, name), Ok(attr.file));
        let again = user.create(top, name, new, mode(0o640));
        assert_eq!(again.map(|_| ()), Err(Error::Exist));
        if matches!(kind, ObjectKind::Block | ObjectKind::Character) {
            assert_eq!(attr.device, device);
        }
        let parent = user.run(FsOp::Parent { dir: attr.file });
        match kind {
            ObjectKind::Directory => assert_eq!(parent, Ok(Output::File(top))),
            ObjectKind::Symlink => assert_eq!(parent, Err(Error::Symlink)),
            _ => assert_eq!(parent, Err(Error::NotDir)),
        }
        let text = user.run(FsOp::Readlink { file: attr.file });
        match kind {
            ObjectKind::Symlink => assert_eq!(text, Ok(Output::Bytes((*b"../x").into()))),
            ObjectKind::Directory => assert_eq!(text, Err(Error::IsDir)),
            _ => assert_eq!(text, Err(Error::Inval)),
        }
    }
    assert_eq!(user.run(FsOp::Parent { dir: top }), Err(Error::NoEnt));
    assert_eq!(user.attr(top).unwrap().links, 3);
    assert_eq!(user.names(top).concat(), b"fdlpsbc");
}

#[test]
fn the_three_ways_to_create_a_file() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let verifier = New::Exclusive(*b"12345678");
    let (made, is_new, _) = user.create(top, b"x", verifier, mode(0o600)).unwrap();
    assert!(is_new);
    // The same call again, and one with another verifier.
    let (again, is_new, change) = user.create(top, b"x", verifier, mode(0o600)).unwrap();
    assert_eq!((again, is_new), (made.clone(), false));
    assert_eq!(change.before, change.after);
    let other = New::Exclusive(*b"87654321");
    assert_eq!(
        user.create(top, b"x", other, mode(0)).map(|_| ()),
        Err(Error::Exist)
    );
    user.write(made.file, 0, b"content").unwrap();
    let (kept, is_new, _) = user.create(top, b"x", New::Unchecked, mode(0)).unwrap();
    assert_eq!((kept.size, kept.mode, is_new), (7, 0o600, false));
    let (cut, ..) = user.create(top, b"x", New::Unchecked, size(0)).unwrap();
    assert_eq!((cut.file, cut.size), (made.file, 0));
    user.dir(top, b"d");
    let taken = user.create(top, b"d", New::Unchecked, size(0));
    assert_eq!(taken.map(|_| ()), Err(Error::IsDir));
    let (large, ..) = user.create(top, b"y", New::Guarded, size(1 << 40)).unwrap();
    assert_eq!(user.attr(large.file).unwrap().size, 1 << 40);
}

#[test]
fn a_handle_never_means_another_object() {
    let fs = memory(8 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let mut seen = std::collections::HashSet::new();
    let mut before = None;
    for round in 0..3000 {
        let file = user.file(top, b"x");
        assert!(seen.insert(file), "round {round}: used before");
        if let Some(gone) = before {
            assert_eq!(user.attr(gone), Err(Error::Stale));
            assert_eq!(user.write(gone, 0, b"x"), Err(Error::Stale));
            let lent = fs.lend(&user.caller(), gone, 0, 1);
            assert!(matches!(lent, Some(Err(Error::Stale))));
        }
        before = Some(user.remove(top, b"x").unwrap());
    }
    for forged in [0, 1 << 31, u64::MAX, 1 << 32 | 1, 0xffff_ffff] {
        assert_eq!(user.attr(FileId(forged)), Err(Error::Stale), "{forged:x}");
    }
    // Few slots serve them all.
    assert!(seen.iter().all(|file| file.0 as u32 <= 3));
}

#[test]
fn open_file_without_a_name_stays_until_its_last_close() {
    let fs = memory(8 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let file = user.file(top, b"x");
    user.write(file, 0, &[7; 100_000]).unwrap();
    user.open(file).unwrap();
    user.open(file).unwrap();
    user.remove(top, b"x").unwrap();
    assert_eq!(user.attr(file).unwrap().links, 0);
    let link = FsOp::Link {
        file,
        dir: top,
        name: b"y",
    };
    assert_eq!(user.run(link), Err(Error::NoEnt));
    user.write(file, 100_000, &[8; 10]).unwrap();
    user.run(FsOp::Close { file }).unwrap();
    assert_eq!(user.read(file, 99_999, 3).unwrap(), (vec![7, 8, 8], false));
    user.run(FsOp::Close { file }).unwrap();
    assert_eq!(user.attr(file), Err(Error::Stale));
    assert_eq!(user.free(), free);
    let dir = user.dir(top, b"d");
    assert_eq!(user.open(dir), Err(Error::IsDir));
}

#[test]
fn rename_over_each_kind_of_object_does_what_posix_says() {
    let fs = memory(8 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let (a, b) = (user.dir(top, b"a"), user.dir(top, b"b"));
    let (inner, file) = (user.dir(a, b"inner"), user.file(a, b"file"));
    let other = user.file(b, b"other");
    // Names that are not there, or no names.
    assert_eq!(user.rename((a, b"none"), (b, b"x")), Err(Error::NoEnt));
    assert_eq!(user.rename((a, b"."), (b, b"x")), Err(Error::BadName));
    assert_eq!(user.rename((a, b"file"), (b, b"..")), Err(Error::BadName));
    assert_eq!(user.rename((file, b"x"), (b, b"x")), Err(Error::NotDir));
    // Kinds that do not go together.
    assert_eq!(
        user.rename((a, b"inner"), (b, b"other")),
        Err(Error::NotDir)
    );
    assert_eq!(user.rename((b, b"other"), (a, b"inner")), Err(Error::IsDir));
    assert_eq!(user.rename((top, b"b"), (top, b"a")), Err(Error::NotEmpty));
    // A directory into itself, and over one that it lies in.
    assert_eq!(user.rename((top, b"a"), (inner, b"x")), Err(Error::Inval));
    assert_eq!(user.rename((top, b"a"), (a, b"x")), Err(Error::Inval));
    assert_eq!(
        user.rename((a, b"inner"), (top, b"a")),
        Err(Error::NotEmpty)
    );
    // Over another file, in the same place in the listing.
    assert_eq!(user.rename((a, b"file"), (b, b"other")), Ok(Some(other)));
    assert_eq!(user.attr(other), Err(Error::Stale));
    assert_eq!(user.lookup(b, b"other"), Ok(file));
    assert_eq!(user.lookup(a, b"file"), Err(Error::NoEnt));
    // Two names of one object.
    let link = FsOp::Link {
        file,
        dir: a,
        name: b"again",
    };
    user.run(link).unwrap();
    let before = (user.attr(a).unwrap(), user.attr(file).unwrap());
    assert_eq!(user.rename((a, b"again"), (b, b"other")), Ok(None));
    assert_eq!((user.attr(a).unwrap(), user.attr(file).unwrap()), before);
    assert_eq!(user.lookup(a, b"again"), Ok(file));
    // A directory over an empty one, with its parent and links.
    let empty = user.dir(b, b"empty");
    assert_eq!(user.rename((a, b"inner"), (b, b"empty")), Ok(Some(empty)));
    assert_eq!(user.run(FsOp::Parent { dir: inner }), Ok(Output::File(b)));
    assert_eq!(user.attr(a).unwrap().links, 2);
    assert_eq!(user.attr(b).unwrap().links, 3);
    // Within one directory, and to itself.
    assert_eq!(user.rename((b, b"empty"), (b, b"full")), Ok(None));
    assert_eq!(user.rename((b, b"full"), (b, b"full")), Ok(None));
    assert_eq!(user.names(b), [&b"other"[..], b"full"]);
    let (from, to) = (user.attr(b).unwrap().change, user.attr(top).unwrap().change);
    let op = FsOp::Rename {
        from_dir: b,
        from: b"full",
        to_dir: top,
        to: b"up",
    };
    let Ok(Output::Renamed { from: f, to: t, .. }) = user.run(op) else {
        panic!("it can be moved up");
    };
    assert_eq!(
        (f.before, f.after, t.before, t.after),
        (from, from + 1, to, to + 1)
    );
}

#[test]
fn remove_refuses_an_object_of_another_kind() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"d");
    user.file(dir, b"f");
    let mut remove = |dir, name, what| {
        let removed = user.run(FsOp::Remove { dir, name, what });
        removed.map(|_| ())
    };
    assert_eq!(remove(top, b"d", Removable::Any), Err(Error::NotEmpty));
    assert_eq!(
        remove(top, b"d", Removable::NotDirectory),
        Err(Error::IsDir)
    );
    assert_eq!(remove(dir, b"f", Removable::Directory), Err(Error::NotDir));
    assert_eq!(remove(dir, b"g", Removable::Any), Err(Error::NoEnt));
    assert_eq!(remove(dir, b"f", Removable::NotDirectory), Ok(()));
    assert_eq!(remove(top, b"d", Removable::Directory), Ok(()));
    assert_eq!(remove(dir, b"f", Removable::Any), Err(Error::Stale));
    assert_eq!(user.attr(top).unwrap().links, 2);
}

/// A listing has each entry that stays exactly once, whatever is made and
/// removed meanwhile.
#[test]
fn cookies_hold_while_entries_come_and_go() {
    let fs = memory(16 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"d");
    for i in 0..500 {
        user.file(dir, format!("stays{i}").as_bytes());
        user.file(dir, format!("goes{i}").as_bytes());
    }
    let (mut cookie, mut seen, mut cookies) = (0, Vec::new(), Vec::new());
    let mut round = 0;
    loop {
        let listing = user.list(dir, cookie, 7).unwrap();
        for (entry, name) in listing.iter() {
            assert!(entry.cookie > cookie && entry.cookie > 2);
            assert_eq!(entry.attr.as_ref().unwrap().file, entry.file);
            cookie = entry.cookie;
            cookies.push(cookie);
            seen.push(name.to_vec());
        }
        if listing.is_end {
            break;
        }
        // Also the entry of the cookie that is used next.
        let _ = user.remove(dir, format!("goes{round}").as_bytes());
        let last = format!("goes{}", cookie / 2 - 2);
        let _ = user.remove(dir, last.as_bytes());
        user.file(dir, format!("new{round}").as_bytes());
        round += 1;
    }
    for i in 0..500 {
        let name = format!("stays{i}").into_bytes();
        assert_eq!(seen.iter().filter(|seen| **seen == name).count(), 1, "{i}");
    }
    cookies.dedup();
    assert_eq!(cookies.len(), seen.len());
    // An empty directory still knows its old cookies, and does not reuse them.
    for name in user.names(dir) {
        user.remove(dir, &name).unwrap();
    }
    assert!(user.list(dir, cookie, 10).unwrap().is_end);
    user.file(dir, b"last");
    let listing = user.list(dir, 0, 10).unwrap();
    assert!(listing.iter().all(|(entry, _)| entry.cookie > cookie));
    assert_eq!(user.list(dir, 1 << 40, 10), Err(Error::BadCookie));
    assert_eq!(user.list(dir, 1, 10), Err(Error::BadCookie));
    let stale = FsOp::Readdir {
        dir,
        cookie,
        verifier: 78,
        entries_max: 10,
        name_bytes_max: 100,
        with_attrs: false,
    };
    assert_eq!(user.run(stale), Err(Error::NotSame));
    let small = FsOp::Readdir {
        dir,
        cookie: 0,
        verifier: 0,
        entries_max: 10,
        name_bytes_max: 3,
        with_attrs: false,
    };
    assert_eq!(user.run(small), Err(Error::TooSmall));
}

/// Its owner alone sees into a directory, and others change only what is
/// theirs in one that is sticky.
#[test]
fn permissions_are_those_of_the_caller() {
    let fs = memory(8 << 20);
    let (mut root, mut user, mut other) = (
        User::root(&fs),
        User::new(&fs, 1000, &[100]),
        User::new(&fs, 1001, &[101, 100]),
    );
    let top = root.top();
    let (made, ..) = user
        .create(top, b"home", New::Directory, mode(0o700))
        .unwrap();
    let home = made.file;
    assert_eq!((made.uid, made.gid), (1000, 100));
    let file = user.file(home, b"f");
    assert_eq!(other.lookup(home, b"f"), Err(Error::Access));
    assert_eq!(other.lookup(home, b"none"), Err(Error::Access));
    assert_eq!(other.list(home, 0, 10), Err(Error::Access));
    let denied = other.create(home, b"x", New::Fifo, mode(0));
    assert_eq!(denied.map(|_| ()), Err(Error::Access));
    assert_eq!(root.lookup(home, b"f"), Ok(file));
    user.set(home, mode(0o755)).unwrap();
    assert_eq!(other.remove(home, b"f"), Err(Error::Access));
    assert_eq!(other.read(file, 0, 1).unwrap().0, b"");
    assert_eq!(other.write(file, 0, b"x"), Err(Error::Access));
    assert_eq!(other.set(file, size(0)), Err(Error::Access));
    assert_eq!(other.set(file, mode(0o777)), Err(Error::Perm));
    assert_eq!(other.open(file), Err(Error::Access));
    // Of the root directory, which is sticky.
    assert_eq!(other.remove(top, b"home"), Err(Error::Perm));
    assert_eq!(
        other.rename((top, b"home"), (top, b"mine")),
        Err(Error::Perm)
    );
    other.file(top, b"own");
    assert_eq!(user.rename((top, b"home"), (top, b"own")), Err(Error::Perm));
    // By its group.
    user.set(home, mode(0o770)).unwrap();
    assert_eq!(other.remove(home, b"f").map(|_| ()), Ok(()));
    // A directory changes its parent only for a user who may write to it.
    let theirs = user.dir(home, b"theirs");
    let to = other.dir(top, b"to");
    assert_eq!(
        other.rename((home, b"theirs"), (to, b"x")),
        Err(Error::Access)
    );
    user.set(theirs, mode(0o777)).unwrap();
    assert_eq!(other.rename((home, b"theirs"), (to, b"x")), Ok(None));
    let refused = user.set(
        theirs,
        SetAttr {
            uid: Some(7),
            ..mode(0o700)
        },
    );
    assert_eq!(refused, Err(Error::Perm));
    assert_eq!(user.attr(theirs).unwrap().mode, 0o777, "all or nothing");
}

#[test]
fn write_by_a_user_clears_set_uid_and_set_gid_of_a_file() {
    let fs = memory(4 << 20);
    let (mut root, mut user) = (User::root(&fs), User::new(&fs, 1000, &[100]));
    let top = root.top();
    let (made, ..) = root.create(top, b"f", New::Guarded, mode(0o6777)).unwrap();
    root.write(made.file, 0, b"x").unwrap();
    assert_eq!(root.attr(made.file).unwrap().mode, 0o6777);
    user.write(made.file, 0, b"x").unwrap();
    assert_eq!(user.attr(made.file).unwrap().mode, 0o777);
    root.set(made.file, mode(0o6777)).unwrap();
    user.set(made.file, size(0)).unwrap();
    assert_eq!(user.attr(made.file).unwrap().mode, 0o777);
}

#[test]
fn times_follow_operations_and_guards_refuse_stale_changes() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    user.seconds = 10;
    let file = user.file(top, b"f");
    let times = |user: &mut User<'_>| {
        let attr = user.attr(file).unwrap();
        [attr.accessed, attr.modified, attr.changed, attr.created].map(|time| time.seconds)
    };
    assert_eq!(times(&mut user), [10, 10, 10, 10]);
    user.seconds = 20;
    user.read(file, 0, 10).unwrap();
    assert_eq!(times(&mut user), [20, 10, 10, 10]);
    user.seconds = 30;
    user.read(file, 0, 10).unwrap();
    assert_eq!(times(&mut user), [20, 10, 10, 10], "nothing changed since");
    user.write(file, 0, b"x").unwrap();
    assert_eq!(times(&mut user), [20, 30, 30, 10]);
    user.seconds = 40;
    user.set(file, mode(0o600)).unwrap();
    assert_eq!(times(&mut user), [20, 30, 40, 10]);
    let attr = user.attr(file).unwrap();
    assert_eq!(user.set(file, SetAttr::default()), Ok(attr));
    user.seconds = 50;
    let guarded = |guard| FsOp::Setattr {
        file,
        set: size(9),
        guard: Some(at(guard)),
    };
    assert_eq!(user.run(guarded(39)), Err(Error::NotSync));
    assert!(user.run(guarded(40)).is_ok());
    assert_eq!(times(&mut user), [20, 50, 50, 10]);
}
