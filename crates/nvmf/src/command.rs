//! Commands as a controller executes them, whatever transport brought them:
//! checked, in bytes, with the standard's status for what is wrong.

use wire::nvme::{
    ConnectCommand, DSM_AD, DSM_RANGES_MAX, DsmRange, PropertyGet, PropertySet, Sqe, Status, cdw12,
    io,
};
use zerocopy::FromBytes;

/// A command that passed every check that needs no controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Connect; its data is the 1024 bytes of Connect data.
    Connect(ConnectCommand),
    /// Property Get.
    PropertyGet(PropertyGet),
    /// Property Set.
    PropertySet(PropertySet),
    /// Disconnect of an I/O queue.
    Disconnect,
    /// An Admin command, for the controller to look at.
    Admin(Sqe),
    /// An I/O command.
    Io(Io),
}

/// An I/O command in bytes of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// What to do.
    pub kind: IoKind,
    /// Index into the queue's namespaces, not the NSID.
    pub namespace: u32,
    /// First byte on the media; 0 for Flush and Deallocate.
    pub offset: u64,
    /// Bytes on the media; 0 for Flush; bytes of range descriptors for
    /// Deallocate (the data may hold more, which mean nothing).
    pub len: u64,
    /// Force Unit Access: done means on stable media.
    pub fua: bool,
    /// Write Zeroes may deallocate (DEAC).
    pub deallocate: bool,
}

/// What an [`Io`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Media to host.
    Read,
    /// Host to media.
    Write,
    /// Host data against the media.
    Compare,
    /// Everything written so far becomes durable.
    Flush,
    /// The range reads as zeros afterwards.
    WriteZeroes,
    /// The ranges in the data are no longer needed: see [`deallocate_ranges`].
    Deallocate,
}

/// Most bytes that one Write Zeroes may clear (WZSL): a reactor does it in one
/// go.
pub(crate) const WRITE_ZEROES_BYTES_MAX: u64 = 1 << 20;

/// What the I/O path needs to know of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Namespace identifier.
    pub nsid: u32,
    /// Logical blocks are `1 << block_shift` bytes.
    pub block_shift: u8,
    /// Whether it is write protected.
    pub read_only: bool,
    /// Size in logical blocks.
    pub block_count: u64,
}

/// The data that a command must come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// None.
    Nothing,
    /// Exactly so many bytes, controller to host.
    In(u32),
    /// `min..=max` bytes, host to controller.
    Out { min: u32, max: u32 },
}

