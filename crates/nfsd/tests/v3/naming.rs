//! LOOKUP, CREATE and its like, REMOVE, RMDIR, RENAME, LINK, READLINK, READDIR,
//! READDIRPLUS.

use super::*;

#[test]
fn names_are_looked_up() {
    let mut world = world();
    let root = world.root();
    let dir = world.mkdir(&root, "d", 0o755).unwrap();
    let file = world.file(&dir, "f");
    assert_eq!(world.lookup(&root, "d"), Ok(dir.clone()));
    assert_eq!(world.lookup(&dir, "f"), Ok(file.clone()));
    assert_eq!(world.lookup(&dir, "."), Ok(dir.clone()));
    assert_eq!(world.lookup(&dir, ".."), Ok(root.clone()));
    // There is no way out of an export.
    assert_eq!(world.lookup(&root, ".."), Ok(root.clone()));
    let long = "x".repeat(256);
    let cases = [
        (&dir, "g", nfsstat3::NFS3ERR_NOENT),
        (&file, "f", nfsstat3::NFS3ERR_NOTDIR),
        (&file, "..", nfsstat3::NFS3ERR_NOTDIR),
        (&dir, &long, nfsstat3::NFS3ERR_NAMETOOLONG),
        (&dir, "", nfsstat3::NFS3ERR_INVAL),
        (&dir, "a/b", nfsstat3::NFS3ERR_INVAL),
    ];
    for (dir, name, status) in cases {
        assert_eq!(world.lookup(dir, name), Err(status), "{name}");
    }
}

#[test]
fn files_are_created_as_asked() {
    let mut world = world();
    let root = world.root();
    let first = world
        .create(&root, "f", createhow3::GUARDED(with_mode(0o640)))
        .unwrap();
    assert_eq!(world.getattr(&first).unwrap().mode, 0o640);
    let again = world.create(&root, "f", createhow3::GUARDED(with_mode(0o640)));
    assert_eq!(again, Err(nfsstat3::NFS3ERR_EXIST));
    // UNCHECKED takes what is there, and truncates it if a size is set.
    world.write(&first, 0, b"content").unwrap();
    let same = world.create(&root, "f", createhow3::UNCHECKED(with_mode(0o777)));
    assert_eq!(same, Ok(first.clone()));
    let attr = world.getattr(&first).unwrap();
    assert_eq!((attr.mode, attr.size), (0o640, 7));
    let same = world.create(&root, "f", createhow3::UNCHECKED(with_size(0)));
    assert_eq!(same, Ok(first.clone()));
    assert_eq!(world.getattr(&first).unwrap().size, 0);
    // EXCLUSIVE knows its own.
    let made = world
        .create(&root, "e", createhow3::EXCLUSIVE([1; 8]))
        .unwrap();
    assert_eq!(
        world.create(&root, "e", createhow3::EXCLUSIVE([1; 8])),
        Ok(made)
    );
    let other = world.create(&root, "e", createhow3::EXCLUSIVE([2; 8]));
    assert_eq!(other, Err(nfsstat3::NFS3ERR_EXIST));
    for name in [".", ".."] {
        let made = world.create(&root, name, createhow3::GUARDED(nothing()));
        assert_eq!(made, Err(nfsstat3::NFS3ERR_EXIST));
        assert_eq!(
            world.mkdir(&root, name, 0o755),
            Err(nfsstat3::NFS3ERR_EXIST)
        );
    }
    assert_eq!(world.mkdir(&root, "f", 0o755), Err(nfsstat3::NFS3ERR_EXIST));
    assert_eq!(
        world.mkdir(&first, "x", 0o755),
        Err(nfsstat3::NFS3ERR_NOTDIR)
    );
}

