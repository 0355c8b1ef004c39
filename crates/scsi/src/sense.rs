//! Sense data (SPC-4, section 4.5).

use wire::scsi::{SenseBytes, asc, key};

/// Where the threshold descriptors stand in the mode page, bytes: what INFORMATION
/// names of a threshold that was reached.
pub(crate) const AVAILABLE_AT: u8 = 16;
pub(crate) const USED_AT: u8 = 24;

/// Why a command ended with CHECK CONDITION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key, one of [`key`].
    pub key: u8,
    /// Additional sense code and qualifier, one of [`asc`].
    pub code: u16,
    /// The INFORMATION field: what it means depends on the command.
    pub information: Option<u64>,
    /// The COMMAND-SPECIFIC INFORMATION field.
    pub command_information: Option<u64>,
    /// The sense key specific bytes.
    pub specific: Specific,
}

/// Sense key specific information (SPC-4, section 4.5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specific {
    /// None.
    None,
    /// ILLEGAL REQUEST: the field at fault.
    Field {
        /// It is in the CDB, not in the parameter list.
        in_cdb: bool,
        /// Its first byte.
        byte: u16,
        /// Its most significant bit, if it is not a whole byte.
        bit: Option<u8>,
    },
    /// COPY ABORTED: the descriptor at fault (SPC-4, section 4.5.2.4.5).
    Segment {
        /// The field pointer counts from the start of the segment descriptor,
        /// not of the parameter list.
        in_segment: bool,
        /// The field's first byte.
        byte: u16,
        /// Its most significant bit, if it is not a whole byte.
        bit: Option<u8>,
    },
    /// UNIT ATTENTION: the queue of unit attentions has overflowed.
    Overflow,
}

impl Sense {
    /// A sense key and a code, nothing else.
    #[inline]
    pub const fn new(key: u8, code: u16) -> Sense {
        Sense {
            key,
            code,
            information: None,
            command_information: None,
            specific: Specific::None,
        }
    }

    /// ILLEGAL REQUEST with a code.
    pub const fn illegal(code: u16) -> Sense {
        Sense::new(key::ILLEGAL_REQUEST, code)
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN CDB: the field's first byte and its most
    /// significant bit, if it is not a whole byte.
    #[cold]
    pub const fn in_cdb(byte: u16, bit: Option<u8>) -> Sense {
        let mut sense = Sense::illegal(asc::INVALID_FIELD_IN_CDB);
        sense.specific = Specific::Field {
            in_cdb: true,
            byte,
            bit,
        };
        sense
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN PARAMETER LIST, likewise.
    #[cold]
    pub const fn in_list(byte: u16, bit: Option<u8>) -> Sense {
        let mut sense = Sense::illegal(asc::INVALID_FIELD_IN_PARAMETER_LIST);
        sense.specific = Specific::Field {
            in_cdb: false,
            byte,
            bit,
        };
        sense
    }

    /// The same with an INFORMATION field.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Sense {
        self.information = Some(information);
        self
    }

    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    #[cold]
    pub const fn out_of_range() -> Sense {
        Sense::illegal(asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE)
    }

    /// PARAMETER LIST LENGTH ERROR.
    pub const fn list_length() -> Sense {
        Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR)
    }

    /// LOGICAL UNIT NOT SUPPORTED.
    pub const fn no_unit() -> Sense {
        Sense::illegal(asc::LOGICAL_UNIT_NOT_SUPPORTED)
    }

    /// DATA PROTECT, WRITE PROTECTED.
    pub const fn write_protected() -> Sense {
        Sense::new(key::DATA_PROTECT, asc::WRITE_PROTECTED)
    }

    /// NOT READY, MANUAL INTERVENTION REQUIRED: the key of the volume below is missing.
    pub const fn locked() -> Sense {
        Sense::new(
            key::NOT_READY,
            asc::LOGICAL_UNIT_NOT_READY_MANUAL_INTERVENTION_REQUIRED,
        )
    }

    /// MISCOMPARE at a byte of the data that was compared.
    pub const fn miscompare(offset: u64) -> Sense {
        Sense::new(key::MISCOMPARE, asc::MISCOMPARE_DURING_VERIFY_OPERATION)
            .with_information(offset)
    }

    /// MEDIUM ERROR, UNRECOVERED READ ERROR, at a logical block if it is known.
    pub const fn unreadable(lba: Option<u64>) -> Sense {
        let mut sense = Sense::new(key::MEDIUM_ERROR, asc::UNRECOVERED_READ_ERROR);
        sense.information = lba;
        sense
    }

    /// MEDIUM ERROR, WRITE ERROR, at a logical block if it is known.
    pub const fn write_error(lba: Option<u64>) -> Sense {
        let mut sense = Sense::new(key::MEDIUM_ERROR, asc::WRITE_ERROR);
        sense.information = lba;
        sense
    }

