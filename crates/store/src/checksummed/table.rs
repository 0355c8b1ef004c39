//! The sums of all blocks, in pages, as many of them in memory as are in use.
//!
//! A page is kept in memory while a write is between its sums and its data, and until the sums
//! that its blocks had before are taken away (`upkeep.rs`): what is known of which sum counts is
//! known here alone. A page that comes from the file again may have any of its blocks' sums.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use faults::Fault;
use mem::{BufRange, Region};
use reactor::Ticket;

use super::sums::{SUMS_BYTES, Sums};

/// Bytes of a page.
pub(super) const PAGE_BYTES: u32 = 4096;

/// Blocks whose sums are in a page.
pub(super) const PAGE_BLOCKS: u64 = (PAGE_BYTES / SUMS_BYTES) as u64;

/// Pages of a piece of memory: it is taken so many at a time.
const CHUNK_PAGES: usize = 1024;

/// Pages in memory at most, where there is a file: 64 MiB.
pub(super) const PAGES_MAX: usize = 16 << 10;

/// When a block was written that is durable, and before which flush the first of those is that
/// are not known to be.
const DURABLE: u64 = 1;
const FIRST_EPOCH: u64 = 2;

/// See the module.
pub(super) struct SumTable {
    /// The pages lie in a file, too.
    has_file: bool,
    /// Nothing is ever written.
    read_only: bool,
    pages_max: usize,
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    chunks: Vec<Region>,
    frames: Vec<SumsFrame>,
    free: Vec<usize>,
    by_page: HashMap<u64, usize>,
    /// Where it is looked first for a page that is not in use.
    hand: usize,
    /// Flushes that have begun, and before which of them all is durable.
    epoch: u64,
    flushed: u64,
    /// Pages that writes may keep in memory, and pages with sums to take away.
    roomed: usize,
    stale: usize,
    waiting: VecDeque<Ticket>,
}

/// Which sum of a block counts.
#[derive(Clone, Copy, Default)]
struct KnownSums {
    /// Before which flush the block was written; 0: any of its sums may count.
    epoch: u64,
    /// That of what it was written with last, or is being written with.
    slot: usize,
}

/// A page in memory.
#[derive(Default)]
struct SumsFrame {
    page: u64,
    /// Which sum of each of its blocks counts. None: it is not known of any.
    known: Option<Box<[KnownSums; PAGE_BLOCKS as usize]>>,
    /// Writes that are between its sums and their data, and others that use its memory.
    pins: u32,
    /// Some of its blocks have sums that are to be taken away.
    is_stale: bool,
    is_loading: bool,
    was_used: bool,
    /// They wait for it to be loaded.
    waiting: Vec<Ticket>,
}

/// What there is to do for a page.
pub(super) enum PageLoad {
    /// It is there.
    Ready,
    /// It is to be read to here.
    Read(BufRange),
    /// Another reads it, or there is no memory for it yet: its ticket is rung.
    Wait,
}

/// How the sums of blocks compare with what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// They are not in memory.
    Missing,
    Good,
    /// That of this block, counted from the first, is another.
    Wrong(usize),
}

/// What came of giving blocks new sums.
pub(super) enum Entered {
    /// Their page is not in memory.
    Missing,
    /// So many of them have theirs.
    Some {
        count: usize,
        /// What of the page is to be written to the file, and where in it; `None` if nothing.
        write: Option<(BufRange, u64)>,
        /// Why the next one has not.
        stop: Option<EnterStop>,
    },
}

/// Why a block cannot have another sum now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnterStop {
    /// All is to be flushed first.
    Flush,
    /// It is to be read first.
    Settle,
}

/// Room for pages that a write keeps in memory, until it is dropped.
pub(super) struct Room {
    table: Arc<SumTable>,
    pages: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.table.state();
        state.roomed -= self.pages;
        state.call(self.pages);
    }
}

