//! The controller's end of an NVMe/TCP queue pair.

mod slots;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::nvme::{
    ConnectCommand, Cqe, Direction, Disconnect, FABRICS, PropertyGet, PropertySet, Sgl, Sqe,
    Status, fctype,
};
use wire::nvme_tcp::{
    ADMIN_IN_CAPSULE_MAX, CapsuleCmd, CapsuleResp, CommonHeader, DGST_DATA, DGST_HEADER, Data, Fes,
    IcReq, IcResp, MAXH2CDATA_MIN, PDA_MAX, R2t, TermReq, flags, pdu_type,
};
use zerocopy::{FromZeros, IntoBytes};

use self::slots::{Slots, State};
use super::inbound::{Inbound, Walk};
use super::{Digests, FatalError, Malformed, field, frame, invalid, put_header, view};
use crate::command::{Command, Geometry, Io, Need, decode_io};

/// Bytes of Connect data (Base 2.0, section 6.3).
const CONNECT_DATA_LEN: u32 = 1024;
/// Commands that may wait for an answer before Connect has made a queue.
const ENTRIES_BEFORE_CONNECT: usize = 32;
/// Staging when small PDUs are expected.
const STAGE_LARGE: u32 = 256 * 1024;
/// Staging until Connect has succeeded: a stranger who sends half a header and
/// waits holds no more than this.
const STAGE_HANDSHAKE: u32 = 2048;
/// Staging when R2T data is expected: a capsule and the header of an H2CData
/// PDU, with their digests. What follows that header then lands directly.
const STAGE_HEADERS: u32 = 76 + 28;
/// From so many bytes still to come for R2Ts, a receive for each PDU costs less
/// than copying them.
const BULK_MIN: u64 = 16 * 1024;

/// What a queue pair may do; the same for all of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most in-capsule data on an I/O queue, in bytes: what Identify's IOCCSZ
    /// announces. The Admin Queue takes 8192.
    pub in_capsule_max: u32,
    /// MAXH2CDATA in bytes: at least 4096, a multiple of 4.
    pub maxh2cdata: u32,
    /// Most data of one command, in bytes: what MDTS announces.
    pub io_bytes_max: u32,
    /// Whether a host may have header digests.
    pub header_digest: bool,
    /// Whether a host may have data digests.
    pub data_digest: bool,
    /// Until Connect must have succeeded.
    pub handshake_timeout: Nanos,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            in_capsule_max: 8192,
            maxh2cdata: 1 << 20,
            io_bytes_max: 1 << 20,
            header_digest: true,
            data_digest: true,
            handshake_timeout: 10_000_000_000,
        }
    }
}

/// What Connect made of the queue pair.
#[derive(Clone, Debug)]
pub struct Role {
    /// Queue identifier: 0 is the Admin Queue.
    pub qid: u16,
    /// Entries of the submission queue (a count: SQSIZE + 1), at least 2.
    pub entries: u16,
    /// The host asked for no SQ flow control.
    pub flow_control_disabled: bool,
    /// What I/O commands may name.
    pub namespaces: Arc<[Geometry]>,
}

/// Work for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Data will arrive, or is arriving: provide `len` bytes of memory for
    /// `tag`, then call [`Qpair::prepared`], at once or later; or refuse with
    /// [`Qpair::complete`].
    Prepare {
        /// The command.
        tag: Tag,
        /// Bytes of data.
        len: u32,
        /// What it is.
        command: Command,
        /// All of the data is staged: its `Place`s and the `Execute` follow
        /// before any byte is received.
        staged: bool,
    },
    /// All of the command is here: execute it, then call [`Qpair::complete`].
    Execute {
        /// The command.
        tag: Tag,
        /// What it is.
        command: Command,
    },
    /// A fused Compare and Write, all data of both there: execute it in one
    /// step, then call [`Qpair::complete`] for both, the Compare first. A Write
    /// whose Compare failed is completed with
    /// [`Status::FUSED_FAILED`].
    ExecuteFused {
        /// The Compare; its data is what the media must hold.
        compare: Tag,
        /// The Write.
        write: Tag,
        /// [`IoKind::CompareAndWrite`](crate::command::IoKind), with the range
        /// of both and the Write's FUA.
        io: Io,
    },
    /// A command was refused, and is answered already: for the error log.
    Refused(Refused),
    /// The connection ends once everything was sent.
    Fatal(FatalError),
}

