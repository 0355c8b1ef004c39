//! Commands whose answer is not there yet, in one table a reactor.
//!
//! A job outlives its command: where the host aborts it, or its connection
//! ends, the host is answered at once and the job stays as an *orphan*. It
//! keeps the memory that the kernel may still use, and in its task the range
//! of the volume against whatever comes later, until the kernel lets go. So a
//! backend that hangs holds up nobody, and a write that it wakes up with never
//! lands on a newer one.

use std::io;
use std::sync::Arc;

use link::Data;
use machine::Tag;
use reactor::FileIo;
use store::fs::{self, FileSystem};
use store::{Progress, Task, Volume};

use crate::engine::Then;
use crate::steps::Steps;
use crate::token::{ConnectionId, Subject};

/// A job of this reactor: its place in the table, and which of its successive
/// tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobId {
    pub index: u32,
    pub generation: u32,
}

/// A command whose answer is not there yet.
pub(crate) struct Job {
    /// Who waits for it; nobody for an orphan.
    pub owner: Option<ConnectionId>,
    pub tag: Tag,
    /// When it began, see [`Jobs::mark`].
    pub mark: u64,
    pub work: Work,
    /// Of an orphan: memory that the kernel may still use.
    held: Vec<Data>,
}

/// Where the answer will come from.
pub(crate) enum Work {
    /// The volume is at it.
    Volume(OnVolume),
    /// It goes on when others have had their turn.
    Turn(Box<Steps>),
    /// The same, of a call.
    CallTurn,
    /// The file system is at it.
    Files(OnFiles),
    /// The same, of what NFS does without a call.
    Background(Box<nfsd::offload::Work>, fs::Task),
    /// Somebody else's answer comes by mail, see [`crate::later::Later`].
    Elsewhere,
    /// The same, of an Abort.
    Abort,
}

/// A command whose volume is at it.
pub(crate) struct OnVolume {
    pub volume: Arc<dyn Volume>,
    /// Its index in what the connection is served.
    pub unit: u32,
    /// First byte of what the volume is at.
    pub offset: u64,
    pub task: Task,
    pub then: Then,
}

/// A call whose file system is at it.
pub(crate) struct OnFiles {
    pub fs: Arc<dyn FileSystem>,
    pub task: fs::Task,
}

impl Work {
    /// The kernel has done something for work that nobody waits for: what is
    /// left of it, if anything.
    fn resume(self, result: io::Result<u32>, files: &mut dyn FileIo, id: JobId) -> Option<Work> {
        let token = Subject::File(id).token();
        match self {
            Work::Volume(on) => match on.volume.resume(on.task, result, files, token) {
                Progress::Pending(task) => Some(Work::Volume(OnVolume { task, ..on })),
                Progress::Done(_) => None,
            },
            Work::Files(on) => match on.fs.resume(on.task, result, files, token) {
                fs::Progress::Pending(task) => Some(Work::Files(OnFiles { task, ..on })),
                fs::Progress::Done(_) => None,
            },
            Work::Background(..)
            | Work::Turn(_)
            | Work::CallTurn
            | Work::Elsewhere
            | Work::Abort => None,
        }
    }
}

impl Job {
    /// Of what NFS does without a call.
    pub(crate) fn background(mark: u64, work: Box<nfsd::offload::Work>, task: fs::Task) -> Job {
        Job {
            owner: None,
            tag: 0,
            mark,
            work: Work::Background(work, task),
            held: Vec::new(),
        }
    }

    pub(crate) fn new(owner: ConnectionId, tag: Tag, mark: u64, work: Work) -> Job {
        Job {
            owner: Some(owner),
            tag,
            mark,
            work,
            held: Vec::new(),
        }
    }

    /// The other command of a fused pair.
    pub(crate) fn partner(&self) -> Option<Tag> {
        match &self.work {
            Work::Volume(OnVolume {
                then: Then::Fused { compare, .. },
                ..
            }) => Some(*compare),
            _ => None,
        }
    }

    /// Whether it is at this volume, or will be.
    pub(crate) fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        match &self.work {
            Work::Volume(on) => Arc::ptr_eq(&on.volume, volume) || on.then.touches(volume),
            Work::Turn(steps) => steps.touches(volume),
            Work::Files(_)
            | Work::CallTurn
            | Work::Background(..)
            | Work::Elsewhere
            | Work::Abort => false,
        }
    }

    /// Whether it is at this file system.
    pub(crate) fn is_in(&self, fs: &Arc<dyn FileSystem>) -> bool {
        matches!(&self.work, Work::Files(on) if Arc::ptr_eq(&on.fs, fs))
    }
}

/// One place in the table.
#[derive(Default)]
struct Entry {
    generation: u32,
    job: Option<Job>,
}

/// Every job of one reactor.
#[derive(Default)]
pub(crate) struct Jobs {
    entries: Vec<Entry>,
    /// Places without a tenant. A place whose job is being looked at is in
    /// neither.
    free: Vec<u32>,
    marks: u64,
    orphans: usize,
}

impl Jobs {
    /// The time, counted in jobs: what begins from now on has a later one.
    pub(crate) fn mark(&self) -> u64 {
        self.marks
    }

    /// Whether a job that began before `mark` and that somebody waits for is
    /// one of those that are `meant`. Orphans do not count: they hold what they
    /// are at against whatever comes later.
    pub(crate) fn busy_before(&self, mark: u64, meant: impl Fn(&Job) -> bool) -> bool {
        let jobs = self.entries.iter().filter_map(|entry| entry.job.as_ref());
        jobs.filter(|job| job.owner.is_some())
            .any(|job| job.mark <= mark && meant(job))
    }

