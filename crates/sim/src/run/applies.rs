//! Documents that are applied while hosts work and things go wrong: what is served is
//! what one says then, and what the one before it said where a change cannot be made.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use control::{ServedDocument, Serving};
use random::Random;
use server::parts::{ChangeOutcome, Shared};
use server::{Change, ChangeError, Config};

use super::{REST, SeedRun};
use crate::checker::{Verdict, Violation};
use crate::documents::{self, Desired};
use crate::plan::Plan;
use crate::target::{Medium, volume_name};
use crate::world::{MS, S};

use reactor::Nanos;

/// How long a change may take, as [`server::Running::change`] waits for it.
const CHANGE_MAX: Nanos = 30 * S;

/// Documents of a run.
pub struct Applies {
    /// What is served, and the next target would start with.
    pub document: Config,
    /// The same, as `control` has it.
    served: Option<ServedDocument>,
    /// What is being applied.
    desired: Option<Config>,
    /// How many are to come.
    left: u32,
    /// What went wrong while a change was awaited.
    failure: Option<Violation>,
    random: Random,
    /// Documents that are served now or were, that were taken back and that were refused.
    pub counts: [u64; 3],
}

impl Applies {
    /// Before the first target.
    pub fn new(plan: &Plan, media: &[Medium]) -> Applies {
        Applies {
            document: documents::base(plan, media),
            served: None,
            desired: None,
            left: plan.applies.map_or(0, |applies| applies.count),
            failure: None,
            random: Random::new(plan.seed ^ 0x646f_6375_6d65_6e74),
            counts: [0; 3],
        }
    }

    /// Whether none is to come, and none under way.
    pub fn is_over(&self) -> bool {
        self.left == 0 && self.desired.is_none()
    }

    /// The target has ended: the next one serves what its file says, the old document or
    /// the one that was being applied.
    pub fn target_ended(&mut self) {
        self.served = None;
        if let Some(desired) = &self.desired
            && self.random.one_in(2)
        {
            self.document = desired.clone();
            // What cannot be opened was never in a file.
            let volumes = &mut self.document.volumes;
            volumes.retain(|spec| spec.name != documents::UNOPENED);
        }
    }
}

/// A target that runs, to `control`.
struct LiveTarget<'r> {
    run: RefCell<&'r mut SeedRun>,
    shared: Arc<Shared>,
    config: Config,
}

impl Serving for LiveTarget<'_> {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn change(&self, change: Change) -> ChangeOutcome {
        let mut run = self.run.borrow_mut();
        match run.make(change, &self.shared) {
            Ok(outcome) => outcome,
            Err(violation) => {
                run.applies.failure = Some(violation);
                Err(ChangeError::Stopping)
            }
        }
    }
}

impl SeedRun {
    /// A target has been started with the document.
    pub(super) fn target_started(&mut self) {
        let Some(target) = &self.target else { return };
        let (shared, config) = (target.shared.clone(), self.applies.document.clone());
        self.work.documents_hold(&[&config]);
        if self.plan.applies.is_none() {
            return;
        }
        let live = LiveTarget {
            run: RefCell::new(self),
            shared,
            config: config.clone(),
        };
        let served = ServedDocument::new(&config, &live);
        self.applies.served = Some(served);
    }

    /// The next document is applied, if the target can.
    pub(super) fn apply_next(&mut self) -> Verdict {
        let Some(plan) = self.plan.applies else {
            return Ok(());
        };
        let applies = &mut self.applies;
        if applies.left == 0 || applies.desired.is_some() {
            return Ok(());
        }
        let is_there = self
            .target
            .as_ref()
            .is_some_and(|target| !target.has_failed());
        if is_there {
            applies.left -= 1;
            let base = documents::base(&self.plan, &self.media);
            let desired = documents::random(&self.plan, &base, &mut applies.random);
            self.apply(desired)?;
        }
        let delay = self.applies.random.around(plan.interval);
        self.script_after(delay, super::APPLY);
        Ok(())
    }

    /// All hosts have everything again.
    pub(super) fn apply_base(&mut self) -> Verdict {
        if self.plan.applies.is_none() {
            return Ok(());
        }
        self.applies.left = 0;
        self.until("the target runs", |run| run.target.is_some())?;
        let document = documents::base(&self.plan, &self.media);
        self.apply(Desired {
            document,
            fails: false,
        })
    }

    /// Applies a document, and looks at what comes of it.
    fn apply(&mut self, desired: Desired) -> Verdict {
        let Desired { document, fails } = desired;
        let (Some(target), Some(mut served)) = (&self.target, self.applies.served.take()) else {
            return Ok(());
        };
        let shared = target.shared.clone();
        let old = self.applies.document.clone();
        let live = LiveTarget {
            run: RefCell::new(self),
            shared: shared.clone(),
            config: old.clone(),
        };
        let plan = match served.plan(document.clone(), &live) {
            Ok(plan) => plan,
            Err(why) => {
                self.applies.served = Some(served);
                self.applies.counts[2] += 1;
                return self.was_refused(&why, &old, &document, &shared);
            }
        };
        {
            let run = &mut *live.run.borrow_mut();
            run.world.borrow_mut().trace(|| {
                let lines = plan.changes.iter().map(|step| step.text.as_str());
                format!("a plan: {}", lines.collect::<Vec<_>>().join("; "))
            });
            run.work.plan_begins(&plan.changes, &old, &document)?;
            run.applies.desired = Some(document.clone());
        }
        let mut is_finished = true;
        let made = served.apply(plan, &live, |text| is_finished &= !text.contains("; but "));
        let run = live.run.into_inner();
        if let Some(violation) = run.applies.failure.take() {
            return Err(violation);
        }
        let is_there = run.is_target(&shared);
        let is_stopping = shared.engine.is_stopping();
        if is_there && is_stopping {
            run.applies.target_ended();
        }
        run.applies.desired = None;
        if !is_there || is_stopping {
            return Ok(());
        }
        run.applies.served = Some(served);
        match made {
            Ok(_) => {
                run.applies.document = document.clone();
                run.applies.counts[0] += 1;
                run.work.plan_is_made(&old, &document, is_finished);
            }
            Err(why) => {
                documents::keep_sizes(&mut run.applies.document, &run.media);
                let document = run.applies.document.clone();
                run.work.plan_is_made(&document, &document, false);
                run.applies.counts[1] += 1;
                if !fails {
                    let text = format!("a plan is not made: {}", why.join("; "));
                    return Err(Violation(text));
                }
            }
        }
        run.expect_served(&shared)?;
        run.expect_told()
    }

