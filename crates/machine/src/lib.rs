//! The contract between a protocol and everything around it.
//!
//! A [`Machine`] is one connection of one protocol as pure state: it makes no
//! syscall, reads no clock, owns no thread and never touches payload. Its
//! driver (the real one in `server` and `host`, the simulator's, a fuzzer)
//! moves the bytes:
//!
//! 1. [`Machine::recv_plan`] says where the next bytes of the stream go. The
//!    driver makes one receive of it: the rest of a payload straight into its
//!    destination, whatever follows into a staging buffer.
//! 2. [`Machine::on_direct`] tells how much of the direct part arrived, then
//!    [`Machine::poll_step`] walks the staged bytes and yields what to do, one
//!    [`Step`] at a time, until it wants more bytes. Nothing is queued on this
//!    way: a step is yielded where it is parsed.
//! 3. Work for the store comes as [`Step::Op`] in the protocol's own words and
//!    is answered by the protocol's own methods, at once or later.
//! 4. [`Machine::poll_transmit`] writes headers and names payload into a
//!    [`Transmit`]; the driver sends all of it with one syscall.
//!
//! Payload is named by the [`Tag`] of the command it belongs to; which memory
//! that is, only the driver knows. Memory in a send belongs to the send until
//! the kernel is done with it, so a machine frees a tag as soon as it has
//! named its last byte, and no call says when it left.
#![forbid(unsafe_code)]

mod crc;
pub mod inbound;
mod lock;
pub mod work;

pub use crc::crc32c;
pub use lock::locked;

/// A command in flight on one connection: an index into the machine's slot
/// table, chosen by the machine, unique while the command lives, below
/// [`Machine::tags_max`]. Drivers keep their own part of a command in a table
/// with the same index.
pub type Tag = u16;

/// Nanoseconds of a monotonic clock whose zero the driver chooses.
pub type Nanos = u64;

/// Payload that should land in its destination without passing through staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// The command the payload belongs to.
    pub tag: Tag,
    /// First byte, counted from the start of the command's data.
    pub offset: u32,
    /// Bytes still missing of this run; never 0.
    pub len: u32,
}

/// Where the next bytes of the stream go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvPlan {
    /// Payload first, if the stream stands inside one.
    pub direct: Option<Direct>,
    /// At most this many bytes into staging after it. Small where large
    /// payload is expected next (so that it is not staged), large where many
    /// small PDUs are. 0 only with no direct part: the machine waits for memory
    /// (an operation that the driver has not answered yet). Make no receive,
    /// keep the staged bytes and walk them again after the answer.
    pub stage_max: u32,
}

/// What the driver does next for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<O> {
    /// Payload arrived in staging together with its header: copy
    /// `staged[at..at + len]` to byte `offset` of the data of `tag`.
    Place {
        /// The command the payload belongs to.
        tag: Tag,
        /// First byte, counted from the start of the command's data.
        offset: u32,
        /// Where it lies in the staged bytes.
        at: u32,
        /// Bytes; never 0.
        len: u32,
        /// A [`Step::Digest`] of exactly these bytes follows, with this seed: their
        /// CRC32C can be computed in the same pass.
        digest: Option<u32>,
    },
    /// The CRC32C of `len` bytes from `offset` of the data of `tag` is needed, all of
    /// which are there. Answer with [`Machine::on_digest`] before the next step.
    Digest {
        /// The command the payload belongs to.
        tag: Tag,
        /// First byte that the digest covers.
        offset: u32,
        /// How many.
        len: u32,
        /// The CRC32C of what stands before them and is covered too; else 0.
        seed: u32,
    },
    /// Work in the protocol's own words.
    Op(O),
}

impl<O> Step<O> {
    /// The step of a machine that stands on the one of this step, whose work comes to what `op`
    /// says; `None`: there is nothing to do.
    #[inline]
    pub fn filter_map<P>(self, op: impl FnOnce(O) -> Option<P>) -> Option<Step<P>> {
        Some(match self {
            Step::Op(of) => Step::Op(op(of)?),
            Step::Place {
                tag,
                offset,
                at,
                len,
                digest,
            } => Step::Place {
                tag,
                offset,
                at,
                len,
                digest,
            },
            Step::Digest {
                tag,
                offset,
                len,
                seed,
            } => Step::Digest {
                tag,
                offset,
                len,
                seed,
            },
        })
    }
}

