//! One connection: a [`Machine`] on a [`Stream`].
//!
//! What every protocol and both roles have in common between the reactor and
//! the machine: receives made from the machine's plan, staged payload copied
//! to its destination, digests checked, and everything ready to go sent as one
//! batch. The protocol's own operations come out of [`Link::next_op`]; the
//! driver that executes them says with [`Link::set_data`] where a command's
//! data lies.
#![forbid(unsafe_code)]

mod secure;
mod stream;
#[cfg(test)]
mod tests;

pub use secure::{HANDSHAKE_UNITS, HandshakeDone, HandshakeWork, StreamProblem, TlsBytes};
pub use stream::{Stream, StreamTokens};

use machine::{Direct, Machine, Nanos, PAD_MAX, Step, Tag, Tail, Transmit, work};
use mem::{BUF_BYTES_MAX, Buf, BufRange, Loan, Pool, Reserved, Stage};
use reactor::{Batch, Driver, Received};

/// Where the data of one command lies.
#[derive(Default)]
pub struct CommandMemory {
    memory: Memory,
    /// The tick in which the command got it.
    since: u32,
}

#[derive(Default)]
enum Memory {
    #[default]
    None,
    /// Outlives the command.
    Range(BufRange),
    /// The command's own.
    Buf(Buf),
    Loan(Loan),
    /// Pieces of [`BUF_BYTES_MAX`] each, but for the last: of more than one holds.
    Several(Vec<CommandMemory>),
    /// Where it arrived: bytes of the staging buffer.
    Staged(Staged),
    /// Bytes of the machine that count as the command's.
    Reserved(Reserved),
}

/// Payload that stays where it was staged.
#[derive(Clone, Copy, Default)]
struct Staged {
    at: u32,
    len: u32,
    /// Which receive it came with: the buffer is gone with the next.
    receive: u64,
}

impl CommandMemory {
    #[inline]
    fn new(memory: Memory) -> Self {
        CommandMemory { memory, since: 0 }
    }

    /// Data in memory that outlives the command.
    #[inline]
    pub fn lent(range: BufRange) -> Self {
        CommandMemory::new(Memory::Range(range))
    }

    /// Data in a buffer that the command owns.
    #[inline]
    pub fn owned(buf: Buf) -> Self {
        CommandMemory::new(Memory::Buf(buf))
    }

    /// `len` bytes of a pool that the command owns, in several buffers where one does not hold
    /// them; `None` while there are none.
    #[inline]
    pub fn from_pool(pool: &Pool, len: u32) -> Option<Self> {
        if len <= BUF_BYTES_MAX {
            return pool.get(len).map(CommandMemory::owned);
        }
        let bufs = pool.get_several(len)?;
        let pieces = bufs.into_iter().map(CommandMemory::owned).collect();
        Some(CommandMemory::several(pieces))
    }

    /// Data in several pieces, each of them a buffer or a loan, of [`BUF_BYTES_MAX`] each
    /// but for the last.
    pub fn several(pieces: Vec<CommandMemory>) -> Self {
        CommandMemory::new(Memory::Several(pieces))
    }

    /// Adds a piece behind the others, all of which have [`BUF_BYTES_MAX`]; to none, it is
    /// the only one.
    #[inline]
    pub fn push(&mut self, piece: CommandMemory) {
        match &mut self.memory {
            Memory::None => *self = piece,
            Memory::Several(pieces) => pieces.push(piece),
            _ => {
                let first = std::mem::take(self);
                *self = CommandMemory::several(vec![first, piece]);
            }
        }
    }

    /// Data in memory that a volume has lent for this command.
    #[inline]
    pub fn loan(loan: Loan) -> Self {
        CommandMemory::new(Memory::Loan(loan))
    }

    /// Data that stays in the staging buffer, for a command all of whose
    /// payload is there: take it with [`Link::staged`] when the command is to
    /// be executed, before any byte is received.
    #[inline]
    pub fn staged() -> Self {
        CommandMemory::new(Memory::Staged(Staged::default()))
    }

    /// Memory of the machine that counts as the command's.
    pub fn reserved(reserved: Reserved) -> Self {
        CommandMemory::new(Memory::Reserved(reserved))
    }

