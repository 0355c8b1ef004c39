//! What passes between a driver and its user.

use crate::batch::Batch;
use crate::bell::Ticket;
use crate::descriptors::{BoundListener, ConnectedSocket, DiskFile};
use crate::sys::{self, Nanos};
use crate::waker::Waker;
use mem::{BufRange, Pool, Stage};
use rustix::fs::FallocateFlags;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Chosen by the caller of an operation; comes back in its completion.
pub type Token = u64;

/// A socket or listener of one driver, and which use of its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SocketId {
    /// Names place `index` of a driver's table in its use number `generation`.
    pub fn new(index: u32, generation: u32) -> SocketId {
        SocketId { index, generation }
    }

    /// The place in its driver's table.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Which use of that place.
    pub fn generation(self) -> u32 {
        self.generation
    }
}

/// What one receive brought.
#[derive(Debug)]
pub struct Received {
    /// Bytes that arrived in the direct part.
    pub direct: u32,
    /// The stage given to the receive, or one of the driver's, with what
    /// followed appended; `None` where none was given and nothing followed.
    pub stage: Option<Stage>,
    /// The peer has closed its side: nothing arrived, and nothing will.
    pub eof: bool,
    /// More lay in the socket when the receive ended: the next one ends at once.
    pub more: bool,
}

/// The end of an operation.
#[derive(Debug)]
pub enum Completion {
    /// A listener accepted (or failed to: it tries again by itself).
    Accepted {
        /// Of [`Driver::add_listener`].
        token: Token,
        /// The connection and its peer, or why there was none.
        result: io::Result<(ConnectedSocket, SocketAddr)>,
    },
    /// A connection was made or refused. Refused, the socket still wants
    /// [`Driver::close`].
    Connected {
        /// Of [`Driver::connect`].
        token: Token,
        /// Why it failed.
        result: io::Result<()>,
    },
    /// Bytes, the end of the stream, or an error that ended it.
    Received {
        /// Of [`Driver::recv`].
        token: Token,
        /// What arrived.
        result: io::Result<Received>,
    },
    /// The kernel took the whole batch, or an error ended the stream.
    Sent {
        /// Of [`Driver::send`].
        token: Token,
        /// Why it failed.
        result: io::Result<()>,
    },
    /// A file operation ended.
    File {
        /// Of the operation.
        token: Token,
        /// Bytes moved (0 for what moves none). Fewer than asked: the end of
        /// the file, or a short operation to be continued.
        result: io::Result<u32>,
    },
    /// Every operation of a socket has ended and its memory is free. The last
    /// completion of that socket.
    Closed {
        /// Of [`Driver::close`].
        token: Token,
    },
}

impl Completion {
    /// What the operation was started with.
    #[inline]
    #[must_use]
    pub fn token(&self) -> Token {
        match self {
            Completion::Accepted { token, .. }
            | Completion::Connected { token, .. }
            | Completion::Received { token, .. }
            | Completion::Sent { token, .. }
            | Completion::File { token, .. }
            | Completion::Closed { token } => *token,
        }
    }
}

/// How to change what lies under a range of a file; its size stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Give the space back; reads as zero.
    PunchHole,
    /// Zero it, keeping the space reserved where the file system can.
    ZeroRange,
}

impl FallocateMode {
    pub(crate) fn flags(self) -> FallocateFlags {
        FallocateFlags::KEEP_SIZE
            | match self {
                FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE,
                FallocateMode::ZeroRange => FallocateFlags::ZERO_RANGE,
            }
    }
}

/// File work, object safe: what a store sees of a driver. Every operation is
/// answered by one [`Completion::File`]; the memory it names must stay as it
/// is until then.
pub trait FileIo {
    /// Reads into `buf` from `offset` of the file.
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token);
    /// Writes `buf` at `offset` of the file; on stable storage at the
    /// completion if `durable`.
    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    );
    /// Brings the file's data, and what is needed to find it, to stable storage.
    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token);
    /// Changes what lies under `len` bytes from `offset`.
    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    );
    /// A completion that anyone may bring about, from any thread.
    fn ticket(&mut self, token: Token) -> Ticket;
    /// A completion with no bytes when so much time has passed; at once where there is no
    /// time.
    fn complete_after(&mut self, _after_ns: Nanos, token: Token) {
        self.ticket(token).ring();
    }
    /// Asks for the operations of `token` to end early. Each still has its one
    /// completion: ECANCELED where it had not begun, EINTR where it was stopped
    /// on its way, and its usual result where nothing stops it.
    fn cancel_file(&mut self, token: Token);
}

/// How long [`Driver::poll`] may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Now,
    /// Until a completion, a wake or this time; `Nanos::MAX` is for ever.
    Until(Nanos),
}

