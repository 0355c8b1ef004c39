//! Names of a simulated POSIX file system: calls that change them fail, and a power cut
//! takes the last of them back.
//!
//! As a file system with a journal does it: what a sync of a directory brings to the disk
//! brings all along that came before. What is removed is on the disk at once, since an
//! object without a name cannot be brought back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use random::Random;
use rustix::fs::{AtFlags, renameat, statat, unlinkat};
use rustix::io::Errno;
use store::fs::NameChange;

/// The same object for the same numbers.
type Object = (u64, u64);

/// A name in a directory.
struct NameInDirectory {
    dir: OwnedFd,
    name: Vec<u8>,
}

/// A change that is not on the disk.
enum Unsynced {
    Made(NameInDirectory, AtFlags),
    Moved(NameInDirectory, NameInDirectory),
}

/// Changes of names.
pub struct Log {
    random: Random,
    /// How often a call fails, once in so many; 0 for never.
    errors: u64,
    /// Names in it stay: all clients use them, whichever has made them.
    root: Object,
    unsynced: Vec<Unsynced>,
}

fn object(fd: BorrowedFd<'_>) -> Object {
    let stat = rustix::fs::fstat(fd).expect("an open object");
    (stat.st_dev, stat.st_ino)
}

impl NameInDirectory {
    fn new((dir, name): (BorrowedFd<'_>, &[u8])) -> NameInDirectory {
        let dir = dir.try_clone_to_owned().expect("descriptors are left");
        let name = name.to_vec();
        NameInDirectory { dir, name }
    }
}

impl Unsynced {
    /// Whether a sync of this directory brings it to the disk.
    fn is_in(&self, dir: Object) -> bool {
        match self {
            Unsynced::Made(place, _) => object(place.dir.as_fd()) == dir,
            Unsynced::Moved(from, to) => {
                object(from.dir.as_fd()) == dir || object(to.dir.as_fd()) == dir
            }
        }
    }

    /// Takes it back, which was the last change of these names.
    fn undo(self) {
        let undone = match self {
            Unsynced::Made(place, flags) => unlinkat(&place.dir, &place.name, flags),
            Unsynced::Moved(from, to) => renameat(&to.dir, &to.name, &from.dir, &from.name),
        };
        undone.expect("nothing has changed there since");
    }
}

impl Log {
    /// Of a file system with this root.
    pub fn new(mut random: Random, root: BorrowedFd<'_>) -> Log {
        Log {
            errors: random.pick(&[0, 30, 8]),
            random,
            root: object(root),
            unsynced: Vec::new(),
        }
    }

    /// From now on nothing fails any more.
    pub fn heal(&mut self) {
        self.errors = 0;
    }

    /// A call that changes names, or does not.
    pub fn change(
        &mut self,
        what: NameChange<'_>,
        call: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let is_unfinished = matches!(what, NameChange::RemoveUnfinished(_));
        if !is_unfinished && self.random.one_in(self.errors) {
            let errnos = [Errno::IO, Errno::ROFS, Errno::NOSPC, Errno::DQUOT];
            return Err(self.random.pick(&errnos));
        }
        let replaces = match what {
            NameChange::Move(_, (dir, name)) => {
                statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            }
            _ => false,
        };
        call()?;
        match what {
            NameChange::SetAttributes => {}
            NameChange::RemoveUnfinished(_) | NameChange::Remove(_) => self.unsynced.clear(),
            NameChange::Move(..) if replaces => self.unsynced.clear(),
            NameChange::Make((dir, _)) if object(dir) == self.root => {}
            NameChange::Make(place) => {
                let (dir, name) = place;
                let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).expect("it was made");
                let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
                let flags = match is_dir {
                    true => AtFlags::REMOVEDIR,
                    false => AtFlags::empty(),
                };
                self.unsynced
                    .push(Unsynced::Made(NameInDirectory::new(place), flags));
            }
            NameChange::Move(from, to) => {
                let moved = Unsynced::Moved(NameInDirectory::new(from), NameInDirectory::new(to));
                self.unsynced.push(moved);
            }
            NameChange::Sync(fd) => {
                let dir = object(fd);
                let last = self.unsynced.iter().rposition(|change| change.is_in(dir));
                self.unsynced.drain(..last.map_or(0, |last| last + 1));
            }
        }
        Ok(())
    }

    /// The power has failed: of what was not on the disk the first may be.
    pub fn power_cut(&mut self) {
        let count = self.unsynced.len() as u64;
        let survive = self.random.below(count + 1) as usize;
        let lost = self.unsynced.drain(survive..).rev();
        lost.for_each(Unsynced::undo);
        self.unsynced.clear();
    }
}
