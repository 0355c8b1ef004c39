//! Commands whose answer is not there yet, in one table a reactor.
//!
//! A job outlives its command: where the host aborts it, or its connection
//! ends, the host is answered at once and the job stays as an *orphan*. It
//! keeps the memory that the kernel may still use, and in its task the range
//! of the volume against whatever comes later, until the kernel lets go. So a
//! backend that hangs holds up no host, and a write that it ends late never lands on a
//! newer one.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use link::CommandMemory;
use machine::{Tag, work};
use reactor::{FileIo, Token};
use store::Volume;
use store::fs::FileSystem;

use crate::fence::Scope;
use crate::token::{ConnectionId, JOB_TABLES_MAX, JOBS_MAX, JobId, Subject};

/// Where the answer to a command will come from.
pub trait AnswerSource: Sized {
    /// Another reactor, or the blocking worker.
    fn elsewhere() -> Self;

    /// Whether something was begun that goes on as an orphan.
    fn has_begun(&self) -> bool;

    /// Cuts short what can be, of work that has become an orphan.
    fn cancel(&mut self, files: &mut dyn FileIo, token: Token);

    /// The kernel has done something for an orphan: what is left of it, if anything.
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
    /// The connection that waits for it; none for an orphan.
    pub owner: Option<ConnectionId>,
    /// The command.
    pub tag: Tag,
    /// When it began, see [`Jobs::mark`].
    pub mark: u64,
    /// Where its answer will come from.
    pub work: W,
    /// Of an orphan: memory that the kernel may still use.
    held: Vec<CommandMemory>,
    /// It never begins, see [`Jobs::discard`].
    is_discarded: bool,
}

impl<W> Job<W> {
    /// Of a command of `owner`, or an orphan.
    pub fn new(owner: impl Into<Option<ConnectionId>>, tag: Tag, mark: u64, work: W) -> Self {
        Job {
            owner: owner.into(),
            tag,
            mark,
            work,
            held: Vec::new(),
            is_discarded: false,
        }
    }
}

/// Places that a table keeps when there are no jobs: more are given back.
const KEPT_MAX: usize = 4096;

/// The jobs of a reactor that are older than a fence.
pub struct Older {
    mark: u64,
    /// So many places of each table, by its number, hold the fence no more.
    passed: [usize; JOB_TABLES_MAX as usize],
}

impl Older {
    /// Those that have begun at `mark`, see [`Jobs::mark`].
    pub fn than(mark: u64) -> Older {
        let passed = [0; JOB_TABLES_MAX as usize];
        Older { mark, passed }
    }
}

/// One place in the table.
struct JobEntry<W> {
    generation: u32,
    job: Option<Job<W>>,
    /// While the job has an owner.
    links: Option<Links>,
}

/// The place of a job among those of its connection.
#[derive(Clone, Copy)]
struct Links {
    owner: ConnectionId,
    before: Option<u32>,
    after: Option<u32>,
}

/// Every job of one protocol on one reactor.
pub struct Jobs<W> {
    /// Which of the reactor's tables it is.
    table: u32,
    entries: Vec<JobEntry<W>>,
    /// Places without a tenant. A place whose job is being looked at is in
    /// neither.
    free: Vec<u32>,
    /// The generation of new places: what was of a place that was given up is of no other.
    generation: u32,
    /// The first job of each connection, by the connection's index: hosts may have very
    /// many, and a connection looks through no other's.
    first_of: Vec<Option<u32>>,
    /// Jobs that all tables of the reactor have had.
    marks: Rc<Cell<u64>>,
    orphans: usize,
    /// Orphans that have not begun, see [`Jobs::discard`].
    discarded: Vec<JobId>,
}

impl<W: AnswerSource> Jobs<W> {
    /// The table of a number, which counts time with the others of its reactor.
    pub fn new(table: u32, marks: Rc<Cell<u64>>) -> Jobs<W> {
        Jobs {
            table,
            entries: Vec::new(),
            free: Vec::new(),
            generation: 0,
            first_of: Vec::new(),
            marks,
            orphans: 0,
            discarded: Vec::new(),
        }
    }

    /// Which of the reactor's tables it is: each protocol has its number.
    pub fn table(&self) -> u32 {
        self.table
    }

    /// The time, counted in jobs: what begins from now on has a later one.
    pub fn mark(&self) -> u64 {
        self.marks.get()
    }

    /// Whether work of what is in `scope` that is `older` than a fence is awaited, or
    /// some of it is still to be looked at. Looks at `left` places at most.
    pub fn holds(&self, scope: &Scope, older: &mut Older, left: &mut usize) -> bool {
        match scope {
            Scope::Volumes(volumes) => self.has_older(older, left, |work| {
                volumes.iter().any(|volume| work.touches(volume))
            }),
            Scope::Files(fs) => self.has_older(older, left, |work| work.is_in(fs)),
            Scope::Mail | Scope::Connections(_) | Scope::Listener(_) => false,
        }
    }

