//! Why a volume could not be opened.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::memory::MemoryLimit;
use crate::spec::{ATTRIBUTE, SIZE_MAX_BYTES};

/// Why a volume could not be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("volume '{volume}': {problem}")]
pub struct OpenError {
    /// The volume's name in the configuration.
    pub volume: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a volume that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Not one of [`BLOCK_SIZES`].
    #[error("a block of {0} bytes is not supported: use 512 or 4096")]
    BlockSize(u32),
    /// Zero, larger than [`SIZE_MAX_BYTES`], or no multiple of the block size.
    #[error(
        "a size of {size_bytes} bytes is not possible: use a multiple of the block size \
         ({block_bytes}) from {block_bytes} to {SIZE_MAX_BYTES}"
    )]
    Size {
        /// As asked for.
        size_bytes: u64,
        /// As asked for.
        block_bytes: u32,
    },
    /// A RAM volume larger than the memory that there is.
    #[error(
        "a size of {size_bytes} bytes does not fit in {limit}: make it smaller or use a file \
         volume"
    )]
    Memory {
        /// As asked for.
        size_bytes: u64,
        /// What there is.
        limit: MemoryLimit,
    },
    /// The folder of the file does not exist.
    #[error("the folder {} does not exist: create it with 'mkdir -p'", .0.display())]
    NoFolder(PathBuf),
    /// A read-only volume's file does not exist.
    #[error(
        "{} does not exist, and a read-only volume is not created: correct the path or open the \
         volume once without read_only",
        .0.display()
    )]
    NoFile(PathBuf),
    /// A symbolic link, and that to which it leads, which does not exist.
    #[error(
        "{} is a symbolic link to {}, which does not exist: mount what that lies in, or correct \
         the link",
        .0.display(), .1.display()
    )]
    DanglingLink(PathBuf, PathBuf),
    /// A block device.
    #[error("{} is a block device: use kind \"block\", which serves it as it is", .0.display())]
    BlockDevice(PathBuf),
    /// A folder, socket, pipe or character device.
    #[error(
        "{} is not a regular file: give the path of a file, which is created if it does not exist",
        .0.display()
    )]
    NotAFile(PathBuf),
    /// Anything but a block device.
    #[error("{} is not a block device: give the path of one, or use kind \"file\"", .0.display())]
    NotADevice(PathBuf),
    /// A device that the system or another process uses, and how.
    #[error(
        "{} {}: unmount it, take it out of its array or volume group, or stop the process that \
         has it ('lsblk' and 'fuser -v' tell)",
        .0.display(), .1.as_deref().unwrap_or("is in use")
    )]
    DeviceInUse(PathBuf, Option<String>),
    /// A file that the system uses as a disk, and how.
    #[error(
        "{} {}: detach it there ('losetup -d', 'swapoff') or use another file",
        .0.display(), .1
    )]
    FileInUse(PathBuf, String),
    /// An image in a format that has more than the disk's own bytes.
    #[error(
        "{0} is a {format} image, whose headers hosts would see and overwrite: convert it \
         ('qemu-img convert -O raw {0} NEW') and use that, or, if hosts are to have its very \
         bytes, set adopt = true",
        .path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// How the format is called.
        format: &'static str,
    },
    /// A file that is smaller than the volume, and that weft did not make.
    #[error(
        "{} has {file_bytes} bytes, the volume {size_bytes}, and weft did not make the file: \
         correct the path, or, if it is to be grown and become a disk, set adopt = true",
        .path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it has.
        file_bytes: u64,
        /// As asked for.
        size_bytes: u64,
    },
    /// A file whose file system moves nothing past the page cache.
    #[error(
        "{} cannot be used past the page cache: {source}; leave `direct` out, set it to \"auto\", \
         or move the file to a file system that knows O_DIRECT (XFS, ext4, btrfs)",
        .path.display()
    )]
    NoDirectIo {
        /// The file or device.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// A device that cannot be written.
    #[error(
        "{} cannot be written: set read_only, or make it writable ('blockdev --setrw')",
        .0.display()
    )]
    ReadOnlyDevice(PathBuf),
    /// The volume's blocks are smaller than the device's.
    #[error(
        "{} has blocks of {device_block_bytes} bytes, the volume of {block_bytes}: set \
         block_bytes to {device_block_bytes} or a multiple of it",
        .path.display()
    )]
    DeviceBlock {
        /// The device.
        path: PathBuf,
        /// What the device has.
        device_block_bytes: u32,
        /// As asked for.
        block_bytes: u32,
    },
    /// The device is smaller than the volume, or than a block.
    #[error(
        "{} has {device_bytes} bytes, which is too little for a volume of {size_bytes}: leave \
         the size out to serve all of it, or set a smaller one",
        .path.display()
    )]
    DeviceSize {
        /// The device.
        path: PathBuf,
        /// What it has.
        device_bytes: u64,
        /// As asked for; 0 for all that there is.
        size_bytes: u64,
    },
    /// Another process, or another volume of this one, holds the file.
    #[error("{} is already served by {}", .path.display(), server(*.holder))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that holds it, where the system tells.
        holder: Option<u32>,
    },
    /// The file is larger than the volume, or smaller and read only.
    #[error(
        "{} has {file_bytes} bytes, the volume {size_bytes}: set its size to {file_bytes}, or {}",
        .path.display(), other_way(*.file_bytes, *.size_bytes)
    )]
    FileSize {
        /// The file.
        path: PathBuf,
        /// What it has.
        file_bytes: u64,
        /// As asked for.
        size_bytes: u64,
    },
    /// Too few or too many volumes that it is to be made of.
    #[error(
        "a volume of the kind \"{kind}\" is made of {}: name as many in `of`",
        how_many(*.least, *.most, *.has)
    )]
    PartCount {
        /// Of the volume.
        kind: &'static str,
        /// As configured.
        has: usize,
        /// As many at least,
        least: usize,
        /// and at most.
        most: usize,
    },
    /// A volume that it is to be made of has larger blocks.
    #[error(
        "the volume \"{part}\" has blocks of {part_block_bytes} bytes, this one of {block_bytes}: \
         set block_bytes to {part_block_bytes} or a multiple of it"
    )]
    PartBlock {
        /// The name of that volume.
        part: String,
        /// Bytes of its blocks.
        part_block_bytes: u32,
        /// Of the volume that is to be made.
        block_bytes: u32,
    },
    /// A volume that it is to be made of may not be changed.
    #[error(
        "the volume \"{0}\" is read only, or a host has write-protected it for good: set read_only \
         for this one too, or name another volume"
    )]
    PartReadOnly(String),
    /// A volume that it is to be made of, or the range of it, is part of another.
    #[error(
        "the volume \"{part}\", or the range of it that this one would have, is part of \
         \"{owner}\": name another volume, or a range that is free"
    )]
    PartTaken {
        /// The name of that volume.
        part: String,
        /// The name of the volume that it is part of.
        owner: String,
    },
    /// More, or, where that counts, less than the volumes that it is to be made of hold.
    #[error("{}", parts_size(*.size_bytes, *.has_bytes))]
    PartsSize {
        /// As asked for.
        size_bytes: u64,
        /// What there is room for.
        has_bytes: u64,
    },
    /// A place or a length that is no whole number of blocks.
    #[error("`{key}` ({bytes}) is no multiple of the block size ({block_bytes})")]
    NotInBlocks {
        /// In the configuration.
        key: &'static str,
        /// As configured.
        bytes: u64,
        /// Of the volume.
        block_bytes: u64,
    },
    /// Chunks of no bytes.
    #[error("`chunk_bytes` is 0: set it to a multiple of the block size, as \"64KiB\"")]
    NoChunk,
    /// A mirror that has no place for its log.
    #[error(
        "a mirror keeps beside its state file which leg has what: set `state` to the path of a \
         file, which is created if it does not exist"
    )]
    NoLog,
    /// The log of a mirror cannot be trusted.
    #[error(
        "{} {why}: bring the right one back; if there is none, move this away, and all is copied \
         from the leg that was in the mirror last",
        .path.display()
    )]
    MirrorLog {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A leg has less than its mirror had.
    #[error(
        "its volume \"{leg}\" has {leg_bytes} bytes, and the mirror had {size_bytes}: give the \
         volume its size back; if the mirror is to be smaller, set `size`"
    )]
    LegShrunk {
        /// Its name.
        leg: String,
        /// What it has.
        leg_bytes: u64,
        /// What the mirror had.
        size_bytes: u64,
    },
    /// Of the volumes that a mirror is to be made of its log knows none.
    #[error(
        "{} knows none of the volumes that `of` names, or they are copies from before they were \
         in the mirror last: name one that it knows; to begin with the first of these, move the \
         file away",
        .0.display()
    )]
    NoKnownLeg(PathBuf),
    /// Too many volumes below each other.
    #[error(
        "it is made of volumes that are made of so many others that an I/O on it cannot tell them \
         apart: make it of fewer"
    )]
    TooDeep,
    /// An encrypted volume that has no state file.
    #[error(
        "an encrypted volume keeps its keys beside its state file: set `state` to the path of one, \
         which is created if it does not exist"
    )]
    NoPlaceForKeys,
    /// The keys of the volume cannot be used.
    #[error(
        "the file {} with the volume's keys {why}; without it what was written cannot be read",
        .path.display()
    )]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// There is data, and no keys.
    #[error(
        "something was written to it, and the file {} with its keys does not exist: bring it back \
         from a backup; a volume that was not encrypted becomes so only before anything is written \
         to it: encrypt another one, and copy",
        .0.display()
    )]
    KeysMissing(PathBuf),
    /// The key of the owner is that of another volume.
    #[error(
        "the key is another one than that by which {} is wrapped: name the right one, or that one \
         too, as `former_key_file` or `former_passphrase_file`",
        .0.display()
    )]
    WrongKey(PathBuf),
    /// Its keys lie beside it, and it is to be served as it is.
    #[error(
        "it is encrypted, with keys in {}: set `key_file` or `passphrase_file`; or, if its data is \
         not wanted any more, move that file away",
        .0.display()
    )]
    Encrypted(PathBuf),
    /// A checksummed volume that has no state file.
    #[error(
        "a checksummed volume keeps its checksums beside its state file: set `state` to the path \
         of one, which is created if it does not exist"
    )]
    NoPlaceForSums,
    /// Checksums of what is not kept.
    #[error("a volume of the kind \"null\" keeps nothing to check: leave `checksum` out")]
    NothingToSum,
    /// The checksums of the volume cannot be used.
    #[error("the file {} with the volume's checksums {why}", .path.display())]
    Sums {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// There is data, and no checksums.
    #[error(
        "something was written to it, and the file {} with its checksums does not exist: bring it \
         back from a backup; a volume that had none gets them only before anything is written to \
         it: copy to another one that has checksum = true",
        .0.display()
    )]
    SumsMissing(PathBuf),
    /// There is data in memory, and no checksums.
    #[error(
        "something was written to what it is made of, of which there are no checksums: set \
         `checksum` before anything is written"
    )]
    SumsInMemory,
    /// Its checksums lie beside it, and it is to be served without.
    #[error(
        "it has checksums in {}, which would not be those of what is written from now on: set \
         checksum = true, or, if they are not wanted any more, move that file away",
        .0.display()
    )]
    Checksummed(PathBuf),
    /// What the volume remembers beside its data cannot be trusted.
    #[error(
        "the state file {} {why}: bring it back from a backup, or, if no host relies on its \
         reservations and write protection, move it away",
        .path.display()
    )]
    State {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file says that the volume has a state file, which is not there.
    #[error(
        "{0} has reservations or a write protection in a state file, and {1} does not exist: \
         move the state file there, or set `state` to where it is now; if no host relies on it, \
         give it up ('setfattr -n {ATTRIBUTE} -v '{record}' {0}')",
        .path.display(), .state.display()
    )]
    StateMissing {
        /// The file.
        path: PathBuf,
        /// Where the state file should be.
        state: PathBuf,
        /// What the file is to keep if there shall be none.
        record: String,
    },
    /// There is no snapshot.
    #[error(
        "{} is no folder of a snapshot: `weft snapshot list` has those that there are, in the folder \
         beside the volume's file whose name ends in `.snapshots`",
        .0.display()
    )]
    NoSnapshot(PathBuf),
    /// A snapshot is not as it was made: why.
    #[error("the snapshot {} is damaged: {}", .0.display(), .1)]
    DamagedSnapshot(PathBuf, String),
    /// Blocks of another size than the volume had when the snapshot was made.
    #[error("the snapshot {} has blocks of {block_bytes} bytes: set block_bytes to that", .path.display())]
    SnapshotBlock {
        /// Its folder.
        path: PathBuf,
        /// What the volume had.
        block_bytes: u32,
    },
    /// A volume that another machine keeps cannot be reached: why.
    #[error("{0}")]
    Remote(String),
    /// It has another size, or other blocks, than is configured.
    #[error(
        "its namespace has {size_bytes} bytes in blocks of {block_bytes}: leave `size` and \
         `block_bytes` out, or set them to that"
    )]
    RemoteFormat {
        /// What it has.
        size_bytes: u64,
        /// Bytes of its blocks.
        block_bytes: u32,
    },
    /// A rollback that was interrupted cannot be brought to its end.
    #[error("{0}")]
    Snapshot(String),
    /// The operating system refused.
    #[error("cannot {action}{}: {source}{}", behind(.path.as_deref()), remedy(.source))]
    System {
        /// What was tried, as in "cannot ...".
        action: &'static str,
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// Its answer.
        source: io::Error,
    },
}

