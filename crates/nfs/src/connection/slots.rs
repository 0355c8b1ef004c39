//! The table of what is in flight on one connection.

use std::ops::{Index, IndexMut};

use machine::Tag;

use super::chunks::CallChunks;
use super::credential::Credential;
use super::gss::GssCall;
use super::reply::Reply;
use super::scan::HandleUse;
use super::{Procedure, RpcServerSettings, Stop};

/// Capacity that a buffer keeps when its call is over.
const KEEP_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CallState {
    #[default]
    Free,
    /// Its record is arriving.
    Gathering,
    /// The driver has it.
    Executing,
    /// Its record goes out.
    Sending,
    /// Memory of another call, with this tag.
    Extra,
}

/// One record: a call with the answer to it, or a callback, or the answer
/// to that.
#[derive(Debug, Default)]
pub(super) struct RecordSlot {
    pub state: CallState,
    pub xid: u32,
    /// It answers a callback.
    pub is_answer: bool,
    /// Without marks.
    pub record_bytes: u32,
    pub procedure: Procedure,
    pub credential: Credential,
    /// It came by RPCSEC_GSS.
    pub gss: Option<GssCall>,
    /// The record without its marks and payloads.
    pub args: Vec<u8>,
    /// Bytes that those may have.
    pub args_max: u32,
    /// Where the arguments of the procedure begin.
    pub args_at: u32,
    /// Operations of a COMPOUND that are all there.
    pub ops: u32,
    /// Why there are no more.
    pub stop: Stop,
    /// The current file handle where the scan stands, if it is known: where
    /// it lies, and its length.
    pub handle: Option<(u32, u32)>,
    /// The memory of each payload that came; `None` where it was not taken.
    pub payloads: Vec<Option<Tag>>,
    /// The tag of the call itself names memory.
    pub own_is_used: bool,
    /// Further tags of the call.
    pub extras: Vec<Tag>,
    /// What of it is in memory of the client, where it came by RDMA.
    pub chunks: CallChunks,
    pub reply: Reply,
}

impl RecordSlot {
    /// One more operation is all here; it begins at `at`.
    #[inline]
    pub(super) fn took(&mut self, at: usize, handle: HandleUse) {
        match handle {
            HandleUse::Keeps => {}
            HandleUse::Put { at: within, len } => self.handle = Some((at as u32 + within, len)),
            HandleUse::Changes => self.handle = None,
        }
        self.ops += 1;
    }

    /// What its arguments take of [`RpcServerSettings::args_bytes_all_max`].
    #[inline]
    pub(super) fn free_args_bytes(&self, settings: &RpcServerSettings) -> u32 {
        match self.args_max > settings.args_bytes_free() {
            true => 0,
            false => self.args.len() as u32,
        }
    }

    /// For another record; buffers of a common size are kept.
    fn reset(&mut self) {
        trim(&mut self.args);
        self.reply.reset(KEEP_BYTES);
        self.payloads.clear();
        self.extras.clear();
        self.chunks.reset(trim);
        self.is_answer = false;
        self.gss = None;
        self.args_at = 0;
        self.ops = 0;
        self.stop = Stop::End;
        self.handle = None;
        self.own_is_used = false;
    }
}

/// Empties a buffer; one of a common size keeps its memory.
#[inline]
pub(super) fn trim(bytes: &mut Vec<u8>) {
    if bytes.capacity() > KEEP_BYTES {
        *bytes = Vec::new();
    }
    bytes.clear();
}

/// Slots by tag; those that are free are used again, the last one first.
#[derive(Debug, Default)]
pub(super) struct RecordSlots {
    slots: Vec<RecordSlot>,
    free: Vec<Tag>,
    slots_max: usize,
}

impl RecordSlots {
    pub(super) fn new(slots_max: usize) -> RecordSlots {
        assert!(slots_max <= usize::from(Tag::MAX));
        RecordSlots {
            slots_max,
            ..RecordSlots::default()
        }
    }

    /// Slots that there were at one time.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.slots_max
    }

    #[inline]
    pub(super) fn take(&mut self, state: CallState) -> Option<Tag> {
        let tag = match self.free.pop() {
            Some(tag) => tag,
            None if self.slots.len() < self.slots_max => {
                self.slots.push(RecordSlot::default());
                (self.slots.len() - 1) as Tag
            }
            None => return None,
        };
        self[tag].state = state;
        Some(tag)
    }

    #[inline]
    pub(super) fn free(&mut self, tag: Tag) {
        debug_assert!(self[tag].state != CallState::Free);
        self[tag].reset();
        self[tag].state = CallState::Free;
        self.free.push(tag);
    }
}

impl Index<Tag> for RecordSlots {
    type Output = RecordSlot;

    #[inline]
    fn index(&self, tag: Tag) -> &RecordSlot {
        &self.slots[usize::from(tag)]
    }
}

impl IndexMut<Tag> for RecordSlots {
    #[inline]
    fn index_mut(&mut self, tag: Tag) -> &mut RecordSlot {
        &mut self.slots[usize::from(tag)]
    }
}
