//! Snapshots: what volumes held at one instant.
//!
//! Each volume has its own beside it (`snapshot/folder.rs`). Those that are made together
//! are of one instant: all ranges of all of the volumes are locked while their blocks are
//! shared, so that no I/O is under way then. Whatever was answered before is in; whatever
//! begins after is not; what waits meanwhile goes on after that.
//!
//! A snapshot is seen when it is whole and durable. A rollback is written down before it
//! begins, and brought to its end when the volume is opened next if a crash has come in
//! between.

mod changes;
mod compared;
mod error;
mod exposed;
mod folder;
mod receive;
mod record;
mod send;
mod stream;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use faults::Fault;
use rustix::io::Errno;
use uuid::Uuid;

use crate::locks::{Claim, HeldRange, Locks};
use crate::lost::Lost;
use crate::unreadable::RANGES_MAX;
use crate::{Base, Range, Spec, Volume, spec};

pub use changes::ChangedRange;
pub use compared::{Comparable, ComparedPart, Comparison, identity_of, names_behind};
pub use error::SnapshotError;
pub(crate) use exposed::{Exposed, expose};
pub(crate) use folder::SnapshotFolder;
pub use folder::{SnapshotData, SnapshotMedium};
pub use receive::{SnapshotPart, receive, received_parts};
use record::SnapshotRecord;
pub use send::SnapshotSource;
pub use stream::{StreamError, StreamHeader, StreamReader, StreamRecord, StreamWriter};

/// Snapshots of a volume at most.
pub const SNAPSHOTS_MAX: usize = 1024;

const NAME_BYTES_MAX: usize = 64;

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// No other of the volume has it.
    pub name: String,
    /// When it was made, milliseconds since 1970; 0 where its record is lost.
    pub taken_unix_ms: u64,
    /// What the volume had then, bytes; 0 where its record is lost.
    pub size_bytes: u64,
    /// What it shares with nothing, and what goes when it is removed, bytes. `None` where
    /// the file system does not tell.
    pub unique_bytes: Option<u64>,
    /// Why nothing can be made of it.
    pub damage: Option<String>,
}

/// What a volume has for its snapshots.
pub struct Snapshots {
    pub(crate) medium: Box<dyn SnapshotMedium>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) lost: Arc<Lost>,
    /// One change of the snapshots at a time. A disk that does not answer holds up no other.
    pub(crate) changing: Mutex<()>,
    /// The size of the volume stays while what it holds is shared or restored.
    pub(crate) resizing: Arc<Mutex<()>>,
    /// How long I/O under way is waited for.
    pub(crate) patience: Duration,
}

/// Whether a snapshot may be called so.
///
/// # Errors
/// What it may be called.
pub fn check_name(name: &str) -> Result<(), SnapshotError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= NAME_BYTES_MAX
        && name.chars().all(is_plain);
    match is_name {
        true => Ok(()),
        false => Err(SnapshotError::Name(name.to_owned())),
    }
}

/// Whether a volume of this description can have snapshots, as far as that is known before it
/// is opened.
///
/// # Errors
/// Why not.
pub fn expect_possible(spec: &Spec) -> Result<(), SnapshotError> {
    let name = || spec.name.clone();
    match spec.kind.name() {
        _ if spec.encryption.is_some() => Err(SnapshotError::Encrypted(name())),
        _ if spec.checksum => Err(SnapshotError::Checksummed(name())),
        "file" if spec.read_only => Err(SnapshotError::ReadOnly(name())),
        "file" => Ok(()),
        kind => Err(SnapshotError::Kind(name(), kind)),
    }
}

/// Makes a snapshot of that name of each of the volumes, all of one instant. On the disk
/// when it returns. Blocks.
///
/// # Errors
/// Why there is none of any of them.
pub fn create(
    volumes: &[Arc<dyn Volume>],
    name: &str,
    taken_unix_ms: u64,
) -> Result<(), SnapshotError> {
    check_name(name)?;
    let parts = parts(volumes)?;
    let _changing = Vec::from_iter(parts.iter().map(SnapshotVolume::change));
    let made: Result<Vec<_>, _> = parts.iter().map(|part| part.prepare(name)).collect();
    let mut made = made?;
    let sizes = Vec::from_iter(parts.iter().map(SnapshotVolume::keep_size));
    let held = hold(&parts)?;
    for half in &mut made {
        half.take()?;
    }
    drop((held, sizes));
    for half in &mut made {
        half.keep(taken_unix_ms)?;
    }
    made.into_iter().for_each(HalfMade::stays);
    Ok(())
}

