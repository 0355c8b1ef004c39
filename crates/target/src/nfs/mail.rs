//! What reactors tell each other about NFS, and what is nobody's in particular:
//! leases, calls to clients.

use std::cell::RefCell;
use std::io;
use std::sync::mpsc::Sender;

use machine::Nanos;
use nfsd::callback::Callback;
use nfsd::offload::{Work, WorkAround};
use nfsd::{Exports, Nfsd};
use reactor::Driver;
use store::fs;

use super::Local;
use crate::job::{self, Job, JobId, Jobs};
use crate::shard::Shard;
use crate::shared::{ConnectionRef, Mail, Shared, Then};
use crate::token::Subject;

/// How often leases are looked at.
const TICK: Nanos = 1_000_000_000;

/// What reactors tell each other about NFS.
pub enum NfsMail {
    /// Make this call on this connection of yours.
    CallBack(ConnectionRef, Callback),
    /// From now on this is exported. For the first reactor.
    Exports(Exports, Then<()>),
    /// Say which clients there are. For the first reactor.
    List(Sender<Vec<Client>>),
    /// Take away all that this client has, and say whether it was there. For the
    /// first reactor.
    Evict(u64, Then<bool>),
}

impl Shard {
    pub(crate) fn on_nfs_mail<D: Driver>(&mut self, driver: &mut D, mail: NfsMail) {
        match mail {
            NfsMail::CallBack(ConnectionRef { id, .. }, callback) => {
                let mut callback = Some(callback);
                self.with(driver, id, |c, d| {
                    if let Some(c) = c.nfs() {
                        c.call_back(callback.take().expect("one connection makes it"), d.now());
                    }
                });
                if let Some(callback) = callback {
                    let nfsd = self.shared().nfs.nfsd();
                    nfsd.answered(callback.id, None, driver.now());
                }
            }
            NfsMail::Exports(exports, then) => {
                self.shared().nfs.nfsd().set_exports(exports);
                then(self.shared(), ());
            }
            NfsMail::List(to) => {
                // Who asked may have given up waiting.
                let _ = to.send(clients(self.shared().nfs.nfsd(), driver.now()));
            }
            NfsMail::Evict(id, then) => {
                let was_there = self.shared().nfs.nfsd().evict(id);
                then(self.shared(), was_there);
            }
        }
        self.see_to_nfs(driver);
    }

    /// Time has passed.
    pub(crate) fn tick_nfs<D: Driver>(&mut self, driver: &mut D, now: Nanos) {
        let service = &self.shared().nfs;
        self.local().nfs.look(service.wall, now);
        service.tell_events(&self.shared().refusals);
        if service.is_due(now, TICK) {
            service.nfsd().on_tick(now);
            service.note_refused(&self.shared().refusals);
            if service.are_records_behind() {
                self.shared().keep_records(|| {});
            }
            self.see_to_nfs(driver);
        }
    }

    /// Does what has come of calls beside their answers.
    fn see_to_nfs<D: Driver>(&mut self, driver: &mut D) {
        let (shared, local) = (self.shared().clone(), self.local().clone());
        see_to(&shared, (&local.jobs, &local.nfs), driver);
    }

    /// File work of what goes on without a call has completed.
    pub(crate) fn go_on_with_nfs<D: Driver>(
        &mut self,
        driver: &mut D,
        (id, mark): (JobId, u64),
        mut work: Box<Work>,
        (task, result): (fs::Task, io::Result<u32>),
    ) {
        let (shared, local) = (self.shared().clone(), self.local().clone());
        let left = around(&shared, &local.nfs, id, driver, |around| {
            work.resume(task, result, around)
        });
        let mut jobs = local.jobs.borrow_mut();
        match left {
            Some(task) => jobs.put_back(id, Job::background(mark, work, task)),
            None => jobs.release(id),
        }
        drop(jobs);
        see_to(&shared, (&local.jobs, &local.nfs), driver);
    }
}

/// A client of NFSv4, as an administrator may want to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its `clientid`: what [`Change::EvictClient`](crate::Change::EvictClient)
    /// takes.
    pub id: u64,
    /// How it calls itself (`co_ownerid`).
    pub owner: Vec<u8>,
    /// Its minor version of NFSv4.
    pub minor: u32,
    /// Milliseconds since it was heard.
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

fn clients(nfsd: &Nfsd, now: Nanos) -> Vec<Client> {
    let clients = nfsd.server.clients().into_iter();
    let mut list: Vec<Client> = clients
        .map(|client| {
            let [opens, locks, delegations, _] = nfsd.files.counts(client.id);
            Client {
                id: client.id,
                owner: client.owner.to_vec(),
                minor: client.minor,
                silent_ms: now.saturating_sub(client.renewed()) / 1_000_000,
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

/// What one reactor has for it.
type Here<'h> = (&'h RefCell<Jobs>, &'h Local);

/// Calls to clients go to those who make them; what goes on without a call
/// begins.
#[inline]
pub(crate) fn see_to<D: Driver>(shared: &Shared, local: Here<'_>, driver: &mut D) {
    let nfsd = shared.nfs.nfsd();
    for callback in nfsd.take_callbacks() {
        let to = ConnectionRef::unpack(callback.connection);
        let mail = NfsMail::CallBack(to, callback);
        shared.send(to.shard as usize, Mail::Nfs(mail));
    }
    while let Some(work) = nfsd.take_work() {
        begin(shared, local, Box::new(work), driver);
    }
}

#[cold]
fn begin<D: Driver>(shared: &Shared, (jobs, local): Here<'_>, mut work: Box<Work>, driver: &mut D) {
    let id = jobs.borrow_mut().vacant();
    let left = around(shared, local, id, driver, |around| work.begin(around));
    if let Some(task) = left {
        let mut jobs = jobs.borrow_mut();
        jobs.insert_background(id, job::Work::Background(work, task));
    }
}

fn around<D: Driver, R>(
    shared: &Shared,
    local: &Local,
    id: JobId,
    driver: &mut D,
    f: impl FnOnce(&mut WorkAround<'_>) -> R,
) -> R {
    let now = driver.now();
    f(&mut WorkAround {
        nfsd: shared.nfs.nfsd(),
        files: driver,
        token: Subject::File(id).token(),
        now,
        time: local.time(now),
    })
}
