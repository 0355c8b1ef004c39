//! What is known of one client, and what of it is slow, refused or about to end.

use std::collections::{BTreeMap, BTreeSet};

use api::{ClientReport, Finding, Host};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use server::nfs::ClientInfo;
use server::{
    Ana, ConnectionInfo, ConnectionRole, LastRefusal, NOT_AUTHENTICATED, Protocol, Running,
};

use crate::body::Named;
use crate::connections::{Seen, Wanted, client_id, hosts_of, is_called, targets_of};
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::refusal_of;
use crate::shown::shown;

/// Commands that an I/O queue or a session should take at a time, at least.
const QUEUE_ENTRIES_MIN: usize = 32;

/// What an initiator should take in one PDU, at least.
const SEGMENT_BYTES_MIN: u32 = 64 << 10;

fn finding(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding {
        what: what.into(),
        remedy: remedy.into(),
    }
}

/// What is known of one client, and what is wrong with it.
#[utoipa::path(get, path = "/v1/doctor/clients/{name}", operation_id = "diagnose_client", params(("name" = String, Path)),
    responses((status = 200, body = ClientReport)))]
pub(crate) async fn client(
    State(served): Served,
    Named(name): Named,
) -> Result<Json<ClientReport>, Problem> {
    off_thread(move || diagnose(served.running(), &name)).await
}

fn diagnose(running: &Running, name: &str) -> Result<ClientReport, Problem> {
    let seen = Seen::of(running);
    let all = hosts_of(running, &running.connections(|_| true));
    let hosts: Vec<_> = all.iter().filter(|host| is_called(host, name)).collect();
    let refusals = running.refusals().into_iter();
    let refusals: Vec<_> = refusals.filter(|refused| refused.is_of(name)).collect();
    let has_forgotten = running.has_forgotten_refusals();
    let clients = running.nfs_clients();
    let wanted = Wanted::host(name, &seen);
    let ids = wanted.clients();
    let clients: Vec<_> = clients
        .iter()
        .filter(|client| ids.contains(&client.id))
        .collect();
    if hosts.is_empty() && refusals.is_empty() && clients.is_empty() {
        let known = all.iter().map(|host| host.name.as_str());
        let detail = nothing_known(name, has_forgotten) + &control::hint(name, known);
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    }
    let connections = running.connections(move |info| wanted.has(info));
    let mut findings = of_refusals(&refusals, has_forgotten);
    if running.is_drained() {
        findings.insert(finding(
            "weft is drained: no path gives access, and no host is let in",
            "`weft drain --end`, when what it was drained for is over",
        ));
    }
    for info in &connections.list {
        findings.extend(of_connection(info));
        findings.extend(of_path(info, &seen));
    }
    for host in &hosts {
        let names = |other: &&Host| other.name != host.name && !other.reservations.is_empty();
        for other in all.iter().filter(names) {
            findings.extend(of_reservation(host, other, &seen));
        }
    }
    findings.extend(of_controllers(running, &hosts, &connections.list));
    findings.extend(of_sessions(running, &connections.list));
    findings.extend(clients.iter().flat_map(|client| of_client(client)));
    Ok(ClientReport {
        hosts: hosts.into_iter().cloned().collect(),
        nfs_clients: clients.iter().map(|client| client_id(client.id)).collect(),
        refusals: (refusals.into_iter())
            .map(|one| refusal_of(one, &seen.served))
            .collect(),
        findings: findings.into_iter().collect(),
    })
}

/// That there is nothing to say of a client.
fn nothing_known(name: &str, has_forgotten: bool) -> String {
    let refused = match has_forgotten {
        true => "and none of the last refusals is of it (there were more than weft keeps)",
        false => "and nothing of it was refused since weft was started",
    };
    let name = shown(name.as_bytes());
    format!("nothing is known of a client {name}: it is not connected, {refused}")
}

/// Addresses that one finding names.
const ADDRESSES_TOLD_MAX: usize = 8;

