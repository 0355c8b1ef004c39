//! Data in pieces, through a machine that does as it is told and a driver that
//! only writes down what it is asked.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;
use machine::{Nanos, RecvPlan};
use mem::{Budget, Lender, Pool, Region};
use reactor::{AnyDriver, Choice, Completion, DriverConfig, Wait};

/// Yields steps that were put into it.
#[derive(Default)]
struct Script {
    plan: Option<RecvPlan>,
    steps: VecDeque<Step<u32>>,
    digests: Vec<(Tag, u32)>,
    direct: u32,
    /// Tag, offset, len of payload that is sent, padded and with a digest.
    sends: Vec<(Tag, u32, u32)>,
    /// A tag that is over without anything to be sent.
    over: Option<Tag>,
}

impl Machine for Script {
    type Op = u32;

    fn tags_max(&self) -> usize {
        4
    }

    fn recv_plan(&self) -> RecvPlan {
        self.plan.expect("a test that receives has a plan")
    }

    fn on_direct(&mut self, len: u32) {
        self.direct += len;
    }

    fn poll_step(&mut self, _: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<u32>> {
        *at = staged.len();
        self.steps.pop_front()
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.digests.push((tag, crc));
    }

    fn has_transmit(&self) -> bool {
        !self.sends.is_empty() || self.over.is_some()
    }

    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if let Some(tag) = self.over.take() {
            out.release(tag);
        }
        while out.has_room() && !self.sends.is_empty() {
            let (tag, offset, len) = self.sends.remove(0);
            out.header(b"head");
            // As iWARP does without CRCs: up to a multiple of 4, and 4 more.
            let pad = (len.next_multiple_of(4) - len) as u8 + 4;
            out.payload(
                tag,
                offset,
                len,
                Tail {
                    pad,
                    digest: Some(0),
                },
            );
            out.release(tag);
        }
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_deadline(&mut self, _now: Nanos) {}
}

struct Bench {
    link: Link<Script>,
    driver: AnyDriver,
    peer: TcpStream,
    region: Region,
}

const TOKENS: StreamTokens = StreamTokens {
    receive: 1,
    send: 2,
    close: 3,
};

fn bench() -> Bench {
    bench_of(&DriverConfig::default())
}

fn bench_of(config: &DriverConfig) -> Bench {
    let pool = Pool::new(Budget::new(64 << 20)).unwrap();
    let mut driver = reactor::open(Choice::Epoll, config, pool).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let socket = driver.add_socket(ours.into()).unwrap();
    Bench {
        link: Link::new(Script::default(), Stream::new(socket, TOKENS)),
        driver,
        peer,
        region: Region::anonymous(1 << 20).unwrap(),
    }
}

/// Memory that is overwritten as soon as a loan of it is over.
struct Lends(Region);

impl Lends {
    fn new() -> &'static Lends {
        Box::leak(Box::new(Lends(Region::anonymous(1 << 20).unwrap())))
    }

    fn lend(&'static self, offset: u64, bytes: &[u8]) -> CommandMemory {
        let range = self.0.range(offset, bytes.len() as u32);
        mem::copy_in(range, bytes);
        CommandMemory::loan(Loan::lent(range, self, 0))
    }

    fn is(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        mem::copy_out(self.0.range(offset, bytes.len() as u32), &mut found);
        found == bytes
    }
}

impl Lender for Lends {
    fn take_back(&self, loan: &Loan) {
        for &piece in loan.pieces() {
            mem::copy_in(piece, &vec![9; piece.len() as usize]);
        }
    }
}

impl Bench {
    /// Three pieces of 1000 bytes each, apart from each other.
    fn pieces(&self) -> Loan {
        let mut loan = Loan::of(self.region.range(5000, 1000));
        loan.push(self.region.range(100, 1000));
        loan.push(self.region.range(9000, 1000));
        loan
    }

    fn completion(&mut self) -> Completion {
        let mut done = Vec::new();
        while done.is_empty() {
            self.driver
                .poll(Wait::Until(Nanos::MAX), &mut done)
                .unwrap();
        }
        assert_eq!(done.len(), 1);
        done.remove(0)
    }

