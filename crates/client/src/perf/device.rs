//! What a load is on, whatever names it.

use std::fmt;

use host::iscsi::UnitInfo;
use host::{ControllerInfo, NamespaceInfo};
use store::Volume;

/// Commands of one iSCSI session at most; those beyond its target's window wait in
/// it.
pub const ISCSI_QUEUE_DEPTH_MAX: u16 = 65_000;

/// I/Os of a job on a volume of this process at a time.
const LOCAL_QUEUE_DEPTH_MAX: u16 = 4096;

/// What is written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is called.
    pub kind: DeviceKind,
    /// Namespace identifier or logical unit number.
    pub number: u32,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Size in logical blocks.
    pub block_count: u64,
    /// Most bytes of one transfer; `None`: no limit.
    pub transfer_max: Option<u64>,
    /// Most commands outstanding on one connection; more I/Os wait for them.
    pub queue_depth_max: u16,
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Of an NVM subsystem.
    Namespace,
    /// Of a SCSI target.
    LogicalUnit,
    /// Of an NFS server.
    File,
    /// Of this process.
    Volume,
}

impl Device {
    /// A namespace.
    #[must_use]
    pub fn namespace(controller: &ControllerInfo, namespace: &NamespaceInfo) -> Self {
        // NLB is 16 bits (NVM Command Set 1.0, 3.2.4).
        let blocks_max = u64::from(namespace.block_bytes) << 16;
        let transfer_max = controller.transfer_max.unwrap_or(u64::MAX);
        Device {
            kind: DeviceKind::Namespace,
            number: namespace.nsid,
            block_bytes: namespace.block_bytes,
            block_count: namespace.block_count,
            transfer_max: Some(transfer_max.min(blocks_max)),
            queue_depth_max: controller.queue_entries_max.saturating_sub(1) as u16,
        }
    }

    /// A logical unit.
    #[must_use]
    pub fn unit(unit: &UnitInfo) -> Self {
        let bytes = |blocks| u64::from(blocks) * u64::from(unit.block_bytes);
        Device {
            kind: DeviceKind::LogicalUnit,
            number: unit.lun.into(),
            block_bytes: unit.block_bytes,
            block_count: unit.block_count,
            transfer_max: unit.transfer_blocks_max.map(bytes),
            queue_depth_max: ISCSI_QUEUE_DEPTH_MAX,
        }
    }

    /// A file of `size_bytes`, of which `transfer_max` go at a time.
    #[must_use]
    pub fn file(size_bytes: u64, transfer_max: u64) -> Self {
        Device {
            kind: DeviceKind::File,
            number: 0,
            block_bytes: 1,
            block_count: size_bytes,
            transfer_max: Some(transfer_max),
            // How many slots a session has is known when it is made.
            queue_depth_max: 4096,
        }
    }

    /// A volume of this process.
    #[must_use]
    pub fn local(volume: &dyn Volume) -> Self {
        let block_bytes = volume.info().block_bytes;
        Device {
            kind: DeviceKind::Volume,
            number: 0,
            block_bytes,
            block_count: volume.size_bytes() / u64::from(block_bytes),
            transfer_max: Some(mem::BUF_BYTES_MAX.into()),
            queue_depth_max: LOCAL_QUEUE_DEPTH_MAX,
        }
    }

    /// How many of `iodepth` I/Os one connection takes at a time.
    #[must_use]
    pub fn queue_depth(&self, iodepth: u16) -> u16 {
        iodepth.min(self.queue_depth_max)
    }

    /// Bytes of it.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.block_count.saturating_mul(self.block_bytes.into())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Namespace => write!(f, "namespace {}", self.number),
            DeviceKind::LogicalUnit => write!(f, "LUN {}", self.number),
            DeviceKind::File => f.write_str("the file"),
            DeviceKind::Volume => f.write_str("the volume"),
        }
    }
}
