//! The weft binary: arguments, what is printed, signals.
#![forbid(unsafe_code)]

mod ask;
mod banner;
mod changes;
mod core_dump;
mod doctor;
mod drain;
mod events;
mod evict;
mod get;
mod import;
mod journal;
mod key;
mod log;
mod login;
mod machine;
mod manual;
mod objects;
mod one_line;
mod policy;
mod refusals;
mod scrub;
mod serve;
mod service;
mod signals;
mod snapshot;
mod snapshot_stream;
mod support_bundle;
mod table;
mod token;
mod top;
mod volume_image;
mod watch;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use admin::EventLog;
use clap::{CommandFactory, Parser, Subcommand};
use control::{FileText, Problems};
use server::Config;

/// Counts allocations, so that reports can say how many an I/O costs.
#[cfg(feature = "count-allocations")]
#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;

/// What was asked for could not be done.
const FAILURE: u8 = 1;
/// The command line or the configuration is wrong (clap's own code for it).
const USAGE: u8 = 2;
/// A part of the server has failed by our own mistake (a panic); the rest has
/// ended in order, as far as it could.
const INTERNAL: u8 = 3;

/// Network storage in user space: volumes served over NVMe/TCP, iSCSI and NBD, files
/// over NFS.
///
/// Without a command: `serve` on a built-in configuration, one RAM volume of
/// 1 GiB on 127.0.0.1:4420 (NVMe/TCP), 127.0.0.1:3260 (iSCSI) and
/// 127.0.0.1:10809 (NBD), and files in memory on 127.0.0.1:2049 (NFS), or 20490 if that is taken.
#[derive(Parser)]
#[command(
    version = env!("WEFT_VERSION"),
    after_help = "Exit codes: 0 fine, 1 failure, 2 wrong usage or configuration, \
                  3 a part of the server failed, 4 an import changes who may do what.\n\
                  WEFT_LOG=debug says more on standard error (tracing's filter syntax); \
                  WEFT_LOG_FORMAT is text, json (an object a line) or journal (with fields)."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<WeftCommand>,
}

#[derive(Subcommand)]
enum WeftCommand {
    /// Serve volumes until Ctrl-C or SIGTERM; a second one ends at once. SIGHUP has
    /// the configuration read again, SIGUSR1 has counters printed as a line of JSON;
    /// SIGQUIT and SIGUSR2 are ignored
    Serve {
        /// Configuration; see weft.example.toml
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        one_line: one_line::OneLineArgs,
    },
    /// Say what is wrong with a configuration, here and now, or what it serves
    Check {
        /// Configuration; see weft.example.toml
        #[arg(required_unless_present = "config")]
        file: Option<PathBuf>,
        /// The same
        #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
    },
    /// Say which connection policy holds for an address
    Policy(policy::PolicyArgs),
    /// Say what the weft serves that runs on this machine, and what it has done so far
    Status(ask::StatusArgs),
    /// Print an address that opens the weft which runs on this machine in a browser, once
    Login(login::LoginArgs),
    /// Make or remove a token, by which a program asks the weft that runs on this machine over TCP
    Token(token::TokenArgs),
    /// Make, check or replace the key by which an NVMe host speaks TLS
    Key(key::KeyArgs),
    /// List what the weft that runs on this machine has refused last: to whom, why, and the
    /// configuration that would let it in
    Refusals(ask::RefusalsArgs),
    /// List what users, groups and trees have in file systems that keep quotas, and may have
    Quotas(ask::AskArgs),
    /// List who is connected to the weft that runs on this machine (connections, hosts, sessions,
    /// nfs-clients), or objects of the configuration that is served: all, those of a kind, or
    /// those in one
    Get(get::GetArgs),
    /// List what has happened to the weft that runs on this machine, or follow it: who came and
    /// went, what was refused, changed or has failed
    Events(events::EventsArgs),
    /// Show what hosts do now, and how long it takes: by host, volume, connection, reactor and NFS
    /// client
    Top(top::TopArgs),
    /// Make one file of what a person needs who is to help, without secrets: what is served, what
    /// has happened, what is measured, what the machine is
    SupportBundle(support_bundle::BundleArgs),
    /// Say what is known of one client, and what of it is slow, refused or about to end
    Doctor(doctor::DoctorArgs),
    /// End a connection, or all that a host, an iSCSI session or an NFS client has: it may come
    /// back, unless its right is taken
    Evict(evict::EvictArgs),
    /// Have all hosts go elsewhere before maintenance, and let them in again after it
    Drain(drain::DrainArgs),
    /// Read all blocks of volumes that have checksums, and compare them: begin, pause, end or list
    Scrub(scrub::ScrubArgs),
    /// Make, list and remove snapshots of volumes, roll back to them, send them to another weft
    Snapshot(snapshot::SnapshotArgs),
    /// Read disk images into volumes, and write volumes to disk images
    Volume(volume_image::VolumeArgs),
    /// Say what applying a configuration would change, and change nothing
    Diff(changes::DiffArgs),
    /// Have the weft that runs on this machine serve a configuration, while hosts are
    /// connected: all of it or nothing
    Apply(changes::ApplyArgs),
    /// Print the configuration that is served: a start with it serves the same
    Dump(changes::DumpArgs),
    /// List the generations of the configuration that is served: when each was made, by
    /// which user and how
    History(changes::HistoryArgs),
    /// Serve what an earlier generation says, as a new generation
    Rollback(changes::RollbackArgs),
    /// Add an object: weft add volume disk1 kind=file path=/srv/disk1.img size=8GiB
    Add(objects::EditArgs),
    /// Change keys of an object: weft set volume disk1 size=9GiB
    Set(objects::EditArgs),
    /// Remove an object: weft rm volume disk1
    Rm(objects::RemoveArgs),
    /// List the last changes and refusals of changes, or verify their records
    Audit(changes::AuditArgs),
    /// Make a configuration of another target's or server's: prints it, and on standard error
    /// what is not carried over
    Import(import::ImportArgs),
    /// List the subsystems, targets or files that a server has
    Discover(client::discover::DiscoverArgs),
    /// Load a target and measure; Ctrl-C ends it early
    Perf(Box<client::perf::PerfArgs>),
    /// Measure what plain sockets give for the same byte counts
    Ceiling(bench::ceiling::CeilingArgs),
    /// Measure this machine as the papers of storage and NIC vendors do, into one page
    Bench(bench::command::BenchArgs),
    /// Print the JSON Schema of a configuration, by which editors complete and check it
    Schema,
    /// Print what completes weft's commands in a shell
    Completions(manual::CompletionsArgs),
    /// Write weft's manual pages, one for each command
    Man(manual::ManArgs),
    /// Become a program that ends with the process that started it
    #[command(hide = true)]
    Leash(bench::sides::LeashArgs),
    /// Look at the machine's settings, and set a profile that can be undone
    Tune(tune::TuneArgs),
}

