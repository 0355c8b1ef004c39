//! Fabrics and Admin commands of a connection, executed by the registry of
//! controllers.

use std::sync::{Arc, Mutex};

use auth::psk::Derivation;
use engine::hosts::HostName;
use engine::{
    About, Connection as _, ConnectionRef, Elsewhere as _, Refusal, RefusalKind, Remedy, Scope,
};
use faults::Fault;
use link::CommandMemory;
use machine::{Machine as _, Nanos, Tag};
use nvmf::command::Command;
use nvmf::dhchap::controller::Authentication;
use nvmf::queue::{ControllerEnd as _, Done, InBandAuthentication, RefusedCommand, Role};
use nvmf::{
    AdminOutcome, Connected, ControllerId, Env, ErrorNote, IoCounters, LbaStatus, LbaStatusKind,
    Registry, Reply, WriteProtect,
};
use reactor::Driver;
use store::{EraseError, Volume};
use wire::nvme::fabrics::CONNECT_DATA_BYTES;
use wire::nvme::{ConnectCommand, Direction, NSID_ALL, Sqe, Status};

use super::reservation::Rights;
use super::{
    Bound, CONNECT_REFUSED, CONTROLLER_ENDED, CommandAnswer, Later, NvmeConnection, OwnMail,
    Service, via,
};

/// Most data of an Admin command in either direction, bytes.
const ADMIN_DATA_BYTES_MAX: u32 = 64 << 10;

impl NvmeConnection {
    /// Executes anything but an I/O command; false while memory is short.
    pub(crate) fn execute_admin<D: Driver>(
        &mut self,
        tag: Tag,
        command: Command,
        driver: &mut D,
    ) -> bool {
        let service = self.service.clone();
        let mut registry = service.registry();
        let now = driver.now();
        let reply = match command {
            Command::Connect(command) => Some(self.connect(tag, &command, &mut registry, now)),
            Command::PropertyGet(get) => Some(registry.property_get(self.controller(), get)),
            Command::PropertySet(set) => Some(registry.property_set(self.controller(), set, now)),
            Command::Disconnect => Some(Reply::done(0)),
            Command::Admin(sqe) => {
                let Some(reply) = self.admin(tag, &sqe, &mut registry, driver) else {
                    return false;
                };
                reply
            }
            Command::Io(_)
            | Command::Reservation { .. }
            | Command::AuthenticationSend
            | Command::AuthenticationReceive { .. } => {
                unreachable!("they are executed elsewhere")
            }
        };
        if let Some(reply) = reply {
            self.reply(tag, reply);
        }
        self.settle(&mut registry);
        true
    }

    pub(crate) fn controller(&self) -> ControllerId {
        let bound = self.bound.as_ref();
        bound.expect("commands come after Connect").controller
    }

    pub(crate) fn reply(&mut self, tag: Tag, reply: Reply) {
        if !reply.status.is_success() {
            tracing::debug!(peer = %self.core.via.peer, status = %reply.status, "command refused");
        }
        self.core.link.machine.complete(
            tag,
            Done {
                status: reply.status,
                result: reply.result,
                data_len: reply.data_len,
            },
        );
    }

    /// What a change of the controller brings about: held event requests
    /// complete, connections of its queues are closed.
    fn settle(&mut self, registry: &mut Registry) {
        let Some(bound) = &self.bound else { return };
        let Some(controller) = registry.controller(bound.controller) else {
            return;
        };
        for connection in controller.take_closing() {
            self.core.shared.close(connection);
        }
        if bound.qid == 0 {
            self.keep_alive_at = controller.deadline();
            while let Some((tag, reply)) = controller.take_event() {
                self.core.link.machine.complete(
                    tag,
                    Done {
                        status: reply.status,
                        result: reply.result,
                        data_len: 0,
                    },
                );
            }
        }
    }

