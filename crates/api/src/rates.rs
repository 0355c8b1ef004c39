//! What differences of figures say.

use serde::{Deserialize, Serialize};

use crate::TimeFigures;

/// What all volumes and exports did together, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureSample {
    /// When this was, since the start of the process.
    pub uptime_ns: u64,
    /// I/Os that succeeded.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// How long some of them took.
    pub times: TimeFigures,
}
