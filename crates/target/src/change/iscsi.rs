//! Changes of iSCSI targets.

use super::*;
use crate::config::{IscsiTargetSpec, default_portal_group};

impl Shared {
    /// Checks a new target and puts it in.
    pub(crate) fn insert_target(
        &self,
        spec: &IscsiTargetSpec,
    ) -> Result<::iscsi::Change, ChangeError> {
        let mut target = spec.target.clone();
        let mut state = self.state();
        if target.portal_groups.is_empty() {
            let listeners = state.listeners.iter().map(|(number, l)| (*number, &l.spec));
            target.portal_groups = vec![default_portal_group(listeners)];
        }
        for lun in &spec.luns {
            let volume = state.volume(&lun.volume).cloned();
            let volume = volume.ok_or_else(|| namespaces::unknown_volume(&lun.volume))?;
            state
                .iscsi
                .place(&target.name, lun.lun, lun.ana_group, volume);
        }
        state.iscsi.set_ana(&target.name, spec.ana.clone());
        drop(state);
        let name = target.name.clone();
        let change = self.iscsi().replace_target(Arc::new(target));
        self.publish_target(&name, None);
        Ok(change)
    }
}