    fn connect(
        &mut self,
        tag: Tag,
        command: &ConnectCommand,
        registry: &mut Registry,
        now: Nanos,
    ) -> Reply {
        let range = self.core.link.range(tag).expect("Connect data has arrived");
        let mut data = [0; CONNECT_DATA_BYTES];
        let data = &mut data[..range.len().min(CONNECT_DATA_BYTES as u32) as usize];
        mem::copy_out(range.slice(0, data.len() as u32), data);
        let link = &self.core.link;
        let via = via(&self.core.via, &link.stream, &link.machine);
        match registry.connect(command, data, &via, now) {
            Ok(connected) => {
                let reply = Reply::done(u64::from(connected.result));
                self.attach(connected, registry);
                reply
            }
            Err(refusal) => {
                let (host, target) = nvmf::connect_names(data);
                self.core.shared.refusals.note(Refusal {
                    peer: Some(self.core.via.peer),
                    host,
                    target,
                    remedy: match refusal.status == Status::CONNECT_INVALID_HOST.dnr() {
                        true => Remedy::ListPeer,
                        false => Remedy::None,
                    },
                    ..Refusal::new(CONNECT_REFUSED, &refusal.reason)
                });
                Reply {
                    result: u64::from(refusal.result),
                    ..Reply::failed(refusal.status)
                }
            }
        }
    }

    fn attach(&mut self, connected: Connected, registry: &mut Registry) {
        for connection in &connected.closing {
            self.core.shared.close(*connection);
        }
        let subsystem = &connected.subsystem;
        let controller = registry.controller(connected.controller);
        let controller = controller.expect("it was just connected");
        let (host, rights) = (controller.hostnqn(), Rights::new(controller.hostid()));
        let served = (self.service).served(&subsystem.nqn, self.core.via.listener, host.into());
        let entries = u16::try_from(connected.entries).expect("bounded by queue_entries_max");
        self.core.link.machine.attach(Role {
            qid: connected.qid,
            entries,
            flow_control_disabled: connected.flow_control_disabled,
            namespaces: served.geometry.clone(),
            authentication: connected.authentication,
        });
        let authentication = Authentication::new(host, &subsystem.nqn, connected.concatenation);
        self.bound = Some(Bound {
            controller: connected.controller,
            cntlid: connected.cntlid,
            qid: connected.qid,
            activity: connected.activity,
            served,
            rights,
            host: host.to_owned(),
            target: subsystem.nqn.clone(),
            hostids: (connected.other_hostid).map(|other| [controller.hostid(), other]),
            authentication: Arc::new(Mutex::new(authentication)),
            is_admitted: false,
            has_failed: false,
        });
        if connected.authentication != InBandAuthentication::Required {
            self.admit(entries.into());
        }
    }

    /// The host is what it says, as far as it must prove that: it is told of, and what its
    /// connections hold is its own.
    pub(crate) fn admit(&mut self, entries: usize) {
        let bound = self.bound.as_mut().expect("commands come after Connect");
        bound.is_admitted = true;
        let (host, nqn, cntlid) = (&*bound.host, &*bound.target, bound.cntlid);
        let peer = self.core.via.peer;
        match bound.qid {
            0 if self.core.shared.refusals.tells_arrival(Some(peer.ip())) => {
                tracing::info!(event = "connected", %peer, host, target = nqn, cntlid, "host connected");
            }
            qid => tracing::debug!(%peer, host, target = nqn, cntlid, qid, entries,
                "queue connected"),
        }
        if let Some(hostids) = bound.hostids
            && self.core.shared.refusals.tells_arrival(Some(peer.ip()))
        {
            let [hostid, other] = hostids.map(u128::from_be_bytes);
            tracing::warn!(event = "duplicate-host", %peer, host, target = nqn,
                "two hosts have this host NQN, with Host Identifiers {hostid:032x} and {other:032x}: \
                 give each its own (`nvme gen-hostnqn > /etc/nvme/hostnqn`)");
        }
        let is_admin = bound.qid == 0;
        let psk = self.core.link.stream.psk();
        if is_admin
            && psk.is_some_and(|psk| psk.derivation == Derivation::Old)
            && self.core.shared.refusals.tells_arrival(Some(peer.ip()))
        {
            tracing::warn!(event = "old-tls-key", %peer, host, target = nqn,
                "the host derives its TLS key as libnvme up to 1.13 does: update nvme-cli there, \
                 and insert the key again");
        }
        let name = HostName::Said("NVMe host", bound.host.clone());
        self.core.set_host(name);
        if is_admin {
            // Its Keep Alives and Aborts come behind commands that may hang.
            self.core.keep_room(entries);
        }
    }

