//! NVMe base structures: queue entries, status, SGL descriptors, opcodes and
//! the Fabrics commands (NVM Express Base Specification 2.0, NVM Command Set
//! Specification 1.0).

pub mod authentication;
pub mod discovery;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod lba_status;
pub mod log;
pub mod property;
pub mod reservation;

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Admin command opcodes (Base 2.0, section 5, figure 138).
pub mod admin {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Format NVM.
    pub const FORMAT_NVM: u8 = 0x80;
    /// Sanitize.
    pub const SANITIZE: u8 = 0x84;
    /// Get LBA Status (NVM Command Set 1.0, section 4.2.1).
    pub const GET_LBA_STATUS: u8 = 0x86;
}

/// I/O command opcodes (NVM Command Set 1.0, section 3.2, figure 17).
pub mod io {
    /// Flush (Base 2.0, section 7.1).
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Verify.
    pub const VERIFY: u8 = 0x0c;
    /// Reservation Register (Base 2.0, section 7.3).
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    /// Reservation Report.
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// Reservation Acquire.
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    /// Reservation Release.
    pub const RESERVATION_RELEASE: u8 = 0x15;
    /// Copy.
    pub const COPY: u8 = 0x19;
}

/// Opcode of every Fabrics command (Base 2.0, section 6).
pub const FABRICS: u8 = 0x7f;

/// Fabrics command types, the FCTYPE field (Base 2.0, section 6, figure 385).
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// The namespace identifier that means all of them.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// Which way the data of a command goes: bits 1:0 of its opcode, or of FCTYPE
/// for Fabrics commands (Base 2.0, section 3.3.3.1, figure 87).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// Host to controller.
    HostToController,
    /// Controller to host.
    ControllerToHost,
    /// Both ways: no command that is served here does that.
    Both,
}

impl Direction {
    /// What bits 1:0 of `opcode` say.
    #[inline]
    pub const fn of(opcode: u8) -> Direction {
        match opcode & 3 {
            0 => Direction::None,
            1 => Direction::HostToController,
            2 => Direction::ControllerToHost,
            _ => Direction::Both,
        }
    }
}

/// An SGL descriptor, 16 bytes (Base 2.0, section 4.1.2).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Sgl {
    /// Address, or an offset into the capsule's data for [`Sgl::IN_CAPSULE`].
    pub address: U64,
    /// Bytes.
    pub length: U32,
    /// Reserved.
    pub reserved12: [u8; 3],
    /// SGL identifier: type in bits 7:4, subtype in bits 3:0.
    pub id: u8,
}

impl Sgl {
    /// Data Block descriptor with subtype Offset: the data is in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport SGL Data Block descriptor with the transport's own subtype Ah:
    /// the data moves by the transport's data PDUs.
    pub const TRANSPORT: u8 = 0x5a;

    /// A descriptor of `length` bytes with identifier `id` and address 0.
    #[inline]
    pub const fn new(id: u8, length: u32) -> Sgl {
        Sgl {
            address: U64::new(0),
            length: U32::new(length),
            reserved12: [0; 3],
            id,
        }
    }
}

/// A submission queue entry, 64 bytes (Base 2.0, section 3.3.3.1).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Opcode.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// Namespace identifier; FCTYPE in its first byte for Fabrics commands.
    pub nsid: U32,
    /// Command dwords 2 and 3.
    pub cdw2: [U32; 2],
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer.
    pub sgl: Sgl,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}

impl Sqe {
    /// PSDT 01b: SGLs are used, MPTR is an address. What a Fabrics host sends.
    pub const PSDT_SGL: u8 = 0x40;
    /// The PSDT bits of [`Sqe::flags`].
    pub const PSDT_MASK: u8 = 0xc0;
    /// The FUSE bits of [`Sqe::flags`].
    pub const FUSE_MASK: u8 = 0x03;
    /// FUSE: the first command of a fused operation.
    pub const FUSE_FIRST: u8 = 0x01;
    /// FUSE: the second command of a fused operation.
    pub const FUSE_SECOND: u8 = 0x02;

    /// An entry for `opcode` with SGLs, everything else 0.
    pub fn new(opcode: u8) -> Sqe {
        Sqe {
            opcode,
            flags: Sqe::PSDT_SGL,
            ..Sqe::default()
        }
    }

    /// FCTYPE, of a Fabrics command (byte 4).
    #[inline]
    pub fn fctype(&self) -> u8 {
        self.nsid.get() as u8
    }

