//! What connections by RDMA have moved, and how they have ended.

use nvmf::accepted::QpairError;
use nvmf::rdma::controller::RdmaError;

use super::NvmeConnection;

impl NvmeConnection {
    /// Counts what has moved since the last time.
    #[inline]
    pub(crate) fn count_rdma(&mut self) {
        if let Some(now) = self.core.link.machine.rdma_counts() {
            self.rdma.note(now);
        }
    }

    /// Counts how its stream ends.
    pub(crate) fn count_end(&self, why: &QpairError) {
        if let QpairError::Rdma(RdmaError::Stream(why)) = why {
            self.service.terminates.note(why);
        }
    }
}
