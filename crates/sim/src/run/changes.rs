//! What is served changes while it is used.

use super::{SeedRun, TAKE_BACK};
use crate::changes::{ChangeStep, WhatChanges};
use crate::checker::{Verdict, Violation};
use crate::target::address;
use crate::world::MS;

impl SeedRun {
    /// What is served changes, or changes back.
    pub(super) fn change(&mut self) {
        let Some(target) = self.target.as_ref().filter(|target| !target.has_failed()) else {
            return;
        };
        let sizes: Vec<_> = self.media.iter().map(|medium| medium.blocks).collect();
        let next = {
            let random = &mut self.world.borrow_mut().random;
            let shared = &sizes[..self.plan.shared_volumes()];
            self.changes.next(&self.plan, shared, random)
        };
        let Some((what, is_back)) = next else { return };
        self.world.borrow_mut().trace(|| match is_back {
            true => format!("{what:?} is taken back"),
            false => format!("{what:?}"),
        });
        let all = 0..sizes.len();
        match what {
            WhatChanges::Resize { volume, blocks } => {
                let medium = &self.media[volume];
                if medium.is_odd {
                    return;
                }
                // What is cut off goes when it is cut off.
                if blocks > sizes[volume] {
                    medium.set_file_blocks(&self.world, blocks);
                }
                self.work.resizing(volume, blocks);
            }
            WhatChanges::Gone { subsystem, volume } if is_back => {
                self.work.set_absent(subsystem, volume..volume + 1, false);
            }
            WhatChanges::Gone { subsystem, volume } => {
                self.work.set_may_be_gone(subsystem, volume, true);
            }
            WhatChanges::Inaccessible { subsystem } if is_back => {
                self.work.set_absent(subsystem, all, false);
            }
            _ => {}
        }
        self.changes.make(target, &self.plan, (what, is_back));
        target.call(&self.world);
    }

    /// Cuts off what the target has cut off of a file.
    pub(super) fn note_cut(&mut self) -> Verdict {
        if !self.changes.is_resizing() && !self.media.iter().any(|medium| medium.is_odd) {
            return Ok(());
        }
        for (volume, medium) in self.media.iter().enumerate() {
            let cut = medium.file_blocks().filter(|&now| now < medium.blocks);
            let (Some(blocks), Some(file)) = (cut, medium.file()) else {
                continue;
            };
            let bytes = blocks * u64::from(medium.plan.block_bytes);
            // A write there would make the file longer again.
            if self
                .world
                .borrow()
                .disk
                .is_busy_behind(file, bytes as usize)
            {
                let text = format!("volume {volume}: I/O is under way behind the new end");
                return Err(Violation(text));
            }
            medium.set_file_blocks(&self.world, blocks);
        }
        Ok(())
    }

    /// The hosts that use a subsystem.
    fn hosts_of(&self, subsystem: usize) -> Vec<usize> {
        let hosts = self.plan.hosts.iter().enumerate();
        let theirs = hosts.filter(|(_, host)| host.subsystem == subsystem);
        theirs.map(|(n, _)| n).collect()
    }

    /// Takes note of a change that is made.
    pub(super) fn note_change(&mut self) -> Verdict {
        let Some(step) = self.changes.take()? else {
            return Ok(());
        };
        self.world.borrow_mut().trace(|| format!("{step:?}"));
        if let ChangeStep::Made(..) = step {
            let delay = self.world.borrow_mut().random.around(5 * MS);
            self.script_after(delay, TAKE_BACK);
        }
        let all = 0..self.media.len();
        match step {
            ChangeStep::Over(WhatChanges::Resize { volume, blocks }) => {
                self.media[volume].blocks = blocks;
                self.work.resized(volume, blocks);
            }
            ChangeStep::Over(WhatChanges::Gone { subsystem, volume }) => {
                self.work.set_may_be_gone(subsystem, volume, false);
            }
            ChangeStep::Refused(WhatChanges::Resize { volume, .. }) => self.work.kept_size(volume),
            // It is cut off later, or never: hosts keep away from there.
            ChangeStep::Made(WhatChanges::Resize { volume, blocks }, _) => {
                self.media[volume].is_odd = true;
                self.work.keep_below(volume, blocks);
            }
            ChangeStep::Made(WhatChanges::Gone { subsystem, volume }, true) => {
                self.work.set_absent(subsystem, volume..volume + 1, true);
                self.work
                    .forbid_writes(&self.hosts_of(subsystem), volume..volume + 1);
            }
            ChangeStep::Made(WhatChanges::Inaccessible { subsystem }, true) => {
                self.work.set_absent(subsystem, all.clone(), true);
                self.work.forbid_writes(&self.hosts_of(subsystem), all);
            }
            ChangeStep::Made(WhatChanges::Unlistened { listener }, true) => {
                let left = self.world.borrow().net.connections_to(address(listener));
                if left > 0 {
                    let text = format!("{left} connections are left of listener {listener}");
                    return Err(Violation(text));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The sizes that the volumes of a target that has ended have.
    pub(super) fn settle_sizes(&mut self) {
        for (volume, medium) in self.media.iter_mut().enumerate() {
            medium.is_odd = false;
            // A file that is shorter than it was has been cut off.
            let now = medium.file_blocks().unwrap_or(medium.blocks);
            match now < medium.blocks {
                true => {
                    medium.blocks = now;
                    self.work.resized(volume, now);
                }
                false => {
                    self.work.restored(volume, medium.blocks);
                }
            }
        }
    }
}
