//! The server of NFS as all reactors share it: from the configuration to a
//! running one, its clock, and what it wants to be kept over a restart.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ::nfs::connection::TerminateCounts;
use ::nfs::server::{ClientEvent, Departure, RecordedClient, Secret};
use auth::gss_acceptor::GssAcceptor;
use auth::user::Accounts;
use engine::{About, Post, ProofKind, ProofPlace, Refusal, Remedy, Shared};
use machine::{Nanos, locked};
use nfsd::exports::Export;
use nfsd::owners::{AskedBy, OwnerNaming, Question};
use nfsd::rpcbind::ProgramPorts;
use nfsd::xprtsec::Xprtsec;
use nfsd::{ExportRefused, Exports, NfsEvent, Nfsd, NfsdSettings, Reason};
use store::fs::{QuotaCount, Quotas, Time};
use tls::RenewedTls;

use super::records::{Records, ServerIdentity, new_identity};
use crate::config::NfsSettings;
use crate::hosts::{HostCalls, OutgoingCall};
use crate::name_service::Getent;
use crate::{CLIENT_REFUSED, MOUNT_REFUSED, NfsMail, OwnMail};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// How often the hosts that rules name are looked up.
const HOSTS_EVERY: Nanos = 300 * SECOND;

/// What an answer has beside the data of a READ, and a call beside that of a
/// WRITE, at most.
const REST_BYTES: u32 = 32 << 10;

/// Where the time of day comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wall {
    /// The system.
    #[default]
    System,
    /// It was this when the clock of the reactors was 0.
    Since(Time),
}

impl Wall {
    /// The time of day when the clock of the reactors says `now`.
    pub fn time(self, now: Nanos) -> Time {
        match self {
            Wall::System => system_time(),
            Wall::Since(time) => later(time, now),
        }
    }
}

fn system_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let (seconds, nanos) = since.map_or((0, 0), |since| (since.as_secs(), since.subsec_nanos()));
    Time {
        seconds: seconds.try_into().unwrap_or(i64::MAX),
        nanos,
    }
}

/// The time so much later.
#[inline]
pub(crate) fn later(time: Time, by: Nanos) -> Time {
    let nanos = u64::from(time.nanos) + by % SECOND;
    let seconds = (by / SECOND + nanos / SECOND) as i64;
    Time {
        seconds: time.seconds.saturating_add(seconds),
        nanos: (nanos % SECOND) as u32,
    }
}

/// What a server begins with when the first reactor is there.
struct Start {
    settings: NfsdSettings,
    boot: u32,
    known: Vec<RecordedClient>,
    exports: Exports,
}

/// What NFS connections on all reactors have in common.
pub struct Service {
    /// What all protocols have in common.
    pub shared: Arc<Shared>,
    pub(crate) post: Arc<dyn Post<NfsMail>>,
    pub(crate) handshake_timeout: Nanos,
    /// By which RPC-with-TLS is offered; `None`: it is not.
    pub tls: Option<Arc<RenewedTls>>,
    nfsd: OnceLock<Nfsd>,
    start: Mutex<Option<Start>>,
    /// The blocking worker's; `None`: nothing is kept over a restart.
    records: Mutex<Option<Records>>,
    /// Where the time of day comes from.
    pub wall: Wall,
    /// What makes security contexts of clients.
    acceptor: Mutex<Option<Arc<dyn GssAcceptor>>>,
    owners: OwnerNaming,
    /// What stands behind the `@` in names of owners where that has no domain.
    proven_domain: Mutex<Option<Box<str>>>,
    /// The users and groups of this machine.
    accounts: Mutex<Option<Arc<dyn Accounts>>>,
    /// Where it listens for which programs.
    ports: Mutex<ProgramPorts>,
    /// What makes calls to hosts of NFSv3 and clients of NFSv4.0; without it none is made.
    host_calls: Mutex<Option<HostCalls>>,
    /// Records are not on the disk: it is tried again with every tick.
    are_records_behind: AtomicBool,
    /// Clients that were refused, as is noted.
    clients_refused: AtomicU64,
    /// When the leases were looked at last.
    ticked: AtomicU64,
    /// When the hosts that rules name were looked up last, and whether they are.
    hosts_looked_up: AtomicU64,
    are_hosts_asked: AtomicBool,
    /// How streams by RDMA have ended.
    pub terminates: TerminateCounts,
}

