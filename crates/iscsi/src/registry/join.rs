//! The end of a login: a connection becomes part of a session.

use std::collections::BTreeMap;

use wire::iscsi::LoginStatus;

use super::{Joined, Registry, SessionChange, SessionId, SessionInfo, Via};
use crate::config::{SessionLimits, Target};
use crate::login::{LoginBegun, LoginRefused};

impl Registry {
    /// The session that a connection with a TSIH is to join (section 6.3.1).
    pub(super) fn find_session(&self, begun: &LoginBegun) -> Result<SessionId, LoginRefused> {
        let refused = |status, reason| Err(LoginRefused::because(status, reason));
        let id = self.tsihs.get(&begun.request.tsih.get()).copied();
        let target = begun.target.as_ref().map(|target| &target.name);
        let found = id.map(|id| (id, &self.sessions[&id]));
        let found = found.filter(|(_, session)| {
            !session.has_ended
                && session.initiator == begun.initiator
                && session.target.as_ref().map(|target| &target.name) == target
        });
        let Some((id, session)) = found else {
            return refused(
                LoginStatus::NoSession,
                "it has no such session (TSIH) with the target, or none any more, as after a \
                 restart of weft: if it does not begin a new one by itself, log it out and in",
            );
        };
        // A name alone does not admit to a session: each connection proves what the
        // leading one had to prove, and sees what that one sees.
        let is_equal =
            session.luns == begun.luns && session.proved.as_ref() == begun.security.credentials();
        if !is_equal {
            return refused(
                LoginStatus::CannotIncludeInSession,
                "its other address is to prove something else, or sees other LUNs, than the \
                 session that it joins: let one `[[iscsi.target.initiator]]` name all its addresses",
            );
        }
        // A session does not span portal groups (section 4.4.1).
        if session.portal_group_tag != begun.portal_group_tag {
            return refused(
                LoginStatus::CannotIncludeInSession,
                "the session that it joins is of another portal group: put the listeners into one \
                 of the target's `portal_groups`, or let it begin a session for each",
            );
        }
        let is_known = session.connections.contains_key(&begun.request.cid.get());
        let connections_max = usize::from(session.negotiated.max_connections);
        if !is_known && session.connections.len() >= connections_max {
            return refused(
                LoginStatus::TooManyConnections,
                "its session has as many connections as both ends allow (MaxConnections): raise \
                 `session_connections_max` and its own limit, or let it log in with fewer",
            );
        }
        if is_known && session.connections.len() == 1 {
            // The session ends with it (section 7.1.5 is for level 2): a refused
            // initiator begins a new one, which replaces it as the initiator port.
            return refused(
                LoginStatus::NoSession,
                "it replaces the only connection of its session (TSIH), which ends with that: if \
                 it does not begin a new one by itself, log it out and in",
            );
        }
        Ok(id)
    }

    /// The login has come to its end.
    pub(super) fn join(
        &mut self,
        begun: &LoginBegun,
        via: &Via,
    ) -> Result<(Joined, SessionChange), LoginRefused> {
        if !begun.negotiation.is_acceptable() {
            return Err(LoginRefused::error(
                "HeaderDigest and DataDigest are not negotiated: the target requires CRC32C by \
                 `header_digest` or `data_digest`, so the initiator has to go through the \
                 operational stage",
            ));
        }
        match begun.joining {
            Some(_) => self.join_known(begun, via),
            None => Ok(self.join_new(begun, via)?),
        }
    }

    /// A further connection of a session, or one in the place of one that the
    /// initiator has lost (connection reinstatement, section 6.3.4).
    fn join_known(
        &mut self,
        begun: &LoginBegun,
        via: &Via,
    ) -> Result<(Joined, SessionChange), LoginRefused> {
        // The session may have ended or grown since the first request.
        let id = self.find_session(begun)?;
        let session = self.sessions.get_mut(&id).expect("found before");
        let (cid, tsih) = (begun.request.cid.get(), session.tsih);
        let replaced = session.connections.remove(&cid);
        let lead_connection = session.names().next();
        session.connections.insert(cid, *via);
        self.connections.insert(via.connection, id);
        if let Some(replaced) = &replaced {
            self.connections.remove(&replaced.connection);
        }
        let change = SessionChange {
            closing: replaced.iter().map(|via| via.connection).collect(),
        };
        let joined = Joined {
            leading: false,
            lead_connection,
            ..joined(id, begun, tsih)
        };
        Ok((joined, change))
    }

