//! Memory of large answers: what READDIR makes of a directory is held in memory
//! of the process while the file system is asked, and until its client takes it.
//! It counts against the memory that there is, and no connection has more than
//! a part of it.

use mem::Pool;
use store::fs::Entry;

/// Bytes of one connection's answers at most; less than one may be, so a single one
/// is always let through.
const BYTES_MAX: u64 = 16 << 20;
/// Entries that a file system is asked for at a time, however little of each the
/// client wants.
pub(crate) const ENTRIES_MAX: u32 = 4096;

/// Why an answer cannot be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerWait {
    /// The client has asked for more than it takes: it is to ask again later.
    Later,
    /// There is no memory.
    NoMemory,
}

/// The memory of the answers of one connection.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pool: Option<Pool>,
    /// Bytes of those that are being made.
    under_way: u64,
    /// Bytes taken from the budget: for those, and for those that are not sent.
    reserved: u64,
}

/// What a listing of so many entries, in an answer of `bytes`, takes at most.
pub(crate) fn listing_bytes(entries: u32, bytes: u32) -> u32 {
    bytes + entries * size_of::<Entry>() as u32
}

impl Answers {
    /// Memory for one more answer, of which `unsent` bytes are waiting already;
    /// then say [`Answers::made`].
    ///
    /// # Errors
    /// What to wait for.
    pub(crate) fn reserve(
        &mut self,
        pool: &Pool,
        unsent: usize,
        bytes: u32,
    ) -> Result<(), AnswerWait> {
        self.trim(unsent);
        let there = self.under_way + unsent as u64;
        let needed = there + u64::from(bytes);
        if there > 0 && needed > BYTES_MAX {
            return Err(AnswerWait::Later);
        }
        let more = needed.saturating_sub(self.reserved);
        let pool = self.pool.get_or_insert_with(|| pool.clone());
        if !pool.try_reserve(more) {
            return Err(AnswerWait::NoMemory);
        }
        self.reserved += more;
        self.under_way += u64::from(bytes);
        Ok(())
    }

    /// An answer that was reserved for is with the connection, or came to
    /// nothing.
    pub(crate) fn made(&mut self, bytes: u32) {
        self.under_way -= u64::from(bytes);
    }

    /// Gives back what is not needed any more, of `unsent` bytes that wait.
    pub(crate) fn trim(&mut self, unsent: usize) {
        let excess = self.reserved.saturating_sub(self.under_way + unsent as u64);
        if let Some(pool) = &self.pool {
            pool.release(excess);
            self.reserved -= excess;
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.release(self.reserved);
        }
    }
}

#[cfg(test)]
mod tests {
    use mem::Budget;

    use super::*;

    #[test]
    fn memory_of_answers_counts_until_they_are_sent() {
        let budget = Budget::new(1 << 30);
        let pool = Pool::new(budget.clone()).unwrap();
        let before = budget.used();
        let used = || budget.used() - before;
        let mut answers = Answers::default();
        assert_eq!(answers.reserve(&pool, 0, 1 << 20), Ok(()));
        assert_eq!(answers.reserve(&pool, 0, 2 << 20), Ok(()));
        assert_eq!(used(), 3 << 20);
        answers.made(2 << 20);
        // A part of it waits for the client.
        answers.trim(1000);
        assert_eq!(used(), (1 << 20) + 1000);
        // The client takes nothing.
        let most = BYTES_MAX as usize;
        assert_eq!(answers.reserve(&pool, most, 1), Err(AnswerWait::Later));
        answers.made(1 << 20);
        answers.trim(0);
        assert_eq!(used(), 0);
        // One goes, however large.
        assert_eq!(answers.reserve(&pool, 0, 2 * BYTES_MAX as u32), Ok(()));
        assert_eq!(answers.reserve(&pool, 0, 1), Err(AnswerWait::Later));
        drop(answers);
        assert_eq!(used(), 0);
    }

    #[test]
    fn answers_of_all_connections_share_one_budget() {
        let pool = Pool::new(Budget::new(64 << 20)).unwrap();
        let mut all: Vec<Answers> = (0..64).map(|_| Answers::default()).collect();
        let mut came = 0;
        for answers in &mut all {
            came += usize::from(answers.reserve(&pool, 0, 4 << 20).is_ok());
        }
        assert!((8..16).contains(&came), "{came} of 4 MiB within 64 MiB");
        drop(all);
        assert_eq!(Answers::default().reserve(&pool, 0, 4 << 20), Ok(()));
    }
}
