//! What is served now, by every protocol.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use nfsd::Exports;
use nfsd::exports::Export;
use serve_nfs::{ExportSpec, Exported, ProgramPorts, QuotaSpec};
use store::fs::{FileSystem, Quota, QuotaRefused, Time};
use store::{Info, Volume};

use crate::change::ChangeError;
use crate::check;
use crate::config::{ListenerSpec, Protocol, SnapshotSchedule, default_portal_group};

/// A listener that is open.
pub(crate) struct Listener {
    /// With the port that the kernel chose where that was left to it.
    pub spec: ListenerSpec,
}

/// What a listener had that was removed, or is to have: targets that name it.
#[derive(Default)]
pub(crate) struct Gone {
    pub number: u16,
    /// Targets, and the tags of their portal groups.
    pub groups: Vec<(String, u16)>,
}

/// What is served now.
pub(crate) struct ServedState {
    /// Every volume, oldest first.
    pub volumes: Vec<Arc<dyn Volume>>,
    /// The files that each volume needs, by its name.
    pub files: HashMap<String, Vec<PathBuf>>,
    /// Every file system, oldest first.
    pub file_systems: Vec<Arc<dyn FileSystem>>,
    /// How much users, groups and trees may have in them.
    pub quotas: Vec<QuotaSpec>,
    /// What of them is exported, by path.
    pub exports: Vec<ExportSpec>,
    /// By number; a number is used again for the same address alone.
    pub listeners: BTreeMap<u16, Listener>,
    pub listener_next: u16,
    /// Listeners that were removed, or are to be opened, by what is spoken where.
    pub gone: HashMap<(SocketAddr, Protocol), Gone>,
    /// Volumes of which a resize or a rollback is under way.
    pub in_change: Vec<Arc<dyn Volume>>,
    /// When snapshots are made by themselves.
    pub snapshot_schedules: Vec<SnapshotSchedule>,
    /// The targets that are reached by every iSCSI listener.
    pub everywhere: BTreeSet<String>,
}

/// Refuses a volume that hosts would take for one of `others`.
pub(crate) fn own_identity<'i>(
    info: &Info,
    others: impl IntoIterator<Item = &'i Info>,
) -> Result<(), ChangeError> {
    for other in others {
        if let Some(what) = check::shared_identity(info, other) {
            return Err(ChangeError::Invalid(format!(
                "volume \"{}\" has the {what} of the volume \"{}\", and hosts would take both \
                 for one disk: leave what is configured of it out, or set another `uuid`",
                info.name, other.name
            )));
        }
    }
    Ok(())
}

pub(crate) fn unknown_volume(name: &str) -> ChangeError {
    ChangeError::Unknown("volume", format!("\"{name}\""))
}

/// The volume is in the middle of another change.
pub(crate) fn volume_busy(name: &str) -> ChangeError {
    ChangeError::InUse(
        name.to_owned(),
        "a resize or a rollback that is not over".to_owned(),
    )
}

impl ServedState {
    pub fn new(listeners: Vec<ListenerSpec>) -> ServedState {
        let listener_next = u16::try_from(listeners.len()).expect("bounded by LISTENERS_MAX");
        let listeners = (0..).zip(listeners);
        ServedState {
            volumes: Vec::new(),
            files: HashMap::new(),
            file_systems: Vec::new(),
            quotas: Vec::new(),
            exports: Vec::new(),
            listeners: listeners.map(|(n, spec)| (n, Listener { spec })).collect(),
            listener_next,
            gone: HashMap::new(),
            in_change: Vec::new(),
            snapshot_schedules: Vec::new(),
            everywhere: BTreeSet::new(),
        }
    }

    /// Keeps the name of the volume `volume` and its files from others.
    pub fn take_files(&mut self, volume: &str, files: Vec<PathBuf>) -> Result<(), ChangeError> {
        if self.files.contains_key(volume) {
            return Err(ChangeError::Exists("volume", format!("\"{volume}\"")));
        }
        for (name, taken) in &self.files {
            if let Some(path) = files.iter().find(|path| taken.contains(path)) {
                let path = path.display();
                let why = format!("{path} is a file of the volume \"{name}\" already");
                return Err(ChangeError::Invalid(why));
            }
        }
        self.files.insert(volume.to_owned(), files);
        Ok(())
    }

