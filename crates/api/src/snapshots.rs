//! Snapshots of volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// The volume.
    pub volume: String,
    /// No other snapshot of the volume has it.
    pub name: String,
    /// When it was made, milliseconds since 1970.
    pub taken_unix_ms: u64,
    /// What the volume had then.
    pub size_bytes: u64,
    /// What it shares with nothing, and what goes when it is removed; `null` where the file
    /// system does not tell.
    pub unique_bytes: Option<u64>,
    /// Why nothing can be made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// A snapshot of which a part was received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotPart {
    /// The volume.
    pub volume: String,
    /// What it is called when it is whole.
    pub name: String,
    /// What the volume had that it is of.
    pub size_bytes: u64,
    /// All before this byte was received: a stream from there on brings the rest.
    pub received_bytes: u64,
}

/// A range in which a snapshot may hold what another does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotChange {
    /// Its first byte.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Whether it holds zeros, and takes no space.
    pub zeros: bool,
}

/// Some of the ranges in which a snapshot may hold what another does not.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SnapshotChanges {
    /// What the volume had.
    pub size_bytes: u64,
    /// In order; no two overlap.
    pub changes: Vec<SnapshotChange>,
    /// There may be more from this byte on: ask with `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Snapshots.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Snapshots {
    /// By volume, of each the oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Those of which a part was received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SnapshotPart>,
    /// Volumes whose snapshots cannot be listed, and why, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Snapshots that are asked for: one of each volume, all of one instant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// How each is called.
    pub name: String,
    /// The volumes.
    pub volumes: Vec<String>,
}

/// Another name for a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotName {
    /// No other snapshot of the volume has it.
    pub name: String,
}

/// Volumes that are to hold what they held when their snapshots of a name were made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRollback {
    /// How each of the snapshots is called.
    pub name: String,
    /// The volumes.
    pub volumes: Vec<String>,
    /// Hosts that are connected may lose the volumes meanwhile.
    #[serde(default)]
    pub disconnect: bool,
}

/// A volume that is to be made of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotClone {
    /// The volume that the snapshot is of.
    pub volume: String,
    /// The snapshot.
    pub name: String,
    /// How the new volume is called.
    pub to: String,
    /// Its file; `null`: beside that of the volume, with the name of the new one.
    #[serde(default)]
    pub path: Option<String>,
}

/// What was done with snapshots.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SnapshotsDone {
    /// A line each.
    pub done: Vec<String>,
}
