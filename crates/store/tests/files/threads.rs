//! Many at once.

use super::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use store::fs::Kind;

/// Walks the tree: every directory knows its parent, every object has as many
/// links as names.
fn check_tree(user: &mut User<'_>) -> usize {
    let mut todo = vec![user.top()];
    let (mut names, mut subdirs): (HashMap<FileId, u32>, HashMap<FileId, u32>) = Default::default();
    let mut dirs = 0;
    while let Some(dir) = todo.pop() {
        dirs += 1;
        let listing = user.list(dir, 0, u32::MAX).unwrap();
        for (entry, name) in listing.iter() {
            let attr = entry.attr.unwrap();
            assert_eq!(user.lookup(dir, name), Ok(attr.file));
            *names.entry(attr.file).or_default() += 1;
            if attr.kind == Kind::Directory {
                assert_eq!(
                    user.run(Op::Parent { dir: attr.file }),
                    Ok(Output::File(dir))
                );
                *subdirs.entry(dir).or_default() += 1;
                todo.push(attr.file);
            }
        }
        let expected = 2 + subdirs.get(&dir).copied().unwrap_or(0);
        assert_eq!(user.attr(dir).unwrap().links, expected);
    }
    for (file, count) in names {
        let attr = user.attr(file).unwrap();
        match attr.kind {
            Kind::Directory => assert_eq!(count, 1, "a directory has one name"),
            _ => assert_eq!(attr.links, count),
        }
    }
    dirs
}

pub(super) fn remove_all(user: &mut User<'_>, dir: FileId) {
    for name in user.names(dir) {
        let file = user.lookup(dir, &name).unwrap();
        if user.attr(file).unwrap().kind == Kind::Directory {
            remove_all(user, file);
        }
        user.remove(dir, &name).unwrap();
    }
}

#[test]
fn names_move_about_under_everybodys_hands() {
    const THREADS: u64 = 4;
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let free = user.free();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                let (mut user, mut random) = (User::root(fs), Random(seed));
                let mut known = vec![user.top()];
                let names = [b"a", b"b", b"c", b"d"];
                for _ in 0..8000 {
                    let (dir, to) = (*random.pick(&known), *random.pick(&known));
                    let (name, other) = (*random.pick(&names), *random.pick(&names));
                    match random.below(8) {
                        0 | 1 => {
                            if let Ok((attr, ..)) =
                                user.create(dir, name, New::Directory, mode(0o755))
                            {
                                known.push(attr.file);
                            }
                        }
                        2 => {
                            let made = user.create(dir, name, New::Unchecked, mode(0o644));
                            if let Ok((attr, ..)) = made {
                                known.push(attr.file);
                                let _ = user.write(attr.file, random.below(40_000), b"some bytes");
                            }
                        }
                        3 => {
                            let _ = user.remove(dir, name);
                        }
                        4 => {
                            let file = *random.pick(&known);
                            let _ = user.run(Op::Link { file, dir, name });
                        }
                        5 => {
                            if let Ok(listing) = user.list(dir, 0, 10) {
                                known.extend(listing.iter().map(|(entry, _)| entry.file));
                            }
                        }
                        _ => {
                            let _ = user.rename((dir, name), (to, other));
                        }
                    }
                    if known.len() > 40 {
                        let keep = random.below(30) as usize;
                        known.swap_remove(keep + 1);
                        known.truncate(30);
                    }
                }
            });
        }
    });
    check_tree(&mut user);
    let top = user.top();
    remove_all(&mut user, top);
    assert_eq!(check_tree(&mut user), 1);
    assert_eq!(user.free(), free);
}

