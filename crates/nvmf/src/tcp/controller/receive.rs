//! PDUs from the host.

use machine::Tag;
use wire::nvme::{Sqe, Status};
use wire::nvme_tcp::{
    ADMIN_IN_CAPSULE_MAX, CapsuleCmd, CommonHeader, DGST_DATA, DGST_HEADER, Data, Fes, IcReq,
    IcResp, PDA_MAX, flags, pdu_type,
};
use zerocopy::{FromZeros, IntoBytes};

use super::transfers::Incoming;
use super::{Op, Qpair, R2TS_MAX};
use crate::queue::{ControllerEnd as _, Overrun};
use crate::tcp::{Framing, Malformed, alignment, field, frame, invalid, term_req, view};

/// What was taken of the bytes at hand: how many, and what comes of them. `None`: more are
/// needed.
type Taken = Option<(usize, Option<Op>)>;

impl Qpair {
    /// Takes the PDU header at the start of `bytes`.
    #[inline]
    pub(super) fn pdu(&mut self, bytes: &[u8]) -> Result<Taken, Malformed> {
        let Some(&kind) = bytes.first() else {
            return Ok(None);
        };
        match (kind, self.is_initialized) {
            (pdu_type::CAPSULE_CMD, true) => self.capsule_cmd(bytes),
            (pdu_type::H2C_DATA, true) => self.h2c_data(bytes),
            (pdu_type::IC_REQ, false) => self.ic_req(bytes),
            (pdu_type::H2C_TERM_REQ, _) => Ok(self.h2c_term_req(bytes)),
            (pdu_type::IC_REQ | pdu_type::CAPSULE_CMD | pdu_type::H2C_DATA, _) => {
                Err((Fes::PduSequenceError, 0))
            }
            _ => Err(invalid(field::PDU_TYPE)),
        }
    }

    /// ICReq (section 3.6.2.2): answered with what both ends can do.
    #[cold]
    fn ic_req(&mut self, bytes: &[u8]) -> Result<Taken, Malformed> {
        let Some(found) = frame(bytes, IcReq::HLEN, false, Framing::default())? else {
            return Ok(None);
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
        self.is_initialized = true;
        Ok(Some((found.used, None)))
    }

    /// H2CTermReq (section 3.6.2.4): the connection ends without an answer.
    #[cold]
    fn h2c_term_req(&mut self, bytes: &[u8]) -> Taken {
        let error = term_req(bytes, true)?;
        self.end();
        Some((bytes.len(), Some(Op::Fatal(error))))
    }

    /// CapsuleCmd (section 3.6.2.6).
    #[inline]
    fn capsule_cmd(&mut self, bytes: &[u8]) -> Result<Taken, Malformed> {
        let Some(found) = frame(bytes, CapsuleCmd::HLEN, true, self.framing)? else {
            return Ok(None);
        };
        let capsule_max = if self.queue.takes_io() {
            self.settings.in_capsule_max
        } else {
            ADMIN_IN_CAPSULE_MAX
        };
        if found.data_len > capsule_max {
            return Err((Fes::LimitExceeded, 0));
        }
        let sqe = &view::<CapsuleCmd>(bytes).sqe;
        let submitted = self.queue.submit(sqe, found.data_len);
        let mut op = submitted.map_err(|Overrun| (Fes::PduSequenceError, 0))?;
        self.stop_withdrawn();
        match &mut op {
            Some(Op::Prepare { tag, len, staged }) => {
                self.expect(*tag, *len, found.data_len);
                let is_all = *len == found.data_len && found.is_whole(bytes, self.framing);
                *staged = is_all && sqe.flags & Sqe::FUSE_MASK == 0;
            }
            None if found.data_len > 0 => self.inbound.skip(found.data_len, self.framing.tail()),
            _ => {}
        }
        Ok(Some((found.used, op)))
    }

    /// `len` bytes of data of `tag` will come, `capsule_len` of them in its capsule.
    #[inline]
    fn expect(&mut self, tag: Tag, len: u32, capsule_len: u32) {
        let index = usize::from(tag);
        if index >= self.incoming.len() {
            self.incoming.resize(index + 1, Incoming::default());
        }
        self.incoming[index] = Incoming {
            len,
            asked: capsule_len,
            received: capsule_len,
            ..Incoming::default()
        };
        if capsule_len > 0 {
            let tail = self.framing.tail();
            self.inbound.begin_blocked(tag, 0, capsule_len, tail);
        }
    }

    /// H2CData (section 3.6.2.8): in order within what one R2T asked for; R2Ts
    /// may be answered in any order.
    #[inline]
    fn h2c_data(&mut self, bytes: &[u8]) -> Result<Taken, Malformed> {
        let Some(found) = frame(bytes, Data::HLEN, true, self.framing)? else {
            return Ok(None);
        };
        let header: &Data = view(bytes);
        let (ttag, len) = (header.ttag.get(), header.datal.get());
        let Some(transfer) = self.transfers.get(ttag) else {
            return Err(invalid(field::TTAG));
        };
        if self.queue.cid(transfer.tag) != header.cccid.get() {
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
        self.incoming[usize::from(transfer.tag)].received += len;
        self.ends_r2t = self.transfers.advance(ttag, len);
        self.r2t_bytes -= u64::from(len);
        self.inbound
            .begin(transfer.tag, offset, len, u32::MAX, self.framing.tail());
        Ok(Some((found.used, None)))
    }

    /// The data of one PDU is complete: what follows for its command.
    #[inline]
    pub(super) fn received(&mut self, tag: Tag, is_intact: bool) -> Option<Op> {
        let incoming = &mut self.incoming[usize::from(tag)];
        incoming.r2ts -= u8::from(std::mem::take(&mut self.ends_r2t));
        if is_intact && incoming.received == incoming.len {
            return self.queue.data_whole(tag);
        }
        self.received_part(tag, is_intact);
        None
    }

    /// There is more to come, or it was damaged.
    #[inline(never)]
    fn received_part(&mut self, tag: Tag, is_intact: bool) {
        if !is_intact {
            // Costs only the command, which the host may try again.
            self.queue.give_up(tag, Status::TRANSIENT_TRANSPORT);
            self.stop_withdrawn();
        }
        if self.queue.is_given_up(tag) {
            self.stop(tag);
        } else if self.wants_r2t(tag) {
            self.ask(tag);
        }
    }
}
