//! Where the stream stands inside the payload of a PDU: the same walk for every protocol
//! and both roles.

use faults::Fault;

use crate::{Direct, Step, Tag, Tail, crc32c};

/// Bytes of a CRC32C.
const DIGEST_LEN: usize = 4;

/// What [`Inbound::walk`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk<O> {
    /// A header is next.
    Header,
    /// More bytes are needed, or memory.
    More,
    /// The driver has something to do.
    Step(Step<O>),
    /// A payload that belongs to a command is complete.
    Data {
        /// The command.
        tag: Tag,
        /// Whether its digest matched, or there is none.
        is_intact: bool,
    },
    /// A payload that the machine itself reads is complete: [`Inbound::text`].
    Text {
        /// Whether its digest matched, or there is none.
        is_intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadState {
    Header,
    /// Data is next, but the driver has no memory for it yet.
    Blocked,
    Data,
    /// All that has memory is there; what else the PDU has is next.
    Trailer,
    /// Bytes for the machine.
    Text,
    /// `left` bytes that nothing needs.
    Skip,
}

/// The payload of at most one PDU, walked over.
#[derive(Debug)]
pub struct Inbound {
    state: PayloadState,
    tag: Tag,
    /// What follows the payload and has not come.
    tail: Tail,
    /// First byte of this PDU's payload in the command's data.
    start: u32,
    /// Next byte.
    offset: u32,
    left: u32,
    /// Bytes behind them that have no memory.
    excess: u32,
    /// The CRC32C so far; `None` until the driver has given that of the payload.
    crc: Option<u32>,
    /// With its padding.
    text: Vec<u8>,
}

impl Default for Inbound {
    fn default() -> Inbound {
        Inbound {
            state: PayloadState::Header,
            tag: 0,
            tail: Tail::default(),
            start: 0,
            offset: 0,
            left: 0,
            excess: 0,
            crc: None,
            text: Vec::new(),
        }
    }
}

impl Inbound {
    #[inline]
    fn set(&mut self, state: PayloadState, tag: Tag, start: u32, len: u32, tail: Tail) {
        self.state = state;
        self.tag = tag;
        self.tail = tail;
        self.start = start;
        self.offset = start;
        self.left = len;
        self.excess = 0;
        self.crc = None;
    }

    /// `len` bytes of the data of `tag` follow, to byte `start`; of them, only those
    /// before byte `wanted` have memory.
    #[inline]
    pub fn begin(&mut self, tag: Tag, start: u32, len: u32, wanted: u32, tail: Tail) {
        self.begin_blocked(tag, start, len, tail);
        self.unblock(tag, wanted);
    }

    /// The same, but no memory is there yet.
    #[inline]
    pub fn begin_blocked(&mut self, tag: Tag, start: u32, len: u32, tail: Tail) {
        self.set(PayloadState::Blocked, tag, start, len, tail);
    }

    /// The memory for `tag` is there, up to byte `wanted`.
    #[inline]
    pub fn unblock(&mut self, tag: Tag, wanted: u32) {
        debug_assert!(self.is_blocked_on(tag));
        let useful = wanted.saturating_sub(self.start).min(self.left);
        self.excess = self.left - useful;
        self.left = useful;
        self.state = PayloadState::Data;
    }

    /// `len` bytes follow for the machine: see [`Inbound::text`].
    pub fn begin_text(&mut self, len: u32, tail: Tail) {
        self.set(PayloadState::Text, 0, 0, len, tail);
        self.text.clear();
    }

    /// What [`Inbound::begin_text`] brought, without its padding.
    pub fn text(&self) -> &[u8] {
        &self.text[..self.offset as usize]
    }

    /// `len` bytes and their tail follow that nothing needs.
    pub fn skip(&mut self, len: u32, tail: Tail) {
        self.set(PayloadState::Blocked, 0, 0, len, tail);
        self.discard();
    }

    /// Nothing needs the rest of the data any more. A receive that is under way into its
    /// memory may still end.
    pub fn discard(&mut self) {
        if matches!(
            self.state,
            PayloadState::Blocked | PayloadState::Data | PayloadState::Trailer
        ) {
            self.left += self.excess + self.tail.bytes();
            self.state = PayloadState::Skip;
        }
    }

    /// Whether a header is next.
    #[inline]
    pub fn is_at_header(&self) -> bool {
        self.state == PayloadState::Header
    }

    /// Whether data of `tag` stands before its memory.
    #[inline]
    pub fn is_blocked_on(&self, tag: Tag) -> bool {
        self.is_blocked() && self.tag == tag
    }

    /// The command whose data stands before its memory.
    #[inline]
    pub fn blocked_tag(&self) -> Option<Tag> {
        self.is_blocked().then_some(self.tag)
    }

    /// Whether data stands before its memory.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.state == PayloadState::Blocked
    }

    /// Whether data of `tag` is arriving, or stands before its memory.
    #[inline]
    pub fn is_on(&self, tag: Tag) -> bool {
        matches!(
            self.state,
            PayloadState::Blocked | PayloadState::Data | PayloadState::Trailer
        ) && self.tag == tag
    }

    /// The bytes of the PDU that were for memory: first and last plus one.
    #[inline]
    pub fn range(&self) -> (u32, u32) {
        (self.start, self.offset)
    }

    /// What a receive may put into memory.
    #[inline]
    pub fn direct(&self) -> Option<Direct> {
        (self.state == PayloadState::Data && self.left > 0).then_some(Direct {
            tag: self.tag,
            offset: self.offset,
            len: self.left,
        })
    }

    /// Bytes that come next, or behind those that have memory, and that nothing needs.
    #[inline]
    pub fn unwanted(&self) -> u32 {
        match self.state {
            PayloadState::Skip => self.left,
            PayloadState::Data | PayloadState::Trailer => self.excess,
            PayloadState::Header | PayloadState::Blocked | PayloadState::Text => 0,
        }
    }

    /// `len` bytes of what [`Inbound::direct`] said arrived.
    #[inline]
    pub fn on_direct(&mut self, len: u32) {
        if len > 0 {
            assert!(
                matches!(self.state, PayloadState::Data | PayloadState::Skip) && len <= self.left,
                "more than was planned"
            );
            self.offset += len;
            self.left -= len;
        }
    }

    /// The answer to [`Step::Digest`].
    pub fn on_digest(&mut self, tag: Tag, crc: u32) {
        assert!(
            self.state == PayloadState::Trailer && self.tag == tag,
            "no digest was asked for"
        );
        self.crc = Some(crc);
    }

    /// Takes what `staged[*at..]` holds of the payload and its tail.
    #[inline]
    pub fn walk<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        match self.state {
            PayloadState::Header => Walk::Header,
            PayloadState::Blocked => Walk::More,
            PayloadState::Data if self.left > 0 => self.place(staged, at),
            PayloadState::Data => self.end_of_data(staged, at),
            PayloadState::Trailer => self.trailer(staged, at),
            PayloadState::Text => self.take_text(staged, at),
            PayloadState::Skip => {
                let len = self.left.min(available(staged, *at));
                *at += len as usize;
                self.left -= len;
                if self.left > 0 {
                    return Walk::More;
                }
                self.state = PayloadState::Header;
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
        let is_all = self.offset == self.start && len == self.left;
        let step = Step::Place {
            tag: self.tag,
            offset: self.offset,
            at: *at as u32,
            len,
            digest: self.tail.digest.filter(|_| is_all),
        };
        *at += len as usize;
        self.offset += len;
        self.left -= len;
        Walk::Step(step)
    }

    /// All is there that has memory: the driver computes its digest.
    #[inline]
    fn end_of_data<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        self.state = PayloadState::Trailer;
        match self.tail.digest {
            Some(seed) if self.offset > self.start => Walk::Step(Step::Digest {
                tag: self.tag,
                offset: self.start,
                len: self.offset - self.start,
                seed,
            }),
            seed => {
                self.crc = seed;
                self.trailer(staged, at)
            }
        }
    }

    /// What follows the bytes that have memory.
    #[inline]
    fn trailer<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        let rest = self.excess + u32::from(self.tail.pad);
        if rest > 0 {
            let bytes = available_of(staged, at, rest);
            self.crc = self.crc.map(|crc| crc32c(bytes, crc));
            let of_excess = self.excess.min(bytes.len() as u32);
            self.excess -= of_excess;
            self.tail.pad -= (bytes.len() as u32 - of_excess) as u8;
            if (bytes.len() as u32) < rest {
                return Walk::More;
            }
        }
        let is_intact = match self.tail.digest {
            None => true,
            Some(_) => match take_digest(staged, at) {
                None => return Walk::More,
                // A driver that gives none must not pass for one that gave a match.
                Some(received) => self.crc == Some(received) || faults::is(Fault::NoDataDigests),
            },
        };
        self.state = PayloadState::Header;
        Walk::Data {
            tag: self.tag,
            is_intact,
        }
    }

    #[inline(never)]
    fn take_text<O>(&mut self, staged: &[u8], at: &mut usize) -> Walk<O> {
        let rest = self.left + u32::from(self.tail.pad);
        let bytes = available_of(staged, at, rest);
        self.text.extend_from_slice(bytes);
        let len = bytes.len() as u32;
        let of_text = len.min(self.left);
        self.left -= of_text;
        self.offset += of_text;
        self.tail.pad -= (len - of_text) as u8;
        if len < rest {
            return Walk::More;
        }
        let is_intact = match self.tail.digest {
            None => true,
            Some(seed) => match take_digest(staged, at) {
                None => return Walk::More,
                Some(received) => {
                    crc32c(&self.text, seed) == received || faults::is(Fault::NoTextDigests)
                }
            },
        };
        self.state = PayloadState::Header;
        Walk::Text { is_intact }
    }
}

