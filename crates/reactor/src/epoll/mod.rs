//! The epoll driver: the same completions where io_uring cannot be had.
//!
//! Operations are tried in [`Driver::poll`] while their socket is believed
//! ready; one that would block waits for the edge. Edges are fetched when
//! nothing else completed, and now and then in between.

mod files;

use crate::batch::{Batch, SpareBatches};
use crate::bell::{Bell, Ticket};
use crate::descriptors::{BoundListener, ConnectedSocket, DiskFile, NOT_THE_KERNELS};
use crate::receive::receive;
use crate::shares::DisksOfFiles;
use crate::sys::{self, Nanos};
use crate::timers::Timers;
use crate::types::{
    Completion, Counters, Driver, DriverConfig, FallocateMode, FileIo, Received, SocketId, Token,
    Wait,
};
use crate::waker::{Sleeper, Waker};
use files::{FileCall, FileWork, FinishedWork, Workers};
use mem::{BufRange, Pool, Stage};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const EVENTS: usize = 256;
/// Turns after which edges are fetched though operations complete without.
const BUSY_TURNS_MAX: u32 = 16;
/// Connections taken from one listener a turn.
const ACCEPTS_MAX: usize = 64;
/// A listener that failed (no descriptors left, say) rests this long.
const ACCEPT_REST_NS: Nanos = 100_000_000;
const WAKE: u64 = u64::MAX;

struct Recv {
    token: Token,
    direct: Option<BufRange>,
    stage: Option<Stage>,
    stage_max: u32,
}

struct Send {
    token: Token,
    batch: Box<Batch>,
}

#[derive(Default)]
struct Socket {
    generation: u32,
    fd: Option<OwnedFd>,
    accept: Option<Token>,
    /// A listener that others go on with: it is closed and not shut down.
    is_inherited: bool,
    connect: Option<Token>,
    recv: Option<Recv>,
    send: Option<Send>,
    readable: bool,
    writable: bool,
    /// The stream ends or has failed: reads tell, whatever the last one said.
    hung_up: bool,
    /// It is in the list of work.
    queued: bool,
}

/// The driver over epoll.
pub struct EpollDriver {
    epoll: OwnedFd,
    pool: Pool,
    sockets: Vec<Socket>,
    free: Vec<u32>,
    sockets_max: u32,
    fast_path: bool,
    /// Whose file operations come now.
    host: u64,
    /// Sockets with an operation that may succeed.
    work: Vec<u32>,
    working: Vec<u32>,
    resting: Vec<(Nanos, SocketId)>,
    batches: SpareBatches,
    ready: Vec<Completion>,
    events: Vec<epoll::Event>,
    busy_turns: u32,
    has_pwait2: bool,
    workers: Workers<FileWork>,
    disks: DisksOfFiles,
    done: Vec<FinishedWork>,
    sleeper: Sleeper,
    bell: Arc<Bell>,
    timers: Timers,
    now: Nanos,
    counters: Counters,
}

impl EpollDriver {
    /// A driver; where it is used does not matter, as long as it is one thread.
    pub fn new(config: &DriverConfig, pool: Pool) -> io::Result<EpollDriver> {
        sys::raise_descriptor_limit();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let sleeper = Sleeper::new(true)?;
        let driver = EpollDriver {
            workers: Workers::new(sleeper.waker()),
            disks: DisksOfFiles::default(),
            epoll,
            pool,
            sockets: Vec::new(),
            free: Vec::new(),
            sockets_max: config.sockets_max,
            fast_path: config.fast_path,
            host: 0,
            work: Vec::new(),
            working: Vec::new(),
            resting: Vec::new(),
            batches: SpareBatches::default(),
            ready: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            busy_turns: 0,
            has_pwait2: true,
            done: Vec::new(),
            bell: Bell::new(Some(sleeper.waker())),
            timers: Timers::default(),
            sleeper,
            now: sys::now(),
            counters: Counters::default(),
        };
        // Edges need no reading: every write of a wake is one.
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(
            &driver.epoll,
            driver.sleeper.fd(),
            EventData::new_u64(WAKE),
            edge,
        )?;
        Ok(driver)
    }

    fn insert(&mut self, fd: OwnedFd) -> io::Result<SocketId> {
        sys::set_nonblocking(&fd, true)?;
        let index = match self.free.pop() {
            Some(index) => index,
            None if (self.sockets.len() as u32) < self.sockets_max => {
                self.sockets.push(Socket::default());
                self.sockets.len() as u32 - 1
            }
            None => return Err(io::Error::other("too many sockets")),
        };
        let generation = self.sockets[index as usize].generation;
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(u64::from(generation) << 32 | u64::from(index));
        if let Err(error) = epoll::add(&self.epoll, &fd, data, events) {
            self.free.push(index);
            return Err(error.into());
        }
        self.sockets[index as usize].fd = Some(fd);
        Ok(SocketId { index, generation })
    }

