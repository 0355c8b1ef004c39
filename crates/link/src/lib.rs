//! One connection: a [`Machine`] on a socket.
//!
//! What every protocol and both roles have in common between the reactor and
//! the machine: receives made from the machine's plan, staged payload copied
//! to its destination, digests checked, and everything ready to go sent as one
//! batch. The protocol's own operations come out of [`Link::next_op`]; whoever
//! executes them tells with [`Link::set_data`] where a command's data lies.
#![forbid(unsafe_code)]

use machine::{Direct, Machine, Step, Tag, Transmit};
use mem::{Buf, BufRange, Stage};
use reactor::{Batch, Driver, Received, SocketId, Token};

/// Where the data of one command lies.
#[derive(Default)]
pub struct Data {
    /// The memory; `None` while the command has none.
    pub range: Option<BufRange>,
    /// Keeps a pool buffer alive until the data was sent or taken.
    pub hold: Option<Buf>,
    /// CRC32C of the whole range where it is known already.
    pub crc: Option<u32>,
}

impl Data {
    /// Data in memory that outlives the command, such as a volume's own.
    #[inline]
    pub fn lent(range: BufRange) -> Self {
        Data {
            range: Some(range),
            hold: None,
            crc: None,
        }
    }

    /// Data in a buffer that the command owns.
    #[inline]
    pub fn owned(buf: Buf) -> Self {
        Data {
            range: Some(buf.range()),
            hold: Some(buf),
            crc: None,
        }
    }
}

/// A machine bound to a socket, with the data of its commands.
pub struct Link<M> {
    /// The protocol's side of the connection.
    pub machine: M,
    socket: SocketId,
    recv_token: Token,
    send_token: Token,
    data: Vec<Data>,
    stage: Option<Stage>,
    at: usize,
    receiving: bool,
    sending: bool,
}

impl<M: Machine> Link<M> {
    /// Binds `machine` to `socket`; completions of its receives and sends
    /// carry the two tokens. Call [`Link::receive`] to start.
    pub fn new(machine: M, socket: SocketId, recv_token: Token, send_token: Token) -> Self {
        Link {
            machine,
            socket,
            recv_token,
            send_token,
            data: Vec::new(),
            stage: None,
            at: 0,
            receiving: false,
            sending: false,
        }
    }

    /// The socket it is bound to.
    #[inline]
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// Whether a batch is on its way to the kernel.
    #[inline]
    pub fn is_sending(&self) -> bool {
        self.sending
    }

    /// Says where the data of `tag` lies: arriving payload is placed there,
    /// payload to send is taken from there.
    #[inline]
    pub fn set_data(&mut self, tag: Tag, data: Data) {
        let index = usize::from(tag);
        if index >= self.data.len() {
            let len = self.machine.tags_max().max(index + 1);
            self.data.resize_with(len, Data::default);
        }
        self.data[index] = data;
    }

    /// The memory of `tag`, if it has any.
    #[inline]
    pub fn range(&self, tag: Tag) -> Option<BufRange> {
        self.data.get(usize::from(tag)).and_then(|d| d.range)
    }

    /// Takes the data of `tag` away, leaving it none.
    #[inline]
    pub fn take_data(&mut self, tag: Tag) -> Data {
        self.data
            .get_mut(usize::from(tag))
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// A receive completed. Call [`Link::next_op`] until it yields nothing,
    /// then [`Link::receive`].
    #[inline]
    pub fn on_received(&mut self, received: Received) {
        self.receiving = false;
        if received.direct > 0 {
            self.machine.on_direct(received.direct);
        }
        self.stage = received.stage;
        self.at = 0;
    }

    /// The next operation that the bytes received allow.
    #[inline]
    pub fn next_op(&mut self) -> Option<M::Op> {
        let bytes = self.stage.as_ref().map_or(&[][..], Stage::bytes);
        loop {
            match self.machine.poll_step(bytes, &mut self.at)? {
                Step::Op(op) => return Some(op),
                Step::Place {
                    tag,
                    offset,
                    at,
                    len,
                } => {
                    let to = destination(&self.data, tag).slice(offset, len);
                    let at = at as usize;
                    mem::copy_in(to, &bytes[at..at + len as usize]);
                }
                Step::Digest {
                    tag,
                    offset,
                    len,
                    expected,
                } => {
                    let over = destination(&self.data, tag).slice(offset, len);
                    let matches = mem::crc32c(over, 0) == expected;
                    self.machine.on_digest(tag, matches);
                }
            }
        }
    }

    /// Asks for the next bytes. An unfinished header is kept and comes first.
    #[inline]
    pub fn receive<D: Driver>(&mut self, driver: &mut D) {
        if self.receiving || self.machine.is_finished() {
            return;
        }
        let plan = self.machine.recv_plan();
        if plan.direct.is_none() && plan.stage_max == 0 {
            // The machine waits for memory; what is staged is walked again.
            return;
        }
        let stage = self.stage.take().and_then(|mut stage| {
            stage.keep_from(self.at);
            (!stage.is_empty()).then_some(stage)
        });
        self.at = 0;
        let direct = plan
            .direct
            .map(|Direct { tag, offset, len }| destination(&self.data, tag).slice(offset, len));
        self.receiving = true;
        driver.recv(self.socket, direct, stage, plan.stage_max, self.recv_token);
    }

    /// Sends what is ready, unless a batch is still on its way.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        if self.sending || !self.machine.has_transmit() {
            return;
        }
        let mut batch = driver.batch();
        self.machine.poll_transmit(&mut Sink {
            batch: &mut batch,
            data: &mut self.data,
        });
        self.sending = true;
        driver.send(self.socket, batch, self.send_token);
    }

    /// The batch was accepted by the kernel; call [`Link::flush`] again.
    #[inline]
    pub fn on_sent(&mut self) {
        self.sending = false;
    }
}

#[inline]
fn destination(data: &[Data], tag: Tag) -> BufRange {
    data[usize::from(tag)]
        .range
        .expect("payload moves only for a command whose memory is known")
}

/// A machine's view of the batch that it fills.
struct Sink<'a> {
    batch: &'a mut Batch,
    data: &'a mut [Data],
}

impl Transmit for Sink<'_> {
    #[inline]
    fn has_room(&self) -> bool {
        self.batch.has_room()
    }

    #[inline]
    fn header(&mut self, bytes: &[u8]) {
        self.batch.header(bytes);
    }

    #[inline]
    fn payload(&mut self, tag: Tag, offset: u32, len: u32, digest: bool) {
        let data = &self.data[usize::from(tag)];
        let whole = data.range.expect("payload to send has memory");
        let range = whole.slice(offset, len);
        self.batch.payload(range);
        if digest {
            let crc = match data.crc {
                Some(crc) if range == whole => crc,
                _ => mem::crc32c(range, 0),
            };
            self.batch.header(&crc.to_le_bytes());
        }
    }

    #[inline]
    fn release(&mut self, tag: Tag) {
        if let Some(data) = self.data.get_mut(usize::from(tag)) {
            data.range = None;
            data.crc = None;
            if let Some(buf) = data.hold.take() {
                self.batch.hold(buf);
            }
        }
    }
}
