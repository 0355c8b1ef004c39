//! The file with the sums of a volume: a header, then the sums of all blocks, as many bytes for
//! each. What was never written is a hole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use reactor::DiskFile;

use super::sums::SUMS_BYTES;
use super::table::PAGE_BYTES;
use crate::problem::Problem;
use crate::regular::{forget_cache, holder, is_there};
use crate::scrub::SAVED_BYTES;
use crate::spec::with_suffix;
use crate::state::{folder, sums_path};
use crate::{Info, Range, Spec, Volume};

/// Where the sums begin.
pub(super) const HEADER_BYTES: u64 = 4096;

/// First bytes of the file, with the version of the format. The bytes of a block follow, 4 bytes,
/// little-endian, and then the CRC32C of both.
const MAGIC: [u8; 16] = *b"weft-sums 1\n\0\0\0\0";

const HEAD_BYTES: usize = 24;

/// Where the header has how far a scrub is: in a sector of its own.
pub(super) const SCRUB_AT: u64 = 512;

/// What comes after its path while it is made.
const NEW: &str = ".new";

const BRING_BACK: &str = "bring it back from a backup";

/// Bytes of the file with the checksums of a volume that has so many blocks.
pub fn file_bytes(blocks: u64) -> u64 {
    let sums = blocks * u64::from(SUMS_BYTES);
    HEADER_BYTES + sums.next_multiple_of(u64::from(PAGE_BYTES))
}

/// Whether the sums of a volume lie in a file: some of what it keeps outlasts the process.
pub(super) fn is_needed(info: &Info) -> bool {
    info.volatile_cache
}

/// Refuses to serve a volume without its sums: they would be those of other data.
pub(crate) fn expect_none(spec: &Spec) -> Result<(), Problem> {
    match sums_path(spec) {
        Some(path) if !spec.kind.is_memory() && (path.exists() || path.is_symlink()) => {
            Err(Problem::Checksummed(path))
        }
        _ => Ok(()),
    }
}

/// What would keep the sums of a volume from being opened. Nothing is made; blocks.
pub(crate) fn examine(spec: &Spec, info: &Info, has_data: bool) -> Result<(), Problem> {
    if !spec.checksum {
        return expect_none(spec);
    }
    check_kind(spec)?;
    if !is_needed(info) {
        return Ok(());
    }
    let path = sums_path(spec).ok_or(Problem::NoPlaceForSums)?;
    match is_there(&path, BRING_BACK).map_err(system("examine", &path))? {
        true => {
            let file = File::open(&path).map_err(system("open", &path))?;
            check_header(&file, spec.block_bytes, &path)
        }
        false if has_data || spec.read_only => Err(Problem::SumsMissing(path)),
        false => Ok(()),
    }
}

/// Refuses to sum what is not kept.
pub(super) fn check_kind(spec: &Spec) -> Result<(), Problem> {
    match spec.kind.name() {
        "null" => Err(Problem::NothingToSum),
        _ => Ok(()),
    }
}

/// The file with the sums of a volume, locked, which is made where nothing was written to it.
/// Blocks.
pub(super) fn open(spec: &Spec, below: &dyn Volume) -> Result<Arc<DiskFile>, Problem> {
    let path = sums_path(spec).ok_or(Problem::NoPlaceForSums)?;
    let blocks = below.size_bytes() / u64::from(spec.block_bytes);
    if !is_there(&path, BRING_BACK).map_err(system("examine", &path))? {
        let len = below.size_bytes();
        if spec.read_only || !below.is_blank(Range { offset: 0, len }) {
            return Err(Problem::SumsMissing(path));
        }
        if !folder(&path).is_dir() {
            return Err(Problem::NoFolder(folder(&path).to_owned()));
        }
        create(&path, spec.block_bytes, blocks).map_err(system("create", &path))?;
    }
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(!spec.read_only).open(&path);
    let file = opened.map_err(system("open", &path))?;
    lock(&file, &path, spec.read_only)?;
    forget_cache(&file, &path).map_err(system("sync", &path))?;
    check_header(&file, spec.block_bytes, &path)?;
    let has_bytes = file.metadata().map_err(system("examine", &path))?.len();
    if has_bytes < file_bytes(blocks) {
        grow(spec, below, &file, has_bytes).map_err(|why| match why {
            Some(source) => system("enlarge", &path)(source),
            None => Problem::Sums {
                path: path.clone(),
                why: format!("has too few bytes ({has_bytes}): {BRING_BACK}"),
            },
        })?;
    }
    if spec.kind.name() == "file" && !spec.read_only {
        // A crash may have been in the middle of a shrink.
        cut(&file, blocks).map_err(system("resize", &path))?;
    }
    Ok(Arc::new(file.into()))
}

