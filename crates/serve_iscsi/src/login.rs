//! The beginning and the end of connections: login, the way to the reactor of
//! the session, text, logout.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use engine::hosts::{HostName, HostPlace};
use engine::{
    About, Connection as _, ConnectionId, ConnectionRef, Has, Orphans as _, Refusal, Remedy, Scope,
    Shard, Shared, Via,
};
use iscsi::accepted::{AcceptedConnection as Transport, DetachedConnection};
use iscsi::target::{ConnectionRole, Done};
use iscsi::{AfterLogin, Joined, LoginAnswer, LoginOutcome, LogoutOutcome, SessionKind};
use link::{CommandMemory, Stream};
use machine::{Machine, Nanos, Tag};
use reactor::{ConnectedSocket, Driver, must_fill_random};
use store::reservation::Registrant;
use wire::iscsi::{AsyncEvent, LoginStatus, LogoutReason};

use super::served::ServedTarget;
use super::session::IscsiSession;
use super::{Bound, IscsiConnection, LOGIN_REFUSED, Local, OwnMail, via};

/// How long an initiator may take to answer a NOP-In.
const NOP_TIMEOUT: Nanos = 10_000_000_000;
/// How often an initiator in a discovery session is asked whether it lives.
const DISCOVERY_NOP_INTERVAL: Nanos = 30_000_000_000;
/// So long an initiator may take to log out that was asked to, seconds.
const LEAVE_S: u16 = 3;

/// What other connections must end before.
pub(super) enum WaitingLogin {
    Login(LoginOutcome),
    Logout(LogoutOutcome),
    /// A way to the reactor of the session; nothing may be under way here.
    Move(LoginAnswer, Box<Joined>),
    /// It has come to the reactor of the session.
    Arrived(LoginAnswer, Box<Joined>),
}

/// A connection on its way to the reactor of its session.
pub struct Handover {
    connected: ConnectedSocket,
    /// What it was on the reactor that it leaves.
    pub(crate) via: Via,
    place: HostPlace,
    machine: DetachedConnection,
    answer: LoginAnswer,
    joined: Box<Joined>,
}

impl IscsiConnection {
    /// A login step is complete.
    pub(super) fn login<D: Driver>(&mut self, driver: &mut D) {
        let step = self.core.link.machine.take_login();
        let via = via(&self.core.via);
        let outcome =
            (self.service.registry()).login(&mut self.login, &step, &via, &mut must_fill_random);
        let closing = outcome.change.closing.clone();
        self.waiting = Some(Box::new(WaitingLogin::Login(outcome)));
        self.close_first(closing, driver);
    }

    /// Goes on when these connections are gone, whatever their volumes do.
    fn close_first<D: Driver>(&mut self, closing: Vec<u64>, driver: &mut D) {
        if closing.is_empty() {
            return self.resume_login(driver);
        }
        let refs = closing.iter().map(|packed| ConnectionRef::unpack(*packed));
        let scope = Scope::Connections(refs.collect());
        closing
            .iter()
            .for_each(|packed| self.core.shared.close(*packed));
        let me = ConnectionRef::unpack(self.core.via.connection);
        let service = self.service.clone();
        self.core.shared.fence(scope, move || {
            service.send(me.shard as usize, OwnMail::GoOn(me));
        });
    }

    /// What was waited for is over.
    pub(crate) fn resume_login<D: Driver>(&mut self, driver: &mut D) {
        if !self.core.is_open() {
            return;
        }
        match self.waiting.take().map(|waiting| *waiting) {
            Some(WaitingLogin::Login(outcome)) => self.login_goes_on(outcome),
            Some(WaitingLogin::Logout(outcome)) => {
                let LogoutOutcome {
                    response,
                    closes_own,
                    ..
                } = outcome;
                if closes_own {
                    self.end_own_tasks(driver);
                }
                (self.core.link.machine).logout_answer(response, closes_own, (0, 0));
            }
            waiting => self.waiting = waiting.map(Box::new),
        }
    }

    /// It is on the reactor of its session, and known there.
    pub(crate) fn arrived(&mut self) {
        match self.waiting.take().map(|waiting| *waiting) {
            Some(WaitingLogin::Arrived(answer, joined)) => self.join(answer, &joined),
            _ => unreachable!("it came to join a session"),
        }
    }

