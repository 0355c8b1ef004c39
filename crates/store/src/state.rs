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

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crc_fast::{CrcAlgorithm, checksum};
use serde::{Deserialize, Serialize};
use tracing::error;
use uuid::Uuid;

use crate::identity::StateMark;
use crate::regular::holder;
use crate::reservation::{Reservations, Rules};
use crate::{Problem, Range, Spec};

/// What comes after the path of a `file` volume where no other is configured.
const SUFFIX: &str = ".weft";

/// First words of the file, with the version of the format.
const MAGIC: &str = "weft-state 1";

/// No state file is larger: room for every registrant and many ranges.
const BYTES_MAX: u64 = 64 << 20;

/// Everything in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// UUID of the volume that it belongs to.
    volume: String,
    /// There while Persist Through Power Loss is on.
    pub(crate) reservations: Option<Rules>,
    write_protected: bool,
    /// First byte and number of bytes of each.
    unreadable: Vec<(u64, u64)>,
    /// Reservations of UUIDs that the volume had before, or was copied with:
    /// there again when it has that UUID again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<(String, Option<Rules>)>,
}

impl Document {
    fn has_other(&self, volume: &str) -> bool {
        self.others.iter().any(|(other, _)| other == volume)
    }

    /// Makes it that of the UUID `volume`. Reservations are about who may write
    /// to a volume of one UUID: they are set aside with it.
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
        let loaded = medium.load().map_err(|source| Problem::System {
            action: "read the state file",
            path: Some(path.to_owned()),
            source,
        })?;
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
        let mut is_taken_over = false;
        match former {
            Some(Former::Own(own)) if document.volume == own.to_string() => {
                is_taken_over = true;
                document.volume = volume;
            }
            Some(Former::Original(original)) if document.volume == original.to_string() => {
                is_taken_over = true;
                document.become_that_of(volume);
            }
            _ if document.volume != volume && document.has_other(&volume) => {
                is_taken_over = true;
                document.become_that_of(volume);
            }
            _ if document.volume != volume => {
                let why = format!(
                    "belongs to the volume with UUID {0}, this one has {volume}: if it is that \
                     volume, set uuid = \"{0}\"; else",
                    document.volume
                );
                return Err(wrong(why));
            }
            _ => {}
        }
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
    /// Puts `bytes` in the place of what lies there; a crash of the machine may
    /// bring that back.
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let temporary = with_suffix(&self.path, ".new");
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        fault::at(Step::SyncFile)?;
        file.sync_all()?;
        drop(file);
        fault::at(Step::Rename)?;
        fs::rename(&temporary, &self.path)
    }

    /// Who is told that the new state was not kept must not find it after a
    /// restart.
    fn put_back(&self, old: Option<&[u8]>) {
        let done = match old {
            Some(bytes) => self.replace(bytes),
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
        load(&self.path)
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        let old = self.load()?;
        // One that cannot be opened is found while nothing has changed yet.
        let folder = File::open(folder(&self.path))?;
        self.replace(bytes)?;
        let synced = fault::at(Step::SyncFolder).and_then(|()| folder.sync_all());
        if synced.is_err() {
            self.put_back(old.as_deref());
        }
        synced
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// What lies in a state file; `None` if there is none. Blocks.
fn load(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        // Looked at before it is opened: opening a pipe would block.
        Ok(found) if !found.is_file() => {
            let why = "it is not a regular file: set `state` to the path of a file, which is \
                       created if it does not exist";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Keeps a configured state file from other volumes, of other processes too, until
/// the answer is dropped; read-only volumes share it. The lock is on a file beside
/// it, since each save replaces the state file. Where none is configured, the lock
/// on the volume's own file does the same.
fn lock(spec: &Spec, path: &Path, is_made: bool) -> Result<Option<File>, Problem> {
    if spec.state.is_none() {
        return Ok(None);
    }
    let beside = with_suffix(path, ".lock");
    let system = |source| Problem::System {
        action: "lock the state file",
        path: Some(path.to_owned()),
        source,
    };
    let file = match File::open(&beside) {
        Ok(file) => file,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(system(error)),
        Err(_) if !is_made => return Ok(None),
        Err(_) => match File::create(&beside) {
            Ok(file) => file,
            // Nothing can be saved there either.
            Err(error) if is_unwritable(&error) => return Ok(None),
            Err(error) => return Err(system(error)),
        },
    };
    let locked = match spec.read_only {
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
enum Step {
    SyncFile,
    Rename,
    SyncFolder,
}

/// Makes a step of writing a state file fail, for tests.
mod fault {
    use std::io;

    use super::Step;

    #[cfg(test)]
    thread_local! {
        pub(super) static NEXT: std::cell::Cell<Option<Step>> = const { std::cell::Cell::new(None) };
    }

    #[cfg(test)]
    pub(super) fn at(step: Step) -> io::Result<()> {
        match NEXT.get() == Some(step) {
            true => {
                NEXT.set(None);
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            false => Ok(()),
        }
    }

    #[cfg(not(test))]
    pub(super) fn at(_: Step) -> io::Result<()> {
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<Document, String> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("has more than {BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "is damaged".to_owned())?;
    let (head, body) = text.split_once('\n').unwrap_or((text, ""));
    let Some(sum) = head.strip_prefix(MAGIC) else {
        return Err(format!("does not begin with '{MAGIC}'"));
    };
    if sum.trim() != sum_of(body) {
        return Err("is damaged: its checksum does not match".to_owned());
    }
    serde_json::from_str(body).map_err(|error| format!("is damaged: {error}"))
}

fn render(document: &Document) -> String {
    let mut body = serde_json::to_string_pretty(document).expect("plain data becomes JSON");
    body.push('\n');
    format!("{MAGIC} {}\n{body}", sum_of(&body))
}

/// CRC32C, in hexadecimal.
fn sum_of(body: &str) -> String {
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, body.as_bytes());
    format!("{sum:08x}")
}

/// What of a state file would keep its volume from being opened; who the volume
/// is has still to be found.
pub(crate) fn examine(spec: &Spec) -> Result<(), Problem> {
    let Some(path) = spec.state_path() else {
        return Ok(());
    };
    if !folder(&path).is_dir() {
        return Err(Problem::NoFolder(folder(&path).to_owned()));
    }
    lock(spec, &path, false)?;
    let loaded = load(&path).map_err(|source| Problem::System {
        action: "read the state file",
        path: Some(path.clone()),
        source,
    })?;
    let parsed = loaded.as_deref().map(parse).transpose();
    parsed.map(drop).map_err(|why| Problem::State { path, why })
}

/// Whose the state file of a volume says that it is. What is wrong with the file
/// is told when it is opened.
pub(crate) fn volume(spec: &Spec) -> Option<Uuid> {
    let bytes = load(&spec.state_path()?).ok()??;
    Uuid::try_parse(&parse(&bytes).ok()?.volume).ok()
}

pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Where the state of the volume in the file `path` lies, unless configured.
pub(crate) fn beside(path: &Path) -> PathBuf {
    with_suffix(path, SUFFIX)
}

/// What could not be kept.
#[derive(Debug)]
pub enum StateError {
    /// The volume has no state file.
    Volatile,
    /// The file could not be written; it holds what it held.
    Unsaved(io::Error),
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StateError::Volatile => {
                f.write_str("the volume has no state file: give it a `state` path")
            }
            StateError::Unsaved(error) => write!(f, "the state file was not written: {error}"),
        }
    }
}

impl std::error::Error for StateError {}

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
        let Some(path) = spec.state_path() else {
            return Ok(State::volatile());
        };
        if !folder(&path).is_dir() {
            return Err(Problem::NoFolder(folder(&path).to_owned()));
        }
        let medium = Sidecar {
            path: path.clone(),
            _lock: lock(spec, &path, true)?,
        };
        let (file, is_taken_over) = StateFile::open(Box::new(medium), volume, former, mark)?;
        if is_taken_over && !spec.read_only {
            file.settle().map_err(|source| Problem::System {
                action: "write the state file",
                path: Some(path),
                source,
            })?;
        }
        Ok(State::on(file))
    }

    /// Who may do what.
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

    fn update(&self, change: impl FnOnce(&mut Document)) -> Result<(), StateError> {
        let file = self.file.as_ref().ok_or(StateError::Volatile)?;
        file.update(change).map_err(StateError::Unsaved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::reservation::{Registrant, Request};

    const VOLUME: Uuid = Uuid::from_u128(7);

    fn open(path: &Path) -> Result<State, Problem> {
        State::in_file(&spec(Some(path)), VOLUME, None, None)
    }

    fn spec(state: Option<&Path>) -> Spec {
        Spec {
            state: state.map(Path::to_owned),
            ..Spec::new("disk", Kind::Ram, 4096, 512)
        }
    }

    /// A state file with something of everything, and its bytes.
    fn filled(folder: &Path) -> (PathBuf, Vec<u8>) {
        let path = beside(&folder.join("disk"));
        let state = open(&path).expect("nothing there is no damage");
        assert!(!path.exists(), "nothing is written before it must be");
        let register = Request::Register {
            key: u64::MAX,
            persist: Some(true),
        };
        let host = Registrant::NvmeHost([0xab; 16]);
        state.reservations().change(&host, &register).unwrap();
        state.protect_permanently().unwrap();
        let ranges = [
            Range {
                offset: 0,
                len: 512,
            },
            Range {
                offset: u64::MAX - 511,
                len: 511,
            },
        ];
        state.set_unreadable(&ranges).unwrap();
        let bytes = fs::read(&path).unwrap();
        (path, bytes)
    }

    fn is_damage(path: &Path) -> bool {
        match open(path) {
            Err(Problem::State { path: named, .. }) => named == path,
            _ => false,
        }
    }

    #[test]
    fn everything_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = filled(folder.path());
        assert_eq!(path, folder.path().join("disk.weft"));
        let state = open(&path).unwrap();
        assert!(state.is_write_protected() && state.can_persist());
        assert_eq!(state.unreadable().len(), 2);
        assert_eq!(state.unreadable()[1].offset, u64::MAX - 511);
        let report = state.reservations().report();
        let host = Registrant::NvmeHost([0xab; 16]);
        assert_eq!(report.registrants, [(host, u64::MAX, false)]);
        assert!(report.persist);
    }

    #[test]
    fn a_file_cut_off_anywhere_or_changed_anywhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = filled(folder.path());
        for len in 0..bytes.len() {
            fs::write(&path, &bytes[..len]).unwrap();
            assert!(is_damage(&path), "cut off after {len} bytes");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(is_damage(&path), "byte {at} changed");
        }
        fs::write(&path, &bytes).unwrap();
        assert!(open(&path).is_ok());
    }

    /// Opening a pipe would wait for a process that writes into it.
    #[test]
    fn pipe_or_folder_as_a_state_file_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // The pipe comes last: the others fail where no type is looked at.
        for path in [Path::new("/dev/null"), folder.path(), &pipe] {
            let spec = spec(Some(path));
            for problem in [examine(&spec).err(), open(path).err()] {
                let text = problem.expect("refused").to_string();
                assert!(text.contains("is not a regular file"), "{text}");
                assert!(text.contains(&path.display().to_string()), "{text}");
            }
            assert_eq!(volume(&spec), None);
        }
    }

    #[test]
    fn what_a_crash_left_half_written_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = filled(folder.path());
        let half = with_suffix(&path, ".new");
        fs::write(&half, &bytes[..9]).unwrap();
        let state = open(&path).expect("the old one is whole");
        state.set_unreadable(&[]).unwrap();
        assert!(!half.exists(), "the next change takes its place");
        drop(state);
        assert!(open(&path).unwrap().unreadable().is_empty());
    }

    #[test]
    fn another_volumes_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = filled(folder.path());
        let other = State::in_file(&spec(Some(&path)), Uuid::from_u128(8), None, None);
        let Err(problem @ Problem::State { .. }) = other else {
            panic!("taken for its own");
        };
        let text = problem.to_string();
        assert!(text.contains(&VOLUME.to_string()) && text.contains("disk.weft"));
    }

    /// Reservations of a stranger would keep hosts out, and its own would be lost.
    #[test]
    fn only_the_former_volume_hands_its_state_on() {
        let (next, stranger) = (Uuid::from_u128(8), Uuid::from_u128(9));
        for former in [Former::Own as fn(Uuid) -> Former, Former::Original] {
            let folder = tempfile::tempdir().unwrap();
            let (path, bytes) = filled(folder.path());
            let open_as = |read_only, uuid, former| {
                let spec = Spec {
                    read_only,
                    ..spec(Some(&path))
                };
                State::in_file(&spec, uuid, former, None)
            };
            let refused = open_as(false, next, Some(former(stranger)));
            assert!(matches!(refused, Err(Problem::State { .. })));
            let found = open_as(true, next, Some(former(VOLUME))).expect("handed on");
            assert!(found.is_write_protected());
            assert_eq!(fs::read(&path).unwrap(), bytes, "it was only looked at");
            drop(found);
            drop(open_as(false, next, Some(former(VOLUME))).expect("handed on"));
            let again = open_as(false, next, None).expect("it is its own now");
            assert!(again.is_write_protected());
            // A volume that changes its UUID keeps them, a copy of it has none.
            let registrants = again.reservations().report().registrants.len();
            let is_own = former(VOLUME) == Former::Own(VOLUME);
            assert_eq!(registrants, usize::from(is_own));
        }
    }

    #[test]
    fn state_as_large_as_may_be_is_kept_and_a_larger_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("disk"));
        let state = open(&path).unwrap();
        let ranges = |count, digits: u64| {
            let mut ranges = vec![Range { offset: 0, len: 0 }; count];
            // Each digit more of a number is a byte more.
            for at in 0..digits as usize {
                ranges[at / 18].offset = 10_u64.pow((at % 18 + 1) as u32);
            }
            ranges
        };
        let bytes = |count| {
            state.set_unreadable(&ranges(count, 0)).unwrap();
            fs::metadata(&path).unwrap().len()
        };
        let of_one = bytes(1002) - bytes(1001);
        let of_none = bytes(1001) - 1001 * of_one;
        let count = (BYTES_MAX - of_none) / of_one;
        let digits = BYTES_MAX - of_none - count * of_one;
        let full = ranges(count as usize, digits);
        state.set_unreadable(&full).unwrap();
        let kept = fs::read(&path).unwrap();
        assert_eq!(kept.len() as u64, BYTES_MAX);
        let refused = state.set_unreadable(&ranges(count as usize, digits + 1));
        assert!(
            matches!(refused, Err(StateError::Unsaved(error)) if error.kind() == io::ErrorKind::FileTooLarge)
        );
        drop(state);
        assert_eq!(open(&path).unwrap().unreadable(), full);
        fs::write(&path, [kept, vec![b' ']].concat()).unwrap();
        let refused = open(&path).err().expect("refused").to_string();
        assert!(refused.contains("has more than"), "{refused}");
    }

    /// A link to itself stands for whatever cannot be looked at: it is not known that
    /// nothing is there.
    #[test]
    fn state_or_lock_that_cannot_be_looked_at_keeps_the_volume_from_being_opened() {
        for (name, to, action) in [
            ("state", "state", "read the state file"),
            ("state.lock", "state.lock", "lock the state file"),
            ("state.lock", "missing/lock", "lock the state file"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
            let spec = spec(Some(&folder.path().join("state")));
            let opened = State::in_file(&spec, VOLUME, None, None).err();
            // A lock that could not be made is none yet.
            let examined = examine(&spec).err();
            assert_eq!(examined.is_none(), to == "missing/lock");
            for problem in [
                opened,
                examined.or(State::in_file(&spec, VOLUME, None, None).err()),
            ] {
                let problem = problem.expect("refused");
                assert!(
                    matches!(problem, Problem::System { action: found, .. } if found == action),
                    "{name}: {problem}"
                );
            }
        }
    }

    #[test]
    fn examining_makes_no_lock_and_opening_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let lock = folder.path().join("state.lock");
        assert!(examine(&spec(Some(&path))).is_ok());
        assert!(!lock.exists());
        let state = open(&path).unwrap();
        assert!(lock.exists());
        assert!(open(&path).is_err(), "it is taken");
        drop(state);
    }

    /// In `/sys` nobody makes a file.
    #[test]
    fn folder_that_takes_no_lock_takes_no_state_either() {
        let state = open(Path::new("/sys/weft-state")).expect("nothing is there");
        let refused = state.protect_permanently();
        assert!(matches!(refused, Err(StateError::Unsaved(_))));
        assert!(!state.is_write_protected());
    }

    #[test]
    fn state_file_of_an_open_volume_is_refused_to_another_by_any_path() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("x")).unwrap();
        let path = folder.path().join("state");
        let other_path = folder.path().join("x/../state");
        let open_as = |path: &Path, read_only| {
            let spec = Spec {
                read_only,
                ..spec(Some(path))
            };
            let examined = examine(&spec).is_ok();
            let opened = State::in_file(&spec, VOLUME, None, None);
            assert_eq!(opened.is_ok(), examined);
            opened
        };
        let first = open_as(&path, false).expect("nobody has it");
        for read_only in [false, true] {
            let second = open_as(&other_path, read_only).err().expect("refused");
            let holder = Some(std::process::id());
            assert!(matches!(second, Problem::InUse { holder: found, .. } if found == holder));
            assert!(
                second.to_string().contains("x/../state is already"),
                "{second}"
            );
        }
        first.protect_permanently().unwrap();
        assert!(
            open_as(&other_path, false).is_err(),
            "after it was replaced"
        );
        drop(first);
        let second = open_as(&other_path, true).expect("it was let go");
        let third = open_as(&path, true).expect("neither takes it for itself");
        assert!(second.is_write_protected() && third.is_write_protected());
        assert!(open_as(&path, false).is_err());
    }

    #[test]
    fn without_a_file_nothing_is_promised() {
        let state = State::in_file(&spec(None), VOLUME, None, None).unwrap();
        assert!(!state.can_persist() && !state.is_write_protected());
        let refused = state.protect_permanently().unwrap_err();
        assert!(matches!(refused, StateError::Volatile));
        assert!(
            refused.to_string().contains("give it a `state` path"),
            "{refused}"
        );
        assert!(matches!(
            state.set_unreadable(&[]),
            Err(StateError::Volatile)
        ));
    }

    #[test]
    fn a_folder_that_cannot_be_written_keeps_the_old_state() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = filled(folder.path());
        let state = open(&path).unwrap();
        // A folder in the place of the temporary file: no one can write there.
        fs::create_dir(with_suffix(&path, ".new")).unwrap();
        assert!(matches!(
            state.set_unreadable(&[]),
            Err(StateError::Unsaved(_))
        ));
        assert_eq!(state.unreadable().len(), 2, "as on the disk");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    /// The record of the volume's file never names a state file that is not there.
    #[test]
    fn first_state_that_is_not_written_leaves_the_volume_to_be_opened() {
        for step in [Step::SyncFile, Step::Rename, Step::SyncFolder] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("disk");
            let kind = Kind::File { path: path.clone() };
            let spec = Spec::new("disk", kind, 4096, 512);
            let open = || crate::regular::open(&spec, &path);
            let (file, uuid, state) = open().unwrap();
            fault::NEXT.set(Some(step));
            assert!(state.protect_permanently().is_err(), "{step:?}");
            drop((file, state));
            let (file, again, state) = open().expect("nothing was kept, nothing is missed");
            assert_eq!((again, state.is_write_protected()), (uuid, false));
            state.protect_permanently().unwrap();
            drop((file, state));
            assert!(open().unwrap().2.is_write_protected());
        }
    }

    /// Whatever fails: who is told that a change was not kept finds the old state,
    /// in this process and in the next.
    #[test]
    fn a_step_of_writing_that_fails_leaves_the_old_state_now_and_after_a_restart() {
        for is_first in [true, false] {
            for step in [Step::SyncFile, Step::Rename, Step::SyncFolder] {
                let folder = tempfile::tempdir().unwrap();
                let path = match is_first {
                    true => beside(&folder.path().join("disk")),
                    false => filled(folder.path()).0,
                };
                let before = fs::read(&path).ok();
                let state = open(&path).unwrap();
                let was = (state.unreadable(), state.reservations().report());
                let one = Range {
                    offset: 4096,
                    len: 512,
                };
                fault::NEXT.set(Some(step));
                let refused = state.set_unreadable(&[one]);
                assert!(matches!(refused, Err(StateError::Unsaved(_))), "{step:?}");
                assert_eq!((state.unreadable(), state.reservations().report()), was);
                let after = fs::read(&path).ok();
                assert_eq!(after, before, "{step:?}, first: {is_first}");
                // The next change is kept, with nothing of the one that was refused.
                state.protect_permanently().unwrap();
                drop(state);
                let again = open(&path).unwrap();
                assert!(again.is_write_protected());
                assert_eq!(again.unreadable(), was.0);
            }
        }
    }
}
