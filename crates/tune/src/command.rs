//! `weft tune`.

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
    command: Option<Command>,
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
enum Command {
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
pub fn run(arguments: &TuneArgs) -> ExitCode {
    let root = Path::new("/");
    let machine = Machine::look(root);
    let plan = |profile| Plan::of(&findings(&machine, profile));
    match arguments.command {
        None => look(&machine, Profile::Throughput),
        Some(Command::Look { profile }) => look(&machine, profile),
        Some(Command::Print { profile }) => {
            print!("{}", report::script(&plan(profile)));
            ExitCode::SUCCESS
        }
        Some(Command::Apply { profile }) => set(root, &plan(profile), &arguments.undo_file),
        Some(Command::Undo) => take_back(root, &arguments.undo_file),
    }
}

fn look(machine: &Machine, profile: Profile) -> ExitCode {
    print!(
        "{}",
        report::look(machine, profile, &findings(machine, profile))
    );
    ExitCode::SUCCESS
}

fn set(root: &Path, plan: &Plan, undo_file: &Path) -> ExitCode {
    if let Err(failed) = apply(root, plan, undo_file) {
        eprintln!("weft: nothing was changed: {failed}");
        return ExitCode::FAILURE;
    }
    for change in &plan.changes {
        println!("/{}: {} -> {}", change.path, change.from, change.to);
    }
    match plan.changes.is_empty() {
        true => println!("nothing to change"),
        false => println!("until the next boot; `weft tune undo` sets it back"),
    }
    ExitCode::SUCCESS
}

fn take_back(root: &Path, undo_file: &Path) -> ExitCode {
    let outcome = match undo(root, undo_file) {
        Ok(outcome) => outcome,
        Err(error) => {
            eprintln!("weft: {}: {error}", undo_file.display());
            return ExitCode::FAILURE;
        }
    };
    if outcome.is_empty() {
        println!("nothing to undo: there is no {}", undo_file.display());
    }
    let mut code = ExitCode::SUCCESS;
    for (change, undone) in outcome {
        match undone {
            Undone::Back => println!("/{}: {} -> {}", change.path, change.to, change.from),
            Undone::Changed(now) => {
                println!("/{}: stays {now}: somebody has set it since", change.path);
            }
            Undone::Failed(failed) => {
                eprintln!("weft: {failed}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