    /// Which way the data goes.
    #[inline]
    pub fn direction(&self) -> Direction {
        Direction::of(if self.opcode == FABRICS {
            self.fctype()
        } else {
            self.opcode
        })
    }

    /// Starting LBA of a Read, Write, Compare or Write Zeroes: dwords 10 and 11.
    #[inline]
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw10.get()) | u64::from(self.cdw11.get()) << 32
    }

    /// Number of logical blocks of the same commands, as a count: NLB is
    /// 0's based.
    #[inline]
    pub fn block_count(&self) -> u32 {
        (self.cdw12.get() & 0xffff) + 1
    }

    /// Sets dwords 10 to 12 for `blocks` (1 to 65536) logical blocks from `slba`.
    pub fn set_blocks(&mut self, slba: u64, blocks: u32) {
        debug_assert!((1..=65536).contains(&blocks));
        self.cdw10 = U32::new(slba as u32);
        self.cdw11 = U32::new((slba >> 32) as u32);
        self.cdw12 = U32::new(self.cdw12.get() & !0xffff | (blocks - 1));
    }
}

/// Bits of command dword 12 of the I/O commands (NVM Command Set 1.0, section 3.2).
pub mod cdw12 {
    /// Force Unit Access (Write, Write Zeroes, Read, Compare).
    pub const FUA: u32 = 1 << 30;
    /// Deallocate (Write Zeroes).
    pub const DEAC: u32 = 1 << 25;
    /// Directive type (Write), bits 23:20.
    pub const DTYPE_MASK: u32 = 0xf << 20;
}

/// Dataset Management, command dword 11: Attribute – Deallocate.
pub const DSM_AD: u32 = 1 << 2;

/// One range of a Dataset Management command, 16 bytes (NVM Command Set 1.0,
/// section 3.2.3, figure 44).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes: hints.
    pub cattr: U32,
    /// Length in logical blocks, not 0's based.
    pub length_blocks: U32,
    /// Starting LBA.
    pub slba: U64,
}

/// What the source range entries of a Copy have in common (NVM Command Set
/// 1.0, section 3.2.2; formats 2h and 3h: 1.1, section 3.3.2). An entry is 32
/// bytes in formats 0h and 2h and 40 in 1h and 3h; behind NLB it holds
/// protection information fields and options.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct CopySource {
    /// Source namespace identifier, in formats 2h and 3h; reserved in 0h and 1h.
    pub snsid: U32,
    /// Reserved.
    pub reserved4: U32,
    /// Starting LBA.
    pub slba: U64,
    /// Number of logical blocks, 0's based.
    pub nlb: U16,
    /// Reserved.
    pub reserved18: U16,
    /// Reserved.
    pub reserved20: U16,
    /// Source options, in formats 2h and 3h.
    pub sopt: U16,
    /// Expected protection information.
    pub protection: [u8; 8],
}

/// Most ranges that one Dataset Management command carries.
pub const DSM_RANGES_MAX: u32 = 256;

/// A completion queue entry, 16 bytes (Base 2.0, section 3.3.3.2).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Command specific result: dwords 0 and 1.
    pub result: U64,
    /// SQ head pointer.
    pub sqhd: U16,
    /// SQ identifier: reserved over Fabrics.
    pub sqid: U16,
    /// Command identifier.
    pub cid: U16,
    /// Status in bits 15:1; bit 0, the phase tag, is reserved over Fabrics.
    pub status: U16,
}

impl Cqe {
    /// An entry over Fabrics: no SQ identifier, no phase tag.
    #[inline]
    pub const fn new(cid: u16, status: Status, result: u64, sqhd: u16) -> Cqe {
        Cqe {
            result: U64::new(result),
            sqhd: U16::new(sqhd),
            sqid: U16::new(0),
            cid: U16::new(cid),
            status: U16::new(status.0 << 1),
        }
    }

    /// The status field without the phase tag.
    #[inline]
    pub const fn status(&self) -> Status {
        Status(self.status.get() >> 1)
    }
}

/// The status field of a completion (Base 2.0, section 3.3.3.2.1): SC in bits
/// 7:0, SCT in 10:8, CRD in 12:11, More in 13, Do Not Retry in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u16);

impl Status {
    /// Do Not Retry.
    pub const DNR: u16 = 1 << 14;