/// A command that never became an [`Op::Execute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Command Identifier.
    pub cid: u16,
    /// What it was answered with.
    pub status: Status,
    /// The namespace that it named.
    pub nsid: u32,
    /// Command dwords 10 and 11: the first logical block, of most commands.
    pub slba: u64,
    /// Where in the submission queue entry the error is, as the Error
    /// Information log has it (byte in bits 7:0, bit in 10:8).
    pub location: Option<u16>,
}

/// What became of a command that [`Qpair::abort`] was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortOutcome {
    /// No such command, or its answer is under way: it was not aborted.
    NotFound,
    /// The driver did not have it: it will be answered with Command Abort
    /// Requested, as soon as the host has sent the data that it was asked for.
    Aborted(Tag),
    /// The driver has it, preparing or executing: it stops and calls
    /// [`Qpair::complete`] with [`Status::ABORT_REQUESTED`].
    Executing(Tag),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Bytes from the start of the command's memory to send to the host, at
    /// most what its SGL holds; they go only with success.
    pub data_len: u32,
}

impl From<Status> for Done {
    fn from(status: Status) -> Done {
        Done {
            status,
            result: 0,
            data_len: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// ICReq must come.
    IcReq,
    /// Connect must come.
    Connect,
    /// Connect came and is being executed.
    Connecting,
    /// Commands come.
    Live,
    /// Nothing comes any more.
    Ended,
}

/// How the data of a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    None,
    In(u32),
    InCapsule(u32),
    R2t(u32),
}

/// The controller's end of one NVMe/TCP connection, which is one queue pair.
///
/// Every tag that an [`Op`] named ends with [`Transmit::release`]; a command
/// that the machine refuses itself never shows. While memory is awaited for
/// in-capsule data, [`Machine::recv_plan`] wants nothing (`stage_max` 0): keep
/// the staged bytes and walk them again after [`Qpair::prepared`].
///
/// A CID that is in flight already is refused with Command ID Conflict. More
/// commands in flight than the queue has entries end the connection: the host
/// overran the queue (Base 2.0, section 3.3.2.1.1).
#[derive(Debug)]
pub struct Qpair {
    settings: Settings,
    role: Role,
    phase: Phase,
    digests: Digests,
    /// Where the data of a C2HData PDU begins, which HPDA decides.
    c2h_pdo: u8,
    inbound: Inbound,
    slots: Slots,
    /// Tags with something to send, in order.
    ready: VecDeque<Tag>,
    /// Bytes that hosts were asked for by R2T and whose PDU has not begun.
    r2t_bytes: u64,
    sqhd: u16,
    /// An ICResp or C2HTermReq, before everything else.
    control: Vec<u8>,
    deadline: Option<Nanos>,
}

impl Qpair {
    /// The machine of a connection accepted at `now`.
    pub fn new(settings: Settings, now: Nanos) -> Qpair {
        assert!(settings.maxh2cdata >= MAXH2CDATA_MIN && settings.maxh2cdata.is_multiple_of(4));
        Qpair {
            settings,
            role: Role {
                qid: 0,
                entries: 2,
                flow_control_disabled: false,
                namespaces: Arc::new([]),
            },
            phase: Phase::IcReq,
            digests: Digests::default(),
            c2h_pdo: Data::HLEN,
            inbound: Inbound::new(),
            slots: Slots::new(),
            ready: VecDeque::new(),
            r2t_bytes: 0,
            sqhd: 0,
            control: Vec::new(),
            deadline: Some(now.saturating_add(settings.handshake_timeout)),
        }
    }

