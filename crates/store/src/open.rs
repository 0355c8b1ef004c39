//! From a description to an open volume.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::file::File;
use crate::identity::ATTRIBUTE;
use crate::memory::{self, MemoryLimit};
use crate::null::Null;
use crate::ram::Ram;
use crate::state::{Former, beside};
use crate::{Base, Info, State, Volume, block, identity, regular, state};

/// Bytes that a logical block may have.
pub const BLOCK_SIZES: [u32; 2] = [512, 4096];

/// No volume is larger: 1 PiB.
pub const SIZE_MAX_BYTES: u64 = 1 << 50;

/// What volumes that lock ranges promise to do in one step.
const ATOMIC_BYTES: u32 = 1 << 20;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The volume's name in the configuration.
    pub name: String,
    /// Where its data lies.
    pub kind: Kind,
    /// Capacity, a multiple of `block_bytes`; 0, for a block device only, is
    /// all that it has.
    pub size_bytes: u64,
    /// One of [`BLOCK_SIZES`].
    pub block_bytes: u32,
    /// Refuse every change.
    pub read_only: bool,
    /// Serve a file as it is although weft did not make it, whatever is in it,
    /// and grow it to the size of the volume.
    pub adopt: bool,
    /// The identity, instead of the stored or derived one.
    pub uuid: Option<Uuid>,
    /// What else hosts know it by, instead of what follows from the UUID.
    pub names: Names,
    /// Where reservations and the like outlive a restart. Without one: for a
    /// file, beside it, with `.weft` appended to its name; for others, nowhere.
    pub state: Option<PathBuf>,
}

/// What hosts know a volume by beside its UUID, where that is configured: of a
/// volume that comes from another target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Namespace Globally Unique Identifier.
    pub nguid: Option<[u8; 16]>,
    /// IEEE Extended Unique Identifier.
    pub eui64: Option<[u8; 8]>,
    /// SCSI's NAA designator, of 8 or 16 bytes.
    pub naa: Option<Vec<u8>>,
    /// SCSI's unit serial number.
    pub serial: Option<String>,
    /// T10 vendor identification.
    pub vendor: Option<String>,
    /// Product identification.
    pub product: Option<String>,
    /// Product revision level.
    pub revision: Option<String>,
}

impl Spec {
    /// A volume that may be changed, with whatever identity it has.
    pub fn new(name: impl Into<String>, kind: Kind, size_bytes: u64, block_bytes: u32) -> Spec {
        Spec {
            name: name.into(),
            kind,
            size_bytes,
            block_bytes,
            read_only: false,
            adopt: false,
            uuid: None,
            names: Names::default(),
            state: None,
        }
    }

    /// The file that keeps its reservations and the like, if any does.
    pub fn state_path(&self) -> Option<PathBuf> {
        match (&self.state, &self.kind) {
            (Some(path), _) => Some(path.clone()),
            (None, Kind::File { path }) => Some(beside(path)),
            (None, _) => None,
        }
    }

    /// That file, and those that weft makes beside it.
    pub fn state_files(&self) -> Vec<PathBuf> {
        state::files(self)
    }
}

/// Where a volume's data lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nowhere: reads give zeros, writes are discarded.
    Null,
    /// In memory of the process.
    Ram,
    /// In a file, created if missing (its folder must be there).
    File {
        /// The file.
        path: PathBuf,
    },
    /// On a block device, which nobody else may use meanwhile.
    Block {
        /// The device.
        path: PathBuf,
    },
}

impl Kind {
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Kind::Null | Kind::Ram)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Ram => "ram",
            Kind::File { .. } => "file",
            Kind::Block { .. } => "block",
        }
    }
}

