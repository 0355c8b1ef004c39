//! Volumes that hold again what their snapshots hold: hosts lose them for as long as that takes.

use std::sync::Arc;

use api::{PlanLine, Protocol, SnapshotRollback};
use axum::http::StatusCode;
use server::{Change, ChangeError, KeptVolumes, LunSpec, NamespaceSpec, Running};
use store::{Volume, snapshot};

use crate::problem::Problem;
use crate::refused::NotApplied;
use crate::served::ServedFile;
use crate::snapshots::{line_of_each, volumes};
use crate::volume_hosts::volume_hosts;

/// Rolls volumes back while no host has them: they go away, and come again with what they
/// held, so that no host goes on with what it knows of them. Other changes go on meanwhile: the
/// disk may not answer.
pub(crate) fn roll_back(
    served: &ServedFile,
    asked: &SnapshotRollback,
) -> Result<Vec<String>, Problem> {
    let running = served.running();
    let volumes = volumes(running, &asked.volumes)?;
    let begun = served.undisturbed(|| Rollback::begin(running, &volumes, asked))?;
    let rolled_back = snapshot::rollback(&volumes, &asked.name);
    let Rollback { plan, uses, kept } = begun;
    let given_back = served.undisturbed(|| {
        drop(kept);
        uses.give_back(running)
    });
    rolled_back?;
    let mut done = line_of_each(&asked.volumes, |volume| {
        format!(
            "volume {volume} holds what its snapshot {} holds",
            asked.name
        )
    });
    done.extend(plan.into_iter().map(|line| line.text));
    done.extend(given_back);
    Ok(done)
}

/// Volumes that no host has for as long as they are rolled back.
struct Rollback {
    plan: Vec<PlanLine>,
    uses: Uses,
    kept: KeptVolumes,
}

impl Rollback {
    fn begin(
        running: &Running,
        volumes: &[Arc<dyn Volume>],
        asked: &SnapshotRollback,
    ) -> Result<Rollback, Problem> {
        snapshot::expect_rollback(volumes, &asked.name)?;
        let plan = plan(running, &asked.volumes);
        if !asked.disconnect && !plan.is_empty() {
            return Err(NotApplied::Disturbs(plan).into());
        }
        let conflict = |error: ChangeError| Problem::new(StatusCode::CONFLICT, error.to_string());
        for volume in volumes {
            if let Some(owner) = volume.base().owner() {
                let error = ChangeError::PartOf(volume.info().name.clone(), owner);
                return Err(conflict(error));
            }
        }
        let kept = running.keep_volumes(volumes.to_vec()).map_err(conflict)?;
        let uses = Uses::of(running, &asked.volumes);
        if let Err(problem) = uses.take_away(running) {
            drop(kept);
            uses.give_back(running);
            return Err(problem);
        }
        Ok(Rollback { plan, uses, kept })
    }
}

/// Which hosts lose volumes for a moment.
fn plan(running: &Running, volumes: &[String]) -> Vec<PlanLine> {
    let hosts = volume_hosts(running).into_iter();
    let theirs = hosts.filter(|((_, volume), count)| *count > 0 && volumes.contains(volume));
    let lines = theirs.map(|((protocol, volume), count)| {
        let by = match protocol {
            Protocol::NvmeTcp => "NVMe",
            _ => protocol.name(),
        };
        PlanLine {
            text: format!(
                "volume {volume} goes away and comes again: hosts by {by} that have it: {count}"
            ),
            disturbs: true,
        }
    });
    lines.collect()
}

/// What hosts have volumes by.
struct Uses {
    namespaces: Vec<(String, NamespaceSpec)>,
    luns: Vec<(String, LunSpec)>,
}

impl Uses {
    fn of(running: &Running, volumes: &[String]) -> Uses {
        let served = running.served();
        let mut uses = Uses {
            namespaces: Vec::new(),
            luns: Vec::new(),
        };
        for subsystem in served.subsystems {
            let own = subsystem.namespaces.into_iter();
            let own = own.filter(|namespace| volumes.contains(&namespace.volume));
            let own = own.map(|namespace| (subsystem.nqn.clone(), namespace));
            uses.namespaces.extend(own);
        }
        for target in served.targets {
            let own = target.luns.into_iter();
            let own = own.filter(|unit| volumes.contains(&unit.volume));
            uses.luns
                .extend(own.map(|unit| (target.target.name.clone(), unit)));
        }
        uses
    }

    /// When it returns no host has any of them.
    fn take_away(&self, running: &Running) -> Result<(), Problem> {
        let namespaces = self.namespaces.iter();
        let namespaces = namespaces.map(|(nqn, namespace)| Change::RemoveNamespace {
            nqn: nqn.clone(),
            nsid: namespace.nsid,
        });
        let luns = self.luns.iter().map(|(name, unit)| Change::RemoveLun {
            name: name.clone(),
            lun: unit.lun,
        });
        for change in namespaces.chain(luns) {
            running.change(change).map_err(|error| {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            })?;
        }
        Ok(())
    }

    /// Gives hosts again what they had; what of it could not be, a line each.
    fn give_back(&self, running: &Running) -> Vec<String> {
        let namespaces = self.namespaces.iter().cloned();
        let namespaces = namespaces.map(|(nqn, namespace)| Change::AddNamespace { nqn, namespace });
        let luns = self.luns.iter().cloned();
        let luns = luns.map(|(name, lun)| Change::AddLun { name, lun });
        let failed = namespaces.chain(luns).filter_map(|change| {
            match running.change(change) {
                // It was not taken away.
                Ok(()) | Err(ChangeError::Exists(..)) => None,
                Err(error) => {
                    tracing::error!(%error, "a volume that was rolled back is not served again");
                    Some(format!("NOT SERVED again: {error}: restart weft"))
                }
            }
        });
        failed.collect()
    }
}
