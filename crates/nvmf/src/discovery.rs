//! The discovery log as one host sees it (NVM Express Base Specification 2.0,
//! section 5.16.1.23).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use machine::work;
use wire::nvme::discovery::{
    ADRFAM_IPV4, ADRFAM_IPV6, DISCOVERY_NQN, EFLAGS_EPCSD, LogEntry, LogHeader, RDMA_CMS_RDMA_CM,
    RDMA_PRTYPE_IWARP, RDMA_QPTYPE_CONNECTED, SECTYPE_TLS_1_3, SUBTYPE_CURRENT, SUBTYPE_NVM,
    SUBTYPE_REFERRAL, TREQ_SECURE_CHANNEL_REQUIRED, TREQ_SQ_FLOW_CONTROL_DISABLE, TRTYPE_RDMA,
    TRTYPE_TCP,
};
use wire::nvme::fabrics::nqn_field;
use wire::nvme::identify::{ascii, zeroed};
use zerocopy::IntoBytes;

use crate::subsystem::ADMIN_ENTRIES_MAX;
use crate::subsystem::{ListenerSpec, Referral, Subsystem};
use crate::transport::Transport;

const HEADER_BYTES: usize = size_of::<LogHeader>();
const ENTRY_BYTES: usize = size_of::<LogEntry>();

/// A listener as a host reaches it by one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// Number of the listener.
    pub number: u16,
    host: String,
    port: u16,
    discovery_only: bool,
    requires_tls: bool,
    transport: Transport,
    /// The host came in here.
    is_current: bool,
}

impl Port {
    /// Whether a subsystem is reached here by a host that needs TLS for it, or does not.
    /// TLS is for NVMe/TCP.
    pub fn serves(&self, subsystem: &Subsystem, needs_tls: bool) -> bool {
        let is_carried = self.transport == Transport::Tcp || !needs_tls;
        is_carried && !self.discovery_only && subsystem.is_on(self.number)
    }
}

/// The listeners as a host reaches them that came in through listener and transport
/// `current` and reached us at `local`; each address once for each transport.
pub(crate) fn ports(
    listeners: &[ListenerSpec],
    current: (u16, Transport),
    local: SocketAddr,
) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    let by_transport = listeners.iter().flat_map(|listener| {
        let all = Transport::ALL.into_iter();
        let own = all.filter(|transport| listener.transports.has(*transport));
        own.map(move |transport| (listener, transport))
    });
    for (listener, transport) in by_transport {
        let Some((host, port)) = reachable(listener, local.ip().to_canonical()) else {
            continue;
        };
        let is_current = (listener.number, transport) == current;
        let known = ports
            .iter_mut()
            .find(|known| known.host == host && known.port == port && known.transport == transport);
        let found = Port {
            number: listener.number,
            host,
            port,
            discovery_only: listener.discovery_only,
            requires_tls: listener.requires_tls,
            transport,
            is_current,
        };
        match known {
            None => ports.push(found),
            // Where one address is that of several, it is the one that was used.
            Some(known) if is_current => *known = found,
            Some(_) => {}
        }
    }
    ports
}

/// Where a host that reached us at `local` reaches `listener`: a wildcard stands
/// for the very address it used; an address of the other family behind a
/// wildcard is unknown, and loopback is of use to local hosts only.
fn reachable(listener: &ListenerSpec, local: IpAddr) -> Option<(String, u16)> {
    let (ip, port) = (
        listener.address.ip().to_canonical(),
        listener.address.port(),
    );
    if let Some(advertise) = &listener.advertise {
        return Some((advertise.host.clone(), advertise.port.unwrap_or(port)));
    }
    if ip.is_unspecified() {
        let serves = ip.is_ipv6() || local.is_ipv4();
        return serves.then(|| (local.to_string(), port));
    }
    if ip.is_loopback() && !local.is_loopback() {
        return None;
    }
    Some((ip.to_string(), port))
}

