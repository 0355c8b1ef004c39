//! The ceiling: what plain sockets give for the byte counts of NVMe/TCP, iSCSI or
//! NFS when there is no protocol. Figures of the target are read against these.
//!
//! Of NVMe/TCP a read is a 72-byte request answered by 24 + N bytes, a write is
//! 72 + N bytes answered by 24; of iSCSI all four are 48; of NFS they are the
//! COMPOUNDs that `weft perf` sends and `weft serve` answers. Client and server
//! each have one thread that polls nonblocking sockets, takes all that arrived
//! with one receive and answers it with one send.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use random::Random;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustix::thread::LinkNameSpaceType;
use serde::Serialize;

use client::clock::{Clock, thread_cpu_ns};
use client::latency::{Latencies, Summary};
use client::units::{parse_bytes, parse_duration, show_bytes, show_count};

/// The longest reply without payload.
const REPLY_BYTES_MAX: usize = 116;
/// What one receive takes at most, and what a pattern of messages measures.
const HOT_BYTES: usize = 512 << 10;
/// Pauses after a receive that found nothing: some 100 ns.
const EMPTY_SPINS: u32 = 8;
/// Slices of one vectored call; below IOV_MAX, which is 1,024.
const SLICES_MAX: usize = 256;

/// Which way the payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A bare request, a reply with N bytes.
    Read,
    /// A request with N bytes, a bare reply.
    Write,
}

/// Whose headers are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headers {
    /// NVMe/TCP's.
    NvmeTcp,
    /// NVMe/RDMA's, over iWARP.
    NvmeRdma,
    /// iSCSI's.
    Iscsi,
    /// NFSv4.2's.
    Nfs,
}

/// Bytes of a COMPOUND of SEQUENCE and PUTFH before its third operation: record
/// mark, the header of a call by AUTH_SYS without name and groups (RFC 5531),
/// tag, minor version and count, 36 of SEQUENCE, 32 of PUTFH with weft's file
/// handle (RFC 8881).
const NFS_CALL: usize = 4 + 60 + 12 + 36 + 32;
/// The same of the answer: record mark, header, status, tag and count, 44 of
/// SEQUENCE, 8 of PUTFH.
const NFS_ANSWER: usize = 4 + 24 + 12 + 44 + 8;

impl Headers {
    /// Bytes of a request and of a reply without payload.
    const fn bytes(self, rw: Shape) -> (usize, usize) {
        match self {
            // A command capsule with its PDU header (NVMe/TCP 3.6.2.6: 8 + 64); a
            // C2HData header, or a response capsule with its PDU header (8 + 16).
            Headers::NvmeTcp => (72, 24),
            // A Send with a command capsule (20 + 64 + 4 bytes of CRC); a Send with a response
            // capsule (20 + 16 + 4), behind an RDMA Write (16 + 4) where data is read.
            Headers::NvmeRdma => match rw {
                Shape::Read => (88, 20 + 40),
                Shape::Write => (88, 40),
            },
            // Basic Header Segments (RFC 7143, section 11.2.1).
            Headers::Iscsi => (48, 48),
            // READ: state id, offset, count; whether the file ends, how much came.
            // WRITE: stability and length too; and count, stability, verifier.
            Headers::Nfs => match rw {
                Shape::Read => (NFS_CALL + 32, NFS_ANSWER + 16),
                Shape::Write => (NFS_CALL + 36, NFS_ANSWER + 24),
            },
        }
    }
}