/// Hosts that have not authenticated, and refusals that are not known any more.
fn of_refusals(refusals: &[LastRefusal], has_forgotten: bool) -> BTreeSet<Finding> {
    let mut unproven: BTreeMap<&str, (u64, BTreeSet<String>)> = BTreeMap::new();
    for refused in refusals.iter().filter(|one| one.kind == NOT_AUTHENTICATED) {
        let host = refused.host.as_deref().unwrap_or_default();
        let (count, addresses) = unproven.entry(host).or_default();
        *count += refused.count;
        addresses.extend(refused.address.map(|address| address.to_string()));
    }
    let unproven = unproven.into_iter().map(|(host, (count, addresses))| {
        let mut named: Vec<_> = addresses.into_iter().collect();
        let others = named.split_off(named.len().min(ADDRESSES_TOLD_MAX)).len();
        let named = named.join(", ");
        let others = match others {
            0 => String::new(),
            others => format!(" and {others} addresses more"),
        };
        finding(
            format!(
                "{count} connections in the name of {host} have not authenticated, from \
                 {named}{others}"
            ),
            "if they are the host's own, give it its secret (`nvme connect --dhchap-secret`, and \
             --concat where it is to make a key for TLS); those from this machine may be \
             self-tests; else restrict `networks` of its [[nvme.subsystem.host]] to those that it \
             is in",
        )
    });
    let forgotten = (has_forgotten && refusals.is_empty()).then(|| {
        finding(
            "there were more refusals than weft keeps: some may have been of this client",
            "look into the log of weft, which tells of each sort once a minute",
        )
    });
    unproven.chain(forgotten).collect()
}

fn of_connection(info: &ConnectionInfo) -> Vec<Finding> {
    let id = info.base.connection;
    let mut found = Vec::new();
    if info.base.is_short {
        found.push(finding(
            format!("connection {id} waits for memory"),
            "raise `memory_max` in [policy], or let the host have fewer commands in flight",
        ));
    }
    if info.data_digest {
        let without = match info.protocol {
            Protocol::Iscsi => "`node.conn[0].iscsi.DataDigest = None`",
            _ => "`nvme connect` without --data-digest",
        };
        found.push(finding(
            format!("connection {id} has data digests, which both sides compute over every byte"),
            format!("where the network checks what it carries, connect without: {without}"),
        ));
    }
    let psk = info.base.tls.and_then(|tls| tls.psk);
    if psk.is_some_and(|psk| psk.is_old) {
        found.push(finding(
            format!("connection {id} has a key that its host derives as libnvme up to 1.13 does"),
            "weft takes it, other targets do not: a newer libnvme on the host, which then inserts \
             the key once more (`nvme check-tls-key --insert`)",
        ));
    }
    if let ConnectionRole::Queue { qid, entries, .. } = info.role
        && qid > 0
        && entries < QUEUE_ENTRIES_MIN
    {
        found.push(finding(
            format!("queue {qid} (connection {id}) takes {entries} commands at a time"),
            format!(
                "connect with more: `nvme connect --queue-size={}`",
                QUEUE_ENTRIES_MIN * 4
            ),
        ));
    }
    found
}

/// Groups of paths that are not optimized at the listener that a connection came in by.
fn of_path(info: &ConnectionInfo, seen: &Seen) -> Vec<Finding> {
    let Some(target) = &info.target else {
        return Vec::new();
    };
    let served = &seen.served;
    let subsystem = |nqn: &str| served.subsystems.iter().find(|known| known.nqn == nqn);
    let known = served
        .targets
        .iter()
        .find(|known| known.target.name == *target);
    let groups = match (subsystem(target), known.map(|known| &known.ana)) {
        (Some(subsystem), _) => &subsystem.ana_groups[..],
        (None, Some(Ana::Own(groups))) => groups,
        (None, Some(Ana::Subsystem(nqn))) => {
            subsystem(nqn).map_or(&[][..], |subsystem| &subsystem.ana_groups)
        }
        (None, None) => &[],
    };
    let states = groups
        .iter()
        .map(|group| (group.id, group.state_on(info.base.via.listener)));
    let local = info.base.via.local;
    let states = states.filter(|(_, state)| *state != Default::default());
    let found = states.map(|(group, state)| {
        let state = control::ana_state_name(state);
        finding(
            format!("the path by {local} to group {group} of {target} is {state}"),
            "let the host use another path too (`nvme connect` or a login to another listener), \
             or set the group's state in the configuration",
        )
    });
    found.collect()
}

