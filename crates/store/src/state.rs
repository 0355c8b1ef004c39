//! What a volume remembers beside its data: a small file next to it.
//!
//! The file is text: a line with the format's version and a checksum, then
//! JSON. It is written whole under another name, synced, renamed over the old
//! one, and the folder synced, so that a crash at any point leaves the old or
//! the new one. If the last step fails, the old file is put back: a change that
//! was answered as failed is not there after a restart. A damaged file keeps the
//! volume from being opened: taken for an empty one, it would let hosts write that
//! were kept out. For the same reason the volume's own file says that there is a
//! state file, so that one which is missing is missed.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use tracing::{error, warn};
use uuid::Uuid;

use crate::identity::{self, StateMark};
use crate::problem::Problem;
use crate::regular::{MOVE_IT_AWAY, followed, holder, is_there};
use crate::reservation::{Reservations, Rules};
use crate::spec::{Settings, Spec, with_suffix};
use crate::{Range, checked_text};

/// Likewise where a state file is written at first.
const NEW: &str = ".new";
/// Likewise of the file that is locked meanwhile.
const LOCK: &str = ".lock";
/// Likewise of the file with the keys.
const KEYS: &str = ".keys";
/// Likewise of the log of a mirror.
const LOG: &str = ".mirror";
/// Likewise of the file with the checksums of a volume.
const SUMS: &str = ".sums";

/// First words of the file, with the version of the format.
const MAGIC: &str = "weft-state 1";

/// No state file is larger: room for every registrant and many ranges.
const BYTES_MAX: u64 = 64 << 20;

/// What a volume remembers of the mirror that it is, or was, a leg of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LegOf {
    /// UUID of the mirror.
    pub mirror: Uuid,
    /// In which it was written to last.
    pub generation: u64,
    /// It lacked something that others had.
    pub is_behind: bool,
}

/// Everything in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// UUID of the volume that it belongs to.
    volume: String,
    /// The file that it was written to: in a copy this says another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// There while Persist Through Power Loss is on.
    pub(crate) reservations: Option<Rules>,
    pub(crate) write_protected: bool,
    /// First byte and number of bytes of each.
    unreadable: Vec<(u64, u64)>,
    /// The UUID of the mirror that the volume is a leg of, and the generation in which it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mirror: Option<(String, u64)>,
    /// It lacked something then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    mirror_behind: bool,
    /// Reservations of UUIDs that the volume had before, or was copied with:
    /// there again when it has that UUID again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<(String, Option<Rules>)>,
}

impl Document {
    fn has_other(&self, volume: &str) -> bool {
        self.others.iter().any(|(other, _)| other == volume)
    }

    /// Makes it that of the UUID `volume`. Reservations belong to one UUID: those of the
    /// former one are set aside with it.
    fn become_that_of(&mut self, volume: String) {
        let at = self.others.iter().position(|(other, _)| *other == volume);
        let own = at.and_then(|at| self.others.swap_remove(at).1);
        let former = mem::replace(&mut self.volume, volume);
        let reservations = mem::replace(&mut self.reservations, own);
        self.others.push((former, reservations));
    }
}

/// Where a volume's state lies: a file, or what a test or the simulator has in
/// its place.
pub trait Medium: Send + Sync {
    /// What lies there; `None` if nothing was ever saved. Blocks.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Puts `bytes` in the place of what lies there. A crash at any point
    /// leaves the old or the new; the new when it has returned. Blocks.
    fn save(&self, bytes: &[u8]) -> io::Result<()>;

    /// How it is called in messages.
    fn path(&self) -> &Path;
}

/// The state of one volume, and where it lies.
pub(crate) struct StateFile {
    medium: Box<dyn Medium>,
    document: Mutex<Document>,
    /// Set before the first state file of the volume is written.
    mark: Mutex<Option<StateMark>>,
}

