//! What becomes of clients and their state as time passes: leases, courtesy,
//! grace, revocation (RFC 8881, sections 8.3, 8.4, 10.4.5).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};

use machine::{Nanos, locked, work};
use nfs::server::ClientOwner;
use nfs::server::files::{FileKey, Removal, State, StateRefused};
use store::fs::FileId;
use wire::nfs4::{
    SEQ4_STATUS_ADMIN_STATE_REVOKED, SEQ4_STATUS_RECALLABLE_STATE_REVOKED, clientid4, nfsstat4,
};

use crate::callback::Errand;
use crate::offload::CopyWork;
use crate::reason::Reason;
use crate::{Exports, Nfsd, Peer};

impl Nfsd {
    /// Time has passed: call it about once a second, in a turn, then take callbacks
    /// and work.
    pub fn on_tick(&self, now: Nanos) {
        self.server.on_tick(now);
        // The grace period ends also if no client calls.
        self.server.is_in_grace(now);
        self.remove_gone_clients();
        let lease = self.settings.server.lease;
        for state in self.files.revoke_overdue(lease, now) {
            if state.holds_file() {
                self.close_later(state.file);
            }
            match self.server.client(state.client) {
                // It has no FREE_STATEID.
                Some(client) if client.minor == 0 => {
                    let _ = self.files.free(&state);
                }
                Some(client) => client.set_status_flags(SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0),
                None => {}
            }
        }
        self.files.retire_owners(lease, now);
        self.retire_hosts(now);
        self.hurry_callbacks(now);
        self.wake(now);
    }

    /// A connection is gone: it carries no callbacks any more.
    pub fn disconnected(&self, peer: &Peer) {
        peer.states.unbind(peer.id);
    }

    /// The administrator takes a client, or a host of NFSv3, away with all that it has. Whether
    /// there was one.
    pub fn evict(&self, client: clientid4) -> bool {
        let was_there = self.server.evict(client) || self.evict_host(client);
        self.remove_gone_clients();
        was_there
    }

    /// Other exports from now on. What clients have in file systems that are
    /// exported no longer is taken away from them.
    pub fn set_exports(&self, exports: Exports) {
        let before = self.exports.load();
        let systems = |exports: &Exports| -> BTreeSet<u64> {
            let all = exports
                .iter()
                .filter_map(|export| Some(export.fs()?.info().instance));
            all.collect()
        };
        let gone = &systems(&before) - &systems(&exports);
        // Before the swap: a client that ends meanwhile may have files open there.
        let mut left = self.left_exports();
        left.retain(|exports| exports.strong_count() > 0);
        left.push(Arc::downgrade(&before));
        drop(left);
        self.exports.swap(exports);
        for system in gone {
            self.remove(self.files.revoke_system(system), vec![before.clone()]);
        }
    }

