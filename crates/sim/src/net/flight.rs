//! Pieces of streams on their way: what the kernel takes from a sender, and when it is there.

use std::io;

use reactor::{Batch, Completion};

use super::{ECONNRESET, Holder, Piece, StreamCut};
use crate::world::{US, World, WorldEvent};

impl World {
    pub(super) fn schedule_pump(&mut self, connection: usize, end: usize) {
        let delay = self.random.below(US);
        let this = &mut self.net.connections[connection].ends[end];
        if this.send.is_some() && !std::mem::replace(&mut this.pump_scheduled, true) {
            self.after(delay, WorldEvent::Pump(connection, end));
        }
    }

    /// The kernel takes some of what an end sends.
    pub(crate) fn pump(&mut self, connection: usize, end: usize) {
        self.net.connections[connection].ends[end].pump_scheduled = false;
        let Some((driver, socket)) = self.net.socket_of(connection, end) else {
            return;
        };
        let this = &mut self.net.connections[connection].ends[end];
        let Some(send) = this.send.as_ref().filter(|_| this.closing.is_none()) else {
            return;
        };
        let token = send.token;
        if let Some(errno) = this.error {
            let send = this.send.take().expect("looked at above");
            self.net.recycle(driver, send.batch);
            let result = Err(io::Error::from_raw_os_error(errno));
            return self.complete(driver, Some(socket), Completion::Sent { token, result });
        }
        let left = send.batch.len_bytes() as usize;
        let there = &self.net.connections[connection].ends[1 - end];
        let used = there.flight_bytes + there.inbox.len();
        let room = self.net.settings.window_bytes.saturating_sub(used);
        let part = self.part_of(left.min(room));
        if part == 0 {
            // Receives make room and pump again.
            return;
        }
        let this = &mut self.net.connections[connection].ends[end];
        let send = this.send.as_mut().expect("looked at above");
        if self.net.settings.zero_copy && part == left {
            // Let out of hand: what is left is read as it arrives.
            let send = this.send.take().expect("looked at above");
            this.late.push_back(send.batch);
            self.send_piece(connection, end, Piece::Late(part));
            let result = Ok(());
            return self.complete(driver, Some(socket), Completion::Sent { token, result });
        }
        let mut bytes = Vec::with_capacity(part);
        let all = send.batch.take_out(part, &mut bytes);
        let done = all.then(|| this.send.take().expect("looked at above"));
        self.send_piece(connection, end, Piece::Bytes(bytes));
        match done {
            Some(send) => {
                self.net.recycle(driver, send.batch);
                let result = Ok(());
                self.complete(driver, Some(socket), Completion::Sent { token, result });
            }
            None => self.schedule_pump(connection, end),
        }
    }