    /// The memory, where it is one range.
    #[inline]
    pub fn range(&self) -> Option<BufRange> {
        match &self.memory {
            Memory::Range(range) => Some(*range),
            Memory::Buf(buf) => Some(buf.range()),
            Memory::Loan(loan) => match loan.pieces() {
                [piece] => Some(*piece),
                _ => None,
            },
            Memory::None | Memory::Several(_) | Memory::Staged(_) | Memory::Reserved(_) => None,
        }
    }

    /// Whether it has bytes of its own: then [`CommandMemory::each_part`] finds them.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        match self.memory {
            Memory::Range(_) | Memory::Buf(_) | Memory::Loan(_) | Memory::Several(_) => true,
            Memory::None | Memory::Staged(_) | Memory::Reserved(_) => false,
        }
    }

    /// What a volume has lent.
    #[inline]
    pub fn loan_mut(&mut self) -> Option<&mut Loan> {
        match &mut self.memory {
            Memory::Loan(loan) => Some(loan),
            _ => None,
        }
    }

    /// The buffer that the command owned.
    pub fn into_buf(self) -> Option<Buf> {
        match self.memory {
            Memory::Buf(buf) => Some(buf),
            _ => None,
        }
    }

    /// Calls `each` with the memory of `len` bytes from `offset`, in order.
    #[inline]
    pub fn each_part(&self, offset: u32, len: u32, mut each: impl FnMut(BufRange)) {
        match &self.memory {
            Memory::Range(range) => each(range.slice(offset, len)),
            Memory::Buf(buf) => each(buf.range().slice(offset, len)),
            Memory::Loan(loan) => loan.parts(offset, len).for_each(each),
            Memory::Several(pieces) => each_part_of(pieces, offset, len, &mut each),
            Memory::None | Memory::Staged(_) | Memory::Reserved(_) => panic!("{NO_MEMORY}"),
        }
    }

    /// Copies `bytes` into it, from `offset` on.
    #[inline]
    pub fn put(&self, offset: u32, bytes: &[u8]) {
        let mut from = 0;
        self.each_part(offset, bytes.len() as u32, |to| {
            let part = &bytes[from..from + to.len() as usize];
            from += part.len();
            mem::copy_in(to, part);
        });
    }

    /// Copies its bytes from `offset` on, as many as `into` has.
    #[inline]
    pub fn get(&self, offset: u32, into: &mut [u8]) {
        let mut at = 0;
        self.each_part(offset, into.len() as u32, |part| {
            let end = at + part.len() as usize;
            mem::copy_out(part, &mut into[at..end]);
            at = end;
        });
    }

    /// Appends `len` of its bytes from `offset` on.
    pub fn append(&self, offset: u32, len: u32, to: &mut Vec<u8>) {
        let at = to.len();
        to.resize(at + len as usize, 0);
        self.get(offset, &mut to[at..]);
    }

    /// Continues the CRC32C `crc` over `len` bytes from `offset`.
    fn crc32c(&self, offset: u32, len: u32, mut crc: u32) -> u32 {
        self.each_part(offset, len, |part| crc = mem::crc32c(part, crc));
        crc
    }

    /// The memory of `len` bytes from `offset` as far as it is one range.
    #[inline]
    pub fn first_part(&self, offset: u32, len: u32) -> BufRange {
        match &self.memory {
            Memory::Range(range) => range.slice(offset, len),
            Memory::Buf(buf) => buf.range().slice(offset, len),
            Memory::Loan(loan) => loan.parts(offset, len).next().expect(NO_MEMORY),
            Memory::Several(pieces) => {
                let (piece, from, len) = parts(pieces, offset, len).next().expect(NO_MEMORY);
                piece.first_part(from, len)
            }
            Memory::None | Memory::Staged(_) | Memory::Reserved(_) => panic!("{NO_MEMORY}"),
        }
    }

    /// Bytes of it that others could have.
    fn held_bytes(&self) -> u64 {
        match &self.memory {
            Memory::Buf(buf) => buf.len().into(),
            Memory::Several(pieces) => pieces.iter().map(CommandMemory::held_bytes).sum(),
            Memory::Loan(_) | Memory::None | Memory::Range(_) | Memory::Staged(_) => 0,
            Memory::Reserved(reserved) => reserved.bytes(),
        }
    }

    /// A batch keeps it until it is sent.
    #[inline]
    fn hold_in(self, batch: &mut Batch) {
        match self.memory {
            Memory::Buf(buf) => batch.hold(buf),
            Memory::Loan(loan) => batch.hold(loan),
            Memory::Several(pieces) => pieces.into_iter().for_each(|piece| piece.hold_in(batch)),
            Memory::Reserved(reserved) => drop(reserved),
            Memory::None | Memory::Range(_) | Memory::Staged(_) => {}
        }
    }
}

