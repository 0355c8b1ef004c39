//! Mail between reactors about NFS, and what belongs to no connection: leases,
//! calls to clients.

use std::io;
use std::sync::mpsc::Sender;

use engine::job::Job;
use engine::post::AfterMail;
use engine::{ConnectionRef, Has, JobId, Shard, Subject};
use machine::Nanos;
use nfsd::callback::Callback;
use nfsd::offload::{CopyWork, WorkAround};
use nfsd::{Exports, Nfsd};
use reactor::Driver;
use store::fs;

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
            shard.in_background(|_| nfsd.set_exports(exports));
            for reactor in 0..local.service.reactors() {
                local.service.send(reactor, OwnMail::ExportsChanged);
            }
            then(());
        }
        OwnMail::ExportsChanged => shard.for_each_of(driver, |c: &mut NfsConnection, _| {
            c.peer.on_exports(nfsd);
        }),
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
            jobs.put_back(id, Job::new(None, 0, mark, JobWork::Background(work, task)));
        }
        None => jobs.release(id),
    }
    drop(jobs);
    see_to(local, driver);
}

/// A client of NFSv4, as an administrator may want to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its `clientid`, by which it is evicted.
    pub id: u64,
    /// How it calls itself (`co_ownerid`).
    pub owner: Vec<u8>,
    /// Its minor version of NFSv4.
    pub minor: u32,
    /// Milliseconds since its last request.
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
}

fn clients(nfsd: &Nfsd, now: Nanos) -> Vec<ClientInfo> {
    let clients = nfsd.server.clients().into_iter();
    let mut list: Vec<ClientInfo> = clients
        .map(|client| {
            let [opens, locks, delegations, _] = nfsd.files.counts(client.id);
            ClientInfo {
                id: client.id,
                owner: client.owner.to_vec(),
                minor: client.minor,
                silent_ms: client.silent(now) / 1_000_000,
                is_expired: nfsd.server.is_expired(&client, now),
                opens,
                locks,
                delegations,
            }
        })
        .collect();
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
    while let Some(work) = nfsd.take_work() {
        begin(local, Box::new(work), driver);
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
