//! One seed, from its plan to its verdict.

mod applies;
mod changes;
mod faults;
mod mirrors;
mod scrubs;
mod snapshots;

use std::panic::{AssertUnwindSafe, catch_unwind};

use mem::Pool;
use random::Random;
use reactor::Nanos;
use store::fs::Dir;

use crate::actor::Actor;
use crate::changes::Changes;
use crate::checker::{Verdict, Violation};
use crate::disk::Disk;
use crate::documents;
use crate::net::Net;
use crate::nfs::{self, Nfs, NfsClient, Users};
use crate::outcome::{Failure, NfsOutcome, RunOutcome};
use crate::plan::{DRIVERS, HOSTS_END, HostPlan, Plan, SHARDS_MAX, USERS};
use crate::pools;
use crate::posix::Posix;
use crate::target::{Medium, SimTarget};
use crate::work::HostWork;
use crate::world::{BLOCKING_WORK, MS, S, SharedWorld, US, World, WorldEvent};
use applies::Applies;

/// The run's own events, beside [`BLOCKING_WORK`].
const FAULT: u32 = 1;
const RESTART: u32 = 2;
const BURY: u32 = 3;
const TAKE_BACK: u32 = 4;
/// Nothing happens but that it is that late.
const REST: u32 = 5;
/// An operation of the file system is answered.
const LATE: u32 = 6;
/// A thread of `dir` has the time for something.
const JOB: u32 = 7;
/// A reactor panics.
const PANIC: u32 = 8;
/// A target that stops has had its time.
const STOPPED: u32 = 9;

/// The power fails.
const CUT: u32 = 10;
/// A document is applied.
const APPLY: u32 = 11;
/// A snapshot is made.
const SNAPSHOT: u32 = 12;
/// Mirrors and volumes with checksums do what they do by themselves.
const UPKEEP: u32 = 13;

/// How long a target that stops may take, as `weft serve` waits for it.
const STOP_MAX: Nanos = 10 * S;
/// Simulated time that one part of a run may take.
const PART_MAX: Nanos = 600 * S;

/// Runs a seed; `trace` is how many lines of what happened a failure shows.
pub fn run(seed: u64, trace: usize) -> Result<RunOutcome, Box<Failure>> {
    run_plan(Plan::new(seed), trace)
}

/// Runs a seed's plan as the caller has changed it.
pub fn run_plan(mut plan: Plan, trace: usize) -> Result<RunOutcome, Box<Failure>> {
    let seed = plan.seed;
    plan.part_volumes();
    let mut run = SeedRun::new(plan, trace > 0);
    let result = catch_unwind(AssertUnwindSafe(|| run.all()));
    let text = match result {
        Ok(Ok(outcome)) => return Ok(outcome),
        Ok(Err(Violation(text))) => text,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            format!("panic: {}", text.unwrap_or_default())
        }
    };
    let lines = match run.world.try_borrow() {
        Ok(world) => world.last_lines(trace),
        Err(_) => Vec::new(),
    };
    // What is left of the run may be in any state, its memory included.
    pools::forget();
    std::mem::forget(run);
    Err(Box::new(Failure {
        seed,
        text,
        trace: lines,
    }))
}

struct SeedRun {
    plan: Plan,
    world: SharedWorld,
    pools: Vec<Pool>,
    media: Vec<Medium>,
    target: Option<SimTarget>,
    hosts: Vec<Actor>,
    nfs: Option<Nfs>,
    clients: Vec<NfsClient>,
    users: Option<Users>,
    work: HostWork,
    /// Faults go on.
    is_chaos: bool,
    changes: Changes,
    applies: Applies,
    faults: u64,
    lives_in_chaos: u64,
    relives: u64,
    /// Times that a thread of `dir` will have.
    jobs: usize,
    /// Power cuts that follow where the disk below a `dir` was full.
    full_cuts: u32,
    /// Snapshots that were made and checked.
    snapshots: u64,
    snapshot_tries: u32,
    /// How long the target has stood still since a panic began to stop it.
    stood_still: Nanos,
}

