//! Events for an operator: mounts, refusals, clients that arrive and leave.
//! The caller of [`Nfsd::take_events`] and [`Nfsd::take_refused`] logs them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nfs::server::{Client, ClientEvent, Untold};

use crate::Nfsd;
use crate::peer::{Peer, host_name};
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

/// A principal may not have the name of a client, or change what is of it (NFS4ERR_CLID_INUSE,
/// NFS4ERR_WRONG_CRED). Its [`Display`](fmt::Display) says why, and the remedy.
#[derive(Debug)]
pub struct ClientRefused {
    /// Where it came from.
    pub peer: SocketAddr,
    /// What it has proved to be, if anything.
    pub identity: Option<String>,
    /// What the client calls itself (`co_ownerid`).
    pub owner: Box<[u8]>,
    /// That client; `None`: it was there before the server was started again.
    pub holder: Option<Arc<Client>>,
}

impl fmt::Display for ClientRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "a machine mounts all by one certificate or principal, or all \
            without, and has a host name of its own";
        let proved = |identity: Option<&str>| match identity {
            Some(identity) => format!("`{identity}`"),
            None => "nothing".to_owned(),
        };
        let own = proved(self.identity.as_deref());
        let Some(holder) = &self.holder else {
            return write!(
                f,
                "the name is that of a client which may reclaim what it had before the restart; \
                 this one has proved {own}: wait for the end of that time; {REMEDY}"
            );
        };
        if self.identity.is_some() && holder.identity.as_deref() == self.identity.as_deref() {
            return write!(
                f,
                "the client's state is protected (SP4_MACH_CRED), and its principal has called \
                 without integrity: krb5i or krb5p has it"
            );
        }
        let holds = proved(holder.identity.as_deref());
        let (host, id) = (host_name(holder.host), holder.id);
        write!(
            f,
            "the client is of another principal: it has proved {holds}, from {host}, this one \
             {own}; {REMEDY}; `weft evict nfs-client {id:#x}` frees the name"
        )
    }
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
