//! Scrubs of a run: volumes with checksums are read while hosts write and faults come, and no
//! block is told as bad that is not.

use store::ScrubState;

use super::SeedRun;
use crate::checker::{Verdict, Violation};
use crate::target::{Medium, SimTarget};

impl SeedRun {
    pub(super) fn has_checksums(&self) -> bool {
        let has = |medium: &Medium| medium.plan.is_checksummed;
        self.media.iter().any(has)
    }

    /// Whether the scrubs among the faults have found nothing where nothing was changed or torn. A
    /// block that hosts had made unreadable may have been written since.
    pub(super) fn check_scrubs_among_faults(&self) -> Verdict {
        let disk = &self.plan.disk;
        let errors = disk.read_errors + disk.write_errors + disk.sync_errors;
        let Some(target) = self.target.as_ref().filter(|_| errors == 0) else {
            return Ok(());
        };
        for (volume, mismatches) in target.mismatches() {
            if mismatches > 0 && !self.work.checker.has_damage(volume) {
                let text = format!("{mismatches} blocks of volume {volume} are told as bad");
                return Err(Violation(text));
            }
        }
        Ok(())
    }

    /// Nothing is written any more: a scrub finds what is wrong still, and nothing else.
    pub(super) fn scrub_everything(&mut self) -> Verdict {
        if !self.has_checksums() {
            return Ok(());
        }
        let are_over = |run: &SeedRun| {
            let scrubs = run.target.as_ref().map(SimTarget::scrubs);
            let mut scrubs = scrubs.into_iter().flatten();
            scrubs.all(|(_, scrub)| scrub.state != ScrubState::Running)
        };
        self.until("the scrubs among the faults end", are_over)?;
        let target = self.target.as_ref();
        target.iter().for_each(|target| target.begin_scrubs());
        self.until("all is scrubbed", are_over)?;
        let Some(target) = &self.target else {
            return Ok(());
        };
        for (volume, scrub) in target.scrubs() {
            let block_bytes = u64::from(self.plan.volumes[volume].block_bytes);
            let is_right = |lba: &&u64| {
                let is_marked = target.is_unreadable(volume, **lba * block_bytes);
                !is_marked && !self.work.checker.was_damaged(volume, **lba)
            };
            if let Some(lba) = scrub.bad_lbas.iter().find(is_right) {
                let text = format!("the scrub of volume {volume} finds block {lba}: {scrub:?}");
                return Err(Violation(text));
            }
        }
        Ok(())
    }
}