/// The snapshots of a volume, oldest first. Blocks.
///
/// # Errors
/// They cannot be listed.
pub fn list(volume: &dyn Volume) -> Result<Vec<Snapshot>, SnapshotError> {
    let Some(snapshots) = volume.snapshots() else {
        return Ok(Vec::new());
    };
    let part = SnapshotVolume::of(volume, snapshots);
    let names = part.names()?.into_iter();
    let mut all: Vec<_> = names.map(|name| part.look(name)).collect();
    all.sort_by(|a, b| (a.taken_unix_ms, &a.name).cmp(&(b.taken_unix_ms, &b.name)));
    Ok(all)
}

/// The names of the snapshots of a volume, of which nothing else is looked at. Blocks.
///
/// # Errors
/// They cannot be listed.
pub fn names(volume: &dyn Volume) -> Result<Vec<String>, SnapshotError> {
    match volume.snapshots() {
        Some(snapshots) => SnapshotVolume::of(volume, snapshots).names(),
        None => Ok(Vec::new()),
    }
}

/// Removes a snapshot, or what was received of one. Blocks.
///
/// # Errors
/// It is not there, or cannot be removed: then it is still there.
pub fn remove(volume: &dyn Volume, name: &str) -> Result<(), SnapshotError> {
    let part = SnapshotVolume::try_of(volume)?;
    let _changing = part.change();
    if let Err(unknown) = part.expect(name) {
        return match check_name(name).is_ok() && receive::discard(&part, name)? {
            true => Ok(()),
            false => Err(unknown),
        };
    }
    part.expect_no_rollback_to(name)?;
    let removed = part.medium().remove(name);
    removed.map_err(|error| part.cannot_change("remove", name, error))
}

/// Calls a snapshot `to` from now on. Blocks.
///
/// # Errors
/// It is not there, another is called so, or it cannot be renamed: then it has its name.
pub fn rename(volume: &dyn Volume, name: &str, to: &str) -> Result<(), SnapshotError> {
    check_name(to)?;
    let part = SnapshotVolume::try_of(volume)?;
    let _changing = part.change();
    part.expect(name)?;
    part.expect_no(to)?;
    part.expect_no_rollback_to(name)?;
    let renamed = part.medium().rename(name, to);
    renamed.map_err(|error| part.cannot_change("rename", name, error))
}

/// What a clone has to be as a volume of the kind `file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClonedFile {
    /// What it holds.
    pub size_bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
}

/// Makes a file at `path` that holds what a snapshot holds and shares its blocks: a `file`
/// volume of its own, which needs neither the snapshot nor its volume. On the disk when it
/// returns. Blocks.
///
/// # Errors
/// Why there is no such file, or that something was there before.
pub fn clone_to(volume: &dyn Volume, name: &str, path: &Path) -> Result<ClonedFile, SnapshotError> {
    let part = SnapshotVolume::try_of(volume)?;
    let _changing = part.change();
    part.expect(name)?;
    let damaged = |why| SnapshotError::Damaged(part.name(), name.to_owned(), why);
    let record = part.whole(name).map_err(damaged)?;
    let cloned = part.medium().clone_to(name, path, &record.unreadable());
    let action = format!("clone the snapshot \"{name}\" to {}", path.display());
    cloned.map_err(part.system(action))?;
    Ok(ClonedFile {
        size_bytes: record.size_bytes,
        block_bytes: record.block_bytes,
    })
}

/// A file beside that of a volume for a clone of that name, if the volume has a path.
pub fn beside(volume: &dyn Volume, name: &str) -> Option<PathBuf> {
    volume.snapshots()?.medium.beside(name)
}

/// Takes away what [`clone_to`] has made. Blocks.
pub fn discard_clone(path: &Path) {
    for path in [spec::beside(path), path.to_owned()] {
        let _ = fs::remove_file(path);
    }
}

/// Whether each of the volumes may be rolled back to its snapshot of that name. Blocks.
///
/// # Errors
/// Why not.
pub fn expect_rollback(volumes: &[Arc<dyn Volume>], name: &str) -> Result<(), SnapshotError> {
    let parts = parts(volumes)?;
    parts
        .iter()
        .try_for_each(|part| part.to_roll_back(name).map(drop))
}

