//! What follows a change of reservations, whichever protocol it came by: all hosts
//! concerned are told in the words of theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faults::Fault;
use store::Volume;
use store::reservation::{Notice, Registrant, ReservationChange, ReservationRefused};

use crate::fence::Scope;
use crate::refusals::{Refusal, RefusalKind};
use crate::shared::Shared;

/// What is told to a protocol that serves volumes: of reservations, and of locked ones. Which
/// registrants are of its hosts it knows itself.
pub trait Hears: Send + Sync {
    /// Hosts are to be told what has happened to a volume; whether some of them must
    /// have it before their next command, which is so behind [`Scope::Mail`].
    fn notice(&self, volume: &Arc<dyn Volume>, told: &BTreeMap<Registrant, Notice>) -> bool;

    /// What these, whose registrations were preempted, have under way on the volume
    /// ends.
    fn preempt(&self, volume: &Arc<dyn Volume>, preempted: &Arc<BTreeSet<Registrant>>);

    /// A volume is locked, and what is made of it: hosts are to be told, where their protocol
    /// has words for it.
    fn locked(&self) {}
}

/// Tells all hosts concerned of a change, and calls `then` when it holds: when what was
/// begun by hosts that may do less now is over, and hosts that get a notice have it
/// before their next command.
pub fn notify_hosts(
    shared: &Shared,
    volume: &Arc<dyn Volume>,
    change: ReservationChange,
    aborts: bool,
    then: impl FnOnce() + Send + 'static,
) {
    let preempted: BTreeSet<Registrant> = change.preempted().cloned().collect();
    let aborts = aborts && !preempted.is_empty();
    let told: BTreeMap<Registrant, Notice> = change.notices.into_iter().collect();
    let mut must_have = false;
    for hears in shared.hearing() {
        must_have |= !told.is_empty() && hears.notice(volume, &told);
    }
    if aborts {
        let preempted = Arc::new(preempted);
        for hears in shared.hearing() {
            hears.preempt(volume, &preempted);
        }
    }
    if (aborts || change.access_lost) && !faults::is(Fault::NoFence) {
        shared.fence(Scope::Volumes(vec![volume.clone()]), then);
    } else if must_have {
        shared.fence(Scope::Mail, then);
    } else {
        then();
    }
}

/// A change of reservations could not be made, which is no mistake of the host that
/// asked.
pub fn note_unchanged(shared: &Shared, volume: &dyn Volume, refused: &ReservationRefused) {
    shared.refusals.note(Refusal {
        volume: Some(&volume.info().name),
        ..Refusal::new(RefusalKind::CHANGE, &format_args!("reservation: {refused}"))
    });
}