    fn received(&mut self) {
        match self.completion() {
            Completion::Received { result, .. } => {
                self.link.on_received(result.unwrap());
            }
            other => panic!("{other:?}"),
        }
    }

    /// Receives `bytes` into staging.
    fn stage(&mut self, bytes: &[u8]) {
        self.link.machine.plan = Some(RecvPlan {
            direct: None,
            stage_max: 65536,
        });
        self.peer.write_all(bytes).unwrap();
        self.link.receive(&mut self.driver);
        self.received();
    }

    fn bytes(&self, loan: &Loan) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &piece in loan.pieces() {
            let mut part = vec![0; piece.len() as usize];
            mem::copy_out(piece, &mut part);
            bytes.extend(part);
        }
        bytes
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

#[test]
fn machine_that_writes_nothing_after_all_sends_nothing_and_lets_go_of_memory() {
    for gathers in [false, true] {
        let (mut bench, lends) = (bench(), Lends::new());
        let data = lends.lend(0, &[1; 100]);
        bench.link.set_data(3, data);
        bench.link.machine.over = Some(3);
        if gathers {
            bench.link.gather(&mut bench.driver);
        }
        bench.link.flush_now(&mut bench.driver);
        assert!(!bench.link.stream.is_sending() && !bench.link.has_unsent());
        assert_eq!(bench.link.batches(), 0);
        assert!(lends.is(0, &[9; 100]), "the loan is over");
        // The next goes as ever.
        let data = lends.lend(0, &[2; 100]);
        bench.link.set_data(3, data);
        bench.link.machine.sends.push((3, 0, 100));
        bench.link.flush_now(&mut bench.driver);
        assert!(matches!(bench.completion(), Completion::Sent { .. }));
        assert_eq!(bench.link.batches(), 1);
    }
}

#[test]
fn payload_in_pieces_leaves_in_order_padded_and_with_its_digest() {
    let mut bench = bench();
    let (loan, data) = (bench.pieces(), pattern(3000));
    let mut at = 0;
    for &piece in loan.pieces() {
        mem::copy_in(piece, &data[at..at + 1000]);
        at += 1000;
    }
    bench.link.set_data(3, CommandMemory::loan(loan));
    let mut want = Vec::new();
    let parts = [(0, 3000), (500, 1), (999, 1002), (2500, 500), (7, 1999)];
    for (offset, len) in parts {
        bench.link.set_data(3, CommandMemory::loan(bench.pieces()));
        bench.link.machine.sends = vec![(3, offset, len)];
        bench.link.flush(&mut bench.driver);
        assert!(matches!(
            bench.completion(),
            Completion::Sent { result: Ok(()), .. }
        ));
        bench.link.on_sent();
        let mut part = data[offset as usize..][..len as usize].to_vec();
        part.resize(part.len().next_multiple_of(4) + 4, 0);
        want.extend(b"head");
        want.extend(&part);
        want.extend(mem::crc32c_bytes(&part, 0).to_le_bytes());
    }
    let mut found = vec![0; want.len()];
    bench.peer.read_exact(&mut found).unwrap();
    assert!(found == want);
}

#[test]
fn payload_in_pieces_is_placed_received_and_digested() {
    let mut bench = bench();
    let data = pattern(3000);
    bench.link.set_data(1, CommandMemory::loan(bench.pieces()));
    bench.stage(&data[..1500]);
    let place = Step::Place {
        tag: 1,
        offset: 0,
        at: 0,
        len: 1500,
        digest: None,
    };
    bench.link.machine.steps.extend([place, Step::Op(9)]);
    assert_eq!(bench.link.next_op(0), Some(9));
    bench.peer.write_all(&data[1500..]).unwrap();
    // Piece by piece, and nothing of the next is staged.
    for (offset, direct) in [(1500, 500), (2000, 1000)] {
        let len = 3000 - offset;
        let tag = 1;
        bench.link.machine.plan = Some(RecvPlan {
            direct: Some(Direct { tag, offset, len }),
            stage_max: 65536,
        });
        bench.link.receive(&mut bench.driver);
        bench.received();
        assert_eq!(std::mem::take(&mut bench.link.machine.direct), direct);
        assert!(bench.link.stage.is_none());
    }
    for seed in [0, 1] {
        bench.link.machine.steps.push_back(Step::Digest {
            tag: 1,
            offset: 700,
            len: 2200,
            seed,
        });
        assert_eq!(bench.link.next_op(0), None);
        let crc = mem::crc32c_bytes(&data[700..2900], seed);
        assert_eq!(bench.link.machine.digests.pop(), Some((1, crc)));
    }
    let mut taken = bench.link.take_data(1);
    let loan = taken.loan_mut().unwrap();
    assert!(bench.bytes(loan) == data);
}

#[test]
fn payload_that_is_copied_has_its_digest_computed_in_the_same_pass() {
    for digest in [Some(0), Some(7), None] {
        let mut bench = bench();
        let data = pattern(4000);
        let buf = bench.driver.pool().get(4096).unwrap();
        bench.link.set_data(1, CommandMemory::owned(buf));
        bench.stage(&data);
        let (tag, offset, at, len) = (1, 96, 100, 3000);
        let steps = &mut bench.link.machine.steps;
        steps.push_back(Step::Place {
            tag,
            offset,
            at,
            len,
            digest,
        });
        let seed = digest.unwrap_or(0);
        steps.push_back(Step::Digest {
            tag,
            offset,
            len,
            seed,
        });
        let before = mem::counters::here();
        assert_eq!(bench.link.next_op(0), None);
        let crc = mem::crc32c_bytes(&data[100..3100], seed);
        assert_eq!(bench.link.machine.digests, [(1, crc)]);
        let here = mem::counters::here();
        assert_eq!(here.copied_bytes - before.copied_bytes, 3000);
        let range = bench.link.range(1).unwrap().slice(96, 3000);
        assert_eq!(mem::crc32c(range, seed), crc);
    }
}

#[test]
fn staged_payload_stays_where_it_is_until_the_next_receive() {
    let mut bench = bench();
    let data = pattern(4000);
    bench.link.set_data(2, CommandMemory::staged());
    assert_eq!(bench.link.staged(2), None);
    assert_eq!(bench.link.range(2), None);
    bench.stage(&data);
    let offset = 0;
    let place = Step::Place {
        tag: 2,
        offset,
        at: 100,
        len: 3000,
        digest: Some(0),
    };
    let digest = Step::Digest {
        tag: 2,
        offset,
        len: 3000,
        seed: 0,
    };
    let copied = mem::counters::here().copied_bytes;
    bench.link.machine.steps.extend([place, digest]);
    assert_eq!(bench.link.next_op(0), None);
    let crc = mem::crc32c_bytes(&data[100..3100], 0);
    assert_eq!(bench.link.machine.digests, [(2, crc)]);
    assert_eq!(bench.link.staged(2), Some(&data[100..3100]));
    assert_eq!(mem::counters::here().copied_bytes, copied);
    bench.link.shrink_stage(bench.driver.pool());
    assert_eq!(bench.link.staged(2), Some(&data[100..3100]));
    bench.stage(&data);
    assert_eq!(bench.link.staged(2), None, "other bytes lie there now");
}

#[test]
fn memory_that_a_receive_writes_stays_until_it_ends() {
    for taken in [true, false] {
        let mut bench = bench();
        let buf = bench.driver.pool().get(4096).unwrap();
        let before = bench.driver.pool().lent();
        bench.link.set_data(1, CommandMemory::owned(buf));
        bench.link.machine.plan = Some(RecvPlan {
            direct: Some(Direct {
                tag: 1,
                offset: 0,
                len: 4096,
            }),
            stage_max: 0,
        });
        bench.link.receive(&mut bench.driver);
        if taken {
            assert!(bench.link.take_data(1).into_buf().is_none());
        } else {
            bench.link.set_data(1, CommandMemory::default());
        }
        assert_eq!(
            bench.driver.pool().lent(),
            before,
            "the kernel may write it"
        );
        assert_eq!(bench.link.range(1), None);
        bench.peer.write_all(&[1; 4096]).unwrap();
        bench.received();
        assert_eq!(bench.driver.pool().lent(), before - 1);
    }
}

#[test]
fn memory_of_a_send_is_released_when_it_was_sent() {
    let mut bench = bench();
    let lends = Lends::new();
    bench.link.set_data(0, lends.lend(0, &[5; 4096]));
    bench.link.machine.sends = vec![(0, 0, 4096)];
    bench.link.flush(&mut bench.driver);
    assert!(lends.is(0, &[5; 4096]), "it is lent until it has left");
    assert!(matches!(
        bench.completion(),
        Completion::Sent { result: Ok(()), .. }
    ));
    bench.link.on_sent();
    assert!(lends.is(0, &[9; 4096]), "its lender has it back");
    let mut found = vec![0; 4 + 4096];
    bench.peer.read_exact(&mut found).unwrap();
    assert!(found[4..].iter().all(|&b| b == 5));
}

/// What is gathered leaves the machine at once, and the socket with the next
/// batch, in order; its memory is held all along.
#[test]
fn sends_that_were_gathered_leave_in_order_with_those_that_follow() {
    let mut bench = bench();
    let lends = Lends::new();
    let ready = |bench: &mut Bench, tag: Tag| {
        let data = lends.lend(u64::from(tag) * 4096, &[tag as u8; 4096]);
        bench.link.set_data(tag, data);
        bench.link.machine.sends.push((tag, 0, 4096));
    };
    assert!(!bench.link.has_unsent());
    ready(&mut bench, 0);
    bench.link.gather(&mut bench.driver);
    assert!(!bench.link.machine.has_transmit() && bench.link.has_unsent());
    assert!(!bench.link.stream.is_sending() && bench.link.held().count() == 0);
    ready(&mut bench, 1);
    bench.link.flush(&mut bench.driver);
    assert!(bench.link.stream.is_sending() && !bench.link.has_unsent());
    // Meanwhile one more is.
    ready(&mut bench, 2);
    bench.link.gather(&mut bench.driver);
    bench.link.flush(&mut bench.driver);
    assert!(!bench.link.machine.has_transmit() && bench.link.has_unsent());
    for _ in 0..2 {
        assert!(matches!(
            bench.completion(),
            Completion::Sent { result: Ok(()), .. }
        ));
        bench.link.on_sent();
        bench.link.flush(&mut bench.driver);
    }
    assert!(!bench.link.stream.is_sending() && !bench.link.has_unsent());
    for tag in 0..3 {
        let mut found = vec![0; 4 + 4096 + 8];
        bench.peer.read_exact(&mut found).unwrap();
        assert_eq!(&found[..4], b"head");
        assert!(found[4..4100].iter().all(|&byte| byte == tag), "{tag}");
    }
}

/// Bytes that were copied, and batches that were sent, while two PDUs of 3,000
/// bytes each came in and went out.
fn cost_of_two_pdus(of_driver: bool, own: Option<bool>) -> (u64, u64) {
    let mut bench = bench_of(&DriverConfig {
        fast_path: of_driver,
        ..DriverConfig::default()
    });
    bench.link.set_fast_path(own);
    let data = pattern(3000);
    let copied = mem::counters::here().copied_bytes;
    for tag in [1, 2] {
        bench
            .link
            .set_data(tag, CommandMemory::loan(bench.pieces()));
        bench.peer.write_all(&data).unwrap();
        for offset in [0, 1000, 2000] {
            let len = 3000 - offset;
            bench.link.machine.plan = Some(RecvPlan {
                direct: Some(Direct { tag, offset, len }),
                stage_max: 0,
            });
            bench.link.receive(&mut bench.driver);
            bench.received();
        }
        bench.link.machine.sends.push((tag, 0, 3000));
    }
    let mut batches = 0;
    while bench.link.machine.has_transmit() {
        bench.link.flush(&mut bench.driver);
        assert!(matches!(
            bench.completion(),
            Completion::Sent { result: Ok(()), .. }
        ));
        bench.link.on_sent();
        batches += 1;
    }
    let copied = mem::counters::here().copied_bytes - copied;
    let mut found = vec![0; 2 * (4 + 3000 + 8)];
    bench.peer.read_exact(&mut found).unwrap();
    for pdu in found.chunks(4 + 3000 + 8) {
        assert!(pdu[4..3004] == data, "as it came in");
    }
    (copied, batches)
}

#[test]
fn off_the_fast_path_payload_is_copied_and_each_pdu_sent_alone() {
    let (fast, slow) = ((0, 1), (4 * 3000, 2));
    assert_eq!(cost_of_two_pdus(true, None), fast);
    assert_eq!(cost_of_two_pdus(false, None), slow);
    // What a link is told goes before what its driver does.
    assert_eq!(cost_of_two_pdus(true, Some(false)), slow);
    assert_eq!(cost_of_two_pdus(false, Some(true)), fast);
}

#[test]
fn a_command_that_ends_off_the_fast_path_is_not_written_any_more() {
    let mut bench = bench_of(&DriverConfig {
        fast_path: false,
        ..DriverConfig::default()
    });
    bench.link.set_data(1, CommandMemory::loan(bench.pieces()));
    bench.link.machine.plan = Some(RecvPlan {
        direct: Some(Direct {
            tag: 1,
            offset: 0,
            len: 3000,
        }),
        stage_max: 0,
    });
    bench.link.receive(&mut bench.driver);
    bench.link.set_data(1, CommandMemory::default());
    bench.peer.write_all(&pattern(1000)).unwrap();
    bench.received();
    let mut now = [1; 1000];
    mem::copy_out(bench.region.range(5000, 1000), &mut now);
    assert_eq!(now, [0; 1000]);
}

impl Bench {
    /// Asks for `len` bytes of the data of tag 1.
    fn receive_payload(&mut self, len: u32) {
        let (tag, offset) = (1, 0);
        self.link.machine.plan = Some(RecvPlan {
            direct: Some(Direct { tag, offset, len }),
            stage_max: 0,
        });
        self.link.receive(&mut self.driver);
    }

