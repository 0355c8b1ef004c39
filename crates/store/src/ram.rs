//! `ram`: memory of the process, in frames ([`crate::frames`]). Its content ends
//! with the process.
//!
//! Every I/O, of any size that an I/O may have, is one step to all others:
//! reads are sent from frames that no I/O writes meanwhile, large writes are received into
//! frames that no reader sees, and then change places with those that were there.
//!
//! The memory is private, not a memfd: kernels give huge pages to private
//! memory for the asking, to shared memory by default not at all, and over 1
//! GiB a fifth of the speed of small random reads hangs on them.
//!
//! It reports no volatile write cache: a cache is what a flush empties into
//! something safer, and below this memory there is nothing. Claiming one would
//! cost every flush a round trip and still promise durability that is not
//! there. Flush and durable writes therefore succeed at once.

use std::io;
use std::sync::Mutex;

use machine::work;
use mem::{BUF_BYTES_MAX, BufRange, Loan};
use reactor::{FileIo, Token};

use crate::frames::{Frames, FramesRefused};
use crate::task::RamTask;
use crate::{Base, Error, Extent, Io, Progress, ResizeError, Space, Task, Volume, memory, resize};

/// What is deallocated, or zeroed, before others have their turn: below a
/// millisecond's work.
const DISCARD_STEP_BYTES: u64 = 16 << 20;
const ZERO_STEP_BYTES: u64 = 4 << 20;
/// A volume may grow to this many times its first size, or to
/// [`GROWTH_BYTES_MIN`], if the machine has the memory: addresses are set
/// aside for that.
const GROWTH_TIMES: u64 = 8;
const GROWTH_BYTES_MIN: u64 = 1 << 40;

pub(crate) struct Ram {
    base: Base,
    frames: Frames,
    /// One resize at a time.
    resizing: Mutex<()>,
}

impl From<FramesRefused> for Error {
    fn from(refused: FramesRefused) -> Error {
        match refused {
            FramesRefused::OutOfRange => Error::OutOfRange,
            FramesRefused::Busy => Error::Busy,
            FramesRefused::Miscompare { offset } => Error::Miscompare {
                offset: offset.into(),
            },
        }
    }
}

/// Calls `each` with parts of `buf` that are one step, and where they go.
#[inline]
fn in_steps(
    offset: u64,
    buf: BufRange,
    mut each: impl FnMut(u64, BufRange) -> Result<(), FramesRefused>,
) -> Result<(), Error> {
    let mut done = 0;
    while done < buf.len() {
        let len = (buf.len() - done).min(BUF_BYTES_MAX);
        each(offset + u64::from(done), buf.slice(done, len)).map_err(|refused| {
            let mut error = Error::from(refused);
            if let Error::Miscompare { offset } = &mut error {
                *offset += u64::from(done);
            }
            error
        })?;
        done += len;
    }
    Ok(())
}

impl Ram {
    pub(crate) fn open(base: Base) -> io::Result<Ram> {
        let size = base.size_bytes();
        let growth = size.saturating_mul(GROWTH_TIMES).max(GROWTH_BYTES_MIN);
        let max = memory::limit().map_or(growth, |limit| limit.bytes.min(growth));
        Ok(Ram {
            frames: Frames::new(size, max)?,
            resizing: Mutex::new(()),
            base,
        })
    }

    /// All of an I/O that takes no time to speak of.
    #[inline]
    fn run(&self, io: &Io) -> Result<(), Error> {
        let frames = &self.frames;
        if !matches!(io, Io::Verify { .. } | Io::MarkUnreadable { .. }) {
            work::spend_bytes(io.extent().1);
        }
        match *io {
            Io::Read { offset, buf } => in_steps(offset, buf, |at, buf| frames.read(at, buf))?,
            Io::Write { offset, buf, .. } => {
                in_steps(offset, buf, |at, buf| frames.write_from(at, buf))?;
            }
            Io::Compare { offset, buf, .. } => {
                in_steps(offset, buf, |at, buf| frames.compare(at, buf))?;
            }
            Io::CompareAndWrite {
                offset,
                compare,
                write,
                ..
            } => frames.compare_and_write(offset, compare, write)?,
            Io::OrWrite { offset, buf, .. } => frames.or_from(offset, buf)?,
            Io::Flush | Io::Verify { .. } | Io::MarkUnreadable { .. } => {}
            Io::Zero { .. } | Io::Deallocate { .. } => {
                unreachable!("ranges of any length are changed in steps")
            }
        }
        Ok(())
    }

