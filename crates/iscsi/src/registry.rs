//! Which targets there are, where they are reached, and which sessions they have.

mod change;
mod join;
mod login;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use machine::work;
use wire::iscsi::{LogoutReason, LogoutResponseCode};

use crate::config::{Auth, Credentials, Portal, Target};
use crate::login::LoginAnswer;
use crate::negotiated::Negotiated;
use crate::nexus::{InitiatorPort, SessionId, SessionKind};
use crate::text;
use crate::{discovery, keys};

/// Names of removed targets that are remembered, to say so to initiators.
const REMOVED_MAX: usize = 64;

/// What a registry starts with.
#[derive(Clone, Debug, Default)]
pub struct RegistryConfig {
    /// The targets; their names are unique.
    pub targets: Vec<Arc<Target>>,
    /// What initiators prove in discovery sessions.
    pub discovery: Auth,
    /// Where initiators reach the targets; their numbers are unique.
    pub portals: Vec<Portal>,
}

/// How an initiator reached us.
#[derive(Clone, Copy, Debug)]
pub struct Via {
    /// The driver's own name for the connection: comes back when it is to be closed.
    pub connection: u64,
    /// Number of the listener, see [`Portal::number`].
    pub listener: u16,
    /// Our address.
    pub local: SocketAddr,
    /// The initiator's address.
    pub peer: SocketAddr,
}

/// What a change asks of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct SessionChange {
    /// Connections to close.
    pub closing: Vec<u64>,
}

/// A connection is in the full feature phase.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Its session.
    pub session: SessionId,
    /// Target Session Identifying Handle.
    pub tsih: u16,
    /// Connection ID.
    pub cid: u16,
    /// The connection is the first of its session, which begins.
    pub leading: bool,
    /// Another connection of the session: this one goes to its reactor.
    pub lead_connection: Option<u64>,
    /// What was agreed on.
    pub negotiated: Negotiated,
    /// The target as of now; `None` in discovery sessions.
    pub target: Option<Arc<Target>>,
    /// Target Portal Group Tag: the SCSI target port; 0 in discovery sessions.
    pub portal_group_tag: u16,
    /// The SCSI initiator port.
    pub initiator: InitiatorPort,
    /// What the session is for.
    pub kind: SessionKind,
    /// The logical units that the initiator sees; `None` for all.
    pub luns: Option<Vec<u16>>,
    /// The first CmdSN that the initiator uses, if leading.
    pub cmd_sn: u32,
}

/// What is to be done after a login step was answered.
#[derive(Clone, Debug)]
pub enum AfterLogin {
    /// Wait for the next request.
    Continue,
    /// Close the connection once the answer is sent; why, for the log.
    Close(Cow<'static, str>),
    /// The full feature phase begins with the answer.
    FullFeature(Box<Joined>),
}

/// What came of a login step.
#[derive(Clone, Debug)]
pub struct LoginOutcome {
    /// What the initiator is told; not before the connections to be closed are.
    pub answer: LoginAnswer,
    /// What is next.
    pub then: AfterLogin,
    /// Connections of sessions that this one takes the place of.
    pub change: SessionChange,
}

/// A session, as of now.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Its name.
    pub id: SessionId,
    /// Target Session Identifying Handle.
    pub tsih: u16,
    /// What it is for.
    pub kind: SessionKind,
    /// The target; `None` of discovery sessions.
    pub target: Option<Arc<Target>>,
    /// Target Portal Group Tag; 0 of discovery sessions.
    pub portal_group_tag: u16,
    /// The SCSI initiator port.
    pub initiator: InitiatorPort,
    /// What the initiator proved.
    pub proved: Option<Credentials>,
    /// InitiatorAlias.
    pub alias: Option<String>,
    /// What was agreed on with the leading connection.
    pub negotiated: Negotiated,
    /// The logical units that the initiator sees; `None` for all.
    pub luns: Option<Vec<u16>>,
    /// Connections, by Connection ID; never empty.
    pub connections: BTreeMap<u16, Via>,
    /// It is being closed: nothing joins it any more.
    pub has_ended: bool,
}

impl SessionInfo {
    fn names(&self) -> impl Iterator<Item = u64> {
        self.connections.values().map(|via| via.connection)
    }

    /// What it is found by when the same initiator port comes again.
    fn nexus(&self) -> Option<Nexus> {
        let target = self.target.as_ref()?;
        Some(Nexus {
            target: target.name.clone(),
            portal_group_tag: self.portal_group_tag,
            initiator: self.initiator.clone(),
        })
    }
}

/// Both ends of a session, of which there is one at a time (RFC 7143, section
/// 4.4.3: the ISID rule).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nexus {
    target: String,
    portal_group_tag: u16,
    initiator: InitiatorPort,
}

