//! What carries connections.

/// What carries the PDUs of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// TCP.
    #[default]
    Tcp,
    /// RDMA over iWARP: iSER (RFC 7145).
    Rdma {
        /// CRCs of MPA cover all of it.
        has_crc: bool,
    },
}

impl Carrier {
    /// Whether it is RDMA.
    #[inline]
    pub fn is_rdma(self) -> bool {
        matches!(self, Carrier::Rdma { .. })
    }
}
