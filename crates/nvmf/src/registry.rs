//! Which subsystems there are, where they are reached, and their controllers.

mod authenticated;
mod change;
mod generated;
mod host_controllers;
mod unproven;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use faults::Fault;
use machine::{Nanos, Tag, work};
use wire::nvme::admin::GET_LOG_PAGE;
use wire::nvme::authentication::{ASCR, ATR, Concatenation};
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::fabrics::{CONNECT_DATA_BYTES, ConnectData, NQN_BYTES, nqn_text};
use wire::nvme::{ConnectCommand, PropertyGet, PropertySet, Sqe, Status};
use zerocopy::FromBytes;

use auth::psk::{PskCompat, PskIdentity};

use crate::admin;
use crate::controller::{Activity, Association, Controller, ErrorNote};
use crate::dhchap::controller::ConcatenationTerms;
use crate::dhchap::{DhchapChoice, DhchapKeys};
use crate::discovery::{self, DiscoveryLog, Port};
use crate::identify;
use crate::nqn::check_host_nqn;
use crate::queue::InBandAuthentication;
use crate::request::{AdminOutcome, AdminRequest, Env, Reply};
use crate::sanitize_status::SanitizeStatus;
use crate::subsystem::{
    ADMIN_ENTRIES_MAX, Arrival, CNTLID_MAX, HostTerms, Limits, ListenerSpec, Referral, Subsystem,
};
use crate::transport::Transport;

pub use self::authenticated::AuthenticationRefusal;
pub use self::generated::GeneratedKey;
use self::generated::GeneratedKeys;
use self::host_controllers::HostControllers;
use self::unproven::Unproven;

/// What a registry starts with.
#[derive(Clone, Debug, Default)]
pub struct RegistryConfig {
    /// The subsystems; their NQNs are unique.
    pub subsystems: Vec<Arc<Subsystem>>,
    /// Where hosts reach the target; their numbers are unique.
    pub listeners: Vec<ListenerSpec>,
    /// Other discovery services.
    pub referrals: Vec<Referral>,
}

/// How a host reached us.
#[derive(Clone, Debug)]
pub struct Via {
    /// The driver's own name for the connection: comes back when it is to be closed.
    pub connection: u64,
    /// Number of the listener, see [`ListenerSpec::number`].
    pub listener: u16,
    /// Our address.
    pub local: SocketAddr,
    /// The host's address.
    pub peer: SocketAddr,
    /// What of that one machine has: all of IPv4's, of IPv6's the subnet prefix.
    pub network: IpAddr,
    /// The identity of the key that its TLS is made with; `None`: it speaks none.
    pub psk_identity: Option<String>,
    /// What carries the connection.
    pub transport: Transport,
}

impl Via {
    /// The identity, where the host has made its key by authentication.
    fn generated_key(&self) -> Option<&str> {
        let identity = self.psk_identity.as_deref()?;
        let named = PskIdentity::parse(identity)?;
        named.is_generated.then_some(identity)
    }

    fn arrival(&self) -> Arrival {
        Arrival {
            address: self.peer.ip(),
            is_encrypted: self.psk_identity.is_some(),
            transport: self.transport,
        }
    }
}

/// What a change asks of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ControllerChange {
    /// Connections of Admin Queues whose [`Controller::take_event`] now has
    /// something.
    pub events: Vec<u64>,
    /// Connections to close.
    pub closing: Vec<u64>,
}

/// Names a controller for the life of the registry; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(u64);