/// What a text request in the full feature phase came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextOutcome {
    /// The whole answer, to be cut at what the initiator takes.
    pub text: Vec<u8>,
    /// MaxRecvDataSegmentLength that the initiator declared anew, bytes: the
    /// connection that it came on sends no more than that from now on.
    pub max_send_data_segment_length: Option<u32>,
}

/// What a logout came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct LogoutOutcome {
    /// What the initiator is told, once `closing` are closed.
    pub response: LogoutResponseCode,
    /// Other connections, to close before the response.
    pub closing: Vec<u64>,
    /// The connection that the request came on closes after the response.
    pub closes_own: bool,
}

/// Which targets there are, where they are reached, and which sessions they have.
/// Bounded by what there is room for: 65,535 sessions, each of as many
/// connections as its target allows.
pub struct Registry {
    targets: BTreeMap<String, Arc<Target>>,
    removed: VecDeque<String>,
    discovery: Auth,
    portals: Vec<Portal>,
    sessions: BTreeMap<SessionId, SessionInfo>,
    /// Sessions that have not ended.
    nexuses: BTreeMap<Nexus, SessionId>,
    /// Sessions that have ended and still have connections.
    ending: BTreeSet<SessionId>,
    /// Which session a connection is of.
    connections: BTreeMap<u64, SessionId>,
    /// All sessions: a handle is not given out again before its session is gone.
    tsihs: BTreeMap<u16, SessionId>,
    id_next: u64,
    tsih_next: u16,
    is_drained: bool,
}

impl Registry {
    /// A registry of `config` without sessions.
    ///
    /// # Panics
    /// On two targets of one name: configuration is checked before.
    pub fn new(config: RegistryConfig) -> Self {
        let mut registry = Registry {
            targets: BTreeMap::new(),
            removed: VecDeque::new(),
            discovery: config.discovery,
            portals: config.portals,
            sessions: BTreeMap::new(),
            nexuses: BTreeMap::new(),
            ending: BTreeSet::new(),
            connections: BTreeMap::new(),
            tsihs: BTreeMap::new(),
            id_next: 0,
            tsih_next: 1,
            is_drained: false,
        };
        for target in config.targets {
            let previous = registry.targets.insert(target.name.clone(), target);
            assert!(previous.is_none(), "two targets of one name");
        }
        registry
    }

