//! Data: where files end, what is durable, and that changes are told.

use super::*;
use mem::{BufRange, Region};
use reactor::{Bell, DiskFile, FallocateMode, Ticket};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use store::fs::{Progress, Seek, SetXattr, Written};

/// A reactor that says what it was asked, and fails when it is told to.
pub(super) struct Told {
    pub(super) bell: Arc<Bell>,
    tickets: u32,
    writes: u32,
    pub(super) syncs: u32,
    /// What operations fail with, once `fails_after` more have succeeded.
    pub(super) fails_with: Option<i32>,
    pub(super) fails_after: u32,
    /// Failures after which all is well again; 0 for never.
    pub(super) recovers_after: u32,
    /// Bytes that are moved at a time.
    pub(super) bytes_max: u32,
    pub(super) done: VecDeque<(Token, io::Result<u32>)>,
}

impl Told {
    pub(super) fn new() -> Told {
        Told {
            bell: Bell::new(None),
            tickets: 0,
            writes: 0,
            syncs: 0,
            fails_with: None,
            fails_after: 0,
            recovers_after: 0,
            bytes_max: u32::MAX,
            done: VecDeque::new(),
        }
    }

    fn end(&mut self, token: Token, result: io::Result<usize>) {
        let result = match self.fails_with {
            Some(errno) if self.fails_after == 0 => Err(io::Error::from_raw_os_error(errno)),
            _ => result.map(|moved| moved as u32),
        };
        if result.is_err() && self.recovers_after > 0 {
            self.recovers_after -= 1;
            if self.recovers_after == 0 {
                self.fails_with = None;
            }
        }
        self.fails_after = self.fails_after.saturating_sub(1);
        self.done.push_back((token, result));
    }

    pub(super) fn run(&mut self, fs: &Dir, is_open: bool, op: FsOp<'_>) -> Result<Output, Error> {
        let caller = store::fs::Caller {
            uid: 0,
            gid: 0,
            gids: &[],
            now: at(1),
            is_open,
            from: store::fs::Asker::default(),
        };
        let mut progress = fs.start(&caller, op, self, 9);
        loop {
            let task = match progress {
                Progress::Done(result) => return result,
                Progress::Pending(task) => task,
            };
            let mut rung = Vec::new();
            while self.done.is_empty() && rung.is_empty() {
                self.bell.take(&mut rung);
                std::thread::yield_now();
            }
            let result = self.done.pop_front().map_or(Ok(0), |(_, result)| result);
            progress = fs.resume(task, result, self, 9);
        }
    }
}

fn file_of(fd: &Arc<DiskFile>) -> fs::File {
    fd.as_fd().try_clone_to_owned().unwrap().into()
}

impl FileIo for Told {
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        let mut bytes = vec![0; buf.len().min(self.bytes_max) as usize];
        let read = file_of(file).read_at(&mut bytes, offset);
        if let Ok(len) = read {
            mem::copy_in(buf.slice(0, len as u32), &bytes[..len]);
        }
        self.end(token, read);
    }
    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        assert!(!durable, "a sync follows, which others share");
        self.writes += 1;
        let mut bytes = vec![0; buf.len().min(self.bytes_max) as usize];
        mem::copy_out(buf.slice(0, bytes.len() as u32), &mut bytes);
        let written = file_of(file).write_at(&bytes, offset);
        self.end(token, written);
    }
    fn sync_data(&mut self, _: &Arc<DiskFile>, token: Token) {
        self.syncs += 1;
        self.end(token, Ok(0));
    }
    fn fallocate(&mut self, _: &Arc<DiskFile>, _: FallocateMode, _: u64, _: u64, _: Token) {
        panic!("ranges are changed by threads")
    }
    fn ticket(&mut self, token: Token) -> Ticket {
        self.tickets += 1;
        self.bell.ticket(token)
    }
    fn cancel_file(&mut self, _: Token) {}
}

