//! NBD: what requests of clients do on volumes.
#![forbid(unsafe_code)]

mod contexts;
mod exports;
mod io;
mod service;
mod transport_security;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use engine::blocks::{AfterIo, VolumeWork};
use engine::hosts::HostPlace;
use engine::job::{Job, Jobs};
use engine::{
    Blocks, Connection as _, ConnectionEvent, ConnectionId, ConnectionStage, Core, Demand, Goal,
    Has, JobId, OnVolumes as _, Orphans as _, Post, Protocol, Refusal, RefusalKind, Remedy, Shard,
    Via,
};
use link::Stream;
use machine::{Machine as _, Nanos, Tag};
use mem::Pool;
use nbd::{
    BitmapsFound, FatalError, NbdAnswer, NbdError, NbdOp, NbdServer, PAYLOAD_BYTES_MAX, RequestKind,
};
use reactor::Driver;
use store::Volume;
use store::meter::IoOp;
use store::reservation::Grant;

use self::exports::NbdClient;

pub use self::exports::{NbdClientName, NbdExportSpec, NbdExports, OF_KEY, ServedExport};
pub use self::service::{ExportMail, NbdMail, NbdService};
pub use self::transport_security::{NbdSecrets, NbdTlsSpec};
pub use nbd::{NbdSettings, NbdTls};
pub use tls::{RenewedPsks, RenewedTls, TlsFiles};

/// Where the answer to a request comes from.
pub type RequestWork = VolumeWork<NbdReply>;

/// An export was refused.
const EXPORT_REFUSED: RefusalKind = RefusalKind("NBD export refused");

/// How a request ended that ended elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdReply {
    /// Well, with data to the client; cut to what there is memory for.
    Done(Vec<u8>),
    /// Not.
    Failed(NbdError),
    /// Of no request: these dirty bitmaps there are.
    Bitmaps(BitmapsFound),
}

/// The export that a connection is served, which is index 0 of what it is served.
struct OnExport {
    name: String,
    volume: Arc<dyn Volume>,
    grant: Grant,
}

/// One NBD connection.
pub struct NbdConnection {
    core: Core<NbdConnection>,
    service: Arc<NbdService>,
    export: Option<OnExport>,
    client: NbdClient,
    /// It ends when what is under way has ended.
    is_leaving: bool,
}

/// Bytes of a WRITE_ZEROES that count against limits.
const ZEROES_COUNTED_MAX: u64 = PAYLOAD_BYTES_MAX as u64;

/// What the connections of one reactor share.
pub struct NbdLocal {
    service: Arc<NbdService>,
    jobs: Rc<RefCell<Jobs<RequestWork>>>,
}

impl NbdLocal {
    /// Of a reactor without connections.
    pub fn new(service: Arc<NbdService>, jobs: Jobs<RequestWork>) -> NbdLocal {
        let jobs = Rc::new(RefCell::new(jobs));
        NbdLocal { service, jobs }
    }
}

/// A connection that just came; `requires_tls`: it goes on in TLS alone.
pub fn open(
    (local, requires_tls): (&NbdLocal, bool),
    (id, stream): (ConnectionId, Stream),
    came: (Via, HostPlace),
    (pool, now): (&Pool, Nanos),
) -> NbdConnection {
    let (service, here) = (&local.service, (local.jobs.clone(), pool));
    let settings = NbdSettings {
        tls: match (requires_tls, &service.tls) {
            (true, Some(_)) => NbdTls::Required,
            // The listener changes at once, [nbd.tls] at the next start.
            (true, None) => NbdTls::Awaited,
            (false, Some(_)) => NbdTls::Offered,
            (false, None) => NbdTls::Refused,
        },
        ..service.settings
    };
    let machine = NbdServer::new(settings, now);
    let client = NbdClient {
        address: came.0.peer.ip(),
        names: Arc::default(),
    };
    NbdConnection {
        core: Core::new(machine, id, stream, came, service.shared.clone(), here),
        service: service.clone(),
        export: None,
        client,
        is_leaving: false,
    }
}

impl Protocol for NbdConnection {
    type Machine = NbdServer;
    type Answer = NbdReply;
    type Mail = ExportMail;
    type Job = RequestWork;
    type Local = NbdLocal;

    fn jobs(local: &NbdLocal) -> &RefCell<Jobs<RequestWork>> {
        &local.jobs
    }

    #[inline]
    fn core(&self) -> &Core<Self> {
        &self.core
    }

    #[inline]
    fn core_mut(&mut self) -> &mut Core<Self> {
        &mut self.core
    }

    fn post(&self) -> &Arc<dyn Post<NbdMail>> {
        &self.service.post
    }

    fn lost() -> NbdReply {
        NbdReply::Failed(NbdError::IO)
    }

