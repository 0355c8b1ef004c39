//! The commands in flight on a queue.

use std::ops::{Index, IndexMut};

use machine::Tag;
use wire::nvme::Status;

use crate::command::Command;

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    Free,
    /// Its slot is taken, nothing is decided.
    Taken,
    /// The driver was asked for memory.
    Preparing,
    /// Data is coming, or is to be asked for: the transport's to say.
    Receiving,
    /// One command of a fused pair, all of it here: it waits for the other.
    Paired,
    /// The driver works on it.
    Executing,
    /// Its answer is to be sent.
    Answering,
}

/// The FUSE field of a command that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fused {
    No,
    /// The Compare, whose Write has not come.
    Alone,
    /// The Compare, whose Write is the partner.
    First,
    /// The Write, whose Compare is the partner.
    Second,
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct CommandSlot {
    pub state: SlotState,
    /// The driver knows the tag.
    pub is_named: bool,
    pub is_disconnect: bool,
    /// An Asynchronous Event Request: hosts forget those when they like.
    pub is_event_request: bool,
    /// The host has used its CID again: it is not answered.
    pub is_forgotten: bool,
    pub fused: Fused,
    /// The other of a fused pair.
    pub partner: Tag,
    pub cid: u16,
    /// What it is answered with. A failure before that: it was given up, and is
    /// answered as soon as the driver and the transport are done with it.
    pub status: Status,
    /// Bytes of data that the host's SGL takes.
    pub read_len: u32,
    /// Bytes to send before the response.
    pub data_len: u32,
    pub result: u64,
    /// What it is, once it was started.
    pub command: Command,
}

impl CommandSlot {
    /// The other of the fused pair that it is part of.
    pub(super) fn partner(&self) -> Option<Tag> {
        matches!(self.fused, Fused::First | Fused::Second).then_some(self.partner)
    }

    /// Whether it will be answered without being executed.
    #[inline]
    pub(super) fn is_given_up(&self) -> bool {
        !self.status.is_success()
    }

    /// Whether it is taken, not given up and not executed.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state;
        matches!(
            state,
            SlotState::Preparing | SlotState::Receiving | SlotState::Paired
        ) && !self.is_given_up()
    }

    const fn new(state: SlotState, cid: u16) -> CommandSlot {
        CommandSlot {
            state,
            is_named: false,
            is_disconnect: false,
            is_event_request: false,
            is_forgotten: false,
            fused: Fused::No,
            partner: 0,
            cid,
            status: Status::SUCCESS,
            read_len: 0,
            data_len: 0,
            result: 0,
            command: Command::Disconnect,
        }
    }
}

/// Slots that grow with the commands in flight, up to the queue's entries.
#[derive(Debug)]
pub(super) struct CommandSlots {
    slots: Vec<CommandSlot>,
    /// The last one freed is the next one taken: its memory is in the cache.
    free: Vec<Tag>,
    /// How many CIDs in flight fall on each bucket (their low bits). Hosts
    /// number commands by queue entry, so that buckets are all but never shared.
    cids: Vec<u16>,
}

