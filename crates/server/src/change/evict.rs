//! Connections end because an administrator says so.

use std::collections::BTreeSet;

use super::*;

impl Shared {
    /// Ends connections, of NVMe with their controllers. An initiator is asked to log out
    /// first.
    pub(super) fn evict_connections(&self, connections: &[ConnectionRef]) -> Left {
        let mut all: BTreeSet<u64> = connections.iter().map(|own| own.pack()).collect();
        let change = self.nvme.registry().end_controllers_of(&all);
        let sessions = self.iscsi.registry();
        for packed in &all {
            match sessions.has(*packed) {
                true => self.iscsi.ask_to_leave(*packed),
                false if change.closing.contains(packed) => {}
                false => self.engine.dismiss(*packed),
            }
        }
        drop(sessions);
        all.extend(&change.closing);
        self.nvme.settle(change);
        let all = all.into_iter().map(ConnectionRef::unpack);
        Left::fence(Scope::Connections(all.collect()))
    }
}
