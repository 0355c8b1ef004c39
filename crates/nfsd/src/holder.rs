//! What a file is like at the client that has a write delegation of it (RFC 8881, section
//! 10.4.3): others that look at it are told what that client says.

use machine::Nanos;
use nfs::server::files::{DelegationHolder, FileKey, HolderView, READ, words};
use store::fs::{Attr, SetAttr, SetTime, Time};
use wire::nfs4::{clientid4, nfs_argop4, nfsstat4, nfstime4};

use crate::Nfsd;
use crate::call::RunningCall;
use crate::callback::Errand;
use crate::names::time_of;
use crate::pseudo::PseudoPlace;
use crate::state::NO_CLIENT;

/// A client that has not answered in this time is to return its delegation. What waits for it
/// waits as if for memory, and a call does so twice as long at most, whatever it looks at: less
/// than what counts as a shortage of memory.
const PATIENCE: Nanos = 200_000_000;

/// What is known of a file.
pub(crate) enum Heard {
    /// No other client writes it unseen.
    Nothing,
    /// One does, and says this.
    View(HolderView),
    /// One does, and is being asked.
    NotYet,
}

impl Nfsd {
    /// What the client says, other than `client`, that has a write delegation of a file; to one
    /// that has waited for it since then.
    ///
    /// # Errors
    /// NFS4ERR_DELAY where it cannot say, and is to return the delegation.
    pub(crate) fn hear_holder(
        &self,
        client: clientid4,
        file: FileKey,
        (since, now): (Nanos, Nanos),
    ) -> Result<Heard, nfsstat4> {
        match self.files.ask_holder(file, client, (since, now)) {
            DelegationHolder::NoOther => Ok(Heard::Nothing),
            DelegationHolder::Says(view) => Ok(Heard::View(view)),
            DelegationHolder::Ask(question) => {
                self.post(Errand::Getattr(question), now);
                Ok(Heard::NotYet)
            }
            DelegationHolder::Asked(at)
                if now.saturating_sub(at) < PATIENCE
                    && now.saturating_sub(since) < 2 * PATIENCE =>
            {
                Ok(Heard::NotYet)
            }
            DelegationHolder::Asked(_) | DelegationHolder::Silent => {
                self.break_delegations(client, file, READ, now)?;
                Ok(Heard::Nothing)
            }
        }
    }
}

/// What is set of a file before others look at it, of what the client with a write delegation
/// says.
pub(crate) struct ToShow {
    pub(crate) set: SetAttr,
    /// That client has changed the file: it is changed now for others, and anew each time that
    /// they look, for that client says no more (RFC 8881, section 10.4.3). Else it is times
    /// alone, which need not be set where that fails.
    pub(crate) is_modified: bool,
}

/// What is to be set of a file with these attributes; `None`: nothing. Its times are taken as
/// those of the user that the delegation was given to ([`SetTime::Delegated`]).
pub(crate) fn to_show(view: &HolderView, attr: &Attr, now: Time) -> Option<ToShow> {
    let is_modified = view.is_modified(attr.size);
    if view.state.is_over() && !is_modified {
        return None;
    }
    let is_owner = view.state.uid == 0 || view.state.uid == attr.uid;
    let taken = |said: nfstime4, known: Time| {
        let said = time_of(said);
        match () {
            // What is no time yet is no other time at the next look.
            () if said > now && !is_modified => known,
            () if is_owner => said.min(now),
            () => said.min(now).max(known),
        }
    };
    let known = (attr.accessed, attr.modified);
    let times = view.times;
    let times =
        times.map(|(accessed, modified)| (taken(accessed, known.0), taken(modified, known.1)));
    let is_shown = is_modified || times.is_some_and(|times| times != known);
    is_shown.then(|| ToShow {
        set: SetAttr {
            accessed: times.map(|(accessed, _)| SetTime::Taken(accessed)),
            modified: Some(times.map_or(SetTime::Server, |(_, modified)| SetTime::Taken(modified))),
            ..SetAttr::default()
        },
        is_modified,
    })
}

impl RunningCall<'_> {
    /// Whether what the client says that has a write delegation of the current file is known,
    /// if there is one other than the caller: in `flow.view`. Else the operation waits.
    ///
    /// # Errors
    /// As [`Nfsd::hear_holder`].
    #[inline]
    pub(crate) fn hear_holder(&mut self) -> Result<bool, nfsstat4> {
        match self.nfsd.files.has_delegations() {
            true => self.ask_holder(),
            false => Ok(true),
        }
    }

    fn ask_holder(&mut self) -> Result<bool, nfsstat4> {
        let place = self.current()?;
        if let PseudoPlace::Pseudo(_) = place {
            return Ok(true);
        }
        let key = self.key(place)?;
        let client = self.client().map(|client| client.id);
        let client = client.or_else(|| self.client_behind()).unwrap_or(NO_CLIENT);
        let now = self.now;
        let since = *self.flow.looks_since.get_or_insert(now);
        match self.nfsd.hear_holder(client, key, (since, now))? {
            Heard::NotYet => return Ok(false),
            Heard::View(view) => self.flow.view = Some(view),
            Heard::Nothing => {}
        }
        Ok(true)
    }

    /// The client of version 4.0 whose state the next operation ends. Linux asks for attributes
    /// just in front of CLOSE and DELEGRETURN: it could not return a delegation if that waited
    /// for the delegation to be returned.
    fn client_behind(&self) -> Option<clientid4> {
        if self.minor() > 0 {
            return None;
        }
        let call = self.link.machine.call(self.flow.tag);
        let stateid = match self.flow.compound.following(self.args, &call)? {
            nfs_argop4::OP_DELEGRETURN(args) => args.deleg_stateid,
            nfs_argop4::OP_CLOSE(args) => args.open_stateid,
            _ => return None,
        };
        let (boot, of_client, _) = words(&stateid);
        let client = u64::from(boot) << 32 | u64::from(of_client);
        self.nfsd.files.find(client, &stateid).ok()?;
        Some(client)
    }
}
