//! What users, groups and trees have in file systems, and may have.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How one stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaStatus {
    /// The file system.
    pub file_system: String,
    /// `user 1000`, `group 50` or `tree /projects/a`.
    pub subject: String,
    /// Bytes that it has.
    pub used_bytes: u64,
    /// Bytes that it may have for its grace.
    pub soft_bytes: Option<u64>,
    /// Bytes that it may have.
    pub hard_bytes: Option<u64>,
    /// When the grace of bytes ends, if more than the soft limit is there.
    pub bytes_until_unix_s: Option<u64>,
    /// Objects that it has.
    pub used_objects: u64,
    /// Objects that it may have for its grace.
    pub soft_objects: Option<u64>,
    /// Objects that it may have.
    pub hard_objects: Option<u64>,
    /// When the grace of objects ends, likewise.
    pub objects_until_unix_s: Option<u64>,
}

/// How all stand that have something, or limits.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct QuotaList {
    /// By file system, then by subject; 4,096 at most, those with limits before others.
    pub quotas: Vec<QuotaStatus>,
    /// How many more there are.
    pub left_out: u64,
    /// File systems whose objects are not all counted yet.
    #[serde(default)]
    pub counting: Vec<String>,
}