    /// A status of status code type `sct` (0 to 7) and status code `sc`.
    pub const fn new(sct: u8, sc: u8) -> Status {
        Status((sct as u16 & 7) << 8 | sc as u16)
    }

    /// The same with Do Not Retry set: the command would fail again.
    #[must_use]
    pub const fn dnr(self) -> Status {
        Status(self.0 | Status::DNR)
    }

    /// The same with Command Retry Delay `crd` (1 to 3): the host waits that
    /// CRDT of Identify Controller before it tries again.
    #[must_use]
    pub const fn with_retry_delay(self, crd: u8) -> Status {
        Status(self.0 | (crd as u16 & 3) << 11)
    }

    /// Status code type.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Status code.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether the command need not be tried again.
    pub const fn is_dnr(self) -> bool {
        self.0 & Status::DNR != 0
    }

    /// Whether the command succeeded.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// SCT and SC alone, to compare against the constants.
    #[must_use]
    pub const fn code(self) -> Status {
        Status(self.0 & 0x7ff)
    }

    /// The standard's name, if this is one of the statuses below.
    pub fn name(self) -> Option<&'static str> {
        STATUS_NAMES
            .iter()
            .find(|(code, _)| *code == self.code())
            .map(|(_, name)| *name)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name)?,
            None => f.write_str("status")?,
        }
        write!(f, " ({:x}h/{:02x}h", self.sct(), self.sc())?;
        f.write_str(if self.is_dnr() { ", DNR)" } else { ")" })
    }
}

/// Status codes of the NVM Command Set whose values mean something else for
/// Fabrics commands (NVM Command Set 1.0, section 3.1.2.1), so that a value
/// alone has no name.
impl Status {
    /// Conflicting Attributes.
    pub const CONFLICTING_ATTRIBUTES: Status = Status::new(1, 0x80);
    /// Invalid Protection Information.
    pub const INVALID_PROTECTION: Status = Status::new(1, 0x81);
    /// Command Size Limit Exceeded.
    pub const COMMAND_SIZE_LIMIT: Status = Status::new(1, 0x83);
    /// Incompatible Namespace or Format.
    pub const INCOMPATIBLE_NAMESPACE: Status = Status::new(1, 0x85);
    /// Overlapping I/O Range.
    pub const OVERLAPPING_RANGE: Status = Status::new(1, 0x87);
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $ident:ident = $sct:literal, $sc:literal, $name:literal;)*) => {
        impl Status {
            $($(#[$doc])* #[doc = $name] pub const $ident: Status = Status::new($sct, $sc);)*
        }
        const STATUS_NAMES: &[(Status, &str)] = &[$((Status::$ident, $name)),*];
    };
}

// Base 2.0, section 3.3.3.2.1, figures 95 to 99; NVM Command Set 1.0, section 3.1.
statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    CID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    POWER_LOSS = 0, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    FUSED_FAILED = 0, 0x09, "Command Aborted due to Failed Fused Command";
    FUSED_MISSING = 0, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, "Invalid SGL Segment Descriptor";
    SGL_COUNT_INVALID = 0, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, "Data SGL Length Invalid";
    SGL_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, "Atomic Write Unit Exceeded";
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0, 0x1a, "Keep Alive Timeout Invalid";
    PREEMPTED = 0, 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0, 0x1d, "Sanitize In Progress";
    WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT = 0, 0x22, "Transient Transport Error";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict";
    ABORT_LIMIT = 1, 0x03, "Abort Command Limit Exceeded";
    AER_LIMIT = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    INVALID_FORMAT = 1, 0x0a, "Invalid Format";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NS_SPECIFIC = 1, 0x0f, "Feature Not Namespace Specific";
    CONNECT_FORMAT = 1, 0x80, "Connect Incompatible Format";
    CONNECT_BUSY = 1, 0x81, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 1, 0x82, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 1, 0x84, "Connect Invalid Host";
    INVALID_QUEUE_TYPE = 1, 0x85, "Invalid Queue Type";
    DISCOVER_RESTART = 1, 0x90, "Discover Restart";
    AUTHENTICATION_REQUIRED = 1, 0x91, "Authentication Required";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ = 2, 0x81, "Unrecovered Read Error";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
    ACCESS_DENIED = 2, 0x86, "Access Denied";
    DEALLOCATED_BLOCK = 2, 0x87, "Deallocated or Unwritten Logical Block";
    INTERNAL_PATH_ERROR = 3, 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition";
    HOST_PATHING_ERROR = 3, 0x70, "Host Pathing Error";
    HOST_ABORTED = 3, 0x71, "Command Aborted By Host";
}

