//! A view of the sixteen bytes of a CDB.

/// A CDB; what is shorter is padded with zeros.
#[derive(Clone, Copy)]
pub(crate) struct Cdb<'a>(pub &'a [u8; 16]);

impl Cdb<'_> {
    #[inline]
    pub fn byte(self, at: usize) -> u8 {
        self.0[at]
    }

    #[inline]
    pub fn bit(self, at: usize, bit: u8) -> bool {
        self.0[at] >> bit & 1 != 0
    }

    #[inline]
    pub fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    #[inline]
    pub fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    #[inline]
    pub fn u64(self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    /// The service action where most commands have it.
    #[inline]
    pub fn service_action(self) -> u8 {
        self.0[1] & 0x1f
    }
}

/// Leaves no more than `max` bytes behind `start`: the allocation length of a CDB.
pub(crate) fn cut(out: &mut Vec<u8>, start: usize, max: u64) {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    out.truncate(start.saturating_add(max));
}
