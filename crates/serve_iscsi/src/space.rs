//! The space below thin provisioned units: what is told of it, and when.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::About;
use machine::{Nanos, Tag, locked};
use scsi::Attention;
use scsi::provisioning::{Space, log_page};
use store::Volume;

use super::{CommandAnswer, IscsiConnection, OwnMail, Service};

/// How often the space below units with thresholds is looked at, about.
const LOOK_INTERVAL: Nanos = 400_000_000;

fn space_of(volume: &dyn Volume) -> Option<Space> {
    let space = volume.space()?;
    Some(Space {
        used_bytes: space.used_bytes,
        available_bytes: space.available_bytes,
    })
}

impl IscsiConnection {
    /// LOG SENSE of Logical Block Provisioning (SBC-3, section 6.4.5), for which a
    /// file system is asked. False while memory is short.
    pub(super) fn provisioning_log(&mut self, tag: Tag, place: u32, allocation_len: u16) -> bool {
        let volume = self.place(place).volume.clone();
        let Some(later) = self.later_with(tag, allocation_len.into()) else {
            return false;
        };
        self.core
            .shared
            .blocking(About::question(&volume), move || {
                let mut out = Vec::new();
                log_page(space_of(&*volume), allocation_len, &mut out);
                later.answer(CommandAnswer::Good(out));
            });
        true
    }

    /// Something is to be known of a unit of a target.
    pub(crate) fn warn(&mut self, target: &str, lun: u16, attention: Attention) {
        let Some(bound) = &self.bound else { return };
        if bound.served.view.name == target {
            let mut session = bound.session.borrow_mut();
            session.post(attention, |known| known.unit.lun == lun);
        }
    }
}

impl Service {
    /// Looks now and then at the space below units whose initiators have thresholds,
    /// and warns these initiators. One look at a unit at a time: a file system that
    /// does not answer is not asked again.
    pub fn watch_space(self: &Arc<Self>, now: Nanos) {
        let due = self.space_due.load(Ordering::Relaxed);
        let next = now.saturating_add(LOOK_INTERVAL);
        let is_mine = now >= due
            && (self.space_due)
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return;
        }
        let watched = self.places().watched();
        for (target, lun, volume) in watched {
            let unit = (target, lun);
            if locked(&self.looking).insert(unit.clone()) {
                let service = self.clone();
                self.shared.blocking(About::question(&volume), move || {
                    service.look_at(&unit.0, lun, &*volume);
                    locked(&service.looking).remove(&unit);
                });
            }
        }
    }

    fn look_at(&self, target: &str, lun: u16, volume: &dyn Volume) {
        let Some(space) = space_of(volume) else {
            return;
        };
        let told = self.places().reach(target, lun, space);
        for attention in told {
            tracing::warn!(
                event = "space-low",
                target,
                lun,
                volume = volume.info().name,
                used_bytes = space.used_bytes,
                available_bytes = space.available_bytes,
                "a threshold of thin provisioning is reached"
            );
            let name: Arc<str> = target.into();
            self.send_all(|| OwnMail::Warn(name.clone(), lun, attention));
        }
    }
}
