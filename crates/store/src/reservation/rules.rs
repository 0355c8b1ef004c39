//! The rules of reservations, as plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod scsi;

use super::{
    Access, Notice, REGISTRANTS_MAX, Registrant, ReservationRefused, ReservationReport,
    ReservationRequest, Type,
};

/// A reservation that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeldReservation {
    kind: Type,
    /// `None`: every registrant.
    holder: Option<Registrant>,
}

/// Registrants and reservation of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// The holder of the unit by SCSI-2's RESERVE: ends with its nexus, so that
    /// it is not in the file.
    #[serde(skip)]
    reserved: Option<Registrant>,
    /// Counts registrations, preemptions and clearings.
    generation: u32,
    /// Whether all this outlasts a loss of power.
    pub(super) persist: bool,
    held: Option<HeldReservation>,
    registrants: BTreeMap<Registrant, u64>,
}

impl Type {
    /// Whether every registrant holds it.
    fn is_of_all(self) -> bool {
        matches!(
            self,
            Type::WriteExclusiveAllRegistrants | Type::ExclusiveAccessAllRegistrants
        )
    }

    /// Whether its end is told to the other registrants (section 8.19.1), as it
    /// gives registrants access.
    fn is_of_registrants(self) -> bool {
        !matches!(self, Type::WriteExclusive | Type::ExclusiveAccess)
    }

    /// What a host that is not registered may do, and what a registrant that
    /// does not hold it may do (section 8.19, the table of command behavior). A
    /// holder may do all.
    fn access(self) -> (Access, Access) {
        const ALL: Access = Access::ALL;
        const READ: Access = Access {
            write: false,
            ..Access::ALL
        };
        const NONE: Access = Access {
            read: false,
            ..READ
        };
        match self {
            Type::WriteExclusive => (READ, READ),
            Type::ExclusiveAccess => (NONE, NONE),
            Type::WriteExclusiveRegistrantsOnly | Type::WriteExclusiveAllRegistrants => (READ, ALL),
            Type::ExclusiveAccessRegistrantsOnly | Type::ExclusiveAccessAllRegistrants => {
                (NONE, ALL)
            }
        }
    }
}

impl Rules {
    pub fn access(&self, registrant: &Registrant) -> Access {
        if let Some(holder) = &self.reserved {
            return match holder == registrant {
                true => Access::ALL,
                false => Access::NONE,
            };
        }
        let Some(held) = &self.held else {
            return Access::ALL;
        };
        let (unregistered, registered) = held.kind.access();
        if self.is_holder(registrant) {
            Access::ALL
        } else if self.registrants.contains_key(registrant) {
            registered
        } else {
            unregistered
        }
    }

    fn is_holder(&self, registrant: &Registrant) -> bool {
        match &self.held {
            Some(HeldReservation {
                holder: Some(holder),
                ..
            }) => holder == registrant,
            Some(HeldReservation { holder: None, .. }) => self.registrants.contains_key(registrant),
            None => false,
        }
    }

    /// Whether some host may do less than before.
    pub fn takes_access_from(&self, before: &Rules) -> bool {
        let less = |was: Access, is: Access| {
            was.read && !is.read || was.write && !is.write || was.other && !is.other
        };
        less(before.strangers_access(), self.strangers_access())
            || (before.registrants.keys())
                .any(|registrant| less(before.access(registrant), self.access(registrant)))
    }

    /// What a host that is not registered may do.
    fn strangers_access(&self) -> Access {
        match (&self.reserved, &self.held) {
            (Some(_), _) => Access::NONE,
            (None, Some(held)) => held.kind.access().0,
            (None, None) => Access::ALL,
        }
    }

    pub fn report(&self) -> ReservationReport {
        ReservationReport {
            reserved: self.reserved.clone(),
            generation: self.generation,
            kind: self.held.as_ref().map(|held| held.kind),
            persist: self.persist,
            registrants: (self.registrants.iter())
                .map(|(registrant, key)| (registrant.clone(), *key, self.is_holder(registrant)))
                .collect(),
        }
    }

