//! Answers that belong to no task in the table, and what is in the ready queue.

use machine::Tag;
use wire::iscsi::{
    AsyncEvent, AsyncMessage, BHS_LEN, Bhs, LogoutRequest, LogoutResponse, LogoutResponseCode,
    NopIn, NopOut, Reject, RejectReason, TAG_NONE, flags,
};
use zerocopy::IntoBytes;

use super::{Connection, ConnectionPhase, Hold, KeepAlive, ORDER_TIMEOUT};
use crate::target::FatalError;
use machine::Nanos;

/// Something to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlPdu {
    /// R2Ts, data or the answer of a task.
    Task(Tag),
    /// The next of the controls.
    Control,
    /// A tag that nothing is sent for any more.
    Release(Tag),
    /// Data-In PDUs once more, from one DataSN to before another.
    Data {
        /// The task.
        tag: Tag,
        /// The next one.
        next: u32,
        /// The one behind the last.
        end: u32,
    },
    /// An R2T once more, by its Target Transfer Tag.
    R2t(u32),
    /// Answers once more, from one StatSN to before another.
    Answers {
        /// The next one.
        next: u32,
        /// The one behind the last.
        end: u32,
    },
}

/// A PDU that belongs to no task: complete but for the numbers that it gets
/// when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub header: [u8; BHS_LEN],
    /// The data segment.
    pub data: Vec<u8>,
    /// It uses up a StatSN.
    pub has_status: bool,
    /// MaxCmdSN moves with it: it answers a request that was not immediate.
    pub holds_window: bool,
    /// It has no digests, whatever was agreed on, and these for ExpCmdSN and
    /// MaxCmdSN if there is no session yet: a Login Response.
    pub login: Option<Option<u32>>,
    /// The connection ends with it.
    pub is_last: bool,
}

impl Control {
    /// A PDU with a StatSN of its own.
    pub(super) fn new(header: &[u8], data: Vec<u8>) -> Control {
        Control {
            header: header.try_into().expect("a Basic Header Segment"),
            data,
            has_status: true,
            holds_window: false,
            login: None,
            is_last: false,
        }
    }
}

impl Connection {
    pub(super) fn push(&mut self, control: Control) {
        self.controls.push_back(control);
        self.push_item(ControlPdu::Control);
    }

    /// Puts something that is no task's into the ready queue.
    pub(super) fn push_item(&mut self, item: ControlPdu) {
        self.ready.push_back(item);
        self.extras += 1;
    }

    /// Rejects a PDU (section 11.17). One that has taken its CmdSN gives it back: a request
    /// that is rejected was never received, whatever the reason (section 7.3).
    #[cold]
    pub(super) fn reject(&mut self, bhs: &Bhs, reason: RejectReason, is_numbered: bool) {
        if is_numbered {
            self.await_retransmission(bhs);
        }
        self.reject_with(bhs, reason, 0);
    }

    /// The same, with the number of the next Data-In or R2T PDU of its task.
    pub(super) fn reject_with(&mut self, bhs: &Bhs, reason: RejectReason, data_sn: u32) {
        self.log_reject(bhs.opcode(), bhs.itt.get(), reason);
        let reject = Reject {
            flags: flags::FINAL,
            reason: reason as u8,
            itt: TAG_NONE.into(),
            data_sn: data_sn.into(),
            ..Reject::new()
        };
        self.push(Control::new(reject.as_bytes(), bhs.as_bytes().to_vec()));
    }

    /// NOP-Out without data that is kept (section 11.18).
    pub(super) fn nop_out(&mut self, request: &NopOut, holds_window: bool) {
        if request.itt.get() == TAG_NONE {
            if self.keep_alive.asked == Some(request.ttt.get()) {
                self.keep_alive.asked = None;
            }
            if holds_window {
                self.session.borrow_mut().ended();
            }
            return;
        }
        let answer = NopIn {
            flags: flags::FINAL,
            lun: request.lun,
            itt: request.itt,
            ttt: TAG_NONE.into(),
            ..NopIn::new()
        };
        self.push(Control {
            holds_window,
            ..Control::new(answer.as_bytes(), Vec::new())
        });
    }

    /// Asks the initiator whether it is there. Unless it answers within the
    /// [`Role::nop_timeout`](super::ConnectionRole), the connection ends.
    pub fn ping(&mut self) {
        if !self.is_open() || self.keep_alive.asked.is_some() {
            return;
        }
        let ttt = self.keep_alive.ttt;
        self.keep_alive.ttt = (ttt + 1) & 0x7fff_ffff;
        self.keep_alive.asked = Some(ttt);
        self.announce(ttt);
    }

    /// A NOP-In of our own, which shows the numbers as they are now.
    pub(super) fn announce(&mut self, ttt: u32) {
        self.push(nop_in(ttt));
    }

