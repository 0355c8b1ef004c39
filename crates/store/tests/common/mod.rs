//! What tests drive volumes with: a file layer that fails on demand, and the
//! reactor's drivers.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mem::{BufRange, Region};
use reactor::{
    AnyDriver, Choice, Completion, Driver, DriverConfig, FallocateMode, FileIo, Token, Wait,
};
use rustix::fs::{FallocateFlags, fallocate};
use store::{Error, Io, Kind, Progress, Spec, Volume, open};

/// One file operation, as the volume asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        len: u32,
        durable: bool,
    },
    Sync,
    Punch {
        offset: u64,
        len: u64,
    },
    ZeroRange {
        offset: u64,
        len: u64,
    },
}

/// What happens to one operation instead of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// No more than this many bytes are moved.
    Short(u32),
    /// Nothing is done.
    Errno(i32),
}

struct Pending {
    op: Op,
    file: Arc<OwnedFd>,
    buf: Option<BufRange>,
    token: Token,
    fault: Fault,
}

/// Something that carries out file operations and can be waited for.
pub trait Files {
    fn io(&mut self) -> &mut dyn FileIo;
    /// The next completion; never called when nothing is under way.
    fn completion(&mut self) -> (Token, io::Result<u32>);
}

/// Carries out each operation when its completion is asked for.
#[derive(Default)]
pub struct Fake {
    /// Faults of the coming operations in their order; none when it is empty.
    pub faults: VecDeque<Fault>,
    /// All operations so far.
    pub log: Vec<Op>,
    pending: VecDeque<Pending>,
}

impl Fake {
    pub fn with(faults: &[Fault]) -> Fake {
        Fake {
            faults: faults.iter().copied().collect(),
            ..Fake::default()
        }
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Completes the pending operation at `index`, out of turn.
    pub fn complete(&mut self, index: usize) -> (Token, io::Result<u32>) {
        let pending = self.pending.remove(index).expect("nothing is under way");
        (pending.token, perform(&pending))
    }

    fn push(&mut self, op: Op, file: &Arc<OwnedFd>, buf: Option<BufRange>, token: Token) {
        self.log.push(op);
        self.pending.push_back(Pending {
            op,
            file: file.clone(),
            buf,
            token,
            fault: self.faults.pop_front().unwrap_or(Fault::None),
        });
    }
}

impl Files for Fake {
    fn io(&mut self) -> &mut dyn FileIo {
        self
    }

    fn completion(&mut self) -> (Token, io::Result<u32>) {
        self.complete(0)
    }
}

impl FileIo for Fake {
    fn read_at(&mut self, file: &Arc<OwnedFd>, buf: BufRange, offset: u64, token: Token) {
        let len = buf.len();
        self.push(Op::Read { offset, len }, file, Some(buf), token);
    }

    fn write_at(
        &mut self,
        file: &Arc<OwnedFd>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        let op = Op::Write {
            offset,
            len: buf.len(),
            durable,
        };
        self.push(op, file, Some(buf), token);
    }

    fn sync_data(&mut self, file: &Arc<OwnedFd>, token: Token) {
        self.push(Op::Sync, file, None, token);
    }

    fn fallocate(
        &mut self,
        file: &Arc<OwnedFd>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        let op = match mode {
            FallocateMode::PunchHole => Op::Punch { offset, len },
            FallocateMode::ZeroRange => Op::ZeroRange { offset, len },
        };
        self.push(op, file, None, token);
    }
}

fn perform(pending: &Pending) -> io::Result<u32> {
    let max = match pending.fault {
        Fault::Errno(errno) => return Err(io::Error::from_raw_os_error(errno)),
        Fault::Short(max) => max,
        Fault::None => u32::MAX,
    };
    let file = File::from(pending.file.try_clone()?);
    let flags = |mode| mode | FallocateFlags::KEEP_SIZE;
    match pending.op {
        Op::Read { offset, len } => {
            let mut bytes = vec![0; len.min(max) as usize];
            let n = file.read_at(&mut bytes, offset)?;
            let buf = pending.buf.unwrap().slice(0, n as u32);
            mem::copy_in(buf, &bytes[..n]);
            Ok(n as u32)
        }
        Op::Write {
            offset,
            len,
            durable,
        } => {
            let mut bytes = vec![0; len.min(max) as usize];
            mem::copy_out(pending.buf.unwrap().slice(0, len.min(max)), &mut bytes);
            let n = file.write_at(&bytes, offset)?;
            if durable {
                file.sync_data()?;
            }
            Ok(n as u32)
        }
        Op::Sync => file.sync_data().map(|()| 0),
        Op::Punch { offset, len } => {
            fallocate(&file, flags(FallocateFlags::PUNCH_HOLE), offset, len)?;
            Ok(0)
        }
        Op::ZeroRange { offset, len } => {
            fallocate(&file, flags(FallocateFlags::ZERO_RANGE), offset, len)?;
            Ok(0)
        }
    }
}

/// One of the reactor's drivers.
pub struct Real {
    driver: AnyDriver,
    done: Vec<Completion>,
}

impl Real {
    pub fn open(choice: Choice) -> Real {
        let pool = mem::Pool::new(mem::Budget::new(64 << 20)).unwrap();
        Real {
            driver: reactor::open(choice, &DriverConfig::default(), pool).unwrap(),
            done: Vec::new(),
        }
    }
}

impl Files for Real {
    fn io(&mut self) -> &mut dyn FileIo {
        &mut self.driver
    }

