//! Scrubs of volumes with checksums: `weft scrub`.

use std::io;
use std::process::ExitCode;

use admin::{Method, Request};
use api::{ScrubRequest, ScrubVerb, ScrubsDone, VolumeScrubs};
use clap::{Args, Subcommand};
use tables::SCRUBS;

use crate::ask::{self, AskArgs};
use crate::table;

#[derive(Args)]
pub struct ScrubArgs {
    #[command(subcommand)]
    command: ScrubCommand,
}

#[derive(Args)]
struct ScrubbedArgs {
    /// Volumes that have checksums, or mirrors whose legs have
    #[arg(required = true)]
    volumes: Vec<String>,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Subcommand)]
enum ScrubCommand {
    /// Read all blocks of volumes and compare them with their checksums, while hosts are served;
    /// legs of mirrors are repaired
    Start(ScrubbedArgs),
    /// Have scrubs read nothing until they are resumed
    Pause(ScrubbedArgs),
    /// Have scrubs go on where they were paused or stopped
    Resume(ScrubbedArgs),
    /// End scrubs where they are
    Stop(ScrubbedArgs),
    /// List how far scrubs are and what they have found
    List {
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// Does what is asked for.
pub fn run(arguments: &ScrubArgs) -> io::Result<ExitCode> {
    let (action, ScrubbedArgs { volumes, ask }) = match &arguments.command {
        ScrubCommand::List { ask } => return list(ask),
        ScrubCommand::Start(of) => (ScrubVerb::Start, of),
        ScrubCommand::Pause(of) => (ScrubVerb::Pause, of),
        ScrubCommand::Resume(of) => (ScrubVerb::Resume, of),
        ScrubCommand::Stop(of) => (ScrubVerb::Stop, of),
    };
    let body = ScrubRequest {
        action,
        volumes: volumes.clone(),
    };
    let request = Request {
        method: Method::POST,
        target: "/v1/scrubs".to_owned(),
        body: serde_json::to_string(&body).expect("texts"),
        ..Request::default()
    };
    let asked = ask::ask(ask, &request, None);
    ask::end(ask, asked, |out, answer: &ScrubsDone| {
        let mut lines = answer.done.iter();
        lines.try_for_each(|line| writeln!(out, "{line}"))
    })
}

fn list(ask: &AskArgs) -> io::Result<ExitCode> {
    let asked = ask::get(ask, "/v1/scrubs");
    ask::end(ask, asked, |out, all: &VolumeScrubs| {
        if all.scrubs.is_empty() {
            return writeln!(out, "no volume has checksums");
        }
        table::show(out, SCRUBS, &all.scrubs)?;
        let bad = all.scrubs.iter().filter(|scrub| !scrub.bad_lbas.is_empty());
        for scrub in bad {
            let lbas: Vec<_> = scrub.bad_lbas.iter().map(u64::to_string).collect();
            let (volume, lbas) = (&scrub.volume, lbas.join(" "));
            writeln!(out, "UNREADABLE: volume {volume}, the first LBAs: {lbas}")?;
        }
        Ok(())
    })
}
