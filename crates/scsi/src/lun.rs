//! Logical unit numbers in their eight bytes (SAM-5, section 4.7).

/// Logical units of a target at most: what flat space addressing reaches.
pub const LUNS_MAX: usize = 1 << 14;

/// REPORT LUNS, the one well known logical unit.
pub const REPORT_LUNS: u64 = 0xc101_0000_0000_0000;

/// What a LUN field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lun {
    /// A logical unit by its number, below [`LUNS_MAX`].
    Unit(u16),
    /// The well known logical unit of REPORT LUNS.
    ReportLuns,
    /// Nothing that a target of weft could have.
    Unknown,
}

impl Lun {
    /// Reads the field: peripheral device addressing with bus 0, flat space
    /// addressing, the well known logical unit; single level (SAM-5, section
    /// 4.7.7). Either method names any unit that it can.
    #[inline]
    pub fn parse(field: u64) -> Lun {
        let first = (field >> 48) as u16;
        if field & 0xffff_ffff_ffff != 0 {
            return Lun::Unknown;
        }
        match first >> 14 {
            // Bus 0: the second byte is the number.
            0b00 if first < 0x100 => Lun::Unit(first),
            0b01 => Lun::Unit(first & 0x3fff),
            _ if field == REPORT_LUNS => Lun::ReportLuns,
            _ => Lun::Unknown,
        }
    }

    /// The field that names a unit: peripheral device addressing below 256, flat
    /// space addressing from there, as REPORT LUNS tells it.
    pub fn field(number: u16) -> u64 {
        assert!(usize::from(number) < LUNS_MAX, "no such unit: {number}");
        let first = if number < 0x100 {
            number
        } else {
            0x4000 | number
        };
        u64::from(first) << 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_methods_name_the_same_units() {
        assert_eq!(Lun::parse(0), Lun::Unit(0));
        assert_eq!(Lun::parse(0x00ff_0000_0000_0000), Lun::Unit(255));
        assert_eq!(Lun::parse(0x4000_0000_0000_0000), Lun::Unit(0));
        assert_eq!(Lun::parse(0x40ff_0000_0000_0000), Lun::Unit(255));
        assert_eq!(Lun::parse(0x4100_0000_0000_0000), Lun::Unit(256));
        assert_eq!(Lun::parse(0x7fff_0000_0000_0000), Lun::Unit(16383));
        assert_eq!(Lun::parse(0xc101_0000_0000_0000), Lun::ReportLuns);
    }

    #[test]
    fn luns_that_cannot_exist_are_unknown() {
        // Another bus, a second level, a logical unit address, other well known
        // logical units, no address.
        for field in [
            0x0100_0000_0000_0000,
            0x0000_0001_0000_0000,
            0x8001_0000_0000_0000,
            0xc102_0000_0000_0000,
            0xc101_0000_0000_0001,
            u64::MAX,
        ] {
            assert_eq!(Lun::parse(field), Lun::Unknown, "{field:016x}");
        }
    }

    #[test]
    fn a_field_is_read_as_it_is_written() {
        assert_eq!(Lun::field(1), 0x0001_0000_0000_0000);
        assert_eq!(Lun::field(256), 0x4100_0000_0000_0000);
        for number in 0..LUNS_MAX as u16 {
            assert_eq!(Lun::parse(Lun::field(number)), Lun::Unit(number));
        }
    }
}
