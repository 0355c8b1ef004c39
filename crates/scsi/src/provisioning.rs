//! The space below a thin provisioned unit: thresholds at which initiators are
//! told that it is short, and the log page that says how much there is (SBC-3,
//! sections 4.7.3.7, 6.4.5 and 6.5.9).

use crate::cdb::cut;
use crate::sense::Attention;

/// Bytes of a threshold set: the unit of thresholds and of what the log tells.
pub const THRESHOLD_SET_BYTES: u64 = 1 << 20;

/// PAGE CODE of the log page.
pub(crate) const LOG_PAGE: u8 = 0x0c;

/// THRESHOLD RESOURCE, and the parameter code of the log page.
pub(crate) const AVAILABLE: u8 = 0x01;
pub(crate) const USED: u8 = 0x02;

/// The space below a unit, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that the unit takes.
    pub used_bytes: u64,
    /// Bytes that there are for it, and for whatever else is kept there.
    pub available_bytes: u64,
}

/// One threshold descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// ENABLED.
    pub enabled: bool,
    /// THRESHOLD COUNT, in threshold sets.
    pub count: u32,
}

/// The thresholds of a unit. The default: none is enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// Armed decreasing: less than this is available.
    pub available: Threshold,
    /// Armed increasing: more than this is used.
    pub used: Threshold,
}

/// On which side of the thresholds the space is: what was told already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    available: bool,
    used: bool,
}

impl Reached {
    /// What a nexus is told that begins now.
    pub fn attentions(self) -> impl Iterator<Item = Attention> {
        let available = self.available.then_some(Attention::SPACE_AVAILABLE);
        let used = self.used.then_some(Attention::SPACE_USED);
        available.into_iter().chain(used)
    }
}

impl Threshold {
    /// That so many bytes are a threshold; counted in whole sets, upwards.
    pub fn at_bytes(bytes: u64) -> Threshold {
        let sets = bytes.div_ceil(THRESHOLD_SET_BYTES);
        Threshold {
            enabled: true,
            count: u32::try_from(sets).unwrap_or(u32::MAX),
        }
    }

    /// The range around it, bytes: half a set on either side (section 4.7.3.7.2).
    fn range(self) -> (u64, u64) {
        let middle = u64::from(self.count) * THRESHOLD_SET_BYTES;
        let half = THRESHOLD_SET_BYTES / 2;
        (middle.saturating_sub(half), middle + half)
    }
}

impl Thresholds {
    /// Whether any is to be watched.
    pub fn is_any_enabled(&self) -> bool {
        self.available.enabled || self.used.enabled
    }

    /// The unit attentions that the space as of now asks for, and what is reached
    /// with them. Each threshold is told once; once more when the space has been on
    /// the other side of its range meanwhile (sections 4.7.3.7.4 and 4.7.3.7.5).
    pub fn reach(&self, space: Space, before: Reached) -> (Vec<Attention>, Reached) {
        let mut told = Vec::new();
        let mut step = |threshold: Threshold, was, is_below: bool, is_back: bool, attention| {
            let is_reached = threshold.enabled && (is_below || was && !is_back);
            if is_reached && !was {
                told.push(attention);
            }
            is_reached
        };
        let (least, most) = self.available.range();
        let available = step(
            self.available,
            before.available,
            space.available_bytes < least,
            space.available_bytes > most,
            Attention::SPACE_AVAILABLE,
        );
        let (least, most) = self.used.range();
        let used = step(
            self.used,
            before.used,
            space.used_bytes > most,
            space.used_bytes < least,
            Attention::SPACE_USED,
        );
        (told, Reached { available, used })
    }
}