/// Connect (Base 2.0, section 6.3), without the data it comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectCommand {
    /// Record format: 0 is the only one.
    pub recfmt: u16,
    /// Queue identifier: 0 is the Admin Queue.
    pub qid: u16,
    /// Entries of the submission queue, 0's based.
    pub sqsize: u16,
    /// Connect attributes.
    pub cattr: u8,
    /// Keep Alive Timeout in ms, for the Admin Queue.
    pub kato_ms: u32,
}

impl ConnectCommand {
    /// CATTR bit 2: the host does not want SQ flow control.
    pub const DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;

    /// Reads the command's own fields of a Connect entry.
    pub fn decode(sqe: &Sqe) -> ConnectCommand {
        ConnectCommand {
            recfmt: sqe.cdw10.get() as u16,
            qid: (sqe.cdw10.get() >> 16) as u16,
            sqsize: sqe.cdw11.get() as u16,
            cattr: (sqe.cdw11.get() >> 16) as u8,
            kato_ms: sqe.cdw12.get(),
        }
    }

    /// The entry for this command; SGL and CID are the transport's to fill in.
    pub fn encode(&self) -> Sqe {
        Sqe {
            cdw10: U32::new(u32::from(self.recfmt) | u32::from(self.qid) << 16),
            cdw11: U32::new(u32::from(self.sqsize) | u32::from(self.cattr) << 16),
            cdw12: U32::new(self.kato_ms),
            ..fabrics_sqe(fctype::CONNECT)
        }
    }
}

/// Property Get (Base 2.0, section 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyGet {
    /// Byte offset of the property.
    pub offset: u32,
    /// Whether it is 8 bytes, not 4.
    pub is_8_bytes: bool,
}

impl PropertyGet {
    /// Reads the command's own fields; sizes other than 4 and 8 bytes are an
    /// Invalid Field in Command.
    pub fn decode(sqe: &Sqe) -> Result<PropertyGet, Status> {
        Ok(PropertyGet {
            offset: sqe.cdw11.get(),
            is_8_bytes: property_size(sqe)?,
        })
    }

    /// The entry for this command.
    pub fn encode(&self) -> Sqe {
        Sqe {
            cdw10: U32::new(u32::from(self.is_8_bytes)),
            cdw11: U32::new(self.offset),
            ..fabrics_sqe(fctype::PROPERTY_GET)
        }
    }
}

/// Property Set (Base 2.0, section 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet {
    /// Byte offset of the property.
    pub offset: u32,
    /// Whether it is 8 bytes, not 4.
    pub is_8_bytes: bool,
    /// What to set; a 4-byte property takes the low half.
    pub value: u64,
}

impl PropertySet {
    /// Reads the command's own fields; sizes other than 4 and 8 bytes are an
    /// Invalid Field in Command.
    pub fn decode(sqe: &Sqe) -> Result<PropertySet, Status> {
        Ok(PropertySet {
            offset: sqe.cdw11.get(),
            is_8_bytes: property_size(sqe)?,
            value: u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32,
        })
    }

    /// The entry for this command.
    pub fn encode(&self) -> Sqe {
        Sqe {
            cdw10: U32::new(u32::from(self.is_8_bytes)),
            cdw11: U32::new(self.offset),
            cdw12: U32::new(self.value as u32),
            cdw13: U32::new((self.value >> 32) as u32),
            ..fabrics_sqe(fctype::PROPERTY_SET)
        }
    }
}

/// Disconnect (Base 2.0, section 6.6): ends an I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Record format: 0 is the only one.
    pub recfmt: u16,
}

impl Disconnect {
    /// Reads the command's own field.
    pub fn decode(sqe: &Sqe) -> Disconnect {
        Disconnect {
            recfmt: sqe.cdw10.get() as u16,
        }
    }

    /// The entry for this command.
    pub fn encode(&self) -> Sqe {
        Sqe {
            cdw10: U32::new(u32::from(self.recfmt)),
            ..fabrics_sqe(fctype::DISCONNECT)
        }
    }
}

fn fabrics_sqe(fctype: u8) -> Sqe {
    Sqe {
        nsid: U32::new(u32::from(fctype)),
        ..Sqe::new(FABRICS)
    }
}

