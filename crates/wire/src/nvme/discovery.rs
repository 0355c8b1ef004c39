//! Discovery log page (NVM Express Base Specification 2.0, section 5.16.1.23).

use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// NQN of the well-known discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Transport Type: TCP.
pub const TRTYPE_TCP: u8 = 3;
/// Transport type: RDMA.
pub const TRTYPE_RDMA: u8 = 1;
/// Transport specific address subtype of RDMA, byte 0 (RDMA_QPTYPE): reliable connected.
pub const RDMA_QPTYPE_CONNECTED: u8 = 1;
/// The same, byte 1 (RDMA_PRTYPE): iWARP.
pub const RDMA_PRTYPE_IWARP: u8 = 4;
/// The same, byte 2 (RDMA_CMS): RDMA_IP_CM.
pub const RDMA_CMS_RDMA_CM: u8 = 1;
/// Address Family: IPv4.
pub const ADRFAM_IPV4: u8 = 1;
/// Address Family: IPv6.
pub const ADRFAM_IPV6: u8 = 2;
/// Subsystem Type: a referral to another discovery service.
pub const SUBTYPE_REFERRAL: u8 = 1;
/// Subsystem Type: the discovery subsystem that the log is read from.
pub const SUBTYPE_CURRENT: u8 = 3;
/// Subsystem Type: an NVM subsystem with I/O controllers.
pub const SUBTYPE_NVM: u8 = 2;
/// Transport Requirements: a secure channel.
pub const TREQ_SECURE_CHANNEL_REQUIRED: u8 = 1;
/// Security Type, the first byte of TSAS for TCP (NVMe TCP Transport 1.0, section 3.1.1):
/// TLS 1.3.
pub const SECTYPE_TLS_1_3: u8 = 2;
/// Transport Requirements: SQ flow control can be disabled.
pub const TREQ_SQ_FLOW_CONTROL_DISABLE: u8 = 1 << 2;
/// Entry Flags: Explicit Persistent Connection Support for Discovery.
pub const EFLAGS_EPCSD: u16 = 1 << 1;

/// Discovery Log Page header (figure 263).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogHeader {
    /// Generation Counter.
    pub genctr: U64,
    /// Number of Records.
    pub numrec: U64,
    /// Record Format: 0.
    pub recfmt: U16,
    reserved18: [u8; 1006],
}

const _: () = assert!(size_of::<LogHeader>() == 1024);

/// Discovery Log Page Entry (figure 264).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogEntry {
    /// Transport Type.
    pub trtype: u8,
    /// Address Family.
    pub adrfam: u8,
    /// Subsystem Type.
    pub subtype: u8,
    /// Transport Requirements.
    pub treq: u8,
    /// Port ID.
    pub portid: U16,
    /// Controller ID; FFFFh: dynamic controller model.
    pub cntlid: U16,
    /// Admin Max SQ Size.
    pub asqsz: U16,
    /// Entry Flags.
    pub eflags: U16,
    reserved12: [u8; 20],
    /// Transport Service Identifier, ASCII: the port.
    pub trsvcid: [u8; 32],
    reserved64: [u8; 192],
    /// NVM Subsystem Qualified Name, NUL terminated.
    pub subnqn: [u8; 256],
    /// Transport Address, ASCII.
    pub traddr: [u8; 256],
    /// Transport Specific Address Subtype; byte 0 for TCP: security type.
    pub tsas: [u8; 256],
}

const _: () = {
    assert!(size_of::<LogEntry>() == 1024);
    assert!(offset_of!(LogEntry, trsvcid) == 32);
    assert!(offset_of!(LogEntry, subnqn) == 256);
    assert!(offset_of!(LogEntry, traddr) == 512);
    assert!(offset_of!(LogEntry, tsas) == 768);
};
