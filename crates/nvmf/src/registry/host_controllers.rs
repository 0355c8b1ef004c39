//! How many controllers of a subsystem a host has. Those whose host has to authenticate and has
//! not yet are apart (`unproven.rs`).

/// What a host has of a subsystem: controllers whose host has authenticated, or need not.
#[derive(Debug, Default)]
pub(super) struct HostControllers {
    count: u16,
    /// The Host Identifier of the one that came last.
    hostid: [u8; 16],
}

impl HostControllers {
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The Host Identifier that came last, if it is another.
    pub fn other_hostid(&self, hostid: [u8; 16]) -> Option<[u8; 16]> {
        (self.count > 0 && self.hostid != hostid).then_some(self.hostid)
    }

    /// One more.
    pub fn add(&mut self, hostid: [u8; 16]) {
        self.count += 1;
        self.hostid = hostid;
    }

    /// One less.
    pub fn remove(&mut self) {
        self.count -= 1;
    }
}
