//! What a checksummed volume does by itself: it takes away the sums that blocks had before what
//! is durable.

use std::io;
use std::sync::PoisonError;

use reactor::{FileIo, Nanos, Token};

use super::Checksummed;
use super::file::HEADER_BYTES;
use super::file_work::FileWork;
use super::table::{PAGE_BLOCKS, PAGE_BYTES};
use crate::locks::{Caller, Claim, StripePlace};
use crate::{Error, Io, Parked, Progress, Task};

/// How often.
pub(super) const CLEAN_NS: Nanos = 1_000_000_000;

/// It is under way.
#[derive(Debug)]
pub(super) struct Cleaning {
    /// The epoch that its flush began.
    epoch: u64,
    /// Pages that are left, the last one first.
    pages: Vec<u64>,
    held: Option<Claim>,
    wait: CleanWait,
    is_canceled: bool,
}

/// What it waits for.
#[derive(Debug)]
enum CleanWait {
    /// The flush of the volume below; `None`: to begin it.
    Flush(Option<Task>),
    /// The blocks of the last page.
    Range(Box<StripePlace>),
    /// The last page is written.
    Page(FileWork),
}

impl Parked for Cleaning {
    /// It ends with the page that it is at.
    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {
        self.is_canceled = true;
    }
}

impl Checksummed {
    pub(super) fn begin_cleaning(
        &self,
        now: Nanos,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Option<Progress> {
        if self.base.info.read_only {
            return None;
        }
        let mut cleans_at = self
            .cleans_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if now < *cleans_at && !self.table.is_short() {
            return None;
        }
        *cleans_at = now + self.clean_ns;
        drop(cleans_at);
        if !self.table.has_stale() {
            return None;
        }
        let cleaning = Cleaning {
            epoch: self.table.begin_flush(),
            pages: Vec::new(),
            held: None,
            wait: CleanWait::Flush(None),
            is_canceled: false,
        };
        Some(self.flush_below(cleaning, files, token))
    }

    fn flush_below(&self, cleaning: Cleaning, files: &mut dyn FileIo, token: Token) -> Progress {
        let flushed = self.below.start(Io::Flush, files, token);
        self.after_flush(cleaning, flushed, files, token)
    }

    fn after_flush(
        &self,
        mut cleaning: Cleaning,
        flushed: Progress,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        match flushed {
            Progress::Pending(below) => {
                cleaning.wait = CleanWait::Flush(Some(below));
                Progress::Pending(Task::parked(cleaning))
            }
            Progress::Done(Err(Error::Busy)) => {
                files.ticket(token).ring();
                cleaning.wait = CleanWait::Flush(None);
                Progress::Pending(Task::parked(cleaning))
            }
            // Hosts are told by their own flushes.
            Progress::Done(Err(_)) => Progress::Done(Ok(())),
            Progress::Done(Ok(())) => {
                self.table.flushed(cleaning.epoch);
                cleaning.pages = self.table.stale_pages();
                cleaning.pages.reverse();
                self.clean_on(cleaning, files, token)
            }
        }
    }

    /// The next page: the blocks first, which nothing writes to meanwhile.
    fn clean_on(&self, mut cleaning: Cleaning, files: &mut dyn FileIo, token: Token) -> Progress {
        while let Some(&page) = cleaning.pages.last().filter(|_| !cleaning.is_canceled) {
            let bytes = PAGE_BLOCKS * u64::from(self.base.info.block_bytes);
            let claim = Claim::new(page * bytes, bytes, false);
            let caller = || Caller::Ticket(files.ticket(token));
            if let Err(place) = self.locks.acquire(claim, caller) {
                cleaning.wait = CleanWait::Range(place);
                cleaning.held = Some(claim);
                return Progress::Pending(Task::parked(cleaning));
            }
            cleaning.held = Some(claim);
            if self.clean_page(&mut cleaning, files, token) {
                return Progress::Pending(Task::parked(cleaning));
            }
        }
        Progress::Done(Ok(()))
    }

    /// Nothing writes to the blocks of the page; whether it is to be waited for.
    fn clean_page(&self, cleaning: &mut Cleaning, files: &mut dyn FileIo, token: Token) -> bool {
        let page = *cleaning.pages.last().expect("it is at a page");
        match (self.table.clean(page), &self.file) {
            (Some(memory), Some(file)) => {
                let offset = HEADER_BYTES + page * u64::from(PAGE_BYTES);
                let work = FileWork::write(memory, offset);
                work.submit(file, files, token);
                cleaning.wait = CleanWait::Page(work);
                true
            }
            (Some(_), None) => {
                self.page_is_clean(cleaning);
                false
            }
            (None, _) => {
                self.let_go_of_page(cleaning);
                false
            }
        }
    }

    /// The page is written. Where that has failed its blocks have in the file what they had.
    fn page_is_clean(&self, cleaning: &mut Cleaning) {
        let page = *cleaning.pages.last().expect("it is at a page");
        self.table.unpin(page..page + 1);
        self.let_go_of_page(cleaning);
    }

    fn let_go_of_page(&self, cleaning: &mut Cleaning) {
        cleaning.pages.pop();
        if let Some(claim) = cleaning.held.take() {
            self.locks.release(&claim);
        }
    }

    pub(super) fn resume_cleaning(
        &self,
        mut cleaning: Cleaning,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let whole = token >> self.base.leg_bits << self.base.leg_bits;
        match std::mem::replace(&mut cleaning.wait, CleanWait::Flush(None)) {
            CleanWait::Flush(None) => self.flush_below(cleaning, files, whole),
            CleanWait::Flush(Some(below)) => {
                let flushed = self.below.resume(below, result, files, token);
                self.after_flush(cleaning, flushed, files, whole)
            }
            CleanWait::Range(place) => {
                if let Err(place) = place.go_on(|| Caller::Ticket(files.ticket(whole))) {
                    cleaning.wait = CleanWait::Range(place);
                    return Progress::Pending(Task::parked(cleaning));
                }
                match self.clean_page(&mut cleaning, files, whole) {
                    true => Progress::Pending(Task::parked(cleaning)),
                    false => self.clean_on(cleaning, files, whole),
                }
            }
            CleanWait::Page(mut work) => {
                if work.after(result).is_none() {
                    let file = self.file.as_ref().expect("it was written there");
                    work.submit(file, files, whole);
                    cleaning.wait = CleanWait::Page(work);
                    return Progress::Pending(Task::parked(cleaning));
                }
                self.page_is_clean(&mut cleaning);
                self.clean_on(cleaning, files, whole)
            }
        }
    }
}
