//! NVM subsystems and their namespaces: what is served, as plain data.

use std::ops::RangeInclusive;
use std::sync::Arc;

/// A namespace of an NVM subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace identifier, 1 to [`NSID_MAX`].
    pub nsid: u32,
    /// Namespace UUID; all zeros: none.
    pub uuid: [u8; 16],
    /// Namespace Globally Unique Identifier; all zeros: none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier.
    pub eui64: Option<[u8; 8]>,
    /// Bytes of a logical block, a power of two.
    pub block_bytes: u32,
    /// Logical blocks.
    pub block_count: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// A completed write is durable only after a flush or with FUA.
    pub volatile_cache: bool,
}

/// The largest namespace identifier (NN), room for namespaces added later.
pub const NSID_MAX: u32 = 1024;

/// Controller identifiers of the dynamic controller model (Base 2.0, figure 383).
pub const CNTLID_MAX: u16 = 0xffef;

/// What one controller may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues of one controller.
    pub io_queues_max: u16,
    /// Entries of one submission queue.
    pub queue_entries_max: u16,
    /// Data of one command in bytes, at least 8192: what MDTS can say. Reported
    /// as the power of two below.
    pub io_bytes_max: u32,
    /// Data that fits into the capsule of an I/O queue's command, bytes, a
    /// multiple of 16 (IOCCSZ).
    pub in_capsule_bytes_max: u32,
}

/// An NVM subsystem: an immutable snapshot, replaced whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// NVMe Qualified Name; see [`check_subsystem_nqn`](crate::check_subsystem_nqn).
    pub nqn: String,
    /// Serial Number, up to 20 ASCII characters.
    pub serial: String,
    /// Model Number, up to 40 ASCII characters.
    pub model: String,
    /// Firmware Revision, up to 8 ASCII characters.
    pub firmware: String,
    /// Host NQNs that may connect; `None` for any host.
    pub hosts: Option<Vec<String>>,
    /// Namespaces; what refers to one by index means this order.
    pub namespaces: Arc<[Namespace]>,
    /// What one controller may use.
    pub limits: Limits,
    /// Controller identifiers to give out, within 1 to [`CNTLID_MAX`].
    pub cntlids: RangeInclusive<u16>,
}

impl Subsystem {
    /// Whether `hostnqn` may see and use the subsystem.
    pub fn allows(&self, hostnqn: &str) -> bool {
        self.hosts
            .as_ref()
            .is_none_or(|hosts| hosts.iter().any(|host| host == hostnqn))
    }

    /// The namespace of an identifier and its index.
    pub fn namespace(&self, nsid: u32) -> Option<(usize, &Namespace)> {
        self.namespaces
            .iter()
            .enumerate()
            .find(|(_, namespace)| namespace.nsid == nsid)
    }

    /// Whether any namespace has a volatile write cache.
    pub fn has_volatile_cache(&self) -> bool {
        self.namespaces
            .iter()
            .any(|namespace| namespace.volatile_cache)
    }
}
