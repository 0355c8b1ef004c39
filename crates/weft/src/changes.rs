//! Commands that show and change the document of the weft that runs on this machine.

use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use admin::{Request, encoded};
use api::{
    Audit, AuditVerified, Changed, ConfigText, Document, GenerationText, History, Holds, Rollback,
};
use clap::{Args, Subcommand};
use control::FileText;
use serde_json::json;
use tables::{AUDIT, HISTORY};

use crate::ask::{AskArgs, Asked, ask, end, end_as_is, get, marked, tell};
use crate::{FAILURE, USAGE, table};

#[derive(Args)]
pub struct DiffArgs {
    /// Configuration; see weft.example.toml. The paths in it are of the machine that weft runs on
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    ask: AskArgs,
}

/// How a change is made.
#[derive(Args)]
pub struct ChangeArgs {
    /// Change nothing, and say what would change
    #[arg(long)]
    dry_run: bool,
    /// Also what cuts hosts, initiators or clients, or loses what is in memory
    #[arg(long)]
    disconnect: bool,
    /// Only if this generation is served: no other change has come between
    #[arg(long, value_name = "N")]
    if_generation: Option<u64>,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
pub struct ApplyArgs {
    /// Configuration; see weft.example.toml. The paths in it are of the machine that weft runs on
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    how: ChangeArgs,
}

#[derive(Args)]
pub struct DumpArgs {
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
pub struct HistoryArgs {
    /// One generation: its text, and what made it
    generation: Option<u64>,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
pub struct RollbackArgs {
    /// The generation whose text is served again, as a new one
    generation: u64,
    #[command(flatten)]
    how: ChangeArgs,
}

#[derive(Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    what: Option<AuditCommand>,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Say whether a record was changed or taken out since it was written
    Verify {
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// Prints what would change.
pub fn diff(arguments: &DiffArgs) -> io::Result<ExitCode> {
    let target = "/v1/config?dry_run=true".to_owned();
    let request = Request {
        target,
        ..Request::default()
    };
    end(
        &arguments.ask,
        put(&arguments.ask, request, &arguments.config),
        show_plan,
    )
}

/// Has the text of a file served.
pub fn apply(arguments: &ApplyArgs) -> io::Result<ExitCode> {
    let request = arguments.how.request("/v1/config");
    let asked = put(&arguments.how.ask, request, &arguments.config);
    arguments.how.end(asked)
}

/// Has a former generation served.
pub fn rollback(arguments: &RollbackArgs) -> io::Result<ExitCode> {
    let request = Request {
        method: "POST".parse().expect("a method"),
        body: json!(Rollback {
            generation: arguments.generation
        })
        .to_string(),
        ..arguments.how.request("/v1/config:rollback")
    };
    arguments.how.end(ask(&arguments.how.ask, &request, None))
}

/// Prints the text that is served.
pub fn dump(arguments: &DumpArgs) -> io::Result<ExitCode> {
    let asked = get(&arguments.ask, "/v1/config");
    end_as_is(&arguments.ask, asked, |out, answer: &ConfigText| {
        out.write_all(answer.text.as_bytes())
    })
}

/// Prints what made each generation, or one.
pub fn history(arguments: &HistoryArgs) -> io::Result<ExitCode> {
    match arguments.generation {
        None => end(
            &arguments.ask,
            get(&arguments.ask, "/v1/config/history"),
            |out, answer: &History| table::show(out, HISTORY, &answer.generations),
        ),
        Some(number) => {
            let asked = get(&arguments.ask, &format!("/v1/config/history/{number}"));
            end_as_is(&arguments.ask, asked, |out, answer: &GenerationText| {
                out.write_all(answer.text.as_bytes())
            })
        }
    }
}

/// Prints the last changes and refusals, or whether their records are as they were written.
pub fn audit(arguments: &AuditArgs) -> io::Result<ExitCode> {
    let Some(AuditCommand::Verify { ask }) = &arguments.what else {
        return end(
            &arguments.ask,
            get(&arguments.ask, "/v1/audit"),
            |out, answer: &Audit| table::show(out, AUDIT, &answer.records),
        );
    };
    let asked = get(ask, "/v1/audit:verify");
    let mut is_wrong = false;
    let shown = end(ask, asked, |out, answer: &AuditVerified| {
        is_wrong = !answer.wrong.is_empty();
        show_verified(out, answer)
    })?;
    Ok(if is_wrong {
        ExitCode::from(FAILURE)
    } else {
        shown
    })
}

impl ChangeArgs {
    /// A request of a change, without its method and body.
    pub fn request(&self, path: &str) -> Request {
        let (dry_run, disconnect) = (self.dry_run, self.disconnect);
        let if_match = self.if_generation.map(|n| ("if-match", format!("\"{n}\"")));
        Request {
            target: format!("{path}?dry_run={dry_run}&disconnect={disconnect}"),
            headers: if_match.into_iter().collect(),
            ..Request::default()
        }
    }

    /// Where it is asked for.
    pub fn place(&self) -> &AskArgs {
        &self.ask
    }

    /// Prints what has changed, or would.
    pub fn end(&self, asked: Asked) -> io::Result<ExitCode> {
        match self.dry_run {
            true => end(&self.ask, asked, show_plan),
            false => end(&self.ask, asked, show_done),
        }
    }
}

/// Asks to serve the text of a file.
fn put(arguments: &AskArgs, request: Request, file: &Path) -> Asked {
    let read = FileText::read_again(file).map_err(|problems| tell(&problems));
    let folder = absolute(file).ok();
    let folder = folder
        .as_deref()
        .and_then(Path::parent)
        .and_then(Path::to_str);
    let folder = folder.ok_or_else(|| {
        let file = file.display();
        tell(&format!(
            "weft: {file}: its folder has no name in UTF-8: move the file"
        ));
    });
    let (Ok(read), Ok(folder)) = (read, folder) else {
        return Err(USAGE);
    };
    // On another machine its paths are of that one.
    let folder = match arguments.is_remote() {
        true => String::new(),
        false => format!("&folder={}", encoded(folder)),
    };
    let request = Request {
        method: "PUT".parse().expect("a method"),
        target: format!("{}{folder}", request.target),
        body: read.text,
        ..request
    };
    ask(arguments, &request, Some(file))
}

fn show_verified(out: &mut dyn Write, answer: &AuditVerified) -> io::Result<()> {
    let file = answer.file.as_deref().unwrap_or("no audit");
    for line in answer.wrong.iter().chain(&answer.torn) {
        writeln!(out, "{file}: {line}")?;
    }
    let count = answer.records;
    match answer.wrong.is_empty() {
        true => writeln!(out, "{file}: {count} records, as they were written"),
        false => writeln!(out, "{file}: {count} records, NOT as they were written"),
    }
}

/// Which generation it is, and what has it at the next start.
pub fn kept_in(document: &Document) -> String {
    let generation = document.generation;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (folder, why) = (text(&document.folder), text(&document.why));
    match document.holds {
        Holds::File => format!("{generation}, in {}", text(&document.file)),
        Holds::Generation => format!("{generation}; changes are kept in {folder}: {why}"),
        Holds::Nothing => format!("{generation}; changes cannot be kept: {why}"),
    }
}

fn show_plan(out: &mut dyn Write, answer: &Changed) -> io::Result<()> {
    let lines = answer.plan.as_deref().unwrap_or_default();
    for line in lines {
        writeln!(out, "{}", marked(line))?;
    }
    show_left(out, answer)?;
    match lines.iter().filter(|line| line.disturbs).count() {
        _ if lines.is_empty() => writeln!(out, "nothing to do"),
        0 => writeln!(out, "changes: {}, none cuts a host", lines.len()),
        count => writeln!(
            out,
            "changes: {}; {count} marked with ! cut hosts or lose what is in memory: weft apply \
             does that with --disconnect alone",
            lines.len()
        ),
    }
}

fn show_done(out: &mut dyn Write, answer: &Changed) -> io::Result<()> {
    for line in &answer.done {
        writeln!(out, "{line}")?;
    }
    show_left(out, answer)?;
    match answer.done.len() {
        0 => write!(out, "nothing to do"),
        count => write!(out, "changes made: {count}"),
    }?;
    writeln!(out, "; generation {}", kept_in(&answer.document))
}

/// What of a document is not served now, or not as it lies in other places.
fn show_left(out: &mut dyn Write, answer: &Changed) -> io::Result<()> {
    for why in &answer.not_served {
        writeln!(out, "NOT SERVED: {why}")?;
    }
    for why in &answer.at_restart {
        writeln!(out, "NOT YET: {why}")?;
    }
    for why in &answer.not_read {
        writeln!(out, "NOT READ: {why}")?;
    }
    Ok(())
}
