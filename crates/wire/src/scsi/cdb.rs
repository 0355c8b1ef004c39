//! CDBs of the commands that an initiator of weft sends, as they go on the
//! wire: zeros behind a shorter one.

use super::opcode::*;
use super::{CDB_BYTES, maintenance_in, receive_copy_results, service_action_in};

/// A command descriptor block.
pub type Cdb = [u8; CDB_BYTES];

/// FUA in byte 1 of READ, WRITE and the like.
pub const FUA: u8 = 1 << 3;
/// UNMAP in byte 1 of WRITE SAME.
pub const UNMAP_BIT: u8 = 1 << 3;
/// NDOB in byte 1 of WRITE SAME(16): no data comes, blocks of zeros are meant.
pub const NDOB: u8 = 1 << 0;
/// BYTCHK in byte 1 of VERIFY and WRITE AND VERIFY: compare with data that comes.
pub const BYTCHK: u8 = 1 << 1;

/// A CDB that is nothing but its operation code: TEST UNIT READY, RESERVE(6),
/// RELEASE(6).
pub const fn plain(opcode: u8) -> Cdb {
    let mut cdb = [0; CDB_BYTES];
    cdb[0] = opcode;
    cdb
}

/// A CDB of 16 bytes on blocks: `opcode` is READ(16), WRITE(16), VERIFY(16),
/// WRITE AND VERIFY(16), ORWRITE(16), WRITE SAME(16), PRE-FETCH(16) or
/// SYNCHRONIZE CACHE(16), `bits` byte 1 (SBC-3, section 5).
#[inline]
pub const fn blocks16(opcode: u8, bits: u8, lba: u64, blocks: u32) -> Cdb {
    let [a, b, c, d, e, f, g, h] = lba.to_be_bytes();
    let [i, j, k, l] = blocks.to_be_bytes();
    [opcode, bits, a, b, c, d, e, f, g, h, i, j, k, l, 0, 0]
}

/// A CDB of 10 bytes on blocks: `opcode` is READ(10), WRITE(10) and so on.
#[inline]
pub const fn blocks10(opcode: u8, bits: u8, lba: u32, blocks: u16) -> Cdb {
    let [a, b, c, d] = lba.to_be_bytes();
    let [i, j] = blocks.to_be_bytes();
    [opcode, bits, a, b, c, d, 0, i, j, 0, 0, 0, 0, 0, 0, 0]
}

/// READ(16) (SBC-34).
#[inline]
pub const fn read16(lba: u64, blocks: u32) -> Cdb {
    blocks16(READ_16, 0, lba, blocks)
}

/// WRITE(16) (SBC-35).
#[inline]
pub const fn write16(lba: u64, blocks: u32) -> Cdb {
    blocks16(WRITE_16, 0, lba, blocks)
}

/// SYNCHRONIZE CACHE(16) of all blocks (SBC-35).
#[inline]
pub const fn synchronize_cache16() -> Cdb {
    plain(SYNCHRONIZE_CACHE_16)
}

/// COMPARE AND WRITE; twice as many blocks come as data (SBC-3).
#[inline]
pub const fn compare_and_write(bits: u8, lba: u64, blocks: u8) -> Cdb {
    let mut cdb = blocks16(COMPARE_AND_WRITE, bits, lba, 0);
    cdb[13] = blocks;
    cdb
}

/// UNMAP with a parameter list of so many bytes; bit 0 of `bits` is ANCHOR
/// (SBC-30).
pub const fn unmap(bits: u8, parameter_list_len: u16) -> Cdb {
    let mut cdb = plain(UNMAP);
    cdb[1] = bits;
    [cdb[7], cdb[8]] = parameter_list_len.to_be_bytes();
    cdb
}

/// EXTENDED COPY(LID1) with a parameter list of so many bytes (SPC-4).
pub const fn extended_copy(parameter_list_len: u32) -> Cdb {
    let mut cdb = plain(EXTENDED_COPY);
    [cdb[10], cdb[11], cdb[12], cdb[13]] = parameter_list_len.to_be_bytes();
    cdb
}

/// POPULATE TOKEN or WRITE USING TOKEN, by its service action, with a parameter list of so many
/// bytes (SBC-3).
pub const fn with_token(action: u8, list_id: u32, parameter_list_len: u32) -> Cdb {
    let mut cdb = extended_copy(parameter_list_len);
    cdb[1] = action;
    [cdb[6], cdb[7], cdb[8], cdb[9]] = list_id.to_be_bytes();
    cdb
}