/// Arguments of `weft ceiling`.
#[derive(Args, Clone, Debug)]
pub struct CeilingArgs {
    /// Which way the payload goes
    #[arg(long, value_enum, default_value = "read")]
    pub rw: Shape,
    /// Whose headers go with it
    #[arg(long, value_enum, default_value = "nvme-tcp")]
    pub headers: Headers,
    /// Payload of one operation
    #[arg(long, value_parser = parse_bytes, default_value = "4k")]
    pub bs: u64,
    /// Operations in flight on each connection
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub iodepth: u32,
    /// Connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub numjobs: u32,
    /// How long to measure
    #[arg(long, value_parser = parse_duration, default_value = "5s")]
    pub runtime: Duration,
    /// How long to run before measuring
    #[arg(long, value_parser = parse_duration, default_value = "500ms")]
    pub ramp_time: Duration,
    /// CPU of the server's thread
    #[arg(long, default_value_t = 0)]
    pub server_cpu: usize,
    /// CPU of the client's thread
    #[arg(long, default_value_t = 1)]
    pub client_cpu: usize,
    /// Memory from which (reads) or into which (writes) the server's payload
    /// goes, at random offsets; 0: one small buffer that stays in the cache
    #[arg(long, value_parser = parse_bytes, default_value = "0")]
    pub span: u64,
    /// Operations a second over all connections, each at its own time and at most
    /// --iodepth of a connection in flight; without it the next begins when one ends
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// Address of the server
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST.into())]
    pub address: IpAddr,
    /// Network namespace of the server, such as /proc/PID/ns/net [default: the
    /// client's]
    #[arg(long, value_name = "FILE")]
    pub server_net: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match rate.is_finite() && rate > 0.0 {
        true => Ok(rate),
        false => Err("must be more than 0".into()),
    }
}

/// What a run measured.
#[derive(Clone, Debug, Serialize)]
pub struct CeilingReport {
    /// Which way the payload went.
    pub rw: Shape,
    /// Whose headers went with it.
    pub headers: Headers,
    /// Payload bytes of one operation.
    pub bs: u64,
    /// Operations in flight on each connection.
    pub iodepth: u32,
    /// Connections.
    pub numjobs: u32,
    /// Bytes of the server's payload memory; 0: one hot buffer.
    pub span: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// Operations a second.
    pub iops: f64,
    /// Payload, millions of bytes a second.
    pub mb_per_s: f64,
    /// From the send's start to the reply's last byte.
    pub latency: Summary,
    /// CPU seconds of the server's thread for 10^9 bytes of payload, polling included.
    pub server_cpu_s_per_gb: f64,
    /// The same without the turns in which it found nothing to do.
    pub server_busy_s_per_gb: f64,
    /// CPU seconds of the client's thread while measuring, polling included.
    pub client_cpu_s: f64,
    /// The same without the turns in which it found nothing to do.
    pub client_busy_s: f64,
    /// Operations of each tenth of the time measured.
    pub tenths: Vec<u64>,
    /// Latencies: shares of the operations, each with the microseconds that they
    /// took at most.
    pub distribution: Vec<(f64, f64)>,
}

