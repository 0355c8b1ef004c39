//! Get and Set Features (NVM Express Base Specification 2.0, sections 5.15 and 5.27).

use machine::Nanos;
use wire::nvme::feature::{
    HostBehavior, TIMESTAMP_SET_BY_HOST, Timestamp, async_event, capability, fid, select,
};
use wire::nvme::identify::zeroed;
use wire::nvme::log::effect;
use wire::nvme::{NSID_ALL, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::controller::Controller;
use crate::item::NamedItem;
use crate::request::{AdminOutcome, AdminRequest, Fault, Reply, at};
use crate::reservation;
use crate::subsystem::{Namespace, Subsystem, WriteProtect};

/// What a feature's value belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Controller,
    Namespace,
}

/// A feature.
pub(crate) struct Feature {
    pub item: NamedItem,
    scope: Scope,
    is_changeable: bool,
    /// Set Features takes FFFFFFFFh for all namespaces of a namespace's feature.
    takes_all: bool,
    /// What a change brings about, as bits of the Feature Identifiers Supported
    /// and Effects log.
    effects: u32,
    get: fn(&Get<'_>) -> Result<Value, Fault>,
    set: fn(&mut AdminRequest<'_>) -> Result<AdminOutcome, Fault>,
}

/// Value of a feature.
pub(crate) enum Value {
    /// In completion dword 0.
    Dword(u32),
    /// In the data.
    Data(Vec<u8>),
    /// The driver has it.
    Elsewhere(AdminOutcome),
}

/// What a Get Features asks for.
pub(crate) struct Get<'a> {
    pub controller: &'a Controller,
    /// The values to read from: the current ones or the defaults.
    pub values: &'a Features,
    /// Of a feature of a namespace: that, unless the default is asked for.
    pub namespace: Option<&'a Namespace>,
    pub cdw11: u32,
    pub now: Nanos,
}

/// Every feature there is; none can be saved, so that saved values are defaults.
pub(crate) const FEATURES: &[Feature] = &[
    Feature {
        get: |get| Ok(Value::Dword(get.values.arbitration)),
        set: |request| {
            request.controller.features.arbitration = request.sqe.cdw11.get();
            DONE
        },
        ..changeable(NamedItem::io(fid::ARBITRATION, "Arbitration", "5.27.1.1"))
    },
    Feature {
        get: |get| Ok(Value::Dword(get.values.power_management)),
        set: set_power_management,
        ..changeable(NamedItem::io(
            fid::POWER_MANAGEMENT,
            "Power Management",
            "5.27.1.2",
        ))
    },
    Feature {
        get: get_temperature,
        set: set_temperature,
        ..changeable(NamedItem::io(
            fid::TEMPERATURE_THRESHOLD,
            "Temperature Threshold",
            "5.27.1.3",
        ))
    },
    Feature {
        get: |_| Ok(Value::Dword(0)),
        // No time limit for retries, no errors for deallocated blocks.
        set: |request| fixed(request, 0x1_ffff, 0),
        scope: Scope::Namespace,
        takes_all: true,
        ..fixed_feature(NamedItem::io(
            fid::ERROR_RECOVERY,
            "Error Recovery",
            "NVM 4.1.3.2",
        ))
    },
    Feature {
        get: |_| Ok(Value::Dword(1)),
        // A write cache that cannot be turned off.
        set: |request| fixed(request, 1, 1),
        ..fixed_feature(NamedItem::io(
            fid::VOLATILE_WRITE_CACHE,
            "Volatile Write Cache",
            "5.27.1.4",
        ))
    },
    Feature {
        get: |get| Ok(Value::Dword(get.values.queues)),
        set: set_queues,
        ..changeable(NamedItem::io(
            fid::NUMBER_OF_QUEUES,
            "Number of Queues",
            "5.27.1.5",
        ))
    },
    Feature {
        get: |get| Ok(Value::Dword(get.values.write_atomicity)),
        set: |request| {
            request.controller.features.write_atomicity = request.sqe.cdw11.get() & 1;
            DONE
        },
        ..changeable(NamedItem::io(
            fid::WRITE_ATOMICITY,
            "Write Atomicity Normal",
            "NVM 4.1.3.3",
        ))
    },
    Feature {
        get: |get| Ok(Value::Dword(get.values.async_events)),
        set: set_async_events,
        ..changeable(NamedItem::both(
            fid::ASYNC_EVENT_CONFIG,
            "Asynchronous Event Configuration",
            "5.27.1.8",
        ))
    },
    Feature {
        get: |get| Ok(Value::Data(get.values.timestamp.read(get.now))),
        set: set_timestamp,
        ..changeable(NamedItem::io(fid::TIMESTAMP, "Timestamp", "5.27.1.11"))
    },
    Feature {
        get: |get| Ok(Value::Dword(get.values.kato_ms)),
        set: |request| {
            let kato_ms = request.sqe.cdw11.get();
            request.controller.set_kato(kato_ms, request.env.now);
            DONE
        },
        ..changeable(NamedItem::both(
            fid::KEEP_ALIVE_TIMER,
            "Keep Alive Timer",
            "5.27.1.12",
        ))
    },
    Feature {
        get: |get| Ok(Value::Data(get.values.behavior.as_bytes().to_vec())),
        set: set_behavior,
        ..changeable(NamedItem::io(
            fid::HOST_BEHAVIOR,
            "Host Behavior Support",
            "5.27.1.18",
        ))
    },
    Feature {
        get: get_host_identifier,
        // Over fabrics the identifier comes with Connect (section 5.27.1.25).
        set: |_| Err(Fault::new(Status::COMMAND_SEQUENCE, at::CDW10)),
        ..fixed_feature(NamedItem::io(
            fid::HOST_IDENTIFIER,
            "Host Identifier",
            "5.27.1.25",
        ))
    },
    Feature {
        get: reservation::get_mask,
        set: reservation::set_feature,
        scope: Scope::Namespace,
        takes_all: true,
        ..changeable(NamedItem::io(
            fid::RESERVATION_NOTIFICATION_MASK,
            "Reservation Notification Mask",
            "5.27.1.26",
        ))
    },
    Feature {
        get: reservation::get_persistence,
        set: reservation::set_feature,
        scope: Scope::Namespace,
        takes_all: true,
        ..changeable(NamedItem::io(
            fid::RESERVATION_PERSISTENCE,
            "Reservation Persistence",
            "5.27.1.27",
        ))
    },
    Feature {
        get: |get| {
            let state = get.namespace.map(|namespace| namespace.write_protect);
            Ok(Value::Dword(state.unwrap_or_default() as u32))
        },
        set: set_write_protect,
        scope: Scope::Namespace,
        effects: effect::NCC,
        ..changeable(NamedItem::io(
            fid::WRITE_PROTECTION,
            "Namespace Write Protection Config",
            "5.27.1.28",
        ))
    },
];

const DONE: Result<AdminOutcome, Fault> = Ok(AdminOutcome::Done(Reply {
    status: Status::SUCCESS,
    result: 0,
    data_len: 0,
}));

const fn changeable(item: NamedItem) -> Feature {
    Feature {
        item,
        scope: Scope::Controller,
        is_changeable: true,
        takes_all: false,
        effects: 0,
        get: |_| Ok(Value::Dword(0)),
        set: |_| DONE,
    }
}

const fn fixed_feature(item: NamedItem) -> Feature {
    Feature {
        is_changeable: false,
        ..changeable(item)
    }
}

impl Feature {
    /// What Get Features answers to the select field "supported capabilities".
    fn capabilities(&self) -> u32 {
        let mut bits = 0;
        if self.is_changeable {
            bits |= capability::CHANGEABLE;
        }
        if self.scope == Scope::Namespace {
            bits |= capability::NAMESPACE_SPECIFIC;
        }
        bits
    }

