//! What a send costs the sender, copied, held page by page, and from registered
//! buffers: `cargo run --release -p reactor --example zero_copy`, as root.
//!
//! Loopback copies what is sent zero-copy, so this sends to nowhere: TCP over a
//! device that drops whatever it is given, with acknowledgements put in by hand.
//! In a network namespace of its own, with 1,500 bytes a packet, segments up to
//! 64 KiB cut and summed by the "card", no pacing. The card's own work is what
//! is missing.
#![allow(unsafe_code)]

use mem::{Budget, CHUNK_BYTES, Pool, Region};
use random::Random;
use reactor::{AnyDriver, Choice, Completion, Driver, DriverConfig, SocketId, Wait};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;

const MEMORY: u64 = 512 << 20;
const ROUNDS: usize = 5;
const ROUND_BYTES: usize = 64 << 20;
const FIRST_SENT: u32 = 1000;
const FIRST_RECEIVED: u32 = 2000;
const PORT: u16 = 6000;
/// Acknowledged at a time, as by a peer that is not slow.
const ACK_BYTES: u64 = 256 << 10;
const SETUP: &str = "set -e; cd /proc/sys/net/ipv4
echo reno > tcp_congestion_control; echo 0 > tcp_early_retrans; echo 0 > tcp_slow_start_after_idle
ip link add sink type ifb; ip link set sink mtu 1500; ip addr add 10.9.0.1/24 dev sink
ip link set sink up; ip link set ack up; ip route add 10.9.0.2/32 dev sink initcwnd 20000";

fn option<T>(fd: RawFd, level: i32, name: i32, value: &T) {
    let (at, len) = ((&raw const *value).cast(), size_of::<T>() as u32);
    // SAFETY: the value is as long as we say.
    let rc = unsafe { libc::setsockopt(fd, level, name, at, len) };
    assert!(rc == 0, "{}", std::io::Error::last_os_error());
}

fn address(last: u8, port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([10, 9, 0, last]),
        },
        sin_zero: [0; 8],
    }
}

/// The Internet checksum (RFC 1071).
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2);
    let mut sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// The device by which acknowledgements come.
