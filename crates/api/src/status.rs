//! What is asked for first about a target.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Document, Protocol, RecentRefusals};

/// A target that runs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TargetStatus {
    /// Of weft.
    pub version: String,
    /// The number of the process.
    pub pid: u32,
    /// How long it has run.
    pub uptime_s: u64,
    /// The configuration that is served.
    pub document: Document,
    /// Since when, as the log writes times.
    pub served_since: String,
    /// The last change that was asked for.
    pub last_change: Option<LastChange>,
    /// What drives the sockets and files: `io_uring` or `epoll`, and why.
    pub driver: String,
    /// Since when no host is let in and no path gives access, and who has asked for it.
    pub drained: Option<String>,
    /// What the configuration names and is not served, with the reason.
    pub not_served: Vec<String>,
    /// What of the configuration holds from the next start on.
    pub at_restart: Vec<String>,
    /// What of it will not do as it is, with the remedy.
    pub warnings: Vec<String>,
    /// Where hosts connect.
    pub listeners: Vec<Listener>,
    /// Where the admin API is asked.
    pub admin: AdminPlaces,
    /// How many volumes are served.
    pub volumes: usize,
    /// How many NVMe subsystems.
    pub subsystems: usize,
    /// How many iSCSI targets.
    pub targets: usize,
    /// How many file systems.
    pub file_systems: usize,
    /// How many NFS exports.
    pub exports: usize,
    /// Exports over NBD.
    pub nbd_exports: usize,
    /// How many connections of hosts there are.
    pub connections: u64,
    /// The memory of buffers that is in use.
    pub memory_bytes: u64,
    /// The most that it may be.
    pub memory_max_bytes: u64,
    /// What was refused in the last hour.
    #[serde(default)]
    pub refused: Option<RecentRefusals>,
    /// What has been done since the start, by name; `null`: this build does not count it.
    pub counters: BTreeMap<String, Option<u64>>,
}

/// How a change went.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LastChange {
    /// What was asked for, and by which user.
    pub what: String,
    /// When, as the log writes times.
    pub time: String,
    /// What came of it.
    pub outcome: String,
}

/// An address that hosts connect to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Listener {
    /// Address and port.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Hosts come by RDMA.
    #[serde(default)]
    pub rdma: bool,
    /// They do not come without.
    #[serde(default)]
    pub rdma_only: bool,
}

impl Listener {
    /// What is spoken there, and what carries that.
    #[must_use]
    pub fn speaks(&self) -> String {
        self.protocol.name_over(!self.rdma_only, self.rdma)
    }
}

/// Where the admin API is asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AdminPlaces {
    /// The path of the Unix socket.
    pub socket: Option<String>,
    /// The TCP address.
    #[schema(value_type = Option<String>)]
    pub address: Option<SocketAddr>,
    /// By what that is asked: `https://` where it speaks TLS.
    #[serde(default)]
    pub url: Option<String>,
}