    /// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT: nothing is left for
    /// the thin provisioned unit (SBC-3, section 4.7.3.6).
    pub const fn out_of_space() -> Sense {
        Sense::new(
            key::DATA_PROTECT,
            asc::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
        )
    }

    /// Writes it in descriptor or in fixed format.
    pub fn encode(&self, descriptor: bool, out: &mut SenseBytes) {
        let mut bytes = [0; wire::scsi::SENSE_MAX];
        let len = if descriptor {
            self.descriptors(&mut bytes)
        } else {
            self.fixed(&mut bytes)
        };
        *out = SenseBytes::new(&bytes[..len]);
    }

    /// Fixed format (SPC-4, section 4.5.3).
    fn fixed(&self, bytes: &mut [u8]) -> usize {
        bytes[0] = 0x70;
        bytes[2] = self.key;
        // What does not fit into four bytes is not valid (SPC-4, section 4.5.3).
        if let Some(Ok(information)) = self.information.map(u32::try_from) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        let command = self.command_information.and_then(|n| u32::try_from(n).ok());
        bytes[8..12].copy_from_slice(&command.unwrap_or(0).to_be_bytes());
        bytes[12..14].copy_from_slice(&self.code.to_be_bytes());
        bytes[15..18].copy_from_slice(&self.specific.bytes());
        18
    }

    /// Descriptor format (SPC-4, section 4.5.2).
    fn descriptors(&self, bytes: &mut [u8]) -> usize {
        bytes[0] = 0x72;
        bytes[1] = self.key;
        bytes[2..4].copy_from_slice(&self.code.to_be_bytes());
        let mut at = 8;
        if let Some(information) = self.information {
            bytes[at..at + 3].copy_from_slice(&[0x00, 0x0a, 0x80]);
            bytes[at + 4..at + 12].copy_from_slice(&information.to_be_bytes());
            at += 12;
        }
        if let Some(information) = self.command_information {
            bytes[at..at + 2].copy_from_slice(&[0x01, 0x0a]);
            bytes[at + 4..at + 12].copy_from_slice(&information.to_be_bytes());
            at += 12;
        }
        if self.specific != Specific::None {
            bytes[at..at + 2].copy_from_slice(&[0x02, 0x06]);
            bytes[at + 4..at + 7].copy_from_slice(&self.specific.bytes());
            at += 8;
        }
        bytes[7] = (at - 8) as u8;
        at
    }
}

impl Specific {
    /// With SKSV in the first bit; zeros if there is nothing to say.
    fn bytes(self) -> [u8; 3] {
        let pointer = |flags: u8, byte: u16, bit: Option<u8>| {
            // BPV and the bit pointer.
            let bit = bit.map_or(0, |bit| 0x08 | bit & 0x07);
            let [high, low] = byte.to_be_bytes();
            [0x80 | flags | bit, high, low]
        };
        match self {
            Specific::None => [0; 3],
            Specific::Field { in_cdb, byte, bit } => pointer(u8::from(in_cdb) << 6, byte, bit),
            Specific::Segment {
                in_segment,
                byte,
                bit,
            } => pointer(u8::from(in_segment) << 5, byte, bit),
            Specific::Overflow => [0x81, 0, 0],
        }
    }
}

/// A unit attention condition (SAM-5, section 5.14): which, by its additional
/// sense code, and what its INFORMATION field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    code: u16,
    /// 0 for none.
    information: u8,
}

