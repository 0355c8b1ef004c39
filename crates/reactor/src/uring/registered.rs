//! Memory that the ring has registered, so that the kernel need not look up
//! and hold the pages of what it sends from there.
//!
//! A block of memory is registered when something is first sent from it, and
//! as long as nothing of it is given back. It then stays in memory.

use super::ring::Ring;
use crate::sys::Nanos;
use mem::BufRange;
use mem::blocks::{self, BLOCK_BYTES, MemoryBlock};
use std::io;

/// Registered blocks at most: as many as a ring takes, which is 32 GiB.
const BLOCKS_MAX: u32 = 1 << 14;
/// How often memory that was given back is looked for.
const SWEEP_NS: Nanos = 100_000_000;

/// A table in which each block has one place, which is also its number in the
/// ring's own table.
pub(super) struct Registered {
    /// Empty where nothing is to be registered.
    places: Vec<Option<BufferPlace>>,
    /// Places in use.
    used: Vec<u16>,
    /// The kernel refused; there will be no more.
    is_full: bool,
    /// What of memory given back has been looked at, and when to look again.
    swept: u64,
    sweep_at: Nanos,
    /// Registrations made.
    pub(super) made: u64,
}

#[derive(Clone, Copy)]
struct BufferPlace {
    block: MemoryBlock,
    given_back: u32,
}

impl BufferPlace {
    #[inline]
    fn is_stale(&self) -> bool {
        self.block.given_back() != self.given_back
    }
}

impl Registered {
    pub(super) fn new(ring: &Ring, is_wanted: bool) -> Registered {
        let blocks = match is_wanted.then(|| ring.submitter().register_buffers_sparse(BLOCKS_MAX)) {
            Some(Ok(())) => BLOCKS_MAX as usize,
            Some(Err(error)) => {
                tracing::warn!("no registered buffers: {error}; their pages are held send by send");
                0
            }
            None => 0,
        };
        Registered {
            places: vec![None; blocks],
            used: Vec::new(),
            is_full: false,
            swept: blocks::given_back(),
            sweep_at: 0,
            made: 0,
        }
    }

    /// The number of the registered buffer in which `range` lies, if it may
    /// have one.
    #[inline]
    pub(super) fn find(&mut self, ring: &Ring, range: BufRange) -> Option<u16> {
        let block = MemoryBlock::of(range)?;
        let at = block.number() as usize % BLOCKS_MAX as usize;
        match self.places.get(at)? {
            Some(place) if place.block == block && !place.is_stale() => Some(at as u16),
            Some(place) if !place.is_stale() => None,
            _ => self.register(ring, at as u16, block),
        }
    }

    /// Registers a block in a place that is free, or that of memory which is
    /// not there any more.
    #[cold]
    fn register(&mut self, ring: &Ring, at: u16, block: MemoryBlock) -> Option<u16> {
        if self.is_full {
            return None;
        }
        let given_back = block.given_back();
        let memory = libc::iovec {
            iov_base: block.as_ptr().cast(),
            iov_len: BLOCK_BYTES as usize,
        };
        if let Err(error) = update(ring, at, memory) {
            // Once is enough: what is short is locked memory, for all of us.
            tracing::warn!(
                "no more registered buffers than {}: {error} (ulimit -l); \
                 other pages are held send by send",
                self.used.len()
            );
            self.is_full = true;
            return None;
        }
        let place = &mut self.places[usize::from(at)];
        if place.replace(BufferPlace { block, given_back }).is_none() {
            self.used.push(at);
        }
        self.made += 1;
        Some(at)
    }

    /// Whether memory was given back lately that may still be registered.
    #[inline]
    pub(super) fn wants_sweep(&self, now: Nanos) -> bool {
        !self.used.is_empty() && now >= self.sweep_at && blocks::given_back() != self.swept
    }

