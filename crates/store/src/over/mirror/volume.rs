//! A mirror as a volume.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use mem::Loan;
use reactor::{FileIo, Nanos, Token};

use super::Mirror;
use super::record::MirrorRecord;
use crate::locks::Claim;
use crate::{Base, Error, Extent, Io, Progress, Range, ResizeError, Space, Task, Volume, resize};

impl Volume for Mirror {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    #[inline]
    fn lend(&self, offset: u64, len: u32) -> Option<Loan> {
        if self.base.info.volatile_cache || len == 0 || !self.base.holds(offset, len.into()) {
            return None;
        }
        let _held = self
            .locks
            .try_acquire(Claim::new(offset, len.into(), false))?;
        let legs = self.legs();
        let (readable, part) = self.log.readable(offset, len.into(), 0, legs.all.len());
        let leg = self
            .choose(&legs, readable)
            .filter(|_| part == u64::from(len))?;
        let loan = legs.volume(leg).lend(offset, len)?;
        self.base.counters.count_read(len);
        Some(loan)
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        self.start_io(io, files, token)
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        match task.unpark() {
            Ok(work) => self.resume_upkeep(work, result, files, token),
            Err(task) => self.resume_io(task, result, files, token),
        }
    }

    fn has_upkeep(&self) -> bool {
        !self.base.info.read_only
    }

    fn upkeep(&self, now: Nanos, files: &mut dyn FileIo, token: Token) -> Option<Progress> {
        self.begin_upkeep(now, files, token)
    }

    fn as_mirror(&self) -> Option<&Mirror> {
        Some(self)
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.size_bytes();
        let block_bytes = u64::from(self.base.info.block_bytes);
        let has_bytes = self.legs().size_bytes() / block_bytes * block_bytes;
        let to = match size_bytes {
            0 => has_bytes.max(from),
            _ => size_bytes,
        };
        resize::check(&self.base, from, to, allow_shrink)?;
        if to > has_bytes {
            return Err(ResizeError::Below {
                size_bytes: to,
                has_bytes,
            });
        }
        if to == from {
            return Ok(());
        }
        // What is under way behind a smaller end is over before its regions are gone.
        self.base.show_size(to.min(from));
        let all = Claim::new(0, u64::MAX, true);
        if !self.locks.acquire_within(all, self.patience) {
            self.base.show_size(from);
            return Err(ResizeError::Busy);
        }
        let alike = to < from || self.is_unwritten(from, to);
        let change = |old: &MirrorRecord| -> io::Result<MirrorRecord> {
            let mut record = old.clone();
            record.resize(to, alike);
            Ok(record)
        };
        let resized = self.log.change(change, None);
        self.locks.release(&all);
        self.base.set_size(if resized.is_ok() { to } else { from });
        resized.map_err(|source| ResizeError::System {
            action: "write the log of the mirror",
            source,
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
        let legs = self.legs();
        let (mut at, end, first) = (offset, offset + len, out.len());
        while at < end && out.len() - first < max {
            let (readable, part) = self.log.readable(at, end - at, 0, legs.all.len());
            let mut found = Vec::new();
            match readable {
                0 => found.push(Extent {
                    offset: at,
                    len: part,
                    allocated: true,
                }),
                some => legs.volume(some.trailing_zeros() as usize).extents(
                    at,
                    part,
                    max - (out.len() - first),
                    &mut found,
                )?,
            }
            for extent in found {
                at = extent.offset + extent.len;
                match out[first..].last_mut() {
                    Some(last) if last.allocated == extent.allocated => last.len += extent.len,
                    _ => out.push(extent),
                }
            }
        }
        Ok(())
    }

    fn is_locked(&self) -> bool {
        let legs = self.legs();
        legs.all.iter().all(|leg| leg.part.volume().is_locked())
    }

    fn is_blank(&self, range: Range) -> bool {
        let legs = self.legs();
        legs.all.iter().all(|leg| leg.part.volume().is_blank(range))
    }

    /// What all legs take.
    fn space(&self) -> Option<Space> {
        let legs = self.legs();
        let mut spaces = legs.volumes().map(|leg| leg.space());
        let first = spaces.next()??;
        spaces.try_fold(first, |sum, space| Some(sum.with(space?)))
    }

    fn forget_loss(&self) {
        self.legs().volumes().for_each(|leg| leg.forget_loss());
    }

    fn unreadable(&self, offset: u64, len: u64, max: usize) -> Vec<Range> {
        let legs = self.legs();
        let (mut all, mut at, end): (Vec<Range>, u64, u64) = (Vec::new(), offset, {
            let size_bytes = self.size_bytes();
            offset.saturating_add(len).min(size_bytes)
        });
        while at < end && all.len() < max {
            let (readable, part) = self.log.readable(at, end - at, 0, legs.all.len());
            if readable != 0 {
                let leg = legs.volume(readable.trailing_zeros() as usize);
                for range in leg.unreadable(at, part, max - all.len()) {
                    match all.last_mut() {
                        Some(last) if last.offset + last.len == range.offset => {
                            last.len += range.len;
                        }
                        _ => all.push(range),
                    }
                }
            }
            at += part;
        }
        all
    }
}

impl Mirror {
    /// Whether no leg has anything there.
    fn is_unwritten(&self, from: u64, to: u64) -> bool {
        let legs = self.legs();
        let mut legs = legs.volumes();
        legs.all(|leg| super::open::is_unwritten(&**leg, from, to))
    }
}

impl Drop for Mirror {
    /// Where all is flushed the legs are alike, and the next start has nothing to copy.
    fn drop(&mut self) {
        let begun = self.writes_begun.load(Ordering::SeqCst);
        let is_flushed = self.flushed_at.load(Ordering::SeqCst) == begun;
        if is_flushed && !self.base.info.read_only {
            self.log.forget_dirty();
            // What cannot be written now is copied then.
            let _ = self.log.renew();
        }
    }
}