    /// Whether an older job of a connection is one of those that are `meant`. Orphans do
    /// not count: they hold what they are at against whatever comes later.
    ///
    /// A place that does not hold the fence once never will: its next job is younger.
    /// So the look goes on where it stopped.
    fn has_older(&self, older: &mut Older, left: &mut usize, meant: impl Fn(&W) -> bool) -> bool {
        if self.free.len() == self.entries.len() {
            return false;
        }
        let mark = older.mark;
        let passed = &mut older.passed[self.table as usize];
        while let Some(entry) = self.entries.get(*passed) {
            let is_meant =
                |job: &Job<W>| job.owner.is_some() && job.mark <= mark && meant(&job.work);
            if *left == 0 || entry.job.as_ref().is_some_and(is_meant) {
                return true;
            }
            *left -= 1;
            *passed += 1;
        }
        false
    }

    /// Jobs whose connection does not wait for them any more.
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
                self.entries.push(JobEntry {
                    generation: self.generation,
                    job: None,
                    links: None,
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
        self.link(id.place() as u32, owner);
    }

    #[inline]
    fn link(&mut self, place: u32, owner: ConnectionId) {
        let at = owner.index as usize;
        if at >= self.first_of.len() {
            self.first_of.resize(at + 1, None);
        }
        let after = self.first_of[at].replace(place);
        if let Some(after) = after {
            self.links_mut(after).before = Some(place);
        }
        self.entries[place as usize].links = Some(Links {
            owner,
            before: None,
            after,
        });
    }

    /// It is its connection's no more.
    #[inline]
    fn unlink(&mut self, id: JobId) {
        let Some(links) = self.entries[id.place()].links.take() else {
            return;
        };
        match links.before {
            Some(before) => self.links_mut(before).after = links.after,
            None => self.first_of[links.owner.index as usize] = links.after,
        }
        if let Some(after) = links.after {
            self.links_mut(after).before = links.before;
        }
    }

    fn links_mut(&mut self, place: u32) -> &mut Links {
        let links = self.entries[place as usize].links.as_mut();
        links.expect("neighbours are linked")
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

    /// The same of work that no connection waits for from the start.
    pub fn insert_orphan(&mut self, id: JobId, work: W) {
        self.insert_job(id, None, 0, work);
        self.orphans += 1;
    }

    /// Takes a job out to go on with it: [`Jobs::put_back`] or
    /// [`Jobs::release`] follows. `None`: what completed was of a job that is
    /// over.
    #[inline]
    pub fn take(&mut self, id: JobId) -> Option<Job<W>> {
        let entry = self.entries.get_mut(id.place())?;
        if entry.generation != id.generation {
            return None;
        }
        Some(entry.job.take().expect("one completion at a time"))
    }

    /// It goes on.
    pub fn reinsert(&mut self, id: JobId, job: Job<W>) {
        self.entries[id.place()].job = Some(job);
    }

    /// It is over.
    pub fn release(&mut self, id: JobId) {
        self.unlink(id);
        let entry = &mut self.entries[id.place()];
        entry.generation = JobId::next_generation(entry.generation);
        self.free.push(id.place() as u32);
        if self.free.len() > KEPT_MAX && self.free.len() == self.entries.len() {
            self.shrink();
        }
    }

    /// Gives the memory of a large table back in which there are no jobs.
    #[cold]
    fn shrink(&mut self) {
        let last = self.entries.iter().map(|entry| entry.generation);
        self.generation = JobId::next_generation(last.max().unwrap_or(0));
        (self.entries, self.free, self.discarded) = Default::default();
    }

    /// The connection of a job; none of an orphan and of one that is over.
    #[inline]
    pub fn owner(&self, id: JobId) -> Option<ConnectionId> {
        let entry = self.entries.get(id.place())?;
        let job = entry.job.as_ref();
        job.filter(|_| entry.generation == id.generation)?.owner
    }

    /// The job of a command, or of its partner in a fused pair.
    pub fn find(&self, owner: ConnectionId, tag: Tag) -> Option<JobId> {
        let mut jobs = self.of(owner);
        let found = jobs.find(|(_, job)| job.tag == tag || job.work.partner() == Some(tag));
        found.map(|(id, _)| id)
    }

    /// The jobs of a connection, the newest first.
    pub fn of(&self, owner: ConnectionId) -> impl Iterator<Item = (JobId, &Job<W>)> {
        let mut next = (self.first_of.get(owner.index as usize)).copied().flatten();
        let entries = std::iter::from_fn(move || {
            let place = next?;
            let entry = &self.entries[place as usize];
            next = entry.links.and_then(|links| links.after);
            Some((place, entry))
        });
        entries.filter_map(move |(place, entry)| {
            let job = entry.job.as_ref()?;
            let id = JobId::new(self.table, place, entry.generation);
            (job.owner == Some(owner)).then_some((id, job))
        })
    }

    /// A job that waits.
    pub fn get(&self, id: JobId) -> &Job<W> {
        let job = self.entries[id.place()].job.as_ref();
        job.expect("a job that waits")
    }

    /// Makes the job an orphan. One that has not begun never will, and goes with
    /// [`Jobs::discard`]; any other keeps `held` to its end, which the kernel is asked to
    /// bring about.
    pub fn orphan(&mut self, id: JobId, held: Vec<CommandMemory>, files: &mut dyn FileIo) {
        let entry = &mut self.entries[id.place()];
        let job = entry.job.as_mut().expect("a job that waits");
        job.owner = None;
        job.is_discarded = !job.work.has_begun();
        match job.is_discarded {
            true => self.discarded.push(id),
            false => {
                job.held = held;
                job.work.cancel(files, Subject::File(id).token());
            }
        }
        self.orphans += 1;
        self.unlink(id);
    }

    /// Lets orphans that have not begun go, as far as the share of the turn goes; whether
    /// some are left. What waits behind each is looked at, and a connection that ends may
    /// leave very many.
    pub fn discard(&mut self) -> bool {
        while !work::is_used_up()
            && let Some(id) = self.discarded.pop()
        {
            work::spend(1);
            // It may have been called meanwhile, and be over.
            let entry = self.entries.get_mut(id.place());
            if let Some(entry) = entry.filter(|entry| entry.generation == id.generation) {
                entry.job = None;
                self.remove_orphan(id);
            }
        }
        !self.discarded.is_empty()
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
        if job.is_discarded {
            return self.remove_orphan(id);
        }
        match job.work.resume(result, files, Subject::File(id).token()) {
            Some(work) => {
                job.work = work;
                self.reinsert(id, job);
            }
            None => self.remove_orphan(id),
        }
    }

    /// The end of an orphan.
    pub fn remove_orphan(&mut self, id: JobId) {
        self.orphans -= 1;
        self.release(id);
    }
}

#[cfg(test)]
mod tests {

    use mem::BufRange;
    use reactor::{DiskFile, FallocateMode, Ticket};

    use super::*;

    #[derive(PartialEq)]
    enum JobKind {
        Elsewhere,
        OfFiles,
        /// It has not begun. What becomes of others when it goes takes so many units.
        Waits(Units),
    }
    use JobKind::{Elsewhere, OfFiles, Waits};

    #[derive(PartialEq)]
    struct Units(u64);

    impl Drop for Units {
        fn drop(&mut self) {
            work::spend(self.0);
        }
    }

    struct NoFiles;

    impl FileIo for NoFiles {
        fn read_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: Token) {}
        fn write_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: bool, _: Token) {}
        fn sync_data(&mut self, _: &Arc<DiskFile>, _: Token) {}
        fn fallocate(&mut self, _: &Arc<DiskFile>, _: FallocateMode, _: u64, _: u64, _: Token) {}
        fn ticket(&mut self, _: Token) -> Ticket {
            unreachable!("nothing waits")
        }
        fn cancel_file(&mut self, _: Token) {}
    }