/// Which of several pieces have `len` bytes from `offset`, in order: each with where they
/// begin in it, and how many it has.
fn parts(
    pieces: &[CommandMemory],
    offset: u32,
    len: u32,
) -> impl Iterator<Item = (&CommandMemory, u32, u32)> {
    let end = offset + len;
    let all = (0..).step_by(BUF_BYTES_MAX as usize).zip(pieces);
    all.filter_map(move |(at, piece)| {
        let (from, to) = (offset.max(at), end.min(at + BUF_BYTES_MAX));
        (from < to).then(|| (piece, from - at, to - from))
    })
}

/// As [`CommandMemory::each_part`].
#[cold]
fn each_part_of(pieces: &[CommandMemory], offset: u32, len: u32, each: &mut dyn FnMut(BufRange)) {
    for (piece, from, len) in parts(pieces, offset, len) {
        piece.each_part(from, len, &mut *each);
    }
}

/// What is ready to be sent waits for payload that lies in the socket until so
/// many bytes came: as many as one receive into staging brings.
const UNANSWERED_BYTES_MAX: u32 = 256 << 10;
const NO_MEMORY: &str = "payload moves only for a command whose memory is known";

/// A machine bound to a stream, with the data of its commands.
pub struct Link<M> {
    /// The protocol's side of the connection.
    pub machine: M,
    /// What it receives from and sends to.
    pub stream: Stream,
    /// Whether it takes the fast path; `None`: as its driver does.
    fast_path: Option<bool>,
    data: Vec<CommandMemory>,
    stage: Option<Stage>,
    at: usize,
    /// Receives so far: says which of them staged data came with.
    receives: u64,
    /// The command whose memory a receive under way writes.
    receiving_into: Option<Tag>,
    /// Memory that was taken from a command while a receive writes it.
    parked: CommandMemory,
    /// Where a receive under way puts payload that is copied on from there, and
    /// where in the command's data it belongs.
    bounce: Option<(Buf, u32)>,
    /// What is ready so far of the next send.
    gathered: Option<Box<Batch>>,
    /// Bytes received since the last send began.
    unanswered_bytes: u32,
    /// Batches sent so far.
    batches: u64,
    /// Ticks so far.
    ticks: u32,
    /// The tick in which the last send began.
    sent_at: u32,
    /// The last tick in which a byte came, or a batch had gone.
    moved_at: u32,
}

impl<M: Machine> Link<M> {
    /// Binds `machine` to `stream`. Call [`Link::receive`] to start.
    pub fn new(machine: M, stream: Stream) -> Self {
        Link {
            machine,
            stream,
            fast_path: None,
            data: Vec::new(),
            stage: None,
            at: 0,
            receives: 0,
            receiving_into: None,
            parked: CommandMemory::default(),
            bounce: None,
            gathered: None,
            unanswered_bytes: 0,
            batches: 0,
            ticks: 0,
            sent_at: 0,
            moved_at: 0,
        }
    }

    /// Says whether it takes the fast path, whatever its driver does.
    pub fn set_fast_path(&mut self, fast_path: Option<bool>) {
        self.fast_path = fast_path;
    }

    #[inline]
    fn takes_fast_path<D: Driver>(&self, driver: &D) -> bool {
        self.fast_path.unwrap_or_else(|| driver.fast_path())
    }

