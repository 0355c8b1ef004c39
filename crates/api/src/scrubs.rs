//! Scrubs of volumes with checksums.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the scrub of a volume stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeScrub {
    /// The volume.
    pub volume: String,
    /// `none`, `running`, `paused`, `stopped` or `done`.
    pub state: String,
    /// Bytes of the volume that it has read, from the first on.
    pub position_bytes: u64,
    /// What the volume has.
    pub size_bytes: u64,
    /// Blocks that it could not read, or that have another checksum than what was written.
    pub bad_blocks: u64,
    /// Of those, what was copied from another leg of a mirror.
    pub repaired_blocks: u64,
    /// The first of those that were not, by their LBA, since the volume was opened.
    pub bad_lbas: Vec<u64>,
    /// Bytes that are read in a second at most; 0: none.
    pub rate: u64,
}

/// Scrubs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct VolumeScrubs {
    /// One for each volume that has checksums.
    pub scrubs: Vec<VolumeScrub>,
}

/// What scrubs do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubVerb {
    /// They begin with the first block.
    Start,
    /// They read nothing until they are resumed.
    Pause,
    /// They go on where they were paused or stopped.
    Resume,
    /// They end where they are.
    Stop,
}

/// What is asked of scrubs: of volumes that have checksums, or of mirrors whose legs have.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubRequest {
    /// What they do.
    pub action: ScrubVerb,
    /// The volumes.
    pub volumes: Vec<String>,
}

/// What scrubs do now.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ScrubsDone {
    /// A line each.
    pub done: Vec<String>,
}