/// Why a volume could not be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("volume '{volume}': {problem}")]
pub struct OpenError {
    /// The volume's name in the configuration.
    pub volume: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a volume that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Not one of [`BLOCK_SIZES`].
    #[error("a block of {0} bytes is not supported: use 512 or 4096")]
    BlockSize(u32),
    /// Zero, larger than [`SIZE_MAX_BYTES`], or no multiple of the block size.
    #[error(
        "a size of {size_bytes} bytes is not possible: use a multiple of the block size \
         ({block_bytes}) from {block_bytes} to {SIZE_MAX_BYTES}"
    )]
    Size {
        /// As asked for.
        size_bytes: u64,
        /// As asked for.
        block_bytes: u32,
    },
    /// A RAM volume larger than the memory that there is.
    #[error(
        "a size of {size_bytes} bytes does not fit in {limit}: make it smaller or use a file \
         volume"
    )]
    Memory {
        /// As asked for.
        size_bytes: u64,
        /// What there is.
        limit: MemoryLimit,
    },
    /// The folder of the file does not exist.
    #[error("the folder {} does not exist: create it with 'mkdir -p'", .0.display())]
    NoFolder(PathBuf),
    /// A read-only volume's file does not exist.
    #[error(
        "{} does not exist, and a read-only volume is not created: correct the path or open the \
         volume once without read_only",
        .0.display()
    )]
    NoFile(PathBuf),
    /// A symbolic link, and that to which it leads, which does not exist.
    #[error(
        "{} is a symbolic link to {}, which does not exist: mount what that lies in, or correct \
         the link",
        .0.display(), .1.display()
    )]
    DanglingLink(PathBuf, PathBuf),
    /// A block device.
    #[error("{} is a block device: use kind \"block\", which serves it as it is", .0.display())]
    BlockDevice(PathBuf),
    /// A folder, socket, pipe or character device.
    #[error(
        "{} is not a regular file: give the path of a file, which is created if it does not exist",
        .0.display()
    )]
    NotAFile(PathBuf),
    /// Anything but a block device.
    #[error("{} is not a block device: give the path of one, or use kind \"file\"", .0.display())]
    NotADevice(PathBuf),
    /// A device that the system or another process uses, and how.
    #[error(
        "{} {}: unmount it, take it out of its array or volume group, or stop the process that \
         has it ('lsblk' and 'fuser -v' tell)",
        .0.display(), .1.as_deref().unwrap_or("is in use")
    )]
    DeviceInUse(PathBuf, Option<String>),
    /// A file that the system uses as a disk, and how.
    #[error(
        "{} {}: detach it there ('losetup -d', 'swapoff') or use another file",
        .0.display(), .1
    )]
    FileInUse(PathBuf, String),
    /// An image in a format that has more than the disk's own bytes.
    #[error(
        "{0} is a {format} image, whose headers hosts would see and overwrite: convert it \
         ('qemu-img convert -O raw {0} NEW') and use that, or, if hosts are to have its very \
         bytes, set adopt = true",
        .path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// How the format is called.
        format: &'static str,
    },
    /// A file that is smaller than the volume, and that weft did not make.
    #[error(
        "{} has {file_bytes} bytes, the volume {size_bytes}, and weft did not make the file: \
         correct the path, or, if it is to be grown and become a disk, set adopt = true",
        .path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it has.
        file_bytes: u64,
        /// As asked for.
        size_bytes: u64,
    },
    /// A device that cannot be written.
    #[error(
        "{} cannot be written: set read_only, or make it writable ('blockdev --setrw')",
        .0.display()
    )]
    ReadOnlyDevice(PathBuf),
    /// The volume's blocks are smaller than the device's.
    #[error(
        "{} has blocks of {device_block_bytes} bytes, the volume of {block_bytes}: set \
         block_bytes to {device_block_bytes} or a multiple of it",
        .path.display()
    )]
    DeviceBlock {
        /// The device.
        path: PathBuf,
        /// What the device has.
        device_block_bytes: u32,
        /// As asked for.
        block_bytes: u32,
    },
    /// The device is smaller than the volume, or than a block.
    #[error(
        "{} has {device_bytes} bytes, which is too little for a volume of {size_bytes}: leave \
         the size out to serve all of it, or set a smaller one",
        .path.display()
    )]
    DeviceSize {
        /// The device.
        path: PathBuf,
        /// What it has.
        device_bytes: u64,
        /// As asked for; 0 for all that there is.
        size_bytes: u64,
    },
    /// Another process, or another volume of this one, holds the file.
    #[error("{} is already served by {}", .path.display(), server(*.holder))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that holds it, where the system tells.
        holder: Option<u32>,
    },
    /// The file is larger than the volume, or smaller and read only.
    #[error(
        "{} has {file_bytes} bytes, the volume {size_bytes}: set its size to {file_bytes}, or {}",
        .path.display(), other_way(*.file_bytes, *.size_bytes)
    )]
    FileSize {
        /// The file.
        path: PathBuf,
        /// What it has.
        file_bytes: u64,
        /// As asked for.
        size_bytes: u64,
    },
    /// What the volume remembers beside its data cannot be trusted.
    #[error(
        "the state file {} {why}: bring it back from a backup, or, if no host relies on its \
         reservations and write protection, move it away",
        .path.display()
    )]
    State {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file says that the volume has a state file, which is not there.
    #[error(
        "{0} has reservations or a write protection in a state file, and {1} does not exist: \
         move the state file there, or set `state` to where it is now; if no host relies on it, \
         give it up ('setfattr -n {ATTRIBUTE} -v '{record}' {0}')",
        .path.display(), .state.display()
    )]
    StateMissing {
        /// The file.
        path: PathBuf,
        /// Where the state file should be.
        state: PathBuf,
        /// What the file is to keep if there shall be none.
        record: String,
    },
    /// The operating system refused.
    #[error("cannot {action}{}: {source}{}", behind(.path.as_deref()), remedy(.source))]
    System {
        /// What was tried, as in "cannot ...".
        action: &'static str,
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// Its answer.
        source: io::Error,
    },
}

