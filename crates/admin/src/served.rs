//! What is served: SIGHUP and the admin socket change it, one at a time.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, UNIX_EPOCH};

use api::{
    AdminPlaces, Audit, AuditVerified, Changed, ConfigText, Figures, Generation, GenerationText,
    History, HistoryEntry, Host, LastChange, Listener, ObjectChange, ObjectVerb, PlanLine,
    RecentRefusals, RefusalSummary, Refusals, RequestKey, TargetStatus,
};
use control::{
    Edit, FileText, ObjectPath, PlannedChange, Problems, SecretsRead, ServedDocument,
    with_secrets_hidden,
};
use server::{AdminRole, AdminSpec, Config, LastRefusal, Protocol, Running, Served};
use tls::{Renewed, RenewedTls};
use tokio::sync::Semaphore;

use crate::audit::MADE;
use crate::counters::{counters, now};
use crate::document::{Document, generation_of};
use crate::event_log::EventLog;
use crate::figures::figures_of;
use crate::groups::notes_of_groups;
use crate::keeper::Keeper;
use crate::metrics;
use crate::notes::{
    note_of_locked, note_of_mismatches, note_of_path, notes_of_mirror, unread_keys,
};
use crate::place::TakenPlace;
use crate::refused::NotApplied;
use crate::renewed;
use crate::samples::Samples;
use crate::volume_hosts::volume_hosts;
use crate::wrong_logins::WrongLogins;

/// A target that runs, and the document that it serves.
pub struct ServedFile {
    pub(crate) running: Arc<Running>,
    since: Instant,
    /// Held during a change, and for a plan.
    state: Mutex<ServedState>,
    keeper: Keeper,
    /// Beside it: the status waits for none who changes.
    shown: Mutex<Shown>,
    /// Changes over the socket come one after another.
    pub(crate) turn: Arc<Semaphore>,
    /// How it is asked, as the document says.
    admin: Mutex<AdminSpec>,
    /// Where it is asked, once that is known.
    pub(crate) places: OnceLock<AdminTaken>,
    /// Who was not let in.
    pub(crate) wrong_logins: WrongLogins,
    /// What has happened.
    pub(crate) events: Arc<EventLog>,
    /// What was measured in the last hour.
    pub(crate) samples: Samples,
    /// Places of snapshots that are sent and received.
    pub(crate) snapshot_streams: Arc<Semaphore>,
    /// How the drain began, while there is one.
    pub(crate) drain: Mutex<Option<DrainBegun>>,
}

/// Snapshots that are sent and received at a time: each has a thread.
pub(crate) const SNAPSHOT_STREAMS_MAX: usize = 16;

/// How a drain began.
pub(crate) struct DrainBegun {
    pub since: String,
    pub by: String,
    /// The hosts that were connected.
    pub hosts: Vec<Host>,
}

impl DrainBegun {
    /// What the status says.
    fn told(&self) -> String {
        format!("since {} by {}", self.since, self.by)
    }
}

/// Where it is asked.
pub(crate) struct AdminTaken {
    pub told: AdminPlaces,
    /// The Unix socket, as long as it is served.
    pub taken: TakenPlace,
    /// What is shown and asked over TCP, where that is encrypted.
    pub tls: Option<Arc<RenewedTls>>,
}

struct ServedState {
    served: ServedDocument,
    document: Document,
}

/// What is served now, and how the last change went.
#[derive(Clone, Debug)]
struct Shown {
    text: Arc<str>,
    generation: Generation,
    /// Since when.
    time: String,
    /// What was asked for last.
    last: Option<LastChange>,
    /// What was missing at the start and is so still.
    missing: Vec<String>,
    /// What of the text holds from the next start on.
    at_restart: Vec<String>,
    /// Secrets that could not be read again: what was read before holds.
    unread: Vec<String>,
}

fn line_of(change: &PlannedChange) -> PlanLine {
    PlanLine {
        text: change.text.clone(),
        disturbs: change.disturbs,
    }
}