impl Service {
    /// One that is about to begin, with `records` of those before.
    pub fn new(
        (shared, post): (Arc<Shared>, Arc<dyn Post<NfsMail>>),
        (handshake_timeout, tls): (Nanos, Option<Arc<RenewedTls>>),
        settings: &NfsSettings,
        exports: Exports,
        records: Option<Records>,
        wall: Wall,
    ) -> Service {
        let kept = records.iter().flat_map(Records::kept);
        let known = kept.cloned().collect();
        // Clients of a server without records must see that it is another one.
        let random = || RandomState::new().hash_one(0) as u32;
        let boot = records.as_ref().map_or_else(random, Records::boot);
        let identity = records
            .as_ref()
            .map_or_else(new_identity, Records::identity);
        let start = Start {
            settings: settings_of(settings, identity),
            boot,
            known,
            exports,
        };
        Service {
            shared,
            post,
            handshake_timeout,
            tls,
            nfsd: OnceLock::new(),
            start: Mutex::new(Some(start)),
            records: Mutex::new(records),
            wall,
            acceptor: Mutex::new(None),
            owners: settings.owners.clone(),
            proven_domain: Mutex::new(None),
            accounts: Mutex::new(None),
            ports: Mutex::new(Arc::new([])),
            host_calls: Mutex::new(None),
            are_records_behind: AtomicBool::new(false),
            clients_refused: AtomicU64::new(0),
            ticked: AtomicU64::new(0),
            hosts_looked_up: AtomicU64::new(0),
            are_hosts_asked: AtomicBool::new(false),
            terminates: TerminateCounts::default(),
        }
    }

    /// A reactor is there, whose clock says `now`: the first to say so begins.
    pub fn begin(self: &Arc<Self>, now: Nanos) {
        let mut start = locked(&self.start);
        if let Some(start) = start.take() {
            let Start {
                settings,
                boot,
                known,
                exports,
            } = start;
            self.hosts_looked_up.store(now, Ordering::Relaxed);
            self.watch(&exports);
            let nfsd = Nfsd::new(settings, boot, known, exports, now);
            nfsd.set_gss(self.acceptor().is_some());
            self.name_owners(&nfsd);
            nfsd.set_ports(locked(&self.ports).clone());
            assert!(self.nfsd.set(nfsd).is_ok(), "it starts once");
        }
    }

    /// The first reactor hears of what local programs do in these.
    pub(crate) fn watch(self: &Arc<Self>, exports: &Exports) {
        for fs in exports.iter().filter_map(Export::fs) {
            // A file system may outlive the service.
            let service = Arc::downgrade(self);
            fs.tell_local_changes(Box::new(move || {
                if let Some(service) = service.upgrade() {
                    service.send(0, OwnMail::LocalChanges);
                }
            }));
        }
    }

    /// What serves connections.
    #[inline]
    pub fn nfsd(&self) -> &Nfsd {
        self.nfsd.get().expect("a reactor runs")
    }

    /// Users may prove who they are to this from now on; `None`: they cannot.
    pub fn set_acceptor(&self, acceptor: Option<Arc<dyn GssAcceptor>>) {
        let has_gss = acceptor.is_some();
        *locked(&self.acceptor) = acceptor;
        if let Some(nfsd) = self.nfsd.get() {
            nfsd.set_gss(has_gss);
        }
    }

    /// These are the users and groups of this machine. Where the settings have no domain clients
    /// whose users prove who they are see them as `user@domain` from now on, and all as numbers
    /// without this one.
    pub fn set_accounts(&self, proven_domain: Option<&str>, accounts: Arc<dyn Accounts>) {
        *locked(&self.accounts) = Some(accounts);
        *locked(&self.proven_domain) = proven_domain.map(Box::from);
        if let Some(nfsd) = self.nfsd.get() {
            self.name_owners(nfsd);
        }
    }

    fn name_owners(&self, nfsd: &Nfsd) {
        let of_proven = locked(&self.proven_domain);
        nfsd.owners.set_naming(&self.owners, of_proven.as_deref());
    }

    /// The port mapper tells from now on that programs are there.
    pub fn set_ports(&self, ports: ProgramPorts) {
        *locked(&self.ports) = ports.clone();
        if let Some(nfsd) = self.nfsd.get() {
            nfsd.set_ports(ports);
        }
    }