/// Runs `weft ceiling`.
///
/// # Errors
/// The report cannot be printed.
pub fn run(args: &CeilingArgs) -> io::Result<ExitCode> {
    match measure(args) {
        Ok(report) if args.json => {
            let text = serde_json::to_string(&report).expect("a report is JSON");
            writeln!(io::stdout(), "{text}")?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(report) => {
            write!(io::stdout(), "{}", show(&report))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "weft ceiling: {error}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn show(r: &CeilingReport) -> String {
    let memory = match r.span {
        0 => "one hot buffer".to_owned(),
        span => format!("random in {}", show_bytes(span)),
    };
    format!(
        "bare TCP, {:?} shape of {:?}, bs {}, iodepth {}, connections {}, server memory: {memory}\n  \
         IOPS {}  {:.1} MB/s  ({:.1} s)\n{}\n  \
         server CPU: {:.3} s/GB, {:.3} s/GB without idle polling\n",
        r.rw,
        r.headers,
        show_bytes(r.bs),
        r.iodepth,
        r.numjobs,
        show_count(r.iops),
        r.mb_per_s,
        r.seconds,
        r.latency,
        r.server_cpu_s_per_gb,
        r.server_busy_s_per_gb,
    )
}

/// Runs both sides and measures.
///
/// # Errors
/// Where sockets, threads or pinning fail, or the sizes make no sense.
pub fn measure(args: &CeilingArgs) -> io::Result<CeilingReport> {
    let refuse = |text: &str| Err(io::Error::new(ErrorKind::InvalidInput, text));
    if args.bs == 0 || args.bs > 16 << 20 {
        return refuse("--bs must be from 1 to 16m");
    }
    if args.span != 0 && args.span < args.bs * SLICES_MAX as u64 {
        return refuse("--span must be 0 or at least 256 times --bs");
    }
    let listener = listen(args)?;
    let mut client = Vec::new();
    let mut server = Vec::new();
    for _ in 0..args.numjobs {
        client.push(connect(listener.local_addr()?)?);
        server.push(prepare(listener.accept()?.0)?);
    }
    let phase = Arc::new(CeilingPhase {
        ready: Barrier::new(2),
        measuring: AtomicBool::new(false),
        end: AtomicBool::new(false),
    });
    let server = thread::Builder::new().name("server".into()).spawn({
        let (args, phase) = (args.clone(), Arc::clone(&phase));
        move || serve(&args, server, &phase)
    })?;
    let client = thread::Builder::new().name("client".into()).spawn({
        let (args, phase) = (args.clone(), Arc::clone(&phase));
        move || drive(&args, client, &phase)
    })?;
    let driven = client.join().expect("the client thread does not panic");
    phase.end.store(true, Ordering::Release);
    let served = server.join().expect("the server thread does not panic");
    // A server that failed is why the client did.
    let (served, driven) = (served?, driven?);
    let seconds = driven.elapsed_ns as f64 / 1e9;
    let operations = driven.latencies.count() as f64;
    let gb = operations * args.bs as f64 / 1e9;
    let cpu_s = served.cpu_ns as f64 / 1e9;
    Ok(CeilingReport {
        rw: args.rw,
        headers: args.headers,
        bs: args.bs,
        iodepth: args.iodepth,
        numjobs: args.numjobs,
        span: args.span,
        seconds,
        iops: operations / seconds,
        mb_per_s: gb * 1e3 / seconds,
        latency: driven.latencies.summary(),
        server_cpu_s_per_gb: cpu_s / gb,
        server_busy_s_per_gb: cpu_s * served.busy() / gb,
        client_cpu_s: driven.used.cpu_ns as f64 / 1e9,
        client_busy_s: driven.used.cpu_ns as f64 / 1e9 * driven.used.busy(),
        tenths: driven.tenths,
        distribution: driven.latencies.distribution(),
    })
}

/// A socket keeps the network namespace that its thread was in when it was made.
fn listen(args: &CeilingArgs) -> io::Result<TcpListener> {
    let address = SocketAddr::new(args.address, 0);
    let bind = move || {
        let listener = TcpListener::bind(address)?;
        reactor::unpace_loopback(&listener, &address);
        Ok(listener)
    };
    let Some(net) = &args.server_net else {
        return bind();
    };
    let net = File::open(net)?;
    let within = move || {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(net.as_fd(), kind)?;
        bind()
    };
    let listening = thread::spawn(within).join();
    listening.expect("the thread does not panic")
}

/// A connection as weft makes its own.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::from(reactor::tcp_socket(&to)?);
    stream.set_nonblocking(false)?;
    rustix::net::connect(&stream, &to)?;
    prepare(stream)
}

fn prepare(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// What client and server tell each other.
struct CeilingPhase {
    /// Both have their memory and stand on their CPU.
    ready: Barrier,
    measuring: AtomicBool,
    end: AtomicBool,
}

/// What a thread used while measuring.
struct Used {
    cpu_ns: u64,
    idle_ns: u64,
    elapsed_ns: u64,
}

impl Used {
    /// The share of the time in which it had something to do.
    fn busy(&self) -> f64 {
        1.0 - self.idle_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

struct Driven {
    latencies: Latencies,
    elapsed_ns: u64,
    used: Used,
    tenths: Vec<u64>,
}

/// A turn found nothing to do: asking at once again would hold the socket's lock
/// against arriving data, and on one CPU keep the other side from running.
fn pause(args: &CeilingArgs) {
    match args.server_cpu == args.client_cpu {
        true => thread::yield_now(),
        false => (0..EMPTY_SPINS).for_each(|_| std::hint::spin_loop()),
    }
}

/// `Ok(0)` where a nonblocking call would have to wait.
fn ready(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        other => other,
    }
}

/// A stream of equal messages whose bytes come from one small buffer.
struct MessagePattern {
    bytes: Vec<u8>,
    message: usize,
}

impl MessagePattern {
    fn new(message: usize) -> Self {
        let repeats = HOT_BYTES.div_ceil(message);
        MessagePattern {
            bytes: vec![0x5a; repeats * message],
            message,
        }
    }

    /// Sends up to `pending` bytes whose first is byte `at` of a message.
    fn send(&self, to: &mut TcpStream, pending: usize, at: usize) -> io::Result<usize> {
        debug_assert!(at < self.message);
        let end = self.bytes.len().min(at + pending);
        ready(to.write(&self.bytes[at..end]))
    }
}

/// One connection of the server.
struct Serving {
    stream: TcpStream,
    /// Bytes of the request being received that are here.
    partial: usize,
    /// Bytes of replies not sent yet, and where in a reply the first stands.
    pending: usize,
    at: usize,
    /// Where the payload of each reply that is not sent yet lies (with a span).
    sources: VecDeque<usize>,
}

/// The server's payload memory when it is large: chunks of one operation each.
struct Span<'a> {
    headers: Headers,
    chunks: Vec<&'a mut [u8]>,
    random: Random,
    /// Chunks and headers of one vectored receive.
    taken: Vec<(usize, &'a mut [u8])>,
}

fn serve(args: &CeilingArgs, streams: Vec<TcpStream>, phase: &CeilingPhase) -> io::Result<Used> {
    let pinned = reactor::pin_to_cpu(args.server_cpu);
    let bs = args.bs as usize;
    let (request, reply) = message_bytes(args);
    let pattern = MessagePattern::new(reply);
    let mut hot = vec![0u8; HOT_BYTES];
    // Written once, so that its pages are there before the measurement.
    let mut memory = vec![1u8; args.span as usize / bs * bs];
    let mut span = (args.span > 0).then(|| Span::new(args, &mut memory));
    let mut connections: Vec<Serving> = streams
        .into_iter()
        .map(|stream| Serving {
            stream,
            partial: 0,
            pending: 0,
            at: 0,
            sources: VecDeque::new(),
        })
        .collect();
    phase.ready.wait();
    pinned?;
    let clock = Clock::start();
    let (mut idle_ns, mut begun, mut now) = (0, None, clock.now());
    while !phase.end.load(Ordering::Acquire) {
        let mut moved = 0;
        for c in &mut connections {
            let got = match &mut span {
                Some(span) if args.rw == Shape::Write => span.receive(c, bs, &mut hot),
                _ => ready(c.stream.read(&mut hot)),
            };
            let Ok(got) = got else { continue };
            let complete = (c.partial + got) / request;
            c.partial = (c.partial + got) % request;
            c.pending += complete * reply;
            moved += got;
            if c.pending == 0 {
                continue;
            }
            let sent = match &mut span {
                Some(span) if args.rw == Shape::Read => {
                    let count = span.chunks.len() as u64;
                    c.sources
                        .extend((0..complete).map(|_| span.random.below(count) as usize));
                    span.send(c, reply)
                }
                _ => pattern.send(&mut c.stream, c.pending, c.at),
            };
            let Ok(sent) = sent else { continue };
            c.pending -= sent;
            c.at = (c.at + sent) % reply;
            moved += sent;
        }
        let before = std::mem::replace(&mut now, clock.now());
        if begun.is_none() && phase.measuring.load(Ordering::Relaxed) {
            begun = Some((now, thread_cpu_ns()));
            idle_ns = 0;
        } else if moved == 0 {
            idle_ns += now - before;
        }
        if moved == 0 && args.server_cpu == args.client_cpu {
            pause(args);
        }
    }
    let (began, cpu) = begun.unwrap_or_default();
    Ok(Used {
        cpu_ns: thread_cpu_ns() - cpu,
        idle_ns,
        elapsed_ns: now - began,
    })
}

impl<'a> Span<'a> {
    fn new(args: &CeilingArgs, memory: &'a mut [u8]) -> Span<'a> {
        Span {
            headers: args.headers,
            chunks: memory.chunks_exact_mut(args.bs as usize).collect(),
            random: Random::new(1),
            taken: Vec::with_capacity(SLICES_MAX),
        }
    }

    /// Receives requests with their payload, each payload into a random chunk.
    fn receive(&mut self, c: &mut Serving, bs: usize, headers: &mut [u8]) -> io::Result<usize> {
        let (request, _) = self.headers.bytes(Shape::Write);
        let messages = (HOT_BYTES * 2 / bs).clamp(2, SLICES_MAX / 2);
        let mut slices: Vec<IoSliceMut<'_>> = Vec::with_capacity(2 * messages);
        for _ in 0..messages {
            let mut index = self.random.below(self.chunks.len() as u64) as usize;
            while self.chunks[index].is_empty() {
                index = (index + 1) % self.chunks.len();
            }
            self.taken
                .push((index, std::mem::take(&mut self.chunks[index])));
        }
        let mut skip = c.partial;
        let headers = headers.chunks_exact_mut(request);
        for (header, (_, chunk)) in headers.zip(&mut self.taken) {
            for part in [header, &mut **chunk] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices.push(IoSliceMut::new(&mut part[skipped..]));
                }
            }
        }
        let got = ready(c.stream.read_vectored(&mut slices));
        drop(slices);
        for (index, chunk) in self.taken.drain(..) {
            self.chunks[index] = chunk;
        }
        got
    }

    /// Sends replies, each payload from its own chunk.
    fn send(&mut self, c: &mut Serving, reply: usize) -> io::Result<usize> {
        let header = &[0x5a; REPLY_BYTES_MAX][..self.headers.bytes(Shape::Read).1];
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut used, mut skip) = (0, c.at);
        for source in c.sources.iter().take(SLICES_MAX / 2) {
            for part in [header, &*self.chunks[*source]] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices[used] = IoSlice::new(&part[skipped..]);
                    used += 1;
                }
            }
        }
        // A client that has ended is no signal to this process, as a write would be.
        let mut nothing = SendAncillaryBuffer::default();
        let sent = sendmsg(
            &c.stream,
            &slices[..used],
            &mut nothing,
            SendFlags::NOSIGNAL,
        );
        let sent = ready(sent.map_err(io::Error::from))?;
        c.sources.drain(..(c.at + sent) / reply);
        Ok(sent)
    }
}