/// What another host has reserved that this one uses.
fn of_reservation(host: &Host, other: &Host, seen: &Seen) -> Vec<Finding> {
    let uses = |volume: &&String| {
        let targets = targets_of(&seen.served, volume);
        !targets.is_disjoint(&host.targets)
    };
    let found = other.reservations.iter().filter(uses).map(|volume| {
        finding(
            format!(
                "volume {volume} is reserved by {}: I/O may meet a conflict",
                other.name
            ),
            "have that host release it, or preempt it (`nvme resv-acquire`, `sg_persist`)",
        )
    });
    found.collect()
}

/// Names that several machines have: each is taken for the others.
fn of_names(running: &Running, names: &BTreeSet<&String>) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in names {
        let own = running.controllers().into_iter();
        let own = own.filter(|controller| controller.host == **name);
        let ids: BTreeSet<_> = own.map(|controller| controller.hostid).collect();
        if ids.len() > 1 {
            let ids = ids.into_iter().map(u128::from_be_bytes);
            let ids: Vec<_> = ids.map(|id| format!("{id:032x}")).collect();
            found.push(finding(
                format!(
                    "{} hosts have the host NQN {name}, with the Host Identifiers {}",
                    ids.len(),
                    ids.join(" and ")
                ),
                "give each its own (`nvme gen-hostnqn > /etc/nvme/hostnqn`): copies of a machine \
                 have those of the first",
            ));
        }
    }
    found
}

/// Its name, and keep alive: that there is one, and how near its end is.
fn of_controllers(
    running: &Running,
    hosts: &[&Host],
    connections: &[ConnectionInfo],
) -> Vec<Finding> {
    let names = |host: &&Host| host.protocol == api::Protocol::NvmeTcp;
    let names: BTreeSet<_> = hosts
        .iter()
        .copied()
        .filter(names)
        .map(|host| &host.name)
        .collect();
    let mut all = of_names(running, &names);
    let of_host = running.controllers().into_iter();
    let of_host = of_host.filter(|controller| names.contains(&controller.host));
    let found = of_host.filter_map(|controller| {
        let (cntlid, subsystem) = (controller.cntlid, &controller.subsystem);
        let queues = connections.iter().filter(|info| {
            info.target.as_ref() == Some(subsystem)
                && matches!(info.role, ConnectionRole::Queue { cntlid: own, .. } if own == cntlid)
        });
        let silent_ms = queues.map(|info| info.base.idle_ms).min()?;
        let kato_ms = u64::from(controller.kato_ms);
        match kato_ms {
            0 => Some(finding(
                format!("controller {cntlid} of {subsystem} has no keep alive timer"),
                "connect with one (`nvme connect --keep-alive-tmo=5`): else weft keeps what a host \
                 has that is lost",
            )),
            _ if silent_ms > kato_ms / 4 * 3 => Some(finding(
                format!(
                    "controller {cntlid} of {subsystem} has been silent for {silent_ms} ms, and \
                     ends after {kato_ms} ms"
                ),
                "look whether the host is alive and the network carries what it sends",
            )),
            _ => None,
        }
    });
    all.extend(found);
    all
}