impl StateFile {
    /// Reads what is there, and whether that was another's; nothing is written
    /// before the first change.
    fn open(
        medium: Box<dyn Medium>,
        volume: Uuid,
        former: Option<Former>,
        mark: Option<StateMark>,
    ) -> Result<(StateFile, bool), Problem> {
        let path = medium.path();
        let loaded = medium.load().map_err(cannot_read(path))?;
        let (document, is_taken_over) = claim(path, loaded, volume, former)?;
        let document = Mutex::new(document);
        let mark = Mutex::new(mark);
        let file = StateFile {
            medium,
            document,
            mark,
        };
        Ok((file, is_taken_over))
    }

    /// Brings what was taken over from another volume to the disk. Blocks.
    fn settle(&self) -> io::Result<()> {
        let document = self.read(Document::clone);
        self.medium.save(render(&document).as_bytes())
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Document) -> T) -> T {
        look(&self.document.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what the file holds; on the disk when it returns. Blocks.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Document)) -> io::Result<()> {
        let mut document = self.document.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = document.clone();
        change(&mut next);
        if next != *document {
            let text = render(&next);
            if text.len() as u64 > BYTES_MAX {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            self.announce(&document)?;
            self.medium.save(text.as_bytes())?;
            *document = next;
        }
        Ok(())
    }

    /// Lets the file of the volume say that there is a state file. One that says
    /// nothing yet is written first: after a crash at any point what the file says
    /// is so.
    fn announce(&self, empty: &Document) -> io::Result<()> {
        let mut mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unset) = &*mark {
            self.medium.save(render(empty).as_bytes())?;
            unset.set();
            *mark = None;
        }
        Ok(())
    }
}

/// Another UUID that the volume of a state file may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Former {
    /// That of the volume that this one is a copy of.
    Original(Uuid),
    /// Its own, as an earlier version derived it.
    Own(Uuid),
}

/// A file in a file system.
struct Sidecar {
    path: PathBuf,
    /// See [`lock`].
    _lock: Option<File>,
}

impl Sidecar {
    /// Puts `bytes` in the place of what lies there, `bound` to the new file or as they
    /// are; a crash of the machine may bring back what lay there.
    fn replace(&self, bytes: &[u8], is_bound: bool) -> io::Result<()> {
        let temporary = temporary(&self.path)?;
        let mut file = File::create(&temporary)?;
        match is_bound {
            true => file.write_all(&bound(bytes, &file)?)?,
            false => file.write_all(bytes)?,
        }
        fault::at(SaveStep::SyncFile)?;
        file.sync_all()?;
        drop(file);
        fault::at(SaveStep::Rename)?;
        fs::rename(&temporary, &self.path)
    }

    /// Puts back the old state: a change that was answered as not kept must not be there
    /// after a restart. A copy stays one.
    fn restore(&self, old: Option<(File, Vec<u8>)>) {
        let done = match old {
            Some((file, bytes)) => self.replace(&bytes, is_of(&bytes, &file)),
            None => fs::remove_file(&self.path),
        };
        if let Err(error) = done {
            error!(
                path = %self.path.display(),
                %error,
                "the state file holds a change that was answered as failed: check the disk, and \
                 the reservations of the volume after a restart"
            );
        }
    }
}

impl Medium for Sidecar {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(load(&self.path)?.map(|(_, bytes)| bytes))
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        let old = load(&self.path)?;
        // One that cannot be opened is found while nothing has changed yet.
        let folder = File::open(folder(&self.path))?;
        self.replace(bytes, true)?;
        let synced = fault::at(SaveStep::SyncFolder).and_then(|()| folder.sync_all());
        if synced.is_err() {
            self.restore(old);
        }
        synced
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A state file and what lies in it; `None` if there is none. Blocks.
fn load(path: &Path) -> io::Result<Option<(File, Vec<u8>)>> {
    let remedy = "set `state` to the path of a file, which is created if it does not exist";
    if !is_there(path, remedy)? {
        return Ok(None);
    }
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    (&file).take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(Some((file, bytes)))
}

/// Where a state file is written before it takes the place of the old one. A crash
/// may have left a file there.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let temporary = with_suffix(path, NEW);
    match is_there(&temporary, MOVE_IT_AWAY)? {
        _ if temporary.is_symlink() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is a symbolic link: {MOVE_IT_AWAY}"),
        )),
        _ => Ok(temporary),
    }
}

