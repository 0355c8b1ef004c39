//! Bad input: malformed PDUs and commands, from seeds and from the fuzzers'
//! corpus, against a target that serves another host meanwhile. That host must
//! not notice, and memory must stay under its ceiling.
//!
//! Over RDMA it is capsules with bad commands, and FPDUs that no host may send.
//!
//! `WEFT_HOSTILE=1000000 cargo test --release -p server --test nvme hostile -- --nocapture`
//! runs a million; a plain test a part of that.

mod rdma;

use needs::each_driver;
use random::Random;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use doubles::fuzz::host_stream;
use nvmf::transport::Transports;
use reactor::Choice;
use server::{Limits, NamespaceSpec, Running, SubsystemSpec};
use testkit::nvme::Pdus;
use wire::nvme::{NSID_ALL, Sgl, Sqe, Status};
use wire::nvme_tcp::{CommonHeader, flags, pdu_type};
use zerocopy::FromBytes;

use crate::common::{BLOCK, Host, NQN, Queue, config, ram, stop};

const EVIL: &str = "nqn.2026-01.io.weft:attacked";
/// Ceiling of the target's buffers.
const MEMORY_MAX: u64 = 48 << 20;
/// Bad PDUs and commands on a driver, unless `WEFT_HOSTILE` says otherwise.
const USUAL: u64 = 100_000;
/// The other host must get on in each part of so many.
const PARTS: u64 = 20;
/// Commands that an attacker leaves unanswered at most: the queue has 32 entries.
const UNANSWERED_MAX: u64 = 28;

/// What all threads see.
struct Field {
    address: SocketAddr,
    /// Bad PDUs and commands that the target has answered, and how many are wanted.
    handled: AtomicU64,
    wanted: u64,
    /// I/Os that the other host has completed.
    served: AtomicU64,
    is_over: AtomicBool,
    /// Most bytes of buffers seen.
    pool_most: AtomicU64,
    corpus: Vec<Vec<u8>>,
    /// Longest time between two completions of the other host.
    pause: Mutex<Duration>,
    /// Longest time that a thread which wanted one of the reactors' processors
    /// did not get it: what the machine adds to a pause.
    machine: Mutex<Duration>,
}

impl Field {
    fn note_handled(&self, count: u64) -> u64 {
        self.handled.fetch_add(count, Ordering::Relaxed) + count
    }
}

fn serve(backend: Choice, transports: Transports) -> Running {
    let mut config = config(backend, Limits::default(), MEMORY_MAX);
    config.listeners[0].rdma.transports = transports;
    config.cpus = reactor::available_cpus().into_iter().take(2).collect();
    config.volumes.push(ram("attacked", 64));
    config.volumes.push(ram("protected", 64));
    let namespace = |nsid, volume: &str| NamespaceSpec {
        nsid,
        volume: volume.into(),
        ..NamespaceSpec::default()
    };
    config.subsystems.push(SubsystemSpec {
        nqn: EVIL.into(),
        serial: "2".into(),
        model: "weft".into(),
        namespaces: vec![namespace(1, "attacked"), namespace(2, "protected")],
        ..SubsystemSpec::default()
    });
    server::start(config).expect("starts")
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = std::fs::read_dir(folder.join("nvme_tcp_controller")).expect("the corpus");
    let mut files: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    files.sort();
    let read = |path| std::fs::read(path).expect("an input");
    files.into_iter().map(read).collect()
}

/// The other host: writes and reads back, one command at a time.
fn use_it(field: &Field) {
    let host = Host {
        subnqn: NQN,
        kato_ms: 0,
        ..Host::at(field.address)
    };
    let (_admin, mut queue) = host.pair();
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    let mut completed = || {
        field.served.fetch_add(1, Ordering::Relaxed);
        longest = longest.max(last.elapsed());
        last = Instant::now();
    };
    let mut n = 0u64;
    while !field.is_over.load(Ordering::Relaxed) {
        let (lba, byte) = (n % 4096, (n / 7) as u8);
        assert_eq!(queue.write(1, lba, byte), Status::SUCCESS, "write {n}");
        completed();
        let block = queue.read(1, lba).expect("the other host reads");
        completed();
        assert!(block.iter().all(|got| *got == byte), "read {n}");
        n += 1;
    }
    let mut pause = field.pause.lock().expect("no panic");
    *pause = longest.max(*pause);
}

