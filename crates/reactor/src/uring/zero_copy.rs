//! Sends that leave the payload where it lies until the peer has it.
//!
//! A send is answered when the kernel has taken it, and its memory is free
//! when the kernel notifies of that too. A flight is one batch on that way.
//!
//! The kernel holds the pages of every such send, which it looks up, unless the
//! payload lies in a registered buffer. A request names one of those, and
//! headers lie in none, so such a batch is a chain of requests: headers, which
//! are copied, and the payload. (Requests with a list of pieces inside of one
//! registered buffer are not used: they came with Linux 6.15, and until 6.18
//! the kernel let go of the buffer when it had taken the send.)

use super::request::Request;
use super::socket::Flight;
use super::{CompletionKind, UringDriver, errno, is_transient, user_data};
use crate::batch::{Batch, BatchPiece};
use crate::types::{Completion, DriverConfig, Token};
use io_uring::types::Fixed;
use io_uring::{Probe, cqueue, opcode, squeue};
use rustix::io::Errno;
use std::io;
use std::sync::Once;

const REPORT_USAGE: u16 = 1 << 3;
const USAGE_COPIED: u32 = 1 << 31;
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
/// Headers, payload, and what follows it.
const CHAIN_MAX: usize = 3;

/// The threshold that is asked for, where the kernel has what it takes.
pub(super) fn min_bytes(config: &DriverConfig, probe: &Probe) -> Option<u32> {
    static SAID: Once = Once::new();
    let wanted = config.zero_copy_min_bytes?;
    let codes = [opcode::SendMsgZc::CODE, opcode::SendZc::CODE];
    if codes.iter().all(|&code| probe.is_supported(code)) {
        return Some(wanted);
    }
    SAID.call_once(|| tracing::warn!("no zero-copy sends: this kernel has no SENDMSG_ZC"));
    None
}

/// Whether a zero-copy send cannot be, here or now, where a plain one can: no
/// room under the limit on locked memory, or a socket that cannot do it.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOBUFS | Errno::NOMEM | Errno::OPNOTSUPP | Errno::FAULT)
    )
}

impl UringDriver {
    /// Sends a batch whose payload stays where it is until the notification.
    pub(super) fn send_zero_copy(&mut self, index: u32, batch: Box<Batch>, token: Token) {
        self.sockets[index as usize].zero_copy = true;
        self.counters.zero_copy_sends += 1;
        let is_chain = batch.has_pieces_of(self.registered_min_bytes);
        let payload = batch.only_payload().filter(|_| is_chain);
        let flight = self.flights.insert(Flight {
            socket: index,
            token,
            batch,
            notifications: 0,
            unanswered: 0,
            error: None,
            is_plain: false,
            is_answered: false,
        });
        match payload.and_then(|at| self.registered.find(&self.ring, at)) {
            Some(buffer) => self.submit_chain(flight, buffer),
            None => self.submit_flight(flight),
        }
    }

    /// What is left of a flight, in one request.
    fn submit_flight(&mut self, flight_index: u32) {
        let flight = self.flights.get(flight_index);
        let index = Fixed(flight.socket);
        let message = flight.batch.message();
        let entry = if flight.is_plain {
            opcode::SendMsg::new(index, message)
                .flags(SEND_FLAGS as u32)
                .build()
        } else {
            opcode::SendMsgZc::new(index, message)
                .flags(SEND_FLAGS as u32)
                .ioprio(REPORT_USAGE)
                .build()
        };
        // SAFETY: the flight holds the batch until the last notification.
        let request = unsafe { Request::pointing(entry) };
        self.push_of_flight(flight_index, request);
    }

