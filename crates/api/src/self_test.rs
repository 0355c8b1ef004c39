//! Whether what is served can be reached, tried by weft's own initiators.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is tried, and as whom: one of `subsystem`, `target` and `export`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SelfTestRequest {
    /// NQN of a subsystem.
    pub subsystem: Option<String>,
    /// A namespace of it. `None`: its first.
    pub nsid: Option<u32>,
    /// Name of an iSCSI target.
    pub target: Option<String>,
    /// A logical unit of it: 0 to 16383. `None`: 0.
    #[schema(maximum = 16383)]
    pub lun: Option<u16>,
    /// Path of an export.
    pub export: Option<String>,
    /// Address of a listener. `None`: the first where it is served.
    #[schema(value_type = Option<String>)]
    pub listener: Option<SocketAddr>,
    /// Host NQN or initiator name. `None`: one that no configuration names.
    pub host: Option<String>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SelfTestOutcome {
    /// A block was read, or a directory.
    Passed,
    /// It is reached, and asks for a secret, which the test does not give.
    Unproven,
    /// The host is not let in.
    Refused,
    /// Something else went wrong.
    Failed,
}

impl SelfTestOutcome {
    /// In a sentence for people.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            SelfTestOutcome::Passed => "Passed: a client gets through.",
            SelfTestOutcome::Unproven => {
                "Not proven: it is reached, and asks for a secret, which this test does not give."
            }
            SelfTestOutcome::Refused => "Refused: this host is not let in.",
            SelfTestOutcome::Failed => "Failed: no client gets through.",
        }
    }
}

/// What a test has come to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SelfTest {
    /// Where it connected.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// The name that it was made by; NFS has none.
    pub host: Option<String>,
    /// How it ended.
    pub outcome: SelfTestOutcome,
    /// What has gone well, in order.
    pub steps: Vec<String>,
    /// Why it went no further.
    pub why: Option<String>,
    /// The lines of configuration that let the host in.
    pub allow: Option<String>,
    /// What such a test cannot show.
    pub unproven: Vec<String>,
}
