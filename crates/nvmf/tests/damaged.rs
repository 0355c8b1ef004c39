//! A bit that is flipped on its way, at each place of each PDU, towards either machine:
//! where a digest guards it, it is found before anything is done by it (NVMe/TCP 1.0,
//! sections 3.3.1.1 and 3.3.1.2), and where none does, it is padding.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use doubles::nvme::ControllerDouble;
use nvmf::command::{AnaState, Geometry};
use nvmf::host::{Completion, Data, HostRole};
use nvmf::queue::{InBandAuthentication, Role};
use nvmf::tcp::{controller, host};
use testkit::End;
use wire::nvme::{ConnectCommand, Sqe, Status, io};
use wire::nvme_tcp::pdu_type;

const BLOCK: usize = 512;
const BLOCKS: usize = 32;
/// ICReq and ICResp, which no digest guards.
const IC_BYTES: usize = 128;

/// What guards a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Padding,
    Data,
}

/// One way of the connection.
#[derive(Default)]
struct Way {
    under_way: VecDeque<u8>,
    passed: Vec<u8>,
    /// Bit of a byte that is flipped.
    flip: Option<(usize, u8)>,
}

impl Way {
    /// What has come in since the last call arrives.
    fn arrive(&mut self) -> VecDeque<u8> {
        let at = self.passed.len();
        self.passed.extend(self.under_way.drain(..));
        if let Some((byte, bit)) = self.flip
            && (at..self.passed.len()).contains(&byte)
        {
            self.passed[byte] ^= 1 << bit;
        }
        self.passed[at..].iter().copied().collect()
    }

    /// The parts of the PDUs that came, with both digests.
    fn parts(&self) -> Vec<(Range<usize>, Part)> {
        let mut parts = Vec::new();
        let mut at = IC_BYTES;
        while at < self.passed.len() {
            let pdu = &self.passed[at..];
            let plen = u32::from_le_bytes(pdu[4..8].try_into().unwrap()) as usize;
            let header = usize::from(pdu[2]) + 4;
            let data = match usize::from(pdu[3]) {
                0 => plen,
                pdo => pdo,
            };
            parts.push((at..at + header, Part::Header));
            parts.push((at + header..at + data, Part::Padding));
            parts.push((at + data..at + plen, Part::Data));
            at += plen;
        }
        parts
    }
}

struct Pair {
    host: End<host::Qpair>,
    target: ControllerDouble,
    to_target: Way,
    to_host: Way,
    is_ready: bool,
    ended: Option<Completion>,
    fatal: bool,
}

/// What a command does to the media, or brings from it.
struct Asked {
    sqe: Sqe,
    data: Data,
    memory: Vec<u8>,
}

/// One after the other: Connect; a write in its capsule; one whose data comes in two pieces;
/// a comparison; a read; a flush.
fn commands() -> Vec<Asked> {
    let io = |opcode, slba, blocks: usize, fill: Option<u8>| {
        let mut sqe = Sqe::new(opcode);
        sqe.nsid = 1.into();
        sqe.set_blocks(slba, blocks as u32);
        let len = (blocks * BLOCK) as u32;
        Asked {
            sqe,
            data: fill.map_or(Data::In(len), |_| Data::Out(len)),
            memory: vec![fill.unwrap_or(0x55); len as usize],
        }
    };
    let connect = ConnectCommand {
        recfmt: 0,
        qid: 1,
        sqsize: 7,
        cattr: 4,
        kato_ms: 0,
    };
    let mut flush = Sqe::new(io::FLUSH);
    flush.nsid = 1.into();
    vec![
        Asked {
            sqe: connect.encode(),
            data: Data::Out(1024),
            memory: vec![9; 1024],
        },
        io(io::WRITE, 0, 1, Some(0xa5)),
        io(io::WRITE, 4, 10, Some(0x3c)),
        io(io::COMPARE, 0, 1, Some(0xa5)),
        io(io::READ, 0, 16, None),
        Asked {
            sqe: flush,
            data: Data::None,
            memory: Vec::new(),
        },
    ]
}

