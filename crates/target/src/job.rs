//! Commands whose answer is not there yet, in one table a reactor.
//!
//! A job outlives its command: where the host aborts it, or its connection
//! ends, the host is answered at once and the job stays as an *orphan*. It
//! keeps the memory that the kernel may still use, and in its task the range
//! of the volume against whatever comes later, until the kernel lets go. So a
//! backend that hangs holds up nobody, and a write that it wakes up with never
//! lands on a newer one.

use std::sync::Arc;

use link::Data;
use machine::Tag;
use reactor::FileIo;
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

impl Job {
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
            Work::Elsewhere | Work::Abort => false,
        }
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
    /// at this volume. Orphans do not count: they hold their range.
    pub(crate) fn busy_before(&self, mark: u64, volume: &Arc<dyn Volume>) -> bool {
        let jobs = self.entries.iter().filter_map(|entry| entry.job.as_ref());
        jobs.filter(|job| job.owner.is_some())
            .any(|job| job.mark <= mark && job.touches(volume))
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

    /// The same of work that nobody waits for from the start.
    pub(crate) fn insert_orphan(&mut self, id: JobId, owner: ConnectionId, on: OnVolume) {
        self.insert(id, owner, 0, Work::Volume(on));
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
            Work::Elsewhere | Work::Abort => true,
        };
        if !has_begun {
            entry.job = None;
            return self.release(id);
        }
        if let Work::Volume(on) = &mut job.work {
            on.task.cancel();
            files.cancel_file(Subject::File(id).token());
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
        job: Job,
        result: std::io::Result<u32>,
        files: &mut dyn FileIo,
    ) {
        let Job {
            work: Work::Volume(on),
            ..
        } = job
        else {
            return self.bury(id);
        };
        let token = Subject::File(id).token();
        match on.volume.resume(on.task, result, files, token) {
            Progress::Pending(task) => {
                let work = Work::Volume(OnVolume { task, ..on });
                self.put_back(id, Job { work, ..job });
            }
            Progress::Done(_) => self.bury(id),
        }
    }

    /// The end of an orphan.
    pub(crate) fn bury(&mut self, id: JobId) {
        self.orphans -= 1;
        self.release(id);
    }
}