    /// Makes a change; returns the notices to send. After a refusal these rules
    /// are worth nothing: it is done to a copy.
    pub fn apply(
        &mut self,
        registrant: &Registrant,
        request: &ReservationRequest,
    ) -> Result<Vec<(Registrant, Notice)>, ReservationRefused> {
        // While the unit is reserved as SCSI-2 does, registrations fail, the
        // holder's own too (SPC-2, section 5.5.1).
        let is_of_scsi_2 = matches!(
            request,
            ReservationRequest::ReserveUnit | ReservationRequest::ReleaseUnit
        );
        if self.reserved.is_some() && !is_of_scsi_2 {
            return Err(ReservationRefused::Conflict);
        }
        match *request {
            ReservationRequest::Register { key, persist } => {
                self.register(registrant, key)?;
                self.registered(persist);
                Ok(Vec::new())
            }
            ReservationRequest::Replace {
                current,
                key,
                persist,
            } => {
                self.replace(registrant, current, key)?;
                self.registered(persist);
                Ok(Vec::new())
            }
            ReservationRequest::Unregister { current, persist } => {
                let notices = self.unregister(registrant, current)?;
                self.registered(persist);
                Ok(notices)
            }
            ReservationRequest::Acquire { current, kind } => {
                self.acquire(registrant, current, kind)
            }
            ReservationRequest::Preempt {
                current,
                victim,
                kind,
            } => self.preempt(registrant, current, victim, kind),
            ReservationRequest::Release { current, kind } => {
                self.release(registrant, current, kind)
            }
            ReservationRequest::Clear { current } => self.clear(registrant, current),
            ReservationRequest::ScsiRegister { .. } | ReservationRequest::Move { .. } => {
                self.apply_scsi(registrant, request)
            }
            ReservationRequest::ReserveUnit => self.reserve_unit(registrant),
            ReservationRequest::ReleaseUnit => self.release_unit(registrant),
        }
    }

    fn registered(&mut self, persist: Option<bool>) {
        self.persist = persist.unwrap_or(self.persist);
        self.generation = self.generation.wrapping_add(1);
    }

    /// Registering again with the same key is no error (section 8.19.2).
    fn register(&mut self, registrant: &Registrant, key: u64) -> Result<(), ReservationRefused> {
        match self.registrants.get(registrant) {
            _ if key == 0 => Err(ReservationRefused::Invalid),
            Some(current) if *current == key => Ok(()),
            Some(_) => Err(ReservationRefused::Conflict),
            None => self.add(registrant, key),
        }
    }

    fn add(&mut self, registrant: &Registrant, key: u64) -> Result<(), ReservationRefused> {
        if self.registrants.len() >= REGISTRANTS_MAX {
            return Err(ReservationRefused::Full);
        }
        self.registrants.insert(registrant.clone(), key);
        Ok(())
    }

    /// A host that ignores its current key need not have one (section 8.19.2).
    fn replace(
        &mut self,
        registrant: &Registrant,
        current: Option<u64>,
        key: u64,
    ) -> Result<(), ReservationRefused> {
        if key == 0 {
            return Err(ReservationRefused::Invalid);
        }
        if current.is_none() && !self.registrants.contains_key(registrant) {
            return self.add(registrant, key);
        }
        self.expect_key(registrant, current)?;
        self.registrants.insert(registrant.clone(), key);
        Ok(())
    }

    fn expect_key(
        &self,
        registrant: &Registrant,
        current: Option<u64>,
    ) -> Result<(), ReservationRefused> {
        match (self.registrants.get(registrant), current) {
            (Some(key), Some(current)) if *key == current => Ok(()),
            (Some(_), None) => Ok(()),
            _ => Err(ReservationRefused::Conflict),
        }
    }

    /// A reservation ends with its holder, and one of all registrants with the
    /// last of them (section 8.19.3). A host that ignores the key may have none,
    /// which is then no error (section 7.3, IEKEY).
    fn unregister(
        &mut self,
        registrant: &Registrant,
        current: Option<u64>,
    ) -> Result<Vec<(Registrant, Notice)>, ReservationRefused> {
        if current.is_some() {
            self.expect_key(registrant, current)?;
        }
        Ok(self.remove(registrant))
    }

    fn remove(&mut self, registrant: &Registrant) -> Vec<(Registrant, Notice)> {
        let was_holder = self.is_holder(registrant);
        self.registrants.remove(registrant);
        match &self.held {
            Some(held) if was_holder && (held.holder.is_some() || self.registrants.is_empty()) => {
                self.end_reservation(registrant)
            }
            _ => Vec::new(),
        }
    }

