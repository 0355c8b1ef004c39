//! Hosts and clients that are connected.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Protocol, RefusalSummary};

/// A connection of a host.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConnectionStatus {
    /// By which it is asked for and evicted.
    pub id: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// It is carried by RDMA.
    #[serde(default)]
    pub rdma: bool,
    /// Where it comes from.
    #[schema(value_type = String)]
    pub peer: SocketAddr,
    /// Our end.
    #[schema(value_type = String)]
    pub local: SocketAddr,
    /// The listener that it came in by, if that is still there.
    #[schema(value_type = Option<String>)]
    pub listener: Option<SocketAddr>,
    /// Host NQN, initiator name, or what an NFS client has proved to be, else its owner, as far as
    /// it has said it.
    pub host: Option<String>,
    /// Subsystem or target.
    pub target: Option<String>,
    /// `handshake`, `login`, `discovery`, `connected`, `full feature` or `closing`.
    pub state: String,
    /// The number of its reactor.
    pub reactor: u32,
    /// How long it is there.
    pub age_ms: u64,
    /// How long nothing was received.
    pub idle_ms: u64,
    /// I/Os that were done.
    pub ios: u64,
    /// Their bytes.
    pub io_bytes: u64,
    /// Commands that are being done.
    pub in_flight: usize,
    /// Memory of buffers that it has.
    pub held_bytes: u64,
    /// It waits for memory.
    pub waits_for_memory: bool,
    /// Headers have digests.
    pub header_digest: bool,
    /// Data has digests.
    pub data_digest: bool,
    /// How it is encrypted, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ConnectionTls>,
    /// NVMe: the host has authenticated by DH-HMAC-CHAP on this queue.
    #[serde(default)]
    pub authenticated: bool,
    /// NVMe: the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntlid: Option<u16>,
    /// NVMe: the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qid: Option<u16>,
    /// NVMe: commands that the queue takes at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<usize>,
    /// iSCSI: the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsih: Option<u16>,
    /// iSCSI: the connection's number in its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cid: Option<u16>,
    /// NFS: the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// How a connection is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionTls {
    /// The cipher suite, as TLS calls it.
    pub cipher: String,
    /// NVMe: the version of the identity of the pre-shared key, 0 or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psk_version: Option<u8>,
    /// NVMe: the hash of that key, SHA-256 or SHA-384.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psk_hash: Option<String>,
    /// NVMe: DH-HMAC-CHAP has made that key.
    #[serde(default)]
    pub psk_is_generated: bool,
    /// NVMe: the host derives that key as libnvme up to 1.13 does.
    #[serde(default)]
    pub psk_derivation_is_old: bool,
}

/// Connections that were asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Connections {
    /// A bounded number.
    pub connections: Vec<ConnectionStatus>,
    /// There are more than one answer has.
    pub has_more: bool,
    /// Reactors that did not answer: what they serve is not in the list.
    pub silent_reactors: usize,
}

/// What is known of one host.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// What it calls itself, or its address.
    pub name: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// What `/v1/figures` calls it: one of NFS by its address, or by the subnet of that.
    pub in_figures: String,
    /// Where it comes from.
    #[schema(value_type = BTreeSet<String>)]
    pub addresses: BTreeSet<IpAddr>,
    /// Subsystems and targets that it uses.
    pub targets: BTreeSet<String>,
    /// How many connections it has.
    pub connections: usize,
    /// How many of them are encrypted.
    #[serde(default)]
    pub tls_connections: usize,
    /// How many of them are carried by RDMA.
    #[serde(default)]
    pub rdma_connections: usize,
    /// NVMe: its controllers, each of a subsystem.
    #[schema(value_type = BTreeSet<Vec<Value>>)]
    pub controllers: BTreeSet<(String, u16)>,
    /// iSCSI: its sessions.
    pub sessions: BTreeSet<u16>,
    /// Addresses of ours that it came in by.
    #[schema(value_type = BTreeSet<String>)]
    pub paths: BTreeSet<SocketAddr>,
    /// I/Os that were done on its connections.
    pub ios: u64,
    /// Their bytes.
    pub io_bytes: u64,
    /// Commands that are being done.
    pub in_flight: usize,
    /// Memory of buffers that it has.
    pub held_bytes: u64,
    /// Volumes that it holds a reservation of.
    pub reservations: BTreeSet<String>,
}

