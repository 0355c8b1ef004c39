//! What carries queue pairs.

/// What carries the capsules of a connection (TRTYPE of the discovery log).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// NVMe/TCP.
    #[default]
    Tcp,
    /// NVMe/RDMA over iWARP.
    Rdma,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 2] = [Transport::Tcp, Transport::Rdma];

    /// Whether its connections may speak TLS.
    pub const fn has_tls(self) -> bool {
        matches!(self, Transport::Tcp)
    }
}

/// By which transports hosts connect at a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transports {
    /// By TCP alone.
    #[default]
    Tcp,
    /// By both, on one port.
    Both,
    /// By RDMA alone.
    Rdma,
}

impl Transports {
    /// Whether hosts connect by `transport`.
    pub const fn has(self, transport: Transport) -> bool {
        match transport {
            Transport::Tcp => !matches!(self, Transports::Rdma),
            Transport::Rdma => !matches!(self, Transports::Tcp),
        }
    }
}