    /// A plan is refused because a volume would shrink, and for nothing else.
    fn was_refused(
        &mut self,
        why: &[String],
        old: &Config,
        desired: &Config,
        shared: &Arc<Shared>,
    ) -> Verdict {
        let shrinks = desired.volumes.iter().any(|new| {
            let mut volumes = old.volumes.iter();
            volumes.any(|old| old.name == new.name && old.size_bytes > new.size_bytes)
        });
        match shrinks && why.iter().all(|line| line.contains("would shrink")) {
            true => self.expect_served(shared),
            false => Err(Violation(format!("a plan is refused: {}", why.join("; ")))),
        }
    }

    /// What is served is what the document says.
    fn expect_served(&mut self, shared: &Shared) -> Verdict {
        match documents::difference(&shared.served(), &self.applies.document) {
            None => Ok(()),
            Some(text) => Err(Violation(format!("after an apply: {text}"))),
        }
    }

    /// Hosts hear of what is other for them, and those that may not be there are gone.
    fn expect_told(&mut self) -> Verdict {
        if !self.plan.applies.is_some_and(|applies| applies.is_exact) {
            return Ok(());
        }
        self.until("hosts are told of what a document changes", |run| {
            !run.work.announced.is_owed()
        })?;
        self.until("hosts that a document keeps out are gone", |run| {
            !run.work.announced.is_left(&run.applies.document)
        })?;
        // What is on its way to those that have just come.
        self.rest(5 * MS)
    }

    /// Whether it is the target that runs.
    fn is_target(&self, shared: &Arc<Shared>) -> bool {
        let target = self.target.as_ref();
        target.is_some_and(|target| Arc::ptr_eq(&target.shared, shared))
    }

    /// Makes a change while everything else goes on.
    fn make(&mut self, change: Change, shared: &Arc<Shared>) -> Result<ChangeOutcome, Violation> {
        if self.applies.failure.is_some() {
            return Ok(Err(ChangeError::Stopping));
        }
        if self.applies.random.one_in(2) {
            let pause = self.applies.random.around(MS / 2);
            let end = self.world.borrow().now + pause;
            self.script_after(pause, REST);
            // A target that ends must be let go of before the next one starts.
            self.until("time passes", |run| {
                run.world.borrow().now >= end || !run.is_target(shared)
            })?;
        }
        if !self.is_target(shared) {
            return Ok(Err(ChangeError::Stopping));
        }
        self.world.borrow_mut().trace(|| format!("{change:?}"));
        self.work.step_begins(&change);
        let resized = self.note_resize(&change);
        let outcome: Arc<Mutex<Option<ChangeOutcome>>> = Arc::default();
        let told = outcome.clone();
        let done = Box::new(move |_: &_, result| {
            *told.lock().expect("one thread") = Some(result);
        });
        shared.change(change, done);
        if let Some(target) = &self.target {
            target.call(&self.world);
        }
        let give_up = self.world.borrow().now + CHANGE_MAX;
        self.script_after(CHANGE_MAX, REST);
        self.until("a change is answered", |run| {
            outcome.lock().expect("one thread").is_some()
                || !run.is_target(shared)
                || shared.engine.is_stopping()
                || run.world.borrow().now >= give_up
        })?;
        let told = outcome.lock().expect("one thread").take();
        let outcome = told.unwrap_or_else(|| match shared.engine.is_stopping() {
            false if self.is_target(shared) => Err(ChangeError::Unfinished),
            _ => Err(ChangeError::Stopping),
        });
        if let (Ok(()), Some((volume, blocks))) = (&outcome, resized) {
            self.media[volume].blocks = blocks;
            self.work.resized(volume, blocks);
        }
        self.world.borrow_mut().trace(|| format!("{outcome:?}"));
        Ok(outcome)
    }

    /// A volume is about to grow; which, and to how many blocks.
    fn note_resize(&mut self, change: &Change) -> Option<(usize, u64)> {
        let Change::ResizeVolume {
            name, size_bytes, ..
        } = change
        else {
            return None;
        };
        let volume = (0..self.media.len()).find(|n| volume_name(*n) == *name)?;
        let medium = &self.media[volume];
        let blocks = size_bytes / u64::from(medium.plan.block_bytes);
        medium.set_file_blocks(&self.world, blocks);
        self.work.resizing(volume, blocks);
        Some((volume, blocks))
    }

    /// Time passes.
    pub(super) fn rest(&mut self, time: Nanos) -> Verdict {
        let end = self.world.borrow().now + time;
        self.script_after(time, REST);
        self.until("time passes", |run| run.world.borrow().now >= end)
    }
}
