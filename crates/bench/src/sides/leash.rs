//! Processes that end when the one ends that started them, however that comes to
//! its end: `weft leash` asks the kernel for it and becomes the program.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use client::perf::CpuList;

/// Arguments of `weft leash`.
#[derive(Args, Clone, Debug)]
pub struct LeashArgs {
    /// The process that it hangs on
    #[arg(long)]
    parent: i32,
    /// CPUs that the program may use [default: those of the parent]
    #[arg(long, value_parser = client::perf::parse_cpu_list)]
    cpus: Option<CpuList>,
    /// Program and its words
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Becomes the program; returns where that is not possible.
#[must_use]
pub fn run(args: &LeashArgs) -> ExitCode {
    match become_program(args) {
        Ok(never) => match never {},
        Err(why) => {
            let _ = writeln!(io::stderr(), "weft leash: {why}");
            ExitCode::FAILURE
        }
    }
}

fn become_program(args: &LeashArgs) -> Result<std::convert::Infallible, String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    // It may have ended before it could be asked for.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != args.parent) {
        return Err("the process that it hangs on is gone".into());
    }
    if let Some(CpuList(cpus)) = &args.cpus {
        let mut set = CpuSet::new();
        for cpu in cpus {
            if *cpu >= CpuSet::MAX_CPU {
                return Err(format!("there is no CPU {cpu}"));
            }
            set.set(*cpu);
        }
        sched_setaffinity(None, &set).map_err(|error| format!("CPUs: {error}"))?;
    }
    let error = Command::new(&args.words[0]).args(&args.words[1..]).exec();
    Err(format!("{}: {error}", args.words[0]))
}
