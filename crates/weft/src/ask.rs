//! Commands that ask the weft which runs on this machine, over its admin socket.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::{PathBuf, absolute};
use std::process::ExitCode;

use admin::{Answer, FileRequest, PlanLine};
use clap::Args;
use control::{Problem, Problems, format_size};
use serde_json::Value;

use crate::{FAILURE, USAGE, refusals};

/// What all of them take.
#[derive(Args)]
struct AskArgs {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    /// The admin socket; default: /run/weft/admin.sock for root, for other users
    /// $XDG_RUNTIME_DIR/weft/admin.sock
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
pub struct RefusalsArgs {
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
pub struct DiffArgs {
    /// Configuration, which the weft that runs reads; see weft.example.toml
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    of: DiffArgs,
    /// Change nothing, and say what would change
    #[arg(long)]
    dry_run: bool,
    /// Also what cuts hosts, initiators or clients, or loses what is in memory
    #[arg(long)]
    disconnect: bool,
}

/// A command that ends here: what it printed is on standard error.
type Asked = Result<Value, u8>;

/// Prints what is served.
pub fn status(arguments: &StatusArgs) -> io::Result<ExitCode> {
    end(
        &arguments.ask,
        ask(&arguments.ask, "/v1/status", None),
        show_status,
    )
}

/// Prints what was refused.
pub fn refusals(arguments: &RefusalsArgs) -> io::Result<ExitCode> {
    end(
        &arguments.ask,
        ask(&arguments.ask, "/v1/refusals", None),
        refusals::show,
    )
}

/// Prints what would change.
pub fn diff(arguments: &DiffArgs) -> io::Result<ExitCode> {
    let asked = ask_file(arguments, "/v1/config:diff", false);
    end(&arguments.ask, asked, show_plan)
}

/// Has a file served.
pub fn apply(arguments: &ApplyArgs) -> io::Result<ExitCode> {
    if arguments.dry_run {
        return diff(&arguments.of);
    }
    let asked = ask_file(&arguments.of, "/v1/config:apply", arguments.disconnect);
    end(&arguments.of.ask, asked, show_done)
}

fn ask_file(arguments: &DiffArgs, target: &str, disconnect: bool) -> Asked {
    let request = absolute(&arguments.config).map(|file| FileRequest { file, disconnect });
    let body = request.and_then(|request| Ok(serde_json::to_value(request)?));
    let body = body.map_err(|error| {
        let file = arguments.config.display();
        tell(&format!(
            "weft: {file}: {error}: name the file by another path"
        ));
        USAGE
    })?;
    ask(&arguments.ask, target, Some(&body))
}

/// Asks; what is refused is told.
fn ask(arguments: &AskArgs, target: &str, body: Option<&Value>) -> Asked {
    let usual = || admin::usual_path();
    let socket = arguments.socket.clone().map_or_else(usual, Ok);
    let socket = socket.map_err(|why| {
        tell(&format!(
            "weft: no admin socket: {why}: name one with --socket"
        ));
        FAILURE
    })?;
    let answer = admin::ask(&socket, target, body).map_err(|error| {
        tell(&format!(
            "weft: {}: {}",
            socket.display(),
            unreached(&error)
        ));
        FAILURE
    })?;
    match answer {
        Answer {
            is_done: true,
            body,
        } => Ok(body),
        Answer { body, .. } if arguments.json => {
            tell(&body);
            Err(code_of(&body))
        }
        Answer { body: problem, .. } => {
            tell_problem(body, &problem);
            Err(code_of(&problem))
        }
    }
}

/// Why a socket does not answer, and what to do.
fn unreached(error: &io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            "no weft that runs has this admin socket: start one with `weft serve`, or name its \
             socket (`[admin] socket`) with --socket"
        }
        ErrorKind::PermissionDenied => {
            "only the user that weft runs as, and root, may ask: use one of them"
        }
        _ => "no weft answers there: name its socket with --socket",
    };
    format!("{error}: {remedy}")
}

/// A mistake in a file is one of usage.
fn code_of(problem: &Value) -> u8 {
    match problem["status"].as_u64() {
        Some(422) => USAGE,
        _ => FAILURE,
    }
}

