//! What of a configuration a start would fail at on this machine as it is now:
//! looked at, and nothing made, changed or kept.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use reactor::BoundListener;
use store::{Examined, Problem, Spec};

use crate::change::kerberos::acceptor;
use crate::config::{Config, Start};
use crate::start::StartError;
use crate::state::own_identity;
use serve_nfs::{files, records};

/// What a start would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong, and what to do about it.
    pub text: String,
    /// Nothing would be served. False also for what another process has now:
    /// that may be the one that is to be started again.
    pub stops: bool,
}

/// Looks at volumes, folders and addresses: what it finds, and what a start would
/// serve, with [`Start::Degraded`] without what is missing. Blocks.
#[must_use]
pub fn examine(config: &Config) -> (Vec<Finding>, Config) {
    let (mut gone, mut gone_files) = (Vec::new(), Vec::new());
    let mut findings = Vec::new();
    let is_strict = config.start == Start::Strict;
    let mut found: Vec<Examined> = Vec::new();
    let mut taken: HashSet<&str> = HashSet::new();
    for spec in &config.volumes {
        if spec.kind.of().iter().any(|part| taken.contains(&**part)) {
            taken.insert(&spec.name);
            continue;
        }
        match examine_volume(spec, &found, config.start) {
            Ok(examined) => {
                let notes = examined.note.clone().into_iter();
                findings.extend(notes.map(|text| Finding { text, stops: false }));
                found.push(examined);
            }
            Err(error) => {
                let is_taken = is_taken(&error);
                match is_taken {
                    true => drop(taken.insert(&spec.name)),
                    false => gone.push(spec.name.clone()),
                }
                findings.push(Finding {
                    text: error.to_string(),
                    stops: is_strict && !is_taken,
                });
            }
        }
    }
    for spec in &config.file_systems {
        if let Err(text) = files::examine(spec) {
            gone_files.push(spec.name.clone());
            findings.push(Finding {
                text,
                stops: is_strict,
            });
        }
    }
    if let Some(state) = &config.nfs.state {
        let text = match missing_around(state) {
            Some(text) => Some(format!("[nfs] `state`: {text}")),
            None => records::examine(state)
                .err()
                .map(|error| StartError::NfsState(state.clone(), error).to_string()),
        };
        findings.extend(text.map(|text| Finding { text, stops: true }));
    }
    if let Some(settings) = &config.nfs.kerberos
        && let Err(error) = acceptor(settings)
    {
        let text = StartError::Kerberos(error).to_string();
        findings.push(Finding { text, stops: true });
    }
    for spec in &config.listeners {
        if let Err(error) = BoundListener::bind(spec.address) {
            let is_taken = error.kind() == io::ErrorKind::AddrInUse;
            findings.push(Finding {
                text: StartError::Listen(spec.address, error).to_string(),
                stops: !is_taken,
            });
        }
    }
    let mut served = config.clone();
    served.leave_out(&gone, &gone_files);
    (findings, served)
}

/// Looks at a volume beside those that were found.
fn examine_volume(spec: &Spec, found: &[Examined], start: Start) -> Result<Examined, StartError> {
    let find = |part: &str| found.iter().find(|other| other.info.name == part);
    let missing = |part: &str| StartError::Part(spec.name.clone(), part.to_owned());
    let below = spec
        .parts(start == Start::Degraded, find)
        .map_err(missing)?;
    let examined = store::examine_over(spec, &below).map_err(StartError::Volume)?;
    let others = found.iter().map(|other| &other.info);
    own_identity(&examined.info, others).map_err(StartError::Config)?;
    Ok(examined)
}

/// Whether another process has the volume now.
fn is_taken(error: &StartError) -> bool {
    let StartError::Volume(error) = error else {
        return false;
    };
    matches!(
        error.problem,
        Problem::InUse { .. } | Problem::DeviceInUse(_, None)
    )
}

/// That there is nothing where a folder is to be made.
fn missing_around(folder: &Path) -> Option<String> {
    let around = folder
        .parent()
        .filter(|around| !around.as_os_str().is_empty())?;
    let text = || {
        format!(
            "the folder {} does not exist: create it with 'mkdir -p'",
            around.display()
        )
    };
    (!around.is_dir()).then(text)
}
