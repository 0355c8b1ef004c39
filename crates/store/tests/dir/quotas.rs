//! Quotas of a directory: what counts for whom, when it is refused, and that what is there
//! already counts.

use std::thread::sleep;
use std::time::Duration;

use super::*;
use store::fs::{Quota, QuotaLimits, QuotaSubject, Removable, SetXattr};

const KIB: u64 = 1 << 10;
const BLOCK: u64 = 4 * KIB;
const ANN: u32 = 1000;
const BOB: u32 = 1001;
const STAFF: u32 = 50;

fn hard_bytes(bytes: u64) -> QuotaLimits {
    QuotaLimits {
        hard_bytes: Some(bytes),
        ..QuotaLimits::default()
    }
}

fn hard_objects(objects: u64) -> QuotaLimits {
    QuotaLimits {
        hard_objects: Some(objects),
        ..QuotaLimits::default()
    }
}

fn whole() -> QuotaSubject {
    QuotaSubject::Tree("/".to_owned())
}

/// Sets limits, and waits until all is counted.
fn set(dir: &Dir, list: &[(QuotaSubject, QuotaLimits)]) {
    let quota = |(subject, limits): &(QuotaSubject, QuotaLimits)| Quota {
        subject: subject.clone(),
        limits: *limits,
    };
    let list: Vec<_> = list.iter().map(quota).collect();
    dir.set_quotas(&list, at(1)).unwrap();
    let is_counted = || dir.quotas().is_none_or(|quotas| !quotas.is_counting());
    let mut looks = 0..3000;
    assert!(looks.any(|_| {
        sleep(Duration::from_millis(10));
        is_counted()
    }));
}

/// Limits that nothing comes near.
fn count(dir: &Dir) {
    set(dir, &[(whole(), hard_bytes(1 << 50))]);
}

fn used(dir: &Dir, subject: &QuotaSubject) -> (u64, u64) {
    let usage = dir.quotas().unwrap().usage_of(subject);
    (usage.bytes, usage.objects)
}

fn of(dir: &Dir, uid: u32) -> (u64, u64) {
    used(dir, &QuotaSubject::User(uid))
}

/// A directory in which all may make files.
fn open_to_all(place: &Place) -> Dir {
    let dir = place.open();
    let mut root = User::root(&dir);
    root.set(dir.root(), mode(0o777)).unwrap();
    dir
}

fn chown(uid: u32) -> SetAttr {
    SetAttr {
        uid: Some(uid),
        ..SetAttr::default()
    }
}

fn write_all(user: &mut User<'_>, file: FileId, blocks: u64) -> Result<(), Error> {
    let block = vec![7; BLOCK as usize];
    (0..blocks).try_for_each(|at| user.write(file, at * BLOCK, &block).map(|_| ()))
}

#[test]
fn write_beyond_a_hard_limit_is_refused_and_what_was_answered_stays() {
    for place in [Place::new(), Place::recorded()] {
        for subject in [
            QuotaSubject::User(ANN),
            QuotaSubject::EachUser,
            QuotaSubject::Group(STAFF),
        ] {
            let dir = open_to_all(&place);
            set(&dir, &[(subject.clone(), hard_bytes(16 * BLOCK))]);
            let mut user = User::new(&dir, ANN, &[STAFF]);
            let (file, other) = (user.file(dir.root(), b"f"), user.file(dir.root(), b"g"));
            assert_eq!(write_all(&mut user, file, 20), Err(Error::DQuot));
            assert_eq!(of(&dir, ANN), (16 * BLOCK, 2), "{subject}");
            // In place it goes on, and all that was answered is there.
            write_all(&mut user, file, 16).unwrap();
            let (read, _) = user.read(file, 0, (16 * BLOCK) as u32).unwrap();
            assert!(read.len() as u64 == 16 * BLOCK && read.iter().all(|&byte| byte == 7));
            // Every way to get room is refused.
            let (offset, len) = (1 << 20, 1);
            let allocate = FsOp::Allocate { file, offset, len };
            assert_eq!(user.run(allocate), Err(Error::DQuot));
            let copy = FsOp::Copy {
                from: file,
                from_offset: 0,
                to: other,
                to_offset: 0,
                len: 0,
            };
            assert_eq!(user.run(copy), Err(Error::DQuot));
            let made = user.create(dir.root(), b"d", New::Directory, mode(0o755));
            assert_eq!(made.map(|_| ()), Err(Error::DQuot));
            // A file may be as long as it likes, if that takes nothing.
            user.set(file, size(1 << 30)).unwrap();
            assert_eq!(user.write(file, 1 << 25, b"more"), Err(Error::DQuot));
            user.write(file, 5, b"in place").unwrap();
            // Others have their own.
            let mut bob = User::new(&dir, BOB, &[STAFF + 1]);
            let bobs = bob.file(dir.root(), b"h");
            write_all(&mut bob, bobs, 3).unwrap();
            // What is cut off can be taken again.
            user.set(file, size(0)).unwrap();
            assert_eq!(of(&dir, ANN).0, 0);
            write_all(&mut user, other, 16).unwrap();
            let mut root = User::root(&dir);
            for name in [b"f", b"g", b"h"] {
                root.remove(dir.root(), name).unwrap();
            }
            assert_eq!((of(&dir, ANN), of(&dir, BOB)), ((0, 0), (0, 0)));
        }
    }
}

