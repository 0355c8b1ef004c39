//! What the server knows of its clients (RFC 8881, sections 2.4, 2.10, 8, 9),
//! shared by all connections.
//!
//! Requests with a session look at that session's slot and at their client's
//! lease, and lock nothing that another request would want. The registry here
//! is locked when clients and sessions come and go. Time comes as an argument.

mod callback_path;
mod callback_way;
mod client;
pub mod files;
mod grace;
mod hosts;
pub mod locks;
mod principal;
mod protection;
mod record;
mod registry;
mod secret;
mod session;
mod set_clientid;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use machine::{Nanos, locked, work};
use wire::nfs4::{clientid4, sequenceid4, sessionid4, verifier4};

pub use callback_path::CallbackPath;
pub use callback_way::{CallbackHandles, CallbackWay, KnownContext};
pub use client::Client;
use grace::Grace;
pub use principal::{Principal, ProvenNumber, proven_number};
pub use protection::{Operations, Protection};
pub use record::{Record, RecordedClient};
pub use secret::Secret;
pub use session::{Callback, Channel, ConnectionId, RequestId, Sequenced, Session};
pub use set_clientid::CallbackAddress;
use set_clientid::ConfirmedBy;

/// Clients whose time is over that go at a time: the others go the next time.
const OVER_MAX: usize = 512;

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// How long a client that says nothing keeps its state for sure.
    pub lease: Nanos,
    /// How long it keeps it beyond that as long as no other client needs it gone.
    pub courtesy: Nanos,
    /// How long clients may reclaim after a start.
    pub grace: Nanos,
    /// Clients at most, those included that were never confirmed.
    pub clients_max: usize,
    /// Of these, those of one host: behind its address there may be many.
    pub clients_of_host_max: usize,
    /// Sessions of one client at most.
    pub sessions_max: usize,
    /// What a session may carry at most, from client to server.
    pub fore: Channel,
    /// Bytes of answers that all sessions together may have to keep.
    pub cached_bytes_max: u64,
    /// What identifiers are made unforeseeable with.
    pub secret: Secret,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            lease: 90_000_000_000,
            courtesy: 86_400_000_000_000,
            grace: 90_000_000_000,
            clients_max: 16 * 1024,
            clients_of_host_max: 4 * 1024,
            sessions_max: 16,
            fore: Channel {
                request_bytes_max: (1 << 20) + (32 << 10),
                response_bytes_max: (1 << 20) + (32 << 10),
                cached_bytes_max: 4096,
                ops_max: 64,
                slots: 128,
            },
            cached_bytes_max: 512 << 20,
            secret: Secret::default(),
        }
    }
}

/// What is to be reported, as much as may be held until it is taken.
#[derive(Debug)]
pub struct Untold<T> {
    /// In order.
    pub list: Vec<T>,
    /// How many more there were.
    pub left_out: u64,
}

impl<T> Default for Untold<T> {
    fn default() -> Untold<T> {
        Untold {
            list: Vec::new(),
            left_out: 0,
        }
    }
}

impl<T> Untold<T> {
    /// Clients make as many as they like.
    const HELD_MAX: usize = 32;

    /// One more.
    pub fn push(&mut self, told: T) {
        match self.list.len() < Self::HELD_MAX {
            true => self.list.push(told),
            false => self.left_out += 1,
        }
    }
}

/// Why a client is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It has said so: DESTROY_CLIENTID.
    Destroyed,
    /// It has started again, and is another one now.
    Restarted,
    /// Its lease has run out.
    Expired,
    /// Another principal has its name, and it had nothing.
    Replaced,
    /// The administrator has taken it away.
    Evicted,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Departure::Destroyed => "it said so",
            Departure::Restarted => "it has started again",
            Departure::Expired => "its lease has run out",
            Departure::Replaced => "another user has its name",
            Departure::Evicted => "it was evicted",
        })
    }
}

/// A confirmed client has arrived or is gone.
#[derive(Clone, Debug)]
pub struct ClientEvent {
    /// Which.
    pub client: Arc<Client>,
    /// Why it is gone; `None`: it has arrived.
    pub gone: Option<Departure>,
}

/// What has happened to clients and is to be taken care of.
#[derive(Debug, Default)]
struct Changes {
    records: Vec<Record>,
    /// How many there have been.
    recorded: Arc<AtomicU64>,
    gone: Vec<Arc<Client>>,
    events: Untold<ClientEvent>,
}

impl Changes {
    fn record(&mut self, record: Record) {
        self.records.push(record);
        self.recorded.fetch_add(1, Ordering::AcqRel);
    }
}