    /// Puts a volume beside those that there are, of which none may be the same
    /// to hosts.
    pub fn add_volume(&mut self, volume: Arc<dyn Volume>) -> Result<(), ChangeError> {
        own_identity(volume.info(), self.volumes.iter().map(|other| other.info()))?;
        self.volumes.push(volume);
        Ok(())
    }

    /// The volume of a name.
    pub fn volume(&self, name: &str) -> Option<&Arc<dyn Volume>> {
        self.volumes
            .iter()
            .find(|volume| volume.info().name == name)
    }

    /// The volumes that one is to be made of. A mirror may lack legs, as after a degraded start.
    pub fn volumes_below(&self, spec: &store::Spec) -> Result<Vec<Arc<dyn Volume>>, ChangeError> {
        let below = spec.parts(true, |name| self.volume(name).cloned());
        let below = below.map_err(unknown_volume)?;
        match below.iter().find(|volume| self.is_in_change(volume)) {
            Some(volume) => Err(volume_busy(&volume.info().name)),
            None => Ok(below),
        }
    }

    /// The volume of a name, to which something is to be done that is not done to parts of
    /// others, or while it is resized.
    pub fn free_volume(&self, name: &str) -> Result<&Arc<dyn Volume>, ChangeError> {
        let volume = self.volume(name);
        let volume = volume.ok_or_else(|| unknown_volume(name))?;
        if let Some(owner) = volume.base().owner() {
            return Err(ChangeError::PartOf(name.to_owned(), owner));
        }
        match self.is_in_change(volume) {
            true => Err(volume_busy(name)),
            false => Ok(volume),
        }
    }

    /// Whether a resize or a rollback of the volume is under way.
    pub fn is_in_change(&self, volume: &Arc<dyn Volume>) -> bool {
        self.in_change
            .iter()
            .any(|other| Arc::ptr_eq(other, volume))
    }

    /// The listeners as NVMe's discovery is to know them.
    pub fn listener_list(&self) -> Vec<nvmf::ListenerSpec> {
        let all = self.listeners.iter();
        let list = all.filter(|(_, Listener { spec })| spec.protocol == Protocol::NvmeTcp);
        let list = list.map(|(number, Listener { spec })| nvmf::ListenerSpec {
            number: *number,
            address: spec.address,
            advertise: spec.advertise.clone(),
            discovery_only: spec.discovery_only,
            requires_tls: spec.requires_tls,
            transports: spec.rdma.transports,
        });
        list.collect()
    }

    /// The listeners as iSCSI's discovery is to know them.
    pub fn portals(&self) -> Vec<iscsi::Portal> {
        let all = self.listeners.iter();
        let portals = all.filter(|(_, Listener { spec })| spec.protocol == Protocol::Iscsi);
        let portals = portals.map(|(number, Listener { spec })| iscsi::Portal {
            number: *number,
            address: spec.address,
            advertise: spec.advertise.as_ref().map(|advertise| iscsi::Advertise {
                host: advertise.host.clone(),
                port: advertise.port,
            }),
        });
        portals.collect()
    }

    /// The portal group of a target that is reached by every iSCSI listener.
    pub fn all_portals(&self) -> iscsi::PortalGroup {
        default_portal_group(self.listeners.iter().map(|(number, l)| (*number, &l.spec)))
    }

    /// What is spoken at a listener, if it is still there.
    pub fn protocol_of(&self, listener: u16) -> Option<Protocol> {
        let listener = self.listeners.get(&listener)?;
        Some(listener.spec.protocol)
    }

    /// The same of one that is open, that was, or whose number is
    /// [kept](ServedState::keep_number).
    pub fn protocol_to_be(&self, listener: u16) -> Option<Protocol> {
        let gone = self.gone.iter();
        let mut gone = gone.filter(|(_, gone)| gone.number == listener);
        let found = gone.next().map(|((_, protocol), _)| *protocol);
        found.or_else(|| self.protocol_of(listener))
    }

