//! What goes to the initiator.

use machine::{Tag, Tail, Transmit, crc32c};
use wire::iscsi::{
    BHS_LEN, DIGEST_LEN, DataIn, NopIn, PAD, R2t, ScsiResponse, TAG_NONE, TaskManagementResponse,
    U24, flags,
};
use wire::scsi::{SENSE_MAX, status};
use zerocopy::IntoBytes;

use super::Connection;
use super::control::ControlPdu;
use super::tasks::{Kind, State};
use crate::login::LOGIN_ANSWER_MAX;

/// The longest PDU behind which the connection ends: a Login Response.
const LAST_MAX: usize = BHS_LEN + DIGEST_LEN + LOGIN_ANSWER_MAX;
/// A SCSI Response with all that can be in it.
const RESPONSE_MAX: usize = BHS_LEN + 2 * DIGEST_LEN + (2 + SENSE_MAX).next_multiple_of(PAD);

/// The numbers that every PDU to the initiator carries.
struct Numbers {
    stat_sn: u32,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
}

/// One Data-In PDU of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub offset: u32,
    pub len: u32,
    /// It ends a sequence.
    pub is_final: bool,
}

impl Connection {
    /// Writes as many PDUs as are ready and fit.
    #[inline]
    pub(super) fn transmit(&mut self, out: &mut impl Transmit) {
        loop {
            while !self.is_written() {
                if !out.has_room() {
                    return;
                }
                self.write_on(out);
            }
            let Some(&item) = self.ready.front() else {
                break;
            };
            if let ControlPdu::Release(tag) = item {
                self.ready.pop_front();
                self.extras -= 1;
                self.release(tag, out);
                continue;
            }
            if !out.has_room() {
                return;
            }
            if !self.acknowledged.is_empty() {
                self.release_acknowledged(out);
            }
            let is_sent = match item {
                ControlPdu::Task(tag) => self.send_task(tag, out),
                item => self.send_extra(item, out),
            };
            if !is_sent {
                return;
            }
            self.ready.pop_front();
        }
        if !self.acknowledged.is_empty() {
            self.release_acknowledged(out);
        }
    }

    /// What belongs to no task, or is sent once more.
    #[cold]
    fn send_extra(&mut self, item: ControlPdu, out: &mut impl Transmit) -> bool {
        let is_sent = match item {
            ControlPdu::Control => self.send_control(out),
            ControlPdu::Data { tag, next, end } => self.resend_data(tag, next, end, out),
            ControlPdu::R2t(ttt) => self.resend_r2t(ttt, out),
            ControlPdu::Answers { next, end } => self.resend_answers(next, end, out),
            ControlPdu::Task(_) | ControlPdu::Release(_) => unreachable!("sent elsewhere"),
        };
        // The end of the connection takes all of them.
        self.extras = self.extras.saturating_sub(usize::from(is_sent));
        is_sent
    }

    /// R2Ts or the answer of a task. `false`: no room for all of it.
    #[inline]
    fn send_task(&mut self, tag: Tag, out: &mut impl Transmit) -> bool {
        let slot = &self.tasks[tag];
        if slot.state == State::Receiving {
            let is_sent = self.send_r2ts(tag, out);
            self.tasks[tag].is_queued = !is_sent;
            return is_sent;
        }
        debug_assert_eq!(slot.state, State::Responding);
        match slot.kind {
            Kind::Scsi => {
                if !self.send_answer(tag, out) {
                    return false;
                }
            }
            Kind::Function => self.send_function_response(tag, out),
            Kind::Ping => self.send_ping(tag, out),
        }
        self.tasks[tag].is_queued = false;
        if self.keeps {
            self.keep_task(tag);
        } else {
            self.release(tag, out);
        }
        true
    }

    /// Nothing is sent for a task any more. By RDMA its bytes are named later, and it is there
    /// until [`Connection::end_task`].
    #[inline]
    fn release(&mut self, tag: Tag, out: &mut impl Transmit) {
        if self.carrier.is_rdma() {
            self.tasks[tag].holds_window = false;
            out.release(tag);
        } else if self.tasks.free(tag) {
            out.release(tag);
        }
    }

    /// The last byte of a task that was released to RDMA is named: whether the driver knows
    /// its tag.
    pub(crate) fn end_task(&mut self, tag: Tag) -> bool {
        self.tasks.free(tag)
    }

