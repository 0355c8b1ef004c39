//! What a file is read and written by.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::mem::BufRange;
use reactor::DiskFile;

use crate::direct::DirectFile;

/// An open file.
pub(super) struct Descriptor {
    file: Arc<DiskFile>,
    /// The same past the page cache.
    direct: Option<DirectFile>,
    /// The kernel has refused to move past the page cache what `direct` takes.
    is_cached: AtomicBool,
}

impl Descriptor {
    pub(super) fn new(file: OwnedFd, direct: Option<DirectFile>) -> Arc<Descriptor> {
        Arc::new(Descriptor {
            file: Arc::new(file.into()),
            direct,
            is_cached: AtomicBool::new(false),
        })
    }

    /// For all but data.
    pub(super) fn file(&self) -> &Arc<DiskFile> {
        &self.file
    }

    /// What moves `buf` to or from `at`, and whether past the page cache.
    pub(super) fn mover(&self, buf: BufRange, at: u64) -> (&Arc<DiskFile>, bool) {
        match &self.direct {
            Some(direct) if direct.takes(buf, at) && !self.is_cached.load(Ordering::Relaxed) => {
                (&direct.file, true)
            }
            _ => (&self.file, false),
        }
    }

    /// All goes through the page cache from now on.
    pub(super) fn give_up_direct(&self) {
        self.is_cached.store(true, Ordering::Relaxed);
    }

    /// Whether no operation uses it, but for the one that asks.
    pub(super) fn is_unused(descriptor: &Arc<Descriptor>) -> bool {
        let direct = descriptor.direct.as_ref();
        Arc::strong_count(descriptor) == 1
            && Arc::strong_count(&descriptor.file) == 1
            && direct.is_none_or(|direct| Arc::strong_count(&direct.file) == 1)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