/// Has each of the volumes hold what it held when its snapshot of that name was made. What
/// hosts know of them is not told: that is the caller's. On the disk when it returns. Blocks.
///
/// # Errors
/// Nothing has changed, except after [`SnapshotError::HalfRolledBack`]: the others are rolled
/// back then.
pub fn rollback(volumes: &[Arc<dyn Volume>], name: &str) -> Result<(), SnapshotError> {
    let parts = parts(volumes)?;
    let _changing = Vec::from_iter(parts.iter().map(SnapshotVolume::change));
    let _sizes = Vec::from_iter(parts.iter().map(SnapshotVolume::keep_size));
    let records: Result<Vec<_>, _> = parts.iter().map(|part| part.to_roll_back(name)).collect();
    let records = records?;
    let _held = hold(&parts)?;
    for (at, part) in parts.iter().enumerate() {
        if let Err(error) = part.medium().set_pending(Some(name)) {
            // None has begun.
            let undone = parts[..=at].iter().map(|begun| {
                let undone = begun.medium().set_pending(None);
                undone.map_err(|error| begun.half_rolled_back(name, error))
            });
            undone.fold(Ok(()), Result::and)?;
            return Err(part.system("begin a rollback")(error));
        }
    }
    // All of them, whatever has become of one: none is rolled back later than now, when it was
    // written again.
    let parts = parts.iter().zip(&records);
    let restored = parts.map(|(part, record)| part.restore(name, record));
    restored.fold(Ok(()), Result::and)
}

/// What volumes have for their snapshots, each of them once, in the order in which they are
/// locked: that of two callers never closes a circle.
fn parts(volumes: &[Arc<dyn Volume>]) -> Result<Vec<SnapshotVolume<'_>>, SnapshotError> {
    let mut parts: BTreeMap<Uuid, SnapshotVolume<'_>> = BTreeMap::new();
    for volume in volumes {
        parts.insert(volume.info().uuid, SnapshotVolume::try_of(&**volume)?);
    }
    Ok(parts.into_values().collect())
}

/// Waits until no I/O of any of them is under way. None begins while the answer lives.
fn hold<'p>(parts: &'p [SnapshotVolume<'_>]) -> Result<Vec<HeldRange<'p>>, SnapshotError> {
    if faults::is(Fault::SnapshotUnheld) {
        return Ok(Vec::new());
    }
    let begin = Instant::now();
    let held = parts.iter().map(|part| {
        let patience = part.snapshots.patience.saturating_sub(begin.elapsed());
        let all = Claim::new(0, u64::MAX, true);
        let held = part.snapshots.locks.hold_within(all, patience);
        held.ok_or_else(|| SnapshotError::Busy(part.name()))
    });
    held.collect()
}

/// A volume whose kind has snapshots.
struct SnapshotVolume<'v> {
    base: &'v Base,
    snapshots: &'v Snapshots,
}

