//! The tasks of a connection.

use std::ops::{Index, IndexMut};

use machine::Tag;
use wire::iscsi::{TAG_NONE, TaskAttribute};
use wire::scsi::SenseBytes;

use super::Task;
use super::transfers::NO_TRANSFER;

/// The end of a chain of tasks.
const NO_TASK: Tag = Tag::MAX;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// The driver was asked for memory.
    Preparing,
    /// Data is coming, or is to be asked for.
    Receiving,
    /// A task management function awaits earlier commands.
    Waiting,
    /// The driver works on it.
    Executing,
    /// In the ready queue: data or the response is to be sent.
    Responding,
    /// Answered, and kept until the initiator has acknowledged that.
    Kept,
}

/// What a task came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SCSI Command.
    Scsi,
    /// SCSI Task Management Function Request.
    Function,
    /// NOP-Out with data.
    Ping,
}

/// A task in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub state: State,
    pub kind: Kind,
    /// The driver knows the tag.
    pub is_named: bool,
    /// In the ready queue.
    pub is_queued: bool,
    /// It was given up: it is answered, with the status that is there already,
    /// as soon as the driver and the stream are done with it.
    pub is_given_up: bool,
    /// MaxCmdSN moves when it ends: it was not immediate.
    pub holds_window: bool,
    /// There is sense data.
    pub has_sense: bool,
    /// SCSI status, or the response to a task management function.
    pub status: u8,
    /// Residual flags of the answer.
    pub residual_flags: u8,
    /// Sequences whose last PDU has not come.
    pub sequences: u16,
    /// R2Ts among them.
    pub r2ts: u16,
    /// The sequence of unsolicited data.
    pub unsolicited: u16,
    /// Ranges to be asked for once more.
    pub holes: u16,
    /// How often ranges were asked for once more.
    pub recoveries: u16,
    /// The next in the chain of its Initiator Task Tag.
    next: Tag,
    /// Initiator Task Tag.
    pub itt: u32,
    /// Bytes of data that the initiator sends at most.
    pub expected: u32,
    /// Bytes of data that the driver wants.
    pub wanted: u32,
    /// Bytes of data that came, or come, unasked or were asked for.
    pub asked: u32,
    /// Bytes to send, and how many of them were.
    pub data_in_len: u32,
    pub sent: u32,
    /// R2Ts or Data-In PDUs so far.
    pub data_sn: u32,
    pub residual_count: u32,
    /// StatSN of its answer.
    pub stat_sn: u32,
    /// Bytes of data in one Data-In PDU at most, when they were sent.
    pub cut: u32,
    /// SNACK Tag to be put into its answer.
    pub snack_tag: u32,
}

impl Slot {
    /// Bytes of memory that it keeps when it is answered.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.data_in_len.max(self.wanted).into()
    }

    /// Whether data of it may still come.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Preparing | State::Receiving) && !self.is_given_up
    }

    /// Whether all data that the driver wants was asked for and has come.
    #[inline]
    pub(super) fn has_all(&self) -> bool {
        self.sequences == 0 && self.asked >= self.wanted && self.holes == 0
    }

    const fn new(itt: u32) -> Slot {
        Slot {
            state: State::Executing,
            kind: Kind::Scsi,
            is_named: false,
            is_queued: false,
            is_given_up: false,
            holds_window: false,
            has_sense: false,
            status: 0,
            residual_flags: 0,
            sequences: 0,
            r2ts: 0,
            unsolicited: NO_TRANSFER,
            holes: 0,
            recoveries: 0,
            next: NO_TASK,
            itt,
            expected: 0,
            wanted: 0,
            asked: 0,
            data_in_len: 0,
            sent: 0,
            data_sn: 0,
            residual_count: 0,
            stat_sn: 0,
            cut: 0,
            snack_tag: 0,
        }
    }
}