    /// Entry of the Feature Identifiers Supported and Effects log.
    pub fn effects_entry(&self) -> u32 {
        let scope = match self.scope {
            Scope::Controller => effect::SCOPE_CONTROLLER,
            Scope::Namespace => effect::SCOPE_NAMESPACE,
        };
        effect::CSUPP | self.effects | scope
    }

    /// Whether a controller has it.
    pub fn is_of(&self, controller: &Controller) -> bool {
        self.item.is_for(controller.is_discovery)
            && (self.item.id != fid::VOLATILE_WRITE_CACHE
                || controller.subsystem.has_volatile_cache())
    }
}

/// Values in force. What weft has no use for is kept for the host to read back.
#[derive(Clone)]
pub(crate) struct Features {
    pub kato_ms: u32,
    pub async_events: u32,
    arbitration: u32,
    power_management: u32,
    temperature_over: u16,
    temperature_under: u16,
    write_atomicity: u32,
    queues: u32,
    behavior: HostBehavior,
    timestamp: Clock,
}

impl Features {
    /// The defaults, in force since `now`.
    pub fn new(subsystem: &Subsystem, is_discovery: bool, kato_ms: u32, now: Nanos) -> Self {
        let queues = u32::from(subsystem.limits.io_queues_max.saturating_sub(1));
        Features {
            kato_ms,
            async_events: match (is_discovery, kato_ms) {
                // Without a keep alive timer the host asked for no persistent
                // connection (section 3.1.2.3): it gets no events.
                (true, 0) => 0,
                (true, _) => async_event::DISCOVERY_CHANGE,
                (false, _) => async_event::NAMESPACE_ATTRIBUTE | async_event::ANA_CHANGE,
            },
            // Arbitration burst: no limit.
            arbitration: 7,
            power_management: 0,
            temperature_over: 0xffff,
            temperature_under: 0,
            write_atomicity: 0,
            queues: queues | queues << 16,
            behavior: zeroed(),
            timestamp: Clock {
                since: now,
                at_since_ms: 0,
                is_set: false,
            },
        }
    }
}

/// The Timestamp feature: milliseconds that go on from what they were set to.
#[derive(Clone, Copy)]
struct Clock {
    since: Nanos,
    at_since_ms: u64,
    is_set: bool,
}

impl Clock {
    fn read(&self, now: Nanos) -> Vec<u8> {
        let elapsed_ms = now.saturating_sub(self.since) / 1_000_000;
        let now_ms = self.at_since_ms.wrapping_add(elapsed_ms);
        let mut data: Timestamp = zeroed();
        data.timestamp.copy_from_slice(&now_ms.to_le_bytes()[..6]);
        data.attributes = if self.is_set {
            TIMESTAMP_SET_BY_HOST
        } else {
            0
        };
        data.as_bytes().to_vec()
    }
}

/// The entry of [`FEATURES`] that the command means.
fn find(request: &AdminRequest<'_>) -> Result<&'static Feature, Fault> {
    let wanted = request.sqe.cdw10.get() as u8;
    FEATURES
        .iter()
        .find(|feature| feature.item.id == wanted)
        .filter(|feature| feature.is_of(request.controller))
        .ok_or(Fault::field(at::CDW10))
}

/// Get Features.
pub(crate) fn get(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let feature = find(request)?;
    let controller = &*request.controller;
    let now = request.env.now;
    let defaults;
    let (values, is_default) = match (request.sqe.cdw10.get() >> 8 & 7) as u8 {
        select::CURRENT => (&controller.features, false),
        select::DEFAULT | select::SAVED => {
            let kato_ms = controller.kato_default_ms();
            let subsystem = &controller.subsystem;
            defaults = Features::new(subsystem, controller.is_discovery, kato_ms, now);
            (&defaults, true)
        }
        select::CAPABILITIES => {
            let bits = u64::from(feature.capabilities());
            return Ok(AdminOutcome::Done(Reply::done(bits)));
        }
        _ => return Err(Fault::field(at::CDW10)),
    };
    let namespace = match feature.scope {
        Scope::Controller => None,
        Scope::Namespace => Some(request.accessible_namespace()?),
    };
    let value = (feature.get)(&Get {
        controller,
        values,
        namespace: namespace.filter(|_| !is_default),
        cdw11: request.sqe.cdw11.get(),
        now,
    })?;
    match value {
        Value::Dword(value) => Ok(AdminOutcome::Done(Reply::done(u64::from(value)))),
        Value::Data(data) => request.put(&data).map(AdminOutcome::Done),
        Value::Elsewhere(outcome) => Ok(outcome),
    }
}

/// Set Features.
pub(crate) fn set(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let feature = find(request)?;
    if request.sqe.cdw10.get() >> 31 != 0 {
        return Err(Fault::new(Status::FEATURE_NOT_SAVEABLE, at::CDW10));
    }
    if feature.scope == Scope::Namespace {
        request.expect_protected()?;
        if !feature.takes_all || request.sqe.nsid.get() != NSID_ALL {
            request.accessible_namespace()?;
        }
    } else if request.expect_no_namespace().is_err() {
        return Err(Fault::new(Status::FEATURE_NOT_NS_SPECIFIC, at::NSID));
    }
    (feature.set)(request)
}

/// A feature with one value: setting it to that is no change.
fn fixed(request: &mut AdminRequest<'_>, mask: u32, value: u32) -> Result<AdminOutcome, Fault> {
    if request.sqe.cdw11.get() & mask == value {
        DONE
    } else {
        Err(Fault::new(Status::FEATURE_NOT_CHANGEABLE, at::CDW11))
    }
}

/// Data from the host that a feature is set with.
fn data_of<'a, T: FromBytes + KnownLayout + Immutable + Unaligned>(
    request: &'a AdminRequest<'_>,
) -> Result<&'a T, Fault> {
    let (value, _) = T::ref_from_prefix(request.data)
        .map_err(|_| Fault::new(Status::DATA_SGL_LENGTH_INVALID, at::SGL))?;
    Ok(value)
}

