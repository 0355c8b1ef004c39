//! rping of the RDMA library's own tools, on soft iWARP in a guest, with a stream of
//! `crates/iwarp` and nothing above it: RDMA Reads, RDMA Writes and Sends as any program of
//! verbs has them.
//!
//! For each ping rping sends a Send that names memory; it is read, and a Send says so. A second
//! Send names other memory, which is written with the same bytes, and a Send says so.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use interop::guest::{Config, Guest};
use interop::scripts::{MACHINE, RDMA, RPING, script};
use interop::systems::SIW;
use iwarp::{DataPart, Qp, QpError, QpOp, QpSettings, Work};
use machine::{Machine, Tag};
use needs::needs;
use testkit::End;

/// The bytes of a ping.
const PING: Tag = 1;
const PING_BYTES_MAX: usize = 64 << 10;
/// Bytes of each Send: an address, a key and a length.
const SEND_BYTES: usize = 16;

const COUNT: u64 = 20;
/// The least that rping takes, one FPDU and several.
const SIZES: [u32; 3] = [64, 4096, 65_535];

/// Memory of rping's.
#[derive(Clone, Copy)]
struct Named {
    to: u64,
    stag: u32,
    len: u32,
}

impl Named {
    fn decode(send: &[u8]) -> Named {
        assert_eq!(send.len(), SEND_BYTES);
        let word = |at: usize| u32::from_be_bytes(send[at..at + 4].try_into().expect("4 bytes"));
        Named {
            to: u64::from(word(0)) << 32 | u64::from(word(4)),
            stag: word(8),
            len: word(12),
        }
    }
}

/// What an endpoint has seen.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    pings: u64,
    bytes: u64,
    has_crc: bool,
}

/// The end of one connection that rping makes.
struct Endpoint {
    end: End<Qp>,
    /// It is being read, or was; else the next Send names what is to be.
    is_pinged: bool,
    seen: Seen,
    is_over: bool,
}

impl Endpoint {
    fn new() -> Endpoint {
        let settings = QpSettings {
            head_max: SEND_BYTES as u16,
            send_max: SEND_BYTES as u32,
            ..QpSettings::default()
        };
        let mut end = End::new(Qp::responder(settings, 9, 0));
        end.set_memory(PING, vec![0; PING_BYTES_MAX]);
        Endpoint {
            end,
            is_pinged: false,
            seen: Seen::default(),
            is_over: false,
        }
    }

    /// What the stream tells.
    fn on_op(&mut self, op: QpOp) {
        match op {
            QpOp::Requested => {
                self.end.machine.accept(&[]);
                self.end.machine.post_receives(2);
            }
            QpOp::Received(_) => {
                let named = Named::decode(self.end.machine.head());
                self.end.machine.post_receives(1);
                match self.is_pinged {
                    false => self.read(named),
                    true => self.write(named),
                }
            }
            QpOp::ReadDone(sink) => {
                let ping = &self.end.memory[usize::from(PING)];
                let text = format!("rdma-ping-{}: ", self.seen.pings);
                assert!(ping.starts_with(text.as_bytes()), "{:?}", &ping[..32]);
                self.seen.bytes += u64::from(sink.len);
                self.say();
            }
            QpOp::Fatal(QpError::Received(_)) => self.is_over = true,
            other => panic!("{other:?}"),
        }
    }

    fn ping(len: u32) -> DataPart {
        DataPart {
            tag: PING,
            offset: 0,
            len,
        }
    }

    fn read(&mut self, named: Named) {
        self.is_pinged = true;
        self.seen.has_crc = self.end.machine.terms().crc;
        let read = (self.end.machine).read(Endpoint::ping(named.len), named.stag, named.to);
        read.expect("rping takes RDMA Reads");
    }

    fn write(&mut self, named: Named) {
        self.is_pinged = false;
        self.end.machine.post(Work::Write {
            data: Endpoint::ping(named.len),
            stag: named.stag,
            to: named.to,
            release: None,
        });
        self.seen.pings += 1;
        self.say();
    }

    /// A Send whose bytes mean nothing.
    fn say(&mut self) {
        self.end.machine.post(Work::Send {
            head: &[0; SEND_BYTES],
            body: DataPart::default(),
            invalidate: None,
            is_solicited: false,
            release: None,
        });
    }

    /// Goes on until the other end is gone.
    fn serve(mut self, mut stream: TcpStream) -> Seen {
        let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
        let mut bytes = vec![0; 256 << 10];
        while !self.is_over {
            match stream.read(&mut bytes) {
                Ok(len @ 1..) => there.extend(&bytes[..len]),
                _ => break,
            }
            while self.end.receive(&mut there, usize::MAX) > 0 {
                while let Some(op) = self.end.next_op() {
                    self.on_op(op);
                }
            }
            while self.end.machine.has_transmit() {
                self.end.transmit(&mut back, 16);
            }
            if stream.write_all(back.make_contiguous()).is_err() {
                break;
            }
            back.clear();
        }
        self.seen
    }
}

/// An endpoint for as many connections as there are sizes, and what each comes to.
fn listen() -> (SocketAddr, thread::JoinHandle<Vec<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let accept = move |_| {
        let (stream, _) = listener.accept().expect("a connection");
        Endpoint::new().serve(stream)
    };
    let serving = thread::spawn(move || SIZES.iter().map(accept).collect());
    (address, serving)
}

fn pings(name: &str, module: &str) {
    let (address, serving) = listen();
    let sizes = SIZES.map(|size| size.to_string()).join(" ");
    let (port, count) = (address.port().to_string(), COUNT.to_string());
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("SIW", module),
        ("SIZES", &sizes),
        ("COUNT", &count),
    ];
    let mut config = Config::new(name, &script(&settings, &[RDMA, RPING]));
    config.system = &SIW;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    guest.finish().expect_success();
    let expected = SIZES.map(|size| Seen {
        pings: COUNT,
        bytes: COUNT * u64::from(size),
        // The endpoint asks for them, as weft does.
        has_crc: true,
    });
    assert_eq!(serving.join().expect("no panic"), expected);
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn rping_finds_what_it_wrote() {
    pings("rping", "siw");
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn rping_finds_what_it_wrote_with_a_stricter_peer() {
    pings("rping-strict", "siw_strict");
}
