//! What a volume is to be: the description that it is opened from.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::encryption_settings::EncryptionSettings;
use crate::remote_place::RemoteAt;
use crate::{Info, identity};

/// Bytes that are copied to a leg of a mirror in a second at most, where nothing else is
/// configured.
pub const RESYNC_RATE_DEFAULT: u64 = 200 << 20;

/// Bytes that a scrub reads in a second at most, where nothing else is configured.
pub const SCRUB_RATE_DEFAULT: u64 = 100 << 20;

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
    /// Capacity, a multiple of `block_bytes`; 0, where [`KindRow::has_own_size`](crate::KindRow::has_own_size), is all
    /// that there is.
    pub size_bytes: u64,
    /// One of [`BLOCK_SIZES`]; 0, where [`KindRow::has_own_blocks`](crate::KindRow::has_own_blocks),
    /// is what those are.
    pub block_bytes: u32,
    /// Refuse every change.
    pub read_only: bool,
    /// Serve a file as it is although weft did not make it, whatever is in it,
    /// and grow it to the size of the volume.
    pub adopt: bool,
    /// Whether the data of a file or device goes past the page cache.
    pub direct: Direct,
    /// A file has all its space from the start on, and keeps it.
    pub preallocate: bool,
    /// The identity, instead of the stored or derived one.
    pub uuid: Option<Uuid>,
    /// What else hosts know it by, instead of what follows from the UUID.
    pub names: Names,
    /// Where reservations and the like outlive a restart. Without one: for a
    /// file, beside it, with `.weft` appended to its name; for others, nowhere.
    pub state: Option<PathBuf>,
    /// Its blocks have checksums.
    pub checksum: bool,
    /// Bytes that a scrub of it reads in a second at most; 0: none.
    pub scrub_rate: u64,
    /// By what its keys are wrapped, if what it keeps is encrypted.
    pub encryption: Option<EncryptionSettings>,
}

/// Whether data goes past the page cache (O_DIRECT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Through the cache.
    #[default]
    Never,
    /// Where the file system knows how.
    Auto,
    /// Or the volume is not opened.
    Always,
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
            direct: Direct::Never,
            preallocate: false,
            uuid: None,
            names: Names::default(),
            state: None,
            checksum: false,
            scrub_rate: SCRUB_RATE_DEFAULT,
            encryption: None,
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
            is_thin: matches!(self.kind.name, "ram" | "file") && !self.preallocate,
            volatile_cache,
            atomic_bytes: ATOMIC_BYTES,
            atomic_power_fail_bytes: self.block_bytes,
        }
    }
}

/// Where a volume's data lies: a row of [`KINDS`](crate::KINDS), and a path or other volumes
/// where it has such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(crate) name: &'static str,
    pub(crate) path: Option<PathBuf>,
    pub(crate) of: Vec<String>,
    pub(crate) settings: Settings,
    pub(crate) remote: Option<RemoteAt>,
}

/// What kinds of volumes that are made of others have besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// Nothing.
    None,
    /// Of a `slice`.
    Slice {
        /// The byte of the other volume that it begins at.
        offset_bytes: u64,
    },
    /// Of a `mirror`.
    Mirror {
        /// Bytes that are copied to a leg in a second at most; 0: none.
        resync_rate: u64,
    },
    /// Of a `stripe`.
    Stripe {
        /// Bytes that follow each other on one volume.
        chunk_bytes: u32,
    },
    /// Of a `delay`.
    Delay {
        /// Of what reads.
        read: Latency,
        /// Of all else.
        write: Latency,
    },
}

/// How long each I/O takes at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The shortest, microseconds.
    pub fixed_us: u32,
    /// The mean, microseconds: what is above the shortest is distributed exponentially.
    pub mean_us: u32,
    /// That of one in a thousand, microseconds; 0: none is special.
    pub tail_us: u32,
}

impl Kind {
    /// Nowhere: reads give zeros, writes are discarded.
    pub const NULL: Kind = Kind::in_memory("null");
    /// In memory of the process.
    pub const RAM: Kind = Kind::in_memory("ram");

    const fn in_memory(name: &'static str) -> Kind {
        Kind {
            name,
            path: None,
            of: Vec::new(),
            settings: Settings::None,
            remote: None,
        }
    }

    fn at(name: &'static str, path: impl Into<PathBuf>) -> Kind {
        let path = Some(path.into());
        Kind {
            path,
            ..Kind::in_memory(name)
        }
    }

    fn over(name: &'static str, of: &[&str], settings: Settings) -> Kind {
        Kind {
            of: of.iter().map(|&name| name.to_owned()).collect(),
            settings,
            ..Kind::in_memory(name)
        }
    }

    /// In a file, created if missing (its folder must be there).
    pub fn file(path: impl Into<PathBuf>) -> Kind {
        Kind::at("file", path)
    }

    /// On a block device, which nothing else may use meanwhile.
    pub fn block(path: impl Into<PathBuf>) -> Kind {
        Kind::at("block", path)
    }

    /// The snapshot of a file volume whose folder is at the path: nothing of it changes.
    pub fn snapshot(path: impl Into<PathBuf>) -> Kind {
        Kind::at("snapshot", path)
    }

    /// A range of the volume of a name, from a byte on.
    pub fn slice(of: &str, offset_bytes: u64) -> Kind {
        Kind::over("slice", &[of], Settings::Slice { offset_bytes })
    }

    /// Where another machine keeps it, if one does.
    pub fn place(&self) -> Option<&RemoteAt> {
        self.remote.as_ref()
    }

    /// The volumes of these names, one behind the other.
    pub fn concat(of: &[&str]) -> Kind {
        Kind::over("concat", of, Settings::None)
    }

    /// Chunks of the volumes of these names in turn (RAID 0).
    pub fn stripe(of: &[&str], chunk_bytes: u32) -> Kind {
        Kind::over("stripe", of, Settings::Stripe { chunk_bytes })
    }

    /// Blocks that another machine keeps.
    pub fn remote(place: RemoteAt) -> Kind {
        Kind {
            remote: Some(place),
            ..Kind::in_memory("remote")
        }
    }

    /// The volumes of these names, which hold the same.
    pub fn mirror(of: &[&str]) -> Kind {
        let resync_rate = RESYNC_RATE_DEFAULT;
        Kind::over("mirror", of, Settings::Mirror { resync_rate })
    }

    /// The volume of a name, whose I/Os take longer.
    pub fn delay(of: &str, read: Latency, write: Latency) -> Kind {
        Kind::over("delay", &[of], Settings::Delay { read, write })
    }

    /// Its word in the configuration.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The file or device, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The names of the volumes that it is made of, in the order that counts.
    pub fn of(&self) -> &[String] {
        &self.of
    }

    /// What it has besides.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Whether it lies in memory of the process, and so ends with it. What is made of others
    /// ends with them.
    pub fn is_memory(&self) -> bool {
        self.path.is_none() && self.of.is_empty() && self.remote.is_none()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, &self.remote) {
            (Some(path), _) => write!(f, "{} {}", self.name, path.display()),
            (None, Some(place)) => write!(f, "{} {}", self.name, &**place),
            _ if self.of.is_empty() => f.write_str(self.name),
            _ => write!(f, "{} of {}", self.name, self.of.join(", ")),
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