impl SeedRun {
    fn new(plan: Plan, traces: bool) -> SeedRun {
        let seed = plan.seed;
        let pools = pools::of_a_seed(plan.little_memory);
        let mut net = Net::new(plan.net);
        for pool in &pools {
            net.add_driver(pool.clone());
        }
        let world = World::new(Random::new(!seed), net, Disk::new(plan.disk), traces);
        let media: Vec<_> = (plan.volumes.iter())
            .map(|&volume| Medium::new(&world, volume))
            .collect();
        world.borrow_mut().disk.dead = plan.dead_disk.and_then(|volume| media[volume].file());
        let mut work = HostWork::new(&world, &plan);
        let chance = Random::new(seed.rotate_left(32) ^ 1);
        let mut nfs = plan.nfs.as_ref().map(|nfs| Nfs::new(nfs, chance));
        world.borrow_mut().posix = nfs.as_ref().and_then(|nfs| nfs.posix().cloned());
        let applies = Applies::new(&plan, &media);
        let served = (&plan, &applies.document);
        let target = SimTarget::start(&world, served, (&media, nfs.as_mut()), &pools);
        for (medium, volume) in media.iter().zip(target.shared.volumes()) {
            let can_persist = volume.state().can_persist();
            work.add_volume(
                medium.plan.block_bytes,
                can_persist,
                medium.promise(&*volume),
            );
        }
        let hosts = (0..plan.hosts.len())
            .map(|n| {
                let id = SHARDS_MAX + n;
                Actor::new(&world, n, id, &plan, pools[id].clone())
            })
            .collect();
        let clients = nfs::clients(&world, &plan, &pools);
        let users = nfs::users(&world, &plan, &pools);
        let full_cuts = plan.nfs.as_ref().map_or(0, |nfs| nfs.full_cuts);
        SeedRun {
            plan,
            world,
            nfs,
            clients,
            users,
            pools,
            media,
            target: Some(target),
            hosts,
            work,
            is_chaos: true,
            changes: Changes::default(),
            applies,
            faults: 0,
            lives_in_chaos: 0,
            relives: 0,
            jobs: 0,
            snapshots: 0,
            snapshot_tries: 0,
            stood_still: 0,
            full_cuts,
        }
    }

    fn all(&mut self) -> Result<RunOutcome, Violation> {
        self.world.borrow_mut().trace(|| format!("{:?}", self.plan));
        self.script_after(self.plan.faults.interval, FAULT);
        if let Some(panic) = self.plan.panic {
            self.script_after(panic.after, PANIC);
        }
        self.target_started();
        if self.plan.snapshots > 0 {
            self.script_after(self.plan.snapshots, SNAPSHOT);
        }
        self.script_after(MS, UPKEEP);
        if let Some(applies) = self.plan.applies {
            self.script_after(applies.interval, APPLY);
        }
        self.until("the work is done", SeedRun::is_done)?;
        self.rest(self.plan.idle)?;
        self.check_scrubs_among_faults()?;
        self.heal()?;
        self.read_everything()?;
        self.scrub_everything()?;
        if self.world.borrow_mut().random.percent(50) {
            self.stop_target(true)?;
            self.script_after(MS, RESTART);
            self.read_everything()?;
            self.scrub_everything()?;
        }
        self.work.checker.finish()?;
        self.work.check_limits()?;
        self.compare_legs()?;
        self.end()?;
        Ok(RunOutcome {
            ops: self.work.checker.begun() as u64,
            checked: self.work.checker.checked(),
            failed: self.work.answers[0],
            lives: self.hosts.iter().map(Actor::lives).sum(),
            sessions: self.hosts.iter().map(Actor::sessions).sum(),
            by_nbd: self.lives_of(|host| host.nbd.is_some()),
            secured: self.lives_of(HostPlan::speaks_tls),
            concatenated: self.lives_of(|host| host.concatenates),
            by_rdma: [
                self.lives_of(|host| host.rdma && host.speaks_nvme()),
                self.lives_of(|host| host.rdma && host.iscsi.is_some()),
            ],
            authenticated: self.lives_of(|host| host.dhchap.is_some()),
            odd_arrivals: self.hosts.iter().map(Actor::odd_arrivals).sum(),
            functions: self.hosts.iter().map(Actor::functions).sum(),
            lives_in_chaos: self.lives_in_chaos,
            faults: self.faults + u64::from(self.has_cut()),
            flips: self.flips(),
            secured_flips: self.secured_flips(),
            relives: self.relives,
            nfs: self.nfs_outcome(),
            applies: self.applies.counts,
            took_ns: [0, 1].map(|volume| self.work.moved.percentile(volume, 99)),
            limited: u64::from(!self.plan.limits.is_empty()),
            snapshots: self.snapshots,
            digest: self.world.borrow().digest(),
        })
    }