    /// The numbers of a PDU that ends a task, or of any other.
    #[inline]
    fn numbers(&mut self, has_status: bool, holds_window: bool) -> Numbers {
        let mut session = self.session.borrow_mut();
        if holds_window {
            session.ended();
        }
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(u32::from(has_status));
        Numbers {
            stat_sn,
            exp_cmd_sn: session.exp_cmd_sn(),
            max_cmd_sn: session.max_cmd_sn(),
        }
    }

    /// Asks for the data of `tag` that is still to be asked for, as far as
    /// MaxOutstandingR2T allows. `false`: no room for all of it.
    #[inline]
    fn send_r2ts(&mut self, tag: Tag, out: &mut impl Transmit) -> bool {
        loop {
            let (start, end) = match self.tasks[tag].holes {
                0 => {
                    let slot = &mut self.tasks[tag];
                    let left = slot.wanted - slot.asked;
                    let start = slot.asked;
                    slot.asked += left.min(self.keys.max_burst_length);
                    (start, slot.asked)
                }
                _ => self.take_hole(tag),
            };
            let slot = &mut self.tasks[tag];
            let at = self.transfers.take(tag, start, end, slot.data_sn);
            slot.data_sn += 1;
            slot.sequences += 1;
            slot.r2ts += 1;
            self.data_out_bytes += u64::from(end - start);
            self.put_r2t(at, out);
            if !self.wants_r2t(tag) {
                return true;
            }
            if !out.has_room() {
                return false;
            }
        }
    }

    /// One R2T (section 11.8).
    #[inline]
    pub(super) fn put_r2t(&mut self, at: u16, out: &mut impl Transmit) {
        let transfer = self.transfers.get(at);
        let numbers = self.numbers(false, false);
        let header = R2t {
            flags: flags::FINAL,
            lun: self.tasks.task(transfer.tag).lun.to_be_bytes(),
            itt: self.tasks[transfer.tag].itt.into(),
            ttt: self.transfers.ttt(at).into(),
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            r2t_sn: transfer.r2t_sn.into(),
            buffer_offset: transfer.start.into(),
            desired_data_transfer_length: (transfer.end - transfer.start).into(),
            ..R2t::new()
        };
        self.put_header(header.as_bytes(), out);
    }

    /// A header and its digest.
    #[inline]
    fn put_header(&self, header: &[u8], out: &mut impl Transmit) {
        if !self.header_digest {
            return out.header(header);
        }
        let mut bytes = [0; BHS_LEN + DIGEST_LEN];
        bytes[..BHS_LEN].copy_from_slice(header);
        bytes[BHS_LEN..].copy_from_slice(&crc32c(header, 0).to_le_bytes());
        out.header(&bytes);
    }

    /// The answer to a SCSI command: its data, and a response unless the last of
    /// the data carries the status. `false`: no room for all of it.
    #[inline]
    fn send_answer(&mut self, tag: Tag, out: &mut impl Transmit) -> bool {
        loop {
            let slot = &self.tasks[tag];
            if slot.sent == slot.data_in_len {
                break;
            }
            let piece = self.next_piece(tag);
            let is_last = piece.offset + piece.len == slot.data_in_len;
            let has_status = is_last && self.carries_status(tag);
            self.put_data_in(tag, slot.data_sn, piece, has_status, None, out);
            let cut = self.keys.max_send_data_segment_length;
            let slot = &mut self.tasks[tag];
            slot.cut = cut;
            slot.sent += piece.len;
            slot.data_sn += 1;
            if has_status {
                return true;
            }
            if !out.has_room() {
                return false;
            }
        }
        self.put_response(tag, None, out);
        true
    }

    /// Whether the last Data-In PDU carries the status: there is nothing else to
    /// be said (section 11.7.3), and it is a PDU (RFC 7145, section 7.3.5).
    #[inline]
    pub(super) fn carries_status(&self, tag: Tag) -> bool {
        let slot = &self.tasks[tag];
        !self.carrier.is_rdma()
            && slot.status == status::GOOD
            && !slot.has_sense
            && slot.snack_tag == 0
    }

    /// What the next Data-In PDU of a task brings: as much as the initiator
    /// takes in one, within sequences of MaxBurstLength.
    #[inline]
    fn next_piece(&self, tag: Tag) -> Piece {
        let slot = &self.tasks[tag];
        let (offset, burst_max) = (slot.sent, self.keys.max_burst_length);
        let left = slot.data_in_len - offset;
        let in_burst = match slot.data_in_len <= burst_max {
            true => left,
            false => left.min(burst_max - offset % burst_max),
        };
        let len = in_burst.min(self.keys.data_in_max());
        Piece {
            offset,
            len,
            is_final: len == in_burst,
        }
    }