#[test]
fn unchecked_create_of_what_is_no_file_answers_exist() {
    let mut world = world();
    let root = world.root();
    let args = SYMLINK3args {
        where_: named(&root, "link"),
        symlink_attributes: with_mode(0o777),
        symlink_data: Opaque(b"file"),
    };
    let link = world
        .make(nfs_proc3::NFSPROC3_SYMLINK, &root, &args)
        .unwrap();
    let args = MKNOD3args {
        where_: named(&root, "fifo"),
        what: mknoddata3::NF3FIFO(with_mode(0o600)),
    };
    world.make(nfs_proc3::NFSPROC3_MKNOD, &root, &args).unwrap();
    world.mkdir(&root, "directory", 0o755).unwrap();
    let cases = [
        ("link", nfsstat3::NFS3ERR_EXIST),
        ("fifo", nfsstat3::NFS3ERR_EXIST),
        ("directory", nfsstat3::NFS3ERR_ISDIR),
    ];
    for (name, status) in cases {
        for set in [nothing(), with_size(0)] {
            let made = world.create(&root, name, createhow3::UNCHECKED(set));
            assert_eq!(made, Err(status), "{name}");
        }
    }
    // A link is no directory to create in.
    let made = world.create(&link, "f", createhow3::UNCHECKED(nothing()));
    assert_eq!(made, Err(nfsstat3::NFS3ERR_NOTDIR));
}

#[test]
fn devices_sockets_and_fifos_are_made() {
    let mut world = world();
    let root = world.root();
    let device = devicedata3 {
        dev_attributes: with_mode(0o600),
        spec: specdata3 {
            specdata1: 8,
            specdata2: 1,
        },
    };
    let cases = [
        (mknoddata3::NF3CHR(device), ftype3::NF3CHR),
        (mknoddata3::NF3BLK(device), ftype3::NF3BLK),
        (mknoddata3::NF3SOCK(with_mode(0o600)), ftype3::NF3SOCK),
        (mknoddata3::NF3FIFO(with_mode(0o600)), ftype3::NF3FIFO),
    ];
    for (what, kind) in cases {
        let name = format!("{kind:?}");
        let args = MKNOD3args {
            where_: named(&root, &name),
            what,
        };
        let made = world.make(nfs_proc3::NFSPROC3_MKNOD, &root, &args).unwrap();
        let attr = world.getattr(&made).unwrap();
        assert_eq!((attr.type_, attr.mode), (kind, 0o600));
        let is_device = matches!(kind, ftype3::NF3CHR | ftype3::NF3BLK);
        assert_eq!(attr.rdev.specdata1, if is_device { 8 } else { 0 });
    }
    for kind in [ftype3::NF3REG, ftype3::NF3DIR, ftype3::NF3LNK] {
        let args = MKNOD3args {
            where_: named(&root, "x"),
            what: mknoddata3::default(kind),
        };
        let made = world.make(nfs_proc3::NFSPROC3_MKNOD, &root, &args);
        assert_eq!(made, Err(nfsstat3::NFS3ERR_BADTYPE));
    }
    let args = SYMLINK3args {
        where_: named(&root, "link"),
        symlink_attributes: with_mode(0o777),
        symlink_data: Opaque(b"some/where"),
    };
    let link = world
        .make(nfs_proc3::NFSPROC3_SYMLINK, &root, &args)
        .unwrap();
    assert_eq!(world.getattr(&link).unwrap().size, 10);
    let symlink = Opaque(&link[..]);
    let bytes = world.raw(nfs_proc3::NFSPROC3_READLINK, &READLINK3args { symlink });
    let READLINK3res::NFS3_OK(res) = READLINK3res::decode(&mut Reader::new(&bytes)).unwrap() else {
        panic!("READLINK");
    };
    assert_eq!(res.data.0, b"some/where");
    assert_eq!(res.symlink_attributes, world.getattr(&link).ok());
    let symlink = Opaque(&root[..]);
    let bytes = world.raw(nfs_proc3::NFSPROC3_READLINK, &READLINK3args { symlink });
    let res = READLINK3res::decode(&mut Reader::new(&bytes)).unwrap();
    let attr = world.getattr(&root).ok();
    assert_eq!(res, READLINK3res::default(nfsstat3::NFS3ERR_INVAL, attr));
    // What lies behind a link is not looked up by the server.
    assert_eq!(world.lookup(&link, "x"), Err(nfsstat3::NFS3ERR_NOTDIR));
}

