//! Where the stream stands inside a PDU's data segment.

use machine::{Direct, Step, Tag};
use wire::iscsi::{DIGEST_LEN, PAD, digest};

use crate::digest::without_pad;

/// What [`Inbound::walk`] came to.
pub(super) enum Walk<O> {
    /// A PDU header is next.
    Header,
    /// More bytes are needed.
    More,
    /// The driver has something to do.
    Step(Step<O>),
    /// The data of one Data-In PDU is complete.
    Data {
        /// The command that it belongs to.
        tag: Tag,
        /// Whether its data digest matched, or there is none.
        is_intact: bool,
    },
    /// A segment that the machine itself reads is complete.
    Segment {
        /// Whether its data digest matched, or there is none.
        is_intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// Data of a command.
    Data,
    /// Bytes for the machine.
    Segment,
    /// A digest was handed out and its verdict is awaited.
    Verdict,
}

/// The data segment of at most one PDU, walked over.
#[derive(Debug)]
pub(super) struct Inbound {
    state: State,
    tag: Tag,
    /// A data digest follows.
    digest: bool,
    is_intact: bool,
    /// First byte of this PDU's data in the command's data.
    start: u32,
    /// Next byte.
    offset: u32,
    left: u32,
    pad: u8,
}

impl Inbound {
    pub(super) fn new() -> Inbound {
        Inbound {
            state: State::Header,
            tag: 0,
            digest: false,
            is_intact: true,
            start: 0,
            offset: 0,
            left: 0,
            pad: 0,
        }
    }

    /// `len` bytes of the data of `tag` follow, to byte `start`; not 0.
    #[inline]
    pub(super) fn begin_data(&mut self, tag: Tag, start: u32, len: u32, digest: bool) {
        *self = Inbound {
            state: State::Data,
            tag,
            digest,
            is_intact: true,
            start,
            offset: start,
            left: len,
            pad: (len.next_multiple_of(PAD as u32) - len) as u8,
        };
    }

    /// `len` bytes follow for the machine; not 0.
    pub(super) fn begin_segment(&mut self, len: u32, digest: bool) {
        self.begin_data(0, 0, len, digest);
        self.state = State::Segment;
    }

    #[inline]
    pub(super) fn direct(&self) -> Option<Direct> {
        (self.state == State::Data && self.left > 0).then_some(Direct {
            tag: self.tag,
            offset: self.offset,
            len: self.left,
        })
    }

    #[inline]
    pub(super) fn on_direct(&mut self, len: u32) {
        if len > 0 {
            assert!(
                self.state == State::Data && len <= self.left,
                "more than was planned"
            );
            self.offset += len;
            self.left -= len;
        }
    }

    pub(super) fn on_digest(&mut self, tag: Tag, matches: bool) {
        assert!(
            self.state == State::Verdict && self.tag == tag,
            "no digest was handed out"
        );
        self.is_intact = matches;
    }

    /// Takes what `staged[*at..]` holds of the segment and what follows it;
    /// bytes for the machine are appended to `segment`.
    #[inline]
    pub(super) fn walk<O>(
        &mut self,
        staged: &[u8],
        at: &mut usize,
        segment: &mut Vec<u8>,
    ) -> Walk<O> {
        match self.state {
            State::Header => Walk::Header,
            State::Data if self.left > 0 => self.place(staged, at),
            State::Data => self.data_tail(staged, at),
            State::Verdict => self.data_done(),
            State::Segment => self.segment(staged, at, segment),
        }
    }

    #[inline]
    fn place<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        let len = self.left.min((staged.len() - *at) as u32);
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

    /// Padding and digest behind the data of a command.
    #[inline]
    fn data_tail<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        let Some((pad, expected)) = self.tail(staged, at) else {
            return Walk::More;
        };
        let Some(expected) = expected else {
            return self.data_done();
        };
        self.state = State::Verdict;
        // A driver that does not answer must not pass for one that found a match.
        self.is_intact = false;
        Walk::Step(Step::Digest {
            tag: self.tag,
            offset: self.start,
            len: self.offset - self.start,
            expected: without_pad(expected, pad),
        })
    }

    #[inline]
    fn data_done<O>(&mut self) -> Walk<O> {
        self.state = State::Header;
        Walk::Data {
            tag: self.tag,
            is_intact: self.is_intact,
        }
    }

    /// Takes the padding and the digest, once all of them is there.
    #[inline]
    fn tail<'a>(&self, staged: &'a [u8], at: &mut usize) -> Option<(&'a [u8], Option<u32>)> {
        let pad = usize::from(self.pad);
        let len = pad + if self.digest { DIGEST_LEN } else { 0 };
        let bytes = staged.get(*at..*at + len)?;
        *at += len;
        let (pad, digest) = bytes.split_at(pad);
        let digest = digest.try_into().ok().map(u32::from_le_bytes);
        Some((pad, digest))
    }

    fn segment<O>(&mut self, staged: &[u8], at: &mut usize, segment: &mut Vec<u8>) -> Walk<O> {
        let len = (self.left as usize).min(staged.len() - *at);
        segment.extend_from_slice(&staged[*at..*at + len]);
        *at += len;
        self.left -= len as u32;
        if self.left > 0 {
            return Walk::More;
        }
        let Some((pad, expected)) = self.tail(staged, at) else {
            return Walk::More;
        };
        self.state = State::Header;
        Walk::Segment {
            is_intact: expected.is_none_or(|found| digest(segment) == without_pad(found, pad)),
        }
    }
}
