//! Get and Set Features (NVM Express Base Specification 2.0, sections 5.15 and 5.27).

use wire::nvme::Status;
use wire::nvme::feature::{HOST_BEHAVIOR_BYTES, async_event, capability, fid, select};

use crate::admin::{Fault, Reply, Request, at};
use crate::subsystem::Subsystem;

/// A feature that weft has.
pub(crate) struct Known {
    pub fid: u8,
    /// Discovery controllers have it too.
    pub of_discovery: bool,
    /// What Get Features answers to the select field "supported capabilities".
    pub capabilities: u32,
}

const fn known(fid: u8, of_discovery: bool, capabilities: u32) -> Known {
    Known {
        fid,
        of_discovery,
        capabilities,
    }
}

/// Every feature there is; none can be saved.
pub(crate) const FEATURES: [Known; 11] = [
    known(fid::ARBITRATION, false, capability::CHANGEABLE),
    known(fid::POWER_MANAGEMENT, false, capability::CHANGEABLE),
    known(fid::TEMPERATURE_THRESHOLD, false, capability::CHANGEABLE),
    known(fid::ERROR_RECOVERY, false, capability::NAMESPACE_SPECIFIC),
    known(fid::VOLATILE_WRITE_CACHE, false, 0),
    known(fid::NUMBER_OF_QUEUES, false, capability::CHANGEABLE),
    known(fid::WRITE_ATOMICITY, false, capability::CHANGEABLE),
    known(fid::ASYNC_EVENT_CONFIG, true, capability::CHANGEABLE),
    known(fid::KEEP_ALIVE_TIMER, true, capability::CHANGEABLE),
    known(fid::HOST_BEHAVIOR, false, capability::CHANGEABLE),
    known(fid::HOST_IDENTIFIER, false, 0),
];

/// Values in force. What weft has no use for is kept for the host to read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    pub kato_ms: u32,
    pub async_events: u32,
    arbitration: u32,
    power_management: u32,
    temperature_over: u16,
    temperature_under: u16,
    write_atomicity: u32,
    queues: u32,
    advanced_retry: u8,
}

impl Features {
    /// The defaults.
    pub fn new(subsystem: &Subsystem, is_discovery: bool, kato_ms: u32) -> Self {
        let queues = u32::from(subsystem.limits.io_queues_max.saturating_sub(1));
        Features {
            kato_ms,
            async_events: match (is_discovery, kato_ms) {
                // Without a keep alive timer the host asked for no persistent
                // connection (section 3.1.2.3): it gets no events.
                (true, 0) => 0,
                (true, _) => async_event::DISCOVERY_CHANGE,
                (false, _) => async_event::NAMESPACE_ATTRIBUTE,
            },
            // Arbitration burst: no limit.
            arbitration: 7,
            power_management: 0,
            temperature_over: 0xffff,
            temperature_under: 0,
            write_atomicity: 0,
            queues: queues | queues << 16,
            advanced_retry: 0,
        }
    }
}

