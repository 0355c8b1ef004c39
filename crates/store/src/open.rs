//! From a description to an open volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reactor::DiskFile;
use uuid::Uuid;

use crate::file::File;
use crate::null::Null;
use crate::problem::{OpenError, Problem, no_memory};
use crate::ram::Ram;
use crate::spec::{BLOCK_SIZES, Kind, SIZE_MAX_BYTES, Spec, beside};
use crate::state::Former;
use crate::{Base, Info, State, Volume, block, identity, memory, regular, state};

/// A kind of volume: its word, and how it is opened.
pub struct KindRow {
    /// As the configuration has it.
    pub name: &'static str,
    /// An example of its `path`, if it has one.
    pub path: Option<&'static str>,
    /// Where no size is given it has one of its own.
    pub has_own_size: bool,
    /// Whether its state file lies beside its path, unless configured.
    pub(crate) has_state_beside: bool,
    /// Opens a volume whose size and block size are possible. Blocks.
    open: fn(&Spec, &Path) -> OpenResult,
    /// Looks at what would be opened. Nothing is made or changed; blocks.
    examine: fn(&Spec, &Path) -> Result<VolumeFound, Problem>,
}

type OpenResult = Result<Arc<dyn Volume>, Problem>;

/// What is found of a volume that can be opened: its UUID, what its state file may say
/// else, and what may surprise.
type VolumeFound = (Uuid, Option<Former>, Option<String>);

/// Every kind of volume.
pub const KINDS: &[KindRow] = &[
    KindRow {
        name: "null",
        path: None,
        has_own_size: false,
        has_state_beside: false,
        open: |spec, _| Ok(Arc::new(Null::open(in_memory(spec)?).map_err(no_memory)?)),
        examine: |spec, _| Ok(of_memory(spec)),
    },
    KindRow {
        name: "ram",
        path: None,
        has_own_size: false,
        has_state_beside: false,
        open: |spec, _| {
            check_memory(spec.size_bytes)?;
            Ok(Arc::new(Ram::open(in_memory(spec)?).map_err(no_memory)?))
        },
        examine: |spec, _| {
            check_memory(spec.size_bytes)?;
            Ok(of_memory(spec))
        },
    },
    KindRow {
        name: "file",
        path: Some("disk0.img"),
        has_own_size: false,
        has_state_beside: true,
        open: |spec, path| {
            let volume = File::open(spec, path)?;
            volume.look_at_space();
            Ok(Arc::new(volume))
        },
        examine: |spec, path| {
            let note = regular::space_note(spec, path);
            let (uuid, former) = regular::examine(spec, path)?;
            Ok((uuid, former, note))
        },
    },
    KindRow {
        name: "block",
        path: Some("/dev/sdb"),
        has_own_size: true,
        has_state_beside: false,
        open: |spec, path| Ok(Arc::new(File::open_device(spec, path)?)),
        examine: |spec, path| Ok((block::open(spec, path)?.1, None, None)),
    },
];

impl KindRow {
    /// This kind, with the path that it has where an example names one.
    pub fn at(&self, path: Option<PathBuf>) -> Kind {
        let name = self.name;
        Kind { name, path }
    }
}

/// The row of a kind.
pub(crate) fn row(kind: &Kind) -> &'static KindRow {
    let row = KINDS.iter().find(|row| row.name == kind.name);
    row.expect("every kind has a row")
}

impl Spec {
    /// The file that keeps its reservations and the like, if any does.
    pub fn state_path(&self) -> Option<PathBuf> {
        if self.state.is_some() || !row(&self.kind).has_state_beside {
            return self.state.clone();
        }
        self.kind.path().map(beside)
    }
}

/// Where a volume's data lies, empty where it has no path.
fn path(spec: &Spec) -> &Path {
    spec.kind.path().unwrap_or(Path::new(""))
}

/// Opens a volume. Blocks on the file system: not for a reactor at work.
pub fn open(spec: &Spec) -> Result<Arc<dyn Volume>, OpenError> {
    let opened = || {
        check(spec)?;
        (row(&spec.kind).open)(spec, path(spec))
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
        let (uuid, former, note) = (row(&spec.kind).examine)(spec, path(spec))?;
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
    let is_whole_device = size_bytes == 0 && row(&spec.kind).has_own_size;
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

/// What a volume in memory has in common with others.
fn in_memory(spec: &Spec) -> Result<Base, Problem> {
    let (uuid, former, _) = of_memory(spec);
    if let Some(Former::Original(original)) = former {
        tell_copied_state(spec, original, uuid);
    }
    let info = Info {
        // Whatever one I/O may be.
        atomic_bytes: mem::BUF_BYTES_MAX,
        // Nothing outlives a power failure that could be half written.
        atomic_power_fail_bytes: mem::BUF_BYTES_MAX,
        ..spec.info(uuid, false)
    };
    let state = State::in_file(spec, uuid, former, None)?;
    Ok(Base::new(info, spec.size_bytes).with_state(state))
}

/// The identity of a volume in memory, and what else its state file may say.
fn of_memory(spec: &Spec) -> VolumeFound {
    let uuid = spec.uuid_or_derived();
    let former = match state::held(spec) {
        Some(held) if held.copy == Some(uuid) => Former::Original(held.volume),
        _ => Former::Own(identity::derive(spec.kind.name(), &spec.name)),
    };
    (uuid, Some(former), None)
}

/// Warns an operator who relied on a copied state file, or on one from a backup.
fn tell_copied_state(spec: &Spec, original: Uuid, uuid: Uuid) {
    tracing::warn!(
        volume = spec.name,
        state = %spec.state_path().unwrap_or_default().display(),
        %uuid,
        copied_from = %original,
        "the state file is a copy, as from a backup, and hosts find a new disk: if it is to be \
         the volume that it was copied from, stop weft, set uuid = \"{original}\" for it and start \
         weft again"
    );
}

/// Memory is taken as it is written; what can never be filled would end the
/// process when it is.
fn check_memory(size_bytes: u64) -> Result<(), Problem> {
    match memory::limit() {
        Some(limit) if size_bytes > limit.bytes => Err(Problem::Memory { size_bytes, limit }),
        _ => Ok(()),
    }
}