    /// One Data-In PDU (section 11.7). `stat_sn`: it is sent once more, with the
    /// StatSN that it had.
    #[inline]
    pub(super) fn put_data_in(
        &mut self,
        tag: Tag,
        data_sn: u32,
        piece: Piece,
        has_status: bool,
        stat_sn: Option<u32>,
        out: &mut impl Transmit,
    ) {
        let is_new = has_status && stat_sn.is_none();
        let holds_window = is_new && self.tasks[tag].holds_window;
        let numbers = self.numbers(is_new, holds_window);
        let slot = &mut self.tasks[tag];
        let mut header = DataIn {
            flags: if piece.is_final { flags::FINAL } else { 0 },
            data_segment_length: U24::new(piece.len),
            itt: slot.itt.into(),
            ttt: TAG_NONE.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            data_sn: data_sn.into(),
            buffer_offset: piece.offset.into(),
            ..DataIn::new()
        };
        if has_status {
            if is_new {
                slot.stat_sn = numbers.stat_sn;
            }
            header.flags |= flags::STATUS | slot.residual_flags;
            header.status = slot.status;
            header.stat_sn = slot.stat_sn.into();
            header.residual_count = slot.residual_count.into();
        } else if self.keeps && piece.is_final && piece.offset + piece.len < slot.data_in_len {
            header.flags |= flags::ACKNOWLEDGE;
            header.ttt = u32::from(tag).into();
            header.lun = self.tasks.task(tag).lun.to_be_bytes();
        }
        self.put_header(header.as_bytes(), out);
        let tail = Tail::padded(piece.len, self.data_digest);
        out.payload(tag, piece.offset, piece.len, tail);
    }

    /// A SCSI Response (section 11.4). `stat_sn`: it is sent once more, with the
    /// StatSN that it had.
    pub(super) fn put_response(&mut self, tag: Tag, stat_sn: Option<u32>, out: &mut impl Transmit) {
        let is_new = stat_sn.is_none();
        let holds_window = is_new && self.tasks[tag].holds_window;
        let numbers = self.numbers(is_new, holds_window);
        let slot = &mut self.tasks[tag];
        if is_new {
            slot.stat_sn = numbers.stat_sn;
        }
        let mut header = ScsiResponse {
            flags: flags::FINAL | slot.residual_flags,
            status: slot.status,
            itt: slot.itt.into(),
            snack_tag: slot.snack_tag.into(),
            stat_sn: slot.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            exp_data_sn: slot.data_sn.into(),
            residual_count: slot.residual_count.into(),
            ..ScsiResponse::new()
        };
        if !slot.has_sense {
            return self.put_header(header.as_bytes(), out);
        }
        let sense = self.tasks.sense(tag).as_slice();
        header.data_segment_length = U24::new(2 + sense.len() as u32);
        let mut data = [0; 2 + SENSE_MAX];
        data[..2].copy_from_slice(&(sense.len() as u16).to_be_bytes());
        data[2..2 + sense.len()].copy_from_slice(sense);
        let mut bytes = Bytes::default();
        bytes.segment(header.as_bytes(), self.header_digest);
        bytes.segment(&data[..2 + sense.len()], self.data_digest);
        out.header(bytes.as_slice());
    }

    /// A SCSI Task Management Function Response (section 11.6).
    fn send_function_response(&mut self, tag: Tag, out: &mut impl Transmit) {
        let is_kept = self.tasks[tag].state == State::Kept;
        let holds_window = !is_kept && self.tasks[tag].holds_window;
        let numbers = self.numbers(!is_kept, holds_window);
        let slot = &mut self.tasks[tag];
        if !is_kept {
            slot.stat_sn = numbers.stat_sn;
        }
        let header = TaskManagementResponse {
            flags: flags::FINAL,
            response: slot.status,
            itt: slot.itt.into(),
            stat_sn: slot.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..TaskManagementResponse::new()
        };
        self.put_header(header.as_bytes(), out);
    }

