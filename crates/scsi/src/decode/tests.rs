use wire::scsi::key;

use super::*;
use crate::command::{Check, IoKind, ModeSelect, ModeSense, ReservationAccess, ScsiIo};
use crate::sense::Specific;
use crate::table::{Needs, ROWS, name};
use crate::testing::unit;
use crate::unit::AccessState;

/// A CDB from its first bytes.
fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

fn decoded(bytes: &[u8]) -> Result<Command, Sense> {
    decode(&cdb(bytes), &unit())
}

fn io(kind: IoKind, lba: u64, blocks: u64, fua: bool) -> Result<Command, Sense> {
    Ok(Command::Io(ScsiIo {
        kind,
        offset: lba * 512,
        len: blocks * 512,
        fua,
    }))
}

#[test]
fn reads_and_writes_of_every_length() {
    use IoKind::{Read, Write};
    assert_eq!(decoded(&[0x08, 0, 1, 2, 3]), io(Read, 0x102, 3, false));
    assert_eq!(decoded(&[0x08, 0, 1, 2, 0]), io(Read, 0x102, 256, false));
    assert_eq!(decoded(&[0x0a, 0, 0, 0, 1]), io(Write, 0, 1, false));
    assert_eq!(
        decoded(&[0x28, 0, 0, 0, 1, 2, 0, 1, 4]),
        io(Read, 0x102, 0x104, false)
    );
    assert_eq!(
        decoded(&[0x28, 0x18, 0, 0, 0, 2, 0x1f, 0, 4]),
        io(Read, 2, 4, true)
    );
    assert_eq!(
        decoded(&[0x2a, 0x10, 0, 0, 0, 2, 0, 0, 4]),
        io(Write, 2, 4, false)
    );
    assert_eq!(
        decoded(&[0x2a, 0x08, 0, 0, 0, 2, 0, 0, 4]),
        io(Write, 2, 4, true)
    );
    assert_eq!(
        decoded(&[0xa8, 0, 0, 0, 1, 2, 0, 0, 1, 4]),
        io(Read, 0x102, 0x104, false)
    );
    assert_eq!(
        decoded(&[0xaa, 8, 0, 0, 0, 2, 0, 0, 0, 4]),
        io(Write, 2, 4, true)
    );
    let sixteen = |code, flags| [code, flags, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 4];
    assert_eq!(decoded(&sixteen(0x88, 0)), io(Read, 0x102, 0x104, false));
    assert_eq!(decoded(&sixteen(0x8a, 8)), io(Write, 0x102, 0x104, true));
    assert_eq!(
        decoded(&sixteen(0x8b, 8)),
        io(IoKind::OrWrite, 0x102, 0x104, true)
    );
    let atomic = [0x9c, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 0];
    assert_eq!(
        decoded(&atomic),
        io(IoKind::WriteAtomic, 0x102, 0x100, false)
    );
}

#[test]
fn verify_checks_the_medium_or_the_data() {
    let verify = |code, flags, at: usize| {
        let mut bytes = [0; 14];
        bytes[0] = code;
        bytes[1] = flags;
        bytes[at] = 4;
        decoded(&bytes)
    };
    for (code, at) in [(0x2f, 8), (0xaf, 9), (0x8f, 13)] {
        let expect = |check| io(IoKind::Verify(check), 0, 4, false);
        assert_eq!(verify(code, 0x10, at), expect(Check::Medium));
        assert_eq!(verify(code, 0x02, at), expect(Check::Data));
        assert_eq!(verify(code, 0x06, at), expect(Check::SameBlock));
        assert_eq!(verify(code, 0x04, at), Err(Sense::in_cdb(1, Some(2))));
    }
    for (code, at) in [(0x2e, 8), (0xae, 9), (0x8e, 13)] {
        let expect = |compare| io(IoKind::WriteAndVerify { compare }, 0, 4, true);
        assert_eq!(verify(code, 0x00, at), expect(false));
        assert_eq!(verify(code, 0x12, at), expect(true));
        assert_eq!(verify(code, 0x04, at), Err(Sense::in_cdb(1, Some(2))));
        assert_eq!(verify(code, 0x06, at), Err(Sense::in_cdb(1, Some(2))));
    }
    let compare = [0x89, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2];
    let command = decoded(&compare);
    assert_eq!(command, io(IoKind::CompareAndWrite, 7, 2, true));
    assert_eq!(command.unwrap().data_out_len(512), 4 * 512);
}

