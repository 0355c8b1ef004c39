//! The document that is served: its text, its generation, and how both are kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use api::Generation;
use control::{FileText, Problem, Problems, SecretsRead};
use control::{access_of, with_absolute_paths, with_secrets_kept};
use server::Config;

use crate::audit::{Audit, MADE};
use crate::files::{self, with_suffix};
use crate::generations::{Generations, Prepared};
use crate::keeper::{Holder, Keeper};
use crate::refused::NotApplied;
use crate::state::sha256;

/// The document that a target serves.
#[derive(Debug)]
pub struct Document {
    pub(crate) keeper: Keeper,
    pub(crate) text: Arc<str>,
    /// What made the text.
    pub(crate) generation: Generation,
    /// Whether the generation is on the disk: nothing is written before the first change.
    is_written: bool,
    generations: Option<Generations>,
    audit: Audit,
    /// What a start has to tell, a line each.
    notes: Vec<String>,
    /// What the secrets of the text were when they were read last.
    pub(crate) secrets: SecretsRead,
}

/// A text that is on the disk, but does not hold yet.
#[derive(Debug)]
pub(crate) struct KeptText {
    prepared: Prepared,
    generation: Generation,
    text: String,
    /// The file that is to have it, and what that has.
    replaces: Option<(PathBuf, Vec<u8>)>,
}

/// What a file is as it lies on the disk.
struct FileNow {
    bytes: Vec<u8>,
    sha256: String,
    /// It says of secrets that they are set: a start could not read it.
    lacks_secrets: bool,
}

impl Document {
    /// What is to be served: what `file` says or, without one, `text`, whose generations are
    /// kept under `name`; or a later generation, where the file cannot be written or there is
    /// none.
    ///
    /// # Errors
    /// It cannot be read, or everything that is wrong with it.
    pub fn open(
        file: Option<&Path>,
        (name, text): (&str, &str),
    ) -> Result<(Document, Config), Problems> {
        let text = match file {
            Some(file) => FileText::read(file)?,
            None => FileText::of_own(text.to_owned()),
        };
        let none = SecretsRead::default();
        let (config, secrets) = text.parse_again(file.unwrap_or(Path::new(name)), &none)?;
        let keeper = Keeper::new(file, name, config.admin.state.as_deref());
        let own = sha256(text.text.as_bytes());
        let found = (keeper.folder().as_ref().ok())
            .map(|folder| Generations::open(folder, file.is_some().then_some(&*own)));
        let (generations, last, notes) = match found {
            Some(found) => (Some(found.generations), found.last, found.damaged),
            None => (None, None, Vec::new()),
        };
        let number = last.as_ref().map_or(0, |(last, _)| last.generation) + 1;
        let folder = keeper.folder().clone().unwrap_or_default();
        let mut document = Document {
            generation: generation_of("start", &text.text, number),
            is_written: false,
            keeper,
            audit: Audit::of(&folder),
            text: text.text.into(),
            generations,
            notes,
            secrets,
        };
        let mut later = None;
        let made = last.as_ref().map(|(made, _)| made.clone());
        match last {
            Some((last, _)) if file.is_some() && last.sha256 == own => document.found(last),
            Some((last, text)) if file.is_none() || last.file_sha256.as_ref() == Some(&own) => {
                later = Some(document.follow_generation(last, text)?);
            }
            Some((last, _)) => {
                document.generation.verb = "edit of the file".to_owned();
                if last.file_sha256.is_some() {
                    document.notes.push(format!(
                        "the file, which has changed since generation {} was made beside it: \
                         `weft history` has that one",
                        last.generation
                    ));
                }
            }
            None if file.is_none() && !document.notes.is_empty() => {
                let why = format!(
                    "no generation can be read: {}: put one back, or move the folder away to \
                     serve what is built in",
                    document.notes.join("; ")
                );
                return Err(problem(&folder, &why));
            }
            None => {}
        }
        document.check_audit(made.as_ref());
        Ok((document, later.unwrap_or(config)))
    }

    /// Its text is that of the last generation.
    fn found(&mut self, last: Generation) {
        (self.generation, self.is_written) = (last, true);
    }

