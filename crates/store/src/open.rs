//! From a description to an open volume.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reactor::DiskFile;
use uuid::Uuid;

use crate::checksummed::{self, file as sums_file};
use crate::direct::DirectFile;
use crate::encrypted::{self, KeyMedium};
use crate::encryption_settings::EncryptionSettings;
use crate::file::File;
use crate::null::Null;
use crate::over::mirror::{self, LEGS_MAX};
use crate::over::{self, PARTS_MAX, PartInfo, Shape};
use crate::problem::{OpenError, Problem, no_memory};
use crate::ram::Ram;
use crate::snapshot::{Exposed, SnapshotMedium};
use crate::spec::{BLOCK_SIZES, Kind, SIZE_MAX_BYTES, Settings, Spec, beside};
use crate::state::Former;
use crate::{
    Base, Info, Medium, Range, State, Volume, block, identity, memory, regular, remote, snapshot,
    state,
};

/// A kind of volume: its word, and how it is opened.
pub struct KindRow {
    /// As the configuration has it.
    pub name: &'static str,
    /// An example of its `path`, if it has one.
    pub path: Option<&'static str>,
    /// Where no size is given it has one of its own.
    pub has_own_size: bool,
    /// Its blocks have a size of their own.
    pub has_own_blocks: bool,
    /// How many other volumes it is made of.
    pub parts: RangeInclusive<usize>,
    /// The keys of the configuration that it alone has.
    pub own_keys: &'static [&'static str],
    /// Whether its state file lies beside its path, unless configured.
    pub(crate) has_state_beside: bool,
    /// Opens a volume whose size and block size are possible. Blocks.
    open: fn(&Spec, &Path, Vec<Arc<dyn Volume>>) -> OpenResult,
    /// Looks at what would be opened. Nothing is made or changed; blocks.
    examine: fn(&Spec, &Path, &[PartInfo]) -> Result<VolumeFound, Problem>,
}

type OpenResult = Result<Arc<dyn Volume>, Problem>;

/// What is found of a volume that can be opened.
struct VolumeFound {
    info: Info,
    size_bytes: u64,
    /// What its state file may say else.
    former: Option<Former>,
    /// What may surprise.
    note: Option<String>,
    /// See [`Examined::has_data`].
    has_data: bool,
}

impl VolumeFound {
    fn new(spec: &Spec, uuid: Uuid, former: Option<Former>) -> VolumeFound {
        VolumeFound {
            info: spec.info(uuid, !spec.kind.is_memory()),
            size_bytes: spec.size_bytes,
            former,
            note: None,
            has_data: false,
        }
    }
}

/// No other volume.
const NONE: RangeInclusive<usize> = 0..=0;

