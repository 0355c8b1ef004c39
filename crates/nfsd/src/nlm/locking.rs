//! What the procedures of the lock manager do to the table of locks.

use std::net::{IpAddr, SocketAddr};

use machine::Nanos;
use nfs::server::files::{FileKey, LockArgs, NlmOwner, READ, ShareReservation, WRITE, Waiter};
use nfs::server::locks::{Lock, Range};
use wire::nfs4::nfsstat4;
use wire::nlm4::{
    nlm4_cancargs, nlm4_holder, nlm4_lock, nlm4_lockargs, nlm4_shareargs, nlm4_stats,
    nlm4_testargs, nlm4_unlockargs,
};
use wire::xdr::Opaque;

use super::hosts::Blocked;
use crate::Nfsd;
use crate::recovery::Standing;
use crate::state::NO_CLIENT;

/// Bytes of a process in the name of an owner.
const SVID_BYTES: usize = 4;

/// A lock that is in the way, and its holder.
pub(super) struct HeldLock {
    lock: Lock,
    /// A process of a host, if it is held by NFSv3.
    svid: u32,
    owner: Box<[u8]>,
}

impl HeldLock {
    pub(super) fn holder(&self) -> nlm4_holder<'_> {
        nlm4_holder {
            exclusive: self.lock.is_exclusive,
            svid: self.svid,
            oh: Opaque(&self.owner),
            l_offset: self.lock.range.start,
            l_len: match self.lock.range.length() {
                // To the end, wherever that will be.
                u64::MAX => 0,
                length => length,
            },
        }
    }
}

/// A call of a host about a file.
pub(super) struct Locking<'a> {
    pub(super) nfsd: &'a Nfsd,
    /// Of the host, and ours by which it has come.
    pub(super) peer: IpAddr,
    pub(super) local: Option<SocketAddr>,
    pub(super) key: FileKey,
    pub(super) is_read_only: bool,
    pub(super) now: Nanos,
}

/// What is to be locked.
fn lock_args(lock: &nlm4_lock<'_>, is_exclusive: bool) -> Result<LockArgs, nlm4_stats> {
    let length = match lock.l_len {
        0 => u64::MAX,
        length => length,
    };
    let range = Range::new(lock.l_offset, length).ok_or(nlm4_stats::NLM4_FBIG)?;
    Ok(LockArgs {
        range,
        is_exclusive,
    })
}

/// How an owner is called: its process, and what its host says of it.
fn owner_name(lock: &nlm4_lock<'_>) -> Vec<u8> {
    [&lock.svid.to_be_bytes(), lock.oh.0].concat()
}

/// What a client is to be told in whose way something else stays.
fn stat_of(standing: Standing) -> nlm4_stats {
    match standing {
        Standing::Denied(..) => nlm4_stats::NLM4_DENIED,
        // A delegation comes back: clients ask again after this status alone.
        Standing::Status(nfsstat4::NFS4ERR_DELAY) => nlm4_stats::NLM4_DENIED_GRACE_PERIOD,
        Standing::Status(nfsstat4::NFS4ERR_SHARE_DENIED) => nlm4_stats::NLM4_DENIED,
        Standing::Status(_) => nlm4_stats::NLM4_DENIED_NOLOCKS,
    }
}