fn main() -> ExitCode {
    let events = match log::start() {
        Ok(events) => events,
        Err(why) => {
            log::tell_error(&why);
            return ExitCode::from(USAGE);
        }
    };
    core_dump::leave_memory_out();
    store::frames::touch_ahead();
    let ended = match Cli::try_parse() {
        Ok(arguments) => run(arguments.command, events),
        // Help, or what is wrong with the command line.
        Err(text) => {
            reactor::end_at_closed_pipe();
            let printed = text.print();
            printed.map(|()| ExitCode::from(text.exit_code() as u8))
        }
    };
    ended.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::BrokenPipe {
            let _ = writeln!(
                io::stderr(),
                "weft: cannot print: {error}: free space where standard output goes, or send it \
                 elsewhere"
            );
        }
        ExitCode::from(FAILURE)
    })
}

/// Does what is asked; fails where it cannot print what it has to say.
fn run(command: Option<WeftCommand>, events: Arc<EventLog>) -> io::Result<ExitCode> {
    if !goes_on_unread(command.as_ref()) {
        reactor::end_at_closed_pipe();
    }
    match command {
        None => Ok(serve::run(None, None, events)),
        Some(WeftCommand::Serve { config, one_line }) => match one_line.asked(serve::nfs_port) {
            Ok(one_line) => Ok(serve::run(config.as_deref(), one_line, events)),
            Err(why) => {
                log::tell_error(&why);
                Ok(ExitCode::from(FAILURE))
            }
        },
        Some(WeftCommand::Check { file, config }) => {
            let file = file.or(config).unwrap_or_default();
            let FileCheck { code, text } =
                check_file(&file, |problems, _| problems.with_excerpts());
            match code {
                0 => write!(io::stdout(), "{text}")?,
                _ => drop(write!(io::stderr(), "{text}")),
            }
            Ok(ExitCode::from(code))
        }
        Some(WeftCommand::Policy(arguments)) => policy::run(&arguments),
        Some(WeftCommand::Status(arguments)) => ask::status(&arguments),
        Some(WeftCommand::Refusals(arguments)) => ask::refusals(&arguments),
        Some(WeftCommand::Quotas(arguments)) => ask::quotas(&arguments),
        Some(WeftCommand::Events(arguments)) => events::run(&arguments),
        Some(WeftCommand::Top(arguments)) => top::run(&arguments),
        Some(WeftCommand::SupportBundle(arguments)) => support_bundle::run(&arguments),
        Some(WeftCommand::Doctor(arguments)) => doctor::run(&arguments),
        Some(WeftCommand::Evict(arguments)) => evict::run(&arguments),
        Some(WeftCommand::Drain(arguments)) => drain::run(&arguments),
        Some(WeftCommand::Scrub(arguments)) => scrub::run(&arguments),
        Some(WeftCommand::Snapshot(arguments)) => snapshot::run(&arguments),
        Some(WeftCommand::Volume(arguments)) => {
            run_until_signal(|stop| volume_image::run(&arguments, stop))
        }
        Some(WeftCommand::Get(arguments)) => get::run(&arguments),
        Some(WeftCommand::Login(arguments)) => login::run(&arguments),
        Some(WeftCommand::Token(arguments)) => token::run(&arguments),
        Some(WeftCommand::Key(arguments)) => key::run(&arguments),
        Some(WeftCommand::Diff(arguments)) => changes::diff(&arguments),
        Some(WeftCommand::Apply(arguments)) => changes::apply(&arguments),
        Some(WeftCommand::Dump(arguments)) => changes::dump(&arguments),
        Some(WeftCommand::History(arguments)) => changes::history(&arguments),
        Some(WeftCommand::Rollback(arguments)) => changes::rollback(&arguments),
        Some(WeftCommand::Add(arguments)) => objects::add(&arguments),
        Some(WeftCommand::Set(arguments)) => objects::set(&arguments),
        Some(WeftCommand::Rm(arguments)) => objects::remove(&arguments),
        Some(WeftCommand::Audit(arguments)) => changes::audit(&arguments),
        Some(WeftCommand::Import(arguments)) => import::run(&arguments),
        Some(WeftCommand::Discover(arguments)) => client::discover::run(&arguments),
        Some(WeftCommand::Perf(arguments)) => {
            run_until_signal(|stop| client::perf::run(&arguments, stop))
        }
        Some(WeftCommand::Bench(arguments)) => {
            run_until_signal(|stop| bench::command::run(&arguments, settings_of_machine(), stop))
        }
        Some(WeftCommand::Ceiling(arguments)) => bench::ceiling::run(&arguments),
        Some(WeftCommand::Leash(arguments)) => Ok(bench::sides::leash(&arguments)),
        Some(WeftCommand::Schema) => manual::schema(),
        Some(WeftCommand::Completions(arguments)) => {
            manual::completions(&arguments, Cli::command())
        }
        Some(WeftCommand::Man(arguments)) => manual::man(&arguments, Cli::command()),
        Some(WeftCommand::Tune(arguments)) => tune::run(&arguments),
    }
}