/// A queue was connected.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Its controller.
    pub controller: ControllerId,
    /// Controller ID.
    pub cntlid: u16,
    /// Queue ID, 0 for the Admin Queue.
    pub qid: u16,
    /// Entries of the submission queue (not 0's based).
    pub entries: u32,
    /// The host asked for no SQ flow control.
    pub flow_control_disabled: bool,
    /// The subsystem as of now; one without namespaces for discovery.
    pub subsystem: Arc<Subsystem>,
    /// Where the connection reports that commands arrive.
    pub activity: Arc<Activity>,
    /// Completion dword 0: the Controller ID, and whether authentication is required.
    pub result: u32,
    /// Whether the host authenticates.
    pub authentication: InBandAuthentication,
    /// The keys for TLS that it may make by that, or must.
    pub concatenation: ConcatenationTerms,
    /// Another Host Identifier, under which controllers of the same host NQN are connected: two
    /// hosts have one name.
    pub other_hostid: Option<[u8; 16]>,
    /// Connections to close: of a controller whose host has not authenticated, which has ended
    /// for this one.
    pub closing: Vec<u64>,
}

/// A Connect was refused (Base 2.0, section 6.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status.
    pub status: Status,
    /// Completion dword 0: which parameter is invalid, for Connect Invalid Parameters
    /// and Connect Invalid Host.
    pub result: u32,
    /// For the log of the target: one status stands for many reasons.
    pub reason: Cow<'static, str>,
}

impl Refusal {
    fn new(status: Status, reason: impl Into<Cow<'static, str>>) -> Self {
        Refusal {
            status,
            result: 0,
            reason: reason.into(),
        }
    }

    /// A parameter of the command is invalid: byte `offset` of the entry.
    fn command(offset: u32, reason: impl Into<Cow<'static, str>>) -> Self {
        Refusal {
            result: offset,
            ..Refusal::new(Status::CONNECT_INVALID_PARAMETERS.dnr(), reason)
        }
    }

    /// A parameter of the data is invalid: byte `offset` of the data (IATTR is 1).
    fn data(offset: usize, reason: impl Into<Cow<'static, str>>) -> Self {
        Refusal::command(1 << 16 | offset as u32, reason)
    }
}

/// Bytes of the parameters in the command.
const QID: u32 = 42;
const SQSIZE: u32 = 44;
/// Bytes of the parameters in the data.
const HOSTID: usize = 0;
const CNTLID: usize = 16;
const SUBNQN: usize = 256;
const HOSTNQN: usize = 512;

const NO_CONTROLLER: &str = "there is no such controller";
const QUEUE_SIZE: &str = "its queue has 1 entry or too many: `queue_entries_max` is the most";

/// A subsystem with the controllers in use.
struct SubsystemEntry {
    subsystem: Arc<Subsystem>,
    is_discovery: bool,
    controllers: BTreeMap<u16, ControllerId>,
    /// Which of them a host has, by its NQN; those with any.
    of_hosts: BTreeMap<String, HostControllers>,
    unproven: Unproven,
    /// Where the search for a free Controller ID starts: an ID rests before it
    /// is given out again.
    cntlid_next: u16,
    /// Keys for TLS that hosts have made by authentication.
    generated: GeneratedKeys,
}

/// Which subsystems there are, where they are reached, and their controllers.
pub struct Registry {
    entries: BTreeMap<String, SubsystemEntry>,
    listeners: Vec<ListenerSpec>,
    referrals: Vec<Referral>,
    controllers: BTreeMap<ControllerId, Controller>,
    id_next: u64,
    generation: u64,
    is_drained: bool,
    psk_compat: PskCompat,
    /// The subsystems of which a host has keys, or can make them.
    with_keys: BTreeSet<String>,
    /// How the last sanitize operation of each subsystem stands.
    sanitized: BTreeMap<String, SanitizeStatus>,
}

impl Registry {
    /// A registry of `config` and the discovery subsystem.
    ///
    /// # Panics
    /// On two subsystems of one NQN, and on Controller or namespace identifiers
    /// out of range or twice: configuration is checked before.
    pub fn new(config: RegistryConfig) -> Self {
        let mut registry = Registry {
            entries: BTreeMap::new(),
            listeners: config.listeners,
            referrals: config.referrals,
            controllers: BTreeMap::new(),
            id_next: 0,
            generation: 1,
            is_drained: false,
            psk_compat: PskCompat::default(),
            with_keys: BTreeSet::new(),
            sanitized: BTreeMap::new(),
        };
        registry.insert(Arc::new(discovery_subsystem()), true);
        for subsystem in config.subsystems {
            registry.insert(subsystem, false);
        }
        registry
    }

