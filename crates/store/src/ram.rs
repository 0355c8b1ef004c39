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

use mem::{BufRange, Region};
use reactor::{FileIo, Token};

use crate::io::Task;
use crate::stats::Counters;
use crate::{Access, Errno, Error, Info, Io, Progress, Stats, Volume};

/// What is zeroed with one call; lengths of ranges are 32 bits.
const ZERO_BYTES: u64 = 1 << 30;

pub(crate) struct Ram {
    info: Info,
    region: Region,
    counters: Counters,
}

impl Ram {
    pub(crate) fn open(info: Info) -> io::Result<Ram> {
        let region = Region::bulk(info.size_bytes)?;
        Ok(Ram {
            info,
            region,
            counters: Counters::new(),
        })
    }

    #[inline]
    fn run(&self, io: &Io) -> Result<(), Error> {
        self.info.check(io)?;
        match *io {
            Io::Read { offset, buf } => {
                let own = self.region.range(offset, buf.len());
                if own != buf {
                    mem::copy(buf, own);
                }
            }
            Io::Write { offset, buf, .. } => {
                let own = self.region.range(offset, buf.len());
                if own != buf {
                    mem::copy(own, buf);
                }
            }
            Io::Flush => {}
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
    fn info(&self) -> &Info {
        &self.info
    }

    #[inline]
    fn memory(&self, access: Access, offset: u64, len: u32) -> Option<BufRange> {
        let lends = self.info.holds(offset, u64::from(len))
            && !(access == Access::Write && self.info.read_only);
        lends.then(|| self.region.range(offset, len))
    }

    #[inline]
    fn start(&self, io: Io, _files: &mut dyn FileIo, _token: Token) -> Progress {
        let result = self.run(&io);
        self.counters.count(&io, &result);
        Progress::Done(result)
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

    fn stats(&self) -> Stats {
        self.counters.stats()
    }
}
