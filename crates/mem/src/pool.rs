//! Buffers in flight: one pool a reactor, last in first out so that they stay
//! in cache, growing by chunks from the one [`Budget`].

use crate::budget::{Budget, CHUNK_BYTES, MemoryUse, SMALL_BYTES_MAX, SMALL_CLASSES};
use crate::region::{BufRange, Region};
use crate::share::{Account, Share};
use machine::work;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// The largest buffer that a pool lends, in bytes.
pub const BUF_BYTES_MAX: u32 = CHUNK_BYTES as u32;
/// Bytes of a large [`Stage`].
pub const STAGE_BYTES: u32 = 256 << 10;
/// Sizes that a pool lends, in bytes; a request is rounded up to the next. The
/// last is large stages, which are kept apart: payload must not use them up.
const CLASS_BYTES: [u32; 9] = [
    4 << 10,
    16 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    STAGE_BYTES,
];
/// Bytes of a stage that has memory of its own.
const OWN_STAGE_BYTES: u32 = CLASS_BYTES[0];
/// Of large stages.
const STAGE_CLASS: u8 = (CLASS_BYTES.len() - 1) as u8;
/// Address space of a pool where the budget is larger than any machine.
const POOL_BYTES_MAX: u64 = 1 << 40;
const UNIT_BYTES: u64 = 4096;
const UNITS_PER_CHUNK: u32 = (CHUNK_BYTES / UNIT_BYTES) as u32;

const _: () = assert!(CLASS_BYTES[STAGE_CLASS as usize - 1] == BUF_BYTES_MAX);
const _: () = assert!(CLASS_BYTES[SMALL_CLASSES - 1] as u64 == SMALL_BYTES_MAX);

/// Lends buffers and stages. Clones share one pool; it stays on its thread.
#[derive(Clone)]
pub struct Pool {
    inner: Rc<PoolInner>,
    /// What its buffers are counted to.
    account: Option<Rc<Account>>,
}

struct PoolInner {
    region: Region,
    budget: Arc<Budget>,
    lists: RefCell<Lists>,
}

struct Lists {
    /// Free buffers of every class, in units from the start of the region.
    free: [Vec<u32>; CLASS_BYTES.len()],
    chunks: Vec<Chunk>,
    /// Chunks that were given back and may be reserved again.
    idle_chunks: Vec<u32>,
    /// See [`Pool::given_back`].
    given_back: u64,
}

#[derive(Clone, Copy)]
struct Chunk {
    class: u8,
    /// What it was reserved for.
    use_: MemoryUse,
    /// Buffers of it that are lent out.
    lent: u32,
    /// Some were since [`Pool::trim_unused`].
    was_lent: bool,
}

impl Chunk {
    fn of(class: u8, use_: MemoryUse) -> Chunk {
        Chunk {
            class,
            use_,
            lent: 0,
            was_lent: true,
        }
    }
}

impl Pool {
    /// An empty pool that reserves from `budget`, which is for it and perhaps others. Fails if
    /// there is no address space left.
    pub fn new(budget: Arc<Budget>) -> io::Result<Pool> {
        Pool::with(budget, Region::anonymous)
    }

    /// The same in memory that may be registered: see [`crate::blocks`].
    pub fn in_small_pages(budget: Arc<Budget>) -> io::Result<Pool> {
        Pool::with(budget, Region::small_pages)
    }

    fn with(budget: Arc<Budget>, map: fn(u64) -> io::Result<Region>) -> io::Result<Pool> {
        let bytes = budget.max().clamp(CHUNK_BYTES, POOL_BYTES_MAX);
        let region = map(bytes / CHUNK_BYTES * CHUNK_BYTES)?;
        let lists = Lists {
            free: Default::default(),
            chunks: Vec::new(),
            idle_chunks: Vec::new(),
            given_back: 0,
        };
        Ok(Pool {
            inner: Rc::new(PoolInner {
                region,
                budget,
                lists: RefCell::new(lists),
            }),
            account: None,
        })
    }

