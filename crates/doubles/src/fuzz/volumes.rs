//! What the targets of volumes have in common: a driver, I/Os one after the other, changed files.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use mem::{Budget, Pool, Region};
use reactor::{AnyDriver, Choice, Completion, Driver, DriverConfig, Wait};
use store::{Error, Io, LEG_BITS, Progress, Volume};
use tempfile::TempDir;

use super::records;

const TOKEN: u64 = 7 << LEG_BITS;

/// Cuts a file, where another record changes bytes of it.
const CUTS: u8 = 1 << 2;

thread_local! {
    static MEMORY: Region = Region::anonymous(4096).expect("memory");
    static DRIVER: RefCell<AnyDriver> = RefCell::new(driver());
}

fn driver() -> AnyDriver {
    let pool = Pool::new(Budget::new(1 << 20)).expect("memory");
    reactor::open(Choice::Epoll, &DriverConfig::default(), pool).expect("a driver")
}

/// A folder in memory, where there is such.
pub fn folder() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

/// Copies a folder of files.
pub fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, to.join(name)).expect("room");
    }
}

/// Changes bytes as the records of an input say: each has a place, in three bytes, and what is
/// there from then on. The modes that are not known here go to `then`.
pub fn change(bytes: &mut Vec<u8>, input: &[u8], mut then: impl FnMut(u8, &mut Vec<u8>)) {
    for (mode, record) in records(input) {
        if let Some((&[low, middle, high], new)) = record.split_first_chunk::<3>()
            && !bytes.is_empty()
        {
            let place = u32::from_le_bytes([low, middle, high, 0]) as usize % bytes.len();
            match mode & CUTS != 0 {
                true => bytes.truncate(place),
                false => {
                    let len = new.len().min(bytes.len() - place);
                    bytes[place..place + len].copy_from_slice(&new[..len]);
                }
            }
        }
        then(mode, bytes);
    }
}

fn to_its_end(volume: &dyn Volume, driver: &mut AnyDriver, begun: Progress) -> Result<(), Error> {
    let (mut progress, mut done) = (begun, Vec::new());
    loop {
        let task = match progress {
            Progress::Done(result) => return result,
            Progress::Pending(task) => task,
        };
        while done.is_empty() {
            let polled = driver.poll(Wait::Until(u64::MAX), &mut done);
            polled.expect("a driver that works");
        }
        let Completion::File { token, result } = done.remove(0) else {
            panic!("a completion of no file");
        };
        progress = volume.resume(task, result, driver, token);
    }
}

/// Does one I/O.
fn run(volume: &dyn Volume, io: Io) -> Result<(), Error> {
    DRIVER.with_borrow_mut(|driver| {
        let begun = volume.start(io, driver, TOKEN);
        to_its_end(volume, driver, begun)
    })
}

/// What a block holds.
pub fn read(volume: &Arc<dyn Volume>, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let buf = MEMORY.with(|memory| memory.range(0, len as u32));
    run(&**volume, Io::Read { offset, buf })?;
    let mut bytes = vec![0; len];
    mem::copy_out(buf, &mut bytes);
    Ok(bytes)
}

/// Writes a block.
pub fn write(volume: &Arc<dyn Volume>, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let buf = MEMORY.with(|memory| memory.range(0, bytes.len() as u32));
    mem::copy_in(buf, bytes);
    let durable = true;
    let io = Io::Write {
        offset,
        buf,
        durable,
    };
    run(&**volume, io)
}

/// Has a volume do what it does by itself, `times` at most.
pub fn upkeep(volume: &Arc<dyn Volume>, times: u64) {
    DRIVER.with_borrow_mut(|driver| {
        for second in 0..times {
            let now = (second + 10) * 1_000_000_000;
            let Some(begun) = volume.upkeep(now, driver, TOKEN) else {
                return;
            };
            let _: Result<(), Error> = to_its_end(&**volume, driver, begun);
        }
    });
}
