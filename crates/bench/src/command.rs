//! `weft bench`: what there is, runs of it, and the report.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::{Args, Subcommand};

use super::agent::{self, Agent, AgentArgs, AgentSecret};
use super::catalogue::{CATALOGUE, SweepSpec};
use super::journal::{self, Journal, JournalRun, JournalSettings};
use super::load::{Durations, Load, Subject};
use super::measured::{Effort, FORMAT, Measured, Provenance};
use super::plan::{Plan, PlanItem, chosen};
use super::progress::{show, tell};
use super::run::{self, PlanOutcome};
use super::{provenance, report, sides};

/// The results' file.
const RESULTS: &str = "results.json";
/// Where they go by default.
const FOLDER: &str = "weft-bench";
/// The command line is wrong.
const USAGE: u8 = 2;

/// Arguments of `weft bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum BenchCommand {
    /// List the figures, how long each takes, and what cannot be measured here
    List(Others),
    /// Run loads for a `weft bench run --agents` on another machine, until Ctrl-C
    Agent(AgentArgs),
    /// Measure figures and write the report; Ctrl-C keeps what is done, and the
    /// same command goes on from there
    Run(RunArgs),
    /// Write the report of what was measured once more
    Report {
        /// Where `run` wrote
        #[arg(default_value = FOLDER)]
        folder: PathBuf,
        /// Instead, print how that run stands to an earlier one, point by point
        #[arg(long, value_name = "DIR")]
        compare: Option<PathBuf>,
    },
}

/// What others' programs may take part.
#[derive(Args, Clone, Debug)]
struct Others {
    /// An NVMe/TCP target to measure beside weft, as a URL of `weft perf`
    /// (nvme-tcp://HOST:PORT/NQN); what is on it is overwritten
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// The program that runs a script in a Linux guest; without it nothing is
    /// measured with a kernel's own initiators and targets [default: what the
    /// environment variable WEFT_GUEST names]
    #[arg(long, value_name = "PROGRAM")]
    guest: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct RunArgs {
    /// Names of figures, as `list` has them, or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Whether everything works: the ends of each axis, runs of 0.2 s, once
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// For a report that is kept: every point of the papers, five rounds of the
    /// main figures
    #[arg(long)]
    full: bool,
    /// Where the report, the results and what is needed to go on are written
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    out: PathBuf,
    /// Forget what was measured into the folder before
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    others: Others,
    /// Machines that run the loads, each with a `weft bench agent`; the hosts of a figure are spread over
    /// them. The targets then listen on the address of this machine that the agents reach
    #[arg(
        long,
        value_name = "HOST[:PORT],...",
        value_delimiter = ',',
        requires = "secret_file"
    )]
    agents: Vec<String>,
    /// The secret of the agents, in a file that its owner alone can read
    #[arg(long, value_name = "FILE", requires = "agents")]
    secret_file: Option<PathBuf>,
}

impl Others {
    fn options(&self) -> sides::Options {
        let named = std::env::var_os("WEFT_GUEST").map(PathBuf::from);
        // An empty one is how a shell unsets it for one command.
        let named = named.filter(|path| !path.as_os_str().is_empty());
        sides::Options {
            peer: self.peer.clone(),
            guest: self.guest.clone().or(named),
            ..sides::Options::default()
        }
    }
}

impl RunArgs {
    /// The agents that were named, which have answered.
    fn find_agents(&self, stop: &AtomicBool) -> Result<Vec<Agent>, String> {
        let Some(file) = &self.secret_file else {
            return Ok(Vec::new());
        };
        let secret = AgentSecret::read(file)?;
        let found = self.agents.iter();
        let found = found.map(|place| Agent::find(place, &secret, stop));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = found.iter().find(|agent| agent.sees != found[0].sees) {
            let (first, name) = (&found[0], &other.name);
            return Err(format!(
                "agent {name} reaches this machine at {}, {} at {}: targets listen on one address, so name \
                 agents of one network",
                other.sees, first.name, first.sees
            ));
        }
        Ok(found)
    }

    fn effort(&self) -> Effort {
        match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Normal,
        }
    }
}

impl BenchArgs {
    /// Whether it measures, which takes long and leaves its results in files.
    #[must_use]
    pub fn measures(&self) -> bool {
        matches!(self.command, BenchCommand::Run(_))
    }
}

