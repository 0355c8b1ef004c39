//! What connections by RDMA have moved, counted for their reactor.

use std::cell::Cell;
use std::rc::Rc;

use nvmf::accepted::QpairError;
use nvmf::rdma::QpCounts;
use nvmf::rdma::controller::RdmaError;

use super::NvmeConnection;

/// Of all connections of a reactor that there are or were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaCounts {
    /// FPDUs of iWARP that have come.
    pub fpdus_received: u64,
    /// FPDUs that were sent, Terminates not counted.
    pub fpdus_sent: u64,
    /// RDMA Reads whose response has not come.
    pub reads: u64,
}

/// What of it a connection has been counted for.
#[derive(Debug, Default)]
pub(crate) struct RdmaCounted {
    own: QpCounts,
    /// Of its reactor.
    pub(crate) all: Rc<Cell<RdmaCounts>>,
}

impl RdmaCounted {
    pub(crate) fn new(all: &Rc<Cell<RdmaCounts>>) -> RdmaCounted {
        RdmaCounted {
            own: QpCounts::default(),
            all: all.clone(),
        }
    }

    fn note(&mut self, now: QpCounts) {
        let before = std::mem::replace(&mut self.own, now);
        let mut all = self.all.get();
        all.fpdus_received += now.fpdus_received - before.fpdus_received;
        all.fpdus_sent += now.fpdus_sent - before.fpdus_sent;
        all.reads = all.reads + now.reads - before.reads;
        self.all.set(all);
    }
}

impl NvmeConnection {
    /// Counts what has moved since the last time.
    #[inline]
    pub(crate) fn count_rdma(&mut self) {
        if let Some(now) = self.core.link.machine.rdma_counts() {
            self.rdma.note(now);
        }
    }

    /// The connection is gone: none of its reads is under way.
    pub(crate) fn end_rdma(&mut self) {
        self.count_rdma();
        let own = QpCounts {
            reads: 0,
            ..self.rdma.own
        };
        self.rdma.note(own);
    }

    /// Counts how its stream ends.
    pub(crate) fn count_end(&self, why: &QpairError) {
        if let QpairError::Rdma(RdmaError::Stream(why)) = why {
            self.service.terminates.note(why);
        }
    }
}
