//! What has happened.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Events, the latest at the end.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The process that they are of.
    pub boot: String,
    /// The number of the last.
    pub last: u64,
    /// Each with `event`, `text` and, but for those of the list itself, `id`, `time`, `level` and
    /// `details`.
    #[schema(value_type = Vec<HashMap<String, Value>>)]
    pub events: Vec<Value>,
}

/// An event, as a line of a table has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventLine {
    /// From 1 on, of this process.
    pub id: u64,
    /// As the log writes times.
    pub time: String,
    /// How grave it is, as the log says it.
    pub level: String,
    /// What kind it is.
    pub event: String,
    /// The line of the log.
    pub text: String,
    /// The other fields of that.
    pub details: String,
}
