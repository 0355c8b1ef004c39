//! Who is connected: connections, hosts, iSCSI sessions and NFS clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::{
    AskedProtocol, ConnectionStatus, ConnectionTls, Connections, Host, Hosts, IscsiConnection,
    IscsiSession, IscsiSessions, NfsClient, NfsClients,
};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use server::nfs::ClientInfo;
use server::{ConnectionInfo, ConnectionRole, Listed, Protocol, Running, TlsInfo};
use store::reservation::Registrant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::Named;
use crate::doctor;
use crate::evict;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::{ServedFile, protocol_of};
use crate::shown::shown;

pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    OpenApiRouter::new()
        .routes(routes!(connections))
        .routes(routes!(connection, evict::connection))
        .routes(routes!(doctor::client))
        .routes(routes!(hosts))
        .routes(routes!(host, evict::host))
        .routes(routes!(sessions))
        .routes(routes!(session, evict::session))
        .routes(routes!(clients))
        .routes(routes!(client, evict::client))
}

/// Which connections are asked for.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ConnectionQuery {
    /// What they speak.
    #[param(value_type = Option<AskedProtocol>, inline)]
    protocol: Option<String>,
    /// The name or address of the host.
    host: Option<String>,
    /// A volume that they may use.
    volume: Option<String>,
}

/// Connections of hosts.
#[utoipa::path(get, path = "/v1/connections", operation_id = "list_connections", params(ConnectionQuery),
    responses((status = 200, body = Connections), (status = 404)))]
async fn connections(
    State(served): Served,
    query: Result<Query<ConnectionQuery>, QueryRejection>,
) -> Result<Json<Connections>, Problem> {
    let query = query.map_err(|why| {
        let detail = format!(
            "{}: ask with protocol, host and volume alone",
            why.body_text()
        );
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    off_thread(move || {
        let seen = Seen::of(served.running());
        let wanted = Wanted::of(&query, &seen)?;
        Ok::<_, Problem>(wanted.connections(served.running(), &seen))
    })
    .await
}

/// One connection of a host.
#[utoipa::path(get, path = "/v1/connections/{id}", operation_id = "get_connection", params(("id" = String, Path)),
    responses((status = 200, body = ConnectionStatus)))]
async fn connection(
    State(served): Served,
    Named(id): Named,
) -> Result<Json<ConnectionStatus>, Problem> {
    off_thread(move || {
        let asked = id.clone();
        let is_it = move |info: &ConnectionInfo| info.base.connection.to_string() == asked;
        let listed = served.running().connections(is_it);
        let seen = Seen::of(served.running());
        let found = listed.list.first().map(|info| seen.connection(info));
        found.ok_or_else(|| unknown_connection(served.running(), &id))
    })
    .await
}

/// Hosts that have connections or reservations.
#[utoipa::path(get, path = "/v1/hosts", operation_id = "list_hosts",
    responses((status = 200, body = Hosts)))]
async fn hosts(State(served): Served) -> Result<Json<Hosts>, Problem> {
    off_thread(move || Ok::<_, Problem>(all_hosts(served.running()))).await
}

/// One host, by its name or address.
#[utoipa::path(get, path = "/v1/hosts/{name}", operation_id = "get_host", params(("name" = String, Path)),
    responses((status = 200, body = Host)))]
async fn host(State(served): Served, Named(name): Named) -> Result<Json<Host>, Problem> {
    off_thread(move || {
        let listed = served.running().connections(|_| true);
        let all = hosts_of(served.running(), &listed);
        let found = all.iter().find(|host| is_called(host, &name)).cloned();
        let names = || all.iter().map(|host| host.name.clone()).collect();
        found.ok_or_else(|| unknown("host", &name, names()))
    })
    .await
}

/// iSCSI sessions.
#[utoipa::path(get, path = "/v1/iscsi/sessions", operation_id = "list_iscsi_sessions",
    responses((status = 200, body = IscsiSessions)))]
async fn sessions(State(served): Served) -> Result<Json<IscsiSessions>, Problem> {
    off_thread(move || Ok::<_, Problem>(all_sessions(served.running()))).await
}

/// One iSCSI session, by its TSIH.
#[utoipa::path(get, path = "/v1/iscsi/sessions/{id}", operation_id = "get_iscsi_session", params(("id" = String, Path)),
    responses((status = 200, body = IscsiSession)))]
async fn session(State(served): Served, Named(id): Named) -> Result<Json<IscsiSession>, Problem> {
    off_thread(move || {
        let all = served.running().sessions();
        let found = all.iter().find(|session| session.tsih.to_string() == id);
        let ids = || all.iter().map(|session| session.tsih.to_string()).collect();
        found
            .map(session_of)
            .ok_or_else(|| unknown("iSCSI session", &id, ids()))
    })
    .await
}

