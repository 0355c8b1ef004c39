//! The host's end of an NVMe/TCP queue pair.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use machine::inbound::{Inbound, Walk};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::nvme::{FABRICS, Sgl, Sqe, Status};
use wire::nvme_tcp::{
    ADMIN_IN_CAPSULE_MAX, CapsuleCmd, CapsuleResp, CommonHeader, DGST_DATA, DGST_HEADER,
    Data as DataHeader, Fes, IcReq, IcResp, MAXH2CDATA_MIN, PDA_MAX, R2t, flags, pdu_type,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::host::{self, Completion, Data, HostCommand, HostCommands, HostRole};

use super::{
    FatalError, Framing, Malformed, alignment, field, frame, invalid, put_header, term_req,
    terminate, view,
};

/// Staging when small PDUs are expected.
const STAGE_LARGE: u32 = 256 * 1024;
/// Staging when large reads are expected: a response capsule and the header of
/// a C2HData PDU, with their digests. What follows lands directly.
const STAGE_HEADERS: u32 = 28 + 28;
/// Reads that are on average this large are worth a receive each.
const LARGE_READ: u64 = 32 * 1024;

/// What the host asks the controller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Header digests wanted; the controller may answer without.
    pub header_digest: bool,
    /// Data digests wanted; the controller may answer without.
    pub data_digest: bool,
    /// HPDA: the data of PDUs from the controller begins at a multiple of
    /// `(hpda + 1) * 4` bytes; 0 to 31.
    pub hpda: u8,
    /// MAXR2T: R2Ts outstanding for one command, 0's based.
    pub maxr2t: u32,
    /// Capsules carry the first part of data that is too large for them. No
    /// standard says that a controller must take that; weft's does.
    pub part_in_capsule: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            header_digest: false,
            data_digest: false,
            hpda: 0,
            maxr2t: 3,
            part_in_capsule: false,
        }
    }
}

/// What happened.
pub type Op = host::HostOp<FatalError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QpairPhase {
    IcResp,
    Live,
    Ended,
}

/// What is to be sent, in the order in which it became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToSend {
    Capsule(Tag),
    /// Data that an R2T asked for.
    Data {
        tag: Tag,
        ttag: u16,
        offset: u32,
        left: u32,
    },
}

impl ToSend {
    fn tag(&self) -> Tag {
        match self {
            ToSend::Capsule(tag) | ToSend::Data { tag, .. } => *tag,
        }
    }
}

/// How far the data of a command has come.
#[derive(Clone, Copy, Debug, Default)]
struct DataProgress {
    /// A data digest did not match.
    is_damaged: bool,
    /// The data now arriving ends the command.
    is_success: bool,
    /// Bytes whose PDU has begun (in), or that the capsule and R2Ts covered (out).
    moved: u32,
    /// Bytes in the capsule.
    capsule: u32,
    /// R2Ts whose data is not all sent.
    r2ts: u32,
}

/// Bytes that are still to come.
#[inline]
fn expects(command: &HostCommand<DataProgress>) -> u32 {
    match command.data {
        Data::In(len) => len - command.transfer.moved,
        _ => 0,
    }
}

/// The host's end of one NVMe/TCP connection, which is one queue pair.
///
/// A tag lives from [`Qpair::submit`] to [`Op::Completed`]; its memory must be
/// known to the driver before the next [`Machine::poll_transmit`].
/// [`Transmit::release`] is never called.
#[derive(Debug)]
pub struct Qpair {
    commands: HostCommands<DataProgress>,
    phase: QpairPhase,
    /// Of the PDUs that come.
    framing: Framing,
    settings: Settings,
    maxh2cdata: u32,
    /// Where the data of a capsule and of an H2CData PDU begins: CPDA decides.
    capsule_pdo: u8,
    data_pdo: u8,
    inbound: Inbound,
    ready: VecDeque<ToSend>,
    /// Reads whose data is still to come, and how much.
    reads: u64,
    read_bytes: u64,
    control: Vec<u8>,
}

