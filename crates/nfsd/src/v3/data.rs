//! Data of READs and WRITEs between a connection, buffers and file systems.

use link::{Data, Link};
use machine::Tag;
use mem::Pool;
use nfs::connection::Connection;
use store::fs::{Caller, Error, FileId, FileSystem, Op, Written};

/// What a READ came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// What names the data; `None` if there is none.
    pub(super) tag: Option<Tag>,
    /// Bytes.
    pub(super) len: u32,
    /// The file ends there.
    pub(super) is_end: bool,
}

/// How a READ stands.
pub(super) enum Reading {
    /// The data lies where its tag says.
    Done(Result<Read, Error>),
    /// This is to be asked, and fills the data of the tag.
    Ask(Op<'static>, Tag),
    /// There is no buffer now.
    NoMemory,
}

/// Reads up to `len` bytes for `call`: without a copy where the file system
/// lends them.
#[inline]
pub(super) fn begin_read(
    link: &mut Link<Connection>,
    pool: &Pool,
    call: Tag,
    fs: &dyn FileSystem,
    caller: &Caller<'_>,
    (file, offset, len): (FileId, u64, u32),
) -> Reading {
    match fs.lend(caller, file, offset, len) {
        Some(Ok((loan, is_end))) => {
            let len = loan.len();
            if len == 0 {
                let tag = None;
                return Reading::Done(Ok(Read { tag, len, is_end }));
            }
            let Some(tag) = link.machine.data_tag(call) else {
                return Reading::Done(Err(Error::Delay));
            };
            link.set_data(tag, Data::loan(loan));
            let tag = Some(tag);
            Reading::Done(Ok(Read { tag, len, is_end }))
        }
        Some(Err(error)) => Reading::Done(Err(error)),
        None => {
            let Some(buf) = pool.get(len.max(1)) else {
                return Reading::NoMemory;
            };
            let Some(tag) = link.machine.data_tag(call) else {
                return Reading::Done(Err(Error::Delay));
            };
            let range = buf.range().slice(0, len);
            link.set_data(tag, Data::owned(buf));
            let op = Op::Read {
                file,
                offset,
                buf: range,
            };
            Reading::Ask(op, tag)
        }
    }
}

/// How a WRITE stands.
pub(super) enum Writing {
    /// It is over.
    Done(Result<Written, Error>),
    /// This is to be asked.
    Ask(Op<'static>),
    /// There is no buffer now.
    NoMemory,
}

/// Writes the data that `payload` names, all of which is there; nothing without
/// a tag.
#[inline]
pub(super) fn begin_write(
    link: &mut Link<Connection>,
    pool: &Pool,
    payload: Option<Tag>,
    fs: &dyn FileSystem,
    caller: &Caller<'_>,
    (file, offset, is_stable): (FileId, u64, bool),
) -> Writing {
    let Some(payload) = payload else {
        let nothing = Written {
            len: 0,
            is_stable: true,
        };
        let written = fs.write_now(caller, file, offset, &[]);
        return Writing::Done(written.unwrap_or(Ok(nothing)));
    };
    if let Some(bytes) = link.staged(payload) {
        if let Some(result) = fs.write_now(caller, file, offset, bytes) {
            return Writing::Done(result);
        }
        if !secure(link, pool, payload) {
            return Writing::NoMemory;
        }
    }
    if let Some(loan) = link.loan_mut(payload) {
        return Writing::Done(fs.commit(caller, loan, file, offset));
    }
    let Some(buf) = link.range(payload) else {
        // It was staged, waited for memory, and more was received there.
        return Writing::Done(Err(Error::Delay));
    };
    Writing::Ask(Op::Write {
        file,
        offset,
        buf,
        is_stable,
    })
}

/// Moves data that lies where it was staged to memory of its own, so that it
/// outlives the next receive; whether there was memory.
#[inline]
pub(super) fn secure(link: &mut Link<Connection>, pool: &Pool, payload: Tag) -> bool {
    let Some(bytes) = link.staged(payload) else {
        return true;
    };
    let Some(buf) = pool.get(bytes.len() as u32) else {
        return false;
    };
    mem::copy_in(buf.range(), bytes);
    link.set_data(payload, Data::owned(buf));
    true
}