/// NFS clients that have a lease, and hosts of version 3 that have locks.
#[utoipa::path(get, path = "/v1/nfs/clients", operation_id = "list_nfs_clients",
    responses((status = 200, body = NfsClients)))]
async fn clients(State(served): Served) -> Result<Json<NfsClients>, Problem> {
    off_thread(move || Ok::<_, Problem>(all_clients(served.running()))).await
}

/// One NFS client, by its `clientid`.
#[utoipa::path(get, path = "/v1/nfs/clients/{id}", operation_id = "get_nfs_client", params(("id" = String, Path)),
    responses((status = 200, body = NfsClient)))]
async fn client(State(served): Served, Named(id): Named) -> Result<Json<NfsClient>, Problem> {
    off_thread(move || {
        let all = served.running().nfs_clients();
        let found = all.iter().find(|client| client_id(client.id) == id);
        let ids = || all.iter().map(|client| client_id(client.id)).collect();
        found
            .map(client_of)
            .ok_or_else(|| unknown("NFS client", &id, ids()))
    })
    .await
}

/// Every connection.
pub(crate) fn all_connections(running: &Running) -> Connections {
    Wanted::default().connections(running, &Seen::of(running))
}

/// Every host.
pub(crate) fn all_hosts(running: &Running) -> Hosts {
    let listed = running.connections(|_| true);
    Hosts {
        hosts: hosts_of(running, &listed),
        has_more: listed.has_more,
        silent_reactors: listed.silent,
    }
}

/// Every iSCSI session.
pub(crate) fn all_sessions(running: &Running) -> IscsiSessions {
    let sessions = running.sessions().iter().map(session_of).collect();
    IscsiSessions { sessions }
}

/// Every NFS client.
pub(crate) fn all_clients(running: &Running) -> NfsClients {
    let clients = running.nfs_clients().iter().map(client_of).collect();
    NfsClients { clients }
}

/// Names that an error tells at most.
const NAMES_TOLD_MAX: usize = 16;

