//! One controller: its properties, queues, keep alive timer, events and errors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use faults::Fault;
use machine::{Nanos, Tag, work};
use wire::nvme::feature::async_event;
use wire::nvme::log::event;
use wire::nvme::property::{Cap, Cc, VS_2_0, csts, offset};
use wire::nvme::{PropertyGet, PropertySet, Status};

use crate::command::AnaState;
use crate::discovery::DiscoveryLog;
use crate::feature::Features;
use crate::item::NamedItem;
use crate::request::Reply;
use crate::reservation::Notifications;
use crate::subsystem::{Arrival, Namespace, Subsystem};
use crate::transport::Transport;

/// Asynchronous Event Requests that a controller holds (AERL + 1).
pub(crate) const EVENT_REQUESTS_MAX: usize = 4;

/// Abort commands in execution at once (ACL + 1).
pub(crate) const ABORTS_MAX: usize = 8;

/// Entries of the Error Information log (ELPE + 1).
pub(crate) const ERROR_ENTRIES_MAX: usize = 64;

/// Granularity of the keep alive timer in ms (KAS).
pub(crate) const KEEP_ALIVE_GRANULARITY_MS: u32 = 1000;

/// How long a controller takes to become ready or to be disabled, ms (CAP.TO, CRTO).
pub(crate) const READY_TIMEOUT_MS: u32 = 15_000;

/// A controller that is disabled, shut down, or for discovery without a keep
/// alive timeout lives this long without a command (Base 2.0, section 3.1.2.3).
const IDLE_TIMEOUT_MS: u32 = 120_000;

const NANOS_PER_MS: u64 = 1_000_000;

/// What the queues of a controller share with it, on whichever core they are.
#[derive(Debug, Default)]
pub struct Activity {
    /// Commands arrived: what traffic based keep alive looks at (Base 2.0,
    /// section 3.9.3).
    has_traffic: AtomicBool,
    /// Host Behavior Support: Copy Descriptor Formats Enable.
    copy_formats: AtomicU16,
    /// Host Behavior Support: Advanced Command Retry Enable.
    delays_retries: AtomicBool,
}