#[test]
fn names_are_removed() {
    let mut world = world();
    let root = world.root();
    let (remove, rmdir) = (nfs_proc3::NFSPROC3_REMOVE, nfs_proc3::NFSPROC3_RMDIR);
    let dir = world.mkdir(&root, "d", 0o755).unwrap();
    let file = world.file(&dir, "f");
    let cases = [
        (remove, &root, "d", nfsstat3::NFS3ERR_ISDIR),
        (remove, &dir, "g", nfsstat3::NFS3ERR_NOENT),
        (remove, &file, "g", nfsstat3::NFS3ERR_NOTDIR),
        (remove, &dir, ".", nfsstat3::NFS3ERR_INVAL),
        (rmdir, &root, "d", nfsstat3::NFS3ERR_NOTEMPTY),
        (rmdir, &dir, "f", nfsstat3::NFS3ERR_NOTDIR),
        (rmdir, &dir, ".", nfsstat3::NFS3ERR_INVAL),
        (rmdir, &dir, "..", nfsstat3::NFS3ERR_EXIST),
        (remove, &dir, "f", nfsstat3::NFS3_OK),
        (rmdir, &root, "d", nfsstat3::NFS3_OK),
        (rmdir, &root, "d", nfsstat3::NFS3ERR_NOENT),
    ];
    for (procedure, dir, name, status) in cases {
        assert_eq!(
            world.remove(procedure, dir, name),
            status,
            "{procedure:?} {name}"
        );
    }
}

fn rename(world: &mut World, from: (&Fh, &str), to: (&Fh, &str)) -> nfsstat3 {
    let before = (world.getattr(from.0).ok(), world.getattr(to.0).ok());
    let args = RENAME3args {
        from: named(from.0, from.1),
        to: named(to.0, to.1),
    };
    let res: RENAME3res = world.call(nfs_proc3::NFSPROC3_RENAME, &args);
    let is_ok = res.status == nfsstat3::NFS3_OK;
    world.check_wcc(&res.fromdir_wcc, before.0, from.0, is_ok);
    world.check_wcc(&res.todir_wcc, before.1, to.0, is_ok);
    res.status
}

#[test]
fn names_are_renamed() {
    let mut world = world();
    let root = world.root();
    let (a, b) = (
        world.mkdir(&root, "a", 0o755).unwrap(),
        world.mkdir(&root, "b", 0o755).unwrap(),
    );
    let file = world.file(&a, "f");
    let other = world.file(&b, "g");
    assert_eq!(rename(&mut world, (&a, "f"), (&b, "h")), nfsstat3::NFS3_OK);
    assert_eq!(world.lookup(&b, "h"), Ok(file.clone()));
    assert_eq!(world.lookup(&a, "f"), Err(nfsstat3::NFS3ERR_NOENT));
    assert_eq!(rename(&mut world, (&b, "h"), (&b, "g")), nfsstat3::NFS3_OK);
    assert_eq!(world.lookup(&b, "g"), Ok(file.clone()));
    assert_eq!(world.getattr(&other), Err(nfsstat3::NFS3ERR_STALE));
    let cases = [
        ((&a, "f"), (&b, "g"), nfsstat3::NFS3ERR_NOENT),
        ((&root, "a"), (&a, "x"), nfsstat3::NFS3ERR_INVAL),
        ((&b, "g"), (&root, "a"), nfsstat3::NFS3ERR_ISDIR),
        ((&root, "a"), (&b, "g"), nfsstat3::NFS3ERR_NOTDIR),
        ((&root, "a"), (&root, "b"), nfsstat3::NFS3ERR_NOTEMPTY),
        ((&root, "."), (&root, "x"), nfsstat3::NFS3ERR_INVAL),
        ((&root, "a"), (&b, ".."), nfsstat3::NFS3ERR_INVAL),
        ((&root, "a"), (&file, "x"), nfsstat3::NFS3ERR_NOTDIR),
    ];
    for (from, to, status) in cases {
        assert_eq!(
            rename(&mut world, from, to),
            status,
            "{} to {}",
            from.1,
            to.1
        );
    }
}

