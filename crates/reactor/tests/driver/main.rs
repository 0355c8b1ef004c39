//! What every driver owes its user, run against each of them.
#![allow(unsafe_code)]

mod spin;
mod tickets;
mod zero_copy;

use mem::{Budget, Buf, BufRange, Pool, Region, Stage, copy_in, copy_out};
use needs::{each_driver, needs};
use reactor::{
    AnyDriver, BoundListener, Choice, Completion, DiskFile, Driver, DriverConfig, FallocateMode,
    FileIo, Received, SocketId, Wait, open,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;

const ANY_PORT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
const PATIENCE_NS: u64 = 10_000_000_000;

/// A driver and the completions that were not asked for yet.
struct World {
    driver: AnyDriver,
    out: Vec<Completion>,
}

impl World {
    fn with(choice: Choice, memory_max: u64, config: DriverConfig) -> World {
        let budget = Budget::new(memory_max);
        let pool = match config.registered_min_bytes {
            Some(_) => Pool::in_small_pages(budget).unwrap(),
            None => Pool::new(budget).unwrap(),
        };
        World {
            driver: open(choice, &config, pool).unwrap(),
            out: Vec::with_capacity(64),
        }
    }

    fn new(choice: Choice) -> World {
        World::with(choice, 64 << 20, DriverConfig::default())
    }

    fn poll_now(&mut self) {
        self.driver.poll(Wait::Now, &mut self.out).unwrap();
    }

    fn next(&mut self) -> Completion {
        self.driver.poll(Wait::Now, &mut self.out).unwrap();
        let give_up = self.driver.now() + PATIENCE_NS;
        while self.out.is_empty() {
            assert!(self.driver.now() < give_up, "nothing completed");
            let wait = Wait::Until(give_up);
            self.driver.poll(wait, &mut self.out).unwrap();
        }
        self.out.remove(0)
    }

    /// A socket of the driver and its peer.
    fn pair(&mut self) -> (SocketId, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_nodelay(true).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let (ours, _) = listener.accept().unwrap();
        let fd = OwnedFd::from(ours);
        shrink_send_buffer(&fd);
        (self.driver.add_socket(fd.into()).unwrap(), peer)
    }

    /// Polls without sleeping until there is a completion.
    fn spin(&mut self) -> Completion {
        let give_up = self.driver.now() + PATIENCE_NS;
        while self.out.is_empty() {
            assert!(self.driver.now() < give_up, "nothing completed");
            self.poll_now();
        }
        self.out.remove(0)
    }

    fn received(&mut self) -> Received {
        match self.next() {
            Completion::Received { result, .. } => result.unwrap(),
            other => panic!("not a receive: {other:?}"),
        }
    }

    fn sent(&mut self) {
        match self.next() {
            Completion::Sent { result, .. } => result.unwrap(),
            other => panic!("not a send: {other:?}"),
        }
    }

    fn file(&mut self, want: u64) -> std::io::Result<u32> {
        match self.next() {
            Completion::File { token, result } => {
                assert_eq!(token, want);
                result
            }
            other => panic!("not a file operation: {other:?}"),
        }
    }

    fn close(&mut self, socket: SocketId) {
        self.driver.close(socket, 99);
        match self.next() {
            Completion::Closed { token } => assert_eq!(token, 99),
            other => panic!("not the close: {other:?}"),
        }
        self.poll_now();
        assert!(self.out.is_empty(), "{:?} after the close", self.out);
    }

    fn send_bytes(&mut self, socket: SocketId, bytes: &[u8]) {
        let mut batch = self.driver.batch();
        batch.header(bytes);
        self.driver.send(socket, batch, 7);
    }

    fn buf(&self, len: u32) -> Buf {
        self.driver.pool().get(len).unwrap()
    }

    fn stage(&self, bytes: &[u8]) -> Stage {
        let mut stage = self.driver.pool().stage().unwrap();
        stage.append(bytes);
        stage
    }
}

fn shrink_send_buffer(fd: &OwnedFd) {
    let size = 4096i32;
    // SAFETY: four bytes of ours.
    unsafe {
        let at = (&raw const size).cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, at, 4);
    }
}