    /// Adds what the process did not that was killed, and tells where the audit is damaged. All
    /// that stands in it stays.
    fn check_audit(&mut self, last: Option<&Generation>) {
        let generations = self.generations.as_ref();
        // Another weft may be writing there.
        let Some(generations) = generations.filter(|all| all.is_locked()) else {
            return;
        };
        if let Some(last) = last
            && let Err(error) = self.audit.catch_up(last)
        {
            self.notes.push(told(self.audit.path(), &error));
        } else if let Some(damage) = self.audit.damage(generations) {
            self.notes.push(told(self.audit.path(), &damage));
        }
    }

    /// Takes the last generation in the place of the text that was found.
    fn follow_generation(&mut self, last: Generation, text: String) -> Result<Config, Problems> {
        let number = last.generation;
        let path = self.generations.as_ref().map(|all| all.path(number));
        let path = path.unwrap_or_default();
        let text = FileText::of_own(text);
        let parsed = text.parse_again(self.keeper.place(), &SecretsRead::default());
        let (config, secrets) = parsed.map_err(|problems| Problems {
            file: path.display().to_string(),
            ..problems
        })?;
        self.secrets = secrets;
        let note = format!("generation {number}, {}", path.display());
        self.notes.push(note);
        self.text = text.text.into();
        self.found(last);
        Ok(config)
    }

    /// What a start has to tell: which generation it serves, and what is damaged.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The folder of what belongs to it and outlives the process, or why there can be none, and
    /// what to do.
    ///
    /// # Errors
    /// There is none.
    pub fn folder(&self) -> Result<&Path, &str> {
        self.keeper.folder().as_deref().map_err(String::as_str)
    }