/// What is asked for is not there, or not any more; what is.
pub(crate) fn unknown(kind: &str, name: &str, mut there: Vec<String>) -> Problem {
    there.sort();
    let left_out = there.len().saturating_sub(NAMES_TOLD_MAX);
    there.truncate(NAMES_TOLD_MAX);
    let there = match (there.is_empty(), left_out) {
        (true, _) => "there is none".to_owned(),
        (false, 0) => format!("there are {}", there.join(", ")),
        (false, more) => format!("there are {} and {more} more", there.join(", ")),
    };
    let detail = format!(
        "there is no {kind} {}, or not any more: {there}",
        shown(name.as_bytes())
    );
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(crate) fn unknown_connection(running: &Running, id: &str) -> Problem {
    let all = running.connections(|_| true).list;
    let ids = all.iter().map(|info| info.base.connection.to_string());
    unknown("connection", id, ids.collect())
}

/// The name of a client: its `clientid`.
pub(crate) fn client_id(id: u64) -> String {
    format!("{id:#x}")
}

/// What names what connections say by number.
pub(crate) struct Seen {
    pub served: server::Served,
    /// By their ids, their names and where they come from.
    clients: BTreeMap<u64, (String, Option<IpAddr>)>,
}

impl Seen {
    pub fn of(running: &Running) -> Seen {
        let clients = running.nfs_clients().into_iter();
        Seen {
            served: running.served(),
            clients: clients
                .map(|c| (c.id, (host_name(&c), c.address)))
                .collect(),
        }
    }

    fn connection(&self, info: &ConnectionInfo) -> ConnectionStatus {
        let base = &info.base;
        let mut connection = ConnectionStatus {
            id: base.connection.to_string(),
            protocol: protocol_of(info.protocol),
            rdma: info.is_rdma,
            peer: canonical(base.via.peer),
            local: base.via.local,
            listener: self.listener(base.via.listener),
            host: self.host(info),
            target: info.target.as_ref().map(|name| shown(name.as_bytes())),
            state: state(info).to_owned(),
            reactor: base.connection.shard,
            age_ms: base.age_ms,
            idle_ms: base.idle_ms,
            ios: base.ios,
            io_bytes: base.io_bytes,
            in_flight: info.in_flight,
            held_bytes: base.held_bytes,
            waits_for_memory: base.is_short,
            header_digest: info.header_digest,
            data_digest: info.data_digest,
            tls: base.tls.map(tls_of),
            authenticated: false,
            cntlid: None,
            qid: None,
            entries: None,
            tsih: None,
            cid: None,
            client: None,
        };
        match info.role {
            ConnectionRole::Stranger | ConnectionRole::Nfs(None) | ConnectionRole::Nbd => {}
            ConnectionRole::Queue {
                cntlid,
                qid,
                entries,
                is_authenticated,
            } => {
                connection.authenticated = is_authenticated;
                connection.cntlid = Some(cntlid);
                connection.qid = Some(qid);
                connection.entries = Some(entries);
            }
            ConnectionRole::Session { tsih, cid, .. } => {
                connection.tsih = Some(tsih);
                connection.cid = Some(cid);
            }
            ConnectionRole::Nfs(Some(id)) => connection.client = Some(client_id(id)),
        }
        connection
    }

    /// The name of an NFS client.
    pub fn client(&self, id: u64) -> Option<&str> {
        self.clients.get(&id).map(|(name, _)| name.as_str())
    }

    fn listener(&self, number: u16) -> Option<SocketAddr> {
        let mut all = self.served.listeners.iter();
        all.find(|(own, _)| *own == number)
            .map(|(_, spec)| spec.address)
    }

    /// The name of its host, as far as it has said it.
    pub fn host(&self, info: &ConnectionInfo) -> Option<String> {
        match info.role {
            ConnectionRole::Nfs(id) => self.client(id?).map(str::to_owned),
            _ => info.host.as_ref().map(|name| shown(name.as_bytes())),
        }
    }
}

/// How a connection is encrypted.
fn tls_of(tls: TlsInfo) -> ConnectionTls {
    ConnectionTls {
        cipher: tls.cipher.to_owned(),
        psk_version: tls.psk.map(|psk| psk.version),
        psk_hash: tls.psk.map(|psk| psk.hash.to_owned()),
        psk_is_generated: tls.psk.is_some_and(|psk| psk.is_generated),
        psk_derivation_is_old: tls.psk.is_some_and(|psk| psk.is_old),
    }
}

fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

fn state(info: &ConnectionInfo) -> &'static str {
    match (info.role, info.protocol) {
        _ if info.base.is_closing => "closing",
        (ConnectionRole::Stranger, Protocol::Iscsi) => "login",
        (ConnectionRole::Stranger, _) => "handshake",
        (
            ConnectionRole::Session {
                is_discovery: true, ..
            },
            _,
        ) => "discovery",
        (ConnectionRole::Session { .. }, _) => "full feature",
        _ => "connected",
    }
}

/// A host by its name or address, and NFS clients that go by either.
struct WantedHost {
    name: String,
    address: Option<IpAddr>,
    clients: BTreeSet<u64>,
}

/// Which connections are asked for, in terms of what they say.
#[derive(Default)]
pub(crate) struct Wanted {
    protocol: Option<AskedProtocol>,
    host: Option<WantedHost>,
    /// Subsystems and targets that a volume is behind.
    targets: Option<BTreeSet<String>>,
}

impl WantedHost {
    fn of(name: &str, seen: &Seen) -> WantedHost {
        let address = name.parse().ok();
        let is_it = |(owner, from): &(String, Option<IpAddr>)| {
            owner == name || address.is_some() && *from == address
        };
        let clients = seen.clients.iter().filter(|(_, client)| is_it(client));
        WantedHost {
            name: name.to_owned(),
            address,
            clients: clients.map(|(id, _)| *id).collect(),
        }
    }
}

impl Wanted {
    /// Those of a host.
    pub fn host(name: &str, seen: &Seen) -> Wanted {
        Wanted {
            host: Some(WantedHost::of(name, seen)),
            ..Wanted::default()
        }
    }

    /// NFS clients that go by the name or address of the host.
    pub fn clients(&self) -> BTreeSet<u64> {
        self.host
            .iter()
            .flat_map(|host| host.clients.clone())
            .collect()
    }

    fn of(query: &ConnectionQuery, seen: &Seen) -> Result<Wanted, Problem> {
        let protocol = query.protocol.as_ref().map(|name| {
            let mut all = AskedProtocol::ALL.into_iter();
            all.find(|one| one.name() == name).ok_or_else(|| {
                let names = AskedProtocol::ALL.map(AskedProtocol::name).join(", ");
                let detail = format!("there is no protocol {name:?}: it is one of {names}");
                Problem::new(StatusCode::BAD_REQUEST, detail)
            })
        });
        let host = query.host.as_ref().map(|name| WantedHost::of(name, seen));
        let targets = query.volume.as_ref().map(|name| {
            let volumes = &seen.served.volumes;
            match volumes.iter().any(|(own, _)| own == name) {
                true => Ok(targets_of(&seen.served, name)),
                false => {
                    let names = volumes.iter().map(|(own, _)| own.clone()).collect();
                    Err(unknown("volume", name, names))
                }
            }
        });
        Ok(Wanted {
            protocol: protocol.transpose()?,
            host,
            targets: targets.transpose()?,
        })
    }