    /// The same pool for one connection of a host: its buffers are a part of the
    /// host's share.
    pub fn of(&self, share: Arc<Share>) -> Pool {
        Pool {
            inner: Rc::clone(&self.inner),
            account: Some(Account::new(share)),
        }
    }

    /// A buffer of `len` bytes with any content, or `None` where `memory_max` or
    /// the host's share is in the way: wait for buffers to come back. Panics
    /// over [`BUF_BYTES_MAX`].
    #[inline]
    pub fn get(&self, len: u32) -> Option<Buf> {
        let class = class_of(len);
        let Some(account) = &self.account else {
            return self.take(class, len, MemoryUse::of(class));
        };
        let wanted = (CLASS_BYTES[usize::from(class)].into(), is_small(class));
        account.within(wanted, || self.take(class, len, MemoryUse::of(class)))
    }

    /// Whether what it last could not lend was a small buffer. Larger ones leave memory
    /// to those: a command that waits for one waits behind no larger one.
    #[cold]
    pub fn has_refused_small(&self) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.has_refused_small())
    }

    /// Buffers for `len` bytes together, each but the last of [`BUF_BYTES_MAX`]:
    /// all of them, or none: then others of its host leave it as much as that, until
    /// it has them or [`Pool::forget_claim`].
    #[cold]
    pub fn get_several(&self, len: u32) -> Option<Vec<Buf>> {
        let pieces = || {
            let starts = (0..len).step_by(BUF_BYTES_MAX as usize);
            starts.map(|at| (len - at).min(BUF_BYTES_MAX))
        };
        let bytes = |piece| u64::from(CLASS_BYTES[usize::from(class_of(piece))]);
        let account = self.account.as_ref();
        let all = pieces().map(bytes).sum();
        let bufs = pieces().map(|len| self.take(class_of(len), len, MemoryUse::of(class_of(len))));
        let Some(account) = account else {
            return bufs.collect();
        };
        let wanted = (all, all <= SMALL_BYTES_MAX);
        let bufs = account.within(wanted, || bufs.collect());
        match &bufs {
            Some(_) => account.forget_claim(),
            None => account.claim(all),
        }
        bufs
    }

    /// What needed several buffers at once waits for them no more.
    #[cold]
    pub fn forget_claim(&self) {
        if let Some(account) = &self.account {
            account.forget_claim();
        }
    }

    /// The same for a command that has its data and ends when it has this: no
    /// share is in its way, and where there is no other memory it has some of
    /// what is kept for stages.
    pub fn get_to_finish(&self, len: u32) -> Option<Buf> {
        let class = class_of(len);
        let buf = self.take(class, len, MemoryUse::of(class));
        let stage =
            || (len <= STAGE_BYTES).then(|| self.take(STAGE_CLASS, len, MemoryUse::Stage))?;
        buf.or_else(stage)
    }

    /// A buffer from the memory that is kept for stages, for a command that
    /// keeps those behind it from being received; `None` also over
    /// [`STAGE_BYTES`], and where the host has its part of that memory.
    #[cold]
    pub fn get_spare(&self, len: u32) -> Option<Buf> {
        let bytes = u64::from(STAGE_BYTES);
        let account = self.account.as_ref();
        if len > STAGE_BYTES || account.is_some_and(|account| !account.take_spare(bytes)) {
            return None;
        }
        let mut buf = self.take(STAGE_CLASS, len, MemoryUse::Stage);
        match &mut buf {
            Some(buf) => buf.is_spare = true,
            None => account
                .into_iter()
                .for_each(|account| account.give_spare(bytes)),
        }
        buf
    }

    /// Reserves `n` bytes for payload that lies elsewhere, as a part of the host's
    /// share; false as in [`Pool::get`].
    pub fn try_reserve(&self, n: u64) -> bool {
        let try_once = || self.inner.budget.try_reserve(n, MemoryUse::Payload);
        let reserve = || try_once() || (self.trim() > 0 && try_once());
        let Some(account) = &self.account else {
            return reserve();
        };
        let wanted = (n, false);
        let reserved = account.within(wanted, || reserve().then(|| account.take(wanted)));
        reserved.is_some()
    }

    /// The same, given back when what is returned is dropped.
    pub fn reserve(&self, bytes: u64) -> Option<Reserved> {
        let reserved = || Reserved {
            pool: self.clone(),
            bytes,
        };
        self.try_reserve(bytes).then(reserved)
    }

    /// Gives `n` bytes back that were reserved with [`Pool::try_reserve`].
    pub fn release(&self, n: u64) {
        self.inner.budget.release(n, MemoryUse::Payload);
        self.inner.lists.borrow_mut().given_back += 1;
        if let Some(account) = &self.account {
            account.give((n, false));
        }
    }

    #[inline]
    fn take(&self, class: u8, len: u32, use_: MemoryUse) -> Option<Buf> {
        let unit = self.inner.take(class, use_)?;
        if let Some(account) = &self.account {
            account.take((CLASS_BYTES[usize::from(class)].into(), is_small(class)));
        }
        Some(Buf {
            pool: Rc::clone(&self.inner),
            account: self.account.clone(),
            unit,
            class,
            len,
            is_spare: false,
        })
    }

    /// An empty stage of [`STAGE_BYTES`], or `None` as in [`Pool::get`], but that
    /// payload leaves some memory for stages.
    #[inline]
    pub fn stage(&self) -> Option<Stage> {
        self.lend_stage(STAGE_CLASS)
    }

    /// An empty stage of at least `len` bytes. Where there is no memory for it, it has
    /// 4 KiB of its own, beside `memory_max`: connections that wait keep stages for as
    /// long as a volume hangs, and the others receive all the same.
    #[inline]
    pub fn stage_of(&self, len: u32) -> Stage {
        self.lend_stage(stage_class_of(len))
            .unwrap_or_else(Stage::own)
    }

    #[inline]
    fn lend_stage(&self, class: u8) -> Option<Stage> {
        let buf = self.take(class, CLASS_BYTES[usize::from(class)], MemoryUse::Stage)?;
        let at = buf.range().as_ptr();
        Some(Stage {
            memory: StageMemory::Lent(buf),
            at,
            len: 0,
        })
    }

    /// How often a buffer, or memory that was reserved, has come back: a
    /// connection that waits for memory may find some when it grows.
    pub fn given_back(&self) -> u64 {
        self.inner.lists.borrow().given_back
    }

    /// Buffers and stages that are lent out now.
    pub fn lent(&self) -> u64 {
        let lists = self.inner.lists.borrow();
        lists.chunks.iter().map(|chunk| u64::from(chunk.lent)).sum()
    }

    /// Bytes reserved from the budget now.
    pub fn reserved_bytes(&self) -> u64 {
        let lists = self.inner.lists.borrow();
        (lists.chunks.len() - lists.idle_chunks.len()) as u64 * CHUNK_BYTES
    }

    /// The budget from which it reserves.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.inner.budget
    }

    /// Gives back every chunk of which nothing is lent out; the number of
    /// bytes given back.
    pub fn trim(&self) -> u64 {
        self.inner.trim(|chunk| chunk.lent == 0)
    }

    /// The same of those of which nothing was lent out since it was called last.
    pub fn trim_unused(&self) -> u64 {
        let bytes = self.inner.trim(|chunk| chunk.lent == 0 && !chunk.was_lent);
        for chunk in &mut self.inner.lists.borrow_mut().chunks {
            chunk.was_lent = chunk.lent > 0;
        }
        bytes
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} bytes reserved)", self.reserved_bytes())
    }
}