    /// The number of the listener on an address: open, or to be opened. What names it
    /// may be changed before hosts come in by it.
    pub fn keep_number(
        &mut self,
        address: SocketAddr,
        protocol: Protocol,
    ) -> Result<u16, ChangeError> {
        let mut open = self.listeners.iter();
        let is_it = |spec: &ListenerSpec| (spec.address, spec.protocol) == (address, protocol);
        if let Some((number, _)) = open.find(|(_, open)| is_it(&open.spec)) {
            return Ok(*number);
        }
        if let Some(gone) = self.gone.get(&(address, protocol)) {
            return Ok(gone.number);
        }
        let number = self.listener_next;
        self.listener_next = number.checked_add(1).ok_or_else(|| {
            ChangeError::Invalid("no listener can be added before a restart".to_owned())
        })?;
        let kept = Gone {
            number,
            ..Gone::default()
        };
        self.gone.insert((address, protocol), kept);
        Ok(number)
    }

    /// Where clients of NFS find its programs.
    pub fn program_ports(&self) -> ProgramPorts {
        let all = self.listeners.values().map(|listener| &listener.spec);
        let serve = all.filter(|spec| spec.protocol == Protocol::Nfs && !spec.rdma.is_only());
        serve.map(|spec| (spec.address, spec.programs)).collect()
    }

    /// The numbers of the listeners.
    pub fn listener_numbers(&self) -> Vec<u16> {
        self.listeners.keys().copied().collect()
    }
}

/// From now on these are the quotas of file systems, or all is as before.
pub(crate) fn set_quotas(
    file_systems: &[Arc<dyn FileSystem>],
    (before, after): (&[QuotaSpec], &[QuotaSpec]),
    now: Time,
) -> Result<(), ChangeError> {
    let set = |fs: &Arc<dyn FileSystem>, list: &[QuotaSpec]| -> Result<(), QuotaRefused> {
        let name = &fs.info().name;
        let own = list.iter().filter(|spec| spec.file_system == *name);
        let own: Vec<Quota> = own.map(|spec| spec.quota.clone()).collect();
        fs.set_quotas(&own, now)
    };
    for (at, fs) in file_systems.iter().enumerate() {
        let Err(refused) = set(fs, after) else {
            continue;
        };
        for fs in &file_systems[..at] {
            if let Err(error) = set(fs, before) {
                tracing::warn!(%error, file_system = fs.info().name, "quotas are not as before");
            }
        }
        let is_it = |spec: &&QuotaSpec| {
            spec.file_system == fs.info().name && spec.quota.subject == refused.subject
        };
        let name = after.iter().find(is_it).map(|spec| spec.name.clone());
        return Err(ChangeError::Quota(name.unwrap_or_default(), refused));
    }
    Ok(())
}

impl ServedState {
    /// The file system of a name.
    pub(crate) fn file_system(&self, name: &str) -> Option<&Arc<dyn FileSystem>> {
        self.file_systems.iter().find(|fs| fs.info().name == name)
    }

    /// Puts a file system beside those that there are.
    pub(crate) fn add_file_system(&mut self, fs: Arc<dyn FileSystem>) -> Result<(), ChangeError> {
        let name = &fs.info().name;
        check::file_system_name(name).map_err(ChangeError::Invalid)?;
        if self.file_system(name).is_some() {
            return Err(ChangeError::Exists("file system", format!("\"{name}\"")));
        }
        self.file_systems.push(fs);
        Ok(())
    }

    /// These as exports, from now on.
    pub(crate) fn exports_of(
        &self,
        specs: &[ExportSpec],
        since: Time,
    ) -> Result<Exports, ChangeError> {
        let mut exports = Vec::new();
        for spec in specs {
            let rules = spec.rules.clone();
            let export = match &spec.what {
                Exported::FileSystem(name) => {
                    let fs = self.file_system(name).cloned();
                    let unknown = || ChangeError::Unknown("file system", format!("\"{name}\""));
                    Export::new(&spec.path, fs.ok_or_else(unknown)?, rules)
                }
                Exported::Referral(locations) => {
                    Export::referral(&spec.path, locations.clone(), rules)
                }
            };
            exports.push(export.map_err(|why| ChangeError::Invalid(why.to_string()))?);
        }
        Exports::new(exports, since).map_err(|why| ChangeError::Invalid(why.to_string()))
    }
}