/// A change that is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeAsked {
    /// What it is, to people.
    pub verb: String,
    /// Who asks.
    pub uid: u32,
    /// Whom that has let in, if another asks.
    pub by: Option<String>,
    /// What that may do.
    pub role: AdminRole,
    /// Only what it would change.
    pub dry_run: bool,
    /// Hosts, initiators and clients may be cut, and what is in memory be lost.
    pub disconnect: bool,
    /// The generations that it may be made on; `None`: any.
    pub if_match: Option<Vec<u64>>,
    /// What it is known by when it comes again.
    pub request: Option<RequestKey>,
    /// The object that it is about, if it is about one.
    pub object: Option<ObjectPath>,
}

impl ServedFile {
    /// Of a target that was started with `loaded`, the configuration that `document` is;
    /// `events`: what has happened since.
    #[must_use]
    pub fn new(
        running: Arc<Running>,
        loaded: &Config,
        document: Document,
        events: Arc<EventLog>,
    ) -> ServedFile {
        ServedFile {
            since: Instant::now(),
            keeper: document.keeper.clone(),
            shown: Mutex::new(Shown {
                text: document.text.clone(),
                generation: document.generation.clone(),
                time: now(),
                last: None,
                missing: running.missing().to_vec(),
                at_restart: Vec::new(),
                unread: unread_keys(loaded),
            }),
            state: Mutex::new(ServedState {
                served: ServedDocument::new(loaded, &*running),
                document,
            }),
            turn: Arc::new(Semaphore::new(1)),
            snapshot_streams: Arc::new(Semaphore::new(SNAPSHOT_STREAMS_MAX)),
            admin: Mutex::new(loaded.admin.clone()),
            places: OnceLock::new(),
            wrong_logins: WrongLogins::default(),
            events,
            drain: Mutex::default(),
            samples: Samples::default(),
            running,
        }
    }

    /// The target.
    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Serves the text that `desired` makes of the document, while hosts are connected, and
    /// keeps it; cuts hosts only if that is asked for. What has changed and what stays
    /// missing or, of a dry run, would.
    ///
    /// # Errors
    /// Why not. Nothing has changed but what a line says.
    pub(crate) fn change(
        &self,
        asked: &ChangeAsked,
        desired: impl FnOnce(&Document) -> Result<String, NotApplied>,
    ) -> Result<Changed, NotApplied> {
        let mut state = locked(&self.state);
        if let Some(again) = self.keeper.answered(asked.request.as_ref())? {
            return Ok(self.answer(again));
        }
        let outcome = self.change_state(&mut state, asked, desired);
        if !asked.dry_run {
            if let Err(refusal) = &outcome {
                let nothing = Generation {
                    uid: asked.uid,
                    by: asked.by.clone(),
                    ..generation_of(&asked.verb, "", 0)
                };
                // What cannot be recorded has changed nothing.
                if let Err(why) = state.document.record(&nothing, refusal.kind()) {
                    tracing::warn!("a refusal is not in the audit: {why}");
                }
            }
            let outcome = outcome.as_ref().map(|(generation, ..)| generation);
            self.note(&state.document, "changed", asked, outcome);
        }
        let (generation, lines, not_read) = outcome?;
        Ok(Changed {
            plan: asked.dry_run.then_some(lines),
            not_read,
            ..self.answer(generation)
        })
    }