/// Every kind of volume.
pub const KINDS: &[KindRow] = &[
    KindRow {
        name: "null",
        path: None,
        has_own_size: false,
        has_own_blocks: false,
        parts: NONE,
        own_keys: &[],
        has_state_beside: false,
        open: |spec, _, _| Ok(Arc::new(Null::open(in_memory(spec)?).map_err(no_memory)?)),
        examine: |spec, _, _| Ok(of_memory(spec)),
    },
    KindRow {
        name: "ram",
        path: None,
        has_own_size: false,
        has_own_blocks: false,
        parts: NONE,
        own_keys: &[],
        has_state_beside: false,
        open: |spec, _, _| {
            check_memory(spec.size_bytes)?;
            Ok(Arc::new(Ram::open(in_memory(spec)?).map_err(no_memory)?))
        },
        examine: |spec, _, _| {
            check_memory(spec.size_bytes)?;
            Ok(of_memory(spec))
        },
    },
    KindRow {
        name: "file",
        path: Some("disk0.img"),
        has_own_size: false,
        has_own_blocks: false,
        parts: NONE,
        own_keys: &["adopt", "direct", "preallocate"],
        has_state_beside: true,
        open: |spec, path, _| {
            let volume = File::open(spec, path)?;
            volume.look_at_space();
            Ok(Arc::new(volume))
        },
        examine: |spec, path, _| {
            let note = regular::space_note(spec, path);
            let (uuid, former, has_data) = regular::examine(spec, path)?;
            let found = VolumeFound::new(spec, uuid, former);
            Ok(VolumeFound {
                note,
                has_data,
                ..found
            })
        },
    },
    KindRow {
        name: "block",
        path: Some("/dev/sdb"),
        has_own_size: true,
        has_own_blocks: false,
        parts: NONE,
        own_keys: &["direct"],
        has_state_beside: false,
        open: |spec, path, _| Ok(Arc::new(File::open_device(spec, path)?)),
        examine: |spec, path, _| {
            let (file, uuid, size_bytes) = block::open(spec, path)?;
            DirectFile::open(spec, path, &file)?;
            let found = VolumeFound::new(spec, uuid, None);
            Ok(VolumeFound {
                size_bytes,
                has_data: !block::is_blank(&file, 0, size_bytes),
                ..found
            })
        },
    },
    KindRow {
        name: "snapshot",
        path: Some("disk0.img.snapshots/monday"),
        has_own_size: true,
        has_own_blocks: false,
        parts: NONE,
        own_keys: &[],
        has_state_beside: false,
        open: |spec, path, _| Ok(Arc::new(File::open_snapshot(spec, path)?)),
        examine: |spec, path, _| {
            let Exposed {
                uuid, size_bytes, ..
            } = snapshot::expose(spec, path)?;
            let mut found = VolumeFound::new(spec, uuid, None);
            found.info.read_only = true;
            Ok(VolumeFound {
                size_bytes,
                ..found
            })
        },
    },
    row_over("slice", true, 1..=1, &["offset_bytes"]),
    row_over("concat", false, 1..=PARTS_MAX, &[]),
    row_over("stripe", true, 2..=PARTS_MAX, &["chunk_bytes"]),
    KindRow {
        open: |spec, _, below| Ok(Arc::new(mirror::open(spec, below)?)),
        examine: |spec, _, parts| Ok(shaped(mirror::examine(spec, parts)?)),
        ..row_over("mirror", true, 2..=LEGS_MAX, &["resync_rate"])
    },
    row_over("delay", true, 1..=1, DELAY_KEYS),
    KindRow {
        name: "remote",
        path: None,
        has_own_size: true,
        has_own_blocks: true,
        parts: NONE,
        own_keys: REMOTE_KEYS,
        has_state_beside: false,
        open: |spec, _, _| Ok(Arc::new(remote::open(spec)?)),
        examine: |spec, _, _| {
            let (info, size_bytes) = remote::examine(spec)?;
            let found = VolumeFound::new(spec, info.uuid, None);
            Ok(VolumeFound {
                info,
                size_bytes,
                ..found
            })
        },
    },
];

/// The keys of a `remote` volume.
pub const REMOTE_KEYS: &[&str] = &[
    "urls",
    "host_nqn",
    "timeout_ms",
    "psk_file",
    "dhchap_secret_file",
    "dhchap_ctrl_secret_file",
];

/// The keys of a `delay`, in microseconds: of reads, then of writes.
pub const DELAY_KEYS: &[&str] = &[
    "read_fixed_us",
    "read_mean_us",
    "read_tail_us",
    "write_fixed_us",
    "write_mean_us",
    "write_tail_us",
];

/// The row of a kind that is made of other volumes.
const fn row_over(
    name: &'static str,
    has_own_size: bool,
    parts: RangeInclusive<usize>,
    own_keys: &'static [&'static str],
) -> KindRow {
    KindRow {
        name,
        path: None,
        has_own_size,
        has_own_blocks: false,
        parts,
        own_keys,
        has_state_beside: false,
        open: |spec, _, below| Ok(over::delayed(spec, over::open(spec, below)?)),
        examine: |spec, _, parts| Ok(shaped(over::shape(spec, parts)?)),
    }
}

/// What is found of a volume that is to have this shape.
fn shaped(shape: Shape) -> VolumeFound {
    VolumeFound {
        info: shape.info,
        size_bytes: shape.size_bytes,
        former: None,
        note: None,
        has_data: false,
    }
}

impl KindRow {
    /// This kind, with the path that it has where an example names one.
    pub fn at(&self, path: Option<PathBuf>) -> Kind {
        Kind {
            path,
            ..self.over(Vec::new(), Settings::None)
        }
    }

    /// This kind, made of the volumes of these names.
    pub fn over(&self, of: Vec<String>, settings: Settings) -> Kind {
        Kind {
            name: self.name,
            path: None,
            of,
            settings,
            remote: None,
        }
    }
}

