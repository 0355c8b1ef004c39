//! The file with the checksums of a volume: whatever is done to it, blocks whose checksums it does
//! not have are errors, and others are what was written.

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use store::{Kind, ScrubAction, ScrubState, Spec, Volume, open};
use tempfile::TempDir;

use super::volumes::{change, copy, folder, read, upkeep, write};

/// The first bytes are changed in the data.
const DATA: u8 = 1 << 0;

const BLOCK_BYTES: usize = 512;
const BLOCKS: usize = 64;

/// Where the checksums begin in their file, and bytes of those of a block.
const HEADER_BYTES: usize = 4096;
const SUMS_BYTES: usize = 16;

/// The files of a volume of which every other block was written, some twice.
static WRITTEN: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = folder();
    let volume = opened(folder.path()).expect("a new volume");
    for block in (0..BLOCKS).step_by(2).chain(0..4) {
        let bytes = [block as u8 + 1; BLOCK_BYTES];
        let written = write(&volume, (block * BLOCK_BYTES) as u64, &bytes);
        written.expect("a block of its own");
    }
    folder
});

fn opened(folder: &Path) -> Option<Arc<dyn Volume>> {
    let bytes = (BLOCKS * BLOCK_BYTES) as u64;
    let kind = Kind::file(folder.join("disk"));
    let spec = Spec {
        checksum: true,
        scrub_rate: u64::MAX >> 1,
        ..Spec::new("disk", kind, bytes, BLOCK_BYTES as u32)
    };
    open(&spec).ok()
}

/// Whether a block is one that its checksums are of.
fn is_right(data: &[u8], sums: &[u8], block: usize) -> bool {
    let zeros = mem::crc32c_bytes(&[0; BLOCK_BYTES], 0);
    let data = &data[block * BLOCK_BYTES..][..BLOCK_BYTES];
    let sum = (mem::crc32c_bytes(data, 0) ^ zeros).to_le_bytes();
    let sums = &sums[HEADER_BYTES + block * SUMS_BYTES..][..SUMS_BYTES];
    sums.chunks_exact(4).any(|other| other == sum)
}

/// Each record says where it changes bytes of the file, in three bytes, and to what.
pub fn sums_file(input: &[u8]) {
    let place = folder();
    copy(WRITTEN.path(), place.path());
    let (disk, beside) = (
        place.path().join("disk"),
        place.path().join("disk.weft.sums"),
    );
    let (mut data, mut sums) = (
        fs::read(&disk).expect("data"),
        fs::read(&beside).expect("sums"),
    );
    change(&mut sums, input, |mode, _| {
        if mode & DATA != 0 {
            data[usize::from(mode >> 3) * BLOCK_BYTES] ^= mode;
        }
    });
    fs::write(&disk, &data).expect("room");
    fs::write(&beside, &sums).expect("room");
    let Some(volume) = opened(place.path()) else {
        return;
    };
    // What was cut off is as if it was never written.
    sums.resize(HEADER_BYTES + BLOCKS * SUMS_BYTES, 0);
    let right: Vec<bool> = (0..BLOCKS)
        .map(|block| is_right(&data, &sums, block))
        .collect();
    let scrub = volume.scrub().expect("it has checksums");
    if scrub.act(ScrubAction::Start) || scrub.act(ScrubAction::Resume) {
        upkeep(&volume, 20);
        let status = scrub.status();
        if status.state == ScrubState::Done && status.read_bytes == data.len() as u64 {
            let bad = right.iter().filter(|right| !**right).count();
            assert!(status.bad_blocks >= bad as u64, "{status:?}");
        }
    }
    for (block, is_right) in right.into_iter().enumerate() {
        let offset = (block * BLOCK_BYTES) as u64;
        let found = read(&volume, offset, BLOCK_BYTES);
        assert_eq!(found.is_ok(), is_right, "block {block}");
        let there = &data[block * BLOCK_BYTES..][..BLOCK_BYTES];
        assert!(found.is_err() || found.as_deref() == Ok(there));
    }
    for block in [0, 5, BLOCKS - 1] {
        let (offset, bytes) = ((block * BLOCK_BYTES) as u64, [0xaa; BLOCK_BYTES]);
        write(&volume, offset, &bytes).expect("whatever its checksums were");
        assert!(read(&volume, offset, BLOCK_BYTES).as_deref() == Ok(&bytes));
    }
}