#[test]
fn files_are_linked_under_several_names() {
    let mut world = world();
    let root = world.root();
    let dir = world.mkdir(&root, "d", 0o755).unwrap();
    let file = world.file(&root, "f");
    let link = |world: &mut World, file: &Fh, dir: &Fh, name: &str| {
        let before = world.getattr(dir).ok();
        let args = LINK3args {
            file: Opaque(file),
            link: named(dir, name),
        };
        let res: LINK3res = world.call(nfs_proc3::NFSPROC3_LINK, &args);
        let is_ok = res.status == nfsstat3::NFS3_OK;
        world.check_wcc(&res.linkdir_wcc, before, dir, is_ok);
        assert_eq!(res.file_attributes, world.getattr(file).ok());
        res.status
    };
    assert_eq!(link(&mut world, &file, &dir, "g"), nfsstat3::NFS3_OK);
    assert_eq!(world.lookup(&dir, "g"), Ok(file.clone()));
    assert_eq!(world.getattr(&file).unwrap().nlink, 2);
    assert_eq!(link(&mut world, &file, &dir, "g"), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(link(&mut world, &file, &dir, "."), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(
        link(&mut world, &file, &file, "x"),
        nfsstat3::NFS3ERR_NOTDIR
    );
    let status = link(&mut world, &dir, &dir, "x");
    assert!(
        matches!(status, nfsstat3::NFS3ERR_ISDIR | nfsstat3::NFS3ERR_PERM),
        "{status:?}"
    );
}

/// An entry of an answer: its name, id, cookie, attributes, handle.
type Entry = (String, u64, u64, Option<fattr3>, Option<Fh>);

struct Listed {
    entries: Vec<Entry>,
    is_end: bool,
    bytes: usize,
    verifier: [u8; 8],
}

fn list(
    world: &mut World,
    dir: &Fh,
    (cookie, verifier): (u64, [u8; 8]),
    (plus, dircount, count): (bool, u32, u32),
) -> Result<Listed, nfsstat3> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    if plus {
        let args = READDIRPLUS3args {
            dir: Opaque(dir),
            cookie,
            cookieverf: verifier,
            dircount,
            maxcount: count,
        };
        let bytes = world.raw(nfs_proc3::NFSPROC3_READDIRPLUS, &args);
        let attr = world.getattr(dir).ok();
        return match READDIRPLUS3res::decode(&mut Reader::new(&bytes)).unwrap() {
            READDIRPLUS3res::NFS3_OK(res) => {
                assert_eq!(res.dir_attributes, attr);
                let entry = |entry: entryplus3<'_>| {
                    let handle = entry.name_handle.map(|handle| handle.0.to_vec());
                    (
                        text(entry.name.0),
                        entry.fileid,
                        entry.cookie,
                        entry.name_attributes,
                        handle,
                    )
                };
                Ok(Listed {
                    entries: res.entries.iter().map(entry).collect(),
                    is_end: res.eof,
                    bytes: bytes.len() - 4,
                    verifier: res.cookieverf,
                })
            }
            READDIRPLUS3res::default(status, told) => {
                assert_eq!(told, attr);
                Err(status)
            }
        };
    }
    let args = READDIR3args {
        dir: Opaque(dir),
        cookie,
        cookieverf: verifier,
        count,
    };
    let bytes = world.raw(nfs_proc3::NFSPROC3_READDIR, &args);
    let attr = world.getattr(dir).ok();
    match READDIR3res::decode(&mut Reader::new(&bytes)).unwrap() {
        READDIR3res::NFS3_OK(res) => {
            assert_eq!(res.dir_attributes, attr);
            let entry =
                |entry: entry3<'_>| (text(entry.name.0), entry.fileid, entry.cookie, None, None);
            Ok(Listed {
                entries: res.entries.iter().map(entry).collect(),
                is_end: res.eof,
                bytes: bytes.len() - 4,
                verifier: res.cookieverf,
            })
        }
        READDIR3res::default(status, told) => {
            assert_eq!(told, attr);
            Err(status)
        }
    }
}

