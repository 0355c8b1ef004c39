//! What tests drive volumes with: the reactor's drivers, one I/O at a time.

mod files;
mod real;

use std::path::{Path, PathBuf};

use mem::{BufRange, Region};
use reactor::Token;
use store::{Error, Io, Kind, LEG_BITS, Progress, Spec, Volume};

pub use files::Files;
pub use real::Real;

/// Runs one I/O to its end.
pub fn run(volume: &dyn Volume, files: &mut dyn Files, io: Io) -> Result<(), Error> {
    let mut progress = volume.start(io, files.io(), token_of(7));
    loop {
        match progress {
            Progress::Done(result) => return result,
            Progress::Pending(task) => {
                let (token, result) = files.completion();
                assert_eq!(token >> LEG_BITS, 7);
                progress = volume.resume(task, result, files.io(), token);
            }
        }
    }
}

/// The token of the I/O of a number.
pub fn token_of(number: u64) -> Token {
    number << LEG_BITS
}

pub fn write(
    volume: &dyn Volume,
    files: &mut dyn Files,
    offset: u64,
    bytes: &[u8],
    durable: bool,
) -> Result<(), Error> {
    let buf = buffer(bytes.len());
    mem::copy_in(buf, bytes);
    let io = Io::Write {
        offset,
        buf,
        durable,
    };
    run(volume, files, io)
}

pub fn read(
    volume: &dyn Volume,
    files: &mut dyn Files,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let buf = buffer(len);
    mem::copy_in(buf, &vec![0xee; len]);
    run(volume, files, Io::Read { offset, buf })?;
    let mut bytes = vec![0; len];
    mem::copy_out(buf, &mut bytes);
    Ok(bytes)
}

/// Memory that is never given back: tests are short.
pub fn buffer(len: usize) -> BufRange {
    let region = Box::leak(Box::new(Region::anonymous(len as u64).unwrap()));
    region.range(0, len as u32)
}

pub fn spec(kind: Kind, size_bytes: u64, block_bytes: u32) -> Spec {
    Spec::new("disk", kind, size_bytes, block_bytes)
}

pub fn file_spec(path: &Path, size_bytes: u64) -> Spec {
    let path = PathBuf::from(path);
    spec(Kind::file(path), size_bytes, 512)
}
