//! Content of files.

use ::mem::{BufRange, Loan};

use super::MemoryInner;
use super::content::WriteData;
use super::node::Node;
use crate::fs::{Caller, Error, FileId, Output, Seek, Time, Written, access};

/// Writes of more bytes are copied before their file is locked.
const COPY_LOCKED_BYTES_MAX: u32 = 64 << 10;

impl MemoryInner {
    /// How much of `len` bytes from `offset` the file has, and whether it ends
    /// there.
    #[inline]
    fn readable_len(node: &Node, offset: u64, len: u32) -> (u32, bool) {
        let rest = node.attr.size.saturating_sub(offset);
        let len = rest.min(len.into());
        (len as u32, rest == len)
    }

    #[cold]
    fn note_read(&self, file: FileId, now: Time) {
        if let Ok(mut node) = self.table.write(file) {
            node.attr.accessed = now;
        }
    }

    #[inline]
    pub(super) fn lend(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len: u32,
    ) -> Option<Result<(Loan, bool), Error>> {
        let node = match self.table.read(file) {
            Ok(node) => node,
            Err(error) => return Some(Err(error)),
        };
        let content = match node.check_read(caller) {
            Ok(content) => content,
            Err(error) => return Some(Err(error)),
        };
        let (len, is_end) = MemoryInner::readable_len(&node, offset, len);
        let offset = if len == 0 { 0 } else { offset };
        let loan = self.store.lend(content, offset, len)?;
        let notes = node.notes_read(caller.now);
        drop(node);
        if notes {
            self.note_read(file, caller.now);
        }
        Some(Ok((loan, is_end)))
    }

    pub(super) fn read(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        buf: BufRange,
    ) -> Result<Output, Error> {
        let node = self.table.read(file)?;
        let content = node.check_read(caller)?;
        let (len, is_end) = MemoryInner::readable_len(&node, offset, buf.len());
        if len > 0 {
            self.store.read(content, offset, buf.slice(0, len))?;
        }
        let notes = node.notes_read(caller.now);
        drop(node);
        if notes {
            self.note_read(file, caller.now);
        }
        Ok(Output::Read { len, is_end })
    }

    #[inline]
    pub(super) fn write_now(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Written, Error> {
        self.write(caller, file, offset, WriteData::Bytes(bytes))
    }

    pub(super) fn commit(
        &self,
        caller: &Caller<'_>,
        loan: &mut Loan,
        file: FileId,
        offset: u64,
    ) -> Result<Written, Error> {
        self.write(caller, file, offset, WriteData::Borrowed(loan))
    }

    pub(super) fn write_from(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        buf: BufRange,
    ) -> Result<Written, Error> {
        let within = offset % u64::from(crate::frames::FRAME_BYTES);
        if buf.len() > COPY_LOCKED_BYTES_MAX
            && let Some(mut loan) = self.store.frames.borrow(within, buf.len())
        {
            let mut at = 0;
            for &piece in loan.pieces() {
                ::mem::copy(piece, buf.slice(at, piece.len()));
                at += piece.len();
            }
            return self.commit(caller, &mut loan, file, offset);
        }
        self.write(caller, file, offset, WriteData::Range(buf))
    }

    #[inline]
    fn write(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        data: WriteData<'_>,
    ) -> Result<Written, Error> {
        let len = data.len() as u32;
        let mut node = self.table.write(file)?;
        node.check_write(caller, offset)?;
        if len > 0 {
            self.store.quotas.at(caller.now);
            self.store.write(&mut node, offset, data)?;
            node.attr.mode = access::mode_written(node.attr.mode, caller);
            node.touch_content(caller.now);
        }
        Ok(Written {
            len,
            is_stable: true,
        })
    }

    pub(super) fn seek(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        what: Seek,
    ) -> Result<Output, Error> {
        let node = self.table.read(file)?;
        node.check_read(caller)?;
        let size = node.attr.size;
        if offset >= size {
            return Err(Error::Nxio);
        }
        let offset = self.store.seek(&node, offset, what == Seek::Data);
        let is_end = offset == size;
        Ok(Output::Found { offset, is_end })
    }
}