    /// `None`: not enough memory now. `Some(None)`: completes later.
    fn admin<D: Driver>(
        &mut self,
        tag: Tag,
        sqe: &Sqe,
        registry: &mut Registry,
        driver: &mut D,
    ) -> Option<Option<Reply>> {
        let mut data = Vec::new();
        let mut out = Vec::new();
        let mut answer = None;
        match sqe.direction() {
            Direction::HostToController => {
                if let Some(range) = self.core.link.range(tag) {
                    data.resize(range.len() as usize, 0);
                    mem::copy_out(range, &mut data);
                }
            }
            Direction::ControllerToHost => {
                let len = sqe.sgl.length.get();
                if len > ADMIN_DATA_BYTES_MAX {
                    return Some(Some(Reply::failed(Status::INVALID_FIELD.dnr())));
                }
                if len > 0 {
                    answer = Some(self.core.pool.get(len)?);
                    out.resize(len as usize, 0);
                }
            }
            Direction::None | Direction::Both => {}
        }
        let bound = self.bound.as_ref().expect("commands come after Connect");
        let counters = |nsid| match bound.served.volume(nsid) {
            Some(volume) => io_counters(&**volume),
            None => IoCounters::default(),
        };
        let env = Env {
            now: driver.now(),
            started: self.core.shared.started(),
            counters: &counters,
            used_bytes: &|nsid| self.used_bytes(nsid),
        };
        let outcome = registry.admin(bound.controller, tag, sqe, &data, &mut out, &env);
        if let Some(buf) = answer {
            mem::copy_in(buf.range(), &out);
            self.core.link.set_data(tag, CommandMemory::owned(buf));
        }
        match outcome {
            AdminOutcome::Done(reply) => return Some(Some(reply)),
            AdminOutcome::Held => {}
            AdminOutcome::Abort { connection, cid } => self.send_abort(tag, connection, cid),
            AdminOutcome::LbaStatus(ask) => self.lba_status(tag, ask),
            AdminOutcome::Erase { nsid } => self.erase(tag, nsid),
            AdminOutcome::Sanitize { cdw10 } => return Some(Some(self.sanitize(cdw10, registry))),
            AdminOutcome::ReservationPersistence { nsid, set } => self.persistence(tag, nsid, set),
            AdminOutcome::WriteProtect { nsid, state } => {
                self.write_protect(tag, nsid, state, registry);
            }
        }
        Some(None)
    }

    /// What a namespace takes as was last looked at; it is looked at again, for the
    /// next time: no command waits for a file system here.
    fn used_bytes(&self, nsid: u32) -> u64 {
        let Some(volume) = self.bound().served.volume(nsid).cloned() else {
            return 0;
        };
        let used_bytes = volume.base().used_bytes();
        self.core.shared.look_at_space(&volume);
        used_bytes
    }

    /// Abort (Base 2.0, section 5.1): the reactor of the command's queue ends
    /// it. Our own queue is no exception.
    fn send_abort(&mut self, tag: Tag, connection: Option<u64>, cid: u16) {
        let later = self.later_unless_lost(tag, CommandAnswer::not_aborted());
        self.aborts.push(tag);
        match connection.map(ConnectionRef::unpack) {
            None => later.answer(CommandAnswer::not_aborted()),
            Some(connection) => self.service.send(
                connection.shard as usize,
                OwnMail::Abort {
                    connection,
                    cid,
                    later,
                },
            ),
        }
    }