impl Attention {
    /// A new I_T nexus, or the target device has started: POWER ON, RESET, OR BUS
    /// DEVICE RESET OCCURRED.
    pub const POWER_ON: Attention =
        Attention::plain(asc::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED);
    /// LOGICAL UNIT RESET or TARGET RESET: BUS DEVICE RESET FUNCTION OCCURRED.
    pub const RESET: Attention = Attention::plain(asc::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
    /// MODE PARAMETERS CHANGED.
    pub const MODE_PARAMETERS_CHANGED: Attention = Attention::plain(asc::MODE_PARAMETERS_CHANGED);
    /// RESERVATIONS PREEMPTED.
    pub const RESERVATIONS_PREEMPTED: Attention = Attention::plain(asc::RESERVATIONS_PREEMPTED);
    /// RESERVATIONS RELEASED.
    pub const RESERVATIONS_RELEASED: Attention = Attention::plain(asc::RESERVATIONS_RELEASED);
    /// REGISTRATIONS PREEMPTED.
    pub const REGISTRATIONS_PREEMPTED: Attention = Attention::plain(asc::REGISTRATIONS_PREEMPTED);
    /// ASYMMETRIC ACCESS STATE CHANGED.
    pub const ACCESS_STATE_CHANGED: Attention =
        Attention::plain(asc::ASYMMETRIC_ACCESS_STATE_CHANGED);
    /// CAPACITY DATA HAS CHANGED.
    pub const CAPACITY_CHANGED: Attention = Attention::plain(asc::CAPACITY_DATA_HAS_CHANGED);
    /// INQUIRY DATA HAS CHANGED.
    pub const INQUIRY_CHANGED: Attention = Attention::plain(asc::INQUIRY_DATA_HAS_CHANGED);
    /// REPORTED LUNS DATA HAS CHANGED.
    pub const LUNS_CHANGED: Attention = Attention::plain(asc::REPORTED_LUNS_DATA_HAS_CHANGED);

    /// THIN PROVISIONING SOFT THRESHOLD REACHED: that of what is available.
    pub const SPACE_AVAILABLE: Attention = Attention {
        code: asc::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
        information: AVAILABLE_AT,
    };
    /// THIN PROVISIONING SOFT THRESHOLD REACHED: that of what is used.
    pub const SPACE_USED: Attention = Attention {
        information: USED_AT,
        ..Attention::SPACE_AVAILABLE
    };

    /// The one with this additional sense code and qualifier.
    pub(crate) const fn plain(code: u16) -> Attention {
        Attention {
            code,
            information: 0,
        }
    }

    /// All that there are, with their names.
    pub(crate) const ALL: [(Attention, &'static str); 11] = [
        (
            Attention::POWER_ON,
            "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED",
        ),
        (Attention::RESET, "BUS DEVICE RESET FUNCTION OCCURRED"),
        (
            Attention::MODE_PARAMETERS_CHANGED,
            "MODE PARAMETERS CHANGED",
        ),
        (Attention::RESERVATIONS_PREEMPTED, "RESERVATIONS PREEMPTED"),
        (Attention::RESERVATIONS_RELEASED, "RESERVATIONS RELEASED"),
        (
            Attention::REGISTRATIONS_PREEMPTED,
            "REGISTRATIONS PREEMPTED",
        ),
        (
            Attention::ACCESS_STATE_CHANGED,
            "ASYMMETRIC ACCESS STATE CHANGED",
        ),
        (Attention::CAPACITY_CHANGED, "CAPACITY DATA HAS CHANGED"),
        (
            Attention::SPACE_AVAILABLE,
            "THIN PROVISIONING SOFT THRESHOLD REACHED",
        ),
        (Attention::INQUIRY_CHANGED, "INQUIRY DATA HAS CHANGED"),
        (Attention::LUNS_CHANGED, "REPORTED LUNS DATA HAS CHANGED"),
    ];

    /// Its additional sense code and qualifier.
    pub const fn code(self) -> u16 {
        self.code
    }

    /// What the initiator is told.
    pub(crate) const fn sense(self) -> Sense {
        let mut sense = Sense::new(key::UNIT_ATTENTION, self.code);
        if self.information != 0 {
            sense.information = Some(self.information as u64);
        }
        sense
    }

    /// Whether it tells of a reset or of a nexus that is new, and so goes first.
    pub(crate) const fn is_reset(self) -> bool {
        self.code >> 8 == 0x29
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(sense: Sense, descriptor: bool) -> Vec<u8> {
        let mut bytes = SenseBytes::EMPTY;
        sense.encode(descriptor, &mut bytes);
        bytes.as_slice().to_vec()
    }

    #[test]
    fn sense_in_fixed_format_lies_as_spc_has_it() {
        assert_eq!(
            encoded(Sense::in_cdb(2, Some(5)), false),
            [
                0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcd, 0, 2
            ]
        );
        assert_eq!(
            encoded(Sense::in_list(0x123, None), false)[12..],
            [0x26, 0, 0, 0x80, 0x01, 0x23]
        );
        assert_eq!(
            encoded(Sense::miscompare(0x1234), false)[..8],
            [0xf0, 0, 14, 0, 0, 0x12, 0x34, 10]
        );
    }

    #[test]
    fn information_that_does_not_fit_is_not_valid() {
        let sense = Sense::unreadable(Some(1 << 32));
        assert_eq!(encoded(sense, false)[..7], [0x70, 0, 3, 0, 0, 0, 0]);
        assert_eq!(
            encoded(sense, true),
            [
                0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0
            ]
        );
    }

    #[test]
    fn sense_in_descriptor_format_lies_as_spc_has_it() {
        assert_eq!(
            encoded(Sense::no_unit(), true),
            [0x72, 5, 0x25, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            encoded(Sense::in_cdb(9, None), true),
            [0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xc0, 0, 9, 0]
        );
        let mut sense = Sense::new(key::COPY_ABORTED, asc::COPY_TARGET_DEVICE_NOT_REACHABLE);
        sense.information = Some(1);
        sense.command_information = Some(2);
        sense.specific = Specific::Segment {
            in_segment: true,
            byte: 4,
            bit: Some(0),
        };
        let bytes = encoded(sense, true);
        assert_eq!(bytes.len(), 8 + 12 + 12 + 8);
        assert_eq!(bytes[7], 32);
        assert_eq!(bytes[20..32], [1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(bytes[32..], [2, 6, 0, 0, 0xa8, 0, 4, 0]);
    }
}
