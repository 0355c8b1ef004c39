//! Quotas: what counts for whom, when it is refused, and that nothing is lost on the way.

use std::collections::BTreeMap;

use super::*;
use store::fs::{Quota, QuotaCount, QuotaEvent, QuotaLimits, QuotaSubject, QuotaUsage, SetXattr};

const KIB: u64 = 1 << 10;
/// Content of more than half of this takes room in units of it.
const FRAME: u64 = 16 * KIB;
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

fn tree(path: &str) -> QuotaSubject {
    QuotaSubject::Tree(path.to_owned())
}

fn set(fs: &Memory, list: &[(QuotaSubject, QuotaLimits)]) {
    let list: Vec<_> = list
        .iter()
        .map(|(subject, limits)| Quota {
            subject: subject.clone(),
            limits: *limits,
        })
        .collect();
    fs.set_quotas(&list, at(1)).unwrap();
}

fn usage(fs: &Memory, subject: &QuotaSubject) -> QuotaUsage {
    let all = fs.quotas().unwrap().usage();
    let found = all.into_iter().find(|usage| usage.subject == *subject);
    found.unwrap_or_else(|| fs.quotas().unwrap().usage_of(subject))
}

fn used(fs: &Memory, subject: &QuotaSubject) -> (u64, u64) {
    let usage = usage(fs, subject);
    (usage.bytes, usage.objects)
}

fn allocate(file: FileId, offset: u64, len: u64) -> FsOp<'static> {
    FsOp::Allocate { file, offset, len }
}

fn chown(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr {
        uid,
        gid,
        ..SetAttr::default()
    }
}