/// How far a scrub was when that was saved; empty where it cannot be read. Blocks.
pub(super) fn saved_scrub(file: &DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; SAVED_BYTES];
    match rustix::io::pread(file, &mut bytes, SCRUB_AT) {
        Ok(len) if len == SAVED_BYTES => bytes,
        _ => Vec::new(),
    }
}

/// Makes the file that of a volume with so many blocks: sums behind those are gone, also where it
/// grows again. On the disk when it returns. Blocks.
pub(super) fn cut(file: &impl AsFd, blocks: u64) -> io::Result<()> {
    rustix::fs::ftruncate(file, HEADER_BYTES + blocks * u64::from(SUMS_BYTES))?;
    rustix::fs::ftruncate(file, file_bytes(blocks))?;
    Ok(rustix::fs::fsync(file)?)
}

/// The volume has grown while it was not served, by what nothing was written to.
fn grow(
    spec: &Spec,
    below: &dyn Volume,
    file: &File,
    has_bytes: u64,
) -> Result<(), Option<io::Error>> {
    let block_bytes = u64::from(spec.block_bytes);
    let has_blocks = has_bytes.saturating_sub(HEADER_BYTES) / u64::from(SUMS_BYTES);
    let offset = (has_blocks * block_bytes).min(below.size_bytes());
    let len = below.size_bytes() - offset;
    if spec.read_only || has_bytes < HEADER_BYTES || !below.is_blank(Range { offset, len }) {
        return Err(None);
    }
    file.set_len(file_bytes(below.size_bytes() / block_bytes))?;
    file.sync_all()?;
    Ok(())
}

fn lock(file: &File, path: &Path, is_shared: bool) -> Result<(), Problem> {
    let locked = match is_shared {
        true => file.try_lock_shared(),
        false => file.try_lock(),
    };
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Problem::InUse {
            path: path.to_owned(),
            holder: holder(file),
        }),
        Err(TryLockError::Error(error)) => Err(system("lock", path)(error)),
    }
}

fn system(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Problem {
    let path = path.to_owned();
    move |source| Problem::System {
        action,
        path: Some(path.clone()),
        source,
    }
}

fn header(block_bytes: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..16].copy_from_slice(&MAGIC);
    head[16..20].copy_from_slice(&block_bytes.to_le_bytes());
    let sum = mem::crc32c_bytes(&head[..20], 0);
    head[20..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// After a crash all of it is there, or nothing.
fn create(path: &Path, block_bytes: u32, blocks: u64) -> io::Result<()> {
    let temporary = with_suffix(path, NEW);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&temporary)?;
    file.set_len(file_bytes(blocks))?;
    file.write_all_at(&header(block_bytes), 0)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder(path))?.sync_all()
}

/// Refuses what is not the file with the sums of blocks of this size.
fn check_header(file: &File, block_bytes: u32, path: &Path) -> Result<(), Problem> {
    let mut head = [0; HEAD_BYTES];
    let refused = |why: String| Problem::Sums {
        path: path.to_owned(),
        why,
    };
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(refused(format!("is too short: {BRING_BACK}")));
        }
        Err(error) => return Err(system("read", path)(error)),
    }
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    if head[..16] != MAGIC || mem::crc32c_bytes(&head[..20], 0) != number(20) {
        return Err(refused(format!("is damaged: {BRING_BACK}")));
    }
    match number(16) == block_bytes {
        true => Ok(()),
        false => Err(refused(format!(
            "has the sums of blocks of {} bytes: set block_bytes to that",
            number(16)
        ))),
    }
}
