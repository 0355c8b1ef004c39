//! Files of TLS that are replaced while weft runs: certificates end, and clients are revoked.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::pem::{ClientAuthorities, Identity};
use crate::secret_place::{KeyNow, SecretPlace};
use crate::sides::ServerSide;

/// Files in PEM and the place of a key, by which a server speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// What is shown: a certificate, and those that it is signed by.
    pub certificate: PathBuf,
    /// Where its private key lies.
    pub key: SecretPlace,
    /// The authorities that sign the certificates of clients; `None`: clients show none.
    pub client_ca: Option<PathBuf>,
    /// What those have revoked.
    pub client_crl: Option<PathBuf>,
}

/// Makes a side of what files hold: [`ServerSide::new`], [`ServerSide::for_rpc`] or
/// [`ServerSide::for_nbd`].
pub type MakeSide = fn(Identity, Option<ClientAuthorities>) -> Result<ServerSide, String>;

/// What is looked at again while weft runs.
pub trait Renewed {
    /// Why what is there now is not taken; `None`: it is.
    fn wrong(&self) -> Option<String>;

    /// Takes what is another than was read last; `None`: it is not. Blocks.
    ///
    /// # Errors
    /// What of it cannot be used: what was read before holds still.
    fn look(&self) -> Option<Result<(), String>>;
}

/// What was read, as it was when it was last good.
#[derive(Debug)]
pub(crate) struct Renewing<T>(Mutex<ReadLast<T>>);

#[derive(Debug)]
struct ReadLast<T> {
    value: T,
    /// What the places were like when they were read.
    stamps: Vec<FileStamp>,
    /// Why what is there now is not taken.
    wrong: Option<String>,
}

impl<T: Clone> Renewing<T> {
    pub(crate) fn new(value: T, stamps: Vec<FileStamp>) -> Renewing<T> {
        Renewing(Mutex::new(ReadLast {
            value,
            stamps,
            wrong: None,
        }))
    }

    pub(crate) fn get(&self) -> T {
        self.locked().value.clone()
    }

    pub(crate) fn wrong(&self) -> Option<String> {
        self.locked().wrong.clone()
    }

    /// Reads again where places are not like `stamps`, which were made before.
    pub(crate) fn look(
        &self,
        stamps: Vec<FileStamp>,
        read: impl FnOnce() -> Result<T, String>,
    ) -> Option<Result<(), String>> {
        if std::mem::replace(&mut self.locked().stamps, stamps.clone()) == stamps {
            return None;
        }
        // Connections that come meanwhile do not wait for a disk.
        let read = read();
        let mut now = self.locked();
        now.wrong = read.as_ref().err().cloned();
        Some(read.map(|value| now.value = value))
    }

    fn locked(&self) -> MutexGuard<'_, ReadLast<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server shows and asks, of files as they were when they were last good.
#[derive(Debug)]
pub struct RenewedTls {
    files: TlsFiles,
    make: MakeSide,
    now: Renewing<Arc<ServerSide>>,
}

/// What shows that a file, or a key of the kernel, is another than before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileStamp {
    /// Inode, length and time, or that it cannot be seen.
    File(Result<(u64, u64, i64, i64), io::ErrorKind>),
    Key(KeyNow),
}

impl RenewedTls {
    /// Of files that must be good at the start.
    ///
    /// # Errors
    /// What of them cannot be used.
    pub fn read(files: &TlsFiles, make: MakeSide) -> Result<Arc<RenewedTls>, String> {
        let stamps = stamps_of(files);
        Ok(Arc::new(RenewedTls {
            now: Renewing::new(side_of(files, make)?, stamps),
            files: files.clone(),
            make,
        }))
    }

    /// What it is of.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// For the next connection.
    pub fn side(&self) -> Arc<ServerSide> {
        self.now.get()
    }
}

impl Renewed for RenewedTls {
    fn wrong(&self) -> Option<String> {
        self.now.wrong()
    }

    fn look(&self) -> Option<Result<(), String>> {
        // What changes while it is read is read again at the next look.
        let stamps = stamps_of(&self.files);
        self.now.look(stamps, || side_of(&self.files, self.make))
    }
}

fn side_of(files: &TlsFiles, make: MakeSide) -> Result<Arc<ServerSide>, String> {
    let identity = Identity::read(&files.certificate, &files.key)?;
    let crl = files.client_crl.as_deref();
    let clients = files.client_ca.as_ref();
    let clients = clients.map(|ca| ClientAuthorities::read(ca, crl));
    make(identity, clients.transpose()?).map(Arc::new)
}

fn stamps_of(files: &TlsFiles) -> Vec<FileStamp> {
    let TlsFiles {
        certificate,
        key,
        client_ca,
        client_crl,
    } = files;
    let files = [Some(certificate), client_ca.as_ref(), client_crl.as_ref()];
    let files = files.into_iter().flatten().map(|path| file_stamp(path));
    files.chain([place_stamp(key)]).collect()
}

fn file_stamp(path: &Path) -> FileStamp {
    let there = fs::metadata(path).map_err(|error| error.kind());
    FileStamp::File(
        // Also a change of its rights or its owner, by which it can be read.
        there.map(|there| (there.ino(), there.len(), there.ctime(), there.ctime_nsec())),
    )
}

pub(crate) fn place_stamp(place: &SecretPlace) -> FileStamp {
    match place.file() {
        Ok(path) => file_stamp(&path),
        Err(_) => FileStamp::Key(place.key_now()),
    }
}
