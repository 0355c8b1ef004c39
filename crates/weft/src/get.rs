//! Who is connected, as `weft get` prints it.

use std::io::{self, Write};
use std::process::ExitCode;

use api::{Connections, Hosts, IscsiSessions, NfsClients};
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;
use tables::{CLIENTS, CONNECTIONS, Column, HOSTS, SESSIONS};

use crate::ask::{self, AskArgs, Asked};
use crate::objects;
use crate::table;
use crate::watch::{WatchArgs, watched};

#[derive(Args)]
pub struct GetArgs {
    /// connections, hosts, sessions, nfs-clients; or objects of the configuration, as for `add`.
    /// Nothing: all objects
    kind: Option<String>,
    /// One of them alone: a connection, session or NFS client by its ID, a host by its name or
    /// address; an object by the names of what it is in, and its own
    names: Vec<String>,
    /// Connections of this protocol alone: nvme-tcp, nvme-rdma, iscsi and nfs (with those by
    /// RDMA), iser, nfs-rdma
    #[arg(long)]
    protocol: Option<String>,
    /// Connections of this host alone, by its name or address
    #[arg(long)]
    host: Option<String>,
    /// Connections to what this volume is behind alone
    #[arg(long)]
    volume: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    ask: AskArgs,
}

/// What is listed of those who are connected.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GetKind {
    /// Each connection, with what is done on it
    Connections,
    /// A line for each host, with its connections and reservations
    Hosts,
    /// iSCSI sessions, with what was negotiated
    Sessions,
    /// NFS clients with a lease, or locks of NFSv3, and what they hold
    NfsClients,
}

impl GetKind {
    /// Where they are asked for.
    fn place(self) -> &'static str {
        match self {
            GetKind::Connections => "/v1/connections",
            GetKind::Hosts => "/v1/hosts",
            GetKind::Sessions => "/v1/iscsi/sessions",
            GetKind::NfsClients => "/v1/nfs/clients",
        }
    }
}

/// Prints what is asked for.
pub fn run(arguments: &GetArgs) -> io::Result<ExitCode> {
    watched(&arguments.watch, || print(arguments))
}

fn print(arguments: &GetArgs) -> io::Result<ExitCode> {
    let GetArgs { names, ask, .. } = arguments;
    let named = arguments.kind.as_deref();
    let kind = named.and_then(|kind| GetKind::from_str(kind, false).ok());
    let filters = [
        ("protocol", &arguments.protocol),
        ("host", &arguments.host),
        ("volume", &arguments.volume),
    ];
    let filters = filters.into_iter().filter_map(|(key, value)| {
        let value = value.as_ref()?;
        Some(format!("{key}={}", admin::encoded(value)))
    });
    let filters: Vec<_> = filters.collect();
    if !filters.is_empty() && (kind != Some(GetKind::Connections) || !names.is_empty()) {
        let _ = writeln!(
            io::stderr(),
            "weft: --protocol, --host and --volume choose among all connections: weft get \
             connections --host NAME"
        );
        return Ok(ExitCode::from(crate::USAGE));
    }
    let Some(kind) = kind else {
        return objects::show(named, names, ask);
    };
    let mut target = kind.place().to_owned();
    for name in names {
        target += &format!("/{}", admin::encoded(name));
    }
    if !filters.is_empty() {
        target += &format!("?{}", filters.join("&"));
    }
    let asked = ask::get(ask, &target);
    // One of them alone is answered as it is, not as a list.
    let is_one = !names.is_empty();
    match kind {
        GetKind::Connections if is_one => one(ask, asked, CONNECTIONS),
        GetKind::Connections => ask::end(ask, asked, |out, all: &Connections| {
            show(out, &all.connections, CONNECTIONS, "nothing is connected")?;
            show_incompleteness(out, all.has_more, all.silent_reactors)
        }),
        GetKind::Hosts if is_one => one(ask, asked, HOSTS),
        GetKind::Hosts => ask::end(ask, asked, |out, all: &Hosts| {
            let none = "no host is connected, and none holds a reservation";
            show(out, &all.hosts, HOSTS, none)?;
            show_incompleteness(out, all.has_more, all.silent_reactors)
        }),
        GetKind::Sessions if is_one => one(ask, asked, SESSIONS),
        GetKind::Sessions => ask::end(ask, asked, |out, all: &IscsiSessions| {
            show(out, &all.sessions, SESSIONS, "there is no iSCSI session")
        }),
        GetKind::NfsClients if is_one => one(ask, asked, CLIENTS),
        GetKind::NfsClients => ask::end(ask, asked, |out, all: &NfsClients| {
            let none = "no NFS client has a lease, or locks of NFSv3";
            show(out, &all.clients, CLIENTS, none)
        }),
    }
}

fn one<T: DeserializeOwned>(
    ask: &AskArgs,
    asked: Asked,
    columns: &[Column<T>],
) -> io::Result<ExitCode> {
    ask::end(ask, asked, |out, of: &T| {
        show(out, std::slice::from_ref(of), columns, "")
    })
}

fn show<T>(out: &mut dyn Write, all: &[T], columns: &[Column<T>], none: &str) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "{none}");
    }
    table::show(out, columns, all)
}

fn show_incompleteness(out: &mut dyn Write, has_more: bool, silent: usize) -> io::Result<()> {
    if has_more {
        writeln!(
            out,
            "there are more connections than one answer has: ask with --host or --volume"
        )?;
    }
    match silent {
        0 => Ok(()),
        1 => writeln!(
            out,
            "1 reactor did not answer: its connections are not in the list"
        ),
        _ => writeln!(
            out,
            "{silent} reactors did not answer: their connections are not in the list"
        ),
    }
}