/// ATTRIB bits 2:0: 0 is 4 bytes, 1 is 8 bytes.
fn property_size(sqe: &Sqe) -> Result<bool, Status> {
    match sqe.cdw10.get() & 7 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Sgl>() == 16 && offset_of!(Sgl, length) == 8 && offset_of!(Sgl, id) == 15);
    assert!(size_of::<Sqe>() == 64 && offset_of!(Sqe, cid) == 2 && offset_of!(Sqe, nsid) == 4);
    assert!(offset_of!(Sqe, mptr) == 16 && offset_of!(Sqe, sgl) == 24);
    assert!(offset_of!(Sqe, cdw10) == 40 && offset_of!(Sqe, cdw15) == 60);
    assert!(size_of::<Cqe>() == 16 && offset_of!(Cqe, sqhd) == 8 && offset_of!(Cqe, cid) == 12);
    assert!(offset_of!(Cqe, status) == 14);
    assert!(size_of::<CopySource>() == 32 && offset_of!(CopySource, nlb) == 16);
    assert!(size_of::<DsmRange>() == 16 && offset_of!(DsmRange, slba) == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_its_type_code_and_dnr() {
        let status = Status::TRANSIENT_TRANSPORT;
        assert_eq!(
            (status.sct(), status.sc(), status.is_dnr()),
            (0, 0x22, false)
        );
        let status = Status::COMPARE_FAILURE.dnr();
        assert_eq!(
            (status.sct(), status.sc(), status.is_dnr()),
            (2, 0x85, true)
        );
        assert_eq!(status.to_string(), "Compare Failure (2h/85h, DNR)");
        assert_eq!(Status::new(7, 1).to_string(), "status (7h/01h)");
        assert!(
            Status(0x3 << 11).is_success(),
            "CRD does not make a failure"
        );
        let codes: std::collections::HashSet<_> = STATUS_NAMES.iter().map(|(s, _)| *s).collect();
        assert_eq!(codes.len(), STATUS_NAMES.len());
    }

    #[test]
    fn cqe_has_no_phase_tag() {
        let cqe = Cqe::new(
            0x1234,
            Status::INVALID_OPCODE.dnr(),
            0x0102_0304_0506_0708,
            9,
        );
        assert_eq!(
            cqe.as_bytes(),
            [8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0x34, 0x12, 0x02, 0x80]
        );
        assert_eq!(cqe.status(), Status::INVALID_OPCODE.dnr());
    }

    #[test]
    fn fabrics_commands_round_trip() {
        let connect = ConnectCommand {
            recfmt: 0,
            qid: 3,
            sqsize: 127,
            cattr: 4,
            kato_ms: 0x0001_d4c0,
        };
        let sqe = connect.encode();
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes[1], bytes[4]), (0x7f, 0x40, 0x01));
        assert_eq!(bytes[40..52], [0, 0, 3, 0, 127, 0, 4, 0, 0xc0, 0xd4, 1, 0]);
        assert_eq!(ConnectCommand::decode(&sqe), connect);
        assert_eq!(sqe.direction(), Direction::HostToController);

        let set = PropertySet {
            offset: 0x14,
            is_8_bytes: false,
            value: 0x0046_0001,
        };
        assert_eq!(
            set.encode().as_bytes()[44..56],
            [0x14, 0, 0, 0, 1, 0, 0x46, 0, 0, 0, 0, 0]
        );
        assert_eq!(PropertySet::decode(&set.encode()), Ok(set));
        assert_eq!(set.encode().direction(), Direction::None);

        let get = PropertyGet {
            offset: 0,
            is_8_bytes: true,
        };
        assert_eq!(PropertyGet::decode(&get.encode()), Ok(get));
        let mut odd = get.encode();
        odd.cdw10 = U32::new(2);
        assert_eq!(PropertyGet::decode(&odd), Err(Status::INVALID_FIELD.dnr()));
        assert_eq!(
            Disconnect::decode(&Disconnect { recfmt: 1 }.encode()).recfmt,
            1
        );
    }

    #[test]
    fn blocks_are_zeros_based() {
        let mut sqe = Sqe::new(io::READ);
        sqe.cdw12 = U32::new(cdw12::FUA);
        sqe.set_blocks(0x1_0000_0002, 65536);
        assert_eq!((sqe.slba(), sqe.block_count()), (0x1_0000_0002, 65536));
        assert_eq!(
            sqe.as_bytes()[40..52],
            [2, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0, 0x40]
        );
    }
}
