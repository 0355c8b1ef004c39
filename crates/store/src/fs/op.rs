//! One operation: what is asked, how it stands, what came of it.

use std::any::Any;

use ::mem::BufRange;

use super::{Attr, ChangeInfo, Device, Error, FileId, ObjectKind, SetAttr, Statfs, Time};
use super::{dir, memory};

/// What CREATE and OPEN make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New<'a> {
    /// A regular file; one that exists is taken as it is (UNCHECKED4), but for
    /// a size of 0 in the attributes.
    Unchecked,
    /// A regular file that must not exist (GUARDED4).
    Guarded,
    /// A regular file that must not exist, unless it was made with the same
    /// verifier (EXCLUSIVE4, EXCLUSIVE4_1).
    Exclusive([u8; 8]),
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    Block(Device),
    /// A character device.
    Character(Device),
}

impl New<'_> {
    /// What kind of object is made.
    pub(super) fn kind(self) -> ObjectKind {
        match self {
            New::Unchecked | New::Guarded | New::Exclusive(_) => ObjectKind::Regular,
            New::Directory => ObjectKind::Directory,
            New::Symlink(_) => ObjectKind::Symlink,
            New::Fifo => ObjectKind::Fifo,
            New::Socket => ObjectKind::Socket,
            New::Block(_) => ObjectKind::Block,
            New::Character(_) => ObjectKind::Character,
        }
    }
}

/// What REMOVE takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removable {
    /// Anything but a directory that has entries (NFSv4).
    Any,
    /// Anything but a directory (NFSv3's REMOVE).
    NotDirectory,
    /// An empty directory (NFSv3's RMDIR).
    Directory,
}

/// What SEEK looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// A hole, of which there is one behind the end of the file.
    Hole,
}

/// Bytes that [`FsOp::ReadAhead`] reads at most: one caller takes no more of the page cache, and of
/// a thread, at a time.
pub const READ_AHEAD_BYTES_MAX: u64 = 32 << 20;

/// What SETXATTR expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// Nothing.
    Either,
    /// That there is none of this name.
    Create,
    /// That there is one of this name.
    Replace,
}

