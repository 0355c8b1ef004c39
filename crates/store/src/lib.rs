//! What is served: volumes.
//!
//! A [`Volume`] is a run of logical blocks. It is driven from any number of
//! reactors at once, never blocks them and holds no state of an I/O: what a
//! started I/O still needs is a [`Task`] that its driver keeps.
//!
//! | kind   | reads            | writes    | lasts                                   |
//! |--------|------------------|-----------|-----------------------------------------|
//! | `null` | zeros            | discarded | nothing                                 |
//! | `ram`  | its own memory   | into it   | as long as the process                  |
//! | `file` | through `FileIo` | likewise  | flushed data outlives a machine's crash |
#![forbid(unsafe_code)]

mod file;
mod identity;
mod io;
mod null;
mod open;
mod ram;
mod stats;

pub use io::{Access, Errno, Error, Io, Progress, Task};
pub use open::{BLOCK_SIZES, Kind, OpenError, Problem, SIZE_MAX_BYTES, Spec, open};
pub use stats::{ErrorStats, Stats};

use std::io::Result as IoResult;

use mem::BufRange;
use reactor::{FileIo, Token};
use uuid::Uuid;

/// What a volume is; never changes while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name in the configuration.
    pub name: String,
    /// `null`, `ram` or `file`.
    pub kind: &'static str,
    /// Capacity, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Bytes of a logical block, one of [`BLOCK_SIZES`].
    pub block_bytes: u32,
    /// The same after a restart; different between machines and volumes.
    pub uuid: Uuid,
    /// Follows from `uuid`. Its EUI-64 part is marked as locally administered
    /// (NVM Express Base Specification, Identify Namespace, NGUID).
    pub nguid: [u8; 16],
    /// Follows from `uuid`: 20 characters, ASCII.
    pub serial: String,
    /// Every change is refused with [`Error::ReadOnly`].
    pub read_only: bool,
    /// A completed write may be lost with the machine until a flush. False for
    /// memory: no flush could make a write there more durable than it is.
    pub volatile_cache: bool,
}

/// A run of logical blocks that can be read and written.
pub trait Volume: Send + Sync {
    /// What it is.
    fn info(&self) -> &Info;

    /// The memory in which `[offset, offset + len)` lies, if the volume is
    /// memory and may be read ([`Access::Read`]) or written
    /// ([`Access::Write`]) in place. Reads are sent from it, writes received
    /// into it; [`Io::Read`] and [`Io::Write`] on that very range then move
    /// nothing, and are still to be started: they check and count.
    ///
    /// Other I/Os may change the memory at any time. A caller that needs the
    /// bytes to stand still (a digest over what it sends) copies them first,
    /// and one that may throw received bytes away (a digest that does not
    /// match) knows that the old content is gone.
    fn memory(&self, access: Access, offset: u64, len: u32) -> Option<BufRange>;

    /// Begins an I/O. File operations carry `token` in their completion; one
    /// is outstanding per task. Memory named by `io` must live until the task
    /// is done.
    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress;

    /// Goes on with a task whose file operation has completed with `result`:
    /// finishes it, continues a short read or write, or fails.
    fn resume(
        &self,
        task: Task,
        result: IoResult<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress;

    /// I/Os done so far, and those that failed by kind.
    fn stats(&self) -> Stats;
}
