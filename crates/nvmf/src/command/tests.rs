use wire::nvme::CopySource;
use zerocopy::IntoBytes;

use super::*;

const NAMESPACES: &[Geometry] = &[
    Geometry {
        nsid: 1,
        block_shift: 9,
        read_only: false,
        ana: AnaState::Optimized,
        instance: 0,
        block_count: 1000,
    },
    Geometry {
        nsid: 7,
        block_shift: 12,
        read_only: true,
        ana: AnaState::Optimized,
        instance: 0,
        block_count: 1 << 40,
    },
];

fn sqe(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = nsid.into();
    sqe.set_blocks(slba, blocks);
    sqe
}

fn decode(sqe: &Sqe) -> Result<(Io, Need), Status> {
    decode_io(sqe, NAMESPACES, 128 * 1024)
}

#[test]
fn reads_and_writes_become_byte_ranges() {
    let (io, need) = decode(&sqe(io::READ, 7, 1 << 33, 32)).unwrap();
    assert_eq!(
        (io.kind, io.namespace, io.offset, io.len),
        (IoKind::Read, 1, 1 << 45, 131072)
    );
    assert_eq!(need, Need::In(131072));
    let mut write = sqe(io::WRITE, 1, 992, 8);
    write.cdw12 = (write.cdw12.get() | cdw12::FUA).into();
    let (io, need) = decode(&write).unwrap();
    assert_eq!(
        (io.namespace, io.offset, io.len, io.fua),
        (0, 992 * 512, 4096, true)
    );
    assert_eq!(
        need,
        Need::Out {
            min: 4096,
            max: 4096
        }
    );
}

#[test]
fn every_refusal_has_its_status() {
    let mut directive = sqe(io::WRITE, 1, 0, 1);
    directive.cdw12 = (1 << 20).into();
    for (name, sqe, status) in [
        ("directive", directive, Status::INVALID_FIELD),
        ("opcode", sqe(0x0d, 1, 0, 1), Status::INVALID_OPCODE),
        ("inactive", sqe(io::READ, 2, 0, 1), Status::INVALID_FIELD),
        (
            "inactive, the last",
            sqe(io::READ, NSID_MAX, 0, 1),
            Status::INVALID_FIELD,
        ),
        (
            "nsid",
            sqe(io::READ, NSID_MAX + 1, 0, 1),
            Status::INVALID_NAMESPACE,
        ),
        (
            "nsid, the last",
            sqe(io::READ, NSID_ALL - 1, 0, 1),
            Status::INVALID_NAMESPACE,
        ),
        ("nsid 0", sqe(io::READ, 0, 0, 1), Status::INVALID_NAMESPACE),
        (
            "broadcast",
            sqe(io::READ, u32::MAX, 0, 1),
            Status::INVALID_FIELD,
        ),
        ("range", sqe(io::READ, 1, 999, 2), Status::LBA_OUT_OF_RANGE),
        (
            "overflow",
            sqe(io::READ, 1, u64::MAX, 1),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "zeroes range",
            sqe(io::WRITE_ZEROES, 1, 0, 1001),
            Status::LBA_OUT_OF_RANGE,
        ),
        ("MDTS", sqe(io::READ, 1, 0, 257), Status::INVALID_FIELD),
        (
            "write protected",
            sqe(io::WRITE, 7, 0, 1),
            Status::WRITE_PROTECTED,
        ),
        (
            "zeroes protected",
            sqe(io::WRITE_ZEROES, 7, 0, 1),
            Status::WRITE_PROTECTED,
        ),
        (
            "trim protected",
            sqe(io::DATASET_MANAGEMENT, 7, 0, 1),
            Status::WRITE_PROTECTED,
        ),
    ] {
        assert_eq!(decode(&sqe), Err(status.dnr()), "{name}");
    }
}

#[test]
fn commands_without_blocks() {
    let mut zeroes = sqe(io::WRITE_ZEROES, 1, 2, 998);
    zeroes.cdw12 = (zeroes.cdw12.get() | cdw12::DEAC).into();
    let (io, need) = decode(&zeroes).unwrap();
    assert_eq!((io.offset, io.len, io.deallocate), (1024, 998 * 512, true));
    assert_eq!(
        need,
        Need::Nothing,
        "larger than MDTS, which counts data only"
    );
    assert_eq!(decode(&sqe(io::FLUSH, 7, 0, 1)).unwrap().1, Need::Nothing);

    let mut trim = Sqe::new(io::DATASET_MANAGEMENT);
    trim.nsid = 1.into();
    trim.cdw10 = 1.into();
    // Hints only: what reservations say of the command counts all the same.
    for (attributes, deallocate) in [(0, false), (DSM_AD, true), (!DSM_AD, false)] {
        trim.cdw11 = attributes.into();
        let (io, need) = decode(&trim).unwrap();
        assert_eq!((io.kind, io.len), (IoKind::Deallocate, 32));
        assert_eq!(io.deallocate, deallocate);
        assert_eq!(need, Need::Out { min: 32, max: 4096 });
    }
}

