//! What a host that has authenticated gets, as the registry is by then.

use std::time::Duration;

use auth::HostDhchap;
use auth::dhchap::DhchapKey;
use auth::psk::Psk;
use faults::Fault;
use thiserror::Error;

use super::{ControllerId, Registry};

/// Why a host that has authenticated is refused all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthenticationRefusal {
    /// An administrator has ended its controller meanwhile.
    #[error("its controller has ended")]
    Ended,
    /// It has proven to know a secret that is not its own any more.
    #[error("the host's secret has changed since its authentication began")]
    OtherSecret,
    /// It has proven to know a secret that is good no longer.
    #[error(
        "the host's secret has expired: give the host the newer one (`--dhchap-secret`) of its \
         `dhchap_secret_file`"
    )]
    ExpiredSecret,
    /// It has as many controllers as it may.
    #[error("controllers_of_host_max = {0} is reached")]
    TooManyControllers(u16),
}

impl Registry {
    /// The host of a controller has proven on one of its queues to know `secret`, which was one of
    /// its own when it began, and has made the key `psk` by that at `now`, since the start of 1970.
    /// With the first time the controller has its place among those of its host. The
    /// controller's secret may have changed: what that proved is for the host to judge.
    ///
    /// # Errors
    /// The controller has ended since, the secret is not the host's now or has expired, or there is
    /// no place. No key is kept then.
    pub fn authenticated(
        &mut self,
        id: ControllerId,
        secret: &DhchapKey,
        psk: Option<&Psk>,
        now: Duration,
    ) -> Result<(), AuthenticationRefusal> {
        let controller = self.controllers.get_mut(&id);
        let controller = controller.filter(|controller| !controller.has_ended());
        let controller = controller.ok_or(AuthenticationRefusal::Ended)?;
        let own = controller.subsystem.dhchap_keys(&controller.hostnqn);
        let own = own.map_or(&[][..], |own| &own.host);
        let mut same = own.iter().filter(|known| known.key == *secret).peekable();
        if same.peek().is_none() {
            return Err(AuthenticationRefusal::OtherSecret);
        }
        let is_over = |known: &HostDhchap| {
            known.until.is_some_and(|until| until <= now) && !faults::is(Fault::AnyTimeOfSecrets)
        };
        if same.all(is_over) {
            return Err(AuthenticationRefusal::ExpiredSecret);
        }
        let entry = self.entries.get_mut(&controller.subsystem.nqn);
        let entry = entry.ok_or(AuthenticationRefusal::Ended)?;
        let (hostnqn, address) = (&controller.hostnqn, controller.arrival.address);
        entry.unproven.note_proven(hostnqn, address);
        if !controller.is_proven {
            let max = controller.subsystem.limits.controllers_of_host_max;
            let of_host = entry.of_hosts.entry(hostnqn.clone()).or_default();
            if of_host.count() >= max {
                return Err(AuthenticationRefusal::TooManyControllers(max));
            }
            of_host.add(controller.hostid);
            entry.unproven.remove(id);
            controller.is_proven = true;
        }
        if let Some(psk) = psk {
            self.add_generated_key(id, (psk, secret), now);
        }
        Ok(())
    }
}