/// Sleeps on `cpu` again and again, to see how much too long.
fn oversleep(field: &Field, cpu: usize) {
    const NAP: Duration = Duration::from_millis(1);
    let mut longest = Duration::ZERO;
    reactor::pin_to_cpu(cpu).expect("a processor of ours");
    while !field.is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        std::thread::sleep(NAP);
        longest = longest.max(start.elapsed().saturating_sub(NAP));
    }
    let mut machine = field.machine.lock().expect("no panic");
    *machine = longest.max(*machine);
}

/// An attacker's connection and what it still has to read.
struct Attack {
    stream: TcpStream,
    answers: Vec<u8>,
    unanswered: u64,
    answer: Answer,
}

/// Bytes of what the answers begin with, and whether it is the answer to something sent;
/// `None`: not all of it is there.
type Answer = fn(&[u8]) -> Option<(usize, bool)>;

/// A PDU of NVMe/TCP: one answer to each command, one for what ends the connection.
fn pdu(answers: &[u8]) -> Option<(usize, bool)> {
    let (ch, _) = CommonHeader::ref_from_prefix(answers).ok()?;
    let ends = matches!(ch.pdu_type, pdu_type::CAPSULE_RESP | pdu_type::C2H_TERM_REQ);
    let is_last = ch.pdu_type == pdu_type::C2H_DATA && ch.flags & flags::SUCCESS != 0;
    let plen = ch.plen.get() as usize;
    (answers.len() >= plen).then_some((plen, ends || is_last))
}

impl Attack {
    fn new(stream: TcpStream, answer: Answer) -> Attack {
        let patience = Some(Duration::from_millis(20));
        stream.set_read_timeout(patience).expect("settable");
        Attack {
            stream,
            answers: Vec::new(),
            unanswered: 0,
            answer,
        }
    }

    /// Takes what has come, waits a little if nothing has. `None`: it is over.
    fn take_answers(&mut self) -> Option<u64> {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(len) => self.answers.extend_from_slice(&bytes[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Some(0);
            }
            Err(_) => return None,
        }
        let (mut count, mut at) = (0, 0);
        while let Some((len, is_answer)) = (self.answer)(&self.answers[at..]) {
            count += u64::from(is_answer);
            at += len;
        }
        self.answers.drain(..at);
        self.unanswered = self.unanswered.saturating_sub(count);
        Some(count)
    }
}

/// A command with some of everything wrong, and the data in its capsule.
fn bad_command(random: &mut Random, cid: u16) -> (Sqe, Vec<u8>) {
    const OPCODES: [u8; 24] = [
        0, 1, 2, 4, 5, 8, 9, 0xc, 0xd, 0xe, 0x11, 0x15, 0x19, 0x7f, 0x0a, 0x06, 0x18, 0x86, 1, 2,
        1, 5, 1, 0x19,
    ];
    let opcode = match random.one_in(8) {
        true => random.below(256) as u8,
        false => OPCODES[random.below(24) as usize],
    };
    let mut sqe = Sqe::new(opcode);
    sqe.cid = (if random.one_in(50) {
        cid.wrapping_sub(1)
    } else {
        cid
    })
    .into();
    sqe.flags =
        random.pick::<u32>(&[0x40, 0x40, 0x40, 0x40, 0x41, 0x42, 0x43, 0, 0x80, 0xff]) as u8;
    sqe.nsid = random
        .pick::<u32>(&[1, 1, 1, 2, 0, 3, NSID_ALL, 0x8000_0000])
        .into();
    let blocks = random.pick::<u32>(&[1, 1, 2, 8, 64, 65, 65_536]);
    let slba = random.pick::<u32>(&[0, 0, 3, 63, 64, u32::MAX]);
    sqe.set_blocks(u64::from(slba), blocks);
    if random.one_in(3) {
        sqe.cdw10 = random.next_u32().into();
        sqe.cdw11 = random.pick::<u32>(&[0, 4, 1 << 31, u32::MAX]).into();
        sqe.cdw12 = ((random.below(8) << 8 | random.below(4)) as u32
            | random.pick::<u32>(&[0, 1 << 30, 0xf << 20]))
        .into();
    }
    let in_capsule = random.pick::<u32>(&[0, 0, 512, 4096, 64, 16, 8192]) as usize;
    let id = random.pick::<u32>(&[0x01, 0x01, 0x5a, 0x5a, 0x40, 0x5b, 0x20, 0xff]) as u8;
    let right = blocks.saturating_mul(BLOCK as u32);
    let len = random.pick::<u32>(&[in_capsule as u32, in_capsule as u32, right, 0, 1, u32::MAX]);
    sqe.sgl = Sgl::new(id, len);
    if random.one_in(16) {
        sqe.sgl.address = random.next_u64().into();
    }
    let data = (0..in_capsule).map(|n| (n as u32 ^ len) as u8).collect();
    (sqe, data)
}