impl MemoryUse {
    #[inline]
    fn of(class: u8) -> MemoryUse {
        match is_small(class) {
            true => MemoryUse::SmallPayload,
            false => MemoryUse::Payload,
        }
    }
}

#[inline]
fn is_small(class: u8) -> bool {
    usize::from(class) < SMALL_CLASSES
}

/// The smallest class that holds `len` bytes.
#[inline]
fn class_of(len: u32) -> u8 {
    let classes = &CLASS_BYTES[..usize::from(STAGE_CLASS)];
    let class = classes.iter().position(|&bytes| len <= bytes);
    class.expect("buffer larger than BUF_BYTES_MAX") as u8
}

/// The same of a stage: large ones have a class of their own.
#[inline]
fn stage_class_of(len: u32) -> u8 {
    match class_of(len) {
        class if CLASS_BYTES[usize::from(class)] == STAGE_BYTES => STAGE_CLASS,
        class => class,
    }
}

/// Memory beside the pool that counts as what it lends: see [`Pool::reserve`].
#[derive(Debug)]
pub struct Reserved {
    pool: Pool,
    bytes: u64,
}

impl Reserved {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pool.release(self.bytes);
    }
}

impl PoolInner {
    #[inline]
    fn take(&self, class: u8, use_: MemoryUse) -> Option<u32> {
        let mut lists = self.lists.borrow_mut();
        let unit = match lists.free[usize::from(class)].pop() {
            Some(unit) => unit,
            None => {
                drop(lists);
                self.grow(class, use_)?;
                lists = self.lists.borrow_mut();
                lists.free[usize::from(class)].pop()?
            }
        };
        let chunk = &mut lists.chunks[(unit / UNITS_PER_CHUNK) as usize];
        chunk.lent += 1;
        chunk.was_lent = true;
        Some(unit)
    }