    /// The next step of a range of any length; whether it was the last.
    fn step(&self, task: &mut RamTask) -> Result<bool, Error> {
        let (offset, len) = task.io.extent();
        let gives_back = match task.io {
            Io::Zero { deallocate, .. } => deallocate,
            _ => true,
        };
        let step = match gives_back {
            true => DISCARD_STEP_BYTES,
            false => ZERO_STEP_BYTES,
        };
        let (mut at, end) = (offset + task.done_bytes, offset + len);
        // Steps end where frames do.
        let step_end = (at + 1).next_multiple_of(step).min(end);
        if gives_back {
            self.frames.discard(at, step_end - at)?;
        } else {
            while at < step_end {
                let part = (step_end - at).min(BUF_BYTES_MAX.into());
                work::spend_bytes(part);
                self.frames.zero(at, part as u32)?;
                at += part;
            }
        }
        task.done_bytes = step_end - offset;
        Ok(step_end == end)
    }

    /// Changes a range step by step, with turns of others in between.
    fn go_on(&self, mut task: RamTask, files: &mut dyn FileIo, token: Token) -> Progress {
        match self.step(&mut task) {
            Ok(false) => {
                files.ticket(token).ring();
                task.into()
            }
            Ok(true) => self.end(&task.io, Ok(())),
            Err(error) => self.end(&task.io, Err(error)),
        }
    }

    #[inline]
    fn end(&self, io: &Io, result: Result<(), Error>) -> Progress {
        if result.is_ok() {
            self.base.mark(io);
        }
        self.base.finish(io, result)
    }
}

impl Volume for Ram {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    #[inline]
    fn lend(&self, offset: u64, len: u32) -> Option<Loan> {
        self.base.check_readable(offset, len.into()).ok()?;
        let loan = self.frames.pin(offset, len)?;
        self.base.counters.count_read(len);
        Some(loan)
    }

    #[inline]
    fn borrow(&self, offset: u64, len: u32) -> Option<Loan> {
        self.base.check_write(offset, len.into()).ok()?;
        self.frames.borrow(offset, len)
    }

    fn commit(&self, loan: &mut Loan, offset: u64) -> Result<(), Error> {
        let len = loan.len();
        let result = self.base.check_write(offset, len.into());
        let result = result.and_then(|()| Ok(self.frames.commit(loan, offset)?));
        if result.is_ok() {
            self.base.heal(offset, len.into());
        }
        self.base.counters.count_write(len, &result);
        result
    }

    #[inline]
    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<(), Error>> {
        let len = bytes.len() as u32;
        work::spend_bytes(len.into());
        let result = self.base.check_write(offset, len.into());
        let result = result.and_then(|()| Ok(self.frames.write(offset, bytes)?));
        if result.is_ok() {
            self.base.heal(offset, len.into());
        }
        self.base.counters.count_write(len, &result);
        Some(result)
    }

    #[inline]
    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if let Err(error) = self.base.check(&io) {
            return self.end(&io, Err(error));
        }
        match io {
            Io::Zero { len, .. } | Io::Deallocate { len, .. } if len > 0 => {
                self.go_on(RamTask { io, done_bytes: 0 }, files, token)
            }
            Io::Zero { .. } | Io::Deallocate { .. } => self.end(&io, Ok(())),
            _ => self.end(&io, self.run(&io)),
        }
    }

    /// Its turn again.
    fn resume(
        &self,
        task: Task,
        _result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        self.go_on(task.into_ram(), files, token)
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let _one = self
            .resizing
            .lock()
            .expect("nothing panics under this lock");
        let from = self.size_bytes();
        resize::check(&self.base, from, size_bytes, allow_shrink)?;
        if let Some(limit) = memory::limit().filter(|limit| size_bytes > limit.bytes) {
            return Err(ResizeError::Memory { size_bytes, limit });
        }
        if size_bytes < from {
            self.base.set_size(size_bytes);
        }
        self.frames
            .resize(size_bytes)
            .map_err(|refused| match refused {
                FramesRefused::OutOfRange => ResizeError::System {
                    action: "set aside memory for more than eight times its first size",
                    source: io::ErrorKind::OutOfMemory.into(),
                },
                FramesRefused::Busy | FramesRefused::Miscompare { .. } => ResizeError::Busy,
            })?;
        self.base.set_size(size_bytes);
        Ok(())
    }

    /// In whole frames, as far as the range goes.
    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        if !self.base.holds(offset, len) {
            return Err(Error::OutOfRange);
        }
        let (mut at, end) = (offset, offset + len);
        let mut left = max;
        while at < end && left > 0 {
            let (allocated, to) = self.frames.extent(at, end);
            out.push(Extent {
                offset: at,
                len: to - at,
                allocated,
            });
            at = to;
            left -= 1;
        }
        Ok(())
    }

    /// What is left is the machine's.
    fn space(&self) -> Option<Space> {
        let (mut at, end) = (0, self.size_bytes());
        let mut used_bytes = 0;
        while at < end {
            let (allocated, to) = self.frames.extent(at, end);
            used_bytes += if allocated { to - at } else { 0 };
            at = to;
        }
        Some(Space {
            used_bytes,
            available_bytes: memory::available_bytes()?,
            total_bytes: None,
        })
    }
}
