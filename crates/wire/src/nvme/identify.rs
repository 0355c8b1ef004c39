//! Identify data structures (NVM Express Base Specification 2.0, section 5.17.2;
//! NVM Command Set Specification 1.0, section 4.1.5).

use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Every Identify data structure has this size, in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

/// Identifiers in a namespace or changed namespace list.
pub const LIST_NSIDS_MAX: usize = 1024;

/// Identifiers in a controller list (its first entry is the count).
pub const LIST_CNTLIDS_MAX: usize = 2047;

/// Controller or Namespace Structure: what Identify returns (CDW10 bits 7:0).
pub mod cns {
    /// Identify Namespace data structure of the NVM Command Set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller data structure.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const DESCRIPTORS: u8 = 0x03;
    /// I/O Command Set specific Identify Namespace data structure.
    pub const NAMESPACE_CSI: u8 = 0x05;
    /// I/O Command Set specific Identify Controller data structure.
    pub const CONTROLLER_CSI: u8 = 0x06;
    /// I/O Command Set specific Active Namespace ID list.
    pub const ACTIVE_NAMESPACES_CSI: u8 = 0x07;
    /// I/O Command Set Independent Identify Namespace data structure.
    pub const NAMESPACE_INDEPENDENT: u8 = 0x08;
    /// Allocated Namespace ID list.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace data structure for an allocated namespace.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers attached to a namespace.
    pub const NAMESPACE_CONTROLLERS: u8 = 0x12;
    /// Controllers of the NVM subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// I/O Command Set data structure.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// Command Set Identifier of the NVM Command Set.
pub const CSI_NVM: u8 = 0;

/// Power State Descriptor (figure 276).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerState {
    /// Maximum power in centiwatts.
    pub maximum_power: U16,
    reserved2: u8,
    /// Bit 0: scale of the maximum power; bit 1: non-operational state.
    pub flags: u8,
    /// Entry latency in microseconds.
    pub entry_latency_us: U32,
    /// Exit latency in microseconds.
    pub exit_latency_us: U32,
    reserved12: [u8; 20],
}

