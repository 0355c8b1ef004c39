//! Clients and sessions come and go (RFC 8881, sections 18.34 to 18.37, 18.50,
//! 18.51).

use std::cmp::Reverse;
use std::sync::Arc;

use machine::{Nanos, work};
use wire::nfs4::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CREATE_SESSION4_FLAG_CONN_RDMA,
    CREATE_SESSION4_FLAG_PERSIST, CREATE_SESSION4args, EXCHGID4_FLAG_BIND_PRINC_STATEID,
    EXCHGID4_FLAG_SUPP_FENCE_OPS, EXCHGID4_FLAG_SUPP_MOVED_MIGR, EXCHGID4_FLAG_SUPP_MOVED_REFER,
    EXCHGID4_FLAG_UPD_CONFIRMED_REC_A, EXCHGID4_FLAG_USE_NON_PNFS, EXCHGID4_FLAG_USE_PNFS_DS,
    EXCHGID4_FLAG_USE_PNFS_MDS, channel_attrs4, clientid4, nfsstat4, sessionid4,
};

use super::callback_way::{CallbackWay, KnownContext};
use super::client::Client;
use super::principal::Principal;
use super::secret::For;
use super::session::{Channel, Session};
use super::{
    ClientEntry, ClientEvent, ClientOwner, Departure, Exchanged, Record, RecordedClient, Registry,
    Server,
};

/// What a client may set in EXCHANGE_ID.
const EXCHANGE_FLAGS: u32 = EXCHGID4_FLAG_SUPP_MOVED_REFER
    | EXCHGID4_FLAG_SUPP_MOVED_MIGR
    | EXCHGID4_FLAG_SUPP_FENCE_OPS
    | EXCHGID4_FLAG_BIND_PRINC_STATEID
    | EXCHGID4_FLAG_USE_NON_PNFS
    | EXCHGID4_FLAG_USE_PNFS_MDS
    | EXCHGID4_FLAG_USE_PNFS_DS
    | EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;
/// What it may set in CREATE_SESSION.
const SESSION_FLAGS: u32 = CREATE_SESSION4_FLAG_PERSIST
    | CREATE_SESSION4_FLAG_CONN_BACK_CHAN
    | CREATE_SESSION4_FLAG_CONN_RDMA;
/// Of the registry's owners, those with sessions.
const SESSIONS: usize = 1;
/// Less than this holds no SEQUENCE and one operation.
const CHANNEL_BYTES_MIN: u32 = 256;
/// Slots of a session where hardly anything is left for the answers in them.
const SLOTS_MIN: u32 = 4;
/// CB_SEQUENCE, and what is to be said.
const BACK_OPS_MIN: u32 = 2;
/// Bytes and slots of callbacks: they are small and few.
const BACK: Channel = Channel {
    request_bytes_max: 4096,
    response_bytes_max: 4096,
    cached_bytes_max: 0,
    ops_max: 4,
    slots: 4,
};

impl Registry {
    fn end_session(&mut self, id: &sessionid4) {
        if let Some(session) = self.sessions.remove(id) {
            session.end();
            self.cached_bytes -= session.cached_bytes_max();
        }
    }

    /// Removes a client with its sessions; its state is removed with
    /// [`super::Changes::gone`].
    pub(super) fn remove(&mut self, id: clientid4, why: Departure) {
        let Some(entry) = self.clients.remove(&id) else {
            return;
        };
        work::spend(work::OPERATION_UNITS);
        entry.client.leave();
        for id in &entry.sessions {
            self.end_session(id);
        }
        if let Some(count) = self.hosts.get_mut(&entry.client.host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&entry.client.host);
            }
        }
        let name = &entry.client.owner;
        let owners = &mut self.owners[entry.client.owners()];
        let owner = owners.get_mut(name).expect("every client has one");
        owner.confirmed = owner.confirmed.filter(|&other| other != id);
        owner.unconfirmed = owner.unconfirmed.filter(|&other| other != id);
        if owner.confirmed.is_none() && owner.unconfirmed.is_none() {
            owners.remove(name);
        }
        // Another client of the principal may go by the same name: it started again, or is of
        // the other kind. Then the record is its.
        let heirs = self
            .owners
            .iter()
            .filter_map(|owners| owners.get(name)?.confirmed);
        let heirs: Vec<_> = heirs
            .filter_map(|id| self.clients.get(&id))
            .filter(|heir| heir.client.principal == entry.client.principal)
            .collect();
        let (is_recorded, is_last) = (entry.client.is_recorded(), heirs.is_empty());
        if is_recorded {
            heirs.iter().for_each(|heir| heir.client.take_record());
        }
        // A client that never was on record need not be taken off, which others would
        // have to wait for.
        let was_on_record = is_recorded || entry.client.may_reclaim();
        if entry.is_confirmed && was_on_record && is_last {
            self.changes
                .record(Record::Gone(RecordedClient::of(&entry.client)));
        }
        if entry.is_confirmed {
            self.changes.events.push(ClientEvent {
                client: entry.client.clone(),
                gone: Some(why),
            });
            self.changes.gone.push(entry.client);
        }
    }
}