    fn login_goes_on(&mut self, outcome: LoginOutcome) {
        let LoginOutcome { answer, then, .. } = outcome;
        match then {
            AfterLogin::Continue => self.core.link.machine.login_answer(answer),
            AfterLogin::Close(reason) => {
                self.note_login_refused(answer.status(), &reason);
                self.core.link.machine.login_answer(answer);
            }
            AfterLogin::FullFeature(joined) => {
                self.count_rdma();
                let lead = joined.lead_connection.map(ConnectionRef::unpack);
                if lead.is_some_and(|lead| lead.shard as usize != self.core.shard()) {
                    self.waiting = Some(Box::new(WaitingLogin::Move(answer, joined)));
                } else {
                    self.join(answer, &joined);
                }
            }
        }
    }

    fn note_login_refused(&self, status: LoginStatus, reason: &str) {
        let names = self.login.target().zip(self.login.initiator());
        let names = names.filter(|_| status == LoginStatus::OutOfResources);
        let limit = names.and_then(|(target, initiator)| {
            self.service.registry().limit_in_the_way(target, initiator)
        });
        let reason = match limit {
            Some((limit, max)) => format!("{limit} = {max} is reached"),
            None => reason.to_owned(),
        };
        self.core.shared.refusals.note(Refusal {
            peer: Some(self.core.via.peer),
            host: self.login.initiator(),
            target: self.login.target(),
            remedy: match status {
                LoginStatus::AuthorizationFailure => Remedy::ListPeer,
                LoginStatus::AuthenticationFailure => Remedy::Secret,
                _ => Remedy::None,
            },
            ..Refusal::new(LOGIN_REFUSED, &reason)
        });
    }

    /// The last step of its login is answered: commands may come.
    fn join(&mut self, answer: LoginAnswer, joined: &Joined) {
        let Some(session) = self.session_of(joined) else {
            tracing::debug!(peer = %self.core.via.peer, "the session ended before it was joined");
            return self.is_lost = true;
        };
        let (id, initiator) = (self.core.id(), &joined.initiator.name);
        let target = joined.target.as_deref();
        if self
            .core
            .shared
            .refusals
            .tells_arrival(Some(self.core.via.peer.ip()))
        {
            tracing::info!(event = "connected", peer = %self.core.via.peer, initiator,
                target = target.map(|t| &*t.name), tsih = joined.tsih, cid = joined.cid, "logged in");
        }
        session.borrow_mut().connections.push((joined.cid, id));
        self.core
            .set_host(HostName::Said("iSCSI initiator", initiator.clone()));
        let nop_interval = match target {
            Some(target) => u64::from(target.limits.nop_in_interval_ms) * 1_000_000,
            None => DISCOVERY_NOP_INTERVAL,
        };
        let role = ConnectionRole {
            session: session.borrow().window.clone(),
            negotiated: joined.negotiated,
            cid: joined.cid,
            nop_interval,
            nop_timeout: NOP_TIMEOUT.min(nop_interval.max(1)),
        };
        self.core.link.machine.attach(role);
        self.core.link.machine.login_answer(answer);
        let served = session.borrow().served().clone();
        self.bound = Some(Bound {
            session,
            served,
            kind: joined.kind,
            tsih: joined.tsih,
            cid: joined.cid,
        });
    }

    /// The session that a connection joins, or begins. `None`: it is over.
    fn session_of(&self, joined: &Joined) -> Option<Rc<RefCell<IscsiSession>>> {
        let local: &Local = &self.local;
        if !joined.leading {
            return local.session(joined.session);
        }
        let (name, depth) = match joined.target.as_deref() {
            Some(target) => (target.name.as_str(), target.limits.queue_depth),
            None => ("", 1),
        };
        let mask = joined.luns.as_deref().map(Arc::from);
        let (served, reached) = {
            let places = self.service.places();
            let served = places.served(name, joined.portal_group_tag, mask);
            (served, places.reached(name))
        };
        let is_discovery = joined.kind == SessionKind::Discovery;
        let window = iscsi::Session::new(joined.cmd_sn, depth.max(1), is_discovery);
        let window = Rc::new(RefCell::new(window));
        let mut session = IscsiSession::new(joined.session, &joined.initiator, served, window);
        for (lun, attention) in reached {
            session.post(attention, |known| known.unit.lun == lun);
        }
        let session = Rc::new(RefCell::new(session));
        local.insert(joined.session, &session);
        Some(session)
    }

