//! Another size of a checksummed volume, and of the file with its sums.

use std::io;
use std::sync::PoisonError;

use reactor::DiskFile;

use super::Checksummed;
use super::file::{self, file_bytes};
use super::table::PAGE_BLOCKS;
use crate::locks::Claim;
use crate::{Range, ResizeError, Volume, resize};

impl Checksummed {
    pub(super) fn resize_both(
        &self,
        size_bytes: u64,
        allow_shrink: bool,
    ) -> Result<(), ResizeError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.size_bytes();
        let resized = match size_bytes != 0 && size_bytes < from {
            true => self.shrink(from, size_bytes, allow_shrink),
            false => self.grow(from, size_bytes, allow_shrink),
        };
        self.base.show_size(self.below.size_bytes());
        resized
    }

    fn grow(&self, from: u64, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.below.resize(size_bytes, allow_shrink)?;
        let to = self.below.size_bytes();
        if to <= from {
            return self.cut(to);
        }
        let offset = from;
        let len = to - from;
        // A file and memory grow by zeros, others by what was there.
        let grows_by_zeros = matches!(self.base.info.kind, "file" | "ram");
        let prepared = match grows_by_zeros || self.below.is_blank(Range { offset, len }) {
            true => self
                .resize_file(|file| Ok(rustix::fs::ftruncate(file, file_bytes(self.blocks(to)))?)),
            false => Err(ResizeError::NotSummed),
        };
        if prepared.is_err() {
            // Nothing was served of it.
            self.below.resize(from, true)?;
        }
        prepared
    }

    /// New I/O behind `to` is refused, and what is under way there ends before its sums go.
    fn shrink(&self, from: u64, to: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        resize::check(&self.base, from, to, allow_shrink)?;
        self.base.show_size(to);
        let page_bytes = PAGE_BLOCKS * u64::from(self.base.info.block_bytes);
        // As far as the page with the last of its sums, which nothing loads meanwhile.
        let gone = Claim::new(to / page_bytes * page_bytes, u64::MAX, true);
        let Some(_held) = self.locks.hold_within(gone, self.patience) else {
            return Err(ResizeError::Busy);
        };
        self.below.resize(to, allow_shrink)?;
        self.cut(to)
    }

    /// Forgets the sums behind the end.
    fn cut(&self, to: u64) -> Result<(), ResizeError> {
        let blocks = self.blocks(to);
        self.table.cut(blocks);
        self.resize_file(|file| file::cut(file, blocks))
    }

    fn blocks(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.base.info.block_bytes)
    }

    fn resize_file(
        &self,
        resize: impl FnOnce(&DiskFile) -> io::Result<()>,
    ) -> Result<(), ResizeError> {
        let resized = self.file.as_ref().map_or(Ok(()), |file| resize(file));
        resized.map_err(|source| ResizeError::System {
            action: "resize the file with its checksums",
            source,
        })
    }
}
