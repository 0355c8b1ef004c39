//! The one way of payload between a connection and what holds it, whichever protocol
//! asks and whether it is a volume or a file: lent from where it lies, received where it
//! is to lie, written from where it was staged, else through a buffer.

use link::{CommandMemory, Link};
use machine::{Machine, Tag};
use mem::{Buf, Loan, Pool};
use store::fs::{Caller, FileId, FileSystem};
use store::{Error, Volume, fs};

/// What may hold payload in memory, where it is read and written without a copy. That
/// memory has no volatile cache: no flush would make it more durable.
pub trait Resident {
    /// What is told of a read beside its bytes.
    type Read;
    /// What is told of a write.
    type Written;
    /// Why a read or a write failed.
    type Error;

    /// A whole read, done: where its bytes lie. `None`: read them into a buffer.
    fn lend(&self, offset: u64, len: u32) -> Option<Lent<Self>>;

    /// A whole write of bytes that are at hand. `None`: write them from a buffer.
    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<Self::Written, Self::Error>>;

    /// A whole write of what was received in memory that was borrowed for it.
    fn commit(&self, loan: &mut Loan, offset: u64) -> Result<Self::Written, Self::Error>;
}

/// What became of a read that needs no buffer.
pub type Lent<R> = Result<(Loan, <R as Resident>::Read), <R as Resident>::Error>;

impl Resident for dyn Volume {
    type Read = ();
    type Written = ();
    type Error = Error;

    #[inline]
    fn lend(&self, offset: u64, len: u32) -> Option<Lent<Self>> {
        let loan = Volume::lend(self, offset, len)?;
        Some(Ok((loan, ())))
    }

    #[inline]
    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<(), Error>> {
        Volume::write_now(self, offset, bytes)
    }

    #[inline]
    fn commit(&self, loan: &mut Loan, offset: u64) -> Result<(), Error> {
        Volume::commit(self, loan, offset)
    }
}

/// A file as one caller sees it.
#[derive(Clone, Copy)]
pub struct File<'a> {
    /// Where it is.
    pub fs: &'a dyn FileSystem,
    /// The caller.
    pub caller: &'a Caller<'a>,
    /// The file.
    pub id: FileId,
}

impl Resident for File<'_> {
    /// Whether the file ends there.
    type Read = bool;
    type Written = fs::Written;
    type Error = fs::Error;

    #[inline]
    fn lend(&self, offset: u64, len: u32) -> Option<Lent<Self>> {
        self.fs.lend(self.caller, self.id, offset, len)
    }

    #[inline]
    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<fs::Written, fs::Error>> {
        self.fs.write_now(self.caller, self.id, offset, bytes)
    }

    #[inline]
    fn commit(&self, loan: &mut Loan, offset: u64) -> Result<fs::Written, fs::Error> {
        self.fs.commit(self.caller, loan, self.id, offset)
    }
}

/// Where data of a command arrives: in what was lent for it, else in memory of its own.
#[inline]
pub fn destination(loan: Option<Loan>, pool: &Pool, len: u32) -> Option<CommandMemory> {
    let loan = loan.map(CommandMemory::loan);
    loan.or_else(|| CommandMemory::from_pool(pool, len))
}

/// How a write stands.
pub enum Writing<W> {
    /// It is over.
    Done(W),
    /// The memory of the command is to be written. It stays the command's meanwhile.
    Ask,
    /// There is no buffer now.
    NoMemory,
}

/// Writes the data of `tag`, all of which is there. Where it cannot stay where it was
/// staged, `get` finds it a buffer. What fails leaves the command its data.
///
/// # Errors
/// What holds it says.
#[inline]
pub fn write<M: Machine, R: Resident + ?Sized>(
    link: &mut Link<M>,
    tag: Tag,
    (to, offset): (&R, u64),
    get: impl FnOnce(u32) -> Option<Buf>,
) -> Result<Writing<R::Written>, R::Error> {
    if let Some(bytes) = link.staged(tag) {
        if let Some(result) = to.write_now(offset, bytes) {
            return result.map(Writing::Done);
        }
        if !keep_staged(link, tag, get) {
            return Ok(Writing::NoMemory);
        }
    }
    if let Some(loan) = link.loan_mut(tag) {
        let written = to.commit(loan, offset)?;
        link.take_data(tag);
        return Ok(Writing::Done(written));
    }
    Ok(Writing::Ask)
}

/// Data that lies where it was staged moves to memory of its own, if `get` has some:
/// others will be received there. Whether it is safe.
#[inline]
pub fn keep_staged<M: Machine>(
    link: &mut Link<M>,
    tag: Tag,
    get: impl FnOnce(u32) -> Option<Buf>,
) -> bool {
    let Some(bytes) = link.staged(tag) else {
        return true;
    };
    let Some(buf) = get(bytes.len() as u32) else {
        return false;
    };
    mem::copy_in(buf.range(), bytes);
    link.set_data(tag, CommandMemory::owned(buf));
    true
}