/// No namespace has metadata, let alone protection information: PRINFO and the
/// tags mean nothing (NVM Command Set 1.0, section 5.2).
#[test]
fn protection_information_is_ignored() {
    let prinfo = 0xf << 26;
    for opcode in (0..32).filter(|opcode| is_io(*opcode) && *opcode != io::COPY) {
        let plain = sqe(opcode, 1, 0, 1);
        let mut checked = plain;
        checked.cdw12 = (checked.cdw12.get() | prinfo).into();
        checked.cdw14 = 0x1234_5678.into();
        checked.cdw15 = 0xffff_ffff.into();
        assert_eq!(decode(&checked), decode(&plain), "{opcode:#x}");
    }
    let plain = sqe(io::COPY, 1, 0, 1);
    let mut checked = plain;
    // PRINFOR and PRINFOW.
    checked.cdw12 = (checked.cdw12.get() | 0xf << 12 | 0xf << 26).into();
    checked.cdw14 = 7.into();
    assert_eq!(decode(&checked), decode(&plain));
}

#[test]
fn write_zeroes_beyond_its_limit_is_refused() {
    let large = Geometry {
        nsid: 1,
        block_shift: 12,
        read_only: false,
        ana: AnaState::Optimized,
        instance: 0,
        block_count: 1 << 20,
    };
    let zeroes = |blocks| decode_io(&sqe(io::WRITE_ZEROES, 1, 0, blocks), &[large], 4096);
    assert!(zeroes(256).is_ok());
    assert_eq!(zeroes(257), Err(Status::INVALID_FIELD.dnr()));
}

#[test]
fn deallocate_ranges_are_checked() {
    let range = |slba: u64, blocks: u32| DsmRange {
        cattr: 9.into(),
        length_blocks: blocks.into(),
        slba: slba.into(),
    };
    let data = [
        range(2, 3),
        range(999, 1),
        range(1000, 0),
        range(999, 2),
        range(u64::MAX, 2),
    ];
    let ranges: Vec<_> = deallocate_ranges(data.as_bytes(), &NAMESPACES[0]).collect();
    let outside = Err(Status::LBA_OUT_OF_RANGE.dnr());
    assert_eq!(
        ranges,
        [
            Ok((1024, 1536)),
            Ok((511_488, 512)),
            Ok((512_000, 0)),
            outside,
            outside
        ]
    );
}

fn with(nsid: u32, edit: impl FnOnce(&mut Geometry)) -> Geometry {
    let mut geometry = Geometry {
        nsid,
        ..NAMESPACES[0]
    };
    edit(&mut geometry);
    geometry
}

#[test]
fn opcodes_are_accepted_if_they_are_decoded() {
    for opcode in 0..=255 {
        let known = decode(&sqe(opcode, 1, 0, 1)) != Err(Status::INVALID_OPCODE.dnr());
        assert_eq!(is_io(opcode), known, "{opcode:#x}");
    }
    let known: Vec<u8> = (0..=255).filter(|opcode| is_io(*opcode)).collect();
    assert_eq!(known, [0, 1, 2, 4, 5, 8, 9, 0xc, 0x19]);
}

#[test]
fn verify_and_write_uncorrectable_are_bounded() {
    let large = [with(1, |geometry| geometry.block_count = 1 << 20)];
    for (opcode, kind) in [
        (io::VERIFY, IoKind::Verify),
        (io::WRITE_UNCORRECTABLE, IoKind::WriteUncorrectable),
    ] {
        let (io, need) = decode_io(&sqe(opcode, 1, 8, 2048), &large, 4096).unwrap();
        assert_eq!((io.kind, io.offset, io.len), (kind, 4096, 1 << 20));
        assert_eq!(need, Need::Nothing);
        let over = decode_io(&sqe(opcode, 1, 8, 2049), &large, 4096);
        assert_eq!(over, Err(Status::INVALID_FIELD.dnr()));
        let outside = decode(&sqe(opcode, 1, 999, 2));
        assert_eq!(outside, Err(Status::LBA_OUT_OF_RANGE.dnr()));
    }
    let protected = decode(&sqe(io::WRITE_UNCORRECTABLE, 7, 0, 1));
    assert_eq!(protected, Err(Status::WRITE_PROTECTED.dnr()));
    assert!(
        decode(&sqe(io::VERIFY, 7, 0, 1)).is_ok(),
        "Verify only reads"
    );
}

