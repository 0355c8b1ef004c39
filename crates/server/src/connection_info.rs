//! What is told of a connection, and how reactors are asked for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use crate::config::Protocol;

/// A connection, as an administrator may want to know it.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// What every connection has.
    pub base: engine::ConnectionInfo,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// It is carried by RDMA.
    pub is_rdma: bool,
    /// NQN of the host, or name of the initiator, once it has said so; of a client of NFS the
    /// name in its certificate, if it has shown one.
    pub host: Option<String>,
    /// The subsystem or target that it is for.
    pub target: Option<String>,
    /// Commands in flight, those included whose answer is not sent yet.
    pub in_flight: usize,
    /// Whether headers are covered by a digest, or by a CRC of MPA.
    pub header_digest: bool,
    /// Whether data is.
    pub data_digest: bool,
    /// What it is to its host.
    pub role: ConnectionRole,
}

/// What a connection is to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRole {
    /// It has not identified itself.
    Stranger,
    /// A queue of an NVMe controller.
    Queue {
        /// Controller ID.
        cntlid: u16,
        /// Queue ID.
        qid: u16,
        /// Commands that its host may have in flight.
        entries: usize,
        /// Its host has authenticated by DH-HMAC-CHAP, as it must.
        is_authenticated: bool,
    },
    /// Of an iSCSI session.
    Session {
        /// Target Session Identifying Handle.
        tsih: u16,
        /// Connection ID.
        cid: u16,
        /// The session is for discovery alone.
        is_discovery: bool,
    },
    /// Of NFS, with the client whose session it has used last, if it has one.
    Nfs(Option<u64>),
    /// Of an NBD export.
    Nbd,
}

/// What is listed.
#[derive(Debug)]
pub struct Listed<T> {
    /// In no order.
    pub list: Vec<T>,
    /// There are more.
    pub has_more: bool,
    /// Reactors that have not answered in time: nothing of theirs is in the list.
    pub silent: usize,
}

pub(crate) type IsWanted = Box<dyn Fn(&ConnectionInfo) -> bool + Send + Sync>;

/// A question to all reactors.
pub struct ConnectionsAsked {
    pub(crate) is_wanted: IsWanted,
    /// How many more may be listed.
    pub(crate) left: AtomicUsize,
    /// Takes a part of the list, and whether it is the last of its reactor.
    pub(crate) to: Sender<(Vec<ConnectionInfo>, bool)>,
}

impl ConnectionsAsked {
    /// Whether there is room for one more.
    pub(crate) fn take_place(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}