/// Bytes of a request and of a reply.
fn message_bytes(args: &CeilingArgs) -> (usize, usize) {
    let (request, reply) = args.headers.bytes(args.rw);
    match args.rw {
        Shape::Read => (request, reply + args.bs as usize),
        Shape::Write => (request + args.bs as usize, reply),
    }
}

/// One connection of the client.
struct Driving {
    stream: TcpStream,
    /// Bytes of the reply being received that are here.
    partial: usize,
    /// Bytes of requests not sent yet, and where in a request the first stands.
    pending: usize,
    at: usize,
    /// When each operation in flight was begun, oldest first.
    begun: VecDeque<u64>,
}

/// An open loop: each operation has its own time, on one connection after the
/// other.
struct Schedule {
    interval_ns: f64,
    /// Operations begun so far.
    count: u64,
}

impl Schedule {
    fn new(rate: f64) -> Schedule {
        Schedule {
            interval_ns: 1e9 / rate,
            count: 0,
        }
    }

    /// Begins what is due, unless the connection whose turn it is has `depth` in
    /// flight: latency counts from when it was due.
    fn begin(&mut self, now: u64, connections: &mut [Driving], depth: usize, request: usize) {
        let turns = connections.len() as u64;
        loop {
            let due = (self.count as f64 * self.interval_ns) as u64;
            let connection = &mut connections[(self.count % turns) as usize];
            if due > now || connection.begun.len() >= depth {
                return;
            }
            connection.pending += request;
            connection.begun.push_back(due);
            self.count += 1;
        }
    }
}