    /// Calls to hosts of NFSv3, and to clients of NFSv4.0, are made by this from now on.
    pub(crate) fn set_host_calls(&self, calls: HostCalls) {
        *locked(&self.host_calls) = Some(calls);
    }

    /// Has hosts of NFSv3, and clients of NFSv4.0, called.
    #[inline]
    pub(crate) fn call_hosts(&self, calls: impl Iterator<Item = OutgoingCall>) {
        let mut calls = calls.peekable();
        if calls.peek().is_none() {
            return;
        }
        if let Some(to) = &*locked(&self.host_calls) {
            // Nothing takes them when the server ends.
            calls.for_each(|call| drop(to.send(call)));
        }
    }

    /// Has the blocking worker ask who owners are: each that asks in its turn.
    #[cold]
    pub(crate) fn look_up_owners(self: &Arc<Self>, questions: Vec<Question>) {
        for question in questions {
            let service = self.clone();
            // A call that comes again finds the answer.
            self.ask_accounts(question.host(), move |accounts| {
                service.nfsd().owners.answer(question, accounts);
            })
            .leave();
        }
    }

    /// Has the blocking worker look up the groups of a user, in the turn of the host that asks,
    /// and do `then`.
    #[cold]
    pub(crate) fn look_up_groups(
        self: &Arc<Self>,
        uid: u32,
        (host, now): AskedBy,
        then: impl FnOnce() + Send + 'static,
    ) -> ProofPlace {
        let (service, clock) = (self.clone(), self.clock_from(now));
        self.ask_accounts(host, move |accounts| {
            let groups = &service.nfsd().groups;
            groups.look_up(uid, accounts, (now, &clock));
            then();
        })
    }

    /// Has the blocking worker look up what rules want to know of an address, in its turn, and do
    /// `then`.
    #[cold]
    pub(crate) fn look_up_names(
        self: &Arc<Self>,
        (address, now): (IpAddr, Nanos),
        then: impl FnOnce() + Send + 'static,
    ) -> ProofPlace {
        let (service, clock) = (self.clone(), self.clock_from(now));
        // A client that gives up soon, and comes again, finds the answer of the first time.
        self.nfsd().client_names.ask(address);
        let step = move || {
            let nfsd = service.nfsd();
            nfsd.look_up_names(address, &Getent, (now, &clock));
            then();
        };
        self.shared.prove(ProofKind::Named, address, step)
    }

    /// The same of an address that datagrams have come from, or a connection that is gone. The
    /// sender of a datagram is not proved, so all these share one turn.
    #[cold]
    pub(crate) fn look_up_asked(self: &Arc<Self>, address: IpAddr, now: Nanos) {
        let (service, clock) = (self.clone(), self.clock_from(now));
        let step = move || {
            let nfsd = service.nfsd();
            nfsd.look_up_names(address, &Getent, (now, &clock));
            nfsd.client_names.end_asked(address);
        };
        let turn = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        (self.shared).prove(ProofKind::Named, turn, step).leave();
    }

    /// Has the blocking worker look up again the hosts that rules name, if it is time, one a step,
    /// and tells the reactors of changes.
    pub(crate) fn look_up_hosts(self: &Arc<Self>, now: Nanos) {
        let last = self.hosts_looked_up.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(last) >= HOSTS_EVERY;
        if !is_due || self.are_hosts_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        self.hosts_looked_up.store(now, Ordering::Relaxed);
        let prove = |step: Box<dyn FnOnce() + Send>| {
            let here = IpAddr::from(Ipv6Addr::LOCALHOST);
            (self.shared).prove(ProofKind::Named, here, step).leave();
        };
        for host in self.nfsd().named_hosts() {
            let service = self.clone();
            prove(Box::new(move || {
                let has_changed = service.nfsd().look_up_host(&host, &Getent);
                for reactor in (0..service.reactors()).filter(|_| has_changed) {
                    service.send(reactor, OwnMail::ExportsChanged);
                }
            }));
        }
        let service = self.clone();
        prove(Box::new(move || {
            service.are_hosts_asked.store(false, Ordering::Release);
        }));
    }

    /// The clock of the reactors, which says `now`, for the blocking worker.
    fn clock_from(&self, now: Nanos) -> impl Fn() -> Nanos + use<> {
        let since = match self.wall {
            Wall::System => Some(Instant::now()),
            Wall::Since(_) => None,
        };
        let nanos = |since: Instant| since.elapsed().as_nanos() as Nanos;
        move || now.saturating_add(since.map_or(0, nanos))
    }

