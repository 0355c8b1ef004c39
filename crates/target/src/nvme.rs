//! NVMe/TCP: queue pairs on the target's connections.

mod abort;
mod admin;
mod io;
mod reservation;
pub(crate) mod served;
mod steps;

use std::collections::BTreeSet;
use std::sync::Arc;

use link::Data;
use machine::{Machine, Nanos, Tag};
use nvmf::command::{Command, Geometry};
use nvmf::tcp::controller::{Done, Op, Qpair, Refused, Settings};
use nvmf::{Activity, ControllerId};
use reactor::Driver;
use store::Volume;
use store::reservation::Registrant;
use wire::nvme::Status;

use self::reservation::Rights;
use self::served::Served;
use crate::connection::{self, Blocks, Protocol, Via};
use crate::engine::Then;
use crate::job::Work;
use crate::later::{self, Answers};
use crate::refusals::Kind;
use crate::shared::Shared;

/// One NVMe/TCP connection.
pub(crate) type Connection = connection::Connection<Nvme>;

/// What a connection became with its Connect command.
pub(crate) struct Bound {
    controller: ControllerId,
    qid: u16,
    activity: Arc<Activity>,
    served: Served,
    rights: Rights,
    host: String,
    target: String,
}

/// What is NVMe's own of a connection.
#[derive(Default)]
pub(crate) struct Nvme {
    bound: Option<Bound>,
}

impl Nvme {
    /// Of a connection that just came.
    pub(crate) fn open(shared: &Shared, now: Nanos) -> (Qpair, Nvme) {
        (Qpair::new(settings(shared), now), Nvme::default())
    }
}

/// How a command ended that ended elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Data to the host; cut to what the command's SGL holds.
    pub data: Vec<u8>,
}

impl Answer {
    /// Of an Abort that did nothing: bit 0 of dword 0 (Base 2.0, section 5.1).
    pub(crate) fn not_aborted() -> Answer {
        Answer {
            result: 1,
            ..Answer::default()
        }
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Answer {
        Answer {
            status,
            ..Answer::default()
        }
    }
}

impl From<Answer> for later::Answer {
    fn from(answer: Answer) -> later::Answer {
        later::Answer::Nvme(answer)
    }
}

impl Answers for Answer {
    fn lost() -> Answer {
        Status::INTERNAL_ERROR.into()
    }
}

impl From<Via> for nvmf::Via {
    fn from(via: Via) -> nvmf::Via {
        nvmf::Via {
            connection: via.connection,
            local: via.local,
            peer: via.peer,
            listener: via.listener,
        }
    }
}

/// What a queue pair may do.
fn settings(shared: &Shared) -> Settings {
    let limits = &shared.limits;
    Settings {
        in_capsule_max: limits.in_capsule_bytes_max,
        maxh2cdata: limits.h2c_data_bytes_max,
        cpda: limits.cpda,
        io_bytes_max: limits.io_bytes_max,
        header_digest: limits.header_digest,
        data_digest: limits.data_digest,
        handshake_timeout: u64::from(limits.handshake_timeout_ms) * 1_000_000,
        ..Settings::default()
    }
}

/// Whether it is an operation of this command.
fn is_of(op: &Op, tag: Tag) -> bool {
    match *op {
        Op::Prepare { tag: own, .. } | Op::Execute { tag: own, .. } => own == tag,
        Op::ExecuteFused { compare, write, .. } => compare == tag || write == tag,
        Op::Forgotten { .. } | Op::Refused(_) | Op::Fatal(_) => false,
    }
}

impl Protocol for Nvme {
    type Machine = Qpair;
    type Answer = Answer;

    #[inline]
    fn execute<D: Driver>(c: &mut Connection, op: &Op, driver: &mut D) -> bool {
        if let Op::Execute { .. } | Op::ExecuteFused { .. } = op {
            tracing::debug!(peer = %c.via.peer, ?op, "execute");
        }
        match *op {
            Op::Execute {
                tag,
                command: Command::Io(io),
            } => c.execute_io(tag, io, driver),
            Op::Prepare {
                tag,
                len,
                command,
                staged,
            } => c.prepare(tag, len, &command, staged),
            Op::Execute {
                tag,
                command: Command::Reservation { namespace, sqe },
            } => c.reserve(tag, namespace, &sqe),
            Op::Execute { tag, command } => c.execute_admin(tag, command, driver),
            Op::ExecuteFused { compare, write, io } => c.execute_fused(compare, write, io, driver),
            Op::Forgotten { tag, event } => {
                c.forget_event_request(tag, event);
                true
            }
            Op::Refused(refused) => {
                c.note_refused(refused);
                true
            }
            Op::Fatal(error) => {
                c.note_refusal(Kind::End, &error);
                true
            }
        }
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        let bound = self.bound.as_ref();
        let names = bound.map(|bound| (&*bound.host, &*bound.target));
        names.unzip()
    }

    fn closing<D: Driver>(c: &mut Connection, driver: &mut D) {
        if c.own.bound.as_ref().is_some_and(|bound| bound.qid == 0) {
            c.tell_gone("host disconnected");
        }
        c.orphan_all(driver);
    }

