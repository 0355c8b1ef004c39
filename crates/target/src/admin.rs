//! Fabrics and Admin commands of a connection, executed by the registry of
//! controllers.

use link::Data;
use machine::{Nanos, Tag};
use nvmf::command::Command;
use nvmf::tcp::controller::{Done, Refused, Role};
use nvmf::{Connected, Env, ErrorNote, IoCounters, Outcome, Registry, Reply};
use reactor::Driver;
use wire::nvme::fabrics::CONNECT_DATA_BYTES;
use wire::nvme::{ConnectCommand, Direction, Sqe, Status};

use crate::connection::{Bound, Connection};

/// Most data of an Admin command in either direction, bytes.
const ADMIN_DATA_BYTES_MAX: u32 = 64 << 10;

impl Connection {
    /// Executes anything but an I/O command; false while memory is short.
    pub(crate) fn execute_admin<D: Driver>(
        &mut self,
        tag: Tag,
        command: Command,
        driver: &mut D,
    ) -> bool {
        let shared = self.shared.clone();
        let mut registry = shared.registry();
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
            Command::Io(_) | Command::Reservation { .. } => {
                unreachable!("I/O is executed on the volumes")
            }
        };
        if let Some(reply) = reply {
            self.reply(tag, reply);
        }
        self.settle(&mut registry);
        true
    }

    fn controller(&self) -> nvmf::ControllerId {
        let bound = self.bound.as_ref();
        bound.expect("commands come after Connect").controller
    }

    fn reply(&mut self, tag: Tag, reply: Reply) {
        if !reply.status.is_success() {
            tracing::debug!(peer = %self.via.peer, status = %reply.status, "command refused");
        }
        self.link.machine.complete(
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
            self.shared.close(connection);
        }
        if bound.qid == 0 {
            while let Some((tag, reply)) = controller.take_event() {
                self.link.machine.complete(
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
        let range = self.link.range(tag).expect("Connect data has arrived");
        let mut data = [0; CONNECT_DATA_BYTES];
        let data = &mut data[..range.len().min(CONNECT_DATA_BYTES as u32) as usize];
        mem::copy_out(range.slice(0, data.len() as u32), data);
        match registry.connect(command, data, &self.via, now) {
            Ok(connected) => {
                let reply = Reply::done(u64::from(connected.result));
                self.attach(connected);
                reply
            }
            Err(refusal) => {
                let (peer, status) = (self.via.peer, refusal.status);
                tracing::warn!(%peer, %status, parameter = refusal.result, "Connect refused");
                Reply {
                    result: u64::from(refusal.result),
                    ..Reply::failed(refusal.status)
                }
            }
        }
    }

    fn attach(&mut self, connected: Connected) {
        let subsystem = &connected.subsystem;
        tracing::debug!(peer = %self.via.peer, nqn = %subsystem.nqn, cntlid = connected.cntlid,
            qid = connected.qid, entries = connected.entries, "queue connected");
        let served = self.shared.served(&subsystem.nqn);
        self.link.machine.attach(Role {
            qid: connected.qid,
            entries: u16::try_from(connected.entries).expect("bounded by queue_entries_max"),
            flow_control_disabled: connected.flow_control_disabled,
            namespaces: served.geometry.clone(),
        });
        self.bound = Some(Bound {
            controller: connected.controller,
            qid: connected.qid,
            activity: connected.activity,
            served,
        });
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
                if let Some(range) = self.link.range(tag) {
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
                    answer = Some(driver.pool().get(len)?);
                    out.resize(len as usize, 0);
                }
            }
            Direction::None | Direction::Both => {}
        }
        let bound = self.bound.as_ref().expect("commands come after Connect");
        let env = Env {
            now: driver.now(),
            counters: &|namespace| io_counters(&bound.served.volumes[namespace as usize].stats()),
        };
        match registry.admin(bound.controller, tag, sqe, &data, &mut out, &env) {
            Outcome::Held => Some(None),
            Outcome::Done(reply) => {
                if reply.data_len > 0 {
                    let buf = answer.expect("data to the host has room");
                    mem::copy_in(buf.range(), &out);
                    self.link.set_data(tag, Data::owned(buf));
                }
                Some(Some(reply))
            }
        }
    }

    /// The keep alive timer of the controller whose Admin Queue this is.
    pub(crate) fn keep_alive(&mut self, now: Nanos) {
        let shared = self.shared.clone();
        let mut registry = shared.registry();
        let Some(controller) = registry.controller(self.controller()) else {
            return;
        };
        if controller.deadline().is_some_and(|at| at <= now) && controller.on_deadline(now) {
            let (host, cntlid) = (controller.hostnqn(), controller.cntlid());
            tracing::warn!(host, cntlid, "keep alive timer expired: controller ends");
        }
        self.settle(&mut registry);
    }

    /// Puts a command that failed into its controller's Error Information log.
    pub(crate) fn note_refused(&self, refused: Refused) {
        let Some(bound) = &self.bound else { return };
        let Refused {
            cid,
            status,
            nsid,
            slba,
        } = refused;
        self.shared.registry().note_error(
            bound.controller,
            ErrorNote {
                qid: bound.qid,
                cid,
                status,
                location: None,
                lba: slba,
                nsid,
            },
        );
    }

    /// Nothing of the connection is left: its controller hears of it.
    pub(crate) fn leave(&mut self) {
        let Some(bound) = self.bound.take() else {
            return;
        };
        let mut registry = self.shared.registry();
        for connection in registry.disconnected(bound.controller, bound.qid) {
            self.shared.close(connection);
        }
    }
}

fn io_counters(stats: &store::Stats) -> IoCounters {
    IoCounters {
        read_commands: stats.reads,
        read_bytes: stats.read_bytes,
        write_commands: stats.writes,
        write_bytes: stats.write_bytes,
        media_errors: stats.errors.read_failed
            + stats.errors.write_failed
            + stats.errors.flush_failed,
    }
}
