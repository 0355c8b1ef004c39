//! `weft policy`: which rules of a configuration hold for a connection.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use control::{FileText, explain_connection_policy};

use crate::USAGE;

#[derive(Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Subcommand)]
enum PolicyCommand {
    /// Say which connection policy of a configuration holds for what comes from an address, and
    /// why
    Explain {
        /// Where the connection comes from
        address: IpAddr,
        /// Configuration; see weft.example.toml
        file: PathBuf,
        /// The listener that it comes in by; else each is told
        #[arg(long, value_name = "ADDRESS:PORT")]
        listener: Option<SocketAddr>,
    },
}

pub fn run(arguments: &PolicyArgs) -> io::Result<ExitCode> {
    let PolicyCommand::Explain {
        address,
        file,
        listener,
    } = &arguments.command;
    let wrong = |text: &str| {
        let _ = write!(io::stderr(), "{text}");
        Ok(ExitCode::from(USAGE))
    };
    let config = match FileText::read(file).and_then(|read| read.parse(file)) {
        Ok(config) => config,
        Err(problems) => return wrong(&problems.with_excerpts()),
    };
    let all = (0..).zip(&config.listeners);
    let asked = all.filter(|(_, spec)| listener.is_none_or(|asked| spec.address == asked));
    let mut out = io::stdout();
    let mut has_told = false;
    for (number, spec) in asked {
        has_told = true;
        writeln!(out, "{address} at {}:", spec.address)?;
        for line in explain_connection_policy(&config.connection_policies, (*address, number)) {
            writeln!(out, "  {line}")?;
        }
    }
    match (has_told, listener) {
        (false, Some(asked)) => wrong(&format!(
            "weft: there is no [[listener]] with the address \"{asked}\" in {}\n",
            file.display()
        )),
        _ => Ok(ExitCode::SUCCESS),
    }
}
