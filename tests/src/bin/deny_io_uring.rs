//! Runs a program for which the kernel answers `io_uring_setup` with an error,
//! as the filters of container runtimes make it: `deny_io_uring EPERM|ENOSYS
//! PROGRAM ARGUMENTS...`.

#![forbid(unsafe_code)]

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The same on every architecture (include/uapi/asm-generic/unistd.h).
const IO_URING_SETUP: i64 = 425;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let errno = match args.next().as_deref().and_then(|errno| errno.to_str()) {
        Some("EPERM") => 1,
        Some("ENOSYS") => 38,
        _ => return failed("usage: deny_io_uring EPERM|ENOSYS PROGRAM ARGUMENTS..."),
    };
    let Some(program) = args.next() else {
        return failed("which program?");
    };
    if let Err(e) = deny(errno) {
        return failed(&e);
    }
    failed(&Command::new(program).args(args).exec().to_string())
}

/// Filters this thread and what it becomes.
fn deny(errno: u32) -> Result<(), String> {
    let arch = std::env::consts::ARCH
        .try_into()
        .map_err(|e| format!("{e}"))?;
    let filter = SeccompFilter::new(
        [(IO_URING_SETUP, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        arch,
    );
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(|e| format!("the filter: {e}"))?;
    apply_filter(&program).map_err(|e| format!("applying the filter: {e}"))
}

fn failed(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(125)
}
