//! The host's end of an NVMe/RDMA queue pair.

#[cfg(test)]
mod tests;

use iwarp::{
    CrcPolicy, DataPart, Qp, QpError, QpOp, QpSettings, ReceivedSend, RegisteredMemory,
    RemoteAccess, UpperBatch, Work,
};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iwarp::TerminateCode;
use wire::nvme::{ConnectCommand, Cqe, Sgl, Sqe};
use wire::nvme_rdma::{CmAccept, CmReject, CmRequest, KeyedSgl, cm_status};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::host::{Completion, Data, HostCommands, HostOp, HostRole};

/// Commands in flight at most: as many as a stream has regions.
const COMMANDS_MAX: u16 = 1 << 15;

/// What the host asks the controller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaHostSettings {
    /// Which CRCs are asked for.
    pub crc: CrcPolicy,
    /// RDMA Reads of the controller at a time, at least 1: below 16383.
    pub ird_max: u16,
    /// Most bytes of a ULPDU that is sent: [`iwarp::ulpdu_max`] of a TCP segment where each
    /// FPDU is to fit into one, 128 at least.
    pub ulpdu_max: u16,
}

impl Default for RdmaHostSettings {
    fn default() -> RdmaHostSettings {
        RdmaHostSettings {
            crc: CrcPolicy::Off,
            ird_max: 128,
            ulpdu_max: u16::MAX,
        }
    }
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmaHostError {
    /// Its stream ends.
    #[error(transparent)]
    Stream(#[from] QpError),
    /// The controller rejects it, with this STS if there is one.
    #[error("controller rejects the connection: {}", sts_words(*.0))]
    Rejected(Option<u16>),
    /// The controller accepts with private data that is too short.
    #[error("controller accepts with {0} bytes of private data, of which there must be 32")]
    AcceptLen(u16),
    /// The controller accepts in another format.
    #[error("controller accepts in private data of RECFMT {0}, of which 0 is known")]
    Recfmt(u16),
    /// The controller takes no capsule.
    #[error("controller takes no capsule: its CRQSIZE is 0")]
    NoReceives,
    /// A response capsule has too few bytes.
    #[error("response capsule of {0} bytes, of which there must be 16")]
    ResponseLen(u8),
    /// No such command was sent, or it is answered already.
    #[error("response to a command that the controller does not have: CID {0:#06x}")]
    Cid(u16),
    /// A response invalidates what its command has not named.
    #[error(
        "bogus remote invalidation: the response to CID {cid:#06x} invalidates STag {stag:#010x}"
    )]
    Invalidation {
        /// The command.
        cid: u16,
        /// Not its STag.
        stag: u32,
    },
}

/// What the STS of a rejection means.
fn sts_words(sts: Option<u16>) -> &'static str {
    match sts {
        None => "it does not say why",
        Some(sts) => cm_status::name(sts).unwrap_or("for a reason that no standard names"),
    }
}

/// What happened.
pub type RdmaHostOp = HostOp<RdmaHostError>;

/// Memory of a command that the controller may name.
#[derive(Clone, Copy, Debug, Default)]
struct NamedMemory {
    /// The STag of its memory, if its data is not in the capsule.
    stag: Option<u32>,
}

/// The host's end of one NVMe/RDMA connection, which is one queue pair.
///
/// A tag lives from [`RdmaQpair::submit`] to [`HostOp::Completed`]; its memory must be
/// known to the driver before the next [`Machine::poll_transmit`].
/// [`Transmit::release`] is never called.
#[derive(Debug)]
pub struct RdmaQpair {
    qp: Qp,
    commands: HostCommands<NamedMemory>,
    /// HRQSIZE: responses that the controller may send.
    receives: u16,
    /// CRQSIZE: commands that the controller has at a time at most; 0 until it has accepted.
    commands_max: u16,
    /// The controller's mistake that ended the stream, where the stream knows none.
    mistake: Option<RdmaHostError>,
}