    impl AnswerSource for JobKind {
        fn elsewhere() -> JobKind {
            Elsewhere
        }

        fn has_begun(&self) -> bool {
            !matches!(self, Waits(_))
        }

        fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {}

        fn resume(self, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Option<JobKind> {
            None
        }
    }

    fn connection(index: u32) -> ConnectionId {
        ConnectionId {
            index,
            generation: 7,
        }
    }

    fn tags(jobs: &Jobs<JobKind>, owner: ConnectionId) -> Vec<Tag> {
        jobs.of(owner).map(|(_, job)| job.tag).collect()
    }

    #[test]
    fn however_many_jobs_there_are_a_look_for_older_ones_goes_on_in_steps() {
        let mut jobs = Jobs::new(1, Rc::default());
        let put = |jobs: &mut Jobs<JobKind>, work| {
            let id = jobs.vacant();
            jobs.insert(id, connection(0), 0, work);
            id
        };
        for _ in 0..1000 {
            put(&mut jobs, Elsewhere);
        }
        let meant = put(&mut jobs, OfFiles);
        let mut older = Older::than(jobs.mark());
        put(&mut jobs, OfFiles);
        let mut look = |jobs: &Jobs<JobKind>| {
            let mut left = 300;
            let is_held = jobs.has_older(&mut older, &mut left, |work| *work == OfFiles);
            (is_held, left)
        };
        for _ in 0..3 {
            assert_eq!(look(&jobs), (true, 0), "places are left");
        }
        assert_eq!(look(&jobs), (true, 200), "at the one that is older");
        assert_eq!(look(&jobs), (true, 300), "still there");
        jobs.take(meant).expect("it is there");
        jobs.release(meant);
        assert_eq!(look(&jobs), (false, 298), "the last one is younger");
        assert_eq!(look(&jobs), (false, 300));
    }

