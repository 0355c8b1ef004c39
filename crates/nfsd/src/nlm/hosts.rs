//! Hosts of NFSv3 that have locks or wait for some, and what they are to be called for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use machine::{Nanos, locked, work};
use nfs::server::files::{FileKey, Files, LockArgs, NlmOwner, StateRefused, Waiter};
use wire::nfs4::clientid4;
use wire::nlm4::{nlm4_lock, nlm4_stats, nlm4_testargs};
use wire::xdr::{Encode, Opaque};

use crate::Nfsd;

/// Hosts at most, and those of one address: there may be many behind it.
const HOSTS_MAX: usize = 16 * 1024;
const HOSTS_OF_ADDRESS_MAX: usize = 256;
/// Owners that wait for locks at most; the others ask again of their own accord.
const BLOCKED_MAX: usize = 16 * 1024;
/// Calls to hosts that wait for something to make them.
const CALLS_MAX: usize = 4096;
/// A host that has had nothing for so long is forgotten.
const IDLE_MAX: Nanos = 3_600_000_000_000;

/// A host, as it was when it came.
#[derive(Debug)]
struct NlmHost {
    client: clientid4,
    /// What it said last of its own state: it changes with each start.
    state: u32,
    /// What it has is under a record that outlives this server.
    is_recorded: bool,
    used: Nanos,
}

/// A lock that is waited for.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    pub(super) cookie: Box<[u8]>,
    pub(super) caller_name: Box<[u8]>,
    pub(super) peer: IpAddr,
    pub(super) local: Option<IpAddr>,
    pub(super) file: FileKey,
    pub(super) wanted: LockArgs,
}

/// The waiting owner: its host, its name, its file handle.
type BlockedKey = (clientid4, Box<[u8]>, Box<[u8]>);

#[derive(Debug, Default)]
struct HostsInner {
    /// By address and what they call themselves.
    hosts: BTreeMap<(IpAddr, Box<[u8]>), NlmHost>,
    next: u32,
    blocked: BTreeMap<BlockedKey, Blocked>,
    /// Those that have their lock, and whose hosts have not said yet that they know.
    unconfirmed: BTreeSet<BlockedKey>,
    calls: Vec<HostCall>,
}

/// Hosts of NFSv3.
#[derive(Debug, Default)]
pub(crate) struct NlmHosts {
    inner: Mutex<HostsInner>,
    has_calls: AtomicBool,
}

/// A host, as an administrator may want to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NlmHostInfo {
    /// What stands for it among clients.
    pub client: clientid4,
    /// Where it is.
    pub address: IpAddr,
    /// What it calls itself.
    pub name: Box<[u8]>,
    /// Since it asked for a lock last.
    pub silent: Nanos,
}

/// A host is to be called: by a datagram to its port mapper, then to the program.
#[derive(Clone, Debug)]
pub enum HostCall {
    /// It has a lock that it waited for: NLMPROC4_GRANTED.
    Granted(NlmGrant),
    /// This server has started again: SM_NOTIFY.
    Notify(HostNotice),
}

/// A host that is to be told that this server has started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNotice {
    /// Of the host.
    pub address: IpAddr,
    /// The state of this server.
    pub state: u32,
}

/// A lock that a host has waited for and has now.
#[derive(Clone, Debug)]
pub struct NlmGrant {
    /// Of the host.
    pub address: IpAddr,
    /// Of this server, by which it came.
    pub local: Option<IpAddr>,
    client: clientid4,
    /// As it is called here: with its process.
    owner: Box<[u8]>,
    handle: Box<[u8]>,
    blocked: Blocked,
}

impl NlmGrant {
    fn key(&self) -> BlockedKey {
        (self.client, self.owner.clone(), self.handle.clone())
    }

    /// The arguments of NLMPROC4_GRANTED.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (svid, oh) = self.owner.split_first_chunk().expect("it begins with one");
        let range = self.blocked.wanted.range;
        nlm4_testargs {
            cookie: Opaque(&self.blocked.cookie),
            exclusive: self.blocked.wanted.is_exclusive,
            alock: nlm4_lock {
                caller_name: Opaque(&self.blocked.caller_name),
                fh: Opaque(&self.handle),
                oh: Opaque(oh),
                svid: u32::from_be_bytes(*svid),
                l_offset: range.start,
                l_len: match range.length() {
                    u64::MAX => 0,
                    length => length,
                },
            },
        }
        .encode(to);
    }
}

impl HostsInner {
    /// Whether there may be one more host, of this address.
    fn check_room(&self, address: IpAddr) -> Option<()> {
        let of_address = self.hosts.range((address, Box::default())..);
        let of_address = of_address.take_while(|(key, _)| key.0 == address);
        let has_room = self.hosts.len() < HOSTS_MAX
            && of_address.take(HOSTS_OF_ADDRESS_MAX).count() < HOSTS_OF_ADDRESS_MAX;
        has_room.then_some(())
    }

    /// Whether the host of a lock is there, and has not started again since.
    fn is_here(&self, grant: &NlmGrant) -> bool {
        let key = (grant.address, grant.blocked.caller_name.clone());
        let host = self.hosts.get(&key);
        host.is_some_and(|host| host.client == grant.client)
    }