    /// Whether a stream was cut where the plan says.
    fn has_cut(&self) -> bool {
        self.plan.net.cut.is_some() && !self.world.borrow().net.awaits_cut()
    }

    fn flips(&self) -> [u64; 2] {
        let mut flips = [0; 2];
        for (n, host) in self.plan.hosts.iter().enumerate() {
            flips[usize::from(host.iscsi.is_some())] += self.flips_of(n);
        }
        flips
    }

    fn secured_flips(&self) -> u64 {
        let hosts = self.plan.hosts.iter().enumerate();
        let secured = hosts.filter(|(_, host)| host.speaks_tls());
        secured.map(|(number, _)| self.flips_of(number)).sum()
    }

    /// How often hosts came up that a plan makes so.
    fn lives_of(&self, is_so: fn(&HostPlan) -> bool) -> u64 {
        let hosts = self.hosts.iter().zip(&self.plan.hosts);
        let those = hosts.filter(|(_, plan)| is_so(plan));
        those.map(|(host, _)| host.lives()).sum()
    }

    fn flips_of(&self, host: usize) -> u64 {
        self.world.borrow_mut().net.driver(SHARDS_MAX + host).flips
    }

    fn nfs_outcome(&self) -> NfsOutcome {
        let Some(nfs) = &self.nfs else {
            return NfsOutcome::default();
        };
        let sum = |of: fn(&NfsClient) -> u64| self.clients.iter().map(of).sum();
        NfsOutcome {
            checked: nfs.common.model.checked,
            lives: sum(|client| client.lives),
            reclaimed: sum(|client| client.reclaimed),
            secured: (self.clients.iter())
                .filter(|client| client.speaks_tls())
                .map(|client| client.lives)
                .sum(),
            by_rdma: (self.clients.iter())
                .filter(|client| client.is_by_rdma())
                .map(|client| client.lives)
                .sum(),
            flips: (HOSTS_END..DRIVERS)
                .map(|driver| self.world.borrow_mut().net.driver(driver).flips)
                .sum(),
            proven: self.users.as_ref().map_or(0, Users::checked),
            repeated: sum(|client| client.repeated),
            lost: nfs.common.lost,
            rewritten: nfs.common.rewritten,
            delegations: nfs.common.delegations,
            asked: sum(|client| client.asked),
        }
    }

