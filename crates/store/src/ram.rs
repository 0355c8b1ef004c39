//! `ram`: one run of memory. Its content ends with the process.
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

use mem::{Loan, Region};
use reactor::{FileIo, Token};

use crate::base::compare;
use crate::io::Task;
use crate::{Base, Errno, Error, Extent, Io, Progress, ResizeError, Volume, resize};

/// What is zeroed with one call; lengths of ranges are 32 bits.
const ZERO_BYTES: u64 = 1 << 30;

pub(crate) struct Ram {
    base: Base,
    region: Region,
}

impl Ram {
    pub(crate) fn open(base: Base) -> io::Result<Ram> {
        let region = Region::bulk(base.size_bytes())?;
        Ok(Ram { base, region })
    }

    #[inline]
    fn run(&self, io: &Io) -> Result<(), Error> {
        self.base.check(io)?;
        match *io {
            Io::Read { offset, buf } => mem::copy(buf, self.region.range(offset, buf.len())),
            Io::Write { offset, buf, .. } => {
                mem::copy(self.region.range(offset, buf.len()), buf);
            }
            Io::Compare { offset, buf, .. } => {
                compare(buf, self.region.range(offset, buf.len()))?;
            }
            Io::CompareAndWrite {
                offset,
                compare: data,
                write,
                ..
            } => {
                let own = self.region.range(offset, write.len());
                compare(data, own)?;
                mem::copy(own, write);
            }
            Io::Flush | Io::Verify { .. } | Io::MarkUnreadable { .. } => {}
            Io::Zero {
                offset,
                len,
                deallocate: false,
                ..
            } => self.zero(offset, len),
            Io::Zero { offset, len, .. } | Io::Deallocate { offset, len } => {
                self.discard(offset, len)?;
            }
        }
        self.base.mark(io);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(ZERO_BYTES);
            mem::zero(self.region.range(offset + done, part as u32));
            done += part;
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        let failed = |e: io::Error| Error::WriteFailed(Errno(e.raw_os_error().unwrap_or(0)));
        self.region.discard(offset, len).map_err(failed)
    }
}

impl Volume for Ram {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    #[inline]
    fn lend(&self, offset: u64, len: u32) -> Option<Loan> {
        let lends = self.base.holds(offset, len.into())
            && self.base.check_readable(offset, len.into()).is_ok();
        lends.then(|| {
            self.base.counters.count_read(len);
            Loan::of(self.region.range(offset, len))
        })
    }

    #[inline]
    fn borrow(&self, offset: u64, len: u32) -> Option<Loan> {
        let lends = self.base.check_write(offset, len.into()).is_ok();
        lends.then(|| Loan::of(self.region.range(offset, len)))
    }

    #[inline]
    fn commit(&self, loan: &mut Loan, offset: u64) -> Result<(), Error> {
        let result = self.base.check_write(offset, loan.len().into());
        if result.is_ok() {
            self.base.heal(offset, loan.len().into());
        }
        self.base.counters.count_write(loan.len(), &result);
        result
    }

    #[inline]
    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<(), Error>> {
        let len = bytes.len() as u32;
        let result = self.base.check_write(offset, len.into());
        if result.is_ok() {
            mem::copy_in(self.region.range(offset, len), bytes);
            self.base.heal(offset, len.into());
        }
        self.base.counters.count_write(len, &result);
        Some(result)
    }

    #[inline]
    fn start(&self, io: Io, _files: &mut dyn FileIo, _token: Token) -> Progress {
        let result = self.run(&io);
        self.base.finish(&io, result)
    }

    fn resume(
        &self,
        _task: Task,
        _result: io::Result<u32>,
        _files: &mut dyn FileIo,
        _token: Token,
    ) -> Progress {
        unreachable!("a RAM volume leaves no task pending")
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let from = self.size_bytes();
        resize::check(self.info(), from, size_bytes, allow_shrink)?;
        Err(ResizeError::System {
            action: "resize memory",
            source: io::ErrorKind::Unsupported.into(),
        })
    }

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
        let all = Extent {
            offset,
            len,
            allocated: true,
        };
        out.extend((len > 0 && max > 0).then_some(all));
        Ok(())
    }
}
