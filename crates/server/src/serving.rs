//! The protocols that there are, and what a reactor has of each. A new one is added here,
//! and to what is shared.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use engine::AnyConnection;
use engine::fence::Scope;
use engine::hosts::HostPlace;
use engine::job::{Jobs, Older};
use engine::{
    Connection as _, ConnectionEvent, ConnectionId, ConnectionLife, FirstBytes, Has, JobId,
    Protocol as _, Protocols, Via,
};
use iscsi::accepted::IserSettings;
use link::{HandshakeDone, Stream};
use machine::Nanos;
use mem::Pool;
use nvmf::accepted::QpairSettings;
use nvmf::queue::ControllerEnd as _;
use nvmf::rdma::controller::RdmaSettings;
use nvmf::rdma::{QpSettings, StreamCounts, ulpdu_max};
use nvmf::transport::Transport;
use reactor::{Driver, Received};
use store::Volume;
use store::meter::PROTOCOLS_MAX;

use crate::config::{Limits, Protocol, RdmaSpec};
use crate::connection_info::{ConnectionInfo, ConnectionRole, ConnectionsAsked};
use crate::report::Report;
use crate::shared::{ServerMail, Shared};
use crate::start::handshake_timeout;

/// One reactor's share of the target.
pub type Shard = engine::Shard<Serving>;

/// A connection of whichever protocol; the branch is mostly the same.
pub enum ServedConnection {
    /// A queue pair of NVMe.
    Nvme(Box<serve_nvme::NvmeConnection>),
    /// Of a session of iSCSI.
    Iscsi(Box<serve_iscsi::IscsiConnection>),
    /// Of NFS.
    Nfs(Box<serve_nfs::NfsConnection>),
    /// Of NBD.
    Nbd(Box<serve_nbd::NbdConnection>),
}

/// Places of its table that a reactor looks at in one turn for who asks.
const PLACES_IN_TURN: usize = 256;

/// The numbers of protocols, and of the tables of jobs of a reactor.
const NVME: u32 = 0;
const ISCSI: u32 = 1;
pub(crate) const NFS: u32 = 2;
const NBD: u32 = 3;

/// What protocols are called in metrics, by their numbers.
pub(crate) const PROTOCOLS: [&str; PROTOCOLS_MAX] = ["nvme-tcp", "iscsi", "nfs", "nbd"];

/// What the connections of one reactor share.
pub struct Serving {
    pub(crate) shared: Arc<Shared>,
    /// Jobs that there were.
    marks: Rc<Cell<u64>>,
    nvme: Rc<serve_nvme::Local>,
    iscsi: Rc<serve_iscsi::Local>,
    nfs: Rc<serve_nfs::Local>,
    nbd: Rc<serve_nbd::NbdLocal>,
    /// Streams by RDMA.
    streams: StreamCounts,
}

impl From<Arc<Shared>> for Serving {
    fn from(shared: Arc<Shared>) -> Serving {
        let marks = Rc::new(Cell::new(0));
        let nvme = Jobs::new(NVME, marks.clone());
        let iscsi = Jobs::new(ISCSI, marks.clone());
        let nfs = Jobs::new(NFS, marks.clone());
        let nbd = Jobs::new(NBD, marks.clone());
        let streams = StreamCounts::default();
        Serving {
            nvme: Rc::new(serve_nvme::Local::new(
                shared.nvme.clone(),
                nvme,
                streams.clone(),
            )),
            iscsi: Rc::new(serve_iscsi::Local::new(
                shared.iscsi.clone(),
                iscsi,
                streams.clone(),
            )),
            nfs: Rc::new(serve_nfs::Local::new(
                shared.nfs.clone(),
                nfs,
                streams.clone(),
            )),
            nbd: Rc::new(serve_nbd::NbdLocal::new(shared.nbd.clone(), nbd)),
            streams,
            marks,
            shared,
        }
    }
}