fn of_sessions(running: &Running, connections: &[ConnectionInfo]) -> Vec<Finding> {
    let tsihs: BTreeSet<_> = connections
        .iter()
        .filter_map(|info| match info.role {
            ConnectionRole::Session {
                tsih,
                is_discovery: false,
                ..
            } => Some(tsih),
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for session in running
        .sessions()
        .iter()
        .filter(|own| tsihs.contains(&own.tsih))
    {
        let (tsih, agreed) = (session.tsih, &session.negotiated);
        if agreed.initial_r2t && !agreed.immediate_data {
            found.push(finding(
                format!("session {tsih} asks before each write: InitialR2T Yes, ImmediateData No"),
                "`node.session.iscsi.ImmediateData = Yes`, or InitialR2T = No",
            ));
        }
        if agreed.max_send_data_segment_length < SEGMENT_BYTES_MIN {
            let bytes = agreed.max_send_data_segment_length;
            found.push(finding(
                format!("session {tsih} takes reads in PDUs of {bytes} bytes"),
                "`node.conn[0].iscsi.MaxRecvDataSegmentLength = 262144` of the initiator",
            ));
        }
        if agreed.error_recovery_level > 0 {
            let level = agreed.error_recovery_level;
            found.push(finding(
                format!("session {tsih} has ErrorRecoveryLevel {level}: what is sent is kept"),
                "level 0 where there are several paths, or the network is local",
            ));
        }
        let depth = session
            .target
            .as_ref()
            .map(|target| usize::from(target.limits.queue_depth));
        if let Some(depth) = depth.filter(|depth| *depth < QUEUE_ENTRIES_MIN) {
            found.push(finding(
                format!("session {tsih} takes {depth} commands at a time"),
                "raise `queue_depth` of the [[iscsi.target]]",
            ));
        }
    }
    found
}

fn of_client(client: &ClientInfo) -> Vec<Finding> {
    let (id, silent_ms, lease_ms) = (client_id(client.id), client.silent_ms, client.lease_ms);
    let mut found = Vec::new();
    if client.is_expired {
        found.push(finding(
            format!("the lease of NFS client {id} has run out: {silent_ms} ms of {lease_ms} ms"),
            "it keeps what it has until another client needs it: look whether it is alive, or \
             `weft evict nfs-client` it",
        ));
    } else if client.minor.is_some() && silent_ms > lease_ms / 4 * 3 {
        found.push(finding(
            format!(
                "NFS client {id} has been silent for {silent_ms} ms of its lease, {lease_ms} ms"
            ),
            "look whether the client is alive and the network carries what it sends",
        ));
    }
    if client.has_callback_path == Some(false) {
        found.push(finding(
            format!("NFS client {id} cannot be called back: it gets no delegations"),
            "its connection was lost, and it has not bound another to its session: look at its \
             network, or mount again",
        ));
    }
    if client.slots.1 > 0 && client.slots.0 == client.slots.1 {
        found.push(finding(
            format!(
                "NFS client {id} uses all {} slots of its sessions",
                client.slots.1
            ),
            "raise the slots that it asks for (`max_session_slots` of its module nfs)",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use server::Remedy;

    use super::*;

    fn unproven(last: u8, count: u64) -> LastRefusal {
        LastRefusal {
            first_unix_s: 0,
            last_unix_s: 0,
            count,
            kind: NOT_AUTHENTICATED,
            address: Some(IpAddr::from([192, 0, 2, last])),
            host: Some("nqn.2026-01.org.example:a".to_owned()),
            target: None,
            reason: String::new(),
            remedy: Remedy::Secret,
        }
    }

    #[test]
    fn connections_in_the_name_of_a_host_are_told_with_their_addresses_and_what_to_restrict() {
        let refusals: Vec<_> = (1..=20).map(|last| unproven(last, 15)).collect();
        let found = Vec::from_iter(of_refusals(&refusals, true));
        let [found] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(
            found.what.starts_with(
                "300 connections in the name of nqn.2026-01.org.example:a have not authenticated, \
                 from 192.0.2.1, "
            ) && found.what.ends_with(" and 12 addresses more"),
            "{found:?}"
        );
        assert!(found.remedy.contains("restrict `networks`"), "{found:?}");
    }

    #[test]
    fn client_of_which_no_refusal_is_known_is_told_whether_there_were_more() {
        assert_eq!(of_refusals(&[], false), BTreeSet::new());
        let found = Vec::from_iter(of_refusals(&[], true));
        assert!(found[0].what.contains("more refusals than weft keeps"));
        assert!(nothing_known("a", false).contains("since weft was started"));
        assert!(nothing_known("a", true).contains("more than weft keeps"));
    }
}
