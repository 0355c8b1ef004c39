//! The io_uring driver.
//!
//! Everything is queued by the calls and submitted by [`Driver::poll`], which
//! enters the kernel once, or not at all where neither submissions nor
//! deferred completions wait (both are seen in shared memory). An operation
//! owns its memory in here until its completion, and a socket's place in the
//! table is free only when the kernel owes it nothing more.

mod end;
mod files;
mod lone;
mod probe;
mod registered;
mod request;
mod ring;
mod socket;
mod stages;
mod zero_copy;

pub use probe::{ProbeError, probe};

use crate::batch::{Batch, SpareBatches};
use crate::bell::Bell;
use crate::descriptors::{BoundListener, ConnectedSocket, NOT_THE_KERNELS};
use crate::receive::pieces;
use crate::shares::{DiskShares, DisksOfFiles};
use crate::sys::{self, Nanos};
use crate::timers::Timers;
use crate::types::{Completion, Counters, Driver, DriverConfig, Received, SocketId, Token, Wait};
use crate::waker::{Sleeper, Waker};
use files::{FileOp, SHARE_MAX};
use io_uring::types::{Fd, Fixed};
use io_uring::{Probe, cqueue, opcode};
use lone::Lone;
use mem::{BufRange, Pool, Stage};
use registered::Registered;
use request::Request;
use ring::Ring;
use rustix::io::Errno;
use socket::{Connect, Flight, Recv, Send, Slab, Socket, Sockets};
use stages::{GROUP, Stages};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Submission entries: fewer where the limit on locked memory is in the way.
const ENTRIES: [u32; 3] = [1024, 256, 64];
/// A listener that failed (no descriptors left, say) rests this long.
const ACCEPT_REST_NS: Nanos = 100_000_000;
const POLL_FIRST: u16 = 1;

/// What a completion answers; the top byte of its user data.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum CompletionKind {
    Wake,
    Accept,
    Connect,
    Recv,
    Send,
    SendZeroCopy,
    Cancel,
    File,
    CancelFile,
}

const KINDS: [CompletionKind; 9] = [
    CompletionKind::Wake,
    CompletionKind::Accept,
    CompletionKind::Connect,
    CompletionKind::Recv,
    CompletionKind::Send,
    CompletionKind::SendZeroCopy,
    CompletionKind::Cancel,
    CompletionKind::File,
    CompletionKind::CancelFile,
];
const GENERATION_MASK: u32 = 0xff_ffff;

/// `kind << 56 | generation << 32 | index`.
#[inline]
fn user_data(kind: CompletionKind, generation: u32, index: u32) -> u64 {
    (kind as u64) << 56 | u64::from(generation & GENERATION_MASK) << 32 | u64::from(index)
}

/// The driver over io_uring; belongs to the thread that made it.
pub struct UringDriver {
    ring: Ring,
    pool: Pool,
    stages: Stages,
    sockets: Sockets,
    free: Vec<u32>,
    sockets_max: u32,
    fast_path: bool,
    /// Whose file operations come now.
    host: u64,
    flights: Slab<Flight>,
    files: Slab<FileOp>,
    disks: DisksOfFiles,
    shares: DiskShares<(Request, FileOp)>,
    /// Disks whose shares the kernel has threads for.
    disks_max: usize,
    zero_copy_min_bytes: u64,
    registered_min_bytes: u64,
    registered: Registered,
    batches: SpareBatches,
    /// Listeners that rest, and until when.
    resting: Vec<(Nanos, SocketId)>,
    /// Completions that did not come from the kernel.
    ready: Vec<Completion>,
    reaped: Vec<cqueue::Entry>,
    lone: Lone,
    sleeper: Sleeper,
    bell: Arc<Bell>,
    timers: Timers,
    wake_count: Box<u64>,
    owed: u32,
    now: Nanos,
    counters: Counters,
}

