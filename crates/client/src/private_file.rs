//! Files with secrets.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use auth::{FileAccess, Secret};

/// The first `most` bytes of one.
///
/// # Errors
/// A sentence for the user, where it is none, cannot be read, or others can read it.
pub fn read_private(path: &Path, most: usize) -> Result<Secret, String> {
    let shown = path.display();
    let cannot = |error| format!("{shown} cannot be read: {error}");
    // Looked at before it is opened: opening a pipe would block.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(format!("{shown} is no file"));
    }
    let file = File::open(path).map_err(cannot)?;
    let about = file.metadata().map_err(cannot)?;
    let access = FileAccess {
        owner: about.uid(),
        mode: about.mode(),
    };
    access.check_private(&shown.to_string())?;
    // Of the whole size at once: what grows leaves copies behind.
    let mut bytes = Vec::with_capacity(most + 1);
    let read = file.take(most as u64).read_to_end(&mut bytes);
    let secret = Secret::new(bytes);
    read.map_err(cannot)?;
    Ok(secret)
}