/// Settings of a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Batches whose payload lies in pieces of at least this many bytes, taken
    /// together, are sent zero-copy, if any are.
    pub zero_copy_min_bytes: Option<u32>,
    /// Zero-copy batches whose payload is one piece of at least this many
    /// bytes are sent from registered buffers, if any are and it lies where
    /// there may be such ([`mem::Pool::in_small_pages`]).
    pub registered_min_bytes: Option<u32>,
    /// Sockets at a time; more are refused.
    pub sockets_max: u32,
    /// Whether payload goes between the socket and where it lies, many PDUs to
    /// a call; else it is copied on the way and each PDU is sent by itself, as
    /// a server does that makes nothing of its sockets.
    pub fast_path: bool,
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        DriverConfig {
            zero_copy_min_bytes: None,
            registered_min_bytes: None,
            sockets_max: 16_384,
            fast_path: true,
        }
    }
}

/// What a driver has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls on the data path (setting a connection up not counted).
    pub syscalls: u64,
    /// Sleeps in the kernel that ended.
    pub wakeups: u64,
    /// Receives that ended.
    pub recvs: u64,
    /// Bytes received.
    pub recv_bytes: u64,
    /// Batches sent.
    pub sends: u64,
    /// Bytes sent.
    pub send_bytes: u64,
    /// Sends that the kernel took only a part of and that were continued.
    pub partial_sends: u64,
    /// Batches sent zero-copy.
    pub zero_copy_sends: u64,
    /// Of these, batches whose payload lay in a registered buffer.
    pub zero_copy_registered: u64,
    /// Zero-copy sends that the kernel copied after all.
    pub zero_copy_copied: u64,
    /// Zero-copy sends that the kernel refused, mostly for want of locked
    /// memory, and that went the usual way.
    pub zero_copy_refused: u64,
    /// Sockets that went back to plain sends, since the kernel copied anyway.
    pub zero_copy_given_up: u64,
    /// Buffers that were registered, each of [`mem::blocks::BLOCK_BYTES`].
    pub buffers_registered: u64,
    /// Receives that found no stage of the size that they wanted.
    pub starved_recvs: u64,
    /// File operations that ended.
    pub file_ops: u64,
}

/// A completion-based view of the kernel. Everything is submitted and answered
/// in [`Driver::poll`]. Using a socket after its close is our own mistake and
/// panics.
pub trait Driver: FileIo {
    /// "io_uring" or "epoll".
    fn name(&self) -> &'static str;
    /// The pool of this reactor.
    fn pool(&self) -> &Pool;
    /// See [`DriverConfig::fast_path`]: for callers that fill batches
    /// and plan receives.
    fn fast_path(&self) -> bool {
        true
    }
    /// The file operations that follow are of this host; 0 is of none. Hosts take turns
    /// where a disk has more to do than its share.
    fn set_host(&mut self, _: u64) {}
    /// An empty batch.
    fn batch(&mut self) -> Box<Batch>;
    /// Frees what nothing has used since this was called last; whether there was any.
    fn give_back(&mut self) -> bool {
        self.pool().trim_unused() > 0
    }
    /// Accepts on `listener` until closed, one [`Completion::Accepted`] each.
    fn add_listener(&mut self, listener: BoundListener, token: Token) -> io::Result<SocketId>;
    /// Takes a connected socket; nothing of what is sent waits for more.
    fn add_socket(&mut self, connected: ConnectedSocket) -> io::Result<SocketId>;
    /// Gives a connected socket back, for another driver to take: it stays as it
    /// is, and nothing of it is left here. `None`: something of it is under way.
    fn remove_socket(&mut self, socket: SocketId) -> Option<ConnectedSocket>;
    /// Connects; answered by [`Completion::Connected`].
    fn connect(&mut self, addr: SocketAddr, token: Token) -> io::Result<SocketId>;
    /// One receive: `direct` first, then at most `stage_max` bytes appended to
    /// `stage`, or, without one, to a stage of the pool that is taken only
    /// when bytes are there (or `direct` is given). Fewer bytes than asked for
    /// complete it. One at a time a socket.
    fn recv(
        &mut self,
        socket: SocketId,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
        token: Token,
    );
    /// Sends all of `batch`; an empty one is a mistake. One at a time a socket.
    fn send(&mut self, socket: SocketId, batch: Box<Batch>, token: Token);
    /// Whether the peer of a connected socket has closed its side, or is gone: what it sent
    /// before may still lie there. For a socket of which nothing is received meanwhile.
    fn peer_has_closed(&mut self, socket: SocketId) -> bool;
    /// Cancels what is outstanding and closes. Nothing but
    /// [`Completion::Closed`] comes afterwards, except completions that the
    /// current [`Driver::poll`] has already returned.
    fn close(&mut self, socket: SocketId, token: Token);
    /// Submits everything and appends what has completed.
    fn poll(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()>;
    /// Wakes a sleeping [`Driver::poll`] from any thread.
    fn waker(&self) -> Waker;
    /// The time of the last [`Driver::poll`].
    fn now(&self) -> Nanos;
    /// The time now, which costs a look at the clock.
    fn clock(&self) -> Nanos {
        sys::now()
    }
    /// What it has done.
    fn counters(&self) -> Counters;
}
