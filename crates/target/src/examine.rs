//! What of a configuration a start would fail at on this machine as it is now:
//! looked at, and nothing made, changed or kept.

use std::io;
use std::net::TcpListener;
use std::path::Path;

use store::Problem;

use crate::config::{Config, FileSystemKind, Start};
use crate::start::StartError;

/// What a start would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong, and what to do about it.
    pub text: String,
    /// Nothing would be served. False also for what another process has now:
    /// that may be the one that is to be started again.
    pub stops: bool,
}

/// Looks at volumes, folders and addresses. Blocks.
#[must_use]
pub fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_strict = config.start == Start::Strict;
    for spec in &config.volumes {
        if let Err(error) = store::examine(spec) {
            let is_taken = matches!(
                error.problem,
                Problem::InUse { .. } | Problem::DeviceInUse(_, None)
            );
            findings.push(Finding {
                text: error.to_string(),
                stops: is_strict && !is_taken,
            });
        }
    }
    for spec in &config.file_systems {
        if let FileSystemKind::Dir { path, .. } = &spec.kind
            && let Some(text) = missing(path)
        {
            findings.push(Finding {
                text: format!("file system \"{}\": {text}", spec.name),
                stops: is_strict,
            });
        }
    }
    if let Some(text) = config.nfs.state.as_deref().and_then(missing_around) {
        let text = format!("[nfs] `state`: {text}");
        findings.push(Finding { text, stops: true });
    }
    for spec in &config.listeners {
        if let Err(error) = TcpListener::bind(spec.address) {
            let is_taken = error.kind() == io::ErrorKind::AddrInUse;
            findings.push(Finding {
                text: StartError::Listen(spec.address, error).to_string(),
                stops: !is_taken,
            });
        }
    }
    findings
}

/// A folder that is not there.
fn missing(folder: &Path) -> Option<String> {
    let text = || {
        format!(
            "the folder {} does not exist: create it with 'mkdir -p'",
            folder.display()
        )
    };
    (!folder.is_dir()).then(text)
}

/// Where a folder is to be made that is not there yet.
fn missing_around(folder: &Path) -> Option<String> {
    let around = folder
        .parent()
        .filter(|around| !around.as_os_str().is_empty())?;
    missing(around)
}