#[test]
fn write_same_has_its_unmap_and_zeros_flags() {
    let same = |unmap, zeros| IoKind::WriteSame { unmap, zeros };
    assert_eq!(
        decoded(&[0x41, 0, 0, 0, 0, 1, 0, 0, 9]),
        io(same(false, false), 1, 9, false)
    );
    assert_eq!(
        decoded(&[0x41, 8, 0, 0, 0, 1, 0, 0, 9]),
        io(same(true, false), 1, 9, false)
    );
    // ANCHOR is not offered, with UNMAP or without.
    assert_eq!(
        decoded(&[0x41, 0x18, 0, 0, 0, 1, 0, 0, 9]),
        Err(Sense::in_cdb(1, Some(4)))
    );
    assert_eq!(
        decoded(&[0x41, 0x10, 0, 0, 0, 1, 0, 0, 9]),
        Err(Sense::in_cdb(1, Some(4)))
    );
    let sixteen = |flags, blocks| decoded(&[0x93, flags, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, blocks]);
    assert_eq!(sixteen(0x08, 3), io(same(true, false), 1, 3, false));
    let without = sixteen(0x09, 3);
    assert_eq!(without, io(same(true, true), 1, 3, false));
    assert_eq!(without.unwrap().data_out_len(512), 0);
    assert_eq!(sixteen(0, 3).unwrap().data_out_len(512), 512);
    // WSNZ: never the whole medium.
    assert_eq!(sixteen(0, 0), Err(Sense::in_cdb(10, None)));
    let mut thick = unit();
    thick.thin = false;
    let unmap = decode(&cdb(&[0x41, 8, 0, 0, 0, 1, 0, 0, 9]), &thick);
    assert_eq!(unmap, Err(Sense::in_cdb(1, Some(3))));
    let unmap = decode(&cdb(&[0x42]), &thick).unwrap_err();
    assert_eq!(unmap.code, asc::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(
        decoded(&[0x42, 0, 0, 0, 0, 0, 0, 1, 2]),
        Ok(Command::Unmap { list_len: 0x102 })
    );
}

#[test]
fn synchronize_cache_and_pre_fetch() {
    let flush = |immediate| IoKind::Flush { immediate };
    assert_eq!(decoded(&[0x35]), io(flush(false), 0, 2048, true));
    assert_eq!(
        decoded(&[0x35, 2, 0, 0, 0, 9, 0, 0, 1]),
        io(flush(true), 9, 1, true)
    );
    assert_eq!(
        decoded(&[0x91, 4, 0, 0, 0, 0, 0, 0, 0, 8]),
        io(flush(false), 8, 2040, true)
    );
    let fetch = IoKind::PreFetch;
    assert_eq!(
        decoded(&[0x34, 2, 0, 0, 0, 9, 3, 0, 1]),
        io(fetch, 9, 1, false)
    );
    assert_eq!(
        decoded(&[0x90, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
        io(fetch, 2048, 0, false)
    );
}

#[test]
fn blocks_behind_the_end_of_the_medium_are_refused() {
    let read = |lba: u64, blocks: u32| {
        let mut bytes = [0x88; 14];
        bytes[1] = 0;
        bytes[2..10].copy_from_slice(&lba.to_be_bytes());
        bytes[10..14].copy_from_slice(&blocks.to_be_bytes());
        decoded(&bytes)
    };
    assert_eq!(read(2047, 1), io(IoKind::Read, 2047, 1, false));
    assert_eq!(read(2048, 0), io(IoKind::Read, 2048, 0, false));
    let outside = |at| Err(Sense::out_of_range().with_information(at));
    assert_eq!(read(2047, 2), outside(2048));
    assert_eq!(read(2049, 0), outside(2049));
    assert_eq!(read(u64::MAX, 1), outside(u64::MAX));
    assert_eq!(read(u64::MAX, 0), outside(u64::MAX));
    assert_eq!(read(0, 1024), io(IoKind::Read, 0, 1024, false));
    assert_eq!(read(0, 1025), Err(Sense::in_cdb(10, None)));
    assert_eq!(read(1024, 1025), outside(2048));
    let status = |lba| decoded(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 8, lba, 0, 0, 0, 24]);
    assert_eq!(status(0), outside(2048));
    let first = decoded(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 7, 0xff, 0, 0, 0, 24]);
    let expected = Command::GetLbaStatus {
        offset: 2047 * 512,
        allocation_len: 24,
    };
    assert_eq!(first, Ok(expected));
}

#[test]
fn limits_of_what_is_atomic() {
    let mut unit = unit();
    let atomic = |blocks: u16, unit: &Unit| {
        let [high, low] = blocks.to_be_bytes();
        decode(
            &cdb(&[0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]),
            unit,
        )
    };
    assert!(atomic(256, &unit).is_ok());
    assert_eq!(atomic(257, &unit), Err(Sense::in_cdb(12, None)));
    // A boundary is not offered.
    let boundary = decoded(&[0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
    assert_eq!(boundary, Err(Sense::in_cdb(11, Some(0))));
    unit.atomic_power_fail_bytes = 512;
    let code = atomic(1, &unit).unwrap_err().code;
    assert_eq!(code, asc::INVALID_COMMAND_OPERATION_CODE);
    let compare = |blocks| cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, blocks]);
    unit.atomic_bytes = 64 << 10;
    assert!(decode(&compare(128), &unit).is_ok());
    assert_eq!(decode(&compare(129), &unit), Err(Sense::in_cdb(13, None)));
    unit.atomic_bytes = 1 << 20;
    assert!(decode(&compare(255), &unit).is_ok());
    unit.io_bytes_max = 64 << 10;
    assert!(decode(&compare(64), &unit).is_ok());
    assert_eq!(decode(&compare(65), &unit), Err(Sense::in_cdb(13, None)));
}

#[test]
fn protected_media_are_not_changed() {
    let mut unit = unit();
    let writes = [
        0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e, 0x41, 0x93, 0x89, 0x8b, 0x9c, 0x42,
    ];
    let refused = |unit: &Unit| {
        let refused = (0..=255u8).filter(|code| {
            let sense = decode(&cdb(&[*code]), unit).err();
            sense.is_some_and(|sense| sense.key == key::DATA_PROTECT)
        });
        refused.collect::<Vec<_>>()
    };
    assert_eq!(refused(&unit), []);
    unit.modes.write_protected = true;
    let mut sorted = writes;
    sorted.sort_unstable();
    assert_eq!(refused(&unit), sorted);
    let code = |unit: &Unit| decode(&cdb(&[0x2a]), unit).unwrap_err().code;
    assert_eq!(code(&unit), 0x2702);
    unit.read_only = true;
    assert_eq!(code(&unit), 0x2700);
}

#[test]
fn a_disabled_write_cache_makes_every_write_durable() {
    let mut unit = unit();
    unit.modes.write_cache = false;
    let fua = |code: u8, unit: &Unit| match decode(
        &cdb(&[code, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]),
        unit,
    ) {
        Ok(Command::Io(io)) => io.fua,
        other => panic!("{code:02x}: {other:?}"),
    };
    let writes = [0x2a, 0xaa, 0x8a, 0x41, 0x93, 0x8b, 0x9c, 0x89];
    assert!(writes.iter().all(|code| fua(*code, &unit)));
    assert!(!fua(0x28, &unit) && !fua(0x88, &unit));
    unit.volatile_cache = false;
    assert!(!writes.iter().any(|code| fua(*code, &unit)));
}

#[test]
fn access_states_let_pass_what_the_standard_says() {
    let mut unit = unit();
    let passing = |unit: &Unit| {
        let rows = ROWS.iter().filter(|row| {
            let bytes = [row.opcode, row.action.unwrap_or(0)];
            let result = decode(&cdb(&bytes), unit);
            result.err().is_none_or(|sense| sense.key != key::NOT_READY)
        });
        rows.map(|row| (row.opcode, row.action)).collect::<Vec<_>>()
    };
    assert_eq!(passing(&unit).len(), ROWS.len());
    let always = [
        (0x03, None),
        (0x12, None),
        (0xa0, None),
        (0xa3, Some(0x0a)),
        (0xa4, Some(0x0a)),
    ];
    for (state, code) in [
        (AccessState::Unavailable, 0x040c),
        (AccessState::Offline, 0x0412),
        (AccessState::Transitioning, 0x040a),
    ] {
        unit.state = state;
        assert_eq!(passing(&unit), always, "{state:?}");
        assert_eq!(decode(&[0; 16], &unit).unwrap_err().code, code);
    }
    unit.state = AccessState::Standby;
    assert_eq!(decode(&[0; 16], &unit).unwrap_err().code, 0x040b);
    let standby = passing(&unit);
    assert!(always.iter().all(|row| standby.contains(row)));
    for row in [
        (0x1a, None),
        (0x15, None),
        (0x25, None),
        (0x9e, Some(0x10)),
        (0x5e, Some(0)),
        (0x5f, Some(6)),
    ] {
        assert!(standby.contains(&row), "{row:02x?}");
    }
    for row in [
        (0x00, None),
        (0x28, None),
        (0x2a, None),
        (0x35, None),
        (0x83, Some(0)),
        (0x16, None),
    ] {
        assert!(!standby.contains(&row), "{row:02x?}");
    }
    unit.state = AccessState::ActiveNonOptimized;
    assert_eq!(passing(&unit).len(), ROWS.len());
}

#[test]
fn fields_that_must_be_zero_are_named() {
    let refused = |bytes: &[u8]| decoded(bytes).unwrap_err();
    // RDPROTECT, NACA, a reserved byte, the first of several.
    assert_eq!(refused(&[0x28, 0x20]), Sense::in_cdb(1, Some(5)));
    assert_eq!(
        refused(&[0x00, 0, 0, 0, 0, 0x04]),
        Sense::in_cdb(5, Some(2))
    );
    assert_eq!(refused(&[0x12, 0, 0, 0, 0, 1]), Sense::in_cdb(5, Some(0)));
    assert_eq!(
        refused(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1]),
        Sense::in_cdb(10, Some(1))
    );
    // What follows the CDB is ignored.
    assert_eq!(
        decoded(&[0, 0, 0, 0, 0, 0, 0xff]),
        Ok(Command::TestUnitReady)
    );
}

