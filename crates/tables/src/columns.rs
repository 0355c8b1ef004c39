//! The columns of each kind of answer.

use api::{
    AuditRecord, ConfigObject, ConnectionStatus, EventLine, HistoryEntry, Host, IscsiSession,
    NfsClient, QuotaStatus, RefusalSummary, Snapshot, SnapshotChange, SnapshotPart, VolumeScrub,
};

use crate::{Cell, NamedRates};

/// A column.
pub struct Column<T: 'static> {
    /// What stands above it.
    pub head: &'static str,
    /// Its cells are figures, which stand at its right.
    pub is_figure: bool,
    /// What of a line stands in it.
    pub cell: fn(&T) -> Cell,
}

/// A column of words.
pub const fn text<T>(head: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
    Column {
        head,
        is_figure: false,
        cell,
    }
}

/// A column of figures.
pub const fn figure<T>(head: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
    Column {
        head,
        is_figure: true,
        cell,
    }
}

/// Of connections.
pub const CONNECTIONS: &[Column<ConnectionStatus>] = &[
    text("ID", |of| Cell::text(&of.id)),
    text("protocol", |of| {
        Cell::text(of.protocol.name_over(!of.rdma, of.rdma))
    }),
    text("peer", |of| Cell::text(of.peer.to_string())),
    text("local", |of| Cell::text(of.local.to_string())),
    text("state", |of| Cell::text(&of.state)),
    text("queue", queue),
    figure("age", |of| Cell::Duration(of.age_ms)),
    figure("idle", |of| Cell::Duration(of.idle_ms)),
    figure("I/Os", |of| Cell::Count(of.ios)),
    figure("bytes", |of| Cell::Bytes(of.io_bytes)),
    figure("in flight", |of| Cell::count(of.in_flight)),
    figure("memory", |of| Cell::Bytes(of.held_bytes)),
    text("digests", |of| digests(of.header_digest, of.data_digest)),
    text("encrypted", encrypted),
    text("authenticated", |of| {
        Cell::text(if of.authenticated { "DH-HMAC-CHAP" } else { "" })
    }),
    text("host", |of| Cell::option(of.host.as_ref())),
    text("target", |of| Cell::option(of.target.as_ref())),
];

/// Of hosts.
pub const HOSTS: &[Column<Host>] = &[
    text("protocol", |of| Cell::text(of.speaks())),
    text("addresses", |of| Cell::list(&of.addresses)),
    figure("connections", |of| Cell::count(of.connections)),
    figure("encrypted", |of| Cell::count(of.tls_connections)),
    figure("controllers", |of| Cell::count(of.controllers.len())),
    figure("sessions", |of| Cell::count(of.sessions.len())),
    figure("paths", |of| Cell::count(of.paths.len())),
    figure("I/Os", |of| Cell::Count(of.ios)),
    figure("bytes", |of| Cell::Bytes(of.io_bytes)),
    text("reservations", |of| Cell::list(&of.reservations)),
    text("host", |of| Cell::text(&of.name)),
];

/// Of iSCSI sessions.
pub const SESSIONS: &[Column<IscsiSession>] = &[
    text("ID", |of| Cell::text(&of.id)),
    text("ISID", |of| Cell::text(&of.isid)),
    figure("connections", |of| Cell::count(of.connections.len())),
    text("digests", |of| digests(of.header_digest, of.data_digest)),
    text("immediate", |of| Cell::yes_or_no(of.immediate_data)),
    text("initial R2T", |of| Cell::yes_or_no(of.initial_r2t)),
    figure("first burst", |of| {
        Cell::Bytes(of.first_burst_length.into())
    }),
    figure("max burst", |of| Cell::Bytes(of.max_burst_length.into())),
    figure("segment", |of| {
        Cell::Bytes(of.max_send_data_segment_length.into())
    }),
    figure("ERL", |of| Cell::Count(of.error_recovery_level.into())),
    text("initiator", |of| Cell::text(&of.initiator)),
    text("target", |of| match of.is_discovery {
        true => Cell::text("discovery"),
        false => Cell::option(of.target.as_ref()),
    }),
];