    #[inline]
    fn execute<D: Driver>(&mut self, op: &NbdOp, driver: &mut D) -> bool {
        match *op {
            NbdOp::Prepare { tag, len, staged } => self.prepare(tag, len, staged),
            NbdOp::Execute { tag } => self.execute_request(tag, driver),
            NbdOp::List => {
                self.list();
                true
            }
            NbdOp::Find => {
                self.find();
                true
            }
            NbdOp::Refused(error) => {
                self.note_refusal(RefusalKind::TLS, &error);
                true
            }
            NbdOp::Fatal(error) => {
                self.note_refusal(RefusalKind::END, &error);
                true
            }
        }
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (None, self.export.as_ref().map(|export| &*export.name))
    }

    #[inline]
    fn commands(op: &NbdOp) -> [Option<Tag>; 2] {
        match *op {
            NbdOp::Prepare { tag, .. } | NbdOp::Execute { tag } => [Some(tag), None],
            NbdOp::List | NbdOp::Find | NbdOp::Refused(_) | NbdOp::Fatal(_) => [None; 2],
        }
    }

    #[inline]
    fn is_whole(op: &NbdOp) -> bool {
        matches!(op, NbdOp::Execute { .. })
    }

    fn demand(&self, op: &NbdOp) -> Option<Demand> {
        let (NbdOp::Prepare { tag, .. } | NbdOp::Execute { tag }) = *op else {
            return None;
        };
        let request = self.core.link.machine.request_of(tag);
        let (op, bytes) = match request.kind {
            RequestKind::Read => (IoOp::Read, request.len),
            RequestKind::Write => (IoOp::Write, request.len),
            // No more than the longest write: those of a whole volume would be paid for hours.
            RequestKind::WriteZeroes { .. } => (IoOp::Write, request.len.min(ZEROES_COUNTED_MAX)),
            RequestKind::Trim => (IoOp::Write, 0),
            RequestKind::Flush | RequestKind::Cache | RequestKind::BlockStatus { .. } => {
                return None;
            }
        };
        Some(Demand { unit: 0, op, bytes })
    }

    fn goal(&self, _: u32) -> Option<Goal<'_>> {
        let export = self.export.as_ref()?;
        Some(Goal::Volume(&export.volume.info().name))
    }

    fn refuse<D: Driver>(&mut self, op: NbdOp, _: &mut D) {
        if let NbdOp::Prepare { tag, .. } | NbdOp::Execute { tag } = op {
            self.fail(tag, NbdError::NO_MEMORY);
        }
    }

    fn answered<D: Driver>(&mut self, tag: Tag, answer: NbdReply, _: &mut D) {
        self.reply(tag, answer);
    }

    #[inline]
    fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job<Self::Job>,
        result: std::io::Result<u32>,
        driver: &mut D,
    ) {
        self.on_volume(id, job, result, driver);
    }

    fn on_mail<S: Has<Self>, D: Driver>(shard: &mut Shard<S>, mail: ExportMail, driver: &mut D) {
        match mail {
            ExportMail::Refresh(name) => shard.for_each_of(driver, |c: &mut NbdConnection, _| {
                c.refresh(&name);
            }),
        }
    }

    #[inline]
    fn on_event<D: Driver>(&mut self, event: ConnectionEvent, driver: &mut D) {
        match event {
            ConnectionEvent::Tick(now) => self.tick(now),
            // What is under way is answered first.
            ConnectionEvent::Dismissed => {
                self.core.link.machine.shut_down();
                self.is_leaving = true;
            }
            ConnectionEvent::SitsOnMemory => self.close(driver),
            ConnectionEvent::Closing => {
                if let Some(export) = &self.export {
                    let connection = self.core.via.connection;
                    self.service.exports().leave(&export.name, connection);
                    self.tell_gone("client disconnected");
                }
                self.orphan_all(driver);
            }
            ConnectionEvent::TurnEnds if self.core.link.machine.awaits_tls() => {
                self.begin_tls(driver);
            }
            ConnectionEvent::Secured => self.secured(),
            ConnectionEvent::Heard
            | ConnectionEvent::Ran
            | ConnectionEvent::Resumed
            | ConnectionEvent::TurnEnds
            | ConnectionEvent::Orphaned(_)
            | ConnectionEvent::Removed => {}
        }
    }

    #[inline]
    fn stage(&self) -> ConnectionStage {
        let is_busy = || self.core.has_jobs() || self.core.is_waiting();
        match (self.is_leaving, &self.export) {
            (true, _) if is_busy() => ConnectionStage::Draining,
            (true, _) => ConnectionStage::Leaving,
            (false, Some(_)) => ConnectionStage::Known,
            (false, None) => ConnectionStage::Stranger,
        }
    }
}

