//! PDUs from the host.

use machine::{Step, Tag};
use wire::nvme::{Sqe, Status, admin};
use wire::nvme_tcp::{
    ADMIN_IN_CAPSULE_MAX, CapsuleCmd, CommonHeader, DGST_DATA, DGST_HEADER, Data, Fes, IcReq,
    IcResp, PDA_MAX, flags, pdu_type,
};
use zerocopy::{FromZeros, IntoBytes};

use super::decode::{Transfer, error_location, is_plain, transfer};
use super::slots::{Fused, SlotState};
use super::{ENTRIES_BEFORE_CONNECT, Fuse, Op, Qpair, QpairPhase, R2TS_MAX, RefusedCommand};
use crate::command::{Command, decode_io, is_io};
use crate::tcp::{Frame, Framing, Malformed, alignment, field, frame, invalid, term_req, view};

impl Qpair {
    /// Takes the PDU header at the start of `bytes`: the bytes it used (0: more
    /// are needed). What comes of it goes to `step`, written in place because
    /// moving an operation costs as much as parsing it.
    #[inline]
    pub(super) fn pdu(
        &mut self,
        bytes: &[u8],
        step: &mut Option<Step<Op>>,
    ) -> Result<usize, Malformed> {
        let Some(&kind) = bytes.first() else {
            return Ok(0);
        };
        if kind == pdu_type::CAPSULE_CMD && matches!(self.phase, QpairPhase::Live) {
            return self.capsule_cmd(bytes, step);
        }
        match (kind, self.phase) {
            (
                pdu_type::H2C_DATA,
                QpairPhase::Live | QpairPhase::Connect | QpairPhase::Connecting,
            ) => self.h2c_data(bytes),
            (pdu_type::CAPSULE_CMD, QpairPhase::Connect | QpairPhase::Connecting) => {
                self.capsule_cmd(bytes, step)
            }
            (pdu_type::IC_REQ, QpairPhase::IcReq) => self.ic_req(bytes),
            (pdu_type::H2C_TERM_REQ, _) => Ok(self.h2c_term_req(bytes, step)),
            (pdu_type::IC_REQ | pdu_type::CAPSULE_CMD | pdu_type::H2C_DATA, _) => {
                Err((Fes::PduSequenceError, 0))
            }
            _ => Err(invalid(field::PDU_TYPE)),
        }
    }

    /// ICReq (section 3.6.2.2): answered with what both ends can do.
    #[cold]
    fn ic_req(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let Some(found) = frame(bytes, IcReq::HLEN, false, Framing::default())? else {
            return Ok(0);
        };
        let request: &IcReq = view(bytes);
        if request.pfv.get() != 0 {
            return Err((Fes::UnsupportedParameter, field::PFV));
        }
        if request.hpda > PDA_MAX {
            return Err((Fes::UnsupportedParameter, field::PDA));
        }
        self.framing = Framing {
            header: self.settings.header_digest && request.dgst & DGST_HEADER != 0,
            data: self.settings.data_digest && request.dgst & DGST_DATA != 0,
            alignment: alignment(self.settings.cpda),
        };
        self.c2h_pdo = self.framing.pdo(Data::HLEN, request.hpda);
        if request.maxr2t.get() > 0 {
            self.r2ts_max = request.maxr2t.get().saturating_add(1).min(R2TS_MAX) as u8;
            self.r2t_len_max = self.settings.r2t_bytes_max;
        }
        let response = IcResp {
            ch: CommonHeader::new(pdu_type::IC_RESP, IcResp::HLEN),
            cpda: self.settings.cpda,
            dgst: self.framing.dgst(),
            maxh2cdata: self.settings.maxh2cdata.into(),
            ..IcResp::new_zeroed()
        };
        self.control.extend_from_slice(response.as_bytes());
        self.phase = QpairPhase::Connect;
        Ok(found.used)
    }

    /// H2CTermReq (section 3.6.2.4): the connection ends without an answer.
    #[cold]
    fn h2c_term_req(&mut self, bytes: &[u8], step: &mut Option<Step<Op>>) -> usize {
        let Some(error) = term_req(bytes, true) else {
            return 0;
        };
        self.end();
        *step = Some(Step::Op(Op::Fatal(error)));
        bytes.len()
    }

