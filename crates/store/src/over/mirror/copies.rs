//! Where the record of a mirror lies: a file with two places, which are written in turn.
//!
//! Each has a number, and a checksum over that and what it holds. The one with the higher number
//! counts. A write that was torn by a crash leaves the other one, and nothing was answered that
//! rests on it. The file is never replaced, so that its lock keeps others away.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crc_fast::{CrcAlgorithm, checksum};

use crate::Medium;
use crate::problem::Problem;
use crate::regular::holder;
use crate::state::folder;

const MAGIC: [u8; 16] = *b"weft-mirror 1\n\0\0";

/// Bytes before what a place holds: the magic, its number, the length, the checksum.
const HEAD_BYTES: usize = 32;

/// Bytes of a place, so that each page of the file is of one.
const PLACE_BYTES: u64 = 64 << 10;

pub(super) struct TwoCopies {
    path: PathBuf,
    file: File,
    /// The number of the copy that counts; 0 before the first.
    number: Mutex<u64>,
}

impl TwoCopies {
    /// Opens the file, which is made where it is not there. Blocks.
    pub(super) fn open(path: &Path) -> Result<TwoCopies, Problem> {
        let system = |action| {
            move |source| Problem::System {
                action,
                path: Some(path.to_owned()),
                source,
            }
        };
        if !folder(path).is_dir() {
            return Err(Problem::NoFolder(folder(path).to_owned()));
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let opened = options.open(path).map_err(system("open"))?;
        match opened.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Problem::InUse {
                    path: path.to_owned(),
                    holder: holder(&opened),
                });
            }
            Err(TryLockError::Error(error)) => return Err(system("lock")(error)),
        }
        let synced = File::open(folder(path)).and_then(|folder| folder.sync_all());
        synced.map_err(system("sync the folder of"))?;
        Ok(TwoCopies {
            path: path.to_owned(),
            file: opened,
            number: Mutex::new(0),
        })
    }

    /// What lies in the file of this path, which another may have open; nothing is made. Blocks.
    pub(super) fn look(path: &Path) -> io::Result<Option<Vec<u8>>> {
        match File::open(path) {
            Ok(file) => Ok(newest(&file)?.map(|(_, bytes)| bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Medium for TwoCopies {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        let Some((number, bytes)) = newest(&self.file)? else {
            return Ok(None);
        };
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = number;
        Ok(Some(bytes))
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        // One that failed is written again, in the same place.
        let next = *number + 1;
        let mut place = head(next, bytes);
        place.extend_from_slice(bytes);
        if place.len() as u64 > PLACE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all_at(&place, next % 2 * PLACE_BYTES)?;
        self.file.sync_data()?;
        *number = next;
        Ok(())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

fn head(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&number.to_le_bytes());
    head.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    head.extend_from_slice(&sum(&head, bytes).to_le_bytes());
    head
}

/// Over the head as far as the checksum, and what follows it.
fn sum(head: &[u8], bytes: &[u8]) -> u32 {
    let all = [head, bytes].concat();
    checksum(CrcAlgorithm::Crc32Iscsi, &all) as u32
}

/// The copy that counts, and its number; `None` in a file that nothing was ever written to whole
/// and answered.
fn newest(file: &File) -> io::Result<Option<(u64, Vec<u8>)>> {
    let len = file.metadata()?.len();
    let copies = [read(file, 0, len)?, read(file, 1, len)?];
    let newest = copies
        .into_iter()
        .flatten()
        .max_by_key(|(number, _)| *number);
    // The first goes to the second place. Where there is more, one of two was whole once.
    let is_new = len == 0 || len > PLACE_BYTES && is_zero(file)?;
    match newest {
        None if !is_new => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "neither of its two copies is whole",
        )),
        newest => Ok(newest),
    }
}

/// Whether the first place was never written to.
fn is_zero(file: &File) -> io::Result<bool> {
    let mut bytes = vec![0; HEAD_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

/// What a place holds, if it is whole.
fn read(file: &File, place: u64, len: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
    let at = place * PLACE_BYTES;
    if at + HEAD_BYTES as u64 > len {
        return Ok(None);
    }
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, at)?;
    let number = u64::from_le_bytes(head[16..24].try_into().expect("eight bytes"));
    let bytes = u32::from_le_bytes(head[24..28].try_into().expect("four bytes")) as usize;
    let told = u32::from_le_bytes(head[28..32].try_into().expect("four bytes"));
    let behind = at + HEAD_BYTES as u64;
    let is_there = bytes as u64 <= PLACE_BYTES - HEAD_BYTES as u64 && behind + bytes as u64 <= len;
    // No next one has a number where this is the last that there is.
    if head[..16] != MAGIC || !is_there || number == u64::MAX {
        return Ok(None);
    }
    let mut content = vec![0; bytes];
    file.read_exact_at(&mut content, behind)?;
    Ok((sum(&head[..28], &content) == told).then_some((number, content)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file_with(saves: &[&[u8]]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mirror");
        let copies = TwoCopies::open(&path).unwrap();
        assert_eq!(copies.load().unwrap(), None);
        saves.iter().for_each(|bytes| copies.save(bytes).unwrap());
        (folder, path)
    }

    #[test]
    fn last_that_was_saved_is_there_however_the_next_is_torn() {
        let (_folder, path) = file_with(&[b"one", b"second"]);
        let before = fs::read(&path).unwrap();
        TwoCopies::open(&path).unwrap();
        {
            let copies = TwoCopies::open(&path).unwrap();
            assert_eq!(copies.load().unwrap().unwrap(), b"second");
            copies.save(b"the third").unwrap();
        }
        let after = fs::read(&path).unwrap();
        let at = PLACE_BYTES as usize;
        let (mut whole, mut torn) = (0, 0);
        for cut in 0..=HEAD_BYTES + 9 {
            let mut bytes = before.clone();
            let len = bytes.len().max(at + cut);
            bytes.resize(len, 0);
            bytes[at..at + cut].copy_from_slice(&after[at..at + cut]);
            fs::write(&path, &bytes).unwrap();
            let found = TwoCopies::look(&path).unwrap().unwrap();
            match &found[..] {
                b"the third" => whole += 1,
                b"second" => torn += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(whole, 1, "only all of it is all of it");
        assert_eq!(torn, HEAD_BYTES + 9);
    }

    #[test]
    fn flipped_bit_leaves_the_copy_before_it_and_two_are_told() {
        let (_folder, path) = file_with(&[b"one", b"two"]);
        let bytes = fs::read(&path).unwrap();
        let newer = 0..HEAD_BYTES + 3;
        for at in newer.clone() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            fs::write(&path, &flipped).unwrap();
            assert_eq!(TwoCopies::look(&path).unwrap().unwrap(), b"one", "{at}");
            flipped[PLACE_BYTES as usize + 20] ^= 1;
            fs::write(&path, &flipped).unwrap();
            let told = TwoCopies::look(&path).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::InvalidData, "{at}");
        }
    }

    #[test]
    fn file_is_one_mirrors_alone() {
        let (_folder, path) = file_with(&[]);
        let first = TwoCopies::open(&path).unwrap();
        let second = TwoCopies::open(&path);
        assert!(matches!(second, Err(Problem::InUse { .. })));
        drop(first);
        TwoCopies::open(&path).unwrap();
    }

    #[test]
    fn file_that_is_new_holds_nothing_also_after_a_torn_first_write() {
        let (_folder, path) = file_with(&[]);
        let mut bytes = vec![0; PLACE_BYTES as usize + 40];
        bytes[PLACE_BYTES as usize..][..16].copy_from_slice(&MAGIC);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(TwoCopies::look(&path).unwrap(), None);
    }
}
