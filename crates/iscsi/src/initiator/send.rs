//! What goes to the target.

use machine::{Tag, Tail, Transmit, crc32c};
use wire::iscsi::{
    BHS_LEN, DIGEST_LEN, DataOut, LoginRequest, TAG_NONE, U24, first, flags, padded,
};
use zerocopy::IntoBytes;

use super::ExpectedData;
use super::connection::{CommandState, InitiatorConnection, ToSend};
use super::login::LoginText;

/// Bytes of PDUs without a slot that go out in one piece.
const CONTROL_PIECE: usize = 512;
/// Where CmdSN and ExpStatSN stand in a request.
const CMD_SN: std::ops::Range<usize> = 24..28;
const EXP_STAT_SN: std::ops::Range<usize> = 28..32;

impl InitiatorConnection {
    #[inline]
    pub(super) fn send(&mut self, out: &mut impl Transmit) {
        if !self.control.is_empty() && !self.send_control(out) {
            return;
        }
        while let Some(ready) = self.ready.front() {
            if !out.has_room() {
                return;
            }
            match *ready {
                ToSend::Request(tag) => {
                    self.ready.pop_front();
                    self.send_request(tag, out);
                }
                ToSend::Data { .. } => self.send_data(out),
            }
        }
    }

    /// PDUs without a slot; whether all of them are gone.
    #[cold]
    fn send_control(&mut self, out: &mut impl Transmit) -> bool {
        while self.control_sent < self.control.len() {
            if !out.has_room() {
                return false;
            }
            let end = self.control.len().min(self.control_sent + CONTROL_PIECE);
            out.header(&self.control[self.control_sent..end]);
            self.control_sent = end;
        }
        self.control.clear();
        self.control_sent = 0;
        true
    }

    #[inline]
    fn send_request(&mut self, tag: Tag, out: &mut impl Transmit) {
        let slot = &mut self.slots[usize::from(tag)];
        slot.state = CommandState::Sent;
        slot.header[CMD_SN].copy_from_slice(&slot.cmd_sn.to_be_bytes());
        slot.header[EXP_STAT_SN].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        put_header(out, &slot.header, self.header_digest);
        let immediate = slot.immediate;
        if immediate > 0 {
            out.payload(tag, 0, immediate, Tail::padded(immediate, self.data_digest));
        }
        let is_sent = !self.agreed.rdma_extensions;
        if is_sent && slot.moved > immediate && matches!(slot.data, ExpectedData::Out(_)) {
            // Unsolicited data follows its command in the order of the commands
            // (section 4.2.5.2).
            self.ready.push_front(ToSend::Data {
                tag,
                ttt: TAG_NONE,
                offset: immediate,
                left: slot.moved - immediate,
                data_sn: 0,
            });
        }
    }

    /// One Data-Out PDU of the sequence in front.
    fn send_data(&mut self, out: &mut impl Transmit) {
        let Some(ToSend::Data {
            tag,
            ttt,
            offset,
            left,
            data_sn,
        }) = self.ready.front_mut()
        else {
            unreachable!("the caller saw it");
        };
        let (tag, start) = (*tag, *offset);
        let len = (*left).min(self.agreed.max_send_data_segment_length);
        let mut pdu = DataOut::new();
        pdu.ttt = (*ttt).into();
        pdu.data_sn = (*data_sn).into();
        *offset += len;
        *left -= len;
        *data_sn += 1;
        let (is_solicited, is_last) = (*ttt != TAG_NONE, *left == 0);
        let slot = &mut self.slots[usize::from(tag)];
        if is_last {
            self.ready.pop_front();
            slot.r2ts -= u16::from(is_solicited);
        }
        pdu.flags = if is_last { flags::FINAL } else { 0 };
        let bhs = slot.bhs();
        if is_solicited {
            pdu.lun = bhs.lun;
        }
        pdu.itt = bhs.itt;
        pdu.exp_stat_sn = self.exp_stat_sn.into();
        pdu.buffer_offset = start.into();
        pdu.data_segment_length = U24::new(len);
        put_header(out, pdu.as_bytes(), self.header_digest);
        out.payload(tag, start, len, Tail::padded(len, self.data_digest));
    }

    /// Queues a PDU that has no slot, with its data segment.
    pub(super) fn push_control(&mut self, header: &[u8], segment: &[u8]) {
        self.control.extend_from_slice(header);
        if self.header_digest {
            self.control.extend(crc32c(header, 0).to_le_bytes());
        }
        if segment.is_empty() {
            return;
        }
        let start = self.control.len();
        self.control.extend_from_slice(segment);
        let end = start + padded(segment.len() as u32) as usize;
        self.control.resize(end, 0);
        if self.data_digest {
            let digest = crc32c(&self.control[start..], 0);
            self.control.extend(digest.to_le_bytes());
        }
    }

    /// The first Login Request.
    pub(super) fn begin_login(&mut self) {
        let login = self.login.as_mut().expect("a new connection logs in");
        let request = login.first();
        self.send_login(&request);
    }

    pub(super) fn send_login(&mut self, request: &LoginText) {
        let mut pdu = LoginRequest::new();
        pdu.first |= first::IMMEDIATE;
        pdu.flags = (request.stage as u8) << flags::CSG_SHIFT;
        if let Some(next) = request.next {
            pdu.flags |= flags::TRANSIT | next as u8;
        }
        pdu.isid = self.session.isid();
        pdu.tsih = self.session.tsih().into();
        pdu.cid = self.cid.into();
        pdu.cmd_sn = self.session.cmd_sn().into();
        pdu.exp_stat_sn = self.exp_stat_sn.into();
        pdu.data_segment_length = U24::new(request.text.len() as u32);
        self.push_control(pdu.as_bytes(), &request.text);
    }
}

#[inline]
fn put_header(out: &mut impl Transmit, header: &[u8], has_digest: bool) {
    if !has_digest {
        out.header(header);
        return;
    }
    let mut bytes = [0; BHS_LEN + DIGEST_LEN];
    bytes[..BHS_LEN].copy_from_slice(header);
    bytes[BHS_LEN..].copy_from_slice(&crc32c(header, 0).to_le_bytes());
    out.header(&bytes);
}
