//! A logical unit as one I_T nexus sees it.

use std::sync::Arc;

use wire::scsi::asc;

use crate::provisioning::{THRESHOLD_SET_BYTES, Thresholds};
use crate::sense::Sense;
use wire::scsi::key;

/// Data of one command at most that is looked at as a whole.
pub(crate) const STEP_BYTES_MAX: u32 = 2 << 20;

/// T10 vendor identification of what weft serves.
pub const VENDOR: &str = "WEFT";
/// Product identification, likewise.
pub const PRODUCT: &str = "volume";

/// One logical unit, a snapshot: what changes comes as another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its number within the target.
    pub lun: u16,
    /// Bytes of a logical block, a power of two.
    pub block_bytes: u32,
    /// Capacity in logical blocks.
    pub block_count: u64,
    /// A physical block has two to this power logical ones.
    pub physical_exponent: u8,
    /// What identifies it.
    pub identity: UnitIdentity,
    /// Every change of the medium is refused with WRITE PROTECTED.
    pub read_only: bool,
    /// All that it holds is encrypted: SANITIZE destroys the key.
    pub is_encrypted: bool,
    /// Blocks can be given back: UNMAP and WRITE SAME with UNMAP.
    pub thin: bool,
    /// Written data may be lost with the machine until it is synchronized.
    pub volatile_cache: bool,
    /// A COMPARE AND WRITE of up to this many bytes is one step to every other
    /// command.
    pub atomic_bytes: u32,
    /// A WRITE ATOMIC of up to this many bytes is whole or not at all, also when
    /// the machine fails in the middle. Not offered if that is one block.
    pub atomic_power_fail_bytes: u32,
    /// Data of one command, at most.
    pub io_bytes_max: u32,
    /// Reservations can outlive a loss of power (PTPL_C, APTPL).
    pub can_persist: bool,
    /// What MODE SELECT has set.
    pub modes: Modes,
    /// What the mode parameters are at first, and after a reset.
    pub default_modes: Modes,
    /// The target port through which the nexus goes.
    pub here: Port,
    /// The access state of the unit there.
    pub state: AccessState,
    /// All ways to it.
    pub groups: Arc<[PortGroup]>,
}

impl Unit {
    /// Whether it has thresholds of its space and the log page of them.
    pub(crate) fn has_thresholds(&self) -> bool {
        self.thin
    }

    /// The largest number of blocks that COMPARE AND WRITE takes; its CDB has one
    /// byte for it.
    pub fn compare_and_write_blocks_max(&self) -> u8 {
        // Its data is twice as long.
        let bytes = self.atomic_bytes.min(self.io_bytes_max / 2);
        (bytes / self.block_bytes).min(255) as u8
    }

    /// The largest number of blocks that WRITE ATOMIC takes; 0 if it is not
    /// offered.
    pub fn atomic_blocks_max(&self) -> u32 {
        let bytes = self.atomic_power_fail_bytes.min(self.io_bytes_max);
        match bytes / self.block_bytes {
            0 | 1 => 0,
            blocks => blocks.min(u32::from(u16::MAX)),
        }
    }

    /// The largest number of blocks that one command transfers.
    pub fn transfer_blocks_max(&self) -> u32 {
        self.io_bytes_max / self.block_bytes
    }

    /// The same of one that does more with them than to read or write them.
    pub fn step_blocks_max(&self) -> u32 {
        self.io_bytes_max.min(STEP_BYTES_MAX) / self.block_bytes
    }

    /// THRESHOLD EXPONENT: a threshold set has two to this power blocks.
    pub fn threshold_exponent(&self) -> u8 {
        (THRESHOLD_SET_BYTES / u64::from(self.block_bytes)).trailing_zeros() as u8
    }

    /// Whether nothing may be written now.
    #[inline]
    pub fn is_write_protected(&self) -> bool {
        self.read_only || self.modes.write_protected
    }

    /// Whether every write must be durable before it is done: the write cache,
    /// if there is one, was disabled.
    #[inline]
    pub fn writes_through(&self) -> bool {
        self.volatile_cache && !self.modes.write_cache
    }
}

