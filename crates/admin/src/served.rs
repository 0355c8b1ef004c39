//! The file that is served: SIGHUP and the admin socket change it, one at a time.

use std::fmt;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use control::{PlannedChange, Problems, ServedDocument};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use server::{Config, Protocol, Running};

use crate::counters::{counters, now};

/// A target that runs, and the file that it serves.
pub struct ServedFile {
    running: Arc<Running>,
    since: Instant,
    /// Held while a file is applied, and for a plan.
    document: Mutex<ServedDocument>,
    /// Beside it: the status waits for none who applies.
    applied: Mutex<Applied>,
}

/// What was served last, and how that went.
#[derive(Clone, Debug)]
struct Applied {
    /// `None`: what is built in.
    file: Option<PathBuf>,
    /// When `file` was applied.
    time: String,
    /// The file that was asked for last, when, and what came of it.
    last: Option<(PathBuf, String, String)>,
    /// What was missing at the start and is so still.
    missing: Vec<String>,
}

/// A line of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanLine {
    /// What changes.
    pub text: String,
    /// A host, initiator or client is cut, or what is in memory is lost.
    pub disturbs: bool,
}

impl From<&PlannedChange> for PlanLine {
    fn from(change: &PlannedChange) -> PlanLine {
        PlanLine {
            text: change.text.clone(),
            disturbs: change.disturbs,
        }
    }
}

/// A line for each change, and for each volume and file system that was missing at the
/// start and is so still.
pub type Told<L> = (Vec<L>, Vec<String>);

/// Why a file is not applied. Nothing has changed but what a line says.
#[derive(Debug)]
pub enum NotApplied {
    /// It cannot be read, or has mistakes.
    Mistakes(Problems),
    /// What changes at a restart alone, a line each.
    Fixed(Vec<String>),
    /// What would disturb, and all else.
    Disturbs(Vec<PlanLine>),
    /// What could not be done, and could not be taken back.
    Failed(Vec<String>),
    /// Another is being applied.
    Busy,
}

impl fmt::Display for NotApplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotApplied::Mistakes(problems) => write!(f, "{problems}"),
            NotApplied::Fixed(lines) | NotApplied::Failed(lines) => f.write_str(&lines.join("; ")),
            NotApplied::Disturbs(lines) => {
                let count = lines.iter().filter(|line| line.disturbs).count();
                write!(
                    f,
                    "{count} of {} changes cut hosts or lose what is in memory: ask for it \
                     (disconnect), or leave them out",
                    lines.len()
                )
            }
            NotApplied::Busy => {
                f.write_str("another change is being made: ask again when it is over")
            }
        }
    }
}

impl ServedFile {
    /// Of a target that was started with `loaded`, from `file`, and has not changed since.
    #[must_use]
    pub fn new(running: Arc<Running>, loaded: &Config, file: Option<PathBuf>) -> ServedFile {
        ServedFile {
            since: Instant::now(),
            document: Mutex::new(ServedDocument::new(loaded, &running)),
            applied: Mutex::new(Applied {
                file,
                time: now(),
                last: None,
                missing: running.missing().to_vec(),
            }),
            running,
        }
    }

    /// What applying `file` would change, and what would stay missing.
    ///
    /// # Errors
    /// Why it could not be applied.
    pub fn diff(&self, file: &Path) -> Result<Told<PlanLine>, NotApplied> {
        let desired = read(file)?;
        let plan = self.try_document()?.plan(desired, &self.running);
        let plan = plan.map_err(NotApplied::Fixed)?;
        let lines = plan.changes.iter().map(PlanLine::from);
        Ok((lines.collect(), plan.missing))
    }

    /// Serves what `file` says, while hosts are connected; cuts them only if that is asked
    /// for. What has changed, and what stays missing.
    ///
    /// # Errors
    /// Why not.
    pub fn apply(&self, file: &Path, may_disturb: bool) -> Result<Told<String>, NotApplied> {
        let desired = read(file);
        let document = self.try_document()?;
        let outcome = self.apply_to(document, desired, may_disturb);
        self.note(file, &outcome);
        outcome
    }

    /// Serves what `file` says now, whomever that cuts; waits for a change under way. The
    /// log says how it went.
    pub fn reload(&self, file: &Path) {
        let desired = read(file);
        let outcome = self.apply_to(locked(&self.document), desired, true);
        self.note(file, &outcome);
    }

