//! What the machine above sees of the batches that its stream fills.

use machine::{Tag, Tail, Transmit};

/// A batch on another: payload and tags that are released go the way of the machine above.
pub struct UpperBatch<'a, T, P, R> {
    /// Where all else goes.
    pub out: &'a mut T,
    /// As [`Transmit::payload`].
    pub payload: P,
    /// As [`Transmit::release`]: which tags the driver may forget, the stream does not know.
    pub release: R,
}

impl<T, P, R> Transmit for UpperBatch<'_, T, P, R>
where
    T: Transmit,
    P: FnMut(&mut T, Tag, u32, u32, Tail),
    R: FnMut(Tag),
{
    #[inline]
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    #[inline]
    fn header_room(&self) -> usize {
        self.out.header_room()
    }

    #[inline]
    fn header(&mut self, bytes: &[u8]) {
        self.out.header(bytes);
    }

    #[inline]
    fn payload(&mut self, tag: Tag, offset: u32, len: u32, tail: Tail) {
        (self.payload)(self.out, tag, offset, len, tail);
    }

    #[inline]
    fn release(&mut self, tag: Tag) {
        (self.release)(tag);
    }
}