/// What identifies a logical unit. All of it is the same through every port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitIdentity {
    /// The root of its identity.
    pub uuid: [u8; 16],
    /// Its NGUID as an NVMe host sees it: the EUI-64 based designator.
    pub nguid: [u8; 16],
    /// Its EUI-64, if it has one: another of that kind.
    pub eui64: Option<[u8; 8]>,
    /// The NAA designator, of 8 or 16 bytes.
    pub naa: Vec<u8>,
    /// Unit serial number: printable ASCII.
    pub serial: String,
    /// T10 vendor identification: printable ASCII, at most 8 characters.
    pub vendor: String,
    /// Product identification: printable ASCII, at most 16 characters.
    pub product: String,
    /// Product revision level: printable ASCII, at most 4 characters.
    pub revision: String,
}

/// Mode parameters that can be changed. They are the logical unit's, shared by
/// all I_T nexuses; none outlives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Control, D_SENSE: sense data in descriptor format.
    pub descriptor_sense: bool,
    /// Control, SWP: software write protect.
    pub write_protected: bool,
    /// Caching, WCE: a write may be done before it is durable. Without effect
    /// where there is no volatile cache.
    pub write_cache: bool,
    /// Logical Block Provisioning: when initiators are told that space is short.
    /// Without effect on a unit that is not thin.
    pub thresholds: Thresholds,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes {
            descriptor_sense: false,
            write_protected: false,
            write_cache: true,
            thresholds: Thresholds::default(),
        }
    }
}

/// One target port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The target port group that it is in.
    pub group: u16,
    /// Its relative target port identifier, from 1.
    pub id: u16,
}

/// A target port group, as one logical unit sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// Its number within the target: the portal group tag.
    pub tag: u16,
    /// The access state of the unit there.
    pub state: AccessState,
    /// Relative target port identifiers of its ports.
    pub ports: Vec<u16>,
}

/// Asymmetric access state (SPC-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessState {
    /// Active/optimized.
    #[default]
    ActiveOptimized = 0x0,
    /// Active/non-optimized.
    ActiveNonOptimized = 0x1,
    /// Standby.
    Standby = 0x2,
    /// Unavailable.
    Unavailable = 0x3,
    /// Offline: of the port, not set by SET TARGET PORT GROUPS.
    Offline = 0xe,
    /// Transitioning between two others.
    Transitioning = 0xf,
}

impl AccessState {
    /// The state that SET TARGET PORT GROUPS names so; `None` for those that it
    /// cannot set.
    pub fn settable(value: u8) -> Option<AccessState> {
        match value {
            0x0 => Some(AccessState::ActiveOptimized),
            0x1 => Some(AccessState::ActiveNonOptimized),
            0x2 => Some(AccessState::Standby),
            0x3 => Some(AccessState::Unavailable),
            _ => None,
        }
    }

    /// Whether the medium can be accessed.
    #[inline]
    pub fn is_active(self) -> bool {
        matches!(
            self,
            AccessState::ActiveOptimized | AccessState::ActiveNonOptimized
        )
    }

    /// What a command that the state does not let pass is answered with.
    #[cold]
    pub fn refusal(self) -> Sense {
        let code = match self {
            AccessState::Standby => asc::LOGICAL_UNIT_NOT_ACCESSIBLE_TARGET_PORT_IN_STANDBY_STATE,
            AccessState::Transitioning => {
                asc::LOGICAL_UNIT_NOT_READY_ASYMMETRIC_ACCESS_STATE_TRANSITION
            }
            AccessState::Offline => asc::LOGICAL_UNIT_NOT_READY_TARGET_PORT_IN_OFFLINE_STATE,
            AccessState::Unavailable
            | AccessState::ActiveOptimized
            | AccessState::ActiveNonOptimized => {
                asc::LOGICAL_UNIT_NOT_ACCESSIBLE_TARGET_PORT_IN_UNAVAILABLE_STATE
            }
        };
        Sense::new(key::NOT_READY, code)
    }
}

/// The target as one I_T nexus sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// The iSCSI name of the target.
    pub name: String,
    /// The logical units that the nexus may use, ascending.
    pub luns: Vec<u16>,
}

/// What a LUN field has led to.
#[derive(Clone, Copy, Debug)]
pub enum Addressed<'a> {
    /// A logical unit.
    Unit(&'a Unit),
    /// The well known logical unit of REPORT LUNS.
    ReportLuns,
    /// Nothing.
    Nothing,
}

impl<'a> Addressed<'a> {
    pub(crate) fn unit(self) -> Result<&'a Unit, Sense> {
        match self {
            Addressed::Unit(unit) => Ok(unit),
            Addressed::ReportLuns | Addressed::Nothing => Err(Sense::no_unit()),
        }
    }
}
