//! What is served: volumes, and file systems ([`fs`]).
//!
//! A [`Volume`] is a run of logical blocks. It is driven from any number of
//! reactors at once, never blocks them and holds no state of an I/O: what a
//! started I/O still needs is a [`Task`] that its driver keeps.
//!
//! | kind       | reads                     | writes    | lasts                                   |
//! |------------|---------------------------|-----------|-----------------------------------------|
//! | `null`     | zeros                     | discarded | nothing                                 |
//! | `ram`      | its own memory            | into it   | as long as the process                  |
//! | `file`     | through `FileIo`          | likewise  | flushed data outlives a machine's crash |
//! | `block`    | likewise                  | likewise  | likewise                                |
//! | `slice`    | a range of another volume | likewise  | as long as that                         |
//! | `concat`   | volumes, end to end       | likewise  | as long as all of them                  |
//! | `stripe`   | volumes, chunks in turn   | likewise  | likewise                                |
//! | `mirror`   | any of its volumes        | to all    | as long as one of them                  |
//! | `delay`    | another volume, later     | likewise  | as long as that                         |
//! | `snapshot` | a snapshot of a file      | none      | as long as the snapshot                 |
//! | `remote`   | blocks of another machine | likewise  | as long as they do there                |
#![forbid(unsafe_code)]

mod base;
mod block;
mod checked_text;
mod checksummed;
pub mod counters;
mod direct;
mod encrypted;
mod encryption_settings;
mod file;
mod format;
pub mod frames;
pub mod fs;
pub mod identity;
mod in_use;
mod io;
mod kept;
mod locks;
mod lost;
pub mod memory;
pub mod meter;
mod null;
mod open;
mod over;
mod pace;
mod parts;
mod problem;
mod ram;
mod reference_copy;
mod regular;
mod remote;
mod remote_call;
mod remote_place;
pub mod reservation;
mod resize;
mod scrub;
pub mod snapshot;
mod spec;
mod state;
mod stats;
pub mod stripes;
mod task;
pub mod token_bucket;
mod unreadable;
mod watch;

pub use base::Base;
pub use checksummed::file::file_bytes as sums_file_bytes;
pub use crypt::WrappingKey;
pub use encrypted::{Encryption, EraseError, KeyMedium};
pub use encryption_settings::EncryptionSettings;
pub use io::{Error, Io};
pub use open::{
    DELAY_KEYS, Examined, KINDS, KindRow, checksummed, encrypted, examine, examine_over, open,
    open_over, over_file, over_legs, over_volumes,
};
pub use over::mirror::{LegStatus, Mirror, MirrorStatus, ReplaceError, scrubbed};
pub use problem::{OpenError, Problem, remedy};
pub use reference_copy::{ReferenceCopy, SHARE_BYTES_MIN, Sharing};
pub use regular::expect_own_file;
pub use remote::over_blocks;
pub use remote_call::RemoteCall;
pub use remote_place::{PathStatus, RemoteAt, RemoteBlocks, RemoteInfo, RemotePlace};
pub use reservation::Reservations;
pub use resize::ResizeError;
pub use rustix::io::Errno;
pub use scrub::{Scrub, ScrubAction, ScrubState, ScrubStatus};
pub use spec::{
    BLOCK_SIZES, Direct, Kind, Latency, Names, RESYNC_RATE_DEFAULT, SCRUB_RATE_DEFAULT,
    SIZE_MAX_BYTES, Settings, Spec,
};
pub use state::{Medium, State, StateError, files as state_files, uuid_by_state};
pub use stats::{ErrorStats, Stats};
pub use task::{LEG_BITS, Parked, Progress, Task};
pub use watch::Watch;

use std::io::Result as IoResult;

use mem::Loan;
use reactor::{FileIo, Nanos, Token};
use snapshot::Snapshots;
use uuid::Uuid;

