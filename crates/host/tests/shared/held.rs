//! A driver between a test and the kernel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::Nanos;
use mem::{BufRange, Pool, Stage};
use reactor::{
    Batch, BoundListener, Completion, ConnectedSocket, Counters, DiskFile, Driver, EpollDriver,
    FallocateMode, FileIo, SocketId, Ticket, Token, Wait, Waker,
};

/// A driver that can keep to itself that connections are gone, and whose clock can be ahead.
pub struct Held {
    inner: EpollDriver,
    pub is_holding: bool,
    pub held: Vec<Completion>,
    /// By how much the clock is ahead.
    pub ahead: Arc<AtomicU64>,
    /// What the clock said in the last poll.
    now: Nanos,
}

impl Held {
    pub fn new(inner: EpollDriver) -> Held {
        Held {
            now: inner.now(),
            inner,
            is_holding: false,
            held: Vec::new(),
            ahead: Arc::default(),
        }
    }

    fn ahead(&self) -> Nanos {
        self.ahead.load(Ordering::Relaxed)
    }
}

impl FileIo for Held {
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        self.inner.read_at(file, buf, offset, token);
    }
    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        self.inner.write_at(file, buf, offset, durable, token);
    }
    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token) {
        self.inner.sync_data(file, token);
    }
    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        self.inner.fallocate(file, mode, offset, len, token);
    }
    fn ticket(&mut self, token: Token) -> Ticket {
        self.inner.ticket(token)
    }
    fn cancel_file(&mut self, token: Token) {
        self.inner.cancel_file(token);
    }
}

impl Driver for Held {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn pool(&self) -> &Pool {
        self.inner.pool()
    }
    fn batch(&mut self) -> Box<Batch> {
        self.inner.batch()
    }
    fn add_listener(&mut self, listener: BoundListener, token: Token) -> std::io::Result<SocketId> {
        self.inner.add_listener(listener, token)
    }
    fn add_socket(&mut self, connected: ConnectedSocket) -> std::io::Result<SocketId> {
        self.inner.add_socket(connected)
    }
    fn connect(&mut self, addr: SocketAddr, token: Token) -> std::io::Result<SocketId> {
        self.inner.connect(addr, token)
    }
    fn recv(
        &mut self,
        socket: SocketId,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
        token: Token,
    ) {
        self.inner.recv(socket, direct, stage, stage_max, token);
    }
    fn send(&mut self, socket: SocketId, batch: Box<Batch>, token: Token) {
        self.inner.send(socket, batch, token);
    }
    fn remove_socket(&mut self, socket: SocketId) -> Option<ConnectedSocket> {
        self.inner.remove_socket(socket)
    }
    fn peer_has_closed(&mut self, socket: SocketId) -> bool {
        self.inner.peer_has_closed(socket)
    }
    fn close(&mut self, socket: SocketId, token: Token) {
        self.inner.close(socket, token);
    }
    fn poll(&mut self, wait: Wait, out: &mut Vec<Completion>) -> std::io::Result<()> {
        let wait = match wait {
            Wait::Until(time) if time < Nanos::MAX => {
                Wait::Until(time.saturating_sub(self.ahead()))
            }
            wait => wait,
        };
        self.inner.poll(wait, out)?;
        self.now = self.inner.now() + self.ahead();
        let (closed, others) = out
            .drain(..)
            .partition(|c| matches!(c, Completion::Closed { .. }));
        let mut closed: Vec<Completion> = closed;
        *out = others;
        self.held.append(&mut closed);
        if !self.is_holding {
            out.append(&mut self.held);
        }
        Ok(())
    }
    fn waker(&self) -> Waker {
        self.inner.waker()
    }
    fn now(&self) -> Nanos {
        self.now
    }
    fn clock(&self) -> Nanos {
        self.inner.clock() + self.ahead()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
