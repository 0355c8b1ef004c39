//! Which subsystems there are, where they are reached, and who is connected.

mod change;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use machine::{Nanos, Tag, work};
use wire::nvme::admin::GET_LOG_PAGE;
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::fabrics::{CONNECT_DATA_BYTES, ConnectData, NQN_BYTES, nqn_text};
use wire::nvme::{ConnectCommand, PropertyGet, PropertySet, Sqe, Status};
use zerocopy::FromBytes;

use crate::admin::{self, Env, Outcome, Reply, Request};
use crate::controller::{Activity, Association, Controller, ErrorNote};
use crate::discovery::{self, DiscoveryLog, Port};
use crate::identify;
use crate::subsystem::{CNTLID_MAX, Limits, ListenerSpec, Referral, Subsystem};

/// Entries of an Admin Queue (ASQSZ).
pub(crate) const ADMIN_ENTRIES_MAX: u16 = 128;

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
#[derive(Clone, Copy, Debug)]
pub struct Via {
    /// The driver's own name for the connection: comes back when it is to be closed.
    pub connection: u64,
    /// Number of the listener, see [`ListenerSpec::number`].
    pub listener: u16,
    /// Our address.
    pub local: SocketAddr,
    /// The host's address.
    pub peer: SocketAddr,
}

/// What a change asks of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Change {
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
    /// Completion dword 0: the Controller ID, no authentication required.
    pub result: u32,
}

/// A Connect was refused (Base 2.0, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status.
    pub status: Status,
    /// Completion dword 0: which parameter is invalid, for Connect Invalid Parameters
    /// and Connect Invalid Host.
    pub result: u32,
    /// The limit of the configuration that is in the way, and its value.
    pub limit: Option<(&'static str, u16)>,
}

impl Refusal {
    fn new(status: Status) -> Self {
        Refusal {
            status,
            result: 0,
            limit: None,
        }
    }

    /// A parameter of the command is invalid: byte `offset` of the entry.
    fn command(offset: u32) -> Self {
        Refusal {
            result: offset,
            ..Refusal::new(Status::CONNECT_INVALID_PARAMETERS.dnr())
        }
    }

