//! What follows a change of reservations, whoever asked for it: everybody
//! concerned hears of it in the words of their protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mem::broken::{self, Fault};
use nvmf::reservation as nvme;
use scsi::Attention;
use store::Volume;
use store::reservation::{Change, Notice, Refused, Registrant};

use crate::fence::Scope;
use crate::refusals::{Kind, Refusal};
use crate::shared::{Mail, Shared};

/// Tells everybody of a change, and with `then` its sender when it holds: when
/// what those began who may do less now is over, and those who are told of it
/// have it before their next command.
pub(crate) fn tell(
    shared: &Arc<Shared>,
    volume: &Arc<dyn Volume>,
    change: Change,
    aborts: bool,
    then: impl FnOnce(&Arc<Shared>) + Send + 'static,
) {
    let preempted: BTreeSet<Registrant> = change.preempted().cloned().collect();
    let aborts = aborts && !preempted.is_empty();
    let (mut hosts, mut nexuses) = (BTreeMap::new(), BTreeMap::new());
    for (registrant, notice) in change.notices {
        let (to_host, to_nexus) = in_words_of_protocols(notice);
        match registrant {
            Registrant::NvmeHost(hostid) => drop(hosts.insert(hostid, to_host)),
            Registrant::ScsiNexus(_) => drop(nexuses.insert(registrant, to_nexus)),
        }
    }
    if !hosts.is_empty() && !broken::is(Fault::NoNotices) {
        let uuid = volume.info().uuid.into_bytes();
        let told = shared.registry().notify_reservation(uuid, &hosts);
        shared.settle(told);
    }
    let attends = !nexuses.is_empty();
    if attends {
        shared.attend(volume, Arc::new(nexuses));
    }
    if aborts {
        let preempted = Arc::new(preempted);
        shared.send_all(|| Mail::Preempt(volume.clone(), preempted.clone()));
    }
    if (aborts || change.access_lost) && !broken::is(Fault::NoFence) {
        shared.fence(Scope::Volumes(vec![volume.clone()]), then);
    } else if attends {
        shared.fence(Scope::Mail, then);
    } else {
        then(shared);
    }
}

/// A change of reservations could not be made, which is no mistake of who asked
/// for it.
pub(crate) fn note_unchanged(shared: &Shared, volume: &dyn Volume, refused: &Refused) {
    shared.refusals.note(Refusal {
        volume: Some(&volume.info().name),
        ..Refusal::new(Kind::Change, &format_args!("reservation: {refused}"))
    });
}

fn in_words_of_protocols(notice: Notice) -> (nvme::Notice, Attention) {
    match notice {
        Notice::RegistrationPreempted => (
            nvme::Notice::RegistrationPreempted,
            Attention::REGISTRATIONS_PREEMPTED,
        ),
        Notice::ReservationReleased => (
            nvme::Notice::ReservationReleased,
            Attention::RESERVATIONS_RELEASED,
        ),
        Notice::ReservationPreempted => (
            nvme::Notice::ReservationPreempted,
            Attention::RESERVATIONS_PREEMPTED,
        ),
    }
}
