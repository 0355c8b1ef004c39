//! Ending what hosts have: `weft evict`.

use std::io::{self, Write};
use std::process::ExitCode;

use admin::{Method, Request};
use api::Evicted;
use clap::{Args, ValueEnum};

use crate::ask::{self, AskArgs};

#[derive(Args)]
pub struct EvictArgs {
    /// What ends
    kind: EvictKind,
    /// A connection, session or NFS client by its ID, as weft get lists it; a host by its name
    /// or address
    name: String,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum EvictKind {
    /// A connection; of NVMe, its controller
    Connection,
    /// All that a host has
    Host,
    /// An iSCSI session: its initiator is asked to log out first
    Session,
    /// An NFS client, with all that it holds
    NfsClient,
}

/// Ends what is named.
pub fn run(arguments: &EvictArgs) -> io::Result<ExitCode> {
    let request = request(arguments.kind, &arguments.name);
    let asked = ask::ask(&arguments.ask, &request, None);
    ask::end(&arguments.ask, asked, show)
}

/// What ends it.
pub fn request(kind: EvictKind, name: &str) -> Request {
    let path = match kind {
        EvictKind::Connection => "/v1/connections",
        EvictKind::Host => "/v1/hosts",
        EvictKind::Session => "/v1/iscsi/sessions",
        EvictKind::NfsClient => "/v1/nfs/clients",
    };
    Request {
        method: Method::DELETE,
        target: format!("{path}/{}", admin::encoded(name)),
        ..Request::default()
    }
}

fn show(out: &mut dyn Write, answer: &Evicted) -> io::Result<()> {
    for line in &answer.done {
        writeln!(out, "{line}")?;
    }
    if !answer.may_return.is_empty() {
        writeln!(
            out,
            "it may come back. To keep it out, change the configuration and `weft apply -c FILE` it:"
        )?;
    }
    for line in &answer.may_return {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
