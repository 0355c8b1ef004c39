//! TLS: what an opener, a handshake and a stream make of bytes that a peer made up, or that
//! were changed on their way. Nothing gets through that its peer has not sealed.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use auth::Secret;
use auth::psk::{Derivation, Psk, PskHash, TlsPsk};
use link::{CommandMemory, Link, Stream, StreamProblem, StreamTokens};
use machine::{Direct, Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use mem::{Budget, Pool, Region};
use tls::Secured;
use tls::psk_handshake::{KnownPsks, PskHandshake};
use tls::records::{
    ContentType, EXTRA_BYTES, HEADER_BYTES, Opened, Opener, Plain, RecordError, Sealed, Sealer,
};

use crate::queues::Queues;

const HOST: &str = "nqn.2026-01.org.example:host";
const SUBSYSTEM: &str = "nqn.2026-01.io.weft:disk";
/// Bytes of plaintext in a record of an input, at most: more than any input has.
const PLAIN_MAX: usize = 4096;
/// The first byte of a handshake.
const HANDSHAKE: u8 = 22;

fn hash_of(bit: u8) -> PskHash {
    PskHash::ALL[usize::from(bit & 1)]
}

fn pool() -> Pool {
    Pool::new(Budget::new(8 << 20)).expect("there is address space")
}

/// The next op of an input: its kind, two bytes that it takes as it likes, and up to
/// [`PLAIN_MAX`] bytes of its own.
fn take_op<'i>(input: &mut &'i [u8]) -> Option<(u8, [u8; 2], &'i [u8])> {
    let (&[kind, one, two, low, high], rest) = input.split_first_chunk::<5>()?;
    let len = usize::from(u16::from_le_bytes([low, high]));
    let (bytes, rest) = rest.split_at(len.min(PLAIN_MAX).min(rest.len()));
    *input = rest;
    Some((kind, [one, two], bytes))
}

fn sealed(sealer: &mut Sealer, content: ContentType, plain: &[u8]) -> Vec<u8> {
    let mut record = vec![0; plain.len() + EXTRA_BYTES];
    let pieces = [Plain::Bytes(plain)].into_iter();
    sealer.seal(content, pieces, plain.len(), Sealed::Bytes(&mut record));
    record
}

/// Changes a bit of `bytes`, which `at` says.
fn flip(bytes: &mut [u8], at: [u8; 2]) {
    let bit = usize::from(u16::from_le_bytes(at)) % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// An opener, a record at a time.
///
/// An input is a byte that tells the hash, then ops: a kind, two bytes, a length (16 bits,
/// little endian) and so many bytes. An op is bytes as they are, data, data with a bit that is
/// changed, a KeyUpdate, or a message of a handshake or an alert.
pub fn records(input: &[u8]) {
    let Some((&config, mut input)) = input.split_first() else {
        return;
    };
    let hash = hash_of(config);
    let secret = Secret::new(vec![config; hash.digest_bytes()]);
    let mut sealer = Sealer::new(hash, secret.clone());
    let mut opener = Opener::new(hash, secret);
    let (pool, region) = (pool(), Region::anonymous(PLAIN_MAX as u64).expect("room"));
    while let Some((kind, at, bytes)) = take_op(&mut input) {
        let data = ContentType::ApplicationData;
        let record = match kind % 5 {
            0 => bytes.to_vec(),
            1 => sealed(&mut sealer, data, bytes),
            2 => {
                let mut record = sealed(&mut sealer, data, bytes);
                flip(&mut record, at);
                record
            }
            3 => sealer.update(),
            _ if at[0] & 1 == 0 => sealed(&mut sealer, ContentType::Handshake, bytes),
            _ => sealed(&mut sealer, ContentType::Alert, bytes),
        };
        // Another length: the stream is out of step, and what is opened next is no record.
        if Opener::record_bytes(&record) != Ok(Some(record.len())) {
            return;
        }
        let direct_bytes = u32::from(at[1]) * 16;
        let direct = (direct_bytes > 0).then(|| region.range(0, direct_bytes));
        let mut stage = pool.stage().expect("memory");
        let told = opener.open(&record, direct, &mut stage);
        match (kind % 5, told) {
            (0 | 2, told) => {
                assert_eq!(told, Err(RecordError::BadTag), "nobody has sealed it");
                assert!(stage.is_empty(), "bytes of a record that was changed");
                return;
            }
            (_, Err(RecordError::Empty)) => {
                assert!(bytes.is_empty() || kind % 5 >= 3, "it has data");
                return;
            }
            (1, told) => {
                let first = (direct_bytes as usize).min(bytes.len());
                let direct = first as u32;
                assert_eq!(told, Ok(Opened::Data { direct }));
                let mut came = vec![0; first];
                mem::copy_out(region.range(0, direct), &mut came);
                came.extend(stage.bytes());
                assert_eq!(came, bytes, "what was sealed");
            }
            (3, told) => assert_eq!(told, Ok(Opened::KeyUpdate { is_wanted: false })),
            // The sealer keeps its keys.
            (_, Ok(Opened::KeyUpdate { .. }) | Err(_)) => return,
            (_, Ok(_)) => assert!(stage.is_empty(), "a message is no data"),
        }
    }
}

/// The keys of one host.
struct OneHost(Psk);

impl OneHost {
    fn new(hash: PskHash) -> OneHost {
        OneHost(Psk::new(hash, |bytes| bytes.fill(7)))
    }

    fn psk(&self) -> TlsPsk {
        self.0.tls_psk(HOST, SUBSYSTEM, Derivation::Standard)
    }
}

impl KnownPsks for OneHost {
    fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
        let psks = [
            self.psk(),
            self.0
                .tls_psk_version_0(HOST, SUBSYSTEM, Derivation::Standard),
        ];
        let fits = |psk: &TlsPsk| psk.identity == identity;
        psks.into_iter().filter(fits).collect()
    }

    fn has_any(&self) -> bool {
        true
    }
}