    /// Jobs that nobody waits for.
    pub(crate) fn orphans(&self) -> usize {
        self.orphans
    }

    /// The place that [`Jobs::insert`] fills next: what the volume is started
    /// with, before it is known whether there will be a job.
    #[inline]
    pub(crate) fn vacant(&mut self) -> JobId {
        let index = match self.free.last() {
            Some(index) => *index,
            None => {
                let index = self.entries.len() as u32;
                self.entries.push(Entry::default());
                self.free.push(index);
                index
            }
        };
        JobId {
            index,
            generation: self.entries[index as usize].generation,
        }
    }

    /// Puts a new job into the place that [`Jobs::vacant`] named.
    pub(crate) fn insert(&mut self, id: JobId, owner: ConnectionId, tag: Tag, work: Work) {
        let index = self.free.pop();
        assert_eq!(index, Some(id.index), "a job goes where it was promised");
        self.marks += 1;
        let job = Job::new(owner, tag, self.marks, work);
        self.entries[id.index as usize].job = Some(job);
    }

    /// The same of work that has no command: [`Jobs::release`] ends it.
    pub(crate) fn insert_background(&mut self, id: JobId, work: Work) {
        let nobody = ConnectionId {
            index: 0,
            generation: 0,
        };
        self.insert(id, nobody, 0, work);
        let job = self.entries[id.index as usize].job.as_mut();
        job.expect("just put in").owner = None;
    }

    /// The same of work that nobody waits for from the start.
    pub(crate) fn insert_orphan(&mut self, id: JobId, owner: ConnectionId, work: Work) {
        self.insert(id, owner, 0, work);
        let job = self.entries[id.index as usize].job.as_mut();
        job.expect("just put in").owner = None;
        self.orphans += 1;
    }

    /// Takes a job out to go on with it: [`Jobs::put_back`] or
    /// [`Jobs::release`] follows. `None`: what completed was of a job that is
    /// over.
    #[inline]
    pub(crate) fn take(&mut self, id: JobId) -> Option<Job> {
        let entry = &mut self.entries[id.index as usize];
        if entry.generation != id.generation {
            return None;
        }
        Some(entry.job.take().expect("one completion at a time"))
    }

    /// It goes on.
    pub(crate) fn put_back(&mut self, id: JobId, job: Job) {
        self.entries[id.index as usize].job = Some(job);
    }

    /// It is over.
    pub(crate) fn release(&mut self, id: JobId) {
        let entry = &mut self.entries[id.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id.index);
    }

    /// Whose job it is; nobody's of an orphan and of one that is over.
    #[inline]
    pub(crate) fn owner(&self, id: JobId) -> Option<ConnectionId> {
        let entry = &self.entries[id.index as usize];
        let job = entry.job.as_ref();
        job.filter(|_| entry.generation == id.generation)?.owner
    }

    /// The job of a command, or of its partner in a fused pair.
    pub(crate) fn find(&self, owner: ConnectionId, tag: Tag) -> Option<JobId> {
        let jobs = self
            .all(|job| job.owner == Some(owner) && (job.tag == tag || job.partner() == Some(tag)));
        jobs.first().copied()
    }

    /// The jobs that are `meant`, in no special order.
    pub(crate) fn all(&self, meant: impl Fn(&Job) -> bool) -> Vec<JobId> {
        let entries = (0..).zip(&self.entries);
        let found = entries.filter(|(_, entry)| entry.job.as_ref().is_some_and(&meant));
        let ids = found.map(|(index, entry)| JobId {
            index,
            generation: entry.generation,
        });
        ids.collect()
    }

    /// A job that waits.
    pub(crate) fn get(&self, id: JobId) -> &Job {
        let job = self.entries[id.index as usize].job.as_ref();
        job.expect("a job that waits")
    }

    /// Nobody waits for the job any more. One that has not begun never will;
    /// any other keeps `held` to its end, which the kernel is asked to bring
    /// about.
    pub(crate) fn orphan(&mut self, id: JobId, held: Vec<Data>, files: &mut dyn FileIo) {
        let entry = &mut self.entries[id.index as usize];
        let job = entry.job.as_mut().expect("a job that waits");
        let has_begun = match &job.work {
            Work::Volume(on) => !on.task.is_waiting(),
            Work::Turn(_) => false,
            Work::Files(_)
            | Work::CallTurn
            | Work::Background(..)
            | Work::Elsewhere
            | Work::Abort => true,
        };
        if !has_begun {
            entry.job = None;
            return self.release(id);
        }
        match &mut job.work {
            Work::Volume(on) => {
                on.task.cancel();
                files.cancel_file(Subject::File(id).token());
            }
            Work::Files(on) => on.task.cancel(),
            _ => {}
        }
        job.owner = None;
        job.held = held;
        self.orphans += 1;
    }

    /// The file operation of an orphan has ended: what its task began is
    /// brought to an end, and nothing more is begun.
    pub(crate) fn resume_orphan(
        &mut self,
        id: JobId,
        mut job: Job,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
    ) {
        match job.work.resume(result, files, id) {
            Some(work) => {
                job.work = work;
                self.put_back(id, job);
            }
            None => self.bury(id),
        }
    }

    /// The end of an orphan.
    pub(crate) fn bury(&mut self, id: JobId) {
        self.orphans -= 1;
        self.release(id);
    }
}
