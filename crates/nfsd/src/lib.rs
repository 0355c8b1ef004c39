//! What NFS calls do to file systems: the operations of NFSv4 (RFC 7530, 8881,
//! 7862, 8276) and the procedures of NFSv3 and MOUNT, executed over
//! [`store::fs`]. No socket: a driver hands in what a connection's machine has
//! received, and keeps what waits for a file system.
//!
//! A call is an [`Execution`], which its driver keeps by the call's tag. It
//! goes on as far as it can and says what it waits for as a [`Step`]. What all
//! connections share is [`Nfsd`]; what one connection has, [`Peer`].
#![forbid(unsafe_code)]

mod acl;
mod answers;
mod attributes;
mod call;
pub mod callback;
pub mod client_names;
mod client_refused;
mod continuation;
mod data;
pub mod datagram;
mod delegation;
mod duplicate_request_cache;
mod events;
pub mod exports;
pub mod groups;
pub mod handle;
mod holder;
mod host_pattern;
mod hosts;
mod known_states;
pub mod locations;
mod lock;
mod mount;
mod names;
pub mod nlm;
mod nsm;
pub mod offload;
mod open;
mod owner_seqid;
pub mod owners;
mod payload;
mod peer;
pub mod pseudo;
mod readdir;
pub mod reason;
mod recovery;
mod retransmission;
pub mod rpcbind;
mod rquota;
mod run;
mod security;
mod sequence;
mod session;
mod state;
mod status;
mod v3;
pub mod xprtsec;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use machine::Nanos;
use nfs::gss::{Contexts, ContextsSettings};
use nfs::server::files::Files;
use nfs::server::{RecordedClient, Server};

pub use call::{Around, CallIo, Elsewhere, Step};
pub use client_refused::ClientRefused;
pub use data::prepare;
pub use events::{ExportRefused, NfsEvent};
pub use exports::Exports;
pub use hosts::{host_address, host_name};
pub use peer::Peer;
pub use pseudo::{Granted, Lost, PseudoPlace, View};
pub use reason::Reason;
pub use run::Execution;

/// Delegations of all clients together at most.
const DELEGATIONS_MAX: u32 = 64 * 1024;

/// What a server of NFS does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsdSettings {
    /// As to clients and sessions.
    pub server: nfs::server::ServerSettings,
    /// Bytes of one READ or WRITE at most.
    pub io_bytes_max: u32,
    /// What clients know this server by on whichever of its addresses: the same
    /// after each start, and on no other server.
    pub identity: [u8; 16],
    /// The groups of a user that says by AUTH_SYS who it is are those that this machine knows,
    /// whatever it says.
    pub manage_gids: bool,
}

impl Default for NfsdSettings {
    fn default() -> NfsdSettings {
        NfsdSettings {
            server: nfs::server::ServerSettings::default(),
            io_bytes_max: 1 << 20,
            identity: *b"weft, by default",
            manage_gids: false,
        }
    }
}

/// One server, shared by all connections of all reactors.
pub struct Nfsd {
    /// What it does.
    pub settings: NfsdSettings,
    /// Clients and sessions.
    pub server: Server,
    /// What clients have of files.
    pub files: Files,
    /// What goes on without a call.
    pub(crate) work: offload::CopyQueue,
    /// Copies under way.
    pub copies: offload::OffloadedCopies,
    /// Calls to clients that are to be made.
    pub outbox: callback::Outbox,
    /// The security contexts of clients, where something makes them.
    pub contexts: Arc<Contexts>,
    has_gss: AtomicBool,
    /// Names of owners, for clients that have one.
    pub owners: owners::Owners,
    /// What the name service says of clients, for rules that ask for it.
    pub client_names: client_names::ClientNames,
    /// The groups of users, with [`NfsdSettings::manage_gids`].
    pub groups: groups::UserGroups,
    /// What is exported.
    pub exports: exports::Live,
    /// What was exported before, as long as states are taken away of files there.
    left_exports: Mutex<Vec<Weak<Exports>>>,
    /// Calls of NFSv3 and 4.0 that must not be executed twice.
    pub(crate) replies: duplicate_request_cache::DuplicateRequestCache,
    /// What clients of NFSv3 have mounted.
    pub(crate) mounts: mount::Mounts,
    /// Hosts of NFSv3 that lock.
    pub(crate) hosts: nlm::NlmHosts,
    /// Events that [`Nfsd::take_events`] has not taken yet.
    pub(crate) events: events::Events,
    /// No client comes.
    is_drained: AtomicBool,
    /// Held by each call of MOUNT that came in a datagram.
    pub(crate) datagram_mounts: Arc<()>,
    /// What the port mapper tells.
    pub(crate) ports: Mutex<rpcbind::ProgramPorts>,
}

impl Nfsd {
    /// A server that begins at `now`. `boot` must be different with every start;
    /// `known` are the clients on record, which may reclaim what they had.
    pub fn new(
        settings: NfsdSettings,
        boot: u32,
        known: impl IntoIterator<Item = RecordedClient>,
        exports: Exports,
        now: Nanos,
    ) -> Nfsd {
        let contexts = Contexts::new(ContextsSettings::default(), settings.server.secret);
        let known: Vec<RecordedClient> = known.into_iter().collect();
        let hosts = known.iter().filter_map(RecordedClient::host).collect();
        let nfsd = Nfsd {
            settings,
            contexts: Arc::new(contexts),
            has_gss: AtomicBool::new(false),
            owners: owners::Owners::default(),
            client_names: client_names::ClientNames::default(),
            groups: groups::UserGroups::default(),
            server: Server::new(settings.server, boot, known, now),
            files: Files::new(boot, settings.server.secret, DELEGATIONS_MAX),
            work: offload::CopyQueue::default(),
            copies: offload::OffloadedCopies::default(),
            outbox: callback::Outbox::default(),
            exports: exports::Live::new(exports),
            left_exports: Mutex::default(),
            replies: duplicate_request_cache::DuplicateRequestCache::default(),
            mounts: mount::Mounts::default(),
            hosts: nlm::NlmHosts::default(),
            events: events::Events::default(),
            is_drained: AtomicBool::new(false),
            datagram_mounts: Arc::new(()),
            ports: Mutex::new(Arc::new([])),
        };
        nfsd.notify_hosts(hosts);
        nfsd
    }

    /// Whether clients may make security contexts: else no call by RPCSEC_GSS comes, and
    /// clients are told of none.
    pub fn has_gss(&self) -> bool {
        self.has_gss.load(Ordering::Relaxed)
    }

    /// Clients may make security contexts from now on, or no more. Those that are there are
    /// gone, since other keys or another realm made them.
    pub fn set_gss(&self, has_gss: bool) {
        self.contexts.clear();
        self.has_gss.store(has_gss, Ordering::Relaxed);
    }
}