    /// Connect will succeed: call it before completing Connect.
    pub fn attach(&mut self, role: Role) {
        assert!(role.entries >= 2, "a queue has at least 2 entries");
        if self.phase == Phase::Connecting {
            self.role = role;
        }
    }

    /// Whether payload is covered by a digest.
    #[inline]
    pub fn data_digest(&self) -> bool {
        self.digests.data
    }

    /// Commands in flight, those included whose answer is not sent yet.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Command Identifier of a command in flight.
    pub fn cid(&self, tag: Tag) -> u16 {
        self.slots[tag].cid
    }

    /// The namespaces of the queue changed: commands from now on may name
    /// these. A namespace keeps its index while it exists.
    pub fn set_namespaces(&mut self, namespaces: Arc<[Geometry]>) {
        self.role.namespaces = namespaces;
    }

    /// Ends the command `cid`, if it is still in the machine's hands
    /// (Base 2.0, section 5.1).
    pub fn abort(&mut self, cid: u16) -> AbortOutcome {
        let Some(tag) = self.slots.find(cid) else {
            return AbortOutcome::NotFound;
        };
        match self.slots[tag].state {
            State::Preparing | State::Executing => AbortOutcome::Executing(tag),
            _ => AbortOutcome::NotFound,
        }
    }

    /// Memory for `tag` is there.
    #[inline]
    pub fn prepared(&mut self, tag: Tag) {
        if self.phase == Phase::Ended {
            return;
        }
        let slot = &mut self.slots[tag];
        assert_eq!(slot.state, State::Preparing, "prepared once");
        if self.inbound.is_blocked_on(tag) {
            slot.state = State::Receiving;
            self.inbound.unblock(tag);
        } else {
            slot.state = State::SendR2t;
            self.ready.push_back(tag);
        }
    }

    /// The command of `tag` ended: after [`Op::Execute`], or instead of
    /// [`Qpair::prepared`].
    #[inline]
    pub fn complete(&mut self, tag: Tag, done: Done) {
        if self.phase == Phase::Ended {
            return;
        }
        let slot = &mut self.slots[tag];
        match slot.state {
            State::Executing => {}
            State::Preparing if self.inbound.is_blocked_on(tag) => self.inbound.discard(),
            State::Preparing => {}
            state => panic!("completed a command that is {state:?}"),
        }
        let data_len = if done.status.is_success() {
            done.data_len
        } else {
            0
        };
        assert!(
            data_len == 0 || slot.is_read && data_len <= slot.len,
            "more than the SGL holds"
        );
        slot.state = State::SendResponse;
        slot.status = done.status;
        slot.result = done.result;
        slot.data_len = data_len;
        self.ready.push_back(tag);
        if self.phase == Phase::Connecting {
            // Nothing but Connect executes before there is a queue.
            self.connected(done.status);
        }
    }

    #[cold]
    fn connected(&mut self, status: Status) {
        if status.is_success() {
            self.phase = Phase::Live;
            self.deadline = None;
        } else {
            self.phase = Phase::Connect;
        }
    }

    /// Ends the connection because of the PDU at the start of `bytes`.
    #[cold]
    fn fail(&mut self, (fes, fei): Malformed, bytes: &[u8]) -> Op {
        let hlen = usize::from(bytes.get(2).copied().unwrap_or(0)).max(size_of::<CommonHeader>());
        let header = &bytes[..hlen.min(bytes.len())];
        let (term, data) = TermReq::new(pdu_type::C2H_TERM_REQ, fes, fei, header);
        self.end();
        self.control.extend_from_slice(term.as_bytes());
        self.control.extend_from_slice(data);
        Op::Fatal(FatalError::Sent {
            fes,
            fei,
            pdu_type: bytes[0],
        })
    }

    fn end(&mut self) {
        self.phase = Phase::Ended;
        self.inbound = Inbound::new();
        self.ready.clear();
        self.control.clear();
        self.deadline = None;
    }

