//! What a device server remembers for one I_T_L nexus.

use wire::scsi::{key, opcode};

use crate::sense::{Attention, Sense, Specific};

/// Unit attentions that wait on one nexus at most; of further ones the overflow
/// is told.
pub const ATTENTIONS_MAX: usize = 8;

/// One initiator, one target port, one logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nexus {
    waiting: [Option<Attention>; ATTENTIONS_MAX],
    has_overflowed: bool,
}

impl Nexus {
    /// One without unit attentions.
    pub const fn new() -> Nexus {
        Nexus {
            waiting: [None; ATTENTIONS_MAX],
            has_overflowed: false,
        }
    }

    /// Establishes a unit attention condition. One that waits already is not
    /// repeated; one of a reset clears all others, and goes before them (SAM-5,
    /// section 5.14.4).
    pub fn post(&mut self, attention: Attention) {
        if self.waiting.contains(&Some(attention)) {
            return;
        }
        if attention.is_reset() {
            let first = self.waiting[0].filter(|first| first.is_reset());
            // Of several resets the one that says most: the lowest code.
            let first = first.map_or(attention, |first| {
                if first.code() < attention.code() {
                    first
                } else {
                    attention
                }
            });
            *self = Nexus::new();
            self.waiting[0] = Some(first);
            return;
        }
        match self.waiting.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(attention),
            None => self.has_overflowed = true,
        }
    }

    /// Takes back a condition that is over before it was reported.
    pub fn clear(&mut self, attention: Attention) {
        if let Some(at) = self.waiting.iter().position(|w| *w == Some(attention)) {
            self.waiting[at..].rotate_left(1);
            self.waiting[ATTENTIONS_MAX - 1] = None;
        }
    }

    /// The condition that is reported next.
    #[inline]
    pub fn pending(&self) -> Option<Attention> {
        self.waiting[0]
    }

    /// What ends a command before it begins: the oldest unit attention, which is
    /// over when it was reported (UA_INTLCK_CTRL is 00b). INQUIRY, REPORT LUNS,
    /// REQUEST SENSE and NOTIFY DATA TRANSFER DEVICE are not ended (SAM-5, section
    /// 5.14.5).
    #[inline]
    pub fn intercept(&mut self, operation_code: u8) -> Option<Sense> {
        self.waiting[0]?;
        self.report(operation_code)
    }

    #[cold]
    fn report(&mut self, operation_code: u8) -> Option<Sense> {
        /// NOTIFY DATA TRANSFER DEVICE (of ADC-3).
        const NOTIFY_DATA_TRANSFER_DEVICE: u8 = 0x9f;
        match operation_code {
            opcode::INQUIRY
            | opcode::REPORT_LUNS
            | opcode::REQUEST_SENSE
            | NOTIFY_DATA_TRANSFER_DEVICE => None,
            _ => self.take(),
        }
    }

    /// Takes the condition that is reported next, as sense data: what REQUEST
    /// SENSE does.
    pub fn take(&mut self) -> Option<Sense> {
        let first = self.waiting[0].take()?;
        self.waiting.rotate_left(1);
        let mut sense = Sense::new(key::UNIT_ATTENTION, first.code());
        if core::mem::take(&mut self.has_overflowed) {
            sense.specific = Specific::Overflow;
        }
        Some(sense)
    }
}