/// Checks an I/O command and says what data it needs. `Err`: the command is
/// answered with this status at once.
#[inline]
pub(crate) fn decode_io(
    sqe: &Sqe,
    namespaces: &[Geometry],
    io_bytes_max: u32,
) -> Result<(Io, Need), Status> {
    if sqe.flags & (Sqe::FUSE_MASK | Sqe::PSDT_MASK) != Sqe::PSDT_SGL {
        // Fused operations are not announced (FUSES); PRPs do not exist over Fabrics.
        return Err(Status::INVALID_FIELD.dnr());
    }
    let (kind, writes) = match sqe.opcode {
        io::READ => (IoKind::Read, false),
        io::WRITE => (IoKind::Write, true),
        io::FLUSH => (IoKind::Flush, false),
        io::COMPARE => (IoKind::Compare, false),
        io::WRITE_ZEROES => (IoKind::WriteZeroes, true),
        io::DATASET_MANAGEMENT => (IoKind::Deallocate, true),
        _ => return Err(Status::INVALID_OPCODE.dnr()),
    };
    let namespace = find(namespaces, sqe.nsid.get()).ok_or(Status::INVALID_NAMESPACE.dnr())?;
    let geometry = &namespaces[namespace as usize];
    if writes && geometry.read_only {
        return Err(Status::WRITE_PROTECTED.dnr());
    }
    let mut io = Io {
        kind,
        namespace,
        offset: 0,
        len: 0,
        fua: false,
        deallocate: false,
    };
    match kind {
        IoKind::Flush => return Ok((io, Need::Nothing)),
        IoKind::Deallocate => return decode_dsm(sqe, io),
        _ => {}
    }
    let (slba, blocks) = (sqe.slba(), u64::from(sqe.block_count()));
    if slba
        .checked_add(blocks)
        .is_none_or(|end| end > geometry.block_count)
    {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let dword12 = sqe.cdw12.get();
    io.offset = slba << geometry.block_shift;
    io.len = blocks << geometry.block_shift;
    io.fua = dword12 & cdw12::FUA != 0;
    if kind == IoKind::WriteZeroes {
        if io.len > WRITE_ZEROES_BYTES_MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        io.deallocate = dword12 & cdw12::DEAC != 0;
        return Ok((io, Need::Nothing));
    }
    // Larger than MDTS, or a directive, which are not supported (OACS).
    if io.len > u64::from(io_bytes_max)
        || (kind == IoKind::Write && dword12 & cdw12::DTYPE_MASK != 0)
    {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let len = io.len as u32;
    Ok((
        io,
        if kind == IoKind::Read {
            Need::In(len)
        } else {
            Need::Out { min: len, max: len }
        },
    ))
}

fn decode_dsm(sqe: &Sqe, mut io: Io) -> Result<(Io, Need), Status> {
    if sqe.cdw11.get() & DSM_AD == 0 {
        // The other attributes are hints, and a hint needs no look at the ranges.
        return Err(Status::SUCCESS);
    }
    let range_bytes = size_of::<DsmRange>() as u32;
    let len = ((sqe.cdw10.get() & 0xff) + 1) * range_bytes;
    io.len = u64::from(len);
    io.deallocate = true;
    // Hosts send the whole table, whatever Number of Ranges says.
    Ok((
        io,
        Need::Out {
            min: len,
            max: DSM_RANGES_MAX * range_bytes,
        },
    ))
}

/// The index of a namespace: usually NSIDs are 1 to n, in order.
#[inline]
fn find(namespaces: &[Geometry], nsid: u32) -> Option<u32> {
    let guess = nsid.wrapping_sub(1);
    match namespaces.get(guess as usize) {
        Some(geometry) if geometry.nsid == nsid => Some(guess),
        _ => namespaces
            .iter()
            .position(|g| g.nsid == nsid)
            .map(|at| at as u32),
    }
}

/// The byte ranges of a [`IoKind::Deallocate`] command, from the first
/// [`Io::len`] bytes of its data; LBA Out of Range for one that does not lie
/// in the namespace (NVM Command Set 1.0, section 3.2.3).
pub fn deallocate_ranges<'a>(
    data: &'a [u8],
    geometry: &'a Geometry,
) -> impl Iterator<Item = Result<(u64, u64), Status>> + 'a {
    data.chunks_exact(size_of::<DsmRange>()).map(|bytes| {
        let range = DsmRange::read_from_bytes(bytes).expect("a chunk is one range");
        let (slba, blocks) = (range.slba.get(), u64::from(range.length_blocks.get()));
        match slba.checked_add(blocks) {
            Some(end) if end <= geometry.block_count => {
                Ok((slba << geometry.block_shift, blocks << geometry.block_shift))
            }
            _ => Err(Status::LBA_OUT_OF_RANGE.dnr()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    const NAMESPACES: &[Geometry] = &[
        Geometry {
            nsid: 1,
            block_shift: 9,
            read_only: false,
            block_count: 1000,
        },
        Geometry {
            nsid: 7,
            block_shift: 12,
            read_only: true,
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
        let mut prp = sqe(io::READ, 1, 0, 1);
        prp.flags = 0;
        let mut fused = sqe(io::COMPARE, 1, 0, 1);
        fused.flags |= 1;
        let mut directive = sqe(io::WRITE, 1, 0, 1);
        directive.cdw12 = (1 << 20).into();
        for (name, sqe, status) in [
            ("PRP", prp, Status::INVALID_FIELD),
            ("fused", fused, Status::INVALID_FIELD),
            ("directive", directive, Status::INVALID_FIELD),
            ("opcode", sqe(0x0d, 1, 0, 1), Status::INVALID_OPCODE),
            ("nsid", sqe(io::READ, 2, 0, 1), Status::INVALID_NAMESPACE),
            ("nsid 0", sqe(io::READ, 0, 0, 1), Status::INVALID_NAMESPACE),
            (
                "broadcast",
                sqe(io::FLUSH, u32::MAX, 0, 1),
                Status::INVALID_NAMESPACE,
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
}
