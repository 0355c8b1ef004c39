//! A user of a file system of any kind.

use mem::{Loan, Region};
use random::Random;
use reactor::Token;
use store::fs::{
    Attr, Caller, ChangeInfo, Error, FileId, FileSystem, FsOp, Listing, New, Output, Progress,
    Removable, SetAttr, Statfs, Task, Time, Written,
};

use super::files::Files;

const TOKEN: Token = 7;

/// A user of a file system.
pub struct User<'a> {
    pub fs: &'a dyn FileSystem,
    pub files: Box<dyn Files>,
    pub uid: u32,
    pub gids: Vec<u32>,
    pub seconds: i64,
    /// Turns that operations took beyond their first.
    pub turns: u64,
}

pub fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

pub fn mode(mode: u32) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

pub fn size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

impl<'a> User<'a> {
    pub fn root(fs: &'a dyn FileSystem) -> User<'a> {
        User::new(fs, 0, &[0])
    }

    pub fn new(fs: &'a dyn FileSystem, uid: u32, gids: &[u32]) -> User<'a> {
        User {
            fs,
            files: super::turns(),
            uid,
            gids: gids.to_vec(),
            seconds: 1,
            turns: 0,
        }
    }

    pub fn caller(&self) -> Caller<'_> {
        Caller {
            uid: self.uid,
            gid: self.gids[0],
            gids: &self.gids[1..],
            now: at(self.seconds),
            is_open: false,
            from: store::fs::Asker::default(),
        }
    }

    pub fn start(&mut self, op: FsOp<'_>) -> Progress {
        let caller = Caller {
            uid: self.uid,
            gid: self.gids[0],
            gids: &self.gids[1..],
            now: at(self.seconds),
            is_open: false,
            from: store::fs::Asker::default(),
        };
        self.fs.start(&caller, op, self.files.io(), TOKEN)
    }

    pub fn turn(&mut self, task: Task) -> Progress {
        let (token, result) = self.files.completion();
        assert_eq!(token, TOKEN);
        self.turns += 1;
        self.fs.resume(task, result, self.files.io(), TOKEN)
    }

    pub fn run(&mut self, op: FsOp<'_>) -> Result<Output, Error> {
        let mut progress = self.start(op);
        loop {
            match progress {
                Progress::Done(result) => return result,
                Progress::Pending(task) => progress = self.turn(task),
            }
        }
    }

    pub fn top(&self) -> FileId {
        self.fs.root()
    }

    pub fn create(
        &mut self,
        dir: FileId,
        name: &[u8],
        new: New<'_>,
        set: SetAttr,
    ) -> Result<(Attr, bool, ChangeInfo), Error> {
        let op = FsOp::Create {
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

    pub fn file(&mut self, dir: FileId, name: &[u8]) -> FileId {
        let made = self.create(dir, name, New::Guarded, mode(0o644));
        made.unwrap().0.file
    }

    pub fn dir(&mut self, dir: FileId, name: &[u8]) -> FileId {
        let made = self.create(dir, name, New::Directory, mode(0o755));
        made.unwrap().0.file
    }

    pub fn lookup(&mut self, dir: FileId, name: &[u8]) -> Result<FileId, Error> {
        match self.run(FsOp::Lookup { dir, name })? {
            Output::File(file) => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    pub fn attr(&mut self, file: FileId) -> Result<Attr, Error> {
        match self.run(FsOp::Getattr { file })? {
            Output::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub fn set(&mut self, file: FileId, set: SetAttr) -> Result<Attr, Error> {
        let guard = None;
        match self.run(FsOp::Setattr { file, set, guard })? {
            Output::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub fn remove(&mut self, dir: FileId, name: &[u8]) -> Result<FileId, Error> {
        let what = Removable::Any;
        match self.run(FsOp::Remove { dir, name, what })? {
            Output::Removed { file, .. } => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    pub fn rename(
        &mut self,
        (from_dir, from): (FileId, &[u8]),
        (to_dir, to): (FileId, &[u8]),
    ) -> Result<Option<FileId>, Error> {
        let op = FsOp::Rename {
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

    pub fn write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Result<Written, Error> {
        let caller = self.caller();
        match self.fs.write_now(&caller, file, offset, bytes) {
            Some(written) => written,
            None => self.write_buf(file, offset, bytes),
        }
    }

    /// Received into memory that the file system lends.
    pub fn receive(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Result<Written, Error> {
        let len = bytes.len() as u32;
        let Some(mut loan) = self.fs.borrow(offset, len) else {
            return self.write_buf(file, offset, bytes);
        };
        fill(&loan, bytes);
        self.fs.commit(&self.caller(), &mut loan, file, offset)
    }

    pub fn write_buf(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Result<Written, Error> {
        let region = Region::anonymous(bytes.len() as u64).unwrap();
        let buf = region.range(0, bytes.len() as u32);
        mem::copy_in(buf, bytes);
        let op = FsOp::Write {
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

    pub fn read_buf(
        &mut self,
        file: FileId,
        offset: u64,
        len: u32,
    ) -> Result<(Vec<u8>, bool), Error> {
        let region = Region::anonymous(len.into()).unwrap();
        let buf = region.range(0, len);
        match self.run(FsOp::Read { file, offset, buf })? {
            Output::Read { len, is_end } => {
                let mut bytes = vec![0; len as usize];
                mem::copy_out(buf.slice(0, len), &mut bytes);
                Ok((bytes, is_end))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Lent where that can be had.
    pub fn read(&mut self, file: FileId, offset: u64, len: u32) -> Result<(Vec<u8>, bool), Error> {
        match self.fs.lend(&self.caller(), file, offset, len) {
            None => self.read_buf(file, offset, len),
            Some(Err(error)) => Err(error),
            Some(Ok((loan, is_end))) => Ok((bytes_of(&loan), is_end)),
        }
    }

    pub fn list(&mut self, dir: FileId, cookie: u64, entries_max: u32) -> Result<Listing, Error> {
        let op = FsOp::Readdir {
            dir,
            cookie,
            verifier: self.fs.info().instance,
            entries_max,
            name_bytes_max: 1 << 20,
            with_attrs: true,
        };
        match self.run(op)? {
            Output::Listing(listing) => Ok(listing),
            other => panic!("{other:?}"),
        }
    }

    pub fn names(&mut self, dir: FileId) -> Vec<Vec<u8>> {
        let listing = self.list(dir, 0, u32::MAX).unwrap();
        assert!(listing.is_end);
        listing.iter().map(|(_, name)| name.to_vec()).collect()
    }

    pub fn open(&mut self, file: FileId) -> Result<(), Error> {
        let op = FsOp::Open {
            file,
            read: true,
            write: true,
        };
        assert_eq!(self.run(op)?, Output::Done);
        Ok(())
    }

    pub fn statfs(&mut self) -> Statfs {
        match self.run(FsOp::Statfs { file: self.top() }) {
            Ok(Output::Statfs(statfs)) => statfs,
            other => panic!("{other:?}"),
        }
    }

    pub fn free(&mut self) -> u64 {
        self.statfs().bytes_free
    }
}

pub fn bytes_of(loan: &Loan) -> Vec<u8> {
    let mut bytes = vec![0; loan.len() as usize];
    let mut at = 0;
    for piece in loan.pieces() {
        let end = at + piece.len() as usize;
        mem::copy_out(*piece, &mut bytes[at..end]);
        at = end;
    }
    bytes
}

pub fn fill(loan: &Loan, bytes: &[u8]) {
    let mut at = 0;
    for piece in loan.pieces() {
        let end = at + piece.len() as usize;
        mem::copy_in(*piece, &bytes[at..end]);
        at = end;
    }
}

/// So many bytes that differ, none of them 0.
pub fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let (first, step) = (random.next_u64() as u8, random.next_u64() as u8 | 1);
    let at = |i: usize| first.wrapping_add((i as u8).wrapping_mul(step)).max(1);
    (0..len).map(at).collect()
}
