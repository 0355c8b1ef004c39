//! Why a volume could not take another size.

use std::io;

use crate::memory::MemoryLimit;
use crate::problem::remedy;
use crate::{Base, Problem, SIZE_MAX_BYTES};

/// Why a volume could not take another size, and what to do about it. It has
/// the size that it had.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// The volume is read only.
    #[error("a read-only volume keeps its size: open it without read_only to resize it")]
    ReadOnly,
    /// Zero, larger than [`SIZE_MAX_BYTES`], or no multiple of the block size.
    #[error("{}", Problem::Size { size_bytes: *size_bytes, block_bytes: *block_bytes })]
    Size {
        /// As asked for.
        size_bytes: u64,
        /// Of the volume.
        block_bytes: u32,
    },
    /// Smaller, and the caller did not allow that data is lost.
    #[error(
        "from {from_bytes} to {to_bytes} bytes would destroy the data behind: shrink what hosts \
         keep there first, then allow it"
    )]
    Shrink {
        /// What the volume has.
        from_bytes: u64,
        /// As asked for.
        to_bytes: u64,
    },
    /// More than the device below has.
    #[error(
        "a size of {size_bytes} bytes is more than the device's {device_bytes}: make the device \
         larger first, or ask for less"
    )]
    Device {
        /// As asked for.
        size_bytes: u64,
        /// What the device has.
        device_bytes: u64,
    },
    /// More than there is memory.
    #[error("{}", Problem::Memory { size_bytes: *size_bytes, limit: limit.clone() })]
    Memory {
        /// As asked for.
        size_bytes: u64,
        /// What there is.
        limit: MemoryLimit,
    },
    /// Another size than a volume has where another machine keeps it.
    #[error(
        "a remote volume is as large as its namespace, which has {has_bytes} bytes, not \
         {size_bytes}: resize that on its target first"
    )]
    Remote {
        /// As asked for.
        size_bytes: u64,
        /// What is there.
        has_bytes: u64,
    },
    /// More than the volumes below have room for.
    #[error(
        "a size of {size_bytes} bytes is more than the {has_bytes} that its volumes have room \
         for: make those larger first, or ask for less"
    )]
    Below {
        /// As asked for.
        size_bytes: u64,
        /// What there is room for.
        has_bytes: u64,
    },
    /// What a checksummed volume would grow by has data.
    #[error(
        "something is written where it would grow to, of which there are no checksums: zero that, \
         as with 'blkdiscard -z', and try again"
    )]
    NotSummed,
    /// The range that it would take of the volume below is another's.
    #[error("the volume \"{0}\" lies behind it: remove that first")]
    Taken(String),
    /// Another volume is made of it, and relies on what it has.
    #[error("the volume \"{0}\" is made of it and relies on its size: remove that first")]
    Part(String),
    /// It is as large as what it is made of.
    #[error(
        "a volume of the kind \"{0}\" is as large as its volumes, which keep their sizes: remove \
         it, resize the last of them, and add it again"
    )]
    Fixed(&'static str),
    /// I/O on the part that would go has been under way too long.
    #[error("I/O on the part that would go does not end: try again when the disk answers")]
    Busy,
    /// The operating system refused.
    #[error("cannot {action}: {source}{}", remedy(source))]
    System {
        /// What was tried, as in "cannot ...".
        action: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// What is wrong with a change from `from` to `to` bytes on any volume.
pub(crate) fn check(
    base: &Base,
    from: u64,
    to: u64,
    allow_shrink: bool,
) -> Result<(), ResizeError> {
    let info = base.info();
    let block_bytes = info.block_bytes;
    // That a device has another size is no change of ours.
    if info.read_only && info.kind != "block" {
        return Err(ResizeError::ReadOnly);
    }
    if to == 0 || to > SIZE_MAX_BYTES || !to.is_multiple_of(u64::from(block_bytes)) {
        return Err(ResizeError::Size {
            size_bytes: to,
            block_bytes,
        });
    }
    if let Some(owner) = base.taken.keeps_from(from, to) {
        return Err(ResizeError::Part(owner));
    }
    if to < from && !allow_shrink {
        return Err(ResizeError::Shrink {
            from_bytes: from,
            to_bytes: to,
        });
    }
    Ok(())
}
