//! What NFS is to serve, and how.

use std::path::PathBuf;

use nfsd::exports::Rule;
use nfsd::locations::FsLocation;
use nfsd::owners::OwnerNaming;
use store::fs::{Acls, Quota};
use tls::TlsFiles;

/// A file system to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemSpec {
    /// What exports call it.
    pub name: String,
    /// Where its content lies.
    pub kind: FileSystemKind,
}

/// Where the content of a file system lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// In memory, gone with the process: so many bytes at most, content and all
    /// that describes it.
    Mem {
        /// Bytes.
        size_bytes: u64,
    },
    /// In a directory of the machine.
    Dir {
        /// Which.
        path: PathBuf,
        /// A folder of its own for what file handles mean.
        state: PathBuf,
        /// Every change is refused.
        read_only: bool,
        /// What becomes of access control lists; by default what can be had.
        acls: Option<Acls>,
        /// Data goes past the page cache where it can (O_DIRECT).
        direct: bool,
    },
}

/// What a user, a group or a tree may have in a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSpec {
    /// What administration calls it.
    pub name: String,
    /// Name of the file system.
    pub file_system: String,
    /// Whose and how much.
    pub quota: Quota,
}

/// What is found under an exported path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exported {
    /// The file system of this name.
    FileSystem(String),
    /// A referral: the file system is at one of these locations, the preferred first.
    Referral(Vec<FsLocation>),
}

impl Exported {
    /// The name of the file system, if it is here.
    pub fn file_system(&self) -> Option<&str> {
        match self {
            Exported::FileSystem(name) => Some(name),
            Exported::Referral(_) => None,
        }
    }
}

/// A file system under a path that clients know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSpec {
    /// `/` or `/a/b`.
    pub path: String,
    /// What is there.
    pub what: Exported,
    /// The first whose clients match decides; a client that is in none may not use it.
    pub rules: Vec<Rule>,
}

/// How NFS is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsSettings {
    /// Data of one READ or WRITE, bytes.
    pub io_bytes_max: u32,
    /// How long a client that says nothing keeps what it has for sure.
    pub lease_ms: u32,
    /// How long clients may take to reclaim what they had, after a start.
    pub grace_ms: u32,
    /// A folder for what must be known after a restart; without one no client
    /// can reclaim anything then.
    pub state: Option<PathBuf>,
    /// The groups of users are those that this machine knows, whatever calls by AUTH_SYS say.
    pub manage_gids: bool,
    /// What owners are called.
    pub owners: OwnerNaming,
    /// What RPC-with-TLS is spoken by; `None`: it is not offered.
    pub tls: Option<TlsFiles>,
    /// How users prove who they are; without it no ticket is taken.
    pub kerberos: Option<KerberosSettings>,
}

/// Kerberos of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KerberosSettings {
    /// The file with the keys of the service.
    pub keytab: PathBuf,
    /// `nfs@HOST`, or `nfs` for every host that the file has keys of.
    pub service: String,
    /// Whose users are users of this machine.
    pub realm: String,
    /// What stands behind the `@` in names of owners (RFC 8881, section 5.9) for users that have
    /// proved who they are, where [`NfsSettings::owners`] has no domain.
    pub domain: Option<String>,
}

impl Default for NfsSettings {
    fn default() -> Self {
        NfsSettings {
            io_bytes_max: 1 << 20,
            lease_ms: 90_000,
            grace_ms: 90_000,
            state: None,
            manage_gids: false,
            owners: OwnerNaming::default(),
            tls: None,
            kerberos: None,
        }
    }
}