#[test]
fn objects_count_until_they_are_gone_and_names_are_free() {
    let place = Place::new();
    let dir = open_to_all(&place);
    set(&dir, &[(QuotaSubject::User(ANN), hard_objects(3))]);
    let mut user = User::new(&dir, ANN, &[STAFF]);
    let top = dir.root();
    let (file, _sub) = (user.file(top, b"f"), user.dir(top, b"d"));
    user.create(top, b"l", New::Symlink(b"f"), mode(0o777))
        .unwrap();
    let made = user.create(top, b"g", New::Guarded, mode(0o600));
    assert_eq!(made.map(|_| ()), Err(Error::DQuot));
    assert!(!place.path("g").exists());
    let (dir_of, name) = (top, b"again");
    user.run(FsOp::Link {
        file,
        dir: dir_of,
        name,
    })
    .unwrap();
    user.run(FsOp::Rename {
        from_dir: top,
        from: b"l",
        to_dir: top,
        to: b"m",
    })
    .unwrap();
    assert_eq!(of(&dir, ANN).1, 3);
    write_all(&mut user, file, 2).unwrap();
    // What is open counts without a name.
    user.open(file).unwrap();
    user.remove(top, b"f").unwrap();
    user.remove(top, b"again").unwrap();
    assert_eq!(of(&dir, ANN).1, 3);
    user.run(FsOp::Close { file }).unwrap();
    assert_eq!(of(&dir, ANN).1, 2);
    let remove = FsOp::Remove {
        dir: top,
        name: b"d",
        what: Removable::Directory,
    };
    user.run(remove).unwrap();
    // A rename over something takes that away.
    user.file(top, b"n");
    user.run(FsOp::Rename {
        from_dir: top,
        from: b"m",
        to_dir: top,
        to: b"n",
    })
    .unwrap();
    assert_eq!(of(&dir, ANN).1, 1);
}

#[test]
fn holes_take_nothing_and_what_is_punched_is_given_back() {
    let place = Place::new();
    let dir = open_to_all(&place);
    set(&dir, &[(QuotaSubject::User(ANN), hard_bytes(8 * BLOCK))]);
    let mut user = User::new(&dir, ANN, &[STAFF]);
    let file = user.file(dir.root(), b"f");
    user.set(file, size(100 * BLOCK)).unwrap();
    assert_eq!(of(&dir, ANN).0, 0);
    for at in 0..8 {
        user.write(file, at * 10 * BLOCK, &[1; 10]).unwrap();
    }
    assert_eq!(of(&dir, ANN).0, 8 * BLOCK);
    assert_eq!(user.write(file, 5 * BLOCK, b"x"), Err(Error::DQuot));
    user.write(file, 70 * BLOCK + 20, b"x").unwrap();
    let (offset, len) = (0, 20 * BLOCK);
    user.run(FsOp::Deallocate { file, offset, len }).unwrap();
    assert_eq!(of(&dir, ANN).0, 6 * BLOCK);
    let (offset, len) = (30 * BLOCK, 4 * BLOCK);
    assert_eq!(
        user.run(FsOp::Allocate { file, offset, len }),
        Err(Error::DQuot)
    );
    let (offset, len) = (31 * BLOCK, 2 * BLOCK);
    user.run(FsOp::Allocate { file, offset, len }).unwrap();
    assert_eq!(of(&dir, ANN).0, 8 * BLOCK);
    assert_eq!(
        user.write(file, 0, b"x"),
        Err(Error::DQuot),
        "it was punched"
    );
}