    #[inline]
    fn give(&self, unit: u32, class: u8) {
        let mut lists = self.lists.borrow_mut();
        lists.chunks[(unit / UNITS_PER_CHUNK) as usize].lent -= 1;
        lists.given_back += 1;
        lists.free[usize::from(class)].push(unit);
    }

    /// Reserves one more chunk for `class`, taking free chunks from other
    /// classes where the ceiling is reached.
    #[cold]
    fn grow(&self, class: u8, use_: MemoryUse) -> Option<()> {
        let use_ = match use_ {
            MemoryUse::SmallPayload if !self.lists.borrow().has_first(class) => {
                MemoryUse::FirstSmallPayload
            }
            use_ => use_,
        };
        let reserve = || self.budget.try_reserve(CHUNK_BYTES, use_);
        if !reserve() && (self.trim(|chunk| chunk.lent == 0) == 0 || !reserve()) {
            return None;
        }
        let mut lists = self.lists.borrow_mut();
        let chunk = match lists.idle_chunks.pop() {
            Some(chunk) => chunk,
            None => {
                let chunk = lists.chunks.len() as u32;
                if u64::from(chunk + 1) * CHUNK_BYTES > self.region.len() {
                    self.budget.release(CHUNK_BYTES, use_);
                    return None;
                }
                lists.chunks.push(Chunk::of(class, use_));
                chunk
            }
        };
        // The kernel finds and clears its memory when it is first touched: that takes a
        // share of a turn, and several on a virtual machine that has never used it.
        work::use_up();
        lists.chunks[chunk as usize] = Chunk::of(class, use_);
        let step = CLASS_BYTES[usize::from(class)] / UNIT_BYTES as u32;
        let first = chunk * UNITS_PER_CHUNK;
        let units = (first..first + UNITS_PER_CHUNK).step_by(step as usize);
        // Lowest address last, to be lent first. Room for what is lent out is
        // made here, so that giving back never allocates.
        let free = &mut lists.free[usize::from(class)];
        free.extend(units.rev());
        let owned = lists.owned(class);
        let free = &mut lists.free[usize::from(class)];
        free.reserve(owned - free.len());
        Some(())
    }