    /// From here on everything works.
    fn heal(&mut self) -> Verdict {
        self.is_chaos = false;
        if let Some(target) = &mut self.target {
            target.cancel_panics();
        }
        let serves = |target: &SimTarget| !target.has_failed();
        self.until("a target ends after a panic", |run| {
            run.target.as_ref().is_none_or(serves)
        })?;
        let lives: Vec<u64> = self.hosts.iter().map(Actor::lives).collect();
        self.lives_in_chaos = lives.iter().sum();
        let quiet = (lives.iter().enumerate()).filter(|(host, _)| self.flips_of(*host) == 0);
        self.relives = quiet.map(|(_, lives)| lives.saturating_sub(1)).sum();
        self.work.heal();
        let must_restart = {
            let mut world = self.world.borrow_mut();
            world.trace(|| "everything works from now on".into());
            world.disk.heal();
            world.net.heal();
            if let Some(posix) = &world.posix {
                posix.heal();
            }
            world.release_hung();
            world.reset_vanished();
            let mut files = self.media.iter().flat_map(Medium::files);
            files.any(|file| world.disk.has_lost(file))
        };
        // After a failed sync nothing more is promised until a restart, and a leg stays out.
        let must_restart = must_restart || self.has_mirrors();
        if must_restart && self.target.is_some() {
            let is_cut = self.world.borrow_mut().random.percent(50);
            self.stop_target(is_cut)?;
            self.script_after(MS, RESTART);
        }
        // A change under way comes to its end, and is taken back.
        while !self.changes.is_idle() {
            self.change();
            self.until("a change is made", |run| !run.changes.is_under_way())?;
        }
        self.apply_base()?;
        self.heal_mirrors()?;
        self.until("every host is back", |run| {
            run.hosts.iter().all(Actor::is_live) && run.work.is_settled()
        })?;
        self.until("hosts hear of what reservations became", |run| {
            run.work.missing_notice().is_none()
        })
    }

    fn read_everything(&mut self) -> Verdict {
        self.work.verify_all();
        for host in 0..self.hosts.len() {
            self.world.borrow_mut().wake(SHARDS_MAX + host);
        }
        self.verify_files()?;
        self.until("everything is read", SeedRun::is_done)
    }

