//! Commands that ask a weft that runs: the one of this machine over its admin socket, or one of
//! another machine.

use std::env::var_os;
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use admin::{AdminAddress, Answer, Request};
use api::{LastChange, PlanLine, QuotaList, RecentRefusals, TargetStatus};
use clap::Args;
use control::{Problem, Problems, format_size};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tables::{QUOTAS, plain};
use tls::{ClientConfig, Identity};

use crate::watch::{WatchArgs, watched};
use crate::{FAILURE, USAGE, changes, refusals, table};

/// What all of them take.
#[derive(Args)]
pub struct AskArgs {
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// Where weft is asked: the path of its admin socket, https://HOST:PORT on another machine,
    /// or http://127.0.0.1:PORT; default: the socket /run/weft/admin.sock for root, for other
    /// users $XDG_RUNTIME_DIR/weft/admin.sock or, where that is not there, root's
    #[arg(long, value_name = "ADDRESS")]
    at: Option<PathBuf>,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// How another machine and this one know each other. Files of TLS are PEM.
#[derive(Args)]
#[command(next_help_heading = "Over https://")]
struct RemoteArgs {
    /// The certificate of the authority (CA) that has signed weft's, or of several
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A certificate to show, which names whoever asks
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// A token to show, in a file; default: the file that WEFT_TOKEN_FILE names
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
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

/// Prints what users, groups and trees have in file systems, and may have.
pub fn quotas(ask: &AskArgs) -> io::Result<ExitCode> {
    end(ask, get(ask, "/v1/quotas"), |out, all: &QuotaList| {
        if all.quotas.is_empty() {
            return writeln!(out, "no file system keeps quotas");
        }
        table::show(out, QUOTAS, &all.quotas)?;
        for name in &all.counting {
            writeln!(out, "counting {name}: not all that is there is told yet")?;
        }
        match all.left_out {
            0 => Ok(()),
            left_out => writeln!(out, "and {left_out} more, without limits"),
        }
    })
}

/// Asks; what is refused is told. `file`: where the text of the request is from.
pub fn ask(arguments: &AskArgs, request: &Request, file: Option<&Path>) -> Asked {
    let at = address(arguments)?;
    let answer = admin::ask(&at, request).map_err(|error| unreached(&at, &error))?;
    match answer {
        Answer {
            is_done: true,
            body,
        } => Ok(body),
        Answer { body, .. } => Err(refused(arguments, file, &body)),
    }
}

impl AskArgs {
    /// Whether another machine may be asked: paths mean something else there.
    pub fn is_remote(&self) -> bool {
        self.url().is_some()
    }

    fn url(&self) -> Option<&str> {
        let at = self.at.as_ref()?.to_str()?;
        at.contains("://").then_some(at)
    }
}

/// Where to ask.
///
/// # Errors
/// What of it cannot be used is on standard error.
pub fn address(arguments: &AskArgs) -> Result<AdminAddress, u8> {
    let fail = |code: u8, why: &str| {
        tell(&format!("weft: {why}"));
        code
    };
    let Some(url) = arguments.url() else {
        let RemoteArgs {
            ca,
            certificate,
            key: _,
            token_file,
        } = &arguments.remote;
        if ca.is_some() || certificate.is_some() || token_file.is_some() {
            let why = "--ca, --certificate and --token-file are for https://: name it with --at";
            return Err(fail(USAGE, why));
        }
        let socket = arguments.at.clone().map_or_else(admin::asked_path, Ok);
        let socket = socket.map_err(|why| {
            let why = format!("no admin socket: {why}: name one with --at");
            fail(FAILURE, &why)
        });
        return socket.map(AdminAddress::Socket);
    };
    let at = arguments.remote.known().and_then(|(tls, token)| {
        let at = AdminAddress::of_url(url, tls, token);
        at.map_err(|why| format!("--at: {why}"))
    });
    at.map_err(|why| fail(USAGE, &why))
}

/// What is taken of another machine, and what is shown to it.
type Known = (Option<Arc<ClientConfig>>, Option<String>);

impl RemoteArgs {
    fn known(&self) -> Result<Known, String> {
        let shown = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some(Identity::read(certificate, &key.clone().into())?)
            }
            _ => None,
        };
        let tls = self.ca.as_ref().map(|ca| tls::client_side(ca, shown));
        let file = self.token_file.clone();
        let file = file.or_else(|| var_os("WEFT_TOKEN_FILE").map(PathBuf::from));
        let token = file.map(|file| read_token(&file));
        Ok((tls.transpose()?, token.transpose()?))
    }
}

