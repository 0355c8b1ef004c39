//! Changes of what is exported over NBD.

use server::NbdExportSpec;

use super::{Change, Counterpart, Phase, Planner, pairs};

impl Planner<'_> {
    pub(super) fn nbd_exports(&mut self) {
        let (running, desired) = (self.running, self.desired);
        for pair in pairs(&running.nbd_exports, &desired.nbd_exports, |spec| {
            &spec.name
        }) {
            match pair {
                Counterpart::Gone(spec) => self.remove_nbd_export(spec),
                Counterpart::New(spec) => self.add_nbd_export(spec),
                Counterpart::Both(old, new) if old == new => {}
                Counterpart::Both(old, new) if old.volume == new.volume => {
                    let text = format!("NBD export \"{}\" changes", new.name);
                    let set = |spec: &NbdExportSpec| Change::SetNbdExport(spec.clone());
                    self.add(Phase::Set, set(new), Some(set(old)), text);
                }
                Counterpart::Both(old, new) => {
                    self.remove_nbd_export(old);
                    self.add_nbd_export(new);
                }
            }
        }
    }

    fn remove_nbd_export(&mut self, spec: &NbdExportSpec) {
        let name = spec.name.clone();
        let text = format!("NBD export \"{name}\" is removed: its clients' connections end");
        let undo = Some(Change::AddNbdExport(spec.clone()));
        let change = Change::RemoveNbdExport { name };
        self.add(Phase::Unplace, change, undo, text);
    }

    fn add_nbd_export(&mut self, spec: &NbdExportSpec) {
        let name = spec.name.clone();
        let text = format!("NBD export \"{name}\" is added");
        let undo = Some(Change::RemoveNbdExport { name });
        let change = Change::AddNbdExport(spec.clone());
        self.add(Phase::Place, change, undo, text);
    }
}
