//! What a state id lets its holder do (RFC 8881, sections 8.2 and 9.1.2; RFC
//! 7530, section 9.1), and the states that a connection has seen.

use std::sync::{Arc, Weak};

use nfs::server::files::{FileKey, Files, READ, Special, State, StateKind, WRITE, words};
use nfs::server::{Client, ConnectionId, Session};
use wire::nfs4::{nfsstat4, stateid4};

use crate::pseudo::PseudoPlace;
use crate::run::RunningCall;

/// States that a connection remembers at first, and at most; each twice the one
/// before it.
const SEEN_MIN: usize = 8;
const SEEN_MAX: usize = 1024;

/// What a connection has seen: its states, so that reading and writing need ask
/// nobody else for them, and the sessions whose callbacks it carries.
#[derive(Default)]
pub(crate) struct SeenStates {
    states: Vec<Option<KnownState>>,
    bound: Vec<Weak<Session>>,
}

/// A state, and whose it is.
#[derive(Clone)]
pub(crate) struct KnownState {
    pub(crate) state: Arc<State>,
    pub(crate) client: Arc<Client>,
}

impl SeenStates {
    #[inline]
    fn place(&self, client: u32, number: u32) -> usize {
        (number ^ client.wrapping_mul(31)) as usize & self.states.len().wrapping_sub(1)
    }

    /// The state that a state id of this start of the server names.
    #[inline]
    fn find(&self, client: u32, number: u32) -> Option<&KnownState> {
        let known = self.states.get(self.place(client, number))?.as_ref()?;
        let state = &known.state;
        let is_it = state.number == number && state.client as u32 == client;
        (is_it && !state.is_over() && !known.client.is_gone()).then_some(known)
    }

    /// Keeps one more, in place of one that is over or, if there are many, of
    /// another one.
    #[cold]
    fn keep(&mut self, known: KnownState) {
        let (client, number) = (known.state.client as u32, known.state.number);
        while self.states.len() < SEEN_MAX && !self.is_free(client, number) {
            let room = (self.states.len() * 2).max(SEEN_MIN);
            let before = std::mem::take(&mut self.states);
            self.states.resize_with(room, || None);
            for known in before.into_iter().flatten() {
                let at = self.place(known.state.client as u32, known.state.number);
                self.states[at] = Some(known);
            }
        }
        let at = self.place(client, number);
        self.states[at] = Some(known);
    }

    fn is_free(&self, client: u32, number: u32) -> bool {
        let there = self.states.get(self.place(client, number));
        there.is_some_and(|there| there.as_ref().is_none_or(|there| there.state.is_over()))
    }

    /// The connection carries callbacks of this session.
    pub(crate) fn bound(&mut self, session: &Arc<Session>) {
        self.bound.retain(|bound| {
            let bound = bound.upgrade();
            bound.is_some_and(|bound| !bound.is_gone() && !Arc::ptr_eq(&bound, session))
        });
        self.bound.push(Arc::downgrade(session));
    }

    /// The connection is gone.
    pub(crate) fn unbind(&self, connection: ConnectionId) {
        for session in self.bound.iter().filter_map(Weak::upgrade) {
            session.unbind(connection);
        }
    }
}

impl RunningCall<'_> {
    /// The state that a state id names, as it is told to the client that is
    /// calling, whatever its `seqid` is.
    ///
    /// # Errors
    /// NFS4ERR_BAD_STATEID, NFS4ERR_STALE_STATEID, NFS4ERR_EXPIRED.
    pub(crate) fn find_state(&mut self, stateid: &stateid4) -> Result<KnownState, nfsstat4> {
        if Special::of(stateid).is_some() {
            return Err(nfsstat4::NFS4ERR_BAD_STATEID);
        }
        let (boot, of_client, _) = words(stateid);
        let is_of_now = boot == self.nfsd.server.boot();
        let client = match self.minor() {
            0 if !is_of_now => return Err(nfsstat4::NFS4ERR_STALE_STATEID),
            0 => {
                let id = u64::from(boot) << 32 | u64::from(of_client);
                let client = self.nfsd.server.renew(id, self.now);
                let client = client.map_err(|status| match status {
                    nfsstat4::NFS4ERR_EXPIRED => status,
                    _ => nfsstat4::NFS4ERR_BAD_STATEID,
                })?;
                self.flow.client = Some(client.clone());
                client
            }
            // With sessions the start of the server is the session's.
            _ if !is_of_now => return Err(nfsstat4::NFS4ERR_BAD_STATEID),
            _ => self.client().ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?.clone(),
        };
        let state = self.nfsd.files.find(client.id, stateid)?;
        Ok(KnownState { state, client })
    }

    /// The state of the current file that a state id names as it is.
    ///
    /// # Errors
    /// As [`RunningCall::find_state`], and [`State::check`].
    pub(crate) fn state_of(
        &mut self,
        key: FileKey,
        stateid: &stateid4,
    ) -> Result<KnownState, nfsstat4> {
        let known = self.find_state(stateid)?;
        known.state.check(stateid.seqid, self.minor() > 0)?;
        match known.state.file == key {
            true => Ok(known),
            false => Err(nfsstat4::NFS4ERR_BAD_STATEID),
        }
    }
}