    #[cold]
    fn trim(&self, is_meant: impl Fn(&Chunk) -> bool) -> u64 {
        let mut lists = self.lists.borrow_mut();
        let Lists {
            free,
            chunks,
            idle_chunks,
            ..
        } = &mut *lists;
        let is_idle = |chunk: u32| idle_chunks.contains(&chunk);
        let unused: Vec<u32> = (0..chunks.len() as u32)
            .filter(|&chunk| is_meant(&chunks[chunk as usize]) && !is_idle(chunk))
            .collect();
        if unused.is_empty() {
            return 0;
        }
        for list in free.iter_mut() {
            list.retain(|unit| unused.binary_search(&(unit / UNITS_PER_CHUNK)).is_err());
        }
        for &chunk in &unused {
            // A refusal leaves the memory with us, which is no harm.
            let _ = self
                .region
                .discard(u64::from(chunk) * CHUNK_BYTES, CHUNK_BYTES);
            let use_ = chunks[chunk as usize].use_;
            self.budget.release(CHUNK_BYTES, use_);
        }
        let bytes = unused.len() as u64 * CHUNK_BYTES;
        idle_chunks.extend(unused);
        bytes
    }
}

impl Lists {
    /// Whether there is a first chunk of small payload of `class`.
    fn has_first(&self, class: u8) -> bool {
        let mut chunks = (0..).zip(&self.chunks);
        chunks.any(|(n, chunk)| {
            chunk.class == class
                && chunk.use_ == MemoryUse::FirstSmallPayload
                && !self.idle_chunks.contains(&n)
        })
    }

    /// Buffers of `class`, lent or free.
    fn owned(&self, class: u8) -> usize {
        let lent = self.chunks.iter().filter(|chunk| chunk.class == class);
        let lent: u32 = lent.map(|chunk| chunk.lent).sum();
        self.free[usize::from(class)].len() + lent as usize
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        let lists = self.lists.get_mut();
        for (n, chunk) in lists.chunks.iter().enumerate() {
            if !lists.idle_chunks.contains(&(n as u32)) {
                self.budget.release(CHUNK_BYTES, chunk.use_);
            }
        }
    }
}

/// Memory of a pool by its handle only: the kernel or a peer may write it.
/// Returns to the pool when dropped.
pub struct Buf {
    pool: Rc<PoolInner>,
    account: Option<Rc<Account>>,
    unit: u32,
    len: u32,
    class: u8,
    /// Of [`Pool::get_spare`].
    is_spare: bool,
}

impl Buf {
    /// Names exactly the bytes asked for. Stale once the buffer is dropped:
    /// the bytes are then another buffer's.
    #[inline]
    pub fn range(&self) -> BufRange {
        self.pool
            .region
            .range(u64::from(self.unit) * UNIT_BYTES, self.len)
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it holds no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        self.pool.give(self.unit, self.class);
        if let Some(account) = &self.account {
            let bytes = CLASS_BYTES[usize::from(self.class)].into();
            account.give((bytes, is_small(self.class)));
            if self.is_spare {
                account.give_spare(bytes);
            }
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

/// Bytes received and not yet parsed. One owner: no handle names them.
pub struct Stage {
    memory: StageMemory,
    at: *mut u8,
    len: u32,
}

enum StageMemory {
    Lent(Buf),
    /// [`OWN_STAGE_BYTES`] of the heap.
    Own(Vec<u8>),
}

impl Stage {
    #[cold]
    fn own() -> Stage {
        let mut bytes = vec![0; OWN_STAGE_BYTES as usize];
        let at = bytes.as_mut_ptr();
        Stage {
            memory: StageMemory::Own(bytes),
            at,
            len: 0,
        }
    }

    #[inline]
    fn class(&self) -> u8 {
        match &self.memory {
            StageMemory::Lent(buf) => buf.class,
            StageMemory::Own(_) => stage_class_of(OWN_STAGE_BYTES),
        }
    }

    /// What was received.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is ours alone while `self` lives, was zero from
        // the start, and `len` never passes its capacity.
        unsafe { std::slice::from_raw_parts(self.at, self.len as usize) }
    }

    #[inline]
    fn memory(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; it is as long as its capacity.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.capacity()) }
    }