/// A ClientHello that a host with the key has made.
fn good_hello(hash: PskHash) -> &'static [u8] {
    static HELLOS: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    let made = || {
        let psk = OneHost::new(hash).psk();
        PskHandshake::client(psk).step(&[]).output
    };
    HELLOS[usize::from(hash == PskHash::Sha256)].get_or_init(made)
}

/// A server's handshake with a client that has no key.
///
/// An input is a byte of configuration, the bytes of a piece, and the ClientHello: as it is, or
/// as triples of a place (16 bits, little endian) and what is changed there of a good one.
pub fn hello(input: &[u8]) {
    let Some((&[config, piece], input)) = input.split_first_chunk::<2>() else {
        return;
    };
    let hash = hash_of(config);
    let good = good_hello(hash);
    let mut hello = input.to_vec();
    if config & 2 != 0 {
        hello = good.to_vec();
        for &[low, high, change] in input.as_chunks::<3>().0 {
            let at = usize::from(u16::from_le_bytes([low, high])) % hello.len();
            hello[at] ^= change;
        }
    }
    let mut server = PskHandshake::server(Arc::new(OneHost::new(hash)));
    for piece in hello.chunks(usize::from(piece) + 1) {
        let step = server.step(piece);
        if step.output.first() == Some(&HANDSHAKE) {
            // Behind the record's version, which nothing covers.
            assert_eq!(hello[3..], good[3..], "the key was not proved");
            return;
        }
        match step.end {
            Some(Ok(_)) => panic!("a client without a key gets in"),
            Some(Err(error)) => {
                assert_eq!(step.output, error.alert().in_the_clear());
                return;
            }
            None => assert!(step.output.is_empty(), "it waits for more"),
        }
    }
}

/// A machine that takes what comes.
struct Collector {
    plan: RecvPlan,
    /// Bytes that came into the direct part.
    direct: u32,
    came: Vec<u8>,
}

impl Machine for Collector {
    type Op = ();

    fn tags_max(&self) -> usize {
        1
    }

    fn recv_plan(&self) -> RecvPlan {
        self.plan
    }

    fn on_direct(&mut self, len: u32) {
        self.direct = len;
    }

