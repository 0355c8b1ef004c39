//! The log of a mirror: whatever is done to it, it is refused, or what the legs hold is served.

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use store::{Kind, Spec, Volume, open, open_over};
use tempfile::TempDir;
use uuid::Uuid;

use super::volumes::{change, copy, folder, read, upkeep, write};

/// Sums both copies again after the change.
const SUMS: u8 = 1 << 0;

const BLOCK_BYTES: usize = 512;
const BYTES: usize = 256 << 10;

/// Bytes of a copy's place, and of what stands before what it holds.
const PLACE_BYTES: usize = 64 << 10;
const HEAD_BYTES: usize = 32;

/// The files of a mirror that was written to and has ended in order.
static WRITTEN: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = folder();
    let volume = opened(folder.path()).expect("a new mirror");
    for offset in (0..BYTES).step_by(BYTES / 8) {
        write(&volume, offset as u64, &[7; BLOCK_BYTES]).expect("two legs");
    }
    folder
});

fn opened(folder: &Path) -> Option<Arc<dyn Volume>> {
    // A copy of a file has not the attribute that says it.
    let leg = |name: &str, uuid| {
        let kind = Kind::file(folder.join(name));
        let spec = Spec {
            uuid: Some(Uuid::from_u128(uuid)),
            ..Spec::new(name, kind, BYTES as u64, BLOCK_BYTES as u32)
        };
        open(&spec).expect("a leg")
    };
    let kind = Kind::mirror(&["left", "right"]);
    let spec = Spec {
        state: Some(folder.join("state")),
        ..Spec::new("both", kind, 0, BLOCK_BYTES as u32)
    };
    open_over(&spec, vec![leg("left", 1), leg("right", 2)]).ok()
}

/// Makes the checksum of each copy right.
fn seal(log: &mut [u8]) {
    for place in log
        .chunks_mut(PLACE_BYTES)
        .filter(|place| place.len() > HEAD_BYTES)
    {
        let (head, behind) = place.split_at_mut(HEAD_BYTES);
        let len = u32::from_le_bytes(head[24..28].try_into().expect("four bytes")) as usize;
        if let Some(content) = behind.get(..len) {
            let sum = mem::crc32c_bytes(&[&head[..28], content].concat(), 0);
            head[28..].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Each record says where it changes bytes of the log, in three bytes, and to what.
pub fn mirror_log(input: &[u8]) {
    let place = folder();
    copy(WRITTEN.path(), place.path());
    let path = place.path().join("state.mirror");
    let mut log = fs::read(&path).expect("a log");
    change(&mut log, input, |mode, log| {
        if mode & SUMS != 0 {
            seal(log);
        }
    });
    fs::write(&path, &log).expect("room");
    let Some(volume) = opened(place.path()) else {
        return;
    };
    let size_bytes = volume.size_bytes();
    upkeep(&volume, 8);
    for offset in (0..size_bytes).step_by(BYTES / 16) {
        let byte = if offset % (BYTES as u64 / 8) == 0 {
            7
        } else {
            0
        };
        let found = read(&volume, offset, BLOCK_BYTES);
        assert!(found.is_err() || found.as_deref() == Ok(&[byte; BLOCK_BYTES]));
    }
    if write(&volume, 0, &[8; BLOCK_BYTES]).is_ok() {
        assert!(read(&volume, 0, BLOCK_BYTES).as_deref() == Ok(&[8; BLOCK_BYTES]));
    }
    let _ = volume.as_mirror().map(|mirror| mirror.status());
}
