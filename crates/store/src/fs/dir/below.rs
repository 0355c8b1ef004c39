//! What a simulator takes the place of: the threads of a `dir`, and the calls of
//! theirs that change names or bring something to the disk.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use reactor::DiskFile;
use rustix::fs::fdatasync;
use rustix::io::Errno;

use super::{Dir, DirError, DirSpec};

/// A directory and a name in it.
pub type DirectoryEntry<'a> = (BorrowedFd<'a>, &'a [u8]);

/// A call that changes names, or what goes with one.
#[derive(Clone, Copy, Debug)]
pub enum NameChange<'a> {
    /// An object gets a name.
    Make(DirectoryEntry<'a>),
    /// A new object gets its attributes.
    SetAttributes,
    /// A name goes that was just made, since its object could not be made ready.
    RemoveUnfinished(DirectoryEntry<'a>),
    /// A name goes.
    Remove(DirectoryEntry<'a>),
    /// A name moves from one place to another.
    Move(DirectoryEntry<'a>, DirectoryEntry<'a>),
    /// What was changed of an object is brought to the disk.
    Sync(BorrowedFd<'a>),
}

/// The file system below a [`Dir`], as its threads see it.
pub trait Below: Send + Sync {
    /// Brings the content that was written through a descriptor to the disk; blocks.
    ///
    /// # Errors
    /// As `fdatasync`, which tells each descriptor of what could not be written.
    fn sync_data(&self, fd: &Arc<DiskFile>) -> Result<(), Errno>;

    /// Makes a change by the call that does it.
    ///
    /// # Errors
    /// Those of the call.
    fn change(
        &self,
        what: NameChange<'_>,
        call: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno>;
}

/// The kernel's.
pub(super) struct Kernel;

impl Below for Kernel {
    fn sync_data(&self, fd: &Arc<DiskFile>) -> Result<(), Errno> {
        fdatasync(fd)
    }

    fn change(
        &self,
        _: NameChange<'_>,
        call: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        call()
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
