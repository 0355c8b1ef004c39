//! What stands in a line of each table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{Figures, HostFigures, Protocol, ReactorFigures};
use serde::Serialize;
use tables::{Ops, Rates, Scale, Slowest};

use crate::look::{Look, Looks};
use crate::waits::{StageRow, WaitTimes};

/// A host, by one protocol.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostRow {
    /// What it calls itself; of NFS its address.
    pub host: String,
    pub protocol: Protocol,
    pub addresses: Vec<IpAddr>,
    pub connections: usize,
    #[serde(flatten)]
    pub rates: Rates,
    #[serde(flatten)]
    pub waits: WaitTimes,
    /// All of what it waits for.
    pub stages: Vec<StageRow>,
    pub in_flight: usize,
    pub held_bytes: u64,
    /// Connections that wait for memory.
    pub waits_for_memory: usize,
    /// Since its oldest connection came.
    pub age_ms: Option<u64>,
}

impl HostRow {
    /// By which it is asked for: what stands for a subnet is no address of it.
    pub fn evicted_as(&self) -> String {
        match (self.protocol, self.addresses.first()) {
            (Protocol::Nfs | Protocol::Nbd, Some(address)) => address.to_string(),
            _ => self.host.clone(),
        }
    }
}

/// A volume, or an export of NFS, by one protocol.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VolumeRow {
    pub volume: String,
    pub protocol: Protocol,
    /// Those that are connected and see it.
    pub hosts: Option<u64>,
    pub used_bytes: Option<u64>,
    #[serde(flatten)]
    pub rates: Rates,
    /// Who holds a reservation.
    pub reserved_by: Vec<String>,
}

/// A connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConnectionRow {
    pub id: String,
    pub protocol: Protocol,
    /// It is carried by RDMA.
    pub rdma: bool,
    pub peer: String,
    pub host: Option<String>,
    pub target: Option<String>,
    pub state: String,
    pub reactor: u32,
    pub ios_per_s: f64,
    pub bytes_per_s: f64,
    pub in_flight: usize,
    pub held_bytes: u64,
    pub waits_for_memory: bool,
    pub age_ms: u64,
    pub idle_ms: u64,
}

/// A reactor.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReactorRow {
    pub reactor: u32,
    /// The CPU that it is pinned to.
    pub cpu: u32,
    pub answers: bool,
    /// Of the time.
    pub busy_percent: f64,
    pub spun_percent: f64,
    pub slept_percent: f64,
    pub connections: u64,
    pub ios_per_s: f64,
    pub bytes_per_s: f64,
    pub syscalls_per_io: f64,
    pub copied_per_byte: f64,
    /// Its I/Os by those of the mean reactor.
    pub share: f64,
    pub orphans: u64,
}

/// An NFS client.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClientRow {
    pub id: String,
    pub name: String,
    pub address: Option<IpAddr>,
    pub version: String,
    pub status: String,
    pub silent_ms: u64,
    pub lease_ms: u64,
    pub callback_path: Option<String>,
    pub ios_per_s: f64,
    pub bytes_per_s: f64,
    /// Of all calls from its address.
    pub p99_ns: Option<u64>,
    pub slowest: Option<Slowest>,
    pub sessions: usize,
    pub slots_used: usize,
    pub slots: usize,
    pub opens: usize,
    pub locks: usize,
    pub delegations: usize,
}

/// What two looks and those before them make of all tables.
pub(crate) struct Between<'a> {
    now: &'a Look,
    before: &'a Look,
    earlier: &'a Look,
    pub seconds: f64,
}