    /// CapsuleCmd (section 3.6.2.6).
    #[inline]
    fn capsule_cmd(
        &mut self,
        bytes: &[u8],
        step: &mut Option<Step<Op>>,
    ) -> Result<usize, Malformed> {
        let Some(found) = frame(bytes, CapsuleCmd::HLEN, true, self.framing)? else {
            return Ok(0);
        };
        let is_live = self.phase == QpairPhase::Live;
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
        if unique && self.role.qid == 0 {
            self.note_forgotten(tag);
        }
        let is_usual = takes_io && unique && is_plain(sqe) && is_io(sqe.opcode);
        let started = if is_usual && self.fuse == Fuse::Idle {
            self.start_io(tag, sqe, &found, bytes, step)
        } else {
            self.start_other(tag, unique, sqe, &found, step)
        };
        if let Err(status) = started {
            self.refuse(tag, sqe, &found, status, step);
        }
        Ok(found.used)
    }

    /// Answers a command that never starts, and skips the data that came with it.
    #[cold]
    fn refuse(
        &mut self,
        tag: Tag,
        sqe: &Sqe,
        found: &Frame,
        status: Status,
        step: &mut Option<Step<Op>>,
    ) {
        if found.data_len > 0 {
            self.inbound.skip(found.data_len, self.framing.tail());
        }
        self.answer(tag, status);
        if !status.is_success() {
            *step = Some(Step::Op(Op::Refused(RefusedCommand {
                cid: sqe.cid.get(),
                status,
                nsid: sqe.nsid.get(),
                slba: sqe.slba(),
                location: error_location(status),
            })));
        }
    }

    /// Everything but plain I/O commands, and those that come where the second
    /// of a fused pair is due.
    #[cold]
    fn start_other(
        &mut self,
        tag: Tag,
        unique: bool,
        sqe: &Sqe,
        found: &Frame,
        step: &mut Option<Step<Op>>,
    ) -> Result<(), Status> {
        let is_io_queue = self.phase == QpairPhase::Live && self.role.qid != 0;
        let is_fused = sqe.flags & Sqe::FUSE_MASK != 0 || self.fuse != Fuse::Idle;
        if is_io_queue && is_fused {
            return self.start_fused(tag, unique, sqe, found, step);
        }
        if !unique {
            return Err(Status::CID_CONFLICT.dnr());
        }
        self.start_single(tag, sqe, found, step)
    }

    /// A command that is no part of a fused pair.
    #[cold]
    pub(super) fn start_single(
        &mut self,
        tag: Tag,
        sqe: &Sqe,
        found: &Frame,
        step: &mut Option<Step<Op>>,
    ) -> Result<(), Status> {
        let (command, need) = self.decode(sqe)?;
        let transfer = transfer(&sqe.sgl, need, found.data_len)?;
        if let Command::Connect(_) = command {
            self.phase = QpairPhase::Connecting;
        }
        self.slots[tag].is_disconnect = matches!(command, Command::Disconnect);
        self.slots[tag].is_event_request = matches!(
            command,
            Command::Admin(sqe) if sqe.opcode == admin::ASYNC_EVENT_REQUEST
        );
        *step = Some(Step::Op(self.start(tag, command, transfer)));
        Ok(())
    }

    /// A plain I/O command. It is put where it belongs in one piece: a copy of a
    /// whole [`Command`] costs as much as parsing it.
    #[inline(always)]
    fn start_io(
        &mut self,
        tag: Tag,
        sqe: &Sqe,
        found: &Frame,
        bytes: &[u8],
        step: &mut Option<Step<Op>>,
    ) -> Result<(), Status> {
        let (io, need) = decode_io(sqe, &self.role.namespaces, self.settings.io_bytes_max)?;
        let transfer = transfer(&sqe.sgl, need, found.data_len)?;
        let Some(len) = self.take(tag, transfer) else {
            *step = Some(Step::Op(Op::Execute {
                tag,
                command: Command::Io(io),
            }));
            return Ok(());
        };
        self.slots.set_command(tag, Command::Io(io));
        *step = Some(Step::Op(Op::Prepare {
            tag,
            len,
            command: Command::Io(io),
            staged: transfer.is_in_capsule() && found.is_whole(bytes, self.framing),
        }));
        Ok(())
    }

    /// A command that passed: what the driver does first.
    #[cold]
    pub(super) fn start(&mut self, tag: Tag, command: Command, transfer: Transfer) -> Op {
        let Some(len) = self.take(tag, transfer) else {
            return Op::Execute { tag, command };
        };
        self.slots.set_command(tag, command);
        Op::Prepare {
            tag,
            len,
            command,
            staged: false,
        }
    }

