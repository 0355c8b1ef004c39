//! Regions of memory and the handles that name bytes in them.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::blocks;

/// Bytes of a page, to which regions are rounded up.
const PAGE_BYTES: u64 = 4096;
const SLOTS: usize = 1 << 16;
const GENERATION_SHIFT: u32 = 48;
const ADDRESS_MASK: u64 = (1 << GENERATION_SHIFT) - PAGE_BYTES;
/// Set for a region whose bytes are seldom in cache when they are written.
const IS_COLD: u64 = 1;
/// Set for a region that has no huge pages.
const IS_SMALL: u64 = 2;
/// Bulk regions from this size on do not fit in any cache: writes into them
/// go around it, which halves the time of a 4 KiB write to a random place.
pub const COLD_BYTES_MIN: u64 = 64 << 20;

/// Address and generation of every region, in one word so that a lookup is one
/// load: `generation << 48 | address | flags`.
static TABLE: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Bytes mapped for every region.
static MAPPED: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
static FREE: Mutex<FreeSlots> = Mutex::new(FreeSlots {
    fresh: 0,
    used: VecDeque::new(),
});

struct FreeSlots {
    /// Slots from here on were never used.
    fresh: usize,
    /// Oldest first, so that generations of one slot wrap as late as can be.
    used: VecDeque<u16>,
}

/// Which region, and which use of its slot in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId {
    slot: u16,
    generation: u16,
}

/// Names bytes in a region. 16 bytes, `Copy`; never a `&[u8]`, since the
/// kernel, a peer or another core may write them meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufRange {
    region: RegionId,
    len: u32,
    offset: u64,
}

const _: () = assert!(size_of::<BufRange>() == 16);

impl BufRange {
    /// Bytes.
    #[inline]
    pub fn len(self) -> u32 {
        self.len
    }

    /// Whether it names no byte.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// First byte, counted from the start of the region.
    #[inline]
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// The region.
    #[inline]
    pub fn region(self) -> RegionId {
        self.region
    }

    /// The part of `len` bytes from `offset`. Panics past the end.
    #[inline]
    pub fn slice(self, offset: u32, len: u32) -> BufRange {
        let end = u64::from(offset) + u64::from(len);
        assert!(
            end <= u64::from(self.len),
            "slice past the end of a buf range"
        );
        BufRange {
            region: self.region,
            len,
            offset: self.offset + u64::from(offset),
        }
    }

    /// Both as one, where `next` follows in memory.
    #[inline]
    pub fn joined(self, next: BufRange) -> Option<BufRange> {
        let follows =
            self.region == next.region && self.offset + u64::from(self.len) == next.offset;
        let len = self.len.checked_add(next.len)?;
        follows.then_some(BufRange { len, ..self })
    }

    /// Where the bytes lie. Panics if the region is gone. The pointer is valid
    /// for reads and writes of `len` bytes for the life of the process (memory
    /// of a region that goes away is replaced, not unmapped), but others may
    /// write the bytes at any time.
    #[inline]
    pub fn as_ptr(self) -> *mut u8 {
        self.resolve().0
    }

    /// Bytes mapped from the start of its region on, if that has no huge pages.
    pub(crate) fn mapped_small(self) -> Option<u64> {
        let slot = usize::from(self.region.slot);
        let is_small = TABLE[slot].load(Ordering::Relaxed) & IS_SMALL != 0;
        is_small.then(|| MAPPED[slot].load(Ordering::Relaxed))
    }

    /// Where the bytes lie, and whether to write them around the cache.
    #[inline]
    pub(crate) fn resolve(self) -> (*mut u8, bool) {
        let word = TABLE[usize::from(self.region.slot)].load(Ordering::Acquire);
        assert!(
            (word >> GENERATION_SHIFT) as u16 == self.region.generation,
            "buf range of a region that is gone"
        );
        let at = ((word & ADDRESS_MASK) + self.offset) as *mut u8;
        (at, word & IS_COLD != 0)
    }
}

