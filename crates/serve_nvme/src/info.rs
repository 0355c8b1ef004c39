//! What an administrator may want to know of a connection.

use nvmf::queue::ControllerEnd as _;

use super::NvmeConnection;

/// A queue, beside what every connection has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// NQN of its host.
    pub host: String,
    /// NQN of its subsystem.
    pub subsystem: String,
    /// Controller ID.
    pub cntlid: u16,
    /// Queue ID, 0 for the Admin Queue.
    pub qid: u16,
    /// Commands that its host may have in flight.
    pub entries: usize,
    /// Its host has authenticated, as it must.
    pub is_authenticated: bool,
}

impl NvmeConnection {
    /// The queue that it is since Connect.
    pub fn queue(&self) -> Option<QueueInfo> {
        let bound = self.bound.as_ref()?;
        Some(QueueInfo {
            host: bound.host.clone(),
            subsystem: bound.target.clone(),
            cntlid: bound.cntlid,
            qid: bound.qid,
            entries: self.core.link.machine.queue().entries(),
            is_authenticated: self.core.link.machine.queue().is_authenticated(),
        })
    }
}
