//! How many hosts are connected to a volume.

use std::collections::{BTreeMap, BTreeSet};

use api::Protocol;
use server::{Running, Served};

/// Volumes by protocol, with how many hosts see them through a connection that is there now.
pub(crate) type VolumeHosts = BTreeMap<(Protocol, String), u64>;

/// Hosts with a controller and initiators with a session, each with the subsystem or target, and
/// of a session with the logical units that it sees; `None`: all.
type TargetUsers = Vec<(Protocol, String, String, Option<Vec<u16>>)>;

/// The volumes that hosts are connected to.
pub(crate) fn volume_hosts(running: &Running) -> VolumeHosts {
    let mut all: TargetUsers = Vec::new();
    for controller in running.controllers() {
        let (host, subsystem) = (controller.host, controller.subsystem);
        all.push((Protocol::NvmeTcp, subsystem, host, None));
    }
    for session in running.sessions() {
        if let Some(target) = session.target {
            let (name, initiator) = (target.name.clone(), session.initiator.name);
            all.push((Protocol::Iscsi, name, initiator, session.luns));
        }
    }
    counted(&running.served(), &all)
}

fn counted(served: &Served, all: &TargetUsers) -> VolumeHosts {
    let mut hosts: BTreeMap<(Protocol, &str), BTreeSet<&str>> = BTreeMap::new();
    let mut sees = |protocol, volume, host| {
        let of_volume = hosts.entry((protocol, volume)).or_default();
        of_volume.insert(host);
    };
    let subsystems = served.subsystems.iter().map(|one| (&*one.nqn, one));
    let targets = served.targets.iter().map(|one| (&*one.target.name, one));
    let subsystems: BTreeMap<_, _> = subsystems.collect();
    let targets: BTreeMap<_, _> = targets.collect();
    for (protocol, name, host, luns) in all {
        if let (Protocol::NvmeTcp, Some(subsystem)) = (protocol, subsystems.get(&**name)) {
            for namespace in &subsystem.namespaces {
                let masks = namespace.hosts.as_ref();
                if masks.is_none_or(|hosts| hosts.contains(host)) {
                    sees(*protocol, &*namespace.volume, &**host);
                }
            }
        }
        if let (Protocol::Iscsi, Some(target)) = (protocol, targets.get(&**name)) {
            for unit in &target.luns {
                if luns.as_ref().is_none_or(|luns| luns.contains(&unit.lun)) {
                    sees(*protocol, &*unit.volume, &**host);
                }
            }
        }
    }
    let counts = hosts.into_iter().map(|((protocol, volume), hosts)| {
        let count = hosts.len() as u64;
        ((protocol, volume.to_owned()), count)
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use server::{IscsiTargetSpec, LunSpec, NamespaceSpec, SubsystemSpec};

    use super::*;

    #[test]
    fn hosts_of_a_volume_are_those_that_see_it_each_once() {
        let namespace = |nsid, volume: &str, hosts: Option<&str>| NamespaceSpec {
            nsid,
            volume: volume.to_owned(),
            hosts: hosts.map(|host| vec![host.to_owned()]),
            ..NamespaceSpec::default()
        };
        let served = Served {
            listeners: Vec::new(),
            volumes: Vec::new(),
            subsystems: vec![SubsystemSpec {
                nqn: "nqn.s".to_owned(),
                namespaces: vec![namespace(1, "a", None), namespace(2, "b", Some("nqn.h1"))],
                ..SubsystemSpec::default()
            }],
            targets: vec![IscsiTargetSpec {
                luns: vec![LunSpec::new(0, "a"), LunSpec::new(1, "b")],
                ..IscsiTargetSpec::new("iqn.t")
            }],
            file_systems: Vec::new(),
            exports: Vec::new(),
            nbd_exports: Vec::new(),
        };
        let nvme = |host: &str| {
            let (subsystem, host) = ("nqn.s".to_owned(), host.to_owned());
            (Protocol::NvmeTcp, subsystem, host, None)
        };
        let iscsi = |host: &str, luns| {
            let (target, host) = ("iqn.t".to_owned(), host.to_owned());
            (Protocol::Iscsi, target, host, luns)
        };
        let all = vec![
            nvme("nqn.h1"),
            nvme("nqn.h1"),
            nvme("nqn.h2"),
            iscsi("iqn.i1", None),
            iscsi("iqn.i2", Some(vec![1])),
            (
                Protocol::NvmeTcp,
                "nqn.gone".to_owned(),
                "nqn.h3".to_owned(),
                None,
            ),
        ];
        let counts = counted(&served, &all);
        let of = |protocol, volume: &str| counts.get(&(protocol, volume.to_owned())).copied();
        assert_eq!(of(Protocol::NvmeTcp, "a"), Some(2));
        assert_eq!(
            of(Protocol::NvmeTcp, "b"),
            Some(1),
            "it is masked from the other"
        );
        assert_eq!(of(Protocol::Iscsi, "a"), Some(1));
        assert_eq!(of(Protocol::Iscsi, "b"), Some(2));
        assert_eq!(counts.len(), 4);
    }
}