macro_rules! has {
    ($protocol:ident :: $connection:ident, $kind:ident, $local:ident) => {
        impl Has<$protocol::$connection> for Serving {
            fn local(&self) -> &Rc<<$protocol::$connection as engine::Protocol>::Local> {
                &self.$local
            }

            #[inline]
            fn of(connection: &mut ServedConnection) -> Option<&mut $protocol::$connection> {
                match connection {
                    ServedConnection::$kind(connection) => Some(connection),
                    _ => None,
                }
            }

            fn any(connection: $protocol::$connection) -> ServedConnection {
                ServedConnection::$kind(Box::new(connection))
            }
        }
    };
}

has!(serve_nvme::NvmeConnection, Nvme, nvme);
has!(serve_iscsi::IscsiConnection, Iscsi, iscsi);
has!(serve_nfs::NfsConnection, Nfs, nfs);
has!(serve_nbd::NbdConnection, Nbd, nbd);

/// The same of the jobs of each protocol.
macro_rules! all_jobs {
    ($self:ident, $jobs:ident => $each:expr) => {
        [
            {
                let $jobs = serve_nvme::NvmeConnection::jobs(&$self.nvme);
                $each
            },
            {
                let $jobs = serve_iscsi::IscsiConnection::jobs(&$self.iscsi);
                $each
            },
            {
                let $jobs = serve_nfs::NfsConnection::jobs(&$self.nfs);
                $each
            },
            {
                let $jobs = serve_nbd::NbdConnection::jobs(&$self.nbd);
                $each
            },
        ]
    };
}

impl Protocols for Serving {
    type Connection = ServedConnection;
    type Mail = ServerMail;
    type Report = Report;

    fn shared(&self) -> &Arc<engine::Shared> {
        &self.shared.engine
    }

    fn begin(&self, now: Nanos) {
        self.shared.nfs.begin(now);
    }

    fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.shared.volumes()
    }

    fn is_listening(&self, listener: u16) -> bool {
        self.shared.state().listeners.contains_key(&listener)
    }

    fn first_bytes(&self, listener: u16) -> FirstBytes {
        let state = self.shared.state();
        let open = state.listeners.get(&listener);
        let spoken = open.map(|open| (open.spec.protocol, open.spec.requires_tls));
        drop(state);
        match spoken {
            Some((Protocol::NvmeTcp, requires_tls)) => {
                let terms = serve_nvme::handshake_terms(&self.shared.nvme, requires_tls);
                FirstBytes::Tls(terms)
            }
            Some((Protocol::Nbd, _)) => FirstBytes::Server,
            Some((Protocol::Iscsi | Protocol::Nfs, _)) | None => FirstBytes::Plain,
        }
    }

    fn open(
        &self,
        id: ConnectionId,
        stream: Stream,
        came: (Via, HostPlace),
        pool: &Pool,
        now: Nanos,
    ) -> ServedConnection {
        let state = self.shared.state();
        let listener = state.listeners.get(&came.0.listener);
        let requires_tls = listener.is_some_and(|listener| listener.spec.requires_tls);
        let spoken = listener.map(|listener| (listener.spec.protocol, listener.spec.rdma));
        drop(state);
        let (stream, here) = ((id, stream), (pool, now));
        // One that came as its listener went is closed soon.
        let (protocol, rdma) = spoken.unwrap_or_default();
        match protocol {
            Protocol::NvmeTcp => {
                let settings = qpair_settings(&self.shared.limits, rdma);
                Serving::any(serve_nvme::open((&self.nvme, settings), stream, came, here))
            }
            Protocol::Iscsi => {
                let rdma = iscsi_rdma(&self.shared.limits, rdma);
                Serving::any(serve_iscsi::open((&self.iscsi, rdma), stream, came, here))
            }
            Protocol::Nfs => {
                let rdma = nfs_rdma(&self.shared.limits, rdma);
                Serving::any(serve_nfs::open((&self.nfs, rdma), stream, came, here))
            }
            Protocol::Nbd => {
                let nbd = (&*self.nbd, requires_tls);
                Serving::any(serve_nbd::open(nbd, stream, came, here))
            }
        }
    }

    fn mark(&self) -> u64 {
        self.marks.get()
    }

    fn orphans(&self) -> usize {
        all_jobs!(self, jobs => jobs.borrow().orphans())
            .iter()
            .sum()
    }

    #[inline]
    fn discard(&self) -> bool {
        all_jobs!(self, jobs => jobs.borrow_mut().discard()).contains(&true)
    }

    fn holds(&self, scope: &Scope, older: &mut Older, left: &mut usize) -> bool {
        all_jobs!(self, jobs => jobs.borrow().holds(scope, older, left)).contains(&true)
    }

    #[inline]
    fn owner(&self, job: JobId) -> Option<ConnectionId> {
        match job.table() {
            NVME => serve_nvme::NvmeConnection::jobs(&self.nvme)
                .borrow()
                .owner(job),
            ISCSI => serve_iscsi::IscsiConnection::jobs(&self.iscsi)
                .borrow()
                .owner(job),
            NFS => serve_nfs::NfsConnection::jobs(&self.nfs)
                .borrow()
                .owner(job),
            _ => serve_nbd::NbdConnection::jobs(&self.nbd)
                .borrow()
                .owner(job),
        }
    }

    #[inline]
    fn take_due(&self) -> Option<ConnectionId> {
        self.iscsi.take_due()
    }

    #[inline]
    fn has_due(&self) -> bool {
        self.iscsi.has_due()
    }

    #[inline]
    fn on_file<D: Driver>(shard: &mut Shard, job: JobId, result: io::Result<u32>, driver: &mut D) {
        match job.table() {
            NVME => shard.end_file_work::<serve_nvme::NvmeConnection, D>(driver, job, result),
            ISCSI => shard.end_file_work::<serve_iscsi::IscsiConnection, D>(driver, job, result),
            NFS => shard.end_file_work::<serve_nfs::NfsConnection, D>(driver, job, result),
            _ => shard.end_file_work::<serve_nbd::NbdConnection, D>(driver, job, result),
        }
    }

    fn on_mail<D: Driver>(shard: &mut Shard, mail: ServerMail, driver: &mut D) {
        match mail {
            ServerMail::Shard(mail) => shard.on_shard_mail(driver, mail),
            ServerMail::Nvme(mail) => {
                shard.on_protocol_mail::<serve_nvme::NvmeConnection, D>(driver, mail);
            }
            ServerMail::Iscsi(mail) => {
                shard.on_protocol_mail::<serve_iscsi::IscsiConnection, D>(driver, mail);
            }
            ServerMail::Nfs(mail) => {
                shard.on_protocol_mail::<serve_nfs::NfsConnection, D>(driver, mail)
            }
            ServerMail::Nbd(mail) => {
                shard.on_protocol_mail::<serve_nbd::NbdConnection, D>(driver, mail);
            }
            ServerMail::Report(to) => shard.report_to(to),
            ServerMail::Connections(asked, first) => {
                tell_connections(shard, asked, first, driver.now())
            }
        }
    }

    fn on_tick<D: Driver>(shard: &mut Shard, now: Nanos, driver: &mut D) {
        shard.server.shared.iscsi.watch_space(now);
        serve_nfs::on_tick(&shard.server.nfs, now, driver);
    }

    fn report<D: Driver>(shard: &Shard, driver: &D) -> Report {
        Report {
            orphans: shard.server.orphans() as u64,
            nfs_calls: shard.server.nfs.calls(),
            authentications: shard.server.nvme.authentications(),
            rdma: shard.server.streams.get(),
            turn_units_max: shard.turn_units_max(),
            connections: shard.open_connections() as u64,
            ticks: shard.ticks(),
            ..Report::of_this_reactor(driver)
        }
    }
}

/// What a queue pair may do that comes by a listener with this of RDMA.
fn qpair_settings(limits: &Limits, rdma: RdmaSpec) -> QpairSettings {
    let handshake_timeout = handshake_timeout(limits);
    QpairSettings {
        transports: rdma.transports,
        tcp: nvmf::tcp::controller::Settings {
            in_capsule_max: limits.in_capsule_bytes_max,
            maxh2cdata: limits.h2c_data_bytes_max,
            cpda: limits.cpda,
            io_bytes_max: limits.io_bytes_max,
            header_digest: limits.header_digest,
            data_digest: limits.data_digest,
            handshake_timeout,
            ..Default::default()
        },
        rdma: RdmaSettings {
            stream: QpSettings {
                tags_max: limits.queue_entries_max.into(),
                ..stream_settings(limits, rdma)
            },
            in_capsule_max: limits.in_capsule_bytes_max,
            io_bytes_max: limits.io_bytes_max,
            entries_max: limits.queue_entries_max,
            qid_max: limits.io_queues_max,
        },
    }
}

