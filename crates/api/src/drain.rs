//! Hosts that go elsewhere before maintenance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Host, PlanLine};

/// Whether hosts are to go elsewhere, and which have gone.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// No host is let in, and no path gives access.
    pub is_drained: bool,
    /// Since when, as the log writes times.
    pub since: Option<String>,
    /// Who has asked for it first.
    pub by: Option<String>,
    /// Of a dry run, what a drain would do to whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Vec<PlanLine>>,
    /// What was done now, a line each.
    pub done: Vec<String>,
    /// Hosts that were connected when it began and are no more, as they were.
    pub gone: Vec<Host>,
    /// Hosts that are connected. Commands of Admin Queues are not in flight: hosts leave some
    /// there for events.
    pub left: Vec<Host>,
}