    fn is_of(op: &Op, tag: Tag) -> bool {
        is_of(op, tag)
    }

    fn stalls(c: &Connection, op: &Op) -> bool {
        match *op {
            Op::Prepare { tag, .. } => c.link.machine.is_blocked_on(tag),
            Op::Execute { tag, .. } => c.link.staged(tag).is_some(),
            _ => false,
        }
    }

    fn refuse_late<D: Driver>(c: &mut Connection, op: Op, _: &mut D) {
        let status = match &c.own.bound {
            Some(bound) => bound.activity.delay_retry(Status::COMMAND_INTERRUPTED),
            None => Status::COMMAND_INTERRUPTED,
        };
        c.refuse(op, status);
    }

    fn answered<D: Driver>(c: &mut Connection, tag: Tag, work: &Work, answer: Answer, _: &mut D) {
        Self::forsaken(c, work);
        let Answer {
            status,
            result,
            data,
        } = answer;
        let data_len = match status.is_success() {
            true => c.put_answer(tag, &data),
            false => 0,
        };
        let done = Done {
            status,
            result,
            data_len,
        };
        c.link.machine.complete(tag, done);
    }

    fn forsaken(c: &mut Connection, work: &Work) {
        if let Work::Abort = work {
            c.abort_done();
        }
    }

    fn is_known(&self) -> bool {
        self.bound.is_some()
    }

    #[inline]
    fn heard(&self) {
        if let Some(bound) = &self.bound {
            bound.activity.note();
        }
    }

    fn on_tick<D: Driver>(c: &mut Connection, now: Nanos, _: &mut D) {
        if c.link.machine.deadline().is_some_and(|at| at <= now) {
            tracing::debug!(peer = %c.via.peer, "no Connect in time: connection ends");
            c.link.machine.on_deadline(now);
        }
        if c.own.bound.as_ref().is_some_and(|bound| bound.qid == 0) {
            c.keep_alive(now);
        }
    }

    fn end_all(c: &mut Connection) {
        c.end_controller();
    }

    fn was_removed(c: &mut Connection) {
        c.leave();
    }
}

impl Blocks for Nvme {
    #[inline]
    fn volume(&self, unit: u32) -> Option<&Arc<dyn Volume>> {
        self.bound.as_ref()?.served.volumes.get(unit as usize)
    }

    #[inline]
    fn succeeded(c: &mut Connection, tag: Tag, data_len: u32, then: Then) {
        c.io_succeeded(tag, data_len, &then);
    }

    #[cold]
    fn failed(c: &mut Connection, tag: Tag, at: (u32, u64), error: store::Error, then: Then) {
        c.io_failed(tag, at, error, &then);
    }

    fn preempt<D: Driver>(
        c: &mut Connection,
        volume: &Arc<dyn Volume>,
        hosts: &BTreeSet<Registrant>,
        driver: &mut D,
    ) {
        c.preempt(volume, hosts, driver);
    }
}

impl Connection {
    #[inline]
    fn bound(&self) -> &Bound {
        let bound = self.own.bound.as_ref();
        bound.expect("commands come after Connect")
    }

    #[inline]
    fn volumes(&self) -> &[Arc<dyn Volume>] {
        &self.bound().served.volumes
    }

    fn geometry(&self, namespace: u32) -> Geometry {
        self.bound().served.geometry[namespace as usize]
    }

    /// Provides memory for data that arrives; false while there is none.
    #[inline]
    fn prepare(&mut self, tag: Tag, len: u32, command: &Command, staged: bool) -> bool {
        let data = match command {
            Command::Io(io) => self.destination(io, len, staged),
            _ => self.pool.get(len).map(Data::owned),
        };
        let Some(data) = data.or_else(|| self.spare_for(tag, len)) else {
            return false;
        };
        self.link.set_data(tag, data);
        self.link.machine.prepared(tag);
        true
    }

    /// Memory that is kept for commands that keep everything behind them from
    /// being received, `None` for any other.
    #[cold]
    fn spare_for(&self, tag: Tag, len: u32) -> Option<Data> {
        let is_in_the_way = self.link.machine.is_blocked_on(tag);
        let buf = is_in_the_way.then(|| self.pool.get_spare(len))?;
        buf.map(Data::owned)
    }

    /// Completes a command with an error, at a byte of a namespace.
    #[cold]
    pub(crate) fn fail(&mut self, tag: Tag, status: Status, namespace: u32, offset: u64) {
        self.fail_with(tag, status, 0, namespace, offset);
    }

    /// The same, with dwords 0 and 1 of the completion.
    #[cold]
    pub(crate) fn fail_with(
        &mut self,
        tag: Tag,
        status: Status,
        result: u64,
        namespace: u32,
        offset: u64,
    ) {
        let geometry = self.geometry(namespace);
        self.note_refused(Refused {
            cid: self.link.machine.cid(tag),
            status,
            nsid: geometry.nsid,
            slba: offset >> geometry.block_shift,
            location: None,
        });
        self.link.take_data(tag);
        let done = Done {
            result,
            ..Done::from(status)
        };
        self.link.machine.complete(tag, done);
    }
}