/// What an initiator of iSCSI may do by RDMA, if it may come so.
fn iscsi_rdma(limits: &Limits, rdma: RdmaSpec) -> Option<IserSettings> {
    let settings = IserSettings {
        stream: stream_settings(limits, rdma),
        takes_tcp: !rdma.is_only(),
    };
    rdma.transports.has(Transport::Rdma).then_some(settings)
}

/// What a client of NFS may do by RDMA, if it may come so.
fn nfs_rdma(limits: &Limits, rdma: RdmaSpec) -> Option<serve_nfs::RdmaSettings> {
    let settings = serve_nfs::RdmaSettings {
        stream: stream_settings(limits, rdma),
        takes_records: !rdma.is_only(),
        ..serve_nfs::RdmaSettings::default()
    };
    rdma.transports.has(Transport::Rdma).then_some(settings)
}

/// What a stream of iWARP may do that comes by a listener with this of RDMA.
fn stream_settings(limits: &Limits, rdma: RdmaSpec) -> QpSettings {
    QpSettings {
        crc: rdma.crc,
        ird_max: rdma.reads_max,
        ord_max: rdma.reads_max,
        ulpdu_max: ulpdu_max(rdma.fpdu_bytes_max.min(u16::MAX.into()) as u16),
        handshake_timeout: handshake_timeout(limits),
        ..QpSettings::default()
    }
}

/// The reactor tells of some of its connections, and of the others in later turns.
fn tell_connections(shard: &Shard, asked: Arc<ConnectionsAsked>, first: usize, now: Nanos) {
    let mut list = Vec::new();
    let mut is_full = false;
    let next = shard.look_at(first, PLACES_IN_TURN, |connection, life| {
        let info = connection.info(life, now);
        if !is_full && (asked.is_wanted)(&info) {
            is_full = !asked.take_place();
            list.push(info);
        }
    });
    let next = next.filter(|_| !is_full);
    // The one that asked may have given up waiting.
    let is_heard = asked.to.send((list, next.is_none())).is_ok();
    if let Some(next) = next.filter(|_| is_heard) {
        let mail = ServerMail::Connections(asked, next);
        shard.server.shared.send(shard.number(), mail);
    }
}

/// What is told of a queue pair.
fn queue_info(c: &serve_nvme::NvmeConnection, life: ConnectionLife, now: Nanos) -> ConnectionInfo {
    let machine = &c.core().link.machine;
    let (queue, role) = match c.queue() {
        None => (None, ConnectionRole::Stranger),
        Some(queue) => {
            let (cntlid, qid, entries) = (queue.cntlid, queue.qid, queue.entries);
            let role = ConnectionRole::Queue {
                cntlid,
                qid,
                entries,
                is_authenticated: queue.is_authenticated,
            };
            (Some((queue.host, queue.subsystem)), role)
        }
    };
    let (host, target) = queue.unzip();
    ConnectionInfo {
        base: c.core().info(life, now),
        protocol: Protocol::NvmeTcp,
        is_rdma: machine.transport() == Transport::Rdma,
        host,
        target,
        in_flight: machine.queue().in_flight(),
        header_digest: machine.header_digest(),
        data_digest: machine.data_digest(),
        role,
    }
}

