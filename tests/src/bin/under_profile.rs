//! Runs a program that may make the system calls of a profile alone, as container runtimes do:
//! `under_profile "$(cat PROFILE.json)" PROGRAM ARGUMENTS...`. The text and not the file: the
//! user that runs the program may not be able to read that.

#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use seccompiler::{BpfMap, apply_filter, compile_from_json};
use serde_json::{Value, json};

/// What seccompiler calls a filter: one has to have a name.
const NAME: &str = "all";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(profile), Some(program)) = (args.next(), args.next()) else {
        return failed("usage: under_profile PROFILE PROGRAM ARGUMENTS...");
    };
    match confine(&profile.to_string_lossy()) {
        Ok(()) => failed(&Command::new(program).args(args).exec().to_string()),
        Err(why) => failed(&why),
    }
}

/// Filters this thread and what it becomes.
fn confine(profile: &str) -> Result<(), String> {
    let profile: Value =
        serde_json::from_str(profile).map_err(|error| format!("the profile: {error}"))?;
    let arch = std::env::consts::ARCH
        .try_into()
        .map_err(|error| format!("{error}"))?;
    let filter = json!({ NAME: {
        "mismatch_action": { "errno": profile["defaultErrnoRet"] },
        "match_action": "allow",
        "filter": allowed(&profile)?,
    }});
    let filters: BpfMap = compile_from_json(filter.to_string().as_bytes(), arch)
        .map_err(|error| format!("the filter: {error}"))?;
    apply_filter(&filters[NAME]).map_err(|error| format!("applying the filter: {error}"))
}

/// The calls that the profile allows, as rules.
fn allowed(profile: &Value) -> Result<Vec<Value>, String> {
    let groups = profile["syscalls"].as_array().ok_or("no `syscalls`")?;
    let mut rules = Vec::new();
    for group in groups {
        if group["action"] != "SCMP_ACT_ALLOW" {
            return Err(format!("only what is allowed is named: {group}"));
        }
        let names = group["names"].as_array().ok_or("a group without `names`")?;
        rules.extend(names.iter().map(|name| json!({ "syscall": name })));
    }
    Ok(rules)
}

fn failed(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(125)
}
