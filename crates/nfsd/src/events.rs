//! Events for an operator: mounts, refusals, clients that arrive and leave.
//! The caller of [`Nfsd::take_events`] and [`Nfsd::take_refused`] logs them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nfs::server::{ClientEvent, Untold};

use crate::Nfsd;
use crate::client_refused::ClientRefused;
use crate::peer::Peer;
use crate::reason::Reason;

/// What has happened.
#[derive(Debug)]
pub enum NfsEvent {
    /// A client of NFSv4 has arrived or is gone.
    Client(ClientEvent),
    /// A client of NFSv3 says that it mounts a path, or does not any more; without a
    /// path, none of all.
    Mount {
        /// Whose.
        address: IpAddr,
        /// Of the export, or a directory in it.
        path: Option<String>,
        /// Whether it is mounted now.
        is_mounted: bool,
    },
}

/// A client may not use an export, or asked for one that is not there.
#[derive(Debug)]
pub struct ExportRefused {
    /// The client.
    pub peer: SocketAddr,
    /// The first name in its certificate, if it has shown one.
    pub name: Option<String>,
    /// What was asked for.
    pub path: String,
    /// Why not.
    pub reason: Reason,
}

/// What was not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Events {
    events: Mutex<Untold<NfsEvent>>,
    refused: Mutex<Untold<ExportRefused>>,
    clients_refused: Mutex<Untold<ClientRefused>>,
}

impl Events {
    fn queue(&self) -> MutexGuard<'_, Untold<NfsEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused_queue(&self) -> MutexGuard<'_, Untold<ExportRefused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients_refused_queue(&self) -> MutexGuard<'_, Untold<ClientRefused>> {
        let queue = self.clients_refused.lock();
        queue.unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of NFSv3 has mounted something, or has not any more.
    pub(crate) fn mount(&self, address: IpAddr, path: Option<&str>, is_mounted: bool) {
        self.queue().push(NfsEvent::Mount {
            address,
            path: path.map(str::to_owned),
            is_mounted,
        });
    }

    /// A client may not use an export.
    #[cold]
    pub(crate) fn refused(&self, peer: &Peer, path: &str, reason: Reason) {
        self.refused_queue().push(ExportRefused {
            peer: peer.address,
            name: peer.view.client().names.first().cloned(),
            path: path.to_owned(),
            reason,
        });
    }

    /// A principal may not touch a client.
    #[cold]
    pub(crate) fn client_refused(&self, refused: ClientRefused) {
        self.clients_refused_queue().push(refused);
    }
}

impl Nfsd {
    /// What has happened since it was asked last, as far as there is room to hold it.
    pub fn take_events(&self) -> Untold<NfsEvent> {
        let mut events = std::mem::take(&mut *self.events.queue());
        let of_clients = self.server.take_events();
        events.left_out += of_clients.left_out;
        events
            .list
            .extend(of_clients.list.into_iter().map(NfsEvent::Client));
        events
    }

    /// The refusals of exports since it was asked last, likewise.
    pub fn take_refused(&self) -> Untold<ExportRefused> {
        std::mem::take(&mut *self.events.refused_queue())
    }

    /// Principals that were refused a client since it was asked last, likewise.
    pub fn take_clients_refused(&self) -> Untold<ClientRefused> {
        std::mem::take(&mut *self.events.clients_refused_queue())
    }
}