    /// Takes the PDU header at the start of `bytes`: the bytes it used (0: more
    /// are needed). What comes of it goes to `step`, written in place because
    /// moving an operation costs as much as parsing it.
    #[inline]
    fn pdu(&mut self, bytes: &[u8], step: &mut Option<Step<Op>>) -> Result<usize, Malformed> {
        let Some(&kind) = bytes.first() else {
            return Ok(0);
        };
        if kind == pdu_type::CAPSULE_CMD && matches!(self.phase, Phase::Live) {
            return self.capsule_cmd(bytes, step);
        }
        match (kind, self.phase) {
            (pdu_type::H2C_DATA, Phase::Live | Phase::Connect | Phase::Connecting) => {
                self.h2c_data(bytes)
            }
            (pdu_type::CAPSULE_CMD, Phase::Connect | Phase::Connecting) => {
                self.capsule_cmd(bytes, step)
            }
            (pdu_type::IC_REQ, Phase::IcReq) => self.ic_req(bytes),
            (pdu_type::H2C_TERM_REQ, _) => self.h2c_term_req(bytes, step),
            (pdu_type::IC_REQ | pdu_type::CAPSULE_CMD | pdu_type::H2C_DATA, _) => {
                Err((Fes::PduSequenceError, 0))
            }
            _ => Err(invalid(field::PDU_TYPE)),
        }
    }

    /// ICReq (section 3.6.2.2): answered with what both ends can do.
    #[cold]
    fn ic_req(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let Some(found) = frame(bytes, IcReq::HLEN, false, Digests::default())? else {
            return Ok(0);
        };
        let request: &IcReq = view(bytes);
        if request.pfv.get() != 0 {
            return Err((Fes::UnsupportedParameter, 8));
        }
        if request.hpda > PDA_MAX {
            return Err((Fes::UnsupportedParameter, 10));
        }
        let header = self.settings.header_digest && request.dgst & DGST_HEADER != 0;
        let data = self.settings.data_digest && request.dgst & DGST_DATA != 0;
        self.digests = Digests { header, data };
        let alignment = (request.hpda + 1) * 4;
        self.c2h_pdo = (Data::HLEN + if header { 4 } else { 0 }).next_multiple_of(alignment);
        let response = IcResp {
            ch: CommonHeader::new(pdu_type::IC_RESP, IcResp::HLEN),
            dgst: if header { DGST_HEADER } else { 0 } | if data { DGST_DATA } else { 0 },
            maxh2cdata: self.settings.maxh2cdata.into(),
            ..IcResp::new_zeroed()
        };
        self.control.extend_from_slice(response.as_bytes());
        self.phase = Phase::Connect;
        Ok(found.used)
    }

    /// H2CTermReq (section 3.6.2.4): the connection ends without an answer.
    #[cold]
    fn h2c_term_req(
        &mut self,
        bytes: &[u8],
        step: &mut Option<Step<Op>>,
    ) -> Result<usize, Malformed> {
        if bytes.len() < usize::from(TermReq::HLEN) {
            return Ok(0);
        }
        let term: &TermReq = view(bytes);
        let (fes, fei) = (term.fes.get(), term.fei.get());
        self.end();
        *step = Some(Step::Op(Op::Fatal(FatalError::Received { fes, fei })));
        Ok(bytes.len())
    }

