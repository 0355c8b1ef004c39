//! Files in PEM.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::secret_place::SecretPlace;
use crate::sides::provider;
use crate::words::problem_of;

/// More than any of these files has.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// More than any key has.
const KEY_BYTES_MAX: usize = 64 << 10;

/// A certificate with those that it is signed by, and its key.
#[derive(Debug)]
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Of what two files hold.
    ///
    /// # Errors
    /// The key is another's.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Identity, String> {
        let fits = CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider());
        fits.map_err(|error| problem_of(&error))?;
        Ok(Identity { chain, key })
    }

    /// Of a file and of where the key lies.
    ///
    /// # Errors
    /// What is wrong with one, or that they do not belong together.
    pub fn read(certificate: &Path, key: &SecretPlace) -> Result<Identity, String> {
        Identity::new(read_certificates(certificate)?, read_key(key)?)
    }
}

/// Whose signature makes a client's certificate good, and which it has taken back.
#[derive(Debug)]
pub struct ClientAuthorities {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) crls: Vec<CertificateRevocationListDer<'static>>,
}

impl ClientAuthorities {
    /// Of a file of certificates, and of one of revocation lists.
    ///
    /// # Errors
    /// What is wrong with one.
    pub fn read(certificates: &Path, crls: Option<&Path>) -> Result<ClientAuthorities, String> {
        Ok(ClientAuthorities {
            roots: Arc::new(roots(certificates)?),
            crls: crls.map_or(Ok(Vec::new()), read_crls)?,
        })
    }
}

/// The authorities whose certificates are in a file.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| {
            let why = problem_of(&error);
            format!("{} holds a certificate that is none: {why}", path.display())
        })?;
    }
    Ok(roots)
}

/// The certificates in a file, one at least.
///
/// # Errors
/// What is wrong with it.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    sections(&path.display(), &read(path)?, "certificate (CERTIFICATE)")
}

/// The certificate revocation lists in a file, one at least.
///
/// # Errors
/// What is wrong with it.
pub fn read_crls(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let bytes = read(path)?;
    sections(
        &path.display(),
        &bytes,
        "certificate revocation list (X509 CRL)",
    )
}

/// The private key in a place for secrets.
///
/// # Errors
/// What is wrong with it.
pub fn read_key(place: &SecretPlace) -> Result<PrivateKeyDer<'static>, String> {
    let secret = place.read(KEY_BYTES_MAX, "put the key of the certificate there")?;
    let text = String::from_utf8_lossy(secret.bytes());
    if text.contains("ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(format!(
            "the key in {place} is behind a passphrase: `openssl pkey -in FILE` writes it without"
        ));
    }
    let keys: Vec<_> = sections(place, secret.bytes(), "private key (PRIVATE KEY)")?;
    Ok(keys.into_iter().next().expect("one at least"))
}

/// All sections of a kind, one at least.
fn sections<T: PemObject>(shown: &dyn Display, bytes: &[u8], what: &str) -> Result<Vec<T>, String> {
    let all: Result<Vec<T>, _> = T::pem_slice_iter(bytes).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("{shown} holds no {what} in PEM")),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("{shown} is not PEM: {error}")),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |error| format!("{shown} cannot be read: {error}");
    // Looked at before it is opened: opening a pipe would block.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(format!("{shown} is no file"));
    }
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    match read.map_err(cannot)? as u64 > FILE_BYTES_MAX {
        true => Err(format!("{shown} has more than {FILE_BYTES_MAX} bytes")),
        false => Ok(bytes),
    }
}