    /// The file that it belongs to.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.keeper.file()
    }

    /// A text of another folder as it is to be here: its paths mean what they meant there.
    pub(crate) fn moved(&self, text: String, folder: &Path) -> String {
        match self.keeper.place().parent() == Some(folder) {
            true => text,
            false => with_absolute_paths(&text, folder),
        }
    }

    /// What would be served with this text, and what was read of its secrets.
    pub(crate) fn parse(
        &self,
        text: &str,
        holder: &Holder,
    ) -> Result<(Config, SecretsRead), Problems> {
        let mut text = FileText::of_own(text.to_owned());
        if let Holder::File(real) = holder
            && let Ok(there) = fs::metadata(real)
        {
            text.access = access_of(&there);
        }
        text.parse_again(self.keeper.place(), &self.secrets)
    }

    /// Whether the file is as weft knows it, or has `text` already: then that is not written.
    fn file_now(&self, text: &str) -> Result<Option<FileNow>, NotApplied> {
        let Some(file) = self.keeper.file() else {
            return Ok(None);
        };
        let changed = |why| NotApplied::FileChanged(file.to_owned(), why);
        let read = FileText::read_again(file).map_err(|unread| changed(Some(unread)))?;
        // `weft dump` may have written it.
        let kept = with_secrets_kept(&read.text, &self.text);
        let lacks_secrets = kept != read.text;
        let bytes = read.text.into_bytes();
        let sha256 = sha256(&bytes);
        let known = [
            Some(&self.generation.sha256),
            self.generation.file_sha256.as_ref(),
        ];
        let is_known = bytes == text.as_bytes() || known.contains(&Some(&sha256));
        match is_known || [text, &self.text].contains(&&*kept) {
            true => Ok(Some(FileNow {
                bytes,
                sha256,
                lacks_secrets,
            })),
            false => Err(changed(None)),
        }
    }

    /// Refuses where the file is not as weft knows it; whether it is to be written even if the
    /// text stays.
    pub(crate) fn check_file(&self, text: &str) -> Result<bool, NotApplied> {
        let file = self.file_now(text)?;
        Ok(file.is_some_and(|file| file.lacks_secrets))
    }

    /// What is read again: what the file says now, or the generation that was made because
    /// the file cannot be written.
    pub(crate) fn read_again(&self, file: &Path) -> Result<FileText, NotApplied> {
        let read = FileText::read_again(file).map_err(NotApplied::Mistakes)?;
        let now = sha256(read.text.as_bytes());
        match self.generation.file_sha256.as_ref() == Some(&now) {
            true => Ok(FileText::of_own(self.text.to_string())),
            false => Ok(read),
        }
    }

    /// Has a new text on the disk, for [`Document::commit`].
    ///
    /// # Errors
    /// Why it cannot be kept; nothing is changed.
    pub(crate) fn prepare(
        &mut self,
        mut generation: Generation,
        text: String,
        holder: &Holder,
    ) -> Result<KeptText, NotApplied> {
        let file = self.file_now(&text)?;
        let real = match holder {
            Holder::File(real) => Some(real.clone()),
            Holder::Generation(_) => None,
            Holder::Nothing(why) => return Err(NotApplied::NotKept(vec![why.clone()])),
        };
        let has_text = file
            .as_ref()
            .is_some_and(|file| file.bytes == text.as_bytes());
        if real.is_none() && !has_text {
            generation.file_sha256 = file.as_ref().map(|file| file.sha256.clone());
        }
        self.catch_up(file.as_ref(), real.is_some())?;
        let generations = self.generations.as_ref().expect("caught up");
        let not_kept = |error| not_kept(generations.folder(), &error);
        let next = generations.next_number().map_err(not_kept)?;
        // The folder may have been replaced by an older one.
        generation.generation = next.max(self.generation.generation + 1);
        let prepared = generations.prepare(&generation, &text).map_err(not_kept)?;
        let before = file.map_or_else(Vec::new, |file| file.bytes);
        let replaces = real.filter(|_| !has_text).map(|real| (real, before));
        if let Some((real, _)) = &replaces
            && let Err(error) = files::write(&new(real), text.as_bytes(), Some(real))
        {
            let _ = files::remove(&new(real));
            generations.discard(&prepared);
            return Err(self::not_kept(real, &error));
        }
        Ok(KeptText {
            prepared,
            generation,
            text,
            replaces,
        })
    }

    /// Has what is served among the generations, before the next one comes.
    fn catch_up(&mut self, file: Option<&FileNow>, in_file: bool) -> Result<(), NotApplied> {
        let Some(generations) = &mut self.generations else {
            let why = self.keeper.folder().clone();
            return Err(NotApplied::NotKept(why.err().into_iter().collect()));
        };
        let folder = generations.folder().to_owned();
        let not_kept = |error| not_kept(&folder, &error);
        if lock(generations, &mut self.is_written).map_err(not_kept)? {
            let sha256 = file.map(|file| &*file.sha256);
            generations.finish(sha256).map_err(not_kept)?;
            let last = generations.numbers().map_err(not_kept)?.pop();
            let own = self.is_written.then_some(self.generation.generation);
            if !in_file && last != own {
                let why = "another weft has changed this document: restart this one to serve it";
                return Err(not_kept(io::Error::other(why)));
            }
        }
        if !self.is_written {
            let next = generations.next_number().map_err(not_kept)?;
            self.generation.generation = self.generation.generation.max(next);
            let prepared = generations.prepare(&self.generation, &self.text);
            let prepared = prepared.map_err(not_kept)?;
            let committed = generations.commit(&prepared).and_then(|()| {
                // What a reload has served, before anything was kept.
                match self.generation.is_found() {
                    true => Ok(()),
                    false => self.audit.add(&self.generation, &self.generation, MADE),
                }
            });
            if let Err(error) = committed {
                generations.discard(&prepared);
                return Err(not_kept(error));
            }
            self.is_written = true;
        }
        Ok(())
    }

    /// Has it hold from now on: a start serves it.
    ///
    /// # Errors
    /// What holds is what did before, and why.
    pub(crate) fn commit(&mut self, kept: KeptText) -> Result<(), NotApplied> {
        let generations = self.generations.as_ref().expect("it is prepared");
        let replaced = match &kept.replaces {
            Some((real, _)) => replace(real).map_err(|error| told(real, &error)),
            None => Ok(()),
        };
        let folder = generations.folder();
        let outcome = replaced
            .and_then(|()| {
                let committed = generations.commit(&kept.prepared);
                committed.map_err(|error| told(folder, &error))
            })
            .and_then(|()| {
                let added = self.audit.add(&self.generation, &kept.generation, MADE);
                added.map_err(|error| told(self.audit.path(), &error))
            });
        if let Err(why) = outcome {
            let mut left = vec![why];
            if let Some((real, before)) = &kept.replaces {
                left.extend(restore_file(real, before));
            }
            generations.discard(&kept.prepared);
            return Err(NotApplied::NotKept(left));
        }
        self.text = kept.text.into();
        self.generation = kept.generation;
        Ok(())
    }

    /// Records a change that needed no new text, or the kind of problem that one was refused
    /// with.
    ///
    /// # Errors
    /// It cannot be recorded.
    pub(crate) fn record(&mut self, asked: &Generation, outcome: &str) -> Result<(), NotApplied> {
        let Some(generations) = &mut self.generations else {
            let why = self.keeper.folder().clone();
            return Err(NotApplied::NotKept(why.err().into_iter().collect()));
        };
        let asked = Generation {
            generation: self.generation.generation,
            sha256: self.generation.sha256.clone(),
            ..asked.clone()
        };
        let locked = lock(generations, &mut self.is_written);
        let added = locked.and_then(|_| self.audit.add(&self.generation, &asked, outcome));
        added.map_err(|error| not_kept(self.audit.path(), &error))
    }

    /// Leaves what holds.
    pub(crate) fn discard(&self, kept: &KeptText) {
        if let Some((real, _)) = &kept.replaces {
            let _ = files::remove(&new(real));
        }
        if let Some(generations) = &self.generations {
            generations.discard(&kept.prepared);
        }
    }

    /// Takes the text of the file, that it has already. It is kept among the generations if
    /// there are any, and if it can be.
    pub(crate) fn follow_file(&mut self, mut generation: Generation, text: String) {
        let has_history = (self.generations.as_ref()).is_some_and(|all| all.folder().exists());
        if has_history {
            let holder = self.keeper.holder();
            let kept = self.prepare(generation.clone(), text.clone(), &holder);
            match kept.and_then(|kept| self.commit(kept)) {
                Ok(()) => return,
                Err(why) => tracing::warn!("this generation is not in the history yet: {why}"),
            }
        }
        generation.generation = self.generation.generation + 1;
        (self.text, self.generation, self.is_written) = (text.into(), generation, false);
    }
}