/// Identify Controller data structure (CNS 01h).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Controller {
    /// PCI Vendor ID.
    pub vid: U16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: U16,
    /// Serial Number, ASCII, space padded.
    pub sn: [u8; 20],
    /// Model Number, ASCII, space padded.
    pub mn: [u8; 40],
    /// Firmware Revision, ASCII, space padded.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst, a power of two.
    pub rab: u8,
    /// IEEE OUI Identifier.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub cmic: u8,
    /// Maximum Data Transfer Size: a power of two of the minimum page; 0: no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: U16,
    /// Version.
    pub ver: U32,
    /// RTD3 Resume Latency in microseconds.
    pub rtd3r_us: U32,
    /// RTD3 Entry Latency in microseconds.
    pub rtd3e_us: U32,
    /// Optional Asynchronous Events Supported.
    pub oaes: U32,
    /// Controller Attributes.
    pub ctratt: U32,
    /// Read Recovery Levels Supported.
    pub rrls: U16,
    reserved102: [u8; 9],
    /// Controller Type: 1 I/O, 2 discovery.
    pub cntrltype: u8,
    /// FRU Globally Unique Identifier.
    pub fguid: [u8; 16],
    /// Command Retry Delay Times 1 to 3, in units of 100 ms.
    pub crdt: [U16; 3],
    reserved134: [u8; 119],
    /// NVM Subsystem Report.
    pub nvmsr: u8,
    /// VPD Write Cycle Information.
    pub vwci: u8,
    /// Management Endpoint Capabilities.
    pub mec: u8,
    /// Optional Admin Command Support.
    pub oacs: U16,
    /// Abort Command Limit, 0's based.
    pub acl: u8,
    /// Asynchronous Event Request Limit, 0's based.
    pub aerl: u8,
    /// Firmware Updates.
    pub frmw: u8,
    /// Log Page Attributes.
    pub lpa: u8,
    /// Error Log Page Entries, 0's based.
    pub elpe: u8,
    /// Number of Power States Support, 0's based.
    pub npss: u8,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold in kelvins.
    pub wctemp: U16,
    /// Critical Composite Temperature Threshold in kelvins.
    pub cctemp: U16,
    /// Maximum Time for Firmware Activation in units of 100 ms.
    pub mtfa: U16,
    /// Host Memory Buffer Preferred Size.
    pub hmpre: U32,
    /// Host Memory Buffer Minimum Size.
    pub hmmin: U32,
    /// Total NVM Capacity in bytes.
    pub tnvmcap: [u8; 16],
    /// Unallocated NVM Capacity in bytes.
    pub unvmcap: [u8; 16],
    /// Replay Protected Memory Block Support.
    pub rpmbs: U32,
    /// Extended Device Self-test Time in minutes.
    pub edstt: U16,
    /// Device Self-test Options.
    pub dsto: u8,
    /// Firmware Update Granularity.
    pub fwug: u8,
    /// Keep Alive Support: granularity of the timer in units of 100 ms.
    pub kas: U16,
    /// Host Controlled Thermal Management Attributes.
    pub hctma: U16,
    /// Minimum Thermal Management Temperature in kelvins.
    pub mntmt: U16,
    /// Maximum Thermal Management Temperature in kelvins.
    pub mxtmt: U16,
    /// Sanitize Capabilities.
    pub sanicap: U32,
    /// Host Memory Buffer Minimum Descriptor Entry Size.
    pub hmminds: U32,
    /// Host Memory Maximum Descriptors Entries.
    pub hmmaxd: U16,
    /// NVM Set Identifier Maximum.
    pub nsetidmax: U16,
    /// Endurance Group Identifier Maximum.
    pub endgidmax: U16,
    /// ANA Transition Time in seconds.
    pub anatt: u8,
    /// Asymmetric Namespace Access Capabilities.
    pub anacap: u8,
    /// ANA Group Identifier Maximum.
    pub anagrpmax: U32,
    /// Number of ANA Group Identifiers.
    pub nanagrpid: U32,
    /// Persistent Event Log Size in units of 64 KiB.
    pub pels: U32,
    /// Domain Identifier.
    pub domain_id: U16,
    reserved358: [u8; 10],
    /// Max Endurance Group Capacity in bytes.
    pub megcap: [u8; 16],
    reserved384: [u8; 128],
    /// Submission Queue Entry Size: required in bits 3:0, maximum in bits 7:4.
    pub sqes: u8,
    /// Completion Queue Entry Size: required in bits 3:0, maximum in bits 7:4.
    pub cqes: u8,
    /// Maximum Outstanding Commands of one I/O queue.
    pub maxcmd: U16,
    /// Number of Namespaces: the largest valid NSID.
    pub nn: U32,
    /// Optional NVM Command Support.
    pub oncs: U16,
    /// Fused Operation Support.
    pub fuses: U16,
    /// Format NVM Attributes.
    pub fna: u8,
    /// Volatile Write Cache.
    pub vwc: u8,
    /// Atomic Write Unit Normal in logical blocks, 0's based.
    pub awun: U16,
    /// Atomic Write Unit Power Fail in logical blocks, 0's based.
    pub awupf: U16,
    /// I/O Command Set Vendor Specific Command Configuration.
    pub icsvscc: u8,
    /// Namespace Write Protection Capabilities.
    pub nwpc: u8,
    /// Atomic Compare & Write Unit in logical blocks, 0's based.
    pub acwu: U16,
    /// Copy Descriptor Formats Supported.
    pub cdfs: U16,
    /// SGL Support.
    pub sgls: U32,
    /// Maximum Number of Allowed Namespaces; 0: as many as `nn`.
    pub mnan: U32,
    /// Maximum Domain Namespace Attachments.
    pub maxdna: [u8; 16],
    /// Maximum I/O Controller Namespace Attachments.
    pub maxcna: U32,
    reserved564: [u8; 204],
    /// NVM Subsystem NVMe Qualified Name, NUL terminated.
    pub subnqn: [u8; 256],
    reserved1024: [u8; 768],
    /// I/O Queue Command Capsule Supported Size in units of 16 bytes.
    pub ioccsz: U32,
    /// I/O Queue Response Capsule Supported Size in units of 16 bytes.
    pub iorcsz: U32,
    /// In Capsule Data Offset in units of 16 bytes.
    pub icdoff: U16,
    /// Fabrics Controller Attributes; bit 0: static controller model.
    pub fcatt: u8,
    /// Maximum SGL Data Block Descriptors of a capsule; 0: no limit.
    pub msdbd: u8,
    /// Optional Fabric Commands Support; bit 0: Disconnect.
    pub ofcs: U16,
    /// Discovery Controller Type.
    pub dctype: u8,
    reserved1807: [u8; 241],
    /// Power State Descriptors.
    pub psd: [PowerState; 32],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}