/// The media as the first `count` of the commands leave it.
fn media_after(count: usize) -> Vec<u8> {
    let mut media = vec![0x11; BLOCKS * BLOCK];
    if count > 1 {
        media[..BLOCK].fill(0xa5);
    }
    if count > 2 {
        media[4 * BLOCK..14 * BLOCK].fill(0x3c);
    }
    media
}

impl Pair {
    fn new() -> Pair {
        let wanted = host::Settings {
            header_digest: true,
            data_digest: true,
            hpda: 7,
            maxr2t: 0,
            part_in_capsule: false,
        };
        let settings = controller::Settings {
            in_capsule_max: 512,
            maxh2cdata: 4096,
            cpda: 7,
            ..controller::Settings::default()
        };
        let geometry = Geometry {
            nsid: 1,
            block_shift: 9,
            read_only: false,
            ana: AnaState::Optimized,
            instance: 0,
            block_count: BLOCKS as u64,
        };
        let role = Role {
            qid: 1,
            entries: 8,
            flow_control_disabled: true,
            namespaces: Arc::new([geometry]),
            authentication: InBandAuthentication::None,
        };
        Pair {
            host: End::new(host::Qpair::new(wanted)),
            target: ControllerDouble::new(
                controller::Qpair::new(settings, 0),
                role,
                media_after(0),
            ),
            to_target: Way::default(),
            to_host: Way::default(),
            is_ready: false,
            ended: None,
            fatal: false,
        }
    }

    /// Until nothing more comes.
    fn pump(&mut self) {
        loop {
            self.host
                .transmit(&mut self.to_target.under_way, usize::MAX);
            let sent = self.to_target.under_way.len();
            let mut arrived = self.to_target.arrive();
            let out = &mut self.to_host.under_way;
            self.target.serve(&mut arrived, out);
            let answered = self.to_host.under_way.len();
            self.host.receive(&mut self.to_host.arrive(), usize::MAX);
            while let Some(op) = self.host.next_op() {
                match op {
                    host::Op::Ready => self.is_ready = true,
                    host::Op::Completed { cqe, .. } => {
                        assert!(self.ended.replace(cqe).is_none(), "answered once");
                    }
                    host::Op::Fatal(_) => self.fatal = true,
                }
            }
            if sent + answered == 0 {
                return;
            }
        }
    }

    /// How a command ended, if it did.
    fn run(&mut self, number: usize, asked: Asked) -> Option<Status> {
        let Asked { sqe, data, memory } = asked;
        let tag = self.host.machine.submit(&sqe, data).expect("an entry");
        self.host.set_memory(tag, memory);
        self.pump();
        let status = self.ended.take()?.status;
        if status == Status::SUCCESS {
            match number {
                0 => self.host.machine.attach(HostRole {
                    entries: 8,
                    in_capsule_max: 512,
                    flow_control_disabled: true,
                }),
                4 => {
                    let read = &self.host.memory[usize::from(tag)];
                    assert!(*read == self.target.media[..16 * BLOCK], "what was read");
                }
                _ => {}
            }
        }
        Some(status)
    }

    /// Runs all commands up to the one that has no answer: how each ended.
    fn play(&mut self) -> Vec<Status> {
        self.pump();
        assert!(self.is_ready);
        let mut statuses = Vec::new();
        for (number, asked) in commands().into_iter().enumerate() {
            match self.run(number, asked) {
                Some(status) => statuses.push(status),
                None => break,
            }
            if number == 0 && statuses[0] != Status::SUCCESS {
                break;
            }
        }
        statuses
    }
}

