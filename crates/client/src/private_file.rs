//! Files that other users may not read.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    auth::check_private(&shown.to_string(), mode)?;
    let mut bytes = Vec::new();
    file.take(most as u64)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    Ok(bytes)
}
