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

/// What a server shows and asks, of files as they were when they were last good.
#[derive(Debug)]
pub struct RenewedTls {
    files: TlsFiles,
    make: MakeSide,
    now: Mutex<TlsRead>,
}

/// What the files were when they were read last.
#[derive(Debug)]
struct TlsRead {
    side: Arc<ServerSide>,
    /// What the files were like when they were read.
    stamps: Vec<FileStamp>,
    /// Why what is there now is not taken.
    wrong: Option<String>,
}

/// What shows that a file, or a key of the kernel, is another than before.
#[derive(Clone, Debug, PartialEq)]
enum FileStamp {
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
            now: Mutex::new(TlsRead {
                side: side_of(files, make)?,
                stamps,
                wrong: None,
            }),
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
        self.locked().side.clone()
    }

    /// Why what the files are now is not taken; `None`: it is.
    pub fn wrong(&self) -> Option<String> {
        self.locked().wrong.clone()
    }

    /// Takes the files where they are others than those that were read last; `None`: they are
    /// not. Blocks.
    ///
    /// # Errors
    /// What of them cannot be used: what was read before holds still.
    pub fn look(&self) -> Option<Result<(), String>> {
        // What changes while it is read is read again at the next look.
        let stamps = stamps_of(&self.files);
        if std::mem::replace(&mut self.locked().stamps, stamps.clone()) == stamps {
            return None;
        }
        // Connections that come meanwhile do not wait for a disk.
        let read = side_of(&self.files, self.make);
        let mut now = self.locked();
        now.wrong = read.as_ref().err().cloned();
        Some(read.map(|side| now.side = side))
    }

    fn locked(&self) -> MutexGuard<'_, TlsRead> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
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
    let stamp = |path: &Path| {
        let there = fs::metadata(path).map_err(|error| error.kind())?;
        Ok((there.ino(), there.len(), there.mtime(), there.mtime_nsec()))
    };
    let of_key = match key.file() {
        Ok(path) => FileStamp::File(stamp(&path)),
        Err(_) => FileStamp::Key(key.key_now()),
    };
    let files = [Some(certificate), client_ca.as_ref(), client_crl.as_ref()];
    let files = files.into_iter().flatten();
    let files = files.map(|path| FileStamp::File(stamp(path)));
    files.chain([of_key]).collect()
}