impl Activity {
    /// A command arrived. Writes only once a keep alive period, so that cores
    /// that serve one controller do not fight for the cache line.
    #[inline]
    pub fn note(&self) {
        if !self.has_traffic.load(Ordering::Relaxed) {
            self.has_traffic.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the host may use a Copy descriptor format: formats 2h and 3h are
    /// its to enable (NVM Command Set 1.1, section 3.3.2).
    pub fn allows_copy_format(&self, format: u8) -> bool {
        format < 2 || self.copy_formats.load(Ordering::Relaxed) >> format & 1 != 0
    }

    /// `status` with the first Command Retry Delay (CRD), of 100 ms, if the host
    /// has enabled delays: for commands that would fail again if tried at once.
    #[must_use]
    pub fn delay_retry(&self, status: Status) -> Status {
        if self.delays_retries.load(Ordering::Relaxed) {
            status.with_retry_delay(1)
        } else {
            status
        }
    }

    /// What the host has set by Host Behavior Support.
    pub(crate) fn set_behavior(&self, copy_formats: u16, delays_retries: bool) {
        self.copy_formats.store(copy_formats, Ordering::Relaxed);
        self.delays_retries.store(delays_retries, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.has_traffic.swap(false, Ordering::Relaxed)
    }
}

/// What the Error Information log keeps of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorNote {
    /// Queue of the command.
    pub qid: u16,
    /// Command identifier.
    pub cid: u16,
    /// What it was completed with.
    pub status: Status,
    /// Byte of the command that is wrong; `None` if no field is.
    pub location: Option<u16>,
    /// First logical block concerned.
    pub lba: u64,
    /// Namespace, 0 if none is concerned.
    pub nsid: u32,
}

/// What a controller is made with.
pub(crate) struct Association {
    pub subsystem: Arc<Subsystem>,
    pub is_discovery: bool,
    pub cntlid: u16,
    pub hostid: [u8; 16],
    pub hostnqn: String,
    pub listener: u16,
    pub local: SocketAddr,
    pub arrival: Arrival,
    pub kato_ms: u32,
}

/// A connected queue.
struct ConnectedQueue {
    connection: u64,
    /// The driver was told to close it.
    is_closing: bool,
}

/// One controller: the association of a host with an NVM subsystem.
pub struct Controller {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) is_discovery: bool,
    pub(crate) cntlid: u16,
    pub(crate) hostid: [u8; 16],
    pub(crate) hostnqn: String,
    pub(crate) listener: u16,
    pub(crate) local: SocketAddr,
    pub(crate) arrival: Arrival,
    /// The identity of the key that its host speaks TLS by, if that was made by authentication:
    /// it ends with the controller.
    pub(crate) generated_key: Option<String>,
    /// Its host has authenticated, or need not.
    pub(crate) is_proven: bool,
    /// Its host has made a key for TLS by authentication.
    pub(crate) has_concatenated: bool,
    pub(crate) features: Features,
    pub(crate) errors: VecDeque<(u64, ErrorNote)>,
    pub(crate) error_count: u64,
    pub(crate) changed_namespaces: BTreeSet<u32>,
    pub(crate) ana: AnaChanges,
    pub(crate) notifications: Notifications,
    /// Of a discovery controller: the log as it was read last, so that each piece of it
    /// does not look at all subsystems again.
    pub(crate) discovery_log: Arc<DiscoveryLog>,
    kato_default_ms: u32,
    activity: Arc<Activity>,
    cc: Cc,
    csts: u32,
    queues: BTreeMap<u16, ConnectedQueue>,
    /// Connections to close, not yet taken by the driver.
    closing: Vec<u64>,
    has_ended: bool,
    /// Abort commands in execution.
    aborts: usize,
    timer_start: Nanos,
    event_tags: VecDeque<Tag>,
    /// Requests that ended without an event.
    aborted_tags: Vec<Tag>,
    events: u32,
    events_masked: u32,
}

/// Bits of `events`, by position in [`EVENTS`].
pub(crate) const NAMESPACE_EVENT: u32 = 1 << 0;
pub(crate) const DISCOVERY_EVENT: u32 = 1 << 1;
pub(crate) const ANA_EVENT: u32 = 1 << 2;
pub(crate) const RESERVATION_EVENT: u32 = 1 << 3;
pub(crate) const HEALTH_EVENT: u32 = 1 << 4;
pub(crate) const ERROR_EVENT: u32 = 1 << 5;
pub(crate) const SANITIZE_EVENT: u32 = 1 << 6;
pub(crate) const SPARE_EVENT: u32 = 1 << 7;

/// An asynchronous event.
pub(crate) struct HostEvent {
    /// Its number is the Asynchronous Event Information, which each type has
    /// its own of.
    pub item: NamedItem,
    bit: u32,
    /// Bits of the configuration of which one enables it; all of them for one
    /// that needs none.
    enable: u32,
    /// Completion dword 0.
    result: u32,
}

/// Every event there is, the most urgent first.
pub(crate) const EVENTS: &[HostEvent] = &[
    HostEvent {
        item: NamedItem::both(
            0x04,
            "Error Status: Transient Internal Error",
            "5.2.1, figure 146",
        ),
        bit: ERROR_EVENT,
        // Error events have no bit (section 5.27.1.8), reservation events their own mask.
        enable: u32::MAX,
        result: event::TRANSIENT_INTERNAL_ERROR,
    },
    HostEvent {
        item: NamedItem::io(
            0x00,
            "SMART / Health Status: NVM subsystem Reliability",
            "5.2.1, figure 147",
        ),
        bit: HEALTH_EVENT,
        enable: async_event::RELIABILITY,
        result: event::RELIABILITY_DEGRADED,
    },
    HostEvent {
        item: NamedItem::io(
            0x02,
            "SMART / Health Status: Spare Below Threshold",
            "5.2.1, figure 147",
        ),
        bit: SPARE_EVENT,
        enable: async_event::SPARE,
        result: event::SPARE_BELOW_THRESHOLD,
    },
    HostEvent {
        item: NamedItem::io(
            0x00,
            "Notice: Namespace Attribute Changed",
            "5.2.1, figure 148",
        ),
        bit: NAMESPACE_EVENT,
        enable: async_event::NAMESPACE_ATTRIBUTE,
        result: event::NAMESPACE_ATTRIBUTE_CHANGED,
    },
    HostEvent {
        item: NamedItem::io(
            0x03,
            "Notice: Asymmetric Namespace Access Change",
            "5.2.1, figure 148",
        ),
        bit: ANA_EVENT,
        enable: async_event::ANA_CHANGE,
        result: event::ANA_CHANGED,
    },
    HostEvent {
        item: NamedItem::discovery(
            0xf0,
            "Notice: Discovery Log Page Change",
            "5.2.1, figure 148",
        ),
        bit: DISCOVERY_EVENT,
        enable: async_event::DISCOVERY_CHANGE,
        result: event::DISCOVERY_CHANGED,
    },
    HostEvent {
        item: NamedItem::io(
            0x00,
            "I/O Command Specific Status: Reservation Log Page Available",
            "5.2.1, figure 150",
        ),
        bit: RESERVATION_EVENT,
        enable: u32::MAX,
        result: event::RESERVATION_LOG_AVAILABLE,
    },
    HostEvent {
        item: NamedItem::io(
            0x01,
            "I/O Command Specific Status: Sanitize Operation Completed",
            "5.2.1, figure 150",
        ),
        bit: SANITIZE_EVENT,
        enable: u32::MAX,
        result: event::SANITIZE_COMPLETED,
    },
];

/// A property (section 3.1.3).
pub(crate) struct Property {
    /// Its number is its offset in bytes.
    pub item: NamedItem,
    is_8_bytes: bool,
    get: fn(&Controller) -> u64,
}

const fn property(item: NamedItem, get: fn(&Controller) -> u64) -> Property {
    Property {
        item,
        is_8_bytes: false,
        get,
    }
}

/// Every property there is; of them CC can be set.
pub(crate) const PROPERTIES: &[Property] = &[
    Property {
        is_8_bytes: true,
        ..property(
            NamedItem::both(offset::CAP as u8, "Controller Capabilities", "3.1.3.1"),
            |controller| controller.cap().0,
        )
    },
    property(
        NamedItem::both(offset::VS as u8, "Version", "3.1.3.2"),
        |_| VS_2_0 as u64,
    ),
    property(
        NamedItem::both(offset::CC as u8, "Controller Configuration", "3.1.3.5"),
        |controller| controller.cc.0 as u64,
    ),
    property(
        NamedItem::both(offset::CSTS as u8, "Controller Status", "3.1.3.6"),
        |controller| controller.csts as u64,
    ),
    property(
        NamedItem::both(offset::CRTO as u8, "Controller Ready Timeouts", "3.1.3.21"),
        |_| (READY_TIMEOUT_MS / 500) as u64,
    ),
];

/// Changes of ANA groups since a controller was made.
#[derive(Debug, Default)]
pub(crate) struct AnaChanges {
    /// Change Count of the log.
    pub total: u64,
    /// Change Counts of the groups that changed.
    pub groups: BTreeMap<u32, u64>,
}

impl AnaChanges {
    /// State or membership of these groups changed.
    pub fn note(&mut self, groups: &BTreeSet<u32>) {
        self.total += 1;
        for group in groups {
            *self.groups.entry(*group).or_default() += 1;
        }
    }
}

impl Controller {
    pub(crate) fn new(association: Association, now: Nanos) -> Self {
        let kato_ms = round_kato(association.kato_ms);
        let (subsystem, is_discovery) = (&association.subsystem, association.is_discovery);
        let features = Features::new(subsystem, is_discovery, kato_ms, now);
        Controller {
            subsystem: association.subsystem,
            is_discovery: association.is_discovery,
            cntlid: association.cntlid,
            hostid: association.hostid,
            hostnqn: association.hostnqn,
            listener: association.listener,
            local: association.local,
            arrival: association.arrival,
            generated_key: None,
            is_proven: false,
            has_concatenated: false,
            features,
            errors: VecDeque::new(),
            error_count: 0,
            changed_namespaces: BTreeSet::new(),
            ana: AnaChanges::default(),
            notifications: Notifications::default(),
            discovery_log: Arc::default(),
            aborts: 0,
            kato_default_ms: kato_ms,
            activity: Arc::default(),
            cc: Cc::default(),
            csts: 0,
            queues: BTreeMap::new(),
            closing: Vec::new(),
            has_ended: false,
            timer_start: now,
            event_tags: VecDeque::new(),
            aborted_tags: Vec::new(),
            events: 0,
            events_masked: 0,
        }
    }

