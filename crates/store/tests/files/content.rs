//! What files hold: holes, sizes, copies, operations in several steps.

use super::*;
use store::fs::{Seek, SetXattr};

const MIB: u64 = 1 << 20;

fn found(user: &mut User<'_>, file: FileId, offset: u64, what: Seek) -> Result<(u64, bool), Error> {
    match user.run(FsOp::Seek { file, offset, what })? {
        Output::Found { offset, is_end } => Ok((offset, is_end)),
        other => panic!("{other:?}"),
    }
}

fn allocate(file: FileId, offset: u64, len: u64) -> FsOp<'static> {
    FsOp::Allocate { file, offset, len }
}

fn deallocate(file: FileId, offset: u64, len: u64) -> FsOp<'static> {
    FsOp::Deallocate { file, offset, len }
}

fn clone(from: FileId, from_offset: u64, to: FileId, to_offset: u64, len: u64) -> FsOp<'static> {
    FsOp::Clone {
        from,
        from_offset,
        to,
        to_offset,
        len,
    }
}

fn copy(from: FileId, from_offset: u64, to: FileId, to_offset: u64, len: u64) -> FsOp<'static> {
    FsOp::Copy {
        from,
        from_offset,
        to,
        to_offset,
        len,
    }
}

#[test]
fn small_files_take_little_and_grow_into_frames() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let free = user.free();
    user.write(file, 0, b"hello").unwrap();
    assert_eq!(user.attr(file).unwrap().used_bytes, 64);
    assert_eq!(free - user.free(), 64);
    user.write(file, 8000, b"!").unwrap();
    assert_eq!(user.attr(file).unwrap().used_bytes, 8192);
    user.write(file, 8191, b"??").unwrap();
    let attr = user.attr(file).unwrap();
    assert_eq!((attr.size, attr.used_bytes), (8193, 16384));
    let (bytes, is_end) = user.read(file, 0, 10_000).unwrap();
    assert!(is_end && bytes.len() == 8193);
    assert_eq!(
        (&bytes[..5], bytes[8000], &bytes[8191..]),
        (&b"hello"[..], b'!', &b"??"[..])
    );
    assert!(bytes[5..8000].iter().all(|&byte| byte == 0));
    user.set(file, size(0)).unwrap();
    assert_eq!(user.attr(file).unwrap().used_bytes, 0);
    assert_eq!(user.free(), free);
}