    fn completion(&mut self) -> (Token, io::Result<u32>) {
        loop {
            match self.done.pop() {
                Some(Completion::File { token, result }) => return (token, result),
                Some(_) => panic!("a completion that nobody asked for"),
                None => {
                    let for_ever = Wait::Until(u64::MAX);
                    self.driver.poll(for_ever, &mut self.done).unwrap();
                }
            }
        }
    }
}

pub const FILE_LAYERS: [&str; 3] = ["fake", "io_uring", "epoll"];

/// A file layer by name; nothing, and a word about it, where the machine does
/// not have it.
pub fn file_layer(name: &str) -> Option<Box<dyn Files>> {
    match name {
        "fake" => Some(Box::new(Fake::default())),
        "epoll" => Some(Box::new(Real::open(Choice::Epoll))),
        "io_uring" => match reactor::probe() {
            Ok(()) => Some(Box::new(Real::open(Choice::Uring))),
            Err(error) => {
                skipped(&format!("no io_uring here: {error}"));
                None
            }
        },
        _ => panic!("no file layer {name}"),
    }
}

/// Runs one I/O to its end.
pub fn run(volume: &dyn Volume, files: &mut dyn Files, io: Io) -> Result<(), Error> {
    let mut progress = volume.start(io, files.io(), 7);
    loop {
        match progress {
            Progress::Done(result) => return result,
            Progress::Pending(task) => {
                let (token, result) = files.completion();
                assert_eq!(token, 7);
                progress = volume.resume(task, result, files.io(), 7);
            }
        }
    }
}

pub fn write(
    volume: &dyn Volume,
    files: &mut dyn Files,
    offset: u64,
    bytes: &[u8],
    durable: bool,
) -> Result<(), Error> {
    let buf = buffer(bytes.len());
    mem::copy_in(buf, bytes);
    let io = Io::Write {
        offset,
        buf,
        durable,
    };
    run(volume, files, io)
}

pub fn read(
    volume: &dyn Volume,
    files: &mut dyn Files,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let buf = buffer(len);
    mem::copy_in(buf, &vec![0xee; len]);
    run(volume, files, Io::Read { offset, buf })?;
    let mut bytes = vec![0; len];
    mem::copy_out(buf, &mut bytes);
    Ok(bytes)
}

/// Memory that is never given back: tests are short.
pub fn buffer(len: usize) -> BufRange {
    let region = Box::leak(Box::new(Region::anonymous(len as u64).unwrap()));
    region.range(0, len as u32)
}

pub fn spec(kind: Kind, size_bytes: u64, block_bytes: u32) -> Spec {
    Spec {
        name: "disk".into(),
        kind,
        size_bytes,
        block_bytes,
        read_only: false,
        uuid: None,
    }
}

pub fn file_spec(path: &Path, size_bytes: u64) -> Spec {
    let path = PathBuf::from(path);
    spec(Kind::File { path }, size_bytes, 512)
}

/// A fresh folder with a file volume of `size_bytes` in it.
pub fn file_volume(size_bytes: u64) -> (tempfile::TempDir, PathBuf, Arc<dyn Volume>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let volume = open(&file_spec(&path, size_bytes)).unwrap();
    (folder, path, volume)
}

/// Says that a test could not run here, past the capture of its output.
pub fn skipped(why: &str) {
    use std::io::Write;
    let line = format!("SKIPPED: {why}\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A small generator (xorshift) whose seed a failing test prints.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