impl<'v> SnapshotVolume<'v> {
    fn of(volume: &'v dyn Volume, snapshots: &'v Snapshots) -> SnapshotVolume<'v> {
        let base = volume.base();
        SnapshotVolume { base, snapshots }
    }

    fn try_of(volume: &'v dyn Volume) -> Result<SnapshotVolume<'v>, SnapshotError> {
        match volume.snapshots() {
            Some(snapshots) => Ok(SnapshotVolume::of(volume, snapshots)),
            None => {
                let info = volume.info();
                let name = info.name.clone();
                Err(match volume.encryption() {
                    Some(_) => SnapshotError::Encrypted(name),
                    None if volume.has_checksums() => SnapshotError::Checksummed(name),
                    None => SnapshotError::Kind(name, info.kind),
                })
            }
        }
    }

    fn name(&self) -> String {
        self.base.info.name.clone()
    }

    fn medium(&self) -> &'v dyn SnapshotMedium {
        &*self.snapshots.medium
    }

    /// Keeps other changes of its snapshots away.
    fn change(&self) -> MutexGuard<'v, ()> {
        let changing = self.snapshots.changing.lock();
        changing.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps changes of its size away.
    fn keep_size(&self) -> MutexGuard<'v, ()> {
        let resizing = self.snapshots.resizing.lock();
        resizing.unwrap_or_else(PoisonError::into_inner)
    }

    fn system(&self, action: impl Into<String>) -> impl FnOnce(io::Error) -> SnapshotError {
        let (volume, action) = (self.name(), action.into());
        move |source| SnapshotError::System {
            volume,
            action,
            source,
        }
    }

    fn cannot_change(&self, action: &str, name: &str, error: io::Error) -> SnapshotError {
        match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => SnapshotError::Served(self.name(), name.to_owned()),
            _ => self.system(format!("{action} the snapshot \"{name}\""))(error),
        }
    }

    /// Where those lie that are sent and received.
    fn folder(&self) -> Result<&'v Path, SnapshotError> {
        let unsupported = || io::ErrorKind::Unsupported.into();
        let folder = self.medium().folder().ok_or_else(unsupported);
        folder.map_err(self.system("find the snapshots"))
    }

    fn names(&self) -> Result<Vec<String>, SnapshotError> {
        let names = self.medium().names();
        names.map_err(self.system("list the snapshots"))
    }

    fn expect(&self, name: &str) -> Result<(), SnapshotError> {
        let names = self.names()?;
        match names.iter().any(|known| known == name) {
            true => Ok(()),
            false => Err(SnapshotError::Unknown(self.name(), name.to_owned())),
        }
    }

    fn expect_no(&self, name: &str) -> Result<(), SnapshotError> {
        let names = self.names()?;
        match names.iter().any(|known| known == name) {
            true => Err(SnapshotError::Exists(self.name(), name.to_owned())),
            false if names.len() >= SNAPSHOTS_MAX => Err(SnapshotError::TooMany(self.name())),
            false => Ok(()),
        }
    }

    fn expect_no_rollback_to(&self, name: &str) -> Result<(), SnapshotError> {
        let pending = self.medium().pending();
        match pending.map_err(self.system("look for a rollback"))? {
            Some(pending) if pending == name => Err(SnapshotError::Pending(self.name(), pending)),
            _ => Ok(()),
        }
    }

    /// What a snapshot is, or why nothing can be made of it.
    fn look(&self, name: String) -> Snapshot {
        let (record, data) = (self.record(&name), self.medium().data(&name));
        let told = record.as_ref().ok();
        Snapshot {
            taken_unix_ms: told.map_or(0, |record| record.taken_unix_ms),
            size_bytes: told.map_or(0, |record| record.size_bytes),
            unique_bytes: data.as_ref().ok().and_then(|data| data.unique_bytes),
            damage: record.and_then(|record| self.as_made(record, data)).err(),
            name,
        }
    }

    fn record(&self, name: &str) -> Result<SnapshotRecord, String> {
        let bytes = self.medium().record(name);
        let bytes = bytes.map_err(|error| format!("its record cannot be read: {error}"))?;
        SnapshotRecord::parse(&bytes).map_err(|why| format!("its record {why}"))
    }

    /// The record of a snapshot that is as it was made, as far as that can be seen; or why
    /// it is not.
    fn whole(&self, name: &str) -> Result<SnapshotRecord, String> {
        self.as_made(self.record(name)?, self.medium().data(name))
    }

    /// The same of one of which these were read.
    fn as_made(
        &self,
        record: SnapshotRecord,
        data: io::Result<SnapshotData>,
    ) -> Result<SnapshotRecord, String> {
        let uuid = self.base.info.uuid;
        if record.volume != uuid.to_string() {
            return Err(format!(
                "it is of the volume with UUID {}, this one has {uuid}",
                record.volume
            ));
        }
        let data = data.map_err(|error| format!("its data cannot be read: {error}"))?;
        match data.bytes == record.size_bytes {
            true => Ok(record),
            false => Err(format!(
                "its data has {} bytes, not {}",
                data.bytes, record.size_bytes
            )),
        }
    }

    /// Makes room for a snapshot.
    fn prepare<'p>(&'p self, name: &'p str) -> Result<HalfMade<'p>, SnapshotError> {
        if self.base.info.read_only {
            return Err(SnapshotError::ReadOnly(self.name()));
        }
        if self.snapshots.lost.is_some() {
            return Err(SnapshotError::Lost(self.name()));
        }
        self.expect_no(name)?;
        let half = HalfMade {
            part: self,
            name,
            record: None,
            stays: false,
        };
        let prepared = self.medium().prepare(name);
        prepared.map_err(|error| SnapshotError::cannot_make(self.name(), name, error))?;
        Ok(half)
    }

    /// The record of a snapshot that the volume may be rolled back to.
    fn to_roll_back(&self, name: &str) -> Result<SnapshotRecord, SnapshotError> {
        self.expect(name)?;
        let (volume, snapshot) = (self.name(), name.to_owned());
        if self.base.refuses_writes() {
            return Err(SnapshotError::ReadOnly(volume));
        }
        let record = match self.whole(name) {
            Ok(record) => record,
            Err(why) => return Err(SnapshotError::Damaged(volume, snapshot, why)),
        };
        let (had_bytes, size_bytes) = (record.size_bytes, self.base.size_bytes());
        match had_bytes == size_bytes {
            true => Ok(record),
            false => Err(SnapshotError::Size {
                volume,
                name: snapshot,
                size_bytes,
                had_bytes,
            }),
        }
    }

    /// Brings a rollback that is written down to its end. All that the volume holds is on the
    /// disk then, whatever a sync has lost before. Where that fails nothing of it is readable:
    /// no host is given something of both.
    fn restore(&self, name: &str, record: &SnapshotRecord) -> Result<(), SnapshotError> {
        let all = Range {
            offset: 0,
            len: u64::MAX,
        };
        self.base.changes(0, u64::MAX);
        let kept = self.base.kept();
        let restored = self.medium().restore(name).and_then(|()| {
            kept.unreadable.restore(all, &record.unreadable());
            kept.save(all)?;
            self.base.state().leave_mirror()?;
            self.medium().set_pending(None)
        });
        restored.map_err(|error| self.half_rolled_back(name, error))?;
        self.snapshots.lost.forget();
        Ok(())
    }

    /// What the volume holds now, or after the next start, is not certain: nothing of it is
    /// readable, and nothing more is said to be durable.
    fn half_rolled_back(&self, name: &str, error: io::Error) -> SnapshotError {
        let lost = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        self.snapshots.lost.keep(lost);
        self.base.kept().unreadable.add(0, self.base.size_bytes());
        SnapshotError::HalfRolledBack(self.name(), name.to_owned(), error)
    }
}