    /// A NOP-In that brings the data of the NOP-Out back (section 11.19).
    fn send_ping(&mut self, tag: Tag, out: &mut impl Transmit) {
        let is_kept = self.tasks[tag].state == State::Kept;
        let holds_window = !is_kept && self.tasks[tag].holds_window;
        let numbers = self.numbers(!is_kept, holds_window);
        let lun = self.tasks.task(tag).lun.to_be_bytes();
        let slot = &mut self.tasks[tag];
        if !is_kept {
            slot.stat_sn = numbers.stat_sn;
        }
        let len = slot.data_in_len;
        let header = NopIn {
            flags: flags::FINAL,
            data_segment_length: U24::new(len),
            lun,
            itt: slot.itt.into(),
            ttt: TAG_NONE.into(),
            stat_sn: slot.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..NopIn::new()
        };
        self.put_header(header.as_bytes(), out);
        if len > 0 {
            out.payload(tag, 0, len, Tail::padded(len, self.data_digest));
        }
    }

    /// The answer to a task once more.
    pub(super) fn resend_task(&mut self, tag: Tag, stat_sn: u32, out: &mut impl Transmit) {
        match self.tasks[tag].kind {
            Kind::Function => self.send_function_response(tag, out),
            Kind::Ping => self.send_ping(tag, out),
            Kind::Scsi => self.resend_answer(tag, stat_sn, out),
        }
    }

    /// The next of the controls. `false`: it is large, and goes at the start of
    /// a batch.
    fn send_control(&mut self, out: &mut impl Transmit) -> bool {
        let Some(control) = self.controls.front() else {
            return true;
        };
        // Nothing is written any more behind the last word.
        if control.is_last && out.header_room() < LAST_MAX {
            return false;
        }
        let Some(control) = self.controls.pop_front() else {
            return true;
        };
        let numbers = self.numbers(control.has_status, control.holds_window);
        self.put_control(&control, numbers.stat_sn, out);
        if control.is_last {
            self.end();
        } else if self.keeps && control.has_status && control.login.is_none() {
            self.keep_control(numbers.stat_sn, control);
        }
        true
    }

    /// A PDU that belongs to no task.
    pub(super) fn put_control(
        &mut self,
        control: &super::control::Control,
        stat_sn: u32,
        out: &mut impl Transmit,
    ) {
        let session = self.session.borrow();
        let (exp_cmd_sn, max_cmd_sn) = match control.login {
            Some(Some(cmd_sn)) => (cmd_sn, cmd_sn),
            _ => (session.exp_cmd_sn(), session.max_cmd_sn()),
        };
        let mut header = control.header;
        header[5..8].copy_from_slice(&(control.data.len() as u32).to_be_bytes()[1..]);
        header[24..28].copy_from_slice(&stat_sn.to_be_bytes());
        header[28..32].copy_from_slice(&exp_cmd_sn.to_be_bytes());
        header[32..36].copy_from_slice(&max_cmd_sn.to_be_bytes());
        let has_digests = control.login.is_none();
        let bytes = &mut self.scratch;
        bytes.clear();
        put_segment(bytes, &header, self.header_digest && has_digests);
        if !control.data.is_empty() {
            put_segment(bytes, &control.data, self.data_digest && has_digests);
        }
        drop(session);
        self.written = 0;
        self.write_on(out);
    }

    /// Whether no PDU is half written.
    #[inline]
    pub(super) fn is_written(&self) -> bool {
        self.written == self.scratch.len()
    }

    /// Goes on with the PDU that is half written.
    #[cold]
    fn write_on(&mut self, out: &mut impl Transmit) {
        let rest = &self.scratch[self.written..];
        let part = &rest[..rest.len().min(out.header_room())];
        out.header(part);
        self.written += part.len();
    }
}

/// Appends a segment, its padding and its digest.
fn put_segment(to: &mut Vec<u8>, segment: &[u8], has_digest: bool) {
    let at = to.len();
    to.extend_from_slice(segment);
    to.resize(at + segment.len().next_multiple_of(PAD), 0);
    if has_digest {
        let digest = crc32c(&to[at..], 0);
        to.extend_from_slice(&digest.to_le_bytes());
    }
}

/// A SCSI Response that is put together.
struct Bytes {
    bytes: [u8; RESPONSE_MAX],
    len: usize,
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes {
            bytes: [0; RESPONSE_MAX],
            len: 0,
        }
    }
}

impl Bytes {
    /// Appends a segment, its padding and its digest.
    fn segment(&mut self, segment: &[u8], has_digest: bool) {
        let at = self.len;
        self.bytes[at..at + segment.len()].copy_from_slice(segment);
        self.len += segment.len().next_multiple_of(PAD);
        if has_digest {
            let digest = crc32c(&self.bytes[at..self.len], 0);
            self.bytes[self.len..self.len + DIGEST_LEN].copy_from_slice(&digest.to_le_bytes());
            self.len += DIGEST_LEN;
        }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
