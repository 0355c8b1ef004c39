//! Hosts go elsewhere before maintenance, and are let in again after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Drain, Host, PlanLine, Protocol};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use server::{Change, ConnectionRole, Running};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::AdminCaller;
use crate::connections::hosts_of;
use crate::counters::now;
use crate::evict::Eviction;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::refused::NotApplied;
use crate::served::{DrainBegun, ServedFile, locked};

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrainQuery {
    /// Only what would be done.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Hosts that have no other path may be cut.
    #[serde(default)]
    pub(crate) disconnect: bool,
    /// NFS clients are to lose what they have.
    #[serde(default)]
    pub(crate) evict: bool,
}

pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    OpenApiRouter::new().routes(routes!(look, begin, end))
}

/// Whether hosts are to go elsewhere, and which have gone.
#[utoipa::path(get, path = "/v1/drain", operation_id = "get_drain",
    responses((status = 200, body = Drain)))]
async fn look(State(served): Served) -> Result<Json<Drain>, Problem> {
    off_thread(move || Ok::<_, Problem>(drain_of(&served, Vec::new()))).await
}

/// Has hosts go elsewhere: none is let in, and no path gives access.
#[utoipa::path(post, path = "/v1/drain", operation_id = "drain", params(DrainQuery),
    responses((status = 200, body = Drain), (status = 409), (status = 503)))]
async fn begin(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    query: Result<Query<DrainQuery>, QueryRejection>,
) -> Result<Json<Drain>, Problem> {
    let query = query.map_err(|why| {
        let detail = format!(
            "{}: ask with dry_run, disconnect and evict alone",
            why.body_text()
        );
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    off_thread(move || begin_drain(&served, &caller, *query)).await
}

/// Lets hosts in again.
#[utoipa::path(delete, path = "/v1/drain", operation_id = "end_drain",
    responses((status = 200, body = Drain), (status = 503)))]
async fn end(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
) -> Result<Json<Drain>, Problem> {
    off_thread(move || end_drain(&served, &caller)).await
}

/// What a drain would do, beside whether there is one.
pub(crate) fn planned(served: &ServedFile, evicts: bool) -> Drain {
    let hosts = hosts(served.running());
    Drain {
        plan: Some(hosts.iter().map(|host| line_of(host, evicts)).collect()),
        ..drain_of(served, Vec::new())
    }
}

/// Lets hosts in again, unless they are.
pub(crate) fn end_drain(served: &ServedFile, caller: &AdminCaller) -> Result<Drain, Problem> {
    if !served.running().is_drained() {
        return Ok(drain_of(served, Vec::new()));
    }
    let mut done = vec![
        "hosts are let in again, and their paths have the states that the configuration says"
            .to_owned(),
    ];
    set(served, false, &mut done)?;
    *locked(&served.drain) = None;
    tracing::info!(event = "drain-ended", by = caller.name, "drain ended");
    record(served, "drain ended", caller, &mut done);
    Ok(drain_of(served, done))
}

/// Lets no host in, and takes access from every path.
pub(crate) fn begin_drain(
    served: &ServedFile,
    caller: &AdminCaller,
    query: DrainQuery,
) -> Result<Drain, Problem> {
    if query.dry_run {
        return Ok(planned(served, query.evict));
    }
    let hosts = hosts(served.running());
    let plan: Vec<_> = hosts
        .iter()
        .map(|host| line_of(host, query.evict))
        .collect();
    let begins = !served.running().is_drained();
    // Whoever asks again waits for those that are left.
    if !begins && !query.evict {
        return Ok(drain_of(served, Vec::new()));
    }
    if !query.disconnect && plan.iter().any(|line| line.disturbs) {
        return Err(NotApplied::Disturbs(plan).into());
    }
    let mut done = Vec::new();
    if begins {
        done.push("no host is let in any more".to_owned());
        done.extend(plan.into_iter().map(|line| line.text));
        begin_with(served, caller, hosts, &mut done)?;
    }
    let running = served.running();
    // Hosts of version 3 cannot be told that they have lost their locks, and would go on.
    let clients = running.nfs_clients().into_iter();
    let clients = clients.filter(|client| client.minor.is_some());
    let clients: BTreeSet<u64> = clients.map(|client| client.id).collect();
    if query.evict && !clients.is_empty() {
        let eviction = Eviction::of_clients(running, clients, "drain: evict nfs-clients");
        done.extend(eviction.end(served, caller)?.done);
    }
    Ok(drain_of(served, done))
}