/// What makes a generation of a text, by this process.
pub(crate) fn generation_of(verb: &str, text: &str, number: u64) -> Generation {
    Generation {
        generation: number,
        unix_s: UNIX_EPOCH.elapsed().unwrap_or_default().as_secs(),
        uid: rustix::process::geteuid().as_raw(),
        by: None,
        verb: verb.to_owned(),
        sha256: sha256(text.as_bytes()),
        file_sha256: None,
        done: Vec::new(),
        not_served: Vec::new(),
        at_restart: Vec::new(),
        request: None,
    }
}

/// Lets no other process write the generations; whether it did not before. Those that were
/// removed meanwhile are written no more.
fn lock(generations: &mut Generations, is_written: &mut bool) -> io::Result<bool> {
    let is_new = generations.lock()?;
    if is_new && generations.numbers()?.is_empty() {
        *is_written = false;
    }
    Ok(is_new)
}

/// What is to have the place of a file until it has it.
fn new(real: &Path) -> PathBuf {
    with_suffix(real, ".weft-new")
}

fn replace(real: &Path) -> io::Result<()> {
    files::rename(&new(real), real)?;
    files::sync_folder(real.parent().unwrap_or(Path::new("/")))
}

/// Gives a file its bytes back; why not.
fn restore_file(real: &Path, before: &[u8]) -> Option<String> {
    let _ = files::remove(&new(real));
    if FileText::read_again(real).is_ok_and(|now| now.text.as_bytes() == before) {
        return None;
    }
    let written = files::write(&new(real), before, Some(real)).and_then(|()| replace(real));
    let error = written.err()?;
    Some(told(
        real,
        &format!("it has the new text all the same: {error}"),
    ))
}

fn not_kept(path: &Path, error: &io::Error) -> NotApplied {
    NotApplied::NotKept(vec![told(path, error)])
}

fn told(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

fn problem(path: &Path, why: &dyn std::fmt::Display) -> Problems {
    Problems {
        file: path.display().to_string(),
        list: vec![Problem::of_file(why.to_string())],
    }
}