    /// CapsuleCmd (section 3.6.2.6).
    #[inline]
    fn capsule_cmd(
        &mut self,
        bytes: &[u8],
        step: &mut Option<Step<Op>>,
    ) -> Result<usize, Malformed> {
        let Some(found) = frame(bytes, CapsuleCmd::HLEN, true, self.digests)? else {
            return Ok(0);
        };
        let is_live = self.phase == Phase::Live;
        let takes_io = is_live && self.role.qid != 0;
        let capsule_max = if takes_io {
            self.settings.in_capsule_max
        } else {
            ADMIN_IN_CAPSULE_MAX
        };
        if found.data_len > capsule_max {
            return Err((Fes::LimitExceeded, 0));
        }
        let sqe = &view::<CapsuleCmd>(bytes).sqe;
        let entries = if is_live {
            usize::from(self.role.entries)
        } else {
            ENTRIES_BEFORE_CONNECT
        };
        let Some((tag, unique)) = self.slots.take(sqe.cid.get(), entries) else {
            return Err((Fes::PduSequenceError, 0));
        };
        let started = if !unique {
            Err(Status::CID_CONFLICT.dnr())
        } else if takes_io && sqe.opcode != FABRICS {
            decode_io(sqe, &self.role.namespaces, self.settings.io_bytes_max).and_then(
                |(io, need)| {
                    let transfer = transfer(&sqe.sgl, need, found.data_len)?;
                    let staged = matches!(transfer, Transfer::InCapsule(_))
                        && found.is_whole(bytes, self.digests);
                    *step = Some(Step::Op(self.start(tag, Command::Io(io), transfer, staged)));
                    Ok(())
                },
            )
        } else {
            self.start_other(tag, sqe, found.data_len, step)
        };
        if let Err(status) = started {
            if found.data_len > 0 {
                self.inbound.skip(found.data_len, self.digests.data);
            }
            self.answer(tag, status);
            if !status.is_success() {
                *step = Some(Step::Op(Op::Refused(Refused {
                    cid: sqe.cid.get(),
                    status,
                    nsid: sqe.nsid.get(),
                    slba: sqe.slba(),
                    location: error_location(status),
                })));
            }
        }
        Ok(found.used)
    }

    /// Everything but I/O commands.
    #[cold]
    fn start_other(
        &mut self,
        tag: Tag,
        sqe: &Sqe,
        capsule_len: u32,
        step: &mut Option<Step<Op>>,
    ) -> Result<(), Status> {
        let (command, need) = if sqe.opcode == FABRICS {
            self.decode_fabrics(sqe)?
        } else if self.phase != Phase::Live {
            return Err(Status::COMMAND_SEQUENCE.dnr());
        } else {
            self.decode_admin(sqe)?
        };
        let transfer = transfer(&sqe.sgl, need, capsule_len)?;
        if let Command::Connect(_) = command {
            self.phase = Phase::Connecting;
        }
        self.slots[tag].is_disconnect = matches!(command, Command::Disconnect);
        *step = Some(Step::Op(self.start(tag, command, transfer, false)));
        Ok(())
    }

    /// A command that passed: what the driver does first.
    #[inline(always)]
    fn start(&mut self, tag: Tag, command: Command, transfer: Transfer, staged: bool) -> Op {
        let slot = &mut self.slots[tag];
        slot.is_named = true;
        let len = match transfer {
            Transfer::None => {
                slot.state = State::Executing;
                return Op::Execute { tag, command };
            }
            Transfer::In(len) => {
                slot.state = State::Executing;
                slot.is_read = true;
                slot.len = len;
                return Op::Execute { tag, command };
            }
            Transfer::InCapsule(len) => {
                slot.received = len;
                self.inbound.begin_blocked(tag, len, self.digests.data);
                len
            }
            Transfer::R2t(len) => len,
        };
        slot.state = State::Preparing;
        slot.len = len;
        self.slots.set_command(tag, command);
        Op::Prepare {
            tag,
            len,
            command,
            staged,
        }
    }

    /// Ends a command that the driver does not, or no longer, execute.
    fn answer(&mut self, tag: Tag, status: Status) {
        let slot = &mut self.slots[tag];
        slot.state = State::SendResponse;
        slot.status = status;
        self.ready.push_back(tag);
    }

