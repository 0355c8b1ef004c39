//! Reservations: which hosts may read and write a volume that several share.
//!
//! They belong to the volume, not to a protocol: whichever way hosts come, they
//! meet here. The rules are those of NVM Express Base Specification 2.0, section
//! 8.19, which are SPC-4's (section 5.13) with a host in the place of an I_T
//! nexus. What SCSI has alone: registering others, moving a reservation, and
//! SCSI-2's RESERVE.
//!
//! Changes may write a file ([`crate::State`]) and so may block: never on a
//! reactor. What an I/O needs is [`Reservations::access`]: one load and one
//! comparison as long as nothing changes.

mod rules;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faults::Fault;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::state::StateFile;
pub(crate) use rules::Rules;

/// Registrants of one volume: as many as the count in an NVMe Reservation
/// Report can say.
pub const REGISTRANTS_MAX: usize = u16::MAX as usize;

/// What may be registered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Registrant {
    /// An NVMe host, by its Host Identifier: through whichever controller.
    NvmeHost([u8; 16]),
    /// A SCSI I_T nexus: one port of an initiator at one port of a target.
    ScsiNexus(ScsiNexus),
}

/// An I_T nexus by the names of its ports (SAM-5, section 4.5; RFC 7143,
/// section 4.4.1 says how iSCSI ports are named).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScsiNexus {
    /// The initiator port, `iqn...,i,0x` and the ISID in 12 hexadecimal digits.
    pub initiator: String,
    /// Name of the target.
    pub target: String,
    /// Portal group tag, which is the relative target port identifier too.
    pub port: u16,
}

const NVME_HOST: &str = "nvme-host:";
const SCSI_NEXUS: &str = "scsi-nexus:";
/// Between the names of a nexus; no name of a port has it.
const BETWEEN: char = ' ';
/// Between a target's name and the tag.
const TAG: &str = ",t,0x";

impl fmt::Display for Registrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Registrant::NvmeHost(hostid) => {
                f.write_str(NVME_HOST)?;
                hostid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Registrant::ScsiNexus(nexus) => {
                let ScsiNexus {
                    initiator,
                    target,
                    port,
                } = nexus;
                write!(f, "{SCSI_NEXUS}{initiator}{BETWEEN}{target}{TAG}{port:04x}")
            }
        }
    }
}

impl From<Registrant> for String {
    fn from(registrant: Registrant) -> String {
        registrant.to_string()
    }
}

impl TryFrom<String> for Registrant {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Registrant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = match text.strip_prefix(NVME_HOST) {
            Some(hostid) => hexadecimal(hostid, 32)
                .map(u128::to_be_bytes)
                .map(Registrant::NvmeHost),
            None => (text.strip_prefix(SCSI_NEXUS))
                .and_then(nexus)
                .map(Registrant::ScsiNexus),
        };
        found.ok_or_else(|| format!("'{text}' names no registrant"))
    }
}

/// A number of exactly so many hexadecimal digits.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_number = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_number.then(|| u128::from_str_radix(text, 16).ok())?
}

fn nexus(text: &str) -> Option<ScsiNexus> {
    let (initiator, port) = text.split_once(BETWEEN)?;
    let (target, tag) = port.rsplit_once(TAG)?;
    let is_name = |name: &str| !name.is_empty() && !name.contains(BETWEEN);
    let tag = hexadecimal(tag, 4)?;
    (is_name(initiator) && is_name(target)).then(|| ScsiNexus {
        initiator: initiator.to_owned(),
        target: target.to_owned(),
        port: tag as u16,
    })
}

impl Registrant {
    /// What stands for it where NVMe hosts are told of registrants: a Host
    /// Identifier. That of a SCSI nexus follows from its name (a UUID of
    /// version 5), so that it is the same after a restart and no host's.
    pub fn host_identifier(&self) -> [u8; 16] {
        match self {
            Registrant::NvmeHost(hostid) => *hostid,
            Registrant::ScsiNexus(_) => {
                let name = self.to_string();
                Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).into_bytes()
            }
        }
    }
}