/// Whether the current file may be read ([`READ`]) or written with a state id,
/// which may be a special one; then whether it was checked when the file was
/// opened ([`store::fs::Caller::is_open`]).
#[inline]
pub(crate) fn check_io(
    run: &mut RunningCall<'_>,
    named: &stateid4,
    access: u32,
) -> Result<bool, nfsstat4> {
    let stateid = run.stateid(named)?;
    let place = run.current()?;
    check_io_at(run, place, &stateid, access)
}

/// The same of a file at a place.
#[inline]
pub(crate) fn check_io_at(
    run: &mut RunningCall<'_>,
    place: PseudoPlace,
    stateid: &stateid4,
    access: u32,
) -> Result<bool, nfsstat4> {
    let key = run.key(place)?;
    let (boot, client, number) = words(stateid);
    let seen = run.peer.states.find(client, number);
    if let Some(known) = seen
        && boot == run.nfsd.server.boot()
        && (run.minor() == 0 || run.client().is_some_and(|c| c.id == known.client.id))
    {
        if run.minor() == 0 {
            known.client.renew(run.now);
        }
        let user = run.identity().uid;
        return check_state(
            &known.state,
            key,
            (stateid.seqid, run.minor() > 0),
            access,
            user,
        );
    }
    check_unseen(run, key, stateid, access)
}

#[inline]
fn check_state(
    state: &State,
    key: FileKey,
    (seqid, is_session): (u32, bool),
    access: u32,
    user: u32,
) -> Result<bool, nfsstat4> {
    state.check(seqid, is_session)?;
    if state.file != key || state.is_unconfirmed() || state.kind == StateKind::Copy {
        return Err(nfsstat4::NFS4ERR_BAD_STATEID);
    }
    match state.check_access(access) {
        // Another user by the same state is let in by the file, or not.
        Ok(()) => Ok(state.uid == user),
        // Who may write may have to read what is around it (RFC 8881, section
        // 9.1.2): if the file lets him.
        Err(_) if access == READ && state.share().access == WRITE => Ok(false),
        Err(status) => Err(status),
    }
}

#[cold]
fn check_unseen(
    run: &mut RunningCall<'_>,
    key: FileKey,
    stateid: &stateid4,
    access: u32,
) -> Result<bool, nfsstat4> {
    match Special::of(stateid) {
        Some(Special::Anonymous) => anonymous(run, key, access),
        Some(Special::Bypass) if access == READ => Ok(false),
        Some(Special::Bypass) => anonymous(run, key, access),
        Some(_) => Err(nfsstat4::NFS4ERR_BAD_STATEID),
        None => {
            let known = run.find_state(stateid)?;
            let (state, user) = (&known.state, run.identity().uid);
            let named = (stateid.seqid, run.minor() > 0);
            let is_open = check_state(state, key, named, access, user)?;
            run.peer.states.keep(known);
            Ok(is_open)
        }
    }
}

/// Reading or writing without a state.
fn anonymous(run: &mut RunningCall<'_>, key: FileKey, access: u32) -> Result<bool, nfsstat4> {
    // Somebody may have denied it and has not said so again yet.
    if run.nfsd.server.is_in_grace(run.now) {
        return Err(nfsstat4::NFS4ERR_GRACE);
    }
    while let Err(refused) = run.nfsd.files.check_anonymous(key, access) {
        run.nfsd.clear(refused, run.now)?;
    }
    if access & WRITE != 0 {
        run.nfsd.files.rest(key, run.now);
        break_delegations(run, key)?;
    }
    Ok(false)
}