impl UringDriver {
    /// A driver for the calling thread.
    pub fn new(config: &DriverConfig, pool: Pool) -> io::Result<UringDriver> {
        let descriptors = sys::raise_descriptor_limit();
        let ring = new_ring()?;
        let sockets_max = u64::from(config.sockets_max).min(descriptors) as u32;
        ring.submitter().register_files_sparse(sockets_max)?;
        let stages = Stages::register(&ring)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let sleeper = Sleeper::new(false)?;
        let zero_copy = zero_copy::min_bytes(config, &probe);
        let registered = config.registered_min_bytes.filter(|_| zero_copy.is_some());
        let mut driver = UringDriver {
            pool,
            stages,
            sockets: Sockets::default(),
            free: Vec::new(),
            sockets_max,
            fast_path: config.fast_path,
            host: 0,
            flights: Slab::new(),
            files: Slab::new(),
            disks: DisksOfFiles::default(),
            shares: DiskShares::new(SHARE_MAX),
            disks_max: 0,
            zero_copy_min_bytes: zero_copy.map_or(u64::MAX, u64::from),
            registered_min_bytes: registered.map_or(u64::MAX, u64::from),
            registered: Registered::new(&ring, registered.is_some()),
            batches: SpareBatches::default(),
            resting: Vec::new(),
            ready: Vec::new(),
            reaped: Vec::with_capacity(ENTRIES[0] as usize * 4),
            lone: Lone::default(),
            bell: Bell::new(Some(sleeper.waker())),
            timers: Timers::default(),
            sleeper,
            wake_count: Box::new(0),
            owed: 0,
            now: sys::now(),
            counters: Counters::default(),
            ring,
        };
        driver.arm_wake();
        Ok(driver)
    }

    #[inline]
    fn push(&mut self, request: Request, user_data: u64) {
        self.owed += 1;
        self.ring.push(&request.user_data(user_data));
    }

    fn arm_wake(&mut self) {
        let fd = Fd(self.sleeper.fd().as_raw_fd());
        let entry = opcode::Read::new(fd, (&raw mut *self.wake_count).cast(), 8).build();
        // SAFETY: the count is boxed, and `drop` outwaits the read.
        let request = unsafe { Request::pointing(entry) };
        self.push(request, user_data(CompletionKind::Wake, 0, 0));
    }

    /// The place of a socket in use. Anything else is our own mistake.
    #[inline]
    fn socket(&mut self, id: SocketId) -> &mut Socket {
        let socket = &mut self.sockets[id.index as usize];
        assert!(
            socket.generation == id.generation && socket.fd.is_some(),
            "socket used after its end"
        );
        assert!(socket.closing.is_none(), "socket used after its close");
        socket
    }

    #[inline]
    fn push_for(&mut self, index: u32, kind: CompletionKind, request: Request) {
        let socket = &mut self.sockets[index as usize];
        socket.owed += 1;
        let data = user_data(kind, socket.generation, index);
        self.push(request, data);
    }