const _: () = {
    assert!(size_of::<PowerState>() == 32);
    assert!(size_of::<Controller>() == IDENTIFY_BYTES);
    assert!(offset_of!(Controller, cntlid) == 78);
    assert!(offset_of!(Controller, oaes) == 92);
    assert!(offset_of!(Controller, cntrltype) == 111);
    assert!(offset_of!(Controller, oacs) == 256);
    assert!(offset_of!(Controller, kas) == 320);
    assert!(offset_of!(Controller, sqes) == 512);
    assert!(offset_of!(Controller, nn) == 516);
    assert!(offset_of!(Controller, vwc) == 525);
    assert!(offset_of!(Controller, sgls) == 536);
    assert!(offset_of!(Controller, subnqn) == 768);
    assert!(offset_of!(Controller, ioccsz) == 1792);
    assert!(offset_of!(Controller, psd) == 2048);
};

/// LBA Format (figure 98 of the NVM Command Set Specification).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size in bytes.
    pub ms: U16,
    /// LBA Data Size, a power of two.
    pub lbads: u8,
    /// Relative Performance.
    pub rp: u8,
}

/// Identify Namespace data structure of the NVM Command Set (CNS 00h).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Namespace {
    /// Namespace Size in logical blocks.
    pub nsze: U64,
    /// Namespace Capacity in logical blocks.
    pub ncap: U64,
    /// Namespace Utilization in logical blocks.
    pub nuse: U64,
    /// Namespace Features.
    pub nsfeat: u8,
    /// Number of LBA Formats, 0's based.
    pub nlbaf: u8,
    /// Formatted LBA Size.
    pub flbas: u8,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// Deallocate Logical Block Features.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal in logical blocks, 0's based.
    pub nawun: U16,
    /// Namespace Atomic Write Unit Power Fail in logical blocks, 0's based.
    pub nawupf: U16,
    /// Namespace Atomic Compare & Write Unit in logical blocks, 0's based.
    pub nacwu: U16,
    /// Namespace Atomic Boundary Size Normal.
    pub nabsn: U16,
    /// Namespace Atomic Boundary Offset.
    pub nabo: U16,
    /// Namespace Atomic Boundary Size Power Fail.
    pub nabspf: U16,
    /// Namespace Optimal I/O Boundary in logical blocks.
    pub noiob: U16,
    /// NVM Capacity in bytes.
    pub nvmcap: [u8; 16],
    /// Namespace Preferred Write Granularity in logical blocks, 0's based.
    pub npwg: U16,
    /// Namespace Preferred Write Alignment in logical blocks, 0's based.
    pub npwa: U16,
    /// Namespace Preferred Deallocate Granularity in logical blocks, 0's based.
    pub npdg: U16,
    /// Namespace Preferred Deallocate Alignment in logical blocks, 0's based.
    pub npda: U16,
    /// Namespace Optimal Write Size in logical blocks, 0's based.
    pub nows: U16,
    /// Maximum Single Source Range Length.
    pub mssrl: U16,
    /// Maximum Copy Length.
    pub mcl: U32,
    /// Maximum Source Range Count.
    pub msrc: u8,
    reserved81: [u8; 11],
    /// ANA Group Identifier.
    pub anagrpid: U32,
    reserved96: [u8; 3],
    /// Namespace Attributes; bit 0: currently write protected.
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Globally Unique Identifier, big endian.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, big endian.
    pub eui64: [u8; 8],
    /// LBA Formats.
    pub lbaf: [LbaFormat; 64],
    /// Vendor specific.
    pub vendor: [u8; 3712],
}

