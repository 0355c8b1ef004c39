//! What is exported, and to which clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use auth::Network;
use engine::ConnectionRef;
use nbd::NbdExport;
use store::Volume;

/// Bytes of the largest block that NBD has (section "Size constraints" of the protocol).
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// What clients are named by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdClientName {
    /// Where they come from.
    Network(Network),
    /// A subject alternative name of their certificates with its kind, as
    /// [`tls::Certificate`] says it.
    Certificate(String),
    /// The name of their pre-shared key, with [`OF_KEY`] before it.
    Key(String),
}

/// What stands before the name of a pre-shared key.
pub const OF_KEY: &str = "PSK:";

/// A client by the name of its pre-shared key: no certificate has a name of that kind.
pub(crate) fn name_of_key(name: &str) -> String {
    format!("{OF_KEY}{name}")
}

impl NbdClientName {
    /// Whether all clients of the other name have this one.
    pub fn covers(&self, other: &NbdClientName) -> bool {
        match (self, other) {
            (NbdClientName::Network(own), NbdClientName::Network(other)) => own.covers(other),
            _ => self == other,
        }
    }

    /// Whether clients that come from there have it.
    pub fn has_address(&self, address: IpAddr) -> bool {
        matches!(self, NbdClientName::Network(network) if network.has(address))
    }

    fn has(&self, client: &NbdClient) -> bool {
        match self {
            NbdClientName::Network(network) => network.has(client.address),
            NbdClientName::Certificate(name) | NbdClientName::Key(name) => {
                client.names.contains(name)
            }
        }
    }
}

impl fmt::Display for NbdClientName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdClientName::Network(network) => network.fmt(out),
            NbdClientName::Certificate(name) | NbdClientName::Key(name) => out.write_str(name),
        }
    }
}

/// What is known of a client.
#[derive(Clone)]
pub(crate) struct NbdClient {
    pub address: IpAddr,
    /// Subject alternative names of the certificate that it has shown, or that of its key.
    pub names: Arc<[String]>,
}

/// A volume as clients of NBD are served it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExportSpec {
    /// What clients call it.
    pub name: String,
    /// Name of the volume.
    pub volume: String,
    /// For people; may be empty.
    pub description: String,
    /// Nothing is written through it.
    pub is_read_only: bool,
    /// Clients that may have it; `None` for any.
    pub clients: Option<Vec<NbdClientName>>,
}

/// An export that there is.
pub struct ServedExport {
    /// As it was configured.
    pub spec: NbdExportSpec,
    /// What it serves.
    pub volume: Arc<dyn Volume>,
    /// Bytes that clients see.
    size_bytes: u64,
    /// Clients that have it, as [`ConnectionRef::pack`] packs them.
    connections: BTreeMap<u64, NbdClient>,
}

impl ServedExport {
    fn allows(&self, client: &NbdClient) -> bool {
        let clients = self.spec.clients.as_ref();
        clients.is_none_or(|clients| clients.iter().any(|name| name.has(client)))
    }

    /// As clients are told of it now.
    pub fn told(&self) -> NbdExport {
        let info = self.volume.info();
        NbdExport {
            name: self.spec.name.clone(),
            description: self.spec.description.clone(),
            size_bytes: self.size_bytes,
            block_bytes: info.block_bytes.min(BLOCK_BYTES_MAX),
            is_read_only: self.spec.is_read_only || info.read_only,
            // A hole is made at once, and no byte is written.
            is_fast_to_zero: info.is_thin,
        }
    }
}

/// All exports.
#[derive(Default)]
pub struct NbdExports {
    by_name: BTreeMap<String, ServedExport>,
    /// No client is let in.
    is_drained: bool,
}

impl NbdExports {
    /// What a client may have, behind an export of that name.
    pub(crate) fn seen_by(
        &self,
        client: &NbdClient,
        after: Option<&str>,
    ) -> impl Iterator<Item = &ServedExport> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.by_name.range::<str, _>((from, Bound::Unbounded));
        let all = all.map(|(_, export)| export);
        all.filter(move |export| !self.is_drained && export.allows(client))
    }

    /// The export of a name, if a client may have it. Without a name it is the only
    /// one that the client may have.
    pub(crate) fn find(&self, name: &str, client: &NbdClient) -> Option<&ServedExport> {
        let mut seen = self.seen_by(client, None);
        if !name.is_empty() {
            return seen.find(|export| export.spec.name == name);
        }
        let only = seen.next();
        only.filter(|_| seen.next().is_none())
    }

    /// From now on no client is let in, or they are again. Those that are here stay.
    pub fn set_drained(&mut self, is_drained: bool) {
        self.is_drained = is_drained;
    }

    /// Whether no client is let in.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// A client has the export of a name.
    pub(crate) fn enter(&mut self, name: &str, connection: u64, client: NbdClient) {
        if let Some(export) = self.by_name.get_mut(name) {
            export.connections.insert(connection, client);
        }
    }

    /// It has it no more.
    pub(crate) fn leave(&mut self, name: &str, connection: u64) {
        if let Some(export) = self.by_name.get_mut(name) {
            export.connections.remove(&connection);
        }
    }

    /// The export of a name.
    pub fn get(&self, name: &str) -> Option<&ServedExport> {
        self.by_name.get(name)
    }

    /// As they were configured, by name.
    pub fn specs(&self) -> Vec<NbdExportSpec> {
        let all = self.by_name.values();
        all.map(|export| export.spec.clone()).collect()
    }

    /// Clients are to see another size of a volume: the exports that are to be published for it.
    pub(crate) fn set_size(&mut self, volume: &Arc<dyn Volume>, size_bytes: u64) -> Vec<String> {
        let all = self.by_name.values_mut();
        let of_it = all.filter(|export| Arc::ptr_eq(&export.volume, volume));
        let changed = of_it.map(|export| {
            export.size_bytes = size_bytes;
            export.spec.name.clone()
        });
        changed.collect()
    }

    /// In words, what still uses the volume.
    pub fn user(&self, volume: &Arc<dyn Volume>) -> Option<String> {
        let mut all = self.by_name.values();
        let export = all.find(|export| Arc::ptr_eq(&export.volume, volume))?;
        Some(format!("the NBD export \"{}\"", export.spec.name))
    }

    /// Exports a volume; there is no export of the name.
    pub fn insert(&mut self, spec: NbdExportSpec, volume: Arc<dyn Volume>) {
        let export = ServedExport {
            spec: spec.clone(),
            size_bytes: volume.size_bytes(),
            volume,
            connections: BTreeMap::new(),
        };
        self.by_name.insert(spec.name, export);
    }

    /// Takes an export away: what it was, and the connections that had it.
    pub fn remove(&mut self, name: &str) -> Option<(ServedExport, Vec<ConnectionRef>)> {
        let export = self.by_name.remove(name)?;
        let connections = export.connections.keys().copied();
        let connections = connections.map(ConnectionRef::unpack).collect();
        Some((export, connections))
    }

    /// Sets what an export of the same volume is from now on: the connections that may have it no
    /// more. `None`: there is none of the name.
    pub fn set(&mut self, spec: NbdExportSpec) -> Option<Vec<ConnectionRef>> {
        let export = self.by_name.get_mut(&spec.name)?;
        export.spec = spec;
        let gone = export.connections.iter();
        let gone = gone.filter(|(_, client)| !export.allows(client));
        let gone: BTreeSet<u64> = gone.map(|(connection, _)| *connection).collect();
        Some(gone.into_iter().map(ConnectionRef::unpack).collect())
    }
}
