//! Many at once.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use tree::remove_all;

/// A directory's links are its name, itself and what it holds.
fn check_tree(user: &mut User<'_>) -> usize {
    let dirs = tree::check_tree(user);
    for (dir, subdirs) in &dirs {
        assert_eq!(user.attr(*dir).unwrap().links, 2 + subdirs);
    }
    dirs.len()
}

#[test]
fn threads_that_change_names_leave_a_sound_tree_and_all_room() {
    const THREADS: u64 = 4;
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let free = user.free();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                let (mut user, mut random) = (User::root(fs), Random::new(seed));
                let mut known = vec![user.top()];
                let names = [b"a", b"b", b"c", b"d"];
                for _ in 0..8000 {
                    let (dir, to) = (random.pick(&known), random.pick(&known));
                    let (name, other) = (random.pick(&names), random.pick(&names));
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
                            let file = random.pick(&known);
                            let _ = user.run(FsOp::Link { file, dir, name });
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

/// The same where all threads use the same few names.
#[test]
fn threads_that_change_two_names_leave_a_sound_tree() {
    let fs = memory(16 << 20);
    let mut user = User::root(&fs);
    let (top, free) = (user.top(), user.free());
    let dirs = [user.dir(top, b"x"), user.dir(top, b"y")];
    thread::scope(|scope| {
        for seed in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let (mut user, mut random) = (User::root(fs), Random::new(seed));
                for _ in 0..30_000 {
                    let (dir, to) = (random.pick(&dirs), random.pick(&dirs));
                    let (name, other) = (random.pick(&[b"a", b"b"]), random.pick(&[b"a", b"b"]));
                    match random.below(4) {
                        0 => drop(user.create(dir, name, New::Guarded, mode(0o600))),
                        1 => drop(user.create(dir, name, New::Directory, mode(0o700))),
                        2 => drop(user.remove(dir, name)),
                        _ => drop(user.rename((dir, name), (to, other))),
                    }
                }
            });
        }
    });
    check_tree(&mut user);
    remove_all(&mut user, top);
    assert_eq!(user.free(), free);
}

/// Two threads move the same file about: each time one of them does.
#[test]
fn concurrent_renames_of_one_file_move_it_once() {
    const ROUNDS: usize = 100_000;
    let fs = memory(16 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let dirs = [user.dir(top, b"x"), user.dir(top, b"y")];
    let file = user.file(dirs[0], b"f");
    thread::scope(|scope| {
        for _ in 0..2 {
            let fs = &fs;
            scope.spawn(move || {
                let mut user = User::root(fs);
                for round in 0..ROUNDS {
                    let (from, to) = (dirs[round % 2], dirs[(round + 1) % 2]);
                    match user.rename((from, b"f"), (to, b"f")) {
                        Ok(replaced) => assert_eq!(replaced, None),
                        Err(error) => assert_eq!(error, Error::NoEnt),
                    }
                }
            });
        }
    });
    let found = dirs.map(|dir| user.names(dir).len());
    assert!(found == [0, 1] || found == [1, 0]);
    assert_eq!(user.attr(file).unwrap().links, 1);
    check_tree(&mut user);
}

/// Two directories that go into each other at the same time: one is first.
#[test]
fn concurrent_renames_never_put_a_directory_into_itself() {
    const ROUNDS: usize = 150_000;
    let fs = memory(16 << 20);
    let mut user = User::root(&fs);
    let (top, free) = (user.top(), user.free());
    let (x, y) = (user.dir(top, b"x"), user.dir(top, b"y"));
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        let (fs, inside) = (&fs, &inside);
        let moves = move |name: &'static [u8], into: FileId| {
            let mut user = User::root(fs);
            for _ in 0..ROUNDS {
                match user.rename((top, name), (into, name)) {
                    Ok(_) => {
                        let others = inside.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(others, 0, "each lies in the other");
                        (0..50).for_each(|_| std::hint::spin_loop());
                        inside.fetch_sub(1, Ordering::SeqCst);
                        user.rename((into, name), (top, name)).unwrap();
                    }
                    Err(error) => assert!(matches!(error, Error::Inval | Error::NoEnt)),
                }
            }
        };
        scope.spawn(move || moves(b"x", y));
        scope.spawn(move || moves(b"y", x));
    });
    assert_eq!(check_tree(&mut user), 3);
    remove_all(&mut user, top);
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
                    loop {
                        let is_last = is_over.load(Ordering::Relaxed);
                        let (bytes, _) = match by {
                            0 => user.read(file, offset, LEN as u32).unwrap(),
                            _ => user.read_buf(file, offset, LEN as u32).unwrap(),
                        };
                        assert_eq!(bytes.len(), LEN);
                        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "torn");
                        assert_ne!(bytes[0], 0);
                        if is_last {
                            return;
                        }
                    }
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
fn content_that_threads_change_is_never_read_at_another_place() {
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
                let (mut user, mut random) = (User::root(fs), Random::new(seed + 100));
                for _ in 0..1500 {
                    let names: [&[u8]; 3] = [b"f", b"g", b"h"];
                    let name = random.pick(&names);
                    let (Ok((one, ..)), Ok((other, ..))) = (
                        user.create(top, name, New::Unchecked, mode(0o600)),
                        user.create(top, random.pick(&names), New::Unchecked, mode(0o600)),
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
                        6 => user.run(FsOp::Deallocate { file, offset, len }).map(|_| ()),
                        7 => {
                            let op = FsOp::Clone {
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
                            assert_eq!(user.run(FsOp::Close { file }), Ok(Output::Done));
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