const _: () = {
    assert!(size_of::<Namespace>() == IDENTIFY_BYTES);
    assert!(offset_of!(Namespace, nmic) == 30);
    assert!(offset_of!(Namespace, nvmcap) == 48);
    assert!(offset_of!(Namespace, npwg) == 64);
    assert!(offset_of!(Namespace, nsattr) == 99);
    assert!(offset_of!(Namespace, nguid) == 104);
    assert!(offset_of!(Namespace, eui64) == 120);
    assert!(offset_of!(Namespace, lbaf) == 128);
};

/// I/O Command Set Independent Identify Namespace data structure (CNS 08h).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NamespaceIndependent {
    /// Common Namespace Features.
    pub nsfeat: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// Namespace Attributes; bit 0: currently write protected.
    pub nsattr: u8,
    reserved9: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Status; bit 0: ready.
    pub nstat: u8,
    reserved15: [u8; 4081],
}

const _: () = assert!(size_of::<NamespaceIndependent>() == IDENTIFY_BYTES);

/// Identify Controller data structure of the NVM Command Set (CNS 06h, CSI 0).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmController {
    /// Verify Size Limit: a power of two of the minimum page; 0: no limit.
    pub vsl: u8,
    /// Write Zeroes Size Limit: a power of two of the minimum page; 0: no limit.
    pub wzsl: u8,
    /// Write Uncorrectable Size Limit: a power of two of the minimum page; 0: no limit.
    pub wusl: u8,
    /// Dataset Management Ranges Limit; 0: no limit.
    pub dmrl: u8,
    /// Dataset Management Range Size Limit in logical blocks; 0: no limit.
    pub dmrsl: U32,
    /// Dataset Management Size Limit in logical blocks; 0: no limit.
    pub dmsl: U64,
    reserved16: [u8; 2],
    /// Admin Optional Command Support (1.1); bit 0: Get LBA Status tells
    /// allocated blocks.
    pub aocs: U16,
    reserved20: [u8; 4076],
}

const _: () = {
    assert!(size_of::<NvmController>() == IDENTIFY_BYTES);
    assert!(offset_of!(NvmController, aocs) == 18);
};

/// I/O Command Set specific Identify Namespace data structure of the NVM
/// Command Set (CNS 05h, CSI 0).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmNamespace {
    /// Logical Block Storage Tag Mask.
    pub lbstm: U64,
    /// Protection Information Capabilities.
    pub pic: u8,
    reserved9: [u8; 3],
    /// Extended LBA Formats.
    pub elbaf: [U32; 64],
    reserved268: [u8; 24],
    /// Tracked LBA Allocation Granularity in logical blocks (1.1).
    pub tlbaag: U32,
    reserved296: [u8; 3800],
}

const _: () = {
    assert!(size_of::<NvmNamespace>() == IDENTIFY_BYTES);
    assert!(offset_of!(NvmNamespace, tlbaag) == 292);
};

/// Header of a Namespace Identification Descriptor; the identifier follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DescriptorHeader {
    /// Namespace Identifier Type, see [`nidt`].
    pub nidt: u8,
    /// Namespace Identifier Length in bytes.
    pub nidl: u8,
    reserved2: [u8; 2],
}

const _: () = assert!(size_of::<DescriptorHeader>() == 4);

impl DescriptorHeader {
    /// A header for an identifier of `nidl` bytes.
    pub fn new(nidt: u8, nidl: u8) -> Self {
        DescriptorHeader {
            nidt,
            nidl,
            reserved2: [0; 2],
        }
    }
}

/// Namespace Identifier Types.
pub mod nidt {
    /// IEEE Extended Unique Identifier, 8 bytes.
    pub const EUI64: u8 = 1;
    /// Namespace Globally Unique Identifier, 16 bytes.
    pub const NGUID: u8 = 2;
    /// Namespace UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command Set Identifier, 1 byte.
    pub const CSI: u8 = 4;
}

/// A structure of zeros: what a host sees of a namespace that is not active.
pub fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}

/// Writes `text` into an ASCII field and pads it with spaces (section 1.4.2).
pub fn ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    let bytes = text.as_bytes();
    let len = bytes.len().min(field.len());
    field[..len].copy_from_slice(&bytes[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_pads_with_spaces_and_cuts() {
        let mut field = [0u8; 6];
        ascii(&mut field, "abc");
        assert_eq!(&field, b"abc   ");
        ascii(&mut field, "abcdefgh");
        assert_eq!(&field, b"abcdef");
    }
}