/// What is asked of a file system. Names and texts need live no longer than
/// [`super::FileSystem::start`] runs; memory of a [`BufRange`] until the
/// operation is done.
#[derive(Clone, Debug)]
pub enum FsOp<'a> {
    /// Finds an entry: [`Output::File`].
    Lookup {
        /// Where.
        dir: FileId,
        /// What.
        name: &'a [u8],
    },
    /// Finds the directory that a directory lies in: [`Output::File`]. The
    /// root lies in none: [`Error::NoEnt`].
    Parent {
        /// Which directory.
        dir: FileId,
    },
    /// [`Output::Attr`].
    Getattr {
        /// Of what.
        file: FileId,
    },
    /// Sets all or nothing: [`Output::Attr`], as they are then.
    Setattr {
        /// Of what.
        file: FileId,
        /// What.
        set: SetAttr,
        /// Only if [`Attr::changed`] is this (NFSv3).
        guard: Option<Time>,
    },
    /// Makes an object: [`Output::Created`].
    Create {
        /// Where.
        dir: FileId,
        /// Its name.
        name: &'a [u8],
        /// What it is.
        new: New<'a>,
        /// Attributes that it has from the beginning. Without a mode none of
        /// the permission bits is set.
        set: SetAttr,
    },
    /// Gives an object one more name: [`Output::Change`].
    Link {
        /// Which object.
        file: FileId,
        /// Where.
        dir: FileId,
        /// The name.
        name: &'a [u8],
    },
    /// Takes a name away: [`Output::Removed`].
    Remove {
        /// Where.
        dir: FileId,
        /// What.
        name: &'a [u8],
        /// What it may be.
        what: Removable,
    },
    /// Moves a name, over another one if need be, in one step:
    /// [`Output::Renamed`].
    Rename {
        /// From where.
        from_dir: FileId,
        /// Which.
        from: &'a [u8],
        /// To where.
        to_dir: FileId,
        /// How it is called then.
        to: &'a [u8],
    },
    /// The text of a symbolic link: [`Output::Bytes`].
    Readlink {
        /// Which.
        file: FileId,
    },
    /// Entries of a directory behind a cookie, in the order of cookies:
    /// [`Output::Listing`].
    Readdir {
        /// Which directory.
        dir: FileId,
        /// Of the last entry that is known; 0 to begin with. `.` and `..` are
        /// no entries, and cookies begin at 3.
        cookie: u64,
        /// [`Listing::verifier`] of the one before; anything with cookie 0.
        verifier: u64,
        /// Entries at most.
        entries_max: u32,
        /// Bytes of all names together at most.
        name_bytes_max: u32,
        /// With attributes of each.
        with_attrs: bool,
    },
    /// Fills `buf` from `offset` as far as the file goes: [`Output::Read`].
    Read {
        /// Which file.
        file: FileId,
        /// First byte in it.
        offset: u64,
        /// Where the data goes.
        buf: BufRange,
    },
    /// Stores `buf` at `offset`: [`Output::Written`].
    Write {
        /// Which file.
        file: FileId,
        /// First byte in it.
        offset: u64,
        /// The data.
        buf: BufRange,
        /// Done only when it, and what is needed to find it, would survive a
        /// crash of the machine (DATA_SYNC4, FILE_SYNC4).
        is_stable: bool,
    },
    /// Done when every write to the file that was done before would survive a
    /// crash of the machine: [`Output::Done`].
    Commit {
        /// Which file.
        file: FileId,
    },
    /// Takes room for a range, which then can be written whatever else is:
    /// [`Output::Done`]. The file grows to hold it.
    Allocate {
        /// Which file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Makes a hole of a range as far as the file goes: [`Output::Done`].
    Deallocate {
        /// Which file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Finds data or a hole from `offset` on: [`Output::Found`].
    Seek {
        /// Which file.
        file: FileId,
        /// From where.
        offset: u64,
        /// What.
        what: Seek,
    },
    /// A range will be read soon: [`Output::ReadAhead`].
    ReadAhead {
        /// Which file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes; 0 for all up to the end of the file. [`READ_AHEAD_BYTES_MAX`] of them count.
        len: u64,
    },
    /// Makes a range of one file that of another, in one step to all others:
    /// [`Output::Done`]. An error other than [`Error::NoSpc`] and
    /// [`Error::DQuot`] leaves it as it was.
    Clone {
        /// From which file.
        from: FileId,
        /// First byte there.
        from_offset: u64,
        /// To which file.
        to: FileId,
        /// First byte there.
        to_offset: u64,
        /// Bytes; 0 for all up to the end of the source.
        len: u64,
    },
    /// Copies a range, as far as the source goes: [`Output::Copied`]. Neither
    /// one step, nor all or nothing.
    Copy {
        /// From which file.
        from: FileId,
        /// First byte there.
        from_offset: u64,
        /// To which file.
        to: FileId,
        /// First byte there.
        to_offset: u64,
        /// Bytes; 0 for all up to the end of the source.
        len: u64,
    },
    /// The value of an extended attribute: [`Output::Bytes`].
    GetXattr {
        /// Of what.
        file: FileId,
        /// Which, without the `user.` of Linux.
        name: &'a [u8],
    },
    /// Sets one: [`Output::Change`], of the object.
    SetXattr {
        /// Of what.
        file: FileId,
        /// Which.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// What is expected.
        how: SetXattr,
    },
    /// Names of extended attributes behind a cookie: [`Output::Listing`], with
    /// the object itself as that of every entry.
    ListXattrs {
        /// Of what.
        file: FileId,
        /// Of the last name that is known; 0 to begin with.
        cookie: u64,
        /// Bytes of all names together at most.
        name_bytes_max: u32,
    },
    /// Takes one away: [`Output::Change`], of the object.
    RemoveXattr {
        /// Of what.
        file: FileId,
        /// Which.
        name: &'a [u8],
    },
    /// Room: [`Output::Statfs`].
    Statfs {
        /// An object there: what it may still take.
        file: FileId,
    },
    /// Checks whether the caller may read or write a file, and keeps the file
    /// also without a name until [`FsOp::Close`], one for each: [`Output::Done`].
    Open {
        /// Which file.
        file: FileId,
        /// To read it.
        read: bool,
        /// To write it.
        write: bool,
    },
    /// Ends one [`FsOp::Open`]: [`Output::Done`]. A file without a name goes with
    /// the last of them. Nothing is checked.
    Close {
        /// Which file.
        file: FileId,
    },
}

/// A range of one file that becomes that of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) from: FileId,
    pub(super) from_offset: u64,
    pub(super) to: FileId,
    pub(super) to_offset: u64,
    pub(super) len: u64,
}