    /// The end of a turn: goes to the reactor of its session, if that is to be
    /// and nothing is under way here.
    pub(super) fn move_to_session_reactor<D: Driver>(&mut self, driver: &mut D) {
        if !matches!(self.waiting.as_deref(), Some(WaitingLogin::Move(..))) {
            return;
        }
        let is_idle = !self.core.link.stream.is_sending() && !self.core.link.machine.has_transmit();
        if !is_idle || !self.core.link.is_drained() {
            // Bytes behind its last login request break the rules.
            self.is_lost |= !self.core.link.is_drained();
            return;
        }
        let Some(connected) = self.core.link.stream.leave(driver) else {
            return;
        };
        let waiting = self.waiting.take().map(|waiting| *waiting);
        let Some(WaitingLogin::Move(answer, joined)) = waiting else {
            unreachable!("looked at above");
        };
        let lead = joined.lead_connection.expect("it goes to another one");
        let shard = ConnectionRef::unpack(lead).shard as usize;
        let handover = Handover {
            connected,
            via: self.core.via,
            place: self.core.place.take().expect("it moves once"),
            machine: self.core.link.machine.detach(),
            answer,
            joined,
        };
        self.has_moved = true;
        self.core.on_closed();
        self.service.send(shard, OwnMail::Join(Box::new(handover)));
    }

    /// A text of the full feature phase is complete.
    pub(super) fn text(&mut self) {
        let request = self.core.link.machine.take_text();
        let id = self.session().id;
        let outcome = (self.service.registry()).text(id, &via(&self.core.via), &request.text);
        let length = outcome.max_send_data_segment_length;
        self.core.link.machine.text_answer(outcome.text, length);
    }

    /// A NOP-Out with data, which comes back if there is memory for it.
    pub(super) fn ping(&mut self, tag: Tag, len: u32) {
        let fits = len <= mem::STAGE_BYTES;
        match (fits.then(|| self.core.pool.get_to_finish(len))).flatten() {
            Some(buf) => {
                self.core.link.set_data(tag, CommandMemory::owned(buf));
                self.core.link.machine.prepared(tag, len);
            }
            None => self.core.link.machine.complete(tag, Done::default()),
        }
    }

    /// The initiator logs out.
    pub(super) fn logout<D: Driver>(&mut self, reason: LogoutReason, cid: u16, driver: &mut D) {
        let id = self.session().id;
        let outcome = (self.service.registry()).logout(id, self.core.via.connection, reason, cid);
        let closing = outcome.closing.clone();
        if reason == LogoutReason::CloseSession {
            // Others may reserve as soon as the logout is answered.
            self.release_all();
        }
        tracing::debug!(peer = %self.core.via.peer, %reason, cid, response = %outcome.response, "logout");
        self.waiting = Some(Box::new(WaitingLogin::Logout(outcome)));
        self.close_first(closing, driver);
    }

    /// The connection is about to be logged out: what it has under way is orphaned,
    /// and what waits for memory or for its turn will not begin.
    fn end_own_tasks<D: Driver>(&mut self, driver: &mut D) {
        self.core.waiting.clear();
        self.orphan_all(driver);
        self.leave_tasks();
    }

    /// The initiator is told that the target ends the session; then it ends.
    pub(crate) fn dismiss_initiator<D: Driver>(&mut self, driver: &mut D) {
        if self.bound.is_none() || !self.core.is_open() {
            return self.close(driver);
        }
        if !std::mem::replace(&mut self.is_lost, true) {
            let event = AsyncEvent::DropAllConnections;
            self.core.link.machine.send_async(event, 0, [0, 0, 0], &[]);
        }
    }