    /// Sends an Asynchronous Message (section 11.9): `parameters` are
    /// Parameter1, 2 and 3; `lun` is that of the events that concern one, else
    /// 0; `sense` goes with [`AsyncEvent::Scsi`].
    pub fn send_async(&mut self, event: AsyncEvent, lun: u64, parameters: [u16; 3], sense: &[u8]) {
        if !self.is_open() {
            return;
        }
        let [parameter1, parameter2, parameter3] = parameters.map(Into::into);
        let message = AsyncMessage {
            flags: flags::FINAL,
            lun: lun.to_be_bytes(),
            itt: TAG_NONE.into(),
            async_event: event as u8,
            parameter1,
            parameter2,
            parameter3,
            ..AsyncMessage::new()
        };
        let mut data = Vec::new();
        if !sense.is_empty() {
            data.extend((sense.len() as u16).to_be_bytes());
            data.extend(sense);
        }
        self.push(Control::new(message.as_bytes(), data));
    }

    /// The answer to [`Op::Logout`](super::TargetOp::Logout): `last` if it was this
    /// connection, or its session, that was closed; the connection then ends.
    /// The times are Time2Wait and Time2Retain in seconds.
    pub fn logout_answer(&mut self, response: LogoutResponseCode, last: bool, times_s: (u16, u16)) {
        if !self.is_open() {
            return;
        }
        assert_eq!(self.hold, Hold::Answer, "no logout is to be answered");
        self.hold = Hold::None;
        self.was_held = true;
        let (request, holds_window) = self.logout;
        self.push_logout(&request, response, times_s, holds_window, last);
        if last {
            self.phase = ConnectionPhase::Closing;
        }
    }

    pub(super) fn push_logout(
        &mut self,
        request: &LogoutRequest,
        response: LogoutResponseCode,
        (time2wait, time2retain): (u16, u16),
        holds_window: bool,
        is_last: bool,
    ) {
        let answer = LogoutResponse {
            flags: flags::FINAL,
            response: response as u8,
            itt: request.itt,
            time2wait: time2wait.into(),
            time2retain: time2retain.into(),
            ..LogoutResponse::new()
        };
        self.push(Control {
            holds_window,
            is_last,
            ..Control::new(answer.as_bytes(), Vec::new())
        });
    }

    /// The initiator is there: something of it has come, or waits unread as its driver receives
    /// nothing now, and may be the answer to a NOP-In.
    pub fn note_alive(&mut self) {
        self.keep_alive.heard = true;
    }

    /// A deadline that may be before all others.
    #[cold]
    pub(super) fn look_by(&mut self, at: Nanos) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    /// A deadline has passed.
    #[cold]
    pub(super) fn check_deadlines(&mut self, now: Nanos) {
        if self.phase != ConnectionPhase::FullFeature {
            return self.fail(FatalError::LoginTimeout);
        }
        let lost_until = self.lost_until();
        if lost_until.is_some_and(|until| now >= until) {
            let cmd_sn = self.session.borrow().exp_cmd_sn();
            let expected = cmd_sn;
            return self.fail(FatalError::CmdSnGap { cmd_sn, expected });
        }
        let turn_at = match self.hold {
            Hold::Turn(cmd_sn, since) => Some((cmd_sn, since.saturating_add(ORDER_TIMEOUT))),
            _ => None,
        };
        if let Some((cmd_sn, at)) = turn_at
            && now >= at
        {
            let expected = self.session.borrow().exp_cmd_sn();
            return self.fail(FatalError::CmdSnGap { cmd_sn, expected });
        }
        let KeepAlive {
            interval,
            timeout,
            heard,
            asked,
            next_at,
            ..
        } = self.keep_alive;
        if interval > 0 && now >= next_at {
            // What waits unread may be the answer.
            let is_alive = heard || self.is_held();
            let wait = match asked {
                Some(_) if !is_alive => return self.fail(FatalError::KeepAlive),
                None if !is_alive => {
                    self.ping();
                    timeout
                }
                _ => interval,
            };
            self.keep_alive.heard = false;
            self.keep_alive.next_at = now.saturating_add(wait);
        }
        let nop_at = (interval > 0).then_some(self.keep_alive.next_at);
        let all = [nop_at, turn_at.map(|(_, at)| at), lost_until];
        self.deadline = all.into_iter().flatten().min();
    }
}

/// A NOP-In that answers no NOP-Out.
pub(super) fn nop_in(ttt: u32) -> Control {
    let nop = NopIn {
        flags: flags::FINAL,
        itt: TAG_NONE.into(),
        ttt: ttt.into(),
        ..NopIn::new()
    };
    Control {
        has_status: false,
        ..Control::new(nop.as_bytes(), Vec::new())
    }
}