impl Move {
    /// Of a CLONE or COPY.
    pub(super) fn of(op: &FsOp<'_>) -> Option<Move> {
        match *op {
            FsOp::Clone {
                from,
                from_offset,
                to,
                to_offset,
                len,
            }
            | FsOp::Copy {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => Some(Move {
                from,
                from_offset,
                to,
                to_offset,
                len,
            }),
            _ => None,
        }
    }

    /// Whether it would read what it writes.
    pub(super) fn overlaps(&self) -> bool {
        let apart = self.from_offset.abs_diff(self.to_offset);
        self.from == self.to && apart < self.len
    }
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes that were written, fewer than were given only where more would
    /// not go.
    pub len: u32,
    /// Whether they would survive a crash of the machine as they are.
    pub is_stable: bool,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the directory, which no other entry ever has.
    pub cookie: u64,
    /// The object.
    pub file: FileId,
    /// Its attributes, if they were asked for.
    pub attr: Option<Attr>,
    name_at: u32,
    name_len: u32,
}

/// Entries of a directory, in the order of their cookies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// See [`FsOp::Readdir`].
    pub verifier: u64,
    /// No more behind these.
    pub is_end: bool,
    entries: Vec<Entry>,
    names: Vec<u8>,
}

impl Listing {
    /// With no entries yet.
    pub(crate) fn new(verifier: u64) -> Listing {
        Listing {
            verifier,
            ..Listing::default()
        }
    }

    /// Appends an entry; its attributes may come later.
    pub(crate) fn push(&mut self, cookie: u64, file: FileId, name: &[u8]) {
        self.entries.push(Entry {
            cookie,
            file,
            attr: None,
            name_at: self.names.len() as u32,
            name_len: name.len() as u32,
        });
        self.names.extend_from_slice(name);
    }

    /// Gives each entry its attributes; entries without go.
    pub(crate) fn fill(&mut self, mut attr: impl FnMut(FileId) -> Option<Attr>) {
        self.entries.retain_mut(|entry| {
            entry.attr = attr(entry.file);
            entry.attr.is_some()
        });
    }

    /// Gives the last entry its attributes.
    pub(crate) fn set_attr(&mut self, attr: Attr) {
        if let Some(entry) = self.entries.last_mut() {
            entry.attr = Some(attr);
        }
    }

    /// Of the last entry.
    pub(crate) fn last_cookie(&self) -> Option<u64> {
        self.entries.last().map(|entry| entry.cookie)
    }

    /// Bytes of all names.
    pub(crate) fn name_bytes(&self) -> usize {
        self.names.len()
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        self.entries.iter().map(|entry| {
            let at = entry.name_at as usize;
            (entry, &self.names[at..at + entry.name_len as usize])
        })
    }
}