    /// Controller ID.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Host Identifier.
    pub fn hostid(&self) -> [u8; 16] {
        self.hostid
    }

    /// NQN of the host.
    pub fn hostnqn(&self) -> &str {
        &self.hostnqn
    }

    /// The listener that it was made at, and what carries its queues.
    pub(crate) fn came_by(&self) -> (u16, Transport) {
        (self.listener, self.arrival.transport)
    }

    /// Number of the listener that it was made at.
    pub fn listener(&self) -> u16 {
        self.listener
    }

    /// Keep Alive Timeout, milliseconds; 0: none.
    pub fn kato_ms(&self) -> u32 {
        self.features.kato_ms
    }

    /// Whether it is there for its host to make a key for TLS, and for nothing else: what the
    /// host sends it is in the clear.
    pub(crate) fn only_makes_key(&self) -> bool {
        let has_key = self.has_concatenated && !self.arrival.is_encrypted;
        let has_key = has_key && !faults::is(Fault::PlainBesideMadeKey);
        has_key || !self.subsystem.admits(&self.hostnqn, self.arrival)
    }

    /// The subsystem as of now.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }

    /// The namespaces that the host sees, in no particular order.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.subsystem
            .namespaces
            .iter()
            .inspect(|_| work::spend(1))
            .filter(|namespace| namespace.is_visible_to(&self.hostnqn))
    }

