//! Changes of what is exported over NBD.

use super::*;

const NBD_EXPORT: &str = "NBD export";

impl Shared {
    pub(super) fn add_nbd_export(&self, spec: &NbdExportSpec) -> Result<Left, ChangeError> {
        self.insert_nbd_export(spec)?;
        Ok(Left::Nothing)
    }

    /// Checks a new export and puts it in.
    pub(crate) fn insert_nbd_export(&self, spec: &NbdExportSpec) -> ChangeOutcome {
        check::nbd_export(spec).map_err(ChangeError::Invalid)?;
        let mut exports = self.nbd.exports();
        if exports.get(&spec.name).is_some() {
            return Err(ChangeError::Exists(
                NBD_EXPORT,
                format!("\"{}\"", spec.name),
            ));
        }
        let state = self.state();
        let volume = state.free_volume(&spec.volume)?.clone();
        drop(state);
        exports.insert(spec.clone(), volume);
        Ok(())
    }

    pub(super) fn remove_nbd_export(&self, name: &str) -> Result<Left, ChangeError> {
        let removed = self.nbd.exports().remove(name);
        let Some((export, connections)) = removed else {
            return Err(ChangeError::Unknown(NBD_EXPORT, format!("\"{name}\"")));
        };
        let left = self.end_connections(connections);
        Ok(left.then_fence(vec![export.volume]))
    }

    pub(super) fn set_nbd_export(&self, spec: NbdExportSpec) -> Result<Left, ChangeError> {
        check::nbd_export(&spec).map_err(ChangeError::Invalid)?;
        let (name, mut exports) = (spec.name.clone(), self.nbd.exports());
        let volume = exports.get(&name).map(|export| export.volume.clone());
        let Some((volume, closing)) = volume.zip(exports.set(spec)) else {
            return Err(ChangeError::Unknown(NBD_EXPORT, format!("\"{name}\"")));
        };
        drop(exports);
        self.nbd.republish(&name);
        // What may be written no more is not being written either.
        Ok(self.end_connections(closing).then_fence(vec![volume]))
    }

    /// Clients are answered what is under way, and go.
    fn end_connections(&self, connections: Vec<ConnectionRef>) -> Left {
        for connection in &connections {
            self.engine.dismiss(connection.pack());
        }
        Left::fence(Scope::Connections(connections))
    }
}
