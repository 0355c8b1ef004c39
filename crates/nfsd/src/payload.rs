//! Data of READs and WRITEs between a connection and file systems, in every version: in
//! pieces, each as much as one buffer holds. The first piece that comes to less than was asked
//! for, fails, or finds no memory is the last: what came before it is the result.

use engine::payload::{self, File, Resident as _, keep_staged};
use link::{CommandMemory, Link};
use machine::{Tag, work};
use mem::{BUF_BYTES_MAX, BufRange, Loan, Pool};
use nfs::connection::Connection;
use store::fs::{Error, FsOp, Output, Written};

/// How data stands.
pub(crate) enum DataStep {
    /// All of it is there.
    Done,
    /// This is to be asked.
    Ask(FsOp<'static>),
    /// There is no buffer now, and nothing was read or written.
    NoMemory,
    /// It goes on when others have had their turn.
    Turn,
}

/// A READ under way.
pub(crate) struct ReadUnderWay {
    offset: u64,
    /// Bytes that are wanted.
    wanted: u32,
    /// It is sent protected: that is a copy, which memory that is taken here is counted for.
    is_protected: bool,
    pub(crate) is_over: bool,
    /// Where the bytes lie that were read, and some behind them perhaps.
    pub(crate) data: CommandMemory,
    /// Bytes that were read.
    pub(crate) len: u32,
    /// The file ends behind them.
    pub(crate) is_end: bool,
}

impl ReadUnderWay {
    /// Of up to `wanted` bytes, none of which is read yet.
    #[inline]
    pub(crate) fn new(offset: u64, wanted: u32, is_protected: bool) -> ReadUnderWay {
        ReadUnderWay {
            offset,
            wanted,
            is_protected,
            is_over: false,
            data: CommandMemory::default(),
            len: 0,
            is_end: false,
        }
    }

    /// Goes on as far as it can: without a copy where the file system lends what is there.
    ///
    /// # Errors
    /// The file system's, where nothing was read.
    #[inline]
    pub(crate) fn go_on(&mut self, pool: &Pool, from: File<'_>) -> Result<DataStep, Error> {
        while !self.is_over {
            if self.len > 0 && work::is_used_up() {
                return Ok(DataStep::Turn);
            }
            let (offset, len) = (self.offset + u64::from(self.len), self.piece());
            if !self.is_protected
                && let Some(lent) = from.lend(offset, len)
            {
                let found = lent.map(|(loan, is_end)| {
                    let len = loan.len();
                    self.data.push(CommandMemory::loan(loan));
                    (len, is_end)
                });
                self.found(found)?;
                continue;
            }
            let Some(buf) = pool.get(len.max(1)) else {
                return Ok(match self.len {
                    0 => DataStep::NoMemory,
                    _ => DataStep::Done,
                });
            };
            let op = FsOp::Read {
                file: from.id,
                offset,
                buf: buf.range().slice(0, len),
            };
            self.data.push(CommandMemory::owned(buf));
            return Ok(DataStep::Ask(op));
        }
        Ok(DataStep::Done)
    }

    /// Bytes of the next piece.
    #[inline]
    fn piece(&self) -> u32 {
        (self.wanted - self.len).min(BUF_BYTES_MAX)
    }

    /// What was asked has been answered, or it is its turn.
    ///
    /// # Errors
    /// The file system's, where nothing was read.
    #[inline]
    pub(crate) fn resume(&mut self, result: Result<Output, Error>) -> Result<(), Error> {
        match result {
            Ok(Output::Read { len, is_end }) => self.found(Ok((len, is_end))),
            Err(error) => self.found(Err(error)),
            Ok(Output::Done) => Ok(()),
            Ok(_) => unreachable!("the answer to another question"),
        }
    }

    /// A piece has so many bytes, and whether the file ends behind them.
    #[inline]
    fn found(&mut self, found: Result<(u32, bool), Error>) -> Result<(), Error> {
        let piece = self.piece();
        match found {
            Ok((len, is_end)) => {
                self.len += len;
                self.is_end = is_end;
                self.is_over = is_end || len < piece || self.len == self.wanted;
            }
            Err(error) if self.len == 0 => return Err(error),
            Err(_) => self.is_over = true,
        }
        Ok(())
    }
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

/// Memory for `len` bytes of data of a WRITE: what `borrow` lends of so many bytes from an
/// offset of it, else buffers. `None`: there is none now.
#[inline]
pub(crate) fn destination(
    borrow: impl Fn(u32, u32) -> Option<Loan>,
    pool: &Pool,
    len: u32,
) -> Option<CommandMemory> {
    if len <= BUF_BYTES_MAX {
        return payload::destination(borrow(0, len), pool, len);
    }
    let starts = (0..len).step_by(BUF_BYTES_MAX as usize);
    let loans = starts.map(|at| borrow(at, (len - at).min(BUF_BYTES_MAX)));
    let loans: Option<Vec<_>> = loans.map(|loan| loan.map(CommandMemory::loan)).collect();
    let lent = loans.map(CommandMemory::several);
    lent.or_else(|| CommandMemory::from_pool(pool, len))
}

/// A WRITE under way, all of whose data is there.
pub(crate) struct WriteUnderWay {
    /// What names the data.
    data: Option<Tag>,
    len: u32,
    offset: u64,
    is_stable: bool,
    pub(crate) is_over: bool,
    /// What was written, as stable as the least stable piece of it.
    pub(crate) written: Written,
}

impl WriteUnderWay {
    /// Of the `len` bytes that `data` names, none of which is written yet. Where those were
    /// not taken, or were lost, it fails with [`Error::Delay`].
    #[inline]
    pub(crate) fn new(
        (data, len): (Option<Tag>, u32),
        (offset, is_stable): (u64, bool),
    ) -> WriteUnderWay {
        WriteUnderWay {
            data,
            len,
            offset,
            is_stable,
            is_over: false,
            written: Written {
                len: 0,
                is_stable: true,
            },
        }
    }