    /// A flight of one payload, which lies in a registered buffer.
    fn submit_chain(&mut self, flight_index: u32, buffer: u16) {
        // Else a part of the chain might be submitted, and end, alone.
        if let Err(error) = self.ring.make_room(CHAIN_MAX) {
            panic!("the ring takes no more: {error}");
        }
        self.counters.zero_copy_registered += 1;
        let flight = self.flights.get(flight_index);
        let (index, pieces) = (Fixed(flight.socket), flight.batch.pieces());
        let mut chain: [Option<Request>; CHAIN_MAX] = [const { None }; CHAIN_MAX];
        for (at, piece) in flight.batch.pieces_left().enumerate() {
            let (base, len) = piece.address();
            let is_last = at + 1 == pieces;
            let flags = SEND_FLAGS | if is_last { 0 } else { libc::MSG_MORE };
            let entry = match piece {
                BatchPiece::Payload(_) => opcode::SendZc::new(index, base, len as u32)
                    .buf_index(Some(buffer))
                    .flags(flags)
                    .zc_flags(REPORT_USAGE)
                    .build(),
                BatchPiece::Header(_) => opcode::Send::new(index, base, len as u32)
                    .flags(flags)
                    .build(),
            };
            let linked = if is_last {
                entry
            } else {
                entry.flags(squeue::Flags::IO_LINK)
            };
            // SAFETY: the flight holds the batch until the last notification.
            chain[at] = Some(unsafe { Request::pointing(linked) });
        }
        for request in chain.into_iter().flatten() {
            self.push_of_flight(flight_index, request);
        }
    }

    fn push_of_flight(&mut self, flight_index: u32, request: Request) {
        let flight = self.flights.get(flight_index);
        flight.unanswered += 1;
        self.sockets[flight.socket as usize].owed += 1;
        let data = user_data(CompletionKind::SendZeroCopy, 0, flight_index);
        self.push(request, data);
    }

    pub(super) fn on_flight(
        &mut self,
        flight_index: u32,
        entry: &cqueue::Entry,
        out: &mut Vec<Completion>,
    ) {
        let flight = self.flights.get(flight_index);
        let index = flight.socket;
        let socket = &mut self.sockets[index as usize];
        let has_more = cqueue::more(entry.flags());
        if !has_more {
            socket.owed -= 1;
        }
        if cqueue::notif(entry.flags()) {
            flight.notifications -= 1;
            let copied = entry.result() as u32 & USAGE_COPIED != 0;
            self.counters.zero_copy_copied += u64::from(copied);
            self.counters.zero_copy_given_up += u64::from(socket.worth.notice(copied));
        } else {
            flight.notifications += u32::from(has_more);
            self.answer_flight(flight_index, entry.result(), out);
        }
        let flight = self.flights.get(flight_index);
        if flight.is_answered && flight.unanswered == 0 && flight.notifications == 0 {
            let flight = self.flights.take(flight_index);
            self.recycle(flight.batch);
        }
        self.finish_if_quiet(index);
    }

    /// One request of a flight was answered. Those of a chain are in their
    /// order, and after one that failed or was short the others are canceled.
    fn answer_flight(&mut self, flight_index: u32, result: i32, out: &mut Vec<Completion>) {
        let flight = self.flights.get(flight_index);
        flight.unanswered -= 1;
        match errno(result) {
            Ok(bytes) => {
                self.counters.send_bytes += u64::from(bytes);
                flight.batch.advance(u64::from(bytes));
            }
            Err(error) => {
                flight.error.get_or_insert(error);
            }
        }
        if flight.unanswered > 0 {
            return;
        }
        let socket = &mut self.sockets[flight.socket as usize];
        let is_closing = socket.closing.is_some();
        let error = flight.error.take();
        if !is_closing && !flight.batch.is_empty() {
            let is_refused = error.as_ref().is_some_and(is_refusal) && !flight.is_plain;
            let is_short = match &error {
                None => true,
                // Of a chain whose first request was short.
                Some(error) => {
                    let is_canceled = Errno::from_io_error(error) == Some(Errno::CANCELED);
                    is_canceled || is_transient(error)
                }
            };
            if is_refused || is_short {
                flight.is_plain |= is_refused;
                self.counters.zero_copy_refused += u64::from(is_refused);
                self.counters.partial_sends += u64::from(is_short);
                return self.submit_flight(flight_index);
            }
        }
        flight.is_answered = true;
        socket.zero_copy = false;
        self.counters.sends += 1;
        let token = flight.token;
        if !is_closing {
            let result = error.map_or(Ok(()), Err);
            out.push(Completion::Sent { token, result });
        }
    }
}