/// A flip of what is data costs its command alone: that had no effect, and succeeds when
/// it comes again.
fn data_is_damaged(pair: &mut Pair, statuses: &[Status], to_target: bool, what: &str) {
    let lost = Status::TRANSIENT_TRANSPORT.code();
    let failed: Vec<_> = (0..statuses.len())
        .filter(|n| statuses[*n].code() == lost)
        .collect();
    assert_eq!(failed.len(), 1, "{what}: {statuses:?}");
    let failed = failed[0];
    assert!(!pair.fatal && pair.target.fatal.is_none(), "{what}");
    if failed == 0 {
        assert_eq!(statuses.len(), 1, "{what}");
        return;
    }
    // The comparison is with what the write before it should have left.
    let follows = |n: usize| to_target && failed == 1 && n == 3;
    let others = (0..statuses.len()).filter(|n| *n != failed && !follows(*n));
    for other in others {
        assert_eq!(statuses[other], Status::SUCCESS, "{what}: {other}");
    }
    let again = commands().swap_remove(failed);
    assert_eq!(pair.run(failed, again), Some(Status::SUCCESS), "{what}");
    assert!(pair.target.media == media_after(6), "{what}");
}

/// A flip in a header ends the connection, and nothing comes of the command.
fn header_is_damaged(pair: &Pair, statuses: &[Status], to_target: bool, what: &str) {
    assert!(statuses.iter().all(|s| *s == Status::SUCCESS), "{what}");
    let (done, all) = (statuses.len(), commands().len());
    assert!(done < all, "{what}: {done} of {all}");
    if to_target {
        assert!(pair.target.fatal.is_some(), "{what}");
        assert!(pair.target.media == media_after(done), "{what}");
    } else {
        assert!(pair.fatal, "{what}");
        let media = &pair.target.media;
        let may_be = [done, done + 1].map(media_after);
        assert!(may_be.contains(media), "{what}");
    }
}

#[test]
fn a_flipped_bit_is_found_before_anything_is_done_by_it() {
    let mut whole = Pair::new();
    assert_eq!(whole.play(), [Status::SUCCESS; 6]);
    let to_target = whole.to_target.parts();
    let to_host = whole.to_host.parts();
    let pieces = |parts: &[(Range<usize>, Part)], part| {
        let of_part = parts
            .iter()
            .filter(|(range, own)| *own == part && !range.is_empty());
        of_part.count()
    };
    // Six capsules and two H2CData.
    assert_eq!(pieces(&to_target, Part::Header), 8);
    assert_eq!(pieces(&to_target, Part::Data), 5);
    assert_eq!(pieces(&to_host, Part::Data), 1);
    let types = |way: &Way, parts: &[(Range<usize>, Part)], kind| {
        let headers = parts.iter().filter(|(_, part)| *part == Part::Header);
        headers
            .filter(|(at, _)| way.passed[at.start] == kind)
            .count()
    };
    assert_eq!(types(&whole.to_target, &to_target, pdu_type::H2C_DATA), 2);
    assert_eq!(types(&whole.to_host, &to_host, pdu_type::R2T), 1);
    for (is_to_target, parts) in [(true, to_target), (false, to_host)] {
        for (range, part) in parts {
            for byte in range {
                // Of a header each bit, of the rest one of each byte.
                let bits = match part {
                    Part::Header => 0..8,
                    _ => byte as u8 % 8..byte as u8 % 8 + 1,
                };
                for bit in bits {
                    let what = format!("{part:?} byte {byte} bit {bit} {is_to_target}");
                    let mut pair = Pair::new();
                    let way = match is_to_target {
                        true => &mut pair.to_target,
                        false => &mut pair.to_host,
                    };
                    way.flip = Some((byte, bit));
                    let statuses = pair.play();
                    match part {
                        Part::Header => header_is_damaged(&pair, &statuses, is_to_target, &what),
                        Part::Data => data_is_damaged(&mut pair, &statuses, is_to_target, &what),
                        Part::Padding => assert_eq!(statuses, [Status::SUCCESS; 6], "{what}"),
                    }
                }
            }
        }
    }
}
