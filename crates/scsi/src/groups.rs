//! Target port groups: REPORT and SET TARGET PORT GROUPS (SPC-4).

use wire::scsi::PortGroup as Descriptor;
use zerocopy::IntoBytes;

use crate::sense::Sense;
use crate::unit::{AccessState, Unit};

/// Bytes of a SET TARGET PORT GROUPS parameter list at most.
pub const LIST_BYTES_MAX: u32 = 4 << 10;

/// Transitioning, unavailable, standby and both active states are supported.
const SUPPORTED: u8 = 0x8f;

pub(crate) fn report(unit: &Unit, extended: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    if extended {
        // RETURN DATA FORMAT 001b; no IMPLICIT TRANSITION TIME.
        out.extend([0x10, 0, 0, 0]);
    }
    for group in unit.groups.iter() {
        let descriptor = Descriptor {
            state: group.state as u8,
            supported: SUPPORTED,
            tag: group.tag.into(),
            reserved4: 0,
            // STATUS CODE: nothing to report.
            status: 0,
            vendor_specific: 0,
            ports: u8::try_from(group.ports.len()).expect("at most 255 ports in a group"),
        };
        out.extend_from_slice(descriptor.as_bytes());
        let ports = group.ports.iter().map(|id| u32::from(*id).to_be_bytes());
        ports.for_each(|port| out.extend_from_slice(&port));
    }
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// Reads the parameter list of SET TARGET PORT GROUPS: which groups shall have
/// which state, in the order of the list.
pub fn parse_set(list: &[u8], unit: &Unit) -> Result<Vec<(u16, AccessState)>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    if list.len() < 4 || !list.len().is_multiple_of(4) {
        return Err(Sense::list_length());
    }
    let mut changes = Vec::new();
    for (n, descriptor) in list[4..].chunks_exact(4).enumerate() {
        let at = 4 + 4 * n as u16;
        if descriptor[0] & 0xf0 != 0 {
            return Err(Sense::in_list(at, Some(7)));
        }
        let state = AccessState::settable(descriptor[0]).ok_or(Sense::in_list(at, Some(3)))?;
        let tag = u16::from_be_bytes([descriptor[2], descriptor[3]]);
        if !unit.groups.iter().any(|group| group.tag == tag) {
            return Err(Sense::in_list(at + 2, None));
        }
        changes.push((tag, state));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::unit;

    #[test]
    fn report_of_two_port_groups_lies_as_spc_has_it() {
        let mut out = Vec::new();
        report(&unit(), false, &mut out);
        let groups = [
            0x00, 0x8f, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, //
            0x02, 0x8f, 0, 7, 0, 0, 0, 1, 0, 0, 0, 3,
        ];
        assert_eq!(out[..4], [0, 0, 0, 28]);
        assert_eq!(out[4..], groups);
        let mut out = Vec::new();
        report(&unit(), true, &mut out);
        assert_eq!(out[..8], [0, 0, 0, 32, 0x10, 0, 0, 0]);
        assert_eq!(out[8..], groups);
    }

    #[test]
    fn states_are_set_by_group() {
        let list = [0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 7];
        assert_eq!(
            parse_set(&list, &unit()),
            Ok(vec![
                (1, AccessState::Standby),
                (7, AccessState::ActiveOptimized)
            ])
        );
        assert_eq!(parse_set(&[], &unit()), Ok(Vec::new()));
        assert_eq!(parse_set(&list[..4], &unit()), Ok(Vec::new()));
    }

    #[test]
    fn list_with_a_wrong_length_state_or_group_is_refused() {
        let set = |list: &[u8]| parse_set(list, &unit()).unwrap_err();
        assert_eq!(set(&[0; 3]), Sense::list_length());
        assert_eq!(set(&[0; 7]), Sense::list_length());
        // Offline, transitioning, a reserved bit, an unknown group.
        assert_eq!(
            set(&[0, 0, 0, 0, 0x0e, 0, 0, 1]),
            Sense::in_list(4, Some(3))
        );
        assert_eq!(
            set(&[0, 0, 0, 0, 0x0f, 0, 0, 1]),
            Sense::in_list(4, Some(3))
        );
        assert_eq!(
            set(&[0, 0, 0, 0, 0x80, 0, 0, 1]),
            Sense::in_list(4, Some(7))
        );
        assert_eq!(set(&[0, 0, 0, 0, 0, 0, 0, 2]), Sense::in_list(6, None));
    }
}
