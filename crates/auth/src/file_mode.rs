//! The modes of files that hold secrets.

/// What others may do with a file so that it holds no secret: read or write it.
const OPEN_TO_ALL: u32 = 0o006;

/// Whether `file`, as it is shown, may hold a secret by its mode (stat(2)).
///
/// # Errors
/// Every user of the machine may read or write it: so, and what to do.
pub fn check_private(file: &str, mode: u32) -> Result<(), String> {
    let shown = mode & 0o7777;
    match mode & OPEN_TO_ALL {
        0 => Ok(()),
        _ => Err(format!(
            "everybody on this machine may read or write {file} (mode {shown:04o}); `chmod 600` it"
        )),
    }
}
