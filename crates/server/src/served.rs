//! What is served now, in the words of a configuration.

use engine::LastRefusal;
use serve_nbd::NbdExportSpec;
use serve_nfs::ExportSpec;

use crate::config::{IscsiTargetSpec, ListenerSpec, LunSpec, NamespaceSpec, SubsystemSpec};
use crate::shared::Shared;
use crate::start::Running;

/// What is served now: after the changes since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// With their numbers, by which everything else names them, and with the ports that
    /// the kernel chose where that was left to it.
    pub listeners: Vec<(u16, ListenerSpec)>,
    /// Names and bytes of the volumes, oldest first.
    pub volumes: Vec<(String, u64)>,
    /// By NQN.
    pub subsystems: Vec<SubsystemSpec>,
    /// By name, with all their portal groups; without `space_warning_bytes`, which
    /// initiators may change for each unit.
    pub targets: Vec<IscsiTargetSpec>,
    /// Names of the file systems, oldest first.
    pub file_systems: Vec<String>,
    /// What of them is exported.
    pub exports: Vec<ExportSpec>,
    /// What volumes are exported over NBD, by name.
    pub nbd_exports: Vec<NbdExportSpec>,
}

impl Running {
    /// What is served now.
    pub fn served(&self) -> Served {
        self.shared.served()
    }

    /// The last refusals that differ, the latest at the end.
    pub fn refusals(&self) -> Vec<LastRefusal> {
        self.shared.engine.refusals.last()
    }

    /// Whether more was refused than [`Running::refusals`] has.
    pub fn has_forgotten_refusals(&self) -> bool {
        self.shared.engine.refusals.has_forgotten()
    }
}

impl Shared {
    /// What is served now.
    pub fn served(&self) -> Served {
        let (subsystems, targets) = (self.subsystems(), self.targets());
        let nbd_exports = self.nbd.exports().specs();
        let state = self.state();
        let listeners = state.listeners.iter();
        let volumes = state.volumes.iter();
        let file_systems = state.file_systems.iter();
        Served {
            listeners: listeners.map(|(n, open)| (*n, open.spec.clone())).collect(),
            volumes: volumes
                .map(|volume| (volume.info().name.clone(), volume.size_bytes()))
                .collect(),
            file_systems: file_systems.map(|fs| fs.info().name.clone()).collect(),
            exports: state.exports.clone(),
            nbd_exports,
            subsystems,
            targets,
        }
    }

    fn subsystems(&self) -> Vec<SubsystemSpec> {
        let registry = self.registry();
        let places = self.nvme.places();
        let subsystems = registry.subsystems().map(|subsystem| {
            let namespaces = subsystem.namespaces.iter().map(|namespace| {
                let volumes = places.volumes_of(&subsystem.nqn, &[namespace.nsid]);
                let volume = volumes.first();
                NamespaceSpec {
                    nsid: namespace.nsid,
                    volume: volume.map_or(String::new(), |volume| volume.info().name.clone()),
                    ana_group: namespace.ana_group,
                    hosts: namespace.hosts.clone(),
                }
            });
            SubsystemSpec {
                nqn: subsystem.nqn.clone(),
                serial: subsystem.serial.clone(),
                model: subsystem.model.clone(),
                hosts: subsystem.hosts.clone(),
                terms: subsystem.terms.clone(),
                dhchap: subsystem.dhchap.clone(),
                listeners: subsystem.listeners.clone(),
                namespaces: namespaces.collect(),
                ana_groups: subsystem.ana_groups.clone(),
                cntlids: Some(subsystem.cntlids.clone()),
            }
        });
        let mut subsystems: Vec<_> = subsystems.collect();
        subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        subsystems
    }

    fn targets(&self) -> Vec<IscsiTargetSpec> {
        let registry = self.iscsi.registry();
        let places = self.iscsi.places();
        let targets = registry.targets().map(|target| {
            let luns = places.luns(&target.name).into_iter();
            let luns = luns.map(|(lun, volume, ana_group)| LunSpec {
                lun,
                volume: volume.info().name.clone(),
                ana_group,
            });
            IscsiTargetSpec {
                luns: luns.collect(),
                ana: places.ana_of(&target.name).unwrap_or_default(),
                target: (**target).clone(),
                space_warning_bytes: None,
            }
        });
        let mut targets: Vec<_> = targets.collect();
        targets.sort_by(|a, b| a.target.name.cmp(&b.target.name));
        targets
    }
}