    fn insert(&mut self, subsystem: Arc<Subsystem>, is_discovery: bool) {
        let (first, last) = (*subsystem.cntlids.start(), *subsystem.cntlids.end());
        assert!(
            1 <= first && first <= last && last <= CNTLID_MAX,
            "Controller IDs {first} to {last} of {}",
            subsystem.nqn
        );
        change::check_namespaces(&subsystem);
        self.note_keys(&subsystem);
        let nqn = subsystem.nqn.clone();
        let entry = SubsystemEntry {
            subsystem,
            is_discovery,
            controllers: BTreeMap::new(),
            of_hosts: BTreeMap::new(),
            unproven: Unproven::default(),
            cntlid_next: first,
            generated: GeneratedKeys::default(),
        };
        let previous = self.entries.insert(nqn, entry);
        assert!(previous.is_none(), "two subsystems of one NQN");
    }

    fn note_keys(&mut self, subsystem: &Subsystem) {
        let may_speak_tls = |terms: &HostTerms| terms.needs_tls() || terms.dhchap.is_some();
        match subsystem.terms.iter().any(may_speak_tls) {
            true => self.with_keys.insert(subsystem.nqn.clone()),
            false => self.with_keys.remove(&subsystem.nqn),
        };
    }

    /// Whether any host has a key, or can make one by authentication, so that some speak TLS.
    pub fn has_keys(&self) -> bool {
        !self.with_keys.is_empty()
    }

    /// Which derivations of keys for TLS hosts may have.
    pub fn psk_compat(&self) -> PskCompat {
        self.psk_compat
    }

    /// Sets it, for handshakes from now on.
    pub fn set_psk_compat(&mut self, compat: PskCompat) {
        self.psk_compat = compat;
    }

    /// The subsystems, the discovery subsystem excluded.
    pub fn subsystems(&self) -> impl Iterator<Item = &Arc<Subsystem>> {
        self.entries
            .values()
            .filter(|entry| !entry.is_discovery)
            .map(|entry| &entry.subsystem)
    }

    /// Live controllers.
    pub fn controllers(&self) -> impl Iterator<Item = (ControllerId, &Controller)> {
        self.controllers
            .iter()
            .map(|(id, controller)| (*id, controller))
    }

    /// The same, to be changed.
    pub(crate) fn controllers_mut(&mut self) -> impl Iterator<Item = &mut Controller> {
        self.controllers.values_mut()
    }

    /// A controller, unless it is gone.
    pub fn controller(&mut self, id: ControllerId) -> Option<&mut Controller> {
        self.controllers.get_mut(&id)
    }

    /// Whether any subsystem has a controller of that ID that came by the same listener.
    pub fn has_cntlid(&self, cntlid: u16, listener: u16) -> bool {
        work::spend(self.entries.len() as u64);
        let mut own = self.entries.values().filter_map(|entry| {
            let id = entry.controllers.get(&cntlid)?;
            self.controllers.get(id)
        });
        own.any(|controller| controller.listener == listener)
    }

    /// Connect (Base 2.0, section 6.3): creates a controller for an Admin
    /// Queue, finds it for an I/O queue. `data` is what came with the command.
    pub fn connect(
        &mut self,
        command: &ConnectCommand,
        data: &[u8],
        via: &Via,
        now: Nanos,
    ) -> Result<Connected, Refusal> {
        let data = connect_data(data).ok_or_else(|| {
            let status = Status::DATA_SGL_LENGTH_INVALID.dnr();
            Refusal::new(status, "its data is shorter than 1024 bytes")
        })?;
        if command.recfmt != 0 {
            let status = Status::CONNECT_FORMAT.dnr();
            return Err(Refusal::new(status, "its record format is not 0"));
        }
        let subnqn = nqn_text(&data.subnqn);
        let subnqn = subnqn.ok_or_else(|| Refusal::data(SUBNQN, "its subsystem is no NQN"))?;
        let hostnqn = host_name(&data.hostnqn)?;
        self.reached(subnqn, via.listener)?;
        self.is_own_key(subnqn, hostnqn, via)?;
        if command.qid == 0 {
            self.connect_admin(command, data, subnqn, hostnqn, via, now)
        } else {
            self.connect_io(command, data, subnqn, hostnqn, via)
        }
    }

