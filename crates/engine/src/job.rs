//! Commands whose answer is not there yet, in one table a reactor.
//!
//! A job outlives its command: where the host aborts it, or its connection
//! ends, the host is answered at once and the job stays as an *orphan*. It
//! keeps the memory that the kernel may still use, and in its task the range
//! of the volume against whatever comes later, until the kernel lets go. So a
//! backend that hangs holds up nobody, and a write that it wakes up with never
//! lands on a newer one.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use link::Data;
use machine::Tag;
use reactor::{FileIo, Token};
use store::Volume;
use store::fs::FileSystem;

use crate::fence::Scope;
use crate::token::{ConnectionId, JOBS_MAX, JobId, Subject};

/// Where the answer to a command will come from.
pub trait Work: Sized {
    /// Another reactor, or who does what may block.
    fn elsewhere() -> Self;

    /// Whether something was begun that goes on where nobody waits for it.
    fn has_begun(&self) -> bool;

    /// Nobody waits for it any more: what can be is cut short.
    fn cancel(&mut self, files: &mut dyn FileIo, token: Token);

    /// The kernel has done something for work that nobody waits for: what is
    /// left of it, if anything.
    fn resume(self, result: io::Result<u32>, files: &mut dyn FileIo, token: Token) -> Option<Self>;

    /// The command that ends with this one.
    fn partner(&self) -> Option<Tag> {
        None
    }

    /// Whether it is at this volume, or will be.
    fn touches(&self, _: &Arc<dyn Volume>) -> bool {
        false
    }

    /// Whether it is at this file system.
    fn is_in(&self, _: &Arc<dyn FileSystem>) -> bool {
        false
    }
}

/// A command whose answer is not there yet.
pub struct Job<W> {
    /// Who waits for it; nobody for an orphan.
    pub owner: Option<ConnectionId>,
    /// The command.
    pub tag: Tag,
    /// When it began, see [`Jobs::mark`].
    pub mark: u64,
    /// Where its answer will come from.
    pub work: W,
    /// Of an orphan: memory that the kernel may still use.
    held: Vec<Data>,
}

impl<W> Job<W> {
    /// Of a command of `owner`, or of nobody's.
    pub fn new(owner: impl Into<Option<ConnectionId>>, tag: Tag, mark: u64, work: W) -> Self {
        Job {
            owner: owner.into(),
            tag,
            mark,
            work,
            held: Vec::new(),
        }
    }
}

/// One place in the table.
struct Entry<W> {
    generation: u32,
    job: Option<Job<W>>,
}

/// Every job of one protocol on one reactor.
pub struct Jobs<W> {
    /// Which of the reactor's tables it is.
    table: u32,
    entries: Vec<Entry<W>>,
    /// Places without a tenant. A place whose job is being looked at is in
    /// neither.
    free: Vec<u32>,
    /// Jobs that all tables of the reactor have had.
    marks: Rc<Cell<u64>>,
    orphans: usize,
}

impl<W: Work> Jobs<W> {
    /// The table of a number, which counts time with the others of its reactor.
    pub fn new(table: u32, marks: Rc<Cell<u64>>) -> Jobs<W> {
        Jobs {
            table,
            entries: Vec::new(),
            free: Vec::new(),
            marks,
            orphans: 0,
        }
    }

    /// The time, counted in jobs: what begins from now on has a later one.
    pub fn mark(&self) -> u64 {
        self.marks.get()
    }

    /// Whether work of what is in `scope` that began before `mark` is awaited.
    pub fn holds(&self, scope: &Scope, mark: u64) -> bool {
        match scope {
            Scope::Volumes(volumes) => {
                (volumes.iter()).any(|volume| self.busy_before(mark, |work| work.touches(volume)))
            }
            Scope::Files(fs) => self.busy_before(mark, |work| work.is_in(fs)),
            Scope::Mail | Scope::Connections(_) | Scope::Listener(_) => false,
        }
    }

    /// Whether a job that began before `mark` and that somebody waits for is
    /// one of those that are `meant`. Orphans do not count: they hold what they
    /// are at against whatever comes later.
    fn busy_before(&self, mark: u64, meant: impl Fn(&W) -> bool) -> bool {
        let jobs = self.entries.iter().filter_map(|entry| entry.job.as_ref());
        jobs.filter(|job| job.owner.is_some())
            .any(|job| job.mark <= mark && meant(&job.work))
    }

    /// Jobs that nobody waits for.
    pub fn orphans(&self) -> usize {
        self.orphans
    }

