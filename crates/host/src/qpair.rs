//! The machine of a queue, whichever transport it goes over.

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use nvmf::host::{Data, HostOp, HostRole};
use nvmf::rdma::host::{RdmaHostSettings, RdmaQpair};
use nvmf::tcp::host::{Qpair, Settings};
use wire::nvme::{ConnectCommand, Sqe};
use wire::nvme_tcp::ADMIN_IN_CAPSULE_MAX;

use crate::Error;

/// The transport of a queue, and what to agree on there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSettings {
    /// NVMe/TCP: what ICReq asks for.
    Tcp(Settings),
    /// NVMe/RDMA over iWARP.
    Rdma(RdmaHostSettings),
}

impl QueueSettings {
    /// Most data of one command, in bytes: a keyed descriptor has a length of 24 bits.
    pub(crate) fn data_max(self) -> Option<u64> {
        match self {
            QueueSettings::Tcp(_) => None,
            QueueSettings::Rdma(_) => Some((1 << 24) - 1),
        }
    }

    /// In-capsule data of the Admin Queue, in bytes (NVMe/TCP, section 3.3.2.2.1); its
    /// capsules over RDMA have none.
    pub(crate) fn admin_in_capsule_max(self) -> u32 {
        match self {
            QueueSettings::Tcp(_) => ADMIN_IN_CAPSULE_MAX,
            QueueSettings::Rdma(_) => 0,
        }
    }
}

impl From<Settings> for QueueSettings {
    fn from(settings: Settings) -> QueueSettings {
        QueueSettings::Tcp(settings)
    }
}

impl From<RdmaHostSettings> for QueueSettings {
    fn from(settings: RdmaHostSettings) -> QueueSettings {
        QueueSettings::Rdma(settings)
    }
}

/// The host's end of a queue pair.
#[allow(clippy::large_enum_variant)]
pub(crate) enum HostQpair {
    Tcp(Qpair),
    Rdma(RdmaQpair),
}

/// The same call of whichever it is.
macro_rules! either {
    ($self:ident, $qpair:ident => $call:expr) => {
        match $self {
            HostQpair::Tcp($qpair) => $call,
            HostQpair::Rdma($qpair) => $call,
        }
    };
}

impl HostQpair {
    /// The end of a connection made at `now`, for the queue of `connect`, of the controller
    /// `cntlid`. STags follow from `seed`.
    pub(crate) fn new(
        settings: QueueSettings,
        connect: &ConnectCommand,
        cntlid: u16,
        seed: u64,
        now: Nanos,
    ) -> HostQpair {
        match settings {
            QueueSettings::Tcp(settings) => HostQpair::Tcp(Qpair::new(settings)),
            QueueSettings::Rdma(settings) => {
                // An Admin Queue has no controller yet.
                let cntlid = if connect.qid == 0 { 0 } else { cntlid };
                HostQpair::Rdma(RdmaQpair::new(settings, connect, cntlid, seed, now))
            }
        }
    }

    pub(crate) fn attach(&mut self, role: HostRole) {
        either!(self, qpair => qpair.attach(role));
    }

    #[inline]
    pub(crate) fn room(&self) -> u16 {
        either!(self, qpair => qpair.room())
    }

    #[inline]
    pub(crate) fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<Tag> {
        either!(self, qpair => qpair.submit(sqe, data))
    }
}

/// The same of either transport.
fn with_error<E: Into<Error>>(op: HostOp<E>) -> HostOp<Error> {
    match op {
        HostOp::Ready => HostOp::Ready,
        HostOp::Completed { tag, cqe } => HostOp::Completed { tag, cqe },
        HostOp::Fatal(error) => HostOp::Fatal(error.into()),
    }
}

impl Machine for HostQpair {
    type Op = HostOp<Error>;

    #[inline]
    fn tags_max(&self) -> usize {
        either!(self, qpair => qpair.tags_max())
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        either!(self, qpair => qpair.recv_plan())
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        either!(self, qpair => qpair.on_direct(len));
    }

    #[inline]
    fn poll_step(
        &mut self,
        now: Nanos,
        staged: &[u8],
        at: &mut usize,
    ) -> Option<Step<HostOp<Error>>> {
        either!(self, qpair => {
            let step = qpair.poll_step(now, staged, at)?;
            step.filter_map(|op| Some(with_error(op)))
        })
    }

    #[inline]
    fn has_step(&self) -> bool {
        either!(self, qpair => qpair.has_step())
    }

    #[inline]
    fn is_blocked_on(&self, tag: Tag) -> bool {
        either!(self, qpair => qpair.is_blocked_on(tag))
    }

    #[inline]
    fn on_digest(&mut self, tag: Tag, crc: u32) {
        either!(self, qpair => qpair.on_digest(tag, crc));
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        either!(self, qpair => qpair.has_transmit())
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        either!(self, qpair => qpair.poll_transmit(out));
    }

    fn is_finished(&self) -> bool {
        either!(self, qpair => qpair.is_finished())
    }

    fn deadline(&self) -> Option<Nanos> {
        either!(self, qpair => qpair.deadline())
    }

    fn on_deadline(&mut self, now: Nanos) {
        either!(self, qpair => qpair.on_deadline(now));
    }
}
