//! What a volume holds now, compared with its snapshots, as far as the file system tells without
//! any of it being read.
//!
//! A volume shares its blocks with a snapshot, and what is written to it from then on goes
//! elsewhere. So where both have their bytes at one place they hold the same, once all that was
//! answered has its place. What is not known counts as different: it may cost a reader time, and
//! the opposite would cost data.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use reactor::DiskFile;
use rustix::fs::OFlags;
use uuid::Uuid;

use super::changes::{DataFile, runs_of_both};
use super::folder::{DATA, RECORD, SUFFIX, SnapshotFolder, names_in, open_regular, own_path, read};
use super::record::SnapshotRecord;
use super::{SnapshotMedium, check_name};
use crate::unreadable::RANGES_MAX;
use crate::{Range, Volume};

/// Looks at both for the parts of one range, each of many runs: a file in many pieces of which
/// nothing has changed is not gone through at once.
const STEPS_MAX: usize = 32;

/// What a volume needs to be compared with snapshots.
pub struct Comparable {
    /// Where they lie.
    folder: PathBuf,
    /// The volume that they are of.
    original: Uuid,
    /// Of its own: what a sync here reports is still reported to the syncs of hosts.
    file: File,
    /// Whether a sync has failed; `None` of what is never written.
    has_failed: Option<Mutex<bool>>,
}

impl Comparable {
    /// Of a volume whose snapshots lie there. Opened with it, so that each write that fails later is
    /// seen.
    pub(crate) fn volume(
        folder: &SnapshotFolder,
        file: &Arc<DiskFile>,
        uuid: Uuid,
    ) -> Option<Comparable> {
        Some(Comparable {
            folder: folder.folder()?.to_owned(),
            original: uuid,
            file: File::open(own_path(&**file)).ok()?,
            has_failed: Some(Mutex::new(false)),
        })
    }

    /// Of the snapshot in the folder at `path`, if it lies where those of its volume do.
    pub(crate) fn snapshot(
        path: &Path,
        file: &Arc<DiskFile>,
        original: Uuid,
    ) -> Option<Comparable> {
        let path = path.canonicalize().ok()?;
        let folder = path.parent()?;
        let is_of_snapshots = folder.to_str()?.ends_with(SUFFIX);
        is_of_snapshots.then_some(Comparable {
            folder: folder.to_owned(),
            original,
            file: File::open(own_path(&**file)).ok()?,
            has_failed: None,
        })
    }

    /// Gives its place to all that was answered. Not once a sync has failed: what that has lost is
    /// where nothing was written.
    fn sync(&self) -> io::Result<()> {
        let Some(has_failed) = &self.has_failed else {
            return Ok(());
        };
        let mut has_failed = has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*has_failed {
            *has_failed = self.file.sync_data().is_err();
        }
        match *has_failed {
            true => Err(io::ErrorKind::Other.into()),
            false => Ok(()),
        }
    }

    /// The snapshot of a name: of one, whatever is renamed or removed meanwhile.
    fn open(&self, name: &str) -> io::Result<(SnapshotRecord, File)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        check_name(name).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        let options = options.read(true);
        let folder = options
            .custom_flags(OFlags::DIRECTORY.bits().cast_signed())
            .open(self.folder.join(name))?;
        let within = PathBuf::from(own_path(&folder));
        let record = SnapshotRecord::parse(&read(&within.join(RECORD))?);
        let record = record.map_err(|_| invalid())?;
        let data = open_regular(&within.join(DATA))?;
        let is_whole = data.metadata()?.len() == record.size_bytes;
        match is_whole && record.volume == self.original.to_string() {
            true => Ok((record, data)),
            false => Err(invalid()),
        }
    }
}

/// The names of the snapshots that a volume may be compared with, in their order, behind `after`,
/// of those that are `asked` for; `max` at most. None of them is opened. Blocks.
///
/// # Errors
/// They cannot be listed.
pub fn names_behind(
    volume: &dyn Volume,
    after: Option<&str>,
    asked: impl Fn(&str) -> bool,
    max: usize,
) -> io::Result<Vec<String>> {
    let Some(comparable) = volume.comparable() else {
        return Ok(Vec::new());
    };
    let mut names = names_in(&comparable.folder)?;
    names.retain(|name| Some(&**name) > after && asked(name));
    names.sort();
    names.truncate(max);
    Ok(names)
}

/// What no other snapshot has, of one that a volume may be compared with; `None`: there is none of
/// that name that is whole. Blocks.
pub fn identity_of(volume: &dyn Volume, name: &str) -> Option<[u8; 16]> {
    let comparable = volume.comparable()?;
    let (record, _) = comparable.open(name).ok()?;
    Some(record.uuid(comparable.original).into_bytes())
}

/// A part of a volume, behind the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparedPart {
    /// Bytes.
    pub len: u64,
    /// Whether it may hold what the snapshot does not.
    pub may_differ: bool,
}

/// What a volume holds, with all that was answered before this was made.
pub struct Comparison<'v> {
    volume: &'v dyn Volume,
    /// `None`: nothing is known of it.
    now: Option<(&'v Comparable, DataFile)>,
}