    /// Has the blocking worker ask the users and groups of this machine, in the turn of a host.
    fn ask_accounts(
        &self,
        host: u64,
        ask: impl FnOnce(&dyn Accounts) + Send + 'static,
    ) -> ProofPlace {
        let accounts = locked(&self.accounts).clone();
        let accounts = accounts.expect("they are set before a reactor runs");
        let here = IpAddr::from(Ipv6Addr::LOCALHOST);
        let address = nfsd::host_address(host).unwrap_or(here);
        (self.shared).prove(ProofKind::Asked, address, move || ask(&*accounts))
    }

    pub(crate) fn acceptor(&self) -> Option<Arc<dyn GssAcceptor>> {
        locked(&self.acceptor).clone()
    }

    /// How many reactors there are.
    pub(crate) fn reactors(&self) -> usize {
        self.shared.load.len()
    }

    /// Mail to one reactor.
    pub fn send(&self, shard: usize, mail: OwnMail) {
        self.post.send(shard, NfsMail::Own(mail));
    }

    /// Whether anything is remembered of clients after a restart.
    pub fn has_records(&self) -> bool {
        locked(&self.records).is_some()
    }

    /// Brings to the disk what is to be remembered of clients, then does `then`.
    pub fn keep_records(self: &Arc<Self>, then: impl FnOnce() + Send + 'static) {
        let service = self.clone();
        self.shared.blocking(About::Records, move || {
            service.write_records();
            then();
        });
    }

    /// Keeps what has changed of clients. Blocks: for the blocking worker, which does one
    /// thing after the other, as the server wants it.
    fn write_records(&self) {
        let server = &self.nfsd().server;
        let (changes, recorded) = server.take_records();
        let mut records = locked(&self.records);
        if let Some(records) = &mut *records {
            let noted = records.note(&changes);
            let were_behind = self
                .are_records_behind
                .swap(noted.is_err(), Ordering::AcqRel);
            match noted {
                // Refusing all clients would be worse than some that cannot
                // reclaim: those get an error, and what they had is not kept for them.
                Err(error) if !were_behind => {
                    tracing::error!(
                        state = %records.path().display(),
                        %error,
                        "NFS: what clients may reclaim after a restart is not on the disk: free \
                         space in the folder, or mend its disk; until then clients that come \
                         lose their locks at a restart"
                    );
                }
                Ok(()) if were_behind => {
                    tracing::warn!(
                        state = %records.path().display(),
                        "NFS: what clients may reclaim is on the disk again"
                    );
                }
                Ok(()) | Err(_) => {}
            }
        }
        server.saved(recorded);
    }

    /// Whether records are to be brought to the disk once more.
    pub(crate) fn are_records_behind(&self) -> bool {
        self.are_records_behind.load(Ordering::Acquire)
    }

    /// Notes the clients that were refused since.
    pub fn note_refused(&self) {
        let Some(nfsd) = self.nfsd.get() else { return };
        let (refused, host) = nfsd.server.refused();
        let before = self.clients_refused.swap(refused, Ordering::Relaxed);
        if refused > before {
            let refusal = Refusal {
                host: Some(&nfsd::host_name(host)),
                ..Refusal::new(CLIENT_REFUSED, &"its host has as many clients as it may")
            };
            self.shared.refusals.note_times(refusal, refused - before);
        }
    }