fn set_power_management(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let cdw11 = request.sqe.cdw11.get();
    // There is one power state, 0.
    if cdw11 & 0x1f != 0 {
        return Err(Fault::field(at::CDW11));
    }
    request.controller.features.power_management = cdw11 & 0xff;
    DONE
}

fn get_temperature(get: &Get<'_>) -> Result<Value, Fault> {
    let threshold = if temperature_selector(get.cdw11, false)? {
        get.values.temperature_under
    } else {
        get.values.temperature_over
    };
    Ok(Value::Dword(u32::from(threshold)))
}

fn set_temperature(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let cdw11 = request.sqe.cdw11.get();
    let is_under = temperature_selector(cdw11, true)?;
    let values = &mut request.controller.features;
    if is_under {
        values.temperature_under = cdw11 as u16;
    } else {
        values.temperature_over = cdw11 as u16;
    }
    DONE
}

/// Which threshold (section 5.27.1.3): `true` is the under temperature one. Only
/// the composite temperature has thresholds; FFh.. "all sensors" is for Set alone.
fn temperature_selector(cdw11: u32, is_set: bool) -> Result<bool, Fault> {
    let sensor = cdw11 >> 16 & 15;
    let kind = cdw11 >> 20 & 3;
    let sensor_fits = sensor == 0 || (is_set && sensor == 15);
    if !sensor_fits || kind > 1 {
        return Err(Fault::field(at::CDW11));
    }
    Ok(kind == 1)
}

