//! Mail between reactors about NFS, and what belongs to no connection: leases,
//! calls to clients.

use std::io;
use std::net::IpAddr;
use std::sync::mpsc::Sender;

use engine::job::Job;
use engine::post::AfterMail;
use engine::{ConnectionRef, Has, JobId, Shard, Subject};
use machine::Nanos;
use nfsd::callback::Callback;
use nfsd::datagram::Datagram;
use nfsd::nlm::NlmGrant;
use nfsd::offload::{CopyWork, WorkAround};
use nfsd::{Exports, Nfsd};
use reactor::Driver;
use store::fs;
use wire::nlm4::nlm4_stats;

use super::hosts::OutgoingCall;
use super::{CallWork as JobWork, Local, NfsConnection};

/// How often leases are looked at.
const TICK: Nanos = 1_000_000_000;

/// Mail between reactors about NFS.
pub enum OwnMail {
    /// A callback to make on a connection of the receiver.
    CallBack(ConnectionRef, Callback),
    /// From now on this is exported. For the first reactor.
    Exports(Exports, AfterMail<()>),
    /// The exports have changed.
    ExportsChanged,
    /// A datagram has come. For the first reactor.
    Datagram(Box<Datagram>),
    /// Local programs have changed or opened files that clients have delegations of. For the
    /// first reactor.
    LocalChanges,
    /// What a host has said to a lock that is its own now, if it has. For the first reactor.
    Granted(Box<NlmGrant>, Option<nlm4_stats>),
    /// What a client of version 4.0 has answered to the call of this number, if it has. For the
    /// first reactor.
    Called(u64, Option<Vec<u8>>),
    /// Say which clients there are. For the first reactor.
    List(Sender<Vec<ClientInfo>>),
    /// Take away all that this client has, and say whether it was there. For the
    /// first reactor.
    Evict(u64, AfterMail<bool>),
}

/// Mail has arrived.
pub(crate) fn on_mail<S: Has<NfsConnection>, D: Driver>(
    shard: &mut Shard<S>,
    mail: OwnMail,
    driver: &mut D,
) {
    let local = shard.server.local().clone();
    let nfsd = local.service.nfsd();
    match mail {
        OwnMail::CallBack(ConnectionRef { id, .. }, callback) => {
            let mut callback = Some(callback);
            shard.with_of(driver, id, |c: &mut NfsConnection, d| {
                c.call_back(callback.take().expect("one connection makes it"), d.now());
            });
            if let Some(callback) = callback {
                nfsd.answered(callback.id, None, driver.now());
            }
        }
        OwnMail::Exports(exports, then) => {
            local.service.watch(&exports);
            shard.in_background(|_| nfsd.set_exports(exports));
            for reactor in 0..local.service.reactors() {
                local.service.send(reactor, OwnMail::ExportsChanged);
            }
            then(());
        }
        OwnMail::ExportsChanged => shard.for_each_of(driver, |c: &mut NfsConnection, _| {
            c.peer.on_exports(nfsd);
            c.core.link.machine.set_let_in(c.peer.has_exports());
        }),
        OwnMail::Datagram(datagram) => {
            let now = driver.now();
            shard.in_background(|_| nfsd.take_datagram(*datagram, (now, local.time(now))));
        }
        OwnMail::LocalChanges => {
            let now = driver.now();
            let mut has_more = false;
            shard.in_background(|_| has_more = nfsd.see_local_changes(now));
            if has_more {
                local.service.send(0, OwnMail::LocalChanges);
            }
        }
        OwnMail::Granted(grant, stat) => {
            let now = driver.now();
            shard.in_background(|_| nfsd.granted(&grant, stat, now));
        }
        OwnMail::Called(id, answer) => {
            let now = driver.now();
            shard.in_background(|_| nfsd.answered(id, answer.as_deref(), now));
        }
        OwnMail::List(to) => {
            // The receiver may have given up waiting.
            let _ = to.send(clients(nfsd, driver.now()));
        }
        OwnMail::Evict(id, then) => {
            let mut was_there = false;
            shard.in_background(|_| was_there = nfsd.evict(id));
            then(was_there);
        }
    }
    see_to(&local, driver);
}

/// Time has passed.
pub fn on_tick<D: Driver>(local: &Local, now: Nanos, driver: &mut D) {
    let service = &local.service;
    local.look(now);
    service.tell_events();
    if service.is_due(now, TICK) {
        service.nfsd().on_tick(now);
        service.note_refused();
        service.look_up_hosts(now);
        service.tell_quotas();
        if service.are_records_behind() {
            service.keep_records(|| {});
        }
        see_to(local, driver);
    }
}

/// File work of what goes on without a call has completed.
pub(crate) fn go_on<D: Driver>(
    local: &Local,
    (id, mark): (JobId, u64),
    mut work: Box<CopyWork>,
    (task, result): (fs::Task, io::Result<u32>),
    driver: &mut D,
) {
    let left = around(local, id, driver, |around| {
        work.resume(task, result, around)
    });
    let mut jobs = local.jobs.borrow_mut();
    match left {
        Some(task) => {
            jobs.reinsert(id, Job::new(None, 0, mark, JobWork::Background(work, task)));
        }
        None => jobs.release(id),
    }
    drop(jobs);
    see_to(local, driver);
}