    fn insert(&mut self, fd: OwnedFd) -> io::Result<SocketId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if (self.sockets.len() as u32) < self.sockets_max => self.sockets.grow(),
            None => return Err(io::Error::other("too many sockets")),
        };
        let raw = fd.as_raw_fd();
        if let Err(error) = self.ring.submitter().register_files_update(index, &[raw]) {
            self.free.push(index);
            return Err(error);
        }
        let socket = &mut self.sockets[index as usize];
        socket.fd = Some(fd);
        Ok(SocketId {
            index,
            generation: socket.generation,
        })
    }

    /// Ends a closing socket once the kernel owes it nothing.
    fn finish_if_quiet(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        let Some(token) = socket.closing else {
            return;
        };
        if !socket.is_quiet() {
            return;
        }
        let batch = socket.send.take().map(|send| send.batch);
        drop(self.clear(index));
        if let Some(batch) = batch {
            self.recycle(batch);
        }
        self.ready.push(Completion::Closed { token });
    }

    /// Frees a place in the table that the kernel owes nothing; what stood
    /// there.
    fn clear(&mut self, index: u32) -> Socket {
        let place = &mut self.sockets[index as usize];
        let generation = place.generation.wrapping_add(1);
        let old = std::mem::replace(place, Socket::new());
        place.generation = generation;
        // Fails for no entry that is in the table.
        let _ = self.ring.submitter().register_files_update(index, &[-1]);
        self.free.push(index);
        old
    }

    #[inline]
    fn recycle(&mut self, batch: Box<Batch>) {
        self.batches.put(batch);
    }

    fn submit_accept(&mut self, index: u32) {
        self.push_for(index, CompletionKind::Accept, Request::accept(index));
    }

    fn submit_recv(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        let recv = socket.recv.as_mut().expect("a receive is under way");
        let ioprio = if socket.has_more { 0 } else { POLL_FIRST };
        if recv.picks() {
            let request = Request::recv_picked(index, recv.stage_max, GROUP, ioprio);
            return self.push_for(index, CompletionKind::Recv, request);
        }
        let count;
        (socket.pieces, count) = pieces(recv.direct, recv.stage.as_mut(), recv.stage_max);
        assert!(count > 0, "a receive of nothing");
        let entry = if count == 1 {
            let piece = socket.pieces[0];
            opcode::Recv::new(Fixed(index), piece.iov_base.cast(), piece.iov_len as u32)
                .ioprio(ioprio)
                .build()
        } else {
            socket.message.msg_iov = socket.pieces.as_mut_ptr();
            socket.message.msg_iovlen = count as _;
            opcode::RecvMsg::new(Fixed(index), &raw mut socket.message)
                .ioprio(ioprio)
                .build()
        };
        // SAFETY: message and pieces are boxed with the socket, the stage is
        // held there, regions stay mapped, and the caller keeps its buffer.
        let request = unsafe { Request::pointing(entry) };
        self.push_for(index, CompletionKind::Recv, request);
    }

    #[inline]
    fn submit_send(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        let send = socket.send.as_mut().expect("a send is under way");
        let message = send.batch.message();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match send.batch.only_piece() {
            Some((base, len)) => opcode::Send::new(Fixed(index), base, len)
                .flags(flags)
                .build(),
            None => opcode::SendMsg::new(Fixed(index), message)
                .flags(flags as u32)
                .build(),
        };
        // SAFETY: the batch is boxed and held by the socket.
        let request = unsafe { Request::pointing(entry) };
        self.push_for(index, CompletionKind::Send, request);
    }

    /// Tries again what could not be done for want of descriptors.
    #[cold]
    fn retry(&mut self) {
        let now = self.now;
        while let Some(at) = self.resting.iter().position(|(until, _)| *until <= now) {
            let (_, id) = self.resting.swap_remove(at);
            self.submit_accept(id.index);
        }
    }

    /// How long to sleep, nothing where there is something to do.
    fn sleep_ns(&mut self, until: Nanos) -> Option<Nanos> {
        if self.ring.has_completions() || !self.ready.is_empty() {
            return None;
        }
        let resting = self.resting.iter().map(|(until, _)| *until);
        let until = resting.fold(until, Nanos::min);
        if until == Nanos::MAX {
            return Some(Nanos::MAX);
        }
        until.checked_sub(sys::now()).filter(|&ns| ns > 0)
    }

    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        if let Wait::Until(until) = wait
            && let Some(ns) = self.sleep_ns(until)
            && self.sleeper.try_sleep()
        {
            let slept = self.ring.sleep(ns);
            self.counters.wakeups += 1;
            return slept;
        }
        self.ring.turn()
    }

    fn on_entry(&mut self, entry: &cqueue::Entry, out: &mut Vec<Completion>) {
        let data = entry.user_data();
        let index = data as u32;
        let kind = KINDS[(data >> 56) as usize];
        if !cqueue::more(entry.flags()) {
            self.owed -= 1;
        }
        match kind {
            CompletionKind::Wake => self.arm_wake(),
            CompletionKind::File => self.on_file(index, entry.result(), out),
            // The operation itself tells how it ended.
            CompletionKind::CancelFile => {}
            CompletionKind::SendZeroCopy => self.on_flight(index, entry, out),
            CompletionKind::Accept
            | CompletionKind::Connect
            | CompletionKind::Recv
            | CompletionKind::Send
            | CompletionKind::Cancel => {
                let socket = &mut self.sockets[index as usize];
                let generation = (data >> 32) as u32 & GENERATION_MASK;
                assert!(
                    socket.generation & GENERATION_MASK == generation,
                    "completion of a socket that has ended"
                );
                if !cqueue::more(entry.flags()) {
                    socket.owed -= 1;
                }
                match kind {
                    CompletionKind::Recv => self.on_recv(index, entry, out),
                    CompletionKind::Send => self.on_send(index, entry.result(), out),
                    CompletionKind::Accept => self.on_accept(index, entry, out),
                    CompletionKind::Connect => self.on_connect(index, entry.result(), out),
                    _ => {}
                }
                self.finish_if_quiet(index);
            }
        }
    }

    fn on_accept(&mut self, index: u32, entry: &cqueue::Entry, out: &mut Vec<Completion>) {
        let socket = &self.sockets[index as usize];
        let token = socket.accept.expect("a listener accepts");
        // SAFETY: a result that is not negative is a new descriptor for us.
        let result = errno(entry.result()).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        if socket.closing.is_some() {
            return;
        }
        let id = SocketId {
            index,
            generation: socket.generation,
        };
        if !cqueue::more(entry.flags()) {
            match result {
                Ok(_) => self.submit_accept(index),
                Err(_) => self.resting.push((self.now + ACCEPT_REST_NS, id)),
            }
        }
        let result = match result {
            Ok(fd) => match sys::peer_addr(&fd) {
                Ok(peer) => Ok((fd.into(), peer)),
                // Gone before we looked.
                Err(_) => return,
            },
            Err(error) => Err(error),
        };
        out.push(Completion::Accepted { token, result });
    }

    fn on_connect(&mut self, index: u32, result: i32, out: &mut Vec<Completion>) {
        let socket = &mut self.sockets[index as usize];
        let connect = socket.connect.take().expect("a connect is under way");
        if socket.closing.is_none() {
            out.push(Completion::Connected {
                token: connect.token,
                result: errno(result).map(|_| ()),
            });
        }
    }

    #[inline]
    fn on_recv(&mut self, index: u32, entry: &cqueue::Entry, out: &mut Vec<Completion>) {
        let result = entry.result();
        let id = cqueue::buffer_select(entry.flags());
        let picked = id.map(|id| {
            let stage = self.stages.take(id, result.max(0) as usize);
            self.stages.refill(&self.pool);
            stage
        });
        let socket = &mut self.sockets[index as usize];
        socket.has_more = cqueue::sock_nonempty(entry.flags());
        let result = errno(result);
        let error = result.as_ref().err().and_then(Errno::from_io_error);
        if let Some(error @ (Errno::NOBUFS | Errno::INTR | Errno::AGAIN)) = error
            && socket.closing.is_none()
        {
            return self.retry_recv(index, error);
        }
        self.deliver(index, result, picked, out);
    }

    /// A receive has ended; `picked` is the stage that was chosen for it.
    #[inline]
    fn deliver(
        &mut self,
        index: u32,
        result: io::Result<u32>,
        picked: Option<Stage>,
        out: &mut Vec<Completion>,
    ) {
        let socket = &mut self.sockets[index as usize];
        let mut recv = socket.recv.take().expect("a receive is under way");
        if socket.closing.is_some() {
            return;
        }
        let result = result.map(|bytes| {
            socket.last_recv_bytes = bytes;
            self.counters.recv_bytes += u64::from(bytes);
            let direct = bytes.min(recv.direct.map_or(0, BufRange::len));
            let staged = (bytes - direct) as usize;
            if let Some(stage) = &mut recv.stage {
                stage.advance(staged);
            }
            let keep = recv.stage_given || staged > 0;
            Received {
                direct,
                stage: picked.or(recv.stage).filter(|_| keep),
                eof: bytes == 0,
                more: socket.has_more && bytes > 0,
            }
        });
        self.counters.recvs += 1;
        out.push(Completion::Received {
            token: recv.token,
            result,
        });
    }

    #[cold]
    fn retry_recv(&mut self, index: u32, error: Errno) {
        if error != Errno::NOBUFS {
            return self.submit_recv(index);
        }
        self.counters.starved_recvs += 1;
        self.stages.grow();
        if !self.stages.refill(&self.pool) {
            // The ring has none to pick from: this receive gets one of its own.
            let recv = self.sockets[index as usize].recv.as_mut();
            let recv = recv.expect("a receive is under way");
            recv.stage = Some(self.pool.stage_of(recv.stage_max));
        }
        self.submit_recv(index);
    }

    #[inline]
    fn on_send(&mut self, index: u32, result: i32, out: &mut Vec<Completion>) {
        let socket = &mut self.sockets[index as usize];
        if socket.closing.is_some() {
            return;
        }
        let send = socket.send.as_mut().expect("a send is under way");
        let result = match errno(result) {
            Ok(bytes) => {
                self.counters.send_bytes += u64::from(bytes);
                if !send.batch.advance(u64::from(bytes)) {
                    self.counters.partial_sends += 1;
                    return self.submit_send(index);
                }
                Ok(())
            }
            Err(error) if is_transient(&error) => return self.submit_send(index),
            Err(error) => Err(error),
        };
        let send = socket.send.take().expect("checked above");
        self.counters.sends += 1;
        let token = send.token;
        self.recycle(send.batch);
        out.push(Completion::Sent { token, result });
    }
}