/// Of NFS clients.
pub const CLIENTS: &[Column<NfsClient>] = &[
    text("ID", |of| Cell::text(&of.id)),
    text("address", |of| Cell::option(of.address.as_ref())),
    text("version", |of| Cell::text(&of.version)),
    text("status", |of| Cell::text(&of.status)),
    figure("silent", |of| Cell::Duration(of.silent_ms)),
    figure("lease", |of| Cell::Duration(of.lease_ms)),
    text("callbacks", |of| Cell::option(of.callback_path.as_ref())),
    figure("sessions", |of| Cell::count(of.sessions)),
    figure("slots used", |of| {
        Cell::text(format!("{}/{}", of.slots_used, of.slots))
    }),
    figure("opens", |of| Cell::count(of.opens)),
    figure("locks", |of| Cell::count(of.locks)),
    figure("delegations", |of| Cell::count(of.delegations)),
    text("identity", |of| Cell::option(of.identity.as_ref())),
    text("name", |of| Cell::text(&of.name)),
    text("implementation", |of| Cell::text(&of.implementation)),
];

/// Of snapshots.
pub const SNAPSHOTS: &[Column<Snapshot>] = &[
    text("volume", |of| Cell::text(&of.volume)),
    text("name", |of| Cell::text(&of.name)),
    text("made", |of| match of.taken_unix_ms {
        0 => Cell::Nothing,
        ms => Cell::Time(ms / 1000),
    }),
    figure("size", |of| Cell::Bytes(of.size_bytes)),
    figure("unique", |of| {
        of.unique_bytes.map_or(Cell::Nothing, Cell::Bytes)
    }),
    text("damage", |of| Cell::option(of.damage.as_ref())),
];

/// Of snapshots of which a part was received.
pub const SNAPSHOT_PARTS: &[Column<SnapshotPart>] = &[
    text("volume", |of| Cell::text(&of.volume)),
    text("name", |of| Cell::text(&of.name)),
    figure("size", |of| Cell::Bytes(of.size_bytes)),
    figure("received up to", |of| Cell::Count(of.received_bytes)),
];

/// Of ranges in which two snapshots may differ.
pub const SNAPSHOT_CHANGES: &[Column<SnapshotChange>] = &[
    figure("first byte", |of| Cell::Count(of.offset)),
    figure("bytes", |of| Cell::Count(of.bytes)),
    text("zeros", |of| Cell::yes_or_no(of.zeros)),
];

/// Of scrubs.
pub const SCRUBS: &[Column<VolumeScrub>] = &[
    text("volume", |of| Cell::text(&of.volume)),
    text("state", |of| Cell::text(&of.state)),
    figure("read", |of| Cell::Bytes(of.position_bytes)),
    figure("size", |of| Cell::Bytes(of.size_bytes)),
    figure("bad blocks", |of| Cell::Count(of.bad_blocks)),
    figure("repaired", |of| Cell::Count(of.repaired_blocks)),
    figure("rate", |of| Cell::BytesPerSecond(of.rate)),
];

/// Of quotas.
pub const QUOTAS: &[Column<QuotaStatus>] = &[
    text("file system", |of| Cell::text(&of.file_system)),
    text("of", |of| Cell::text(&of.subject)),
    figure("used", |of| Cell::Bytes(of.used_bytes)),
    figure("soft", |of| {
        of.soft_bytes.map_or(Cell::Nothing, Cell::Bytes)
    }),
    figure("hard", |of| {
        of.hard_bytes.map_or(Cell::Nothing, Cell::Bytes)
    }),
    text("until", |of| {
        of.bytes_until_unix_s.map_or(Cell::Nothing, Cell::Time)
    }),
    figure("objects", |of| Cell::Count(of.used_objects)),
    figure("soft", |of| {
        of.soft_objects.map_or(Cell::Nothing, Cell::Count)
    }),
    figure("hard", |of| {
        of.hard_objects.map_or(Cell::Nothing, Cell::Count)
    }),
    text("until", |of| {
        of.objects_until_unix_s.map_or(Cell::Nothing, Cell::Time)
    }),
];

/// Of refusals.
pub const REFUSALS: &[Column<RefusalSummary>] = &[
    text("last", |of| Cell::Time(of.last_unix_s)),
    figure("count", |of| Cell::Count(of.count)),
    text("from", |of| Cell::option(of.address.as_ref())),
    text("refused", |of| Cell::text(&of.kind)),
    text("name", |of| Cell::option(of.host.as_ref())),
    text("asked", |of| Cell::option(of.target.as_ref())),
    text("why", |of| Cell::text(&of.reason)),
];