    /// Hosts are gone, and are told of no lock; what they waited for.
    fn take_waits(&mut self, gone: &BTreeSet<clientid4>) -> Vec<(BlockedKey, Blocked)> {
        let looked_at = self.blocked.len() + self.unconfirmed.len() + self.calls.len();
        work::spend(looked_at as u64 / work::OPERATION_UNITS);
        self.unconfirmed.retain(|(of, ..)| !gone.contains(of));
        self.calls.retain(|call| match call {
            HostCall::Granted(grant) => !gone.contains(&grant.client),
            HostCall::Notify(_) => true,
        });
        let waits = self.blocked.extract_if(.., |(of, ..), _| gone.contains(of));
        waits.collect()
    }

    fn new_client(&mut self, files: &Files) -> clientid4 {
        self.next += 1;
        let client = files.nlm_client(self.next);
        files.admit_client(client, false);
        client
    }
}

impl NlmHosts {
    fn inner(&self) -> MutexGuard<'_, HostsInner> {
        locked(&self.inner)
    }

    /// What stands for a host that is known.
    pub(super) fn find(&self, address: IpAddr, name: &[u8]) -> Option<clientid4> {
        let inner = self.inner();
        let host = inner.hosts.get(&(address, name.into()))?;
        Some(host.client)
    }

    /// An owner waits for a lock; whether there is room to remember it.
    pub(super) fn block(&self, waiter: &Waiter, blocked: Blocked) -> bool {
        let mut inner = self.inner();
        let key = (waiter.client, waiter.owner.clone(), waiter.handle.clone());
        let has_room = inner.blocked.len() < BLOCKED_MAX || inner.blocked.contains_key(&key);
        if has_room {
            inner.blocked.insert(key, blocked);
        }
        has_room
    }

    /// An owner has asked again and has its lock: it knows, whatever it says to a call that
    /// told it.
    pub(super) fn confirm(&self, client: clientid4, owner: &[u8], handle: &[u8]) {
        let key = (client, owner.into(), handle.into());
        let mut inner = self.inner();
        inner.blocked.remove(&key);
        inner.unconfirmed.remove(&key);
    }

    /// It waits no longer.
    pub(super) fn unblock(
        &self,
        client: clientid4,
        owner: &[u8],
        handle: &[u8],
    ) -> Option<Blocked> {
        let key = (client, owner.into(), handle.into());
        self.inner().blocked.remove(&key)
    }

    fn call(&self, call: HostCall) {
        let mut inner = self.inner();
        if inner.calls.len() < CALLS_MAX {
            if let HostCall::Granted(grant) = &call {
                if !inner.is_here(grant) {
                    return;
                }
                inner.unconfirmed.insert(grant.key());
            }
            inner.calls.push(call);
            self.has_calls.store(true, Ordering::Release);
        }
    }
}

/// A name up to its first dot: hosts call themselves now with their domain, and now without.
fn label(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'.').next().unwrap_or_default()
}

impl Nfsd {
    /// A host is about to have something. What is known of it outlives this server where it
    /// says when it starts again (`is_monitored`). `None` where there are too many.
    pub(super) fn host_came(
        &self,
        (address, name): (IpAddr, &[u8]),
        (state, is_monitored): (u32, bool),
        now: Nanos,
    ) -> Option<clientid4> {
        let mut inner = self.hosts.inner();
        let key = (address, Box::from(name));
        if !inner.hosts.contains_key(&key) {
            inner.check_room(address)?;
            let client = inner.new_client(&self.files);
            let host = NlmHost {
                client,
                state,
                is_recorded: false,
                used: now,
            };
            inner.hosts.insert(key.clone(), host);
        }
        let host = inner.hosts.get_mut(&key).expect("it is there");
        host.used = now;
        // 0: the host has no status monitor that would know.
        if state != 0 {
            host.state = state;
        }
        let is_new = is_monitored && !std::mem::replace(&mut host.is_recorded, is_monitored);
        let client = host.client;
        drop(inner);
        if is_new {
            self.server.record_host(address, name);
        }
        Some(client)
    }

    /// A host says that it has started again, or that it has nothing more: what it had is gone.
    /// The same `state` again says nothing new.
    pub(crate) fn host_restarted(&self, address: IpAddr, name: &[u8], state: Option<u32>) {
        let address = address.to_canonical();
        let mut inner = self.hosts.inner();
        work::spend(inner.hosts.len() as u64 / work::OPERATION_UNITS);
        let mut gone = Vec::new();
        for ((from, own), host) in &mut inner.hosts {
            let is_new = state.is_none_or(|state| state != host.state);
            if *from == address && label(own) == label(name) && is_new {
                host.state = state.unwrap_or(host.state);
                host.is_recorded = false;
                gone.push((own.clone(), host.client));
            }
        }
        for (own, _) in &gone {
            let next = inner.new_client(&self.files);
            let host = inner.hosts.get_mut(&(address, own.clone()));
            host.expect("it is there").client = next;
        }
        let waits = inner.take_waits(&gone.iter().map(|(_, client)| *client).collect());
        drop(inner);
        self.cancel_waits(waits);
        for (name, client) in gone {
            self.server.forget_host(address, &name);
            self.forget(client);
        }
    }

