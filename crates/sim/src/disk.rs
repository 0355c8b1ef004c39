//! Disks: what is in the page cache, what is on the medium, and operations
//! that take their time, come in pieces, fail, hang or are cut off.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use faults::Fault;
use mem::BufRange;
use reactor::{Completion, DiskFile, DiskShares, FallocateMode, Nanos, Token};

use crate::content::SECTOR_BYTES;
use crate::world::{DriverId, MS, S, US, World, WorldEvent};

const EPERM: i32 = 1;
const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENODEV: i32 = 19;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENODATA: i32 = 61;
const EILSEQ: i32 = 84;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;
const ESTALE: i32 = 116;
const EREMOTEIO: i32 = 121;
const EDQUOT: i32 = 122;
const ECANCELED: i32 = 125;
/// Operations of a driver that are under way on one disk at most.
const SHARE_MAX: usize = 4;

/// What a call that was not carried out says before it is tried again.
const INTERRUPTIONS: [i32; 2] = [EINTR, EAGAIN];
/// What read(2) says of a file system, and what block layers bring up.
const READ_ERRORS: [i32; 9] = [
    EIO, ENXIO, ENOMEM, ENODEV, ENODATA, EILSEQ, ETIMEDOUT, ESTALE, EREMOTEIO,
];
/// The same of write(2) and of fallocate(2). Space that runs out comes first and
/// often: what weft does then is of its own kind.
const WRITE_ERRORS: [i32; 16] = [
    ENOSPC, ENOSPC, EDQUOT, EIO, EIO, EFBIG, EROFS, EPERM, ENXIO, ENOMEM, ENODEV, ENODATA, EILSEQ,
    ETIMEDOUT, ESTALE, EREMOTEIO,
];
/// The same of fdatasync(2), which returns any error that a writeback met.
const SYNC_ERRORS: [i32; 13] = [
    ENOSPC, ENOSPC, EDQUOT, EDQUOT, EIO, EIO, EROFS, ENXIO, ENODATA, EILSEQ, ETIMEDOUT, ESTALE,
    EREMOTEIO,
];

/// How the disks behave in one run. Rates are "once in so many operations", 0
/// for never.
#[derive(Clone, Copy, Debug)]
pub struct DiskSettings {
    /// Mean time of an operation.
    pub latency: Nanos,
    /// A read fails.
    pub read_errors: u64,
    /// A write, or making a hole or zeros, fails; a durable write before or behind
    /// its way to the page cache.
    pub write_errors: u64,
    /// A sync fails, and what it should have written is lost with the power.
    pub sync_errors: u64,
    /// An operation moves only some of its blocks.
    pub short: u64,
    /// An operation hangs, for up to 20 seconds.
    pub hangs: u64,
    /// A write is brought to the medium unasked.
    pub writebacks: u64,
    /// An operation is interrupted before it begins.
    pub interrupts: u64,
    /// The file system knows how to make holes.
    pub punches: bool,
    /// The file system knows how to zero a range.
    pub zeroes: bool,
}

/// One file.
struct SimFile {
    block_bytes: usize,
    /// What reads see.
    cache: Vec<u8>,
    /// What a power cut leaves.
    medium: Vec<u8>,
    /// Sectors of the cache that are newer than the medium's.
    dirty: Vec<bool>,
    /// Some of it that is not on the medium is taken for clean.
    has_lost: bool,
}

