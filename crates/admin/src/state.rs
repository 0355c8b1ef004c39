//! Where what outlives the process is kept.

use std::env::var_os;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Characters of the name of a file that the name of its folder shows.
const SHOWN_MAX: usize = 64;

/// The folder that is taken where a configuration names none: the service manager's, of root
/// under `/var/lib`, of others where their state is (XDG Base Directory Specification).
///
/// # Errors
/// Why there is none, and what to do.
pub fn usual_folder() -> Result<PathBuf, String> {
    let set = |name: &str| var_os(name).filter(|value| !value.is_empty());
    if let Some(folders) = set("STATE_DIRECTORY") {
        // systemd.exec(5): separated by colons.
        let first = std::env::split_paths(&folders).next();
        return Ok(first.unwrap_or_default());
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/weft"));
    }
    let of_user = set("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/state")));
    match of_user {
        Some(folder) => Ok(folder.join("weft")),
        None => Err("neither XDG_STATE_HOME nor HOME is set".to_owned()),
    }
}

/// What the folder of a document is called: by the real path of its file.
pub(crate) fn name_of_document(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: &char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(c);
    let shown: String = name.chars().filter(plain).take(SHOWN_MAX).collect();
    let digest = sha256(file.as_os_str().as_encoded_bytes());
    format!("{shown}-{}", &digest[..16])
}

/// The SHA-256 of bytes, in hexadecimal.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