/// A read of up to 1 MiB sees a write of up to 1 MiB whole or not at all, by
/// every way and also where the file's content is cut into chunks.
#[test]
fn writes_are_never_seen_in_part() {
    const LEN: usize = 1 << 20;
    const ROUNDS: u8 = 60;
    for offset in [0, 300_000, (1 << 20) - 500_000, (4 << 20) - 7] {
        let fs = memory(64 << 20);
        let mut user = User::root(&fs);
        let top = user.top();
        let file = user.file(top, b"f");
        user.write_buf(file, offset, &vec![1; LEN]).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for by in 0..2 {
                let (fs, is_over) = (&fs, &is_over);
                scope.spawn(move || {
                    let mut user = User::root(fs);
                    let mut last = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let (bytes, _) = match by {
                            0 => user.read(file, offset, LEN as u32).unwrap(),
                            _ => user.read_buf(file, offset, LEN as u32).unwrap(),
                        };
                        assert_eq!(bytes.len(), LEN);
                        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "torn");
                        last = bytes;
                    }
                    assert_ne!(last[0], 0);
                });
            }
            let writers: Vec<_> = (0..2)
                .map(|by| {
                    let fs = &fs;
                    scope.spawn(move || {
                        let mut user = User::root(fs);
                        for round in 1..ROUNDS {
                            let bytes = vec![round + by * 100; LEN];
                            let written = match by {
                                0 => user.receive(file, offset, &bytes),
                                _ => user.write(file, offset, &bytes),
                            };
                            match written {
                                Ok(written) => assert_eq!(written.len as usize, LEN),
                                Err(error) => assert_eq!(error, Error::Delay),
                            }
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// What is lent stays, whatever becomes of the file and its memory.
#[test]
fn loans_outlive_the_file() {
    let fs = memory(16 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let file = user.file(top, b"f");
    user.write_buf(file, 0, &vec![5; 1 << 20]).unwrap();
    let (loan, _) = fs.lend(&user.caller(), file, 0, 1 << 20).unwrap().unwrap();
    user.write_buf(file, 0, &vec![6; 1 << 20]).unwrap();
    user.remove(top, b"f").unwrap();
    for i in 0..15 {
        let file = user.file(top, format!("g{i}").as_bytes());
        user.write_buf(file, 0, &vec![7; 1 << 19]).unwrap();
    }
    assert!(bytes_of(&loan).iter().all(|&byte| byte == 5));
    remove_all(&mut user, top);
    assert_eq!(user.free(), free);
    drop(user);
    drop(fs);
    assert!(bytes_of(&loan).iter().all(|&byte| byte == 5));
    drop(loan);
}

/// Each byte that is ever written says where it stands, so that content of
/// another place, or of another file's past, would be seen.
#[test]
fn contents_change_under_everybodys_hands() {
    const THREADS: u64 = 4;
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let stamp = |offset: u64, len: u64| -> Vec<u8> {
        let byte = |at: u64| (at / 4096 % 251 + 1) as u8;
        (offset..offset + len).map(byte).collect()
    };
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                let (mut user, mut random) = (User::root(fs), Random(seed + 100));
                for _ in 0..1500 {
                    let names = [b"f", b"g", b"h"];
                    let name = *random.pick(&names);
                    let (Ok((one, ..)), Ok((other, ..))) = (
                        user.create(top, name, New::Unchecked, mode(0o600)),
                        user.create(top, *random.pick(&names), New::Unchecked, mode(0o600)),
                    ) else {
                        continue;
                    };
                    let (file, other) = (one.file, other.file);
                    let offset = random.below(700) << 12;
                    let len = (random.below(64) + 1) << 12;
                    let result = match random.below(10) {
                        0 | 1 => user.receive(file, offset, &stamp(offset, len)).map(|_| ()),
                        2 => user.write(file, offset, &stamp(offset, len)).map(|_| ()),
                        3 | 4 => user.read(file, offset, len as u32).map(|(bytes, _)| {
                            let expected = stamp(offset, bytes.len() as u64);
                            let pairs = bytes.iter().zip(expected);
                            assert!(pairs.into_iter().all(|(&b, e)| b == 0 || b == e));
                        }),
                        5 => user.set(file, size(offset)).map(|_| ()),
                        6 => user.run(Op::Deallocate { file, offset, len }).map(|_| ()),
                        7 => {
                            let op = Op::Clone {
                                from: file,
                                from_offset: 0,
                                to: other,
                                to_offset: 0,
                                len: 0,
                            };
                            user.run(op).map(|_| ())
                        }
                        8 => user.remove(top, name).map(|_| ()),
                        _ => user.open(file).map(|()| {
                            let _ = user.remove(top, name);
                            let _ = user.write(file, offset, &stamp(offset, len));
                            assert_eq!(user.run(Op::Close { file }), Ok(Output::Done));
                        }),
                    };
                    let expected = [Error::Delay, Error::Stale, Error::Inval, Error::NoEnt];
                    assert!(
                        result.is_ok() || expected.contains(&result.unwrap_err()),
                        "{result:?}"
                    );
                }
            });
        }
    });
    remove_all(&mut user, top);
    assert_eq!(user.free(), free);
}