/// What a volume is; never changes while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name in the configuration.
    pub name: String,
    /// Its word in the configuration, as `ram`.
    pub kind: &'static str,
    /// Bytes of a logical block, one of [`BLOCK_SIZES`].
    pub block_bytes: u32,
    /// The same after a restart; different between machines and volumes.
    pub uuid: Uuid,
    /// Follows from `uuid` unless configured. Its EUI-64 part is then marked as
    /// locally administered (NVM Express Base Specification, Identify Namespace,
    /// NGUID).
    pub nguid: [u8; 16],
    /// As configured.
    pub eui64: Option<[u8; 8]>,
    /// SCSI's NAA designator, 8 or 16 bytes; follows from `uuid` unless
    /// configured.
    pub naa: Vec<u8>,
    /// Follows from `uuid` unless configured: 20 characters, ASCII.
    pub serial: String,
    /// SCSI's T10 vendor identification, as configured.
    pub vendor: Option<String>,
    /// SCSI's product identification, as configured.
    pub product: Option<String>,
    /// SCSI's product revision level, as configured.
    pub revision: Option<String>,
    /// Every change is refused with [`Error::ReadOnly`].
    pub read_only: bool,
    /// Space is taken as it is written, and given back.
    pub is_thin: bool,
    /// A completed write may be lost with the machine until a flush. False for
    /// memory: no flush could make a write there more durable than it is.
    pub volatile_cache: bool,
    /// Reads, writes and compare-and-writes of up to this many bytes are one
    /// step to every other I/O, whichever host sends it (NVM Command Set Specification,
    /// section 2.1.4: AWUN, NAWUN, NACWU). Of larger ones every block is.
    pub atomic_bytes: u32,
    /// Writes of up to this many bytes are whole or not at all when the machine
    /// fails in the middle (AWUPF, NAWUPF).
    pub atomic_power_fail_bytes: u32,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// A part of a volume whose bytes all are, or all are not, allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte.
    pub offset: u64,
    /// Bytes, in whole blocks.
    pub len: u64,
    /// Whether data was written there; reads as zeros if not.
    pub allocated: bool,
}

/// What a volume takes of what is below it, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that it takes.
    pub used_bytes: u64,
    /// Bytes that are left for it and for everything else that is kept there.
    pub available_bytes: u64,
    /// Bytes that there are in all; `None` of the machine's memory, which what is idle fills, too.
    pub total_bytes: Option<u64>,
}

impl Space {
    /// What two volumes take, which may lie in one place: what is left is that of the fuller one.
    pub(crate) fn with(self, other: Space) -> Space {
        let fuller = match other.available_bytes < self.available_bytes {
            true => other,
            false => self,
        };
        Space {
            used_bytes: self.used_bytes + other.used_bytes,
            ..fuller
        }
    }

    /// How full it is there, rounded up; 0 where that is not known.
    fn taken_percent(&self) -> u8 {
        let total = self.total_bytes.unwrap_or(0);
        let taken = total.saturating_sub(self.available_bytes);
        let percent = (u128::from(taken) * 100).div_ceil(u128::from(total.max(1)));
        percent as u8
    }
}

/// A run of logical blocks that can be read and written.
///
/// A kind of volume over another one, of which nothing can be written
/// (`examples/volume_kind.rs` serves such a one):
///
/// ```
/// use std::io::Result as IoResult;
/// use std::sync::Arc;
///
/// use reactor::{FileIo, Token};
/// use store::{Base, Error, Extent, Io, Kind, Progress, ResizeError, Spec, Task, Volume};
///
/// struct Sealed(Arc<dyn Volume>);
///
/// impl Volume for Sealed {
///     fn base(&self) -> &Base {
///         self.0.base()
///     }
///     fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
///         match io {
///             Io::Read { .. } | Io::Compare { .. } => self.0.start(io, files, token),
///             _ => Progress::Done(Err(Error::ReadOnly)),
///         }
///     }
///     fn resume(
///         &self,
///         task: Task,
///         result: IoResult<u32>,
///         files: &mut dyn FileIo,
///         token: Token,
///     ) -> Progress {
///         self.0.resume(task, result, files, token)
///     }
///     fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
///         self.0.resize(size_bytes, allow_shrink)
///     }
///     fn extents(&self, at: u64, len: u64, max: usize, out: &mut Vec<Extent>) -> Result<(), Error> {
///         self.0.extents(at, len, max, out)
///     }
/// }
///
/// let disk = store::open(&Spec::new("disk", Kind::RAM, 1 << 20, 512))?;
/// let sealed = Sealed(disk);
/// assert_eq!(sealed.size_bytes(), 1 << 20);
/// # Ok::<(), store::OpenError>(())
/// ```
pub trait Volume: Send + Sync {
    /// What it has in common with every other volume.
    fn base(&self) -> &Base;

