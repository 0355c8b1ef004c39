//! Reservations as hosts ask for them and are notified of them (NVM Express Base
//! Specification 2.0, sections 7.2 to 7.5 and 8.19). The store knows registrants and
//! holders: here are the commands' fields, the report, and what a controller keeps
//! for its host: notifications and their mask.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use wire::nvme::feature::fid;
use wire::nvme::reservation::{
    self as fields, AcquireData, EDS, IEKEY, Notification, RegisterData, Registrant, ReleaseData,
    action, cptpl, mask, rescap as cap,
};
use wire::nvme::{NSID_ALL, Sqe, Status, io};
use zerocopy::{FromBytes, IntoBytes};

use crate::controller::RESERVATION_EVENT;
use crate::feature::{Get, Value};
use crate::request::{AdminOutcome, AdminRequest as Admin, Fault, Reply, at};
use crate::subsystem::Namespace;

/// Notifications that a controller keeps until its host reads them. What comes
/// on top is lost, which the host sees in their numbers.
const NOTIFICATIONS_MAX: usize = 256;

/// The largest reservation type.
const RTYPE_MAX: u8 = 6;

/// What a reservation command asks for. `current` is the key that the host says
/// it has, `None` if it does not matter (IEKEY); `rtype` is 1 to 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Register a key.
    Register {
        /// The key.
        key: u64,
        /// The new Persist Through Power Loss State.
        persist: Option<bool>,
    },
    /// Replace the key.
    Replace {
        /// The key so far.
        current: Option<u64>,
        /// The new key.
        key: u64,
        /// The new Persist Through Power Loss State.
        persist: Option<bool>,
    },
    /// Unregister the key.
    Unregister {
        /// The key so far.
        current: Option<u64>,
        /// The new Persist Through Power Loss State.
        persist: Option<bool>,
    },
    /// Acquire a reservation.
    Acquire {
        /// The host's key.
        current: u64,
        /// Reservation type.
        rtype: u8,
    },
    /// Preempt.
    Preempt {
        /// The host's key.
        current: u64,
        /// The key of the registrants to preempt.
        victim: u64,
        /// Reservation type.
        rtype: u8,
        /// And abort their commands.
        aborts: bool,
    },
    /// Release the reservation.
    Release {
        /// The host's key.
        current: u64,
        /// Reservation type.
        rtype: u8,
    },
    /// Clear reservation and registrants.
    Clear {
        /// The host's key.
        current: u64,
    },
    /// Report, with 128-bit Host Identifiers.
    Report,
}

/// Reads a reservation command and its data.
pub fn decode(sqe: &Sqe, data: &[u8]) -> Result<ReservationCommand, Status> {
    let cdw10 = sqe.cdw10.get();
    let wanted = (cdw10 & 7) as u8;
    let ignores_key = cdw10 & IEKEY != 0;
    match sqe.opcode {
        io::RESERVATION_REGISTER => {
            let keys: RegisterData = read(data)?;
            let current = (!ignores_key).then(|| keys.crkey.get());
            let key = keys.nrkey.get();
            let persist = match (cdw10 >> 30) as u8 {
                cptpl::KEEP => None,
                cptpl::CLEAR => Some(false),
                cptpl::SET => Some(true),
                _ => return Err(INVALID),
            };
            match wanted {
                action::REGISTER => Ok(ReservationCommand::Register { key, persist }),
                action::UNREGISTER => Ok(ReservationCommand::Unregister { current, persist }),
                action::REPLACE => Ok(ReservationCommand::Replace {
                    current,
                    key,
                    persist,
                }),
                _ => Err(INVALID),
            }
        }
        // Only Register may ignore the key since revision 1.3 (RESCAP bit 7).
        io::RESERVATION_ACQUIRE | io::RESERVATION_RELEASE if ignores_key => Err(INVALID),
        io::RESERVATION_ACQUIRE => {
            let keys: AcquireData = read(data)?;
            let (current, victim) = (keys.crkey.get(), keys.prkey.get());
            let rtype = rtype(cdw10)?;
            match wanted {
                action::ACQUIRE => Ok(ReservationCommand::Acquire { current, rtype }),
                action::PREEMPT | action::PREEMPT_AND_ABORT => Ok(ReservationCommand::Preempt {
                    current,
                    victim,
                    rtype,
                    aborts: wanted == action::PREEMPT_AND_ABORT,
                }),
                _ => Err(INVALID),
            }
        }
        io::RESERVATION_RELEASE => {
            let keys: ReleaseData = read(data)?;
            let current = keys.crkey.get();
            match wanted {
                action::RELEASE => Ok(ReservationCommand::Release {
                    current,
                    rtype: rtype(cdw10)?,
                }),
                action::CLEAR => Ok(ReservationCommand::Clear { current }),
                _ => Err(INVALID),
            }
        }
        // Hosts of fabrics have 128-bit identifiers, which the short form
        // cannot hold (section 7.5).
        io::RESERVATION_REPORT if sqe.cdw11.get() & EDS == 0 => {
            Err(Status::HOST_ID_INCONSISTENT.dnr())
        }
        io::RESERVATION_REPORT => Ok(ReservationCommand::Report),
        _ => Err(Status::INVALID_OPCODE.dnr()),
    }
}

