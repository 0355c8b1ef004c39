//! Data of READs and WRITEs between a connection and file systems, in every version.

use engine::payload::{self, File, Resident as _, keep_staged};
use link::Link;
use machine::Tag;
use mem::{Buf, Loan, Pool};
use nfs::connection::Connection;
use store::fs::{Error, FsOp, Written};

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
    from: File<'_>,
    (offset, len): (u64, u32),
    is_protected: bool,
) -> Result<Reading, Error> {
    // What is sent protected is a copy, which the memory that is taken here is counted for.
    if !is_protected && let Some(lent) = from.lend(offset, len) {
        return lent.map(|(loan, is_end)| Reading::Lent(loan, is_end));
    }
    let Some(buf) = pool.get(len.max(1)) else {
        return Ok(Reading::NoMemory);
    };
    let op = FsOp::Read {
        file: from.id,
        offset,
        buf: buf.range().slice(0, len),
    };
    Ok(Reading::Ask(op, buf))
}

/// All results of a call are there: sends them. Where they must be in one piece, data is
/// among the bytes.
#[inline]
pub(crate) fn send(link: &mut Link<Connection>, call: Tag) {
    if link.machine.wants_gathered(call) {
        link.with_data(|machine, copy| machine.gather_payload(call, copy));
    }
    link.machine.send(call);
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
    to: File<'_>,
    (offset, is_stable): (u64, bool),
) -> Result<Writing, Error> {
    let ask = |buf| FsOp::Write {
        file: to.id,
        offset,
        buf,
        is_stable,
    };
    if len == 0 {
        if let Some(written) = to.write_now(offset, &[]) {
            return written.map(Writing::Done);
        }
        // No byte of it is looked at; the file is.
        return Ok(match pool.get(1) {
            Some(buf) => Writing::Ask(ask(buf.range().slice(0, 0))),
            None => Writing::NoMemory,
        });
    }
    let tag = payload.ok_or(Error::Delay)?;
    let begun = payload::write(link, tag, (&to, offset), |len| pool.get(len))?;
    Ok(match begun {
        payload::Writing::Done(written) => Writing::Done(written),
        // There was no memory when it came, or it was staged, waited for memory, and more
        // was received there.
        payload::Writing::Ask => Writing::Ask(ask(link.range(tag).ok_or(Error::Delay)?)),
        payload::Writing::NoMemory => Writing::NoMemory,
    })
}

/// The data of all WRITEs of a call that is about to wait outlives the next
/// receive. Where there is no memory it is lost, and its WRITE is to be tried
/// again.
#[cold]
pub(crate) fn keep(link: &mut Link<Connection>, pool: &Pool, call: Tag) {
    let payloads = link.machine.call(call).payloads;
    let tags: Vec<Tag> = payloads.iter().flatten().copied().collect();
    for tag in tags {
        keep_staged(link, tag, |len| pool.get_to_finish(len));
    }
}