/// RECEIVE ROD TOKEN INFORMATION (SPC-4).
pub const fn rod_token_information(list_id: u32, allocation_len: u32) -> Cdb {
    let mut cdb = plain(RECEIVE_COPY_RESULTS);
    cdb[1] = receive_copy_results::ROD_TOKEN_INFORMATION;
    [cdb[2], cdb[3], cdb[4], cdb[5]] = list_id.to_be_bytes();
    [cdb[10], cdb[11], cdb[12], cdb[13]] = allocation_len.to_be_bytes();
    cdb
}

/// INQUIRY: the standard data, or the vital product data page (SPC-4).
pub const fn inquiry(page: Option<u8>, allocation_len: u16) -> Cdb {
    let mut cdb = plain(INQUIRY);
    if let Some(page) = page {
        cdb[1] = 1;
        cdb[2] = page;
    }
    [cdb[3], cdb[4]] = allocation_len.to_be_bytes();
    cdb
}

/// REPORT LUNS of all but well known logical units (SPC-4).
pub const fn report_luns(allocation_len: u32) -> Cdb {
    with_len_at_6(plain(REPORT_LUNS), allocation_len)
}

/// READ CAPACITY(16) (SBC-36).
pub const fn read_capacity16(allocation_len: u32) -> Cdb {
    let mut cdb = plain(SERVICE_ACTION_IN_16);
    cdb[1] = service_action_in::READ_CAPACITY_16;
    [cdb[10], cdb[11], cdb[12], cdb[13]] = allocation_len.to_be_bytes();
    cdb
}

/// GET LBA STATUS from a block on (SBC-3).
pub const fn get_lba_status(lba: u64, allocation_len: u32) -> Cdb {
    blocks16(
        SERVICE_ACTION_IN_16,
        service_action_in::GET_LBA_STATUS,
        lba,
        allocation_len,
    )
}

/// REPORT TARGET PORT GROUPS (SPC-4).
pub const fn report_target_port_groups(allocation_len: u32) -> Cdb {
    let mut cdb = plain(MAINTENANCE_IN);
    cdb[1] = maintenance_in::REPORT_TARGET_PORT_GROUPS;
    with_len_at_6(cdb, allocation_len)
}

/// PERSISTENT RESERVE IN, see [`super::persistent_reserve_in`] (SPC-4).
pub const fn persistent_reserve_in(service_action: u8, allocation_len: u16) -> Cdb {
    let mut cdb = plain(PERSISTENT_RESERVE_IN);
    cdb[1] = service_action;
    [cdb[7], cdb[8]] = allocation_len.to_be_bytes();
    cdb
}

/// PERSISTENT RESERVE OUT, see [`super::persistent_reserve_out`], of a type for the
/// logical unit, with a parameter list of so many bytes (SPC-4).
pub const fn persistent_reserve_out(service_action: u8, kind: u8, parameter_list_len: u32) -> Cdb {
    let mut cdb = plain(PERSISTENT_RESERVE_OUT);
    cdb[1] = service_action;
    cdb[2] = kind;
    [cdb[5], cdb[6], cdb[7], cdb[8]] = parameter_list_len.to_be_bytes();
    cdb
}

const fn with_len_at_6(mut cdb: Cdb, len: u32) -> Cdb {
    [cdb[6], cdb[7], cdb[8], cdb[9]] = len.to_be_bytes();
    cdb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_standards_have_them() {
        let wide = write16(0x0102_0304_0506_0708, 0x0a0b_0c0d);
        assert_eq!(
            wide,
            [0x8a, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 0, 0]
        );
        let narrow = blocks10(READ_10, FUA, 0x0102_0304, 0x0506);
        assert_eq!(narrow[..10], [0x28, 8, 1, 2, 3, 4, 0, 5, 6, 0]);
        let compared = compare_and_write(0, 5, 3);
        assert_eq!((compared[9], compared[13]), (5, 3));
        assert_eq!(unmap(1, 24)[..9], [0x42, 1, 0, 0, 0, 0, 0, 0, 24]);
        assert_eq!(
            inquiry(Some(0x83), 0x1234)[..5],
            [0x12, 1, 0x83, 0x12, 0x34]
        );
        assert_eq!(inquiry(None, 96)[..5], [0x12, 0, 0, 0, 96]);
        assert_eq!(report_luns(0x0102_0304)[6..10], [1, 2, 3, 4]);
        assert_eq!(read_capacity16(32)[..2], [0x9e, 0x10]);
        assert_eq!(read_capacity16(32)[13], 32);
        assert_eq!(report_target_port_groups(9)[..2], [0xa3, 0x0a]);
        let out = persistent_reserve_out(super::super::persistent_reserve_out::RESERVE, 5, 24);
        assert_eq!(out[..9], [0x5f, 1, 5, 0, 0, 0, 0, 0, 24]);
        let keys = persistent_reserve_in(super::super::persistent_reserve_in::READ_KEYS, 0x0102);
        assert_eq!(keys[..9], [0x5e, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
