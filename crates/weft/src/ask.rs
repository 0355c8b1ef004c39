//! Commands that ask the weft which runs on this machine, over its admin socket.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use admin::{Answer, Request};
use api::{LastChange, PlanLine, TargetStatus};
use clap::Args;
use control::{Problem, Problems, format_size};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::watch::{WatchArgs, watched};
use crate::{FAILURE, USAGE, changes, refusals};

/// What all of them take.
#[derive(Args)]
pub struct AskArgs {
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// The admin socket; default: /run/weft/admin.sock for root, for other users
    /// $XDG_RUNTIME_DIR/weft/admin.sock or, where that is not there, root's
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
pub struct RefusalsArgs {
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    ask: AskArgs,
}

/// A command that ends here: what it printed is on standard error.
pub type Asked = Result<Value, u8>;

/// Prints what is served.
pub fn status(arguments: &StatusArgs) -> io::Result<ExitCode> {
    let ask = &arguments.ask;
    watched(&arguments.watch, || {
        end(ask, get(ask, "/v1/status"), show_status)
    })
}

/// Prints what was refused.
pub fn refusals(arguments: &RefusalsArgs) -> io::Result<ExitCode> {
    let ask = &arguments.ask;
    watched(&arguments.watch, || {
        end(ask, get(ask, "/v1/refusals"), refusals::show)
    })
}

/// Asks; what is refused is told. `file`: where the text of the request is from.
pub fn ask(arguments: &AskArgs, request: &Request, file: Option<&Path>) -> Asked {
    let socket = socket(arguments)?;
    let answer = admin::ask(&socket, request).map_err(|error| unreached(&socket, &error))?;
    match answer {
        Answer {
            is_done: true,
            body,
        } => Ok(body),
        Answer { body, .. } => Err(refused(arguments, file, &body)),
    }
}

/// Where to ask.
pub fn socket(arguments: &AskArgs) -> Result<PathBuf, u8> {
    let usual = || admin::asked_path();
    let socket = arguments.socket.clone().map_or_else(usual, Ok);
    socket.map_err(|why| {
        tell(&format!(
            "weft: no admin socket: {why}: name one with --socket"
        ));
        FAILURE
    })
}

/// An answer as what it is.
///
/// # Errors
/// It is not that: what was said of it is on standard error.
pub fn decoded<T: DeserializeOwned>(answer: &Value) -> Result<T, u8> {
    T::deserialize(answer).map_err(|error| {
        tell(&format!(
            "weft: the answer is not one of this version ({error}): ask with the command of the \
             version that runs"
        ));
        FAILURE
    })
}

/// Tells why a request was not done; the exit code.
pub fn refused(arguments: &AskArgs, file: Option<&Path>, problem: &Value) -> u8 {
    if arguments.json {
        tell(problem);
        return code_of(problem);
    }
    match decoded(problem) {
        Ok(told) => {
            tell_problem(file, told);
            code_of(problem)
        }
        Err(code) => code,
    }
}

/// Asks what changes nothing.
pub fn get(arguments: &AskArgs, target: &str) -> Asked {
    let request = Request {
        target: target.to_owned(),
        ..Request::default()
    };
    ask(arguments, &request, None)
}

/// Tells why a socket does not answer, and what to do; the exit code.
pub fn unreached(socket: &Path, error: &io::Error) -> u8 {
    tell(&format!("weft: {}", why_unreached(socket, error)));
    FAILURE
}

/// Why a socket does not answer, and what to do.
pub fn why_unreached(socket: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            "no weft that runs has this admin socket: start one with `weft serve`, or name its \
             socket (`[admin] socket`) with --socket"
        }
        ErrorKind::PermissionDenied => {
            "the user that weft runs as, root, and members of the groups of [[admin.group]] may ask: \
             one of them lets you in with `weft add group GROUP role=viewer`"
        }
        _ => "no weft answers there: name its socket with --socket",
    };
    format!("{}: {error}: {remedy}", socket.display())
}