    fn change_state(
        &self,
        ServedState { served, document }: &mut ServedState,
        asked: &ChangeAsked,
        desired: impl FnOnce(&Document) -> Result<String, NotApplied>,
    ) -> Result<(Generation, Vec<PlanLine>, Vec<String>), NotApplied> {
        let current = &document.generation;
        if let Some(numbers) = &asked.if_match
            && !numbers.contains(&current.generation)
        {
            return Err(NotApplied::Conflict(Box::new(current.clone())));
        }
        let text = desired(document)?;
        let is_due = document.check_file(&text)?;
        let holder = document.keeper.holder();
        let config = document.parse(&text, &holder);
        let (config, secrets) = config.map_err(|problems| match &asked.object {
            Some(object) => NotApplied::of_object(object, &text, &problems),
            None => NotApplied::Mistakes(problems),
        })?;
        let not_read = [secrets.kept(), &unread_keys(&config)].concat();
        let admin = config.admin.clone();
        let plan = served.plan(config, &*self.running);
        let plan = plan.map_err(NotApplied::Fixed)?;
        let mut lines: Vec<_> = plan.changes.iter().map(line_of).collect();
        if admin != self.admin() && asked.role < AdminRole::Admin {
            return Err(NotApplied::Denied);
        }
        if let Some(text) = self.access_changes(&admin) {
            let disturbs = false;
            lines.push(PlanLine { text, disturbs });
        }
        let made = Generation {
            uid: asked.uid,
            by: asked.by.clone(),
            done: lines.iter().map(|line| line.text.clone()).collect(),
            not_served: plan.missing.clone(),
            at_restart: plan.at_restart.clone(),
            request: asked.request.clone(),
            ..generation_of(&asked.verb, &text, current.generation)
        };
        if asked.dry_run {
            return Ok((made, lines, not_read));
        }
        if !asked.disconnect && lines.iter().any(|line| line.disturbs) {
            return Err(NotApplied::Disturbs(lines));
        }
        let kept = match *text == *document.text && !is_due {
            true => None,
            false => Some(document.prepare(made.clone(), text, &holder)?),
        };
        let told = |line: &str| tracing::info!("change: {line}");
        let changes = match served.apply(plan, &*self.running, told) {
            Ok(changes) => changes,
            Err(why) => {
                kept.iter().for_each(|kept| document.discard(kept));
                return Err(NotApplied::Failed(why));
            }
        };
        let done = match kept {
            Some(kept) => document.commit(kept),
            None if lines.is_empty() => Ok(()),
            None => document.record(&made, MADE),
        };
        match done {
            Ok(()) => {
                self.set_admin(admin);
                self.set_secrets(document, secrets, &not_read);
                let generation = document.generation.generation;
                Ok((Generation { generation, ..made }, lines, not_read))
            }
            Err(NotApplied::NotKept(mut why)) => {
                why.extend(served.take_back(changes, &*self.running));
                Err(NotApplied::NotKept(why))
            }
            Err(why) => Err(why),
        }
    }

    /// How it is asked, as the document says now.
    pub(crate) fn admin(&self) -> AdminSpec {
        locked(&self.admin).clone()
    }

    /// Has it asked as a document says that is served now.
    fn set_admin(&self, admin: AdminSpec) {
        *locked(&self.admin) = admin;
        self.let_groups_in();
        self.look_at_tls();
    }

    /// Goes by these secrets from now on, and tells what could not be read.
    fn set_secrets(&self, document: &mut Document, secrets: SecretsRead, not_read: &[String]) {
        for line in not_read {
            tracing::warn!("{line}");
        }
        locked(&self.shown).unread = not_read.to_vec();
        document.secrets = secrets;
    }

    /// What TLS is spoken by, each with its section.
    fn tls(&self) -> impl Iterator<Item = (&'static str, &dyn Renewed)> {
        let admin = self.places.get().and_then(|places| places.tls.as_deref());
        let nfs = self.running.nfs_tls().map(|tls| &**tls);
        let nbd = self.running.nbd_tls();
        let certificates = nbd.and_then(|tls| tls.certificates.as_deref());
        let of_files = [
            ("[admin.tls]", admin),
            ("[nfs.tls]", nfs),
            ("[nbd.tls]", certificates),
        ];
        let of_files = of_files.map(|(section, tls)| Some((section, tls? as &dyn Renewed)));
        let psks = nbd.and_then(|tls| tls.psks.as_deref());
        let psks = psks.map(|psks| ("[nbd.tls] psk_file", psks as &dyn Renewed));
        of_files.into_iter().chain([psks]).flatten()
    }