#[test]
fn chown_moves_what_a_file_has_where_the_new_owner_may_have_it() {
    for place in [Place::new(), Place::recorded()] {
        let dir = open_to_all(&place);
        let limits = [
            (QuotaSubject::User(BOB), hard_bytes(4 * BLOCK)),
            (QuotaSubject::Group(STAFF + 1), hard_bytes(BLOCK)),
        ];
        set(&dir, &limits);
        let mut user = User::new(&dir, ANN, &[STAFF, STAFF + 1]);
        let file = user.file(dir.root(), b"f");
        write_all(&mut user, file, 3).unwrap();
        let chgrp = SetAttr {
            gid: Some(STAFF + 1),
            ..SetAttr::default()
        };
        assert_eq!(user.set(file, chgrp).map(|_| ()), Err(Error::DQuot));
        assert_eq!(used(&dir, &QuotaSubject::Group(STAFF)), (3 * BLOCK, 1));
        let mut root = User::root(&dir);
        root.set(file, chown(BOB)).unwrap();
        assert_eq!((of(&dir, ANN), of(&dir, BOB)), ((0, 0), (3 * BLOCK, 1)));
        let mut bob = User::new(&dir, BOB, &[STAFF]);
        assert_eq!(write_all(&mut bob, file, 5), Err(Error::DQuot));
        assert_eq!(of(&dir, BOB), (4 * BLOCK, 1));
    }
}

#[test]
fn files_there_already_count_and_changes_of_local_programs_when_counted_anew() {
    for place in [Place::new(), Place::recorded()] {
        let dir = open_to_all(&place);
        let mut user = User::new(&dir, ANN, &[STAFF]);
        let mut at = dir.root();
        for depth in 0..5 {
            at = user.dir(at, b"d");
            let file = user.file(at, b"f");
            write_all(&mut user, file, depth).unwrap();
            user.create(at, b"l", New::Symlink(b"f"), mode(0o777))
                .unwrap();
            let (dir, name) = (at, b"again");
            user.run(FsOp::Link { file, dir, name }).unwrap();
        }
        drop(user);
        count(&dir);
        let first = of(&dir, ANN);
        assert!(first.0 >= 10 * BLOCK && first.1 == 15, "{first:?}");
        drop(dir);
        let dir = place.open();
        assert!(dir.quotas().is_none(), "without limits nothing is counted");
        count(&dir);
        assert_eq!(of(&dir, ANN), first);
        fs::remove_file(place.path("d/d/d/f")).unwrap();
        fs::remove_file(place.path("d/d/d/again")).unwrap();
        set(&dir, &[]);
        assert!(dir.quotas().is_none());
        count(&dir);
        let now = of(&dir, ANN);
        assert_eq!((first.0 - now.0, first.1 - now.1), (2 * BLOCK, 1));
        // What is there holds its limits.
        set(&dir, &[(QuotaSubject::User(ANN), hard_objects(now.1))]);
        let mut user = User::new(&dir, ANN, &[STAFF]);
        let made = user.create(dir.root(), b"more", New::Guarded, mode(0o600));
        assert_eq!(made.map(|_| ()), Err(Error::DQuot));
    }
}