/// What a reservation keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Type {
    /// Write Exclusive: the holder writes, all hosts read.
    WriteExclusive,
    /// Exclusive Access: the holder alone.
    ExclusiveAccess,
    /// Write Exclusive - Registrants Only: registrants write, all hosts read.
    WriteExclusiveRegistrantsOnly,
    /// Exclusive Access - Registrants Only.
    ExclusiveAccessRegistrantsOnly,
    /// Write Exclusive - All Registrants: likewise, and every registrant holds it.
    WriteExclusiveAllRegistrants,
    /// Exclusive Access - All Registrants.
    ExclusiveAccessAllRegistrants,
}

/// What one host may do. Without a reservation: everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Commands that read.
    pub read: bool,
    /// Commands that write.
    pub write: bool,
    /// Commands that do neither but look at the unit, as TEST UNIT READY: only
    /// SCSI-2's RESERVE keeps others from them.
    pub other: bool,
}

impl Access {
    /// Everything.
    pub const ALL: Access = Access {
        read: true,
        write: true,
        other: true,
    };
    /// Nothing but asking what is registered and reserved.
    pub const NONE: Access = Access {
        read: false,
        write: false,
        other: false,
    };
}

/// What [`Reservations::access`] found last for one host; its owner keeps it.
/// The default is that it was never asked.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    generation: u64,
    access: Access,
}

impl Default for Grant {
    fn default() -> Self {
        Grant {
            generation: 0,
            access: Access::NONE,
        }
    }
}

/// A change that a host asks for. Keys that do not match are a conflict.
///
/// NVMe and SCSI register in different words, since what is an error to one is
/// none to the other; all else is the same to both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationRequest {
    /// Registers with a key.
    Register {
        /// The key, not 0.
        key: u64,
        /// Sets or clears Persist Through Power Loss.
        persist: Option<bool>,
    },
    /// Changes the key.
    Replace {
        /// The key so far; `None`: whatever it is, also registering anew.
        current: Option<u64>,
        /// The new key, not 0.
        key: u64,
        /// As in [`ReservationRequest::Register`].
        persist: Option<bool>,
    },
    /// Ends the registration, and the reservation with its last holder.
    Unregister {
        /// The key; `None`: whatever it is.
        current: Option<u64>,
        /// As in [`ReservationRequest::Register`].
        persist: Option<bool>,
    },
    /// Takes the reservation while it is free.
    Acquire {
        /// The asker's key.
        current: u64,
        /// Of which type.
        kind: Type,
    },
    /// Removes registrants by their key, and takes the reservation if its
    /// holder is among them.
    Preempt {
        /// The asker's key.
        current: u64,
        /// The key of those to remove; 0: of all, where all are holders.
        victim: u64,
        /// Type of the reservation taken.
        kind: Type,
    },
    /// Gives the reservation up.
    Release {
        /// The asker's key.
        current: u64,
        /// Its type.
        kind: Type,
    },
    /// Ends the reservation and every registration.
    Clear {
        /// The asker's key.
        current: u64,
    },
    /// SCSI's REGISTER (SPC-4, section 5.13.7): registers, changes the key or,
    /// with a key of 0, ends the registration.
    ScsiRegister {
        /// The key so far, 0 for an asker that is not registered; `None`, REGISTER AND
        /// IGNORE EXISTING KEY: whatever it is.
        current: Option<u64>,
        /// The new key; 0: none.
        key: u64,
        /// Persist through power loss, APTPL; always said.
        persist: bool,
        /// The same initiator port at the target's other ports, ALL_TG_PT: what
        /// is done for the asker is done for those of them for which it is possible.
        ports: Vec<Registrant>,
        /// Others to register with the asker, which must not be registered so far,
        /// SPEC_I_PT. Those that are registered stay as they are.
        named: Vec<Registrant>,
    },
    /// SCSI's REGISTER AND MOVE (SPC-4, section 5.13.8): registers another and
    /// gives the reservation to it.
    Move {
        /// The asker's key.
        current: u64,
        /// The new holder.
        to: Registrant,
        /// The key of `to` from then on, not 0.
        key: u64,
        /// Ends the asker's registration.
        unregister: bool,
        /// As in [`ReservationRequest::ScsiRegister`].
        persist: bool,
    },
    /// SCSI-2's RESERVE (SPC-2, section 7.21): the unit for the asker alone, as
    /// long as its nexus lasts. Such a reservation and registrations exclude
    /// each other; where a registration gives the asker access anyway, it does nothing
    /// (SPC-4, section 5.13.3).
    ReserveUnit,
    /// SCSI-2's RELEASE (SPC-2, section 7.18); it does nothing for a nexus that has not
    /// reserved.
    ReleaseUnit,
}

