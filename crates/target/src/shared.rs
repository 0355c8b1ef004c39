//! What the reactors of one target have in common, off the way of an I/O.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use nvmf::Registry;
use nvmf::command::Geometry;
use nvmf::tcp::controller::Settings;
use reactor::Mailbox;
use store::Volume;

use crate::config::Limits;
use crate::placement::Load;
use crate::report::Report;
use crate::token::ConnectionId;

/// A connection anywhere in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRef {
    /// The reactor that it lives on.
    pub shard: u32,
    /// Which of that reactor's connections.
    pub id: ConnectionId,
}

impl ConnectionRef {
    /// As one number, for those who keep it without knowing what it is.
    pub fn pack(self) -> u64 {
        debug_assert!(self.shard < 1 << 16);
        (u64::from(self.shard) << 48)
            | (u64::from(self.id.generation) << 32)
            | u64::from(self.id.index)
    }

    /// The inverse of [`ConnectionRef::pack`].
    pub fn unpack(packed: u64) -> Self {
        ConnectionRef {
            shard: (packed >> 48) as u32,
            id: ConnectionId {
                generation: (packed >> 32) as u16,
                index: packed as u32,
            },
        }
    }
}

/// What reactors tell each other.
pub enum Mail {
    /// A new connection for you.
    Adopt(OwnedFd, SocketAddr),
    /// Close this connection of yours: its controller ended.
    Close(ConnectionRef),
    /// Say what you have done.
    Report(Sender<Report>),
    /// End: close everything, then leave the loop.
    Stop,
}

/// What is behind the namespaces of a subsystem, in their order.
#[derive(Clone)]
pub struct Served {
    pub volumes: Arc<[Arc<dyn Volume>]>,
    pub geometry: Arc<[Geometry]>,
}

/// What the reactors of one target have in common.
pub struct Shared {
    pub limits: Limits,
    /// Every volume, in the order of the configuration.
    pub volumes: Vec<Arc<dyn Volume>>,
    /// By subsystem NQN.
    pub served: HashMap<String, Served>,
    pub registry: Mutex<Registry>,
    pub mailboxes: OnceLock<Vec<Mailbox<Mail>>>,
    pub load: Load,
}

impl Shared {
    /// The controllers, locked: off the way of an I/O.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry
            .lock()
            .expect("nothing panics under this lock")
    }

    /// Mail to one reactor.
    pub fn send(&self, shard: usize, mail: Mail) {
        let mailboxes = self
            .mailboxes
            .get()
            .expect("set before the first reactor runs");
        mailboxes[shard].send(mail);
    }

    /// Tells a connection's reactor to close it.
    pub fn close(&self, packed: u64) {
        let connection = ConnectionRef::unpack(packed);
        self.send(connection.shard as usize, Mail::Close(connection));
    }

    /// What is behind a subsystem; nothing behind the discovery subsystem.
    pub fn served(&self, nqn: &str) -> Served {
        self.served.get(nqn).cloned().unwrap_or_else(|| Served {
            volumes: Arc::new([]),
            geometry: Arc::new([]),
        })
    }

    /// What a queue pair may do.
    pub fn qpair_settings(&self) -> Settings {
        let limits = &self.limits;
        Settings {
            in_capsule_max: limits.in_capsule_bytes_max,
            maxh2cdata: limits.h2c_data_bytes_max,
            io_bytes_max: limits.io_bytes_max,
            header_digest: limits.header_digest,
            data_digest: limits.data_digest,
            handshake_timeout: u64::from(limits.handshake_timeout_ms) * 1_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_survives_packing() {
        let connection = ConnectionRef {
            shard: 513,
            id: ConnectionId {
                index: 70_000,
                generation: u16::MAX,
            },
        };
        assert_eq!(ConnectionRef::unpack(connection.pack()), connection);
    }
}