    /// Get LBA Status (NVM Command Set 1.0, section 4.2.1): where a volume
    /// keeps data may take the file system a while to say.
    fn lba_status(&mut self, tag: Tag, ask: LbaStatus) {
        let volume = self.bound().served.volume(ask.nsid).cloned();
        let later = self.later(tag);
        let Some(volume) = volume else {
            // Removed in this very moment.
            return later.answer(Status::INVALID_FIELD.dnr());
        };
        let shared = self.core.shared.clone();
        self.core
            .shared
            .blocking(About::question(&volume), move || {
                later.answer(lba_status(&shared, &ask, &*volume));
            });
    }

    /// Format NVM (Base 2.0, section 5.14): complete when nothing of what was written can be read
    /// any more.
    fn erase(&mut self, tag: Tag, nsid: u32) {
        let volume = self.bound().served.volume(nsid).cloned();
        let may_write = volume.as_ref().map(|volume| self.may_erase(volume));
        let later = self.later(tag);
        match (volume, may_write) {
            (Some(volume), Some(true)) => {
                let then = move |erased: Result<(), EraseError>| {
                    later.answer(erased.map_or_else(erase_status, |()| Status::SUCCESS));
                };
                let host = self.bound().host.to_string();
                self.core.shared.erase(&volume, Some(host), Box::new(then));
            }
            (Some(_), _) => later.answer(Status::RESERVATION_CONFLICT),
            // Removed in this very moment.
            (None, _) => later.answer(Status::INVALID_FIELD.dnr()),
        }
    }

    /// Sanitize (Base 2.0, section 5.24), which is complete when it has begun.
    fn sanitize(&mut self, cdw10: u32, registry: &mut Registry) -> Reply {
        let volumes = self.namespaces(NSID_ALL).into_iter();
        let volumes: Vec<Arc<dyn Volume>> = volumes.map(|(_, volume)| volume).collect();
        if volumes.is_empty() {
            // Removed in this very moment.
            return Reply::failed(Status::INVALID_FIELD.dnr());
        }
        if !volumes.iter().all(|volume| self.may_erase(volume)) {
            return Reply::failed(Status::RESERVATION_CONFLICT);
        }
        let nqn = self.bound().served.nqn.clone();
        registry.begin_sanitize(&nqn, cdw10, volumes.len() as u32);
        let sanitizing = Sanitizing {
            service: self.service.clone(),
            nqn,
            host: self.bound().host.to_string(),
            volumes,
        };
        sanitizing.go_on();
        Reply::done(0)
    }

    /// Set Features, Namespace Write Protection Config (Base 2.0, section
    /// 5.27.1.30): complete when no write begun before can land any more.
    fn write_protect(&mut self, tag: Tag, nsid: u32, state: WriteProtect, registry: &mut Registry) {
        let protect = Protect {
            nqn: self.bound().served.nqn.clone(),
            nsid,
            state,
        };
        let volume = self.bound().served.volume(nsid).cloned();
        let later = self.later(tag);
        let Some(volume) = volume else {
            return later.answer(Status::INVALID_FIELD.dnr());
        };
        if state != WriteProtect::Permanent {
            return protect.make_known(&self.service, registry, volume, later);
        }
        let service = self.service.clone();
        self.core.shared.blocking(About::state(&volume), move || {
            if let Err(error) = volume.state().protect_permanently() {
                let reason = format_args!("write protection could not be kept: {error}");
                service.shared.refusals.note(Refusal {
                    volume: Some(&volume.info().name),
                    ..Refusal::new(RefusalKind::CHANGE, &reason)
                });
                return later.answer(Status::INTERNAL_ERROR);
            }
            let mut registry = service.registry();
            protect.make_known(&service, &mut registry, volume, later);
        });
    }

    /// Forgets a held Asynchronous Event Request; whether there was one.
    pub(crate) fn cancel_event_request(&mut self, tag: Tag) -> bool {
        let Some(bound) = &self.bound else {
            return false;
        };
        let mut registry = self.service.registry();
        let controller = registry.controller(bound.controller);
        bound.qid == 0 && controller.is_some_and(|c| c.cancel_event_request(tag))
    }

