//! A running target follows its document.

use std::collections::BTreeMap;

use faults::Fault;
use iscsi::{Auth, Target};
use nvmf::{AnaGroup, HostTerms};
use server::parts::Shared;
use server::{
    Ana, Change, ChangeError, Config, IscsiTargetSpec, Running, Start, StartError, check,
};
use store::Encryption;

use crate::plan::{PlannedChange, at_restart, plan, until_restart};

/// A target that runs.
pub trait Serving {
    /// What its reactors share.
    fn shared(&self) -> &Shared;

    /// What it was started with, but for what was missing then.
    fn config(&self) -> &Config;

    /// Makes a change: see [`Running::change`].
    ///
    /// # Errors
    /// Why not, and what to do about it.
    fn change(&self, change: Change) -> Result<(), ChangeError>;
}

impl Serving for Running {
    fn shared(&self) -> &Shared {
        self.shared()
    }

    fn config(&self) -> &Config {
        self.config()
    }

    fn change(&self, change: Change) -> Result<(), ChangeError> {
        self.change(change)
    }
}

/// What a running target serves, as a document says it.
#[derive(Debug)]
pub struct ServedDocument {
    config: Config,
    /// The number of each of its listeners.
    numbers: Vec<u16>,
    /// What could not be taken back: no document says what is served then.
    not_taken_back: Vec<String>,
    missing: Missing,
}

/// Names of what a degraded start has left out, and each change of the document since.
#[derive(Clone, Debug, Default)]
struct Missing {
    volumes: Vec<String>,
    file_systems: Vec<String>,
}

/// What makes a target serve another document.
#[derive(Debug)]
pub struct DocumentPlan {
    /// In the order in which they are made.
    pub changes: Vec<PlannedChange>,
    /// What was missing at the start and is so still, and why: it stays out.
    pub missing: Vec<String>,
    /// Settings that change at the next start, a line each.
    pub at_restart: Vec<String>,
    /// The document, without either.
    desired: Config,
    still: Missing,
}

/// What was made of a plan, and what was served before.
#[derive(Debug)]
pub struct MadeChanges {
    before: ServedDocument,
    steps: Vec<PlannedChange>,
}

impl MadeChanges {
    /// How many they are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.steps.len()
    }
}

impl ServedDocument {
    /// Of a target that was started with `loaded`, and has not changed since.
    #[must_use]
    pub fn new(loaded: &Config, running: &impl Serving) -> ServedDocument {
        let numbers = running.shared().served().listeners.into_iter();
        let started = running.config();
        let missing = Missing {
            volumes: absent(&loaded.volumes, &started.volumes, |spec| &spec.name),
            file_systems: absent(&loaded.file_systems, &started.file_systems, |s| &s.name),
        };
        let config = Config {
            // A start bounds them by the descriptors that there are.
            limits: loaded.limits,
            ..started.clone()
        };
        ServedDocument {
            config,
            numbers: numbers.map(|(number, _)| number).collect(),
            not_taken_back: Vec::new(),
            missing,
        }
    }

    /// The changes that [`ServedDocument::apply`] would make.
    ///
    /// # Errors
    /// What cannot be changed while hosts are connected, a line each; after a change that
    /// was made in part, that a restart is needed, and why.
    pub fn plan(
        &self,
        desired: Config,
        running: &impl Serving,
    ) -> Result<DocumentPlan, Vec<String>> {
        if !self.not_taken_back.is_empty() {
            let why = "what is served is what no file says, since a change was made in part: \
                       restart weft, which serves then what the file says";
            let left = self.not_taken_back.iter().cloned();
            return Err(std::iter::once(why.to_owned()).chain(left).collect());
        }
        let at_restart = at_restart(&self.config, &desired);
        let desired = until_restart(desired, &self.config);
        let (mut desired, still, missing) = self.without_missing(desired, running);
        keep_keys(&mut desired, &self.config);
        Ok(DocumentPlan {
            changes: plan(&self.with_locked(running), &desired)?,
            missing,
            at_restart,
            desired,
            still,
        })
    }