/// Keeps a configured state file from other volumes, of other processes too, until
/// the answer is dropped; read-only volumes share it. The lock is on a file beside
/// it, since each save replaces the state file. Where none is configured, the lock
/// on the volume's own file does the same.
fn lock(spec: &Spec, path: &Path, is_made: bool) -> Result<Option<File>, Problem> {
    if spec.state.is_none() {
        return Ok(None);
    }
    let beside = with_suffix(path, LOCK);
    let system = |source| Problem::System {
        action: "lock the state file",
        path: Some(beside.clone()),
        source,
    };
    let file = match is_there(&beside, MOVE_IT_AWAY).map_err(system)? {
        true => File::open(&beside).map_err(system)?,
        false if !is_made => return Ok(None),
        false => match File::create(&beside) {
            Ok(file) => file,
            // Nothing can be saved there either.
            Err(error) if is_unwritable(&error) => return Ok(None),
            Err(error) => return Err(system(error)),
        },
    };
    // Two volumes in memory are never one disk.
    let locked = match spec.read_only && !spec.kind.is_memory() {
        true => file.try_lock_shared(),
        false => file.try_lock(),
    };
    match locked {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Problem::InUse {
            path: path.to_owned(),
            holder: holder(&file),
        }),
        Err(TryLockError::Error(error)) => Err(system(error)),
    }
}

fn is_unwritable(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// What may fail when a state file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SaveStep {
    SyncFile,
    Rename,
    SyncFolder,
}

/// Makes a step of writing a state file fail, for tests.
mod fault {
    use std::io;

    use super::SaveStep;

    #[cfg(test)]
    thread_local! {
        pub(super) static NEXT: std::cell::Cell<Option<SaveStep>> = const { std::cell::Cell::new(None) };
    }

    #[cfg(test)]
    pub(super) fn at(step: SaveStep) -> io::Result<()> {
        match NEXT.get() == Some(step) {
            true => {
                NEXT.set(None);
                Err(rustix::io::Errno::IO.into())
            }
            false => Ok(()),
        }
    }

    #[cfg(not(test))]
    pub(super) fn at(_: SaveStep) -> io::Result<()> {
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<Document, String> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("has more than {BYTES_MAX} bytes"));
    }
    let body = checked_text::unseal(MAGIC, bytes)?;
    serde_json::from_str(body).map_err(|error| format!("is damaged: {error}"))
}

fn render(document: &Document) -> String {
    let mut body = serde_json::to_string_pretty(document).expect("plain data becomes JSON");
    body.push('\n');
    checked_text::seal(MAGIC, &body)
}

/// What stands for the file before a document is written to one.
const NO_FILE: &str = "0000000000000000";

/// The document in `bytes` as one that is written to `file`.
fn bound(bytes: &[u8], file: &File) -> io::Result<Vec<u8>> {
    let mut document = parse(bytes).map_err(io::Error::other)?;
    document.file = Some(identity::of_state_file(file)?);
    Ok(render(&document).into_bytes())
}

/// Whether the document in `bytes` was written to `file`.
fn is_of(bytes: &[u8], file: &File) -> bool {
    let object = identity::of_state_file(file).ok();
    parse(bytes).is_ok_and(|document| document.file.is_some() && document.file == object)
}

fn cannot_read(path: &Path) -> impl Fn(io::Error) -> Problem {
    |source| Problem::System {
        action: "read the state file",
        path: Some(path.to_owned()),
        source,
    }
}

fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Problem {
    |source| Problem::System {
        action: "write the state file",
        path: Some(path.to_owned()),
        source,
    }
}

/// What the state file at `path` says to the volume `volume`, and whether that was
/// another's.
fn claim(
    path: &Path,
    loaded: Option<Vec<u8>>,
    volume: Uuid,
    former: Option<Former>,
) -> Result<(Document, bool), Problem> {
    let wrong = |why| Problem::State {
        path: path.to_owned(),
        why,
    };
    let volume = volume.to_string();
    let mut document = match loaded {
        Some(bytes) => parse(&bytes).map_err(wrong)?,
        None => Document {
            volume: volume.clone(),
            ..Document::default()
        },
    };
    // As long as the one that it gets when it is written.
    document.file.get_or_insert_with(|| NO_FILE.to_owned());
    match former {
        _ if document.volume == volume => return Ok((document, false)),
        Some(Former::Own(own)) if document.volume == own.to_string() => document.volume = volume,
        Some(Former::Original(original)) if document.volume == original.to_string() => {
            document.become_that_of(volume);
        }
        _ if document.has_other(&volume) => document.become_that_of(volume),
        _ => {
            let why = format!(
                "belongs to the volume with UUID {0}, this one has {volume}: if it is that \
                 volume, set uuid = \"{0}\"; else",
                document.volume
            );
            return Err(wrong(why));
        }
    }
    Ok((document, true))
}

/// What of its state file would keep the volume `volume` from being opened, or what it says.
pub(crate) fn examine(
    spec: &Spec,
    volume: Uuid,
    former: Option<Former>,
) -> Result<Option<Document>, Problem> {
    let Some(path) = place(spec) else {
        return Ok(None);
    };
    check_place(spec, &path)?;
    lock(spec, &path, false)?;
    let loaded = load(&path).map_err(cannot_read(&path))?;
    let (document, is_taken_over) = claim(&path, loaded.map(|(_, bytes)| bytes), volume, former)?;
    if is_taken_over && !spec.read_only && !spec.kind.is_memory() {
        let may = access(folder(&path), Access::WRITE_OK | Access::EXEC_OK);
        may.map_err(|error| cannot_write(&path)(error.into()))?;
    }
    Ok(Some(document))
}

/// Where the state file of a volume lies. A link leads there and stays: what replaced
/// it would leave the file that it leads to as it is.
pub(crate) fn place(spec: &Spec) -> Option<PathBuf> {
    let path = spec.state_path()?;
    match path.is_symlink() {
        // One that leads nowhere is refused by its own name.
        true => Some(followed(&path)),
        false => Some(path),
    }
}

/// The file that keeps the reservations of a volume and the like, and those that weft makes
/// beside it.
pub fn files(spec: &Spec) -> Vec<PathBuf> {
    let Some(path) = place(spec) else {
        return Vec::new();
    };
    let (new, lock) = (with_suffix(&path, NEW), with_suffix(&path, LOCK));
    let keys = spec.encryption.as_ref().and_then(|_| keys_path(spec));
    let mut files = vec![path, new, lock];
    let sums = sums_path(spec).filter(|_| spec.checksum);
    let made = keys.into_iter().chain(sums);
    files.extend(made.flat_map(|path| [with_suffix(&path, NEW), path]));
    files.extend(mirror_log(spec));
    files
}

/// The file with the keys of a volume, where it is encrypted.
pub(crate) fn keys_path(spec: &Spec) -> Option<PathBuf> {
    Some(with_suffix(&place(spec)?, KEYS))
}

/// Where the log of a mirror lies: nowhere where no state is configured.
pub(crate) fn mirror_log(spec: &Spec) -> Option<PathBuf> {
    match spec.kind.settings {
        Settings::Mirror { .. } => Some(with_suffix(&place(spec)?, LOG)),
        _ => None,
    }
}

