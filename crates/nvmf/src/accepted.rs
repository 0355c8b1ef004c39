//! The controller's end of a connection whose first byte says what carries it.

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iwarp::MPA_REQUEST_KEY;

use crate::queue::{ControllerEnd, Op, Queue};
use crate::rdma::QpCounts;
use crate::rdma::controller::{self as rdma, RdmaError, RdmaSettings};
use crate::tcp::FatalError;
use crate::tcp::controller as tcp;
use crate::transport::{Transport, Transports};

/// What the queue pairs of a listener may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpairSettings {
    /// By which hosts are served; others are refused.
    pub transports: Transports,
    /// Of NVMe/TCP.
    pub tcp: tcp::Settings,
    /// Of NVMe/RDMA.
    pub rdma: RdmaSettings,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QpairError {
    /// NVMe/TCP.
    #[error(transparent)]
    Tcp(#[from] FatalError),
    /// NVMe/RDMA.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// The listener serves no hosts by TCP.
    #[error("NVMe/TCP refused: the listener is for NVMe/RDMA alone (`rdma = \"only\"`)")]
    TcpNotServed,
}

/// Work for the driver.
pub type QpairOp = Op<QpairError>;

/// A machine of either transport.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // most connections are of the first
enum Carrier {
    Tcp(tcp::Qpair),
    Rdma(Box<rdma::Qpair>),
}

/// What an RDMA machine is made of, until the first byte has come.
#[derive(Debug)]
struct Undecided {
    settings: QpairSettings,
    seed: u64,
    accepted: Nanos,
    is_encrypted: bool,
}

/// The controller's end of a connection. It is one of NVMe/TCP until its first byte says
/// that an MPA Request comes.
#[derive(Debug)]
pub struct AcceptedQpair {
    carrier: Carrier,
    undecided: Option<Box<Undecided>>,
}

macro_rules! each {
    ($self:ident, $machine:ident => $call:expr) => {
        match &$self.carrier {
            Carrier::Tcp($machine) => $call,
            Carrier::Rdma($machine) => $call,
        }
    };
    (mut $self:ident, $machine:ident => $call:expr) => {
        match &mut $self.carrier {
            Carrier::Tcp($machine) => $call,
            Carrier::Rdma($machine) => $call,
        }
    };
}

impl AcceptedQpair {
    /// The machine of a connection accepted at `now`. STags follow from `seed`, which is
    /// random.
    pub fn new(settings: QpairSettings, seed: u64, now: Nanos) -> AcceptedQpair {
        let undecided = Undecided {
            settings,
            seed,
            accepted: now,
            is_encrypted: false,
        };
        AcceptedQpair {
            carrier: Carrier::Tcp(tcp::Qpair::new(settings.tcp, now)),
            undecided: Some(Box::new(undecided)),
        }
    }

    /// What carries it, as far as is known.
    #[inline]
    pub fn transport(&self) -> Transport {
        match self.carrier {
            Carrier::Tcp(_) => Transport::Tcp,
            Carrier::Rdma(_) => Transport::Rdma,
        }
    }

    /// Whether headers are covered by a digest: with RDMA, by CRCs of MPA.
    pub fn header_digest(&self) -> bool {
        match &self.carrier {
            Carrier::Tcp(tcp) => tcp.header_digest(),
            Carrier::Rdma(rdma) => rdma.has_crc(),
        }
    }

    /// Whether payload is.
    pub fn data_digest(&self) -> bool {
        match &self.carrier {
            Carrier::Tcp(tcp) => tcp.data_digest(),
            Carrier::Rdma(rdma) => rdma.has_crc(),
        }
    }

    /// What the stream of NVMe/RDMA has moved; `None` of NVMe/TCP.
    #[inline]
    pub fn rdma_counts(&self) -> Option<QpCounts> {
        match &self.carrier {
            Carrier::Tcp(_) => None,
            Carrier::Rdma(rdma) => Some(rdma.counts()),
        }
    }

    /// All that follows is in TLS, which carries NVMe/TCP alone: no peer speaks MPA in it.
    pub fn secured(&mut self) {
        if let Some(undecided) = &mut self.undecided {
            undecided.is_encrypted = true;
        }
    }

    /// The answer to [`Op::QueueAsked`]: whether the host may have a controller of that ID.
    pub fn answer_queue(&mut self, is_known: bool) {
        if let Carrier::Rdma(rdma) = &mut self.carrier {
            rdma.answer_queue(is_known);
        }
    }

    /// The first byte of `bytes` is the connection's.
    #[cold]
    fn decide(&mut self, bytes: &[u8]) -> Option<QpairOp> {
        let Undecided {
            settings,
            seed,
            accepted,
            is_encrypted,
        } = *self.undecided.take()?;
        let serves = |transport| settings.transports.has(transport);
        if bytes[0] == MPA_REQUEST_KEY[0] {
            let mut machine = rdma::Qpair::new(settings.rdma, seed, accepted);
            if !serves(Transport::Rdma) {
                machine.refuse(RdmaError::NotServed);
            } else if is_encrypted {
                machine.refuse(RdmaError::InTls);
            }
            self.carrier = Carrier::Rdma(Box::new(machine));
        } else if !serves(Transport::Tcp)
            && let Carrier::Tcp(tcp) = &mut self.carrier
        {
            tcp.refuse(bytes);
            return Some(Op::Fatal(QpairError::TcpNotServed));
        }
        None
    }
}

impl ControllerEnd for AcceptedQpair {
    #[inline]
    fn queue(&self) -> &Queue {
        each!(self, machine => machine.queue())
    }

    #[inline]
    fn queue_mut(&mut self) -> &mut Queue {
        each!(mut self, machine => machine.queue_mut())
    }

    #[inline]
    fn prepared(&mut self, tag: Tag) {
        each!(mut self, machine => machine.prepared(tag));
    }

    #[inline]
    fn stop_withdrawn(&mut self) {
        each!(mut self, machine => machine.stop_withdrawn());
    }
}

impl Machine for AcceptedQpair {
    type Op = QpairOp;

    #[inline]
    fn tags_max(&self) -> usize {
        each!(self, machine => machine.tags_max())
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        each!(self, machine => machine.recv_plan())
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        each!(mut self, machine => machine.on_direct(len));
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<QpairOp>> {
        if self.undecided.is_some()
            && *at < staged.len()
            && let Some(op) = self.decide(&staged[*at..])
        {
            *at = staged.len();
            return Some(Step::Op(op));
        }
        match &mut self.carrier {
            Carrier::Tcp(tcp) => {
                let step = tcp.poll_step(now, staged, at)?;
                step.filter_map(|op| Some(op.map_fatal(QpairError::Tcp)))
            }
            Carrier::Rdma(rdma) => {
                let step = rdma.poll_step(now, staged, at)?;
                step.filter_map(|op| Some(op.map_fatal(QpairError::Rdma)))
            }
        }
    }

    #[inline]
    fn has_step(&self) -> bool {
        each!(self, machine => machine.has_step())
    }

    #[inline]
    fn is_blocked_on(&self, tag: Tag) -> bool {
        each!(self, machine => machine.is_blocked_on(tag))
    }

    #[inline]
    fn on_digest(&mut self, tag: Tag, crc: u32) {
        each!(mut self, machine => machine.on_digest(tag, crc));
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        each!(self, machine => machine.has_transmit())
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        each!(mut self, machine => machine.poll_transmit(out));
    }

    #[inline]
    fn is_finished(&self) -> bool {
        each!(self, machine => machine.is_finished())
    }

    fn deadline(&self) -> Option<Nanos> {
        each!(self, machine => machine.deadline())
    }

    fn on_deadline(&mut self, now: Nanos) {
        each!(mut self, machine => machine.on_deadline(now));
    }
}