    /// Whether there is a subsystem of that NQN where the host came in.
    fn reached(&self, subnqn: &str, listener: u16) -> Result<(), Refusal> {
        let entry = self.entries.get(subnqn);
        let entry = entry.ok_or_else(|| Refusal::data(SUBNQN, "there is no such subsystem"))?;
        let discovery_only = self
            .listeners
            .iter()
            .any(|spec| spec.number == listener && spec.discovery_only);
        match () {
            () if entry.is_discovery => Ok(()),
            () if discovery_only => Err(Refusal::data(
                SUBNQN,
                "this listener is for discovery alone (`discovery_only`)",
            )),
            () if !entry.subsystem.is_on(listener) => Err(Refusal::data(
                SUBNQN,
                "the subsystem is not on this listener: its `listeners` say where it is",
            )),
            () => Ok(()),
        }
    }

    /// Whether a host that speaks TLS does so by a key of its own: who has a key is not
    /// whoever it says.
    fn is_own_key(&self, subnqn: &str, hostnqn: &str, via: &Via) -> Result<(), Refusal> {
        let identity = via.psk_identity.as_ref();
        let Some(identity) = identity.filter(|_| !faults::is(Fault::OtherIdentity)) else {
            return Ok(());
        };
        let named = PskIdentity::parse(identity);
        if named.is_none_or(|named| named.hostnqn != hostnqn) {
            return Err(Refusal {
                status: Status::CONNECT_INVALID_HOST.dnr(),
                ..Refusal::data(HOSTNQN, "its TLS identity is another host's")
            });
        }
        match named.is_some_and(|named| named.subnqn == subnqn) {
            true => Ok(()),
            false => Err(Refusal::data(
                SUBNQN,
                "its TLS identity is for another subsystem",
            )),
        }
    }

    fn connect_admin(
        &mut self,
        command: &ConnectCommand,
        data: &ConnectData,
        subnqn: &str,
        hostnqn: &str,
        via: &Via,
        now: Nanos,
    ) -> Result<Connected, Refusal> {
        let entry = self.entries.get_mut(subnqn).expect("looked up before");
        if self.is_drained && !entry.is_discovery {
            let reason = "weft is drained: `weft drain --end` lets hosts in again";
            return Err(Refusal::new(Status::CONNECT_BUSY, reason));
        }
        if let Some(reason) = not_admitted(&entry.subsystem, hostnqn, via) {
            return Err(Refusal {
                status: Status::CONNECT_INVALID_HOST.dnr(),
                ..Refusal::data(HOSTNQN, reason)
            });
        }
        if data.cntlid.get() != 0xffff {
            return Err(Refusal::data(
                CNTLID,
                "it asks for a controller ID, and weft gives them out",
            ));
        }
        if command.sqsize == 0 || command.sqsize >= ADMIN_ENTRIES_MAX {
            return Err(Refusal::command(SQSIZE, QUEUE_SIZE));
        }
        // Controllers end and Controller IDs come free again: the host may try later.
        let max = entry.subsystem.limits.controllers_of_host_max;
        let of_host = entry.of_hosts.get(hostnqn);
        let other_hostid = of_host.and_then(|own| own.other_hostid(data.hostid));
        if of_host.is_some_and(|own| own.count() >= max) {
            let reason = format!("controllers_of_host_max = {max} is reached");
            return Err(Refusal::new(Status::CONNECT_BUSY, reason));
        }
        let cntlid = entry.free_cntlid().ok_or_else(|| {
            let reason = "all controller IDs are in use: `cntlids` says how many there are";
            Refusal::new(Status::CONNECT_BUSY, reason)
        })?;
        let id = ControllerId(self.id_next);
        let association = Association {
            subsystem: entry.subsystem.clone(),
            is_discovery: entry.is_discovery,
            cntlid,
            hostid: data.hostid,
            hostnqn: hostnqn.to_owned(),
            listener: via.listener,
            local: via.local,
            arrival: via.arrival(),
            kato_ms: command.kato_ms,
        };
        let mut controller = Controller::new(association, now);
        controller.generated_key = via.generated_key().map(str::to_owned);
        controller.add_queue(0, via.connection);
        let connected = connected(id, &controller, command, via);
        controller.is_proven = connected.authentication != InBandAuthentication::Required;
        let ended = match controller.is_proven {
            true => {
                let of_host = entry.of_hosts.entry(hostnqn.to_owned()).or_default();
                of_host.add(data.hostid);
                None
            }
            // They have half of the Controller IDs at most, whichever hosts they are of.
            false => {
                let max = (entry.subsystem.cntlids.len() / 2).max(1);
                entry.unproven.add(id, hostnqn, via, max)?
            }
        };
        self.id_next += 1;
        entry.controllers.insert(cntlid, id);
        self.controllers.insert(id, controller);
        Ok(Connected {
            other_hostid,
            closing: ended.map_or_else(Vec::new, |ended| self.end_controller(ended)),
            ..connected
        })
    }

