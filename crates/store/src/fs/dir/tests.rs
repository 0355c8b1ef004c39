//! What is not to be seen from outside: the way down where `openat2` is denied,
//! descriptors that run out, names of operations.

use super::*;
use crate::fs::{Asker, Attr, Device, New, ObjectKind, Removable, SetAttr, SetXattr, Time};
use descriptor::Descriptor;
use opens::OpenFile;
use std::os::unix::fs::symlink;
use workers::{names_of, with_names};

fn beneath(path: &Path) -> Beneath {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let root = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    Beneath::new(root, true)
        .unwrap()
        .expect("a kernel of today")
}

/// Both ways refuse the same.
#[test]
fn links_and_dots_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/b/c/f"), b"").unwrap();
    fs::write(outside.path().join("f"), b"").unwrap();
    symlink(outside.path(), at("a/out")).unwrap();
    symlink("b", at("a/in")).unwrap();
    symlink("/proc/self/root", at("magic")).unwrap();
    for beneath in [
        beneath(folder.path()),
        beneath(folder.path()).without_openat2(),
    ] {
        let file = beneath.at(b"a/b/c/f").unwrap();
        assert_eq!(file.identity, beneath.at(b"a/b/c/f").unwrap().identity);
        assert!(beneath.at(b"").unwrap().is_directory());
        for link in [&b"a/out"[..], b"a/in", b"magic"] {
            let seen = beneath.at(link).unwrap();
            assert_eq!(seen.file_type(), rustix::fs::FileType::Symlink);
        }
        for way in [&b"a/out/f"[..], b"a/in/c/f", b"magic/etc", b"a/b/c/f/x"] {
            let errno = beneath.at(way).err().expect("no way");
            assert!(
                matches!(errno, Errno::LOOP | Errno::NOTDIR),
                "{errno} {way:?}"
            );
        }
        assert_eq!(beneath.at(b"a/none").err(), Some(Errno::NOENT));
    }
    let strict = beneath(folder.path());
    assert_eq!(strict.at(b"a/../..").err(), Some(Errno::XDEV));
}

/// `/proc` is there, and never on the mount of the root.
#[test]
fn mounts_are_not_crossed() {
    for beneath in [
        beneath(Path::new("/")),
        beneath(Path::new("/")).without_openat2(),
    ] {
        let top = beneath.at(b"").unwrap();
        assert_eq!(beneath.at(b"proc").err(), Some(Errno::XDEV));
        assert_eq!(beneath.at(b"proc/self").err(), Some(Errno::XDEV));
        assert_eq!(beneath.peek(&top, c"proc").err(), Some(Errno::XDEV));
    }
}

#[test]
fn writes_are_told_once_also_of_files_given_up_meanwhile() {
    let entries = Entries::new(16);
    let entry = put(&entries, 1);
    assert!(!entries.take_changes(FileId(1)));
    entries.written(&entry, 5);
    assert!(entries.take_changes(FileId(1)) && !entries.take_changes(FileId(1)));
    entries.forget(FileId(1));
    entries.written(&entry, 9);
    assert_eq!(entry.size(), 9);
    assert!(entries.idle().iter().all(|entry| entry.has_news()));
    assert!(entries.take_changes(FileId(1)));
}

/// The kernel reports what it could not write to the descriptor, and to none once
/// that is closed.
#[test]
fn descriptor_with_writes_since_its_last_sync_is_not_closed() {
    let entries = Entries::new(16);
    let entry = put(&entries, 1);
    entries.written(&entry, 5);
    assert!(entries.take_changes(FileId(1)));
    entries.close(&entries.idle());
    assert_eq!(entries.descriptors(), 1, "the file is idle");
    for file in 2..100 {
        put(&entries, file);
    }
    assert!(entry.descriptor().is_some(), "others need room");
    assert!(entry.syncs.begin());
    entry.syncs.end(Ok(()));
    entries.close(&entries.idle());
    assert_eq!(entries.descriptors(), 0);
}