impl Qpair {
    /// The machine of a fresh connection; an ICReq is ready to be sent.
    pub fn new(settings: Settings) -> Qpair {
        assert!(settings.hpda <= PDA_MAX);
        let request = IcReq {
            ch: CommonHeader::new(pdu_type::IC_REQ, IcReq::HLEN),
            hpda: settings.hpda,
            dgst: wanted(settings).dgst(),
            maxr2t: settings.maxr2t.into(),
            ..IcReq::new_zeroed()
        };
        Qpair {
            commands: HostCommands::new(ADMIN_IN_CAPSULE_MAX),
            phase: QpairPhase::IcResp,
            framing: Framing::default(),
            settings,
            maxh2cdata: MAXH2CDATA_MIN,
            capsule_pdo: CapsuleCmd::HLEN,
            data_pdo: DataHeader::HLEN,
            inbound: Inbound::default(),
            ready: VecDeque::new(),
            reads: 0,
            read_bytes: 0,
            control: request.as_bytes().to_vec(),
        }
    }

    /// Connect succeeded: the queue has its size now.
    pub fn attach(&mut self, role: HostRole) {
        self.commands.attach(role);
    }

    /// Header and data digests in use, known from [`Op::Ready`] on.
    pub fn digests(&self) -> (bool, bool) {
        (self.framing.header, self.framing.data)
    }