/// What the client measures, turn by turn.
struct Watch {
    ramp_ns: u64,
    end_ns: u64,
    tenth_ns: u64,
    latencies: Latencies,
    /// When measuring began.
    began: Option<u64>,
    /// CPU time until then.
    cpu_ns: u64,
    idle_ns: u64,
    /// When the last turn began, and whether it found anything to do.
    before: u64,
    has_moved: bool,
    tenths: Vec<u64>,
    /// Operations of the tenths that are over.
    done: u64,
}

impl Watch {
    fn new(args: &CeilingArgs) -> Watch {
        let ramp_ns = args.ramp_time.as_nanos() as u64;
        let runtime_ns = args.runtime.as_nanos() as u64;
        Watch {
            ramp_ns,
            end_ns: ramp_ns + runtime_ns,
            tenth_ns: (runtime_ns / 10).max(1),
            latencies: Latencies::default(),
            began: None,
            cpu_ns: 0,
            idle_ns: 0,
            before: 0,
            has_moved: true,
            tenths: Vec::new(),
            done: 0,
        }
    }

    /// A turn begins; whether it is one too many.
    #[inline]
    fn is_over(&mut self, now: u64, phase: &CeilingPhase) -> bool {
        if !std::mem::take(&mut self.has_moved) {
            self.idle_ns += now - self.before;
        }
        self.before = now;
        let Some(began) = self.began else {
            if now >= self.ramp_ns {
                phase.measuring.store(true, Ordering::Relaxed);
                self.latencies.reset();
                (self.began, self.cpu_ns, self.idle_ns) = (Some(now), thread_cpu_ns(), 0);
            }
            return false;
        };
        while self.tenths.len() < 9 && now >= began + self.tenth_ns * (self.tenths.len() as u64 + 1)
        {
            self.end_tenth();
        }
        // A figure needs an operation, however busy the machine is.
        now >= self.end_ns && self.latencies.count() > 0
    }