/// Whether nobody else has a delegation of a file that is about to be changed;
/// theirs are recalled.
///
/// # Errors
/// NFS4ERR_DELAY.
#[inline]
pub(crate) fn break_delegations(run: &mut RunningCall<'_>, file: FileKey) -> Result<(), nfsstat4> {
    let files: &Files = &run.nfsd.files;
    if !files.has_delegations() {
        return Ok(());
    }
    let client = run.client().map_or(NOBODY, |client| client.id);
    run.nfsd.break_delegations(client, file, run.now)
}

/// Is no client.
const NOBODY: u64 = 0;

/// Whether NFSv3, which knows no state, may read or write a file: as with the
/// anonymous state id.
///
/// # Errors
/// NFS4ERR_LOCKED; NFS4ERR_DELAY, also while what is denied is not known again
/// yet.
pub(crate) fn check_old(
    nfsd: &crate::Nfsd,
    now: machine::Nanos,
    file: FileKey,
    access: u32,
) -> Result<(), nfsstat4> {
    if nfsd.server.is_in_grace(now) {
        return Err(nfsstat4::NFS4ERR_DELAY);
    }
    while let Err(refused) = nfsd.files.check_anonymous(file, access) {
        nfsd.clear(refused, now)?;
    }
    match access & WRITE {
        0 => Ok(()),
        _ => break_old(nfsd, now, file),
    }
}

/// Whether nobody has a delegation of a file that NFSv3 is about to change.
///
/// # Errors
/// NFS4ERR_DELAY.
#[inline]
pub(crate) fn break_old(
    nfsd: &crate::Nfsd,
    now: machine::Nanos,
    file: FileKey,
) -> Result<(), nfsstat4> {
    nfsd.files.rest(file, now);
    match nfsd.files.has_delegations() {
        false => Ok(()),
        true => nfsd.break_delegations(NOBODY, file, now),
    }
}

impl crate::Nfsd {
    /// The same for who is no client of NFSv4 ([`NOBODY`]), or one of them.
    ///
    /// # Errors
    /// NFS4ERR_DELAY.
    pub(crate) fn break_delegations(
        &self,
        client: u64,
        file: FileKey,
        now: machine::Nanos,
    ) -> Result<(), nfsstat4> {
        while let Err(refused) = self.files.break_delegations(client, file, now) {
            self.clear(refused, now)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs::server::files::{OpenArgs, ShareReservation};

    /// However many states a connection sees, it finds the last ones, and none
    /// that it was not told of or that is over.
    #[test]
    fn a_connection_remembers_what_it_has_seen() {
        let files = Files::new(1, nfs::server::Secret::default(), 0);
        let server = nfs::server::Server::new(nfs::server::ServerSettings::default(), 1, [], 0);
        let owner = nfs::server::ClientOwner {
            verifier: [0; 8],
            id: b"a",
            host: 1,
        };
        let principal = nfs::server::Principal::from(&nfs::connection::Credential::default());
        let address = nfs::server::CallbackAddress {
            program: 0,
            netid: Box::default(),
            address: Box::default(),
            ident: 0,
        };
        let (id, verifier) = server
            .set_clientid(owner, address, principal, (0, &|_| true))
            .unwrap();
        server.confirm_clientid(id, verifier, principal, 0).unwrap();
        let client = server.renew(id, 0).unwrap();
        files.admit(id, true);
        let open = |file| {
            let opened = files.open(&OpenArgs {
                client: id,
                uid: 0,
                owner: b"o",
                file: (1, file),
                share: ShareReservation { access: 1, deny: 0 },
                delegate: None,
                must_confirm: false,
                now: 0,
            });
            opened.unwrap().state
        };
        let mut seen = SeenStates::default();
        assert!(seen.find(id as u32, 1).is_none());
        let states: Vec<_> = (0..3000).map(open).collect();
        for (at, state) in states.iter().enumerate() {
            assert!(seen.find(id as u32, state.number).is_none());
            let (state, client) = (state.clone(), client.clone());
            seen.keep(KnownState { state, client });
            let of_last = at.saturating_sub(SEEN_MAX / 2);
            let found = seen.find(id as u32, states[of_last].number).unwrap();
            assert!(Arc::ptr_eq(&found.state, &states[of_last]));
        }
        assert_eq!(seen.states.len(), SEEN_MAX);
        let last = &states[2999];
        assert!(seen.find(id as u32 + 1, last.number).is_none());
        files.close(last).unwrap();
        assert!(seen.find(id as u32, last.number).is_none());
    }
}