    fn connect_io(
        &mut self,
        command: &ConnectCommand,
        data: &ConnectData,
        subnqn: &str,
        hostnqn: &str,
        via: &Via,
    ) -> Result<Connected, Refusal> {
        let id = *self.entries[subnqn]
            .controllers
            .get(&data.cntlid.get())
            .ok_or_else(|| Refusal::data(CNTLID, NO_CONTROLLER))?;
        let controller = self
            .controllers
            .get_mut(&id)
            .expect("listed controllers live");
        if controller.has_ended() {
            return Err(Refusal::data(CNTLID, NO_CONTROLLER));
        }
        if controller.hostnqn != hostnqn {
            return Err(Refusal::data(HOSTNQN, "the controller is another host's"));
        }
        if controller.arrival.is_encrypted != via.psk_identity.is_some() {
            return Err(Refusal {
                status: Status::CONNECT_INVALID_HOST.dnr(),
                ..Refusal::data(
                    HOSTNQN,
                    "some queues of its controller speak TLS, others do not",
                )
            });
        }
        let is_admitted = controller.subsystem.admits(hostnqn, via.arrival());
        if !is_admitted || controller.only_makes_key() {
            return Err(Refusal {
                status: Status::CONNECT_INVALID_HOST.dnr(),
                ..Refusal::data(
                    HOSTNQN,
                    "its controller is there to make a key for TLS (`--concat`), with which the \
                     host connects again",
                )
            });
        }
        if controller.hostid != data.hostid {
            return Err(Refusal::data(
                HOSTID,
                "the controller is another host's (host ID)",
            ));
        }
        // Queues of an association are on one port (Base 2.0, section 3.1.2): ANA
        // states are a port's.
        if controller.came_by() != (via.listener, via.transport) {
            return Err(Refusal::data(
                CNTLID,
                "the controller was connected through another listener or transport",
            ));
        }
        let limits = &controller.subsystem.limits;
        if controller.is_discovery || command.qid > limits.io_queues_max {
            return Err(Refusal::command(
                QID,
                "there is no such I/O queue: `io_queues_max` says how many there are",
            ));
        }
        if command.sqsize == 0 || command.sqsize >= limits.queue_entries_max {
            return Err(Refusal::command(SQSIZE, QUEUE_SIZE));
        }
        if !controller.is_ready() || controller.has_queue(command.qid) {
            let status = Status::COMMAND_SEQUENCE.dnr();
            let reason = "the controller is not enabled, or has that queue already";
            return Err(Refusal::new(status, reason));
        }
        controller.add_queue(command.qid, via.connection);
        // Older Linux hosts send no Keep Alive before all their queues are connected.
        controller.note_traffic();
        Ok(connected(id, controller, command, via))
    }