/// What `weft check` says of a file, and its exit code.
struct FileCheck {
    code: u8,
    text: String,
}

/// Says what a start would meet on this machine, and what it would serve; `told`: what it says of
/// mistakes in a text.
fn check_file(file: &Path, told: impl FnOnce(&Problems, &str) -> String) -> FileCheck {
    let wrong = |text| FileCheck { code: USAGE, text };
    let read = match FileText::read(file) {
        Ok(read) => read,
        Err(unread) => return wrong(told(&unread, "")),
    };
    let config = match read.parse(file) {
        Ok(config) => config,
        Err(problems) => return wrong(told(&problems, &read.text)),
    };
    let (findings, served) = server::examine(&config);
    let file = file.display();
    if findings.iter().any(|finding| finding.stops) {
        let lines = findings
            .iter()
            .map(|finding| format!("{file}: {}\n", finding.text));
        return FileCheck {
            code: FAILURE,
            text: lines.collect(),
        };
    }
    let mut text = format!(
        "{file}: fine; it serves\n{}{}{}",
        banner::contents(&served, &addresses(&served)),
        banner::paths(&served),
        banner::notes(&served)
    );
    for note in admin::notes_of_groups(&config.admin.groups) {
        text += &format!("  note: {note}\n");
    }
    for finding in findings {
        text += &format!("  note: {}\n", finding.text);
    }
    FileCheck { code: 0, text }
}

