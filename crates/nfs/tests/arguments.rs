//! Calls with more arguments than have room without asking, at the bounds of that room:
//! however they are cut, and whenever room is there.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use doubles::nfs::{RpcDouble, SeenCall};
use machine::{Machine, Tag};
use nfs::connection::*;
use proptest::prelude::*;
use random::Random;
use testkit::nfs::call::{
    CompoundPart, OTHERS, call_header, call_header_of, compound, cut, record,
};

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next_u32() as u8).collect()
}

fn header_bytes() -> usize {
    call_header(0, |_| {}).len()
}

/// A call whose header and arguments have `len` bytes, as nearly as words allow, beside
/// its data.
fn call_of(random: &mut Random, xid: u32, len: usize) -> (Vec<u8>, SeenCall) {
    let mut seen = SeenCall {
        xid,
        args: Vec::new(),
        ops: (0, Stop::End),
        data: Vec::new(),
    };
    if random.one_in(3) {
        let mut call = call_header_of(xid, OTHERS[1]);
        seen.args = bytes(random, len - call.len());
        call.extend(&seen.args);
        return (call, seen);
    }
    let mut call = call_header(xid, |_| {});
    let empty = compound(&[]).1.len();
    let mut parts = Vec::new();
    let mut left = len - call.len() - empty;
    while left >= 8 {
        let part = match left {
            100.. if random.one_in(4) && seen.data.len() < 8 => {
                let len = random.below(400) as usize;
                let data = bytes(random, len);
                seen.data.push((!data.is_empty()).then(|| data.clone()));
                CompoundPart::Write(5, data)
            }
            600.. => CompoundPart::Lookup(vec![b'n'; 300 + random.below(200) as usize]),
            _ => CompoundPart::Lookup(vec![b'n'; (left & !3) - 8]),
        };
        left -= compound(std::slice::from_ref(&part)).1.len() - empty;
        parts.push(part);
    }
    let (wire, args) = compound(&parts);
    call.extend(wire);
    (seen.args, seen.ops.0) = (args, parts.len() as u32);
    if random.one_in(4) {
        // What follows the last operation means nothing and takes no room.
        let len = random.below(100) as usize;
        call.extend(bytes(random, len));
    }
    (call, seen)
}

/// A server whose memory comes late or never, and what was sent to it.
struct Late {
    server: RpcDouble,
    sent: Vec<SeenCall>,
    answered: usize,
    /// The most that a call may have beside its data.
    args_max: usize,
    /// Tags that memory was given for.
    given: Vec<Tag>,
    /// The data that memory is asked for next: of which call, and which of its data.
    data: (usize, usize),
}

impl Late {
    /// Gives or refuses what is waited for, or lets it wait. Whether arguments will never
    /// have room.
    fn feed(&mut self, random: &mut Random) -> bool {
        let arriving = self.answered + self.server.calls.len();
        if random.one_in(2) || arriving == self.sent.len() {
            return false;
        }
        let call = &mut self.sent[arriving];
        if let Some((tag, bytes)) = self.server.starved_args {
            let len = header_bytes() + call.args.len();
            assert!(
                bytes as usize >= len.min(self.args_max),
                "all of it has room"
            );
            if random.one_in(50) {
                return true;
            }
            self.given.push(tag);
            self.server.feed(true);
        } else if let Some((tag, _)) = self.server.starved {
            if self.data.0 != arriving {
                self.data = (arriving, 0);
            }
            let gives = !random.one_in(4);
            let all = call.data[self.data.1..].iter_mut();
            let (at, data) = (all.enumerate().find(|(_, data)| data.is_some())).expect("sent");
            self.data.1 += at + 1;
            match gives {
                true => self.given.push(tag),
                false => *data = None,
            }
            self.server.feed(gives);
        }
        self.server.take_ops();
        false
    }

    /// Answers a call that has come.
    fn answer(&mut self, random: &mut Random) {
        let at = random.below(self.server.calls.len() as u64) as usize;
        let (_, seen) = &self.server.calls[at];
        assert_eq!(*seen, self.sent[seen.xid as usize]);
        self.server.answer(at, &[]);
        self.answered += 1;
    }
}

impl Late {
    /// A server with bounds that servers have or, which shows the same sooner, small
    /// ones; and what it is sent: if a call is too long, that is the last.
    fn new(random: &mut Random) -> (Late, VecDeque<u8>, bool) {
        let bounds = [(4096, 12 << 10), (256, 1024), (256, 1024), (1024, 1024)];
        let (free, most) = random.pick(&bounds);
        let settings = RpcServerSettings {
            calls_max: 4,
            args_bytes_max: most,
            args_bytes_free_max: free,
            args_bytes_all_max: 2 * free,
            io_bytes_max: 4096,
            fragments_max: u32::MAX,
            ..RpcServerSettings::default()
        };
        let mut late = Late {
            server: RpcDouble::new(Connection::new(settings, 0)),
            sent: Vec::new(),
            answered: 0,
            args_max: most as usize,
            given: Vec::new(),
            data: (0, 0),
        };
        late.server.starves = true;
        let mut stream = VecDeque::new();
        let mut is_long = false;
        while !is_long && (late.sent.is_empty() || !random.one_in(5)) {
            let bound = u64::from(random.pick(&[free, most, 200]));
            let len = random.between(bound - 5, bound + 5) as usize;
            let (call, seen) = call_of(random, late.sent.len() as u32, len);
            is_long = header_bytes() + seen.args.len() > late.args_max;
            let fragment = random.pick(&[5, 300, u64::MAX / 2]);
            stream.extend(record(&call, || 1 + random.below(fragment) as usize));
            late.sent.push(seen);
        }
        (late, stream, is_long)
    }

    /// Until nothing more happens; what it answered. `None`: arguments never have room.
    fn run(&mut self, random: &mut Random, mut stream: VecDeque<u8>) -> Option<VecDeque<u8>> {
        let step = random.pick(&[5, 700, 1 << 20]);
        let mut out = VecDeque::new();
        let mut idle = 0;
        while idle < 100 {
            idle += 1;
            let is_held = self.server.starved.or(self.server.starved_args).is_some();
            if (self.server).receive(&mut stream, 1 + random.below(step) as usize) {
                assert!(!is_held, "nothing is received while memory is awaited");
                idle = 0;
            }
            if self.feed(random) {
                return None;
            }
            if !self.server.calls.is_empty() && random.one_in(3) {
                self.answer(random);
                idle = 0;
            }
            if self.server.end.machine.has_transmit() && random.one_in(2) {
                self.server.end.transmit(&mut out, 4);
                idle = 0;
            }
        }
        Some(out)
    }
}

const CASES: u32 = 200;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn calls_at_the_bounds_of_their_room_are_read_as_they_were_sent(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let (mut late, stream, is_long) = Late::new(&mut random);
        let out = late.run(&mut random, stream);
        if is_long {
            let fatal = late.server.fatal;
            prop_assert!(out.is_none() || fatal == Some(RpcServerFatalError::LongArguments));
        } else if let Some(mut out) = out {
            prop_assert_eq!(late.server.fatal, None);
            prop_assert_eq!(cut(&mut out).len(), late.sent.len());
            for tag in 0..late.server.end.machine.tags_max() as Tag {
                let count = |tags: &[Tag]| tags.iter().filter(|given| **given == tag).count();
                let (given, released) = (count(&late.given), count(&late.server.end.released));
                prop_assert!(given <= released, "memory of tag {} is kept", tag);
            }
        }
    }
}
