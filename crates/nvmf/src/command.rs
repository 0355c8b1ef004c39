//! Commands as a controller executes them, whatever transport brought them:
//! checked, in bytes, with the standard's status for what is wrong.

mod ranges;
#[cfg(test)]
mod tests;

use wire::nvme::{
    ConnectCommand, DSM_AD, DSM_RANGES_MAX, DsmRange, NSID_ALL, PropertyGet, PropertySet, Sqe,
    Status, cdw12, io,
};

use crate::NSID_MAX;

pub use ranges::{CopyRange, copy_ranges, deallocate_ranges};

/// A command that passed every check that needs no controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// A payload that stands aligned is moved in whole words: 5 to 10 ns a command.
#[repr(u64)]
pub enum Command {
    /// Connect; its data is the 1024 bytes of Connect data.
    Connect(ConnectCommand),
    /// Authentication Send; its data is a message.
    AuthenticationSend,
    /// Authentication Receive of a message.
    AuthenticationReceive {
        /// Bytes that there is room for.
        len: u32,
    },
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

    /// What the state is where the target may be drained: that takes access, and tells hosts
    /// to go by another path.
    #[must_use]
    pub const fn drained(self, is_drained: bool) -> AnaState {
        match is_drained && self.is_accessible() {
            true => AnaState::Inaccessible,
            false => self,
        }
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

impl Geometry {
    /// What refuses a command that writes, or does not, whatever its range.
    #[inline]
    fn admits(&self, writes: bool) -> Result<(), Status> {
        if !self.ana.is_accessible() {
            return Err(self.ana.status());
        }
        if writes && self.read_only {
            return Err(Status::WRITE_PROTECTED.dnr());
        }
        Ok(())
    }
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

/// Whether [`decode_io`] knows `opcode`.
#[inline]
pub(crate) const fn is_io(opcode: u8) -> bool {
    const OPCODES: u32 = 1 << io::FLUSH
        | 1 << io::WRITE
        | 1 << io::READ
        | 1 << io::WRITE_UNCORRECTABLE
        | 1 << io::COMPARE
        | 1 << io::WRITE_ZEROES
        | 1 << io::DATASET_MANAGEMENT
        | 1 << io::VERIFY
        | 1 << io::COPY;
    opcode < 32 && OPCODES >> opcode & 1 != 0
}

/// Checks an I/O command whose FUSE and PSDT bits are the caller's to look at,
/// and says what data it needs. `Err`: the command is answered with this status
/// at once. Reserved fields are ignored, and so is protection information,
/// which no namespace has (NVM Command Set 1.0, section 5.2).
#[inline(always)]
pub(crate) fn decode_io(
    sqe: &Sqe,
    namespaces: &[Geometry],
    io_bytes_max: u32,
) -> Result<(Io, Need), Status> {
    let (kind, writes) = match sqe.opcode {
        io::READ => (IoKind::Read, false),
        io::WRITE => (IoKind::Write, true),
        io::FLUSH => (IoKind::Flush, false),
        io::COMPARE => (IoKind::Compare, false),
        io::VERIFY => (IoKind::Verify, false),
        io::WRITE_ZEROES => (IoKind::WriteZeroes, true),
        io::WRITE_UNCORRECTABLE => (IoKind::WriteUncorrectable, true),
        io::DATASET_MANAGEMENT => (IoKind::Deallocate, true),
        io::COPY => (IoKind::Copy, true),
        _ => return Err(Status::INVALID_OPCODE.dnr()),
    };
    let Some(namespace) = find(namespaces, sqe.nsid.get()) else {
        return unknown_namespace(sqe.nsid.get(), kind);
    };
    let geometry = &namespaces[namespace as usize];
    geometry.admits(writes)?;
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
        IoKind::Copy => return decode_copy(sqe, geometry, io),
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
    if matches!(
        kind,
        IoKind::WriteZeroes | IoKind::Verify | IoKind::WriteUncorrectable
    ) {
        return decode_without_data(dword12, io);
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

/// Broadcast means something to a Flush only (Base 2.0, sections 3.3.3.1 and
/// 7.1).
#[cold]
fn unknown_namespace(nsid: u32, kind: IoKind) -> Result<(Io, Need), Status> {
    match kind {
        IoKind::Flush if nsid == NSID_ALL => Ok((
            Io {
                kind: IoKind::FlushAll,
                namespace: 0,
                offset: 0,
                len: 0,
                fua: false,
                deallocate: false,
                copy_format: 0,
            },
            Need::Nothing,
        )),
        _ => Err(no_namespace(nsid)),
    }
}

/// What a command fails with that names no active namespace: an identifier that
/// a namespace may have, or the broadcast where it means nothing, is another
/// field's value than it should be; any other is no identifier (Base 2.0,
/// section 3.2.1.5).
#[cold]
pub const fn no_namespace(nsid: u32) -> Status {
    match nsid {
        1..=NSID_MAX | NSID_ALL => Status::INVALID_FIELD.dnr(),
        _ => Status::INVALID_NAMESPACE.dnr(),
    }
}

/// Commands on a range that bring no data are as large as one reactor does in
/// one go, whatever MDTS says (NVM Command Set 1.0, section 4.1.5.2).
fn decode_without_data(dword12: u32, mut io: Io) -> Result<(Io, Need), Status> {
    let max = match io.kind {
        IoKind::Verify => VERIFY_BYTES_MAX,
        IoKind::WriteUncorrectable => WRITE_UNCORRECTABLE_BYTES_MAX,
        _ => WRITE_ZEROES_BYTES_MAX,
    };
    if io.len > max {
        return Err(Status::INVALID_FIELD.dnr());
    }
    io.deallocate = io.kind == IoKind::WriteZeroes && dword12 & cdw12::DEAC != 0;
    Ok((io, Need::Nothing))
}

/// Copy (NVM Command Set 1.0, section 3.2.2): its ranges come with its data.
#[cold]
fn decode_copy(sqe: &Sqe, geometry: &Geometry, mut io: Io) -> Result<(Io, Need), Status> {
    let dword12 = sqe.cdw12.get();
    let (ranges, format) = ((dword12 & 0xff) + 1, dword12 >> 8 & 0xf);
    if format > 3 || dword12 & cdw12::DTYPE_MASK != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    if ranges > COPY_RANGES_MAX {
        return Err(Status::COMMAND_SIZE_LIMIT.dnr());
    }
    if sqe.slba() >= geometry.block_count {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let len = ranges * ranges::copy_entry_bytes(format as u8) as u32;
    io.offset = sqe.slba() << geometry.block_shift;
    io.len = u64::from(len);
    io.fua = dword12 & cdw12::FUA != 0;
    io.copy_format = format as u8;
    let max = COPY_DESCRIPTOR_BYTES_MAX as u32;
    Ok((io, Need::Out { min: len, max }))
}

/// A Reservation command (Base 2.0, sections 7.2 to 7.5): its namespace and the
/// data that it comes with. Anything else is no command of an I/O queue.
#[cold]
pub(crate) fn decode_reservation(
    sqe: &Sqe,
    namespaces: &[Geometry],
    io_bytes_max: u32,
) -> Result<(Command, Need), Status> {
    let need = match sqe.opcode {
        io::RESERVATION_REGISTER | io::RESERVATION_ACQUIRE => Need::Out { min: 16, max: 16 },
        io::RESERVATION_RELEASE => Need::Out { min: 8, max: 8 },
        io::RESERVATION_REPORT => {
            // NUMD is 0's based, in dwords.
            let len = (u64::from(sqe.cdw10.get()) + 1) * 4;
            if len > u64::from(io_bytes_max) {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Need::In(len as u32)
        }
        _ => return Err(Status::INVALID_OPCODE.dnr()),
    };
    let Some(namespace) = find(namespaces, sqe.nsid.get()) else {
        return Err(no_namespace(sqe.nsid.get()));
    };
    namespaces[namespace as usize].admits(false)?;
    let sqe = *sqe;
    Ok((Command::Reservation { namespace, sqe }, need))
}

/// What a command that was decoded against `then` is refused with now, before
/// it is executed.
#[cold]
pub fn recheck(command: &Command, then: &[Geometry], now: &[Geometry]) -> Result<(), Status> {
    let (namespace, writes, end) = match command {
        Command::Io(Io {
            kind: IoKind::FlushAll,
            ..
        }) => return Ok(()),
        Command::Io(io) => {
            let writes = !matches!(
                io.kind,
                IoKind::Read | IoKind::Compare | IoKind::Verify | IoKind::Flush
            );
            let is_range = !matches!(io.kind, IoKind::Deallocate | IoKind::Copy);
            let end = if is_range { io.offset + io.len } else { 0 };
            (io.namespace, writes, end)
        }
        Command::Reservation { namespace, .. } => (*namespace, false, 0),
        _ => return Ok(()),
    };
    let then = &then[namespace as usize];
    let now = now.get(namespace as usize);
    let Some(now) = now.filter(|now| (then.nsid, then.instance) == (now.nsid, now.instance)) else {
        return Err(no_namespace(then.nsid));
    };
    now.admits(writes)?;
    if end > now.block_count << now.block_shift {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    Ok(())
}

fn decode_dsm(sqe: &Sqe, mut io: Io) -> Result<(Io, Need), Status> {
    let range_bytes = size_of::<DsmRange>() as u32;
    let len = ((sqe.cdw10.get() & 0xff) + 1) * range_bytes;
    io.len = u64::from(len);
    // The other attributes are hints.
    io.deallocate = sqe.cdw11.get() & DSM_AD != 0;
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
        _ => search(namespaces, nsid),
    }
}

fn search(namespaces: &[Geometry], nsid: u32) -> Option<u32> {
    // 0 is no namespace but marks empty places.
    let mut places = namespaces.iter().filter(|_| nsid != 0);
    places.position(|g| g.nsid == nsid).map(|at| at as u32)
}