    /// The place of a socket in use. Anything else is our own mistake.
    #[inline]
    fn socket(&mut self, id: SocketId) -> &mut Socket {
        let socket = &mut self.sockets[id.index as usize];
        assert!(
            socket.generation == id.generation && socket.fd.is_some(),
            "socket used after its close"
        );
        socket
    }

    #[inline]
    fn enqueue(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if !std::mem::replace(&mut socket.queued, true) {
            self.work.push(index);
        }
    }

    #[inline]
    fn recycle(&mut self, batch: Box<Batch>) {
        self.batches.put(batch);
    }

    /// Tries every operation that may succeed, once.
    #[inline]
    fn work(&mut self, out: &mut Vec<Completion>) {
        std::mem::swap(&mut self.work, &mut self.working);
        for at in 0..self.working.len() {
            let index = self.working[at];
            let socket = &mut self.sockets[index as usize];
            socket.queued = false;
            if socket.fd.is_none() {
                continue;
            }
            if socket.accept.is_some() && socket.readable {
                if self.try_accept(index, out) {
                    self.enqueue(index);
                }
            } else if socket.connect.is_some() && socket.writable {
                self.finish_connect(index, out);
            } else {
                if socket.send.is_some() && socket.writable {
                    self.try_send(index, out);
                }
                let socket = &self.sockets[index as usize];
                if socket.recv.is_some() && socket.readable {
                    self.try_recv(index, out);
                }
            }
        }
        self.working.clear();
    }

    /// Whether there may be more to accept.
    fn try_accept(&mut self, index: u32, out: &mut Vec<Completion>) -> bool {
        let socket = &mut self.sockets[index as usize];
        let token = socket.accept.expect("checked by the caller");
        let fd = socket.fd.as_ref().expect("checked by the caller");
        for _ in 0..ACCEPTS_MAX {
            self.counters.syscalls += 1;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let result = match rustix::net::accept_with(fd, flags) {
                Ok(fd) => match sys::peer_addr(&fd) {
                    Ok(peer) => Ok((fd.into(), peer)),
                    // Gone before we looked.
                    Err(_) => continue,
                },
                Err(Errno::AGAIN) => {
                    socket.readable = false;
                    return false;
                }
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => Err(error.into()),
            };
            let failed = result.is_err();
            out.push(Completion::Accepted { token, result });
            if failed {
                let generation = socket.generation;
                let id = SocketId { index, generation };
                self.resting.push((self.now + ACCEPT_REST_NS, id));
                return false;
            }
        }
        true
    }

    fn finish_connect(&mut self, index: u32, out: &mut Vec<Completion>) {
        let socket = &mut self.sockets[index as usize];
        let fd = socket.fd.as_ref().expect("checked by the caller");
        if let Some(token) = socket.connect.take() {
            let result = sockopt::socket_error(fd).flatten().map_err(io::Error::from);
            out.push(Completion::Connected { token, result });
        }
    }

    fn try_send(&mut self, index: u32, out: &mut Vec<Completion>) {
        let socket = &mut self.sockets[index as usize];
        let fd = socket.fd.as_ref().expect("checked by the caller");
        let send = socket.send.as_mut().expect("checked by the caller");
        let result = loop {
            self.counters.syscalls += 1;
            match send.batch.send(fd, 0) {
                Ok(sent) => {
                    self.counters.send_bytes += sent as u64;
                    if send.batch.advance(sent as u64) {
                        break Ok(());
                    }
                    self.counters.partial_sends += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.writable = false;
                    return;
                }
                Err(error) => break Err(error),
            }
        };
        let send = socket.send.take().expect("checked by the caller");
        let token = send.token;
        self.counters.sends += 1;
        self.recycle(send.batch);
        out.push(Completion::Sent { token, result });
    }