    fn end_reservation(&mut self, registrant: &Registrant) -> Vec<(Registrant, Notice)> {
        match self.held.take() {
            Some(held) if held.kind.is_of_registrants() => {
                self.tell_others(registrant, Notice::ReservationReleased)
            }
            _ => Vec::new(),
        }
    }

    fn tell_others(&self, registrant: &Registrant, notice: Notice) -> Vec<(Registrant, Notice)> {
        let others = self.registrants.keys().filter(|other| *other != registrant);
        others.map(|other| (other.clone(), notice)).collect()
    }

    /// Acquiring again what one holds is no error (section 8.19.4).
    fn acquire(
        &mut self,
        registrant: &Registrant,
        current: u64,
        kind: Type,
    ) -> Result<Vec<(Registrant, Notice)>, ReservationRefused> {
        self.expect_key(registrant, Some(current))?;
        match &self.held {
            None => self.hold(registrant, kind),
            Some(held) if held.kind == kind && self.is_holder(registrant) => {}
            Some(_) => return Err(ReservationRefused::Conflict),
        }
        Ok(Vec::new())
    }

    fn hold(&mut self, registrant: &Registrant, kind: Type) {
        let holder = (!kind.is_of_all()).then(|| registrant.clone());
        self.held = Some(HeldReservation { kind, holder });
    }

    /// A release by a host that does not hold it is no error (section 8.19.5).
    fn release(
        &mut self,
        registrant: &Registrant,
        current: u64,
        kind: Type,
    ) -> Result<Vec<(Registrant, Notice)>, ReservationRefused> {
        self.expect_key(registrant, Some(current))?;
        match &self.held {
            Some(held) if self.is_holder(registrant) => {
                if held.kind != kind {
                    return Err(ReservationRefused::Invalid);
                }
                Ok(self.end_reservation(registrant))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn clear(
        &mut self,
        registrant: &Registrant,
        current: u64,
    ) -> Result<Vec<(Registrant, Notice)>, ReservationRefused> {
        self.expect_key(registrant, Some(current))?;
        let notices = self.tell_others(registrant, Notice::ReservationPreempted);
        self.held = None;
        self.registrants.clear();
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// Section 8.19.6. Which registrants go, and whether the reservation
    /// changes hands, follows from whose key `victim` is.
    fn preempt(
        &mut self,
        registrant: &Registrant,
        current: u64,
        victim: u64,
        kind: Type,
    ) -> Result<Vec<(Registrant, Notice)>, ReservationRefused> {
        self.expect_key(registrant, Some(current))?;
        let is_of_all = (self.held.as_ref()).is_some_and(|held| held.holder.is_none());
        if victim == 0 && !is_of_all {
            return Err(ReservationRefused::Invalid);
        }
        let has_key = |registrant: &Registrant| self.registrants.get(registrant) == Some(&victim);
        let takes_over = match &self.held {
            None => false,
            Some(HeldReservation { holder: None, .. }) => victim == 0,
            Some(HeldReservation {
                holder: Some(holder),
                ..
            }) => has_key(holder),
        };
        // A host that takes the reservation over keeps its registration: it
        // cannot hold it without. Otherwise its own key is a key like others.
        let gone: Vec<Registrant> = (self.registrants.keys())
            .filter(|other| victim == 0 || has_key(other))
            .filter(|other| !(takes_over && *other == registrant))
            .cloned()
            .collect();
        if gone.is_empty() && !takes_over {
            return Err(ReservationRefused::Conflict);
        }
        let mut notices = Vec::new();
        if takes_over {
            let before = self.held.take();
            for other in &gone {
                self.registrants.remove(other);
            }
            if before.is_some_and(|held| held.kind != kind) {
                notices = self.tell_others(registrant, Notice::ReservationReleased);
            }
            self.hold(registrant, kind);
        } else {
            for other in &gone {
                notices.extend(self.remove(other));
            }
        }
        notices.extend((gone.into_iter()).map(|other| (other, Notice::RegistrationPreempted)));
        notices.retain(|(told, _)| told != registrant);
        notices.sort();
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }
}
