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
mod quotas;
mod rates;
mod refusals;
mod scrubs;
mod self_test;
mod snapshots;
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
pub use quotas::{QuotaList, QuotaStatus};
pub use rates::FigureSample;
pub use refusals::{RecentRefusals, RefusalSummary, Refusals};
pub use scrubs::{ScrubRequest, ScrubVerb, ScrubsDone, VolumeScrub, VolumeScrubs};
pub use self_test::{SelfTest, SelfTestOutcome, SelfTestRequest};
pub use snapshots::{
    Snapshot, SnapshotChange, SnapshotChanges, SnapshotClone, SnapshotName, SnapshotPart,
    SnapshotRequest, SnapshotRollback, Snapshots, SnapshotsDone,
};
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
    /// NBD.
    Nbd,
}

impl Protocol {
    /// All there are.
    pub const ALL: [Protocol; 4] = [
        Protocol::NvmeTcp,
        Protocol::Iscsi,
        Protocol::Nfs,
        Protocol::Nbd,
    ];

    /// As the configuration says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        AskedProtocol::of(self, false).name()
    }

    /// The same with what carries it: TCP, RDMA or both.
    #[must_use]
    pub fn name_over(self, tcp: bool, rdma: bool) -> String {
        let by_rdma = AskedProtocol::of(self, true).name();
        match (tcp, rdma) {
            (_, false) => self.name().to_owned(),
            (false, true) => by_rdma.to_owned(),
            (true, true) => format!("{}, {by_rdma}", self.name()),
        }
    }
}

/// Which connections are asked for: of a protocol, or of what carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AskedProtocol {
    /// NVMe/TCP.
    NvmeTcp,
    /// NVMe/RDMA.
    NvmeRdma,
    /// iSCSI, by TCP or RDMA.
    Iscsi,
    /// iSCSI by RDMA alone.
    Iser,
    /// NFS of all versions.
    Nfs,
    /// NFS by RDMA alone.
    NfsRdma,
    /// NBD.
    Nbd,
}

impl AskedProtocol {
    /// All there are.
    pub const ALL: [AskedProtocol; 7] = [
        AskedProtocol::NvmeTcp,
        AskedProtocol::NvmeRdma,
        AskedProtocol::Iscsi,
        AskedProtocol::Iser,
        AskedProtocol::Nfs,
        AskedProtocol::NfsRdma,
        AskedProtocol::Nbd,
    ];

    /// As it is asked for, and shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AskedProtocol::NvmeTcp => "nvme-tcp",
            AskedProtocol::NvmeRdma => "nvme-rdma",
            AskedProtocol::Iscsi => "iscsi",
            AskedProtocol::Iser => "iser",
            AskedProtocol::Nfs => "nfs",
            AskedProtocol::NfsRdma => "nfs-rdma",
            AskedProtocol::Nbd => "nbd",
        }
    }

    /// The one of a connection that says most of it.
    #[must_use]
    pub fn of(protocol: Protocol, is_rdma: bool) -> AskedProtocol {
        match (protocol, is_rdma) {
            (Protocol::NvmeTcp, false) => AskedProtocol::NvmeTcp,
            (Protocol::NvmeTcp, true) => AskedProtocol::NvmeRdma,
            (Protocol::Iscsi, false) => AskedProtocol::Iscsi,
            (Protocol::Iscsi, true) => AskedProtocol::Iser,
            (Protocol::Nfs, false) => AskedProtocol::Nfs,
            (Protocol::Nfs, true) => AskedProtocol::NfsRdma,
            (Protocol::Nbd, _) => AskedProtocol::Nbd,
        }
    }

    /// Whether a connection that is shown as `shown` is one of those that are asked for.
    #[must_use]
    pub fn has(self, shown: AskedProtocol) -> bool {
        use AskedProtocol::{Iscsi, Iser, Nfs, NfsRdma};
        self == shown || matches!((self, shown), (Iscsi, Iser) | (Nfs, NfsRdma))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_by_rdma_have_a_word_of_their_own_and_are_those_of_iscsi_and_nfs() {
        let asked = |protocol, is_rdma| {
            let shown = AskedProtocol::of(protocol, is_rdma);
            let all = AskedProtocol::ALL.into_iter();
            let all = all.filter(|asked| asked.has(shown));
            all.map(AskedProtocol::name).collect::<Vec<_>>()
        };
        assert_eq!(asked(Protocol::NvmeTcp, false), ["nvme-tcp"]);
        assert_eq!(asked(Protocol::NvmeTcp, true), ["nvme-rdma"]);
        assert_eq!(asked(Protocol::Iscsi, false), ["iscsi"]);
        assert_eq!(asked(Protocol::Iscsi, true), ["iscsi", "iser"]);
        assert_eq!(asked(Protocol::Nfs, false), ["nfs"]);
        assert_eq!(asked(Protocol::Nfs, true), ["nfs", "nfs-rdma"]);
    }
}