/// The largest ring that can be had.
fn new_ring() -> io::Result<Ring> {
    let is_short = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::NOMEM);
    let mut made = Ring::new(ENTRIES[0]);
    for entries in &ENTRIES[1..] {
        if !made.as_ref().is_err_and(is_short) {
            break;
        }
        made = Ring::new(*entries);
    }
    made
}

/// A kernel result: a count, or an error as a negative number.
#[inline]
fn errno(result: i32) -> io::Result<u32> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(result as u32)
}

fn is_transient(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::INTR | Errno::AGAIN))
}

impl Driver for UringDriver {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    #[inline]
    fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn fast_path(&self) -> bool {
        self.fast_path
    }

    #[inline]
    fn set_host(&mut self, host: u64) {
        self.host = host;
    }

    #[inline]
    fn batch(&mut self) -> Box<Batch> {
        self.batches.take()
    }

    fn give_back(&mut self) -> bool {
        let has_batches = self.batches.trim() > 0;
        self.pool.trim_unused() > 0 || has_batches
    }

    fn add_listener(&mut self, listener: BoundListener, token: Token) -> io::Result<SocketId> {
        let is_inherited = listener.is_inherited();
        let fd = listener.into_descriptor();
        sys::set_nonblocking(&fd, false)?;
        let id = self.insert(fd)?;
        let socket = self.socket(id);
        (socket.accept, socket.is_inherited) = (Some(token), is_inherited);
        self.submit_accept(id.index);
        Ok(id)
    }

