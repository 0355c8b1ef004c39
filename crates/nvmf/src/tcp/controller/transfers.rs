//! Data on its way from the host: of each command, and of each R2T.

use machine::Tag;

/// The data of a command, from when the driver was asked for its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Incoming {
    /// Bytes in all.
    pub len: u32,
    /// Bytes that were in the capsule or asked for.
    pub asked: u32,
    /// Bytes whose PDU has begun.
    pub received: u32,
    /// R2Ts sent whose data is not all here.
    pub r2ts: u8,
    /// It waits for its turn to be asked for.
    pub is_queued: bool,
}

/// The data that one R2T asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// The command.
    pub tag: Tag,
    /// First byte that the R2T asked for.
    pub start: u32,
    /// Next byte to come.
    pub next: u32,
    /// Bytes whose PDU has not begun; 0 in a free place.
    pub left: u32,
}

/// Transfers by transfer tag. The table grows with the R2Ts outstanding.
#[derive(Debug)]
pub(super) struct Transfers {
    table: Vec<Transfer>,
    free: Vec<u16>,
}

impl Transfers {
    pub(super) fn new() -> Transfers {
        Transfers {
            table: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Whether a command that has an R2T outstanding may have one more: each of
    /// `entries` commands must be able to have its first.
    pub(super) fn has_extra(&self, entries: usize) -> bool {
        self.table.len() - self.free.len() + entries < usize::from(u16::MAX)
    }

    /// A transfer tag for `len` bytes from byte `start` of the data of `tag`.
    #[inline]
    pub(super) fn take(&mut self, tag: Tag, start: u32, len: u32) -> u16 {
        let transfer = Transfer {
            tag,
            start,
            next: start,
            left: len,
        };
        match self.free.pop() {
            Some(ttag) => {
                self.table[usize::from(ttag)] = transfer;
                ttag
            }
            None => {
                self.table.push(transfer);
                u16::try_from(self.table.len() - 1).expect("has_extra bounds them")
            }
        }
    }

    /// The transfer of a tag that is in use.
    #[inline]
    pub(super) fn get(&self, ttag: u16) -> Option<Transfer> {
        let transfer = self.table.get(usize::from(ttag));
        transfer.filter(|transfer| transfer.left > 0).copied()
    }

    /// `len` bytes of it begin; whether they are its last, which frees the tag.
    #[inline]
    pub(super) fn advance(&mut self, ttag: u16, len: u32) -> bool {
        let transfer = &mut self.table[usize::from(ttag)];
        transfer.next += len;
        transfer.left -= len;
        let is_last = transfer.left == 0;
        if is_last {
            self.free.push(ttag);
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_used_again() {
        let mut transfers = Transfers::new();
        assert_eq!((transfers.take(5, 0, 8), transfers.take(5, 8, 4)), (0, 1));
        assert!(!transfers.advance(0, 4));
        let expected = Transfer {
            tag: 5,
            start: 0,
            next: 4,
            left: 4,
        };
        assert_eq!(transfers.get(0), Some(expected));
        assert!(transfers.advance(0, 4));
        assert_eq!((transfers.get(0), transfers.get(2)), (None, None));
        assert_eq!(transfers.take(6, 0, 1), 0);
    }

    #[test]
    fn first_requests_always_find_a_tag() {
        let mut transfers = Transfers::new();
        let entries = 4096;
        while transfers.has_extra(entries) {
            transfers.take(0, 0, 4);
        }
        for _ in 0..entries {
            transfers.take(1, 0, 4);
        }
        assert!(transfers.table.len() <= 1 << 16);
    }
}
