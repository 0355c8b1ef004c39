//! Tables of atomics that take memory only where they are used.

use std::io;
use std::marker::PhantomData;

use crate::region::Region;
use crate::sync::{AtomicI32, AtomicU64};

/// A table of atomics in a region of its own, all zero at first.
pub struct AtomicTable<T> {
    region: Region,
    of: PhantomData<T>,
}

/// What lies in a table.
///
/// # Safety
/// It is an atomic, valid when all of its bytes are zero.
pub unsafe trait Atomic: Sync {}
// SAFETY: an atomic integer.
unsafe impl Atomic for AtomicU64 {}
// SAFETY: an atomic integer.
unsafe impl Atomic for AtomicI32 {}

impl<T: Atomic> AtomicTable<T> {
    /// Room for `entries`. In huge pages only on demand: what is small takes little.
    ///
    /// # Errors
    /// There are no addresses for it.
    pub fn new(entries: u64, is_huge: bool) -> io::Result<AtomicTable<T>> {
        let bytes = entries.checked_mul(size_of::<T>() as u64);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(AtomicTable {
            region: Region::map(bytes, false, is_huge)?,
            of: PhantomData,
        })
    }

    /// All entries.
    #[inline]
    pub fn all(&self) -> &[T] {
        let entries = self.region.len() as usize / size_of::<T>();
        // SAFETY: memory of our own that is mapped while the region lives, is
        // aligned to a page, holds atomics only and is reached only as such: the
        // region stays in here.
        unsafe { std::slice::from_raw_parts(self.region.base().cast(), entries) }
    }

    /// All zero again, the memory given back. While others use the table, each entry
    /// becomes zero at some moment.
    ///
    /// # Errors
    /// The system refuses.
    pub fn clear(&self) -> io::Result<()> {
        self.region.discard(0, self.region.len())
    }
}