impl Comparison<'_> {
    /// Syncs the volume, once for all snapshots that it is compared with; blocks.
    pub fn of(volume: &dyn Volume) -> Comparison<'_> {
        let opened = |comparable: &Comparable| {
            comparable.sync()?;
            DataFile::new(comparable.file.try_clone()?)
        };
        let now = volume
            .comparable()
            .and_then(|comparable| Some((comparable, opened(comparable).ok()?)));
        Comparison { volume, now }
    }

    /// The parts of a range, in order and without gaps from its start, `max` at most, in whole
    /// blocks. All of it may differ where the snapshot of that name is not the one with this
    /// identity any more, and where anything else is in the way. Blocks.
    pub fn parts(
        &self,
        name: &str,
        identity: [u8; 16],
        range: Range,
        max: usize,
    ) -> Vec<ComparedPart> {
        let mut parts = ComparedParts {
            all: Vec::new(),
            max,
            marks: Vec::new(),
            marks_passed: 0,
            at: range.offset,
            end: range.offset + range.len,
        };
        let known = self.now.as_ref().and_then(|(comparable, now)| {
            let (record, data) = comparable.open(name).ok()?;
            let is_same = record.uuid(comparable.original).into_bytes() == identity;
            let then = DataFile::new(data).ok().filter(|_| is_same)?;
            Some((now, then, record))
        });
        if let Some((now, then, record)) = known {
            let Range { offset, len } = range;
            parts.marks = record.unreadable();
            let mine = self.volume.unreadable(offset, len, RANGES_MAX);
            parts.marks.extend(mine);
            parts.marks.sort_by_key(|mark| mark.offset);
            parts.compare(now, &then);
        } else {
            parts.add(parts.end, true);
        }
        parts.in_whole_blocks(self.volume.info().block_bytes.into())
    }
}

/// ComparedParts as they are found.
struct ComparedParts {
    all: Vec<ComparedPart>,
    max: usize,
    /// What is marked as unreadable, by first byte: it counts as different.
    marks: Vec<Range>,
    /// So many of them end before where this has come to.
    marks_passed: usize,
    /// How far they go,
    at: u64,
    /// and how far they may.
    end: u64,
}

impl ComparedParts {
    fn compare(&mut self, now: &DataFile, then: &DataFile) {
        for _ in 0..STEPS_MAX {
            if self.at >= self.end {
                return;
            }
            // What lies behind the end of the snapshot is not part of it.
            if self.at >= then.bytes {
                self.add(self.end, true);
                return;
            }
            let Ok((mine, theirs)) = runs_of_both(now, then, self.at) else {
                self.add(self.end, true);
                return;
            };
            let (mut mine, mut theirs) = (mine.iter().peekable(), theirs.iter().peekable());
            while self.at < self.end.min(then.bytes)
                && let (Some(one), Some(other)) = (mine.peek(), theirs.peek())
            {
                let end = one.end.min(other.end).min(then.bytes);
                if !self.add_around_marks(end, one.held.may_differ(other.held)) {
                    return;
                }
                mine.next_if(|run| run.end <= end);
                theirs.next_if(|run| run.end <= end);
            }
        }
    }

    /// Whether there is room for more.
    fn add_around_marks(&mut self, end: u64, may_differ: bool) -> bool {
        let end = end.min(self.end);
        while self.at < end {
            let (mut next, mut is_marked) = (end, false);
            let mark_end = |mark: &Range| mark.offset.saturating_add(mark.len);
            while let Some(mark) = self.marks.get(self.marks_passed) {
                if mark_end(mark) > self.at {
                    is_marked = mark.offset <= self.at;
                    let edge = if is_marked {
                        mark_end(mark)
                    } else {
                        mark.offset
                    };
                    next = edge.min(end);
                    break;
                }
                self.marks_passed += 1;
            }
            if !self.add(next, may_differ || is_marked) {
                return false;
            }
        }
        true
    }

    fn add(&mut self, end: u64, may_differ: bool) -> bool {
        let len = end - self.at;
        let is_full = self.all.len() >= self.max;
        match self.all.last_mut() {
            Some(last) if last.may_differ == may_differ => last.len += len,
            _ if is_full => return false,
            _ => self.all.push(ComparedPart { len, may_differ }),
        }
        self.at = end;
        true
    }

    /// The same in whole blocks: one of which a part may differ may differ.
    fn in_whole_blocks(self, block_bytes: u64) -> Vec<ComparedPart> {
        let whole_end = self.at / block_bytes * block_bytes;
        let first = self.at - self.all.iter().map(|part| part.len).sum::<u64>();
        let mut whole = ComparedParts {
            at: first,
            all: Vec::new(),
            ..self
        };
        // Nothing of a block is known where no more than a part of it was looked at.
        let stop = whole_end.max((first + block_bytes).min(whole.end));
        let mut reached = first;
        for part in &self.all {
            let (from, to) = (reached, reached + part.len);
            reached = to;
            let (from, to) = match part.may_differ {
                true => (
                    from / block_bytes * block_bytes,
                    to.next_multiple_of(block_bytes),
                ),
                false => (
                    from.next_multiple_of(block_bytes),
                    to / block_bytes * block_bytes,
                ),
            };
            if to.min(stop) > whole.at.max(from) {
                whole.add(to.min(stop), part.may_differ);
            }
        }
        if whole.at < stop {
            whole.add(stop, true);
        }
        whole.all
    }
}