/// Owner of one mapping. Dropping it gives the memory back and leaves zeros in
/// its place, so that a stale handle or a late kernel write does no harm.
#[derive(Debug)]
pub struct Region {
    id: RegionId,
    base: u64,
    len: u64,
}

impl Region {
    /// Private memory of `len` bytes, all zero and taking no memory until it
    /// is written.
    pub fn anonymous(len: u64) -> io::Result<Region> {
        Region::map(len, false, true)
    }

    /// The same for data that is kept, such as a volume's: where it is too
    /// large for a cache, copies into it go around the cache.
    pub fn bulk(len: u64) -> io::Result<Region> {
        Region::map(len, len >= COLD_BYTES_MIN, true)
    }

    /// The same as [`Region::anonymous`], never in huge pages: for memory that
    /// is to be registered, see [`crate::blocks`].
    pub fn small_pages(len: u64) -> io::Result<Region> {
        Region::map_with(len, IS_SMALL, Some(libc::MADV_NOHUGEPAGE))
    }

    /// Memory of zeros: in huge pages if `is_huge`; if `is_cold`, writes go around
    /// the cache.
    ///
    /// # Errors
    /// There are no addresses for it, or too many regions.
    pub fn map(len: u64, is_cold: bool, is_huge: bool) -> io::Result<Region> {
        let flags = if is_cold { IS_COLD } else { 0 };
        Region::map_with(len, flags, is_huge.then_some(libc::MADV_HUGEPAGE))
    }

    fn map_with(len: u64, flags: u64, pages: Option<i32>) -> io::Result<Region> {
        let bytes = round_up(len)?;
        let slot = take_slot().ok_or_else(|| io::Error::other("too many memory regions"))?;
        let base = map_aligned(bytes).inspect_err(|_| free_slots().used.push_back(slot))?;
        let id = fill_slot(slot, base, bytes, flags);
        let region = Region { id, base, len };
        // Advice only: with other pages everything works the same.
        for advice in pages.into_iter().chain([libc::MADV_DONTFORK]) {
            let _: io::Result<()> = region.advise(0, bytes, advice);
        }
        Ok(region)
    }

