//! What changes while hosts work: sizes, what is there, and what hosts must be
//! notified of.

use super::HostWork;
use crate::checker::{Stamp, Verdict, Violation, ZEROS};
use crate::reserve::Notice;

impl HostWork {
    /// These hosts must be notified of what a command that began then did.
    pub(super) fn expect_notices(
        &mut self,
        volume: usize,
        begun: Stamp,
        told: Vec<(usize, Notice)>,
    ) {
        for (host, kind) in told {
            let hears = self.hears[host].is_some_and(|since| since < begun);
            let subsystem = self.plan.hosts[host].subsystem;
            let mut heard = self.heard.iter();
            if heard.any(|&(what, at)| what == (host, volume, kind) && at > begun) {
                continue;
            }
            if hears && !self.volumes[volume].may_be_gone[subsystem] {
                self.owed.push((host, volume, kind));
            }
        }
    }

    /// A host has all its queues, or has lost them: from then on it gets
    /// notifications, or no more.
    pub fn set_hears(&mut self, host: usize, hears: bool) {
        let now = self.checker.stamp();
        self.hears[host] = hears.then_some(now);
        if !hears {
            self.deaf_at[host] = now;
        }
        self.owed.retain(|(owed, ..)| *owed != host);
    }

    /// A host was notified of something about a namespace.
    pub fn notice_arrived(&mut self, host: usize, called: u32, kind: Notice) -> Verdict {
        self.trace(|| format!("host {host}: notice {kind} of namespace {called}"));
        let mut volumes = 0..self.volumes.len();
        let volume = volumes.find(|&volume| self.nsid(host, volume) == called);
        // Its controller is older than its last queue.
        let since = self.deaf_at[host];
        let may = volume.is_some_and(|at| self.volumes[at].book.may_tell(host, kind, since));
        let Some(volume) = volume.filter(|_| may) else {
            let text = format!("host {host}: notice {kind} of namespace {called} without a cause");
            return Err(Violation(text));
        };
        let what = (host, volume, kind);
        self.heard.push((what, self.checker.stamp()));
        self.owed.retain(|owed| *owed != what);
        Ok(())
    }

    /// A host that must be notified of something, and was not so far.
    pub fn missing_notice(&self) -> Option<(usize, usize, Notice)> {
        self.owed.first().copied()
    }

    /// A namespace may be gone from now on, or is certainly there.
    pub fn set_may_be_gone(&mut self, subsystem: usize, volume: usize, may: bool) {
        let now = self.checker.stamp();
        let served = &mut self.volumes[volume];
        served.may_be_gone[subsystem] = may;
        served.there_since[subsystem] = now;
        if may {
            let hosts = &self.plan.hosts;
            let is_theirs = |host: usize| hosts[host].subsystem == subsystem;
            self.owed
                .retain(|&(host, of, _)| of != volume || !is_theirs(host));
        }
    }

    /// A volume is about to have another size, or may have.
    pub fn resizing(&mut self, volume: usize, blocks: u64) {
        let now = self.checker.stamp();
        let served = &mut self.volumes[volume];
        let (least, most) = (served.blocks.min(blocks), served.blocks.max(blocks));
        served.sizes.push((now, least, most));
    }

    /// A volume has another size, and hosts may know it.
    pub fn resized(&mut self, volume: usize, blocks: u64) {
        let was = std::mem::replace(&mut self.volumes[volume].blocks, blocks);
        self.checker.resized(volume, was, blocks);
        let guess = &mut self.guess[volume];
        guess.resize(guess.len().max(blocks as usize), Some(ZEROS));
        guess[was.min(blocks) as usize..was.max(blocks) as usize].fill(Some(ZEROS));
        self.kept_size(volume);
    }

    /// A volume has for certain the size that hosts know.
    pub fn kept_size(&mut self, volume: usize) {
        let now = self.checker.stamp();
        let served = &mut self.volumes[volume];
        served.sizes.push((now, served.blocks, served.blocks));
    }

    /// Hosts keep away from what may be behind the end of a volume.
    pub fn keep_below(&mut self, volume: usize, blocks: u64) {
        let served = &mut self.volumes[volume];
        served.blocks = served.blocks.min(blocks);
    }

    /// A volume has the size after all that hosts knew once.
    pub fn restored(&mut self, volume: usize, blocks: u64) {
        self.volumes[volume].blocks = blocks;
        self.kept_size(volume);
    }

    /// What the size of a volume was at least and at most between these moments.
    pub(super) fn size_between(&self, volume: usize, from: Stamp, to: Stamp) -> (u64, u64) {
        let sizes = &self.volumes[volume].sizes;
        let (mut least, mut most) = (u64::MAX, 0);
        for (n, &(since, low, high)) in sizes.iter().enumerate() {
            let until = sizes.get(n + 1).map_or(Stamp::MAX, |next| next.0);
            if since <= to && from <= until {
                (least, most) = (least.min(low), most.max(high));
            }
        }
        (least, most)
    }

    /// No host can use these volumes of a subsystem, from now on or until now.
    pub fn set_absent(
        &mut self,
        subsystem: usize,
        volumes: std::ops::Range<usize>,
        is_absent: bool,
    ) {
        let now = self.checker.stamp();
        for served in &mut self.volumes[volumes.clone()] {
            let absent = &mut served.absent[subsystem];
            match (is_absent, absent.last_mut()) {
                (true, _) => absent.push((now, Stamp::MAX)),
                (false, Some(last)) => last.1 = last.1.min(now),
                (false, None) => {}
            }
        }
        if !is_absent {
            volumes.for_each(|volume| self.allow_writes(volume));
        }
    }

    /// Nothing that these hosts have under way on these volumes can happen any
    /// more, unless the volumes come back.
    pub fn forbid_writes(&mut self, hosts: &[usize], volumes: std::ops::Range<usize>) {
        for volume in volumes {
            hosts
                .iter()
                .for_each(|&host| self.checker.forbid_writes(host, volume));
        }
    }
}