    /// Says where the data of `tag` lies: arriving payload is placed there,
    /// payload to send is taken from there.
    #[inline]
    pub fn set_data(&mut self, tag: Tag, mut data: CommandMemory) {
        data.since = self.ticks;
        let index = usize::from(tag);
        if index >= self.data.len() {
            let len = self.machine.tags_max().max(index + 1);
            self.data.resize_with(len, CommandMemory::default);
        }
        let old = std::mem::replace(&mut self.data[index], data);
        self.drop_data(tag, old);
    }

    /// The memory of `tag`, if it has any and that is one range.
    #[inline]
    pub fn range(&self, tag: Tag) -> Option<BufRange> {
        self.data
            .get(usize::from(tag))
            .and_then(CommandMemory::range)
    }

    /// The memory of `tag`, in order: more than one range only where its data is
    /// [`CommandMemory::several`].
    pub fn ranges(&self, tag: Tag) -> Vec<BufRange> {
        match self.data.get(usize::from(tag)).map(|data| &data.memory) {
            Some(Memory::Several(pieces)) => {
                pieces.iter().filter_map(CommandMemory::range).collect()
            }
            _ => self.range(tag).into_iter().collect(),
        }
    }

    /// A piece of the memory of `tag`, where that is [`CommandMemory::several`].
    pub fn piece_mut(&mut self, tag: Tag, index: usize) -> Option<&mut CommandMemory> {
        match &mut self.data.get_mut(usize::from(tag))?.memory {
            Memory::Several(pieces) => pieces.get_mut(index),
            _ => None,
        }
    }

    /// What a volume has lent to `tag`.
    #[inline]
    pub fn loan_mut(&mut self, tag: Tag) -> Option<&mut Loan> {
        self.data
            .get_mut(usize::from(tag))
            .and_then(CommandMemory::loan_mut)
    }

    /// The payload of `tag` where it was staged, if its data is
    /// [`CommandMemory::staged`] and has arrived.
    #[inline]
    pub fn staged(&self, tag: Tag) -> Option<&[u8]> {
        let Memory::Staged(staged) = self.data.get(usize::from(tag))?.memory else {
            return None;
        };
        self.stage_bytes(staged)
    }

    #[inline]
    fn stage_bytes(&self, staged: Staged) -> Option<&[u8]> {
        let (at, len) = (staged.at as usize, staged.len as usize);
        let is_there = staged.receive == self.receives;
        let bytes = self.stage.as_ref()?.bytes();
        is_there.then(|| &bytes[at..at + len])
    }

    /// Puts bytes into the data of `tag`, from byte `offset` on.
    pub fn put(&self, tag: Tag, offset: u32, bytes: &[u8]) {
        work::spend_bytes(bytes.len() as u64);
        self.data[usize::from(tag)].put(offset, bytes);
    }

    /// Calls `f` with the machine, and what appends bytes of a tag's data: so many, from an
    /// offset.
    pub fn with_data<T>(
        &mut self,
        f: impl FnOnce(&mut M, &dyn Fn(Tag, u32, u32, &mut Vec<u8>)) -> T,
    ) -> T {
        let data = &self.data;
        f(&mut self.machine, &|tag, offset, len, to| {
            work::spend_bytes(len.into());
            data[usize::from(tag)].append(offset, len, to);
        })
    }

    /// Takes the data of `tag` away, leaving it none. Memory that a receive
    /// under way writes stays here until the receive ends, and nothing is
    /// returned.
    #[inline]
    pub fn take_data(&mut self, tag: Tag) -> CommandMemory {
        let Some(data) = self.data.get_mut(usize::from(tag)) else {
            return CommandMemory::default();
        };
        let data = std::mem::take(data);
        if self.receiving_into == Some(tag) {
            self.drop_data(tag, data);
            return CommandMemory::default();
        }
        data
    }

    /// Lets go of memory, but not while the kernel may write it.
    #[inline]
    fn drop_data(&mut self, tag: Tag, data: CommandMemory) {
        if self.receiving_into == Some(tag) {
            // The tag has no other memory that this receive writes.
            self.receiving_into = None;
            self.parked = data;
        }
    }