    /// What is served: a volume that is locked goes by no key, whichever it was given. Hosts have
    /// erased it, and its keys could not be written.
    fn with_locked(&self, running: &impl Serving) -> Config {
        let mut config = self.config.clone();
        let volumes = running.shared().volumes();
        for spec in &mut config.volumes {
            let volume = volumes
                .iter()
                .find(|volume| volume.info().name == spec.name);
            let encryption = volume.and_then(|volume| volume.encryption());
            if let Some(settings) = &mut spec.encryption
                && encryption.is_some_and(Encryption::is_locked)
            {
                settings.key = Err("the volume is locked".to_owned());
            }
        }
        config
    }

    /// The changes that make the target go by the keys and secrets of hosts, initiators and remote
    /// volumes that `read` has, and by nothing else of it: it is the same document, read again.
    ///
    /// # Errors
    /// What cannot be changed, a line each.
    pub fn plan_secrets(&self, read: &Config) -> Result<DocumentPlan, Vec<String>> {
        let desired = with_secrets_of(&self.config, read);
        Ok(DocumentPlan {
            changes: plan(&self.config, &desired)?,
            missing: Vec::new(),
            at_restart: Vec::new(),
            desired,
            still: self.missing.clone(),
        })
    }

    /// A document without what was missing at the start and is so still: what that is,
    /// and why, a line each. What is new in it must be there.
    fn without_missing(
        &self,
        mut desired: Config,
        running: &impl Serving,
    ) -> (Config, Missing, Vec<String>) {
        let (mut still, mut lines) = (Missing::default(), Vec::new());
        if desired.start == Start::Strict {
            return (desired, still, lines);
        }
        for spec in &desired.volumes {
            if !self.missing.volumes.contains(&spec.name) {
                continue;
            }
            let is_there = |part: &str| !still.volumes.iter().any(|gone| gone == part);
            let parts = spec.parts(true, |part| is_there(part).then_some(()));
            let why = match parts {
                Err(part) => Some(StartError::Part(spec.name.clone(), part.to_owned()).to_string()),
                Ok(_) => running
                    .shared()
                    .can_open(spec)
                    .err()
                    .map(|why| why.to_string()),
            };
            if let Some(why) = why {
                still.volumes.push(spec.name.clone());
                lines.push(why);
            }
        }
        for spec in &desired.file_systems {
            if self.missing.file_systems.contains(&spec.name)
                && let Err(why) = running.shared().can_open_files(spec)
            {
                still.file_systems.push(spec.name.clone());
                lines.push(why.to_string());
            }
        }
        desired.leave_out(&still.volumes, &still.file_systems);
        (desired, still, lines)
    }

    /// Makes the target serve the document of a plan of [`ServedDocument::plan`], while hosts
    /// use it: all of it or, where one change cannot be made, what it served before. `told`
    /// hears of each change; blocks.
    ///
    /// # Errors
    /// Why not, a line each.
    pub fn apply(
        &mut self,
        plan: DocumentPlan,
        running: &impl Serving,
        mut told: impl FnMut(&str),
    ) -> Result<MadeChanges, Vec<String>> {
        let DocumentPlan {
            changes: steps,
            desired,
            still,
            ..
        } = plan;
        self.can_listen(&steps, running)?;
        let next = ServedDocument {
            numbers: Self::numbers_of(&desired, running)?,
            config: desired,
            not_taken_back: self.not_taken_back.clone(),
            missing: still,
        };
        for (at, step) in steps.iter().enumerate() {
            if at == 1 && faults::is(Fault::SkipStep) {
                continue;
            }
            match running.change(next.numbered(&step.change)) {
                Ok(()) => told(&step.text),
                Err(error) if error.is_of_one_made() => {
                    told(&format!("{}; but {error}", step.text))
                }
                // Nothing is served any more, so nothing is taken back.
                Err(error @ ChangeError::Stopping) => return Err(vec![not_done(step, &error)]),
                Err(error) => {
                    let why = not_done(step, &error);
                    let left = self.undo(&steps[..at], running);
                    return Err(std::iter::once(why).chain(left).collect());
                }
            }
        }
        let before = std::mem::replace(self, next);
        Ok(MadeChanges { before, steps })
    }