/// The clients of one name.
#[derive(Debug, Default)]
struct OwnerEntry {
    confirmed: Option<clientid4>,
    unconfirmed: Option<clientid4>,
}

/// Where CREATE_SESSION stands for a client (section 18.36.4): a slot of its
/// own.
#[derive(Debug)]
struct ClientEntry {
    client: Arc<Client>,
    is_confirmed: bool,
    /// What it was before it started again.
    before: Option<clientid4>,
    sequenceid: sequenceid4,
    /// The last session that was made, for a CREATE_SESSION that is sent again.
    last: Option<Arc<Session>>,
    sessions: Vec<sessionid4>,
    /// Of version 4.0.
    callback: Option<ConfirmedBy>,
    /// Likewise, to be confirmed.
    callback_next: Option<ConfirmedBy>,
}

#[derive(Debug, Default)]
struct Registry {
    /// Those with sessions, and those of version 4.0: they may go by one name.
    owners: [HashMap<Box<[u8]>, OwnerEntry>; 2],
    clients: HashMap<clientid4, ClientEntry>,
    /// How many of them each host has.
    hosts: HashMap<u64, usize>,
    /// How often a host would have had too many, and which it was last.
    refused: (u64, u64),
    sessions: HashMap<sessionid4, Arc<Session>>,
    client_next: u32,
    session_next: u64,
    /// Bytes of answers that sessions may have to keep.
    cached_bytes: u64,
    changes: Changes,
}

/// The state of NFSv4 of one server.
#[derive(Debug)]
pub struct Server {
    settings: ServerSettings,
    /// Different with every start.
    boot: u32,
    registry: Mutex<Registry>,
    grace: Grace,
    /// Records that there have been.
    recorded: Arc<AtomicU64>,
    /// Of these, those that are where a crash cannot reach them.
    saved: AtomicU64,
}

impl Server {
    /// A server that begins at `now`. `boot` must be different with every start;
    /// `known` are the clients that may have had state when it ended, which may
    /// reclaim it.
    pub fn new(
        settings: ServerSettings,
        boot: u32,
        known: impl IntoIterator<Item = RecordedClient>,
        now: Nanos,
    ) -> Server {
        assert!(settings.fore.slots > 0 && settings.clients_max > 0);
        let registry = Registry::default();
        Server {
            settings,
            boot,
            recorded: registry.changes.recorded.clone(),
            registry: Mutex::new(registry),
            saved: AtomicU64::new(0),
            grace: Grace::new(known, now.saturating_add(settings.grace)),
        }
    }

    /// What it does.
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// The verifier of this start (`writeverf`, cookies of callbacks).
    pub fn boot(&self) -> u32 {
        self.boot
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        locked(&self.registry)
    }

    /// Records that are to be kept where a crash cannot reach them, in order, and the
    /// argument of [`Server::saved`] then. A caller saves what it took before the next
    /// caller takes more.
    pub fn take_records(&self) -> (Vec<Record>, u64) {
        let changes = &mut self.registry().changes;
        let recorded = changes.recorded.load(Ordering::Acquire);
        (std::mem::take(&mut changes.records), recorded)
    }

    /// All records up to this are safe.
    pub fn saved(&self, recorded: u64) {
        self.saved.fetch_max(recorded, Ordering::AcqRel);
    }

    /// Whether there are records that are not safe yet: no client may have state
    /// before they are (section 8.4.3).
    #[inline]
    pub fn has_unsaved(&self) -> bool {
        self.recorded.load(Ordering::Acquire) > self.saved.load(Ordering::Acquire)
    }

    /// Clients that are gone since it was asked last: their state is to be taken
    /// away.
    pub fn take_gone(&self) -> Vec<Arc<Client>> {
        std::mem::take(&mut self.registry().changes.gone)
    }

    /// Clients that have arrived or are gone since it was asked last.
    pub fn take_events(&self) -> Untold<ClientEvent> {
        std::mem::take(&mut self.registry().changes.events)
    }

    /// A session, to be kept by the connection that asks.
    pub fn session(&self, id: &sessionid4) -> Option<Arc<Session>> {
        self.registry().sessions.get(id).cloned()
    }

    /// A confirmed client.
    pub fn client(&self, id: clientid4) -> Option<Arc<Client>> {
        let registry = self.registry();
        let record = registry.clients.get(&id)?;
        record.is_confirmed.then(|| record.client.clone())
    }

    /// A client, whether it is confirmed or not.
    pub fn introduced(&self, id: clientid4) -> Option<Arc<Client>> {
        let registry = self.registry();
        Some(registry.clients.get(&id)?.client.clone())
    }