impl Snapshots {
    /// Brings a rollback to its end that a crash has interrupted, and takes away what of
    /// others it has left. Blocks.
    pub(crate) fn settle(&self, base: &Base) -> Result<(), SnapshotError> {
        let part = SnapshotVolume {
            base,
            snapshots: self,
        };
        let pending = self.medium.pending();
        let pending = pending.map_err(part.system("look for a rollback"))?;
        if let Some(name) = pending {
            if base.info.read_only {
                return Err(SnapshotError::Pending(part.name(), name));
            }
            let record = part
                .whole(&name)
                .map_err(|why| SnapshotError::PendingDamaged(part.name(), name.clone(), why))?;
            part.restore(&name, &record)?;
            tracing::warn!(
                volume = base.info.name,
                snapshot = name,
                "a rollback that was interrupted is brought to its end"
            );
        }
        if !base.info.read_only {
            self.medium.clean();
            receive::clean(&part);
        }
        Ok(())
    }
}

/// A snapshot that is not there before all that are made with it are. Dropped, nothing
/// stays of it.
struct HalfMade<'p> {
    part: &'p SnapshotVolume<'p>,
    name: &'p str,
    /// Of the instant that it was taken at.
    record: Option<SnapshotRecord>,
    stays: bool,
}

impl HalfMade<'_> {
    /// Shares the blocks of the volume, of which no I/O is under way.
    fn take(&mut self) -> Result<(), SnapshotError> {
        let base = self.part.base;
        let taken = self.part.medium().take(self.name);
        let cannot = |error| SnapshotError::cannot_make(self.part.name(), self.name, error);
        taken.map_err(cannot)?;
        let unreadable = base.unreadable(0, u64::MAX, RANGES_MAX);
        self.record = Some(SnapshotRecord::of(base, &unreadable));
        Ok(())
    }

    /// Makes it durable, and then seen.
    fn keep(&mut self, taken_unix_ms: u64) -> Result<(), SnapshotError> {
        let record = self.record.take().expect("it is taken");
        let record = record.made(taken_unix_ms);
        let kept = record.and_then(|record| self.part.medium().keep(self.name, &record.text()));
        kept.map_err(|error| SnapshotError::cannot_make(self.part.name(), self.name, error))
    }

    /// All that are made with it are there.
    fn stays(mut self) {
        self.stays = true;
    }
}

impl Drop for HalfMade<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.part.medium().discard(self.name);
        }
    }
}
