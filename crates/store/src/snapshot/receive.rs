//! A snapshot of another machine, as a stream brings it: a snapshot of a volume here. The
//! volume itself stays as it is.
//!
//! It is received beside the others, under a name that begins with a dot, and renamed when it
//! is whole and durable. Beside its data lies the header of its stream, with the byte up to
//! which all was received: a stream that goes on from there brings the rest. What is received
//! since another snapshot begins with the blocks of that.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use super::folder::{DATA, is_no_folder, make_folder, make_root, read};
use super::record::SnapshotRecord;
use super::send::open_data;
use super::stream::{HEADER_BYTES, StreamError, StreamHeader, StreamReader, StreamRecord};
use super::{SnapshotError, SnapshotVolume, check_name};
use crate::{Range, Volume};

/// What comes behind the name, between the dot and this, of one that is received.
const SUFFIX: &str = ".part";
/// The header of its stream, with how far that has come.
const PROGRESS: &str = "progress";
/// Those that are not whole, of a volume at most.
const PARTS_MAX: usize = 16;
/// Data that comes before it is durable, and need not come again after a crash.
const UNSYNCED_BYTES_MAX: u64 = 256 << 20;

/// A snapshot of which a part was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPart {
    /// How it is called.
    pub name: String,
    /// How large it will be.
    pub size_bytes: u64,
    /// All before this byte was received.
    pub received_bytes: u64,
}

/// Takes what a stream brings, as a snapshot of that name. Blocks.
///
/// # Errors
/// There is no such snapshot. What came before a stream was cut stays: another goes on from
/// there.
pub fn receive(volume: &dyn Volume, name: &str, input: impl Read) -> Result<(), SnapshotError> {
    let part = SnapshotVolume::try_of(volume)?;
    check_name(name)?;
    if part.base.info.read_only {
        return Err(SnapshotError::ReadOnly(part.name()));
    }
    let stream = StreamReader::new(input);
    let mut stream = stream.map_err(|why| SnapshotError::Stream(part.name(), why))?;
    let header = StreamHeader {
        name: name.to_owned(),
        ..stream.header().clone()
    };
    let mut incoming = Incoming::begin(&part, header)?;
    match incoming.take_all(&mut stream) {
        Ok(unreadable) => incoming.keep(&part, &unreadable),
        Err(why) => {
            // Where that fails it has come as far as was noted before.
            let _ = incoming.save();
            let from = incoming.header.from;
            Err(SnapshotError::Cut(part.name(), name.to_owned(), from, why))
        }
    }
}

/// Those of a volume that are not whole. Blocks.
///
/// # Errors
/// They cannot be listed.
pub fn received_parts(volume: &dyn Volume) -> Result<Vec<SnapshotPart>, SnapshotError> {
    let Some(snapshots) = volume.snapshots() else {
        return Ok(Vec::new());
    };
    let part = SnapshotVolume::of(volume, snapshots);
    let Some(folder) = part.medium().folder() else {
        return Ok(Vec::new());
    };
    let names = part_names(folder).map_err(part.system("list the snapshots"))?;
    let headers = names.iter().filter_map(|name| progress(folder, name));
    Ok(headers
        .map(|header| SnapshotPart {
            name: header.name,
            size_bytes: header.size_bytes,
            received_bytes: header.from,
        })
        .collect())
}

/// Takes away what a crash has left of those that had not begun.
pub(super) fn clean(part: &SnapshotVolume<'_>) {
    let Some(folder) = part.medium().folder() else {
        return;
    };
    let names = part_names(folder).unwrap_or_default().into_iter();
    for name in names.filter(|name| progress(folder, name).is_none()) {
        let place = place(folder, &name);
        if let Err(error) = fs::remove_dir_all(&place) {
            let path = place.display();
            tracing::warn!(%path, %error, "what a crash left of a snapshot cannot be removed");
        }
    }
}

/// Removes what was received of a snapshot; whether there was something.
pub(super) fn discard(part: &SnapshotVolume<'_>, name: &str) -> Result<bool, SnapshotError> {
    let Some(folder) = part.medium().folder() else {
        return Ok(false);
    };
    let place = place(folder, name);
    if !place.is_dir() {
        return Ok(false);
    }
    let _held = lock(part, &place, name)?;
    let removed = fs::remove_dir_all(&place);
    let action = format!("remove what was received of the snapshot \"{name}\"");
    removed.map(|()| true).map_err(part.system(action))
}

