//! Hosts go elsewhere before maintenance, and come back after it.

use ::iscsi::SessionKind;

use super::*;

impl Shared {
    /// Whether hosts are to go elsewhere.
    pub fn is_drained(&self) -> bool {
        self.nvme.registry().is_drained()
    }

    pub(super) fn set_drained(&self, is_drained: bool) -> Left {
        match is_drained {
            true => self.drain(),
            false => self.end_drain(),
        }
    }

    /// No host is let in from now on. First those that are here hear that no path gives
    /// access; when all I/O that began before is over, initiators are asked to log out.
    fn drain(&self) -> Left {
        self.let_in(false);
        for edit in self.drained_subsystems(true) {
            self.allow_less(edit);
        }
        for name in self.target_names() {
            self.iscsi.publish(&name, None);
        }
        let left = Left::fence(Scope::Volumes(self.volumes()));
        left.then(|shared| shared.ask_initiators_to_leave())
    }

    /// Hosts are let in again, and paths have the states that were set.
    fn end_drain(&self) -> Left {
        self.let_in(true);
        let left = self.allow_more(self.drained_subsystems(false));
        left.then(|shared| shared.widen_targets(shared.target_names()))
    }

    fn let_in(&self, lets: bool) {
        self.nvme.registry().set_drained(!lets);
        self.iscsi.registry().set_drained(!lets);
        self.iscsi.places().set_drained(!lets);
        self.nfs.nfsd().set_drained(!lets);
        self.nbd.exports().set_drained(!lets);
    }

    fn drained_subsystems(&self, is_drained: bool) -> Vec<Edit> {
        let registry = self.nvme.registry();
        let edits = registry.subsystems().map(|subsystem| Edit {
            nqn: subsystem.nqn.clone(),
            apply: Box::new(move |subsystem| subsystem.is_drained = is_drained),
        });
        edits.collect()
    }

    fn target_names(&self) -> Vec<String> {
        let registry = self.iscsi.registry();
        let names = registry.targets().map(|target| target.name.clone());
        names.collect()
    }

    fn ask_initiators_to_leave(&self) -> Left {
        let registry = self.iscsi.registry();
        let sessions = registry.sessions();
        let normal = sessions.filter(|session| session.kind == SessionKind::Normal);
        let connections = normal.flat_map(|session| session.connections.values());
        let packed: Vec<u64> = connections.map(|via| via.connection).collect();
        drop(registry);
        packed.iter().for_each(|own| self.iscsi.ask_to_leave(*own));
        let all = packed.into_iter().map(ConnectionRef::unpack);
        Left::fence(Scope::Connections(all.collect()))
    }
}