/// Begins a drain while these hosts are connected.
fn begin_with(
    served: &ServedFile,
    caller: &AdminCaller,
    hosts: Vec<Host>,
    done: &mut Vec<String>,
) -> Result<(), Problem> {
    locked(&served.drain).get_or_insert_with(|| DrainBegun {
        since: now(),
        by: caller.name.clone(),
        hosts,
    });
    if let Err(problem) = set(served, true, done) {
        *locked(&served.drain) = None;
        return Err(problem);
    }
    tracing::info!(event = "drained", by = caller.name, "drain began");
    record(served, "drain", caller, done);
    Ok(())
}

fn set(served: &ServedFile, is_drained: bool, done: &mut Vec<String>) -> Result<(), Problem> {
    match served.running().change(Change::SetDrained(is_drained)) {
        Ok(()) => Ok(()),
        Err(error) if error.is_of_one_made() => {
            done.push(error.to_string());
            Ok(())
        }
        Err(error) => {
            let detail = error.to_string();
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
        }
    }
}

fn record(served: &ServedFile, verb: &str, caller: &AdminCaller, done: &mut Vec<String>) {
    if let Err(why) = served.record(verb, (caller.uid, caller.by()), done) {
        done.push(format!("this is not in the audit: {why}"));
    }
}

fn drain_of(served: &ServedFile, done: Vec<String>) -> Drain {
    let left = hosts(served.running());
    let begun = locked(&served.drain);
    let is_gone = |host: &&Host| !left.iter().any(|other| is_same(host, other));
    let before = begun.iter().flat_map(|begun| &begun.hosts);
    let gone = before.filter(is_gone).cloned().collect();
    Drain {
        is_drained: served.running().is_drained(),
        since: begun.as_ref().map(|begun| begun.since.clone()),
        by: begun.as_ref().map(|begun| begun.by.clone()),
        plan: None,
        done,
        gone,
        left,
    }
}

/// Whether a host of before is one that is left: of NFS a client without a name, which it has
/// lost with its sessions, goes by its address.
fn is_same(before: &Host, left: &Host) -> bool {
    let is_nameless = || {
        let address = left.name.parse();
        address.is_ok_and(|address| before.addresses.contains(&address))
    };
    before.protocol == left.protocol
        && (before.name == left.name || (left.protocol == Protocol::Nfs && is_nameless()))
}

/// Hosts that are connected, but not those that only ask where volumes are.
fn hosts(running: &Running) -> Vec<Host> {
    let subsystems = running.served().subsystems.into_iter();
    let subsystems: BTreeSet<String> = subsystems.map(|subsystem| subsystem.nqn).collect();
    let mut listed = running.connections(move |info| match info.role {
        ConnectionRole::Stranger => false,
        ConnectionRole::Queue { .. } => {
            let nqn = info.target.as_ref();
            nqn.is_some_and(|nqn| subsystems.contains(nqn))
        }
        ConnectionRole::Session { is_discovery, .. } => !is_discovery,
        ConnectionRole::Nfs(_) | ConnectionRole::Nbd => true,
    });
    for info in &mut listed.list {
        if let ConnectionRole::Queue { qid: 0, .. } = info.role {
            info.in_flight = 0;
        }
    }
    let mut hosts = hosts_of(running, &listed);
    hosts.retain(|host| host.connections > 0);
    hosts
}

/// What a drain does to a host.
fn line_of(host: &Host, evicts: bool) -> PlanLine {
    let (name, count) = (&host.name, host.paths.len());
    let paths = if count == 1 { "path" } else { "paths" };
    let targets: Vec<_> = host.targets.iter().map(String::as_str).collect();
    let targets = targets.join(", ");
    let text = match host.protocol {
        Protocol::NvmeTcp => format!(
            "{name}: {count} {paths} to {targets} give no access: it goes on by those of another \
             target, or waits"
        ),
        Protocol::Iscsi => format!(
            "{name}: {count} {paths} to {targets} give no access, and it is asked to log out: it \
             goes on by those of another target, or loses its disks"
        ),
        Protocol::Nfs if evicts => format!(
            "{name}: loses its sessions, opens, locks and delegations of NFSv4, and waits; a client \
             of NFSv3 goes on, with its locks"
        ),
        Protocol::Nfs => format!("{name}: goes on over NFS, which has no other path"),
        Protocol::Nbd => format!("{name}: goes on over NBD, which has no other path"),
    };
    PlanLine {
        text,
        disturbs: !matches!(host.protocol, Protocol::Nfs | Protocol::Nbd) || evicts,
    }
}
