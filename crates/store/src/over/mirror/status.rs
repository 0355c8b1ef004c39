//! What is told of a mirror.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Mirror;
use crate::Volume;

/// How a mirror stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Its legs, in their order.
    pub legs: Vec<LegStatus>,
    /// Bytes that are copied again after a crash: what is being written, or not known to be
    /// durable on all legs.
    pub dirty_bytes: u64,
    /// Bytes that were copied to legs since it was opened.
    pub resynced_bytes: u64,
    /// Bytes of legs that were written anew since then, as they had another checksum.
    pub repaired_bytes: u64,
    /// Bytes that are copied to a leg in a second at most; 0: none.
    pub resync_rate: u64,
}

/// How a leg stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegStatus {
    /// The volume.
    pub name: String,
    /// It has failed, or was not there: it gets nothing until it answers again.
    pub is_out: bool,
    /// Bytes of which it has not what the mirror holds, in whole regions.
    pub missing_bytes: u64,
}

impl MirrorStatus {
    /// Whether all legs have everything.
    pub fn is_whole(&self) -> bool {
        let has_all = |leg: &LegStatus| !leg.is_out && leg.missing_bytes == 0;
        self.legs.iter().all(has_all)
    }
}

impl LegStatus {
    /// One word for it: `in-sync`, `behind`, `out`.
    pub fn word(&self) -> &'static str {
        match (self.is_out, self.missing_bytes) {
            (true, _) => "out",
            (false, 0) => "in-sync",
            (false, _) => "behind",
        }
    }
}

/// The volumes whose scrub is one of this volume: itself where it has checksums, and the legs of a
/// mirror that have.
pub fn scrubbed(volume: &Arc<dyn Volume>) -> Vec<Arc<dyn Volume>> {
    let legs = volume.as_mirror().map_or_else(Vec::new, Mirror::volumes);
    let all = std::iter::once(volume.clone()).chain(legs);
    all.filter(|volume| volume.scrub().is_some()).collect()
}

impl Mirror {
    /// How it stands now.
    pub fn status(&self) -> MirrorStatus {
        let (record, legs, _) = self.log.now();
        let size_bytes = record.size_bytes;
        let bytes = |regions: u64| (regions * record.region_bytes).min(size_bytes);
        let leg = |(leg, record): (usize, &super::record::LegRecord)| LegStatus {
            name: legs.name(leg).to_owned(),
            is_out: record.is_out,
            missing_bytes: bytes(record.missing.len()),
        };
        MirrorStatus {
            legs: record.legs.iter().enumerate().map(leg).collect(),
            dirty_bytes: bytes(record.dirty.len()),
            resynced_bytes: self.resynced_bytes.load(Ordering::Relaxed),
            repaired_bytes: self.repaired_bytes.load(Ordering::Relaxed),
            resync_rate: self.resync_rate.load(Ordering::Relaxed),
        }
    }

    /// The volumes that are its legs, in their order.
    pub fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.legs().volumes().cloned().collect()
    }

    /// Copies so many bytes to a leg in a second at most from now on; 0: none.
    pub fn set_resync_rate(&self, bytes: u64) {
        self.resync_rate.store(bytes, Ordering::Relaxed);
    }
}
