//! What is known of one client: `weft doctor client`.

use std::io::{self, Write};
use std::process::ExitCode;

use api::ClientReport;
use clap::{Args, Subcommand};
use tables::Cell;

use crate::ask::{self, AskArgs};
use crate::refusals;

#[derive(Args)]
pub struct DoctorArgs {
    #[command(subcommand)]
    of: Of,
}

#[derive(Subcommand)]
enum Of {
    /// A host, initiator or NFS client: its connections, what it was refused, and what makes it
    /// slow
    Client {
        /// Its NQN, initiator name, NFS owner or address
        name: String,
        #[command(flatten)]
        ask: AskArgs,
    },
}

pub fn run(arguments: &DoctorArgs) -> io::Result<ExitCode> {
    let Of::Client { name, ask } = &arguments.of;
    let target = format!("/v1/doctor/clients/{}", admin::encoded(name));
    ask::end(ask, ask::get(ask, &target), show)
}

fn show(out: &mut dyn Write, answer: &ClientReport) -> io::Result<()> {
    for host in &answer.hosts {
        let addresses: Vec<_> = host.addresses.iter().map(ToString::to_string).collect();
        writeln!(
            out,
            "{} {} from {}: connections {}, paths {}, I/Os {}, {}",
            host.speaks(),
            host.name,
            addresses.join(", "),
            host.connections,
            host.paths.len(),
            host.ios,
            Cell::Bytes(host.io_bytes),
        )?;
    }
    for client in &answer.nfs_clients {
        writeln!(out, "nfs client {client}")?;
    }
    if !answer.refusals.is_empty() {
        refusals::show_all(out, &answer.refusals)?;
    }
    for found in &answer.findings {
        writeln!(out, "! {}\n  {}", found.what, found.remedy)?;
    }
    if answer.findings.is_empty() && answer.refusals.is_empty() {
        writeln!(
            out,
            "all is well: nothing slow, refused or about to end is seen"
        )?;
    }
    Ok(())
}