    /// Takes back what [`ServedDocument::apply`] has just made: what could not be, a line
    /// each. What was in memory that was removed is lost.
    pub fn take_back(&mut self, made: MadeChanges, running: &impl Serving) -> Vec<String> {
        *self = made.before;
        self.undo(&made.steps, running)
    }

    /// The numbers of the listeners of `desired`.
    fn numbers_of(desired: &Config, running: &impl Serving) -> Result<Vec<u16>, Vec<String>> {
        let listeners = desired.listeners.iter();
        let numbers = listeners.map(|spec| running.shared().listener_number(spec));
        let numbers: Result<_, _> = numbers.collect();
        numbers.map_err(|error: ChangeError| vec![error.to_string()])
    }

    /// The port of a listener that comes may have another program: better known before
    /// anything is changed.
    fn can_listen(
        &self,
        steps: &[PlannedChange],
        running: &impl Serving,
    ) -> Result<(), Vec<String>> {
        for step in steps {
            let Change::AddListener(spec) = &step.change else {
                continue;
            };
            let mut open = self.config.listeners.iter();
            if !open.any(|open| check::clash(open.address, spec.address)) {
                let listens = running.shared().can_listen(spec.address);
                listens.map_err(|error| vec![not_done(step, &error)])?;
            }
        }
        Ok(())
    }

    /// Takes back what was made of a plan, last change first; what could not be.
    fn undo(&mut self, made: &[PlannedChange], running: &impl Serving) -> Vec<String> {
        let mut left = Vec::new();
        let kept = usize::from(faults::is(Fault::KeepStep));
        for step in made.iter().skip(kept).rev() {
            if let Change::ResizeVolume {
                name, size_bytes, ..
            } = &step.change
            {
                let mut volumes = self.config.volumes.iter_mut();
                if let Some(spec) = volumes.find(|spec| spec.name == *name) {
                    spec.size_bytes = *size_bytes;
                }
                left.push(format!("not taken back: {}", step.text));
            }
            let Some(undo) = step.undo.clone().or_else(|| self.empty_again(step)) else {
                continue;
            };
            if let Err(error) = running.change(self.numbered(&undo))
                && !error.is_of_one_made()
            {
                let text = format!("not taken back: {}: {error}", step.text);
                self.not_taken_back.push(text);
            }
        }
        left.extend(self.not_taken_back.iter().cloned());
        left
    }

    /// What was removed from memory comes back, with nothing in it.
    fn empty_again(&self, step: &PlannedChange) -> Option<Change> {
        match &step.change {
            Change::RemoveVolume { name } => {
                let mut volumes = self.config.volumes.iter();
                let spec = volumes.find(|spec| spec.name == *name);
                spec.cloned().map(Change::AddVolume)
            }
            Change::RemoveFileSystem { name } => {
                let mut all = self.config.file_systems.iter();
                let spec = all.find(|spec| spec.name == *name);
                spec.cloned().map(Change::AddFileSystem)
            }
            _ => None,
        }
    }

    /// A change with the numbers of listeners in place of their places in the document.
    fn numbered(&self, change: &Change) -> Change {
        let mut change = change.clone();
        match &mut change {
            Change::AddSubsystem(spec) | Change::SetSubsystem { spec, .. } => {
                spec.listeners.iter_mut().for_each(|list| self.number(list));
                self.number_groups(&mut spec.ana_groups);
            }
            Change::AddTarget(spec) => {
                self.number_portals(&mut spec.target);
                if let Ana::Own(groups) = &mut spec.ana {
                    self.number_groups(groups);
                }
            }
            Change::SetTarget(target) => self.number_portals(target),
            Change::SetTargetAna { groups, .. } => self.number_groups(groups),
            Change::SetRateLimits(limits) => {
                let limits = limits.iter_mut();
                limits.for_each(|limit| self.number(&mut limit.listeners));
            }
            Change::SetConnectionPolicies(policies) => {
                let policies = policies.iter_mut();
                policies.for_each(|policy| self.number(&mut policy.listeners));
            }
            _ => {}
        }
        change
    }