    /// A new session, in the place of one that the same initiator port has
    /// (session reinstatement, section 6.3.5).
    fn join_new(
        &mut self,
        begun: &LoginBegun,
        via: &Via,
    ) -> Result<(Joined, SessionChange), LoginStatus> {
        let nexus = self.nexus(begun);
        let previous = nexus
            .as_ref()
            .and_then(|nexus| self.nexuses.get(nexus))
            .copied();
        if let Some(target) = &begun.target
            && self
                .limit_reached(target, &begun.initiator.name, previous)
                .is_some()
        {
            return Err(LoginStatus::OutOfResources);
        }
        let tsih = self.free_tsih().ok_or(LoginStatus::OutOfResources)?;
        if let Some(id) = previous {
            self.end(id);
        }
        let closing = self.ended_before(begun);
        let id = SessionId(self.id_next);
        self.id_next += 1;
        if let Some(nexus) = nexus {
            self.nexuses.insert(nexus, id);
        }
        self.tsihs.insert(tsih, id);
        self.connections.insert(via.connection, id);
        let session = SessionInfo {
            id,
            tsih,
            kind: begun.kind,
            target: begun.target.clone(),
            portal_group_tag: begun.portal_group_tag,
            initiator: begun.initiator.clone(),
            proved: begun.security.credentials().cloned(),
            alias: begun.alias.clone(),
            negotiated: begun.negotiation.agreed(),
            luns: begun.luns.clone(),
            connections: BTreeMap::from([(begun.request.cid.get(), *via)]),
            has_ended: false,
        };
        self.sessions.insert(id, session);
        Ok((joined(id, begun, tsih), SessionChange { closing }))
    }

    /// The limit that is in the way of one more session of an initiator with a
    /// target, and its value: for the log.
    pub fn limit_in_the_way(&self, target: &str, initiator: &str) -> Option<(&'static str, u16)> {
        self.limit_reached(self.targets.get(target)?, initiator, None)
    }

    /// The same of one in the place of `previous`.
    fn limit_reached(
        &self,
        target: &Target,
        initiator: &str,
        previous: Option<SessionId>,
    ) -> Option<(&'static str, u16)> {
        let SessionLimits {
            sessions_max,
            sessions_of_initiator_max,
            ..
        } = target.limits;
        let others = || {
            let others = self.nexuses_of(&target.name);
            others.filter(|(_, id)| Some(*id) != previous)
        };
        let own = others().filter(|(nexus, _)| nexus.initiator.name == initiator);
        if own.count() >= usize::from(sessions_of_initiator_max) {
            return Some(("sessions_of_initiator_max", sessions_of_initiator_max));
        }
        let is_full = others().count() >= usize::from(sessions_max);
        is_full.then_some(("sessions_max", sessions_max))
    }

    /// The connections of sessions with the same ends that are over and not gone:
    /// what they have under way must end first.
    fn ended_before(&self, begun: &LoginBegun) -> Vec<u64> {
        let Some(target) = &begun.target else {
            return Vec::new();
        };
        let is_its = |session: &&SessionInfo| {
            let its = session.target.as_ref();
            session.portal_group_tag == begun.portal_group_tag
                && session.initiator == begun.initiator
                && its.is_some_and(|its| its.name == target.name)
        };
        let sessions = self.ending.iter().map(|id| &self.sessions[id]);
        let sessions = sessions.filter(is_its);
        sessions.flat_map(SessionInfo::names).collect()
    }

    /// The next free handle, in turn; 0 is none.
    fn free_tsih(&mut self) -> Option<u16> {
        let start = self.tsih_next.max(1);
        let free = (start..=u16::MAX)
            .chain(1..start)
            .find(|tsih| !self.tsihs.contains_key(tsih))?;
        self.tsih_next = free.wrapping_add(1);
        Some(free)
    }
}

/// A connection that leads its session.
fn joined(session: SessionId, begun: &LoginBegun, tsih: u16) -> Joined {
    Joined {
        session,
        tsih,
        cid: begun.request.cid.get(),
        leading: true,
        lead_connection: None,
        negotiated: begun.negotiation.agreed(),
        target: begun.target.clone(),
        portal_group_tag: begun.portal_group_tag,
        initiator: begun.initiator.clone(),
        kind: begun.kind,
        luns: begun.luns.clone(),
        cmd_sn: begun.request.cmd_sn.get(),
    }
}
