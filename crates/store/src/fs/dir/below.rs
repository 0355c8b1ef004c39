//! What a simulator takes the place of: the threads of a `dir`, and the calls of
//! theirs that bring content to the disk.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::fdatasync;
use rustix::io::Errno;

use super::{Dir, DirError, DirSpec};

/// The file system below a [`Dir`], as its threads see it.
pub trait Below: Send + Sync {
    /// Brings the content that was written through a descriptor to the disk; blocks.
    ///
    /// # Errors
    /// As `fdatasync`, which tells each descriptor of what could not be written.
    fn sync_data(&self, fd: &Arc<OwnedFd>) -> Result<(), Errno>;
}

/// The kernel's.
pub(super) struct Kernel;

impl Below for Kernel {
    fn sync_data(&self, fd: &Arc<OwnedFd>) -> Result<(), Errno> {
        fdatasync(fd)
    }
}

impl Dir {
    /// A directory without threads, over content that is not the kernel's. Its work
    /// waits for [`Dir::step`].
    ///
    /// # Errors
    /// As [`Dir::open`].
    pub fn simulated(
        spec: &DirSpec,
        below: Box<dyn Below>,
        descriptors_max: usize,
    ) -> Result<Dir, DirError> {
        Dir::open_over(spec, below, Some(descriptors_max))
    }

    /// Operations that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.inner.workers.waiting()
    }

    /// Does one of them, or a part of it, as a thread would.
    pub fn step(&self) {
        self.inner.workers.step();
    }

    /// Does what the last thread does that ends.
    pub fn tidy(&self) {
        self.inner.tidy();
    }
}
