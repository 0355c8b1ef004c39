//! What a state id lets its holder do (RFC 8881, sections 8.2 and 9.1.2; RFC
//! 7530, section 9.1).

use nfs::server::files::{FileKey, READ, Special, State, StateKind, WRITE, words};
use wire::nfs4::{nfsstat4, stateid4};

use crate::call::RunningCall;
use crate::known_states::KnownState;
use crate::pseudo::PseudoPlace;

impl RunningCall<'_> {
    /// The state of the calling client that a state id names, whatever its `seqid`
    /// is.
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
            // What follows in the COMPOUND is the same client's.
            run.flow.client = Some(known.client.clone());
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
        // A client that writes may have to read what is around the bytes (RFC 8881,
        // section 9.1.2): the file's permissions decide.
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
        Some(Special::Bypass) if access == READ => {
            break_for(run, key, access)?;
            Ok(false)
        }
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
    // A client that denied it before the restart may not have reclaimed that yet.
    if run.nfsd.server.is_in_grace(run.now) {
        return Err(nfsstat4::NFS4ERR_GRACE);
    }
    while let Err(refused) = run.nfsd.files.check_anonymous(key, access) {
        run.nfsd.clear(refused, run.now)?;
    }
    break_for(run, key, access)?;
    Ok(false)
}

/// Whether no other client has a delegation of a file that is about to be changed;
/// such delegations are recalled.
///
/// # Errors
/// NFS4ERR_DELAY.
#[inline]
pub(crate) fn break_delegations(run: &mut RunningCall<'_>, file: FileKey) -> Result<(), nfsstat4> {
    break_for(run, file, WRITE)
}

/// The same of a file that is about to be changed ([`WRITE`]), or read.
#[inline]
pub(crate) fn break_for(
    run: &mut RunningCall<'_>,
    file: FileKey,
    access: u32,
) -> Result<(), nfsstat4> {
    let client = run.client().map_or(NO_CLIENT, |client| client.id);
    run.nfsd.break_delegations(client, file, access, run.now)
}

/// The id of no client.
pub(crate) const NO_CLIENT: u64 = 0;

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
    nfsd.break_delegations(NO_CLIENT, file, access, now)
}

/// Whether no client has a delegation of a file that NFSv3 is about to change.
///
/// # Errors
/// NFS4ERR_DELAY.
#[inline]
pub(crate) fn break_old(
    nfsd: &crate::Nfsd,
    now: machine::Nanos,
    file: FileKey,
) -> Result<(), nfsstat4> {
    nfsd.break_delegations(NO_CLIENT, file, WRITE, now)
}

impl crate::Nfsd {
    /// The same for a client of NFSv4 by its id, or for NFSv3 ([`NO_CLIENT`]), that is about to
    /// change a file ([`WRITE`]), or to read it. No client is given a delegation either while a
    /// change is under way.
    ///
    /// # Errors
    /// NFS4ERR_DELAY.
    pub(crate) fn break_delegations(
        &self,
        client: u64,
        file: FileKey,
        access: u32,
        now: machine::Nanos,
    ) -> Result<(), nfsstat4> {
        if access & WRITE != 0 {
            self.files.rest(file, now);
        }
        while let Err(refused) = self.files.break_delegations(client, file, access, now) {
            self.clear(refused, now)?;
        }
        Ok(())
    }
}