/// What serves a file that is in use, and what to do about it.
fn server(holder: Option<u32>) -> String {
    match holder {
        Some(pid) if pid == std::process::id() => {
            "another volume of this process: give each its own file".to_owned()
        }
        Some(pid) => format!("process {pid}: stop that one or use another file"),
        None => "another process ('fuser' or 'lslocks' names it): stop that one or use another \
                 file"
            .to_owned(),
    }
}

/// What else helps where a file has not the size of its volume.
fn other_way(file_bytes: u64, size_bytes: u64) -> &'static str {
    match file_bytes > size_bytes {
        true => "use another file (a file is never shrunk, that would destroy data)",
        false => "open it once without read_only (a read-only one is not grown)",
    }
}

/// A path behind what was tried with it.
fn behind(path: Option<&Path>) -> String {
    path.map_or(String::new(), |path| format!(" {}", path.display()))
}

/// What helps against an answer of the operating system.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            " (let the user that runs weft read and write the file and its folder)"
        }
        Some(libc::EROFS) => " (set read_only, or use a file system that can be written)",
        Some(libc::ENOSPC | libc::EDQUOT) => " (free space there, or use another file system)",
        Some(libc::EFBIG) => {
            " (the file system, or 'ulimit -f', allows no file of that size: use another one, or \
             raise the limit)"
        }
        Some(libc::EMFILE | libc::ENFILE) => " (raise the limit of open files: 'ulimit -n')",
        Some(libc::ENOMEM) => " (use smaller volumes, or raise the limit of memory)",
        _ => "",
    }
}

/// Opens a volume. Blocks on the file system: not for a reactor at work.
pub fn open(spec: &Spec) -> Result<Arc<dyn Volume>, OpenError> {
    let volume = open_kind(spec).map_err(|problem| OpenError {
        volume: spec.name.clone(),
        problem,
    })?;
    if matches!(spec.kind, Kind::File { .. }) {
        volume.look_at_space();
    }
    Ok(volume)
}