    fn add_socket(&mut self, connected: ConnectedSocket) -> io::Result<SocketId> {
        let fd = connected.into_descriptor().expect(NOT_THE_KERNELS);
        // The kernel waits for us; it must not answer "would block" instead.
        sys::set_nonblocking(&fd, false)?;
        sys::set_nodelay(&fd)?;
        self.insert(fd)
    }

    fn remove_socket(&mut self, id: SocketId) -> Option<ConnectedSocket> {
        let socket = self.socket(id);
        if !socket.is_quiet() || socket.recv.is_some() || socket.send.is_some() {
            return None;
        }
        self.lone.forget(id.index);
        self.clear(id.index).fd.map(ConnectedSocket::from)
    }

    fn connect(&mut self, addr: SocketAddr, token: Token) -> io::Result<SocketId> {
        let fd = sys::tcp_socket(&addr)?;
        let id = self.add_socket(fd.into())?;
        let addr = addr.into();
        let connect = Box::new(Connect { token, addr });
        let (at, len) = (connect.addr.as_ptr().cast(), connect.addr.addr_len());
        self.socket(id).connect = Some(connect);
        let entry = opcode::Connect::new(Fixed(id.index), at, len).build();
        // SAFETY: the address is boxed and held by the socket.
        let request = unsafe { Request::pointing(entry) };
        self.push_for(id.index, CompletionKind::Connect, request);
        Ok(id)
    }