    /// Ends a controller; connections to close.
    fn end_controller(&mut self, id: ControllerId) -> Vec<u64> {
        let controller = self.live(id);
        controller.end();
        controller.take_closing()
    }

    /// The connection of a connected queue has ended and nothing of it is in
    /// flight any more. Returns connections to close: without its Admin Queue
    /// a controller ends.
    pub fn disconnected(&mut self, id: ControllerId, qid: u16) -> Vec<u64> {
        let Some(controller) = self.controllers.get_mut(&id) else {
            return Vec::new();
        };
        controller.remove_queue(qid);
        let closing = controller.take_closing();
        if !controller.has_queues() {
            let controller = self.controllers.remove(&id).expect("found before");
            let entry = self.entries.get_mut(&controller.subsystem.nqn);
            // The NQN may be another subsystem's by now.
            if let Some(entry) = entry
                && entry.controllers.get(&controller.cntlid) == Some(&id)
            {
                entry.controllers.remove(&controller.cntlid);
                entry.let_go(id, &controller);
                if let Some(identity) = &controller.generated_key {
                    entry.generated.remove(&controller.hostnqn, identity);
                }
            }
        }
        closing
    }

    /// The secrets that the host of a controller authenticates with, if it must, and how,
    /// as of now.
    pub fn dhchap(&self, id: ControllerId) -> Option<(DhchapKeys, DhchapChoice)> {
        let controller = self.controllers.get(&id)?;
        let subsystem = &controller.subsystem;
        let keys = subsystem.dhchap_keys(&controller.hostnqn)?;
        Some((keys.clone(), subsystem.dhchap.clone()))
    }

    /// Property Get on a controller's Admin Queue.
    ///
    /// # Panics
    /// If the controller is gone: it lives as long as its Admin Queue.
    pub fn property_get(&mut self, id: ControllerId, get: PropertyGet) -> Reply {
        let controller = self.live(id);
        controller.note_traffic();
        controller.property_get(get)
    }

    /// Property Set on a controller's Admin Queue; see
    /// [`Controller::take_closing`] and [`Controller::take_event`].
    ///
    /// # Panics
    /// If the controller is gone: it lives as long as its Admin Queue.
    pub fn property_set(&mut self, id: ControllerId, set: PropertySet, now: Nanos) -> Reply {
        let controller = self.live(id);
        controller.note_traffic();
        controller.property_set(set, now)
    }

    /// Executes an admin command of a controller. `data` came with it, data to
    /// the host is written to the start of `out`. Ask
    /// [`Controller::take_event`] afterwards.
    ///
    /// # Panics
    /// If the controller is gone: it lives as long as its Admin Queue.
    pub fn admin(
        &mut self,
        id: ControllerId,
        tag: Tag,
        sqe: &Sqe,
        data: &[u8],
        out: &mut [u8],
        env: &Env<'_>,
    ) -> AdminOutcome {
        let controller = &self.controllers[&id];
        let is_of_now = controller.discovery_log.is_of(self.generation);
        if controller.is_discovery && sqe.opcode == GET_LOG_PAGE && !is_of_now {
            let log = Arc::new(self.discovery_log(controller));
            self.live(id).discovery_log = log;
        }
        let controller = &self.controllers[&id];
        if controller.has_ended() {
            // Its connections are being closed; its subsystem may be gone.
            return AdminOutcome::Done(Reply::failed(Status::ABORTED_SQ_DELETION));
        }
        let controllers = if identify::lists_controllers(sqe) {
            self.hosts(&controller.subsystem.nqn)
        } else {
            BTreeMap::new()
        };
        let discovery = controller.discovery_log.clone();
        let sanitized = self.sanitized.get(&controller.subsystem.nqn).copied();
        let request = AdminRequest {
            controller: self.controllers.get_mut(&id).expect("found before"),
            sqe,
            data,
            out,
            env,
            controllers: &controllers,
            discovery: &discovery,
            sanitize: sanitized.unwrap_or_default(),
        };
        admin::execute(request, tag)
    }