impl RdmaQpair {
    /// The machine of a connection made at `now`, for the queue that `connect` is to be
    /// sent on, of the controller `cntlid`, which is 0 for an Admin Queue. STags follow from
    /// `seed`, which is random.
    pub fn new(
        settings: RdmaHostSettings,
        connect: &ConnectCommand,
        cntlid: u16,
        seed: u64,
        now: Nanos,
    ) -> RdmaQpair {
        let entries = connect.sqsize.saturating_add(1);
        let request = CmRequest {
            qid: connect.qid.into(),
            hrqsize: entries.into(),
            hsqsize: connect.sqsize.into(),
            cntlid: cntlid.into(),
            ..CmRequest::new_zeroed()
        };
        let stream = QpSettings {
            crc: settings.crc,
            ird_max: settings.ird_max,
            ord_max: 0,
            ulpdu_max: settings.ulpdu_max,
            head_max: size_of::<Cqe>() as u16,
            send_max: size_of::<Cqe>() as u32,
            ..QpSettings::default()
        };
        RdmaQpair {
            qp: Qp::initiator(stream, seed, request.as_bytes(), now),
            commands: HostCommands::new(0),
            receives: entries,
            commands_max: 0,
            mistake: None,
        }
    }

    /// Connect succeeded: the queue has its size now.
    pub fn attach(&mut self, role: HostRole) {
        self.commands.attach(role);
    }

    /// Whether CRCs are in use, known from [`HostOp::Ready`] on.
    pub fn has_crc(&self) -> bool {
        self.qp.terms().crc
    }