const INVALID: Status = Status::INVALID_FIELD.dnr();

fn read<T: FromBytes>(data: &[u8]) -> Result<T, Status> {
    T::read_from_prefix(data)
        .map(|(keys, _)| keys)
        .map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())
}

fn rtype(cdw10: u32) -> Result<u8, Status> {
    let rtype = (cdw10 >> 8) as u8;
    match rtype {
        1..=RTYPE_MAX => Ok(rtype),
        _ => Err(INVALID),
    }
}

/// Bytes that a Reservation Report asks for.
pub fn report_len(sqe: &Sqe) -> u64 {
    (u64::from(sqe.cdw10.get()) + 1) * 4
}

/// A Reservation Status Extended data structure: what a report answers, of
/// which the host takes as much as it asked for. `registrants`: Host
/// Identifier, key, and whether it holds the reservation.
pub fn report(
    generation: u32,
    rtype: u8,
    persist: bool,
    registrants: impl ExactSizeIterator<Item = ([u8; 16], u64, bool)>,
) -> Vec<u8> {
    let count = u16::try_from(registrants.len()).unwrap_or(u16::MAX);
    let head = fields::Status::new(generation, rtype, count, persist);
    let mut bytes = head.as_bytes().to_vec();
    for (hostid, key, is_holder) in registrants {
        bytes.extend_from_slice(Registrant::new(hostid, key, is_holder).as_bytes());
    }
    bytes
}

/// Reservation Capabilities of a namespace (RESCAP).
pub fn rescap(can_persist: bool) -> u8 {
    let persist = if can_persist { cap::PERSIST } else { 0 };
    cap::ALL_TYPES | cap::IEKEY_1_3 | persist
}

/// What happened to a host's registration or reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Notice {
    /// Registration Preempted.
    RegistrationPreempted = fields::notice::REGISTRATION_PREEMPTED,
    /// Reservation Released.
    ReservationReleased = fields::notice::RESERVATION_RELEASED,
    /// Reservation Preempted.
    ReservationPreempted = fields::notice::RESERVATION_PREEMPTED,
}

impl Notice {
    /// Its bit in the mask.
    fn mask(self) -> u32 {
        match self {
            Notice::RegistrationPreempted => mask::REGISTRATION_PREEMPTED,
            Notice::ReservationReleased => mask::RESERVATION_RELEASED,
            Notice::ReservationPreempted => mask::RESERVATION_PREEMPTED,
        }
    }
}

/// Every bit that the mask has.
const MASK: u32 =
    mask::REGISTRATION_PREEMPTED | mask::RESERVATION_RELEASED | mask::RESERVATION_PREEMPTED;