    /// A receive completed; whether the peer will send no more. Else call [`Link::next_op`]
    /// until it yields nothing, then [`Link::receive`].
    #[inline]
    pub fn on_received(&mut self, received: Received) -> bool {
        let received = self.stream.on_received(received);
        self.receives += 1;
        self.moved_at = self.ticks;
        let staged = received
            .stage
            .as_ref()
            .map_or(0, |stage| stage.bytes().len());
        let bytes = received.direct.saturating_add(staged as u32);
        self.unanswered_bytes = self.unanswered_bytes.saturating_add(bytes);
        let into = self.receiving_into.take();
        self.parked = CommandMemory::default();
        if let Some((buf, offset)) = self.bounce.take()
            && let Some(tag) = into
        {
            self.copy_on(tag, offset, buf.range().slice(0, received.direct));
        }
        if received.direct > 0 {
            self.machine.on_direct(received.direct);
        }
        self.stage = received.stage;
        self.at = 0;
        received.eof
    }

    /// The next operation that the bytes received allow at the time `now`.
    #[inline]
    pub fn next_op(&mut self, now: Nanos) -> Option<M::Op> {
        // The CRC32C of what the step before has placed.
        let mut placed = None;
        loop {
            let bytes = self.stage.as_ref().map_or(&[][..], Stage::bytes);
            match self.machine.poll_step(now, bytes, &mut self.at)? {
                Step::Op(op) => return Some(op),
                Step::Place {
                    tag,
                    offset,
                    at,
                    len,
                    digest,
                } => placed = self.place(tag, offset, at, len, digest),
                Step::Digest {
                    tag,
                    offset,
                    len,
                    seed,
                } => {
                    let crc = placed.take();
                    let crc = crc.unwrap_or_else(|| self.digest(tag, offset, len, seed));
                    self.machine.on_digest(tag, crc);
                }
            }
        }
    }

    /// Payload arrived in staging: moves it to where it belongs. The CRC32C of what was
    /// copied, if `digest` asks for it: that of bytes that are copied costs no other pass.
    #[inline]
    fn place(
        &mut self,
        tag: Tag,
        offset: u32,
        at: u32,
        len: u32,
        digest: Option<u32>,
    ) -> Option<u32> {
        let data = &mut self.data[usize::from(tag)];
        if let Memory::Staged(staged) = &mut data.memory {
            assert!(offset == 0, "staged payload comes in one piece");
            let receive = self.receives;
            *staged = Staged { at, len, receive };
            return None;
        }
        work::spend_bytes(len.into());
        let bytes = self.stage.as_ref().map_or(&[][..], Stage::bytes);
        let (mut from, mut crc) = (at as usize, digest);
        data.each_part(offset, len, |to| {
            let part = &bytes[from..from + to.len() as usize];
            from += part.len();
            match &mut crc {
                Some(crc) => *crc = mem::copy_in_crc(to, part, *crc),
                None => mem::copy_in(to, part),
            }
        });
        crc
    }

    /// Moves payload that was received elsewhere to where it belongs.
    #[cold]
    fn copy_on(&self, tag: Tag, offset: u32, from: BufRange) {
        work::spend_bytes(from.len().into());
        let mut at = 0;
        self.data[usize::from(tag)].each_part(offset, from.len(), |to| {
            mem::copy(to, from.slice(at, to.len()));
            at += to.len();
        });
    }

    /// Continues the CRC32C `seed` over a part of the data of `tag`.
    fn digest(&self, tag: Tag, offset: u32, len: u32, seed: u32) -> u32 {
        work::spend_bytes(len.into());
        let data = &self.data[usize::from(tag)];
        if let Memory::Staged(staged) = data.memory {
            let bytes = self.stage_bytes(staged).expect(NO_MEMORY);
            let from = offset as usize;
            return mem::crc32c_bytes(&bytes[from..from + len as usize], seed);
        }
        data.crc32c(offset, len, seed)
    }

    /// Whether no byte was received that the machine has not taken, and none is
    /// being received.
    pub fn is_drained(&self) -> bool {
        let staged = self.stage.as_ref().map_or(0, |stage| stage.bytes().len());
        !self.stream.is_receiving() && self.at >= staged
    }

    /// Bytes that were received and that the machine has not taken, where no
    /// others are asked for before it does.
    #[inline]
    pub fn staged_bytes(&self) -> usize {
        let staged = self.stage.as_ref();
        staged.map_or(0, |stage| stage.bytes().len() - self.at)
    }