    /// Hosts of a subsystem's controllers by Controller ID.
    fn hosts(&self, nqn: &str) -> BTreeMap<u16, String> {
        let controllers = self.entries[nqn].controllers.iter();
        work::spend(controllers.len() as u64);
        controllers
            .map(|(cntlid, id)| (*cntlid, self.controllers[id].hostnqn.clone()))
            .collect()
    }

    /// Puts a failed I/O command into its controller's Error Information log.
    /// A medium that failed is told as SMART / Health Status, an error of ours
    /// as Transient Internal Error.
    pub fn note_error(&mut self, id: ControllerId, note: ErrorNote) -> ControllerChange {
        let mut change = ControllerChange::default();
        if let Some(controller) = self.controllers.get_mut(&id)
            && controller.note_error(note)
        {
            change.events.extend(controller.admin_connection());
        }
        change
    }

    /// The discovery log as the host of a discovery controller sees it.
    fn discovery_log(&self, controller: &Controller) -> DiscoveryLog {
        let visible = self
            .subsystems()
            .inspect(|subsystem| {
                let hosts = subsystem.hosts.as_ref().map_or(0, Vec::len);
                work::spend(1 + (hosts + subsystem.terms.len()) as u64)
            })
            .filter(|subsystem| {
                subsystem.is_visible_from(&controller.hostnqn, controller.arrival.address)
            });
        DiscoveryLog::new(
            self.generation,
            &controller.hostnqn,
            visible,
            self.ports(controller),
            &self.referrals,
        )
    }

    /// The listeners as a controller's host reaches them.
    fn ports(&self, controller: &Controller) -> Vec<Port> {
        discovery::ports(&self.listeners, controller.came_by(), controller.local)
    }

    fn live(&mut self, id: ControllerId) -> &mut Controller {
        self.controllers
            .get_mut(&id)
            .expect("a controller lives as long as its Admin Queue")
    }
}

/// Why a subsystem is not for a host that came so, if it is not.
fn not_admitted(subsystem: &Subsystem, hostnqn: &str, via: &Via) -> Option<&'static str> {
    if !subsystem.allows(hostnqn) {
        return Some(match hostnqn {
            "" => "the host gives no NQN; give it one of `hosts`, or set `allow_any_host`",
            _ => "the host is not among the subsystem's `hosts`",
        });
    }
    if !subsystem.is_visible_from(hostnqn, via.peer.ip()) {
        return Some("the host comes from an address that its `networks` do not have");
    }
    // A host that authenticates may do so first, to make a key.
    let may_concatenate = via.transport.has_tls() && subsystem.dhchap_keys(hostnqn).is_some();
    let is_out = !may_concatenate && !subsystem.admits(hostnqn, via.arrival());
    is_out.then_some(match via.transport {
        Transport::Tcp => "the host has a key for TLS, and connects without: `nvme connect --tls`",
        Transport::Rdma => {
            "the host has a key for TLS, which RDMA has not: `nvme connect -t tcp --tls`"
        }
    })
}

fn connect_data(data: &[u8]) -> Option<&ConnectData> {
    ConnectData::ref_from_bytes(data.get(..CONNECT_DATA_BYTES)?).ok()
}

/// The host and the subsystem that the data of a Connect names, for the log: nothing
/// of it is checked.
pub fn connect_names(data: &[u8]) -> (Option<&str>, Option<&str>) {
    match connect_data(data) {
        Some(data) => (nqn_text(&data.hostnqn), nqn_text(&data.subnqn)),
        None => (None, None),
    }
}