/// Notifications that wait for one controller's host, and those that it has masked.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// Number, what, and of which namespace; the oldest first.
    queue: VecDeque<(u64, Notice, u32)>,
    /// Number of the last one, the lost ones counted.
    count: u64,
    /// Masks by namespace, where they are not `mask`.
    masks: BTreeMap<u32, u32>,
    mask: u32,
}

impl Notifications {
    /// Something happened; whether the host is to be told.
    pub fn push(&mut self, nsid: u32, notice: Notice) -> bool {
        if self.mask(nsid) & notice.mask() != 0 {
            return false;
        }
        // 0 says that there is none (section 5.16.1.24).
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.queue.len() < NOTIFICATIONS_MAX {
            self.queue.push_back((self.count, notice, nsid));
        }
        true
    }

    /// The oldest one, as its log page.
    fn page(&self) -> Notification {
        let more = self.queue.len().saturating_sub(1);
        let more = u8::try_from(more).unwrap_or(u8::MAX);
        match self.queue.front() {
            Some((count, notice, nsid)) => Notification::new(*count, *notice as u8, more, *nsid),
            None => Notification::new(0, fields::notice::EMPTY, 0, 0),
        }
    }

    fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(&nsid).copied().unwrap_or(self.mask)
    }

    fn set_mask(&mut self, nsid: u32, mask: u32) {
        if nsid == NSID_ALL {
            self.masks.clear();
            self.mask = mask;
        } else {
            self.masks.insert(nsid, mask);
        }
    }
}

/// The Reservation Notification log page.
pub(crate) fn log_page(request: &Admin<'_>) -> Vec<u8> {
    let page = request.controller.notifications.page();
    page.as_bytes().to_vec()
}

/// The log page was read for good: the next one takes its place and is told
/// again, so that a host which reads one page an event reads them all.
pub(crate) fn on_log_read(request: &mut Admin<'_>) {
    let controller = &mut *request.controller;
    controller.clear_event(RESERVATION_EVENT);
    controller.notifications.queue.pop_front();
    if !controller.notifications.queue.is_empty() {
        controller.raise(RESERVATION_EVENT);
    }
}

/// Get Features of Reservation Notification Mask, which is 0 by default.
pub(crate) fn get_mask(get: &Get<'_>) -> Result<Value, Fault> {
    let notifications = &get.controller.notifications;
    let mask = get
        .namespace
        .map(|namespace| notifications.mask(namespace.nsid));
    Ok(Value::Dword(mask.unwrap_or(0)))
}

/// Get Features of Reservation Persistence, which is 0 by default.
pub(crate) fn get_persistence(get: &Get<'_>) -> Result<Value, Fault> {
    let Some(namespace) = get.namespace else {
        return Ok(Value::Dword(0));
    };
    Ok(Value::Elsewhere(AdminOutcome::ReservationPersistence {
        nsid: namespace.nsid,
        set: None,
    }))
}

/// Set Features of the same.
pub(crate) fn set_feature(request: &mut Admin<'_>) -> Result<AdminOutcome, Fault> {
    let (cdw11, nsid) = (request.sqe.cdw11.get(), request.sqe.nsid.get());
    if request.sqe.cdw10.get() as u8 == fid::RESERVATION_NOTIFICATION_MASK {
        if cdw11 & !MASK != 0 {
            return Err(Fault::field(at::CDW11));
        }
        request.controller.notifications.set_mask(nsid, cdw11);
        return Ok(AdminOutcome::Done(Reply::done(0)));
    }
    let persist = match cdw11 {
        0 => false,
        1 => true,
        _ => return Err(Fault::field(at::CDW11)),
    };
    let all_can = namespaces(request)
        .filter(|namespace| nsid == NSID_ALL || namespace.nsid == nsid)
        .all(|namespace| namespace.persists_state);
    if persist && !all_can {
        return Err(Fault::field(at::CDW11));
    }
    Ok(AdminOutcome::ReservationPersistence {
        nsid,
        set: Some(persist),
    })
}

/// The namespaces that the host sees.
fn namespaces<'a>(request: &'a Admin<'_>) -> impl Iterator<Item = &'a Namespace> {
    request.controller.namespaces()
}
