//! Tables of atomics that take memory only where they are used.

use std::io;
use std::marker::PhantomData;

use crate::region::Region;
use crate::sync::{AtomicI32, AtomicU64};

/// A table of atomics in a region of its own, all zero at first.
pub(super) struct AtomicTable<T> {
    region: Region,
    of: PhantomData<T>,
}

/// What lies in a table: valid when all of its bytes are zero, and fit to be
/// shared.
///
/// # Safety
/// Both of the above.
pub(super) unsafe trait Atomic: Sync {}
// SAFETY: an atomic integer.
unsafe impl Atomic for AtomicU64 {}
// SAFETY: an atomic integer.
unsafe impl Atomic for AtomicI32 {}

impl<T: Atomic> AtomicTable<T> {
    /// In huge pages only on demand: a small volume takes little.
    pub(super) fn new(entries: u64, is_huge: bool) -> io::Result<AtomicTable<T>> {
        let bytes = entries.checked_mul(size_of::<T>() as u64);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(AtomicTable {
            region: Region::map(bytes, false, is_huge)?,
            of: PhantomData,
        })
    }

    #[inline]
    pub(super) fn all(&self) -> &[T] {
        let entries = self.region.len() as usize / size_of::<T>();
        // SAFETY: memory of our own that is mapped while the region lives, is
        // aligned to a page, holds atomics only and is reached only as such.
        unsafe { std::slice::from_raw_parts(self.region.base().cast(), entries) }
    }

    /// All zero again, the memory given back.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.region.discard(0, self.region.len())
    }
}