/// Runs `weft bench`. `settings` describe the machine in the report, beside what
/// is looked up here; `stop` ends a run.
///
/// # Errors
/// What was asked for cannot be printed.
pub fn run(
    args: &BenchArgs,
    settings: Vec<(String, String)>,
    stop: &AtomicBool,
) -> io::Result<ExitCode> {
    let result = match &args.command {
        BenchCommand::List(others) => {
            list(&others.options())?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Agent(args) => return agent::run(args, stop),
        BenchCommand::Run(args) => match chosen(&args.names) {
            Ok(sweeps) => measure(args, &sweeps, settings, stop),
            Err(wrong) => {
                tell(format_args!("weft bench: {wrong}"));
                return Ok(ExitCode::from(USAGE));
            }
        },
        BenchCommand::Report {
            folder,
            compare: None,
        } => match again(folder) {
            Ok(page) => {
                writeln!(io::stdout(), "report: {}", page.display())?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Err(error),
        },
        BenchCommand::Report {
            folder,
            compare: Some(earlier),
        } => match results(earlier).and_then(|earlier| Ok((earlier, results(folder)?))) {
            Ok((earlier, later)) => {
                write!(io::stdout(), "{}", report::compare(&earlier, &later))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Err(error),
        },
    };
    Ok(result.unwrap_or_else(|error| {
        tell(format_args!("weft bench: {error}"));
        ExitCode::FAILURE
    }))
}

/// Whether it can be measured here, on this many CPUs.
fn check_measurable(
    subject: &Subject,
    load: &Load,
    options: &sides::Options,
) -> Result<(), String> {
    let cpus = reactor::available_cpus().len();
    match usize::from(load.target_cores) > cpus {
        true => Err(format!(
            "this process has {cpus} CPUs: run it where it has {}",
            load.target_cores
        )),
        false => sides::available(subject, load, options),
    }
}

fn list(options: &sides::Options) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let available = |subject: &Subject, load: &Load| check_measurable(subject, load, options);
    let efforts = [
        ("quick", Effort::Quick),
        ("normal", Effort::Normal),
        ("full", Effort::Full),
    ];
    let time = |sweeps: &[&'static SweepSpec]| {
        let times = efforts.map(|(name, effort)| {
            let plan = Plan::new(sweeps, effort, &available);
            format!("{name} {}", show(plan.estimate(&plan.items)))
        });
        times.join(", ")
    };
    for sweep in CATALOGUE {
        writeln!(out, "{}\n  {}", sweep.name, sweep.title)?;
        let labels = |effort| {
            let points = sweep.axis.points(effort).iter();
            points.map(|x| sweep.axis.label_of(*x)).collect::<Vec<_>>()
        };
        writeln!(out, "  points: {}", labels(Effort::Full).join(", "))?;
        let series: Vec<_> = sweep.series.iter().map(|series| series.name).collect();
        writeln!(out, "  series: {}", series.join("; "))?;
        writeln!(out, "  takes:  {}", time(&[sweep]))?;
        for skipped in Plan::new(&[sweep], Effort::Full, &available).skipped {
            writeln!(out, "  NOT HERE: {}: {}", skipped.what, skipped.why)?;
        }
        writeln!(out)?;
    }
    let all: Vec<_> = CATALOGUE.iter().collect();
    writeln!(out, "all\n  takes:  {}", time(&all))
}

fn measure(
    args: &RunArgs,
    sweeps: &[&'static SweepSpec],
    settings: Vec<(String, String)>,
    stop: &AtomicBool,
) -> Result<ExitCode, String> {
    let began = Instant::now();
    let options = sides::Options {
        agents: args.find_agents(stop)?,
        ..args.others.options()
    };
    let effort = args.effort();
    let out = args.out.display();
    std::fs::create_dir_all(&args.out).map_err(|error| format!("{out}: {error}"))?;
    let program = provenance::program();
    let same = JournalSettings {
        effort,
        program: program.map_err(|error| format!("this program cannot be read: {error}"))?,
        peer: options.peer.clone(),
        guest: options.guest.clone(),
        agents: args.agents.clone(),
    };
    let this = JournalRun {
        command: command_line(),
        began: provenance::now(),
    };
    let journal = Journal::open(&args.out, same, this, args.again);
    let mut journal = journal.map_err(|error| error.to_string())?;
    let available = |subject: &Subject, load: &Load| check_measurable(subject, load, &options);
    let plan = Plan::new(sweeps, effort, &available);
    announce(&plan, &journal, args);
    // Load before, not during.
    let agents = options.agents.iter().map(|agent| {
        let of = format!("{}, {} CPUs", agent.machine, agent.cpus);
        (Provenance::agent(&agent.name), of)
    });
    let mut machine = [provenance::machine(Path::new("/")), settings].concat();
    machine.extend(agents);
    let mut side = |subject: &Subject, load: &Load, how_long: &Durations| {
        let run = sides::measure(subject, load, how_long, &options, stop);
        // A stopped run may have been cut short: it does not count.
        match stop.load(Ordering::Relaxed) {
            true => Err(sides::FigureError::Stopped),
            false => run,
        }
    };
    let outcome = run::run(&plan, &mut journal, &mut side).map_err(|error| error.to_string())?;
    let provenance = Provenance {
        began: journal.header.began.clone(),
        ended: provenance::now(),
        weft: env!("CARGO_PKG_VERSION").to_owned(),
        commit: provenance::commit(),
        machine,
        ..Provenance::default()
    };
    let measured = run::measured(&journal, provenance);
    write(&measured, &args.out)?;
    let summary = run::summary(&plan, &outcome, began.elapsed());
    let page = args.out.join("index.html");
    match writeln!(io::stdout(), "{summary}report: {}", page.display()) {
        // The report is written: a reader that closed the pipe is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!(
            "cannot print: {error}; the report is {}",
            page.display()
        )),
        _ => Ok(code(&outcome)),
    }
}

/// Failures and interrupts are no success.
fn code(outcome: &PlanOutcome) -> ExitCode {
    match outcome.is_interrupted || !outcome.failed.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// What is to come, before it does.
fn announce(plan: &Plan, journal: &Journal, args: &RunArgs) {
    let is_open =
        |item: &&PlanItem| !journal.has(item.sweep.name, item.series.name, item.x, item.round);
    let open: Vec<PlanItem> = plan.items.iter().filter(is_open).copied().collect();
    let held = plan.items.len() - open.len();
    tell(format_args!(
        "{} runs, about {}, into {}",
        open.len(),
        show(plan.estimate(&open)),
        args.out.display()
    ));
    if held > 0 {
        tell(format_args!(
            "{held} more are there from before (--again measures them anew)"
        ));
    }
    for skipped in &plan.skipped {
        tell(format_args!(
            "NOT MEASURED: {}: {}",
            skipped.what, skipped.why
        ));
    }
    if !mem::counters::counts_allocations() {
        tell(format_args!(
            "NOT MEASURED: allocations: {}",
            report::ALLOCATIONS_NEED
        ));
    }
}

/// The words as they were given, in quotes where a shell would part them.
fn command_line() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name();
    let name = name.map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let quoted = words.map(
        |word| match word.contains([' ', '\'', '"', '$', '&', ';']) {
            true => format!("'{}'", word.replace('\'', r"'\''")),
            false => word,
        },
    );
    [name]
        .into_iter()
        .chain(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

/// `results.json` and the report.
fn write(measured: &Measured, to: &Path) -> Result<(), String> {
    report::write(measured, to).map_err(|error| format!("{}: {error}", to.display()))
}

/// What a folder holds.
fn results(folder: &Path) -> Result<Measured, String> {
    let path = folder.join(RESULTS);
    let text = std::fs::read(&path).map_err(|error| {
        let remedy = match journal::read(folder) {
            Ok(Some(_)) => "; the same `weft bench run` finishes what was begun there",
            _ => "; `weft bench run NAME` makes one",
        };
        format!("{}: {error}{remedy}", path.display())
    })?;
    let measured: Measured = serde_json::from_slice(&text)
        .map_err(|error| format!("{}: not what this version writes: {error}", path.display()))?;
    if measured.format != FORMAT {
        let (is, wanted) = (measured.format, FORMAT);
        return Err(format!("{}: layout {is}, not {wanted}", path.display()));
    }
    Ok(measured)
}

/// Writes the report of what a folder holds; its page.
fn again(folder: &Path) -> Result<PathBuf, String> {
    write(&results(folder)?, folder)?;
    Ok(folder.join("index.html"))
}
