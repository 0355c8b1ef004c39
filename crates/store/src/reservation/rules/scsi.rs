//! What SCSI asks of reservations and NVMe does not.

use super::{HeldReservation, Notice, Registrant, ReservationRefused, ReservationRequest, Rules};

/// The notices of a change, each with the registrant that it is for.
type Notices = Vec<(Registrant, Notice)>;

/// What a REGISTER does to one nexus (SPC-4, section 5.13.7, the tables of
/// register behaviors).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Nothing; it is no error.
    Nothing,
    /// It is registered, or its key changes.
    Set,
    /// Its registration ends.
    Remove,
}

impl Rules {
    /// The requests that only SCSI has.
    pub(super) fn apply_scsi(
        &mut self,
        registrant: &Registrant,
        request: &ReservationRequest,
    ) -> Result<Notices, ReservationRefused> {
        match request {
            ReservationRequest::ScsiRegister {
                current,
                key,
                persist,
                ports,
                named,
            } => {
                let act = self.act(registrant, *current, *key)?;
                if act == Act::Nothing {
                    return Ok(Vec::new());
                }
                let is_new = !self.registrants.contains_key(registrant);
                if !is_new && !named.is_empty() {
                    return Err(ReservationRefused::Invalid);
                }
                let mut notices = self.carry_out(registrant, act, *key)?;
                for port in ports {
                    // As if it had been asked through that port; what would fail
                    // there is left alone.
                    let there = self.act(port, *current, *key);
                    if there.is_ok_and(|there| there == act) {
                        notices.extend(self.carry_out(port, act, *key)?);
                    }
                }
                for other in named {
                    if !self.registrants.contains_key(other) {
                        self.add(other, *key)?;
                    }
                }
                self.registered(Some(*persist));
                Ok(self.once_each(notices))
            }
            ReservationRequest::Move {
                current,
                to,
                key,
                unregister,
                persist,
            } => {
                self.give(registrant, *current, to, *key)?;
                if *unregister {
                    self.registrants.remove(registrant);
                }
                self.registered(Some(*persist));
                Ok(Vec::new())
            }
            _ => unreachable!("the other requests are not SCSI's alone"),
        }
    }

    fn act(
        &self,
        registrant: &Registrant,
        current: Option<u64>,
        key: u64,
    ) -> Result<Act, ReservationRefused> {
        let own = self.registrants.get(registrant);
        if current.is_some_and(|current| current != own.copied().unwrap_or(0)) {
            return Err(ReservationRefused::Conflict);
        }
        Ok(match (own, key) {
            (None, 0) => Act::Nothing,
            (Some(_), 0) => Act::Remove,
            _ => Act::Set,
        })
    }

    fn carry_out(
        &mut self,
        registrant: &Registrant,
        act: Act,
        key: u64,
    ) -> Result<Notices, ReservationRefused> {
        match act {
            Act::Nothing => {}
            Act::Remove => return Ok(self.remove(registrant)),
            Act::Set if self.registrants.contains_key(registrant) => {
                self.registrants.insert(registrant.clone(), key);
            }
            Act::Set => self.add(registrant, key)?,
        }
        Ok(Vec::new())
    }

    /// Notices when several ports are unregistered together: to those that are
    /// still registered, and each once.
    fn once_each(&self, mut notices: Notices) -> Notices {
        notices.retain(|(told, _)| self.registrants.contains_key(told));
        notices.sort();
        notices.dedup();
        notices
    }

    /// The reservation changes hands (SPC-4, section 5.13.8). One that all
    /// registrants hold cannot.
    fn give(
        &mut self,
        registrant: &Registrant,
        current: u64,
        to: &Registrant,
        key: u64,
    ) -> Result<(), ReservationRefused> {
        self.expect_key(registrant, Some(current))?;
        let kind = match &self.held {
            Some(HeldReservation {
                kind,
                holder: Some(holder),
            }) if holder == registrant => *kind,
            _ => return Err(ReservationRefused::Conflict),
        };
        if key == 0 || to == registrant {
            return Err(ReservationRefused::Invalid);
        }
        if !self.registrants.contains_key(to) {
            self.add(to, key)?;
        }
        self.registrants.insert(to.clone(), key);
        self.hold(to, kind);
        Ok(())
    }

    /// Whether a registration makes RESERVE and RELEASE of `registrant` succeed without
    /// effect (SPC-4, section 5.13.3); a conflict if only others are registered.
    fn is_let_in(&self, registrant: &Registrant) -> Result<bool, ReservationRefused> {
        let is_registered = self.registrants.contains_key(registrant);
        let lets_in = |held: &HeldReservation| held.kind.is_of_registrants() && is_registered;
        match &self.held {
            Some(held) if lets_in(held) || self.is_holder(registrant) => Ok(true),
            _ if self.registrants.is_empty() => Ok(false),
            _ => Err(ReservationRefused::Conflict),
        }
    }

    pub(super) fn reserve_unit(
        &mut self,
        registrant: &Registrant,
    ) -> Result<Notices, ReservationRefused> {
        if !self.is_let_in(registrant)? {
            if self
                .reserved
                .as_ref()
                .is_some_and(|holder| holder != registrant)
            {
                return Err(ReservationRefused::Conflict);
            }
            self.reserved = Some(registrant.clone());
        }
        Ok(Vec::new())
    }

    pub(super) fn release_unit(
        &mut self,
        registrant: &Registrant,
    ) -> Result<Notices, ReservationRefused> {
        if !self.is_let_in(registrant)? {
            self.reset(Some(registrant));
        }
        Ok(Vec::new())
    }

    /// Whether `registrant`, or any registrant if `None`, has reserved the unit as
    /// SCSI-2 does.
    pub(in crate::reservation) fn is_reserved_by(&self, registrant: Option<&Registrant>) -> bool {
        match (&self.reserved, registrant) {
            (None, _) => false,
            (Some(holder), Some(registrant)) => holder == registrant,
            (Some(_), None) => true,
        }
    }

    /// Ends what RESERVE took; whether there was anything.
    pub(in crate::reservation) fn reset(&mut self, registrant: Option<&Registrant>) -> bool {
        let ends = self.is_reserved_by(registrant);
        if ends {
            self.reserved = None;
        }
        ends
    }
}