    /// Commands in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.commands.in_flight()
    }

    /// How many commands [`Qpair::submit`] would take now. The two of a fused
    /// pair must be submitted one behind the other: see that there are two.
    #[inline]
    pub fn room(&self) -> u16 {
        match self.phase {
            QpairPhase::Live => self.commands.room(),
            QpairPhase::IcResp | QpairPhase::Ended => 0,
        }
    }

    /// Takes a command; CID, PSDT and SGL are filled in here. `None`: the queue
    /// is full, or the connection is not ready.
    #[inline]
    pub fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<Tag> {
        if self.phase != QpairPhase::Live {
            return None;
        }
        let tag = self.commands.submit(sqe, data)?;
        // Fabrics commands carry their data in the capsule on every queue
        // (section 3.3.1).
        let in_capsule_max = match sqe.opcode {
            FABRICS => ADMIN_IN_CAPSULE_MAX,
            _ => self.commands.role().in_capsule_max,
        };
        let command = self.commands.of(tag);
        let transfer = &mut command.transfer;
        command.sqe.sgl = match command.data {
            Data::None => Sgl::new(Sgl::TRANSPORT, 0),
            Data::In(len) => {
                self.reads += 1;
                self.read_bytes += u64::from(len);
                Sgl::new(Sgl::TRANSPORT, len)
            }
            Data::Out(len) if len <= in_capsule_max => {
                transfer.capsule = len;
                Sgl::new(Sgl::IN_CAPSULE, len)
            }
            Data::Out(len) => {
                if self.settings.part_in_capsule {
                    transfer.capsule = in_capsule_max & !3;
                }
                Sgl::new(Sgl::TRANSPORT, len)
            }
        };
        transfer.moved = transfer.capsule;
        self.ready.push_back(ToSend::Capsule(tag));
        Some(tag)
    }

    #[cold]
    fn fail(&mut self, why: Malformed, bytes: &[u8]) -> Op {
        self.end();
        Op::Fatal(terminate(
            pdu_type::H2C_TERM_REQ,
            why,
            bytes,
            &mut self.control,
        ))
    }

    fn end(&mut self) {
        self.phase = QpairPhase::Ended;
        self.inbound.discard();
        self.ready.clear();
        self.control.clear();
    }

    #[inline]
    fn pdu(&mut self, bytes: &[u8]) -> Result<(usize, Option<Op>), Malformed> {
        let Some(&kind) = bytes.first() else {
            return Ok((0, None));
        };
        match (kind, self.phase) {
            (pdu_type::C2H_DATA, QpairPhase::Live) => self.c2h_data(bytes),
            (pdu_type::CAPSULE_RESP, QpairPhase::Live) => self.capsule_resp(bytes),
            (pdu_type::R2T, QpairPhase::Live) => self.r2t(bytes),
            (pdu_type::IC_RESP, QpairPhase::IcResp) => self.ic_resp(bytes),
            (pdu_type::C2H_TERM_REQ, _) => Ok(self.c2h_term_req(bytes)),
            (
                pdu_type::C2H_DATA | pdu_type::CAPSULE_RESP | pdu_type::R2T | pdu_type::IC_RESP,
                _,
            ) => Err((Fes::PduSequenceError, 0)),
            _ => Err(invalid(field::PDU_TYPE)),
        }
    }

    /// ICResp (section 3.6.2.3).
    #[cold]
    fn ic_resp(&mut self, bytes: &[u8]) -> Result<(usize, Option<Op>), Malformed> {
        let Some(found) = frame(bytes, IcResp::HLEN, false, Framing::default())? else {
            return Ok((0, None));
        };
        let response: &IcResp = view(bytes);
        let unsupported = |field| Err((Fes::UnsupportedParameter, field));
        if response.pfv.get() != 0 {
            return unsupported(field::PFV);
        }
        if response.cpda > PDA_MAX {
            return unsupported(field::PDA);
        }
        if response.dgst & !wanted(self.settings).dgst() != 0 {
            return unsupported(field::DGST);
        }
        if response.maxh2cdata.get() < MAXH2CDATA_MIN {
            return unsupported(field::MAXH2CDATA);
        }
        self.framing = Framing {
            header: response.dgst & DGST_HEADER != 0,
            data: response.dgst & DGST_DATA != 0,
            alignment: alignment(self.settings.hpda),
        };
        self.maxh2cdata = response.maxh2cdata.get() & !3;
        self.capsule_pdo = self.framing.pdo(CapsuleCmd::HLEN, response.cpda);
        self.data_pdo = self.framing.pdo(DataHeader::HLEN, response.cpda);
        self.phase = QpairPhase::Live;
        Ok((found.used, Some(Op::Ready)))
    }

    /// C2HTermReq (section 3.6.2.5): the connection ends without an answer.
    #[cold]
    fn c2h_term_req(&mut self, bytes: &[u8]) -> (usize, Option<Op>) {
        let Some(error) = term_req(bytes, false) else {
            return (0, None);
        };
        self.end();
        (bytes.len(), Some(Op::Fatal(error)))
    }

    /// C2HData (section 3.6.2.9).
    #[inline]
    fn c2h_data(&mut self, bytes: &[u8]) -> Result<(usize, Option<Op>), Malformed> {
        let Some(found) = frame(bytes, DataHeader::HLEN, true, self.framing)? else {
            return Ok((0, None));
        };
        let header: &DataHeader = view(bytes);
        let (tag, len) = (header.cccid.get(), header.datal.get());
        let command = self.commands.sent(tag);
        let Some(command) = command.filter(|command| matches!(command.data, Data::In(_))) else {
            return Err(invalid(field::CCCID));
        };
        if len == 0 || len != found.data_len {
            return Err(invalid(field::DATAL));
        }
        // Data comes in order (section 3.3.2).
        let (offset, moved) = (header.datao.get(), command.transfer.moved);
        let expected = moved + expects(command);
        if u64::from(offset) + u64::from(len) > u64::from(expected) {
            return Err((Fes::DataTransferOutOfRange, 0));
        }
        if offset != moved {
            return Err((Fes::PduSequenceError, 0));
        }
        command.transfer.is_success = header.ch.flags & flags::SUCCESS != 0;
        if command.transfer.is_success && header.ch.flags & flags::LAST_PDU == 0 {
            return Err(invalid(field::FLAGS));
        }
        self.inbound
            .begin(tag, moved, len, u32::MAX, self.framing.tail());
        command.transfer.moved += len;
        self.reads -= u64::from(expects(command) == 0);
        self.read_bytes -= u64::from(len);
        Ok((found.used, None))
    }

    /// R2T (section 3.6.2.10): one after the other through the data of a command,
    /// as many outstanding as ICReq allowed.
    fn r2t(&mut self, bytes: &[u8]) -> Result<(usize, Option<Op>), Malformed> {
        let Some(found) = frame(bytes, R2t::HLEN, false, self.framing)? else {
            return Ok((0, None));
        };
        let header: &R2t = view(bytes);
        let (tag, len) = (header.cccid.get(), header.r2tl.get());
        let Some(command) = self.commands.sent(tag) else {
            return Err(invalid(field::CCCID));
        };
        let Data::Out(total) = command.data else {
            return Err(invalid(field::CCCID));
        };
        let transfer = &mut command.transfer;
        if len == 0 {
            return Err(invalid(field::R2TL));
        }
        if transfer.r2ts > self.settings.maxr2t {
            return Err((Fes::LimitExceeded, 0));
        }
        let offset = header.r2to.get();
        if u64::from(offset) + u64::from(len) > u64::from(total) {
            return Err((Fes::DataTransferOutOfRange, 0));
        }
        if offset != transfer.moved {
            return Err((Fes::PduSequenceError, 0));
        }
        transfer.moved += len;
        transfer.r2ts += 1;
        self.ready.push_back(ToSend::Data {
            tag,
            ttag: header.ttag.get(),
            offset,
            left: len,
        });
        Ok((found.used, None))
    }

    /// CapsuleResp (section 3.6.2.7).
    #[inline]
    fn capsule_resp(&mut self, bytes: &[u8]) -> Result<(usize, Option<Op>), Malformed> {
        let Some(found) = frame(bytes, CapsuleResp::HLEN, false, self.framing)? else {
            return Ok((0, None));
        };
        let cqe = &view::<CapsuleResp>(bytes).cqe;
        let tag = cqe.cid.get();
        let Some(command) = self.commands.sent(tag) else {
            return Err(invalid(CQE_CID));
        };
        if command.transfer.r2ts > 0 {
            // The controller gave up before all data went out.
            self.ready.retain(|ready| ready.tag() != tag);
        }
        let op = self.finish(tag, cqe.status(), cqe.result.get(), cqe.sqhd.get());
        Ok((found.used, Some(op)))
    }

    /// Ends a command.
    #[inline]
    fn finish(&mut self, tag: Tag, status: Status, result: u64, sqhd: u16) -> Op {
        let command = self.commands.of(tag);
        let missing = expects(command);
        if missing > 0 {
            self.reads -= 1;
            self.read_bytes -= u64::from(missing);
        }
        let transfer = command.transfer;
        let status = match transfer.is_damaged && status.is_success() {
            true => Status::TRANSIENT_TRANSPORT,
            false => status,
        };
        let data_len = match command.data {
            Data::In(_) => transfer.moved,
            _ => 0,
        };
        self.commands.end(tag, sqhd);
        Op::Completed {
            tag,
            cqe: Completion {
                status,
                result,
                sqhd,
                data_len,
            },
        }
    }

    /// The data of one PDU is complete; without a response capsule there is no
    /// SQHD, so flow control is off (section 3.3.2).
    #[inline]
    fn received(&mut self, tag: Tag, intact: bool) -> Option<Op> {
        let transfer = &mut self.commands.of(tag).transfer;
        transfer.is_damaged |= !intact;
        transfer
            .is_success
            .then(|| self.finish(tag, Status::SUCCESS, 0, 0xffff))
    }

    #[inline]
    fn put_capsule(&mut self, tag: Tag, out: &mut impl Transmit) {
        self.commands.set_sent(tag);
        let command = self.commands.of(tag);
        let mut ch = CommonHeader::new(pdu_type::CAPSULE_CMD, CapsuleCmd::HLEN);
        let (sqe, in_capsule) = (command.sqe, command.transfer.capsule);
        let pdo = set_lengths(&mut ch, self.framing, self.capsule_pdo, in_capsule);
        put_header(out, CapsuleCmd { ch, sqe }.as_bytes(), self.framing, pdo);
        if in_capsule > 0 {
            out.payload(tag, 0, in_capsule, self.framing.tail());
        }
    }

    /// One H2CData PDU (section 3.6.2.8) of what the R2T in front asked for.
    fn put_h2c_data(&mut self, out: &mut impl Transmit) {
        let Some(ToSend::Data {
            tag,
            ttag,
            offset,
            left,
        }) = self.ready.front_mut()
        else {
            unreachable!("the caller saw it");
        };
        let (tag, ttag, start) = (*tag, *ttag, *offset);
        let len = (*left).min(self.maxh2cdata);
        *offset += len;
        *left -= len;
        let is_last = *left == 0;
        if is_last {
            self.ready.pop_front();
            self.commands.of(tag).transfer.r2ts -= 1;
        }
        let mut ch = CommonHeader::new(pdu_type::H2C_DATA, DataHeader::HLEN);
        ch.flags = if is_last { flags::LAST_PDU } else { 0 };
        let pdo = set_lengths(&mut ch, self.framing, self.data_pdo, len);
        let header = DataHeader {
            ch,
            cccid: tag.into(),
            ttag: ttag.into(),
            datao: start.into(),
            datal: len.into(),
            reserved20: 0.into(),
        };
        put_header(out, header.as_bytes(), self.framing, pdo);
        out.payload(tag, start, len, self.framing.tail());
    }
}

