//! PDUs for a machine that reads them from a stream of bytes.

use machine::{Machine, Nanos, Step};

/// What stands for data that is where it belongs already, or goes nowhere.
const ZEROS: [u8; 1024] = [0; 1024];

/// A PDU on its way to a machine that takes it when it can.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Its bytes, and how many of them were taken.
    bytes: Vec<u8>,
    at: usize,
    /// Bytes of data and padding behind them, which are in the memory of the command already
    /// or which nothing needs.
    placed: u32,
}

impl Feed {
    /// A PDU begins, all of which was taken before it.
    pub(super) fn begin(&mut self, bytes: &[u8]) {
        debug_assert!(!self.is_open());
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.at = 0;
    }

    /// Its bytes go on.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `len` bytes of data follow, which have their place.
    pub(super) fn add_placed(&mut self, len: u32) {
        self.placed += len;
    }

    /// Whether something was not taken yet.
    pub(super) fn is_open(&self) -> bool {
        self.has_bytes() || self.placed > 0
    }

    /// Whether bytes of a PDU were not taken yet.
    pub(super) fn has_bytes(&self) -> bool {
        self.at < self.bytes.len()
    }

    /// What comes of what `machine` takes now, or tells besides.
    pub(super) fn poll<M: Machine>(&mut self, machine: &mut M, now: Nanos) -> Option<Step<M::Op>> {
        loop {
            let was_left = (self.at, self.placed);
            let step = if self.has_bytes() {
                machine.poll_step(now, &self.bytes, &mut self.at)
            } else if let Some(direct) = machine.recv_plan().direct
                && self.placed > 0
            {
                let len = direct.len.min(self.placed);
                machine.on_direct(len);
                self.placed -= len;
                None
            } else {
                let len = (self.placed as usize).min(ZEROS.len());
                let mut used = 0;
                let step = machine.poll_step(now, &ZEROS[..len], &mut used);
                self.placed -= used as u32;
                step
            };
            if step.is_some() || was_left == (self.at, self.placed) {
                return step;
            }
        }
    }
}
