use proptest::prelude::*;
use wire::scsi::opcode::third_party_copy_out as action;

use super::*;
use crate::testing::unit;

fn descriptors(ranges: &[(u64, u32)]) -> Vec<u8> {
    let one = |(lba, blocks): &(u64, u32)| {
        let (lba, blocks) = (lba.to_be_bytes(), blocks.to_be_bytes());
        [&lba[..], &blocks, &[0; 4]].concat()
    };
    ranges.iter().flat_map(one).collect()
}

/// A head whose first two bytes are the length of all behind them, and its last two that of
/// the ranges.
fn list(mut head: Vec<u8>, ranges: &[(u64, u32)]) -> Vec<u8> {
    let ranges = descriptors(ranges);
    let at = head.len();
    head[at - 2..].copy_from_slice(&(ranges.len() as u16).to_be_bytes());
    head[..2].copy_from_slice(&((at - 2 + ranges.len()) as u16).to_be_bytes());
    [head, ranges].concat()
}

fn populate(ranges: &[(u64, u32)]) -> Vec<u8> {
    list(vec![0; 16], ranges)
}

fn using(token: &Token, offset: u64, ranges: &[(u64, u32)]) -> Vec<u8> {
    let mut head = vec![0; 536];
    head[8..16].copy_from_slice(&offset.to_be_bytes());
    head[16..528].copy_from_slice(token);
    list(head, ranges)
}

#[test]
fn populate_list_names_ranges_in_their_order() {
    let unit = unit();
    let block = u64::from(unit.block_bytes);
    let ranges = [(7, 3), (0, 0), (2, 5)];
    let parsed = Populate::parse(&populate(&ranges), &unit).unwrap();
    let range = |lba, blocks| Range {
        offset: lba * block,
        len: blocks * block,
    };
    assert_eq!(parsed.ranges, [range(7, 3), range(2, 5)]);
    assert_eq!(parsed.timeout_s, TIMEOUT_DEFAULT_S);
    assert_eq!(total(&parsed.ranges), 8 * block);
    let mut typed = populate(&ranges);
    typed[2] = 0x03;
    typed[7] = 9;
    typed[8..12].copy_from_slice(&POINT_IN_TIME.to_be_bytes());
    assert_eq!(Populate::parse(&typed, &unit).unwrap().timeout_s, 9);
    // An unfinished descriptor at the end is ignored, and one that has not come.
    let mut cut = populate(&ranges);
    cut[15] += 5;
    cut.truncate(16 + 2 * 16 + 3);
    assert_eq!(Populate::parse(&cut, &unit).unwrap().ranges, [range(7, 3)]);
}

