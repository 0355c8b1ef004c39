//! File systems through their trait: what clients see of them, against a model,
//! by many threads at once, and what it costs.

mod content;
mod counts;
mod limits;
mod model;
mod names;
mod threads;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use mem::{BufRange, Loan, Region};
use reactor::{Bell, Completion, FallocateMode, FileIo, Ticket, Token};
use store::fs::{
    Attr, Caller, ChangeInfo, Error, FileId, FileSystem, Listing, Memory, New, Op, Output,
    Progress, Removable, SetAttr, Statfs, Task, Time, Written,
};

/// Counts for the tests that nothing is allocated.
#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;

const TOKEN: Token = 7;

/// A reactor of which nothing is wanted but tickets.
struct Turns(Arc<Bell>);

impl FileIo for Turns {
    fn read_at(&mut self, _: &Arc<OwnedFd>, _: BufRange, _: u64, _: Token) {
        panic!("memory reads no file")
    }
    fn write_at(&mut self, _: &Arc<OwnedFd>, _: BufRange, _: u64, _: bool, _: Token) {
        panic!("memory writes no file")
    }
    fn sync_data(&mut self, _: &Arc<OwnedFd>, _: Token) {
        panic!("memory syncs no file")
    }
    fn fallocate(&mut self, _: &Arc<OwnedFd>, _: FallocateMode, _: u64, _: u64, _: Token) {
        panic!("memory changes no file")
    }
    fn ticket(&mut self, token: Token) -> Ticket {
        self.0.ticket(token)
    }
    fn cancel_file(&mut self, _: Token) {}
}

/// Somebody who uses a file system.
struct User<'a> {
    fs: &'a dyn FileSystem,
    files: Turns,
    uid: u32,
    gids: Vec<u32>,
    seconds: i64,
    /// Turns that operations took beyond their first.
    turns: u64,
}

fn memory(size_bytes: u64) -> Memory {
    Memory::new("files", size_bytes, 77, Time::default()).unwrap()
}

fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

fn mode(mode: u32) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

fn size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