impl Host {
    /// One of which nothing else is known.
    #[must_use]
    pub fn new(name: &str, protocol: Protocol) -> Host {
        Host {
            name: name.to_owned(),
            protocol,
            in_figures: name.to_owned(),
            addresses: BTreeSet::new(),
            targets: BTreeSet::new(),
            connections: 0,
            tls_connections: 0,
            rdma_connections: 0,
            controllers: BTreeSet::new(),
            sessions: BTreeSet::new(),
            paths: BTreeSet::new(),
            ios: 0,
            io_bytes: 0,
            in_flight: 0,
            held_bytes: 0,
            reservations: BTreeSet::new(),
        }
    }

    /// What it speaks, and what carries that.
    #[must_use]
    pub fn speaks(&self) -> String {
        let by_tcp = self.rdma_connections < self.connections;
        self.protocol.name_over(by_tcp, self.rdma_connections > 0)
    }
}

/// All that have connections or reservations, by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Hosts {
    /// A line each.
    pub hosts: Vec<Host>,
    /// There are more connections than were looked at.
    pub has_more: bool,
    /// Reactors that did not answer: what they serve is not in the list.
    pub silent_reactors: usize,
}

/// An iSCSI session, with what was negotiated (RFC 7143, section 13).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct IscsiSession {
    /// By which it is asked for and evicted: its TSIH.
    pub id: String,
    /// The same as a number.
    pub tsih: u16,
    /// The initiator's part of the name, in hex.
    pub isid: String,
    /// The initiator's name.
    pub initiator: String,
    /// InitiatorAlias.
    pub alias: Option<String>,
    /// The target's name; `None` for discovery.
    pub target: Option<String>,
    /// The portal group that it came in by.
    pub portal_group_tag: u16,
    /// It is a discovery session.
    pub is_discovery: bool,
    /// It is about to end.
    pub is_closing: bool,
    /// Its connections.
    pub connections: Vec<IscsiConnection>,
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxBurstLength, bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength, bytes.
    pub first_burst_length: u32,
    /// MaxRecvDataSegmentLength of the target, bytes.
    pub max_recv_data_segment_length: u32,
    /// MaxRecvDataSegmentLength of the initiator, bytes.
    pub max_send_data_segment_length: u32,
    /// MaxConnections.
    pub max_connections: u16,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u8,
}

/// A connection of an iSCSI session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct IscsiConnection {
    /// Its number in the session.
    pub cid: u16,
    /// Where it comes from.
    #[schema(value_type = String)]
    pub peer: SocketAddr,
    /// Our end.
    #[schema(value_type = String)]
    pub local: SocketAddr,
}

/// iSCSI sessions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct IscsiSessions {
    /// Those that there are.
    pub sessions: Vec<IscsiSession>,
}

/// An NFS client with a lease (RFC 8881, section 2.4; RFC 7530, section 9.1), or a host of
/// version 3 that has locks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NfsClient {
    /// By which it is asked for and evicted: its `clientid` in hex, or what stands for it.
    pub id: String,
    /// Its owner string, which any client may claim that has proved nothing.
    pub name: String,
    /// What it has proved to be: a name in its certificate, or its principal of Kerberos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Where it comes from.
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// 3, 4.0, 4.1 or 4.2.
    pub version: String,
    /// What it says of its implementation.
    pub implementation: String,
    /// `confirmed`, or `courtesy` when its lease has run out and nothing else needs what it has.
    pub status: String,
    /// How long nothing was heard of it.
    pub silent_ms: u64,
    /// How long it may be silent; 0 of version 3, which says nothing to keep its locks.
    pub lease_ms: u64,
    /// `up` or `down`; `None`: it takes no callbacks.
    pub callback_path: Option<String>,
    /// How many sessions it has.
    pub sessions: usize,
    /// Slots of them that are in use.
    pub slots_used: usize,
    /// All their slots.
    pub slots: usize,
    /// Files that it has open.
    pub opens: usize,
    /// Lock states.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
}

/// NFS clients.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NfsClients {
    /// Those that have a lease, or locks of version 3.
    pub clients: Vec<NfsClient>,
}

/// What was ended.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Evicted {
    /// A line each.
    pub done: Vec<String>,
    /// What lets it in again, a line each.
    pub may_return: Vec<String>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// What.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// What is known of one client.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClientReport {
    /// The hosts that go by the name or address.
    pub hosts: Vec<Host>,
    /// The NFS clients that do, by their `clientid`.
    pub nfs_clients: Vec<String>,
    /// What was refused to them.
    pub refusals: Vec<RefusalSummary>,
    /// What makes them slow, or is about to end.
    pub findings: Vec<Finding>,
}