/// What others are told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// Your registration was preempted.
    RegistrationPreempted,
    /// A reservation that let you in as a registrant, or kept you out, is gone.
    ReservationReleased,
    /// Reservation and registrations were cleared.
    ReservationPreempted,
}

/// A change that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationChange {
    /// The notices to send, and to which registrants, in order of those.
    pub notices: Vec<(Registrant, Notice)>,
    /// Some host may do less than before, or than without the reservation that was asked
    /// for once more: what it began must be over before the change is answered.
    pub access_lost: bool,
}

impl ReservationChange {
    /// Those whose registration the change removed against their will by
    /// preemption: a preempt and abort ends their commands.
    pub fn preempted(&self) -> impl Iterator<Item = &Registrant> {
        self.notices
            .iter()
            .filter(|(_, notice)| *notice == Notice::RegistrationPreempted)
            .map(|(registrant, _)| registrant)
    }
}

/// Why a change was refused. Nothing changed then.
#[derive(Debug, thiserror::Error)]
pub enum ReservationRefused {
    /// Not registered, the wrong key, or another registrant holds the reservation.
    #[error("conflicts with the reservation")]
    Conflict,
    /// A key of 0, another type than the one held, nothing to preempt.
    #[error("means nothing here")]
    Invalid,
    /// Persist Through Power Loss is asked of a volume without a state file.
    #[error("the volume has no state file")]
    Volatile,
    /// [`REGISTRANTS_MAX`] are registered.
    #[error("{REGISTRANTS_MAX} are registered")]
    Full,
    /// It could not be made to last.
    #[error("not saved: {0}")]
    Unsaved(io::Error),
}

/// How things stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationReport {
    /// The holder of the unit by SCSI-2's RESERVE.
    pub reserved: Option<Registrant>,
    /// Counts registrations, preemptions and clearings; wraps.
    pub generation: u32,
    /// The reservation, if one is held.
    pub kind: Option<Type>,
    /// Whether all this outlasts a loss of power.
    pub persist: bool,
    /// Registrants with their keys, and whether they hold the reservation.
    pub registrants: Vec<(Registrant, u64, bool)>,
}

/// Never the same twice in a process, so that a [`Grant`] of one volume is
/// worth nothing on another that takes its place.
fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The reservations of one volume.
pub struct Reservations {
    /// Another one with every change of the rules.
    generation: AtomicU64,
    /// Swapped whole: held for a moment only, whatever is registered.
    rules: Mutex<Arc<Rules>>,
    /// Held while a change is made, which may take as long as a sync does.
    turn: Mutex<()>,
    file: Option<Arc<StateFile>>,
}

impl Reservations {
    /// As saved in the volume's state file; empty without one.
    pub(crate) fn open(file: Option<Arc<StateFile>>) -> Self {
        let saved = file
            .as_ref()
            .and_then(|file| file.read(|document| document.reservations.clone()));
        Reservations {
            generation: AtomicU64::new(next_generation()),
            rules: Mutex::new(Arc::new(saved.unwrap_or_default())),
            turn: Mutex::new(()),
            file,
        }
    }

    #[inline]
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What `registrant` may do now. `grant` spares the question while nothing changes.
    #[inline]
    pub fn access(&self, registrant: &Registrant, grant: &mut Grant) -> Access {
        let is_known = grant.generation > 0 && faults::is(Fault::StaleGrant);
        if grant.generation != self.generation() && !is_known {
            *grant = self.grant_of(registrant);
        }
        grant.access
    }