    /// H2CData (section 3.6.2.8).
    #[inline]
    fn h2c_data(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let Some(found) = frame(bytes, Data::HLEN, true, self.digests)? else {
            return Ok(0);
        };
        let header: &Data = view(bytes);
        let (tag, len) = (header.ttag.get(), header.datal.get());
        let Some(slot) = self
            .slots
            .get_mut(tag)
            .filter(|slot| slot.state == State::Receiving)
        else {
            return Err(invalid(field::TTAG));
        };
        if slot.cid != header.cccid.get() {
            return Err(invalid(field::CCCID));
        }
        if len == 0 || len != found.data_len {
            return Err(invalid(field::DATAL));
        }
        if len > self.settings.maxh2cdata {
            return Err((Fes::LimitExceeded, 0));
        }
        // Data comes in order (section 3.3.2).
        if header.datao.get() != slot.received || len > slot.len - slot.received {
            return Err((Fes::DataTransferOutOfRange, 0));
        }
        let last = header.ch.flags & flags::LAST_PDU != 0;
        if last != (slot.received + len == slot.len) {
            return Err(invalid(field::FLAGS));
        }
        self.inbound
            .begin(tag, slot.received, len, self.digests.data);
        slot.received += len;
        self.r2t_bytes -= u64::from(len);
        Ok(found.used)
    }

    /// The data of one PDU is complete; whether the command is.
    #[inline]
    fn received(&mut self, tag: Tag, intact: bool) -> bool {
        let slot = &mut self.slots[tag];
        slot.is_damaged |= !intact;
        if slot.received < slot.len {
            return false;
        }
        if slot.is_damaged {
            // Costs only the command, which the host may try again.
            if self.phase == Phase::Connecting {
                self.connected(Status::TRANSIENT_TRANSPORT);
            }
            self.answer(tag, Status::TRANSIENT_TRANSPORT);
            return false;
        }
        slot.state = State::Executing;
        true
    }

    #[cold]
    fn decode_fabrics(&self, sqe: &Sqe) -> Result<(Command, Need), Status> {
        let kind = sqe.fctype();
        if (kind == fctype::CONNECT) != (self.phase == Phase::Connect) {
            return Err(Status::COMMAND_SEQUENCE.dnr());
        }
        let admin = self.role.qid == 0;
        match kind {
            fctype::CONNECT => Ok((
                Command::Connect(ConnectCommand::decode(sqe)),
                Need::Out {
                    min: CONNECT_DATA_LEN,
                    max: CONNECT_DATA_LEN,
                },
            )),
            fctype::PROPERTY_GET if admin => Ok((
                Command::PropertyGet(PropertyGet::decode(sqe)?),
                Need::Nothing,
            )),
            fctype::PROPERTY_SET if admin => Ok((
                Command::PropertySet(PropertySet::decode(sqe)?),
                Need::Nothing,
            )),
            fctype::DISCONNECT if admin => Err(Status::INVALID_QUEUE_TYPE.dnr()),
            fctype::DISCONNECT if Disconnect::decode(sqe).recfmt != 0 => {
                Err(Status::CONNECT_FORMAT.dnr())
            }
            fctype::DISCONNECT => Ok((Command::Disconnect, Need::Nothing)),
            _ => Err(Status::INVALID_OPCODE.dnr()),
        }
    }

