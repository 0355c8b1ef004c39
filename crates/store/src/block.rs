//! Block devices: opening, their size and their identity.
//!
//! Through the page cache, as files are, so that any memory and any block will
//! do. What the kernel tells of a device comes from sysfs.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::{Errno, pread};
use uuid::Uuid;

use crate::problem::Problem;
use crate::{Info, ResizeError, SIZE_MAX_BYTES, Spec, identity, in_use, regular};

/// The device at `path`, opened so that no other process may mount or open it
/// exclusively; its identity, and the size of the volume on it.
pub(crate) fn open(spec: &Spec, path: &Path) -> Result<(fs::File, Uuid, u64), Problem> {
    let system = |action| {
        move |source| Problem::System {
            action,
            path: Some(path.to_owned()),
            source,
        }
    };
    let found = fs::metadata(path).map_err(system("find"))?;
    if !found.file_type().is_block_device() {
        return Err(Problem::NotADevice(path.to_owned()));
    }
    let sysfs = Sysfs::of(found.rdev());
    // The kernel lets it be opened for writing, and then refuses each write.
    if !spec.read_only && sysfs.is_read_only() {
        return Err(Problem::ReadOnlyDevice(path.to_owned()));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(!spec.read_only);
    let opened = options
        .custom_flags(OFlags::EXCL.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => Problem::DeviceInUse(path.to_owned(), in_use::user_of_device(path)),
        _ => system("open")(source),
    })?;
    let device_block_bytes = sysfs.block_bytes();
    if !spec.block_bytes.is_multiple_of(device_block_bytes) {
        return Err(Problem::DeviceBlock {
            path: path.to_owned(),
            device_block_bytes,
            block_bytes: spec.block_bytes,
        });
    }
    let device_bytes = size(&file).map_err(system("find the size of"))?;
    let fits = device_bytes.min(SIZE_MAX_BYTES) / u64::from(spec.block_bytes);
    let fits = fits * u64::from(spec.block_bytes);
    if fits == 0 || spec.size_bytes > fits {
        return Err(Problem::DeviceSize {
            path: path.to_owned(),
            device_bytes,
            size_bytes: spec.size_bytes,
        });
    }
    if !spec.read_only {
        // The kernel does so itself where no other process has the device open.
        regular::forget_cache(&file, path).map_err(system("sync"))?;
    }
    let uuid = match spec.uuid {
        Some(uuid) => uuid,
        None => sysfs.uuid(&spec.name),
    };
    let bytes = if spec.size_bytes == 0 {
        fits
    } else {
        spec.size_bytes
    };
    Ok((file, uuid, bytes))
}

/// What a device has now.
fn size(file: impl AsFd) -> io::Result<u64> {
    Ok(seek(file, SeekFrom::End(0))?)
}

/// Bytes at either end of a range by which a device is taken for a new one.
const END_BYTES: u64 = 1 << 20;

/// Whether a range of a device is zeros at both ends.
pub(crate) fn is_blank(file: impl AsFd, offset: u64, len: u64) -> bool {
    let part = len.min(END_BYTES);
    let is_zero = |at| {
        let mut bytes = vec![0; part as usize];
        let mut read = 0;
        while read < bytes.len() {
            match pread(&file, &mut bytes[read..], at + read as u64) {
                Ok(0) | Err(_) => return false,
                Ok(more) => read += more,
            }
        }
        bytes.iter().all(|byte| *byte == 0)
    };
    is_zero(offset) && is_zero(offset + len - part)
}

/// The size that a volume on the device would have that was asked for
/// `size_bytes`; 0 asks for all that there is.
pub(crate) fn new_size(file: impl AsFd, info: &Info, size_bytes: u64) -> Result<u64, ResizeError> {
    let device_bytes = size(file).map_err(|source| ResizeError::System {
        action: "find the size of the device",
        source,
    })?;
    match size_bytes {
        0 => {
            let block = u64::from(info.block_bytes);
            Ok(device_bytes.min(SIZE_MAX_BYTES) / block * block)
        }
        _ if size_bytes > device_bytes => Err(ResizeError::Device {
            size_bytes,
            device_bytes,
        }),
        _ => Ok(size_bytes),
    }
}

