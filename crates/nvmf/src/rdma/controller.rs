//! The controller's end of an NVMe/RDMA queue pair.

mod send;

use iwarp::{DataPart, Qp, QpCounts, QpError, QpOp, QpSettings, ReceivedSend};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iwarp::TerminateCode;
use wire::nvme::{Sgl, Sqe, Status};
use wire::nvme_rdma::{CmAccept, CmReject, CmRequest, KeyedSgl, cm_status};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::queue::{ControllerEnd, Op, Queue, STAGE_HANDSHAKE};

/// What a queue pair may do; the same for all of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaSettings {
    /// Its stream; how Sends are taken follows from the rest.
    pub stream: QpSettings,
    /// Most in-capsule data, in bytes: what Identify's IOCCSZ announces.
    pub in_capsule_max: u32,
    /// Most data of one command, in bytes: what MDTS announces.
    pub io_bytes_max: u32,
    /// Most entries of a queue: what CAP.MQES announces, and one.
    pub entries_max: u16,
    /// The highest QID.
    pub qid_max: u16,
}

impl Default for RdmaSettings {
    fn default() -> RdmaSettings {
        RdmaSettings {
            stream: QpSettings::default(),
            in_capsule_max: 8192,
            io_bytes_max: 1 << 20,
            entries_max: 1024,
            qid_max: 128,
        }
    }
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmaError {
    /// Its stream does.
    #[error(transparent)]
    Stream(#[from] QpError),
    /// The host asks for what it cannot have: the STS of [`CmReject`].
    #[error("NVMe/RDMA connection rejected: {}", cm_status::name(*.0).unwrap_or("reserved status"))]
    Rejected(u16),
    /// The listener serves no hosts by RDMA.
    #[error("NVMe/RDMA connection rejected: the listener is without `rdma = true`")]
    NotServed,
    /// The host speaks MPA inside TLS.
    #[error("NVMe/RDMA connection rejected: it does not go through TLS")]
    InTls,
}

/// Work for the driver.
pub type RdmaOp = Op<RdmaError>;

/// Where the data of a command that comes from the host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Incoming {
    /// Nothing of it is on its way.
    #[default]
    Nowhere,
    /// In the capsule that is arriving.
    Capsule,
    /// An RDMA Read asks for it.
    Read,
}

/// The host's side of a command.
#[derive(Clone, Copy, Debug, Default)]
struct HostMemory {
    /// Its memory, if the command has any that is not in the capsule.
    keyed: Option<KeyedSgl>,
    /// Bytes that come from the host.
    len: u32,
    incoming: Incoming,
}

/// The capsule that is arriving, once it has data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Capsule {
    #[default]
    Bare,
    /// Its data goes to a command.
    Of(Tag),
    /// It is refused, and answered when it is proved.
    Refused,
    /// Its descriptor names no data in the capsule.
    Unnamed,
}

/// The controller's end of one NVMe/RDMA connection: a [`Queue`] on a [`Qp`].
///
/// A command is submitted when its capsule has arrived; one with data in the capsule when
/// its entry has, so that the data finds its memory, and executed when all of it has.
#[derive(Debug)]
pub struct Qpair {
    settings: RdmaSettings,
    qp: Qp,
    queue: Queue,
    capsule: Capsule,
    /// By tag.
    commands: Vec<HostMemory>,
    /// The answer that goes next is in the stream's hands.
    is_answering: bool,
    /// CRQSIZE of a host whose controller the driver is asked for.
    asked: Option<u16>,
    /// Why no host is served.
    refusal: Option<RdmaError>,
}

impl Qpair {
    /// The machine of a connection accepted at `now`. STags follow from `seed`, which is
    /// random.
    pub fn new(settings: RdmaSettings, seed: u64, now: Nanos) -> Qpair {
        let stream = QpSettings {
            head_max: size_of::<Sqe>() as u16,
            send_max: size_of::<Sqe>() as u32 + settings.in_capsule_max,
            ..settings.stream
        };
        Qpair {
            settings,
            qp: Qp::responder(stream, seed, now),
            queue: Queue::new(
                settings.io_bytes_max,
                now.saturating_add(stream.handshake_timeout),
            ),
            capsule: Capsule::Bare,
            commands: Vec::new(),
            is_answering: false,
            asked: None,
            refusal: None,
        }
    }

    /// What its stream has moved.
    pub fn counts(&self) -> QpCounts {
        self.qp.counts()
    }

    /// Whether CRCs cover what is received, and what is sent.
    pub fn has_crc(&self) -> bool {
        self.qp.terms().crc
    }

    /// Rejects the host, when it has asked: it cannot be served here.
    pub(crate) fn refuse(&mut self, why: RdmaError) {
        self.refusal = Some(why);
    }

    /// The answer to [`Op::QueueAsked`]: whether the host may have a controller of that ID.
    pub fn answer_queue(&mut self, is_known: bool) {
        match self.asked.take() {
            Some(crqsize) if is_known => self.accept(crqsize),
            Some(_) => self.reject(cm_status::INVALID_CNTLID),
            // The connection ended meanwhile.
            None => {}
        }
    }