    /// Lets go of memory that was given back.
    #[cold]
    pub(super) fn sweep(&mut self, ring: &Ring, now: Nanos) {
        self.swept = blocks::given_back();
        self.sweep_at = now + SWEEP_NS;
        let places = &mut self.places;
        self.used.retain(|&at| {
            let place = &mut places[usize::from(at)];
            if !place.is_some_and(|place| place.is_stale()) {
                return true;
            }
            let nothing = libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            };
            // Refused, the place keeps its memory until it is used again.
            let is_free = update(ring, at, nothing).is_ok();
            if is_free {
                *place = None;
            }
            !is_free
        });
    }
}

/// Replaces what is registered in a place. The kernel keeps what it still
/// sends from until it has been sent.
fn update(ring: &Ring, at: u16, memory: libc::iovec) -> io::Result<()> {
    // SAFETY: the kernel takes its own hold of pages that are ours and stay
    // mapped; whether they are still those that lie at the address is looked
    // at before each use.
    unsafe {
        ring.submitter()
            .register_buffers_update(at.into(), &[memory], None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mem::Region;
    use needs::needs;

    fn ring() -> Ring {
        Ring::new(4).unwrap()
    }

    #[needs(io_uring)]
    #[test]
    fn a_block_is_registered_once_until_it_is_given_back() {
        let ring = ring();
        let region = Region::small_pages(2 * BLOCK_BYTES).unwrap();
        let mut registered = Registered::new(&ring, true);
        let first = registered.find(&ring, region.range(0, 4096));
        assert!(first.is_some());
        assert_eq!(registered.find(&ring, region.range(8192, 1)), first);
        let second = registered.find(&ring, region.range(BLOCK_BYTES, 1));
        assert!(second.is_some() && second != first);
        assert_eq!(registered.made, 2);
        region.discard(0, 4096).unwrap();
        assert_eq!(registered.find(&ring, region.range(8192, 1)), first);
        assert_eq!(registered.made, 3, "other pages lie there now");
        assert_eq!(registered.used.len(), 2);
    }

    #[needs(io_uring)]
    #[test]
    fn registration_of_memory_that_was_given_back_ends_at_the_next_sweep() {
        let ring = ring();
        let region = Region::small_pages(2 * BLOCK_BYTES).unwrap();
        let mut registered = Registered::new(&ring, true);
        for at in [0, BLOCK_BYTES] {
            registered.find(&ring, region.range(at, 1)).unwrap();
        }
        region.discard(0, BLOCK_BYTES).unwrap();
        assert!(registered.wants_sweep(1));
        registered.sweep(&ring, 1);
        assert!(!registered.wants_sweep(SWEEP_NS), "so soon");
        assert_eq!(registered.used.len(), 1);
        let left = registered.places.iter().flatten().count();
        assert_eq!(left, 1);
    }

    #[needs(io_uring)]
    #[test]
    fn a_block_in_anothers_place_is_not_registered() {
        let ring = ring();
        let apart = u64::from(BLOCKS_MAX) * BLOCK_BYTES;
        let region = Region::small_pages(apart + BLOCK_BYTES).unwrap();
        let mut registered = Registered::new(&ring, true);
        let first = registered.find(&ring, region.range(0, 1));
        assert!(first.is_some());
        assert_eq!(registered.find(&ring, region.range(apart, 1)), None);
        region.discard(0, BLOCK_BYTES).unwrap();
        assert_eq!(registered.find(&ring, region.range(apart, 1)), first);
        assert_eq!(registered.find(&ring, region.range(0, 1)), None);
    }

    #[needs(io_uring)]
    #[test]
    fn nothing_else_is_registered() {
        let ring = ring();
        let region = Region::small_pages(BLOCK_BYTES).unwrap();
        let mut registered = Registered::new(&ring, false);
        assert_eq!(registered.find(&ring, region.range(0, 1)), None);
        let huge = Region::anonymous(BLOCK_BYTES).unwrap();
        let mut registered = Registered::new(&ring, true);
        assert_eq!(registered.find(&ring, huge.range(0, 1)), None);
        assert_eq!(registered.made, 0);
    }
}
