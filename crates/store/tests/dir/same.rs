//! Random operations of several users, on a directory and in memory: both do
//! the same.

use super::*;
use std::collections::HashMap;
use store::fs::{Memory, Removable, SetXattr, Time};

const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"name", b"other name"];
const USERS: [(u32, &[u32]); 3] = [(0, &[0]), (1000, &[100]), (1001, &[101, 100])];
const MODES: [u32; 8] = [0o777, 0o755, 0o644, 0o600, 0o000, 0o1777, 0o6775, 0o4711];

/// An object, here and there.
type Both = (FileId, FileId);

struct Pair<'a> {
    mem: Vec<User<'a>>,
    dir: Vec<User<'a>>,
    random: Random,
    known: Vec<Both>,
    there: HashMap<FileId, FileId>,
    opens: Vec<Both>,
}

impl<'a> Pair<'a> {
    fn new(mem: &'a dyn FileSystem, dir: &'a dyn FileSystem, seed: u64) -> Pair<'a> {
        let users = |fs: &'a dyn FileSystem| -> Vec<User<'a>> {
            USERS
                .iter()
                .map(|&(uid, gids)| User::new(fs, uid, gids))
                .collect()
        };
        let root = (mem.root(), dir.root());
        Pair {
            mem: users(mem),
            dir: users(dir),
            random: Random::new(seed),
            known: vec![root],
            there: HashMap::from([root]),
            opens: Vec::new(),
        }
    }

    fn some(&mut self) -> Both {
        self.random.pick(&self.known)
    }

    fn name(&mut self) -> &'static [u8] {
        NAMES[self.random.below(5) as usize]
    }

    /// The superuser most of the time.
    fn user(&mut self) -> usize {
        self.random.below(6).saturating_sub(3) as usize
    }

    fn set(&mut self) -> SetAttr {
        let mut set = SetAttr::default();
        if self.random.below(2) == 0 {
            set.mode = Some(self.random.pick(&MODES));
        }
        if self.random.below(4) == 0 {
            set.uid = Some(USERS[self.random.below(3) as usize].0);
        }
        if self.random.below(4) == 0 {
            set.gid = Some(self.random.pick(&[0, 100, 101]));
        }
        set
    }

    /// The numbers of one object: never another one's, on either side.
    fn learn(&mut self, mem: FileId, dir: FileId) {
        let known = *self.there.entry(mem).or_insert(dir);
        assert_eq!(known, dir, "one object has two numbers");
        if !self.known.contains(&(mem, dir)) {
            let twice = self.known.iter().any(|&(_, other)| other == dir);
            assert!(!twice, "two objects have one number");
            self.known.push((mem, dir));
        }
    }

    fn compare(&mut self, at: Both) {
        let (mem, dir) = (self.mem[0].attr(at.0), self.dir[0].attr(at.1));
        let (mem, dir) = match (mem, dir) {
            (Ok(mem), Ok(dir)) => (mem, dir),
            (mem, dir) => {
                assert_eq!(mem.map(|_| ()), dir.map(|_| ()), "{at:?}");
                return;
            }
        };
        // Btrfs does not count the directories in a directory.
        let counts = mem.kind != ObjectKind::Directory || dir.links > 1;
        let shown = |attr: &Attr| {
            let size = if attr.kind == ObjectKind::Directory {
                0
            } else {
                attr.size
            };
            // The mode of a symbolic link is not compared.
            let mode = if attr.kind == ObjectKind::Symlink {
                0
            } else {
                attr.mode
            };
            (
                attr.kind,
                mode,
                if counts { attr.links } else { 0 },
                attr.uid,
                attr.gid,
                size,
                attr.device,
            )
        };
        assert_eq!(shown(&mem), shown(&dir), "{at:?}");
    }

    fn create(&mut self, user: usize) {
        let (dir, name, mut set) = (self.some(), self.name(), self.set());
        let device = store::fs::Device { major: 8, minor: 1 };
        let new = match self.random.below(9) {
            0 => New::Unchecked,
            1 | 2 => New::Guarded,
            3 => New::Exclusive([self.random.below(2) as u8; 8]),
            4 => New::Fifo,
            5 => New::Symlink(b"somewhere else"),
            6 => New::Character(device),
            _ => New::Directory,
        };
        if new == New::Unchecked && self.random.below(2) == 0 {
            set.size = Some(0);
        }
        let mem = self.mem[user].create(dir.0, name, new, set.clone());
        let made = self.dir[user].create(dir.1, name, new, set.clone());
        match (mem, made) {
            (Ok((mem, mem_new, _)), Ok((attr, dir_new, change))) => {
                assert_eq!(mem_new, dir_new);
                assert_eq!(change.after > change.before, dir_new);
                self.learn(mem.file, attr.file);
                self.compare((mem.file, attr.file));
            }
            (mem, made) => assert_eq!(mem.map(|_| ()), made.map(|_| ()), "{new:?} {set:?}"),
        }
    }

    fn names(&mut self, user: usize) {
        let (at, name, to, other) = (self.some(), self.name(), self.some(), self.name());
        let run = |user: &mut User<'_>, op| user.run(op).map(|_| ());
        match self.random.below(6) {
            0 => {
                let found = (
                    self.mem[user].lookup(at.0, name),
                    self.dir[user].lookup(at.1, name),
                );
                match found {
                    (Ok(mem), Ok(dir)) => self.learn(mem, dir),
                    (mem, dir) => assert_eq!(mem.map(|_| ()), dir.map(|_| ())),
                }
            }
            1 => {
                let what = self.random.pick(&[
                    Removable::Any,
                    Removable::Directory,
                    Removable::NotDirectory,
                ]);
                let op = |dir| FsOp::Remove { dir, name, what };
                let gone = run(&mut self.mem[user], op(at.0));
                assert_eq!(gone, run(&mut self.dir[user], op(at.1)), "{what:?}");
            }
            2 => {
                let op = |file, dir| FsOp::Link { file, dir, name };
                let linked = run(&mut self.mem[user], op(to.0, at.0));
                assert_eq!(linked, run(&mut self.dir[user], op(to.1, at.1)));
            }
            3 => {
                let parents = (
                    self.mem[user].run(FsOp::Parent { dir: at.0 }),
                    self.dir[user].run(FsOp::Parent { dir: at.1 }),
                );
                match parents {
                    (Ok(Output::File(mem)), Ok(Output::File(dir))) => self.learn(mem, dir),
                    (mem, dir) => assert_eq!(mem.map(|_| ()), dir.map(|_| ())),
                }
            }
            _ => {
                let mem = self.mem[user].rename((at.0, name), (to.0, other));
                let dir = self.dir[user].rename((at.1, name), (to.1, other));
                let mem = mem.map(|replaced| replaced.map(|file| self.there.get(&file).copied()));
                match mem {
                    // A replaced object that was never looked at has no number yet.
                    Ok(Some(None)) => assert!(dir.unwrap().is_some()),
                    // Which of several reasons comes first is not compared.
                    Err(_) if user > 0 => assert!(dir.is_err()),
                    mem => assert_eq!(mem.map(Option::flatten), dir, "{at:?} {to:?}"),
                }
            }
        }
    }

    fn data(&mut self, user: usize) {
        let (at, to) = (self.some(), self.some());
        let (offset, len) = (self.random.below(70_000), self.random.below(20_000) as u32);
        match self.random.below(6) {
            0 | 1 => {
                let bytes = bytes(&mut self.random, len as usize + 1);
                let mem = self.mem[user]
                    .write(at.0, offset, &bytes)
                    .map(|done| done.len);
                let dir = self.dir[user]
                    .receive(at.1, offset, &bytes)
                    .map(|done| done.len);
                assert_eq!(mem, dir);
            }
            2 | 3 => {
                let mem = self.mem[user].read_buf(at.0, offset, len);
                assert!(mem == self.dir[user].read(at.1, offset, len), "{mem:?}");
            }
            4 => {
                let op = |file| match len % 2 {
                    0 => FsOp::Allocate {
                        file,
                        offset,
                        len: 1 + u64::from(len),
                    },
                    _ => FsOp::Deallocate {
                        file,
                        offset,
                        len: len.into(),
                    },
                };
                let mem = self.mem[user].run(op(at.0));
                assert_eq!(mem, self.dir[user].run(op(at.1)));
            }
            _ => {
                let op = |from, to| FsOp::Copy {
                    from,
                    from_offset: offset / 2,
                    to,
                    to_offset: offset,
                    len: len.into(),
                };
                // With two files either may be refused first.
                let mem = self.mem[user].run(op(at.0, to.0)).ok();
                assert_eq!(mem, self.dir[user].run(op(at.1, to.1)).ok());
            }
        }
    }

    fn attributes(&mut self, user: usize) {
        let at = self.some();
        let (name, value) = (self.name(), bytes(&mut self.random, 9));
        match self.random.below(5) {
            0..3 => {
                let mut set = self.set();
                if self.random.below(3) == 0 {
                    set.size = Some(self.random.below(50_000));
                }
                if self.random.below(5) == 0 {
                    let time = Time {
                        seconds: 77,
                        nanos: 5,
                    };
                    set.modified = Some(store::fs::SetTime::Client(time));
                }
                let mem = self.mem[user].set(at.0, set.clone());
                let dir = self.dir[user].set(at.1, set.clone());
                if let (Ok(_), Ok(dir), Some(_)) = (&mem, &dir, set.modified) {
                    assert_eq!(
                        dir.modified,
                        Time {
                            seconds: 77,
                            nanos: 5
                        }
                    );
                }
                assert_eq!(mem.map(|_| ()), dir.map(|_| ()), "{set:?}");
            }
            3 => {
                let how =
                    self.random
                        .pick(&[SetXattr::Either, SetXattr::Create, SetXattr::Replace]);
                let value = &value[..];
                let op = |file| FsOp::SetXattr {
                    file,
                    name,
                    value,
                    how,
                };
                let mem = self.mem[user].run(op(at.0)).map(|_| ());
                assert_eq!(mem, self.dir[user].run(op(at.1)).map(|_| ()));
            }
            _ => {
                let op = |file| FsOp::GetXattr { file, name };
                let mem = self.mem[user].run(op(at.0));
                assert_eq!(mem, self.dir[user].run(op(at.1)));
                let op = |file| FsOp::RemoveXattr { file, name };
                let mem = self.mem[user].run(op(at.0)).map(|_| ());
                assert_eq!(mem, self.dir[user].run(op(at.1)).map(|_| ()));
            }
        }
    }

    fn opens(&mut self, user: usize) {
        if !self.opens.is_empty() && self.random.below(2) == 0 {
            let at = self.random.below(self.opens.len() as u64) as usize;
            let (mem, dir) = self.opens.swap_remove(at);
            let close = |user: &mut User<'_>, file| user.run(FsOp::Close { file });
            assert_eq!(close(&mut self.mem[0], mem), close(&mut self.dir[0], dir));
            return;
        }
        let at = self.some();
        let opened = self.mem[user].open(at.0);
        assert_eq!(opened, self.dir[user].open(at.1));
        if opened.is_ok() {
            self.opens.push(at);
        }
    }

    fn listing(&mut self, user: usize) {
        let at = self.some();
        let names = |user: &mut User<'_>, dir| {
            let listing = user.list(dir, 0, 100)?;
            let entries = listing
                .iter()
                .map(|(entry, name)| (name.to_vec(), entry.file));
            let mut entries: Vec<_> = entries.collect();
            entries.sort();
            Ok::<_, Error>(entries)
        };
        match (
            names(&mut self.mem[user], at.0),
            names(&mut self.dir[user], at.1),
        ) {
            (Ok(mem), Ok(dir)) => {
                assert_eq!(mem.len(), dir.len());
                for ((mem_name, mem), (dir_name, dir)) in mem.into_iter().zip(dir) {
                    assert_eq!(mem_name, dir_name);
                    self.learn(mem, dir);
                }
            }
            (mem, dir) => assert_eq!(mem.map(|_| ()), dir.map(|_| ())),
        }
        let texts = (
            self.mem[user].run(FsOp::Readlink { file: at.0 }),
            self.dir[user].run(FsOp::Readlink { file: at.1 }),
        );
        assert_eq!(texts.0, texts.1);
    }

    fn step(&mut self) {
        let user = self.user();
        match self.random.below(12) {
            0..2 => self.create(user),
            2..5 => self.names(user),
            5..8 => self.data(user),
            8..10 => self.attributes(user),
            10 => self.opens(user),
            _ => self.listing(user),
        }
        let some = self.some();
        self.compare(some);
        if self.known.len() > 24 {
            let at = 1 + self.random.below(23) as usize;
            self.known.swap_remove(at);
        }
    }
}

