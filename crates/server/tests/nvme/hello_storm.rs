//! A storm of handshakes beside a host that reads. The reactor is run here turn by turn, and what
//! is made beside it between the turns, so that what each read waits for can be counted.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use auth::HostPsk;
use auth::psk::{Derivation, Psk, PskHash, TlsPsk};
use machine::work::spent_in_turns;
use needs::each_driver;
use nvmf::HostTerms;
use reactor::{
    AnyDriver, BoundListener, Choice, Driver as _, DriverConfig, Handler as _, Receiver, Wait,
};
use server::parts::{Acceptor, BlockingWorker, Placer, ServerMail, Shard, Shared, assemble};
use server::{Config, Limits};
use tls::psk_handshake::PskHandshake;
use wire::nvme::{Sgl, Sqe, io as opcode};

use crate::common::{BLOCK, Host, NQN, Queue, config};

const FRIEND: &str = "nqn.2026-01.org.example:friend";
/// ClientHellos of the storm.
const HELLOS: usize = 10_000;
/// Peers of it that are there at a time.
const PEERS: usize = 64;
/// Reads without a storm.
const READS: usize = 1000;

/// A target with one reactor, which runs when it is told to.
struct ByHand {
    driver: AnyDriver,
    mail: Receiver<ServerMail>,
    shard: Shard,
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl ByHand {
    fn start(backend: Choice, psk: Psk) -> ByHand {
        let mut config: Config = config(backend, Limits::default(), 64 << 20);
        config.cpus.truncate(1);
        config.listeners.truncate(1);
        let until = None;
        config.subsystems[0].terms = vec![HostTerms {
            psks: vec![HostPsk { key: psk, until }],
            ..HostTerms::new(FRIEND)
        }];
        let listener = BoundListener::bind(config.listeners[0].address).expect("a port");
        let address = listener.address();
        let volumes = config.volumes.iter().map(store::open);
        let volumes: Vec<_> = volumes.map(|volume| volume.expect("it opens")).collect();
        let bind = Box::new(BoundListener::bind);
        let shared = assemble(&config, volumes, &[address], BlockingWorker::Inline, bind);
        let shared = shared.expect("the configuration is right");
        let placer = Placer::new(config.placement, vec![0], shared.engine.load.clone());
        let listeners = vec![(0, listener)];
        let budget = mem::Budget::of_pools(config.memory_max, 1);
        let pool = mem::Pool::new(budget).expect("address space");
        let settings = DriverConfig {
            sockets_max: 1024,
            ..DriverConfig::default()
        };
        let mut driver = reactor::open(backend, &settings, pool).expect("a driver");
        let (mailbox, mail) = reactor::mailbox(driver.waker());
        assert!(shared.mailboxes.set(vec![mailbox]).is_ok());
        shared.nfs.begin(driver.now());
        let acceptor = Some(Acceptor { listeners, placer });
        let shard = Shard::new(0, shared.clone(), acceptor, &mut driver).expect("it listens");
        ByHand {
            driver,
            mail,
            shard,
            shared,
            address,
        }
    }

    /// One turn of the reactor.
    fn turn(&mut self) {
        let (mut completions, mut letters) = (Vec::new(), Vec::new());
        let polled = self.driver.poll(Wait::Now, &mut completions);
        polled.expect("the driver runs");
        self.mail.take(&mut letters);
        for completion in completions {
            self.shard.on_completion(&mut self.driver, completion);
        }
        for letter in letters {
            self.shard.on_mail(&mut self.driver, letter);
        }
        self.shard.on_turn(&mut self.driver);
    }

    /// Turns until a host by hand has done something, on a thread of its own.
    fn serve<T: Send>(&mut self, host: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let host = scope.spawn(host);
            while !host.is_finished() {
                self.turn();
            }
            host.join().expect("it ended well")
        })
    }

    /// Units of work that the reactor does from when a read was sent to when its answer is there.
    fn read(&mut self, queue: &mut Queue) -> u64 {
        let mut read = Sqe::new(opcode::READ);
        read.nsid = 1.into();
        read.set_blocks(0, 1);
        read.sgl = Sgl::new(Sgl::TRANSPORT, BLOCK as u32);
        let before = spent_in_turns();
        let cid = queue.send(read, &[]);
        while !is_there(&queue.stream) {
            self.turn();
        }
        let units = spent_in_turns() - before;
        self.serve(|| queue.data_of(cid).expect("it is read"));
        units
    }
}