    /// The host's request: its queue is as long as this end can take, and its memory can be
    /// read.
    fn requested(&mut self) -> Option<RdmaOp> {
        if let Some(why) = self.refusal {
            self.qp.reject(&[]);
            self.queue.end();
            return Some(Op::Fatal(why));
        }
        let (request, crqsize) = match self.check_request() {
            Ok(checked) => checked,
            Err(sts) => {
                self.reject(sts);
                return Some(Op::Fatal(RdmaError::Rejected(sts)));
            }
        };
        let cntlid = request.cntlid.get();
        // Hosts of older standards say 0, which is no controller's.
        if request.qid.get() == 0 || cntlid == 0 {
            self.accept(crqsize);
            return None;
        }
        self.asked = Some(crqsize);
        Some(Op::QueueAsked { cntlid })
    }

    fn accept(&mut self, crqsize: u16) {
        let accept = CmAccept {
            crqsize: crqsize.into(),
            ..CmAccept::new_zeroed()
        };
        self.qp.accept(accept.as_bytes());
        self.qp.post_receives(crqsize.into());
    }

    fn reject(&mut self, sts: u16) {
        let reject = CmReject {
            recfmt: 0.into(),
            sts: sts.into(),
        };
        self.qp.reject(reject.as_bytes());
        self.queue.end();
    }

    /// What the host asks for, and CRQSIZE; or why not.
    fn check_request(&self) -> Result<(CmRequest, u16), u16> {
        let Ok((request, _)) = CmRequest::read_from_prefix(self.qp.private_data()) else {
            return Err(cm_status::INVALID_LENGTH);
        };
        if request.recfmt.get() != 0 {
            return Err(cm_status::INVALID_RECFMT);
        }
        if request.qid.get() > self.settings.qid_max {
            return Err(cm_status::INVALID_QID);
        }
        let hsqsize = request.hsqsize.get();
        if hsqsize == 0 || hsqsize >= self.settings.entries_max {
            return Err(cm_status::INVALID_HSQSIZE);
        }
        let hrqsize = request.hrqsize.get();
        if hrqsize == 0 || hrqsize > self.settings.entries_max {
            return Err(cm_status::INVALID_HRQSIZE);
        }
        match self.qp.terms().ord {
            0 => Err(cm_status::INVALID_IRD),
            _ => Ok((request, hsqsize + 1)),
        }
    }

    /// The entry of the capsule that is arriving, if it is whole.
    #[inline]
    fn entry(&self) -> Option<Sqe> {
        Sqe::read_from_bytes(self.qp.head()).ok()
    }

    /// Submits an entry with `capsule_len` bytes of data in its capsule.
    #[inline]
    fn submit(&mut self, sqe: &Sqe, capsule_len: u32) -> Option<RdmaOp> {
        let keyed = KeyedSgl::of(&sqe.sgl);
        let sgl = match (keyed, sqe.sgl.id) {
            (Some(keyed), _) => Sgl::new(Sgl::TRANSPORT, keyed.len()),
            (None, Sgl::IN_CAPSULE) => sqe.sgl,
            // No other descriptor is of this transport.
            (None, _) => Sgl::default(),
        };
        let Ok(op) = self.queue.submit(&Sqe { sgl, ..*sqe }, capsule_len) else {
            self.qp.terminate(TerminateCode::UNSPECIFIED);
            return None;
        };
        let (tag, len) = match op {
            Some(Op::Prepare { tag, len, .. }) => (tag, len),
            Some(Op::Execute { tag }) => (tag, 0),
            _ => {
                self.stop_withdrawn();
                return op;
            }
        };
        let index = usize::from(tag);
        if index >= self.commands.len() {
            self.commands.resize(index + 1, HostMemory::default());
        }
        self.commands[index] = HostMemory {
            keyed,
            len,
            incoming: Incoming::Nowhere,
        };
        self.stop_withdrawn();
        op
    }

    /// Data follows an entry.
    fn body(&mut self) -> Option<RdmaOp> {
        let sqe = self.entry().expect("its data follows it");
        let len = sqe.sgl.length.get();
        if sqe.sgl.id != Sgl::IN_CAPSULE || len == 0 {
            self.capsule = Capsule::Unnamed;
            self.qp.drop_body();
            return None;
        }
        let mut op = self.submit(&sqe, len);
        if let Some(Op::Prepare { tag, staged, .. }) = &mut op {
            let tag = *tag;
            let is_all = self.qp.staged_body() == Some(len);
            *staged = is_all && sqe.flags & Sqe::FUSE_MASK == 0;
            self.capsule = Capsule::Of(tag);
            self.commands[usize::from(tag)].incoming = Incoming::Capsule;
            self.qp.body_into(tag);
        } else {
            self.capsule = Capsule::Refused;
            self.qp.drop_body();
        }
        op
    }