/// Of objects that are in one.
pub const OBJECTS: &[Column<ConfigObject>] = &[
    text("name", |of| Cell::option(of.names.last())),
    text("says", |of| {
        let said = of
            .fields
            .iter()
            .filter(|(_, value)| value.as_str() != of.names.last().map(String::as_str));
        let said: Vec<_> = said
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        Cell::text(said.join(", "))
    }),
];

/// Of events.
pub const EVENTS: &[Column<EventLine>] = &[
    text("time", |of| Cell::text(&of.time)),
    text("event", |of| Cell::text(&of.event)),
    text("level", |of| Cell::text(&of.level)),
    text("what", |of| Cell::text(&of.text)),
    text("details", |of| Cell::text(&of.details)),
];

fn taken(ns: Option<u64>) -> Cell {
    ns.map_or(Cell::Nothing, Cell::Taken)
}

/// Of what volumes, exports and hosts do now.
pub const RATES: &[Column<NamedRates>] = &[
    text("name", |of| Cell::text(&of.name)),
    text("protocol", |of| Cell::text(of.protocol.name())),
    figure("reads", |of| Cell::PerSecond(of.rates.reads_per_s as u64)),
    figure("writes", |of| Cell::PerSecond(of.rates.writes_per_s as u64)),
    figure("bytes", |of| {
        Cell::BytesPerSecond(of.rates.bytes_per_s() as u64)
    }),
    figure("errors", |of| Cell::PerSecond(of.rates.errors_per_s as u64)),
    figure("p50", |of| taken(of.rates.p50_ns)),
    figure("p99", |of| taken(of.rates.p99_ns)),
    figure("p99.9", |of| taken(of.rates.p999_ns)),
];

/// Of generations.
pub const HISTORY: &[Column<HistoryEntry>] = &[
    figure("generation", |of| Cell::Count(of.number())),
    text("time", |of| {
        of.made()
            .map_or(Cell::Nothing, |made| Cell::Time(made.unix_s))
    }),
    figure("UID", |of| {
        of.made()
            .map_or(Cell::Nothing, |made| Cell::Count(made.uid.into()))
    }),
    figure("changes", |of| {
        of.made()
            .map_or(Cell::Nothing, |made| Cell::count(made.done.len()))
    }),
    text("verb", |of| match of {
        HistoryEntry::Made(made) => verb(&made.verb, made.by.as_deref()),
        HistoryEntry::Damaged { damaged, .. } => Cell::text(format!("DAMAGED: {damaged}")),
    }),
];

/// Of records of the audit.
pub const AUDIT: &[Column<AuditRecord>] = &[
    figure("record", |of| Cell::Count(of.number)),
    text("time", |of| Cell::Time(of.unix_s)),
    figure("UID", |of| Cell::Count(of.uid.into())),
    figure("generation", |of| Cell::Count(of.generation)),
    figure("changes", |of| Cell::count(of.change_count)),
    text("outcome", |of| Cell::text(&of.outcome)),
    text("verb", |of| verb(&of.verb, of.by.as_deref())),
];

/// What was asked for and, where that is another than the user, by whom.
fn verb(verb: &str, by: Option<&str>) -> Cell {
    Cell::text(by.map_or_else(|| verb.to_owned(), |by| format!("{verb}, by {by}")))
}

fn digests(header: bool, data: bool) -> Cell {
    Cell::text(match (header, data) {
        (true, true) => "header,data",
        (true, false) => "header",
        (false, true) => "data",
        (false, false) => "",
    })
}

/// The cipher suite of a connection, and the key that it was made by.
fn encrypted(of: &ConnectionStatus) -> Cell {
    let Some(tls) = &of.tls else {
        return Cell::text("plain");
    };
    let mut text = tls.cipher.clone();
    if let (Some(version), Some(hash)) = (tls.psk_version, &tls.psk_hash) {
        let made = if tls.psk_is_generated {
            "generated "
        } else {
            ""
        };
        text += &format!(", {made}PSK {version} {hash}");
    }
    Cell::text(text)
}

/// Which part of its host's association a connection is.
fn queue(of: &ConnectionStatus) -> Cell {
    Cell::text(match of {
        ConnectionStatus {
            cntlid: Some(cntlid),
            qid: Some(qid),
            ..
        } => format!("controller {cntlid} queue {qid}"),
        ConnectionStatus {
            tsih: Some(tsih),
            cid: Some(cid),
            ..
        } => format!("session {tsih} CID {cid}"),
        ConnectionStatus {
            client: Some(client),
            ..
        } => format!("client {client}"),
        _ => String::new(),
    })
}
