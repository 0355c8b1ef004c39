//! `null`: reads zeros, discards writes. What is left to measure is the rest.

use std::io;
use std::sync::OnceLock;

use mem::{BufRange, Region};
use reactor::{FileIo, Token};

use crate::io::Task;
use crate::stats::Counters;
use crate::{Access, Error, Info, Io, Progress, Stats, Volume};

/// Bytes of the zeros that all volumes share; they cost no memory.
pub(crate) const ZEROS_BYTES: u32 = 4 << 20;

/// Memory that holds zeros and is never written.
pub(crate) fn zeros() -> io::Result<&'static Region> {
    static ZEROS: OnceLock<Region> = OnceLock::new();
    if let Some(zeros) = ZEROS.get() {
        return Ok(zeros);
    }
    // Anonymous: reading it maps the kernel's own zero page.
    let zeros = Region::anonymous(u64::from(ZEROS_BYTES))?;
    Ok(ZEROS.get_or_init(|| zeros))
}

pub(crate) struct Null {
    info: Info,
    zeros: &'static Region,
    counters: Counters,
}

impl Null {
    pub(crate) fn open(info: Info) -> io::Result<Null> {
        Ok(Null {
            info,
            zeros: zeros()?,
            counters: Counters::new(),
        })
    }

    #[inline]
    fn run(&self, io: &Io) -> Result<(), Error> {
        self.info.check(io)?;
        if let Io::Read { offset, buf } = *io
            && self.memory(Access::Read, offset, buf.len()) != Some(buf)
        {
            mem::zero(buf);
        }
        Ok(())
    }
}

impl Volume for Null {
    #[inline]
    fn info(&self) -> &Info {
        &self.info
    }

    /// Nothing is lent for writes: two writes in one scratch memory would spoil
    /// each other's digest, and the caller's own buffer is warmer.
    #[inline]
    fn memory(&self, access: Access, offset: u64, len: u32) -> Option<BufRange> {
        let lends =
            access == Access::Read && len <= ZEROS_BYTES && self.info.holds(offset, u64::from(len));
        lends.then(|| self.zeros.range(0, len))
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
        unreachable!("a null volume leaves no task pending")
    }

    fn stats(&self) -> Stats {
        self.counters.stats()
    }
}
