//! Commands that are more than a plain read or write, on memory and on a file.

use wire::scsi::{asc, cdb, key, opcode};

use super::{ALICE, Fail, Nexus, illegal, serve, small};
use crate::common::stop;

const BLOCK: usize = 512;
const BLOCKS: u64 = (4 << 20) / BLOCK as u64;

/// BYTCHK 11b.
const SAME_BLOCK: u8 = 0b11 << 1;

/// On a RAM volume and on a file.
fn on_each_volume(test: impl Fn(&mut Nexus)) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = store::Spec {
        kind: store::Kind::file(folder.path().join("disk")),
        ..small("file")
    };
    let running = serve(vec![small("memory"), file]);
    for lun in [1, 2] {
        test(&mut Nexus::of(&running, ALICE).at(lun));
    }
    stop(running);
}

fn blocks(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [*byte; BLOCK]).collect()
}

/// First byte of each block, all bytes of which must be the same.
fn read(nexus: &mut Nexus, lba: u64, count: u32) -> Vec<u8> {
    let bytes = nexus.read(BLOCK, lba, count).expect("readable");
    let each = bytes.chunks(BLOCK).map(|block| {
        assert!(block.iter().all(|byte| *byte == block[0]), "a mixed block");
        block[0]
    });
    each.collect()
}

fn miscompare(offset: u64) -> Fail {
    Fail::Check(
        key::MISCOMPARE,
        asc::MISCOMPARE_DURING_VERIFY_OPERATION,
        Some(offset),
    )
}

#[test]
fn compare_and_write_replaces_what_is_expected_alone() {
    on_each_volume(|nexus| {
        nexus.write(BLOCK, 10, &blocks(&[1, 2, 3])).unwrap();
        let cdb = cdb::compare_and_write(0, 11, 2);
        nexus.give(cdb, &blocks(&[2, 3, 8, 9])).unwrap();
        assert_eq!(read(nexus, 10, 4), [1, 8, 9, 0]);
        let mut other = blocks(&[8, 9, 4, 4]);
        other[700] ^= 1;
        assert_eq!(nexus.give(cdb, &other), Err(miscompare(700)));
        assert_eq!(read(nexus, 10, 4), [1, 8, 9, 0]);
        // With FUA, at the end; none; past the end.
        let last = cdb::compare_and_write(cdb::FUA, BLOCKS - 1, 1);
        nexus.give(last, &blocks(&[0, 7])).unwrap();
        assert_eq!(read(nexus, BLOCKS - 1, 1), [7]);
        nexus.plain(cdb::compare_and_write(0, 5, 0)).unwrap();
        let past = nexus.give(
            cdb::compare_and_write(0, BLOCKS - 1, 2),
            &blocks(&[7, 0, 1, 1]),
        );
        assert!(matches!(past, Err(Fail::Check(_, 0x2100, _))), "{past:?}");
    });
}

#[test]
fn orwrite_sets_bits_and_clears_none() {
    on_each_volume(|nexus| {
        nexus.write(BLOCK, 20, &blocks(&[0x0f, 0xf0])).unwrap();
        let cdb = cdb::blocks16(opcode::ORWRITE_16, 0, 20, 3);
        nexus.give(cdb, &blocks(&[0x30, 0x0c, 0x01])).unwrap();
        assert_eq!(read(nexus, 20, 4), [0x3f, 0xfc, 0x01, 0]);
    });
}

#[test]
fn write_same_repeats_a_block() {
    on_each_volume(|nexus| {
        nexus.write(BLOCK, 0, &blocks(&[9; 8])).unwrap();
        // More than is written in one piece.
        let cdb = cdb::blocks16(opcode::WRITE_SAME_16, 0, 1, 1500);
        nexus.give(cdb, &blocks(&[5])).unwrap();
        let mut expected = vec![5; 1502];
        (expected[0], expected[1501]) = (9, 0);
        assert_eq!(read(nexus, 0, 1502), expected);
        // Zeros, written or given back.
        for bits in [0, cdb::UNMAP_BIT] {
            let zeros = cdb::blocks10(opcode::WRITE_SAME_10, bits, 3, 4);
            nexus.write(BLOCK, 0, &blocks(&[9; 8])).unwrap();
            nexus.give(zeros, &blocks(&[0])).unwrap();
            assert_eq!(read(nexus, 0, 8), [9, 9, 9, 0, 0, 0, 0, 9]);
        }
        let none = cdb::blocks16(opcode::WRITE_SAME_16, cdb::NDOB | cdb::UNMAP_BIT, 0, 8);
        nexus.plain(none).unwrap();
        assert_eq!(read(nexus, 0, 9), [0, 0, 0, 0, 0, 0, 0, 0, 5]);
        // What is not zero is written whatever UNMAP says.
        let cdb = cdb::blocks16(opcode::WRITE_SAME_16, cdb::UNMAP_BIT, 0, 2);
        nexus.give(cdb, &blocks(&[6])).unwrap();
        assert_eq!(read(nexus, 0, 3), [6, 6, 0]);
    });
}