/// One entry, before it is written.
enum LogRecord<'a> {
    /// The discovery subsystem itself, where the host reached it.
    Current(&'a Port),
    Nvm(&'a ServedAt, &'a Port),
    Referral(&'a Referral),
}

/// A subsystem where it is served.
#[derive(Debug)]
struct ServedAt {
    subsystem: Arc<Subsystem>,
    /// Index of the port.
    port: usize,
    /// The host connects by TLS alone.
    needs_tls: bool,
}

/// The subsystems that a host may see, at the addresses where it can reach them.
#[derive(Debug, Default)]
pub(crate) struct DiscoveryLog {
    generation: u64,
    ports: Vec<Port>,
    current: Option<usize>,
    served: Vec<ServedAt>,
    referrals: Vec<Referral>,
}

impl DiscoveryLog {
    /// The log of the subsystems that are `visible` to `hostnqn` at `ports`.
    pub fn new<'a>(
        generation: u64,
        hostnqn: &str,
        visible: impl Iterator<Item = &'a Arc<Subsystem>>,
        ports: Vec<Port>,
        referrals: &[Referral],
    ) -> Self {
        let mut served = Vec::new();
        for subsystem in visible {
            work::spend(ports.len() as u64);
            let of_host = subsystem.needs_tls(hostnqn);
            let at = (0..ports.len()).filter(|index| ports[*index].serves(subsystem, of_host));
            served.extend(at.map(|port| ServedAt {
                subsystem: subsystem.clone(),
                port,
                needs_tls: of_host || ports[port].requires_tls,
            }));
        }
        DiscoveryLog {
            generation,
            current: ports.iter().position(|port| port.is_current),
            ports,
            served,
            referrals: referrals.to_vec(),
        }
    }

    /// Whether it says what a log of that generation says; one that was never made
    /// does not.
    pub fn is_of(&self, generation: u64) -> bool {
        self.generation == generation
    }

    /// Bytes of the whole log.
    pub fn len(&self) -> u64 {
        (HEADER_BYTES + self.entries() * ENTRY_BYTES) as u64
    }

    fn entries(&self) -> usize {
        usize::from(self.current.is_some()) + self.served.len() + self.referrals.len()
    }

    /// Writes the log from byte `offset`; what lies past its end is zeros. Only
    /// the entries asked for are made, so that reading in pieces stays linear.
    pub fn write(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        let mut header: LogHeader = zeroed();
        header.genctr = self.generation.into();
        header.numrec = (self.entries() as u64).into();
        copy_window(header.as_bytes(), 0, offset, out);
        let end = offset
            .saturating_add(out.len() as u64)
            .saturating_sub(HEADER_BYTES as u64);
        let first = offset.saturating_sub(HEADER_BYTES as u64) / ENTRY_BYTES as u64;
        let last = end.div_ceil(ENTRY_BYTES as u64).min(self.entries() as u64);
        for index in first..last {
            work::spend(1);
            let entry = encode(&self.entry(index as usize));
            let at = HEADER_BYTES as u64 + index * ENTRY_BYTES as u64;
            copy_window(entry.as_bytes(), at, offset, out);
        }
    }

    fn entry(&self, index: usize) -> LogRecord<'_> {
        let mut index = index;
        if let Some(current) = self.current {
            if index == 0 {
                return LogRecord::Current(&self.ports[current]);
            }
            index -= 1;
        }
        match self.served.get(index) {
            Some(served) => LogRecord::Nvm(served, &self.ports[served.port]),
            None => LogRecord::Referral(&self.referrals[index - self.served.len()]),
        }
    }
}

fn encode(entry: &LogRecord<'_>) -> LogEntry {
    let needs_tls = match *entry {
        LogRecord::Current(port) => port.requires_tls,
        LogRecord::Nvm(served, _) => served.needs_tls,
        LogRecord::Referral(_) => false,
    };
    let transport = match *entry {
        LogRecord::Current(port) | LogRecord::Nvm(_, port) => port.transport,
        LogRecord::Referral(_) => Transport::Tcp,
    };
    let (subtype, subnqn, host, port, portid, eflags) = match *entry {
        LogRecord::Current(port) => (
            SUBTYPE_CURRENT,
            DISCOVERY_NQN,
            &port.host,
            port.port,
            port.number + 1,
            EFLAGS_EPCSD,
        ),
        LogRecord::Nvm(served, port) => (
            SUBTYPE_NVM,
            served.subsystem.nqn.as_str(),
            &port.host,
            port.port,
            port.number + 1,
            0,
        ),
        // Port identifiers are those of the service that is referred to.
        LogRecord::Referral(referral) => (
            SUBTYPE_REFERRAL,
            referral.subnqn.as_str(),
            &referral.host,
            referral.port,
            0,
            0,
        ),
    };
    let mut entry: LogEntry = zeroed();
    match transport {
        Transport::Tcp => entry.trtype = TRTYPE_TCP,
        Transport::Rdma => {
            entry.trtype = TRTYPE_RDMA;
            entry.tsas[..3].copy_from_slice(&[
                RDMA_QPTYPE_CONNECTED,
                RDMA_PRTYPE_IWARP,
                RDMA_CMS_RDMA_CM,
            ]);
        }
    }
    entry.adrfam = if host.parse::<Ipv6Addr>().is_ok() {
        ADRFAM_IPV6
    } else {
        ADRFAM_IPV4
    };
    entry.subtype = subtype;
    // Else secure channel "not specified": libnvme 1.3 takes "not required" for
    // a wish for TLS, and its `connect-all` then fails.
    entry.treq = TREQ_SQ_FLOW_CONTROL_DISABLE;
    if needs_tls {
        entry.treq |= TREQ_SECURE_CHANNEL_REQUIRED;
        entry.tsas[0] = SECTYPE_TLS_1_3;
    }
    entry.portid = portid.into();
    entry.cntlid = 0xffff.into();
    entry.asqsz = ADMIN_ENTRIES_MAX.into();
    entry.eflags = eflags.into();
    nqn_field(&mut entry.subnqn, subnqn);
    ascii(&mut entry.trsvcid, &port.to_string());
    ascii(&mut entry.traddr, host);
    entry
}

/// Copies the part of `bytes`, which lie at `at` of a page, that falls into the
/// window of the page from `offset` which `out` is.
pub(crate) fn copy_window(bytes: &[u8], at: u64, offset: u64, out: &mut [u8]) {
    let skip = offset.saturating_sub(at);
    let start = at.saturating_sub(offset);
    if skip >= bytes.len() as u64 || start >= out.len() as u64 {
        return;
    }
    let (bytes, out) = (&bytes[skip as usize..], &mut out[start as usize..]);
    let len = bytes.len().min(out.len());
    out[..len].copy_from_slice(&bytes[..len]);
}