    /// No further piece is written, unless that may be: what was written is the result.
    pub(crate) fn end_unless(&mut self, may_go_on: bool) {
        self.is_over |= !may_go_on;
    }

    /// Goes on as far as it can. The data stays the connection's meanwhile.
    ///
    /// # Errors
    /// The file system's, where nothing was written.
    #[inline]
    pub(crate) fn go_on(
        &mut self,
        link: &mut Link<Connection>,
        pool: &Pool,
        to: File<'_>,
    ) -> Result<DataStep, Error> {
        while !self.is_over {
            if self.written.len > 0 && work::is_used_up() {
                return Ok(DataStep::Turn);
            }
            let begun = match self.len {
                0 => self.write_nothing(pool, to),
                1..=BUF_BYTES_MAX => self.write_all(link, pool, to),
                _ => self.write_piece(link, to),
            };
            match begun {
                Ok(PieceBegun::Done(written)) => self.wrote(Ok(written))?,
                Ok(PieceBegun::Step(step)) => return Ok(step),
                Err(error) => self.wrote(Err(error))?,
            }
        }
        Ok(DataStep::Done)
    }

    /// No byte of it is looked at; the file is.
    #[cold]
    fn write_nothing(&self, pool: &Pool, to: File<'_>) -> Result<PieceBegun, Error> {
        if let Some(written) = to.write_now(self.offset, &[]) {
            return written.map(PieceBegun::Done);
        }
        Ok(PieceBegun::Step(match pool.get(1) {
            Some(buf) => self.ask(to, buf.range().slice(0, 0)),
            None => DataStep::NoMemory,
        }))
    }

    #[inline]
    fn write_all(
        &self,
        link: &mut Link<Connection>,
        pool: &Pool,
        to: File<'_>,
    ) -> Result<PieceBegun, Error> {
        let tag = self.data.ok_or(Error::Delay)?;
        let begun = payload::write(link, tag, (&to, self.offset), |len| pool.get(len))?;
        Ok(match begun {
            payload::Writing::Done(written) => PieceBegun::Done(written),
            // There was no memory when it came, or it was staged, waited for memory, and more
            // was received there.
            payload::Writing::Ask => {
                PieceBegun::Step(self.ask(to, link.range(tag).ok_or(Error::Delay)?))
            }
            payload::Writing::NoMemory => PieceBegun::Step(DataStep::NoMemory),
        })
    }

    #[cold]
    fn write_piece(&self, link: &mut Link<Connection>, to: File<'_>) -> Result<PieceBegun, Error> {
        let index = (self.written.len / BUF_BYTES_MAX) as usize;
        let tag = self.data.ok_or(Error::Delay)?;
        let piece = link.piece_mut(tag, index).ok_or(Error::Delay)?;
        if let Some(loan) = piece.loan_mut() {
            let offset = self.offset + u64::from(self.written.len);
            return to.commit(loan, offset).map(PieceBegun::Done);
        }
        let buf = piece.first_part(0, self.piece());
        Ok(PieceBegun::Step(self.ask(to, buf)))
    }

    fn ask(&self, to: File<'_>, buf: BufRange) -> DataStep {
        DataStep::Ask(FsOp::Write {
            file: to.id,
            offset: self.offset + u64::from(self.written.len),
            buf,
            is_stable: self.is_stable,
        })
    }

    /// Bytes of the next piece: all before it were written whole.
    #[inline]
    fn piece(&self) -> u32 {
        (self.len - self.written.len).min(BUF_BYTES_MAX)
    }

    /// As [`ReadUnderWay::resume`].
    #[inline]
    pub(crate) fn resume(&mut self, result: Result<Output, Error>) -> Result<(), Error> {
        match result {
            Ok(Output::Written(written)) => self.wrote(Ok(written)),
            Err(error) => self.wrote(Err(error)),
            Ok(Output::Done) => Ok(()),
            Ok(_) => unreachable!("the answer to another question"),
        }
    }

    /// So much of a piece is written.
    #[inline]
    fn wrote(&mut self, written: Result<Written, Error>) -> Result<(), Error> {
        let piece = self.piece();
        match written {
            Ok(Written { len, is_stable }) => {
                self.written.len += len;
                self.written.is_stable &= is_stable;
                self.is_over = len < piece || self.written.len == self.len;
            }
            Err(error) if self.written.len == 0 => return Err(error),
            Err(_) => self.is_over = true,
        }
        Ok(())
    }
}

/// How a piece of a WRITE stands.
enum PieceBegun {
    Done(Written),
    Step(DataStep),
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