    /// What was received and is not to be walked now takes no more memory than it needs,
    /// unless a command has its data there.
    #[cold]
    pub fn shrink_stage(&mut self, pool: &Pool) {
        let left = self.staged_bytes();
        let has_data = self.data.iter().any(|data| match &data.memory {
            Memory::Staged(staged) => staged.receive == self.receives,
            _ => false,
        });
        if let Some(stage) = &mut self.stage
            && left <= stage.capacity() / 2
            && !has_data
        {
            stage.keep_from(self.at);
            stage.fit(pool, 0);
            self.at = 0;
        }
    }

    /// Asks for the next bytes. An unfinished header is kept and comes first.
    #[inline]
    pub fn receive<D: Driver>(&mut self, driver: &mut D) {
        if !self.stream.may_receive() || self.machine.is_finished() {
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
        let mut stage_max = plan.stage_max;
        let direct = plan.direct.map(|Direct { tag, offset, len }| {
            let part = self.data[usize::from(tag)].first_part(offset, len);
            if part.len() < len {
                // What follows is payload for the next piece.
                stage_max = 0;
            }
            self.receiving_into = Some(tag);
            if self.takes_fast_path(driver) {
                return part;
            }
            // Without memory for the detour the straight way is as good.
            let bounced = part.len().min(BUF_BYTES_MAX);
            let Some(buf) = driver.pool().get(bounced) else {
                return part;
            };
            if bounced < len {
                stage_max = 0;
            }
            self.bounce.insert((buf, offset)).0.range()
        });
        self.stream.receive(driver, direct, stage, stage_max);
    }

    /// Sends what is ready, unless a batch is still on its way, or payload that
    /// lies in the socket is just being received: then the answers to both go
    /// together. Large payloads are received one by one; peers that answered
    /// each at once would fall into step and move one payload a turn.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        let waits = self.stream.has_more()
            && self.receiving_into.is_some()
            && self.unanswered_bytes < UNANSWERED_BYTES_MAX
            && self.takes_fast_path(driver);
        if !waits {
            self.flush_now(driver);
        }
    }

    /// Takes what is ready out of the machine already, for the next send: what it
    /// kept of a command that is over then serves the next one while it is warm.
    #[inline]
    pub fn gather<D: Driver>(&mut self, driver: &mut D) {
        if self.takes_fast_path(driver) && self.machine.has_transmit() {
            let mut batch = self.gathered.take().unwrap_or_else(|| driver.batch());
            self.fill(&mut batch, driver);
            self.gathered = Some(batch);
        }
    }

    #[inline]
    fn fill<D: Driver>(&mut self, batch: &mut Batch, driver: &D) {
        let detour = (!self.takes_fast_path(driver)).then(|| driver.pool());
        self.machine.poll_transmit(&mut Sink {
            batch,
            data: &mut self.data,
            detour,
        });
    }