    #[test]
    fn jobs_that_have_not_begun_go_in_steps_however_many_a_connection_leaves() {
        let mut jobs = Jobs::new(1, Rc::default());
        let ids = Vec::from_iter((0..100).map(|tag| {
            let id = jobs.vacant();
            jobs.insert(id, connection(0), tag, Waits(Units(99)));
            id
        }));
        let mut left = 0;
        work::take_turn(&mut left, 1000, || {
            for id in &ids {
                jobs.orphan(*id, Vec::new(), &mut NoFiles);
            }
        });
        assert_eq!((left, jobs.orphans()), (0, 100), "none is gone");
        // One is called meanwhile.
        let called = jobs.take(ids[99]).expect("it is there");
        jobs.resume_orphan(ids[99], called, Ok(0), &mut NoFiles);
        let mut turns = 0;
        let mut has_more = true;
        while has_more {
            let mut units = 0;
            has_more = work::take_turn(&mut units, 1000, || jobs.discard());
            assert!(units < 1100, "{units}");
            turns += 1;
        }
        assert_eq!((jobs.orphans(), turns), (0, 10));
        assert_eq!(jobs.free.len(), 100);
    }

    #[test]
    fn a_large_table_without_jobs_is_given_back_and_names_no_place_twice() {
        let mut jobs = Jobs::new(1, Rc::default());
        let put = |jobs: &mut Jobs<JobKind>| {
            let id = jobs.vacant();
            jobs.insert(id, connection(0), 0, Elsewhere);
            id
        };
        let ids: Vec<JobId> = (0..=KEPT_MAX).map(|_| put(&mut jobs)).collect();
        for id in &ids {
            jobs.take(*id).expect("it is there");
            jobs.release(*id);
        }
        assert_eq!(jobs.entries.capacity(), 0);
        let late = ids[KEPT_MAX];
        assert!(jobs.take(late).is_none() && jobs.owner(late).is_none());
        let next = put(&mut jobs);
        assert_eq!(next.place(), ids[0].place());
        assert!(jobs.take(ids[0]).is_none(), "it was another's");
        assert!(jobs.take(next).is_some());
    }

    #[test]
    fn each_connection_finds_its_own_jobs_whatever_others_have() {
        let mut jobs = Jobs::new(1, Rc::default());
        let mut ids = Vec::new();
        for n in 0..300 {
            let id = jobs.vacant();
            jobs.insert(id, connection(n % 3), (n / 3) as Tag, Elsewhere);
            ids.push(id);
            let id = jobs.vacant();
            jobs.insert_orphan(id, Elsewhere);
        }
        assert!(tags(&jobs, connection(9)).is_empty());
        let newest_first: Vec<Tag> = (0..100).rev().collect();
        assert_eq!(tags(&jobs, connection(1)), newest_first);
        assert_eq!(jobs.find(connection(2), 5), Some(ids[17]));
        assert_eq!(jobs.find(connection(2), 100), None);
        let earlier = ConnectionId {
            generation: 6,
            ..connection(2)
        };
        assert_eq!(jobs.find(earlier, 5), None);

        // The first, the last and one in the middle; one is looked at meanwhile.
        for n in [1, 298, 151] {
            jobs.take(ids[n]).expect("it is there");
            jobs.release(ids[n]);
        }
        let taken = jobs.take(ids[4]).expect("it is there");
        let left: Vec<Tag> = (2..99).rev().filter(|tag| *tag != 50).collect();
        assert_eq!(tags(&jobs, connection(1)), left);
        jobs.reinsert(ids[4], taken);
        let last = jobs.of(connection(1)).last().map(|(id, _)| id);
        assert_eq!(last, Some(ids[4]));
        assert_eq!(tags(&jobs, connection(0)).len(), 100);

        // A place is another connection's next.
        jobs.release(ids[4]);
        let id = jobs.vacant();
        jobs.insert(id, connection(0), 500, Elsewhere);
        assert_eq!(id.place(), ids[4].place());
        assert_eq!(jobs.find(connection(0), 500), Some(id));
        assert_eq!(tags(&jobs, connection(1)), left);
    }
}