    /// Admin commands: the opcode says which way the data goes, the SGL how
    /// much; what it means is the controller's to say.
    #[cold]
    fn decode_admin(&self, sqe: &Sqe) -> Result<(Command, Need), Status> {
        let len = sqe.sgl.length.get();
        if sqe.flags & (Sqe::FUSE_MASK | Sqe::PSDT_MASK) != Sqe::PSDT_SGL {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let need = match sqe.direction() {
            Direction::Both => return Err(Status::INVALID_OPCODE.dnr()),
            Direction::None => Need::Nothing,
            _ if len == 0 => Need::Nothing,
            _ if len > self.settings.io_bytes_max => return Err(Status::INVALID_FIELD.dnr()),
            Direction::HostToController => Need::Out { min: len, max: len },
            Direction::ControllerToHost => Need::In(len),
        };
        Ok((Command::Admin(*sqe), need))
    }

    /// The answer to `tag`: its data, and a response unless the data says all.
    /// `false`: no room for all of it.
    #[inline]
    fn send_response(&mut self, tag: Tag, out: &mut impl Transmit) -> bool {
        let slot = &mut self.slots[tag];
        if slot.data_len > 0 {
            // SUCCESS: no response capsule follows (section 3.3.2). Without
            // one there is no SQHD, so flow control must be off.
            let alone = self.role.flow_control_disabled
                && slot.result == 0
                && slot.status == Status::SUCCESS;
            put_c2h_data(
                out,
                slot.cid,
                tag,
                slot.data_len,
                self.c2h_pdo,
                self.digests,
                alone,
            );
            slot.data_len = 0;
            if alone {
                return true;
            }
            if !out.has_room() {
                return false;
            }
        }
        let sqhd = if self.role.flow_control_disabled {
            0xffff
        } else {
            // Advanced by answers, not by fetches: a host that follows SQHD can
            // then never have more in flight than the queue has entries.
            self.sqhd = (self.sqhd + 1) % self.role.entries;
            self.sqhd
        };
        let mut ch = CommonHeader::new(pdu_type::CAPSULE_RESP, CapsuleResp::HLEN);
        if self.digests.header {
            ch.flags = flags::HDGST;
            ch.plen += 4;
        }
        let cqe = Cqe::new(slot.cid, slot.status, slot.result, sqhd);
        put_header(out, CapsuleResp { ch, cqe }.as_bytes(), self.digests, 0);
        if slot.is_disconnect && slot.status.is_success() {
            self.end();
        }
        true
    }
}

/// Parameter Error Location of a refusal whose status names a field (Base 2.0,
/// section 5.16.1.2).
#[cold]
fn error_location(status: Status) -> Option<u16> {
    const LOCATIONS: [(Status, u16); 9] = [
        (Status::INVALID_OPCODE, 0),
        (Status::CID_CONFLICT, 2),
        (Status::FUSED_MISSING, 1),
        (Status::INVALID_NAMESPACE, 4),
        (Status::SGL_OFFSET_INVALID, 24),
        (Status::DATA_SGL_LENGTH_INVALID, 32),
        (Status::SGL_TYPE_INVALID, 39),
        (Status::LBA_OUT_OF_RANGE, 40),
        (Status::COMMAND_SIZE_LIMIT, 48),
    ];
    let found = LOCATIONS.iter().find(|(code, _)| *code == status.code());
    found.map(|(_, location)| *location)
}

/// Fits the data that a command needs to what its SGL and capsule offer
/// (Base 2.0, section 4.1.2; TCP Transport 1.0, section 3.3.1).
#[inline]
fn transfer(sgl: &Sgl, need: Need, capsule_len: u32) -> Result<Transfer, Status> {
    let (min, max) = match need {
        Need::Nothing if capsule_len == 0 => return Ok(Transfer::None),
        Need::Nothing => return Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
        Need::In(len) => (len, len),
        Need::Out { min, max } => (min, max),
    };
    let len = sgl.length.get();
    let transfer = match (sgl.id, need) {
        (Sgl::TRANSPORT, Need::In(_)) => Transfer::In(len),
        (Sgl::TRANSPORT, _) => Transfer::R2t(len),
        (Sgl::IN_CAPSULE, Need::Out { .. }) => Transfer::InCapsule(len),
        _ => return Err(Status::SGL_TYPE_INVALID.dnr()),
    };
    let in_capsule = sgl.id == Sgl::IN_CAPSULE;
    if in_capsule && sgl.address.get() != 0 {
        return Err(Status::SGL_OFFSET_INVALID.dnr());
    }
    if len < min || len > max || capsule_len != if in_capsule { len } else { 0 } {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    Ok(transfer)
}

/// All data of a command in one C2HData PDU (section 3.6.2.9).
#[inline]
fn put_c2h_data(
    out: &mut impl Transmit,
    cid: u16,
    tag: Tag,
    len: u32,
    pdo: u8,
    digests: Digests,
    success: bool,
) {
    let mut ch = CommonHeader::new(pdu_type::C2H_DATA, Data::HLEN);
    ch.flags = flags::LAST_PDU
        | if success { flags::SUCCESS } else { 0 }
        | if digests.header { flags::HDGST } else { 0 }
        | if digests.data { flags::DDGST } else { 0 };
    ch.pdo = pdo;
    ch.plen = (u32::from(pdo) + len + if digests.data { 4 } else { 0 }).into();
    let header = Data {
        ch,
        cccid: cid.into(),
        ttag: 0.into(),
        datao: 0.into(),
        datal: len.into(),
        reserved20: 0.into(),
    };
    put_header(out, header.as_bytes(), digests, usize::from(pdo));
    out.payload(tag, 0, len, digests.data);
}

/// Asks for all data of a command at once (section 3.6.2.10).
fn put_r2t(out: &mut impl Transmit, cid: u16, tag: Tag, len: u32, digests: Digests) {
    let mut ch = CommonHeader::new(pdu_type::R2T, R2t::HLEN);
    if digests.header {
        ch.flags = flags::HDGST;
        ch.plen += 4;
    }
    let header = R2t {
        ch,
        cccid: cid.into(),
        ttag: tag.into(),
        r2to: 0.into(),
        r2tl: len.into(),
        reserved20: 0.into(),
    };
    put_header(out, header.as_bytes(), digests, 0);
}

impl Machine for Qpair {
    type Op = Op;

    fn tags_max(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        if self.inbound.is_blocked() {
            return RecvPlan {
                direct: None,
                stage_max: 0,
            };
        }
        let stage_max = if self.phase != Phase::Live {
            STAGE_HANDSHAKE
        } else if self.r2t_bytes >= BULK_MIN {
            STAGE_HEADERS
        } else {
            STAGE_LARGE
        };
        RecvPlan {
            direct: self.inbound.direct(),
            stage_max,
        }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        self.inbound.on_direct(len);
    }

    #[inline]
    fn poll_step(&mut self, staged: &[u8], at: &mut usize) -> Option<Step<Op>> {
        let mut step = None;
        while self.phase != Phase::Ended {
            match self.inbound.walk(staged, at) {
                Walk::Header => {
                    let bytes = &staged[*at..];
                    match self.pdu(bytes, &mut step) {
                        Ok(0) => return None,
                        Ok(used) => *at += used,
                        Err(malformed) => {
                            *at = staged.len();
                            step = Some(Step::Op(self.fail(malformed, bytes)));
                        }
                    }
                    if step.is_some() {
                        return step;
                    }
                }
                Walk::More => return None,
                Walk::Step(step) => return Some(step),
                Walk::Done { tag, intact } => {
                    if self.received(tag, intact) {
                        let command = self.slots.command(tag);
                        return Some(Step::Op(Op::Execute { tag, command }));
                    }
                }
            }
        }
        *at = staged.len();
        None
    }

    fn on_digest(&mut self, tag: Tag, matches: bool) {
        self.inbound.on_digest(tag, matches);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.control.is_empty()
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if !self.control.is_empty() && out.has_room() {
            out.header(&self.control);
            self.control = Vec::new();
        }
        while let Some(&tag) = self.ready.front() {
            if !out.has_room() {
                return;
            }
            let slot = &mut self.slots[tag];
            if slot.state == State::SendR2t {
                slot.state = State::Receiving;
                self.r2t_bytes += u64::from(slot.len);
                put_r2t(out, slot.cid, tag, slot.len, self.digests);
                self.ready.pop_front();
                continue;
            }
            if !self.send_response(tag, out) {
                return;
            }
            self.ready.pop_front();
            if self.slots.free(tag) {
                out.release(tag);
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.phase == Phase::Ended
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_deadline(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end();
        }
    }
}
