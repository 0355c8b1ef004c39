//! A driver whose sockets, files and time are the world's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mem::{BufRange, Pool, Stage};
use reactor::{
    Batch, Bell, BoundListener, Completion, ConnectedSocket, Counters, DiskFile, Driver,
    FallocateMode, FileIo, Nanos, Sleeper, SocketId, Ticket, Token, Wait, Waker,
};

use crate::world::{DriverId, SharedWorld};

/// A driver of the simulated world.
pub struct SimDriver {
    world: SharedWorld,
    id: DriverId,
    pool: Pool,
    sleeper: Sleeper,
    bell: Arc<Bell>,
    /// Of the current turn.
    now: Nanos,
    last_connect: Option<SocketId>,
}

impl SimDriver {
    /// A driver with the place `id` in the world.
    pub fn new(world: &SharedWorld, id: DriverId, pool: Pool) -> SimDriver {
        let now = world.borrow().now;
        SimDriver {
            world: world.clone(),
            id,
            pool,
            sleeper: Sleeper::new(true).expect("descriptors are left"),
            bell: Bell::new(None),
            now,
            last_connect: None,
        }
    }

    /// Its machine is gone from one moment to the next; another takes its place.
    pub fn vanish(&mut self) {
        self.world.borrow_mut().end_driver(self.id, true);
        let world = self.world.clone();
        *self = SimDriver::new(&world, self.id, self.pool.clone());
    }

    /// Begins a turn: what has completed since the last.
    pub fn begin_turn(&mut self, out: &mut Vec<Completion>) {
        self.world.borrow_mut().begin_turn(self.id);
        self.poll(Wait::Now, out).expect("a simulated driver works");
    }

    /// Its place in the world.
    pub fn id(&self) -> DriverId {
        self.id
    }

    /// The socket of the last [`Driver::connect`].
    pub fn last_connect(&self) -> SocketId {
        self.last_connect.expect("it has connected")
    }

    /// The connection that a socket of this driver is an end of.
    pub fn connection_of(&self, socket: SocketId) -> Option<usize> {
        self.world.borrow().net.connection_of(self.id, socket)
    }

    /// From now on bits of a connection may be flipped on their way.
    pub fn allow_bit_flips(&self, connection: Option<usize>) {
        if let Some(connection) = connection {
            self.world.borrow_mut().net.allow_bit_flips(connection);
        }
    }

    /// Whether a bit of a connection was flipped on its way.
    pub fn is_damaged(&self, connection: Option<usize>) -> bool {
        let world = self.world.borrow();
        connection.is_some_and(|connection| world.net.is_damaged(connection))
    }

    /// Whether mail or a rung ticket waits for a turn.
    pub fn is_called(&self) -> bool {
        self.bell.is_rung() || self.sleeper.is_woken()
    }
}

impl FileIo for SimDriver {
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        let mut world = self.world.borrow_mut();
        world.file_read(self.id, file, buf, offset, token);
    }

    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        let mut world = self.world.borrow_mut();
        world.file_write(self.id, file, buf, offset, durable, token);
    }

    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token) {
        self.world.borrow_mut().file_sync(self.id, file, token);
    }

    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        let mut world = self.world.borrow_mut();
        world.file_allocate(self.id, file, mode, (offset, len), token);
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        self.bell.ticket(token)
    }

    fn complete_after(&mut self, after_ns: Nanos, token: Token) {
        self.world.borrow_mut().file_timer(self.id, after_ns, token);
    }

    fn cancel_file(&mut self, token: Token) {
        self.world.borrow_mut().file_cancel(self.id, token);
    }
}

impl Driver for SimDriver {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn set_host(&mut self, host: u64) {
        self.world.borrow_mut().disk.set_host(self.id, host);
    }

    fn batch(&mut self) -> Box<Batch> {
        self.world.borrow_mut().net.batch(self.id)
    }

    fn add_listener(&mut self, listener: BoundListener, token: Token) -> io::Result<SocketId> {
        let mut world = self.world.borrow_mut();
        Ok(world.listen(self.id, listener.address(), token))
    }

    fn add_socket(&mut self, connected: ConnectedSocket) -> io::Result<SocketId> {
        Ok(self.world.borrow_mut().take_socket(self.id, &connected))
    }

    fn remove_socket(&mut self, socket: SocketId) -> Option<ConnectedSocket> {
        self.world.borrow_mut().give_socket(self.id, socket)
    }

    fn connect(&mut self, addr: SocketAddr, token: Token) -> io::Result<SocketId> {
        let socket = self.world.borrow_mut().connect(self.id, addr, token);
        self.last_connect = Some(socket);
        Ok(socket)
    }

    fn recv(
        &mut self,
        socket: SocketId,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
        token: Token,
    ) {
        let mut world = self.world.borrow_mut();
        world.recv(self.id, socket, direct, stage, stage_max, token);
    }

    fn send(&mut self, socket: SocketId, batch: Box<Batch>, token: Token) {
        self.world.borrow_mut().send(self.id, socket, batch, token);
    }

    fn peer_has_closed(&mut self, socket: SocketId) -> bool {
        self.world.borrow_mut().net.peer_has_closed(self.id, socket)
    }

    fn close(&mut self, socket: SocketId, token: Token) {
        self.world.borrow_mut().close(self.id, socket, token);
    }

    /// Never sleeps: the loop that runs the world calls when there is something.
    fn poll(&mut self, _wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        self.sleeper.awake();
        let mut world = self.world.borrow_mut();
        self.now = world.now;
        let ready = std::mem::take(&mut world.net.driver(self.id).ready);
        out.extend(ready.into_iter().map(|(_, completion)| completion));
        self.bell.take(out);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn clock(&self) -> Nanos {
        self.now
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