fn is_there(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("settable");
    let there = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).expect("settable");
    there
}

/// What a peer of the storm sends.
#[derive(Clone)]
struct Hello {
    bytes: Vec<u8>,
    /// So many at a time.
    piece: usize,
    /// The type of the record that it is answered with.
    answer: u8,
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// By their turns: a wrong binder, an identity that no host has, the right binder of a peer that
/// stops then, no hello at all. One in 20 comes byte by byte.
fn hellos(right: &Psk) -> Vec<Hello> {
    let of = |psk: TlsPsk| PskHandshake::client(psk).step(&[]).output;
    let other = Psk::new(PskHash::Sha256, |bytes| bytes.fill(9));
    let standard = Derivation::Standard;
    let wrong = of(other.tls_psk_version_0(FRIEND, NQN, standard));
    let unknown = of(other.tls_psk(FRIEND, NQN, standard));
    let right = of(right.tls_psk(FRIEND, NQN, standard));
    let malformed = vec![22, 3, 1, 0, 4, 2, 0, 0, 0];
    let whole = |bytes: &[u8], answer| Hello {
        bytes: bytes.to_vec(),
        piece: bytes.len(),
        answer,
    };
    let kinds = [
        whole(&wrong, ALERT),
        whole(&unknown, ALERT),
        whole(&right, HANDSHAKE),
        whole(&malformed, ALERT),
    ];
    let slow = Hello {
        piece: 1,
        ..whole(&right, HANDSHAKE)
    };
    kinds.into_iter().cycle().take(19).chain([slow]).collect()
}

/// A peer of the storm.
struct Peer {
    stream: TcpStream,
    hello: Hello,
    sent: usize,
}

impl Peer {
    fn new(to: SocketAddr, hello: Hello) -> Peer {
        let stream = TcpStream::connect(to).expect("connects");
        stream.set_nodelay(true).expect("settable");
        stream.set_nonblocking(true).expect("settable");
        let sent = 0;
        Peer {
            stream,
            hello,
            sent,
        }
    }

    /// Does what is next; whether it was answered, and ends.
    fn goes_on(&mut self) -> bool {
        if let Some(left) = self
            .hello
            .bytes
            .get(self.sent..)
            .filter(|left| !left.is_empty())
        {
            let piece = &left[..self.hello.piece.min(left.len())];
            self.sent += self.stream.write(piece).expect("room");
            return false;
        }
        let mut answer = [0; 4096];
        match self.stream.read(&mut answer) {
            Ok(len) => {
                assert!(
                    len > 0 && answer[0] == self.hello.answer,
                    "{:?}",
                    &answer[..len]
                );
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The value that 99 of 100 do not exceed.
fn p99(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() * 99 / 100]
}

#[each_driver]
fn storm_of_hellos_leaves_the_work_that_a_read_waits_for_as_it_is(backend: Choice) {
    let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(7));
    let mut target = ByHand::start(backend, psk.clone());
    let to = target.address;
    let (_admin, mut queue) = target.serve(|| Host::at(to).pair());
    let quiet: Vec<_> = (0..READS).map(|_| target.read(&mut queue)).collect();
    let mut left = hellos(&psk).into_iter().cycle().take(HELLOS);
    let mut peers: Vec<Peer> = Vec::new();
    let (mut stormy, mut answered) = (Vec::new(), 0);
    loop {
        let missing = PEERS - peers.len();
        peers.extend(
            left.by_ref()
                .take(missing)
                .map(|hello| Peer::new(to, hello)),
        );
        if peers.is_empty() {
            break;
        }
        let before = peers.len();
        peers.retain_mut(|peer| !peer.goes_on());
        answered += before - peers.len();
        stormy.push(target.read(&mut queue));
        target.shared.engine.run_blocking_work();
    }
    assert_eq!(answered, HELLOS);
    let (quiet, stormy) = (p99(quiet), p99(stormy));
    assert!(quiet > 0, "nothing is counted");
    let told = format!("{quiet} units without, {stormy} with a storm");
    assert!(stormy * 10 <= quiet * 11, "{told}");
}
