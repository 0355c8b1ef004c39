//! Which programs were connected, and how: from what the sweeps asked for.

use serde::Serialize;

use super::figure::Source;
use crate::load::{Load, LoadProtocol, Subject};

/// One kind of set-up.
#[derive(Debug, Serialize)]
pub(super) struct Setup {
    /// The sweeps that have it.
    figures: String,
    /// What is between target and clients.
    link: &'static str,
    /// Clients.
    hosts: u16,
    /// What the target does where.
    target: Vec<String>,
    /// Whose connections there are.
    connections: Vec<String>,
}

/// All set-ups that the sweeps have, whose loads agents ran or this machine.
pub(super) fn setups(sources: &[Source<'_>], has_agents: bool) -> Vec<Setup> {
    let link = match has_agents {
        true => "network to the agents",
        false => "loopback interface",
    };
    let setups = [
        alone(sources, link),
        over_veth(sources),
        of_many(sources, link),
    ];
    setups.into_iter().flatten().collect()
}

/// One target and one client.
fn alone(sources: &[Source<'_>], link: &'static str) -> Option<Setup> {
    let is_plain = |load: &Load| load.mtu.is_none() && load.hosts == 1;
    let loads = sources.iter().flat_map(loads).filter(is_plain);
    let loads: Vec<_> = loads.collect();
    let cores = loads.iter().map(|load| load.target_cores).max()?;
    let connections = loads.iter().map(|load| load.connections).max()?;
    let reactors = match cores {
        1 => "1 reactor on a CPU of its own".to_owned(),
        cores => format!("1 reactor on a CPU of its own; over cores, up to {cores}"),
    };
    Some(Setup {
        figures: "All figures but those of the other rows.".into(),
        link,
        hosts: 1,
        target: vec![reactors, "1 volume or file system in memory".into()],
        connections: vec![format!("TCP, 1 to {connections} connections")],
    })
}

fn over_veth(sources: &[Source<'_>]) -> Option<Setup> {
    let has_mtu = |source: &&Source<'_>| loads(source).iter().any(|load| load.mtu.is_some());
    let all: Vec<_> = sources.iter().filter(has_mtu).collect();
    let loads = all.iter().flat_map(|source| loads(source));
    let mut mtus: Vec<_> = loads.filter_map(|load| load.mtu).collect();
    mtus.sort_unstable();
    mtus.dedup();
    let mtus: Vec<_> = mtus.iter().map(u32::to_string).collect();
    let first = all.first()?;
    Some(Setup {
        figures: titles(&all),
        link: "veth pair",
        hosts: 1,
        target: vec![
            "1 reactor on a CPU of its own".into(),
            "1 volume or file system in memory".into(),
            "in a network namespace of its own".into(),
        ],
        connections: vec![
            format!("MTU {}", mtus.join(", ")),
            format!("TCP, {} connections", first.spec.load.connections),
        ],
    })
}

fn of_many(sources: &[Source<'_>], link: &'static str) -> Option<Setup> {
    let is_many = |source: &&Source<'_>| loads(source).iter().any(|load| load.hosts > 1);
    let all: Vec<_> = sources.iter().filter(is_many).collect();
    let spec = all.first()?.spec;
    let x = spec.axis.full.first()?;
    let loads = spec
        .series
        .iter()
        .map(|series| (series, spec.load_at(series, *x)));
    let many: Vec<_> = loads.filter(|(_, load)| load.hosts > 1).collect();
    let each = many.iter().filter_map(|(series, load)| {
        let (what, protocol) = match series.subject {
            Subject::Weft(LoadProtocol::NvmeTcp, _) => ("subsystems", "NVMe/TCP"),
            Subject::Weft(LoadProtocol::NvmeRdma, _) => ("subsystems", "NVMe/RDMA"),
            Subject::Weft(LoadProtocol::Iscsi, _) => ("LUNs", "iSCSI"),
            Subject::Weft(LoadProtocol::Nfs, _) => ("shares", "NFS"),
            Subject::Weft(LoadProtocol::NfsRdma, _) => ("shares", "NFS by RDMA"),
            _ => return None,
        };
        let (share, connections) = (load.devices / load.hosts, load.connections);
        let devices = load.devices;
        Some(format!(
            "{protocol}: {devices} {what}, {share} a host, {connections} connections each"
        ))
    });
    Some(Setup {
        figures: titles(&all),
        link,
        hosts: many.first()?.1.hosts,
        target: vec![
            "1 reactor on a CPU of its own".into(),
            "volumes in memory, a share for each host".into(),
        ],
        connections: each.collect(),
    })
}

/// Of every series at every point where it was measured.
fn loads(source: &Source<'_>) -> Vec<Load> {
    let measured = source.sweep.series.iter().flat_map(|series| {
        let spec = source.spec.series_named(&series.name);
        let points = series
            .points
            .iter()
            .filter(|point| !point.samples.is_empty());
        points.filter_map(move |point| Some(source.spec.load_at(spec?, point.x)))
    });
    measured.collect()
}

fn titles(sources: &[&Source<'_>]) -> String {
    let titles: Vec<_> = sources.iter().map(|source| source.spec.title).collect();
    format!("{}.", titles.join("; "))
}
