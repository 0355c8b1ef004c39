//! The tables of all tabs, as cells.

use serde_json::Value;
use tables::{Cell, Column, Rates, SizeRates, Slowest, figure, text};

use crate::look::{Evicts, Looks};
use crate::rows::{Between, ClientRow, ConnectionRow, HostRow, ReactorRow, VolumeRow};
use crate::waits::StageRow;

/// Letters of a bar.
const BAR: u64 = 10;

/// The name of the column of bars.
pub(crate) const WAIT: &str = "wait";

/// A tab.
pub(crate) struct Tab {
    pub name: &'static str,
    /// Where there is little room.
    pub short: &'static str,
    /// The column that it is ordered by at first, the most at the top.
    pub order: &'static str,
    /// What it says when it has no line.
    pub none: &'static str,
}

const fn tab([name, short, order, none]: [&'static str; 4]) -> Tab {
    Tab {
        name,
        short,
        order,
        none,
    }
}

/// All tabs.
pub(crate) const TABS: [Tab; 6] = [
    tab([
        "hosts",
        "hosts",
        "bytes/s",
        "no host is connected: weft refusals says who was refused",
    ]),
    tab([
        "volumes",
        "vols",
        "bytes/s",
        "no volume or export was used since the start",
    ]),
    tab(["connections", "conn", "bytes/s", "nothing is connected"]),
    tab(["reactors", "react", "busy %", "no reactor"]),
    tab([
        "NFS clients",
        "nfs",
        "ops/s",
        "no NFS client has a lease, or locks of NFSv3",
    ]),
    tab(["events", "ev", "event", "nothing has happened"]),
];

/// A table.
#[derive(Default)]
pub(crate) struct Sheet {
    /// Names of columns, and whether their cells are figures.
    pub heads: Vec<(&'static str, bool)>,
    pub lines: Vec<Line>,
}

/// A line of it.
#[derive(Clone)]
pub(crate) struct Line {
    /// What it is told from others by.
    pub key: String,
    pub cells: Vec<Cell>,
    /// I/Os and bytes a second, and nanoseconds that 99 of 100 I/Os take.
    pub load: [u64; 3],
    /// What ends it.
    pub evicts: Option<Evicts>,
    /// The sizes of its I/Os.
    pub sizes: Vec<SizeRates>,
    /// What its commands wait for.
    pub stages: Vec<StageRow>,
}

impl Line {
    /// One of which nothing else is told.
    fn new(key: String, cells: Vec<Cell>, load: [u64; 3]) -> Line {
        Line {
            key,
            cells,
            load,
            evicts: None,
            sizes: Vec::new(),
            stages: Vec::new(),
        }
    }
}

impl Sheet {
    fn of<T>(rows: &[T], columns: &[Column<T>], line: impl Fn(&T, Vec<Cell>) -> Line) -> Sheet {
        let heads = columns.iter().map(|column| (column.head, column.is_figure));
        let lines = rows.iter().map(|row| {
            let cells = columns.iter().map(|column| (column.cell)(row));
            line(row, cells.collect())
        });
        Sheet {
            heads: heads.collect(),
            lines: lines.collect(),
        }
    }
}

/// The tables of what was done between the last two looks, by [`TABS`].
pub(crate) fn sheets(looks: &Looks) -> [Sheet; TABS.len()] {
    let Some(between) = Between::of(looks) else {
        let mut none: [Sheet; TABS.len()] = Default::default();
        none[5] = events(looks);
        return none;
    };
    let load = |rates: &Rates| {
        let p99 = rates.p99_ns.unwrap_or(0);
        [rates.ios_per_s() as u64, rates.bytes_per_s() as u64, p99]
    };
    [
        Sheet::of(&between.hosts(), HOSTS, |of, cells| {
            let key = format!("{} {}", of.protocol.name(), of.host);
            Line {
                evicts: Some(Evicts::Host(of.evicted_as())),
                sizes: of.rates.by_size.clone(),
                stages: of.stages.clone(),
                ..Line::new(key, cells, load(&of.rates))
            }
        }),
        Sheet::of(&between.volumes(), VOLUMES, |of, cells| {
            let key = format!("{} {}", of.protocol.name(), of.volume);
            Line {
                sizes: of.rates.by_size.clone(),
                ..Line::new(key, cells, load(&of.rates))
            }
        }),
        Sheet::of(&between.connections(), CONNECTIONS, |of, cells| {
            let load = [of.ios_per_s as u64, of.bytes_per_s as u64, 0];
            Line {
                evicts: Some(Evicts::Connection(of.id.clone())),
                ..Line::new(of.id.clone(), cells, load)
            }
        }),
        Sheet::of(&between.reactors(), REACTORS, |of, cells| {
            let load = [of.ios_per_s as u64, of.bytes_per_s as u64, 0];
            Line::new(of.reactor.to_string(), cells, load)
        }),
        Sheet::of(&between.clients(), CLIENTS, |of, cells| {
            let p99 = of.p99_ns.unwrap_or(0);
            let load = [of.ios_per_s as u64, of.bytes_per_s as u64, p99];
            Line {
                evicts: Some(Evicts::NfsClient(of.id.clone())),
                ..Line::new(of.id.clone(), cells, load)
            }
        }),
        events(looks),
    ]
}

fn events(looks: &Looks) -> Sheet {
    let all: Vec<Value> = looks.events.iter().cloned().collect();
    Sheet::of(&all, EVENTS, |of, cells| {
        Line::new(format!("{} {}", of["boot"], of["id"]), cells, [0; 3])
    })
}

const HOSTS: &[Column<HostRow>] = &[
    text("host", |of| Cell::text(&of.host)),
    figure("r/s", |of| count(of.rates.reads_per_s)),
    figure("w/s", |of| count(of.rates.writes_per_s)),
    figure("bytes/s", |of| bytes(of.rates.bytes_per_s())),
    figure("p99", |of| taken(of.rates.p99_ns)),
    figure("QD", |of| Cell::count(of.in_flight)),
    text(WAIT, |of| Cell::text(of.waits.bar(BAR))),
    figure("r await", |of| taken(of.rates.read_ns)),
    figure("w await", |of| taken(of.rates.write_ns)),
    figure("p50", |of| taken(of.rates.p50_ns)),
    figure("p99.9", |of| taken(of.rates.p999_ns)),
    figure("slowest", |of| slowest(of.rates.slowest)),
    text("slowest op", |of| op(of.rates.slowest)),
    figure("size", |of| size(of.rates.bytes_per_io)),
    figure("other/s", |of| count(of.rates.others_per_s)),
    figure("errors/s", |of| count(of.rates.errors_per_s)),
    figure("conn", |of| Cell::count(of.connections)),
    text("protocol", |of| Cell::text(of.protocol.name())),
    figure("memory", |of| Cell::Bytes(of.held_bytes)),
    figure("short", |of| Cell::count(of.waits_for_memory)),
    figure("age", |of| of.age_ms.map_or(Cell::Nothing, Cell::Duration)),
    text("addresses", |of| Cell::list(&of.addresses)),
];

const VOLUMES: &[Column<VolumeRow>] = &[
    text("volume", |of| Cell::text(&of.volume)),
    text("protocol", |of| Cell::text(of.protocol.name())),
    figure("r/s", |of| count(of.rates.reads_per_s)),
    figure("w/s", |of| count(of.rates.writes_per_s)),
    figure("bytes/s", |of| bytes(of.rates.bytes_per_s())),
    figure("p99", |of| taken(of.rates.p99_ns)),
    figure("hosts", |of| of.hosts.map_or(Cell::Nothing, Cell::Count)),
    figure("used", |of| size(of.used_bytes)),
    figure("r await", |of| taken(of.rates.read_ns)),
    figure("w await", |of| taken(of.rates.write_ns)),
    figure("p50", |of| taken(of.rates.p50_ns)),
    figure("p99.9", |of| taken(of.rates.p999_ns)),
    figure("slowest", |of| slowest(of.rates.slowest)),
    text("slowest op", |of| op(of.rates.slowest)),
    figure("size", |of| size(of.rates.bytes_per_io)),
    figure("other/s", |of| count(of.rates.others_per_s)),
    figure("errors/s", |of| count(of.rates.errors_per_s)),
    text("reserved by", |of| Cell::list(&of.reserved_by)),
];

const CONNECTIONS: &[Column<ConnectionRow>] = &[
    text("connection", |of| Cell::text(&of.id)),
    text("peer", |of| Cell::text(&of.peer)),
    figure("I/O/s", |of| count(of.ios_per_s)),
    figure("bytes/s", |of| bytes(of.bytes_per_s)),
    figure("QD", |of| Cell::count(of.in_flight)),
    text("host", |of| Cell::option(of.host.as_ref())),
    text("protocol", |of| {
        Cell::text(of.protocol.name_over(!of.rdma, of.rdma))
    }),
    text("state", |of| Cell::text(&of.state)),
    figure("reactor", |of| Cell::Count(of.reactor.into())),
    figure("memory", |of| Cell::Bytes(of.held_bytes)),
    text("short", |of| Cell::yes_or_no(of.waits_for_memory)),
    figure("age", |of| Cell::Duration(of.age_ms)),
    figure("idle", |of| Cell::Duration(of.idle_ms)),
    text("target", |of| Cell::option(of.target.as_ref())),
];

const REACTORS: &[Column<ReactorRow>] = &[
    figure("reactor", |of| Cell::Count(of.reactor.into())),
    figure("CPU", |of| Cell::Count(of.cpu.into())),
    figure("busy %", |of| count(of.busy_percent)),
    figure("spin %", |of| count(of.spun_percent)),
    figure("sleep %", |of| count(of.slept_percent)),
    figure("conn", |of| Cell::Count(of.connections)),
    figure("I/O/s", |of| count(of.ios_per_s)),
    figure("bytes/s", |of| bytes(of.bytes_per_s)),
    figure("calls/I/O", |of| ratio(of.syscalls_per_io)),
    figure("copied/B", |of| ratio(of.copied_per_byte)),
    figure("share", |of| ratio(of.share)),
    figure("orphans", |of| Cell::Count(of.orphans)),
    text("answers", |of| Cell::yes_or_no(of.answers)),
];

const CLIENTS: &[Column<ClientRow>] = &[
    text("client", |of| Cell::text(&of.name)),
    text("status", |of| Cell::text(&of.status)),
    figure("silent", |of| Cell::Duration(of.silent_ms)),
    figure("ops/s", |of| count(of.ios_per_s)),
    figure("bytes/s", |of| bytes(of.bytes_per_s)),
    figure("p99", |of| taken(of.p99_ns)),
    figure("slowest", |of| slowest(of.slowest)),
    text("slowest op", |of| op(of.slowest)),
    figure("opens", |of| Cell::count(of.opens)),
    figure("locks", |of| Cell::count(of.locks)),
    figure("delegs", |of| Cell::count(of.delegations)),
    figure("slots", |of| Cell::count(of.slots_used)),
    figure("of slots", |of| Cell::count(of.slots)),
    figure("sessions", |of| Cell::count(of.sessions)),
    text("address", |of| Cell::option(of.address.as_ref())),
    text("version", |of| Cell::text(&of.version)),
    text("callbacks", |of| Cell::option(of.callback_path.as_ref())),
    figure("lease", |of| Cell::Duration(of.lease_ms)),
    text("ID", |of| Cell::text(&of.id)),
];

const EVENTS: &[Column<Value>] = &[
    figure("event", |of| {
        of["id"].as_u64().map_or(Cell::Nothing, Cell::Count)
    }),
    text("time", |of| {
        Cell::text(word(of, "time").get(11..19).unwrap_or_default())
    }),
    text("level", |of| Cell::text(word(of, "level"))),
    text("what", |of| Cell::text(word(of, "event"))),
    text("text", |of| {
        let details = of["details"].as_object().into_iter().flatten();
        let details = details.map(|(name, value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            format!(" {name}={value}")
        });
        Cell::text(word(of, "text").to_owned() + &details.collect::<String>())
    }),
];

fn word<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default()
}

fn count(rate: f64) -> Cell {
    Cell::Count(rate.round() as u64)
}

fn bytes(rate: f64) -> Cell {
    Cell::Bytes(rate.round() as u64)
}

fn ratio(of: f64) -> Cell {
    Cell::Ratio((of * 1000.0).round() as u64)
}

fn taken(ns: Option<u64>) -> Cell {
    ns.map_or(Cell::Nothing, Cell::Taken)
}

fn slowest(of: Option<Slowest>) -> Cell {
    taken(of.map(|of| of.ns))
}

fn op(of: Option<Slowest>) -> Cell {
    of.map_or(Cell::Nothing, |of| Cell::text(of.op.name()))
}

fn size(bytes: Option<u64>) -> Cell {
    bytes.map_or(Cell::Nothing, Cell::Bytes)
}
