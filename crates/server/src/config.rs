//! What a target is started with. The `control` room builds it from TOML.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use auth::psk::PskCompat;
pub use engine::placement::Placement;
pub use engine::{ConnectionPolicy, LimitFigures, RateLimit, Rates};
use iscsi::{Auth, PortalGroup, Target};
use nvmf::dhchap::DhchapChoice;
use nvmf::rdma::CrcPolicy;
use nvmf::transport::{Transport, Transports};
use nvmf::{Advertise, AnaGroup, HostTerms, Referral};
pub use serve_iscsi::Ana;
use serve_nbd::{NbdExportSpec, NbdTlsSpec};
use serve_nfs::{
    ExportSpec, Exported, FileSystemSpec, NfsSettings, QuotaSpec, RpcPrograms, TlsFiles,
};

/// Everything that a target is started with; checked by `control` before.
#[derive(Clone, Debug)]
pub struct Config {
    /// The volumes to open, by name.
    pub volumes: Vec<store::Spec>,
    /// The subsystems that serve them.
    pub subsystems: Vec<SubsystemSpec>,
    /// The iSCSI targets that serve them.
    pub iscsi_targets: Vec<IscsiTargetSpec>,
    /// What initiators prove that only ask which targets there are.
    pub iscsi_discovery: Auth,
    /// The file systems to open, by name.
    pub file_systems: Vec<FileSystemSpec>,
    /// How much users, groups and trees may have in them.
    pub quotas: Vec<QuotaSpec>,
    /// What of them is served over NFS, and to which clients.
    pub exports: Vec<ExportSpec>,
    /// How NFS is served.
    pub nfs: NfsSettings,
    /// What volumes are served over NBD, and to which clients.
    pub nbd_exports: Vec<NbdExportSpec>,
    /// What NBD speaks TLS by; `None`: it is not offered.
    pub nbd_tls: Option<NbdTlsSpec>,
    /// Where hosts come in; a listener's number is its place in this list.
    pub listeners: Vec<ListenerSpec>,
    /// Other discovery services that this one names.
    pub referrals: Vec<Referral>,
    /// How NVMe hosts may derive their keys for TLS.
    pub psk_compat: PskCompat,
    /// One reactor for each of these CPUs, pinned to it; never empty.
    pub cpus: Vec<usize>,
    /// The driver of the reactors.
    pub backend: reactor::Choice,
    /// How long a reactor may spin after work before it sleeps, microseconds;
    /// `u64::MAX` never sleeps.
    pub spin_us_max: u64,
    /// Which reactor takes a new connection.
    pub placement: Placement,
    /// Ceiling for all buffers together, bytes; RAM volumes not counted.
    pub memory_max: u64,
    /// Payload in pieces of at least this many bytes, taken over a batch, is
    /// sent with zero copy; `None` sends everything with one copy in the kernel.
    pub zero_copy_min_bytes: Option<u32>,
    /// Of that, single pieces of at least this many bytes that lie in buffers
    /// are sent from registered ones, which have no huge pages then; `None`
    /// registers nothing.
    pub registered_min_bytes: Option<u32>,
    /// Whether payload goes between sockets and volumes by the shortest way,
    /// many PDUs to a call; `false` to measure what that brings.
    pub fast_path: bool,
    /// What becomes of a start when something of what is to be served is missing.
    pub start: Start,
    /// How the process that serves it is asked and told to change. The target itself
    /// listens on no such socket.
    pub admin: AdminSpec,
    /// What one host may ask for.
    pub limits: Limits,
    /// How much may be read and written in a second.
    pub rate_limits: Vec<RateLimit>,
    /// What the kernel is to do with what goes over connections: the first that is about one
    /// holds for it.
    pub connection_policies: Vec<ConnectionPolicy>,
    /// When snapshots are made by themselves.
    pub snapshot_schedules: Vec<SnapshotSchedule>,
}

/// When snapshots of volumes are made by themselves, and how many stay. Hours, days and weeks
/// are those of UTC, and weeks begin on Mondays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSchedule {
    /// What the names of its snapshots begin with.
    pub name: String,
    /// The volumes, whose snapshots are of one instant.
    pub volumes: Vec<String>,
    /// Hours of which the first snapshot stays; 0: there is none for hours.
    pub hourly: u32,
    /// Days likewise.
    pub daily: u32,
    /// Weeks likewise.
    pub weekly: u32,
}

impl SnapshotSchedule {
    /// Hours, days or weeks at most.
    pub const COUNT_MAX: u32 = 256;
}

