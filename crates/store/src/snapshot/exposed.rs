//! A snapshot as a volume of its own, of which nothing is changed.

use std::fs::{File, TryLockError};
use std::path::Path;

use uuid::Uuid;

use super::folder::{DATA, RECORD, open_regular, read};
use super::record::SnapshotRecord;
use crate::identity;
use crate::problem::Problem;
use crate::regular::holder;
use crate::{Range, Spec};

/// What a snapshot is as a volume.
pub(crate) struct Exposed {
    /// Locked, so that it stays where it is.
    pub(crate) file: File,
    /// It goes with the snapshot, whatever that is called.
    pub(crate) uuid: Uuid,
    pub(crate) size_bytes: u64,
    /// The volume that it is of.
    pub(crate) original: Uuid,
    /// What was marked when it was made.
    pub(crate) unreadable: Vec<Range>,
}

/// The snapshot whose folder is at `path`. Nothing is changed; blocks.
pub(crate) fn expose(spec: &Spec, path: &Path) -> Result<Exposed, Problem> {
    let system = |action, part: &str| {
        let path = Some(path.join(part));
        move |source| Problem::System {
            action,
            path,
            source,
        }
    };
    let damaged = |why: String| Problem::DamagedSnapshot(path.to_owned(), why);
    if !path.is_dir() {
        return Err(Problem::NoSnapshot(path.to_owned()));
    }
    let bytes = read(&path.join(RECORD)).map_err(system("read", RECORD))?;
    let record =
        SnapshotRecord::parse(&bytes).map_err(|why| damaged(format!("its record {why}")))?;
    let file = open_regular(&path.join(DATA)).map_err(system("open", DATA))?;
    let has_bytes = file.metadata().map_err(system("examine", DATA))?.len();
    if has_bytes != record.size_bytes {
        let why = format!("its data has {has_bytes} bytes, not {}", record.size_bytes);
        return Err(damaged(why));
    }
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Problem::InUse {
                path: path.to_owned(),
                holder: holder(&file),
            });
        }
        Err(TryLockError::Error(error)) => return Err(system("lock", DATA)(error)),
    }
    if record.block_bytes != spec.block_bytes {
        return Err(Problem::SnapshotBlock {
            path: path.to_owned(),
            block_bytes: record.block_bytes,
        });
    }
    if ![0, record.size_bytes].contains(&spec.size_bytes) {
        return Err(Problem::FileSize {
            path: path.to_owned(),
            file_bytes: record.size_bytes,
            size_bytes: spec.size_bytes,
        });
    }
    let original = Uuid::try_parse(&record.volume);
    let original = original.map_err(|why| damaged(format!("its record is damaged: {why}")))?;
    let own = || identity::of_copy(original, &format!("snapshot\n{}", record.taken_unix_ms));
    Ok(Exposed {
        uuid: spec.uuid.unwrap_or_else(own),
        size_bytes: record.size_bytes,
        original,
        unreadable: record.unreadable(),
        file,
    })
}
