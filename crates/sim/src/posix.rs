//! A POSIX file system below a `dir`. Names and attributes are those of a real folder;
//! what becomes of names is in [`log`]. Content is simulated: the folder's files are
//! the page cache, and of each there is what a power cut leaves. Reads, writes and
//! syncs take their time, come short, are interrupted and fail with every errno; dirty
//! blocks are written back at any time, and where that fails, the error is reported as
//! Linux does it: once to each open descriptor, and to none when the last one is closed
//! and the inode forgotten.

mod log;

use std::collections::{BTreeMap, HashMap};
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use mem::BufRange;
use random::Random;
use reactor::{DiskFile, Nanos, Token};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use store::fs::{Below, Dir, DirSpec, NameChange};

use crate::world::{DriverId, MS, US};
use log::Log;

/// What a write or a sync fails with.
const ERRNOS: [Errno; 5] = [
    Errno::IO,
    Errno::NOSPC,
    Errno::DQUOT,
    Errno::FBIG,
    Errno::ROFS,
];
/// Descriptors that `dir` keeps: fewer than there are files, so that some are closed.
const DESCRIPTORS_MAX: usize = 4;

/// A block of a file, in the page cache and below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileBlock {
    /// Both are the same.
    Clean,
    /// The cache is newer, and will be written.
    Dirty,
    /// The cache is newer, and will not be written.
    Lost,
}

/// An open file description, and the errors that were reported to it.
struct OpenDescription {
    fd: Weak<DiskFile>,
    told: u64,
}

struct PosixFile {
    /// The simulator's own.
    fd: OwnedFd,
    /// What a power cut leaves.
    medium: Vec<u8>,
    blocks: Vec<FileBlock>,
    /// Failures to write it.
    errors: u64,
    errno: Errno,
    /// The last of them was reported to a descriptor.
    is_told: bool,
    holders: Vec<OpenDescription>,
}

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
pub enum PosixCall {
    Read(BufRange),
    Write(BufRange),
    Sync,
}

struct PosixOp {
    driver: DriverId,
    token: Token,
    fd: Arc<DiskFile>,
    file: usize,
    what: PosixCall,
    offset: u64,
    /// Bytes that it moves, or why it does not.
    fate: Result<u32, Errno>,
    /// Blocks that were dirty when a sync began.
    dirty: Vec<usize>,
}

/// How often, once in so many; 0 for never.
struct PosixFaults {
    block_bytes: usize,
    latency: Nanos,
    shorts: u64,
    interrupts: u64,
    write_errors: u64,
    sync_errors: u64,
    writebacks: u64,
    /// A write finds no room.
    full: u64,
}

struct PosixState {
    random: Random,
    settings: PosixFaults,
    files: Vec<PosixFile>,
    by_object: HashMap<(u64, u64), usize>,
    ops: BTreeMap<u64, PosixOp>,
    next_op: u64,
    names: Log,
    /// A write has found no room since this was last asked.
    was_full: bool,
}

/// The file system, as it outlives the target's process.
#[derive(Clone)]
pub struct Posix {
    state: Arc<Mutex<PosixState>>,
    folder: Arc<tempfile::TempDir>,
}

impl Posix {
    /// An empty one, whose files are written in blocks of so many bytes; it may be full
    /// now and then.
    pub fn new(mut random: Random, block_bytes: usize, is_full: bool) -> Posix {
        let r = &mut random;
        let mut settings = PosixFaults {
            block_bytes,
            latency: r.pick(&[5, 50, 500]) * US,
            shorts: r.pick(&[0, 3, 10]),
            interrupts: r.pick(&[0, 20]),
            write_errors: r.pick(&[0, 5, 30]),
            sync_errors: r.pick(&[0, 3, 15]),
            writebacks: r.pick(&[0, 2, 10]),
            full: 0,
        };
        if is_full {
            (settings.full, settings.shorts) = (3, 2);
        }
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a folder can be made");
        let served = folder.path().join("served");
        std::fs::create_dir(&served).expect("a new folder is empty");
        let all_users = Permissions::from_mode(0o777);
        std::fs::set_permissions(&served, all_users).expect("it is ours");
        let root = rustix::fs::open(&served, OFlags::PATH, Mode::empty());
        // Chance of its own, so that content fares as it would without.
        let chance = Random::new(random.clone().next_u64());
        let names = Log::new(chance, root.expect("it is ours").as_fd());
        let state = PosixState {
            random,
            settings,
            files: Vec::new(),
            by_object: HashMap::new(),
            ops: BTreeMap::new(),
            next_op: 0,
            names,
            was_full: false,
        };
        Posix {
            state: Arc::new(Mutex::new(state)),
            folder: Arc::new(folder),
        }
    }