#[test]
fn unknown_codes_and_service_actions_are_refused() {
    for code in [0x04, 0x4a, 0x7f, 0xa1, 0xc0, 0xff] {
        let sense = decoded(&[code]).unwrap_err();
        assert_eq!((sense.key, sense.code), (5, 0x2000), "{code:02x}");
        assert_eq!(name(&cdb(&[code])), None);
    }
    for bytes in [
        [0x9e, 0x11],
        [0x5e, 0x04],
        [0x5f, 0x1f],
        [0xa3, 0x00],
        [0xa4, 0x06],
        [0x83, 0x01],
        [0x84, 0x02],
    ] {
        assert_eq!(
            decoded(&bytes),
            Err(Sense::in_cdb(1, Some(4))),
            "{bytes:02x?}"
        );
        assert_eq!(name(&cdb(&bytes)), None);
    }
    assert_eq!(name(&cdb(&[0xa3, 0x2a])), Some("REPORT TARGET PORT GROUPS"));
}

#[test]
fn commands_of_spc_are_decoded() {
    assert_eq!(
        decoded(&[0x03, 1, 0, 0, 252]),
        Ok(Command::RequestSense {
            descriptor: true,
            allocation_len: 252
        })
    );
    assert_eq!(
        decoded(&[0x12, 1, 0x83, 1, 2]),
        Ok(Command::Inquiry {
            page: Some(0x83),
            allocation_len: 0x102
        })
    );
    assert_eq!(
        decoded(&[0x12, 0, 0x83, 0, 36]),
        Err(Sense::in_cdb(2, None))
    );
    let sense = ModeSense {
        long: true,
        long_lba: true,
        no_block_descriptor: true,
        control: 2,
        page: 0x0a,
        subpage: 1,
        allocation_len: 0x102,
    };
    assert_eq!(
        decoded(&[0x5a, 0x18, 0x8a, 1, 0, 0, 0, 1, 2]),
        Ok(Command::ModeSense(sense))
    );
    assert_eq!(
        decoded(&[0x15, 0x10, 0, 0, 24]),
        Ok(Command::ModeSelect(ModeSelect {
            long: false,
            list_len: 24
        }))
    );
    // Vendor specific pages, and pages to be saved.
    assert_eq!(
        decoded(&[0x15, 0x00, 0, 0, 24]),
        Err(Sense::in_cdb(1, Some(4)))
    );
    assert_eq!(decoded(&[0x55, 0x11]), Err(Sense::in_cdb(1, Some(0))));
    assert_eq!(
        decoded(&[0x5e, 3, 0, 0, 0, 0, 0, 1, 2]),
        Ok(Command::PersistentReserveIn {
            action: 3,
            allocation_len: 0x102
        })
    );
    assert_eq!(
        decoded(&[0x5f, 4, 0x15, 0, 0, 0, 0, 0, 24]),
        Ok(Command::PersistentReserveOut {
            action: 4,
            scope: 1,
            kind: 5,
            list_len: 24
        })
    );
    assert_eq!(
        decoded(&[0x84, 3, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]),
        Ok(Command::ReceiveCopyResults {
            action: 3,
            list_id: 7,
            allocation_len: 0x102
        })
    );
    assert_eq!(
        decoded(&[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]),
        Ok(Command::ExtendedCopy { list_len: 0x102 })
    );
    assert_eq!(decoded(&[0xa3, 0x4a]), Err(Sense::in_cdb(1, Some(7))));
    assert_eq!(decoded(&[0xa3, 0x0d]), Err(Sense::in_cdb(6, None)));
    assert_eq!(
        decoded(&[0x1b, 1, 0, 0, 0]),
        Ok(Command::StartStop {
            flush: true,
            start: false
        })
    );
    assert_eq!(
        decoded(&[0x1b, 0, 0, 0, 4]),
        Ok(Command::StartStop {
            flush: false,
            start: false
        })
    );
    // The medium cannot be loaded or ejected.
    assert_eq!(decoded(&[0x1b, 0, 0, 0, 2]), Err(Sense::in_cdb(4, Some(1))));
    for code in [0x16, 0x56] {
        assert_eq!(decoded(&[code]), Ok(Command::Reserve));
        assert_eq!(decoded(&[code + 1]), Ok(Command::Release));
    }
}