/// Appends the Logical Block Provisioning log page, cut to its ALLOCATION LENGTH.
/// What is not known is not in it.
pub fn log_page(space: Option<Space>, allocation_len: u16, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[LOG_PAGE, 0, 0, 0]);
    if let Some(space) = space {
        // SCOPE: what is available is not dedicated to the unit, what is used is.
        parameter(AVAILABLE, space.available_bytes, 0b10, out);
        parameter(USED, space.used_bytes, 0b01, out);
    }
    let len = (out.len() - start - 4) as u16;
    out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
    cut(out, start, allocation_len.into());
}

/// A parameter in binary format, which cannot be changed.
fn parameter(code: u8, bytes: u64, scope: u8, out: &mut Vec<u8>) {
    let count = u32::try_from(bytes / THRESHOLD_SET_BYTES).unwrap_or(u32::MAX);
    out.extend_from_slice(&[0, code, 0x03, 8]);
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&[scope, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(used: u64, available: u64) -> Space {
        Space {
            used_bytes: used,
            available_bytes: available,
        }
    }

    #[test]
    fn a_threshold_is_told_once_each_time_that_its_range_is_crossed() {
        let thresholds = Thresholds {
            available: Threshold::at_bytes(10 * MIB),
            used: Threshold::at_bytes(100 * MIB),
        };
        let mut reached = Reached::default();
        let mut reach = |used, available| {
            let (told, now) = thresholds.reach(space(used, available), reached);
            reached = now;
            told
        };
        assert_eq!(reach(0, 11 * MIB), []);
        // Within the range: not yet.
        assert_eq!(reach(100 * MIB, 10 * MIB), []);
        let half = MIB / 2;
        assert_eq!(reach(0, 10 * MIB - half - 1), [Attention::SPACE_AVAILABLE]);
        assert_eq!(reach(0, 0), [], "it is known");
        assert_eq!(reach(0, 10 * MIB + half), [], "within the range");
        assert_eq!(reach(0, 0), [], "it was never left");
        assert_eq!(reach(0, 10 * MIB + half + 1), []);
        let both = [Attention::SPACE_AVAILABLE, Attention::SPACE_USED];
        assert_eq!(reach(100 * MIB + half + 1, 0), both);
        assert_eq!(reach(100 * MIB - half, 0), []);
        assert_eq!(reach(200 * MIB, 0), []);
        assert_eq!(reach(100 * MIB - half - 1, 0), []);
        assert_eq!(reach(200 * MIB, 0), [Attention::SPACE_USED]);
    }

    #[test]
    fn a_disabled_threshold_is_not_reported() {
        let mut thresholds = Thresholds {
            available: Threshold {
                enabled: false,
                count: 10,
            },
            used: Threshold::at_bytes(u64::MAX),
        };
        assert_eq!(thresholds.used.count, u32::MAX);
        let (told, reached) = thresholds.reach(space(0, 0), Reached::default());
        assert_eq!((told, reached), (vec![], Reached::default()));
        thresholds.used.enabled = false;
        assert!(!thresholds.is_any_enabled());
        thresholds.available.enabled = true;
        let (told, reached) = thresholds.reach(space(0, 0), reached);
        assert_eq!(told, [Attention::SPACE_AVAILABLE]);
        assert_eq!(reached.attentions().collect::<Vec<_>>(), told);
    }

    #[test]
    fn log_page_shows_space_and_is_cut_to_the_allocation_length() {
        let mut out = vec![9];
        log_page(Some(space(3 * MIB - 1, 70_000 * MIB)), 28, &mut out);
        let expected = [
            9, 0x0c, 0, 0, 24, 0, 1, 3, 8, 0, 1, 0x11, 0x70, 2, 0, 0, 0, 0, 2, 3, 8, 0, 0, 0, 2, 1,
            0, 0, 0,
        ];
        assert_eq!(out, expected);
        log_page(Some(space(0, 0)), 6, &mut out);
        assert_eq!(out[29..], [0x0c, 0, 0, 24, 0, 1]);
        out.clear();
        log_page(None, 252, &mut out);
        assert_eq!(out, [0x0c, 0, 0, 0]);
    }
}