impl SimFile {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.cache[offset..offset + bytes.len()].copy_from_slice(bytes);
        let sectors = offset / SECTOR_BYTES..(offset + bytes.len()).div_ceil(SECTOR_BYTES);
        self.dirty[sectors].fill(true);
    }

    /// Takes dirty ones of `sectors` for clean that did not reach the medium.
    fn lose(&mut self, sectors: impl Iterator<Item = usize>) {
        for sector in sectors {
            // Some may have been cut off meanwhile.
            if let Some(dirty) = self.dirty.get_mut(sector) {
                *dirty = false;
            }
        }
        self.has_lost = true;
    }

    /// Brings dirty ones of `sectors` to the medium.
    fn clean(&mut self, sectors: impl Iterator<Item = usize>) {
        for sector in sectors {
            // Some may have been cut off meanwhile.
            if sector >= self.dirty.len() {
                continue;
            }
            if std::mem::take(&mut self.dirty[sector]) {
                let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                self.medium[bytes.clone()].copy_from_slice(&self.cache[bytes]);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum DiskOp {
    Read(BufRange),
    Write(BufRange, bool),
    Zero,
    Sync,
}

struct FileOp {
    driver: DriverId,
    token: Token,
    file: usize,
    what: DiskOp,
    offset: usize,
    /// Bytes that it will move: all, or fewer where it comes short.
    len: usize,
    /// Ends of the pieces that it is carried out in, last one first.
    pieces: Vec<usize>,
    done: usize,
    /// Sectors that were dirty when a sync began.
    dirty: Vec<usize>,
    result: Result<(), i32>,
    /// It fails when it is in the page cache, on its way to the medium.
    is_cached: bool,
    hangs: bool,
    stage: DiskStage,
}

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskStage {
    /// Its disk has its share.
    Offered,
    /// The driver has no worker for it.
    Admitted,
    /// A worker is at it.
    Begun,
}

/// What waits for the disks of one driver, as real drivers have it: a worker for
/// each operation, and workers for the shares of all disks.
struct Workers {
    shares: DiskShares<u64>,
    /// Whose operations come now.
    host: u64,
    disks_max: usize,
    busy: usize,
    waiting: VecDeque<u64>,
}

impl Default for Workers {
    fn default() -> Workers {
        Workers {
            shares: DiskShares::new(SHARE_MAX),
            host: 0,
            disks_max: 0,
            busy: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl Workers {
    /// A worker for an admitted operation, if there is one.
    fn take(&mut self, number: u64) -> bool {
        self.disks_max = self.disks_max.max(self.shares.disks());
        let is_free = self.busy < self.disks_max * SHARE_MAX;
        match is_free {
            true => self.busy += 1,
            false => self.waiting.push_back(number),
        }
        is_free
    }
}

/// All disks.
pub struct Disk {
    settings: DiskSettings,
    files: Vec<SimFile>,
    by_fd: HashMap<RawFd, usize>,
    ops: HashMap<u64, FileOp>,
    /// Numbers of operations under way, in order.
    order: Vec<u64>,
    next_op: u64,
    /// Losses that a reactor learns of: the file, and the completion with the error.
    losses: Vec<(usize, DriverId, Token)>,
    workers: HashMap<DriverId, Workers>,
    /// Completions that come after a time.
    timers: HashMap<u64, (DriverId, Token)>,
    /// Files whose disks fail everything.
    cut: HashSet<usize>,
    /// The file whose disk does not answer.
    pub dead: Option<usize>,
    /// Writes that failed: file, first byte, bytes.
    pub failures: Vec<(usize, u64, u64)>,
}

impl Disk {
    /// No files yet.
    pub fn new(settings: DiskSettings) -> Disk {
        Disk {
            settings,
            files: Vec::new(),
            by_fd: HashMap::new(),
            ops: HashMap::new(),
            order: Vec::new(),
            next_op: 0,
            losses: Vec::new(),
            workers: HashMap::new(),
            timers: HashMap::new(),
            cut: HashSet::new(),
            dead: None,
            failures: Vec::new(),
        }
    }

    /// A file of zeros, durable, that `fd` stands for; its number.
    pub fn add_file(&mut self, fd: RawFd, bytes: usize, block_bytes: usize) -> usize {
        self.files.push(SimFile {
            block_bytes,
            cache: vec![0; bytes],
            medium: vec![0; bytes],
            dirty: vec![false; bytes / SECTOR_BYTES],
            has_lost: false,
        });
        self.by_fd.insert(fd, self.files.len() - 1);
        self.files.len() - 1
    }

    /// What comes of a driver from now on is of this host.
    pub fn set_host(&mut self, driver: DriverId, host: u64) {
        self.workers.entry(driver).or_default().host = host;
    }

    /// Operations under way with one of a driver's tokens.
    pub fn is_busy(&self, driver: DriverId, token: Token) -> bool {
        let mut ops = self.ops.values();
        ops.any(|op| op.driver == driver && op.token == token)
    }

    /// Tokens of everything under way.
    pub fn under_way(&self) -> Vec<(DriverId, Token)> {
        let tokens = self.order.iter().map(|op| &self.ops[op]);
        tokens.map(|op| (op.driver, op.token)).collect()
    }

    /// Whether anything under way takes longer than any host waits.
    pub fn hangs(&self) -> bool {
        self.ops.values().any(|op| op.hangs)
    }

    /// From now on everything works.
    pub fn heal(&mut self) {
        self.dead = None;
        self.cut.clear();
        let healthy = &mut self.settings;
        healthy.read_errors = 0;
        healthy.write_errors = 0;
        healthy.sync_errors = 0;
        healthy.hangs = 0;
        healthy.interrupts = 0;
    }

    /// Whether a change is under way behind byte `from` of a file. A VERIFY may
    /// read there, which locks nothing.
    pub fn is_busy_behind(&self, file: usize, from: usize) -> bool {
        let mut ops = self.ops.values();
        let changes = |op: &FileOp| matches!(op.what, DiskOp::Write(..) | DiskOp::Zero);
        ops.any(|op| op.file == file && changes(op) && op.len > 0 && op.offset + op.len > from)
    }

    /// The disk of a file fails everything from now on, or does so no more; whether it does.
    pub fn cut(&mut self, file: usize) -> bool {
        let fails = !self.cut.remove(&file);
        if fails {
            self.cut.insert(file);
        }
        fails
    }

    /// Whether something of a file that was read is not on the medium and never will be.
    pub fn has_lost(&self, file: usize) -> bool {
        self.files[file].has_lost
    }

    /// What reads of a file see.
    pub fn content(&self, file: usize) -> &[u8] {
        &self.files[file].cache
    }

    /// A volume is opened on a file: what `store::open` does with the cache of a real
    /// one.
    pub fn open(&mut self, file: usize) {
        let file = &mut self.files[file];
        file.clean(0..file.dirty.len());
        if !faults::is(Fault::KeepCache) {
            file.cache.clone_from(&file.medium);
        }
        file.has_lost = false;
    }

    /// Bits of a byte of a file change on its disk.
    pub fn flip(&mut self, file: usize, at: usize, bits: u8) {
        let file = &mut self.files[file];
        file.cache[at] ^= bits;
        file.medium[at] ^= bits;
    }

    /// The file has been cut off, or has grown by a hole.
    pub fn set_len(&mut self, file: usize, bytes: usize) {
        let file = &mut self.files[file];
        file.cache.resize(bytes, 0);
        file.medium.resize(bytes, 0);
        file.dirty.resize(bytes.div_ceil(SECTOR_BYTES), false);
    }
}

impl World {
    /// A file operation begins.
    fn file_op(
        &mut self,
        driver: DriverId,
        fd: &Arc<DiskFile>,
        what: DiskOp,
        (offset, len): (u64, usize),
        token: Token,
    ) {
        let Some(&file) = self.disk.by_fd.get(&fd.as_fd().as_raw_fd()) else {
            return self.posix_op((driver, token), fd, what, offset);
        };
        let settings = self.disk.settings;
        let (offset, all) = (offset as usize, self.disk.files[file].cache.len());
        let len = len.min(all.saturating_sub(offset));
        let mut op = FileOp {
            driver,
            token,
            file,
            what,
            offset,
            len,
            pieces: Vec::new(),
            done: 0,
            dirty: Vec::new(),
            result: Ok(()),
            is_cached: false,
            hangs: self.random.one_in(settings.hangs) || self.disk.dead == Some(file),
            stage: DiskStage::Offered,
        };
        if let DiskOp::Sync = what {
            let dirty = self.disk.files[file].dirty.iter().enumerate();
            op.dirty = dirty.filter(|(_, is)| **is).map(|(n, _)| n).collect();
        }
        self.choose_fate(&mut op);
        self.cut_into_pieces(&mut op);
        let number = self.disk.next_op;
        self.disk.next_op += 1;
        let hangs = op.hangs;
        self.trace(|| {
            let (what, result) = (op.what, op.result);
            format!("file {file}: {what:?} {offset}+{len} {result:?} hangs: {hangs}")
        });
        self.disk.ops.insert(number, op);
        self.disk.order.push(number);
        let workers = self.disk.workers.entry(driver).or_default();
        let Workers { shares, host, .. } = workers;
        if shares.offer(file as u64, *host, number, number).is_some() {
            self.file_admitted(number);
        }
    }

    /// An operation may begin, when there is a worker.
    fn file_admitted(&mut self, number: u64) {
        let op = self.disk.ops.get_mut(&number).expect("it waited");
        op.stage = DiskStage::Admitted;
        let workers = self.disk.workers.entry(op.driver).or_default();
        if workers.take(number) {
            self.file_begins(number);
        }
    }

    fn file_begins(&mut self, number: u64) {
        let op = self.disk.ops.get_mut(&number).expect("it waited");
        op.stage = DiskStage::Begun;
        let delay = match op.hangs {
            true if self.disk.dead == Some(op.file) => return,
            true => self.random.pick(&[5 * MS, S, 20 * S]),
            false => self.random.around(self.disk.settings.latency),
        };
        self.after(delay, WorldEvent::File(number));
    }

    /// An operation on a file of a simulated `dir` begins.
    fn posix_op(&mut self, of: (DriverId, Token), fd: &Arc<DiskFile>, what: DiskOp, offset: u64) {
        use crate::posix::PosixCall as Posix;
        let what = match what {
            DiskOp::Read(buf) => Posix::Read(buf),
            DiskOp::Write(buf, false) => Posix::Write(buf),
            DiskOp::Sync => Posix::Sync,
            DiskOp::Write(_, true) | DiskOp::Zero => unreachable!("dir asks for no such thing"),
        };
        let posix = self.posix.as_ref().expect("whose descriptor is it");
        let (number, delay) = posix.begin(of, fd, what, offset);
        self.trace(|| format!("dir operation {number}: {what:?} at {offset}"));
        self.after(delay, WorldEvent::Posix(number));
    }

    /// One of them ends.
    pub(crate) fn posix_ends(&mut self, number: u64) {
        let ended = self.posix.as_ref().and_then(|posix| posix.end(number));
        if let Some((driver, token, result)) = ended {
            self.trace(|| format!("dir operation {number} ends: {result:?}"));
            self.complete_file(driver, token, result);
        }
    }

    /// An operation is over: others begin in its place.
    fn file_forget(&mut self, number: u64) -> Option<FileOp> {
        self.disk.order.retain(|&n| n != number);
        let op = self.disk.ops.remove(&number)?;
        let workers = self.disk.workers.entry(op.driver).or_default();
        if op.stage == DiskStage::Offered {
            workers.shares.cancel(number);
            return Some(op);
        }
        workers.waiting.retain(|&waiting| waiting != number);
        let next = match op.stage {
            DiskStage::Begun => {
                workers.busy -= 1;
                workers.waiting.pop_front()
            }
            _ => None,
        };
        let admitted = workers.shares.ended(op.file as u64);
        if let Some(next) = next {
            workers.busy += 1;
            self.file_begins(next);
        }
        if let Some(admitted) = admitted {
            self.file_admitted(admitted);
        }
        Some(op)
    }

    /// Whether it will fail, and how.
    fn choose_fate(&mut self, op: &mut FileOp) {
        let settings = self.disk.settings;
        if self.disk.cut.contains(&op.file) {
            op.result = Err(EIO);
            return;
        }
        if self.random.one_in(settings.interrupts) {
            op.result = Err(self.random.pick(&INTERRUPTIONS));
            return;
        }
        let block = self.disk.files[op.file].block_bytes;
        match op.what {
            DiskOp::Read(_) if self.random.one_in(settings.read_errors) => {
                op.result = Err(self.random.pick(&READ_ERRORS));
            }
            DiskOp::Write(..) | DiskOp::Zero if self.random.one_in(settings.write_errors) => {
                op.result = Err(self.random.pick(&WRITE_ERRORS));
                op.is_cached = matches!(op.what, DiskOp::Write(_, true)) && self.random.one_in(2);
                let (offset, len) = (op.offset as u64, op.len as u64);
                self.disk.failures.push((op.file, offset, len));
            }
            DiskOp::Sync if self.random.one_in(settings.sync_errors) => {
                op.result = Err(self.random.pick(&SYNC_ERRORS));
            }
            DiskOp::Read(_) | DiskOp::Write(..)
                if op.len > block && self.random.one_in(settings.short) =>
            {
                let blocks = (op.len / block) as u64;
                op.len = self.random.between(1, blocks) as usize * block;
            }
            _ => {}
        }
    }

    /// Where it can be seen half done: between any two sectors.
    fn cut_into_pieces(&mut self, op: &mut FileOp) {
        if op.result.is_err() && !op.is_cached || matches!(op.what, DiskOp::Sync) {
            return;
        }
        op.pieces.push(op.len);
        let sectors = (op.len / SECTOR_BYTES) as u64;
        if sectors > 1 {
            for _ in 0..self.random.below(3) {
                let at = self.random.between(1, sectors - 1) as usize * SECTOR_BYTES;
                op.pieces.push(at);
            }
        }
        op.pieces.sort_unstable_by(|a, b| b.cmp(a));
        op.pieces.dedup();
    }

    /// The next piece of an operation, or its end.
    pub(crate) fn file_step(&mut self, number: u64) {
        let Some(op) = self.disk.ops.get_mut(&number) else {
            return;
        };
        let Some(end) = op.pieces.pop() else {
            return self.file_ends(number);
        };
        let from = std::mem::replace(&mut op.done, end);
        let at = op.offset + from;
        let (file, what) = (&mut self.disk.files[op.file], op.what);
        match what {
            DiskOp::Read(buf) => {
                // Of a part that was cut off since nothing is read.
                let there = file.cache.get(at..).unwrap_or_default();
                let there = &there[..there.len().min(end - from)];
                mem::copy_in(buf.slice(from as u32, there.len() as u32), there);
            }
            DiskOp::Write(buf, _) => {
                let mut bytes = vec![0; end - from];
                mem::copy_out(buf.slice(from as u32, (end - from) as u32), &mut bytes);
                file.write(at, &bytes);
            }
            DiskOp::Zero => file.write(at, &vec![0; end - from]),
            DiskOp::Sync => unreachable!("a sync has no pieces"),
        }
        let delay = self.random.around(self.disk.settings.latency / 2);
        self.after(delay, WorldEvent::File(number));
    }

    /// Whether a completion with a loss in a file is there that its reactor has not taken.
    fn is_loss_unheard(&mut self, file: usize) -> bool {
        let net = &mut self.net;
        self.disk.losses.retain(|&(_, driver, token)| {
            let driver = net.driver(driver);
            let is_it = |done: &Completion| matches!(done, Completion::File { token: t, .. } if *t == token);
            !driver.has_failed && driver.ready.iter().any(|(_, done)| is_it(done))
        });
        self.disk.losses.iter().any(|loss| loss.0 == file)
    }

    fn file_ends(&mut self, number: u64) {
        let op = &self.disk.ops[&number];
        // Which of two reactors takes the completion of its sync first is not tried.
        if matches!((op.what, op.result), (DiskOp::Sync, Ok(()))) && self.is_loss_unheard(op.file) {
            return self.after(US, WorldEvent::File(number));
        }
        let op = self.file_forget(number).expect("looked at by the caller");
        let file = &mut self.disk.files[op.file];
        match (op.what, op.result) {
            (DiskOp::Sync, Ok(())) => file.clean(op.dirty.iter().copied()),
            // The kernel reports it once and then takes what is lost for clean.
            (DiskOp::Sync, Err(errno)) if !INTERRUPTIONS.contains(&errno) => {
                file.lose(op.dirty.iter().copied());
                self.disk.losses.push((op.file, op.driver, op.token));
            }
            (DiskOp::Write(_, true), Err(_)) if op.is_cached => {
                let first = op.offset / SECTOR_BYTES;
                file.lose(first..(op.offset + op.len) / SECTOR_BYTES);
                self.disk.losses.push((op.file, op.driver, op.token));
            }
            (DiskOp::Write(_, true), Ok(())) => {
                let first = op.offset / SECTOR_BYTES;
                file.clean(first..(op.offset + op.len) / SECTOR_BYTES);
            }
            (DiskOp::Write(..) | DiskOp::Zero, Ok(()))
                if self.random.one_in(self.disk.settings.writebacks) =>
            {
                let first = op.offset / SECTOR_BYTES;
                file.clean(first..(op.offset + op.len) / SECTOR_BYTES);
            }
            _ => {}
        }
        let moved = match op.what {
            DiskOp::Read(_) | DiskOp::Write(..) => op.len as u32,
            DiskOp::Zero | DiskOp::Sync => 0,
        };
        let result = op
            .result
            .map(|()| moved)
            .map_err(io::Error::from_raw_os_error);
        self.complete_file(op.driver, op.token, result);
    }

    /// Reads.
    pub fn file_read(
        &mut self,
        driver: DriverId,
        fd: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        token: Token,
    ) {
        let extent = (offset, buf.len() as usize);
        self.file_op(driver, fd, DiskOp::Read(buf), extent, token);
    }

    /// Writes.
    pub fn file_write(
        &mut self,
        driver: DriverId,
        fd: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        let extent = (offset, buf.len() as usize);
        self.file_op(driver, fd, DiskOp::Write(buf, durable), extent, token);
    }

    /// Syncs.
    pub fn file_sync(&mut self, driver: DriverId, fd: &Arc<DiskFile>, token: Token) {
        self.file_op(driver, fd, DiskOp::Sync, (0, 0), token);
    }

    /// Zeroes, one way or the other.
    pub fn file_allocate(
        &mut self,
        driver: DriverId,
        fd: &Arc<DiskFile>,
        mode: FallocateMode,
        (offset, len): (u64, u64),
        token: Token,
    ) {
        let knows = match mode {
            FallocateMode::PunchHole => self.disk.settings.punches,
            FallocateMode::ZeroRange => self.disk.settings.zeroes,
        };
        if !knows {
            let result = Err(io::Error::from_raw_os_error(EOPNOTSUPP));
            return self.complete_file(driver, token, result);
        }
        self.file_op(driver, fd, DiskOp::Zero, (offset, len as usize), token);
    }

    /// Completes with nothing after a time.
    pub fn file_timer(&mut self, driver: DriverId, after: Nanos, token: Token) {
        let number = self.disk.next_op;
        self.disk.next_op += 1;
        self.disk.timers.insert(number, (driver, token));
        self.after(after, WorldEvent::Timer(number));
    }

    /// It does.
    pub(crate) fn timer_ends(&mut self, number: u64) {
        if let Some((driver, token)) = self.disk.timers.remove(&number) {
            self.complete_file(driver, token, Ok(0));
        }
    }

    /// Asks for operations to end early: one that has not begun may.
    pub fn file_cancel(&mut self, driver: DriverId, token: Token) {
        for number in self.disk.order.clone() {
            let op = &self.disk.ops[&number];
            let has_begun = op.done > 0;
            if op.driver != driver || op.token != token || has_begun || self.random.percent(50) {
                continue;
            }
            self.trace(|| format!("file operation {number} is canceled"));
            self.file_forget(number);
            let result = Err(io::Error::from_raw_os_error(ECANCELED));
            self.complete_file(driver, token, result);
        }
    }

    /// What hangs goes on.
    pub fn release_hung(&mut self) {
        for number in self.disk.order.clone() {
            let op = self.disk.ops.get_mut(&number).expect("listed");
            // Its late event finds nothing.
            if std::mem::take(&mut op.hangs) && op.stage == DiskStage::Begun {
                let delay = self.random.around(self.disk.settings.latency);
                self.after(delay, WorldEvent::File(number));
            }
        }
    }

    /// The process of a driver ended: what it had under way is carried out
    /// whole, up to some block, or not at all.
    pub fn files_die(&mut self, driver: DriverId) {
        for number in self.disk.order.clone() {
            if self.disk.ops[&number].driver != driver {
                continue;
            }
            let op = self.file_forget(number).expect("listed");
            if let (DiskOp::Sync, Err(errno)) = (op.what, op.result)
                && !INTERRUPTIONS.contains(&errno)
            {
                // No process is left that learns of it.
                self.disk.files[op.file].lose(op.dirty.iter().copied());
            }
            let block = self.disk.files[op.file].block_bytes;
            let blocks = (op.len / block) as u64;
            let whole = op.done > 0 || self.random.percent(50);
            let until = match whole {
                true => op.len,
                false => self.random.below(blocks + 1) as usize * block,
            };
            if op.result.is_err() && !op.is_cached || until <= op.done {
                continue;
            }
            let file = &mut self.disk.files[op.file];
            let mut bytes = vec![0; until - op.done];
            match op.what {
                DiskOp::Write(buf, _) => {
                    mem::copy_out(buf.slice(op.done as u32, bytes.len() as u32), &mut bytes);
                }
                DiskOp::Zero => {}
                DiskOp::Read(_) | DiskOp::Sync => continue,
            }
            file.write(op.offset + op.done, &bytes);
        }
        self.disk.workers.remove(&driver);
        self.disk.timers.retain(|_, (of, _)| *of != driver);
    }

    /// The power fails: of what is newer than the medium, any sector may have
    /// made it. Nothing is under way any more.
    pub fn power_cut(&mut self) {
        assert!(self.disk.ops.is_empty(), "the processes died before");
        let survives = self.random.pick(&[0, 20, 50, 80, 100]);
        for file in &mut self.disk.files {
            for sector in 0..file.dirty.len() {
                if std::mem::take(&mut file.dirty[sector]) && self.random.percent(survives) {
                    let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                    file.medium[bytes.clone()].copy_from_slice(&file.cache[bytes]);
                }
            }
            file.cache.clone_from(&file.medium);
            file.has_lost = false;
        }
    }
}