    fn end_tenth(&mut self) {
        self.tenths.push(self.latencies.count() - self.done);
        self.done = self.latencies.count();
    }

    fn driven(mut self, now: u64) -> Driven {
        self.tenths.resize(9, 0);
        self.end_tenth();
        let elapsed_ns = now - self.began.unwrap_or(now);
        Driven {
            latencies: self.latencies,
            elapsed_ns,
            used: Used {
                cpu_ns: thread_cpu_ns() - self.cpu_ns,
                idle_ns: self.idle_ns,
                elapsed_ns,
            },
            tenths: self.tenths,
        }
    }
}

fn drive(args: &CeilingArgs, streams: Vec<TcpStream>, phase: &CeilingPhase) -> io::Result<Driven> {
    let pinned = reactor::pin_to_cpu(args.client_cpu);
    let (request, reply) = message_bytes(args);
    let pattern = MessagePattern::new(request);
    let mut hot = vec![0u8; HOT_BYTES];
    phase.ready.wait();
    pinned?;
    let clock = Clock::start();
    let depth = args.iodepth as usize;
    let mut schedule = args.rate.map(Schedule::new);
    let first = if schedule.is_some() { 0 } else { depth };
    let mut connections: Vec<Driving> = streams
        .into_iter()
        .map(|stream| Driving {
            stream,
            partial: 0,
            pending: first * request,
            at: 0,
            begun: std::iter::repeat_n(0, first).collect(),
        })
        .collect();
    let mut watch = Watch::new(args);
    loop {
        let now = clock.now();
        if watch.is_over(now, phase) {
            return Ok(watch.driven(now));
        }
        if let Some(schedule) = &mut schedule {
            schedule.begin(now, &mut connections, depth, request);
        }
        for c in &mut connections {
            if c.pending > 0 {
                let sent = pattern.send(&mut c.stream, c.pending, c.at)?;
                c.pending -= sent;
                c.at = (c.at + sent) % request;
            }
            let got = ready(c.stream.read(&mut hot))?;
            if got == 0 {
                pause(args);
                continue;
            }
            watch.has_moved = true;
            let complete = (c.partial + got) / reply;
            c.partial = (c.partial + got) % reply;
            if complete > 0 {
                let now = clock.now();
                for begun in c.begun.drain(..complete) {
                    watch.latencies.record(now - begun);
                }
                if schedule.is_none() {
                    c.pending += complete * request;
                    c.begun.extend(std::iter::repeat_n(now, complete));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick_args(rw: Shape, bs: u64, span: u64, numjobs: u32) -> CeilingArgs {
        let cpu = reactor::available_cpus()[0];
        CeilingArgs {
            rw,
            bs,
            iodepth: 8,
            numjobs,
            runtime: Duration::from_millis(100),
            ramp_time: Duration::from_millis(20),
            server_cpu: cpu,
            client_cpu: cpu,
            span,
            headers: Headers::Nfs,
            rate: None,
            address: Ipv4Addr::LOCALHOST.into(),
            server_net: None,
            json: false,
        }
    }

    #[test]
    fn every_shape_completes_operations() {
        for rw in [Shape::Read, Shape::Write] {
            for (bs, span) in [
                (4096, 0),
                (4096, 4 << 20),
                (131_072, 0),
                (131_072, 32 << 20),
            ] {
                let report = measure(&quick_args(rw, bs, span, 2)).expect("the ceiling runs");
                assert!(report.latency.count > 0, "{rw:?} {bs} {span}");
                let object = serde_json::to_value(&report).expect("JSON");
                assert_eq!(object["bs"], bs);
                assert!(object["latency"]["p99_99_us"].as_f64().expect("number") > 0.0);
                let tenths: u64 = report.tenths.iter().sum();
                assert_eq!((report.tenths.len(), tenths), (10, report.latency.count));
                assert!(report.client_busy_s <= report.client_cpu_s && report.client_busy_s > 0.0);
            }
        }
    }

    #[test]
    fn an_open_loop_does_what_is_asked_and_no_more() {
        let args = CeilingArgs {
            rate: Some(2_000.0),
            ..quick_args(Shape::Read, 4096, 0, 2)
        };
        let report = measure(&args).expect("the ceiling runs");
        let asked = 2_000.0 * report.seconds;
        // Whatever of the ramp is made up for, and not a whole depth more.
        let most = asked + 2_000.0 * args.ramp_time.as_secs_f64() + 16.0;
        let count = report.latency.count as f64;
        assert!(count > 0.0 && count <= most, "{count} of {asked}");
    }

    #[test]
    fn requests_that_are_due_begin_in_turn_and_count_from_then() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let connection = |_| Driving {
            stream: TcpStream::connect(listener.local_addr().expect("bound")).expect("connects"),
            partial: 0,
            pending: 0,
            at: 0,
            begun: VecDeque::new(),
        };
        let mut connections: Vec<_> = (0..2).map(connection).collect();
        let mut schedule = Schedule::new(1e6);
        schedule.begin(3_500, &mut connections, 2, 72);
        let begun = |at: usize, all: &[Driving]| Vec::from(all[at].begun.clone());
        assert_eq!(begun(0, &connections), [0, 2_000]);
        assert_eq!(begun(1, &connections), [1_000, 3_000]);
        assert_eq!(connections[0].pending, 144);
        // Full: the next waits, and counts from when it was due.
        schedule.begin(9_000, &mut connections, 2, 72);
        assert_eq!(begun(0, &connections), [0, 2_000]);
        connections[0].begun.pop_front();
        schedule.begin(9_000, &mut connections, 2, 72);
        assert_eq!(begun(0, &connections), [2_000, 4_000]);
    }

    #[test]
    fn a_cpu_that_is_not_there_ends_both_sides() {
        for (server_cpu, client_cpu) in [(0, 4095), (4095, 0)] {
            let args = CeilingArgs {
                server_cpu,
                client_cpu,
                ..quick_args(Shape::Read, 4096, 0, 1)
            };
            assert!(measure(&args).is_err());
        }
    }

    #[test]
    fn a_span_smaller_than_a_batch_is_refused() {
        let args = quick_args(Shape::Read, 4096, 4096, 1);
        let error = measure(&args).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