fn bad_capsule(random: &mut Random, cid: u16) -> Vec<u8> {
    let (sqe, data) = bad_command(random, cid);
    Pdus::default().capsule_cmd(&sqe, &data)
}

/// A PDU that no host may send.
fn bad_pdu(random: &mut Random, cid: u16) -> Vec<u8> {
    let pdus = Pdus::default();
    let mut bytes = match random.below(5) {
        0 => pdus.data(
            pdu_type::H2C_DATA,
            4,
            (cid, random.below(40) as u16),
            0,
            &[7; 64],
        ),
        1 => pdus.ic_req(random.below(256) as u8),
        2 => pdus.r2t(cid, 0, 0, 512),
        _ => bad_capsule(random, cid),
    };
    if random.one_in(2) {
        let at = random.below(bytes.len().min(24) as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    bytes
}

/// Bad commands and PDUs of a seed, on a queue of a controller, until one of
/// them ends it.
fn attack_by_seed(field: &Field, random: &mut Random) {
    let host = Host {
        subnqn: EVIL,
        ..Host::at(field.address)
    };
    let Ok((admin, cntlid)) = std::panic::catch_unwind(|| host.admin()) else {
        return;
    };
    let (queue, _admin) = if random.one_in(4) {
        (admin, None)
    } else {
        let Ok((queue, _)) = host.queue(1, cntlid) else {
            return;
        };
        (queue, Some(admin))
    };
    let attack = Attack::new(queue.stream, pdu);
    let pdu = |random: &mut Random, cid| match random.one_in(600) {
        true => bad_pdu(random, cid),
        false => bad_capsule(random, cid),
    };
    attack.run(field, random, pdu);
}

impl Attack {
    /// Sends what `next` makes of the next CID, until something of it ends the connection.
    fn run(
        mut self,
        field: &Field,
        random: &mut Random,
        mut next: impl FnMut(&mut Random, u16) -> Vec<u8>,
    ) {
        let attack = &mut self;
        let mut cid = 100u16;
        for _ in 0..64 {
            let mut burst = Vec::new();
            while attack.unanswered < UNANSWERED_MAX && burst.len() < 64 * 1024 {
                cid = 100 + (cid - 99) % 0x4000;
                burst.extend(next(random, cid));
                attack.unanswered += 1;
            }
            if attack.stream.write_all(&burst).is_err() {
                return;
            }
            loop {
                match attack.take_answers() {
                    None => return,
                    Some(0) => break,
                    Some(count) => {
                        if field.note_handled(count) >= field.wanted {
                            return;
                        }
                        if attack.unanswered < UNANSWERED_MAX / 2 {
                            break;
                        }
                    }
                }
            }
            if attack.unanswered >= UNANSWERED_MAX {
                // It waits for data that is not sent: it goes, and leaves all that.
                return;
            }
        }
    }
}

/// One input of the corpus, as a host that has connected or not.
fn attack_by_corpus(field: &Field, random: &mut Random) {
    let input = &field.corpus[random.below(field.corpus.len() as u64) as usize];
    let Some((connects, pdus, stream)) = host_stream(input) else {
        return;
    };
    let queue = match connects && pdus == Pdus::default() {
        true => {
            let host = Host {
                subnqn: EVIL,
                ..Host::at(field.address)
            };
            host.queue(0, 0xffff).map(|(queue, _)| queue)
        }
        false => Ok(Queue::open(field.address)),
    };
    let Ok(queue) = queue else { return };
    let mut attack = Attack::new(queue.stream, pdu);
    if attack.stream.write_all(&stream).is_err() {
        return;
    }
    let _ = attack.stream.shutdown(Shutdown::Write);
    while let Some(count) = attack.take_answers() {
        field.note_handled(count);
    }
}

/// Resident memory of this process, target and attackers together, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .expect("resident")
        .parse()
        .expect("a number");
    pages * 4096
}

/// Sees, for each part of the bad input, that the other host got on and that
/// memory is under its ceiling.
fn watch(field: &Field, running: &Running) {
    let before = resident();
    let mut served = 0;
    for part in 1..=PARTS {
        while field.handled.load(Ordering::Relaxed) < field.wanted * part / PARTS {
            std::thread::sleep(Duration::from_millis(2));
        }
        let now = field.served.load(Ordering::Relaxed);
        assert!(now > served, "part {part}: the other host stands still");
        served = now;
        let pool = crate::report::report(running).pool_bytes;
        assert!(pool <= MEMORY_MAX, "part {part}: {pool} bytes of buffers");
        field.pool_most.fetch_max(pool, Ordering::Relaxed);
        let grown = resident().saturating_sub(before);
        assert!(
            grown < MEMORY_MAX + (64 << 20),
            "part {part}: {grown} bytes"
        );
    }
    field.is_over.store(true, Ordering::Relaxed);
}

#[each_driver]
fn bad_input_does_not_disturb_another_host(backend: Choice) {
    undisturbed_by(backend, Transports::Tcp, |field, random| {
        match random.one_in(4) {
            true => attack_by_corpus(field, random),
            false => attack_by_seed(field, random),
        }
    });
}

#[each_driver]
fn bad_fpdus_do_not_disturb_another_host(backend: Choice) {
    undisturbed_by(backend, Transports::Both, rdma::attack);
}

fn undisturbed_by(backend: Choice, transports: Transports, attack: fn(&Field, &mut Random)) {
    let wanted = std::env::var("WEFT_HOSTILE").map_or(USUAL, |n| n.parse().expect("a number"));
    let running = serve(backend, transports);
    let field = Field {
        address: running.addresses()[0],
        handled: AtomicU64::new(0),
        wanted,
        served: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        pool_most: AtomicU64::new(0),
        corpus: corpus(),
        pause: Mutex::new(Duration::ZERO),
        machine: Mutex::new(Duration::ZERO),
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| use_it(&field));
        for cpu in reactor::available_cpus().into_iter().take(2) {
            let field = &field;
            scope.spawn(move || oversleep(field, cpu));
        }
        for seed in 0..3 {
            let field = &field;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while field.handled.load(Ordering::Relaxed) < field.wanted {
                    attack(field, &mut random);
                }
            });
        }
        watch(&field, &running);
    });
    let handled = field.handled.load(Ordering::Relaxed);
    println!(
        "{}: {handled} bad PDUs and commands in {:.1?}; the other host did {} I/Os, its \
         longest pause was {:.1?}, where a sleeper's was {:.1?}; buffers of {} bytes",
        running.backend(),
        start.elapsed(),
        field.served.load(Ordering::Relaxed),
        *field.pause.lock().expect("no panic"),
        *field.machine.lock().expect("no panic"),
        field.pool_most.load(Ordering::Relaxed),
    );
    assert!(handled >= wanted);
    // The attacked subsystem serves a host that keeps to the protocol.
    let host = Host {
        subnqn: EVIL,
        ..Host::at(field.address)
    };
    let (_admin, mut queue) = host.pair();
    assert!(queue.is_alive());
    stop(running);
}
