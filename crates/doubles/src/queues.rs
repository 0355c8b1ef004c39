//! A driver without sockets: bytes are put in and taken out by hand.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use machine::Nanos;
use mem::{BufRange, Pool, Stage};
use reactor::{
    Batch, Bell, BoundListener, Completion, ConnectedSocket, Counters, DiskFile, Driver,
    FallocateMode, FileIo, Received, SocketId, Ticket, Token, Wait, Waker,
};

/// What a receive is to fill.
struct Recv {
    direct: Option<BufRange>,
    stage: Option<Stage>,
    stage_max: u32,
}

/// A driver whose sockets are queues of bytes.
pub(crate) struct Queues {
    pool: Pool,
    bell: Arc<Bell>,
    recvs: Vec<Option<Recv>>,
    sends: Vec<Option<Box<Batch>>>,
    /// Used before, for the next.
    spare: Option<Box<Batch>>,
    /// The monotonic clock.
    pub now: Nanos,
}

impl Queues {
    /// Without a socket.
    pub fn new(pool: Pool) -> Queues {
        Queues {
            pool,
            bell: Bell::new(None),
            recvs: Vec::new(),
            sends: Vec::new(),
            spare: None,
            now: 0,
        }
    }

    /// A socket more: they are counted from 0.
    pub fn add(&mut self) -> SocketId {
        let socket = SocketId::new(self.recvs.len() as u32, 0);
        self.recvs.push(None);
        self.sends.push(None);
        socket
    }

    /// Whether a receive of a socket is under way.
    pub fn is_receiving(&self, socket: usize) -> bool {
        self.recvs[socket].is_some()
    }

    /// Ends a receive that is under way with the first of `incoming`.
    pub fn receive(&mut self, socket: usize, incoming: &mut VecDeque<u8>) -> Option<Received> {
        let recv = self.recvs[socket].take()?;
        let mut direct = 0;
        if let Some(to) = recv.direct {
            direct = (to.len() as usize).min(incoming.len()) as u32;
            let bytes = &incoming.make_contiguous()[..direct as usize];
            mem::copy_in(to.slice(0, direct), bytes);
            incoming.drain(..direct as usize);
        }
        let stage = recv.stage.or_else(|| self.pool.stage());
        let mut stage = stage.expect("memory for a stage");
        let len = stage.room().min(recv.stage_max as usize);
        let len = len.min(incoming.len());
        stage.append(&incoming.make_contiguous()[..len]);
        incoming.drain(..len);
        Some(Received {
            direct,
            stage: Some(stage),
            eof: false,
            more: !incoming.is_empty(),
        })
    }

    /// Ends a send that is under way, with its bytes at the end of `outgoing`; whether one was.
    pub fn sent(&mut self, socket: usize, outgoing: &mut Vec<u8>) -> bool {
        let Some(mut batch) = self.sends[socket].take() else {
            return false;
        };
        batch.take_out(usize::MAX, outgoing);
        batch.clear();
        self.spare = Some(batch);
        true
    }
}

const NO_FILES: &str = "a file system in memory asks for no file";
pub(crate) const NO_SOCKETS: &str = "connections are made by hand";

impl FileIo for Queues {
    fn read_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: Token) {
        panic!("{NO_FILES}")
    }
    fn write_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: bool, _: Token) {
        panic!("{NO_FILES}")
    }
    fn sync_data(&mut self, _: &Arc<DiskFile>, _: Token) {
        panic!("{NO_FILES}")
    }
    fn fallocate(&mut self, _: &Arc<DiskFile>, _: FallocateMode, _: u64, _: u64, _: Token) {
        panic!("{NO_FILES}")
    }
    fn ticket(&mut self, token: Token) -> Ticket {
        self.bell.ticket(token)
    }
    fn cancel_file(&mut self, _: Token) {}
}

impl Driver for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }
    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn batch(&mut self) -> Box<Batch> {
        self.spare.take().unwrap_or_else(Batch::new)
    }
    fn add_listener(&mut self, _: BoundListener, _: Token) -> io::Result<SocketId> {
        panic!("{NO_SOCKETS}")
    }
    fn add_socket(&mut self, _: ConnectedSocket) -> io::Result<SocketId> {
        panic!("{NO_SOCKETS}")
    }
    fn remove_socket(&mut self, _: SocketId) -> Option<ConnectedSocket> {
        panic!("{NO_SOCKETS}")
    }
    fn connect(&mut self, _: SocketAddr, _: Token) -> io::Result<SocketId> {
        panic!("{NO_SOCKETS}")
    }
    fn recv(
        &mut self,
        socket: SocketId,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
        _: Token,
    ) {
        self.recvs[socket.index() as usize] = Some(Recv {
            direct,
            stage,
            stage_max,
        });
    }
    fn send(&mut self, socket: SocketId, batch: Box<Batch>, _: Token) {
        self.sends[socket.index() as usize] = Some(batch);
    }
    fn peer_has_closed(&mut self, _: SocketId) -> bool {
        false
    }
    fn close(&mut self, _: SocketId, _: Token) {}
    fn poll(&mut self, _: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        self.bell.take(out);
        Ok(())
    }
    fn waker(&self) -> Waker {
        panic!("it never sleeps")
    }
    fn now(&self) -> Nanos {
        self.now
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
}