impl ServedConnection {
    fn info(&self, life: ConnectionLife, now: Nanos) -> ConnectionInfo {
        match self {
            ServedConnection::Nvme(c) => queue_info(c, life, now),
            ServedConnection::Iscsi(c) => {
                let machine = &c.core().link.machine;
                let (host, target) = c.names();
                let role = c.session_place().map(|place| ConnectionRole::Session {
                    tsih: place.tsih,
                    cid: place.cid,
                    is_discovery: place.kind == iscsi::SessionKind::Discovery,
                });
                ConnectionInfo {
                    base: c.core().info(life, now),
                    protocol: Protocol::Iscsi,
                    is_rdma: machine.is_rdma(),
                    host: host.map(str::to_owned),
                    target: target.map(str::to_owned),
                    in_flight: machine.in_flight(),
                    header_digest: machine.header_digest(),
                    data_digest: machine.data_digest(),
                    role: role.unwrap_or(ConnectionRole::Stranger),
                }
            }
            ServedConnection::Nfs(c) => ConnectionInfo {
                base: c.core().info(life, now),
                protocol: Protocol::Nfs,
                is_rdma: c.core().link.machine.is_rdma(),
                host: c.names().0.map(str::to_owned),
                target: None,
                in_flight: c.core().link.machine.executing(),
                header_digest: false,
                data_digest: false,
                role: match c.is_stranger() {
                    true => ConnectionRole::Stranger,
                    false => ConnectionRole::Nfs(c.client()),
                },
            },
            ServedConnection::Nbd(c) => ConnectionInfo {
                base: c.core().info(life, now),
                protocol: Protocol::Nbd,
                is_rdma: false,
                host: None,
                target: c.names().1.map(str::to_owned),
                in_flight: c.core().link.machine.in_flight(),
                header_digest: false,
                data_digest: false,
                role: match c.is_stranger() {
                    true => ConnectionRole::Stranger,
                    false => ConnectionRole::Nbd,
                },
            },
        }
    }
}

macro_rules! each {
    ($self:ident, $connection:ident => $call:expr) => {
        match $self {
            ServedConnection::Nvme($connection) => $call,
            ServedConnection::Iscsi($connection) => $call,
            ServedConnection::Nfs($connection) => $call,
            ServedConnection::Nbd($connection) => $call,
        }
    };
}

impl AnyConnection for ServedConnection {
    fn via(&self) -> &Via {
        each!(self, c => &c.core().via)
    }

    #[inline]
    fn dirty(&mut self) -> &mut bool {
        each!(self, c => &mut c.core_mut().dirty)
    }

    #[inline]
    fn is_gone(&self) -> bool {
        each!(self, c => c.core().is_gone())
    }

    fn has_socket(&self) -> bool {
        each!(self, c => c.core().has_socket())
    }

    #[inline]
    fn is_waiting(&self) -> bool {
        each!(self, c => c.core().is_waiting())
    }

    #[inline]
    fn has_more(&self) -> bool {
        each!(self, c => c.core().has_more())
    }

    #[inline]
    fn wakes_at(&self) -> Option<Nanos> {
        each!(self, c => c.core().wakes_at())
    }

    #[inline]
    fn host(&self) -> u64 {
        each!(self, c => c.core().host())
    }

    fn is_stranger(&self) -> bool {
        each!(self, c => c.is_stranger())
    }

    #[inline]
    fn on_received<D: Driver>(&mut self, result: io::Result<Received>, driver: &mut D) {
        each!(self, c => c.on_received(result, driver));
    }

    fn on_handshake<D: Driver>(&mut self, done: HandshakeDone, driver: &mut D) {
        each!(self, c => c.on_handshake(done, driver));
    }

    fn give_way<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.give_way(driver));
    }

    #[inline]
    fn on_sent<D: Driver>(&mut self, result: io::Result<()>, driver: &mut D) {
        each!(self, c => c.on_sent(result, driver));
    }

    #[inline]
    fn on_turn<D: Driver>(&mut self, driver: &mut D) -> bool {
        each!(self, c => c.on_turn(driver))
    }

    fn on_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        each!(self, c => c.on_tick(now, driver));
    }

    fn next_tick(&self) -> Option<Nanos> {
        each!(self, c => c.next_tick())
    }

    fn resume<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.resume(driver));
    }

    fn dismiss<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.on_event(ConnectionEvent::Dismissed, driver));
    }

    fn close<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.close(driver));
    }

    fn on_closed(&mut self) {
        each!(self, c => c.core_mut().on_closed());
    }

    fn removed<D: Driver>(&mut self, driver: &mut D) {
        each!(self, c => c.on_event(ConnectionEvent::Removed, driver));
    }
}