    /// Takes files of TLS that are others by now. Blocks.
    pub(crate) fn look_at_tls(&self) {
        for (section, tls) in self.tls() {
            renewed::look(section, tls);
        }
    }

    /// Takes what has changed in other places than the document. Blocks.
    pub(crate) fn look_at_files(&self) {
        self.look_at_tls();
        self.look_at_keyrings();
    }

    /// What will not do as it is.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = notes_of_groups(&self.admin().groups);
        warnings.extend(locked(&self.shown).unread.iter().cloned());
        let wrong =
            |(section, tls): (&str, &dyn Renewed)| Some(renewed::warning(section, &tls.wrong()?));
        warnings.extend(self.tls().filter_map(wrong));
        let mismatches = self.running.checksum_mismatches();
        warnings.extend(mismatches.iter().filter_map(note_of_mismatches));
        warnings.extend(self.running.mirrors().iter().flat_map(notes_of_mirror));
        warnings.extend(self.running.paths().iter().filter_map(note_of_path));
        let mut volumes = self.running.volumes();
        volumes.retain(|volume| volume.is_locked());
        warnings.extend(volumes.iter().map(|volume| note_of_locked(&**volume)));
        warnings
    }

    /// Has the Unix socket open to all users of this machine where groups let some in.
    pub(crate) fn let_groups_in(&self) {
        let groups = self.admin().groups;
        for note in notes_of_groups(&groups) {
            tracing::warn!("{note}");
        }
        let Some(places) = self.places.get() else {
            return;
        };
        if let Some(place) = locked(&places.taken).as_ref()
            && let Err(error) = place.set_open(!groups.is_empty())
        {
            let path = place.path().display();
            tracing::warn!(
                "{path}: {error}: members of the groups of [[admin.group]] cannot \
                 connect"
            );
        }
    }

    /// What changes at once of who may ask, a line.
    fn access_changes(&self, desired: &AdminSpec) -> Option<String> {
        let now = self.admin();
        let is_other = now.names != desired.names
            || now.tokens != desired.tokens
            || now.groups != desired.groups
            || now.clients != desired.clients;
        is_other.then(|| "[admin] changes who may ask and change".to_owned())
    }

    /// Does what no change of the document may come between.
    pub(crate) fn undisturbed<T>(&self, deed: impl FnOnce() -> T) -> T {
        let _state = locked(&self.state);
        deed()
    }

    /// Records in the audit what was done that changes no text; waits for a change under way.
    ///
    /// # Errors
    /// It cannot be recorded.
    pub(crate) fn record(
        &self,
        verb: &str,
        (uid, by): (u32, Option<String>),
        done: &[String],
    ) -> Result<(), NotApplied> {
        let made = Generation {
            uid,
            by,
            done: done.to_vec(),
            ..generation_of(verb, "", 0)
        };
        locked(&self.state).document.record(&made, MADE)
    }

    /// Serves what the file says now, whomever that cuts; waits for a change under way. The
    /// log says how it went.
    pub fn reload(&self) {
        self.look_at_tls();
        let Some(file) = self.keeper.file() else {
            tracing::warn!("SIGHUP ignored: there is no file to read again");
            return;
        };
        let mut state = locked(&self.state);
        let read = state.document.read_again(file);
        let outcome = read.and_then(|read| {
            let ServedState { document, .. } = &*state;
            let parsed = read.parse_again(document.keeper.place(), &document.secrets);
            self.serve_again(&mut state, &read.text, parsed)
        });
        self.note_own(&state.document, "SIGHUP", outcome.as_ref());
    }

    /// Serves what the document says with the keys that the kernel's keyrings have now: those that
    /// were revoked or have expired are good for nothing. Blocks.
    pub(crate) fn look_at_keyrings(&self) {
        let mut state = locked(&self.state);
        let document = &state.document;
        if !document.secrets.has_other_keys() {
            return;
        }
        // As it is served: what has become of its file keeps no key good, nor does what else the
        // document names.
        let text = FileText::of_own(document.text.to_string());
        let (read, secrets) = text.secrets_again(document.keeper.place(), &document.secrets);
        let outcome = self.serve_secrets(&mut state, &read, secrets);
        self.note_own(&state.document, "other keys in a keyring", outcome.as_ref());
    }

    /// Serves the document by the keys and secrets that were read of it again.
    fn serve_secrets(
        &self,
        ServedState { served, document }: &mut ServedState,
        read: &Config,
        secrets: SecretsRead,
    ) -> Result<Generation, NotApplied> {
        let plan = served.plan_secrets(read).map_err(NotApplied::Fixed)?;
        let generation = {
            let shown = locked(&self.shown);
            Generation {
                done: (plan.changes.iter())
                    .map(|change| change.text.clone())
                    .collect(),
                not_served: shown.missing.clone(),
                at_restart: shown.at_restart.clone(),
                ..generation_of("reload", &document.text, document.generation.generation)
            }
        };
        let told = |line: &str| tracing::info!("reload: {line}");
        let made = served.apply(plan, &*self.running, told);
        made.map_err(NotApplied::Failed)?;
        let not_read = [secrets.kept(), &unread_keys(read)].concat();
        self.set_secrets(document, secrets, &not_read);
        Ok(generation)
    }

    /// Says how a reload went that weft itself has begun.
    fn note_own(&self, document: &Document, verb: &str, outcome: Result<&Generation, &NotApplied>) {
        let asked = ChangeAsked {
            verb: verb.to_owned(),
            uid: rustix::process::geteuid().as_raw(),
            ..ChangeAsked::default()
        };
        self.note(document, "reloaded", &asked, outcome);
    }

    /// Serves a text that its author has asked for already.
    fn serve_again(
        &self,
        ServedState { served, document }: &mut ServedState,
        text: &str,
        parsed: Result<(Config, SecretsRead), Problems>,
    ) -> Result<Generation, NotApplied> {
        let (config, secrets) = parsed.map_err(NotApplied::Mistakes)?;
        let not_read = [secrets.kept(), &unread_keys(&config)].concat();
        let admin = config.admin.clone();
        let access = self.access_changes(&admin);
        let plan = served.plan(config, &*self.running);
        let plan = plan.map_err(NotApplied::Fixed)?;
        for why in &plan.missing {
            tracing::warn!("reload: still not served: {why}");
        }
        for setting in &plan.at_restart {
            tracing::warn!("reload: {setting}");
        }
        let generation = Generation {
            done: plan
                .changes
                .iter()
                .map(|change| change.text.clone())
                .chain(access)
                .collect(),
            not_served: plan.missing.clone(),
            at_restart: plan.at_restart.clone(),
            ..generation_of("reload", text, document.generation.generation)
        };
        let told = |line: &str| tracing::info!("reload: {line}");
        let made = served.apply(plan, &*self.running, told);
        made.map_err(NotApplied::Failed)?;
        self.set_admin(admin);
        self.set_secrets(document, secrets, &not_read);
        if *text != *document.text {
            document.follow_file(generation.clone(), text.to_owned());
        }
        Ok(generation)
    }

    /// Says in the log and the status how it went.
    fn note(
        &self,
        document: &Document,
        done: &str,
        ChangeAsked { verb, uid, by, .. }: &ChangeAsked,
        outcome: Result<&Generation, &NotApplied>,
    ) {
        let mut shown = locked(&self.shown);
        let time = now();
        let generation = document.generation.generation;
        let how = match outcome {
            Ok(made) => {
                shown.missing.clone_from(&made.not_served);
                shown.at_restart.clone_from(&made.at_restart);
                let changes = made.done.len();
                tracing::info!(
                    event = "changed",
                    verb,
                    uid,
                    by,
                    generation,
                    changes,
                    "{done}"
                );
                if shown.generation != document.generation {
                    shown.time.clone_from(&time);
                }
                format!("changes made: {}", made.done.len())
            }
            Err(refusal) => {
                let left = match refusal {
                    // The lines say what.
                    NotApplied::Failed(_) | NotApplied::NotKept(_) => "",
                    _ => ", nothing is changed",
                };
                tracing::error!(
                    event = "change-refused",
                    verb,
                    uid,
                    by,
                    "not {done}{left}: {refusal}"
                );
                format!("refused: {refusal}")
            }
        };
        shown.text = document.text.clone();
        shown.generation = document.generation.clone();
        shown.last = Some(LastChange {
            what: match by {
                Some(by) => format!("{verb} by {by}"),
                None => format!("{verb} by uid {uid}"),
            },
            time,
            outcome: how,
        });
    }

    /// What a change is answered.
    fn answer(&self, made: Generation) -> Changed {
        Changed {
            document: self.keeper.told(made.generation),
            done: made.done,
            not_served: made.not_served,
            at_restart: made.at_restart,
            not_read: Vec::new(),
            plan: None,
        }
    }

    /// The document that is served, and its generation.
    #[must_use]
    pub fn text(&self) -> (Arc<str>, Generation) {
        let shown = locked(&self.shown);
        (shown.text.clone(), shown.generation.clone())
    }

    /// The same without the secrets in it, and what keeps it.
    #[must_use]
    pub fn config(&self) -> ConfigText {
        let (text, generation) = self.text();
        ConfigText {
            document: self.keeper.told(generation.generation),
            text: with_secrets_hidden(&text, &text),
        }
    }

    /// What made each generation, the latest at the end.
    #[must_use]
    pub fn history(&self) -> History {
        let (_, current) = self.text();
        let mut generations = self.keeper.history();
        let last = generations.last().map(HistoryEntry::number);
        if last != Some(current.generation) {
            generations.push(HistoryEntry::Made(Box::new(current)));
        }
        History { generations }
    }

    /// The last changes, and refusals of changes.
    pub(crate) fn audit(&self) -> Result<Audit, NotApplied> {
        self.keeper.audit()
    }

    /// Whether the audit is as it was written; waits for a change under way.
    pub(crate) fn verify_audit(&self) -> Result<AuditVerified, NotApplied> {
        let _state = locked(&self.state);
        self.keeper.verify_audit()
    }

    /// A generation, with its text without the secrets in it.
    ///
    /// # Errors
    /// There is none of that number, or it cannot be read.
    pub(crate) fn generation(&self, number: u64) -> Result<GenerationText, NotApplied> {
        let (made, text) = self.whole_generation(number)?;
        Ok(GenerationText {
            made,
            text: with_secrets_hidden(&text, &self.text().0),
        })
    }

    /// The same with all of its text.
    pub(crate) fn whole_generation(&self, number: u64) -> Result<(Generation, String), NotApplied> {
        let (text, current) = self.text();
        match current.generation == number {
            true => Ok((current, text.to_string())),
            false => self.keeper.read(number),
        }
    }

    /// What is asked for first about a target.
    #[must_use]
    pub fn status(&self) -> TargetStatus {
        let (served, report) = (self.running.served(), self.running.report());
        let Shown {
            generation,
            time,
            last,
            missing,
            at_restart,
            ..
        } = locked(&self.shown).clone();
        let listeners = served.listeners.iter().map(|(_, listener)| Listener {
            address: listener.address,
            protocol: protocol_of(listener.protocol),
            rdma: listener.rdma.is_served(),
            rdma_only: listener.rdma.is_only(),
        });
        TargetStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.since.elapsed().as_secs(),
            document: self.keeper.told(generation.generation),
            served_since: time,
            last_change: last,
            driver: self.running.backend().to_owned(),
            drained: locked(&self.drain).as_ref().map(DrainBegun::told),
            not_served: missing,
            at_restart,
            warnings: self.warnings(),
            listeners: listeners.collect(),
            admin: self
                .places
                .get()
                .map(|places| places.told.clone())
                .unwrap_or_default(),
            volumes: served.volumes.len(),
            subsystems: served.subsystems.len(),
            targets: served.targets.len(),
            file_systems: served.file_systems.len(),
            exports: served.exports.len(),
            nbd_exports: served.nbd_exports.len(),
            connections: report.connections,
            memory_bytes: report.pool_bytes,
            memory_max_bytes: self.running.config().memory_max,
            refused: self.recent_refusals(&served),
            counters: counters(&report),
        }
    }

    /// What was refused in the last hour.
    fn recent_refusals(&self, served: &Served) -> Option<RecentRefusals> {
        const HOUR_S: u64 = 3600;
        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let mut recent = self.running.refusals();
        recent.retain(|refused| refused.last_unix_s + HOUR_S > now);
        let different = recent.len();
        let most = recent.into_iter().max_by_key(|refused| refused.count)?;
        Some(RecentRefusals {
            different,
            most_frequent: refusal_of(most, served),
        })
    }

    /// What is measured of the target, as OpenMetrics text.
    #[must_use]
    pub fn metrics(&self) -> String {
        let generation = locked(&self.shown).generation.generation;
        let wrong = self.wrong_logins.counts();
        let text = metrics::text_of(self.running.metrics(), generation, wrong);
        text.expect("a text takes everything")
    }

    /// What is measured of the target, for those who take differences.
    pub(crate) fn figures(&self) -> Figures {
        let uptime = self.since.elapsed();
        let hosts = volume_hosts(&self.running);
        figures_of(
            &self.running.metrics(),
            &hosts,
            (self.events.boot(), uptime),
        )
    }

    /// What was refused last, the latest at the end, and what would let it in.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        let served = self.running.served();
        let all = self.running.refusals().into_iter();
        let refusals = all.map(|refused| refusal_of(refused, &served)).collect();
        Refusals { refusals }
    }
}

