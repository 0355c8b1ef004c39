//! What changes while hosts work: sizes, what is there, and what hosts must be
//! notified of.

use control::PlannedChange;
use server::{Change, Config};

use super::{CheckedIo, HostWork};
use crate::access::Arrival;
use crate::announced::Told;
use crate::checker::{Stamp, Value, Verdict, Violation, ZEROS};
use crate::credentials::Credentials;
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

    /// One of these documents holds from now on, or a part of each.
    pub fn documents_hold(&mut self, documents: &[&Config]) {
        let now = self.checker.stamp();
        self.announced.holds(documents, now);
    }

    /// A plan is begun.
    pub fn plan_begins(&mut self, steps: &[PlannedChange], old: &Config, new: &Config) -> Verdict {
        let now = self.checker.stamp();
        self.announced.plan_begins(&[old, new], now);
        (0..self.volumes.len()).for_each(|volume| self.allow_writes(volume));
        self.announced.check_plan(steps, old, new)
    }

    /// A change of a plan is begun, or taken back.
    pub fn step_begins(&mut self, change: &Change) {
        self.announced.step_begins(change);
    }

    /// A plan is made, and all that it takes away is over where `is_finished`.
    pub fn plan_is_made(&mut self, old: &Config, new: &Config, is_finished: bool) {
        let now = self.checker.stamp();
        self.announced.plan_is_made(old, new, now);
        if !self.is_exact() {
            self.announced.forget_owed();
        }
        let all = 0..self.volumes.len();
        for (host, volume) in
            (0..self.plan.hosts.len()).flat_map(|host| all.clone().map(move |v| (host, v)))
        {
            if is_finished && !self.announced.might_use(host, volume, now) {
                self.checker.forbid_writes(host, volume);
            }
        }
    }

    /// Nothing goes wrong but what documents change.
    fn is_exact(&self) -> bool {
        self.plan.applies.is_some_and(|applies| applies.is_exact)
    }

    /// A host begins to connect.
    pub fn connects(&mut self, host: usize, arrival: Arrival) {
        let now = self.checker.stamp();
        self.announced.connects(host, arrival, now);
    }

    /// It connects again by the key that it has made.
    pub fn comes_back(&mut self, host: usize, shown: Credentials) {
        let now = self.checker.stamp();
        self.announced.comes_back(host, shown, now);
    }

    /// It has all its connections.
    pub fn is_live(&mut self, host: usize) {
        let now = self.checker.stamp();
        self.announced.is_live(host, now);
    }

    /// A host was let in.
    pub fn let_in(&self, host: usize) -> Verdict {
        self.announced.let_in(host)
    }

    /// Whether a document may keep a host out.
    pub fn may_be_cut(&self, host: usize) -> bool {
        self.plan.applies.is_some() && self.announced.may_be_cut(host)
    }

    /// A host has lost a connection, or was not let in.
    pub fn was_cut(&mut self, host: usize, why: &str) -> Verdict {
        let is_wrong = self.is_exact() && !self.is_healed && !self.announced.may_be_cut(host);
        match is_wrong {
            true => Err(Violation(format!(
                "host {host} is cut, which no plan says: {why}"
            ))),
            false => Ok(()),
        }
    }

    /// A host was told of something that a document changes.
    pub fn was_told(&mut self, host: usize, told: Told) -> Verdict {
        self.trace(|| format!("host {host} is told of {told:?}"));
        let now = self.checker.stamp();
        match self.plan.applies {
            Some(_) => self.announced.heard(host, told, now),
            None => Ok(()),
        }
    }

    /// Whether a document allows that an operation succeeded.
    pub(super) fn fits_documents(&self, value: Value, is_success: bool) -> Verdict {
        if self.plan.applies.is_none() || !is_success {
            return Ok(());
        }
        let op = self.checker.op(value);
        let (host, volume, begun) = (op.host, op.volume, op.begun());
        if !self.announced.might_use(host, volume, begun) {
            let text = format!("op {value} of host {host} succeeded, which no document allows");
            return Err(Violation(text));
        }
        Ok(())
    }

    /// A unit has executed a command, and no answer of its session is under way: it has told
    /// the initiator all that it had to.
    pub fn was_executed(&self, io: &CheckedIo) -> Verdict {
        let mut ops = io.ops.iter().map(|value| self.checker.op(*value));
        ops.try_for_each(|op| self.announced.executed(op.host, op.volume, op.begun()))
    }

    /// Whether a document explains that a command failed.
    pub(super) fn might_lack(&self, value: Value) -> bool {
        let op = self.checker.op(value);
        self.plan.applies.is_some() && self.announced.might_lack(op.host, op.volume, op.begun())
    }
}