    /// A parameter of the data is invalid: byte `offset` of the data (IATTR is 1).
    fn data(offset: usize) -> Self {
        Refusal {
            result: 1 << 16 | offset as u32,
            ..Refusal::new(Status::CONNECT_INVALID_PARAMETERS.dnr())
        }
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

/// A subsystem with the controllers in use.
struct Entry {
    subsystem: Arc<Subsystem>,
    is_discovery: bool,
    controllers: BTreeMap<u16, ControllerId>,
    /// How many of them a host has, by its NQN; those with any.
    of_hosts: BTreeMap<String, u16>,
    /// Where the search for a free Controller ID starts: an ID rests before it
    /// is given out again.
    cntlid_next: u16,
}

/// Which subsystems there are, where they are reached, and who is connected.
pub struct Registry {
    entries: BTreeMap<String, Entry>,
    listeners: Vec<ListenerSpec>,
    referrals: Vec<Referral>,
    controllers: BTreeMap<ControllerId, Controller>,
    id_next: u64,
    generation: u64,
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
        let nqn = subsystem.nqn.clone();
        let entry = Entry {
            subsystem,
            is_discovery,
            controllers: BTreeMap::new(),
            of_hosts: BTreeMap::new(),
            cntlid_next: first,
        };
        let previous = self.entries.insert(nqn, entry);
        assert!(previous.is_none(), "two subsystems of one NQN");
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

    /// Connect (Base 2.0, section 6.3): creates a controller for an Admin
    /// Queue, finds it for an I/O queue. `data` is what came with the command.
    pub fn connect(
        &mut self,
        command: &ConnectCommand,
        data: &[u8],
        via: &Via,
        now: Nanos,
    ) -> Result<Connected, Refusal> {
        let data = data
            .get(..CONNECT_DATA_BYTES)
            .and_then(|bytes| ConnectData::ref_from_bytes(bytes).ok())
            .ok_or(Refusal::new(Status::DATA_SGL_LENGTH_INVALID.dnr()))?;
        if command.recfmt != 0 {
            return Err(Refusal::new(Status::CONNECT_FORMAT.dnr()));
        }
        let subnqn = nqn_text(&data.subnqn).ok_or(Refusal::data(SUBNQN))?;
        let hostnqn = host_name(&data.hostnqn).ok_or(Refusal::data(HOSTNQN))?;
        if !self.is_reached(subnqn, via.listener) {
            return Err(Refusal::data(SUBNQN));
        }
        if command.qid == 0 {
            self.connect_admin(command, data, subnqn, hostnqn, via, now)
        } else {
            self.connect_io(command, data, subnqn, hostnqn, via)
        }
    }

    /// Whether there is a subsystem of that NQN where the host came in.
    fn is_reached(&self, subnqn: &str, listener: u16) -> bool {
        let Some(entry) = self.entries.get(subnqn) else {
            return false;
        };
        let discovery_only = self
            .listeners
            .iter()
            .any(|spec| spec.number == listener && spec.discovery_only);
        entry.is_discovery || (!discovery_only && entry.subsystem.is_on(listener))
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
        if !entry.subsystem.allows(hostnqn) {
            return Err(Refusal {
                status: Status::CONNECT_INVALID_HOST.dnr(),
                ..Refusal::data(HOSTNQN)
            });
        }
        if data.cntlid.get() != 0xffff {
            return Err(Refusal::data(CNTLID));
        }
        if command.sqsize == 0 || command.sqsize >= ADMIN_ENTRIES_MAX {
            return Err(Refusal::command(SQSIZE));
        }
        // Controllers end and Controller IDs come free again: the host may try later.
        let max = entry.subsystem.limits.controllers_of_host_max;
        let of_host = entry.of_hosts.get(hostnqn).copied().unwrap_or(0);
        if of_host >= max {
            return Err(Refusal {
                limit: Some(("controllers_of_host_max", max)),
                ..Refusal::new(Status::CONNECT_BUSY)
            });
        }
        let cntlid = entry
            .free_cntlid()
            .ok_or(Refusal::new(Status::CONNECT_BUSY))?;
        let id = ControllerId(self.id_next);
        self.id_next += 1;
        entry.controllers.insert(cntlid, id);
        entry.of_hosts.insert(hostnqn.to_owned(), of_host + 1);
        let association = Association {
            subsystem: entry.subsystem.clone(),
            is_discovery: entry.is_discovery,
            cntlid,
            hostid: data.hostid,
            hostnqn: hostnqn.to_owned(),
            listener: via.listener,
            local: via.local,
            kato_ms: command.kato_ms,
        };
        let mut controller = Controller::new(association, now);
        controller.add_queue(0, via.connection);
        let connected = connected(id, &controller, command);
        self.controllers.insert(id, controller);
        Ok(connected)
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
            .ok_or(Refusal::data(CNTLID))?;
        let controller = self
            .controllers
            .get_mut(&id)
            .expect("listed controllers live");
        if controller.has_ended() {
            return Err(Refusal::data(CNTLID));
        }
        if controller.hostnqn != hostnqn {
            return Err(Refusal::data(HOSTNQN));
        }
        if controller.hostid != data.hostid {
            return Err(Refusal::data(HOSTID));
        }
        // Queues of an association are on one port (Base 2.0, section 3.1.2): ANA
        // states are a port's.
        if controller.listener != via.listener {
            return Err(Refusal::data(CNTLID));
        }
        let limits = &controller.subsystem.limits;
        if controller.is_discovery || command.qid > limits.io_queues_max {
            return Err(Refusal::command(QID));
        }
        if command.sqsize == 0 || command.sqsize >= limits.queue_entries_max {
            return Err(Refusal::command(SQSIZE));
        }
        if !controller.is_ready() || controller.has_queue(command.qid) {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE.dnr()));
        }
        controller.add_queue(command.qid, via.connection);
        Ok(connected(id, controller, command))
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
                entry.let_go(&controller.hostnqn);
            }
        }
        closing
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
    ) -> Outcome {
        let controller = &self.controllers[&id];
        let is_of_now = controller.discovery_log.is_of(self.generation);
        if controller.is_discovery && sqe.opcode == GET_LOG_PAGE && !is_of_now {
            let log = Arc::new(self.discovery_log(controller));
            self.live(id).discovery_log = log;
        }
        let controller = &self.controllers[&id];
        if controller.has_ended() {
            // Its connections are being closed; its subsystem may be gone.
            return Outcome::Done(Reply::failed(Status::ABORTED_SQ_DELETION));
        }
        let controllers = if identify::lists_controllers(sqe) {
            self.hosts(&controller.subsystem.nqn)
        } else {
            BTreeMap::new()
        };
        let discovery = controller.discovery_log.clone();
        let request = Request {
            controller: self.controllers.get_mut(&id).expect("found before"),
            sqe,
            data,
            out,
            env,
            controllers: &controllers,
            discovery: &discovery,
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
    pub fn note_error(&mut self, id: ControllerId, note: ErrorNote) -> Change {
        let mut change = Change::default();
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
                work::spend(1 + subsystem.hosts.as_ref().map_or(0, Vec::len) as u64)
            })
            .filter(|subsystem| subsystem.allows(&controller.hostnqn));
        DiscoveryLog::new(
            self.generation,
            visible,
            self.ports(controller),
            &self.referrals,
        )
    }

    /// The listeners as a controller's host reaches them.
    fn ports(&self, controller: &Controller) -> Vec<Port> {
        discovery::ports(&self.listeners, controller.listener, controller.local)
    }

    fn live(&mut self, id: ControllerId) -> &mut Controller {
        self.controllers
            .get_mut(&id)
            .expect("a controller lives as long as its Admin Queue")
    }
}

/// The NQN of a host. SPDK's tools name none unless they are told to: then it is
/// empty, which no list of allowed hosts has.
fn host_name(field: &[u8; NQN_BYTES]) -> Option<&str> {
    match field.first() {
        Some(0) => Some(""),
        _ => nqn_text(field),
    }
}

fn connected(id: ControllerId, controller: &Controller, command: &ConnectCommand) -> Connected {
    Connected {
        controller: id,
        cntlid: controller.cntlid,
        qid: command.qid,
        entries: u32::from(command.sqsize) + 1,
        flow_control_disabled: command.cattr & ConnectCommand::DISABLE_SQ_FLOW_CONTROL != 0,
        subsystem: controller.subsystem.clone(),
        activity: controller.activity().clone(),
        result: u32::from(controller.cntlid),
    }
}

impl Entry {
    /// A host has one controller less.
    fn let_go(&mut self, hostnqn: &str) {
        if let Some(count) = self.of_hosts.get_mut(hostnqn) {
            *count -= 1;
            if *count == 0 {
                self.of_hosts.remove(hostnqn);
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
    }
}