/// A file, open, with so many bytes.
pub(super) fn opened(fs: &Dir, bytes: &[u8]) -> FileId {
    let mut user = User::root(fs);
    let top = user.top();
    let file = user.file(top, b"f");
    user.open(file).unwrap();
    user.write(file, 0, bytes).unwrap();
    file
}

#[test]
fn stable_write_is_synced_before_its_answer() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"content");
    let region = Region::anonymous(4096).unwrap();
    let mut told = Told::new();
    let write = |is_stable| FsOp::Write {
        file,
        offset: 0,
        buf: region.range(0, 100),
        is_stable,
    };
    for is_stable in [false, true] {
        let written = told.run(&fs, true, write(is_stable));
        assert_eq!(
            written,
            Ok(Output::Written(Written {
                len: 100,
                is_stable
            }))
        );
    }
    assert_eq!((told.writes, told.syncs), (2, 1));
    let commit = FsOp::Commit { file };
    assert_eq!(told.run(&fs, true, commit), Ok(Output::Done));
    assert_eq!(told.syncs, 2);
    // No thread was asked: the descriptor is at hand.
    assert_eq!(told.tickets, 0);
}

#[test]
fn reads_say_where_the_file_ends() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, &[7; 1000]);
    let region = Region::anonymous(4096).unwrap();
    let mut told = Told::new();
    // Whole, and in pieces that the kernel cuts.
    for bytes_max in [u32::MAX, 300] {
        told.bytes_max = bytes_max;
        for (offset, len, read, is_end) in [
            (0, 1000, 1000, true),
            (0, 999, 999, false),
            (0, 2000, 1000, true),
            (500, 500, 500, true),
            (1000, 5, 0, true),
            (5000, 5, 0, true),
            (0, 0, 0, false),
            (1000, 0, 0, true),
            (u64::MAX, 5, 0, true),
        ] {
            let buf = region.range(0, len);
            let done = told.run(&fs, true, FsOp::Read { file, offset, buf });
            assert_eq!(
                done,
                Ok(Output::Read { len: read, is_end }),
                "{offset} {len}"
            );
        }
    }
    // A local process makes it longer, and shorter.
    let buf = region.range(0, 1000);
    let whole = FsOp::Read {
        file,
        offset: 0,
        buf,
    };
    fs::write(place.path("f"), [8; 1001]).unwrap();
    let read = told.run(&fs, true, whole.clone());
    assert_eq!(
        read,
        Ok(Output::Read {
            len: 1000,
            is_end: false
        })
    );
    fs::write(place.path("f"), [8; 10]).unwrap();
    let read = told.run(&fs, true, whole);
    assert_eq!(
        read,
        Ok(Output::Read {
            len: 10,
            is_end: true
        })
    );
    let past = FsOp::Write {
        file,
        offset: u64::MAX - 5,
        buf,
        is_stable: false,
    };
    assert_eq!(told.run(&fs, true, past), Err(Error::FBig));
    told.bytes_max = 300;
    let long = FsOp::Write {
        file,
        offset: 0,
        buf,
        is_stable: false,
    };
    let is_stable = false;
    let written = told.run(&fs, true, long);
    assert_eq!(
        written,
        Ok(Output::Written(Written {
            len: 1000,
            is_stable
        }))
    );
    assert_eq!(fs::metadata(place.path("f")).unwrap().len(), 1000);
}