    /// A command that passed takes its place: the bytes of data that it needs
    /// memory for, if any come.
    #[inline(always)]
    fn take(&mut self, tag: Tag, transfer: Transfer) -> Option<u32> {
        let slot = &mut self.slots[tag];
        slot.is_named = true;
        let (len, capsule) = match transfer {
            Transfer::None => {
                slot.state = SlotState::Executing;
                return None;
            }
            Transfer::In(len) => {
                slot.state = SlotState::Executing;
                slot.is_read = true;
                slot.len = len;
                return None;
            }
            Transfer::Out { len, capsule } => (len, capsule),
        };
        slot.state = SlotState::Preparing;
        slot.len = len;
        slot.asked = capsule;
        slot.received = capsule;
        if capsule > 0 {
            self.inbound
                .begin_blocked(tag, 0, capsule, self.framing.tail());
        }
        Some(len)
    }

    /// Ends a command that the driver does not, or no longer, execute.
    pub(super) fn answer(&mut self, tag: Tag, status: Status) {
        let slot = &mut self.slots[tag];
        slot.state = SlotState::SendResponse;
        slot.status = status;
        self.queue(tag);
    }

    /// H2CData (section 3.6.2.8): in order within what one R2T asked for; R2Ts
    /// may be answered in any order.
    #[inline]
    fn h2c_data(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let Some(found) = frame(bytes, Data::HLEN, true, self.framing)? else {
            return Ok(0);
        };
        let header: &Data = view(bytes);
        let (ttag, len) = (header.ttag.get(), header.datal.get());
        let Some(transfer) = self.transfers.get(ttag) else {
            return Err(invalid(field::TTAG));
        };
        let slot = &mut self.slots[transfer.tag];
        if slot.cid != header.cccid.get() {
            return Err(invalid(field::CCCID));
        }
        if len == 0 || len != found.data_len {
            return Err(invalid(field::DATAL));
        }
        if len > self.settings.maxh2cdata {
            return Err((Fes::LimitExceeded, 0));
        }
        let offset = header.datao.get();
        let end = u64::from(transfer.next) + u64::from(transfer.left);
        if offset < transfer.start || u64::from(offset) + u64::from(len) > end {
            return Err((Fes::DataTransferOutOfRange, 0));
        }
        let is_last = header.ch.flags & flags::LAST_PDU != 0;
        if offset != transfer.next || is_last != (len == transfer.left) {
            return Err((Fes::PduSequenceError, 0));
        }
        slot.received += len;
        self.ends_r2t = self.transfers.advance(ttag, len);
        self.r2t_bytes -= u64::from(len);
        self.inbound
            .begin(transfer.tag, offset, len, u32::MAX, self.framing.tail());
        Ok(found.used)
    }

    /// The data of one PDU is complete; what follows for its command goes to
    /// `step`.
    #[inline]
    pub(super) fn received(&mut self, tag: Tag, intact: bool, step: &mut Option<Step<Op>>) {
        let slot = &mut self.slots[tag];
        slot.r2ts -= u8::from(std::mem::take(&mut self.ends_r2t));
        let is_usual = slot.fused == Fused::No && slot.status.is_success() && intact;
        let is_complete = slot.received == slot.len;
        if is_usual
            && is_complete
            && let Command::Io(io) = self.slots.command(tag)
        {
            *step = Some(Step::Op(Op::Execute {
                tag,
                command: Command::Io(*io),
            }));
            self.slots[tag].state = SlotState::Executing;
        } else {
            self.received_other(tag, intact, step);
        }
    }

    /// There is more to come, or it is not a plain I/O command, or it is given up.
    #[inline(never)]
    fn received_other(&mut self, tag: Tag, intact: bool, step: &mut Option<Step<Op>>) {
        if !intact {
            // Costs only the command, which the host may try again.
            self.give_up(tag, Status::TRANSIENT_TRANSPORT);
        }
        let slot = &self.slots[tag];
        if !slot.status.is_success() {
            self.settle(tag);
        } else if slot.received == slot.len && slot.fused != Fused::No {
            *step = self.pair_up(tag).map(Step::Op);
        } else if slot.received == slot.len {
            let command = *self.slots.command(tag);
            self.slots[tag].state = SlotState::Executing;
            *step = Some(Step::Op(Op::Execute { tag, command }));
        } else if self.wants_r2t(tag) {
            self.queue(tag);
        }
    }
}