    /// The host waits no more for an Asynchronous Event Request. An event that it was
    /// completed with goes to another.
    pub(crate) fn forget_event_request(&mut self, tag: Tag, event: Option<u32>) {
        let Some(result) = event else {
            if self.cancel_event_request(tag) {
                self.end(tag, Status::SUCCESS);
            }
            return;
        };
        let Some(bound) = &self.bound else { return };
        let service = self.service.clone();
        let mut registry = service.registry();
        if let Some(controller) = registry.controller(bound.controller) {
            controller.return_event(result);
        }
        self.settle(&mut registry);
    }

    /// The command of a tag is over: where it is an Abort, others may come.
    pub(crate) fn end_abort(&mut self, tag: Tag) {
        let Some(at) = self.aborts.iter().position(|abort| *abort == tag) else {
            return;
        };
        self.aborts.swap_remove(at);
        if let Some(bound) = &self.bound
            && let Some(controller) = self.service.registry().controller(bound.controller)
        {
            controller.abort_done();
        }
    }

    /// Looks at the time.
    pub(crate) fn tick(&mut self, now: Nanos) {
        let machine = &self.core.link.machine;
        if machine.deadline().is_some_and(|at| at <= now) {
            tracing::debug!(peer = %self.core.via.peer,
                "no Connect, or no authentication, in time: connection ends");
            self.core.link.machine.on_deadline(now);
        }
        if self.keep_alive_at.is_some_and(|at| at <= now) {
            self.keep_alive(now);
        }
    }

    /// The keep alive timer of the controller whose Admin Queue this is may have run out.
    fn keep_alive(&mut self, now: Nanos) {
        let service = self.service.clone();
        let mut registry = service.registry();
        let Some(controller) = registry.controller(self.controller()) else {
            return;
        };
        if controller.on_deadline(now) {
            self.note_refusal(CONTROLLER_ENDED, &"keep alive timer expired");
        }
        self.settle(&mut registry);
    }

    /// Ends the controller, and with it the connections of its queues.
    pub(crate) fn end_controller(&mut self) {
        let Some(bound) = &self.bound else { return };
        let service = self.service.clone();
        let mut registry = service.registry();
        if let Some(controller) = registry.controller(bound.controller) {
            controller.end();
        }
        self.settle(&mut registry);
    }

    /// The controller whose Admin Queue this is has events to tell.
    pub(crate) fn notified(&mut self) {
        let service = self.service.clone();
        self.settle(&mut service.registry());
    }

    /// Puts a command that failed into its controller's Error Information log.
    pub(crate) fn note_refused(&self, refused: RefusedCommand) {
        let Some(bound) = &self.bound else { return };
        let RefusedCommand {
            cid,
            status,
            nsid,
            slba,
            location,
        } = refused;
        let change = self.service.registry().note_error(
            bound.controller,
            ErrorNote {
                qid: bound.qid,
                cid,
                status,
                location,
                lba: slba,
                nsid,
            },
        );
        self.service.settle(change);
    }

    /// Nothing of the connection is left: its controller is told.
    pub(crate) fn leave(&mut self) {
        let Some(bound) = self.bound.take() else {
            return;
        };
        let mut registry = self.service.registry();
        for connection in registry.disconnected(bound.controller, bound.qid) {
            self.core.shared.close(connection);
        }
    }
}

/// Volumes of a subsystem that are sanitized, one after the other.
struct Sanitizing {
    service: Arc<Service>,
    nqn: Arc<str>,
    /// That has asked for it.
    host: String,
    /// Those that are left.
    volumes: Vec<Arc<dyn Volume>>,
}