/// What came of an operation that succeeded; see [`FsOp`] for which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is done.
    Done,
    /// An object.
    File(FileId),
    /// Attributes.
    Attr(Attr),
    /// A change of one directory, or object.
    Change(ChangeInfo),
    /// An object was made, or found.
    Created {
        /// Which.
        attr: Attr,
        /// Whether it was made.
        is_new: bool,
        /// Of the directory.
        change: ChangeInfo,
    },
    /// A name was taken away.
    Removed {
        /// Of which object.
        file: FileId,
        /// Of the directory.
        change: ChangeInfo,
    },
    /// A name was moved.
    Renamed {
        /// Of the directory that it came from.
        from: ChangeInfo,
        /// Of the directory that it went to.
        to: ChangeInfo,
        /// Whose name it has taken.
        replaced: Option<FileId>,
    },
    /// A text or a value.
    Bytes(Box<[u8]>),
    /// Entries.
    Listing(Listing),
    /// Data was read.
    Read {
        /// Bytes.
        len: u32,
        /// The file ends there.
        is_end: bool,
    },
    /// Data was written.
    Written(Written),
    /// What SEEK found.
    Found {
        /// Where.
        offset: u64,
        /// That is the end of the file, and nothing of the kind is before it.
        is_end: bool,
    },
    /// Whether the range is read ahead.
    ReadAhead(bool),
    /// So many bytes were copied.
    Copied(u64),
    /// Room.
    Statfs(Statfs),
}

/// How a started operation stands.
#[must_use]
#[derive(Debug)]
pub enum Progress {
    /// It is over.
    Done(Result<Output, Error>),
    /// A completion is to come; it goes to [`super::FileSystem::resume`]
    /// together with this task.
    Pending(Task),
}

/// What an unfinished operation needs to go on; kept by its driver until its
/// completion has come.
#[derive(Debug)]
pub struct Task(FsSteps);

const COMES_BACK: &str = "a task goes back to where it came from";

/// One kind for each kind of file system.
#[derive(Debug)]
enum FsSteps {
    Memory(Box<memory::MemorySteps>),
    Dir(dir::DirSteps),
    /// Of a file system of another crate.
    Other(Box<dyn Any + Send>),
}

impl Task {
    pub(crate) fn of_memory(steps: Box<memory::MemorySteps>) -> Task {
        Task(FsSteps::Memory(steps))
    }

    pub(crate) fn of_dir(steps: dir::DirSteps) -> Task {
        Task(FsSteps::Dir(steps))
    }

    /// Of a file system that is none of this room's.
    pub fn of_other(steps: impl Any + Send) -> Task {
        Task(FsSteps::Other(Box::new(steps)))
    }

    /// What [`Task::of_other`] was given.
    ///
    /// # Panics
    /// If that was something else.
    pub fn into_other<T: Any>(self) -> T {
        match self.0 {
            FsSteps::Other(steps) => *steps.downcast().expect(COMES_BACK),
            FsSteps::Memory(_) | FsSteps::Dir(_) => unreachable!("{COMES_BACK}"),
        }
    }

    pub(crate) fn into_memory(self) -> Box<memory::MemorySteps> {
        match self.0 {
            FsSteps::Memory(steps) => steps,
            FsSteps::Dir(_) | FsSteps::Other(_) => unreachable!("{COMES_BACK}"),
        }
    }

    pub(crate) fn into_dir(self) -> dir::DirSteps {
        match self.0 {
            FsSteps::Dir(steps) => steps,
            FsSteps::Memory(_) | FsSteps::Other(_) => unreachable!("{COMES_BACK}"),
        }
    }

    /// Bytes of an [`FsOp::Copy`] that were copied so far.
    pub fn copied_bytes(&self) -> u64 {
        match &self.0 {
            FsSteps::Memory(steps) => steps.copied_bytes(),
            FsSteps::Dir(steps) => steps.copied_bytes(),
            FsSteps::Other(_) => 0,
        }
    }

    /// It is not wanted any more: a copy ends at the next completion with what
    /// was copied until then; others go on to their end.
    pub fn cancel(&mut self) {
        match &mut self.0 {
            FsSteps::Memory(steps) => steps.cancel(),
            FsSteps::Dir(steps) => steps.cancel(),
            FsSteps::Other(_) => {}
        }
    }
}
