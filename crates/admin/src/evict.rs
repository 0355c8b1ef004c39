//! Connections, hosts, iSCSI sessions and NFS clients that an administrator ends.

use std::collections::BTreeSet;

use api::Evicted;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use server::{Change, ChangeError, ConnectionInfo, ConnectionRole, Running};

use crate::access::AdminCaller;
use crate::body::Named;
use crate::connections::{Seen, Wanted, client_id, hosts_of, unknown, unknown_connection};
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;
use crate::shown::shown;

/// What can be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictedKind {
    /// One connection of a host.
    Connection,
    /// All that is of a host.
    Host,
    /// An iSCSI session.
    Session,
    /// An NFS client.
    Client,
}

impl EvictedKind {
    const ALL: [EvictedKind; 4] = [
        EvictedKind::Connection,
        EvictedKind::Host,
        EvictedKind::Session,
        EvictedKind::Client,
    ];

    /// As commands say it.
    pub fn name(self) -> &'static str {
        match self {
            EvictedKind::Connection => "connection",
            EvictedKind::Host => "host",
            EvictedKind::Session => "session",
            EvictedKind::Client => "nfs-client",
        }
    }

    pub fn of_name(name: &str) -> Option<EvictedKind> {
        EvictedKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// Ends a connection of a host.
#[utoipa::path(delete, path = "/v1/connections/{id}", operation_id = "evict_connection", params(("id" = String, Path)),
    responses((status = 200, body = Evicted)))]
pub(crate) async fn connection(
    served: Served,
    caller: Extension<AdminCaller>,
    id: Named,
) -> Result<Json<Evicted>, Problem> {
    evict(served, caller, EvictedKind::Connection, id).await
}

/// Ends all that a host has: connections, sessions, NFS state.
#[utoipa::path(delete, path = "/v1/hosts/{name}", operation_id = "evict_host", params(("name" = String, Path)),
    responses((status = 200, body = Evicted)))]
pub(crate) async fn host(
    served: Served,
    caller: Extension<AdminCaller>,
    name: Named,
) -> Result<Json<Evicted>, Problem> {
    evict(served, caller, EvictedKind::Host, name).await
}

/// Ends an iSCSI session.
#[utoipa::path(delete, path = "/v1/iscsi/sessions/{id}", operation_id = "evict_iscsi_session", params(("id" = String, Path)),
    responses((status = 200, body = Evicted)))]
pub(crate) async fn session(
    served: Served,
    caller: Extension<AdminCaller>,
    id: Named,
) -> Result<Json<Evicted>, Problem> {
    evict(served, caller, EvictedKind::Session, id).await
}

/// Ends what an NFS client has.
#[utoipa::path(delete, path = "/v1/nfs/clients/{id}", operation_id = "evict_nfs_client", params(("id" = String, Path)),
    responses((status = 200, body = Evicted)))]
pub(crate) async fn client(
    served: Served,
    caller: Extension<AdminCaller>,
    id: Named,
) -> Result<Json<Evicted>, Problem> {
    evict(served, caller, EvictedKind::Client, id).await
}

async fn evict(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    kind: EvictedKind,
    Named(id): Named,
) -> Result<Json<Evicted>, Problem> {
    off_thread(move || Eviction::find(served.running(), kind, &id)?.end(&served, &caller)).await
}

/// What is to end.
pub(crate) struct Eviction {
    verb: String,
    seen: Seen,
    connections: Vec<ConnectionInfo>,
    clients: BTreeSet<u64>,
    /// A host that has made keys for TLS by authentication, and how many.
    keys_of: Option<(String, usize)>,
}

impl Eviction {
    /// Of all that these NFS clients have.
    pub fn of_clients(running: &Running, clients: BTreeSet<u64>, verb: &str) -> Eviction {
        Eviction {
            verb: verb.to_owned(),
            seen: Seen::of(running),
            connections: Vec::new(),
            clients,
            keys_of: None,
        }
    }

    /// What is known by that name.
    pub fn find(running: &Running, kind: EvictedKind, id: &str) -> Result<Eviction, Problem> {
        let seen = Seen::of(running);
        let asked = id.to_owned();
        let (connections, clients) = match kind {
            EvictedKind::Connection => {
                let is_it = move |info: &ConnectionInfo| info.base.connection.to_string() == asked;
                (running.connections(is_it).list, BTreeSet::new())
            }
            EvictedKind::Session => {
                let is_its = move |info: &ConnectionInfo| match info.role {
                    ConnectionRole::Session { tsih, .. } => tsih.to_string() == asked,
                    _ => false,
                };
                (running.connections(is_its).list, BTreeSet::new())
            }
            EvictedKind::Host => {
                let wanted = Wanted::host(id, &seen);
                let clients = wanted.clients();
                let all = running.connections(move |info| wanted.has(info));
                (all.list, clients)
            }
            EvictedKind::Client => {
                let all = running.nfs_clients();
                let found = all.iter().find(|client| client_id(client.id) == id);
                (
                    Vec::new(),
                    found.map(|client| client.id).into_iter().collect(),
                )
            }
        };
        let keys = match kind {
            EvictedKind::Host => running.generated_keys_of(id),
            _ => 0,
        };
        if connections.is_empty() && clients.is_empty() && keys == 0 {
            return Err(missing(running, kind, id));
        }
        Ok(Eviction {
            verb: format!("evict {} {}", kind.name(), shown(id.as_bytes())),
            seen,
            connections,
            clients,
            keys_of: (keys > 0).then(|| (id.to_owned(), keys)),
        })
    }