    /// The active namespace of an identifier.
    pub(crate) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.subsystem
            .namespace(nsid)
            .map(|(_, namespace)| namespace)
            .filter(|namespace| namespace.is_visible_to(&self.hostnqn))
    }

    /// ANA state of a namespace for the host.
    pub(crate) fn ana_state(&self, namespace: &Namespace) -> AnaState {
        self.subsystem.ana_state(self.listener, namespace.ana_group)
    }

    /// What the controller's connections report commands to.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Connected queues, the Admin Queue included.
    pub fn queues(&self) -> impl Iterator<Item = u16> {
        self.queues.keys().copied()
    }

    /// Whether commands are processed: enabled, ready, and no shutdown.
    pub fn is_ready(&self) -> bool {
        self.cc.en() && self.csts & (csts::RDY | csts::SHST_MASK) == csts::RDY
    }

    /// Whether the controller has ended and only waits for its connections.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn cap(&self) -> Cap {
        Cap::new(self.subsystem.limits.queue_entries_max, READY_TIMEOUT_MS)
    }

    // --- properties ---

    /// Property Get (Base 2.0, section 6.4). The halves of 8-byte properties
    /// can be read one by one.
    pub fn property_get(&mut self, get: PropertyGet) -> Reply {
        for property in PROPERTIES {
            let at = u32::from(property.item.id);
            let value = (property.get)(self);
            match (property.is_8_bytes, get.is_8_bytes) {
                (true, false) if get.offset == at => return Reply::done(value & 0xffff_ffff),
                (true, false) if get.offset == at + 4 => return Reply::done(value >> 32),
                (has_8, wants_8) if has_8 == wants_8 && get.offset == at => {
                    return Reply::done(value);
                }
                _ => {}
            }
        }
        Reply::failed(Status::INVALID_FIELD.dnr())
    }

    /// Property Set (Base 2.0, section 6.5). What it ends is told by
    /// [`Controller::take_closing`].
    pub fn property_set(&mut self, set: PropertySet, now: Nanos) -> Reply {
        if (set.offset, set.is_8_bytes) != (offset::CC, false) {
            return Reply::failed(Status::INVALID_FIELD.dnr());
        }
        let new = Cc(set.value as u32);
        if new.shn() == 3 {
            return Reply::failed(Status::INVALID_FIELD.dnr());
        }
        if new.en() && !self.cc.en() && self.csts & csts::RDY != 0 {
            // Disabling is not through yet: its I/O queues still end.
            return Reply::failed(Status::COMMAND_SEQUENCE);
        }
        let old = std::mem::replace(&mut self.cc, new);
        self.timer_start = now;
        match (old.en(), new.en()) {
            (false, true) => self.enable(),
            (true, false) => self.disable(now),
            _ => {}
        }
        match (old.shn(), new.shn()) {
            (0, 1 | 2) => self.shut_down(),
            (1 | 2, 0) => self.csts &= !csts::SHST_MASK,
            _ => {}
        }
        Reply::done(0)
    }

    fn enable(&mut self) {
        let cc = self.cc;
        // A discovery controller has no I/O queues, and hosts leave their entry sizes 0.
        let sizes_fit = self.is_discovery || (cc.iosqes() == 6 && cc.iocqes() == 4);
        if cc.css() != 0 || cc.mps() != 0 || cc.ams() != 0 || !sizes_fit {
            self.csts |= csts::CFS;
            return;
        }
        self.csts = csts::RDY;
    }

    /// A Controller Reset (section 3.7.2): I/O queues end, features return to
    /// their defaults; RDY is cleared once the last I/O queue is gone.
    fn disable(&mut self, now: Nanos) {
        self.abort_event_requests();
        self.events = 0;
        self.events_masked = 0;
        self.changed_namespaces.clear();
        self.notifications = Notifications::default();
        self.features = Features::new(
            &self.subsystem,
            self.is_discovery,
            self.kato_default_ms,
            now,
        );
        self.activity.set_behavior(0, false);
        self.csts &= csts::RDY;
        self.close_io_queues();
        self.settle();
    }

    /// A controller shutdown (section 3.6): complete once the last I/O queue is gone.
    fn shut_down(&mut self) {
        self.csts = self.csts & !csts::SHST_MASK | csts::SHST_OCCURRING;
        self.close_io_queues();
        self.settle();
    }

    fn close_io_queues(&mut self) {
        self.close_queues(1);
    }

    /// Has the connections of the queues from `first` on closed, each once.
    fn close_queues(&mut self, first: u16) {
        for (_, queue) in self.queues.range_mut(first..) {
            if !std::mem::replace(&mut queue.is_closing, true) {
                self.closing.push(queue.connection);
            }
        }
    }

    /// Ends what waited for the I/O queues to be gone.
    fn settle(&mut self) {
        if self.queues.range(1..).next().is_some() {
            return;
        }
        if !self.cc.en() {
            self.csts &= !csts::RDY;
        }
        if self.csts & csts::SHST_MASK == csts::SHST_OCCURRING {
            self.csts = self.csts & !csts::SHST_MASK | csts::SHST_COMPLETE;
        }
    }

    // --- queues ---

    pub(crate) fn add_queue(&mut self, qid: u16, connection: u64) {
        let queue = ConnectedQueue {
            connection,
            is_closing: false,
        };
        let previous = self.queues.insert(qid, queue);
        assert!(previous.is_none(), "queue {qid} was connected twice");
    }

    pub(crate) fn has_queue(&self, qid: u16) -> bool {
        self.queues.contains_key(&qid)
    }

    pub(crate) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// The connection of the Admin Queue, while there is one.
    pub(crate) fn admin_connection(&self) -> Option<u64> {
        self.connection(0)
    }

    /// The connection of a queue has ended. Without its Admin Queue the
    /// controller ends too.
    pub(crate) fn remove_queue(&mut self, qid: u16) {
        if self.queues.remove(&qid).is_none() {
            return;
        }
        if qid == 0 {
            self.event_tags.clear();
            self.aborted_tags.clear();
            self.has_ended = true;
            self.close_io_queues();
        }
        self.settle();
    }

    /// Ends the controller: every connection of it is to be closed.
    pub fn end(&mut self) {
        if !self.has_ended {
            self.has_ended = true;
            self.csts |= csts::CFS;
            self.close_queues(0);
        }
    }

    /// Connections to close since the last call: ask after every other call.
    pub fn take_closing(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.closing)
    }

    // --- Abort ---

    /// One more Abort command; `false`: too many at once (ACL).
    pub(crate) fn begin_abort(&mut self) -> bool {
        let fits = self.aborts < ABORTS_MAX;
        self.aborts += usize::from(fits);
        fits
    }

    /// An Abort command has ended, see [`Outcome::Abort`](crate::AdminOutcome::Abort).
    pub fn abort_done(&mut self) {
        self.aborts = self.aborts.checked_sub(1).expect("an Abort that began");
    }

    /// Forgets a held Asynchronous Event Request, which the driver completes
    /// itself; `false`: it is not held (any more).
    pub fn cancel_event_request(&mut self, tag: Tag) -> bool {
        let held = self.event_tags.len();
        self.event_tags.retain(|other| *other != tag);
        self.event_tags.len() < held
    }

    /// Whether any of these connections is a queue of it.
    pub(crate) fn has_any(&self, connections: &BTreeSet<u64>) -> bool {
        let mut queues = self.queues.values();
        queues.any(|queue| connections.contains(&queue.connection))
    }

    /// The connection of a queue, while there is one.
    pub(crate) fn connection(&self, qid: u16) -> Option<u64> {
        self.queues.get(&qid).map(|queue| queue.connection)
    }

    // --- keep alive ---

    /// When [`Controller::on_deadline`] wants to be called next.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.has_ended {
            return None;
        }
        Some(self.timer_start.saturating_add(self.timeout()?))
    }

    /// Time has passed. `true`: the keep alive timer expired, the controller
    /// is fatal and all of its connections are to be closed (section 3.9.4).
    pub fn on_deadline(&mut self, now: Nanos) -> bool {
        let Some(deadline) = self.deadline() else {
            return false;
        };
        if now < deadline {
            return false;
        }
        if self.activity.take() {
            self.timer_start = now;
            return false;
        }
        self.end();
        true
    }

    /// A command of the Admin Queue arrived, or an I/O queue was connected.
    pub(crate) fn note_traffic(&self) {
        self.activity.note();
    }

    /// Keep Alive: the timer starts again.
    pub(crate) fn keep_alive(&mut self, now: Nanos) {
        self.activity.take();
        self.timer_start = now;
    }

    /// Set Features, Keep Alive Timer.
    pub(crate) fn set_kato(&mut self, kato_ms: u32, now: Nanos) {
        self.features.kato_ms = round_kato(kato_ms);
        self.keep_alive(now);
    }

    /// The default that a reset returns the timeout to.
    pub(crate) fn kato_default_ms(&self) -> u32 {
        self.kato_default_ms
    }

    fn timeout(&self) -> Option<Nanos> {
        let kato_ms = self.features.kato_ms;
        let timeout_ms = match kato_ms {
            0 if self.is_ready() && !self.is_discovery => return None,
            0 => IDLE_TIMEOUT_MS,
            _ if self.is_ready() => kato_ms,
            _ => IDLE_TIMEOUT_MS,
        };
        Some(u64::from(timeout_ms) * NANOS_PER_MS)
    }

    // --- asynchronous events ---

    /// Holds a request; `false`: too many (section 5.2).
    pub(crate) fn hold_event_request(&mut self, tag: Tag) -> bool {
        if self.event_tags.len() >= EVENT_REQUESTS_MAX {
            return false;
        }
        self.event_tags.push_back(tag);
        true
    }

    /// A held request to complete now, if there is one: ask after every other
    /// call, until `None`.
    pub fn take_event(&mut self) -> Option<(Tag, Reply)> {
        if let Some(tag) = self.aborted_tags.pop() {
            return Some((tag, Reply::failed(Status::ABORTED_SQ_DELETION)));
        }
        let (bit, result) = self.ready_event()?;
        let tag = self.event_tags.pop_front()?;
        self.events &= !bit;
        self.events_masked |= bit;
        Some((tag, Reply::done(u64::from(result))))
    }

    /// The first event that is enabled and not masked: its bit and dword 0. None
    /// once a shutdown began: the host may have forgotten its requests.
    fn ready_event(&self) -> Option<(u32, u32)> {
        if !self.is_ready() {
            return None;
        }
        let ready = self.events & !self.events_masked;
        let enabled = self.features.async_events;
        EVENTS
            .iter()
            .filter(|event| ready & event.bit != 0)
            .find(|event| event.enable == u32::MAX || enabled & event.enable != 0)
            .map(|event| (event.bit, event.result))
    }

    /// An event occurred; whether a request can be completed with one now.
    pub(crate) fn raise(&mut self, bit: u32) -> bool {
        self.events |= bit;
        !self.event_tags.is_empty() && self.ready_event().is_some()
    }

    /// The host did not receive the event that a request was completed with, given by
    /// its dword 0: another request is completed with it.
    pub fn return_event(&mut self, result: u32) {
        if let Some(event) = EVENTS.iter().find(|event| event.result == result) {
            self.events_masked &= !event.bit;
            self.events |= event.bit;
        }
    }

    /// The log page of an event was read without Retain Asynchronous Event.
    pub(crate) fn clear_event(&mut self, bit: u32) {
        self.events &= !bit;
        self.events_masked &= !bit;
    }

    fn abort_event_requests(&mut self) {
        self.aborted_tags.extend(self.event_tags.drain(..));
    }

    // --- errors ---

    /// Puts a failed command into the Error Information log; whether an
    /// Asynchronous Event Request can be completed with what it tells.
    pub fn note_error(&mut self, note: ErrorNote) -> bool {
        self.error_count += 1;
        if self.errors.len() == ERROR_ENTRIES_MAX {
            self.errors.pop_back();
        }
        self.errors.push_front((self.error_count, note));
        match note.status {
            Status::INTERNAL_ERROR => self.raise(ERROR_EVENT),
            // With Do Not Retry it is a block that a host has spoiled.
            Status::WRITE_FAULT | Status::UNRECOVERED_READ => self.raise(HEALTH_EVENT),
            _ => false,
        }
    }
}

/// Rounds a Keep Alive Timeout up to the granularity; 0 stays 0: no timer.
fn round_kato(kato_ms: u32) -> u32 {
    let periods = u64::from(kato_ms).div_ceil(u64::from(KEEP_ALIVE_GRANULARITY_MS));
    let rounded = periods * u64::from(KEEP_ALIVE_GRANULARITY_MS);
    u32::try_from(rounded).unwrap_or(u32::MAX)
}