/// Also those within one tick of the clock.
#[test]
fn change_attribute_grows_with_every_change() {
    let place = Place::new();
    let (file, last) = {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        let file = user.file(top, b"f");
        let mut last = user.attr(file).unwrap().change;
        let mut grown = |user: &mut User<'_>, what: &str| {
            let change = user.attr(file).unwrap().change;
            assert!(change > last, "{what}");
            assert_eq!(user.attr(file).unwrap().change, change, "nothing since");
            last = change;
        };
        let xattr = FsOp::SetXattr {
            file,
            name: b"x",
            value: b"y",
            how: SetXattr::Either,
        };
        for _ in 0..50 {
            user.write(file, 0, b"x").unwrap();
            grown(&mut user, "a write");
            user.set(file, mode(0o644)).unwrap();
            grown(&mut user, "a mode");
            user.set(file, size(5)).unwrap();
            grown(&mut user, "a size");
            user.run(xattr.clone()).unwrap();
            grown(&mut user, "an attribute");
            let (offset, len) = (0, 100);
            user.run(FsOp::Allocate { file, offset, len }).unwrap();
            grown(&mut user, "room");
            let (name, dir) = (&b"g"[..], top);
            user.run(FsOp::Link { file, dir, name }).unwrap();
            grown(&mut user, "a link");
            user.remove(top, b"g").unwrap();
            grown(&mut user, "a link less");
            user.rename((top, b"f"), (top, b"h")).unwrap();
            grown(&mut user, "another name");
            user.rename((top, b"h"), (top, b"f")).unwrap();
            grown(&mut user, "its name again");
            assert!(!user.read(file, 0, 1).unwrap().0.is_empty());
        }
        let mut before = user.attr(top).unwrap().change;
        for i in 0..50 {
            let name = format!("new{i}").into_bytes();
            let (_, _, change) = user.create(top, &name, New::Guarded, mode(0)).unwrap();
            assert!(change.before == before && change.after > before);
            assert!(!change.is_atomic, "others may come between");
            before = change.after;
            assert_eq!(user.attr(top).unwrap().change, before);
        }
        (file, last)
    };
    let fs = place.open();
    let mut user = User::root(&fs);
    assert_eq!(user.attr(file).unwrap().change, last, "nothing since");
}

#[test]
fn copies_take_turns_and_end_when_told() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let (from, to) = (user.file(top, b"from"), user.file(top, b"to"));
    let bytes = bytes(&mut Random::new(5), 20 << 20);
    user.write_buf(from, 0, &bytes).unwrap();
    let copy = |len| FsOp::Copy {
        from,
        from_offset: 100,
        to,
        to_offset: 7,
        len,
    };
    let copied = user.run(copy(0));
    assert_eq!(copied, Ok(Output::Copied((20 << 20) - 100)));
    let (there, is_end) = user.read_buf(to, 7, 20 << 20).unwrap();
    assert!(is_end && there == bytes[100..]);
    let Progress::Pending(mut task) = user.start(copy(0)) else {
        panic!("a thread does it");
    };
    task.cancel();
    let Progress::Done(Ok(Output::Copied(copied))) = user.turn(task) else {
        panic!("it ends with what is done");
    };
    assert!(copied < 20 << 20, "{copied}");
}

#[test]
fn ranges_are_shared_where_that_can_be_had() {
    share(&Place::new());
    share(&Place::on_disk());
}

fn share(place: &Place) {
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let (from, to) = (user.file(top, b"from"), user.file(top, b"to"));
    let bytes = bytes(&mut Random::new(5), 1 << 20);
    user.write_buf(from, 0, &bytes).unwrap();
    let clone = |from_offset, len| FsOp::Clone {
        from,
        from_offset,
        to,
        to_offset: 0,
        len,
    };
    assert_eq!(user.run(clone(2 << 20, 0)), Err(Error::Inval));
    assert_eq!(user.run(clone(0, 2 << 20)), Err(Error::Inval));
    match user.run(clone(0, 0)) {
        Err(Error::NotSupp) => assert_eq!(user.attr(to).unwrap().size, 0),
        done => {
            assert_eq!(done, Ok(Output::Done));
            assert!(user.read_buf(to, 0, 1 << 20).unwrap().0 == bytes);
        }
    }
}