#[test]
fn directories_are_listed_in_pieces_of_any_size() {
    let mut world = world();
    let root = world.root();
    let dir = world.mkdir(&root, "dir", 0o755).unwrap();
    let name = |at: usize| format!("{}{at}", "n".repeat(at % 40));
    let mut expected: Vec<String> = (0..300).map(name).collect();
    for name in &expected {
        world.file(&dir, name);
    }
    expected.extend([".".into(), "..".into()]);
    expected.sort();
    let sizes = [
        (false, 0, 200),
        (false, 0, 1000),
        (false, 0, u32::MAX),
        (true, 60, 1000),
        (true, 1 << 20, 600),
        (true, 1000, u32::MAX),
        (true, u32::MAX, u32::MAX),
        (true, 0, 4000),
    ];
    for size in sizes {
        let (mut names, mut at) = (Vec::new(), (0, [0; 8]));
        loop {
            let listed = list(&mut world, &dir, at, size).unwrap();
            assert!(
                listed.bytes <= size.2 as usize,
                "{} of {size:?}",
                listed.bytes
            );
            assert!(!listed.entries.is_empty() || listed.is_end);
            for (name, id, cookie, attr, handle) in listed.entries {
                assert!(cookie > at.0);
                at = (cookie, listed.verifier);
                let found = match &*name {
                    "." => dir.clone(),
                    ".." => root.clone(),
                    name if names.len() % 10 == 0 => world.lookup(&dir, name).unwrap(),
                    _ => handle.clone().unwrap_or_default(),
                };
                if let Ok(known) = world.getattr(&found) {
                    assert_eq!(id, known.fileid);
                    assert!(attr.is_none_or(|attr| attr == known));
                    assert!(handle.as_ref().is_none_or(|handle| *handle == found));
                }
                assert!(!size.0 || name == ".." || attr.is_some() && handle.is_some());
                names.push(name);
            }
            if listed.is_end {
                break;
            }
        }
        names.sort();
        assert_eq!(names, expected, "{size:?}");
    }
}

/// However much a client says that it takes.
#[test]
fn a_directory_is_listed_in_parts_of_256_kib_at_most() {
    let mut world = world();
    let root = world.root();
    let files = 1400;
    for at in 0..files {
        world.file(&root, &format!("{at:0200}"));
    }
    for plus in [false, true] {
        let (mut entries, mut parts, mut at) = (0, 0, (0, [0; 8]));
        loop {
            let size = (plus, u32::MAX, u32::MAX);
            let listed = list(&mut world, &root, at, size).unwrap();
            assert!(listed.bytes <= 256 << 10, "{} bytes", listed.bytes);
            (entries, parts) = (entries + listed.entries.len(), parts + 1);
            if listed.is_end {
                break;
            }
            assert!(listed.bytes > 255 << 10, "{} bytes", listed.bytes);
            at = (listed.entries.last().unwrap().2, listed.verifier);
        }
        assert_eq!((entries, parts), (files + 2, 2));
    }
}

#[test]
fn a_listing_goes_on_from_its_cookies_or_is_refused() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "file");
    let plain = (false, 0, 4096);
    let first = list(&mut world, &root, (0, [0; 8]), plain).unwrap();
    let names: Vec<_> = first.entries.iter().map(|entry| entry.0.as_str()).collect();
    assert_eq!((names, first.is_end), (vec![".", "..", "file"], true));
    // The root lies in itself.
    assert_eq!(first.entries[0].1, first.entries[1].1);
    let after = |at: usize| (first.entries[at].2, first.verifier);
    let rest = list(&mut world, &root, after(0), plain).unwrap();
    assert_eq!(rest.entries, first.entries[1..]);
    let rest = list(&mut world, &root, after(1), plain).unwrap();
    assert_eq!(rest.entries, first.entries[2..]);
    let rest = list(&mut world, &root, after(2), plain).unwrap();
    assert!(rest.entries.is_empty() && rest.is_end);
    let cases = [
        (&file, (0, [0; 8]), plain, nfsstat3::NFS3ERR_NOTDIR),
        (
            &root,
            (after(2).0, [1; 8]),
            plain,
            nfsstat3::NFS3ERR_BAD_COOKIE,
        ),
        (
            &root,
            (0, [0; 8]),
            (false, 0, 100),
            nfsstat3::NFS3ERR_TOOSMALL,
        ),
        (
            &root,
            (0, [0; 8]),
            (false, 0, 130),
            nfsstat3::NFS3ERR_TOOSMALL,
        ),
        (
            &root,
            (0, [0; 8]),
            (true, 4096, 230),
            nfsstat3::NFS3ERR_TOOSMALL,
        ),
    ];
    for (dir, at, size, status) in cases {
        let listed = list(&mut world, dir, at, size);
        assert_eq!(listed.err(), Some(status), "{at:?} {size:?}");
    }
    world.caller = Some((5, 5));
    world.setattr(&root, nothing(), None);
    let dir = {
        world.caller = Some((0, 0));
        let dir = world.mkdir(&root, "closed", 0o711).unwrap();
        world.caller = Some((5, 5));
        dir
    };
    let listed = list(&mut world, &dir, (0, [0; 8]), plain);
    assert_eq!(listed.err(), Some(nfsstat3::NFS3ERR_ACCES));
}