#[test]
fn without_a_unit_only_a_few_commands_are_answered() {
    let answered = |is_well_known| {
        let codes =
            (0..=255u8).filter(|code| decode_elsewhere(&cdb(&[*code]), is_well_known).is_ok());
        codes.collect::<Vec<_>>()
    };
    assert_eq!(answered(false), [0x03, 0x12, 0xa0]);
    assert_eq!(answered(true), [0x00, 0x03, 0x12, 0xa0]);
    let code = |is_well_known| {
        decode_elsewhere(&cdb(&[0x28]), is_well_known)
            .unwrap_err()
            .code
    };
    assert_eq!(code(false), asc::LOGICAL_UNIT_NOT_SUPPORTED);
    assert_eq!(code(true), asc::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(
        decode_elsewhere(&cdb(&[0xa0, 1]), false),
        Err(Sense::in_cdb(1, Some(0)))
    );
}

/// SPC-4, table 68; SBC-3, table 10.
#[test]
fn commands_need_the_access_that_the_standard_says() {
    let access = |bytes: &[u8]| decoded(bytes).unwrap().access();
    for (expected, cdbs) in [
        (
            ReservationAccess::Free,
            &[&[0x12][..], &[0xa0], &[0x03]][..],
        ),
        (
            ReservationAccess::Inspect,
            &[
                &[0x00],
                &[0x25],
                &[0x9e, 0x10],
                &[0x4d],
                &[0xa3, 0x0a],
                &[0x1b, 0, 0, 0, 1],
                &[0x1e],
            ],
        ),
        (
            ReservationAccess::Read,
            &[
                &[0x28],
                &[0x2f],
                &[0x34],
                &[0x1a, 0, 0x3f],
                &[0x5a],
                &[0x9e, 0x12],
                &[0xa3, 0x0c],
                &[0x37],
            ],
        ),
        (
            ReservationAccess::Write,
            &[
                &[0x2a],
                &[0x35],
                &[0x42],
                &[0x8b],
                &[0x89],
                &[0x15],
                &[0xa4, 0x0a],
                &[0x83],
                &[0x1b],
                &[0x1d],
            ],
        ),
        (ReservationAccess::Registration, &[&[0x5e], &[0x5f, 6]]),
        (ReservationAccess::Legacy, &[&[0x16], &[0x57]]),
    ] {
        for bytes in cdbs {
            assert_eq!(access(bytes), expected, "{bytes:02x?}");
        }
    }
}

#[test]
fn the_table_is_in_order_and_whole() {
    for pair in ROWS.windows(2) {
        let [a, b] = pair else { unreachable!() };
        assert!(
            (a.opcode, a.action) < (b.opcode, b.action),
            "{} {}",
            a.name,
            b.name
        );
        if a.opcode == b.opcode {
            assert!(a.action.is_some() && b.action.is_some(), "{}", b.name);
        }
    }
    for row in ROWS {
        // SPC-4, section 4.3.2: the group of an operation code says its length.
        let len = match row.opcode >> 5 {
            0 => 6,
            1 | 2 => 10,
            4 => 16,
            5 => 12,
            group => panic!("{}: group {group}", row.name),
        };
        assert_eq!(row.len, len, "{}", row.name);
        assert_eq!(row.usage[usize::from(len) - 1], 0, "{}: CONTROL", row.name);
        assert!(row.usage[usize::from(len)..].iter().all(|byte| *byte == 0));
        assert!(!row.name.is_empty() && row.timeout_s > 0);
        assert!(matches!(
            row.needs,
            Needs::Unit | Needs::Thin | Needs::Atomic | Needs::Encrypted
        ));
    }
}

#[test]
fn commands_stay_small() {
    assert!(size_of::<Command>() <= 32);
    assert!(size_of::<Result<Command, Sense>>() <= 56);
}

#[test]
fn field_pointers_point_at_the_field() {
    let sense = decoded(&[0xa8, 0xe0]).unwrap_err();
    assert!(matches!(
        sense.specific,
        Specific::Field {
            in_cdb: true,
            byte: 1,
            bit: Some(7)
        }
    ));
}