#[inline]
fn available(staged: &[u8], at: usize) -> u32 {
    (staged.len() - at) as u32
}

/// Takes at most `max` bytes.
#[inline]
fn available_of<'a>(staged: &'a [u8], at: &mut usize, max: u32) -> &'a [u8] {
    let len = max.min(available(staged, *at)) as usize;
    let bytes = &staged[*at..*at + len];
    *at += len;
    bytes
}

#[inline]
fn take_digest(staged: &[u8], at: &mut usize) -> Option<u32> {
    let bytes = staged[*at..].first_chunk::<DIGEST_LEN>()?;
    *at += DIGEST_LEN;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use random::Random;

    use super::*;

    type Step = crate::Step<()>;

    /// One payload: its place in the command's data, its length, what of it has memory,
    /// what follows it, and whether its digest is right.
    struct Case {
        start: u32,
        len: u32,
        wanted: u32,
        tail: Tail,
        is_right: bool,
    }

    /// What is received in pieces that `random` chooses: the command's data, the verdict, and
    /// what was left of the stream, which has one byte more than the PDU.
    fn receive(case: &Case, payload: &[u8], random: &mut Random) -> (Vec<u8>, bool, usize) {
        let mut stream = payload.to_vec();
        stream.resize(stream.len() + usize::from(case.tail.pad), 0);
        if let Some(seed) = case.tail.digest {
            let damage = u32::from(!case.is_right) << random.below(32);
            let digest = crc32c(&stream, seed) ^ damage;
            stream.extend(digest.to_le_bytes());
        }
        stream.push(7);
        let mut memory = vec![0; case.wanted as usize];
        let mut inbound = Inbound::default();
        inbound.begin_blocked(3, case.start, case.len, case.tail);
        assert_eq!(inbound.walk::<()>(&stream, &mut 0), Walk::More);
        inbound.unblock(3, case.wanted);
        let mut sum = None;
        loop {
            if let Some(direct) = inbound.direct()
                && random.one_in(3)
            {
                let len = 1 + random.below(direct.len.into()) as usize;
                let at = direct.offset as usize;
                memory[at..at + len].copy_from_slice(&stream[..len]);
                stream.drain(..len);
                inbound.on_direct(len as u32);
            }
            let staged = &stream[..random.below(stream.len() as u64 + 1) as usize];
            let mut at = 0;
            let is_over = loop {
                match inbound.walk::<()>(staged, &mut at) {
                    Walk::More => break None,
                    Walk::Step(Step::Place {
                        tag: 3,
                        offset,
                        at,
                        len,
                        digest,
                    }) => {
                        let bytes = &staged[at as usize..(at + len) as usize];
                        memory[offset as usize..(offset + len) as usize].copy_from_slice(bytes);
                        sum = digest.map(|seed| crc32c(bytes, seed));
                    }
                    Walk::Step(Step::Digest {
                        tag: 3,
                        offset,
                        len,
                        seed,
                    }) => {
                        let crc = crc32c(&memory[offset as usize..(offset + len) as usize], seed);
                        assert!(sum.is_none_or(|sum| sum == crc), "of exactly those bytes");
                        inbound.on_digest(3, crc);
                    }
                    Walk::Data { tag: 3, is_intact } => break Some(is_intact),
                    other => panic!("{other:?}"),
                }
            };
            stream.drain(..at);
            if let Some(is_intact) = is_over {
                assert!(inbound.is_at_header());
                return (memory, is_intact, stream.len());
            }
        }
    }

    #[test]
    fn payload_in_any_pieces_arrives_whole_and_is_judged_by_its_digest() {
        for seed in 0..4000 {
            let mut random = Random::new(seed);
            let (start, len) = (random.below(9) as u32, random.below(40) as u32);
            let case = Case {
                start,
                len,
                wanted: start + random.below((len + 1).into()) as u32,
                tail: Tail {
                    pad: random.below(4) as u8,
                    digest: (!random.one_in(3)).then(|| random.below(2) as u32 * 0x1234_5678),
                },
                is_right: !random.one_in(4),
            };
            let payload: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            let (memory, is_intact, left) = receive(&case, &payload, &mut random);
            let wanted = (case.wanted - start) as usize;
            assert_eq!(memory[start as usize..], payload[..wanted], "seed {seed}");
            let is_right = case.is_right || case.tail.digest.is_none();
            assert_eq!((is_intact, left), (is_right, 1), "seed {seed}");
        }
    }

    #[test]
    fn payload_that_is_discarded_is_passed_over_with_its_tail() {
        for (taken, tail) in [(0, Tail::padded(5, true)), (3, Tail::padded(5, false))] {
            let mut inbound = Inbound::default();
            inbound.begin(1, 0, 5, 4, tail);
            let mut at = 0;
            if taken > 0 {
                let step = inbound.walk::<()>(&[9; 3], &mut at);
                assert!(matches!(step, Walk::Step(_)));
            }
            inbound.discard();
            assert!(!inbound.is_on(1));
            let staged = vec![9; (5 + tail.bytes()) as usize + 1];
            assert_eq!(inbound.walk::<()>(&staged, &mut at), Walk::Header);
            assert_eq!(at, staged.len() - 1);
        }
    }

    #[test]
    fn payload_whose_tail_is_missing_is_still_that_of_its_command() {
        let tail = Tail::padded(5, true);
        let mut inbound = Inbound::default();
        inbound.begin(1, 0, 5, 4, tail);
        let (staged, mut at) = ([9; 4], 0);
        let place = inbound.walk::<()>(&staged, &mut at);
        assert!(matches!(place, Walk::Step(Step::Place { len: 4, .. })));
        let digest = inbound.walk::<()>(&staged, &mut at);
        assert!(matches!(digest, Walk::Step(Step::Digest { len: 4, .. })));
        assert!(inbound.is_on(1) && !inbound.is_at_header());
        assert_eq!((inbound.unwanted(), inbound.direct()), (1, None));
        inbound.discard();
        assert!(!inbound.is_on(1));
        assert_eq!(inbound.unwanted(), 1 + tail.bytes());
        let rest = vec![9; 1 + tail.bytes() as usize];
        assert_eq!(inbound.walk::<()>(&rest, &mut 0), Walk::Header);
    }

    #[test]
    fn text_in_any_pieces_is_judged_by_each_bit_of_its_digest_and_its_padding() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let len = 1 + random.below(40) as u32;
            let has_digest = !random.one_in(3);
            let tail = Tail::padded(len, has_digest);
            let text: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            let mut stream = text.clone();
            stream.resize(len as usize + usize::from(tail.pad), 0);
            if let Some(seed) = tail.digest {
                stream.extend(crc32c(&stream, seed).to_le_bytes());
            }
            // Of padding and digest: the text is compared below.
            let behind = stream.len() as u64 - u64::from(len);
            let is_right = behind == 0 || random.one_in(2);
            if !is_right {
                stream[len as usize + random.below(behind) as usize] ^= 1 << random.below(8);
            }
            let mut inbound = Inbound::default();
            inbound.begin_text(len, tail);
            let is_intact = loop {
                let staged = &stream[..random.below(stream.len() as u64 + 1) as usize];
                let mut at = 0;
                let walk = inbound.walk::<()>(staged, &mut at);
                stream.drain(..at);
                match walk {
                    Walk::More => {}
                    Walk::Text { is_intact } => break is_intact,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(is_intact, is_right || !has_digest, "seed {seed}");
            assert_eq!(inbound.text(), text, "seed {seed}");
            assert!(stream.is_empty() && inbound.is_at_header(), "seed {seed}");
        }
    }

    #[test]
    fn digest_that_the_driver_does_not_tell_is_no_match() {
        let mut inbound = Inbound::default();
        inbound.begin(1, 0, 4, u32::MAX, Tail::digest(true));
        let mut staged = vec![1, 2, 3, 4];
        staged.extend(crc32c(&staged, 0).to_le_bytes());
        let mut at = 0;
        for _ in 0..2 {
            let step = inbound.walk::<()>(&staged, &mut at);
            assert!(matches!(step, Walk::Step(_)));
        }
        let is_intact = false;
        let end = inbound.walk::<()>(&staged, &mut at);
        assert_eq!(end, Walk::Data { tag: 1, is_intact });
    }
}
