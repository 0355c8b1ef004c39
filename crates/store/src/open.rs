//! From a description to an open volume.

use std::path::Path;
use std::sync::Arc;

use reactor::DiskFile;

use crate::file::File;
use crate::kind::{KINDS, KindRow};
use crate::problem::{OpenError, Problem};
use crate::spec::{BLOCK_SIZES, SIZE_MAX_BYTES, Spec};
use crate::{Info, State, Volume, state};

/// The row of a volume's kind, and its path.
fn row(spec: &Spec) -> (&'static KindRow, &Path) {
    let row = KINDS.iter().find(|row| row.name == spec.kind.name());
    let path = spec.kind.path().unwrap_or(Path::new(""));
    (row.expect("every kind has a row"), path)
}

/// Opens a volume. Blocks on the file system: not for a reactor at work.
pub fn open(spec: &Spec) -> Result<Arc<dyn Volume>, OpenError> {
    let opened = || {
        check(spec)?;
        let (row, path) = row(spec);
        (row.open)(spec, path)
    };
    opened().map_err(|problem| OpenError {
        volume: spec.name.clone(),
        problem,
    })
}

/// A `file` volume over an open descriptor, of which nothing is asked but
/// through [`reactor::FileIo`] (and its length, when the volume is resized):
/// for descriptors that only a certain driver knows how to treat. What it
/// remembers is saved at once, on the calling thread.
pub fn over_file(
    spec: &Spec,
    file: Arc<DiskFile>,
    state: State,
) -> Result<Arc<dyn Volume>, OpenError> {
    let opened = check(spec).and_then(|()| File::over(spec, file, state));
    match opened {
        Ok(volume) => Ok(Arc::new(volume)),
        Err(problem) => Err(OpenError {
            volume: spec.name.clone(),
            problem,
        }),
    }
}

/// What [`examine`] has found of a volume that can be opened.
#[derive(Debug)]
pub struct Examined {
    /// What hosts would know it by.
    pub info: Info,
    /// What may surprise.
    pub note: Option<String>,
}

/// What would keep a volume from being opened now, or what it would be. Nothing is
/// made or changed; blocks.
pub fn examine(spec: &Spec) -> Result<Examined, OpenError> {
    let examined = || {
        check(spec)?;
        let (row, path) = row(spec);
        let (uuid, former, note) = (row.examine)(spec, path)?;
        state::examine(spec, uuid, former)?;
        let info = spec.info(uuid, false);
        Ok(Examined { info, note })
    };
    examined().map_err(|problem| OpenError {
        volume: spec.name.clone(),
        problem,
    })
}

fn check(spec: &Spec) -> Result<(), Problem> {
    let (size_bytes, block_bytes) = (spec.size_bytes, spec.block_bytes);
    if !BLOCK_SIZES.contains(&block_bytes) {
        return Err(Problem::BlockSize(block_bytes));
    }
    let is_whole_device = size_bytes == 0 && row(spec).0.has_own_size;
    if size_bytes == 0 && !is_whole_device
        || size_bytes > SIZE_MAX_BYTES
        || !size_bytes.is_multiple_of(u64::from(block_bytes))
    {
        return Err(Problem::Size {
            size_bytes,
            block_bytes,
        });
    }
    Ok(())
}