#[test]
fn write_beyond_a_hard_limit_is_refused_and_what_was_answered_stays() {
    for subject in [
        QuotaSubject::User(ANN),
        QuotaSubject::EachUser,
        QuotaSubject::Group(STAFF),
        tree("/t"),
        tree("/"),
    ] {
        let fs = memory(16 << 20);
        set(&fs, &[(subject.clone(), hard_bytes(64 * KIB))]);
        let mut user = User::new(&fs, ANN, &[STAFF]);
        let dir = match subject == tree("/t") {
            true => user.lookup(fs.root(), b"t").unwrap(),
            false => fs.root(),
        };
        let file = user.file(dir, b"f");
        let block = vec![7; 4096];
        let mut written = 0;
        let refused = loop {
            match user.write(file, written, &block) {
                Ok(done) => written += u64::from(done.len),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Error::DQuot, "{subject}");
        assert!(
            (3 * FRAME..=4 * FRAME).contains(&written),
            "{subject}: {written}"
        );
        // In place it goes on, and all that was answered is there.
        user.write(file, 0, &block).unwrap();
        let (read, _) = user.read(file, 0, written as u32).unwrap();
        assert!(read.iter().all(|&byte| byte == 7), "{subject}");
        // Every way to get room is refused.
        let end = 1 << 20;
        assert_eq!(user.receive(file, end, &[1; 70_000]), Err(Error::DQuot));
        assert_eq!(user.run(allocate(file, end, 70_000)), Err(Error::DQuot));
        let copy = FsOp::Copy {
            from: file,
            from_offset: 0,
            to: user.file(dir, b"g"),
            to_offset: 1,
            len: 0,
        };
        let copied = user.run(copy);
        let is_part = matches!(copied, Ok(Output::Copied(bytes)) if bytes < written);
        assert!(
            is_part || copied == Err(Error::DQuot),
            "{subject}: {copied:?}"
        );
        // A file may be as long as it likes, if that takes nothing.
        user.set(file, size(1 << 30)).unwrap();
        user.set(file, size(0)).unwrap();
        user.write(file, 0, &block).unwrap();
    }
}

#[test]
fn objects_beyond_a_hard_limit_are_refused_and_count_until_they_are_gone() {
    let fs = memory(16 << 20);
    set(&fs, &[(QuotaSubject::User(ANN), hard_objects(3))]);
    let mut user = User::new(&fs, ANN, &[STAFF]);
    let top = fs.root();
    let (file, _dir) = (user.file(top, b"f"), user.dir(top, b"d"));
    user.create(top, b"l", New::Symlink(b"f"), mode(0o777))
        .unwrap();
    let made = user.create(top, b"g", New::Guarded, mode(0o600));
    assert_eq!(made.map(|_| ()), Err(Error::DQuot));
    // Another name is no other object.
    let (dir, name) = (top, b"again");
    user.run(FsOp::Link { file, dir, name }).unwrap();
    assert_eq!(used(&fs, &QuotaSubject::User(ANN)).1, 3);
    // What is open counts without a name.
    user.open(file).unwrap();
    user.remove(top, b"f").unwrap();
    user.remove(top, b"again").unwrap();
    assert_eq!(used(&fs, &QuotaSubject::User(ANN)).1, 3);
    user.run(FsOp::Close { file }).unwrap();
    assert_eq!(used(&fs, &QuotaSubject::User(ANN)).1, 2);
    user.file(top, b"g");
}

#[test]
fn usage_is_what_is_allocated_and_moves_with_the_owner() {
    let fs = memory(16 << 20);
    let mut root = User::root(&fs);
    let mut user = User::new(&fs, ANN, &[STAFF]);
    let (ann, bob, staff) = (
        QuotaSubject::User(ANN),
        QuotaSubject::User(BOB),
        QuotaSubject::Group(STAFF),
    );
    let file = user.file(fs.root(), b"f");
    user.write(file, 1 << 20, &[1; 4096]).unwrap();
    assert_eq!(used(&fs, &ann), (FRAME, 1), "holes take nothing");
    let value = [1; 1000];
    let op = FsOp::SetXattr {
        file,
        name: b"a",
        value: &value,
        how: SetXattr::Either,
    };
    user.run(op).unwrap();
    let all = used(&fs, &ann);
    assert!(all.0 > FRAME + 1000 && all == used(&fs, &staff));
    root.set(file, chown(Some(BOB), None)).unwrap();
    assert_eq!((used(&fs, &ann), used(&fs, &bob)), ((0, 0), all));
    assert_eq!(used(&fs, &staff), all);
    root.set(file, chown(None, Some(7))).unwrap();
    assert_eq!(used(&fs, &staff), (0, 0));
    root.run(FsOp::RemoveXattr { file, name: b"a" }).unwrap();
    root.run(FsOp::Deallocate {
        file,
        offset: 0,
        len: 2 << 20,
    })
    .unwrap();
    assert_eq!(used(&fs, &bob), (0, 1));
}

#[test]
fn change_of_owner_is_refused_beyond_the_limits_of_the_new_one_but_not_to_the_superuser() {
    let fs = memory(16 << 20);
    let group = QuotaSubject::Group(7);
    set(&fs, &[(group.clone(), hard_bytes(4096))]);
    let mut user = User::new(&fs, ANN, &[STAFF, 7]);
    let file = user.file(fs.root(), b"f");
    user.write(file, 0, &[1; 40_000]).unwrap();
    let before = used(&fs, &QuotaSubject::Group(STAFF));
    assert_eq!(user.set(file, chown(None, Some(7))), Err(Error::DQuot));
    assert_eq!(user.attr(file).unwrap().gid, STAFF);
    assert_eq!(used(&fs, &QuotaSubject::Group(STAFF)), before);
    assert_eq!(used(&fs, &group), (0, 0));
    User::root(&fs).set(file, chown(None, Some(7))).unwrap();
    assert_eq!(used(&fs, &group), before);
    // Too much already: it can only become less.
    assert_eq!(user.write(file, 1 << 20, b"x"), Err(Error::DQuot));
    user.set(file, size(FRAME)).unwrap();
    assert_eq!(used(&fs, &group), (FRAME, 1));
}

#[test]
fn soft_limit_may_be_passed_for_its_grace_and_is_told_once() {
    let fs = memory(16 << 20);
    let limits = QuotaLimits {
        soft_bytes: Some(2 * FRAME),
        hard_bytes: Some(64 * FRAME),
        grace_s: 100,
        ..QuotaLimits::default()
    };
    let ann = QuotaSubject::User(ANN);
    set(&fs, &[(ann.clone(), limits)]);
    let mut user = User::new(&fs, ANN, &[STAFF]);
    let file = user.file(fs.root(), b"f");
    let frame = vec![1; FRAME as usize];
    user.seconds = 1000;
    for at in 0..4 {
        user.write(file, at * FRAME, &frame).unwrap();
    }
    assert_eq!(usage(&fs, &ann).bytes_until_s, Some(1100));
    let quotas = fs.quotas().unwrap();
    let event = |is_refused, used| QuotaEvent {
        subject: ann.clone(),
        count: QuotaCount::Bytes,
        is_refused,
        used,
        limit: 2 * FRAME,
    };
    assert_eq!(quotas.take_events(), [event(false, 3 * FRAME)]);
    user.seconds = 1100;
    user.write(file, 4 * FRAME, &frame).unwrap();
    user.seconds = 1101;
    for _ in 0..3 {
        assert_eq!(user.write(file, 5 * FRAME, &frame), Err(Error::DQuot));
    }
    assert_eq!(quotas.take_events(), [event(true, 5 * FRAME)]);
    // In place it is written, and below the limit all begins anew.
    user.write(file, 0, &frame).unwrap();
    user.set(file, size(2 * FRAME)).unwrap();
    assert_eq!(usage(&fs, &ann).bytes_until_s, None);
    user.write(file, 2 * FRAME, &frame).unwrap();
    assert_eq!(usage(&fs, &ann).bytes_until_s, Some(1201));
    assert_eq!(quotas.take_events().len(), 1);
    // It is told once in a while, however often it is passed.
    for _ in 0..3 {
        user.set(file, size(2 * FRAME)).unwrap();
        user.write(file, 2 * FRAME, &frame).unwrap();
    }
    assert_eq!(quotas.take_events(), []);
}

#[test]
fn names_do_not_leave_their_tree() {
    let fs = memory(16 << 20);
    set(&fs, &[(tree("/t"), hard_bytes(1 << 20))]);
    let mut root = User::root(&fs);
    let top = fs.root();
    let inside = root.lookup(top, b"t").unwrap();
    let (a, b) = (root.file(inside, b"a"), root.file(top, b"b"));
    let sub = root.dir(inside, b"sub");
    let link = |file, dir| FsOp::Link {
        file,
        dir,
        name: b"l",
    };
    assert_eq!(root.run(link(a, top)), Err(Error::XDev));
    assert_eq!(root.run(link(b, inside)), Err(Error::XDev));
    assert_eq!(root.rename((inside, b"a"), (top, b"x")), Err(Error::XDev));
    assert_eq!(root.rename((inside, b"sub"), (top, b"x")), Err(Error::XDev));
    assert_eq!(root.rename((top, b"b"), (sub, b"b")), Err(Error::XDev));
    // The directory that the limit names stays.
    assert_eq!(root.rename((top, b"t"), (top, b"u")), Err(Error::Perm));
    root.rename((inside, b"a"), (sub, b"a")).unwrap();
    root.run(link(a, inside)).unwrap();
    root.remove(sub, b"a").unwrap();
    root.remove(inside, b"l").unwrap();
    root.remove(inside, b"sub").unwrap();
    assert_eq!(root.remove(top, b"t"), Err(Error::Perm));
    assert_eq!(used(&fs, &tree("/t")), (0, 1));
}

/// What is there counts when the limit comes, and no more when it is gone.
#[test]
fn directory_with_content_becomes_a_tree_and_ceases_to_be_one() {
    let fs = memory(16 << 20);
    let mut root = User::root(&fs);
    let home = root.dir(fs.root(), b"home");
    let ann = root.dir(home, b"ann");
    for at in 0..600 {
        root.file(ann, format!("f{at}").as_bytes());
    }
    let file = root.file(home, b"f");
    root.write(file, 0, &[1; 9000]).unwrap();
    // A name outside.
    let (dir, name) = (fs.root(), b"also");
    root.run(FsOp::Link { file, dir, name }).unwrap();
    set(&fs, &[(tree("/home"), hard_objects(603))]);
    let entries = root.attr(home).unwrap().used_bytes + root.attr(ann).unwrap().used_bytes;
    assert_eq!(used(&fs, &tree("/home")), (entries + FRAME, 603));
    let made = root.create(ann, b"more", New::Guarded, mode(0o600));
    assert_eq!(made.map(|_| ()), Err(Error::DQuot));
    root.rename((dir, b"also"), (dir, b"other")).unwrap();
    assert_eq!(
        used(&fs, &tree("/home")).1,
        602,
        "its name outside was moved there"
    );
    set(&fs, &[]);
    root.file(ann, b"more");
    root.rename((home, b"ann"), (dir, b"ann")).unwrap();
    set(&fs, &[(tree("/home"), hard_objects(10))]);
    assert_eq!(used(&fs, &tree("/home")).1, 2);
}

/// Whatever is done, usage is what the objects take.
#[test]
fn usage_is_that_of_the_objects_after_random_operations() {
    let mut refused = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let fs = memory(4 << 20);
        let limits = [
            (tree("/t"), hard_bytes(400 * KIB)),
            (QuotaSubject::EachUser, hard_objects(40)),
            (QuotaSubject::User(BOB), hard_bytes(200 * KIB)),
            (QuotaSubject::Group(STAFF), hard_bytes(500 * KIB)),
        ];
        set(&fs, &limits);
        let mut users = [
            User::root(&fs),
            User::new(&fs, ANN, &[STAFF, 7]),
            User::new(&fs, BOB, &[STAFF]),
        ];
        let inside = users[0].lookup(fs.root(), b"t").unwrap();
        for _ in 0..400 {
            let user = &mut users[random.below(3) as usize];
            refused += u32::from(step(&mut random, user, inside) == Err(Error::DQuot));
        }
        check(&fs, &mut users[0], seed);
        // With no object left nothing counts.
        let names = users[0].names(fs.root());
        for name in names.iter().filter(|name| **name != b"t") {
            users[0].remove(fs.root(), name).unwrap();
        }
        for name in users[0].names(inside) {
            users[0].remove(inside, &name).unwrap();
        }
        check(&fs, &mut users[0], seed);
        assert_eq!(used(&fs, &QuotaSubject::User(ANN)), (0, 0), "seed {seed}");
    }
    assert!(refused > 100, "limits were met {refused} times");
}

