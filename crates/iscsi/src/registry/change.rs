//! Targets and access to them change while initiators are logged in.

use std::sync::Arc;

use super::{REMOVED_MAX, Registry, SessionChange, SessionId, SessionInfo};
use crate::config::{Auth, Portal, Target};

impl Registry {
    /// Puts `target` in the place of the one of its name, or adds it. Sessions
    /// go on under what was negotiated; those end whose initiator may not use
    /// the target any more, must prove now what it has not proved, or came
    /// through a portal that is not in the session's portal group any more, and
    /// all of them if logins are redirected from now on.
    pub fn replace_target(&mut self, target: Arc<Target>) -> SessionChange {
        self.removed.retain(|name| *name != target.name);
        let previous = self.targets.insert(target.name.clone(), target.clone());
        let Some(previous) = previous else {
            return SessionChange::default();
        };
        let of_target = self.sessions_of(&target.name);
        let mut change = SessionChange::default();
        for id in of_target {
            let session = self.sessions.get_mut(&id).expect("listed before");
            if may_stay(session, &previous, &target) {
                session.luns = luns(session, &target);
                session.target = Some(target.clone());
            } else {
                change.closing.extend(self.end(id));
            }
        }
        change
    }

    /// Takes a target away: its sessions end. Nothing happens if there is none
    /// of that name.
    pub fn remove_target(&mut self, name: &str) -> SessionChange {
        let mut change = SessionChange::default();
        if self.targets.remove(name).is_none() {
            return change;
        }
        if self.removed.len() == REMOVED_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(name.to_owned());
        for id in self.sessions_of(name) {
            change.closing.extend(self.end(id));
        }
        change
    }

    /// Sets where initiators reach the targets. Sessions whose listener is gone
    /// stay: closing their connections is the driver's choice.
    pub fn set_portals(&mut self, portals: Vec<Portal>) {
        self.portals = portals;
    }

    /// Sets what initiators prove in discovery sessions from now on.
    pub fn set_discovery(&mut self, auth: Auth) {
        self.discovery = auth;
    }

    /// From now on no session begins but for discovery, and none is joined, or they do again.
    pub fn set_drained(&mut self, is_drained: bool) {
        self.is_drained = is_drained;
    }

    /// The sessions with a target that have not ended.
    fn sessions_of(&self, name: &str) -> Vec<SessionId> {
        self.nexuses_of(name).map(|(_, id)| id).collect()
    }
}

/// Whether a session with `previous` is one that `target` would let begin.
fn may_stay(session: &SessionInfo, previous: &Target, target: &Target) -> bool {
    if target.redirect.is_some() {
        return false;
    }
    session.connections.values().all(|via| {
        let group = target.portal_group_of(via.listener);
        let name = &session.initiator.name;
        let (before, now) = (
            previous.entry_of(name, via.peer.ip(), session.portal_group_tag),
            target.entry_of(name, via.peer.ip(), session.portal_group_tag),
        );
        let proved = before.map(|entry| previous.auth_of(entry));
        let wanted = now.map(|entry| target.auth_of(entry));
        let is_proved = wanted.is_some_and(|wanted| {
            wanted.chap.is_none() || proved.is_some_and(|proved| proved.chap == wanted.chap)
        });
        is_proved && group.is_some_and(|group| group.tag == session.portal_group_tag)
    })
}

/// The logical units that a session's initiator sees.
fn luns(session: &SessionInfo, target: &Target) -> Option<Vec<u16>> {
    let via = session.connections.values().next()?;
    let (name, tag) = (&session.initiator.name, session.portal_group_tag);
    let entry = target.entry_of(name, via.peer.ip(), tag)?;
    entry.luns.clone()
}
