//! What a device server remembers for one I_T_L nexus.

use wire::scsi::opcode;

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
    /// repeated. One of a reset or a lost nexus goes before all others, and of
    /// several the one that says most is told: the lowest code (SAM-5, section
    /// 5.14.3).
    pub fn post(&mut self, attention: Attention) {
        if self.waiting.contains(&Some(attention)) {
            return;
        }
        if !attention.is_reset() {
            match self.waiting.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = Some(attention),
                None => self.has_overflowed = true,
            }
            return;
        }
        match self.waiting[0] {
            Some(first) if first.is_reset() => {
                if attention.code() < first.code() {
                    self.waiting[0] = Some(attention);
                }
            }
            _ => {
                self.waiting.rotate_right(1);
                self.has_overflowed |= self.waiting[0].is_some();
                self.waiting[0] = Some(attention);
            }
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
        let mut sense = first.sense();
        if core::mem::take(&mut self.has_overflowed) {
            sense.specific = Specific::Overflow;
        }
        Some(sense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(nexus: &mut Nexus) -> Vec<u16> {
        std::iter::from_fn(|| nexus.take().map(|sense| sense.code)).collect()
    }

    #[test]
    fn each_unit_attention_is_reported_once_and_in_order() {
        let mut nexus = Nexus::new();
        nexus.post(Attention::CAPACITY_CHANGED);
        nexus.post(Attention::LUNS_CHANGED);
        nexus.post(Attention::CAPACITY_CHANGED);
        let sense = nexus.intercept(opcode::READ_10).unwrap();
        assert_eq!((sense.key, sense.code), (6, 0x2a09));
        assert_eq!(nexus.pending(), Some(Attention::LUNS_CHANGED));
        assert_eq!(codes(&mut nexus), [0x3f0e]);
        assert_eq!(nexus.intercept(opcode::READ_10), None);
    }

    #[test]
    fn some_commands_report_no_unit_attention() {
        let mut nexus = Nexus::new();
        nexus.post(Attention::POWER_ON);
        for code in [
            opcode::INQUIRY,
            opcode::REPORT_LUNS,
            opcode::REQUEST_SENSE,
            0x9f,
        ] {
            assert_eq!(nexus.intercept(code), None);
        }
        assert_eq!(codes(&mut nexus), [0x2900]);
    }

    #[test]
    fn a_reset_is_reported_first_and_once() {
        let mut nexus = Nexus::new();
        nexus.post(Attention::MODE_PARAMETERS_CHANGED);
        nexus.post(Attention::plain(0x2907));
        nexus.post(Attention::RESET);
        nexus.post(Attention::CAPACITY_CHANGED);
        nexus.post(Attention::plain(0x2907));
        assert_eq!(codes(&mut nexus), [0x2903, 0x2a01, 0x2a09]);
    }

    #[test]
    fn a_reset_always_finds_a_place() {
        let mut nexus = Nexus::new();
        for code in 0x2a00..0x2a00 + ATTENTIONS_MAX as u16 {
            nexus.post(Attention::plain(code));
        }
        nexus.post(Attention::RESET);
        let first = nexus.take().unwrap();
        assert_eq!((first.code, first.specific), (0x2903, Specific::Overflow));
        assert_eq!(codes(&mut nexus).len(), ATTENTIONS_MAX - 1);
    }

    #[test]
    fn a_cleared_unit_attention_is_not_reported() {
        let mut nexus = Nexus::new();
        let all = [
            Attention::CAPACITY_CHANGED,
            Attention::LUNS_CHANGED,
            Attention::INQUIRY_CHANGED,
        ];
        all.into_iter().for_each(|attention| nexus.post(attention));
        nexus.clear(Attention::LUNS_CHANGED);
        nexus.clear(Attention::RESERVATIONS_PREEMPTED);
        assert_eq!(codes(&mut nexus), [0x2a09, 0x3f03]);
    }

    #[test]
    fn an_overflow_of_unit_attentions_is_reported() {
        let mut nexus = Nexus::new();
        let all = [
            Attention::MODE_PARAMETERS_CHANGED,
            Attention::RESERVATIONS_PREEMPTED,
            Attention::RESERVATIONS_RELEASED,
            Attention::REGISTRATIONS_PREEMPTED,
            Attention::ACCESS_STATE_CHANGED,
            Attention::CAPACITY_CHANGED,
            Attention::plain(0x2f00),
            Attention::plain(0x3807),
            Attention::INQUIRY_CHANGED,
        ];
        all.into_iter().for_each(|attention| nexus.post(attention));
        let first = nexus.take().unwrap();
        assert_eq!((first.code, first.specific), (0x2a01, Specific::Overflow));
        assert_eq!(nexus.take().unwrap().specific, Specific::None);
        assert_eq!(codes(&mut nexus).len(), ATTENTIONS_MAX - 2);
    }
}