    fn try_recv(&mut self, index: u32, out: &mut Vec<Completion>) {
        let socket = &mut self.sockets[index as usize];
        let recv = socket.recv.as_mut().expect("checked by the caller");
        let direct_len = recv.direct.map_or(0, BufRange::len) as usize;
        let mut taken = None;
        if recv.stage_max > 0 {
            match &mut recv.stage {
                Some(stage) => stage.fit(&self.pool, recv.stage_max),
                None => {
                    let wanted = recv.stage_max.min(mem::STAGE_BYTES);
                    let stage = taken.insert(self.pool.stage_of(wanted));
                    self.counters.starved_recvs += u64::from(stage.capacity() < wanted as usize);
                }
            }
        }
        let mut stage = recv.stage.as_mut().or(taken.as_mut());
        let room = stage.as_ref().map_or(0, |stage| stage.room());
        let room = room.min(recv.stage_max as usize);
        let fd = socket.fd.as_ref().expect("checked by the caller");
        let result = loop {
            self.counters.syscalls += 1;
            match receive(fd, recv.direct, stage.as_deref_mut(), recv.stage_max, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.readable = false;
                    return;
                }
                result => break result,
            }
        };
        let recv = socket.recv.take().expect("checked by the caller");
        let result = result.map(|bytes| {
            // A receive that was not filled has emptied the socket.
            let is_filled = bytes == direct_len + room;
            if !is_filled && !socket.hung_up {
                socket.readable = false;
            }
            self.counters.syscalls += u64::from(is_filled);
            self.counters.recv_bytes += bytes as u64;
            let direct = bytes.min(direct_len);
            let staged = bytes - direct;
            let given = recv.stage.is_some();
            let mut stage = recv.stage.or(taken);
            if let Some(stage) = &mut stage {
                stage.advance(staged);
            }
            Received {
                direct: direct as u32,
                stage: stage.filter(|_| given || staged > 0),
                eof: bytes == 0,
                more: is_filled && sys::has_bytes(fd),
            }
        });
        self.counters.recvs += 1;
        let token = recv.token;
        out.push(Completion::Received { token, result });
    }

    /// Fetches edges, sleeping at most `sleep_ns` for them.
    fn fetch(&mut self, sleep_ns: Nanos) -> io::Result<()> {
        self.counters.syscalls += 1;
        self.busy_turns = 0;
        self.events.clear();
        match self.wait(sleep_ns) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => waited?,
        }
        for at in 0..self.events.len() {
            let event = self.events[at];
            self.on_event(event.flags, event.data.u64());
        }
        Ok(())
    }

    fn wait(&mut self, sleep_ns: Nanos) -> io::Result<()> {
        let (epoll, events) = (&self.epoll, &mut self.events);
        if self.has_pwait2 && sleep_ns != 0 && sleep_ns != Nanos::MAX {
            let waited = sys::epoll_pwait2(epoll, events, sleep_ns);
            let errno = waited.as_ref().err().and_then(Errno::from_io_error);
            if !matches!(errno, Some(Errno::NOSYS | Errno::PERM)) {
                return waited;
            }
            self.has_pwait2 = false;
        }
        let time = (sleep_ns != Nanos::MAX).then_some(Timespec {
            tv_sec: (sleep_ns / 1_000_000_000) as i64,
            tv_nsec: (sleep_ns % 1_000_000_000) as i64,
        });
        epoll::wait(epoll, spare_capacity(events), time.as_ref())?;
        Ok(())
    }

    fn on_event(&mut self, events: EventFlags, data: u64) {
        if data == WAKE {
            return;
        }
        let (index, generation) = (data as u32, (data >> 32) as u32);
        let socket = &mut self.sockets[index as usize];
        if socket.generation != generation || socket.fd.is_none() {
            return;
        }
        let ends = EventFlags::ERR | EventFlags::HUP;
        socket.hung_up |= events.intersects(ends | EventFlags::RDHUP);
        socket.readable |= events.intersects(EventFlags::IN | EventFlags::RDHUP | ends);
        socket.writable |= events.intersects(EventFlags::OUT | ends);
        self.enqueue(index);
    }

    /// Listeners that have rested.
    #[cold]
    fn retry(&mut self) {
        let now = self.now;
        while let Some(at) = self.resting.iter().position(|(until, _)| *until <= now) {
            let (_, id) = self.resting.swap_remove(at);
            self.enqueue(id.index);
        }
    }

    /// How long to sleep; 0 where there is something to do.
    fn sleep_ns(&self, wait: Wait, is_idle: bool) -> Nanos {
        let Wait::Until(until) = wait else {
            return 0;
        };
        if !is_idle || !self.work.is_empty() {
            return 0;
        }
        let resting = self.resting.iter().map(|(until, _)| *until);
        let until = resting.fold(until, Nanos::min);
        if until == Nanos::MAX {
            return Nanos::MAX;
        }
        until.saturating_sub(sys::now())
    }

    fn take_files(&mut self, out: &mut Vec<Completion>) {
        self.workers.take(&mut self.done);
        for (token, result) in self.done.drain(..) {
            self.counters.file_ops += 1;
            out.push(Completion::File { token, result });
        }
        self.bell.take(out);
        self.timers.take(self.now, out);
    }

    fn start(&mut self, file: &Arc<DiskFile>, work: FileCall, token: Token) {
        let disk = self.disks.of(file);
        let file = Arc::clone(file);
        let work = FileWork { file, work };
        self.workers.start(work, disk, self.host, token);
    }
}