fn tell_problem(request: Option<&Value>, problem: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
    let list = problem["problems"].as_array().into_iter().flatten();
    let list: Vec<_> = list
        .map(|problem| Problem {
            line: number(&problem["line"]),
            column: number(&problem["column"]),
            text: text(&problem["text"]),
        })
        .collect();
    if !list.is_empty() {
        let file = request.map_or_else(String::new, |request| text(&request["file"]));
        return tell(&Problems { file, list });
    }
    let lines = problem["lines"].as_array().into_iter().flatten();
    for line in lines {
        match serde_json::from_value::<PlanLine>(line.clone()) {
            Ok(line) => tell(&marked(&line)),
            Err(_) => tell(&text(line)),
        }
    }
    let detail = match problem["type"].as_str() {
        Some(kind) if kind.ends_with(":disturbs") => {
            "what is marked with ! cuts hosts or loses what is in memory: --disconnect does it"
                .to_owned()
        }
        // The lines have said it.
        _ if problem["lines"].is_array() => text(&problem["title"]),
        _ => text(&problem["detail"]),
    };
    tell(&format!("weft: refused: {detail}"));
}

fn tell(text: &dyn Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints an answer.
fn end(
    arguments: &AskArgs,
    asked: Asked,
    show: impl FnOnce(&mut dyn Write, &Value) -> io::Result<()>,
) -> io::Result<ExitCode> {
    let answer = match asked {
        Ok(answer) => answer,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let mut out = io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{answer}")?,
        false => show(&mut out, &answer)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn marked(line: &PlanLine) -> String {
    let mark = if line.disturbs { '!' } else { ' ' };
    format!("{mark} {}", line.text)
}

fn show_plan(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let lines: Vec<PlanLine> = serde_json::from_value(answer["lines"].clone())?;
    for line in &lines {
        writeln!(out, "{}", marked(line))?;
    }
    show_missing(out, answer)?;
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

fn show_done(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let lines: Vec<String> = serde_json::from_value(answer["done"].clone())?;
    for line in &lines {
        writeln!(out, "{line}")?;
    }
    show_missing(out, answer)?;
    match lines.len() {
        0 => writeln!(out, "nothing to do"),
        count => writeln!(out, "changes made: {count}"),
    }
}

fn show_missing(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    for why in answer["not_served"].as_array().into_iter().flatten() {
        writeln!(out, "NOT SERVED: {}", why.as_str().unwrap_or_default())?;
    }
    Ok(())
}

fn show_status(out: &mut dyn Write, status: &Value) -> io::Result<()> {
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut row = |name: &str, value: String| writeln!(out, "{name:<14}{value}");
    let version = text(&status["version"]);
    row(
        "weft",
        format!(
            "{version}, process {}, {} s",
            number("pid"),
            number("uptime_s")
        ),
    )?;
    let file = status["file"].as_str().unwrap_or("what is built in");
    row(
        "serves",
        format!("{file}, since {}", text(&status["file_applied"])),
    )?;
    let last = &status["last_apply"];
    if last.is_object() {
        let (file, time) = (text(&last["file"]), text(&last["time"]));
        row(
            "last applied",
            format!("{file}, {time}: {}", text(&last["outcome"])),
        )?;
    }
    row("driver", text(&status["driver"]))?;
    for listener in status["listeners"].as_array().into_iter().flatten() {
        let (address, protocol) = (text(&listener["address"]), text(&listener["protocol"]));
        row("listener", format!("{address} {protocol}"))?;
    }
    for why in status["not_served"].as_array().into_iter().flatten() {
        row("NOT SERVED", text(why))?;
    }
    for name in [
        "volumes",
        "subsystems",
        "targets",
        "file_systems",
        "exports",
        "connections",
    ] {
        row(&name.replace('_', " "), number(name).to_string())?;
    }
    let of = format_size(number("memory_max_bytes"));
    row(
        "memory",
        format!("{} of {of}", format_size(number("memory_bytes"))),
    )?;
    for (name, count) in [
        ("I/Os", "ios"),
        ("bytes of I/O", "io_bytes"),
        ("refusals", "refusals"),
    ] {
        row(name, status["counters"][count].to_string())?;
    }
    Ok(())
}