impl Sanitizing {
    /// Erases the next one. The others stay as they are once one could not be erased.
    fn go_on(mut self) {
        let Some(volume) = self.volumes.pop() else {
            return;
        };
        let (shared, host) = (self.service.shared.clone(), self.host.clone());
        let then = move |erased: Result<(), EraseError>| {
            let change = self
                .service
                .registry()
                .sanitize_went_on(&self.nqn, erased.is_ok());
            self.service.settle(change);
            if erased.is_ok() {
                self.go_on();
            }
        };
        shared.erase(&volume, Some(host), Box::new(then));
    }
}

/// The status that tells a host why nothing was erased.
fn erase_status(error: EraseError) -> Status {
    match error {
        EraseError::Locked => Status::NAMESPACE_NOT_READY,
        EraseError::Busy => Status::COMMAND_INTERRUPTED,
        EraseError::Unwritten(_) => Status::INTERNAL_ERROR,
    }
}

/// A change of a namespace's write protection.
struct Protect {
    nqn: Arc<str>,
    nsid: u32,
    state: WriteProtect,
}

impl Protect {
    /// Tells every connection, and answers when no write that began before can
    /// land any more.
    fn make_known(
        self,
        service: &Arc<Service>,
        registry: &mut Registry,
        volume: Arc<dyn Volume>,
        later: Later,
    ) {
        if self.state == WriteProtect::Off {
            return self.lift(service, registry, later);
        }
        self.tell(service, registry);
        service.shared.fence(Scope::Volumes(vec![volume]), move || {
            later.answer(CommandAnswer::default());
        });
    }

    /// Every queue takes writes before the first host is told: a host that acts
    /// on the notice is not refused.
    fn lift(self, service: &Arc<Service>, registry: &Registry, later: Later) {
        let lifted = registry.with_write_protect(&self.nqn, self.nsid, self.state);
        if let Some(subsystem) = lifted {
            service.publish(&subsystem);
        }
        let then = service.clone();
        service.shared.fence(Scope::Mail, move || {
            self.tell(&then, &mut then.registry());
            later.answer(CommandAnswer::default());
        });
    }

    fn tell(&self, service: &Service, registry: &mut Registry) {
        let change = registry.set_write_protect(&self.nqn, self.nsid, self.state);
        service.republish(registry, &self.nqn);
        service.settle(change);
    }
}

/// What a volume says of a range; it may ask the file system below.
fn lba_status(shared: &engine::Shared, ask: &LbaStatus, volume: &dyn Volume) -> CommandAnswer {
    // One more than fits tells that there are more.
    let max = ask.ranges_max as usize + 1;
    if let LbaStatusKind::Unrecoverable = ask.kind {
        let marked = volume.unreadable(ask.offset, ask.len, max);
        return CommandAnswer {
            data: ask.data(marked.iter().map(|range| (range.offset, range.len))),
            ..CommandAnswer::default()
        };
    }
    // Between two that are allocated lies one that is not.
    let mut extents = Vec::new();
    match volume.extents(ask.offset, ask.len, 2 * max, &mut extents) {
        Ok(()) => {
            let allocated = extents
                .iter()
                .filter(|extent| extent.allocated && !faults::is(Fault::NoExtents));
            CommandAnswer {
                data: ask.data(allocated.map(|extent| (extent.offset, extent.len))),
                ..CommandAnswer::default()
            }
        }
        Err(error) => {
            shared.refusals.note(Refusal {
                volume: Some(&volume.info().name),
                ..Refusal::new(RefusalKind::VOLUME, &format_args!("LBA status: {error}"))
            });
            super::io::status_of(error).into()
        }
    }
}

/// What counts as which is the NVM Command Set's to say (1.0, section 4.1.4.2).
fn io_counters(volume: &dyn Volume) -> IoCounters {
    let stats = volume.stats();
    IoCounters {
        read_commands: stats.reads + stats.compares,
        read_bytes: stats.read_bytes + stats.compare_bytes + stats.verify_bytes,
        write_commands: stats.writes,
        write_bytes: stats.write_bytes,
        media_errors: stats.errors.read_failed
            + stats.errors.write_failed
            + stats.errors.flush_failed,
        taken_percent: volume.base().taken_percent(),
    }
}
