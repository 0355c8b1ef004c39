//! Who is connected, as an administrator asks for it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;

use nvmf::ControllerId;

use crate::connection_info::{ConnectionInfo, ConnectionsAsked, Listed};
use crate::shared::ServerMail;
use crate::start::{REPORT_TIMEOUT, Running};

/// Connections that one answer has at most.
pub const CONNECTIONS_LISTED_MAX: usize = 10_000;

/// An NVMe controller, as an administrator may want to know it.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    /// Never used again for another.
    pub id: ControllerId,
    /// Controller ID.
    pub cntlid: u16,
    /// NQN of its host.
    pub host: String,
    /// Host Identifier.
    pub hostid: [u8; 16],
    /// NQN of its subsystem.
    pub subsystem: String,
    /// Number of the listener that it was made at.
    pub listener: u16,
    /// Keep Alive Timeout, milliseconds; 0 for none.
    pub kato_ms: u32,
    /// Queues, the Admin Queue included.
    pub queues: usize,
    /// It processes commands.
    pub is_ready: bool,
}

impl Running {
    /// The connections that are wanted, as many as an answer may have.
    pub fn connections(
        &self,
        is_wanted: impl Fn(&ConnectionInfo) -> bool + Send + Sync + 'static,
    ) -> Listed<ConnectionInfo> {
        let (to, told) = channel();
        let asked = Arc::new(ConnectionsAsked {
            is_wanted: Box::new(is_wanted),
            left: AtomicUsize::new(CONNECTIONS_LISTED_MAX),
            to,
        });
        let reactors = self.shared.engine.load.len();
        for shard in 0..reactors {
            let mail = ServerMail::Connections(asked.clone(), 0);
            self.shared.send(shard, mail);
        }
        drop(asked);
        let mut listed = Listed {
            list: Vec::new(),
            has_more: false,
            silent: reactors,
        };
        while let Ok((part, is_last)) = told.recv_timeout(REPORT_TIMEOUT) {
            listed.list.extend(part);
            listed.silent -= usize::from(is_last);
        }
        listed.has_more = listed.list.len() > CONNECTIONS_LISTED_MAX;
        listed.list.truncate(CONNECTIONS_LISTED_MAX);
        listed
    }

    /// How many keys for TLS an NVMe host has made by authentication and has still.
    #[must_use]
    pub fn generated_keys_of(&self, hostnqn: &str) -> usize {
        self.shared.registry().generated_keys_of(hostnqn)
    }

    /// NVMe controllers, oldest first, as many as an answer may have.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        let registry = self.shared.registry();
        let controllers = registry.controllers().take(CONNECTIONS_LISTED_MAX);
        let all = controllers.map(|(id, controller)| ControllerInfo {
            id,
            cntlid: controller.cntlid(),
            host: controller.hostnqn().to_owned(),
            hostid: controller.hostid(),
            subsystem: controller.subsystem().nqn.clone(),
            listener: controller.listener(),
            kato_ms: controller.kato_ms(),
            queues: controller.queues().count(),
            is_ready: controller.is_ready(),
        });
        all.collect()
    }

    /// Whether hosts are to go elsewhere, see [`Change::SetDrained`](crate::Change::SetDrained).
    pub fn is_drained(&self) -> bool {
        self.shared.is_drained()
    }

    /// iSCSI sessions, oldest first, as many as an answer may have.
    pub fn sessions(&self) -> Vec<iscsi::SessionInfo> {
        let registry = self.shared.iscsi.registry();
        let sessions = registry.sessions().take(CONNECTIONS_LISTED_MAX);
        sessions.cloned().collect()
    }
}