impl Blocks for NbdConnection {
    #[inline]
    fn volume(&self, _: u32) -> Option<&Arc<dyn Volume>> {
        Some(&self.export.as_ref()?.volume)
    }

    #[inline]
    fn core_and_volume(&mut self, _: u32) -> (&mut Core<Self>, &Arc<dyn Volume>) {
        let export = self
            .export
            .as_ref()
            .expect("requests come after NBD_OPT_GO");
        (&mut self.core, &export.volume)
    }

    #[inline]
    fn io_of(&self, tag: Tag) -> (IoOp, u64) {
        let request = self.core.link.machine.request_of(tag);
        match request.kind {
            RequestKind::Read => (IoOp::Read, request.len),
            RequestKind::Write => (IoOp::Write, request.len),
            RequestKind::Flush => (IoOp::Flush, 0),
            _ => (IoOp::Other, 0),
        }
    }

    #[inline]
    fn succeeded(&mut self, tag: Tag, data_len: u32, _: AfterIo<NbdReply>) {
        let answer = NbdAnswer::Done { data_len };
        self.core.link.machine.complete(tag, answer);
    }

    #[cold]
    fn failed(&mut self, tag: Tag, _: (u32, u64), error: store::Error, _: AfterIo<NbdReply>) {
        let request = self.core.link.machine.request_of(tag);
        self.fail(tag, io::error_of(error, request.kind));
    }
}

impl NbdConnection {
    /// Looks at the time.
    fn tick(&mut self, now: Nanos) {
        let machine = &mut self.core.link.machine;
        if machine.deadline().is_some_and(|at| at <= now) {
            machine.on_deadline(now);
            self.note_refusal(RefusalKind::END, &FatalError::HandshakeTimeout);
        }
    }

    /// The exports that the client may have.
    fn list(&mut self) {
        let exports = self.service.exports();
        let after = self.core.link.machine.listed_to().map(str::to_owned);
        let seen = exports.seen_by(&self.client, after.as_deref());
        let told = seen.map(|export| (&*export.spec.name, &*export.spec.description));
        self.core.link.machine.list(told);
    }

    /// The export that the client asks for.
    fn find(&mut self) {
        let (connection, peer) = (self.core.via.connection, self.core.via.peer);
        let name = self.core.link.machine.asked_name().to_owned();
        let mut exports = self.service.exports();
        let found = exports.find(&name, &self.client);
        let why = match exports.is_drained() {
            true => FatalError::Drained,
            false => FatalError::NoExport,
        };
        let told = found.map(ServedExport::told);
        let chosen = found.map(|export| (export.spec.name.clone(), export.volume.clone()));
        let result = self.core.link.machine.found(told);
        match (result, chosen) {
            (Ok(true), Some((name, volume))) => {
                exports.enter(&name, connection, self.client.clone());
                drop(exports);
                if self.core.shared.refusals.tells_arrival(Some(peer.ip())) {
                    let client = self.client.names.first();
                    tracing::info!(
                        event = "connected", %peer, target = name, client, "NBD client connected"
                    );
                }
                let grant = Grant::default();
                self.export = Some(OnExport {
                    name,
                    volume,
                    grant,
                });
            }
            (_, None) => {
                drop(exports);
                self.core.shared.refusals.note(Refusal {
                    peer: Some(peer),
                    host: self.client.names.first().map(|name| &**name),
                    target: Some(&name),
                    remedy: Remedy::ListPeer,
                    ..Refusal::new(EXPORT_REFUSED, &why)
                });
            }
            (_, Some((_, volume))) => {
                drop(exports);
                self.find_bitmaps(&volume);
            }
        }
    }

    /// The export of a name has changed.
    fn refresh(&mut self, name: &str) {
        if self
            .export
            .as_ref()
            .is_some_and(|export| export.name == name)
        {
            let exports = self.service.exports();
            if let Some(export) = exports.get(name) {
                self.core.link.machine.set_export(export.told());
            }
        }
    }

    /// A request ended elsewhere.
    fn reply(&mut self, tag: Tag, answer: NbdReply) {
        match answer {
            NbdReply::Done(data) => {
                let data_len = engine::Elsewhere::put_answer(self, tag, &data);
                let answer = NbdAnswer::Done { data_len };
                self.core.link.machine.complete(tag, answer);
            }
            NbdReply::Failed(error) => self.fail(tag, error),
            NbdReply::Bitmaps(found) => self.core.link.machine.bitmaps(found),
        }
    }

    /// Completes a request with an error.
    #[cold]
    pub(crate) fn fail(&mut self, tag: Tag, error: NbdError) {
        self.core.link.take_data(tag);
        self.core
            .link
            .machine
            .complete(tag, NbdAnswer::Failed(error));
    }
}