/// How administrators reach a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminSpec {
    /// The Unix socket.
    pub socket: AdminSocket,
    /// The address over TCP.
    pub listen: AdminListen,
    /// Where the process keeps what outlives it; `None`: where it is usual.
    pub state: Option<PathBuf>,
    /// Names that the address over TCP is asked by, beside `localhost`.
    pub names: Vec<String>,
    /// Programs that ask over TCP.
    pub tokens: Vec<AdminToken>,
    /// Users of this machine who ask at the Unix socket, beside the process's own and root.
    pub groups: Vec<AdminGroup>,
    /// What encrypts the address over TCP; `None`: nothing does.
    pub tls: Option<TlsFiles>,
    /// Who is known over TCP by a certificate.
    pub clients: Vec<AdminClient>,
}

/// A group of users of this machine, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminGroup {
    /// Its name in the database of groups.
    pub name: String,
    /// What its members may do.
    pub role: AdminRole,
}

/// Who is known by a certificate, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminClient {
    /// A subject alternative name, with its kind: `DNS:`, `URI:` or `email:`.
    pub name: String,
    /// What it may do.
    pub role: AdminRole,
}

/// What a program shows to be let in, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub role: AdminRole,
    /// The SHA-256 of the token, in lower-case hexadecimal.
    pub sha256: String,
}

/// What an administrator may do; each may what those before it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminRole {
    /// Ask.
    #[default]
    Viewer,
    /// Change what is served, and who uses it.
    Operator,
    /// Say who may do what.
    Admin,
}

impl AdminRole {
    /// All of them, from the least to the most.
    pub const ALL: [AdminRole; 3] = [AdminRole::Viewer, AdminRole::Operator, AdminRole::Admin];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AdminRole::Viewer => "viewer",
            AdminRole::Operator => "operator",
            AdminRole::Admin => "admin",
        }
    }

    /// The one of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<AdminRole> {
        AdminRole::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Where administrators reach a process over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AdminListen {
    /// The first free port from [`AdminListen::PORT`] on, on 127.0.0.1.
    #[default]
    Usual,
    /// This address.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

impl AdminListen {
    /// The port that is looked for first.
    pub const PORT: u16 = 4480;
}

/// Where administrators of the same machine reach a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AdminSocket {
    /// Where commands look for it.
    #[default]
    Usual,
    /// A Unix socket of this path.
    At(PathBuf),
    /// Nowhere.
    Off,
}

impl Config {
    /// Takes volumes and file systems away, and with them their namespaces,
    /// logical units and exports of both protocols.
    pub fn leave_out(&mut self, volumes: &[String], file_systems: &[String]) {
        self.volumes.retain(|spec| !volumes.contains(&spec.name));
        for subsystem in &mut self.subsystems {
            let namespaces = &mut subsystem.namespaces;
            namespaces.retain(|namespace| !volumes.contains(&namespace.volume));
        }
        for target in &mut self.iscsi_targets {
            target.luns.retain(|lun| !volumes.contains(&lun.volume));
        }
        self.nbd_exports
            .retain(|export| !volumes.contains(&export.volume));
        self.file_systems
            .retain(|spec| !file_systems.contains(&spec.name));
        self.quotas
            .retain(|spec| !file_systems.contains(&spec.file_system));
        self.exports.retain(|export| match &export.what {
            Exported::FileSystem(name) => !file_systems.contains(name),
            Exported::Referral(_) => true,
        });
    }
}

impl Default for Config {
    /// Nothing served, on every CPU that this process may run on.
    fn default() -> Self {
        Config {
            volumes: Vec::new(),
            subsystems: Vec::new(),
            iscsi_targets: Vec::new(),
            iscsi_discovery: Auth::default(),
            file_systems: Vec::new(),
            quotas: Vec::new(),
            exports: Vec::new(),
            nfs: NfsSettings::default(),
            nbd_exports: Vec::new(),
            nbd_tls: None,
            listeners: Vec::new(),
            referrals: Vec::new(),
            psk_compat: PskCompat::default(),
            cpus: reactor::available_cpus(),
            backend: reactor::Choice::Auto,
            spin_us_max: 50,
            placement: Placement::default(),
            memory_max: 1 << 30,
            zero_copy_min_bytes: None,
            registered_min_bytes: None,
            fast_path: true,
            start: Start::default(),
            admin: AdminSpec::default(),
            limits: Limits::default(),
            rate_limits: Vec::new(),
            connection_policies: Vec::new(),
            snapshot_schedules: Vec::new(),
        }
    }
}

/// An address that is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Where to listen. Port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// What is spoken there.
    pub protocol: Protocol,
    /// What discovery names instead of `address`, where hosts reach it by
    /// another: behind address translation, or by a name.
    pub advertise: Option<Advertise>,
    /// Only the discovery service answers here, and discovery does not name it
    /// as a way to a subsystem. For NVMe.
    pub discovery_only: bool,
    /// Hosts connect by TLS alone; else those that have keys, and NBD clients that ask for it.
    /// For NVMe/TCP and NBD.
    pub requires_tls: bool,
    /// How hosts connect by RDMA. For NVMe and NFS.
    pub rdma: RdmaSpec,
    /// Programs that the port mapper sends clients here for. For NFS.
    pub programs: RpcPrograms,
}

