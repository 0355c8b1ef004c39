//! The Third-party Copy VPD page (SPC-4, section 7.8.17; SBC-4, section 6.6.9).

use wire::scsi::opcode;
use wire::scsi::opcode::{receive_copy_results as results, third_party_copy_out as out_action};

use crate::copy;
use crate::token::{
    POINT_IN_TIME, RANGES_MAX, TIMEOUT_DEFAULT_S, TIMEOUT_MAX_S, TRANSFER_BYTES_MAX, ZERO,
};
use crate::unit::{TargetView, Unit};

/// Appends a third-party copy descriptor, in whole words.
fn describe(out: &mut Vec<u8>, kind: u16, mut bytes: Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    out.extend(kind.to_be_bytes());
    out.extend((bytes.len() as u16).to_be_bytes());
    out.extend(bytes);
}

/// Appends the page.
pub(crate) fn page(unit: &Unit, _: &TargetView, out: &mut Vec<u8>) {
    describe(out, 0x0000, token_limits(unit));
    describe(out, 0x0001, commands());
    // Parameter Data and Supported Descriptors of EXTENDED COPY.
    let mut lists = vec![0; 28];
    lists[4..6].copy_from_slice(&(copy::CSCDS_MAX as u16).to_be_bytes());
    lists[6..8].copy_from_slice(&(copy::SEGMENTS_MAX as u16).to_be_bytes());
    lists[8..12].copy_from_slice(&(copy::LIST_BYTES_MAX - 16).to_be_bytes());
    describe(out, 0x0004, lists);
    describe(out, 0x0008, vec![2, 0x02, 0xe4]);
    // Supported CSCD Descriptor IDs: the logical unit itself.
    describe(out, 0x000c, vec![0, 2, 0xff, 0xff]);
    describe(out, 0x0106, token_features());
    describe(out, 0x0108, token_types());
    // General Copy Operations: identified copies of a nexus; blocks of 512 bytes at least.
    let mut operations = Vec::new();
    let held = copy::HELD_MAX as u32;
    operations.extend(
        [held, held, copy::SEGMENT_BYTES_MAX]
            .map(u32::to_be_bytes)
            .concat(),
    );
    operations.extend([9, 0]);
    operations.resize(32, 0);
    describe(out, 0x8001, operations);
}

/// Block Device ROD Token Limits.
fn token_limits(unit: &Unit) -> Vec<u8> {
    let mut limits = vec![0; 6];
    let blocks = TRANSFER_BYTES_MAX / u64::from(unit.block_bytes);
    limits.extend((RANGES_MAX as u16).to_be_bytes());
    limits.extend(TIMEOUT_MAX_S.to_be_bytes());
    limits.extend(TIMEOUT_DEFAULT_S.to_be_bytes());
    // MAXIMUM TOKEN TRANSFER SIZE and OPTIMAL TRANSFER COUNT.
    limits.extend(blocks.to_be_bytes());
    limits.extend(blocks.to_be_bytes());
    limits
}

/// Supported Commands.
fn commands() -> Vec<u8> {
    let out_actions = [0, out_action::POPULATE_TOKEN, out_action::WRITE_USING_TOKEN];
    let in_actions = [
        results::COPY_STATUS,
        results::RECEIVE_DATA,
        results::OPERATING_PARAMETERS,
        results::FAILED_SEGMENT_DETAILS,
        results::ROD_TOKEN_INFORMATION,
    ];
    let mut list = vec![opcode::EXTENDED_COPY, out_actions.len() as u8];
    list.extend(out_actions);
    list.extend([opcode::RECEIVE_COPY_RESULTS, in_actions.len() as u8]);
    list.extend(in_actions);
    list.insert(0, list.len() as u8);
    list
}

/// ROD Token Features, with those of block devices.
fn token_features() -> Vec<u8> {
    // REMOTE TOKENS 0h: those of other copy managers are not taken.
    let mut features = vec![0; 44];
    // MINIMUM, MAXIMUM TOKEN LIFETIME: as long as it is used; MAXIMUM INACTIVITY TIMEOUT.
    features[20..24].copy_from_slice(&TIMEOUT_MAX_S.to_be_bytes());
    features[42..44].copy_from_slice(&48_u16.to_be_bytes());
    // DESCRIPTOR FORMAT 001b of a direct access block device.
    let mut block = vec![0x20, 0, 0, 44, 0, 0, 0, 0];
    let largest = TRANSFER_BYTES_MAX.to_be_bytes();
    // MAXIMUM BYTES IN BLOCK ROD, OPTIMAL BYTES of a transfer, to and from a token.
    block.extend([largest; 4].concat());
    block.resize(48, 0);
    features.extend(block);
    features
}

/// Supported ROD Types: point in time copies come and go as tokens, zeros come.
fn token_types() -> Vec<u8> {
    const TOKEN_IN: u8 = 0x02;
    const TOKEN_OUT: u8 = 0x01;
    let mut types = vec![0, 0, 0, 128];
    for (kind, flags) in [(POINT_IN_TIME, TOKEN_OUT | TOKEN_IN), (ZERO, TOKEN_IN)] {
        let mut one = kind.to_be_bytes().to_vec();
        one.push(flags);
        one.resize(64, 0);
        types.extend(one);
    }
    types
}