/// A `file` volume over an open descriptor, of which nothing is asked but
/// through [`reactor::FileIo`] (and its length, when the volume is resized):
/// for descriptors that only a certain driver knows how to treat. What it
/// remembers is saved at once, on the calling thread.
pub fn over_file(
    spec: &Spec,
    file: Arc<OwnedFd>,
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

fn open_kind(spec: &Spec) -> Result<Arc<dyn Volume>, Problem> {
    check(spec)?;
    match &spec.kind {
        Kind::Null => Ok(Arc::new(Null::open(in_memory(spec)?).map_err(no_memory)?)),
        Kind::Ram => {
            memory::check(spec.size_bytes)?;
            Ok(Arc::new(Ram::open(in_memory(spec)?).map_err(no_memory)?))
        }
        Kind::File { path } => Ok(Arc::new(File::open(spec, path)?)),
        Kind::Block { path } => Ok(Arc::new(File::open_device(spec, path)?)),
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
        let mut note = None;
        let (uuid, former) = match &spec.kind {
            Kind::Null => of_memory(spec),
            Kind::Ram => {
                memory::check(spec.size_bytes)?;
                of_memory(spec)
            }
            Kind::File { path } => {
                note = regular::space_note(spec, path);
                regular::examine(spec, path)?
            }
            Kind::Block { path } => (block::open(spec, path)?.1, None),
        };
        state::examine(spec, uuid, former)?;
        let info = info(spec, uuid, false);
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
    let is_whole_device = size_bytes == 0 && matches!(spec.kind, Kind::Block { .. });
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

pub(crate) fn no_memory(source: io::Error) -> Problem {
    Problem::System {
        action: "map its memory",
        path: None,
        source,
    }
}

/// What a volume in memory has in common with others.
fn in_memory(spec: &Spec) -> Result<Base, Problem> {
    let (uuid, former) = of_memory(spec);
    if let Some(Former::Original(original)) = former {
        tell_copied_state(spec, original, uuid);
    }
    let info = Info {
        // Whatever one I/O may be.
        atomic_bytes: mem::BUF_BYTES_MAX,
        // Nothing outlives a power failure that could be half written.
        atomic_power_fail_bytes: mem::BUF_BYTES_MAX,
        ..info(spec, uuid, false)
    };
    let state = State::in_file(spec, uuid, former, None)?;
    Ok(Base::new(info, spec.size_bytes).with_state(state))
}

/// Who a volume in memory is, and what else its state file may say.
fn of_memory(spec: &Spec) -> (Uuid, Option<Former>) {
    let uuid = uuid(spec);
    let former = match state::held(spec) {
        Some(held) if held.copy == Some(uuid) => Former::Original(held.volume),
        _ => Former::Own(identity::derive(spec.kind.name(), &spec.name)),
    };
    (uuid, Some(former))
}

/// Tells whoever relied on a copied state file, or on one from a backup.
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

/// The configured identity, or one that follows from the name.
pub(crate) fn uuid(spec: &Spec) -> Uuid {
    let derived = || identity::derive(spec.kind.name(), &spec.name);
    spec.uuid.unwrap_or_else(derived)
}

pub(crate) fn info(spec: &Spec, uuid: Uuid, volatile_cache: bool) -> Info {
    let names = spec.names.clone();
    let serial = names.serial;
    Info {
        name: spec.name.clone(),
        kind: spec.kind.name(),
        block_bytes: spec.block_bytes,
        uuid,
        nguid: names.nguid.unwrap_or_else(|| identity::nguid(uuid)),
        eui64: names.eui64,
        naa: names.naa.unwrap_or_else(|| identity::naa(uuid).to_vec()),
        serial: serial.unwrap_or_else(|| identity::serial(uuid)),
        vendor: names.vendor,
        product: names.product,
        revision: names.revision,
        read_only: spec.read_only,
        volatile_cache,
        atomic_bytes: ATOMIC_BYTES,
        atomic_power_fail_bytes: spec.block_bytes,
    }
}