    /// What it is.
    #[inline]
    fn info(&self) -> &Info {
        self.base().info()
    }

    /// Capacity now, a multiple of the block size.
    #[inline]
    fn size_bytes(&self) -> u64 {
        self.base().size_bytes()
    }

    /// What it remembers beside its data.
    fn state(&self) -> &State {
        self.base().state()
    }

    /// What each host may do, whichever protocol it comes by.
    #[inline]
    fn reservations(&self) -> &Reservations {
        self.state().reservations()
    }

    /// A whole read of `len` bytes, done: where the data lies, which stays as
    /// it is while the loan lives. `None` if the volume is not memory, or will
    /// not lend this now (an error, too many loans): start an [`Io::Read`]
    /// into a buffer, which also says what is wrong.
    #[inline]
    fn lend(&self, _offset: u64, _len: u32) -> Option<Loan> {
        None
    }

    /// Memory to receive a write into, which no reader sees before it is given to
    /// [`Volume::commit`]; dropping it takes the write back. `None` as in
    /// [`Volume::lend`]: receive it into a buffer and start an [`Io::Write`].
    #[inline]
    fn borrow(&self, _offset: u64, _len: u32) -> Option<Loan> {
        None
    }

    /// Makes what [`Volume::borrow`] has lent for this very range the
    /// volume's content: a whole write, done when this returns. On an error
    /// nothing is written; after [`Error::Busy`] it may be tried again.
    fn commit(&self, _loan: &mut Loan, _offset: u64) -> Result<(), Error> {
        unreachable!("this volume lends nothing")
    }

    /// A whole write of bytes that are at hand, done when this returns.
    /// `None` if the volume is not memory: start an [`Io::Write`].
    #[inline]
    fn write_now(&self, _offset: u64, _bytes: &[u8]) -> Option<Result<(), Error>> {
        None
    }

    /// Begins an I/O. What completes for it (file operations, and the
    /// [`reactor::Ticket`] of one that waits for its turn) carries `token` in all but its
    /// low [`LEG_BITS`] bits, which are 0 here: a volume over others has a completion
    /// to come for each of these bits' values at most. Memory named by `io` must live
    /// until the task is done.
    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress;