/// Slots that grow with the tasks in flight, up to a bound.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: Vec<Slot>,
    /// What the slots' tasks are, kept apart because only tasks with data from
    /// the initiator are looked at twice.
    tasks: Vec<Task>,
    /// Sense data of the answers that have some.
    sense: Vec<SenseBytes>,
    /// The last one freed is the next one taken: its memory is in the cache.
    free: Vec<Tag>,
    /// The first task of each chain. Initiators number tasks one by one, so that
    /// a chain seldom has two.
    chains: Vec<Tag>,
}

const NO_TASK_YET: Task = Task {
    lun: 0,
    cdb: [0; 16],
    attribute: TaskAttribute::Untagged,
    priority: 0,
    read: false,
    write: false,
    immediate: false,
    edtl: 0,
    itt: 0,
    cmd_sn: 0,
};

impl Tasks {
    pub(super) fn new() -> Tasks {
        Tasks {
            slots: Vec::new(),
            tasks: Vec::new(),
            sense: Vec::new(),
            free: Vec::new(),
            chains: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether one more finds a place.
    #[inline]
    pub(super) fn has_room(&self, tasks_max: usize) -> bool {
        !self.free.is_empty() || self.slots.len() < tasks_max
    }

    /// A slot for the task `itt`, and whether no other has that tag. `None`:
    /// `tasks_max` are there already.
    #[inline]
    pub(super) fn take(&mut self, itt: u32, tasks_max: usize) -> Option<(Tag, bool)> {
        let tag = match self.free.pop() {
            Some(tag) => {
                self.slots[usize::from(tag)] = Slot::new(itt);
                tag
            }
            None => self.grow(itt, tasks_max)?,
        };
        let is_unique = self.find(itt).is_none();
        let chain = self.chain(itt);
        self.slots[usize::from(tag)].next = self.chains[chain];
        self.chains[chain] = tag;
        Some((tag, is_unique))
    }

    #[cold]
    fn grow(&mut self, itt: u32, tasks_max: usize) -> Option<Tag> {
        let tag = Tag::try_from(self.slots.len())
            .ok()
            .filter(|tag| usize::from(*tag) < tasks_max && *tag != NO_TASK)?;
        if self.slots.len() == self.chains.len() {
            self.chains = vec![NO_TASK; (self.chains.len() * 2).max(16)];
            // All slots are taken, or there were one to take. Those kept come
            // last in their chains: others may have their tags.
            let is_kept = |at: &usize| self.slots[*at].state == State::Kept;
            let (kept, open): (Vec<_>, Vec<_>) = (0..self.slots.len()).partition(is_kept);
            for at in kept.into_iter().chain(open) {
                let chain = self.chain(self.slots[at].itt);
                self.slots[at].next = self.chains[chain];
                self.chains[chain] = at as Tag;
            }
        }
        self.slots.push(Slot::new(itt));
        self.tasks.push(NO_TASK_YET);
        self.sense.push(SenseBytes::EMPTY);
        Some(tag)
    }

    #[inline]
    fn chain(&self, itt: u32) -> usize {
        itt as usize & (self.chains.len() - 1)
    }

    /// The task with this Initiator Task Tag; one that is not kept if there are
    /// several.
    #[inline]
    pub(super) fn find(&self, itt: u32) -> Option<Tag> {
        if self.chains.is_empty() {
            return None;
        }
        let mut tag = self.chains[self.chain(itt)];
        while tag != NO_TASK {
            let slot = &self.slots[usize::from(tag)];
            if slot.itt == itt {
                return Some(tag);
            }
            tag = slot.next;
        }
        None
    }

    /// Tasks in flight and tasks kept.
    pub(super) fn tags(&self) -> impl Iterator<Item = Tag> {
        let is_taken = |at: &usize| self.slots[*at].state != State::Free;
        (0..self.slots.len()).filter(is_taken).map(|at| at as Tag)
    }

    /// Frees a slot and says whether the driver knew its tag.
    #[inline]
    pub(super) fn free(&mut self, tag: Tag) -> bool {
        let Slot { itt, next, .. } = self.slots[usize::from(tag)];
        let chain = self.chain(itt);
        if self.chains[chain] == tag {
            self.chains[chain] = next;
        } else {
            self.unlink(chain, tag, next);
        }
        let slot = &mut self.slots[usize::from(tag)];
        debug_assert!(slot.state != State::Free);
        slot.state = State::Free;
        self.free.push(tag);
        slot.is_named
    }

    /// The Initiator Task Tag of a task may be another's from now on.
    #[cold]
    pub(super) fn give_up_itt(&mut self, tag: Tag) {
        let Slot { itt, next, .. } = self.slots[usize::from(tag)];
        let chain = self.chain(itt);
        match self.chains[chain] == tag {
            true => self.chains[chain] = next,
            false => self.unlink(chain, tag, next),
        }
        let chain = self.chain(TAG_NONE);
        let slot = &mut self.slots[usize::from(tag)];
        (slot.itt, slot.next) = (TAG_NONE, self.chains[chain]);
        self.chains[chain] = tag;
    }

    #[cold]
    fn unlink(&mut self, chain: usize, tag: Tag, next: Tag) {
        let mut before = self.chains[chain];
        while self.slots[usize::from(before)].next != tag {
            before = self.slots[usize::from(before)].next;
        }
        self.slots[usize::from(before)].next = next;
    }

    /// What the task of `tag` is.
    #[inline]
    pub(super) fn task(&self, tag: Tag) -> &Task {
        &self.tasks[usize::from(tag)]
    }

    #[inline(always)]
    pub(super) fn set_task(&mut self, tag: Tag, task: Task) {
        self.tasks[usize::from(tag)] = task;
    }

    /// The sense data of the answer to `tag`.
    #[inline]
    pub(super) fn sense(&self, tag: Tag) -> &SenseBytes {
        &self.sense[usize::from(tag)]
    }

    #[inline]
    pub(super) fn set_sense(&mut self, tag: Tag, sense: &SenseBytes) {
        self.sense[usize::from(tag)] = *sense;
    }
}

impl Index<Tag> for Tasks {
    type Output = Slot;

    #[inline]
    fn index(&self, tag: Tag) -> &Slot {
        &self.slots[usize::from(tag)]
    }
}

impl IndexMut<Tag> for Tasks {
    #[inline]
    fn index_mut(&mut self, tag: Tag) -> &mut Slot {
        &mut self.slots[usize::from(tag)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_found_by_their_tag_in_every_order_of_coming_and_going() {
        let mut tasks = Tasks::new();
        let mut tags = Vec::new();
        for itt in 0..100u32 {
            // Ever the same low bits: all on one chain.
            let (tag, is_unique) = tasks.take(itt << 16, 100).expect("there is room");
            assert!(is_unique);
            tags.push(tag);
        }
        assert!(tasks.take(7, 100).is_none() && !tasks.has_room(100));
        for (itt, tag) in tags.iter().enumerate() {
            assert_eq!(tasks.find((itt as u32) << 16), Some(*tag));
        }
        for itt in [50, 0, 99, 49, 98] {
            assert!(!tasks.free(tags[itt]));
            assert_eq!(tasks.find((itt as u32) << 16), None);
        }
        assert_eq!((tasks.tags().count(), tasks.len()), (95, 100));
        assert_eq!(tasks.find(97 << 16), Some(tags[97]));
        let (first, is_unique) = tasks.take(5, 100).expect("there is room");
        assert!(is_unique);
        let (second, is_unique) = tasks.take(5, 100).expect("there is room");
        assert!(!is_unique);
        tasks.free(second);
        assert_eq!(tasks.find(5), Some(first));
    }

    #[test]
    fn a_task_is_found_before_kept_ones_of_the_same_tag_however_many_come() {
        let mut tasks = Tasks::new();
        let mut take = |itt| tasks.take(itt, 1000).expect("there is room").0;
        let (others, kept) = ([take(1), take(2)], take(5));
        tasks[kept].state = State::Kept;
        // An older place than the kept one's.
        tasks.free(others[1]);
        let (tag, _) = tasks.take(5, 1000).expect("there is room");
        assert_eq!(tag, others[1]);
        for itt in 100..200 {
            tasks.take(itt, 1000).expect("there is room");
            assert_eq!(tasks.find(5), Some(tag));
        }
    }
}
