//! Data of READs and WRITEs between a connection, buffers and file systems, in
//! every version.

use link::{CommandMemory, Link};
use machine::Tag;
use mem::{Buf, Loan, Pool};
use nfs::connection::Connection;
use store::fs::{Caller, Error, FileId, FileSystem, FsOp, Written};

/// How a READ stands.
pub(crate) enum Reading {
    /// This is the data, and whether the file ends there.
    Lent(Loan, bool),
    /// This is to be asked, and fills the buffer.
    Ask(FsOp<'static>, Buf),
    /// There is no buffer now.
    NoMemory,
}

/// Reads up to `len` bytes: without a copy where the file system lends them.
///
/// # Errors
/// The file system's.
#[inline]
pub(crate) fn begin_read(
    pool: &Pool,
    fs: &dyn FileSystem,
    caller: &Caller<'_>,
    (file, offset, len): (FileId, u64, u32),
) -> Result<Reading, Error> {
    if let Some(lent) = fs.lend(caller, file, offset, len) {
        return lent.map(|(loan, is_end)| Reading::Lent(loan, is_end));
    }
    let Some(buf) = pool.get(len.max(1)) else {
        return Ok(Reading::NoMemory);
    };
    let op = FsOp::Read {
        file,
        offset,
        buf: buf.range().slice(0, len),
    };
    Ok(Reading::Ask(op, buf))
}

/// How a WRITE stands.
pub(crate) enum Writing {
    /// It is over.
    Done(Written),
    /// This is to be asked. The data stays the connection's meanwhile.
    Ask(FsOp<'static>),
    /// There is no buffer now.
    NoMemory,
}

/// Writes the `len` bytes that `payload` names, all of which are there.
///
/// # Errors
/// The file system's; [`Error::Delay`] where the data was not taken, or lost.
#[inline]
pub(crate) fn begin_write(
    link: &mut Link<Connection>,
    pool: &Pool,
    (payload, len): (Option<Tag>, u32),
    fs: &dyn FileSystem,
    caller: &Caller<'_>,
    (file, offset, is_stable): (FileId, u64, bool),
) -> Result<Writing, Error> {
    let Some(payload) = payload.filter(|_| len > 0) else {
        if len > 0 {
            // There was no memory when it came.
            return Err(Error::Delay);
        }
        if let Some(written) = fs.write_now(caller, file, offset, &[]) {
            return written.map(Writing::Done);
        }
        // No byte of it is looked at; the file is.
        let Some(buf) = pool.get(1) else {
            return Ok(Writing::NoMemory);
        };
        return Ok(Writing::Ask(FsOp::Write {
            file,
            offset,
            buf: buf.range().slice(0, 0),
            is_stable,
        }));
    };
    if let Some(bytes) = link.staged(payload) {
        if let Some(written) = fs.write_now(caller, file, offset, bytes) {
            return written.map(Writing::Done);
        }
        if !secure(link, payload, |len| pool.get(len)) {
            return Ok(Writing::NoMemory);
        }
    }
    if link.loan_mut(payload).is_some() {
        // What it held goes at once.
        let mut data = link.take_data(payload);
        let loan = data.loan_mut().expect("it was just there");
        return fs.commit(caller, loan, file, offset).map(Writing::Done);
    }
    // It was staged, waited for memory, and more was received there.
    let buf = link.range(payload).ok_or(Error::Delay)?;
    Ok(Writing::Ask(FsOp::Write {
        file,
        offset,
        buf,
        is_stable,
    }))
}

/// Data that lies where it was staged moves to memory of its own, if `get` has
/// some: others will receive there. Whether it is safe.
#[inline]
fn secure(link: &mut Link<Connection>, payload: Tag, get: impl FnOnce(u32) -> Option<Buf>) -> bool {
    let Some(bytes) = link.staged(payload) else {
        return true;
    };
    let Some(buf) = get(bytes.len() as u32) else {
        return false;
    };
    mem::copy_in(buf.range(), bytes);
    link.set_data(payload, CommandMemory::owned(buf));
    true
}

/// The data of all WRITEs of a call that is about to wait outlives the next
/// receive. Where there is no memory it is lost, and its WRITE is to be tried
/// again.
#[cold]
pub(crate) fn keep(link: &mut Link<Connection>, pool: &Pool, call: Tag) {
    let payloads = link.machine.call(call).payloads;
    let tags: Vec<Tag> = payloads.iter().flatten().copied().collect();
    for tag in tags {
        secure(link, tag, |len| pool.get_to_finish(len));
    }
}