    fn state(&self) -> MutexGuard<'_, PosixState> {
        self.state.lock().expect("one thread")
    }

    /// Whether a write has found no room since this was last asked.
    pub fn was_full(&self) -> bool {
        std::mem::take(&mut self.state().was_full)
    }

    /// The target starts, and serves it.
    pub fn open(&self) -> Dir {
        let spec = DirSpec {
            name: "kept".into(),
            path: self.folder.path().join("served"),
            state: self.folder.path().join("state"),
            read_only: false,
            owners: None,
            acls: None,
            direct: false,
        };
        let dir = Dir::simulated(&spec, Box::new(self.clone()), DESCRIPTORS_MAX);
        dir.expect("a folder of our own can be served")
    }

    /// An operation begins: its number, and when it ends.
    pub fn begin(
        &self,
        (driver, token): (DriverId, Token),
        fd: &Arc<DiskFile>,
        what: PosixCall,
        offset: u64,
    ) -> (u64, Nanos) {
        let mut state = self.state();
        let file = state.file(fd);
        let dirty = match what {
            PosixCall::Sync => state.files[file].dirty(),
            _ => Vec::new(),
        };
        let op = PosixOp {
            driver,
            token,
            fd: Arc::clone(fd),
            file,
            what,
            offset,
            fate: state.draw_outcome(what),
            dirty,
        };
        let number = state.next_op;
        state.next_op += 1;
        state.ops.insert(number, op);
        let delay = match state.random.one_in(20) {
            true => state.random.around(20 * MS),
            false => {
                let mean = state.settings.latency;
                state.random.around(mean)
            }
        };
        (number, delay)
    }

    /// An operation ends, unless its process has: its driver, its token, its result.
    pub fn end(&self, number: u64) -> Option<(DriverId, Token, io::Result<u32>)> {
        let mut state = self.state();
        let op = state.ops.remove(&number)?;
        let result = state.perform(&op);
        state.write_behind();
        let (driver, token) = (op.driver, op.token);
        // The description is closed here if `dir` has closed it meanwhile.
        drop(op);
        Some((driver, token, result.map_err(io::Error::from)))
    }

    /// From now on nothing fails any more.
    pub fn heal(&self) {
        let mut state = self.state();
        state.names.heal();
        let settings = &mut state.settings;
        settings.write_errors = 0;
        settings.sync_errors = 0;
        settings.interrupts = 0;
        settings.full = 0;
    }

    /// The target's process has ended: what it had under way happens whole, in part,
    /// or not at all.
    pub fn end_process(&self) {
        let mut state = self.state();
        for op in std::mem::take(&mut state.ops).into_values() {
            let block = state.settings.block_bytes as u64;
            let (PosixCall::Write(_), Ok(len)) = (op.what, op.fate) else {
                continue;
            };
            let blocks = u64::from(len) / block;
            let len = state.random.below(blocks + 1) * block;
            let fate = Ok(len as u32);
            let _ = state.perform(&PosixOp { fate, ..op });
        }
        state.files.iter_mut().for_each(|file| file.holders.clear());
    }

    /// The power has failed: of each dirty block either content is left.
    pub fn power_cut(&self) {
        let mut state = self.state();
        state.names.power_cut();
        let survives = state.random.pick(&[0, 50, 100]);
        for at in 0..state.files.len() {
            for block in state.files[at].dirty() {
                if state.random.percent(survives) {
                    state.clean(at, block);
                }
            }
            let block_bytes = state.settings.block_bytes;
            let file = &mut state.files[at];
            let len = file.medium.len();
            rustix::fs::ftruncate(&file.fd, len as u64).expect("memory is left");
            let written = rustix::io::pwrite(&file.fd, &file.medium, 0);
            assert_eq!(written, Ok(len));
            file.blocks = vec![FileBlock::Clean; len.div_ceil(block_bytes)];
            file.is_told = true;
        }
    }
}