#[test]
fn only_bytes_that_a_file_has_are_read_ahead() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    user.write(file, 0, b"data").unwrap();
    let mut ahead = |file, offset, len| user.run(FsOp::ReadAhead { file, offset, len });
    assert_eq!(ahead(file, 0, 0), Ok(Output::ReadAhead(true)));
    assert_eq!(ahead(file, 2, u64::MAX), Ok(Output::ReadAhead(true)));
    assert_eq!(ahead(file, 4, 0), Ok(Output::ReadAhead(false)));
    assert_eq!(ahead(file, u64::MAX, 1), Ok(Output::ReadAhead(false)));
    assert_eq!(ahead(top, 0, 0), Err(Error::IsDir));
}

#[test]
fn holes_are_found() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let far = 64 << 20;
    user.write(file, far, b"data").unwrap();
    let mut seek = |offset, what| user.run(FsOp::Seek { file, offset, what });
    let found = |offset, is_end| Ok(Output::Found { offset, is_end });
    assert_eq!(seek(5, Seek::Hole), found(5, false));
    assert_eq!(seek(5, Seek::Data), found(far, false));
    assert_eq!(seek(far, Seek::Hole), found(far + 4, true));
    assert_eq!(seek(far + 4, Seek::Data), Err(Error::Nxio));
    let hole = FsOp::Deallocate {
        file,
        offset: 0,
        len: far + (1 << 20),
    };
    user.run(hole).unwrap();
    let what = Seek::Data;
    let end = user.run(FsOp::Seek {
        file,
        offset: 0,
        what,
    });
    assert_eq!(end, found(far + 4, true));
    let attr = user.attr(file).unwrap();
    assert!(attr.size == far + 4 && attr.used_bytes < 1 << 20);
    // As far as the file goes, however much is asked for.
    user.write(file, 0, b"data").unwrap();
    let all = FsOp::Deallocate {
        file,
        offset: 0,
        len: u64::MAX,
    };
    user.run(all).unwrap();
    assert_eq!(user.read(file, 0, 4).unwrap().0, [0; 4]);
    assert_eq!(user.attr(file).unwrap().size, far + 4);
    let room = user.statfs();
    assert!(room.bytes >= user.free() && room.bytes > 0);
}

/// What a file is made with counts, whatever its mode says then, and for its
/// owner always.
#[test]
fn owners_read_and_write_what_they_made() {
    for place in [Place::new(), Place::recorded()] {
        let fs = place.open();
        let mut root = User::root(&fs);
        let top = root.top();
        root.set(top, mode(0o777)).unwrap();
        let mut user = User::new(&fs, 1000, &[100]);
        let (made, ..) = user.create(top, b"f", New::Guarded, mode(0)).unwrap();
        let file = made.file;
        assert_eq!(user.open(file), Err(Error::Access));
        user.write(file, 0, b"content").unwrap();
        assert_eq!(user.read(file, 0, 9).unwrap().0, b"content");
        let mut other = User::new(&fs, 1001, &[100]);
        assert_eq!(other.read(file, 0, 9), Err(Error::Access));
        // That the file is open gives another user no access.
        let mut told = Told::new();
        let open = FsOp::Open {
            file,
            read: true,
            write: true,
        };
        assert_eq!(told.run(&fs, true, open), Ok(Output::Done));
        assert_eq!(other.read(file, 0, 9), Err(Error::Access));
        assert_eq!(told.run(&fs, true, FsOp::Close { file }), Ok(Output::Done));
    }
}

/// An ALLOCATE of more room than there is takes none.
#[test]
fn more_room_than_there_is_is_not_taken() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let Ok(Output::Statfs(room)) = user.run(FsOp::Statfs { file: top }) else {
        panic!("room");
    };
    let (offset, len) = (0, room.bytes_free + (1 << 30));
    let asked = user.run(FsOp::Allocate { file, offset, len });
    assert_eq!(asked, Err(Error::NoSpc));
    let attr = user.attr(file).unwrap();
    assert!(attr.size == 0 && attr.used_bytes < 1 << 20);
}