/// Whether it does its work to the end when its output is closed: hosts use a target,
/// and what is measured for long is in files.
fn goes_on_unread(command: Option<&WeftCommand>) -> bool {
    match command {
        None | Some(WeftCommand::Serve { .. }) => true,
        Some(WeftCommand::Bench(arguments)) => arguments.measures(),
        // A weft that refuses a stream may close the socket before it has all of it.
        Some(WeftCommand::Snapshot(arguments)) => arguments.receives(),
        Some(_) => false,
    }
}

/// Runs something that the first signal asks to end.
fn run_until_signal(
    run: impl FnOnce(&Arc<AtomicBool>) -> io::Result<ExitCode>,
) -> io::Result<ExitCode> {
    match signals::first_signal() {
        Ok(stop) => run(&stop),
        Err(error) => {
            let _ = writeln!(io::stderr(), "weft: signals cannot be handled: {error}");
            Ok(ExitCode::from(FAILURE))
        }
    }
}

/// What `weft tune` looks at, as it is.
fn settings_of_machine() -> Vec<(String, String)> {
    let machine = tune::Machine::look(Path::new("/"));
    let findings = tune::findings(&machine, tune::Profile::Throughput);
    let settings = findings.into_iter();
    settings.map(|found| (found.name, found.now)).collect()
}

fn with_config(
    file: &Path,
    run: impl FnOnce(Config) -> io::Result<ExitCode>,
) -> io::Result<ExitCode> {
    match control::load(file) {
        Ok(config) => run(config),
        Err(problems) => {
            let _ = write!(io::stderr(), "{}", problems.with_excerpts());
            Ok(ExitCode::from(USAGE))
        }
    }
}

/// Where a configuration listens.
fn addresses(config: &Config) -> Vec<SocketAddr> {
    let listeners = config.listeners.iter();
    listeners.map(|listener| listener.address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Command lines of weft in the pages: in the text between backquotes, and in examples.
    fn command_lines() -> Vec<(PathBuf, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = std::fs::read_dir(root.join("docs")).expect("the pages");
        let docs = docs.map(|entry| entry.expect("a page").path());
        let pages = docs.chain([root.join("README.md")]);
        let mut found = Vec::new();
        for page in pages.filter(|page| page.extension().is_some_and(|it| it == "md")) {
            let text = std::fs::read_to_string(&page).expect("a text");
            let inline = text.split('`').skip(1).step_by(2).map(str::to_owned);
            let fenced = text.split("```").skip(1).step_by(2);
            let examples = fenced.flat_map(|block| {
                let prompt = if block.starts_with("console") {
                    "$ "
                } else {
                    ""
                };
                let lines = block.lines();
                lines.filter_map(move |line| line.strip_prefix(prompt))
            });
            let examples = examples.map(str::to_owned);
            let all = inline.chain(examples);
            // With a second blank it is what a command prints.
            let is_command = |line: &String| {
                line.starts_with("weft ") && !line.starts_with("weft  ") && !line.contains('\n')
            };
            let commands = all.filter(is_command);
            found.extend(commands.map(|command| (page.clone(), command)));
        }
        found
    }

    #[test]
    fn commands_and_options_that_pages_name_are_there() {
        let mut whole = Cli::command();
        whole.build();
        let lines = command_lines();
        assert!(lines.len() > 150, "{} command lines", lines.len());
        for (page, line) in lines {
            let words = line.split([' ', '=']).skip(1);
            let mut words = words.take_while(|word| !matches!(*word, "|" | ">" | "&&" | "||"));
            let mut command = &whole;
            let name = words.next().unwrap_or_default();
            let is_there = name.starts_with('-') || command.find_subcommand(name).is_some();
            assert!(is_there, "{page:?}: {line}: no such command");
            for word in [name].into_iter().chain(words) {
                if let Some(below) = command.find_subcommand(word) {
                    command = below;
                }
                let Some(option) = word.strip_prefix("--") else {
                    continue;
                };
                let mut known = command.get_arguments().chain(whole.get_arguments());
                assert!(
                    known.any(|known| known.get_long() == Some(option)),
                    "{page:?}: {line}: no such option"
                );
            }
        }
    }

    #[test]
    fn perf_and_serve_agree_on_the_default() {
        let config = control::default_config();
        assert_eq!(config.subsystems[0].nqn, client::perf::default_nqn());
        let words = Cli::try_parse_from(["weft", "perf"]).expect("a command line");
        let Some(WeftCommand::Perf(arguments)) = words.command else {
            panic!("not perf");
        };
        let address = std::net::SocketAddr::new(arguments.traddr, arguments.trsvcid);
        assert_eq!(addresses(&config)[0], address);
    }
}
