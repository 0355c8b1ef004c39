//! Where the stream stands inside a PDU's data segment, on either side.

use faults::Fault;
use machine::{Direct, Step, Tag};
use wire::iscsi::{DIGEST_LEN, PAD, digest};

use crate::digest::without_pad;

/// What [`Inbound::walk`] came to.
pub(crate) enum Walk<O> {
    /// A PDU header is next.
    Header,
    /// More bytes are needed.
    More,
    /// The driver has something to do.
    Step(Step<O>),
    /// The data segment that is a task's is complete.
    Data {
        /// The task that it belongs to.
        tag: Tag,
        /// Whether its data digest matched, or there is none.
        is_intact: bool,
    },
    /// A data segment that the machine itself reads is complete.
    Text {
        /// Whether its data digest matched, or there is none.
        is_intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// Data is next, but the driver has no memory for it yet.
    Blocked,
    Data,
    /// A digest was handed out and its verdict is awaited.
    Verdict,
    /// Bytes for the machine.
    Text,
    /// `left` bytes belong to nobody.
    Skip,
}

/// The data segment of at most one PDU, walked over.
#[derive(Debug)]
pub(crate) struct Inbound {
    state: State,
    tag: Tag,
    digest: bool,
    is_intact: bool,
    /// Padding that has not come.
    pad: u8,
    /// First byte of this PDU's data in the task's data.
    start: u32,
    /// Next byte.
    offset: u32,
    left: u32,
    /// Bytes behind them that the driver does not want.
    excess: u32,
    /// Text; or excess and padding, which the digest covers.
    bytes: Vec<u8>,
}

impl Inbound {
    pub(crate) fn new() -> Inbound {
        Inbound {
            state: State::Header,
            tag: 0,
            digest: false,
            is_intact: true,
            pad: 0,
            start: 0,
            offset: 0,
            left: 0,
            excess: 0,
            bytes: Vec::new(),
        }
    }

    #[inline]
    fn set(&mut self, state: State, tag: Tag, start: u32, len: u32, digest: bool) {
        self.state = state;
        self.tag = tag;
        self.digest = digest;
        self.is_intact = true;
        self.pad = (len.wrapping_neg() % PAD as u32) as u8;
        self.start = start;
        self.offset = start;
        self.left = len;
        self.excess = 0;
    }

    /// `len` bytes of the data of `tag` follow, to byte `start`; of them, only
    /// those before byte `wanted` have memory.
    #[inline]
    pub(crate) fn begin(&mut self, tag: Tag, start: u32, len: u32, wanted: u32, digest: bool) {
        self.begin_blocked(tag, start, len, digest);
        self.unblock(tag, wanted);
    }

    /// The same, but no memory is there yet.
    #[inline]
    pub(crate) fn begin_blocked(&mut self, tag: Tag, start: u32, len: u32, digest: bool) {
        self.set(State::Blocked, tag, start, len, digest);
        if digest {
            self.bytes.clear();
        }
    }

    /// The memory for `tag` is there, up to byte `wanted`.
    #[inline]
    pub(crate) fn unblock(&mut self, tag: Tag, wanted: u32) {
        debug_assert!(self.is_blocked_on(tag));
        let useful = wanted.saturating_sub(self.start).min(self.left);
        self.excess = self.left - useful;
        self.left = useful;
        self.state = State::Data;
    }

    /// `len` bytes follow for the machine: see [`Inbound::text`].
    pub(crate) fn begin_text(&mut self, len: u32, digest: bool) {
        self.set(State::Text, 0, 0, len, digest);
        self.bytes.clear();
    }

    /// What [`Inbound::begin_text`] brought, without its padding.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[..self.offset as usize]
    }

    /// `len` bytes, their padding and their digest follow that nobody wants.
    pub(crate) fn skip(&mut self, len: u32, digest: bool) {
        self.set(State::Skip, 0, 0, len, false);
        self.left += u32::from(std::mem::take(&mut self.pad));
        self.left += if digest { DIGEST_LEN as u32 } else { 0 };
    }

    /// Nobody wants the rest of the data any more. A receive that is under way
    /// into its memory may still end.
    pub(crate) fn discard(&mut self) {
        match self.state {
            State::Blocked | State::Data => {
                let digest = if self.digest { DIGEST_LEN as u32 } else { 0 };
                self.left += self.excess + u32::from(self.pad) + digest;
                self.state = State::Skip;
            }
            // All of it was taken off the stream.
            State::Verdict => self.state = State::Header,
            State::Header | State::Text | State::Skip => {}
        }
    }

    /// Whether a header is next.
    #[inline]
    pub(crate) fn is_at_header(&self) -> bool {
        self.state == State::Header
    }