fn run(place: &Place, seed: u64, steps: u32) {
    let mem = Memory::new("mem", 256 << 20, 77, at(0)).unwrap();
    let dir = place.open();
    // In the memory every user may write to the root.
    let mut root = User::root(&dir);
    let all = SetAttr {
        uid: Some(0),
        gid: Some(0),
        ..mode(0o1777)
    };
    root.set(dir.root(), all).unwrap();
    let mut pair = Pair::new(&mem, &dir, seed);
    for _ in 0..steps {
        pair.step();
    }
    for (mem, dir) in std::mem::take(&mut pair.opens) {
        pair.mem[0].run(FsOp::Close { file: mem }).unwrap();
        pair.dir[0].run(FsOp::Close { file: dir }).unwrap();
    }
    let known = pair.known.clone();
    for both in known {
        pair.compare(both);
    }
    assert!(
        pair.dir[0].turns > 0,
        "nothing is done on the reactor's thread"
    );
}

fn run_all(place: fn() -> Place, choice: Choice) {
    CHOICE.set(choice);
    for seed in 0..4 {
        let ran = std::panic::catch_unwind(|| run(&place(), seed, 1500));
        assert!(ran.is_ok(), "seed {seed}");
    }
}

#[needs(root)]
#[test]
fn a_directory_does_what_memory_does() {
    run_all(Place::new, Choice::Epoll);
}

#[each_driver]
fn without_privileges_it_does_the_same(choice: Choice) {
    run_all(Place::recorded, choice);
}