fn reset(peer: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the structure is ours and as long as we say.
    unsafe {
        let (at, len) = ((&raw const linger).cast(), size_of::<libc::linger>() as u32);
        libc::setsockopt(peer.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, len);
    }
}

fn bytes_of(range: BufRange) -> Vec<u8> {
    let mut bytes = vec![0; range.len() as usize];
    copy_out(range, &mut bytes);
    bytes
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[each_driver]
fn connects_accepts_and_talks(choice: Choice) {
    connects_accepts_and_talks_at("127.0.0.1:0", choice);
}

#[each_driver(ipv6)]
fn connects_accepts_and_talks_over_ipv6(choice: Choice) {
    connects_accepts_and_talks_at("[::1]:0", choice);
}

fn connects_accepts_and_talks_at(bind: &str, choice: Choice) {
    let mut world = World::new(choice);
    let listener = BoundListener::bind(bind.parse().unwrap()).unwrap();
    let addr = listener.address();
    world.driver.add_listener(listener, 1).unwrap();
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for token in [2, 3] {
        clients.push(world.driver.connect(addr, token).unwrap());
        let mut connected = false;
        while !connected || servers.len() < clients.len() {
            match world.next() {
                Completion::Accepted { token: 1, result } => {
                    let (connected, peer) = result.unwrap();
                    assert_eq!(peer.ip(), addr.ip());
                    servers.push(world.driver.add_socket(connected).unwrap());
                }
                Completion::Connected { token: at, result } => {
                    result.unwrap();
                    assert_eq!(at, token);
                    connected = true;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    for (&client, &server) in clients.iter().zip(&servers) {
        world.driver.recv(server, None, None, 100, 5);
        world.send_bytes(client, b"hello");
        let mut got = Vec::new();
        let mut sent = false;
        while !sent || got.is_empty() {
            match world.next() {
                Completion::Sent { token: 7, result } => {
                    result.unwrap();
                    sent = true;
                }
                Completion::Received { token: 5, result } => {
                    got = result.unwrap().stage.unwrap().bytes().to_vec();
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(got, b"hello");
    }
}

#[each_driver]
fn refused_connect_is_told(choice: Choice) {
    let mut world = World::new(choice);
    let addr = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let socket = world.driver.connect(addr, 4).unwrap();
    match world.next() {
        Completion::Connected { token, result } => {
            assert_eq!(token, 4);
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
    world.close(socket);
}

#[each_driver]
fn listener_closes(choice: Choice) {
    let mut world = World::new(choice);
    let listener = BoundListener::bind(ANY_PORT).unwrap();
    let addr = listener.address();
    let id = world.driver.add_listener(listener, 1).unwrap();
    world.poll_now();
    world.close(id);
    assert!(TcpStream::connect(addr).is_err());
}

/// What the runner calls the test `name` on a driver.
fn test_on(choice: Choice, name: &str) -> String {
    let driver = match choice {
        Choice::Uring => "io_uring",
        _ => "epoll",
    };
    format!("{name}::{driver}")
}

/// Runs a test once more, in a process of its own; true in there.
fn is_alone(choice: Choice, name: &str) -> bool {
    const MARK: &str = "WEFT_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let alone = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test_on(choice, name)])
        .env(MARK, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&alone.stdout);
    assert!(
        alone.status.success() && told.contains("1 passed"),
        "{told}"
    );
    false
}

/// Lets this process open `more` descriptors.
fn limit_descriptors(more: u64) {
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let limit = libc::rlimit {
        rlim_cur: next + more,
        rlim_max: next + more,
    };
    // SAFETY: the limit is ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

#[each_driver]
fn listener_outlives_want_of_descriptors(choice: Choice) {
    if !is_alone(choice, "listener_outlives_want_of_descriptors") {
        return;
    }
    let mut world = World::new(choice);
    let listener = BoundListener::bind(ANY_PORT).unwrap();
    let addr = listener.address();
    let mut clients: Vec<_> = (0..5).map(|_| TcpStream::connect(addr).unwrap()).collect();
    limit_descriptors(2);
    world.driver.add_listener(listener, 1).unwrap();
    let mut next = || match world.next() {
        Completion::Accepted { token: 1, result } => result,
        other => panic!("{other:?}"),
    };
    let mut servers = Vec::new();
    let mut refusals = 0;
    while servers.len() < clients.len() {
        match next() {
            Ok((connected, _)) => servers.push(Some(connected)),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                refusals += 1;
                // Still none the second time; then one comes free.
                if refusals % 2 == 0 {
                    let last = servers.last_mut().unwrap().take().unwrap();
                    TcpStream::from(last.into_descriptor().unwrap())
                        .write_all(b"served")
                        .unwrap();
                }
            }
        }
    }
    assert_eq!(refusals, 6);
    for client in &mut clients[1..4] {
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert_eq!(told, "served");
    }
}

#[each_driver]
fn direct_and_stage_at_every_split(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    let all = pattern(40);
    let buf = world.buf(16);
    for split in 0..=all.len() {
        let (mut direct, mut staged) = (0, Vec::new());
        for part in [&all[..split], &all[split..]] {
            if part.is_empty() {
                continue;
            }
            peer.write_all(part).unwrap();
            let mut left = part.len();
            while left > 0 {
                let rest = (direct < 16).then(|| buf.range().slice(direct, 16 - direct));
                world.driver.recv(socket, rest, None, 100, 0);
                let received = world.received();
                assert!(!received.eof);
                direct += received.direct;
                left -= received.direct as usize;
                if let Some(stage) = received.stage {
                    assert_eq!(direct, 16, "staged before the direct part was full");
                    left -= stage.len();
                    staged.extend_from_slice(stage.bytes());
                }
            }
        }
        assert_eq!(bytes_of(buf.range()), all[..16]);
        assert_eq!(staged, all[16..]);
    }
}

#[each_driver]
fn more_in_the_socket_is_told(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    peer.write_all(b"0123456789").unwrap();
    let buf = world.buf(4);
    for more in [true, true, false] {
        world.driver.recv(socket, Some(buf.range()), None, 0, 0);
        let received = world.received();
        assert_eq!(received.more, more, "after {} bytes", received.direct);
    }
    peer.write_all(b"0123").unwrap();
    world.driver.recv(socket, Some(buf.range()), None, 0, 0);
    assert!(!world.received().more, "filled, and nothing left");
    drop(peer);
    world.driver.recv(socket, Some(buf.range()), None, 0, 0);
    let received = world.received();
    assert!(received.eof && !received.more);
}

#[each_driver]
fn direct_alone_and_stage_alone(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    peer.write_all(b"0123456789").unwrap();
    let buf = world.buf(4);
    world.driver.recv(socket, Some(buf.range()), None, 0, 0);
    let received = world.received();
    assert_eq!((received.direct, received.stage.is_none()), (4, true));
    assert_eq!(bytes_of(buf.range()), b"0123");
    // No more than was allowed, with a stage of ours and of the driver's.
    world.driver.recv(socket, None, None, 2, 0);
    assert_eq!(world.received().stage.unwrap().bytes(), b"45");
    let stage = world.stage(b"");
    world.driver.recv(socket, None, Some(stage), 1, 0);
    assert_eq!(world.received().stage.unwrap().bytes(), b"6");
    let buf = world.buf(1);
    world.driver.recv(socket, Some(buf.range()), None, 1, 0);
    let received = world.received();
    assert_eq!(received.direct, 1);
    assert_eq!(received.stage.unwrap().bytes(), b"8");
}

#[each_driver]
fn given_stage_keeps_its_bytes(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    let stage = world.stage(b"head");
    let buf = world.buf(2);
    world
        .driver
        .recv(socket, Some(buf.range()), Some(stage), 100, 0);
    world.poll_now();
    peer.write_all(b"xy").unwrap();
    let received = world.received();
    assert_eq!(received.direct, 2);
    let stage = received.stage.unwrap();
    assert_eq!(stage.bytes(), b"head");
    peer.write_all(b"tail").unwrap();
    world.driver.recv(socket, None, Some(stage), 100, 0);
    assert_eq!(world.received().stage.unwrap().bytes(), b"headtail");
    // A small stage is changed for a larger one where more may come.
    let mut small = world.driver.pool().stage_of(10);
    small.append(b"small");
    let much = pattern(9000);
    peer.write_all(&much).unwrap();
    let mut got = 0;
    let mut stage = Some(small);
    while got < much.len() {
        world.driver.recv(socket, None, stage, 10_000, 0);
        stage = world.received().stage;
        got = stage.as_ref().unwrap().len() - 5;
    }
    assert_eq!(&stage.unwrap().bytes()[5..], much);
}

#[each_driver]
fn end_of_stream_is_told_and_stays(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    peer.write_all(b"last").unwrap();
    drop(peer);
    world.driver.recv(socket, None, None, 100, 0);
    let received = world.received();
    assert!(!received.eof);
    assert_eq!(received.stage.unwrap().bytes(), b"last");
    for _ in 0..2 {
        let stage = world.stage(b"unfinished");
        world.driver.recv(socket, None, Some(stage), 100, 0);
        let received = world.received();
        assert!(received.eof);
        assert_eq!(received.stage.unwrap().bytes(), b"unfinished");
        world.driver.recv(socket, None, None, 100, 0);
        let received = world.received();
        assert!(received.eof && received.stage.is_none() && received.direct == 0);
    }
    world.close(socket);
}

/// What the peer sent before its end lies there still.
#[each_driver]
fn end_of_a_peer_is_known_while_nothing_is_received(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    peer.write_all(b"last").unwrap();
    world.poll_now();
    assert!(!world.driver.peer_has_closed(socket));
    drop(peer);
    while !world.driver.peer_has_closed(socket) {
        world.poll_now();
    }
    world.driver.recv(socket, None, None, 100, 0);
    let received = world.received();
    assert_eq!(received.stage.unwrap().bytes(), b"last");
    world.close(socket);
}

#[each_driver]
fn many_pieces_through_a_small_send_buffer(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    let region = Region::anonymous(1 << 20).unwrap();
    let payload = pattern(3000);
    copy_in(region.range(5, 3000), &payload);
    let mut want = Vec::new();
    let mut batch = world.driver.batch();
    let mut pdu = 0;
    while batch.has_room() {
        let header = [pdu as u8; 24];
        batch.header(&header);
        batch.payload(region.range(5, 3000));
        batch.header(b"crc!");
        want.extend_from_slice(&header);
        want.extend_from_slice(&payload);
        want.extend_from_slice(b"crc!");
        pdu += 1;
    }
    assert_eq!(batch.len_bytes(), want.len() as u64);
    world.driver.send(socket, batch, 7);
    let len = want.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; len];
        peer.read_exact(&mut got).unwrap();
        got
    });
    world.sent();
    assert!(reader.join().unwrap() == want, "the stream differs");
    assert_eq!(world.driver.counters().send_bytes, len as u64);
    assert_eq!(world.driver.counters().sends, 1);
}

#[each_driver]
fn many_sockets_at_once(choice: Choice) {
    let mut world = World::new(choice);
    let mut pairs: Vec<_> = (0..100).map(|_| world.pair()).collect();
    for round in 0..3u8 {
        for (at, (socket, _)) in pairs.iter().enumerate() {
            world.driver.recv(*socket, None, None, 100, at as u64);
        }
        world.poll_now();
        for (at, (_, peer)) in pairs.iter_mut().enumerate() {
            peer.write_all(&[at as u8, round]).unwrap();
        }
        let mut left = pairs.len();
        while left > 0 {
            match world.next() {
                Completion::Received { token, result } => {
                    let stage = result.unwrap().stage.unwrap();
                    assert_eq!(stage.bytes(), [token as u8, round]);
                    left -= 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(world.driver.counters().recvs, 300);
}

#[each_driver]
fn reset_ends_both_directions(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, peer) = world.pair();
    world.driver.recv(socket, None, None, 100, 0);
    world.poll_now();
    reset(peer);
    match world.next() {
        Completion::Received { result, .. } => {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        other => panic!("{other:?}"),
    }
    world.send_bytes(socket, b"into the void");
    match world.next() {
        Completion::Sent { result, .. } => {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
        other => panic!("{other:?}"),
    }
    world.close(socket);
}

#[each_driver]
fn close_ends_what_is_outstanding(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    let reserved = world.driver.pool().budget().used();
    let direct = world.buf(4096);
    let payload = world.buf(1 << 20);
    let payload_at = payload.range().offset();
    let mut batch = world.driver.batch();
    for _ in 0..8 {
        batch.payload(payload.range());
    }
    batch.hold(payload);
    world.driver.send(socket, batch, 1);
    world
        .driver
        .recv(socket, Some(direct.range()), None, 100, 2);
    world.poll_now();
    world.poll_now();
    assert!(world.out.is_empty(), "the peer reads nothing");
    world.close(socket);
    let again = world.buf(1 << 20);
    assert_eq!(
        again.range().offset(),
        payload_at,
        "the batch was not let go"
    );
    let mut rest = Vec::new();
    // All that the kernel had taken, then the end.
    let _ = peer.read_to_end(&mut rest);
    assert!(rest.len() < 8 << 20);
    drop((direct, again));
    world.driver.pool().trim();
    assert!(world.driver.pool().budget().used() <= reserved + (2 << 20));
}

#[each_driver]
fn closed_socket_has_another_name(choice: Choice) {
    let mut world = World::new(choice);
    let (first, _peer) = world.pair();
    world.driver.recv(first, None, None, 100, 1);
    world.poll_now();
    world.close(first);
    let (second, mut peer) = world.pair();
    assert_ne!(first, second);
    world.driver.recv(second, None, None, 100, 2);
    peer.write_all(b"for the second").unwrap();
    match world.next() {
        Completion::Received { token: 2, result } => {
            assert_eq!(result.unwrap().stage.unwrap().bytes(), b"for the second");
        }
        other => panic!("{other:?}"),
    }
}

#[each_driver]
fn use_after_close_panics(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, _peer) = world.pair();
    world.close(socket);
    let (_other, _peer) = world.pair();
    let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.driver.recv(socket, None, None, 1, 1);
    }));
    assert!(used.is_err());
}

#[each_driver]
fn files_read_write_and_make_holes(choice: Choice) {
    let mut world = World::new(choice);
    let file = Arc::new(DiskFile::from(tempfile::tempfile().unwrap()));
    let (from, to) = (world.buf(100_000), world.buf(100_000));
    let bytes = pattern(100_000);
    copy_in(from.range(), &bytes);
    world.driver.write_at(&file, from.range(), 4096, false, 1);
    assert_eq!(world.file(1).unwrap(), 100_000);
    world
        .driver
        .write_at(&file, from.range().slice(0, 1), 4096, true, 2);
    assert_eq!(world.file(2).unwrap(), 1);
    world.driver.sync_data(&file, 3);
    assert_eq!(world.file(3).unwrap(), 0);
    world.driver.read_at(&file, to.range(), 4096, 4);
    assert_eq!(world.file(4).unwrap(), 100_000);
    assert_eq!(bytes_of(to.range()), bytes);
    // The end of the file cuts a read short, then there is nothing.
    world.driver.read_at(&file, to.range(), 4096 + 99_000, 5);
    assert_eq!(world.file(5).unwrap(), 1000);
    world.driver.read_at(&file, to.range(), 1 << 30, 6);
    assert_eq!(world.file(6).unwrap(), 0);
    let punch = FallocateMode::PunchHole;
    world.driver.fallocate(&file, punch, 8192, 4096, 7);
    match world.file(7) {
        Ok(_) => {
            world.driver.read_at(&file, to.range(), 4096, 8);
            assert_eq!(world.file(8).unwrap(), 100_000);
            let got = bytes_of(to.range());
            assert_eq!(got[..4096], bytes[..4096]);
            assert!(got[4096..8192].iter().all(|&byte| byte == 0));
            assert_eq!(got[8192..], bytes[8192..]);
        }
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
    }
    // Many at a time, each answered with its own token.
    for token in 100..200 {
        let piece = to.range().slice((token as u32 - 100) * 1000, 1000);
        let offset = 4096 + (token - 100) * 1000;
        world.driver.read_at(&file, piece, offset, token);
    }
    let mut tokens: Vec<u64> = (0..100)
        .map(|_| match world.next() {
            Completion::File { token, result } => {
                assert_eq!(result.unwrap(), 1000);
                token
            }
            other => panic!("{other:?}"),
        })
        .collect();
    tokens.sort();
    assert!(tokens.into_iter().eq(100..200));
}

#[each_driver]
fn file_errors_come_back(choice: Choice) {
    let mut world = World::new(choice);
    let buf = world.buf(4096);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let full = Arc::new(DiskFile::from(full.unwrap()));
    world.driver.write_at(&full, buf.range(), 0, false, 1);
    let error = world.file(1).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    let kept = tempfile::NamedTempFile::new().unwrap();
    let read_only = std::fs::File::open(kept.path()).unwrap();
    let read_only = Arc::new(DiskFile::from(read_only));
    world.driver.write_at(&read_only, buf.range(), 0, false, 2);
    assert_eq!(world.file(2).unwrap_err().raw_os_error(), Some(libc::EBADF));
}

#[each_driver]
fn more_file_work_than_a_ring_holds(choice: Choice) {
    const READS: u64 = 6000;
    let mut world = World::new(choice);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"x").unwrap();
    let file = Arc::new(DiskFile::from(file.reopen().unwrap()));
    let buf = world.buf(4096);
    // A ring has room for 4096 completions, and nothing is reaped meanwhile.
    for token in 0..READS {
        world.driver.read_at(&file, buf.range(), 0, token);
    }
    let mut seen = vec![false; READS as usize];
    for _ in 0..READS {
        let Completion::File { token, result } = world.next() else {
            panic!("not a file operation");
        };
        assert_eq!(result.unwrap(), 1);
        assert!(!std::mem::replace(&mut seen[token as usize], true));
    }
    assert_eq!(world.driver.counters().file_ops, READS);
}

/// io_uring alone reads what has no offsets: a FIFO hangs until there is something in it.
#[needs(io_uring)]
#[test]
fn a_read_behind_thousands_of_another_host_begins_in_its_turn() {
    const SHARE: u64 = 64;
    const READS: u64 = 5000;
    let mut world = World::new(Choice::Uring);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name ends.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let mut options = std::fs::OpenOptions::new();
    let mut fifo = options.read(true).write(true).open(&path).unwrap();
    let hangs = Arc::new(DiskFile::from(fifo.try_clone().unwrap()));
    let file = tempfile::tempfile_in(folder.path()).unwrap();
    let file = Arc::new(DiskFile::from(file));
    let buf = world.buf(4096);
    let byte = buf.range().slice(0, 1);
    world.driver.set_host(1);
    for _ in 0..SHARE {
        world.driver.read_at(&hangs, byte, 0, 0);
    }
    for _ in 0..READS {
        world.driver.read_at(&file, buf.range(), 0, 1);
    }
    world.driver.set_host(2);
    world.driver.read_at(&file, buf.range(), 0, 2);
    world.poll_now();
    // One place: what takes it ends in the order that it begins.
    fifo.write_all(b"x").unwrap();
    let mut tokens = (0..READS + 2).map(|_| world.next().token());
    assert_eq!(tokens.by_ref().take(4).collect::<Vec<_>>(), [0, 1, 2, 1]);
    assert!(tokens.all(|token| token == 1));
    fifo.write_all(&[b'x'; SHARE as usize - 1]).unwrap();
    for _ in 1..SHARE {
        assert_eq!(world.next().token(), 0);
    }
}

#[each_driver]
fn memory_that_is_gone_panics_at_once(choice: Choice) {
    let mut world = World::new(choice);
    let file = Arc::new(DiskFile::from(tempfile::tempfile().unwrap()));
    let range = Region::anonymous(4096).unwrap().range(0, 4096);
    for is_write in [false, true] {
        let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match is_write {
            false => world.driver.read_at(&file, range, 0, 1),
            true => world.driver.write_at(&file, range, 0, false, 1),
        }));
        assert!(used.is_err());
    }
    world.driver.sync_data(&file, 2);
    world.file(2).unwrap();
}

#[each_driver]
fn wake_from_another_thread(choice: Choice) {
    let mut world = World::new(choice);
    for _ in 0..3 {
        let waker = world.driver.waker();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let wakeups = world.driver.counters().wakeups;
        world
            .driver
            .poll(Wait::Until(u64::MAX), &mut world.out)
            .unwrap();
        assert!(world.out.is_empty());
        assert_eq!(world.driver.counters().wakeups, wakeups + 1);
        thread.join().unwrap();
    }
}

#[each_driver]
fn wake_before_the_sleep_is_not_lost(choice: Choice) {
    let mut world = World::new(choice);
    for _ in 0..3 {
        world.driver.waker().wake();
        world
            .driver
            .poll(Wait::Until(u64::MAX), &mut world.out)
            .unwrap();
    }
    assert!(world.out.is_empty());
}

#[each_driver]
fn sleep_ends_in_time(choice: Choice) {
    let mut world = World::new(choice);
    world.poll_now();
    for delay in [0, 1, 300_000, 3_000_000] {
        let until = world.driver.now() + delay;
        let mut sleeps = 0;
        while world.driver.now() < until {
            world
                .driver
                .poll(Wait::Until(until), &mut world.out)
                .unwrap();
            sleeps += 1;
        }
        assert!(sleeps <= 3, "{sleeps} sleeps for one");
        assert!(world.out.is_empty());
    }
}

#[each_driver]
fn receive_without_memory_has_a_small_stage(choice: Choice) {
    let mut world = World::with(choice, 2 << 20, DriverConfig::default());
    let (socket, mut peer) = world.pair();
    let all = world.buf(2 << 20);
    let much = pattern(9000);
    peer.write_all(&much).unwrap();
    let mut got = Vec::new();
    while got.len() < much.len() {
        world.driver.recv(socket, None, None, 10_000, 1);
        let stage = world.received().stage.unwrap();
        assert!(stage.len() <= 4096, "memory for {} bytes", stage.len());
        got.extend_from_slice(stage.bytes());
    }
    assert_eq!(got, much);
    assert!(world.driver.counters().starved_recvs >= 3);
    drop(all);
    peer.write_all(&much).unwrap();
    world.driver.recv(socket, None, None, 10_000, 1);
    assert!(world.received().stage.unwrap().capacity() > 9000);
}

#[each_driver]
fn payload_and_what_follows_are_received_without_memory_for_a_stage(choice: Choice) {
    let mut world = World::with(choice, 2 << 20, DriverConfig::default());
    let (socket, mut peer) = world.pair();
    let all = world.buf(2 << 20);
    peer.write_all(b"payload and more").unwrap();
    let direct = all.range().slice(0, 7);
    world.driver.recv(socket, Some(direct), None, 100, 1);
    let received = world.received();
    assert_eq!(received.stage.unwrap().bytes(), b" and more");
    assert_eq!(bytes_of(direct), b"payload");
}

#[each_driver]
fn warm_path_neither_allocates_nor_wastes_calls(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    let region = Region::anonymous(8192).unwrap();
    let file = Arc::new(DiskFile::from(tempfile::tempfile().unwrap()));
    let mut reply = [0; 24 + 4096];
    let mut round = |world: &mut World, peer: &mut TcpStream| {
        peer.write_all(&[1; 72 + 4096]).unwrap();
        let buf = world.buf(4096);
        let mut got = 0;
        while got < 72 + 4096 {
            let direct = (got >= 72).then(|| buf.range().slice(got - 72, 72 + 4096 - got));
            let more = if got < 72 { 72 - got } else { 16 };
            world.driver.recv(socket, direct, None, more, 1);
            let received = world.received();
            got += received.direct + received.stage.map_or(0, |stage| stage.len() as u32);
        }
        if choice == Choice::Uring {
            world.driver.read_at(&file, buf.range(), 0, 2);
            world.file(2).unwrap();
        }
        let mut batch = world.driver.batch();
        batch.header(&[2; 24]);
        batch.payload(region.range(0, 4096));
        batch.hold(buf);
        world.driver.send(socket, batch, 3);
        world.sent();
        peer.read_exact(&mut reply).unwrap();
    };
    for _ in 0..50 {
        round(&mut world, &mut peer);
    }
    let (before, counters) = (mem::counters::here(), world.driver.counters());
    for _ in 0..200 {
        round(&mut world, &mut peer);
    }
    let (after, later) = (mem::counters::here(), world.driver.counters());
    assert_eq!(after.allocations - before.allocations, 0);
    assert_eq!(after.copied_bytes - before.copied_bytes, 0);
    let operations = later.recvs + later.sends + later.file_ops
        - counters.recvs
        - counters.sends
        - counters.file_ops;
    let syscalls = later.syscalls - counters.syscalls;
    assert!(syscalls <= operations * 3, "{syscalls} for {operations}");
    let idle = world.driver.counters();
    for _ in 0..100 {
        world.poll_now();
    }
    if choice == Choice::Uring {
        assert_eq!(world.driver.counters().syscalls, idle.syscalls);
    }
}

#[each_driver]
fn drop_ends_what_is_outstanding(choice: Choice) {
    let budget = Budget::new(64 << 20);
    let pool = Pool::new(Arc::clone(&budget)).unwrap();
    let driver = open(choice, &DriverConfig::default(), pool).unwrap();
    let mut world = World {
        driver,
        out: Vec::new(),
    };
    let (socket, mut peer) = world.pair();
    let (other, _other_peer) = world.pair();
    let listener = BoundListener::bind(ANY_PORT).unwrap();
    world.driver.add_listener(listener, 1).unwrap();
    let payload = world.buf(1 << 20);
    let mut batch = world.driver.batch();
    (0..8).for_each(|_| batch.payload(payload.range()));
    batch.hold(payload);
    world.driver.send(socket, batch, 1);
    world.driver.recv(socket, None, None, 100, 2);
    let stage = world.stage(b"x");
    world.driver.recv(other, None, Some(stage), 100, 3);
    world.poll_now();
    drop(world);
    assert_eq!(budget.used(), 0, "memory was lost");
    if let Err(error) = peer.read_to_end(&mut Vec::new()) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "still open");
    }
}

/// What came meanwhile is not lost, and the place that it leaves is another's.
#[each_driver]
fn a_socket_moves_to_another_driver(choice: Choice) {
    let (mut from, mut to) = (World::new(choice), World::new(choice));
    let (socket, mut peer) = from.pair();
    from.driver.recv(socket, None, None, 100, 1);
    from.poll_now();
    assert!(
        from.driver.remove_socket(socket).is_none(),
        "a receive waits"
    );
    peer.write_all(b"one").unwrap();
    assert_eq!(from.received().stage.unwrap().bytes(), b"one");
    from.send_bytes(socket, b"two");
    from.sent();
    let connected = from.driver.remove_socket(socket).expect("it is at rest");
    peer.write_all(b"three").unwrap();
    let (next, _other) = from.pair();
    assert_eq!(next.index(), socket.index(), "its place is free");
    assert_ne!(next, socket);
    from.poll_now();
    assert!(from.out.is_empty(), "{:?} of what has left", from.out);
    let socket = to.driver.add_socket(connected).unwrap();
    to.driver.recv(socket, None, None, 100, 1);
    assert_eq!(to.received().stage.unwrap().bytes(), b"three");
    to.send_bytes(socket, b"four");
    to.sent();
    let mut found = [0; 7];
    peer.read_exact(&mut found).unwrap();
    assert_eq!(&found, b"twofour");
    to.close(socket);
}