impl<'a> User<'a> {
    fn root(fs: &'a dyn FileSystem) -> User<'a> {
        User::new(fs, 0, &[0])
    }

    fn new(fs: &'a dyn FileSystem, uid: u32, gids: &[u32]) -> User<'a> {
        User {
            fs,
            files: Turns(Bell::new(None)),
            uid,
            gids: gids.to_vec(),
            seconds: 1,
            turns: 0,
        }
    }

    fn caller(&self) -> Caller<'_> {
        Caller {
            uid: self.uid,
            gid: self.gids[0],
            gids: &self.gids[1..],
            now: at(self.seconds),
            is_open: false,
        }
    }

    fn start(&mut self, op: Op<'_>) -> Progress {
        let caller = Caller {
            uid: self.uid,
            gid: self.gids[0],
            gids: &self.gids[1..],
            now: at(self.seconds),
            is_open: false,
        };
        self.fs.start(&caller, op, &mut self.files, TOKEN)
    }

    fn turn(&mut self, task: Task) -> Progress {
        let mut out = Vec::new();
        self.files.0.take(&mut out);
        let [Completion::File { token: TOKEN, .. }] = out[..] else {
            panic!("one completion for a task: {out:?}");
        };
        self.turns += 1;
        self.fs.resume(task, Ok(0), &mut self.files, TOKEN)
    }

    fn run(&mut self, op: Op<'_>) -> Result<Output, Error> {
        let mut progress = self.start(op);
        loop {
            match progress {
                Progress::Done(result) => return result,
                Progress::Pending(task) => progress = self.turn(task),
            }
        }
    }

    fn top(&self) -> FileId {
        self.fs.root()
    }

    fn create(
        &mut self,
        dir: FileId,
        name: &[u8],
        new: New<'_>,
        set: SetAttr,
    ) -> Result<(Attr, bool, ChangeInfo), Error> {
        let op = Op::Create {
            dir,
            name,
            new,
            set,
        };
        match self.run(op)? {
            Output::Created {
                attr,
                is_new,
                change,
            } => Ok((attr, is_new, change)),
            other => panic!("{other:?}"),
        }
    }

    fn file(&mut self, dir: FileId, name: &[u8]) -> FileId {
        let made = self.create(dir, name, New::Guarded, mode(0o644));
        made.unwrap().0.file
    }

    fn dir(&mut self, dir: FileId, name: &[u8]) -> FileId {
        let made = self.create(dir, name, New::Directory, mode(0o755));
        made.unwrap().0.file
    }

    fn lookup(&mut self, dir: FileId, name: &[u8]) -> Result<FileId, Error> {
        match self.run(Op::Lookup { dir, name })? {
            Output::File(file) => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    fn attr(&mut self, file: FileId) -> Result<Attr, Error> {
        match self.run(Op::Getattr { file })? {
            Output::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self, file: FileId, set: SetAttr) -> Result<Attr, Error> {
        let guard = None;
        match self.run(Op::Setattr { file, set, guard })? {
            Output::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    fn remove(&mut self, dir: FileId, name: &[u8]) -> Result<FileId, Error> {
        let what = Removable::Any;
        match self.run(Op::Remove { dir, name, what })? {
            Output::Removed { file, .. } => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    fn rename(
        &mut self,
        (from_dir, from): (FileId, &[u8]),
        (to_dir, to): (FileId, &[u8]),
    ) -> Result<Option<FileId>, Error> {
        let op = Op::Rename {
            from_dir,
            from,
            to_dir,
            to,
        };
        match self.run(op)? {
            Output::Renamed { replaced, .. } => Ok(replaced),
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Result<Written, Error> {
        let caller = self.caller();
        let written = self.fs.write_now(&caller, file, offset, bytes);
        written.expect("memory takes it at once")
    }

    /// Received into memory that the file system lends.
    fn receive(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Result<Written, Error> {
        let len = bytes.len() as u32;
        let Some(mut loan) = self.fs.borrow(offset, len) else {
            return self.write_buf(file, offset, bytes);
        };
        fill(&loan, bytes);
        self.fs.commit(&self.caller(), &mut loan, file, offset)
    }

    fn write_buf(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Result<Written, Error> {
        let region = Region::anonymous(bytes.len() as u64).unwrap();
        let buf = region.range(0, bytes.len() as u32);
        mem::copy_in(buf, bytes);
        let op = Op::Write {
            file,
            offset,
            buf,
            is_stable: false,
        };
        match self.run(op)? {
            Output::Written(written) => Ok(written),
            other => panic!("{other:?}"),
        }
    }

    fn read_buf(&mut self, file: FileId, offset: u64, len: u32) -> Result<(Vec<u8>, bool), Error> {
        let region = Region::anonymous(len.into()).unwrap();
        let buf = region.range(0, len);
        match self.run(Op::Read { file, offset, buf })? {
            Output::Read { len, is_end } => {
                let mut bytes = vec![0; len as usize];
                mem::copy_out(buf.slice(0, len), &mut bytes);
                Ok((bytes, is_end))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Lent where that can be had.
    fn read(&mut self, file: FileId, offset: u64, len: u32) -> Result<(Vec<u8>, bool), Error> {
        match self.fs.lend(&self.caller(), file, offset, len) {
            None => self.read_buf(file, offset, len),
            Some(Err(error)) => Err(error),
            Some(Ok((loan, is_end))) => Ok((bytes_of(&loan), is_end)),
        }
    }

    fn list(&mut self, dir: FileId, cookie: u64, entries_max: u32) -> Result<Listing, Error> {
        let op = Op::Readdir {
            dir,
            cookie,
            verifier: 77,
            entries_max,
            name_bytes_max: 1 << 20,
            with_attrs: true,
        };
        match self.run(op)? {
            Output::Listing(listing) => Ok(listing),
            other => panic!("{other:?}"),
        }
    }

    fn names(&mut self, dir: FileId) -> Vec<Vec<u8>> {
        let listing = self.list(dir, 0, u32::MAX).unwrap();
        assert!(listing.is_end);
        listing.iter().map(|(_, name)| name.to_vec()).collect()
    }

    fn open(&mut self, file: FileId) -> Result<(), Error> {
        let op = Op::Open {
            file,
            read: true,
            write: true,
        };
        assert_eq!(self.run(op)?, Output::Done);
        Ok(())
    }

    fn statfs(&mut self) -> Statfs {
        match self.run(Op::Statfs) {
            Ok(Output::Statfs(statfs)) => statfs,
            other => panic!("{other:?}"),
        }
    }

    fn free(&mut self) -> u64 {
        self.statfs().bytes_free
    }
}

fn bytes_of(loan: &Loan) -> Vec<u8> {
    let mut bytes = vec![0; loan.len() as usize];
    let mut at = 0;
    for piece in loan.pieces() {
        let end = at + piece.len() as usize;
        mem::copy_out(*piece, &mut bytes[at..end]);
        at = end;
    }
    bytes
}

fn fill(loan: &Loan, bytes: &[u8]) {
    let mut at = 0;
    for piece in loan.pieces() {
        let end = at + piece.len() as usize;
        mem::copy_in(*piece, &bytes[at..end]);
        at = end;
    }
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let (first, step) = (self.next() as u8, self.next() as u8 | 1);
        let at = |i: usize| first.wrapping_add((i as u8).wrapping_mul(step)).max(1);
        (0..len).map(at).collect()
    }
}

#[test]
fn a_file_system_that_is_too_small_is_refused() {
    assert!(Memory::new("x", 1, 1, at(0)).is_err());
    let fs = memory(1 << 20);
    let mut user = User::root(&fs);
    let root = user.attr(user.top()).unwrap();
    assert_eq!((root.mode, root.links, root.uid), (0o1777, 2, 0));
    assert_eq!(user.statfs().bytes, 1 << 20);
}