    /// Where it lies: mapped for the life of the process.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base as *mut u8
    }

    /// Whether copies into it go around the cache.
    pub fn is_cold(&self) -> bool {
        TABLE[usize::from(self.id.slot)].load(Ordering::Relaxed) & IS_COLD != 0
    }

    /// How it is named in handles.
    #[inline]
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Names `len` bytes from `offset`. Panics past the end.
    #[inline]
    pub fn range(&self, offset: u64, len: u32) -> BufRange {
        let end = offset.checked_add(u64::from(len));
        assert!(
            end.is_some_and(|end| end <= self.len),
            "range past the end of a region"
        );
        BufRange {
            region: self.id,
            len,
            offset,
        }
    }

    /// Makes a hole of `len` bytes at `offset`: they read as zero afterwards
    /// and whole pages are given back. Panics past the end.
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len);
        let end = end.filter(|&end| end <= self.len);
        let end = end.expect("discard past the end of a region");
        if len == 0 {
            return Ok(());
        }
        let first_page = offset.next_multiple_of(PAGE_BYTES);
        let last_page = end / PAGE_BYTES * PAGE_BYTES;
        if first_page >= last_page {
            self.fill_zero(offset, len);
            return Ok(());
        }
        self.fill_zero(offset, first_page - offset);
        self.fill_zero(last_page, end - last_page);
        let bytes = last_page - first_page;
        self.advise(first_page, bytes, libc::MADV_DONTNEED)?;
        blocks::give_back(self.base + first_page, bytes);
        Ok(())
    }

    /// Tells the system what becomes of `len` bytes at `offset`, whole pages of it.
    fn advise(&self, offset: u64, len: u64, advice: i32) -> io::Result<()> {
        let mapped_bytes = round_up(self.len)?;
        assert!(offset <= mapped_bytes && len <= mapped_bytes - offset);
        let at = (self.base + offset) as *mut libc::c_void;
        // SAFETY: inside of our own private mapping, where only atomics are referred to,
        // and which stays mapped: what is given back reads as zero.
        match unsafe { libc::madvise(at, len as usize, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes the system find memory for `len` bytes at `offset`, a multiple of
    /// the page, as far as the region goes, and leaves their content as it is.
    pub fn touch(&self, offset: u64, len: u64) {
        let end = (offset + len).min(self.len);
        let bytes = end.saturating_sub(offset);
        let touched = self.advise(offset, bytes, libc::MADV_POPULATE_WRITE);
        if touched.is_err() {
            // Linux has that from 5.14.
            self.touch_pages(offset, end);
        }
    }

    /// Writes to each page from `offset` to `end` what it holds.
    fn touch_pages(&self, offset: u64, end: u64) {
        for at in (offset..end).step_by(PAGE_BYTES as usize) {
            // SAFETY: inside our own mapping, and valid as an integer whatever
            // it holds. Nothing is changed, whatever is written there meanwhile.
            let byte = unsafe { AtomicU8::from_ptr((self.base + at) as *mut u8) };
            // A store that the compiler must leave there.
            byte.fetch_or(black_box(0), Ordering::Relaxed);
        }
    }

    fn fill_zero(&self, offset: u64, len: u64) {
        // SAFETY: the caller has checked the range against our mapping.
        unsafe { std::ptr::write_bytes((self.base + offset) as *mut u8, 0, len as usize) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        give_slot(self.id);
        let bytes = round_up(self.len).expect("checked when it was mapped");
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: replaces our own mapping, which no reference points into.
        let at = unsafe {
            libc::mmap(
                self.base as *mut _,
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        assert!(at as u64 == self.base, "cannot give a region back");
        blocks::give_back(self.base, bytes);
    }
}

fn round_up(len: u64) -> io::Result<u64> {
    let bytes = len.max(1).checked_next_multiple_of(PAGE_BYTES);
    let bytes = bytes.filter(|&bytes| bytes < 1 << 46);
    bytes.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Maps `bytes` at an address that huge pages like.
fn map_aligned(bytes: u64) -> io::Result<u64> {
    const HUGE: u64 = 2 << 20;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let length = (bytes + HUGE) as usize;
    // SAFETY: a fresh mapping, at an address that the kernel chooses.
    let got = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mapped = got as u64;
    let base = mapped.next_multiple_of(HUGE);
    let tail = base + bytes;
    // SAFETY: only what lies around the part that is kept is unmapped.
    unsafe {
        if base > mapped {
            libc::munmap(got, (base - mapped) as usize);
        }
        libc::munmap(tail as *mut _, (mapped + bytes + HUGE - tail) as usize);
    }
    Ok(base)
}

fn free_slots() -> MutexGuard<'static, FreeSlots> {
    FREE.lock().expect("nothing panics under this lock")
}

fn take_slot() -> Option<u16> {
    let mut free = free_slots();
    if free.fresh < SLOTS {
        free.fresh += 1;
        return Some((free.fresh - 1) as u16);
    }
    free.used.pop_front()
}

fn fill_slot(slot: u16, base: u64, bytes: u64, flags: u64) -> RegionId {
    assert!(base & !ADDRESS_MASK == 0, "address beyond 48 bits");
    let place = &TABLE[usize::from(slot)];
    let generation = place.load(Ordering::Relaxed) >> GENERATION_SHIFT;
    MAPPED[usize::from(slot)].store(bytes, Ordering::Relaxed);
    place.store(
        generation << GENERATION_SHIFT | base | flags,
        Ordering::Release,
    );
    RegionId {
        slot,
        generation: generation as u16,
    }
}

/// Makes handles of this use of the slot stale. A slot whose generations are
/// used up is retired.
fn give_slot(id: RegionId) {
    let next = u64::from(id.generation) + 1;
    let slot = &TABLE[usize::from(id.slot)];
    slot.store((next & 0xffff) << GENERATION_SHIFT, Ordering::Release);
    if next <= 0xffff {
        free_slots().used.push_back(id.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{copy_in, copy_out};

    fn read(range: BufRange) -> Vec<u8> {
        let mut bytes = vec![0xee; range.len() as usize];
        copy_out(range, &mut bytes);
        bytes
    }

    #[test]
    fn both_kinds_hold_what_was_written_and_discard_to_zero() {
        for region in [
            Region::bulk(COLD_BYTES_MIN).unwrap(),
            Region::anonymous(3 << 20).unwrap(),
        ] {
            let all = region.range(0, 3 << 20);
            copy_in(all, &vec![7; 3 << 20]);
            region.discard(100, 2 << 20).unwrap();
            let bytes = read(all);
            let end = 100 + (2 << 20);
            assert!(bytes[..100].iter().all(|&b| b == 7));
            assert!(bytes[100..end].iter().all(|&b| b == 0));
            assert!(bytes[end..].iter().all(|&b| b == 7));
            region.discard(10, 20).unwrap();
            assert_eq!(
                read(region.range(9, 22)),
                [
                    7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7
                ]
            );
        }
    }

    #[test]
    #[should_panic(expected = "past the end of a region")]
    fn range_past_the_end_panics() {
        Region::anonymous(4096).unwrap().range(4090, 7);
    }

    #[test]
    #[should_panic(expected = "past the end of a region")]
    fn range_that_wraps_panics() {
        Region::anonymous(4096).unwrap().range(u64::MAX, 2);
    }

    #[test]
    #[should_panic(expected = "past the end of a buf range")]
    fn slice_past_the_end_panics() {
        let region = Region::anonymous(4096).unwrap();
        region.range(0, 100).slice(50, 51);
    }

    #[test]
    fn slice_of_slice_names_the_right_bytes() {
        let region = Region::anonymous(4096).unwrap();
        let part = region.range(100, 50).slice(10, 20).slice(5, 15);
        assert_eq!((part.offset(), part.len()), (115, 15));
        assert_eq!(part.as_ptr() as u64 - region.base, 115);
    }

    #[test]
    fn a_stale_handle_panics_and_its_memory_stays_harmless() {
        let region = Region::anonymous(4096).unwrap();
        let range = region.range(0, 4096);
        copy_in(range, &[1; 4096]);
        let pointer = range.as_ptr();
        drop(region);
        assert!(std::panic::catch_unwind(|| range.as_ptr()).is_err());
        // SAFETY: the memory of a dropped region stays mapped and zero.
        assert_eq!(unsafe { pointer.read_volatile() }, 0);
        // SAFETY: as above, and nothing else lives there.
        unsafe { pointer.write_volatile(1) };
    }

    fn resident_pages(region: &Region) -> usize {
        let mut pages = vec![0u8; region.len().div_ceil(PAGE_BYTES) as usize];
        let at = region.base as *mut libc::c_void;
        // SAFETY: the range is the region's, with a byte for each of its pages.
        let rc = unsafe { libc::mincore(at, region.len() as usize, pages.as_mut_ptr()) };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn touched_pages_are_resident_and_keep_their_content() {
        let touches: [fn(&Region); 2] = [
            |region| region.touch(PAGE_BYTES, 8 * PAGE_BYTES),
            // As on a kernel that has no other way.
            |region| region.touch_pages(PAGE_BYTES, 9 * PAGE_BYTES),
        ];
        for touch in touches {
            let pages = Some(libc::MADV_NOHUGEPAGE);
            let region = Region::map_with(16 * PAGE_BYTES, 0, pages).unwrap();
            copy_in(region.range(2 * PAGE_BYTES, 3), &[1, 2, 3]);
            assert_eq!(resident_pages(&region), 1);
            touch(&region);
            assert_eq!(resident_pages(&region), 8);
            assert_eq!(read(region.range(2 * PAGE_BYTES, 4)), [1, 2, 3, 0]);
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Region::anonymous(u64::MAX).is_err());
        assert!(Region::bulk(1 << 46).is_err());
    }
}