impl Kind {
    /// What is true of all of its kind.
    pub fn row(&self) -> &'static KindRow {
        let row = KINDS.iter().find(|row| row.name == self.name);
        row.expect("every kind has a row")
    }
}

impl Spec {
    /// The file that keeps its reservations and the like, if any does.
    pub fn state_path(&self) -> Option<PathBuf> {
        if self.state.is_some() || !self.kind.row().has_state_beside {
            return self.state.clone();
        }
        self.kind.path().map(beside)
    }
}

impl Spec {
    /// What is found of the volumes that it is made of, in the order of `of`: all of them, or of a
    /// mirror, where that `may_lack` legs, one at least.
    ///
    /// # Errors
    /// The name of the first that is not found.
    pub fn parts<P>(
        &self,
        may_lack: bool,
        find: impl Fn(&str) -> Option<P>,
    ) -> Result<Vec<P>, &str> {
        let of = self.kind.of();
        let found: Vec<P> = of.iter().filter_map(|name| find(name)).collect();
        let is_mirror = matches!(self.kind.settings, Settings::Mirror { .. });
        match of.iter().find(|name| find(name).is_none()) {
            Some(name) if !(may_lack && is_mirror) || found.is_empty() => Err(name),
            _ => Ok(found),
        }
    }
}

/// Where a volume's data lies, empty where it has no path.
fn path(spec: &Spec) -> &Path {
    spec.kind.path().unwrap_or(Path::new(""))
}

/// Opens a volume that is made of no others. Blocks on the file system: not for a reactor at
/// work.
pub fn open(spec: &Spec) -> Result<Arc<dyn Volume>, OpenError> {
    open_over(spec, Vec::new())
}

/// Opens a volume that is made of these, which are those that it names in `of`, in that order.
/// They are parts of it until it is closed. Blocks likewise.
pub fn open_over(spec: &Spec, below: Vec<Arc<dyn Volume>>) -> Result<Arc<dyn Volume>, OpenError> {
    let opened = || {
        check(spec)?;
        if spec.encryption.is_none() {
            encrypted::key_file::expect_none(spec)?;
        }
        if !spec.checksum {
            sums_file::expect_none(spec)?;
        }
        let mut volume = (spec.kind.row().open)(spec, path(spec), below)?;
        if spec.checksum {
            volume = Arc::new(checksummed::open(spec, volume)?);
        }
        if let Some(settings) = &spec.encryption {
            volume = Arc::new(encrypted::open(spec, settings, volume)?);
        }
        Ok(volume)
    };
    opened().map_err(|problem| OpenError {
        volume: spec.name.clone(),
        problem,
    })
}

/// A volume that is another one to hosts, and compares what it reads of it with checksums in a
/// file, or (`None`) in memory: of zeros where the volume is new, and of [`sums_file_bytes`]. Of
/// the file nothing is asked but through [`reactor::FileIo`], and its length, when the volume is
/// resized.
pub fn checksummed(volume: Arc<dyn Volume>, file: Option<Arc<DiskFile>>) -> Arc<dyn Volume> {
    Arc::new(checksummed::open_with(volume, file))
}

/// A volume that is another one to hosts, and keeps in it what they write, encrypted, with keys
/// that lie in `medium`, or (`None`) end with the process. Blocks.
pub fn encrypted(
    volume: Arc<dyn Volume>,
    settings: &EncryptionSettings,
    medium: Option<Box<dyn KeyMedium>>,
) -> Result<Arc<dyn Volume>, OpenError> {
    let name = volume.info().name.clone();
    match encrypted::open_with(settings, volume, medium) {
        Ok(volume) => Ok(Arc::new(volume)),
        Err(problem) => Err(OpenError {
            volume: name,
            problem,
        }),
    }
}

/// A `file` volume over an open descriptor, of which nothing is asked but
/// through [`reactor::FileIo`] (and its length, when the volume is resized):
/// for descriptors that only a certain driver knows how to treat. What it
/// remembers is saved at once, on the calling thread; it has snapshots where something
/// stands for the folder that they lie in.
pub fn over_file(
    spec: &Spec,
    file: Arc<DiskFile>,
    state: State,
    snapshots: Option<Box<dyn SnapshotMedium>>,
) -> Result<Arc<dyn Volume>, OpenError> {
    let opened = check(spec).and_then(|()| File::over(spec, file, state, snapshots));
    match opened {
        Ok(volume) => Ok(Arc::new(volume)),
        Err(problem) => Err(OpenError {
            volume: spec.name.clone(),
            problem,
        }),
    }
}