    /// Tells what has happened to clients and mounts since.
    pub(crate) fn tell_events(&self) {
        let Some(nfsd) = self.nfsd.get() else { return };
        let refusals = &self.shared.refusals;
        let events = nfsd.take_events();
        for event in events.list {
            match event {
                NfsEvent::Client(event) => {
                    if refusals.tells_arrival(nfsd::host_address(event.client.host)) {
                        tell_client(&event);
                    }
                }
                NfsEvent::Mount {
                    address,
                    path,
                    is_mounted,
                } => match (refusals.tells_arrival(Some(address)), is_mounted) {
                    (true, true) => {
                        tracing::info!(event = "mounted", %address, path, "NFS client mounts")
                    }
                    (true, false) => {
                        tracing::info!(event = "unmounted", %address, path, "NFS client unmounts")
                    }
                    (false, _) => {}
                },
            }
        }
        if events.left_out > 0 {
            refusals.note_arrivals(events.left_out);
        }
        let refused = nfsd.take_refused();
        for refused in refused.list {
            let ExportRefused {
                peer,
                name,
                path,
                reason,
            } = refused;
            refusals.note(Refusal {
                peer: Some(peer),
                host: name.as_deref(),
                target: Some(&path),
                remedy: match reason {
                    Reason::Address | Reason::AllExports => Remedy::ListPeer,
                    Reason::Xprtsec { has, .. } => Remedy::Protection {
                        has_tls: has == Xprtsec::Tls,
                    },
                    Reason::Flavor
                    | Reason::Port
                    | Reason::NoExport
                    | Reason::Referral
                    | Reason::Drained => Remedy::None,
                },
                ..Refusal::new(MOUNT_REFUSED, &reason)
            });
        }
        if refused.left_out > 0 {
            refusals.note_unnamed(MOUNT_REFUSED, refused.left_out);
        }
        let refused = nfsd.take_clients_refused();
        for refused in refused.list {
            refusals.note(Refusal {
                peer: Some(refused.peer),
                host: Some(&String::from_utf8_lossy(&refused.owner)),
                ..Refusal::new(CLIENT_REFUSED, &refused)
            });
        }
        if refused.left_out > 0 {
            refusals.note_unnamed(CLIENT_REFUSED, refused.left_out);
        }
    }

    /// Tells which quotas were passed since, and which have refused something.
    pub(crate) fn tell_quotas(&self) {
        let exports = self.nfsd().exports.load();
        for fs in exports.iter().filter_map(Export::fs) {
            let events = fs.quotas().map(Quotas::take_events);
            for told in events.unwrap_or_default() {
                let (subject, file_system) = (told.subject.to_string(), &fs.info().name);
                let (used, limit) = (told.used, told.limit);
                let of = match told.count {
                    QuotaCount::Bytes => "bytes",
                    QuotaCount::Objects => "objects",
                };
                match told.is_refused {
                    true => tracing::warn!(
                        event = "quota-refused",
                        file_system,
                        subject,
                        used,
                        limit,
                        "a quota has no more {of}: clients are refused what takes them"
                    ),
                    false => tracing::warn!(
                        event = "quota-passed",
                        file_system,
                        subject,
                        used,
                        limit,
                        "a quota has more {of} than its soft limit: when its grace is over, \
                         clients are refused more"
                    ),
                }
            }
        }
    }

