//! What a host that has authenticated gets, as the registry is by then.

use std::time::Duration;

use auth::psk::Psk;
use thiserror::Error;

use super::{ControllerId, Registry};
use crate::dhchap::DhchapKeys;

/// Why a host that has authenticated is refused all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthenticationRefusal {
    /// An administrator has ended its controller meanwhile.
    #[error("its controller has ended")]
    Ended,
    /// It has proven to know secrets that are not its own any more.
    #[error("the host's secrets have changed since its authentication began")]
    OtherSecrets,
}

impl Registry {
    /// The host of a controller has proven on one of its queues to know `keys`, which were its
    /// own when it began, and has made the key `psk` by that at `now`, since the start of 1970.
    ///
    /// # Errors
    /// The controller has ended since, or the secrets are others now. No key is kept then.
    pub fn authenticated(
        &mut self,
        id: ControllerId,
        keys: &DhchapKeys,
        psk: Option<&Psk>,
        now: Duration,
    ) -> Result<(), AuthenticationRefusal> {
        let controller = self.controllers.get(&id);
        let controller = controller.filter(|controller| !controller.has_ended());
        let controller = controller.ok_or(AuthenticationRefusal::Ended)?;
        if controller.subsystem.dhchap_keys(&controller.hostnqn) != Some(keys) {
            return Err(AuthenticationRefusal::OtherSecrets);
        }
        if let Some(psk) = psk {
            self.add_generated_key(id, psk, now);
        }
        Ok(())
    }
}
