//! How much of the socket's speed a driver leaves: request and reply of the
//! sizes of a 4 KiB read over each pair of {plain socket calls, io_uring,
//! epoll}, server on one core, client on the other, both polling.
//!
//! `cargo run --release -p reactor --example echo -- [depth] [connections] [reply bytes] [rounds] [request bytes]`
//!
//! Requests of some KiB are placed in memory from the stage, larger ones are
//! received into it, as a RAM volume's writes are.

use mem::{Budget, BufRange, Pool, Region, Stage};
use random::Random;
use reactor::{
    Choice, Completion, Counters, Driver, DriverConfig, SocketId, Wait, open, pin_to_cpu,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const REQUEST_BYTES: u32 = 72;
const HEADER_BYTES: u32 = 24;
/// Longer requests are received straight into memory.
const STAGED_BYTES_MAX: usize = 16 << 10;
const REGION_BYTES: u64 = 256 << 20;
const MEASURED: Duration = Duration::from_millis(400);

/// One side: for every `in_bytes` that came, it sends `out_bytes`.
#[derive(Clone, Copy)]
struct Side {
    in_bytes: usize,
    out_bytes: u32,
    /// What each connection sends unasked.
    start: usize,
    /// Whether it keeps what it receives.
    places: bool,
}

fn plain(streams: Vec<TcpStream>, side: Side, ready: &Barrier, stop: &AtomicBool) -> u64 {
    struct Connection {
        stream: TcpStream,
        partial: usize,
        owed_bytes: usize,
    }
    let out_bytes = side.out_bytes as usize;
    let mut connections: Vec<Connection> = streams
        .into_iter()
        .map(|stream| Connection {
            stream,
            partial: 0,
            owed_bytes: side.start * out_bytes,
        })
        .collect();
    let payload = vec![1; 1 << 20];
    let mut staging = vec![0; 256 << 10];
    let mut count = 0;
    ready.wait();
    while !stop.load(Ordering::Relaxed) {
        for connection in &mut connections {
            while connection.owed_bytes > 0 {
                let some = connection.owed_bytes.min(payload.len());
                match connection.stream.write(&payload[..some]) {
                    Ok(sent) => connection.owed_bytes -= sent,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return count,
                }
            }
            match connection.stream.read(&mut staging) {
                Ok(0) => return count,
                Ok(got) => {
                    let whole = (connection.partial + got) / side.in_bytes;
                    connection.partial = (connection.partial + got) % side.in_bytes;
                    connection.owed_bytes += whole * out_bytes;
                    count += whole as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return count,
            }
        }
    }
    count
}

struct Connection {
    socket: SocketId,
    partial: usize,
    owed: usize,
    is_sending: bool,
    /// Where the payload that is arriving goes.
    place: Option<BufRange>,
}

struct Driven<D> {
    driver: D,
    side: Side,
    connections: Vec<Connection>,
    region: Region,
    random: Random,
    count: u64,
}

impl<D: Driver> Driven<D> {
    fn payload(&mut self, len: u32) -> BufRange {
        let slots = REGION_BYTES / u64::from(len).next_multiple_of(4096);
        let slot = self.random.below(slots);
        let offset = slot * u64::from(len).next_multiple_of(4096);
        self.region.range(offset, len)
    }

    fn send(&mut self, at: usize) {
        if self.connections[at].is_sending || self.connections[at].owed == 0 {
            return;
        }
        let mut batch = self.driver.batch();
        while self.connections[at].owed > 0 && batch.has_room() {
            self.connections[at].owed -= 1;
            batch.header(&[0; HEADER_BYTES as usize]);
            let rest = self.side.out_bytes - HEADER_BYTES;
            if rest < 100 {
                batch.header(&[0; 100][..rest as usize]);
            } else {
                let range = self.payload(rest);
                batch.payload(range);
            }
        }
        let socket = self.connections[at].socket;
        self.connections[at].is_sending = true;
        self.driver.send(socket, batch, at as u64);
    }

    fn recv(&mut self, at: usize) {
        let Connection {
            socket,
            partial,
            place,
            ..
        } = self.connections[at];
        let (header, whole) = (REQUEST_BYTES as usize, self.side.in_bytes);
        if !self.side.places || whole <= STAGED_BYTES_MAX {
            let stage_max = mem::STAGE_BYTES;
            return self.driver.recv(socket, None, None, stage_max, at as u64);
        }
        if partial < header {
            let rest = (header - partial) as u32;
            return self.driver.recv(socket, None, None, rest, at as u64);
        }
        let len = (whole - header) as u32;
        let place = place.unwrap_or_else(|| self.payload(len));
        self.connections[at].place = Some(place);
        let arrived = (partial - header) as u32;
        let direct = Some(place.slice(arrived, len - arrived));
        self.driver
            .recv(socket, direct, None, REQUEST_BYTES, at as u64);
    }

    /// Copies what was staged to where a volume would want it.
    fn place(&mut self, stage: &Stage) {
        for piece in stage.bytes().chunks(4096) {
            let to = self.payload(piece.len() as u32);
            mem::copy_in(to, piece);
        }
    }

    fn on(&mut self, completion: Completion) -> bool {
        match completion {
            Completion::Received { token, result } => {
                let at = token as usize;
                let Ok(received) = result else { return false };
                if received.eof {
                    return false;
                }
                let staged = received.stage.as_ref().map_or(0, Stage::len);
                if let Some(stage) = &received.stage
                    && self.side.places
                    && (1000..=STAGED_BYTES_MAX).contains(&self.side.in_bytes)
                {
                    self.place(stage);
                }
                let connection = &mut self.connections[at];
                let got = connection.partial + received.direct as usize + staged;
                if got >= self.side.in_bytes {
                    connection.place = None;
                }
                connection.owed += got / self.side.in_bytes;
                self.count += (got / self.side.in_bytes) as u64;
                connection.partial = got % self.side.in_bytes;
                drop(received);
                self.recv(at);
                self.send(at);
            }
            Completion::Sent { token, result } => {
                self.connections[token as usize].is_sending = false;
                if result.is_err() {
                    return false;
                }
                self.send(token as usize);
            }
            _ => return false,
        }
        true
    }

    fn run(&mut self, stop: &AtomicBool) {
        let mut out = Vec::with_capacity(1024);
        for at in 0..self.connections.len() {
            self.connections[at].owed = self.side.start;
            self.recv(at);
            self.send(at);
        }
        while !stop.load(Ordering::Relaxed) {
            self.driver.poll(Wait::Now, &mut out).unwrap();
            for completion in out.drain(..) {
                if !self.on(completion) {
                    return;
                }
            }
        }
    }
}

fn driven(
    choice: Choice,
    streams: Vec<TcpStream>,
    side: Side,
    ready: &Barrier,
    stop: &AtomicBool,
) -> (u64, Counters) {
    let pool = Pool::new(Budget::new(64 << 20)).unwrap();
    let mut driver = open(choice, &DriverConfig::default(), pool).unwrap();
    let connections = streams
        .into_iter()
        .map(|stream| Connection {
            socket: driver.add_socket(stream.into()).unwrap(),
            partial: 0,
            owed: 0,
            is_sending: false,
            place: None,
        })
        .collect();
    let region = Region::bulk(REGION_BYTES).unwrap();
    for chunk in 0..REGION_BYTES >> 20 {
        mem::copy_in(region.range(chunk << 20, 1 << 20), &vec![1; 1 << 20]);
    }
    let mut this = Driven {
        driver,
        side,
        connections,
        region,
        random: Random::new(1),
        count: 0,
    };
    ready.wait();
    this.run(stop);
    (this.count, this.driver.counters())
}

/// `None`: plain socket calls.
fn one_side(
    kind: Option<Choice>,
    streams: Vec<TcpStream>,
    side: Side,
    ready: &Barrier,
    stop: &AtomicBool,
) -> (u64, Counters) {
    for stream in &streams {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    match kind {
        None => (plain(streams, side, ready, stop), Counters::default()),
        Some(choice) => driven(choice, streams, side, ready, stop),
    }
}

fn measure(
    server: Option<Choice>,
    client: Option<Choice>,
    depth: usize,
    connections: usize,
    reply: u32,
    request: u32,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..connections {
        theirs.push(TcpStream::connect(addr).unwrap());
        ours.push(listener.accept().unwrap().0);
    }
    let serve = Side {
        in_bytes: request as usize,
        out_bytes: reply,
        start: 0,
        places: true,
    };
    let ask = Side {
        in_bytes: reply as usize,
        out_bytes: request,
        start: depth / connections,
        places: false,
    };
    let shared = Arc::new((Barrier::new(3), AtomicBool::new(false)));
    let spawn = |cpu, kind, streams, side| {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            let _ = pin_to_cpu(cpu);
            one_side(kind, streams, side, &shared.0, &shared.1)
        })
    };
    let server = spawn(0, server, ours, serve);
    let client = spawn(1, client, theirs, ask);
    shared.0.wait();
    let started = Instant::now();
    std::thread::sleep(MEASURED);
    let seconds = started.elapsed().as_secs_f64();
    shared.1.store(true, Ordering::Relaxed);
    let (count, _) = client.join().unwrap();
    let (served, counters) = server.join().unwrap();
    let per = |n: u64| n as f64 / served.max(1) as f64;
    format!(
        "{:9.0}/s {:7.2} us, server {:.3} calls, {:.3} receives, {:.3} sends each",
        count as f64 / seconds,
        seconds * 1e6 * depth as f64 / count as f64,
        per(counters.syscalls),
        per(counters.recvs),
        per(counters.sends),
    )
}

fn main() {
    let numbers: Vec<u32> = std::env::args()
        .skip(1)
        .map(|word| word.parse().expect("a number"))
        .collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (depth, connections) = (number(0, 128) as usize, number(1, 1) as usize);
    let (reply, rounds) = (number(2, 4120), number(3, 3));
    let request = number(4, REQUEST_BYTES);
    let (uring, epoll) = (Some(Choice::Uring), Some(Choice::Epoll));
    let pairs = [
        ("plain/plain", None, None),
        ("io_uring/plain", uring, None),
        ("epoll/plain", epoll, None),
        ("io_uring/io_uring", uring, uring),
    ];
    for _ in 0..rounds {
        for (name, server, client) in pairs {
            let line = measure(server, client, depth, connections, reply, request);
            println!("{name:18} {line}");
        }
    }
}