    /// Something leaves an end for the other.
    pub(super) fn send_piece(&mut self, connection: usize, from: usize, piece: Piece) {
        let latency = self.net.settings.latency;
        let flight = self.random.around(latency);
        let now = self.now;
        let link = &mut self.net.connections[connection];
        if link.is_dead {
            if let Piece::Late(_) = piece {
                link.ends[from].late.clear();
            }
            return;
        }
        let to = &mut link.ends[1 - from];
        let last = to.flight.back().map_or(0, |(at, _)| *at);
        let at = (now + flight).max(last).max(to.stalled_until);
        to.flight_bytes += match &piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Late(len) => *len,
            Piece::Fin | Piece::Reset => 0,
        };
        to.flight.push_back((at, piece));
        self.at(at, WorldEvent::Arrive(connection, 1 - from));
    }

    /// Whether a bit of what arrives now is flipped: which one, by chance.
    fn draw_flipped_bit(&mut self, connection: usize) -> Option<u64> {
        let is_exposed = self.net.connections[connection].is_exposed;
        let flips = is_exposed && self.random.one_in(self.net.settings.flips);
        flips.then(|| self.random.next_u64())
    }

    /// What has come to an end is there.
    pub(crate) fn deliver_due(&mut self, connection: usize, end: usize) {
        let now = self.now;
        let keeps = self.random.percent(50);
        let flip = self.draw_flipped_bit(connection);
        let was = self.net.connections[connection].ends[end].inbox.len();
        let link = &mut self.net.connections[connection];
        if link.is_dead {
            return;
        }
        let [a, b] = &mut link.ends;
        let (this, that) = if end == 0 { (a, b) } else { (b, a) };
        let mut is_unwanted = false;
        while this.flight.front().is_some_and(|(at, _)| *at <= now) {
            let (_, piece) = this.flight.pop_front().expect("looked at");
            let is_closed = this.holder == Holder::Closed;
            match piece {
                Piece::Bytes(bytes) => {
                    this.flight_bytes -= bytes.len();
                    is_unwanted |= is_closed;
                    this.inbox.extend(bytes);
                }
                Piece::Late(len) => {
                    this.flight_bytes -= len;
                    is_unwanted |= is_closed;
                    let mut batch = that.late.pop_front().expect("one for each piece");
                    let mut bytes = Vec::with_capacity(len);
                    batch.take_out(len, &mut bytes);
                    batch.clear();
                    this.inbox.extend(bytes);
                }
                Piece::Fin => this.has_fin = true,
                Piece::Reset => {
                    this.error = Some(ECONNRESET);
                    if !keeps {
                        this.inbox.clear();
                    }
                    that.late.clear();
                    this.flight.clear();
                    this.flight_bytes = 0;
                }
            }
        }
        if is_unwanted {
            this.inbox.clear();
            self.send_piece(connection, end, Piece::Reset);
            return;
        }
        let new = this.inbox.len().saturating_sub(was) as u64;
        if let Some(watches) = &mut link.watches {
            // The host always speaks TLS; it may meet a target that does not.
            let came: Vec<u8> = this.inbox.iter().skip(was).copied().collect();
            let told = watches[1 - end].take(&came, end == 1);
            assert!(
                told.is_ok(),
                "connection {connection} by TLS: a record is {told:?}"
            );
        }
        if let Some(flip) = flip
            && new > 0
        {
            let (byte, bit) = (was + (flip % new) as usize, flip >> 32 & 7);
            self.flip_bit(connection, end, (byte, bit));
        }
        self.cut(connection, end, new);
        self.try_receive(connection, end, 0);
        if self.net.connections[connection].ends[end].error.is_some() {
            self.schedule_pump(connection, end);
        }
    }

    /// A bit of what has come to an end is another.
    fn flip_bit(&mut self, connection: usize, end: usize, (byte, bit): (usize, u64)) {
        let link = &mut self.net.connections[connection];
        link.ends[end].inbox[byte] ^= 1 << bit;
        link.is_damaged = true;
        let maker = link.maker;
        self.net.drivers[maker].flips += 1;
        self.trace(|| format!("connection {connection}: a bit is flipped on its way to {end}"));
    }

    /// `new` bytes have come to an end: behind some of them its stream may be cut.
    fn cut(&mut self, connection: usize, end: usize, new: u64) {
        let this = &mut self.net.connections[connection].ends[end];
        this.arrived += new;
        let excess = |cut: StreamCut| this.arrived.checked_sub(cut.at);
        let is_here = |cut: &StreamCut| (cut.connection, cut.end) == (connection, end);
        if let Some(excess) = self.net.settings.cut.filter(is_here).and_then(excess) {
            let left = this.inbox.len().saturating_sub(excess as usize);
            this.inbox.truncate(left);
            self.net.settings.cut = None;
            self.reset(connection);
        }
    }

    /// Reads the bytes that pieces on their way to `to` still only name.
    #[allow(clippy::vec_box)] // as they came
    pub(super) fn settle_late(&mut self, connection: usize, to: usize, batches: Vec<Box<Batch>>) {
        let mut batches = batches.into_iter();
        for (_, piece) in &mut self.net.connections[connection].ends[to].flight {
            if let Piece::Late(len) = *piece
                && let Some(mut batch) = batches.next()
            {
                let mut bytes = Vec::with_capacity(len);
                batch.take_out(len, &mut bytes);
                batch.clear();
                *piece = Piece::Bytes(bytes);
            }
        }
    }
}