    /// Commands in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.commands.in_flight()
    }

    /// How many commands [`RdmaQpair::submit`] would take now. The two of a fused
    /// pair must be submitted one behind the other: see that there are two.
    #[inline]
    pub fn room(&self) -> u16 {
        match self.qp.is_finished() {
            true => 0,
            false => {
                let in_flight = self.commands.in_flight() as u16;
                let room = self.commands_max.saturating_sub(in_flight);
                room.min(self.commands.room())
            }
        }
    }

    /// Takes a command, with data of less than 16 MiB; CID, PSDT and SGL are filled in here.
    /// `None`: the queue is full, or the connection is not ready.
    #[inline]
    pub fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<Tag> {
        if self.room() == 0 {
            return None;
        }
        let tag = self.commands.submit(sqe, data)?;
        let in_capsule_max = self.commands.role().in_capsule_max;
        let command = self.commands.of(tag);
        let (len, access) = match command.data {
            Data::None => (0, RemoteAccess::READ),
            Data::In(len) => (len, RemoteAccess::WRITE),
            Data::Out(len) => (len, RemoteAccess::READ),
        };
        let mut capsule_len = 0;
        command.sqe.sgl = match command.data {
            Data::None => KeyedSgl::new(KeyedSgl::PLAIN, 0, 0, 0).into(),
            Data::Out(_) if len <= in_capsule_max => {
                capsule_len = len;
                Sgl::new(Sgl::IN_CAPSULE, len)
            }
            Data::In(_) | Data::Out(_) => {
                assert!(len < 1 << 24, "a keyed descriptor has a length of 24 bits");
                let memory = RegisteredMemory {
                    tag,
                    offset: 0,
                    len,
                    to: 0,
                    access,
                };
                let stag = self.qp.register(memory);
                let stag = stag.expect("there are no more commands than regions");
                command.transfer.stag = Some(stag);
                KeyedSgl::new(KeyedSgl::INVALIDATE, stag, 0, len).into()
            }
        };
        self.qp.post(Work::Send {
            head: command.sqe.as_bytes(),
            body: DataPart {
                tag,
                offset: 0,
                len: capsule_len,
            },
            invalidate: None,
            is_solicited: false,
            release: Some(tag),
        });
        Some(tag)
    }

    /// The controller has made a mistake that its stream has not.
    #[cold]
    fn fail(&mut self, why: RdmaHostError) -> Option<RdmaHostOp> {
        self.mistake = Some(why);
        self.qp.terminate(match why {
            RdmaHostError::Invalidation { .. } => TerminateCode::CANNOT_INVALIDATE,
            _ => TerminateCode::UNSPECIFIED,
        });
        None
    }

    /// The controller has accepted.
    #[cold]
    fn accepted(&mut self) -> Option<RdmaHostOp> {
        let data = self.qp.private_data();
        let Ok((accept, _)) = CmAccept::ref_from_prefix(data) else {
            let len = data.len() as u16;
            return self.fail(RdmaHostError::AcceptLen(len));
        };
        let (recfmt, crqsize) = (accept.recfmt.get(), accept.crqsize.get());
        if recfmt != 0 {
            return self.fail(RdmaHostError::Recfmt(recfmt));
        }
        if crqsize == 0 {
            return self.fail(RdmaHostError::NoReceives);
        }
        self.commands_max = crqsize.min(COMMANDS_MAX);
        self.qp.post_receives(self.receives.into());
        Some(HostOp::Ready)
    }

    /// The controller has rejected the connection.
    #[cold]
    fn rejected(&mut self) -> RdmaHostOp {
        let reject = CmReject::ref_from_prefix(self.qp.private_data());
        let sts = reject.ok().map(|(reject, _)| reject.sts.get());
        HostOp::Fatal(RdmaHostError::Rejected(sts))
    }

    /// A response capsule.
    #[inline]
    fn responded(&mut self, received: ReceivedSend) -> Option<RdmaHostOp> {
        let Ok(cqe) = Cqe::read_from_bytes(self.qp.head()) else {
            let len = self.qp.head().len() as u8;
            return self.fail(RdmaHostError::ResponseLen(len));
        };
        let cid = cqe.cid.get();
        let Some(command) = self.commands.sent(cid) else {
            return self.fail(RdmaHostError::Cid(cid));
        };
        let (data, stag) = (command.data, command.transfer.stag);
        match (received.invalidated, stag) {
            (None, None) => {}
            (None, Some(stag)) => {
                self.qp.invalidate(stag);
            }
            (invalidated, stag) if invalidated == stag => {}
            (Some(stag), _) => return self.fail(RdmaHostError::Invalidation { cid, stag }),
        }
        let data_len = match (data, stag) {
            (Data::In(len), Some(stag)) => self.qp.written(stag).min(len.into()) as u32,
            _ => 0,
        };
        let sqhd = cqe.sqhd.get();
        self.commands.end(cid, sqhd);
        self.qp.post_receives(1);
        Some(HostOp::Completed {
            tag: cid,
            cqe: Completion {
                status: cqe.status(),
                result: cqe.result.get(),
                sqhd,
                data_len,
            },
        })
    }

    /// What comes of what the stream tells.
    #[inline]
    fn stream_op(&mut self, op: QpOp) -> Option<RdmaHostOp> {
        match op {
            QpOp::Received(received) => self.responded(received),
            QpOp::Established => self.accepted(),
            QpOp::Rejected => Some(self.rejected()),
            QpOp::Fatal(why) => Some(HostOp::Fatal(self.mistake.take().unwrap_or(why.into()))),
            QpOp::Requested => unreachable!("of a responder"),
            QpOp::Body => unreachable!("no more bytes than a response has are taken"),
            QpOp::ReadDone(_) => unreachable!("a host reads nothing"),
        }
    }
}

impl Machine for RdmaQpair {
    type Op = RdmaHostOp;

    fn tags_max(&self) -> usize {
        self.commands.tags_max()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        self.qp.recv_plan()
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        self.qp.on_direct(len);
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<RdmaHostOp>> {
        loop {
            let step = self.qp.poll_step(now, staged, at)?;
            if let Some(step) = step.filter_map(|op| self.stream_op(op)) {
                return Some(step);
            }
        }
    }

    fn has_step(&self) -> bool {
        self.qp.has_step()
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.qp.on_digest(tag, crc);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        self.qp.has_transmit()
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        let commands = &mut self.commands;
        self.qp.poll_transmit(&mut UpperBatch {
            out,
            payload: Transmit::payload,
            release: |tag| commands.set_sent(tag),
        });
    }

    fn is_finished(&self) -> bool {
        self.qp.is_finished()
    }

    fn deadline(&self) -> Option<Nanos> {
        self.qp.deadline()
    }

    fn on_deadline(&mut self, now: Nanos) {
        self.qp.on_deadline(now);
    }
}
