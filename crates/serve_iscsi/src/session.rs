//! What the connections of one session share: its I_T nexus. They live on one
//! reactor.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use engine::ConnectionId;
use faults::Fault;
use iscsi::{InitiatorPort, SessionId};
use scsi::{Attention, Nexus, ReservationAccess};
use store::Volume;
use store::reservation::{Grant, Registrant, Reservations, ScsiNexus};
use wire::iscsi::TaskAttribute;

use super::order::{Order, TaskId};
use super::served::{Lun, ServedTarget};

/// What the nexus has with one logical unit.
struct OnUnit {
    /// Of the unit; 0 where there is none.
    instance: u32,
    /// Different each time that the nexus finds another unit there, or the same
    /// one again that it did not see for a while.
    epoch: u32,
    nexus: Nexus,
    grant: Grant,
    order: Order,
}

impl OnUnit {
    fn new(lun: Option<&Lun>, epoch: u32) -> OnUnit {
        let mut nexus = Nexus::new();
        nexus.post(Attention::POWER_ON);
        OnUnit {
            instance: lun.map_or(0, |lun| lun.instance),
            epoch,
            nexus,
            grant: Grant::default(),
            order: Order::default(),
        }
    }
}

/// One session: an I_T nexus.
pub(crate) struct IscsiSession {
    pub(crate) id: SessionId,
    /// Its connections by their CID.
    pub(crate) connections: Vec<(u16, ConnectionId)>,
    /// The order of its commands.
    pub(crate) window: Rc<RefCell<iscsi::Session>>,
    /// What reservations know it by.
    registrant: Registrant,
    served: ServedTarget,
    /// What its initiator was told of last.
    told: ServedTarget,
    /// By the place of the unit.
    units: Vec<OnUnit>,
    epoch: u32,
    /// Tasks that waited for others and may begin now.
    begun: Vec<TaskId>,
    /// EXTENDED COPY, as its nexus knows it.
    pub(super) copies: super::copy::RunningCopies,
    /// Those with ROD tokens.
    pub(super) operations: super::token_commands::RunningOperations,
}

impl IscsiSession {
    /// A session that begins.
    pub(crate) fn new(
        id: SessionId,
        initiator: &InitiatorPort,
        served: ServedTarget,
        window: Rc<RefCell<iscsi::Session>>,
    ) -> IscsiSession {
        let registrant = Registrant::ScsiNexus(ScsiNexus {
            initiator: port_name(initiator),
            target: served.view.name.clone(),
            port: served.tag,
        });
        IscsiSession {
            id,
            connections: Vec::new(),
            window,
            registrant,
            units: served
                .places
                .iter()
                .map(|p| OnUnit::new(p.as_ref(), 0))
                .collect(),
            epoch: 0,
            told: served.clone(),
            served,
            begun: Vec::new(),
            copies: super::copy::RunningCopies::default(),
            operations: super::token_commands::RunningOperations::default(),
        }
    }

    /// What reservations know it by.
    pub(crate) fn registrant(&self) -> &Registrant {
        &self.registrant
    }

    /// What is behind the target for it.
    pub(crate) fn served(&self) -> &ServedTarget {
        &self.served
    }

    /// What the nexus remembers of the unit at a place.
    #[inline]
    pub(crate) fn nexus(&mut self, place: u32) -> &mut Nexus {
        &mut self.units[place as usize].nexus
    }

    /// Whether reservations let the nexus do this at a place now.
    #[inline]
    pub(crate) fn may_access(
        &mut self,
        place: u32,
        volume: &Arc<dyn Volume>,
        needs: ReservationAccess,
    ) -> bool {
        let grant = &mut self.units[place as usize].grant;
        allows(volume.reservations(), &self.registrant, grant, needs)
    }

    /// A task has come for the unit at a place: whether it may begin, and what
    /// it leaves with, see [`IscsiSession::leave`].
    #[inline]
    pub(crate) fn enter(&mut self, place: u32, id: TaskId, with: TaskAttribute) -> (bool, u32) {
        let unit = &mut self.units[place as usize];
        (unit.order.enter(id, with), unit.epoch)
    }

    /// Tasks of the unit at a place.
    pub(crate) fn tasks(&self, place: u32) -> usize {
        self.units[place as usize].order.len()
    }

    /// It has ended. Whether others may begin now: see [`IscsiSession::take_begun`].
    #[inline]
    pub(crate) fn leave(&mut self, place: u32, epoch: u32, id: TaskId) -> bool {
        let IscsiSession { units, begun, .. } = self;
        if !begun.is_empty() {
            // It was let go, and ended before its connection looked.
            begun.retain(|known| *known != id);
        }
        let unit = &mut units[place as usize];
        // Those of a unit that was removed were let go of then.
        if unit.epoch == epoch {
            unit.order.leave(id, |id| begun.push(id));
        }
        !begun.is_empty()
    }

