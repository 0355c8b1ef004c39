//! The generations of one document, in a folder of their own: of each its text,
//! `000001.toml`, and beside it what made it, `000001.json`.
//!
//! What is being written ends in `.new` until it counts. One process at a time writes
//! there: it has locked `lock`.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use api::Generation;

use crate::files::{self, with_suffix};
use crate::state::sha256;

/// Generations that stay.
const KEPT_MAX: usize = 1_000;

/// The folder.
#[derive(Debug)]
pub(crate) struct Generations {
    folder: PathBuf,
    /// Held by the process that may write.
    lock: Option<File>,
}

/// A generation that is on the disk, but not among the others yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    number: u64,
}

/// What is found at a start.
#[derive(Debug)]
pub(crate) struct Found {
    pub generations: Generations,
    /// The last that is whole, and its text.
    pub last: Option<(Generation, String)>,
    /// What is not as it was written, a line each.
    pub damaged: Vec<String>,
}

impl Generations {
    /// To be read.
    pub fn at(folder: &Path) -> Generations {
        Generations {
            folder: folder.to_owned(),
            lock: None,
        }
    }

    /// Those of a folder, which may not be there. `file_sha256`: of the file they belong to.
    pub fn open(folder: &Path, file_sha256: Option<&str>) -> Found {
        let mut generations = Generations::at(folder);
        let mut damaged = Vec::new();
        let mut last = None;
        // Another weft may have it.
        if folder.exists() && matches!(generations.lock(), Ok(true)) {
            let finished = generations.finish(file_sha256);
            damaged.extend(finished.err().map(|error| told(folder, &error)));
        }
        let numbers = generations.numbers().unwrap_or_else(|error| {
            damaged.push(told(folder, &error));
            Vec::new()
        });
        let mut unread = Vec::new();
        for number in numbers.into_iter().rev() {
            match generations.read(number) {
                Ok(found) => {
                    last = Some(found);
                    break;
                }
                Err(why) => unread.push((number, why)),
            }
        }
        let holds_another = last.is_some() || file_sha256.is_some();
        damaged.extend(unread.into_iter().map(|(number, why)| match holds_another {
            true => format!("{why}; {}", generations.set_aside(number)),
            false => why,
        }));
        Found {
            generations,
            last,
            damaged,
        }
    }

    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:06}.toml"))
    }

    fn record_path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:06}.json"))
    }

    /// Those that are there, in order.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers: Vec<u64> = (self.names()?.iter())
            .filter_map(|name| name.strip_suffix(".toml")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
        let names: io::Result<Vec<Option<String>>> = entries.map(name).collect();
        Ok(names?.into_iter().flatten().collect())
    }

    /// The number of the next: no number comes twice, whatever becomes of its files.
    pub fn next_number(&self) -> io::Result<u64> {
        let names = self.names()?.into_iter();
        let numbers = names.filter_map(|name| name.split('.').next()?.parse::<u64>().ok());
        Ok(numbers.max().unwrap_or(0) + 1)
    }

    /// A generation and its text.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(&self, number: u64) -> Result<(Generation, String), String> {
        let path = self.path(number);
        let text = fs::read_to_string(&path).map_err(|error| told(&path, &error))?;
        let record = self.record(number)?;
        match record.sha256 == sha256(text.as_bytes()) {
            true => Ok((record, text)),
            false => Err(told(&path, &"it is not what weft wrote")),
        }
    }

    /// What made a generation.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn record(&self, number: u64) -> Result<Generation, String> {
        let path = self.record_path(number);
        let record = fs::read(&path).map_err(|error| told(&path, &error))?;
        let record = serde_json::from_slice::<Generation>(&record);
        match record.map_err(|error| told(&path, &error))? {
            record if record.generation == number => Ok(record),
            _ => Err(told(&path, &"it is of another generation")),
        }
    }

    /// Lets no other process write there; whether it did not before. Makes the folder.
    ///
    /// # Errors
    /// It cannot be made, or another process writes there.
    pub fn lock(&mut self) -> io::Result<bool> {
        if self.lock.as_ref().is_some_and(|lock| self.is_there(lock)) {
            return Ok(false);
        }
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700).create(&self.folder)?;
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).mode(0o600);
        let lock = lock.open(self.folder.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                let why = "another weft that runs changes this document: change it there, or \
                           name another folder in `[admin] state`";
                io::Error::new(ErrorKind::ResourceBusy, why)
            }
            TryLockError::Error(error) => error,
        })?;
        self.lock = Some(lock);
        Ok(true)
    }

    /// Whether the folder still has the file: it may have been removed, or replaced.
    fn is_there(&self, lock: &File) -> bool {
        let file = |there: fs::Metadata| (there.dev(), there.ino());
        let named = fs::metadata(self.folder.join("lock")).map(file);
        named.is_ok_and(|named| lock.metadata().map(file).is_ok_and(|own| own == named))
    }

    /// Ends what a process was writing that was killed: a generation whose text the file has
    /// counts, all else goes.
    pub fn finish(&self, file_sha256: Option<&str>) -> io::Result<()> {
        for name in self.names()? {
            let Some(number) = name.strip_suffix(".toml.new") else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            let text = fs::read(self.folder.join(&name))?;
            if Some(&*sha256(&text)) == file_sha256 {
                self.commit(&Prepared { number })?;
            }
        }
        for name in self.names()? {
            let path = self.folder.join(&name);
            let text = path.with_extension("toml");
            if name.ends_with(".new") || name.ends_with(".json") && !text.exists() {
                files::remove(&path)?;
            }
        }
        Ok(())
    }

    /// Names what is damaged out of the way; says where it is.
    fn set_aside(&self, number: u64) -> String {
        if self.lock.is_none() {
            return "left as it is: another weft writes there, or this one may not".to_owned();
        }
        let time = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let suffix = format!(".corrupt-{time}");
        for path in [self.record_path(number), self.path(number)] {
            match fs::rename(&path, with_suffix(&path, &suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return told(&path, &error);
                }
                _ => {}
            }
        }
        format!("its files are kept, their names end in {suffix}")
    }

    /// Has a generation and its text on the disk.
    pub fn prepare(&self, record: &Generation, text: &str) -> io::Result<Prepared> {
        let number = record.generation;
        let prepared = Prepared { number };
        let write = || {
            let json = serde_json::to_vec(record)?;
            files::write(&new(&self.record_path(number)), &json, None)?;
            files::write(&new(&self.path(number)), text.as_bytes(), None)?;
            files::sync_folder(&self.folder)
        };
        match write() {
            Ok(()) => Ok(prepared),
            Err(error) => {
                self.discard(&prepared);
                Err(error)
            }
        }
    }

    /// Has it counted among the others; those that are too old are forgotten.
    pub fn commit(&self, prepared: &Prepared) -> io::Result<()> {
        // The text counts.
        for path in [
            self.record_path(prepared.number),
            self.path(prepared.number),
        ] {
            // The first may have its name since before a process was killed.
            match files::rename(&new(&path), &path) {
                Err(error) if error.kind() == ErrorKind::NotFound && path.exists() => {}
                renamed => renamed?,
            }
        }
        files::sync_folder(&self.folder)?;
        if let Err(error) = self.forget() {
            let folder = self.folder.display();
            tracing::warn!(%error, "{folder}: old generations cannot be removed");
        }
        Ok(())
    }

    fn forget(&self) -> io::Result<()> {
        let numbers = self.numbers()?;
        let old = numbers.len().saturating_sub(KEPT_MAX);
        for number in &numbers[..old] {
            files::remove(&self.path(*number))?;
            files::remove(&self.record_path(*number))?;
        }
        Ok(())
    }

    /// Removes it, whether it counts already or not.
    pub fn discard(&self, prepared: &Prepared) {
        let text = self.path(prepared.number);
        let record = self.record_path(prepared.number);
        for path in [&text, &record, &new(&text), &new(&record)] {
            if let Err(error) = files::remove(path) {
                let path = path.display();
                tracing::warn!(%error, "{path} is of no generation and cannot be removed");
            }
        }
    }
}

fn new(path: &Path) -> PathBuf {
    with_suffix(path, ".new")
}

fn told(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}
