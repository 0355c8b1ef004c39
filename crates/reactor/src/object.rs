//! What no safe crate asks the kernel about files: what a file system itself calls an
//! object, that two files share a range, and where the content of a file lies.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

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
    ask(to, &mut CloneRange(range))
}

/// The structure of an `ioctl` that reads and writes nothing beyond it.
trait FileRequest {
    const NUMBER: libc::Ioctl;
}

#[repr(transparent)]
struct CloneRange(libc::file_clone_range);

impl FileRequest for CloneRange {
    const NUMBER: libc::Ioctl = libc::FICLONERANGE;
}

impl FileRequest for ExtentMap {
    /// `FS_IOC_FIEMAP`: number 11 of group `f`, which reads and writes 32 bytes and the
    /// extents behind them.
    const NUMBER: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
}

fn ask<R: FileRequest>(file: BorrowedFd<'_>, request: &mut R) -> io::Result<()> {
    // SAFETY: the structure is the one that this request reads and writes, with all that it
    // says it has room for, and lives until the call returns.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), R::NUMBER, ptr::from_mut(request)) };
    sys::check(rc as isize).map(|_| ())
}

/// Extents that the kernel is asked for at a time.
const EXTENTS: usize = 128;
/// `FIEMAP_FLAG_SYNC`: what is not written yet is written first.
const MAP_SYNC: u32 = 0x1;
/// `FIEMAP_EXTENT_LAST`
const EXTENT_LAST: u32 = 0x1;
/// `FIEMAP_EXTENT_UNWRITTEN`
const EXTENT_UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_MERGED`
const EXTENT_MERGED: u32 = 0x1000;
/// `FIEMAP_EXTENT_SHARED`
const EXTENT_SHARED: u32 = 0x2000;
/// What may be said of an extent whose bytes lie as they are where it says.
const EXTENT_PLAIN: u32 = EXTENT_LAST | EXTENT_MERGED | EXTENT_SHARED;

/// `struct fiemap_extent`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with room for extents.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS],
}

const _: () = assert!(size_of::<ExtentMap>() == 32 + EXTENTS * 56);

/// A run of bytes of a file that has space of its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Its first byte in the file.
    pub offset: u64,
    /// How many there are.
    pub len: u64,
    /// Where they lie.
    pub place: ExtentPlace,
    /// Whether it may have them together with other files.
    pub is_shared: bool,
}

/// Where the bytes of an extent lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentPlace {
    /// At this byte of what the file system lies on, one after another.
    At(u64),
    /// Nothing was written there: they are zeros.
    Unwritten,
    /// Elsewhere, or not as they are: compressed, encrypted, among other data.
    Unknown,
}

/// Extents of a file in their order, from the one on that has byte `start` or comes next,
/// and whether these are all; else there are more behind the last. What waits to be written has
/// its place first if `writes_first`, else the places may be those of before. Asks
/// `FS_IOC_FIEMAP`.
///
/// # Errors
/// EOPNOTSUPP or ENOTTY where the file system does not tell.
pub fn extents(
    file: BorrowedFd<'_>,
    start: u64,
    writes_first: bool,
) -> io::Result<(Vec<FileExtent>, bool)> {
    let mut map = ExtentMap {
        start,
        length: u64::MAX - start,
        flags: if writes_first { MAP_SYNC } else { 0 },
        mapped_extents: 0,
        extent_count: EXTENTS as u32,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS],
    };
    ask(file, &mut map)?;
    let found = &map.extents[..(map.mapped_extents as usize).min(EXTENTS)];
    let are_all = found
        .last()
        .is_none_or(|last| last.flags & EXTENT_LAST != 0);
    let extents = found.iter().map(|extent| FileExtent {
        offset: extent.logical,
        len: extent.length,
        place: match extent.flags & !EXTENT_PLAIN {
            0 => ExtentPlace::At(extent.physical),
            EXTENT_UNWRITTEN => ExtentPlace::Unwritten,
            _ => ExtentPlace::Unknown,
        },
        is_shared: extent.flags & EXTENT_SHARED != 0,
    });
    Ok((extents.collect(), are_all))
}

/// `FS_XFLAG_REALTIME`
const XFLAG_REALTIME: u32 = 0x1;

/// `struct fsxattr`
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    xflags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<FileAttributes>() == 28);

impl FileRequest for FileAttributes {
    /// `FS_IOC_FSGETXATTR`: number 31 of group `X`, which writes 28 bytes.
    const NUMBER: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
}

/// Whether a file lies on the realtime device of its file system (XFS), which has addresses
/// of its own.
///
/// # Errors
/// ENOTTY where the file system does not tell.
pub fn is_realtime(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut attributes = FileAttributes::default();
    ask(file, &mut attributes)?;
    Ok(attributes.xflags & XFLAG_REALTIME != 0)
}

/// Bytes of a file that lie in extents which it shares with no other: what its removal
/// gives back, at least.
///
/// # Errors
/// Those of [`extents`].
pub fn unshared_bytes(file: BorrowedFd<'_>) -> io::Result<u64> {
    let (mut unshared, mut start) = (0, 0);
    loop {
        let (found, are_all) = extents(file, start, true)?;
        let own = found.iter().filter(|extent| !extent.is_shared);
        unshared += own.map(|extent| extent.len).sum::<u64>();
        let next = found.last().map_or(0, |last| last.offset + last.len);
        if are_all || next <= start {
            return Ok(unshared);
        }
        start = next;
    }
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
    fn bytes_that_a_file_has_alone_are_counted_over_many_extents() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        for at in 0..3 * EXTENTS as u64 {
            file.write_all_at(&[1; 4096], at * (64 << 10)).unwrap();
        }
        file.sync_all().unwrap();
        // A folder in memory does not tell.
        if let Ok(bytes) = unshared_bytes(file.as_fd()) {
            assert!(bytes >= 3 * EXTENTS as u64 * 4096, "{bytes}");
            assert!(bytes < 3 * EXTENTS as u64 * (64 << 10), "{bytes}");
        }
        assert!(unshared_bytes(File::open("/dev/null").unwrap().as_fd()).is_err());
    }

    #[test]
    fn a_clone_into_a_device_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let (from, null) = (file.as_fd(), File::open("/dev/null").unwrap());
        assert!(clone_range((from, 0), (null.as_fd(), 0), 0).is_err());
    }
}