/// What serves a file that is in use, and what to do about it.
fn server(holder: Option<u32>) -> String {
    match holder {
        Some(pid) if pid == std::process::id() => {
            "another volume of this process: give each its own file".to_owned()
        }
        Some(pid) => format!("process {pid}: stop that one or use another file"),
        None => "another process ('fuser' or 'lslocks' names it): stop that one or use another \
                 file"
            .to_owned(),
    }
}

/// So many volumes, of which there are so many.
fn how_many(least: usize, most: usize, has: usize) -> String {
    match most {
        1 => format!("one other, not of {has}"),
        most => format!("{least} to {most} others, not of {has}"),
    }
}

/// What is wrong with the size of a volume that is made of others.
fn parts_size(size_bytes: u64, has_bytes: u64) -> String {
    match (size_bytes, has_bytes) {
        (_, 0) => "there is no room for it on the volumes that it is made of: make those larger, \
                   or let it begin before their end"
            .to_owned(),
        _ => format!(
            "the volumes that it is made of have room for {has_bytes} bytes, its size is \
             {size_bytes}: set it to {has_bytes}"
        ),
    }
}

/// What else helps where a file has not the size of its volume.
fn other_way(file_bytes: u64, size_bytes: u64) -> &'static str {
    match file_bytes > size_bytes {
        true => "use another file (a file is never shrunk, that would destroy data)",
        false => "open it once without read_only (a read-only one is not grown)",
    }
}

/// A path behind what was tried with it.
fn behind(path: Option<&Path>) -> String {
    path.map_or(String::new(), |path| format!(" {}", path.display()))
}

/// What helps against an answer of the operating system, behind it in parentheses.
pub fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            " (let the user that runs weft read and write the file and its folder)"
        }
        Some(Errno::ROFS) => " (set read_only, or use a file system that can be written)",
        Some(Errno::NOSPC | Errno::DQUOT) => " (free space there, or use another file system)",
        Some(Errno::FBIG) => {
            " (the file system, or 'ulimit -f', allows no file of that size: use another one, or \
             raise the limit)"
        }
        Some(Errno::XDEV) => " (use a path on the same file system)",
        Some(Errno::NOTDIR) => " (a part of its path is a file: use another path)",
        Some(Errno::MFILE | Errno::NFILE) => " (raise the limit of open files: 'ulimit -n')",
        Some(Errno::NOMEM) => " (use smaller volumes, or raise the limit of memory)",
        _ => "",
    }
}

pub(crate) fn no_memory(source: io::Error) -> Problem {
    Problem::System {
        action: "map its memory",
        path: None,
        source,
    }
}
