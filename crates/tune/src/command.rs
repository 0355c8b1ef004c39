//! `weft tune`.

use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::machine::Machine;
use crate::plan::{Plan, Undone, apply, undo};
use crate::report;
use crate::setting::{Profile, findings};

/// What `weft tune` is asked.
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(subcommand)]
    command: Option<TuneCommand>,
    /// Where `apply` writes how the machine was, for `undo`
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/var/lib/weft/tune.json"
    )]
    undo_file: PathBuf,
}

#[derive(Debug, Subcommand)]
enum TuneCommand {
    /// Say what each setting would bring, and which are fine (without a command: for throughput)
    Look {
        /// What the machine is to be good at
        profile: Profile,
    },
    /// Print the commands that set a profile, and those that undo it
    Print {
        /// What the machine is to be good at
        profile: Profile,
    },
    /// Set a profile, all of it or nothing (as root)
    Apply {
        /// What the machine is to be good at
        profile: Profile,
    },
    /// Set everything back that `apply` has set, but what was changed since (as root)
    Undo,
}

/// Runs `weft tune`.
///
/// # Errors
/// What was done or found cannot be printed.
pub fn run(arguments: &TuneArgs) -> io::Result<ExitCode> {
    let root = Path::new("/");
    let machine = Machine::look(root);
    let plan = |profile| Plan::of(&findings(&machine, profile));
    let look = |profile| report::look(&machine, profile, &findings(&machine, profile));
    let (text, code) = match arguments.command {
        None => (look(Profile::Throughput), ExitCode::SUCCESS),
        Some(TuneCommand::Look { profile }) => (look(profile), ExitCode::SUCCESS),
        Some(TuneCommand::Print { profile }) => (report::script(&plan(profile)), ExitCode::SUCCESS),
        Some(TuneCommand::Apply { profile }) => set(root, &plan(profile), &arguments.undo_file),
        Some(TuneCommand::Undo) => undo_changes(root, &arguments.undo_file),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(code)
}

fn tell(error: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "weft: {error}");
}

fn set(root: &Path, plan: &Plan, undo_file: &Path) -> (String, ExitCode) {
    if let Err(failed) = apply(root, plan, undo_file) {
        tell(format_args!("nothing was changed: {failed}"));
        return (String::new(), ExitCode::FAILURE);
    }
    let changes = plan.changes.iter();
    let lines =
        changes.map(|change| format!("/{}: {} -> {}\n", change.path, change.from, change.to));
    let text = lines.collect::<String>();
    let end = match plan.changes.is_empty() {
        true => "nothing to change\n",
        false => "until the next boot; `weft tune undo` sets it back\n",
    };
    (text + end, ExitCode::SUCCESS)
}

fn undo_changes(root: &Path, undo_file: &Path) -> (String, ExitCode) {
    let outcome = match undo(root, undo_file) {
        Ok(outcome) => outcome,
        Err(error) => {
            tell(format_args!("{}: {error}", undo_file.display()));
            return (String::new(), ExitCode::FAILURE);
        }
    };
    if outcome.is_empty() {
        let text = format!("nothing to undo: there is no {}\n", undo_file.display());
        return (text, ExitCode::SUCCESS);
    }
    let (mut text, mut code) = (String::new(), ExitCode::SUCCESS);
    for (change, undone) in outcome {
        text += &match undone {
            Undone::Back => format!("/{}: {} -> {}\n", change.path, change.to, change.from),
            Undone::Changed(now) => {
                format!("/{}: stays {now}: it was changed since\n", change.path)
            }
            Undone::Failed(failed) => {
                tell(format_args!("{failed}"));
                code = ExitCode::FAILURE;
                continue;
            }
        };
    }
    (text, code)
}