    /// Those connections.
    fn connections(self, running: &Running, seen: &Seen) -> Connections {
        let mut listed = running.connections(move |info| self.has(info));
        listed.list.sort_by_key(|info| {
            let connection = info.base.connection;
            (connection.shard, connection.id.index)
        });
        let list = listed.list.iter().map(|info| seen.connection(info));
        Connections {
            connections: list.collect(),
            has_more: listed.has_more,
            silent_reactors: listed.silent,
        }
    }

    pub fn has(&self, info: &ConnectionInfo) -> bool {
        let is_host = |host: &WantedHost| {
            let client = match info.role {
                ConnectionRole::Nfs(id) => id,
                _ => None,
            };
            info.host
                .as_ref()
                .is_some_and(|own| own.eq_ignore_ascii_case(&host.name))
                || host.address == Some(info.base.via.peer.ip().to_canonical())
                || client.is_some_and(|id| host.clients.contains(&id))
        };
        let is_target = |targets: &BTreeSet<String>| {
            let own = info.target.as_ref();
            own.is_some_and(|own| targets.contains(own))
        };
        let shown = AskedProtocol::of(protocol_of(info.protocol), info.is_rdma);
        self.protocol.is_none_or(|asked| asked.has(shown))
            && self.host.as_ref().is_none_or(is_host)
            && self.targets.as_ref().is_none_or(is_target)
    }
}

/// The subsystems and targets that a volume is behind.
pub(crate) fn targets_of(served: &server::Served, volume: &str) -> BTreeSet<String> {
    let subsystems = served.subsystems.iter().filter(|subsystem| {
        let mut namespaces = subsystem.namespaces.iter();
        namespaces.any(|namespace| namespace.volume == volume)
    });
    let targets = served.targets.iter().filter(|target| {
        let mut luns = target.luns.iter();
        luns.any(|lun| lun.volume == volume)
    });
    let subsystems = subsystems.map(|subsystem| subsystem.nqn.clone());
    let exports = served.nbd_exports.iter();
    let exports = exports.filter(|export| export.volume == volume);
    subsystems
        .chain(targets.map(|target| target.target.name.clone()))
        .chain(exports.map(|export| export.name.clone()))
        .collect()
}

/// Hosts that have connections or reservations, by name.
pub(crate) fn hosts_of(running: &Running, listed: &Listed<ConnectionInfo>) -> Vec<Host> {
    let seen = Seen::of(running);
    let mut hosts: BTreeMap<(String, api::Protocol), Host> = BTreeMap::new();
    let mut host_of = |name: String, protocol, add: &dyn Fn(&mut Host)| {
        let host = hosts.entry((name, protocol));
        add(host.or_insert_with_key(|(name, protocol)| Host::new(name, *protocol)));
    };
    for info in &listed.list {
        let address = info.base.via.peer.ip().to_canonical();
        let name = match (seen.host(info), info.role) {
            (Some(name), _) => name,
            (None, ConnectionRole::Nfs(_) | ConnectionRole::Nbd) => address.to_string(),
            // It may be anyone.
            (None, _) => continue,
        };
        host_of(name, protocol_of(info.protocol), &|host| {
            host.addresses.insert(address);
            if matches!(host.protocol, api::Protocol::Nfs | api::Protocol::Nbd) {
                host.in_figures = server::network(address).to_string();
            }
            add(host, info);
        });
    }
    for (volume, (name, protocol)) in reservations(running) {
        host_of(name, protocol, &|host| {
            host.reservations.insert(volume.clone());
        });
    }
    hosts.into_values().collect()
}

/// Whether a host goes by a name, or has an address.
pub(crate) fn is_called(host: &Host, name: &str) -> bool {
    let address: Option<IpAddr> = name.parse().ok();
    host.name.eq_ignore_ascii_case(name)
        || address.is_some_and(|address| host.addresses.contains(&address))
}