    /// Ends it. What has ended, and what keeps it from coming back.
    pub fn end(self, served: &ServedFile, caller: &AdminCaller) -> Result<Evicted, Problem> {
        let running = served.running();
        let (mut done, may_return) = (self.lines(), self.may_return());
        let connections = self.connections.iter().map(|info| info.base.connection);
        let mut changes = vec![Change::EvictConnections(connections.collect())];
        changes.extend(self.clients.iter().map(|&id| Change::EvictClient { id }));
        let host = self.keys_of.iter().map(|(host, _)| host.clone());
        changes.extend(host.map(|host| Change::ForgetGeneratedKeys { host }));
        for change in changes {
            match running.change(change) {
                Ok(()) => {}
                // It has gone by itself meanwhile.
                Err(ChangeError::Unknown(..)) => {}
                Err(error) if error.is_of_one_made() => done.push(error.to_string()),
                Err(error) => {
                    let detail = error.to_string();
                    return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
                }
            }
        }
        for line in &done {
            tracing::info!(event = "evicted", by = caller.name, "evict: {line}");
        }
        if let Err(why) = served.record(&self.verb, (caller.uid, caller.by()), &done) {
            done.push(format!("this is not in the audit: {why}"));
        }
        Ok(Evicted { done, may_return })
    }

    /// What ends, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = BTreeSet::new();
        for info in &self.connections {
            let host = self.seen.host(info).unwrap_or_default();
            let target = info.target.as_deref().unwrap_or_default();
            let (id, peer) = (info.base.connection, info.base.via.peer);
            lines.insert(match info.role {
                ConnectionRole::Queue { cntlid, .. } => {
                    format!("controller {cntlid} of {host} at {target} has ended")
                }
                ConnectionRole::Session { tsih, cid, .. } => format!(
                    "session {tsih} of {host} at {target}: connection {cid} was asked to log out, \
                     and is closed"
                ),
                _ => format!("connection {id} from {peer} is closed"),
            });
        }
        lines.extend(self.keys_of.iter().map(|(host, keys)| {
            format!(
                "keys for TLS that {host} has made by authentication (--concat): {keys} forgotten"
            )
        }));
        lines.extend(self.clients.iter().map(|id| {
            let name = self.seen.client(*id).unwrap_or_default();
            let id = client_id(*id);
            format!("NFS client {id} ({name}) has lost its sessions, opens, locks and delegations")
        }));
        lines.into_iter().collect()
    }

    /// What lets it in again, a line each.
    pub fn may_return(&self) -> Vec<String> {
        let mut lines = BTreeSet::new();
        for info in &self.connections {
            let (Some(host), Some(target)) = (self.seen.host(info), &info.target) else {
                continue;
            };
            let mut subsystems = self.seen.served.subsystems.iter();
            let subsystem = subsystems.find(|subsystem| subsystem.nqn == *target);
            let mut targets = self.seen.served.targets.iter();
            let is_target = targets.any(|known| known.target.name == *target);
            let line = match subsystem {
                Some(subsystem) if subsystem.hosts.is_some() => format!(
                    "take {host} off the hosts of the [[nvme.subsystem]] {target}: `weft rm \
                     subsystem/host {target} {host} --disconnect`"
                ),
                Some(_) => format!(
                    "`allow_any_host` lets any host in: list `hosts` of the [[nvme.subsystem]] \
                     {target} in its place"
                ),
                None if is_target => format!(
                    "take {host} off `initiators` of the [[iscsi.target]] {target}, or list them \
                     in place of `allow_any_initiator`"
                ),
                None => continue,
            };
            lines.insert(line);
        }
        if !self.clients.is_empty() {
            let line = "take its address, or the name of its certificate, off `clients` of the [[export]]s that it uses, or list \
                        them in place of `allow_any_client`";
            lines.insert(line.to_owned());
        }
        lines.into_iter().collect()
    }
}

/// It is not there, or not any more; what is.
fn missing(running: &Running, kind: EvictedKind, id: &str) -> Problem {
    match kind {
        EvictedKind::Connection => unknown_connection(running, id),
        EvictedKind::Host => {
            let all = hosts_of(running, &running.connections(|_| true));
            unknown("host", id, all.into_iter().map(|host| host.name).collect())
        }
        EvictedKind::Session => {
            let all = running.sessions();
            let ids = all.iter().map(|session| session.tsih.to_string());
            unknown("iSCSI session", id, ids.collect())
        }
        EvictedKind::Client => {
            let all = running.nfs_clients();
            let ids = all.iter().map(|client| client_id(client.id));
            unknown("NFS client", id, ids.collect())
        }
    }
}
