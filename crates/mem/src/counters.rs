//! What this thread copied and allocated: steady where times are not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COPIED_BYTES: Cell<u64> = const { Cell::new(0) };
    static DIGESTED_BYTES: Cell<u64> = const { Cell::new(0) };
    static FIRST_TOUCHES: Cell<u64> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Counts of one thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Payload bytes copied in user space by this crate's functions.
    pub copied_bytes: u64,
    /// Payload bytes over which a CRC32C was computed.
    pub digested_bytes: u64,
    /// Huge pages of volumes that it had to be the first to touch.
    pub first_touches: u64,
    /// Allocations, where [`CountingAllocator`] is installed; else 0.
    pub allocations: u64,
    /// Bytes that it has allocated and not given back, less those of
    /// others that it has; where [`CountingAllocator`] is installed.
    pub held_bytes: i64,
}

/// The counts of the calling thread.
pub fn here() -> Counts {
    Counts {
        copied_bytes: COPIED_BYTES.get(),
        digested_bytes: DIGESTED_BYTES.get(),
        first_touches: FIRST_TOUCHES.get(),
        allocations: ALLOCATIONS.get(),
        held_bytes: HELD_BYTES.get(),
    }
}

/// Whether [`CountingAllocator`] is installed, which one allocation shows.
pub fn counts_allocations() -> bool {
    let before = here().allocations;
    drop(std::hint::black_box(Box::new(0u8)));
    here().allocations > before
}

#[inline]
pub(crate) fn add_copied(bytes: usize) {
    COPIED_BYTES.set(COPIED_BYTES.get() + bytes as u64);
}

#[inline]
pub(crate) fn add_digested(bytes: usize) {
    DIGESTED_BYTES.set(DIGESTED_BYTES.get() + bytes as u64);
}

/// Counts a huge page whose memory a write had to wait for.
pub fn add_first_touch() {
    FIRST_TOUCHES.set(FIRST_TOUCHES.get() + 1);
}

/// The system's allocator with a count per thread; install it with
/// `#[global_allocator]`.
pub struct CountingAllocator;

#[inline]
fn count() {
    // A thread that is being torn down has no counter any more.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

#[inline]
fn hold(bytes: i64) {
    let _ = HELD_BYTES.try_with(|n| n.set(n.get() + bytes));
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        hold(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}