    #[inline]
    pub(crate) fn is_blocked_on(&self, tag: Tag) -> bool {
        self.state == State::Blocked && self.tag == tag
    }

    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.state == State::Blocked
    }

    /// Whether data of `tag` is arriving, or stands before its memory.
    #[inline]
    pub(crate) fn is_on(&self, tag: Tag) -> bool {
        matches!(self.state, State::Blocked | State::Data | State::Verdict) && self.tag == tag
    }

    /// The bytes of the PDU that were for memory: first and last plus one.
    #[inline]
    pub(crate) fn range(&self) -> (u32, u32) {
        (self.start, self.offset)
    }

    #[inline]
    pub(crate) fn direct(&self) -> Option<Direct> {
        (self.state == State::Data && self.left > 0).then_some(Direct {
            tag: self.tag,
            offset: self.offset,
            len: self.left,
        })
    }

    /// Bytes that come next, or behind those that have memory, and that nobody
    /// wants.
    #[inline]
    pub(crate) fn unwanted(&self) -> u32 {
        match self.state {
            State::Skip => self.left,
            State::Data => self.excess,
            State::Header | State::Blocked | State::Verdict | State::Text => 0,
        }
    }

    #[inline]
    pub(crate) fn on_direct(&mut self, len: u32) {
        if len > 0 {
            assert!(
                matches!(self.state, State::Data | State::Skip) && len <= self.left,
                "more than was planned"
            );
            self.offset += len;
            self.left -= len;
        }
    }

    pub(crate) fn on_digest(&mut self, tag: Tag, matches: bool) {
        assert!(
            self.state == State::Verdict && self.tag == tag,
            "no digest was handed out"
        );
        self.is_intact = matches;
    }

    /// Takes what `staged[*at..]` holds of the data and its digest.
    #[inline]
    pub(crate) fn walk<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        match self.state {
            State::Header => Walk::Header,
            State::Blocked => Walk::More,
            State::Data if self.left > 0 => self.place(staged, at),
            State::Data if self.excess > 0 || self.pad > 0 || self.digest => {
                self.trailer(staged, at)
            }
            State::Data | State::Verdict => self.data_done(),
            State::Text => self.take_text(staged, at),
            State::Skip => {
                let len = self.left.min(available(staged, *at));
                *at += len as usize;
                self.left -= len;
                if self.left > 0 {
                    return Walk::More;
                }
                self.state = State::Header;
                Walk::Header
            }
        }
    }

    #[inline]
    fn place<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        let len = self.left.min(available(staged, *at));
        if len == 0 {
            return Walk::More;
        }
        let step = Step::Place {
            tag: self.tag,
            offset: self.offset,
            at: *at as u32,
            len,
        };
        *at += len as usize;
        self.offset += len;
        self.left -= len;
        Walk::Step(step)
    }

    #[inline]
    fn data_done<O>(&mut self) -> Walk<O> {
        self.state = State::Header;
        Walk::Data {
            tag: self.tag,
            is_intact: self.is_intact,
        }
    }

    /// What follows the bytes that have memory.
    #[inline(never)]
    fn trailer<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        let rest = self.excess + u32::from(self.pad);
        let len = rest.min(available(staged, *at));
        if self.digest {
            self.bytes
                .extend_from_slice(&staged[*at..*at + len as usize]);
        }
        *at += len as usize;
        let of_excess = len.min(self.excess);
        self.excess -= of_excess;
        self.pad -= (len - of_excess) as u8;
        if len < rest {
            return Walk::More;
        }
        if !self.digest {
            return self.data_done();
        }
        let Some(expected) = self.take_digest(staged, at) else {
            return Walk::More;
        };
        let len = self.offset - self.start;
        if len == 0 {
            // Nothing of it has memory.
            self.is_intact = self.has_digest(expected);
            return self.data_done();
        }
        self.state = State::Verdict;
        // A driver that does not answer must not pass for one that found a match.
        self.is_intact = false;
        Walk::Step(Step::Digest {
            tag: self.tag,
            offset: self.start,
            len,
            expected: without_pad(expected, &self.bytes),
        })
    }

    #[inline(never)]
    fn take_text<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        let rest = self.left + u32::from(self.pad);
        let len = rest.min(available(staged, *at));
        self.bytes
            .extend_from_slice(&staged[*at..*at + len as usize]);
        *at += len as usize;
        let of_text = len.min(self.left);
        self.left -= of_text;
        self.offset += of_text;
        self.pad -= (len - of_text) as u8;
        if len < rest {
            return Walk::More;
        }
        if self.digest {
            let Some(expected) = self.take_digest(staged, at) else {
                return Walk::More;
            };
            self.is_intact = self.has_digest(expected);
        }
        self.state = State::Header;
        Walk::Text {
            is_intact: self.is_intact,
        }
    }

    /// Whether `expected` is the digest of what was kept here.
    fn has_digest(&self, expected: u32) -> bool {
        digest(&self.bytes) == expected || faults::is(Fault::NoTextDigests)
    }

    fn take_digest(&mut self, staged: &[u8], at: &mut usize) -> Option<u32> {
        let bytes = staged[*at..].first_chunk::<DIGEST_LEN>()?;
        *at += DIGEST_LEN;
        Some(u32::from_le_bytes(*bytes))
    }
}

#[inline]
fn available(staged: &[u8], at: usize) -> u32 {
    (staged.len() - at) as u32
}
