//! The driver that the machine lets us have.

use crate::batch::Batch;
use crate::bell::Ticket;
use crate::descriptors::{BoundListener, ConnectedSocket, DiskFile};
use crate::epoll::EpollDriver;
use crate::sys::Nanos;
use crate::types::{
    Completion, Counters, Driver, DriverConfig, FallocateMode, FileIo, SocketId, Token, Wait,
};
use crate::uring::{UringDriver, probe};
use crate::waker::Waker;
use mem::{BufRange, Pool, Stage};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Once};

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring where it can be used, else epoll.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

/// Either driver; the branch is the same every time.
#[allow(clippy::large_enum_variant)] // one a thread, never moved about
pub enum AnyDriver {
    /// io_uring.
    Uring(UringDriver),
    /// epoll.
    Epoll(EpollDriver),
}

/// Opens the driver of the calling thread, which must be the one to use it.
/// `Auto` says in the log, once, why it is not io_uring where it is not.
///
/// `pool` is for this driver and its user alone. A driver that is dropped waits
/// two seconds for what is under way; what a disk holds back longer may still
/// write buffers of the pool, also ones that their owner has dropped meanwhile.
/// Such a driver keeps the pool and its share of the budget for ever, so that
/// they are lost and not used twice, unless a clone of the pool lends them.
pub fn open(choice: Choice, config: &DriverConfig, pool: Pool) -> io::Result<AnyDriver> {
    let uring = |pool| UringDriver::new(config, pool).map(AnyDriver::Uring);
    match choice {
        Choice::Epoll => EpollDriver::new(config, pool).map(AnyDriver::Epoll),
        Choice::Uring => {
            probe().map_err(io::Error::other)?;
            uring(pool)
        }
        Choice::Auto => {
            let refused = match probe() {
                Ok(()) => match uring(pool.clone()) {
                    Ok(driver) => return Ok(driver),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            // The reason is the same on every core.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| tracing::info!("using epoll: {refused}"));
            EpollDriver::new(config, pool).map(AnyDriver::Epoll)
        }
    }
}

macro_rules! each {
    ($self:ident, $driver:ident => $call:expr) => {
        match $self {
            AnyDriver::Uring($driver) => $call,
            AnyDriver::Epoll($driver) => $call,
        }
    };
}

impl FileIo for AnyDriver {
    #[inline]
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        each!(self, driver => driver.read_at(file, buf, offset, token))
    }

    #[inline]
    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        each!(self, driver => driver.write_at(file, buf, offset, durable, token))
    }

    #[inline]
    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token) {
        each!(self, driver => driver.sync_data(file, token))
    }

    #[inline]
    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        each!(self, driver => driver.fallocate(file, mode, offset, len, token))
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        each!(self, driver => driver.ticket(token))
    }

    fn complete_after(&mut self, after_ns: Nanos, token: Token) {
        each!(self, driver => driver.complete_after(after_ns, token))
    }

    fn cancel_file(&mut self, token: Token) {
        each!(self, driver => driver.cancel_file(token))
    }
}

impl Driver for AnyDriver {
    #[inline]
    fn name(&self) -> &'static str {
        each!(self, driver => driver.name())
    }

    #[inline]
    fn pool(&self) -> &Pool {
        each!(self, driver => driver.pool())
    }

    #[inline]
    fn fast_path(&self) -> bool {
        each!(self, driver => driver.fast_path())
    }

    #[inline]
    fn set_host(&mut self, host: u64) {
        each!(self, driver => driver.set_host(host));
    }

    #[inline]
    fn batch(&mut self) -> Box<Batch> {
        each!(self, driver => driver.batch())
    }

    fn give_back(&mut self) -> bool {
        each!(self, driver => driver.give_back())
    }

    fn add_listener(&mut self, listener: BoundListener, token: Token) -> io::Result<SocketId> {
        each!(self, driver => driver.add_listener(listener, token))
    }

    fn add_socket(&mut self, connected: ConnectedSocket) -> io::Result<SocketId> {
        each!(self, driver => driver.add_socket(connected))
    }

    fn remove_socket(&mut self, socket: SocketId) -> Option<ConnectedSocket> {
        each!(self, driver => driver.remove_socket(socket))
    }

    fn connect(&mut self, addr: SocketAddr, token: Token) -> io::Result<SocketId> {
        each!(self, driver => driver.connect(addr, token))
    }

    #[inline]
    fn recv(
        &mut self,
        socket: SocketId,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
        token: Token,
    ) {
        each!(self, driver => driver.recv(socket, direct, stage, stage_max, token))
    }

    #[inline]
    fn send(&mut self, socket: SocketId, batch: Box<Batch>, token: Token) {
        each!(self, driver => driver.send(socket, batch, token))
    }

    fn peer_has_closed(&mut self, socket: SocketId) -> bool {
        each!(self, driver => driver.peer_has_closed(socket))
    }

    fn close(&mut self, socket: SocketId, token: Token) {
        each!(self, driver => driver.close(socket, token))
    }

    #[inline]
    fn poll(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        each!(self, driver => driver.poll(wait, out))
    }

    fn waker(&self) -> Waker {
        each!(self, driver => driver.waker())
    }

    #[inline]
    fn now(&self) -> Nanos {
        each!(self, driver => driver.now())
    }

    fn counters(&self) -> Counters {
        each!(self, driver => driver.counters())
    }
}
