//! Data that goes past the page cache (`direct`).
//!
//! The file is open twice. What is aligned as the kernel wants it goes by a description with
//! O_DIRECT, all else through the cache by the first one. The kernel keeps both in step: before
//! it moves a range past the cache it writes back what is cached of it, and afterwards it drops
//! that. No two I/Os move the same range at a time (see [`File`](crate::file::File)). A sync of
//! one description is of both.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use mem::BufRange;
use reactor::DiskFile;
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::param::page_size;
use tracing::info;

use crate::problem::Problem;
use crate::{Direct, Spec};

/// What is enough for every disk, where the kernel does not say (before Linux 6.1).
const ALIGN_BYTES: u32 = 4096;

/// The description of a file that goes past the page cache.
pub(crate) struct DirectFile {
    pub file: Arc<DiskFile>,
    /// Of the address of memory.
    memory_align: usize,
    /// Of the place in the file, and of how much is moved.
    offset_align: u64,
}

impl DirectFile {
    /// Of the file at `path`, which is open as `file`; none where the volume does without.
    pub fn open(spec: &Spec, path: &Path, file: &fs::File) -> Result<Option<DirectFile>, Problem> {
        if spec.direct == Direct::Never {
            return Ok(None);
        }
        match again(spec, file) {
            Ok(direct) => Ok(Some(direct)),
            Err(error) if spec.direct == Direct::Auto => {
                info!(
                    path = %path.display(),
                    %error,
                    "data goes through the page cache: its file system knows no direct I/O"
                );
                Ok(None)
            }
            Err(source) => Err(Problem::NoDirectIo {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Of a file that is open so.
    pub fn new(file: OwnedFd) -> io::Result<DirectFile> {
        let [memory_align, offset_align] = alignment(&file)?;
        Ok(DirectFile {
            file: Arc::new(file.into()),
            memory_align: memory_align as usize,
            offset_align: offset_align.into(),
        })
    }

    /// The same for whole pages alone: of a page that is written past the cache, nothing is written
    /// through it by what moves another part of the file. The rest of the page would be what it was
    /// when it was read into the cache.
    pub fn in_whole_pages(mut self) -> DirectFile {
        self.offset_align = self.offset_align.max(page_size() as u64);
        self
    }

    /// Whether `buf` can be moved to or from `at`.
    pub fn takes(&self, buf: BufRange, at: u64) -> bool {
        buf.as_ptr().addr().is_multiple_of(self.memory_align)
            && at.is_multiple_of(self.offset_align)
            && u64::from(buf.len()).is_multiple_of(self.offset_align)
    }
}

/// Opens the very same file once more.
fn again(spec: &Spec, file: &fs::File) -> io::Result<DirectFile> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(!spec.read_only);
    let direct = options
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    DirectFile::new(direct.into())
}

/// Of memory and of offsets, bytes.
fn alignment(file: impl AsFd) -> io::Result<[u32; 2]> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if found.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok([ALIGN_BYTES; 2]);
    }
    match [found.stx_dio_mem_align, found.stx_dio_offset_align] {
        [_, 0] | [0, _] => Err(Errno::OPNOTSUPP.into()),
        both => Ok(both),
    }
}