/// The entry of [`FEATURES`] that the command means.
fn find(request: &Request<'_>) -> Result<&'static Known, Fault> {
    let controller = &request.controller;
    let wanted = request.sqe.cdw10.get() as u8;
    FEATURES
        .iter()
        .find(|feature| feature.fid == wanted)
        .filter(|feature| !controller.is_discovery || feature.of_discovery)
        .filter(|feature| {
            feature.fid != fid::VOLATILE_WRITE_CACHE || controller.subsystem.has_volatile_cache()
        })
        .ok_or(Fault::field(at::CDW10))
}

/// Get Features.
pub(crate) fn get(request: &mut Request<'_>) -> Result<Reply, Fault> {
    let feature = find(request)?;
    let cdw11 = request.sqe.cdw11.get();
    let controller = &request.controller;
    let values = match (request.sqe.cdw10.get() >> 8 & 7) as u8 {
        select::CURRENT => controller.features.clone(),
        select::DEFAULT | select::SAVED => Features::new(
            &controller.subsystem,
            controller.is_discovery,
            controller.kato_default_ms(),
        ),
        select::CAPABILITIES => return Ok(Reply::done(u64::from(feature.capabilities))),
        _ => return Err(Fault::field(at::CDW10)),
    };
    let value = match feature.fid {
        fid::ARBITRATION => values.arbitration,
        fid::POWER_MANAGEMENT => values.power_management,
        fid::TEMPERATURE_THRESHOLD => {
            let is_under = temperature_selector(cdw11, false)?;
            u32::from(if is_under {
                values.temperature_under
            } else {
                values.temperature_over
            })
        }
        fid::ERROR_RECOVERY => {
            expect_namespace(request)?;
            0
        }
        fid::VOLATILE_WRITE_CACHE => 1,
        fid::NUMBER_OF_QUEUES => values.queues,
        fid::WRITE_ATOMICITY => values.write_atomicity,
        fid::ASYNC_EVENT_CONFIG => values.async_events,
        fid::KEEP_ALIVE_TIMER => values.kato_ms,
        fid::HOST_BEHAVIOR => {
            let mut data = [0; HOST_BEHAVIOR_BYTES];
            data[0] = values.advanced_retry;
            return request.put(&data);
        }
        fid::HOST_IDENTIFIER => {
            // Fabrics hosts have 128-bit identifiers: EXHID must be set (section 5.27.1.25).
            if cdw11 & 1 == 0 {
                return Err(Fault::field(at::CDW11));
            }
            let hostid = request.controller.hostid;
            return request.put(&hostid);
        }
        other => unreachable!("feature {other:#x} is in the table"),
    };
    Ok(Reply::done(u64::from(value)))
}

/// Set Features.
pub(crate) fn set(request: &mut Request<'_>) -> Result<Reply, Fault> {
    let feature = find(request)?;
    if request.sqe.cdw10.get() >> 31 != 0 {
        return Err(Fault::new(Status::FEATURE_NOT_SAVEABLE, at::CDW10));
    }
    if feature.capabilities & capability::NAMESPACE_SPECIFIC != 0 {
        expect_namespace(request)?;
    } else if request.expect_no_namespace().is_err() {
        return Err(Fault::new(Status::FEATURE_NOT_NS_SPECIFIC, at::NSID));
    }
    let cdw11 = request.sqe.cdw11.get();
    let has_io_queues = request.controller.queues().any(|qid| qid != 0);
    let values = &mut request.controller.features;
    match feature.fid {
        fid::ARBITRATION => values.arbitration = cdw11,
        fid::POWER_MANAGEMENT => {
            // There is one power state, 0.
            if cdw11 & 0x1f != 0 {
                return Err(Fault::field(at::CDW11));
            }
            values.power_management = cdw11 & 0xff;
        }
        fid::TEMPERATURE_THRESHOLD => {
            if temperature_selector(cdw11, true)? {
                values.temperature_under = cdw11 as u16;
            } else {
                values.temperature_over = cdw11 as u16;
            }
        }
        // Neither a time limit for retries nor errors for deallocated blocks;
        // a write cache that cannot be turned off: only what is so already.
        fid::ERROR_RECOVERY if cdw11 & 0x1_ffff == 0 => {}
        fid::VOLATILE_WRITE_CACHE if cdw11 & 1 == 1 => {}
        fid::ERROR_RECOVERY | fid::VOLATILE_WRITE_CACHE => {
            return Err(Fault::new(Status::FEATURE_NOT_CHANGEABLE, at::CDW11));
        }
        fid::NUMBER_OF_QUEUES => return set_queues(request, has_io_queues),
        fid::WRITE_ATOMICITY => values.write_atomicity = cdw11 & 1,
        fid::ASYNC_EVENT_CONFIG => {
            let supported = if request.controller.is_discovery {
                async_event::DISCOVERY_CHANGE
            } else {
                async_event::SMART_WARNINGS | async_event::NAMESPACE_ATTRIBUTE
            };
            if cdw11 & !supported != 0 {
                return Err(Fault::field(at::CDW11));
            }
            request.controller.features.async_events = cdw11;
        }
        fid::KEEP_ALIVE_TIMER => request.controller.set_kato(cdw11, request.env.now),
        fid::HOST_BEHAVIOR => {
            let data = request
                .data
                .get(..HOST_BEHAVIOR_BYTES)
                .ok_or(Fault::new(Status::DATA_SGL_LENGTH_INVALID, at::SGL))?;
            // Advanced command retry is the one behavior that means something here.
            if data[0] > 1 || data[1..].iter().any(|byte| *byte != 0) {
                return Err(Fault::field(at::SGL));
            }
            values.advanced_retry = data[0];
        }
        // Over fabrics the identifier comes with Connect (section 5.27.1.25).
        fid::HOST_IDENTIFIER => return Err(Fault::new(Status::COMMAND_SEQUENCE, at::CDW10)),
        other => unreachable!("feature {other:#x} is in the table"),
    }
    Ok(Reply::done(0))
}

/// Number of Queues (section 5.27.1.5): before any I/O queue, and FFFFh is no number.
fn set_queues(request: &mut Request<'_>, has_io_queues: bool) -> Result<Reply, Fault> {
    let cdw11 = request.sqe.cdw11.get();
    let (submission, completion) = (cdw11 & 0xffff, cdw11 >> 16);
    if submission == 0xffff || completion == 0xffff {
        return Err(Fault::field(at::CDW11));
    }
    if has_io_queues {
        return Err(Fault::new(Status::COMMAND_SEQUENCE, at::CDW10));
    }
    let most = u32::from(
        request
            .controller
            .subsystem
            .limits
            .io_queues_max
            .saturating_sub(1),
    );
    // A fabrics queue is a pair: as many of the one as of the other.
    let allocated = submission.max(completion).min(most);
    request.controller.features.queues = allocated | allocated << 16;
    Ok(Reply::done(u64::from(request.controller.features.queues)))
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

fn expect_namespace(request: &Request<'_>) -> Result<(), Fault> {
    match request
        .controller
        .subsystem
        .namespace(request.sqe.nsid.get())
    {
        Some(_) => Ok(()),
        None => Err(Fault::new(Status::INVALID_NAMESPACE, at::NSID)),
    }
}
