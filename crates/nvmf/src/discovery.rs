//! The discovery log as one host sees it (NVM Express Base Specification 2.0,
//! section 5.16.1.23).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use wire::nvme::discovery::{
    ADRFAM_IPV4, ADRFAM_IPV6, LogEntry, LogHeader, SUBTYPE_NVM, TREQ_SQ_FLOW_CONTROL_DISABLE,
    TRTYPE_TCP,
};
use wire::nvme::fabrics::nqn_field;
use wire::nvme::identify::{ascii, zeroed};
use zerocopy::IntoBytes;

use crate::log::copy_window;
use crate::registry::ADMIN_ENTRIES_MAX;
use crate::subsystem::Subsystem;

const HEADER_BYTES: usize = size_of::<LogHeader>();
const ENTRY_BYTES: usize = size_of::<LogEntry>();

/// The subsystems that a host may see, at the addresses where it can reach them.
#[derive(Default)]
pub(crate) struct DiscoveryLog {
    generation: u64,
    subsystems: Vec<Arc<Subsystem>>,
    /// Port ID and address.
    ports: Vec<(u16, SocketAddr)>,
}

impl DiscoveryLog {
    /// The log for a host that reached us at `local`.
    pub fn new<'a>(
        generation: u64,
        visible: impl Iterator<Item = &'a Arc<Subsystem>>,
        listeners: &[SocketAddr],
        local: SocketAddr,
    ) -> Self {
        let mut ports: Vec<(u16, SocketAddr)> = Vec::new();
        for (index, listener) in listeners.iter().enumerate() {
            let reached = reachable(*listener, local.ip().to_canonical());
            if let Some(address) = reached
                && !ports.iter().any(|(_, known)| *known == address)
            {
                ports.push((index as u16 + 1, address));
            }
        }
        DiscoveryLog {
            generation,
            subsystems: visible.cloned().collect(),
            ports,
        }
    }

    /// Bytes of the whole log.
    pub fn len(&self) -> u64 {
        (HEADER_BYTES + self.entries() * ENTRY_BYTES) as u64
    }

    fn entries(&self) -> usize {
        self.subsystems.len() * self.ports.len()
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
            let entry = self.entry(index as usize);
            let at = HEADER_BYTES as u64 + index * ENTRY_BYTES as u64;
            copy_window(entry.as_bytes(), at, offset, out);
        }
    }

    fn entry(&self, index: usize) -> LogEntry {
        let subsystem = &self.subsystems[index / self.ports.len()];
        let (port, address) = self.ports[index % self.ports.len()];
        let mut entry: LogEntry = zeroed();
        entry.trtype = TRTYPE_TCP;
        entry.adrfam = if address.is_ipv4() {
            ADRFAM_IPV4
        } else {
            ADRFAM_IPV6
        };
        entry.subtype = SUBTYPE_NVM;
        // Secure channel "not specified": libnvme 1.3 takes "not required" for
        // a wish for TLS, and its `connect-all` then fails.
        entry.treq = TREQ_SQ_FLOW_CONTROL_DISABLE;
        entry.portid = port.into();
        entry.cntlid = 0xffff.into();
        entry.asqsz = ADMIN_ENTRIES_MAX.into();
        nqn_field(&mut entry.subnqn, &subsystem.nqn);
        ascii(&mut entry.trsvcid, &address.port().to_string());
        ascii(&mut entry.traddr, &address.ip().to_string());
        entry
    }
}

/// Where a host that reached us at `local` reaches `listener`: a wildcard stands
/// for the very address it used; an address of the other family behind a
/// wildcard is unknown, and loopback is of use to local hosts only.
fn reachable(listener: SocketAddr, local: IpAddr) -> Option<SocketAddr> {
    let ip = listener.ip().to_canonical();
    if ip.is_unspecified() {
        let serves = ip.is_ipv6() || local.is_ipv4();
        return serves.then(|| SocketAddr::new(local, listener.port()));
    }
    if ip.is_loopback() && !local.is_loopback() {
        return None;
    }
    Some(SocketAddr::new(ip, listener.port()))
}