fn step(random: &mut Random, user: &mut User<'_>, inside: FileId) -> Result<(), Error> {
    let dir = [user.top(), inside][random.below(2) as usize];
    let name = format!("n{}", random.below(12)).into_bytes();
    let offset = random.below(64) * 3000;
    let found = user.lookup(dir, &name);
    let Ok(file) = found else {
        let new = [New::Guarded, New::Symlink(b"somewhere")][random.below(2) as usize];
        return user.create(dir, &name, new, mode(0o666)).map(|_| ());
    };
    match random.below(9) {
        0 => user.remove(dir, &name).map(|_| ()),
        1 => user.set(file, size(offset)).map(|_| ()),
        2 => {
            let ids = [0, ANN, BOB, STAFF, 7];
            let mut id = || Some(ids[random.below(5) as usize]);
            let set = chown(id(), id());
            user.set(file, set).map(|_| ())
        }
        3 => {
            let to = format!("n{}", random.below(12)).into_bytes();
            user.rename((dir, &name), (dir, &to)).map(|_| ())
        }
        4 => {
            let (len, offset) = (random.below(40_000), offset);
            user.run(FsOp::Deallocate { file, offset, len }).map(|_| ())
        }
        5 => user.run(allocate(file, offset, 30_000)).map(|_| ()),
        6 => {
            let value = vec![1; random.below(5000) as usize];
            let op = FsOp::SetXattr {
                file,
                name: b"x",
                value: &value,
                how: SetXattr::Either,
            };
            user.run(op).map(|_| ())
        }
        7 => {
            let to = user.lookup(dir, b"n1")?;
            let op = FsOp::Copy {
                from: file,
                from_offset: 0,
                to,
                to_offset: offset,
                len: 0,
            };
            user.run(op).map(|_| ())
        }
        _ => {
            let len = [10, 5000, 100_000][random.below(3) as usize];
            user.receive(file, offset, &vec![1; len]).map(|_| ())
        }
    }
}

