//! Target port groups: REPORT and SET TARGET PORT GROUPS (SPC-4, sections 6.37
//! and 6.45).

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