    /// Polls until the receive under way has ended.
    fn turn(&mut self) {
        let mut done = Vec::new();
        let mut has_received = false;
        while !has_received {
            let wait = Wait::Until(Nanos::MAX);
            self.driver.poll(wait, &mut done).unwrap();
            for completion in done.drain(..) {
                match completion {
                    Completion::Received { result, .. } => {
                        self.link.on_received(result.unwrap());
                        has_received = true;
                    }
                    Completion::Sent { .. } => self.link.on_sent(),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// One more answer is ready; the sends so far.
    fn answer(&mut self) -> u64 {
        let tag = 2 + self.link.machine.sends.len() as Tag;
        let memory = self.region.range(0, 4);
        self.link.set_data(tag, CommandMemory::lent(memory));
        self.link.machine.sends.push((tag, 0, 4));
        self.link.flush(&mut self.driver);
        self.driver.counters().sends + u64::from(self.link.stream.is_sending())
    }
}

/// A bench where tag 1 takes `len` bytes.
fn bench_that_answers(len: u32) -> Bench {
    let mut bench = bench();
    let memory = bench.region.range(0, len);
    bench.link.set_data(1, CommandMemory::lent(memory));
    bench
}

#[test]
fn answers_wait_for_payload_that_lies_in_the_socket() {
    let mut bench = bench_that_answers(1000);
    bench.peer.write_all(&[7; 3000]).unwrap();
    bench.receive_payload(1000);
    for wanted in [0, 0, 1] {
        bench.turn();
        bench.receive_payload(1000);
        assert_eq!(bench.answer(), wanted);
    }
    assert!(matches!(bench.completion(), Completion::Sent { .. }));
    let mut answers = [0; 3 * 12];
    bench.peer.read_exact(&mut answers).unwrap();
}

#[test]
fn answers_wait_for_nothing_but_payload() {
    let mut bench = bench_that_answers(1000);
    bench.peer.write_all(&[7; 3000]).unwrap();
    bench.receive_payload(1000);
    bench.turn();
    assert_eq!(bench.answer(), 1, "while nothing is received");
    bench.receive_payload(1000);
    bench.turn();
    bench.link.machine.plan = Some(RecvPlan {
        direct: None,
        stage_max: 100,
    });
    bench.link.receive(&mut bench.driver);
    assert_eq!(bench.answer(), 2, "while what comes is staged");
}

#[test]
fn answers_wait_for_no_more_payload_than_one_staged_receive_brings() {
    const LEN: u32 = 100_000;
    let mut bench = bench_that_answers(LEN);
    let mut peer = bench.peer.try_clone().unwrap();
    let writer = std::thread::spawn(move || peer.write_all(&[7; 12 * LEN as usize]));
    let (mut received, mut sends) = (0, 0);
    while received < 12 * LEN {
        bench.receive_payload(LEN.min(12 * LEN - received));
        bench.turn();
        received += std::mem::take(&mut bench.link.machine.direct);
        if received < 12 * LEN {
            bench.receive_payload(1);
            sends = bench.answer();
            bench.turn();
            received += std::mem::take(&mut bench.link.machine.direct);
        }
    }
    writer.join().unwrap().unwrap();
    assert!(sends >= 3, "{sends} batches for twelve payloads");
}

#[test]
fn digests_are_computed_as_far_as_the_share_of_a_turn_goes() {
    const SENDS: u16 = 6;
    let mut bench = bench();
    for tag in 0..SENDS {
        bench.link.machine.sends.push((tag, 0, 8 << 10));
        let range = bench.region.range(0, 8 << 10);
        bench.link.set_data(tag, CommandMemory::lent(range));
    }
    // One goes whatever it costs, which is 9 units; further ones while there are some.
    for (units_max, left) in [(1, 5), (10, 3), (19, 0)] {
        let mut units = 0;
        work::take_turn(&mut units, units_max, || {
            bench.link.flush(&mut bench.driver)
        });
        let now = bench.link.machine.sends.len();
        assert_eq!(now, left, "{units} units of {units_max}");
        assert!(matches!(bench.completion(), Completion::Sent { .. }));
        bench.link.on_sent();
    }
}

#[test]
fn a_part_of_several_buffers_lies_where_they_follow_each_other() {
    let pool = Pool::new(Budget::new(16 << 20)).unwrap();
    let bufs = [BUF_BYTES_MAX, BUF_BYTES_MAX, 4096].map(|len| pool.get(len).unwrap());
    let [first, second, last] = [0, 1, 2].map(|at: usize| bufs[at].range());
    let mut data = CommandMemory::default();
    bufs.into_iter()
        .for_each(|buf| data.push(CommandMemory::owned(buf)));
    let of = |offset, len| {
        let mut parts = Vec::new();
        data.each_part(offset, len, |part| parts.push(part));
        let first = (len > 0).then(|| data.first_part(offset, len));
        assert_eq!(parts.first(), first.as_ref());
        parts
    };
    assert_eq!(of(0, 2 * BUF_BYTES_MAX + 4096), [first, second, last]);
    let end = BUF_BYTES_MAX - 10;
    assert_eq!(of(end, 20), [first.slice(end, 10), second.slice(0, 10)]);
    assert_eq!(of(BUF_BYTES_MAX, 1), [second.slice(0, 1)]);
    assert_eq!(of(2 * BUF_BYTES_MAX + 4095, 1), [last.slice(4095, 1)]);
    assert_eq!(of(7, 0), []);
    let bytes: Vec<u8> = (0..5000u32).map(|at| (at / 7) as u8).collect();
    let mut back = vec![0; bytes.len()];
    for offset in [
        0,
        BUF_BYTES_MAX - 4999,
        BUF_BYTES_MAX - 1,
        2 * BUF_BYTES_MAX - 904,
    ] {
        data.put(offset, &bytes);
        data.get(offset, &mut back);
        assert_eq!(back, bytes);
        let mut appended = vec![7];
        data.append(offset, 5000, &mut appended);
        assert!(appended[0] == 7 && appended[1..] == bytes);
    }
    assert_eq!(data.held_bytes(), u64::from(2 * BUF_BYTES_MAX + 4096));
    assert_eq!(pool.lent(), 3);
    drop(data);
    assert_eq!(pool.lent(), 0, "all of them go back");
}