impl Server {
    /// EXCHANGE_ID of a minor version (section 18.35.4, whose cases are numbered
    /// here). Whether a client has state of files, the caller knows.
    ///
    /// # Errors
    /// Its status.
    pub fn exchange_id(
        &self,
        minor: u32,
        owner: ClientOwner<'_>,
        flags: u32,
        principal: Principal,
        (now, has_state): (Nanos, &dyn Fn(clientid4) -> bool),
    ) -> Result<Exchanged, nfsstat4> {
        let later = match minor {
            1 => EXCHGID4_FLAG_SUPP_FENCE_OPS,
            _ => 0,
        };
        if flags & (!EXCHANGE_FLAGS | later) != 0 {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        let is_update = flags & EXCHGID4_FLAG_UPD_CONFIRMED_REC_A != 0;
        if !is_update {
            self.check_awaited(owner.id, principal, now)?;
        }
        let mut registry = self.registry();
        let known = registry.owners[SESSIONS].get(owner.id);
        let unconfirmed = known.and_then(|known| known.unconfirmed);
        let confirmed = known.and_then(|known| known.confirmed);
        let confirmed = confirmed.map(|id| &registry.clients[&id]);
        match (confirmed, is_update) {
            // 7: there is nothing to update.
            (None, true) => return Err(nfsstat4::NFS4ERR_NOENT),
            (Some(entry), true) => {
                let client = &entry.client;
                client.check_protection(principal)?;
                return match () {
                    // 9, 8, 6
                    () if client.principal != principal => Err(nfsstat4::NFS4ERR_PERM),
                    () if client.verifier != owner.verifier => Err(nfsstat4::NFS4ERR_NOT_SAME),
                    () => Ok(entry.exchanged()),
                };
            }
            (Some(entry), false) if entry.client.principal != principal => {
                // 3: another principal has the name, and something to lose, or not.
                let id = entry.client.id;
                let is_in_use = !entry.sessions.is_empty() || has_state(id);
                if is_in_use && !self.is_expired(&entry.client, now) {
                    return Err(nfsstat4::NFS4ERR_CLID_INUSE);
                }
                registry.remove(id, Departure::Replaced);
            }
            // 2: it is known.
            (Some(entry), false) if entry.client.verifier == owner.verifier => {
                entry.client.check_protection(principal)?;
                entry.client.renew(now);
                return Ok(entry.exchanged());
            }
            // 5: it has started again; the old record goes when this one is
            // confirmed. 1: it is new.
            (Some(entry), false) => entry.client.check_protection(principal)?,
            (None, false) => {}
        }
        // 4: an unconfirmed record is worth nothing.
        if let Some(id) = unconfirmed {
            registry.remove(id, Departure::Replaced);
        }
        let entry = self.add(&mut registry, minor, owner, principal, now)?;
        Ok(entry.exchanged())
    }

    /// Whether a principal may have this name while clients reclaim: that of another which may
    /// have state since before the restart is its own until then, as if its lease had not run
    /// out.
    ///
    /// # Errors
    /// NFS4ERR_CLID_INUSE.
    pub(super) fn check_awaited(
        &self,
        name: &[u8],
        principal: Principal,
        now: Nanos,
    ) -> Result<(), nfsstat4> {
        match self.is_in_grace(now) && self.grace.awaits_another(name, principal) {
            true => Err(nfsstat4::NFS4ERR_CLID_INUSE),
            false => Ok(()),
        }
    }

    /// One more client, not confirmed yet.
    pub(super) fn add<'r>(
        &self,
        registry: &'r mut Registry,
        minor: u32,
        owner: ClientOwner<'_>,
        principal: Principal,
        now: Nanos,
    ) -> Result<&'r mut ClientEntry, nfsstat4> {
        let of_host = registry.hosts.get(&owner.host).copied().unwrap_or(0);
        // A client that has started again takes the place of what it was.
        let names = &registry.owners[usize::from(minor > 0)];
        let is_back = names.get(owner.id).is_some_and(|o| o.confirmed.is_some());
        let has_many = of_host >= self.settings.clients_of_host_max && !is_back;
        if has_many && !self.make_room(registry, Some(owner.host), now) {
            registry.refused = (registry.refused.0 + 1, owner.host);
            return Err(nfsstat4::NFS4ERR_DELAY);
        }
        let is_full = registry.clients.len() >= self.settings.clients_max;
        if is_full && !self.make_room(registry, None, now) {
            return Err(nfsstat4::NFS4ERR_DELAY);
        }
        registry.client_next += 1;
        let low = (self.settings.secret).permute(For::Client, registry.client_next);
        let id = u64::from(self.boot) << 32 | u64::from(low);
        *registry.hosts.entry(owner.host).or_default() += 1;
        let client = Client::new((id, minor), &owner, principal, now);
        if self.grace.awaits(owner.id, principal) {
            client.let_reclaim();
        }
        let owners = &mut registry.owners[client.owners()];
        owners.entry(owner.id.into()).or_default().unconfirmed = Some(id);
        Ok(registry.clients.entry(id).or_insert(ClientEntry {
            client: Arc::new(client),
            is_confirmed: false,
            before: None,
            sequenceid: 0,
            last: None,
            sessions: Vec::new(),
            callback: None,
            callback_next: None,
        }))
    }

    /// Slots for one more session: no session takes more than a part of what is
    /// left for answers that are kept, and each has some.
    fn slots_left(&self, cached_bytes: u64, fore: &Channel) -> u32 {
        let left = self.settings.cached_bytes_max.saturating_sub(cached_bytes);
        let slots = left / 16 / u64::from(fore.cached_bytes_max.max(1));
        (slots.min(u64::from(u32::MAX)) as u32).max(SLOTS_MIN)
    }

    /// Removes the client that has been silent longest, of a host if one is named: of
    /// those that were never confirmed, which costs them nothing but to ask again, else
    /// of those whose lease has run out.
    fn make_room(&self, registry: &mut Registry, host: Option<u64>, now: Nanos) -> bool {
        let may_go = |entry: &&ClientEntry| {
            host.is_none_or(|host| entry.client.host == host)
                && (!entry.is_confirmed || self.is_expired(&entry.client, now))
        };
        work::spend(registry.clients.len() as u64);
        let may_go = registry.clients.values().filter(may_go);
        let longest =
            may_go.min_by_key(|entry| (entry.is_confirmed, Reverse(entry.client.silent(now))));
        let Some(id) = longest.map(|entry| entry.client.id) else {
            return false;
        };
        registry.remove(id, Departure::Expired);
        true
    }

    /// CREATE_SESSION (section 18.36). A session that was made already, if this
    /// is asked again.
    ///
    /// # Errors
    /// Its status.
    pub fn create_session(
        &self,
        args: &CREATE_SESSION4args<'_>,
        principal: Principal,
        (now, is_known): (Nanos, KnownContext<'_>),
    ) -> Result<Arc<Session>, nfsstat4> {
        let mut registry = self.registry();
        let registry = &mut *registry;
        let entry = registry.clients.get_mut(&args.csa_clientid);
        let entry = entry.filter(|entry| entry.client.minor > 0);
        let entry = entry.ok_or(nfsstat4::NFS4ERR_STALE_CLIENTID)?;
        if args.csa_sequence == entry.sequenceid
            && let Some(last) = &entry.last
        {
            entry.client.check_protection(principal)?;
            return Ok(last.clone());
        }
        if args.csa_sequence != entry.sequenceid.wrapping_add(1) {
            return Err(nfsstat4::NFS4ERR_SEQ_MISORDERED);
        }
        if !entry.is_confirmed && entry.client.principal != principal {
            return Err(nfsstat4::NFS4ERR_CLID_INUSE);
        }
        entry.client.check_protection(principal)?;
        if args.csa_flags & !SESSION_FLAGS != 0 {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        let mut fore = negotiate(&args.csa_fore_chan_attrs, &self.settings.fore)?;
        fore.slots = fore
            .slots
            .min(self.slots_left(registry.cached_bytes, &fore));
        // A connection may be bound to it later.
        let back = negotiate(&args.csa_back_chan_attrs, &BACK)?;
        if back.ops_max < BACK_OPS_MIN {
            return Err(nfsstat4::NFS4ERR_TOOSMALL);
        }
        if entry.sessions.len() >= self.settings.sessions_max {
            return Err(nfsstat4::NFS4ERR_NOSPC);
        }
        let way = CallbackWay::first(args.csa_sec_parms.iter(), is_known)?;
        registry.session_next += 1;
        let number = (self.settings.secret).bits(For::Session, registry.session_next);
        let id = session_id(args.csa_clientid, number);
        let flags = args.csa_flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        // Root, where it names no way.
        let way = way.unwrap_or(CallbackWay::Sys(0, 0));
        let made = (flags, (args.csa_cb_program, way));
        let session = Arc::new(Session::new(id, entry.client.clone(), (fore, back), made));
        registry.cached_bytes += session.cached_bytes_max();
        entry.sequenceid = args.csa_sequence;
        entry.last = Some(session.clone());
        entry.sessions.push(id);
        entry.client.renew(now);
        registry.sessions.insert(id, session.clone());
        registry.confirm(args.csa_clientid);
        Ok(session)
    }

    /// DESTROY_SESSION (section 18.37).
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BADSESSION`]; [`nfsstat4::NFS4ERR_WRONG_CRED`] for a
    /// principal that may not.
    pub fn destroy_session(&self, id: &sessionid4, principal: Principal) -> Result<(), nfsstat4> {
        let mut registry = self.registry();
        let registry = &mut *registry;
        let session = registry.sessions.get(id);
        let session = session.ok_or(nfsstat4::NFS4ERR_BADSESSION)?;
        if session.client.principal != principal {
            return Err(nfsstat4::NFS4ERR_WRONG_CRED);
        }
        session.client.check_protection(principal)?;
        if let Some(entry) = registry.clients.get_mut(&session.client.id) {
            entry.sessions.retain(|other| other != id);
        }
        registry.end_session(id);
        Ok(())
    }

    /// DESTROY_CLIENTID (section 18.50). Whether the client has state, the
    /// caller knows.
    ///
    /// # Errors
    /// Its status.
    pub fn destroy_clientid(
        &self,
        id: clientid4,
        has_state: bool,
        principal: Principal,
    ) -> Result<(), nfsstat4> {
        let mut registry = self.registry();
        let entry = registry.clients.get(&id);
        let entry = entry.ok_or(nfsstat4::NFS4ERR_STALE_CLIENTID)?;
        entry.client.check_protection(principal)?;
        if has_state || !entry.sessions.is_empty() {
            return Err(nfsstat4::NFS4ERR_CLIENTID_BUSY);
        }
        registry.remove(id, Departure::Destroyed);
        Ok(())
    }

    /// RECLAIM_COMPLETE of everything (section 18.51). Its record is to be
    /// durable before it is answered ([`Server::has_unsaved`]).
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_COMPLETE_ALREADY`].
    pub fn reclaim_complete(&self, client: &Client) -> Result<(), nfsstat4> {
        if !client.reclaimed() {
            return Err(nfsstat4::NFS4ERR_COMPLETE_ALREADY);
        }
        self.record(client);
        self.grace.done(&client.owner, client.principal);
        Ok(())
    }

    /// A client is about to have state that it may reclaim after a restart: one
    /// with sessions when it has said RECLAIM_COMPLETE, one of version 4.0 with
    /// its first OPEN. Nothing if it is known.
    pub fn record(&self, client: &Client) {
        if client.is_recorded() || !client.recorded() {
            return;
        }
        let mut registry = self.registry();
        registry
            .changes
            .record(Record::Kept(RecordedClient::of(client)));
        self.grace.recorded(&client.owner, client.principal);
    }

    /// Whether a client may take state now, as one that it had before a restart
    /// (`is_reclaim`) or not (RFC 8881, section 8.4.2.1; RFC 7530, section
    /// 9.6.2).
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_GRACE`], [`nfsstat4::NFS4ERR_NO_GRACE`],
    /// [`nfsstat4::NFS4ERR_RECLAIM_BAD`].
    pub fn check_grace(
        &self,
        client: &Client,
        is_reclaim: bool,
        now: Nanos,
    ) -> Result<(), nfsstat4> {
        let has_reclaimed = client.minor > 0 && client.has_reclaimed();
        match (is_reclaim, self.is_in_grace(now)) {
            (true, false) => Err(nfsstat4::NFS4ERR_NO_GRACE),
            (true, true) if has_reclaimed => Err(nfsstat4::NFS4ERR_NO_GRACE),
            (true, true) if !client.may_reclaim() => Err(nfsstat4::NFS4ERR_RECLAIM_BAD),
            (false, true) => Err(nfsstat4::NFS4ERR_GRACE),
            // It must say first that it has nothing (more) to reclaim.
            (false, false) if client.minor > 0 && !has_reclaimed => Err(nfsstat4::NFS4ERR_GRACE),
            _ => Ok(()),
        }
    }

    /// Whether clients reclaim, and others must wait (section 8.4.2.1). Once they
    /// do no longer, clients that have not come back are off the record.
    #[inline]
    pub fn is_in_grace(&self, now: Nanos) -> bool {
        if self.grace.is_over() {
            return false;
        }
        let is_on = !self.grace.has_run_out(now);
        if !is_on {
            self.end_grace();
        }
        is_on
    }

    /// Whether no client may reclaim any more, as far as that was looked at.
    pub fn grace_has_ended(&self) -> bool {
        self.grace.is_over()
    }

    /// Grace is over, by its time or because the administrator says so: a client
    /// that has not reclaimed what it had may not do so after the next start either
    /// (section 8.4.3).
    #[cold]
    pub fn end_grace(&self) {
        let mut registry = self.registry();
        for client in self.grace.end() {
            registry.changes.record(Record::Gone(client));
        }
    }
}

impl Registry {
    /// A client has a session: it is there, and what it was before is not.
    pub(super) fn confirm(&mut self, id: clientid4) {
        let entry = self.clients.get_mut(&id).expect("it is there");
        if entry.is_confirmed {
            return;
        }
        entry.is_confirmed = true;
        self.changes.events.push(ClientEvent {
            client: entry.client.clone(),
            gone: None,
        });
        let name = entry.client.owner.clone();
        let owners = &mut self.owners[entry.client.owners()];
        let owner = owners.entry(name).or_default();
        let before = owner.confirmed.replace(id);
        owner.unconfirmed = None;
        entry.before = before;
        if let Some(before) = before {
            self.remove(before, Departure::Restarted);
        }
    }
}

impl ClientEntry {
    fn exchanged(&self) -> Exchanged {
        Exchanged {
            clientid: self.client.id,
            sequenceid: self.sequenceid.wrapping_add(1),
            is_confirmed: self.is_confirmed,
            protection: self.client.protection,
        }
    }
}

/// What is agreed on: no more than the client asks for, nor than there may be.
fn negotiate(asked: &channel_attrs4<'_>, most: &Channel) -> Result<Channel, nfsstat4> {
    let smallest = asked.ca_maxrequestsize.min(asked.ca_maxresponsesize);
    if smallest < CHANNEL_BYTES_MIN || asked.ca_maxoperations == 0 || asked.ca_maxrequests == 0 {
        return Err(nfsstat4::NFS4ERR_TOOSMALL);
    }
    Ok(Channel {
        request_bytes_max: asked.ca_maxrequestsize.min(most.request_bytes_max),
        response_bytes_max: asked.ca_maxresponsesize.min(most.response_bytes_max),
        cached_bytes_max: asked.ca_maxresponsesize_cached.min(most.cached_bytes_max),
        ops_max: asked.ca_maxoperations.min(most.ops_max),
        slots: asked.ca_maxrequests.min(most.slots),
    })
}

fn session_id(client: clientid4, number: u64) -> sessionid4 {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&client.to_be_bytes());
    id[8..].copy_from_slice(&number.to_be_bytes());
    id
}