/// Number of Queues (section 5.27.1.5): before any I/O queue, and FFFFh is no number.
fn set_queues(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let cdw11 = request.sqe.cdw11.get();
    let (submission, completion) = (cdw11 & 0xffff, cdw11 >> 16);
    if submission == 0xffff || completion == 0xffff {
        return Err(Fault::field(at::CDW11));
    }
    if request.controller.queues().any(|qid| qid != 0) {
        return Err(Fault::new(Status::COMMAND_SEQUENCE, at::CDW10));
    }
    let limits = &request.controller.subsystem.limits;
    let most = u32::from(limits.io_queues_max.saturating_sub(1));
    // A fabrics queue is a pair: as many of the one as of the other.
    let allocated = submission.max(completion).min(most);
    let queues = allocated | allocated << 16;
    request.controller.features.queues = queues;
    Ok(AdminOutcome::Done(Reply::done(u64::from(queues))))
}

fn set_async_events(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let cdw11 = request.sqe.cdw11.get();
    let supported = if request.controller.is_discovery {
        async_event::DISCOVERY_CHANGE
    } else {
        async_event::SMART_WARNINGS | async_event::NAMESPACE_ATTRIBUTE | async_event::ANA_CHANGE
    };
    if cdw11 & !supported != 0 {
        return Err(Fault::field(at::CDW11));
    }
    request.controller.features.async_events = cdw11;
    DONE
}

fn set_timestamp(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let data: &Timestamp = data_of(request)?;
    let mut ms = [0; 8];
    ms[..6].copy_from_slice(&data.timestamp);
    request.controller.features.timestamp = Clock {
        since: request.env.now,
        at_since_ms: u64::from_le_bytes(ms),
        is_set: true,
    };
    DONE
}

/// Host Behavior Support (section 5.27.1.18). What the host can do but has no
/// use here is kept; what weft cannot do may not be enabled.
fn set_behavior(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let data: &HostBehavior = data_of(request)?;
    let switches = [data.acre, data.etdas, data.lbafee];
    let is_known = switches.iter().all(|switch| *switch <= 1)
        && data.hdisns == 0
        && data.cdfe.get() & !HostBehavior::COPY_FORMATS == 0
        && data.reserved6.iter().all(|byte| *byte == 0);
    if !is_known {
        return Err(Fault::field(at::SGL));
    }
    let behavior = *data;
    let activity = request.controller.activity();
    activity.set_behavior(behavior.cdfe.get(), behavior.acre == 1);
    request.controller.features.behavior = behavior;
    DONE
}

fn get_host_identifier(get: &Get<'_>) -> Result<Value, Fault> {
    // Fabrics hosts have 128-bit identifiers: EXHID must be set (section 5.27.1.25).
    if get.cdw11 & 1 == 0 {
        return Err(Fault::field(at::CDW11));
    }
    Ok(Value::Data(get.controller.hostid.to_vec()))
}

/// Namespace Write Protection Config (section 5.27.1.28): from the last two
/// states no other is reached (section 8.12, figure 465).
fn set_write_protect(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let namespace = request.namespace()?;
    let state = WriteProtect::from_value(request.sqe.cdw11.get() & 7);
    let state = state.ok_or(Fault::field(at::CDW11))?;
    if state == WriteProtect::Permanent && !namespace.persists_state {
        return Err(Fault::field(at::CDW11));
    }
    match namespace.write_protect {
        WriteProtect::Off | WriteProtect::On => Ok(AdminOutcome::WriteProtect {
            nsid: namespace.nsid,
            state,
        }),
        WriteProtect::UntilPowerCycle | WriteProtect::Permanent => {
            Err(Fault::new(Status::FEATURE_NOT_CHANGEABLE, at::CDW11))
        }
    }
}