    /// Bytes received.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it holds no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        match &self.memory {
            StageMemory::Lent(buf) => buf.len as usize,
            StageMemory::Own(bytes) => bytes.len(),
        }
    }

    /// Bytes it can hold more.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Drops what lies before `at` and moves the rest to the front. Panics
    /// past the end.
    #[inline]
    pub fn keep_from(&mut self, at: usize) {
        assert!(at <= self.len(), "keep_from past the end of a stage");
        let len = self.len();
        self.memory().copy_within(at..len, 0);
        self.len = (len - at) as u32;
    }

    /// Appends `bytes`. Panics if there is no room for them.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(), "stage overflow");
        let at = self.len();
        self.memory()[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u32;
    }

    /// Makes room for `more` bytes, or as much as a stage can have, and for no
    /// more than that: moves to a stage of another size where there is one.
    #[inline]
    pub fn fit(&mut self, pool: &Pool, more: u32) {
        let wanted = (self.len + more.min(STAGE_BYTES)).min(STAGE_BYTES);
        let class = stage_class_of(wanted);
        if class == self.class() {
            return;
        }
        let own = || (wanted <= OWN_STAGE_BYTES).then(Stage::own);
        if let Some(mut other) = pool.lend_stage(class).or_else(own) {
            other.append(self.bytes());
            *self = other;
        }
    }

    /// Room for `more` bytes, whatever there is: without memory of the pool it has its own,
    /// beside `memory_max`. For what is of no use in parts.
    #[inline]
    pub fn make_room(&mut self, pool: &Pool, more: u32) {
        if self.room() < more as usize {
            self.fit(pool, more);
        }
        if self.room() < more as usize {
            let mut bytes = vec![0; self.len() + more as usize];
            bytes[..self.len()].copy_from_slice(self.bytes());
            self.at = bytes.as_mut_ptr();
            self.memory = StageMemory::Own(bytes);
        }
    }

    /// Where the next received byte goes; [`Stage::room`] bytes may be written.
    #[inline]
    pub fn spare_ptr(&mut self) -> *mut u8 {
        self.at.wrapping_add(self.len as usize)
    }

    /// `n` bytes were written at [`Stage::spare_ptr`]. Panics past the end.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.room(), "stage overflow");
        self.len += n as u32;
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stage({} of {} bytes)", self.len, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{copy_in, is_zero};

    fn pool(max_bytes: u64) -> Pool {
        Pool::new(Budget::new(max_bytes)).unwrap()
    }

    #[test]
    fn every_buffer_has_its_own_bytes() {
        let pool = pool(64 << 20);
        let sizes = [1, 4096, 4097, 65_536, 131_072, 200_000, BUF_BYTES_MAX];
        let bufs: Vec<Buf> = sizes
            .iter()
            .cycle()
            .take(70)
            .map(|&len| pool.get(len).unwrap())
            .collect();
        let mut spans: Vec<(u64, u64)> = bufs
            .iter()
            .map(|buf| (buf.range().offset(), u64::from(buf.len())))
            .collect();
        spans.sort();
        for pair in spans.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "overlap {pair:?}");
        }
    }

    #[test]
    fn memory_that_no_turn_has_used_costs_a_turn_its_share() {
        let pool = pool(64 << 20);
        let cost_of_two_mib = || {
            let mut units = 0;
            let take = || (0..2).map(|_| pool.get(1 << 20).unwrap()).collect();
            drop::<Vec<Buf>>(work::take_turn(&mut units, work::TURN_UNITS_MAX, take));
            units
        };
        assert_eq!(cost_of_two_mib(), work::TURN_UNITS_MAX);
        assert_eq!(cost_of_two_mib(), 0, "it has its memory");
        pool.trim();
        assert_eq!(cost_of_two_mib(), work::TURN_UNITS_MAX, "it was given back");
    }

    #[test]
    fn memory_that_was_not_lent_for_an_interval_is_given_back_though_other_is_in_use() {
        let pool = pool(64 << 20);
        let kept = pool.get(4096).unwrap();
        drop(pool.get(BUF_BYTES_MAX).unwrap());
        assert_eq!(pool.trim_unused(), 0, "it was lent just now");
        drop(pool.get(BUF_BYTES_MAX).unwrap());
        assert_eq!(pool.trim_unused(), 0, "and again");
        assert_eq!(pool.trim_unused(), CHUNK_BYTES);
        assert_eq!(pool.trim_unused(), 0);
        drop(kept);
    }

    #[test]
    fn payload_leaves_memory_for_stages() {
        let pool = pool(32 << 20);
        let mut payload = Vec::new();
        for len in [BUF_BYTES_MAX, STAGE_BYTES, 4096] {
            while let Some(buf) = pool.get(len) {
                payload.push(buf);
            }
        }
        let stages: Vec<_> = (0..8).map(|_| pool.stage()).collect();
        assert!(stages.iter().all(Option::is_some), "one chunk of them");
        assert!(pool.get(STAGE_BYTES).is_none());
    }

    #[test]
    fn stages_leave_memory_for_payload() {
        let pool = pool(32 << 20);
        let stages: Vec<_> = std::iter::from_fn(|| pool.stage()).collect();
        assert_eq!(stages.len(), 80, "20 MiB of them");
        let small: Vec<_> = std::iter::from_fn(|| pool.get(4096)).collect();
        assert_eq!(small.len(), 512, "one chunk of it");
        let large: Vec<_> = std::iter::from_fn(|| pool.get(BUF_BYTES_MAX)).collect();
        assert_eq!(large.len(), 4);
    }

    #[test]
    fn last_in_is_first_out() {
        let pool = pool(8 << 20);
        let (a, b) = (pool.get(4096).unwrap(), pool.get(4096).unwrap());
        let (at_a, at_b) = (a.range().offset(), b.range().offset());
        drop(a);
        drop(b);
        assert_eq!(pool.get(10).unwrap().range().offset(), at_b);
        let _b = pool.get(10).unwrap();
        assert_eq!(pool.get(10).unwrap().range().offset(), at_a);
    }

    #[test]
    fn the_ceiling_holds_and_buffers_come_back() {
        let pool = pool(4 << 20);
        let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.get(1 << 20)).collect();
        assert_eq!(bufs.len(), 4);
        assert!(pool.get(4096).is_none());
        assert!(pool.budget().shortages() > 0);
        bufs.pop();
        assert!(pool.get(1 << 20).is_some());
        assert_eq!(pool.budget().used(), 4 << 20);
    }

    #[test]
    fn free_chunks_serve_other_sizes() {
        let pool = pool(2 << 20);
        let small: Vec<Buf> = std::iter::from_fn(|| pool.get(4096)).collect();
        assert_eq!(small.len(), 512);
        assert!(pool.get(1 << 20).is_none());
        drop(small);
        let large = pool.get(1 << 20).unwrap();
        assert!(pool.get(4096).is_none());
        drop(large);
        assert!(pool.get(4096).is_some());
    }

    #[test]
    fn trim_and_drop_give_everything_back() {
        let budget = Budget::new(64 << 20);
        let pool = Pool::new(Arc::clone(&budget)).unwrap();
        let kept = pool.get(4096).unwrap();
        let other = pool.get(1 << 20).unwrap();
        copy_in(other.range(), &vec![1; 1 << 20]);
        let range = other.range();
        drop(other);
        assert_eq!(budget.used(), 4 << 20);
        assert_eq!(pool.trim(), 2 << 20);
        assert!(is_zero(range), "memory was not given back");
        assert_eq!(pool.trim(), 0);
        assert_eq!(pool.reserved_bytes(), 2 << 20);
        drop(pool);
        assert_eq!(budget.used(), 2 << 20, "a buffer keeps its pool alive");
        drop(kept);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn two_pools_share_one_ceiling() {
        let budget = Budget::new(4 << 20);
        let a = Pool::new(Arc::clone(&budget)).unwrap();
        let b = Pool::new(Arc::clone(&budget)).unwrap();
        let held = (a.get(2 << 20).unwrap(), a.get(2 << 20).unwrap());
        assert_eq!((a.lent(), b.lent()), (2, 0));
        assert!(b.get(1).is_none());
        drop(held);
        assert!(b.get(1).is_none(), "the other pool still holds its chunks");
        assert!(budget.shortages() > 0);
        a.trim();
        assert!(b.get(1).is_some());
    }

    /// Chunks belong to one pool and one size.
    #[test]
    fn pool_finds_small_buffers_of_each_size_where_another_pool_has_taken_all() {
        let budget = Budget::of_pools(32 << 20, 2);
        let a = Pool::new(Arc::clone(&budget)).unwrap();
        let b = Pool::new(budget).unwrap();
        for first in [4 << 10, 16 << 10] {
            let lens = [first].into_iter().chain(CLASS_BYTES);
            let all = |len| std::iter::from_fn(|| a.get(len)).collect::<Vec<Buf>>();
            let held: Vec<Vec<Buf>> = lens.map(all).collect();
            let stages: Vec<_> = std::iter::from_fn(|| a.stage()).collect();
            let small = [4 << 10, 16 << 10].map(|len| b.get(len));
            assert!(small.iter().all(Option::is_some), "{small:?}");
            drop((held, stages));
            a.trim();
        }
    }

    #[test]
    fn a_stage_keeps_its_tail() {
        let pool = pool(8 << 20);
        let mut stage = pool.stage().unwrap();
        assert_eq!(stage.capacity(), STAGE_BYTES as usize);
        stage.append(b"header and more");
        stage.keep_from(11);
        assert_eq!(stage.bytes(), b"more");
        stage.append(b"!");
        assert_eq!(stage.bytes(), b"more!");
        assert_eq!(stage.room(), STAGE_BYTES as usize - 5);
        stage.keep_from(5);
        assert!(stage.is_empty());
    }

    #[test]
    fn a_small_stage_grows_with_its_content() {
        let pool = pool(8 << 20);
        let mut stage = pool.stage_of(100);
        stage.append(b"head");
        stage.fit(&pool, 4092);
        assert_eq!(stage.capacity(), 4096);
        stage.fit(&pool, 4093);
        assert_eq!(stage.capacity(), 16 << 10);
        stage.fit(&pool, u32::MAX);
        assert_eq!(stage.capacity(), STAGE_BYTES as usize);
        assert_eq!(stage.bytes(), b"head");
    }

    #[test]
    fn a_stage_without_memory_of_the_pool_is_small_and_grows_when_there_is_some() {
        let pool = pool(2 << 20);
        let all = pool.get(BUF_BYTES_MAX).unwrap();
        let mut stage = pool.stage_of(STAGE_BYTES);
        assert_eq!(stage.capacity(), OWN_STAGE_BYTES as usize);
        stage.append(b"head");
        stage.fit(&pool, STAGE_BYTES);
        assert_eq!(stage.room(), OWN_STAGE_BYTES as usize - 4);
        drop(all);
        stage.fit(&pool, STAGE_BYTES);
        assert_eq!(stage.capacity(), STAGE_BYTES as usize);
        // Its chunk is all that there is: what is left of it needs no other.
        stage.fit(&pool, 0);
        assert_eq!(stage.capacity(), OWN_STAGE_BYTES as usize);
        assert_eq!((stage.bytes(), pool.lent()), (&b"head"[..], 0));
    }

    #[test]
    #[should_panic(expected = "stage overflow")]
    fn a_stage_does_not_overflow() {
        let mut stage = pool(8 << 20).stage_of(4096);
        stage.advance(4096);
        stage.append(b"x");
    }

    #[test]
    #[should_panic(expected = "larger than")]
    fn impossible_size_is_a_bug() {
        pool(8 << 20).get(BUF_BYTES_MAX + 1);
    }
}
