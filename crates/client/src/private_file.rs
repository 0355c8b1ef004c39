//! Files that other users may not read.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What others may do with a file so that it holds no secret: read or write it.
const OPEN_TO_ALL: u32 = 0o006;

/// The first `most` bytes of one; a sentence for the user where it cannot be used.
pub(crate) fn read_private(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |error| format!("{shown} cannot be read: {error}");
    // Looked at before it is opened: opening a pipe would block.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(format!("{shown} is no file"));
    }
    let file = File::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.mode();
    if mode & OPEN_TO_ALL != 0 {
        return Err(format!(
            "everybody on this machine may read or write {shown} (mode {:04o}): `chmod 600` it",
            mode & 0o7777
        ));
    }
    let mut bytes = Vec::new();
    file.take(most as u64)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    Ok(bytes)
}
