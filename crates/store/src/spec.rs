//! What a volume is to be: the description that it is opened from.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::{Info, identity};

/// Bytes that a logical block may have.
pub const BLOCK_SIZES: [u32; 2] = [512, 4096];

/// No volume is larger: 1 PiB.
pub const SIZE_MAX_BYTES: u64 = 1 << 50;

/// What volumes that lock ranges promise to do in one step.
const ATOMIC_BYTES: u32 = 1 << 20;

/// Where a file keeps its UUID, as text.
pub(crate) const ATTRIBUTE: &str = "user.weft.uuid";

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

    /// The configured UUID, or one that follows from the name.
    pub(crate) fn uuid_or_derived(&self) -> Uuid {
        let derived = || identity::derive(self.kind.name(), &self.name);
        self.uuid.unwrap_or_else(derived)
    }

    /// What hosts know the volume by.
    pub(crate) fn info(&self, uuid: Uuid, volatile_cache: bool) -> Info {
        let names = self.names.clone();
        let serial = names.serial;
        Info {
            name: self.name.clone(),
            kind: self.kind.name(),
            block_bytes: self.block_bytes,
            uuid,
            nguid: names.nguid.unwrap_or_else(|| identity::nguid(uuid)),
            eui64: names.eui64,
            naa: names.naa.unwrap_or_else(|| identity::naa(uuid).to_vec()),
            serial: serial.unwrap_or_else(|| identity::serial(uuid)),
            vendor: names.vendor,
            product: names.product,
            revision: names.revision,
            read_only: self.read_only,
            volatile_cache,
            atomic_bytes: ATOMIC_BYTES,
            atomic_power_fail_bytes: self.block_bytes,
        }
    }
}

/// Where a volume's data lies: a row of [`KINDS`](crate::KINDS), and a path where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(crate) name: &'static str,
    pub(crate) path: Option<PathBuf>,
}

impl Kind {
    /// Nowhere: reads give zeros, writes are discarded.
    pub const NULL: Kind = Kind {
        name: "null",
        path: None,
    };
    /// In memory of the process.
    pub const RAM: Kind = Kind {
        name: "ram",
        path: None,
    };

    /// In a file, created if missing (its folder must be there).
    pub fn file(path: impl Into<PathBuf>) -> Kind {
        Kind {
            name: "file",
            path: Some(path.into()),
        }
    }

    /// On a block device, which nothing else may use meanwhile.
    pub fn block(path: impl Into<PathBuf>) -> Kind {
        Kind {
            name: "block",
            path: Some(path.into()),
        }
    }

    /// Its word in the configuration.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The file or device, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether it lies in memory of the process, and so ends with it.
    pub fn is_memory(&self) -> bool {
        self.path.is_none()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{} {}", self.name, path.display()),
            None => f.write_str(self.name),
        }
    }
}

/// What comes after the path of a `file` volume where no other is configured.
const SUFFIX: &str = ".weft";

/// Where the state of the volume in the file `path` lies, unless configured.
pub(crate) fn beside(path: &Path) -> PathBuf {
    with_suffix(path, SUFFIX)
}

/// `path` with more at its end.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
