//! What packages carry of the program itself: completions for shells, manual pages, and the
//! schema by which editors complete and check a configuration.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::FAILURE;

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Args)]
pub struct ManArgs {
    /// The folder, as /usr/share/man/man1; made if it is not there
    folder: PathBuf,
}

/// Prints what a shell reads to complete commands.
pub fn completions(arguments: &CompletionsArgs, mut command: Command) -> io::Result<ExitCode> {
    // Straight to an output that fails it would panic.
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "weft", &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes `weft.1`, `weft-serve.1` and so on.
pub fn man(arguments: &ManArgs, command: Command) -> io::Result<ExitCode> {
    let folder = &arguments.folder;
    let made = fs::create_dir_all(folder);
    if let Err(error) = made.and_then(|()| clap_mangen::generate_to(command, folder)) {
        let _ = writeln!(
            io::stderr(),
            "weft: no manual pages in {}: {error}: name a folder that can be written to",
            folder.display()
        );
        return Ok(ExitCode::from(FAILURE));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the JSON Schema of a configuration.
pub fn schema() -> io::Result<ExitCode> {
    writeln!(io::stdout(), "{:#}", control::json_schema())?;
    Ok(ExitCode::SUCCESS)
}