/// What is written through it meanwhile would be written through a descriptor that
/// no sync asks any more.
#[test]
fn descriptor_in_use_is_not_closed() {
    let entries = Entries::new(16);
    let used = put(&entries, 1).descriptor();
    entries.close(&entries.idle());
    assert_eq!(entries.descriptors(), 1);
    drop(used);
    entries.close(&entries.idle());
    assert_eq!(entries.descriptors(), 0);
}

/// Both have opened the file at once: what the first has written is told to the
/// first one.
#[test]
fn descriptor_that_will_do_is_not_replaced() {
    let entries = Entries::new(16);
    let put = |can_write| {
        let (_, fd) = entries.insert_descriptor(&attr(1), descriptor(), can_write, Time::default());
        fd
    };
    let reading = put(false);
    let first = put(true);
    assert!(!Arc::ptr_eq(&reading, &first), "it cannot write");
    assert!(Arc::ptr_eq(&first, &put(true)) && Arc::ptr_eq(&first, &put(false)));
}

/// Longer than a system call takes.
#[test]
fn path_longer_than_a_system_call_takes_is_opened_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let name = "n".repeat(250);
    let deep = beneath(folder.path());
    let mut path = Vec::new();
    for _ in 0..40 {
        let dir = deep.at(&path).unwrap();
        rustix::fs::mkdirat(&dir.fd, name.as_str(), Mode::RWXU).unwrap();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
    }
    assert!(path.len() > 10_000);
    let last = deep.at(&path).unwrap();
    let walked = beneath(folder.path()).without_openat2().at(&path).unwrap();
    assert_eq!(last.identity, walked.identity);
    // Too deep for others to remove.
    while let Some(at) = path.iter().rposition(|&byte| byte == b'/') {
        let dir = deep.at(&path[..at]).unwrap();
        let name = &path[at + 1..];
        rustix::fs::unlinkat(&dir.fd, name, AtFlags::REMOVEDIR).unwrap();
        path.truncate(at);
    }
}