    /// The initiator is asked to log out, and has some time for it.
    pub(crate) fn ask_to_leave<D: Driver>(&mut self, driver: &mut D) {
        let is_normal = (self.bound.as_ref()).is_some_and(|b| b.kind == SessionKind::Normal);
        if !is_normal || !self.core.is_open() {
            return self.dismiss_initiator(driver);
        }
        if self.leaves_at.is_none() {
            let event = AsyncEvent::LogoutRequest;
            let seconds = [0, 0, LEAVE_S];
            self.core.link.machine.send_async(event, 0, seconds, &[]);
            self.leaves_at = Some(driver.now() + u64::from(LEAVE_S) * 1_000_000_000);
        }
    }

    /// Closes all connections of its session.
    pub(super) fn end_session(&mut self) {
        let Some(bound) = &self.bound else { return };
        let shard = self.core.shard() as u32;
        for (_, id) in &bound.session.borrow().connections {
            self.core
                .shared
                .close(ConnectionRef { shard, id: *id }.pack());
        }
    }

    /// Nothing of the connection is left.
    pub(super) fn leave(&mut self) {
        if self.has_moved {
            return;
        }
        let ended = self.service.registry().closed(self.core.via.connection);
        let me = self.core.id();
        self.leave_tasks();
        let Some(bound) = self.bound.take() else {
            return;
        };
        let mut session = bound.session.borrow_mut();
        session.forget(me);
        if ended.is_none() {
            return;
        }
        // The nexus is lost, and with it what SCSI-2's RESERVE took.
        release_units(&self.core.shared, session.served(), session.registrant());
    }

    /// The session is about to end.
    fn release_all(&self) {
        let session = self.session();
        release_units(&self.core.shared, session.served(), session.registrant());
    }
}

impl Handover {
    /// The connection on its new reactor, as what it is now: still in its login,
    /// see [`IscsiConnection::arrived`].
    fn arrive<D: Driver>(
        self,
        id: ConnectionId,
        via: Via,
        local: &Rc<Local>,
        driver: &mut D,
    ) -> std::io::Result<IscsiConnection> {
        let stream = Stream::new(driver.add_socket(self.connected)?, id.tokens());
        let machine = Transport::resume(self.machine);
        let came = (via, self.place);
        let mut connection =
            IscsiConnection::new(local, machine, (id, stream), came, driver.pool());
        connection.waiting = Some(Box::new(WaitingLogin::Arrived(self.answer, self.joined)));
        Ok(connection)
    }
}

/// Takes a connection that belongs to a session of this reactor.
pub(super) fn join<S: Has<IscsiConnection>, D: Driver>(
    shard: &mut Shard<S>,
    handover: Handover,
    driver: &mut D,
) {
    shard.expect();
    let local: Rc<Local> = shard.server.local().clone();
    let Via {
        connection: from,
        local: address,
        peer,
        listener,
    } = handover.via;
    let session = handover.joined.session;
    let mut to = None;
    let open = |server: &S, id, via_of: &dyn Fn(SocketAddr) -> Via, driver: &mut D| {
        let via = via_of(address);
        to = Some(via.connection);
        let connection = handover.arrive(id, via, server.local(), driver)?;
        Ok(S::any(connection))
    };
    let id = shard.insert_connection(driver, (peer, listener), open);
    let Some(id) = id else {
        local.service.registry().closed(from);
        return;
    };
    let to = to.expect("it was opened");
    let is_over = {
        let mut registry = local.service.registry();
        // Meanwhile another may have taken its place in the session.
        let has_place = registry.moved(from, to);
        let session = registry.session(session);
        !has_place || session.is_none_or(|session| session.has_ended)
    };
    let is_late = shard.is_late(listener) || is_over;
    shard.with_of(driver, id, |c: &mut IscsiConnection, d| match is_late {
        false => c.arrived(),
        true => c.close(d),
    });
}

/// The nexus is lost: what RESERVE took for it is free again. On the blocking worker,
/// since a change may be under way.
fn release_units(shared: &Shared, served: &ServedTarget, registrant: &Registrant) {
    for lun in served.places.iter().flatten() {
        let (volume, registrant) = (lun.volume.clone(), registrant.clone());
        shared.blocking(About::state(&volume), move || {
            volume.reservations().reset(Some(&registrant));
        });
    }
}