#[test]
fn flush_alone_takes_the_broadcast_value() {
    let (io, need) = decode(&sqe(io::FLUSH, NSID_ALL, 0, 1)).unwrap();
    assert_eq!((io.kind, need), (IoKind::FlushAll, Need::Nothing));
    for opcode in (0..32).filter(|opcode| is_io(*opcode) && *opcode != io::FLUSH) {
        let refused = decode(&sqe(opcode, NSID_ALL, 0, 1));
        assert_eq!(refused, Err(Status::INVALID_FIELD.dnr()), "{opcode:#x}");
    }
}

#[test]
fn ana_states_refuse_access() {
    for (state, expected) in [
        (AnaState::Optimized, None),
        (AnaState::NonOptimized, None),
        (AnaState::Inaccessible, Some(Status::ANA_INACCESSIBLE)),
        (AnaState::PersistentLoss, Some(Status::ANA_PERSISTENT_LOSS)),
        (AnaState::Change, Some(Status::ANA_TRANSITION)),
    ] {
        let namespaces = [with(1, |geometry| geometry.ana = state)];
        for opcode in (0..32).filter(|opcode| is_io(*opcode)) {
            let sqe = sqe(opcode, 1, 0, 1);
            let got = decode_io(&sqe, &namespaces, 4096).err();
            assert_eq!(got, expected, "{opcode:#x} in {state:?}");
        }
        let report = sqe(io::RESERVATION_REPORT, 1, 0, 1);
        let got = decode_reservation(&report, &namespaces, 4096).err();
        assert_eq!(got, expected);
        // Another path may have access: hosts must be free to try it.
        assert!(expected.is_none_or(|status| !status.is_dnr() && status.sct() == 3));
    }
}

#[test]
fn empty_places_are_no_namespaces() {
    let empty = with(0, |_| {});
    let namespaces = [empty, with(2, |_| {}), empty, with(1, |_| {})];
    let index = |nsid| decode_io(&sqe(io::FLUSH, nsid, 0, 1), &namespaces, 4096).map(|x| x.0);
    let (none, gone) = (
        Err(Status::INVALID_NAMESPACE.dnr()),
        Err(Status::INVALID_FIELD.dnr()),
    );
    assert_eq!(index(1).unwrap().namespace, 3);
    assert_eq!(index(2).unwrap().namespace, 1);
    assert_eq!((index(0), index(3)), (none, gone));
}

#[test]
fn reservation_commands_bring_their_data() {
    let decode = |sqe: &Sqe| decode_reservation(sqe, NAMESPACES, 4096);
    let out = |len| Need::Out { min: len, max: len };
    for (opcode, expected) in [
        (io::RESERVATION_REGISTER, out(16)),
        (io::RESERVATION_ACQUIRE, out(16)),
        (io::RESERVATION_RELEASE, out(8)),
        (io::RESERVATION_REPORT, Need::In(4)),
    ] {
        // A write protected namespace takes reservations.
        let sqe = sqe(opcode, 7, 0, 1);
        let (command, need) = decode(&sqe).unwrap();
        assert_eq!(command, Command::Reservation { namespace: 1, sqe });
        assert_eq!(need, expected);
    }
    let report = |numd: u32| decode(&sqe(io::RESERVATION_REPORT, 1, numd.into(), 1));
    assert_eq!(report(1023).unwrap().1, Need::In(4096));
    assert_eq!(report(1024), Err(Status::INVALID_FIELD.dnr()));
    assert_eq!(report(u32::MAX), Err(Status::INVALID_FIELD.dnr()));
    let gone = decode(&sqe(io::RESERVATION_REPORT, 3, 0, 1));
    assert_eq!(gone, Err(Status::INVALID_FIELD.dnr()));
    let none = decode(&sqe(io::RESERVATION_REPORT, 0, 0, 1));
    assert_eq!(none, Err(Status::INVALID_NAMESPACE.dnr()));
    let all = decode(&sqe(io::RESERVATION_REPORT, NSID_ALL, 0, 1));
    assert_eq!(all, Err(Status::INVALID_FIELD.dnr()));
    for opcode in [0x12, 0x1d, 0x7e, 0x80, 0xff] {
        let unknown = decode(&sqe(opcode, 1, 0, 1));
        assert_eq!(unknown, Err(Status::INVALID_OPCODE.dnr()));
    }
}