#[test]
fn verify_compares_where_it_is_asked_to() {
    on_each_volume(|nexus| {
        nexus.write(BLOCK, 30, &blocks(&[1, 2])).unwrap();
        let cdb = |bits, count| cdb::blocks16(opcode::VERIFY_16, bits, 30, count);
        nexus.plain(cdb(0, 2)).unwrap();
        nexus.give(cdb(cdb::BYTCHK, 2), &blocks(&[1, 2])).unwrap();
        let mut other = blocks(&[1, 2]);
        other[513] = 0;
        assert_eq!(
            nexus.give(cdb(cdb::BYTCHK, 2), &other),
            Err(miscompare(513))
        );
        nexus.give(cdb(SAME_BLOCK, 1), &blocks(&[1])).unwrap();
        let differs = nexus.give(cdb(SAME_BLOCK, 2), &blocks(&[1]));
        assert!(
            matches!(differs, Err(Fail::Check(key::MISCOMPARE, ..))),
            "{differs:?}"
        );
        // More than is compared in one piece, of which the last block differs.
        let same = cdb::blocks16(opcode::WRITE_SAME_16, 0, 100, 1300);
        nexus.give(same, &blocks(&[4])).unwrap();
        let same = |count| cdb::blocks16(opcode::VERIFY_16, SAME_BLOCK, 100, count);
        nexus.give(same(1300), &blocks(&[4])).unwrap();
        let differs = nexus.give(same(1301), &blocks(&[4]));
        assert!(
            matches!(differs, Err(Fail::Check(key::MISCOMPARE, ..))),
            "{differs:?}"
        );
    });
}

#[test]
fn write_and_verify_writes() {
    on_each_volume(|nexus| {
        for (bits, byte) in [(0, 3), (cdb::BYTCHK, 4)] {
            let cdb = cdb::blocks16(opcode::WRITE_AND_VERIFY_16, bits, 40, 2);
            nexus.give(cdb, &blocks(&[byte; 2])).unwrap();
            assert_eq!(read(nexus, 40, 3), [byte, byte, 0]);
        }
    });
}

/// An UNMAP parameter list.
fn unmap(nexus: &mut Nexus, ranges: &[(u64, u32)]) -> Result<(), Fail> {
    let len = ranges.len() * 16;
    let mut list = ((len + 6) as u16).to_be_bytes().to_vec();
    list.extend((len as u16).to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    nexus.give(cdb::unmap(0, list.len() as u16), &list)
}

#[test]
fn unmap_checks_every_range_before_it_touches_one() {
    on_each_volume(|nexus| {
        nexus.write(BLOCK, 0, &blocks(&[1; 128])).unwrap();
        let past = unmap(nexus, &[(0, 64), (BLOCKS - 1, 2)]);
        assert!(matches!(past, Err(Fail::Check(_, 0x2100, _))), "{past:?}");
        assert_eq!(read(nexus, 0, 128), [1; 128]);
        unmap(nexus, &[(0, 32), (64, 32), (5, 0)]).unwrap();
        let expected: Vec<u8> = (0..128).map(|lba| u8::from(lba / 32 % 2 == 1)).collect();
        assert_eq!(read(nexus, 0, 128), expected);
        unmap(nexus, &[]).unwrap();
        nexus.plain(cdb::unmap(0, 0)).unwrap();
        let short = nexus.give(cdb::unmap(0, 7), &[0; 7]);
        assert_eq!(short, Err(illegal(asc::PARAMETER_LIST_LENGTH_ERROR)));
    });
}

#[test]
fn get_lba_status_tells_mapped_and_deallocated_blocks() {
    on_each_volume(|nexus| {
        // What is given back is given back in frames of 16 KiB, or 4 KiB blocks of
        // a file system: this is whole numbers of both.
        nexus.write(BLOCK, 64, &blocks(&[1; 64])).unwrap();
        let told = nexus.take(cdb::get_lba_status(0, 256), 256).unwrap();
        assert_eq!(told.len() - 4, told[3] as usize);
        let each = told[8..].chunks(16).map(|one| {
            let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
            (number(&one[..8]), number(&one[8..12]), one[12])
        });
        let each: Vec<_> = each.collect();
        assert_eq!(each, [(0, 64, 1), (64, 64, 0), (128, BLOCKS - 128, 1)]);
        let one = nexus.take(cdb::get_lba_status(70, 24), 24).unwrap();
        assert_eq!(one[8..21], [0, 0, 0, 0, 0, 0, 0, 70, 0, 0, 0, 58, 0]);
    });
}

#[test]
fn caches_are_synchronized_and_prefetched() {
    on_each_volume(|nexus| {
        /// IMMED.
        const IMMEDIATE: u8 = 0x02;
        nexus.write(BLOCK, 0, &blocks(&[1])).unwrap();
        for bits in [0, IMMEDIATE] {
            for _ in 0..3 {
                let cdb = cdb::blocks10(opcode::SYNCHRONIZE_CACHE_10, bits, 0, 0);
                nexus.plain(cdb).unwrap();
            }
            nexus
                .plain(cdb::blocks16(opcode::PRE_FETCH_16, bits, 0, 100))
                .unwrap();
        }
        assert_eq!(read(nexus, 0, 1), [1]);
    });
}