#[test]
fn bytes_behind_a_truncation_read_as_zeros_after_growth() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    for len in [100_u64, 9000, 70_000, 3 * MIB] {
        let file = user.file(top, format!("f{len}").as_bytes());
        user.write_buf(file, 0, &vec![9; len as usize]).unwrap();
        for cut in [len / 2, 17, 1] {
            user.set(file, size(cut)).unwrap();
            user.set(file, size(len)).unwrap();
            let (bytes, _) = user.read_buf(file, 0, len as u32).unwrap();
            let data = bytes.iter().take_while(|&&byte| byte == 9).count();
            assert_eq!(data as u64, cut, "of {len}");
            assert!(bytes[data..].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn holes_are_found_and_take_nothing() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let far = 200 * MIB;
    user.write(file, 0, &[1; 20_000]).unwrap();
    user.write(file, far, &[2; 10_000]).unwrap();
    let used = user.attr(file).unwrap().used_bytes;
    assert_eq!(used, 3 << 14);
    assert_eq!(found(&mut user, file, 5, Seek::Data), Ok((5, false)));
    assert_eq!(found(&mut user, file, 5, Seek::Hole), Ok((32_768, false)));
    assert_eq!(found(&mut user, file, 40_000, Seek::Data), Ok((far, false)));
    assert_eq!(
        found(&mut user, file, 40_000, Seek::Hole),
        Ok((40_000, false))
    );
    assert_eq!(
        found(&mut user, file, far, Seek::Hole),
        Ok((far + 10_000, true))
    );
    assert_eq!(
        found(&mut user, file, far + 10_000, Seek::Hole),
        Err(Error::Nxio)
    );
    assert_eq!(
        user.read(file, 100 * MIB, 1 << 20).unwrap(),
        (vec![0; 1 << 20], false)
    );
    // Across the border of data and of chunks.
    let (bytes, is_end) = user.read(file, far - 5, 20_000).unwrap();
    assert!(is_end && bytes.len() == 10_005 && bytes[4] == 0 && bytes[5] == 2);
    user.run(deallocate(file, 0, 20_000)).unwrap();
    assert_eq!(user.attr(file).unwrap().used_bytes, 2 << 14);
    assert_eq!(
        user.read(file, 16_000, 4000).unwrap(),
        (vec![0; 4000], false)
    );
    user.run(deallocate(file, far - MIB, 2 * MIB)).unwrap();
    let attr = user.attr(file).unwrap();
    assert_eq!((attr.size, attr.used_bytes), (far + 10_000, 1 << 14));
    let free = user.free();
    user.run(allocate(file, MIB, 100)).unwrap();
    assert_eq!(free - user.free(), (1 << 14) + 512);
    assert_eq!(found(&mut user, file, 40_000, Seek::Data), Ok((MIB, false)));
    user.run(allocate(file, far, 30_000)).unwrap();
    assert_eq!(user.attr(file).unwrap().size, far + 30_000);
}

/// Wherever the memory of a file ends.
#[test]
fn hole_behind_all_data_is_found() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    for shift in 14..=22 {
        let file = user.file(top, shift.to_string().as_bytes());
        let len = 1 << shift;
        user.write(file, 0, &vec![1; len as usize]).unwrap();
        user.set(file, size(3 * len)).unwrap();
        assert_eq!(found(&mut user, file, 0, Seek::Hole), Ok((len, false)));
    }
}

#[test]
fn long_operations_are_done_in_turns_of_a_bounded_size() {
    let fs = memory(256 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let file = user.file(top, b"f");
    user.run(allocate(file, 0, 60 * MIB)).unwrap();
    assert_eq!(std::mem::take(&mut user.turns), 14);
    assert_eq!(user.attr(file).unwrap().used_bytes, 60 * MIB);
    let mark = |user: &mut User<'_>| {
        for mib in 0..60 {
            user.write(file, mib * MIB, &[mib as u8]).unwrap();
        }
    };
    mark(&mut user);
    let other = user.file(top, b"other");
    user.write(other, 0, b"old").unwrap();
    user.run(clone(file, 0, other, 0, 0)).unwrap();
    assert_eq!(std::mem::take(&mut user.turns), 14);
    let (bytes, _) = user.read(other, 37 * MIB, 1).unwrap();
    assert_eq!(bytes, [37]);
    user.run(deallocate(other, 0, 60 * MIB)).unwrap();
    assert!(std::mem::take(&mut user.turns) >= 3);
    assert_eq!(user.attr(other).unwrap().used_bytes, 0);
    user.remove(top, b"other").unwrap();
    user.remove(top, b"f").unwrap();
    assert!(std::mem::take(&mut user.turns) >= 3);
    assert_eq!(user.free(), free);
    // Given up half-way nothing is lost either.
    let file = user.file(top, b"f");
    user.run(allocate(file, 0, 60 * MIB)).unwrap();
    let what = Removable::Any;
    let Progress::Pending(task) = user.start(FsOp::Remove {
        dir: top,
        name: b"f",
        what,
    }) else {
        panic!("too much for one turn");
    };
    drop(task);
    assert_eq!(user.free(), free);
}

/// To all other operations a clone is one step.
#[test]
fn a_clone_keeps_others_away_until_it_is_done() {
    let fs = memory(128 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let (from, to) = (user.file(top, b"from"), user.file(top, b"to"));
    user.run(allocate(from, 0, 20 * MIB)).unwrap();
    user.write(to, 0, b"before").unwrap();
    let start = |user: &mut User<'_>| match user.start(clone(from, 0, to, 0, 20 * MIB)) {
        Progress::Pending(task) => task,
        other => panic!("{other:?}"),
    };
    let task = start(&mut user);
    let mut other = User::root(&fs);
    assert_eq!(other.write(from, 0, b"x"), Err(Error::Delay));
    assert_eq!(other.set(from, size(0)), Err(Error::Delay));
    assert_eq!(other.read(from, 0, 1).unwrap().0, [0]);
    assert_eq!(other.read(to, 0, 1), Err(Error::Delay));
    assert_eq!(other.write(to, 0, b"x"), Err(Error::Delay));
    assert_eq!(other.run(copy(to, 0, from, 0, 1)), Err(Error::Delay));
    // Both may lose their names meanwhile, but nothing else.
    other.remove(top, b"from").unwrap();
    let mut progress = user.turn(task);
    while let Progress::Pending(task) = progress {
        progress = user.turn(task);
    }
    assert!(matches!(progress, Progress::Done(Ok(Output::Done))));
    assert_eq!(other.attr(from), Err(Error::Stale));
    assert_eq!(other.attr(to).unwrap().size, 20 * MIB);
    other.write(to, 0, b"x").unwrap();
    // Given up, it lets go.
    let from = other.file(top, b"from");
    other.run(allocate(from, 0, 20 * MIB)).unwrap();
    let Progress::Pending(task) = other.start(clone(from, 0, to, 0, 0)) else {
        panic!("too much for one turn");
    };
    drop(task);
    other.write(from, 0, b"x").unwrap();
    other.write(to, 0, b"x").unwrap();
    other.files = turns();
    other.remove(top, b"from").unwrap();
    other.remove(top, b"to").unwrap();
    assert_eq!(other.free(), free);
}

#[test]
fn copies_keep_to_the_source() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let (from, to) = (user.file(top, b"from"), user.file(top, b"to"));
    let bytes = bytes(&mut Random::new(5), 3 << 20);
    user.receive(from, 0, &bytes[..1 << 20]).unwrap();
    user.write_buf(from, 1 << 20, &bytes[1 << 20..]).unwrap();
    let far = 10 * MIB + 77;
    assert_eq!(
        user.run(copy(from, 100, to, far, 0)),
        Ok(Output::Copied((3 << 20) - 100))
    );
    let (copied, is_end) = user.read_buf(to, far, 3 << 20).unwrap();
    assert!(is_end && copied == bytes[100..]);
    // Holes stay holes.
    let used = user.attr(to).unwrap().used_bytes;
    assert!(used <= (3 << 20) + (2 << 14), "{used}");
    assert_eq!(
        user.run(copy(from, 3 << 20, to, 0, 5)),
        Ok(Output::Copied(0))
    );
    assert_eq!(
        user.run(copy(from, (3 << 20) - 5, to, 0, 50)),
        Ok(Output::Copied(5))
    );
    assert_eq!(user.run(copy(from, 4 << 20, to, 0, 5)), Err(Error::Inval));
    assert_eq!(user.run(clone(from, 5, to, 0, 3 << 20)), Err(Error::Inval));
    // Within one file: apart, but not overlapping.
    assert_eq!(user.run(copy(from, 0, from, 1, 5)), Err(Error::Inval));
    assert_eq!(user.run(clone(from, 0, from, 3 << 20, 0)), Ok(Output::Done));
    let (twice, _) = user.read_buf(from, 3 << 20, 3 << 20).unwrap();
    assert!(twice == bytes);
    // A task can be told to stop; what it has done counts.
    let Progress::Pending(mut task) = user.start(copy(from, 0, to, 0, 6 << 20)) else {
        panic!("too much for one turn");
    };
    task.cancel();
    let done = task.copied_bytes();
    assert_eq!(done, 4 << 20);
    let progress = user.turn(task);
    let Progress::Done(Ok(Output::Copied(copied))) = progress else {
        panic!("{progress:?}");
    };
    assert!(copied >= done);
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let file = user.file(top, b"f");
    let before_all = user.free();
    let set = |name, value, how| FsOp::SetXattr {
        file,
        name,
        value,
        how,
    };
    let get = |name| FsOp::GetXattr { file, name };
    assert_eq!(user.run(get(b"a")), Err(Error::NoXattr));
    assert_eq!(
        user.run(set(b"a", b"1", SetXattr::Replace)),
        Err(Error::NoXattr)
    );
    let change = user.attr(file).unwrap().change;
    let Ok(Output::Change(info)) = user.run(set(b"a", b"1", SetXattr::Create)) else {
        panic!("it is set");
    };
    assert_eq!((info.before, info.after), (change, change + 1));
    assert_eq!(
        user.run(set(b"a", b"2", SetXattr::Create)),
        Err(Error::Exist)
    );
    assert!(user.run(set(b"a", b"22", SetXattr::Replace)).is_ok());
    assert_eq!(user.run(get(b"a")), Ok(Output::Bytes((*b"22").into())));
    let large = vec![1; store::fs::XATTR_BYTES_MAX + 1];
    assert_eq!(
        user.run(set(b"b", &large, SetXattr::Either)),
        Err(Error::Xattr2Big)
    );
    assert!(user.run(set(b"b", &large[1..], SetXattr::Either)).is_ok());
    for name in [&b"c"[..], b"d", b"e"] {
        let _ = user.run(set(name, &large[1..], SetXattr::Either));
    }
    assert_eq!(
        user.run(set(b"f", &large[1..], SetXattr::Either)),
        Err(Error::Xattr2Big)
    );
    let list = |cookie, name_bytes_max| FsOp::ListXattrs {
        file,
        cookie,
        name_bytes_max,
    };
    let Ok(Output::Listing(first)) = user.run(list(0, 2)) else {
        panic!("it has some");
    };
    let names = |listing: &Listing| -> Vec<Vec<u8>> {
        listing.iter().map(|(_, name)| name.to_vec()).collect()
    };
    assert_eq!(
        (names(&first), first.is_end),
        (vec![b"a".to_vec(), b"b".to_vec()], false)
    );
    let cookie = first.iter().last().unwrap().0.cookie;
    let remove = |name| FsOp::RemoveXattr { file, name };
    assert!(user.run(remove(b"b")).is_ok());
    assert_eq!(user.run(remove(b"b")), Err(Error::NoXattr));
    let Ok(Output::Listing(rest)) = user.run(list(cookie, 100)) else {
        panic!("it has more");
    };
    assert_eq!(
        (names(&rest), rest.is_end),
        (vec![b"c".to_vec(), b"d".to_vec()], true)
    );
    assert_eq!(user.run(list(0, 0)), Err(Error::TooSmall));
    for name in [&b"a"[..], b"c", b"d"] {
        assert!(user.run(remove(name)).is_ok());
    }
    assert_eq!(user.free(), before_all);
    assert!(user.run(set(b"a", b"1", SetXattr::Either)).is_ok());
    user.remove(top, b"f").unwrap();
    assert_eq!(user.free(), free);
    let (link, ..) = user
        .create(top, b"l", New::Symlink(b"x"), mode(0o777))
        .unwrap();
    let op = FsOp::SetXattr {
        file: link.file,
        name: b"a",
        value: b"1",
        how: SetXattr::Either,
    };
    assert_eq!(user.run(op), Err(Error::Perm));
}
