//! How connections end: closed, reset, or gone with the process or the machine of a side.

use std::collections::VecDeque;

use reactor::{Completion, SocketId, Token};

use super::{ECONNRESET, Holder, Piece, SlotUse, first};
use crate::world::{DriverId, MS, US, World, WorldEvent};

impl World {
    /// Closes a socket or a listener; it is over with [`Completion::Closed`].
    pub fn close(&mut self, driver: DriverId, socket: SocketId, token: Token) {
        let what = self.net.slot(driver, socket).what;
        // What was ready and not taken is dropped.
        let state = self.net.driver(driver);
        state.ready.retain(|(of, _)| *of != Some(socket));
        match what {
            SlotUse::Free => unreachable!("a place in use"),
            SlotUse::Listener(..) | SlotUse::Attempt(_) => {
                if let SlotUse::Attempt(attempt) = what {
                    self.net.attempts[attempt].from = None;
                }
                self.net.free_slot(driver, socket);
                self.complete(driver, None, Completion::Closed { token });
            }
            SlotUse::End(connection, end) => {
                self.trace(|| format!("connection {connection}: end {end} closes"));
                self.net.connections[connection].ends[end].closing = Some(token);
                // It may not be used any more, but the kernel still may.
                self.net.slot(driver, socket).generation += 1;
                let delay = self.random.around(5 * US);
                self.after(delay, WorldEvent::Closed(connection, end));
            }
        }
    }

    /// The kernel lets go of a closed end.
    pub(crate) fn end_closed(&mut self, connection: usize, end: usize) {
        let Some((driver, socket)) = self.net.socket_of(connection, end) else {
            return;
        };
        let this = &mut self.net.connections[connection].ends[end];
        let Some(token) = this.closing.take() else {
            return;
        };
        if let Some(recv) = this.recv.take()
            && let Some(direct) = recv.direct
        {
            // Until now the kernel may write what it was given.
            let len = direct.len().min(this.inbox.len() as u32);
            let bytes = first(&mut this.inbox, len as usize);
            mem::copy_in(direct.slice(0, len), &bytes);
        }
        let unread = !this.inbox.is_empty() || this.error.is_some();
        let mut partial = false;
        if let Some(send) = this.send.take() {
            partial = true;
            self.net.recycle(driver, send.batch);
        }
        let this = &mut self.net.connections[connection].ends[end];
        // What was let out of hand is read before its memory is given up.
        let late: Vec<_> = this.late.drain(..).collect();
        this.holder = Holder::Closed;
        this.inbox.clear();
        self.settle_late(connection, 1 - end, late);
        let last = if unread || partial {
            Piece::Reset
        } else {
            Piece::Fin
        };
        self.send_piece(connection, end, last);
        let slot = &mut self.net.driver(driver).slots[socket.index() as usize];
        slot.what = SlotUse::Free;
        self.net.driver(driver).free.push(socket.index());
        self.complete(driver, None, Completion::Closed { token });
    }

    /// Breaks a connection for both sides, bytes under way lost.
    pub fn reset(&mut self, connection: usize) {
        self.trace(|| format!("connection {connection}: reset"));
        for end in 0..2 {
            let this = &mut self.net.connections[connection].ends[end];
            this.flight.clear();
            this.flight_bytes = 0;
            this.late.clear();
            this.error.get_or_insert(ECONNRESET);
        }
        for end in 0..2 {
            let delay = self.random.around(self.net.settings.latency);
            self.try_receive(connection, end, delay);
            self.schedule_pump(connection, end);
        }
    }

    /// A driver's process has died. Its kernel closes its connections, or the
    /// machine has gone with it and no other side learns of that.
    pub fn end_driver(&mut self, driver: DriverId, silently: bool) {
        let state = self.net.driver(driver);
        state.ready.clear();
        state.has_failed = false;
        state.free.clear();
        for index in 0..state.slots.len() {
            let state = self.net.driver(driver);
            let slot = &mut state.slots[index];
            slot.generation += 1;
            let what = std::mem::replace(&mut slot.what, SlotUse::Free);
            state.free.push(index as u32);
            match what {
                SlotUse::Free | SlotUse::Listener(..) => {}
                SlotUse::Attempt(attempt) => self.net.attempts[attempt].from = None,
                SlotUse::End(connection, end) => self.end_dies(driver, connection, end, silently),
            }
        }
        for connection in 0..self.net.connections.len() {
            if self.net.connections[connection].ends[1].holder == Holder::Accepted(driver) {
                self.end_dies(driver, connection, 1, silently);
            }
        }
    }

    /// A process has ended: what is still on its way from it is lost, but that
    /// connections are at their end.
    pub fn lose_answers(&mut self) {
        for connection in &mut self.net.connections {
            let [host, target] = &mut connection.ends;
            if target.holder == Holder::Closed && target.late.is_empty() {
                let is_end = |piece: &Piece| matches!(piece, Piece::Fin | Piece::Reset);
                host.flight.retain(|(_, piece)| is_end(piece));
                (host.flight_bytes, host.inbox) = (0, VecDeque::new());
            }
        }
    }

    fn end_dies(&mut self, driver: DriverId, connection: usize, end: usize, silently: bool) {
        let this = &mut self.net.connections[connection].ends[end];
        if this.holder == Holder::Closed {
            return;
        }
        this.holder = Holder::Closed;
        this.closing = None;
        this.recv = None;
        this.inbox.clear();
        let send = this.send.take();
        let late: Vec<_> = this.late.drain(..).collect();
        if silently {
            self.net.connections[connection].is_dead = true;
            // What the machine had sent last is as lost as it is.
            self.net.connections[connection].ends[1 - end].inbox.clear();
            for mut batch in late {
                batch.clear();
            }
        } else {
            self.settle_late(connection, 1 - end, late);
            self.send_piece(connection, end, Piece::Reset);
        }
        if let Some(send) = send {
            self.net.recycle(driver, send.batch);
        }
    }

    /// The machine of a vanished host is back, or another has its address: it
    /// resets connections that it does not know.
    pub fn reset_vanished(&mut self) {
        for connection in 0..self.net.connections.len() {
            if !std::mem::take(&mut self.net.connections[connection].is_dead) {
                continue;
            }
            for end in 0..2 {
                self.net.connections[connection].ends[end].flight.clear();
                self.net.connections[connection].ends[end].flight_bytes = 0;
            }
            for end in 0..2 {
                if self.net.connections[connection].ends[end].holder == Holder::Closed {
                    let delay = self.random.below(10 * MS);
                    self.net.connections[connection].ends[1 - end].stalled_until = self.now + delay;
                    self.send_piece(connection, end, Piece::Reset);
                }
            }
        }
    }
}