impl CommandSlots {
    pub(super) fn new() -> CommandSlots {
        CommandSlots {
            slots: Vec::new(),
            free: Vec::new(),
            cids: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// A slot for the command `cid`, and whether no other has that CID, but for
    /// event requests, of which [`CommandSlots::event_request`] tells. `None`: `entries` are
    /// in flight already.
    #[inline]
    pub(super) fn take(&mut self, cid: u16, entries: usize) -> Option<(Tag, bool)> {
        let tag = match self.free.pop() {
            Some(tag) => {
                self.slots[usize::from(tag)] = CommandSlot::new(SlotState::Taken, cid);
                tag
            }
            None => self.grow(cid, entries)?,
        };
        let bucket = usize::from(cid) & (self.cids.len() - 1);
        self.cids[bucket] += 1;
        let unique = self.cids[bucket] == 1 || self.is_unique(tag, cid);
        Some((tag, unique))
    }

    #[cold]
    fn grow(&mut self, cid: u16, entries: usize) -> Option<Tag> {
        let tag = Tag::try_from(self.slots.len())
            .ok()
            .filter(|tag| usize::from(*tag) < entries)?;
        if self.slots.len() == self.cids.len() {
            self.cids = vec![0; (self.cids.len() * 2).max(16)];
            let mask = self.cids.len() - 1;
            for slot in self
                .slots
                .iter()
                .filter(|slot| slot.state != SlotState::Free)
            {
                self.cids[usize::from(slot.cid) & mask] += 1;
            }
        }
        self.slots.push(CommandSlot::new(SlotState::Taken, cid));
        Some(tag)
    }

    #[cold]
    fn is_unique(&self, tag: Tag, cid: u16) -> bool {
        let mut same = self.others(tag, cid);
        same.all(|other| self[other].is_event_request)
    }

    /// The event request that has the CID of the command `tag`. A host that uses it again
    /// has forgotten the request.
    #[cold]
    pub(super) fn event_request(&self, tag: Tag) -> Option<Tag> {
        let mut same = self.others(tag, self[tag].cid);
        same.find(|other| self[*other].is_event_request && !self[*other].is_forgotten)
    }

    /// Others than `tag` that have this CID.
    fn others(&self, tag: Tag, cid: u16) -> impl Iterator<Item = Tag> {
        let others = self.tags().filter(move |other| *other != tag);
        others.filter(move |other| self[*other].cid == cid)
    }

    /// The command with this CID that is not answered yet, and will be.
    #[cold]
    pub(super) fn find(&self, cid: u16) -> Option<Tag> {
        let is_over =
            |slot: &CommandSlot| matches!(slot.state, SlotState::Free | SlotState::Answering);
        let is_it = |slot: &CommandSlot| !is_over(slot) && slot.cid == cid && !slot.is_forgotten;
        self.slots.iter().position(is_it).map(|at| at as Tag)
    }

    /// Commands in flight.
    pub(super) fn tags(&self) -> impl Iterator<Item = Tag> {
        let is_taken = |at: &usize| self.slots[*at].state != SlotState::Free;
        (0..self.slots.len()).filter(is_taken).map(|at| at as Tag)
    }

    /// Frees a slot, which is as it was until it is taken again.
    #[inline]
    pub(super) fn free(&mut self, tag: Tag) -> &CommandSlot {
        let mask = self.cids.len() - 1;
        let slot = &mut self.slots[usize::from(tag)];
        slot.state = SlotState::Free;
        self.cids[usize::from(slot.cid) & mask] -= 1;
        self.free.push(tag);
        slot
    }
}

impl Index<Tag> for CommandSlots {
    type Output = CommandSlot;

    #[inline]
    fn index(&self, tag: Tag) -> &CommandSlot {
        &self.slots[usize::from(tag)]
    }
}

impl IndexMut<Tag> for CommandSlots {
    #[inline]
    fn index_mut(&mut self, tag: Tag) -> &mut CommandSlot {
        &mut self.slots[usize::from(tag)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_what_is_in_flight() {
        let mut slots = CommandSlots::new();
        let mut tags = Vec::new();
        for cid in 0..100 {
            // Ever the same low bits: all on one bucket.
            let (tag, unique) = slots.take(cid << 8, 100).expect("there is room");
            assert!(unique);
            tags.push(tag);
        }
        assert_eq!(slots.take(7, 100), None);
        assert_eq!(slots.cids.iter().sum::<u16>(), 100);
        assert!(tags.into_iter().all(|tag| !slots.free(tag).is_named));
        assert_eq!((slots.in_flight(), slots.len()), (0, 100));
        assert!(slots.cids.iter().all(|count| *count == 0));
        let (first, unique) = slots.take(5, 100).expect("there is room");
        assert!(unique && !slots.take(5, 100).expect("there is room").1);
        slots.free(first);
    }
}