/// Most bytes of padding: up to a multiple of 4, and a digest that nothing checks.
pub const PAD_MAX: usize = 7;

/// What follows a payload on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// So many zero bytes, at most [`PAD_MAX`].
    pub pad: u8,
    /// Then the CRC32C of payload and padding: 4 bytes, little endian. It continues
    /// this one, of what stands before them and is covered too; else 0.
    pub digest: Option<u32>,
}

impl Tail {
    /// No padding, and a digest of the payload or none.
    #[inline]
    pub const fn digest(has_digest: bool) -> Tail {
        Tail {
            pad: 0,
            digest: if has_digest { Some(0) } else { None },
        }
    }

    /// Padding of `len` bytes to a multiple of 4, and a digest of both or none.
    #[inline]
    pub const fn padded(len: u32, has_digest: bool) -> Tail {
        Tail {
            pad: (len.wrapping_neg() % 4) as u8,
            ..Tail::digest(has_digest)
        }
    }

    /// Bytes of it.
    #[inline]
    pub fn bytes(self) -> u32 {
        u32::from(self.pad) + if self.digest.is_some() { 4 } else { 0 }
    }
}

/// Where a machine puts what it sends: a batch that goes out in one syscall.
pub trait Transmit {
    /// Whether one more PDU (a header, one payload, a trailer) fits.
    fn has_room(&self) -> bool;
    /// Header bytes that fit now: of a PDU, if there is room for one, 512 at least.
    fn header_room(&self) -> usize;
    /// Appends header bytes; they are copied.
    fn header(&mut self, bytes: &[u8]);
    /// Appends `len` bytes of the data of `tag` from `offset`, and what follows
    /// them.
    fn payload(&mut self, tag: Tag, offset: u32, len: u32, tail: Tail);
    /// The machine has named the last byte of `tag` and will reuse the tag:
    /// the memory behind it is free once this batch is sent.
    fn release(&mut self, tag: Tag);
}

/// One connection of one protocol, without I/O.
pub trait Machine {
    /// Work in the protocol's own words.
    type Op;

    /// Tags are below this; grows as commands arrive, up to the queue's size.
    fn tags_max(&self) -> usize;

    /// Where the next bytes of the stream go.
    fn recv_plan(&self) -> RecvPlan;

    /// `len` bytes of the plan's direct part arrived in their destination; where the machine
    /// has ended since the plan, nothing comes of it.
    fn on_direct(&mut self, len: u32);

    /// Takes the next step that `staged[*at..]` allows at the time `now` and moves `at` past
    /// what it used. `None`: more bytes are needed; what lies behind `at` then
    /// is an unfinished header and must come again, first, with the next
    /// receive. Where the connection's share of the turn is used up ([`work::is_used_up`]), it
    /// may be more: what is staged is walked again in the next turn, before anything is
    /// received. After a fatal error the machine uses up whatever it is given.
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<Self::Op>>;

    /// Whether [`Machine::poll_step`] may yield something without new bytes: what it holds
    /// back, and may go on with now, or tells besides.
    #[inline]
    fn has_step(&self) -> bool {
        false
    }

    /// Whether nothing more is taken before there is memory for `tag`.
    #[inline]
    fn is_blocked_on(&self, _tag: Tag) -> bool {
        false
    }

    /// The answer to [`Step::Digest`]: the CRC32C, `seed` continued.
    fn on_digest(&mut self, tag: Tag, crc: u32);

    /// Whether [`Machine::poll_transmit`] has something to do: it writes, lets go of tags, or has
    /// work of its own that comes to be written later.
    fn has_transmit(&self) -> bool;

    /// Writes as many PDUs as are ready and fit.
    fn poll_transmit(&mut self, out: &mut impl Transmit);

    /// Whether the connection must be closed once everything was sent.
    fn is_finished(&self) -> bool;

    /// When [`Machine::on_deadline`] wants to be called next.
    fn deadline(&self) -> Option<Nanos>;

    /// Time has passed.
    fn on_deadline(&mut self, now: Nanos);
}
