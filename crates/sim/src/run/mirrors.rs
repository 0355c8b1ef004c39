//! Mirrors of a run: their disks are cut and return, and in the end all legs hold the same.

use super::{SeedRun, UPKEEP};
use crate::checker::{Verdict, Violation};
use crate::made::Made;
use crate::target::{Medium, SimTarget};
use crate::world::MS;

impl SeedRun {
    pub(super) fn has_mirrors(&self) -> bool {
        let is_mirror = |medium: &Medium| matches!(medium.plan.made, Made::Mirror(_));
        self.media.iter().any(is_mirror)
    }

    /// A disk of a mirror fails everything from now on, or does so no more.
    pub(super) fn cut_leg(&mut self) {
        let is_mirror = |medium: &&Medium| matches!(medium.plan.made, Made::Mirror(_));
        let mirrors = self.media.iter().filter(is_mirror);
        let files: Vec<usize> = mirrors.flat_map(Medium::files).collect();
        let mut world = self.world.borrow_mut();
        if !files.is_empty() {
            let file = world.random.pick(&files);
            let fails = world.disk.cut(file);
            world.trace(|| format!("the disk of file {file} is cut: {fails}"));
        }
    }

    /// Volumes do what they do by themselves, now and then.
    pub(super) fn run_upkeep(&mut self) {
        if !self.has_mirrors() && !self.has_checksums() {
            return;
        }
        if let Some(target) = &self.target {
            target.run_upkeep(&self.world);
        }
        let delay = self.world.borrow_mut().random.around(2 * MS);
        self.script_after(delay, UPKEEP);
    }

    /// Everything works: legs get what they lack.
    pub(super) fn heal_mirrors(&mut self) -> Verdict {
        let are_whole = |run: &SeedRun| {
            run.target
                .as_ref()
                .is_some_and(SimTarget::are_mirrors_whole)
        };
        match self.has_mirrors() {
            true => self.until("every leg has all of its mirror", are_whole),
            false => Ok(()),
        }
    }

    /// Nothing is written any more: the files of a mirror are the same.
    pub(super) fn compare_legs(&mut self) -> Verdict {
        self.heal_mirrors()?;
        // What hosts have made unreadable is on each leg, whatever lies below it.
        let is_marked = |volume: usize, at: usize| {
            let target = self.target.as_ref();
            target.is_some_and(|target| target.is_unreadable(volume, at as u64))
        };
        let world = self.world.borrow();
        for (volume, medium) in self.media.iter().enumerate() {
            if !matches!(medium.plan.made, Made::Mirror(_)) {
                continue;
            }
            let files: Vec<usize> = medium.files().collect();
            let first = world.disk.content(files[0]);
            for file in &files[1..] {
                let other = world.disk.content(*file);
                let differs = |at: &usize| first[*at] != other[*at] && !is_marked(volume, *at);
                if let Some(at) = (0..first.len()).find(differs) {
                    let text = format!("legs of volume {volume} differ at byte {at}");
                    return Err(Violation(text));
                }
            }
        }
        Ok(())
    }
}