/// The NQN of a host (Base 2.0, section 4.5). SPDK's tools name none unless they are
/// told to: then it is empty, which no list of allowed hosts has.
fn host_name(field: &[u8; NQN_BYTES]) -> Result<&str, Refusal> {
    if field[0] == 0 {
        return Ok("");
    }
    let name = nqn_text(field);
    let name = name.ok_or_else(|| {
        Refusal::data(
            HOSTNQN,
            "its host is no NQN: it is not UTF-8, or has no zero byte at its end",
        )
    })?;
    check_host_nqn(name).map_err(|why| {
        let reason = format!("its host is no NQN: {why}");
        Refusal::data(HOSTNQN, reason)
    })?;
    Ok(name)
}

fn connected(
    id: ControllerId,
    controller: &Controller,
    command: &ConnectCommand,
    via: &Via,
) -> Connected {
    let (subsystem, hostnqn) = (&controller.subsystem, &controller.hostnqn);
    let is_admitted = subsystem.admits(hostnqn, via.arrival());
    let concatenation = match (command.qid, &via.psk_identity) {
        _ if !via.transport.has_tls() => ConcatenationTerms::None,
        (0, None) if !is_admitted => ConcatenationTerms::Required(Concatenation::NewTlsPsk),
        (0, None) => ConcatenationTerms::Allowed(Concatenation::NewTlsPsk),
        (0, Some(_)) => ConcatenationTerms::Allowed(Concatenation::ReplaceTlsPsk),
        _ => ConcatenationTerms::None,
    };
    // A key that was made by authentication stands for it.
    let keys = subsystem.dhchap_keys(hostnqn);
    let keys = keys.filter(|_| !faults::is(Fault::NoAuthentication));
    let (authentication, authreq) = match keys {
        None => (InBandAuthentication::None, 0),
        Some(_) if via.generated_key().is_some() => (InBandAuthentication::Allowed, 0),
        Some(_) if is_admitted => (InBandAuthentication::Required, ATR),
        Some(_) => (InBandAuthentication::Required, ASCR),
    };
    Connected {
        controller: id,
        cntlid: controller.cntlid,
        qid: command.qid,
        entries: u32::from(command.sqsize) + 1,
        flow_control_disabled: command.cattr & ConnectCommand::DISABLE_SQ_FLOW_CONTROL != 0,
        subsystem: controller.subsystem.clone(),
        activity: controller.activity().clone(),
        result: u32::from(controller.cntlid) | authreq,
        authentication,
        concatenation,
        other_hostid: None,
        closing: Vec::new(),
    }
}

impl SubsystemEntry {
    /// A host has one controller less.
    fn let_go(&mut self, id: ControllerId, controller: &Controller) {
        if !controller.is_proven {
            return self.unproven.remove(id);
        }
        if let Some(of_host) = self.of_hosts.get_mut(&controller.hostnqn) {
            of_host.remove();
            if of_host.count() == 0 {
                self.of_hosts.remove(&controller.hostnqn);
            }
        }
    }

    /// The next free Controller ID, in turn.
    fn free_cntlid(&mut self) -> Option<u16> {
        let (first, last) = (
            *self.subsystem.cntlids.start(),
            *self.subsystem.cntlids.end(),
        );
        let start = self.cntlid_next.clamp(first, last);
        let free = (start..=last)
            .chain(first..start)
            .find(|cntlid| !self.controllers.contains_key(cntlid))?;
        self.cntlid_next = if free == last { first } else { free + 1 };
        Some(free)
    }
}

fn discovery_subsystem() -> Subsystem {
    Subsystem {
        nqn: DISCOVERY_NQN.to_owned(),
        serial: String::new(),
        model: "weft discovery".to_owned(),
        firmware: env!("CARGO_PKG_VERSION").to_owned(),
        hosts: None,
        terms: Vec::new(),
        dhchap: DhchapChoice::default(),
        listeners: None,
        namespaces: Arc::new([]),
        ana_groups: Vec::new(),
        limits: Limits {
            io_queues_max: 0,
            queue_entries_max: ADMIN_ENTRIES_MAX,
            io_bytes_max: 1 << 20,
            in_capsule_bytes_max: 0,
            controllers_of_host_max: 256,
        },
        cntlids: 1..=CNTLID_MAX,
        is_drained: false,
    }
}