    /// Whether the caller is to look at leases this time.
    pub(crate) fn is_due(&self, now: Nanos, every: Nanos) -> bool {
        let last = self.ticked.load(Ordering::Relaxed);
        now.saturating_sub(last) >= every
            && (self.ticked)
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

fn tell_client(event: &ClientEvent) {
    let ClientEvent { client, gone } = event;
    let (address, version) = (
        nfsd::host_name(client.host),
        format_args!("4.{}", client.minor),
    );
    let owner = String::from_utf8_lossy(&client.owner);
    match gone {
        None => {
            let event = "connected";
            tracing::info!(event, %address, owner = &*owner, %version, "NFS client came");
        }
        Some(reason) => {
            let event = match reason {
                Departure::Expired => "lease-expired",
                _ => "disconnected",
            };
            tracing::info!(event, %address, owner = &*owner, %version, %reason,
                "NFS client is gone");
        }
    }
}

fn settings_of(settings: &NfsSettings, identity: ServerIdentity) -> NfsdSettings {
    let default = ::nfs::server::ServerSettings::default();
    let bytes_max = settings.io_bytes_max + REST_BYTES;
    let mut fore = default.fore;
    fore.request_bytes_max = bytes_max;
    fore.response_bytes_max = bytes_max;
    NfsdSettings {
        server: ::nfs::server::ServerSettings {
            lease: u64::from(settings.lease_ms) * MILLISECOND,
            grace: u64::from(settings.grace_ms) * MILLISECOND,
            fore,
            secret: Secret(new_identity()),
            ..default
        },
        io_bytes_max: settings.io_bytes_max,
        identity,
        manage_gids: settings.manage_gids,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use auth::user::{AccountKind, AccountsUnavailable};
    use nfsd::exports::{ClientName, Clients, NamedHost, Rule};
    use store::fs::Memory;

    use super::super::records::Journal;
    use super::*;

    /// Mail that is sent to it goes nowhere.
    struct DiscardedMail;

    impl<M> Post<M> for DiscardedMail {
        fn send(&self, _: usize, _: M) {}
    }

    fn alone() -> (Arc<Shared>, Arc<dyn Post<NfsMail>>) {
        let limits = engine::ConnectionLimits {
            connections_max: 1,
            connections_of_address_max: 1,
            tls_handshakes_max: 1,
            turn_units_max: 1,
        };
        let shared = Shared::new(limits, 1, Arc::new(DiscardedMail));
        (Arc::new(shared), Arc::new(DiscardedMail))
    }

    /// A server that no reactor has begun.
    pub(crate) fn service() -> Arc<Service> {
        service_with(Exports::default())
    }

    fn service_with(exports: Exports) -> Arc<Service> {
        Arc::new(Service::new(
            alone(),
            (0, None),
            &NfsSettings::default(),
            exports,
            None,
            Wall::System,
        ))
    }

    #[test]
    fn adding_nanoseconds_carries_into_seconds() {
        let time = Time {
            seconds: -1,
            nanos: 999_999_999,
        };
        let next = |by| later(time, by);
        assert_eq!((next(0).seconds, next(0).nanos), (-1, 999_999_999));
        assert_eq!((next(1).seconds, next(1).nanos), (0, 0));
        assert_eq!(
            (next(2 * SECOND + 3).seconds, next(2 * SECOND + 3).nanos),
            (2, 2)
        );
    }

    #[test]
    fn one_reactor_of_all_looks_at_leases() {
        let service = service();
        assert!(service.is_due(SECOND, SECOND / 2));
        assert!(!service.is_due(SECOND, SECOND / 2));
        assert!(!service.is_due(SECOND + SECOND / 4, SECOND / 2));
        assert!(service.is_due(SECOND + SECOND / 2, SECOND / 2));
    }

    /// A database that notes the numbers that are asked for.
    #[derive(Default)]
    struct NotedIds(Mutex<Vec<u32>>);

    impl Accounts for NotedIds {
        fn name(&self, _: AccountKind, id: u32) -> Result<Option<String>, AccountsUnavailable> {
            locked(&self.0).push(id);
            Ok(None)
        }

        fn number(&self, _: AccountKind, _: &str) -> Result<Option<u32>, AccountsUnavailable> {
            Ok(None)
        }

        fn groups(&self, uid: u32) -> Result<Vec<u32>, AccountsUnavailable> {
            locked(&self.0).push(uid);
            Ok(vec![uid])
        }
    }

    #[test]
    fn owners_are_looked_up_by_turns_of_the_hosts_that_ask() {
        let service = service();
        service.begin(0);
        let asked = Arc::new(NotedIds::default());
        service.set_accounts(Some("test"), asked.clone());
        let owners = &service.nfsd().owners;
        let hosts = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|address| {
            let from = std::net::SocketAddr::from((address, 700));
            nfsd::Peer::new(service.nfsd(), 1, from).host()
        });
        for id in (1..=100).chain([200]) {
            let host = hosts[usize::from(id == 200)];
            let found = owners.name(AccountKind::User, id, (host, 0));
            found.expect_err("it is not known yet");
        }
        service.look_up_owners(owners.take_questions());
        service.shared.run_blocking_work();
        let asked = locked(&asked.0);
        assert_eq!(asked.len(), 101);
        assert!(asked[..2].contains(&200), "{:?}", &asked[..2]);
    }

    #[test]
    fn groups_are_not_looked_up_for_connections_that_are_gone() {
        let service = service();
        service.begin(0);
        let asked = Arc::new(NotedIds::default());
        service.set_accounts(None, asked.clone());
        let host = 1;
        let [gone, kept] = [1, 2].map(|uid| service.look_up_groups(uid, (host, 0), || {}));
        drop(gone);
        service.shared.run_blocking_work();
        assert_eq!(*locked(&asked.0), [2]);
        drop(kept);
    }

    #[test]
    fn names_are_looked_up_once_for_connections_that_are_gone() {
        let service = service();
        service.begin(0);
        let (told, address) = (Arc::new(AtomicU64::new(0)), IpAddr::from([192, 0, 2, 1]));
        for _ in 0..10 {
            let told = told.clone();
            let then = move || _ = told.fetch_add(1, Ordering::Relaxed);
            drop(service.look_up_names((address, 0), then));
        }
        service.shared.run_blocking_work();
        assert_eq!(told.load(Ordering::Relaxed), 0);
        assert_eq!(service.nfsd().client_names.take_asked(), [address]);
    }

    #[test]
    fn hosts_that_rules_name_keep_an_address_waiting_for_one_of_them() {
        let names = ["a.invalid", "b.invalid"].map(|name| NamedHost::new(name, Vec::new()));
        let names = names.map(|host| ClientName::Host(Arc::new(host)));
        let rule = Rule {
            clients: Clients::Named(names.into()),
            ..Rule::default()
        };
        let fs = Memory::new("m", 1 << 20, 1, Time::default()).expect("memory");
        let export = Export::new("/m", Arc::new(fs), vec![rule]).expect("an export");
        let exports = Exports::new(vec![export], Time::default()).expect("exports");
        let service = service_with(exports);
        service.begin(0);
        service.look_up_hosts(HOSTS_EVERY);
        let (other, are_asked) = (service.clone(), Arc::new(AtomicBool::new(false)));
        let seen = are_asked.clone();
        let step = move || {
            let asked = other.are_hosts_asked.load(Ordering::Acquire);
            seen.store(asked, Ordering::Release);
        };
        let address = IpAddr::from([192, 0, 2, 1]);
        let _place = service.shared.prove(ProofKind::Named, address, step);
        service.shared.run_blocking_work();
        assert!(are_asked.load(Ordering::Acquire), "its turn comes between");
        assert!(!service.are_hosts_asked.load(Ordering::Acquire));
    }

    /// A disk that fails while `fails` says so.
    struct Disk {
        fails: Arc<AtomicBool>,
        bytes: Arc<Mutex<Option<Vec<u8>>>>,
    }

    impl Disk {
        fn check(&self) -> std::io::Result<()> {
            match self.fails.load(Ordering::Relaxed) {
                true => Err(std::io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        }
    }

    impl Journal for Disk {
        fn load(&mut self) -> std::io::Result<Option<Vec<u8>>> {
            Ok(self.bytes.lock().expect("whole").clone())
        }
        fn replace(&mut self, bytes: &[u8]) -> std::io::Result<()> {
            self.check()?;
            *self.bytes.lock().expect("whole") = Some(bytes.to_vec());
            Ok(())
        }
        fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
            self.check()?;
            let mut all = self.bytes.lock().expect("whole");
            all.as_mut().expect("replaced before").extend(bytes);
            Ok(())
        }
        fn path(&self) -> &Path {
            Path::new("disk")
        }
    }

    /// What a full disk has not taken is brought there when there is room again,
    /// whether or not anything else changes.
    #[test]
    fn records_that_failed_are_tried_again() {
        let fails = Arc::new(AtomicBool::new(false));
        let bytes = Arc::new(Mutex::new(None));
        let disk = || {
            let (fails, bytes) = (fails.clone(), bytes.clone());
            Box::new(Disk { fails, bytes })
        };
        let records = Records::open(disk(), 7).expect("new");
        let service = Service::new(
            alone(),
            (0, None),
            &NfsSettings::default(),
            Exports::default(),
            Some(records),
            Wall::System,
        );
        let service = Arc::new(service);
        service.begin(0);
        let server = &service.nfsd().server;
        let anonymous = ::nfs::connection::Credential::default();
        let principal = ::nfs::server::Principal::new(&anonymous, None);
        let owner = ::nfs::server::ClientOwner {
            verifier: [0; 8],
            id: b"a_client",
            host: 1,
            implementation: b"",
            identity: None,
            protection: None,
        };
        let address = ::nfs::server::CallbackAddress {
            program: 0,
            to: None,
            local: None,
            ident: 0,
        };
        let (id, by) = server
            .set_clientid(owner, address, principal, (0, &|_| false))
            .expect("there is room");
        server
            .confirm_clientid(id, by, principal, 0)
            .expect("it is");
        fails.store(true, Ordering::Relaxed);
        server.record(&server.client(id).expect("confirmed"));
        service.write_records();
        assert!(service.are_records_behind() && !server.has_unsaved());
        service.write_records();
        assert!(service.are_records_behind(), "the disk is full still");
        fails.store(false, Ordering::Relaxed);
        service.write_records();
        assert!(!service.are_records_behind());
        let records = Records::open(disk(), 7).expect("whole");
        let kept: Vec<_> = records.kept().map(|client| &*client.owner).collect();
        assert_eq!(kept, [b"a_client"]);
    }
}
