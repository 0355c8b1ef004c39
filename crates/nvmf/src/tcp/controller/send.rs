//! What goes to the host.

use machine::{Tag, Transmit};
use wire::nvme_tcp::{CapsuleResp, CommonHeader, Data, R2t, flags, pdu_type};
use zerocopy::IntoBytes;

use super::Qpair;
use crate::queue::Answer;
use crate::tcp::{Framing, put_header};

impl Qpair {
    /// Asks for the data of `tag` that is still to be asked for, as far as the
    /// host's MAXR2T allows. `false`: no room for all of it.
    #[inline]
    pub(super) fn send_r2ts(&mut self, tag: Tag, out: &mut impl Transmit) -> bool {
        loop {
            let incoming = &mut self.incoming[usize::from(tag)];
            let offset = incoming.asked;
            let len = (incoming.len - offset).min(self.r2t_len_max);
            incoming.asked += len;
            incoming.r2ts += 1;
            self.r2t_bytes += u64::from(len);
            let ids = (self.queue.cid(tag), self.transfers.take(tag, offset, len));
            put_r2t(out, ids, offset, len, self.framing);
            if !self.wants_r2t(tag) {
                return true;
            }
            if !out.has_room() {
                return false;
            }
        }
    }

    /// Whether one more R2T for `tag` could be sent now.
    #[inline]
    pub(super) fn wants_r2t(&self, tag: Tag) -> bool {
        let incoming = &self.incoming[usize::from(tag)];
        incoming.asked < incoming.len
            && incoming.r2ts < self.r2ts_max
            && (incoming.r2ts == 0 || self.transfers.has_extra(self.queue.entries()))
    }

    /// An answer: its data, and a response unless the data says all.
    /// `false`: no room for all of it.
    #[inline]
    pub(super) fn send_answer(&mut self, answer: &Answer, out: &mut impl Transmit) -> bool {
        let Answer {
            tag, cid, data_len, ..
        } = *answer;
        if data_len > 0 {
            // SUCCESS: no response capsule follows (section 3.3.2).
            let is_alone = answer.is_bare_success;
            let place = (self.c2h_pdo, self.framing);
            put_c2h_data(out, (cid, tag), data_len, place, is_alone);
            if is_alone {
                return true;
            }
            self.queue.data_sent();
            if !out.has_room() {
                return false;
            }
        }
        let mut ch = CommonHeader::new(pdu_type::CAPSULE_RESP, CapsuleResp::HLEN);
        if self.framing.header {
            ch.flags = flags::HDGST;
            ch.plen += 4;
        }
        let cqe = self.queue.completion(answer);
        put_header(out, CapsuleResp { ch, cqe }.as_bytes(), self.framing, 0);
        true
    }
}

/// All data of a command in one C2HData PDU (section 3.6.2.9).
#[inline]
fn put_c2h_data(
    out: &mut impl Transmit,
    (cid, tag): (u16, Tag),
    len: u32,
    (pdo, framing): (u8, Framing),
    success: bool,
) {
    let mut ch = CommonHeader::new(pdu_type::C2H_DATA, Data::HLEN);
    ch.flags = flags::LAST_PDU
        | if success { flags::SUCCESS } else { 0 }
        | if framing.header { flags::HDGST } else { 0 }
        | if framing.data { flags::DDGST } else { 0 };
    ch.pdo = pdo;
    ch.plen = (u32::from(pdo) + len + if framing.data { 4 } else { 0 }).into();
    let header = Data {
        ch,
        cccid: cid.into(),
        ttag: 0.into(),
        datao: 0.into(),
        datal: len.into(),
        reserved20: 0.into(),
    };
    put_header(out, header.as_bytes(), framing, usize::from(pdo));
    out.payload(tag, 0, len, framing.tail());
}

/// Asks for `len` bytes from `offset` of the data of a command (section 3.6.2.10).
fn put_r2t(
    out: &mut impl Transmit,
    (cid, ttag): (u16, u16),
    offset: u32,
    len: u32,
    framing: Framing,
) {
    let mut ch = CommonHeader::new(pdu_type::R2T, R2t::HLEN);
    if framing.header {
        ch.flags = flags::HDGST;
        ch.plen += 4;
    }
    let header = R2t {
        ch,
        cccid: cid.into(),
        ttag: ttag.into(),
        r2to: offset.into(),
        r2tl: len.into(),
        reserved20: 0.into(),
    };
    put_header(out, header.as_bytes(), framing, 0);
}