/// Adds a connection to what is known of its host.
fn add(host: &mut Host, info: &ConnectionInfo) {
    let target = info.target.as_ref().map(|name| shown(name.as_bytes()));
    match (info.role, &target) {
        (ConnectionRole::Queue { cntlid, .. }, Some(target)) => {
            host.controllers.insert((target.clone(), cntlid));
        }
        (ConnectionRole::Session { tsih, .. }, _) => drop(host.sessions.insert(tsih)),
        _ => {}
    }
    host.targets.extend(target);
    host.connections += 1;
    host.tls_connections += usize::from(info.base.tls.is_some());
    host.rdma_connections += usize::from(info.is_rdma);
    host.paths.insert(info.base.via.local);
    host.ios += info.base.ios;
    host.io_bytes += info.base.io_bytes;
    host.in_flight += info.in_flight;
    host.held_bytes += info.base.held_bytes;
}

/// Volumes that are reserved, and by which host of which protocol.
fn reservations(running: &Running) -> Vec<(String, (String, api::Protocol))> {
    let controllers = running.controllers();
    let name = |holder: &Registrant| match holder {
        Registrant::NvmeHost(id) => {
            let mut known = controllers.iter();
            let known = known.find(|controller| controller.hostid == *id);
            let name = known.map(|controller| controller.host.clone());
            let id = u128::from_be_bytes(*id);
            let name = name.unwrap_or_else(|| format!("host identifier {id:032x}"));
            (name, api::Protocol::NvmeTcp)
        }
        // RFC 7143, section 4.4.1: the name of the port has that of the node first.
        Registrant::ScsiNexus(nexus) => {
            let node = nexus.initiator.split(",i,").next();
            let node = node.unwrap_or_default().to_owned();
            (node, api::Protocol::Iscsi)
        }
    };
    let mut all = Vec::new();
    for volume in running.volumes() {
        let report = volume.reservations().report();
        let holders = report.registrants.iter().filter(|(.., holds)| *holds);
        let holders = holders.map(|(holder, ..)| holder).chain(&report.reserved);
        let of_volume = |holder| (volume.info().name.clone(), name(holder));
        all.extend(holders.map(of_volume));
    }
    all
}

fn session_of(session: &iscsi::SessionInfo) -> IscsiSession {
    let agreed = &session.negotiated;
    let isid = session.initiator.isid;
    let connections = session.connections.iter();
    let connections = connections.map(|(cid, via)| IscsiConnection {
        cid: *cid,
        peer: canonical(via.peer),
        local: via.local,
    });
    IscsiSession {
        id: session.tsih.to_string(),
        tsih: session.tsih,
        isid: isid.map(|byte| format!("{byte:02x}")).concat(),
        initiator: shown(session.initiator.name.as_bytes()),
        alias: session.alias.as_ref().map(|alias| shown(alias.as_bytes())),
        target: session.target.as_ref().map(|target| target.name.clone()),
        portal_group_tag: session.portal_group_tag,
        is_discovery: session.kind == iscsi::SessionKind::Discovery,
        is_closing: session.has_ended,
        connections: connections.collect(),
        header_digest: agreed.header_digest,
        data_digest: agreed.data_digest,
        initial_r2t: agreed.initial_r2t,
        immediate_data: agreed.immediate_data,
        max_burst_length: agreed.max_burst_length,
        first_burst_length: agreed.first_burst_length,
        max_recv_data_segment_length: agreed.max_recv_data_segment_length,
        max_send_data_segment_length: agreed.max_send_data_segment_length,
        max_connections: agreed.max_connections,
        max_outstanding_r2t: agreed.max_outstanding_r2t,
        error_recovery_level: agreed.error_recovery_level,
    }
}

/// What an NFS client is called as a host: what it has proved to be, or what it says.
fn host_name(client: &ClientInfo) -> String {
    let identity = client.identity.as_ref().map(String::as_bytes);
    shown(identity.unwrap_or(&client.owner))
}

fn client_of(client: &ClientInfo) -> NfsClient {
    let status = match client.is_expired {
        true => "courtesy",
        false => "confirmed",
    };
    let callback_path = client.has_callback_path;
    NfsClient {
        id: client_id(client.id),
        name: shown(&client.owner),
        identity: client.identity.as_ref().map(|name| shown(name.as_bytes())),
        address: client.address,
        version: match client.minor {
            Some(minor) => format!("4.{minor}"),
            None => "3".to_owned(),
        },
        implementation: shown(&client.implementation),
        status: status.to_owned(),
        silent_ms: client.silent_ms,
        lease_ms: client.lease_ms,
        callback_path: callback_path.map(|is_up| if is_up { "up" } else { "down" }.to_owned()),
        sessions: client.sessions,
        slots_used: client.slots.0,
        slots: client.slots.1,
        opens: client.opens,
        locks: client.locks,
        delegations: client.delegations,
    }
}