impl Locking<'_> {
    /// What is in the way of a lock.
    pub(super) fn test(&self, args: &nlm4_testargs<'_>) -> Result<Option<HeldLock>, nlm4_stats> {
        let wanted = lock_args(&args.alock, args.exclusive)?;
        if self.nfsd.server.is_in_grace(self.now) {
            return Err(nlm4_stats::NLM4_DENIED_GRACE_PERIOD);
        }
        self.break_delegations(args.exclusive)?;
        let client = self.host(args.alock.caller_name.0);
        let name = owner_name(&args.alock);
        let files = &self.nfsd.files;
        while let Err(refused) = files.test_lock(client, &name, self.key, wanted) {
            match self.nfsd.clear(refused, self.now) {
                Ok(()) => {}
                Err(Standing::Denied(lock, client, owner)) => {
                    let is_of_host = files.is_nlm_client(client);
                    let (svid, owner) = match owner.split_first_chunk::<SVID_BYTES>() {
                        Some((svid, oh)) if is_of_host => (u32::from_be_bytes(*svid), oh.into()),
                        _ => (0, owner),
                    };
                    return Ok(Some(HeldLock { lock, svid, owner }));
                }
                Err(standing) => return Err(stat_of(standing)),
            }
        }
        Ok(None)
    }

    /// A client with a delegation has locks that weft does not know: it is to return it. The
    /// file gets none until the lock is surely taken.
    fn break_delegations(&self, is_exclusive: bool) -> Result<(), nlm4_stats> {
        let access = if is_exclusive { WRITE } else { READ };
        self.nfsd.files.rest(self.key, self.now);
        let broken = (self.nfsd).break_delegations(NO_CLIENT, self.key, access, self.now);
        broken.map_err(|_| nlm4_stats::NLM4_DENIED_GRACE_PERIOD)
    }

    /// LOCK; by a host that tells when it starts again (`is_monitored`) or never does.
    pub(super) fn lock(
        &self,
        args: &nlm4_lockargs<'_>,
        is_monitored: bool,
    ) -> Result<nlm4_stats, nlm4_stats> {
        let wanted = lock_args(&args.alock, args.exclusive)?;
        if args.exclusive && self.is_read_only {
            return Err(nlm4_stats::NLM4_ROFS);
        }
        let caller_name = args.alock.caller_name.0;
        self.check_grace(caller_name, args.reclaim)?;
        self.break_delegations(args.exclusive)?;
        let client = self.admit_host(caller_name, args.state, is_monitored)?;
        let name = owner_name(&args.alock);
        let by = NlmOwner {
            client,
            name: &name,
            file: self.key,
        };
        loop {
            let refused = match self.nfsd.files.nlm_lock(by, wanted) {
                Ok(()) => {
                    let handle = args.alock.fh.0;
                    self.nfsd.hosts.confirm(client, &name, handle);
                    self.nfsd.wake(self.now);
                    return Ok(nlm4_stats::NLM4_GRANTED);
                }
                Err(refused) => refused,
            };
            match self.nfsd.clear(refused, self.now) {
                Ok(()) => {}
                Err(Standing::Denied(..)) if args.block && !args.reclaim => {
                    self.wait(by, args, wanted);
                    return Ok(nlm4_stats::NLM4_BLOCKED);
                }
                Err(standing) => return Err(stat_of(standing)),
            }
        }
    }

    /// Its host is called when the lock can be had.
    fn wait(&self, by: NlmOwner<'_>, args: &nlm4_lockargs<'_>, wanted: LockArgs) {
        let waiter = Waiter {
            client: by.client,
            owner: by.name.into(),
            handle: args.alock.fh.0.into(),
        };
        let blocked = Blocked {
            cookie: args.cookie.0.into(),
            caller_name: args.alock.caller_name.0.into(),
            peer: self.peer,
            local: self.local.map(|local| local.ip()),
            file: self.key,
            wanted,
        };
        if self.nfsd.hosts.block(&waiter, blocked) {
            self.nfsd.files.wait_for_lock(self.key, waiter, wanted);
            // It may have become free meanwhile.
            self.nfsd.wake(self.now);
        }
    }

    pub(super) fn cancel(&self, args: &nlm4_cancargs<'_>) -> Result<nlm4_stats, nlm4_stats> {
        let wanted = lock_args(&args.alock, args.exclusive)?;
        let name = owner_name(&args.alock);
        let client = self.host(args.alock.caller_name.0);
        let by = NlmOwner {
            client,
            name: &name,
            file: self.key,
        };
        let was_waiting = self.nfsd.files.nlm_cancel(by, wanted);
        self.nfsd.hosts.unblock(client, &name, args.alock.fh.0);
        Ok(match was_waiting {
            true => nlm4_stats::NLM4_GRANTED,
            false => nlm4_stats::NLM4_DENIED,
        })
    }

    pub(super) fn unlock(&self, args: &nlm4_unlockargs<'_>) -> Result<nlm4_stats, nlm4_stats> {
        let wanted = lock_args(&args.alock, false)?;
        let name = owner_name(&args.alock);
        let by = NlmOwner {
            client: self.host(args.alock.caller_name.0),
            name: &name,
            file: self.key,
        };
        let unlocked = self.nfsd.files.nlm_unlock(by, wanted.range);
        unlocked.map_err(|_| nlm4_stats::NLM4_DENIED_NOLOCKS)?;
        self.nfsd.wake(self.now);
        Ok(nlm4_stats::NLM4_GRANTED)
    }

    pub(super) fn share(&self, args: &nlm4_shareargs<'_>) -> Result<nlm4_stats, nlm4_stats> {
        let share = ShareReservation {
            access: args.share.access as u32,
            deny: args.share.mode as u32,
        };
        let caller_name = args.share.caller_name.0;
        self.check_grace(caller_name, args.reclaim)?;
        let by = NlmOwner {
            client: self.admit_host(caller_name, 0, true)?,
            name: args.share.oh.0,
            file: self.key,
        };
        while let Err(refused) = self.nfsd.files.nlm_share(by, share, self.now) {
            self.nfsd.clear(refused, self.now).map_err(stat_of)?;
        }
        Ok(nlm4_stats::NLM4_GRANTED)
    }

    pub(super) fn unshare(&self, args: &nlm4_shareargs<'_>) -> nlm4_stats {
        self.nfsd.files.nlm_unshare(NlmOwner {
            client: self.host(args.share.caller_name.0),
            name: args.share.oh.0,
            file: self.key,
        });
        nlm4_stats::NLM4_GRANTED
    }

    /// Whether something may be locked now: after a start, what a host had before.
    fn check_grace(&self, caller_name: &[u8], is_reclaim: bool) -> Result<(), nlm4_stats> {
        let server = &self.nfsd.server;
        let may = match (is_reclaim, server.is_in_grace(self.now)) {
            (true, true) => server.awaits_host(self.peer, caller_name),
            (is_reclaim, is_in_grace) => is_reclaim == is_in_grace,
        };
        match may {
            true => Ok(()),
            false => Err(nlm4_stats::NLM4_DENIED_GRACE_PERIOD),
        }
    }

    /// What stands for the host; no id that anything is kept by, of one that has nothing.
    fn host(&self, caller_name: &[u8]) -> u64 {
        let known = self.nfsd.hosts.find(self.peer, caller_name);
        known.unwrap_or(NO_CLIENT)
    }

    /// The host is about to have something.
    fn admit_host(
        &self,
        caller_name: &[u8],
        state: u32,
        is_monitored: bool,
    ) -> Result<u64, nlm4_stats> {
        let host = (self.peer, caller_name);
        let come = self.nfsd.host_came(host, (state, is_monitored), self.now);
        come.ok_or(nlm4_stats::NLM4_DENIED_NOLOCKS)
    }
}