    #[cold]
    fn grant_of(&self, registrant: &Registrant) -> Grant {
        let (rules, generation) = {
            let rules = self.locked();
            (rules.clone(), self.generation())
        };
        Grant {
            generation,
            access: rules.access(registrant),
        }
    }

    /// Whether Persist Through Power Loss can be had.
    pub fn can_persist(&self) -> bool {
        self.file.is_some()
    }

    /// Whether Persist Through Power Loss is on.
    pub fn persists(&self) -> bool {
        self.rules().persist
    }

    /// Makes a change; what must last is on the disk when it returns. Blocks.
    pub fn change(
        &self,
        registrant: &Registrant,
        request: &ReservationRequest,
    ) -> Result<ReservationChange, ReservationRefused> {
        use ReservationRequest::{Acquire, Preempt, ReserveUnit};
        let takes = matches!(request, Acquire { .. } | Preempt { .. } | ReserveUnit);
        self.apply(takes, |rules| rules.apply(registrant, request))
    }

    /// Sets Persist Through Power Loss. Blocks.
    pub fn set_persist(&self, persist: bool) -> Result<(), ReservationRefused> {
        self.apply(false, |rules| {
            rules.persist = persist;
            Ok(Vec::new())
        })?;
        Ok(())
    }

    /// Frees the unit that SCSI-2's RESERVE took for `holder`, or for any if that is
    /// `None`: the nexus is lost, the unit was reset. Whether it was reserved so. Waits
    /// for a change that is being made.
    pub fn reset(&self, holder: Option<&Registrant>) -> bool {
        // Looked at first: nearly always there is nothing to wait for.
        if !self.rules().is_reserved_by(holder) {
            return false;
        }
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.reset_in_turn(&turn, holder)
    }

    /// The same for any holder, without waiting; false: a change is being made, nothing
    /// was done.
    pub fn try_reset(&self) -> bool {
        if self.rules().is_reserved_by(None) {
            let Ok(turn) = self.turn.try_lock() else {
                return false;
            };
            self.reset_in_turn(&turn, None);
        }
        true
    }

    fn reset_in_turn(&self, _: &MutexGuard<'_, ()>, holder: Option<&Registrant>) -> bool {
        let mut after = Rules::clone(&self.rules());
        let is_free = after.reset(holder);
        if is_free {
            self.replace(after);
        }
        is_free
    }

    /// How things stand.
    pub fn report(&self) -> ReservationReport {
        self.rules().report()
    }

    /// A host that `takes` the reservation may have it already by a request that was given
    /// up before the commands of others had ended: the change counts as a loss of access
    /// all the same.
    fn apply(
        &self,
        takes: bool,
        change: impl FnOnce(&mut Rules) -> Result<Vec<(Registrant, Notice)>, ReservationRefused>,
    ) -> Result<ReservationChange, ReservationRefused> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.rules();
        let mut after = Rules::clone(&before);
        let notices = change(&mut after)?;
        let is_held = takes && after.takes_access_from(&Rules::default());
        let access_lost = is_held || after.takes_access_from(&before);
        if after != *before {
            self.save(&before, &after)?;
            self.replace(after);
        }
        Ok(ReservationChange {
            notices,
            access_lost,
        })
    }

    fn replace(&self, after: Rules) {
        let mut rules = self.locked();
        *rules = Arc::new(after);
        // Under the lock: a reader of the new generation finds the new rules.
        self.generation.store(next_generation(), Ordering::Release);
    }

    fn save(&self, before: &Rules, after: &Rules) -> Result<(), ReservationRefused> {
        if !before.persist && !after.persist || faults::is(Fault::ForgetPersist) {
            return Ok(());
        }
        let file = self.file.as_ref().ok_or(ReservationRefused::Volatile)?;
        file.update(|document| {
            document.reservations = after.persist.then(|| after.clone());
        })
        .map_err(ReservationRefused::Unsaved)
    }

    fn rules(&self) -> Arc<Rules> {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Rules>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
