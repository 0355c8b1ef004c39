//! What weft is to serve, whatever program said it first: plain values, and for each of
//! weft's keys a note that says where its value comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

/// Of weft's keys: where the value comes from. Two models that differ in it alone are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(BTreeMap<&'static str, String>);

impl PartialEq for Notes {
    fn eq(&self, _: &Notes) -> bool {
        true
    }
}

impl Notes {
    pub fn set(&mut self, key: &'static str, note: impl Into<String>) {
        self.0.insert(key, note.into());
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub volumes: Vec<VolumeModel>,
    pub subsystems: Vec<SubsystemModel>,
    /// Other discovery services, as `host:port`.
    pub referrals: Vec<String>,
    pub targets: Vec<TargetModel>,
    /// What initiators prove that only ask which targets there are.
    pub discovery: LoginPair,
    pub exports: Vec<ExportModel>,
    pub listeners: Vec<ListenerModel>,
    pub lease_ms: Option<u64>,
    pub grace_ms: Option<u64>,
}

/// What a volume is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Ram,
    Null,
    File(String),
    Block(String),
}

impl Backing {
    /// Of a path that a source names without saying what it is.
    pub fn of_path(path: &str) -> Backing {
        match path.starts_with("/dev/") && !path.starts_with("/dev/shm/") {
            true => Backing::Block(path.to_owned()),
            false => Backing::File(path.to_owned()),
        }
    }

    pub fn path(&self) -> Option<&str> {
        match self {
            Backing::File(path) | Backing::Block(path) => Some(path),
            Backing::Ram | Backing::Null => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeModel {
    pub name: String,
    pub backing: Backing,
    /// Of a device: all of it.
    pub size_bytes: Option<u64>,
    pub block_bytes: u32,
    /// `uuid`, `nguid`, `eui64`, `naa`, `serial`, `vendor`, `product` and `revision`.
    pub identity: BTreeMap<&'static str, String>,
    pub read_only: bool,
    pub notes: Notes,
}

/// What no two volumes may share.
pub(crate) const OWN: &[&str] = &["uuid", "nguid", "eui64", "naa", "serial"];

impl VolumeModel {
    pub fn new(name: &str, backing: Backing) -> Self {
        VolumeModel {
            name: name.to_owned(),
            backing,
            size_bytes: None,
            block_bytes: 512,
            identity: BTreeMap::new(),
            read_only: false,
            notes: Notes::default(),
        }
    }

    /// Says by what hosts know it.
    pub fn identify(&mut self, key: &'static str, value: impl Into<String>, note: String) {
        self.identity.insert(key, value.into());
        self.notes.set(key, note);
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SubsystemModel {
    pub nqn: String,
    /// `None`: every host.
    pub hosts: Option<Vec<HostModel>>,
    pub serial: Option<String>,
    pub model: Option<String>,
    pub cntlids: Option<(u16, u16)>,
    /// `None`: every one for NVMe/TCP.
    pub listeners: Option<Vec<SocketAddr>>,
    pub namespaces: Vec<NamespaceModel>,
    pub ana: Vec<AnaModel<SocketAddr>>,
    pub notes: Notes,
}

/// A host that a subsystem lets in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostModel {
    pub nqn: String,
    /// `psk_file`, `dhchap_secret_file` and `dhchap_ctrl_secret_file`, with where each lies.
    pub keys: Vec<(&'static str, HostKey)>,
}

impl HostModel {
    /// One that proves nothing.
    pub fn of_name(nqn: String) -> Self {
        HostModel {
            nqn,
            keys: Vec::new(),
        }
    }
}

/// Where the key of a host lies.
#[derive(Clone, PartialEq)]
pub(crate) enum HostKey {
    /// In a place, as weft names it.
    At(String),
    /// In the source itself.
    Inside(String),
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostKey::At(place) => f.write_str(place),
            HostKey::Inside(secret) => write!(f, "(a secret of {} bytes)", secret.len()),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamespaceModel {
    pub nsid: u32,
    pub volume: String,
    pub ana_group: u32,
    /// `None`: all of the subsystem.
    pub hosts: Option<Vec<String>>,
    pub notes: Notes,
}

/// The state of the paths of a group, for hosts that come in at a place or anywhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnaModel<P> {
    pub group: u32,
    pub at: Option<P>,
    pub state: &'static str,
    pub note: Notes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TargetModel {
    pub name: String,
    pub alias: Option<String>,
    pub any_initiator: bool,
    /// Whom `any_initiator` lets in may only read.
    pub any_reads_only: bool,
    /// Of `any_initiator`; none: from anywhere.
    pub networks: Vec<String>,
    pub logins: LoginPair,
    pub has_weak_chap: bool,
    /// `None`: every one for iSCSI.
    pub portals: Option<Vec<SocketAddr>>,
    pub luns: Vec<LunModel>,
    pub initiators: Vec<InitiatorModel>,
    pub ana: Vec<AnaModel<u16>>,
    pub redirect: Option<String>,
    /// Limits, by weft's key, as TOML.
    pub terms: BTreeMap<&'static str, String>,
    pub notes: Notes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LunModel {
    pub lun: u16,
    pub volume: String,
    pub ana_group: u32,
    /// No initiator may write by this one.
    pub read_only: bool,
    pub notes: Notes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InitiatorModel {
    /// `None`: all of `networks`.
    pub name: Option<String>,
    pub networks: Vec<String>,
    /// `None`: all.
    pub luns: Option<Vec<u16>>,
    /// Of them those that it may only read.
    pub reads_only: Vec<u16>,
    pub logins: LoginPair,
    pub notes: Notes,
}

/// What an initiator proves, and what it is proved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LoginPair {
    pub chap: Option<Login>,
    pub mutual: Option<Login>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct Login {
    pub user: String,
    pub secret: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (a secret of {} bytes)", self.user, self.secret.len())
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ExportModel {
    /// As clients know it.
    pub path: String,
    /// The directory that is exported.
    pub folder: String,
    /// The first that names a client counts.
    pub rules: Vec<RuleModel>,
    pub notes: Notes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RuleModel {
    /// `None`: every client.
    pub clients: Option<Vec<String>>,
    pub read_only: bool,
    pub squash: &'static str,
    pub anon_uid: u32,
    pub anon_gid: u32,
    pub security: Vec<&'static str>,
    /// How connections may be protected; empty: however.
    pub xprtsec: Vec<&'static str>,
    /// From ports below 1024 alone.
    pub secure: bool,
    pub note: Notes,
}

impl Default for RuleModel {
    fn default() -> Self {
        RuleModel {
            clients: None,
            read_only: false,
            squash: "root",
            anon_uid: 65_534,
            anon_gid: 65_534,
            security: vec!["sys"],
            xprtsec: Vec::new(),
            secure: false,
            note: Notes::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spoken {
    NvmeTcp,
    Iscsi,
    Nfs,
}

impl Spoken {
    /// Weft's word, and the protocol's own port.
    pub fn word(self) -> (&'static str, u16) {
        match self {
            Spoken::NvmeTcp => ("nvme-tcp", 4420),
            Spoken::Iscsi => ("iscsi", 3260),
            Spoken::Nfs => ("nfs", 2049),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListenerModel {
    pub address: SocketAddr,
    pub spoken: Spoken,
    pub discovery_only: bool,
    pub notes: Notes,
}