fn attr(file: u64) -> Attr {
    Attr {
        file: FileId(file),
        kind: ObjectKind::Regular,
        mode: 0o600,
        acl: None,
        label: None,
        links: 1,
        uid: 0,
        gid: 0,
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

/// Puts one more descriptor, where nothing waits to be synced.
fn put(entries: &Entries, file: u64) -> Arc<OpenFile> {
    entries.close(&entries.descriptors_to_close());
    let (entry, _) = entries.insert_descriptor(&attr(file), descriptor(), true, Time::default());
    entry
}

fn descriptor() -> Arc<Descriptor> {
    Descriptor::new(File::open("/dev/null").unwrap().into(), None)
}

#[test]
fn descriptors_are_taken_from_files_that_no_client_has_open() {
    let entries = Entries::new(16);
    let put = |file| put(&entries, file);
    // One open, one open and without a name; the rest open to no client.
    entries.pin(&put(1)).unwrap();
    entries.pin(&put(2)).unwrap();
    assert!(entries.unlinked(FileId(2)));
    for file in 3..200 {
        put(file);
        assert!(entries.descriptors() <= 16, "{file}");
    }
    assert!(entries.pinned(FileId(1)).is_some());
    for file in 200..300 {
        entries.pin(&put(file)).unwrap();
        assert!(entries.descriptors() <= 16, "{file}");
    }
    // Its turn came, but it is still open, and gets another when it needs one.
    assert!(entries.pinned(FileId(1)).is_none() && entries.lacks_descriptor(FileId(1)));
    assert!(
        entries.pinned(FileId(2)).is_some(),
        "all that there is of it"
    );
    entries.put_descriptor(FileId(1), descriptor(), true);
    assert!(entries.pinned(FileId(1)).is_some());
    assert!(!entries.unpin(FileId(1)));
    assert!(entries.unpin(FileId(2)), "the end of a file without a name");
    entries.close(&entries.idle());
    assert!(entries.get(FileId(1)).is_none() && entries.get(FileId(299)).is_some());
}

/// A client that removes what it has open takes no descriptors from others.
#[test]
fn files_without_names_leave_descriptors_for_others() {
    let entries = Entries::new(16);
    let put = |file| put(&entries, file);
    let mut removed = 0;
    for file in 1..100 {
        entries.pin(&put(file)).unwrap();
        if entries.may_be_unlinked(FileId(file)) {
            assert!(entries.unlinked(FileId(file)));
            removed += 1;
        }
    }
    assert_eq!(removed, 8);
    assert!(entries.may_be_unlinked(FileId(200)), "it is not open");
    entries.unpin(FileId(1));
    assert!(entries.may_be_unlinked(FileId(99)));
}

/// A file that one client has open is looked at again for a caller that has not
/// opened it: its permission may be gone since.
#[test]
fn open_file_is_looked_at_again_for_a_caller_that_has_not_opened_it() {
    let entries = Entries::new(16);
    let entry = put(&entries, 1);
    entries.pin(&entry).unwrap();
    let caller = |is_open, seconds| Caller {
        uid: 0,
        gid: 0,
        gids: &[],
        now: Time { seconds, nanos: 0 },
        is_open,
        from: Asker::default(),
    };
    assert!(entry.checked_descriptor(&caller(false, 0), None).is_some());
    assert!(entry.checked_descriptor(&caller(false, 1), None).is_none());
    assert!(entry.checked_descriptor(&caller(true, 1), None).is_some());
}

#[test]
#[should_panic(expected = "closed as often")]
fn more_closes_than_opens_of_a_file_panic() {
    let entries = Entries::new(16);
    put(&entries, 1);
    entries.unpin(FileId(1));
}

/// What goes to a thread is what was asked.
#[test]
fn operations_keep_their_names() {
    let (dir, file) = (FileId(1), FileId(2));
    let (name, other) = (&b"name"[..], &b"other"[..]);
    let set = SetAttr::default();
    let create = |new| FsOp::Create {
        dir,
        name,
        new,
        set: set.clone(),
    };
    let mut ops = vec![
        FsOp::Lookup { dir, name },
        FsOp::Link { file, dir, name },
        FsOp::Remove {
            dir,
            name,
            what: Removable::Directory,
        },
        FsOp::Rename {
            from_dir: dir,
            from: name,
            to_dir: file,
            to: other,
        },
        FsOp::GetXattr { file, name },
        FsOp::SetXattr {
            file,
            name,
            value: other,
            how: SetXattr::Create,
        },
        FsOp::RemoveXattr { file, name },
        FsOp::Statfs { file },
        FsOp::Close { file },
    ];
    let device = Device { major: 1, minor: 2 };
    for new in [
        New::Unchecked,
        New::Guarded,
        New::Exclusive([7; 8]),
        New::Directory,
        New::Symlink(other),
        New::Fifo,
        New::Socket,
        New::Block(device),
        New::Character(device),
    ] {
        ops.push(create(new));
    }
    for op in ops {
        let [first, second] = names_of(&op);
        let kept: FsOp<'static> = with_names(&op, b"", b"");
        let again = with_names(&kept, &first, &second);
        assert_eq!(format!("{again:?}"), format!("{op:?}"));
    }
}

/// Opening a pipe would wait for a process at its other end.
#[test]
fn anything_but_a_file_in_the_state_directory_is_refused_by_name() {
    for name in ["objects", "index", "lock"] {
        let folder = tempfile::tempdir().expect("a directory");
        let spec = DirSpec {
            name: "share".to_owned(),
            path: folder.path().join("served"),
            state: folder.path().join("state"),
            read_only: false,
            owners: None,
            acls: None,
            direct: false,
        };
        fs::create_dir(&spec.path).expect("made");
        fs::create_dir(&spec.state).expect("made");
        let pipe = spec.state.join(name);
        let mode = rustix::fs::Mode::RWXU;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("a pipe");
        for found in [Dir::examine(&spec).err(), Dir::open(&spec).err()] {
            let text = found.expect("refused").to_string();
            for part in [&*pipe.display().to_string(), "move it away"] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}