impl SumTable {
    pub(super) fn new(has_file: bool, read_only: bool, pages_max: usize) -> Arc<SumTable> {
        Arc::new(SumTable {
            has_file,
            read_only,
            pages_max,
            state: Mutex::new(TableState {
                epoch: FIRST_EPOCH,
                flushed: FIRST_EPOCH,
                ..TableState::default()
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// Room for so many pages; without it the caller is called, and asks again.
    pub(super) fn room(
        self: &Arc<Self>,
        pages: usize,
        caller: impl FnOnce() -> Ticket,
    ) -> Option<Room> {
        let mut state = self.state();
        let most = self.kept_max();
        let is_in_use = state.roomed + state.stale > 0;
        if self.has_file && is_in_use && state.roomed + pages + state.stale > most {
            state.waiting.push_back(caller());
            return None;
        }
        state.roomed += pages;
        let table = Arc::clone(self);
        Some(Room { table, pages })
    }

    /// Whether writes wait until sums are taken away.
    pub(super) fn is_short(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// What there is to do for a page. `Err`: there is no memory.
    pub(super) fn load(&self, page: u64, caller: impl FnOnce() -> Ticket) -> io::Result<PageLoad> {
        let mut state = self.state();
        if let Some(&at) = state.by_page.get(&page) {
            let frame = &mut state.frames[at];
            if !frame.is_loading {
                return Ok(PageLoad::Ready);
            }
            frame.waiting.push(caller());
            return Ok(PageLoad::Wait);
        }
        let most = if self.has_file {
            self.pages_max
        } else {
            usize::MAX
        };
        let Some(at) = state.take(most)? else {
            drop(state);
            caller().ring();
            return Ok(PageLoad::Wait);
        };
        state.frames[at] = SumsFrame {
            page,
            is_loading: self.has_file,
            was_used: true,
            ..SumsFrame::default()
        };
        state.by_page.insert(page, at);
        let memory = state.memory(at);
        mem::zero(memory);
        match self.has_file {
            true => Ok(PageLoad::Read(memory)),
            false => Ok(PageLoad::Ready),
        }
    }

    /// A page was read, or could not be.
    pub(super) fn loaded(&self, page: u64, is_good: bool) {
        let mut state = self.state();
        let at = state.by_page[&page];
        let frame = &mut state.frames[at];
        frame.is_loading = false;
        let waiting = std::mem::take(&mut frame.waiting);
        if !is_good {
            state.forget(at);
        }
        drop(state);
        waiting.into_iter().for_each(Ticket::ring);
    }

    /// Pages with sums to take away, and those that writes keep, at most. The rest is for reads.
    fn kept_max(&self) -> usize {
        self.pages_max / 4 * 3
    }

    /// Whether a read may say which sum of a block of this page counts.
    fn can_settle(&self, state: &TableState, at: usize) -> bool {
        let has_room = !self.has_file || state.roomed + state.stale < self.kept_max();
        !self.read_only && (state.frames[at].is_stale || has_room)
    }

    /// Compares blocks of one page, from `block` on, with what was read of them. A block that may
    /// have one of several sums has that from now on, unless too many pages are kept for such.
    pub(super) fn check(&self, block: u64, sums: &[u32]) -> Checked {
        let mut state = self.state();
        let Some(at) = state.ready(block / PAGE_BLOCKS) else {
            return Checked::Missing;
        };
        let first = (block % PAGE_BLOCKS) as usize;
        for (n, &sum) in sums.iter().enumerate() {
            let index = first + n;
            let (has, known) = (state.sums(at, index), state.frames[at].known(index));
            let slot = match known.epoch {
                0 => has.slot_of(sum),
                _ => (has.at(known.slot) == sum).then_some(known.slot),
            };
            match slot {
                Some(slot) if known.epoch == 0 && !has.is_one() && self.can_settle(&state, at) => {
                    state.settle(at, index, slot);
                }
                None if !faults::is(Fault::SumsUnchecked) => return Checked::Wrong(n),
                _ => {}
            }
        }
        Checked::Good
    }

    /// Gives blocks of one page, from `block` on, which nothing else is at, sums that they may have
    /// from now on, as well as those that they have. Their page stays in memory until [`SumTable::unpin`] if `pins`.
    pub(super) fn enter(&self, block: u64, sums: &[u32], pins: bool) -> Entered {
        let mut state = self.state();
        let page = block / PAGE_BLOCKS;
        let Some(at) = state.ready(page) else {
            return Entered::Missing;
        };
        state.frames[at].pins += u32::from(pins);
        let first = (block % PAGE_BLOCKS) as usize;
        let (mut stop, mut count, mut changed) = (None, 0, false);
        for &sum in sums {
            let index = first + count;
            let (has, known) = (state.still(at, index), state.frames[at].known(index));
            let Some((new, slot)) = has.with(sum, known.slot) else {
                stop = Some(match known.epoch {
                    0 => EnterStop::Settle,
                    _ => EnterStop::Flush,
                });
                break;
            };
            // What has one sum has that in the file.
            let is_same = has.is_one() && has == new;
            if !is_same {
                state.put(at, index, new);
                state.frames[at].set_known(index, KnownSums { epoch: 0, slot });
                changed = true;
            }
            count += 1;
        }
        let from = first as u32 * SUMS_BYTES;
        let len = count as u32 * SUMS_BYTES;
        let write = (changed && self.has_file).then(|| {
            let at_byte = page * u64::from(PAGE_BYTES) + u64::from(from);
            (state.memory(at).slice(from, len), at_byte)
        });
        Entered::Some { count, write, stop }
    }

    /// The data of blocks is there whose page is in memory: the last of their sums counts.
    pub(super) fn confirm(&self, block: u64, count: u64, is_durable: bool) {
        let mut state = self.state();
        for block in block..block + count {
            let at = state.by_page[&(block / PAGE_BLOCKS)];
            let index = (block % PAGE_BLOCKS) as usize;
            let has = state.sums(at, index);
            if has.is_one() {
                continue;
            }
            let slot = state.frames[at].known(index).slot;
            if !self.has_file {
                state.put(at, index, Sums::one(has.at(slot)));
                continue;
            }
            let epoch = if is_durable { DURABLE } else { state.epoch };
            state.frames[at].set_known(index, KnownSums { epoch, slot });
            state.note_stale(at);
        }
    }

    /// A block that may have one of several sums was read to write it: it has this one, or,
    /// where what was read has none of them, it will have none.
    pub(super) fn settle(&self, block: u64, sum: Option<u32>) {
        let mut state = self.state();
        let Some(at) = state.ready(block / PAGE_BLOCKS) else {
            return;
        };
        let index = (block % PAGE_BLOCKS) as usize;
        let has = state.sums(at, index);
        let slot = sum.and_then(|sum| has.slot_of(sum));
        state.settle(at, index, slot.unwrap_or(0));
    }

    /// Writes are done with pages, which were kept for them.
    pub(super) fn unpin(&self, pages: std::ops::Range<u64>) {
        let mut state = self.state();
        for page in pages {
            let at = state.by_page[&page];
            state.frames[at].pins -= 1;
        }
    }

    /// All that was confirmed is about to be flushed.
    pub(super) fn begin_flush(&self) -> u64 {
        let mut state = self.state();
        state.epoch += 1;
        state.epoch
    }

    /// The flush that has begun so is done.
    pub(super) fn flushed(&self, epoch: u64) {
        let mut state = self.state();
        state.flushed = state.flushed.max(epoch);
    }

    /// Whether there are sums to take away.
    pub(super) fn has_stale(&self) -> bool {
        self.state().stale > 0
    }

    /// Pages with sums to take away.
    pub(super) fn stale_pages(&self) -> Vec<u64> {
        let state = self.state();
        let stale = state.frames.iter().filter(|frame| frame.is_stale);
        let mut pages: Vec<u64> = stale.map(|frame| frame.page).collect();
        pages.sort_unstable();
        pages
    }

    /// Takes away the sums that blocks of a page had before what is durable, and keeps the page
    /// until [`SumTable::unpin`]: what is to be written to the file. Nothing writes to its blocks
    /// meanwhile. `None` if it has none.
    pub(super) fn clean(&self, page: u64) -> Option<BufRange> {
        let mut state = self.state();
        let at = state.ready(page).filter(|at| state.frames[*at].is_stale)?;
        state.frames[at].pins += 1;
        state.frames[at].is_stale = false;
        let mut is_stale = false;
        for index in 0..PAGE_BLOCKS as usize {
            let (has, still) = (state.sums(at, index), state.still(at, index));
            if still != has {
                state.put(at, index, still);
            }
            is_stale |= !still.is_one() && state.frames[at].known(index).epoch != 0;
        }
        state.frames[at].is_stale = is_stale;
        if !is_stale {
            state.frames[at].known = None;
            state.stale -= 1;
            state.call(usize::MAX);
        }
        Some(state.memory(at))
    }

    /// The volume ends at this block: those behind it are as if they were never written.
    pub(super) fn cut(&self, end: u64) {
        let mut state = self.state();
        let pages: Vec<(u64, usize)> = state.by_page.iter().map(|(p, at)| (*p, *at)).collect();
        for (page, at) in pages {
            let first = page * PAGE_BLOCKS;
            for block in end.max(first)..(first + PAGE_BLOCKS).max(end) {
                let index = (block - first) as usize;
                state.put(at, index, Sums::one(0));
                state.frames[at].forget(index);
            }
        }
    }
}

impl SumsFrame {
    fn known(&self, index: usize) -> KnownSums {
        self.known
            .as_ref()
            .map_or(KnownSums::default(), |known| known[index])
    }

    fn set_known(&mut self, index: usize, known: KnownSums) {
        let all = || Box::new([KnownSums::default(); PAGE_BLOCKS as usize]);
        self.known.get_or_insert_with(all)[index] = known;
    }

    fn forget(&mut self, index: usize) {
        if let Some(known) = &mut self.known {
            known[index] = KnownSums::default();
        }
    }

    fn is_in_use(&self) -> bool {
        self.pins > 0 || self.is_stale || self.is_loading
    }
}

impl TableState {
    /// Where a page lies that is in memory.
    fn ready(&mut self, page: u64) -> Option<usize> {
        let at = *self.by_page.get(&page)?;
        let frame = &mut self.frames[at];
        frame.was_used = true;
        (!frame.is_loading).then_some(at)
    }

    fn memory(&self, at: usize) -> BufRange {
        let offset = (at % CHUNK_PAGES) as u64 * u64::from(PAGE_BYTES);
        self.chunks[at / CHUNK_PAGES].range(offset, PAGE_BYTES)
    }

    fn sums(&self, at: usize, index: usize) -> Sums {
        let mut bytes = [0; SUMS_BYTES as usize];
        let from = index as u32 * SUMS_BYTES;
        mem::copy_out(self.memory(at).slice(from, SUMS_BYTES), &mut bytes);
        Sums::of_bytes(bytes)
    }

    /// The sums that a block may have still.
    fn still(&self, at: usize, index: usize) -> Sums {
        let has = self.sums(at, index);
        let KnownSums { epoch, slot } = self.frames[at].known(index);
        match epoch != 0 && epoch < self.flushed {
            true => Sums::one(has.at(slot)),
            false => has,
        }
    }

    fn put(&mut self, at: usize, index: usize, sums: Sums) {
        let from = index as u32 * SUMS_BYTES;
        mem::copy_in(self.memory(at).slice(from, SUMS_BYTES), &sums.bytes());
    }

    /// That at `slot` counts from now on. What lies in memory stays: it may be on its way to the
    /// file.
    fn settle(&mut self, at: usize, index: usize, slot: usize) {
        let epoch = self.epoch;
        self.frames[at].set_known(index, KnownSums { epoch, slot });
        self.note_stale(at);
    }

    fn note_stale(&mut self, at: usize) {
        let frame = &mut self.frames[at];
        if !std::mem::replace(&mut frame.is_stale, true) {
            self.stale += 1;
        }
    }

    /// A place for a page: one that is free, a new one, or that of a page that is not in use.
    fn take(&mut self, most: usize) -> io::Result<Option<usize>> {
        if let Some(at) = self.free.pop() {
            return Ok(Some(at));
        }
        if self.frames.len() < most {
            if self.frames.len() == self.chunks.len() * CHUNK_PAGES {
                let bytes = CHUNK_PAGES as u64 * u64::from(PAGE_BYTES);
                self.chunks.push(Region::small_pages(bytes)?);
            }
            self.frames.push(SumsFrame::default());
            return Ok(Some(self.frames.len() - 1));
        }
        for _ in 0..2 * self.frames.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.frames.len();
            let frame = &mut self.frames[at];
            if frame.is_in_use() || std::mem::take(&mut frame.was_used) {
                continue;
            }
            self.by_page.remove(&frame.page);
            return Ok(Some(at));
        }
        Ok(None)
    }

    /// A page is not in memory any more.
    fn forget(&mut self, at: usize) {
        self.by_page.remove(&self.frames[at].page);
        self.frames[at] = SumsFrame::default();
        self.free.push(at);
    }

    /// Calls those that wait for room.
    fn call(&mut self, most: usize) {
        let count = self.waiting.len().min(most);
        self.waiting.drain(..count).for_each(Ticket::ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::Bell;

    /// Has a page in memory, as it comes from a file of zeros.
    fn bring(table: &SumTable, bell: &Arc<Bell>, page: u64) {
        match table.load(page, || bell.ticket(0)).unwrap() {
            PageLoad::Ready => {}
            PageLoad::Read(_) => table.loaded(page, true),
            PageLoad::Wait => panic!("there is room for {page}"),
        }
    }

    fn count(table: &SumTable) -> usize {
        table.state().by_page.len()
    }

    /// As a write does, whose data is there.
    fn write(table: &SumTable, page: u64, sum: u32) {
        let block = page * PAGE_BLOCKS;
        let Entered::Some { count, write, stop } = table.enter(block, &[sum], true) else {
            panic!("the page is there");
        };
        assert_eq!((count, write.is_some(), stop), (1, true, None));
        table.confirm(block, 1, false);
        table.unpin(page..page + 1);
    }

    #[test]
    fn pages_are_in_memory_as_far_as_they_are_in_use() {
        let (table, bell) = (SumTable::new(true, false, 8), Bell::new(None));
        for page in 0..100 {
            bring(&table, &bell, page);
        }
        assert_eq!(count(&table), 8);
        for page in 200..206 {
            let room = table.room(1, || panic!("there is room")).unwrap();
            bring(&table, &bell, page);
            write(&table, page, 7);
            drop(room);
        }
        // What is known of them is known in memory alone: they stay.
        assert!(table.room(1, || bell.ticket(0)).is_none() && table.is_short());
        for page in 0..100 {
            bring(&table, &bell, page);
        }
        assert_eq!(table.stale_pages(), (200..206).collect::<Vec<_>>());
        assert_eq!(table.check(200 * PAGE_BLOCKS, &[7, 0]), Checked::Good);
        assert_eq!(table.check(200 * PAGE_BLOCKS, &[0, 0]), Checked::Wrong(0));
        let epoch = table.begin_flush();
        table.flushed(epoch);
        for page in 200..206 {
            assert!(table.clean(page).is_some() && table.clean(page).is_none());
            table.unpin(page..page + 1);
        }
        assert!(bell.is_rung() && !table.has_stale() && !table.is_short());
        assert!(table.room(1, || panic!("there is room")).is_some());
        for page in 0..100 {
            bring(&table, &bell, page);
        }
        assert_eq!(table.check(200 * PAGE_BLOCKS, &[7]), Checked::Missing);
    }

    /// After a crash any block may have several.
    #[test]
    fn blocks_with_several_sums_are_read_in_whatever_number() {
        let (table, bell) = (SumTable::new(true, false, 8), Bell::new(None));
        let (sums, _) = Sums::one(0).with(7, 0).unwrap();
        for page in 0..100 {
            match table.load(page, || bell.ticket(0)).unwrap() {
                PageLoad::Read(to) => mem::copy_in(to.slice(0, SUMS_BYTES), &sums.bytes()),
                _ => panic!("there is room for {page}"),
            }
            table.loaded(page, true);
            assert_eq!(table.check(page * PAGE_BLOCKS, &[7]), Checked::Good);
        }
        assert_eq!(table.stale_pages().len(), 6);
    }

    #[test]
    fn blocks_that_are_written_after_a_flush_began_keep_their_sums() {
        let (table, bell) = (SumTable::new(true, false, 8), Bell::new(None));
        bring(&table, &bell, 0);
        write(&table, 0, 1);
        let epoch = table.begin_flush();
        let second = table.enter(1, &[2], false);
        assert!(matches!(second, Entered::Some { count: 1, .. }));
        table.confirm(1, 1, false);
        table.flushed(epoch);
        let memory = table.clean(0).expect("some are to be taken away");
        let mut page = [0; PAGE_BYTES as usize];
        mem::copy_out(memory, &mut page);
        let sums = |block: usize| {
            let from = block * SUMS_BYTES as usize;
            Sums::of_bytes(page[from..from + SUMS_BYTES as usize].try_into().unwrap())
        };
        assert_eq!(sums(0), Sums::one(1));
        assert_eq!(Some(sums(1)), Sums::one(0).with(2, 0).map(|(sums, _)| sums));
        assert!(table.has_stale());
    }

    #[test]
    fn page_that_could_not_be_read_is_asked_for_again() {
        let (table, bell) = (SumTable::new(true, false, 8), Bell::new(None));
        let load = || table.load(0, || bell.ticket(0)).unwrap();
        assert!(matches!(load(), PageLoad::Read(_)));
        assert!(matches!(load(), PageLoad::Wait));
        assert_eq!(table.check(0, &[0]), Checked::Missing);
        table.loaded(0, false);
        assert!(bell.is_rung());
        assert!(matches!(load(), PageLoad::Read(_)));
        table.loaded(0, true);
        assert!(matches!(load(), PageLoad::Ready));
    }
}