impl Below for Posix {
    /// By a thread that waits for it.
    fn sync_data(&self, fd: &Arc<DiskFile>) -> Result<(), Errno> {
        let mut state = self.state();
        let file = state.file(fd);
        let fate = state.draw_outcome(PosixCall::Sync);
        let dirty = state.files[file].dirty();
        let (fate, errno) = (fate.map(|_| ()), fate.err());
        if errno == Some(Errno::INTR) {
            return Err(Errno::INTR);
        }
        state.write_back(file, &dirty, fate);
        state.files[file].tell(fd)
    }

    fn change(
        &self,
        what: NameChange<'_>,
        call: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.state().names.change(what, call)
    }
}

impl PosixFile {
    fn dirty(&self) -> Vec<usize> {
        let blocks = self.blocks.iter().enumerate();
        let dirty = blocks.filter(|(_, block)| **block == FileBlock::Dirty);
        dirty.map(|(at, _)| at).collect()
    }

    /// A description, as it is known from its first use on.
    fn holder(&mut self, fd: &Arc<DiskFile>) -> &mut OpenDescription {
        let is_it = |holder: &OpenDescription| std::ptr::eq(holder.fd.as_ptr(), Arc::as_ptr(fd));
        let at = self.holders.iter().position(is_it).unwrap_or_else(|| {
            // An error that was not reported yet is reported to the next one.
            let told = self.errors - u64::from(!self.is_told && self.errors > 0);
            let fd = Arc::downgrade(fd);
            self.holders.push(OpenDescription { fd, told });
            self.holders.len() - 1
        });
        &mut self.holders[at]
    }

    /// What a sync of this description says.
    fn tell(&mut self, fd: &Arc<DiskFile>) -> Result<(), Errno> {
        let (errors, errno) = (self.errors, self.errno);
        let holder = self.holder(fd);
        if std::mem::replace(&mut holder.told, errors) == errors {
            return Ok(());
        }
        self.is_told = true;
        Err(errno)
    }
}