impl FileIo for EpollDriver {
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        self.start(file, FileCall::Read(buf.into(), offset), token);
    }

    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        self.start(file, FileCall::Write(buf.into(), offset, durable), token);
    }

    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token) {
        self.start(file, FileCall::SyncData, token);
    }

    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        self.start(file, FileCall::Fallocate(mode, offset, len), token);
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        self.bell.ticket(token)
    }

    fn complete_after(&mut self, after_ns: Nanos, token: Token) {
        self.timers.add(after_ns, token);
    }

    fn cancel_file(&mut self, token: Token) {
        self.workers.cancel(token);
    }
}

impl Driver for EpollDriver {
    fn name(&self) -> &'static str {
        "epoll"
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
        let id = self.insert(listener.into_descriptor())?;
        let socket = self.socket(id);
        (socket.accept, socket.is_inherited) = (Some(token), is_inherited);
        Ok(id)
    }

    fn add_socket(&mut self, connected: ConnectedSocket) -> io::Result<SocketId> {
        let fd = connected.into_descriptor().expect(NOT_THE_KERNELS);
        sys::set_nodelay(&fd)?;
        let id = self.insert(fd)?;
        let socket = self.socket(id);
        (socket.readable, socket.writable) = (true, true);
        Ok(id)
    }

    fn remove_socket(&mut self, id: SocketId) -> Option<ConnectedSocket> {
        let socket = self.socket(id);
        if socket.recv.is_some() || socket.send.is_some() {
            return None;
        }
        let old = std::mem::take(socket);
        // Its place in the list of work, if it has one, stays.
        socket.queued = old.queued;
        socket.generation = id.generation.wrapping_add(1);
        let fd = old.fd.expect("checked");
        let removed = epoll::delete(&self.epoll, &fd);
        debug_assert!(removed.is_ok(), "it was watched");
        self.free.push(id.index);
        Some(fd.into())
    }

    fn connect(&mut self, addr: SocketAddr, token: Token) -> io::Result<SocketId> {
        let fd = sys::tcp_socket(&addr)?;
        let started = rustix::net::connect(&fd, &addr);
        let id = self.insert(fd)?;
        match started {
            // The edge tells how it ended.
            Ok(()) | Err(Errno::INPROGRESS) => self.socket(id).connect = Some(token),
            Err(error) => self.ready.push(Completion::Connected {
                token,
                result: Err(error.into()),
            }),
        }
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
        let direct = direct.filter(|direct| !direct.is_empty());
        assert!(direct.is_some() || stage_max > 0, "a receive of nothing");
        let socket = self.socket(id);
        assert!(socket.recv.is_none(), "one receive at a time");
        socket.recv = Some(Recv {
            token,
            direct,
            stage,
            stage_max,
        });
        if socket.readable {
            self.enqueue(id.index);
        }
    }

    #[inline]
    fn send(&mut self, id: SocketId, batch: Box<Batch>, token: Token) {
        assert!(!batch.is_empty(), "a send of nothing");
        let socket = self.socket(id);
        assert!(socket.send.is_none(), "one send at a time");
        socket.send = Some(Send { token, batch });
        if socket.writable {
            self.enqueue(id.index);
        }
    }

    fn peer_has_closed(&mut self, id: SocketId) -> bool {
        self.socket(id).hung_up
    }

    fn close(&mut self, id: SocketId, token: Token) {
        let socket = self.socket(id);
        if !socket.is_inherited {
            sys::shutdown(socket.fd.as_ref().expect("checked"));
        }
        let old = std::mem::take(socket);
        // Its place in the list of work, if it has one, stays.
        socket.queued = old.queued;
        socket.generation = id.generation.wrapping_add(1);
        if let Some(send) = old.send {
            self.recycle(send.batch);
        }
        self.resting.retain(|(_, other)| *other != id);
        self.free.push(id.index);
        self.ready.push(Completion::Closed { token });
    }

    #[inline]
    fn poll(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        if !self.resting.is_empty() {
            self.retry();
        }
        let before = out.len();
        out.append(&mut self.ready);
        self.work(out);
        let is_idle = out.len() == before;
        self.busy_turns += 1;
        let mut fetched = Ok(());
        if is_idle || self.busy_turns >= BUSY_TURNS_MAX {
            let sleep_ns = self.sleep_ns(self.timers.bound(wait), is_idle);
            if sleep_ns > 0 && self.sleeper.try_sleep() {
                fetched = self.fetch(sleep_ns);
                self.counters.wakeups += 1;
            } else {
                fetched = self.fetch(0);
            }
        }
        // What was announced is looked at after this.
        self.sleeper.awake();
        self.now = sys::now();
        self.take_files(out);
        fetched?;
        if is_idle && !self.work.is_empty() {
            self.work(out);
        }
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
        self.counters
    }
}

impl Drop for EpollDriver {
    /// What a disk still holds back may read and write its memory later.
    fn drop(&mut self) {
        let held_back = self.workers.end();
        if held_back > 0 {
            tracing::error!("{held_back} file operations did not end; memory is lost");
            std::mem::forget(self.pool.clone());
        }
    }
}