    fn apply_to(
        &self,
        mut document: MutexGuard<ServedDocument>,
        desired: Result<Config, NotApplied>,
        may_disturb: bool,
    ) -> Result<Told<String>, NotApplied> {
        let desired = desired?;
        let plan = document.plan(desired.clone(), &self.running);
        let plan = plan.map_err(NotApplied::Fixed)?;
        if !may_disturb && plan.changes.iter().any(|change| change.disturbs) {
            let lines = plan.changes.iter().map(PlanLine::from);
            return Err(NotApplied::Disturbs(lines.collect()));
        }
        for why in &plan.missing {
            tracing::warn!("reload: still not served: {why}");
        }
        let mut lines = Vec::new();
        let made = |line: &str| {
            tracing::info!("reload: {line}");
            lines.push(line.to_owned());
        };
        let outcome = document.apply(desired, &self.running, made);
        outcome.map_err(NotApplied::Failed)?;
        Ok((lines, plan.missing))
    }

    /// Says in the log and the status how it went.
    fn note(&self, file: &Path, outcome: &Result<Told<String>, NotApplied>) {
        let mut applied = locked(&self.applied);
        let file = absolute(file).unwrap_or_else(|_| file.to_owned());
        let (shown, time) = (file.display(), now());
        let how = match outcome {
            Ok((lines, missing)) => {
                applied.missing.clone_from(missing);
                tracing::info!(file = %shown, changes = lines.len(), "reloaded");
                (applied.file, applied.time) = (Some(file.clone()), time.clone());
                format!("changes made: {}", lines.len())
            }
            Err(refusal) => {
                let left = match refusal {
                    // The lines say what.
                    NotApplied::Failed(_) => "",
                    _ => ", nothing is changed",
                };
                tracing::error!(file = %shown, "not reloaded{left}: {refusal}");
                format!("refused: {refusal}")
            }
        };
        applied.last = Some((file, time, how));
    }

    /// What is asked for first about a target.
    #[must_use]
    pub fn status(&self) -> Value {
        let (served, report) = (self.running.served(), self.running.report());
        let applied = locked(&self.applied).clone();
        let Applied {
            file,
            time,
            last,
            missing,
        } = applied;
        let listeners = served.listeners.iter().map(|(_, listener)| {
            let protocol = match listener.protocol {
                Protocol::NvmeTcp => "nvme-tcp",
                Protocol::Iscsi => "iscsi",
                Protocol::Nfs => "nfs",
            };
            json!({ "address": listener.address, "protocol": protocol })
        });
        let last = last.map(|(file, time, outcome)| {
            json!({ "file": file.display().to_string(), "time": time, "outcome": outcome })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_s": self.since.elapsed().as_secs(),
            "file": file.map(|file| file.display().to_string()),
            "file_applied": time,
            "last_apply": last,
            "driver": self.running.backend(),
            "not_served": missing,
            "listeners": listeners.collect::<Vec<_>>(),
            "volumes": served.volumes.len(),
            "subsystems": served.subsystems.len(),
            "targets": served.targets.len(),
            "file_systems": served.file_systems.len(),
            "exports": served.exports.len(),
            "connections": report.connections,
            "memory_bytes": report.pool_bytes,
            "memory_max_bytes": self.running.config().memory_max,
            "counters": counters(&report),
        })
    }

    /// What was refused last, the latest at the end, and what would let it in.
    #[must_use]
    pub fn refusals(&self) -> Value {
        let served = self.running.served();
        let all = self.running.refusals().into_iter();
        let all = all.map(|refused| {
            json!({
                "first_unix_s": refused.first_unix_s,
                "last_unix_s": refused.last_unix_s,
                "count": refused.count,
                "kind": refused.kind.0,
                "address": refused.address,
                "host": refused.host,
                "target": refused.target,
                "reason": refused.reason,
                "allow": control::allow(&refused, &served),
            })
        });
        json!({ "refusals": all.collect::<Vec<_>>() })
    }

    fn try_document(&self) -> Result<MutexGuard<'_, ServedDocument>, NotApplied> {
        match self.document.try_lock() {
            Ok(document) => Ok(document),
            // It changes at the end of what could panic.
            Err(TryLockError::Poisoned(document)) => Ok(document.into_inner()),
            Err(TryLockError::WouldBlock) => Err(NotApplied::Busy),
        }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(file: &Path) -> Result<Config, NotApplied> {
    control::load_again(file).map_err(NotApplied::Mistakes)
}