fn tun() -> OwnedFd {
    const TUNSETIFF: u64 = 0x4004_54ca;
    let mut request = [0u8; 40];
    request[..3].copy_from_slice(b"ack");
    request[16..18].copy_from_slice(&0x1001u16.to_ne_bytes()); // IFF_TUN | IFF_NO_PI
    // SAFETY: a path with its end, and a request as long as the kernel's.
    unsafe {
        let fd = libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        assert!(fd >= 0, "no /dev/net/tun");
        assert!(libc::ioctl(fd, TUNSETIFF, request.as_mut_ptr()) == 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// A connection without a handshake (TCP_REPAIR).
fn connection(port: u16) -> OwnedFd {
    const REPAIR: [i32; 5] = [19, 20, 21, 22, 29]; // itself, queue, seq, options, window
    let [repair, queue, sequence, options, window] = REPAIR;
    // SAFETY: plain calls with addresses of ours.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let set = |name, value: i32| option(fd, libc::IPPROTO_TCP, name, &value);
        set(repair, 1);
        let (ours, theirs) = (address(1, port), address(2, PORT));
        assert!(libc::bind(fd, (&raw const ours).cast(), 16) == 0);
        for (which, first) in [(2, FIRST_SENT), (1, FIRST_RECEIVED)] {
            set(queue, which);
            set(sequence, first as i32);
        }
        assert!(libc::connect(fd, (&raw const theirs).cast(), 16) == 0);
        let scale = 14 | 14 << 16;
        option(fd, libc::IPPROTO_TCP, options, &[2, 1460, 3, scale]);
        let wide = [FIRST_RECEIVED, 1 << 29, 1 << 29, 65_535, FIRST_RECEIVED];
        option(fd, libc::IPPROTO_TCP, window, &wide);
        set(repair, -1);
        OwnedFd::from_raw_fd(fd)
    }
}

/// One way of sending, on a connection of its own.
struct Way {
    driver: AnyDriver,
    fd: RawFd,
    port: u16,
    socket: SocketId,
    memory: Region,
    acked: u64,
    out: Vec<Completion>,
}

impl Way {
    fn new(number: u16, config: DriverConfig, memory: Region) -> Way {
        let all = memory.range(0, CHUNK_BYTES as u32);
        for at in (0..MEMORY).step_by(all.len() as usize) {
            mem::copy_in(memory.range(at, all.len()), &vec![7; all.len() as usize]);
        }
        let pool = Pool::new(Budget::new(64 << 20)).expect("memory");
        let mut driver = reactor::open(Choice::Uring, &config, pool).expect("io_uring");
        let port = 5000 + number;
        let fd = connection(port);
        Way {
            fd: fd.as_raw_fd(),
            port,
            socket: driver.add_socket(fd.into()).expect("a place"),
            driver,
            memory,
            acked: 0,
            out: Vec::new(),
        }
    }

    /// Bytes that went out (`tcpi_bytes_sent`, `tcpi_bytes_retrans`).
    fn sent(&self) -> u64 {
        let (mut info, mut len) = ([0u8; 232], 232u32);
        // SAFETY: as many bytes as we say.
        unsafe {
            let at = info.as_mut_ptr().cast();
            libc::getsockopt(self.fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &mut len);
        }
        let at = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().expect("8 bytes"));
        at(200) - at(208)
    }

    /// Acknowledges what went out.
    fn ack(&mut self, tun: &OwnedFd) {
        let sent = self.sent();
        if sent == self.acked {
            return;
        }
        self.acked = sent;
        let mut packet = [0u8; 52];
        // What TCP sums besides its segment (RFC 9293, 3.1) lies before it.
        packet[..12].copy_from_slice(&[10, 9, 0, 2, 10, 9, 0, 1, 0, 6, 0, 20]);
        packet[12..14].copy_from_slice(&PORT.to_be_bytes());
        packet[14..16].copy_from_slice(&self.port.to_be_bytes());
        packet[16..20].copy_from_slice(&FIRST_RECEIVED.to_be_bytes());
        let next = FIRST_SENT.wrapping_add(sent as u32);
        packet[20..24].copy_from_slice(&next.to_be_bytes());
        packet[24..28].copy_from_slice(&[0x50, 0x10, 0xff, 0xff]);
        let tcp = sum(&packet[..32]);
        packet[28..30].copy_from_slice(&tcp);
        let mut ip = [0u8; 40];
        ip[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
        ip[12..20].copy_from_slice(&packet[..8]);
        let header = sum(&ip[..20]);
        ip[10..12].copy_from_slice(&header);
        ip[20..].copy_from_slice(&packet[12..32]);
        // SAFETY: the packet is ours.
        let written = unsafe { libc::write(tun.as_raw_fd(), ip.as_ptr().cast(), 40) };
        assert!(written == 40, "the acknowledgement is lost");
    }

    /// Microseconds of CPU for one PDU of `len` bytes, `pdus` to a batch.
    fn round(
        &mut self,
        tun: &OwnedFd,
        len: u64,
        pdus: usize,
        is_cold: bool,
        random: &mut Random,
    ) -> f64 {
        let batches = ROUND_BYTES / (len as usize * pdus);
        let (start, mut unacked) = (cpu_ns(), 0);
        for _ in 0..batches {
            let mut batch = self.driver.batch();
            for _ in 0..pdus {
                let place = if is_cold {
                    random.below(MEMORY / len)
                } else {
                    0
                };
                batch.header(&[0; 24]);
                batch.payload(self.memory.range(place * len, len as u32));
            }
            unacked += batch.len_bytes();
            self.driver.send(self.socket, batch, 1);
            while self.out.is_empty() {
                self.driver
                    .poll(Wait::Now, &mut self.out)
                    .expect("the ring");
                if self.out.is_empty() {
                    self.ack(tun);
                }
            }
            assert!(matches!(
                self.out.pop(),
                Some(Completion::Sent { result: Ok(()), .. })
            ));
            if unacked >= ACK_BYTES {
                self.ack(tun);
                unacked = 0;
            }
        }
        (cpu_ns() - start) as f64 / 1000.0 / (batches * pdus) as f64
    }
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() {
    // SAFETY: plain call.
    let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert!(rc == 0, "a network namespace wants root");
    let tun = tun();
    let done = Command::new("sh").args(["-c", SETUP]).status();
    assert!(done.expect("sh").success(), "iproute2 and ifb are needed");
    let zero_copy = DriverConfig {
        zero_copy_min_bytes: Some(1),
        ..DriverConfig::default()
    };
    let registered = DriverConfig {
        registered_min_bytes: Some(1),
        ..zero_copy
    };
    let map = |map: fn(u64) -> std::io::Result<Region>| map(MEMORY).expect("memory");
    let mut ways = [
        Way::new(0, DriverConfig::default(), map(Region::bulk)),
        Way::new(1, zero_copy, map(Region::bulk)),
        Way::new(2, zero_copy, map(Region::small_pages)),
        Way::new(3, registered, map(Region::small_pages)),
    ];
    println!("us of CPU for a PDU, median of {ROUNDS}; zero-copy: pages of 2 MiB, of 4 KiB");
    println!("  payload x PDUs         copy  zero-copy   (4 KiB)  registered");
    let mut random = Random::new(1);
    for is_cold in [false, true] {
        for (kib, pdus) in [
            (4, 1),
            (4, 8),
            (4, 32),
            (8, 1),
            (8, 16),
            (16, 1),
            (16, 8),
            (32, 1),
            (64, 1),
            (64, 8),
            (128, 1),
            (128, 8),
            (256, 1),
            (512, 1),
            (1024, 1),
        ] {
            let mut taken = [const { Vec::new() }; 4];
            for _ in 0..ROUNDS {
                for (way, taken) in ways.iter_mut().zip(&mut taken) {
                    taken.push(way.round(&tun, kib << 10, pdus, is_cold, &mut random));
                }
            }
            let medians = taken.map(|mut taken| {
                taken.sort_by(f64::total_cmp);
                taken[ROUNDS / 2]
            });
            let [copy, huge, small, registered] = medians;
            let cold = if is_cold { "cold" } else { "hot" };
            println!(
                "{kib:5} KiB x {pdus:2} {cold:4}  {copy:10.2} {huge:10.2} {small:9.2} {registered:11.2}"
            );
        }
    }
    for way in &ways {
        let counters = way.driver.counters();
        println!("{:?}", counters);
    }
}