fn read_token(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| format!("the token in {shown}: {error}"))?;
    let token = text.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(format!(
            "{shown} holds no token: `weft token add` prints one"
        )),
    }
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

/// Tells why weft does not answer at an address, and what to do; the exit code.
pub fn unreached(at: &AdminAddress, error: &io::Error) -> u8 {
    tell(&format!("weft: {}", why_unreached(at, error)));
    FAILURE
}

/// Why weft does not answer at an address, and what to do.
pub fn why_unreached(at: &AdminAddress, error: &io::Error) -> String {
    let is_socket = matches!(at, AdminAddress::Socket(_));
    let remedy = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused if is_socket => {
            "no weft that runs has this admin socket: start one with `weft serve`, or name its \
             socket (`[admin] socket`) with --at"
        }
        ErrorKind::PermissionDenied if is_socket => {
            "the user that weft runs as, root, and members of the groups of [[admin.group]] may ask: \
             one of them lets you in with `weft add group GROUP role=viewer`"
        }
        _ if is_socket => "no weft answers there: name its socket with --at",
        ErrorKind::ConnectionRefused => {
            "nothing listens there: `weft status` on that machine says where it does, and \
             `[admin] listen` sets it"
        }
        ErrorKind::TimedOut => "see that the network and its firewalls let this port through",
        // It says itself what is wrong.
        ErrorKind::InvalidData => "so nothing was asked",
        _ => "see that weft runs there, and that `[admin] listen` and `[admin.tls]` are set",
    };
    format!("{at}: {error}: {remedy}")
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
            other_line: None,
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
    let _ = writeln!(io::stderr(), "{}", plain(&text.to_string()));
}

/// Prints an answer. Peers have chosen some of its texts: what commands a terminal is written
/// out.
pub fn end<T: DeserializeOwned>(
    arguments: &AskArgs,
    asked: Asked,
    show: impl FnOnce(&mut dyn Write, &T) -> io::Result<()>,
) -> io::Result<ExitCode> {
    end_as_is(arguments, asked, |out, told| {
        let mut text = Vec::new();
        show(&mut text, told)?;
        out.write_all(plain(&String::from_utf8_lossy(&text)).as_bytes())
    })
}

/// The same of a text that is to be a file's again.
pub fn end_as_is<T: DeserializeOwned>(
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
    let source = status.document.shown();
    row("serves", format!("{source}, since {}", status.served_since))?;
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
        let spoken = listener.speaks();
        row("listener", format!("{} {spoken}", listener.address))?;
    }
    if let Some(address) = status.admin.address {
        let is_encrypted = status
            .admin
            .url
            .as_ref()
            .is_some_and(|url| url.starts_with("https:"));
        let tls = if is_encrypted { ", TLS" } else { "" };
        row("admin address", format!("{address}{tls}"))?;
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
    for warning in &status.warnings {
        row("WARNING", warning.clone())?;
    }
    show_amounts(&mut row, status)
}

/// How much there is of what.
fn show_amounts(
    row: &mut dyn FnMut(&str, String) -> io::Result<()>,
    status: &TargetStatus,
) -> io::Result<()> {
    for (name, count) in [
        ("volumes", status.volumes),
        ("subsystems", status.subsystems),
        ("targets", status.targets),
        ("file systems", status.file_systems),
        ("exports", status.exports),
        ("nbd exports", status.nbd_exports),
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
    match &status.refused {
        Some(refused) => row("refused", recently(refused)),
        None => Ok(()),
    }
}

/// What was refused most in the last hour.
fn recently(refused: &RecentRefusals) -> String {
    let RecentRefusals {
        different,
        most_frequent: most,
    } = refused;
    let address = most.address.map(|address| address.to_string());
    let peer: Vec<_> = most.host.iter().cloned().chain(address).collect();
    format!(
        "in the last hour {different}; most often ({}): {}, {}: {}; `weft refusals` has all",
        most.count,
        peer.join(" at "),
        most.kind,
        most.reason
    )
}
