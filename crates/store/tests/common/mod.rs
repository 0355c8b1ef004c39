//! What tests drive volumes with: the reactor's drivers, one I/O at a time.

mod files;
mod real;

use std::path::{Path, PathBuf};

use mem::{BufRange, Region};
use store::{Error, Io, Kind, Progress, Spec, Volume};

pub use files::Files;
pub use real::Real;

/// Runs one I/O to its end.
pub fn run(volume: &dyn Volume, files: &mut dyn Files, io: Io) -> Result<(), Error> {
    let mut progress = volume.start(io, files.io(), 7);
    loop {
        match progress {
            Progress::Done(result) => return result,
            Progress::Pending(task) => {
                let (token, result) = files.completion();
                assert_eq!(token, 7);
                progress = volume.resume(task, result, files.io(), 7);
            }
        }
    }
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
