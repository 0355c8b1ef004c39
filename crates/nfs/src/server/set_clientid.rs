//! Clients of version 4.0, which have no sessions (RFC 7530, sections 9.1,
//! 16.33, 16.34, 16.29).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use machine::Nanos;
use wire::nfs4::{clientid4, nfsstat4, verifier4};

use super::callback_path::CallbackPath;
use super::client::Client;
use super::principal::Principal;
use super::secret::For;
use super::{ClientOwner, Departure, Server};

/// How a client of version 4.0 takes callbacks (`cb_client4`, and `callback_ident`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackAddress {
    /// `cb_program`.
    pub program: u32,
    /// `callback_ident`.
    pub ident: u32,
    /// `cb_location`; `None`: the client is not called there.
    pub to: Option<SocketAddr>,
    /// Of this server, by which the client has come, where it is known.
    pub local: Option<IpAddr>,
}

/// A way to a client, and what its client says to make it count.
#[derive(Debug)]
pub(super) struct ConfirmedBy {
    verifier: verifier4,
    path: Arc<CallbackPath>,
}

/// Of the registry's owners, those of version 4.0.
const WITHOUT_SESSIONS: usize = 0;

impl Server {
    /// SETCLIENTID: the client id, and what SETCLIENTID_CONFIRM is to say.
    /// Whether a client has state, the caller knows.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_CLID_INUSE`]; [`nfsstat4::NFS4ERR_DELAY`] with too
    /// many clients.
    pub fn set_clientid(
        &self,
        owner: ClientOwner<'_>,
        address: CallbackAddress,
        principal: Principal,
        (now, has_state): (Nanos, &dyn Fn(clientid4) -> bool),
    ) -> Result<(clientid4, verifier4), nfsstat4> {
        self.check_awaited(owner.id, principal, now)?;
        let mut registry = self.registry();
        let registry = &mut *registry;
        registry.session_next += 1;
        let verifier = (self.settings.secret).bits(For::Confirm, registry.session_next);
        let verifier = verifier.to_be_bytes();
        let path = Arc::new(CallbackPath::new(address));
        let by = ConfirmedBy { verifier, path };
        let known = registry.owners[WITHOUT_SESSIONS].get(owner.id);
        let unconfirmed = known.and_then(|known| known.unconfirmed);
        let confirmed = known.and_then(|known| known.confirmed);
        if let Some(id) = confirmed {
            let client = &registry.clients[&id].client;
            // Another principal has the name, and something to lose.
            let is_others = client.principal != principal;
            if is_others && has_state(id) && !self.is_expired(client, now) {
                return Err(nfsstat4::NFS4ERR_CLID_INUSE);
            }
        }
        if let Some(id) = unconfirmed {
            registry.remove(id, Departure::Replaced);
        }
        if let Some(id) = confirmed {
            let entry = registry.clients.get_mut(&id).expect("it is confirmed");
            if entry.client.principal != principal {
                registry.remove(id, Departure::Replaced);
            } else if entry.client.verifier == owner.verifier {
                // It is known, and takes callbacks elsewhere.
                entry.callback_next = Some(by);
                return Ok((id, verifier));
            }
        }
        let entry = self.add(registry, 0, owner, principal, now)?;
        entry.callback_next = Some(by);
        Ok((entry.client.id, verifier))
    }

    /// SETCLIENTID_CONFIRM. What its client had before it started again is removed.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_STALE_CLIENTID`], [`nfsstat4::NFS4ERR_CLID_INUSE`].
    pub fn confirm_clientid(
        &self,
        id: clientid4,
        verifier: verifier4,
        principal: Principal,
        now: Nanos,
    ) -> Result<(), nfsstat4> {
        let mut registry = self.registry();
        let entry = registry.clients.get_mut(&id);
        let entry = entry.filter(|entry| entry.client.minor == 0);
        let entry = entry.ok_or(nfsstat4::NFS4ERR_STALE_CLIENTID)?;
        if entry.client.principal != principal {
            return Err(nfsstat4::NFS4ERR_CLID_INUSE);
        }
        let says = |by: &Option<ConfirmedBy>| by.as_ref().is_some_and(|by| by.verifier == verifier);
        if says(&entry.callback_next) {
            entry.callback = entry.callback_next.take();
        } else if !says(&entry.callback) {
            return Err(nfsstat4::NFS4ERR_STALE_CLIENTID);
        }
        entry.client.renew(now);
        registry.confirm(id);
        Ok(())
    }

    /// The way to a client that is confirmed; of version 4.0 alone.
    pub fn callback_path(&self, id: clientid4) -> Option<Arc<CallbackPath>> {
        let registry = self.registry();
        let by = registry.clients.get(&id)?.callback.as_ref();
        by.map(|by| by.path.clone())
    }

    /// RENEW, which whatever such a client does with its state is too.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_STALE_CLIENTID`]; [`nfsstat4::NFS4ERR_EXPIRED`] of
    /// one that was, and has lost its state.
    pub fn renew(&self, id: clientid4, now: Nanos) -> Result<Arc<Client>, nfsstat4> {
        let registry = self.registry();
        let entry = registry.clients.get(&id);
        let is_of_now = id >> 32 == u64::from(self.boot);
        let number = self.settings.secret.gather(For::Client, id as u32);
        let was_given = is_of_now && number != 0 && number <= registry.client_next;
        match entry {
            Some(entry) if entry.is_confirmed && entry.client.minor == 0 => {
                entry.client.renew(now);
                Ok(entry.client.clone())
            }
            None if was_given => Err(nfsstat4::NFS4ERR_EXPIRED),
            _ => Err(nfsstat4::NFS4ERR_STALE_CLIENTID),
        }
    }
}
