use super::*;
use zerocopy::IntoBytes;

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
        ("nsid", sqe(io::READ, 2, 0, 1), Status::INVALID_NAMESPACE),
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
    assert_eq!(decode(&trim), Err(Status::SUCCESS), "hints only");
    trim.cdw11 = DSM_AD.into();
    let (io, need) = decode(&trim).unwrap();
    assert_eq!((io.kind, io.len), (IoKind::Deallocate, 32));
    assert_eq!(need, Need::Out { min: 32, max: 4096 });
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