    /// The hosts that are known.
    pub fn nlm_hosts(&self, now: Nanos) -> Vec<NlmHostInfo> {
        let inner = self.hosts.inner();
        work::spend(inner.hosts.len() as u64);
        let hosts = inner.hosts.iter();
        hosts
            .map(|((address, name), host)| NlmHostInfo {
                client: host.client,
                address: *address,
                name: name.clone(),
                silent: now.saturating_sub(host.used),
            })
            .collect()
    }

    /// What a host has, and what is known of it, is gone. Whether there was one.
    pub(crate) fn evict_host(&self, client: clientid4) -> bool {
        let mut inner = self.hosts.inner();
        work::spend(inner.hosts.len() as u64 / work::OPERATION_UNITS);
        let mut hosts = inner.hosts.iter();
        let found = hosts.find_map(|(key, host)| (host.client == client).then(|| key.clone()));
        let Some(key) = found else {
            return false;
        };
        inner.hosts.remove(&key);
        let waits = inner.take_waits(&[client].into());
        drop(inner);
        self.cancel_waits(waits);
        self.server.forget_host(key.0, &key.1);
        self.forget(client);
        true
    }

    /// What hosts waited for that are gone leaves room for others that wait.
    fn cancel_waits(&self, waits: Vec<(BlockedKey, Blocked)>) {
        for ((client, name, _), Blocked { file, wanted, .. }) in &waits {
            let (client, file) = (*client, *file);
            self.files
                .nlm_cancel(NlmOwner { client, name, file }, *wanted);
        }
    }

    /// Hosts that have had nothing for long are forgotten.
    pub(crate) fn retire_hosts(&self, now: Nanos) {
        let mut inner = self.hosts.inner();
        work::spend(inner.hosts.len() as u64);
        let idle = |host: &NlmHost| now.saturating_sub(host.used) > IDLE_MAX;
        let mut gone = Vec::new();
        inner.hosts.retain(|key, host| {
            let is_over = idle(host) && !self.files.has_state(host.client);
            if is_over {
                gone.push((key.clone(), (host.client, host.is_recorded)));
            }
            !is_over
        });
        if gone.is_empty() {
            return;
        }
        let waits = inner.take_waits(&gone.iter().map(|(_, (client, _))| *client).collect());
        drop(inner);
        self.cancel_waits(waits);
        for ((address, name), (client, is_recorded)) in gone {
            if is_recorded {
                self.server.forget_host(address, &name);
            }
            self.forget(client);
        }
    }

    /// A lock may be had now that an owner of a host has waited for: it has it, and its host is
    /// to be told.
    pub(crate) fn grant(&self, waiter: Waiter) {
        let Waiter {
            client,
            owner,
            handle,
        } = waiter;
        let Some(blocked) = self.hosts.unblock(client, &owner, &handle) else {
            return;
        };
        let by = NlmOwner {
            client,
            name: &owner,
            file: blocked.file,
        };
        let waiter = Waiter {
            client,
            owner: owner.clone(),
            handle: handle.clone(),
        };
        match self.files.nlm_lock(by, blocked.wanted) {
            Ok(()) => self.hosts.call(HostCall::Granted(NlmGrant {
                address: blocked.peer,
                local: blocked.local,
                client,
                owner,
                handle,
                blocked,
            })),
            Err(StateRefused::Denied(..)) => {
                let (file, wanted) = (blocked.file, blocked.wanted);
                if self.hosts.block(&waiter, blocked) {
                    self.files.wait_for_lock(file, waiter, wanted);
                }
            }
            // It asks again.
            Err(_) => {}
        }
    }

    /// What a host has said to a lock that it has now, or `None` where it is called no more. One
    /// that waits no longer, and has not asked again since, gives it back.
    pub fn granted(&self, grant: &NlmGrant, answer: Option<nlm4_stats>, now: Nanos) {
        let is_unconfirmed = self.hosts.inner().unconfirmed.remove(&grant.key());
        if is_unconfirmed && answer == Some(nlm4_stats::NLM4_DENIED) {
            let by = NlmOwner {
                client: grant.client,
                name: &grant.owner,
                file: grant.blocked.file,
            };
            // What would split a lock where there is no room stays until its host goes.
            let _ = self.files.nlm_unlock(by, grant.blocked.wanted.range);
            self.wake(now);
        }
    }

    /// The hosts that are to be told that this server has started again.
    pub(crate) fn notify_hosts(&self, hosts: BTreeSet<IpAddr>) {
        let state = self.nsm_state();
        for address in hosts {
            let notice = HostNotice { address, state };
            self.hosts.call(HostCall::Notify(notice));
        }
    }

    /// The calls to hosts that are to be made.
    #[inline]
    pub fn take_host_calls(&self) -> Vec<HostCall> {
        let has_calls = &self.hosts.has_calls;
        if !has_calls.load(Ordering::Relaxed) || !has_calls.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.hosts.inner().calls)
    }
}
