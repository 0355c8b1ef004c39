//! Commands as a controller executes them, whatever transport brought them:
//! checked, in bytes, with the standard's status for what is wrong.

use wire::nvme::{
    ConnectCommand, CopySource, DSM_AD, DSM_RANGES_MAX, DsmRange, PropertyGet, PropertySet, Sqe,
    Status, cdw12, io,
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
    /// A Reservation Register, Acquire, Release or Report, which the driver
    /// executes off the data path.
    Reservation {
        /// Index into the queue's namespaces.
        namespace: u32,
        /// The command.
        sqe: Sqe,
    },
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
    /// First byte on the media, of a Copy the destination; 0 for Flush and
    /// Deallocate.
    pub offset: u64,
    /// Bytes on the media; 0 for Flush; bytes of range descriptors for
    /// Deallocate and Copy (the data may hold more, which mean nothing).
    pub len: u64,
    /// Force Unit Access: done means on stable media.
    pub fua: bool,
    /// Write Zeroes may deallocate (DEAC).
    pub deallocate: bool,
    /// Descriptor format of a Copy, 0 to 3.
    pub copy_format: u8,
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
    /// A fused Compare and Write: it comes with `Op::ExecuteFused` only. In
    /// `Op::Prepare` it is the Write, whose data must not touch the media yet.
    CompareAndWrite,
    /// The range can be read: no data moves.
    Verify,
    /// The range cannot be read until it is written again.
    WriteUncorrectable,
    /// The ranges in the data are copied to `offset`: see [`copy_ranges`].
    Copy,
    /// Everything written so far becomes durable.
    Flush,
    /// The same on every namespace of the queue; `namespace` means nothing.
    FlushAll,
    /// The range reads as zeros afterwards.
    WriteZeroes,
    /// The ranges in the data are no longer needed: see [`deallocate_ranges`].
    Deallocate,
}

/// Most bytes that one Write Zeroes may clear (WZSL): a reactor does it in one
/// go.
pub(crate) const WRITE_ZEROES_BYTES_MAX: u64 = 1 << 20;
/// Most bytes that one Verify may look at (VSL).
pub(crate) const VERIFY_BYTES_MAX: u64 = 1 << 20;
/// Most bytes that one Write Uncorrectable may spoil (WUSL).
pub(crate) const WRITE_UNCORRECTABLE_BYTES_MAX: u64 = 1 << 20;
/// Most source ranges of a Copy (MSRC, which is 0's based).
pub const COPY_RANGES_MAX: u32 = 128;
/// Most bytes of one source range of a Copy (MSSRL, which is in blocks).
pub const COPY_RANGE_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of one Copy (MCL, which is in blocks).
pub const COPY_BYTES_MAX: u64 = 4 << 20;
/// Most bytes of the source range descriptors of a Copy, in the longest format.
pub const COPY_DESCRIPTOR_BYTES_MAX: usize = COPY_RANGES_MAX as usize * 40;

/// Asymmetric Namespace Access state of a namespace on one controller, with
/// the values of the ANA log page (Base 2.0, section 8.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AnaState {
    /// ANA Optimized.
    #[default]
    Optimized = 0x01,
    /// ANA Non-Optimized.
    NonOptimized = 0x02,
    /// ANA Inaccessible.
    Inaccessible = 0x03,
    /// ANA Persistent Loss.
    PersistentLoss = 0x04,
    /// ANA Change.
    Change = 0x0f,
}

impl AnaState {
    /// Whether commands have access to what the namespace holds.
    #[inline]
    pub const fn is_accessible(self) -> bool {
        matches!(self, AnaState::Optimized | AnaState::NonOptimized)
    }

    /// What commands that have no access are answered with; never with Do Not
    /// Retry, since another path may have it.
    #[cold]
    pub const fn status(self) -> Status {
        match self {
            AnaState::Optimized | AnaState::NonOptimized => Status::SUCCESS,
            AnaState::Inaccessible => Status::ANA_INACCESSIBLE,
            AnaState::PersistentLoss => Status::ANA_PERSISTENT_LOSS,
            AnaState::Change => Status::ANA_TRANSITION,
        }
    }
}

/// What the I/O path needs to know of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Namespace identifier; 0 for a place in the table that is empty now.
    pub nsid: u32,
    /// Logical blocks are `1 << block_shift` bytes.
    pub block_shift: u8,
    /// Whether it is write protected, for whatever reason.
    pub read_only: bool,
    /// Access through this controller.
    pub ana: AnaState,
    /// Told apart from every other namespace that ever stood in this place of
    /// the table, so that a command meant for another never reaches this one.
    pub instance: u32,
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
        copy_format: 0,
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

/// One source range of a [`IoKind::Copy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Index of the source namespace.
    pub namespace: u32,
    /// First byte on its media.
    pub offset: u64,
    /// Bytes: at most [`COPY_RANGE_BYTES_MAX`], 0 never.
    pub len: u64,
}

/// The source ranges of a [`IoKind::Copy`], from the first [`Io::len`] bytes of
/// its data, into `out`; returns their bytes together. All of them, and the
/// destination, are checked before the first is given.
///
/// # Errors
/// What the command is to be answered with.
pub fn copy_ranges(
    data: &[u8],
    io: &Io,
    namespaces: &[Geometry],
    out: &mut Vec<CopyRange>,
) -> Result<u64, Status> {
    out.clear();
    let to = &namespaces[io.namespace as usize];
    let mut total = 0;
    let long = usize::from(io.copy_format & 1);
    for bytes in data.chunks_exact(size_of::<CopySource>() + 8 * long) {
        let (source, _) = CopySource::ref_from_prefix(bytes).expect("a chunk is one range");
        let namespace = match io.copy_format {
            0 | 1 => io.namespace,
            _ => find(namespaces, source.snsid.get()).ok_or(Status::INVALID_NAMESPACE.dnr())?,
        };
        let from = &namespaces[namespace as usize];
        if !from.ana.is_accessible() {
            return Err(from.ana.status());
        }
        if from.block_shift != to.block_shift {
            return Err(Status::INCOMPATIBLE_NAMESPACE.dnr());
        }
        let (slba, blocks) = (source.slba.get(), u64::from(source.nlb.get()) + 1);
        let len = blocks << from.block_shift;
        total += len;
        if len > COPY_RANGE_BYTES_MAX || total > COPY_BYTES_MAX {
            return Err(Status::COMMAND_SIZE_LIMIT.dnr());
        }
        if slba
            .checked_add(blocks)
            .is_none_or(|end| end > from.block_count)
        {
            return Err(Status::LBA_OUT_OF_RANGE.dnr());
        }
        out.push(CopyRange {
            namespace,
            offset: slba << from.block_shift,
            len,
        });
    }
    if io.offset + total > to.block_count << to.block_shift {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    Ok(total)
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
}
