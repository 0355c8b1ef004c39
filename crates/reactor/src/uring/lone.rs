//! A receive and a send that are made by hand while the reactor spins.
//!
//! One small command, one answer, one small command: such a socket gains
//! nothing from batches and pays twice for the ring, once to arm a poll for
//! every receive and once to run what the poll defers. While the reactor spins
//! anyway, the receive of one such socket is kept back from the ring and tried
//! with a plain system call every turn; before a sleep it goes to the ring. Its
//! sends are plain calls too.

use super::{UringDriver, is_transient};
use crate::receive::receive;
use crate::types::{Completion, Wait};
use mem::Stage;

/// A socket whose last receive brought at most this many bytes plays
/// ping-pong, if its last batch was one PDU.
const RECV_BYTES_MAX: u32 = 8 << 10;

/// The receive that is kept back, if any.
#[derive(Default)]
pub(super) struct Lone {
    index: Option<u32>,
    /// Kept from try to try.
    stage: Option<Stage>,
    is_spinning: bool,
    found_nothing: bool,
    pub(super) syscalls: u64,
}

impl Lone {
    /// A poll begins. Two in a row that may not sleep, the first of which found
    /// nothing, are a spin.
    #[inline]
    pub(super) fn begin(&mut self, wait: Wait) {
        self.is_spinning = match wait {
            Wait::Now => self.is_spinning || self.found_nothing,
            Wait::Until(_) => false,
        };
    }

    /// A poll that did not sleep has ended.
    #[inline]
    pub(super) fn end(&mut self, wait: Wait, found_nothing: bool) {
        self.found_nothing = found_nothing && wait == Wait::Now;
    }

    /// The socket is being closed.
    #[inline]
    pub(super) fn forget(&mut self, index: u32) {
        if self.index == Some(index) {
            self.index = None;
        }
    }
}

impl UringDriver {
    /// Keeps the receive of a socket back, if that pays; else submits it.
    #[inline]
    pub(super) fn keep_or_submit(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        let pays = self.lone.is_spinning
            && self.lone.index.is_none()
            && socket.is_lone
            && !socket.has_more
            && socket.last_recv_bytes <= RECV_BYTES_MAX;
        if pays {
            self.lone.index = Some(index);
        } else {
            self.submit_recv(index);
        }
    }

    /// Sends at once, if that pays; what the kernel does not take at once, or
    /// fails to, goes to the ring.
    #[inline]
    pub(super) fn send_or_submit(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if self.lone.is_spinning && socket.is_lone {
            let fd = socket.fd.as_ref().expect("it has a socket");
            let send = socket.send.as_mut().expect("a send is under way");
            self.lone.syscalls += 1;
            if let Ok(bytes @ 1..) = send.batch.send(fd, libc::MSG_DONTWAIT) {
                let mut ready = std::mem::take(&mut self.ready);
                self.on_send(index, bytes as i32, &mut ready);
                self.ready = ready;
                return;
            }
        }
        self.submit_send(index);
    }

    /// Gives the receive that is kept back to the ring.
    #[inline]
    pub(super) fn submit_lone(&mut self) {
        if let Some(index) = self.lone.index.take() {
            self.lone.stage = None;
            self.submit_recv(index);
        }
    }

    /// Tries the receive that is kept back.
    #[inline]
    pub(super) fn try_lone(&mut self, out: &mut Vec<Completion>) {
        let Some(index) = self.lone.index else {
            return;
        };
        let socket = &mut self.sockets[index as usize];
        let recv = socket.recv.as_mut().expect("a receive is kept back");
        let fd = socket.fd.as_ref().expect("it has a socket");
        let mut picked = None;
        if recv.picks() {
            picked = self.lone.stage.take().or_else(|| self.pool.stage());
            if picked.is_none() {
                // The ring knows how to wait for memory.
                return self.submit_lone();
            }
        }
        self.lone.syscalls += 1;
        let stage = picked.as_mut().or(recv.stage.as_mut());
        let flags = libc::MSG_DONTWAIT;
        let result = match receive(fd, recv.direct, stage, recv.stage_max, flags) {
            Err(error) if is_transient(&error) => {
                self.lone.stage = picked;
                return;
            }
            result => result,
        };
        self.lone.index = None;
        let bytes = *result.as_ref().unwrap_or(&0);
        if let Some(stage) = &mut picked {
            stage.advance(bytes);
        }
        let result = result.map(|bytes| bytes as u32);
        self.deliver(index, result, picked.filter(|_| bytes > 0), out);
    }
}