    fn poll_step(&mut self, _: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<()>> {
        self.came.extend(&staged[*at..]);
        *at = staged.len();
        None
    }

    fn on_digest(&mut self, _: Tag, _: u32) {}

    fn has_transmit(&self) -> bool {
        false
    }

    fn poll_transmit(&mut self, _: &mut impl Transmit) {}

    fn is_finished(&self) -> bool {
        false
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_deadline(&mut self, _: Nanos) {}
}

/// A server's end of a connection.
struct ServerEnd {
    link: Link<Collector>,
    driver: Queues,
    region: Region,
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
}

impl ServerEnd {
    fn new(hash: PskHash, allows_plain: bool) -> ServerEnd {
        let mut driver = Queues::new(pool());
        let handshake = PskHandshake::server(Arc::new(OneHost::new(hash)));
        let stream = Stream::new(driver.add(), StreamTokens::default());
        let stream = stream.with_handshake(handshake, allows_plain);
        let machine = Collector {
            plan: plan(0),
            direct: 0,
            came: Vec::new(),
        };
        let region = Region::anonymous(PLAIN_MAX as u64).expect("room");
        let mut link = Link::new(machine, stream);
        link.set_data(0, CommandMemory::lent(region.range(0, PLAIN_MAX as u32)));
        ServerEnd {
            link,
            driver,
            region,
            incoming: VecDeque::new(),
            outgoing: Vec::new(),
        }
    }

    /// Bytes come in pieces, each with a direct part of `direct` bytes.
    fn receive(&mut self, bytes: &[u8], piece: usize, direct: u8) {
        for piece in bytes.chunks(piece) {
            self.incoming.extend(piece);
            self.settle(direct);
        }
    }

    fn settle(&mut self, direct: u8) {
        while !self.incoming.is_empty() && !self.link.stream.has_failed() {
            // A plan holds until its receive has ended.
            if !self.driver.is_receiving(0) {
                self.link.machine.plan = plan(direct);
                self.link.receive(&mut self.driver);
            }
            let Some(received) = self.driver.receive(0, &mut self.incoming) else {
                break;
            };
            self.take(received);
            while let Some(work) = self.link.stream.take_handshake() {
                if let Some(left) = self.link.stream.on_handshake(work.step(), &self.driver) {
                    self.take(left);
                }
            }
        }
        self.link.flush_now(&mut self.driver);
        while self.driver.sent(0, &mut self.outgoing) {
            self.link.on_sent();
            self.link.flush_now(&mut self.driver);
        }
    }

    fn take(&mut self, received: reactor::Received) {
        assert!(!self.link.on_received(received), "nobody closes");
        let direct = std::mem::take(&mut self.link.machine.direct);
        let mut bytes = vec![0; direct as usize];
        mem::copy_out(self.region.range(0, direct), &mut bytes);
        self.link.machine.came.extend(bytes);
        self.link.next_op(0);
    }
}

fn plan(direct: u8) -> RecvPlan {
    let len = u32::from(direct) * 16;
    let (tag, offset) = (0, 0);
    RecvPlan {
        direct: (len > 0).then_some(Direct { tag, offset, len }),
        stage_max: 8192,
    }
}

/// What a client has that has shaken hands.
fn shake(server: &mut ServerEnd, hash: PskHash, piece: usize) -> Secured {
    let mut client = PskHandshake::client(OneHost::new(hash).psk());
    let mut to_server = client.step(&[]).output;
    loop {
        server.receive(&to_server, piece, 0);
        let step = client.step(&std::mem::take(&mut server.outgoing));
        if let Some(end) = step.end {
            server.receive(&step.output, piece, 0);
            return end.expect("it has the key");
        }
        to_server = step.output;
    }
}

/// A server's end of a connection.
///
/// An input is a byte of configuration and the bytes of a piece, then bytes that a peer begins
/// with, or, behind a handshake, ops as those of [`records`].
pub fn stream(input: &[u8]) {
    let Some((&[config, piece], mut input)) = input.split_first_chunk::<2>() else {
        return;
    };
    let (hash, allows_plain) = (hash_of(config), config & 2 != 0);
    let mut server = ServerEnd::new(hash, allows_plain);
    let piece = usize::from(piece) + 1;
    if config & 4 == 0 {
        server.receive(input, piece, 0);
        return begins_with(&mut server, allows_plain, input);
    }
    let mut client = shake(&mut server, hash, piece);
    assert!(server.link.stream.psk().is_some(), "both have the key");
    let mut sent: Vec<u8> = Vec::new();
    while let Some((kind, [one, two], bytes)) = take_op(&mut input) {
        let data = ContentType::ApplicationData;
        let mut record = match kind % 4 {
            0 => bytes.to_vec(),
            3 => client.sealer.update(),
            _ => sealed(&mut client.sealer, data, bytes),
        };
        match kind % 4 {
            1 => sent.extend(bytes),
            2 => flip(&mut record, [one, two]),
            _ => {}
        }
        server.receive(&record, piece, one);
        if matches!(kind % 4, 0 | 2) && !record.is_empty() {
            // Nothing behind it is of use, whatever it is; so it has all that it waits for.
            server.receive(&[0; HEADER_BYTES + (1 << 14) + 256], piece.max(64), one);
            assert_eq!(
                server.link.machine.came, sent,
                "what was sealed, and no more"
            );
            return fails(&mut server, &mut client);
        }
        assert_eq!(server.link.machine.came, sent, "what was sealed");
        if server.link.stream.has_failed() {
            return fails(&mut server, &mut client);
        }
    }
}

/// What a server has made of the first bytes of a peer.
fn begins_with(server: &mut ServerEnd, allows_plain: bool, bytes: &[u8]) {
    let came = &server.link.machine.came;
    assert!(server.link.stream.psk().is_none(), "it has no key");
    match bytes.first() {
        None => assert!(came.is_empty()),
        Some(&HANDSHAKE) => assert!(came.is_empty(), "bytes of a handshake"),
        Some(_) if allows_plain => assert_eq!(came, bytes, "what was sent"),
        Some(_) => {
            assert!(came.is_empty(), "bytes without TLS");
            let problem = server.link.stream.take_problem();
            assert_eq!(problem, Some(StreamProblem::Plain));
        }
    }
}

/// The connection ends, and the peer is told why.
fn fails(server: &mut ServerEnd, client: &mut Secured) {
    let problem = server.link.stream.take_problem();
    assert!(
        matches!(problem, Some(StreamProblem::Record(_))),
        "{problem:?}"
    );
    let mut stage = pool().stage().expect("memory");
    let mut told = &server.outgoing[..];
    while let Ok(Some(len)) = Opener::record_bytes(told) {
        let (record, rest) = told.split_at(len);
        let opened = client.opener.open(record, None, &mut stage);
        if rest.is_empty() {
            assert!(matches!(opened, Err(RecordError::Alert(_))), "{opened:?}");
        }
        told = rest;
    }
    assert!(told.is_empty() && !server.outgoing.is_empty());
}