    fn number(&self, places: &mut [u16]) {
        for place in places {
            *place = self.numbers[usize::from(*place)];
        }
    }

    fn number_groups(&self, groups: &mut [AnaGroup]) {
        for (place, _) in groups.iter_mut().flat_map(|group| &mut group.on) {
            *place = self.numbers[usize::from(*place)];
        }
    }

    fn number_portals(&self, target: &mut Target) {
        let groups = target.portal_groups.iter_mut();
        groups.for_each(|group| self.number(&mut group.portals));
    }
}

/// Keeps the keys of volumes that could be read before and cannot now: they go by those until
/// weft ends.
fn keep_keys(desired: &mut Config, served: &Config) {
    for spec in &mut desired.volumes {
        let mut all = served.volumes.iter();
        let before = all.find(|before| before.name == spec.name);
        if let Some(settings) = &mut spec.encryption
            && settings.key.is_err()
            && let Some(before) = before.and_then(|before| before.encryption.as_ref())
            && before.key.is_ok()
        {
            settings.clone_from(before);
        }
    }
}

/// A document with the keys and secrets of `read`, which is the same, read again: of hosts and
/// initiators that prove themselves in both by the same, and of volumes that are in both at the
/// same place.
pub(crate) fn with_secrets_of(served: &Config, read: &Config) -> Config {
    let mut config = served.clone();
    for spec in &mut config.volumes {
        let mut all = read.volumes.iter();
        let again = all.find(|again| again.name == spec.name);
        if let Some(again) = again
            && let Some((own, read)) = spec.kind.place().zip(again.kind.place())
            && own.equals_but_for_credentials(&**read)
        {
            spec.kind.clone_from(&again.kind);
        }
    }
    for subsystem in &mut config.subsystems {
        let mut all = read.subsystems.iter();
        let again = all.find(|again| again.nqn == subsystem.nqn);
        let again = again.iter().flat_map(|again| &again.terms);
        let again: BTreeMap<&str, &HostTerms> = again.map(|terms| (&*terms.nqn, terms)).collect();
        for terms in &mut subsystem.terms {
            let proves = |terms: &HostTerms| (terms.psks.is_empty(), terms.dhchap.is_some());
            if let Some(again) = again.get(&*terms.nqn)
                && proves(again) == proves(terms)
            {
                terms.psks.clone_from(&again.psks);
                terms.dhchap.clone_from(&again.dhchap);
            }
        }
    }
    for IscsiTargetSpec { target, .. } in &mut config.iscsi_targets {
        let mut all = read.iscsi_targets.iter().map(|spec| &spec.target);
        let Some(again) = all.find(|again| again.name == target.name) else {
            continue;
        };
        take_secrets(&mut target.auth, &again.auth);
        for (entry, again) in target.acl.iter_mut().zip(&again.acl) {
            if let (Some(auth), Some(of_again)) = (&mut entry.auth, &again.auth)
                && entry.name == again.name
            {
                take_secrets(auth, of_again);
            }
        }
    }
    take_secrets(&mut config.iscsi_discovery, &read.iscsi_discovery);
    config
}

/// Takes the secrets of users that are the same.
fn take_secrets(auth: &mut Auth, again: &Auth) {
    let both = [
        (&mut auth.chap, &again.chap),
        (&mut auth.mutual, &again.mutual),
    ];
    for (own, again) in both {
        if let (Some(own), Some(again)) = (own, again)
            && own.user == again.user
        {
            own.secret = again.secret.clone();
        }
    }
}

/// Names of what is in the first list alone.
fn absent<T>(all: &[T], there: &[T], name: impl Fn(&T) -> &String) -> Vec<String> {
    let is_there = |one: &&T| there.iter().any(|there| name(there) == name(one));
    let absent = all.iter().filter(|one| !is_there(one));
    absent.map(|one| name(one).clone()).collect()
}

fn not_done(step: &PlannedChange, error: &ChangeError) -> String {
    format!("not done: {}: {error}", step.text)
}