    #[inline]
    fn recv(
        &mut self,
        id: SocketId,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
        token: Token,
    ) {
        let stage_given = stage.is_some();
        let direct = direct.filter(|direct| !direct.is_empty());
        assert!(direct.is_some() || stage_max > 0, "a receive of nothing");
        let mut stage = stage;
        let mut stage_max = stage_max;
        match (&mut stage, direct) {
            (Some(stage), _) => stage.fit(&self.pool, stage_max),
            (None, Some(_)) if stage_max > 0 => {
                stage = Some(self.pool.stage_of(stage_max));
            }
            (None, Some(_)) => {}
            (None, None) => {
                stage_max = stage_max.min(mem::STAGE_BYTES);
                self.stages.refill(&self.pool);
            }
        }
        let socket = self.socket(id);
        assert!(socket.recv.is_none(), "one receive at a time");
        socket.recv = Some(Recv {
            token,
            direct,
            stage,
            stage_max,
            stage_given,
        });
        self.keep_or_submit(id.index);
    }

    #[inline]
    fn send(&mut self, id: SocketId, batch: Box<Batch>, token: Token) {
        assert!(!batch.is_empty(), "a send of nothing");
        let is_large = batch.has_pieces_of(self.zero_copy_min_bytes);
        let is_lone = batch.is_one_pdu();
        let socket = self.socket(id);
        assert!(
            socket.send.is_none() && !socket.zero_copy,
            "one send at a time"
        );
        socket.is_lone = is_lone;
        if is_large && !socket.worth.is_given_up {
            return self.send_zero_copy(id.index, batch, token);
        }
        socket.send = Some(Send { token, batch });
        self.send_or_submit(id.index);
    }

    fn peer_has_closed(&mut self, id: SocketId) -> bool {
        sys::peer_has_closed(self.socket(id).fd.as_ref().expect("checked"))
    }

    fn close(&mut self, id: SocketId, token: Token) {
        self.lone.forget(id.index);
        let socket = self.socket(id);
        socket.closing = Some(token);
        let is_quiet = socket.is_quiet();
        if !socket.is_inherited {
            sys::shutdown(socket.fd.as_ref().expect("checked"));
        }
        self.resting.retain(|(_, other)| *other != id);
        if is_quiet {
            return self.finish_if_quiet(id.index);
        }
        let request = Request::cancel_socket(id.index);
        self.push_for(id.index, CompletionKind::Cancel, request);
    }

    #[inline]
    fn poll(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        if !self.resting.is_empty() {
            self.retry();
        }
        if self.registered.wants_sweep(self.now) {
            self.registered.sweep(&self.ring, self.now);
        }
        let wait = self.timers.bound(wait);
        self.lone.begin(wait);
        if wait != Wait::Now {
            self.submit_lone();
        }
        let entered = self.enter(wait);
        // Mail that was announced is looked at after this.
        self.sleeper.awake();
        self.now = sys::now();
        entered?;
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.reap(&mut reaped);
        for entry in &reaped {
            self.on_entry(entry, out);
        }
        reaped.clear();
        self.reaped = reaped;
        self.try_lone(out);
        out.append(&mut self.ready);
        self.bell.take(out);
        self.timers.take(self.now, out);
        self.lone.end(wait, out.is_empty());
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    #[inline]
    fn now(&self) -> Nanos {
        self.now
    }

    fn counters(&self) -> Counters {
        Counters {
            syscalls: self.ring.enters + self.lone.syscalls,
            buffers_registered: self.registered.made,
            ..self.counters
        }
    }
}
