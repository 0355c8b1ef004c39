//! How much of the file system's size is used.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fs::Error;

/// Bytes in all, and those that are used: by content, and by what describes
/// it, so that small files and long names count too.
pub(super) struct Space {
    bytes: u64,
    used: AtomicU64,
}

impl Space {
    pub(super) fn new(bytes: u64) -> Space {
        Space {
            bytes,
            used: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn free(&self) -> u64 {
        self.bytes - self.used.load(Ordering::Relaxed)
    }

    /// All or nothing.
    pub(super) fn take(&self, n: u64) -> Result<(), Error> {
        let fits = |used: u64| used.checked_add(n).filter(|&after| after <= self.bytes);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(|_| ()).map_err(|_| Error::NoSpc)
    }

    pub(super) fn give(&self, n: u64) {
        let before = self.used.fetch_sub(n, Ordering::Relaxed);
        assert!(before >= n, "gave more room than was taken");
    }
}