/// A client of NFSv4, or a host of NFSv3 that has locks, as an administrator may want to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its `clientid`, by which it is evicted.
    pub id: u64,
    /// How it calls itself (`co_ownerid`, `caller_name`).
    pub owner: Vec<u8>,
    /// What it had proved to be when it came: a name in its certificate, or its principal of
    /// Kerberos.
    pub identity: Option<String>,
    /// Its minor version of NFSv4; `None` of a host of NFSv3.
    pub minor: Option<u32>,
    /// The address that it came from, of IPv6 the first of its network.
    pub address: Option<IpAddr>,
    /// What program it says it is (`nii_name`).
    pub implementation: Vec<u8>,
    /// Its lease, milliseconds; a host of NFSv3 has none.
    pub lease_ms: u64,
    /// Milliseconds since its last request; of a host of NFSv3, for a lock.
    pub silent_ms: u64,
    /// It has been silent for longer than its lease: what it has is taken away
    /// when others want it.
    pub is_expired: bool,
    /// Files that it has open, one for each open.
    pub opens: usize,
    /// Files and owners with byte-range locks.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Its sessions; version 4.0 has none.
    pub sessions: usize,
    /// Slots of those that a request is executed in, of how many.
    pub slots: (usize, usize),
    /// Whether a connection carries callbacks to it; `None` of version 4.0, and of a
    /// client that wants none.
    pub has_callback_path: Option<bool>,
}

fn clients(nfsd: &Nfsd, now: Nanos) -> Vec<ClientInfo> {
    // Grace ends when somebody looks after its time: whoever lists clients wants it told.
    nfsd.server.is_in_grace(now);
    let clients = nfsd.server.clients().into_iter();
    let mut list: Vec<ClientInfo> = clients
        .map(|client| {
            let [opens, locks, delegations, _] = nfsd.files.counts(client.id);
            let sessions = nfsd.server.sessions_of(client.id);
            let called = sessions.iter().filter(|session| session.wants_callbacks());
            let paths: Vec<bool> = called.map(|session| session.has_callback_path()).collect();
            ClientInfo {
                id: client.id,
                owner: client.owner.to_vec(),
                identity: client.identity.as_deref().map(str::to_owned),
                minor: Some(client.minor),
                address: nfsd::host_address(client.host),
                implementation: client.implementation.to_vec(),
                lease_ms: nfsd.server.settings().lease / 1_000_000,
                silent_ms: client.silent(now) / 1_000_000,
                is_expired: nfsd.server.is_expired(&client, now),
                opens,
                locks,
                delegations,
                sessions: sessions.len(),
                slots: sessions.iter().fold((0, 0), |(used, all), session| {
                    (
                        used + session.slots_in_use(),
                        all + session.fore.slots as usize,
                    )
                }),
                has_callback_path: (!paths.is_empty()).then(|| paths.contains(&true)),
            }
        })
        .collect();
    list.extend(nfsd.nlm_hosts(now).into_iter().map(|host| {
        let [opens, locks, ..] = nfsd.files.counts(host.client);
        ClientInfo {
            id: host.client,
            owner: host.name.into(),
            address: Some(host.address),
            silent_ms: host.silent / 1_000_000,
            opens,
            locks,
            ..ClientInfo::default()
        }
    }));
    list.sort_by_key(|client| client.id);
    list
}

/// Calls to clients go to the reactors of their connections; what goes on without a
/// call begins.
#[inline]
pub(crate) fn see_to<D: Driver>(local: &Local, driver: &mut D) {
    let nfsd = local.service.nfsd();
    for callback in nfsd.take_callbacks() {
        let to = ConnectionRef::unpack(callback.connection);
        let mail = OwnMail::CallBack(to, callback);
        local.service.send(to.shard as usize, mail);
    }
    let of_hosts = nfsd.take_host_calls().into_iter().map(OutgoingCall::Host);
    let of_clients = nfsd.take_client_calls().into_iter();
    (local.service).call_hosts(of_hosts.chain(of_clients.map(OutgoingCall::Client)));
    while let Some(work) = nfsd.take_work() {
        begin(local, Box::new(work), driver);
    }
    let questions = nfsd.owners.take_questions();
    if !questions.is_empty() {
        local.service.look_up_owners(questions);
    }
    for address in nfsd.client_names.take_asked() {
        local.service.look_up_asked(address, driver.now());
    }
}

#[cold]
fn begin<D: Driver>(local: &Local, mut work: Box<CopyWork>, driver: &mut D) {
    let id = local.jobs.borrow_mut().vacant();
    let left = around(local, id, driver, |around| work.begin(around));
    if let Some(task) = left {
        let work = JobWork::Background(work, task);
        local.jobs.borrow_mut().insert_background(id, work);
    }
}

fn around<D: Driver, R>(
    local: &Local,
    id: JobId,
    driver: &mut D,
    f: impl FnOnce(&mut WorkAround<'_>) -> R,
) -> R {
    let now = driver.now();
    f(&mut WorkAround {
        nfsd: local.service.nfsd(),
        files: driver,
        token: Subject::File(id).token(),
        now,
        time: local.time(now),
    })
}