fn place(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}{SUFFIX}"))
}

fn part_names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if is_no_folder(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().into_string().unwrap_or_default();
        let name = name.strip_prefix('.').and_then(|n| n.strip_suffix(SUFFIX));
        names.extend(
            name.filter(|name| check_name(name).is_ok())
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

/// How far one has come, if it has begun.
fn progress(folder: &Path, name: &str) -> Option<StreamHeader> {
    let place = place(folder, name);
    let bytes = read(&place.join(PROGRESS)).ok()?;
    let bytes = <&[u8; HEADER_BYTES]>::try_from(&*bytes).ok()?;
    let header = StreamHeader::parse(bytes).ok()?;
    let data = fs::metadata(place.join(DATA)).ok()?;
    let is_whole = header.name == name && data.len() == header.size_bytes;
    is_whole.then_some(header)
}

/// The data of one, which no other stream brings meanwhile.
struct LockedData(File);

impl Drop for LockedData {
    fn drop(&mut self) {
        // A program that is being started may have the descriptor for a moment yet.
        let _ = self.0.unlock();
    }
}

fn lock(part: &SnapshotVolume<'_>, place: &Path, name: &str) -> Result<LockedData, SnapshotError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let data = place.join(DATA);
    // Of one that was about to be kept nothing may be written.
    let _ = fs::set_permissions(&data, Permissions::from_mode(0o600));
    let file = options.mode(0o600).open(data);
    let system = |error| part.system(format!("receive the snapshot \"{name}\""))(error);
    let file = file.map_err(system)?;
    match file.try_lock() {
        Ok(()) => Ok(LockedData(file)),
        Err(TryLockError::WouldBlock) => {
            Err(SnapshotError::Receiving(part.name(), name.to_owned()))
        }
        Err(TryLockError::Error(error)) => Err(system(error)),
    }
}

/// A snapshot that a stream brings.
struct Incoming {
    folder: PathBuf,
    /// Of its stream, which goes on from the byte up to which all is there.
    header: StreamHeader,
    data: LockedData,
    /// All before this byte is durable.
    durable: u64,
    unsynced_bytes: u64,
}

impl Incoming {
    fn begin(part: &SnapshotVolume<'_>, header: StreamHeader) -> Result<Incoming, SnapshotError> {
        let (volume, name) = (part.name(), header.name.clone());
        let folder = part.folder()?.to_owned();
        let block_bytes = part.base.info.block_bytes;
        if header.block_bytes != block_bytes {
            let theirs = header.block_bytes;
            return Err(SnapshotError::OtherBlocks(
                volume,
                block_bytes,
                name,
                theirs,
            ));
        }
        let _changing = part.change();
        part.expect_no(&name)?;
        let place = place(&folder, &name);
        // No other receives it any more once it is looked at.
        let held = place.is_dir().then(|| lock(part, &place, &name));
        let held = held.transpose()?;
        let known = progress(&folder, &name);
        let has_bytes = known.as_ref().map_or(0, |known| known.from);
        if header.from > has_bytes {
            return Err(SnapshotError::From(volume, name, header.from, has_bytes));
        }
        let begun = StreamHeader {
            from: has_bytes,
            ..header
        };
        if known.as_ref().is_some_and(|known| *known != begun) {
            return Err(SnapshotError::OtherPart(volume, name));
        }
        let data = match held {
            Some(data) if known.is_some() => data,
            _ => Incoming::make(part, &folder, &name)?,
        };
        let mut incoming = Incoming {
            data,
            folder,
            header: begun,
            durable: has_bytes,
            unsynced_bytes: 0,
        };
        if has_bytes == 0 {
            let begun = incoming.fill_with_base(part);
            if begun.is_err() {
                let _ = fs::remove_dir_all(&place);
            }
            begun?;
        }
        Ok(incoming)
    }

    /// Makes room for one of which nothing that counts is there.
    fn make(
        part: &SnapshotVolume<'_>,
        folder: &Path,
        name: &str,
    ) -> Result<LockedData, SnapshotError> {
        let system = || part.system(format!("receive the snapshot \"{name}\""));
        let others = part_names(folder).map_err(system())?;
        let begun = others.iter().filter_map(|other| progress(folder, other));
        if begun.count() >= PARTS_MAX {
            return Err(SnapshotError::TooManyParts(part.name()));
        }
        let place = place(folder, name);
        let made = || {
            make_root(folder)?;
            if place.is_dir() {
                fs::remove_dir_all(&place)?;
            }
            make_folder(&place)?;
            File::open(folder)?.sync_all()
        };
        made().map_err(system())?;
        lock(part, &place, name)
    }

    /// Has it hold what the snapshot holds that the stream is based on, or nothing.
    fn fill_with_base(&mut self, part: &SnapshotVolume<'_>) -> Result<(), SnapshotError> {
        let base = self
            .header
            .since
            .map(|since| base(part, since))
            .transpose()?;
        let name = self.header.name.clone();
        let cannot = |error| SnapshotError::cannot_make(part.name(), &name, error);
        let mut fill = || {
            self.data.0.set_len(0)?;
            match &base {
                Some(base) => {
                    let base = open_data(&self.folder, base)?;
                    reactor::clone_range((base.as_fd(), 0), (self.data.0.as_fd(), 0), 0)?;
                }
                None => part.medium().expect_shares(self.data.0.as_fd())?,
            }
            self.data.0.set_len(self.header.size_bytes)?;
            self.save()
        };
        fill().map_err(cannot)
    }

    /// Takes all that the stream brings; the ranges that are marked.
    fn take_all(
        &mut self,
        stream: &mut StreamReader<impl Read>,
    ) -> Result<Vec<Range>, StreamError> {
        let mut unreadable = Vec::new();
        while let Some(record) = stream.next_record()? {
            let end = match record {
                StreamRecord::Unreadable(range) => {
                    unreadable.push(range);
                    continue;
                }
                StreamRecord::Data(offset, bytes) => {
                    let written = self.data.0.write_all_at(bytes, offset);
                    written.map_err(StreamError::Write)?;
                    self.unsynced_bytes += bytes.len() as u64;
                    offset + bytes.len() as u64
                }
                StreamRecord::Zeros(Range { offset, len }) => {
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let punched = fallocate(&self.data.0, hole, offset, len);
                    punched.map_err(|errno| StreamError::Write(errno.into()))?;
                    offset + len
                }
            };
            self.header.from = self.header.from.max(end);
            if self.unsynced_bytes >= UNSYNCED_BYTES_MAX {
                self.save().map_err(StreamError::Write)?;
            }
        }
        Ok(unreadable)
    }

    /// Makes durable what has come, and that it has.
    fn save(&mut self) -> io::Result<()> {
        let saved = self.note();
        match saved {
            Ok(()) => (self.durable, self.unsynced_bytes) = (self.header.from, 0),
            // What a sync has lost another one does not tell of.
            Err(_) => self.header.from = self.durable,
        }
        saved
    }

    fn note(&self) -> io::Result<()> {
        self.data.0.sync_all()?;
        let place = place(&self.folder, &self.header.name);
        let (path, new) = (place.join(PROGRESS), place.join("progress.new"));
        let mut file = File::create(&new)?;
        file.write_all(&self.header.render())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&place)?.sync_all()
    }

    /// Makes a snapshot of it.
    fn keep(self, part: &SnapshotVolume<'_>, unreadable: &[Range]) -> Result<(), SnapshotError> {
        let name = &*self.header.name;
        let _changing = part.change();
        part.expect_no(name)?;
        let place = place(&self.folder, name);
        let record = SnapshotRecord::received(part.base, &self.header, unreadable);
        let kept = part.medium().keep_part(name, &place, &record.text());
        kept.map_err(|error| SnapshotError::cannot_make(part.name(), name, error))?;
        // It says nothing any more.
        let _ = fs::remove_file(self.folder.join(name).join(PROGRESS));
        Ok(())
    }
}

/// The snapshot that has this UUID.
fn base(part: &SnapshotVolume<'_>, since: uuid::Uuid) -> Result<String, SnapshotError> {
    let volume = part.base.info.uuid;
    let is_it = |name: &String| {
        let record = part.whole(name);
        record.is_ok_and(|record| record.uuid(volume) == since)
    };
    let found = part.names()?.into_iter().find(is_it);
    found.ok_or_else(|| SnapshotError::NoBase(part.name(), since))
}