    /// The targets, by name.
    pub fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.values()
    }

    /// The target of a normalized name as of now.
    pub fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.targets.get(name)
    }

    /// The sessions, those that end among them.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionInfo> {
        self.sessions.values()
    }

    /// A session, unless it is gone.
    pub fn session(&self, id: SessionId) -> Option<&SessionInfo> {
        self.sessions.get(&id)
    }

    /// Whether a connection is of a session.
    pub fn has(&self, connection: u64) -> bool {
        self.connections.contains_key(&connection)
    }

    /// A Text Request in the full feature phase (RFC 7143, section 11.10):
    /// SendTargets, and what may be declared at any time.
    pub fn text(&self, id: SessionId, via: &Via, request: &[u8]) -> TextOutcome {
        let mut outcome = TextOutcome::default();
        let (Some(session), Some(pairs)) = (self.sessions.get(&id), text::parse(request)) else {
            return outcome;
        };
        // A key may be sent once in a negotiation (RFC 7143, section 6.2); of this one each
        // would be a look at all targets.
        let mut has_asked = false;
        for (key, value) in pairs {
            let out = &mut outcome.text;
            match key {
                "SendTargets" if has_asked => text::push(out, key, text::REJECT),
                "SendTargets" => {
                    has_asked = true;
                    self.send_targets(session, via, value, out);
                }
                "MaxRecvDataSegmentLength" => match keys::declared_length(value) {
                    Some(length) => outcome.max_send_data_segment_length = Some(length),
                    None => text::push(out, key, text::REJECT),
                },
                "InitiatorAlias" | "X#NodeArchitecture" => {}
                _ if keys::is_operational(key) => text::push(out, key, text::REJECT),
                _ => {
                    if let Some(answer) = keys::unknown(value) {
                        text::push(out, key, answer);
                    }
                }
            }
        }
        outcome
    }

    /// SendTargets (RFC 7143, appendix C).
    fn send_targets(&self, session: &SessionInfo, via: &Via, wanted: &str, out: &mut Vec<u8>) {
        let own = session.target.as_ref().map(|target| target.name.as_str());
        let name = crate::normalize(wanted);
        let visible = |target: &&Arc<Target>| match (wanted, own) {
            ("All", _) => true,
            ("", Some(own)) => target.name == own,
            _ => target.name == name,
        };
        let may_ask = match own {
            // Nothing beyond the session's own target is told in it.
            Some(own) => wanted.is_empty() || name == own,
            None => !wanted.is_empty(),
        };
        if !may_ask {
            text::push(out, "SendTargets", text::REJECT);
            return;
        }
        let ports = discovery::ports(&self.portals, via.local);
        let peer = via.peer.ip();
        let initiator = &session.initiator.name;
        for target in self.targets().inspect(|_| work::spend(1)).filter(visible) {
            let entries = target.acl.len() * target.portal_groups.len();
            work::spend(entries as u64);
            let reached = |tag| target.entry_of(initiator, peer, tag).is_some();
            discovery::describe(target, reached, &ports, out);
        }
    }

    /// A Logout Request (RFC 7143, section 11.14) on a connection of a session.
    pub fn logout(
        &mut self,
        id: SessionId,
        connection: u64,
        reason: LogoutReason,
        cid: u16,
    ) -> LogoutOutcome {
        let refused = |response| LogoutOutcome {
            response,
            closing: Vec::new(),
            closes_own: false,
        };
        let Some(session) = self.sessions.get(&id) else {
            return refused(LogoutResponseCode::CleanupFailed);
        };
        let closing: Vec<u64> = match reason {
            LogoutReason::CloseSession => session.names().collect(),
            LogoutReason::CloseConnection => match session.connections.get(&cid) {
                Some(via) => vec![via.connection],
                None => return refused(LogoutResponseCode::CidNotFound),
            },
            // That is ErrorRecoveryLevel 2 (section 7.1.5).
            LogoutReason::RemoveForRecovery => {
                return refused(LogoutResponseCode::RecoveryNotSupported);
            }
        };
        if closing.len() == session.connections.len() {
            self.end(id);
        }
        LogoutOutcome {
            response: LogoutResponseCode::Success,
            closes_own: closing.contains(&connection),
            closing: closing
                .into_iter()
                .filter(|name| *name != connection)
                .collect(),
        }
    }

    /// A connection has ended and nothing of it is in flight any more. Returns
    /// the session that is gone with it. Nothing happens if the connection is in
    /// no session: it never came so far, or another took its place.
    pub fn closed(&mut self, connection: u64) -> Option<SessionId> {
        let id = self.connections.remove(&connection)?;
        let session = self
            .sessions
            .get_mut(&id)
            .expect("lives as its connections");
        session
            .connections
            .retain(|_, via| via.connection != connection);
        if !session.connections.is_empty() {
            return None;
        }
        self.end(id);
        let session = self.sessions.remove(&id).expect("found before");
        self.ending.remove(&id);
        self.tsihs.remove(&session.tsih);
        Some(id)
    }

    /// The driver's name for a connection is another one from now on: it went to
    /// another reactor. False: the connection is in no session, and nothing happens.
    pub fn moved(&mut self, from: u64, to: u64) -> bool {
        let Some(id) = self.connections.remove(&from) else {
            return false;
        };
        self.connections.insert(to, id);
        let session = self
            .sessions
            .get_mut(&id)
            .expect("lives as its connections");
        let of_connection = session.connections.values_mut();
        for via in of_connection.filter(|via| via.connection == from) {
            via.connection = to;
        }
        true
    }

    /// The connections of all sessions with a target.
    pub fn connections_of(&self, target: &str) -> Vec<u64> {
        let is_its = |session: &&SessionInfo| {
            let name = session.target.as_ref().map(|target| target.name.as_str());
            name == Some(target)
        };
        let sessions = self.sessions().filter(is_its);
        sessions.flat_map(SessionInfo::names).collect()
    }

    /// The nexuses with a target whose sessions have not ended.
    fn nexuses_of(&self, target: &str) -> impl Iterator<Item = (&Nexus, SessionId)> {
        let first = Nexus {
            target: target.to_owned(),
            portal_group_tag: 0,
            initiator: InitiatorPort {
                name: String::new(),
                isid: [0; 6],
            },
        };
        let nexuses = self.nexuses.range(first..);
        let nexuses = nexuses.map(|(nexus, id)| (nexus, *id));
        nexuses.take_while(move |(nexus, _)| nexus.target == target)
    }

    /// The session is found no more; returns its connections.
    fn end(&mut self, id: SessionId) -> Vec<u64> {
        let session = self.sessions.get_mut(&id).expect("the caller found it");
        session.has_ended = true;
        self.ending.insert(id);
        if let Some(nexus) = session.nexus()
            && self.nexuses.get(&nexus) == Some(&id)
        {
            self.nexuses.remove(&nexus);
        }
        self.sessions[&id].names().collect()
    }
}
