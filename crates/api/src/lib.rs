//! What the admin API takes and answers: its JSON as types, for the side that answers, the
//! commands that ask, and whatever else shows an answer.
//!
//! Times are in the unit that ends a name (`_s`, `_ms`, `unix_s`), amounts in bytes where a
//! name ends in `_bytes`. What is `None` is `null` in the answer, or not there.
#![forbid(unsafe_code)]

mod connections;
mod document;
mod drain;
mod events;
mod figures;
mod login;
mod objects;
mod problem;
mod rates;
mod refusals;
mod self_test;
mod status;

pub use connections::{
    ClientReport, ConnectionStatus, ConnectionTls, Connections, Evicted, Finding, Host, Hosts,
    IscsiConnection, IscsiSession, IscsiSessions, NfsClient, NfsClients,
};
pub use document::{
    Audit, AuditRecord, AuditVerified, Changed, ConfigText, Document, DocumentSource, Generation,
    GenerationText, History, HistoryEntry, Holds, PlanLine, RequestKey, Rollback,
};
pub use drain::Drain;
pub use events::{EventLine, EventList};
pub use figures::{
    FigureOp, Figures, HostFigures, NfsFigures, OpFigures, ReactorFigures, StageFigures, StageTime,
    TimeFigures, VolumeFigures,
};
pub use login::{LoginAddress, LoginRequest};
pub use objects::{ConfigObject, ConfigObjects, ObjectChange, ObjectVerb};
pub use problem::{FileProblem, ObjectProblem, ProblemDetails, ServedGeneration};
pub use rates::FigureSample;
pub use refusals::{RefusalSummary, Refusals};
pub use self_test::{SelfTest, SelfTestOutcome, SelfTestRequest};
pub use status::{AdminPlaces, LastChange, Listener, TargetStatus};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What hosts speak.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// NVMe/TCP.
    NvmeTcp,
    /// iSCSI.
    Iscsi,
    /// NFS of all versions.
    Nfs,
}

impl Protocol {
    /// All there are.
    pub const ALL: [Protocol; 3] = [Protocol::NvmeTcp, Protocol::Iscsi, Protocol::Nfs];

    /// As the configuration says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::NvmeTcp => "nvme-tcp",
            Protocol::Iscsi => "iscsi",
            Protocol::Nfs => "nfs",
        }
    }
}