/// What was refused, and what would let it in.
pub(crate) fn refusal_of(refused: LastRefusal, served: &Served) -> RefusalSummary {
    let allowed = control::allow(&refused, served);
    RefusalSummary {
        change: allowed
            .as_ref()
            .and_then(|allowed| change_of(allowed.edit.as_ref()?)),
        allow: allowed.map(|allowed| allowed.lines),
        first_unix_s: refused.first_unix_s,
        last_unix_s: refused.last_unix_s,
        count: refused.count,
        kind: refused.kind.0.to_owned(),
        address: refused.address,
        host: refused.host,
        target: refused.target,
        reason: refused.reason,
    }
}

/// A change as answers say it.
fn change_of(edit: &Edit) -> Option<ObjectChange> {
    let (verb, object, fields) = match edit {
        Edit::Add { object, fields } => (ObjectVerb::Add, object, fields),
        Edit::Set { object, fields } => (ObjectVerb::Set, object, fields),
        Edit::Remove { .. } => return None,
    };
    Some(ObjectChange {
        verb,
        kind: object.kind.clone(),
        names: object.names.clone(),
        fields: fields.clone(),
    })
}

/// As answers say it.
pub(crate) fn protocol_of(protocol: Protocol) -> api::Protocol {
    match protocol {
        Protocol::NvmeTcp => api::Protocol::NvmeTcp,
        Protocol::Iscsi => api::Protocol::Iscsi,
        Protocol::Nfs => api::Protocol::Nfs,
        Protocol::Nbd => api::Protocol::Nbd,
    }
}

/// Where something has panicked, what it guards changes at the end of what could panic.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