/// The file with the checksums of a volume, where it has any.
pub(crate) fn sums_path(spec: &Spec) -> Option<PathBuf> {
    Some(with_suffix(&place(spec)?, SUMS))
}

/// Whether a state file can lie at `path`.
fn check_place(spec: &Spec, path: &Path) -> Result<(), Problem> {
    if !folder(path).is_dir() {
        return Err(Problem::NoFolder(folder(path).to_owned()));
    }
    let refused = |source| Problem::System {
        action: "use",
        path: Some(with_suffix(path, NEW)),
        source,
    };
    match spec.read_only {
        // Written at most when a host asks for reservations that persist.
        true => Ok(()),
        false => temporary(path).map(drop).map_err(refused),
    }
}

/// Whose a state file is.
pub(crate) struct StateOwner {
    /// The volume that it says.
    pub(crate) volume: Uuid,
    /// The volume that it is of, if it is a copy of that one's.
    pub(crate) copy: Option<Uuid>,
    /// It says which file it was written to, and it is that file.
    pub(crate) is_bound: bool,
}

/// The UUID of a volume in memory by its state file, wherever the configuration
/// lies now: what stands there, or in a copy what follows from that and the copy. One
/// that an earlier version derived from the volume's name alone does not count:
/// volumes of other processes have the same.
pub fn uuid_by_state(spec: &Spec) -> Option<Uuid> {
    let by_name = identity::derive(spec.kind.name(), &spec.name);
    let held = held(spec)?;
    held.copy
        .or(Some(held.volume))
        .filter(|uuid| *uuid != by_name)
}

/// Whose the state file of a volume is. What is wrong with the file is told when it
/// is opened.
pub(crate) fn held(spec: &Spec) -> Option<StateOwner> {
    let (file, bytes) = load(&place(spec)?).ok()??;
    let document = parse(&bytes).ok()?;
    let volume = Uuid::try_parse(&document.volume).ok()?;
    let object = identity::of_state_file(&file).ok()?;
    let is_bound = document.file.as_ref() == Some(&object);
    // One of an earlier version does not say it.
    let is_copy = document.file.is_some() && !is_bound;
    Some(StateOwner {
        volume,
        copy: is_copy.then(|| identity::of_copy(volume, &object)),
        is_bound,
    })
}

/// The volume that the state file of a volume says.
pub(crate) fn volume(spec: &Spec) -> Option<Uuid> {
    Some(held(spec)?.volume)
}

pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// What could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The volume has no state file.
    #[error("the volume has no state file: give it a `state` path")]
    Volatile,
    /// The file could not be written; it holds what it held.
    #[error("the state file was not written: {0}")]
    Unsaved(io::Error),
}

/// What a volume remembers beside its data.
pub struct State {
    file: Option<Arc<StateFile>>,
    reservations: Reservations,
    /// As in the file: writes ask without a lock.
    is_protected: AtomicBool,
}

impl State {
    /// Of a volume without a file for it: ends with the process.
    pub fn volatile() -> State {
        State {
            file: None,
            is_protected: AtomicBool::new(false),
            reservations: Reservations::open(None),
        }
    }

    /// On `medium`, of the volume with this UUID. Blocks.
    pub fn open(medium: Box<dyn Medium>, volume: Uuid) -> Result<State, Problem> {
        let (file, _) = StateFile::open(medium, volume, None, None)?;
        Ok(State::on(file))
    }

    fn on(file: StateFile) -> State {
        let file = Arc::new(file);
        State {
            is_protected: AtomicBool::new(file.read(|document| document.write_protected)),
            reservations: Reservations::open(Some(file.clone())),
            file: Some(file),
        }
    }