impl PosixState {
    /// The file that a descriptor is of.
    fn file(&mut self, fd: &Arc<DiskFile>) -> usize {
        let stat = rustix::fs::fstat(fd).expect("an open file");
        let object = (stat.st_dev, stat.st_ino);
        let at = match self.by_object.get(&object) {
            Some(&at) => at,
            None => {
                let way = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
                let own = rustix::fs::open(way, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
                self.files.push(PosixFile {
                    fd: own.expect("what dir can write"),
                    medium: Vec::new(),
                    blocks: Vec::new(),
                    errors: 0,
                    errno: Errno::IO,
                    is_told: true,
                    holders: Vec::new(),
                });
                self.by_object.insert(object, self.files.len() - 1);
                self.files.len() - 1
            }
        };
        self.files[at].holder(fd);
        at
    }

    /// What will become of an operation.
    fn draw_outcome(&mut self, what: PosixCall) -> Result<u32, Errno> {
        let (r, settings) = (&mut self.random, &self.settings);
        if r.one_in(settings.interrupts) {
            return Err(Errno::INTR);
        }
        let (buf, errors) = match what {
            PosixCall::Read(buf) => (Some(buf), 0),
            PosixCall::Write(buf) => (Some(buf), settings.write_errors),
            PosixCall::Sync => (None, settings.sync_errors),
        };
        if r.one_in(errors) {
            return Err(r.pick(&ERRNOS));
        }
        if matches!(what, PosixCall::Write(_)) && r.one_in(settings.full) {
            return Err(Errno::NOSPC);
        }
        let block = settings.block_bytes as u32;
        let len = buf.map_or(0, BufRange::len);
        Ok(match len / block {
            2.. if r.one_in(settings.shorts) => {
                let blocks = r.between(1, u64::from(len / block) - 1);
                blocks as u32 * block
            }
            _ => len,
        })
    }

    fn perform(&mut self, op: &PosixOp) -> Result<u32, Errno> {
        match (op.what, op.fate) {
            (_, Err(Errno::INTR)) => Err(Errno::INTR),
            (PosixCall::Sync, fate) => {
                self.write_back(op.file, &op.dirty, fate.map(|_| ()));
                self.files[op.file].tell(&op.fd).map(|()| 0)
            }
            (_, Err(errno)) => {
                self.was_full |= errno == Errno::NOSPC;
                Err(errno)
            }
            (PosixCall::Read(buf), Ok(len)) => {
                let mut bytes = vec![0; len as usize];
                let read = rustix::io::pread(&self.files[op.file].fd, &mut bytes[..], op.offset)?;
                mem::copy_in(buf.slice(0, read as u32), &bytes[..read]);
                Ok(read as u32)
            }
            (PosixCall::Write(buf), Ok(len)) => {
                let mut bytes = vec![0; len as usize];
                mem::copy_out(buf.slice(0, len), &mut bytes);
                let block = self.settings.block_bytes;
                let file = &mut self.files[op.file];
                let written = rustix::io::pwrite(&file.fd, &bytes, op.offset)?;
                let (first, end) = (op.offset as usize, op.offset as usize + written);
                let blocks = first / block..end.div_ceil(block);
                if file.blocks.len() < blocks.end {
                    file.blocks.resize(blocks.end, FileBlock::Dirty);
                }
                file.blocks[blocks].fill(FileBlock::Dirty);
                Ok(written as u32)
            }
        }
    }

    /// Brings a block to the medium.
    fn clean(&mut self, file: usize, block: usize) {
        let block_bytes = self.settings.block_bytes;
        let file = &mut self.files[file];
        let mut bytes = vec![0; block_bytes];
        let at = block * block_bytes;
        let read = rustix::io::pread(&file.fd, &mut bytes[..], at as u64);
        let read = read.expect("a file in memory can be read");
        if file.medium.len() < at + read {
            file.medium.resize(at + read, 0);
        }
        file.medium[at..at + read].copy_from_slice(&bytes[..read]);
        file.blocks[block] = FileBlock::Clean;
    }

    /// Some blocks are written, or cannot be, and are taken for clean then.
    fn write_back(&mut self, file: usize, blocks: &[usize], fate: Result<(), Errno>) {
        for &block in blocks {
            match (self.files[file].blocks[block], fate) {
                (FileBlock::Dirty, Ok(())) => self.clean(file, block),
                (FileBlock::Dirty, Err(_)) => self.files[file].blocks[block] = FileBlock::Lost,
                _ => {}
            }
        }
        if let Err(errno) = fate {
            let file = &mut self.files[file];
            file.errors += 1;
            (file.errno, file.is_told) = (errno, false);
        }
    }

    /// What the kernel does unasked.
    fn write_behind(&mut self) {
        for at in 0..self.files.len() {
            let file = &mut self.files[at];
            file.holders.retain(|holder| holder.fd.strong_count() > 0);
            let is_open = !file.holders.is_empty();
            let rate = match is_open {
                true => self.settings.writebacks * 4,
                // No descriptor keeps it.
                false => self.settings.writebacks,
            };
            let dirty = file.dirty();
            if !dirty.is_empty() && self.random.one_in(rate) {
                let fate = match self.random.one_in(self.settings.sync_errors) {
                    true => Err(self.random.pick(&ERRNOS)),
                    false => Ok(()),
                };
                self.write_back(at, &dirty, fate);
            }
            let file = &mut self.files[at];
            if !is_open && file.dirty().is_empty() && self.random.one_in(2) {
                // The inode is forgotten, and its errors with it.
                file.is_told = true;
            }
        }
    }
}