/// A Copy of `ranges` entries in `format` to block `sdlba` of namespace 1.
fn copy(sdlba: u64, ranges: u32, format: u32) -> Sqe {
    let mut sqe = sqe(io::COPY, 1, sdlba, 1);
    sqe.cdw12 = ((ranges - 1) | format << 8).into();
    sqe
}

#[test]
fn copy_is_checked_before_its_ranges() {
    for (format, entry) in [(0, 32), (1, 40), (2, 32), (3, 40)] {
        let (io, need) = decode(&copy(10, 3, format)).unwrap();
        assert_eq!(
            (io.kind, io.offset, io.len),
            (IoKind::Copy, 5120, 3 * entry)
        );
        assert_eq!(u32::from(io.copy_format), format);
        assert_eq!(
            need,
            Need::Out {
                min: 3 * entry as u32,
                max: 5120
            }
        );
    }
    let mut fua = copy(10, 1, 0);
    fua.cdw12 = (fua.cdw12.get() | cdw12::FUA).into();
    assert!(decode(&fua).unwrap().0.fua);
    let mut directive = copy(10, 1, 0);
    directive.cdw12 = (directive.cdw12.get() | 1 << 20).into();
    for (name, sqe, status) in [
        ("format", copy(10, 1, 4), Status::INVALID_FIELD),
        ("directive", directive, Status::INVALID_FIELD),
        ("too many", copy(10, 129, 0), Status::COMMAND_SIZE_LIMIT),
        ("destination", copy(1000, 1, 0), Status::LBA_OUT_OF_RANGE),
    ] {
        assert_eq!(decode(&sqe), Err(status.dnr()), "{name}");
    }
    assert!(decode(&copy(10, 128, 1)).is_ok());
}

fn entry(snsid: u32, slba: u64, blocks: u32) -> CopySource {
    CopySource {
        snsid: snsid.into(),
        slba: slba.into(),
        nlb: ((blocks - 1) as u16).into(),
        protection: [0xee; 8],
        ..CopySource::default()
    }
}

/// The entries as a host lays them out in `format`.
fn table(format: u32, entries: &[CopySource]) -> Vec<u8> {
    let padding = if format & 1 == 0 { 0 } else { 8 };
    let bytes = |entry: &CopySource| [entry.as_bytes(), &[0xff; 8][..padding]].concat();
    entries.iter().flat_map(bytes).collect()
}

#[test]
fn copy_ranges_are_found_in_every_format() {
    let namespaces = [with(1, |_| {}), with(5, |_| {})];
    for format in 0..4 {
        let entries = [entry(5, 20, 4), entry(1, 30, 1), entry(5, 999, 1)];
        let (io, _) = decode_io(&copy(0, 3, format), &namespaces, 4096).unwrap();
        let mut ranges = vec![];
        let data = table(format, &entries);
        assert_eq!(data.len() as u64, io.len);
        let total = copy_ranges(&data, &io, &namespaces, &mut ranges);
        assert_eq!(total, Ok(6 * 512));
        let range = |namespace, slba: u64, blocks: u64| CopyRange {
            namespace,
            offset: slba * 512,
            len: blocks * 512,
        };
        let across = u32::from(format >= 2);
        let expected = [range(across, 20, 4), range(0, 30, 1), range(across, 999, 1)];
        assert_eq!(ranges, expected, "SNSID counts in formats 2 and 3 only");
    }
}

