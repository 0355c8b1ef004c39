//! What was refused.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ObjectChange;

/// Refusals of one kind of one peer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalSummary {
    /// When it was first refused.
    pub first_unix_s: u64,
    /// When it was last refused.
    pub last_unix_s: u64,
    /// How often.
    pub count: u64,
    /// What was refused: `Connect refused` and so on.
    pub kind: String,
    /// Where it came from.
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// What it calls itself.
    pub host: Option<String>,
    /// What it asked for.
    pub target: Option<String>,
    /// Why it was refused.
    pub reason: String,
    /// The lines of configuration that let it in, where there are any.
    pub allow: Option<String>,
    /// The same as a change of one object, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ObjectChange>,
}

/// What was refused last, the latest at the end.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Refusals {
    /// A bounded number.
    pub refusals: Vec<RefusalSummary>,
}

/// What was refused in the last hour, at a glance.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecentRefusals {
    /// Refusals that differ in their peer or reason.
    pub different: usize,
    /// The one that was repeated most, since it was first refused.
    pub most_frequent: RefusalSummary,
}
