//! NVMe/RDMA over iWARP (NVM Express RDMA Transport Specification 1.0): a queue pair is a
//! stream, a capsule is a Send, and the controller moves data of commands by RDMA Reads and
//! Writes of the host's memory.

pub mod controller;
pub mod host;

pub use iwarp::{CrcPolicy, QpCounts, QpSettings, ulpdu_max};

use machine::{Tag, Tail, Transmit};

/// A batch whose released tags are told to the queue pair: which tags the driver may
/// forget, the stream does not know.
struct ReleaseBatch<'a, T, F> {
    out: &'a mut T,
    on_release: F,
}

impl<T: Transmit, F: FnMut(Tag)> Transmit for ReleaseBatch<'_, T, F> {
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    fn header_room(&self) -> usize {
        self.out.header_room()
    }

    fn header(&mut self, bytes: &[u8]) {
        self.out.header(bytes);
    }

    fn payload(&mut self, tag: Tag, offset: u32, len: u32, tail: Tail) {
        self.out.payload(tag, offset, len, tail);
    }

    fn release(&mut self, tag: Tag) {
        (self.on_release)(tag);
    }
}