#[test]
fn copy_ranges_are_checked() {
    let namespaces = [
        with(1, |geometry| geometry.block_count = 1 << 20),
        with(5, |geometry| geometry.block_shift = 12),
        with(6, |geometry| geometry.ana = AnaState::Inaccessible),
        with(8, |geometry| geometry.block_count = 10),
        with(0, |_| {}),
    ];
    let check = |to: u64, format: u32, entries: &[CopySource]| {
        let count = entries.len() as u32;
        let (io, _) = decode_io(&copy(to, count, format), &namespaces, 4096).unwrap();
        copy_ranges(&table(format, entries), &io, &namespaces, &mut vec![])
    };
    let end = 1 << 20;
    let at = 1 << 19;
    for (name, to, format, entries, status) in [
        (
            "source",
            at,
            0,
            vec![entry(0, end, 1)],
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "source end",
            at,
            1,
            vec![entry(0, end - 1, 2)],
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "overflow",
            at,
            0,
            vec![entry(0, u64::MAX, 2)],
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "source of another",
            at,
            2,
            vec![entry(8, 9, 2)],
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "destination end",
            end - 3,
            0,
            vec![entry(0, 0, 2), entry(0, 8, 2)],
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "MSSRL",
            at,
            0,
            vec![entry(0, 0, 2049)],
            Status::COMMAND_SIZE_LIMIT,
        ),
        (
            "MCL",
            at,
            0,
            vec![entry(0, 0, 2048); 5],
            Status::COMMAND_SIZE_LIMIT,
        ),
        (
            "namespace",
            at,
            2,
            vec![entry(9, 0, 1)],
            Status::INVALID_NAMESPACE,
        ),
        (
            "no namespace",
            at,
            3,
            vec![entry(0, 0, 1)],
            Status::INVALID_NAMESPACE,
        ),
        (
            "block size",
            at,
            3,
            vec![entry(5, 0, 1)],
            Status::INCOMPATIBLE_NAMESPACE,
        ),
        (
            "overlap",
            at,
            0,
            vec![entry(0, 0, 1), entry(0, at + 1, 1)],
            Status::OVERLAPPING_RANGE,
        ),
        (
            "overlap by one",
            at,
            2,
            vec![entry(1, at - 1, 2)],
            Status::OVERLAPPING_RANGE,
        ),
    ] {
        assert_eq!(check(to, format, &entries), Err(status.dnr()), "{name}");
    }
    let inaccessible = check(at, 2, &[entry(6, 0, 1)]);
    assert_eq!(inaccessible, Err(Status::ANA_INACCESSIBLE));
    assert_eq!(check(at, 0, &[entry(0, 0, 2048); 4]), Ok(4 << 20));
    assert_eq!(check(at, 0, &[entry(0, at - 2, 2)]), Ok(1024), "next to it");
    assert_eq!(check(at, 0, &[entry(0, at + 2, 2)]), Ok(1024));
    assert_eq!(
        check(end - 2, 0, &[entry(0, 0, 2)]),
        Ok(1024),
        "up to the end"
    );
    assert_eq!(
        check(0, 2, &[entry(8, 8, 2)]),
        Ok(1024),
        "the same LBAs elsewhere"
    );
}

#[test]
fn decoded_commands_are_checked_again() {
    let then = [with(1, |_| {})];
    let (write, _) = decode_io(&sqe(io::WRITE, 1, 990, 8), &then, 4096).unwrap();
    let (compare, _) = decode_io(&sqe(io::COMPARE, 1, 990, 8), &then, 4096).unwrap();
    let check = |io: Io, now: &[Geometry]| recheck(&Command::Io(io), &then, now);
    assert_eq!(check(write, &then), Ok(()));
    assert_eq!(
        check(write, &[with(1, |now| now.block_count = 998)]),
        Ok(())
    );
    let gone = Err(Status::INVALID_FIELD.dnr());
    assert_eq!(check(write, &[]), gone);
    assert_eq!(check(write, &[with(0, |_| {})]), gone);
    assert_eq!(check(write, &[with(1, |now| now.instance = 1)]), gone);
    let shrunk = [with(1, |now| now.block_count = 997)];
    assert_eq!(check(write, &shrunk), Err(Status::LBA_OUT_OF_RANGE.dnr()));
    let protected = [with(1, |now| now.read_only = true)];
    assert_eq!(check(write, &protected), Err(Status::WRITE_PROTECTED.dnr()));
    assert_eq!(check(compare, &protected), Ok(()));
    let lost = [with(1, |now| now.ana = AnaState::PersistentLoss)];
    assert_eq!(check(compare, &lost), Err(Status::ANA_PERSISTENT_LOSS));
    // The ranges of a Copy are looked at when it is executed.
    let (copy, _) = decode_io(&copy(990, 1, 0), &then, 4096).unwrap();
    assert_eq!(check(copy, &[with(1, |now| now.block_count = 991)]), Ok(()));
    let register = sqe(io::RESERVATION_REGISTER, 1, 0, 1);
    let (command, _) = decode_reservation(&register, &then, 4096).unwrap();
    assert_eq!(recheck(&command, &then, &protected), Ok(()));
    assert_eq!(recheck(&command, &then, &[]), gone);
    assert_eq!(recheck(&Command::Disconnect, &then, &[]), Ok(()));
}