    fn left_exports(&self) -> MutexGuard<'_, Vec<Weak<Exports>>> {
        locked(&self.left_exports)
    }

    /// Removes what clients had that are gone.
    #[inline]
    pub(crate) fn remove_gone_clients(&self) {
        for client in self.server.take_gone() {
            self.copies.cancel_all(client.id);
            self.forget(client.id);
        }
    }

    /// Removes what a client had that is gone.
    pub(crate) fn forget(&self, client: clientid4) {
        let Some(removal) = self.files.forget_client(client) else {
            return;
        };
        let mut exports = vec![self.exports.load()];
        exports.extend(self.left_exports().iter().filter_map(Weak::upgrade));
        self.remove(removal, exports);
    }

    /// Removes states, as far as the turn has a share for it: the rest without a call.
    /// Files that were open are in file systems of `exports`.
    fn remove(&self, mut removal: Removal, exports: Vec<Arc<Exports>>) {
        if work::is_used_up() || !self.remove_some(&mut removal, &exports) {
            self.work.add(CopyWork::Remove(Box::new(removal), exports));
        }
    }

    /// One step of that; whether it was the last one.
    pub(crate) fn remove_some(&self, removal: &mut Removal, exports: &[Arc<Exports>]) -> bool {
        let removed = self.files.take_away(removal);
        for client in (removed.losers.into_iter()).filter_map(|id| self.server.client(id)) {
            client.set_status_flags(SEQ4_STATUS_ADMIN_STATE_REVOKED, 0);
        }
        for (system, file) in removed.closed {
            let fs = exports.iter().find_map(|e| e.file_system(system));
            if let Some(fs) = fs {
                self.work.add(CopyWork::Close(fs.clone(), FileId(file)));
            }
        }
        removed.is_done
    }

    /// A client may have state from now on, unless it is gone meanwhile.
    pub(crate) fn admit(&self, client: clientid4, is_sequenced: bool) {
        self.files.admit_client(client, is_sequenced);
        if self.server.client(client).is_none() {
            self.forget(client);
        }
    }

    /// From now on no client comes, and nothing is mounted, or they do again. Clients that
    /// there are go on.
    pub fn set_drained(&self, is_drained: bool) {
        self.is_drained.store(is_drained, Ordering::Release);
    }

    /// Whether none comes.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    /// Whether a client may ask for a client id, after a restart or not: what it had before
    /// its last start is gone. Else a client that restarts again and again would have more
    /// than others may. No new one may while the server is drained, and none that no export
    /// lets in: it could take the names of those that may.
    ///
    /// # Errors
    /// NFS4ERR_DELAY, NFS4ERR_ACCESS, NFS4ERR_WRONGSEC.
    pub(crate) fn check_arrival(
        &self,
        peer: &Peer,
        minor: u32,
        owner: &ClientOwner<'_>,
    ) -> Result<(), nfsstat4> {
        if self.is_drained() && !self.server.is_known(minor, owner) {
            self.events.refused(peer, "/", Reason::Drained);
            return Err(nfsstat4::NFS4ERR_DELAY);
        }
        if let Some((path, reason)) = peer.view.bar() {
            self.events.refused(peer, path, reason);
            return Err(match reason {
                Reason::Xprtsec { .. } => nfsstat4::NFS4ERR_WRONGSEC,
                _ => nfsstat4::NFS4ERR_ACCESS,
            });
        }
        let before = self.server.before(minor, owner.id);
        match before.is_some_and(|before| self.files.is_leaving(before)) {
            true => Err(nfsstat4::NFS4ERR_DELAY),
            false => Ok(()),
        }
    }

    /// Closes a file that no open holds any more, as work for later.
    pub(crate) fn close_later(&self, (system, file): FileKey) {
        // States in what is no longer exported are taken away after it has gone.
        let mut exports = vec![self.exports.load()];
        exports.extend(self.left_exports().iter().filter_map(Weak::upgrade));
        if let Some(fs) = exports.iter().find_map(|all| all.file_system(system)) {
            self.work.add(CopyWork::Close(fs.clone(), FileId(file)));
        }
    }

    /// A delegation ends of which its client has not heard and never will.
    pub(crate) fn withdraw(&self, delegation: &State) {
        if self.files.return_delegation(delegation).is_ok() && delegation.holds_file() {
            self.close_later(delegation.file);
        }
    }

    /// Notifies the clients that waited for locks that can be had now.
    #[inline]
    pub(crate) fn wake(&self, now: Nanos) {
        for waiter in self.files.take_woken() {
            match self.files.is_nlm_client(waiter.client) {
                true => self.grant(waiter),
                false => self.post(Errand::NotifyLock(waiter), now),
            }
        }
    }

    /// State of another client is in the way of a call: whether the call is worth trying
    /// again at once, since the other client's lease had run out. Delegations in the way
    /// are recalled.
    ///
    /// # Errors
    /// What is to be answered if it stays in the way.
    pub(crate) fn clear(&self, refused: StateRefused, now: Nanos) -> Result<(), Standing> {
        let mut recalls = Vec::new();
        let (clients, status) = match refused {
            StateRefused::Status(status) => return Err(Standing::Status(status)),
            StateRefused::InTheWay(client, status) => (vec![client], Standing::Status(status)),
            StateRefused::Denied(lock, client, owner) => {
                (vec![client], Standing::Denied(lock, client, owner))
            }
            StateRefused::Recall(wanted, clients) => {
                recalls = wanted;
                (clients, Standing::Status(nfsstat4::NFS4ERR_DELAY))
            }
        };
        let mut gone = clients;
        gone.retain(|client| self.server.expire(*client, now));
        self.remove_gone_clients();
        // Whatever a call of theirs that was under way has come to since.
        gone.iter().for_each(|client| self.forget(*client));
        for recall in recalls {
            self.post(Errand::Recall(recall), now);
        }
        match gone.is_empty() {
            true => Err(status),
            // It takes longer than this turn.
            false if gone.iter().any(|client| self.files.is_leaving(*client)) => {
                Err(Standing::Status(nfsstat4::NFS4ERR_DELAY))
            }
            false => Ok(()),
        }
    }
}

/// What stays in the way.
pub(crate) enum Standing {
    /// This is to be answered.
    Status(nfsstat4),
    /// NFS4ERR_DENIED, and whose lock it is.
    Denied(nfs::server::locks::Lock, clientid4, Box<[u8]>),
}

impl From<Standing> for nfsstat4 {
    fn from(standing: Standing) -> nfsstat4 {
        match standing {
            Standing::Status(status) => status,
            Standing::Denied(..) => nfsstat4::NFS4ERR_DENIED,
        }
    }
}