/// A volume that is made of these, as by [`open_over`], with a state that is kept elsewhere.
pub fn over_volumes(
    spec: &Spec,
    below: Vec<Arc<dyn Volume>>,
    state: State,
) -> Result<Arc<dyn Volume>, OpenError> {
    let opened = check(spec).and_then(|()| over::open_with(spec, below, state));
    match opened {
        Ok(volume) => Ok(over::delayed(spec, volume)),
        Err(problem) => Err(OpenError {
            volume: spec.name.clone(),
            problem,
        }),
    }
}

/// A mirror of these, as by [`open_over`], with a state and a log that are kept elsewhere, and
/// written at once on the calling thread.
pub fn over_legs(
    spec: &Spec,
    legs: Vec<Arc<dyn Volume>>,
    state: State,
    log: Box<dyn Medium>,
) -> Result<Arc<dyn Volume>, OpenError> {
    let opened = check(spec).and_then(|()| mirror::open_with(spec, legs, state, log));
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
    /// What hosts would know it by; read only, too, where a host has write-protected it for good.
    pub info: Info,
    /// What it would have.
    pub size_bytes: u64,
    /// What may surprise.
    pub note: Option<String>,
    /// Something was written to it, as far as can be told without opening it.
    pub has_data: bool,
}

impl Examined {
    /// What an open volume is. Blocks.
    pub fn of(volume: &dyn Volume) -> Examined {
        let (offset, len) = (0, volume.size_bytes());
        Examined {
            info: Info {
                read_only: volume.base().refuses_writes(),
                ..volume.info().clone()
            },
            size_bytes: len,
            note: None,
            has_data: !volume.is_blank(Range { offset, len }),
        }
    }
}

/// What would keep a volume from being opened now, or what it would be. Nothing is
/// made or changed; blocks.
pub fn examine(spec: &Spec) -> Result<Examined, OpenError> {
    examine_over(spec, &[])
}

/// The same of one that is made of others: of what those would be, in the order of `of`.
pub fn examine_over(spec: &Spec, below: &[&Examined]) -> Result<Examined, OpenError> {
    let examined = || {
        check(spec)?;
        let parts = below.iter().map(|part| PartInfo {
            info: &part.info,
            size_bytes: part.size_bytes,
            refuses_writes: part.info.read_only,
        });
        let parts: Vec<PartInfo> = parts.collect();
        let mut found = (spec.kind.row().examine)(spec, path(spec), &parts)?;
        let state = state::examine(spec, found.info.uuid, found.former)?;
        found.info.read_only |= state.is_some_and(|state| state.write_protected);
        // What others have of the volume below is not in a slice.
        let is_whole = !matches!(spec.kind.settings, Settings::Slice { .. });
        let has_data = found.has_data || is_whole && below.iter().any(|part| part.has_data);
        sums_file::examine(spec, &found.info, has_data)?;
        let locked = encrypted::examine(spec, &found.info, has_data)?;
        Ok(Examined {
            info: found.info,
            size_bytes: found.size_bytes,
            note: locked.or(found.note),
            has_data,
        })
    };
    examined().map_err(|problem| OpenError {
        volume: spec.name.clone(),
        problem,
    })
}

fn check(spec: &Spec) -> Result<(), Problem> {
    let (size_bytes, block_bytes) = (spec.size_bytes, spec.block_bytes);
    if block_bytes == 0 && spec.kind.row().has_own_blocks {
        return Ok(());
    }
    if !BLOCK_SIZES.contains(&block_bytes) {
        return Err(Problem::BlockSize(block_bytes));
    }
    let is_all = size_bytes == 0 && spec.kind.row().has_own_size;
    if size_bytes == 0 && !is_all
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
    let VolumeFound { info, former, .. } = of_memory(spec);
    let uuid = info.uuid;
    if let Some(Former::Original(original)) = former {
        tell_copied_state(spec, original, uuid);
    }
    let info = Info {
        // Whatever one I/O may be.
        atomic_bytes: mem::BUF_BYTES_MAX,
        // Nothing outlives a power failure that could be half written.
        atomic_power_fail_bytes: mem::BUF_BYTES_MAX,
        ..info
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
    VolumeFound::new(spec, uuid, Some(former))
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