    /// The confirmed client of a name, of sessions or of version 4.0.
    pub fn named(&self, minor: u32, name: &[u8]) -> Option<Arc<Client>> {
        let registry = self.registry();
        let confirmed = registry.owners[usize::from(minor > 0)].get(name)?.confirmed;
        Some(registry.clients[&confirmed?].client.clone())
    }

    /// What the client of a name, of sessions or of version 4.0, was before it started
    /// again.
    pub fn before(&self, minor: u32, name: &[u8]) -> Option<clientid4> {
        let registry = self.registry();
        let owner = registry.owners[usize::from(minor > 0)].get(name)?;
        registry.clients[&owner.confirmed?].before
    }

    /// Whether a client is one that there is already, and has not started again.
    pub fn is_known(&self, minor: u32, owner: &ClientOwner<'_>) -> bool {
        let named = self.named(minor, owner.id);
        named.is_some_and(|client| client.verifier == owner.verifier)
    }

    /// All confirmed clients.
    pub fn clients(&self) -> Vec<Arc<Client>> {
        let registry = self.registry();
        let confirmed = registry.clients.values().filter(|entry| entry.is_confirmed);
        confirmed.map(|entry| entry.client.clone()).collect()
    }

    /// The sessions of a client, for callbacks.
    pub fn sessions_of(&self, id: clientid4) -> Vec<Arc<Session>> {
        let registry = self.registry();
        let Some(entry) = registry.clients.get(&id) else {
            return Vec::new();
        };
        let sessions = entry.sessions.iter();
        sessions
            .filter_map(|id| registry.sessions.get(id).cloned())
            .collect()
    }

    /// The administrator takes a client away with all that it has. Whether
    /// there was one.
    pub fn evict(&self, id: clientid4) -> bool {
        let mut registry = self.registry();
        let is_there = registry.clients.contains_key(&id);
        registry.remove(id, Departure::Evicted);
        is_there
    }

    /// Whether the lease of a client has run out: it may keep its state until
    /// another client needs that gone.
    pub fn is_expired(&self, client: &Client, now: Nanos) -> bool {
        client.silent(now) > self.settings.lease
    }

    /// Clients that have been silent for longer than courtesy lasts lose their
    /// state; call it now and then.
    pub fn on_tick(&self, now: Nanos) {
        let silent_max = self.settings.lease.saturating_add(self.settings.courtesy);
        let mut registry = self.registry();
        let is_over = |record: &ClientEntry| {
            let silent = record.client.silent(now);
            silent > silent_max || !record.is_confirmed && silent > self.settings.lease
        };
        work::spend(registry.clients.len() as u64);
        let over = registry.clients.values().filter(|r| is_over(r));
        let over = over.take(OVER_MAX).map(|record| record.client.id);
        let over: Vec<_> = over.collect();
        over.into_iter()
            .for_each(|id| registry.remove(id, Departure::Expired));
    }

    /// The state of a client is in the way of another: it is taken away if its lease has
    /// run out. Whether the client is gone.
    pub fn expire(&self, id: clientid4, now: Nanos) -> bool {
        work::spend(1);
        // What hosts of NFSv3 have is under no lease.
        if (id >> 32) as u32 != self.boot {
            return false;
        }
        let mut registry = self.registry();
        let Some(record) = registry.clients.get(&id) else {
            return true;
        };
        let is_expired = self.is_expired(&record.client, now);
        if is_expired {
            registry.remove(id, Departure::Expired);
        }
        is_expired
    }

    /// How often a client was refused since its host has as many as it may, and
    /// the host that it was last.
    pub fn refused(&self) -> (u64, u64) {
        self.registry().refused
    }

    /// Clients: how many, and sessions.
    pub fn counts(&self) -> (usize, usize) {
        let registry = self.registry();
        (registry.clients.len(), registry.sessions.len())
    }
}

/// What EXCHANGE_ID agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// `eir_clientid`.
    pub clientid: clientid4,
    /// `eir_sequenceid`: the next of CREATE_SESSION.
    pub sequenceid: sequenceid4,
    /// Whether EXCHGID4_FLAG_CONFIRMED_R is set.
    pub is_confirmed: bool,
    /// How its state is protected.
    pub protection: Option<Protection>,
}

/// What a client names itself by (`client_owner4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOwner<'a> {
    /// `co_verifier`.
    pub verifier: verifier4,
    /// `co_ownerid`.
    pub id: &'a [u8],
    /// Where it says so from: the same for all connections of a host.
    pub host: u64,
    /// What program it says it is (`nii_name`); empty if it does not.
    pub implementation: &'a [u8],
    /// What it has proved to be, if anything.
    pub identity: Option<&'a str>,
    /// How its state is to be protected.
    pub protection: Option<Protection>,
}