/// Whatever clients do while it is counted, it ends, and what it says is so.
#[test]
fn count_ends_and_is_right_while_directories_move_and_files_come_and_go() {
    let place = Place::new();
    for at in 0..40 {
        for sub in 0..10 {
            let path = place.path(&format!("d{at}/s{sub}"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("f"), b"content").unwrap();
        }
    }
    let dir = open_to_all(&place);
    for round in 0..5 {
        let all = Quota {
            subject: whole(),
            limits: hard_bytes(1 << 50),
        };
        dir.set_quotas(&[all], at(1)).unwrap();
        let mut user = User::root(&dir);
        let top = dir.root();
        for at in 0..40 {
            let (from, to) = (format!("d{at}"), format!("x{at}"));
            let (from, to) = match round % 2 {
                0 => (from, to),
                _ => (to, from),
            };
            let (from, to) = (from.as_bytes(), to.as_bytes());
            let below = user
                .lookup(top, b"x0")
                .or_else(|_| user.lookup(top, b"d0"))
                .unwrap();
            let (from_dir, to_dir) = (top, top);
            user.run(FsOp::Rename {
                from_dir,
                from,
                to_dir,
                to,
            })
            .unwrap();
            let moved = user.lookup(top, to).unwrap();
            let (from_dir, from, to_dir, to) = (moved, &b"s0"[..], below, &b"t"[..]);
            if moved != below {
                user.run(FsOp::Rename {
                    from_dir,
                    from,
                    to_dir,
                    to,
                })
                .unwrap();
                let (from_dir, from, to_dir, to) = (below, &b"t"[..], moved, &b"s0"[..]);
                user.run(FsOp::Rename {
                    from_dir,
                    from,
                    to_dir,
                    to,
                })
                .unwrap();
            }
            let file = user.file(moved, b"new");
            write_all(&mut user, file, 1).unwrap();
            user.remove(moved, b"new").unwrap();
        }
        drop(user);
        let mut looks = 0..3000;
        assert!(looks.any(|_| {
            sleep(Duration::from_millis(10));
            !dir.quotas().unwrap().is_counting()
        }));
        assert_eq!(used(&dir, &whole()).1, 1 + 40 + 2 * 400, "round {round}");
        set(&dir, &[]);
    }
}

#[test]
fn soft_limit_holds_when_its_grace_is_over() {
    let place = Place::new();
    let dir = open_to_all(&place);
    let limits = QuotaLimits {
        soft_bytes: Some(2 * BLOCK),
        grace_s: 60,
        ..QuotaLimits::default()
    };
    set(&dir, &[(QuotaSubject::User(ANN), limits)]);
    let mut user = User::new(&dir, ANN, &[STAFF]);
    let file = user.file(dir.root(), b"f");
    write_all(&mut user, file, 4).unwrap();
    user.seconds += 61;
    assert_eq!(user.write(file, 4 * BLOCK, b"x"), Err(Error::DQuot));
    user.set(file, size(BLOCK)).unwrap();
    user.write(file, BLOCK, b"x").unwrap();
    assert_eq!(of(&dir, ANN).0, 2 * BLOCK);
}

#[test]
fn limits_change_and_go_while_files_are_there() {
    let place = Place::new();
    let dir = open_to_all(&place);
    let user = QuotaSubject::User(ANN);
    set(&dir, &[(user.clone(), hard_bytes(2 * BLOCK))]);
    let mut ann = User::new(&dir, ANN, &[STAFF]);
    let file = ann.file(dir.root(), b"f");
    assert_eq!(write_all(&mut ann, file, 3), Err(Error::DQuot));
    let stat = ann.statfs();
    assert_eq!(stat.bytes_avail, 0);
    set(&dir, &[(user.clone(), hard_bytes(5 * BLOCK))]);
    write_all(&mut ann, file, 3).unwrap();
    assert_eq!(ann.statfs().bytes_avail, 2 * BLOCK);
    set(&dir, &[]);
    write_all(&mut ann, file, 30).unwrap();
    assert!(dir.quotas().is_none());
    let tree = Quota {
        subject: QuotaSubject::Tree("/t".to_owned()),
        limits: hard_bytes(1),
    };
    assert!(dir.set_quotas(&[tree], at(1)).is_err());
}

/// What cannot be foreseen passes a limit once at most.
#[test]
fn owner_beyond_a_limit_gets_no_names_and_attributes() {
    let place = Place::new();
    let dir = open_to_all(&place);
    let mut user = User::new(&dir, ANN, &[STAFF]);
    let own = user.dir(dir.root(), b"d");
    let file = user.file(own, b"f");
    write_all(&mut user, file, 4).unwrap();
    set(&dir, &[(QuotaSubject::User(ANN), hard_bytes(BLOCK))]);
    let (name, value, how) = (&b"x"[..], &b"y"[..], SetXattr::Either);
    let set = FsOp::SetXattr {
        file,
        name,
        value,
        how,
    };
    assert_eq!(user.run(set), Err(Error::DQuot));
    let link = FsOp::Link {
        file,
        dir: own,
        name,
    };
    assert_eq!(user.run(link), Err(Error::DQuot));
    let (from_dir, from, to_dir, to) = (own, b"f", own, b"g");
    let rename = FsOp::Rename {
        from_dir,
        from,
        to_dir,
        to,
    };
    assert_eq!(user.run(rename), Err(Error::DQuot));
    user.remove(own, b"f").unwrap();
}