    /// Goes on with a task whose completion has come with `result` and `token`:
    /// finishes it, continues a short read or write, or fails. With an error for a
    /// task that [waits](Task::is_waiting) it ends with that, undone.
    fn resume(
        &self,
        task: Task,
        result: IoResult<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress;

    /// The volume that it is but for its I/Os: what is not about those is asked of that one.
    fn below(&self) -> Option<&dyn Volume> {
        None
    }

    /// Whether it does anything by itself.
    fn has_upkeep(&self) -> bool {
        self.below().is_some_and(|below| below.has_upkeep())
    }

    /// Begins something that it does by itself, as copying what a part of it lacks; `None` if
    /// there is nothing to do now, and it is to be asked again within a second. What began goes
    /// on by [`Volume::resume`], and there is one at a time. `token` as in [`Volume::start`].
    fn upkeep(&self, now: Nanos, files: &mut dyn FileIo, token: Token) -> Option<Progress> {
        self.below()?.upkeep(now, files, token)
    }

    /// The mirror that it is, where it is encrypted, too.
    fn as_mirror(&self) -> Option<&Mirror> {
        self.below()?.as_mirror()
    }

    /// How often it may have lost what was written to it and not flushed, since it was opened.
    fn losses(&self) -> u64 {
        self.below().map_or(0, |below| below.losses())
    }

    /// The blocks that it is, where another machine keeps them.
    fn remote(&self) -> Option<&dyn RemoteBlocks> {
        self.below()?.remote()
    }

    /// I/Os done so far, and those that failed by kind.
    fn stats(&self) -> Stats {
        self.base().counters.stats()
    }

    /// Changes the capacity; `size_bytes` 0 is that of the device below, for a
    /// volume that has one. A larger one is durable before it shows; a smaller
    /// one, for which `allow_shrink` must be said, loses what lies behind it,
    /// and I/Os there fail with [`Error::OutOfRange`]. Blocks: not for a
    /// reactor at work.
    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError>;

    /// Appends what is and what is not allocated in a range, in order and
    /// without gaps, from its start up to `max` extents. Blocks: not for a
    /// reactor at work.
    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error>;

    /// What its snapshots need; `None` where its kind has none. [`snapshot`] makes them.
    fn snapshots(&self) -> Option<&Snapshots> {
        None
    }

    /// What it needs to be compared with its snapshots, or with those of the volume that it is a
    /// snapshot of; `None` where its kind cannot. [`snapshot::Comparison`] compares.
    fn comparable(&self) -> Option<&snapshot::Comparable> {
        None
    }

    /// What it needs to share blocks with another volume; `None` where its kind cannot.
    fn sharing(&self) -> Option<&Sharing> {
        None
    }

    /// What it takes of the file system or the machine's memory below it, and
    /// what is left there; `None` where space is not taken as it is written, or
    /// is not known. Blocks: not for a reactor at work.
    fn space(&self) -> Option<Space> {
        self.below()?.space()
    }

    /// Has [`Base::used_bytes`] and [`Base::taken_percent`] say what is so now. Blocks: not for
    /// a reactor at work. Call [`Base::begin_look`] before.
    fn look_at_space(&self) {
        self.base().set_space(self.space());
    }

    /// What it is encrypted by, if it is.
    fn encryption(&self) -> Option<&Encryption> {
        None
    }

    /// Whether what is read of it is compared with checksums.
    fn has_checksums(&self) -> bool {
        self.scrub().is_some()
    }

    /// The scrub of its blocks, where those have checksums.
    fn scrub(&self) -> Option<&Scrub> {
        self.below()?.scrub()
    }

    /// Whether hosts can neither read nor write its data for want of a key, of its own or of
    /// what it is made of.
    fn is_locked(&self) -> bool {
        self.below().is_some_and(|below| below.is_locked())
    }

    /// Whether nothing was ever written to a range, as far as can be told without reading all
    /// of it. Blocks: not for a reactor at work.
    fn is_blank(&self, range: Range) -> bool {
        if let Some(below) = self.below() {
            return below.is_blank(range);
        }
        let Range { offset, len } = range;
        let mut found = Vec::new();
        let asked = self.extents(offset, len, 1, &mut found);
        let is_hole = |extent: &Extent| !extent.allocated && extent.len == len;
        asked.is_ok() && found.iter().all(is_hole)
    }

    /// Takes flushes again after one that has failed. What that may have lost is written anew, by
    /// the mirror that it is a leg of.
    fn forget_loss(&self) {
        if let Some(below) = self.below() {
            below.forget_loss();
        }
    }

    /// The parts of a range that are marked with [`Io::MarkUnreadable`], in
    /// order, `max` at most.
    fn unreadable(&self, offset: u64, len: u64, max: usize) -> Vec<Range> {
        match self.below() {
            Some(below) => below.unreadable(offset, len, max),
            None => self.base().unreadable(offset, len, max),
        }
    }
}