/// A mistake in a file is one of usage.
fn code_of(problem: &Value) -> u8 {
    match problem["status"].as_u64() {
        Some(422) => USAGE,
        _ => FAILURE,
    }
}

fn tell_problem(file: Option<&Path>, problem: api::ProblemDetails) {
    if !problem.problems.is_empty() {
        let file = file.map_or_else(
            || "the document".to_owned(),
            |file| file.display().to_string(),
        );
        let list = problem.problems.into_iter().map(|mistake| Problem {
            line: mistake.line,
            column: mistake.column,
            text: mistake.text,
            excerpt: mistake.excerpt,
        });
        let list = list.collect();
        return tell(&Problems { file, list }.with_excerpts().trim_end());
    }
    problem.lines.iter().for_each(|line| tell(line));
    problem.plan.iter().for_each(|line| tell(&marked(line)));
    let detail = match problem.hint {
        _ if !problem.plan.is_empty() => {
            "what is marked with ! cuts hosts or loses what is in memory: --disconnect does it"
                .to_owned()
        }
        Some(hint) => format!("{}: {hint}", problem.detail),
        // The lines have said it.
        None if !problem.lines.is_empty() => problem.title,
        None => problem.detail,
    };
    tell(&format!("weft: refused: {detail}"));
}

pub fn tell(text: &dyn Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints an answer.
pub fn end<T: DeserializeOwned>(
    arguments: &AskArgs,
    asked: Asked,
    show: impl FnOnce(&mut dyn Write, &T) -> io::Result<()>,
) -> io::Result<ExitCode> {
    let told = asked.and_then(|answer| Ok((decoded::<T>(&answer)?, answer)));
    let (told, answer) = match told {
        Ok(told) => told,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let mut out = io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{answer}")?,
        false => show(&mut out, &told)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

pub fn marked(line: &PlanLine) -> String {
    let mark = if line.disturbs { '!' } else { ' ' };
    format!("{mark} {}", line.text)
}

fn show_status(out: &mut dyn Write, status: &TargetStatus) -> io::Result<()> {
    let mut row = |name: &str, value: String| writeln!(out, "{name:<14}{value}");
    row(
        "weft",
        format!(
            "{}, process {}, {} s",
            status.version, status.pid, status.uptime_s
        ),
    )?;
    let file = status.document.file.as_deref();
    let file = file.unwrap_or("what is built in");
    row("serves", format!("{file}, since {}", status.served_since))?;
    row("generation", changes::kept_in(&status.document))?;
    if let Some(last) = &status.last_change {
        let LastChange {
            what,
            time,
            outcome,
        } = last;
        row("last change", format!("{what}, {time}: {outcome}"))?;
    }
    row("driver", status.driver.clone())?;
    for listener in &status.listeners {
        let protocol = listener.protocol.name();
        row("listener", format!("{} {protocol}", listener.address))?;
    }
    if let Some(address) = status.admin.address {
        row("admin address", address.to_string())?;
    }
    if let Some(socket) = &status.admin.socket {
        row("admin socket", socket.clone())?;
    }
    if let Some(drained) = &status.drained {
        let text = format!("{drained}: no host is let in; `weft drain --end` ends that");
        row("DRAINED", text)?;
    }
    for why in &status.not_served {
        row("NOT SERVED", why.clone())?;
    }
    for why in &status.at_restart {
        row("NOT YET", why.clone())?;
    }
    for (name, count) in [
        ("volumes", status.volumes),
        ("subsystems", status.subsystems),
        ("targets", status.targets),
        ("file systems", status.file_systems),
        ("exports", status.exports),
    ] {
        row(name, count.to_string())?;
    }
    row("connections", status.connections.to_string())?;
    let of = format_size(status.memory_max_bytes);
    row(
        "memory",
        format!("{} of {of}", format_size(status.memory_bytes)),
    )?;
    for (name, count) in [
        ("I/Os", "ios"),
        ("bytes of I/O", "io_bytes"),
        ("refusals", "refusals"),
    ] {
        let count = status.counters.get(count).copied().flatten();
        row(name, count.unwrap_or(0).to_string())?;
    }
    Ok(())
}