/// Counts all objects anew. Of their attributes alone extended ones cannot be seen: they are
/// taken away before.
fn check(fs: &Memory, root: &mut User<'_>, seed: u64) {
    let mut sums: BTreeMap<QuotaSubject, (u64, u64)> = BTreeMap::new();
    let inside = root.lookup(fs.root(), b"t").unwrap();
    let mut seen = vec![fs.root()];
    let mut count = |attr: &Attr, is_inside: bool| {
        let (bytes, whole) = (attr.used_bytes, tree("/"));
        let own = [
            QuotaSubject::User(attr.uid),
            QuotaSubject::Group(attr.gid),
            whole,
        ];
        let trees = is_inside.then(|| tree("/t"));
        for subject in own.into_iter().chain(trees) {
            let sum = sums.entry(subject).or_default();
            *sum = (sum.0 + bytes, sum.1 + 1);
        }
    };
    let attr = root.attr(fs.root()).unwrap();
    count(&attr, false);
    for dir in [fs.root(), inside] {
        for name in root.names(dir) {
            let file = root.lookup(dir, &name).unwrap();
            let _ = root.run(FsOp::RemoveXattr { file, name: b"x" });
            if seen.contains(&file) {
                continue;
            }
            seen.push(file);
            let attr = root.attr(file).unwrap();
            count(&attr, dir == inside || file == inside);
        }
    }
    for usage in fs.quotas().unwrap().usage() {
        let sum = sums.remove(&usage.subject).unwrap_or_default();
        assert_eq!(
            (usage.bytes, usage.objects),
            sum,
            "seed {seed}: {}",
            usage.subject
        );
    }
    assert!(sums.is_empty(), "seed {seed}: {sums:?}");
}
