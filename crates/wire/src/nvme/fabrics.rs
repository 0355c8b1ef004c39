//! What fabrics commands carry (NVM Express Base Specification 2.0, section 6.3).

use core::mem::{offset_of, size_of};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an NQN field, terminating NUL included.
pub const NQN_BYTES: usize = 256;

/// Longest NQN in bytes (section 4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// Connect data (figure 383).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier.
    pub hostid: [u8; 16],
    /// Controller ID; FFFFh on an Admin Queue: allocate one.
    pub cntlid: U16,
    reserved18: [u8; 238],
    /// NVM Subsystem NVMe Qualified Name, NUL terminated.
    pub subnqn: [u8; NQN_BYTES],
    /// Host NVMe Qualified Name, NUL terminated.
    pub hostnqn: [u8; NQN_BYTES],
    reserved768: [u8; 256],
}

/// Bytes of [`ConnectData`].
pub const CONNECT_DATA_BYTES: usize = 1024;

const _: () = {
    assert!(size_of::<ConnectData>() == CONNECT_DATA_BYTES);
    assert!(offset_of!(ConnectData, cntlid) == 16);
    assert!(offset_of!(ConnectData, subnqn) == 256);
    assert!(offset_of!(ConnectData, hostnqn) == 512);
};

impl ConnectData {
    /// Data of a Connect by `hostnqn`; `cntlid` is FFFFh for an Admin Queue.
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &str, hostnqn: &str) -> Self {
        let mut data: ConnectData = super::identify::zeroed();
        data.hostid = hostid;
        data.cntlid = cntlid.into();
        nqn_field(&mut data.subnqn, subnqn);
        nqn_field(&mut data.hostnqn, hostnqn);
        data
    }
}

/// Writes a NUL terminated NQN; what is longer than the field is cut.
pub fn nqn_field(field: &mut [u8; NQN_BYTES], nqn: &str) {
    field.fill(0);
    let len = nqn.len().min(NQN_BYTES - 1);
    field[..len].copy_from_slice(&nqn.as_bytes()[..len]);
}

/// The text of an NQN field: `None` without a terminating NUL, when empty, too
/// long, or not UTF-8.
pub fn nqn_text(field: &[u8; NQN_BYTES]) -> Option<&str> {
    let len = field.iter().position(|&b| b == 0)?;
    if len == 0 || len > NQN_BYTES_MAX {
        return None;
    }
    core::str::from_utf8(&field[..len]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nqn_fields_need_an_end_and_content() {
        let mut field = [0u8; NQN_BYTES];
        assert_eq!(nqn_text(&field), None);
        nqn_field(&mut field, "nqn.a");
        assert_eq!(nqn_text(&field), Some("nqn.a"));
        field.fill(b'x');
        assert_eq!(nqn_text(&field), None);
        field[NQN_BYTES_MAX] = 0;
        assert_eq!(nqn_text(&field).map(str::len), Some(NQN_BYTES_MAX));
        field[0] = 0xff;
        assert_eq!(nqn_text(&field), None);
    }
}