    /// NFS clients make all that they wrote safe, and read everything.
    fn verify_files(&mut self) -> Verdict {
        if self.nfs.is_none() {
            return Ok(());
        }
        self.until("every NFS client is there", |run| {
            run.clients.iter().all(NfsClient::is_live)
        })?;
        for client in &mut self.clients {
            let nfs = self.nfs.as_ref().expect("just seen");
            nfs::verify(client, &nfs.common);
            client.wake(&self.world);
        }
        if let Some(users) = &mut self.users {
            users.verify();
            users.wake(&self.world);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let has_dead_disk = |plan: &HostPlan| {
            self.is_chaos && plan.volume.is_some() && plan.volume == self.plan.dead_disk
        };
        let mut hosts = self.hosts.iter().zip(&self.plan.hosts);
        let is_idle = hosts.all(|(host, plan)| host.in_flight() == 0 || has_dead_disk(plan));
        if self.is_chaos && self.plan.applies.is_some() {
            // The last document may let no host in.
            return self.applies.is_over();
        }
        let is_done = !self.work.has_more() && is_idle;
        let are_idle = self.users.as_ref().is_none_or(Users::is_idle);
        is_done && are_idle && self.clients.iter().all(NfsClient::is_idle)
    }

    /// The end: nothing may be left of anything.
    fn end(&mut self) -> Verdict {
        for (n, host) in self.hosts.iter_mut().enumerate() {
            host.end();
            self.world.borrow_mut().wake(SHARDS_MAX + n);
        }
        for client in &mut self.clients {
            client.end();
            client.wake(&self.world);
        }
        if let Some(users) = &mut self.users {
            users.end();
            users.wake(&self.world);
        }
        self.until("all connections have ended", |run| {
            let target = run.target.as_ref();
            run.hosts.iter().all(Actor::is_gone)
                && run.clients.iter().all(NfsClient::is_gone)
                && run.users.as_ref().is_none_or(Users::is_gone)
                && target.is_some_and(|target| target.connections() == 0)
        })?;
        let target = self.target.as_ref().expect("it runs");
        let leaks = [
            ("controllers", target.controllers() as u64),
            ("buffers of the target", self.lent(0..SHARDS_MAX)),
            ("buffers of hosts", self.lent(SHARDS_MAX..DRIVERS)),
        ];
        for (what, count) in leaks {
            if count > 0 {
                return Err(Violation(format!("{count} {what} are left at the end")));
            }
        }
        Ok(())
    }

    fn lent(&self, pools: std::ops::Range<usize>) -> u64 {
        self.pools[pools].iter().map(Pool::lent).sum()
    }

    fn script_after(&mut self, delay: Nanos, script: u32) {
        self.world
            .borrow_mut()
            .after(delay, WorldEvent::Script(script));
    }

    /// Lets events happen until `done`.
    fn until(&mut self, what: &str, done: impl Fn(&SeedRun) -> bool) -> Verdict {
        let limit = self.world.borrow().now + PART_MAX;
        while !done(self) {
            if !self.step(limit)? {
                let text = format!("{what}: not within {} s", PART_MAX / S);
                return Err(Violation(text));
            }
        }
        Ok(())
    }

    /// Lets one event happen; false where there is none until `limit`.
    fn step(&mut self, limit: Nanos) -> Result<bool, Violation> {
        let event = self.world.borrow_mut().next(limit);
        match event {
            None => return Ok(false),
            Some(WorldEvent::Turn(driver)) => self.turn(driver)?,
            Some(WorldEvent::Script(script)) => self.script(script)?,
            Some(event) => self.world.borrow_mut().run_event(event),
        }
        Ok(true)
    }

    fn turn(&mut self, driver: usize) -> Verdict {
        if let (USERS, Some(users)) = (driver, &mut self.users) {
            return users.turn(&self.world);
        }
        if let (HOSTS_END.., Some(nfs)) = (driver, &mut self.nfs) {
            return self.clients[driver - HOSTS_END].turn(&self.world, &mut nfs.common);
        }
        if driver >= SHARDS_MAX {
            return self.hosts[driver - SHARDS_MAX].turn(&self.world, &mut self.work);
        }
        let Some(target) = &mut self.target else {
            self.world.borrow_mut().begin_turn(driver);
            return Ok(());
        };
        {
            let mut world = self.world.borrow_mut();
            let until = world.net.driver(driver).busy_until;
            if world.now < until {
                // Not even its timers are looked at.
                world.at(until, WorldEvent::Turn(driver));
                return Ok(());
            }
        }
        let had_failed = target.has_failed();
        target.turn(driver, &self.world);
        let (has_failed, has_ended) = (target.has_failed(), target.has_ended());
        if has_failed && !had_failed {
            self.work.checker.panicked();
            self.world.borrow_mut().net.driver(driver).has_failed = true;
            self.stood_still = 0;
            self.script_after(STOP_MAX, STOPPED);
        }
        self.note_late();
        self.note_jobs();
        self.note_full();
        self.note_cut()?;
        self.note_media_errors();
        self.note_change()?;
        self.work.settle(false)?;
        self.work.checker.panicked();
        match has_ended {
            true => self.end_after_panic(),
            false => Ok(()),
        }
    }

    /// The process of a target ends that a panic has stopped.
    fn end_after_panic(&mut self) -> Verdict {
        self.stop_target(false)?;
        let pause = self.world.borrow_mut().random.around(5 * MS);
        self.script_after(pause, RESTART);
        Ok(())
    }

    /// A target that a panic has stopped ends in time, unless a disk hangs.
    fn stopped(&mut self) -> Verdict {
        let Some(target) = &self.target else {
            return Ok(());
        };
        if !target.has_failed() {
            return Ok(());
        }
        let stood_still = std::mem::take(&mut self.stood_still);
        if stood_still > 0 {
            self.script_after(stood_still, STOPPED);
            return Ok(());
        }
        if !self.world.borrow().disk.hangs() {
            let text = "the target does not end after a panic".to_owned();
            return Err(Violation(text));
        }
        self.end_after_panic()
    }

    /// Answers of the file system come when they come.
    fn note_late(&mut self) {
        let (Some(nfs), Some(plan)) = (&mut self.nfs, &self.plan.nfs) else {
            return;
        };
        let count = nfs.late.lock().expect("one thread").len();
        for _ in nfs.late_seen..count {
            let mut world = self.world.borrow_mut();
            let delay = world.random.around(plan.late);
            world.after(delay, WorldEvent::Script(LATE));
        }
        nfs.late_seen = count;
    }

    /// What waits for a thread of `dir` is done when one has the time.
    fn note_jobs(&mut self) {
        let dir = self.nfs.as_ref().and_then(Nfs::dir);
        let waiting = dir.map_or(0, Dir::waiting);
        while self.jobs < waiting {
            self.jobs += 1;
            let mut world = self.world.borrow_mut();
            let delay = world.random.around(100 * US);
            world.after(delay, WorldEvent::Script(JOB));
        }
    }

    /// Where the disk below a `dir` was full the power may fail, as soon as clients have
    /// the error.
    fn note_full(&mut self) {
        let posix = self.nfs.as_ref().and_then(Nfs::posix);
        if posix.is_some_and(Posix::was_full) && self.full_cuts > 0 && self.is_chaos {
            let mut world = self.world.borrow_mut();
            if world.random.one_in(2) {
                self.full_cuts -= 1;
                let delay = world.random.around(500 * US);
                world.after(delay, WorldEvent::Script(CUT));
            }
        }
    }

    /// A thread of `dir` has the time.
    fn do_job(&mut self) {
        self.jobs = self.jobs.saturating_sub(1);
        let Some(dir) = self.nfs.as_ref().and_then(Nfs::dir) else {
            return;
        };
        dir.step();
        if dir.waiting() == 0 && self.world.borrow_mut().random.one_in(8) {
            dir.tidy();
        }
        self.note_jobs();
        if let Some(target) = &self.target {
            target.call(&self.world);
        }
    }

    /// One of them comes.
    fn answer_late(&mut self) {
        let Some(nfs) = &mut self.nfs else { return };
        let mut late = nfs.late.lock().expect("one thread");
        if !late.is_empty() {
            let at = self.world.borrow_mut().random.below(late.len() as u64);
            late.swap_remove(at as usize).ring();
        }
        nfs.late_seen = late.len();
        drop(late);
        if let Some(target) = &self.target {
            target.call(&self.world);
        }
    }

    /// Writes that the disk fails may come in part.
    fn note_media_errors(&mut self) {
        let failures = std::mem::take(&mut self.world.borrow_mut().disk.failures);
        for (file, offset, len) in failures {
            let is_of_sums = |medium: &Medium| medium.sums_file() == Some(file);
            if self.media.iter().any(is_of_sums) {
                // What was to be written comes not at all.
                continue;
            }
            let is_it = |medium: &Medium| medium.files().any(|own| own == file);
            let volume = self
                .media
                .iter()
                .position(is_it)
                .expect("files are volumes");
            let plan = &self.media[volume].plan;
            let block = u64::from(plan.block_bytes);
            let (first, end) = (offset / block, (offset + len).div_ceil(block));
            // Those of a stripe lie in turn, and are one behind the other here.
            let (first, end) = (plan.made.blocks(first), plan.made.blocks(end));
            self.work.checker.media_error(volume, first, end - first);
        }
    }

    fn script(&mut self, script: u32) -> Verdict {
        match script {
            BLOCKING_WORK => {
                if let Some(target) = &self.target {
                    target.shared.engine.run_blocking_work();
                    target.call(&self.world);
                    self.note_cut()?;
                    self.note_change()?;
                    self.work.settle(true)?;
                }
            }
            FAULT if self.is_chaos && self.faults < self.plan.faults.count_max => {
                let next = self
                    .world
                    .borrow_mut()
                    .random
                    .around(self.plan.faults.interval);
                self.script_after(next, FAULT);
                self.fault()?;
            }
            RESTART if self.target.is_none() => self.start_target(),
            TAKE_BACK if self.changes.is_made() => self.change(),
            APPLY if self.is_chaos => self.apply_next()?,
            SNAPSHOT if self.is_chaos => self.snapshot()?,
            UPKEEP => self.run_upkeep(),
            LATE => self.answer_late(),
            JOB => self.do_job(),
            PANIC if self.is_chaos => {
                let panic = self.plan.panic.expect("it was scheduled");
                if let Some(target) = &mut self.target {
                    self.faults += 1;
                    target.panic(panic.shard, panic.events);
                }
            }
            STOPPED => self.stopped()?,
            CUT if self.is_chaos => {
                self.faults += 1;
                self.crash(true)?;
            }
            BURY => self.world.borrow_mut().reset_vanished(),
            _ => {}
        }
        Ok(())
    }

    /// The target's process ends where it stands, and perhaps its machine.
    fn stop_target(&mut self, power: bool) -> Verdict {
        // What has arrived at a host is handled before this.
        for host in &mut self.hosts {
            host.turn(&self.world, &mut self.work)?;
        }
        if let Some(nfs) = &mut self.nfs {
            for client in &mut self.clients {
                client.turn(&self.world, &mut nfs.common)?;
            }
            if let Some(users) = &mut self.users {
                users.turn(&self.world)?;
            }
        }
        self.note_media_errors();
        {
            let mut world = self.world.borrow_mut();
            world.trace(|| match power {
                true => "the power fails".into(),
                false => "the target is killed".into(),
            });
            for shard in 0..self.plan.shards {
                world.files_die(shard);
                world.end_driver(shard, true);
            }
            world.lose_answers();
            if let Some(posix) = &world.posix {
                posix.end_process();
            }
            if power {
                world.power_cut();
            }
        }
        self.note_cut()?;
        self.target = None;
        self.work.check_limits()?;
        if let (Some(nfs), Some(plan)) = (&mut self.nfs, &self.plan.nfs) {
            nfs.crash(self.world.borrow().now)?;
            if let (true, Some(posix)) = (power, nfs.posix()) {
                posix.power_cut();
                self.clients.iter_mut().for_each(NfsClient::power_failed);
            }
            for client in &mut self.clients {
                client.target_died(plan.survives);
            }
            if let Some(users) = &mut self.users {
                users.target_died();
            }
        }
        self.changes.forget();
        self.work.killed()?;
        self.settle_sizes();
        self.applies.target_ended();
        self.note_lost(power)?;
        self.damage_media();
        if self.lent(0..SHARDS_MAX) > 0 {
            let text = "buffers are left of a target that has ended".to_owned();
            return Err(Violation(text));
        }
        Ok(())
    }

    /// What volumes have lost with the target that had them open.
    fn note_lost(&mut self, power: bool) -> Verdict {
        for (volume, medium) in self.media.iter().enumerate() {
            if medium.file().is_none() {
                self.work.checker.forgotten(volume)?;
                continue;
            }
            // The next target that opens it finds what is on the medium.
            let has_lost = |file| self.world.borrow().disk.has_lost(file);
            if power || medium.files().any(has_lost) {
                self.work.checker.power_cut(volume)?;
            }
        }
        Ok(())
    }

    /// Changes bits of volumes with checksums, now and then.
    fn damage_media(&mut self) {
        for (volume, medium) in self.media.iter().enumerate() {
            let is_changed = medium.plan.is_checksummed && self.world.borrow_mut().random.one_in(3);
            if is_changed && let Some(block) = medium.flip(&self.world) {
                self.work.checker.damaged(volume, block);
            }
        }
    }

    fn start_target(&mut self) {
        let document = &mut self.applies.document;
        documents::keep_sizes(document, &self.media);
        let kept = (&self.media[..], self.nfs.as_mut());
        let served = (&self.plan, &*document);
        let target = SimTarget::start(&self.world, served, kept, &self.pools);
        target.begin_scrubs();
        self.target = Some(target);
        self.target_started();
        let mut world = self.world.borrow_mut();
        world.trace(|| "the target is started".into());
        world.reset_vanished();
        let delay = world.random.around(100 * US);
        world.after(delay, WorldEvent::Script(BURY));
    }
}
