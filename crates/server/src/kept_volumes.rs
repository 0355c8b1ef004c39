//! Volumes that nothing is changed of while they are made to hold something else.

use std::sync::Arc;

use store::Volume;

use crate::change::ChangeError;
use crate::shared::Shared;
use crate::start::Running;
use crate::state::volume_busy;

/// Volumes that no host has and that are to hold something else: no host is given them, and no
/// volume is made of them, as long as this lives.
pub struct KeptVolumes {
    shared: Arc<Shared>,
    volumes: Vec<Arc<dyn Volume>>,
}

impl Running {
    /// Keeps volumes from all changes.
    ///
    /// # Errors
    /// One is kept already.
    pub fn keep_volumes(&self, volumes: Vec<Arc<dyn Volume>>) -> Result<KeptVolumes, ChangeError> {
        let mut state = self.shared.state();
        if let Some(volume) = volumes.iter().find(|volume| state.is_in_change(volume)) {
            return Err(volume_busy(&volume.info().name));
        }
        state.in_change.extend(volumes.iter().cloned());
        let shared = self.shared.clone();
        Ok(KeptVolumes { shared, volumes })
    }
}

impl Drop for KeptVolumes {
    fn drop(&mut self) {
        let is_own = |kept: &Arc<dyn Volume>| self.volumes.iter().any(|own| Arc::ptr_eq(own, kept));
        self.shared.state().in_change.retain(|kept| !is_own(kept));
    }
}