impl<'a> Between<'a> {
    /// `None` before the second look.
    pub fn of(looks: &'a Looks) -> Option<Between<'a>> {
        let (now, before, earlier) = (looks.last()?, looks.before()?, looks.first()?);
        let passed = now
            .figures
            .uptime_ns
            .saturating_sub(before.figures.uptime_ns);
        Some(Between {
            now,
            before,
            earlier,
            seconds: (passed as f64 / 1e9).max(1e-3),
        })
    }

    /// What of each look is wanted: the last, the one before, and the first that stays.
    fn of_each<T>(&self, of: impl Fn(&'a Figures) -> T) -> [T; 3] {
        [self.now, self.before, self.earlier].map(|look| of(&look.figures))
    }

    fn rates(&self, [now, before, earlier]: [Option<&Ops>; 3]) -> Rates {
        let none = Ops::new();
        Rates::of(
            now.unwrap_or(&none),
            before.unwrap_or(&none),
            earlier.unwrap_or(&none),
            Scale::of(&self.now.figures, self.seconds),
        )
    }

    fn per_s(&self, now: u64, before: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds
    }

    /// Refusals of all reasons.
    pub fn refusals_per_s(&self) -> f64 {
        let sum = |look: &Look| look.figures.refusals.values().sum();
        self.per_s(sum(self.now), sum(self.before))
    }

    pub fn hosts(&self) -> Vec<HostRow> {
        let mut rows: BTreeMap<(Protocol, String), HostRow> = BTreeMap::new();
        let seen = self.of_each(hosts_of);
        for host in &self.now.hosts.hosts {
            let name = host.in_figures.clone();
            let row = rows
                .entry((host.protocol, name.clone()))
                .or_insert_with(|| self.host(host.protocol, name, &seen));
            row.addresses.extend(&host.addresses);
            row.connections += host.connections;
            row.in_flight += host.in_flight;
            row.held_bytes += host.held_bytes;
        }
        for figures in &self.now.figures.hosts {
            let key = (figures.protocol, figures.host.clone());
            let (protocol, name) = key.clone();
            rows.entry(key)
                .or_insert_with(|| self.host(protocol, name, &seen));
        }
        let by_address = self.nameless_hosts();
        for connection in &self.now.connections.connections {
            let name = match connection.protocol {
                Protocol::Nfs | Protocol::Nbd => {
                    let key = (connection.protocol, connection.peer.ip());
                    by_address.get(&key).copied()
                }
                _ => connection.host.as_ref(),
            };
            let Some(name) = name.cloned() else {
                continue;
            };
            if let Some(row) = rows.get_mut(&(connection.protocol, name)) {
                row.age_ms = row.age_ms.max(Some(connection.age_ms));
                row.waits_for_memory += usize::from(connection.waits_for_memory);
            }
        }
        rows.into_values().collect()
    }

    /// What figures call those of NFS and NBD, which go by their addresses.
    fn nameless_hosts(&self) -> BTreeMap<(Protocol, IpAddr), &'a String> {
        let hosts = self.now.hosts.hosts.iter();
        let hosts = hosts.filter(|host| matches!(host.protocol, Protocol::Nfs | Protocol::Nbd));
        hosts
            .flat_map(|host| {
                let addresses = host.addresses.iter();
                addresses.map(|own| ((host.protocol, *own), &host.in_figures))
            })
            .collect()
    }

    fn host(&self, protocol: Protocol, host: String, seen: &[HostsSeen<'_>; 3]) -> HostRow {
        let of = seen.each_ref().map(|seen| seen.get(&(protocol, &*host)));
        let stages = |at: usize| of[at].map_or(&[][..], |of| &of.stages);
        HostRow {
            rates: self.rates(of.map(|of| of.map(|of| &of.ops))),
            waits: WaitTimes::of(stages(0), stages(2)),
            stages: StageRow::all(stages(0), stages(2), &self.now.figures.bounds_ns),
            host,
            protocol,
            addresses: Vec::new(),
            connections: 0,
            in_flight: 0,
            held_bytes: 0,
            waits_for_memory: 0,
            age_ms: None,
        }
    }

    pub fn volumes(&self) -> Vec<VolumeRow> {
        let volumes = self.now.figures.volumes.iter();
        let seen = self.of_each(volumes_of);
        let holders = |volume: &str| {
            let holders = self.now.hosts.hosts.iter();
            let holders = holders.filter(|host| host.reservations.contains(volume));
            holders.map(|host| host.name.clone()).collect()
        };
        let rows = volumes.map(|volume| VolumeRow {
            volume: volume.volume.clone(),
            protocol: volume.protocol,
            hosts: volume.hosts,
            used_bytes: volume.used_bytes,
            rates: self.rates(seen.each_ref().map(|seen| {
                let key = (volume.protocol, &*volume.volume);
                seen.get(&key).copied()
            })),
            reserved_by: match volume.protocol {
                Protocol::Nfs => Vec::new(),
                _ => holders(&volume.volume),
            },
        });
        rows.collect()
    }

    pub fn connections(&self) -> Vec<ConnectionRow> {
        let before = self.before.connections.connections.iter();
        let before: BTreeMap<_, _> = before.map(|of| (&of.id, (of.ios, of.io_bytes))).collect();
        let rows = self.now.connections.connections.iter().map(|of| {
            let (ios, bytes) = before.get(&of.id).copied().unwrap_or_default();
            ConnectionRow {
                id: of.id.clone(),
                protocol: of.protocol,
                rdma: of.rdma,
                peer: of.peer.to_string(),
                host: of.host.clone(),
                target: of.target.clone(),
                state: of.state.clone(),
                reactor: of.reactor,
                ios_per_s: self.per_s(of.ios, ios),
                bytes_per_s: self.per_s(of.io_bytes, bytes),
                in_flight: of.in_flight,
                held_bytes: of.held_bytes,
                waits_for_memory: of.waits_for_memory,
                age_ms: of.age_ms,
                idle_ms: of.idle_ms,
            }
        });
        rows.collect()
    }

    pub fn reactors(&self) -> Vec<ReactorRow> {
        let none = ReactorFigures::default();
        let all = &self.now.figures.reactors;
        let before = |number: u32| {
            let mut before = self.before.figures.reactors.iter();
            before.find(|of| of.reactor == number).unwrap_or(&none)
        };
        let since = |of: &ReactorFigures, name| {
            let before = before(of.reactor).count(name);
            of.count(name).saturating_sub(before) as f64
        };
        let sum: f64 = all.iter().map(|of| since(of, "ios")).sum();
        let mean = sum / all.len().max(1) as f64;
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let rows = all.iter().map(|of| {
            let since = |name| since(of, name);
            let (run, spun, slept) = (since("run_ns"), since("spun_ns"), since("slept_ns"));
            ReactorRow {
                reactor: of.reactor,
                cpu: of.cpu,
                answers: of.answers,
                busy_percent: 100.0 * part((run - spun - slept).max(0.0), run),
                spun_percent: 100.0 * part(spun, run),
                slept_percent: 100.0 * part(slept, run),
                connections: of.count("connections"),
                ios_per_s: since("ios") / self.seconds,
                bytes_per_s: since("io_bytes") / self.seconds,
                syscalls_per_io: part(since("syscalls"), since("ios")),
                copied_per_byte: part(since("copied_bytes"), since("io_bytes")),
                share: part(since("ios"), mean),
                orphans: of.count("orphans"),
            }
        });
        rows.collect()
    }

    pub fn clients(&self) -> Vec<ClientRow> {
        let mut done: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let before = self.before.connections.connections.iter();
        let before: BTreeMap<_, _> = before.map(|of| (&of.id, (of.ios, of.io_bytes))).collect();
        for of in &self.now.connections.connections {
            let Some(client) = &of.client else { continue };
            let (ios, bytes) = before.get(&of.id).copied().unwrap_or_default();
            let sums = done.entry(client).or_default();
            sums.0 += of.ios.saturating_sub(ios);
            sums.1 += of.io_bytes.saturating_sub(bytes);
        }
        let (seen, by_address) = (self.of_each(hosts_of), self.nameless_hosts());
        let rows = self.now.clients.clients.iter().map(|of| {
            let (ios, bytes) = done.get(&*of.id).copied().unwrap_or_default();
            let host = of
                .address
                .and_then(|address| by_address.get(&(Protocol::Nfs, address)));
            let rates = self.rates(seen.each_ref().map(|seen| {
                let figures = seen.get(&(Protocol::Nfs, host?.as_str()));
                figures.map(|figures| &figures.ops)
            }));
            ClientRow {
                id: of.id.clone(),
                name: of.name.clone(),
                address: of.address,
                version: of.version.clone(),
                status: of.status.clone(),
                silent_ms: of.silent_ms,
                lease_ms: of.lease_ms,
                callback_path: of.callback_path.clone(),
                ios_per_s: self.per_s(ios, 0),
                bytes_per_s: self.per_s(bytes, 0),
                p99_ns: rates.p99_ns,
                slowest: rates.slowest,
                sessions: of.sessions,
                slots_used: of.slots_used,
                slots: of.slots,
                opens: of.opens,
                locks: of.locks,
                delegations: of.delegations,
            }
        });
        rows.collect()
    }
}

/// Hosts of one look, by protocol and name.
type HostsSeen<'a> = BTreeMap<(Protocol, &'a str), &'a HostFigures>;

fn hosts_of(figures: &Figures) -> HostsSeen<'_> {
    let hosts = figures.hosts.iter();
    hosts.map(|of| ((of.protocol, &*of.host), of)).collect()
}

fn volumes_of(figures: &Figures) -> BTreeMap<(Protocol, &str), &Ops> {
    let volumes = figures.volumes.iter();
    volumes
        .map(|of| ((of.protocol, &*of.volume), &of.ops))
        .collect()
}