    /// All of a capsule has come.
    #[inline]
    fn received(&mut self, received: ReceivedSend) -> Option<RdmaOp> {
        match std::mem::take(&mut self.capsule) {
            Capsule::Of(tag) => {
                let command = &mut self.commands[usize::from(tag)];
                command.incoming = Incoming::Nowhere;
                if received.body_len != command.len {
                    let status = Status::DATA_SGL_LENGTH_INVALID.dnr();
                    self.queue.give_up(tag, status);
                }
                let op = self.queue.data_whole(tag);
                self.stop_withdrawn();
                op
            }
            Capsule::Refused => None,
            kind => {
                let Some(mut sqe) = self.entry() else {
                    self.qp.terminate(TerminateCode::UNSPECIFIED);
                    return None;
                };
                if kind == Capsule::Unnamed {
                    sqe.sgl = Sgl::new(Sgl::IN_CAPSULE, 0);
                }
                self.submit(&sqe, received.body_len)
            }
        }
    }

    /// What comes of what the stream tells.
    #[inline]
    fn stream_op(&mut self, op: QpOp) -> Option<RdmaOp> {
        match op {
            QpOp::Requested => self.requested(),
            QpOp::Body => self.body(),
            QpOp::Received(received) => self.received(received),
            QpOp::ReadDone(sink) => {
                self.commands[usize::from(sink.tag)].incoming = Incoming::Nowhere;
                self.queue.data_whole(sink.tag)
            }
            QpOp::Fatal(why) => {
                self.queue.end();
                Some(Op::Fatal(why.into()))
            }
            QpOp::Established | QpOp::Rejected => unreachable!("of an initiator"),
        }
    }

    /// The next that the error log is to know: nothing of a capsule that no CRC has proved.
    #[inline]
    fn next_notice(&mut self) -> Option<RdmaOp> {
        match self.has_notice() {
            true => self.queue.next_notice(),
            false => None,
        }
    }

    /// Whether the next answer may go: not that to an entry that no CRC has proved.
    #[inline]
    fn may_answer(&self) -> bool {
        self.capsule != Capsule::Refused
    }

    #[inline]
    fn has_notice(&self) -> bool {
        self.capsule == Capsule::Bare && self.queue.has_notice()
    }
}

impl ControllerEnd for Qpair {
    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn prepared(&mut self, tag: Tag) {
        if !self.queue.prepared(tag) {
            return self.stop_withdrawn();
        }
        let command = &mut self.commands[usize::from(tag)];
        let len = command.len;
        let Some(keyed) = command.keyed else {
            return self.qp.prepared(tag, len);
        };
        command.incoming = Incoming::Read;
        let offset = 0;
        let asked = self.qp.read(
            DataPart { tag, offset, len },
            keyed.key.get(),
            keyed.address.get(),
        );
        asked.expect("hosts that take no reads are rejected");
    }

    /// Commands that were given up are answered when none of their data is on its way: a
    /// Read that was asked for comes.
    fn stop_withdrawn(&mut self) {
        while let Some(tag) = self.queue.next_withdrawn() {
            match self.commands[usize::from(tag)].incoming {
                Incoming::Nowhere => self.queue.data_over(tag),
                Incoming::Capsule if self.qp.is_blocked_on(tag) => self.qp.prepared(tag, 0),
                Incoming::Capsule | Incoming::Read => {}
            }
        }
    }
}

impl Machine for Qpair {
    type Op = RdmaOp;

    fn tags_max(&self) -> usize {
        self.queue.tags_max()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        let plan = self.qp.recv_plan();
        match self.queue.is_live() {
            true => plan,
            false => RecvPlan {
                stage_max: plan.stage_max.min(STAGE_HANDSHAKE),
                ..plan
            },
        }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        self.qp.on_direct(len);
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<RdmaOp>> {
        loop {
            if let Some(op) = self.next_notice() {
                return Some(Step::Op(op));
            }
            if self.queue.is_ended() && !self.qp.has_step() {
                *at = staged.len();
                return None;
            }
            let step = self.qp.poll_step(now, staged, at)?;
            if let Some(step) = step.filter_map(|op| self.stream_op(op)) {
                return Some(step);
            }
        }
    }

    #[inline]
    fn has_step(&self) -> bool {
        self.has_notice() || self.qp.has_step()
    }

    fn is_blocked_on(&self, tag: Tag) -> bool {
        self.qp.is_blocked_on(tag)
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.qp.on_digest(tag, crc);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        let has_answer = self.queue.has_answer() && self.may_answer() && !self.qp.is_finished();
        has_answer || self.qp.has_transmit()
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        self.transmit(out);
    }

    #[inline]
    fn is_finished(&self) -> bool {
        self.queue.is_ended() || self.qp.is_finished()
    }

    fn deadline(&self) -> Option<Nanos> {
        self.queue.deadline()
    }

    fn on_deadline(&mut self, now: Nanos) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.queue.end();
        }
    }
}
