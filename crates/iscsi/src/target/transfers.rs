//! Sequences of Data-Out PDUs that the initiator owes.

use machine::Tag;

/// The place in a table that none has.
pub(super) const NO_TRANSFER: u16 = u16::MAX;

/// A sequence of Data-Out PDUs: the unsolicited data of a command, or what one
/// R2T asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// The command.
    pub tag: Tag,
    /// Which of the successive tenants of its place.
    generation: u16,
    is_open: bool,
    /// First byte.
    pub start: u32,
    /// Next byte to come.
    pub next: u32,
    /// Byte behind the last.
    pub end: u32,
    /// DataSN of the next PDU.
    pub data_sn: u32,
    /// R2TSN of the R2T that asked for it.
    pub r2t_sn: u32,
}

/// What a Target Transfer Tag leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The sequence at this place.
    Open(u16),
    /// One that ended, or whose command was given up.
    Over,
    /// None was ever given out.
    Unknown,
}

/// Sequences by Target Transfer Tag: the low bits are the place in the table, the high
/// bits count its uses, so that late data finds no sequence. The table grows with the
/// sequences outstanding.
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

    /// Whether a command that has a sequence may have one more: each of
    /// `tasks_max` commands must be able to have its first.
    #[inline]
    pub(super) fn has_extra(&self, tasks_max: usize) -> bool {
        self.table.len() - self.free.len() < usize::from(NO_TRANSFER) - tasks_max
    }

    /// A place for the bytes from `start` to `end` of the data of `tag`.
    #[inline]
    pub(super) fn take(&mut self, tag: Tag, start: u32, end: u32, r2t_sn: u32) -> u16 {
        let transfer = Transfer {
            tag,
            generation: 0,
            is_open: true,
            start,
            next: start,
            end,
            data_sn: 0,
            r2t_sn,
        };
        if let Some(at) = self.free.pop() {
            let place = &mut self.table[usize::from(at)];
            let generation = place.generation.wrapping_add(1);
            *place = Transfer {
                generation,
                ..transfer
            };
            return at;
        }
        let at = u16::try_from(self.table.len()).expect("has_extra bounds them");
        assert!(at < NO_TRANSFER, "has_extra bounds them");
        self.table.push(transfer);
        at
    }

    /// The Target Transfer Tag of a place.
    #[inline]
    pub(super) fn ttt(&self, at: u16) -> u32 {
        u32::from(self.table[usize::from(at)].generation) << 16 | u32::from(at)
    }

    /// What `ttt` leads to.
    #[inline]
    pub(super) fn find(&self, ttt: u32) -> Found {
        let at = ttt as u16;
        match self.table.get(usize::from(at)) {
            None => Found::Unknown,
            Some(place) if place.is_open && u32::from(place.generation) == ttt >> 16 => {
                Found::Open(at)
            }
            Some(_) => Found::Over,
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u16) -> Transfer {
        self.table[usize::from(at)]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u16) -> &mut Transfer {
        &mut self.table[usize::from(at)]
    }

    /// The sequence ended: its tag leads nowhere from now on. The bytes that did
    /// not come.
    #[inline]
    pub(super) fn end(&mut self, at: u16) -> u32 {
        let place = &mut self.table[usize::from(at)];
        debug_assert!(place.is_open);
        place.is_open = false;
        let left = place.end - place.next;
        self.free.push(at);
        left
    }

    /// Places of the sequences of `tag`.
    #[cold]
    pub(super) fn of(&self, tag: Tag) -> Vec<u16> {
        let is_its = |place: &Transfer| place.is_open && place.tag == tag;
        let places = self.table.iter().enumerate();
        let its = places.filter(|(_, place)| is_its(place));
        its.map(|(at, _)| at as u16).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_leads_to_one_sequence_only() {
        let mut transfers = Transfers::new();
        let (a, b) = (transfers.take(5, 0, 8, 0), transfers.take(5, 8, 12, 1));
        let ttt = transfers.ttt(a);
        assert_eq!(transfers.find(ttt), Found::Open(a));
        assert_eq!(transfers.find(transfers.ttt(b)), Found::Open(b));
        assert_eq!(transfers.find(7), Found::Unknown);
        assert_eq!(transfers.of(5), [a, b]);
        transfers.get_mut(a).next = 2;
        assert_eq!(transfers.end(a), 6);
        assert_eq!(transfers.find(ttt), Found::Over);
        assert_eq!(transfers.take(6, 0, 1, 0), a);
        assert_eq!(transfers.find(ttt), Found::Over);
        assert_ne!(transfers.ttt(a), ttt);
        assert_eq!((transfers.of(5), transfers.of(6)), (vec![b], vec![a]));
    }

    #[test]
    fn first_sequences_always_find_a_place() {
        let mut transfers = Transfers::new();
        let tasks_max = 4096;
        while transfers.has_extra(tasks_max) {
            transfers.take(0, 0, 4, 0);
        }
        for _ in 0..tasks_max {
            transfers.take(1, 0, 4, 0);
        }
        assert!(transfers.table.len() < 1 << 16);
    }
}