/// How hosts connect by RDMA over iWARP at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaSpec {
    /// Whether they do, and whether they connect without.
    pub transports: Transports,
    /// Which CRCs MPA has.
    pub crc: CrcPolicy,
    /// Most bytes of an FPDU that is sent, 256 to 65536.
    pub fpdu_bytes_max: u32,
    /// RDMA Reads of one connection at a time, 1 to 1024.
    pub reads_max: u16,
}

impl RdmaSpec {
    /// Whether hosts connect by RDMA.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.transports.has(Transport::Rdma)
    }

    /// Whether hosts connect by RDMA alone.
    #[must_use]
    pub fn is_only(&self) -> bool {
        self.transports == Transports::Rdma
    }
}

impl Default for RdmaSpec {
    /// They do not.
    fn default() -> Self {
        RdmaSpec {
            transports: Transports::Tcp,
            crc: CrcPolicy::Prefer,
            fpdu_bytes_max: 64 << 10,
            reads_max: 128,
        }
    }
}

impl ListenerSpec {
    /// What is spoken there, as people call it.
    #[must_use]
    pub fn spoken(&self) -> &'static str {
        match (self.protocol, self.rdma.transports) {
            (Protocol::NvmeTcp, Transports::Tcp) => "NVMe/TCP",
            (Protocol::NvmeTcp, Transports::Both) => "NVMe/TCP and NVMe/RDMA",
            (Protocol::NvmeTcp, Transports::Rdma) => "NVMe/RDMA",
            (Protocol::Iscsi, Transports::Tcp) => "iSCSI",
            (Protocol::Iscsi, Transports::Both) => "iSCSI and iSER",
            (Protocol::Iscsi, Transports::Rdma) => "iSER",
            (Protocol::Nfs, Transports::Tcp) => "NFS",
            (Protocol::Nfs, Transports::Both) => "NFS/RDMA and NFS",
            (Protocol::Nfs, Transports::Rdma) => "NFS/RDMA",
            (Protocol::Nbd, _) => "NBD",
        }
    }

    /// An iSCSI portal.
    pub fn iscsi(address: SocketAddr) -> Self {
        ListenerSpec {
            protocol: Protocol::Iscsi,
            ..ListenerSpec::from(address)
        }
    }

    /// Where NBD is spoken.
    pub fn nbd(address: SocketAddr) -> Self {
        ListenerSpec {
            protocol: Protocol::Nbd,
            ..ListenerSpec::from(address)
        }
    }

    /// Where NFS is spoken.
    pub fn nfs(address: SocketAddr) -> Self {
        ListenerSpec {
            protocol: Protocol::Nfs,
            ..ListenerSpec::from(address)
        }
    }
}

/// What is spoken at a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// NVMe over TCP, and over RDMA where [`ListenerSpec::rdma`] says so.
    #[default]
    NvmeTcp,
    /// iSCSI over TCP, and by RDMA (iSER) where [`ListenerSpec::rdma`] says so.
    Iscsi,
    /// NFS, of every version, and MOUNT.
    Nfs,
    /// NBD.
    Nbd,
}

impl From<SocketAddr> for ListenerSpec {
    /// Where NVMe/TCP is spoken.
    fn from(address: SocketAddr) -> Self {
        ListenerSpec {
            address,
            protocol: Protocol::default(),
            advertise: None,
            discovery_only: false,
            requires_tls: false,
            rdma: RdmaSpec::default(),
            programs: RpcPrograms::default(),
        }
    }
}

/// One NVM subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsystemSpec {
    /// NVMe Qualified Name.
    pub nqn: String,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Model number, at most 40 ASCII characters.
    pub model: String,
    /// Host NQNs that may connect; `None` for any.
    pub hosts: Option<Vec<String>>,
    /// What some of them are held to.
    pub terms: Vec<HostTerms>,
    /// How those authenticate that must.
    pub dhchap: DhchapChoice,
    /// Numbers of the listeners where it is reached; `None` for all.
    pub listeners: Option<Vec<u16>>,
    /// The namespaces.
    pub namespaces: Vec<NamespaceSpec>,
    /// ANA groups whose state is not ANA Optimized everywhere.
    pub ana_groups: Vec<AnaGroup>,
    /// Controller identifiers to give out; `None` for all that there are. Of
    /// targets that serve one subsystem together each has its own.
    pub cntlids: Option<RangeInclusive<u16>>,
}

/// A volume under a namespace identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSpec {
    /// Namespace identifier, from 1.
    pub nsid: u32,
    /// Name of the volume that it serves.
    pub volume: String,
    /// The ANA group it belongs to, from 1.
    pub ana_group: u32,
    /// Host NQNs that see it; `None` for every host of the subsystem.
    pub hosts: Option<Vec<String>>,
}

