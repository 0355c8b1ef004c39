//! Snapshots of volumes that hosts use.

use store::snapshot::{self, SnapshotError};

use super::{SNAPSHOT, SeedRun};
use crate::checker::{Verdict, Violation};
use crate::target::volume_name;

/// Attempts of a run: I/O is under way at most of them.
const TRIES_MAX: u32 = 400;
const SNAPSHOTS_MAX: u64 = 8;

impl SeedRun {
    /// Makes a snapshot of all volumes that can have one, where nothing is under way, and
    /// looks at what it holds: a read of all that at this one moment.
    pub(super) fn snapshot(&mut self) -> Verdict {
        self.snapshot_tries += 1;
        if self.snapshot_tries < TRIES_MAX && self.snapshots < SNAPSHOTS_MAX {
            self.script_after(self.plan.snapshots, SNAPSHOT);
        }
        let Some(target) = self.target.as_ref().filter(|target| !target.has_failed()) else {
            return Ok(());
        };
        if self.changes.is_resizing() || self.media.iter().any(|medium| medium.is_odd) {
            return Ok(());
        }
        let all = target.shared.volumes();
        // Nothing is asked of the others.
        let shared = (0..self.plan.shared_volumes()).filter_map(|number| {
            let name = volume_name(number);
            let found = all.iter().find(|volume| volume.info().name == name)?;
            let file = self.media[number].file()?;
            found.snapshots()?;
            Some((number, file, found.clone()))
        });
        let shared: Vec<_> = shared.collect();
        let volumes: Vec<_> = shared.iter().map(|(_, _, volume)| volume.clone()).collect();
        match snapshot::create(&volumes, "s", 1) {
            Ok(()) => {}
            Err(SnapshotError::Busy(_) | SnapshotError::Lost(_)) => return Ok(()),
            Err(error) => return Err(Violation(format!("no snapshot: {error}"))),
        }
        self.world
            .borrow_mut()
            .trace(|| "a snapshot is made".into());
        for (number, file, volume) in &shared {
            let content = self.world.borrow().disk.content(*file).to_vec();
            let spoiled = volume.unreadable(0, u64::MAX, usize::MAX);
            self.work.has_snapshot(*number, &content, &spoiled)?;
            self.snapshots += 1;
            if let Err(error) = snapshot::remove(&**volume, "s") {
                return Err(Violation(format!("a snapshot stays: {error}")));
            }
        }
        Ok(())
    }
}
