//! Two questions to the kernel about files that no safe crate asks: what a file
//! system itself calls an object, and that two files share a range.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

/// Bytes of a file system's name for an object at most (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with room for the longest.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; HANDLE_BYTES_MAX],
}

/// What the file system below calls an object, which no other object of it has
/// ever been called: inode number, generation and whatever else it needs. The
/// object is that of a name in a directory, not followed if it is a symbolic
/// link; or with an empty name that of the descriptor, which may be of any kind.
/// Asks `name_to_handle_at`, which takes no privilege.
///
/// # Errors
/// EOPNOTSUPP where the file system has no such names; EPERM or ENOSYS where a
/// container denies the call.
pub fn object_name(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut handle = RawHandle {
        handle_bytes: HANDLE_BYTES_MAX as u32,
        handle_type: 0,
        f_handle: [0; HANDLE_BYTES_MAX],
    };
    let mut mount_id = 0_i32;
    // SAFETY: the name ends with a zero byte; the handle has the room that it
    // says it has, and what is written is written before the call returns.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    sys::check(rc as isize)?;
    let len = (handle.handle_bytes as usize).min(HANDLE_BYTES_MAX);
    let mut bytes = handle.handle_type.to_le_bytes().to_vec();
    bytes.extend_from_slice(&handle.f_handle[..len]);
    Ok(bytes)
}

/// Makes `len` bytes from `from_offset` of one file those from `to_offset` of
/// another, sharing what lies under them; 0 for all up to the end of the
/// source. `FICLONERANGE`: one step to all readers and writers.
///
/// # Errors
/// EOPNOTSUPP or ENOTTY where the file system cannot share, EXDEV for files of
/// two, EINVAL for offsets that are not whole blocks.
pub fn clone_range(
    (from, from_offset): (BorrowedFd<'_>, u64),
    (to, to_offset): (BorrowedFd<'_>, u64),
    len: u64,
) -> io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: from.as_raw_fd().into(),
        src_offset: from_offset,
        src_length: len,
        dest_offset: to_offset,
    };
    // SAFETY: the structure is the one that this request reads, and lives
    // until the call returns.
    let rc = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &range) };
    sys::check(rc as isize).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn objects_have_names_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let file = File::create(&path).unwrap();
        let other = File::create(folder.path().join("g")).unwrap();
        let Ok(name) = object_name(file.as_fd(), c"") else {
            // A file system without, or a container that denies the call.
            return;
        };
        assert!(name.len() > 4);
        let dir = File::open(folder.path()).unwrap();
        assert_eq!(object_name(dir.as_fd(), c"f").unwrap(), name);
        assert_ne!(object_name(other.as_fd(), c"").unwrap(), name);
        std::os::unix::fs::symlink(&path, folder.path().join("l")).unwrap();
        assert_ne!(object_name(dir.as_fd(), c"l").unwrap(), name);
    }

    #[test]
    fn a_clone_into_a_device_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let (from, null) = (file.as_fd(), File::open("/dev/null").unwrap());
        assert!(clone_range((from, 0), (null.as_fd(), 0), 0).is_err());
    }
}