impl Default for NamespaceSpec {
    /// Of no volume yet, in ANA group 1.
    fn default() -> Self {
        NamespaceSpec {
            nsid: 0,
            volume: String::new(),
            ana_group: 1,
            hosts: None,
        }
    }
}

/// One iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiTargetSpec {
    /// The target itself. Without portal groups it has one, with tag 1, of
    /// every iSCSI listener that there is at the time.
    pub target: Target,
    /// Its logical units.
    pub luns: Vec<LunSpec>,
    /// How good its paths are.
    pub ana: Ana,
    /// Initiators are told when less than this is left below a thin unit, bytes;
    /// they may set another threshold.
    pub space_warning_bytes: Option<u64>,
}

impl IscsiTargetSpec {
    /// A target that every initiator may use at every portal, with no logical
    /// unit yet: for struct update syntax.
    pub fn new(name: impl Into<String>) -> Self {
        IscsiTargetSpec {
            target: Target::new(name),
            luns: Vec::new(),
            ana: Ana::default(),
            space_warning_bytes: None,
        }
    }
}

/// Of a target that names no portal groups: every iSCSI listener, in a group with
/// tag 1.
pub fn default_portal_group<'l>(
    listeners: impl IntoIterator<Item = (u16, &'l ListenerSpec)>,
) -> PortalGroup {
    let listeners = listeners.into_iter();
    let portals = listeners.filter(|(_, spec)| spec.protocol == Protocol::Iscsi);
    PortalGroup {
        tag: 1,
        portals: portals.map(|(number, _)| number).collect(),
        ..PortalGroup::default()
    }
}

/// A volume under a logical unit number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LunSpec {
    /// Logical unit number.
    pub lun: u16,
    /// Name of the volume that it serves.
    pub volume: String,
    /// The ANA group it belongs to, from 1.
    pub ana_group: u32,
}

impl LunSpec {
    /// A volume in ANA group 1.
    pub fn new(lun: u16, volume: impl Into<String>) -> Self {
        LunSpec {
            lun,
            volume: volume.into(),
            ana_group: 1,
        }
    }
}

/// What one host may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues of one controller.
    pub io_queues_max: u16,
    /// Entries of one submission queue.
    pub queue_entries_max: u16,
    /// Data of one NVMe command, bytes (MDTS).
    pub io_bytes_max: u32,
    /// Data of one SCSI command, bytes (MAXIMUM TRANSFER LENGTH).
    pub scsi_io_bytes_max: u32,
    /// In-capsule data of an I/O queue, bytes (IOCCSZ).
    pub in_capsule_bytes_max: u32,
    /// Data of one H2CData PDU, bytes (MAXH2CDATA).
    pub h2c_data_bytes_max: u32,
    /// Data from hosts begins at a multiple of `(cpda + 1) * 4` bytes of its
    /// PDU (CPDA); 0 to 31.
    pub cpda: u8,
    /// Connections of all hosts together.
    pub connections_max: u32,
    /// Connections of one address, or of one subnet (/64) of IPv6.
    pub connections_of_address_max: u32,
    /// Handshakes of TLS that are under way, of all hosts and clients together.
    pub tls_handshakes_max: u32,
    /// Controllers of one host in one subsystem.
    pub controllers_of_host_max: u16,
    /// A connection that has not finished Connect after this is closed.
    pub handshake_timeout_ms: u32,
    /// Whether header digests may be negotiated.
    pub header_digest: bool,
    /// Whether data digests may be negotiated.
    pub data_digest: bool,
    /// What a connection may spend in one turn of its reactor before all others of it
    /// have theirs, in units of [`machine::work`].
    pub turn_units_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            io_queues_max: 128,
            queue_entries_max: 1024,
            io_bytes_max: 1 << 20,
            scsi_io_bytes_max: 8 << 20,
            in_capsule_bytes_max: 16 << 10,
            h2c_data_bytes_max: 1 << 20,
            cpda: 0,
            // 1,024 controllers with 128 I/O queues each.
            connections_max: 1024 * (128 + 1),
            // Hundreds of volumes with a queue for every core of a large machine.
            connections_of_address_max: 16 * 1024,
            // Half a millisecond each of one thread.
            tls_handshakes_max: 1024,
            // Many paths, and machines that were cloned with their host NQN.
            controllers_of_host_max: 256,
            handshake_timeout_ms: 10_000,
            header_digest: true,
            data_digest: true,
            turn_units_max: machine::work::TURN_UNITS_MAX,
        }
    }
}

/// What becomes of a start when a volume or a file system cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Start {
    /// Nothing is served.
    #[default]
    Strict,
    /// Everything else is served.
    Degraded,
}