#[test]
fn lists_that_are_wrong_are_refused_by_the_sense_of_the_standard() {
    let unit = unit();
    let parse = |list: &[u8]| Populate::parse(list, &unit).map(|_| ()).map_err(|s| s.code);
    let wrong = |change: fn(&mut Vec<u8>)| {
        let mut list = populate(&[(0, 1)]);
        change(&mut list);
        parse(&list)
    };
    let field = Err(asc::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(parse(&[0; 15]), Err(asc::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(wrong(|list| list[1] = 29), field, "data length");
    assert_eq!(wrong(|list| list[15] = 15), field, "no range");
    assert_eq!(wrong(|list| list[4] = 1), field, "timeout");
    assert_eq!(wrong(|list| list[2] = 2), field, "type");
    let last = unit.block_count - 1;
    assert_eq!(parse(&populate(&[(last, 1)])), Ok(()));
    let outside = Err(asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    assert_eq!(parse(&populate(&[(last, 2)])), outside);
    assert_eq!(parse(&populate(&[(u64::MAX, 1)])), outside);
    assert_eq!(
        parse(&populate(&[(0, 4), (8, 1), (3, 1)])),
        field,
        "overlap"
    );
    let many: Vec<_> = (0..=RANGES_MAX as u64).map(|lba| (lba, 1)).collect();
    assert_eq!(
        parse(&populate(&many)),
        Err(asc::TOO_MANY_SEGMENT_DESCRIPTORS)
    );
    assert_eq!(parse(&populate(&many[1..])), Ok(()));
    let large = Unit {
        block_count: 1 << 40,
        ..unit.clone()
    };
    let blocks = (TRANSFER_BYTES_MAX / u64::from(unit.block_bytes)) as u32;
    let fits = |blocks| Populate::parse(&populate(&[(0, blocks)]), &large).is_ok();
    assert!(fits(blocks) && !fits(blocks + 1));
}

#[test]
fn write_using_token_list_is_parsed_with_its_token() {
    let unit = unit();
    let secret = token(0x0102_0304_0506_0708, &[9; 32], 4096, (&[6; 16], 512));
    assert_eq!(id_of(&secret), 0x0102_0304_0506_0708);
    let mut list = using(&secret, 3, &[(1, 2)]);
    let parsed = WriteUsing::parse(&list, &unit).unwrap();
    assert_eq!(
        (&parsed.token, parsed.offset),
        (&secret, 3 * u64::from(unit.block_bytes))
    );
    assert!(!parsed.is_immediate && !parsed.deletes && !parsed.is_of_zeros());
    list[2] = 0x03;
    list[16..20].copy_from_slice(&ZERO.to_be_bytes());
    let parsed = WriteUsing::parse(&list, &unit).unwrap();
    assert!(parsed.is_immediate && parsed.deletes && parsed.is_of_zeros());
    list[16 + 7] = 0;
    let refused = WriteUsing::parse(&list, &unit).unwrap_err();
    assert_eq!(refused.code, asc::INVALID_TOKEN_LENGTH);
    let far = using(&secret, u64::MAX, &[(1, 2)]);
    let refused = WriteUsing::parse(&far, &unit).unwrap_err();
    assert_eq!(refused.code, asc::INVALID_FIELD_IN_PARAMETER_LIST);
    let refused = WriteUsing::parse(&list[..535], &unit).unwrap_err();
    assert_eq!(refused.code, asc::PARAMETER_LIST_LENGTH_ERROR);
}

/// SPC-4, table 108, with the device type specific data of SBC-4.
#[test]
fn token_lies_as_the_standards_have_it() {
    let made = token(0x0102, &[9; 32], 0x0304, (&[6; 16], 0x1000));
    let mut expected = [0; TOKEN_BYTES];
    expected[..8].copy_from_slice(&[0x00, 0x80, 0, 0, 0, 0, 0x01, 0xf8]);
    expected[14..16].copy_from_slice(&[1, 2]);
    // An identification descriptor CSCD descriptor: binary, NAA, 16 bytes, blocks of 4096 bytes.
    expected[16..24].copy_from_slice(&[0xe4, 0, 0, 0, 0x01, 0x03, 0, 16]);
    expected[24..40].fill(6);
    expected[45..48].copy_from_slice(&[0, 0x10, 0]);
    expected[62..64].copy_from_slice(&[3, 4]);
    expected[96..100].copy_from_slice(&[0, 0, 0x10, 0]);
    expected[480..].fill(9);
    assert_eq!(made[..], expected);
}

#[test]
fn information_tells_how_an_operation_stands() {
    let mut held = NexusOperations::default();
    let unknown = held.information(5, 999).unwrap_err();
    assert_eq!(unknown.code, asc::INVALID_FIELD_IN_CDB);
    held.begin(5, action::POPULATE_TOKEN, false, 8).unwrap();
    assert_eq!(held.information(5, 999).unwrap()[4..6], [0x10, 0x11]);
    let again = held
        .begin(5, action::WRITE_USING_TOKEN, true, 8)
        .unwrap_err();
    assert_eq!(again.code, asc::OPERATION_IN_PROGRESS);
    let secret = token(1, &[2; 32], 4096, (&[6; 16], 512));
    held.advance(5, 8);
    held.end(5, Some(secret.clone()));
    let told = held.information(5, 999).unwrap();
    assert_eq!(told.len(), 32 + 4 + 2 + TOKEN_BYTES);
    assert_eq!(number(&told[..4]) as usize, told.len() - 4);
    assert_eq!((told[5], told[15], number(&told[16..24])), (0x01, 0xf1, 8));
    assert_eq!(told[6..12], [0, 1, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(number(&told[32..36]) as usize, TOKEN_BYTES + 2);
    assert_eq!(told[38..], secret[..]);
    assert_eq!(held.information(5, 40).unwrap(), told[..40]);
    // The identifier is free, and what it was is forgotten.
    held.begin(5, action::WRITE_USING_TOKEN, true, 8).unwrap();
    assert_eq!(held.information(5, 999).unwrap()[4..6], [0x11, 0x12]);
    held.advance(5, 3);
    held.end(5, None);
    assert_eq!(held.information(5, 999).unwrap()[5], 0x03, "a part of it");
    held.begin(6, action::WRITE_USING_TOKEN, false, 8).unwrap();
    let mut sense = SenseBytes::EMPTY;
    Sense::illegal(asc::TOKEN_REVOKED).encode(false, &mut sense);
    held.fail(6, sense);
    let told = held.information(6, 999).unwrap();
    assert_eq!((told[5], told[12]), (0x02, status::CHECK_CONDITION));
    assert_eq!(told[32..32 + usize::from(told[14])], *sense.as_slice());
    held.forget(6);
    assert!(held.information(6, 999).is_err());
}

#[test]
fn operations_of_a_nexus_are_bounded() {
    let mut held = NexusOperations::default();
    let mut begin = |id| held.begin(id, action::WRITE_USING_TOKEN, false, 1);
    (0..HELD_MAX as u32).for_each(|id| begin(id).unwrap());
    assert_eq!(begin(99).unwrap_err().code, asc::SYSTEM_RESOURCE_FAILURE);
    held.end(3, None);
    held.begin(99, action::WRITE_USING_TOKEN, false, 1).unwrap();
    assert!(
        held.information(3, 99).is_err(),
        "the oldest that is over makes room"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(list in prop::collection::vec(any::<u8>(), 0..700)) {
        let unit = unit();
        let size = unit.block_count * u64::from(unit.block_bytes);
        if let Ok(populate) = Populate::parse(&list, &unit) {
            prop_assert!(populate.ranges.iter().all(|range| range.offset + range.len <= size));
        }
        let _ = WriteUsing::parse(&list, &unit);
    }
}
