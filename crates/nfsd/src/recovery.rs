//! What becomes of clients and their state as time passes: leases, courtesy,
//! grace, revocation (RFC 8881, sections 8.3, 8.4, 10.4.5).

use std::sync::Arc;

use machine::Nanos;
use nfs::server::files::{FileKey, Refused, Removal};
use store::fs::{FileId, FileSystem};
use wire::nfs4::{
    SEQ4_STATUS_ADMIN_STATE_REVOKED, SEQ4_STATUS_RECALLABLE_STATE_REVOKED, clientid4, nfsstat4,
};

use crate::callback::Errand;
use crate::offload::Work;
use crate::{Exports, Nfsd, Peer};

impl Nfsd {
    /// Time has passed: call it about once a second, in a turn, then take callbacks
    /// and work.
    pub fn on_tick(&self, now: Nanos) {
        self.server.on_tick(now);
        // Grace ends also where nobody asks.
        self.server.is_in_grace(now);
        self.bury();
        let lease = self.settings.server.lease;
        for state in self.files.revoke_overdue(lease, now) {
            if let Some(client) = self.server.client(state.client) {
                client.set_status_flags(SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
            }
        }
        self.files.retire_owners(lease, now);
        self.hurry_callbacks(now);
        self.wake(now);
    }

    /// A connection is gone: it carries no callbacks any more.
    pub fn disconnected(&self, peer: &Peer) {
        peer.states.unbind(peer.id);
    }

    /// The administrator takes a client away with all that it has. Whether
    /// there was one.
    pub fn evict(&self, client: clientid4) -> bool {
        let was_there = self.server.evict(client);
        self.bury();
        was_there
    }

    /// Other exports from now on. What clients have in file systems that are
    /// exported no longer is taken away from them.
    pub fn set_exports(&self, exports: Exports) {
        let before = self.exports.load();
        let kept: Vec<u64> = exports.iter().map(|e| e.fs().info().instance).collect();
        self.exports.swap(exports);
        for gone in before.iter() {
            let fs = gone.fs();
            let system = fs.info().instance;
            if kept.contains(&system) {
                continue;
            }
            self.remove(self.files.revoke_system(system), Some(fs.clone()));
        }
    }

    /// Clients are gone: so is what they had.
    #[inline]
    pub(crate) fn bury(&self) {
        for client in self.server.take_gone() {
            self.copies.cancel_all(client.id);
            self.forget(client.id);
        }
    }

    /// A client is gone: so is what it had.
    pub(crate) fn forget(&self, client: clientid4) {
        if let Some(removal) = self.files.forget_client(client) {
            self.remove(removal, None);
        }
    }

    /// States go, as far as the turn has a share for it: the rest goes on without a call.
    /// Files that were open are in `fs`, if that is exported no longer.
    fn remove(&self, mut removal: Removal, fs: Option<Arc<dyn FileSystem>>) {
        if !self.remove_some(&mut removal, fs.as_ref()) {
            self.work.add(Work::Remove(Box::new(removal), fs));
        }
    }

    /// One step of that; whether it was the last one.
    pub(crate) fn remove_some(
        &self,
        removal: &mut Removal,
        fs: Option<&Arc<dyn FileSystem>>,
    ) -> bool {
        let removed = self.files.take_away(removal);
        for client in (removed.losers.into_iter()).filter_map(|id| self.server.client(id)) {
            client.set_status_flags(SEQ4_STATUS_ADMIN_STATE_REVOKED, 0);
        }
        for (system, file) in removed.closed {
            match fs {
                Some(fs) => self.work.add(Work::Close(fs.clone(), FileId(file))),
                None => self.close_later((system, file)),
            }
        }
        removed.is_done
    }

    /// A client may have state from now on, unless it is gone meanwhile.
    pub(crate) fn admit(&self, client: clientid4, is_sequenced: bool) {
        self.files.admit(client, is_sequenced);
        if self.server.client(client).is_none() {
            self.forget(client);
        }
    }

    /// An open that nobody has any more.
    pub(crate) fn close_later(&self, (system, file): FileKey) {
        if let Some(fs) = self.file_system(system) {
            self.work.add(Work::Close(fs, FileId(file)));
        }
    }

    /// A file system that is exported.
    fn file_system(&self, system: u64) -> Option<Arc<dyn FileSystem>> {
        let exports = self.exports.load();
        let mut all = exports.iter();
        let export = all.find(|export| export.fs().info().instance == system)?;
        Some(export.fs().clone())
    }

    /// Who waited for a lock that can be had is told.
    #[inline]
    pub(crate) fn wake(&self, now: Nanos) {
        for waiter in self.files.take_woken() {
            self.post(Errand::NotifyLock(waiter), now);
        }
    }

    /// Something is in the way of somebody: whether it is worth asking again at
    /// once, since it was of a client whose lease has run out. Delegations of
    /// others are recalled.
    ///
    /// # Errors
    /// What is to be answered if it stays in the way.
    pub(crate) fn clear(&self, refused: Refused, now: Nanos) -> Result<(), Standing> {
        let mut recalls = Vec::new();
        let (clients, status) = match refused {
            Refused::Status(status) => return Err(Standing::Status(status)),
            Refused::InTheWay(client, status) => (vec![client], Standing::Status(status)),
            Refused::Denied(lock, client, owner) => {
                (vec![client], Standing::Denied(lock, client, owner))
            }
            Refused::Recall(wanted, clients) => {
                recalls = wanted;
                (clients, Standing::Status(nfsstat4::NFS4ERR_DELAY))
            }
        };
        let mut gone = clients;
        gone.retain(|client| self.server.expire(*client, now));
        self.bury();
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