    /// The connections of tasks that may begin now.
    pub(crate) fn beginning(&self) -> impl Iterator<Item = ConnectionId> {
        self.begun.iter().map(|(connection, _)| *connection)
    }

    /// The next task of a connection that waited for others and may begin now.
    pub(crate) fn take_begun(&mut self, connection: ConnectionId) -> Option<TaskId> {
        let at = self.begun.iter().position(|(of, _)| *of == connection)?;
        Some(self.begun.remove(at))
    }

    /// A connection has ended; nothing of its tasks is left.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.connections.retain(|(_, id)| *id != connection);
        self.begun.retain(|(of, _)| *of != connection);
    }

    /// Establishes a unit attention for the units that are `meant`.
    pub(crate) fn post(&mut self, attention: Attention, meant: impl Fn(&Lun) -> bool) {
        for (unit, lun) in self.units.iter_mut().zip(self.served.places.iter()) {
            if lun.as_ref().is_some_and(&meant) {
                unit.nexus.post(attention);
            }
        }
    }

    /// Takes a unit attention back that its initiator knows of.
    pub(crate) fn clear(&mut self, attention: Attention) {
        for unit in &mut self.units {
            unit.nexus.clear(attention);
        }
    }

    /// What is behind the target has changed, by a command of this session or
    /// not: `own`. What the initiator should know becomes unit attentions, if it
    /// is to be told now. Whether tasks may begin that waited for others.
    pub(crate) fn replace_served(&mut self, new: &ServedTarget, own: bool, is_told: bool) -> bool {
        let places = new.places.len();
        let len = self.units.len();
        self.epoch = self.epoch.wrapping_add(1);
        let epoch = self.epoch;
        let new_ones = (len..places).map(|_| OnUnit::new(None, epoch));
        self.units.extend(new_ones);
        let has_others = is_told && self.told.view.luns != new.view.luns;
        for (at, unit) in self.units.iter_mut().enumerate() {
            let old = self.told.places.get(at).and_then(Option::as_ref);
            let old = old.filter(|_| is_told);
            let lun = new.places.get(at).and_then(Option::as_ref);
            let instance = lun.map_or(0, |lun| lun.instance);
            if instance != unit.instance {
                let gone = std::mem::replace(unit, OnUnit::new(lun, epoch));
                // They find no unit any more.
                self.begun.extend(gone.order.into_held());
            } else if let (Some(old), Some(lun)) = (old, lun)
                && old.instance == instance
            {
                note_unit_change(&mut unit.nexus, old, lun, own);
            }
            if has_others && lun.is_some() {
                unit.nexus.post(Attention::LUNS_CHANGED);
            }
        }
        self.served = new.clone();
        if is_told {
            self.told = new.clone();
        }
        !self.begun.is_empty()
    }
}

/// Whether a command that needs `needs` may be executed on a volume now (SPC-4,
/// table 68; SBC-3, table 10; SPC-2, table 10). For those that registrations and
/// reservations are asked for with, their own rules decide.
#[inline]
fn allows(
    reservations: &Reservations,
    registrant: &Registrant,
    grant: &mut Grant,
    needs: ReservationAccess,
) -> bool {
    if faults::is(Fault::NoReservations) {
        return true;
    }
    let access = reservations.access(registrant, grant);
    match needs {
        ReservationAccess::Free | ReservationAccess::Registration | ReservationAccess::Legacy => {
            true
        }
        ReservationAccess::Inspect => access.other,
        ReservationAccess::Read => access.read,
        ReservationAccess::Write => access.write,
    }
}

/// What an initiator is told of a unit that has changed.
fn note_unit_change(nexus: &mut Nexus, old: &Lun, new: &Lun, own: bool) {
    let (old, new) = (&*old.unit, &*new.unit);
    if old.block_count != new.block_count {
        nexus.post(Attention::CAPACITY_CHANGED);
    }
    if old.read_only != new.read_only || old.identity != new.identity {
        nexus.post(Attention::INQUIRY_CHANGED);
    }
    // The nexus that sent the command gets no unit attention for it.
    if old.groups != new.groups && !own {
        nexus.post(Attention::ACCESS_STATE_CHANGED);
    }
    if old.modes != new.modes && !own {
        nexus.post(Attention::MODE_PARAMETERS_CHANGED);
    }
}

/// Name of a SCSI initiator port (RFC 7143, section 4.4.1).
pub(crate) fn port_name(port: &InitiatorPort) -> String {
    let isid = port
        .isid
        .iter()
        .fold(0, |n, byte| n << 8 | u64::from(*byte));
    format!("{},i,0x{isid:012x}", port.name)
}
