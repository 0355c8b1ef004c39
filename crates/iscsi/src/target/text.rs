//! Text Requests in the full feature phase (RFC 7143, section 11.10).

use machine::Tail;
use wire::iscsi::{Bhs, RejectReason, TAG_NONE, TextRequest as Header, TextResponse, flags};
use zerocopy::{FromZeros, IntoBytes};

use super::control::Control;
use super::receive::Frame;
use super::{Connection, Hold, TargetOp};
use crate::login::LOGIN_TEXT_MAX;

/// A text that came in one or several requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextRequest {
    /// The text, at most [`LOGIN_TEXT_MAX`] bytes.
    pub text: Vec<u8>,
    /// F: the initiator has nothing more to say.
    pub is_final: bool,
}

/// The exchange of texts that is under way; there is one at most.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The request that was taken last.
    header: Header,
    holds_window: bool,
    /// What came so far of a text.
    text: Vec<u8>,
    /// The answer, and how much of it was sent.
    pub(super) answer: Vec<u8>,
    answered: usize,
    /// The Target Transfer Tag that it goes on with.
    ttt: Option<u32>,
    next_ttt: u32,
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange {
            header: Header::new_zeroed(),
            holds_window: false,
            text: Vec::new(),
            answer: Vec::new(),
            answered: 0,
            ttt: None,
            next_ttt: 0,
        }
    }
}

impl Connection {
    /// Text Request.
    pub(super) fn text_request(&mut self, bhs: &Bhs, frame: &Frame, holds_window: bool) {
        let header: &Header = bhs.cast();
        let ttt = header.ttt.get();
        let goes_on = ttt != TAG_NONE;
        let is_known = self.exchange.ttt == Some(ttt) && self.exchange.header.itt == header.itt;
        let is_both =
            header.flags & (flags::FINAL | flags::CONTINUE) == flags::FINAL | flags::CONTINUE;
        if header.itt.get() == TAG_NONE || is_both || goes_on && !is_known {
            let reason = match is_both {
                true => RejectReason::ProtocolError,
                false => RejectReason::InvalidPduField,
            };
            return self.refuse(bhs, frame, reason, holds_window);
        }
        if frame.data_len as usize > LOGIN_TEXT_MAX {
            // Longer than any text: it is not even collected.
            self.exchange.ttt = None;
            self.exchange.text.clear();
            return self.refuse(bhs, frame, RejectReason::LongOpReject, holds_window);
        }
        match frame.data_len {
            0 => self.take_text_piece(header, &[]),
            len => {
                self.arriving.header.copy_from_slice(bhs.as_bytes());
                self.inbound
                    .begin_text(len, Tail::padded(len, self.data_digest));
            }
        }
    }

    /// The data segment of a Text or Login Request is complete.
    #[cold]
    pub(super) fn text_received(&mut self, is_intact: bool) {
        let text = self.inbound.text().to_vec();
        if self.phase == super::ConnectionPhase::Login {
            return self.login_piece(&text);
        }
        let header = self.arriving.header;
        if !is_intact {
            return self.reject_damaged(zerocopy::transmute_ref!(&header));
        }
        self.confirm_cmd_sn();
        self.take_text_piece(zerocopy::transmute_ref!(&header), &text);
    }

    /// A Text Request has come whole, and is that of a new text or goes on with the
    /// one that is under way.
    fn take_text_piece(&mut self, header: &Header, text: &[u8]) {
        if header.ttt.get() == TAG_NONE {
            // A new one ends what was under way (section 6.2).
            self.exchange = Exchange {
                next_ttt: self.exchange.next_ttt,
                ..Exchange::default()
            };
        }
        let exchange = &mut self.exchange;
        exchange.header = *header;
        let bhs: &Bhs = zerocopy::transmute_ref!(header);
        exchange.holds_window = !bhs.is_immediate();
        if exchange.text.len() + text.len() > LOGIN_TEXT_MAX {
            let holds_window = exchange.holds_window;
            self.exchange.ttt = None;
            self.exchange.text.clear();
            return self.reject(bhs, RejectReason::LongOpReject, holds_window);
        }
        exchange.text.extend_from_slice(text);
        if header.flags & flags::CONTINUE != 0 {
            return self.send_text(Vec::new(), false, true);
        }
        if exchange.answered < exchange.answer.len() {
            // What came, if anything, is asked again when the answer is over.
            return self.send_answer_piece();
        }
        self.hold = Hold::Answer;
        self.ops.push_back(TargetOp::Text);
    }

    /// The text of [`TargetOp::Text`].
    pub fn take_text(&mut self) -> TextRequest {
        TextRequest {
            text: std::mem::take(&mut self.exchange.text),
            is_final: self.exchange.header.flags & flags::FINAL != 0,
        }
    }

    /// The answer to [`TargetOp::Text`]. `max_send_data_segment_length` is what the
    /// initiator takes from now on in one PDU, if the text said so.
    pub fn text_answer(&mut self, text: Vec<u8>, max_send_data_segment_length: Option<u32>) {
        if !self.is_open() {
            return;
        }
        assert_eq!(self.hold, Hold::Answer, "no text is to be answered");
        self.hold = Hold::None;
        self.was_held = true;
        self.exchange.answer = text;
        self.exchange.answered = 0;
        self.send_answer_piece();
        if let Some(len) = max_send_data_segment_length {
            self.keys.max_send_data_segment_length = len;
        }
    }

    /// As much of the answer as the initiator takes in one PDU: some read no
    /// second one.
    fn send_answer_piece(&mut self) {
        let len_max = self.keys.max_send_data_segment_length as usize;
        // What is not sent yet stays where it is, however long it is.
        let Exchange {
            answer, answered, ..
        } = &mut self.exchange;
        let rest = &answer[*answered..];
        let piece = rest[..rest.len().min(len_max)].to_vec();
        *answered += piece.len();
        let goes_on = *answered < answer.len();
        if !goes_on {
            *answer = Vec::new();
            *answered = 0;
        }
        self.send_text(piece, goes_on, false);
    }

    /// A Text Response. It ends the exchange if both sides have said all.
    fn send_text(&mut self, text: Vec<u8>, goes_on: bool, asks: bool) {
        let exchange = &mut self.exchange;
        let is_over = !goes_on && !asks && exchange.header.flags & flags::FINAL != 0;
        let ttt = match is_over {
            true => None,
            false => {
                let ttt = exchange.next_ttt;
                exchange.next_ttt = (ttt + 1) & 0x7fff_ffff;
                Some(ttt)
            }
        };
        exchange.ttt = ttt;
        let response = TextResponse {
            flags: match (is_over, goes_on) {
                (true, _) => flags::FINAL,
                (false, true) => flags::CONTINUE,
                (false, false) => 0,
            },
            lun: exchange.header.lun,
            itt: exchange.header.itt,
            ttt: ttt.unwrap_or(TAG_NONE).into(),
            ..TextResponse::new()
        };
        let holds_window = exchange.holds_window;
        self.push(Control {
            holds_window,
            ..Control::new(response.as_bytes(), text)
        });
    }
}
