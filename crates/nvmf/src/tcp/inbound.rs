//! Where the stream stands inside a PDU's data.

use machine::{Direct, Step, Tag};
use wire::nvme_tcp::DIGEST_LEN;

use super::u32_at;

/// What [`Inbound::walk`] came to.
pub(super) enum Walk<O> {
    /// A PDU header is next.
    Header,
    /// More bytes are needed.
    More,
    /// The driver has something to do.
    Step(Step<O>),
    /// The data of one PDU is complete.
    Done {
        /// The command that it belongs to.
        tag: Tag,
        /// Whether its data digest matched, or there is none.
        intact: bool,
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
    /// `left` bytes belong to nobody.
    Skip,
}

/// The data of at most one PDU, walked over.
#[derive(Debug)]
pub(super) struct Inbound {
    state: State,
    tag: Tag,
    digest: bool,
    intact: bool,
    /// First byte of this PDU's data in the command's data.
    start: u32,
    /// Next byte.
    offset: u32,
    left: u32,
}

impl Inbound {
    pub(super) fn new() -> Inbound {
        Inbound {
            state: State::Header,
            tag: 0,
            digest: false,
            intact: true,
            start: 0,
            offset: 0,
            left: 0,
        }
    }

    /// `len` bytes of the data of `tag` follow, to byte `start`.
    #[inline]
    pub(super) fn begin(&mut self, tag: Tag, start: u32, len: u32, digest: bool) {
        let state = State::Data;
        *self = Inbound {
            state,
            tag,
            digest,
            intact: true,
            start,
            offset: start,
            left: len,
        };
    }

    /// The same, but no memory is there yet.
    #[inline]
    pub(super) fn begin_blocked(&mut self, tag: Tag, len: u32, digest: bool) {
        self.begin(tag, 0, len, digest);
        self.state = State::Blocked;
    }

    /// `len` bytes and their digest follow that nobody wants.
    pub(super) fn skip(&mut self, len: u32, digest: bool) {
        self.begin(0, 0, len, false);
        self.state = State::Skip;
        self.left += if digest { DIGEST_LEN as u32 } else { 0 };
    }

    /// The memory for `tag` is there.
    #[inline]
    pub(super) fn unblock(&mut self, tag: Tag) {
        debug_assert!(self.is_blocked_on(tag));
        self.state = State::Data;
    }

    /// Nobody wants the data that was waiting for memory any more.
    pub(super) fn discard(&mut self) {
        self.skip(self.left, self.digest);
    }

    #[inline]
    pub(super) fn is_blocked_on(&self, tag: Tag) -> bool {
        self.state == State::Blocked && self.tag == tag
    }

    /// Whether data of `tag` is arriving, or stands before its memory.
    #[inline]
    pub(super) fn is_on(&self, tag: Tag) -> bool {
        !matches!(self.state, State::Header | State::Skip) && self.tag == tag
    }

    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        self.state == State::Blocked
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
        self.intact = matches;
    }

    /// Takes what `staged[*at..]` holds of the data and its digest.
    #[inline]
    pub(super) fn walk<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        match self.state {
            State::Header => Walk::Header,
            State::Blocked => Walk::More,
            State::Data if self.left > 0 => self.place(staged, at),
            State::Data if self.digest => self.digest(staged, at),
            State::Data | State::Verdict => {
                self.state = State::Header;
                Walk::Done {
                    tag: self.tag,
                    intact: self.intact,
                }
            }
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

    fn digest<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        if (available(staged, *at) as usize) < DIGEST_LEN {
            return Walk::More;
        }
        let expected = u32_at(staged, *at);
        *at += DIGEST_LEN;
        self.state = State::Verdict;
        // A driver that does not answer must not pass for one that found a match.
        self.intact = false;
        let len = self.offset - self.start;
        Walk::Step(Step::Digest {
            tag: self.tag,
            offset: self.start,
            len,
            expected,
        })
    }
}

#[inline]
fn available(staged: &[u8], at: usize) -> u32 {
    (staged.len() - at) as u32
}
