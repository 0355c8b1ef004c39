//! `null`: reads zeros, discards writes. What is left to measure is the rest.

use std::io;
use std::sync::OnceLock;

use mem::{BufRange, Loan, Region};
use reactor::{FileIo, Token};

use crate::base::compare;
use crate::{Base, Error, Extent, Io, Progress, ResizeError, Task, Volume, resize};

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
    base: Base,
    zeros: &'static Region,
}

impl Null {
    pub(crate) fn open(base: Base) -> io::Result<Null> {
        Ok(Null {
            base,
            zeros: zeros()?,
        })
    }

    #[inline]
    fn run(&self, io: &Io) -> Result<(), Error> {
        self.base.check(io)?;
        match *io {
            Io::Read { buf, .. } => mem::zero(buf),
            Io::Compare { buf: data, .. } | Io::CompareAndWrite { compare: data, .. } => {
                self.compare(data)?;
            }
            _ => {}
        }
        self.base.mark(io);
        Ok(())
    }

    fn compare(&self, data: BufRange) -> Result<(), Error> {
        let mut done = 0;
        while done < data.len() {
            let part = (data.len() - done).min(ZEROS_BYTES);
            let found = compare(data.slice(done, part), self.zeros.range(0, part));
            if let Err(Error::Miscompare { offset }) = found {
                let offset = u64::from(done) + offset;
                return Err(Error::Miscompare { offset });
            }
            done += part;
        }
        Ok(())
    }
}

impl Volume for Null {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    /// Nothing is lent for writes: two writes in one scratch memory would spoil
    /// each other's digest, and the caller's own buffer is warmer.
    #[inline]
    fn lend(&self, offset: u64, len: u32) -> Option<Loan> {
        let (is_whole, len_bytes) = (self.base.holds(offset, len.into()), len.into());
        let lends =
            is_whole && len <= ZEROS_BYTES && self.base.check_readable(offset, len_bytes).is_ok();
        lends.then(|| {
            self.base.counters.count_read(len);
            Loan::of(self.zeros.range(0, len))
        })
    }

    #[inline]
    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<(), Error>> {
        let result = self.base.check_write(offset, bytes.len() as u64);
        if result.is_ok() {
            self.base.heal(offset, bytes.len() as u64);
        }
        self.base.counters.count_write(bytes.len() as u32, &result);
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
        unreachable!("a null volume leaves no task pending")
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let from = self.size_bytes();
        resize::check(&self.base, from, size_bytes, allow_shrink)?;
        self.base.set_size(size_bytes);
        Ok(())
    }

    /// Nothing is ever allocated.
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
            allocated: false,
        };
        out.extend((len > 0 && max > 0).then_some(all));
        Ok(())
    }
}