    /// Whether something is ready to be sent.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.gathered.is_some() || self.machine.has_transmit() || self.stream.has_output()
    }

    /// Sends what is ready, unless a batch is still on its way.
    #[inline]
    pub fn flush_now<D: Driver>(&mut self, driver: &mut D) {
        if self.stream.has_output() {
            // What the stream has comes before all else, and perhaps alone.
            if !self.stream.is_in_flight() {
                self.stream.send_output(driver);
            }
            return;
        }
        let is_there = self.has_unsent() && self.stream.takes_batches();
        if self.stream.is_sending() || !is_there {
            return;
        }
        let mut batch = self.gathered.take().unwrap_or_else(|| driver.batch());
        self.fill(&mut batch, driver);
        if batch.is_empty() {
            // What the machine has done sends nothing yet: reads of RDMA wait for others.
            return;
        }
        self.unanswered_bytes = 0;
        self.batches += 1;
        self.sent_at = self.ticks;
        self.stream.send(driver, batch);
    }

    /// Sends the last that there is, and tells the peer so where the stream has a way to.
    pub fn end_output<D: Driver>(&mut self, driver: &mut D) {
        self.flush_now(driver);
        if !self.stream.is_sending() && !self.has_unsent() {
            self.stream.end_output();
            self.flush_now(driver);
        }
    }

    /// Batches sent so far.
    #[inline]
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The batch was accepted by the kernel; call [`Link::flush`] again.
    #[inline]
    pub fn on_sent(&mut self) {
        self.stream.on_sent();
        self.moved_at = self.ticks;
    }

    /// Time passes: the unit of what the next three tell is the caller's.
    pub fn tick(&mut self) {
        self.ticks += 1;
    }

    /// Ticks since a byte came, or a batch had gone.
    pub fn idle_ticks(&self) -> u32 {
        self.ticks - self.moved_at
    }

    /// Ticks that the batch under way has been under way; 0 where none is.
    pub fn sending_ticks(&self) -> u32 {
        match self.stream.is_sending() {
            true => self.ticks - self.sent_at,
            false => 0,
        }
    }

    /// Bytes of memory that its commands have, and what has arrived and is not walked.
    pub fn held_bytes(&self) -> u64 {
        let commands: u64 = self.data.iter().map(CommandMemory::held_bytes).sum();
        let stage = self.stage.as_ref().map_or(0, Stage::capacity);
        commands + stage as u64 + self.stream.held_bytes()
    }

    /// The commands that hold memory which others could have, and for how many
    /// ticks.
    pub fn held(&self) -> impl Iterator<Item = (Tag, u32)> {
        let held = |data: &CommandMemory| {
            matches!(
                data.memory,
                Memory::Buf(_) | Memory::Several(_) | Memory::Loan(_) | Memory::Reserved(_)
            )
        };
        let all = self.data.iter().enumerate();
        all.filter(move |(_, data)| held(data))
            .map(|(tag, data)| (tag as Tag, self.ticks - data.since))
    }
}

/// A machine's view of the batch that it fills.
struct Sink<'a> {
    batch: &'a mut Batch,
    data: &'a mut [CommandMemory],
    /// Where payload is copied to before it is sent, one PDU at a time; `None`
    /// on the fast path.
    detour: Option<&'a Pool>,
}

/// Puts a copy of payload into a batch; without memory for it, the payload.
#[cold]
fn copy_payload(batch: &mut Batch, pool: &Pool, part: BufRange) {
    let mut at = 0;
    while at < part.len() {
        let piece = part.slice(at, (part.len() - at).min(BUF_BYTES_MAX));
        at += piece.len();
        let Some(buf) = pool.get(piece.len()) else {
            batch.payload(piece);
            continue;
        };
        mem::copy(buf.range(), piece);
        batch.payload(buf.range());
        batch.hold(buf);
    }
}

impl Transmit for Sink<'_> {
    /// What a batch holds is worked for in this turn: digests, copies. One PDU goes out
    /// in any case, and what is left when it has gone.
    #[inline]
    fn has_room(&self) -> bool {
        if work::is_used_up() && !self.batch.is_empty() {
            return false;
        }
        match self.detour {
            None => self.batch.has_room(),
            Some(_) => self.batch.is_empty(),
        }
    }

    #[inline]
    fn header_room(&self) -> usize {
        self.batch.header_room()
    }

    #[inline]
    fn header(&mut self, bytes: &[u8]) {
        self.batch.header(bytes);
    }

    #[inline]
    fn payload(&mut self, tag: Tag, offset: u32, len: u32, tail: Tail) {
        let data = &self.data[usize::from(tag)];
        match self.detour {
            None => data.each_part(offset, len, |part| self.batch.payload(part)),
            Some(pool) => {
                work::spend_bytes(len.into());
                data.each_part(offset, len, |part| copy_payload(self.batch, pool, part));
            }
        }
        let pad = &[0; PAD_MAX][..usize::from(tail.pad)];
        if !pad.is_empty() {
            self.batch.header(pad);
        }
        work::spend(1);
        if let Some(seed) = tail.digest {
            work::spend_bytes(len.into());
            let crc = mem::crc32c_bytes(pad, data.crc32c(offset, len, seed));
            self.batch.header(&crc.to_le_bytes());
        }
    }

    #[inline]
    fn release(&mut self, tag: Tag) {
        let Some(data) = self.data.get_mut(usize::from(tag)) else {
            return;
        };
        std::mem::take(data).hold_in(self.batch);
    }
}