    /// In the file that the volume has for it; nowhere without one. What is there
    /// of a `former` UUID is this volume's from now on. The `mark` is set before
    /// the first state file is written.
    pub(crate) fn in_file(
        spec: &Spec,
        volume: Uuid,
        former: Option<Former>,
        mark: Option<StateMark>,
    ) -> Result<State, Problem> {
        let Some(path) = place(spec) else {
            return Ok(State::volatile());
        };
        check_place(spec, &path)?;
        let is_bound = held(spec).is_none_or(|held| held.is_bound);
        let medium = Sidecar {
            path: path.clone(),
            _lock: lock(spec, &path, true)?,
        };
        let (file, is_taken_over) = StateFile::open(Box::new(medium), volume, former, mark)?;
        // The identity of a volume in memory hangs on it.
        let is_to_bind = !is_bound && spec.kind.is_memory();
        if (is_taken_over || is_to_bind) && !spec.read_only {
            match file.settle() {
                // The next start finds what this one has found.
                Err(error) if spec.kind.is_memory() => warn!(
                    volume = spec.name,
                    state = %path.display(),
                    %error,
                    "the state file cannot be written: hosts' reservations that are to outlive a \
                     restart are refused; free space in its folder, or let weft write there"
                ),
                settled => settled.map_err(cannot_write(&path))?,
            }
        }
        Ok(State::on(file))
    }

    /// Where it is kept, if anywhere.
    pub(crate) fn path(&self) -> Option<&Path> {
        Some(self.file.as_ref()?.medium.path())
    }

    /// The reservations.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Whether it outlasts the process.
    pub fn can_persist(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the volume was write protected for good.
    #[inline]
    pub fn is_write_protected(&self) -> bool {
        self.is_protected.load(Ordering::Acquire)
    }

    /// Write protects the volume for good: there is no way back. On the disk
    /// when it returns; blocks.
    pub fn protect_permanently(&self) -> Result<(), StateError> {
        self.update(|document| document.write_protected = true)?;
        self.is_protected.store(true, Ordering::Release);
        Ok(())
    }

    /// What was marked unreadable, as last set.
    pub fn unreadable(&self) -> Vec<Range> {
        let ranges = |document: &Document| {
            let ranges = document.unreadable.iter();
            ranges.map(|&(offset, len)| Range { offset, len }).collect()
        };
        let file = self.file.as_ref();
        file.map_or_else(Vec::new, |file| file.read(ranges))
    }

    /// Keeps what is unreadable from now on, in place of what was. On the disk
    /// when it returns; blocks.
    pub fn set_unreadable(&self, ranges: &[Range]) -> Result<(), StateError> {
        let ranges = ranges.iter().map(|range| (range.offset, range.len));
        self.update(|document| document.unreadable = ranges.collect())
    }

    /// What it was of a mirror last.
    pub(crate) fn leg_of(&self) -> Option<LegOf> {
        let file = self.file.as_ref()?;
        let (mirror, is_behind) =
            file.read(|document| (document.mirror.clone(), document.mirror_behind));
        let (uuid, generation) = mirror?;
        Some(LegOf {
            mirror: Uuid::try_parse(&uuid).ok()?,
            generation,
            is_behind,
        })
    }

    /// Sets that. On the disk when it returns; blocks.
    pub(crate) fn set_leg_of(&self, leg: LegOf) -> Result<(), StateError> {
        self.update(|document| {
            document.mirror = Some((leg.mirror.to_string(), leg.generation));
            document.mirror_behind = leg.is_behind;
        })
    }

    /// Forgets that, as what the volume holds is of another time. On the disk when it returns;
    /// blocks.
    pub(crate) fn leave_mirror(&self) -> io::Result<()> {
        let file = self.file.iter();
        let mut knows = file.filter(|file| file.read(|document| document.mirror.is_some()));
        knows.try_for_each(|file| file.update(|document| document.mirror = None))
    }

    fn update(&self, change: impl FnOnce(&mut Document)) -> Result<(), StateError> {
        let file = self.file.as_ref().ok_or(StateError::Volatile)?;
        file.update(change).map_err(StateError::Unsaved)
    }
}

#[cfg(test)]
mod tests;