    /// The place that [`Jobs::insert`] fills next: what the volume is started
    /// with, before it is known whether there will be a job.
    #[inline]
    pub fn vacant(&mut self) -> JobId {
        let index = match self.free.last() {
            Some(index) => *index,
            None => {
                let index = self.entries.len() as u32;
                assert!(index < JOBS_MAX, "jobs are bounded by commands in flight");
                self.entries.push(Entry {
                    generation: 0,
                    job: None,
                });
                self.free.push(index);
                index
            }
        };
        JobId::new(self.table, index, self.entries[index as usize].generation)
    }

    /// Puts a new job into the place that [`Jobs::vacant`] named.
    pub fn insert(&mut self, id: JobId, owner: ConnectionId, tag: Tag, work: W) {
        self.insert_job(id, Some(owner), tag, work);
    }

    /// The same of work that has no command: [`Jobs::release`] ends it.
    pub fn insert_background(&mut self, id: JobId, work: W) {
        self.insert_job(id, None, 0, work);
    }

    #[inline]
    fn insert_job(&mut self, id: JobId, owner: Option<ConnectionId>, tag: Tag, work: W) {
        let place = self.free.pop();
        let promised = Some(id.place() as u32);
        assert_eq!(place, promised, "a job goes where it was promised");
        self.marks.set(self.marks.get() + 1);
        let job = Job::new(owner, tag, self.marks.get(), work);
        self.entries[id.place()].job = Some(job);
    }

    /// The same of work that nobody waits for from the start.
    pub fn insert_orphan(&mut self, id: JobId, work: W) {
        self.insert_job(id, None, 0, work);
        self.orphans += 1;
    }

    /// Takes a job out to go on with it: [`Jobs::put_back`] or
    /// [`Jobs::release`] follows. `None`: what completed was of a job that is
    /// over.
    #[inline]
    pub fn take(&mut self, id: JobId) -> Option<Job<W>> {
        let entry = &mut self.entries[id.place()];
        if entry.generation != id.generation {
            return None;
        }
        Some(entry.job.take().expect("one completion at a time"))
    }

    /// It goes on.
    pub fn put_back(&mut self, id: JobId, job: Job<W>) {
        self.entries[id.place()].job = Some(job);
    }

    /// It is over.
    pub fn release(&mut self, id: JobId) {
        let entry = &mut self.entries[id.place()];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id.place() as u32);
    }

    /// Whose job it is; nobody's of an orphan and of one that is over.
    #[inline]
    pub fn owner(&self, id: JobId) -> Option<ConnectionId> {
        let entry = &self.entries[id.place()];
        let job = entry.job.as_ref();
        job.filter(|_| entry.generation == id.generation)?.owner
    }

    /// The job of a command, or of its partner in a fused pair.
    pub fn find(&self, owner: ConnectionId, tag: Tag) -> Option<JobId> {
        let jobs = self.all(|job| {
            job.owner == Some(owner) && (job.tag == tag || job.work.partner() == Some(tag))
        });
        jobs.first().copied()
    }

    /// The jobs that are `meant`, in no special order.
    pub fn all(&self, meant: impl Fn(&Job<W>) -> bool) -> Vec<JobId> {
        let entries = (0..).zip(&self.entries);
        let found = entries.filter(|(_, entry)| entry.job.as_ref().is_some_and(&meant));
        found
            .map(|(place, entry)| JobId::new(self.table, place, entry.generation))
            .collect()
    }

    /// A job that waits.
    pub fn get(&self, id: JobId) -> &Job<W> {
        let job = self.entries[id.place()].job.as_ref();
        job.expect("a job that waits")
    }

    /// Nobody waits for the job any more. One that has not begun never will;
    /// any other keeps `held` to its end, which the kernel is asked to bring
    /// about.
    pub fn orphan(&mut self, id: JobId, held: Vec<Data>, files: &mut dyn FileIo) {
        let entry = &mut self.entries[id.place()];
        let job = entry.job.as_mut().expect("a job that waits");
        if !job.work.has_begun() {
            entry.job = None;
            return self.release(id);
        }
        job.work.cancel(files, Subject::File(id).token());
        job.owner = None;
        job.held = held;
        self.orphans += 1;
    }

    /// The file operation of an orphan has ended: what its task began is
    /// brought to an end, and nothing more is begun.
    pub fn resume_orphan(
        &mut self,
        id: JobId,
        mut job: Job<W>,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
    ) {
        match job.work.resume(result, files, Subject::File(id).token()) {
            Some(work) => {
                job.work = work;
                self.put_back(id, job);
            }
            None => self.bury(id),
        }
    }

    /// The end of an orphan.
    pub fn bury(&mut self, id: JobId) {
        self.orphans -= 1;
        self.release(id);
    }
}