/// Offset of the CID in a CapsuleResp.
const CQE_CID: u32 = 8 + 12;

/// The digests that were asked for.
fn wanted(settings: Settings) -> Framing {
    Framing {
        header: settings.header_digest,
        data: settings.data_digest,
        ..Framing::default()
    }
}

/// Fills in flags, PDO and PLEN for `len` bytes of data at `pdo`, and says up
/// to where the header is padded.
#[inline]
fn set_lengths(ch: &mut CommonHeader, framing: Framing, pdo: u8, len: u32) -> usize {
    let mut plen = u32::from(ch.hlen);
    if framing.header {
        ch.flags |= flags::HDGST;
        plen += 4;
    }
    if len > 0 {
        ch.pdo = pdo;
        plen = u32::from(pdo) + len;
        if framing.data {
            ch.flags |= flags::DDGST;
            plen += 4;
        }
    }
    ch.plen = plen.into();
    usize::from(ch.pdo)
}

impl Machine for Qpair {
    type Op = Op;

    fn tags_max(&self) -> usize {
        self.commands.tags_max()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        let large = self.reads > 0 && self.read_bytes >= self.reads * LARGE_READ;
        let stage_max = if large { STAGE_HEADERS } else { STAGE_LARGE };
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
    fn poll_step(&mut self, _: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<Op>> {
        while self.phase != QpairPhase::Ended {
            match self.inbound.walk(staged, at) {
                Walk::Header => {
                    let bytes = &staged[*at..];
                    match self.pdu(bytes) {
                        Ok((0, _)) => return None,
                        Ok((used, op)) => {
                            *at += used;
                            if let Some(op) = op {
                                return Some(Step::Op(op));
                            }
                        }
                        Err(malformed) => {
                            *at = staged.len();
                            return Some(Step::Op(self.fail(malformed, bytes)));
                        }
                    }
                }
                Walk::More => return None,
                Walk::Step(step) => return Some(step),
                Walk::Text { .. } => unreachable!("nothing was kept for the machine"),
                Walk::Data { tag, is_intact } => {
                    if let Some(op) = self.received(tag, is_intact) {
                        return Some(Step::Op(op));
                    }
                }
            }
        }
        *at = staged.len();
        None
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.inbound.on_digest(tag, crc);
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
        while let Some(ready) = self.ready.front() {
            if !out.has_room() {
                return;
            }
            match *ready {
                ToSend::Capsule(tag) => {
                    self.ready.pop_front();
                    self.put_capsule(tag, out);
                }
                ToSend::Data { .. } => self.put_h2c_data(out),
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.phase == QpairPhase::Ended
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_deadline(&mut self, _now: Nanos) {}
}