/// What sysfs tells of a device; nothing of one that it does not know.
struct Sysfs(PathBuf);

/// Attributes that name a device everywhere, and those that name it among the
/// devices of its machine.
const WORLD_WIDE: [&str; 4] = ["wwid", "device/wwid", "dm/uuid", "device/cid"];
const ON_MACHINE: [&str; 2] = ["serial", "device/serial"];

impl Sysfs {
    fn of(device: u64) -> Sysfs {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        Sysfs(fs::canonicalize(&link).unwrap_or(link))
    }

    fn read(&self, attribute: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(attribute)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The whole disk, and which part of it this is.
    fn disk(&self) -> (Sysfs, Option<String>) {
        match self.read("partition") {
            Some(number) => (Sysfs(self.0.join("..")), Some(number)),
            None => (Sysfs(self.0.clone()), None),
        }
    }

    fn is_read_only(&self) -> bool {
        self.read("ro").as_deref() == Some("1")
    }

    /// Bytes that it moves at least; 512 where sysfs does not say.
    fn block_bytes(&self) -> u32 {
        let text = self.disk().0.read("queue/logical_block_size");
        let bytes = text.and_then(|text| text.parse().ok());
        bytes.filter(|&bytes| bytes > 0).unwrap_or(512)
    }

    /// The same wherever the disk is attached, if it has a world wide name; on
    /// this machine, if it has a serial number; else that of the volume `name`.
    fn uuid(&self, name: &str) -> Uuid {
        let (disk, part) = self.disk();
        let first = |attributes: &[&str]| attributes.iter().find_map(|a| disk.read(a));
        let whole = |id: String| match &part {
            Some(number) => format!("{id}-part{number}"),
            None => id,
        };
        match (first(&WORLD_WIDE), first(&ON_MACHINE)) {
            (Some(id), _) => identity::of_device(&whole(id)),
            (None, Some(id)) => identity::derive("block serial", &whole(id)),
            (None, None) => identity::derive("block", name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files as sysfs would have them.
    fn sysfs(root: &Path, files: &[(&str, &str)]) -> Sysfs {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Sysfs(root.to_owned())
    }

    #[test]
    fn a_disk_is_known_by_its_name_and_a_partition_by_its_number_too() {
        let folder = tempfile::tempdir().unwrap();
        let disk = sysfs(
            folder.path(),
            &[
                ("device/wwid", "naa.600140\n"),
                ("device/serial", "7\n"),
                ("queue/logical_block_size", "4096\n"),
                ("ro", "0\n"),
                ("part/partition", "2\n"),
                ("part/ro", "1\n"),
            ],
        );
        let part = Sysfs(folder.path().join("part"));
        assert_eq!(disk.uuid("any"), identity::of_device("naa.600140"));
        assert_eq!(part.uuid("any"), identity::of_device("naa.600140-part2"));
        assert_eq!((disk.block_bytes(), part.block_bytes()), (4096, 4096));
        assert!(part.is_read_only() && !disk.is_read_only());
    }

    #[test]
    fn a_disk_without_a_name_is_known_by_its_serial_number_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let disk = sysfs(folder.path(), &[("serial", "abc\n"), ("wwid", "\n")]);
        let serial = identity::derive("block serial", "abc");
        assert_eq!(disk.uuid("any"), serial);
        let bare = Sysfs(folder.path().join("nothing"));
        assert_eq!(bare.uuid("any"), identity::derive("block", "any"));
        assert_ne!(bare.uuid("any"), bare.uuid("other"));
        assert_eq!(bare.block_bytes(), 512);
        assert!(!bare.is_read_only());
    }
}
